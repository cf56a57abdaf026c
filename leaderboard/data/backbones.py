"""The backbones of the papers under all of their names."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from leaderboard.data.suites import slug


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """A backbone that papers print scores of."""

    slug: str
    name: str
    family: str = ""
    size_class: str = ""
    parameters: int | None = None
    hub_ids: tuple[str, ...] = ()
    printed_names: tuple[str, ...] = ()


@cache
def backbones() -> Mapping[str, Backbone]:
    """Every backbone by its slug."""
    path = Path(__file__).parents[2] / "results" / "reported" / "models.csv"
    found: dict[str, dict[str, list[str]]] = {}
    with path.open(newline="") as lines:
        for row in csv.DictReader(lines):
            own = found.setdefault(row["backbone"], {"hub": [], "printed": []})
            if row["hub_id"] and row["hub_id"] not in own["hub"]:
                own["hub"].append(row["hub_id"])
            own["printed"].append(
                f"{row['model']} ({row['size_class']})" if row["size_class"] else row["model"]
            )
    return {
        slug(name.lower()): Backbone(
            slug=slug(name.lower()), name=name, hub_ids=tuple(own["hub"]), printed_names=tuple(own["printed"])
        )
        for name, own in found.items()
    }


@cache
def _by_name() -> Mapping[str, Backbone]:
    return {
        name: one for one in backbones().values() for name in (one.name, *one.hub_ids, *one.printed_names)
    }


def backbone_of(name: str) -> Backbone | None:
    """The backbone that a name on the hub or in a paper stands for."""
    return _by_name().get(name)
