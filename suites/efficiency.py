"""The suite `efficiency`: speed on synthetic sets of ModernBERT; `:modernbert` times as its script does."""

from harness.core.errors import explain_unknown
from harness.core.types import Suite, SuiteEntry, SuiteOptions
from suites._efficiency.protocol import HARNESS, MODERNBERT
from suites._efficiency.source import build_speed_suite


def _open_efficiency_suite(argument: str, options: SuiteOptions) -> Suite:
    if argument not in ("", "modernbert"):
        raise explain_unknown("way to time", argument, {"modernbert"}, then="Or leave it out.")
    protocol = MODERNBERT if argument else HARNESS
    title = "Speed as the released script of ModernBERT times it" if argument else "Speed on synthetic sets"
    return build_speed_suite(protocol, title, (512, 8192), options)


SUITE = SuiteEntry(
    name="efficiency",
    summary="tokens a second, memory and MFU on synthetic sets of 512 and 8,192 tokens (docs/efficiency.md)",
    open=_open_efficiency_suite,
    argument="modernbert, for the released script's way",
    measured=True,
)
