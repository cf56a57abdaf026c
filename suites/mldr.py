"""The suite `mldr`: the English documents of Multi Long Doc Retrieval."""

from dataclasses import replace

from harness.core.types import Suite, SuiteEntry, SuiteOptions
from suites._mteb.source import build_full_use, build_task_suite

DEV, TEST = "MLDR (dev)", "MLDR (test)"


def _open_mldr_suite(_argument: str, options: SuiteOptions) -> Suite:
    english = replace(build_full_use("MultiLongDocRetrieval"), subsets=("en",))
    uses = {DEV: replace(english, splits=("dev",)), TEST: replace(english, splits=("test",))}
    return build_task_suite(
        uses,
        called="mldr",
        title="MLDR, English",
        options=options,
        parts=True,
        shown_only={DEV: "the development queries"},
    )


SUITE = SuiteEntry(
    name="mldr",
    summary="MLDR in English: 200,000 long documents; its dev and test queries apart (docs/retrieval.md)",
    open=_open_mldr_suite,
)
