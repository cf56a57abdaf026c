"""What a million evaluations come to: bytes, memory and seconds, measured on a few and multiplied.

    PYTHONPATH=tests/support python benchmarks/cluster_arithmetic.py

A small model is run on the suites `stdlib` and `glue` (generated rows, as many as RTE has), for the sizes
of what is written. Plans of two sizes are made of generated models on 100 generated tasks, and what grows
with the number of scores is the difference of the two. Generated records are put into a results folder, for
the time to find them again. Prints the table of docs/cluster.md. `--few` and `--many` are the models of the
plans, `--found` those whose records are found again; `--no-runs` leaves out the small model.
"""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean

from measuring import format_table, name_run, read_options  # which finds the modules of tests

from fakes import artifact, encoding, record, task
from glue_data import data_root
from harness.core.keys import digest
from harness.core.types import Column, Suite
from harness.data.locate import DataSettings
from harness.executors.run_log import RunLog
from harness.jobs.context import Event
from harness.plan.plan import ConfiguredModel, Plan
from harness.storage.record import Record
from harness.storage.remote_and_leases import Leases
from harness.storage.store import Store
from stored_records import iter_records

MILLION = 1_000_000
TASKS = 100
"""Tasks of each generated model; a million scores are ten thousand models on them."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A measured figure for one score, and what a million come to."""

    what: str
    each: float
    unit: str
    note: str = ""

    def row(self) -> tuple[str, ...]:
        """A row of the table."""
        each, total = _amount(self.each, self.unit), _amount(self.each * MILLION, self.unit)
        return self.what, each, total, self.note


