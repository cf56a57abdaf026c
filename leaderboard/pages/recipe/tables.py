"""Tables of recipes: all of them, and who was fine-tuned by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness import catalog
from harness.recipe import RecipeEntry
from harness.scores import score_text
from leaderboard.grid import Grid, Means, UntouchedMeans
from leaderboard.pages.recipe.facts import AnyRecipe, convention_of, opened
from leaderboard.pages.suite.cells import kinds_of, made_of, mean_of, untouched_note
from leaderboard.queries import Entry, Queries
from leaderboard.scopes import views
from leaderboard.state import address
from leaderboard.tables import Cell, Column, Row, Table
from leaderboard.words import over_seeds, parameters_text


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
        notes=[*part, *(f"{g.listed.suite.title}: {untouched_note(other)}" for g, other in both if other)],
    )


def _mean_columns(grid: Grid, untouched: UntouchedMeans | None) -> list[Column]:
    """The column of a suite's mean, and that of the mean over its untouched tasks."""
    slug, title = grid.listed.slug, grid.listed.suite.title
    href, note = f"/suites/{slug}", "The mean over its tasks."
    found = [Column(key=f"mean-{slug}", label=title, numeric=True, href=href, note=note)]
    if untouched is not None:
        label, note = f"{title}, {untouched.part.count} untouched", untouched_note(untouched)
        found.append(Column(key=f"untouched-{slug}", label=label, numeric=True, note=note))
    return found


def _untouched(grid: Grid, entries: Sequence[Entry]) -> UntouchedMeans | None:
    """The means over the columns that chose none of some entries."""
    ids = {entry.id for entry in entries}
    return grid.untouched(row for row, entry in enumerate(grid.entries) if entry.id in ids)


def _grids(queries: Queries, recipe: AnyRecipe, entries: Sequence[Entry]) -> list[Grid]:
    convention = convention_of(recipe)
    if convention:
        listed = queries.suites.values()
        return [queries.grid(one, convention) for one in listed if convention in one.suite.conventions]
    ids = {entry.id for entry in entries}
    main = (one for one in queries.suites.values() if one.main and not one.suite.conventions)
    grids = [queries.grid(one, views(one.suite)[0]) for one in main] if ids else []
    return [grid for grid in grids if ids & {entry.id for entry in grid.entries}]


def _by_mean(row: Row) -> tuple[bool, float]:
    cell = row.cells[3] if len(row.cells) > 4 else row.cells[2]
    value = cell.value if isinstance(cell.value, float) else 0.0
    return bool(row.kind) or _is_part(cell), -value


def _user(entry: Entry, grids: Sequence[tuple[Grid, UntouchedMeans | None]]) -> Row:
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


def _means(entry: Entry, grid: Grid, untouched: UntouchedMeans | None) -> list[Cell]:
    """The mean of an entry over a suite, and that over its untouched columns where there is one."""
    row = next((at for at, one in enumerate(grid.entries) if one.id == entry.id), None)
    if row is None:
        return [Cell(text="–", kind="none")] * (2 if untouched else 1)
    found = [mean_of(_mean(entry, grid.over_tasks, row, grid.averages.get(row) or {}), grid, row)]
    return [*found, *([_mean(entry, untouched.over_tasks, row, {})] if untouched else [])]


def _mean(entry: Entry, means: Means, row: int, average: Mapping[str, Any]) -> Cell:
    if not means.there[row]:
        return Cell(text="–", kind="none")
    value, there = float(means.values[row]), int(means.there[row])
    if not means.complete[row]:
        note = f"of {there} of {means.wanted}"
        text = f"{score_text(value)} ({there}/{means.wanted})"
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
