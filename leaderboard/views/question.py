"""A question, which encoder for which tasks under which bounds, and its answer as a suite's table."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from itertools import chain
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from harness.core.errors import UsageError, find_similar_names
from harness.core.types import Column, Suite, SuiteOptions
from harness.plan import catalog
from harness.results.scores import score_text
from leaderboard.data.descriptions import describe_task, name_language
from leaderboard.data.queries import LICENCES, Queries
from leaderboard.data.ranking import choose_shared_columns, select_mean_columns
from leaderboard.data.scores import SuiteScores
from leaderboard.data.suites import SiteSuite, list_conventions
from leaderboard.views.cells import describe_stated
from leaderboard.views.reproductions import join_models, load_comparisons
from leaderboard.views.suite_table import SuiteTable, TableState, explain_missing_model
from leaderboard.web.filters import CHIPS, EMPTY_IS_NONE, ZERO
from leaderboard.web.page import NotFound, check_name
from leaderboard.web.page_state import FilterForm, Options, State, Text, build_address
from leaderboard.web.tables import Table, link, values_table

PATH, ANY = "/rank", "any"

BEST, TOP = 5, ("parameters", "mean", "half", "places", "unseen", "max_tokens")
"""The rows of a short answer, and its columns beside rank and model."""

LISTED, MOST, NEAREST, NAMED = 100, 60, 8, 3
"""The tasks left out, the languages of a form, models of like names, tasks in a sentence, at most."""

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "MTEB, English (v2)": {"suite": "mteb", "models": 1},
    "MTEB, English (v1)": {"suite": "mteb-v1", "models": 1}, "BEIR": {"suite": "beir", "models": 1},
    "MTEB, multilingual": {"suite": "mteb-MTEB-Multilingual-v2"},
    "MTEB, Europe": {"suite": "mteb-MTEB-Europe-v1"}, "German": {"language": "deu"},
    "Code": {"suite": "mteb-MTEB-Code-v1"}, "Long documents": {"suite": "mteb-LongEmbed"},
    "GLUE": {"suite": "glue", "models": 1},
    "ModernBERT’s retrieval": {"suite": "beir,mldr,codesearchnet,stackqa"},
    "Efficient encoders": {"suite": "mteb-efficient8", "models": 1},
    "Under 200 M, open, 8k, English retrieval": {
        "suite": "mteb", "type": "Retrieval", "most": 200, "tokens": 8192, "open": 1,
        "licence": "permissive", "language": "eng",
    },
}  # fmt: skip
"""Questions that many readers have, by name."""


def _split_names(value: Any) -> Any:
    """Names of a field, which a reader may also type into one, with commas between them."""
    texts = value if isinstance(value, list) else [value]
    return [name.strip() for text in texts for name in str(text).split(",") if name.strip()]


Names = Annotated[list[Text], Field(max_length=200), BeforeValidator(_split_names)]


class QuestionState(TableState):
    """The parameters of a question: the tasks, and the bounds of the models."""

    suite: Names = Field([], description="Tasks of these suites, by their names in addresses; any for all.")
    type: Names = Field([], description="Tasks of these types.")
    language: Names = Field([], description="Tasks in these languages, e.g. deu: the subsets in them alone.")
    domain: Names = Field([], description="Tasks of these domains, e.g. Legal.")
    task: Names = Field([], description="These tasks alone, by name.")
    weight: Names = Field([], description="What a type or a task weighs in the means, e.g. Retrieval:2.")
    models: Annotated[int | None, EMPTY_IS_NONE] = Field(
        None, ge=1, le=100_000, description="Rank at least so many models, over the tasks that these share; "
        "without it over the tasks with which the ranking rests on the most scores.",
    )  # fmt: skip

    @property
    def suites(self) -> list[str]:
        """The suites that were named; none for every suite."""
        return [name for name in self.suite if name != ANY]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The ranking that answers a question.

    Attributes:
        state: The question.
        table: The models that pass the bounds, over the tasks that the ranked ones share.
        pool: All tasks that were asked for (of a model to stand beside others: those that it has), with the
            scores of these models.
        places: Of these tasks those that are ranked by.
        widths: Every (tasks, models) that the ranking could have under the bounds, the most tasks first.
        twins: The tasks that were left out, each with the name under which it counts.
        unknown: How many models pass all bounds but one, of which their fact is not known, by its name.
        wider: How many more models the next wider ranking has, over how many tasks, and its first model.
    """

    state: QuestionState
    table: SuiteTable
    pool: SuiteScores
    places: Sequence[int]
    widths: Sequence[tuple[int, int]]
    twins: Mapping[str, str]
    unknown: Mapping[str, int]
    wider: tuple[int, int, str] | None

    @cached_property
    def ranked(self) -> list[int]:
        """The rows that are ranked, in order."""
        return [row for row in self.table.ordered if self.table.ranks.place[row]]

    @property
    def passing(self) -> int:
        """How many models pass the bounds."""
        return len(self.table.scores.entries) - len(self.table.scores.unranked)

    def build_top_table(self) -> Table:
        """The best rows with the columns of a card, for the first page."""
        table = replace(self.table, state=self.state.apply_changes(cols=list(TOP)))
        return replace(table.build_suite_table(self.ranked[:BEST], [], PATH), name="top")

    def describe(self, default: str = "") -> str:
        """The answer in sentences; `default` is what stands for the suite that the reader did not name."""
        columns, scores = len(self.pool.site_suite.suite.columns), self.table.scores
        place = self.table.ranks.place
        apart, ranked = [scores.entries[row].model for row in sorted(scores.unranked)], self.ranked
        if not columns:
            return "No task is of all that was asked for."
        if not ranked:
            beside = "".join(f" {model} does not pass them either." for model in apart)
            which = f"any of the {columns} tasks" if columns > 1 else "the task"
            return f"No model that passes these bounds has a score on {which}.{beside}"
        every, single = len(self.places) == columns, len(self.places) == 1
        tasks = f"all {columns} tasks" if every else f"the same {len(self.places)} of {columns} tasks"
        if single:
            tasks = "the one task" if every else f"one of {columns} tasks"
        passing = "1 model that passes" if self.passing == 1 else f"{self.passing} models that pass"
        has, are = ("has", "is") if len(ranked) == 1 else ("have", "are")
        # Whatever the table is sorted by.
        best = _find_first_row(self.table)
        first, level = scores.entries[best], int((place[ranked] == place[best]).sum()) - 1
        others = f", level with {level} other{'s' if level > 1 else ''}" if level else ""
        mean = scores.mean(self.table.mean).values[best]
        texts = {column.key: column.build_cell(best).text for column in self.table.columns
                 if column.key in ("half", "places")}  # fmt: skip
        half = texts.get("half")
        rank = texts.get("places", "").replace("–", " to ")
        among = f" among the {len(ranked)} models with {tasks}" if len(ranked) > 1 else ""
        sure = f" ± {half}, rank {rank}{among}" if half else ""
        stated = describe_stated(scores, best, self.table.entries)
        stated = f"; {stated}" if stated else ""
        sentences = [
            f"First is {first.model} ({score_text(float(mean))}{sure}{stated}){others}.",
            f"Of {passing}, {len(ranked)} {has} {tasks}, "
            f"and {are} ranked over {'it' if single else 'these'}.",
        ]
        if self.wider:
            more, fewer, winner = self.wider
            other = f", over which {winner} is first" if winner != first.model else ""
            have = "s have" if more > 1 else " has"
            sentences.append(f"{more} more model{have} only {fewer} of them{other}.")
        if sure:
            sentences.append(
                "± 95 % is how far the mean would move over other tasks of this kind, of all models alike: "
                "ranks are by differences."
            )
        for fact, count in self.unknown.items():
            models = "1 model is" if count == 1 else f"{count} models are"
            sentences.append(f"{models} left out, as the {fact} is not known.")
        if default:
            sentences.append(f"These are the tasks of {default}, as no suite was chosen.")
        if len(ranked) < (self.state.models or 0):
            sentences.append(f"No more than {len(ranked)} can be ranked.")
        names = [column.name for column in scores.site_suite.suite.columns]
        over = f"these {len(names)} tasks" if len(names) > NAMED else " and ".join(names)
        sentences += [
            f"{scores.entries[row].model} has rank {place[row]} of {len(ranked)} over {over}."
            for row in ranked
            if self.state.is_beside(scores.entries[row])
        ]
        sentences += [f"{model} does not pass the bounds, and is shown without a rank." for model in apart]
        return " ".join(sentences)

    def list_widths(self) -> list[tuple[str, str, bool]]:
        """The choices between more tasks and more models: label, URL, current; this one, and the largest."""
        best = sorted(self.widths, key=lambda width: width[0] * width[1])[-10:]
        current = (len(self.places), len(self.ranked))
        chosen = [width for width in self.widths if width == current]
        choices = []
        for tasks, models in sorted({*best, *self.widths[:1], *chosen}, reverse=True):
            label = f"{tasks} task{'s' if tasks > 1 else ''}: {models} model{'s' if models > 1 else ''}"
            href = f"{PATH}?{self.state.build_query(models=models, page=1)}"
            choices.append((label, href, (tasks, models) == current))
        return choices

    def build_left_out_table(self) -> Table:
        """The tasks that were asked for and are not ranked by, with what each would do."""
        scores, columns = self.pool, self.pool.site_suite.suite.columns
        complete = scores.counted[:, self.places].all(axis=1)
        counts = [(int(scores.counted[:, at].sum()), int((complete & scores.counted[:, at]).sum()), column)
                  for at, column in enumerate(columns) if at not in {*self.places}]  # fmt: skip
        counts.sort(key=lambda count: (-count[1], -count[0]))
        more = f"{len(counts) - LISTED} further ones are not listed." if len(counts) > LISTED else ""
        labels = {"name": "Task", "type": "Type", "models": "Models that have it", "ranked": "Ranked with it"}
        rows = []
        for models, both, column in counts[:LISTED]:
            href = build_address(PATH, self.state.build_query(task=[column.name]))
            rows.append((link(column.name, href), column.type, models, both))
        caption = f"Tasks left out: {len(counts)} of {len(columns)}"
        return values_table("left-out", caption, labels, rows, notes=[more] if more else [])


