"""Papers beside measured scores on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fakes import artifact, record
from harness.cli import invoke
from harness.plan.catalog import open_suite
from harness.storage.record import Record
from harness.storage.store import Store


def measured(tmp_path: Path, suite: str, score: float) -> Path:
    """Records of a model on every task of a suite, with the same score."""
    store = Store(tmp_path)
    for task in open_suite(suite).tasks:
        model = artifact(Path("tiny"))
        made = record(task, score, model=model).model_dump(by_alias=True)
        made["scores"] = {s: {sub: {"main_score": score} for sub in task.subsets} for s in task.splits}
        store.put(model.slug, Record.model_validate(made))
    return tmp_path


def beside(capsys: Any, folder: Path, *options: str) -> Any:
    arguments = ["papers", "tiny", "--results", str(folder), *options, "--json"]
    assert invoke(arguments) == 0
    return {
        (one["table"], one["model"], one["setting"]): one
        for one in json.loads(capsys.readouterr().out)["lines"]
    }


def test_means_are_over_the_same_queries(tmp_path: Path, capsys: Any) -> None:
    """MSMARCO: table 7 fits TREC-DL 2019, table 8 the development queries."""
    single, multi = (
        ("table 7", "BERT base", "DPR (single vector)"),
        ("table 8", "BERT base", "ColBERT (multi vector)"),
    )
    for suite, out, whole in (("beir", single, multi), ("beir:dl19", multi, single)):
        found = beside(capsys, measured(tmp_path / suite.replace(":", "-"), suite, 0.5), "--suite", suite)
        assert len(found) == 22
        without, all_paths = found[out], found[whole]
        assert len(without["common"]) == 14
        (column,) = without["other_queries"]
        assert column.startswith("MSMARCO (")
        rest = [value for name, value in without["columns"].items() if name != column]
        assert without["printed_mean"] == pytest.approx(sum(rest) / 14)
        assert (len(all_paths["common"]), all_paths["other_queries"]) == (15, {})
        assert all_paths["printed_mean"] == pytest.approx(all_paths["mean"], abs=0.001)
        assert without["measured_mean"] == all_paths["measured_mean"] == 0.5


def test_a_line_shows_each_task_and_says_which_queries(tmp_path: Path, capsys: Any) -> None:
    folder = measured(tmp_path, "beir", 0.5)
    assert invoke(["papers", "tiny", "--results", str(folder), "--suite", "beir", "--line", "NomicBERT"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "MSMARCO (dev) │ 60.60 │ 50.00 │ – │ inferred split" in out
    assert "MSMARCO (dev) │ 46.30 │ 50.00 │ +3.70" in out
    assert "MSMARCO (dev) is in neither mean: in ModernBERT, table 7 it is of other queries" in out


def test_where_papers_print_a_mean_alone_it_is_beside_the_suites(tmp_path: Path, capsys: Any) -> None:
    for suite, setting, printed in (
        ("codesearchnet", "overview, CodeSearchNet", 0.412),
        ("stackqa", "overview, StackQA", 0.595),
        ("mldr", "overview, DPR MLDR-OOD", 0.239),
    ):
        found = beside(capsys, measured(tmp_path / suite, suite, 0.25), "--suite", suite)
        one = found["table 1", "BERT base", setting]
        assert (one["printed_mean"], one["measured_mean"]) == (pytest.approx(printed), 0.25)


def test_what_no_paper_prints_is_one_error(tmp_path: Path, capsys: Any) -> None:
    folder = measured(tmp_path, "stackqa", 0.5)
    for options, said in (
        (("--suite", "stackqa", "--paper", "modernbrt"), "No paper is called 'modernbrt'"),
        (("--suite", "stackqa", "--line", "GPT"), "No paper here prints stackqa for a model like 'GPT'"),
        (("--suite", "nanobeir"), "No paper here prints nanobeir."),
    ):
        assert invoke(["papers", "tiny", "--results", str(folder), *options]) == 2
        assert said in capsys.readouterr().err
