"""The driver: it assigns jobs to workers, writes their outputs, and shares work with other processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from harness import files
from harness.context import Event, WorkerLimits
from harness.errors import DivergenceError, StoreError
from harness.files import Leases
from harness.jobs import Job, Place, lineage_of, model_part, task_part, with_weights
from harness.model_store import ModelStore
from harness.plan import Plan, PlannedScore
from harness.record import RECORDS, ErrorPart, Record
from harness.store import Store
from harness.training_jobs import Choose
from harness.workers import Failure, Finished, Worker, open_workers

State = Literal["waiting", "running", "done", "failed", "skipped"]

PATIENCE = 0.5
"""Seconds between two checks of work that another process has claimed."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """The outcome of one planned score.

    `how` is "cached" (its record existed), "done" (made in this run), "shared" (made by another process
    meanwhile), "failed", "impossible" (no data), or "stopped" (not reached).
    """

    cell: PlannedScore
    how: Literal["cached", "done", "shared", "failed", "impossible", "stopped"]
    record: Record | None = None
    failure: Failure | None = None


@dataclass(frozen=True, kw_only=True)
class Listeners:
    """Callbacks of a run: events of running jobs, results as they come, and records of trials.

    Trials are training runs and scores of a sweep; one that another process has made meanwhile is passed on
    as well.
    """

    event: Callable[[Job, Event], None] = lambda _job, _event: None
    result: Callable[[Result], None] = lambda _result: None
    trained: Callable[[Job, Record], None] = lambda _job, _record: None


class Driver:
    """One execution of a plan."""

    def __init__(
        self,
        plan: Plan,
        *,
        store: Store,
        cache: Path,
        devices: tuple[str, ...] = ("cpu",),
        listeners: Listeners | None = None,
        fail_fast: bool = False,
        again: bool = False,
        limits: WorkerLimits | None = None,
        budget: float | None = None,
        drop_vectors: bool = False,
    ) -> None:
        self.plan = plan
        self.vectors_dropped = 0
        self.texts_encoded = 0
        self.tokens_encoded = 0
        self.results: dict[str, Result] = {}
        self._store, self._cache, self._again = store, cache, again
        self._listeners = listeners or Listeners()
        self._fail_fast, self._drop = fail_fast, drop_vectors
        self._devices, self._limits = devices, limits or WorkerLimits()
        self._failures: dict[str, Failure] = {}
        self._held: dict[str, tuple[str, ...]] = {}
        self._budget = budget
        self._leases = Leases(store.leases)
        self._jobs: dict[str, Job] = {job.key: job for job in plan.jobs}
        self._state: dict[str, State] = {
            key: "done" if key in plan.known else "waiting" for key in self._jobs
        }
        self._outputs: dict[str, Mapping[str, bytes]] = {}
        self._claimed: set[str] = set()
        self._cells: dict[str, PlannedScore] = {cell.key: cell for cell in plan.cells}
        self._scores = {**{trial.key: trial for trial in plan.trials}, **self._cells}

    def run(self) -> tuple[Result, ...]:
        """Execute the plan; returns results in the order of the plan.

        Raises:
            StoreError: The results folder or the cache cannot be written, which ends the run.
            KeyboardInterrupt: Raised after everything is closed; finished work is stored.
        """
        for cell in self.plan.cells:
            if cell.record is not None:
                self._settle(Result(cell=cell, how="cached", record=cell.record))
            elif cell.problem is not None:
                self._settle(Result(cell=cell, how="impossible", failure=Failure.of(cell.problem)))
        if self._jobs:
            self._work()
        for cell in self.plan.cells:
            if cell.key not in self.results:
                self._settle(Result(cell=cell, how="stopped"))
        return tuple(self.results[cell.key] for cell in self.plan.cells)

    def train(self) -> Mapping[str, Failure]:
        """Execute the trainings of a plan without scores; returns the failures by key.

        Raises:
            StoreError: The results folder or the cache cannot be written, which ends the run.
            KeyboardInterrupt: Raised after everything is closed; checkpoints are kept.
        """
        self._work()
        return self._failures

    def _work(self) -> None:
        self._store.prepare()
        ModelStore(self._store.root).sweep()
        for part in ("vectors", "datasets", "source", "finetuned", "plaid"):
            files.sweep(self._cache / part)
        ends = None if self._budget is None else time.monotonic() + self._budget
        workers = open_workers(self._devices, cache=self._cache, listener=self._hear, limits=self._limits)
        try:
            while self._unsettled() and not self._stopped():
                late = ends is not None and time.monotonic() >= ends
                free = [worker for worker in workers if worker.free]
                started = [not late and self._start_next(worker, workers) for worker in free]
                ended = [self._poll(worker) for worker in workers if not worker.free]
                if late and not ended:
                    break
                if not any(started) and not ended:
                    time.sleep(PATIENCE)
        finally:
            for worker in workers:
                worker.close()
            self._leases.close()

    def _unsettled(self) -> bool:
        return any(state in ("waiting", "running") for state in self._state.values())

    def _stopped(self) -> bool:
        return self._fail_fast and bool(self._failures)

    def _start_next(self, worker: Worker, workers: Sequence[Worker]) -> bool:
        if any(worker.device in devices for devices in self._held.values()):
            return False
        for job in self._jobs.values():
            if self._state[job.key] != "waiting" or not self._ready(job):
                continue
            if job.claim and not self._take(job.claim):
                continue
            devices = self._devices_for(job, worker, workers)
            if not devices:
                return False  # the job waits for devices, and nothing else may take them meanwhile
            self._state[job.key] = "running"
            if job.devices:
                self._held[job.key] = devices
                for other in workers:
                    if other.device in devices and other is not worker:
                        other.forget()
            worker.start(job, {key: self._output(key) for key in job.inputs}, devices)
            return True
        return False

    def _devices_for(self, job: Job, worker: Worker, workers: Sequence[Worker]) -> tuple[str, ...]:
        """The devices for a job: the worker's, or as many idle ones as it needs; none if too few are."""
        if not job.devices:
            return (worker.device,)
        busy = {other.device for other in workers if not other.free}
        idle = [device for device in dict.fromkeys(self._devices) if device not in busy]
        if worker.device not in idle or len(idle) < job.devices:
            return ()
        others = [device for device in idle if device != worker.device]
        return (worker.device, *others[: job.devices - 1])

    def _ready(self, job: Job) -> bool:
        return all(self._state[key] == "done" for key in job.inputs)

    def _output(self, key: str) -> Mapping[str, bytes]:
        """The output of a job: from this run, or from its record in the store."""
        job = self._jobs[key]
        if key in self._outputs or job.place is None:
            return self._outputs.get(key, {})
        record = self._store.get(job.place.artifact, job.place.task, key, purpose=job.place.purpose)
        if record is None:
            raise StoreError(f"The record of {job.label} ({key[:12]}) is no longer there.")
        beside = self._store.examples(record, job.place.artifact)
        examples = {"examples": beside.read_bytes()} if beside is not None else {}
        return {"record": record.to_json().encode(), **examples}

    def _take(self, claim: str) -> bool:
        """Claim a score or a training run, or settle it if another process has finished it meanwhile."""
        if claim in self._claimed:
            return True
        free = self._leases.claim(claim)
        if not self._anew(claim) and self._finished_elsewhere(claim, now=free):
            if free:
                self._leases.release(claim)
            return False
        if free:
            self._claimed.add(claim)
        return free

    def _anew(self, key: str) -> bool:
        """Whether a record must be made although it exists."""
        return key in self.plan.anew or (self._again and key in self._cells)

    def _has_other_weights(self, claim: str, record: Record) -> bool:
        """Whether a record was made with other weights than those that its trained model has now."""
        cell = self._scores.get(claim)
        if cell is None or not cell.subject.artifact.trained:
            return False
        now = with_weights(replace(cell.subject.artifact, weights="")).weights
        return bool(now) and now != record.model.weights

    def _finished_elsewhere(self, claim: str, *, now: bool) -> bool:
        place = self._jobs[claim].place
        if place is None:  # it leaves no record: each process does it for itself
            return False
        record = self._store.get(place.artifact, place.task, claim, purpose=place.purpose, now=now)
        if record is None or self._has_other_weights(claim, record):
            return False
        for job in self._jobs.values():
            if job.claim == claim:
                self._state[job.key] = "done"
        if claim in self._cells:
            cell = self._cells[claim]
            self._settle(Result(cell=cell, how="cached" if cell.former else "shared", record=record))
        else:
            self._listeners.trained(self._jobs[claim], record)
        return True

    def _poll(self, worker: Worker) -> bool:
        finished = worker.poll(0.05)
        if finished is None:
            return False
        job = self._jobs[finished.key]
        self._held.pop(job.key, None)
        if finished.failure is not None and job.member and finished.failure.kind == DivergenceError.__name__:
            self._leave_out(job, finished.failure)
        elif finished.failure is not None:
            self._fail(job, finished.failure)
        else:
            self._keep(job, finished)
        return True

    def _keep(self, job: Job, finished: Finished) -> None:
        self._state[job.key] = "done"
        if job.place is None:
            self._outputs[job.key] = finished.output
            if job.claim == job.key:
                self._give_back(job)
            return
        record = RECORDS.parse(finished.output["record"].decode(), where=job.label)
        examples, run = finished.output.get("examples"), finished.output.get("run")
        if record.purpose == "trial" and self._has_final(job.place, job.key):
            record = record.model_copy(update={"purpose": "final"})  # it was asked for by itself before
        cell = self._scores.get(job.key)
        again = self._anew(job.key) or (cell is not None and cell.former is not None)
        kept = self._store.put(job.place.artifact, record, examples, run=run, again=again)
        self._give_back(job)
        if job.key in self._cells:
            self._settle(Result(cell=self._cells[job.key], how="done", record=kept))
        else:
            self._listeners.trained(job, kept)

    def _has_final(self, place: Place, key: str) -> bool:
        return self._store.get(place.artifact, place.task, key) is not None

    def _fail(self, job: Job, failure: Failure) -> None:
        if isinstance(failure.fault, StoreError):
            raise failure.fault
        if job.kind in ("train", "finetune"):
            self._listeners.event(job, Event(kind="failed", text=failure.message))
        if job.member:
            failure = replace(
                failure,
                message=f"{job.label}: {failure.message}",
                hint=f"Leave the value out of --sweep, or mend what is wrong. {failure.hint or ''}".strip(),
            )
        self._state[job.key] = "failed"
        self._failures[job.key] = failure
        for key in self._dependants(job.key):
            self._state[key] = "skipped"
            if key in self._cells:
                self._fail_cell(self._cells[key], failure, model_refused=self._makes_model(job))
        if job.key in self._cells:
            self._fail_cell(self._cells[job.key], failure, model_refused=False)
        self._give_back(job)

    def _leave_out(self, job: Job, failure: Failure) -> None:
        """Go on without a member of a sweep whose training diverged: it has no scores."""
        self._listeners.event(job, Event(kind="failed", text=failure.message))
        members = [key for key in self._dependants(job.key) if self._jobs[key].member]
        for key in (job.key, *members):
            self._state[key], self._outputs[key] = "done", {}
        self._give_back(job)

    def _makes_model(self, job: Job) -> bool:
        """Whether the model of the scores behind a job is not there without it, or not fit to be scored."""
        return job.kind in ("train", "resolve") or bool(job.member) or isinstance(job.work, Choose)

    def _fail_cell(self, cell: PlannedScore, failure: Failure, *, model_refused: bool) -> None:
        record = None
        if not model_refused:
            record = self._store.put(cell.subject.artifact.slug, _failed_record(cell, failure))
        self._settle(Result(cell=cell, how="failed", record=record, failure=failure))

    def _dependants(self, key: str) -> list[str]:
        found: list[str] = []
        for job in self._jobs.values():
            if self._state[job.key] == "waiting" and any(k == key or k in found for k in job.inputs):
                found.append(job.key)
        return found

    def _give_back(self, job: Job) -> None:
        if job.claim in self._claimed:
            self._claimed.discard(job.claim)
            self._leases.release(job.claim)

    def _settle(self, result: Result) -> None:
        self.results[result.cell.key] = result
        self._listeners.result(result)
        if self._drop:
            self._drop_vectors(result.cell.subject.artifact.key)

    def _drop_vectors(self, artifact: str) -> None:
        """Remove a model's vectors from the cache once each of its scores has a record."""
        mine = [cell.key for cell in self.plan.cells if cell.subject.artifact.key == artifact]
        found = [self.results[key].how for key in mine if key in self.results]
        if len(found) == len(mine) and {*found} <= {"cached", "done", "shared"}:
            from harness.plaid import drop_indexes
            from harness.vectors import drop_vectors

            self.vectors_dropped += drop_vectors(self._cache, artifact) + drop_indexes(self._cache, artifact)

    def _hear(self, key: str, event: Event) -> None:
        if event.kind == "vectors":
            from harness.vectors import Space

            Space.write_shard(self._cache, event.space, event.content, self._store.remote)
            return
        if event.kind == "encoded":
            self.texts_encoded += event.texts
            self.tokens_encoded += event.tokens
        self._listeners.event(self._jobs[key], event)


def _failed_record(cell: PlannedScore, failure: Failure) -> Record:
    return Record(
        key=cell.key,
        status="failed",
        model=model_part(cell.subject.artifact, {}),
        lineage=lineage_of(cell.subject.artifact),
        task=task_part(cell.task),
        identity=cell.identity,
        error=ErrorPart(
            kind=failure.kind, message=failure.message, hint=failure.hint, traceback=failure.traceback
        ),
    )
