"""A suite as arrays: means, ranks and ties, beside harness.results.scores, scipy and brute force."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

import data_files
from fakes import task as fake_task
from harness.core.types import Column, Suite
from harness.encoder.resolved_encoding import describe_encoding
from harness.results.scores import Aggregates, Mean
from leaderboard.data.entries import compute_precedence
from leaderboard.data.mteb_import import import_results
from leaderboard.data.queries import Entry, Queries
from leaderboard.data.ranking import (
    FEWEST,
    Floats,
    bound_ranks,
    compute_half_widths,
    is_level_pair,
    rank_entries,
)
from leaderboard.data.scores import RANDOM, Cells, SuiteScores, build_suite_scores
from leaderboard.data.settings import SiteSettings
from leaderboard.data.snapshot import open_index
from leaderboard.data.suites import REASONS, SiteSuite
from leaderboard.views import suite_table
from leaderboard.views.suite_table import GONE
from questions import measure_half


def entry(number: int, **fields: Any) -> Entry:
    plain: dict[str, Any] = {
        "id": number, "slug": f"m{number}-x", "model": f"m{number}", "model_slug": f"m{number}",
        "origin": "imported", "source": "s", "trust": "commit", "trained_on": None, "newest": None,
        "tasks": 1,
    }  # fmt: skip
    return Entry(**{**plain, **fields})


def suite_of(columns: Sequence[tuple[str, int]]) -> Suite:
    """A suite with a column for each (type, number of tasks)."""
    made = [
        Column(name=f"c{at}", type=kind, tasks=tuple(fake_task(f"c{at}t{n}") for n in range(count)))
        for at, (kind, count) in enumerate(columns)
    ]
    return Suite(name="s", title="S", columns=tuple(made))


def laid(suite: Suite, cells: Sequence[Sequence[tuple[str, float]]], **options: Any) -> SuiteScores:
    """The grid of a suite: for each row the reason and the value of each of its tasks."""
    tasks = [task.name for task in suite.tasks]
    reasons = np.array([[REASONS.index(r) for r, _ in row] for row in cells], np.uint8)  # type: ignore[arg-type]
    values = np.array([[v if r in ("", "other") else np.nan for r, v in row] for row in cells], float)
    empty, none = np.full(values.shape, np.nan), np.zeros(values.shape, np.int64)
    numbers = Cells(
        values=values, low=empty, high=empty, reasons=reasons, results=none + 1, seeds=none, trained_on=none,
        sources=none, data=options.pop("data", {}),
    )  # fmt: skip
    options.setdefault("pinned", True)
    entries = options.pop("entries", [entry(n) for n in range(1, len(cells) + 1)])
    return build_suite_scores(
        SiteSuite(slug="s", typed="s", suite=suite, main=True),
        "",
        entries,
        numbers,
        [[tasks.index(task.name) for task in column.tasks] for column in suite.columns],
        options.pop("averages", {}),
        **options,
    )


def table(*rows: Sequence[float], **options: Any) -> SuiteScores:
    """The grid of models that have every one of some columns of one type."""
    return laid(suite_of([("x", 1)] * len(rows[0])), [[("", v) for v in row] for row in rows], **options)


@dataclass(frozen=True)
class Case:
    suite: Suite
    cells: list[list[tuple[str, float]]] = field(default_factory=list)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    suite = suite_of(
        draw(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3)), min_size=1, max_size=6))
    )
    score = st.floats(0, 1).map(lambda value: round(value, 3))
    cell = st.tuples(st.sampled_from(["", "", "", *REASONS[1:]]), score)
    row = st.lists(cell, min_size=len(suite.tasks), max_size=len(suite.tasks))
    return Case(suite, draw(st.lists(row, min_size=1, max_size=4)))


def same(means: Any, row: int, wanted: Mean) -> None:
    assert (int(means.count[row]), means.expected) == (wanted.there, wanted.wanted)
    assert bool(means.complete[row]) == wanted.complete
    if wanted.value is None:
        assert np.isnan(means.values[row])
    else:
        assert means.values[row] == pytest.approx(wanted.value, abs=1e-12)


@settings(max_examples=150, deadline=None)
@given(cases(), st.booleans())
def test_both_means_are_those_of_the_harness(case: Case, pinned: bool) -> None:
    found = laid(case.suite, case.cells, pinned=pinned)
    good = ("",) if pinned else ("", "other")
    for row, cells in enumerate(case.cells):
        names = [task.name for task in case.suite.tasks]
        scores = {name: v for name, (r, v) in zip(names, cells, strict=True) if r in good}
        wanted = Aggregates.aggregate_scores(case.suite, scores)
        same(found.over_tasks, row, wanted.over_tasks)
        same(found.over_types, row, wanted.over_types)
        assert list(found.by_type) == list(wanted.by_type)
        for kind, means in found.by_type.items():
            same(means, row, wanted.by_type[kind])
        for at, value in enumerate(wanted.columns.values()):
            assert bool(found.counted[row, at]) == (value is not None)


@settings(max_examples=150, deadline=None)
@given(cases())
def test_a_column_without_a_number_says_why(case: Case) -> None:
    found = laid(case.suite, case.cells)
    tasks = [task.name for task in case.suite.tasks]
    for row, cells in enumerate(case.cells):
        of = dict(zip(tasks, cells, strict=True))
        for at, column in enumerate(case.suite.columns):
            reasons = [of[task.name][0] for task in column.tasks]
            said = REASONS[found.reasons[row, at]]
            assert np.isnan(found.values[row, at]) == (said in (*GONE, "seeds"))
            if len(set(reasons)) == 1:
                assert said == reasons[0]
            elif "none" in reasons:
                assert said == "part"
            assert (said == "") == all(reason == "" for reason in reasons)


def test_a_column_of_several_tasks_is_their_mean_and_counts_once() -> None:
    suite = suite_of([("Retrieval", 3), ("STS", 1)])
    found = laid(suite, [[("", 0.1), ("", 0.2), ("", 0.6), ("", 0.9)]])
    assert found.values.tolist() == [[pytest.approx(0.3), 0.9]]
    assert found.over_tasks.values[0] == pytest.approx(0.6)
    assert (found.over_tasks.count[0], found.over_tasks.expected) == (2, 2)
    assert found.results.tolist() == [[0, 1]]  # a mean of three leads to none of them


def test_approximate_scores_are_marked_and_come_after_exact_ones() -> None:
    from harness.core.encoding import Plaid

    late = {"dimension": 64, "query_length": 32, "document_length": 64, "expansion": True}
    encoding: dict[str, Any] = {
        "output": "multivector", "dtype": "float32", "similarity": "maxsim", "vectors": "float16",
        "late_interaction": {**late, "attends_to_expansion": False, "skiplist": ["!"]},
    }  # fmt: skip
    texts = [describe_encoding(encoding | more) for more in ({}, {"index": asdict(Plaid(nbits=8, seed=1))})]
    exact, near = (entry(at, treatment=text, newest=str(at)) for at, text in enumerate(texts))
    assert [one.approximate for one in (exact, near)] == [False, True]
    assert max(near, exact, key=compute_precedence) is exact
    assert [suite_table.format_entry_kinds(one) for one in (exact, near)] == ["", "approximate"]


def test_scores_on_other_data_count_only_when_asked() -> None:
    suite, cells = suite_of([("x", 1), ("x", 1)]), [[("", 0.5), ("other", 0.9)]]
    pinned, all_paths = laid(suite, cells, pinned=True), laid(suite, cells, pinned=False)
    assert (pinned.over_tasks.values[0], pinned.over_tasks.complete[0]) == (0.5, False)
    assert (all_paths.over_tasks.values[0], all_paths.over_tasks.complete[0]) == (pytest.approx(0.7), True)
    assert pinned.values[0, 1] == all_paths.values[0, 1] == 0.9  # it is shown in both
    assert pinned.compute_ranks("tasks", "entry").place.tolist() == [0]
    assert all_paths.compute_ranks("tasks", "entry").place.tolist() == [1]


def test_the_impossible_is_in_no_mean_whatever_is_asked() -> None:
    suite, cells = suite_of([("x", 1), ("x", 1)]), [[("", 0.5), ("bad", 9.0)]]
    for pinned in (False, True):
        found = laid(suite, cells, pinned=pinned)
        assert (found.over_tasks.values[0], found.over_tasks.count[0]) == (0.5, 1)


SCORES = st.lists(
    st.tuples(*[st.integers(0, 1000).map(lambda n: n / 1000)] * 2), min_size=FEWEST, max_size=12
).filter(lambda pairs: len({round(a - b, 6) for a, b in pairs}) > 1)


@settings(max_examples=200, deadline=None)
@given(SCORES)
def test_ties_are_those_of_the_paired_t_test(pairs: list[tuple[float, float]]) -> None:
    first, second = np.array(pairs).T
    interval = stats.ttest_rel(first, second).confidence_interval(0.95)
    half = compute_half_widths(first - second, np.ones(len(first)))
    assert half == pytest.approx((interval.high - interval.low) / 2)
    edge = min(abs(interval.low), abs(interval.high)) < 1e-9
    level = interval.low <= 0 <= interval.high if len(first) >= FEWEST else (first - second).mean() == 0
    assert edge or is_level_pair(first, second, np.ones(len(first))) == level


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_ties_of_the_mean_over_types_weigh_columns_as_that_mean_does(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from("abc"), min_size=3, max_size=12))
    suite = suite_of([(kind, 1) for kind in kinds])
    number = st.lists(st.integers(0, 1000), min_size=len(kinds), max_size=len(kinds))
    one, two = (np.array(data.draw(number)) / 1000 for _ in range(2))
    found = laid(suite, [[("", v) for v in row] for row in (one, two)])
    means = [
        Aggregates.aggregate_scores(suite, dict(zip([t.name for t in suite.tasks], row, strict=True)))
        for row in (one, two)
    ]
    first, second = (mean.over_types.value for mean in means)
    assert first is not None
    assert second is not None
    gap = first - second
    gaps, weights = one - two, np.array([1 / kinds.count(kind) for kind in kinds])
    assert np.average(gaps, weights=weights) == pytest.approx(gap, abs=1e-12)
    half = measure_half(gaps, weights) if len(kinds) >= FEWEST else 0.0
    places = sorted(found.compute_ranks("types", "entry").place.tolist())
    edge = 1e-12 < abs(abs(gap) - half) < 1e-9
    assert edge or places == ([1, 1] if abs(gap) <= half + 1e-12 else [1, 2])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 999), st.integers(0, 999)), min_size=6))
def test_intervals_of_weighted_means_and_ranks_are_by_one_formula(
    rows: list[tuple[int, int, int]],
) -> None:
    weights, *scores = np.array(rows, float).T
    values = np.array(scores) / 1000
    halves = [measure_half(row, weights) for row in (*values, values[0] - values[1])]
    found = compute_half_widths(np.array([*values, values[0] - values[1]]), weights)
    assert found == pytest.approx(halves, abs=1e-9)
    gap = float(np.average(values[0] - values[1], weights=weights))
    level = abs(gap) <= halves[2]
    assume(abs(abs(gap) - halves[2]) > 1e-7)
    assert is_level_pair(*values, weights) == level
    assert ((bound_ranks(values, weights) == [1, 2]).all()) == level


@pytest.mark.parametrize("scores", [([0.9], [0.1]), ([0.62, 0.71, 0.93], [0.05, 0.02, 0.30])])
def test_few_tasks_make_no_ties(scores: tuple[list[float], list[float]]) -> None:
    """By Student's interval over three tasks a random model would be level with a good one."""
    assert table(*scores).compute_ranks("tasks", "entry").place.tolist() == [1, 2]
    assert table(scores[0], scores[0]).compute_ranks("tasks", "entry").place.tolist() == [1, 1]
    assert table([0.5, 0.25], [0.25, 0.5]).compute_ranks("tasks", "entry").place.tolist() == [1, 1]


