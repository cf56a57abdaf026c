"""A suite's table: its state in a URL, its columns and rows, and the cells that other pages share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from harness.core.groups import group_by
from harness.core.types import Column
from harness.results.scores import score_text
from leaderboard.data.backbones import find_backbone
from leaderboard.data.queries import Card, Entry
from leaderboard.data.ranking import FEWEST, Floats, Means, Ranks, bound_ranks, select_mean_columns
from leaderboard.data.scores import SuiteScores, UntouchedMeans
from leaderboard.data.suites import REASONS, build_column_scopes
from leaderboard.views.cells import (
    build_length_cell,
    build_origin_cell,
    build_score_cell,
    build_size_cell,
    format_task_count,
)
from leaderboard.views.reproductions import PATH, NumberPair
from leaderboard.views.sorting import Field as TableField
from leaderboard.views.sorting import fill_table, sort_rows
from leaderboard.views.task_scores import format_column_path
from leaderboard.web.charts import DRAWN, Chart, Point, build_size_chart, compute_frontier
from leaderboard.web.filters import (
    EACH,
    EMPTY_IS_NONE,
    FILTERS,
    GROUPS,
    SHARES,
    TABLE_CHIPS,
    ZERO,
    EntryState,
)
from leaderboard.web.marks import OUTPUTS, describe_score_choices, find_leak_kinds, format_leak_count
from leaderboard.web.page import NotFound, build_missing_error, check_name
from leaderboard.web.page_state import Control, FilterForm, Options, Text, Texts, build_address
from leaderboard.web.table_formats import add_seed_deviation, build_seeds_cell
from leaderboard.web.tables import EMPTY, Cell, Table

FEW = 12
"""The number of tasks up to which all have columns of their own."""

UNTOUCHED = {"untouched": "tasks", "untouched_types": "types"}
"""Means over the tasks that selected no model shown, with the means that they narrow."""

AGREEMENT = {"same": "same", "draws": "no further apart than two runs", "differs": "differ"}
"""How numbers of two sources agree, in words, by the verdicts of which the first counts."""

APART = "not comparable"
"""The same of a task for which two sources have no numbers of one kind."""

ALWAYS = ("rank", "model")
"""Columns that every choice of columns has."""

GONE = {"none": "–", "failed": "×", "bad": "!", "part": "–"}
"""Texts of cells without a number."""


class TableState(EntryState):
    """The parameters of a table of models x tasks."""

    zero: Literal["", "all", "most"] = Field(
        "", description="Only models that were trained on none of the tasks (all) or on under half (most)."
    )
    instructions: bool = Field(False, description="Only models that take instructions.")
    reproduced: bool = Field(
        False, description="Only models of which two sources have the same number on a task of the suite."
    )
    licence: Text = Field(
        "", description="Only models under this licence, e.g. apache-2.0, or under one of this group: "
        "permissive, copyleft, non-commercial, unknown.",
    )  # fmt: skip
    memory: Annotated[float | None, EMPTY_IS_NONE] = Field(
        None, gt=0, le=1e9, description="At most so many MB of weights."
    )
    beside: Text = Field("", description="A model, by its name: shown whatever the bounds, and marked.")
    tasks: Texts = Field([], description="Types whose tasks have columns of their own; `all` for every type.")
    cols: Texts = Field([], description="Only these columns, by key; `all` for every one.")
    sort: Text = Field("-mean", description="A column's key; with - in front the highest first.")
    mean: Literal["tasks", "types", "untouched"] = Field(
        "tasks", description="The mean that ranks; `untouched`: over the tasks that selected no model shown."
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
    rows: Literal["25", "50", "100", "250", "all"] = Field("50", description="Rows on a page.")
    page: int = Field(1, ge=1, le=100_000, description="Which page of rows.")

    def select_zero_shot(self, shares: Floats) -> NDArray[np.bool_]:
        """Which models pass by the shares of the tasks that they were not trained on."""
        if not self.zero:
            return np.ones(np.shape(shares), bool)
        return np.asarray(shares == 1 if self.zero == "all" else shares > 0.5)

    def is_beside(self, entry: Entry) -> bool:
        """Whether a model is the one that a reader wants to see among the others."""
        names = (entry.model_slug, entry.model, entry.short_name)
        return bool(self.beside) and self.beside.casefold() in map(str.casefold, names)


class MissingModel(NotFound):
    """No model has the name of the one to stand beside the others, or it has none of their tasks."""


def explain_missing_model(entries: Collection[Entry], state: TableState) -> MissingModel:
    """The error for a model that cannot stand beside the others of a table."""
    if any(map(state.is_beside, entries)):
        message = f"{state.beside} has no score on any of these tasks."
        return MissingModel(message, hint="Ask for other tasks, or for another model.")
    return MissingModel(f"No model is called {state.beside!r}.", hint="The page /search finds models.")


class SuiteState(TableState):
    """The parameters of a suite's page."""

    language: Text = Field("", description="Only models for this language, e.g. deu.")
    type: Text = Field("", description="Only tasks of this type.")


