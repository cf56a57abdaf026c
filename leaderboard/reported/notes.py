"""What must be said below a paper's table."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence

from leaderboard.reported.lines import SHORT, Line, printed_lines
from leaderboard.reported.printed import AVERAGE, PaperTable, Printed
from leaderboard.reported.recompute import power_laws


def notes_of(lines: Sequence[Line], rows: Sequence[Printed], ways: Sequence[str]) -> list[str]:
    """What must be said below a paper's table."""
    settings = {line.labels["Setting"] for line in lines} - {""}
    notes = [f"Setting: {setting}." for setting in settings if len(settings) == 1]
    if ways:
        return [*notes, *_which_means(lines), *_turned(lines)]
    odd = sum(row.follows == "no" for row in rows)
    if odd:
        notes.append(
            f"{odd} of the {sum(bool(row.follows) for row in rows)} numbers that can be made again do not "
            "follow from the printed ones; ours stand beside them."
        )
    return notes + _ratio(rows)


def warnings(table: PaperTable) -> list[str]:
    """What would mislead a reader of the print: two kinds of mean in one column, and what that turns round.

    These stand among the notes of `paper_table`, too.
    """
    if not table.rows[0].suite.startswith("MTEB("):
        return []
    lines = printed_lines(table.rows)
    return [*_mixed(_ways(lines)), *_turned(lines)]


def _which_means(lines: Sequence[Line]) -> list[str]:
    """Which mean each line of MTEB printed as its average."""
    found = _ways(lines)
    notes = [f"The printed average is {_which(way)} of: {'; '.join(names)}." for way, names in found.items()]
    return [*notes, *_mixed(found)]


def _ways(lines: Sequence[Line]) -> dict[str, list[str]]:
    """The lines by the mean that they print."""
    found: dict[str, list[str]] = {}
    for line in lines:
        for row in line.cells.values():
            if row.follows:
                way = SHORT.get(row.recomputed_as, row.recomputed_as) if row.follows == "yes" else "neither"
                found.setdefault(way, []).append(_name(line, lines))
    return found


def _mixed(found: Collection[str]) -> list[str]:
    if len(set(found) - {"neither"}) < 2:
        return []
    return ["The table mixes two means: compare its lines in one of the recomputed columns only."]


def _which(way: str) -> str:
    return "neither mean" if way == "neither" else f"the {way}"


def _turned(lines: Sequence[Line]) -> list[str]:
    """Pairs that print orders one way and both means the other."""
    notes = []
    for one, other in itertools.permutations(lines, 2):
        mine, theirs, printed = one.means, other.means, (_average(one), _average(other))
        below = mine and theirs and all(mine[way] < theirs[way] for way in mine)
        if below and None not in printed and printed > printed[::-1]:
            sides = [f"{x:.2f} against {theirs[way]:.2f} as {SHORT.get(way, way)}" for way, x in mine.items()]
            names = f"{_name(one, lines)} is printed above {_name(other, lines)}"
            notes.append(f"{names} ({printed[0]} against {printed[1]}), but has {' and '.join(sides)}.")
    return notes


def _average(line: Line) -> float | None:
    return next((row.number for name, row in line.cells.items() if name.startswith(AVERAGE)), None)


def _name(line: Line, lines: Sequence[Line]) -> str:
    """A line's model, and the end of its setting where the model stands there more than once."""
    name = " ".join(line.model).strip()
    alone = sum(other.model == line.model for other in lines) == 1
    return name if alone else f"{name} ({line.labels['Setting'].rpartition('; ')[2]})"


def _ratio(rows: Sequence[Printed]) -> list[str]:
    """How much the two readings of OptiBERT's parametric law differ within its range of compute."""
    name = "D/F_N vs C"
    printed = {
        row.metric: row.number for row in rows if (row.model, row.setting) == (name, "Sec4.2 parametric")
    }
    prefactor, exponent = printed.get("a_log10"), printed.get("exponent")
    laws = power_laws(rows)
    if prefactor is None or exponent is None or name not in laws:
        return []
    ours = 10 ** (laws[name][0] + 19 * laws[name][1])
    text = f"At C = 1e19 the printed law gives D/F_N = {10 ** (prefactor + 19 * exponent):.2f}"
    return [f"{text}, eq. 7 with the printed A, B, alpha and beta {ours:.1f}."]
