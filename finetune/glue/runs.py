"""The runs of a protocol for one backbone, as jobs whose keys are known before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from finetune.glue.choice import Select
from finetune.glue.outcome import said
from finetune.glue.protocol import Protocol
from finetune.glue.run import Finetune, Start
from finetune.glue.settings import Trial
from finetune.glue.tasks import MNLI
from harness.data import DataMissing, Located, declared_subsets
from harness.identity import digest, plain, task_identity
from harness.jobs import Job, Place
from harness.labelled import LabelSource
from harness.recipe import Locate
from harness.types import Artifact, Task


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """What the runs of a task start from.

    Attributes:
        start: In place of the backbone, None for the backbone.
        identity: Of it, as a part of a run's.
        jobs: That make it; the last two are the choice among runs, and having its weights.
        said: Of it, as a part of the score's identity; None where the protocol starts no such task
            from elsewhere.
        says: What a user should know of it.
    """

    start: Start | None = None
    identity: Mapping[str, Any] | None = None
    jobs: tuple[Job, ...] = ()
    said: Mapping[str, Any] | None = None
    says: tuple[str, ...] = ()

    @property
    def before(self) -> tuple[str, ...]:
        """What a run waits for: the weights."""
        return tuple(job.key for job in self.jobs[-1:])

    @property
    def choice(self) -> tuple[str, ...]:
        """What a score tells of: the run that was chosen."""
        return tuple(job.key for job in self.jobs[-2:-1])


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A task that can be run: its data found, what its runs start from, and the runs themselves."""

    task: Task
    folder: Path | None
    begin: Beginning
    trials: tuple[Trial, ...]


@dataclass(frozen=True, kw_only=True)
class Runs:
    """A protocol for one backbone.

    Attributes:
        protocol: With its grids.
        artifact: The backbone.
        locate: Where data lies.
        transfer: Whether tasks start from elsewhere where the protocol has it so.
    """

    protocol: Protocol
    artifact: Artifact
    locate: Locate
    transfer: bool = True

    def located(self, task: Task) -> tuple[Task, Path | None]:
        """A task with what its data turned out to be, and the folder to read it from.

        Raises:
            DataError: It cannot be had.
        """
        found = self.locate(task)
        if not isinstance(found, Located):
            raise found
        known = declared_subsets(found.folder) if found.folder else ()
        absent = [subset for subset in task.subsets if known and subset not in known]
        if absent:
            raise DataMissing(
                f"The data root has {task.data.path} without {absent[0]}.",
                hint="Pull the whole of it: harness data pull --suite SUITE --data DIR.",
            )
        return replace(task, data=found.data), found.folder

    def trials(self, task: Task) -> tuple[Trial, ...]:
        """Every run of a task's grid."""
        source = task.source
        assert isinstance(source, LabelSource)
        transfer = source.from_mnli and bool(self.protocol.transfer)
        if not self.transfer:
            transfer = False
        return self.protocol.trials(task.name, like=source.like, transfer=transfer)

    def grid(self, ready: Ready) -> tuple[Job, ...]:
        """Every run of the protocol's own."""
        identities = [self._identity(ready, trial) for trial in ready.trials]
        kept = ready.task.name == MNLI and bool(self.protocol.transfer)
        group = source_key([digest(one) for one in identities]) if kept else None
        return tuple(
            self._run(ready, (trial,), trial.seed, identity, group=group)
            for trial, identity in zip(ready.trials, identities, strict=True)
        )

    def again(self, ready: Ready, select: Job | None, seeds: Sequence[int]) -> tuple[Job, ...]:
        """Runs with other seeds: of the cell that is chosen, or of the only one."""
        made = []
        for seed in seeds:
            if select is None:
                trial = replace(ready.trials[0], seed=seed)
                made.append(self._run(ready, (trial,), seed, self._identity(ready, trial)))
                continue
            cell = {"chosen": select.key, "seed": seed}
            run = self._run(ready, ready.trials, seed, self._identity(ready, cell))
            made.append(replace(run, inputs=(*run.inputs, select.key)))
        return tuple(made)

    def select(self, ready: Ready, runs: tuple[str, ...]) -> Job:
        """The choice of the best of them."""
        view = self.protocol.view
        return Job(
            key=digest({"job": "select", "runs": runs, "view": view}),
            kind="select",
            label=f"{ready.task.name} ({self.artifact.name}), the best cell",
            inputs=runs,
            work=Select(task=ready.task, trials=ready.trials, keys=runs, view=view),
        )

    def _identity(self, ready: Ready, trial: object) -> dict[str, Any]:
        """What a run depends on."""
        return {**task_identity(self.artifact, ready.task), "trial": trial, "start": ready.begin.identity}

    def _run(
        self,
        ready: Ready,
        trials: tuple[Trial, ...],
        seed: int,
        identity: Mapping[str, Any],
        *,
        group: str | None = None,
    ) -> Job:
        key, task = digest(identity), ready.task
        what = said(trials[0]) if len(trials) == 1 else f"chosen cell, seed {seed}"
        return Job(
            key=key,
            kind="train",
            label=f"{task.name} ({self.artifact.name}), {what}",
            inputs=ready.begin.before,
            claim=key,
            place=Place(artifact=self.artifact.slug, task=task.name, purpose="trial"),
            work=Finetune(
                artifact=self.artifact,
                task=task,
                trials=trials,
                seed=seed,
                data=ready.folder,
                start=ready.begin.start,
                view=self.protocol.view,
                key=key,
                identity=plain(identity),
                group=group,
            ),
        )


def source_key(runs: Sequence[str]) -> str:
    """The key of the choice of a run that others start from."""
    return digest({"job": "source", "runs": runs})
