"""A suite's table: its state in a URL, its columns and rows, and the cells that other pages share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field

from harness.scores import score_text
from leaderboard.data.backbones import backbone_of
from leaderboard.data.queries import Card, Entry
from leaderboard.data.scores import Floats, Means, Ranks, SuiteScores, UntouchedMeans
from leaderboard.data.suites import REASONS, Scope, scopes_of
from leaderboard.pages._task_scores import column_path
from leaderboard.web.charts import Axis, Chart, Point, Scatter, chart
from leaderboard.web.filters import EntryState
from leaderboard.web.formats import over_seeds, parameters_text, seeds_text, some_seeds
from leaderboard.web.page import missing
from leaderboard.web.parameters import Text, Texts
from leaderboard.web.tables import Cell, Column, Row

FEW = 12
"""The number of tasks up to which all have columns of their own."""

UNTOUCHED = {"untouched": "tasks", "untouched_types": "types"}
"""Means over the tasks that selected no model shown, with the means that they narrow."""

ALWAYS = ("rank", "model")
"""Columns that every choice of columns has."""

BY_NAME = ("model", "origin")
"""Columns that are sorted by an entry's text."""

PRINTED = "Printed in papers, without rank"
"""The heading over rows of papers."""

GONE = {"none": "–", "failed": "×", "bad": "!", "part": "–"}
"""Texts of cells without a number."""


class SuiteState(EntryState):
    """The parameters of a suite's page."""

    zero: Literal["", "all", "most"] = Field(
        "", description="Only models that were trained on none of the tasks (all) or on under half (most)."
    )
    instructions: bool = Field(False, description="Only models that take instructions.")
    licence: Text = Field("", description="Only models under this licence, e.g. apache-2.0.")
    language: Text = Field("", description="Only models for this language, e.g. deu.")
    type: Text = Field("", description="Only tasks of this type.")
    tasks: Texts = Field([], description="Types whose tasks have columns of their own; `all` for every type.")
    cols: Texts = Field([], description="Only these columns, by key.")
    sort: Text = Field("-mean", description="A column's key; with - in front the highest first.")
    mean: Literal["tasks", "types", "untouched"] = Field(
        "tasks",
        description="The mean that ranks: over tasks, over types, or over the tasks that selected no model "
        "shown (untouched).",
    )
    rank: Literal["mean", "borda"] = Field("mean", description="Rank by the mean or by Borda points.")
    view: Text = Field("", description="The paper's convention that makes a task's number.")
    revisions: Literal["any", "pinned"] = Field(
        "any", description="Count all scores, or only those on the pinned revisions of the data."
    )
    group: Literal["", "backbone", "recipe", "organisation"] = Field("", description="Rows under headings.")
    each: Literal["model", "revision"] = Field(
        "model", description="One row for each model, or for each revision and treatment."
    )
    rows: Literal["25", "50", "100", "250", "all"] = Field("100", description="Rows on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of rows.")

    def whole(self) -> Self:
        """This state with every row, and every task unless it says which."""
        some = self.model_fields_set & {"tasks", "cols", "type"}
        return super().whole() if some else super().whole().changed(tasks=["all"])


@dataclass(frozen=True, kw_only=True, eq=False)
class SuiteColumn:
    """A column: its heading, the values that it sorts by, and its cell of a row.

    The best two values of a `scored` column are marked; an `optional` one is shown when it has any value.
    """

    key: str
    label: str
    cell: Callable[[int], Cell]
    group: str = ""
    sort: Floats | None = None
    numeric: bool = True
    href: str = ""
    note: str = ""
    card: str = ""
    scored: bool = False
    optional: bool = False
    kind: str = ""


