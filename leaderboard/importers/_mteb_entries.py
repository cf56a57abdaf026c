"""The entries of an import: one for each folder of results, with the facts of its model card."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from leaderboard.importers._mteb_cards import FACTS

TRUST = ("commit", "external", "none", "other")
"""Kinds of revisions: a pinned commit, told by the authors, unknown, any other word."""

_TYPES = {
    "memory_usage_mb": pa.float64(),
    **dict.fromkeys(("tokens_unlimited", "open_weights", "public_training_data"), pa.bool_()),
    **dict.fromkeys(("public_training_code", "use_instructions", "is_cross_encoder"), pa.bool_()),
    **dict.fromkeys(("n_parameters", "n_embedding_parameters", "n_active_parameters_override"), pa.int64()),
    **dict.fromkeys(("max_tokens", "embed_dim"), pa.int64()),
    **dict.fromkeys(("training_datasets", "languages", "framework"), pa.list_(pa.string())),
    **dict.fromkeys(("modalities", "model_type"), pa.list_(pa.string())),
}

SCHEMA = pa.schema(
    [
        pa.field("folder", pa.string(), nullable=False),
        pa.field("model", pa.string(), nullable=False),
        pa.field("revision", pa.string(), nullable=False),
        pa.field("experiment", pa.string(), nullable=False),
        pa.field("trust", pa.string(), nullable=False),
        pa.field("files", pa.int32(), nullable=False),
        pa.field("rows", pa.int32(), nullable=False),
        pa.field("digest", pa.string(), nullable=False),
        pa.field("card", pa.bool_(), nullable=False),
        *(pa.field(name, _TYPES.get(name, pa.string())) for name in FACTS),
    ]
)
"""The columns of `entries`."""


class Size(NamedTuple):
    """What lies in a folder: files with scores, their rows, and a hash that changes with any of them."""

    files: int
    rows: int
    digest: str


def table_of(sizes: Mapping[str, Size], cards: Mapping[str, Mapping[str, Any]]) -> Any:
    """The entries in the order of `sizes`, both by folder."""
    names = _names(cards)
    rows = []
    for folder, size in sizes.items():
        model, revision, *_ = (*folder.split("/"), "")
        rows.append(
            {
                "folder": folder,
                "model": names.get(model) or model.replace("__", "/", 1),
                "revision": revision,
                "experiment": folder.split("/")[3] if folder.count("/") == 3 else "",
                "trust": trust_of(revision),
                **size._asdict(),
                "card": folder in cards,
                **cards.get(folder, {}),
            }
        )
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def cards_of(table: Any) -> dict[str, dict[str, Any]]:
    """The facts of the cards of a former import, by folder."""
    rows = table.select(["folder", "card", *FACTS]).to_pylist()
    return {row["folder"]: {name: row[name] for name in FACTS} for row in rows if row["card"]}


def trust_of(revision: str) -> str:
    """How far a revision can be trusted.

    >>> trust_of("no_revision_available"), trust_of("main")
    ('none', 'other')
    """
    if re.fullmatch(r"[0-9a-f]{40}", revision):
        return "commit"
    if revision in ("no_revision_available", "no_revision"):
        return "none"
    return "external" if revision == "external" else "other"


def _names(cards: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The models' names by folder, where a card's name is what the folder stands for."""
    found = {}
    for folder, facts in sorted(cards.items()):
        model, name = folder.partition("/")[0], facts["card_name"]
        if name and name.replace("/", "__").replace(" ", "_") == model:
            found[model] = name
    return found