def complete_question(queries: Queries, state: QuestionState) -> QuestionState:
    """The question; one without suite or task is about the suite that the named model has most of.

    Without a model it is about the first suite; where that has no such task, about all suites.
    """
    # Records may have further names for the model's files.
    if state.beside and not any(map(state.is_beside, queries.entries.values())):
        named = queries.find_named_entries(state.beside)
        state = state.apply_changes(beside=named[0].model) if named else state
    if state.suite or state.task:
        return state
    slugs = sorted(queries.entries_of_suites, key=lambda slug: slug != "mteb")
    if entries := [entry.id for entry in queries.entries.values() if state.is_beside(entry)]:
        scopes = {score.scope for score in queries.find_scores(entry=entries)}
        slugs.sort(key=lambda slug: -_count_columns(queries, slug, scopes))
    completed = state.apply_changes(suite=slugs[:1])
    has_tasks = slugs and any(_iter_columns(queries.suites[slugs[0]], completed, {}))
    return completed if has_tasks else state


def _count_columns(queries: Queries, slug: str, scopes: set[int]) -> int:
    """How many columns of a suite have any of some scopes."""
    listed = queries.suites[slug]
    views = [queries.list_scope_columns(listed, view) for view in list_conventions(listed.suite)]
    return sum(not scopes.isdisjoint(chain(*column)) for column in zip(*views, strict=True))


