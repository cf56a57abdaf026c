"""The largest batch that fits into memory.

Each try of a batch is a process of its own, which may run out of memory.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import torch

from harness.core.errors import ModelError
from harness.core.provenance import measure_peak_memory
from suites._efficiency.rounds import Device, Workload, measure_once, time_run

CPU_MEMORY = 4 * 2**30
"""The resident memory that a try may take on a CPU, libraries included: a whole machine is never filled."""

PRECISION = 0.03
"""How much larger a batch may fit than the one that is found."""


def find_largest_batch(fits: Callable[[int], bool], most: int) -> int:
    """The largest batch that fits, by doubling and bisection to 3 %; 0 if none does.

    >>> find_largest_batch(lambda size: size <= 700, 4096)
    688
    """
    size = find_doubled_batch(fits, most)
    if 0 < size < most < 2 * size and fits(most):
        return most
    above = min(2 * size, most + 1)
    while size and above - size > max(1, PRECISION * size):
        middle = (size + above) // 2
        size, above = (middle, above) if fits(middle) else (size, middle)
    return size


def find_doubled_batch(fits: Callable[[int], bool], most: int) -> int:
    """The largest of 1, 2, 4 ... that fits; 0 if none does."""
    size = 1
    while size <= most and fits(size):
        size *= 2
    return size // 2


def find_released_batch(fits: Callable[[int], bool], most: int) -> int:
    """The batch of ModernBERT's released script; 0 if none fits.

    >>> find_released_batch(lambda size: size <= 700, 4096), find_released_batch(lambda size: True, 4096)
    (696, 4092)
    """
    size = min(1024, most)
    if fits(size):
        while size < most and fits(size + 16):
            size += 16
    else:
        for step, bound in ((64, 64), (4, 4), (1, 0)):
            while size > bound and not fits(size):
                size -= step
        for step in (32, 16, 8, 4, 2) if size else ():
            while size + step <= most and fits(size + step):
                size += step
    size = min(size, most)
    return size - 4 if size > 8 else size


@dataclass(frozen=True, kw_only=True)
class Trials:
    """The tries of an engine with sequences of `longest` tokens, of which each is made once.

    `build` loads the model with the engine, and is picklable; `log` is the file that keeps the tries;
    `memory` bounds the resident memory of a try on a CPU.
    """

    build: Callable[[], Any]
    device: str
    longest: int
    log: Path
    memory: int = CPU_MEMORY

    def measure_peak(self, size: int) -> int | None:
        """The bytes that the model and a pass over a batch take at most; None if they do not fit.

        Raises:
            ModelError: The try failed for another reason, or too little memory is free for it.
        """
        peak: int | None = measure_once(self.log, str(size), partial(self._run_trial, size))
        return peak

    def fits(self, size: int) -> bool:
        """Whether a batch fits."""
        return self.measure_peak(size) is not None

    def _run_trial(self, size: int) -> int | None:
        if not self.device.startswith("cuda") and psutil.virtual_memory().available < self.memory:
            raise ModelError(
                f"Less than {self.memory / 2**30:.0f} GB of memory are free, which a try may take.",
                hint="End other programs, and type the command again.",
            )
        process = subprocess.run(
            [sys.executable, "-m", "suites._efficiency.largest_batch"],
            input=pickle.dumps((self, size, torch.get_num_threads())),
            capture_output=True,
            # What was put on the path by hand is not inherited.
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        # By itself at its bound, or by the kernel: no memory was left.
        if process.returncode == -signal.SIGKILL:
            return None
        if process.returncode:
            *_, last = ["no message", *process.stderr.decode(errors="replace").strip().splitlines()]
            raise ModelError(f"A batch of {size} failed: {last}")
        peak: int | None = json.loads(process.stdout.splitlines()[-1])
        return peak


def _try_batch(trials: Trials, size: int, threads: int) -> int | None:
    torch.set_num_threads(threads)
    device, on_gpu, held = trials.device, trials.device.startswith("cuda"), 0
    if not on_gpu:
        threading.Thread(target=_end_above, args=(trials.memory,), daemon=True).start()
    before, network = psutil.Process().memory_info().rss, trials.build()
    if on_gpu:
        # The weights of another engine are in memory while both are measured, and some room goes in pieces.
        held = torch.cuda.memory_allocated(device) + torch.cuda.mem_get_info(device)[1] // 50
    try:
        ballast = torch.empty(held, dtype=torch.uint8, device=device)
        workload = Workload(longest=trials.longest, lengths=(trials.longest,) * size)
        time_run(network, Device(device), workload, size)
        del ballast
    except (MemoryError, torch.OutOfMemoryError):
        return None
    except RuntimeError as error:
        # What torch says on a CPU.
        if "can't allocate memory" in str(error):
            return None
        raise
    peak = measure_peak_memory()
    return peak["device"] - held if on_gpu else peak["host"] - before


def _end_above(memory: int) -> None:
    """Kill this process once it has more resident memory."""
    process = psutil.Process()
    while process.memory_info().rss <= memory:
        time.sleep(0.02)
    process.kill()


if __name__ == "__main__":
    print(json.dumps(_try_batch(*pickle.load(sys.stdin.buffer))))
