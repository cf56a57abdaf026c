"""Scores of a suite: two means, numbers by a paper's convention, intervals, and models' names in tables."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from harness.core.types import SEED, Column, Convention, Raw, Suite, Task
from harness.storage.record import Record

if TYPE_CHECKING:
    from harness.core.keys import Lineage
    from harness.results.bootstrap import Interval
    from harness.results.weighted_metrics import Floats


def score_text(value: float | None, *, measured: bool = False) -> str:
    """A score as tables show it: times 100, or as it was measured by a measured task; a dash for none.

    >>> score_text(0.64508), score_text(0.021, measured=True), score_text(12345.6, measured=True)
    ('64.51', '0.021', '12,346')
    >>> score_text(None), score_text(-0.0628)
    ('–', '−6.28')
    """
    if value is None or value != value:
        return "–"
    if measured:
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{100 * value:.2f}".replace("-", "−")


def format_delta(value: float | None) -> str:
    """A difference of scores, times 100, with its sign; a dash for none.

    >>> format_delta(0.0123), format_delta(-0.5), format_delta(-0.00001), format_delta(None)
    ('+1.23', '−50.00', '0.00', '–')
    """
    if value is None or value != value:
        return "–"
    # Rounded first: -0.00001 would else be shown as −0.00.
    hundredths = round(100 * value, 2)
    return "0.00" if hundredths == 0 else f"{hundredths:+.2f}".replace("-", "−")


def compute_seed_spread(values: Sequence[float | None]) -> dict[str, Any]:
    """The mean of scores over seeds, their standard deviation, and the number of seeds with a score."""
    scores = [value for value in values if value is not None]
    complete = bool(scores) and len(scores) == len(values)
    return {
        "value": fmean(scores) if complete else None,
        "deviation": stdev(scores) if complete and len(scores) > 1 else None,
        "seeds": len(scores),
    }


def format_spread(values: Sequence[float | None], *, measured: bool = False) -> str:
    """Scores of several seeds as `score_text` has them: mean ± deviation, or how many seeds have a score.

    >>> format_spread([0.5, 0.6]), format_spread([0.5]), format_spread([0.5, None]), format_spread([None])
    ('55.00 ± 7.07', '50.00', '1 of 2 seeds', '–')
    >>> format_spread([4000.0, 6000.0], measured=True)
    '5,000 ± 1,414'
    """
    spread = compute_seed_spread(values)
    if 0 < spread["seeds"] < len(values):
        return f"{spread['seeds']} of {len(values)} seeds"
    numbers = [n for n in (spread["value"], spread["deviation"]) if n is not None]
    return " ± ".join(score_text(number, measured=measured) for number in numbers or [None])


@dataclass(frozen=True, kw_only=True)
class Mean:
    """A mean over columns (or types): `there` of `wanted` had a score; `value` is None if none had."""

    over: str
    value: float | None
    there: int
    wanted: int

    @property
    def complete(self) -> bool:
        """Whether every column had a score; an incomplete mean is never ranked."""
        return 0 < self.there == self.wanted

    @classmethod
    def compute_mean(cls, over: str, values: Sequence[float | None]) -> Mean:
        """The mean of the values that are not None."""
        scores = [value for value in values if value is not None]
        value = sum(scores) / len(scores) if scores else None
        return cls(over=over, value=value, there=len(scores), wanted=len(values))

    @property
    def whole(self) -> float | None:
        """The value if every column had a score, else None."""
        return self.value if self.complete else None


MAIN_SCORE = "main_score"
"""The raw metric that mteb and our own sources make the main score of."""

LARGE, LARGE_CORRELATION = 385, 1537
"""The fewest scored examples of a large task: its 95 % interval is at most ± 5 points for every model.

