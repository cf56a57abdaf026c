"""From a backbone and a task to the jobs of its score, every key known before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from finetune.glue.data import GLUE
from finetune.glue.jobs import Conclude, Finetune, Select, Source, Start
from finetune.glue.outcome import said
from finetune.glue.protocol import Protocol
from finetune.glue.settings import Trial
from finetune.glue.tasks import MNLI
from harness.data import DataMissing, Located, declared_subsets
from harness.errors import DataError
from harness.identity import digest, plain, task_identity
from harness.jobs import Job, Place
from harness.labelled import LabelSource
from harness.recipe import Laid, Locate, RecipeOptions
from harness.types import Artifact, Task

FRESH = 5
"""Seeds of ours at a chosen cell, where the protocol has none of its own there."""

OTHERWISE = "--mnli MODEL starts from another one, --no-transfer from the backbone"


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """What the runs of a task start from.

    Attributes:
        start: In place of the backbone, None for the backbone.
        identity: Of it, as a part of a run's.
        jobs: That make it; the runs wait for the last one.
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
        """What a run waits for."""
        return tuple(job.key for job in self.jobs[-1:])


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A protocol for one backbone, with what a user asked of it."""

    protocol: Protocol
    options: RecipeOptions
    artifact: Artifact
    locate: Locate

    def score(self, task: Task, name: str) -> Laid:
        """Everything behind one score; `name` is the recipe's.

        Raises:
            DataError: Data is missing: the task's, or that of MNLI where it starts from there.
        """
        task, folder = self._located(task)
        begin = self._beginning(task)
        grid = self._grid(task, folder, begin)
        runs = tuple(job.key for job in grid)
        trials = self._trials(task)
        chooses = self.protocol.selection == "best"
        select = (self._select(task, trials, runs),) if chooses else ()
        final, fresh = self.protocol.final_seeds, self.fresh_seeds
        again = self._again(task, folder, begin, trials, select, runs, (*final, *fresh))
        counted = again[len(final) :] if fresh else again
        identity = {
            **task_identity(self.artifact, task),
            "recipe": name,
            "runs": digest(runs),
            "view": self.protocol.view,
            "final_seeds": list(final),
            "fresh_seeds": list(fresh),
            **({"start": begin.said} if begin.said else {}),
        }
        told = {
            "recipe": name,
            "from": self.protocol.source,
            "assumed": list(self.protocol.assumed),
            "view": self.protocol.view,
            "runs": {"protocol": len(grid) + len(final), "fresh": len(fresh)},
            "start": begin.said,
        }
        key = digest(identity)
        waits = dict.fromkeys((*runs, *(job.key for job in (*select, *again)), *begin.before))
        conclude = Job(
            key=key,
            kind="score",
            label=f"{task.name} ({self.artifact.name})",
            inputs=tuple(waits),
            claim=key,
            place=Place(artifact=self.artifact.slug, task=task.name),
            work=Conclude(
                artifact=self.artifact,
                task=task,
                trials=trials,
                runs=runs,
                seeds=tuple(job.key for job in counted) or (() if chooses else runs),
                kind=self._kind(chooses),
                view=self.protocol.view,
                key=key,
                identity=identity,
                told=told,
            ),
        )
        return Laid(identity=identity, jobs=(*begin.jobs, *grid, *select, *again, conclude), says=begin.says)

    @property
    def fresh_seeds(self) -> tuple[int, ...]:
        """Seeds of ours, apart from every protocol's."""
        chooses = self.protocol.selection == "best" and not self.protocol.final_seeds
        asked = self.options.fresh_seeds
        count = (FRESH if chooses else 0) if asked is None else asked
        return tuple(1000 * self.options.seed + at for at in range(1, count + 1))

    def _kind(self, chooses: bool) -> Literal["fresh", "final", "protocol", "maximum"]:
        if self.fresh_seeds:
            return "fresh"
        if self.protocol.final_seeds:
            return "final"
        return "maximum" if chooses else "protocol"

    def _located(self, task: Task) -> tuple[Task, Path | None]:
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

    def _trials(self, task: Task) -> tuple[Trial, ...]:
        source = task.source
        assert isinstance(source, LabelSource)
        transfer = source.from_mnli and bool(self.protocol.transfer)
        if not self.options.transfer:
            transfer = False
        return self.protocol.trials(task.name, like=source.like, transfer=transfer)

    def _beginning(self, task: Task) -> Beginning:
        wanted = replace(self, options=replace(self.options, transfer=True))._trials(task)
        if wanted[0].start == "backbone":
            return Beginning()
        if not self.options.transfer:
            return Beginning(said={"from": "backbone"})
        if self.options.source is not None:
            content = {"from": "checkpoint", "content": checkpoint_key(self.options.source)}
            kind: Literal["file", "folder"] = "folder" if self.options.source.is_dir() else "file"
            start = Start(kind=kind, path=self.options.source)
            return Beginning(start=start, identity=content, said=content)
        return self._selected(task)

    def _selected(self, task: Task) -> Beginning:
        """The model that the protocol's own runs on MNLI give."""
        try:
            mnli, folder = self._located(GLUE[MNLI])
        except DataError as error:
            raise type(error)(
                f"{task.name} starts from a model for MNLI, which has no data: {error.message}",
                hint=f"{error.hint or ''} {OTHERWISE}.".strip(),
            ) from error
        grid = self._grid(mnli, folder, Beginning())
        works = tuple(job.work for job in grid if isinstance(job.work, Finetune))
        key = self._source_key(tuple(job.key for job in grid))
        source = Job(
            key=key,
            kind="select",
            label=f"the MNLI model to start from ({self.artifact.name})",
            inputs=tuple(job.key for job in grid),
            claim=None,
            work=Source(runs=works, view=self.protocol.view),
        )
        selected = {"from": "selected", "run": key}
        count = f"{len(grid)} run{'s' if len(grid) > 1 else ''}"
        return Beginning(
            start=Start(kind="selected"),
            identity=selected,
            jobs=(*grid, source),
            said=selected,
            says=(f"starts from the selected MNLI model, whose {count} come first ({OTHERWISE})",),
        )

    def _source_key(self, runs: Sequence[str]) -> str:
        return digest({"job": "source", "runs": runs})

    def _grid(self, task: Task, folder: Path | None, begin: Beginning) -> tuple[Job, ...]:
        """Every run of the protocol's own."""
        trials = self._trials(task)
        keys = [digest(self._identity(task, begin, trial)) for trial in trials]
        kept = task.name == MNLI and bool(self.protocol.transfer)
        group = self._source_key(keys) if kept else None
        shown = self.protocol.selection == "none"
        return tuple(
            self._run(
                task, folder, begin, (trial,), trial.seed, self._identity(task, begin, trial), shown, group
            )
            for trial in trials
        )

    def _again(
        self,
        task: Task,
        folder: Path | None,
        begin: Beginning,
        trials: tuple[Trial, ...],
        select: tuple[Job, ...],
        runs: tuple[str, ...],
        seeds: Sequence[int],
    ) -> tuple[Job, ...]:
        """Runs of the chosen cell, or of the only one, with other seeds."""
        made = []
        for seed in seeds:
            if select:
                cell = {"chosen": digest({"runs": runs, "view": self.protocol.view}), "seed": seed}
                identity = self._identity(task, begin, cell)
            else:
                identity = self._identity(task, begin, replace(trials[0], seed=seed))
            run = self._run(task, folder, begin, trials, seed, identity, True, None)
            made.append(replace(run, inputs=(*run.inputs, *(job.key for job in select))))
        return tuple(made)

    def _identity(self, task: Task, begin: Beginning, trial: object) -> dict[str, Any]:
        """What a run depends on."""
        return {**task_identity(self.artifact, task), "trial": trial, "start": begin.identity}

    def _run(
        self,
        task: Task,
        folder: Path | None,
        begin: Beginning,
        trials: tuple[Trial, ...],
        seed: int,
        identity: Mapping[str, Any],
        predictions: bool,
        group: str | None,
    ) -> Job:
        key = digest(identity)
        what = said(trials[0]) if len(trials) == 1 else f"chosen cell, seed {seed}"
        return Job(
            key=key,
            kind="train",
            label=f"{task.name} ({self.artifact.name}), {what}",
            inputs=begin.before,
            claim=key,
            place=Place(artifact=self.artifact.slug, task=task.name, purpose="trial"),
            work=Finetune(
                artifact=self.artifact,
                task=task,
                trials=trials,
                seed=seed,
                data=folder,
                start=begin.start,
                view=self.protocol.view,
                key=key,
                identity=plain(identity),
                predictions=predictions,
                group=group,
            ),
        )

    def _select(self, task: Task, trials: tuple[Trial, ...], runs: tuple[str, ...]) -> Job:
        return Job(
            key=digest({"job": "select", "runs": runs, "view": self.protocol.view}),
            kind="select",
            label=f"{task.name} ({self.artifact.name}), the best cell",
            inputs=runs,
            work=Select(trials=trials, keys=runs, view=self.protocol.view),
        )


def checkpoint_key(path: Path) -> str:
    """What a model folder or a file of weights holds, wherever it lies."""
    from harness.data.folder import content_of
    from harness.filehash import sha256_file

    files = (
        {path.name: path} if path.is_file() else {p.name: p for p in sorted(path.iterdir()) if p.is_file()}
    )
    return content_of({name: sha256_file(file) for name, file in files.items()})