def test_a_group_is_tied_with_its_best_not_with_its_neighbour() -> None:
    wobble = np.array([0.02, -0.02, 0.02, -0.02, 0.02, -0.02])
    best = np.full(6, 0.70)
    rows = [best, best - 0.015 + wobble, best - 0.03 - wobble / 2, best - 0.045 + wobble]
    found = table(*rows).compute_ranks("tasks", "entry").place.tolist()

    def apart(a: Floats, b: Floats) -> bool:
        interval = stats.ttest_rel(a, b).confidence_interval(0.95)
        return bool(interval.low > 0 or interval.high < 0)

    assert not apart(rows[0], rows[1])
    assert apart(rows[0], rows[2])
    assert not apart(rows[1], rows[2])  # yet the second group begins there
    assert not apart(rows[2], rows[3])
    assert found == [1, 1, 3, 3]


def test_identical_models_share_a_rank_and_the_next_is_counted_on() -> None:
    rows = [[0.5, 0.6, 0.7], [0.5, 0.6, 0.7], [0.1, 0.2, 0.3]]
    assert table(*rows).compute_ranks("tasks", "entry").place.tolist() == [1, 1, 3]


def test_a_number_of_the_whole_has_the_data_of_the_whole() -> None:
    rows = [[("other", 0.2), ("none", 0.0), ("other", 0.6)], [("other", 0.2), ("other", 0.4), ("other", 0.6)]]
    data = {(0, 0): "part", (0, 2): "whole", (1, 0): "part", (1, 2): "whole"}
    scores = laid(suite_of([("x", 2)]), rows, wholes=[2], data=data, pinned=False)
    assert scores.data == {(0, 0): "whole", (1, 0): "part"}
    assert "data revision whole, pinned" in suite_table.build_task_cell(scores, 0, 0, {}).note


