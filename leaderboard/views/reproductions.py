"""Reproductions: what several sources state of a model on a task, and whether they agree."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import hypot
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple

import numpy as np

from harness.core.groups import group_by
from harness.results.revisions import explain_other_data, resolve_data_revision
from harness.results.scores import format_delta, score_text
from leaderboard.data.backbones import find_backbone
from leaderboard.data.entries import Entry, compute_precedence
from leaderboard.data.queries import EntryResult, Queries, cache_by_queries
from leaderboard.data.ranking import compute_half_widths
from leaderboard.data.scores import CHANCE_ROOM, CONTRADICTION, RANDOM, UNFAIR
from leaderboard.data.suites import build_task_scope, build_whole_scope, read_table_file
from leaderboard.views.cells import build_delta_cell, build_score_cell
from leaderboard.views.sorting import Field
from leaderboard.views.task_scores import build_raw_scope, format_task_path, load_questions
from leaderboard.web.page_state import build_address
from leaderboard.web.tables import EMPTY, Cell, link

Verdict = Literal["same", "draws", "differs", "unproven", "data", "settings", "weights", "chance", "parts"]

VERDICTS: Mapping[Verdict, tuple[str, str]] = {
    "same": ("same", "equal to the printed digits and numeric noise, on data that is proven to be the same"),
    "draws": (
        "differs by {}, as two runs may",
        "scored by two versions of mteb, and apart by no more than two runs "
        "with other random draws, such as of clusterings",
    ),
    "differs": ("differs by {}", "the numbers differ, and nothing that is stated says why"),
    "unproven": ("equal, data not stated", "equal numbers, but one side does not prove its data"),
    "data": ("other data revision", "the revisions differ, and nothing proves that they hold the same texts"),
    "settings": ("other length or prompts", "another length, other prompts, or another recipe"),
    "weights": ("other model revision", "another commit of the model, or other weights"),
    "chance": ("at chance level", "no better than a random answer"),
    "parts": ("contradicts its own parts", "not the mean of the scores of its parts"),
}
"""What a number is to that of a better known source: a label, and what it means; the best agreement first."""

CONDITIONS: Mapping[str, Verdict] = {
    "weights": "weights", "commit": "weights", "data": "data", "length": "settings", "prompts": "settings",
    "encoding": "settings", "experiment": "settings",
}  # fmt: skip
"""What two numbers may state differently, and the verdict on them then."""

NOISE = 1e-4
"""How far equal runs may be apart on other hardware or versions."""

PEOPLE = "baseline/Human"
"""mteb's annotators, who are no model."""

PATH = "/reproductions"


ALIASES = Path(__file__).parents[1] / "data" / "aliases.csv"


@cache
def read_aliases() -> Mapping[str, str]:
    """The model on the hub by the SHA-256 of its weights file (data/aliases.csv has the sources)."""
    return {row["weights"]: row["model"] for row in read_table_file(ALIASES)}


@cache_by_queries
def join_models(queries: Queries) -> Mapping[int, str]:
    """The name in URLs of each entry's model, by the entry's number, cached.

    Joined are the names of a backbone of the papers, and measured weights of one hash, with the model on the
    hub that an alias names; never names that look alike.
    """
    entries = queries.entries
    hub = {entry.model: entry.model_slug for entry in entries.values() if entry.origin == "imported"}
    owners = {key: hub[name] for key, name in read_aliases().items() if name in hub}
    keys = {number: facts.get("weights") or "" for number, facts in queries.measured_facts.items()}
    slugs = {number: owners.setdefault(key or str(number), entries[number].model_slug)
             for number, key in keys.items()}  # fmt: skip
    return {
        number: backbone.slug if (backbone := find_backbone(entry.model))
        else slugs.get(number, entry.model_slug)
        for number, entry in entries.items()
    }  # fmt: skip


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
        if self.entry.origin == "measured":
            return "this harness"
        if self.entry.origin == "reported":
            return self.entry.source
        return "its makers" if self.entry.trust == "external" else "mteb's results"

    @property
    def fault(self) -> Verdict | None:
        """What is wrong with it, whatever others state."""
        if self.parts is not None and abs(self.score - self.parts) > CONTRADICTION:
            return "parts"
        return "chance" if self.chance is not None and self.score <= self.chance + CHANCE_ROOM else None


