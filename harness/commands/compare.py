"""`harness compare`: score deltas of two models, and the differences in how they were measured."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import click
from rich.console import Console
from rich.table import Table

from harness.checks.difference import Difference
from harness.checks.significance import compute_paired_test
from harness.commands import options
from harness.core import paths
from harness.core.errors import explain_unknown
from harness.core.terminal import create_console, print_table
from harness.driver.progress import find_most_common
from harness.driver.report.suite import CHOSE, format_lineage_lines, is_selection_score, serialize_selection
from harness.results.differences import Comparable
from harness.results.record_units import ScoredRecord
from harness.results.results import MeasuredSuite, choose_settings, describe_record, open_stores
from harness.results.scores import MAIN_SCORE, format_delta, score_text
from harness.storage.record import Record

REASONS = {
    ("first", "task"): "Only {first} has",
    ("second", "task"): "Only {second} has",
    ("first", "splits"): "Not compared, as {second} has other splits or subsets of it",
    ("second", "splits"): "Not compared, as {first} has other splits or subsets of it",
    ("first", "number"): "Not compared, as {second} has another number of it (view, or a grid's maximum)",
    ("second", "number"): "Not compared, as {first} has another number of it (view, or a grid's maximum)",
    ("first", "data"): "Not compared, as {second} was measured on other data (--across-data does)",
    ("second", "data"): "Not compared, as {first} was measured on other data (--across-data does)",
    ("first", "settings"): "Not compared, as {second} has no score of it under these settings of {first}",
    ("second", "settings"): "Not compared, as {first} has no score of it under these settings of {second}",
    ("first", "weights"): "Not compared, as {first} was trained again since, and has other weights now",
    ("second", "weights"): "Not compared, as {second} was trained again since, and has other weights now",
}
"""Why a record of one model has no counterpart, in words."""


@click.command("compare")
@click.argument("first")
@click.argument("second")
@click.option("--task", "tasks", multiple=True, help="Only this task. Repeat for several.")
@click.option(
    "--settings",
    default="",
    help="The settings whose scores are compared, where a model has several: a part of their text in "
    "`harness show`, e.g. '128 tokens'.",
)
@click.option("--across-data", is_flag=True, help="Also compare scores on different data.")
@click.option("--measurements", is_flag=True, help="Also list differing times, rates and memory.")
@options.results
@options.cache
@options.as_json
def command(
    first: str,
    second: str,
    tasks: tuple[str, ...],
    settings: str,
    across_data: bool,
    measurements: bool,
    results: Path | None,
    cache: Path | None,
    as_json: bool,
) -> int:
    """Compare FIRST with SECOND: deltas (second − first) on the tasks both have, and why they may differ.

    Scores on the same data and under the same settings are compared with each other. If one score of
    each model is then left over, these two are compared as well. BM25 shares no settings with a model of
    vectors, so it is compared with each score of that model. Retrieval tasks are tested over their
    queries. A task of several splits has a row for each.
    """
    sides = [MeasuredSuite.load_records(model, results, cache) for model in (first, second)]
    # A side with one kind of settings is taken as it is, but a slip of the pen on both is told.
    if all(settings not in text for side in sides for text in side.settings):
        choose_settings([text for side in sides for text in side.settings], settings)
    sides = [side.select_settings(settings) for side in sides]
    pairing = _match_sides(sides, tasks, across_data=across_data)
    comparison = {
        "deltas": [row for x, y in pairing.pairs for row in _iter_delta_rows(x, y, sides, results, cache)],
        "differences": _count_differences(
            [
                (
                    _build_comparable(x).flatten_fields(x.provenance, measurements=measurements),
                    _build_comparable(y).flatten_fields(y.provenance, measurements=measurements),
                )
                for x, y in pairing.pairs
            ]
        ),
        "not_compared": [_describe_unpaired(one) for one in pairing.alone],
    }
    if as_json:
        names = {
            of: {**one.newest.records[0].model.model_dump(), **serialize_selection(one.lineage)}
            for of, one in zip(_SIDES, sides, strict=True)
        }
        click.echo(json.dumps({"schema": 1, **names, **comparison}, indent=1))
    else:
        a, b = (one.records[0].model.name for one in sides)
        _print_comparison(a, b, comparison, len(pairing.pairs))
        for name, side in zip((a, b), sides, strict=True):
            for line in format_lineage_lines(side.lineage):
                create_console().print(f"{name}: {line}", highlight=False, soft_wrap=True)
    return 0


def _select_task_records(records: Sequence[Any], tasks: Sequence[str]) -> list[Any]:
    mine = [r for r in records if not tasks or r.task.name in tasks]
    if not mine:
        names = {r.task.name for r in records}
        raise explain_unknown("recorded task", tasks[0], names, then="`harness show MODEL` lists them.")
    return mine


def _count_differences(pairs: list[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Fields with other values in at least one pair, with the values and the number of such pairs."""
    counts: dict[tuple[str, str, str], int] = {}
    for a, b in pairs:
        for field in sorted({*a, *b}):
            x, y = a.get(field), b.get(field)
            if x != y:
                # As JSON, since values may be lists or objects, which cannot be keys of a dict.
                key = (field, json.dumps(x), json.dumps(y))
                counts[key] = counts.get(key, 0) + 1
    return [
        {"field": field, "first": json.loads(x), "second": json.loads(y), "tasks": count}
        for (field, x, y), count in counts.items()
    ]


