"""Recipes of the catalog: what each does, in every setting, and the models that it made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from math import prod
from typing import Any

from pydantic import Field

from harness import catalog
from harness.data.training import TrainingData
from harness.recipe import RecipeEntry
from leaderboard.data.papers import SCORES, Paper, key_of, title
from leaderboard.data.queries import Entry, Queries
from leaderboard.data.scores import SuiteMeans, SuiteScores, UntouchedMeans
from leaderboard.data.suites import views
from leaderboard.pages._suite_table import kinds_of, made_of, mean_cell, mean_of, untouched_note
from leaderboard.pages._training import AnyRecipe, is_of_paper, values_table, words
from leaderboard.web.formats import parameters_text
from leaderboard.web.page import Crumb, Page, PageRoute, missing
from leaderboard.web.parameters import State, Text, address
from leaderboard.web.site import Site
from leaderboard.web.tables import Cell, Column, Row, Table

APART = ("name", "source", "view", "grids", "assumed", "variants")
"""Parts of a protocol that have a place of their own on the page."""

GLUE = "GLUE dev"
KINDS = {"model": "one model for all tasks", "task": "a model for each task"}
SETTINGS = {"task": "What all runs have in common", "model": "Every setting, as --set takes it"}


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """A recipe's protocol as plain values, where its object shows one; else all of it is empty.

    Attributes:
        runs: Of all tasks.
        settings: Name and value.
        grids: By task, the values of each setting that is tried.
        assumed: What no source says, in sentences.
    """

    runs: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    grids: Mapping[str, Mapping[str, tuple[Any, ...]]] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()


def protocol_of(entry: RecipeEntry, variant: str, recipe: AnyRecipe) -> Protocol:
    """The protocol behind a recipe in a variant; of one that makes models, its settings."""
    if entry.kind == "model":
        return _model_protocol(entry.settings.get(variant), recipe)
    found = getattr(recipe, "protocol", None)
    if not is_dataclass(found):
        return Protocol()
    grids: Mapping[str, Any] = getattr(found, "grids", {})
    return Protocol(
        runs=getattr(found, "runs", None),
        settings=dict(_flat(found)),
        grids={task: {f.name: getattr(grid, f.name) for f in fields(grid)} for task, grid in grids.items()},
        assumed=tuple(getattr(found, "assumed", ())),
    )


def _model_protocol(settings: Any, recipe: AnyRecipe) -> Protocol:
    """The settings of a recipe that makes models, and what it takes to be so."""
    if not is_dataclass(settings):
        return Protocol()
    assumed = getattr(recipe, "assumed", ())
    own = assumed(settings) if callable(assumed) else assumed
    return Protocol(
        settings={one.name: words(getattr(settings, one.name)) for one in fields(settings)},
        assumed=(*own, *getattr(recipe, "assumed_data", ())),
    )


def _flat(part: Any, above: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for one in fields(part):
        value, name = getattr(part, one.name), f"{above}{one.name.replace('_', ' ')}"
        if not above and one.name in APART:
            continue
        if is_dataclass(value):
            found += _flat(value, "" if name == "training" else f"{name}: ")
        else:
            found.append((name, words(value)))
    return found


def convention_of(recipe: AnyRecipe) -> str:
    """The name of the recipe's convention for a task's number; empty for a recipe that makes models."""
    return str(getattr(recipe, "convention", ""))


def models_of(queries: Queries, name: str) -> list[Entry]:
    """The measured entries that a recipe made, in any of its variants; several seeds are one."""

    def recipes(entry: Entry) -> tuple[str, ...]:
        return (entry.lineage.recipe if entry.lineage else "", (entry.recipe or "").partition(":")[0])

    own = (entry for entry in queries.entries.values() if entry.origin == "measured" and not entry.member)
    return [entry for entry in own if name in recipes(entry)]


def models_table(queries: Queries, recipe: AnyRecipe) -> Table:
    """The models of a recipe in any variant, with the means of the suites that it trains for.

    Of a recipe that makes models these are the boards on which one of them has a score.
    """
    entries = models_of(queries, recipe.name.partition(":")[0])
    ids = {entry.id for entry in entries}
    suites = _suites_of(queries, recipe, ids)
    both = [
        (one, one.untouched(at for at, entry in enumerate(one.entries) if entry.id in ids)) for one in suites
    ]
    rows = sorted((_model_row(entry, both) for entry in entries), key=_by_mean)
    part = ["A mean over some of the tasks is not ranked."] if any(row.kind for row in rows) else []
    return Table(
        name="used",
        caption="Measured with it",
        columns=[
            Column(key="model", label="Model", sticky=True),
            Column(key="recipe", label="Recipe"),
            Column(key="parameters", label="Size", numeric=True),
            *(column for scores, untouched in both for column in _mean_columns(scores, untouched)),
            Column(key="treatment", label="Seeds and start"),
        ],
        rows=rows,
        notes=[
            *part,
            *(f"{s.site_suite.suite.title}: {untouched_note(other)}" for s, other in both if other),
        ],
    )


def _suites_of(queries: Queries, recipe: AnyRecipe, ids: set[int]) -> list[SuiteScores]:
    convention = convention_of(recipe)
    if convention:
        suites = [one for one in queries.suites.values() if convention in one.suite.conventions]
        return [queries.suite_scores(one, convention) for one in suites]
    boards = [one for one in queries.suites.values() if one.main and not one.suite.conventions]
    found = [queries.suite_scores(one, views(one.suite)[0]) for one in boards] if ids else []
    return [one for one in found if ids & {entry.id for entry in one.entries}]


def _mean_columns(scores: SuiteScores, untouched: UntouchedMeans | None) -> list[Column]:
    """The column of a suite's mean, and that of the mean over its untouched tasks."""
    slug, label = scores.site_suite.slug, scores.site_suite.suite.title
    mean = Column(
        key=f"mean-{slug}", label=label, numeric=True, href=f"/suites/{slug}", note="The mean over its tasks."
    )
    if untouched is None:
        return [mean]
    label, note = f"{label}, {untouched.part.count} untouched", untouched_note(untouched)
    return [mean, Column(key=f"untouched-{slug}", label=label, numeric=True, note=note)]