The standard error of a share (accuracy, nDCG, average precision, ...) is at most 1 / (2 * sqrt(n)), that of a
correlation at most 1 / sqrt(n), so that 1.96 of them are 0.05 from these numbers on.
"""

CORRELATIONS = ("spearman", "pearson", "mcc", "matthews")


@dataclass(frozen=True, kw_only=True)
class Spread:
    """How many examples a score is over, and half of its 95 % interval; None where nothing tells it.

    >>> Spread(examples=150, half=0.0523).text, Spread(examples=1).text
    ('150 examples (± 5.2)', '1 example')
    """

    examples: int
    half: float | None = None

    @property
    def text(self) -> str:
        """The number of examples, and the interval times 100."""
        count = f"{self.examples:,} example{'' if self.examples == 1 else 's'}"
        return count if self.half is None else f"{count} (± {100 * self.half:.1f})"

    @staticmethod
    def average(spreads: Sequence[Spread]) -> Spread:
        """That of the mean of scores over examples of their own, whose errors are independent.

        >>> Spread.average([Spread(examples=9, half=0.3), Spread(examples=7, half=0.4)])
        Spread(examples=16, half=0.25)
        """
        halves = [one.half for one in spreads if one.half is not None]
        half = math.hypot(*halves) / len(spreads) if halves and len(halves) == len(spreads) else None
        return Spread(examples=sum(one.examples for one in spreads), half=half)


def list_small_columns(suite: Suite) -> dict[str, Spread]:
    """The columns of own data with few examples, each with their number."""
    columns = suite.columns if suite.averages == "large" else ()
    small = {column.name: _count_few_examples(column) for column in columns}
    return {name: Spread(examples=count) for name, count in small.items() if count is not None}


def list_exclusions(suite: Suite, spreads: Mapping[str, Spread] = MappingProxyType({})) -> dict[str, str]:
    """The columns of a suite that are shown and not averaged, each with the reason.

    Where a suite has tasks of both kinds, its means are over those of finished models; the tasks that a
    recipe trains for have a mean of their own (`TrainedResult`). Small tasks of own data are in no mean with
    large ones; where there are only small ones, the means are over these.

    Args:
        suite: The suite, narrowed to what was asked for.
        spreads: What is known of the intervals of small columns.
    """
    columns = [column for column in suite.columns if column.tasks]
    trained = [column for column in columns if any(task.output == "label" for task in column.tasks)]
    mixed = len(trained) < len(columns)
    exclusions = {column.name: column.shown_only for column in suite.columns if column.shown_only}
    exclusions |= {column.name: "a recipe trains for it" for column in trained if mixed}
    small = list_small_columns(suite)
    if any(column.name not in {*small, *exclusions} for column in columns):
        reasons = {
            column.name: f"{spreads.get(column.name, small[column.name]).text}, fewer than {needed:,}"
            for column in columns
            if column.name in small
            for needed in [_count_needed_examples(column.tasks[0])]
        }
        exclusions = {**reasons, **exclusions}
    return exclusions


def is_selection_column(column: Column, model: Lineage | None) -> bool:
    """Whether the score of a column, or of one of its several tasks, chose a model or one of its parents."""
    return model is not None and any(
        model.chosen_by(task.name, task.splits, task.subsets) for task in column.tasks
    )


SELECTED = "models were chosen by it"
"""The reason why a column by which models were chosen is outside of the means over the others."""


@dataclass(frozen=True, kw_only=True)
class Untouched:
    """A suite whose means leave out the columns that chose a model, where scores err upward.

    Attributes:
        suite: The suite with those columns shown only, as `Aggregates.aggregate_scores` and
            `TrainedResult.build_trained_result` take it.
        selected: The names of those columns, all of which are in the means of the whole suite.
        count: The number of the other columns in its means; 0 if every column chose.
    """

    suite: Suite
    selected: tuple[str, ...]
    count: int

    @staticmethod
    def from_suite(suite: Suite, models: Iterable[Lineage | None]) -> Untouched | None:
        """The untouched part of a suite; None where no mean of it has a column that chose one of the models.

        For the rows of one table, `models` are all of its models, so that all means are over the same
        columns.

        >>> from harness.core.keys import Lineage
        >>> from harness.core.types import Column, Data, Suite, Task
        >>> def column(name: str) -> Column:
        ...     task = Task(name=name, type="t", metric="m", splits=(), data=Data(), source=None)
        ...     return Column(name=name, type="t", tasks=(task,))
        >>> def model(*tasks: str) -> Lineage:
        ...     return Lineage(recipe="r", settings={}, parents=(), data=(), seed=1, selected_on=tasks)
        >>> suite = Suite(name="s", title="S", columns=tuple(map(column, "abc")))
        >>> untouched = Untouched.from_suite(suite, [model("b"), model("elsewhere"), None])
        >>> untouched.selected, untouched.text, Untouched.from_suite(suite, [model("elsewhere")])
        (('b',), 'over the 2 untouched', None)
        >>> Aggregates.aggregate_scores(untouched.suite, {"a": 0.5, "b": 0.9, "c": 0.25}).over_tasks.value
        0.375
        """
        apart, lineages = list_exclusions(suite), list(filter(None, models))
        averaged = [column for column in suite.columns if column.name not in apart]
        selected = [c.name for c in averaged if any(is_selection_column(c, one) for one in lineages)]
        if not selected:
            return None
        # What was outside stays there: without the large columns, the small ones would else be averaged.
        reasons = {**apart, **dict.fromkeys(selected, SELECTED)}
        columns = [replace(c, shown_only=reasons.get(c.name, "")) for c in suite.columns]
        return Untouched(
            suite=replace(suite, columns=tuple(columns)),
            selected=tuple(selected),
            count=len(averaged) - len(selected),
        )

    @property
    def text(self) -> str:
        """What its means are over, in words that follow "mean"."""
        return f"over the {self.count} untouched" if self.count else "over none: every column chose a model"


def _count_few_examples(column: Column) -> int | None:
    """The number of a column's examples; None for a large column, and where it is not known."""
    for task in column.tasks:
        if task.size.examples is not None and task.size.examples < _count_needed_examples(task):
            return task.size.examples
    return None


