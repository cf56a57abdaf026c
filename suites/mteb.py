"""The suite `mteb`: MTEB(eng, v2), and any benchmark or task of mteb by its name."""

from harness.core.types import Suite, SuiteEntry, SuiteOptions
from suites._mteb import tasks
from suites._mteb.tasks import benchmark_or_task, offers


def _open(argument: str, options: SuiteOptions) -> Suite:
    if not argument:
        return tasks.benchmark("MTEB(eng, v2)", called="mteb", options=options)
    return benchmark_or_task(argument, called=f"mteb:{argument}", options=options)


SUITE = SuiteEntry(
    name="mteb",
    summary="MTEB(eng, v2), 41 tasks; mteb:NAME is any benchmark or task of mteb",
    open=_open,
    argument="benchmark or task",
    offers=offers,
)
