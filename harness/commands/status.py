"""`harness status`: what runs where, what waits for what, failures, the cost so far and the time left."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from harness.commands import options
from harness.core import files
from harness.core.terminal import create_console, create_table, print_lines, print_table
from harness.driver.run_status import Cost, JobUnderWay, RunStatus, Wait, read_runs
from harness.executors.run_log import format_device_uses, format_node_counts
from harness.results.cost.duration import format_duration

SCHEMA = 1
"""The version of the --json output (docs/json.md)."""

ROWS = 12
"""The running jobs and the nodes that are shown one by one, unless all are asked for."""

KINDS = {
    "train": ("training", "trainings"),
    "resolve": ("check of a model", "checks of models"),
    "encode": ("encoding", "encodings"),
    "finetune": ("run", "runs"),
    "select": ("choice", "choices"),
    "score": ("score", "scores"),
    "rank": ("ranking", "rankings"),
}
"""The kinds of jobs in words: one, and several."""

NAMES = 2
"""The jobs that one cause of failures names."""

TROUBLES = {
    "failed": "FAILED",
    "lost": "LOST with its node, made again",
    "retried": "FAILED and tried again",
}

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
"""What sets a colour of a terminal."""

_MODEL = re.compile(r" \([^()]*\)")
"""The model in a job's name."""

STYLES = {
    "running": "bold green",
    "finished": "bold green",
    "failed": "bold red",
    "stopped": "bold yellow",
    "dead": "bold red",
}


@click.command("status")
@options.results
@click.option("--all", "everything", is_flag=True, help="Show every run that has a log, and every row.")
@click.option(
    "--watch",
    "every",
    type=options.Amount(least=0.5),
    default=None,
    is_flag=False,
    flag_value=2.0,
    metavar="[SECONDS]",
    help="Show the state again every SECONDS (default: 2), until Ctrl-C.",
)
@options.as_json
def command(results: Path | None, everything: bool, every: float | None, as_json: bool) -> int:
    """Show the current runs of a results folder, and the last one that has ended.

    It reads the logs of the runs, and works on any machine that sees the folder. The exit code is 0 even if
    runs failed.
    """
    folder = files.resolve_results_folder(results)
    if every is None:
        _show_runs(folder, everything, as_json=as_json)
        return 0
    try:
        while True:
            _show_runs(folder, everything, as_json=as_json, redraw=True)
            time.sleep(every)
    # Ctrl-C is how a user ends --watch, and no fault.
    except KeyboardInterrupt:
        return 0


def _show_runs(folder: Path, everything: bool, *, as_json: bool, redraw: bool = False) -> None:
    """Print the chosen runs once; on a terminal in place of what was there."""
    chosen = read_runs(folder / "runs", over=None if everything else 1)
    if not everything:
        chosen = [run for number, run in enumerate(chosen) if not _has_continuation(run, chosen[:number])]
    # A sort keeps the order of equals: running runs first, and of each kind the newest first.
    chosen.sort(key=lambda run: run.state != "running")
    if as_json:
        document = {"schema": SCHEMA, "results": str(folder), "runs": [run.to_json() for run in chosen]}
        click.echo(json.dumps(document, indent=None if redraw else 1, ensure_ascii=False))
        return
    out = create_console()
    if not (redraw and out.is_terminal):
        _print_runs(chosen, folder, out, everything)
        return
    with out.capture() as shown:
        _print_runs(chosen, folder, out, everything)
    # One row stays free: a line feed in the last one would scroll the screen.
    lines = _cut_screen_lines(shown.get().splitlines(), out.size.width, out.size.height - 1)
    # To the top left (H), each line over the old one with its rest cleared (K), then all below (J). Clearing
    # the screen first would flicker.
    out.file.write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
    out.file.flush()


def _has_continuation(run: RunStatus, newer: Sequence[RunStatus]) -> bool:
    """Whether a run that did not come to its end was begun again by the same command."""
    return run.state in ("dead", "stopped") and any(one.command == run.command for one in newer)


