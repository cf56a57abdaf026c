"""The plan of a run: planned scores with their keys, existing records, and the jobs for the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeVar, TypeVarTuple

from harness.core.encoding import AnyEncoding, ContextDraw, Encoding, Ranking
from harness.core.errors import DataError, TrainingDataError
from harness.core.keys import Lineage, SweepPart, build_evaluation_identity, digest, format_swept_settings
from harness.core.types import SEED, Artifact, LengthSource, MeasuredSource, Purpose, Size, Suite, Task
from harness.data.locate import DataSettings, Located, check_data, locate_data, locate_local
from harness.encoder.folder.description import describe
from harness.jobs.jobs import (
    SENT_CHARACTERS,
    Encode,
    Job,
    JobKind,
    Measure,
    RecordLocation,
    Resolve,
    Resources,
    Score,
    ScoreObject,
)
from harness.jobs.maxsim import ScoreByMaxSim
from harness.jobs.ranking import Rank
from harness.jobs.recipe import Locate, PlannedModel, RecipePlan, TaskRecipe
from harness.jobs.training_jobs import find_best_member
from harness.results.cost.duration import TimeRange
from harness.storage.record import Record
from harness.storage.store import Store

Arguments = TypeVarTuple("Arguments")
Found = TypeVar("Found")


@dataclass(frozen=True, kw_only=True)
class PlannedSweep:
    """The sweep of settings: its members, each a planned model, and the scores by which one is chosen.

    `trials` are the scores of each member, by the name of the column that chooses.
    """

    part: SweepPart
    members: tuple[ConfiguredModel, ...]
    trials: tuple[Mapping[str, PlannedScore], ...]

    @property
    def open(self) -> tuple[tuple[ConfiguredModel, Mapping[str, PlannedScore]], ...]:
        """The members that have not diverged, each with the scores by which it may be chosen."""
        pairs = zip(self.members, self.trials, strict=True)
        return tuple((one, found) for one, found in pairs if one.training and not one.training.diverged)

    @property
    def decides_encoding(self) -> bool:
        """Whether its members are evaluated in different ways, the chosen one in its own."""
        return len({member.encoding for member in self.members}) > 1

    def format_member_value(self, member: ConfiguredModel) -> str:
        """The settings with a member's values."""
        return format_swept_settings(self.part.setting, self.part.values[self.members.index(member)])

    def format_member_label(self, member: ConfiguredModel) -> str:
        """The name of a member with its values of the settings."""
        return f"{member.artifact.name}, {self.format_member_value(member)}"


@dataclass(frozen=True, kw_only=True)
class PlannedTraining:
    """The training that makes a model: its plan, where it starts from, its job, and whether it is done.

    With a `sweep` the job chooses one of the sweep's members. `diverged` is why an earlier try diverged,
    empty if none did.
    """

    model: PlannedModel
    backbone: ConfiguredModel
    job: Job
    done: bool
    sweep: PlannedSweep | None = None
    diverged: str = ""

    def plan_jobs(self, trials: Mapping[str, PlannedScore], *, gate: bool) -> tuple[Job, ...]:
        """The jobs that make the model, its own training last; none if the model exists.

        Args:
            trials: The scores of sweeps by key, with their records if they have one.
            gate: Whether a backbone that loads wrongly is refused; it is loaded and checked first.
        """
        if self.done:
            return ()
        if self.sweep is not None:
            return _sweep_jobs(self.sweep, self.job, trials, gate=gate)
        earlier = self.backbone.training
        # The last job of a training makes its model; the others before it are inputs of that one.
        before = () if earlier is None else earlier.plan_jobs(trials, gate=gate)
        first = _resolve(self.backbone, gate=gate, inputs=tuple(job.key for job in before[-1:]))
        return (*before, first, replace(self.job, inputs=(first.key,)))


