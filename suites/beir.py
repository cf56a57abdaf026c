"""The suite `beir`: BEIR, whose column MSMARCO names the queries that it is scored on."""

from harness.core.errors import explain_unknown
from harness.core.types import Suite, SuiteEntry, SuiteOptions
from suites._mteb.source import build_full_use, build_task_suite, list_task_uses

MSMARCO = "MSMARCO"
_QUERIES = {"": (MSMARCO, "dev"), "dl19": ("TRECDL2019", "TREC-DL 2019")}
"""The task of mteb and its queries in words, by the suite's argument."""


def _open_beir_suite(argument: str, options: SuiteOptions) -> Suite:
    if argument not in _QUERIES:
        then = "Without one they are the development queries: --suite beir."
        raise explain_unknown("choice of MSMARCO's queries", argument, [*filter(None, _QUERIES)], then=then)
    task, queries = _QUERIES[argument]
    uses = {}
    for name, use in list_task_uses("BEIR").items():
        # In place, so that the column stays where the benchmark has it.
        if name == MSMARCO:
            uses[f"{MSMARCO} ({queries})"] = build_full_use(task)
        else:
            uses[name] = use
    called = f"beir:{argument}" if argument else "beir"
    title = f"BEIR with {queries}" if argument else "BEIR"
    return build_task_suite(uses, called=called, title=title, options=options)


SUITE = SuiteEntry(
    name="beir",
    summary="BEIR, 15 retrieval tasks, CQADupstack counted once; MSMARCO by its development queries, "
    "with beir:dl19 by those of TREC-DL 2019",
    open=_open_beir_suite,
    argument="dl19",
)
