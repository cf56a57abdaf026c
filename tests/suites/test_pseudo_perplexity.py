"""The suite pseudo-perplexity: its texts, its records, and what cannot be measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import tiny
from harness import run
from harness.cli import invoke
from harness.core.errors import DataError, UsageError
from harness.core.types import Artifact, SuiteOptions, Task, build_artifact_slug
from harness.plan import catalog
from harness.results.record_units import ScoredRecord
from harness.results.results import extract_condition
from harness.storage.store import Store
from suites import pseudo_perplexity
from suites.pseudo_perplexity import TEXTS

SUITE = "pseudo-perplexity"


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files for 24 texts of 32 tokens, 12 of 64 and none of 512."""
    monkeypatch.setattr(pseudo_perplexity, "LENGTHS", (32, 64))
    draw = np.random.default_rng(2)
    (tmp_path / "texts").mkdir()
    for number in range(12):
        words = " ".join(draw.choice(["the", "cat", "sat", "on", "river", "query"], 120))
        (tmp_path / "texts" / f"{number}.txt").write_text(words[:390].replace(" ", " \n"))
    return tmp_path / "texts"


def open_tasks(argument: str) -> tuple[Task, ...]:
    return catalog.open_suite(f"{SUITE}:{argument}".rstrip(":"), SuiteOptions()).tasks


def source_of(task: Task) -> Any:
    return task.source


def model(folder: Path) -> Artifact:
    return Artifact(name="tiny", folder=folder, key="a" * 64, weights="b" * 64, source=str(folder))


def test_the_documentation_of_python_is_enough_for_every_length(tmp_path: Path) -> None:
    tasks = open_tasks("")
    assert catalog.open_suite(SUITE, SuiteOptions()).unit == "as measured, lower is better"
    assert [task.name for task in tasks] == [f"PseudoPerplexity{2**n}" for n in range(9, 14)]
    assert tasks[0].data.revision.startswith("python-3.")
    for task in tasks:
        size = source_of(task).measure(task, cache=tmp_path)
        assert size.characters == TEXTS * 6 * source_of(task).length
    assert source_of(tasks[4]).estimate_tokens(tasks[4]) == 20 * 64 * 8192


def test_each_way_has_tasks_of_its_own(texts: Path) -> None:
    masked, every, decoders = (open_tasks(way + str(texts)) for way in ("", "all:", "left-to-right:"))
    assert [masked[0].name, every[0].name, decoders[0].name] == [
        "texts.PseudoPerplexity32",
        "texts.PseudoPerplexityAll32",
        "texts.Perplexity32",
    ]
    assert len({source_of(task).scoring for task in (masked[0], every[0], decoders[0])}) == 3
    # The same texts; other files are other data, and blanks are not.
    assert masked[0].data == every[0].data == decoders[0].data
    (texts / "0.txt").write_text((texts / "0.txt").read_text().replace("\n", ""))
    assert open_tasks(str(texts))[0].data == masked[0].data
    (texts / "0.txt").write_text("an other text " * 40)
    assert open_tasks(str(texts))[0].data != masked[0].data


