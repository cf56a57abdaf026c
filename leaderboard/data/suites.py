"""Scopes: what the columns of all suites ask of tasks, and how a result answers."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain, count, product
from pathlib import Path
from typing import Any, Literal, TypeAlias

from harness.core.types import Column, Suite, SuiteOptions, Task
from harness.plan import catalog
from harness.results.revisions import resolve_data_revision

Reason = Literal["", "none", "failed", "other", "bad", "part", "seeds"]

REASONS: tuple[Reason, ...] = ("", "none", "failed", "other", "bad", "part", "seeds")
"""Why a number does not count; the index keeps the place in this list."""

WHY: Mapping[Reason, str] = {
    "": "",
    "none": "no score: not run, or under another revision or treatment of the model",
    "failed": "it was run and failed",
    "other": "on another revision of the data than the suite's, or on data that does not prove its revision",
    "bad": "an impossible value",
    "part": "splits or subsets that the suite asks for are missing",
    "seeds": "some seeds of the training have no score, so there is no mean over them",
}

Raw = Mapping[str, Mapping[str, "float | None"]]
"""split → subset → main score."""


@cache
def read_table_file(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file that comes with the site."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What one task is asked for.

    `data` is the pinned revision of its data, or the content hash of data that is built; `view`
    names the convention where a recipe trains for the task.
    """

    task: str
    splits: tuple[str, ...]
    subsets: tuple[str, ...]
    data: str
    view: str = ""

    @cached_property
    def form(self) -> str:
        """What names the scope: a digest, as some tasks have thousands of subsets."""
        text = json.dumps([self.task, self.splits, self.subsets, self.data, self.view])
        return hashlib.sha256(text.encode()).hexdigest()

    def answer(self, raw: Raw, data: str) -> tuple[float | None, Reason]:
        """The mean over splits and subsets of one model's main scores, and why it does not count."""
        cells = product(self.splits, self.subsets)
        raw_values = [raw.get(split, {}).get(subset, _ABSENT) for split, subset in cells]
        if not raw_values or any(value is _ABSENT for value in raw_values):
            return None, "part"
        values = [float(v) for v in raw_values if isinstance(v, float | int) and is_possible_score(v)]
        if len(values) < len(raw_values):
            return None, "bad"
        mean = sum(values) / len(values)
        return mean, "" if self.is_same_data(data) else "other"

    def is_same_data(self, data: str) -> bool:
        """Whether data is the pinned one, or is known to hold the same texts."""
        revisions = {resolve_data_revision(self.task, one) for one in (data, self.data)}
        return not self.data or len(revisions) == 1


Scopes: TypeAlias = "Mapping[str, Mapping[int, Scope]]"
"""What all suites ask of each task, by the scopes' numbers."""


def extract_main_scores(
    scores: Mapping[str, Mapping[str, Mapping[str, Any]]], metric: str, main_score: float | None
) -> dict[str, dict[str, float | None]]:
    """Main scores by split and subset, of a record's raw metrics; of a single one the main score itself.

    Args:
        scores: Split → subset → metric → value.
        metric: The task's main metric, for files without `main_score`.
        main_score: The record's score, which replaces the score of a single subset.
    """
    scores_by_split = {
        split: {subset: _find_main_score(metrics, metric) for subset, metrics in subsets.items()}
        for split, subsets in scores.items()
    }
    cells = [(split, subset) for split, subsets in scores_by_split.items() for subset in subsets]
    if len(cells) == 1 and main_score is not None:
        scores_by_split[cells[0][0]][cells[0][1]] = main_score
    return scores_by_split


def _find_main_score(metrics: Mapping[str, Any], metric: str) -> float | None:
    value = metrics.get("main_score", metrics.get(metric))
    return float(value) if isinstance(value, int | float) else None


# Not None: that is a score which a file has, but which is no possible number.
_ABSENT = object()


def is_possible_score(value: float) -> bool:
    """Whether a value can be a score: all metrics lie between -1 and 1.

    >>> is_possible_score(0.5), is_possible_score(5.0), is_possible_score(float("nan"))
    (True, False, False)
    """
    return math.isfinite(value) and -1 <= value <= 1


