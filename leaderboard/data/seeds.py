"""Entries that stand for several seeds of a training: the means of what all of its seeds have."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from harness.core.groups import group_by
from harness.core.types import is_number
from harness.results.scores import compute_seed_spread
from leaderboard.data.suites import REASONS
from leaderboard.data.tables import Row, Tables, compute_permanent_id

SEEDS = "seeds"
"""The unit of these entries, which are made again from all others at each refresh."""

_SOME, _OTHER = REASONS.index("seeds"), REASONS.index("other")


def put_seeds(tables: Tables) -> None:
    """Add an entry for every training with several seeds, and mark its members.

    What was kept of a former version stays where its members are those of before.
    """
    # An entry that was kept is still marked as a member, one that was read is not.
    tables.connection.execute(
        f"""CREATE TEMP TABLE seed_groups AS SELECT "group", count(*) AS members,
            bool_and(member) AND count(*) IN (SELECT len(split(seeds, ',')) FROM entries AS whole
                WHERE whole.unit = '{SEEDS}' AND whole."group" = entries."group") AS unchanged
            FROM entries WHERE unit <> '{SEEDS}' AND "group" IS NOT NULL GROUP BY "group";
            CREATE TEMP TABLE old_seeds AS SELECT id FROM entries WHERE unit = '{SEEDS}'
            AND "group" NOT IN (SELECT "group" FROM seed_groups WHERE unchanged AND members > 1);
            DELETE FROM results WHERE entry IN (FROM old_seeds);
            DELETE FROM scores WHERE entry IN (FROM old_seeds);
            DELETE FROM entries WHERE id IN (FROM old_seeds);
            UPDATE entries SET member = members > 1 FROM seed_groups
            WHERE entries."group" = seed_groups."group" AND unit <> '{SEEDS}' AND NOT unchanged"""
    )
    new = """member AND "group" IN (SELECT "group" FROM seed_groups WHERE NOT unchanged)"""
    members = tables.fetch_rows(f"SELECT * FROM entries WHERE {new} ORDER BY id")
    owned = f"WHERE entry IN (SELECT id FROM entries WHERE {new}) ORDER BY entry"
    results, scores = (
        group_by(tables.fetch_rows(f"SELECT * FROM {name} {owned}"), lambda row: row["entry"])
        for name in ("results", "scores")
    )
    rows: dict[str, list[Row]] = {"entries": [], "results": [], "scores": []}
    for group in group_by(members, lambda entry: entry["group"]).values():
        group.sort(key=lambda entry: int(json.loads(entry["lineage"])["seed"]))
        some = ([row for one in group for row in table.get(one["id"], ())] for table in (results, scores))
        for name, new_rows in _build_group_rows(group, *some).items():
            rows[name] += new_rows
    tables.insert(rows)


def _build_group_rows(
    members: Sequence[Row], results: Sequence[Row], scores: Sequence[Row]
) -> dict[str, list[Row]]:
    first = members[0]
    digest = hashlib.sha256(f"{SEEDS} {first['group']}".encode()).hexdigest()[:8]
    slug = f"{first['model_slug']}-{digest}"
    number = compute_permanent_id(slug)
    ids = {"unit": SEEDS, "entry": number, "source": number}
    tasks = group_by(select_seed_results(results, [m["id"] for m in members]), lambda row: row["task"])
    lineages = [json.loads(member["lineage"]) for member in members]
    entry = {
        **first, "unit": SEEDS, "id": number, "slug": slug, "artifact": None, "tasks": len(tasks),
        "seeds": json.dumps([lineage["seed"] for lineage in lineages]),
        "lineage": json.dumps(_merge_lineages(lineages)), "member": False,
        "newest": max((member["newest"] or "" for member in members), default="") or None,
    }  # fmt: skip
    task_of = {result["id"]: result["task"] for result in results}
    return {
        "entries": [entry],
        "results": [
            {**_mean_results(some, len(members)), **ids, "id": compute_permanent_id(slug, task)}
            for task, some in tasks.items()
        ],
        "scores": [
            {**_mean_scores(some, len(members)), **ids, "scope": scope,
             "result": compute_permanent_id(slug, task_of[some[0]["result"]])}
            for scope, some in group_by(scores, lambda score: score["scope"]).items()
        ],
    }  # fmt: skip


def select_seed_results(results: Iterable[Row], members: Sequence[int]) -> list[Row]:
    """Of each task and seed one result, in the order of the members; done goes before failed."""
    order = {number: at for at, number in enumerate(members)}
    firsts: dict[tuple[str, int], Row] = {}
    for row in sorted(
        results, key=lambda one: (order[one["entry"]], one["status"] != "done", one["written"] or "")
    ):
        firsts.setdefault((row["task"], row["entry"]), row)
    return list(firsts.values())


def _merge_lineages(lineages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The lineage of all seeds; what their sweeps chose stays where all chose the same value."""
    first = lineages[0]
    sweeps: list[dict[str, Any]] = [lineage["sweep"] for lineage in lineages if lineage.get("sweep")]
    if all(sweep["chosen"] == sweeps[0]["chosen"] for sweep in sweeps):
        return first
    return {**first, "sweep": {**sweeps[0], "chosen": None, "curve": []}}


