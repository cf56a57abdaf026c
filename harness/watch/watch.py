"""A watch: scan a source of checkpoints, evaluate the new ones, write the scores down, wait, scan again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval

from harness.core import files
from harness.core.arguments import Form, Option, Place, Seconds, Step, check_fields
from harness.core.errors import HarnessError, StoreError, UsageError
from harness.core.keys import digest
from harness.core.terminal import shorten_names
from harness.core.types import Column, Suite, Task
from harness.driver import evaluation
from harness.driver.report.run import Report
from harness.driver.tracking import Tracking, flatten_config
from harness.jobs.recipe import TaskRecipe
from harness.plan.catalog import OWN, RECIPE
from harness.plan.plan import ConfiguredModel
from harness.plan.request import PreparedRun, Request
from harness.plan.resolved_request import Recipes, check_request
from harness.results.differences import Comparable, flatten
from harness.results.scores import MAIN_SCORE
from harness.storage.trackers import LoggedValues, TrackedRun
from harness.watch.changes import detect_change_points, look_at, mean_difference
from harness.watch.source import SETTLE, Checkpoint, CheckpointSource, SkippedEntry, open_source
from harness.watch.state import (
    WATCHES,
    ColumnPart,
    Metrics,
    Watch,
    WatchEntry,
    choose_watch_name,
    read_entry_scores,
    read_scores,
)


@dataclass(frozen=True, kw_only=True)
class _ReadyCheckpoint:
    """A complete checkpoint; `former` is its entry if it was evaluated before."""

    checkpoint: Checkpoint
    stamp: str
    former: WatchEntry | None = None


@dataclass(frozen=True, kw_only=True)
class _PendingCheckpoint:
    """A checkpoint that is not complete, and the reason; `settles` as in `source._Condition`."""

    checkpoint: Checkpoint
    reason: str
    settles: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Scan:
    """The checkpoints of a source at one moment, each group by step.

    `new` were never evaluated as they lie there now, or their scores are gone; `unfinished` were, partly or
    with a failure; `waiting` are not complete; `known` are the steps with nothing left to do; the scores of
    `lost` are gone, and so are their checkpoints.
    """

    new: tuple[_ReadyCheckpoint, ...]
    unfinished: tuple[_ReadyCheckpoint, ...]
    waiting: tuple[_PendingCheckpoint, ...]
    known: tuple[int, ...]
    skipped: tuple[SkippedEntry, ...]
    lost: tuple[WatchEntry, ...] = ()

    @property
    def steps(self) -> tuple[int, ...]:
        """Every step in the source."""
        ready = [one.checkpoint.step for one in (*self.new, *self.unfinished)]
        return tuple(sorted([*ready, *(one.checkpoint.step for one in self.waiting), *self.known]))


def scan_source(
    source: str | CheckpointSource,
    watch: Watch | None = None,
    *,
    settle: float = SETTLE,
    offline: bool = False,
    own_code: bool = False,
) -> Scan:
    """Scan a source once; nothing is evaluated or written, and torch is not needed.

    Args:
        source: A folder of checkpoints, or a hub repository.
        watch: The state of the watch so far, with its scores.
        settle: Seconds for which nothing in a checkpoint may have changed.
        offline: Forbid the network.
        own_code: Whether code of a checkpoint's own repository may run to describe it.

    Raises:
        UsageError: The source cannot be read.

    Example:
        >>> scan_source("runs/mine").new  # doctest: +SKIP
    """
    opened = open_source(source, offline=offline) if isinstance(source, str) else source
    checkpoints, skipped = opened.list_checkpoints()
    new: list[_ReadyCheckpoint] = []
    unfinished: list[_ReadyCheckpoint] = []
    waiting: list[_PendingCheckpoint] = []
    done_steps: list[int] = []
    for checkpoint in checkpoints:
        former = watch.find_entry(checkpoint.step) if watch is not None else None
        if (
            former is not None
            and former.state != "waiting"
            and former.stamp == opened.compute_stamp(checkpoint)
        ):
            if former.state == "done":
                done_steps.append(checkpoint.step)
            else:
                # The curve needs lost scores before later checkpoints are compared with them.
                group = new if former.state == "lost" else unfinished
                group.append(_ReadyCheckpoint(checkpoint=checkpoint, stamp=former.stamp, former=former))
            continue
        stands = opened.check_condition(checkpoint, settle=settle, own_code=own_code)
        if stands.problem:
            waiting.append(
                _PendingCheckpoint(checkpoint=checkpoint, reason=stands.problem, settles=stands.settles)
            )
        else:
            new.append(_ReadyCheckpoint(checkpoint=checkpoint, stamp=stands.stamp))
    steps = {checkpoint.step for checkpoint in checkpoints}
    return Scan(
        lost=tuple(one for one in watch.lost if one.step not in steps) if watch is not None else (),
        new=tuple(new),
        unfinished=tuple(unfinished),
        waiting=tuple(waiting),
        known=tuple(done_steps),
        skipped=skipped,
    )


@dataclass(frozen=True, kw_only=True)
class EvaluatedCheckpoint:
    """The entry of an evaluated checkpoint, and how many of its tasks were scored now or before."""

    entry: WatchEntry
    new: int = 0
    known: int = 0


def _evaluate(
    ready: _ReadyCheckpoint,
    source: CheckpointSource,
    options: WatchOptions,
    watch: Watch,
    carry_out: Callable[[PreparedRun], Report],
) -> EvaluatedCheckpoint:
    """Evaluate a checkpoint; an error that concerns it alone is in its entry."""
    began = time.monotonic()
    label, spelled = source.format_model_label(ready.checkpoint), ready.checkpoint.model
    request = replace(options.request, models=(spelled,), names={spelled: label} if label else {})
    try:
        with request.limit_network():
            report = carry_out(evaluation.prepare(request))
    except StoreError:
        raise
    except (HarnessError, OSError) as error:
        return EvaluatedCheckpoint(
            entry=_build_outcome_entry(ready, began, state="failed", reason=_truncate_message(str(error)))
        )
    if source.compute_stamp(ready.checkpoint) in (ready.stamp, ""):  # "": removed, not rewritten
        entry = _build_outcome_entry(ready, began, state="failed", **_collect_outcome(report))
        entry = _complete_entry(entry, report)
    else:
        reason = "it changed while it was evaluated"
        entry = _build_outcome_entry(ready, began, state="waiting", reason=reason)
    hows = [result.how for result in report.results]
    entry = entry.model_copy(update=_test(watch.add_entry(entry), entry, report.prepared, ready.former))
    return EvaluatedCheckpoint(
        entry=entry, new=hows.count("done"), known=hows.count("cached") + hows.count("shared")
    )


def _complete_entry(entry: WatchEntry, report: Report) -> WatchEntry:
    """The entry of an evaluated checkpoint with its state, and with scores as they will be read again."""
    results = report.prepared.store.root
    lacking = entry.wanted - read_entry_scores(entry, results).there
    state, reason = _infer_entry_state(report, lacking)
    return read_entry_scores(entry.model_copy(update={"state": state, "reason": reason}), results)


def _test(
    watch: Watch, entry: WatchEntry, prepared: PreparedRun, former: WatchEntry | None
) -> dict[str, Any]:
    """The fields of an entry on its test against an earlier checkpoint; none without one."""
    reference = watch.find_reference(entry.step)
    if entry.mean is None or reference is None:
        return {}
    # Lost records that are measured again are no new draw, so no other level is spent on them.
    if former is not None and former.look is not None and former.records == entry.records:
        return {"look": former.look}
    mean = mean_difference(entry, reference, prepared)
    if isinstance(mean, str):
        return {"untested": mean}
    return {"look": look_at(mean, number=watch.looks + 1, reference=reference.step)}


def _create_entry(checkpoint: Checkpoint, **fields: Any) -> WatchEntry:
    """An entry with the place of its checkpoint, and other fields."""
    folder = None if checkpoint.folder is None else str(checkpoint.folder)
    revision = checkpoint.commit or None
    return WatchEntry(step=checkpoint.step, name=checkpoint.name, folder=folder, revision=revision, **fields)


def _build_outcome_entry(ready: _ReadyCheckpoint, began: float, **outcome: Any) -> WatchEntry:
    before = ready.former.seconds if ready.former is not None else 0.0
    return _create_entry(
        ready.checkpoint,
        stamp=ready.stamp,
        evaluated=datetime.now(UTC).isoformat(timespec="milliseconds"),
        seconds=round(before + time.monotonic() - began, 3),
        **outcome,
    )


def _collect_outcome(report: Report) -> dict[str, Any]:
    """The fields of an entry that come from the report on its checkpoint."""
    (suite,), model = report.prepared.suites, report.prepared.subjects[-1]
    return {
        "model": model.artifact.name,
        "artifact": model.artifact.key,
        "backbone": "" if model.training is None else report.prepared.asked[0].artifact.key,
        "records": {r.task.name: r.key for r in report.records},
        "columns": _list_columns(suite, report.prepared.recipe),
        "wanted": len([column for column in suite.columns if column.tasks]),
        "treatment": digest(
            [
                *(_list_training_settings(model)),
                *(Comparable(identity=cell.identity).curve for cell in report.prepared.plan.cells),
            ]
        ),
    }


def _list_training_settings(model: ConfiguredModel) -> list[Any]:
    """The settings that the trainings of a model share with those of other checkpoints."""
    return [
        {"recipe": stage.lineage.recipe, "settings": stage.lineage.settings, "data": stage.lineage.data}
        for stage in model.stages
        if stage.lineage is not None
    ]


def _infer_entry_state(report: Report, lacking: int) -> tuple[str, str]:
    """The state of an evaluated checkpoint, and the reason why it is not done."""
    failed = [r for r in report.results if r.how in ("failed", "impossible")]
    stopped = [r.cell.task.name for r in report.results if r.how == "stopped"]
    if stopped:
        return "partial", f"not reached within the budget: {shorten_names(stopped)}"
    if failed:
        message = failed[0].failure.message if failed[0].failure is not None else "failed"
        return "failed", _truncate_message(f"{shorten_names([r.cell.task.name for r in failed])}: {message}")
    return ("failed", f"{lacking} of its tasks have no score") if lacking else ("done", "")


def _truncate_message(text: str) -> str:
    return " ".join(text.split())[:500]


@dataclass(frozen=True, kw_only=True)
class WatchOptions:
    """The options of a watch.

    `request` has no model and one suite; its `budget` holds for each checkpoint. `name` is the source's own
    if empty. `once` ends the watch when nothing is left that can be evaluated now; `until` ends it when every
    checkpoint up to this step, and one at or behind it, is evaluated.
    """

    source: Place
    request: Request
    name: Annotated[
        str, Option("Name of the watch (default: that of its folder or repository).", group="What")
    ] = ""
    every: Annotated[
        Seconds,
        Interval(ge=0.1),
        Form(must="a number of seconds, 0.1 or more"),
        Option("Seconds between two looks for new checkpoints.", group="What"),
    ] = 60.0
    settle: Annotated[
        Seconds, Option("Seconds without a change before a checkpoint is evaluated.", group="What")
    ] = SETTLE
    once: Annotated[bool, Option("End when nothing is left that can be evaluated now.", group="What")] = False
    until: Annotated[
        Step | None,
        Option(
            "End when the first checkpoint at or after this step, and all before it, are evaluated.",
            group="What",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class WatchListeners:
    """The callbacks of a watch.

    `scan` gets every scan, `checkpoint` every evaluated checkpoint with the state of the watch after it, and
    `error` the error of a failed scan; `carry_out` evaluates.
    """

    scan: Callable[[Scan], None] = lambda _scan: None
    checkpoint: Callable[[EvaluatedCheckpoint, Watch], None] = lambda _evaluated, _watch: None
    error: Callable[[HarnessError], None] = lambda _error: None
    carry_out: Callable[[PreparedRun], Report] = evaluation.execute


def follow(options: WatchOptions, listeners: WatchListeners | None = None) -> Watch:
    """Evaluate the checkpoints of a run as they come, each of them once.

    Args:
        options: The options of the watch.
        listeners: The callbacks of the watch.

    Returns:
        The state of the watch at its end, which without `once` and `until` never comes.

    Raises:
        UsageError: The options cannot be used, or another process runs the same watch.
        StoreError: The results folder or the cache cannot be written.

    Example:
        >>> from harness.plan.request import Request
        >>> how = Request(models=(), suites=("stdlib",))
        >>> watch = follow(WatchOptions(source="runs/mine", request=how, once=True))  # doctest: +SKIP
        >>> [(one.step, one.mean) for one in watch.checkpoints]  # doctest: +SKIP
    """
    request = check_fields(options.request, Request, "request").validate_fields()
    options = replace(check_fields(options, WatchOptions, "options"), request=request)
    source = open_source(options.source, offline=request.offline, cache=request.cache)
    if len(request.suites) != 1:
        raise UsageError("A watch is over one suite.", hint="Give one --suite.")
    if request.seeds > 1 or request.sweep:
        raise UsageError("A watch trains one model of each checkpoint.", hint="Leave out seeds and sweep.")
    request.require_whole_tasks()
    check_request(request)
    name = options.name or choose_watch_name(source)
    results = files.resolve_results_folder(request.results)
    with _lock_watch(results, name):
        watch = _begin_watch(results, name, source, request)
        # Watches were begun with the models' own settings before there was a choice, and go on with them.
        request = replace(request, evaluation=watch.request.get("evaluation", OWN))
        # The curve is one run of a tracker, in place of a run for each checkpoint.
        options = replace(options, request=replace(request, track=()))
        with Tracking(request.track, results) as tracking:
            following = _Following(options, source, results, watch, listeners or WatchListeners(), tracking)
            return following.run()


class _Following:
    """A watch that runs in this process."""

    def __init__(
        self,
        options: WatchOptions,
        source: CheckpointSource,
        results: Path,
        watch: Watch,
        listeners: WatchListeners,
        tracking: Tracking,
    ) -> None:
        self._options, self._source, self._results = options, source, results
        self._watch, self._listeners, self._tracking = watch, listeners, tracking
        # By step and stamp: a checkpoint that fails is tried once in this process, and again when its files
        # change.
        self._tried: set[tuple[int, str]] = set()
        self._own_code = options.request.trust_remote_code

    def run(self) -> Watch:
        """Scan and evaluate until the requested end."""
        scan = self._scan()
        self._listeners.scan(scan)
        while True:
            queue = self._select_queue(scan)
            if queue:
                self._evaluate(queue[0])
                # Again after each checkpoint: a training run may have removed the next one or written a newer
                # one.
                scan = self._scan_again(scan)
                continue
            if self._can_stop(scan):
                return self._read_scores()
            self._sleep(scan)
            scan = self._scan_again(scan)
            self._listeners.scan(scan)
            # What the budget cut off goes on after the pause.
            self._forget()

    def _scan(self) -> Scan:
        watch, settle = self._read_scores(), self._options.settle
        scan = scan_source(self._source, watch, settle=settle, own_code=self._own_code)
        self._save_watch(_sync_waiting_entries(_add_columns(self._watch, self._options.request), scan))
        return scan

    def _scan_again(self, former: Scan) -> Scan:
        """Another scan; if it fails, the error is reported and nothing is evaluated until the next scan."""
        try:
            return self._scan()
        except StoreError:
            raise
        except HarnessError as error:
            self._listeners.error(error)
            return replace(former, new=(), unfinished=())

    def _forget(self) -> None:
        """Allow partly evaluated checkpoints to be continued, and lost scores to be measured again."""
        partial = {one.step for one in self._read_scores().checkpoints if one.state in ("partial", "lost")}
        self._tried = {(step, stamp) for step, stamp in self._tried if step not in partial}

    def _select_queue(self, scan: Scan) -> list[_ReadyCheckpoint]:
        """The checkpoints to evaluate now: new ones first, then unfinished ones."""
        last = self._find_last_step(scan)
        ready = [*scan.new, *scan.unfinished]
        return [
            one
            for one in ready
            if (one.checkpoint.step, one.stamp) not in self._tried
            and (last is None or one.checkpoint.step <= last)
        ]

    def _find_last_step(self, scan: Scan) -> int | None:
        """The last wanted step, None while no step reaches `until`."""
        until = self._options.until
        return min((step for step in scan.steps if until is not None and step >= until), default=None)

    def _can_stop(self, scan: Scan) -> bool:
        if self._options.once:
            return True
        last = self._find_last_step(scan)
        if last is None:
            return False
        left = [one for one in scan.unfinished if one.former and one.former.state == "partial"]
        checkpoints = [*(one.checkpoint for one in left), *(one.checkpoint for one in scan.waiting)]
        return all(checkpoint.step > last for checkpoint in checkpoints)

    def _evaluate(self, one: _ReadyCheckpoint) -> None:
        self._tried.add((one.checkpoint.step, one.stamp))
        before = self._read_scores()
        done = _evaluate(one, self._source, self._options, before, self._listeners.carry_out)
        artifact, earlier = done.entry.artifact, self._watch.checkpoints
        alike = (one.step for one in earlier if one.artifact == artifact and one.step < done.entry.step)
        same_as = next(alike, None) if artifact else None
        done = replace(done, entry=done.entry.model_copy(update={"same_as": same_as}))
        look, changes = done.entry.look, detect_change_points(before.add_entry(done.entry))
        looks = max(self._watch.looks, 0 if look is None else look.number)
        watch = self._watch.add_entry(done.entry)
        self._save_watch(watch.model_copy(update={"change_points": changes, "looks": looks}))
        watch = self._read_scores()
        self._tracking.log_curve(_build_watch_run(watch), _list_points(watch))
        self._listeners.checkpoint(done, watch)

    def _read_scores(self) -> Watch:
        """The watch with the scores of its records as they are now; the state alone has none."""
        return read_scores(self._watch, self._results)

    def _save_watch(self, watch: Watch) -> None:
        if watch != self._watch:
            WATCHES.write_document(self._results, watch.name, watch)
            self._watch = watch

    def _sleep(self, scan: Scan) -> None:
        """Wait for the next scan, or until the first of those checkpoints that only have to settle has."""
        settling = [one.settles for one in scan.waiting if one.settles > 0]
        time.sleep(min([self._options.every, *settling]))


def _build_watch_run(watch: Watch) -> TrackedRun:
    """A watch as trackers show it."""
    facts = {"source": watch.source, "suite": watch.suite, "request": dict(watch.request)}
    key = digest({"watch": watch.name, **facts})
    return TrackedRun(id=key[:12], name=f"watch {watch.name}", kind="watch", config=flatten_config(facts))


def _list_points(watch: Watch) -> list[LoggedValues]:
    """The means and scores of the checkpoints on the curve, in the order of their evaluation."""
    return [
        LoggedValues(
            order=entry.evaluated,
            step=entry.step,
            values={
                f"{watch.suite}/{name}": value
                for name, value in {**entry.scores, "mean": entry.mean}.items()
                if value is not None
            },
        )
        for entry in watch.curve
    ]


def _sync_waiting_entries(watch: Watch, scan: Scan) -> Watch:
    """The watch with an entry for each waiting checkpoint of a scan, and without stale ones."""
    waiting = {one.checkpoint.step: one for one in scan.waiting}
    stay = tuple(one for one in watch.checkpoints if one.state != "waiting" or one.step in waiting)
    watch = watch.model_copy(update={"checkpoints": stay})
    evaluated = {one.step for one in watch.checkpoints if one.state != "waiting"}
    for step, pending in waiting.items():
        if step not in evaluated:  # an evaluated entry stays until the step is evaluated again
            reason = "it changed a moment ago" if pending.settles else pending.reason
            watch = watch.add_entry(_create_entry(pending.checkpoint, state="waiting", reason=reason))
    return watch


@contextmanager
def _lock_watch(results: Path, name: str) -> Iterator[None]:
    """Hold the lock of a watch, so that no other process continues it."""
    from filelock import FileLock, Timeout

    WATCHES.check_name(name)
    folder = WATCHES.locate_document(results, name).parent
    files.require_writable(folder)
    files.sweep(folder)
    # The system frees the lock of a killed process, so no lock is left over.
    lock = FileLock(folder / f".{name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise UsageError(
            f"Another process watches {name} with the results in {results}.",
            hint=f"End it, see how far it is (harness watch {name} --show), or give another --name.",
        ) from error
    with lock:
        yield


def _begin_watch(results: Path, name: str, source: CheckpointSource, request: Request) -> Watch:
    """The saved state of a watch to continue, or that of a new watch."""
    now = Watch(name=name, source=source.text, suite=request.suites[0], request=_dump_request(request))
    if not WATCHES.locate_document(results, name).exists():
        return now
    former = WATCHES.find_document(results, name)
    if differs := _describe_setting_changes(former, now):
        raise UsageError(
            f"The watch {name} was begun with other settings: {'; '.join(differs)}.",
            hint="Type the options that it was begun with, or give this watch another --name.",
        )
    return former


def _add_columns(watch: Watch, request: Request) -> Watch:
    """A watch whose file is too old to tell the columns of some means, with those of its suite."""
    if all(entry.columns is not None for entry in watch.checkpoints):
        return watch
    suites = request.open_suites()
    recipes = Recipes.resolve_recipes(suites, request)
    columns = _list_columns(suites[0], recipes.task)
    entries = [
        entry.model_copy(update={"columns": columns}) if entry.columns is None else entry
        for entry in watch.checkpoints
    ]
    return watch.model_copy(update={"checkpoints": tuple(entries)})


def _list_columns(suite: Suite, recipe: TaskRecipe | None) -> tuple[tuple[ColumnPart, ...], ...]:
    """The columns of a suite in the form of an entry, with the numbers that enter its means."""
    parts, convention = suite.parts, suite.conventions.get(recipe.convention) if recipe is not None else None

    def build_part(column: Column, task: Task) -> ColumnPart:
        metrics: Metrics = ()
        if column.name in parts:
            metrics = tuple((split, subset, MAIN_SCORE) for split, subset in task.cells)
        elif convention is not None and task.output == "label":
            metrics = tuple((split, None, name) for split, name in convention.parts[task.name])
        return ColumnPart(task=task.name, metrics=metrics)

    columns = tuple(tuple(build_part(one, task) for task in one.tasks) for one in suite.columns if one.tasks)
    return () if columns == tuple((ColumnPart(task=task.name),) for task in suite.tasks) else columns


LATER = {"vectors": "float32", "document_text": None}
"""Settings that older watches do not have, with their defaults, at which they are left out."""


def _dump_request(request: Request) -> dict[str, Any]:
    """The settings of a request that decide the scores, as plain values."""
    places = ("cache", "results")
    options = {key: value for key, value in asdict(request.options).items() if key not in places}
    train_data = request.train_data  # a single name stands as itself, as older watches have it
    # Older watches have stored float32 where nobody asked for a precision.
    settings = replace(request.settings, dtype=request.settings.dtype or "float32")
    values = {
        "settings": {n: v for n, v in asdict(settings).items() if n not in LATER or v != LATER[n]},
        "evaluation": request.evaluation,
        "options": options,
        "recipe": request.recipe,
        "recipe_settings": dict(request.recipe_settings),
        **({"train_data": train_data[0] if len(train_data) == 1 else train_data} if train_data else {}),
        "gate": request.gate,
        "trust_remote_code": request.trust_remote_code,
    }
    # Through JSON, as it is compared with what was read from a file: tuples are lists there.
    plain: dict[str, Any] = json.loads(json.dumps(values, default=str, sort_keys=True))
    return plain


def _describe_setting_changes(former: Watch, now: Watch) -> list[str]:
    """The settings in which two watches differ, in words."""
    # Nobody typed the default, so that an older watch goes on; nothing else is passed over.
    usual = {"evaluation": RECIPE if now.request["evaluation"] == RECIPE else OWN}
    before = flatten({"source": former.source, "suite": former.suite, **usual, **former.request})
    after = flatten({"source": now.source, "suite": now.suite, **now.request})
    return [
        f"{name} was {before.get(name)!r}, here {after.get(name)!r}"
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]
