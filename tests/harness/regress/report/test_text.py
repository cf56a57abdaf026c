"""A check on the terminal."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from check_data import TASKS, small_check
from harness.checks.outcome import Check, TaskOutcome
from harness.checks.report import print_check


def printed(check: Check, *, every: bool = False, width: int = 200, colour: bool = False) -> str:
    out = io.StringIO()
    system = "standard" if colour else None
    console = Console(file=out, width=width, force_terminal=colour, color_system=system)
    print_check(check, console, every=every)
    return out.getvalue()


def many(task: TaskOutcome, count: int) -> tuple[TaskOutcome, ...]:
    return tuple(replace(task, task=f"{task.task}-{number:04}") for number in range(count))


def test_the_first_line_is_the_verdict_with_a_reason() -> None:
    first = printed(small_check()).splitlines()[0]
    assert first == (
        "regressed: nightly-0102 against all-MiniLM-L6-v2 (baseline release) on mteb. "
        "SciFact regressed by 3.50 points (p 0.0004) and must not."
    )


def test_the_last_line_is_the_exit_code() -> None:
    assert printed(small_check()).splitlines()[-1] == "exit 1: the candidate regressed"


def test_a_row_holds_scores_interval_units_and_what_settles_it() -> None:
    row = next(line for line in printed(small_check()).splitlines() if "Banking77" in line)
    assert [cell.strip() for cell in row.strip("│").split("│")] == [
        *("Banking77Classification", "accuracy", "3,080 texts", "3 / 5", "80.00", "79.00"),
        *("−1.00 [−2.10, +0.10]", "0.1100", "inconclusive"),
        "to settle: about 4 more seeds, or 9,000 texts",
    ]


def test_equivalent_tasks_are_counted_unless_asked_for() -> None:
    check = small_check(tasks=(*TASKS, *many(TASKS[1], 30)))
    short, full = printed(check), printed(check, every=True)
    assert "STSBenchmark" not in short
    assert "equivalent, not shown: 31 of 35 tasks" in short
    assert full.count("STSBenchmark") == 31
    assert "not shown" not in full


def test_what_is_missing_is_named_with_its_reason_once() -> None:
    check = small_check(tasks=many(TASKS[4], 10))
    line = next(line for line in printed(check).splitlines() if line.startswith("missing"))
    assert line.endswith("-0005 and 4 more: the candidate has no score: its data cannot be had")
    assert "-0009" in printed(check, every=True)


def test_reasons_warnings_and_means_are_there() -> None:
    text = printed(small_check())
    assert "not testable: MindSmallReranking: no per-query results are kept of this metric" in text
    assert "warning: torch 2.10.0 made the baseline, 2.11.0 the candidate." in text
    assert (
        "mteb: mean over 3 of 5 columns 75.50 → 74.00, −1.50 [−2.20, −0.80], margin ±0.50: regressed" in text
    )


def test_many_sentences_are_cut_unless_all_is_asked_for() -> None:
    check = small_check(because=tuple(f"Reason {number}." for number in range(20)))
    assert "and 13 more" in printed(check)
    assert "Reason 19." in printed(check, every=True)


def test_names_are_never_markup() -> None:
    odd = "[red]x[/red] :smile: [/nothing]"
    party = replace(small_check().candidate, name=odd)
    check = small_check(candidate=party, tasks=(replace(TASKS[0], task=odd),), because=(odd,))
    assert printed(check).count(odd) == 3


@pytest.mark.parametrize(
    ("overall", "colour"),
    [("regressed", "31"), ("inconclusive", "33"), ("improved", "32"), ("equivalent", "32")],
)
def test_the_verdict_is_coloured(overall: str, colour: str) -> None:
    first = printed(small_check(overall=overall), colour=True).splitlines()[0]
    assert f"{colour}m{overall}\x1b[0m" in first


def test_a_narrow_terminal_shows_whole_names() -> None:
    text = printed(small_check(), width=100)
    table = [line.strip("│").split("│")[0].strip() for line in text.splitlines() if line.startswith("│")]
    assert "Banking77Classification" in "".join(table)


def test_nothing_to_say_is_no_error() -> None:
    text = printed(small_check(tasks=(), means=(), because=(), warnings=()))
    assert "0 tasks" in text
    assert "┃" not in text


def test_printing_imports_nothing_beyond_the_console_and_tables() -> None:
    code = """
import sys
sys.path[:0] = ["tests/support"]
import rich.console, rich.table, rich.box
from check_data import small_check
from harness.progress import console
from harness.checks.report import print_check
out = console()
before = set(sys.modules)
print_check(small_check(), out, every=True)
new = {name for name in sys.modules if name not in before and not name.startswith(("rich", "harness"))}
print(sorted(new))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
