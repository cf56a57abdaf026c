"""BM25 as a model: its settings as a user types them, its name and its key (see harness.jobs.ranking)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, get_args

from harness.core.arguments import join_settings, replace_settings, split_settings
from harness.core.encoding import BM25, BM25Method, Ranking
from harness.core.errors import UsageError, ask_for_names
from harness.core.keys import build_encoding_identity, digest
from harness.core.types import Artifact

SUMMARY = "BM25: ranks documents by the words of a query; no weights, retrieval only"

STOP_WORDS: Mapping[str, str] = {
    **{"en": "EN", "de": "GERMAN", "nl": "DUTCH", "fr": "FRENCH", "es": "SPANISH", "pt": "PORTUGUESE"},
    **{"it": "ITALIAN", "ru": "RUSSIAN", "sv": "SWEDISH", "no": "NORWEGIAN", "zh": "CHINESE"},
}
"""The lists of stop words by name, with the end of their names in bm25s."""

RULES = 1
"""The version of how texts become words and words scores, raised whenever either changes."""

_FIXED = ("output", "rules")
"""The fields of a ranking that are no settings."""

_WITH_DELTA: tuple[BM25Method, ...] = ("bm25l", "bm25+")
"""The methods whose scores depend on delta."""


def resolve_bm25(text: str) -> tuple[Artifact, Ranking]:
    """BM25 with the settings that a user types, e.g. `bm25:k1=0.9,b=0.4`.

    Raises:
        UsageError: There is no such setting, or it cannot have this value.
    """
    typed_settings = split_settings(text.partition(":")[2], of=BM25)
    for name, choices in _CHOICES.items():
        value = typed_settings.get(name)
        if value is not None and value not in (names := choices()):
            hint = f"{ask_for_names(value, names)}There is: {', '.join(names)}."
            raise UsageError(f"{BM25} has no {name.replace('_', ' ')} {value!r}.", hint=hint)
    if "delta" in typed_settings and typed_settings.get("method") not in _WITH_DELTA:
        raise UsageError(
            f"Only the methods {' and '.join(_WITH_DELTA)} of {BM25} have a delta.",
            hint=f"Leave it out, or type e.g. {BM25}:method=bm25+,delta={typed_settings['delta']}.",
        )
    usual, example = Ranking(rules=RULES), f"{BM25}:{{}}=VALUE"
    ranking = replace_settings(usual, typed_settings, of=BM25, fixed=_FIXED, example=example)
    # The sums make a -0 a 0, which has another key.
    ranking = replace(ranking, k1=ranking.k1 + 0.0, b=ranking.b + 0.0, delta=ranking.delta + 0.0)
    name = _format_bm25_name(ranking)
    key = digest({"model": BM25, **build_encoding_identity(ranking)})
    return Artifact(name=name, source=text, folder=Path(), key=key, weights=""), ranking


def _format_bm25_name(ranking: Ranking) -> str:
    """The shortest text that names a ranking.

    >>> _format_bm25_name(Ranking(b=0.4)), _format_bm25_name(Ranking())
    ('bm25:b=0.4', 'bm25')
    """
    usual, settings = (
        {name: _format_bm25_value(value) for name, value in asdict(values).items() if name not in _FIXED}
        for values in (Ranking(), ranking)
    )
    return join_settings(BM25, settings, usual)


def _format_bm25_value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def describe_ranking(settings: Mapping[str, Any]) -> str:
    """The ranking of an identity in a few words.

    >>> words = {"stop_words": "auto", "stemmer": "english"}
    >>> describe_ranking({"method": "lucene", "k1": 1.5, "b": 0.75, **words})
    'BM25, k1 1.5, b 0.75, stop words of the language, English stemmer'
    """
    method = str(settings["method"])
    stop_words, stemmer = settings["stop_words"], settings["stemmer"]
    parts = [
        "BM25" if method == "lucene" else f"BM25 ({method})",
        f"k1 {_format_bm25_value(settings['k1'])}",
        f"b {_format_bm25_value(settings['b'])}",
        *([f"delta {_format_bm25_value(settings['delta'])}"] if method in _WITH_DELTA else []),
        *([f"rules {settings['rules']}"] if "rules" in settings else []),
    ]
    if stop_words == stemmer == "auto":
        return ", ".join([*parts, "stop words and stemmer of the language"])
    words = {"auto": "stop words of the language", "none": "no stop words"}
    stems = {"auto": "stemmer of the language", "none": "no stemmer"}
    parts.append(words.get(stop_words, f"{stop_words} stop words"))
    return ", ".join([*parts, stems.get(stemmer, f"{str(stemmer).capitalize()} stemmer")])


def _list_stemmers() -> Sequence[str]:
    import Stemmer

    return ("auto", "none", *sorted(Stemmer.algorithms()))


_CHOICES: Mapping[str, Callable[[], Sequence[str]]] = {
    "method": lambda: get_args(BM25Method),
    "stop_words": lambda: ("auto", "none", *STOP_WORDS),
    "stemmer": _list_stemmers,
}