@dataclass(frozen=True, kw_only=True, eq=False)
class SuiteTable:
    """The table of a suite in a state of its page; `cards` and `entries` are those of the site, by number.

    Raises:
        NotFound: The state names a column or a type that the suite does not have.
    """

    scores: SuiteScores
    state: SuiteState
    path: str
    cards: Mapping[int, Card]
    entries: Mapping[int, Entry]

    @cached_property
    def rows(self) -> list[int]:
        """The rows that pass the filters; of a model's several the one with the most tasks."""
        rows = [row for row, entry in enumerate(self.scores.entries) if self._passes(row, entry)]
        return self.scores.one_for_each_model(rows) if self.state.each == "model" else rows

    def _passes(self, row: int, entry: Entry) -> bool:
        state, share, card = self.state, self.scores.zero_shot[row], self.card(row)
        return (
            state.keeps(entry)
            and (not state.zero or bool(share == 1 if state.zero == "all" else share > 0.5))
            and (not state.instructions or card.instructions is True)
            and state.licence in ("", card.licence)
            and (not state.language or state.language in card.languages)
        )

    def card(self, row: int) -> Card:
        """The card of a row's model."""
        return self.cards.get(self.scores.entries[row].id, Card())

    @cached_property
    def untouched(self) -> UntouchedMeans | None:
        """The means over the tasks that selected none of the models shown; None where none was selected."""
        return self.scores.untouched(self.rows) if self.scores.selected.any() else None

    @cached_property
    def mean(self) -> str:
        """The mean that ranks, which is that over all tasks where no model was selected."""
        mean = self.state.mean
        return UNTOUCHED[mean] if mean in UNTOUCHED and self.untouched is None else mean

    @cached_property
    def ranking(self) -> str:
        """The key of the column that ranks."""
        return "borda" if self.state.rank == "borda" else self.mean

    @cached_property
    def ranks(self) -> Ranks:
        """The ranks by that column."""
        each = "model" if self.state.each == "model" else "entry"
        if self.untouched is not None and self.mean == "untouched":
            ranks = self.scores.untouched_ranks(self.untouched, each)
        else:
            ranks = self.scores.ranks(self.mean, each)
        return _by_borda(ranks) if self.ranking == "borda" else ranks

    @cached_property
    def columns(self) -> list[SuiteColumn]:
        """Every column that there is."""
        scores, ranks, entries = self.scores, self.ranks, self.scores.entries
        tasks, types = scores.over_tasks, scores.over_types
        count = len(scores.site_suite.suite.columns)
        sizes = [parameters_of(entry) for entry in entries]
        several = len(scores.by_type) > 1
        return [
            SuiteColumn(
                key="rank", label="Rank", sort=_ranked(ranks, -ranks.place.astype(float)), card="Rank",
                cell=lambda row: _ranked_cell(ranks, ranks.place, row, "{:d}"),
                note="Models share a rank where they cannot be told apart from the first of their group.",
            ),
            SuiteColumn(
                key="model", label="Model", numeric=False, cell=lambda row: model_cell(entries[row]),
            ),
            SuiteColumn(
                key="parameters", label="Size", note="Parameters.", sort=_values(sizes),
                cell=lambda row: Cell(text=parameters_text(sizes[row]), value=sizes[row]),
            ),
            self._mean("tasks", tasks, "over tasks", f"The mean over {tasks_text(count)}, all alike."),
            self._mean("types", types, "over types", "The mean of the types' means."),
            *self._untouched_means(several),
            SuiteColumn(
                key="borda", label="Borda", group="Mean", sort=_ranked(ranks, ranks.borda),
                scored=True, optional=True, note="The models that are worse, ties half, summed over tasks.",
                cell=lambda row: _ranked_cell(ranks, ranks.borda, row, "{:.0f}"),
            ),
            *self._types(several),
            SuiteColumn(
                key="there", label="Tasks", note="Tasks with a score that counts.",
                sort=tasks.count.astype(float),
                cell=lambda row: _count_cell(scores, tasks, row),
            ),
            SuiteColumn(
                key="unseen", label="Zero-shot", sort=scores.zero_shot, optional=True,
                note="The share of the tasks that the model was not trained on, as its makers state.",
                cell=lambda row: _share_cell(float(scores.zero_shot[row])),
            ),
            self._fact("dimension", "Dimension", "Of an embedding.", lambda row: entries[row].dimension),
            self._fact("max_tokens", "Max tokens", "Of an input.", lambda row: entries[row].max_tokens),
            self._fact("memory", "Memory, MB", "Of the weights.", lambda row: self.card(row).memory),
            SuiteColumn(
                key="mean_rank", label="Mean rank", sort=-ranks.mean_rank,
                note="The mean of the ranks on each task, among ranked models.",
                cell=lambda row: _ranked_cell(ranks, ranks.mean_rank, row, "{:.1f}"),
            ),
            SuiteColumn(
                key="origin", label="Origin", numeric=False, cell=lambda row: origin_cell(entries[row])
            ),
            SuiteColumn(
                key="how", label="How", numeric=False, cell=lambda row: how_cell(entries[row]),
                note="An imported model's revision, a measured one's treatment, a printed row's table.",
            ),
        ]  # fmt: skip

    def _mean(self, key: str, means: Means, label: str, note: str, *, kind: str = "") -> SuiteColumn:
        """The column of a mean: over all tasks, over types, or within a type (`kind`)."""
        scores = self.scores

        def cell(row: int) -> Cell:
            found = scores.averages.get(row)
            known = found if found and (key == "tasks" or "printed" in found) else None
            return mean_of(mean_cell(means, row, known, scores.entries[row].seeds), scores, row, kind)

        return SuiteColumn(
            key=f"type:{kind}" if kind else key, label=label, group=kind or "Mean", note=note, cell=cell,
            sort=_complete(means), scored=True, kind=kind, card=kind or ("Mean" if key == self.mean else ""),
        )  # fmt: skip

    def _untouched_means(self, several: bool) -> Iterator[SuiteColumn]:
        """The means over the tasks that selected no model shown: over tasks, and over several types."""
        untouched, entries = self.untouched, self.scores.entries
        for key in UNTOUCHED if untouched else ():
            if untouched and (several or key == "untouched"):
                means = untouched.over_tasks if key == "untouched" else untouched.over_types
                what = "" if key == "untouched" else "types of "
                yield SuiteColumn(
                    key=key, label=f"over {what}{untouched.part.count} untouched",
                    group="Mean", note=untouched_note(untouched), sort=_complete(means), scored=True,
                    cell=partial(_untouched_cell, means, entries),
                )  # fmt: skip

    def _types(self, several: bool) -> Iterator[SuiteColumn]:
        """The means within each of several types, each with its tasks behind it."""
        columns = self.scores.site_suite.suite.columns
        for kind in dict.fromkeys(column.type for column in columns):
            if several and kind in self.scores.by_type:
                means = self.scores.by_type[kind]
                yield self._mean(
                    kind, means, "mean", f"The mean over {tasks_text(means.expected)}.", kind=kind
                )
            for at, column in enumerate(columns):
                if column.type == kind:
                    yield self._task(at)

    def _task(self, at: int) -> SuiteColumn:
        scores, column = self.scores, self.scores.site_suite.suite.columns[at]
        many = f": the mean of {len(column.tasks)} tasks" if len(column.tasks) > 1 else ""
        return SuiteColumn(
            key=f"task:{column.name}", label=column.name, group=column.type, kind=column.type, scored=True,
            sort=np.where(scores.counted[:, at], scores.values[:, at], np.nan),
            href=column_path(scores.site_suite, column), note=f"{column.name}{many}",
            cell=lambda row: task_cell(scores, row, at, self.entries),
        )  # fmt: skip

    def _fact(self, key: str, label: str, note: str, value: Callable[[int], float | None]) -> SuiteColumn:
        """An optional column of a fact of a model."""

        def cell(row: int) -> Cell:
            number = value(row)
            return Cell(text="" if number is None else f"{number:,.0f}", value=number)

        numbers = _values(map(value, range(len(self.scores.entries))))
        return SuiteColumn(key=key, label=label, note=note, sort=numbers, cell=cell, optional=True)

    @cached_property
    def shown(self) -> list[SuiteColumn]:
        """The columns that are shown."""
        keys, known = {column.key for column in self.columns}, self.scores.by_type
        if self.state.type and self.state.type not in known:
            raise missing(
                "task type", self.state.type, known, then="The suite's page offers those there are."
            )
        picked = {self.key(name, keys) for name in self.state.cols}
        return [column for column in self.columns if column.key in ALWAYS or self._shows(column, picked)]

    def _shows(self, column: SuiteColumn, picked: set[str]) -> bool:
        state = self.state
        if state.type and column.kind:
            return column.kind == state.type
        if picked:
            return column.key in picked
        if column.key == "mean_rank":
            return False
        if column.key == "types":
            return len(self.scores.by_type) > 1
        if column.key == "how":
            return state.each == "revision" or state.origin == "reported"
        if column.optional and column.sort is not None:
            return bool(np.isfinite(column.sort[self.rows]).any())
        return not column.key.startswith("task:") or self.opens(column.kind)

    def opens(self, kind: str) -> bool:
        """Whether the tasks of a type have columns of their own."""
        return not self.folds or "all" in self.state.tasks or kind in self.state.tasks

    @property
    def folds(self) -> bool:
        """Whether the tasks of a type can be folded."""
        few = len(self.scores.site_suite.suite.columns) <= FEW
        return not (few or self.state.cols or self.state.type or len(self.scores.by_type) < 2)

    def key(self, name: str, keys: set[str]) -> str:
        """The key of the column that a name stands for: a key, a task, a type, or a column's only task."""
        if name == "mean":
            return self.ranking
        name = UNTOUCHED[name] if name in UNTOUCHED and name not in keys else name
        tasks: dict[str, list[str]] = {}
        for column in self.scores.site_suite.suite.columns:
            if len(column.tasks) == 1:
                tasks.setdefault(column.tasks[0].name, []).append(column.name)
        only = tasks.get(name.removeprefix("task:"), [])
        tries = (name, f"task:{name}", f"type:{name}", *(f"task:{one}" for one in only if len(only) == 1))
        found = next((key for key in tries if key in keys), None)
        if found is None:
            known = [key.partition(":")[2] or key for key in keys]
            raise missing("column", name, known, then="The suite's page offers those there are.")
        return found

    @cached_property
    def sorted_by(self) -> tuple[str, bool]:
        """The key of the column that sorts, and whether the highest is first."""
        keys = {column.key for column in self.columns}
        return self.key(self.state.sort.removeprefix("-"), keys), self.state.sort.startswith("-")

    @cached_property
    def ordered(self) -> list[int]:
        """The rows in order, those of papers last; groups stand in the order of their first rows."""
        printed = {row for row in self.rows if self.scores.entries[row].origin == "reported"}
        ordered = self._sorted([row for row in self.rows if row not in printed])
        ordered += self._sorted([row for row in self.rows if row in printed])
        groups: dict[str, list[int]] = {}
        for row in ordered:
            groups.setdefault(self._group(row), []).append(row)
        return [row for members in groups.values() for row in members]

    def _sorted(self, rows: Sequence[int]) -> list[int]:
        """Rows in order; those without a value last, by how many of the tasks they have."""
        key, down = self.sorted_by
        if key in BY_NAME:
            names = self.scores.entries
            return sorted(rows, key=lambda row: getattr(names[row], key).casefold(), reverse=down)
        values = next(column.sort for column in self.columns if column.key == key)
        if values is None:
            raise missing(
                "column to sort by", key, [c.key for c in self.columns if c.sort is not None], then=""
            )
        means = self.scores.mean("types" if self.mean == "types" else "tasks")
        known = [row for row in rows if np.isfinite(values[row])]
        rest = [row for row in rows if not np.isfinite(values[row])]
        known.sort(key=lambda row: values[row], reverse=down)
        rest.sort(key=lambda row: (-means.count[row], -np.nan_to_num(means.values[row], nan=-1.0)))
        return [*known, *rest]

    def _group(self, row: int) -> str:
        """The heading that a row stands under; empty for none."""
        entry, by = self.scores.entries[row], self.state.group
        if by:
            return getattr(entry, by) or f"no {by}"
        return PRINTED if entry.origin == "reported" else ""

    @cached_property
    def _best(self) -> dict[tuple[int, str], str]:
        """The best and the second best cells of each column among the rows that are shown."""
        rows = np.array([row for row in self.rows if self.scores.entries[row].origin != "reported"], int)
        found: dict[tuple[int, str], str] = {}
        for column in self.shown if len(rows) else ():
            if column.scored and column.sort is not None:
                values = column.sort[rows]
                best = np.unique(values[np.isfinite(values)])[-2:][::-1]
                for kind, value in zip(("best", "second"), best, strict=False):
                    found |= {(row, column.key): kind for row in rows[values == value].tolist()}
        return found

    def body(self, rows: Sequence[int]) -> Iterator[Row]:
        """Some rows, with the headings above them."""
        heading = ""
        for row in rows:
            if (group := self._group(row)) != heading:
                heading = group
                cells = [Cell(text=group if column.key == "model" else "") for column in self.shown]
                yield Row(kind="group", cells=cells)
            cells = [self._cell(column, row) for column in self.shown]
            part = "" if self.scores.over_tasks.complete[row] else "part"
            yield Row(cells=cells, key=self.scores.entries[row].slug, kind=part)

    def _cell(self, column: SuiteColumn, row: int) -> Cell:
        cell, mark = column.cell(row), self._best.get((row, column.key))
        return replace(cell, kind=f"{cell.kind} {mark}".strip()) if mark else cell

    def heads(self) -> list[Column]:
        """The columns as a table takes them, with the URLs that sort by them and fold their types."""
        return [self._head(column) for column in self.shown]

    def _head(self, column: SuiteColumn) -> Column:
        current, down = self.sorted_by
        key = column.key
        up_first = key in (*BY_NAME, "rank")
        if up_first:
            wanted = f"-{key}" if key == current and not down else key
        else:
            wanted = key if key == current and down else f"-{key}"
        can_sort = column.sort is not None or key in BY_NAME
        return Column(
            key=key, label=column.label, group=column.group, numeric=column.numeric, href=column.href,
            sort=f"{self.path}?{self.state.query(sort=wanted, page=1)}" if can_sort else "",
            sorted=("descending" if down else "ascending") if key == current else "",
            note=column.note, sticky=key in ALWAYS, card=column.card,
            fold=self.fold(column.kind) if column.kind and self.folds else "", open=self.opens(column.kind),
        )  # fmt: skip

    def fold(self, kind: str) -> str:
        """The URL that opens or folds a type."""
        types = list(self.scores.by_type) if "all" in self.state.tasks else list(self.state.tasks)
        others = [name for name in types if name != kind]
        return f"{self.path}?{self.state.query(tasks=others if kind in types else [*types, kind])}"


