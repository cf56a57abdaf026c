"""The report of a run: tables for people, JSON for machines (docs/json.md), and each failure once."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.core.errors import shortened
from harness.core.lineage import Lineage
from harness.core.terminal import print_table
from harness.core.types import Column, Convention, Suite, Task
from harness.data.locate import DataMissing, human_size
from harness.driver.execute import Result
from harness.driver.report.suite import (
    CHOSE,
    aggregates_json,
    approximate_lines,
    is_approximate,
    lineages_lines,
    means_lines,
    over_seeds_json,
    over_seeds_lines,
    selected_json,
    untouched_json,
    untouched_lines,
)
from harness.driver.report.trained import print_trained_result, trained_result_json
from harness.executors.executor import Failure
from harness.jobs.jobs import lineage_of
from harness.plan.catalog import join_single_tasks
from harness.plan.plan import ConfiguredModel
from harness.plan.request import PreparedRun
from harness.results.results import APPROXIMATE, notes_of
from harness.results.scores import (
    Aggregates,
    TrainedResult,
    column_chose,
    part_scores,
    raw_metrics,
    spread_text,
)
from harness.storage.record import Record

LABELS = {
    "cached": "was there",
    "done": "new",
    "shared": "another process",
    "failed": "FAILED",
    "impossible": "cannot run",
    "stopped": "not run",
}


def _report_json(report: Report) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "results": str(report.prepared.store.root),
        "texts_encoded": report.texts_encoded,
        "tokens_encoded": report.tokens_encoded,
        "vectors_dropped": report.vectors_dropped,
        "models": [
            {"asked": text, "name": report.prepared.label(one), "artifact": one.artifact.key}
            for text, one in zip(report.prepared.request.models, report.prepared.asked, strict=True)
        ],
        "trained": [_trained_json(report, one) for one in report.prepared.plan.trainings],
        "records": [_result_json(report, result) for result in report.results],
        "suites": [
            _suite_json(report, one, suite)
            for suite in join_single_tasks(report.prepared.suites)
            for one in report.models_of(suite)
        ],
        "over_seeds": [
            _over_seeds_json(report, group, suite)
            for suite in join_single_tasks(report.prepared.suites)
            for group in report.groups_of(suite)
            if len(group) > 1
        ],
    }


def _trained_json(report: Report, one: ConfiguredModel) -> dict[str, Any]:
    lineage, folder = report.lineage(one), one.artifact.folder
    assert lineage is not None
    return {
        "name": report.prepared.label(one),
        "artifact": one.artifact.key,
        "folder": str(folder) if folder.is_dir() else None,
        "lineage": lineage.model_dump(mode="json"),
    }


def _over_seeds_json(report: Report, group: Sequence[ConfiguredModel], suite: Suite) -> dict[str, Any]:
    return {
        "suite": suite.name,
        "model": group[0].artifact.name,
        "artifacts": [one.artifact.key for one in group],
        **over_seeds_json([report.aggregates(one, suite) for one in group]),
        **selected_json(suite, report.lineage(group[0])),
        **untouched_json(suite, report.lineage(group[0]), [report.numbers(one, suite) for one in group]),
    }


def _suite_json(report: Report, one: ConfiguredModel, suite: Suite) -> dict[str, Any]:
    found, standing = report.aggregates(one, suite), report.trained_result(one, suite)
    return {
        "suite": suite.name,
        "model": one.artifact.name,
        "artifact": one.artifact.key,
        **aggregates_json(suite, found),
        **selected_json(suite, report.lineage(one)),
        **untouched_json(suite, report.lineage(one), [report.numbers(one, suite)]),
        **({"standing": trained_result_json(standing)} if standing else {}),
    }


def _print_trained_results(suite: Suite, report: Report, console: Console) -> None:
    recipe = report.prepared.recipe
    for one in report.models_of(suite):
        found = report.trained_result(one, suite)
        if found is not None and recipe is not None:
            title = f"{report.prepared.label(one)} on {suite.heading}, {recipe.name}"
            print_trained_result(found, title, console)


def _suite_table(suite: Suite, report: Report) -> Table:
    """The table of a suite: a row for each task, a column for each model, or for its seeds together."""
    table = Table(title=f"{suite.heading}, scores × 100")
    for name in ("task", "type", "metric"):
        table.add_column(name)
    groups = report.groups_of(suite)
    for group in groups:
        table.add_column(report.label(group), justify="right")
        table.add_column("", style="dim")
    for column in suite.columns:
        if not column.tasks:
            continue
        cells: list[str] = []
        for group in groups:
            results = [
                report.result(one, task) for one in group for task in report.tasks_of(suite, column, one)
            ]
            scores = [report.aggregates(one, suite).columns[column.name] for one in group]
            marks = [CHOSE] if column_chose(column, report.lineage(group[0])) else []
            marks += [APPROXIMATE] if any(is_approximate(result.record) for result in results) else []
            hows = [result.how for result in results]
            cells += _cells(spread_text(scores), hows, marks) if hows else ["", ""]
        table.add_row(column.name, column.type, column.tasks[0].metric, *cells)
    return table


def _cells(score: str, hows: Sequence[str], marks: Sequence[str]) -> list[str]:
    """A column's score, and its origin with its marks."""
    there = [how for how in hows if how in ("cached", "done", "shared")]
    origin = LABELS["done"] if len(there) == len(hows) else f"{len(there)} of {len(hows)}"
    if len(set(hows)) == 1:
        origin = LABELS[hows[0]]
    return [score, ", ".join([origin, *marks])]


