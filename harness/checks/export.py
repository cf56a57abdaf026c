"""JUnit XML, Markdown.

A check as JUnit XML, in the form that both schemas in use allow.

The Ant schema (windyroad/JUnit-Schema, JUnit.xsd) fixes the order of elements and wants `package`,
`id`, `hostname`, `time` and a `timestamp` without a zone; that of Jenkins' xUnit plugin
(junit-10.xsd) fixes how a time is spelled. Attributes that one of them lacks are left out.

A check as a comment on a pull request, in GitHub's Markdown.

Text of others inside GitHub's Markdown: shown as it is, whatever it holds.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from harness.checks import report
from harness.checks.outcome import Check, TaskOutcome
from harness.checks.report import Case, cases
from harness.report import score_text

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold, even escaped."""


def junit(check: Check) -> str:
    """The check as a JUnit file (UTF-8).

    A testsuite for each suite holds a testcase for each task and one for the mean; `check` holds the
    overall verdict. Regressed is a failure and missing an error. What is inconclusive, is not testable,
    or regressed where the policy lets it, is skipped; the overall case fails if the exit code says so.

    Args:
        check: What was found.
    """
    from xml.etree.ElementTree import Element, indent, tostring

    root = Element("testsuites")
    for number, (name, found) in enumerate(cases(check).items()):
        root.append(_suite(check, name, found, number))
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _suite(check: Check, name: str, found: list[Case], number: int) -> Element:
    from xml.etree.ElementTree import Element, SubElement

    about = {"name": name, "package": "harness.check", "id": str(number), **_counts(found)}
    made = Element("testsuite", _clean(about | {"timestamp": _moment(check.when), "hostname": "localhost"}))
    properties = SubElement(made, "properties")
    for key, value in _properties(check).items():
        SubElement(properties, "property", _clean({"name": key, "value": value}))
    made.extend([_case(case, name) for case in found])
    SubElement(made, "system-out").text = FORBIDDEN.sub("", "\n".join(check.warnings))
    SubElement(made, "system-err")
    return made


