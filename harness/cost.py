"""What a plan will cost: texts, tokens, FLOPs, and time where this machine has measured the rate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.record import Record
from harness.types import Size

if TYPE_CHECKING:
    from rich.console import Console

    from harness.api import Prepared
    from harness.plan import Cell
    from harness.types import Suite

CHARACTERS_PER_TOKEN = 4.0
"""A rough figure for English; the estimate says it is one."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """The cost of one wanted score; None where it is not known before loading.

    Texts and characters are upper estimates: what earlier runs encoded is not subtracted.
    """

    model: str
    task: str
    state: str
    texts: int | None
    tokens: int | None
    flops: float | None
    seconds: float | None


def estimate(prepared: Prepared) -> list[Line]:
    """One line for each cell of the plan."""
    records = list(prepared.store.records())
    return [_line(cell, records) for cell in prepared.plan.cells]


def to_json(lines: list[Line]) -> dict[str, Any]:
    """The estimate for machines (docs/json.md)."""
    from dataclasses import asdict

    return {"schema": 1, "plan": [asdict(line) for line in lines]}


def show(lines: list[Line], suites: Sequence[Suite], console: Console) -> None:
    """The estimate as a table with its totals, and what could not be made of the data."""
    from rich.table import Table

    table = Table(title="plan; nothing was run", title_justify="left")
    for name in ("model", "task", "state"):
        table.add_column(name)
    for name in ("texts ≤", "tokens ≈", "TFLOPs ≈", "time ≈"):
        table.add_column(name, justify="right")
    for line in lines:
        table.add_row(line.model, line.task, line.state, *_numbers(line))
    console.print(table)
    for note in dict.fromkeys(note for suite in suites for note in suite.notes):
        console.print(note, style="dim", highlight=False, soft_wrap=True)
    to_do = [line for line in lines if line.state == "to do"]
    known = [line.seconds for line in to_do if line.seconds is not None]
    more = "" if len(known) == len(to_do) else f", and {len(to_do) - len(known)} of unknown time"
    console.print(
        f"{len(to_do)} to do, {sum(line.state == 'done' for line in lines)} done, "
        f"{sum(line.state == 'cannot run' for line in lines)} cannot run; about {_time(sum(known))}{more}.",
        highlight=False,
    )


def _line(cell: Cell, records: Iterable[Record]) -> Line:
    size = cell.task.size if cell.problem is None else Size()
    tokens = None
    if size.texts is not None and size.characters is not None:
        longest = size.texts * cell.subject.encoding.max_length
        tokens = min(round(size.characters / CHARACTERS_PER_TOKEN) + 2 * size.texts, longest)
    same = [r for r in records if r.model.artifact == cell.subject.artifact.key]
    rates = [r.provenance["tokens_per_second"] for r in same if r.provenance.get("tokens_per_second")]
    parameters = next((r.model.parameters for r in same if r.model.parameters), None)
    state = "cannot run" if cell.problem else "to do" if cell.record is None else "done"
    return Line(
        model=cell.subject.artifact.name,
        task=cell.task.name,
        state=state,
        texts=size.texts,
        tokens=tokens,
        flops=2.0 * parameters * tokens if parameters and tokens else None,
        seconds=tokens / (sum(rates) / len(rates)) if tokens and rates else None,
    )


def _numbers(line: Line) -> list[str]:
    return [
        "?" if line.texts is None else f"{line.texts:,}",
        "?" if line.tokens is None else f"{line.tokens:,}",
        "?" if line.flops is None else f"{line.flops / 1e12:,.1f}",
        "?" if line.seconds is None else _time(line.seconds),
    ]


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
