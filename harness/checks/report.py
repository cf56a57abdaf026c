"""Terminal table and the words all reports share.

A check as people and other programs read it: terminal, Markdown, JUnit.

The sentences and numbers that every report of a check shares.

A check on the terminal.

What a CI service counts: a testcase for each task, each mean and the overall verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from harness.checks.outcome import VERDICTS, Check, MeanOutcome, Overall, TaskOutcome, Verdict
from harness.report import score_text

if TYPE_CHECKING:
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


def signed(value: float | None) -> str:
    """A difference times 100 with its sign; a dash for none.

    >>> signed(-0.015), signed(0.002), signed(-0.000001), signed(None)
    ('−1.50', '+0.20', '0.00', '–')
    """
    if value is None:
        return "–"
    text = f"{100 * abs(value):.2f}"
    return text if text == "0.00" else f"{'−' if value < 0 else '+'}{text}"


def delta_text(one: TaskOutcome | MeanOutcome) -> str:
    """A difference with its interval, e.g. "−1.50 [−2.20, −0.80]"."""
    if one.delta is None or one.low is None or one.high is None:
        return signed(one.delta)
    return f"{signed(one.delta)} [{signed(one.low)}, {signed(one.high)}]"


def p_text(task: TaskOutcome) -> str:
    """The corrected p-value behind the verdict: of a gain where a task improved, else of a drop."""
    p = task.p_improved if task.verdict == "improved" else task.p_regressed
    if p is None:
        return "–"
    return "<0.0001" if p < 0.0001 else f"{p:.4f}"


def units_text(task: TaskOutcome) -> str:
    """How many units were resampled, with their word: "300 queries"; a dash for none."""
    return f"{task.units:,} {task.unit}".strip() if task.units else "–"


def seeds_text(task: TaskOutcome) -> str:
    """Runs of the candidate and of the baseline: "1", or "3 / 5" where they differ."""
    candidate, baseline = task.runs
    return str(candidate) if candidate == baseline else f"{candidate} / {baseline}"


def verdict_text(task: TaskOutcome) -> str:
    """The verdict; a regression that the policy lets through says so."""
    allowed = task.verdict == "regressed" and not task.must_not_regress
    return "regressed (allowed)" if allowed else task.verdict


def why(task: TaskOutcome) -> str:
    """What stands beside a verdict: its reason, and what it takes to settle it."""
    settle = f"to settle: {task.to_settle}" if task.to_settle else ""
    return "; ".join(part for part in (task.reason, settle) if part)


def margin_text(one: TaskOutcome | MeanOutcome) -> str:
    """The margin on both sides, e.g. "±0.50"."""
    return f"±{100 * one.margin:.2f}"


def mean_text(mean: MeanOutcome) -> str:
    """A suite's mean with its interval and margin, over how many of its tasks it is."""
    scores = f"{score_text(mean.baseline)} → {score_text(mean.candidate)}"
    if mean.delta is None:
        return f"mean over {there_text(mean)}"
    return f"mean over {there_text(mean)} {scores}, {delta_text(mean)}, margin {margin_text(mean)}"


def there_text(mean: MeanOutcome) -> str:
    """How many of a suite's columns were tested, e.g. "40 of 41 columns"."""
    return f"{mean.there} of {mean.wanted} column{'' if mean.wanted == 1 else 's'}"


def predicted_text(mean: MeanOutcome) -> str:
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


def bounds_text(check: Check) -> str:
    """What the numbers behind a difference are."""
    alpha, correction = check.policy.get("alpha"), check.policy.get("correction")
    how = "" if correction == "none" else f"the number of tasks ({correction}) and "
    return (
        f"in brackets the bounds of each task's difference, each one-sided at {alpha}; "
        f"p is corrected for {how}the means' part of alpha"
    )


def ordered(tasks: Sequence[TaskOutcome]) -> list[TaskOutcome]:
    """By verdict, the largest difference first."""
    return sorted(tasks, key=lambda task: (VERDICTS.index(task.verdict), -abs(task.delta or 0.0)))


def tabled(check: Check) -> list[TaskOutcome]:
    """The tasks that belong in a table, in the order in which a reader wants to see them."""
    return [task for task in ordered(check.tasks) if task.verdict not in LISTED]


def reasons(tasks: Sequence[TaskOutcome]) -> dict[str, list[str]]:
    """Each reason once, with the names of its tasks."""
    found: dict[str, list[str]] = {}
    for task in tasks:
        found.setdefault(why(task) or "no reason was recorded", []).append(task.task)
    return found


def counts_text(check: Check) -> str:
    """How many tasks have which verdict, e.g. "2 tasks: 1 regressed, 1 equivalent"."""
    counts = [(len(check.of(verdict)), verdict) for verdict in VERDICTS]
    told = ", ".join(f"{count:,} {verdict}" for count, verdict in counts if count)
    return f"{len(check.tasks):,} task{'' if len(check.tasks) == 1 else 's'}" + (f": {told}" if told else "")


def sides_text(check: Check) -> str:
    """Who was judged by whom, and on what: "A against B on suite"."""
    return f"{check.candidate.name} against {baseline_text(check)} on {', '.join(check.suites)}"