def _result_json(report: Report, result: Result) -> dict[str, Any]:
    cell, record = result.cell, result.record
    lineage = report.lineage(cell.subject)
    done = record is not None and record.status == "done"
    failure = result.failure
    return {
        "task": cell.task.name,
        "type": cell.task.type,
        "metric": cell.task.metric,
        "model": cell.subject.artifact.name,
        "artifact": cell.subject.artifact.key,
        "key": cell.key,
        "state": result.how,
        "main_score": record.main_score if record is not None and done else None,
        "selected": lineage is not None
        and bool(lineage.chosen_by(cell.task.name, cell.task.splits, cell.task.subsets)),
        "approximate": is_approximate(record),
        "notes": list(record.provenance.get("notes", ())) if record is not None else [],
        "error": None
        if failure is None
        else {"kind": failure.kind, "message": failure.message, "hint": failure.hint},
    }


def _seeds_text(group: Sequence[ConfiguredModel]) -> str:
    """The seeds in which the models of a group differ: those of trainings, of contexts, or both."""
    trained = dict.fromkeys(str(one.lineage.seed) for one in group if one.lineage is not None)
    drawn = dict.fromkeys(str(one.context.seed) for one in group if one.context is not None)
    told = [f"seeds {', '.join(trained)}"] if len(trained) > 1 or len(drawn) < 2 else []
    return " and the ".join([*told, *([f"context seeds {', '.join(drawn)}"] if len(drawn) > 1 else [])])


def impossible_results(prepared: PreparedRun) -> list[Result]:
    """The scores without data, as results of a run that has not begun."""
    cells = [cell for cell in prepared.plan.cells if cell.problem is not None]
    return [Result(cell=c, how="impossible", failure=Failure.of(c.problem)) for c in cells if c.problem]


def print_failures(results: Sequence[Result], prepared: PreparedRun, console: Console) -> None:
    """Print each reason once; tasks without data share one reason, whichever data set each lacks."""
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        if result.failure is not None:
            groups.setdefault(_reason(result, result.failure, prepared), []).append(result)
    for group in groups.values():
        label, message, hint = _describe(group, prepared)
        console.print(Text.assemble((f"{label}: ", "bold red"), message), soft_wrap=True)
        if hint:
            console.print(Text(f"  {hint}"), soft_wrap=True)
    stopped = sum(1 for r in results if r.how == "stopped")
    if stopped:
        late = prepared.request.budget is not None and not prepared.request.fail_fast
        why = "the budget was used up" if late else "--fail-fast stopped at the first failure"
        console.print(f"{stopped} not run: {why}.", highlight=False, soft_wrap=True)


def _reason(result: Result, failure: Failure, prepared: PreparedRun) -> tuple[str, str, str]:
    if isinstance(failure.fault, DataMissing):
        return "", "no data", ""
    return prepared.label(result.cell.subject), failure.reason, failure.hint or ""