def test_a_run_has_a_record_for_each_length_that_the_model_takes(texts: Path, tmp_path: Path) -> None:
    folder = tiny.folder(tiny.families()["bert"], tmp_path / "model", head=True)
    report = run(str(folder), f"{SUITE}:{texts}", results=tmp_path / "results")
    (record,) = report.records
    metrics = record.subset_metrics[0]
    assert metrics["perplexity_low"] < metrics["perplexity"] == record.main_score < metrics["perplexity_high"]
    # Every place of so short a text is masked.
    assert metrics["interval_low"] == pytest.approx(record.main_score) == metrics["interval_high"]
    rows = pq.read_table(next((tmp_path / "results").rglob("*.examples.parquet")))
    assert np.median(rows["metric"]) == pytest.approx(record.main_score)
    assert np.median(rows["prediction"]) == pytest.approx(metrics["bits_per_character"])
    assert rows["gold"].to_pylist() == [30] * TEXTS
    assert [*report.lacking] == ["texts.PseudoPerplexity64"]
    assert "texts gives 12 texts of 384 characters, and texts." in report.lacking["texts.PseudoPerplexity64"]
    # A check takes lower scores for losses: it does not judge these.
    slug = build_artifact_slug(record.model.name, record.model.artifact)
    place = {"store": Store(tmp_path / "results"), "artifact": slug, "task": record.task.name}
    scored = ScoredRecord.load_record(**place, key=record.key, parts=(), cache=tmp_path)
    assert scored is not None
    assert "lower is better in perplexity" in scored.problem
    # What changes no perplexity makes no other record.
    assert (record.identity["encoding"], record.identity["prompts"]) == (
        {"output": "measured", "dtype": "float32"},
        {},
    )
    assert extract_condition(record).text == "float32"
    more: Any = {"pooling": "cls", "seed": 7, "max_length": 40, "batch_tokens": 32}
    again = run(str(folder), f"{SUITE}:{texts}", results=tmp_path / "results", **more)
    assert [one.key for one in again.records] == [record.key]


def test_a_model_is_refused_before_the_run(
    texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = open_tasks(str(texts))[0]
    bare = tiny.folder(tiny.families()["bert"], tmp_path / "bare")
    assert "tiny have no masked-language head" in source_of(task).find_model_problem(task, model(bare), "")
    short = tiny.folder(tiny.families()["bert"], tmp_path / "short", head=True, max_position_embeddings=32)
    invoke(["run", "--model", str(short), "--suite", SUITE, "--dry-run"])
    assert "no more positions: choose tasks of shorter texts with --tasks" in "".join(capsys.readouterr())
    whole = tiny.folder(tiny.families()["neobert"], tmp_path / "whole", head=True)
    invoke(["run", "--model", str(whole), "--suite", SUITE, "--max-length", "20", "--dry-run"])
    printed = "".join(capsys.readouterr())
    assert "PseudoPerplexity32, PseudoPerplexity64: whole takes texts of 20 tokens, and these" in printed
    assert not source_of(task).find_model_problem(task, model(whole), "")
    decoders = open_tasks(f"left-to-right:{texts}")[0]
    assert "tiny is no decoder" in source_of(decoders).find_model_problem(decoders, model(whole), "")
    # Families beyond the catalog are known by the name of their class.
    for kind, way, problem in (
        ("GPT2LMHeadModel", task, "is a decoder: type --suite pseudo-perplexity:left-to-right"),
        ("GPT2LMHeadModel", decoders, ""),
        ("ElectraForMaskedLM", decoders, "is no decoder"),
        ("ElectraForMaskedLM", task, ""),
        ("ElectraForPreTraining", task, "have no masked-language head"),
        ("XLMWithLMHeadModel", task, ""),
    ):
        (whole / "config.json").write_text(f'{{"model_type": "unknown", "architectures": ["{kind}"]}}')
        refused = source_of(way).find_model_problem(way, model(whole), "")
        assert problem in refused
        assert bool(problem) == bool(refused)
    settings = json.loads((whole / "tokenizer_config.json").read_text())
    (whole / "tokenizer_config.json").write_text(json.dumps({**settings, "mask_token": None}))
    assert "tiny has no mask token" in source_of(task).find_model_problem(task, model(whole), "")
    (whole / "config.json").write_text('{"model_type": "gpt_neox"}')
    assert "type --suite pseudo-perplexity:left-to-right" in source_of(task).find_model_problem(
        task, model(whole), ""
    )


def test_bad_texts_have_one_line(texts: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere is not a folder"):
        open_tasks("nowhere")
    task = open_tasks(str(texts))[0]
    changed = replace(task, data=replace(task.data, content="0" * 64))
    with pytest.raises(DataError, match="changed after the run had begun"):
        source_of(task).measure(changed, cache=tmp_path)
    (texts / "0.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"0\.txt is not UTF-8"):
        open_tasks(str(texts))
