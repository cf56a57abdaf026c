"""`harness watch`: evaluate every new checkpoint of a pretraining run, and show the curve as it grows."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from harness.commands import options
from harness.core import files
from harness.core.documents import DocumentFolder
from harness.core.errors import HarnessError, UsageError, explain_unknown
from harness.core.terminal import create_console, create_table, print_lines, print_table
from harness.driver import progress
from harness.driver.report.run import Report
from harness.plan.request import PreparedRun, Request
from harness.results.notes import format_amount
from harness.results.scores import format_delta, score_text
from harness.watch.curves import (
    AXES,
    CURVES,
    CurveComparison,
    RunTable,
    SeedCurve,
    build_curves,
    compare_runs,
)
from harness.watch.grids import BINS, GRIDS, RunGrid, build_grid
from harness.watch.runs import read_table, read_watch_rows
from harness.watch.source import Checkpoint, open_source
from harness.watch.state import WATCHES, ChangePoint, Look, Watch, WatchEntry, choose_watch_name, read_watch
from harness.watch.watch import EvaluatedCheckpoint, Scan, WatchListeners, WatchOptions, follow

STATES = ("done", "partial", "failed", "waiting", "lost")
"""The states of checkpoints that a list counts."""

SCHEMA = 1
"""The version of the --json output (docs/json.md)."""


@click.command(
    "watch",
    cls=options.HelpCommand,
    examples="""
harness watch runs/1 --suite nanobeir --once
harness watch runs/1 --suite mteb --tasks STS12,STS13 --budget-minutes 10
harness watch --list
harness watch --run a=runs/a-1 --run a=runs/a-2 --run b=runs/b-1
""",
    everyday="--suite --tasks --name --once --until --budget-minutes --task --show --list --run --devices "
    "--results",
)
@click.argument("source", required=False)
@options.option(
    "What",
    "--suite",
    default=None,
    metavar="SUITE",
    shell_complete=options.complete_suites,
    help="Suite of tasks, e.g. mteb, beir or local:FOLDER (`harness list suites`).",
)
@options.make_option(WatchOptions, "name")
@options.option(
    "What",
    "--budget-minutes",
    type=options.Amount(above=0),
    default=None,
    metavar="MINUTES",
    help="Start no further task of a checkpoint after so many minutes. The rest follows when no newer "
    "checkpoint waits.",
)
@options.make_option(WatchOptions, "every", show_default=True)
@options.make_option(WatchOptions, "settle", show_default=True)
@options.make_option(WatchOptions, "once")
@options.make_option(WatchOptions, "until")
@options.option(
    "Output", "--task", default="", metavar="TASK", help="Draw the curve of this task (default: of the mean)."
)
@options.option("Output", "--list", "listing", is_flag=True, help="List the watches of the results folder.")
@options.option(
    "Output", "--show", is_flag=True, help="Show the watch called SOURCE as it is, and evaluate nothing."
)
@options.option(
    "Output",
    "--run",
    "runs",
    multiple=True,
    metavar="NAME=WATCH",
    help="Compare runs, and evaluate nothing. NAME=WATCH makes a watch, by its name or folder, a seed of the "
    "run NAME. Repeat for each seed of each run.",
)
@options.option(
    "Output",
    "--runs",
    "table",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Compare the runs of a CSV or Parquet file, as `harness list runs --out FILE` writes it.",
)
@options.option(
    "Output",
    "--against",
    "axis",
    type=click.Choice(AXES),
    default="step",
    show_default=True,
    help="The axis against which the scores of compared runs are drawn.",
)
@options.option(
    "Output",
    "--grid",
    multiple=True,
    metavar="FACT[=BINS]",
    help="Show a grid of mean scores over two facts; give the option twice, first the horizontal fact. A "
    f"fact is a column (masking) or a ratio (tokens/size), in {BINS} bins of about as many runs each, in "
    "another number of bins (=4), or between edges (=0.1:0.3:0.5).",
)
@options.option(
    "Output",
    "--out",
    metavar="NAME",
    help="Also keep the compared runs under this name in the results folder, for the site.",
)
@options.option(
    "Output",
    "--reach",
    type=float,
    metavar="SCORE",
    help="Score × 100; the budget at which compared runs reach it is shown (default: a score that all reach "
    "late).",
)
@options.evaluation
@options.as_json
def command(
    source: str | None,
    listing: bool,
    show: bool,
    runs: tuple[str, ...],
    table: Path | None,
    axis: str,
    grid: tuple[str, ...],
    out: str | None,
    reach: float | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Evaluate each new checkpoint of the run in SOURCE, a folder or a hub repository, and draw the curve.

    Checkpoints are folders, or branches and tags, with a step in their name. One that is still being
    written is evaluated once it is complete. The same command resumes a watch.
    """
    if runs or table:
        results = files.resolve_results_folder(given["results"])
        rows = _read_rows(runs, table, results)
        if grid and (reach is not None or axis != AXES[0]):
            raise UsageError("--grid takes neither --against nor --reach.", hint="Leave them out.")
        folder: DocumentFolder[Any] = GRIDS if grid else CURVES
        if out:
            folder.check_name(out)
        document: RunGrid | RunTable | None = None
        if grid:
            document = build_grid(rows, grid, given["task"], out or "")
            _show_grid(document, as_json)
        else:
            column, curves = build_curves(rows, axis, given["task"])
            if out:
                document = RunTable.from_rows(rows, column, curves, name=out, axis=axis, reach=reach)
            _compare_runs(column, curves, axis, reach, as_json)
        if out and document:
            path = folder.write_document(results, out, document)
            count = f"{len(document.runs)} runs" if isinstance(document, RunGrid) else f"{len(rows)} points"
            click.echo(f"{path}: {count}. `harness serve` shows them at /{folder.folder}/{out}.", err=True)
        return 0
    if out or grid:
        raise UsageError("--grid and --out are of compared runs.", hint="Name them with --run or --runs.")
    if listing or show:
        return _show_watches(source, listing, as_json, given)
    if not source or not given["suite"]:
        raise UsageError(
            "A watch needs a folder or a hub repository, and a suite.",
            hint="Type harness watch FOLDER --suite SUITE; `harness watch --list` shows the watches.",
        )
    return _watch(source, as_json, given)


