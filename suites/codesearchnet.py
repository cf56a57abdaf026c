"""The suite `codesearchnet`: CodeSearchNet in six languages, in either direction."""

from dataclasses import replace

from harness.core.errors import explain_unknown
from harness.core.types import Suite, SuiteEntry, SuiteOptions
from suites._mteb.source import build_full_use, build_task_suite

_DIRECTIONS = {
    "": ("COIRCodeSearchNetRetrieval", "CodeSearchNet (CoIR): code is the query"),
    "text": ("CodeSearchNetRetrieval", "CodeSearchNet: text is the query"),
}
"""The task of mteb and the title, by the suite's argument."""


def _open_codesearchnet_suite(argument: str, options: SuiteOptions) -> Suite:
    if argument not in _DIRECTIONS:
        then = "Without one the queries are code, as in CoIR: --suite codesearchnet."
        raise explain_unknown("direction of codesearchnet", argument, [*filter(None, _DIRECTIONS)], then=then)
    task, title = _DIRECTIONS[argument]
    every = build_full_use(task)
    uses = {subset: replace(every, subsets=(subset,)) for subset in sorted(every.subsets)}
    called = f"codesearchnet:{argument}" if argument else "codesearchnet"
    return build_task_suite(uses, called=called, title=title, options=options, parts=True)


SUITE = SuiteEntry(
    name="codesearchnet",
    summary="CodeSearchNet as in CoIR, six languages: code is the query, its description the document; "
    "codesearchnet:text is the other way round, on smaller sets",
    open=_open_codesearchnet_suite,
    argument="text",
)