@dataclass(frozen=True, kw_only=True)
class ConfiguredModel:
    """A model together with its encoding or ranking.

    One that a recipe makes has a lineage and a training. `evaluation` says in a sentence whether its recipe's
    settings of an evaluation hold; it is empty for recipes without any.
    """

    artifact: Artifact
    encoding: AnyEncoding
    lineage: Lineage | None = field(default=None, compare=False)
    training: PlannedTraining | None = field(default=None, compare=False)
    evaluation: str = field(default="", compare=False)

    @property
    def ranks(self) -> bool:
        """Whether it puts documents in order and has no vectors."""
        return isinstance(self.encoding, Ranking)

    @property
    def is_object(self) -> bool:
        """Whether it is an encoder in memory, which has no files."""
        return not isinstance(self.encoding, Encoding | Ranking)

    @property
    def interacts_late(self) -> bool:
        """Whether it has a vector for each token, and none for a text."""
        return self.encoding.output == "multivector"

    @property
    def has_two_stages(self) -> bool:
        """Whether its vectors depend on a context, be it the null context."""
        return isinstance(self.encoding, Encoding) and self.encoding.context is not None

    @property
    def text_length(self) -> int | None:
        """The most tokens of a text, of multi-vector models of a document; None where nothing is encoded."""
        if not isinstance(self.encoding, Encoding):
            return None
        late = self.encoding.late_interaction
        return self.encoding.max_length if late is None else late.document_length

    @property
    def context(self) -> ContextDraw | None:
        """The draw of its context documents; None where no documents are drawn."""
        draw = self.encoding.context if isinstance(self.encoding, Encoding) else None
        return None if draw is None or draw.documents == "null" else draw

    @property
    def loaded(self) -> AnyEncoding:
        """Its settings, without the draw of context documents that it is evaluated with."""
        return self.encoding.loaded if isinstance(self.encoding, Encoding) else self.encoding

    @property
    def decides_encoding(self) -> bool:
        """Whether it is chosen by a sweep that decides how it is evaluated."""
        sweep = None if self.training is None else self.training.sweep
        return sweep is not None and sweep.decides_encoding

    @property
    def stages(self) -> tuple[ConfiguredModel, ...]:
        """The models that recipes make on the way to this one, itself the last."""
        return () if self.training is None else (*self.training.backbone.stages, self)

    @property
    def open_trainings(self) -> tuple[PlannedTraining, ...]:
        """The trainings that are still to be done on the way to this model."""
        if self.training is None or self.training.done:
            return ()
        return (*self.training.backbone.open_trainings, self.training)

    @property
    def on_disk(self) -> ConfiguredModel:
        """The model itself where it is there, else the one from which its trainings start."""
        return self if self.training is None or self.training.done else self.training.backbone.on_disk


@dataclass(frozen=True, kw_only=True)
class PlannedScore:
    """A score that the run needs: a model with its encoding on a task.

    `located` is the place of the data, `record` the stored record, and `problem` the reason why the score
    cannot be computed, each None until known. `recipe_plan` is set for tasks that a recipe trains for. A
    `former` record is one of other weights, or of weights that are not there: it counts if the model has the
    same weights once it is trained again. Scores of a sweep are trials.
    """

    subject: ConfiguredModel
    task: Task
    seed: int
    key: str
    identity: Mapping[str, Any]
    located: Located | None = None
    record: Record | None = None
    problem: DataError | None = None
    recipe_plan: RecipePlan | None = None
    former: Record | None = None
    purpose: Purpose = "final"

    @property
    def encoding(self) -> AnyEncoding:
        """The model's encoding on this task, or its ranking."""
        model_encoding = self.subject.encoding
        if isinstance(model_encoding, Encoding):
            return model_encoding.adapt_encoding(self.task)
        return model_encoding

    @property
    def is_indexed(self) -> bool:
        """Whether its search is approximate."""
        return isinstance(self.encoding, Encoding) and self.encoding.index is not None


def _accept_every_task(_subject: ConfiguredModel, _task: Task) -> bool:
    return True


@dataclass(frozen=True, kw_only=True)
class _PlannedScores:
    """All planned scores, each once; `keys` maps a model and a suite's task to the key of its score."""

    cells: tuple[PlannedScore, ...]
    keys: Mapping[tuple[ConfiguredModel, Task], str]


