"""From a backbone and a task to the jobs of its score, every key known before anything runs."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from finetune.glue.choice import Source, Weights
from finetune.glue.conclude import Conclude, Kind
from finetune.glue.data import GLUE
from finetune.glue.protocol import Protocol
from finetune.glue.run import Finetune, Start
from finetune.glue.runs import Beginning, Ready, Runs, source_key
from finetune.glue.tasks import MNLI
from harness.encoder.describe import content_key
from harness.encoder.folder import read_object
from harness.encoder.modules import backbone_folder
from harness.encoder.weights import check_safetensors
from harness.errors import DataError, UsageError
from harness.filehash import sha256_file
from harness.identity import digest, task_identity
from harness.jobs import Job, Place
from harness.labelled import LabelSource
from harness.recipe import Laid, RecipeOptions
from harness.types import Task

FRESH = 5
"""Seeds of ours at a chosen cell, where the protocol has none of its own there."""

OTHERWISE = "--mnli MODEL starts from another one, --no-transfer from the backbone"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The runs of a protocol, with what a user asked of it."""

    runs: Runs
    options: RecipeOptions

    def score(self, task: Task, name: str) -> Laid:
        """Everything behind one score; `name` is the recipe's.

        Raises:
            DataError: Data is missing: the task's, or that of MNLI where it starts from there.
        """
        ready = self._ready(task)
        grid = self.runs.grid(ready)
        keys = tuple(job.key for job in grid)
        select = self.runs.select(ready, keys) if self.protocol.selection == "best" else None
        again = self.runs.again(ready, select, (*self.protocol.final_seeds, *self.fresh_seeds))
        conclude = self._conclude(ready, name, grid, select, again)
        chosen = () if select is None else (select,)
        jobs = (*ready.begin.jobs, *grid, *chosen, *again, conclude)
        return Laid(identity=self._identity(ready, name, keys), jobs=jobs, says=ready.begin.says)

    @property
    def protocol(self) -> Protocol:
        """Of the runs."""
        return self.runs.protocol

    def _ready(self, task: Task) -> Ready:
        task, folder = self.runs.located(task)
        return Ready(task=task, folder=folder, begin=self._beginning(task), trials=self.runs.trials(task))

    def _identity(self, ready: Ready, name: str, keys: tuple[str, ...]) -> dict[str, Any]:
        """What the score depends on."""
        return {
            **task_identity(self.runs.artifact, ready.task),
            "recipe": name,
            "protocol": digest(replace(self.protocol, name="", source="", assumed=(), variants={})),
            "kind": self._kind,
            "runs": digest(keys),
            "view": self.protocol.view,
            "final_seeds": list(self.protocol.final_seeds),
            "fresh_seeds": list(self.fresh_seeds),
            **({"start": ready.begin.said} if ready.begin.said else {}),
        }

    def _told(self, ready: Ready, name: str) -> dict[str, Any]:
        """What the record says of the recipe."""
        own = len(ready.trials) + len(self.protocol.final_seeds)
        return {
            "recipe": name,
            "from": self.protocol.source,
            "assumed": list(self.protocol.assumed),
            "view": self.protocol.view,
            "runs": {"protocol": own, "fresh": len(self.fresh_seeds)},
            "start": ready.begin.said,
        }

    def _conclude(
        self, ready: Ready, name: str, grid: tuple[Job, ...], select: Job | None, again: tuple[Job, ...]
    ) -> Job:
        runs = tuple(job.key for job in grid)
        identity = self._identity(ready, name, runs)
        key, artifact = digest(identity), self.runs.artifact
        chosen = () if select is None else (select.key,)
        counted = again[len(self.protocol.final_seeds) :] if self.fresh_seeds else again
        own = runs if select is None else ()
        work = Conclude(
            task=ready.task,
            trials=ready.trials,
            runs=runs,
            seeds=tuple(job.key for job in counted) or own,
            kind=self._kind,
            view=self.protocol.view,
            key=key,
            identity=identity,
            told=self._told(ready, name),
        )
        return Job(
            key=key,
            kind="score",
            label=f"{ready.task.name} ({artifact.name})",
            inputs=tuple(dict.fromkeys((*runs, *chosen, *(job.key for job in again), *ready.begin.choice))),
            claim=key,
            place=Place(artifact=artifact.slug, task=ready.task.name),
            work=work,
        )

    @property
    def fresh_seeds(self) -> tuple[int, ...]:
        """Seeds of ours, apart from every protocol's."""
        chooses = self.protocol.selection == "best" and not self.protocol.final_seeds
        asked = self.options.fresh_seeds
        count = (FRESH if chooses else 0) if asked is None else asked
        used = {seed for grid in self.protocol.grids.values() for seed in grid.seeds}
        used |= {*self.protocol.final_seeds}
        numbers = (1000 * self.options.seed + at for at in itertools.count(1))
        return tuple(itertools.islice((seed for seed in numbers if seed not in used), count))

    @property
    def _kind(self) -> Kind:
        if self.fresh_seeds:
            return "fresh"
        if self.protocol.final_seeds:
            return "final"
        return "maximum" if self.protocol.selection == "best" else "protocol"

    def _beginning(self, task: Task) -> Beginning:
        wanted = replace(self.runs, transfer=True).trials(task)
        if wanted[0].start == "backbone":
            asked = isinstance(task.source, LabelSource) and task.source.from_mnli
            return Beginning(
                says=("starts from the backbone, as the recipe has no MNLI model",) if asked else ()
            )
        if not self.options.transfer:
            return Beginning(said={"from": "backbone"})
        if self.options.source is not None:
            require_same(self.runs.artifact.folder, self.options.source)
            content = {"from": "checkpoint", "content": checkpoint_key(self.options.source)}
            kind: Literal["file", "folder"] = "folder" if self.options.source.is_dir() else "file"
            start = Start(kind=kind, path=self.options.source)
            return Beginning(start=start, identity=content, said=content)
        return self._selected(task)

    def _selected(self, task: Task) -> Beginning:
        """The model that the protocol's own runs on MNLI give."""
        try:
            mnli, folder = self.runs.located(GLUE[MNLI])
        except DataError as error:
            raise type(error)(
                f"{task.name} starts from a model for MNLI, which has no data: {error.message}",
                hint=f"{error.hint or ''} {OTHERWISE}.".replace("--suite SUITE", "--suite glue").strip(),
            ) from error
        trials = self.runs.trials(GLUE[MNLI])
        grid = self.runs.grid(Ready(task=mnli, folder=folder, begin=Beginning(), trials=trials))
        works = tuple(job.work for job in grid if isinstance(job.work, Finetune))
        key = source_key(tuple(job.key for job in grid))
        source = Job(
            key=key,
            kind="select",
            label=f"the MNLI model to start from ({self.runs.artifact.name})",
            inputs=tuple(job.key for job in grid),
            work=Source(runs=works, view=self.protocol.view),
        )
        weights = Job(
            key=digest({"job": "weights", "source": key}),
            kind="select",
            label=f"the weights to start from ({self.runs.artifact.name})",
            inputs=(key,),
            claim=digest({"job": "weights", "source": key}),
            work=Weights(runs=works),
        )
        selected = {"from": "selected", "run": key}
        count = f"{len(grid)} runs come" if len(grid) > 1 else "run comes"
        return Beginning(
            start=Start(kind="selected"),
            identity=selected,
            jobs=(*grid, source, weights),
            said=selected,
            says=(f"starts from the selected MNLI model, whose {count} first ({OTHERWISE})",),
        )


