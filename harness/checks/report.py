"""Reports of a check: terminal, JUnit XML and Markdown, with the sentences and numbers they share.

JUnit: the Ant schema (windyroad/JUnit-Schema, JUnit.xsd) fixes the order of elements and wants `package`,
`id`, `hostname`, `time` and a `timestamp` without a zone; the schema of Jenkins' xUnit plugin (junit-10.xsd)
fixes the spelling of times. Attributes that one of the two lacks are left out. Markdown: names and sentences
of others are escaped, so that GitHub shows them as they were written.
"""

from __future__ import annotations

import html
import json
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.checks import advice
from harness.checks.advice import describe_next_steps, get_task_delta, join_names, sort_outcomes
from harness.checks.outcome import VERDICTS, Check, CheckedModel, MeanOutcome, TaskOutcome, Verdict
from harness.checks.policy import RED
from harness.core.arguments import format_toml_value
from harness.core.terminal import print_table
from harness.core.types import OWN_UNITS
from harness.results.scores import score_text


class _Form(NamedTuple):
    """The style of a verdict, its JUnit element and its sign, and what it says of a whole check."""

    style: str
    element: str
    sign: str
    meaning: str = ""


FORMS: Mapping[Verdict, _Form] = {
    "regressed": _Form("red", "failure", "❌", "the candidate regressed"),
    "missing": _Form("red", "error", "❌"),
    "inconclusive": _Form("yellow", "skipped", "❓", "too little evidence to pass or fail it"),
    "not testable": _Form("dim", "skipped", "❓"),
    "improved": _Form("green", "", "✅", "passed: the candidate is better"),
    "passed": _Form("green", "", "✅", "passed: not worse by more than is allowed"),
    "same": _Form("green", "", "✅", "passed: both sides gave the same outputs"),
}
PORT_MEANINGS: Mapping[Verdict, str] = {
    "regressed": "the candidate's outputs are not the baseline's",
    "passed": "passed: all that was compared agrees within what a port may change",
}

LISTED: tuple[Verdict, ...] = ("missing", "not testable")
COUNTED: tuple[Verdict, ...] = ("passed", "same")
"""Verdicts without a test, listed with their reasons; and those of tasks that are only counted."""

ROWS = 20
"""Most tasks in a table, unless every task is wanted."""


def _collect_verdict_reasons(check: Check) -> list[str]:
    """Why the verdict is as it is: the check's sentences, and tasks that collapsed and are not among them."""
    named = {one.partition(" ")[0] for one in check.because}
    fallen = [
        f"{one.task} {one.fall_text}: {_format_verdict(one)}"
        for one in sort_outcomes(check.tasks)
        if one.collapsed and one.task not in named
    ]
    retrained = (check.question.name, check.overall) == ("retrain", "inconclusive")
    if retrained or _name_verdict(check) in ("regressed", "not measured"):
        return [*check.because, *fallen]
    return [*fallen, *check.because]


def _name_verdict(check: Check) -> str:
    """The verdict; a missing score is no matter of statistics, and has a name of its own."""
    return "not measured" if check.overall == "inconclusive" and check.of("missing") else check.overall


def _format_headline(reasons: Sequence[str], step: str) -> str:
    """The first reason of a verdict and what to do."""
    return f"{reasons[0].rstrip('.')}. {step}" if reasons else step


def _describe_suspects(check: Check, *, every: bool = False) -> list[str]:
    """The tasks that are lower, by the false-discovery rate, and not red, and the parts of tasks that are."""
    lower = [one for one in sorted(check.tasks, key=get_task_delta) if one.suspect]
    tasks = [one for one in lower if not one.collapsed and one.verdict != "regressed"]
    named = join_names([f"{one.task} {one.delta_text}" for one in tasks], every=every, between="; ")
    parts = join_names(advice.list_lost_parts(check), every=every, between="; ")
    return [
        *([f"Worth a look: {named} (perhaps lower; does not fail)."] if tasks else []),
        *([f"Where it lost: {parts}."] if parts else []),
    ]


SEEDS = "seeds (baseline / candidate)"
COLUMNS = (
    "task", "metric", "n", SEEDS, "baseline", "candidate",
    "difference", "p", "margin", "verdict", "why",
)  # fmt: skip
NUMBERS = ("n", SEEDS, "baseline", "candidate", "difference", "p", "margin")
"""The columns of a table in their order, and those of numbers."""


