"""The tables of a comparison: means, tasks, pairs, and what only some have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from leaderboard.compare_chosen import LETTERS
from leaderboard.compare_common import Common
from leaderboard.compare_pairs import Difference, Pair, tied_at, winners
from leaderboard.grid import Floats, Means
from leaderboard.page import missing
from leaderboard.scopes import REASONS, Reason
from leaderboard.tables import EMPTY, Cell, Column, Row, Table
from leaderboard.task_names import task_path
from leaderboard.words import delta_text, score_text

if TYPE_CHECKING:
    from leaderboard.views.compare import CompareState

APART = "cannot be told apart"

SHORT: dict[Reason, str] = {
    "none": "not run",
    "failed": "failed",
    "other": "other data",
    "bad": "impossible value",
    "part": "splits or subsets missing",
}
"""Why a cell does not count, in few words."""


def entry_columns(common: Common, *, numeric: bool = True) -> list[Column]:
    """A column for each entry."""
    return [Column(key=f"s{at}", label=label, numeric=numeric) for at, label in enumerate(common.labels)]


def means_table(common: Common) -> Table:
    """Means over the columns that all have, and below them each entry's own."""
    grid, suite = common.grid, common.grid.listed.suite
    count, whole = len(common.columns), len(suite.columns)
    types = [
        (kind, common.mean(at), len(at), grid.by_type[kind].wanted) for kind, at in common.by_type.items()
    ]
    rows = [_mean_row("Over tasks", f"{count} of {whole} columns", common.over_tasks)]
    if len(grid.by_type) > 1:
        told = f"{len(types)} of {len(grid.by_type)} types, of these columns"
        rows.append(_mean_row("Over types", told, common.over_types))
        rows += [_mean_row(kind, f"{n} of {of} columns", values) for kind, values, n, of in types]
    own = [_own_row("Own, over tasks", grid.over_tasks, "columns")]
    own += [_own_row("Own, over types", grid.over_types, "types")] if len(grid.by_type) > 1 else []
    return Table(
        name="means",
        caption=f"{suite.title}: means × 100 over what all have",
        columns=[
            Column(key="mean", label="Mean", sticky=True),
            Column(key="of", label="Of"),
            *entry_columns(common),
        ],
        rows=[*rows, *own],
        notes=[
            f"Like for like: the {count} columns that all of them have. Rows that begin with “Own” are over "
            "whatever each has, so compare them only where they are complete."
        ],
    )


def _mean_row(name: str, told: str, values: Floats) -> Row:
    best = np.nanmax(values) if np.isfinite(values).any() else None
    cells = [
        Cell(text=score_text(v), value=_number(v), kind="best" if v == best else "")
        for v in map(float, values)
    ]
    return Row(cells=[Cell(text=name, value=name), Cell(text=told, value=told), *cells])


def _own_row(name: str, means: Means, what: str) -> Row:
    cells = [_own_cell(means, row, what) for row in range(len(means.values))]
    return Row(cells=[Cell(text=name, value=name), Cell(text=f"{means.wanted} {what}"), *cells])


def _own_cell(means: Means, row: int, what: str) -> Cell:
    there, value = int(means.there[row]), float(means.values[row])
    if not there:
        return Cell(text="–", kind="none")
    if means.complete[row]:
        return Cell(text=score_text(value), value=value)
    told = f"{score_text(value)} ({there}/{means.wanted})"
    return Cell(text=told, value=value, kind="part", note=f"over {there} of {means.wanted} {what}")


def _number(value: float) -> float | None:
    return value if value == value else None


def tasks_table(common: Common, state: CompareState, path: str) -> Table:
    """Each column that all have: scores, differences to the first entry, and who is best.

    Raises:
        NotFound: The state sorts by a column that is none, or names a type that is none.
    """
    columns = _task_columns(common, state, path)
    return Table(
        name="tasks",
        caption="Scores × 100 on what all have, and differences to the first",
        columns=columns,
        rows=[_task_row(common, at) for at in _ordered(common, state)],
        notes=[_tie_note(common)],
    )


def _tie_note(common: Common) -> str:
    known = bool(np.isfinite(common.grid.low[:, common.columns]).any())
    rule = "equal, or within their known intervals put together" if known else "equal"
    more = "" if known else " No interval is known for these scores."
    return f"“tie”: the best scores are {rule}.{more}"


def _task_columns(common: Common, state: CompareState, path: str) -> list[Column]:
    key, down = state.sort.removeprefix("-"), state.sort.startswith("-")

    def column(name: str, label: str, note: str = "", *, numeric: bool = True) -> Column:
        first, other = (f"-{name}", name) if numeric else (name, f"-{name}")
        wanted = other if state.sort == first else first
        return Column(
            key=name, label=label, numeric=numeric, note=note, sticky=name == "name",
            sort=f"{path}?{state.query(sort=wanted)}#t-tasks",
            sorted=("descending" if down else "ascending") if name == key else "",
        )  # fmt: skip

    found = [column("name", "Task", numeric=False), column("type", "Type", numeric=False)]
    for at, label in enumerate(common.labels):
        found.append(column(f"s{at}", label))
        if at:
            found.append(column(f"d{at}", f"{LETTERS[at]} − A", "The difference to the first."))
    if len(common.entries) > 2:
        found.append(column("spread", "Spread", "The best score less the worst."))
    return [*found, Column(key="best", label="Best")]


