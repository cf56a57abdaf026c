"""A check as people and other programs read it: terminal, JUnit XML, Markdown.

Terminal table and the words all reports share.

A check as people and other programs read it: terminal, Markdown, JUnit.

The sentences and numbers that every report of a check shares.

A check on the terminal.

What a CI service counts: a testcase for each task, each mean and the overall verdict.

JUnit XML, Markdown.

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
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from harness.checks.outcome import VERDICTS, Check, MeanOutcome, Overall, TaskOutcome, Verdict
from harness.scores import score_text

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from rich.console import Console
    from rich.table import Table


LISTED: tuple[Verdict, ...] = ("missing", "not testable")
"""What has no difference to show in a table: it is listed with its reason."""

EXITS: Mapping[tuple[Overall, bool], str] = {
    ("regressed", True): "the candidate regressed",
    ("regressed", False): "passed: the policy lets a regression through",
    ("improved", False): "passed: the candidate improved and regressed nowhere that counts",
    ("equivalent", False): "passed: no difference beyond the margins",
    ("inconclusive", True): "neither a regression nor its absence is shown",
    ("inconclusive", False): "passed: inconclusive, which the policy lets through",
}
"""What an exit code means, by the verdict and by whether the check failed."""


def _units_text(task: TaskOutcome) -> str:
    """How many units were resampled, with their word: "300 queries"; a dash for none."""
    return f"{task.units:,} {task.unit}".strip() if task.units else "–"


def _seeds_text(task: TaskOutcome) -> str:
    """Runs of the candidate and of the baseline: "1", or "3 / 5" where they differ."""
    candidate, baseline = task.runs
    return str(candidate) if candidate == baseline else f"{candidate} / {baseline}"


def _verdict_text(task: TaskOutcome) -> str:
    """The verdict; a regression that the policy lets through says so."""
    allowed = task.verdict == "regressed" and not task.must_not_regress
    return "regressed (allowed)" if allowed else task.verdict


def _why(task: TaskOutcome) -> str:
    """What stands beside a verdict: its reason, and what it takes to settle it."""
    settle = f"to settle: {task.to_settle}" if task.to_settle else ""
    return "; ".join(part for part in (task.reason, settle) if part)


def _mean_text(mean: MeanOutcome) -> str:
    """A suite's mean with its interval and margin, over how many of its tasks it is."""
    scores = f"{score_text(mean.baseline)} → {score_text(mean.candidate)}"
    if mean.delta is None:
        return f"mean over {_there_text(mean)}"
    return f"mean over {_there_text(mean)} {scores}, {mean.delta_text}, margin {mean.margin_text}"


def _there_text(mean: MeanOutcome) -> str:
    """How many of a suite's columns were tested, e.g. "40 of 41 columns"."""
    return f"{mean.there} of {mean.wanted} column{'' if mean.wanted == 1 else 's'}"


def _predicted_text(mean: MeanOutcome) -> str:
    """The benchmark that a suite predicts: "predicted NAME: 51.5 ± 0.6 → 51.2 ± 0.6"; or empty."""
    found = mean.predicted
    if not found:
        return ""
    sides = [_predicted(found, side) for side in ("baseline", "candidate")]
    return f"predicted {found['target']}: {' → '.join(side for side in sides if side)}"


def _predicted(found: Mapping[str, Any], side: str) -> str:
    """One side; its bounds are written out where they are not alike on both sides."""
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
    """What the numbers behind a difference are."""
    alpha, correction = check.policy.get("alpha"), check.policy.get("correction")
    how = "" if correction == "none" else f"the number of tasks ({correction}) and "
    return (
        f"in brackets the bounds of each task's difference, each one-sided at {alpha}; "
        f"p is corrected for {how}the means' part of alpha"
    )


def _ordered(tasks: Sequence[TaskOutcome]) -> list[TaskOutcome]:
    """By verdict, the largest difference first."""
    return sorted(tasks, key=lambda task: (VERDICTS.index(task.verdict), -abs(task.delta or 0.0)))


def _tabled(check: Check) -> list[TaskOutcome]:
    """The tasks that belong in a table, in the order in which a reader wants to see them."""
    return [task for task in _ordered(check.tasks) if task.verdict not in LISTED]


def _reasons(tasks: Sequence[TaskOutcome]) -> dict[str, list[str]]:
    """Each reason once, with the names of its tasks."""
    found: dict[str, list[str]] = {}
    for task in tasks:
        found.setdefault(_why(task) or "no reason was recorded", []).append(task.task)
    return found


def _counts_text(check: Check) -> str:
    """How many tasks have which verdict, e.g. "2 tasks: 1 regressed, 1 equivalent"."""
    counts = [(len(check.of(verdict)), verdict) for verdict in VERDICTS]
    told = ", ".join(f"{count:,} {verdict}" for count, verdict in counts if count)
    return f"{len(check.tasks):,} task{'' if len(check.tasks) == 1 else 's'}" + (f": {told}" if told else "")


def _sides_text(check: Check) -> str:
    """Who was judged by whom, and on what: "A against B on suite"."""
    return f"{check.candidate.name} against {_baseline_text(check)} on {', '.join(check.suites)}"