def judge_value(value: Value, base: Value) -> Verdict:
    """What a number is to that of a better known source.

    Two numbers are the same if they are equal to the printed digits and numeric noise, both state their data,
    and nothing that both state of their making differs.
    """
    if value.fault:
        return value.fault
    for name in _iter_conflicts(value, base):
        return CONDITIONS[name]
    if abs(value.score - base.score) > max(value.unit, base.unit) / 2 + NOISE:
        return "differs"
    return "same" if "data" in value.conditions and "data" in base.conditions else "unproven"


def _iter_conflicts(value: Value, base: Value) -> Iterator[str]:
    """The names of what two numbers state differently of their making."""
    ours, theirs = value.conditions, base.conditions
    return (name for name in CONDITIONS if name in ours and name in theirs and ours[name] != theirs[name])


class NumberPair(NamedTuple):
    """A number beside that of a better known source of the model; a broken number may stand alone.

    `model` is its name in URLs; `part` are splits and subsets that are not those of the first question;
    `draws` is half of the 95 % interval of the difference of two runs with other random draws, 0 if unknown.
    """

    model: str
    task: str
    part: str
    value: Value
    base: Value | None
    verdict: Verdict
    draws: float = 0.0

    @property
    def delta(self) -> float | None:
        """How much higher it is."""
        return None if self.base is None else self.value.score - self.base.score

    @property
    def is_independent(self) -> bool:
        """Whether two sources state the numbers."""
        return self.base is not None and self.base.source != self.value.source

    @property
    def versions(self) -> str:
        """The versions of mteb of both sides; `–` for one that is not stated."""
        sides = (side.version.removeprefix("mteb ") or "–" for side in (self.base, self.value) if side)
        return " / ".join(dict.fromkeys(sides))

    @property
    def has_two_versions(self) -> bool:
        """Whether two versions of mteb are known to have scored."""
        return "/" in self.versions and "–" not in self.versions

    def build_cell(self) -> Cell:
        """The verdict, with what it means and what is stated differently."""
        label, meaning = VERDICTS[self.verdict]
        text, query = label.format(format_delta(self.delta)), {"q": self.model, "task": self.task}
        return link(text, build_address(PATH, query), note="; ".join(filter(None, [meaning, self.reason])))

    @property
    def reason(self) -> str:
        """What is stated differently of both numbers, and what is known of their difference."""
        base, value = self.base or self.value, self.value
        texts = [f"{name} {_shorten(base.conditions[name])} / {_shorten(value.conditions[name])}"
                 for name in _iter_conflicts(value, base)]  # fmt: skip
        if self.verdict == "data":
            texts += [explain_other_data(self.task, side.conditions["data"]) for side in (base, value)]
        if self.verdict in ("draws", "differs") and self.has_two_versions:
            texts.append(f"scored by mteb {self.versions}")
        if self.verdict == "chance" and value.chance is not None:
            texts.append(f"a random answer gets {score_text(value.chance)} here")
        if self.verdict == "parts" and value.parts is not None:
            texts.append(f"its parts have a mean of {score_text(value.parts)}")
        if self.draws:
            texts.append(f"other random draws: ± {score_text(self.draws)}")
        return "; ".join(filter(None, texts))


def _shorten(condition: str) -> str:
    """What a side states, in at most 40 characters; of a commit's hash its start."""
    return re.sub(r"^([0-9a-f]{12})[0-9a-f]{28}$", r"\1", condition)[:40]


@cache_by_queries
def load_comparisons(queries: Queries) -> Sequence[NumberPair]:
    """The comparisons of a site, cached."""
    places = _collect_values(queries).items()
    pairs = [one for place, some in places for one in compare_values(*place, some)]
    # With the interval of those that two versions of mteb scored: random draws may differ.
    sides = {
        at: side.result
        for at, pair in enumerate(pairs) if pair.verdict == "differs" and pair.has_two_versions
        for side in (pair.base, pair.value) if side and side.result and side.entry.origin == "measured"
    }  # fmt: skip
    documents = queries.load_result_documents([*sides.values()])
    for place, result in sides.items():
        half, delta = measure_draws(documents.get(result, {}).get("scores", {})), pairs[place].delta or 0.0
        verdict: Verdict = "draws" if abs(delta) <= half else "differs"
        pairs[place] = pairs[place]._replace(draws=half, verdict=verdict)
    return pairs


