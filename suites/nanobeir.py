"""The suite `nanobeir`: NanoBEIR."""

from harness.core.types import Suite, SuiteEntry, SuiteOptions
from suites._mteb import source


def _open_nanobeir_suite(_argument: str, options: SuiteOptions) -> Suite:
    return source.build_benchmark_suite("NanoBEIR", called="nanobeir", options=options)


SUITE = SuiteEntry(name="nanobeir", summary="NanoBEIR, 13 small retrieval tasks", open=_open_nanobeir_suite)
