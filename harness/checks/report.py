"""Reports of a check: terminal, JUnit XML and Markdown, with the sentences and numbers they share.

JUnit: the Ant schema (windyroad/JUnit-Schema, JUnit.xsd) fixes the order of elements and wants `package`,
`id`, `hostname`, `time` and a `timestamp` without a zone; the schema of Jenkins' xUnit plugin (junit-10.xsd)
fixes the spelling of times. Attributes that one of the two lacks are left out. Markdown: names and sentences
of others are escaped, so that GitHub shows them as they were written.
"""

from __future__ import annotations

import html
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.checks.advice import COUNTED, SOURCES, describe_next_steps, describe_suspects, sort_outcomes
from harness.checks.outcome import VERDICTS, Check, CheckedModel, MeanOutcome, TaskOutcome, Verdict
from harness.checks.overall_verdict import (
    UNCHECKED,
    describe_anchor,
    describe_collapsed_parts,
    find_single_tasks,
)
from harness.checks.policy import DEFAULT
from harness.core.arguments import format_toml_value
from harness.core.terminal import NAMES_SHOWN, print_table, shorten_names
from harness.core.types import OWN_UNITS
from harness.results.scores import score_text


class _Form(NamedTuple):
    """The style of a verdict, its JUnit element and its sign."""

    style: str
    element: str
    sign: str


FORMS: Mapping[Verdict, _Form] = {
    "regressed": _Form("red", "failure", "❌"),
    "missing": _Form("red", "error", "❌"),
    "inconclusive": _Form("yellow", "skipped", "❓"),
    "not testable": _Form("dim", "skipped", "❓"),
    "improved": _Form("green", "", "✅"),
    "passed": _Form("green", "", "✅"),
    "same": _Form("green", "", "✅"),
}
NOT_MEASURED = "not measured"
"""The word for tasks that lack a score, and for a check that has one."""

LISTED: tuple[Verdict, ...] = ("missing", "not testable")
"""Verdicts without a test, listed with their reasons."""

ROWS = 20
"""Most tasks in a table, unless every task is wanted."""


def _collect_verdict_reasons(check: Check, most: int = sys.maxsize) -> list[str]:
    """Why the verdict is as it is: the check's sentences, at most so many, and all that collapsed."""
    left = len(check.because) - most
    because = [*check.because[:most], *([f"and {left:,} more"] if left > 0 else [])]
    if check.question.name == "port" and check.overall == "regressed":
        # What a port lost follows from what it differs in.
        return because
    fallen = [
        f"{one.task}: {one.delta_text} points, a collapse: {_format_verdict(one)}."
        for one in sort_outcomes(check.tasks)
        # Those that are red are in the check's sentences.
        if one.collapsed and not (one.verdict == "regressed" and one.must_not_regress)
    ]
    parts = [text for one in check.tasks if not one.collapsed for text in describe_collapsed_parts(one)]
    fallen += [text for text in parts if text not in check.because]
    behind = check.overall == "regressed" or check.question.name == "retrain" or check.of("missing")
    return [*because, *fallen] if behind else [*fallen, *because]


def _format_verdict_name(verdict: Verdict) -> str:
    """The word for a verdict."""
    return verdict.replace("missing", NOT_MEASURED)


def _format_overall_name(check: Check) -> str:
    """The verdict; a missing score is no matter of statistics, and has a name of its own."""
    return NOT_MEASURED if check.overall == "inconclusive" and check.of("missing") else check.overall


SEEDS = "seeds (baseline / candidate)"
NUMBERS = ("n", SEEDS, "baseline", "candidate", "difference", "margin")
COLUMNS = ("task", "metric", *NUMBERS, "verdict", "why")
"""The columns of numbers, and all columns of a table in their order."""


