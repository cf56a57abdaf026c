"""Records of results folders as entries."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from pydantic_core import to_json

from harness.core.documents import read_or_warn
from harness.core.files import resolve_cache_folder
from harness.core.groups import group_by
from harness.results.record_units import measure_half_width
from harness.results.results import (
    Condition,
    EncodingCondition,
    RecipeCondition,
    describe_former_weights,
    extract_condition,
    get_record_weights,
    group_records,
    serialize_condition,
)
from harness.results.scores import TrainedResult, list_small_columns
from harness.storage.record import SCHEMA, ModelPart, Record
from harness.storage.store import Store
from leaderboard.data.entries import EntryOutcome, NewEntry, TaskNumber, Unit
from leaderboard.data.suites import SiteSuite, extract_main_scores

log = logging.getLogger(__name__)

SOURCE = "measured"

Located: TypeAlias = tuple[Record, Path]
"""A record and its file."""


@dataclass(frozen=True, kw_only=True)
class RecordReader:
    """Reads the entries of artifacts.

    Attributes:
        learnt: The suites with tasks that models are trained for.
        few: The names of tasks with few examples, whose scores get intervals.
    """

    learnt: Sequence[SiteSuite]
    few: frozenset[str]

    @classmethod
    def for_suites(cls, suites: Sequence[SiteSuite]) -> RecordReader:
        """A reader for a site that shows some suites."""
        learnt = [one for one in suites if any(task.output == "label" for task in one.suite.tasks)]
        small = {name for one in suites for name in list_small_columns(one.suite)}
        few = frozenset(
            t.name for one in suites for c in one.suite.columns if c.name in small for t in c.tasks
        )
        return cls(learnt=learnt, few=few)

    def read(self, paths: Sequence[str]) -> list[NewEntry]:
        """The entries of an artifact by its records; of two with one key the earlier one counts."""
        places = [*map(Path, paths)]
        records: dict[tuple[str, str], Located] = {}
        models: dict[str, list[tuple[str, ModelPart]]] = {}
        for path in places:
            record = read_or_warn(Store.read_record, path)
            if record is None or record.purpose != "final":
                continue
            models.setdefault(record.model.artifact, []).append((_find_write_time(record), record.model))
            previous = records.get((record.key, get_record_weights(record)))
            # A success in a later folder counts more than a failure in an earlier one.
            if previous is None or (record.status == "done" and previous[0].status == "failed"):
                records[record.key, get_record_weights(record)] = (record, path)
        grouped = group_by(records.values(), lambda pair: pair[0].model.artifact)
        entries = [
            _rename_copy(entry, models[artifact])
            for artifact, group in grouped.items() for entry in _iter_artifact_entries(group, self.learnt)
        ]  # fmt: skip
        stores = [Store(root) for root in dict.fromkeys(path.parents[3] for path in places)]
        halves = {
            record.key: measure_half_width(record, stores, resolve_cache_folder())
            for record, _ in records.values() if record.task.name in self.few and record.status == "done"
        }  # fmt: skip
        if not halves:
            return entries
        return [
            replace(entry, outcomes=[replace(one, half=halves.get(one.key or "")) for one in entry.outcomes])
            for entry in entries
        ]


def iter_record_units(roots: Sequence[Path], reader: RecordReader) -> Iterator[Unit]:
    """One unit for each artifact; a record of an earlier folder goes before the same one of a later."""
    artifacts: dict[str, list[tuple[str, _RecordStamp]]] = {}
    for root in roots:
        records = str(root / "records")
        for name, stamps in _list_record_stamps(records).items():
            # A folder is called after its model and its artifact: the same artifact may have other names
            # elsewhere.
            artifacts.setdefault(name.rpartition("-")[2], []).extend((records, stamp) for stamp in stamps)
    for key, pairs in artifacts.items():
        # Texts, as pathlib takes a second for 50,000.
        paths = [f"{records}/{stamp[0]}" for records, stamp in pairs]
        digest = hashlib.sha256(repr([stamp for _, stamp in pairs]).encode("utf-8", "replace"))
        yield Unit(
            source=SOURCE, name=key, stamp=digest.hexdigest(), read=partial(reader.read, paths), records=paths
        )


_RecordStamp: TypeAlias = tuple[str, int, int]
"""A record's file below `records`, and what changes whenever it does: its size, its time in nanoseconds."""