@dataclass(frozen=True, kw_only=True, eq=False)
class SuiteColumn(TableField[int]):
    """A column by rows; the best two cells of a `scored` one are marked.

    An `optional` column is shown when it has any value; `kind` is the task type that it belongs to.
    """

    numeric: bool = True
    href: str = ""
    kind: str = ""
    scored: bool = False
    optional: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class SuiteTable:
    """The table of a suite in a state of its page; `cards` and `entries` are those of the site, by number.

    Raises:
        NotFound: The state names a column or a type that the suite does not have.
    """

    scores: SuiteScores
    state: TableState
    path: str
    cards: Mapping[int, Card]
    entries: Mapping[int, Entry]
    comparisons: Sequence[NumberPair] = ()
    pages: Mapping[int, str] = field(default_factory=dict)

    @cached_property
    def rows(self) -> list[int]:
        """The rows that pass the filters; of a model's several the one with the most tasks."""
        entries = enumerate(self.scores.entries)
        rows = [row for row, entry in entries if self.state.is_beside(entry) or self.passes_bounds(row)]
        return self.scores.select_best_rows(rows) if self.state.each == "model" else rows

    def passes_bounds(self, row: int) -> bool:
        """Whether a row passes the filters, and is not only shown beside those that do."""
        return (
            self.state.should_keep(self.scores.entries[row], self.find_card(row))
            and bool(self.state.select_zero_shot(self.scores.zero_shot[row]))
            and (not self.state.reproduced or bool(self._count_reproduced(row)))
        )

    @cached_property
    def reproduced(self) -> Mapping[str, dict[str, set[str]]]:
        """By model the suite's tasks on which two sources have a number, each with the verdicts on them."""
        columns = self.scores.site_suite.suite.columns
        names = {name for column in columns for name in (column.name, *(task.name for task in column.tasks))}
        models: dict[str, dict[str, set[str]]] = {}
        for pair in self.comparisons:
            if pair.is_independent and pair.task in names:
                models.setdefault(pair.model, {}).setdefault(pair.task, set()).add(pair.verdict)
        return models

    def _count_reproduced(self, row: int) -> int | None:
        verdicts = self.reproduced.get(self.pages.get(self.scores.entries[row].id, ""))
        return None if verdicts is None else sum("same" in some for some in verdicts.values())

    def _build_reproduced_cell(self, row: int) -> Cell:
        page = self.pages.get(self.scores.entries[row].id, "")
        verdicts = self.reproduced.get(page, {})
        if not verdicts:
            return Cell()
        tasks: dict[str, list[str]] = {word: [] for word in (*AGREEMENT.values(), APART)}
        for task, some in sorted(verdicts.items()):
            tasks[next((word for verdict, word in AGREEMENT.items() if verdict in some), APART)].append(task)
        notes = [f"{len(names)} {word}: {', '.join(names)}" for word, names in tasks.items() if names]
        return Cell(
            text=f"{len(tasks['same'])}/{len(verdicts)}", value=len(tasks["same"]), note="; ".join(notes),
            href=build_address(PATH, {"q": page}),
        )  # fmt: skip

    def count_ranked(self) -> tuple[int, int]:
        """How many entries are ranked, and how many have any score, whatever the filters."""
        rows = np.array([entry.origin != "reported" for entry in self.scores.entries], bool)
        rows &= self.scores.first if self.state.each == "model" else True
        return int((self.scores.over_tasks.complete & rows).sum()), int(rows.sum())

    def build_form(self, own: Sequence[Control], *, without: Collection[str] = ()) -> FilterForm:
        """The filters, with a page's `own` controls; choices that no model has are not offered."""
        state, scores = self.state, self.scores
        cards = [self.find_card(row) for row in range(len(scores.entries))]
        values = {
            "licence": [name for card in cards for name in {card.licence, card.licence_group}],
            "language": [code for card in cards for code in card.languages],
            "organisation": [entry.organisation for entry in scores.entries],
        }
        offered: Options = {
            "zero": ("Zero-shot", ZERO if np.isfinite(scores.zero_shot).any() else ()),
            **{name: (name.capitalize(), _list_frequent_values(some, getattr(state, name)))
               for name, some in values.items() if name in type(state).model_fields},
            "group": ("Group by", GROUPS), "each": ("A row for", EACH),
        }  # fmt: skip
        choices = [
            *own, *state.build_entry_controls(scores.entries), *state.offer(offered),
            state.ask("check", "reproduced", "Reproduced by somebody"),
        ]  # fmt: skip
        if any(card.instructions for card in cards):
            choices.append(state.ask("check", "instructions", "Instruction-tuned"))
        every = {control.name: control for control in choices if control.name not in without}
        return state.build_form(
            self.path, [every[name] for name in FILTERS if name in every], chips=TABLE_CHIPS,
            values={"zero": SHARES.get(state.zero, "")}, reset=self.path if state.list_query_pairs() else "",
        )  # fmt: skip

    @property
    def _type(self) -> str:
        """The only type whose columns are shown; empty for all."""
        return self.state.type if isinstance(self.state, SuiteState) else ""

    def find_card(self, row: int) -> Card:
        """The card of a row's model."""
        return self.cards.get(self.scores.entries[row].id, Card())

    @cached_property
    def untouched(self) -> UntouchedMeans | None:
        """The means over the tasks that selected none of the models shown; None where none was selected."""
        return self.scores.compute_untouched_means(self.rows) if self.scores.selected.any() else None

    @cached_property
    def mean(self) -> str:
        """The mean that ranks, which is that over all tasks where no model was selected."""
        mean = self.state.mean
        return UNTOUCHED[mean] if mean in UNTOUCHED and self.untouched is None else mean

    @cached_property
    def ranks(self) -> Ranks:
        """The ranks by that mean, or by Borda points."""
        each = "model" if self.state.each == "model" else "entry"
        if self.untouched is not None and self.mean == "untouched":
            ranks = self.scores.rank_untouched(self.untouched, each)
        else:
            ranks = self.scores.compute_ranks(self.mean, each)
        if self.state.rank == "mean":
            return ranks
        # NaN is greater than nothing, so rows without a rank push no other down.
        points, place = np.where(ranks.place > 0, ranks.borda, np.nan), np.zeros_like(ranks.place)
        place[ranks.place > 0] = 1 + (points[None, :] > points[ranks.place > 0, None]).sum(axis=1)
        return replace(ranks, place=place)

    @cached_property
    def columns(self) -> list[SuiteColumn]:
        """Every column that the suite can show."""
        scores, ranks, entries = self.scores, self.ranks, self.scores.entries
        several = len(scores.by_type) > 1
        place, rows = ranks.place.tolist(), range(len(entries))
        untouched_means, note = dict[str, tuple[str, Means]](), ""
        if untouched := self.untouched:
            count, note = untouched.part.count, describe_untouched(untouched)
            untouched_means["untouched"] = f"over {count} untouched", untouched.over_tasks
            if several:
                untouched_means["untouched_types"] = f"over types of {count} untouched", untouched.over_types
        borda = [points if rank else None for points, rank in zip(ranks.borda.tolist(), place, strict=True)]
        return [
            _build_number_column(
                "rank", "Rank", [rank or None for rank in place], up=True, sticky=True, card="Rank",
                note="Models that cannot be told apart from the first of their group share its rank."),
            SuiteColumn("model", "Model", self._build_model_cell, lambda row: entries[row].model.casefold(),
                    numeric=False, sticky=True),
            SuiteColumn(
                "unseen", "Zero-shot", self._build_unseen_cell, _replace_nan(scores.zero_shot).__getitem__,
                optional=True, card="Zero-shot",
                note="The share of the tasks that the model was not trained on, as its makers state."),
            SuiteColumn("parameters", "Size", self._build_marked_size, lambda row: entries[row].parameters,
                    card="Size", note="Parameters, with embeddings."),
            self._build_mean_column(
                "tasks", "over tasks", scores.over_tasks,
                f"The mean over {format_task_count(scores.over_tasks.expected)}, "
                f"{'weighted' if scores.site_suite.weights else 'all alike'}."),
            *self._iter_certainty_columns(),
            self._build_mean_column("types", "over types", scores.over_types,
                                    "The mean of the types' means."),
            *(self._build_mean_column(key, *head, note, own=False) for key, head in untouched_means.items()),
            _build_number_column("borda", "Borda", borda, group="Mean", scored=True, optional=True,
                                 note="How many models are worse, ties half, summed over tasks."),
            *self._iter_type_columns(several),
            SuiteColumn("there", "Tasks", partial(build_count_cell, scores),
                    scores.over_tasks.count.tolist().__getitem__,
                    card="Tasks", note="Tasks with a score that counts."),
            SuiteColumn("reproduced", "Reproduced", self._build_reproduced_cell, self._count_reproduced,
                    optional=True, note="Tasks on which two sources agree, of those that two have.",
                    card="Reproduced"),
            _build_number_column("dimension", "Dimension", [one.dimension for one in entries], optional=True,
                                 note="Of an embedding."),
            SuiteColumn("max_tokens", "Max tokens", lambda row: build_length_cell(entries[row]),
                    lambda row: entries[row].length, optional=True, note="Of an input.",
                    card="Max tokens" if self.state.tokens else ""),
            _build_number_column("memory", "Memory, MB", [self.find_card(row).memory for row in rows],
                                 optional=True, note="Of the weights."),
            _build_number_column("mean_rank", "Mean rank", _replace_nan(ranks.mean_rank), "{:.1f}", up=True,
                                 note="The mean of the ranks on each task, among ranked models."),
            SuiteColumn("origin", "Origin", lambda row: build_origin_cell(scores, row, self.entries),
                    lambda row: entries[row].origin.casefold(), numeric=False),
            SuiteColumn("how", "How", lambda row: build_treatment_cell(entries[row]), numeric=False,
                    note="An imported model's revision, a measured one's treatment, a printed row's table."),
        ]  # fmt: skip

    def _build_model_cell(self, row: int) -> Cell:
        cell = build_model_cell(self.scores.entries[row])
        if revision := _get_revision(self.entries, self._usual_sources[row]):
            notes = [cell.note, f"revision {revision}"]
            cell = replace(cell, note="; ".join(filter(None, notes)))
        return cell.mark("outside") if row in self.scores.unranked else cell

    @cached_property
    def _usual_sources(self) -> list[int]:
        """Of each row the entry that most of a joined model's scores are of, else 0."""
        joined = [len(entry.revisions) > 1 for entry in self.scores.entries]
        rows = self.scores.sources.tolist() if self.scores.sources.size else [[]] * len(joined)
        counts = [Counter(filter(None, row if many else ())) for row, many in zip(rows, joined, strict=True)]
        return [next(iter(count.most_common(1)), (0,))[0] for count in counts]

    @cached_property
    def _usual_data(self) -> list[str]:
        """Of each column the revision that most of the scores on other data than the pinned are on."""
        counts: list[Counter[str]] = [Counter() for _ in self.scores.site_suite.suite.columns]
        for row, place in np.argwhere(self.scores.reasons == REASONS.index("other")).tolist():
            counts[place][_name_data(self.scores, row, place)] += 1
        return [next(iter(count.most_common(1)), ("",))[0] for count in counts]

    def _build_marked_size(self, row: int) -> Cell:
        """A size, with its source where that is not the card of this revision."""
        source, cell = self.find_card(row).size_from, build_size_cell(self.scores.entries[row].parameters)
        return replace(cell, note=f"from {source}") if source else cell

    def _build_mean_column(
        self, key: str, label: str, means: Means, note: str, *, kind: str = "", own: bool = True
    ) -> SuiteColumn:
        """The column of a mean; `own` says that it is over the model's own tasks, whatever these selected."""

        def build_column_mean(row: int) -> Cell:
            average = self.scores.averages.get(row) if own else None
            details = average if average and (key == "tasks" or "printed" in average) else None
            mean = mean_cell(means, row, details, self.scores.entries[row].seeds)
            return mean_of(mean, self.scores, row, kind) if own else mean

        return SuiteColumn(
            key=key, label=label, group=kind or "Mean", note=note, cell=build_column_mean, scored=True,
            kind=kind, sort=_replace_nan(np.where(means.complete, means.values, np.nan)).__getitem__,
            card=kind or ("Mean" if key == self.mean else ""),
        )  # fmt: skip

    def _iter_certainty_columns(self) -> Iterator[SuiteColumn]:
        """How sure the mean of a reader's own tasks and the rank by it are; nothing for other ranks."""
        if self.scores.site_suite.typed or self.mean == "untouched" or self.state.rank == "borda":
            return
        by_tasks, by_examples = map(_replace_nan, self.scores.compute_mean_halves(self.mean))
        ranked = np.flatnonzero(self.ranks.place)
        values, weights = self.scores.weigh_columns(self.mean)
        bounds = dict(zip(ranked.tolist(), bound_ranks(values[ranked], weights).tolist(), strict=True))
        texts: dict[int, Any] = {row: "–".join(map(str, sorted({*ends}))) for row, ends in bounds.items()}
        rank = (
            "The ranks that the tasks leave open: as many models are better, or worse, beyond the interval."
        )
        if values.shape[1] < FEWEST:
            rank = f"Fewer than {FEWEST} tasks leave every rank open."
            texts, bounds = dict.fromkeys(texts, Cell(text="–", kind="none")), {}
        yield from (
            _build_number_column("half", "± 95 %", by_tasks, score_text, group="Mean", card="± 95 %",
                                 note="Half of the interval of the mean over tasks such as these.",
                                 optional=True),
            _build_number_column("half_examples", "± 95 %, examples", by_examples, score_text, group="Mean",
                                 optional=True, note="The same over the examples of these tasks."),
            SuiteColumn("places", "possible ranks", lambda row: texts.get(row, ""), up=True, group="Mean",
                    sort=lambda row: bounds.get(row, [None])[0], card="Possible ranks", note=rank),
        )  # fmt: skip

    def _iter_type_columns(self, several: bool) -> Iterator[SuiteColumn]:
        """The means within each of several types, each with its tasks behind it."""
        columns = self.scores.site_suite.suite.columns
        for kind in dict.fromkeys(column.type for column in columns):
            if several and kind in self.scores.by_type:
                means = self.scores.by_type[kind]
                note = f"The mean over {format_task_count(means.expected)}."
                yield self._build_mean_column(f"type:{kind}", "mean", means, note, kind=kind)
            yield from (
                self._build_task_column(at) for at, column in enumerate(columns) if column.type == kind
            )

    def _build_task_column(self, at: int) -> SuiteColumn:
        scores, column = self.scores, self.scores.site_suite.suite.columns[at]
        whole = "; an imported model that lacks some has its source's own number of the whole"
        many = f": the mean of {len(column.tasks)} tasks{whole}" if len(column.tasks) > 1 else ""
        other = f"; ‡ mostly on {usual}" if (usual := self._usual_data[at]) else ""
        return SuiteColumn(
            key=f"task:{column.name}", label=column.name, group=column.type, kind=column.type, scored=True,
            sort=_replace_nan(np.where(scores.counted[:, at], scores.values[:, at], np.nan)).__getitem__,
            href=format_column_path(scores.site_suite, column),
            note=f"{column.name}{many}; data revision {_name_pinned(column)}{other}",
            cell=lambda row: self._build_marked_task(row, at),
        )  # fmt: skip

    def _build_unseen_cell(self, row: int) -> Cell:
        """The share of the tasks that a model was not trained on, marked where it was trained on any."""
        share, seen = float(self.scores.zero_shot[row]), self.scores.list_seen_columns(row)
        if share != share:
            return Cell(text="?", note="Its makers do not say.")
        note = f"trained on {', '.join(seen)}" if seen else ""
        return Cell(text=f"{share:.0%}", value=share, kind="leak" if seen else "", note=note)

    def _build_marked_task(self, row: int, at: int) -> Cell:
        """A task's score, marked where it is at chance level."""
        cell = build_task_cell(
            self.scores, row, at, self.entries, (self._usual_sources[row], self._usual_data[at])
        )
        return cell.mark("chance") if cell.value is not None and self.scores.at_chance[row, at] else cell

    @cached_property
    def shown(self) -> list[SuiteColumn]:
        """The columns that are shown."""
        state, types = self.state, self.scores.by_type
        check_name("task type", self._type, types, then="The suite's page offers all types.")
        if "all" in state.cols:
            return self.columns
        picked = {self._resolve_column_key(name) for name in state.cols}
        return [c for c in self.columns if c.key in ALWAYS or self._should_show_column(c, picked)]

    def _should_show_column(self, column: SuiteColumn, picked: set[str]) -> bool:
        state, key = self.state, column.key
        if self._type and column.kind:
            return column.kind == self._type
        if picked:
            return key in picked
        if key in ("mean_rank", "types", "how"):
            how = state.each == "revision" or state.origin == "reported"
            return how if key == "how" else key == "types" and len(self.scores.by_type) > 1
        if column.optional and column.sort:
            return any(column.sort(row) is not None for row in self.rows)
        return not key.startswith("task:") or self._has_task_columns(column.kind)

    def _has_task_columns(self, kind: str) -> bool:
        """Whether the tasks of a type have columns of their own."""
        return not self.folds or "all" in self.state.tasks or kind in self.state.tasks

    @property
    def folds(self) -> bool:
        """Whether the tasks of a type can be folded."""
        few = len(self.scores.site_suite.suite.columns) <= FEW
        # A reader's own set may have hundreds of tasks of one type.
        single = len(self.scores.by_type) < 2 and self.scores.site_suite.typed
        return not (few or self.state.cols or self._type or single)

    def find_task_columns(self) -> list[int]:
        """The places of the suite's columns, or of those of the type that the state names."""
        columns = self.scores.site_suite.suite.columns
        return [at for at, column in enumerate(columns) if self._type in ("", column.type)]

    def _resolve_column_key(self, name: str) -> str:
        """The key of the column that a name stands for: a key, a task, a type, or a column's only task."""
        keys = {column.key for column in self.columns}
        if name == "mean":
            return "borda" if self.state.rank == "borda" else self.mean
        name = UNTOUCHED[name] if name in UNTOUCHED and name not in keys else name
        suite = self.scores.site_suite.suite
        only = [c.name for c in suite.columns if [t.name for t in c.tasks] == [name.removeprefix("task:")]]
        tries = (name, f"task:{name}", f"type:{name}", *(f"task:{one}" for one in only if len(only) == 1))
        column = next((key for key in tries if key in keys), None)
        if column is None:
            names = [key.partition(":")[2] or key for key in keys]
            raise build_missing_error("column", name, names, then="The suite's page offers all columns.")
        return column

    @cached_property
    def _state(self) -> TableState:
        """The state with the key of the column that sorts."""
        sign, name = "-" if self.state.sort.startswith("-") else "", self.state.sort.removeprefix("-")
        return self.state.model_copy(update={"sort": sign + self._resolve_column_key(name)})

    @cached_property
    def ordered(self) -> list[int]:
        """The rows in order, those of papers last; groups stand in the order of their first rows.

        Rows without a value are last, by how many of the tasks they have.
        """
        means = self.scores.mean(self.mean)
        count, values = means.count.tolist(), np.nan_to_num(means.values, nan=-1.0).tolist()
        # Three stable sorts, the one that matters most last.
        rows = sorted(self.rows, key=lambda row: (-count[row], -values[row]))
        rows = sort_rows(rows, self.columns, self._state.sort)
        rows.sort(key=lambda row: self.scores.entries[row].origin == "reported")
        return [*chain(*group_by(rows, self._find_row_group).values())]

    def _find_row_group(self, row: int) -> str:
        """The heading that a row stands under; empty for none."""
        entry, by = self.scores.entries[row], self.state.group
        if by:
            return getattr(entry, by) or f"no {by}"
        return "Printed in papers, without rank" if entry.origin == "reported" else ""

    @cached_property
    def _best(self) -> dict[tuple[int, str], str]:
        """The best and the second best cells of each column among the rows that are shown."""
        rows = [row for row in self.rows if self.scores.entries[row].origin != "reported"]
        marked: dict[tuple[int, str], str] = {}
        for column in self.shown:
            if column.scored and column.sort:
                values = {row: value for row in rows if (value := column.sort(row)) is not None}
                # By value, so that equal cells have the same mark.
                marks = dict(zip(sorted({*values.values()}, reverse=True), ("best", "second"), strict=False))
                marked |= {(row, column.key): marks[value] for row, value in values.items() if value in marks}
        return marked

    @cached_property
    def _frontier(self) -> set[int]:
        """The ranked rows that no smaller one of those shown beats by the mean that ranks."""
        means = self.scores.mean(self.mean).values
        sizes = {row: self.scores.entries[row].parameters for row in self.rows}
        rows = [r for r, size in sizes.items() if size and self.ranks.place[r] and self.passes_bounds(r)]
        places = compute_frontier([(sizes[row], float(means[row])) for row in rows], "lower")
        return {rows[place] for place in places}

    def build_suite_table(self, rows: Sequence[int], notes: Sequence[str], path: str = "") -> Table:
        """Some rows with the headings above them, and the columns with URLs that sort and fold them.

        Args:
            rows: The rows.
            notes: Sentences below them.
            path: The page's path, where the table stands on another one.
        """
        scores = self.scores
        by = "Borda points" if self.state.rank == "borda" else f"the mean over {self.mean}"
        caption = f"{scores.site_suite.suite.title}: scores × 100, ranked by {by}"

        def build_marked_cell(column: SuiteColumn, row: int) -> Cell:
            mark = "frontier" if column.key == "parameters" and row in self._frontier else ""
            return column.build_cell(row).mark(self._best.get((row, column.key), mark))

        def find_row_kind(row: int) -> str:
            complete = "" if scores.over_tasks.complete[row] else "part"
            return "beside" if self.state.is_beside(scores.entries[row]) else complete

        fields = [replace(column, cell=partial(build_marked_cell, column)) for column in self.shown]
        borda = [f"Borda: h{head.note[1:]}" for head in self.shown if head.key == "borda"]
        table = fill_table(
            "suite", caption, fields, rows, state=self._state, path=path, group=self._find_row_group,
            key=lambda row: scores.entries[row].slug, notes=[*notes, *borda], cards=True,
            kind=find_row_kind,
        )  # fmt: skip
        heads = [
            replace(
                head, href=column.href, open=self._has_task_columns(column.kind),
                fold=self._format_fold_url(column.kind) if column.kind and self.folds else "",
            )
            for head, column in zip(table.columns, self.shown, strict=True)
        ]  # fmt: skip
        return replace(table, columns=heads)

    def _format_fold_url(self, kind: str) -> str:
        """The URL that opens or folds a type."""
        types = list(self.scores.by_type) if "all" in self.state.tasks else list(self.state.tasks)
        others = [name for name in types if name != kind]
        return f"?{self.state.build_query(tasks=others if kind in types else [*types, kind])}"