def _format_outcome_cells(check: Check, line: TaskOutcome | MeanOutcome) -> dict[str, str]:
    """The cells of a task or a mean by column; the mean of a port has no verdict."""
    if isinstance(line, MeanOutcome):
        name = line.suite if line.wanted == 1 else f"mean of {line.suite}"
        values = {"task": name, "n": f"{line.there} of {line.wanted} tasks"}
    else:
        values = {"task": line.task, "metric": line.metric}
        values["n"] = f"{line.units:,} {line.unit}".strip() if line.units else "–"
        values[SEEDS] = "" if {*line.runs} <= {0, 1} else " / ".join(map(str, reversed(line.runs)))
        fell = f"lost more than {check.policy.get('collapse', 0.0):g} points" if line.collapsed else ""
        fell = "" if check.question.name == "port" else fell  # which has a tolerance, and no collapse
        values["why"] = "; ".join(filter(None, (fell, line.reason)))
    measured = values.get("metric") in OWN_UNITS
    values |= {side: score_text(getattr(line, side), measured=measured) for side in ("baseline", "candidate")}
    values |= {"difference": line.delta_text, "margin": line.margin_text, "verdict": _format_verdict(line)}
    if check.question.name == "port" and isinstance(line, MeanOutcome):
        values |= dict.fromkeys(("margin", "verdict"), "–")
    elif check.question.name == "port" and isinstance(line, TaskOutcome) and line.learner:
        values["margin"] = line.learner
    return {name: values.get(name, "") for name in COLUMNS}


def _format_verdict(line: TaskOutcome | MeanOutcome) -> str:
    """The verdict, with a note where the policy allows the regression."""
    allowed = isinstance(line, TaskOutcome) and line.verdict == "regressed" and not line.must_not_regress
    return "regressed (allowed)" if allowed else _format_verdict_name(line.verdict)


def _select_rows(check: Check) -> tuple[list[TaskOutcome | MeanOutcome], list[TaskOutcome]]:
    """The means that were tested, a single task in place of its mean, also since an anchor; other tasks."""
    alone, port = find_single_tasks(check.tasks, check.means), check.question.name == "port"
    rows: list[TaskOutcome | MeanOutcome] = []
    replaced = Counter(one.task for one in alone.values())
    for mean in (one for one in check.means if one.delta is not None):
        if task := alone.get(mean.suite):
            name = f"{task.task} ({mean.suite})" if replaced[task.task] > 1 else task.task
            # A gain may be chance as that of one task of several, and sure as that of its suite's mean.
            verdict = task.verdict if port else mean.verdict
            red = task.must_not_regress or verdict == mean.verdict == "regressed"
            task = replace(task, task=name, suites=(mean.suite,), verdict=verdict, must_not_regress=red)
        rows.append(task or mean)
    if check.chain and not port and not any(mean.needs_trainings for mean in check.means):
        rows += [replace(one, suite=f"{one.suite}, against the anchor") for one in check.chain.means]
    return rows, [one for one in sort_outcomes(check.tasks) if one.task not in replaced]


RULE = (
    "Passed: the lower end is above −margin. Regressed if all three hold: not passed, upper end below 0, "
    "over half of the margin lost. Improved: the lower end is above 0. Else inconclusive."
)
ONE_TRAINING = "With one training a side no recipe passes. Red: a loss beyond what papers print for seeds."
PREDICTED = (
    "{baseline:.1f} [{baseline_low:.1f}, {baseline_high:.1f}] → "
    "{candidate:.1f} [{candidate_low:.1f}, {candidate_high:.1f}]"
)
DIFFERENCE = "Difference: candidate − baseline before rounding, in points (score × 100), [lower, upper end]."
PORT_RULE = (
    "Margin: 0.05 points plus 3 standard errors. Regressed: off by more. Without vectors: inconclusive from "
    "0.05 points on. Probes, clusterings and trained tasks have no margin and are never red."
)