_Cells = Sequence[tuple[str, str]]
"""Some (split, subset) of a task."""

MANY = 20
"""The most splits and subsets of a retrieval task that are a row each."""


def _list_record_parts(record: Record) -> list[_Cells]:
    """The parts of a task that are a row each; an empty part is the whole.

    Splits are never one row, as a suite averages one of them at most. Subsets of a retrieval task are rows
    beside their mean.
    """
    splits = {
        split: [(split, subset) for subset, metrics in subsets.items() if MAIN_SCORE in metrics]
        for split, subsets in record.scores.items()
    }
    # A subset without a main score would be missing from the rows: the task is shown as a whole.
    if [len(cells) for cells in splits.values()] != [len(subsets) for subsets in record.scores.values()]:
        return [()]
    every = [[cell] for cells in splits.values() for cell in cells]
    single = every if record.retrieves and len(every) <= MANY else []
    if len(splits) > 1:
        return [*(single or splits.values())]
    return [(), *(single if len(single) > 1 else [])]


def _iter_delta_rows(
    x: Record, y: Record, sides: Sequence[MeasuredSuite], results: Path | None, cache: Path | None
) -> Iterator[dict[str, Any]]:
    """The rows of a pair: each with its scores, their difference, its test, and the sides that it chose."""
    units = [_find_query_scores(record, results, cache) for record in (x, y) if x.retrieves]
    for cells in _list_record_parts(x):
        first, second = (_compute_part_score(one, cells) for one in (x, y))
        splits, subsets = (
            (list(dict.fromkeys(names)) for names in zip(*cells, strict=True)) if cells else ([], [])
        )
        yield {
            "task": x.task.name,
            "split": splits[0] if len(splits) == 1 else None,
            "subset": subsets[0] if len(subsets) == 1 else None,
            "metric": x.task.metric,
            "first": first,
            "second": second,
            "delta": second - first if first is not None and second is not None else None,
            "first_settings": describe_record(x),
            "second_settings": describe_record(y),
            "selected": [
                of
                for of, one, record in zip(_SIDES, sides, (x, y), strict=True)
                if is_selection_score(record, one.lineage, splits, subsets)
            ],
            **(_test(units[0], units[1], cells) if units else {"test": None, "untested": ""}),
        }


def _compute_part_score(record: Record, cells: _Cells) -> float | None:
    """The score of a record, or of a part of it: a mean over subsets."""
    if not cells:
        return record.main_score
    scores = [record.scores.get(split, {}).get(subset, {}).get(MAIN_SCORE) for split, subset in cells]
    return None if None in scores else fmean(map(float, scores))  # type: ignore[arg-type]


def _test(
    first_record: ScoredRecord | None, second_record: ScoredRecord | None, cells: _Cells
) -> dict[str, Any]:
    """A paired test of two scores over their queries, or the reason why there is none."""
    if first_record is None or second_record is None:
        return {"test": None, "untested": "a record was removed meanwhile"}
    if first_record.units is None or second_record.units is None:
        gone = first_record if first_record.units is None else second_record
        return {"test": None, "untested": f"{gone.model['name']}: {gone.problem}"}
    first, second = (
        units.select_subsets(cells) if cells else units for units in (first_record.units, second_record.units)
    )
    if first is None or second is None or not first.has_same_examples(second):
        return {"test": None, "untested": "the two were measured on different queries"}
    # In this order: the interval is that of second − first, as the delta is.
    difference = Difference.compare_units(second, first, paired=True)
    p, low, high = compute_paired_test(difference)
    return {"test": {"queries": first.count, "p": p, "low": low, "high": high}, "untested": ""}


