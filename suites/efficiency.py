"""The suite `efficiency`: speed on synthetic sets of ModernBERT, and of a real corpus with its tokenizer."""

from harness.core.errors import explain_unknown
from harness.core.types import Suite, SuiteEntry, SuiteOptions
from suites._efficiency.protocol import WAYS
from suites._efficiency.source import build_corpus_suite, build_speed_suite
from suites._texts import resolve_text_folder


def _open_efficiency_suite(argument: str, options: SuiteOptions) -> Suite:
    way, _, folder = argument.partition(":")
    if way == "corpus":
        return build_corpus_suite(resolve_text_folder(folder, "efficiency:corpus"), argument, options)
    if argument not in WAYS:
        ways = {"corpus", *filter(None, WAYS)}
        raise explain_unknown("way to time", argument, ways, then="Or leave it out.")
    return build_speed_suite(WAYS[argument], options)


SUITE = SuiteEntry(
    name="efficiency",
    summary="tokens a second, memory and MFU on synthetic sets of 512 and 8,192 tokens (docs/efficiency.md)",
    open=_open_efficiency_suite,
    argument="modernbert, for the released script's way; sdpa, eager or flash; corpus[:FOLDER]",
    measured=True,
)