def _list_frequent_values(values: Sequence[str], current: str) -> list[tuple[str, str]]:
    """The 40 most frequent values as options; empty without any value."""
    names = sorted({*dict(Counter(sorted(values)).most_common(40)), current} - {""})
    return [("", "any"), *((name, name) for name in names)] if names else []


def _build_number_column(
    key: str, label: str, values: Sequence[float | None], form: str | Callable[[Any], str] = "{:,.0f}",
    **more: Any,
) -> SuiteColumn:  # fmt: skip
    """A column of numbers."""
    text = form.format if isinstance(form, str) else form

    def build_number_cell(row: int) -> Cell:
        value = values[row]
        return EMPTY if value is None else Cell(text=text(value), value=value)

    return SuiteColumn(key, label, build_number_cell, values.__getitem__, **more)


def _replace_nan(values: Floats) -> list[float | None]:
    """Numbers, None for what is none."""
    return [None if value != value else value for value in values.tolist()]


def plot_suite_sizes(table: SuiteTable, name: str = "size", most: int = DRAWN) -> Chart:
    """The mean that ranks against the number of parameters, of the ranked rows; of papers' where none is.

    Of more than `most` rows the best, and those that no smaller one beats.
    """
    scores, over = table.scores, "types" if table.mean == "types" else "tasks"
    means, ranked = scores.mean(over), table.ranks.place > 0
    drawn = ranked if ranked.any() else means.complete
    points = [
        Point(
            label=name_entry_model(entry, short=True), x=entry.parameters,
            href=_format_entry_path(entry), y=round(100 * float(means.values[row]), 2), series=entry.origin,
        )
        for row in table.ordered if drawn[row] for entry in [scores.entries[row]]
    ]  # fmt: skip
    title = f"{scores.site_suite.suite.title}: score against size"
    return build_size_chart(title, f"Mean over {over}", points, name, most)