def test_headings_name_what_most_scores_of_a_board_are_of_and_cells_the_rest() -> None:
    """Columns: of the usual revision, of it on other data, of another, of one without a name, of several."""
    joined, members = entry(1, revisions=("a" * 12, "b")), {2: "a" * 12, 3: "b", 4: ""}
    entries = {1: joined, **{number: entry(number, revision=name) for number, name in members.items()}}
    cells = [[("", 0.5), ("other", 0.5), ("", 0.5), ("", 0.5), ("", 0.5)]]
    scores = laid(suite_of([("x", 1)] * 5), cells, entries=[joined], data={(0, 1): "later"}, pinned=False)
    scores = replace(scores, sources=np.array([[2, 2, 3, 4, 0]]))
    state = suite_table.TableState()
    board = suite_table.SuiteTable(scores=scores, state=state, path="", cards={}, entries=entries)
    columns = {column.key: column for column in board.columns}
    note = columns["model"].build_cell(0).note
    assert note == "revision aaaaaaaaaa"
    notes = [columns[f"task:c{at}"].build_cell(0).note for at in range(5)]
    assert notes == ["", "", *(f"model revision {name}" for name in ("b", "unknown", "several"))]
    assert columns["task:c1"].note.endswith("; ‡ mostly on later")


SIZES = {"min_size": 3, "max_size": 3}


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 4).map(lambda n: n / 4), **SIZES), min_size=1, max_size=6))  # type: ignore[arg-type]
def test_borda_and_mean_rank_by_brute_force(rows: list[list[float]]) -> None:
    found = table(*rows).compute_ranks("tasks", "entry")
    borda = [
        sum(1.0 if mine[c] > other[c] else 0.5 if mine[c] == other[c] else 0.0
            for at, other in enumerate(rows) for c in range(3) if at != row)
        for row, mine in enumerate(rows)
    ]  # fmt: skip
    assert found.borda.tolist() == borda
    ranks = stats.rankdata([[-v for v in row] for row in rows], method="average", axis=0)
    assert found.mean_rank.tolist() == pytest.approx(ranks.mean(axis=1).tolist())


