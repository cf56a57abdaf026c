"""What the suites ask of a task: the same task may be asked with other splits, subsets or data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from harness.types import Task
from leaderboard.index import SiteIndex
from leaderboard.queries import Queries
from leaderboard.scopes import Listed, Raw, Scope, scope_of, views

MOST = "most"
"""The question of a task that no suite asks: what most entries have."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One thing that is asked of a task.

    Attributes:
        name: What stands in URLs: the first suite that asks it, and its convention where there is one.
        scope: Splits, subsets, data and convention.
        holders: The suites that ask it.
        task: The task as the first of them has it; None where no suite asks it.
    """

    name: str
    scope: Scope
    holders: Sequence[Listed] = ()
    task: Task | None = None

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


def _all(suites: Sequence[Listed]) -> dict[str, list[Question]]:
    holders: dict[str, dict[Scope, list[tuple[Listed, Task]]]] = {}
    for one in suites:
        for view in views(one.suite):
            for task in one.suite.tasks:
                scopes = holders.setdefault(task.name, {})
                scopes.setdefault(scope_of(task, view), []).append((one, task))
    return {name: _questions(scopes) for name, scopes in holders.items()}


def _questions(scopes: Mapping[Scope, Sequence[tuple[Listed, Task]]]) -> list[Question]:
    return [
        Question(
            name=found[0][0].slug + (f":{scope.view}" if scope.view else ""),
            scope=scope,
            holders=[one for one, _ in found],
            task=found[0][1],
        )
        for scope, found in scopes.items()
    ]


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
    return Question(name=MOST, scope=Scope(task=task, splits=shape[0], subsets=shape[1], data=pinned))


def _shape(raw: Raw) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(sorted(raw)), tuple(sorted({subset for subsets in raw.values() for subset in subsets}))
