"""The report of a protocol: its measured rows among the printed ones, what they lack, and what differs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from decimal import Decimal
from statistics import fmean
from types import MappingProxyType
from typing import Any

from rich.console import Console

from harness.core import files
from harness.core.encoding import Settings
from harness.core.sources import describe_assumptions
from harness.core.terminal import (
    create_console,
    create_table,
    group_names,
    print_lines,
    print_table,
    shorten_names,
)
from harness.core.types import Suite, SuiteOptions
from harness.driver.execute import Result
from harness.driver.protocol import PreparedProtocol
from harness.driver.report.run import Report, print_failures
from harness.jobs.protocol import ProtocolColumn, ProtocolStep, ProtocolTable
from harness.plan.plan import ConfiguredModel
from harness.plan.request import PreparedRun, Request
from harness.results.reported import PaperValue, read_papers
from harness.results.results import format_setting
from harness.results.scores import Mean

NEAR = 2
"""The rows that are shown above, and below, each measured one."""

STATES = {"impossible": "no data", "stopped": "not measured"}
"""Why a score is not there, by the state of its result; of a failed one its own reason."""


NEUTRAL = ("tasks", "cache", "results")
"""Options that change no number that is there."""


@dataclass(frozen=True, kw_only=True)
class _RowNumber:
    """A number of a row, times 100 as papers print it; `gap` says what it lacks, and it is then no mean.

    `half` is half of its 95 % interval, and `count` of `total` scores are in it.
    """

    value: float | None = None
    half: float | None = None
    count: int = 0
    total: int = 0
    gap: str = ""
    printed: str = ""

    @property
    def text(self) -> str:
        """The number as it is printed, or as it was measured with what is in it."""
        if self.printed or self.value is None:
            return self.printed or "gap"
        half = "" if self.half is None else f" ± {self.half:.2f}"
        return f"{self.value:.2f}{half}" + (f" ({self.count} of {self.total})" if self.gap else "")


@dataclass(frozen=True, kw_only=True)
class _ProtocolRow:
    """A row of a protocol's table, printed by the paper or measured."""

    model: str
    setting: str
    origin: str
    numbers: Mapping[str, _RowNumber]


@dataclass(frozen=True, kw_only=True)
class _RankedTable:
    """A paper's table with measured rows, the highest of the column `by` first; unsorted if it is empty."""

    table: ProtocolTable
    by: str
    rows: tuple[_ProtocolRow, ...]

    @property
    def gaps(self) -> list[str]:
        """What the numbers of measured rows lack, the columns and rows with one reason together."""
        columns = group_names(
            (name, (f"{row.model} {row.setting}".strip(), number.gap))
            for row in self.rows
            for name, number in row.numbers.items()
            if number.gap
        )
        every = [column.name for column in self.table.columns]
        rows = group_names(
            (model, ("all" if names == every else ", ".join(names), gap))
            for (model, gap), names in columns.items()
        )
        return [f"gap in {where} of {', '.join(models)}: {gap}" for (where, gap), models in rows.items()]

    @staticmethod
    def rank_rows(table: ProtocolTable, measured: Sequence[_ProtocolRow]) -> _RankedTable:
        """The measured rows with the printed rows next to them."""
        names = [table.rank_column.name, *(column.name for column in table.columns)]
        printed = _read_printed_rows(table)
        both = (measured, printed)
        by = next((n for n in names if all(any(_has_number(row, n) for row in rows) for rows in both)), "")
        if not by:
            # Nothing is complete, so nothing has a place among complete rows.
            return _RankedTable(table=table, by="", rows=(*printed[: 2 * NEAR], *measured))
        rows = sorted((*printed, *measured), key=lambda row: -_find_value(row, by))
        places = [n for n, row in enumerate(rows) if row.origin == "measured" and _has_number(row, by)]
        near = {place + step for place in places for step in range(-NEAR, NEAR + 1)}
        shown = [row for n, row in enumerate(rows) if n in near or row.origin == "measured"]
        return _RankedTable(table=table, by=by, rows=tuple(shown))


def _has_number(row: _ProtocolRow, name: str) -> bool:
    """Whether a row has a complete number in a column."""
    return _find_value(row, name) > -math.inf


def _find_value(row: _ProtocolRow, name: str) -> float:
    """The number by which a row is sorted; one that lacks something comes last."""
    number = row.numbers.get(name)
    return -math.inf if number is None or number.value is None or number.gap else number.value