def plan_scores(
    subjects: Sequence[ConfiguredModel],
    suites: Sequence[Suite],
    *,
    settings: DataSettings,
    seed: int = SEED,
    recipe: TaskRecipe | None = None,
    is_evaluated: Callable[[ConfiguredModel, Task], bool] = _accept_every_task,
    machine: Mapping[str, Any] | None = None,
) -> _PlannedScores:
    """Every task of every suite for every model, each once; no record is read.

    Where a data set is not on this machine, the hub is not asked either: its data is the pinned revision in
    any case.

    Args:
        subjects: The models.
        suites: The suites; a task of several suites is planned once.
        settings: The places of data.
        seed: The seed of samples and probes; models that a recipe trained have the default.
        recipe: The recipe for tasks with labels; required if there are any.
        is_evaluated: Whether a model is evaluated on a task.
        machine: This machine, where a task measures it.
    """
    tasks = tuple(dict.fromkeys(t for s in suites for t in s.tasks))
    lookups = _Lookups.create_lookups(settings)
    cells: dict[str, PlannedScore] = {}
    keys: dict[tuple[ConfiguredModel, Task], str] = {}
    for subject in subjects:
        for task in tasks:
            if not is_evaluated(subject, task):
                continue
            if task.output == "label":
                assert recipe is not None
                cell = _plan_finetune_score(subject, task, recipe, lookups.locate, seed=seed)
            else:
                # The seed of a trained model is that of its training. Its evaluations share one seed, so that
                # scores of several trainings differ by the trainings alone.
                model_seed = SEED if subject.training is not None else seed
                located = lookups.locate_local(task)
                cell = _plan_encoding_score(subject, task, located, seed=model_seed, machine=machine)
            keys[subject, task] = cell.key
            cells.setdefault(cell.key, cell)
    return _PlannedScores(cells=tuple(cells.values()), keys=keys)


def plan_trials(
    members: Sequence[ConfiguredModel], tasks: Mapping[str, Task], settings: DataSettings
) -> tuple[dict[str, PlannedScore], ...]:
    """For each of several models the scores by which one is chosen, by name; no record is read.

    Args:
        members: The models of a sweep.
        tasks: The tasks that choose, by the names of their columns.
        settings: The places of data.
    """
    locate = _Lookups.create_lookups(settings).locate_local

    def plan_trial(member: ConfiguredModel, task: Task) -> PlannedScore:
        return replace(_plan_encoding_score(member, task, locate(task), seed=SEED), purpose="trial")

    return tuple({name: plan_trial(member, task) for name, task in tasks.items()} for member in members)


def _run_once(look: Callable[[*Arguments], Found]) -> Callable[[*Arguments], Found | DataError]:
    """A function that runs once for the same arguments, and returns the error that it meets."""

    @cache
    def look_up(*arguments: *Arguments) -> Found | DataError:
        try:
            return look(*arguments)
        except DataError as error:
            return error

    return look_up  # type: ignore[return-value]


def _plan_finetune_score(
    subject: ConfiguredModel, task: Task, recipe: TaskRecipe, locate: Locate, *, seed: int
) -> PlannedScore:
    recipe_plan = recipe.plan_task(subject.artifact, task, locate=locate, seed=seed)
    return PlannedScore(
        subject=subject,
        task=task,
        seed=seed,
        key=digest(recipe_plan.identity),
        identity=recipe_plan.identity,
        problem=recipe_plan.problem,
        recipe_plan=recipe_plan,
    )


def _plan_encoding_score(
    subject: ConfiguredModel,
    task: Task,
    location: Located | DataError | None,
    *,
    seed: int,
    machine: Mapping[str, Any] | None = None,
) -> PlannedScore:
    located = location if isinstance(location, Located) else None
    if located is not None:
        task = replace(task, data=located.data)
    identity = build_evaluation_identity(subject.artifact, task, subject.encoding, seed=seed, machine=machine)
    problem = location if isinstance(location, DataError) else None
    if isinstance(task.source, MeasuredSource) and isinstance(subject.encoding, Encoding):
        reason = task.source.find_model_problem(task, subject.on_disk.artifact, subject.encoding.dtype)
        problem = DataError(reason) if reason else _find_length_problem(subject, task, problem)
    # The score is planned with its problem, and not refused: the other tasks of the suite can still be run.
    if (subject.ranks and not task.retrieves) or (subject.interacts_late and not task.takes_token_vectors):
        does = "ranks documents" if subject.ranks else "gives a vector for each token"
        problem = DataError(
            f"{subject.artifact.name} {does}; tasks other than retrieval need a vector for each text."
        )
    if subject.is_object and ("documents" in identity or not task.source.scoring.startswith("mteb ")):
        problem = DataError(f"{subject.artifact.name} is an object in Python: only mteb's code can score it.")
    return PlannedScore(
        subject=subject,
        task=task,
        seed=seed,
        key=digest(identity),
        identity=identity,
        located=located,
        problem=problem,
    )