def _watch(source: str, as_json: bool, values: dict[str, Any]) -> int:
    # These are no fields of a request, which refuses names that it does not know.
    minutes = values.pop("budget_minutes")
    budget = None if minutes is None else 60 * minutes
    schedule = {name: values.pop(name) for name in ("name", "every", "settle", "once", "until")}
    suite, task = values.pop("suite"), values.pop("task")
    request = Request.parse_options((), (suite,), values, budget=budget)
    _require_task(task, request)
    watch_options = WatchOptions(source=source, request=request, **schedule)
    listener = _JsonListener() if as_json else _TextListener(task, once=watch_options.once)
    callbacks = ("scan", "checkpoint", "error", "carry_out")
    watch = follow(watch_options, WatchListeners(**{name: getattr(listener, name) for name in callbacks}))
    listener.print_watch(watch)
    return 1 if any(one.state in ("failed", "lost") for one in watch.checkpoints) else 0


def _require_task(name: str, request: Request) -> None:
    """Refuse a curve of a task that the suite does not have."""
    if name:
        task_names = {task.name for suite in request.open_suites() for task in suite.tasks}
        if name not in task_names:
            raise explain_unknown(
                "task of this watch", name, task_names, then="Give one of them with --task."
            )


class _TextListener:
    """The listener that prints the progress of a watch for people."""

    def __init__(self, task: str, *, once: bool) -> None:
        self._task, self._once = task, once
        self._err, self._out = create_console(stderr=True), create_console()
        self._skipped: frozenset[str] = frozenset()
        self._drawn: Watch | None = None
        self._said: set[str] = set()

    def scan(self, result: Scan) -> None:
        """Print the waiting and lost checkpoints of a scan, and skipped entries when they change."""
        skipped = frozenset(one.name for one in result.skipped)
        for line in _scan_lines(result, skipped=skipped != self._skipped):
            self._err.print(line, style="dim", highlight=False, soft_wrap=True)
        self._skipped = skipped

    def checkpoint(self, done: EvaluatedCheckpoint, watch: Watch) -> None:
        """Print a line on the checkpoint, and the curve again."""
        self._out.print(_format_checkpoint(done), highlight=False, soft_wrap=True)
        if not self._once:
            self.print_watch(watch)

    def error(self, error: HarnessError) -> None:
        """Print why a scan failed."""
        self._err.print(f"{error.message} Looking again.", style="yellow", highlight=False, soft_wrap=True)

    def carry_out(self, prepared: PreparedRun) -> Report:
        """Run an evaluation with a progress bar."""
        return progress.follow_run(prepared, self._err, self._said)

    def print_watch(self, watch: Watch) -> None:
        """Print the curve and the table, unless they were just printed."""
        # `follow` ends with the state after the last checkpoint, which the listener has printed already.
        if watch == self._drawn:
            return
        self._drawn = watch
        scored = {name for one in watch.checkpoints for name in one.scores}
        _print_watch(watch, self._out, task=self._task if self._task in scored else "")