def _count_needed_examples(task: Task) -> int:
    """The fewest examples of a large task with this metric."""
    return LARGE_CORRELATION if any(name in task.metric for name in CORRELATIONS) else LARGE


@dataclass(frozen=True, kw_only=True)
class Aggregates:
    """The columns of a suite and its two means; `list_exclusions` are columns outside of the means.

    `spreads` are those of small columns, and `spread` is that of a mean over such columns alone.
    """

    columns: Mapping[str, float | None]
    by_type: Mapping[str, Mean]
    over_tasks: Mean
    over_types: Mean
    shown_only: Mapping[str, str] = field(default_factory=dict)
    spreads: Mapping[str, Spread] = field(default_factory=dict)
    spread: Spread | None = None

    @staticmethod
    def aggregate_scores(
        suite: Suite, scores: Mapping[str, float], spreads: Mapping[str, Spread] = MappingProxyType({})
    ) -> Aggregates:
        """The two means of a suite from the main scores of its tasks, and those of parts of them by column.

        A column of several tasks (CQADupstack) is their mean and counts once; it has a score only if all of
        them have. The mean over types is the mean of the types' means, and a type counts only if all its
        columns have scores.

        Args:
            suite: The suite.
            scores: By task, and by column where it shows a part of a task.
            spreads: By column, what is known of the intervals of small columns.
        """
        parts = suite.parts
        columns = {
            column.name: scores.get(column.name)
            if column.name in parts
            else Mean.compute_mean(column.name, [scores.get(task.name) for task in column.tasks]).whole
            for column in suite.columns
        }
        apart = list_exclusions(suite, spreads)
        averaged = [column for column in suite.columns if column.name not in apart]
        small = {name: spreads.get(name, one) for name, one in list_small_columns(suite).items()}
        few = [small[column.name] for column in averaged if column.name in small]
        types = dict.fromkeys(column.type for column in averaged)
        by_type = {
            kind: Mean.compute_mean(kind, [columns[c.name] for c in averaged if c.type == kind])
            for kind in types
        }
        complete = [one.whole for one in by_type.values()]
        return Aggregates(
            columns=columns,
            by_type=by_type,
            over_tasks=Mean.compute_mean("tasks", [columns[column.name] for column in averaged]),
            over_types=Mean.compute_mean("types", complete),
            shown_only=apart,
            spreads=small,
            spread=Spread.average(few) if few else None,
        )


def compute_part_scores(suite: Suite, records: Mapping[str, Record]) -> dict[str, float]:
    """The scores of the columns that show a part of a task, from records by task, or by column."""
    return _collect_metric_scores(suite.parts, records, MAIN_SCORE)


