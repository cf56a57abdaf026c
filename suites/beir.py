"""The suite `beir`: BEIR, whose column MSMARCO names the queries that it is scored on."""

from harness.core.errors import unknown
from harness.core.types import Suite, SuiteEntry, SuiteOptions
from suites._mteb.tasks import of_tasks, uses_of, whole

MSMARCO = "MSMARCO"
_QUERIES = {"": (MSMARCO, "dev"), "dl19": ("TRECDL2019", "TREC-DL 2019")}
"""The task of mteb and its queries in words, by the suite's argument."""


def _open(argument: str, options: SuiteOptions) -> Suite:
    if argument not in _QUERIES:
        then = "Without one they are the development queries: --suite beir."
        raise unknown("choice of MSMARCO's queries", argument, [*filter(None, _QUERIES)], then=then)
    task, queries = _QUERIES[argument]
    uses = {
        f"{MSMARCO} ({queries})" if name == MSMARCO else name: whole(task) if name == MSMARCO else use
        for name, use in uses_of("BEIR").items()
    }
    called = f"beir:{argument}" if argument else "beir"
    title = f"BEIR with {queries}" if argument else "BEIR"
    return of_tasks(uses, called=called, title=title, options=options)


SUITE = SuiteEntry(
    name="beir",
    summary="BEIR, 15 retrieval tasks, CQADupstack counted once; MSMARCO by its development queries, "
    "with beir:dl19 by those of TREC-DL 2019",
    open=_open,
    argument="dl19",
)
