"""What the suites ask of a task: the same task may be asked with other splits, subsets or data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from harness.types import Column, Task
from leaderboard.index import SiteIndex
from leaderboard.queries import Queries
from leaderboard.scopes import Listed, Raw, Scope, scope_of, views

MOST = "most"
"""The question of a task that no suite asks: what most entries have."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One thing that is asked of a task.

    Attributes:
        names: What stands for it in URLs: each suite that asks it, with its convention where there is one, or
            with its column where that shows a part of the task.
        scope: Splits, subsets, data and convention.
        holders: The suites that ask it.
        task: The task as the first of them has it; None where no suite asks it.
    """

    names: tuple[str, ...]
    scope: Scope
    holders: Sequence[Listed] = ()
    task: Task | None = None

    @property
    def name(self) -> str:
        """The first of its names."""
        return self.names[0]

    @property
    def label(self) -> str:
        """The question in a few words, for a choice among several."""
        more = f" and {len(self.holders) - 1} more" if len(self.holders) > 1 else ""
        asked = f"{self.holders[0].suite.title}{more}" if self.holders else "what most entries have"
        view = f", as {self.scope.view} prints it" if self.scope.view else ""
        return f"{asked}{view}: {self.scope_text}"

    @property
    def scope_text(self) -> str:
        """Splits and subsets in a few words."""
        return f"{' + '.join(self.scope.splits)}; {listing(self.scope.subsets, 'subset')}"


def listing(names: Sequence[str], what: str, most: int = 3) -> str:
    """Names, or how many there are.

    >>> listing(["de"], "subset"), listing(["a", "b", "c", "d"], "subset")
    ('subset de', '4 subsets')
    """
    if len(names) > most:
        return f"{len(names)} {what}s"
    return f"{what}{'s' if len(names) != 1 else ''} {', '.join(names)}"


_asked: WeakKeyDictionary[SiteIndex, dict[str, list[Question]]] = WeakKeyDictionary()


def asked(queries: Queries) -> Mapping[str, list[Question]]:
    """The questions of every task that a suite holds; those of main suites first."""
    if queries.index not in _asked:
        _asked[queries.index] = _all(list(queries.suites.values()))
    return _asked[queries.index]


def known_tasks(queries: Queries) -> list[str]:
    """Every task that has a result or is held by a suite."""
    return sorted({*queries.tasks, *asked(queries)})


@dataclass(frozen=True, kw_only=True)
class _Place:
    """A task in a column of a suite."""

    listed: Listed
    column: Column
    task: Task

    @property
    def part(self) -> str:
        """The name of the column, where it shows a part of the task."""
        return self.column.name if self.column.name in self.listed.parts else ""


def _all(suites: Sequence[Listed]) -> dict[str, list[Question]]:
    places: dict[str, dict[Scope, list[_Place]]] = {}
    for one in suites:
        for view in views(one.suite):
            for column in one.suite.columns:
                for task in column.tasks:
                    scopes = places.setdefault(task.name, {})
                    place = _Place(listed=one, column=column, task=task)
                    scopes.setdefault(scope_of(task, view), []).append(place)
    return {name: _questions(scopes) for name, scopes in places.items()}


def _questions(scopes: Mapping[Scope, Sequence[_Place]]) -> list[Question]:
    """The questions of a task: whole ones, then parts, those outside of means last."""
    ordered = sorted(scopes, key=lambda s: (bool(scopes[s][0].part), bool(scopes[s][0].column.shown_only)))
    return [
        Question(
            names=tuple(_name(one, scope) for one in scopes[scope]),
            scope=scope,
            holders=list({one.listed.slug: one.listed for one in scopes[scope]}.values()),
            task=scopes[scope][0].task,
        )
        for scope in ordered
    ]


def _name(place: _Place, scope: Scope) -> str:
    return ":".join(filter(None, (place.listed.slug, scope.view or place.part)))


def common_question(task: str, results: Sequence[tuple[Raw, str]]) -> Question:
    """What most entries have of a task: the commonest splits and subsets, then the commonest data.

    Args:
        task: Its name.
        results: Main scores by split and subset, and the data they are of.
    """
    shapes = Counter(_shape(raw) for raw, _ in results if raw)
    shape = max(shapes, key=lambda one: (shapes[one], one), default=((), ()))
    data = Counter(data for raw, data in results if data and _shape(raw) == shape)
    pinned = max(data, key=lambda one: (data[one], one), default="")
    return Question(names=(MOST,), scope=Scope(task=task, splits=shape[0], subsets=shape[1], data=pinned))


def _shape(raw: Raw) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(sorted(raw)), tuple(sorted({subset for subsets in raw.values() for subset in subsets}))
