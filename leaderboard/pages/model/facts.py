"""A model's facts: what its makers say of it, what it was made of, and what was made of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from leaderboard.pages.task.names import task_path
from leaderboard.queries import Entry, Queries
from leaderboard.words import parameters_text

Fact: TypeAlias = tuple[str, str, str, str]
"""Name, text, link and remark, as `ui.facts` takes them."""

UNSAID = "not said"


@dataclass(frozen=True, kw_only=True)
class Kin:
    """A model of the same line; `href` is empty where the site knows nothing else of it."""

    name: str
    href: str = ""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of a model beside its scores.

    Attributes:
        shown: For the page.
        values: The same as plain values.
        up: What it was made of, the nearest first.
        down: What was made of it.
        trained_on: The training data that its makers declare, None where they say nothing.
    """

    shown: Sequence[Fact]
    values: Mapping[str, Any]
    up: Sequence[Kin] = ()
    down: Sequence[Kin] = ()
    trained_on: Sequence[Kin] | None = None
    languages: Sequence[str] = field(default=())


def facts_of(queries: Queries, model: str, entries: Sequence[Entry], chosen: Entry | None) -> Facts:
    """The facts of a model.

    What is not said of the chosen entry is taken from the model's other ones, the best known first.
    """
    ordered = [chosen, *(entry for entry in entries if entry is not chosen)] if chosen else []
    said = [{**queries.facts(entry), **_indexed(entry)} for entry in ordered if entry is not None]
    values = {name: _first(said, name) for name in NAMES}
    up = [_kin(queries, name) for name in line(queries, model, values["adapted_from"])]
    values["adapted_from"] = up[0].name if up else None
    return Facts(
        shown=[*_shown(queries, values, up), *_links(values)],
        values=values,
        up=up,
        down=[Kin(name=name, href=f"/models/{slug}") for name, slug in children(queries, model)],
        trained_on=_training(queries, values["training_datasets"]),
        languages=values["languages"] or (),
    )


NAMES = (
    "parameters", "dimension", "max_tokens", "tokens_unlimited", "released", "license", "open_weights",
    "adapted_from", "superseded_by", "languages", "framework", "modalities", "similarity_fn_name",
    "use_instructions", "training_datasets", "public_training_data", "training_data_link",
    "public_training_code", "training_code_link", "reference",
)  # fmt: skip
"""What is asked of entries, by the names the twins carry."""


def line(queries: Queries, model: str, parent: str | None) -> list[str]:
    """What a model was made of, and what that was made of, as far as it is known."""
    made_of = {entry.model: entry.adapted_from for entry in queries.entries.values() if entry.adapted_from}
    found: list[str] = []
    while parent and parent not in (model, *found):
        found.append(parent)
        parent = made_of.get(parent)
    return found


def children(queries: Queries, model: str) -> list[tuple[str, str]]:
    """Name and slug of every model that was made of this one."""
    of = {(e.model, e.model_slug) for e in queries.entries.values() if e.adapted_from == model}
    return sorted(pair for pair in of if pair[0] != model)


def known_models(queries: Queries) -> dict[str, str]:
    """The slug of every model that has scores, by its name."""
    return {entry.model: entry.model_slug for entry in queries.entries.values()}


def _kin(queries: Queries, name: str) -> Kin:
    slug = known_models(queries).get(name)
    return Kin(name=name, href=f"/models/{slug}" if slug else "")


def _indexed(entry: Entry) -> dict[str, Any]:
    """What the index itself has of an entry."""
    names = ("parameters", "dimension", "max_tokens", "released", "open_weights", "adapted_from")
    return {name: getattr(entry, name) for name in names}


def _first(said: Sequence[Mapping[str, Any]], name: str) -> Any:
    return next((found[name] for found in said if found.get(name) is not None), None)


def _shown(queries: Queries, values: Mapping[str, Any], up: Sequence[Kin]) -> Iterator[Fact]:
    yield "Parameters", _text(values["parameters"], parameters_text), "", _exact(values["parameters"])
    yield "Dimension", _text(values["dimension"], "{:,}".format), "", ""
    yield "Input tokens, at most", _tokens(values), "", ""
    yield "Released", _text(values["released"]), "", ""
    yield "Licence", _text(values["license"]), "", ""
    yield "Open weights", _yes(values["open_weights"]), "", ""
    yield "Made of", _text(values["adapted_from"]), up[0].href if up else "", ""
    yield (
        "Languages",
        _text(values["languages"], lambda found: f"{len(found)}"),
        "",
        _few(values["languages"]),
    )
    yield "Framework", _text(values["framework"], ", ".join), "", ""
    yield "Similarity", _text(values["similarity_fn_name"]), "", ""
    yield "Needs instructions", _yes(values["use_instructions"]), "", ""
    yield "Training data declared", _text(values["training_datasets"], _sets), "", ""
    if values["superseded_by"]:
        after = _kin(queries, values["superseded_by"])
        yield "Superseded by", after.name, after.href, ""


def _links(values: Mapping[str, Any]) -> Iterator[Fact]:
    """Links out of the site: only such as are https."""
    labels = {
        "reference": "Home page",
        "training_code_link": "Training code",
        "training_data_link": "Training data",
    }
    for name, label in labels.items():
        text = str(values[name] or "")
        if text.startswith("https://") and not any(sign in text for sign in " \"'<>\\"):
            yield label, text.removeprefix("https://"), text, ""


def _text(value: Any, form: Any = str) -> str:
    return UNSAID if value is None else form(value)


def _exact(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _yes(value: bool | None) -> str:
    return UNSAID if value is None else "yes" if value else "no"


def _tokens(values: Mapping[str, Any]) -> str:
    if values["tokens_unlimited"]:
        return "no limit"
    return _text(values["max_tokens"], "{:,}".format)


def _sets(found: Sequence[str]) -> str:
    return {0: "none", 1: "1 data set"}.get(len(found), f"{len(found)} data sets")


def _few(names: Sequence[str] | None) -> str:
    return ", ".join(names) if names and len(names) <= 6 else ""


def _training(queries: Queries, names: Sequence[str] | None) -> list[Kin] | None:
    if names is None:
        return None
    tasks = queries.tasks
    return [Kin(name=n, href=task_path(n) if n in tasks else "") for n in sorted(names)]
