"""Recipes of the catalog: what each does, in every setting, and the models that it made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from math import prod
from typing import Any, Literal

from pydantic import Field

from harness.core.groups import group_by
from harness.core.sources import Source, SourcedSetting, describe_ours
from harness.jobs.recipe import RecipeEntry, list_recipe_settings
from harness.plan import catalog
from harness.results.reported import SCORES, Paper
from leaderboard.data.backbones import list_recipe_suites
from leaderboard.data.paper_lines import format_anchor, format_table_title
from leaderboard.data.queries import Entry, Queries
from leaderboard.views.cells import build_size_cell
from leaderboard.views.model_scores import SUITE_FIELDS, Standing, build_standings_table, iter_standings
from leaderboard.views.sorting import Field as TableField
from leaderboard.views.suite_table import build_model_cell, mean_cell
from leaderboard.views.training import AnyRecipe, is_of_paper
from leaderboard.web.page import Moved, Page, check_name
from leaderboard.web.page_state import State, Text, build_address, build_paging
from leaderboard.web.routes import serve_page
from leaderboard.web.site import Site
from leaderboard.web.tables import EMPTY, Cell, Table, describe_value, link, values_table

GLUE = "GLUE dev"
KINDS = {"model": "one model for all tasks", "task": "a model for each task"}
SETTINGS = {"task": "What all runs have in common", "model": "Every setting, as --set takes it"}


@dataclass(frozen=True, kw_only=True)
class _ProtocolValues:
    """A recipe's protocol as plain values: runs of all tasks, settings, grids by task, assumptions."""

    runs: int | None = None
    settings: Sequence[tuple[Cell, ...]] = ()
    grids: Mapping[str, Mapping[str, tuple[Any, ...]]] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()


def _extract_protocol(entry: RecipeEntry, variant: str, recipe: AnyRecipe) -> _ProtocolValues:
    """The protocol behind a recipe in a variant; of a recipe that makes models only its settings."""
    protocol = entry.settings.get(variant) if entry.kind == "model" else getattr(recipe, "protocol", None)
    if not is_dataclass(protocol):
        return _ProtocolValues()
    rows = list_recipe_settings(entry, variant, recipe)
    grids: Mapping[str, Any] = getattr(protocol, "grids", {})
    return _ProtocolValues(
        runs=getattr(protocol, "runs", None),
        settings=[_build_setting_cells(row) for row in rows if not row.inert],
        grids={task: {f.name: getattr(grid, f.name) for f in fields(grid)} for task, grid in grids.items()},
        assumed=(*getattr(recipe, "list_assumptions", tuple)(), *describe_ours(rows)),
    )


def _build_setting_cells(row: SourcedSetting) -> tuple[Cell, ...]:
    """A setting with its value, its source, and what other sources say."""
    source = row.source or Source()
    # Data sets have a table of their own.
    several = row.name == "data" and not isinstance(row.value, str)
    value = "the data sets above" if several else describe_value(row.value)
    return (
        Cell(text=row.name, value=row.name, note=row.meaning),
        Cell(text=value, value=value),
        link(source.text, source.address),
        Cell(text=source.note, value=source.note or None),
    )


def _get_convention(recipe: AnyRecipe) -> str:
    """The name of the recipe's convention for a task's number; empty for a recipe that makes models."""
    return str(getattr(recipe, "convention", ""))


def _find_recipe_entries(queries: Queries, name: str) -> list[Entry]:
    """The measured entries that a recipe made, in any of its variants; several seeds are one."""
    entries = (entry for entry in queries.entries.values() if entry.origin == "measured" and not entry.member)
    return [
        e for e in entries
        if name in (e.lineage.recipe if e.lineage else "", (e.recipe or "").partition(":")[0])
    ]  # fmt: skip


def _list_recipe_standings(queries: Queries, recipe: AnyRecipe) -> list[Standing]:
    """The models of a recipe in any variant on the boards, by the recipe's convention: the best first."""
    entries = _find_recipe_entries(queries, recipe.name.partition(":")[0])
    boards, convention = list(queries.suites), _get_convention(recipe)
    rows = [
        one for one in iter_standings(queries, entries, boards=True)
        if one.scores.convention == convention
    ]  # fmt: skip
    return sorted(rows, key=lambda one: (boards.index(one.suite.slug), not one.complete, -one.mean))


