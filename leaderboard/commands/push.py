"""`harness push`: finished records to a site that takes them."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import click
from rich.progress import Progress

from harness.commands import options
from harness.core import paths
from harness.core.errors import HarnessError, UsageError
from harness.core.terminal import console
from harness.storage.store import Store
from leaderboard.web.push import Answer, Client, Outcome, Parcel, address, is_open
from leaderboard.web.tokens import PREFIX

Sent = tuple["Parcel", "Answer"]


@click.command("push")
@click.option(
    "--to", "site", required=True, metavar="URL", help="Address of the site, e.g. https://example.org."
)
@click.option(
    "--token-env",
    "variable",
    default="HARNESS_TOKEN",
    show_default=True,
    metavar="NAME",
    help="Environment variable that holds the token; never the token itself.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be sent; send nothing.")
@options.results
@options.as_json
def command(site: str, variable: str, dry_run: bool, results: Path | None, as_json: bool) -> int:
    """Push finished records to a site; what is there already stays as it is.

    Failures, trials, per-example files and runs stay here. Exit codes: 0 everything is there now, 1 some
    of it is not, 2 misuse, such as a token that does not hold.
    """
    site = address(site)
    parcels = _parcels(results)
    if dry_run:
        _print(site, [(p, Answer(outcome="not-sent")) for p in parcels], dry=True, as_json=as_json)
        return 0
    secret = _secret(variable)
    if is_open(site):
        click.echo("The token goes over http, where it can be read on the way; https hides it.", err=True)
    sent, error = _send(site, secret, parcels, quiet=as_json)
    if error is not None and error.exit_code == 2 and not sent:
        raise error
    rest = [(parcel, Answer(outcome="not-sent")) for parcel in parcels[len(sent) :]]
    _print(site, [*sent, *rest], dry=False, as_json=as_json)
    if error is not None:
        raise error
    return 0 if all(answer.outcome in ("created", "known") for _, answer in sent) else 1


def _parcels(results: Path | None) -> list[Parcel]:

    folder = paths.results_folder(results)
    if not (folder / "records").is_dir():
        raise UsageError(f"{folder} holds no records.", hint="Choose another folder with --results DIR.")
    return [Parcel.of(record) for record in Store(folder).records()]


def _secret(variable: str) -> str:

    if variable.startswith(PREFIX):
        raise UsageError(
            "--token-env takes the name of a variable, not the token itself.",
            hint="Revoke this token (`harness token revoke`): it stands in the shell's history now.",
        )
    secret = os.environ.get(variable, "").strip()
    if not re.fullmatch("[!-~]+", secret):
        raise UsageError(
            f"There is no token in {variable}.",
            hint="`harness token create NAME` makes one, where the site's results lie.",
        )
    return secret


def _send(
    site: str, secret: str, parcels: Sequence[Parcel], *, quiet: bool
) -> tuple[list[Sent], HarnessError | None]:
    """Send one after another up to the first error that all would have."""
    sent: list[Sent] = []
    with _progress(quiet=quiet) as bar:
        task = bar.add_task("records", total=len(parcels))

        def waiting(seconds: float) -> None:
            bar.update(task, description=f"records (waiting {seconds:.0f} s for the site)")

        client = Client(site=site, secret=secret, waiting=waiting)
        for parcel in parcels:
            try:
                sent.append((parcel, client.push(parcel)))
            except HarnessError as error:
                return sent, error
            bar.update(task, advance=1, description="records")
    return sent, None


def _progress(*, quiet: bool) -> Progress:
    """A bar on a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    text, rest = TextColumn("{task.description}", markup=False), TimeRemainingColumn(compact=True)
    screen = console(stderr=True)
    hidden = quiet or not screen.is_terminal
    columns = (text, BarColumn(bar_width=30), MofNCompleteColumn(), rest)
    return Progress(*columns, console=screen, transient=True, disable=hidden)


def _print(site: str, rows: Sequence[Sent], *, dry: bool, as_json: bool) -> None:

    counts = Counter(answer.outcome for _, answer in rows)
    if as_json:
        records = [
            {"key": parcel.key, "model": parcel.model, "task": parcel.task, "outcome": answer.outcome,
             "status": answer.status or None, "reason": answer.reason or None}
            for parcel, answer in rows
        ]  # fmt: skip
        totals = {name.replace("-", "_"): counts[name] for name in get_args(Outcome)}
        document = {"schema": 1, "to": site, "dry_run": dry, **totals, "records": records}
        click.echo(json.dumps(document, indent=1))
        return
    for line in _would(site, rows) if dry else _did(site, rows, counts):
        click.echo(line)


def _would(site: str, rows: Sequence[Sent]) -> Iterator[str]:
    yield f"Would push {_counted(len(rows))} to {site}."
    for model, count in Counter(parcel.model for parcel, _ in rows).items():
        yield f"  {model}: {count}"


def _did(site: str, rows: Sequence[Sent], counts: Counter[Any]) -> Iterator[str]:
    for parcel, answer in rows:
        if answer.outcome == "refused":
            yield f"✗ {parcel.task} ({parcel.model}): {answer.status or ''} {answer.reason}".rstrip()
    said = [f"{counts['created']} new", f"{counts['known']} there already"]
    said += [f"{counts[name]} {name.replace('-', ' ')}" for name in ("refused", "not-sent") if counts[name]]
    yield f"{_counted(len(rows))} for {site}: {', '.join(said)}."


def _counted(number: int) -> str:
    return f"{number} record{'' if number == 1 else 's'}"
