"""Reports of a check: terminal table, JUnit XML and Markdown, with the sentences and numbers they share.

JUnit: the Ant schema (windyroad/JUnit-Schema, JUnit.xsd) fixes the order of elements and wants `package`,
`id`, `hostname`, `time` and a `timestamp` without a zone; the schema of Jenkins' xUnit plugin (junit-10.xsd)
fixes the spelling of times. Attributes that one of the two lacks are left out. Markdown: names and sentences
of others are escaped, so that GitHub shows them as they were written.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from harness.checks.outcome import VERDICTS, Check, MeanOutcome, Overall, TaskOutcome, Verdict
from harness.scores import score_text
from harness.suite_report import print_table

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from rich.console import Console
    from rich.table import Table


LISTED: tuple[Verdict, ...] = ("missing", "not testable")
"""Verdicts without a difference to show: reports list these tasks with their reasons."""

EXITS: Mapping[tuple[Overall, bool], str] = {
    ("regressed", True): "the candidate regressed",
    ("regressed", False): "passed: the policy lets a regression through",
    ("improved", False): "passed: the candidate improved and regressed nowhere that counts",
    ("equivalent", False): "passed: no difference beyond the margins",
    ("inconclusive", True): "neither a regression nor its absence is shown",
    ("inconclusive", False): "passed: inconclusive, which the policy lets through",
}
"""The meaning of an exit code, by the overall verdict and whether the check failed."""


def _units_text(task: TaskOutcome) -> str:
    """The number of units with their name, e.g. "300 queries"; a dash for none."""
    return f"{task.units:,} {task.unit}".strip() if task.units else "–"


def _seeds_text(task: TaskOutcome) -> str:
    """The number of runs, e.g. "1", or "3 / 5" where candidate and baseline differ."""
    candidate, baseline = task.runs
    return str(candidate) if candidate == baseline else f"{candidate} / {baseline}"


def _verdict_text(task: TaskOutcome) -> str:
    """The verdict, with a note where the policy allows the regression."""
    allowed = task.verdict == "regressed" and not task.must_not_regress
    return "regressed (allowed)" if allowed else task.verdict


def _why(task: TaskOutcome) -> str:
    """The reason for a verdict, and how many more units or seeds would settle it."""
    settle = f"to settle: {task.to_settle}" if task.to_settle else ""
    return "; ".join(part for part in (task.reason, settle) if part)


def _mean_text(mean: MeanOutcome) -> str:
    """A suite's mean on both sides with interval, margin and the number of tested columns."""
    scores = f"{score_text(mean.baseline)} → {score_text(mean.candidate)}"
    if mean.delta is None:
        return f"mean over {_there_text(mean)}"
    return f"mean over {_there_text(mean)} {scores}, {mean.delta_text}, margin {mean.margin_text}"


def _there_text(mean: MeanOutcome) -> str:
    """The number of tested columns of a suite, e.g. "40 of 41 columns"."""
    return f"{mean.there} of {mean.wanted} column{'' if mean.wanted == 1 else 's'}"


def _predicted_text(mean: MeanOutcome) -> str:
    """The predicted mean of a benchmark, e.g. "predicted NAME: 51.5 ± 0.6 → 51.2 ± 0.6", or ""."""
    found = mean.predicted
    if not found:
        return ""
    sides = [_predicted(found, side) for side in ("baseline", "candidate")]
    return f"predicted {found['target']}: {' → '.join(side for side in sides if side)}"


def _predicted(found: Mapping[str, Any], side: str) -> str:
    """The predicted mean of one side; bounds of unequal width are written out."""
    value, low, high = (found.get(side + part) for part in ("", "_low", "_high"))
    if value is None:
        return ""
    if low is None or high is None:
        return f"{100 * value:.1f}"
    below, above = f"{100 * (value - low):.1f}", f"{100 * (high - value):.1f}"
    return f"{100 * value:.1f} " + (
        f"± {above}" if below == above else f"[{100 * low:.1f}, {100 * high:.1f}]"
    )


def _bounds_text(check: Check) -> str:
    """The sentence that explains the brackets and p-values of the task table."""
    alpha, correction = check.policy.get("alpha"), check.policy.get("correction")
    how = "" if correction == "none" else f"the number of tasks ({correction}) and "
    return (
        f"in brackets the bounds of each task's difference, each one-sided at {alpha}; "
        f"p is corrected for {how}the means' part of alpha"
    )


