"""How many processes train at once on a device: as many as its memory and the cores allow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.machine import cores

if TYPE_CHECKING:
    from harness.jobs import Job
    from harness.recipe import Recipe

SHARE = 0.9
"""Of a device's free memory, how much may be used."""

PER_WEIGHT = 6
"""Memory of a run on a CPU, in its weights: these, their gradients, two moments, and what is on the way."""

PROCESS = 2_500_000_000
"""Bytes that a process takes apart from that: its libraries, and what passes through the layers."""


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """Where processes run: a device for each, and the threads of every one."""

    devices: tuple[str, ...]
    threads: int | None


def crowd(
    devices: Sequence[str],
    jobs: Sequence[Job],
    recipe: Recipe | None,
    *,
    cache: Path,
    weights: int,
    asked: int | None = None,
    threads: int | None = None,
) -> Crowd:
    """The processes for a plan.

    On a CPU several runs with few threads each take less time than one after the other with all of
    them: small products leave threads waiting.

    Args:
        devices: One process each, unless there are runs to train.
        jobs: That are still to be done.
        recipe: Which measures the memory of a run on a GPU.
        cache: For what that prepares.
        weights: Bytes of the largest backbone.
        asked: Processes for each device, where a user says so.
        threads: Of each process, where a user says so.
    """
    runs = [job for job in jobs if job.kind == "train"]
    if not runs or recipe is None:
        return Crowd(devices=tuple(devices), threads=threads)
    each = -(-len(runs) // len(devices))
    count = asked or min(each, _fitting(devices, runs, recipe, cache=cache, weights=weights, threads=threads))
    on_cpu = all(device == "cpu" for device in devices)
    spread = max(1, cores() // count) if on_cpu and count > 1 else None
    return Crowd(devices=tuple(d for d in devices for _ in range(count)), threads=threads or spread)


def _fitting(
    devices: Sequence[str],
    runs: Sequence[Job],
    recipe: Recipe,
    *,
    cache: Path,
    weights: int,
    threads: int | None,
) -> int:
    free_cores = max(1, cores() // (threads or 1) // len(devices))
    if devices[0] == "cpu":
        import psutil

        room = psutil.virtual_memory().available * SHARE
        return fit(room, PER_WEIGHT * weights + PROCESS, most=free_cores)
    if not devices[0].startswith("cuda") or free_cores == 1:
        return 1
    measured = _measured(devices[0], runs, recipe, cache)
    return 1 if measured is None else fit(measured[0] * SHARE, measured[1], most=free_cores)


def fit(room: float, need: float, *, most: int) -> int:
    """How many fit into the room there is, at least one.

    >>> fit(80e9, 12e9, most=16), fit(80e9, 12e9, most=4), fit(8e9, 12e9, most=4)
    (6, 4, 1)
    """
    return max(1, min(most, int(room // need)))


def _measured(device: str, runs: Sequence[Job], recipe: Recipe, cache: Path) -> tuple[float, float] | None:
    """The free memory of a GPU and what one run takes, from a few steps in a process of its own."""
    from harness.workers import Apart

    job = recipe.probe(runs)
    if job is None:
        return None
    worker = Apart(device=device, cache=cache, listener=lambda _key, _event: None)
    try:
        worker.start(job, {})
        finished = None
        while finished is None:
            finished = worker.poll(0.5)
    finally:
        worker.close()
    if finished.failure is not None:
        return None
    return _free(device), float(json.loads(finished.output["memory"])["peak_bytes"])


def _free(device: str) -> float:
    import torch

    return float(torch.cuda.mem_get_info(device)[0])
