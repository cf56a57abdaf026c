"""Whether the names in a policy are those of tasks that a check has."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from harness.errors import UsageError, nearest, unknown
from harness.regress.policy import Policy


def fitting(policy: Policy, tasks: Sequence[str]) -> list[str]:
    """Refuse a policy whose names protect nothing; gives sentences on those of other suites.

    Args:
        policy: What is asked of the candidate.
        tasks: The names of all tasks of the check.

    Raises:
        UsageError: A name looks like one of the tasks and is none, or nothing must not regress
            although something is named.
    """
    patterns = [one for one in policy.must_not_regress if not any(fnmatchcase(t, one) for t in tasks)]
    strange = [*(one for one in policy.tasks if one not in tasks), *patterns]
    for name in strange:
        if nearest(name, tasks):
            raise unknown("task of this check", name, tasks, then="Mend the name in the policy.")
    if policy.must_not_regress and len(patterns) == len(policy.must_not_regress):
        listed = ", ".join(policy.must_not_regress)
        raise UsageError(
            f"must_not_regress names no task of this check: {listed}.",
            hint='Name some of its tasks, or say must_not_regress = ["*"]; [] lets every task regress.',
        )
    return [f"The policy names {name}, which is no task of this check." for name in strange]