def compute_metric_scores(suite: Suite, records: Mapping[str, Record], metric: str) -> dict[str, float]:
    """A raw metric of a suite's tasks, and of the columns that show a part of one; a mean over subsets.

    Args:
        suite: The suite.
        records: Records by the names of tasks; a record of a part alone may be under its column's name.
        metric: The name of the metric.
    """
    tasks = {task.name: task for task in suite.tasks}
    return _collect_metric_scores({**tasks, **suite.parts}, records, metric)


def _collect_metric_scores(
    tasks: Mapping[str, Task], records: Mapping[str, Record], metric: str
) -> dict[str, float]:
    task_records = {name: records.get(name) or records.get(task.name) for name, task in tasks.items()}
    scores = {
        name: _compute_scope_score(one, tasks[name], metric)
        for name, one in task_records.items()
        if one is not None
    }
    return {name: value for name, value in scores.items() if value is not None}


def _compute_scope_score(record: Record, task: Task, metric: str) -> float | None:
    """The mean of a raw metric over the splits and subsets of a task; None unless all are in the record."""
    cell_values = [record.scores.get(split, {}).get(subset, {}).get(metric) for split, subset in task.cells]
    values = [float(value) for value in cell_values if isinstance(value, int | float)]
    return fmean(values) if values and len(values) == len(cell_values) else None


def collect_raw_metrics(record: Record) -> Raw:
    """The raw metrics of a record, a mean over subsets where there are several."""
    means: dict[tuple[str, str], float] = {}
    for split, subsets in record.scores.items():
        for name in dict.fromkeys(name for metrics in subsets.values() for name in metrics):
            values = [m[name] for m in subsets.values() if isinstance(m.get(name), int | float)]
            if values:
                means[split, name] = sum(values) / len(values)
    return means


Files = Callable[[Record], "Path | None"]
"""A function that gives the path of a record's per-example file, None without one."""


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """The result of a model on one task.

    Attributes:
        task: The name of the task.
        record: The record; None where the task was not measured.
        number: The number by the convention; None unless every part of it is there.
        interval: The 95 % interval over seeds and examples; None without stored predictions.
        one_seed: The same with one seed a replicate, which comes closest to OptiBERT's intervals.
        raw: Every raw metric of the record.
        asked: Whether the narrowed suite has the task.
        scores: The number of each seed that counts; empty without stored predictions.
        deviation: The standard deviation over the seeds that count; None for a single seed.
        best_run: The highest number among all runs of the grid.
        last: The number of the last evaluations, where the score is that of the best; else None.
        cross_fitted: The same, of evaluations that are chosen on one half of the set and scored on the other.
        with_diverged: The number with diverged seeds as constant predictions; None without such seeds.
    """

    task: str
    record: Record | None = None
    number: float | None = None
    interval: Interval | None = None
    one_seed: Interval | None = None
    raw: Raw
    asked: bool = True
    scores: tuple[float, ...] = ()
    deviation: float | None = None
    best_run: float | None = None
    last: float | None = None
    cross_fitted: float | None = None
    with_diverged: float | None = None

    @property
    def best_counts(self) -> bool:
        """Whether the score is that of the best evaluation of each run."""
        return bool(self.get_training_field("evaluation", {}).get("counts") == "best")

    def get_training_field(self, name: str, default: Any = None) -> Any:
        """A field of the record's training."""
        return default if self.record is None else self.record.training.get(name, default)

    @property
    def seeds(self) -> Mapping[str, Any]:
        """The seeds that count, with their kind and their scores."""
        return dict(self.get_training_field("seeds", {}))


