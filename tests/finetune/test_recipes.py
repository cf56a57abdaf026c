"""The recipes: every field of every run, and what holds of each of them."""

from __future__ import annotations

import json
import pickle
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from fakes import artifact
from finetune.glue.jobs import Finetune, ScoreFromRuns
from finetune.glue.settings import Cadence, Optimizer, Protocol
from finetune.recipes import glue_modernbert, glue_mosaicbert, glue_neobert, glue_optibert, glue_quick
from harness.core.errors import UsageError
from harness.core.keys import digest, serialize_canonical
from harness.core.types import SEED, Data, Task
from harness.data.locate import Located
from harness.jobs.recipe import RecipePlan
from harness.plan import catalog
from suites.glue import GLUE, TASKS

# Every field of every run of the GLUE recipes against tables typed from the papers and their code


NEO, OPTI = glue_neobert.PROTOCOL, glue_optibert.PROTOCOL
MODERN, MOSAIC, QUICK = glue_modernbert.PROTOCOL, glue_mosaicbert.PROTOCOL, glue_quick.PROTOCOL

ALL = ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE")

NEO_TRAINING = {
    "optimizer": {
        "betas": (0.9, 0.95),
        "eps": 1e-8,
        "decay": "torch",
        "undecayed": ("bias", "LayerNorm.weight"),
    },
    "schedule": {"name": "neobert", "warmup": 0.06},
    "max_length": 1024,
    "autocast": "float16",
    "float32_tasks": (),
    "dropout": dict.fromkeys(("embedding", "attention", "attention_out", "mlp", "mlp_out"), 0.0),
    "head": {
        "pooling": "first",
        "dense": "fresh",
        "dense_bias": True,
        "activation": "tanh",
        "dropout_before": 0.1,
        "dropout": 0.1,
        "initializer_range": 0.02,
        "last": "normal",
        "library": False,
    },
    "clip": None,
    "shuffled": True,
    "cadence": {"steps": {}, "at_most": 500, "full_batches": None, "batches": 0.1, "places": None},
    "stopping": {"patience": 15, "counts": "best"},
}
"""The evaluations are those of the text, which OptiBERT says it follows exactly."""

NEO_CODE = {
    **NEO_TRAINING,
    "cadence": {"steps": {}, "at_most": 1000, "full_batches": 1, "batches": None, "places": 0.1},
}

COMPOSER = {
    "optimizer": {"betas": (0.9, 0.98), "eps": 1e-6, "decay": "composer", "undecayed": ()},
    "max_length": 256,
    "autocast": "bfloat16",
    "float32_tasks": ("STS-B",),
    "clip": None,
    "cadence": {
        "steps": {
            "MNLI": 2300,
            "RTE": 100,
            "QQP": 2000,
            "CoLA": 250,
            "MRPC": 100,
            "QNLI": 1000,
            "SST-2": 500,
            "STS-B": 200,
        },
        "at_most": None,
        "full_batches": None,
        "batches": None,
        "places": None,
    },
    "stopping": {"patience": None, "counts": "last"},
}

MODERN_TRAINING = {
    **COMPOSER,
    "schedule": {"name": "composer", "warmup": 0.1},
    "dropout": {"embedding": 0.0, "attention": 0.0, "attention_out": 0.1, "mlp": 0.0, "mlp_out": 0.0},
    "head": {
        "pooling": "first",
        "dense": "mlm",
        "dense_bias": False,
        "activation": "gelu",
        "dropout_before": 0.0,
        "dropout": 0.0,
        "initializer_range": 0.02,
        "last": "megatron",
        "library": False,
    },
    "shuffled": True,
}

MOSAIC_TRAINING = {
    **COMPOSER,
    "schedule": {"name": "composer", "warmup": 0.06},
    "dropout": {"embedding": 0.1, "attention": None, "attention_out": 0.1, "mlp": None, "mlp_out": None},
    "head": {
        "pooling": "first",
        "dense": "pooler",
        "dense_bias": True,
        "activation": "tanh",
        "dropout_before": 0.0,
        "dropout": 0.1,
        "initializer_range": 0.02,
        "last": "normal",
        "library": False,
    },
    "shuffled": False,
}

FIVE, SIX = (5e-6, 6e-6, 1e-5, 2e-5, 3e-5), (5e-6, 6e-6, 8e-6, 1e-5, 2e-5, 3e-5)
DECAYS, MODERN_DECAYS = (1e-2, 1e-5), (1e-6, 5e-6, 8e-6, 1e-5)

Cells = dict[str, list[tuple[float, int, float, int, int]]]