def _format_outcome_cells(check: Check, line: TaskOutcome | MeanOutcome) -> dict[str, str]:
    """The cells of a task or a mean by column; the number of runs only where it is not 1.

    The mean of a port has no verdict, as its tasks are judged one by one.
    """
    why = [f"to settle: {line.to_settle}" if line.to_settle else ""]
    if isinstance(line, MeanOutcome):
        tested_text = f"{line.there} of " if line.there != line.wanted else ""
        values = {"task": line.suite, "n": f"{tested_text}{line.wanted} task"}
        if line.wanted != 1:
            values = {"task": f"mean of {line.suite}", "n": f"{values['n']}s"}
        why += ["no task could be tested"] if line.delta is None else []
    else:
        values = {"task": line.task, "metric": line.metric}
        values["n"] = f"{line.units:,} {line.unit}".strip() if line.units else "–"
        runs = " / ".join(map(str, dict.fromkeys(reversed(line.runs))))  # "3 / 5" where the sides differ
        values[SEEDS] = runs if runs != "1" else ""
        fell = "collapsed" if line.verdict == "regressed" else "fell"
        why = [fell if line.collapsed else "", line.reason, *why]
    measured = values.get("metric") in OWN_UNITS
    values |= {side: score_text(getattr(line, side), measured=measured) for side in ("baseline", "candidate")}
    values |= {"difference": line.delta_text, "p": line.p_text, "margin": line.margin_text}
    values |= {"verdict": _format_verdict(line), "why": "; ".join(filter(None, why))}
    if check.question.name == "port" and isinstance(line, MeanOutcome):
        values |= dict.fromkeys(("p", "margin", "verdict"), "–")
    return {name: values.get(name, "") for name in COLUMNS}


def _format_verdict(line: TaskOutcome | MeanOutcome) -> str:
    """The verdict, with a note where the policy allows the regression."""
    allowed = isinstance(line, TaskOutcome) and line.verdict == "regressed" and not line.must_not_regress
    return "regressed (allowed)" if allowed else line.verdict


def _mean_texts(check: Check) -> Iterator[str]:
    """The limits of each suite's mean, what it can see, its columns, and the predicted benchmark."""
    port = check.question.name == "port"
    if port:
        yield (
            "A score that follows from vectors alone is red if it differs by more than 0.05 points and three "
            "standard errors; one of a classifier or a clustering never is."
        )
    lines: Sequence[TaskOutcome | MeanOutcome] = (*check.tasks, *check.means)
    if any(line.p is not None and line.verdict != "same" for line in lines):
        yield _explain_bounds(check)
    judged = [mean for mean in check.means if mean.delta is not None and mean.verdict != "same" and not port]
    for margin in dict.fromkeys(mean.margin for mean in judged):
        alike = [mean for mean in judged if mean.margin == margin]
        yield _explain_margin(alike, every=len(alike) == len(judged))
    for mean in check.means:
        if mean.predicted:
            sides = (_format_prediction(mean.predicted, side) for side in ("baseline", "candidate"))
            yield f"{mean.suite}: predicted {mean.predicted['target']}: {' → '.join(filter(None, sides))}"
    if chain := check.chain:
        since = f"since {chain.anchor} of {chain.when[:10]} (anchor, {chain.baselines} before)"
        red = "It is red when the loss is sure and above"
        yield from (f"{m.suite} {since}: {m.delta_text}. {red} {m.margin_text} in all." for m in chain.means)
    if len(check.means) > 1 and not port:
        each = 100 * (1 - RED / len(check.means))
        yield f"With {len(check.means)} means, a loss of one is sure at {each:.4g} %, in place of 97.5 %."


def _explain_margin(means: Sequence[MeanOutcome], *, every: bool) -> str:
    """When suites of one margin pass or are red, and what each can see; `every` if no suite has another."""
    first, several = means[0], len(means) > 1
    names = ", ".join(one.suite for one in means)
    subject = "Each suite" if every and several else f"{names}: {'each' if several else 'it'}"
    text = f"{subject} passes if the loss is surely below {first.margin_text}. If not, it is red when the "
    text += f"loss is sure and above {50 * first.margin:.2f}."
    seen = [(one.suite, f"{100 * one.detectable:.2f}") for one in means if one.detectable is not None]
    if losses := ", ".join(f"{loss} ({suite})" if several else loss for suite, loss in seen):
        text += f" Planned before measuring: a loss of {losses} points would be called red in 80 % of checks."
    if any(one.there != one.wanted for one in means):
        text += " Tasks without scores or examples of both sides are not in its mean."
    return text