def size_chart(table: SuiteTable, name: str = "size") -> Chart:
    """The mean that ranks against the number of parameters, of the ranked rows; of papers' where none is."""
    scores, over = table.scores, "types" if table.mean == "types" else "tasks"
    means, ranked = scores.mean(over), table.ranks.place > 0
    points = []
    for row in table.ordered:
        entry, cell = scores.entries[row], model_cell(scores.entries[row])
        if ranked[row] if ranked.any() else means.complete[row]:
            points.append(
                Point(
                    label=entry.model.rpartition("/")[2], x=parameters_of(entry), href=cell.href,
                    y=round(100 * float(means.values[row]), 2), series=entry.origin,
                    emphasised=entry.origin == "measured",
                )
            )  # fmt: skip
    plot = Scatter(x=Axis(label="Parameters", kind="log"), y=Axis(label=f"Mean over {over}"), points=points)
    return chart(name, f"{scores.site_suite.suite.title}: score against size", plot)


def parameters_of(entry: Entry) -> int | None:
    """The number of parameters of a model, of a paper's row that of its backbone."""
    backbone = backbone_of(entry.model) if entry.origin == "reported" and not entry.parameters else None
    return backbone.parameters if backbone else entry.parameters


def _by_borda(ranks: Ranks) -> Ranks:
    """The same with places by Borda points; equal points share a place."""
    ranked = ranks.place > 0
    points = ranks.borda[ranked]
    place = np.zeros_like(ranks.place)
    place[ranked] = 1 + (points[None, :] > points[:, None]).sum(axis=1)
    return replace(ranks, place=place)