def _model_row(entry: Entry, suites: Sequence[tuple[SuiteScores, UntouchedMeans | None]]) -> Row:
    means = [cell for scores, untouched in suites for cell in _means(entry, scores, untouched)]
    rest = made_of(entry) or entry.treatment.removeprefix(entry.recipe or "").lstrip(", ")
    href = f"/models/{entry.model_slug}"
    return Row(
        key=entry.slug,
        kind="part" if means and all(map(_is_part, means)) else "",
        cells=[
            Cell(text=entry.model, value=entry.model, href=href, kind=kinds_of(entry)),
            Cell(text=entry.recipe or "", value=entry.recipe),
            Cell(text=parameters_text(entry.parameters), value=entry.parameters),
            *means,
            Cell(text=rest or "–", value=rest or None),
        ],
    )


def _by_mean(row: Row) -> tuple[bool, float]:
    """Complete models first, then the best by the first mean."""
    cell = row.cells[3] if len(row.cells) > 4 else row.cells[2]
    return bool(row.kind) or _is_part(cell), -cell.value if isinstance(cell.value, float) else 0.0


def _is_part(cell: Cell) -> bool:
    """Whether a mean is over a part of the tasks, or none."""
    return not {"none", "part"}.isdisjoint(cell.kind.split())


def _means(entry: Entry, scores: SuiteScores, untouched: UntouchedMeans | None) -> list[Cell]:
    """The mean of an entry over a suite, and that over its untouched tasks where there is one."""
    row = next((at for at, one in enumerate(scores.entries) if one.id == entry.id), None)
    if row is None:
        return [Cell(text="–", kind="none")] * (2 if untouched else 1)
    own = _mean(scores, scores, row, scores.averages.get(row))
    return [mean_of(own, scores, row), *([_mean(untouched, scores, row, None)] if untouched else [])]


def _mean(
    of: SuiteMeans | SuiteScores, scores: SuiteScores, row: int, average: Mapping[str, Any] | None
) -> Cell:
    means = of.over_tasks
    cell = mean_cell(means, row, average, scores.entries[row].seeds)
    return (
        replace(cell, text=f"{cell.text} ({means.count[row]}/{means.expected})")
        if cell.kind == "part"
        else cell
    )


def recipes_table(queries: Queries) -> Table:
    """Every recipe of the catalog, of both kinds."""
    labels = {
        "name": "Recipe", "summary": "What it does", "source": "Source", "variants": "Variants",
        "measured": "Measured entries", "kind": "Makes",
    }  # fmt: skip
    recipes = catalog.recipes()
    rows = [_recipe_cells(entry, len(models_of(queries, entry.name))) for entry in recipes.values()]
    return values_table("recipes", f"{len(recipes)} recipes", labels, rows, "measured")


def _recipe_cells(entry: RecipeEntry, count: int) -> tuple[Any, ...]:
    variants, href = ", ".join(entry.variants), address(f"/recipes/{entry.name}")
    note = " · ".join(f"{name}: {what}" for name, what in entry.variants.items())
    return (
        Cell(text=entry.name, value=entry.name, href=href),
        entry.summary,
        catalog.open_recipe(entry.name).source,
        Cell(text=variants or "–", value=variants or None, note=note),
        Cell(text=str(count) if count else "–", value=count, kind="" if count else "none"),
        Cell(text=KINDS[entry.kind], value=entry.kind),
    )