def _list_record_stamps(records: str) -> dict[str, list[_RecordStamp]]:
    """The records of a results folder by their artifact's folder, sorted."""
    stamps: dict[str, list[_RecordStamp]] = {}
    # os.listdir: with 50,000 folders of tasks, pathlib's globs take four times as long.
    for artifact in _list_names(records):
        for task in _list_names(f"{records}/{artifact}"):
            for file in _list_names(f"{records}/{artifact}/{task}"):
                # A file may be removed between the listing and this look at it.
                with suppress(OSError):
                    if file.endswith(".json"):
                        facts = os.stat(f"{records}/{artifact}/{task}/{file}")
                        stamp = (f"{artifact}/{task}/{file}", facts.st_size, facts.st_mtime_ns)
                        stamps.setdefault(artifact, []).append(stamp)
    return stamps


def _list_names(folder: str) -> list[str]:
    """The names in a folder, sorted; none for a file."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _rename_copy(entry: NewEntry, models: Sequence[tuple[str, ModelPart]]) -> NewEntry:
    """The entry under the name that its content has elsewhere, if its own is that of a folder.

    The other names that records have for this content are among its facts.
    """
    published = [pair for pair in models if pair[1].source != "local"]
    if published and entry.folder is not None:
        _, about = max(published, key=lambda pair: pair[0])
        entry = replace(entry, model=about.name, revision=about.revision, folder=None)
    names = sorted({model.name for _, model in models} - {entry.model})
    return replace(entry, facts={**entry.facts, "folders": names}) if names else entry


def _iter_artifact_entries(group: Sequence[Located], learnt: Sequence[SiteSuite]) -> Iterator[NewEntry]:
    """The entries of one artifact: those of former weights are apart, and say so."""
    places = {id(record): path for record, path in group}
    for position, (weights, records) in enumerate(group_records(record for record, _ in group).items()):
        mine = [(record, places[id(record)]) for record in records]
        former = describe_former_weights(weights) if position else ""
        yield from _iter_treatment_entries(mine, learnt, former=former)


def _iter_treatment_entries(
    group: Sequence[Located], learnt: Sequence[SiteSuite], *, former: str
) -> Iterator[NewEntry]:
    """The entries of the same weights: one for each treatment."""
    treatments: dict[str, tuple[Condition, list[Located]]] = {}
    # Most records of a model have one treatment, and its repr is ten times as fast as its JSON.
    texts_by_repr: dict[str, str] = {}
    for record, path in group:
        try:
            treatment = extract_condition(record)
            # `text` is computed here, so that a bad record fails inside this `try`, not on a page.
            assert treatment.text
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            log.warning("%s does not say how it was measured (%r). It is left out.", path, error)
            continue
        shown = repr(treatment)
        text = texts_by_repr[shown] = texts_by_repr.get(shown) or _dump_treatment(treatment)
        treatments.setdefault(text, (treatment, []))[1].append((record, path))
    pairs = list(_merge_shared_records(treatments))
    texts = Counter(treatment.text for treatment, _ in pairs)
    for treatment, members in pairs:
        text = treatment.text
        if isinstance(treatment, EncodingCondition) and treatment.encoding.get("output") == "ranking":
            text = f"lexical: {text}"
        # The text is short: recipes and prompts may differ in more than it says.
        if texts[text] > 1:
            text = f"{text} ({hashlib.sha256(_dump_treatment(treatment).encode()).hexdigest()[:8]})"
        yield _build_measured_entry(treatment, f"{text}, {former}" if former else text, members, learnt)


def _dump_treatment(treatment: Condition) -> str:
    return json.dumps(serialize_condition(treatment), sort_keys=True, default=str)


def _merge_shared_records(
    treatments: Mapping[str, tuple[Condition, list[Located]]],
) -> Iterator[tuple[Condition, list[Located]]]:
    """Treatments with their records: tasks that start from nothing belong to every start of a recipe."""
    starts = [t for t, _ in treatments.values() if isinstance(t, RecipeCondition) and t.start is not None]
    for treatment, members in treatments.values():
        if isinstance(treatment, RecipeCondition) and treatment.start is not None:
            shared = treatments.get(_dump_treatment(replace(treatment, start=None)), (treatment, []))[1]
            yield treatment, [*members, *shared]
        elif treatment not in [replace(t, start=None) for t in starts]:
            yield treatment, members


def _build_measured_entry(
    treatment: Condition, text: str, members: Sequence[Located], learnt: Sequence[SiteSuite]
) -> NewEntry:
    newest = max((record for record, _ in members), key=_find_write_time)
    lineage = newest.lineage
    recipe = lineage.name if lineage else None
    if trained := isinstance(treatment, RecipeCondition):
        recipe = treatment.recipe
    encoding: Mapping[str, Any] = treatment.encoding if isinstance(treatment, EncodingCondition) else {}
    # Only recipes have conventions; embeddings are scored by the suite alone.
    numbers, averages = _compute_standings(treatment, members, learnt) if trained else ({}, [])
    model = newest.model
    return NewEntry(
        model=model.name, origin="measured", source=SOURCE, trust="measured", treatment=text,
        revision=model.revision, artifact=model.artifact, recipe=recipe,
        output="label" if trained else str(encoding.get("output", "vector")), parameters=model.parameters,
        dimension=model.dimension, max_tokens=encoding.get("max_length"),
        adapted_from=lineage.parents[0].name if lineage and lineage.parents else None,
        folder=model.folder or "" if model.source == "local" else None, lineage=lineage,
        facts={"treatment": serialize_condition(treatment), "weights": model.weights},
        outcomes=[_build_entry_outcome(*one, numbers.get(one[0].task.name, {})) for one in members],
        averages=averages,
    )  # fmt: skip


def _build_entry_outcome(record: Record, path: Path, numbers: Mapping[str, TaskNumber]) -> EntryOutcome:
    data = record.identity.get("data")
    data = data if isinstance(data, Mapping) else {}
    texts = record.provenance.get("texts_trained_on")
    return EntryOutcome(
        task=record.task.name, type=record.task.type, metric=record.task.metric, status=record.status,
        value=record.main_score, data=str(data.get("revision") or data.get("content") or ""),
        raw=extract_main_scores(record.scores, record.task.metric, record.main_score), numbers=numbers,
        key=record.key, written=_find_write_time(record),
        trained_on=texts if isinstance(texts, int) else None, document=_format_document(record, path),
    )  # fmt: skip


def _format_document(record: Record, path: Path) -> str:
    """A record as JSON with its digest, as `Record.to_json` gives it, but ten times as fast."""
    try:
        digest = _DIGEST.search(path.read_bytes())
        if digest:
            return f'{to_json(record, by_alias=True).decode()[:-1]},"digest":"{digest[1].decode()}"}}'
    # Halves of characters, which only Python's own JSON writes; or a file that is gone by now.
    except (OSError, ValueError):
        pass
    return record.to_json()


_DIGEST = re.compile(rb'\A\{\s*"schema": %d,.*"digest": "([0-9a-f]{64})"\s*\}\s*\Z' % SCHEMA, re.DOTALL)
"""The digest of a record of this schema; one of an older schema gets another when it is migrated."""


def _compute_standings(
    treatment: Condition, members: Sequence[Located], learnt: Sequence[SiteSuite]
) -> tuple[dict[str, dict[str, TaskNumber]], list[tuple[str, str, str]]]:
    """What a recipe trained, by every convention: task → view → number, and the means."""
    done = sorted((record for record, _ in members if record.status == "done"), key=_find_write_time)
    places = {record.key: path for record, path in members}

    def find_examples_file(record: Record) -> Path | None:
        path = places[record.key]
        # A file that cannot be read costs an interval, and no score.
        with suppress(OSError):
            return Store(path.parents[3]).find_part_file(record, path.parts[-3])
        return None

    numbers: dict[str, dict[str, TaskNumber]] = {}
    averages = []
    for site_suite in learnt:
        records = {
            task.name: r for task in site_suite.suite.tasks for r in done if treatment.is_match(r, task)
        }
        for view, convention in site_suite.suite.conventions.items():
            trained_result = TrainedResult.build_trained_result(
                site_suite.suite, records, convention, find_examples_file
            )
            for row in trained_result.rows:
                if row.record is not None:
                    low, high = (row.interval.low, row.interval.high) if row.interval else (None, None)
                    number = TaskNumber(value=row.number, low=low, high=high)
                    numbers.setdefault(row.task, {})[view] = number
            averages.append((site_suite.slug, view, json.dumps(_average(trained_result))))
    return numbers, averages


def _average(trained_result: TrainedResult) -> dict[str, Any]:
    average = {name: getattr(trained_result.average, name) for name in ("value", "there", "wanted")}
    bounds = {name: getattr(trained_result, name) for name in ("interval", "mean_of_bounds")}
    return average | {name: [b.low, b.high] if b else None for name, b in bounds.items()}


def _find_write_time(record: Record) -> str:
    """When a record was written; empty for a time to come, as that would be the newest for ever."""
    written = str(record.provenance.get("written", ""))
    return written if written < (datetime.now(UTC) + timedelta(days=1)).isoformat() else ""
