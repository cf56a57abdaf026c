"""The suite `mteb`: MTEB(eng, v2), and any benchmark or task of mteb by its name."""

from harness.core.types import Suite, SuiteEntry, SuiteOptions
from suites._mteb import tasks
from suites._mteb.tasks import build_mteb_suite, list_offers


def _open_mteb_suite(argument: str, options: SuiteOptions) -> Suite:
    if not argument:
        return tasks.build_benchmark_suite("MTEB(eng, v2)", called="mteb", options=options)
    return build_mteb_suite(argument, called=f"mteb:{argument}", options=options)


SUITE = SuiteEntry(
    name="mteb",
    summary="MTEB(eng, v2), 41 tasks; mteb:NAME is any benchmark or task of mteb",
    open=_open_mteb_suite,
    argument="benchmark or task",
    offers=list_offers,
)