def _find_length_problem(subject: ConfiguredModel, task: Task, problem: DataError | None) -> DataError | None:
    """Why the texts of a task are too long for a model, else the problem that is known already."""
    length, source = subject.text_length or 0, task.source
    if not isinstance(source, LengthSource) or source.length <= length:
        return problem
    model = subject.on_disk.artifact
    description = describe(model.folder, own_code=model.trust_remote_code)
    hint = "Type a larger --max-length; --rope-scaling yarn:2 goes beyond the positions of rotary models."
    if description.unscalable and length == description.position_limit:
        hint = "It has no more positions: choose tasks of shorter texts with --tasks."
    # One sentence for all tasks, which a run then prints once.
    return DataError(f"{model.name} takes texts of {length} tokens, and these are longer.", hint=hint)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything that a run needs: the planned scores, and the jobs for those without a record.

    `keys` maps a model and a suite's task to the key of its score. `known` are the keys of jobs whose records
    are in the store, and `anew` of those whose records are in the store but must be made again. `trainings`
    are the models that the recipe makes, and `trials` the scores of their sweeps. `time` is expected of all
    jobs; None where that of some is not known.
    """

    cells: tuple[PlannedScore, ...]
    jobs: tuple[Job, ...]
    keys: Mapping[tuple[ConfiguredModel, Task], str]
    known: frozenset[str] = frozenset()
    anew: frozenset[str] = frozenset()
    trainings: tuple[ConfiguredModel, ...] = ()
    trials: tuple[PlannedScore, ...] = ()
    time: TimeRange | None = None

    @property
    def trained_models(self) -> list[ConfiguredModel]:
        """The models that are trained, members of sweeps among them; the best of a sweep is a copy of one."""
        planned = [(one, one.training.sweep) for one in self.trainings if one.training]
        return [model for one, sweep in planned for model in (sweep.members if sweep else (one,))]

    @property
    def open(self) -> tuple[PlannedScore, ...]:
        """Planned scores that have no record and no problem."""
        return tuple(c for c in self.cells if c.record is None and c.problem is None)

    @property
    def trial_labels(self) -> dict[str, str]:
        """The names of the models of trials, with their values, by the trials' keys."""
        sweeps = [one.training.sweep for one in self.trainings if one.training and one.training.sweep]
        return {
            trial.key: sweep.format_member_label(member)
            for sweep in sweeps
            for member, trials in zip(sweep.members, sweep.trials, strict=True)
            for trial in trials.values()
        }

    @property
    def choices(self) -> Plan:
        """The part that makes models whose evaluation is known only after a sweep has chosen; often none."""
        trials = {trial.key: trial for trial in self.trials}
        deciding = [one for one in self.trainings if one.decides_encoding]
        every = [one.training.plan_jobs(trials, gate=True) for one in deciding if one.training]
        keys = {job.key for jobs in every for job in jobs}
        jobs = tuple(job for job in self.jobs if job.key in keys)
        return replace(self, cells=(), jobs=jobs, trainings=tuple(deciding))

    @property
    def artifacts(self) -> set[str]:
        """The folders of the artifacts that are scored."""
        return {one.subject.artifact.slug for one in (*self.cells, *self.trials)}

    @property
    def impossible(self) -> tuple[PlannedScore, ...]:
        """Planned scores whose data is not available."""
        return tuple(c for c in self.cells if c.problem is not None)

    @staticmethod
    def make(
        subjects: Sequence[ConfiguredModel],
        suites: Sequence[Suite],
        *,
        store: Store,
        settings: DataSettings,
        seed: int = SEED,
        force: bool = False,
        gate: bool = True,
        purpose: Purpose = "final",
        recipe: TaskRecipe | None = None,
        is_evaluated: Callable[[ConfiguredModel, Task], bool] = _accept_every_task,
        machine: Mapping[str, Any] | None = None,
    ) -> Plan:
        """The plan of a run: every task of every suite for every model, each once.

        A model that is not trained yet is trained where one of its scores is to be computed, or where there
        is no suite.

        Args:
            subjects: The models.
            suites: The suites; none to train models without evaluating them.
            store: The records of the results folder.
            settings: The places of data.
            seed: The seed of samples and probes.
            force: Whether scores with a record are computed again.
            gate: Whether the sanity gate may refuse a model.
            purpose: Where records are looked up and written: final scores, or trials.
            recipe: The recipe for tasks with labels.
            is_evaluated: Whether a model is evaluated on a task.
            machine: This machine, where a task measures it.

        Raises:
            UsageError: The data of a sweep's selection is not available.
        """
        planned_scores = plan_scores(
            subjects,
            suites,
            settings=settings,
            seed=seed,
            recipe=recipe,
            is_evaluated=is_evaluated,
            machine=machine,
        )
        cells = tuple(replace(cell, purpose=purpose) for cell in planned_scores.cells)
        cells = cells if force else tuple(_attach_record(cell, store) for cell in cells)
        lost_runs = {cell.key: keys for cell in cells if (keys := _find_lost_classifiers(cell, store))}
        cells = tuple(_reopen_score(cell) if cell.key in lost_runs else cell for cell in cells)
        lookups = _Lookups.create_lookups(settings)
        cells = lookups.refresh_scores(cells)
        trials = {
            trial.key: trial
            for trial in lookups.refresh_scores(
                [_attach_record(one, store) for one in _open_trials(subjects)]
            )
        }
        _require_selection(trials.values())
        lost_keys = frozenset().union(*lost_runs.values())
        jobs, known_jobs = _collect_jobs(cells, trials, store, lost_keys, gate=gate)
        if not suites:
            training_jobs = [
                job for one in subjects if one.training for job in one.training.plan_jobs(trials, gate=gate)
            ]
            jobs = tuple({job.key: job for job in training_jobs}.values())
        # A job that leaves a record though it is no score of the run, such as a fine-tuning run, may have one
        # that no longer counts: its predictions or its classifier are lost, or it is of other weights.
        score_keys = {cell.key for cell in cells if cell.key not in lost_runs}
        stale = (job for job in jobs if job.key not in known_jobs and job.key not in score_keys)
        return Plan(
            cells=cells,
            jobs=jobs,
            keys=planned_scores.keys,
            known=known_jobs,
            anew=frozenset(
                job.key for job in stale if job.place and _get_job_record(job.key, job.place, store)
            ),
            trainings=tuple(dict.fromkeys(stage for one in subjects for stage in one.stages)),
            trials=tuple(trials.values()),
        )