def _find_query_scores(record: Record, results: Path | None, cache: Path | None) -> ScoredRecord | None:
    """A record with the scores of its queries."""
    return ScoredRecord.find(
        open_stores(results),
        f"model-{record.model.artifact[:12]}",
        record.task.name,
        record.key,
        parts=(),
        cache=paths.resolve_cache_folder(cache),
    )


def _describe_unpaired(unpaired: Any) -> dict[str, Any]:
    settings = describe_record(unpaired.record)
    return {
        "task": unpaired.record.task.name,
        "of": unpaired.of,
        "settings": settings,
        "reason": unpaired.reason,
    }


def _print_comparison(first: str, second: str, comparison: dict[str, Any], pairs: int) -> None:
    out = create_console()
    if not comparison["deltas"]:
        out.print("The models have no score in common on the same data and splits.")
    else:
        _print_deltas(out, first, second, comparison["deltas"])
        for reason in dict.fromkeys(row["untested"] for row in comparison["deltas"] if row["untested"]):
            rows = [row["task"] for row in comparison["deltas"] if row["untested"] == reason]
            out.print(
                f"No test of {', '.join(dict.fromkeys(rows))}: {reason}.", highlight=False, soft_wrap=True
            )
        _print_differences(out, comparison["differences"], pairs)
    names = {"first": first, "second": second}
    for (of, reason), text in REASONS.items():
        tasks = [
            one["task"] for one in comparison["not_compared"] if (one["of"], one["reason"]) == (of, reason)
        ]
        if tasks:
            sentence = f"{text.format(**names)}: {', '.join(dict.fromkeys(tasks))}"
            out.print(sentence, highlight=False, soft_wrap=True)


def _print_deltas(out: Console, first: str, second: str, rows: Sequence[Mapping[str, Any]]) -> None:
    common = find_most_common([_format_row_settings(row) for row in rows])
    table = Table(title=f"{second} − {first}, scores × 100\n{common}")
    table.add_column("task")
    table.add_column("metric")
    for name in (first, second, "delta", "95 %", "p"):
        table.add_column(name, justify="right")
    others = any(_format_row_settings(row) != common for row in rows)
    if others:
        table.add_column("other settings", style="dim")
    table.add_column("", style="dim")
    for row in rows:
        scores = (score_text(row["first"]), score_text(row["second"]), format_delta(row["delta"]))
        tested, settings = _test_texts(row["test"]), _format_row_settings(row)
        names = {"first": first, "second": second}
        table.add_row(
            _format_row_name(row),
            row["metric"],
            *scores,
            *tested,
            *(["" if settings == common else settings] if others else []),
            ", ".join(f"{CHOSE} {names[of]}" for of in row["selected"]),
        )
    print_table(table, out)


def _format_row_name(row: Mapping[str, Any]) -> str:
    """The task, with the split and the subset of a row that is a part of it."""
    part = ", ".join(name for name in (row["split"], row["subset"]) if name not in (None, "default"))
    return f"{row['task']} ({part})" if part else str(row["task"])


def _test_texts(test: Mapping[str, Any] | None) -> tuple[str, str]:
    """The interval and the p-value of a paired test; empty texts without one."""
    if test is None:
        return "", ""
    p = "< 0.001" if test["p"] < 0.001 else f"{test['p']:.3f}"
    return f"{format_delta(test['low'])} … {format_delta(test['high'])}", p


def _format_row_settings(row: Mapping[str, Any]) -> str:
    first, second = row["first_settings"], row["second_settings"]
    return str(first) if first == second else f"{first} | {second}"


