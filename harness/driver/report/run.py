"""The report of a run: tables for people, JSON for machines (docs/json.md), and each failure once."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.core.keys import Lineage
from harness.core.terminal import create_table, print_lines, print_table, shorten_names
from harness.core.types import OWN_UNITS, Column, Convention, Suite, Task
from harness.data.locate import DataMissing, format_size
from harness.driver.execute import Result
from harness.driver.report.suite import (
    CHOSE,
    format_held_out_mean,
    format_mean_lines,
    format_recall_lines,
    format_seed_lineages,
    format_seed_means,
    is_approximate,
    serialize_aggregates,
    serialize_choice_columns,
    serialize_held_out_mean,
    serialize_seed_means,
)
from harness.driver.report.trained import print_trained_result, serialize_trained_result
from harness.executors.executor import Failure
from harness.executors.run_log import DeviceUse, format_device_uses
from harness.jobs.jobs import read_model_lineage
from harness.plan.catalog import join_single_tasks
from harness.plan.plan import ConfiguredModel
from harness.plan.request import PreparedRun
from harness.results.cost.duration import format_duration
from harness.results.scores import (
    Aggregates,
    Spread,
    TrainedResult,
    collect_raw_metrics,
    compute_part_scores,
    format_spread,
    is_selection_column,
    list_small_columns,
)
from harness.storage.record import APPROXIMATE, Record, collect_notes

LABELS = {
    "cached": "was there",
    "done": "new",
    "shared": "another process",
    "failed": "FAILED",
    "impossible": "cannot run",
    "stopped": "not run",
}


def _serialize_length(report: Report, model: ConfiguredModel) -> dict[str, Any]:
    """The length of a model in a run at several lengths."""
    return {"max_length": model.text_length} if report.prepared.request.lengths else {}


def _serialize_training(report: Report, model: ConfiguredModel) -> dict[str, Any]:
    lineage, folder = report.find_lineage(model), model.artifact.folder
    assert lineage is not None
    return {
        "name": report.prepared.format_model_name(model),
        "artifact": model.artifact.key,
        "folder": str(folder) if folder.is_dir() else None,
        "lineage": lineage.model_dump(mode="json"),
    }


def _serialize_seed_group(report: Report, group: Sequence[ConfiguredModel], suite: Suite) -> dict[str, Any]:
    return {
        "suite": suite.name,
        "model": group[0].artifact.name,
        "artifacts": [one.artifact.key for one in group],
        **_serialize_length(report, group[0]),
        **serialize_seed_means([report.compute_aggregates(one, suite) for one in group]),
        **serialize_choice_columns(suite, report.find_lineage(group[0])),
        **serialize_held_out_mean(
            suite, report.find_lineage(group[0]), [report.collect_numbers(one, suite) for one in group]
        ),
    }


def _serialize_suite(report: Report, model: ConfiguredModel, suite: Suite) -> dict[str, Any]:
    suite_aggregates = report.compute_aggregates(model, suite)
    standing = report.compute_trained_result(model, suite)
    return {
        "suite": suite.name,
        "model": model.artifact.name,
        "artifact": model.artifact.key,
        **_serialize_length(report, model),
        **serialize_aggregates(suite, suite_aggregates),
        **serialize_choice_columns(suite, report.find_lineage(model)),
        **serialize_held_out_mean(suite, report.find_lineage(model), [report.collect_numbers(model, suite)]),
        **({"standing": serialize_trained_result(standing)} if standing else {}),
    }


def _print_trained_results(suite: Suite, report: Report, console: Console) -> None:
    recipe = report.prepared.recipe
    for model in report.list_suite_models(suite):
        result = report.compute_trained_result(model, suite)
        if result is not None and recipe is not None:
            title = f"{report.prepared.format_model_label(model)} on {suite.heading}, {recipe.name}"
            print_trained_result(result, title, console)


def _build_report_table(suite: Suite, report: Report) -> Table:
    """The table of a suite: a row for each task, a column for each model, or for its seeds together."""
    groups, lengths = report.list_suite_groups(suite), report.prepared.request.lengths
    names = {group[0].artifact.name for group in groups}
    # Of one model the lengths alone are columns.
    is_alone = lengths and len(names) == 1 and not report.prepared.list_own_settings(groups[0][0])
    alone = f" of {next(iter(names))}" if is_alone else ""
    table = create_table("task", "type", "metric", title=f"{suite.heading}, {suite.unit}{alone}")
    for group in groups:
        label = report.prepared.format_length(group[0]).removeprefix(", ") if alone else ""
        table.add_column(label or report.format_group_label(group), justify="right")
        table.add_column("", style="dim")
    for column in suite.columns:
        if not column.tasks:
            continue
        metric, cells = column.tasks[0].metric, list[str]()
        for group in groups:
            results = [
                report.find_result(one, task)
                for one in group
                for task in report.select_column_tasks(suite, column, one)
            ]
            scores = [report.compute_aggregates(one, suite).columns[column.name] for one in group]
            marks = [CHOSE] if is_selection_column(column, report.find_lineage(group[0])) else []
            marks += [APPROXIMATE] if any(is_approximate(result.record) for result in results) else []
            hows = [result.how for result in results]
            score = format_spread(scores, measured=metric in OWN_UNITS)
            cells += _format_origin_cells(score, hows, marks) if hows else ["", ""]
        table.add_row(column.name, column.type, metric, *cells)
    return table


def _format_origin_cells(score: str, hows: Sequence[str], marks: Sequence[str]) -> list[str]:
    """A column's score, and its origin with its marks."""
    finished_hows = [how for how in hows if how in ("cached", "done", "shared")]
    origin = LABELS["done"] if len(finished_hows) == len(hows) else f"{len(finished_hows)} of {len(hows)}"
    if len(set(hows)) == 1:
        origin = LABELS[hows[0]]
    return [score, ", ".join([origin, *marks])]


