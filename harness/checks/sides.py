"""The two sides of a check: their records, their difference on each task, and the setting of a baseline."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness import paths
from harness.checks.baselines import Baseline, BaselineModel, require_new_name, write_baseline
from harness.checks.difference import Difference, Part
from harness.checks.record_units import Parts, ScoredRecord
from harness.checks.units import Units
from harness.differences import Identity, require_alike
from harness.errors import HarnessError, UsageError, shortened
from harness.plan import ConfiguredModel, PlannedScore, plan_scores
from harness.report import Report
from harness.request import Request, ResolvedRequest
from harness.scores import Mean, shown_only
from harness.store import Store
from harness.types import Suite, Task

SEEDED = frozenset({"Classification", "MultilabelClassification", "Regression", "Clustering"})
"""Types whose tasks draw texts at random: another seed gives another score of the same model."""


@dataclass(frozen=True, kw_only=True)
class CheckSide:
    """One side of a check.

    Attributes:
        runs: The model, or the repeated models of a baseline.
        home: The results folder of its records.
        scored: The records that are there, by task, then by model and seed.
        missing: The number of missing records by task.
    """

    runs: tuple[BaselineModel, ...]
    home: Path
    scored: Mapping[str, tuple[ScoredRecord, ...]]
    missing: Mapping[str, int]

    def by_model(self, task: str) -> list[list[ScoredRecord]]:
        """The records of a task, grouped by model."""
        found: dict[str, list[ScoredRecord]] = {}
        for one in self.scored[task]:
            found.setdefault(str(one.model.get("artifact")), []).append(one)
        return list(found.values())

    @property
    def complete(self) -> bool:
        """Whether no record is missing."""
        return not any(self.missing.values())

    def part(self, task: str, cells: Collection[tuple[str, str]]) -> CheckSide:
        """The same with the scores of some (split, subset) of a task in place of the task's."""
        return replace(
            self, scored={**self.scored, task: tuple(_part_of(one, cells) for one in self.scored[task])}
        )

    @staticmethod
    def read(runs: Sequence[BaselineModel], found: ResolvedRequest, results: Path) -> CheckSide:
        """The records of one side.

        Args:
            runs: Its models with the keys of their records.
            found: The resolved request, with suites and recipe.
            results: The results folder of the records.

        Raises:
            RecordError: A record is of a newer schema, or cannot be read.
        """
        store = Store(results)
        scored: dict[str, tuple[ScoredRecord, ...]] = {}
        missing: dict[str, int] = {}
        for task, parts in _parts(found).items():
            wanted_ones = [(run, key) for run in runs for key in run.keys.get(task, ())]
            there = [
                ScoredRecord.read(store, run.folder, task, key, parts=parts, cache=found.cache)
                for run, key in wanted_ones
            ]
            scored[task] = tuple(one for one in there if one is not None)
            missing[task] = there.count(None) + (not wanted_ones)
        return CheckSide(runs=tuple(runs), home=results, scored=scored, missing=missing)


def _part_of(one: ScoredRecord, cells: Collection[tuple[str, str]]) -> ScoredRecord:
    units = None if one.units is None else one.units.part(cells)
    if units is None:
        return replace(one, units=None, problem=one.problem or "its examples do not name splits")
    return replace(one, units=units, score=float(units.scores().mean()))


@dataclass(frozen=True, kw_only=True)
class CheckRequest:
    """The requests for all scores of one model, one request for each seed.

    Attributes:
        requests: Requests for this model; all after the first are for seeded tasks only.
        opened: The first request, resolved.
        keys, identities: The EvaluationKey and the identity of each seed's score, by task.
    """

    requests: tuple[Request, ...]
    opened: ResolvedRequest
    keys: Mapping[str, tuple[str, ...]]
    identities: Mapping[str, tuple[Identity, ...]]

    @property
    def subject(self) -> ConfiguredModel:
        """The model with its encoding."""
        return self.opened.asked[0]

    @property
    def run(self) -> BaselineModel:
        """The model in the form of a baseline."""
        artifact = self.subject.artifact
        return BaselineModel(
            model=artifact.name,
            source=artifact.source,
            artifact=artifact.key,
            folder=artifact.slug,
            revision=artifact.revision,
            keys=self.keys,
        )

    @staticmethod
    def of(request: Request, model: str, seeds: int) -> CheckRequest:
        """The requests for a model, and the keys of all its scores.

        Tasks that a recipe trains for have their seeds within one record; a finished model is evaluated again
        only on tasks whose score depends on the seed.

        Raises:
            UsageError: A name or a setting cannot be used.
        """
        first = replace(request, models=(model,))
        if seeds > 1 and first.recipe:
            first = replace(first, recipe_settings={**first.recipe_settings, "fresh_seeds": seeds})
        first.refuse_model_recipe()
        found = ResolvedRequest.of(first)
        requests, cells = [first], _cells(found)
        every = {task: [cell] for task, cell in cells.items()}
        again = _seeded(found.suites)
        for seed in range(1, seeds) if again else ():
            more = replace(
                first,
                settings=replace(first.settings, seed=first.settings.seed + seed),
                options=replace(first.options, tasks=again),
                recipe=(),
                recipe_settings={},
            )
            requests.append(more)
            for task, cell in _cells(ResolvedRequest.of(more)).items():
                every[task].append(cell)
        return CheckRequest(
            requests=tuple(requests),
            opened=found,
            keys={task: tuple(cell.key for cell in cells) for task, cells in every.items()},
            identities={task: tuple(cell.identity for cell in cells) for task, cells in every.items()},
        )


