"""Reading many files in several processes."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from harness import catalog
from harness.errors import HarnessError
from leaderboard.importers._mteb_files import Parsed, alone, parse_all
from leaderboard.importers._mteb_old import Known, known_tasks

CHUNK = 800
"""Files that a process reads before it hands over what it found."""

Progress = Callable[[int, int], None]
"""Called with the files read so far, and how many there are to read."""


def parse(root: Path, paths: Sequence[str], workers: int | None, progress: Progress | None) -> list[Parsed]:
    """What the files below `root` hold, in their order, in parts.

    Raises:
        HarnessError: A process was killed.
    """
    tell = progress or (lambda done, total: None)
    chunks = [paths[i : i + CHUNK] for i in range(0, len(paths), CHUNK)]
    count = min(workers or len(os.sched_getaffinity(0)), len(chunks))
    known = _known()
    tell(0, len(paths))
    if count > 1:
        return _in_processes(str(root), chunks, count, known, tell)
    parts = []
    for chunk in chunks:
        parts.append(parse_all(str(root), chunk, known))
        tell(sum(len(part.told) for part in parts), len(paths))
    return parts


def _in_processes(
    root: str, chunks: Sequence[Sequence[str]], count: int, known: Known, tell: Progress
) -> list[Parsed]:
    total, done = sum(map(len, chunks)), 0
    spawn = multiprocessing.get_context("spawn")  # the site that imports may have threads
    pool = ProcessPoolExecutor(count, mp_context=spawn, initializer=alone)
    try:
        asked: list[Future[Parsed]] = [pool.submit(parse_all, root, chunk, known) for chunk in chunks]
        for future in as_completed(asked):
            done += len(future.result().told)
            tell(done, total)
        return [future.result() for future in asked]
    except BrokenProcessPool as error:
        raise HarnessError(
            "A process that reads results was killed, perhaps for want of memory.",
            hint="Run the same command again with --workers 1; the former import is as it was.",
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _known() -> Known:
    """The tasks of mteb and their metrics, from the catalog."""
    suite = catalog.suites().get("mteb")
    offers = suite.offers() if suite else ()
    return known_tasks({offer.name: offer.facts["metric"] for offer in offers if offer.kind == "task"})