def same(*values: tuple[Any, ...]) -> Cells:
    """The same cells for every task: rates, batches, decays, epochs, seeds."""
    return {name: list(product(*values)) for name in ALL}


MODERN_CELLS = {
    name: list(
        product(
            (1e-5, 3e-5, 5e-5, 8e-5),
            (64,),
            MODERN_DECAYS,
            (1, 2, 3) if name in ("SST-2", "MNLI", "RTE") else (2, 5, 10),
            (1618,),
        )
    )
    for name in ALL
}

MOSAIC_CELLS: Cells = {
    "MNLI": [(5e-5, 48, 5e-6, 3, 19)],
    "QNLI": [(1e-5, 16, 1e-6, 10, 19)],
    "QQP": [(3e-5, 16, 3e-6, 5, 19)],
    "SST-2": [(3e-5, 16, 3e-6, 3, s) for s in (19, 8364, 717)],
    "CoLA": [(5e-5, 32, 5e-6, 10, s) for s in (19, 8364, 717, 10536)],
    "RTE": [(1e-5, 16, 1e-5, 3, s) for s in (19, 8364, 717, 10536, 90166)],
    "MRPC": [(8e-5, 32, 8e-6, 10, s) for s in (19, 8364, 717, 10536, 90166)],
    "STS-B": [(3e-5, 32, 3e-6, 10, s) for s in (19, 8364, 717, 10536, 90166)],
}

NEO_START, MODERN_START = {"RTE", "STS-B", "MRPC", "QNLI"}, {"RTE", "STS-B", "MRPC"}

TABLE: list[tuple[Protocol, int, Cells, dict[str, Any], set[str], str, int]] = [
    (NEO, 320, same(FIVE, (4, 8, 16, 32), DECAYS, (10,), (0,)), NEO_TRAINING, NEO_START, "best", 0),
    (
        NEO.variants["table6"],
        480,
        same(SIX, (2, 4, 8, 16, 32), DECAYS, (10,), (0,)),
        NEO_CODE,
        NEO_START,
        "best",
        0,
    ),
    (
        NEO.variants["ablation"],
        48,
        same((1e-5, 2e-5, 3e-5), (16, 32), (1e-2,), (10,), (0,)),
        {**NEO_TRAINING, "max_length": 512},
        NEO_START,
        "best",
        0,
    ),
    (
        NEO.variants["code"],
        320,
        same(FIVE, (4, 8, 16, 32), DECAYS, (10,), (0,)),
        NEO_CODE,
        NEO_START,
        "best",
        0,
    ),
    (OPTI, 680, same(FIVE, (4, 8, 16, 32), DECAYS, (2, 10), (0,)), NEO_TRAINING, NEO_START, "best", 5),
    (MODERN, 384, MODERN_CELLS, MODERN_TRAINING, MODERN_START, "best", 0),
    (
        MODERN.variants["warmup6"],
        384,
        MODERN_CELLS,
        {**MODERN_TRAINING, "schedule": {"name": "composer", "warmup": 0.06}},
        MODERN_START,
        "best",
        0,
    ),
    (MOSAIC, 25, MOSAIC_CELLS, MOSAIC_TRAINING, MODERN_START, "none", 0),
    (
        MOSAIC.variants["bert-large"],
        25,
        {**MOSAIC_CELLS, "QQP": [(1.5e-5, 16, 3e-6, 5, 19)]},
        MOSAIC_TRAINING,
        MODERN_START,
        "none",
        0,
    ),
]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0].name}-{row[1]}")
def test_every_field_of_every_run(
    row: tuple[Protocol, int, Cells, dict[str, Any], set[str], str, int],
) -> None:
    protocol, runs, cells, training, start, selection, final = row
    assert protocol.runs == runs
    assert set(protocol.grids) == set(cells) == set(ALL)
    assert (protocol.selection, len(protocol.final_seeds)) == (selection, final)
    for name, expected in cells.items():
        trials = protocol.list_trials(name)
        found = [(t.learning_rate, t.batch_size, t.weight_decay, t.epochs, t.seed) for t in trials]
        assert sorted(found) == sorted(expected)
        assert len(set(found)) == len(found)
        for trial in trials:
            assert asdict(trial.training) == training
            assert trial.task == name
            assert trial.start == ("mnli" if name in start else "backbone")
            half = name not in training["float32_tasks"]
            assert trial.autocast == (training["autocast"] if half else "float32")


