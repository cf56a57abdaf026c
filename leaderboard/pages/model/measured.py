"""How a measured entry was made: recipe, treatment, and where and with what its newest record ran."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from harness.lineage import Lineage
from leaderboard.pages.model.facts import Fact
from leaderboard.pages.recipe.facts import words
from leaderboard.queries import Entry
from leaderboard.state import address
from leaderboard.words import seeds_text

LIBRARIES = ("torch", "transformers", "sentence-transformers", "mteb")


def measured_facts(entry: Entry, record: Mapping[str, Any]) -> list[Fact]:
    """How an entry was measured, by its newest record."""
    recipe, key = entry.recipe or "", (entry.artifact or "")[:12]
    link = address(f"/recipes/{recipe.partition(':')[0]}") if recipe else ""
    made = entry.lineage
    what = "the start of the key of its lineage" if made else "the start of the key of its files"
    return [
        (
            "Recipe",
            (made.text if made else recipe) or "none: a finished model",
            link,
            made.source if made else "",
        ),
        *(_trained_facts(made) if made else []),
        *([("Seeds", seeds_text(entry.seeds), "", "")] if entry.seeds else []),
        ("Treatment", entry.treatment, "", ""),
        *([("Artifact", key, "", what)] if key else []),
        *ran_facts(record.get("provenance") or {}),
    ]


def _trained_facts(made: Lineage) -> Iterator[Fact]:
    """The training of a model."""
    parents = ", ".join(parent.text for parent in made.parents)
    yield "Backbone", parents, "", ", ".join((p.revision or p.artifact)[:12] for p in made.parents)
    if made.changed:
        yield "Settings changed", ", ".join(f"{n}={words(v)}" for n, v in made.changed.items()), "", ""
    data = ", ".join(str(one.get("path") or one.get("content", ""))[:60] for one in made.data)
    yield "Training data", made.own_data or data, "", "the user's own" if made.own_data else ""
    if made.sweep is not None:
        yield "Sweep", f"{made.sweep.setting} among {', '.join(map(words, made.sweep.values))}", "", ""
    for what, tasks in made.choices.items():
        yield "Chosen by scores", f"{what}: {', '.join(tasks)}", "", "scores there err upward"
    if made.assumed:
        yield "Assumed", " ".join(made.assumed), "", ""


def ran_facts(provenance: Mapping[str, Any]) -> Iterator[Fact]:
    """Where and with what a record ran; what it does not say is left out."""
    device, packages = (_mapping(provenance.get(name)) for name in ("device", "packages"))
    versions = [f"{name} {packages[name]}" for name in LIBRARIES if name in packages]
    said = {
        "Device": " ".join(str(device[n]) for n in ("kind", "name") if device.get(n)),
        "Threads": provenance.get("threads"),
        "Dtype as run": provenance.get("dtype_as_run"),
        "Attention": provenance.get("attention"),
        "Harness": _code(provenance),
        "Versions": ", ".join(versions),
        "Seconds": seconds_text(provenance.get("seconds") or {}),
        "Written": provenance.get("written"),
    }
    yield from ((name, str(value), "", "") for name, value in said.items() if value not in (None, ""))


def _mapping(value: Any) -> Mapping[str, Any]:
    """A part of the provenance; nothing where a record has something else there."""
    return value if isinstance(value, Mapping) else {}


def _code(provenance: Mapping[str, Any]) -> str:
    commit = str(provenance.get("commit") or "")[:12]
    changed = " with changes" if provenance.get("dirty") else ""
    parts = [str(provenance.get("harness") or ""), f"commit {commit}{changed}" if commit else ""]
    return " ".join(part for part in parts if part)


def seconds_text(seconds: Any) -> str:
    """What took how long.

    >>> seconds_text({"encode": 61.52, "score": 0.25}), seconds_text(2)
    ('encode 61.5, score 0.25', '2')
    """
    if not isinstance(seconds, Mapping):
        return f"{seconds:.3g}" if isinstance(seconds, int | float) else ""
    return ", ".join(f"{n} {v:.3g}" for n, v in seconds.items() if isinstance(v, int | float))