def _read_printed_rows(table: ProtocolTable) -> list[_ProtocolRow]:
    """The printed rows of a table, in the order of print; none without a checkout."""
    folder = files.find_reported_folder()
    if folder is None:
        return []
    lines: dict[tuple[str, str], dict[str, PaperValue]] = {}
    for value in read_papers(folder)[table.paper].tables[table.table].rows:
        lines.setdefault((value.name, value.setting), {})[value.metric] = value
    several = len({setting for _, setting in lines}) > 1
    return [
        _ProtocolRow(
            model=model,
            setting=setting if several else "",
            origin="printed",
            numbers={
                column.name: _read_printed_number(column, table, line)
                for column in table.columns
                if column.name in line and line[column.name].value
            },
        )
        for (model, setting), line in lines.items()
    ]


def _read_printed_number(
    column: ProtocolColumn, table: ProtocolTable, line: Mapping[str, PaperValue]
) -> _RowNumber:
    printed = line[column.name]
    value = Decimal(printed.value)
    if printed.unit == "fraction":
        value = (100 * value).normalize()
    if column.of == "types" and "over tasks" in printed.recomputed_as:
        # Of another mean than the rows beside it: made again of the printed types.
        kinds = [one.name for one in table.columns if one.of.startswith("type:")]
        mean = fmean(float(line[name].value) for name in kinds)
        return _RowNumber(value=mean, printed=f"{mean:.1f} (recomputed; {printed.value} is over tasks)")
    interval = f" [{printed.ci_low}, {printed.ci_high}]" if printed.ci_low else ""
    return _RowNumber(value=float(value), printed=f"{value:f}{interval}")


@dataclass(frozen=True, kw_only=True)
class ProtocolReport:
    """The report of a protocol: the results of all steps, the report of each, and what the run took."""

    prepared: PreparedProtocol
    results: Sequence[Result]
    reports: Mapping[str, Report]
    effort: Mapping[str, Any]

    @staticmethod
    def build_report(
        prepared: PreparedProtocol,
        results: Sequence[Result],
        effort: Mapping[str, Any] = MappingProxyType({}),
    ) -> ProtocolReport:
        """The report of the results of all steps.

        Args:
            prepared: The protocol with the plan of each step.
            results: Those of all steps.
            effort: What the run encoded and took, as in its JSON; empty if nothing was run.
        """
        by_key = {result.cell.key: result for result in results}
        reports = {}
        for name, step in prepared.steps.items():
            step_results = tuple(by_key[cell.key] for cell in step.plan.cells)
            reports[name] = Report(prepared=step, results=step_results, texts_encoded=0, tokens_encoded=0)
        return ProtocolReport(prepared=prepared, results=results, reports=reports, effort=effort)

    @property
    def exit_code(self) -> int:
        """0 if every step that was asked for has all of its scores, else 1."""
        return int(any(one.exit_code for one in self.reports.values()) or bool(self.prepared.open_gaps))

    @property
    def tables(self) -> list[_RankedTable]:
        """The tables of the protocol for which a step was asked for."""
        return [
            _RankedTable.rank_rows(table, [*self._build_rows(table)])
            for table in self.prepared.protocol.tables
            if not {*(table.lines.values() or (one.step for one in table.columns))} <= self.prepared.skipped
        ]

    def _build_rows(self, table: ProtocolTable) -> Iterator[_ProtocolRow]:
        for model in dict.fromkeys(self.prepared.joined.asked):
            for label, step in (table.lines or {"": ""}).items():
                quick = "QUICK" if self.prepared.quick else ""
                yield _ProtocolRow(
                    model=model.artifact.name,
                    setting=", ".join(filter(None, (label, quick, self._describe_seeds(table, step, model)))),
                    origin="measured",
                    numbers={
                        column.name: self._measure_number(column, step or column.step, model)
                        for column in table.columns
                    },
                )

    def _describe_seeds(self, table: ProtocolTable, step: str, asked: ConfiguredModel) -> str:
        """In words, the trainings over which the numbers of a row are means; empty for a single one."""
        steps = [step] if step else [column.step for column in table.columns]
        counts = [len(self.prepared.list_models(name, asked)) for name in steps if name in self.reports]
        count = max(counts, default=1)
        return f"mean of {count} seeds" if count > 1 else ""

    def _measure_number(self, column: ProtocolColumn, step: str, asked: ConfiguredModel) -> _RowNumber:
        """The number of a column, over the seeds of a training their mean."""
        if step in self.prepared.open_gaps:
            return _RowNumber(gap=f"the step {step} cannot run, see below")
        if step not in self.reports:
            return _RowNumber(gap=self.prepared.gaps[step])
        report = self.reports[step]
        suite = next((one for one in report.prepared.suites if one.name == column.suite), None)
        if suite is None:
            return _RowNumber(gap="left out by --tasks")
        models = self.prepared.list_models(step, asked)
        means = [_measure_mean(report, model, suite, column.of) for model in models]
        values = [mean.value for mean, _ in means if mean.value is not None]
        first, half = means[0]
        complete = all(mean.complete for mean, _ in means)
        return _RowNumber(
            value=100 * fmean(values) if len(values) == len(means) else None,
            half=half and 100 * half if len(means) == 1 else None,
            count=min(mean.there for mean, _ in means),
            total=first.wanted,
            gap="" if complete else _explain_gap(report, models, suite, column.of),
        )

    def list_differences(self) -> list[str]:
        """What differs from the printed protocol, by step."""
        steps = [step for step in self.prepared.protocol.steps if step.name in self.reports]
        lines = group_names((step.name, text) for step in steps for text in self._iter_differences(step))
        return [
            f"{'all steps' if 1 < len(names) == len(steps) else ', '.join(names)}: {text}"
            for text, names in lines.items()
        ]

    def _iter_differences(self, step: ProtocolStep) -> Iterator[str]:
        report = self.reports[step.name]
        if self.prepared.quick and step.quick:
            yield from (f"quick: {words}" for words in list_request_settings(step.quick))
        else:
            yield from step.differs
        yield from _list_typed_options(self.prepared.joined.request, report.prepared)
        yield from _list_assumed(report)

    def to_json(self) -> dict[str, Any]:
        """The report for machines (docs/json.md)."""
        return {
            "schema": 1,
            "protocol": self.prepared.protocol.name,
            "quick": self.prepared.quick,
            **self.effort,
            "gaps": dict(self.prepared.gaps),
            "differs": self.list_differences(),
            "tables": [
                {
                    "paper": ranked.table.paper,
                    "table": ranked.table.table,
                    "sorted_by": ranked.by,
                    "means": {c.name: c.rule for c in ranked.table.columns if c.rule},
                    "rows": [asdict(row) for row in ranked.rows],
                }
                for ranked in self.tables
            ],
            "steps": {
                name: {
                    key: value
                    for key, value in report.to_json().items()
                    # The steps run as one.
                    if key not in report.serialize_effort()
                }
                for name, report in self.reports.items()
            },
        }

    def print(self, console: Console) -> None:
        """Print each table with its gaps, what differs, the failures and the folder of the records."""
        for ranked in self.tables:
            _print_table(ranked, self.prepared.title, console)
        print_lines((f"differs: {line}" for line in self.list_differences()), console)
        _print_step_gaps(self.prepared, console)
        print_failures([one for one in self.results if one.failure], self.prepared.joined, console)
        print_lines([f"Records: {self.prepared.joined.store.root / 'records'}"], console)