def _build_same_tasks_field(rows: Sequence[Standing]) -> TableField[Standing]:
    """The mean over the tasks that all models shown in a suite have, and that chose none of them."""
    suites = group_by(rows, lambda one: one.suite.slug)
    means = {
        slug: some[0].scores.compute_untouched_means([one.row for one in some], shared=True)
        for slug, some in suites.items() if len(some) > 1
    }  # fmt: skip

    def build_mean_cell(one: Standing) -> Cell:
        untouched = means.get(one.suite.slug)
        if untouched is None:
            return EMPTY
        plain, count = mean_cell(untouched.over_tasks, one.row, None, one.entry.seeds), untouched.part.count
        note = f"over {count} tasks, the same for all {len(suites[one.suite.slug])} models"
        return replace(plain, text=f"{plain.text} ({count})", note=note)

    note = "The mean over the tasks that chose none of the models shown here and that all of them have."
    return TableField("same", "over the same untouched tasks", build_mean_cell, numeric=True, note=note)


def _start_cell(one: Standing) -> Cell:
    entry = one.entry
    text = entry.lineage_text or entry.treatment.removeprefix(entry.recipe or "").lstrip(", ")
    return Cell(text=text or "–", value=text or None)


MODEL_FIELDS: Sequence[TableField[Standing]] = [
    TableField("model", "Model", lambda one: build_model_cell(one.entry)),
    TableField("recipe", "Recipe", lambda one: Cell(text=one.entry.recipe or "")),
    TableField("parameters", "Size", lambda one: build_size_cell(one.entry.parameters), numeric=True),
]
START = TableField[Standing]("treatment", "Seeds and start", _start_cell)


def _build_recipe_cells(entry: RecipeEntry, count: int) -> tuple[Any, ...]:
    variants, href = ", ".join(entry.variants), build_address(f"/recipes/{entry.name}")
    note = " · ".join(f"{name}: {what}" for name, what in entry.variants.items())
    return (
        link(entry.name, href),
        entry.summary,
        catalog.open_recipe(entry.name).source,
        Cell(text=variants or "–", value=variants or None, note=note),
        Cell(text=str(count) if count else "–", value=count, kind="" if count else "none"),
        Cell(text=KINDS[entry.kind], value=entry.kind),
    )


def _list_glue_tables(paper: Paper) -> list[tuple[str, str]]:
    """The paper's tables of GLUE scores."""
    page = f"/papers/{paper.slug}#table-"
    return [
        (f"{format_table_title(one.id)}: {one.caption}", f"{page}{format_anchor(one.id)}")
        for one in paper.tables.values()
        if any(row.suite == GLUE and row.unit in SCORES for row in one.rows)
    ]


def _build_data_table(recipe: AnyRecipe) -> Table:
    """The data sets of a recipe that makes models, each with its use."""
    labels = {
        "name": "Data set", "use": "Used for", "config": "Configuration", "split": "Split",
        "columns": "Columns", "rows": "Rows", "revision": "Revision",
    }  # fmt: skip
    rows = []
    for name, use in (("data", "training"), ("selection", "choosing a checkpoint")):
        for dataset in getattr(recipe, name, ()):
            columns = ", ".join([*dataset.columns, *([dataset.score] if dataset.score else [])])
            texts = (dataset.path, use, dataset.config, dataset.split, columns)
            count = "not known" if dataset.rows is None else f"{dataset.rows:,}"
            revision = dataset.revision or dataset.content
            rows.append(
                (
                    *(Cell(text=t or "–", value=t or None) for t in texts),
                    Cell(text=count, value=dataset.rows),
                    Cell(text=revision[:12], value=revision or None, note=revision),
                )
            )
    return values_table("data", "Data sets", labels, rows)


