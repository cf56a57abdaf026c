"""Reproductions: what several sources state of a model on a task, and whether they agree."""

from __future__ import annotations

import csv
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from statistics import fmean
from typing import Literal, NamedTuple
from weakref import WeakKeyDictionary

from harness.results.scores import format_delta, score_text
from leaderboard.data.backbones import find_backbone
from leaderboard.data.entries import Entry, compute_precedence
from leaderboard.data.groups import group_by
from leaderboard.data.queries import EntryResult, Queries
from leaderboard.data.suites import build_task_scope, build_whole_scope, resolve_data_revision
from leaderboard.views.sorting import Field
from leaderboard.views.task_scores import build_raw_scope, format_task_path, load_questions
from leaderboard.web.parameters import build_address
from leaderboard.web.tables import EMPTY, Cell, link

Verdict = Literal["same", "differs", "unproven", "data", "settings", "weights", "chance", "parts"]

VERDICTS: Mapping[Verdict, tuple[str, str]] = {
    "same": ("same", "equal to the printed digits and numeric noise, on data that is proven to be the same"),
    "differs": ("differs by {}", "the numbers differ, and nothing that is stated says why"),
    "unproven": ("equal, data not stated", "equal numbers, but one side does not prove its data"),
    "data": ("other data revision", "the revisions differ, and nothing proves that they hold the same texts"),
    "settings": ("other length or prompts", "another length, other prompts, or another recipe"),
    "weights": ("other model revision", "another commit of the model, or other weights"),
    "chance": ("at chance level", "no better than a random answer"),
    "parts": ("contradicts its own parts", "not the mean of the scores of its parts"),
}
"""What a number is to that of the best known source of the model: a label, and what it means."""

NOISE = 1e-4
"""How far the same weights, texts and settings may be apart on other hardware or library versions."""

CHANCE_ROOM, PARTS_ROOM = 0.01, 0.0005
"""How far from a random answer a score is at chance level, and from the mean of its parts it is that."""

RANDOM, PEOPLE = "mteb/baseline-random-encoder", "baseline/Human"
"""mteb's encoder of random vectors, whose scores in an import say what chance gives on a task, and its
annotators, who are no model."""

UNFAIR = "p-MRR"
"""A metric on which 0 is a common, honest score."""

CONDITIONS: Mapping[str, Verdict] = {
    "weights": "weights", "commit": "weights", "data": "data", "length": "settings", "prompts": "settings",
    "encoding": "settings", "experiment": "settings",
}  # fmt: skip
"""What two numbers may state differently, and the verdict on them then."""

PATH = "/reproductions"
"""The page of all comparisons."""


@cache
def read_aliases() -> Mapping[str, str]:
    """The model on the hub by the SHA-256 of its weights file (data/aliases.csv has the sources)."""
    path = Path(__file__).parents[1] / "data" / "aliases.csv"
    with path.open(encoding="utf-8", newline="") as file:
        return {row["weights"]: row["model"] for row in csv.DictReader(file)}


_pages: WeakKeyDictionary[Queries, dict[int, str]] = WeakKeyDictionary()


def join_models(queries: Queries) -> Mapping[int, str]:
    """The name in URLs of each entry's model, by the entry's number, cached.

    Joined are the names of a backbone of the papers, and measured weights of one hash, with the model on the
    hub that an alias names; never names that look alike.
    """
    if queries not in _pages:
        entries, weights = queries.entries.values(), queries.weights
        hub = {entry.model: entry.model_slug for entry in entries if entry.origin == "imported"}
        owners = {key: hub[name] for key, name in read_aliases().items() if name in hub}
        for number, key in weights.items():
            owners.setdefault(key, queries.entries[number].model_slug)
        _pages[queries] = {
            entry.id: backbone.slug
            if (backbone := find_backbone(entry.model))
            else owners.get(weights.get(entry.id, ""), entry.model_slug)
            for entry in entries
        }
    return _pages[queries]