def test_the_tied_epochs_of_optiberts_table() -> None:
    tied = OPTI.variants["table4"]
    assert tied.runs == 320 + 40
    assert {name: {t.epochs for t in tied.list_trials(name)} for name in ALL} == {
        name: {2} if name in ("MNLI", "QQP") else {10} for name in ALL
    }


def test_the_quick_recipe_is_one_cell_and_three_seeds() -> None:
    assert QUICK.runs == 24
    assert {(t.learning_rate, t.batch_size, t.epochs) for n in ALL for t in QUICK.list_trials(n)} == {
        (5e-5, 16, 1)
    }


def test_the_tasks_are_those_of_glue() -> None:
    """Rows, labels and metrics, typed from the data set's card."""
    assert tuple(TASKS) == ALL
    rows = {
        **{"CoLA": (8551, (1043,)), "SST-2": (67349, (872,)), "MRPC": (3668, (408,))},
        **{"STS-B": (5749, (1500,)), "QQP": (363846, (40430,)), "QNLI": (104743, (5463,))},
        **{"MNLI": (392702, (9815, 9832)), "RTE": (2490, (277,))},
    }
    assert {name: (task.train_rows, task.dev_rows) for name, task in TASKS.items()} == rows
    assert {name: task.classes for name, task in TASKS.items() if task.classes != 2} == {
        "MNLI": 3,
        "STS-B": 1,
    }
    assert TASKS["QQP"].columns == ("question1", "question2")
    assert TASKS["QNLI"].columns == ("question", "sentence")
    assert [TASKS[n].metrics for n in ("CoLA", "MRPC", "STS-B", "SST-2")] == [
        ("mcc",),
        ("accuracy", "f1"),
        ("pearson", "spearman"),
        ("accuracy",),
    ]