def _untouched_cell(means: Means, entries: Sequence[Entry], row: int) -> Cell:
    return mean_cell(means, row, None, entries[row].seeds)


def _complete(means: Means) -> Floats:
    return np.where(means.complete, means.values, np.nan)


def _ranked(ranks: Ranks, values: Floats) -> Floats:
    return np.where(ranks.place > 0, values, np.nan)


def _values(numbers: Iterable[float | None]) -> Floats:
    return np.array([np.nan if number is None else float(number) for number in numbers])


def tasks_text(count: int) -> str:
    """A number of tasks.

    >>> tasks_text(1), tasks_text(41)
    ('its one task', '41 tasks')
    """
    return "its one task" if count == 1 else f"{count} tasks"


def _ranked_cell(ranks: Ranks, values: Any, row: int, form: str) -> Cell:
    """A number that only ranked rows have."""
    number = values[row].item()
    return Cell(text=form.format(number), value=number) if ranks.place[row] else Cell()


def _count_cell(scores: SuiteScores, means: Means, row: int) -> Cell:
    """How many of the suite's tasks count."""
    if scores.averages.get(row, {}).get("types"):
        return Cell(text="by type", note="The paper prints means of types only.")
    return Cell(text=f"{means.count[row]}/{means.expected}", value=int(means.count[row]))


