"""The two sides of a check: requests for scores, their records, and the difference on each task."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from harness.checks.baselines import BaselineModel
from harness.checks.outcome import SEEDED
from harness.core.errors import UsageError
from harness.core.types import Artifact, Suite, Task
from harness.jobs.recipe import TaskRecipe
from harness.plan import catalog
from harness.plan.plan import PlannedScore, plan_scores
from harness.plan.request import PreparedRun, Request
from harness.plan.resolved_request import ResolvedRequest
from harness.results.differences import Identity
from harness.results.record_units import Parts, ScoredRecord
from harness.results.score_differences import Difference, Part
from harness.results.scores import Mean, list_exclusions
from harness.results.units import Units
from harness.storage.store import Store


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

    def group_records(self, task: str) -> list[list[ScoredRecord]]:
        """The records of a task, grouped by model."""
        groups: dict[str, list[ScoredRecord]] = {}
        for record in self.scored[task]:
            groups.setdefault(str(record.model.get("artifact")), []).append(record)
        return list(groups.values())

    @property
    def artifacts(self) -> tuple[str, ...]:
        """The ArtifactKeys of its models."""
        return tuple(dict.fromkeys(run.artifact for run in self.runs))

    @property
    def trainings(self) -> int:
        """The number of its models that a task has, at most; at least 1."""
        counts = Counter(task for run in self.runs for task in run.keys)
        return max(counts.values(), default=1)

    @property
    def identities(self) -> dict[str, tuple[Identity, ...]]:
        """The identities of the records, by task."""
        return {task: tuple(one.identity for one in ones) for task, ones in self.scored.items()}

    @property
    def complete(self) -> bool:
        """Whether no record is missing."""
        return not any(self.missing.values())

    def select_subsets(self, task: str, cells: Collection[tuple[str, str]]) -> CheckSide:
        """The same with the scores of some (split, subset) of a task in place of the task's."""
        records = tuple(_select_record_subsets(one, cells) for one in self.scored[task])
        return replace(self, scored={**self.scored, task: records})

    def select_averages(self, suites: Sequence[Suite]) -> CheckSide:
        """The same, of each task only the splits and subsets that its suite averages."""
        side = self
        for suite in suites:
            apart, cells = list_exclusions(suite), dict[str, list[tuple[str, str]]]()
            for name, part in suite.parts.items():
                cells.setdefault(part.name, []).extend([] if name in apart else part.cells)
            for task in suite.tasks:
                averaged = dict.fromkeys(cells.get(task.name, ()))
                if averaged and {*averaged} != {*task.cells}:
                    side = side.select_subsets(task.name, averaged)
        return side

    def join_task_units(self, task: str, *, repeated: bool) -> Units:
        """The units of a task; of a repeated baseline models are the runs, and seeds count as probes.

        Raises:
            ValueError: Records of the task were measured on different units.
        """
        models = [
            Units.join_runs([one.units for one in ones if one.units is not None])
            for ones in self.group_records(task)
        ]
        return Units.join_runs([units.pool_runs() for units in models]) if repeated else models[0]

    def estimate_null_differences(
        self, suites: Sequence[Suite], changed: float, trainings: int
    ) -> dict[str, Difference]:
        """The differences of an equal model, by task and by column that shows a part of a task.

        Tasks without units are left out.

        Args:
            suites: The suites of the check.
            changed: The share of answers that an equal model changes.
            trainings: The number of its models, used where this side has several.
        """
        averages = self.select_averages(suites)
        parts = {task.name: (averages, task.name) for suite in suites for task in suite.tasks}
        for name, part in (item for suite in suites for item in suite.parts.items()):
            parts[name] = (self.select_subsets(part.name, part.cells), part.name)
        differences = {}
        for name, (side, task) in parts.items():
            scored = side.scored[task]
            if scored and all(one.units is not None for one in scored):
                with contextlib.suppress(ValueError):
                    repeated = len(side.group_records(task)) > 1
                    units = side.join_task_units(task, repeated=repeated)
                    differences[name] = Difference.estimate_null_difference(
                        units, changed=changed, trainings=trainings if repeated else 0
                    )
        return differences

    @staticmethod
    def read_side(
        runs: Sequence[BaselineModel], resolved: ResolvedRequest | PreparedRun, results: Path
    ) -> CheckSide:
        """The records of one side.

        Args:
            runs: Its models with the keys of their records.
            resolved: The request, with suites and recipe.
            results: The results folder of the records.

        Raises:
            RecordError: A record is of a newer schema, or cannot be read.
        """
        store = Store(results)
        scored: dict[str, tuple[ScoredRecord, ...]] = {}
        missing: dict[str, int] = {}
        for task, parts in _score_parts(resolved.suites, resolved.recipe).items():
            wanted_ones = [(run, key) for run in runs for key in run.keys.get(task, ())]
            records = [
                ScoredRecord.load_record(store, run.folder, task, key, parts=parts, cache=resolved.cache)
                for run, key in wanted_ones
            ]
            scored[task] = tuple(one for one in records if one is not None)
            # A task without any pinned key counts as one missing record.
            missing[task] = records.count(None) + (not wanted_ones)
        return CheckSide(runs=tuple(runs), home=results, scored=scored, missing=missing)