def _ordered(tasks: Sequence[TaskOutcome]) -> list[TaskOutcome]:
    """The tasks by verdict, the largest difference first."""
    return sorted(tasks, key=lambda task: (VERDICTS.index(task.verdict), -abs(task.delta or 0.0)))


def _tabled(check: Check) -> list[TaskOutcome]:
    """The tasks of the table, by verdict and size of the difference."""
    return [task for task in _ordered(check.tasks) if task.verdict not in LISTED]


def _reasons(tasks: Sequence[TaskOutcome]) -> dict[str, list[str]]:
    """The names of tasks by the reason for their verdict."""
    found: dict[str, list[str]] = {}
    for task in tasks:
        found.setdefault(_why(task) or "no reason was recorded", []).append(task.task)
    return found


def _counts_text(check: Check) -> str:
    """The number of tasks by verdict, e.g. "2 tasks: 1 regressed, 1 equivalent"."""
    counts = [(len(check.of(verdict)), verdict) for verdict in VERDICTS]
    told = ", ".join(f"{count:,} {verdict}" for count, verdict in counts if count)
    return f"{len(check.tasks):,} task{'' if len(check.tasks) == 1 else 's'}" + (f": {told}" if told else "")


def _sides_text(check: Check) -> str:
    """Candidate, baseline and suites: "A against B on suite"."""
    return f"{check.candidate.name} against {_baseline_text(check)} on {', '.join(check.suites)}"


def _baseline_text(check: Check) -> str:
    """The baseline's model and the name of the baseline."""
    party = check.baseline
    return f"{party.name} (baseline {party.baseline})" if party.baseline else party.name


def _exit_text(check: Check) -> str:
    """The exit code and its meaning."""
    meaning = EXITS.get((check.overall, check.exit_code != 0), "the policy fails this verdict")
    return f"exit {check.exit_code}: {meaning}"


STYLES = {
    "regressed": "bold red",
    "missing": "red",
    "inconclusive": "yellow",
    "not testable": "dim",
    "improved": "green",
    "equivalent": "green",
}
"""The terminal style of each verdict."""

NARROW = 120
"""The width in columns below which the table has only task, delta, p-value and verdict."""

SHOWN = 6
"""Most names or sentences in a list unless all are shown."""


def print_check(check: Check, console: Console, *, every: bool) -> None:
    """Print a check: the verdict, the means, the tasks that matter, and the exit code.

    Args:
        check: The check.
        console: The console; names are printed as they are, nothing in them is markup.
        every: Also show equivalent tasks, and name all tasks that are only listed.
    """
    from rich.text import Text

    def say(line: str, style: str = "") -> None:
        console.print(Text(line, style=style), soft_wrap=True)

    first, *others = check.because or ("nothing was said of why.",)
    verdict = (f"{check.overall}", STYLES[check.overall])
    console.print(Text.assemble(verdict, f": {_sides_text(check)}. {first}"), soft_wrap=True)
    told = others if every else others[:SHOWN]
    more = [f"and {len(others) - len(told):,} more"] if len(told) < len(others) else []
    for line in (*told, *more, *_means(check), _counts_text(check)):
        say(line)
    _print_table(check, console, every=every)
    for line in _listed(check, "missing", every=every):
        say(line, STYLES["missing"])
    for line in _listed(check, "not testable", every=every):
        say(line)
    for warning in check.warnings:
        say(f"warning: {warning}", "yellow")
    say(_exit_text(check))


def _means(check: Check) -> Iterator[str]:
    for mean in check.means:
        yield f"{mean.suite}: {_mean_text(mean)}: {mean.verdict}"
        if mean.predicted:
            yield f"{mean.suite}: {_predicted_text(mean)}"


def _print_table(check: Check, console: Console, *, every: bool) -> None:
    """Print the tasks with a difference; equivalent tasks are only counted unless `every` is set."""
    from rich.text import Text

    rows = _tabled(check)
    shown = [task for task in rows if every or task.verdict != "equivalent"]
    if shown:
        print_table(_table(shown, narrow=console.width < NARROW), console)
        console.print(Text(_bounds_text(check), style="dim"), soft_wrap=True)
    if len(shown) < len(rows):
        left_out = len(rows) - len(shown)
        console.print(Text(f"equivalent, not shown: {left_out:,} of {len(check.tasks):,} tasks"))