@dataclass(frozen=True, kw_only=True)
class _Lookups:
    """The lookups of data, each of which runs once for each task; the local one asks no hub."""

    locate_local: Callable[[Task], Located | DataError | None]
    locate: Locate
    check: Callable[[Task, Located], Size | DataError]

    @staticmethod
    def create_lookups(settings: DataSettings) -> _Lookups:
        """The lookups in the places of these settings."""

        def look_up(task: Task) -> Located | None:
            return locate_local(task.data, settings, subsets=task.subsets)

        def locate(task: Task) -> Located:
            return locate_data(task.data, settings, subsets=task.subsets)

        def check(task: Task, located: Located) -> Size:
            return check_data(task, located, settings)

        return _Lookups(locate_local=_run_once(look_up), locate=_run_once(locate), check=_run_once(check))

    def refresh_scores(self, cells: Iterable[PlannedScore]) -> tuple[PlannedScore, ...]:
        """The planned scores with the places of their data, and without records that no longer count."""
        scores = tuple(map(self._fill_planned_score, cells))
        lost = _find_lost_weights(scores)
        return tuple(
            self._fill_planned_score(replace(cell, record=None, former=cell.record))
            if cell.record and cell.subject.artifact.key in lost
            else cell
            for cell in scores
        )

    def _fill_planned_score(self, cell: PlannedScore) -> PlannedScore:
        """The score with the place and the size of its data, or the problem with it, if it has no record."""
        if cell.record is not None or cell.problem is not None:
            return cell
        located = cell.located or self.locate(cell.task)
        if isinstance(located, DataError):
            return replace(cell, problem=located)
        if cell.recipe_plan is None:
            cell = replace(cell, located=located)
        size = self.check(replace(cell.task, data=located.data), located)
        if isinstance(size, DataError):
            return replace(cell, problem=size)
        return replace(cell, task=replace(cell.task, size=size))