def answer_question(queries: Queries, state: QuestionState) -> Answer:
    """Rank the models that pass the bounds over the tasks that they share.

    Raises:
        NotFound: The question names what does not exist.
    """
    question, twins = _build_question(queries, state)
    # Columns that a suite only shows are in no mean here either.
    question = question.select_columns(select_mean_columns(question.suite))
    scores = queries.load_suite_scores(
        question, state.view, pinned=state.revisions == "pinned", revisions=state.each == "revision"
    )

    def build_table(scores: SuiteScores, state: QuestionState = state) -> SuiteTable:
        return SuiteTable(
            scores=scores, state=state, path=PATH, cards=queries.cards, entries=queries.entries,
            comparisons=load_comparisons(queries), pages=join_models(queries),
        )  # fmt: skip

    # A model was trained on none of the tasks that rank: which these are, the others decide.
    unbound = build_table(scores, state.apply_changes(zero=""))
    rows = [row for row in unbound.rows if scores.entries[row].origin != "reported"]
    passing = np.array([unbound.passes_bounds(row) for row in rows], bool)
    slugs = {scores.entries[row].model_slug for row, passes in zip(rows, passing, strict=True) if passes}

    def count_unknown(is_unknown: Callable[[SuiteTable, int], bool], **free: Any) -> int:
        """How many further models pass without a bound, as what it is about is not known of them."""
        table = build_table(scores, state.apply_changes(zero="", beside="", **free))
        some = [(row, scores.entries[row]) for row in table.rows]
        return sum(entry.origin != "reported" and entry.model_slug not in slugs and is_unknown(table, row)
                   for row, entry in some)  # fmt: skip

    unknown = {}
    if state.tokens:
        unknown["length of the input"] = count_unknown(
            lambda table, row: table.scores.entries[row].length is None, tokens=None
        )
    if state.licence not in ("", "unknown"):
        unknown["licence"] = count_unknown(lambda table, row: not table.find_card(row).licence, licence="")
    offered = list(range(len(question.suite.columns)))
    if state.beside:
        beside = [row for row in rows if state.is_beside(scores.entries[row])]
        if not beside:
            raise explain_missing_model(queries.entries.values(), state)
        offered = np.flatnonzero(scores.counted[beside].any(axis=0)).tolist()
    question = question.select_columns(offered)
    scores = scores.narrow(rows, offered, question)
    named = np.array([state.is_beside(entry) for entry in scores.entries], bool)

    def select_rows(places: Sequence[int]) -> NDArray[np.bool_]:
        return passing & state.select_zero_shot(scores.measure_zero_shot(places))

    places, widths = choose_shared_columns(scores.counted, state.models, select_rows)
    if not places and named.any():
        # No model passes: the named one stands alone.
        places = [*range(len(offered))]
    chosen = np.flatnonzero(named | select_rows(places))
    pool = scores.narrow(chosen.tolist(), range(len(offered)), question)

    def build_answer(places: Sequence[int]) -> SuiteTable:
        chosen = np.flatnonzero(named | select_rows(places))
        narrowed = scores.narrow(chosen.tolist(), places, question.select_columns(places))
        unranked = np.flatnonzero(~select_rows(places)[chosen]).tolist()
        return build_table(replace(narrowed, unranked=frozenset(unranked)))

    table = build_answer(places)
    answer = Answer(
        state=state, table=table, pool=pool, places=places, widths=widths, twins=twins, wider=None,
        unknown={fact: count for fact, count in unknown.items() if count},
    )  # fmt: skip
    ranked = len(answer.ranked)
    for models, tasks in sorted((models, tasks) for tasks, models in widths if models > ranked)[:1]:
        wide = build_answer(choose_shared_columns(scores.counted, models, select_rows)[0])
        first = wide.scores.entries[_find_first_row(wide)].model
        return replace(answer, wider=(models - ranked, tasks, first))
    return answer