def _format_prediction(predicted: Mapping[str, Any], side: str) -> str:
    """The predicted mean of one side, e.g. "51.5 ± 0.6"; bounds of unequal width are written out."""
    value, low, high = (predicted.get(side + part) for part in ("", "_low", "_high"))
    if value is None or low is None or high is None:
        return "" if value is None else f"{100 * value:.1f}"
    below, above = f"{100 * (value - low):.1f}", f"{100 * (high - value):.1f}"
    bounds = f"± {above}" if below == above else f"[{100 * low:.1f}, {100 * high:.1f}]"
    return f"{100 * value:.1f} {bounds}"


def _explain_bounds(check: Check) -> str:
    """The sentence that explains the two ends of an interval, and p."""
    sure, tasks = (100 * (1 - check.policy.get(name, 0.0)) for name in ("alpha", "task_alpha"))
    single = any(line.to_settle == advice.TRAININGS for line in (*check.tasks, *check.means))
    return (
        f"{'Between these two trainings only: the' if single else 'The'} true difference is above low "
        f"({sure:g} % sure) and below high (97.5 % for all means, {tasks:g} % for all tasks). Improved: "
        "low > 0. Passed: low > −margin. If not passed, regressed: high < 0 and more than half of the margin "
        "lost. p: chance of such scores if the true loss is the margin (for regressed: if there is no loss)."
    )


def _format_verdict_counts(check: Check) -> str:
    """The number of tasks by verdict, e.g. "2 tasks: 1 regressed, 1 passed"; means stand in the table."""
    counts = ", ".join(f"{len(check.of(one)):,} {one}" for one in VERDICTS if check.of(one))
    many = "" if len(check.tasks) == 1 else "s"
    return f"{len(check.tasks):,} task{many}" + (f": {counts}" if counts else "")


def _format_side(side: CheckedModel) -> str:
    """The first model of a side and the number of further ones, and the name of a baseline."""
    more = f" and {len(side.artifacts) - 1:,} more" if len(side.artifacts) > 1 else ""
    if side.name == side.baseline:
        return f"baseline {side.name}{more}"
    return f"{side.name}{more}" + (f" (baseline {side.baseline})" if side.baseline else "")


QUESTIONS = {
    "port": "Port: is {} the same model as {}? On {}",
    "retrain": "Retrain: is the recipe of {} worse than that of {}, whatever the seed? On {}",
    "replace": "Replace: is {} worse than {}? On {}",
}
"""The question of a check, of the candidate, the baseline and the suites."""


def _format_sides(check: Check) -> str:
    """The question and the suites with their margins: "Port: is A the same model as B? On S"."""
    margins = {
        mean.suite: f" (margin {'of the mean ' if mean.wanted != 1 else ''}{mean.margin_text}: "
        f"{advice.SOURCES[mean.margin_source]})"
        for mean in check.means
        if mean.delta is not None and check.question.name != "port"
    }
    suites = ", ".join(f"{suite}{margins.get(suite, '')}" for suite in check.suites)
    sides = map(_format_side, (check.candidate, check.baseline))
    return QUESTIONS[check.question.name].format(*sides, suites)


def _exit_text(check: Check) -> str:
    """The exit code and its meaning."""
    # Exit code 3 is for statistics alone: work that is missing is done again, and then decides.
    undecided = check.overall == "inconclusive"
    if undecided and check.exit_code == 1 and check.policy.get("inconclusive") != "fail":
        return "exit 1: scores are missing, or nothing could be tested"
    policy = undecided and check.exit_code != 3
    note = f", which the policy {'fails' if check.exit_code else 'lets pass'}" if policy else ""
    meaning = PORT_MEANINGS.get(check.overall, "") if check.question.name == "port" else ""
    meaning = meaning or FORMS[check.overall].meaning
    return f"exit {check.exit_code}: {meaning}{note}"


NEEDED = ("task", "difference", "margin", "verdict")
FURTHER = (("p",), ("baseline", "candidate"), ("n",), (SEEDS,), ("why",), ("metric",))
LONG = 30
"""The columns of every printed table, those added in this order where they fit into the terminal, and the
width at which sentences are folded."""

LABEL = 7
"""The width of the labels beside the sentences of why and what to do."""