@pytest.mark.parametrize(
    ("task", "batch_size", "text", "code"),
    [
        ("RTE", 32, 7, 77),  # 78 // 10; 2,490 // 32 = 77 is below 2,496 // 10 = 249
        ("RTE", 4, 62, 249),  # 623 // 10; 2,490 // 4 = 622, 2,492 // 10 = 249
        ("MNLI", 32, 500, 1000),
        ("CoLA", 16, 53, 534),  # 535 // 10; 8,551 // 16
        ("SST-2", 4, 500, 1000),
    ],
)
def test_the_steps_between_evaluations(task: str, batch_size: int, text: int, code: int) -> None:
    rows = TASKS[task].train_rows
    loader = -(-rows // batch_size)
    assert text == min(500, loader // 10)
    assert code == min(1000, rows // batch_size, loader * batch_size // 10)
    for protocol, steps in ((NEO, text), (OPTI, text), (NEO.variants["code"], code)):
        assert protocol.training.cadence.compute_interval(task, rows=rows, batch_size=batch_size) == steps
    assert Cadence(batches=0.1).compute_interval("tiny", rows=5, batch_size=5) == 1


def test_patience_can_end_a_run_under_the_texts_evaluations() -> None:
    """Fifteen evaluations take a tenth of a run of ten epochs; under the code's almost a run."""

    def evaluations(protocol: Protocol, batch_size: int) -> int:
        steps = 10 * -(-2490 // batch_size)
        return steps // protocol.training.cadence.compute_interval("RTE", rows=2490, batch_size=batch_size)

    assert [evaluations(OPTI, size) for size in (4, 8, 16, 32)] == [100, 100, 104, 111]
    assert [evaluations(NEO.variants["code"], size) for size in (4, 8, 16, 32)] == [25, 12, 10, 10]


def test_composers_decay_in_torchs_terms() -> None:
    """A step's factor is 1 - (lr / peak) * decay there, and 1 - lr * decay in torch."""
    composer = Optimizer(betas=(0.9, 0.98), eps=1e-6, decay="composer")
    assert composer.convert_decay(5e-6, 5e-5) == pytest.approx(0.1)
    assert composer.convert_decay(1e-6, 8e-5) == pytest.approx(0.0125)
    for factor in (0.0, 0.3, 1.0):
        rate = factor * 8e-5
        assert rate * composer.convert_decay(1e-6, 8e-5) == pytest.approx(rate / 8e-5 * 1e-6)
    assert Optimizer(betas=(0.9, 0.95), eps=1e-8).convert_decay(1e-2, 5e-5) == 1e-2


def test_steps_of_a_run() -> None:
    trial = NEO.list_trials("RTE")[0]
    assert trial.batch_size == 4
    assert trial.count_trial_steps(2490) == 10 * 623


# Every recipe of the catalog, in every variant: it opens, lays out every task, and its jobs travel


EVERY = [
    f"{entry.name}:{variant}" if variant else entry.name
    for entry in catalog.load_recipe_entries().values()
    if entry.kind == "task"
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


def opened(name: str, **settings: Any) -> Any:
    return catalog.open_recipe(name, settings)


def recipe_plan(recipe: Any, key: str = "a" * 64, seed: int = SEED) -> dict[str, RecipePlan]:
    model = artifact(Path("tiny"), key=key)
    return {name: recipe.plan_task(model, task, locate=located, seed=seed) for name, task in GLUE.items()}


@pytest.mark.parametrize("name", EVERY)
def test_a_recipe_lays_out_every_task(name: str) -> None:
    recipe = opened(name)
    assert recipe.name == name
    assert recipe.source
    for task, one in recipe_plan(recipe).items():
        keys = [job.key for job in one.jobs]
        assert len(set(keys)) == len(keys)
        assert keys[-1] == digest(one.identity)
        assert serialize_canonical(one.identity)
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
        assert sum(job.kind == "finetune" for job in jobs.values()) == RUNS[name] + more


def test_runs_are_shared_by_variants_but_not_by_backbones() -> None:
    def runs(name: str, key: str = "a" * 64) -> set[str]:
        return {
            job.key
            for job in recipe_plan(opened(name, fresh_seeds=0), key)["CoLA"].jobs
            if job.kind == "finetune"
        }

    assert runs("glue-neobert:code") < runs("glue-neobert:table6")
    assert runs("glue-neobert") < runs("glue-optibert")
    assert not runs("glue-neobert") & runs("glue-neobert", "b" * 64)
    assert not runs("glue-neobert") & runs("glue-neobert:code")


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


def test_a_cell_starts_from_mnlis_own_cell() -> None:
    """The run to start from is the one that MNLI's own printed values make, whatever values the task has."""

    def runs(task: str, **settings: str) -> dict[str, tuple[float, int]]:
        return {
            job.key: (job.work.trials[0].learning_rate, job.work.trials[0].epochs)
            for job in recipe_plan(opened("glue-modernbert", fresh_seeds=0, **settings))[task].jobs
            if isinstance(job.work, Finetune) and job.work.task.name == "MNLI"
        }

    mnli = runs("MNLI", learning_rate="5e-5", epochs="1", weight_decay="5e-6")
    rte = {"learning_rate": "1e-5", "epochs": "3", "weight_decay": "1e-6"}
    values = "learning_rate=5e-5,epochs=1,weight_decay=5e-6"
    assert runs("RTE", **rte, mnli=values) == mnli
    assert [*mnli.values()] == [(5e-5, 1)]
    # What is not named is the recipe's; without any, MNLI has the values that are set.
    assert {one for one, _ in runs("RTE", **rte, mnli="epochs=1").values()} == {1e-5, 3e-5, 5e-5, 8e-5}
    assert [*runs("RTE", **rte).values()] == [(1e-5, 3)]
    for values, said in (
        ("rate=1", "no setting 'rate'"),
        ("epochs=x", "cannot be"),
        ("nowhere", "not exist"),
    ):
        with pytest.raises(UsageError, match=said):
            opened("glue-modernbert", mnli=values)


def test_fresh_seeds_are_none_of_the_protocols() -> None:
    """Seed 0 would count from 1, which OptiBERT's final seeds are."""
    one = recipe_plan(opened("glue-optibert", fresh_seeds=5), seed=0)["CoLA"]
    assert one.identity["fresh_seeds"] == [6, 7, 8, 9, 10]


def test_keys_are_golden() -> None:
    """A change of these throws away everyone's runs: it needs a reason.

    Written by `python -c "import json, test_recipes as t; print(json.dumps(t.keys(), indent=1))"`.
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
    first, second = (recipe_plan(opened("glue-neobert"), seed=seed)["CoLA"] for seed in (42, 7))
    one, other = ({job.key for job in each.jobs if job.kind == "finetune"} for each in (first, second))
    assert len(one & other) == 40
    assert first.identity["fresh_seeds"] == [42001, 42002, 42003, 42004, 42005]
    assert second.identity["fresh_seeds"] == [7001, 7002, 7003, 7004, 7005]


# Settings that a user changes: they narrow the grid, and take the paper's name away


def test_settings_narrow_the_grid_of_every_task() -> None:
    recipe = opened("glue-neobert", learning_rate="1e-5,3e-5", batch_size=16, epochs="2", fresh_seeds=0)
    for task, one in recipe_plan(recipe).items():
        trials = {
            (t.learning_rate, t.batch_size, t.weight_decay, t.epochs)
            for job in one.jobs
            if isinstance(job.work, Finetune) and job.work.task.name == task
            for t in job.work.trials
        }
        assert trials == set(product((1e-5, 3e-5), (16,), (1e-2, 1e-5), (2,)))
        # MNLI's own runs, from which others start, are narrowed as well.
        runs = sum(isinstance(job.work, Finetune) for job in one.jobs)
        assert runs == (8 if task in glue_neobert.TRANSFER else 4)


@pytest.mark.parametrize(
    ("name", "settings", "modified"),
    [
        ("glue-neobert", {"learning_rate": "1e-5"}, "learning_rate=1e-05"),
        ("glue-neobert", {"weight_decay": "0", "max_length": "512"}, "weight_decay=0.0 and max_length=512"),
        ("glue-neobert:code", {"dtype": "bf16", "seeds": "1,2"}, "seeds=1,2 and dtype=bfloat16"),
        ("glue-modernbert", {"dtype": "bfloat16"}, "dtype=bfloat16"),  # of STS-B, which has float32
        ("glue-mosaicbert", {"epochs": "3"}, "epochs=3"),
        ("glue-quick", {"seeds": "7"}, "seeds=7"),
        ("glue-quick", {"learning_rate": "5e-5", "seeds": "2,1,0", "max_length": 256, "dtype": "fp32"}, ""),
        ("glue-neobert", {"learning_rate": "3e-5,2e-5,1e-5,6e-6,5e-6", "dtype": "fp16"}, ""),
        ("glue-optibert", {"seeds": "5,4,3,2,1,1"}, ""),
        ("glue-optibert", {"seeds": "1,2,3,4,5", "fresh_seeds": 5}, ""),
        ("glue-neobert", {"fresh_seeds": 3, "transfer": "false"}, ""),
    ],
)
def test_what_is_modified_stands_behind_the_name_and_in_the_key(
    name: str, settings: dict[str, Any], modified: str
) -> None:
    recipe = opened(name, **settings)
    assert recipe.name == (f"{name}, modified: {modified}" if modified else name)
    plain = opened(name, **{n: v for n, v in settings.items() if n in ("fresh_seeds", "transfer")})
    ours, theirs = (recipe_plan(one)["STS-B"] for one in (recipe, plain))
    assert (ours.jobs[-1].key == theirs.jobs[-1].key) == (not modified)
    assert ours.identity["recipe"] == name
    assert (ours.identity.get("modified", {}) != {}) == bool(modified)
    told = ours.jobs[-1].work.told  # type: ignore[attr-defined]
    assert told.get("modified") == ours.identity.get("modified")


def test_seeds_are_those_whose_mean_is_the_score() -> None:
    """At the chosen cell, in place of fresh ones; where nothing is chosen those of every run."""
    for name, kind, runs in (("glue-neobert", "final", 40), ("glue-mosaicbert", "protocol", 0)):
        one = recipe_plan(opened(name, seeds="5,6,5", transfer="false"))["CoLA"]
        score = one.jobs[-1].work
        assert isinstance(score, ScoreFromRuns)
        assert (score.kind, len(score.seeds)) == (kind, 2)
        works = [job.work for job in one.jobs if isinstance(job.work, Finetune)]
        assert len(works) == runs + 2
        assert [work.seed for work in works[-2:]] == [5, 6]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rat": 1}, "Did you mean learning_rate?"),
        ({"learning_rate": "fast"}, "learning_rate of glue-neobert cannot be 'fast'"),
        ({"learning_rate": "-1"}, "learning_rate of glue-neobert cannot be '-1'"),
        ({"batch_size": "0"}, "batch_size of glue-neobert cannot be '0'"),
        ({"epochs": "1.5"}, "epochs of glue-neobert cannot be '1.5'"),
        ({"dtype": "int8"}, "dtype of glue-neobert cannot be 'int8'"),
        ({"seeds": "1,2", "fresh_seeds": 3}, "seeds and fresh_seeds contradict each other"),
    ],
)
def test_a_setting_that_no_run_can_have_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message.replace("?", r"\?")):
        opened("glue-neobert", **settings)


@pytest.mark.parametrize("name", ["finetune", "glue-quick", "glue-mosaicbert"])
def test_several_values_are_refused_where_none_is_chosen(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} chooses no value of learning_rate"):
        opened(name, learning_rate="1e-5,3e-5")
    assert opened(name, learning_rate="1e-5,1e-5", seeds="1,2").modified["learning_rate"]