def _printed(paper: Paper) -> list[tuple[str, str]]:
    """The paper's tables of GLUE scores."""
    return [
        (f"{title(one.id)}: {one.caption}", f"/papers/{paper.slug}#table-{key_of(one.id)}")
        for one in paper.tables.values()
        if any(row.suite == GLUE and row.unit in SCORES for row in one.rows)
    ]


def data_table(recipe: AnyRecipe) -> Table:
    """The data sets of a recipe that makes models, each with its use."""
    labels = {
        "name": "Data set", "use": "Used for", "config": "Configuration", "split": "Split",
        "columns": "Columns", "rows": "Rows", "revision": "Revision",
    }  # fmt: skip
    uses = {"data": "training", "selection": "choosing a checkpoint"}
    rows = [_data_cells(one, use) for name, use in uses.items() for one in getattr(recipe, name, ())]
    return values_table("data", "Data sets", labels, rows, "rows")


def _data_cells(one: TrainingData, use: str) -> tuple[Any, ...]:
    columns, revision = (
        ", ".join([*one.columns, *([one.score] if one.score else [])]),
        one.revision or one.content,
    )
    texts = (one.path, use, one.config, one.split, columns)
    return (
        *(Cell(text=text or "–", value=text or None) for text in texts),
        Cell(text="not known" if one.rows is None else f"{one.rows:,}", value=one.rows),
        Cell(text=revision[:12], value=revision or None, note=revision),
    )


def grids_table(protocol: Protocol) -> Table:
    """What is tried for each task."""
    names = next(iter(protocol.grids.values()), {})
    labels = {"task": "Task", **{name: name.replace("_", " ").capitalize() for name in names}}
    rows = [
        (task, *map(words, grid.values()), prod(len(values) for values in grid.values()))
        for task, grid in protocol.grids.items()
    ]
    caption = "What is tried for each task, all values against all"
    return values_table("grids", caption, {**labels, "runs": "Runs of the grid"}, rows, "runs")


def settings_table(protocol: Protocol, caption: str) -> Table:
    """Every setting; – is nothing, or what the checkpoint's config says."""
    labels = {"setting": "Setting", "value": "Value"}
    return values_table("settings", caption, labels, protocol.settings.items())


class RecipeState(State):
    """What the page of a recipe takes."""

    variant: Text = Field("", description="Another reading of the same source; empty for the recipe's own.")


def view(site: Site, state: RecipeState, recipe: str) -> Page:
    """The page of a recipe."""
    known, variant = catalog.recipes(), state.variant
    if recipe not in known:
        raise missing("recipe", recipe, known, then="The page /recipes lists all.")
    entry = known[recipe]
    if variant and variant not in entry.variants:
        raise missing(f"variant of {recipe}", variant, entry.variants, then="The page shows them all.")
    own = catalog.open_recipe(f"{recipe}:{variant}" if variant else recipe)
    protocol = protocol_of(entry, variant, own)
    paper = next((paper for paper in site.papers.values() if is_of_paper(own, paper)), None)
    tables = [data_table(own), grids_table(protocol), settings_table(protocol, SETTINGS[entry.kind])]
    return Page(
        title=own.name,
        template="recipe.html",
        lead=entry.variants[variant] if variant else entry.summary,
        crumbs=[Crumb(label="Recipes", href="/recipes")],
        tables=[models_table(site.queries, own), *(table for table in tables if table.rows)],
        data={
            "recipe": own.name,
            "kind": entry.kind,
            "summary": entry.summary,
            "source": own.source,
            "convention": convention_of(own) or None,
            "variants": dict(entry.variants),
            "runs": protocol.runs,
            "assumed": list(protocol.assumed),
            "paper": paper.slug if paper else None,
        },
        context={
            "entry": entry, "variant": variant, "recipe": own, "protocol": protocol, "paper": paper,
            "suites": [s for s in site.queries.suites.values() if convention_of(own) in s.suite.conventions],
            "printed": _printed(paper) if paper and entry.kind == "task" else [],
        },
    )  # fmt: skip


def recipes_view(site: Site, state: State) -> Page:
    """Every recipe: what it does, where it is from, and how much was measured with it."""
    lead = "A recipe is how a backbone becomes a model: a paper's way of fine-tuning, in every setting."
    return Page(title="Recipes", template="recipes.html", lead=lead, tables=[recipes_table(site.queries)])


PAGES = (
    PageRoute(
        path="/recipes/{recipe}",
        state=RecipeState,
        view=view,
        summary="A recipe: what it does, in every setting, and the models that it made.",
        all_paths=lambda site: [f"/recipes/{name}" for name in catalog.recipes()],
    ),
    PageRoute(
        path="/recipes",
        state=State,
        view=recipes_view,
        summary="Every recipe: what it does, its source, its variants, and how many entries it made.",
        all_paths=lambda site: ["/recipes"],
    ),
)