def _build_grids_table(protocol: _ProtocolValues) -> Table:
    """What is tried for each task."""
    names = next(iter(protocol.grids.values()), {})
    labels = {"task": "Task", **{name: name.replace("_", " ").capitalize() for name in names}}
    rows = [
        (task, *map(describe_value, grid.values()), prod(len(values) for values in grid.values()))
        for task, grid in protocol.grids.items()
    ]
    caption = "What is tried for each task, all values against all"
    return values_table("grids", caption, {**labels, "runs": "Runs of the grid"}, rows)


class _RecipeState(State):
    """What the page of a recipe takes."""

    variant: Text = Field("", description="Another reading of the same source; empty for the recipe's own.")
    rows: Literal["25", "50", "100", "250", "all"] = Field("100", description="Models on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of models.")


@serve_page(
    "/recipes/{recipe}",
    "A recipe: what it does, in every setting, and the models that it made.",
    paths=lambda site: [f"/recipes/{name}" for name in catalog.load_recipe_entries()],
)
def _show_recipe(site: Site, state: _RecipeState, recipe: str) -> Page:
    recipes, variant = catalog.load_recipe_entries(), state.variant
    if recipe.partition(":")[0] in recipes and ":" in recipe:
        raise Moved(recipe=recipe.partition(":")[0])
    check_name("recipe", recipe, recipes, then="The page /recipes lists all.")
    entry = recipes[recipe]
    check_name(f"variant of {recipe}", variant, entry.variants, then=f"The page /recipes/{recipe} lists all.")
    definition = catalog.open_recipe(f"{recipe}:{variant}" if variant else recipe)
    protocol = _extract_protocol(entry, variant, definition)
    paper = next((paper for paper in site.papers.values() if is_of_paper(definition, paper)), None)
    labels = {"setting": "Setting", "value": "Value", "source": "Source", "other": "Other sources, or why"}
    settings = values_table("settings", SETTINGS[entry.kind], labels, protocol.settings)
    standings = _list_recipe_standings(site.queries, definition)
    where = build_paging(len(standings), state, build_address(f"/recipes/{recipe}"))
    (*means, count) = SUITE_FIELDS
    columns = [*MODEL_FIELDS, *means, _build_same_tasks_field(standings), count, START]
    models = build_standings_table("used", "Measured with it, × 100", where.cut(standings), columns)
    tables = [_build_data_table(definition), _build_grids_table(protocol), settings]
    return Page(
        title=definition.name, lead=entry.variants[variant] if variant else entry.summary,
        crumbs=[("Recipes", "/recipes")], tables=[models, *(table for table in tables if table.rows)],
        data={
            "recipe": definition.name, "kind": entry.kind, "summary": entry.summary,
            "source": definition.source, "convention": _get_convention(definition) or None,
            "variants": dict(entry.variants), "runs": protocol.runs, "assumed": list(protocol.assumed),
            "paper": paper.slug if paper else None,
        },
        context={
            "entry": entry, "variant": variant, "recipe": definition, "protocol": protocol, "paper": paper,
            "paging": where,
            "measured_on": list_recipe_suites(recipe) or ["glue" if entry.kind == "task" else "mteb"],
            "suites": [
                s for s in site.queries.suites.values() if _get_convention(definition) in s.suite.conventions
            ],
            "printed": _list_glue_tables(paper) if paper and entry.kind == "task" else [],
        },
    )  # fmt: skip


@serve_page("/recipes", "Every recipe: what it does, its source, its variants, and how many entries it made.")
def _show_recipes(site: Site, state: State) -> Page:
    lead = "A recipe is how a backbone becomes a model: a paper's way of fine-tuning, in every setting."
    labels = {
        "name": "Recipe", "summary": "What it does", "source": "Source", "variants": "Variants",
        "measured": "Measured entries", "kind": "Makes",
    }  # fmt: skip
    recipes = catalog.load_recipe_entries().values()
    rows = [_build_recipe_cells(one, len(_find_recipe_entries(site.queries, one.name))) for one in recipes]
    table = values_table("recipes", f"{len(recipes)} recipes", labels, rows)
    return Page(title="Recipes", lead=lead, tables=[table])
