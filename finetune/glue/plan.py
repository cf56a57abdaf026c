"""The plan of a GLUE recipe for one backbone: the jobs of a task's score, every key known before a run."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from finetune.glue import probe
from finetune.glue.jobs import Finetune, Kind, RestoreWeights, ScoreFromRuns, StartFrom, format_trial
from finetune.glue.rows import adapt_trial
from finetune.glue.selection import Select
from finetune.glue.settings import GRID_FIELDS, GlueSettings, Grid, Protocol, Stopping, Training, Trial
from finetune.glue.storage import ClassifierPlace
from harness.core.errors import DataError, UsageError, explain_unknown
from harness.core.files import hash_file
from harness.core.keys import (
    Lineage,
    ParentPart,
    build_data_identity,
    build_task_identity,
    digest,
    serialize_canonical,
)
from harness.core.sources import (
    CHANGED,
    Source,
    SourcedSetting,
    Sources,
    describe_fields,
    describe_notes,
    find_source,
    inherit_sources,
    list_settings,
)
from harness.core.terminal import group_names
from harness.core.types import Artifact, LabelSource, Task
from harness.data.locate import DataMissing, Located, list_readme_subsets
from harness.encoder.backbones import has_network, read_architecture, read_family
from harness.encoder.folder.description import compute_folder_identity, read_token_limits
from harness.encoder.folder.files import (
    list_module_weights,
    read_object,
    read_safetensors,
    read_tensor_headers,
)
from harness.encoder.folder.modules_and_pooling import find_backbone_folder
from harness.jobs.context import JobContext
from harness.jobs.jobs import Job, RecordLocation, Resources
from harness.jobs.recipe import Estimate, Locate, PrintedRow, RecipeEntry, RecipePlan, TaskRecipe
from harness.results.results import describe_modified
from suites.glue import GLUE, MNLI, PATH, REVISION, TASKS, VIEWS


@dataclass(frozen=True, kw_only=True)
class _StartModel:
    """The model that the runs of a task start from: its parts in identities, and the jobs that make it."""

    start: StartFrom | None = None
    identity: Mapping[str, Any] | None = None
    jobs: tuple[Job, ...] = ()
    said: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()

    @property
    def before(self) -> tuple[str, ...]:
        """The key of the job that a run waits for: the weights."""
        return tuple(job.key for job in self.jobs[-1:])

    @property
    def choice(self) -> tuple[str, ...]:
        """The key of the job whose selection a score reports."""
        return tuple(job.key for job in self.jobs[-2:-1])


@dataclass(frozen=True, kw_only=True)
class _TaskRuns:
    """A task with its data located, the model that its runs start from, and their trials."""

    task: Task
    folder: Path | None
    begin: _StartModel
    trials: tuple[Trial, ...]


FRESH = 5
"""The number of our own seeds at a selected cell where the protocol has no final seeds."""


def _count_fresh_seeds(protocol: Protocol, settings: GlueSettings) -> int:
    """The number of our own seeds."""
    if settings.fresh_seeds is not None:
        return settings.fresh_seeds
    # The best cell was chosen by its score on the same rows, which errs upward; other seeds do not.
    chooses = protocol.selection == "best" and not protocol.final_seeds
    return FRESH if chooses else 0


OTHERWISE = (
    "--set mnli=MODEL starts from another one, --set mnli=learning_rate=5e-5 from a run with its own values, "
    "--set transfer=false from the backbone"
)


def _compute_source_key(runs: Sequence[str]) -> str:
    """The key of the job that selects the run to start from."""
    return digest({"job": "source", "runs": runs})


@dataclass(frozen=True, kw_only=True)
class _TaskPlanner:
    """The plans of scores of one backbone under a protocol with a user's settings.

    Fresh seeds are counted from `seed`. `modified` are the values that are not the protocol's own, `start` is
    the protocol of the MNLI runs to start from if it is another one, and `ours` says what no source has.
    """

    protocol: Protocol
    modified: Mapping[str, Any]
    artifact: Artifact
    locate: Locate
    settings: GlueSettings
    seed: int
    start: Protocol | None = None
    results: Path | None = None
    ours: tuple[str, ...] = ()

    def plan_score(self, task: Task, name: str) -> RecipePlan:
        """The plan of one score; `name` is the recipe's."""
        located, folder = self.locate_task(task)
        begin = self._resolve_start_model(located)
        trials = self.list_task_trials(located, transfer=self.settings.transfer)
        ready = _TaskRuns(task=located, folder=folder, begin=begin, trials=trials)
        grid = self.plan_grid_jobs(ready)
        keys = tuple(job.key for job in grid)
        select = self.select(ready, keys) if self.protocol.selection == "best" else None
        # Final seeds first: a score that counts fresh ones skips as many jobs.
        again = self.plan_seed_jobs(ready, select, (*self.protocol.final_seeds, *self.fresh_seeds))
        conclude = self._build_score_job(ready, name, keys, select, again)
        chosen = () if select is None else (select,)
        jobs = (*begin.jobs, *grid, *chosen, *again, conclude)
        runs = ((job.key, job.work) for job in jobs if isinstance(job.work, Finetune))
        return RecipePlan(
            identity=self._build_score_identity(ready, name, keys),
            jobs=jobs,
            notes=begin.notes,
            kept={key: run.place.folder for key, run in runs if run.place is not None},
        )

    def locate_task(self, task: Task) -> tuple[Task, Path | None]:
        """A task with its data identified, and the folder to read it from."""
        located_data = self.locate(task)
        if not isinstance(located_data, Located):
            raise located_data
        # A README without a list of configurations says nothing about what is missing.
        subset_names = list_readme_subsets(located_data.folder) if located_data.folder else ()
        absent = [subset for subset in task.subsets if subset_names and subset not in subset_names]
        if absent:
            raise DataMissing(
                f"The data root has {task.data.path} without {absent[0]}.",
                hint="Pull the whole of it: harness data pull --suite SUITE --data DIR.",
            )
        return replace(task, data=located_data.data), located_data.folder

    def list_task_trials(self, task: Task, *, transfer: bool) -> tuple[Trial, ...]:
        """Every trial of a task's grid; without `transfer` every task starts from the backbone."""
        source = task.source
        assert isinstance(source, LabelSource)
        # None, as GLUE's own tasks say, leaves the choice to the protocol.
        starts = transfer and source.from_mnli and bool(self.protocol.transfer)
        return self.protocol.list_trials(task.name, like=source.like, transfer=starts)

    def plan_grid_jobs(self, ready: _TaskRuns) -> tuple[Job, ...]:
        """The jobs of a task's grid."""
        identities = [self._run_identity(ready, trial) for trial in ready.trials]
        caches_weights = ready.task.name == MNLI and bool(self.protocol.transfer)
        # Named by its runs, so that the cached weights of two grids never compete.
        group = _compute_source_key([digest(one) for one in identities]) if caches_weights else None
        return tuple(
            self._build_run_job(ready, (trial,), trial.seed, identity, group=group)
            for trial, identity in zip(ready.trials, identities, strict=True)
        )

    def plan_seed_jobs(self, ready: _TaskRuns, select: Job | None, seeds: Sequence[int]) -> tuple[Job, ...]:
        """The jobs with other seeds: of the selected cell, or of the only cell."""
        seed_jobs = []
        for seed in seeds:
            if select is None:
                trial = replace(ready.trials[0], seed=seed)
                seed_jobs.append(self._build_run_job(ready, (trial,), seed, self._run_identity(ready, trial)))
                continue
            # The cell is not known yet: the key names the selection that will choose it.
            cell = {"chosen": select.key, "seed": seed}
            run = self._build_run_job(ready, ready.trials, seed, self._run_identity(ready, cell))
            seed_jobs.append(replace(run, inputs=(*run.inputs, select.key)))
        return tuple(seed_jobs)

    def select(self, ready: _TaskRuns, runs: tuple[str, ...]) -> Job:
        """The job that selects the best cell."""
        view = self.protocol.view
        return Job(
            key=digest({"job": "select", "runs": runs, "view": view}),
            kind="select",
            label=f"{ready.task.name} ({self.artifact.name}), the best cell",
            inputs=runs,
            resources=Resources(needs_device=False),
            work=Select(task=ready.task, trials=ready.trials, keys=runs, view=view),
        )

    def _run_identity(self, ready: _TaskRuns, trial: object) -> dict[str, Any]:
        """The identity of a run."""
        return {
            **build_task_identity(self.artifact, ready.task),
            "trial": trial,
            "start": ready.begin.identity,
        }

    def _build_run_job(
        self,
        ready: _TaskRuns,
        trials: tuple[Trial, ...],
        seed: int,
        identity: Mapping[str, Any],
        *,
        group: str | None = None,
    ) -> Job:
        key, task = digest(identity), ready.task
        what = format_trial(trials[0]) if len(trials) == 1 else f"chosen cell, seed {seed}"
        return Job(
            key=key,
            kind="finetune",
            label=f"{task.name} ({self.artifact.name}), {what}",
            inputs=ready.begin.before,
            claim=key,
            place=RecordLocation(artifact=self.artifact.slug, task=task.name, purpose="trial"),
            work=Finetune(
                artifact=self.artifact,
                task=task,
                trials=trials,
                seed=seed,
                data=ready.folder,
                start=ready.begin.start,
                view=self.protocol.view,
                key=key,
                identity=json.loads(serialize_canonical(identity)),  # as a record holds it
                group=group,
                place=self._find_place(task, trials[0], seed) if len(trials) == 1 else None,
            ),
        )

    def _find_place(self, task: Task, trial: Trial, seed: int) -> ClassifierPlace | None:
        """The place of a run's classifier; None where none is kept."""
        if self.results is None or not self.protocol.keeps:
            return None
        lineage = Lineage(
            recipe=self.protocol.name,
            source=self.protocol.source,
            settings=json.loads(serialize_canonical(replace(trial, seed=seed))),
            # As they are typed.
            changed={
                name: ",".join(map(str, value)) if isinstance(value, list) else value
                for name, value in self.modified.items()
            },
            parents=(ParentPart.of(self.artifact),),
            data=({"name": task.name, **build_data_identity(task.data)},),
            seed=seed,
        )
        name = f"{self.artifact.name}-{self.protocol.name}-{task.name}"
        return ClassifierPlace(results=self.results, name=name, lineage=lineage)

    def _build_score_identity(self, ready: _TaskRuns, name: str, keys: tuple[str, ...]) -> dict[str, Any]:
        """The identity of the score."""
        return {
            **build_task_identity(self.artifact, ready.task),
            "recipe": name,
            **self._modified_part,
            # Words that change no run are left out of the key.
            "protocol": digest(
                replace(self.protocol, name="", source="", assumed=(), variants={}, keeps=False)
            ),
            "kind": self._kind,
            "runs": digest(keys),
            "view": self.protocol.view,
            "final_seeds": list(self.protocol.final_seeds),
            "fresh_seeds": list(self.fresh_seeds),
            **({"start": ready.begin.said} if ready.begin.said else {}),
        }

    def _build_score_job(
        self, ready: _TaskRuns, name: str, runs: tuple[str, ...], select: Job | None, again: tuple[Job, ...]
    ) -> Job:
        identity = self._build_score_identity(ready, name, runs)
        key, protocol_runs = digest(identity), len(ready.trials) + len(self.protocol.final_seeds)
        recipe_facts = {
            "recipe": name,
            **self._modified_part,
            "from": self.protocol.source,
            "assumed": [*self.protocol.assumed, *self.ours],
            "view": self.protocol.view,
            "runs": {"protocol": protocol_runs, "fresh": len(self.fresh_seeds)},
            "start": ready.begin.said,
        }
        chosen = () if select is None else (select.key,)
        counted = again[len(self.protocol.final_seeds) :] if self.fresh_seeds else again
        work = ScoreFromRuns(
            task=ready.task,
            trials=ready.trials,
            runs=runs,
            seeds=tuple(job.key for job in counted) or (runs if select is None else ()),
            kind=self._kind,
            view=self.protocol.view,
            key=key,
            identity=identity,
            told=recipe_facts,
        )
        return Job(
            key=key,
            kind="score",
            label=f"{ready.task.name} ({self.artifact.name})",
            inputs=tuple(dict.fromkeys((*runs, *chosen, *(job.key for job in again), *ready.begin.choice))),
            claim=key,
            place=RecordLocation(artifact=self.artifact.slug, task=ready.task.name),
            resources=Resources(needs_device=False),
            work=work,
        )

    @property
    def _modified_part(self) -> dict[str, Any]:
        """The modified settings in an identity; nothing of a protocol as it is printed."""
        return {"modified": dict(self.modified)} if self.modified else {}

    @property
    def fresh_seeds(self) -> tuple[int, ...]:
        """Our own seeds, apart from every seed of the protocol."""
        count = _count_fresh_seeds(self.protocol, self.settings)
        used = {seed for grid in self.protocol.grids.values() for seed in grid.seeds}
        used |= {*self.protocol.final_seeds}
        # 1000 apart, so that the runs of two values of --seed share no seed.
        numbers = (1000 * self.seed + at for at in itertools.count(1))
        return tuple(itertools.islice((seed for seed in numbers if seed not in used), count))

    @property
    def _kind(self) -> Kind:
        if self.fresh_seeds:
            return "fresh"
        if self.protocol.final_seeds:
            return "final"
        return "maximum" if self.protocol.selection == "best" else "protocol"

    def _resolve_start_model(self, task: Task) -> _StartModel:
        if self.list_task_trials(task, transfer=True)[0].start == "backbone":
            needs_mnli = isinstance(task.source, LabelSource) and task.source.from_mnli
            return _StartModel(
                notes=("starts from the backbone, as the recipe has no MNLI model",) if needs_mnli else ()
            )
        if not self.settings.transfer:
            return _StartModel(said={"from": "backbone"})
        if self.settings.mnli is not None and self.start is None:
            _require_same(self.artifact.folder, self.settings.mnli)
            path = self.settings.mnli
            content = compute_folder_identity(path).key if path.is_dir() else hash_file(path)
            start = StartFrom(kind="folder" if path.is_dir() else "file", path=path)
            start_identity = {"from": "checkpoint", "content": content}
            return _StartModel(start=start, identity=start_identity, said=start_identity)
        return self._plan_mnli_start(task)

    def _plan_mnli_start(self, task: Task) -> _StartModel:
        """The MNLI model that the protocol's own runs give."""
        try:
            mnli, folder = self.locate_task(GLUE[MNLI])
        except DataError as error:
            raise type(error)(
                f"{task.name} starts from a model for MNLI, which has no data: {error.message}",
                hint=f"{error.hint or ''} {OTHERWISE}.".replace("--suite SUITE", "--suite glue").strip(),
            ) from error
        planner = replace(self, protocol=self.start or self.protocol)
        trials = planner.list_task_trials(GLUE[MNLI], transfer=self.settings.transfer)
        grid = planner.plan_grid_jobs(_TaskRuns(task=mnli, folder=folder, begin=_StartModel(), trials=trials))
        works = tuple(job.work for job in grid if isinstance(job.work, Finetune))
        keys = tuple(job.key for job in grid)
        key = _compute_source_key(keys)
        source = Job(
            key=key,
            kind="select",
            label=f"the MNLI model to start from ({self.artifact.name})",
            inputs=keys,
            resources=Resources(needs_device=False),
            work=Select(task=mnli, trials=trials, keys=keys, view=self.protocol.view, by="watched"),
        )
        weights = Job(
            key=digest({"job": "weights", "source": key}),
            kind="select",
            label=f"the weights to start from ({self.artifact.name})",
            inputs=(key,),
            # Two workers must not train the lost run at once.
            claim=digest({"job": "weights", "source": key}),
            work=RestoreWeights(runs=works),
        )
        selected = {"from": "selected", "run": key}
        count = f"{len(grid)} runs come" if len(grid) > 1 else "run comes"
        typed = "" if self.start or not {*GRID_FIELDS} & {*self.modified} else ", with the values of --set"
        return _StartModel(
            start=StartFrom(kind="selected"),
            identity=selected,
            jobs=(*grid, source, weights),
            said=selected,
            notes=(f"starts from the selected MNLI model, whose {count} first{typed} ({OTHERWISE})",),
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
"""Config fields that a backbone and the model it starts from must share."""


def _require_same(backbone: Path, source: Path) -> None:
    """Refuse a model folder of another backbone, whose token ids differ; files are checked when loaded."""
    if not source.is_dir():
        read_safetensors(source)
        return
    if not (find_backbone_folder(source) / "config.json").is_file():
        raise UsageError(
            f"{source} has no config.json.", hint="--set mnli=MODEL takes a model folder, or weights."
        )
    # Config names differ between families, and a name that neither has is equal.
    ours, theirs = (
        read_object(find_backbone_folder(folder) / "config.json") for folder in (backbone, source)
    )
    other = [name for name in SAME if ours.get(name) != theirs.get(name)]
    if other:
        name = other[0]
        raise UsageError(
            f"{source} is of another backbone: its {name} is {theirs.get(name)}, not {ours.get(name)}.",
            hint="--set mnli=MODEL takes the same backbone fine-tuned for MNLI, or weights that a run kept.",
        )


def entry(
    protocol: Protocol, summary: str, sources: Sources | None = None, printed: Sequence[PrintedRow] = ()
) -> RecipeEntry:
    """The catalog entry of a protocol with its variants.

    Args:
        protocol: The protocol.
        summary: It in words.
        sources: The sources of settings by variant.
        printed: The printed rows that it comes near to.
    """

    def open_(variant: str, settings: GlueSettings) -> TaskRecipe:
        chosen = protocol.variants[variant] if variant else protocol
        by_variant = {name: {**_OWN_SOURCES, **one} for name, one in (sources or {}).items()}
        base, default = (
            _GlueRecipe(
                protocol=one,
                variant="",
                settings=GlueSettings(),
                modified={},
                sources=by_variant.get(name, {}),
            )
            for name, one in (("", protocol), (variant, chosen))
        )
        before = default.list_sourced_settings()
        inherited = inherit_sources(before, base.list_sourced_settings())
        settings.check_glue_settings()
        if (settings.mnli is not None or not settings.transfer) and not chosen.transfer:
            name = "mnli" if settings.mnli is not None else "transfer"
            raise UsageError(
                f"{protocol.name} starts no task from a model for MNLI.", hint=f"Leave out --set {name}."
            )
        narrowed, modified = settings.adapt_protocol(chosen)
        start = settings.resolve_start_settings()
        recipe = _GlueRecipe(
            protocol=narrowed,
            variant=variant,
            settings=settings,
            modified=modified,
            start=None if start is None else start.adapt_protocol(chosen)[0],
            sources=inherited,
        )
        rows = zip(before, recipe.list_sourced_settings(), strict=True)
        changed = {new.name: CHANGED for old, new in rows if new.value != old.value}
        return replace(recipe, sources={**inherited, **changed})

    summaries = {name: f"{one.source}; {one.runs} runs" for name, one in protocol.variants.items()}
    return RecipeEntry(
        name=protocol.name,
        summary=f"{summary}; {protocol.runs} runs on all of GLUE",
        kind="task",
        settings={
            name: GlueSettings.from_protocol(one) for name, one in {"": protocol, **protocol.variants}.items()
        },
        open=open_,
        variants=summaries,
        printed=tuple(printed),
    )


_GRID = {**GRID_FIELDS, "seeds": "seeds"}
"""The settings of a grid as they are typed, and its fields."""

_APART = ("name", "source", "training", "grids", "assumed", "keeps", "variants")
"""What of a protocol is no setting, or is listed on its own."""

_TABLES = "; ".join(
    f"{task.name} {' and '.join(task.columns)}, {' and '.join(task.metrics)} on {' and '.join(task.dev)}, "
    f"rows {task.train_rows:,}"
    for task in TASKS.values()
)

_FACTS = {
    "data": f"{PATH}@{REVISION}, split train, texts in the order of these columns, scored by these metrics: "
    f"{_TABLES}",
    "loss": "the mean cross-entropy of a batch; STS-B: mean squared error of one output on labels of 0 to 5",
}

_OWN_SOURCES = {
    "fresh_seeds": Source(here="the best cell is chosen on the same rows, which errs upward"),
}
"""The sources of what every protocol here has."""


def _collect_values(grid: Grid) -> dict[str, tuple[Any, ...]]:
    return {name: getattr(grid, field) for name, field in _GRID.items()}


def _join_equal(values: Mapping[str, Any]) -> Any:
    """The value that all tasks have; else the values by their tasks, joined with commas."""
    tasks = group_names(values.items())
    if len(tasks) == 1:
        return next(iter(tasks))
    return {", ".join(names): value for value, names in tasks.items()}


def _fit_training(protocol: Protocol, folder: Path) -> Training:
    """The settings of a protocol's runs as a backbone has them, from JSON and headers of weight files."""
    place, half = find_backbone_folder(folder), protocol.training.float32_tasks
    task = next(one for one in protocol.grids if one not in half)
    training = adapt_trial(place, protocol.list_trials(task)[0])[0].training
    limit = read_token_limits(folder)[0].table or training.max_length
    head, dropout = training.head, training.dropout
    stored, family = read_tensor_headers(list_module_weights(place)) or (), read_family(place)
    called = family.names.ours if family is not None and family.names is not None else str
    dense = {"pooler": any("pooler." in name for name in stored)}
    dense["mlm"] = has_network(place) and any(called(name) == "head.dense.weight" for name in stored)
    if not dense.get(head.dense, True):
        head = replace(head, dense="fresh")
    if has_network(place):
        shape = read_architecture(place)
        unset = (name for name, share in asdict(dropout).items() if share is None)
        dropout = replace(dropout, **{name: getattr(shape, f"{name}_dropout") for name in unset})
    return replace(training, max_length=min(training.max_length, limit), head=head, dropout=dropout)


@dataclass(frozen=True, kw_only=True)
class _GlueRecipe:
    """A protocol with a user's settings (harness.jobs.recipe.TaskRecipe)."""

    protocol: Protocol
    variant: str
    settings: GlueSettings
    modified: Mapping[str, Any]
    start: Protocol | None = None
    results: Path | None = None
    sources: Mapping[str, Source] = field(default_factory=dict)

    def attach_results(self, results: Path) -> TaskRecipe:
        """The recipe with the folder in which it keeps classifiers."""
        return replace(self, results=results)

    @property
    def _typed(self) -> str:
        """The recipe's name as a user types it."""
        return f"{self.protocol.name}:{self.variant}" if self.variant else self.protocol.name

    @property
    def name(self) -> str:
        """The recipe's name as a user types it, with the settings that are modified."""
        return ", ".join([self._typed, *describe_modified(self.modified)])

    @property
    def source(self) -> str:
        """The paper's section, and its code."""
        return self.protocol.source

    @property
    def convention(self) -> str:
        """The paper's convention, or NeoBERT's for a recipe without a paper."""
        return self.protocol.view

    @property
    def uses_seed(self) -> bool:
        """Whether there are fresh seeds, which are counted from the user's."""
        return _count_fresh_seeds(self.protocol, self.settings) > 0

    def list_sourced_settings(self, backbone: Artifact | None = None) -> list[SourcedSetting]:
        """Every setting with its value and source, of all tasks, as it is for a backbone."""
        protocol, meanings = self.protocol, describe_fields(Trial)
        order = ", the order of rows," if protocol.training.shuffled else ""
        mean = " The score is the mean over them." if protocol.selection == "none" else ""
        meanings["seeds"] = f"Seed of the head{order} and dropout.{mean}"
        if not self.settings.transfer:
            protocol = replace(protocol, transfer=())
        training = protocol.training if backbone is None else _fit_training(protocol, backbone.folder)
        values = {task: _collect_values(grid) for task, grid in protocol.grids.items()}
        grids = {name: _join_equal({task: one[name] for task, one in values.items()}) for name in _GRID}
        facts = [
            SourcedSetting(name=name, value=value, meaning=meanings.get(name, ""))
            for name, value in {**_FACTS, **grids}.items()
        ]
        # As it is typed: the protocol has another name for it.
        shared = [
            replace(row, name="dtype") if row.name == "autocast" else row
            for row in list_settings(training, {})
        ]
        settings = replace(self.settings, fresh_seeds=_count_fresh_seeds(protocol, self.settings))
        # The score is then that after the last step, whenever a run is evaluated.
        if training.stopping == Stopping():
            shared = [replace(row, inert=row.inert or "cadence." in row.name) for row in shared]
        return [
            *(replace(row, source=find_source(row.name, self.sources)) for row in (*facts, *shared)),
            *(
                replace(row, meaning=f"{row.meaning} {VIEWS[protocol.view].says}.")
                if row.name == "view"
                else row
                for row in list_settings(protocol, self.sources, left_out=_APART)
            ),
            *(row for row in list_settings(settings, self.sources) if row.name in ("fresh_seeds", "mnli")),
        ]

    def list_assumptions(self) -> tuple[str, ...]:
        """What the sources leave open, and the reading taken."""
        return self.protocol.assumed

    def list_facts(self, _model: Artifact | str = "") -> dict[str, str]:
        """What holds beside the settings, by subject."""
        training = self.protocol.training
        facts = {
            "head": " ".join((training.head.__doc__ or "").partition("Attributes:")[0].split()),
            "evaluations": " ".join((training.cadence.__doc__ or "").split("\n\n")[1].split()),
            "texts": "as one or a pair in the tokenizer's own form, the longer cut first, padded to a batch's"
            " longest",
            "steps": "epochs * ceil(n / b) of n rows in batches of b",
            "weights": "all are trained, those of the head among them",
            "backbone": "--model NAME@COMMIT fixes its revision; records name the one that was taken",
        }
        if training.stopping == Stopping():
            facts["evaluations"] += " Without effect on the score, which is that after the last step."
        # The library's own class has another head.
        return {name: text for name, text in facts.items() if name != "head" or not training.head.library}

    def plan_task(self, artifact: Artifact, task: Task, *, locate: Locate, seed: int) -> RecipePlan:
        """The RecipePlan of a task: its grid, the selection, the runs at the chosen cell, and the score."""
        source = task.source
        assert isinstance(source, LabelSource)
        if source.like not in self.protocol.grids:
            raise explain_unknown("task of GLUE", source.like, self.protocol.grids, then="See docs/glue.md.")
        planner = _TaskPlanner(
            protocol=self.protocol,
            modified=self.modified,
            artifact=artifact,
            locate=locate,
            settings=self.settings,
            seed=seed,
            start=self.start,
            results=self.results,
            ours=describe_notes(self.list_sourced_settings()),
        )
        try:
            return planner.plan_score(task, self._typed)
        except DataError as error:
            identity = {"artifact": artifact.key, "task": task.name, "recipe": self.name}
            return RecipePlan(identity=identity, problem=error)

    def estimate(self, jobs: Sequence[Job], context: JobContext) -> list[Estimate | None]:
        """The estimated cost of each of these runs, from twenty steps on this machine."""
        return probe.estimate_runs(
            context, [job.work if isinstance(job.work, Finetune) else None for job in jobs]
        )

    def build_probe_job(self, jobs: Sequence[Job]) -> Job | None:
        """The job that measures the memory of the largest runs, None without runs."""
        works = probe.Memory.select_largest_runs([job.work for job in jobs if isinstance(job.work, Finetune)])
        if not works:
            return None
        work = probe.Memory(runs=works)
        return Job(key="memory", kind="finetune", label="memory of one run", work=work)
