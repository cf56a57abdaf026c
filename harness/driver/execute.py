"""The driver: it hands jobs to an executor, writes their outputs, and shares work with other drivers."""

from __future__ import annotations

import contextlib
import heapq
import json
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from harness.core import files
from harness.core.errors import DivergenceError, HarnessError, StoreError
from harness.executors.executor import Cause, Executor, Failure, Finished, Listener, OpenExecutor
from harness.executors.local import LocalExecutor
from harness.executors.run_log import Closing, DeviceUse, Node, RunLog
from harness.jobs.context import Event, WorkerLimits
from harness.jobs.jobs import Job, build_model_part, read_model_lineage, resolve_weights
from harness.jobs.training_jobs import Choose
from harness.plan.plan import Plan, PlannedScore
from harness.results.cost.duration import Speed
from harness.results.cost.encoding import note_record, note_speed
from harness.search.plaid import drop_indexes
from harness.storage.record import RECORDS, ErrorPart, Record, build_task_part
from harness.storage.remote_and_leases import Leases
from harness.storage.store import Store
from harness.training.model_store import MODELS, ModelStore

State = Literal["waiting", "running", "done", "failed", "skipped"]

_OPEN = ("waiting", "running")

PATIENCE = 0.5
"""Seconds between two checks of work that another driver has claimed."""

REMOTE_PATIENCE = 5.0
"""The same where each check is a request to object storage."""

NODES = 2.0
"""Seconds between two looks at the nodes of a cluster."""

WON = 4
"""The claims that are taken each time from drivers that are gone."""

CHECKS = 100
"""The claims of other drivers that are looked at each time."""

RETRIES: Mapping[Cause, int] = {"job": 0, "memory": 2, "worker": 2, "node": 8}
"""How often a job is tried again, by the cause of its failure."""

RETRY_NOTES: Mapping[Cause, str] = {
    "memory": " with batches of half the size",
    "worker": "",
    "node": " on another machine",
}
"""How it is tried again."""


class _Queue:
    """The jobs of a plan that can begin, in the order of the plan: those whose inputs are done."""

    def __init__(self, jobs: Iterable[Job], done: frozenset[str]) -> None:
        self._jobs = {job.key: job for job in jobs}
        self._places = {key: place for place, key in enumerate(self._jobs)}
        # By kind: an executor may have room for some kinds and not for others.
        self._ready: dict[tuple[str, bool], list[tuple[int, str]]] = {}
        self._missing = {
            key: {name for name in job.inputs if name not in done} for key, job in self._jobs.items()
        }
        self.dependants: dict[str, list[str]] = {}
        for job in self._jobs.values():
            for name in job.inputs:
                self.dependants.setdefault(name, []).append(job.key)
        for key, job in self._jobs.items():
            if key not in done and not self._missing[key]:
                self.push(job)

    def push(self, job: Job) -> None:
        """Take a job that can begin, in place of the one with its key."""
        self._jobs[job.key] = job
        alike = self._ready.setdefault((job.kind, job.resources.begins_on_cpu), [])
        heapq.heappush(alike, (self._places[job.key], job.key))

    def pop(self, has_room: Callable[[Job], bool]) -> Job | None:
        """Remove and return the first job for which there is room; None where there is none."""
        ready = [alike for alike in self._ready.values() if alike and has_room(self._jobs[alike[0][1]])]
        return self._jobs[heapq.heappop(min(ready))[1]] if ready else None

    def finish_job(self, key: str) -> None:
        """Note that a job is done; those that waited for it alone can begin."""
        for name in self.dependants.get(key, ()):
            missing = self._missing[name]
            if key in missing:
                missing.discard(key)
                if not missing:
                    self.push(self._jobs[name])


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
    """Callbacks of a run: events of running jobs, results as they come, records of trials, a cluster's nodes.

    Trials are training runs and scores of a sweep; one that another process has made meanwhile is passed on
    as well.
    """

    event: Callable[[Job, Event], None] = lambda _job, _event: None
    result: Callable[[Result], None] = lambda _result: None
    trained: Callable[[Job, Record], None] = lambda _job, _record: None
    nodes: Callable[[Sequence[Node]], None] = lambda _nodes: None