def print_check(check: Check, console: Console, *, every: bool, results: Path | None = None) -> None:
    """Print a check: the verdict with why and what to do, the lines that matter, counts, and the exit code.

    Args:
        check: The check.
        console: The console; names are printed as they are, nothing in them is markup.
        every: Also show tasks that passed, and name all tasks that are only listed.
        results: The results folder, where it is not the default one, for the commands to type.
    """
    reasons = _collect_verdict_reasons(check)
    left = 0 if every else max(len(reasons) - advice.SHOWN, 0)
    reasons = [*reasons[: len(reasons) - left], f"and {left:,} more"] if left else reasons
    step, *todo = describe_next_steps(check, results=results).split("\n")
    todo += _describe_suspects(check, every=every)
    style = FORMS[check.overall].style
    _say(console, f"{_name_verdict(check).upper()}: {_format_headline(reasons, step)}", f"bold {style}")
    _say(console, _format_sides(check))
    for label, texts, weight in (("Why:", reasons[1:], ""), ("Next:", todo, "bold")):
        for number, text in enumerate(texts):
            _say(console, text, weight, label=" " if number else label)
    tasks = [one for one in sort_outcomes(check.tasks) if one.verdict not in LISTED]
    shown = tasks if every else [one for one in tasks if one.verdict not in COUNTED][:ROWS]
    _print_table(check, shown, console)
    for text in _mean_texts(check):
        _say(console, text)
    rest = [one for one in tasks if one not in shown and one not in _find_single_tasks(check).values()]
    more = " (--all shows every one)" if rest else ""
    _say(console, f"{_format_verdict_counts(check)}{more}")
    for verdict in LISTED:
        for reason in dict.fromkeys(one.reason for one in check.of(verdict)):
            names = join_names([one.task for one in check.of(verdict) if one.reason == reason], every=every)
            _say(console, f"{verdict}: {names}: {reason or 'no reason was recorded'}", FORMS[verdict].style)
    for warning in check.warnings:
        _say(console, f"warning: {warning}", "yellow")
    _say(console, _exit_text(check), style)


def _say(console: Console, text: str, style: str = "", *, label: str = "") -> None:
    """Print a text folded between words, beside a label; a command stays one line, to be copied."""
    head, rest = f"{label:{LABEL}}" if label else "", " " * (LABEL if label else 2)
    # Broken at hyphens or within words, names of models and options could not be copied.
    fold = textwrap.TextWrapper(console.width, head, rest, break_on_hyphens=False, break_long_words=False)
    for line in [head + text] if text.startswith("harness ") else fold.wrap(text):
        console.print(Text(line, style=style), soft_wrap=True)


def _find_single_tasks(check: Check) -> dict[str, TaskOutcome]:
    """By suite the tasks that are alone in their suite; a suite of one column may have several tasks."""
    tasks = {mean.suite: [one for one in check.tasks if mean.suite in one.suites] for mean in check.means}
    single = {mean.suite for mean in check.means if mean.wanted == 1}
    return {suite: ones[0] for suite, ones in tasks.items() if suite in single and len(ones) == 1}


def _print_table(check: Check, tasks: Sequence[TaskOutcome], console: Console) -> None:
    """Print the means and some tasks."""
    alone, port = _find_single_tasks(check), check.question.name == "port"
    rows: list[TaskOutcome | MeanOutcome] = [
        replace(alone[mean.suite], verdict=alone[mean.suite].verdict if port else mean.verdict)
        if mean.suite in alone and mean.delta is not None
        else mean
        for mean in check.means
    ]
    rows += [one for one in tasks if one not in alone.values()]
    lines = [_format_outcome_cells(check, row) for row in rows]
    columns = _select_table_columns(lines, console.width) if rows else []
    table = Table(title=Text("candidate − baseline [low, high], scores × 100"))
    for name in columns:
        table.add_column(Text(name), justify="right" if name in NUMBERS else "left")
    for row, line in zip(rows, lines, strict=True):
        styles = {"verdict": FORMS[row.verdict].style, "why": "dim"}
        cells = (Text(line[name], style=styles.get(name, "")) for name in columns)
        table.add_row(*cells, style="bold" if isinstance(row, MeanOutcome) else "")
    if rows:
        print_table(table, console)


def _select_table_columns(rows: Sequence[Mapping[str, str]], width: int) -> list[str]:
    """The columns that fit into a width beside whole names; none is empty."""

    def measure_column(name: str) -> int:
        longest = max(len(row[name]) for row in rows)
        return 3 + max(len(name), longest if name in (*NEEDED, *NUMBERS) else min(longest, LONG))

    chosen, room = [*NEEDED], width - 1 - sum(map(measure_column, NEEDED))
    for names in FURTHER:
        extra_width = sum(map(measure_column, names))
        if extra_width <= room and any(row[name] for name in names for row in rows):
            chosen, room = [*chosen, *names], room - extra_width
    return [name for name in COLUMNS if name in chosen]