def _counts(found: list[Case]) -> dict[str, str]:
    kinds = (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    counts = {name: str(sum(case.result == kind for case in found)) for name, kind in kinds}
    return {"tests": str(len(found)), **counts, "time": f"{sum(case.seconds for case in found):.3f}"}


def _properties(check: Check) -> dict[str, str]:
    policy = {f"policy.{key}": value for key, value in check.policy.items()}
    return {
        "check": check.id,
        "candidate": check.candidate.name,
        "candidate.source": check.candidate.source,
        "candidate.artifacts": " ".join(check.candidate.artifacts),
        "baseline": report.baseline_text(check),
        "baseline.source": check.baseline.source,
        "baseline.artifacts": " ".join(check.baseline.artifacts),
        **({"recipe": check.recipe} if check.recipe else {}),
        **{key: v if isinstance(v, str) else json.dumps(v) for key, v in policy.items()},
    }


def _case(case: Case, suite: str) -> Element:
    from xml.etree.ElementTree import Element, SubElement

    names = {"name": case.name, "classname": f"harness.check.{suite}", "time": f"{case.seconds:.3f}"}
    made = Element("testcase", _clean(names))
    if case.result:
        kind = {} if case.result == "skipped" else {"type": case.verdict}
        told = SubElement(made, case.result, _clean(kind | {"message": case.message}))
        told.text = FORBIDDEN.sub("", case.details)
    return made


def _moment(when: str) -> str:
    """An ISO time as the schema wants it: UTC, whole seconds, no zone."""
    moment = datetime.fromisoformat(when)
    return (moment.astimezone(UTC) if moment.tzinfo else moment).strftime("%Y-%m-%dT%H:%M:%S")


def _clean(attributes: Mapping[str, str]) -> dict[str, str]:
    return {name: FORBIDDEN.sub("", value) for name, value in attributes.items()}


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
    yield f"## {SIGNS[check.overall]} {check.overall}: {escaped(report.sides_text(check))}"
    yield _sentences(check.because)
    yield _table(MEANS, _means(check)) if check.means else ""
    predicted = [text for mean in check.means if (text := report.predicted_text(mean))]
    yield _sentences(predicted)
    yield f"{report.counts_text(check)}. {report.exit_text(check).capitalize()}."
    if target := address(link):
        yield f"[The whole check]({target})"


def _sections(check: Check) -> Iterator[tuple[str, Sequence[str], Sequence[Sequence[str]]]]:
    """Title (none of what is not folded away), columns and rows of each table, the important first."""
    rows = report.tabled(check)
    matter = [task for task in rows if task.verdict != "equivalent"]
    yield "", TASKS, [_row(task) for task in matter]
    for verdict in report.LISTED:
        tasks = check.of(verdict)
        yield (
            f"{verdict}: {len(tasks):,}",
            ("task", "why"),
            [(escaped(task.task), escaped(report.why(task))) for task in tasks],
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
        scores = (score_text(mean.baseline), score_text(mean.candidate), report.delta_text(mean))
        margin = f"±{100 * mean.margin:.2f}"
        yield escaped(mean.suite), report.there_text(mean), *scores, margin, mean.verdict


def _row(task: TaskOutcome) -> Sequence[str]:
    """The cells of a task; what can be no number is escaped."""
    names = (escaped(task.task), escaped(task.metric), escaped(report.units_text(task)))
    scores = (score_text(task.baseline), score_text(task.candidate), report.delta_text(task))
    p = report.p_text(task).replace("<", "&lt;")
    told = (report.verdict_text(task), escaped(report.why(task)))
    return (*names, report.seeds_text(task), *scores, p, *told)


def _sentences(texts: Sequence[str]) -> str:
    shown = [escaped(text) for text in texts[:SENTENCES]]
    more = [f"and {len(texts) - SENTENCES:,} more"] if len(texts) > SENTENCES else []
    return shown[0] if len(texts) == 1 else "\n".join(f"- {text}" for text in (*shown, *more))


GAP = "&#8203;"
"""A space of no width: what it splits is no mention, no reference and no address any more."""

CONTROL = re.compile("[\u0000-\u001f\u007f-\u009f\u2028\u2029\ud800-\udfff]+")
ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
SPECIAL = re.compile(
    r"(?P<html>[&<>])"
    r"|(?P<split>@|:(?=//)|\bGH(?=-\d)|\bwww(?=\.)|:(?=[\w+-]+:))"  # mentions, addresses, pictures
    r"|(?P<mark>[\\`*_\[\]~|$]|^[-+=]|\#(?!\d))"
    r"|(?P<item>^\d+(?=[.)]))"
    r"|(?P<reference>\#)",
    re.IGNORECASE,
)
UNSAFE = re.compile(r"[^!#$%&'*+,\-./0-9:;=?@A-Z_a-z~]")


def escaped(text: str, *, most: int = 300) -> str:
    r"""A name or sentence as one line that GitHub shows as it was written.

    It is no HTML, link, mention, reference, picture or formula, and it ends no cell of a table.

    Args:
        text: Of any kind.
        most: Characters after which it is cut.

    >>> print(escaped("a|b <i> `c` @me #7"))
    a\|b &lt;i&gt; \`c\` @&#8203;me \#&#8203;7
    """
    line = CONTROL.sub(" ", text).strip()
    line = line if len(line) <= most else f"{line[: most - 1]}…"
    return SPECIAL.sub(_harmless, line)


def _harmless(found: re.Match[str]) -> str:
    sign = found[0]
    if found["html"]:
        return ENTITIES[sign]
    if found["item"]:
        return f"{sign}\\"
    return f"{sign}{GAP}" if found["split"] else f"\\{sign}{GAP if found['reference'] else ''}"


def hidden(text: str) -> str:
    """A name that may stand in an HTML comment: letters, digits, dots, single hyphens."""
    return re.sub(r"[^A-Za-z0-9._+]+", "-", text).strip("-") or "check"


def address(link: str) -> str:
    """A web address for the target of a link; empty of anything else."""
    if not re.match(r"https?://", link):
        return ""
    return UNSAFE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), link)