def _find_first_row(table: SuiteTable) -> int:
    """The row of rank 1 with the highest mean, of a table with ranks."""
    place, means = table.ranks.place, table.scores.mean(table.mean).values
    return int(min(np.flatnonzero(place), key=lambda row: (place[row], -means[row])))


def list_nearest_models(queries: Queries, state: QuestionState) -> list[tuple[str, str, bool]]:
    """The models with the nearest names, those with its text first: label, URL, current."""
    text = state.beside.casefold()
    models = {entry.model for entry in queries.entries.values() if entry.origin != "reported"}
    names = sorted(models, key=lambda name: (len(name), name))
    near = [name for name in names if text in name.casefold()] + find_similar_names(state.beside, names)
    return [(name, f"{PATH}?{state.build_query(beside=name, page=1)}", False)
            for name in [*dict.fromkeys(near)][:NEAREST] if name.casefold() != text]  # fmt: skip


def _build_question(queries: Queries, state: QuestionState) -> tuple[SiteSuite, Mapping[str, str]]:
    """The tasks that were asked for as a suite, and those that count under another name (_merge_columns)."""
    for name in state.suites:
        check_name("suite", name, queries.suites, then="The page /suites lists all.")
    offers = _count_names(queries) if state.type or state.language or state.domain else {}
    for kind, counts in offers.items():
        for name in getattr(state, kind):
            check_name(kind, name, counts, then="The form of /rank has those of most tasks.")
    # In the site's order, whatever that of the address.
    suites = [listed for slug, listed in queries.suites.items() if slug in (state.suites or queries.suites)]
    columns, twins = _merge_columns(suites, state)
    names = {c.name for one in suites for c in one.suite.columns} if state.task else set()
    for name in state.task:
        _check_other_suites(queries, state, name, names)
        check_name("task", name, names, then="The page /tasks lists all.")
    chosen = tuple(columns.values())
    # One suite keeps its conventions, and what its means are over.
    suite = suites[0].suite if len(suites) == 1 else Suite(name="", title="Chosen tasks", columns=())
    titles = [queries.suites[name].suite.title for name in state.suites]
    parts = [*titles, *state.type, *state.domain, *map(name_language, state.language)]
    title = ", ".join(parts) or suite.title
    weights = _read_weights(state.weight, chosen)
    listed = SiteSuite(slug=suites[0].slug if len(suites) == 1 else "", typed="", main=False, weights=weights,
                       suite=replace(suite, title=title, columns=chosen))  # fmt: skip
    return listed, twins