@pytest.mark.parametrize(("weights", "wanted"), [((), [2, 1]), ((1.0, 1.0, 4.0), [1, 2])])
def test_borda_points_are_weighted(weights: tuple[float, ...], wanted: list[float]) -> None:
    scores = table([0.5, 0.5, 0.1], [0.4, 0.4, 0.2])
    site_suite = replace(scores.site_suite, weights=weights)
    ranks = scores.narrow([0, 1], [0, 1, 2], site_suite).compute_ranks("types", "entry")
    assert ranks.borda.tolist() == wanted


def test_the_incomplete_and_the_printed_are_never_ranked() -> None:
    suite = suite_of([("x", 1), ("x", 1)])
    entries = [entry(1), entry(2), entry(3, origin="reported", trust="reported"), entry(4)]
    full = [("", 0.9), ("", 0.9)]
    cells = [[("", 0.4), ("", 0.5)], [("", 0.99), ("none", 0.0)], full, [("other", 0.9), ("", 0.9)]]
    found = laid(suite, cells, entries=entries)
    for over, each in product(("tasks", "types"), ("model", "entry")):
        ranks = found.compute_ranks(over, each)
        assert ranks.place.tolist() == [1, 0, 0, 0]
        assert ranks.borda.tolist() == [0, 0, 0, 0]
        assert np.isnan(ranks.mean_rank[1:]).all()


