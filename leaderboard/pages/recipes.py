"""What a recipe of the catalog is: its words, its settings, its grids. Nothing here loads torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from pydantic import Field

from harness import catalog
from harness.data.training import TrainingData
from harness.recipe import ModelRecipe, RecipeEntry, TaskRecipe
from harness.scores import score_text
from leaderboard.data.papers import SCORES, Paper, key_of, title
from leaderboard.data.queries import Entry, Queries
from leaderboard.data.scores import Means, SuiteScores, UntouchedMeans
from leaderboard.data.suites import views
from leaderboard.pages._suite_table import kinds_of, made_of, mean_of, untouched_note
from leaderboard.web.formats import over_seeds, parameters_text
from leaderboard.web.page import Crumb, Page, PageRoute, missing
from leaderboard.web.parameters import State, Text, address
from leaderboard.web.tables import Cell, Column, Row, Table

if TYPE_CHECKING:
    from leaderboard.web.site import Site


AnyRecipe = TaskRecipe | ModelRecipe
"""A recipe of either kind."""

APART = ("name", "source", "view", "grids", "assumed", "variants")
"""Parts of a protocol that have a place of their own on the page."""


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


def opened(name: str, variant: str = "") -> AnyRecipe:
    """A recipe with its own defaults."""
    return catalog.open_recipe(f"{name}:{variant}" if variant else name)


def convention_of(recipe: AnyRecipe) -> str:
    """The name of the recipe's convention for a task's number; empty for a recipe that makes models."""
    return str(getattr(recipe, "convention", ""))


def protocol_of(entry: RecipeEntry, variant: str, recipe: AnyRecipe) -> Protocol:
    """The protocol behind a recipe in a variant; of one that makes models, its settings."""
    found = getattr(recipe, "protocol", None)
    if entry.kind == "model":
        return _of_settings(entry.settings.get(variant), recipe)
    if not is_dataclass(found):
        return Protocol()
    grids: Mapping[str, Any] = getattr(found, "grids", {})
    return Protocol(
        runs=getattr(found, "runs", None),
        settings=dict(_flat(found)),
        grids={task: {f.name: getattr(grid, f.name) for f in fields(grid)} for task, grid in grids.items()},
        assumed=tuple(getattr(found, "assumed", ())),
    )


def _of_settings(settings: Any, recipe: AnyRecipe) -> Protocol:
    """The settings of a recipe that makes models, and what it takes to be so; its object may say that."""
    if not is_dataclass(settings):
        return Protocol()
    assumed = getattr(recipe, "assumed", ())
    return Protocol(
        settings={one.name: words(getattr(settings, one.name)) for one in fields(settings)},
        assumed=(
            *(assumed(settings) if callable(assumed) else assumed),
            *getattr(recipe, "assumed_data", ()),
        ),
    )


def data_of(recipe: AnyRecipe) -> list[tuple[TrainingData, str]]:
    """The data sets of a recipe that makes models, each with its use."""
    trained = [(one, "training") for one in getattr(recipe, "data", ())]
    return [*trained, *((one, "choosing a checkpoint") for one in getattr(recipe, "selection", ()))]


def runs(grid: Mapping[str, tuple[Any, ...]]) -> int:
    """How many runs a grid is: all values against all."""
    return prod(len(values) for values in grid.values())


def words(value: Any) -> str:
    """A setting's value in words.

    >>> words(1e-05), words((0.9, 0.98)), words(None), words(True), words({"RTE": 100})
    ('1e-05', '0.9, 0.98', '–', 'yes', 'RTE 100')
    """
    if value is None or value in ((), {}, ""):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {words(one)}" for key, one in value.items())
    if isinstance(value, tuple | list):
        return ", ".join(words(one) for one in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _flat(part: Any, above: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for one in fields(part):
        value = getattr(part, one.name)
        name = f"{above}{one.name.replace('_', ' ')}"
        if not above and one.name in APART:
            continue
        if is_dataclass(value):
            found += _flat(value, "" if name == "training" else f"{name}: ")
        else:
            found.append((name, words(value)))
    return found


def recipes_of(paper: Paper) -> list[str]:
    """The recipes that are made after a paper: their sources begin with its name."""
    return [name for name in catalog.recipes() if _is_of(opened(name), paper)]


def paper_of(recipe: AnyRecipe, papers: Mapping[str, Paper]) -> Paper | None:
    """The paper that a recipe is made after, where its tables are at hand."""
    return next((paper for paper in papers.values() if _is_of(recipe, paper)), None)


def _is_of(recipe: AnyRecipe, paper: Paper) -> bool:
    return recipe.source.startswith(f"{paper.name},")


def users(queries: Queries, name: str) -> list[Entry]:
    """The measured entries that a recipe made, in any of its variants; several seeds are one."""
    return [
        entry
        for entry in queries.entries.values()
        if entry.origin == "measured" and not entry.member and name in _recipes_of(entry)
    ]


def _recipes_of(entry: Entry) -> tuple[str, ...]:
    """The recipes behind an entry: the one that made its model, and the one that trained for its tasks."""
    made = entry.lineage.recipe if entry.lineage else ""
    return (made, (entry.recipe or "").partition(":")[0])


def users_table(queries: Queries, recipe: AnyRecipe) -> Table:
    """Who was trained by a recipe in any variant, with the means of the suites that it trains for.

    Of a recipe that makes models these are the main suites in which one of them has a score.
    """
    entries = users(queries, recipe.name.partition(":")[0])
    grids = _grids(queries, recipe, entries)
    both = [(grid, _untouched(grid, entries)) for grid in grids]
    rows = sorted((_user(entry, both) for entry in entries), key=_by_mean)
    part = ["A mean over some of the tasks is not ranked."] if any(row.kind for row in rows) else []
    return Table(
        name="used",
        caption="Measured with it",
        columns=[
            Column(key="model", label="Model", sticky=True),
            Column(key="recipe", label="Recipe"),
            Column(key="parameters", label="Size", numeric=True),
            *(column for grid, untouched in both for column in _mean_columns(grid, untouched)),
            Column(key="treatment", label="Seeds and start"),
        ],
        rows=rows,
        notes=[
            *part,
            *(f"{g.site_suite.suite.title}: {untouched_note(other)}" for g, other in both if other),
        ],
    )


def _mean_columns(grid: SuiteScores, untouched: UntouchedMeans | None) -> list[Column]:
    """The column of a suite's mean, and that of the mean over its untouched tasks."""
    slug, title = grid.site_suite.slug, grid.site_suite.suite.title
    href, note = f"/suites/{slug}", "The mean over its tasks."
    found = [Column(key=f"mean-{slug}", label=title, numeric=True, href=href, note=note)]
    if untouched is not None:
        label, note = f"{title}, {untouched.part.count} untouched", untouched_note(untouched)
        found.append(Column(key=f"untouched-{slug}", label=label, numeric=True, note=note))
    return found