def _merge_columns(
    suites: Sequence[SiteSuite], state: QuestionState
) -> tuple[dict[str, Column], dict[str, str]]:
    """The columns that were asked for, each as the first suite that has it asks for it.

    A task counts once: a column is left out where an earlier suite has one of its tasks in a column of
    another name, or another version of that task over the same splits of the same data.

    Returns:
        The columns by name, and what is left out, with the names of those that have its data.
    """
    columns, twins, owners = dict[str, Column](), dict[str, str](), dict[tuple[str, ...], list[str]]()
    for listed in suites:
        new, tasks = dict[str, Column](), defaultdict[tuple[str, ...], list[str]](list)
        for column in _iter_columns(listed, state, columns):
            keys = [(_find_newest_version(task.name), task.data.path, split)
                    for task in column.tasks for split in task.splits]  # fmt: skip
            others = next((owners[key] for key in keys if key in owners), None)
            if column.name not in columns and others:
                twins[column.name] = ", ".join(others)
            elif column.name not in columns:
                new[column.name] = column
                for key in keys:
                    tasks[key].append(column.name)
        columns, owners = columns | new, owners | tasks
    return columns, twins


def _find_newest_version(task: str) -> str:
    """The last of the tasks that mteb recommends in the place of a task."""
    while newer := _map_newer_versions().get(task):
        task = newer
    return task


@cache
def _map_newer_versions() -> Mapping[str, str]:
    """By task the one that mteb recommends in its place."""
    offers = (offer for entry in catalog.load_suite_entries().values() for offer in entry.offers())
    return {offer.name: newer for offer in offers if (newer := offer.facts.get("superseded_by"))}