def _seeded(suites: Sequence[Suite]) -> tuple[str, ...]:
    """The columns whose score depends on the seed."""
    columns = [column for suite in suites for column in suite.columns]
    return tuple(c.name for c in columns if any(t.output != "label" and t.type in SEEDED for t in c.tasks))


def _cells(found: ResolvedRequest) -> dict[str, PlannedScore]:
    """The planned score of each task for the only model of a request."""
    asked = plan_scores(
        found.subjects,
        found.suites,
        settings=found.data,
        seed=found.request.settings.seed,
        recipe=found.recipe,
    )
    by_key = {cell.key: cell for cell in asked.cells}
    cells: dict[str, PlannedScore] = {}
    for (_, task), key in asked.keys.items():
        if cells.setdefault(task.name, by_key[key]).key != key:
            raise UsageError(
                f"Two of the suites have a task {task.name}, on other splits, languages or data.",
                hint="Check these suites one at a time.",
            )
    return cells


def _parts(found: ResolvedRequest) -> dict[str, Parts]:
    """The (split, metric) pairs of each task's number, where a paper's convention names them."""
    view = found.recipe.convention if found.recipe is not None else ""
    parts: dict[str, Parts] = {}
    for suite in found.suites:
        convention = suite.conventions.get(view)
        for task in suite.tasks:
            known = task.output == "label" and convention is not None
            parts[task.name] = convention.parts[task.name] if known and convention else ()
    return parts


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Both sides of a check.

    Attributes:
        candidate, baseline: The records of each side.
        failures: The reason why a record is missing, by artifact and task.
    """

    candidate: CheckSide
    baseline: CheckSide
    failures: Mapping[tuple[str, str], str]

    @property
    def repeated(self) -> bool:
        """Whether the baseline holds several models of one training."""
        return len({run.artifact for run in self.baseline.runs}) > 1

    def differences(self, tasks: Sequence[Task]) -> dict[str, Difference | str]:
        """The difference between the sides on each task, or the reason why it cannot be tested."""
        return {
            task.name: _difference(self, task.name) for task in tasks if not self.missing_reason(task.name)
        }

    def part(self, task: str, cells: Collection[tuple[str, str]]) -> Comparison:
        """The same with the scores of some (split, subset) of a task in place of the task's."""
        return replace(
            self, candidate=self.candidate.part(task, cells), baseline=self.baseline.part(task, cells)
        )

    def of_averages(self, suites: Sequence[Suite]) -> Comparison:
        """The same, of each task only the splits and subsets that its suite averages."""
        found = self
        for suite in suites:
            apart, cells = shown_only(suite), dict[str, list[tuple[str, str]]]()
            for name, part in suite.parts.items():
                cells.setdefault(part.name, []).extend([] if name in apart else part.cells)
            for task in suite.tasks:
                averaged = dict.fromkeys(cells.get(task.name, ()))
                if averaged and {*averaged} != {*task.cells}:
                    found = found.part(task.name, averaged)
        return found

    def part_differences(self, suite: Suite) -> dict[str, Difference]:
        """The differences that can be tested of columns that show a part of a task, by column."""
        found = {}
        for name, part in suite.parts.items():
            if not self.missing_reason(part.name):
                one = _difference(self.part(part.name, part.cells), part.name)
                if isinstance(one, Difference):
                    found[name] = one
        return found

    def missing_reason(self, task: str) -> str:
        """The reason why a task lacks a score on one of the sides; empty if both scores are there."""
        for name, one in (("candidate", self.candidate), ("baseline", self.baseline)):
            if one.missing[task] or any(scored.score is None for scored in one.scored[task]):
                return f"the {name} has no score: {_why(self, one, task)}"
        return ""


def _why(sides: Comparison, one: CheckSide, task: str) -> str:
    """The reason why a side lacks a record, with advice."""
    reasons = [
        sides.failures[run.artifact, task] for run in one.runs if (run.artifact, task) in sides.failures
    ]
    if reasons:
        return reasons[0].rstrip(".")
    gone = [key[:12] for run in one.runs for key in run.keys.get(task, ())]
    known = {scored.key[:12] for scored in one.scored[task]}
    keys = ", ".join(key for key in gone if key not in known)
    if not gone:
        return "it was set without this task (harness baseline set NAME --replace measures it)"
    return f"its record {keys} is not in {one.home / 'records'}" if keys else "a part of it is missing"


