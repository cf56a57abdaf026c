"""Records of results folders as entries, and the entries that stand for several seeds."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, TypeAlias

from harness.core import paths
from harness.core.errors import RecordError
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
from harness.results.spreads import measure_half_width
from harness.storage.record import Record
from harness.storage.store import Store
from leaderboard.data.entries import EntryOutcome, NewEntry, TaskNumber, Unit
from leaderboard.data.groups import group_by
from leaderboard.data.suites import REASONS, SiteSuite, extract_main_scores
from leaderboard.data.tables import Row, Tables, compute_permanent_id

log = logging.getLogger(__name__)

SOURCE = "measured"

Located: TypeAlias = tuple[Record, Path]
"""A record and its file."""


def iter_record_units(roots: Sequence[Path], suites: Sequence[SiteSuite]) -> Iterator[Unit]:
    """One unit for each artifact; a record of an earlier folder goes before the same one of a later."""
    learnt = [one for one in suites if any(task.output == "label" for task in one.suite.tasks)]
    small = {name for one in suites for name in list_small_columns(one.suite)}
    few = frozenset(t.name for one in suites for c in one.suite.columns if c.name in small for t in c.tasks)
    folders: dict[str, list[tuple[Store, Path]]] = {}
    for root in roots:
        store = Store(root)
        for folder in sorted(p for p in (root / "records").glob("*") if p.is_dir()):
            # A folder is called after its model and its artifact: the same artifact may have other names
            # elsewhere.
            folders.setdefault(folder.name.rpartition("-")[2], []).append((store, folder))
    for key, places in folders.items():
        yield Unit(
            source=SOURCE,
            name=key,
            stamp=_hash_record_files(places),
            read=partial(_read_record_entries, places, learnt, few),
        )


def _hash_record_files(places: Iterable[tuple[Store, Path]]) -> str:
    digest = hashlib.sha256()
    for _, folder in places:
        for path in sorted(folder.glob("*/*.json")):
            try:
                facts = path.stat()
            except OSError:
                continue
            file_key = (str(path.relative_to(folder.parent)), facts.st_size, facts.st_mtime_ns)
            digest.update(repr(file_key).encode("utf-8", "replace"))
    return digest.hexdigest()


def _read_record_entries(
    places: Sequence[tuple[Store, Path]], learnt: Sequence[SiteSuite], few: Collection[str]
) -> list[NewEntry]:
    """The entries of an artifact.

    Args:
        places: Its folders, with their stores.
        learnt: The suites with tasks that models are trained for.
        few: The names of tasks with few examples, whose scores get intervals.
    """
    records: dict[tuple[str, str], Located] = {}
    for store, folder in places:
        for path in sorted(folder.glob("*/*.json")):
            try:
                record = store.read_record(path)
            except RecordError as error:
                log.warning("%s It is left out.", error.message)
                continue
            if record is None or record.purpose != "final":
                continue
            previous = records.get((record.key, get_record_weights(record)))
            # A success in a later folder counts more than a failure in an earlier one.
            if previous is None or (record.status == "done" and previous[0].status == "failed"):
                records[record.key, get_record_weights(record)] = (record, path)
    grouped = group_by(records.values(), lambda pair: pair[0].model.artifact)
    entries = [entry for group in grouped.values() for entry in _iter_artifact_entries(group, learnt)]
    stores, cache = [store for store, _ in places], paths.resolve_cache_folder()
    halves = {
        record.key: measure_half_width(record, stores, cache)
        for record, _ in records.values()
        if record.task.name in few and record.status == "done"
    }
    return [
        replace(entry, outcomes=[replace(one, half=halves.get(one.key or "")) for one in entry.outcomes])
        if halves
        else entry
        for entry in entries
    ]


def _iter_artifact_entries(group: Sequence[Located], learnt: Sequence[SiteSuite]) -> Iterator[NewEntry]:
    """The entries of one artifact: those of former weights are apart, and say so."""
    places = {id(record): path for record, path in group}
    for position, (weights, records) in enumerate(group_records(record for record, _ in group).items()):
        mine = [(record, places[id(record)]) for record in records]
        yield from _iter_treatment_entries(
            mine, learnt, former=describe_former_weights(weights) if position else ""
        )


def _iter_treatment_entries(
    group: Sequence[Located], learnt: Sequence[SiteSuite], *, former: str
) -> Iterator[NewEntry]:
    """The entries of the same weights: one for each treatment."""
    treatments: dict[str, tuple[Condition, list[Located]]] = {}
    for record, path in group:
        try:
            treatment = extract_condition(record)
            # `text` is computed here, so that a bad record fails inside this `try`, not on a page.
            assert treatment.text
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            log.warning("%s does not say how it was measured (%r). It is left out.", path, error)
            continue
        treatments.setdefault(_dump_treatment(treatment), (treatment, []))[1].append((record, path))
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
    return NewEntry(
        model=newest.model.name,
        origin="measured",
        source=SOURCE,
        trust="measured",
        treatment=text,
        revision=newest.model.revision,
        artifact=newest.model.artifact,
        recipe=recipe,
        output="label" if trained else str(encoding.get("output", "vector")),
        parameters=newest.model.parameters,
        dimension=newest.model.dimension,
        max_tokens=encoding.get("max_length"),
        adapted_from=lineage.parents[0].name if lineage and lineage.parents else None,
        folder=newest.model.folder or "" if newest.model.source == "local" else None,
        lineage=lineage,
        facts={"treatment": serialize_condition(treatment), "weights": newest.model.weights},
        outcomes=[_build_entry_outcome(record, numbers.get(record.task.name, {})) for record, _ in members],
        averages=averages,
    )


def _build_entry_outcome(record: Record, numbers: Mapping[str, TaskNumber]) -> EntryOutcome:
    data = record.identity.get("data")
    data = data if isinstance(data, Mapping) else {}
    texts = record.provenance.get("texts_trained_on")
    return EntryOutcome(
        task=record.task.name,
        type=record.task.type,
        metric=record.task.metric,
        status=record.status,
        value=record.main_score,
        data=str(data.get("revision") or data.get("content") or ""),
        raw=extract_main_scores(record.scores, record.task.metric, record.main_score),
        numbers=numbers,
        key=record.key,
        written=_find_write_time(record),
        trained_on=texts if isinstance(texts, int) else None,
        document=record.to_json(),
    )


def _compute_standings(
    treatment: Condition, members: Sequence[Located], learnt: Sequence[SiteSuite]
) -> tuple[dict[str, dict[str, TaskNumber]], list[tuple[str, str, str]]]:
    """What a recipe trained, by every convention: task → view → number, and the means."""
    done = sorted((record for record, _ in members if record.status == "done"), key=_find_write_time)
    places = {record.key: path for record, path in members}
    numbers: dict[str, dict[str, TaskNumber]] = {}
    averages = []
    for site_suite in learnt:
        records = {
            task.name: r for task in site_suite.suite.tasks for r in done if treatment.is_match(r, task)
        }
        for view, convention in site_suite.suite.conventions.items():
            trained_result = TrainedResult.build_trained_result(
                site_suite.suite, records, convention, lambda r: _find_examples_file(r, places)
            )
            for row in trained_result.rows:
                if row.record is not None:
                    low, high = (row.interval.low, row.interval.high) if row.interval else (None, None)
                    number = TaskNumber(value=row.number, low=low, high=high)
                    numbers.setdefault(row.task, {})[view] = number
            averages.append((site_suite.slug, view, json.dumps(_average(trained_result))))
    return numbers, averages


def _average(trained_result: TrainedResult) -> dict[str, Any]:
    bounds = {"interval": trained_result.interval, "mean_of_bounds": trained_result.mean_of_bounds}
    return {
        "value": trained_result.average.value,
        "there": trained_result.average.there,
        "wanted": trained_result.average.wanted,
        **{name: [b.low, b.high] if b else None for name, b in bounds.items()},
    }


def _find_examples_file(record: Record, places: Mapping[str, Path]) -> Path | None:
    """The per-example file of a record, if it exists and has the recorded digest."""
    if record.examples is None:
        return None
    path = places[record.key].with_name(record.examples.file)
    try:
        # A run that goes on, or a copy that broke off, may have left another file of this name.
        intact = hashlib.sha256(path.read_bytes()).hexdigest() == record.examples.sha256
    except OSError:
        return None
    if not intact:
        log.warning("%s has other content than its record says. Its scores have no interval.", path)
    return path if intact else None


def _find_write_time(record: Record) -> str:
    return str(record.provenance.get("written", ""))


SEEDS = "seeds"
"""The unit of entries that stand for several seeds of a training."""

_SOME, _OTHER = REASONS.index("seeds"), REASONS.index("other")


def put_seeds(tables: Tables) -> None:
    """Add an entry for every training with several seeds: the means of what all of its seeds have."""
    entries = tables.fetch_rows('SELECT * FROM entries WHERE "group" IS NOT NULL ORDER BY id')
    for members in group_by(entries, lambda entry: entry["group"]).values():
        if len(members) > 1:
            _put_group(tables, sorted(members, key=_seed))


def _seed(entry: Row) -> int:
    return int(json.loads(entry["lineage"])["seed"])


def _put_group(tables: Tables, members: Sequence[Row]) -> None:
    first, ids = members[0], [member["id"] for member in members]
    digest = hashlib.sha256(f"{SEEDS} {first['group']}".encode()).hexdigest()[:8]
    slug = f"{first['model_slug']}-{digest}"
    unit_fields = {"unit": SEEDS, "entry": compute_permanent_id(slug), "source": compute_permanent_id(slug)}
    own_rows = "WHERE entry IN (SELECT unnest(?::BIGINT[]))"
    documents = "JOIN documents d ON d.kind = 'record' AND d.name = r.id::VARCHAR"
    results = tables.fetch_rows(f"SELECT r.*, d.document FROM results r {documents} {own_rows}", ids)
    scores = tables.fetch_rows(f"SELECT * FROM scores {own_rows} ORDER BY entry", ids)
    # For each task and seed a result that is done goes before one that failed.
    results.sort(key=lambda one: (ids.index(one["entry"]), one["status"] != "done", one["written"] or ""))
    firsts: dict[tuple[str, int], Row] = {}
    for result in results:
        firsts.setdefault((result["task"], result["entry"]), result)
    tasks = group_by(firsts.values(), lambda result: result["task"])
    rows = [
        {**_group_result(some, members), **unit_fields, "id": compute_permanent_id(slug, task)}
        for task, some in tasks.items()
    ]
    task_of = {result["id"]: result["task"] for result in results}
    scopes = group_by(scores, lambda score: score["scope"])
    lineages = [json.loads(member["lineage"]) for member in members]
    entry = {
        **first, "unit": SEEDS, "id": unit_fields["entry"], "slug": slug, "artifact": None,
        "tasks": len(rows),
        "seeds": json.dumps([lineage["seed"] for lineage in lineages]),
        "lineage": json.dumps(_merge_lineages(lineages)), "member": False,
        "newest": max((member["newest"] or "" for member in members), default="") or None,
    }  # fmt: skip
    tables.connection.execute(
        # All seeds get the name of the first, so that they share the page of one model.
        """UPDATE entries SET member = true, model = ?, model_slug = ?
           WHERE id IN (SELECT unnest(?::BIGINT[]))""",
        [first["model"], first["model_slug"], ids],
    )
    tables.insert(
        {
            "entries": [entry],
            "results": rows,
            "documents": [{**unit_fields, "kind": "record", "name": str(row["id"]),
                           "document": row["document"]} for row in rows],
            "scores": [{**_mean_seed_scores(some, len(members)), **unit_fields, "scope": scope,
                        "result": compute_permanent_id(slug, task_of[some[0]["result"]])}
                       for scope, some in scopes.items()],
        }
    )  # fmt: skip


def _merge_lineages(lineages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The lineage of all seeds; what their sweeps chose stays where all chose the same value."""
    first = lineages[0]
    sweeps: list[dict[str, Any]] = [lineage["sweep"] for lineage in lineages if lineage.get("sweep")]
    if all(sweep["chosen"] == sweeps[0]["chosen"] for sweep in sweeps):
        return first
    return {**first, "sweep": {**sweeps[0], "chosen": None, "curve": []}}