@dataclass(frozen=True, kw_only=True)
class TrainedResult:
    """A model's result on a suite under one recipe.

    Attributes:
        rows: The tasks in the suite's order.
        convention: The convention of the numbers; None for the mean of all raw metrics.
        average: The plain mean over tasks.
        interval: The 95 % interval of that mean over independent tasks; None unless each has one.
        mean_of_bounds: The means of the tasks' bounds, which OptiBERT prints as the average's interval.
        last: The average of the last evaluations, where the scores of some tasks are those of the best.
        cross_fitted: The same, of cross-fitted evaluations.
        shown_only: The tasks outside of the average, each with the reason.
        spread: The examples of an average over tasks with few examples alone.
    """

    rows: tuple[TaskResult, ...]
    convention: Convention | None
    average: Mean
    interval: Interval | None = None
    mean_of_bounds: Interval | None = None
    last: Mean | None = None
    cross_fitted: Mean | None = None
    shown_only: Mapping[str, str] = field(default_factory=dict)
    spread: Spread | None = None

    @staticmethod
    def build_trained_result(
        suite: Suite, records: Mapping[str, Record], convention: Convention | None, files: Files
    ) -> TrainedResult:
        """The trained result from records.

        Args:
            suite: The suite.
            records: Records by the names of their tasks.
            convention: The convention of the numbers; None for the mean of all raw metrics.
            files: Finds the per-example file of a record.
        """
        from harness.results import bootstrap

        rows, drawn, apart = [], {}, list_exclusions(suite)
        for column in suite.columns:
            for task in column.tasks or (None,):
                nothing = TaskResult(task=column.name, raw={}, asked=False)
                row, replicates = (
                    _build_task_result(task, records, convention, files) if task else (nothing, None)
                )
                rows.append(row)
                if replicates is not None:
                    drawn[row.task] = replicates
        averaged = [row for row in rows if row.task not in apart]
        numbers = {row.task: row.number for row in averaged if row.number is not None}
        drawn = {task: replicates for task, replicates in drawn.items() if task not in apart}
        bounds = [row.interval for row in averaged if row.interval is not None]
        # An average over all tasks with the interval of some would look surer than it is.
        has_intervals = bool(numbers) and drawn.keys() == numbers.keys()
        small = list_small_columns(suite)
        few = [small[row.task] for row in averaged if row.task in small]
        return TrainedResult(
            rows=tuple(rows),
            convention=convention,
            average=Mean.compute_mean("tasks", [row.number for row in averaged]),
            interval=bootstrap.Interval.estimate_average(numbers, drawn) if has_intervals else None,
            mean_of_bounds=bootstrap.Interval.mean_of_bounds(bounds) if has_intervals else None,
            last=_mean_of_other("last", averaged),
            cross_fitted=_mean_of_other("cross_fitted", averaged),
            shown_only=apart,
            spread=Spread.average(few) if few else None,
        )

    @staticmethod
    def select_label_columns(suite: Suite) -> Suite | None:
        """The columns that a model is trained for, None without any; empty columns stay, as incomplete."""
        others = {c.name for c in suite.columns if any(task.output != "label" for task in c.tasks)}
        if not any(task.output == "label" for task in suite.tasks):
            return None
        return replace(suite, columns=tuple(c for c in suite.columns if c.name not in others))


def _mean_of_other(name: str, rows: Sequence[TaskResult]) -> Mean | None:
    """The average with `last` or `cross_fitted` in place of the best evaluation, where that counts."""
    if not any(row.best_counts for row in rows):
        return None
    return Mean.compute_mean("tasks", [getattr(row, name) if row.best_counts else row.number for row in rows])


def _build_task_result(
    task: Task, records: Mapping[str, Record], convention: Convention | None, files: Files
) -> tuple[TaskResult, Floats | None]:
    record = records.get(task.name)
    if record is None:
        return TaskResult(task=task.name, raw={}), None
    raw = collect_raw_metrics(record)
    number = record.main_score if convention is None else convention.compute_task_number(task.name, raw)
    parts = tuple(raw) if convention is None else convention.parts[task.name]
    runs = [_mean_of_parts(cell["metrics"], parts) for cell in record.training.get("cells", ())]
    best = max((run for run in runs if run is not None), default=None)
    row = TaskResult(task=task.name, record=record, number=number, raw=raw, best_run=best)
    evaluation = row.get_training_field("evaluation", {}) if row.best_counts else {}
    row = replace(
        row,
        last=_mean_of_parts((evaluation.get("last") or {}).get("metrics"), parts),
        cross_fitted=_mean_of_parts((evaluation.get("cross_fitted") or {}).get("metrics"), parts),
        with_diverged=_mean_of_parts(row.get_training_field("with_diverged"), parts),
    )
    path = files(record)
    if number is None or path is None:
        return row, None
    return _add_interval(row, number, path, parts)


def _mean_of_parts(metrics: Sequence[Sequence[Any]] | None, parts: Sequence[tuple[str, str]]) -> float | None:
    """The mean of some metrics of [split, name, value]; None where one of them is missing."""
    values = {(split, name): float(value) for split, name, value in metrics or ()}
    if not all(part in values for part in parts):
        return None
    return sum(values[part] for part in parts) / len(parts)