def _check_other_suites(queries: Queries, state: QuestionState, name: str, names: Collection[str]) -> None:
    """Refuse a task that is in other suites than those asked for."""
    others = [listed.suite.title for listed in queries.suites.values()
              if any(column.name == name for column in listed.suite.columns)]  # fmt: skip
    if others and name not in names:
        titles = " or ".join(queries.suites[slug].suite.title for slug in state.suites)
        more = f" and {len(others) - 3} others" if len(others) > 3 else ""
        message = f"{name} is not in {titles}. It is in {', '.join(others[:3])}{more}."
        raise NotFound(message, hint=f"Leave out suite={','.join(state.suite)}.")


def _iter_columns(listed: SiteSuite, state: QuestionState, known: Mapping[str, Column]) -> Iterator[Column]:
    """The columns of a suite that were asked for, narrowed to the languages."""
    columns = [column for column in listed.suite.columns if _is_asked(column, state)]
    if len(state.suites) != 1:
        # What a recipe trains for has a convention of its suite's own; what a suite only shows, another one
        # may average.
        columns = [c for c in columns if c.tasks[0].output != "label" and not c.shown_only]
    languages = {column.name: {*describe_task(column.tasks[0].name).languages} for column in columns}
    mixed = [name for name, codes in languages.items()
             if state.language and name not in known and not codes <= {*state.language}]  # fmt: skip
    yield from (column for column in columns if column.name not in mixed)
    yield from _open_columns(listed.typed, tuple(mixed), tuple(state.language)) if mixed else ()


@lru_cache(maxsize=512)
def _open_columns(typed: str, names: tuple[str, ...], languages: tuple[str, ...]) -> tuple[Column, ...]:
    """Some columns of a suite, narrowed to languages; those that have none of them are left out."""
    try:
        opened = catalog.open_suite(typed, SuiteOptions(languages=languages, tasks=names))
    except UsageError:
        return ()
    return tuple(column for column in opened.columns if column.name in names and column.tasks)


def _is_asked(column: Column, state: QuestionState) -> bool:
    about = describe_task(column.tasks[0].name)
    return (
        (not state.type or column.type in state.type)
        and (not state.language or not {*state.language}.isdisjoint(about.languages))
        and (not state.domain or not {*state.domain}.isdisjoint(about.domains))
        and (not state.task or column.name in state.task)
    )


def _read_weights(texts: Sequence[str], columns: Sequence[Column]) -> tuple[float, ...]:
    """What each column weighs: its own weight times that of its type; empty where no weight is given.

    Raises:
        NotFound: A weight is of nothing in the question, or no positive number.
    """
    weights: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition(":")
        weights[name] = float(number) if number.replace(".", "", 1).isdecimal() else 0
        if not 0 < weights[name] <= 1000:
            hint = "Write a number above 0, at most 1000, e.g. Retrieval:2."
            raise NotFound(f"{text!r} is no weight.", hint=hint)
        names = {column.name for column in columns} | {column.type for column in columns}
        check_name("type or task", name, names, then="Weigh what the table shows.", is_needed=True)
    return tuple(weights.get(c.name, 1) * weights.get(c.type, 1) for c in columns) if weights else ()


def build_question_form(queries: Queries, state: QuestionState, *, short: bool = False) -> FilterForm:
    """The question as a form.

    Args:
        queries: The tables.
        state: The question.
        short: Whether it has only what most questions need, without the filters in force.
    """
    titles = [(slug, queries.suites[slug].suite.title) for slug in queries.entries_of_suites]
    suites = state.suites
    views = list_conventions(queries.suites[suites[0]].suite) if len(suites) == 1 else ()
    counts = _count_names(queries, suites).items()
    options: Options = {
        "suite": ("Tasks of", _add_current([(ANY, "any suite"), *titles], state.suite or [ANY])),
        **{name: (name.capitalize(), _list_names(of, getattr(state, name))) for name, of in counts},
        "licence": ("Licence", [("", "any"), *((name, name) for name in LICENCES)]),
        "zero": ("Zero-shot", ZERO),
        "view": ("Convention", [(name, f"as in {name}") for name in views]),
    }
    lists = {name: ",".join(value) for name, value in state if isinstance(value, list)}
    lists["suite"] = lists["suite"] or ANY
    controls = [
        *state.offer(options, values=lists),
        *state.build_entry_controls(queries.entries.values()),
        state.ask("number", "memory", "Size in MB, at most", least=0),
        state.ask("number", "models", "Models in the ranking, at least", least=1, step="1"),
        state.ask("line", "task", "Tasks, by name", value=lists["task"], placeholder="ArguAna, STS12"),
        state.ask("line", "weight", "Weights of tasks", value=lists["weight"], placeholder="Retrieval:2"),
        state.ask("line", "beside", "Beside the model", placeholder="its name"),
    ]
    by_name = {control.name: control for control in controls}
    shown = [by_name[name] for name in (SHORT if short else (*SHORT, *LONG)) if name in by_name]
    texts = {name: ", ".join(value) for name, value in state if isinstance(value, list)}
    texts["suite"] = ", ".join(queries.suites[name].suite.title for name in suites) or "any suite"
    texts["language"] = ", ".join(map(name_language, state.language))
    return state.build_form(PATH, shown, chips={} if short else {**_TASK_CHIPS, **_BOUND_CHIPS}, values=texts)