def _measure_mean(report: Report, model: ConfiguredModel, suite: Suite, of: str) -> tuple[Mean, float | None]:
    """A mean or a score of a model on a suite, and half of its interval."""
    trained = report.compute_trained_result(model, suite)
    if trained is not None:
        rows = {row.task: row for row in trained.rows}
        interval = trained.interval if of == "tasks" else rows[of].interval
        mean = trained.average if of == "tasks" else Mean.compute_mean(of, [rows[of].number])
        return mean, None if interval is None else (interval.high - interval.low) / 2
    scores = report.compute_aggregates(model, suite)
    if of in ("tasks", "types"):
        return (scores.over_tasks if of == "tasks" else scores.over_types), None
    if of.startswith("type:"):
        return scores.by_type[of.removeprefix("type:")], None
    return Mean.compute_mean(of, [scores.columns[of]]), None


def _explain_gap(report: Report, models: Sequence[ConfiguredModel], suite: Suite, of: str) -> str:
    """Which tasks of a column have no score, by the reason."""
    kind = of.removeprefix("type:")
    reasons: list[tuple[str, str]] = []
    for column in suite.columns:
        if of not in ("tasks", "types", column.name) and column.type != kind:
            continue
        if not column.tasks:
            reasons.append((column.name, "left out"))
        # As the suite has them: two columns may show parts of one task.
        tasks = [
            (model, task) for model in models for task in report.select_column_tasks(suite, column, model)
        ]
        for result in (report.find_result(*pair) for pair in tasks):
            if result.record is None or result.record.status != "done":
                failed = result.failure.message if result.failure else "failed"
                reasons.append((column.name, STATES.get(result.how, failed)))
    names_by_reason = group_names(reasons)
    if any(of == column.name for column in suite.columns):
        return "; ".join(names_by_reason)
    return "; ".join(f"{reason}: {shorten_names(names)}" for reason, names in names_by_reason.items())


def list_request_settings(fields_: Mapping[str, Any]) -> Iterator[str]:
    """Fields of a request as a user types them, those of recipes one by one."""
    for name, value in fields_.items():
        if not isinstance(value, Mapping):
            yield format_setting(name, value)
        elif name == "recipe_settings":
            yield from list_request_settings(value)
        else:
            yield f"{name}: {', '.join(list_request_settings(value))}"


