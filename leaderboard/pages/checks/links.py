"""From a check to what else the site has of its models, tasks and records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.checks.outcome import Check, Party
from leaderboard.pages.task.names import task_path
from leaderboard.pages.task.questions import known_tasks
from leaderboard.queries import Entry, Queries
from leaderboard.scopes import slug
from leaderboard.state import address


@dataclass(frozen=True, kw_only=True)
class Links:
    """Where the parts of a check lead; a name that is missing leads nowhere.

    Attributes:
        compare: The page that puts both models side by side; empty where there is none.
        why: Why there is none, in a sentence.
        models: The pages of the candidate and of the baseline, empty where there is none.
        suites: By a suite's name.
        tasks: By a task's name.
        results: By an EvaluationKey.
    """

    compare: str
    why: str
    models: tuple[str, str]
    suites: Mapping[str, str]
    tasks: Mapping[str, str]
    results: Mapping[str, str]


def links_of(queries: Queries, check: Check) -> Links:
    """Where the parts of a check lead."""
    candidates, baselines = (_entries(queries, party) for party in (check.candidate, check.baseline))
    pair = _pair(candidates, baselines, check.recipe)
    suites = {name: found for name in check.suites if (found := suite_slug(queries, name))}
    known = known_tasks(queries)
    keys = [key for task in check.tasks for key in (*task.candidate_keys, *task.baseline_keys)]
    return Links(
        compare=_compare(pair, list(suites.values())),
        why=_why(candidates, baselines, pair),
        models=(_model(candidates, pair, 0), _model(baselines, pair, 1)),
        suites={name: address(f"/suites/{found}") for name, found in suites.items()},
        tasks={task.task: task_path(task.task) for task in check.tasks if task.task in known},
        results=_results(queries, keys),
    )


def suite_slug(queries: Queries, name: str) -> str:
    """The name in URLs of a suite as it calls itself, or as it was typed; empty where it has no page."""
    if slug(name) in queries.suites:
        return slug(name)
    return next((one.slug for one in queries.suites.values() if name in (one.suite.name, one.typed)), "")


def _entries(queries: Queries, party: Party) -> list[Entry]:
    """The entries of one side, by its ArtifactKeys."""
    return [entry for entry in queries.entries.values() if entry.artifact in party.artifacts]


def _pair(candidates: Sequence[Entry], baselines: Sequence[Entry], recipe: str) -> tuple[Entry, Entry] | None:
    """An entry of each side: treated alike if there are such, as the check has it, with the most tasks."""

    def order(pair: tuple[Entry, Entry]) -> tuple[bool, bool, int]:
        one, other = pair
        return one.treatment == other.treatment, (one.recipe or "") == recipe, one.tasks + other.tasks

    return max(((one, other) for one in candidates for other in baselines), key=order, default=None)


def _compare(pair: tuple[Entry, Entry] | None, suites: Sequence[str]) -> str:
    if pair is None or pair[0] is pair[1]:
        return ""
    names = [pair[1].slug, pair[0].slug]
    return address("/compare", {"m": names, **({"suite": suites[0]} if suites else {})})


def _why(candidates: Sequence[Entry], baselines: Sequence[Entry], pair: tuple[Entry, Entry] | None) -> str:
    if pair is not None:
        return "Both are one model here: the files are the same." if pair[0] is pair[1] else ""
    lacking = [name for name, some in (("candidate", candidates), ("baseline", baselines)) if not some]
    return (
        f"The records of the {' and the '.join(lacking)} are not on this site, so they cannot be put side by "
        "side here. `harness push` sends them."
    )


def _model(entries: Sequence[Entry], pair: tuple[Entry, Entry] | None, side: int) -> str:
    entry = pair[side] if pair is not None else next(iter(entries), None)
    return "" if entry is None else address(f"/models/{entry.model_slug}", {"entry": entry.slug})


def _results(queries: Queries, keys: Iterable[str]) -> dict[str, str]:
    wanted = list(dict.fromkeys(keys))
    found = [row for at in range(0, len(wanted), 500) for row in queries.results(key=wanted[at : at + 500])]
    return {row.key: f"/results/{row.id}" for row in found}