def _table(tasks: Sequence[TaskOutcome], *, narrow: bool) -> Table:
    from rich.table import Table
    from rich.text import Text

    told = not narrow and any(_why(task) for task in tasks)
    table = Table(title=Text("candidate − baseline, scores × 100"))
    for name in ("task",) if narrow else ("task", "metric"):
        table.add_column(Text(name))
    for name in ("delta", "p") if narrow else ("n", "seeds", "baseline", "candidate", "delta", "p"):
        table.add_column(Text(name), justify="right")
    margins = not narrow and len({task.margin for task in tasks}) > 1
    if margins:
        table.add_column(Text("margin"), justify="right")
    table.add_column(Text("verdict"))
    if told:
        table.add_column(Text("why"), style="dim")
    for task in tasks:
        verdict = Text(_verdict_text(task), style=STYLES[task.verdict])
        cells = [Text(cell) for cell in _cells(task, narrow=narrow)]
        cells += [Text(task.margin_text)] if margins else []
        table.add_row(*cells, verdict, *([Text(_why(task))] if told else []))
    return table


def _cells(task: TaskOutcome, *, narrow: bool) -> tuple[str, ...]:
    if narrow:
        return (task.task, task.delta_text, task.p_text)
    counted = (_units_text(task), _seeds_text(task))
    scores = (score_text(task.baseline), score_text(task.candidate), task.delta_text)
    return (task.task, task.metric, *counted, *scores, task.p_text)


def _listed(check: Check, verdict: Verdict, *, every: bool) -> Iterator[str]:
    """A line for each reason of a verdict, with the names of its tasks."""
    for reason, tasks in _reasons(check.of(verdict)).items():
        yield f"{verdict}: {_names(tasks, every=every)}: {reason}"


def _names(tasks: Sequence[str], *, every: bool) -> str:
    shown = tasks if every else tasks[:SHOWN]
    more = f" and {len(tasks) - len(shown):,} more" if len(shown) < len(tasks) else ""
    return ", ".join(shown) + more


Result = Literal["", "failure", "error", "skipped"]

OVERALL = "check"
"""The testsuite of the overall verdict, and of tasks that are in no suite of the check."""

OF_TASKS: Mapping[Verdict, Result] = {
    "regressed": "failure",
    "missing": "error",
    "inconclusive": "skipped",
    "not testable": "skipped",
}
OF_MEANS: Mapping[Overall, Result] = {"regressed": "failure", "inconclusive": "skipped"}


@dataclass(frozen=True, kw_only=True)
class _Case:
    """A JUnit testcase; `result` is empty for a pass, `verdict` is the check's own word."""

    name: str
    result: Result
    verdict: str
    message: str
    details: str
    seconds: float = 0.0


def _cases(check: Check) -> dict[str, list[_Case]]:
    """The testcases of each testsuite, the overall verdict last; a task of two suites is in the first."""
    found: dict[str, list[_Case]] = {name: [] for name in check.suites}
    last: dict[str, list[_Case]] = {OVERALL: found.pop(OVERALL, [])}
    every = found | last
    for task in check.tasks:
        home = next((name for name in task.suites if name in every), OVERALL)
        every[home].append(_of_task(task))
    for mean in check.means:
        every.get(mean.suite, every[OVERALL]).append(_of_mean(mean))
    every[OVERALL].append(_of_check(check))
    return every


def _of_task(task: TaskOutcome) -> _Case:
    """The testcase of a task; an allowed regression is skipped, not failed."""
    allowed = task.verdict == "regressed" and not task.must_not_regress
    facts = (
        f"delta {task.delta_text}" if task.delta is not None else "",
        f"p {task.p_text}" if task.p_regressed is not None else "",
        _why(task),
    )
    return _Case(
        name=task.task,
        result="skipped" if allowed else OF_TASKS.get(task.verdict, ""),
        verdict=task.verdict,
        message=f"{_verdict_text(task)}: {', '.join(fact for fact in facts if fact)}",
        details=_details(task),
    )


def _details(task: TaskOutcome) -> str:
    facts = {
        "metric": task.metric,
        "baseline": score_text(task.baseline),
        "candidate": score_text(task.candidate),
        "delta": task.delta_text,
        "margin": f"±{100 * task.margin:.2f}",
        "p": task.p_text,
        "units": _units_text(task),
        "seeds": _seeds_text(task),
    }
    return "\n".join(f"{name}: {value}" for name, value in facts.items())


