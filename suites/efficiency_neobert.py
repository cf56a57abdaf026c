"""The suite `efficiency-neobert`: NeoBERT's figure 3, the best of growing batches at each length."""

from harness.core.types import Suite, SuiteEntry, SuiteOptions
from suites._efficiency.protocol import NEOBERT
from suites._efficiency.source import build_speed_suite

LENGTHS = (512, 1024, 2048, 4096, 8192)


def _open_neobert_suite(_argument: str, options: SuiteOptions) -> Suite:
    return build_speed_suite(NEOBERT, "Speed by length, the best of growing batches", LENGTHS, options)


SUITE = SuiteEntry(
    name="efficiency-neobert",
    summary="tokens a second at 512 to 8,192 tokens, batches doubled to 512, 100 steps (docs/efficiency.md)",
    open=_open_neobert_suite,
    measured=True,
)