def _format_entry_path(entry: Entry) -> str:
    return f"/papers/{entry.source}" if entry.origin == "reported" else f"/models/{entry.model_slug}"


def name_entry_model(entry: Entry, *, short: bool = False) -> str:
    """A model's name, or its short one; of a paper's row that of its backbone, as on every other page."""
    backbone = find_backbone(entry.model) if entry.origin == "reported" else None
    name = entry.short_name if short else entry.model
    return backbone.name if backbone else name


def build_model_cell(entry: Entry) -> Cell:
    """A model's name, or that of a paper's row."""
    text = name = name_entry_model(entry)
    note = entry.lineage_text or entry.treatment
    if entry.origin == "reported":
        text = f"{name}: {entry.treatment.rpartition(';')[2].rpartition(': ')[2].strip()}"
        note = f"{note}; printed as {entry.model}"
    return Cell(
        text=text, value=name, href=_format_entry_path(entry), kind=format_entry_kinds(entry), note=note
    )


def format_entry_kinds(entry: Entry) -> str:
    """The marks of how an entry's model was trained and searched with, as kinds of a cell."""
    marks: list[tuple[str, object]] = [("approximate", entry.approximate), ("changed", entry.modified)]
    if line := entry.lineage:
        marks += [("own", line.all_own_data), ("changed", line.changed), ("selected", line.all_selected_on)]
    marks.append((entry.output, entry.output in OUTPUTS))
    return " ".join(kind for kind, there in marks if there)


