"""Imported results as entries: one for each model, its revisions joined as mteb joins them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from harness.core.types import Offer
from harness.plan import catalog
from harness.results.revisions import read_revisions, resolve_data_revision
from harness.storage.imported import Imported
from leaderboard.data.entries import TRUST, NewEntry
from leaderboard.data.suites import REASONS, Scopes, read_table_file
from leaderboard.data.tables import Row, Tables, build_entry_row, compute_permanent_id

MAIN_REVISIONS = Path(__file__).with_name("main_revisions.csv")
"""The main revision and size of each model by mteb's own registry (suites/_mteb/make_snapshot.py)."""

TRAINING_TASKS = Path(__file__).with_name("training_tasks.json")
"""The tasks that models were trained on, by mteb's own registry (suites/_mteb/make_snapshot.py)."""


Card = Mapping[str, Any]
"""An entry of an import, or of mteb's registry: `model`, and what its card says."""


@cache
def read_main_revisions() -> Mapping[str, str]:
    """The main revision of each model."""
    return {row["model"]: row["revision"] for row in read_table_file(MAIN_REVISIONS)}


def read_registry_sizes() -> Mapping[str, int]:
    """The number of parameters of each model."""
    rows = read_table_file(MAIN_REVISIONS)
    return {row["model"]: int(row["parameters"]) for row in rows if row["parameters"]}


@cache
def read_registry_cards() -> Mapping[str, Card]:
    """What mteb's registry says of the training data of each model, as a card, by the model's name."""
    rows = json.loads(TRAINING_TASKS.read_text(encoding="utf-8"))
    pairs = ((model, tasks) for models, tasks in rows.items() for model in models.split(" | "))
    return {model: {"model": model, "training_datasets": tasks} for model, tasks in pairs}


def put_import(tables: Tables, source: Imported, scopes: Scopes) -> int:
    """Put an import's entries, results and scores into tables; returns how many entries it has.

    Args:
        tables: Tables in memory, which get the rows.
        source: The import.
        scopes: What suites ask.

    Raises:
        duckdb.Error: Its Parquet files cannot be read.
    """
    # The order matters: entries make the table `owners`, which results and scores join.
    _read_rows(tables, source)
    tables.insert({"entries": _build_entry_rows(tables, source)})
    _put_results(tables)
    _put_scores(tables, scopes)
    return int(tables.fetch_rows("SELECT count(*) AS n FROM owners")[0]["n"])


def _read_rows(tables: Tables, source: Imported) -> None:
    """The import's scores, of rows that stand twice the last, and its files: one for each entry and task."""
    tables.connection.execute(
        """CREATE TEMP TABLE raw AS SELECT entry, task, split, subset, data_revision, mteb_version,
             CASE WHEN coalesce(flag, '') = '' THEN main_score END AS score,
             flag IS NOT DISTINCT FROM 'no-score' AS empty, file_row_number AS line
           FROM read_parquet(?, file_row_number = true)""",
        [str(source.locate_table("scores"))],
    )
    tables.connection.execute(
        """CREATE TEMP TABLE cells AS SELECT raw.* EXCLUDE line FROM raw LEFT JOIN (
             SELECT entry, task, split, subset, max(line) AS last FROM raw GROUP BY ALL HAVING count(*) > 1
           ) twice USING (entry, task, split, subset) WHERE twice.last IS NULL OR line = twice.last"""
    )
    tables.connection.execute(
        # Sums are in a fixed order: else they depend on how DuckDB splits the rows among threads, and the
        # snapshot's id with them. Old files of mteb hold the word None where they know no revision.
        """CREATE TEMP TABLE files AS SELECT entry, task, max(mteb_version) AS version,
             coalesce(max(nullif(data_revision, 'None')), '') AS data,
             CASE WHEN count(score) = count(*) THEN fsum(score ORDER BY split, subset) / count(*)
               END AS value,
             CASE WHEN bool_and(empty) THEN 'empty' ELSE 'done' END AS status
           FROM cells GROUP BY ALL"""
    )


