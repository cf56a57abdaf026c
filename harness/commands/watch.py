"""`harness watch`: evaluate the checkpoints of a pretraining run as they come."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import click

from harness import paths, progress
from harness.commands import options
from harness.errors import HarnessError, UsageError, unknown
from harness.progress import console
from harness.report import Report
from harness.request import Prepared, Request, request_of_options
from harness.watch import state
from harness.watch.report import how, listed, print_list, print_watch, said_of, said_of_look
from harness.watch.source import open_source
from harness.watch.state import Watch, opened_suites, usual_name
from harness.watch.watch import Asked, Evaluated, Hearing, Look, follow

SCHEMA = 1
"""Version of what --json prints (docs/json.md)."""


@click.command("watch")
@click.argument("source", required=False)
@click.option("--suite", default=None, help="Suite, or suite:argument (`harness list suites`).")
@click.option("--name", default="", help="What the watch is called (default: as its folder or repository).")
@click.option(
    "--budget-minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=None,
    help="Start no further task of a checkpoint after so many minutes; it is gone on with when "
    "nothing newer waits.",
)
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=60.0,
    show_default=True,
    help="Seconds between two looks.",
)
@click.option(
    "--settle",
    type=click.FloatRange(min=0),
    default=10.0,
    show_default=True,
    help="Seconds for which nothing in a checkpoint may have changed.",
)
@click.option("--once", is_flag=True, help="End when nothing is left that can be evaluated now.")
@click.option(
    "--until",
    type=click.IntRange(min=0),
    default=None,
    help="End when the checkpoint of this step, or the next one behind it, and all before it are evaluated.",
)
@click.option("--task", default="", help="Draw the curve of this task (default: of the mean).")
@click.option("--list", "listing", is_flag=True, help="List the watches of the results folder.")
@click.option("--show", is_flag=True, help="Show the watch called SOURCE as it is; evaluate nothing.")
@options.evaluation
@options.as_json
def command(source: str | None, listing: bool, show: bool, as_json: bool, **given: Any) -> int:
    """Evaluate each new checkpoint of the run in SOURCE, a folder or a hub repository, and draw the curve.

    Checkpoints are folders, or branches and tags, with a step in their name. One that is still being
    written is waited for. Typed again, the same command goes on where it was.
    """
    if listing or show:
        return _tell(source, listing, as_json, given)
    if not source or not given["suite"]:
        raise UsageError(
            "A watch needs a folder or a hub repository, and a suite.",
            hint="Type harness watch FOLDER --suite SUITE; harness watch --list shows what there is.",
        )
    return _watch(source, as_json, given)


def _watch(source: str, as_json: bool, given: dict[str, Any]) -> int:
    minutes = given["budget_minutes"]
    budget = None if minutes is None else 60 * minutes
    request = request_of_options((), (given["suite"],), given, budget=budget)
    _require_task(given["task"], request)
    plainly = ("name", "every", "settle", "once", "until")
    wanted = Asked(source=source, request=request, **{name: given[name] for name in plainly})
    said = Json() if as_json else Spoken(given["task"], once=given["once"])
    watch = follow(
        wanted,
        Hearing(looked=said.looked, ended=said.ended, troubled=said.troubled, carry_out=said.carry_out),
    )
    said.over(watch)
    return 1 if any(one.state == "failed" for one in watch.checkpoints) else 0


def _require_task(name: str, request: Request) -> None:
    """Refuse a curve of a task that is not evaluated."""
    if name:
        known = {task.name for suite in opened_suites(request) for task in suite.tasks}
        if name not in known:
            raise unknown("task of this watch", name, known, then="Give one of them with --task.")


class Spoken:
    """Says to people how a watch goes on."""

    def __init__(self, task: str, *, once: bool) -> None:
        self._task, self._once = task, once
        self._err, self._out = console(stderr=True), console()
        self._skipped: frozenset[str] = frozenset()
        self._drawn: Watch | None = None

    def looked(self, found: Look) -> None:
        """What is waited for, every time; what is skipped, when it is another than before."""
        skipped = frozenset(one.name for one in found.skipped)
        for line in said_of_look(found, skipped=skipped != self._skipped):
            self._err.print(line, style="dim", highlight=False, soft_wrap=True)
        self._skipped = skipped

    def ended(self, done: Evaluated, watch: Watch) -> None:
        """A line for the checkpoint, and the curve anew."""
        self._out.print(said_of(done), highlight=False, soft_wrap=True)
        if not self._once:
            self.over(watch)

    def troubled(self, error: HarnessError) -> None:
        """Why a look failed."""
        self._err.print(f"{error.message} Looking again.", style="yellow", highlight=False, soft_wrap=True)

    def carry_out(self, prepared: Prepared) -> Report:
        """With a progress bar."""
        return progress.carry_out(prepared, self._err, quiet=False)

    def over(self, watch: Watch) -> None:
        """The curve and the table, unless they stand there already."""
        if watch == self._drawn:
            return
        self._drawn = watch
        scored = {name for one in watch.checkpoints for name in one.scores}
        print_watch(watch, self._out, task=self._task if self._task in scored else "")


class Json:
    """Prints one JSON object a line for machines."""

    def looked(self, found: Look) -> None:
        """What there is to do, what is waited for and what is skipped."""
        waiting = [
            {"step": o.checkpoint.step, "name": o.checkpoint.name, "reason": o.reason} for o in found.waiting
        ]
        ready = [one.checkpoint.step for one in (*found.new, *found.unfinished)]
        skipped = [{"name": one.name, "reason": one.reason} for one in found.skipped]
        _line("look", ready=ready, known=list(found.known), waiting=waiting, skipped=skipped)

    def ended(self, done: Evaluated, _watch: Watch) -> None:
        """What became of a checkpoint."""
        entry = done.entry.model_dump(mode="json")
        _line("checkpoint", how=how(done), scored=done.new, known=done.known, checkpoint=entry)

    def troubled(self, error: HarnessError) -> None:
        """Why a look failed."""
        _line("trouble", message=error.message, hint=error.hint)

    def carry_out(self, prepared: Prepared) -> Report:
        """Without a word."""
        return progress.carry_out(prepared, console(stderr=True), quiet=True)

    def over(self, watch: Watch) -> None:
        """The watch as it lies in the results folder."""
        _line("end", watch=watch.model_dump(mode="json", by_alias=True))


def _line(event: str, **facts: Any) -> None:
    click.echo(json.dumps({"schema": SCHEMA, "event": event, **facts}, ensure_ascii=False))


def _tell(name: str | None, listing: bool, as_json: bool, given: dict[str, Any]) -> int:
    """Show one watch, or all of them; nothing is evaluated."""
    results = paths.results_folder(given["results"])
    if not listing:
        if name is None:
            raise UsageError("Which watch?", hint="Type harness watch NAME --show, or harness watch --list.")
        watch = state.require(results, _named(results, name))
        if as_json:
            found = {"schema": SCHEMA, "watch": watch.model_dump(mode="json", by_alias=True)}
            click.echo(json.dumps(found, indent=1, ensure_ascii=False))
        else:
            print_watch(watch, console(), task=given["task"])
        return 0
    watches = [state.require(results, one) for one in state.names(results)]
    if as_json:
        rows = {"schema": SCHEMA, "watches": [listed(one) for one in watches]}
        click.echo(json.dumps(rows, indent=1, ensure_ascii=False))
    else:
        print_list(watches, results, console())
    return 0


def _named(results: Path, text: str) -> str:
    """The name of a watch, or that of the watch whose source was typed."""
    if text in state.names(results):
        return text
    with contextlib.suppress(UsageError):
        return usual_name(open_source(text))
    return text
