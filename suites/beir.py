"""The suite `beir`: BEIR."""

from harness.types import Suite, SuiteEntry, SuiteOptions
from suites._mteb import tasks


def _open(_argument: str, options: SuiteOptions) -> Suite:
    return tasks.benchmark("BEIR", called="beir", options=options)


SUITE = SuiteEntry(name="beir", summary="BEIR, 15 retrieval tasks, CQADupstack counted once", open=_open)
