"""Every recipe of the catalog, in every variant: it opens, lays out every task, and its jobs travel."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from fakes import artifact
from finetune.glue.jobs import Finetune, ScoreFromRuns
from harness import catalog
from harness.data.locate import Located
from harness.identity import canonical, digest
from harness.recipe import Recipe, RecipeOptions, RecipePlan
from harness.types import Data, Task
from suites.glue import GLUE

EVERY = [
    f"{entry.name}:{variant}" if variant else entry.name
    for entry in catalog.recipes().values()
    for variant in ("", *entry.variants)
]
RUNS = {
    "glue-neobert": 320,
    "glue-neobert:table6": 480,
    "glue-neobert:ablation": 48,
    "glue-optibert": 680,
    "glue-optibert:table4": 360,
    "glue-modernbert": 384,
    "glue-mosaicbert": 25,
    "glue-quick": 24,
}
"""Of the protocols themselves, fresh seeds of ours apart."""


def located(task: Task) -> Located:
    return Located(data=Data(path=task.data.path, content="c" * 8), folder=Path("data"), origin="root")


def opened(name: str, **options: int) -> Recipe:
    return catalog.open_recipe(name, RecipeOptions(**options))


def recipe_plan(recipe: Recipe, key: str = "a" * 64) -> dict[str, RecipePlan]:
    model = artifact(Path("tiny"), key=key)
    return {name: recipe.plan_task(model, task, locate=located) for name, task in GLUE.items()}


@pytest.mark.parametrize("name", EVERY)
def test_a_recipe_lays_out_every_task(name: str) -> None:
    recipe = opened(name)
    assert recipe.name == name
    assert recipe.source
    for task, one in recipe_plan(recipe).items():
        keys = [job.key for job in one.jobs]
        assert len(set(keys)) == len(keys)
        assert keys[-1] == digest(one.identity)
        assert canonical(one.identity)
        last = one.jobs[-1].work
        assert isinstance(last, ScoreFromRuns)
        assert last.task.name == task
        for number, job in enumerate(one.jobs):
            assert set(job.inputs) <= set(keys[:number]), "what a job waits for stands before it"
        assert pickle.loads(pickle.dumps(one.jobs)) == one.jobs


@pytest.mark.parametrize(("name", "count"), RUNS.items())
def test_the_runs_are_as_many_as_the_paper_has(name: str, count: int) -> None:
    jobs = {job.key: job for one in recipe_plan(opened(name, fresh_seeds=0)).values() for job in one.jobs}
    assert sum(isinstance(job.work, Finetune) for job in jobs.values()) == count


def test_fresh_seeds_come_on_top_where_a_cell_is_chosen() -> None:
    for name, more in (("glue-neobert", 8 * 5), ("glue-optibert", 0), ("glue-mosaicbert", 0)):
        jobs = {job.key: job for one in recipe_plan(opened(name)).values() for job in one.jobs}
        assert sum(job.kind == "train" for job in jobs.values()) == RUNS[name] + more


def test_runs_are_shared_by_variants_but_not_by_backbones() -> None:
    def runs(name: str, key: str = "a" * 64) -> set[str]:
        return {
            job.key
            for job in recipe_plan(opened(name, fresh_seeds=0), key)["CoLA"].jobs
            if job.kind == "train"
        }

    assert runs("glue-neobert") < runs("glue-neobert:table6")
    assert not runs("glue-neobert") & runs("glue-neobert", "b" * 64)
    assert not runs("glue-neobert") & runs("glue-neobert:cadence")


def test_a_run_from_mnli_depends_on_mnlis_grid() -> None:
    """Its own settings are the same, and what it starts from is not."""
    one, other = (
        {
            job.key
            for job in recipe_plan(opened(name, fresh_seeds=0))["RTE"].jobs
            if job.place and job.place.task == "RTE"
        }
        for name in ("glue-neobert", "glue-neobert:table6")
    )
    assert not one & other


def test_fresh_seeds_are_none_of_the_protocols() -> None:
    """Seed 0 would count from 1, which OptiBERT's final seeds are."""
    one = recipe_plan(opened("glue-optibert", seed=0, fresh_seeds=5))["CoLA"]
    assert one.identity["fresh_seeds"] == [6, 7, 8, 9, 10]


def test_keys_are_golden() -> None:
    """A change of these throws away everyone's runs: it needs a reason.

    Written by `python -c "import json, test_recipe_contract as t; print(json.dumps(t.keys(), indent=1))"`.
    """
    assert keys() == json.loads((Path(__file__).parent / "golden" / "recipe-keys.json").read_text())


def keys() -> dict[str, list[str]]:
    """Of each recipe the first run of RTE and its score, for one backbone and one data set."""
    found = {}
    for name in EVERY:
        jobs = recipe_plan(opened(name))["RTE"].jobs
        first = next(job.key for job in jobs if job.place and job.place.task == "RTE")
        found[name] = [first[:16], jobs[-1].key[:16]]
    return found


def test_the_seed_moves_the_fresh_seeds_only() -> None:
    first, second = (recipe_plan(opened("glue-neobert", seed=seed))["CoLA"] for seed in (42, 7))
    one, other = ({job.key for job in each.jobs if job.kind == "train"} for each in (first, second))
    assert len(one & other) == 40
    assert first.identity["fresh_seeds"] == [42001, 42002, 42003, 42004, 42005]
    assert second.identity["fresh_seeds"] == [7001, 7002, 7003, 7004, 7005]