def _describe(group: Sequence[Result], prepared: PreparedRun) -> tuple[str, str, str]:
    """The tasks of a group of failures, the message, and the hint."""
    failure = group[0].failure
    assert failure is not None
    tasks = list(dict.fromkeys(result.cell.task.name for result in group))
    hint = prepared.with_suites(failure.hint or "")
    if isinstance(failure.fault, DataMissing):
        likewise = f" {len(tasks) - 1} more likewise." if len(tasks) > 1 else ""
        return shortened(tasks), failure.message + likewise, hint
    several = len(prepared.subjects) > 1
    model = f"{prepared.label(group[0].cell.subject)}: " if several else ""
    return model + shortened(tasks), failure.reason, hint


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
        """The reason of each task without a score, by task."""
        other = {"stopped": "the budget was used up", "impossible": "its data is missing"}
        return {
            one.cell.task.name: one.failure.message if one.failure else other.get(one.how, "it failed")
            for one in self.failures
        }

    @property
    def exit_code(self) -> int:
        """0 if every planned score has a record, else 1."""
        return 1 if self.failures else 0

    def aggregates(self, one: ConfiguredModel, suite: Suite) -> Aggregates:
        """The columns and means of a suite for one model."""
        return Aggregates.of(suite, self.numbers(one, suite))

    def numbers(self, one: ConfiguredModel, suite: Suite) -> dict[str, float]:
        """The numbers that enter a suite's means, by task, and by column where it shows a part of a task."""
        done = self._done(one, suite)
        numbers = {name: self._number(suite, record) for name, record in done.items()}
        known = {name: value for name, value in numbers.items() if value is not None}
        return {**known, **part_scores(suite, done)}

    def trained_result(self, one: ConfiguredModel, suite: Suite) -> TrainedResult | None:
        """The trained result of a model on a suite, with intervals; None if no task of it needs training."""
        part = TrainedResult.part_of(suite)
        if part is None:
            return None
        store, slug = self.prepared.store, one.artifact.slug
        return TrainedResult.of(
            part,
            self._done(one, part),
            self._convention(suite),
            lambda record: store.examples(record, slug),
        )

    def _lines(self, suite: Suite, group: Sequence[ConfiguredModel]) -> list[str]:
        """The lines below a suite's table on one model, or on the seeds of a training."""
        found = [self.aggregates(one, suite) for one in group]
        lineage, scores = self.lineage(group[0]), [self.numbers(one, suite) for one in group]
        untouched = untouched_lines(suite, lineage, scores)
        if len(group) == 1:
            return [*means_lines(suite, found[0]), *untouched, *self._origin_lines(suite, group)]
        first, *others = over_seeds_lines(suite, found)
        return [
            f"{first}; mean ± standard deviation over the {_seeds_text(group)}",
            *others,
            *untouched,
            *self._origin_lines(suite, group),
        ]

    def lineage(self, one: ConfiguredModel) -> Lineage | None:
        """What a model is made of, with the outcome of its sweep where that has ended."""
        key = one.artifact.key
        if key not in self._lineages:
            self._lineages[key] = lineage_of(one.artifact) or self._recorded.get(key) or one.lineage
        return self._lineages[key]

    @functools.cached_property
    def _lineages(self) -> dict[str, Lineage | None]:
        return {}

    @functools.cached_property
    def _recorded(self) -> dict[str, Lineage]:
        """The lineages in records, by artifact; a model's folder may be gone."""
        return {r.model.artifact: r.lineage for r in self.records if r.lineage is not None}

    def _origin_lines(self, suite: Suite, group: Sequence[ConfiguredModel]) -> list[str]:
        """What scores come from: own data, tasks that chose the model, approximate searches, known texts."""
        records = [record for one in group for record in self._done(one, suite).values()]
        known = {
            r.task.name: f"{r.task.name} ({count:,} of {r.provenance['texts']:,} texts)"
            for r in records
            if (count := r.provenance.get("texts_trained_on"))
        }
        lines = lineages_lines([self.lineage(one) for one in group]) + approximate_lines(records)
        return [*lines, *([f"trained on texts of {shortened([*known.values()])}"] if known else [])]

    def _done(self, one: ConfiguredModel, suite: Suite) -> dict[str, Record]:
        """The finished records of a suite, by task."""
        keys = self.prepared.plan.keys
        found = {task.name: self.result(one, task).record for task in suite.tasks if (one, task) in keys}
        return {name: record for name, record in found.items() if record and record.status == "done"}

    def _convention(self, suite: Suite) -> Convention | None:
        """The recipe's convention, where the suite has it."""
        recipe = self.prepared.recipe
        return suite.conventions.get(recipe.convention) if recipe is not None else None

    def _number(self, suite: Suite, record: Record) -> float | None:
        """The number of a record in a suite's mean."""
        convention = self._convention(suite) if "recipe" in record.identity else None
        return (
            record.main_score
            if convention is None
            else convention.number(record.task.name, raw_metrics(record))
        )

    def models_of(self, suite: Suite) -> tuple[ConfiguredModel, ...]:
        """The models that are evaluated on a task of a suite."""
        keys = self.prepared.plan.keys
        return tuple(
            one for one in self.prepared.subjects if any((one, task) in keys for task in suite.tasks)
        )

    def groups_of(self, suite: Suite) -> tuple[tuple[ConfiguredModel, ...], ...]:
        """The models that are evaluated on every task of a suite, the seeds of a training together."""
        keys = self.prepared.plan.keys
        return tuple(
            group
            for group in self.prepared.groups
            if any((group[0], task) in keys and task.output != "label" for task in suite.tasks)
        )

    def tasks_of(self, suite: Suite, column: Column, one: ConfiguredModel) -> list[Task]:
        """The tasks of a column that a model is evaluated on, as a whole."""
        names = [task.name for task in column.tasks]
        keys = self.prepared.plan.keys
        return [task for task in suite.tasks if task.name in names and (one, task) in keys]

    def label(self, group: Sequence[ConfiguredModel]) -> str:
        """The name of a model, or of the seeds of a training or of contexts."""
        if len(group) == 1:
            return self.prepared.label(group[0])
        contexts = len({one.context.seed for one in group if one.context is not None})
        kind = "contexts" if contexts == len(group) else "seeds"
        return f"{group[0].artifact.name} ({len(group)} {kind})"

    def result(self, one: ConfiguredModel, task: Task) -> Result:
        """The result of one model on a task of a suite."""
        return self._by_key[self.prepared.plan.keys[one, task]]

    @functools.cached_property
    def _by_key(self) -> dict[str, Result]:
        return {result.cell.key: result for result in self.results}

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of the records, such as on data that was left out; each once, with its tasks."""
        return notes_of([r.record for r in self.results if r.record])

    def __repr__(self) -> str:
        done = f"{len(self.records)} of {len(self.results)} scores"
        models = ", ".join(self.prepared.label(one) for one in self.prepared.subjects)
        suites = ", ".join(suite.name for suite in self.prepared.suites)
        return f"<Report: {models} on {suites}, {done}>"

    def to_json(self) -> dict[str, Any]:
        """The report for machines; docs/json.md documents every field."""
        return _report_json(self)

    def print(self, console: Console) -> None:
        """Print the table of every suite, the failures with their reasons, and the folder of the records."""
        for suite in join_single_tasks(self.prepared.suites):
            _print_trained_results(suite, self, console)
            if all(task.output == "label" for task in suite.tasks):
                continue
            print_table(_suite_table(suite, self), console)
            for note in suite.notes:
                console.print(note, style="dim", highlight=False, soft_wrap=True)
            groups = self.groups_of(suite)
            for group in groups:
                named = f"{self.label(group)}: " if len(groups) > 1 else ""
                for line in self._lines(suite, group):
                    console.print(named + line, highlight=False, soft_wrap=True)
        for note in self.notes:
            console.print(note, style="dim", highlight=False, soft_wrap=True)
        print_failures(self.failures, self.prepared, console)
        if all(cell.recipe_plan for cell in self.prepared.plan.cells):
            there = sum(result.how == "cached" for result in self.results)
            known = f"{there} of {len(self.results)} scores were there. " if there else ""
            told = f"{known}Records: {self.prepared.store.root / 'records'}"
            console.print(told, highlight=False, soft_wrap=True)
            return
        console.print(
            f"Encoded {self.texts_encoded:,} texts ({self.tokens_encoded:,} tokens). "
            f"Records: {self.prepared.store.root / 'records'}",
            highlight=False,
            soft_wrap=True,
        )
        if self.prepared.request.drop_vectors:
            console.print(f"Removed {human_size(self.vectors_dropped)} of cached vectors.", highlight=False)