def _explain_rules(check: Check, *, every: bool = True) -> Iterator[str]:
    """How to read the rows; with `every` also levels, what the suites can see, and the chain."""
    port, several = check.question.name == "port", len(check.means) > 1
    lines: list[TaskOutcome | MeanOutcome] = [*check.tasks, *check.means]
    single = any(line.needs_trainings for line in lines)
    tested = any(line.low is not None and line.verdict != "same" for line in lines)
    low, of_tasks = (100 * (1 - check.policy.get(name, 0.0)) for name in ("alpha", "task_alpha"))
    others = _select_rows(check)[1]
    if tested:
        once = not port and any(one.delta and one.runs == (1, 1) for one in check.tasks)
        only = ", for these two models only, not for other seeds" if single or once else ""
        high = f"97.5 % sure{f' for all {len(check.means)} means together' if several else ''}"
        if others:
            high += f"{'' if several else ' for the mean'}, {of_tasks:g} % for all tasks together"
        true = f"The true one is above the lower end ({low:g} % sure) and below the upper ({high}){only}."
        yield f"{DIFFERENCE} {true}"
        # The margins of a port stand in the rows of its tasks, and are not shown where all passed.
        if not port or every or any(one.verdict not in COUNTED for one in check.tasks):
            yield PORT_RULE if port else ONE_TRAINING if single else RULE
    if check.chain and not single:
        ends = "; ".join(f"{m.suite} {m.delta_text} ({m.margin_text} allowed)" for m in check.chain.means)
        rule = "Regressed: the upper end is below 0, and more than is allowed was lost"
        yield f"Against {describe_anchor(check.chain)}: {ends}. {rule}."
    for mean in check.means:
        if predicted := mean.predicted:
            points = {name: 100 * value for name, value in predicted.items() if name != "target"}
            yield f"{mean.suite}: predicted {predicted['target']}: {PREDICTED.format(**points)}"
    if not (tested and every) or port or single:
        return
    yield "Of several tasks those improved that Benjamini and Hochberg's procedure finds."
    seen = ", ".join(f"{100 * m.detectable:.2f} points on {m.suite}" for m in check.means if m.detectable)
    yield from [f"What it can see: a true loss of {seen} is red in 80 % of checks."] if seen else []


def _format_verdict_counts(check: Check) -> str:
    """The verdicts of means and tasks, e.g. "mean: regressed; tasks: 1 inconclusive, 1 passed"."""
    (rows, others), counts = _select_rows(check), []
    means = [one for one in rows if isinstance(one, MeanOutcome) and check.question.name != "port"]
    tasks = [*(one for one in rows if isinstance(one, TaskOutcome)), *others]
    for name, lines in (("mean", means), ("task", tasks)):
        found = Counter(line.verdict for line in lines)
        words = ", ".join(f"{found[one]:,} {_format_verdict_name(one)}" for one in VERDICTS if found[one])
        if lines:
            counts.append(f"{name}s: {words}" if len(lines) > 1 else f"{name}: {words.removeprefix('1 ')}")
    if check.overall in ("passed", "improved") and "inconclusive" in " ".join(counts):
        counts[-1] += " (inconclusive ones do not decide)"
    return "; ".join(counts) or "no tasks"


def _format_side(side: CheckedModel, mark: str = "") -> str:
    """The name of a baseline or model, with the first model of a baseline and the number of its models."""
    name, *about = dict.fromkeys(f"{mark}{one}{mark}" for one in (side.baseline or side.name, side.name))
    about += [f"{len(side.artifacts):,} trainings"] if len(side.artifacts) > 1 else []
    note = f" ({', '.join(about)})" if about else ""
    return f"{'baseline ' if side.baseline else ''}{name}{note}"


QUESTIONS = {
    "port": "is candidate {} the same model as {}?",
    "retrain": "is the recipe of candidate {} worse than that of {}?",
    "replace": "is candidate {} worse than {}?",
}
"""The question of a check, of the candidate and the baseline."""


def _format_sides(check: Check) -> str:
    """The question and the suites with their margins: "Question port: is A the same model as B? On S"."""
    alone, means = find_single_tasks(check.tasks, check.means), {mean.suite: mean for mean in check.means}
    names: dict[str, list[str]] = {}
    for suite in check.suites:
        mean, note, name = means.get(suite), "", suite
        if mean and mean.left_out:
            name = f"{mean.wanted - mean.left_out:,} of {mean.wanted:,} tasks of {suite}"
        if mean and mean.delta is not None and check.question.name != "port":
            of_mean = "" if suite in alone or mean.wanted == 1 else " of the mean"
            note = f"margin{of_mean} {mean.margin_text}: {SOURCES[mean.margin_source]}"
        names.setdefault(note, []).append(name)
    suites = "; ".join(", ".join(some) + (f" ({note})" if note else "") for note, some in names.items())
    suites = ". ".join([suites, *(one.rstrip(".") for one in check.warnings if one.endswith(UNCHECKED))])
    sides = (_format_side(side, "'") for side in (check.candidate, check.baseline))
    return f"Question {check.question.name}: {QUESTIONS[check.question.name].format(*sides)} On {suites}"