class _JsonListener:
    """The listener that prints one JSON object a line for machines."""

    def scan(self, result: Scan) -> None:
        """Print the ready, known, waiting, skipped and lost checkpoints of a scan."""
        waiting = [
            {"step": o.checkpoint.step, "name": o.checkpoint.name, "reason": o.reason} for o in result.waiting
        ]
        ready = [one.checkpoint.step for one in (*result.new, *result.unfinished)]
        skipped = [{"name": one.name, "reason": one.reason} for one in result.skipped]
        lost = [{"step": one.step, "name": one.name, "reason": one.reason} for one in result.lost]
        _print_event(
            "look", ready=ready, known=list(result.known), waiting=waiting, skipped=skipped, lost=lost
        )

    def checkpoint(self, done: EvaluatedCheckpoint, _watch: Watch) -> None:
        """Print the outcome of a checkpoint."""
        how, entry = _describe_evaluation(done), done.entry.dump_output()
        _print_event("checkpoint", how=how, scored=done.new, known=done.known, checkpoint=entry)

    def error(self, error: HarnessError) -> None:
        """Print why a scan failed."""
        _print_event("trouble", message=error.message, hint=error.hint)

    def carry_out(self, prepared: PreparedRun) -> Report:
        """Run an evaluation with its progress on standard error."""
        return progress.follow_run(prepared, create_console(stderr=True))

    def print_watch(self, watch: Watch) -> None:
        """Print the watch with its scores."""
        _print_event("end", watch=watch.dump_output())


def _print_event(event: str, **facts: Any) -> None:
    click.echo(json.dumps({"schema": SCHEMA, "event": event, **facts}, ensure_ascii=False))


def _print_json(**facts: Any) -> None:
    click.echo(json.dumps({"schema": SCHEMA, **facts}, indent=1, ensure_ascii=False))


def _show_watches(name: str | None, listing: bool, as_json: bool, values: dict[str, Any]) -> int:
    """Show one watch, or all of them; nothing is evaluated."""
    results = files.resolve_results_folder(values["results"])
    if not listing:
        if name is None:
            raise UsageError("Which watch?", hint="Type harness watch NAME --show, or harness watch --list.")
        watch = read_watch(results, _resolve_watch_name(results, name))
        if as_json:
            _print_json(watch=watch.dump_output())
        else:
            _print_watch(watch, create_console(), task=values["task"])
        return 0
    watches = [read_watch(results, one) for one in WATCHES.list_names(results)]
    if as_json:
        _print_json(watches=[_build_watch_row(one) for one in watches])
    else:
        _print_list(watches, results, create_console())
    return 0


def _resolve_watch_name(results: Path, text: str) -> str:
    """The name of a watch, by its name or its source."""
    if text in WATCHES.list_names(results):
        return text
    # The text may be no source at all; the caller then says that no watch has this name.
    with contextlib.suppress(UsageError):
        return choose_watch_name(open_source(text))
    return text


def _read_rows(runs: Sequence[str], table: Path | None, results: Path) -> list[dict[str, Any]]:
    """The rows of watches, each with the name of its run, or those of a file."""
    if runs and table:
        raise UsageError("--run and --runs both name runs.", hint="Leave one of them out.")
    if table:
        return read_table(table)
    pairs = [run.partition("=")[::2] for run in runs]
    if bad := [run for run, (name, watch) in zip(runs, pairs, strict=True) if not name or not watch]:
        raise UsageError(f"{bad[0]!r} is not of the form NAME=WATCH.", hint="Type e.g. --run a=runs/a-1.")
    names = [_resolve_watch_name(results, watch) for _, watch in pairs]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"The watch {twice[0]} is given twice.", hint="Each seed is a watch of its own.")
    return read_watch_rows([(run, name) for (run, _), name in zip(pairs, names, strict=True)], results)


