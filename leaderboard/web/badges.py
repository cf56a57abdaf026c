"""Badges: an entry's mean over a suite as a small picture for a README."""

from __future__ import annotations

from harness.results.scores import score_text
from leaderboard.data.suites import views
from leaderboard.web.page import missing
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
    scores = queries.suite_scores(listed, views(listed.suite)[0])
    rows = {entry.slug: row for row, entry in enumerate(scores.entries)}
    if slug not in rows:
        raise missing("entry", slug, rows, then=f"The page /suites/{suite} lists all.")
    row, mean = rows[slug], scores.over_tasks
    whole = bool(mean.complete[row])
    text = score_text(mean.values[row]) if whole else f"{mean.count[row]} of {mean.expected} tasks"
    untouched, more = scores.untouched([row]), ""
    if whole and untouched is not None:
        text += f", {score_text(untouched.over_tasks.values[row])} {untouched.part.text}"
        more = f"; without {', '.join(untouched.part.selected)}"
    elif whole and scores.chose(row):
        text += ", chosen by it"
    label, colour = listed.suite.title, "#1f6f54" if whole else "#6b7280"
    widths = {"left": LETTER * len(label) + 12, "right": LETTER * len(text) + 12}
    return site.template("badge.svg").render(label=label, text=text, more=more, colour=colour, **widths)