def _build_entry_rows(tables: Tables, source: Imported) -> list[Row]:
    """The rows of an import's entries, and of one more for each model with several revisions.

    The table `owners` says which entry each of them is joined in.
    """
    path = source.locate_table("entries")
    cards = _fill_cards(tables.fetch_rows("SELECT * FROM read_parquet(?)", str(path)))
    file_counts = tables.fetch_rows(
        """SELECT entry, count(*) AS tasks, list(DISTINCT version ORDER BY version)
             FILTER (WHERE version IS NOT NULL AND version != '') AS versions
           FROM files GROUP BY entry"""
    )
    about = {row["entry"]: row for row in file_counts}
    groups: dict[tuple[str, str], list[Row]] = {}
    for number, (card, trained) in enumerate(zip(cards, resolve_training_tasks(cards), strict=True)):
        if number in about:
            facts = {**card, "mteb_versions": about[number]["versions"] or []}
            row = {**build_entry_row(_build_import_entry(source.source, facts, trained)), "number": number}
            row |= {"tasks": about[number]["tasks"]}
            groups.setdefault((card["model"], card["experiment"]), []).append(row)
    rows: list[Row] = []
    owners: list[tuple[Any, ...]] = []
    for members in groups.values():
        # Slugs are addresses: an import that comes before this one has precedence.
        members = [row for row in members if row["slug"] not in tables.slugs]
        tables.slugs |= {row["slug"] for row in members}
        merged_row = _merge_revisions(members) if len(members) > 1 else None
        rows += members if merged_row is None else [merged_row, *members]
        joined, unknown = merged_row and merged_row["id"], ("external", "no_revision_available")
        owners += [
            (row["number"], row["id"], row["slug"], joined, _is_main(row), row["revision"] not in unknown)
            for row in members
        ]
    kinds = {"number": "INTEGER", "id": "BIGINT", "slug": "VARCHAR", "joined": "BIGINT", "main": "BOOLEAN",
             "known": "BOOLEAN"}  # fmt: skip
    tables.create("owners", kinds, owners)
    return rows


def _fill_cards(cards: Sequence[Row]) -> list[Row]:
    """Cards, with some facts of another revision where they state none.

    A size that no revision states is that of mteb's registry.
    """
    facts_by_model: dict[str, Row] = {
        model: {"n_parameters": count, "size_from": "mteb's registry"}
        for model, count in read_registry_sizes().items()
    }
    # The best known revision last.
    for card in sorted(cards, key=lambda card: (_is_main(card), -TRUST.index(card["trust"]))):
        facts_by_model.setdefault(card["model"], {}).update(_list_shared_facts(card))
    filled = []
    for card in cards:
        stated = _list_shared_facts(card)
        others = facts_by_model[card["model"]].items()
        filled.append({**card, **{name: fact for name, fact in others if name not in stated}})
    return filled


def _list_shared_facts(card: Row) -> Row:
    """What a card states of the model that other revisions have, too."""
    shared = ("license", "open_weights", "embed_dim")
    facts = {name: card[name] for name in shared if card.get(name) is not None}
    if card["n_parameters"]:
        source = f"the card of revision {card['revision']}"
        facts |= {"n_parameters": card["n_parameters"], "size_from": source}
    if card.get("max_tokens") or card.get("tokens_unlimited"):
        facts |= {name: card.get(name) for name in ("max_tokens", "tokens_unlimited")}
    return facts


def _merge_revisions(members: Sequence[Row]) -> Row:
    """The entry that stands for several revisions of a model, with the facts of the best known one."""
    first = max(members, key=lambda row: (_is_main(row), -TRUST.index(row["trust"]), row["tasks"]))
    number = compute_permanent_id("joined", first["source"], first["model"], first["treatment"])
    slug = f"{first['model_slug']}-{number:013x}"
    group = f"revisions {slug}"
    for row in members:
        row |= {"group": group, "member": True}
    revisions_of = [row["revision"] for row in members]
    return {**first, "id": compute_permanent_id(slug), "slug": slug, "group": group, "member": False,
            "number": None, "revisions": json.dumps(revisions_of)}  # fmt: skip


def _is_main(row: Row) -> bool:
    return bool(read_main_revisions().get(row["model"]) == row["revision"])


