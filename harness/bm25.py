"""BM25 as a model: its settings as a user types them, and documents in the order of a query.

Words, stop words, stemmers and scores are those of mteb's BM25, which runs on the same libraries (bm25s and
PyStemmer). Of equal scores the first in the corpus counts, where mteb's choice is the processor's.
"""

from __future__ import annotations

import math
import time
import unicodedata
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from harness.errors import DataError, UsageError, nearest
from harness.identity import digest
from harness.types import Artifact, BM25Method, Ranking

if TYPE_CHECKING:
    import numpy as np
    from bm25s import BM25
    from numpy.typing import NDArray

NAME = "bm25"
"""The name of the model, before its settings."""

SUMMARY = "BM25: ranks documents by the words of a query; no weights, retrieval only"

STOP_WORDS: Mapping[str, str] = {
    **{"en": "EN", "de": "GERMAN", "nl": "DUTCH", "fr": "FRENCH", "es": "SPANISH", "pt": "PORTUGUESE"},
    **{"it": "ITALIAN", "ru": "RUSSIAN", "sv": "SWEDISH", "no": "NORWEGIAN", "zh": "CHINESE"},
}
"""The lists of stop words by name, with the end of their names in bm25s."""

_SETTINGS = tuple(field.name for field in fields(Ranking) if field.name != "output")

_NUMBERS: Mapping[str, tuple[float, float]] = {
    "k1": (0.0, math.inf),
    "b": (0.0, 1.0),
    "delta": (0.0, math.inf),
}
"""The settings that are numbers, with their range."""


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
    key = digest({"model": NAME, **asdict(ranking)})
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
        *([f"delta {_text(settings['delta'])}"] if method in ("bm25l", "bm25+") else []),
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
    return Ranking(**found)


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
    return number


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


ENGLISH = "eng"

LANGUAGES: Mapping[str, tuple[str, str]] = {
    **{"eng": ("en", "english"), "deu": ("de", "german"), "nld": ("nl", "dutch"), "fra": ("fr", "french")},
    **{"spa": ("es", "spanish"), "por": ("pt", "portuguese"), "ita": ("it", "italian")},
    **{"rus": ("ru", "russian"), "swe": ("sv", "swedish")},
    **dict.fromkeys(("nob", "nno", "nor"), ("no", "norwegian")),
    **dict.fromkeys(("zho", "cmn"), ("zh", "")),
    **{"ara": ("", "arabic"), "arb": ("", "arabic"), "hye": ("", "armenian"), "eus": ("", "basque")},
    **{"cat": ("", "catalan"), "dan": ("", "danish"), "epo": ("", "esperanto"), "est": ("", "estonian")},
    **{"fin": ("", "finnish"), "ell": ("", "greek"), "hin": ("", "hindi"), "hun": ("", "hungarian")},
    **{"ind": ("", "indonesian"), "gle": ("", "irish"), "lit": ("", "lithuanian"), "nep": ("", "nepali")},
    **{"ron": ("", "romanian"), "srp": ("", "serbian"), "tam": ("", "tamil"), "tur": ("", "turkish")},
    **{"yid": ("", "yiddish")},
}
"""By language (ISO 639-3), its stop words and its stemmer; empty where there is none, as in mteb."""

CHARACTERS = frozenset({"zho", "cmn", "jpn", "kor", "tha", "khm", "mya", "bod", "lao"})
"""Languages without blanks between words, whose characters are the words, as in mteb."""

FREQUENT = 0.9
"""The share of documents from which a word counts as a stop word in a language without a list."""


class _Words:
    """The words of texts: split, without stop words, stemmed.

    Attributes:
        facts: The stop words and the stemmer, and whether characters are the words.
    """

    def __init__(self, ranking: Ranking, language: str) -> None:
        stop_words, stemmer = LANGUAGES.get(language, ("", ""))
        automatic = ranking.stop_words == ranking.stemmer == "auto"
        if ranking.stop_words != "auto":
            stop_words = ranking.stop_words
        if ranking.stemmer != "auto":
            stemmer = "" if ranking.stemmer == "none" else ranking.stemmer
        self._characters = automatic and language in CHARACTERS
        self.by_frequency = not stop_words
        self._left_out = _stop_words(stop_words)
        self._stemmer = _stemmer(stemmer) if stemmer else None
        self.facts = {
            "stop_words": stop_words or f"in {FREQUENT:.0%} of the documents",
            "stemmer": stemmer or "none",
            "words": "characters" if self._characters else "words",
        }

    def leave_out(self, words: frozenset[str]) -> None:
        """Count these as stop words from now on."""
        self._left_out |= words

    def of(self, texts: Sequence[str]) -> tuple[list[list[int]], list[str]]:
        """The words of each text as numbers, and the word of each number."""
        import bm25s

        if self._characters:
            return _numbered([self._split(text) for text in texts])
        stop_words: Any = sorted(self._left_out) or None
        made = bm25s.tokenize(list(texts), stopwords=stop_words, stemmer=self._stemmer, show_progress=False)
        words = [""] * len(made.vocab)
        for word, number in made.vocab.items():
            words[number] = word
        return made.ids, words

    def _split(self, text: str) -> list[str]:
        characters = unicodedata.normalize("NFKC", text).lower().replace(" ", "")
        return [character for character in characters if character not in self._left_out]


