"""A policy in a form to read and to start from: TOML with what every setting means."""

from __future__ import annotations

from collections.abc import Mapping

from harness.regress.policy import Policy, to_toml

MEANINGS: Mapping[str, str] = {
    "alpha": "chance of a false alarm that is accepted: half of it for the tasks, half for the means",
    "margin": 'points; differences of a task within it do not count. Or "measured": what the '
    "baseline's own runs differ by",
    "least_margin": "points; no measured margin is smaller",
    "mean_margin": "points; likewise of a suite's mean, or \"measured\". The check fails if the mean's "
    "interval lies below it",
    "max_drop": "points; a task has regressed if it fell by more than this",
    "must_not_regress": "tasks that fail the check if they regress; * and ? stand for any characters",
    "correction": "for the number of tasks: holm, benjamini-hochberg or none",
    "draws": "replicates of the bootstrap",
    "seed": "of the resamples",
    "inconclusive": "what a check that decides nothing ends with: exit-3, fail (1) or pass (0)",
    "missing": "what a check ends with if a score is missing or nothing could be tested: exit-3 or fail (1)",
    "not_testable": "tasks without units to resample: inconclusive, or ignore them",
    "allow_differences": "fields of an evaluation that may differ, as encoding.max_length",
    "budget_minutes": "after which no further work is begun; 0 for no limit",
}
"""What each setting means, in a line."""


def explanation(policy: Policy) -> str:
    """The policy as TOML, each setting under what it means; it can be saved and changed."""
    settings, _, tasks = to_toml(policy).partition("\n\n")
    lines = []
    for line in settings.rstrip("\n").split("\n"):
        lines += [f"# {MEANINGS[line.partition(' ')[0]]}", line]
    return "\n".join(lines) + (f"\n\n{tasks.rstrip()}" if tasks else "")
