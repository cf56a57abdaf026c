"""Cells of a suite's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.scores import score_text
from leaderboard.grid import Floats, Grid, Means, Ranks, UntouchedMeans
from leaderboard.queries import Entry
from leaderboard.scopes import REASONS, Scope, scopes_of
from leaderboard.tables import Cell
from leaderboard.words import over_seeds, seeds_text, some_seeds

GONE = {"none": "–", "failed": "×", "bad": "!", "part": "–"}
"""What a cell without a number prints."""


def unseen_cell(share: float) -> Cell:
    """The share of columns that a model was not trained on; a question mark where nobody says."""
    return Cell(text=f"{100 * share:.0f} %", value=share) if share == share else Cell(text="?")


def rank_cell(ranks: Ranks, row: int) -> Cell:
    """A row's rank; empty for one that has none."""
    place = int(ranks.place[row])
    return Cell(text=str(place) if place else "", value=place or None)


def ranked_cell(ranks: Ranks, values: Floats, row: int, form: str) -> Cell:
    """A number that only ranked rows have."""
    if not ranks.place[row]:
        return Cell()
    return Cell(text=form.format(values[row]), value=float(values[row]))


def model_cell(entry: Entry) -> Cell:
    """A model's name, or that of a paper's row."""
    if entry.origin == "reported":
        text = f"{entry.model}: {entry.treatment.rpartition(';')[2].rpartition(': ')[2].strip()}"
        return Cell(text=text, value=entry.model, href=f"/papers/{entry.source}", note=entry.treatment)
    return Cell(
        text=entry.model, value=entry.model, href=f"/models/{entry.model_slug}", kind=kinds_of(entry),
        note=made_of(entry) or entry.treatment,
    )  # fmt: skip


def kinds_of(entry: Entry) -> str:
    """What must be known of the training of an entry's model, as kinds of a cell."""
    made = entry.lineage
    if made is None:
        return ""
    marks = (("own", made.all_own_data), ("changed", made.changed), ("selected", made.all_selected_on))
    return " ".join(kind for kind, there in marks if there)


def made_of(entry: Entry) -> str:
    """What a recipe made an entry's model of, under which seeds, and the treatment; empty for any other."""
    return f"{training_text(entry)}; {entry.treatment}" if entry.lineage else ""


def training_text(entry: Entry) -> str:
    """What a recipe made an entry's model of, and under which seeds; empty for any other."""
    made = entry.lineage
    if made is None:
        return ""
    parents = " and ".join(parent.text for parent in made.parents)
    chosen = [made.choices_text] if made.choices else []
    return "; ".join([f"{made.text} on {parents}", *chosen, seeds_text(entry.seeds)])


def origin_cell(entry: Entry) -> Cell:
    """Where the numbers of a row come from."""
    told = {"external": "by its makers", "none": "no revision"}.get(entry.trust, "")
    text = f"{entry.origin}, {told}" if told else entry.origin
    return Cell(text=text, value=entry.origin, kind=entry.origin)


def how_cell(entry: Entry) -> Cell:
    """An imported model's revision, a measured one's treatment, where a row is printed."""
    revision = entry.revision or ""
    text = (
        made_of(entry)
        or entry.treatment
        or (revision[:10] if entry.trust == "commit" else revision.replace("_", " "))
    )
    short = text if len(text) <= 36 else f"{text[:35]}…"
    return Cell(text=short, value=text, note=text if short != text else "")


def there_cell(grid: Grid, means: Means, row: int) -> Cell:
    """How many of the suite's columns count."""
    if grid.averages.get(row, {}).get("types"):
        return Cell(text="by type", value=None, note="The paper prints means of types only.")
    return Cell(text=f"{means.there[row]}/{means.wanted}", value=int(means.there[row]))


def mean_cell(means: Means, row: int, average: Mapping[str, Any] | None, seeds: Sequence[int] = ()) -> Cell:
    """A mean.

    Args:
        means: Of all rows.
        row: Which.
        average: What else is known of it (Grid.averages).
        seeds: Those that it is over.
    """
    value = float(means.values[row])
    if average and "printed" in average:
        return _printed_mean(means, row, average)
    if not means.there[row]:
        return Cell(text="–", kind="none")
    if not means.complete[row]:
        part = f"of {means.there[row]} of {means.wanted}"
        cell = Cell(text=score_text(value), value=value, kind="part", note=part)
        return over_seeds(cell, float(means.deviations[row]), seeds)
    if average and average.get("interval"):
        low, high = average["interval"]
        return Cell(
            text=f"{score_text(value)} ± {50 * (high - low):.2f}",
            value=value,
            note="± half of the 95 % interval",
        )
    return over_seeds(Cell(text=score_text(value), value=value), float(means.deviations[row]), seeds)