def _list_typed_options(typed: Request, step: PreparedRun) -> Iterator[str]:
    """What a user has typed that changes the numbers of a step."""
    parts = (
        (Settings, typed.settings, step.request.settings),
        (SuiteOptions, typed.options, step.request.options),
    )
    for kind, all_steps, step_values in parts:
        for option in fields(kind):
            value = getattr(step_values, option.name)
            same = value == getattr(all_steps, option.name)
            if same and value not in (None, option.default) and option.name not in NEUTRAL:
                yield from (f"typed: {words}" for words in list_request_settings({option.name: value}))
    if not step.stages:
        # Those of recipes that make models are in their lineages.
        for name, value in step.request.recipe_settings.items():
            if name in typed.recipe_settings:
                yield f"typed: {format_setting(name, value)}"
    yield from (model.evaluation for model in step.subjects if model.evaluation)


def _list_assumed(report: Report) -> Iterator[str]:
    """The convention of numbers, what recipes assume, what a user changed, and what chose a model."""
    view = report.prepared.recipe.convention if report.prepared.recipe is not None else ""
    conventions = [suite.conventions[view] for suite in report.prepared.suites if view in suite.conventions]
    yield from (f"convention: {one.says}" for one in conventions)
    for model in report.prepared.subjects:
        for stage in model.stages:
            lineage = report.find_lineage(stage)
            if lineage is None:
                continue
            yield from describe_assumptions(lineage.assumed)
            if lineage.changed:
                yield f"modified: {', '.join(f'{key}={value}' for key, value in lineage.changed.items())}"
            if lineage.own_data:
                yield f"trained on {lineage.own_data}, {lineage.beside_own_data}"
            if lineage.sweep is not None:
                yield f"swept: {lineage.sweep.text}"
            if lineage.choices_text:
                yield f"{lineage.choices_text}: scores there are biased"
    for record in report.records:
        yield from describe_assumptions(record.training.get("assumed", ()))


def show_protocol(report: ProtocolReport, as_json: bool) -> int:
    """Print the report of a protocol, as tables or as JSON, and return its exit code."""
    if as_json:
        print(json.dumps(report.to_json(), indent=1, ensure_ascii=False))
    else:
        report.print(create_console())
    return report.exit_code


def print_protocol_plan(prepared: PreparedProtocol, console: Console) -> None:
    """Print what each step of a protocol has to do, and the steps that cannot be run with the reason."""
    counts = ("trainings", "runs", "trials", "scores", "done", "lacking")
    title = f"{prepared.title}: its steps"
    table = create_table("step", "recipe", "suites", numbers=counts, title=title)
    for step in prepared.count_steps():
        numbers = [f"{getattr(step, name):,}" for name in counts]
        table.add_row(step.step, step.recipe, step.suites, *numbers)
    for name in prepared.open_gaps:
        table.add_row(name, "", "", *("?" for _ in counts))
    print_table(table, console)
    _print_step_gaps(prepared, console)


def _print_step_gaps(prepared: PreparedProtocol, console: Console) -> None:
    kinds = {name: "" if name in prepared.skipped else "gap: " for name in prepared.gaps}
    print_lines((f"{kind}the step {name}: {prepared.gaps[name]}" for name, kind in kinds.items()), console)


def _print_table(ranked: _RankedTable, title: str, console: Console) -> None:
    """Print a row of the paper as a column, best first, so that it fits a terminal."""
    heading = f"{ranked.table.paper}, table {ranked.table.table}: printed and measured rows; {title}"
    table = create_table("", title=heading)
    settings = [*dict.fromkeys(row.setting for row in ranked.rows if row.origin == "printed" and row.setting)]
    for row in ranked.rows:
        setting = f"({settings.index(row.setting) + 1})" if row.setting in settings else row.setting
        head = "\n".join(filter(None, (row.model, row.origin, setting)))
        table.add_column(head, justify="right", style="bold" if row.origin == "measured" else None)
    for column in ranked.table.columns:
        numbers = (row.numbers[column.name].text if column.name in row.numbers else "" for row in ranked.rows)
        table.add_row(column.name, *numbers)
    print_table(table, console)
    means = group_names((c.name, c.rule) for c in ranked.table.columns if c.of in ("tasks", "types"))
    rules = [f"{', '.join(names)}: {rule}" for rule, names in means.items()]
    order = f"sorted by {ranked.by}" if ranked.by else "not sorted: no measured number is complete"
    printed = (f"({number}) {setting}" for number, setting in enumerate(settings, start=1))
    print_lines(("; ".join((order, *rules)), *printed, *ranked.gaps), console)