def _open_trials(subjects: Sequence[ConfiguredModel]) -> list[PlannedScore]:
    """The scores by which the models of sweeps are still to be chosen, each once."""
    sweeps = [training.sweep for one in subjects for training in one.open_trainings if training.sweep]
    every = [trial for sweep in sweeps for _, found in sweep.open for trial in found.values()]
    return [*{trial.key: trial for trial in every}.values()]


def _require_selection(trials: Iterable[PlannedScore]) -> None:
    for trial in trials:
        if trial.problem is not None:
            raise TrainingDataError(
                f"{trial.task.name} of --select cannot be scored: {trial.problem.message}",
                hint=trial.problem.hint,
            )


def _sweep_jobs(
    sweep: PlannedSweep, choice: Job, trials: Mapping[str, PlannedScore], *, gate: bool
) -> tuple[Job, ...]:
    """The jobs of a sweep: each member's training and its open trials, then the choice among them.

    Where every trial has its record, the choice is known, and only the chosen member is trained again.
    """
    scores = [[trials[trial.key] for trial in found.values()] for _, found in sweep.open]
    best = _choose_by_records(scores)
    jobs: dict[str, Job] = {}
    for number, ((member, _), member_trials) in enumerate(zip(sweep.open, scores, strict=True)):
        assert member.training is not None
        name, value = sweep.format_member_label(member), sweep.format_member_value(member)
        before = member.training.plan_jobs(trials, gate=gate)
        # Only the last job trains the member; the others prepare the backbone of all members.
        before = (*before[:-1], *(replace(job, label=name, member=value) for job in before[-1:]))
        open_trials = [trial for trial in member_trials if trial.record is None]
        if best in (None, number):
            jobs |= {job.key: job for job in before if job.key not in jobs}
        if open_trials:
            resolve = _resolve(member, gate=gate, inputs=tuple(job.key for job in before[-1:]))
            jobs |= {resolve.key: replace(resolve, label=name, member=value)}
        for trial in open_trials:
            named = f"{trial.task.name} ({name})"
            trial_jobs = _build_task_jobs(trial, resolve.key)
            jobs |= {job.key: replace(job, label=named, member=value) for job in trial_jobs}
    needed = tuple(job.key for job in jobs.values() if job.member and job.kind in ("train", "score"))
    return (*jobs.values(), replace(choice, inputs=needed))


def _choose_by_records(scores: Sequence[Sequence[PlannedScore]]) -> int | None:
    """The best member by its trials, of those that have not diverged; None where a trial has no record."""
    records = [[trial.record for trial in found if trial.record] for found in scores]
    return find_best_member(records) if list(map(len, records)) == list(map(len, scores)) else None


def find_recorded_choice(sweep: PlannedSweep, store: Store) -> ConfiguredModel | None:
    """The member that the recorded trials of a sweep choose; None where they do not tell."""
    scores = [[_attach_record(one, store) for one in found.values()] for _, found in sweep.open]
    if _find_lost_weights([trial for found in scores for trial in found]):
        return None
    best = _choose_by_records(scores)
    return None if best is None else sweep.open[best][0]


def _attach_record(cell: PlannedScore, store: Store) -> PlannedScore:
    record = store.get(cell.subject.artifact.slug, cell.task.name, cell.key, purpose=cell.purpose)
    artifact = cell.subject.artifact
    # A trained model keeps its key when it is trained again, so that only the weights tell whether a record
    # is of the present model. Empty weights: it is not on this disk, and the record may still be its own.
    if record is not None and artifact.trained and artifact.weights not in ("", record.model.weights):
        return replace(cell, former=record)
    return replace(cell, record=record)


def _find_lost_weights(cells: Sequence[PlannedScore]) -> frozenset[str]:
    """The keys of models that are not there and must be trained again, so that no record counts before that.

    A training under one key may give other weights, on another device for instance. So does a model whose
    records are not all of the same weights.
    """
    absent = [cell for cell in cells if cell.subject.artifact.trained and not cell.subject.artifact.weights]
    weights: dict[str, set[str]] = {}
    for cell in absent:
        if cell.record is not None:
            weights.setdefault(cell.subject.artifact.key, set()).add(cell.record.model.weights)
    mixed = {key for key, found in weights.items() if len(found) > 1}
    needed = {c.subject.artifact.key for c in absent if c.record is None and c.problem is None}
    return frozenset(mixed | needed)