def _amount(value: float, unit: str) -> str:
    """A number with a readable unit; bytes and seconds are scaled."""
    scales = {"B": ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB"), (1, "B"))}
    scales["s"] = ((3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs"))
    for size, name in scales.get(unit, ()):
        if value >= size:
            return f"{value / size:.3g} {name}"
    return f"{value:,.0f} {unit}".strip() if value >= 1 or not value else f"{value:.2g} {unit}".strip()


# What is written


def harness(folder: Path, *arguments: str) -> None:
    """One `harness run` of the small model into a folder."""
    done = subprocess.run(name_run(folder, *arguments), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)


def sizes(paths: Iterable[Path]) -> float:
    """The mean size of files in bytes, 0 without files."""
    return mean([path.stat().st_size for path in paths] or [0])


def written(folder: Path) -> list[Line]:
    """The bytes of records and of the files beside them, and of vectors for each text."""
    harness(folder / "s", "--suite", "stdlib")
    data = data_root(folder / "data", train=32, dev=277)
    glue = ["--suite", "glue", "--recipe", "glue-quick", "--tasks", "RTE", "--data", str(data), "--offline"]
    harness(folder / "g", *glue)
    beside = {
        kind: list(folder.glob(f"s/results/records/*/*/*.{kind}.parquet")) for kind in ("examples", "run")
    }
    stdlib = list(iter_records(Store(folder / "s" / "results")))
    trials = list(iter_records(Store(folder / "g" / "results"), purpose="trial"))
    examples = list(beside["examples"])
    rows = sum(one.examples.rows for one in stdlib if one.examples)
    runs = list(folder.glob("g/results/records/*/*/*.examples.parquet"))
    shards = list((folder / "s" / "cache").rglob("*.safetensors"))
    texts = sum(one.provenance["texts_encoded"] for one in stdlib)
    return [
        Line(
            what="record, final", each=mean(_bytes(stdlib)), unit="B", note=f"{len(stdlib)} tasks of stdlib"
        ),
        Line(what="record, final, in memory", each=held(folder / "s" / "results"), unit="B", note="the same"),
        Line(what="record, trial", each=mean(_bytes(trials)), unit="B", note=f"{len(trials)} GLUE runs"),
        Line(
            what="per-example file, final",
            each=sizes(examples),
            unit="B",
            note=f"{rows / len(examples):,.0f} rows each",
        ),
        Line(what="per-example file, trial", each=sizes(runs), unit="B", note="277 rows each"),
        Line(what="run file", each=sizes(beside["run"]), unit="B", note="retrieval and reranking only"),
        Line(
            what="vectors, a text",
            each=sum(path.stat().st_size for path in shards) / texts,
            unit="B",
            note=f"384 numbers of float32; {texts:,} texts in {len(shards)} shards",
        ),
        Line(
            what="lease, while work is in progress", each=_lease(folder), unit="B", note="one a score at work"
        ),
    ]


def _bytes(records: Sequence[Record]) -> list[int]:
    return [len(one.to_json().encode()) for one in records]


def _lease(folder: Path) -> float:
    leases = Leases(folder / "leases")
    assert leases.claim(digest("one"))
    size = sizes((folder / "leases").glob("*"))
    leases.release_leases()
    return size


def held(records: Path) -> float:
    """The bytes of a record in memory; those of the first, with what its reading imports, do not count."""
    store = Store(records)
    list(iter_records(store))
    tracemalloc.start()
    kept = list(iter_records(store))
    gc.collect()
    found = tracemalloc.get_traced_memory()[0] / len(kept)
    tracemalloc.stop()
    return found


# Planning


def planned(store: Store, models: int) -> Plan:
    """The plan of so many generated models on every generated task."""
    tasks = [task(f"Task{number}") for number in range(TASKS)]
    suite = Suite(
        name="s", title="s", columns=tuple(Column(name=t.name, type=t.type, tasks=(t,)) for t in tasks)
    )
    subjects = [
        ConfiguredModel(
            artifact=artifact(store.root, key=digest(number), name=f"m{number}"), encoding=encoding()
        )
        for number in range(models)
    ]
    return Plan.make(subjects, [suite], store=store, settings=DataSettings(cache=store.root / "cache"))


def memory(folder: Path, models: int) -> tuple[int, int]:
    """The bytes that a plan holds, without and with its jobs; no record is there."""
    gc.collect()
    tracemalloc.start()
    plan = planned(Store(folder), models)
    gc.collect()
    whole = tracemalloc.get_traced_memory()[0]
    assert len(plan.cells) == models * TASKS
    plan = replace(plan, jobs=())
    gc.collect()
    cells = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return cells, whole - cells


def seconds(folder: Path, models: int) -> float:
    """The time to plan scores of which none has a record."""
    began = time.perf_counter()
    planned(Store(folder), models)
    return time.perf_counter() - began


def planning(folder: Path, few: int, many: int) -> list[Line]:
    """What grows with each planned score: memory of scores and jobs, and time."""
    (cells, jobs), (more_cells, more_jobs) = (memory(folder / "empty", n) for n in (few, many))
    count = (many - few) * TASKS
    taken = seconds(folder / "empty", many) - seconds(folder / "empty", few)
    plan = planned(Store(folder / "empty"), few)
    note = f"the plan of {many * TASKS:,} scores minus that of {few * TASKS:,}"
    return [
        Line(what="jobs", each=len(plan.jobs) / len(plan.cells), unit="", note="resolve once a model"),
        Line(what="job, pickled", each=_pickled(plan), unit="B", note="what a worker is sent"),
        Line(what="status log", each=_log(folder, plan), unit="B", note="what `harness status` reads"),
        Line(what="planned score, in memory", each=(more_cells - cells) / count, unit="B", note=note),
        Line(what="its jobs, in memory", each=(more_jobs - jobs) / count, unit="B", note=note),
        Line(what="time to plan, no record there", each=taken / count, unit="s", note=note),
    ]


def _log(folder: Path, plan: Plan) -> float:
    """The bytes that a run writes for `harness status`, for each score."""
    log = RunLog(folder / "runs", jobs=plan.jobs, executor="ray: 10.0.0.1:6379")
    for job in plan.jobs:
        log.note_submission(job)
        log.note_event(job, Event(kind="placed", text="node-1", devices=("GPU 0",)))
        log.note_job_end(job, "done")
    log.close_run_log("finished")
    return sizes(log.folder.iterdir()) / len(plan.cells)


def _pickled(plan: Plan) -> float:
    return mean(len(pickle.dumps(job)) for job in plan.jobs)


# Finding records again


def filled(folder: Path, models: int) -> Store:
    """A results folder with a record of every planned score, written without waiting for the disk."""
    store = Store(folder)
    for number in range(models):
        model = artifact(folder, key=digest(number), name=f"m{number}")
        for other in range(TASKS):
            made = record(task(f"Task{other}"), 0.5, model=model)
            path = store.locate_record(model.slug, made.task.name, made.key)
            path.parent.mkdir(parents=True)
            path.write_text(made.to_json())
    return store


def looking_up(folder: Path, models: int) -> list[Line]:
    """The time to find every record again, to read a whole folder, and to tidy it before a run."""
    store, count = filled(folder, models), models * TASKS
    note = f"{count:,} records in {count:,} folders, in the page cache"
    times = []
    names = [path.name for path in (store.root / "records").iterdir()]
    tidy = partial(store.prepare, names)
    for act in (lambda: planned(store, models), lambda: list(iter_records(store)), tidy):
        began = time.perf_counter()
        act()
        times.append((time.perf_counter() - began) / count)
    plan, whole, prepare = times
    return [
        Line(what="time to plan, every record there", each=plan, unit="s", note=note),
        Line(what="time to read every record (`Store.read_record`)", each=whole, unit="s", note=note),
        Line(what="time to tidy before a run (`Store.prepare`)", each=prepare, unit="s", note=note),
    ]


def main() -> int:
    """Print the table."""
    given = read_options(__doc__, few=20, many=200, found=100, no_runs=False)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        lines = [] if given.no_runs else written(folder / "runs")
        lines += planning(folder, given.few, given.many)
        lines += looking_up(folder / "found", given.found)
    print(f"{len(os.sched_getaffinity(0))} cores\n")
    print(format_table(("what", "each", "a million", "measured on"), (line.row() for line in lines)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