OVERALL = "check"
"""The testsuite of the overall verdict, and of tasks that are in no suite of the check."""

FORBIDDEN = "[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
"""Characters that XML 1.0 cannot hold, even escaped."""


def render_junit(check: Check) -> str:
    """The check as a JUnit file (UTF-8).

    A testsuite for each suite holds a testcase for each task and one for the mean; the testsuite `check`
    holds the overall verdict. A regression is a failure, a missing score an error. Tasks that are
    inconclusive, not testable or allowed to regress are skipped; the overall testcase fails if the exit code
    is not 0.
    """
    suites: dict[str, list[Element]] = {name: [] for name in check.suites if name != OVERALL}
    suites[OVERALL] = []
    lines: tuple[TaskOutcome | MeanOutcome, ...] = (*check.tasks, *check.means)
    for line in lines:
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


def _build_line_case(check: Check, line: TaskOutcome | MeanOutcome, suite: str) -> Element:
    """The testcase of a task or a mean; an allowed regression and the mean of a port are skipped."""
    facts = _format_outcome_cells(check, line)
    element = FORMS[line.verdict].element if facts["verdict"] == line.verdict else "skipped"
    tests = [f", {name} {facts[name]}" for name in ("p", "margin") if facts[name] != "–"]
    numbers = "".join((f"{facts['difference']} points", *tests))
    why = "; ".join(filter(None, (numbers if line.low is not None else "", facts["why"])))
    details = [f"{name}: {text}" for name, text in facts.items() if text]
    return _build_testcase(suite, facts["task"], element, line.verdict, f"{facts['verdict']}: {why}", details)


def _build_overall_case(check: Check) -> Element:
    """The testcase of the overall verdict, which fails if the exit code is not 0."""
    reasons, verdict = _collect_verdict_reasons(check), check.overall
    element = "failure" if check.exit_code else FORMS[verdict].element
    message = " ".join((f"{_name_verdict(check)}:", *reasons))
    details = [*reasons, describe_next_steps(check), _format_sides(check), *_describe_suspects(check)]
    details += [*_mean_texts(check), _format_verdict_counts(check), _exit_text(check)]
    case = _build_testcase(OVERALL, "overall verdict", element, verdict, message, details)
    case.set("time", f"{check.seconds:.3f}")
    return case


def _build_testcase(
    suite: str, name: str, element: str, verdict: str, message: str, details: Sequence[str]
) -> Element:
    """A testcase that holds its result, or nothing if it passed."""
    case = Element("testcase", name=name, classname=f"harness.check.{suite}", time="0.000")
    if element:
        kind = {} if element == "skipped" else {"type": verdict}
        SubElement(case, element, kind, message=message).text = "\n".join(details)
    return case


