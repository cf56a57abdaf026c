"""The suite `efficiency-neobert`: NeoBERT's figure 3, the best of growing batches at each length."""

from harness.core.types import SuiteEntry
from suites._efficiency.protocol import NEOBERT
from suites.efficiency import build_speed_suite

SUITE = SuiteEntry(
    name="efficiency-neobert",
    summary="tokens a second at 512 to 8,192 tokens, batches doubled to 512, 100 steps (docs/efficiency.md)",
    open=lambda _argument, options: build_speed_suite(NEOBERT, options),
    measured=True,
)