def _task_row(common: Common, at: int) -> Row:
    column, values = common.grid.listed.suite.columns[at], common.grid.values[:, at]
    best = winners(common, at)
    alone = best[0] if len(best) == 1 else None
    href = task_path(column.tasks[0].name) if len(column.tasks) == 1 else ""
    cells = [Cell(text=column.name, value=column.name, href=href), Cell(text=column.type, value=column.type)]
    for row, value in enumerate(map(float, values)):
        cells.append(_score_cell(common, row, at, best=row == alone))
        if row:
            delta = value - float(values[0])
            note = f"{APART}, by their intervals or as they are equal" if tied_at(common, row, 0, at) else ""
            cells.append(Cell(text=delta_text(delta), value=delta, note=note))
    if len(values) > 2:
        spread = float(values.max() - values.min())
        cells.append(Cell(text=f"{100 * spread:.2f}", value=spread))
    told = common.labels[alone] if alone is not None else "tie"
    return Row(cells=[*cells, Cell(text=told, value=told)], key=column.name)


def _score_cell(common: Common, row: int, at: int, *, best: bool) -> Cell:
    grid, entry = common.grid, common.entries[row]
    value, low, high = (float(a[row, at]) for a in (grid.values, grid.low, grid.high))
    tasks = [task.name for task in grid.listed.suite.columns[at].tasks]
    kinds = ["best"] if best else []
    kinds += ["leak"] if any(name in (entry.trained_on or ()) for name in tasks) else []
    kinds += ["other"] if REASONS[grid.reasons[row, at]] == "other" else []
    result = int(grid.results[row, at])
    return Cell(
        text=score_text(value), value=value, kind=" ".join(kinds), href=f"/results/{result}" if result else "",
        note=f"95 %: {score_text(low)} to {score_text(high)}" if low == low else "",
    )  # fmt: skip


def _ordered(common: Common, state: CompareState) -> list[int]:
    """The common columns of a type in order: as the suite has them unless the state sorts."""
    suite, values = common.grid.listed.suite, common.grid.values
    if state.type and state.type not in common.grid.by_type:
        raise missing("task type", state.type, common.grid.by_type, then="The page offers those there are.")
    rows = [at for kind, some in common.by_type.items() if state.type in ("", kind) for at in some]
    key, down = state.sort.removeprefix("-"), state.sort.startswith("-")
    by: dict[str, Callable[[int], float | str]] = {
        "name": lambda at: suite.columns[at].name.casefold(),
        "type": lambda at: suite.columns[at].type,
        "spread": lambda at: float(np.ptp(values[:, at])),
    }
    for row in range(len(common.entries)):
        by[f"s{row}"] = lambda at, row=row: float(values[row, at])  # type: ignore[misc]
        by[f"d{row}"] = lambda at, row=row: float(values[row, at] - values[0, at])  # type: ignore[misc]
    if key and key not in by:
        raise missing("column", key, by, then="Click a column's heading to sort by it.")
    return sorted(rows, key=by[key], reverse=down) if key else rows


def pairs_table(common: Common, found: Sequence[Pair]) -> Table:
    """Every two entries: counts, and the difference of the means with its interval."""
    typed = len(common.by_type) > 1
    heads = [
        ("one", "One", False), ("other", "Other", False), ("wins", "Higher", True), ("losses", "Lower", True),
        ("ties", "Ties", True), ("tasks", "Over tasks", True), ("verdict", "So, over tasks", False),
    ]  # fmt: skip
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


def missing_table(common: Common) -> Table:
    """Columns that some of them have and others do not, with why."""
    grid, suite = common.grid, common.grid.listed.suite
    there = grid.reasons != REASONS.index("none")
    some = [at for at in range(len(suite.columns)) if at not in set(common.columns) and there[:, at].any()]
    nobody = int((~there.any(axis=0)).sum())
    return Table(
        name="missing",
        caption="Not compared, as not all have it",
        columns=[
            Column(key="name", label="Task", sticky=True), Column(key="type", label="Type"),
            *entry_columns(common),
        ],
        rows=[_missing_row(common, at) for at in some],
        notes=[f"{nobody} columns of the suite that nobody has are left out."] if nobody else [],
    )  # fmt: skip


def _missing_row(common: Common, at: int) -> Row:
    grid, column = common.grid, common.grid.listed.suite.columns[at]
    href = task_path(column.tasks[0].name) if len(column.tasks) == 1 else ""
    cells = [_why_cell(common, row, at) for row in range(len(common.entries))]
    name = Cell(text=column.name, value=column.name, href=href)
    return Row(cells=[name, Cell(text=column.type, value=column.type), *cells], key=column.name)


def _why_cell(common: Common, row: int, at: int) -> Cell:
    grid = common.grid
    reason, value = REASONS[grid.reasons[row, at]], float(grid.values[row, at])
    if grid.counted[row, at]:
        return Cell(text=score_text(value), value=value)
    if reason == "other" and value == value:
        return Cell(text=f"{score_text(value)}, {SHORT[reason]}", value=value, kind="other")
    kind = reason if reason in ("none", "failed", "bad") else ""
    return Cell(text=SHORT.get(reason, "–"), kind=kind) if reason else EMPTY