def _build_testsuite(check: Check, number: int, name: str, cases: Sequence[Element]) -> Element:
    moment = datetime.fromisoformat(check.when)
    # The schema wants a time without a zone (see above), so UTC is written.
    moment = moment.astimezone(UTC) if moment.tzinfo else moment
    kinds = (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    about = {"name": name, "package": "harness.check", "id": str(number), "tests": str(len(cases))}
    about |= {many: str(sum(case.find(kind) is not None for case in cases)) for many, kind in kinds}
    about |= {"time": f"{sum(float(case.get('time', 0)) for case in cases):.3f}", "hostname": "localhost"}
    suite = Element("testsuite", about, timestamp=moment.strftime("%Y-%m-%dT%H:%M:%S"))
    properties = SubElement(suite, "properties")
    facts: dict[str, Any] = {"check": check.id, "question": check.question.name}
    for side, model in (("candidate", check.candidate), ("baseline", check.baseline)):
        facts |= {side: _format_side(model), f"{side}.source": model.source}
        facts[f"{side}.artifacts"] = " ".join(model.artifacts)
    facts |= {"recipe": check.recipe} if check.recipe else {}
    facts |= {f"policy.{key}": value for key, value in check.policy.items()}
    for key, value in facts.items():
        text = value if isinstance(value, str) else json.dumps(value)
        SubElement(properties, "property", name=key, value=text)
    suite.extend(cases)
    SubElement(suite, "system-out").text = "\n".join(check.warnings)
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
        left = ROOM - sum(len(part) + 2 for part in parts)
        # A table gets at most half of the room while others follow, or more where those need less.
        later = needs[number + 1 :]
        parts.append(_fit_markdown_table(*section, room=max(left // 2 if later else left, left - sum(later))))
    return "\n\n".join(parts) + "\n"


def _iter_markdown_head(check: Check) -> Iterator[str]:
    name = check.baseline.baseline or check.baseline.name
    # A CI job finds its former comment by this line and updates it, so the candidate is not in it.
    yield f"<!-- harness-check:{_clean_comment_name('-'.join((name, *check.suites)))} -->"
    reasons, (step, *todo) = _collect_verdict_reasons(check), describe_next_steps(check).split("\n")
    headline = _escape_markdown(_format_headline(reasons, step))
    yield f"## {FORMS[check.overall].sign} {_name_verdict(check)}: {headline}"
    yield _escape_markdown(_format_sides(check), most=1000)
    yield _render_sentences(reasons[1:])
    steps = [
        f"`{re.sub(CONTROL, ' ', one)}`"
        if one.startswith("harness ") and "`" not in one
        else _escape_markdown(one, most=1000)
        for one in todo
    ]
    yield f"Next: {' '.join(steps)}" if todo else ""
    yield _render_sentences(_describe_suspects(check), most=3000)
    yield _render_sentences([*_mean_texts(check)], most=1000)
    yield f"{_format_verdict_counts(check)}. {_exit_text(check).capitalize()}."


def _iter_markdown_sections(check: Check) -> Iterator[tuple[str, Sequence[str], Sequence[Sequence[str]]]]:
    """Title, columns and rows of each table, most important first; the unfolded table has no title."""
    tasks = [one for one in sort_outcomes(check.tasks) if one.verdict not in LISTED]
    matter = [one for one in tasks if one.verdict not in COUNTED]
    lines: Sequence[TaskOutcome | MeanOutcome] = (*check.means, *matter)
    yield "", COLUMNS, [_format_markdown_row(check, one) for one in lines]
    for verdict in LISTED:
        reasons = [(_escape_markdown(one.task), _escape_markdown(one.reason)) for one in check.of(verdict)]
        yield f"{verdict}: {len(reasons):,}", ("task", "why"), reasons
    warnings = [(_escape_markdown(text, most=1000),) for text in check.warnings]
    yield f"warnings: {len(warnings)}", ("warning",), warnings
    counted = [_format_markdown_row(check, one) for one in tasks if one.verdict in COUNTED]
    yield f"passed or the same: {len(counted):,}", COLUMNS, counted
    policy = [(key, format_toml_value(value)) for key, value in check.policy.items()]
    yield "policy", ("setting", "value"), [tuple(map(_escape_markdown, row)) for row in policy]


def _fit_markdown_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, room: int
) -> str:
    """A table of as many rows as fit, with a line that counts the others."""
    sides = ["---:" if name in NUMBERS else "---" for name in columns]
    head, *lines = (f"| {' | '.join(cells)} |" for cells in (columns, sides, *rows))
    shown, left = 1, room - ASIDE - len(title) - len(head) - len(lines[0])
    while shown < len(lines) and (left := left - len(lines[shown]) - 1) >= 0:
        shown += 1
    table = "\n".join([head, *lines[:shown]]) if shown > 1 else ""
    more = f"{len(lines) - shown:,} of {len(rows):,} rows are left out here." if shown < len(lines) else ""
    body = "\n\n".join(part for part in (table, more) if part)
    return f"<details>\n<summary>{title}</summary>\n\n{body}\n\n</details>" if title else body


def _format_markdown_row(check: Check, line: TaskOutcome | MeanOutcome) -> Sequence[str]:
    """The cells of a task or a mean; names and sentences are escaped."""
    names = ("task", "metric", "n", "why")
    cells = {
        c: _escape_markdown(text) if c in names else html.escape(text)
        for c, text in _format_outcome_cells(check, line).items()
    }
    if cells["verdict"] != "–":
        cells["verdict"] = f"{FORMS[line.verdict].sign} {cells['verdict']}"
    return [*cells.values()]


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


def _clean_comment_name(text: str) -> str:
    """A name fit for an HTML comment: letters, digits, dots, underscores, plus signs, single hyphens."""
    return re.sub(r"[^A-Za-z0-9._+]+", "-", text).strip("-") or "check"
