"""Records as files of mteb's results: mteb reads the same scores back, and nothing is invented."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import fakes
import site_data
from harness.cli import invoke
from harness.core.keys import digest
from harness.core.types import Artifact, Task
from harness.plan import catalog
from harness.storage.record import Record

COMMIT = "c" * 40
NAMES = {
    "Banking77Classification": "Classification",
    "EmotionClassification": "Classification",
    "CEDRClassification": "MultilabelClassification",
    "ArXivHierarchicalClusteringP2P": "Clustering",
    "TwentyNewsgroupsClustering": "Clustering",
    "SprintDuplicateQuestions": "PairClassification",
    "AskUbuntuDupQuestions": "Reranking",
    "SciFact": "Retrieval",
    "STSBenchmark": "STS",
    "STS17": "STS",
    "SummEvalSummarization.v2": "Summarization",
    "BornholmBitextMining": "BitextMining",
}
"""Twelve tasks of every type that a text encoder is scored on; STS17 has eleven subsets."""


def find_task(name: str) -> Task:
    (task,) = catalog.open_suite(f"mteb:{name}").tasks
    return task


def score(model: Artifact, task: Task, at: int, cells: Sequence[tuple[str, str]] = ()) -> Record:
    """A record with metrics as tasks of mteb give them: numbers, lists, nested ones, and None for NaN."""
    scores: dict[str, dict[str, Any]] = {}
    values = []
    for number, (split, subset) in enumerate(cells or task.cells):
        value = 0.3 + at / 31 + number / 700
        values.append(value)
        more = {"scores_per_experiment": [{"f1": value / 2}], "undefined": None}
        scores.setdefault(split, {})[subset] = {task.metric: value, "main_score": value, **more}
    record = site_data.scored(model, task, sum(values) / len(values))
    return record.model_copy(update={"scores": scores})


@pytest.fixture
def results(tmp_path: Path) -> Path:
    model = replace(site_data.measured_model("acme/tiny", revision=COMMIT), source="acme/tiny")
    site_data.put(tmp_path, model, [score(model, find_task(n), at) for at, n in enumerate(NAMES)])
    return tmp_path


def export(results: Path, folder: Path, *words: str) -> int:
    return invoke(["export", *words, "--mteb", str(folder), "--results", str(results)])


def test_mteb_reads_every_type_of_task_back(
    results: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from mteb.cache import ResultCache
    from mteb.models import ModelMeta

    assert export(results, tmp_path / "out", "acme/tiny") == 0
    place = tmp_path / "out" / "results" / "acme__tiny" / COMMIT
    assert {p.name for p in place.iterdir()} == {
        *(f"{name}.json" for name in NAMES),
        *("model_meta.json", "run_settings.jsonl"),
    }
    with caplog.at_level(logging.WARNING):
        loaded = ResultCache(tmp_path / "out").load_results(include_remote=False, validate_and_filter=True)
    assert not [one for one in caplog.messages if "Missing" in one]
    (model,) = loaded.model_results
    assert (model.model_name, model.model_revision) == ("acme/tiny", COMMIT)
    read = {one.task_name: one for one in model.task_results}
    assert read.keys() == NAMES.keys()
    records = {r.task.name: r for r in map(read_record, results.glob("records/*/*/*.json"))}
    for name, type_ in NAMES.items():
        assert read[name].task_type == type_
        assert read[name].main_score == pytest.approx(records[name].main_score, abs=1e-6)
        assert len(read[name].hf_subsets) == len(find_task(name).subsets)
        rows = [row for split in read[name].scores.values() for row in split]
        assert not any(math.isnan(row["main_score"]) for row in rows)
        assert {row["mteb_version"] for row in rows} == {"2.26.24"}
        assert read[name].evaluation_time == 1.75
    with fakes.quiet():  # mteb writes a field that it calls deprecated
        card = ModelMeta(**json.loads((place / "model_meta.json").read_text()))
    assert (card.name, card.revision, card.max_tokens, card.license) == ("acme/tiny", COMMIT, None, None)
    settings = [json.loads(line) for line in (place / "run_settings.jsonl").read_text().splitlines()]
    # Those of the record, in which transformers is missing, and not those that are installed.
    assert all(one["version"]["transformers"] is None for one in settings)
    assert {one["version"]["torch"] for one in settings} == {"2.11.0"}


def read_record(path: Path) -> Record:
    return Record.model_validate({k: v for k, v in json.loads(path.read_text()).items() if k != "digest"})


def test_what_is_no_whole_result_of_mteb_is_named_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = site_data.measured_model("tiny")
    whole, other = find_task("SciFact"), find_task("STS12")
    part, chooser = find_task("STS17").cells[:2], find_task("BornholmBitextMining")
    own = score(model, other, 1)
    lineage = fakes.lineage(selected_on=(chooser.name,))
    moved = {**own.identity, "data": {"path": other.data.path, "revision": "0" * 40}}
    site_data.put(
        tmp_path,
        model,
        [
            score(model, whole, 0),
            own.model_copy(update={"identity": moved, "key": digest(moved)}),
            score(model, find_task("STS17"), 2, part),
            score(model, chooser, 4).model_copy(update={"lineage": lineage}),
            score(model, site_data.task("RTE"), 3),
        ],
    )
    assert export(tmp_path, tmp_path / "out", "tiny") == 2
    said = capsys.readouterr().err
    assert "tiny has no name and revision on the hub" in said
    assert "--as org/name@revision" in said
    for published in ("acme/tiny", "acme/tiny@.."):
        assert export(tmp_path, tmp_path / "out", "tiny", "--as", published) == 2
    assert export(tmp_path, tmp_path / "out", "tiny", "--as", "acme/tiny@v1") == 0
    said = capsys.readouterr().err
    for line in (
        "STS12: its data is not known to be",
        "STS17: no score of test, ",
        "BornholmBitextMining: tables mark its score: chose",
        "RTE: mteb has no such task",
    ):
        assert f"Left out: {line}" in said
    place = tmp_path / "out" / "results" / "acme__tiny" / "v1"
    assert sorted(p.name for p in place.glob("*.json")) == ["SciFact.json", "model_meta.json"]


def test_of_several_settings_one_must_be_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = replace(site_data.measured_model("acme/tiny", revision=COMMIT), source="acme/tiny")
    record, other = (score(model, find_task(name), 0) for name in ("SciFact", "STS12"))
    longer = {**other.identity, "encoding": {**other.identity["encoding"], "max_length": 512}}
    other = other.model_copy(update={"identity": longer, "key": digest(longer)})
    site_data.put(tmp_path, model, [record, other])
    assert export(tmp_path, tmp_path / "out", "acme/tiny") == 2
    assert "mteb's files do not name them" in capsys.readouterr().err
    assert export(tmp_path, tmp_path / "out", "acme/tiny", "--settings", "512 tokens") == 0
    assert capsys.readouterr().out.partition("\t")[0].endswith("STS12.json")


def test_a_suite_asks_for_the_parts_that_it_uses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """MTEB(eng, v2) scores one subset of STS17; what the suite has beside it is named as not measured."""
    model = replace(site_data.measured_model("acme/tiny", revision=COMMIT), source="acme/tiny")
    task = next(t for t in catalog.open_suite("mteb").tasks if t.name == "STS17")
    assert task.subsets == ("en-en",)
    site_data.put(tmp_path, model, [score(model, task, 0)])
    assert export(tmp_path, tmp_path / "out", "acme/tiny", "--suite", "mteb") == 0
    assert capsys.readouterr().err.count("Left out: ") == 1, "tasks with one reason share a line"
    assert export(tmp_path, tmp_path / "out", "acme/tiny", "--suite", "mteb", "--tasks", "STS17") == 0
    assert capsys.readouterr().out.startswith(str(tmp_path / "out" / "results" / "acme__tiny" / COMMIT))
    assert export(tmp_path, tmp_path / "out", "acme/tiny") == 1
