"""A suite of own data narrowed to what a user asked for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from harness.errors import UsageError
from harness.types import Column, Suite, SuiteOptions


def narrowed(suite: Suite, options: SuiteOptions) -> Suite:
    """The suite with only the splits asked for; a column without one of them keeps no task.

    Raises:
        UsageError: Languages are asked for, which such data do not name, or no split is left.
    """
    if options.languages:
        raise UsageError(
            f"--languages says nothing about {suite.name}: these data name no language.",
            hint=f"Leave out --languages, or run {suite.name} on its own.",
        )
    columns = tuple(_only(column, options.splits) for column in suite.columns)
    if not any(column.tasks for column in columns):
        has = dict.fromkeys(split for task in suite.tasks for split in task.splits)
        raise nothing_left(suite.name, "split", options.splits, [*has])
    return replace(suite, columns=columns)


def nothing_left(name: str, what: str, asked: Collection[str], has: Collection[str]) -> UsageError:
    """The error for asking for splits or languages that are not there; it says which are."""
    shown = ", ".join(list(has)[:40]) + (f" and {len(has) - 40} more" if len(has) > 40 else "")
    return UsageError(
        f"Nothing of {name} is left: no {what} of it is {' or '.join(asked)}.",
        hint=f"It has {what}{'s' if len(has) != 1 else ''} {shown}.",
    )


def _only(column: Column, splits: Collection[str]) -> Column:
    if not splits:
        return column
    left = [replace(task, splits=tuple(s for s in task.splits if s in splits)) for task in column.tasks]
    return replace(column, tasks=tuple(task for task in left if task.splits))
