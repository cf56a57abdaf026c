"""From a backbone to the table of GLUE: grids, choice, transfer, fresh seeds, and going on after a stop."""

from __future__ import annotations

import io
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file, save_file
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import matthews_corrcoef
from starlette.testclient import TestClient

import fakes
import harness
import tiny
from finetune.glue import probe, trainer
from finetune.glue.jobs import _build_run_training, _Checkpoints
from finetune.glue.model import Classifier
from finetune.glue.plan import entry
from finetune.glue.settings import Cadence, Grid, Protocol, Stopping
from finetune.glue.trainer import Evaluation, Progress
from finetune.recipes import glue_neobert, glue_quick
from glue_data import data_root
from harness.cli import invoke
from harness.core.documents import append_digest, verify_digest
from harness.core.errors import DataError, UsageError
from harness.core.types import LabelledData, LabelledSplit
from harness.driver.execute import Listeners
from harness.driver.report.run import Report
from harness.plan import catalog
from harness.storage.record import Record
from harness.storage.store import Store
from leaderboard.web.app import create_app
from site_data import small_settings
from stored_records import iter_records

# From a backbone to the table of GLUE: grids, choice, transfer, fresh seeds, and going on after a stop


GRID = Grid(learning_rates=(1e-3, 3e-3), batch_sizes=(16,), weight_decays=(0.0,), epochs=(4,))
SMALL = replace(
    glue_quick.PROTOCOL,
    name="small",
    training=replace(
        glue_quick.PROTOCOL.training, cadence=Cadence(batches=1), stopping=Stopping(patience=3, counts="best")
    ),
    grids=dict.fromkeys(glue_quick.PROTOCOL.grids, GRID),
    transfer=("RTE", "MRPC"),
    selection="best",
)
TASKS = ("MRPC", "MNLI", "RTE")


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.folder(tiny.families()["bert"], tmp_path_factory.mktemp("models") / "tiny-bert")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return data_root(tmp_path_factory.mktemp("data"))