def _share_cell(share: float) -> Cell:
    """The share of tasks that a model was not trained on."""
    return Cell(text=f"{100 * share:.0f} %", value=share) if share == share else Cell(text="?")


def model_cell(entry: Entry) -> Cell:
    """A model's name, or that of a paper's row."""
    if entry.origin == "reported":
        text = f"{entry.model}: {entry.treatment.rpartition(';')[2].rpartition(': ')[2].strip()}"
        return Cell(text=text, value=entry.model, href=f"/papers/{entry.source}", note=entry.treatment)
    return Cell(
        text=entry.model, value=entry.model, href=f"/models/{entry.model_slug}", kind=kinds_of(entry),
        note=made_of(entry) or entry.treatment,
    )  # fmt: skip


def kinds_of(entry: Entry) -> str:
    """What must be known of the training of an entry's model, as kinds of a cell."""
    made = entry.lineage
    if made is None:
        return ""
    marks = (("own", made.all_own_data), ("changed", made.changed), ("selected", made.all_selected_on))
    return " ".join(kind for kind, there in marks if there)


def made_of(entry: Entry) -> str:
    """What a recipe made an entry's model of, under which seeds, and the treatment; empty for any other."""
    return f"{training_text(entry)}; {entry.treatment}" if entry.lineage else ""