SAME = (
    "model_type",
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "dim",
    "n_layers",
    "n_embd",
    "n_layer",
)
"""Fields of a config that a backbone and what it is started from share."""


def require_same(backbone: Path, source: Path) -> None:
    """Refuse a model folder whose encoder is not the backbone's: another tokenizer's ids would mean nothing.

    A file of weights is held against the model when it is loaded.

    Raises:
        UsageError: It is another model's, or no model folder.
    """
    if not source.is_dir():
        check_safetensors(source)
        return
    if not (backbone_folder(source) / "config.json").is_file():
        raise UsageError(f"{source} has no config.json.", hint="--mnli takes a model folder, or weights.")
    ours, theirs = (read_object(backbone_folder(folder) / "config.json") for folder in (backbone, source))
    other = [name for name in SAME if ours.get(name) != theirs.get(name)]
    if other:
        name = other[0]
        raise UsageError(
            f"{source} is of another backbone: its {name} is {theirs.get(name)}, not {ours.get(name)}.",
            hint="--mnli takes the same backbone fine-tuned for MNLI, or weights that a run kept.",
        )


def checkpoint_key(path: Path) -> str:
    """What a model folder or a file of weights holds, wherever it lies."""
    return content_key(path)[0] if path.is_dir() else sha256_file(path)