def build_treatment_cell(entry: Entry) -> Cell:
    """An imported model's revision, a measured one's treatment, where a row is printed."""
    revision = entry.revision or ""
    revision_text = revision[:10] if entry.trust == "commit" else revision.replace("_", " ")
    text = entry.lineage_text or entry.treatment or revision_text
    short = text if len(text) <= 36 else f"{text[:35]}…"
    return Cell(text=short, value=text, note=text if short != text else "")


def mean_cell(means: Means, row: int, average: Mapping[str, Any] | None, seeds: Sequence[int] = ()) -> Cell:
    """The cell of a mean: with its interval or deviation, or in italics if it is over some tasks only.

    Args:
        means: The means of all rows.
        row: The row.
        average: What else is known of its mean (SuiteScores.averages); None for nothing.
        seeds: The seeds that the mean is over.
    """
    value, count, average = float(means.values[row]), int(means.count[row]), average or {}
    if not count:
        return Cell(text="–", kind="none")
    if "printed" in average:
        return _build_printed_mean(means, row, average["printed"])
    cell = build_score_cell(value)
    if count != means.expected:
        cell = replace(cell, kind="part", note=f"of {count} of {means.expected}")
    elif average.get("interval"):
        low, high = average["interval"]
        # Half of the width, times 100.
        text = f"{cell.text} ± {50 * (high - low):.2f}"
        return replace(cell, text=text, note="± half of the 95 % interval")
    elif "spread" in average:
        spread = average["spread"]
        half = "" if spread.half is None else f" ± {score_text(spread.half)}"
        note = f"over {spread.text}; ± half of the 95 % interval by the choice of examples"
        cell = replace(cell, text=f"{cell.text}{half}", note=note)
    return add_seed_deviation(cell, float(means.deviations[row]), seeds)