def _find_lost_classifiers(cell: PlannedScore, store: Store) -> frozenset[str]:
    """The finished runs of a score whose classifiers are gone; a remote may still have them."""
    if cell.recipe_plan is None or store.remote is not None:
        return frozenset()
    places = {job.key: job.place for job in cell.recipe_plan.jobs if job.place}
    absent = [key for key, folder in cell.recipe_plan.kept.items() if not folder.exists()]
    records = {key: _get_job_record(key, places[key], store) for key in absent}
    # A run that diverged has no score, and left no classifier.
    return frozenset(key for key, one in records.items() if one is not None and one.main_score is not None)


def _reopen_score(cell: PlannedScore) -> PlannedScore:
    """The planned score to be made again, since a classifier of its runs is gone."""
    assert cell.recipe_plan is not None
    note = "a classifier that was kept is gone: its run is made again"
    recipe_plan = replace(cell.recipe_plan, notes=(*cell.recipe_plan.notes, note))
    return replace(cell, record=None, recipe_plan=recipe_plan)


def _collect_jobs(
    cells: Iterable[PlannedScore],
    trials: Mapping[str, PlannedScore],
    store: Store,
    lost: frozenset[str],
    *,
    gate: bool,
) -> tuple[tuple[Job, ...], frozenset[str]]:
    """The jobs of all open planned scores, each once, and the keys of those that are done and not lost."""
    jobs: dict[str, Job] = {}
    done_keys: set[str] = set()
    for cell in cells:
        if cell.record is not None or cell.problem is not None:
            continue
        if cell.subject.ranks or cell.subject.is_object:
            jobs[cell.key] = _build_only_job(cell)
            continue
        training = cell.subject.training
        before = () if training is None else training.plan_jobs(trials, gate=gate)
        resolve = _resolve(cell.subject, gate=gate, inputs=tuple(job.key for job in before[-1:]))
        if cell.recipe_plan is None:
            jobs |= {job.key: job for job in (*before, resolve, *_build_task_jobs(cell, resolve.key))}
            continue
        settled_keys = _find_settled_jobs(cell, cell.recipe_plan.jobs, store, lost)
        for job in _select_required_jobs(cell.key, cell.recipe_plan.jobs, settled_keys):
            if job.key in settled_keys:
                done_keys.add(job.key)
            elif job.kind == "finetune":
                jobs[resolve.key] = resolve
                job = replace(job, inputs=(resolve.key, *job.inputs))
            # Several scores may wait for one run, such as the MNLI model that others start from.
            jobs.setdefault(job.key, job)
    return tuple(jobs.values()), frozenset(done_keys)


def _find_settled_jobs(
    cell: PlannedScore, jobs: Sequence[Job], store: Store, lost: frozenset[str]
) -> frozenset[str]:
    """The finished runs that depend on no run to be made again; a choice among runs needs all of them."""
    # One pass is enough, as a recipe lists the jobs that others read before them. A job without a place
    # leaves no record: it is done if its inputs are.
    firm: set[str] = set()
    for job in jobs:
        stands = all(key in firm for key in job.inputs)
        artifact = cell.subject.artifact
        done = job.place is None or (
            job.key not in (cell.key, *lost) and _has_predictions(job, job.place, store, artifact)
        )
        if stands and done:
            firm.add(job.key)
    return frozenset(job.key for job in jobs if job.place is not None and job.key in firm)


def _select_required_jobs(key: str, jobs: Sequence[Job], finished_keys: frozenset[str]) -> list[Job]:
    """The jobs that a score waits for, in order, without the inputs of finished jobs."""
    by_key = {job.key: job for job in jobs}
    needed: set[str] = set()
    left = [key]
    while left:
        job_key = left.pop()
        if job_key not in needed:
            needed.add(job_key)
            left += by_key[job_key].inputs if job_key not in finished_keys else ()
    return [job for job in jobs if job.key in needed]


def _get_job_record(key: str, place: RecordLocation, store: Store) -> Record | None:
    return store.get(place.artifact, place.task, key, purpose=place.purpose)