def _format_exit(check: Check) -> str:
    """The exit code and its meaning."""
    verdict, code = _format_overall_name(check), check.exit_code
    note = f", which the policy {'fails' if code else 'lets pass'}"
    return f"exit {code}: {verdict}" + (note if verdict == "inconclusive" and code != 3 else "")


DROPPED = (("metric",), ("why",), (SEEDS,), ("n",), ("baseline", "candidate"))
LONG = 30
"""The columns that a narrow terminal lacks, the first ones first, and the width at which words are folded."""

LABEL = 7
"""The width of the labels beside the sentences of why and what to do."""


def print_check(check: Check, console: Console, *, every: bool, results: Path | None = None) -> None:
    """Print a check: the verdict with why and what to do, the lines that matter, counts, and the exit code.

    Nothing in names is markup. `every`: also tasks that passed. `results`: the folder, if not the default.
    """
    most = sys.maxsize if every else NAMES_SHOWN
    reasons = _collect_verdict_reasons(check, most)
    step, *todo = describe_next_steps(check, results=results)
    style = FORMS[check.overall].style
    _say(console, " ".join((f"{_format_overall_name(check).upper()}. {step}", *reasons[:1])), f"bold {style}")
    _say(console, _format_sides(check))
    also = "Also:" if check.exit_code else "Note:"
    notes = describe_suspects(check, reasons, most=most)
    for label, texts, weight in ((also, reasons[1:], ""), ("Next:", todo, "bold"), ("Note:", notes, "")):
        for number, text in enumerate(texts):
            _say(console, text, weight, label=" " if number else label)
    rows, others = _select_rows(check)
    tasks = [one for one in others if one.verdict not in LISTED]
    shown = tasks if every else [one for one in tasks if one.verdict not in COUNTED][:ROWS]
    _print_table(check, [*rows, *shown], console)
    for text in _explain_rules(check, every=every):
        _say(console, text)
    more = " (--all shows every task and rule)" if rows and not every else ""
    _say(console, f"{_format_verdict_counts(check)}{more}")
    # The reasons of a check that lacks scores are said above.
    for verdict in LISTED if every or check.overall != "inconclusive" else LISTED[1:]:
        for reason in dict.fromkeys(one.reason for one in check.of(verdict)):
            names = shorten_names([one.task for one in check.of(verdict) if one.reason == reason], most)
            text = f"{_format_verdict_name(verdict)}: {names}: {reason or 'no reason was recorded'}"
            _say(console, text, FORMS[verdict].style)
    for warning in check.warnings:
        allowed = warning.endswith("which is allowed.")
        _say(console, f"{'note' if allowed else 'warning'}: {warning}", "" if allowed else "yellow")
    _say(console, _format_exit(check), style)


def _say(console: Console, text: str, style: str = "", *, label: str = "") -> None:
    """Print a text folded between words, beside a label; a command stays one line, to be copied."""
    head, rest = f"{label:{LABEL}}" if label else "", " " * (LABEL if label else 2)
    # Broken at hyphens or within words, names of models and options could not be copied.
    fold = textwrap.TextWrapper(console.width, head, rest, break_on_hyphens=False, break_long_words=False)
    for line in [head + text] if text.startswith("harness ") else fold.wrap(text):
        console.print(Text(line, style=style), soft_wrap=True)


def _print_table(check: Check, rows: Sequence[TaskOutcome | MeanOutcome], console: Console) -> None:
    """Print means and tasks."""
    lines = [_format_outcome_cells(check, row) for row in rows]
    columns = _select_table_columns(lines, console.width) if rows else []
    table = Table()
    for name in columns:
        table.add_column(Text(name), justify="right" if name in NUMBERS else "left")
    for row, line in zip(rows, lines, strict=True):
        styles = {"verdict": FORMS[row.verdict].style, "why": "dim"}
        cells = (Text(line[name], style=styles.get(name, "")) for name in columns)
        table.add_row(*cells, style="bold" if isinstance(row, MeanOutcome) else "")
    if rows:
        print_table(table, console)


