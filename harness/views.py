"""Finding what has been measured: records of one model, and of the reference beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import paths
from harness.errors import UsageError, unknown
from harness.record import ModelPart, Record
from harness.store import Store
from harness.treatments import Treatment, how_text, trained_of, treatment_of
from harness.types import SEED, Suite


def stores(results: Path | None) -> list[Store]:
    """The results folder, and the reference records where they are at hand."""
    reference = paths.reference_folder()
    found = [Store(paths.results_folder(results))]
    return [*found, Store(reference)] if reference else found


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Every final record of a model; `reference` are the keys of those that came with the project."""

    records: tuple[Record, ...]
    reference: frozenset[str]


def records_of(model: str, results: Path | None) -> Measured:
    """The records of a model: by name, artifact key (or its first six digits and more), or folder.

    A record of the results folder goes before the reference record of the same key.

    Raises:
        UsageError: Nothing is recorded under that name, or it names several artifacts.
    """
    own, *others = [tuple(store.records()) for store in stores(results)]
    everything = {r.key: r for records in (*others, own) for r in records}
    named, _, revision = model.partition("@")
    wanted = _artifacts_of_folder(model) or [named]
    found = [r for r in everything.values() if any(_is(r.model, w, revision) for w in wanted)]
    artifacts = dict.fromkeys(r.model.artifact for r in found)
    if not found:
        raise _not_measured(named, revision, list(everything.values()))
    if len(artifacts) > 1:
        listed = ", ".join(key[:12] for key in artifacts)
        raise UsageError(
            f"{model!r} names {len(artifacts)} models: {listed}.", hint="Type one of these keys instead."
        )
    mine = tuple(r for r in everything.values() if r.model.artifact in artifacts)
    return Measured(records=mine, reference=frozenset(r.key for r in mine) - {r.key for r in own})


@dataclass(frozen=True, kw_only=True)
class View:
    """A suite as it was measured under one treatment.

    `records` are what was measured by task name, and `scores` their main scores; `unproven` are the
    tasks whose data came from a folder that does not prove the pinned revision.
    """

    treatment: Treatment
    records: Mapping[str, Record]
    scores: Mapping[str, float]
    unproven: tuple[str, ...]


def suite_views(records: Sequence[Record], suite: Suite) -> list[View]:
    """What was measured of a suite, one view for each treatment.

    The treatment with the most tasks comes first; one whose records another has as well is left
    out. Data that is built or local must be what the suite has now. Of several records of a task
    of the hub that differ only in their data the last made one counts.
    """
    mine = sorted((r for r in records if r.main_score is not None or r.training), key=_written)
    names = {task.name for task in suite.tasks}
    found = []
    for treatment in _distinct([treatment_of(r) for r in mine if r.task.name in names]):
        kept = {t.name: r for t in suite.tasks for r in mine if treatment.fits(r, t)}
        found.append((treatment, kept))
    found.sort(key=lambda pair: (-len(pair[1]), pair[0].rank))
    views, seen = [], list[set[str]]()
    for treatment, kept in found:
        keys = {record.key for record in kept.values()}
        if keys and not any(keys <= others for others in seen):
            seen.append(keys)
            views.append(_view(treatment, kept, suite))
    return views


def _view(treatment: Treatment, kept: Mapping[str, Record], suite: Suite) -> View:
    pinned = {task.name: task.data.revision for task in suite.tasks if task.data.path}
    unproven = [n for n, r in kept.items() if n in pinned and r.identity["data"].get("revision") != pinned[n]]
    scores = {name: r.main_score for name, r in kept.items() if r.main_score is not None}
    return View(treatment=treatment, records=kept, scores=scores, unproven=tuple(unproven))


def notes_of(records: Iterable[Record]) -> tuple[str, ...]:
    """What records have to say, such as what was left out of the data; each once, with its tasks."""
    told = [(record.task.name, record.provenance.get("notes", ())) for record in records]
    tasks: dict[str, list[str]] = {}
    for task, notes in told:
        for note in dict.fromkeys(notes):
            tasks.setdefault(note, []).append(task)
    everywhere = [note for note, names in tasks.items() if 1 < len(told) == len(names)]
    rest = [(note, names) for note, names in tasks.items() if note not in everywhere]
    return (*everywhere, *(f"{', '.join(dict.fromkeys(names))}: {note}" for note, names in rest))


def record_text(record: Record) -> str:
    """What tells two records of one task apart: encoding, prompts applied and seed, or the recipe."""
    if "recipe" in record.identity:
        return trained_of(record).text
    prompts = sorted({repr(p) for p in record.identity["prompts"].values() if p})
    seed = [] if record.identity["seed"] == SEED else [f"seed {record.identity['seed']}"]
    return ", ".join([how_text(record.identity["encoding"]), *prompts, *seed])


def _distinct(treatments: Iterable[Treatment]) -> list[Treatment]:
    found: list[Treatment] = []
    for one in treatments:
        if one not in found:
            found.append(one)
    return found


def _written(record: Record) -> str:
    return str(record.provenance.get("written", ""))


def _is(about: ModelPart, wanted: str, revision: str) -> bool:
    by_key = len(wanted) >= 6 and about.artifact.startswith(wanted)
    return by_key or (about.name == wanted and (about.revision or "").startswith(revision))


def _not_measured(named: str, revision: str, everything: Sequence[Record]) -> UsageError:
    names = {r.model.name for r in everything}
    if revision and named in names:
        there = {r.model.revision[:12] for r in everything if r.model.name == named and r.model.revision}
        message = f"Nothing is recorded of {named} at revision {revision}."
        return UsageError(message, hint=f"There is: {', '.join(sorted(there)) or 'no revision'}.")
    return unknown("measured model", named, names, then="`harness list records` shows what is there.")


def _artifacts_of_folder(model: str) -> list[str]:
    """The keys a model folder may have been measured under: without and with its own code."""
    folder = paths.expanded(model)
    if "/" not in model or not folder.is_dir():
        return []
    from harness.encoder.describe import content_key

    return [content_key(folder, trust_remote_code=trusted)[0] for trusted in (False, True)]