def test_one_row_stands_for_a_model() -> None:
    suite = suite_of([("x", 1), ("x", 1)])
    same_model: dict[str, Any] = {"model": "m", "model_slug": "m"}
    entries = [
        entry(1, trust="commit", **same_model),  # all of it, and the revision is known
        entry(2, trust="external", **same_model),  # all of it
        entry(3, trust="measured", **same_model),  # best known, half of it
        entry(4, origin="reported", trust="reported", **same_model),
        entry(5, trust="none"),
    ]
    cells = [[("", 0.4), ("", 0.5)]] * 5
    cells[2] = [("", 0.4), ("none", 0.5)]
    found = laid(suite, cells, entries=entries)
    assert found.first.tolist() == [True, False, False, True, True]
    assert (found.compute_ranks("tasks", "model").place > 0).tolist() == [True, False, False, False, True]
    assert (found.compute_ranks("tasks", "entry").place > 0).tolist() == [True, True, False, False, True]


def test_an_interval_over_seeds_and_examples_goes_before_that_over_tasks() -> None:
    """Two means 0.02 apart: independent normal errors of half widths a and b make hypot(a, b)."""
    rows = [[0.72, 0.62, 0.82], [0.70, 0.60, 0.80]]  # over tasks: apart, for all differences are alike
    assert table(*rows).compute_ranks("tasks", "entry").place.tolist() == [1, 2]
    for first, second, places in (
        (0.02, 0.001, [1, 1]),
        (0.015, 0.015, [1, 1]),  # hypot is 0.0212; either alone would tell them apart
        (0.013, 0.013, [1, 2]),  # 0.0184
        (0.001, 0.001, [1, 2]),
    ):
        averages: Mapping[int, Any] = {
            0: {"interval": [0.72 - first, 0.72 + first]},
            1: {"interval": [0.70 - second, 0.70 + second]},
        }
        found = table(*rows, averages=averages)
        assert found.compute_ranks("tasks", "entry").place.tolist() == places
        assert found.compute_ranks("types", "entry").place.tolist() == [
            1,
            2,
        ]  # no interval is known of that mean
    one: Mapping[int, Any] = {0: {"interval": [0.0, 1.0]}}  # the other has none: over tasks
    assert table(*rows, averages=one).compute_ranks("tasks", "entry").place.tolist() == [1, 2]


