"""Badges: an entry's mean over a suite as a small picture for a README."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markupsafe import Markup

from harness.scores import score_text
from leaderboard.data.suites import views
from leaderboard.web.page import missing

if TYPE_CHECKING:
    from leaderboard.web.site import Site


LETTER = 6.6
"""Width of a letter; the text is stretched to fit, so other fonts look alike."""


def badge(site: Site, suite: str, slug: str) -> str:
    """The badge of an entry: its mean over tasks, or how much of the suite it has.

    Of a model that scores on some of the tasks chose it has the mean over the others, too, and its title
    names those that are left out.

    Raises:
        NotFound: There is no such suite, or no such entry of it.
    """
    queries = site.queries
    if suite not in queries.suites:
        raise missing("suite", suite, queries.suites, then="The page /suites lists all.")
    listed = queries.suites[suite]
    grid = queries.suite_scores(listed, views(listed.suite)[0])
    rows = {entry.slug: row for row, entry in enumerate(grid.entries)}
    if slug not in rows:
        raise missing("entry", slug, rows, then=f"The page /suites/{suite} lists all.")
    row, mean = rows[slug], grid.over_tasks
    whole = bool(mean.complete[row])
    text = score_text(mean.values[row]) if whole else f"{mean.count[row]} of {mean.expected} columns"
    found, more = grid.untouched([row]), ""
    if whole and found is not None:
        text += f", {score_text(found.over_tasks.values[row])} {found.part.text}"
        more = f"; without {', '.join(found.part.selected)}"
    elif whole and grid.chose(row):
        text += ", chosen by it"
    return _svg(listed.suite.title, text, "#1f6f54" if whole else "#6b7280", more)


def _svg(label: str, text: str, colour: str, more: str) -> str:
    left, right = LETTER * len(label) + 12, LETTER * len(text) + 12
    return Markup(
        '<svg xmlns="http://www.w3.org/2000/svg" width="{w:.0f}" height="20" role="img" '
        'aria-label="{label}: {text}">'
        "<title>{label}: {text}{more}</title>"
        '<rect width="{w:.0f}" height="20" rx="3" fill="#374151"/>'
        '<rect x="{left:.0f}" width="{right:.0f}" height="20" rx="3" fill="{colour}"/>'
        '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11" lengthAdjust="spacing">'
        '<text x="6" y="14" textLength="{a:.0f}">{label}</text>'
        '<text x="{x:.0f}" y="14" textLength="{b:.0f}">{text}</text></g></svg>'
    ).format(
        w=left + right, left=left, right=right, colour=colour, label=label, text=text, more=more,
        a=left - 12, b=right - 12, x=left + 6,
    )  # fmt: skip