def describe_bounds(state: QuestionState) -> str:
    """What of a question its title does not name, in the words of the chips."""
    names = {name: ", ".join(value) for name, value in state if isinstance(value, list)}
    return ", ".join(text for text, _ in state.list_chips(PATH, _BOUND_CHIPS, names))


def _count_names(queries: Queries, names: Collection[str] = ()) -> dict[str, Counter[str]]:
    """How many tasks of some suites have each type, language and domain; without names of all."""
    suites = [listed for slug, listed in queries.suites.items() if slug in (names or queries.suites)]
    columns = {c.name: c for listed in suites for c in listed.suite.columns if c.tasks}
    abouts = [describe_task(column.tasks[0].name) for column in columns.values()]
    return {
        "type": Counter(column.type for column in columns.values()),
        "language": Counter(code for about in abouts for code in about.languages),
        "domain": Counter(name for about in abouts for name in about.domains),
    }


SHORT = ("suite", "type", "language", "most", "tokens", "licence", "zero", "open", "beside")
LONG = ("task", "domain", "weight", "models", "dimensions", "memory", "view", "origin", "output", "recipe",
        "backbone", "q")  # fmt: skip
"""The controls that most questions need, and the further ones, in order."""

_TASK_CHIPS = {"suite": "tasks of {}", "type": "{}", "language": "in {}", "domain": "{}",
               "models": "at least {} models", "beside": "beside {}"}  # fmt: skip
_BOUND_CHIPS = {"task": "{}", "weight": "weights {}", "zero": "zero-shot: {}", "licence": "{}",
                "memory": "at most {:g} MB", "revisions": "only on the suite’s data revisions", **CHIPS,
                "instructions": "instruction-tuned", "reproduced": "reproduced by somebody"}  # fmt: skip


def _list_names(counts: Counter[str], current: Sequence[str]) -> list[tuple[str, str]]:
    """The most frequent names as options, with how many tasks each has."""
    names = sorted(dict(counts.most_common(MOST)), key=name_language)
    plurals = {name: "task" if counts[name] == 1 else "tasks" for name in names}
    texts = [(name, f"{name_language(name)} ({counts[name]} {what})") for name, what in plurals.items()]
    return _add_current([("", "any"), *texts], current)


def _add_current(options: list[tuple[str, str]], current: Sequence[str]) -> list[tuple[str, str]]:
    """Options, with what is asked for where it is several or none of them."""
    text = ",".join(current)
    return options if text in dict(options) else [*options, (text, ", ".join(current))]


def list_presets(queries: Queries, state: State) -> list[tuple[str, str, bool]]:
    """The questions of PRESETS that the site's suites can answer: label, URL, current."""
    query = state.build_filter_query()
    return [
        (label, address, address == build_address(PATH, query))
        for label, preset in PRESETS.items()
        if {*_split_names(preset.get("suite", ""))} <= queries.entries_of_suites.keys()
        for address in [build_address(PATH, QuestionState.model_validate(preset).build_query())]
    ]
