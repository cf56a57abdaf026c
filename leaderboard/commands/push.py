"""`harness push`: finished records to a site that takes them, again where the site asks to wait."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import Message
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

import click
from rich.progress import Progress

from harness.commands import options
from harness.core import paths
from harness.core.errors import HarnessError, UsageError
from harness.core.terminal import console
from harness.storage.record import Record
from harness.storage.store import Store
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


TRIES = 6
"""How often one record is sent before the site is given up."""

LONGEST_WAIT = 300.0
AGAIN = frozenset({429, 502, 503, 504})
"""Statuses after which the same record may be sent again."""

CLOSED = "This site takes no records."
"""What a site without tokens says."""

LARGE = 2**20
"""Bytes from which a connection that breaks may mean that the body is too large."""

Outcome = Literal["created", "known", "refused", "not-sent"]


class SiteError(HarnessError):
    """A site that cannot be reached, or that takes nothing now."""


@dataclass(frozen=True, kw_only=True)
class Parcel:
    """A record on its way."""

    key: str
    model: str
    task: str
    body: bytes

    @staticmethod
    def of(record: Record) -> Parcel:
        """The parcel of a record."""
        body = record.to_json().encode()
        return Parcel(key=record.key, model=record.model.name, task=record.task.name, body=body)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What became of a parcel: `status` is 0 where no answer came."""

    outcome: Outcome
    status: int = 0
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class _Reply:
    status: int
    content: Any = None
    after: float | None = None
    broken: str = ""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token to another place, and make a GET of a POST."""

    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass(frozen=True, kw_only=True)
class Client:
    """A site that records are pushed to.

    Attributes:
        site: Its address, e.g. `https://example.org/board`.
        secret: The token.
        waiting: Called with the seconds before each wait.
        sleep: How to wait; a test does not.
        timeout: Seconds without a sign of life after which a connection is given up.
    """

    site: str
    secret: str = field(repr=False)
    waiting: Callable[[float], None] = lambda seconds: None
    sleep: Callable[[float], None] = time.sleep
    timeout: float = 30.0

    def push(self, parcel: Parcel) -> Answer:
        """Send one record, again while the site asks to wait or cannot be reached.

        Raises:
            UsageError: The address or the token is wrong; no other record would fare better.
            SiteError: The site cannot be reached, or takes nothing now.
        """
        for attempt in range(TRIES):
            reply = self._send(parcel.body)
            if reply.status and reply.status not in AGAIN:
                return self._answer(reply, parcel)
            if attempt < TRIES - 1:
                seconds = min(2.0**attempt if reply.after is None else reply.after, LONGEST_WAIT)
                self.waiting(seconds)
                self.sleep(seconds)
        if reply.broken and len(parcel.body) > LARGE:
            reason = f"the connection broke ({reply.broken}); {len(parcel.body)} bytes may be too many"
            return Answer(outcome="refused", reason=reason)
        reason = reply.broken or f"{reply.status} {_message(reply)}"
        hint = "Push again later: nothing is sent twice."
        raise SiteError(f"{self.site} cannot be pushed to: {reason}.", hint=hint)

    def _send(self, body: bytes) -> _Reply:
        request = urllib.request.Request(f"{self.site}/api/records", data=body, method="POST")
        request.add_header("Content-Type", "application/json")
        request.add_header("Accept", "application/json")
        request.add_unredirected_header("Authorization", f"Bearer {self.secret}")
        try:
            with urllib.request.build_opener(_NoRedirect).open(request, timeout=self.timeout) as answer:
                return _Reply(status=answer.status, content=_json(answer.read(2**16)))
        except urllib.error.HTTPError as error:
            with error:
                content = None
                with contextlib.suppress(OSError, HTTPException):
                    content = _json(error.read(2**16))
                return _Reply(status=error.code, content=content, after=_after(error.headers))
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or str(error) or type(error).__name__
            return _Reply(status=0, broken=_clean(str(reason)))

    def _answer(self, reply: _Reply, parcel: Parcel) -> Answer:
        content = reply.content if isinstance(reply.content, dict) else {}
        if reply.status in (200, 201) and content.get("key") == parcel.key:
            return Answer(outcome="created" if content.get("created") else "known", status=reply.status)
        if reply.status in (400, 408, 409, 413, 415, 422, 500):
            return Answer(outcome="refused", status=reply.status, reason=_message(reply))
        raise UsageError(
            f"{self.site} takes no records from here: {reply.status} {_message(reply)}", hint=_hint(reply)
        )


def address(text: str) -> str:
    """A site's address without a slash at its end.

    Raises:
        UsageError: It is none.
    """
    try:
        parts = urlsplit(text)
        wrong = parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
    except ValueError:
        wrong = True
    if wrong or not text.isascii() or not text.isprintable() or " " in text:
        raise UsageError(f"{text!r} is not a site's address.", hint="Type --to https://example.org.")
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise UsageError(f"--to takes no user, query or fragment: {parts.hostname}{parts.path} would do.")
    return text.rstrip("/")


def is_open(site: str) -> bool:
    """Whether what is sent there can be read on the way."""
    parts = urlsplit(site)
    return parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1")


CREATE = "`harness token create NAME`, run where that site's results lie,"


def _hint(reply: _Reply) -> str:
    """What to do about an answer that every record would get."""
    if reply.status == 404 and _message(reply) == CLOSED:
        return f"It takes them once it has a token: {CREATE} makes one."
    if reply.status == 401:
        wrong = "The token in the variable that --token-env names is mistyped, expired or revoked"
        return f"{wrong}; {CREATE} makes a new one."
    if reply.status == 403:
        return f"{CREATE} makes one that may."
    return "--to takes the address of a site's first page, as it is after redirects."


def _message(reply: _Reply) -> str:
    error = reply.content.get("error") if isinstance(reply.content, dict) else None
    message = error.get("message") if isinstance(error, dict) else None
    return _clean(message) if isinstance(message, str) else "(no reason given)"


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _after(headers: Message) -> float | None:
    """Seconds that Retry-After asks for, given as such or as a date."""
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdecimal():
        return float(text[:9])
    try:
        return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


def _clean(text: str) -> str:
    """A stranger's text, fit for a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)[:300]