@dataclass(frozen=True, kw_only=True, slots=True)
class Value:
    """A number of a model on a question, as a source states it.

    Attributes:
        entry: Whose it is.
        score: As a share of 1.
        conditions: What is stated of its making, by the names of CONDITIONS.
        unit: One unit of its last printed place.
        version: The version of mteb that scored; empty where it is not stated.
        result: The number of its result, 0 for none.
        chance: What a random answer gets; None where that says nothing.
        parts: The mean of the scores of its parts; None for a task without parts.
    """

    entry: Entry
    score: float
    conditions: Mapping[str, str] = field(default_factory=dict)
    unit: float = 1e-4
    version: str = ""
    result: int = 0
    chance: float | None = None
    parts: float | None = None

    @property
    def source(self) -> str:
        """Who states it: of two numbers of one source one may be a copy of the other."""
        if self.entry.origin == "imported":
            return "its makers" if self.entry.trust == "external" else "public run"
        return self.entry.source

    @property
    def fault(self) -> Verdict | None:
        """What is wrong with it, whatever others state."""
        if self.parts is not None and abs(self.score - self.parts) > PARTS_ROOM:
            return "parts"
        return "chance" if self.chance is not None and self.score <= self.chance + CHANCE_ROOM else None


def judge_value(value: Value, base: Value) -> Verdict:
    """What a number is to that of a better known source.

    Two numbers are the same if they are equal to the printed digits and numeric noise, both state their data,
    and nothing that both state of their making differs.
    """
    if value.fault:
        return value.fault
    if (name := next(_iter_conflicts(value, base), None)) is not None:
        return CONDITIONS[name]
    if abs(value.score - base.score) > max(value.unit, base.unit) / 2 + NOISE:
        return "differs"
    return "same" if "data" in value.conditions and "data" in base.conditions else "unproven"


def _iter_conflicts(value: Value, base: Value) -> Iterator[str]:
    """The names of what two numbers state differently of their making."""
    ours, theirs = value.conditions, base.conditions
    return (name for name in CONDITIONS if name in ours and name in theirs and ours[name] != theirs[name])


class Comparison(NamedTuple):
    """A number beside that of the best known source of the model; a broken number stands alone."""

    model: str
    task: str
    part: str
    value: Value
    base: Value | None
    verdict: Verdict

    @property
    def delta(self) -> float | None:
        """How much higher it is."""
        return None if self.base is None else self.value.score - self.base.score

    @property
    def is_independent(self) -> bool:
        """Whether two sources state the numbers."""
        return self.base is not None and self.base.source != self.value.source

    @property
    def text(self) -> str:
        """The verdict in words."""
        return VERDICTS[self.verdict][0].format(format_delta(self.delta))

    @property
    def reason(self) -> str:
        """What the verdict means, and what is stated differently."""
        base, value = self.base or self.value, self.value
        texts = [f"{name} {base.conditions[name][:40]} / {value.conditions[name][:40]}"
                 for name in _iter_conflicts(value, base)]  # fmt: skip
        return "; ".join([VERDICTS[self.verdict][1], *texts])


@dataclass(frozen=True, kw_only=True, eq=False)
class Reproductions:
    """Every comparison of a site, by model and task."""

    comparisons: Sequence[Comparison]
    pages: Mapping[int, str]
    """The name in URLs of each entry's model (join_models)."""

    @cached_property
    def faults(self) -> Mapping[int, Verdict]:
        """What is wrong with broken results, by their numbers."""
        return {one.value.result: one.value.fault for one in self.comparisons if one.value.fault}

    @cached_property
    def by_model(self) -> Mapping[str, list[Comparison]]:
        """The comparisons of each model, by its name in URLs."""
        return group_by(self.comparisons, lambda one: one.model)

    @cached_property
    def by_task(self) -> Mapping[str, Mapping[str, list[Comparison]]]:
        """The comparisons on each task, by the model's name in URLs."""
        tasks = group_by(self.comparisons, lambda one: one.task)
        return {task: group_by(some, lambda one: one.model) for task, some in tasks.items()}

    def list_tasks(self, entry: Entry, *, same: bool = False) -> set[str]:
        """The tasks on which two sources state a number of an entry's model, or on which they agree."""
        rows = (one for one in self.by_model.get(self.pages[entry.id], ()) if one.is_independent)
        return {one.task for one in rows if not same or one.verdict == "same"}


