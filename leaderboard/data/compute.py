"""What entries compute: parameters without embeddings, operations, and what is stated of pretraining."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from harness.core.groups import group_by
from harness.core.keys import digest
from harness.core.types import is_number
from harness.results.cost.compute import find_published_compute
from harness.results.notes import ComputeNote
from leaderboard.data.backbones import Backbone, find_backbone, resolve_base_backbones
from leaderboard.data.queries import Entry, Queries

ALIKE = 0.03
"""How far the parameters of a model may be from those of its backbone, whose shape it then has."""


@dataclass(frozen=True, kw_only=True)
class _EntryCompute:
    """What an entry computes, None where it is not known.

    `operations` are those of a forward pass over 512 tokens with full attention; `note` is what a user stated
    of the model, or of one that it was made from.
    """

    without_embeddings: int | None = None
    operations: float | None = None
    note: ComputeNote | None = None

    @property
    def pretraining(self) -> float | None:
        """The operations of its pretraining, as stated."""
        return self.note.operations if self.note else None


def load_entry_compute(queries: Queries, entries: Sequence[Entry]) -> dict[int, _EntryCompute]:
    """What entries compute, by the entry's number."""
    facts, notes = queries.load_facts(id=[entry.id for entry in entries]), queries.notes
    noted = {note.artifact: note for note in notes.values()}
    # A note on a model of the hub is one on its other revisions, too.
    noted |= {note.model: note for note in notes.values() if "/" in note.model}
    behind = resolve_base_backbones({entry.model: entry.adapted_from for entry in entries})
    computes = {}
    for entry in entries:
        backbone = find_backbone(entry.model) or behind.get(entry.model)
        parents = entry.lineage.parents if entry.lineage else ()
        keys = [entry.artifact or "", entry.model, *(one.artifact for one in parents)]
        stated = (noted.get(key) for key in keys)
        note = notes.get(facts[entry.id].get("weights", "")) or next(filter(None, stated), None)
        computes[entry.id] = build_entry_compute(entry.parameters, facts[entry.id], backbone, note)
    return computes


def build_entry_compute(
    parameters: int | None, facts: Mapping[str, Any], backbone: Backbone | None, note: ComputeNote | None
) -> _EntryCompute:
    """What a model computes, by a note on one of its size, else by its card and the shape of its backbone.

    Args:
        parameters: Its parameters, None where they are not known.
        facts: Those of its card.
        backbone: What it is or was made from.
        note: What is stated of it.
    """
    table, counted = facts.get("n_embedding_parameters"), note and note.counted
    without = parameters - table if parameters and table else None
    operations: float | None = None
    published = find_published_compute(backbone.slug) if backbone else None
    size = published or backbone
    if counted and has_same_size(parameters, counted.parameters):
        without, operations = counted.without_embeddings, counted.operations
    # A model that was cut or grown from a backbone has another shape.
    elif size and has_same_size(parameters, size.parameters):
        without = without or size.without_embeddings
        operations = published.count_operations(published.lengths[0]) if published else None
    return _EntryCompute(without_embeddings=without, operations=operations, note=note)


def has_same_size(parameters: int | None, others: int | None) -> bool:
    """Whether two models may have one shape, by their parameters as far as these are known."""
    return not parameters or not others or abs(parameters / others - 1) <= ALIKE


EFFICIENCY = "Efficiency"
"""The type of the tasks whose records hold figures of a machine, by engine and by set of texts."""


def load_measured_figures(
    queries: Queries, entries: Sequence[Entry], figure: str
) -> dict[str, dict[int, float]]:
    """A figure by entry's row, for each task, set, engine, precision and machine, which are never mixed.

    Each is the newest of the whole task. Figures that vary, or were measured beside other work, are left out.
    """
    rows = group_by(range(len(entries)), lambda row: entries[row].artifact)
    results = queries.find_results(type=EFFICIENCY, status="done")
    documents = queries.load_result_documents([result.id for result in results])
    figures: dict[str, dict[int, float]] = {}
    # The last one of a place stays.
    for result in sorted((one for one in results if one.id in documents), key=lambda one: one.written or ""):
        document, mine = documents[result.id], rows.get(queries.entries[result.entry].artifact, ())
        engines = {} if "limit" in document["identity"] else document["scores"]
        for engine, name in ((engine, name) for engine, sets in engines.items() for name in sets):
            cell = engines[engine][name]
            value = cell.get(figure)
            if is_number(value) and 0 < value < inf and not (cell.get("busy") or cell.get("unstable")):
                place = f"{result.task} {name}, {engine}, {_describe_machine(document['identity'])}"
                figures.setdefault(place, {}).update(dict.fromkeys(mine, float(value)))
    return {place: values for place, values in figures.items() if values}


def _describe_machine(identity: Mapping[str, Any]) -> str:
    """The precision and the machine of a measurement; two machines of one name differ in a digest."""
    # A record of any origin may hold anything.
    try:
        machine, dtype = identity["machine"], identity["encoding"]["dtype"]
        return f"{dtype}, {machine['device']['name']} ({digest(machine)[:6]})"
    except (LookupError, TypeError):
        return "an unknown machine"