def _compare_runs(
    column: str, curves: Sequence[SeedCurve], axis: str, reach: float | None, as_json: bool
) -> None:
    """Show several runs beside one another, and again without those that diverged."""
    sound = [curve for curve in curves if not curve.diverged]
    comparison = compare_runs(curves, reach)
    # At the same score, so that both answer one question.
    without = compare_runs(sound, comparison.score) if 0 < len(sound) < len(curves) else None
    if as_json:
        points = [
            {**asdict(one), "budgets": one.budgets.tolist(), "scores": one.scores.tolist()} for one in curves
        ]
        parts = {"comparison": asdict(comparison), "without_diverged": without and asdict(without)}
        _print_json(column=column, against=axis, curves=points, **parts)
        return
    console = create_console()
    _print_comparison(f"{column} against {axis}", comparison, axis, console)
    diverged = [f"{curve.name} diverged: {curve.diverged}." for curve in curves if curve.diverged]
    print_lines(diverged, console, style="red")
    if without:
        _print_comparison("Without what diverged", without, axis, console)


def _show_grid(grid: RunGrid, as_json: bool) -> None:
    """Show runs on two facts, the highest bin on top."""
    if as_json:
        means, counts = grid.list_cells()
        _print_json(**grid.model_dump(mode="json", exclude={"name", "when"}), means=means, counts=counts)
        return
    across, up = grid.axes
    title = f"{grid.column}: mean × 100 (runs) by {across.name} across and {up.name} up"
    table = create_table(up.name, numbers=across.format_bins(), title=title)
    for name, *lines in reversed([*zip(up.format_bins(), *grid.compute_cells(), strict=True)]):
        cells = [f"{mean:.2f} ({n})" if n else "none" for mean, n in zip(*lines, strict=True)]
        table.add_row(name, *cells)
    print_table(table, create_console())
    print_lines(grid.notes)


def _print_comparison(title: str, comparison: CurveComparison, axis: str, console: Console) -> None:
    title = f"{title}, scores × 100 with 95 % intervals over seeds"
    table = create_table(numbers=(axis, *comparison.scores), title=title)
    for budget, *scores in zip(comparison.budgets, *comparison.scores.values(), strict=True):
        table.add_row(format_amount(budget), *(score.format_ends("{:.2f}".format) for score in scores))
    print_table(table, console)
    print_lines(_iter_comparison_lines(comparison, axis), console)


def _iter_comparison_lines(comparison: CurveComparison, axis: str) -> Iterator[str]:
    """What each run takes to the score, and what is known of each two runs."""
    for reach in comparison.reaches:
        count = "" if reach.reached == reach.seeds else f"{reach.reached} of {reach.seeds} seeds"
        early = f"{reach.early} of {reach.seeds} seeds at their first point" if reach.early else count
        budget = f"{axis} {reach.budget.format_ends(format_amount)}" if reach.budget else early
        yield f"{reach.run} reaches {comparison.score:.2f}: {budget}"
    for pair in comparison.pairs:
        speed = (
            f"reaches it {pair.speedup.format_ends('{:.2f}'.format)} × as fast"
            if pair.speedup and pair.speedup.low is not None
            else ""
            if pair.speedup
            else "no speed-up, as not all seeds reach it between two points"
        )
        yield f"{pair.run} against {pair.other}: {'; '.join(filter(None, (pair.describe_verdict(), speed)))}"


def _describe_evaluation(done: EvaluatedCheckpoint) -> str:
    """Whether a checkpoint was evaluated now, its scores were known, or nothing was scored."""
    if done.new:
        return "evaluated"
    return "known already" if done.known else "nothing scored"


def _format_checkpoint(done: EvaluatedCheckpoint) -> str:
    """A line on an evaluated checkpoint."""
    entry = done.entry
    mean = f"mean {score_text(entry.mean)}" if entry.mean is not None else entry.state
    tasks = f"{done.new} scored now, {done.known} known"
    same = f"; the same weights as step {entry.same_as}" if entry.same_as is not None else ""
    reason = f": {entry.reason}" if entry.reason else ""
    tested = f"; {_look_text(entry.look)}" if entry.look is not None and not same else ""
    how = _describe_evaluation(done)
    return f"step {entry.step} ({entry.name}): {how} ({tasks}), {mean}{reason}{same}{tested}"


