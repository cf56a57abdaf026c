"""Units read into rows, by this process or, where they are many, by several."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from logging.handlers import QueueHandler
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, NoReturn

import pyarrow as pa

from harness.core.provenance import count_cores
from leaderboard.data.entries import Unit
from leaderboard.data.records import SOURCE, RecordReader
from leaderboard.data.suites import Scope, load_site_suites
from leaderboard.data.tables import Writer

log = logging.getLogger(__name__)

MANY = 3000
"""Records from which on several processes read them: these take more than a second to start."""

MOST = 4
"""Processes that read, at most: the one that writes keeps up with no more."""

CHUNK = 64
"""Units that are read together, which bounds the memory of what is on its way."""


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """What some units hold.

    Attributes:
        names: The units.
        failed: Those that could not be read.
        rows: Rows of the others by the table's name (`Writer.build_tables`).
        messages: What another process had to say about them.
    """

    names: Sequence[str]
    failed: Sequence[str]
    rows: Mapping[str, pa.Table]
    messages: Sequence[logging.LogRecord] = ()


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What is needed to read units: the suites of one's own, and what all suites ask.

    Attributes:
        cache: The cache that suites are opened from.
        suites: The suites of one's own, as SiteSettings has them.
        scopes: What suites ask, by task.
        numbers: The number of each scope, by its form.
    """

    cache: Path
    suites: Sequence[str]
    scopes: Mapping[str, Sequence[Scope]]
    numbers: Mapping[str, int]


def read_units(units: Mapping[str, Unit], reading: Reading) -> Iterator[Chunk]:
    """The contents of some units, which have a name each."""
    rest = dict(units)
    workers = min(MOST, count_cores())
    if workers > 1 and sum(len(unit.records) for unit in units.values()) >= MANY:
        for chunk in _read_in_processes(units, reading, workers):
            for name in chunk.names:
                del rest[name]
            yield chunk
    for names in _split(rest):
        yield _read_chunk({name: rest[name] for name in names}, reading)


def _split(names: Iterable[str]) -> Iterator[list[str]]:
    places = iter(names)
    while some := list(islice(places, CHUNK)):
        yield some


def _read_chunk(units: Mapping[str, Unit], reading: Reading) -> Chunk:
    writer, failed = Writer(reading.scopes, reading.numbers), []
    for name, unit in units.items():
        items = _read_unit(unit)
        if items is None:
            failed.append(name)
        for item in items or ():
            writer.put(item, name)
    return Chunk(names=list(units), failed=failed, rows=writer.build_tables())


def _read_unit(unit: Unit) -> Sequence[Any] | None:
    """What a unit holds; None, with a line in the log, if it cannot be read: the next refresh tries again."""
    try:
        return unit.read()
    # Whatever is wrong with a single file, the site shows the rest.
    except Exception:
        log.exception("%s of %s cannot be read. What was known of it stays.", unit.name, unit.source)
        return None


def _read_in_processes(units: Mapping[str, Unit], reading: Reading, workers: int) -> Iterator[Chunk]:
    """What artifacts hold, read by other processes; those of a process that ended are left out."""
    jobs = [
        [(name, units[name].name, units[name].records) for name in names]
        for names in _split(name for name, unit in units.items() if unit.records)
    ]
    # Not forked: the process that serves pages has threads, whose locks a fork would copy.
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(workers, context, initializer=_start_reader, initargs=(reading,))
    try:
        for chunk in executor.map(_read_artifacts, jobs):
            for message in chunk.messages:
                logging.getLogger(message.name).handle(message)
            yield chunk
    # One was killed, or none can start, as the program that opens the site guards no `__main__`.
    except BrokenProcessPool:
        log.warning("A process that reads records has ended: they are read by one process, which is slower.")
    finally:
        executor.shutdown(cancel_futures=True)


_worker: dict[str, Any] = {}
"""What a process that reads has: the `reading`, its `reader` of records, and the `messages` of its log."""


def _start_reader(reading: Reading) -> None:
    """Prepare a process that reads."""
    # Ctrl-C is for the process that started this one, which ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()
    suites = list(load_site_suites(reading.cache, reading.suites).values())
    messages: SimpleQueue[logging.LogRecord] = SimpleQueue()
    logging.getLogger().addHandler(QueueHandler(messages))
    _worker.update(reading=reading, reader=RecordReader.for_suites(suites), messages=messages)
    # Records make no circles, and each collection would look through all that was imported.
    gc.set_threshold(100_000)


def _end_with_parent() -> NoReturn:
    # The queue of jobs stays open in all readers: nobody else would tell them that nobody waits.
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _read_artifacts(jobs: Sequence[tuple[str, str, Sequence[str]]]) -> Chunk:
    reader, messages = _worker["reader"], _worker["messages"]
    units = {
        name: Unit(source=SOURCE, name=key, stamp="", read=partial(reader.read, paths))
        for name, key, paths in jobs
    }
    chunk = _read_chunk(units, _worker["reading"])
    return replace(chunk, messages=[messages.get() for _ in range(messages.qsize())])
