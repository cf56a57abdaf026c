"""The pages of recipes: what each does, in every setting, and who was fine-tuned by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.data.training import TrainingData
from harness.recipe import RecipeEntry
from leaderboard.pages.recipe.facts import (
    AnyRecipe,
    Protocol,
    convention_of,
    data_of,
    opened,
    paper_of,
    protocol_of,
    runs,
    words,
)
from leaderboard.pages.recipe.tables import users_table
from leaderboard.reported.printed import SCORES, Paper, key_of, title
from leaderboard.state import address
from leaderboard.tables import Cell, Column, Row, Table

if TYPE_CHECKING:
    from leaderboard.site import Site

GLUE = "GLUE dev"


@dataclass(frozen=True, kw_only=True)
class RecipePage:
    """What the template takes.

    Attributes:
        facts: Name, value, URL, and what must be known of it.
        tabs: The recipe and its variants: label, URL, current.
        assumed: What no source says, in sentences.
        printed: The paper's tables of such scores: label, URL.
        tables: Who used it, grids, settings.
        data: For the JSON twin.
    """

    facts: Sequence[tuple[str, str, str, str]]
    tabs: Sequence[tuple[str, str, bool]]
    assumed: Sequence[str]
    printed: Sequence[tuple[str, str]]
    tables: Sequence[Table]
    data: Mapping[str, Any]


def recipe_page(site: Site, entry: RecipeEntry, variant: str) -> RecipePage:
    """The page of a recipe in one of its variants."""
    recipe = opened(entry.name, variant)
    protocol, paper = protocol_of(entry, variant, recipe), paper_of(recipe, site.papers)
    tables = [users_table(site.queries, recipe), *_data(recipe), *_grids(protocol)]
    tables += _settings(protocol, SETTINGS[entry.kind])
    return RecipePage(
        facts=_facts(site, recipe, protocol, paper),
        tabs=_tabs(entry, variant),
        assumed=protocol.assumed,
        printed=_printed(paper) if entry.kind == "task" else [],
        tables=tables,
        data={
            "recipe": recipe.name,
            "kind": entry.kind,
            "summary": entry.summary,
            "source": recipe.source,
            "convention": convention_of(recipe) or None,
            "variants": dict(entry.variants),
            "runs": protocol.runs,
            "assumed": list(protocol.assumed),
            "paper": paper.slug if paper else None,
        },
    )


def _tabs(entry: RecipeEntry, variant: str) -> list[tuple[str, str, bool]]:
    path = address(f"/recipes/{entry.name}")
    own = [(entry.name, path, not variant)]
    others = [(name, address(path, {"variant": name}), name == variant) for name in entry.variants]
    return own + others if others else []


def _facts(
    site: Site, recipe: AnyRecipe, protocol: Protocol, paper: Paper | None
) -> list[tuple[str, str, str, str]]:
    says = href = ""
    for listed in site.queries.suites.values():
        if convention_of(recipe) in listed.suite.conventions:
            says = listed.suite.conventions[convention_of(recipe)].says
            href = address(f"/suites/{listed.slug}", {"view": convention_of(recipe)})
    return [
        ("On the command line", f"--recipe {recipe.name}", "", ""),
        ("Source", recipe.source, f"/papers/{paper.slug}" if paper else "", ""),
        *([("Numbers by", convention_of(recipe), href, says)] if convention_of(recipe) else []),
        *([("Runs on all tasks", str(protocol.runs), "", "")] if protocol.runs else []),
    ]


def _printed(paper: Paper | None) -> list[tuple[str, str]]:
    """The paper's tables of GLUE scores."""
    return [
        (f"{title(one.id)}: {one.caption}", f"/papers/{paper.slug}#table-{key_of(one.id)}")
        for one in (paper.tables.values() if paper else ())
        if any(row.suite == GLUE and row.unit in SCORES for row in one.rows)
        if paper
    ]


SETTINGS = {"task": "What all runs have in common", "model": "Every setting, as --set takes it"}
"""What the table of settings shows, by the kind of recipe."""


def _data(recipe: AnyRecipe) -> list[Table]:
    found = data_of(recipe)
    if not found:
        return []
    return [
        Table(
            name="data",
            caption="Data sets",
            columns=[
                Column(key="name", label="Data set", sticky=True),
                Column(key="use", label="Used for"),
                Column(key="config", label="Configuration"),
                Column(key="split", label="Split"),
                Column(key="columns", label="Columns"),
                Column(key="rows", label="Rows", numeric=True),
                Column(key="revision", label="Revision"),
            ],
            rows=[_data_row(one, use) for one, use in found],
        )
    ]


def _data_row(one: TrainingData, use: str) -> Row:
    revision = one.revision or one.content
    texts = [
        one.path,
        use,
        one.config,
        one.split,
        ", ".join([*one.columns, *([one.score] if one.score else [])]),
    ]
    return Row(
        cells=[
            *(Cell(text=text or "–", value=text or None) for text in texts),
            Cell(text="not known" if one.rows is None else f"{one.rows:,}", value=one.rows),
            Cell(text=revision[:12], value=revision or None, note=revision),
        ]
    )


def _settings(protocol: Protocol, caption: str) -> list[Table]:
    if not protocol.settings:
        return []
    return [
        Table(
            name="settings",
            caption=caption,
            columns=[
                Column(key="setting", label="Setting", sticky=True),
                Column(key="value", label="Value"),
            ],
            rows=[
                Row(cells=[Cell(text=text, value=text) for text in pair])
                for pair in protocol.settings.items()
            ],
            notes=["– is nothing, or what the checkpoint's config says."]
            if "–" in protocol.settings.values()
            else [],
        )
    ]


def _grids(protocol: Protocol) -> list[Table]:
    if not protocol.grids:
        return []
    names = list(next(iter(protocol.grids.values())))
    return [
        Table(
            name="grids",
            caption="What is tried for each task, all values against all",
            columns=[
                Column(key="task", label="Task", sticky=True),
                *(Column(key=name, label=name.replace("_", " ").capitalize()) for name in names),
                Column(key="runs", label="Runs of the grid", numeric=True),
            ],
            rows=[_grid_row(task, grid) for task, grid in protocol.grids.items()],
        )
    ]


def _grid_row(task: str, grid: Mapping[str, tuple[Any, ...]]) -> Row:
    texts = [task, *map(words, grid.values())]
    return Row(cells=[*(Cell(text=t, value=t) for t in texts), Cell(text=str(runs(grid)), value=runs(grid))])