def _untouched(grid: SuiteScores, entries: Sequence[Entry]) -> UntouchedMeans | None:
    """The means over the columns that chose none of some entries."""
    ids = {entry.id for entry in entries}
    return grid.untouched(row for row, entry in enumerate(grid.entries) if entry.id in ids)


def _grids(queries: Queries, recipe: AnyRecipe, entries: Sequence[Entry]) -> list[SuiteScores]:
    convention = convention_of(recipe)
    if convention:
        listed = queries.suites.values()
        return [
            queries.suite_scores(one, convention) for one in listed if convention in one.suite.conventions
        ]
    ids = {entry.id for entry in entries}
    main = (one for one in queries.suites.values() if one.main and not one.suite.conventions)
    grids = [queries.suite_scores(one, views(one.suite)[0]) for one in main] if ids else []
    return [grid for grid in grids if ids & {entry.id for entry in grid.entries}]


def _by_mean(row: Row) -> tuple[bool, float]:
    cell = row.cells[3] if len(row.cells) > 4 else row.cells[2]
    value = cell.value if isinstance(cell.value, float) else 0.0
    return bool(row.kind) or _is_part(cell), -value


def _user(entry: Entry, grids: Sequence[tuple[SuiteScores, UntouchedMeans | None]]) -> Row:
    means = [cell for grid, untouched in grids for cell in _means(entry, grid, untouched)]
    part = bool(means) and all(map(_is_part, means))
    rest = made_of(entry) or entry.treatment.removeprefix(entry.recipe or "").lstrip(", ")
    return Row(
        key=entry.slug,
        kind="part" if part else "",
        cells=[
            Cell(
                text=entry.model,
                value=entry.model,
                href=f"/models/{entry.model_slug}",
                kind=kinds_of(entry),
            ),
            Cell(text=entry.recipe or "", value=entry.recipe),
            Cell(text=parameters_text(entry.parameters), value=entry.parameters),
            *means,
            Cell(text=rest or "–", value=rest or None),
        ],
    )


def _is_part(cell: Cell) -> bool:
    """Whether a mean is over a part of the tasks, or none."""
    return not {"none", "part"}.isdisjoint(cell.kind.split())


