"""What Python and notebooks are given of records: the rows of `--json`, as tables."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import harness
import site_data
from harness import UsageError
from harness.cli import invoke

PROVENANCE = {**site_data.provenance(), "prompts_asked": {"named": {}, "default": None}}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models on NanoBEIR without prompts, one of them trained under three seeds, and one on GLUE."""
    folder = tmp_path_factory.mktemp("results")
    with mock.patch.object(site_data, "provenance", lambda **more: PROVENANCE | more):
        site_data.standard_records(folder)
        site_data.put_simcse(folder)
    return folder


def ask(capsys: pytest.CaptureFixture[str], *words: object) -> Any:
    assert invoke([*map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_records_are_those_of_show(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = ask(capsys, "show", "minilm-ish", "--results", results)["records"]
    records = harness.records("minilm-ish", results=results)
    assert len(records) == len(shown) == 13
    assert [{name: row[name] for name in shown[0]} for row in records] == shown
    assert records[0].items() >= {"model": "minilm-ish", "type": "Retrieval", "seed": None}.items()
    listed = ask(capsys, "list", "records", "--results", results)
    assert [*harness.records(results=results)] == listed["records"]
    assert {row["seed"] for row in harness.records("tiny-base-simcse", results=results)} == {1, 2, 3}
    listed_facts = {(row["task"], row["metric"], row["key"]) for row in listed["records"]}
    for model in ("acme/tiny-base", "minilm-ish"):
        rows = harness.records(model, results=results)
        assert {(row["task"], row["metric"], row["key"]) for row in rows} <= listed_facts
    with pytest.raises(UsageError, match="minilm-ish"):
        harness.records("minilm-isch", results=results)


def test_a_model_recorded_under_two_names_is_listed_under_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (site_data.measured_model(name) for name in ("runs-last", "acme/small"))
    tasks = site_data.names("nanobeir")[:2]
    site_data.put(tmp_path, first, [site_data.scored(first, tasks[0], 0.5)])
    site_data.put(tmp_path, second, [site_data.scored(second, tasks[1], 0.6)])
    (folder,) = (tmp_path / "records").iterdir()
    assert folder.name.startswith("runs-last")
    assert {(row["model"], row["task"]) for row in harness.records(results=tmp_path)} == {
        ("acme/small", task) for task in tasks
    }
    for part, count in (("RUNS-last", 1), ("acme", 2), (tasks[0], 1)):
        rows = ask(capsys, "list", "records", "--match", part, "--results", tmp_path)["records"]
        assert len(rows) == count


def test_scores_are_those_of_show_with_means_that_say_what_they_lack(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = ask(capsys, "show", "minilm-ish", "--suite", "nanobeir", "--results", results)["suites"][0]
    scores = harness.scores(["minilm-ish", "tiny-base-own"], "nanobeir", results=results)
    assert len(scores) == 26
    assert {row["task"]: row["score"] for row in scores if row["model"] == "minilm-ish"} == shown["columns"]
    (mean, own) = scores.means
    assert mean["mean_over_tasks"] == shown["mean_over_tasks"]["value"]
    assert (mean["there"], mean["wanted"], mean["suite"]) == (13, 13, "nanobeir")
    assert own["seed"] == 1
    assert sum(row["selected"] for row in scores) == 1
    glue = harness.scores("acme/tiny-base", "glue", results=results)
    assert {row["task"]: row["score"] for row in glue if row["score"] is not None} == {
        "RTE": 0.7,
        "CoLA": 0.55,
    }
    assert (glue.means[0]["mean_over_tasks"], glue.means[0]["there"]) == (pytest.approx(0.625), 2)
    assert glue.means[0]["wanted"] > 2


def test_compare_is_that_of_the_command(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compared = harness.compare("minilm-ish", "tiny-base-own", results=results)
    shown = ask(capsys, "compare", "minilm-ish", "tiny-base-own", "--results", results)
    assert json.loads(json.dumps(compared.to_json())) == shown
    assert [row["delta"] for row in compared.deltas] == [row["delta"] for row in shown["deltas"]]
    assert repr(compared).startswith("tiny-base-own - minilm-ish\n")
    assert compared._repr_html_().startswith("<table>")
    one = harness.compare("minilm-ish", "tiny-base-own", tasks=["NanoSciFactRetrieval"], results=results)
    assert len(one.deltas) == 1


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_tables_go_to_pandas_and_polars(results: Path, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    records = harness.records("minilm-ish", results=results)
    frame = getattr(records, f"to_{library}")()
    assert frame.shape == (13, len(records[0]))
    assert list(frame["main_score"]) == [row["main_score"] for row in records]
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UsageError, match=f"{library} is not installed"):
        getattr(records, f"to_{library}")()


def test_a_table_shows_itself_in_short_and_escaped(tmp_path: Path) -> None:
    model = site_data.measured_model(site_data.HOSTILE)
    names = site_data.names("mteb")[:25]
    site_data.put(tmp_path, model, [site_data.scored(model, name, 0.5) for name in names])
    records = harness.records(model.key[:12], results=tmp_path)
    lines = repr(records).splitlines()
    assert len(lines) == 22
    assert lines[0].split() == ["model", "task", "type", "metric", "main_score", "settings"]
    assert lines[-1] == "… 5 more rows"
    shown = records._repr_html_()
    assert "<script>" not in shown
    assert shown.count("<tr>") == 21