def _serialize_result(report: Report, result: Result) -> dict[str, Any]:
    cell, record = result.cell, result.record
    lineage = report.find_lineage(cell.subject)
    done = record is not None and record.status == "done"
    failure = result.failure
    return {
        "task": cell.task.name,
        "type": cell.task.type,
        "metric": cell.task.metric,
        "model": cell.subject.artifact.name,
        "artifact": cell.subject.artifact.key,
        **_serialize_length(report, cell.subject),
        "key": cell.key,
        "state": result.how,
        "purpose": cell.purpose,
        "limit": cell.task.limit,
        "main_score": record.main_score if record is not None and done else None,
        "selected": lineage is not None
        and bool(lineage.chosen_by(cell.task.name, cell.task.splits, cell.task.subsets)),
        "approximate": is_approximate(record),
        "notes": list(record.provenance.get("notes", ())) if record is not None else [],
        "error": None
        if failure is None
        else {"kind": failure.kind, "message": failure.message, "hint": failure.hint},
    }


def _describe_seeds(group: Sequence[ConfiguredModel]) -> str:
    """The seeds in which the models of a group differ: those of trainings, of contexts, or both."""
    trained = dict.fromkeys(str(one.lineage.seed) for one in group if one.lineage is not None)
    drawn = dict.fromkeys(str(one.context.seed) for one in group if one.context is not None)
    phrases = [f"seeds {', '.join(trained)}"] if len(trained) > 1 or len(drawn) < 2 else []
    return " and the ".join([*phrases, *([f"context seeds {', '.join(drawn)}"] if len(drawn) > 1 else [])])


def list_impossible_results(prepared: PreparedRun) -> list[Result]:
    """The scores without data, as results of a run that has not begun."""
    cells = [cell for cell in prepared.plan.cells if cell.problem is not None]
    return [
        Result(cell=c, how="impossible", failure=Failure.from_error(c.problem)) for c in cells if c.problem
    ]


def print_failures(results: Sequence[Result], prepared: PreparedRun, console: Console) -> None:
    """Print each reason once; tasks without data share one reason, whichever data set each lacks.

    Args:
        results: The results of a run; those without a failure are left out.
        prepared: The request, for the names of models and the hints.
        console: The console.
    """
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        if result.failure is not None:
            label = prepared.format_model_label(result.cell.subject)
            key = (label, result.failure.reason, result.failure.hint or "")
            is_lacking = isinstance(result.failure.fault, DataMissing)
            groups.setdefault(("", "no data", "") if is_lacking else key, []).append(result)
    for group in groups.values():
        label, message, hint = _describe(group, prepared)
        console.print(Text.assemble((f"{label}: ", "bold red"), message), soft_wrap=True)
        if hint:
            console.print(Text(f"  {hint}"), soft_wrap=True)
    stopped = sum(1 for r in results if r.how == "stopped")
    if stopped:
        late = prepared.request.budget is not None and not prepared.request.fail_fast
        why = "the budget was used up" if late else "--fail-fast stopped at the first failure"
        print_lines([f"{stopped} not run: {why}."], console)