_reproductions: WeakKeyDictionary[Queries, Reproductions] = WeakKeyDictionary()


def load_reproductions(queries: Queries) -> Reproductions:
    """The comparisons of a site, cached."""
    if queries not in _reproductions:
        comparisons = [
            comparison
            for place, values in _collect_values(queries).items()
            for comparison in compare_values(*place, values)
        ]
        _reproductions[queries] = Reproductions(comparisons=comparisons, pages=join_models(queries))
    return _reproductions[queries]


def compare_values(model: str, task: str, part: str, values: Sequence[Value]) -> Iterator[Comparison]:
    """Each number of a model on a task beside a better known one: that which it agrees with best.

    Args:
        model: The model's name in URLs.
        task: The task.
        part: The splits and subsets, where they are not those of the task's first question.
        values: At least one.
    """
    ordered = sorted(
        values, key=lambda one: (one.fault is None, *compute_precedence(one.entry)), reverse=True
    )
    order = list(VERDICTS)
    for position, value in enumerate(ordered):
        # The lines of one paper are of several settings, and reproduce nothing.
        better = [
            base for base in ordered[:position]
            if not base.fault and not (base.entry.origin == "reported" and base.source == value.source)
        ]  # fmt: skip
        judged = [(order.index(judge_value(value, base)), base.source == value.source, at)
                  for at, base in enumerate(better)]  # fmt: skip
        if judged:
            verdict, _, place = min(judged)
            yield Comparison(model, task, part, value, better[place], order[verdict])
        elif value.fault:
            yield Comparison(model, task, part, value, None, value.fault)


def _collect_values(queries: Queries) -> Mapping[tuple[str, str, str], list[Value]]:
    """The numbers that can be compared or are broken, by model, task and part of the task."""
    pages, values = join_models(queries), defaultdict[tuple[str, str, str], list[Value]](list)
    # A mean over seeds stands for its seeds; of several revisions of an imported model each counts.
    entries = {
        entry.id: entry
        for entry in queries.entries.values()
        if not entry.revisions and not (entry.member and entry.origin == "measured")
    }
    tasks, wholes = _list_scopes(queries)
    several = group_by(entries, lambda number: pages[number])
    compared = [number for numbers in several.values() if len(numbers) > 1 for number in numbers]
    chance = next((e.id for e in entries.values() if e.model == RANDOM), 0)
    always = [*wholes, *(part for some in wholes.values() for part in some)]
    rows = queries.find_comparable_scores([*tasks], compared, always, chance, CHANCE_ROOM)
    scores = {(entry, scope): score for scope, entry, score, *_ in rows}
    rows = [row for row in rows if row[0] in tasks and row[1] in entries]
    printed = list(_iter_printed_scores(queries))
    # Most numbers are the only one of their model and task: they are left out as early as can be.
    counts = Counter((pages[row[1]], row[0]) for row in rows)
    counts.update((pages[number], scope) for number, scope, _ in printed)
    versions = queries.find_mteb_versions(
        [*{row[1] for row in rows if counts[pages[row[1]], row[0]] > 1}, *queries.weights]
    )
    conditions = {number: _describe_conditions(queries, entry) for number, entry in entries.items()}
    # The parts of a revision may be among those of another one of the model.
    joined = {entry.group: entry.id for entry in queries.entries.values() if entry.revisions}
    answered = set[tuple[int, str]]()
    for scope, number, score, data, result, random in rows:
        entry, (task, metric) = entries[number], tasks[scope]
        answered.add((number, task))
        single = counts[pages[number], scope] == 1 and scope not in wholes and score > random + CHANCE_ROOM
        if single or entry.model in (RANDOM, PEOPLE):
            continue
        places = [(number, part) for part in wholes.get(scope, ())]
        parts = [scores.get(one, scores.get((joined.get(entry.group, 0), one[1]))) for one in places]
        values[pages[number], task, ""].append(
            Value(
                entry=entry, score=score, conditions={**conditions[number], **_state_data(task, data)},
                version=versions.get((number, task), ""), chance=None if metric == UNFAIR else random,
                parts=fmean(p for p in parts if p is not None) if parts and None not in parts else None,
                result=result,
            )
        )  # fmt: skip
    for row, part, score in _iter_partial_scores(queries, entries, several, answered):
        stated = {**conditions[row.entry], **_state_data(row.task, row.data)}
        version = versions.get((row.entry, row.task), "")
        values[pages[row.entry], row.task, part].append(
            Value(entry=entries[row.entry], score=score, conditions=stated, version=version, result=row.id)
        )
    for number, scope, score in printed:
        unit = 1e-3 if abs(round(score, 3) - score) < 1e-9 else 1e-4
        value = Value(entry=entries[number], score=score, unit=unit, conditions=conditions[number])
        values[pages[number], tasks[scope][0], ""].append(value)
    return values


