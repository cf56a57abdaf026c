"""What has been measured of models, as rows: for `--json`, and as tables in Python and notebooks."""

from __future__ import annotations

import html
import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.core import files
from harness.core.errors import UsageError, explain_unknown
from harness.core.types import Purpose, Suite, SuiteOptions
from harness.driver.report.suite import (
    is_approximate,
    is_selection_score,
    serialize_aggregates,
    serialize_choice_columns,
    serialize_held_out_mean,
    serialize_selection,
)
from harness.driver.report.trained import serialize_trained_result
from harness.plan import catalog
from harness.results.index import RecordIndex, distinguish_models
from harness.results.record_units import measure_spreads
from harness.results.results import (
    MeasuredSuite,
    RecipeCondition,
    build_suite_views,
    describe_record,
    drop_reference_records,
    open_stores,
    serialize_condition,
)
from harness.results.scores import Aggregates, Spread, TrainedResult, compute_metric_scores
from harness.storage.record import Record

_SHOWN = 20
"""The most rows that a table shows of itself."""


class ResultTable(list[dict[str, Any]]):
    """Rows of results: a list of dictionaries with the same keys, which pandas and polars can take."""

    def __init__(self, rows: Iterable[Mapping[str, Any]], shown: Sequence[str] = ()) -> None:
        """A table of `rows`; `shown` are the columns that it shows of itself, all by default."""
        super().__init__(map(dict, rows))
        self._shown = [*shown] or list(self[0] if self else ())

    def to_pandas(self) -> Any:
        """The rows as a pandas.DataFrame."""
        return _import_library("pandas").DataFrame(self)

    def to_polars(self) -> Any:
        """The rows as a polars.DataFrame; columns of dictionaries or lists are JSON's own types."""
        return _import_library("polars").DataFrame(self, infer_schema_length=None)

    def __repr__(self) -> str:
        lines = [self._shown, *self._list_cells()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        return "\n".join([*text, *self._describe_rest()])

    def _repr_html_(self) -> str:
        head, *body = (
            "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in line)
            for tag, line in [("th", self._shown), *(("td", cells) for cells in self._list_cells())]
        )
        rows = "".join(f"<tr>{line}</tr>" for line in body)
        rest = "".join(f"<p>{line}</p>" for line in self._describe_rest())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{rest}"

    def _list_cells(self) -> list[list[str]]:
        return [[_format_value(row.get(name)) for name in self._shown] for row in self[:_SHOWN]]

    def _describe_rest(self) -> list[str]:
        more = len(self) - _SHOWN
        return [f"… {more:,} more rows"] if more > 0 else []


def _format_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return "" if value is None else str(value)


def _import_library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(f"{name} is not installed.", hint=f"Type: python -m pip install {name}") from error


class _SuiteScores(ResultTable):
    """The scores of models on suites, a row for each task; `means` has a row for each suite."""

    means: ResultTable


def list_records(
    model: str | None = None,
    *,
    reference: bool = False,
    results: Path | None = None,
    cache: Path | None = None,
) -> ResultTable:
    """The records of a model, of each seed of its training; of all models the main facts alone.

    Args:
        model: A name, six or more digits of an artifact key, or a folder; None for all models.
        reference: Whether the scores that came with the project are there, too.
        results: The results folder, None for the default.
        cache: The cache folder, None for the default.

    Raises:
        UsageError: Nothing is recorded of the model.
    """
    shown = ("model", "task", "type", "metric", "main_score", "settings")
    if model is None:
        return ResultTable(list_index_rows(results, cache), ("model", "task", "metric", "main_score"))
    suites = _load_models(model, reference, results, cache)
    return ResultTable(
        [
            {**_name_row(one), "type": record.task.type, "metric": record.task.metric, **row}
            for one in suites
            for record, row in zip(sort_records(one.records), list_record_rows(one), strict=True)
        ],
        shown,
    )


def list_scores(
    model: str | Sequence[str],
    suite: str | Sequence[str],
    *,
    view: str = "",
    reference: bool = False,
    results: Path | None = None,
    cache: Path | None = None,
) -> _SuiteScores:
    """The scores of models on suites, for each condition under which they were measured.

    Args:
        model: A name, six or more digits of an artifact key, or a folder; or several.
        suite: A suite's name, or `name:argument`; or several.
        view: The paper whose convention combines raw metrics; empty for the recipe's own.
        reference: Whether the scores that came with the project count, too.
        results: The results folder, None for the default.
        cache: The cache folder, None for the default.

    Raises:
        UsageError: Nothing is recorded of a model, or there is no such suite.
    """
    names = [suite] if isinstance(suite, str) else suite
    options = SuiteOptions(cache=files.resolve_cache_folder(cache), results=results)
    opened = catalog.join_single_tasks(catalog.open_suites(names, options))
    rows, means = [], []
    for text in [model] if isinstance(model, str) else model:
        for measured in _load_models(text, reference, results, cache):
            for part, seen, stands in list_suite_results(measured, opened, view, results):
                row = serialize_suite_result(measured, part, seen, stands, (), (results, cache))
                about = {**_name_row(measured), "suite": part.name, "settings": seen.text if seen else None}
                types = {column.name: column.type for column in part.columns}
                for task, score in row["columns"].items():
                    facts = {"type": types[task], "score": score, "selected": task in row["selected"]}
                    rows.append({**about, "task": task, **facts})
                over = {name: row[name] for name in ("mean_over_tasks", "mean_over_types")}
                counts = {name: over["mean_over_tasks"][name] for name in ("there", "wanted")}
                means.append({**about, **{name: mean["value"] for name, mean in over.items()}, **counts})
    table = _SuiteScores(rows, ("model", "suite", "task", "type", "score", "settings"))
    table.means = ResultTable(
        means, ("model", "suite", "mean_over_tasks", "mean_over_types", "there", "wanted")
    )
    return table


def _load_models(
    model: str, reference: bool, results: Path | None, cache: Path | None
) -> tuple[MeasuredSuite, ...]:
    seeds = MeasuredSuite.load_seeds(model, results, cache)
    return seeds if reference else drop_reference_records(model, seeds, results)


def _name_row(measured: MeasuredSuite) -> dict[str, Any]:
    about, lineage = measured.records[0].model, measured.lineage
    return {"model": about.name, "artifact": about.artifact, "seed": lineage.seed if lineage else None}


def list_index_rows(
    results: Path | None, cache: Path | None, *, purpose: Purpose = "final", match: str = ""
) -> list[dict[str, Any]]:
    """A row for each record of a purpose in a results folder, with one name for each model.

    `match` is a part of that name, of the name that a record has, or of its task, in any case.
    """
    index = RecordIndex(files.resolve_results_folder(results), files.resolve_cache_folder(cache))
    labels = distinguish_models(index.list_models(purpose=purpose))
    rows = index.list_rows(purpose=purpose)
    names = {row.model.artifact: labels[row.model] for row in rows}
    return [
        {
            "model": names[row.model.artifact],
            "artifact": row.model.artifact,
            "task": row.task,
            "metric": row.metric,
            "main_score": row.main_score,
            "key": row.key,
        }
        for row in rows
        if any(match.lower() in one.lower() for one in (names[row.model.artifact], row.model.name, row.task))
    ]


def sort_records(records: Iterable[Record]) -> list[Record]:
    """Records by task, then by the longest input."""
    return sorted(records, key=lambda r: (r.task.name, r.identity.get("encoding", {}).get("max_length") or 0))


def list_record_rows(measured: MeasuredSuite) -> list[dict[str, Any]]:
    """The records of a model as plain values, by task, then by the longest input."""
    return [
        {
            "task": r.task.name,
            "main_score": r.main_score,
            "key": r.key,
            "settings": describe_record(r),
            "data": r.identity["data"],
            "reference": r.key in measured.reference,
            "former": measured.is_former(r),
            "selected": is_selection_score(r, measured.lineage),
            "approximate": is_approximate(r),
        }
        for r in sort_records(measured.records)
    ]


def list_suite_results(
    measured: MeasuredSuite, suites: Sequence[Suite], view: str, results: Path | None
) -> list[tuple[Suite, Any, Any]]:
    """Each suite with its view under a condition, or None, and with its TrainedResult, or None."""
    nothing: list[Any] = [None]
    return [
        (suite, seen, _build_trained_result(suite, seen, view, results))
        for suite in suites
        for seen in build_suite_views(measured.records, suite) or nothing
    ]


def serialize_suite_result(
    measured: MeasuredSuite,
    suite: Suite,
    seen: Any,
    stands: Any,
    metrics: Sequence[str],
    places: tuple[Path | None, Path | None],
) -> dict[str, Any]:
    """A suite under a condition as plain values, with raw metrics; `places` are results folder and cache."""
    lineage, scores = measured.lineage, _collect_suite_scores(seen, stands)
    spreads = measure_view_spreads(suite, seen, *places)
    return {
        "suite": suite.name,
        "settings": serialize_condition(seen.treatment) if seen else None,
        "former_weights": seen.former or None if seen else None,
        "unproven_data": list(seen.unproven) if seen else [],
        **serialize_aggregates(suite, Aggregates.aggregate_scores(suite, scores, spreads)),
        **serialize_choice_columns(suite, lineage),
        **serialize_held_out_mean(suite, lineage, [scores]),
        **({"standing": serialize_trained_result(stands)} if stands else {}),
        **({"metrics": _serialize_metric_means(suite, seen, metrics)} if metrics else {}),
    }


def compute_view_means(suite: Suite, view: Any, spreads: Mapping[str, Spread] | None = None) -> Aggregates:
    """The columns and means of a suite in a view; none of a view that is None."""
    return Aggregates.aggregate_scores(suite, collect_view_scores(view), spreads or {})


def measure_view_spreads(
    suite: Suite, view: Any, results: Path | None, cache: Path | None
) -> dict[str, Spread]:
    """The intervals of the small columns of a suite, by column."""
    records = view.records if view else {}
    return measure_spreads(suite, records, open_stores(results), files.resolve_cache_folder(cache))


def collect_view_scores(view: Any) -> dict[str, float]:
    """The scores of a view; none of a view that is None."""
    return dict(view.scores) if view else {}


def serialize_model(measured: MeasuredSuite) -> dict[str, Any]:
    """A model and what chose it, as plain values."""
    return {**measured.records[0].model.model_dump(), **serialize_selection(measured.lineage)}


def compute_metric_means(suite: Suite, seen: Any, metrics: Sequence[str]) -> dict[str, Aggregates]:
    """The columns and means of a suite by each of these raw metrics."""
    records = seen.records if seen else {}
    return {
        name: Aggregates.aggregate_scores(suite, compute_metric_scores(suite, records, name))
        for name in metrics
    }


def _serialize_metric_means(suite: Suite, seen: Any, metrics: Sequence[str]) -> dict[str, Any]:
    return {
        name: {"columns": dict(found.columns), "mean_over_tasks": asdict(found.over_tasks)}
        for name, found in compute_metric_means(suite, seen, metrics).items()
    }


def _collect_suite_scores(seen: Any, stands: Any) -> dict[str, float]:
    """The task scores that enter a suite's mean."""
    if stands is None:
        return collect_view_scores(seen)
    return {row.task: row.number for row in stands.rows if row.number is not None}


def _build_trained_result(suite: Any, seen: Any, view: str, results: Path | None) -> Any:
    """The TrainedResult of a suite that models are trained for, by a paper's convention; else None."""
    if view and view not in suite.conventions:
        if not suite.conventions:
            raise UsageError(
                f"{suite.name} has no views: no paper has a table of it.", hint="Leave out --view."
            )
        then = f"`harness show MODEL --suite {suite.name}` takes the recipe's own."
        raise explain_unknown(f"view of {suite.name}", view, suite.conventions, then=then)
    part = TrainedResult.select_label_columns(suite)
    if part is None or seen is None or not isinstance(seen.treatment, RecipeCondition):
        return None
    # All records of one condition come from one recipe: the first has its view.
    default_view = next(iter(seen.records.values())).training.get("view", "")
    stores = open_stores(results)

    def find_examples_file(record: Any) -> Path | None:
        places = (store.find_part_file(record, f"model-{record.model.artifact[:12]}") for store in stores)
        return next((place for place in places if place is not None and place.exists()), None)

    return TrainedResult.build_trained_result(
        part, seen.records, suite.conventions.get(view or default_view), find_examples_file
    )