def _select_record_subsets(record: ScoredRecord, cells: Collection[tuple[str, str]]) -> ScoredRecord:
    units = None if record.units is None else record.units.select_subsets(cells)
    if units is None:
        return replace(record, units=None, problem=record.problem or "its examples do not name splits")
    return replace(record, units=units, score=float(units.score_runs().mean()))


@dataclass(frozen=True, kw_only=True)
class CheckRequest:
    """The requests for all scores of one model, one request for each seed of an evaluation.

    Attributes:
        requests: Requests for this model; all after the first are for seeded tasks only.
        opened: The first request, resolved.
        runs: The model in the form of a baseline; where a recipe makes models of it, one for each seed.
        identities: The identity of each score, by task.
    """

    requests: tuple[Request, ...]
    opened: ResolvedRequest
    runs: tuple[BaselineModel, ...]
    identities: Mapping[str, tuple[Identity, ...]]

    @staticmethod
    def plan_requests(request: Request, model: str, seeds: int) -> CheckRequest:
        """The requests for a model, and the keys of all its scores.

        Tasks that a recipe trains for have their seeds within one record, and a recipe that makes a model
        makes one for each seed. A finished model is evaluated again only on tasks whose score depends on the
        seed.

        Args:
            request: Suites and settings; its models are ignored.
            model: A catalog name, `org/name[@revision]` or a folder.
            seeds: The number of seeds.

        Raises:
            UsageError: A name or a setting cannot be used.
        """
        request.require_whole_tasks()
        first = replace(request, models=(model,))
        kinds = [catalog.find_recipe_kind(name) for name in first.recipe]
        if seeds > 1 and "task" in kinds:
            first = replace(first, recipe_settings={**first.recipe_settings, "fresh_seeds": seeds})
        if "model" in kinds:
            first = replace(first, seeds=seeds)
        resolved_request = ResolvedRequest.resolve_request(first)
        _refuse_second_training(resolved_request)
        requests, scores = [first], _plan_request_scores(resolved_request)
        # A recipe that makes a model has its seeds in the trainings; another seed of the evaluation is no
        # repeat.
        columns = [column for suite in resolved_request.suites for column in suite.columns]
        drawn = [c for c in columns if any(t.output != "label" and t.type in SEEDED for t in c.tasks)]
        again = () if resolved_request.stages else tuple(column.name for column in drawn)
        for seed in range(1, seeds) if again else ():
            more = replace(
                first, settings=replace(first.settings, seed=first.settings.seed + seed), recipe=(),
                recipe_settings={}, options=replace(first.options, tasks=again),
            )  # fmt: skip
            requests.append(more)
            scores += _plan_request_scores(ResolvedRequest.resolve_request(more))
        identities: dict[str, tuple[Identity, ...]] = {}
        for score in scores:
            identities[score.task.name] = (*identities.get(score.task.name, ()), score.identity)
        return CheckRequest(
            requests=tuple(requests), opened=resolved_request, runs=_build_baseline_models(scores),
            identities=identities,
        )  # fmt: skip