def _select_table_columns(rows: Sequence[Mapping[str, str]], width: int = sys.maxsize) -> list[str]:
    """The columns that are not empty, and of these the ones that fit into a width beside whole names."""
    longest = {name: max(len(row[name]) for row in rows) for name in COLUMNS}
    longest |= {name: min(longest[name], LONG) for name in ("metric", "why")}
    chosen = [name for name in COLUMNS if any(row[name] not in ("", "–") for row in rows)]
    for names in DROPPED:
        if 1 + sum(3 + max(len(name), longest[name]) for name in chosen) > width:
            chosen = [name for name in chosen if name not in names]
    return chosen


OVERALL = "check"
"""The testsuite of the overall verdict, and of tasks that are in no suite of the check."""

FORBIDDEN = "[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
"""Characters that XML 1.0 cannot hold, even escaped."""


def render_junit(check: Check) -> str:
    """The check as a JUnit file (UTF-8).

    A testsuite for each suite holds a testcase for each task and one for a mean of several; the testsuite
    `check` holds the overall verdict. A regression is a failure, a missing score an error. Tasks that are
    inconclusive, not testable or allowed to regress are skipped; the overall testcase fails if the exit code
    is not 0. As the Ant schema has no text in a testcase that passed, the output of its testsuite has it.
    """
    suites: dict[str, list[tuple[Element, str]]] = {name: [] for name in (*check.suites, OVERALL)}
    rows, tasks = _select_rows(check)
    for line in (*tasks, *rows):
        homes = line.suites if isinstance(line, TaskOutcome) else (line.suite,)
        home = next((name for name in homes if name in suites), OVERALL)
        suites[home].append(_build_line_case(check, line, home))
    suites[OVERALL].append(_build_overall_case(check))
    root = Element("testsuites")
    root.extend(_build_testsuite(check, n, *one) for n, one in enumerate(suites.items()))
    indent(root)
    # ElementTree writes forbidden characters as they are, and no reader accepts the file then.
    text = re.sub(FORBIDDEN, "", tostring(root, encoding="unicode"))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _build_line_case(check: Check, line: TaskOutcome | MeanOutcome, suite: str) -> tuple[Element, str]:
    """The testcase of a task or a mean with its message; an allowed regression is skipped."""
    facts = _format_outcome_cells(check, line)
    # The mean of a port has no verdict, and is there for its numbers.
    verdict = facts["verdict"].replace("–", "measured")
    element = {"regressed (allowed)": "skipped", "measured": ""}.get(verdict, FORMS[line.verdict].element)
    margin = f", margin {facts['margin']}" if facts["margin"] == line.margin_text else ""
    numbers = f"{facts['difference']} points{margin}" if line.low is not None else ""
    why = "; ".join(filter(None, (numbers, facts["why"])))
    details = [f"{name}: {text}" for name, text in facts.items() if text not in ("", "–")]
    return _build_testcase(suite, facts["task"], element, verdict, f"{verdict}: {why}", details)


def _build_overall_case(check: Check) -> tuple[Element, str]:
    """The testcase of the overall verdict, which fails if the exit code is not 0, with its message."""
    why, verdict = _collect_verdict_reasons(check), _format_overall_name(check)
    element = "failure" if check.exit_code else FORMS[check.overall].element
    element = "error" if verdict == NOT_MEASURED else element
    note = ", not called a regression" if verdict == "inconclusive" else ""
    details = [_format_sides(check), *describe_next_steps(check), *why, *describe_suspects(check, why)]
    details += [*_explain_rules(check), _format_verdict_counts(check), _format_exit(check)]
    message = " ".join((f"{verdict}{note}:", *why))
    case, message = _build_testcase(OVERALL, "overall verdict", element, verdict, message, details)
    case.set("time", f"{check.seconds:.3f}")
    return case, message


def _build_testcase(
    suite: str, name: str, element: str, verdict: str, message: str, details: Sequence[str]
) -> tuple[Element, str]:
    """A testcase that holds its result, or nothing if it passed, and its message."""
    case = Element("testcase", name=name, classname=f"harness.check.{suite}", time="0.000")
    if element:
        kind = {} if element == "skipped" else {"type": verdict}
        SubElement(case, element, kind, message=message).text = "\n".join(details)
    return case, f"{name} {message}"