@dataclass(frozen=True, kw_only=True)
class SiteSuite:
    """A suite as the site lists it: `slug` stands in URLs, `typed` is what --suite takes.

    A reader's own set of tasks has no `typed`, and may have `weights`: what each column weighs in the means.
    """

    slug: str
    typed: str
    suite: Suite
    main: bool
    weights: tuple[float, ...] = ()

    def select_columns(self, places: Sequence[int]) -> SiteSuite:
        """The suite with some of its columns alone."""
        columns = tuple(self.suite.columns[place] for place in places)
        weights = tuple(self.weights[place] for place in places if self.weights)
        return replace(self, suite=replace(self.suite, columns=columns), weights=weights)

    @cached_property
    def parts(self) -> frozenset[str]:
        """The columns that show some splits or subsets of a task, which other columns have more of."""
        return frozenset(self.suite.parts)

    def list_scopes(self, view: str = "") -> list[list[Scope]]:
        """The scopes of each column."""
        return [build_column_scopes(column, view) for column in self.suite.columns]


def build_column_scopes(column: Column, view: str = "") -> list[Scope]:
    """What a column asks of its tasks."""
    return [build_task_scope(task, view) for task in column.tasks]


def build_task_scope(task: Task, view: str = "") -> Scope:
    """What a suite asks of a task."""
    return Scope(
        task=task.name, splits=task.splits, subsets=task.subsets,
        data=task.data.revision or task.data.content, view=view if task.output == "label" else "",
    )  # fmt: skip


def build_whole_scope(column: Column) -> Scope | None:
    """The scope of a column of several tasks that mteb scores as one task of the column's name.

    An imported model has the number of that file where it lacks one of the parts.
    """
    if len(column.tasks) < 2:
        return None
    return Scope(task=column.name, splits=column.tasks[0].splits, subsets=("default",), data="")


def list_conventions(suite: Suite) -> tuple[str, ...]:
    """The conventions of a suite; without any an empty name, which stands for the main score."""
    return tuple(suite.conventions) or ("",)


def load_site_suites(cache: Path, extra: Sequence[str] = ()) -> dict[str, SiteSuite]:
    """Every suite that needs no folder of a user's, and the user's own ones, by slug; main ones first.

    A benchmark with the columns of a suite that has a name of its own is listed once.

    Raises:
        UsageError: One of the user's suites cannot be opened.
    """
    suites_by_slug: dict[str, SiteSuite] = {}
    seen: set[tuple[Scope, ...]] = set()
    for typed, main in _list_suite_names(extra):
        suite = catalog.open_suite(typed, SuiteOptions(cache=cache))
        columns = tuple(scope for column in suite.columns for scope in build_column_scopes(column))
        # The catalog offers some suites twice: `mteb` is `mteb:MTEB(eng, v2)`.
        if columns and columns not in seen:
            seen.add(columns)
            names = chain([format_slug(typed)], (f"{format_slug(typed)}-{number}" for number in count(2)))
            name = next(one for one in names if one not in suites_by_slug)
            suites_by_slug[name] = SiteSuite(slug=name, typed=typed, suite=suite, main=main)
    return suites_by_slug


def _list_suite_names(extra: Sequence[str]) -> list[tuple[str, bool]]:
    entries = catalog.load_suite_entries().values()
    pairs = [(entry.name, True) for entry in entries if entry.alone]
    offered = [(e.name, o.name) for e in entries for o in e.offers() if o.kind == "benchmark"]
    steps = [step for one in catalog.PROTOCOLS.load_entries().values() for step in one.steps]
    names = [
        *pairs,
        *((typed, True) for typed in extra),
        *((typed, False) for step in steps for typed in step.request["suites"]),
        *((f"{name}:{what}", False) for name, what in offered),
    ]
    # Speeds and perplexities are no shares of 1.
    measured = {entry.name for entry in entries if entry.measured}
    return [(typed, main) for typed, main in names if typed.partition(":")[0] not in measured]


def format_slug(text: str) -> str:
    """A text as part of a URL: letters, digits, `-`, `_` and dots, without the end of a format.

    >>> format_slug("mteb:MTEB(eng, v2)"), format_slug("org/name-v1.5"), format_slug("my.json")
    ('mteb-MTEB-eng-v2', 'org-name-v1.5', 'my-json')
    """
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else " " for c in text)
    return re.sub(r"\.(json|csv|md|tex|svg)$", r"-\1", "-".join(safe.split()).strip(".-"))


def collect_scopes(suites: Sequence[SiteSuite]) -> Scopes:
    """Every scope that a suite asks for, by task; their numbers begin with 1."""
    scopes_by_task: dict[str, dict[str, Scope]] = {}
    for site_suite in suites:
        for view in list_conventions(site_suite.suite):
            for column in site_suite.suite.columns:
                every = (*build_column_scopes(column, view), build_whole_scope(column))
                for scope in filter(None, every):
                    scopes_by_task.setdefault(scope.task, {})[scope.form] = scope
    numbers = count(1)
    return {
        task: {next(numbers): scope for scope in scopes.values()} for task, scopes in scopes_by_task.items()
    }
