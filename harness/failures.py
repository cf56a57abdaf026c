"""What is missing and why: each reason once, with the tasks and the models it holds for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.data import DataMissing

if TYPE_CHECKING:
    from rich.console import Console

    from harness.api import Prepared
    from harness.execute import Result
    from harness.workers import Failure

MOST = 6
"""How many names a line shows."""


def shortened(names: Sequence[str], most: int = MOST) -> str:
    """A list of names, cut where it gets long.

    >>> shortened(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def impossible(prepared: Prepared) -> list[Result]:
    """The scores that cannot be had, as results of a run that has not begun."""
    from harness.execute import Result, failure_of

    cells = [cell for cell in prepared.plan.cells if cell.problem is not None]
    return [Result(cell=c, how="impossible", failure=failure_of(c.problem)) for c in cells if c.problem]


def print_failures(results: Sequence[Result], prepared: Prepared, console: Console) -> None:
    """Say each reason once. Tasks without data have one reason, whichever data set each lacks."""
    from rich.text import Text

    groups: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        if result.failure is not None:
            groups.setdefault(_reason(result, result.failure, prepared), []).append(result)
    for group in groups.values():
        label, message, hint = _told(group, prepared)
        console.print(Text.assemble((f"{label}: ", "bold red"), message), soft_wrap=True)
        if hint:
            console.print(Text(f"  {hint}"), soft_wrap=True)
    stopped = sum(1 for r in results if r.how == "stopped")
    if stopped:
        late = prepared.request.budget is not None and not prepared.request.fail_fast
        why = "the budget was used up" if late else "--fail-fast stopped at the first failure"
        console.print(f"{stopped} not run: {why}.", highlight=False)


def _reason(result: Result, failure: Failure, prepared: Prepared) -> tuple[str, str, str]:
    if isinstance(failure.fault, DataMissing):
        return "", "no data", ""
    return prepared.label(result.cell.subject), _message(failure), failure.hint or ""


def _told(group: Sequence[Result], prepared: Prepared) -> tuple[str, str, str]:
    """Whom it concerns, what happened, and what to type next."""
    failure = group[0].failure
    assert failure is not None
    tasks = list(dict.fromkeys(result.cell.task.name for result in group))
    hint = failure.hint or ""
    if isinstance(failure.fault, DataMissing):
        likewise = f" {len(tasks) - 1} more likewise." if len(tasks) > 1 else ""
        suites = " ".join(f"--suite '{suite.name}'" for suite in prepared.suites)
        return shortened(tasks), failure.message + likewise, hint.replace("--suite SUITE", suites)
    several = len(prepared.subjects) > 1
    model = f"{prepared.label(group[0].cell.subject)}: " if several else ""
    return model + shortened(tasks), _message(failure), hint


def _message(failure: Failure) -> str:
    return failure.message if failure.fault or failure.hint else f"{failure.kind}: {failure.message}"
