"""Recipes of the catalog: what each does, in every setting, and the models that it made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from math import prod
from typing import Any

from pydantic import Field

from harness import catalog
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
class _ProtocolValues:
    """A recipe's protocol as plain values: runs of all tasks, settings, grids by task, assumptions."""

    runs: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    grids: Mapping[str, Mapping[str, tuple[Any, ...]]] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()


def protocol_of(entry: RecipeEntry, variant: str, recipe: AnyRecipe) -> _ProtocolValues:
    """The protocol behind a recipe in a variant; of one that makes models, its settings."""
    found = entry.settings.get(variant) if entry.kind == "model" else getattr(recipe, "protocol", None)
    if not is_dataclass(found):
        return _ProtocolValues()
    if entry.kind == "model":
        assumed = getattr(recipe, "assumed", ())
        own = assumed(found) if callable(assumed) else assumed
        settings = {one.name: words(getattr(found, one.name)) for one in fields(found)}
        return _ProtocolValues(settings=settings, assumed=(*own, *getattr(recipe, "assumed_data", ())))
    grids: Mapping[str, Any] = getattr(found, "grids", {})
    return _ProtocolValues(
        runs=getattr(found, "runs", None),
        settings=dict(_flat(found)),
        grids={task: {f.name: getattr(grid, f.name) for f in fields(grid)} for task, grid in grids.items()},
        assumed=tuple(getattr(found, "assumed", ())),
    )


def _flat(part: Any, above: str = "") -> Iterator[tuple[str, str]]:
    for one in fields(part):
        value, name = getattr(part, one.name), f"{above}{one.name.replace('_', ' ')}"
        if above or one.name not in APART:
            if is_dataclass(value):
                yield from _flat(value, "" if name == "training" else f"{name}: ")
            else:
                yield name, words(value)


def _convention(recipe: AnyRecipe) -> str:
    """The name of the recipe's convention for a task's number; empty for a recipe that makes models."""
    return str(getattr(recipe, "convention", ""))


def _models(queries: Queries, name: str) -> list[Entry]:
    """The measured entries that a recipe made, in any of its variants; several seeds are one."""

    def recipes(entry: Entry) -> tuple[str, ...]:
        return (entry.lineage.recipe if entry.lineage else "", (entry.recipe or "").partition(":")[0])

    own = (entry for entry in queries.entries.values() if entry.origin == "measured" and not entry.member)
    return [entry for entry in own if name in recipes(entry)]


def _models_table(queries: Queries, recipe: AnyRecipe) -> Table:
    """The models of a recipe in any variant, with the means of the suites that it trains for.

    Of a recipe that makes models these are the boards on which one of them has a score.
    """
    entries = _models(queries, recipe.name.partition(":")[0])
    ids = {entry.id for entry in entries}
    suites = [
        (one, one.untouched(at for at, entry in enumerate(one.entries) if entry.id in ids))
        for one in _suites_of(queries, recipe, ids)
    ]
    rows = sorted((_model_row(entry, suites) for entry in entries), key=_by_mean)
    part = ["A mean over some of the tasks is not ranked."] if any(row.kind for row in rows) else []
    left_out = [f"{s.site_suite.suite.title}: {untouched_note(other)}" for s, other in suites if other]
    columns = [
        Column(key="model", label="Model", sticky=True),
        Column(key="recipe", label="Recipe"),
        Column(key="parameters", label="Size", numeric=True),
        *(column for scores, untouched in suites for column in _mean_columns(scores, untouched)),
        Column(key="treatment", label="Seeds and start"),
    ]
    return Table(
        name="used", caption="Measured with it", columns=columns, rows=rows, notes=[*part, *left_out]
    )


def _suites_of(queries: Queries, recipe: AnyRecipe, ids: set[int]) -> list[SuiteScores]:
    convention, suites = _convention(recipe), queries.suites.values()
    if convention:
        return [queries.suite_scores(s, convention) for s in suites if convention in s.suite.conventions]
    boards = [one for one in suites if one.main and not one.suite.conventions]
    found = [queries.suite_scores(one, views(one.suite)[0]) for one in boards] if ids else []
    return [one for one in found if ids & {entry.id for entry in one.entries}]


def _mean_columns(scores: SuiteScores, untouched: UntouchedMeans | None) -> list[Column]:
    """The column of a suite's mean, and that of the mean over its untouched tasks."""
    slug, label = scores.site_suite.slug, scores.site_suite.suite.title
    note, href = "The mean over its tasks.", f"/suites/{slug}"
    mean = Column(key=f"mean-{slug}", label=label, numeric=True, href=href, note=note)
    if untouched is None:
        return [mean]
    label, note = f"{label}, {untouched.part.count} untouched", untouched_note(untouched)
    return [mean, Column(key=f"untouched-{slug}", label=label, numeric=True, note=note)]


