"""BM25 as a model: its settings as a user types them, its name and its key (see harness.jobs.ranking)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, get_args

from harness.core.encoding import BM25Method, Ranking
from harness.core.errors import UsageError, nearest
from harness.core.identity import digest, encoding_identity
from harness.core.types import Artifact

NAME = "bm25"
"""The name of the model, before its settings."""

SUMMARY = "BM25: ranks documents by the words of a query; no weights, retrieval only"

STOP_WORDS: Mapping[str, str] = {
    **{"en": "EN", "de": "GERMAN", "nl": "DUTCH", "fr": "FRENCH", "es": "SPANISH", "pt": "PORTUGUESE"},
    **{"it": "ITALIAN", "ru": "RUSSIAN", "sv": "SWEDISH", "no": "NORWEGIAN", "zh": "CHINESE"},
}
"""The lists of stop words by name, with the end of their names in bm25s."""

RULES = 1
"""The version of how texts become words and words scores, raised whenever either changes."""

_SETTINGS = tuple(field.name for field in fields(Ranking) if field.name not in ("output", "rules"))

_NUMBERS: Mapping[str, tuple[float, float]] = {
    "k1": (0.0, math.inf),
    "b": (0.0, 1.0),
    "delta": (0.0, math.inf),
}
"""The settings that are numbers, with their range."""

_WITH_DELTA: tuple[BM25Method, ...] = ("bm25l", "bm25+")
"""The methods whose scores depend on delta."""


def is_bm25(text: str) -> bool:
    """Whether a text names BM25, with or without settings."""
    return text.partition(":")[0] == NAME


def bm25(text: str) -> tuple[Artifact, Ranking]:
    """BM25 with the settings that a user types, e.g. `bm25:k1=0.9,b=0.4`.

    Raises:
        UsageError: There is no such setting, or it cannot have this value.
    """
    ranking = _ranking(text)
    name = _name(ranking)
    key = digest({"model": NAME, **encoding_identity(ranking)})
    return Artifact(name=name, source=text, folder=Path(), key=key, weights=""), ranking


def _name(ranking: Ranking) -> str:
    """The shortest text that names a ranking.

    >>> _name(Ranking(b=0.4)), _name(Ranking())
    ('bm25:b=0.4', 'bm25')
    """
    plain, given = asdict(Ranking()), asdict(ranking)
    changed = [f"{name}={_text(given[name])}" for name in _SETTINGS if given[name] != plain[name]]
    return f"{NAME}:{','.join(changed)}" if changed else NAME


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def ranking_text(settings: Mapping[str, Any]) -> str:
    """The ranking of an identity in a few words.

    >>> ranking_text({"method": "lucene", "k1": 1.5, "b": 0.75, "stop_words": "auto", "stemmer": "english"})
    'BM25, k1 1.5, b 0.75, stop words of the language, English stemmer'
    """
    method = str(settings["method"])
    stop_words, stemmer = settings["stop_words"], settings["stemmer"]
    parts = [
        "BM25" if method == "lucene" else f"BM25 ({method})",
        f"k1 {_text(settings['k1'])}",
        f"b {_text(settings['b'])}",
        *([f"delta {_text(settings['delta'])}"] if method in _WITH_DELTA else []),
        *([f"rules {settings['rules']}"] if "rules" in settings else []),
    ]
    if stop_words == stemmer == "auto":
        return ", ".join([*parts, "stop words and stemmer of the language"])
    words = {"auto": "stop words of the language", "none": "no stop words"}
    stems = {"auto": "stemmer of the language", "none": "no stemmer"}
    parts.append(words.get(stop_words, f"{stop_words} stop words"))
    return ", ".join([*parts, stems.get(stemmer, f"{str(stemmer).capitalize()} stemmer")])


def _ranking(text: str) -> Ranking:
    _, _, given = text.partition(":")
    found: dict[str, Any] = {}
    for pair in filter(None, (part.strip() for part in given.split(","))):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if name not in _SETTINGS:
            raise _unknown("setting", name, _SETTINGS)
        if not equals or not value:
            raise UsageError(
                f"The setting {name} of {NAME} has no value.", hint=f"Type e.g. {NAME}:k1=0.9,b=0.4."
            )
        if name in found:
            raise UsageError(f"The setting {name} of {NAME} is given twice.", hint="Leave one of them out.")
        found[name] = _number(name, value) if name in _NUMBERS else _choice(name, value)
    if "delta" in found and found.get("method") not in _WITH_DELTA:
        raise UsageError(
            f"Only the methods {' and '.join(_WITH_DELTA)} of {NAME} have a delta.",
            hint=f"Leave it out, or type e.g. {NAME}:method=bm25+,delta={_text(found['delta'])}.",
        )
    return Ranking(**found, rules=RULES)


def _number(name: str, value: str) -> float:
    least, most = _NUMBERS[name]
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not (least <= number <= most and math.isfinite(number)):
        wanted = f"from {least:g} to {most:g}" if most < math.inf else f"{least:g} or more"
        raise UsageError(
            f"The setting {name} of {NAME} cannot be {value!r}.", hint=f"It is a number, {wanted}."
        )
    return number + 0.0  # which makes -0 a 0


def _choice(name: str, value: str) -> str:
    known: Sequence[str] = get_args(BM25Method)
    if name == "stop_words":
        known = ("auto", "none", *STOP_WORDS)
    elif name == "stemmer":
        import Stemmer

        known = ("auto", "none", *sorted(Stemmer.algorithms()))
    if value not in known:
        raise _unknown(name.replace("_", " "), value, known)
    return value


def _unknown(what: str, name: str, known: Sequence[str]) -> UsageError:
    close = nearest(name, known)
    near = f"Did you mean {' or '.join(close)}? " if close else ""
    return UsageError(f"{NAME} has no {what} {name!r}.", hint=f"{near}There is: {', '.join(known)}.")