Runner = Callable[..., Report]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results and caches of whole runs of `SMALL`, one for each choice of tasks."""
    return tmp_path_factory.mktemp("finished")


@pytest.fixture
def small(
    backbone: Path, data: Path, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Runner:
    """Runs a recipe of this module, in this process; a plain run goes on from the end of its like."""

    def go(
        protocol: Protocol = SMALL, *, results: str = "results", tasks: tuple[str, ...] = TASKS, **more: Any
    ) -> Report:
        entries = {"small": entry(protocol, "for tests")}
        monkeypatch.setattr(catalog, "load_recipe_entries", lambda: entries)
        places = {tmp_path / results: "results", tmp_path / f"cache-{results}": "cache"}
        plain = protocol is SMALL and not more and not any(place.exists() for place in places)
        kept = finished / "-".join(tasks)
        if plain and kept.exists():
            for place, name in places.items():
                shutil.copytree(kept / name, place)
        settings = {"fresh_seeds": 2, **(more.pop("recipe_settings", {}))}
        asked = {
            "data": data,
            "results": tmp_path / results,
            "cache": tmp_path / f"cache-{results}",
            "tasks": tasks,
            "recipe_settings": settings,
            "workers": 1,
            "threads": 1,
            "recipe": "small",
            **more,
        }
        report = harness.run(str(asked.pop("model", backbone)), "glue", **asked)
        if plain and not kept.exists():
            for place, name in places.items():
                shutil.copytree(place, kept / name)
        return report

    return go


def trials(results: Path) -> dict[str, Record]:
    return {record.key: record for record in iter_records(Store(results), purpose="trial")}


def finals(report: Report) -> dict[str, Record]:
    return {record.task.name: record for record in report.records}


def scores(report: Report) -> dict[str, tuple[str, float | None]]:
    return {record.task.name: (record.key, record.main_score) for record in report.records}


@pytest.mark.slow
def test_a_chain_from_mnli_to_the_table(small: Runner, tmp_path: Path) -> None:
    report = small()
    assert report.exit_code == 0
    found, runs = finals(report), trials(tmp_path / "results")
    assert len(runs) == 3 * (2 + 2)  # of each task two cells, and two fresh seeds
    mnli = [run for run in runs.values() if run.task.name == "MNLI" and "chosen" not in run.identity["trial"]]
    best = max(mnli, key=lambda run: run.scores["validation_matched"]["mnli"]["accuracy"])
    for name in ("RTE", "MRPC"):
        assert found[name].training["source"]["run"] == best.key
    for name, record in found.items():
        cells, seeds = record.training["cells"], record.training["seeds"]
        assert [cell["learning_rate"] for cell in cells] == [1e-3, 3e-3]
        assert [cell["score"] for cell in cells] == [runs[cell["key"]].main_score for cell in cells]
        assert record.training["grid_maximum"] == max(cell["score"] for cell in cells)
        chosen = max(cells, key=lambda cell: cell["score"])
        assert record.training["chosen"]["learning_rate"] == chosen["learning_rate"]
        fresh = [runs[key] for key in seeds["keys"]]
        assert seeds["seeds"] == [42001, 42002]
        assert {run.training["trial"]["learning_rate"] for run in fresh} == {chosen["learning_rate"]}
        assert record.main_score == pytest.approx(np.mean([run.main_score for run in fresh]))
        assert seeds["standard_deviation"] == pytest.approx(np.std([run.main_score for run in fresh], ddof=1))
        assert record.identity.get("start", {}).get("from") == (None if name == "MNLI" else "selected")
        evaluation = record.training["evaluation"]
        assert evaluation["counts"] == "best"
        assert evaluation["evaluations"] == [len(run.training["evaluations"]) for run in fresh]
        for kind, made in (
            ("last", [run.training["evaluations"][-1]["metrics"] for run in fresh]),
            ("cross_fitted", [run.training["cross_fitted"] for run in fresh]),
        ):
            values = {(split, metric): value for split, metric, value in evaluation[kind]["metrics"]}
            assert values == {
                (one[0], one[1]): pytest.approx(np.mean([one[2], other[2]]))
                for one, other in zip(*made, strict=True)
            }
            assert evaluation[kind]["score"] == pytest.approx(np.mean([*values.values()]))
        assert evaluation["last"]["score"] <= record.main_score
        assert record.training["with_diverged"] is None


def test_predictions_of_every_fresh_seed_give_the_score(small: Runner, tmp_path: Path) -> None:
    report = small(tasks=("STS-B", "CoLA"))
    for name, record in finals(report).items():
        folder = Store(tmp_path / "results")
        path = folder.find_part_file(record, report.prepared.subjects[0].artifact.slug)
        assert path is not None
        table = pq.read_table(path).to_pydict()
        seeds = np.array(table["replicate"])
        assert sorted(set(seeds)) == [42001, 42002]
        assert len(set(table["example_id"])) == 24
        pairs = [
            tuple(np.array(table[key], dtype=float)[seeds == seed] for key in ("gold", "prediction"))
            for seed in (42001, 42002)
        ]
        if name == "CoLA":
            made = {"mcc": [matthews_corrcoef(*pair) for pair in pairs]}
        else:
            made = {
                "pearson": [pearsonr(*pair).statistic for pair in pairs],
                "spearman": [spearmanr(*pair).statistic for pair in pairs],
            }
        (found,) = record.scores["validation"].values()
        assert found == {metric: pytest.approx(np.mean(values), abs=1e-6) for metric, values in made.items()}


@pytest.mark.slow
def test_what_is_there_is_not_run_again_and_a_stop_changes_nothing(small: Runner) -> None:
    whole = small(results="whole")
    seen: list[str] = []

    def stop(_job: object, record: Record) -> None:
        seen.append(record.key)
        if len(seen) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small(listeners=Listeners(trained=stop))
    more: list[str] = []
    again = small(listeners=Listeners(trained=lambda _job, record: more.append(record.key)))
    assert not set(seen) & set(more)
    assert len(seen) + len(more) == 12
    for name, (key, score) in scores(whole).items():
        assert scores(again)[name] == (key, pytest.approx(score, abs=1e-6))
    none: list[str] = []
    cached = small(listeners=Listeners(trained=lambda _job, record: none.append(record.key)))
    assert none == []
    assert {result.how for result in cached.results} == {"cached"}


def test_a_larger_grid_uses_the_runs_of_a_smaller(small: Runner) -> None:
    small(tasks=("CoLA",))
    new: list[dict[str, Any]] = []
    wider = replace(SMALL, grids={"CoLA": replace(GRID, learning_rates=(1e-3, 2e-3, 3e-3))})
    small(wider, tasks=("CoLA",), listeners=Listeners(trained=lambda _j, r: new.append(r.training["trial"])))
    assert [run["learning_rate"] for run in new if run["seed"] == 0] == [2e-3]


def test_runs_that_come_to_nothing_are_counted(small: Runner) -> None:
    wild = replace(SMALL, grids={"CoLA": replace(GRID, learning_rates=(1e-3, 1e30), epochs=(2,))})
    record = finals(small(wild, tasks=("CoLA",)))["CoLA"]
    assert record.training["diverged"] == 1
    assert [cell["diverged"] for cell in record.training["cells"]] == [False, True]
    assert record.training["cells"][1]["score"] is None
    assert record.training["chosen"]["learning_rate"] == 1e-3


@pytest.mark.parametrize(("predictions", "constant"), [([1.0, 1.0, 1.0], True), ([1.0, 0.0, 1.0], False)])
def test_a_run_that_says_one_and_the_same_is_marked(predictions: list[float], constant: bool) -> None:
    found = Evaluation(
        step=1, metrics={("validation", "mcc"): 0.0}, predictions={"validation": torch.tensor(predictions)}
    )
    progress = Progress(losses=[0.5, 0.25], evaluations=[found])
    split = LabelledSplit(texts=[["x", "y", "z"]], labels=[0, 1, 1], ids=["a", "b", "c"])
    labelled = LabelledData(train=split, dev={"validation": split}, classes=2)
    told = _build_run_training(SMALL.list_trials("CoLA")[0], progress, labelled)
    assert (told["constant"], told["diverged"], told["watched"]) == (constant, False, 0.0)
    assert told["loss"] == {"first": 0.5, "last": 0.25}


def test_a_diverged_seed_is_left_out_of_the_mean_and_shown_with_it(
    small: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In half of CoLA's rows here the label is 0; the metric of one class alone is 0."""
    train = trainer.train_classifier

    def diverging(model: Any, rows: Any, trial: Any, *args: Any, **more: Any) -> Progress:
        return (
            Progress(losses=[math.nan]) if trial.seed == 42002 else train(model, rows, trial, *args, **more)
        )

    monkeypatch.setattr(trainer, "train_classifier", diverging)
    report = small(tasks=("SST-2",))
    record = finals(report)["SST-2"]
    whole, lost = record.training["seeds"]["scores"]
    assert (record.main_score, lost, record.training["seeds"]["diverged"]) == (whole, None, 1)
    path = report.prepared.store.find_part_file(record, report.prepared.subjects[0].artifact.slug)
    assert path is not None
    zeros = float(np.mean(np.array(pq.read_table(path)["gold"].to_pylist()) == 0))
    ((_, _, value),) = record.training["with_diverged"]
    assert value == pytest.approx((whole + zeros) / 2)
    (suite,) = report.to_json()["suites"]
    rows = {row["task"]: row for row in suite["standing"]["tasks"]}
    assert rows["SST-2"]["with_diverged"] == pytest.approx(value)
    console = Console(record=True, width=200, file=io.StringIO())
    report.print(console)
    assert "SST-2: 1 of 2 seeds that count diverged" in (text := console.export_text())
    assert f"{100 * whole:.2f} without the diverged seeds, {100 * value:.2f} with them" in text