def _baseline_text(check: Check) -> str:
    """The baseline's model, and the name it was pinned under."""
    party = check.baseline
    return f"{party.name} (baseline {party.baseline})" if party.baseline else party.name


def _exit_text(check: Check) -> str:
    """The exit code and what it means."""
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
"""The colour of each verdict."""

NARROW = 120
"""Columns below which a table has only what decides."""

SHOWN = 6
"""How many names a line shows unless every task was asked for."""


def print_check(check: Check, console: Console, *, every: bool) -> None:
    """Print a check: the verdict, the means, the tasks that matter, and the exit code.

    Args:
        check: What was found.
        console: Where to. Names are printed as they are: nothing in them is markup.
        every: Also show each task that is equivalent, and name all that are only listed.
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
    """The tasks with a difference; those that are equivalent are counted in a line."""
    from rich.text import Text

    rows = _tabled(check)
    shown = [task for task in rows if every or task.verdict != "equivalent"]
    if shown:
        console.print(_table(shown, narrow=console.width < NARROW))
        console.print(Text(_bounds_text(check), style="dim"), soft_wrap=True)
    if len(shown) < len(rows):
        left_out = len(rows) - len(shown)
        console.print(Text(f"equivalent, not shown: {left_out:,} of {len(check.tasks):,} tasks"))


def _table(tasks: Sequence[TaskOutcome], *, narrow: bool) -> Table:
    from rich.table import Table
    from rich.text import Text

    told = not narrow and any(_why(task) for task in tasks)
    table = Table(title=Text("candidate − baseline, scores × 100"), title_justify="left")
    for name in ("task",) if narrow else ("task", "metric"):
        table.add_column(Text(name), overflow="fold")
    for name in ("delta", "p") if narrow else ("n", "seeds", "baseline", "candidate", "delta", "p"):
        table.add_column(Text(name), justify="right", no_wrap=True)
    margins = not narrow and len({task.margin for task in tasks}) > 1
    if margins:
        table.add_column(Text("margin"), justify="right", no_wrap=True)
    table.add_column(Text("verdict"))
    if told:
        table.add_column(Text("why"), overflow="fold", style="dim")
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
    """A line for each reason, with the tasks it holds for."""
    for reason, tasks in _reasons(check.of(verdict)).items():
        yield f"{verdict}: {_names(tasks, every=every)}: {reason}"


def _names(tasks: Sequence[str], *, every: bool) -> str:
    shown = tasks if every else tasks[:SHOWN]
    more = f" and {len(tasks) - len(shown):,} more" if len(shown) < len(tasks) else ""
    return ", ".join(shown) + more


Result = Literal["", "failure", "error", "skipped"]

OVERALL = "check"
"""The testsuite of the overall verdict, and of tasks that no suite claims."""

OF_TASKS: Mapping[Verdict, Result] = {
    "regressed": "failure",
    "missing": "error",
    "inconclusive": "skipped",
    "not testable": "skipped",
}
OF_MEANS: Mapping[Overall, Result] = {"regressed": "failure", "inconclusive": "skipped"}


@dataclass(frozen=True, kw_only=True)
class _Case:
    """One testcase.

    Attributes:
        name: Of the task, or what it is the verdict of.
        result: What became of it; empty for a pass.
        verdict: In the words of the check.
        message: One line.
        details: Several lines.
        seconds: What it took.
    """

    name: str
    result: Result
    verdict: str
    message: str
    details: str
    seconds: float = 0.0


def _cases(check: Check) -> dict[str, list[_Case]]:
    """The cases of each testsuite, the overall verdict last; a task of two suites is in the first."""
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
    """A task: a regression that the policy lets through is skipped, not failed."""
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
    """The mean of a suite."""
    return _Case(
        name=f"mean of {mean.suite}",
        result=OF_MEANS.get(mean.verdict, ""),
        verdict=mean.verdict,
        message=f"{mean.verdict}: {_mean_text(mean)}",
        details="\n".join(filter(None, (_mean_text(mean), _predicted_text(mean)))),
    )


def _of_check(check: Check) -> _Case:
    """The overall verdict, which fails if the exit code does."""
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


def _marker(check: Check) -> str:
    """The first line of the comment: tells it from others. It stays while the candidate changes."""
    name = check.baseline.baseline or check.baseline.name
    return f"<!-- harness-check:{_hidden('-'.join((name, *check.suites)))} -->"


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
    """Title (none of what is not folded away), columns and rows of each table, the important first."""
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
    """A table of as many rows as there is room for, with a line that counts the others."""
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
    """The cells of a task; what can be no number is escaped."""
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


def _escaped(text: str, *, most: int = 300) -> str:
    r"""A name or sentence as one line that GitHub shows as it was written.

    It is no HTML, link, mention, reference, picture or formula, and it ends no cell of a table.

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
    """A name that may stand in an HTML comment: letters, digits, dots, single hyphens."""
    return re.sub(r"[^A-Za-z0-9._+]+", "-", text).strip("-") or "check"


def _address(link: str) -> str:
    """A web address for the target of a link; empty of anything else."""
    if not re.match(r"https?://", link):
        return ""
    return UNSAFE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), link)
