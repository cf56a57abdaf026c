"""The suite `stackqa`: StackOverflowQA, as in CoIR."""

from harness.core.types import Suite, SuiteEntry, SuiteOptions
from suites._mteb.tasks import benchmark_or_task


def _open(_argument: str, options: SuiteOptions) -> Suite:
    return benchmark_or_task("StackOverflowQA", called="stackqa", options=options)


SUITE = SuiteEntry(
    name="stackqa",
    summary="StackOverflowQA as in CoIR: 1,994 questions, 19,931 answers of text and code",
    open=_open,
)