def _has_predictions(job: Job, place: RecordLocation, store: Store, artifact: Artifact) -> bool:
    """Whether a run's record is in the store together with its predictions, and of the model's weights."""
    record = _get_job_record(job.key, place, store)
    if record is not None and artifact.trained and record.model.weights != artifact.weights:
        return False
    return record is not None and (
        record.examples is None or store.find_part_file(record, place.artifact) is not None
    )


def _resolve(subject: ConfiguredModel, *, gate: bool, inputs: tuple[str, ...] = ()) -> Job:
    artifact = subject.artifact
    assert isinstance(subject.encoding, Encoding)
    # Without the draw of a context: the check loads the same model for every draw, and is done once.
    encoding = subject.encoding.loaded
    key = digest({"job": "resolve", "artifact": artifact.key, "encoding": encoding})
    work = Resolve(artifact=artifact, encoding=encoding, gate=gate)
    return Job(key=key, kind="resolve", label=artifact.name, inputs=inputs, work=work)


def _build_only_job(cell: PlannedScore) -> Job:
    """The only job of a score from a ranking, or from an encoder in memory."""
    encoding, arguments = cell.subject.encoding, _collect_score_arguments(cell)
    if isinstance(encoding, Ranking):
        ranked = _score_job(cell, "rank", Rank(ranking=encoding, **arguments))
        return ranked.replace_resources(begins_on_cpu=True)
    assert not isinstance(encoding, Encoding)
    return _score_job(cell, "score", ScoreObject(encoder=encoding, **arguments))


def _build_task_jobs(cell: PlannedScore, resolve: str) -> Iterable[Job]:
    encoding = cell.encoding
    assert isinstance(encoding, Encoding)
    if cell.task.output == "measured":
        measured = _score_job(cell, "score", Measure(encoding=encoding, **_collect_score_arguments(cell)))
        return (replace(measured, inputs=(resolve,)).replace_resources(devices=1),)
    if cell.subject.interacts_late:
        search = ScoreByMaxSim(encoding=encoding, **_collect_score_arguments(cell))
        ordered = _score_job(cell, "score", search)
        return (replace(ordered, inputs=(resolve,)),)
    encode = Job(
        key=digest({"job": "encode", "evaluation": cell.key}),
        kind="encode",
        label=_format_score_label(cell),
        inputs=(resolve,),
        # The claim of the score: the process that takes the score encodes for it as well.
        claim=cell.key,
        work=Encode(encoding=encoding, **_collect_task_arguments(cell)),
        # Texts that would not be sent are collected once, where the model is.
        resources=Resources(begins_on_cpu=(cell.task.size.characters or 0) <= SENT_CHARACTERS),
    )
    score = _score_job(cell, "score", Score(encoding=encoding, **_collect_score_arguments(cell)))
    score = score.replace_resources(begins_on_cpu=True)
    return encode, replace(score, inputs=(resolve, encode.key))


def _format_score_label(cell: PlannedScore) -> str:
    """The task with its model, and the seed of a context that is not the first."""
    draw = cell.subject.context
    seed = f", context {draw.seed}" if draw is not None and draw.seed != SEED else ""
    return f"{cell.task.name} ({cell.subject.artifact.name}{seed})"


def _collect_task_arguments(cell: PlannedScore) -> dict[str, Any]:
    """What every job on a task is given."""
    assert cell.located is not None
    return {
        "artifact": cell.subject.artifact,
        "task": cell.task,
        "seed": cell.seed,
        "data": cell.located.folder,
    }


def _collect_score_arguments(cell: PlannedScore) -> dict[str, Any]:
    """What every job is given that makes the record of a score."""
    return {
        **_collect_task_arguments(cell),
        "key": cell.key,
        "identity": cell.identity,
        "purpose": cell.purpose,
    }


def _score_job(
    cell: PlannedScore, kind: JobKind, work: Score | Rank | ScoreByMaxSim | Measure | ScoreObject
) -> Job:
    """The job that makes the record of a score."""
    artifact = cell.subject.artifact
    return Job(
        key=cell.key,
        kind=kind,
        label=_format_score_label(cell),
        claim=cell.key,
        place=RecordLocation(artifact=artifact.slug, task=cell.task.name, purpose=work.purpose),
        work=work,
    )
