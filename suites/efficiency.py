"""The suite `efficiency`: speed on synthetic sets of ModernBERT, and of a real corpus with its tokenizer."""

from dataclasses import replace

from harness.core.errors import explain_unknown
from harness.core.types import Suite, SuiteEntry, SuiteOptions
from suites._efficiency.protocol import HARNESS, MODERNBERT
from suites._efficiency.source import build_corpus_suite, build_speed_suite
from suites._texts import resolve_text_folder

BACKENDS = {"sdpa": "sdpa", "eager": "eager", "flash": "flash_attention_2"}
"""Attention backends with transformers' names of them."""


def _open_efficiency_suite(argument: str, options: SuiteOptions) -> Suite:
    way, _, folder = argument.partition(":")
    if way == "corpus":
        return build_corpus_suite(resolve_text_folder(folder, "efficiency:corpus"), argument, options)
    if argument not in ("", "modernbert", *BACKENDS):
        ways = {"modernbert", "corpus", *BACKENDS}
        raise explain_unknown("way to time", argument, ways, then="Or leave it out.")
    protocol, title = HARNESS, "Speed on synthetic sets"
    if argument == "modernbert":
        protocol, title = MODERNBERT, "Speed as the released script of ModernBERT times it"
    elif argument:
        protocol = replace(HARNESS, name=f"efficiency:{argument}", attention=BACKENDS[argument])
        title = f"{title}, attention by {argument}"
    return build_speed_suite(protocol, title, (512, 8192), options)


SUITE = SuiteEntry(
    name="efficiency",
    summary="tokens a second, memory and MFU on synthetic sets of 512 and 8,192 tokens (docs/efficiency.md)",
    open=_open_efficiency_suite,
    argument="modernbert, for the released script's way; sdpa, eager or flash; corpus[:FOLDER]",
    measured=True,
)
