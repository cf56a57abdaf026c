"""Tables of two entries at a time."""

from __future__ import annotations

from collections.abc import Sequence

from harness.scores import delta_text
from leaderboard.pages.compare.common import Common
from leaderboard.pages.compare.means import entry_columns
from leaderboard.pages.compare.pairs import APART, Difference, Pair
from leaderboard.tables import Cell, Column, Row, Table


def pairs_table(common: Common, found: Sequence[Pair]) -> Table:
    """Every two entries: counts, and the difference of the means with its interval."""
    typed = len(common.by_type) > 1
    heads = [
        ("one", "One", False), ("other", "Other", False), ("wins", "Higher", True), ("losses", "Lower", True),
        ("ties", "Ties", True), ("tasks", "Over tasks", True), ("verdict", "So, over tasks", False),
    ]  # fmt: skip
    if common.untouched:
        heads += [("untouched", "Over untouched tasks", True), ("verdict_untouched", "So, over these", False)]
    heads += [("types", "Over types", True), ("verdict_types", "So, over types", False)] if typed else []
    return Table(
        name="pairs",
        caption="Two at a time: the one against the other",
        columns=[Column(key=key, label=label, numeric=numeric) for key, label, numeric in heads],
        rows=[_pair_row(common, pair, typed=typed) for pair in found],
        notes=[
            "± is half of the 95 % interval of the mean difference: of seeds and examples where both means "
            "have one for the whole suite, else Student’s over the paired differences, the tasks taken as a "
            f"sample of such tasks. Two {APART} where 0 lies in it."
        ],
    )


def _pair_row(common: Common, pair: Pair, *, typed: bool) -> Row:
    one, other = common.labels[pair.first], common.labels[pair.second]
    cells = [
        Cell(text=one, value=one),
        Cell(text=other, value=other),
        *(Cell(text=str(n), value=n) for n in (pair.wins, pair.losses, pair.ties)),
        *_difference_cells(pair.tasks, one, other),
        *(_difference_cells(pair.untouched, one, other) if pair.untouched else ()),
        *(_difference_cells(pair.types, one, other) if typed else ()),
    ]
    return Row(cells=cells)


def _difference_cells(found: Difference, one: str, other: str) -> tuple[Cell, Cell]:
    half = "?" if found.half is None else f"{100 * found.half:.2f}"
    verdict = f"{one if found.value > 0 else other} is higher" if found.told_apart else APART
    if found.half is None:
        verdict = "a single task gives no interval"
    return (
        Cell(text=f"{delta_text(found.value)} ± {half}", value=found.value),
        Cell(text=verdict, value=verdict),
    )


def matrix_table(common: Common, found: Sequence[Pair]) -> Table:
    """Wins, losses and ties of each entry against each other."""
    counts = {(p.first, p.second): (p.wins, p.losses, p.ties) for p in found}
    counts |= {(p.second, p.first): (p.losses, p.wins, p.ties) for p in found}
    size = range(len(common.entries))
    return Table(
        name="matrix",
        caption="Tasks on which the row is higher – lower – tied with the column",
        columns=[Column(key="name", label="", sticky=True), *entry_columns(common)],
        rows=[
            Row(cells=[Cell(text=label, value=label), *(_count_cell(counts.get((row, at))) for at in size)])
            for row, label in enumerate(common.labels)
        ],
    )


def _count_cell(counts: tuple[int, int, int] | None) -> Cell:
    text = "" if counts is None else "–".join(map(str, counts))
    return Cell(text=text, value=text or None)