def _build_testsuite(check: Check, number: int, name: str, told: Sequence[tuple[Element, str]]) -> Element:
    cases = [case for case, _ in told]
    # The schema wants a time without a zone (see above), so UTC is written.
    moment = datetime.fromisoformat(check.when).astimezone(UTC)
    kinds = (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    about = {"name": name, "package": "harness.check", "id": str(number), "tests": str(len(cases))}
    about |= {many: str(sum(case.find(kind) is not None for case in cases)) for many, kind in kinds}
    about |= {"time": f"{sum(float(case.get('time', 0)) for case in cases):.3f}", "hostname": "localhost"}
    suite = Element("testsuite", about, timestamp=moment.strftime("%Y-%m-%dT%H:%M:%S"))
    properties = SubElement(suite, "properties")
    facts = {"check": check.id, "question": check.question.name, "recipe": check.recipe}
    facts |= {"candidate": _format_side(check.candidate), "baseline": _format_side(check.baseline)}
    facts |= {f"policy.{key}": format_toml_value(value) for key, value in check.policy.items()}
    for key, value in facts.items():
        SubElement(properties, "property", name=key, value=value)
    suite.extend(cases)
    texts = (_format_sides(check), *(text for _, text in told), *check.warnings)
    SubElement(suite, "system-out").text = "\n".join(texts)
    SubElement(suite, "system-err")
    return suite


ROOM, ASIDE, SENTENCES = 60_000, 200, 12
"""Most characters of a comment (GitHub refuses 65,536), those reserved around a table for its `details` tags
and the line that counts omitted rows, and most sentences in a list."""


def render_markdown(check: Check) -> str:
    """The check as Markdown: verdict, why, what to do, and the lines that matter; the rest is folded away.

    Names are shown as they are; nothing in them is Markdown or HTML. The text has fewer than 65,536
    characters; rows that do not fit are counted. Its hidden first line identifies the comment, and stays
    while the candidate changes.
    """
    parts = ["\n\n".join(part for part in _iter_markdown_head(check) if part)]
    sections = [section for section in _iter_markdown_sections(check) if section[2]]
    needs = [len(_fit_markdown_table(*section, room=sys.maxsize)) + ASIDE for section in sections]
    for number, section in enumerate(sections):
        # A table gets at most half of the room, or more where those that follow need less.
        left, later = ROOM - sum(len(part) + 2 for part in parts), sum(needs[number + 1 :])
        parts.append(_fit_markdown_table(*section, room=max(left // 2, left - later)))
    return "\n\n".join(parts) + "\n"


def _iter_markdown_head(check: Check) -> Iterator[str]:
    name = check.baseline.baseline or check.baseline.name
    # A CI job finds its former comment by this line and updates it, so the candidate is not in it.
    marker = re.sub(r"[^A-Za-z0-9._+]+", "-", "-".join((name, *check.suites))).strip("-") or "check"
    yield f"<!-- harness-check:{marker} -->"
    step, *todo = describe_next_steps(check)
    yield f"## {FORMS[check.overall].sign} {_format_overall_name(check)}. {_escape_markdown(step)}"
    yield _escape_markdown(_format_sides(check), most=1000)
    reasons = _collect_verdict_reasons(check, NAMES_SHOWN)
    yield _render_sentences(reasons, most=1000)
    commands = [one.startswith("harness ") and "`" not in one for one in todo]
    steps = [
        f"`{re.sub(CONTROL, ' ', one)}`" if is_command else _escape_markdown(one, most=1000)
        for one, is_command in zip(todo, commands, strict=True)
    ]
    yield f"Next: {' '.join(steps)}" if todo else ""
    yield _render_sentences(describe_suspects(check, reasons), most=3000)
    yield f"{_format_verdict_counts(check)}. {_format_exit(check).capitalize()}."


def _iter_markdown_sections(check: Check) -> Iterator[tuple[str, Sequence[str], Sequence[Sequence[str]]]]:
    """Title, columns and rows of each table, most important first; the unfolded table has no title."""
    rows, others = _select_rows(check)
    tasks = [one for one in others if one.verdict not in LISTED]
    yield "", *_format_markdown_rows(check, [*rows, *(t for t in tasks if t.verdict not in COUNTED)])
    rules, warnings = (
        [(_escape_markdown(text, most=1000),) for text in texts]
        for texts in (_explain_rules(check), check.warnings)
    )
    for verdict in LISTED:
        reasons = [(_escape_markdown(one.task), _escape_markdown(one.reason)) for one in check.of(verdict)]
        yield f"{_format_verdict_name(verdict)}: {len(reasons):,}", ("task", "why"), reasons
    yield f"warnings: {len(warnings)}", ("warning",), warnings
    counted = [one for one in tasks if one.verdict in COUNTED]
    yield f"passed or the same: {len(counted):,}", *_format_markdown_rows(check, counted)
    changed = [(name, one) for name, one in check.policy.items() if one != DEFAULT.to_json().get(name)]
    changed = [(_escape_markdown(name), _escape_markdown(format_toml_value(one))) for name, one in changed]
    yield f"changed settings of the policy: {len(changed)}", ("setting", "value"), changed
    yield "how to read this", ("rule",), rules


def _fit_markdown_table(title: str, names: Sequence[str], rows: Sequence[Sequence[str]], *, room: int) -> str:
    """A table of as many rows as fit, with a line that counts the others."""
    sides = ["---:" if name in NUMBERS else "---" for name in names]
    head, *lines = (f"| {' | '.join(cells)} |" for cells in (names, sides, *rows))
    shown, left = 1, room - ASIDE - len(title) - len(head) - len(lines[0])
    while shown < len(lines) and (left := left - len(lines[shown]) - 1) >= 0:
        shown += 1
    table = "\n".join([head, *lines[:shown]]) if shown > 1 else ""
    more = f"{len(lines) - shown:,} of {len(rows):,} rows are left out here." if shown < len(lines) else ""
    body = "\n\n".join(part for part in (table, more) if part)
    return f"<details>\n<summary>{title}</summary>\n\n{body}\n\n</details>" if title else body


def _format_markdown_rows(
    check: Check, lines: Sequence[TaskOutcome | MeanOutcome]
) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """The columns that are not empty, and the cells of tasks and means; names and sentences are escaped."""
    rows = [_format_outcome_cells(check, line) for line in lines]
    columns, names = _select_table_columns(rows) if rows else COLUMNS, ("task", "metric", "n", "why")
    for row, line in zip(rows, lines, strict=True):
        row |= {c: _escape_markdown(row[c]) if c in names else html.escape(row[c]) for c in columns}
        if row["verdict"] != "–":
            row["verdict"] = f"{FORMS[line.verdict].sign} {row['verdict']}"
    return columns, [[row[name] for name in columns] for row in rows]


def _render_sentences(texts: Sequence[str], *, most: int = 300) -> str:
    shown = [_escape_markdown(text, most=most) for text in texts[:SENTENCES]]
    more = [f"and {len(texts) - SENTENCES:,} more"] if len(texts) > SENTENCES else []
    return shown[0] if len(texts) == 1 else "\n".join(f"- {text}" for text in (*shown, *more))


GAP = "&#8203;"
"""A zero-width space: it breaks mentions, references and addresses apart."""

CONTROL = "[\u0000-\u001f\u007f-\u009f\u2028\u2029\ud800-\udfff]+"
SPECIAL = (
    r"(?i)(?P<html>[&<>])"
    r"|(?P<split>@|:(?=//)|\bGH(?=-\d)|\bwww(?=\.)|:(?=[\w+-]+:))"  # mentions, addresses, pictures
    r"|(?P<mark>[\\`*_\[\]~|$]|^[-+=]|\#(?!\d))"
    r"|(?P<item>^\d+(?=[.)]))"
    r"|(?P<reference>\#)"
)


def _escape_markdown(text: str, *, most: int = 300) -> str:
    r"""A name or sentence as one line that GitHub shows as it was written.

    The line holds no HTML, link, mention, reference, picture or formula, and ends no cell of a table.

    >>> print(_escape_markdown("a|b <i> `c` @me #7"))
    a\|b &lt;i&gt; \`c\` @&#8203;me \#&#8203;7
    """
    line = re.sub(CONTROL, " ", text).strip()
    line = line if len(line) <= most else f"{line[: most - 1]}…"
    return re.sub(SPECIAL, _escape_match, line)


def _escape_match(match: re.Match[str]) -> str:
    sign = match[0]
    if match["html"]:
        return html.escape(sign)
    if match["item"]:
        return f"{sign}\\"
    return f"{sign}{GAP}" if match["split"] else f"\\{sign}{GAP if match['reference'] else ''}"