def test_what_a_paper_prints_takes_its_place() -> None:
    suite = suite_of([("a", 1), ("a", 1), ("b", 1)])
    entries = [entry(1, origin="reported"), entry(2, origin="reported")]
    averages: Mapping[int, Any] = {
        0: {"columns": {"c0": 0.5, "c1": 0.7}, "types": {}, "over_tasks": None},
        1: {"columns": {}, "types": {"a": 0.6, "b": 0.9}, "over_tasks": 0.7},
    }
    found = laid(suite, [[("none", 0.0)] * 3] * 2, entries=entries, averages=averages)
    assert found.over_tasks.values.tolist() == [pytest.approx(0.6), 0.7]
    assert found.over_tasks.complete.tolist() == [False, True]
    assert found.over_types.values.tolist() == [pytest.approx(0.6), pytest.approx(0.75)]
    assert found.over_types.complete.tolist() == [False, True]
    assert not found.compute_ranks("tasks", "entry").place.any()


def test_a_column_of_parts_is_their_mean_or_the_number_of_the_whole() -> None:
    """Rows: both agree, contradict; a part is missing; no whole; measured; an impossible part; other data."""
    rows = [
        [("", 0.2), ("", 0.3), ("", 0.4), ("", 0.5), ("", 0.3004)],
        [("", 0.2), ("", 0.3), ("", 0.4), ("", 0.5), ("", 0.0005)],
        [("", 0.2), ("none", 0.0), ("", 0.4), ("", 0.5), ("", 0.6)],
        [("", 0.2), ("", 0.3), ("", 0.4), ("", 0.5), ("none", 0.0)],
        [("", 0.2), ("", 0.3), ("", 0.4), ("", 0.5), ("", 0.6)],
        [("", 0.2), ("bad", 0.0), ("", 0.4), ("", 0.5), ("", 0.6)],
        [("", 0.2), ("other", 0.3), ("", 0.4), ("", 0.5), ("", 0.7)],
    ]
    entries = [entry(n, origin="measured" if n == 5 else "imported") for n in range(1, 8)]
    found = laid(suite_of([("x", 3), ("y", 1)]), rows, entries=entries, wholes=[4, None])
    assert found.values[:, 0].tolist() == pytest.approx([0.3, 0.3, 0.6, 0.3, 0.3, 0.6, 0.3])
    assert found.contradicted == {(1, 0): 0.0005, (6, 0): 0.7}
    assert found.results[:, 0].tolist() == [1, 0, 1, 0, 0, 1, 0]
    assert [REASONS[code] for code in found.reasons[:, 0]] == [*[""] * 6, "other"]
    cell = suite_table.build_task_cell(found, 1, 0, {})
    assert (cell.text, cell.kind) == ("30.00", "contradicted")
    assert cell.note == "the mean of its 3 parts; of the whole the source says 0.05"


def test_marks_stay_on_their_cells_where_rows_and_columns_are_dropped() -> None:
    rows = [[("", 0.5)] * 4, [*[("", 0.3)] * 3, ("", 0.7)]]
    scores = laid(suite_of([("x", 2), ("y", 1)]), rows, wholes=[3, None])
    assert scores.contradicted == {(1, 0): 0.7}
    columns = scores.site_suite.suite.columns
    for kept, places, wanted in [
        ([1], [0], {(0, 0): 0.7}),
        ([1, 0], [1, 0], {(0, 1): 0.7}),
        ([0], [0], {}),
        ([1], [1], {}),
    ]:
        suite = replace(scores.site_suite.suite, columns=tuple(columns[at] for at in places))
        found = scores.narrow(kept, places, replace(scores.site_suite, suite=suite))
        assert found.contradicted == wanted