def _refuse_second_training(opened: ResolvedRequest) -> None:
    """Refuse a model that the same recipe has made: the compared model would be trained twice."""
    recipes = {stage.name for stage in opened.stages}
    for lineage in (one.lineage for one in opened.asked if one.lineage is not None):
        if lineage.name in recipes:
            parents = ", ".join(parent.name for parent in lineage.parents)
            raise UsageError(
                f"{opened.request.models[0]} was made by {lineage.recipe} already, and would be again.",
                hint=f"Give what it was made of ({parents}). Or compare finished models: leave out --recipe, "
                "and give the folder of the other finished model as --baseline, or set it as a baseline.",
            )


def _build_baseline_models(scores: Sequence[PlannedScore]) -> tuple[BaselineModel, ...]:
    """The models of some scores with the keys of these, in the form of a baseline; trained ones first."""
    keys: dict[Artifact, dict[str, tuple[str, ...]]] = {}
    # The first model gives the side its name, which is that of the trained model.
    for score in sorted(scores, key=lambda one: one.subject.training is None):
        task_keys = keys.setdefault(score.subject.artifact, {})
        task_keys[score.task.name] = (*task_keys.get(score.task.name, ()), score.key)
    return tuple(
        BaselineModel(
            model=artifact.name, source=artifact.source, artifact=artifact.key, folder=artifact.slug,
            revision=artifact.revision, keys=own,
        )
        for artifact, own in keys.items()
    )  # fmt: skip


def _plan_request_scores(resolved: ResolvedRequest) -> list[PlannedScore]:
    """The planned score of each task for the models of a request."""
    planned = plan_scores(
        resolved.subjects, resolved.suites, settings=resolved.data, seed=resolved.request.settings.seed,
        recipe=resolved.recipe, is_evaluated=resolved.is_evaluated, machine=resolved.machine,
    )  # fmt: skip
    by_key = {one.key: one for one in planned.cells}
    scores: dict[tuple[Artifact, str], PlannedScore] = {}
    for (subject, task), key in planned.keys.items():
        if scores.setdefault((subject.artifact, task.name), by_key[key]).key != key:
            raise UsageError(
                f"Two of the suites have a task {task.name}, on other splits, languages or data.",
                hint="Check these suites one at a time.",
            )
    return list(scores.values())


def _score_parts(suites: Sequence[Suite], recipe: TaskRecipe | None) -> dict[str, Parts]:
    """The (split, metric) pairs of each task's number, where a paper's convention names them."""
    parts: dict[str, Parts] = {}
    for suite in suites:
        convention = suite.conventions.get(recipe.convention) if recipe is not None else None
        for task in suite.tasks:
            parts[task.name] = convention.parts[task.name] if convention and task.output == "label" else ()
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

    def compute_differences(self, tasks: Sequence[Task]) -> dict[str, Difference | str]:
        """The difference between the sides on each task, or the reason why it cannot be tested."""
        return {task.name: _compare_task(self, task.name) for task in tasks}

    def compute_subset_differences(self, task: str) -> dict[tuple[str, str], Difference]:
        """The differences that can be tested of each (split, subset) of a task; none of a task with one."""
        scored = self.candidate.scored[task]
        strata = [stratum for one in scored if one.units is not None for stratum in one.units.strata]
        cells = dict.fromkeys((stratum.split, stratum.subset) for stratum in strata)
        return select_tested(
            {cell: _compare_task(self.select_subsets(task, [cell]), task) for cell in cells if len(cells) > 1}
        )

    def select_subsets(self, task: str, cells: Collection[tuple[str, str]]) -> Comparison:
        """The same with the scores of some (split, subset) of a task in place of the task's."""
        sides = self.candidate.select_subsets(task, cells), self.baseline.select_subsets(task, cells)
        return replace(self, candidate=sides[0], baseline=sides[1])

    def select_averages(self, suites: Sequence[Suite]) -> Comparison:
        """The same, of each task only the splits and subsets that its suite averages."""
        sides = self.candidate.select_averages(suites), self.baseline.select_averages(suites)
        return replace(self, candidate=sides[0], baseline=sides[1])

    def compute_part_differences(self, suite: Suite) -> dict[str, Difference]:
        """The differences that can be tested of columns that show a part of a task, by column."""
        cut = suite.parts.items()
        return select_tested({n: _compare_task(self.select_subsets(p.name, p.cells), p.name) for n, p in cut})

    def explain_missing_score(self, task: str) -> str:
        """The reason why a task lacks a score on one of the sides; empty if both scores are there."""
        for name, side in (("candidate", self.candidate), ("baseline", self.baseline)):
            if side.missing[task] or any(scored.score is None for scored in side.scored[task]):
                return f"the {name} has no score: {_explain_missing_record(self, side, task)}"
        return ""