def _model_row(entry: Entry, suites: Sequence[tuple[SuiteScores, UntouchedMeans | None]]) -> Row:
    means = [cell for scores, untouched in suites for cell in _means(entry, scores, untouched)]
    rest = made_of(entry) or entry.treatment.removeprefix(entry.recipe or "").lstrip(", ")
    href = f"/models/{entry.model_slug}"
    cells = [
        Cell(text=entry.model, value=entry.model, href=href, kind=kinds_of(entry)),
        Cell(text=entry.recipe or "", value=entry.recipe),
        Cell(text=parameters_text(entry.parameters), value=entry.parameters),
        *means,
        Cell(text=rest or "–", value=rest or None),
    ]
    return Row(key=entry.slug, kind="part" if means and all(map(_is_part, means)) else "", cells=cells)


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
    own = _mean(scores, row, entry, scores.averages.get(row))
    return [mean_of(own, scores, row), *([_mean(untouched, row, entry, None)] if untouched else [])]


def _mean(of: SuiteMeans | SuiteScores, row: int, entry: Entry, average: Mapping[str, Any] | None) -> Cell:
    cell = mean_cell(of.over_tasks, row, average, entry.seeds)
    part = f" ({of.over_tasks.count[row]}/{of.over_tasks.expected})" if cell.kind == "part" else ""
    return replace(cell, text=cell.text + part)


def _recipes_table(queries: Queries) -> Table:
    """Every recipe of the catalog, of both kinds."""
    labels = {
        "name": "Recipe", "summary": "What it does", "source": "Source", "variants": "Variants",
        "measured": "Measured entries", "kind": "Makes",
    }  # fmt: skip
    recipes = catalog.recipes()
    rows = [_recipe_cells(entry, len(_models(queries, entry.name))) for entry in recipes.values()]
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


def _paper_tables(paper: Paper) -> list[tuple[str, str]]:
    """The paper's tables of GLUE scores."""
    return [
        (f"{title(one.id)}: {one.caption}", f"/papers/{paper.slug}#table-{key_of(one.id)}")
        for one in paper.tables.values()
        if any(row.suite == GLUE and row.unit in SCORES for row in one.rows)
    ]


def _data_table(recipe: AnyRecipe) -> Table:
    """The data sets of a recipe that makes models, each with its use."""
    labels = {
        "name": "Data set", "use": "Used for", "config": "Configuration", "split": "Split",
        "columns": "Columns", "rows": "Rows", "revision": "Revision",
    }  # fmt: skip
    rows = []
    for name, use in (("data", "training"), ("selection", "choosing a checkpoint")):
        for one in getattr(recipe, name, ()):
            columns = ", ".join([*one.columns, *([one.score] if one.score else [])])
            texts = (one.path, use, one.config, one.split, columns)
            count = Cell(text="not known" if one.rows is None else f"{one.rows:,}", value=one.rows)
            revision = one.revision or one.content
            own = Cell(text=revision[:12], value=revision or None, note=revision)
            rows.append((*(Cell(text=t or "–", value=t or None) for t in texts), count, own))
    return values_table("data", "Data sets", labels, rows, "rows")


def _grids_table(protocol: _ProtocolValues) -> Table:
    """What is tried for each task."""
    names = next(iter(protocol.grids.values()), {})
    labels = {"task": "Task", **{name: name.replace("_", " ").capitalize() for name in names}}
    rows = [
        (task, *map(words, grid.values()), prod(len(values) for values in grid.values()))
        for task, grid in protocol.grids.items()
    ]
    caption = "What is tried for each task, all values against all"
    return values_table("grids", caption, {**labels, "runs": "Runs of the grid"}, rows, "runs")


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
    labels = {"setting": "Setting", "value": "Value"}
    settings = values_table("settings", SETTINGS[entry.kind], labels, protocol.settings.items())
    tables = [_data_table(own), _grids_table(protocol), settings]
    return Page(
        title=own.name,
        template="recipe.html",
        lead=entry.variants[variant] if variant else entry.summary,
        crumbs=[Crumb(label="Recipes", href="/recipes")],
        tables=[_models_table(site.queries, own), *(table for table in tables if table.rows)],
        data={
            "recipe": own.name,
            "kind": entry.kind,
            "summary": entry.summary,
            "source": own.source,
            "convention": _convention(own) or None,
            "variants": dict(entry.variants),
            "runs": protocol.runs,
            "assumed": list(protocol.assumed),
            "paper": paper.slug if paper else None,
        },
        context={
            "entry": entry, "variant": variant, "recipe": own, "protocol": protocol, "paper": paper,
            "suites": [s for s in site.queries.suites.values() if _convention(own) in s.suite.conventions],
            "printed": _paper_tables(paper) if paper and entry.kind == "task" else [],
        },
    )  # fmt: skip


def recipes_view(site: Site, state: State) -> Page:
    """Every recipe: what it does, where it is from, and how much was measured with it."""
    lead = "A recipe is how a backbone becomes a model: a paper's way of fine-tuning, in every setting."
    return Page(title="Recipes", template="recipes.html", lead=lead, tables=[_recipes_table(site.queries)])


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