def _cut_screen_lines(lines: Sequence[str], width: int, height: int) -> Iterator[str]:
    """The first lines that fit on a terminal, which wraps long ones; colours take no room."""
    for line in lines:
        # Rounded up: a line that is one character too long takes two rows.
        height -= max(1, -(-len(_COLOUR.sub("", line)) // width))
        if height < 0:
            return
        yield line


def _print_runs(runs: Sequence[RunStatus], folder: Path, out: Console, everything: bool) -> None:
    if not any(run.state == "running" for run in runs):
        remark = "" if folder.is_dir() else ", which is not there"
        last = "."
        if runs:
            last = "; the last one:" if len(runs) == 1 else "; the last ones:"
        print_lines([f"No run is under way in {folder}{remark}{last}"], out)
    if not runs:
        print_lines(["Start one: harness run --model MODEL --suite SUITE"], out)
    for number, run in enumerate(runs):
        if number:
            out.print()
        _print_run(run, out, len(run.running) + len(run.nodes) if everything else ROWS)


def _print_run(run: RunStatus, out: Console, rows: int) -> None:
    """The state of a run: what it needs from a person first, then what goes on, then its cost."""
    for line in (*_iter_headlines(run), *_iter_trouble_lines(run)):
        out.print(line, soft_wrap=True)
    for title, lines in (
        ("nodes", [*_iter_node_lines(run, rows)]),
        ("waiting", [*map(_wait_text, run.waits)]),
    ):
        for number, line in enumerate(lines):
            out.print(Text.assemble("  ", (title if number == 0 else " " * len(title), "bold"), "  ", line))
    out.print(Text.assemble("  ", ("cost", "bold"), f"     {_format_run_cost(run.cost)}"))
    if run.uses:
        use = f"encoding or training: {format_device_uses(run.uses, run.seconds)} of the time"
        out.print(Text.assemble("  ", ("devices", "bold"), f"  {use}"))
    out.print(Text.assemble("  ", ("driver", "bold"), f"   {_describe_driver(run)}"))
    _print_running(run, out, rows)


def _iter_headlines(run: RunStatus) -> Iterator[Text]:
    """How the run is and the time that is left, its command, and how many of its jobs are done."""
    state = "RUNNING for" if run.state == "running" else f"{run.state.upper()} after"
    broken = run.state in ("dead", "stopped")
    detail = f", {_format_time_left(run)}" if run.state == "running" else _describe_end(run)
    yield Text.assemble(
        (f"{state} {_format_rough_duration(run.seconds)}", STYLES[run.state]), (detail, "bold")
    )
    if run.reason:
        yield Text(f"  {run.reason}", style="bold red")
    if run.command:
        yield Text(f"  {run.command}", style="bold" if broken else "dim")
    total = sum(sum(states.values()) for states in run.counts.values())
    parts = [f"{run.count('done', 'shared', 'known'):,} of {total:,} jobs done"]
    verb = "" if run.state == "running" else "was " if run.count("running") == 1 else "were "
    for state, words in (("running", f"{verb}under way"), ("waiting", "waiting")):
        parts += [f"{run.count(state):,} {words}"] if run.count(state) else []
    text = Text("  " + ", ".join(parts))
    for state, words in (("failed", "failed"), ("skipped", "skipped for that")):
        text.append(f", {run.count(state):,} {words}" if run.count(state) else "", "bold red")
    yield text


def _format_time_left(run: RunStatus) -> str:
    if run.left is None:
        return "time left unknown"
    low, high = _format_rough_duration(run.left.low), _format_rough_duration(run.left.high)
    return f"about {_format_rough_duration(run.left.seconds)} left (80 %: {low} to {high})"


def _describe_end(run: RunStatus) -> str:
    """Since when the run is over, and how to go on where it did not come to its end."""
    ago = "" if run.age is None else f" {_format_rough_duration(run.age)} ago"
    if run.state not in ("dead", "stopped"):
        return f",{ago}" if ago else ""
    what = f": its driver died{ago}" if run.state == "dead" else f",{ago}"
    return f"{what}. What was finished is kept; to go on type"


def _format_rough_duration(seconds: float) -> str:
    """A duration in words, to the minute.

    >>> _format_rough_duration(7.4), _format_rough_duration(192), _format_rough_duration(7300)
    ('7 s', '3 min', '2 h 2 min')
    """
    return (
        format_duration(seconds if seconds < 60 else 60 * round(seconds / 60))
        .removesuffix(" 0 s")
        .removesuffix(" 0 min")
    )


def _describe_driver(run: RunStatus) -> str:
    executor = f"; {run.executor}" if run.executor else ""
    return f"process {run.pid} on {run.host} since {run.started[:16].replace('T', ' ')} UTC{executor}"


def _iter_trouble_lines(run: RunStatus) -> Iterator[Text]:
    """Each cause of failures and of lost work, with the jobs that it hit."""
    for trouble in run.troubles:
        style = "bold red" if trouble.how == "failed" else "bold yellow"
        count = len(trouble.labels)
        names = list(dict.fromkeys(_shorten_label(label, run) for label in trouble.labels))
        more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
        title = TROUBLES[trouble.how] + (f", {count:,} jobs" if count > 1 else "")
        yield Text.assemble("  ", (title, style), f"  {'; '.join(names[:NAMES])}{more}")
        yield Text(f"    {trouble.cause or 'The cause is not known.'}")
        if trouble.hint:
            yield Text(f"    {trouble.hint}", style="dim")


def _shorten_label(label: str, run: RunStatus) -> str:
    """A job's name without the model in brackets, where the run has only one."""
    labels = [job.label for job in run.running] + [one for found in run.troubles for one in found.labels]
    models = {found[0] for found in map(_MODEL.search, labels) if found is not None}
    return _MODEL.sub("", label) if len(models) == 1 else label


def _iter_node_lines(run: RunStatus, rows: int) -> Iterator[Text]:
    """The nodes of a cluster: those that are lost first, of the others how many workers are busy."""
    if run.state != "running" or not run.nodes:
        return
    yield Text(format_node_counts(run.nodes))
    order = ("lost", "alive", "asked for")
    nodes = sorted((node for node in run.nodes if node.name), key=lambda node: order.index(node.state))
    for node in nodes[:rows]:
        reason = f": {node.reason}" if node.reason else ""
        if node.state == "alive":
            yield Text(f"{node.name} {node.busy} of {node.size} workers busy{reason}")
        else:
            style = "bold red" if node.state == "lost" else "yellow"
            yield Text.assemble(f"{node.name} ", (node.state, style), reason)
    if len(nodes) > rows:
        yield Text(f"and {len(nodes) - rows} more (--all)", style="dim")


def _wait_text(wait: Wait) -> Text:
    """A line on jobs that wait for the same."""
    behind = {
        "worker": "a free worker",
        "elsewhere": "another process, which has claimed the work",
        "jobs": _format_job_counts(wait.behind) + (f" ({wait.label})" if wait.label else ""),
    }[wait.reason]
    return Text(f"{_format_job_counts(wait.counts)} for {behind}")


def _format_job_counts(counts: Mapping[str, int]) -> str:
    """Numbers of jobs by kind.

    >>> _format_job_counts({"score": 1, "encode": 12})
    '12 encodings, 1 score'
    """
    return ", ".join(
        f"{counts[kind]:,} {one if counts[kind] == 1 else several}"
        for kind, (one, several) in KINDS.items()
        if counts.get(kind)
    )


def _print_running(run: RunStatus, out: Console, rows: int) -> None:
    """The running jobs, the longest first: where, since when, how far."""
    if not run.running:
        return
    table = create_table(
        "under way" if run.state == "running" else "was under way", "where", "for", "how far"
    )
    table.columns[2].justify = "right"
    for job in run.running[:rows]:
        where = " ".join(filter(None, (job.node, ",".join(job.devices))))
        kind = "" if job.kind == "finetune" else f"{KINDS[job.kind][0]} "
        table.add_row(
            f"{kind}{_shorten_label(job.label, run)}",
            where,
            _format_rough_duration(job.seconds),
            _format_job_progress(job),
        )
    print_table(table, out)
    if len(run.running) > rows:
        out.print(f"  and {len(run.running) - rows} more (--all)", style="dim", highlight=False)


def _format_job_progress(job: JobUnderWay) -> str:
    """How far a job is: the share of its steps or texts, and its present step."""
    if not job.total:
        return job.step
    share = f"{100 * job.done / job.total:.0f} %"
    return share if job.unit == "steps" else f"{job.step}, {share}"


def _format_run_cost(cost: Cost) -> str:
    """Hours of devices and of CPU workers, with those of lost work."""
    parts = [
        f"{_format_hours(spent)} {unit}" + (f", {_format_hours(lost)} more lost" if lost else "")
        for spent, lost, unit in (
            (cost.device_hours, cost.lost_device_hours, "device-hours"),
            (cost.cpu_hours, cost.lost_cpu_hours, "hours of CPU workers"),
        )
        if spent or lost
    ]
    return "; ".join(parts) or "nothing yet"


def _format_hours(hours: float) -> str:
    """Hours with as many digits as matter.

    >>> _format_hours(0.012), _format_hours(3.14), _format_hours(1234.5)
    ('0.01', '3.1', '1,234')
    """
    if hours < 100:
        return f"{hours:.2f}" if hours < 1 else f"{hours:.1f}"
    return f"{hours:,.0f}"