def _put_results(tables: Tables) -> None:
    """One result for each file; of a model's revisions that of the main one, else of the newest mteb."""
    task_facts = {one.name: (one.name, one.facts["type"], one.facts["metric"]) for one in _list_suite_offers()
             if one.kind == "task"}  # fmt: skip
    kinds = dict.fromkeys(("task", "type", "metric"), "VARCHAR")
    tables.create("kinds", kinds, list(task_facts.values()))
    parsed: dict[str, Version] = {}
    for row in tables.fetch_rows("SELECT DISTINCT version FROM files"):
        with suppress(InvalidVersion):
            parsed[str(row["version"])] = Version(str(row["version"]))
    ordered = sorted(set(parsed.values()))
    places = [(text, ordered.index(version)) for text, version in parsed.items()]
    tables.create("versions", {"version": "VARCHAR", "place": "INTEGER"}, places)
    tables.connection.execute(
        # The id is compute_permanent_id(slug, task), written in SQL: both must give the same number.
        """INSERT INTO results BY NAME
           SELECT '' AS unit, o.id AS entry, o.id AS source, f.task, coalesce(k.type, '') AS type,
             coalesce(k.metric, '') AS metric, f.status, f.value, f.data,
             ('0x' || left(sha256(o.slug || chr(0) || f.task), 13))::BIGINT AS id
           FROM files f JOIN owners o ON o.number = f.entry LEFT JOIN kinds k USING (task)"""
    )
    tables.connection.execute(
        # As mteb joins revisions: the main one first, then those with a version of mteb, then known ones;
        # of these the newest version.
        """CREATE TEMP TABLE chosen AS SELECT o.id, o.joined, f.task
           FROM files f JOIN owners o ON o.number = f.entry LEFT JOIN versions v USING (version)
           WHERE o.joined IS NOT NULL QUALIFY 1 = row_number() OVER (
             PARTITION BY o.joined, f.task
             ORDER BY (o.main, v.place IS NOT NULL, o.known) DESC, v.place DESC NULLS LAST, f.entry)"""
    )
    tables.connection.execute(
        """INSERT INTO results SELECT r.* REPLACE (c.joined AS entry)
           FROM results r JOIN chosen c ON c.id = r.entry AND c.task = r.task"""
    )
    tables.connection.execute(
        """UPDATE entries SET tasks = c.n FROM (SELECT joined, count(*) AS n FROM chosen GROUP BY joined) c
           WHERE entries.id = c.joined"""
    )


def _list_suite_offers() -> list[Offer]:
    return [offer for suite in catalog.load_suite_entries().values() for offer in suite.offers()]


def _put_scores(tables: Tables, scopes: Scopes) -> None:
    """A score for each entry and scope that asks one of its tasks."""
    every = [pair for some in scopes.values() for pair in some.items()]
    tables.create(
        "scopes",
        {"scope": "INTEGER", "task": "VARCHAR", "data": "VARCHAR", "size": "INTEGER", "trained": "BOOLEAN"},
        [(number, s.task, resolve_data_revision(s.task, s.data), len(s.splits) * len(s.subsets), bool(s.view))
         for number, s in every],
    )  # fmt: skip
    tables.create(
        "parts", {"scope": "INTEGER", "task": "VARCHAR", "split": "VARCHAR", "subset": "VARCHAR"},
        [(number, s.task, *part) for number, s in every for part in product(s.splits, s.subsets)],
    )  # fmt: skip
    same = [(task, data, first) for (task, data), first in read_revisions().items()]
    tables.create("same", dict.fromkeys(("task", "data", "first"), "VARCHAR"), same)
    part, bad, other = (REASONS.index(reason) for reason in ("part", "bad", "other"))
    tables.connection.execute(
        # Files of mteb know nothing of the conventions of fine-tuning, so scopes of trained tasks get no
        # value.
        f"""WITH sums AS (
             SELECT p.scope, c.entry, fsum(score ORDER BY split, subset) AS total,
               count(*) FILTER (NOT empty) AS n,
               count(*) FILTER (WHERE score BETWEEN -1 AND 1) AS good
             FROM cells c JOIN parts p USING (task, split, subset) GROUP BY ALL)
           INSERT INTO scores BY NAME
           SELECT '' AS unit, s.scope, r.entry, r.source, r.id AS result, r.data,
             CASE WHEN NOT s.trained AND good = s.size THEN total / s.size END AS value,
             CASE WHEN s.trained OR coalesce(n, 0) < s.size THEN {part} WHEN good < s.size THEN {bad}
               WHEN s.data = '' OR s.data = coalesce(same.first, r.data) THEN 0 ELSE {other} END AS reason
           FROM results r JOIN owners o ON o.id = r.source JOIN scopes s USING (task)
             LEFT JOIN sums ON sums.scope = s.scope AND sums.entry = o.number
             LEFT JOIN same ON same.task = r.task AND same.data = r.data"""
    )


