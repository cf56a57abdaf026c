"""Papers' rows in suites: shares of 1, under the right columns, never ranked with the rest."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from harness.core import paths
from harness.core.types import SuiteOptions
from harness.plan import catalog
from harness.results.scores import Aggregates
from leaderboard.data import paper_rows as printed
from leaderboard.data.entries import NewEntry
from leaderboard.data.suites import SiteSuite

TYPED = ("glue", "mteb", "mteb-v1", "beir")
SUITES = {
    typed: SiteSuite(slug=typed, typed=typed, suite=catalog.open_suite(typed, SuiteOptions()), main=True)
    for typed in TYPED
}
FOLDER = paths.find_reported_folder()


@pytest.fixture(scope="module")
def entries() -> list[NewEntry]:
    (unit,) = printed.iter_paper_units(FOLDER, SUITES)
    return list(unit.read())


def test_without_a_folder_there_is_nothing() -> None:
    assert list(printed.iter_paper_units(None, SUITES)) == []


def test_every_entry_is_a_papers_and_has_a_name_of_its_own(entries: list[NewEntry]) -> None:
    assert len(entries) > 20
    assert {(entry.origin, entry.trust) for entry in entries} == {("reported", "reported")}
    assert all(entry.outcomes == () for entry in entries)
    assert len({entry.slug for entry in entries}) == len(entries)


def test_columns_and_types_are_the_suites_own(entries: list[NewEntry]) -> None:
    for entry in entries:
        for typed, view, text in entry.averages:
            suite, document = SUITES[typed].suite, json.loads(text)
            columns = {column.name: column.type for column in suite.columns}
            assert document["columns"].keys() <= columns.keys()
            assert document["types"].keys() <= set(columns.values())
            assert bool(document["columns"]) != bool(document["types"])
            assert view in suite.conventions or (view == "" and not suite.conventions)
            shares = [*document["columns"].values(), *document["types"].values()]
            assert all(-1 <= share <= 1 for share in shares), (entry.model, document)


def test_a_mean_over_tasks_is_made_of_the_printed_types(entries: list[NewEntry]) -> None:
    """A score of its type's printed mean for every task gives that mean by the harness's own way."""
    checked = 0
    for entry in entries:
        for typed, _, text in entry.averages:
            suite, document = SUITES[typed].suite, json.loads(text)
            types = {column.type for column in suite.columns}
            if not document["types"] or document["types"].keys() != types:
                continue
            scores = {t.name: document["types"][c.type] for c in suite.columns for t in c.tasks}
            wanted = Aggregates.aggregate_scores(suite, scores)
            assert document["over_tasks"] == pytest.approx(wanted.over_tasks.value, abs=1e-9)
            assert document["over_types"] == pytest.approx(wanted.over_types.value, abs=1e-9)
            checked += 1
    assert checked > 5


def test_glue_rows_hold_what_the_file_says(entries: list[NewEntry]) -> None:
    assert FOLDER is not None
    found = 0
    for path in sorted(FOLDER.glob("*.csv")):
        with path.open(newline="") as file:
            lines = [line for line in csv.DictReader(file) if line.get("suite") == "GLUE dev"]
        for line in lines:
            if line["metric"] not in ("RTE", "QNLI", "CoLA") or not line["value"]:
                continue
            try:
                value = float(line["value"])
            except ValueError:
                continue
            same = [
                json.loads(text)["columns"].get(line["metric"])
                for entry in entries
                if entry.model.startswith(line["model"]) and line["setting"] in entry.treatment
                for slug, _, text in entry.averages
                if slug == "glue"
            ]
            scale = 1 if line["unit"] == "fraction" else 100
            assert any(share == pytest.approx(value / scale) for share in same if share is not None), line
            found += 1
    assert found > 10


def test_a_line_that_a_paper_copies_is_by_the_convention_of_its_source() -> None:
    """NeoBERT's table 3 has ModernBERT's numbers from "Warner 2024 Table 5", and NeoBERT's are its own."""
    (unit,) = printed.iter_paper_units(FOLDER, SUITES)
    by_model = {
        entry.model: [view for slug, view, _ in entry.averages if slug == "glue"]
        for entry in unit.read()
        if isinstance(entry, NewEntry) and entry.source == "neobert" and entry.facts["table"] == "3"
    }
    assert by_model["ModernBERT (base)"] == ["modernbert"]
    assert {tuple(by_model[model]) for model in by_model if model.startswith("NeoBERT")} == {("neobert",)}


def test_a_stamp_follows_the_files(tmp_path: Path) -> None:
    assert FOLDER is not None
    for path in FOLDER.glob("*.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (first,) = printed.iter_paper_units(tmp_path, SUITES)
    (tmp_path / "__pycache__").mkdir()
    (again,) = printed.iter_paper_units(tmp_path, SUITES)
    assert first.stamp == again.stamp
    (tmp_path / "papers.toml").write_text((tmp_path / "papers.toml").read_text() + "\n")
    (later,) = printed.iter_paper_units(tmp_path, SUITES)
    assert later.stamp != first.stamp
