"""The suite `mteb-v1`: MTEB(eng, v1)."""

from harness.core.types import Suite, SuiteEntry, SuiteOptions
from suites._mteb import source


def _open_mteb_v1_suite(_argument: str, options: SuiteOptions) -> Suite:
    return source.build_benchmark_suite("MTEB(eng, v1)", called="mteb-v1", options=options)


SUITE = SuiteEntry(
    name="mteb-v1", summary="MTEB(eng, v1), 56 tasks, CQADupstack counted once", open=_open_mteb_v1_suite
)
