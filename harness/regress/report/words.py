"""The sentences and numbers that every report of a check shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.regress.outcome import VERDICTS, Check, MeanOutcome, Overall, TaskOutcome, Verdict
from harness.report_text import score_text

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