def build_mean_cell(scores: SuiteScores, row: int, over: str = "tasks", *, detailed: bool = True) -> Cell:
    """The cell of a mean, marked as `mean_of` does.

    Args:
        scores: The suite.
        row: The row.
        over: "tasks", "types" or a task type.
        detailed: Whether a mean over tasks has its interval, or the spread of small tasks.
    """
    average = scores.averages.get(row) if detailed and over == "tasks" else None
    cell = mean_cell(scores.mean(over), row, average, scores.entries[row].seeds)
    return mean_of(cell, scores, row, over if over in scores.by_type else "")


def build_count_cell(scores: SuiteScores, row: int) -> Cell:
    """How many of a suite's tasks count; of small tasks over how many examples the mean is."""
    average, count = scores.averages.get(row) or {}, int(scores.over_tasks.count[row])
    if average.get("types"):
        return Cell(text="by type", note="The paper prints means of types only.")
    if "spread" in average:
        note = "Too few for a mean with larger tasks."
        return Cell(text=average["spread"].text, value=count, note=note)
    return Cell(text=f"{count}/{scores.over_tasks.expected}", value=count)


def _build_printed_mean(means: Means, row: int, printed: float | None) -> Cell:
    """A mean of a paper's row: of a type as printed, else made of what is printed."""
    value = float(means.values[row])
    if means.over not in ("tasks", "types"):
        return Cell(text=f"{100 * value:.1f}", value=value)
    note = "made of the printed numbers" + (f"; the paper prints {100 * printed:.1f}" if printed else "")
    kind = "" if means.count[row] == means.expected else "part"
    return Cell(text=score_text(value), value=value, kind=kind, note=note)