def test_a_grid_of_which_every_run_diverges_fails(small: Runner) -> None:
    wild = replace(SMALL, grids={"CoLA": replace(GRID, learning_rates=(1e30, 3e30), epochs=(2,))})
    report = small(wild, tasks=("CoLA",))
    assert report.exit_code == 1
    (failed,) = report.failures
    assert failed.failure is not None
    assert "All 2 runs of the grid diverged" in failed.failure.message


def test_without_fresh_seeds_the_maximum_is_called_one(small: Runner) -> None:
    record = finals(small(tasks=("CoLA",), recipe_settings={"fresh_seeds": 0}))["CoLA"]
    assert record.training["seeds"]["kind"] == "maximum"
    assert record.main_score == record.training["grid_maximum"]
    assert record.identity["fresh_seeds"] == []


def test_records_of_a_trained_model_have_its_lineage(small: Runner, backbone: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(backbone, model)
    document = fakes.train(model)
    report = small(tasks=("CoLA",), recipe_settings={"fresh_seeds": 0}, model=model)
    records = [finals(report)["CoLA"], *trials(tmp_path / "results").values()]
    assert {record.model.artifact for record in records} == {document.key}
    assert [record.lineage for record in records] == [document.lineage] * 3


def test_no_transfer_is_recorded_and_needs_no_mnli(small: Runner, tmp_path: Path) -> None:
    record = finals(small(tasks=("RTE",), recipe_settings={"fresh_seeds": 1, "transfer": False}))["RTE"]
    assert record.identity["start"] == {"from": "backbone"}
    assert record.training["source"] is None
    assert {run.task.name for run in trials(tmp_path / "results").values()} == {"RTE"}


def test_a_checkpoint_of_ours_is_what_the_selected_model_is(small: Runner, tmp_path: Path) -> None:
    """The weights that a run keeps for MNLI, given by hand, lead to the same scores."""
    first = finals(small(tasks=("RTE",)))["RTE"]
    place = tmp_path / "cache-results" / "finetuned"
    (kept,) = place.glob(f"*/{first.training['source']['run']}.safetensors")
    other = finals(small(tasks=("RTE",), results="other", recipe_settings={"mnli": kept}))["RTE"]
    assert other.identity["start"]["from"] == "checkpoint"
    assert other.key != first.key
    assert other.main_score == pytest.approx(first.main_score, abs=1e-6)
    assert {run.task.name for run in trials(tmp_path / "other").values()} == {"RTE"}


def test_mnli_is_trained_with_values_of_its_own(small: Runner, tmp_path: Path) -> None:
    settings = {"fresh_seeds": 0, "learning_rate": "3e-3", "mnli": "learning_rate=1e-3"}
    record = finals(small(tasks=("RTE",), recipe_settings=settings))["RTE"]
    rates = {
        run.task.name: run.training["trial"]["learning_rate"] for run in trials(tmp_path / "results").values()
    }
    assert rates == {"MNLI": 1e-3, "RTE": 3e-3}
    assert record.identity["start"]["from"] == "selected"
    assert record.training["source"]["learning_rate"] == 1e-3


@pytest.mark.slow
def test_weights_that_are_gone_are_made_again(small: Runner, tmp_path: Path) -> None:
    small(tasks=("MNLI",))
    shutil.rmtree(tmp_path / "cache-results" / "finetuned")
    record = finals(small(tasks=("RTE",)))["RTE"]
    assert (tmp_path / "cache-results" / "finetuned").exists()
    whole = finals(small(tasks=("RTE",), results="whole"))["RTE"]
    assert record.main_score == pytest.approx(whole.main_score, abs=1e-6)


def test_a_damaged_state_of_a_grid_is_noted(small: Runner, tmp_path: Path) -> None:
    small(tasks=("MNLI",))
    (state,) = (tmp_path / "cache-results" / "finetuned").glob("*/best.json")
    state.write_text(state.read_text().replace("0.", "1.", 1))
    notes: list[str] = []
    small(tasks=("RTE",), listeners=Listeners(event=lambda _job, event: notes.append(event.text)))
    assert [note for note in notes if "damaged" in note] == [
        f"{state} is damaged. The weights beside it count as missing."
    ]


def test_weights_of_another_making_are_not_taken(small: Runner, tmp_path: Path) -> None:
    """What lies in the cache scored otherwise than the run that was chosen."""
    small(tasks=("MNLI",))
    (state,) = (tmp_path / "cache-results" / "finetuned").glob("*/best.json")
    known = verify_digest(state.read_bytes())["runs"]
    state.write_text(append_digest({"runs": {key: {**run, "watched": 0.123} for key, run in known.items()}}))
    assert finals(small(tasks=("RTE",)))["RTE"].training["source"] is not None
    runs = [run for run in trials(tmp_path / "results").values() if run.task.name == "RTE"]
    (made,) = {run.provenance["start_weights"] for run in runs}
    first = {run.provenance["start_weights"] for run in runs if "chosen" not in run.identity["trial"]}
    assert first == {made}
    assert 0.123 not in [run["watched"] for run in verify_digest(state.read_bytes())["runs"].values()]


def test_seeds_of_a_choice_fall_with_what_was_chosen_from(small: Runner, tmp_path: Path) -> None:
    """A lost run of the grid is made again, and so are the runs of the cell that was chosen with it."""
    record = finals(small(tasks=("CoLA",)))["CoLA"]
    folder = next((tmp_path / "results" / "records").glob("*/CoLA"))
    (folder / f"{record.training['cells'][1]['key']}.json").unlink()
    (folder / f"{record.key}.json").unlink()
    made: list[Record] = []
    small(tasks=("CoLA",), listeners=Listeners(trained=lambda _job, run: made.append(run)))
    assert [run.training["trial"]["seed"] for run in made] == [0, 42001, 42002]


def test_a_run_whose_predictions_are_gone_is_made_again(small: Runner, tmp_path: Path) -> None:
    record = finals(small(tasks=("CoLA",)))["CoLA"]
    folder = next((tmp_path / "results" / "records").glob("*/CoLA"))
    (folder / f"{record.key}.json").unlink()
    (folder / f"{record.training['seeds']['keys'][0]}.examples.parquet").unlink()
    made: list[Record] = []
    report = small(tasks=("CoLA",), listeners=Listeners(trained=lambda _job, run: made.append(run)))
    assert [run.training["trial"]["seed"] for run in made] == [42001]
    assert finals(report)["CoLA"].main_score == pytest.approx(record.main_score, abs=1e-6)


def test_no_model_is_trained_that_nothing_starts_from(small: Runner, tmp_path: Path) -> None:
    """All runs are there, only the score is to be made: the weights may be gone."""
    small(tasks=("RTE",))
    shutil.rmtree(tmp_path / "cache-results" / "finetuned")
    made: list[Record] = []
    small(
        tasks=("RTE",),
        recipe_settings={"fresh_seeds": 1},
        listeners=Listeners(trained=lambda _job, run: made.append(run)),
    )
    assert made == []
    assert not (tmp_path / "cache-results" / "finetuned").exists()


def test_a_set_that_is_not_there_makes_the_mean_incomplete(small: Runner, tmp_path: Path) -> None:
    part = data_root(tmp_path / "part", mismatched=False)
    report = small(tasks=("MNLI", "CoLA"), data=part)
    record = finals(report)["MNLI"]
    assert list(record.scores) == ["validation_matched"]
    assert record.provenance["notes"][:3] == [
        "not scored on validation_mismatched, which the data does not have",
        "train has 48 of GLUE's 392,702 rows",
        "validation_matched has 24 of GLUE's 9,815 rows",
    ]
    (one,), (suite,) = report.prepared.subjects, report.prepared.suites
    standing = report.compute_trained_result(one, suite)
    assert standing is not None
    rows = {row.task: row for row in standing.rows}
    assert rows["MNLI"].number is None
    assert rows["MNLI"].raw == {
        ("validation_matched", "accuracy"): record.scores["validation_matched"]["mnli"]["accuracy"]
    }
    assert standing.average.there == 1
    assert report.compute_aggregates(one, suite).columns["MNLI"] is None


def test_no_data_for_mnli_is_said_with_the_ways_out(small: Runner, tmp_path: Path) -> None:
    part = data_root(tmp_path / "part")
    readme = part / "nyu-mll" / "glue" / "README.md"
    shutil.rmtree(readme.parent / "mnli")
    lines = readme.read_text().split("- config_name: mnli")
    readme.write_text(lines[0] + "- config_name:" + lines[1].split("- config_name:", 1)[1])
    with pytest.raises(UsageError, match=r"^RTE starts from a model for MNLI, which has no data") as alone:
        small(tasks=("RTE",), data=part)
    (failed,) = small(tasks=("RTE", "CoLA"), data=part).failures
    assert failed.how == "impossible"
    assert failed.failure is not None
    assert failed.failure.message == alone.value.message
    assert "--set transfer=false" in (failed.failure.hint or "")
    assert "--set mnli=MODEL" in (failed.failure.hint or "")


def test_tasks_that_are_named_by_nothing_are_not_all(capsys: pytest.CaptureFixture[str]) -> None:
    """An unset variable of a script."""
    asked = ["run", "--model", "minilm", "--suite", "glue", "--recipe", "glue-quick", "--tasks", ""]
    assert invoke(asked) == 2
    assert "tasks is empty" in capsys.readouterr().err


def test_weights_that_are_none_are_refused_before_anything_runs(small: Runner, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.safetensors"
    wrong.write_text("nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="wrong"):
        small(tasks=("RTE",), recipe_settings={"mnli": wrong})
    with pytest.raises(UsageError, match=r"empty has no config\.json"):
        small(tasks=("RTE",), recipe_settings={"mnli": tmp_path / "empty"})


def test_data_that_cannot_be_read_is_said_by_the_dry_run(
    backbone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = data_root(tmp_path / "broken")
    (broken / "nyu-mll" / "glue" / "rte" / "train.parquet").write_bytes(b"PAR1")
    asked = ["run", "--model", str(backbone), "--suite", "glue", "--recipe", "glue-quick", "--dry-run"]
    assert invoke([*asked, "--tasks", "RTE,CoLA", "--data", str(broken), "--json"]) == 1
    plan = {line["task"]: line for line in json.loads(capsys.readouterr().out)["plan"]}
    assert plan["CoLA"]["seconds"] > 0
    assert plan["RTE"]["state"] == "cannot run"
    assert "rte/train.parquet" in plan["RTE"]["error"]


def test_a_dry_run_without_a_hub_asks_it_once_and_names_no_cost(
    backbone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def refuse(**place: str) -> None:
        calls.append(place["name"])
        raise ConnectionError("Couldn't reach the hub")

    monkeypatch.setattr("datasets.load_dataset", refuse)
    asked = ["run", "--model", str(backbone), "--suite", "glue", "--recipe", "glue-quick", "--dry-run"]
    asked += ["--tasks", "RTE,CoLA", "--results", str(tmp_path / "results")]
    assert invoke(asked) == 1
    shown = capsys.readouterr().out
    assert len(calls) == 1
    assert "CoLA, RTE: No connection to the hub for nyu-mll/glue: Couldn't reach the hub." in shown
    assert "0 to do, 0 done, 2 cannot run." in shown
    assert "twenty steps" not in shown
    assert invoke([*asked, "--json"]) == 1
    for line in json.loads(capsys.readouterr().out)["plan"]:
        assert (line["state"], line["steps"], line["flops"], line["seconds"]) == (
            "cannot run",
            None,
            None,
            None,
        )


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"recipe": ""}, "A model must be trained for MRPC, MNLI, RTE: which recipe"),
        ({"recipe": "smal"}, "No recipe is called 'smal'"),
        ({"recipe": "small:x"}, "No variant of small is called 'x'"),
        ({"pooling": "cls"}, "--pooling is for finished models"),
        ({"tasks": ("RET",)}, "No task of glue is called 'RET'"),
        ({"splits": ("validation",)}, "--splits says nothing about glue"),
        ({"recipe_settings": {"mnli": "here", "transfer": "no"}}, "mnli and transfer=false contradict"),
        ({"recipe_settings": {"mnli": Path("nowhere")}}, "nowhere does not exist"),
        ({"recipe_settings": {"fresh_sed": 3}}, "small has no setting 'fresh_sed'"),
        ({"recipe_settings": {"fresh_seeds": -2}}, "The setting fresh_seeds of small cannot be -2"),
        ({"purpose": "trial"}, "A recipe's score is final"),
        (
            {"seed": 7, "recipe_settings": {"fresh_seeds": 0}},
            "--seed has no effect: the seeds of small are its own",
        ),
    ],
)
def test_what_cannot_be_asked(small: Runner, asked: Mapping[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("?", r"\?")):
        small(**asked)


def test_a_recipe_has_nothing_to_do_for_vectors(backbone: Path) -> None:
    with pytest.raises(UsageError, match="has nothing to train for"):
        harness.run(str(backbone), "stdlib", recipe="glue-quick")
    with pytest.raises(UsageError, match="--set and --budget change settings of a recipe"):
        harness.run(str(backbone), "stdlib", recipe_settings={"fresh_seeds": 3})


def test_a_recipe_without_transfer_takes_no_source(backbone: Path, data: Path) -> None:
    for asked in ({"mnli": backbone}, {"transfer": False}):
        with pytest.raises(UsageError, match="glue-quick starts no task from a model for MNLI"):
            harness.run(str(backbone), "glue", recipe="glue-quick", data=data, recipe_settings=asked)


def test_a_folder_of_another_backbone_is_refused(small: Runner, tmp_path: Path) -> None:
    other = tiny.folder(tiny.families()["modernbert"], tmp_path / "other")
    with pytest.raises(UsageError, match="is of another backbone: its model_type is modernbert"):
        small(tasks=("RTE",), recipe_settings={"mnli": other})


@pytest.mark.slow
def test_killed_in_the_middle_of_the_runs(backbone: Path, data: Path, tmp_path: Path) -> None:
    """SIGKILL, then the same command: finished runs stay as they are, keys and scores as undisturbed."""
    recipe, tasks = "glue-mosaicbert", ("RTE", "MRPC")

    def run(name: str) -> Report:
        place = {"results": tmp_path / name, "cache": tmp_path / f"{name}-cache", "data": data}
        return harness.run(str(backbone), "glue", recipe=recipe, tasks=tasks, workers=1, threads=1, **place)

    killed = subprocess.Popen(
        [
            *(sys.executable, "-m", "harness", "run", "--model", str(backbone), "--suite", "glue"),
            *("--recipe", recipe, "--tasks", ",".join(tasks), "--data", str(data), "--workers", "1"),
            *("--threads", "1", "--results", str(tmp_path / "killed")),
            *("--cache", str(tmp_path / "killed-cache")),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    records = tmp_path / "killed" / "records"
    while len(list(records.glob("*/*/*.json"))) < 4:
        assert killed.poll() is None
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    before = {path: path.stat().st_mtime_ns for path in records.glob("*/*/*.json")}
    assert 4 <= len(before) < 11
    again, whole = run("killed"), run("whole")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert [record.key for record in again.records] == [record.key for record in whole.records]
    assert [record.main_score for record in again.records] == pytest.approx(
        [record.main_score for record in whole.records], abs=1e-6
    )
    assert trials(tmp_path / "killed").keys() == trials(tmp_path / "whole").keys()
    assert len(trials(tmp_path / "whole")) == 11


def test_show_prints_the_table_by_any_view(
    small: Runner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small(tasks=("MRPC", "STS-B"), recipe_settings={"transfer": False})
    place = ["--suite", "glue", "--results", str(tmp_path / "results")]

    def shown(*more: str) -> str:
        assert invoke(["show", "tiny-bert", *place, *more]) == 0
        return capsys.readouterr().out

    text = shown()
    assert "tiny-bert on GLUE, small, fresh seeds 42001–42002, no transfer" in text
    assert "± 95 %" in text
    assert "mean over tasks" in text
    assert "(2 of 8 scored)" in text
    assert "incomplete" in text
    assert "cross-fitted" in text
    assert "of each run, as the recipe has it; it errs upward, which ± does not see" in text
    assert "view neobert: NeoBERT, appendix C" in text
    numbers = {}
    for view in ("neobert", "mosaicbert", "modernbert"):
        (suite,) = json.loads(shown("--json", "--view", view))["suites"]
        assert suite["standing"]["view"] == view
        rows = {row["task"]: row for row in suite["standing"]["tasks"]}
        metrics = {name: value for _, name, value in rows["MRPC"]["metrics"]}
        numbers[view] = rows["MRPC"]["score"], rows["STS-B"]["score"]
        low, high = rows["MRPC"]["interval"]
        assert low <= rows["MRPC"]["score"] <= high
        assert rows["MRPC"]["counts"] == "best"
        assert rows["MRPC"]["last"] <= rows["MRPC"]["score"] or view != "modernbert"
        average = suite["standing"]["average"]
        assert average["last"] is None  # two of eight tasks
        assert suite["columns"]["MRPC"] == rows["MRPC"]["score"]
        assert suite["settings"]["fresh_seeds"] == [42001, 42002]
    assert numbers["modernbert"][0] == pytest.approx(metrics["accuracy"])
    assert numbers["neobert"][0] == pytest.approx((metrics["accuracy"] + metrics["f1"]) / 2)
    assert numbers["mosaicbert"][1] == numbers["modernbert"][1]
    assert invoke(["show", "tiny-bert", *place, "--view", "neo"]) == 2
    assert "Did you mean neobert?" in capsys.readouterr().err
    assert invoke(["show", "tiny-bert", "--view", "neobert", "--results", str(tmp_path / "results")]) == 2


def test_a_modified_setting_is_said_wherever_the_recipe_is(
    small: Runner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the record, the report, `show` in both forms, `compare`, and on the site, beside unmodified ones."""
    small(tasks=("CoLA",))
    report = small(tasks=("CoLA",), recipe_settings={"learning_rate": "1e-3", "epochs": "2"})
    record, said = finals(report)["CoLA"], "small, modified: learning_rate=0.001 and epochs=2"
    assert record.identity["modified"] == {"learning_rate": [1e-3], "epochs": [2]}
    assert record.training["modified"] == record.identity["modified"]
    assert [cell["learning_rate"] for cell in record.training["cells"]] == [1e-3]
    report.print(Console(file=(out := io.StringIO()), width=200))
    assert f"of GLUE, {said}" in out.getvalue()
    place = ["tiny-bert", "--suite", "glue", "--results", str(tmp_path / "results")]
    assert invoke(["show", *place]) == 0
    text = capsys.readouterr().out
    assert f"{said}, fresh seeds 42001–42002" in text
    assert "small, fresh seeds 42001–42002" in text
    assert invoke(["show", *place, "--json"]) == 0
    settings = [one["settings"] for one in json.loads(capsys.readouterr().out)["suites"]]
    assert [one.get("modified") for one in settings] == [None, {"learning_rate": [1e-3], "epochs": [2]}]
    app = create_app(small_settings(tmp_path))
    with TestClient(app) as client:
        rows = client.get("/suites/glue.csv?each=revision").text.splitlines()
        small_rows = [row for row in rows if "tiny-bert" in row]
        assert [row for row in small_rows if "changed settings" in row] == [
            r for r in small_rows if said in r
        ]
        assert sum(said in row for row in rows) == 1
        (model,) = set(re.findall(r"/models/tiny-bert[\w-]*", client.get("/suites/glue").text))
        results = re.findall(r"/results/\d+", client.get(model).text)
        commands = [client.get(result).text for result in sorted(set(results))]
        assert sum("--set learning_rate=0.001 --set epochs=2" in text for text in commands) == 1


def test_a_dry_run_counts_runs_and_steps(
    backbone: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """320 runs and 40 with fresh seeds; 48 rows make 12, 6, 3 and 2 steps an epoch."""
    asked = ["--model", str(backbone), "--suite", "glue", "--recipe", "glue-neobert", "--data", str(data)]
    asked += ["--results", str(tmp_path / "results"), "--dry-run", "--json"]
    assert invoke(["run", *asked]) == 0
    plan = {line["task"]: line for line in json.loads(capsys.readouterr().out)["plan"]}
    assert {line["runs"] for line in plan.values()} == {45}
    grid = 10 * sum(10 * steps for steps in (12, 6, 3, 2))
    fresh = 5 * 10 * 12  # at most: the cell with the smallest batches
    assert plan["CoLA"]["steps"] == grid + fresh
    assert "CoLA: train has 48 of GLUE's 8,551 rows" in plan["CoLA"]["notes"]
    assert all(line["seconds"] > 0 and line["flops"] > 0 for line in plan.values())
    assert not (tmp_path / "results").exists()


def test_a_task_whose_data_cannot_be_had_has_no_cost(
    backbone: Path,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*_: object) -> None:
        raise DataError("the hub cannot be reached")

    monkeypatch.setattr(probe.TokenizedTask, "load_tokenized_task", refuse)
    asked = ["run", "--model", str(backbone), "--suite", "glue", "--recipe", "glue-quick", "--dry-run"]
    asked += ["--data", str(data), "--results", str(tmp_path / "results"), "--tasks", "RTE,CoLA"]
    assert invoke([*asked, "--json"]) == 1
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert {(line["state"], line["steps"], line["flops"], line["seconds"]) for line in plan} == {
        ("cannot run", None, None, None)
    }
    assert {line["error"] for line in plan} == {"the hub cannot be reached"}
    assert invoke(asked) == 1
    said = capsys.readouterr().out
    assert "0 to do, 0 done, 2 cannot run." in said
    assert "twenty steps" not in said


def test_a_dry_run_says_what_is_trained_first(
    backbone: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--model", str(backbone), "--suite", "glue", "--recipe", "glue-mosaicbert", "--data", str(data)]
    asked += ["--tasks", "RTE", "--results", str(tmp_path / "results"), "--dry-run"]
    assert invoke(["run", *asked]) == 0
    lines = capsys.readouterr().out.splitlines()
    (start,) = [line for line in lines if "starts from the selected MNLI model" in line]
    assert start.startswith("RTE: starts from the selected MNLI model, whose run comes first")
    assert "MNLI: train has 48 of GLUE's 392,702 rows" in lines
    assert "RTE: train has 48 of GLUE's 2,490 rows" in lines


DENSES = {
    "bert": "pooler.dense.weight",
    "roberta": "classifier.dense.weight",
    "modernbert": "head.dense.weight",
    "distilbert": "pre_classifier.weight",
}
"""What transformers calls the dense layer of a head."""


@pytest.mark.parametrize("family", DENSES)
def test_a_model_folder_for_mnli_gives_encoder_and_dense(family: str, tmp_path: Path) -> None:
    """As transformers saves one, whatever it calls the dense layer in its head."""
    from transformers import AutoModelForSequenceClassification

    folder = tiny.folder(tiny.families()[family], tmp_path / "backbone")
    torch.manual_seed(1)
    tuned: Any = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=3)
    with torch.no_grad():
        for parameter in tuned.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    tuned.save_pretrained(tmp_path / "tuned")
    trial = replace(
        SMALL, training=replace(SMALL.training, head=glue_neobert.PROTOCOL.training.head)
    ).list_trials("RTE")[0]
    model, notes = Classifier.load_classifier(folder, trial, classes=2, source=tmp_path / "tuned")
    assert notes == []
    names = dict(tuned.named_parameters())
    (dense,) = (name for name in names if name.endswith(DENSES[family]))
    assert torch.equal(model.dense.weight, names[dense])
    table = tuned.get_input_embeddings().weight
    assert torch.equal(model.encoder.get_input_embeddings().weight, table)
    assert model.classifier.out_features == 2


def test_a_folder_for_mnli_is_part_of_the_identity(small: Runner, backbone: Path, tmp_path: Path) -> None:
    record = finals(small(tasks=("RTE",), recipe_settings={"mnli": backbone}))["RTE"]
    assert record.identity["start"]["from"] == "checkpoint"
    assert len(record.identity["start"]["content"]) == 64
    other = tmp_path / "copy"
    shutil.copytree(backbone, other)
    assert finals(small(tasks=("RTE",), recipe_settings={"mnli": other}))["RTE"].key == record.key


def test_weights_of_another_model_are_refused(small: Runner, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.safetensors"
    save_file({"encoder.x": torch.zeros(2)}, wrong)
    (failed,) = small(tasks=("RTE",), recipe_settings={"mnli": wrong}).failures
    assert failed.failure is not None
    assert "The checkpoint is of another model" in failed.failure.message


# Checkpoints


@pytest.fixture
def place(tmp_path: Path) -> _Checkpoints:
    return _Checkpoints(folder=tmp_path / "finetuned", tell=lambda notes: None)


def offer(place: _Checkpoints, key: str, watched: float, value: float = 0.0, group: str = "grid") -> None:
    place.keep_best_weights(group, key, watched, {"x": torch.full((2,), value)})


def kept(place: _Checkpoints) -> list[str]:
    return sorted(path.stem for path in place.folder.glob("*/*.safetensors"))


def test_only_the_best_so_far_stays(place: _Checkpoints) -> None:
    offer(place, "a", 0.5)
    offer(place, "b", 0.4)
    assert kept(place) == ["a"]
    offer(place, "c", 0.6, value=3)
    assert kept(place) == ["c"]
    found = place.find("c", 0.6)
    assert found is not None
    assert load_file(found)["x"].tolist() == [3, 3]


def test_equals_are_all_kept_until_a_better_one_comes(place: _Checkpoints) -> None:
    """The first of the grid is chosen, which may be the last to end."""
    offer(place, "b", 0.5)
    offer(place, "a", 0.5)
    assert kept(place) == ["a", "b"]
    offer(place, "c", 0.6)
    assert kept(place) == ["c"]


def test_a_run_made_anew_takes_the_place_of_its_own_weights(place: _Checkpoints) -> None:
    """It may score otherwise, lower too: what lay there is another model's then."""
    offer(place, "a", 0.5, value=1)
    offer(place, "a", 0.4, value=2)
    assert place.find("a", 0.5) is None
    found = place.find("a", 0.4)
    assert found is not None
    assert load_file(found)["x"].tolist() == [2, 2]


def test_weights_are_those_of_what_they_scored(place: _Checkpoints) -> None:
    offer(place, "a", 0.5)
    assert place.find("a", 0.25) is None
    assert place.find("b", 0.5) is None


@pytest.mark.parametrize("name", ["a.safetensors", "best.json"])
def test_damaged_weights_are_named_and_not_found(place: _Checkpoints, name: str) -> None:
    notes: list[str] = []
    place = replace(place, tell=notes.extend)
    offer(place, "a", 0.5, value=1)
    path = place.folder / "grid" / name
    path.write_bytes(path.read_bytes()[:-4] + b"lost")
    assert place.find("a", 0.5) is None
    (note,) = notes
    assert note.startswith(f"{path} is damaged")
    offer(place, "a", 0.5, value=2)
    found = place.find("a", 0.5)
    assert found is not None
    assert load_file(found)["x"].tolist() == [2, 2]


def test_grids_are_apart_and_one_can_be_begun_anew(place: _Checkpoints) -> None:
    offer(place, "a", 0.9, group="one")
    offer(place, "b", 0.1, group="two")
    assert kept(place) == ["a", "b"]
    place.forget("one")
    offer(place, "c", 0.2, group="one")
    assert place.find("c", 0.2) is not None