def _describe(group: Sequence[Result], prepared: PreparedRun) -> tuple[str, str, str]:
    """The tasks of a group of failures, the message, and the hint."""
    failure = group[0].failure
    assert failure is not None
    tasks = list(dict.fromkeys(result.cell.task.name for result in group))
    hint = prepared.insert_suites(failure.hint or "")
    if isinstance(failure.fault, DataMissing):
        more = f" The same holds for {len(tasks) - 1} more." if len(tasks) > 1 else ""
        return shorten_names(tasks), failure.message + more, hint
    several = len(prepared.subjects) > 1
    model = f"{prepared.format_model_label(group[0].cell.subject)}: " if several else ""
    return model + shorten_names(tasks), failure.reason, hint


SCHEMA = 1
"""The version of the report's JSON."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Report:
    """The report of a run: a result for each planned score, and the aggregates of each suite."""

    prepared: PreparedRun
    results: tuple[Result, ...]
    texts_encoded: int
    tokens_encoded: int
    vectors_dropped: int = 0
    seconds: float = 0.0
    uses: tuple[DeviceUse, ...] = ()

    @property
    def records(self) -> tuple[Record, ...]:
        """The finished records, in the order of the plan."""
        return tuple(r.record for r in self.results if r.record is not None and r.record.status == "done")

    @property
    def failures(self) -> tuple[Result, ...]:
        """The results that failed, had no data, or were not reached."""
        return tuple(r for r in self.results if r.how in ("failed", "impossible", "stopped"))

    @property
    def lacking(self) -> dict[str, str]:
        """The reason why a task has no score, by task."""
        other = {"stopped": "the budget was used up", "impossible": "its data is missing"}
        return {
            one.cell.task.name: one.failure.message if one.failure else other.get(one.how, "it failed")
            for one in self.failures
        }

    @property
    def exit_code(self) -> int:
        """0 if every planned score has a record, else 1."""
        return 1 if self.failures else 0

    def compute_aggregates(self, model: ConfiguredModel, suite: Suite) -> Aggregates:
        """The columns and means of a suite for one model."""
        numbers = self.collect_numbers(model, suite)
        return Aggregates.aggregate_scores(suite, numbers, self._measure_spreads(model, suite))

    def _measure_spreads(self, model: ConfiguredModel, suite: Suite) -> Mapping[str, Spread]:
        """The intervals of the small columns of a suite, by column; empty where all are large."""
        if not list_small_columns(suite):
            return {}
        # Here, as numpy is not needed for suites of large tasks.
        from harness.results.record_units import measure_spreads

        records = self._collect_records(model, suite)
        return measure_spreads(suite, records, [self.prepared.store], self.prepared.cache)

    def collect_numbers(self, model: ConfiguredModel, suite: Suite) -> dict[str, float]:
        """The numbers that enter a suite's means, by task, and by column where it shows a part of a task."""
        done = self._collect_records(model, suite)
        numbers = {name: self._compute_record_number(suite, record) for name, record in done.items()}
        valid_numbers = {name: value for name, value in numbers.items() if value is not None}
        return {**valid_numbers, **compute_part_scores(suite, done)}

    def compute_trained_result(self, model: ConfiguredModel, suite: Suite) -> TrainedResult | None:
        """The trained result of a model on a suite, with intervals; None if no task of it needs training."""
        part = TrainedResult.select_label_columns(suite)
        if part is None:
            return None
        store, slug = self.prepared.store, model.artifact.slug
        return TrainedResult.build_trained_result(
            part,
            self._collect_records(model, part),
            self._find_convention(suite),
            lambda record: store.find_part_file(record, slug),
        )

    def _format_suite_lines(self, suite: Suite, group: Sequence[ConfiguredModel]) -> list[str]:
        """The lines below a suite's table on one model, or on the seeds of a training."""
        all_aggregates = [self.compute_aggregates(one, suite) for one in group]
        lineage, scores = self.find_lineage(group[0]), [self.collect_numbers(one, suite) for one in group]
        untouched = format_held_out_mean(suite, lineage, scores)
        if len(group) == 1:
            return [
                *format_mean_lines(suite, all_aggregates[0]),
                *untouched,
                *self._format_origin_lines(suite, group),
            ]
        first, *others = format_seed_means(suite, all_aggregates)
        return [
            f"{first}; mean ± standard deviation over the {_describe_seeds(group)}",
            *others,
            *untouched,
            *self._format_origin_lines(suite, group),
        ]

    def find_lineage(self, model: ConfiguredModel) -> Lineage | None:
        """What a model is made of, with the outcome of its sweep where that has ended."""
        key = model.artifact.key
        if key not in self._lineages:
            # The folder and the records know what a sweep has chosen; the plan does not.
            self._lineages[key] = (
                read_model_lineage(model.artifact) or self._recorded.get(key) or model.lineage
            )
        return self._lineages[key]

    @functools.cached_property
    def _lineages(self) -> dict[str, Lineage | None]:
        return {}

    @functools.cached_property
    def _recorded(self) -> dict[str, Lineage]:
        """The lineages in records, by artifact; a model's folder may be gone."""
        return {r.model.artifact: r.lineage for r in self.records if r.lineage is not None}

    def _format_origin_lines(self, suite: Suite, group: Sequence[ConfiguredModel]) -> list[str]:
        """What scores come from: own data, tasks that chose the model, approximate searches, known texts."""
        records = [record for one in group for record in self._collect_records(one, suite).values()]
        text_notes = {
            r.task.name: f"{r.task.name} ({count:,} of {r.provenance['texts']:,} texts)"
            for r in records
            if (count := r.provenance.get("texts_trained_on"))
        }
        lines = format_seed_lineages([self.find_lineage(one) for one in group]) + format_recall_lines(records)
        return [
            *lines,
            *([f"trained on texts of {shorten_names([*text_notes.values()])}"] if text_notes else []),
        ]

    def _collect_records(self, model: ConfiguredModel, suite: Suite) -> dict[str, Record]:
        """The finished records of a suite, by task."""
        keys = self.prepared.plan.keys
        record_by_task = {
            task.name: self.find_result(model, task).record for task in suite.tasks if (model, task) in keys
        }
        return {name: record for name, record in record_by_task.items() if record and record.status == "done"}

    def _find_convention(self, suite: Suite) -> Convention | None:
        """The recipe's convention, where the suite has it."""
        recipe = self.prepared.recipe
        return suite.conventions.get(recipe.convention) if recipe is not None else None

    def _compute_record_number(self, suite: Suite, record: Record) -> float | None:
        """The number of a record in a suite's mean."""
        convention = self._find_convention(suite) if "recipe" in record.identity else None
        if convention is None:
            return record.main_score
        return convention.compute_task_number(record.task.name, collect_raw_metrics(record))

    def list_suite_models(self, suite: Suite) -> tuple[ConfiguredModel, ...]:
        """The models that are evaluated on a task of a suite."""
        keys = self.prepared.plan.keys
        return tuple(
            one for one in self.prepared.subjects if any((one, task) in keys for task in suite.tasks)
        )

    def list_suite_groups(self, suite: Suite) -> tuple[tuple[ConfiguredModel, ...], ...]:
        """The models that are evaluated on every task of a suite, the seeds of a training together."""
        keys = self.prepared.plan.keys
        return tuple(
            group
            for group in self.prepared.groups
            if any((group[0], task) in keys and task.output != "label" for task in suite.tasks)
        )

    def select_column_tasks(self, suite: Suite, column: Column, model: ConfiguredModel) -> list[Task]:
        """The tasks of a column that a model is evaluated on, as a whole."""
        names = [task.name for task in column.tasks]
        keys = self.prepared.plan.keys
        return [task for task in suite.tasks if task.name in names and (model, task) in keys]

    def format_group_label(self, group: Sequence[ConfiguredModel]) -> str:
        """The name of a model, or of the seeds of a training or of contexts, with the settings of a sweep."""
        if len(group) == 1:
            return self.prepared.format_model_label(group[0])
        contexts = len({one.context.seed for one in group if one.context is not None})
        kind = "contexts" if contexts == len(group) else "seeds"
        facts = ", ".join([*self.prepared.list_own_settings(group[0]), f"{len(group)} {kind}"])
        return f"{group[0].artifact.name} ({facts}){self.prepared.format_length(group[0])}"

    def find_result(self, model: ConfiguredModel, task: Task) -> Result:
        """The result of one model on a task of a suite."""
        return self._by_key[self.prepared.plan.keys[model, task]]

    @functools.cached_property
    def _by_key(self) -> dict[str, Result]:
        return {result.cell.key: result for result in self.results}

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of the records, such as on data that was left out; each once, with its tasks."""
        return collect_notes([r.record for r in self.results if r.record])

    def __repr__(self) -> str:
        done = f"{len(self.records)} of {len(self.results)} scores"
        models = ", ".join(self.prepared.format_model_label(one) for one in self.prepared.subjects)
        suites = ", ".join(suite.name for suite in self.prepared.suites)
        return f"<Report: {models} on {suites}, {done}>"

    def to_json(self) -> dict[str, Any]:
        """The report for machines; docs/json.md documents every field."""
        return {
            "schema": SCHEMA,
            "results": str(self.prepared.store.root),
            **self.serialize_effort(),
            "models": [
                {"asked": text, "name": self.prepared.format_model_name(one), "artifact": one.artifact.key}
                for text, one in zip(self.prepared.request.models, self.prepared.asked, strict=True)
            ],
            "trained": [_serialize_training(self, one) for one in self.prepared.plan.trainings],
            "records": [_serialize_result(self, result) for result in self.results],
            "suites": [
                _serialize_suite(self, one, suite)
                for suite in join_single_tasks(self.prepared.suites)
                for one in self.list_suite_models(suite)
            ],
            "over_seeds": [
                _serialize_seed_group(self, group, suite)
                for suite in join_single_tasks(self.prepared.suites)
                for group in self.list_suite_groups(suite)
                if len(group) > 1
            ],
        }

    def serialize_effort(self) -> dict[str, Any]:
        """What the run encoded and took, which JSON has beside its results."""
        return {
            "texts_encoded": self.texts_encoded,
            "tokens_encoded": self.tokens_encoded,
            "vectors_dropped": self.vectors_dropped,
            "seconds": self.seconds,
            "uses": [use.model_dump(mode="json") for use in self.uses],
        }

    def print(self, console: Console) -> None:
        """Print the table of every suite, the failures with their reasons, and the folder of the records."""
        for suite in join_single_tasks(self.prepared.suites):
            _print_trained_results(suite, self, console)
            if all(task.output == "label" for task in suite.tasks):
                continue
            print_table(_build_report_table(suite, self), console)
            print_lines(suite.notes, console, style="dim")
            groups = self.list_suite_groups(suite)
            for group in groups:
                named = f"{self.format_group_label(group)}: " if len(groups) > 1 else ""
                print_lines((named + line for line in self._format_suite_lines(suite, group)), console)
        print_lines(self.notes, console, style="dim")
        print_failures(self.failures, self.prepared, console)
        if any(use.seconds for use in self.uses):
            use = f"Busy with encoding or training: {format_device_uses(self.uses, self.seconds)}"
            print_lines([f"{use} of {format_duration(self.seconds)}."], console)
        records = f"Records: {self.prepared.store.root / 'records'}"
        # Recipes and measured tasks encode nothing that would be counted, so only records are named.
        if all(cell.recipe_plan or cell.task.output == "measured" for cell in self.prepared.plan.cells):
            cached_count = sum(result.how == "cached" for result in self.results)
            cached_text = f"{cached_count} of {len(self.results)} scores were there. " if cached_count else ""
            print_lines([f"{cached_text}{records}"], console)
            return
        encoded_text = f"Encoded {self.texts_encoded:,} texts ({self.tokens_encoded:,} tokens)."
        print_lines([f"{encoded_text} {records}"], console)
        if self.prepared.request.drop_vectors:
            console.print(f"Removed {format_size(self.vectors_dropped)} of cached vectors.", highlight=False)
