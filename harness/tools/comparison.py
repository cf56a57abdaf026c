"""Score deltas of two models, and the differences in how they were measured."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, TypeAlias

from harness.core import files
from harness.core.errors import UsageError, explain_unknown
from harness.core.types import OWN_UNITS, Column, Data, Suite, Task
from harness.driver.report.suite import is_selection_score, serialize_selection
from harness.results.differences import Comparable
from harness.results.record_units import ScoredRecord
from harness.results.results import MeasuredSuite, choose_settings, describe_record, open_stores
from harness.results.score_differences import Difference, MeanDifference
from harness.results.scores import MAIN_SCORE, collect_raw_metrics
from harness.storage.record import Record
from harness.tools.measured import ResultTable

_Row: TypeAlias = "tuple[str, str | None, str | None]"
"""A task, split and subset."""


@dataclass(frozen=True, kw_only=True)
class _ModelComparison:
    """Two models compared; in a notebook the table of their deltas.

    Attributes:
        sides: The records of both models.
        pairs: The number of pairs of records that were compared.
        deltas: A row for each task, split or subset, with both scores, their difference and its test.
        differences: What else differs between the records of a pair.
        not_compared: The records without a counterpart, with the reason.
        tests: The second minus the first over their examples, by task, split and subset.
    """

    sides: tuple[MeasuredSuite, MeasuredSuite]
    pairs: int
    deltas: ResultTable
    differences: ResultTable
    not_compared: ResultTable
    tests: Mapping[_Row, Difference]

    @property
    def names(self) -> tuple[str, str]:
        """The names of both models."""
        first, second = (one.records[0].model.name for one in self.sides)
        return first, second

    def to_json(self) -> dict[str, Any]:
        """The document of `harness compare --json` (docs/json.md)."""
        models: dict[str, Any] = {
            of: {**one.newest.records[0].model.model_dump(), **serialize_selection(one.lineage)}
            for of, one in zip(_SIDES, self.sides, strict=True)
        }
        tables = ("deltas", "differences", "not_compared")
        return {"schema": 1, **models, **{name: [*getattr(self, name)] for name in tables}}

    def __repr__(self) -> str:
        return f"{self.names[1]} - {self.names[0]}\n{self.deltas!r}"

    def _repr_html_(self) -> str:
        return self.deltas._repr_html_()


def compare_models(
    first: str,
    second: str,
    *,
    tasks: Sequence[str] = (),
    settings: str = "",
    across_data: bool = False,
    measurements: bool = False,
    results: Path | None = None,
    cache: Path | None = None,
) -> _ModelComparison:
    """Compare scores on the same data and under the same settings, task by task.

    If one score of each model is then left over on the same data, these two are compared as well.

    Args:
        first: A name, six or more digits of an artifact key, or a folder.
        second: The other model; deltas are its scores minus those of the first.
        tasks: Only these tasks.
        settings: A part of the text of the settings to compare, where a model has several.
        across_data: Whether scores on different data are compared, too.
        measurements: Whether differing times, rates and memory are listed, too.
        results: The results folder, None for the default.
        cache: The cache folder, None for the default.

    Raises:
        UsageError: A model has no records, or a name or the settings fit none.
    """
    a, b = (MeasuredSuite.load_records(model, results, cache) for model in (first, second))
    # A side with one kind of settings is taken as it is, but a slip of the pen on both is told.
    if all(settings not in text for side in (a, b) for text in side.settings):
        choose_settings([text for side in (a, b) for text in side.settings], settings)
    sides = (a.select_settings(settings), b.select_settings(settings))
    pairs, alone = _match_sides(sides, tasks, across_data=across_data)
    flat = [
        (
            _build_comparable(x).flatten_fields(x.provenance, measurements=measurements),
            _build_comparable(y).flatten_fields(y.provenance, measurements=measurements),
        )
        for x, y in pairs
    ]
    deltas = [row for x, y in pairs for row in _iter_delta_rows(x, y, sides, results, cache)]
    tests = {_get_row_name(row): row.pop("difference", None) for row in deltas}
    return _ModelComparison(
        sides=sides,
        pairs=len(pairs),
        deltas=ResultTable(deltas, shown=("task", "split", "subset", "metric", "first", "second", "delta")),
        differences=ResultTable(_count_differences(flat)),
        not_compared=ResultTable(alone),
        tests={name: test for name, test in tests.items() if test},
    )


def compare_chain(models: Sequence[str], **options: Any) -> list[dict[str, Any]]:
    """Each model of an ablation chain against the one before it, and against the first.

    Args:
        models: Three or more, in the order of their changes.
        options: Those of compare_models.

    Returns:
        For each model but the first its `model`, its `mean` over the `tasks` that all have, `before` and
        `first` (`delta`, and its `test` over the examples of all tasks, None where one has no test), which
        settings differ (`differs`) from those of the one before, and the tasks whose scores chose one of the
        two (`selected`).

    Raises:
        UsageError: A model is there twice, or all have no score in common, or several of a task.
    """
    numbers = range(1, len(models))
    pairs = [(n, other) for n in numbers for other in {n - 1, 0}]
    compared = {(n, other): compare_models(models[other], models[n], **options) for n, other in pairs}
    keys = {side.records[0].model.artifact for pair in compared.values() for side in pair.sides}
    if len(keys) < len(models):
        raise UsageError("A model is in the chain twice.", hint="Name each once, in their order.")
    tables = {pair: _collect_chain_rows(comparison) for pair, comparison in compared.items()}
    common = set.intersection(*({*rows} for rows in tables.values()))
    # Each score of a model must be one and the same in all of its pairs.
    scores: dict[tuple[int, _Row], set[float]] = {}
    for (n, start), rows in tables.items():
        for name, row in rows.items():
            scores.setdefault((n, name), set()).add(row["second"])
            scores.setdefault((start, name), set()).add(row["first"])
    if not common or any(len(scores[n, name]) > 1 for n in range(len(models)) for name in common):
        raise _build_chain_error("several scores of a task" if common else "no score in common")
    tasks: dict[str, list[_Row]] = {}
    for name in sorted(common, key=str):
        tasks.setdefault(name[0], []).append(name)
    steps = []
    for n in numbers:
        before = compared[n, n - 1]
        fields = [row["field"] for row in before.differences if row["field"].startswith("identity.")]
        steps.append(
            {
                "model": before.names[1],
                "tasks": len(tasks),
                "mean": _average_tasks(tasks, {name: row["second"] for name, row in tables[n, 0].items()}),
                "before": _compare_means(tables[n, n - 1], before.tests, tasks),
                "first": _compare_means(tables[n, 0], compared[n, 0].tests, tasks),
                "differs": [field.removeprefix("identity.") for field in dict.fromkeys(fields)],
                "selected": sorted(
                    {row["task"] for row in tables[n, n - 1].values() if row["selected"]} & {*tasks}
                ),
            }
        )
    return steps


def _build_chain_error(what: str) -> UsageError:
    hint = "--settings chooses one; `harness compare A B` says what two of them share."
    return UsageError(f"The models have {what}.", hint=hint)


def _collect_chain_rows(comparison: _ModelComparison) -> dict[_Row, Mapping[str, Any]]:
    """The rows of shares of 1: that of a whole task, or those of its splits.

    Raises:
        UsageError: A row is there twice.
    """
    rows = [row for row in comparison.deltas if row["delta"] is not None and row["metric"] not in OWN_UNITS]
    summed = {row["task"] for row in rows if row["split"] is None and row["subset"] is None}
    rows = [row for row in rows if row["task"] not in summed or row["split"] is None]
    named: dict[_Row, Mapping[str, Any]] = {_get_row_name(row): row for row in rows}
    if len(named) < len(rows):
        raise _build_chain_error("several scores of a task")
    return named


def _average_tasks(tasks: Mapping[str, Sequence[_Row]], values: Mapping[_Row, float]) -> float:
    """The mean over tasks of the means of their rows."""
    return fmean(fmean(values[name] for name in names) for names in tasks.values())


def _compare_means(
    rows: Mapping[_Row, Mapping[str, Any]],
    differences: Mapping[_Row, Difference],
    tasks: Mapping[str, Sequence[_Row]],
) -> dict[str, Any]:
    """The difference of the means over tasks, and its test where each row has one."""
    delta = _average_tasks(tasks, {name: row["delta"] for name, row in rows.items()})
    shape: dict[str, Any] = {"type": "", "metric": "", "splits": (), "data": Data(), "source": None}
    columns = tuple(
        Column(name=task, type="", tasks=tuple(Task(name=str(name), **shape) for name in names))
        for task, names in tasks.items()
    )
    tests = {str(name): test for name, test in differences.items()}
    mean = MeanDifference.aggregate_suite(Suite(name="", title="", columns=columns), tests)
    if mean is None or len(mean.columns) < len(columns):
        return {"delta": delta, "test": None}
    p, low, high = mean.compute_two_sided_test()
    return {"delta": delta, "test": {"p": p, "low": low, "high": high}}


def _get_row_name(row: Mapping[str, Any]) -> _Row:
    return row["task"], row["split"], row["subset"]


def _select_task_records(records: Sequence[Any], tasks: Sequence[str]) -> list[Any]:
    mine = [r for r in records if not tasks or r.task.name in tasks]
    if not mine:
        names = {r.task.name for r in records}
        raise explain_unknown("recorded task", tasks[0], names, then="`harness show MODEL` lists them.")
    return mine


def _count_differences(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[dict[str, Any]]:
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


NEAR = 1e-4
"""How far the difference over examples may be from that of the two scores."""

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
    """The rows of a pair: each with its scores, their difference, its test, and marks of the sides."""
    scored = [_find_scored_record(record, results, cache) for record in (x, y)]
    for cells in _list_record_parts(x):
        first, second = (_compute_part_score(one, cells) for one in (x, y))
        delta = second - first if first is not None and second is not None else None
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
            "delta": delta,
            "first_settings": describe_record(x),
            "second_settings": describe_record(y),
            "selected": [
                of
                for of, one, record in zip(_SIDES, sides, (x, y), strict=True)
                if is_selection_score(record, one.lineage, splits, subsets)
            ],
            "reference": [
                of
                for of, one, record in zip(_SIDES, sides, (x, y), strict=True)
                if record.key in one.reference
            ],
            **_test(scored[0], scored[1], cells, delta),
        }


def _compute_part_score(record: Record, cells: _Cells) -> float | None:
    """The score of a record, or of a part of it: a mean over subsets."""
    if not cells:
        return record.main_score
    scores = [record.scores.get(split, {}).get(subset, {}).get(MAIN_SCORE) for split, subset in cells]
    return None if None in scores else fmean(map(float, scores))  # type: ignore[arg-type]


def _test(
    first_record: ScoredRecord | None, second_record: ScoredRecord | None, cells: _Cells, delta: float | None
) -> dict[str, Any]:
    """A paired test of two scores over their examples, or the reason why there is none."""
    if first_record is None or second_record is None:
        return {"test": None, "untested": "a record was removed meanwhile"}
    if first_record.units is None or second_record.units is None:
        gone = first_record if first_record.units is None else second_record
        return {"test": None, "untested": f"{gone.model['name']}: {gone.problem}"}
    first, second = (
        units.select_subsets(cells) if cells else units for units in (first_record.units, second_record.units)
    )
    if first is None or second is None or not first.has_same_examples(second):
        return {"test": None, "untested": "the two were measured on different examples"}
    # In this order: the interval is that of second − first, as the delta is.
    difference = Difference.compare_units(second, first, paired="recipe" not in second_record.identity)
    if delta is None or abs(difference.delta - delta) > NEAR:
        return {"test": None, "untested": "the kept examples do not give the score"}
    p, low, high = difference.compute_two_sided_test()
    test = {"queries": difference.units, "p": p, "low": low, "high": high}
    return {"test": test, "untested": "", "difference": difference}


def _find_scored_record(record: Record, results: Path | None, cache: Path | None) -> ScoredRecord | None:
    """A record with the scores of its examples."""
    return ScoredRecord.find(
        open_stores(results),
        f"model-{record.model.artifact[:12]}",
        record.task.name,
        record.key,
        # The main score of a trained task is the mean of all its metrics.
        parts=tuple(collect_raw_metrics(record)) if record.training else (),
        cache=files.resolve_cache_folder(cache),
    )


_Side = Literal["first", "second"]


_SIDES: tuple[_Side, _Side] = ("first", "second")


Reason = Literal["task", "splits", "number", "data", "settings", "weights"]
"""The part that the record shares with no record of the other model; "weights": its own has others now."""


def _describe_unpaired(record: Record, of: _Side, reason: Reason) -> dict[str, Any]:
    """A record without a counterpart, and what keeps the other model's records of the task apart."""
    return {
        "task": record.task.name,
        "of": of,
        "splits": [*record.scores],
        "settings": describe_record(record),
        "reason": reason,
    }


_Pairing = tuple[list[tuple[Record, Record]], list[dict[str, Any]]]
"""Pairs of comparable records of two models, and what is said of the records without a counterpart."""


def _match_sides(sides: Sequence[MeasuredSuite], tasks: Sequence[str], *, across_data: bool) -> _Pairing:
    """The pairs of records of two models' present weights; those of former weights are alone."""
    mine = [_select_task_records(one.records, tasks) for one in sides]
    a, b = ([r for r in rows if not one.is_former(r)] for one, rows in zip(sides, mine, strict=True))
    former = [
        _describe_unpaired(record, of, "weights")
        for of, one, rows in zip(_SIDES, sides, mine, strict=True)
        for record in rows
        if one.is_former(record)
    ]
    pairs, alone = _match_records(a, b, across_data=across_data)
    return pairs, [*alone, *former]


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
    alone = [
        _describe_unpaired(record, of, _find_mismatch(record, others))
        for of, mine, others in zip(_SIDES, (first, second), (second, first), strict=True)
        for record in mine
        if record not in paired
    ]
    return pairs, alone


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
