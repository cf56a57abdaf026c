"""The prefixes before the texts of a training, by the source of a row, and of its model's evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from harness.core.errors import explain_unknown
from harness.encoder.two_stage_settings import PREFIXES

Prefix = tuple[str, str]
"""The texts before a query and before its documents."""

PrefixTable = Mapping[str, Prefix]
"""The prefixes of a data set by the value of its column `dataset`; "" for all rows, without that column."""

SEARCH: Prefix = (PREFIXES["query"], PREFIXES["document"])

_NAMED: Mapping[str, Prefix] = {
    "search": SEARCH,
    "none": ("", ""),
    **{text.removesuffix(": "): (text, text) for text in PREFIXES.values()},
}


def parse_prefix(text: str) -> Prefix:
    """The prefixes with a name.

    Raises:
        UsageError: The name is unknown; the message lists them.

    >>> parse_prefix("search"), parse_prefix("clustering")
    (('search_query: ', 'search_document: '), ('clustering: ', 'clustering: '))
    """
    if text not in _NAMED:
        then = "Any other text is given with --set query_prefix=… --set document_prefix=…"
        raise explain_unknown("prefix", text, _NAMED, then=then)
    return _NAMED[text]


def build_prefix_table(**sources: str) -> PrefixTable:
    """The prefixes by source, from the sources of each prefix in one text with blanks between them."""
    return {source: _NAMED[name] for name, text in sources.items() for source in text.split()}


def list_trained_prefixes(tables: Sequence[PrefixTable]) -> list[Prefix]:
    """The different prefixes of a training, in the order of its data sets."""
    return [*dict.fromkeys(chain.from_iterable(table.values() for table in tables))]


def describe_prefixes(names: Sequence[str], tables: Sequence[PrefixTable]) -> str:
    """A note on the prefixes of each data set.

    >>> describe_prefixes(["pairs.jsonl"], [{"": ("search_query: ", "search_document: ")}])
    'prefixes of queries and documents: pairs.jsonl search_query and search_document'
    >>> describe_prefixes(["pairs.jsonl"], [{"": ("clustering: ", "clustering: ")}])
    'prefixes of queries and documents: pairs.jsonl clustering'
    """
    parts = []
    for name, table in zip(names, tables, strict=True):
        sides = dict.fromkeys(text.removesuffix(": ") or "none" for text in table.get("", ()))
        parts.append(f"{name} {' and '.join(sides) or 'by the source of each row'}")
    return f"prefixes of queries and documents: {', '.join(parts)}"


def build_evaluation_prompts(trained: Sequence[Prefix]) -> dict[str, str]:
    """The prompts of an evaluation by side, type of task or task, all of which a training has had.

    They are the authors' (see PREFIXES). Where the training did not have the prefix of a type, its queries
    and documents have those of a search, which are the first prefixes of a training that has no others for
    it. Empty without any prefix.

    >>> prompts = build_evaluation_prompts([("search_query: ", "search_document: ")])
    >>> prompts["STS"], prompts["STS-document"], prompts["QuoraRetrieval"]
    ('search_query: ', 'search_document: ', 'search_query: ')
    """
    pairs = [pair for pair in trained if any(pair)]
    if not pairs:
        return {}
    query, document = SEARCH if SEARCH in pairs else pairs[0]
    of_search = dict(zip(SEARCH, (query, document), strict=True))
    named = {name: of_search.get(text, text) for name, text in PREFIXES.items()}
    absent = [name for name, text in named.items() if text not in chain.from_iterable(pairs)]
    return {
        **named,
        **dict.fromkeys(absent, query),
        **{f"{name}-document": document for name in absent},
    }