def test_a_score_is_at_chance_level_by_the_random_row_of_its_own_column() -> None:
    cells = [[("", 0.305), ("", 0.2), ("none", 0.0)], [("", 0.31), ("", 0.5), ("", 0.009)],
             [("", 0.32), ("", 0.205), ("", 0.011)]]  # fmt: skip
    entries = [entry(1, model=RANDOM), entry(2), entry(3)]
    scores = laid(suite_of([("x", 1)] * 3), cells, entries=entries)
    some = scores.narrow([1, 2], [0, 1, 2], scores.site_suite)
    for own, wanted in [
        (scores, {(1, "c0"), (1, "c2"), (2, "c1")}),
        (some, {(0, "c0"), (0, "c2"), (1, "c1")}),
    ]:
        table = suite_table.SuiteTable(
            scores=own, state=suite_table.TableState(), path="", cards={}, entries={}
        )
        assert wanted == {
            (row, column.label) for column in table.columns if column.key.startswith("task:")
            for row in range(len(own.entries)) if "chance" in column.build_cell(row).kind.split()
        }  # fmt: skip


def test_ranks_of_nothing() -> None:
    empty = np.zeros((0, 2))
    found = rank_entries(empty, np.zeros(0), np.zeros(0, bool), {})
    assert found.place.tolist() == found.borda.tolist() == []
    assert json.dumps(found.mean_rank.tolist()) == "[]"


# Ranks and means over the public results, beside mteb's own code on the same files


SUITES = {"MTEB(eng, v2)": "mteb", "MTEB(eng, v1)": "mteb-v1", "BEIR": "beir"}
AT_LEAST = {"mteb": 175, "mteb-v1": 130, "beir": 175}
ONE_IN = 8
NAMED = (
    "Qwen/Qwen3-Embedding-8B",
    "google/gemini-embedding-001",
    "BAAI/bge-base-en-v1.5",
    "intfloat/e5-mistral-7b-instruct",
    "sentence-transformers/all-MiniLM-L6-v2",
)

SCRIPT = """
import json, logging, math, sys, warnings
warnings.simplefilter("ignore"); logging.disable(logging.WARNING)
import mteb
from mteb.cache import ResultCache
cache, found = ResultCache(sys.argv[1]), {}
for name in sys.argv[2:]:
    benchmark = mteb.get_benchmark(name)
    parts = {task.metadata.name: [part.metadata.name for part in task.metadata.tasks]
             for task in benchmark.tasks if hasattr(task.metadata, "tasks")}
    every = [*benchmark.tasks, *(mteb.get_task(name) for names in parts.values() for name in names)]
    loaded = cache.load_results(tasks=every, require_model_meta=False, include_remote=False,
                                validate_and_filter=True, only_main_score=True)
    scores = {}
    for model in loaded.join_revisions().model_results:
        for task in model.task_results:
            values = [row["main_score"] for rows in task.scores.values() for row in rows]
            score = math.nan if None in values else task.get_score()  # get_score fails where one has none
            scores.setdefault(model.model_name, {})[task.task_name] = score
    for one in scores.values():
        for whole, names in parts.items():
            mean = sum(one.get(name, math.nan) for name in names) / len(names)
            one[whole] = one.get(whole, math.nan) if math.isnan(mean) else mean
    wanted = [task.metadata.name for task in benchmark.tasks]
    whole = {m: [s.get(t, math.nan) for t in wanted] for m, s in scores.items()}
    found[name] = {m: sum(s) / len(s) for m, s in whole.items() if all(map(math.isfinite, s))}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def results(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The public results of one model in eight."""
    archive = shared.parent / "mteb-results.tar.xz"
    return data_files.find_published(archive, tmp_path_factory.mktemp("mteb"), ONE_IN, NAMED)