def measure_draws(scores: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> float:
    """Half of the 95 % interval of the difference of two runs with other random draws; 0 if none are listed.

    A record lists the scores of the draws behind a main score (of clusterings: `v_measures` by level). Each
    list has Student's interval of its mean; those of the lists' mean, and of two runs, are put together as
    those of independent means.

    Args:
        scores: Every raw metric of a record: split → subset → metric → value.
    """
    halves: list[float] = []
    for metrics in (metrics for subsets in scores.values() for metrics in subsets.values()):
        draws = next((draws for value in metrics.values() if (draws := _list_draws(value, metrics))), [])
        if not draws:
            return 0.0
        halves += [float(compute_half_widths(np.array(one), np.ones(len(one)))) for one in draws]
    return hypot(*halves, *halves) / max(1, len(halves))


def _list_draws(value: Any, metrics: Mapping[str, Any]) -> list[list[float]]:
    """The lists of numbers that a metric holds, if their mean is the main score."""
    lists = list(value.values()) if isinstance(value, dict) else [value]
    if not all(isinstance(one, list) and len(one) > 1 for one in lists):
        return []
    numbers = [number for one in lists for number in one]
    if not numbers or not all(isinstance(number, float) for number in numbers):
        return []
    return lists if abs(fmean(numbers) - metrics.get("main_score", np.nan)) < 1e-9 else []


def compare_values(model: str, task: str, part: str, values: Sequence[Value]) -> Iterator[NumberPair]:
    """Each number beside a better known one that is not broken: that which it agrees with best.

    Args:
        model: The model's name in URLs.
        task: The task.
        part: What it is of the task (NumberPair).
        values: The numbers of the model on it.
    """
    ordered = sorted(
        values, key=lambda one: (one.fault is None, *compute_precedence(one.entry)), reverse=True
    )
    order = list(VERDICTS)
    for position, value in enumerate(ordered):
        judged = [
            (order.index(judge_value(value, base)), base.source == value.source, place)
            for place, base in enumerate(ordered[:position])
            # Papers copy each other's numbers, and the lines of one are of several settings.
            if not base.fault and not base.entry.origin == value.entry.origin == "reported"
        ]
        if judged:
            verdict, _, place = min(judged)
            yield NumberPair(model, task, part, value, ordered[place], order[verdict])
        elif value.fault:
            yield NumberPair(model, task, part, value, None, value.fault)


def _collect_values(queries: Queries) -> Mapping[tuple[str, str, str], list[Value]]:
    """The numbers that can be compared or are broken, by model, task and part of the task."""
    pages, values = join_models(queries), defaultdict[tuple[str, str, str], list[Value]](list)
    # A mean over seeds stands for its seeds; of several revisions of an imported model each counts.
    entries = {number: one for number, one in queries.entries.items()
               if not one.revisions and not (one.member and one.origin == "measured")}  # fmt: skip
    tasks, wholes = _list_scopes(queries)
    several = [some for some in group_by(entries, pages.__getitem__).values() if len(some) > 1]
    random = next((number for number, entry in entries.items() if entry.model == RANDOM), 0)
    always = [*wholes, *(part for some in wholes.values() for part in some)]
    printed = list(_iter_printed_scores(queries))
    rows = queries.find_close_scores(
        [*tasks], {n: pages[n] for some in several for n in some}, always,
        {(pages[n], scope) for scope, n, _ in printed}, random, CHANCE_ROOM,
    )  # fmt: skip
    # The parts of a revision may be among those of another one of the model.
    scores = {(number, scope): score for scope, number, score, *_ in rows if scope in always}
    joined = {entry.group: number for number, entry in queries.entries.items() if entry.revisions}
    rows = [row for row in rows if row[0] in tasks and row[1] in entries]
    # Most numbers are the only one of their model and task: they are left out as early as can be.
    counts = Counter((pages[row[1]], row[0]) for row in rows) + Counter((pages[n], s) for s, n, _ in printed)
    versions = queries.find_mteb_versions(
        [*{number for scope, number, *_ in rows if counts[pages[number], scope] > 1}, *queries.measured_facts]
    )
    conditions = {number: _describe_conditions(queries, entry) for number, entry in entries.items()}

    def add_value(number: int, task: str, part: str, score: float, data: str, **more: float | None) -> None:
        stated = {"data": resolve_data_revision(task, data)} if data not in ("", "None") else {}
        values[pages[number], task, part].append(Value(
            entry=entries[number], score=score, conditions={**conditions[number], **stated},
            version=versions.get((number, task), ""), **more,  # type: ignore[arg-type]
        ))  # fmt: skip

    for scope, number, score, data, result, chance in rows:
        task, metric = tasks[scope]
        if counts[pages[number], scope] == 1 and scope not in wholes and score > chance + CHANCE_ROOM:
            continue
        owner = joined.get(entries[number].group, 0)
        parts = [scores.get((number, one), scores.get((owner, one))) for one in wholes.get(scope, ())]
        mean = fmean(one for one in parts if one is not None) if parts and None not in parts else None
        if entries[number].model not in (RANDOM, PEOPLE):
            add_value(number, task, "", score, data, result=result, parts=mean,
                      chance=None if metric == UNFAIR else chance)  # fmt: skip
    whole_tasks = {(number, tasks[scope][0]) for scope, number, *_ in rows}
    for row, part, score in _iter_partial_scores(queries, entries, several, whole_tasks):
        add_value(row.entry, row.task, part, score, row.data, result=row.id)
    for scope, number, score in printed:
        unit = 1e-3 if abs(round(score, 3) - score) < 1e-9 else 1e-4
        add_value(number, tasks[scope][0], "", score, "", unit=unit)
    return values


def _iter_partial_scores(
    queries: Queries,
    entries: Mapping[int, Entry],
    several: Sequence[Sequence[int]],
    answered: Collection[tuple[int, str]],
) -> Iterator[tuple[EntryResult, str, float]]:
    """Measured scores of a part of a task alone, and those of the model's public entries on that part."""
    for numbers in several:
        measured = [number for number in numbers if entries[number].origin == "measured"]
        public = [number for number in numbers if entries[number].origin == "imported"]
        rows = queries.find_results(entry=measured, status="done") if measured and public else []
        partial = [row for row in rows if (row.entry, row.task) not in answered]
        others = queries.find_results(entry=public, task=[row.task for row in partial]) if partial else []
        raw = queries.load_raw_scores([*partial, *others]) if others else {}
        for row in partial:
            scope = build_raw_scope(row.task, raw.get(row.id, {}))
            part = f"{'+'.join(scope.splits)} {', '.join(scope.subsets)}"[:80]
            for result in [row, *(one for one in others if one.task == row.task)] if scope.splits else ():
                score, _ = scope.answer(raw[result.id], result.data)
                if score is not None:
                    yield result, part, score


def _list_scopes(queries: Queries) -> tuple[dict[int, tuple[str, str]], dict[int, list[int]]]:
    """The task and metric of the first question of each task, and the parts of tasks that have some."""
    ids, wholes = queries.scope_ids, dict[int, list[int]]()
    tasks = {ids[some[0].scope.form]: (name, some[0].task.metric)
             for name, some in load_questions(queries).items()}  # fmt: skip
    for column in (column for one in queries.suites.values() for column in one.suite.columns):
        if scope := build_whole_scope(column):
            tasks[ids[scope.form]] = (column.name, column.tasks[0].metric)
            wholes[ids[scope.form]] = [ids[build_task_scope(task).form] for task in column.tasks]
    return tasks, wholes


def _describe_conditions(queries: Queries, entry: Entry) -> dict[str, str]:
    """What is stated of how an entry's numbers were made.

    A public run is taken to have the length and the prompts of its model's card, as mteb loads it.
    """
    if entry.origin == "measured":
        facts = queries.measured_facts.get(entry.id, {})
        treatment = facts.get("treatment") or {}
        encoding, named = dict(treatment.get("encoding") or {}), treatment.get("prompts") or {}
        prompts = {name: text for name, text in named.items() if text}
        prompts |= {"": treatment["default_prompt"]} if treatment.get("default_prompt") else {}
        stated = {
            "weights": facts.get("weights"),
            "length": encoding.pop("max_length", None),
            "prompts": json.dumps(prompts, sort_keys=True) if encoding else None,
            "encoding": json.dumps(encoding, sort_keys=True) if encoding else entry.treatment,
        }
    elif entry.origin == "imported" and entry.trust != "external":
        instructions = queries.cards[entry.id].instructions
        stated = {"commit": entry.revision if entry.trust == "commit" else None, "length": entry.max_tokens,
                  "prompts": {True: "those of its makers", False: "{}", None: None}[instructions],
                  "experiment": entry.treatment}  # fmt: skip
    else:
        stated = {"experiment": entry.treatment}
    return {name: str(value) for name, value in stated.items() if value}


def _iter_printed_scores(queries: Queries) -> Iterator[tuple[int, int, float]]:
    """The numbers that papers print for the first questions of tasks: scope, entry and score."""
    for number, slug, convention, document in queries.list_averages():
        columns, suite = document.get("columns") or {}, queries.suites.get(slug)
        if document.get("apart"):
            continue
        for column in suite.suite.columns if suite and columns else ():
            scope = build_task_scope(column.tasks[0], convention)
            is_first = scope == load_questions(queries)[scope.task][0].scope
            if column.name in columns and len(column.tasks) == 1 and is_first:
                yield queries.scope_ids[scope.form], number, columns[column.name]


def build_verdict_cell(rows: Sequence[NumberPair], entry: Entry) -> Cell:
    """The verdict beside an entry's number: its own fault, else what the model's sources say together."""
    broken = [one for one in rows if one.value.fault and one.value.entry is entry]
    compared = [one for one in rows if one.base is not None and not one.value.fault]
    compared.sort(key=lambda one: (not one.is_independent, list(VERDICTS).index(one.verdict)))
    return next((one.build_cell() for one in (*broken, *compared)), EMPTY)


def _build_value_cell(value: Value | None) -> Cell:
    """A number, with who states it, and under which conditions."""
    if value is None:
        return EMPTY
    note = "; ".join([value.source, *(f"{name} {text[:40]}" for name, text in value.conditions.items())])
    return build_score_cell(value.score, f"/results/{value.result}" if value.result else "", note=note)


def _build_source_cell(value: Value | None) -> Cell:
    """Who states a number, and of which commit or weights of the model."""
    if value is None:
        return EMPTY
    stated = (
        f"{name} {value.conditions[name]}" for name in ("commit", "weights") if name in value.conditions
    )
    return link(value.source, note=next(stated, ""))


COMPARISON_FIELDS: Sequence[Field[NumberPair]] = [
    Field("name", "Task", lambda one: link(f"{one.task} {one.part}".rstrip(), format_task_path(one.task)),
          lambda one: one.task.casefold(), sticky=True),
    Field("base", "Reference", lambda one: _build_value_cell(one.base),
          lambda one: one.base.score if one.base else None, numeric=True, card="Reference",
          note="The first there is of: this harness, mteb's results, its makers, a paper."),
    Field("by", "by", lambda one: _build_source_cell(one.base), card="by"),
    Field("value", "Other", lambda one: _build_value_cell(one.value), lambda one: one.value.score,
          numeric=True, note="The number of another source.", card="Other"),
    Field("source", "by", lambda one: _build_source_cell(one.value), lambda one: one.value.source,
          card="by"),
    Field("delta", "Difference", lambda one: build_delta_cell(one.delta),
          lambda one: None if one.delta is None else abs(one.delta), numeric=True, card="Difference"),
    Field("verdict", "Verdict", NumberPair.build_cell, lambda one: one.verdict, card="Verdict"),
    Field("why", "Why", sort=lambda one: one.reason, card="Why",
          note="What both state differently: the reference first."),
    Field("mteb", "mteb", sort=lambda one: one.versions, note="The versions of mteb that scored."),
]  # fmt: skip
"""The columns of comparisons."""
