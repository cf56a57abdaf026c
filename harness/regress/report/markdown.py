"""A check as a comment on a pull request, in GitHub's Markdown."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from harness.regress.report import words
from harness.regress.report.escape import address, escaped, hidden
from harness.report_text import score_text

if TYPE_CHECKING:
    from harness.regress.outcome import Check, TaskOutcome

SIGNS = {"regressed": "❌", "improved": "✅", "equivalent": "✅", "inconclusive": "❓"}
"""The sign of each overall verdict."""

ROOM = 60_000
"""Characters that a comment may take; GitHub refuses 65,536."""

ASIDE = 200
"""Characters of a table's surroundings: what folds it away, the line that counts what is left out."""

SENTENCES = 12
"""How many sentences of one kind are shown."""

MEANS = ("suite", "over", "baseline", "candidate", "delta", "margin", "verdict")
TASKS = ("task", "metric", "n", "seeds", "baseline", "candidate", "delta", "p", "verdict", "why")
NUMBERS = ("n", "baseline", "candidate", "delta", "margin", "p")


def marker(check: Check) -> str:
    """The first line of the comment: tells it from others. It stays while the candidate changes."""
    name = check.baseline.baseline or check.baseline.name
    return f"<!-- harness-check:{hidden('-'.join((name, *check.suites)))} -->"


def markdown(check: Check, *, link: str = "") -> str:
    """The check as Markdown: verdict, means, the tasks that matter; the rest folded away.

    Args:
        check: What was found. Names are shown as they are; nothing in them is Markdown or HTML.
        link: Where the whole check can be read, http or https.

    Returns:
        Fewer than 65,536 characters; rows that did not fit are counted.
    """
    parts = ["\n\n".join(part for part in _head(check, link) if part)]
    sections = [section for section in _sections(check) if section[2]]
    needs = [len(_fitted(*section, room=sys.maxsize)) + ASIDE for section in sections]
    for number, section in enumerate(sections):
        left = ROOM - sum(len(part) + 2 for part in parts)
        later = needs[number + 1 :]
        parts.append(_fitted(*section, room=max(left // 2 if later else left, left - sum(later))))
    return "\n\n".join(parts) + "\n"


def _head(check: Check, link: str) -> Iterator[str]:
    yield marker(check)
    yield f"## {SIGNS[check.overall]} {check.overall}: {escaped(words.sides_text(check))}"
    yield _sentences(check.because)
    yield _table(MEANS, _means(check)) if check.means else ""
    predicted = [text for mean in check.means if (text := words.predicted_text(mean))]
    yield _sentences(predicted)
    yield f"{words.counts_text(check)}. {words.exit_text(check).capitalize()}."
    if target := address(link):
        yield f"[The whole check]({target})"


def _sections(check: Check) -> Iterator[tuple[str, Sequence[str], Sequence[Sequence[str]]]]:
    """Title (none of what is not folded away), columns and rows of each table, the important first."""
    rows = words.tabled(check)
    matter = [task for task in rows if task.verdict != "equivalent"]
    yield "", TASKS, [_row(task) for task in matter]
    for verdict in words.LISTED:
        tasks = check.of(verdict)
        yield (
            f"{verdict}: {len(tasks):,}",
            ("task", "why"),
            [(escaped(task.task), escaped(words.why(task))) for task in tasks],
        )
    yield f"warnings: {len(check.warnings)}", ("warning",), [(escaped(text),) for text in check.warnings]
    same = [task for task in rows if task.verdict == "equivalent"]
    yield f"equivalent: {len(same):,}", TASKS, [_row(task) for task in same]
    policy = [(escaped(str(key)), escaped(str(value))) for key, value in check.policy.items()]
    yield "policy", ("setting", "value"), policy


def _fitted(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, room: int) -> str:
    """A table of as many rows as there is room for, with a line that counts the others."""
    shown, left = 0, room - ASIDE - len(title) - len(_table(columns, ()))
    while shown < len(rows) and (left := left - len(_line(rows[shown])) - 1) >= 0:
        shown += 1
    table = _table(columns, rows[:shown]) if shown else ""
    more = f"{len(rows) - shown:,} of {len(rows):,} rows are left out here." if shown < len(rows) else ""
    body = "\n\n".join(part for part in (table, more) if part)
    return f"<details>\n<summary>{title}</summary>\n\n{body}\n\n</details>" if title else body


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    sides = ["---:" if name in NUMBERS else "---" for name in columns]
    return "\n".join([_line(columns), _line(sides), *map(_line, rows)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _means(check: Check) -> Iterator[Sequence[str]]:
    for mean in check.means:
        scores = (score_text(mean.baseline), score_text(mean.candidate), words.delta_text(mean))
        margin = f"±{100 * mean.margin:.2f}"
        yield escaped(mean.suite), words.there_text(mean), *scores, margin, mean.verdict


def _row(task: TaskOutcome) -> Sequence[str]:
    """The cells of a task; what can be no number is escaped."""
    names = (escaped(task.task), escaped(task.metric), escaped(words.units_text(task)))
    scores = (score_text(task.baseline), score_text(task.candidate), words.delta_text(task))
    p = words.p_text(task).replace("<", "&lt;")
    told = (words.verdict_text(task), escaped(words.why(task)))
    return (*names, words.seeds_text(task), *scores, p, *told)


def _sentences(texts: Sequence[str]) -> str:
    shown = [escaped(text) for text in texts[:SENTENCES]]
    more = [f"and {len(texts) - SENTENCES:,} more"] if len(texts) > SENTENCES else []
    return shown[0] if len(texts) == 1 else "\n".join(f"- {text}" for text in (*shown, *more))