def _mean_scores(scores: Sequence[Row], expected: int) -> Row:
    """The mean of a scope's scores and its deviation; where some seeds have none, how many have one."""
    spread = _compute_spread([score["value"] for score in scores], expected)
    reasons = {score["reason"] for score in scores}
    reason = _SOME if spread["seeds"] else max(reasons)
    if spread["value"] is not None:
        reason = _OTHER if _OTHER in reasons else 0
    texts = [score["trained_on"] for score in scores if score["trained_on"] is not None]
    return {**spread, "reason": reason, "trained_on": max(texts, default=None), "data": scores[0]["data"]}


def _mean_results(results: Sequence[Row], expected: int) -> Row:
    """The result of a task over all seeds."""
    done = [one["value"] if one["status"] == "done" else None for one in results]
    spread = _compute_spread(done, expected)
    newest = max(results, key=lambda one: one["written"] or "")
    # Seeds that were scored on different data prove no revision.
    data = newest["data"] if len({result["data"] for result in results}) == 1 else ""
    status = "part" if spread["value"] is None else "done"
    return {**newest, **spread, "status": status, "data": data, "key": None, "batch": None}


def _compute_spread(values: Sequence[float | None], expected: int) -> Row:
    return compute_seed_spread([*values, *[None] * (expected - len(values))])


def merge_seed_documents(
    mean: float | None, results: Sequence[Row], seeds: Sequence[int], documents: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """A document like a record's for a task over all seeds, which names the records of the seeds.

    Args:
        mean: The score over all seeds; None where some have none.
        results: The result of each seed that has one.
        seeds: The seeds of these.
        documents: The records of these.
    """
    # These are of one run; nothing was run for the mean over seeds.
    apart = {"key", "digest", "examples", "run"}
    document = {name: value for name, value in documents[0].items() if name not in apart}
    document["lineage"] = _merge_lineages([one["lineage"] for one in documents])
    seed_fields = {"identity": {"artifact"}, "model": {"artifact", "weights"}, "lineage": {"seed"}}
    for part, names in seed_fields.items():
        document[part] = {name: value for name, value in document[part].items() if name not in names}
    seed_results = [
        {"seed": seed, "result": r["id"], "key": r["key"], "status": r["status"], "main_score": r["value"]}
        for seed, r in zip(seeds, results, strict=True)
    ]
    return document | {
        "training": {}, "main_score": mean,
        "scores": {} if mean is None else _mean_of([one["scores"] for one in documents]),
        "seeds": seed_results,
        "error": None,
    }  # fmt: skip


def _mean_of(values: Sequence[Any]) -> Any:
    """The means of numbers in documents of one form; None where one of them has something else."""
    if all(isinstance(value, Mapping) for value in values):
        shared = [name for name in values[0] if all(name in value for value in values)]
        return {name: _mean_of([value[name] for value in values]) for name in shared}
    return fmean(values) if all(map(is_number, values)) else None