def training_text(entry: Entry) -> str:
    """What a recipe made an entry's model of, and under which seeds; empty for any other."""
    made = entry.lineage
    if made is None:
        return ""
    parents = " and ".join(parent.text for parent in made.parents)
    chosen = [made.choices_text] if made.choices else []
    return "; ".join([f"{made.text} on {parents}", *chosen, seeds_text(entry.seeds)])


def origin_cell(entry: Entry) -> Cell:
    """Where the numbers of a row come from."""
    trust = {"external": "by its makers", "none": "no revision"}.get(entry.trust, "")
    text = f"{entry.origin}, {trust}" if trust else entry.origin
    return Cell(text=text, value=entry.origin, kind=entry.origin)


def how_cell(entry: Entry) -> Cell:
    """An imported model's revision, a measured one's treatment, where a row is printed."""
    revision = entry.revision or ""
    text = (
        made_of(entry)
        or entry.treatment
        or (revision[:10] if entry.trust == "commit" else revision.replace("_", " "))
    )
    short = text if len(text) <= 36 else f"{text[:35]}…"
    return Cell(text=short, value=text, note=text if short != text else "")


def mean_cell(means: Means, row: int, average: Mapping[str, Any] | None, seeds: Sequence[int] = ()) -> Cell:
    """A mean.

    Args:
        means: Of all rows.
        row: Which.
        average: What else is known of it (SuiteScores.averages).
        seeds: Those that it is over.
    """
    value = float(means.values[row])
    if average and "printed" in average:
        return _printed_mean(means, row, average)
    if not means.count[row]:
        return Cell(text="–", kind="none")
    if not means.complete[row]:
        part = f"of {means.count[row]} of {means.expected}"
        cell = Cell(text=score_text(value), value=value, kind="part", note=part)
        return over_seeds(cell, float(means.deviations[row]), seeds)
    if average and average.get("interval"):
        low, high = average["interval"]
        return Cell(
            text=f"{score_text(value)} ± {50 * (high - low):.2f}",
            value=value,
            note="± half of the 95 % interval",
        )
    return over_seeds(Cell(text=score_text(value), value=value), float(means.deviations[row]), seeds)


def mean_of(cell: Cell, grid: SuiteScores, row: int, kind: str = "") -> Cell:
    """The cell of a mean (of all columns, or of a type's), marked where some of them chose the model."""
    known = cell.value is not None and bool(grid.selected[row].any())
    chose = grid.chose(row, kind) if known else []
    if not chose:
        return cell
    note = f"{', '.join(chose)} chose the model, and {'is' if len(chose) == 1 else 'are'} in this mean"
    notes = [cell.note, note] if cell.note else [note]
    return replace(cell, kind=f"{cell.kind} selected".strip(), note="; ".join(notes))


def untouched_note(untouched: UntouchedMeans) -> str:
    """What the means over untouched columns leave out, and why."""
    part = untouched.part
    names, one = ", ".join(part.selected), len(part.selected) == 1
    return (
        f"The means over the {part.count} untouched leave out {names}: models of this table were chosen by "
        f"their scores there, which err upward. They are over the same columns for every model; the means "
        f"over all {part.count + len(part.selected)} have {'it' if one else 'them'}."
    )