def mean_of(cell: Cell, grid: Grid, row: int, kind: str = "") -> Cell:
    """The cell of a mean (of all columns, or of a type's), marked where some of them chose the model."""
    chose = grid.chose(row, kind) if cell.value is not None else []
    if not chose:
        return cell
    note = f"{', '.join(chose)} chose the model, and {'is' if len(chose) == 1 else 'are'} in this mean"
    notes = [cell.note, note] if cell.note else [note]
    return replace(cell, kind=f"{cell.kind} selected".strip(), note="; ".join(notes))


def untouched_note(untouched: UntouchedMeans) -> str:
    """What the means over untouched columns leave out, and why."""
    part = untouched.part
    names, one = ", ".join(part.selected), len(part.selected) == 1
    return (
        f"The means over the {part.count} untouched leave out {names}: models of this table were chosen by "
        f"their scores there, which err upward. They are over the same columns for every model; the means "
        f"over all {part.count + len(part.selected)} have {'it' if one else 'them'}."
    )


def _printed_mean(means: Means, row: int, document: Mapping[str, Any]) -> Cell:
    """A mean of a paper's row: of a type as printed, else made of what is printed."""
    value = float(means.values[row])
    if not means.there[row]:
        return Cell(text="–", kind="none")
    if means.over not in ("tasks", "types"):
        return Cell(text=f"{100 * value:.1f}", value=value)
    printed = document.get("printed")
    note = "made of the printed numbers" + (f"; the paper prints {100 * printed:.1f}" if printed else "")
    kind = "" if means.complete[row] else "part"
    return Cell(text=score_text(value), value=value, kind=kind, note=note)


def task_cell(grid: Grid, row: int, at: int) -> Cell:
    """A task's score, or why there is none."""
    reason, value, entry = REASONS[grid.reasons[row, at]], float(grid.values[row, at]), grid.entries[row]
    if reason == "seeds":
        return some_seeds(int(grid.seeds[row, at]), len(entry.seeds))
    if reason in GONE:
        return Cell(text=GONE[reason], kind=reason)
    if entry.origin == "reported":
        return Cell(text=f"{100 * value:.1f}", value=value)
    texts, column = int(grid.trained_on[row, at]), grid.listed.suite.columns[at]
    asked = scopes_of(column)
    kinds = [*leaks(entry, asked, texts, column.name), *(["other"] if reason == "other" else [])]
    low, high = float(grid.low[row, at]), float(grid.high[row, at])
    notes = [f"95 %: {score_text(low)} to {score_text(high)}"] if low == low else []
    notes += [*choices_made(entry, asked), *([texts_text(texts)] if texts else [])]
    cell = Cell(text=score_text(value), value=value, kind=" ".join(kinds), note="; ".join(notes))
    return over_seeds(cell, float(grid.deviations[row, at]), entry.seeds)


def leaks(entry: Entry, asked: Sequence[Scope], texts: int | None, column: str = "") -> list[str]:
    """Why a score flatters a model, as kinds.

    Args:
        entry: The model.
        asked: What the score is of.
        texts: How many texts of it are in the model's training data.
        column: The name of the column of several tasks.
    """
    trained = entry.trained_on or ()
    marks = (
        ("leak", any(name in trained for name in (column, *(scope.task for scope in asked)))),
        ("selected", choices_made(entry, asked)),
        ("texts", texts),
    )
    return [kind for kind, there in marks if there]


def choices_made(entry: Entry, asked: Sequence[Scope]) -> list[str]:
    """What the scores on what is asked for chose of a model, in a sentence; none where they chose nothing."""
    made = entry.lineage
    chosen = [what for one in asked if made for what in made.chosen_by(one.task, one.splits, one.subsets)]
    return [f"its scores chose: {', '.join(dict.fromkeys(chosen))}"] if chosen else []


def texts_text(count: int) -> str:
    """How many texts of a task are in the training data.

    >>> texts_text(1), texts_text(1200)
    ('1 text of it is in the training data', '1,200 texts of it are in the training data')
    """
    one = "1 text of it is" if count == 1 else f"{count:,} texts of it are"
    return f"{one} in the training data"


def columns_text(grid: Grid) -> str:
    """How many columns a suite has, in words."""
    count = len(grid.listed.suite.columns)
    return f"{count} columns" if count != 1 else "its one column"