def _state_data(task: str, data: str) -> dict[str, str]:
    """The data of a result as a condition: one revision for all that are known to hold the same texts."""
    return {"data": resolve_data_revision(task, data)} if data not in ("", "None") else {}


def _iter_partial_scores(
    queries: Queries,
    entries: Mapping[int, Entry],
    several: Mapping[str, Sequence[int]],
    answered: Collection[tuple[int, str]],
) -> Iterator[tuple[EntryResult, str, float]]:
    """Measured scores of a part of a task, and those of the model's other entries on the same part.

    Args:
        queries: The site's queries.
        entries: Those that can be compared, by number.
        several: The numbers of the entries of each model.
        answered: The entries and tasks with a score on the task's first question.
    """
    for numbers in (some for some in several.values() if len(some) > 1):
        measured = [number for number in numbers if entries[number].origin == "measured"]
        partial = [row for row in queries.find_results(entry=measured, status="done")
                   if (row.entry, row.task) not in answered] if measured else []  # fmt: skip
        tasks = sorted({row.task for row in partial})
        others = [row for row in queries.find_results(entry=list(numbers), task=tasks, status="done")
                  if entries[row.entry].origin == "imported"] if tasks else []  # fmt: skip
        raw = queries.load_raw_scores([*partial, *others]) if others else {}
        for row in partial if others else ():
            scope = build_raw_scope(row.task, raw.get(row.id, {}))
            part = f"{'+'.join(scope.splits)} {', '.join(scope.subsets)}"[:80]
            for result in (row, *(other for other in others if other.task == row.task)):
                score, _ = scope.answer(raw.get(result.id, {}), result.data) if part.strip() else (None, "")
                if score is not None:
                    yield result, part, score


def _list_scopes(queries: Queries) -> tuple[dict[int, tuple[str, str]], dict[int, list[int]]]:
    """The task and metric of the first question of each task, and the parts of tasks that have some."""
    ids = queries.scope_ids
    tasks = {
        ids[some[0].scope.form]: (name, some[0].task.metric if some[0].task else "")
        for name, some in load_questions(queries).items()
    }
    wholes = {}
    for site_suite in queries.suites.values():
        for column in site_suite.suite.columns:
            if scope := build_whole_scope(column):
                tasks[ids[scope.form]] = (column.name, column.tasks[0].metric)
                wholes[ids[scope.form]] = [ids[build_task_scope(task).form] for task in column.tasks]
    return tasks, wholes


def _describe_conditions(queries: Queries, entry: Entry) -> dict[str, str]:
    """What is stated of how an entry's numbers were made.

    A public run is taken to have the length and the prompts of its model's card, as mteb loads it.
    """
    if entry.origin == "measured":
        treatment = queries.treatments.get(entry.id, {})
        encoding = dict(treatment.get("encoding") or {})
        length, named = encoding.pop("max_length", None), treatment.get("prompts") or {}
        prompts = {name: text for name, text in named.items() if text}
        if treatment.get("default_prompt"):
            prompts[""] = treatment["default_prompt"]
        how = json.dumps(encoding, sort_keys=True) if encoding else entry.treatment
        stated = {"weights": queries.weights.get(entry.id), "length": length, "encoding": how,
                 "prompts": json.dumps(prompts, sort_keys=True) if encoding else None}  # fmt: skip
    elif entry.origin == "imported" and entry.trust != "external":
        card_prompts = {True: "those of its makers", False: "{}", None: None}
        card = queries.cards.get(entry.id)
        stated = {"commit": entry.revision if entry.trust == "commit" else None, "length": entry.max_tokens,
                 "prompts": card_prompts[card.instructions if card else None],
                 "experiment": entry.treatment or None}  # fmt: skip
    else:
        stated = {"experiment": entry.treatment or None}
    return {name: str(value) for name, value in stated.items() if value}