def _add_interval(
    row: TaskResult, number: float, path: Path, parts: Sequence[tuple[str, str]]
) -> tuple[TaskResult, Floats | None]:
    import numpy as np

    from harness.results import bootstrap

    sets = bootstrap.Predictions.read_file(path)
    splits, metrics = (list(dict.fromkeys(part[at] for part in parts)) for at in (0, 1))
    if not all(split in sets for split in splits):
        return row, None
    used = [sets[split] for split in splits]
    scores = bootstrap.Predictions.compute_seed_scores(used, metrics)
    deviation = float(np.std(scores, ddof=1)) if len(scores) > 1 else None
    # A task's draws depend on its name alone, not on the tasks beside it; hash() differs between processes.
    rng = np.random.default_rng([SEED, zlib.crc32(row.task.encode())])
    drawn = bootstrap.Predictions.draw_replicates(used, metrics, rng=rng)
    result = replace(
        row,
        interval=bootstrap.Interval.from_replicates(number, drawn["all"]),
        one_seed=bootstrap.Interval.from_replicates(number, drawn["one"]),
        scores=tuple(map(float, scores)),
        deviation=deviation,
    )
    return result, drawn["all"]


@dataclass(frozen=True, kw_only=True)
class NamedModel:
    """A model's name, with what tells it from another model of the same name.

    Attributes:
        name: Fit for a table.
        key: What is the same for one model alone: its ArtifactKey, or of a training the group of its seeds.
        folder: The end of its folder's path; empty where that is not known.
        revision: The pinned commit of a hub model.
        shared: Whether any model may have the name, as that of a folder, and not only this one.
    """

    name: str
    key: str
    folder: str = ""
    revision: str = ""
    shared: bool = True

    @staticmethod
    def from_fields(
        name: str, source: str, artifact: str, *, folder: str | None, revision: str | None, group: str | None
    ) -> NamedModel:
        """The model of a record by the record's fields; `group` is that of the seeds of its training."""
        return NamedModel(
            name=name,
            key=group or artifact,
            folder=folder or "",
            revision=revision or "",
            shared=source == "local" or group is not None,
        )

    @property
    def labels(self) -> list[str]:
        """The names that may tell it from others, the best first.

        >>> NamedModel(name="final", key="0123456789", folder="runs/exp1/final").labels
        ['exp1/final', 'runs/exp1/final', 'final (01234567)', 'final (0123456789)']
        """
        parts = self.folder.split("/")
        # A model that was given a name is not called by its path.
        ends = range(len(parts) - 2, -1, -1) if parts[-1] == self.name else range(0)
        revisions = [f"{self.name}@{self.revision[:8]}"] if self.revision else []
        paths = ["/".join(parts[end:]) for end in ends]
        return [*paths, *revisions, f"{self.name} ({self.key[:8]})", f"{self.name} ({self.key})"]


def distinguish_names(models: Iterable[NamedModel]) -> dict[tuple[str, str], str]:
    """A name for each model by its key and its present name, which no other of the models has.

    Of models with one name a folder gets as much of its path as tells it from the others, a hub model its
    revision, and any other the start of its key. A name that is one model's own, as in the catalog, stays.
    """
    # Of several records of a model the newest that knows its folder counts.
    known = {(one.key, one.name): one for one in sorted(models, key=lambda one: bool(one.folder))}
    names: dict[str, list[NamedModel]] = {}
    for model in known.values():
        names.setdefault(model.name, []).append(model)
    labels = {place: model.name for place, model in known.items()}
    for name, alike in names.items():
        if len(alike) == 1:
            continue
        owners = [model for model in alike if not model.shared]
        counts = Counter(label for model in alike for label in model.labels)
        for model in alike:
            if [model] != owners:
                free = (one for one in model.labels if counts[one] == 1 and one not in names)
                labels[model.key, name] = next(free, name)
    return labels


def rename_record(record: Record, name: str) -> Record:
    """The record with another name of its model."""
    if record.model.name == name:
        return record
    return record.model_copy(update={"model": record.model.model_copy(update={"name": name})})