def mean_of(cell: Cell, scores: SuiteScores, row: int, kind: str = "") -> Cell:
    """The cell of a mean, marked where some of its tasks selected the model, or are at chance level.

    Args:
        cell: The cell of the mean.
        scores: The suite.
        row: The row.
        kind: The task type that the mean is over; empty for all tasks.
    """
    has_lineage = cell.value is not None and scores.entries[row].lineage is not None
    selected = scores.find_selection_columns(row, kind) if has_lineage else []
    if selected:
        verb = "is" if len(selected) == 1 else "are"
        cell = cell.mark("selected", f"{', '.join(selected)} chose the model, and {verb} in this mean")
    suite = scores.site_suite.suite
    # A type may be of columns alone that the suite only shows.
    shown = range(len(suite.columns)) if kind else select_mean_columns(suite)
    places = [at for at in shown if kind in ("", suite.columns[at].type) and scores.counted[row, at]]
    count = int(scores.at_chance[row, places].sum())
    return cell.mark("chance", f"{count} of its {len(places)} tasks at chance level") if count else cell


def describe_untouched(untouched: UntouchedMeans) -> str:
    """What the means over untouched tasks leave out, and why."""
    part = untouched.part
    names, is_single = ", ".join(part.selected), len(part.selected) == 1
    return (
        f"The means over the {part.count} untouched leave out {names}: models of this table were chosen by "
        f"their scores there, which err upward. They are over the same tasks for every model; the means "
        f"over all {part.count + len(part.selected)} have {'it' if is_single else 'them'}."
    )