def _look_text(look: Look) -> str:
    """The outcome of a checkpoint's test, with its interval, p-value and level."""
    if look.verdict == "same":
        return f"the same outputs as step {look.reference}"
    part = f", over {look.columns} of {look.wanted} columns" if look.columns < look.wanted else ""
    interval = f"{format_delta(look.delta)} [{format_delta(look.low)}, {format_delta(look.high)}]"
    p = "< 0.000001" if look.p < 1e-6 else f"= {look.p:.2g}"
    verdict = look.verdict.upper() if look.verdict == "lower" else look.verdict
    return f"{verdict} than step {look.reference}: {interval}, p {p} (level {look.level:.2g}){part}"


def _scan_lines(scan: Scan, *, skipped: bool) -> list[str]:
    """Lines on waiting checkpoints and lost scores and, with `skipped`, on skipped entries."""
    lines = [f"waiting for {_format_checkpoint_name(one.checkpoint)}: {one.reason}" for one in scan.waiting]
    lines += [f"{one.reason}." for one in scan.lost]
    if skipped:
        lines += [f"skipped {one.name}: {one.reason}" for one in scan.skipped]
    return lines


def _format_change_point(change: ChangePoint) -> str:
    """A drop with its step, its size and its probability by chance."""
    size = f"{100 * change.size:.2f} points"
    if change.kind == "shift":
        return f"from step {change.step} on the level is {size} lower ({_format_chance(change.p, 'curves')})"
    to = f" (to step {change.last})" if change.last != change.step else ""
    chance = _format_chance(change.p, "checkpoints")
    return f"step {change.step}{to} is {size} below the level expected from earlier checkpoints ({chance})"


def _print_watch(watch: Watch, console: Console, *, task: str = "") -> None:
    """Print the curve, the table and the flagged drops."""
    if not watch.checkpoints:
        console.print(
            f"{watch.name}: no checkpoint of {watch.source} has been evaluated yet. Checkpoints are folders, "
            "or branches and tags, with a step in their name, e.g. step-1000.",
            highlight=False,
            soft_wrap=True,
        )
        return
    points = _collect_curve_points(watch, task)
    task_count = max((one.wanted for one in watch.checkpoints), default=0)
    plural = "" if task_count == 1 else "s"
    what = task or f"mean of {task_count} task{plural}"
    console.print(
        f"{watch.name}: {what} of {watch.suite}, scores × 100", style="bold", highlight=False, soft_wrap=True
    )
    if points:
        scores = [score for _, score in points]
        console.print(
            f"{score_text(min(scores))} {_draw_sparkline(scores)} {score_text(max(scores))}", highlight=False
        )
    print_table(_build_watch_table(watch, dict(points), task), console)
    for entry in watch.lower:
        text = f"step {entry.step} is {_look_text(entry.look)}" if entry.look is not None else ""
        console.print(text, style="red", highlight=False, soft_wrap=True)
    for entry in watch.lost:
        console.print(f"{entry.reason}.", style="red", highlight=False, soft_wrap=True)
    for change in watch.change_points:
        console.print(_format_change_point(change), style="red", highlight=False, soft_wrap=True)
    off = [one for one in watch.checkpoints if one.mean is not None and one not in watch.curve]
    if off:
        console.print(
            f"{len(off)} measured on other data or by other code: not on the curve.", highlight=False
        )


def _build_watch_row(watch: Watch) -> dict[str, Any]:
    """A watch as a row of the list."""
    states: list[str] = [one.state for one in watch.checkpoints]
    last = max(watch.curve, key=lambda one: one.step, default=None)
    return {
        "name": watch.name,
        "source": watch.source,
        "suite": watch.suite,
        **{state: states.count(state) for state in STATES},
        "last_step": None if last is None else last.step,
        "last_mean": None if last is None else last.mean,
        "lower": [one.step for one in watch.lower],
        "drops": [change.step for change in watch.change_points],
    }


def _print_list(watches: Sequence[Watch], results: Path, console: Console) -> None:
    """Print the watches of a results folder."""
    from rich.table import Table

    if not watches:
        console.print(
            f"No watch in {results} yet: `harness watch FOLDER --suite SUITE` starts one.",
            highlight=False,
            soft_wrap=True,
        )
        return
    table = Table()
    names = ("name", "source", "suite", "checkpoints", "last step", "last mean", "lower", "drops", "curve")
    for name in names:
        table.add_column(name)
    for watch in watches:
        row = _build_watch_row(watch)
        states = [f"{row[state]} {state}" for state in STATES if row[state]]
        last = "–" if row["last_step"] is None else str(row["last_step"])
        lower, drops = (", ".join(map(str, row[name])) for name in ("lower", "drops"))
        curve = [one.mean for one in watch.curve if one.mean is not None]
        about = (row["name"], row["source"], row["suite"], ", ".join(states) or "none")
        table.add_row(*about, last, score_text(row["last_mean"]), lower, drops, _draw_sparkline(curve))
    print_table(table, console)