def _of_mean(mean: MeanOutcome) -> _Case:
    """The testcase of a suite's mean."""
    return _Case(
        name=f"mean of {mean.suite}",
        result=OF_MEANS.get(mean.verdict, ""),
        verdict=mean.verdict,
        message=f"{mean.verdict}: {_mean_text(mean)}",
        details="\n".join(filter(None, (_mean_text(mean), _predicted_text(mean)))),
    )


def _of_check(check: Check) -> _Case:
    """The testcase of the overall verdict, which fails if the exit code is not 0."""
    passed: Result = "skipped" if check.overall == "inconclusive" else ""
    return _Case(
        name="overall verdict",
        result="failure" if check.exit_code else passed,
        verdict=check.overall,
        message=" ".join((f"{check.overall}:", *check.because)),
        details="\n".join((*check.because, _counts_text(check), _exit_text(check))),
        seconds=check.seconds,
    )


FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, even escaped."""


def junit(check: Check) -> str:
    """The check as a JUnit file (UTF-8).

    A testsuite for each suite holds a testcase for each task and one for the mean; the testsuite `check`
    holds the overall verdict. A regression is a failure, a missing score an error. Tasks that are
    inconclusive, not testable or allowed to regress are skipped; the overall testcase fails if the exit code
    is not 0.
    """
    from xml.etree.ElementTree import Element, indent, tostring

    root = Element("testsuites")
    for number, (name, found) in enumerate(_cases(check).items()):
        root.append(_suite(check, name, found, number))
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _suite(check: Check, name: str, found: list[_Case], number: int) -> Element:
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


def _counts(found: list[_Case]) -> dict[str, str]:
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
        "baseline": _baseline_text(check),
        "baseline.source": check.baseline.source,
        "baseline.artifacts": " ".join(check.baseline.artifacts),
        **({"recipe": check.recipe} if check.recipe else {}),
        **{key: v if isinstance(v, str) else json.dumps(v) for key, v in policy.items()},
    }


def _case(case: _Case, suite: str) -> Element:
    from xml.etree.ElementTree import Element, SubElement

    names = {"name": case.name, "classname": f"harness.check.{suite}", "time": f"{case.seconds:.3f}"}
    made = Element("testcase", _clean(names))
    if case.result:
        kind = {} if case.result == "skipped" else {"type": case.verdict}
        told = SubElement(made, case.result, _clean(kind | {"message": case.message}))
        told.text = FORBIDDEN.sub("", case.details)
    return made


def _moment(when: str) -> str:
    """An ISO time as the schemas want it: UTC, whole seconds, no zone."""
    moment = datetime.fromisoformat(when)
    return (moment.astimezone(UTC) if moment.tzinfo else moment).strftime("%Y-%m-%dT%H:%M:%S")


def _clean(attributes: Mapping[str, str]) -> dict[str, str]:
    return {name: FORBIDDEN.sub("", value) for name, value in attributes.items()}


SIGNS = {"regressed": "❌", "improved": "✅", "equivalent": "✅", "inconclusive": "❓"}
"""The sign of each overall verdict."""

ROOM = 60_000
"""Most characters of a comment; GitHub refuses 65,536."""

ASIDE = 200
"""Characters reserved around a table: its `details` tags and the line that counts omitted rows."""

SENTENCES = 12
"""Most sentences in a list."""

MEANS = ("suite", "over", "baseline", "candidate", "delta", "margin", "verdict")
TASKS = ("task", "metric", "n", "seeds", "baseline", "candidate", "delta", "p", "verdict", "why")
NUMBERS = ("n", "baseline", "candidate", "delta", "margin", "p")


def _marker(check: Check) -> str:
    """The hidden first line that identifies the comment; it stays while the candidate changes."""
    name = check.baseline.baseline or check.baseline.name
    return f"<!-- harness-check:{_hidden('-'.join((name, *check.suites)))} -->"


def markdown(check: Check, *, link: str = "") -> str:
    """The check as Markdown: verdict, means and the tasks that matter; the rest is folded away.

    Args:
        check: The check. Names are shown as they are; nothing in them is Markdown or HTML.
        link: The address of the whole check, http or https.

    Returns:
        Fewer than 65,536 characters; rows that do not fit are counted.
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
    yield _marker(check)
    yield f"## {SIGNS[check.overall]} {check.overall}: {_escaped(_sides_text(check))}"
    yield _sentences(check.because)
    yield _markdown_table(MEANS, _mean_rows(check)) if check.means else ""
    predicted = [text for mean in check.means if (text := _predicted_text(mean))]
    yield _sentences(predicted)
    yield f"{_counts_text(check)}. {_exit_text(check).capitalize()}."
    if target := _address(link):
        yield f"[The whole check]({target})"


