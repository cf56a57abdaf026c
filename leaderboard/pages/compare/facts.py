"""Facts of compared entries, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from leaderboard.pages.compare.chosen import PATH, labels
from leaderboard.pages.compare.common import Common
from leaderboard.queries import Entry
from leaderboard.state import address
from leaderboard.tables import Cell, Column, Row, Table
from leaderboard.words import parameters_text, seeds_text

if TYPE_CHECKING:
    from leaderboard.views.compare import CompareState

UNKNOWN = "not known"


def facts_table(entries: Sequence[Entry], common: Common | None, state: CompareState) -> Table:
    """Facts as rows, entries as columns."""
    rows = [(name, [make(entry) for entry in entries]) for name, make in FACTS]
    if common is not None:
        rows.append(("Trained on this suite", [_trained(common, entry) for entry in entries]))
    rows.append(("Differences", [_first(entries, at, state) for at in range(len(entries))]))
    kept = [(name, cells) for name, cells in rows if any(cell.text not in ("", UNKNOWN) for cell in cells)]
    return Table(
        name="facts",
        caption="What is known of them",
        columns=[
            Column(key="fact", label="Fact", sticky=True),
            *(Column(key=f"s{at}", label=label) for at, label in enumerate(labels(entries))),
        ],
        rows=[Row(cells=[Cell(text=name, value=name), *cells]) for name, cells in kept],
    )


def _text(text: str | None, value: str | int | None = None, note: str = "") -> Cell:
    return Cell(text=text or UNKNOWN, value=text if value is None else value, note=note)


def _model(entry: Entry) -> Cell:
    return Cell(text=entry.model, value=entry.model, href=address(f"/models/{entry.model_slug}"))


def _revision(entry: Entry) -> Cell:
    if entry.revision is None:
        return _text(f"weights {entry.artifact[:10]}" if entry.artifact else None, entry.artifact)
    return _text(entry.revision[:10], entry.revision, entry.revision)


def _number(value: int | None) -> Cell:
    return _text(None if value is None else f"{value:,}", value)


def _parameters(entry: Entry) -> Cell:
    count = entry.parameters
    return _text(None if count is None else parameters_text(count), count)


def _open(entry: Entry) -> Cell:
    return _text(None if entry.open_weights is None else "yes" if entry.open_weights else "no")


TRUSTED = {
    "measured": "measured here: the hash of its weights",
    "commit": "a commit",
    "external": "its makers told the number",
    "none": "nothing: the source does not say",
    "other": "a name that is no commit",
    "reported": "a paper",
}

FACTS: Sequence[tuple[str, Callable[[Entry], Cell]]] = (
    ("Model", _model),
    ("Origin", lambda entry: Cell(text=entry.origin, value=entry.origin, kind=entry.origin)),
    ("Revision", _revision),
    ("Revision is known by", lambda entry: _text(TRUSTED[entry.trust], entry.trust)),
    ("Treatment", lambda entry: _text(entry.treatment)),
    ("Recipe", lambda entry: _text(entry.lineage.text if entry.lineage else entry.recipe)),
    ("Seeds", lambda entry: _text(seeds_text(entry.seeds) if entry.seeds else None)),
    ("Parameters", _parameters),
    ("Dimension", lambda entry: _number(entry.dimension)),
    ("Tokens, at most", lambda entry: _number(entry.max_tokens)),
    ("Released", lambda entry: _text(entry.released)),
    ("Open weights", _open),
    ("Made of", lambda entry: _text(entry.adapted_from)),
    ("Tasks with a result", lambda entry: _number(entry.tasks or None)),
)


def _trained(common: Common, entry: Entry) -> Cell:
    """On how many of the suite's columns the model was trained, by its makers' account."""
    if entry.trained_on is None:
        return Cell(text=UNKNOWN)
    columns = common.grid.listed.suite.columns
    seen = [c.name for c in columns if any(task.name in entry.trained_on for task in c.tasks)]
    told = f"{len(seen)} of {len(columns)} columns"
    return Cell(text=told if seen else "no", value=len(seen), note=", ".join(seen))


def _first(entries: Sequence[Entry], at: int, state: CompareState) -> Cell:
    if at == 0:
        return Cell(text="are to this one")
    slugs = [entry.slug for entry in entries]
    order = [slugs[at], *slugs[:at], *slugs[at + 1 :]]
    return Cell(text="make it the first", href=f"{PATH}?{state.query(m=order)}")