def _means(entry: Entry, grid: SuiteScores, untouched: UntouchedMeans | None) -> list[Cell]:
    """The mean of an entry over a suite, and that over its untouched columns where there is one."""
    row = next((at for at, one in enumerate(grid.entries) if one.id == entry.id), None)
    if row is None:
        return [Cell(text="–", kind="none")] * (2 if untouched else 1)
    found = [mean_of(_mean(entry, grid.over_tasks, row, grid.averages.get(row) or {}), grid, row)]
    return [*found, *([_mean(entry, untouched.over_tasks, row, {})] if untouched else [])]


def _mean(entry: Entry, means: Means, row: int, average: Mapping[str, Any]) -> Cell:
    if not means.count[row]:
        return Cell(text="–", kind="none")
    value, there = float(means.values[row]), int(means.count[row])
    if not means.complete[row]:
        note = f"of {there} of {means.expected}"
        text = f"{score_text(value)} ({there}/{means.expected})"
        return over_seeds(
            Cell(text=text, value=value, kind="part", note=note), float(means.deviations[row]), entry.seeds
        )
    interval = average.get("interval")
    half = f" ± {50 * (interval[1] - interval[0]):.2f}" if interval else ""
    cell = Cell(text=f"{score_text(value)}{half}", value=value)
    return over_seeds(cell, float(means.deviations[row]), entry.seeds)


KINDS = {"model": "one model for all tasks", "task": "a model for each task"}
"""The kinds of recipes in words."""


def recipes_table(queries: Queries) -> Table:
    """Every recipe of the catalog, of both kinds."""
    return Table(
        name="recipes",
        caption=f"{len(catalog.recipes())} recipes",
        columns=[
            Column(key="name", label="Recipe", sticky=True),
            Column(key="summary", label="What it does"),
            Column(key="source", label="Source"),
            Column(key="variants", label="Variants"),
            Column(key="measured", label="Measured entries", numeric=True),
            Column(key="kind", label="Makes"),
        ],
        rows=[_recipe_row(queries, entry) for entry in catalog.recipes().values()],
    )


def _recipe_row(queries: Queries, entry: RecipeEntry) -> Row:
    source, count = opened(entry.name).source, len(users(queries, entry.name))
    variants = ", ".join(entry.variants)
    says = " · ".join(f"{name}: {what}" for name, what in entry.variants.items())
    return Row(
        key=entry.name,
        cells=[
            Cell(text=entry.name, value=entry.name, href=address(f"/recipes/{entry.name}")),
            Cell(text=entry.summary, value=entry.summary),
            Cell(text=source, value=source),
            Cell(text=variants or "–", value=variants or None, note=says),
            Cell(text=str(count) if count else "–", value=count, kind="" if count else "none"),
            Cell(text=KINDS[entry.kind], value=entry.kind),
        ],
    )


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
    tables = [users_table(site.queries, recipe), *_data(recipe), *_page_grids(protocol)]
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


def _page_grids(protocol: Protocol) -> list[Table]:
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


class RecipeState(State):
    """What the page of a recipe can be asked."""

    variant: Text = Field("", description="Another reading of the same source; empty for the recipe's own.")


def view(site: Site, state: RecipeState, recipe: str) -> Page:
    """The page of a recipe."""
    known = catalog.recipes()
    if recipe not in known:
        raise missing("recipe", recipe, known, then="The page /recipes lists all.")
    entry = known[recipe]
    if state.variant and state.variant not in entry.variants:
        raise missing(f"variant of {recipe}", state.variant, entry.variants, then="The page shows them all.")
    found = recipe_page(site, entry, state.variant)
    return Page(
        title=f"{recipe}:{state.variant}" if state.variant else recipe,
        template="recipe.html",
        lead=entry.variants[state.variant] if state.variant else entry.summary,
        crumbs=[Crumb(label="Recipes", href="/recipes")],
        tables=found.tables,
        data=found.data,
        context=found,
    )


RECIPE_PAGE = PageRoute(
    path="/recipes/{recipe}",
    state=RecipeState,
    view=view,
    summary="A recipe: what it does, in every setting, and who was fine-tuned by it.",
    all_paths=lambda site: [f"/recipes/{name}" for name in catalog.recipes()],
)


def recipes_view(site: Site, state: State) -> Page:
    """Every recipe: what it does, where it is from, and how much was measured with it."""
    return Page(
        title="Recipes",
        template="recipes.html",
        lead="A recipe is how a backbone becomes a model: a paper's way of fine-tuning, in every setting.",
        tables=[recipes_table(site.queries)],
    )


RECIPES_PAGE = PageRoute(
    path="/recipes",
    state=State,
    view=recipes_view,
    summary="Every recipe: what it does, its source, its variants, and how many entries it made.",
    all_paths=lambda site: ["/recipes"],
)

PAGES = (
    RECIPE_PAGE,
    RECIPES_PAGE,
)