def _mean_seed_scores(scores: Sequence[Row], expected: int) -> Row:
    """The mean of a scope's scores and its deviation; where some seeds have none, how many have one."""
    values = [score["value"] for score in scores if score["value"] is not None]
    complete = len(values) == expected
    reasons = {score["reason"] for score in scores}
    texts = [score["trained_on"] for score in scores if score["trained_on"] is not None]
    reason = _SOME if values else max(reasons)
    if complete:
        reason = _OTHER if _OTHER in reasons else 0
    return {
        "value": fmean(values) if complete else None,
        "reason": reason,
        "deviation": stdev(values) if complete else None,
        "seeds": len(values),
        "trained_on": max(texts, default=None),
        "data": scores[0]["data"],
    }


def _group_result(results: Sequence[Row], members: Sequence[Row]) -> Row:
    """The result of a task over all seeds, with a document like a record's that names those of the seeds."""
    values = [one["value"] for one in results if one["value"] is not None and one["status"] == "done"]
    complete = len(values) == len(members)
    mean = fmean(values) if complete else None
    newest = max(results, key=lambda one: one["written"] or "")
    seeds = {member["id"]: _seed(member) for member in members}
    documents = [json.loads(result["document"]) for result in results]
    # These are of one run; nothing was run for the mean over seeds.
    apart = {"key", "digest", "examples", "run"}
    document = {name: value for name, value in documents[0].items() if name not in apart}
    document["lineage"] = _merge_lineages([one["lineage"] for one in documents])
    for part, seed_fields in (
        ("identity", {"artifact"}),
        ("model", {"artifact", "weights"}),
        ("lineage", {"seed"}),
    ):
        document[part] = {name: value for name, value in document[part].items() if name not in seed_fields}
    document |= {
        "training": {},
        "main_score": mean,
        "scores": _mean_of([one["scores"] for one in documents]) if complete else {},
        "seeds": [
            {"seed": seeds[r["entry"]], "result": r["id"], "key": r["key"], "status": r["status"],
             "main_score": r["value"]}
            for r in results
        ],
        "error": None,
    }  # fmt: skip
    return {
        **newest,
        "status": "done" if complete else "part",
        "value": mean,
        # Seeds that were scored on different data prove no revision.
        "data": newest["data"] if len({result["data"] for result in results}) == 1 else "",
        "key": None,
        "deviation": stdev(values) if complete else None,
        "seeds": len(values),
        "document": json.dumps(document),
    }


def _mean_of(values: Sequence[Any]) -> Any:
    """The means of numbers in documents of one form; None where one of them has something else."""
    if all(isinstance(value, Mapping) for value in values):
        shared = [name for name in values[0] if all(name in value for value in values)]
        return {name: _mean_of([value[name] for value in values]) for name in shared}
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    return fmean(values) if numbers else None