_OUTPUTS = {"late-interaction": "multivector", "cross-encoder": "cross-encoder", "sparse": "sparse"}
"""What models of mteb's kinds give; of any other kind a vector."""


def _build_import_entry(source: str, facts: Mapping[str, Any], trained: Sequence[str] | None) -> NewEntry:
    plain = "cross-encoder" if facts.get("is_cross_encoder") else "vector"
    tokens = facts.get("max_tokens") or 0
    return NewEntry(
        model=facts["model"], origin="imported", source=source, trust=facts["trust"],
        treatment=f"experiment {facts['experiment']}" if facts["experiment"] else "",
        revision=facts["revision"],
        output=next((_OUTPUTS[kind] for kind in facts.get("model_type") or () if kind in _OUTPUTS), plain),
        parameters=facts.get("n_parameters"), dimension=facts.get("embed_dim"),
        # Some cards state a huge number where they mean no limit; the column has 32 bits.
        max_tokens=int(tokens) if 0 < tokens < 2**31 else None,
        tokens_unlimited=bool(facts.get("tokens_unlimited") or tokens >= 2**31),
        released=facts.get("release_date"), open_weights=facts.get("open_weights"),
        adapted_from=facts.get("adapted_from"), trained_on=trained,
        facts={name: value for name, value in facts.items() if value is not None},
    )  # fmt: skip


def resolve_training_tasks(
    entries: Sequence[Card], similar: Mapping[str, frozenset[str]] | None = None
) -> list[list[str] | None]:
    """What each entry of an import was trained on, sorted; None where that is unknown.

    As in mteb: what its card or mteb's registry declares, and the same of all that it was adapted from, with
    every task that is similar to one of these. A card that declares nothing is not followed; where the
    registry declares nothing either, it is unknown.
    """
    groups, registry = map_similar_tasks() if similar is None else similar, read_registry_cards()
    cards: defaultdict[str, list[Card]] = defaultdict(list)
    for card in [*entries, *registry.values()]:
        if card.get("training_datasets") is not None:
            cards[card["model"]].append(card)
    tasks: list[list[str] | None] = []
    for entry in entries:
        stated = [c for c in cards[entry["model"]] if c is entry or c is registry.get(entry["model"])]
        above = _iter_parent_cards(stated, cards) if stated else ()
        declared = {name for card in above for name in card["training_datasets"]}
        tasks.append(sorted(declared.union(*(groups.get(name, ()) for name in declared))) if stated else None)
    return tasks


def map_similar_tasks() -> dict[str, frozenset[str]]:
    """The names that are similar to a name, by the suites' tasks."""
    similar_names: defaultdict[str, set[str]] = defaultdict(set)
    for offer in _list_suite_offers():
        for other in offer.facts.get("similar", ()):
            similar_names[offer.name].add(other)
            similar_names[other].add(offer.name)
    return {name: frozenset(others) for name, others in similar_names.items()}


def _iter_parent_cards(own: Sequence[Card], cards: Mapping[str, Sequence[Card]]) -> Iterator[Card]:
    """A model's own cards and those of what it was adapted from that declare training data, each once."""
    # Cards may name each other as parents: `seen` ends the circle.
    seen, waiting = {own[0]["model"]}, [*own]
    while waiting:
        card = waiting.pop()
        yield card
        parent = card.get("adapted_from")
        if parent and parent not in seen:
            seen.add(parent)
            waiting += cards.get(parent, ())
