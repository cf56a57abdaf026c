"""How verdicts look: colours, signs, and a row of small marks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from markupsafe import Markup, escape

from leaderboard.judged import OVERALL, Judged
from leaderboard.plots.shapes import Tone
from leaderboard.render import CODES
from leaderboard.tables import Cell

KINDS = {
    "regressed": "regressed", "improved": "improved", "inconclusive": "unsure", "missing": "unsure",
    "not testable": "away",
}  # fmt: skip
"""The kind of a verdict's cell; `equivalent` is as any other."""

SIGNS = {"regressed": "▼", "inconclusive": "?", "improved": "▲", "equivalent": "="}
TAGS = {"regressed": "bad", "inconclusive": "warn", "improved": "good", "equivalent": "good"}
"""Of a whole check: the sign of its mark, and the tone of its tag."""

TONES = (
    Tone(label="regressed", place=4, colour="tone-bad"),
    Tone(label="inconclusive", place=2, colour="tone-warn"),
    Tone(label="improved", place=3, colour="tone-good"),
    Tone(label="equivalent", place=0, colour="series-1"),
)
assert tuple(tone.label for tone in TONES) == OVERALL


def verdict_cell(verdict: str, *, note: str = "") -> Cell:
    """The cell of a verdict."""
    return Cell(text=verdict, value=verdict, kind=KINDS.get(verdict, ""), note=note)


def moment_cell(when: str, *, href: str = "") -> Cell:
    """The cell of a time, to the minute."""
    return Cell(text=when_text(when), value=when or None, href=href, note=when)


def when_text(when: str) -> str:
    """An ISO time as pages print it.

    >>> when_text("2026-01-02T03:04:05+00:00"), when_text("")
    ('2026-01-02 03:04', '–')
    """
    return when[:16].replace("T", " ") or "–"


def marks_cell(checks: Sequence[Judged]) -> Cell:
    """The marks of some checks, the oldest first, as twins hold them."""
    return Cell(
        text=" ".join(SIGNS[one.overall] for one in checks), value=", ".join(one.overall for one in checks)
    )


def marks_html(checks: Sequence[Judged]) -> Markup:
    """The same as a table's cell of a page: small marks, with one text for those who cannot see them."""
    marks = Markup("").join(
        Markup('<span class="{}" title="{}">{}</span>').format(
            CODES.get(KINDS.get(one.overall, ""), "e"),
            f"{when_text(one.when)} {one.candidate}: {one.overall}",
            SIGNS[one.overall],
        )
        for one in checks
    )
    return Markup('<td class="t"><span class="verdicts" role="img" aria-label="{}">{}</span></td>').format(
        escape(said(checks)), marks
    )


def said(checks: Sequence[Judged]) -> str:
    """Verdicts in words, the oldest first: `equivalent 3 times, then regressed`."""
    runs = [(verdict, len(list(some))) for verdict, some in groupby(checks, key=lambda one: one.overall)]
    return ", then ".join(verdict if n == 1 else f"{verdict} {n} times" for verdict, n in runs)