def baseline_text(check: Check) -> str:
    """The baseline's model, and the name it was pinned under."""
    party = check.baseline
    return f"{party.name} (baseline {party.baseline})" if party.baseline else party.name


def exit_text(check: Check) -> str:
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
    console.print(Text.assemble(verdict, f": {sides_text(check)}. {first}"), soft_wrap=True)
    told = others if every else others[:SHOWN]
    more = [f"and {len(others) - len(told):,} more"] if len(told) < len(others) else []
    for line in (*told, *more, *_means(check), counts_text(check)):
        say(line)
    _print_table(check, console, every=every)
    for line in _listed(check, "missing", every=every):
        say(line, STYLES["missing"])
    for line in _listed(check, "not testable", every=every):
        say(line)
    for warning in check.warnings:
        say(f"warning: {warning}", "yellow")
    say(exit_text(check))


def _means(check: Check) -> Iterator[str]:
    for mean in check.means:
        yield f"{mean.suite}: {mean_text(mean)}: {mean.verdict}"
        if mean.predicted:
            yield f"{mean.suite}: {predicted_text(mean)}"


def _print_table(check: Check, console: Console, *, every: bool) -> None:
    """The tasks with a difference; those that are equivalent are counted in a line."""
    from rich.text import Text

    rows = tabled(check)
    shown = [task for task in rows if every or task.verdict != "equivalent"]
    if shown:
        console.print(_table(shown, narrow=console.width < NARROW))
        console.print(Text(bounds_text(check), style="dim"), soft_wrap=True)
    if len(shown) < len(rows):
        left_out = len(rows) - len(shown)
        console.print(Text(f"equivalent, not shown: {left_out:,} of {len(check.tasks):,} tasks"))


def _table(tasks: Sequence[TaskOutcome], *, narrow: bool) -> Table:
    from rich.table import Table
    from rich.text import Text

    told = not narrow and any(why(task) for task in tasks)
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
        verdict = Text(verdict_text(task), style=STYLES[task.verdict])
        cells = [Text(cell) for cell in _cells(task, narrow=narrow)]
        cells += [Text(margin_text(task))] if margins else []
        table.add_row(*cells, verdict, *([Text(why(task))] if told else []))
    return table


def _cells(task: TaskOutcome, *, narrow: bool) -> tuple[str, ...]:
    if narrow:
        return (task.task, delta_text(task), p_text(task))
    counted = (units_text(task), seeds_text(task))
    scores = (score_text(task.baseline), score_text(task.candidate), delta_text(task))
    return (task.task, task.metric, *counted, *scores, p_text(task))


def _listed(check: Check, verdict: Verdict, *, every: bool) -> Iterator[str]:
    """A line for each reason, with the tasks it holds for."""
    for reason, tasks in reasons(check.of(verdict)).items():
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
class Case:
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


def cases(check: Check) -> dict[str, list[Case]]:
    """The cases of each testsuite, the overall verdict last; a task of two suites is in the first."""
    found: dict[str, list[Case]] = {name: [] for name in check.suites}
    last: dict[str, list[Case]] = {OVERALL: found.pop(OVERALL, [])}
    every = found | last
    for task in check.tasks:
        home = next((name for name in task.suites if name in every), OVERALL)
        every[home].append(of_task(task))
    for mean in check.means:
        every.get(mean.suite, every[OVERALL]).append(of_mean(mean))
    every[OVERALL].append(of_check(check))
    return every


def of_task(task: TaskOutcome) -> Case:
    """A task: a regression that the policy lets through is skipped, not failed."""
    allowed = task.verdict == "regressed" and not task.must_not_regress
    facts = (
        f"delta {delta_text(task)}" if task.delta is not None else "",
        f"p {p_text(task)}" if task.p_regressed is not None else "",
        why(task),
    )
    return Case(
        name=task.task,
        result="skipped" if allowed else OF_TASKS.get(task.verdict, ""),
        verdict=task.verdict,
        message=f"{verdict_text(task)}: {', '.join(fact for fact in facts if fact)}",
        details=_details(task),
    )


def _details(task: TaskOutcome) -> str:
    facts = {
        "metric": task.metric,
        "baseline": score_text(task.baseline),
        "candidate": score_text(task.candidate),
        "delta": delta_text(task),
        "margin": f"±{100 * task.margin:.2f}",
        "p": p_text(task),
        "units": units_text(task),
        "seeds": seeds_text(task),
    }
    return "\n".join(f"{name}: {value}" for name, value in facts.items())


def of_mean(mean: MeanOutcome) -> Case:
    """The mean of a suite."""
    return Case(
        name=f"mean of {mean.suite}",
        result=OF_MEANS.get(mean.verdict, ""),
        verdict=mean.verdict,
        message=f"{mean.verdict}: {mean_text(mean)}",
        details="\n".join(filter(None, (mean_text(mean), predicted_text(mean)))),
    )


def of_check(check: Check) -> Case:
    """The overall verdict, which fails if the exit code does."""
    passed: Result = "skipped" if check.overall == "inconclusive" else ""
    return Case(
        name="overall verdict",
        result="failure" if check.exit_code else passed,
        verdict=check.overall,
        message=" ".join((f"{check.overall}:", *check.because)),
        details="\n".join((*check.because, counts_text(check), exit_text(check))),
        seconds=check.seconds,
    )