Name = TypeVar("Name", str, tuple[str, str])


def select_tested(differences: Mapping[Name, Difference | str]) -> dict[Name, Difference]:
    """The differences that can be tested."""
    return {name: one for name, one in differences.items() if isinstance(one, Difference)}


def _explain_missing_record(sides: Comparison, side: CheckSide, task: str) -> str:
    """The reason why a side lacks a record, with advice."""
    scores = [(run.artifact, task) for run in side.runs]
    reasons = [sides.failures[score] for score in scores if score in sides.failures]
    if reasons:
        return reasons[0].rstrip(".")
    pinned = [key[:12] for run in side.runs for key in run.keys.get(task, ())]
    present_keys = {scored.key[:12] for scored in side.scored[task]}
    keys = ", ".join(key for key in pinned if key not in present_keys)
    if not pinned:
        return "it was set without this task (harness baseline set NAME --replace measures it)"
    return f"its record {keys} is not in {side.home / 'records'}" if keys else "a part of it is missing"


def _compare_task(sides: Comparison, task: str) -> Difference | str:
    if missing := sides.explain_missing_score(task):
        return missing
    mine, theirs = sides.candidate.scored[task], sides.baseline.scored[task]
    records = {one.key: one.score for one in mine} == {one.key: one.score for one in theirs}
    outputs, others = ([one.units.outputs if one.units else "" for one in ones] for ones in (mine, theirs))
    # Digests of outputs leave out gold, which may have changed with the data; scores tell that.
    alike = [_compute_record_score(one) for one in mine] == [_compute_record_score(one) for one in theirs]
    if records or (all(outputs) and outputs == others and alike):
        scores = tuple(_compute_record_score(one) for one in mine)
        units = mine[0].units
        return Difference(
            mine=scores, theirs=scores, units=units.count if units else 0,
            examples=Part(variance=0.0, freedom=1), same=True,
        )  # fmt: skip
    for name, ones in (("candidate", mine), ("baseline", theirs)):
        problem = next((one.problem for one in ones if one.units is None), "")
        if problem:
            return f"the {name}: {problem}"
    both = sides.candidate, sides.baseline
    repeated = any(len(side.group_records(task)) > 1 for side in both)
    try:
        candidate_units, other = (side.join_task_units(task, repeated=repeated) for side in both)
    except ValueError as error:
        return str(error)
    if not candidate_units.has_same_examples(other):
        return "the two sides were measured on different examples"
    # A single unit has no variance to test by.
    if min(stratum.count for stratum in candidate_units.strata) < 2:
        return f"its score has a single unit ({candidate_units.unit}), and a test needs two"
    # Evaluations with one seed draw the same texts for both sides; repeated trainings share nothing.
    paired = not repeated and len(mine) == len(theirs) > 1
    return Difference.compare_units(candidate_units, other, paired=paired)


def _compute_record_score(record: ScoredRecord) -> float:
    """The score from a record's units, which follow the recipe's convention, else the main score."""
    return float(record.score or 0) if record.units is None else float(record.units.score_runs().mean())


def mean_score(ones: Sequence[ScoredRecord]) -> float | None:
    """The mean of main scores; None unless all are there."""
    return Mean.compute_mean("records", [one.score for one in ones]).whole


CarryOut = Callable[[Request], Mapping[str, str]]
"""A function that runs a request and returns, by task, why a score is still missing."""
