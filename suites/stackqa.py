"""The suite `stackqa`: StackOverflowQA, as in CoIR."""

from harness.core.types import Suite, SuiteEntry, SuiteOptions
from suites._mteb.source import build_mteb_suite


def _open_stackqa_suite(_argument: str, options: SuiteOptions) -> Suite:
    return build_mteb_suite("StackOverflowQA", called="stackqa", options=options)


SUITE = SuiteEntry(
    name="stackqa",
    summary="StackOverflowQA as in CoIR: 1,994 questions, 19,931 answers of text and code",
    open=_open_stackqa_suite,
)
