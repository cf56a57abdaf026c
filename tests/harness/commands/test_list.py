from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fakes import artifact, record, task
from harness import backbones, catalog
from harness.cli import invoke
from harness.store import Store
from harness.types import SuiteOptions


def rows(capsys: pytest.CaptureFixture[str], what: str, *arguments: object) -> list[dict[str, Any]]:
    assert invoke(["list", what, *map(str, arguments), "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)[what]
    return found


def test_every_suite_and_model_of_the_catalog_is_listed(capsys: Any) -> None:
    assert {row["name"].partition(":")[0].partition("[")[0] for row in rows(capsys, "suites")} == set(
        catalog.suites()
    )
    assert {row["name"] for row in rows(capsys, "models")} == set(backbones.named_models())


def test_a_listed_task_opens_under_its_suite(capsys: Any) -> None:
    (row,) = [row for row in rows(capsys, "tasks", "--match", "scifact") if row["name"] == "SciFact"]
    assert (row["type"], row["metric"], row["splits"]) == ("Retrieval", "ndcg_at_10", ["test"])
    (suite,) = catalog.open_suites([row["suite"]], SuiteOptions())
    assert [t.name for t in suite.tasks] == ["SciFact"]


def test_similar_tasks_are_for_machines_only(capsys: Any) -> None:
    found = {row["name"]: row.get("similar") for row in rows(capsys, "tasks")}
    assert "SciFact-NL" in found["SciFact"]
    assert found["AILACasedocs"] is None
    assert invoke(["list", "tasks", "--match", "AJGT"]) == 0  # the first row has some
    assert "similar" not in capsys.readouterr().out


def test_every_listed_benchmark_opens_under_its_suite(capsys: Any) -> None:
    found = rows(capsys, "benchmarks")
    assert "MTEB(eng, v2)" in {row["name"] for row in found}
    suites = catalog.open_suites([row["suite"] for row in found], SuiteOptions())
    assert [len(suite.columns) for suite in suites] == [row["tasks"] for row in found]


def test_records_are_those_of_the_results_folder(tmp_path: Path, capsys: Any) -> None:
    assert invoke(["list", "records", "--results", str(tmp_path), "--match", "zzz"]) == 0
    assert "No records match 'zzz'" in capsys.readouterr().out
    one = artifact(tmp_path)
    kept = Store(tmp_path).put(one.slug, record(task(), 0.5, model=one))
    mine = [row for row in rows(capsys, "records", "--results", tmp_path) if row["model"] == "tiny"]
    assert [(row["task"], row["main_score"], row["key"]) for row in mine] == [("Fake", 0.5, kept.key)]