def _iter_printed_scores(queries: Queries) -> Iterator[tuple[int, int, float]]:
    """The numbers that papers print for the first questions of tasks: entry, scope and score."""
    for number, slug, convention, document in queries.list_averages():
        suite = queries.suites.get(slug)
        columns = document.get("columns") or {}
        for column in suite.suite.columns if suite and columns else ():
            scope = build_task_scope(column.tasks[0], convention)
            first = load_questions(queries)[scope.task][0].scope
            if column.name in columns and len(column.tasks) == 1 and scope == first:
                yield number, queries.scope_ids[scope.form], columns[column.name]


# Cells


def format_versions(one: Comparison) -> str:
    """The versions of mteb of both sides; `–` for one that is not stated."""
    versions = (side.version.removeprefix("mteb ") or "–" for side in (one.base, one.value) if side)
    return " / ".join(dict.fromkeys(versions))


def _build_value_cell(value: Value | None) -> Cell:
    """A number, with who states it, and under which conditions."""
    if value is None:
        return EMPTY
    stated = {**value.conditions, **({"mteb": value.version} if value.version else {})}
    texts = [value.source, *(f"{name} {text[:40]}" for name, text in stated.items())]
    return Cell(text=score_text(value.score), value=value.score, note="; ".join(texts),
                href=build_address(f"/results/{value.result}") if value.result else "")  # fmt: skip


def build_verdict_cell(rows: Sequence[Comparison], value: Entry | None = None) -> Cell:
    """What the sources of a model on a task say together: its own fault, else the most telling verdict.

    Args:
        rows: The comparisons of the model on the task.
        value: The entry whose number is shown beside the cell; only its own fault counts.
    """
    broken = [one for one in rows if one.value.fault and one.value.entry is value]
    order = list(VERDICTS)
    compared = sorted(
        (one for one in rows if one.base is not None and not one.value.fault),
        key=lambda one: (not one.is_independent, order.index(one.verdict), -abs(one.delta or 0)),
    )
    chosen = next(iter([*broken, *compared]), None)
    if chosen is None:
        return EMPTY
    numbers = {id(v): f"{v.source} {score_text(v.score)}" for one in rows for v in (one.base, one.value) if v}
    note = f"{chosen.reason}: {', '.join(numbers.values())}"
    query = {"q": chosen.model, "task": chosen.task}
    return Cell(text=chosen.text, value=chosen.verdict, note=note, href=build_address(PATH, query))


COMPARISON_FIELDS: Sequence[Field[Comparison]] = [
    Field("name", "Task",
          lambda one: link(f"{one.task} {one.part}".rstrip(), format_task_path(one.task)),
          lambda one: one.task.casefold(), sticky=True),
    Field("base", "Best known", lambda one: _build_value_cell(one.base),
          lambda one: one.base.score if one.base else None, numeric=True,
          note="The number of the best known source: measured, a public run, its makers, a paper.",
          card="Best known"),
    Field("by", "by", lambda one: one.base.source if one.base else "", card="by"),
    Field("value", "Other", lambda one: _build_value_cell(one.value), lambda one: one.value.score,
          numeric=True, note="The number of another source.", card="Other"),
    Field("source", "by", lambda one: one.value.source, lambda one: one.value.source, card="by"),
    Field("delta", "Difference", lambda one: Cell(text=format_delta(one.delta), value=one.delta),
          lambda one: None if one.delta is None else abs(one.delta), numeric=True),
    Field("verdict", "Verdict", lambda one: Cell(text=one.text, value=one.verdict, note=one.reason),
          lambda one: list(VERDICTS).index(one.verdict), card="Verdict"),
    Field("mteb", "mteb", lambda one: format_versions(one), note="The versions of mteb that scored."),
]  # fmt: skip
"""The columns of comparisons."""
