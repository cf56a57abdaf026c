"""The ranking on a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.scores import score_text
from leaderboard.page import missing
from leaderboard.pages.suite.cells import choices_made, kinds_of, leaks, made_of, texts_text
from leaderboard.pages.task.scores import Scored
from leaderboard.scopes import WHY, Scope
from leaderboard.state import address
from leaderboard.tables import EMPTY, Cell, Column, Row, Table
from leaderboard.words import over_seeds, parameters_text, some_seeds

if TYPE_CHECKING:
    from leaderboard.views.task import TaskState

GONE = {"failed": "×", "bad": "!", "part": "–", "none": "–"}
"""What a cell without a number prints."""

TRUST_NOTES = {
    "measured": "The weights have a hash: they were measured here.",
    "commit": "The weights are those of one commit.",
    "external": "The number was told by the model's makers; the weights are not pinned.",
    "none": "The source does not say which weights were measured.",
    "other": "The revision is a name, not a commit: the weights behind it may change.",
    "reported": "A paper prints the number.",
}


@dataclass(frozen=True, kw_only=True)
class Shown:
    """Rows of the ranking: pinned ones, then the others, of which `first` to `last` are on the page."""

    pinned: Sequence[Scored]
    rest: Sequence[Scored]
    first: int
    last: int
    ranks: Mapping[int, int]


def ranking(shown: Shown, state: TaskState, scope: Scope, path: str) -> Table:
    """The ranking as a table.

    Raises:
        NotFound: The state sorts by a column that is none.
    """
    every = [*shown.pinned, *shown.rest]
    intervals = any(one.half is not None for one in every)
    columns = _columns(state, path, intervals=intervals)
    on_page = _ordered(shown, state)[max(shown.first - 1, 0) : shown.last]
    best = sorted({one.value for one in every if one.entry.id in shown.ranks and one.value is not None})[-2:]
    marks = (best[-1], best[0]) if len(best) > 1 else (best[-1] if best else None, None)
    rows = [_row(one, shown, state, scope, path, marks, pinned=True) for one in shown.pinned]
    rows += [_row(one, shown, state, scope, path, marks) for one in on_page]
    keys = {column.key for column in columns}
    return Table(
        name="ranking",
        caption=f"{scope.task}: scores × 100",
        columns=columns,
        rows=[
            Row(key=row.key, kind=row.kind, pin=row.pin, cells=[c for k, c in cells.items() if k in keys])
            for row, cells in rows
        ],
        notes=_notes(every, shown.ranks, scope, intervals=intervals),
    )


HEADS = (
    ("rank", "Rank", True, "Entries that cannot be told apart share a rank."),
    ("model", "Model", False, ""),
    ("score", "Score", True, "The bar behind it begins at 0 and ends at 100."),
    ("interval", "95 %", True, "The interval over seeds and examples, where it is known."),
    ("parameters", "Size", True, "Parameters."),
    ("origin", "Origin", False, "Where the number comes from."),
    ("trust", "Revision", False, "How far it is known which weights were scored."),
    ("data", "Data", False, "Whether the score is on the data that is asked for."),
    ("released", "Released", False, ""),
)
UNSORTED = ("interval", "data", "trust")


def _columns(state: TaskState, path: str, *, intervals: bool) -> list[Column]:
    key, down = state.sort.removeprefix("-"), state.sort.startswith("-")
    return [
        Column(
            key=name, label=label, numeric=numeric, note=note, sticky=name in ("rank", "model"),
            sort="" if name in UNSORTED else f"{path}?{state.query(sort=_wanted(name, state), page=1)}",
            sorted=("descending" if down else "ascending") if name == key else "",
        )
        for name, label, numeric, note in HEADS
        if name != "interval" or intervals
    ]  # fmt: skip


def _wanted(name: str, state: TaskState) -> str:
    """How a click on a heading sorts: names and ranks upwards first, numbers downwards."""
    first = name if name in ("rank", "model", "origin") else f"-{name}"
    turned = first.removeprefix("-") if first.startswith("-") else f"-{first}"
    return turned if state.sort == first else first


def _ordered(shown: Shown, state: TaskState) -> list[Scored]:
    """The rows in order; those without a rank, then those without a value, stand last."""
    key, down = state.sort.removeprefix("-"), state.sort.startswith("-")
    known = [name for name, *_ in HEADS if name not in UNSORTED]
    if key not in known:
        raise missing("column", key, known, then="Click a column's heading to sort by it.")
    rows = sorted(shown.rest, key=lambda one: (-(one.value or 0.0), one.entry.model.casefold()))
    if key in ("score", "rank"):
        there = [one for one in rows if one.entry.id in shown.ranks]
        if down != (key == "score"):
            there.reverse()
        others = [one for one in rows if one.entry.id not in shown.ranks]
        return [*there, *sorted(others, key=lambda one: one.value is None)]
    there = [one for one in rows if getattr(one.entry, key) is not None]
    there.sort(key=lambda one: _sortable(getattr(one.entry, key)), reverse=down)
    return [*there, *(one for one in rows if getattr(one.entry, key) is None)]


def _sortable(value: str | int) -> str | int:
    return value.casefold() if isinstance(value, str) else value


Marks = tuple["float | None", "float | None"]


def _row(
    one: Scored,
    shown: Shown,
    state: TaskState,
    scope: Scope,
    path: str,
    marks: Marks,
    *,
    pinned: bool = False,
) -> tuple[Row, dict[str, Cell]]:
    entry, place = one.entry, shown.ranks.get(one.entry.id)
    pins = [slug for slug in state.pin if slug != entry.slug] if pinned else [*state.pin, entry.slug]
    cells = {
        "rank": Cell(text=str(place), value=place) if place else EMPTY,
        "model": Cell(
            text=entry.model, value=entry.model, href=address(f"/models/{entry.model_slug}"),
            kind=kinds_of(entry), note=made_of(entry) or entry.treatment,
        ),
        "score": _score(one, scope, marks, ranked=place is not None),
        "interval": _interval(one),
        "parameters": Cell(text=parameters_text(entry.parameters), value=entry.parameters),
        "origin": Cell(text=entry.origin, value=entry.origin, kind=entry.origin),
        "trust": _trust(one),
        "data": _data(one, scope),
        "released": Cell(text=entry.released or "", value=entry.released),
    }  # fmt: skip
    kind = "pinned" if pinned else "" if place else "part"
    return Row(cells=(), key=entry.slug, kind=kind, pin=f"{path}?{state.query(pin=pins)}"), cells


def _score(one: Scored, scope: Scope, marks: Marks, *, ranked: bool) -> Cell:
    href = address(f"/results/{one.result}")
    if one.reason == "seeds":
        return replace(some_seeds(one.seeds or 0, len(one.entry.seeds)), href=href)
    if one.value is None:
        kind = "" if one.reason == "part" else one.reason
        return Cell(text=GONE.get(one.reason, "–"), kind=kind, note=WHY[one.reason], href=href)
    kinds = leaks(one.entry, [scope], one.trained_on)
    kinds += ["other"] if one.reason == "other" else []
    if ranked and one.value in marks:
        kinds.append("best" if one.value == marks[0] else "second")
    notes = [
        *([WHY[one.reason]] if one.reason else []),
        *choices_made(one.entry, [scope]),
        *([texts_text(one.trained_on)] if one.trained_on else []),
    ]
    cell = Cell(
        text=score_text(one.value),
        value=one.value,
        href=href,
        kind=" ".join(kinds),
        note="; ".join(notes),
        width=min(max(one.value, 0.0), 1.0),
    )
    return over_seeds(cell, one.deviation, one.entry.seeds)


def _interval(one: Scored) -> Cell:
    if one.low is None or one.high is None:
        return EMPTY
    text = f"{score_text(one.low)}–{score_text(one.high)}"
    return Cell(text=text, value=f"{one.low} to {one.high}")


def _trust(one: Scored) -> Cell:
    trust = one.entry.trust
    text = trust if trust != "commit" else (one.entry.revision or "")[:10]
    return Cell(text=text, value=trust, note=TRUST_NOTES[trust])


def _data(one: Scored, scope: Scope) -> Cell:
    if one.reason == "other":
        return Cell(text=one.data[:14] or "not proven", value=one.data or "not proven", note=WHY["other"])
    if one.reason in ("failed", "none"):
        return EMPTY
    same = not scope.data or one.data == scope.data
    text = "as asked" if same and scope.data else one.data[:14]
    return Cell(text=text, value=one.data or None, note=one.data)


def _notes(rows: Sequence[Scored], ranks: Mapping[int, int], scope: Scope, *, intervals: bool) -> list[str]:
    """What must be read with the ranks."""
    ranked = [one for one in rows if one.entry.id in ranks]
    unknown = sum(one.half is None for one in ranked)
    found = []
    if ranked and not intervals:
        found.append(
            "No interval is known for these scores: only equal ones share a rank, and a small difference "
            "may be chance."
        )
    elif unknown:
        found.append(
            f"No interval is known for {unknown} of {len(ranked)} scores: those share a rank only where "
            "they are equal. Two with intervals share one where these, put together, cover the difference."
        )
    printed = sum(one.entry.origin == "reported" for one in rows)
    if printed:
        found.append(f"{printed} not ranked: printed in a paper.")
    for reason in ("other", "part", "bad", "failed", "seeds"):
        count = sum(one.reason == reason and one.entry.id not in ranks for one in rows)
        if count:
            found.append(f"{count} not ranked: {WHY[reason]}.")
    return found
