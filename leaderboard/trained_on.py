"""What models were trained on, by their makers' account and what follows from it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness import catalog

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