def _stop_words(name: str) -> frozenset[str]:
    from bm25s import stopwords

    listed = STOP_WORDS.get(name)
    return frozenset(getattr(stopwords, f"STOPWORDS_{listed}")) if listed else frozenset()


def _stemmer(name: str) -> Any:
    import Stemmer

    return Stemmer.Stemmer(name)


def _numbered(texts: Sequence[Sequence[str]]) -> tuple[list[list[int]], list[str]]:
    numbers: dict[str, int] = {}
    rows = [[numbers.setdefault(word, len(numbers)) for word in text] for text in texts]
    return rows, list(numbers)


_Progress = Callable[[str, int, int], None]
"""Called with the name of a step, its size where it begins, and the number of texts done."""

DOCUMENTS = 10_000
"""Documents whose words are split at once."""

QUERIES = 256
"""Queries between two reports of progress."""


@dataclass
class BM25Ranker:
    """A TextRanker (see harness.types) with BM25's order.

    Attributes:
        ranking: Its settings.
        progress: Called while documents are indexed and queries searched.
        seconds: The time that indexing and searching took.
        languages: By language, the stop words and the stemmer that were used.
        texts: The number of queries and documents.
    """

    ranking: Ranking
    progress: _Progress = lambda _step, _size, _done: None

    def __post_init__(self) -> None:
        self.seconds = {"index": 0.0, "search": 0.0}
        self.languages: dict[str, dict[str, str]] = {}
        self.texts = 0

    def rank(
        self,
        queries: Sequence[str],
        documents: Sequence[str],
        *,
        k: int,
        language: str = "",
        candidates: Sequence[Sequence[int]] | None = None,
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """The best documents of each query (see harness.types.TextRanker)."""
        _require_texts(queries, "query")
        _require_texts(documents, "document")
        started = time.monotonic()
        words = _Words(self.ranking, language or ENGLISH)
        self.languages[language or ENGLISH] = words.facts
        index = self._index(documents, words)
        indexed = time.monotonic()
        found = list(self._search(queries, index, words, min(k, len(documents)), candidates))
        self.seconds["index"] += indexed - started
        self.seconds["search"] += time.monotonic() - indexed
        self.texts += len(queries) + len(documents)
        return found

    def _index(self, documents: Sequence[str], words: _Words) -> BM25:
        import bm25s
        from bm25s.tokenization import Tokenized

        ids, vocabulary = self._split(documents, words)
        if words.by_frequency:
            frequent = _frequent(ids)
            names = list(vocabulary)
            words.leave_out(frozenset(names[number] for number in frequent))
            ids = [array("i", (n for n in row if n not in frequent)) for row in ids]
        if not any(ids):
            raise DataError("BM25 finds no word in any document: each has stop words or signs alone.")
        made = bm25s.BM25(
            k1=self.ranking.k1, b=self.ranking.b, delta=self.ranking.delta, method=self.ranking.method
        )
        self.progress("making the index", len(documents), 0)
        made.index(Tokenized(ids=ids, vocab=vocabulary), show_progress=False)
        return made

    def _split(self, documents: Sequence[str], words: _Words) -> tuple[list[array[int]], dict[str, int]]:
        """The words of the documents as numbers, in few bytes, and the number of each word."""
        self.progress("splitting documents", len(documents), 0)
        rows: list[array[int]] = []
        vocabulary: dict[str, int] = {}
        for start in range(0, len(documents), DOCUMENTS):
            part = documents[start : start + DOCUMENTS]
            ids, names = words.of(part)
            numbers = [vocabulary.setdefault(name, len(vocabulary)) for name in names]
            rows += [array("i", [numbers[number] for number in row]) for row in ids]
            self.progress("", 0, len(part))
        return rows, vocabulary

    def _search(
        self,
        queries: Sequence[str],
        index: BM25,
        words: _Words,
        k: int,
        candidates: Sequence[Sequence[int]] | None,
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        import numpy as np

        self.progress("searching", len(queries), 0)
        for start in range(0, len(queries), QUERIES):
            part = queries[start : start + QUERIES]
            ids, names = words.of(part)
            for row, numbers in enumerate(ids, start):
                known = [index.vocab_dict[names[n]] for n in numbers if names[n] in index.vocab_dict]
                scores = index.get_scores_from_ids(known)
                if candidates is None:
                    at = _best(scores, k)
                else:
                    given = np.asarray(candidates[row], dtype=np.int64)
                    at = given[np.argsort(-scores[given], kind="stable")]
                yield at, scores[at]
            self.progress("", 0, len(part))


def _require_texts(texts: Sequence[str], side: str) -> None:
    if not len(texts):
        raise DataError(f"The data set is empty: it has no {side} at all.")
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"A row of the data set cannot be read: {side} number {row + 1} is {text!r}.")


def _frequent(rows: Sequence[Sequence[int]]) -> frozenset[int]:
    """The words in so many documents that they count as stop words."""
    counts = Counter(number for row in rows for number in set(row))
    return frozenset(number for number, count in counts.items() if count / len(rows) >= FREQUENT)


def _best(scores: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """The places of the `k` highest scores, highest first; of equal ones the first places."""
    import numpy as np

    least = np.partition(scores, -k)[-k]
    above, equal = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
    above = above[np.argsort(-scores[above], kind="stable")]
    return np.concatenate([above, equal[: k - len(above)]])
