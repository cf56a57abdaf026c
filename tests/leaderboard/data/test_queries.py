"""What pages ask of the index, beside the records and the import themselves."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from harness.results.scores import Aggregates
from harness.storage.store import Store
from leaderboard.data.queries import SIZES, Entry, Queries
from leaderboard.data.suites import list_conventions
from site_data import (
    HOSTILE,
    names,
    small_site,
    spread_scores,
    standard_app,
    standard_imports,
    suites,
)
from stored_records import iter_records


def queries() -> Queries:
    found: Queries = standard_app().state.site.queries
    return found


def read_again(model: str) -> Entry:
    (found,) = [e for e in queries().entries.values() if e.model == model and e.origin == "imported"]
    return found


def test_entries_are_in_order_and_found_by_every_name() -> None:
    found = list(queries().entries.values())
    assert [e.model for e in found] == sorted(e.model for e in found)
    assert {e.slug for e in found} == set(queries().by_slug)
    assert sorted(e.id for some in queries().models.values() for e in some) == sorted(e.id for e in found)
    origins = {e.origin for e in queries().models["acme--tiny-base"]}
    assert origins == {"measured", "imported"}


def test_facts_of_an_entry() -> None:
    large, base, hostile = read_again("acme/tiny-large"), read_again("acme/tiny-base"), read_again(HOSTILE)
    assert (large.parameters, large.size, large.open_weights) == (335_000_000, "large", False)
    assert (large.backbone, large.organisation) == ("acme/tiny-base", "acme")
    assert large.trained_on is not None
    assert {names("nanobeir")[0], "Elsewhere", "ArguAna"} <= large.trained_on  # and what is like it
    assert (base.trained_on, base.backbone) == (frozenset(), "acme/tiny-base")  # known to be of nothing
    assert (hostile.trained_on, hostile.size, hostile.trust) == (None, "", "external")  # not known
    assert queries().load_facts(id=[base.id])[base.id]["license"] == "mit"


class Scores:
    """Scores of a suite whose size takes a while to know."""

    @property
    def size(self) -> int:
        time.sleep(0.0005)
        return 1


def test_threads_share_the_scores_of_suites() -> None:
    shared, suite = queries(), suites()["nanobeir"]
    fresh = Queries(shared.index, shared.version)
    with (
        mock.patch("leaderboard.data.queries.HELD", 3),
        mock.patch.object(fresh, "_build_scores", side_effect=lambda *given, **more: Scores()),
        ThreadPoolExecutor(4) as threads,
    ):
        list(threads.map(lambda at: fresh.load_suite_scores(suite, f"{at % 9}"), range(200)))
    assert len(fresh._suite_scores) == 3


def test_size_classes_meet_without_a_gap() -> None:
    bounds = list(SIZES.values())
    assert bounds[0][0] == 0
    assert bounds[-1][1] == float("inf")
    assert [high for _, high in bounds[:-1]] == [low for low, _ in bounds[1:]]


def test_means_of_imports_are_those_of_the_harness() -> None:
    for one in standard_imports():
        for slug in ("nanobeir", "mteb-MTEB-kor-v1"):
            listed = suites()[slug]
            grid = queries().load_suite_scores(listed, pinned=True)
            rows = [r for r, e in enumerate(grid.entries) if e.model == one.model and e.origin == "imported"]
            known = {t.name: one.scores[t.name] for t in listed.suite.tasks if t.name in one.scores}
            assert len(rows) == bool(known)
            for row in rows:
                pinned = Aggregates.aggregate_scores(
                    listed.suite, {n: v for n, v in known.items() if n not in one.others}
                )
                all_paths = Aggregates.aggregate_scores(listed.suite, known)
                for wanted, found in (
                    (pinned, grid),
                    (all_paths, queries().load_suite_scores(listed, pinned=False)),
                ):
                    assert found.over_tasks.count[row] == wanted.over_tasks.there
                    assert found.over_tasks.values[row] == pytest.approx(wanted.over_tasks.value)
                    assert found.over_types.count[row] == wanted.over_types.there


def test_a_grid_is_made_once() -> None:
    listed = suites()["nanobeir"]
    assert queries().load_suite_scores(listed, pinned=True) is queries().load_suite_scores(
        listed, pinned=True
    )
    assert queries().load_suite_scores(listed, pinned=True) is not queries().load_suite_scores(
        listed, pinned=False
    )


def test_every_cell_leads_to_the_result_it_is_of() -> None:
    grid = queries().load_suite_scores(suites()["nanobeir"], pinned=True)
    seen = 0
    for row, entry in enumerate(grid.entries):
        for at, column in enumerate(grid.site_suite.suite.columns):
            number = int(grid.results[row, at])
            if not number:
                assert np.isnan(grid.values[row, at])
                continue
            (result,) = queries().find_results(id=number)
            assert (result.entry, result.task) == (entry.id, column.tasks[0].name)
            assert result.value == pytest.approx(grid.values[row, at])
            seen += 1
    assert seen > 30


def test_entries_of_suites_are_those_with_scores_there() -> None:
    found = queries().entries_of_suites
    for slug, one in suites().items():
        scored = {
            entry.id
            for view in list_conventions(one.suite)
            for entry in queries().load_suite_scores(one, view, pinned=True).entries
            if entry.origin != "reported"
        }
        assert found.get(slug, 0) == len(scored)


def test_results_and_documents(tmp_path: Path) -> None:
    site = small_site(tmp_path)
    records = {
        r.key: r for failed in (False, True) for r in iter_records(Store(tmp_path / "results"), failed=failed)
    }
    rows = [row for row in site.queries.find_results() if row.key]
    assert {row.key for row in rows} == set(records)
    for row in rows:
        assert row.status == records[row.key].status
        assert site.queries.load_result_document(row.id) == json.loads(records[row.key].to_json())
    newest = site.queries.list_newest_results(3)
    assert len(newest) == 3
    assert all(entry.origin == "measured" for _, entry in newest)
    assert [r.task for r in site.queries.find_results(task=["RTE", "CoLA"], status="done")] == ["CoLA", "RTE"]


def test_tasks_are_counted() -> None:
    name = names("nanobeir")[0]
    kind, metric, count = queries().tasks[name]
    assert (kind, metric) == ("Retrieval", suites()["nanobeir"].suite.tasks[0].metric)
    wanted = sum(name in one.scores for one in standard_imports()) + 1
    assert count == wanted
    assert spread_scores([name], 0.5) == {name: 0.5}