class Driver:
    """One execution of a plan."""

    def __init__(
        self,
        plan: Plan,
        *,
        store: Store,
        cache: Path,
        open_executor: OpenExecutor | None = None,
        listeners: Listeners | None = None,
        fail_fast: bool = False,
        again: bool = False,
        budget: float | None = None,
        drop_vectors: bool = False,
    ) -> None:
        self.plan = plan
        self.vectors_dropped = 0
        self.texts_encoded = 0
        self.tokens_encoded = 0
        self.seconds = 0.0
        self.uses: tuple[DeviceUse, ...] = ()
        self.results: dict[str, Result] = {}
        self._store, self._cache, self._again = store, cache, again
        self._listeners = listeners or Listeners()
        self._fail_fast, self._drop = fail_fast, drop_vectors
        self._open = open_executor or self._open_local
        self.failures: dict[str, Failure] = {}
        self._tries: dict[tuple[str, Cause], int] = {}
        self._budget = budget
        self._jobs: dict[str, Job] = {job.key: job for job in plan.jobs}
        self._state: dict[str, State] = {
            key: "done" if key in plan.known else "waiting" for key in self._jobs
        }
        self._unsettled = sum(state == "waiting" for state in self._state.values())
        self._running: set[str] = set()
        self._begun: set[str] = set()
        self._blocked: deque[Job] = deque()
        self._next_look = self._next_nodes = 0.0
        self._outputs: dict[str, Mapping[str, bytes]] = {}
        self._claimed: set[str] = set()
        self._cells_of: dict[str, list[str]] = {}
        for cell in plan.cells:
            self._cells_of.setdefault(cell.subject.artifact.key, []).append(cell.key)
        self._readers = Counter(name for job in plan.jobs for name in job.inputs)
        self._of_claim: dict[str, list[str]] = {}
        for job in plan.jobs:
            self._of_claim.setdefault(job.claim or job.key, []).append(job.key)
        self._cells: dict[str, PlannedScore] = {cell.key: cell for cell in plan.cells}
        self._scores = {**{trial.key: trial for trial in plan.trials}, **self._cells}

    @cached_property
    def _leases(self) -> Leases:
        return Leases(self._store.leases if self._store.remote is None else self._store.remote)

    def run(self, failures: Mapping[str, Failure] | None = None) -> tuple[Result, ...]:
        """Execute the plan; returns results in the order of the plan.

        Args:
            failures: Why jobs of the plan are not to be begun, by their keys.

        Raises:
            StoreError: The results folder or the cache cannot be written, which ends the run.
            KeyboardInterrupt: Raised after everything is closed; finished work is stored.
        """
        for cell in self.plan.cells:
            if cell.record is not None:
                self._register_result(Result(cell=cell, how="cached", record=cell.record))
            elif cell.problem is not None:
                self._register_result(
                    Result(cell=cell, how="impossible", failure=Failure.from_error(cell.problem))
                )
        if self._jobs:
            self._execute_jobs(failures or {})
        for cell in self.plan.cells:
            if cell.key not in self.results:
                self._register_result(Result(cell=cell, how="stopped"))
        return tuple(self.results[cell.key] for cell in self.plan.cells)

    def run_trainings(self) -> Mapping[str, Failure]:
        """Execute the trainings of a plan without scores; returns the failures by key.

        Raises:
            StoreError: The results folder or the cache cannot be written, which ends the run.
            KeyboardInterrupt: Raised after everything is closed; checkpoints are kept.
        """
        self._execute_jobs({})
        return self.failures

    def _open_local(self, listener: Listener) -> Executor:
        return LocalExecutor(("cpu",), cache=self._cache, listener=listener, limits=WorkerLimits())

    def _execute_jobs(self, failures: Mapping[str, Failure]) -> None:
        self._store.prepare(self.plan.artifacts)
        # Most results folders have never held a training.
        if (self._store.root / MODELS).is_dir():
            ModelStore(self._store.root).sweep()
        files.sweep_cache(self._cache)
        ends = None if self._budget is None else time.monotonic() + self._budget
        executor = self._open(self._handle_event)
        with contextlib.ExitStack() as opened:
            # Closed in reverse: the workers end before their claims become free for others.
            opened.callback(self._leases.release_leases)
            opened.callback(executor.close_executor)
            self._log = RunLog(
                self._store.root / "runs", jobs=self.plan.jobs, known=self.plan.known, executor=executor.name
            )
            reason = ""
            try:
                self._run_event_loop(executor, ends, failures)
            except HarnessError as error:
                reason = error.message
                raise
            finally:
                try:
                    # The log ends last: until its workers have ended, the run counts as running.
                    opened.close()
                finally:
                    self._log.close_run_log("failed" if reason else self._describe_closing(), reason)
                    self.seconds, self.uses = self._log.seconds, self._log.uses

    def _run_event_loop(
        self, executor: Executor, ends: float | None, failures: Mapping[str, Failure]
    ) -> None:
        """Hand out jobs and take their outputs until all are settled, or `ends` is there and none runs."""
        done = frozenset(key for key, state in self._state.items() if state == "done")
        self._queue = _Queue(self._jobs.values(), done)
        for key in failures.keys() & self._jobs:
            self._fail(self._jobs[key], failures[key])
        while self._unsettled and not (self._fail_fast and self.failures):
            self._show_nodes(executor)
            late = ends is not None and time.monotonic() >= ends
            if late:
                self._take_back(executor)
                if not self._running:
                    break
            started = 0 if late else self._start(executor)
            # After a start there may be room for more, so it does not wait.
            for finished in executor.poll_jobs(0.0 if started else PATIENCE):
                self._end(finished)

    def _take_back(self, executor: Executor) -> None:
        """Cancel the jobs that were submitted and have not begun."""
        for key in self._running - self._begun:
            executor.cancel_job(key)
            self._log.note_job_end(self._jobs[key], "retried")
            self._set_job_state(key, "waiting")

    def _describe_closing(self) -> Closing:
        """How the run has ended, for its log."""
        if self._unsettled:
            return "stopped"
        return "failed" if self.failures else "finished"

    def _show_nodes(self, executor: Executor) -> None:
        """Tell of the nodes of a cluster, every few seconds."""
        if time.monotonic() < self._next_nodes:
            return
        self._next_nodes = time.monotonic() + NODES
        if nodes := executor.nodes:
            self._log.update_nodes(nodes)
            self._listeners.nodes(nodes)

    def _start(self, executor: Executor) -> int:
        """Submit the jobs that can begin, as long as there is room; returns their number."""
        self._look_again()
        started = 0
        while (job := self._queue.pop(executor.has_room)) is not None:
            # Another driver may have done it meanwhile.
            if self._state[job.key] != "waiting":
                continue
            if job.claim and not self._claim_work(job.claim):
                if self._state[job.key] == "waiting":
                    self._log.note_foreign_claim(job)
                    self._blocked.append(job)
                continue
            self._set_job_state(job.key, "running")
            self._log.note_submission(job)
            executor.submit(job, {key: self._read_job_output(key) for key in job.inputs})
            started += 1
        return started

    def _look_again(self) -> None:
        """Try the claims of other drivers again, some at a time; few are taken, so that others get some."""
        if time.monotonic() < self._next_look:
            return
        remote = self._store.remote is not None
        self._next_look = time.monotonic() + (REMOTE_PATIENCE if remote else PATIENCE)
        won = 0
        for _ in range(min(CHECKS, len(self._blocked))):
            # From the left, and back to the right: each claim has its turn.
            job = self._blocked.popleft()
            if self._state[job.key] != "waiting":
                continue
            if won < WON and self._claim_work(job.claim or job.key):
                won += 1
                self._queue.push(job)
            elif self._state[job.key] == "waiting":
                self._blocked.append(job)

    def _set_job_state(self, key: str, state: State) -> None:
        """Give a job another state."""
        before, self._state[key] = self._state[key], state
        self._running.discard(key)
        self._begun.discard(key)
        if state == "running":
            self._running.add(key)
        if state == "done":
            self._queue.finish_job(key)
        if before in _OPEN and state not in _OPEN:
            self._unsettled -= 1
            self._drop_inputs(key)

    def _drop_inputs(self, key: str) -> None:
        """Forget the outputs that only this job still needed."""
        for name in self._jobs[key].inputs:
            self._readers[name] -= 1
            if not self._readers[name]:
                self._outputs.pop(name, None)

    def _read_job_output(self, key: str) -> Mapping[str, bytes]:
        """The output of a job: from this run, or from its record in the store."""
        job = self._jobs[key]
        if key in self._outputs or job.place is None:
            return self._outputs.get(key, {})
        record = self._store.get(job.place.artifact, job.place.task, key, purpose=job.place.purpose)
        if record is None:
            raise StoreError(f"The record of {job.label} ({key[:12]}) is no longer there.")
        beside = self._store.find_part_file(record, job.place.artifact)
        examples = {"examples": beside.read_bytes()} if beside is not None else {}
        return {"record": record.to_json().encode(), **examples}

    def _claim_work(self, claim: str) -> bool:
        """Claim a score or a training run, or settle it if another process has finished it meanwhile."""
        if claim in self._claimed:
            return True
        # Claim first, then look: else a record could appear in between, and be made twice.
        free = self._leases.claim(claim)
        if not self._needs_new_record(claim) and self._use_existing_record(claim, now=free):
            if free:
                self._leases.release(claim)
            return False
        if free:
            self._claimed.add(claim)
        return free

    def _needs_new_record(self, key: str) -> bool:
        """Whether a record must be made although it exists."""
        return key in self.plan.anew or (self._again and key in self._cells)

    def _has_other_weights(self, claim: str, record: Record) -> bool:
        """Whether a record was made with other weights than those that its trained model has now."""
        cell = self._scores.get(claim)
        if cell is None or not cell.subject.artifact.trained:
            return False
        now = resolve_weights(replace(cell.subject.artifact, weights="")).weights
        return bool(now) and now != record.model.weights

    def _use_existing_record(self, claim: str, *, now: bool) -> bool:
        place = self._jobs[claim].place
        # A job without a record is done by each process for itself.
        if place is None:
            return False
        record = self._store.get(place.artifact, place.task, claim, purpose=place.purpose, now=now)
        if record is None or self._has_other_weights(claim, record):
            return False
        for key in self._of_claim[claim]:
            if self._state[key] == "waiting":
                self._log.note_job_end(self._jobs[key], "shared")
            self._set_job_state(key, "done")
        if claim in self._cells:
            cell = self._cells[claim]
            self._register_result(Result(cell=cell, how="cached" if cell.former else "shared", record=record))
        else:
            self._listeners.trained(self._jobs[claim], record)
        return True

    def _end(self, finished: Finished) -> None:
        job, failure = self._jobs[finished.key], finished.failure
        if failure is None:
            self._save_output(job, finished)
        elif self._is_tried_again(job, failure):
            return
        elif job.member and failure.kind == DivergenceError.__name__:
            self._drop_sweep_member(job, failure)
        else:
            self._fail(job, failure)

    def _is_tried_again(self, job: Job, failure: Failure) -> bool:
        """Try a job again that has not failed by its own fault; whether it is."""
        tries = self._tries.get((job.key, failure.cause), 0)
        if tries >= RETRIES[failure.cause]:
            return False
        # By cause: a job that lost its node keeps its tries after a lack of memory.
        self._tries[job.key, failure.cause] = tries + 1
        if failure.cause == "memory":
            job = self._jobs[job.key] = replace(job, halvings=job.halvings + 1)
        note = f"{failure.message} It is tried again{RETRY_NOTES[failure.cause]}."
        self._listeners.event(job, Event(kind="note", text=note))
        if failure.cause == "node":
            self._log.note_job_loss(job, failure.message)
        else:
            self._log.note_job_end(job, "retried", cause=failure.reason, hint=failure.hint)
        self._set_job_state(job.key, "waiting")
        self._queue.push(job)
        return True

    def _save_output(self, job: Job, finished: Finished) -> None:
        if job.place is None:
            self._outputs[job.key] = finished.output
            if "speed" in finished.output:
                note_speed(self._cache, Speed.parse_speed(json.loads(finished.output["speed"])))
            self._finish_job(job)
            if job.claim == job.key:
                self._give_back(job)
            return
        record = RECORDS.parse(finished.output["record"].decode(), where=job.label)
        examples, run = finished.output.get("examples"), finished.output.get("run")
        place = (job.place.artifact, job.place.task, job.key)
        if record.purpose == "trial" and self._store.get(*place) is not None:
            # It was requested as a result of its own before, and stays one.
            record = record.model_copy(update={"purpose": "final"})
        cell = self._scores.get(job.key)
        again = self._needs_new_record(job.key) or (cell is not None and cell.former is not None)
        kept = self._store.put(job.place.artifact, record, examples, run=run, again=again)
        if job.kind == "score":
            note_record(self._cache, record)
        self._finish_job(job)
        self._give_back(job)
        if job.key in self._cells:
            self._register_result(Result(cell=self._cells[job.key], how="done", record=kept))
        else:
            self._listeners.trained(job, kept)

    def _finish_job(self, job: Job) -> None:
        self._set_job_state(job.key, "done")
        self._log.note_job_end(job, "done")

    def _fail(self, job: Job, failure: Failure) -> None:
        # A folder that cannot be written would fail every other job, too.
        if isinstance(failure.fault, StoreError):
            raise failure.fault
        if job.kind in ("train", "finetune"):
            self._listeners.event(job, Event(kind="failed", text=failure.message))
        if job.member:
            failure = replace(
                failure,
                message=f"{job.label}: {failure.message}",
                hint=f"Leave the value out of --sweep, or fix the cause. {failure.hint or ''}".strip(),
            )
        self._set_job_state(job.key, "failed")
        self._log.note_job_end(job, "failed", cause=failure.reason, hint=failure.hint)
        self.failures[job.key] = failure
        # Whether the model of the scores behind it is not there without the job, or not fit to be scored.
        makes_model = job.kind in ("train", "resolve") or bool(job.member) or isinstance(job.work, Choose)
        # What works for the same claim does so in vain, such as the other parts of an encoding.
        siblings = [key for key in self._of_claim[job.claim or job.key] if self._state[key] == "waiting"]
        for key in dict.fromkeys((*siblings, *self._find_dependants(job.key))):
            self._set_job_state(key, "skipped")
            self._log.note_job_end(self._jobs[key], "skipped")
            if key in self._cells:
                self._fail_cell(self._cells[key], failure, model_refused=makes_model)
        if job.key in self._cells:
            self._fail_cell(self._cells[job.key], failure, model_refused=False)
        self._give_back(job)

    def _drop_sweep_member(self, job: Job, failure: Failure) -> None:
        """Go on without a member of a sweep whose training diverged: it has no scores."""
        self._listeners.event(job, Event(kind="failed", text=failure.message))
        self._log.note_job_end(job, "failed", cause=failure.reason, hint=failure.hint)
        members = [key for key in self._find_dependants(job.key) if self._jobs[key].member]
        for key in (job.key, *members):
            # Done without an output, so that the choice begins with the members that are left.
            self._outputs[key] = {}
            self._set_job_state(key, "done")
        self._give_back(job)

    def _fail_cell(self, cell: PlannedScore, failure: Failure, *, model_refused: bool) -> None:
        record = None
        if not model_refused:
            record = self._store.put(cell.subject.artifact.slug, _build_failure_record(cell, failure))
        self._register_result(Result(cell=cell, how="failed", record=record, failure=failure))

    def _find_dependants(self, key: str) -> list[str]:
        """The jobs that wait for a job, directly or not."""
        dependent_keys: dict[str, None] = {}
        left = [key]
        while left:
            waiting = [k for k in self._queue.dependants.get(left.pop(), ()) if self._state[k] == "waiting"]
            left += [name for name in waiting if name not in dependent_keys]
            dependent_keys |= dict.fromkeys(waiting)
        return [*dependent_keys]

    def _give_back(self, job: Job) -> None:
        if job.claim in self._claimed:
            self._claimed.discard(job.claim)
            self._leases.release(job.claim)

    def _register_result(self, result: Result) -> None:
        self.results[result.cell.key] = result
        self._listeners.result(result)
        if self._drop:
            self._drop_vectors(result.cell.subject.artifact.key)

    def _drop_vectors(self, artifact: str) -> None:
        """Remove a model's vectors from the cache once each of its scores has a record."""
        mine = self._cells_of[artifact]
        statuses = [self.results[key].how for key in mine if key in self.results]
        if len(statuses) == len(mine) and {*statuses} <= {"cached", "done", "shared"}:
            from harness.storage.vectors import drop_vectors

            self.vectors_dropped += drop_vectors(self._cache, artifact) + drop_indexes(self._cache, artifact)

    def _handle_event(self, key: str, event: Event) -> None:
        if event.kind == "vectors":
            event.write_shard(self._cache, self._store.remote)
            return
        if event.kind == "placed":
            self._begun.add(key)
        if event.kind == "encoded":
            self.texts_encoded += event.texts
            self.tokens_encoded += event.tokens
        self._log.note_event(self._jobs[key], event)
        self._listeners.event(self._jobs[key], event)


def _build_failure_record(cell: PlannedScore, failure: Failure) -> Record:
    return Record(
        key=cell.key,
        status="failed",
        model=build_model_part(cell.subject.artifact, {}),
        lineage=read_model_lineage(cell.subject.artifact),
        task=build_task_part(cell.task),
        identity=cell.identity,
        error=ErrorPart(
            kind=failure.kind, message=failure.message, hint=failure.hint, traceback=failure.traceback
        ),
    )