def _difference(sides: Comparison, task: str) -> Difference | str:
    mine, theirs = sides.candidate.scored[task], sides.baseline.scored[task]
    records = {one.key: one.score for one in mine} == {one.key: one.score for one in theirs}
    outputs, others = ([one.units.outputs if one.units else "" for one in ones] for ones in (mine, theirs))
    if records or (all(outputs) and outputs == others):
        scores = tuple(_own_score(one) for one in mine)
        units = mine[0].units
        return Difference(
            mine=scores,
            theirs=scores,
            units=units.count if units else 0,
            examples=Part(variance=0.0, freedom=1),
            same=True,
        )
    for name, ones in (("candidate", mine), ("baseline", theirs)):
        problem = next((one.problem for one in ones if one.units is None), "")
        if problem:
            return f"the {name}: {problem}"
    return _tested_difference(sides, task)


def _own_score(one: ScoredRecord) -> float:
    """The score from a record's units, which follow the recipe's convention, else the main score."""
    return float(one.score or 0) if one.units is None else float(one.units.scores().mean())


def _tested_difference(sides: Comparison, task: str) -> Difference | str:
    try:
        one, other = (_runs(side, task, sides.repeated) for side in (sides.candidate, sides.baseline))
    except ValueError as error:
        return str(error)
    if not one.same_examples(other):
        return "the two sides were measured on different examples"
    if min(stratum.count for stratum in one.strata) < 2:
        return f"there is a single one of its {one.unit}"
    seeds = [len(side.scored[task]) for side in (sides.candidate, sides.baseline)]
    paired = not sides.repeated and seeds[0] == seeds[1] > 1
    return Difference.between(one, other, paired=paired)


def _runs(side: CheckSide, task: str, repeated: bool) -> Units:
    """The units of a side: of a repeated baseline, models are the runs and their seeds count as probes."""
    models = [
        Units.join_runs([one.units for one in ones if one.units is not None]) for ones in side.by_model(task)
    ]
    return Units.join_runs([units.as_probes() for units in models]) if repeated else models[0]


def mean_score(ones: Sequence[ScoredRecord]) -> float | None:
    """The mean of main scores; None unless all are there."""
    return Mean.of("records", [one.score for one in ones]).whole


def set_baseline(
    name: str,
    request: Request,
    *,
    seeds: int,
    asked: Mapping[str, Any],
    again: bool,
    carry_out: CarryOut,
) -> Baseline:
    """Run the missing scores of a request's models and pin the keys of all scores under a name.

    Args:
        name: The name of the baseline.
        request: Its first model is the baseline, the others are repeats of it.
        seeds: The number of seeds of random draws and of a recipe's trainings.
        asked: The options of the evaluation, by name.
        again: Whether to replace a baseline of this name.
        carry_out: Runs a request where records are missing.

    Raises:
        UsageError: The request cannot be carried out, or there is a baseline of this name.
        HarnessError: A score is missing after the run; nothing was pinned.
    """
    results = paths.results_folder(request.results)
    require_new_name(results, name, replace=again)
    runs, lost = [], dict[str, str]()
    every = [CheckRequest.of(replace(request, models=()), model, seeds) for model in request.models]
    _require_repeats(every)
    for one in every:
        if not CheckSide.read([one.run], one.opened, results).complete:
            lost |= _run_missing(one, carry_out)
        runs.append(one.run)
    if lost:
        reasons = "; ".join(f"{task}: {reason.rstrip('.')}" for task, reason in list(lost.items())[:3])
        raise HarnessError(
            f"The baseline {name} was not set: {len(lost)} tasks have no score ({shortened(list(lost))}).",
            hint=f"{reasons}. Choose others with --tasks, or mend this; what was measured is kept.",
        )
    made = Baseline(
        name=name,
        when=datetime.now(tz=UTC).isoformat(timespec="seconds"),
        suites=request.suites,
        seeds=seeds,
        asked=asked,
        runs=tuple(runs),
    )
    write_baseline(results, made, replace=again)
    return made


def _require_repeats(every: Sequence[CheckRequest]) -> None:
    """Refuse repeats that are the same model twice, or that are not evaluated alike."""
    first, *others = every
    for number, one in enumerate(others, start=2):
        if one.run.artifact in {other.run.artifact for other in every[: number - 1]}:
            raise UsageError(
                f"The model {one.run.source} stands twice: its weights are those of another one.",
                hint="Repeats are models of the same training with other seeds.",
            )
        require_alike(one.identities, first.identities, (), first.run.source)


def _run_missing(one: CheckRequest, carry_out: CarryOut) -> dict[str, str]:
    """Run the missing scores of a model; gives the reasons of failures by task."""
    return {
        failed.cell.task.name: failed.failure.message if failed.failure else "not reached"
        for request in one.requests
        for failed in carry_out(request).failures
    }


CarryOut = Callable[[Request], Report]
"""A function that runs a request and gives its report."""