def _collect_curve_points(watch: Watch, task: str) -> list[tuple[int, float]]:
    if not task:
        return [(one.step, one.mean) for one in watch.curve if one.mean is not None]
    task_names = {name for one in watch.checkpoints for name in one.scores}
    if watch.checkpoints and task not in task_names:
        raise explain_unknown(
            "task of this watch", task, task_names, then=f"`harness list tasks --match {task}`."
        )
    # Checkpoints that were measured on other data or by other code are no points of the same curve.
    latest = max(
        (one for one in watch.checkpoints if task in one.scores), key=_get_evaluation_time, default=None
    )
    alike = [one for one in watch.checkpoints if latest and one.treatment == latest.treatment]
    return [(one.step, one.scores[task]) for one in alike if task in one.scores]


def _get_evaluation_time(entry: WatchEntry) -> str:
    return entry.evaluated


def _build_watch_table(watch: Watch, points: dict[int, float], task: str) -> Table:
    from rich.table import Table

    table = Table()
    for name in ("step", "score", "Δ"):
        table.add_column(name, justify="right")
    table.add_column("tasks", justify="right")
    table.add_column("against a checkpoint before")
    table.add_column("")
    before: float | None = None
    for entry in watch.checkpoints:
        score = points.get(entry.step)
        delta = "" if score is None or before is None else format_delta(score - before)
        tasks = f"{entry.there}/{entry.wanted}" if entry.wanted else ""
        tested = _format_checkpoint_test(entry) if not task else ""
        table.add_row(
            f"{entry.step:,}", score_text(score), delta, tasks, tested, _describe_flags(watch, entry, task)
        )
        # A step without a score is passed over: the next delta is from the last score before it.
        before = before if score is None else score
    return table


def _format_checkpoint_test(entry: WatchEntry) -> str:
    """The difference from the earlier checkpoint that it is compared with, for the table."""
    look = entry.look
    if look is None:
        return f"not tested: {entry.untested}" if entry.untested else ""
    if look.verdict == "same":
        return f"{look.reference:,}: same"
    interval = f"{format_delta(look.delta)} [{format_delta(look.low)}, {format_delta(look.high)}]"
    return f"{look.reference:,}: {interval}{' LOWER' if look.verdict == 'lower' else ''}"


def _describe_flags(watch: Watch, entry: WatchEntry, task: str) -> str:
    """The remarks on a checkpoint in the table."""
    remarks = [f"{entry.state}: {entry.reason}"] if entry.reason or entry.state != "done" else []
    for change in watch.change_points if not task else ():
        if change.step == entry.step:
            remarks.append(f"{change.kind} of {100 * change.size:.2f} ({_format_chance(change.p)})")
        elif change.step < entry.step <= change.last:
            remarks.append("still low")
    remarks += [f"the same weights as step {entry.same_as}"] if entry.same_as is not None else []
    return "; ".join(remarks)


def _format_chance(p: float, of: str = "") -> str:
    """The probability of a drop by chance, in words.

    >>> _format_chance(0.0004, "curves"), _format_chance(0.0)
    ('by chance in 1 of 2,500 curves', 'by chance in less than 1 of 1,000,000')
    """
    share = f"1 of {1 / p:,.0f}" if p > 1e-6 else "less than 1 of 1,000,000"
    return f"by chance in {share}{f' {of}' if of else ''}"


def _format_checkpoint_name(checkpoint: Checkpoint) -> str:
    return f"step {checkpoint.step} ({checkpoint.name})"


_BLOCKS = "▁▂▃▄▅▆▇█"


def _draw_sparkline(values: Sequence[float]) -> str:
    """Values as a row of bars, one each, from the lowest value to the highest.

    >>> _draw_sparkline([1, 5, 3]), _draw_sparkline([0.2, 0.2]), _draw_sparkline([])
    ('▁█▅', '▄▄', '')
    """
    if not values or min(values) == max(values):
        return "▄" * len(values)
    low, spread = min(values), max(values) - min(values)
    return "".join(_BLOCKS[min(int((value - low) / spread * 8), 7)] for value in values)