def _print_differences(out: Console, rows: list[dict[str, Any]], tasks: int) -> None:
    if not rows:
        out.print("Nothing else differs: same data, settings, scoring and conditions.")
        return
    table = Table(title="what else differs")
    for name in ("field", "first", "second", "tasks"):
        table.add_column(name)
    for row in rows:
        values = (_cut_hashes(row["first"]), _cut_hashes(row["second"]))
        table.add_row(row["field"], *values, f"{row['tasks']} of {tasks}")
    print_table(table, out)


def _cut_hashes(value: Any) -> str:
    """A value for a table, with hashes cut."""
    # From 16 digits on, so that numbers and short words made of these letters stay as they are.
    return re.sub(r"\b[0-9a-f]{16,}\b", lambda found: found[0][:12], str(value))


_Side = Literal["first", "second"]

_SIDES: tuple[_Side, _Side] = ("first", "second")

Reason = Literal["task", "splits", "number", "data", "settings", "weights"]
"""The part that the record shares with no record of the other model; "weights": its own has others now."""


@dataclass(frozen=True, kw_only=True)
class _Unpaired:
    """A record without a counterpart, and what keeps the other model's records of the task apart."""

    record: Record
    of: _Side
    reason: Reason


@dataclass(frozen=True, kw_only=True)
class _Pairing:
    """Pairs of comparable records of two models, and the records without a counterpart."""

    pairs: tuple[tuple[Record, Record], ...]
    alone: tuple[_Unpaired, ...]


def _match_sides(sides: Sequence[MeasuredSuite], tasks: Sequence[str], *, across_data: bool) -> _Pairing:
    """The pairs of records of two models' present weights; those of former weights are alone."""
    mine = [_select_task_records(one.records, tasks) for one in sides]
    a, b = ([r for r in rows if not one.is_former(r)] for one, rows in zip(sides, mine, strict=True))
    former = [
        _Unpaired(record=record, of=of, reason="weights")
        for of, one, rows in zip(_SIDES, sides, mine, strict=True)
        for record in rows
        if one.is_former(record)
    ]
    pairing = _match_records(a, b, across_data=across_data)
    return replace(pairing, alone=(*pairing.alone, *former))


def _match_records(
    first: Sequence[Record], second: Sequence[Record], *, across_data: bool = False
) -> _Pairing:
    """The pairs of records with the same task, splits, subsets, data and settings.

    Only the text of documents need be the same where one side is a ranking by words. If then one record of
    each model is left over on the same data, the two are a pair as well: each model under settings of its
    own. Several left over are no pairs, as it is open which belong together. With `across_data` the data
    need not be the same.
    """
    pairs: list[tuple[Record, Record]] = []
    for group in dict.fromkeys(_build_group_key(r, across_data) for r in first):
        mine = [r for r in first if _build_group_key(r, across_data) == group]
        theirs = [r for r in second if _build_group_key(r, across_data) == group]
        alike = [
            (x, y)
            for x in mine
            for y in theirs
            if _build_comparable(x).has_same_settings(_build_comparable(y))
        ]
        rest = [r for r in mine if r not in [x for x, _ in alike]]
        others = [r for r in theirs if r not in [y for _, y in alike]]
        pairs += alike
        if len(rest) == len(others) == 1:
            pairs.append((rest[0], others[0]))
    paired = [record for both in pairs for record in both]
    left = [(r, "first", second) for r in first if r not in paired]
    left += [(r, "second", first) for r in second if r not in paired]
    alone = tuple(_Unpaired(record=r, of=of, reason=_find_mismatch(r, others)) for r, of, others in left)  # type: ignore[arg-type]
    return _Pairing(pairs=tuple(pairs), alone=alone)


def _find_mismatch(record: Record, others: Sequence[Record]) -> Reason:
    same = [r for r in others if r.task.name == record.task.name]
    if not same:
        return "task"
    same = [r for r in same if _build_comparable(r).shape == _build_comparable(record).shape]
    if not same:
        return "splits"
    same = [r for r in same if _build_comparable(r).quantity == _build_comparable(record).quantity]
    if not same:
        return "number"
    return (
        "settings"
        if any(_build_comparable(r).data == _build_comparable(record).data for r in same)
        else "data"
    )


def _build_group_key(record: Record, across_data: bool) -> tuple[Any, ...]:
    comparable = _build_comparable(record)
    return (record.task.name, *comparable.shape, comparable.quantity, () if across_data else comparable.data)


def _build_comparable(record: Record) -> Comparable:
    return Comparable(identity=record.identity)