def build_task_cell(
    scores: SuiteScores, row: int, at: int, entries: Mapping[int, Entry], usual: tuple[int, str] | None = None
) -> Cell:
    """A task's score, or why it has none.

    Args:
        scores: The suite.
        row: The row.
        at: The column's place.
        entries: Entries by number, single revisions among them.
        usual: On a board, whose heads name the pinned data: the entry and the data that headings name.
    """
    reason, value = REASONS[scores.reasons[row, at]], float(scores.values[row, at])
    entry, column = scores.entries[row], scores.site_suite.suite.columns[at]
    if reason == "seeds":
        return build_seeds_cell(int(scores.seeds[row, at]), len(entry.seeds))
    if reason in GONE:
        return Cell(text=GONE[reason], kind=reason)
    if entry.origin == "reported":
        apart = scores.averages.get(row, {}).get("apart")
        why = "its convention is not known" if apart else ""
        return Cell(text=f"{100 * value:.1f}", value=value, kind="apart" if apart else "", note=why)
    texts, number = int(scores.trained_on[row, at]), int(scores.results[row, at])
    low, high = float(scores.low[row, at]), float(scores.high[row, at])
    notes = [f"95 %: {score_text(low)} to {score_text(high)}"] if low == low else []
    kinds = ["other"] if reason == "other" else []
    if entry.lineage or entry.trained_on or texts:
        scopes = build_column_scopes(column)
        kinds = [*find_leak_kinds(entry, scopes, texts, column.name), *kinds]
        notes += [*describe_score_choices(entry, scopes), *([format_leak_count(texts)] if texts else [])]
    notes += _list_revision_notes(scores, row, at, entries, usual)
    href = f"/results/{number}" if number else ""
    cell = build_score_cell(value, href, kind=" ".join(kinds), note="; ".join(notes))
    if (stated := scores.contradicted.get((row, at))) is not None:
        parts = f"the mean of its {len(column.tasks)} parts"
        cell = cell.mark("contradicted", f"{parts}; of the whole the source says {score_text(stated)}")
    return add_seed_deviation(cell, float(scores.deviations[row, at]), entry.seeds)


def _list_revision_notes(
    scores: SuiteScores, row: int, at: int, entries: Mapping[int, Entry], usual: tuple[int, str] | None
) -> list[str]:
    """Notes on the revision of a joined model, and on data that is not the pinned one."""
    notes, source = [], int(scores.sources[row, at]) if scores.sources.size else 0
    usual_source, usual_data = usual or (None, "")
    if len(scores.entries[row].revisions) > 1 and source != usual_source:
        # On a board what has no note is of the revision that the heading names.
        unnamed = ("unknown" if source else "several") if usual else ""
        notes += [f"model revision {name}" for name in [_get_revision(entries, source) or unnamed] if name]
    if REASONS[scores.reasons[row, at]] == "other" and (name := _name_data(scores, row, at)) != usual_data:
        pinned = "" if usual else f", pinned {_name_pinned(scores.site_suite.suite.columns[at])}"
        notes.append(f"data revision {name}{pinned}")
    return notes


def _name_data(scores: SuiteScores, row: int, at: int) -> str:
    return scores.data.get((row, at), "")[:10] or "unknown"


def _get_revision(entries: Mapping[int, Entry], number: int) -> str:
    return (entries[number].revision or "")[:10] if number in entries else ""


def _name_pinned(column: Column) -> str:
    revisions = {task.data.revision[:10] for task in column.tasks}
    return "several" if len(revisions) > 1 else "".join(revisions) or "none"