@pytest.fixture
def public(results: Path, tmp_path: Path) -> Queries:
    """A site over the public results."""
    import_results(results, tmp_path / "results")
    index = open_index(SiteSettings(results=(tmp_path / "results",), snapshots=tmp_path / "site"))
    index.refresh()
    return Queries(index, index.version)


@pytest.mark.shared
@pytest.mark.slow
def test_the_ranked_are_those_of_mteb_and_their_means_are_the_same(results: Path, public: Queries) -> None:
    """Of a task of several parts the mean of the parts, which mteb leaves to the file of the whole."""
    theirs = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(results), *SUITES], capture_output=True, text=True, check=True
    )
    expected = json.loads(theirs.stdout.splitlines()[-1])
    for name, slug in SUITES.items():
        found = public.load_suite_scores(public.suites[slug])
        ranks = found.compute_ranks("tasks", "model").place
        means = {found.entries[row].model: found.over_tasks.values[row] for row in np.flatnonzero(ranks)}
        assert means.keys() == expected[name].keys()
        assert means == {model: pytest.approx(mean, abs=1e-9) for model, mean in expected[name].items()}
        assert len(means) >= AT_LEAST[slug] / (1 if os.environ.get("HARNESS_MTEB_RESULTS") else 2 * ONE_IN)
    ranked = public.load_suite_scores(public.suites["mteb"])
    names = {
        ranked.entries[row].model for row in np.flatnonzero(ranked.compute_ranks("tasks", "model").place)
    }
    assert set(NAMED) <= names


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_what_the_registry_of_mteb_says_was_trained_on_is_marked(public: Queries) -> None:
    """Every score of the three suites, beside the registry of the installed mteb."""
    import mteb

    data = {meta.name: meta.get_training_datasets() for meta in mteb.get_model_metas()}
    marked = 0
    for slug in SUITES.values():
        found = public.load_suite_scores(public.suites[slug])
        for row, at in np.argwhere(found.counted).tolist():
            column = found.site_suite.suite.columns[at]
            said = {column.name, *(one.name for one in column.tasks)} & (
                data.get(found.entries[row].model) or set()
            )
            if said:
                cell = suite_table.build_task_cell(found, row, at, public.entries)
                assert "leak" in cell.kind.split(), (found.entries[row].model, column.name)
                assert found.zero_shot[row] < 1
                marked += 1
    assert marked > 300


@pytest.mark.shared
@pytest.mark.slow
def test_a_task_of_parts_has_the_mean_of_its_raw_files(results: Path, public: Queries) -> None:
    found = public.load_suite_scores(public.suites["beir"], revisions=True)
    (at,) = [at for at, one in enumerate(found.site_suite.suite.columns) if len(one.tasks) > 1]
    column, means, contradicted = found.site_suite.suite.columns[at], 0, 0
    for row, one in enumerate(found.entries):
        folder = results / "results" / one.model.replace("/", "__") / (one.revision or "")
        if one.origin != "imported" or one.treatment or not folder.is_dir():
            continue
        raw = [_main_score(folder / f"{task.name}.json") for task in column.tasks]
        whole, mean = _main_score(folder / f"{column.name}.json"), float(np.mean(raw))
        assert found.values[row, at] == pytest.approx(whole if np.isnan(mean) else mean, nan_ok=True)
        assert ((row, at) in found.contradicted) == (abs(100 * (mean - whole)) > 0.05), one.model
        means, contradicted = means + (not np.isnan(mean)), contradicted + ((row, at) in found.contradicted)
    assert means > 20
    assert contradicted


def _main_score(path: Path) -> float:
    """The score of a raw file of mteb, in its present form or its old one; NaN without a file."""
    data = json.loads(path.read_text()) if path.is_file() else {}
    if "mteb_dataset_name" in data:
        return float(data["test"]["ndcg_at_10"])
    return float(data["scores"]["test"][0]["main_score"]) if data else np.nan