def _sections(check: Check) -> Iterator[tuple[str, Sequence[str], Sequence[Sequence[str]]]]:
    """Title, columns and rows of each table, most important first; the unfolded table has no title."""
    rows = _tabled(check)
    matter = [task for task in rows if task.verdict != "equivalent"]
    yield "", TASKS, [_row(task) for task in matter]
    for verdict in LISTED:
        tasks = check.of(verdict)
        yield (
            f"{verdict}: {len(tasks):,}",
            ("task", "why"),
            [(_escaped(task.task), _escaped(_why(task))) for task in tasks],
        )
    yield f"warnings: {len(check.warnings)}", ("warning",), [(_escaped(text),) for text in check.warnings]
    same = [task for task in rows if task.verdict == "equivalent"]
    yield f"equivalent: {len(same):,}", TASKS, [_row(task) for task in same]
    policy = [(_escaped(str(key)), _escaped(str(value))) for key, value in check.policy.items()]
    yield "policy", ("setting", "value"), policy


def _fitted(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, room: int) -> str:
    """A table of as many rows as fit, with a line that counts the others."""
    shown, left = 0, room - ASIDE - len(title) - len(_markdown_table(columns, ()))
    while shown < len(rows) and (left := left - len(_markdown_row(rows[shown])) - 1) >= 0:
        shown += 1
    table = _markdown_table(columns, rows[:shown]) if shown else ""
    more = f"{len(rows) - shown:,} of {len(rows):,} rows are left out here." if shown < len(rows) else ""
    body = "\n\n".join(part for part in (table, more) if part)
    return f"<details>\n<summary>{title}</summary>\n\n{body}\n\n</details>" if title else body


def _markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    sides = ["---:" if name in NUMBERS else "---" for name in columns]
    return "\n".join([_markdown_row(columns), _markdown_row(sides), *map(_markdown_row, rows)])


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _mean_rows(check: Check) -> Iterator[Sequence[str]]:
    for mean in check.means:
        scores = (score_text(mean.baseline), score_text(mean.candidate), mean.delta_text)
        margin = f"±{100 * mean.margin:.2f}"
        yield _escaped(mean.suite), _there_text(mean), *scores, margin, mean.verdict


def _row(task: TaskOutcome) -> Sequence[str]:
    """The cells of a task; cells that may not be numbers are escaped."""
    names = (_escaped(task.task), _escaped(task.metric), _escaped(_units_text(task)))
    scores = (score_text(task.baseline), score_text(task.candidate), task.delta_text)
    p = task.p_text.replace("<", "&lt;")
    told = (_verdict_text(task), _escaped(_why(task)))
    return (*names, _seeds_text(task), *scores, p, *told)


def _sentences(texts: Sequence[str]) -> str:
    shown = [_escaped(text) for text in texts[:SENTENCES]]
    more = [f"and {len(texts) - SENTENCES:,} more"] if len(texts) > SENTENCES else []
    return shown[0] if len(texts) == 1 else "\n".join(f"- {text}" for text in (*shown, *more))


GAP = "&#8203;"
"""A zero-width space: it breaks mentions, references and addresses apart."""

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


def _escaped(text: str, *, most: int = 300) -> str:
    r"""A name or sentence as one line that GitHub shows as it was written.

    The line holds no HTML, link, mention, reference, picture or formula, and ends no cell of a table.

    >>> print(_escaped("a|b <i> `c` @me #7"))
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


def _hidden(text: str) -> str:
    """A name fit for an HTML comment: letters, digits, dots, underscores, plus signs, single hyphens."""
    return re.sub(r"[^A-Za-z0-9._+]+", "-", text).strip("-") or "check"


def _address(link: str) -> str:
    """A web address as the target of a link; empty for anything else."""
    if not re.match(r"https?://", link):
        return ""
    return UNSAFE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), link)
