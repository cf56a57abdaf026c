"""Imported results as entries of the index."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from harness import catalog
from harness.imported import Imported
from harness.store import Store
from leaderboard.data.entries import NewEntry, Outcome, Unit

log = logging.getLogger(__name__)


def sources(roots: Sequence[Path]) -> list[Imported]:
    """Every import of some folders."""
    return [source for root in roots for source in Store(root).imported()]


def units(source: Imported) -> Iterator[Unit]:
    """One unit for each model folder and revision of an import."""
    reader, entries = _Reader(source), source.entries().to_pylist()
    for number, (entry, trained) in enumerate(zip(entries, trained_on(entries), strict=True)):
        name = f"{entry['model']}@{entry['revision']}@{entry['experiment']}"
        stamp = hashlib.sha256(repr((sorted(entry.items()), trained)).encode()).hexdigest()
        read = partial(reader.entry, number, entry, trained)
        yield Unit(source=source.source, name=name, stamp=stamp, read=read)


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """What is known of a task by its name."""

    type: str = ""
    metric: str = ""


class _Reader:
    """Reads the scores of one import once, when the first entry is asked for."""

    def __init__(self, source: Imported) -> None:
        self.source = source
        self._slices: dict[int, tuple[int, int]] | None = None
        self._kinds = _kinds()

    def entry(self, number: int, facts: Mapping[str, Any], trained: Sequence[str] | None) -> list[NewEntry]:
        """The entry of this number with its outcomes; none where no task was read."""
        if self._slices is None:
            table = self.source.scores()
            kept = ("task", "split", "subset", "data_revision", "flag", "mteb_version")
            self._columns = [_Names(table[name]) for name in kept]
            self._scores = table["main_score"].to_numpy()
            self._slices = _slices(table["entry"].to_numpy())
        first, last = self._slices.get(number, (0, 0))
        *names, versions = [column.between(first, last) for column in self._columns]
        outcomes = list(_outcomes(names, self._scores[first:last].tolist(), self._kinds))
        known = sorted({version for version in versions if version})
        facts = {**facts, "mteb_versions": known}
        return [_entry(self.source.source, facts, trained, outcomes)] if outcomes else []


class _Names:
    """A column of names, kept as it is stored: each name once, and its number in every row."""

    def __init__(self, column: Any) -> None:
        whole = pa.chunked_array([column.combine_chunks().dictionary_encode()]).combine_chunks()
        self._known: list[str | None] = [*whole.dictionary.to_pylist(), None]
        numbers = whole.indices.to_numpy(zero_copy_only=False).astype(float)  # NaN where nothing stands
        self._numbers = np.nan_to_num(numbers, nan=len(self._known) - 1).astype(np.int32)

    def between(self, first: int, last: int) -> list[str | None]:
        """The names of some rows."""
        known = self._known
        return [known[number] for number in self._numbers[first:last].tolist()]


def _slices(values: NDArray[np.int32]) -> dict[int, tuple[int, int]]:
    """Where the rows of each entry stand: its first row, and the row behind its last."""
    starts = np.flatnonzero(np.r_[True, values[1:] != values[:-1]]) if len(values) else np.array([], int)
    ends = np.r_[starts[1:], len(values)] if len(values) else starts
    return {int(values[a]): (int(a), int(b)) for a, b in zip(starts, ends, strict=True)}


def _outcomes(
    names: Sequence[Sequence[Any]], scores: Sequence[float], kinds: Mapping[str, _Kind]
) -> Iterator[Outcome]:
    tasks: dict[str, dict[str, dict[str, float | None]]] = {}
    revisions: dict[str, str] = {}
    for task, split, subset, revision, flag, score in zip(*names, scores, strict=True):
        value = None if flag else score
        tasks.setdefault(task, {}).setdefault(split, {})[subset] = value
        revisions[task] = revision or ""
    for task, raw in tasks.items():
        kind = kinds.get(task, _Kind())
        values = [value for subsets in raw.values() for value in subsets.values()]
        known = [value for value in values if value is not None]
        yield Outcome(
            task=task,
            type=kind.type,
            metric=kind.metric,
            status="done",
            value=sum(known) / len(known) if known and len(known) == len(values) else None,
            data=revisions[task],
            raw=raw,
            document=json.dumps(raw, separators=(",", ":")),
        )


def _entry(
    source: str, facts: Mapping[str, Any], trained: Sequence[str] | None, outcomes: Sequence[Outcome]
) -> NewEntry:
    parameters = facts.get("n_parameters")
    return NewEntry(
        model=facts["model"],
        origin="imported",
        source=source,
        trust=facts["trust"],
        treatment=f"experiment {facts['experiment']}" if facts["experiment"] else "",
        revision=facts["revision"],
        output="multivector" if "late-interaction" in (facts.get("model_type") or ()) else "vector",
        parameters=parameters,
        dimension=facts.get("embed_dim"),
        max_tokens=_whole(facts.get("max_tokens")),
        released=facts.get("release_date"),
        open_weights=facts.get("open_weights"),
        adapted_from=facts.get("adapted_from"),
        trained_on=trained,
        facts={name: value for name, value in facts.items() if value is not None},
        outcomes=outcomes,
    )


def _whole(value: float | None) -> int | None:
    return int(value) if value is not None and 0 < value < 2**31 else None


def _kinds() -> dict[str, _Kind]:
    offers = [offer for suite in catalog.suites().values() for offer in suite.offers()]
    return {o.name: _Kind(type=o.facts["type"], metric=o.facts["metric"]) for o in offers if o.kind == "task"}


Card = Mapping[str, Any]
"""An entry of an import: `model`, and what its card says."""


def trained_on(
    entries: Sequence[Card], similar: Mapping[str, frozenset[str]] | None = None
) -> list[list[str] | None]:
    """What each entry of an import was trained on, sorted; None where that is unknown.

    As in mteb: to what the card of an entry declares come the training data of the model that it was
    adapted from, and of that model's own, and so on; and then every task that is similar to one of
    these. A card that declares nothing leaves its entry unknown, whatever is known of the model it
    was adapted from; and what stands behind such a model is not followed. A card that declares an
    empty list says that there was nothing, and takes over what there is behind it.

    Of a model that others were adapted from all cards of the import count, whatever their revision.

    Args:
        entries: All entries of one import.
        similar: The names that are similar to a name; None for what the suites' tasks say.
    """
    groups = similar_tasks() if similar is None else similar
    cards: defaultdict[str, list[Card]] = defaultdict(list)
    for entry in entries:
        cards[entry["model"]].append(entry)
    return [_closed(entry, cards, groups) for entry in entries]


def similar_tasks() -> dict[str, frozenset[str]]:
    """The names that are similar to a name, by the suites' tasks."""
    offers = (offer for suite in catalog.suites().values() for offer in suite.offers())
    found: defaultdict[str, set[str]] = defaultdict(set)
    for offer in offers:
        for other in offer.facts.get("similar", ()):
            found[offer.name].add(other)
            found[other].add(offer.name)
    return {name: frozenset(others) for name, others in found.items()}


def _closed(
    entry: Card, cards: Mapping[str, Sequence[Card]], similar: Mapping[str, frozenset[str]]
) -> list[str] | None:
    if entry.get("training_datasets") is None:
        return None
    declared = {name for card in _behind(entry, cards) for name in card["training_datasets"]}
    return sorted(declared.union(*(similar.get(name, ()) for name in declared)))


def _behind(entry: Card, cards: Mapping[str, Sequence[Card]]) -> Iterator[Card]:
    """The card itself and those of what it was adapted from that declare training data, each once."""
    seen, waiting = {entry["model"]}, [entry]
    while waiting:
        card = waiting.pop()
        yield card
        parent = card.get("adapted_from")
        if parent and parent not in seen:
            seen.add(parent)
            waiting += [one for one in cards.get(parent, ()) if one.get("training_datasets") is not None]
