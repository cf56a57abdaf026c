"""A protocol as one run: its steps are planned one by one, joined into one plan, and executed together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from harness.core.errors import DataError, HarnessError, TrainingDataError, UsageError
from harness.driver import evaluation
from harness.driver.execute import Driver, Result
from harness.jobs.protocol import ProtocolEntry
from harness.plan.plan import ConfiguredModel
from harness.plan.protocol import expand_protocol
from harness.plan.request import PreparedRun, Request


@dataclass(frozen=True, kw_only=True)
class _StepCounts:
    """What a step has to do, what earlier steps do left out.

    Attributes:
        step, recipe, suites: The step, with what a user would type for it.
        trainings: Models that are trained, each member of a sweep counted.
        runs: Fine-tuning runs of tasks with labels.
        trials: Scores that choose in a sweep.
        scores: Scores of tasks, `done` of them recorded, and `lacking` of them without data.
    """

    step: str
    recipe: str
    suites: str
    trainings: int
    runs: int
    trials: int
    scores: int
    done: int
    lacking: int


@dataclass(frozen=True, kw_only=True)
class PreparedProtocol:
    """A protocol that is ready to run.

    Attributes:
        protocol: The protocol.
        quick: Whether it is a quick run, which is no paper's.
        steps: The plan of each step, by name.
        gaps: By the names of the other steps, why they cannot be run, or are left out.
        skipped: The steps that --tasks leaves out, or the quick run.
        joined: All plans as one.
    """

    protocol: ProtocolEntry
    quick: bool
    steps: Mapping[str, PreparedRun]
    gaps: Mapping[str, str]
    skipped: frozenset[str]
    joined: PreparedRun

    @property
    def title(self) -> str:
        """The name of the protocol, with what a quick run is not."""
        quick = " (QUICK RUN on little data, not the paper's protocol)" if self.quick else ""
        return f"protocol {self.protocol.name}{quick}"

    @property
    def open_gaps(self) -> Mapping[str, str]:
        """The steps that were asked for and cannot be run, with the reason."""
        return {name: reason for name, reason in self.gaps.items() if name not in self.skipped}

    def read_results(self) -> tuple[Result, ...]:
        """The results of all steps as they are recorded; nothing is run."""
        run = self.joined
        return Driver(replace(run.plan, jobs=()), store=run.store, cache=run.cache).run()

    def to_json(self) -> dict[str, Any]:
        """What each step has to do, for machines (docs/json.md)."""
        counts = [asdict(step) for step in self.count_steps()]
        about = {"protocol": self.protocol.name, "quick": self.quick, "gaps": dict(self.gaps)}
        return {**about, "steps": counts}

    def count_steps(self) -> list[_StepCounts]:
        """What each step has to do."""
        seen: set[str] = set()
        return [_count_step(name, run, seen) for name, run in self.steps.items()]

    def list_models(self, name: str, asked: ConfiguredModel) -> tuple[ConfiguredModel, ...]:
        """The models of a step that were made of one model of the request, or that model itself."""
        run = self.steps[name]
        return tuple(one for one in run.subjects if _find_root(one).artifact.key == asked.artifact.key)


def prepare_protocol(protocol: ProtocolEntry, base: Request, *, quick: bool = False) -> PreparedProtocol:
    """The plans of all steps of a protocol; nothing is encoded or trained.

    A step is a gap if its data is not here, or if the backbone cannot take it.

    Raises:
        HarnessError: The request cannot be used, or no step can be planned.
    """
    steps: dict[str, PreparedRun] = {}
    gaps: dict[str, HarnessError] = {}
    requests = expand_protocol(protocol, base, quick=quick)
    after = {step.name: step.after for step in protocol.steps}
    for name, request in requests.items():
        start = after[name]
        if start in gaps:
            gaps[name] = DataError(f"it starts from the models of {start}.")
            continue
        starts = steps[start].subjects if start else ()
        if starts:
            request = replace(request, models=tuple(model.artifact.name for model in starts))
        try:
            steps[name] = evaluation.prepare(request, training=not request.suites, starts=starts)
        except (DataError, TrainingDataError) as error:
            gaps[name] = error
        except UsageError as error:
            # What holds without the user's settings too is the backbone's: the other steps can go on.
            usual = expand_protocol(protocol, _leave_settings(base), quick=quick)[name]
            if str(error) != _explain_refusal(replace(usual, models=request.models), starts):
                raise
            gaps[name] = error
    undecided = next((name for name, run in steps.items() if run.plan.choices.jobs), None)
    if undecided is not None:
        raise UsageError(f"The sweep of the step {undecided} decides how its model is evaluated.")
    if not steps:
        raise next(iter(gaps.values()))
    reasons = {
        # One command pulls the data of all steps.
        name: re.sub(r"pull --recipe \S+", f"pull --protocol {protocol.name}", str(error)).replace("\n", " ")
        for name, error in gaps.items()
    }
    slow = {step.name: step.slow for step in protocol.steps if quick and step.slow}
    skipped = {name: "left out by --tasks" for name in after if name not in requests}
    skipped |= {name: f"left out of a quick run: {reason}" for name, reason in slow.items()}
    return PreparedProtocol(
        protocol=protocol,
        quick=quick,
        steps=steps,
        gaps=reasons | skipped,
        skipped=frozenset(skipped),
        joined=evaluation.join_prepared_runs(base, [*steps.values()]),
    )


def _leave_settings(base: Request) -> Request:
    """A request with its models and tasks, and without the settings that a user typed."""
    default = Request(models=base.models, suites=())
    return replace(
        base,
        settings=default.settings,
        evaluation=default.evaluation,
        recipe_settings=default.recipe_settings,
        train_data=(),
    )


def _explain_refusal(request: Request, starts: tuple[ConfiguredModel, ...]) -> str:
    try:
        evaluation.prepare(request, training=not request.suites, starts=starts)
    except HarnessError as error:
        return str(error)
    return ""


def _count_step(name: str, run: PreparedRun, seen: set[str]) -> _StepCounts:
    """What a step has to do; adds the keys of its trainings, runs and scores to those `seen`."""
    plan = run.plan
    sweeps = [one.training.sweep for one in plan.trainings if one.training and one.training.sweep]
    jobs = [job for cell in plan.cells for job in (cell.recipe_plan.jobs if cell.recipe_plan else ())]
    scores = {cell.key: cell for cell in plan.cells if cell.key not in seen}

    def count_new(keys: Iterable[str]) -> int:
        new = {*keys} - seen
        seen.update(new)
        return len(new)

    return _StepCounts(
        step=name,
        recipe="+".join(run.request.recipe),
        suites=", ".join(run.request.suites),
        trainings=count_new(model.artifact.key for model in plan.trained_models),
        runs=count_new(job.key for job in jobs if job.kind == "finetune"),
        trials=count_new(t.key for one in sweeps for trials in one.trials for t in trials.values()),
        scores=count_new(scores),
        done=sum(cell.record is not None for cell in scores.values()),
        lacking=sum(cell.problem is not None for cell in scores.values()),
    )


def _find_root(model: ConfiguredModel) -> ConfiguredModel:
    """The model that the first of a model's trainings starts from."""
    return model if model.training is None else _find_root(model.training.backbone)