def _printed_mean(means: Means, row: int, document: Mapping[str, Any]) -> Cell:
    """A mean of a paper's row: of a type as printed, else made of what is printed."""
    value = float(means.values[row])
    if not means.count[row]:
        return Cell(text="–", kind="none")
    if means.over not in ("tasks", "types"):
        return Cell(text=f"{100 * value:.1f}", value=value)
    printed = document.get("printed")
    note = "made of the printed numbers" + (f"; the paper prints {100 * printed:.1f}" if printed else "")
    kind = "" if means.complete[row] else "part"
    return Cell(text=score_text(value), value=value, kind=kind, note=note)


def task_cell(scores: SuiteScores, row: int, at: int, entries: Mapping[int, Entry]) -> Cell:
    """A task's score, or why there is none; `entries` has those of single revisions."""
    reason, value, entry = (
        REASONS[scores.reasons[row, at]],
        float(scores.values[row, at]),
        scores.entries[row],
    )
    if reason == "seeds":
        return some_seeds(int(scores.seeds[row, at]), len(entry.seeds))
    if reason in GONE:
        return Cell(text=GONE[reason], kind=reason)
    if entry.origin == "reported":
        return Cell(text=f"{100 * value:.1f}", value=value)
    texts, column = int(scores.trained_on[row, at]), scores.site_suite.suite.columns[at]
    asked = scopes_of(column)
    kinds = [*leaks(entry, asked, texts, column.name), *(["other"] if reason == "other" else [])]
    low, high = float(scores.low[row, at]), float(scores.high[row, at])
    notes = [f"95 %: {score_text(low)} to {score_text(high)}"] if low == low else []
    notes += [*choices_made(entry, asked), *([texts_text(texts)] if texts else [])]
    notes += _revisions(scores, row, at, entries)
    number = int(scores.results[row, at])
    cell = Cell(
        text=score_text(value), value=value, kind=" ".join(kinds), note="; ".join(notes),
        href=f"/results/{number}" if number else "",
    )  # fmt: skip
    return over_seeds(cell, float(scores.deviations[row, at]), entry.seeds)


def _revisions(scores: SuiteScores, row: int, at: int, entries: Mapping[int, Entry]) -> list[str]:
    """The revisions that a score is of, where there are others: of a joined model, and of the data."""
    found, entry = [], scores.entries[row]
    source = entries.get(int(scores.sources[row, at])) if scores.sources.size else None
    if len(entry.revisions) > 1 and source and source.revision:
        found.append(f"model revision {source.revision[:10]}")
    if REASONS[scores.reasons[row, at]] == "other":
        (pinned, *more) = {task.data.revision[:10] for task in scores.site_suite.suite.columns[at].tasks}
        revision = scores.data.get((row, at), "")[:10] or "that is not stated"
        found.append(f"on data revision {revision}, pinned is {'several' if more else pinned or 'none'}")
    return found


def leaks(entry: Entry, scopes: Sequence[Scope], texts: int | None, column: str = "") -> list[str]:
    """Why a score flatters a model, as kinds.

    Args:
        entry: The model.
        scopes: What the score is of.
        texts: How many texts of it are in the model's training data.
        column: The name of the column of several tasks.
    """
    trained = entry.trained_on or ()
    marks = (
        ("leak", any(name in trained for name in (column, *(scope.task for scope in scopes)))),
        ("selected", choices_made(entry, scopes)),
        ("texts", texts),
    )
    return [kind for kind, there in marks if there]


def choices_made(entry: Entry, scopes: Sequence[Scope]) -> list[str]:
    """What the scores on what is asked for chose of a model, in a sentence; none where they chose nothing."""
    made = entry.lineage
    chosen = [what for one in scopes if made for what in made.chosen_by(one.task, one.splits, one.subsets)]
    return [f"its scores chose: {', '.join(dict.fromkeys(chosen))}"] if chosen else []


def texts_text(count: int) -> str:
    """How many texts of a task are in the training data.

    >>> texts_text(1), texts_text(1200)
    ('1 text of it is in the training data', '1,200 texts of it are in the training data')
    """
    one = "1 text of it is" if count == 1 else f"{count:,} texts of it are"
    return f"{one} in the training data"
