"""Synthetic sets, and runs over them in rounds, by a clock that waits for the device."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np
import psutil
import torch
from torch import Tensor

from harness.core import files, provenance
from harness.core.errors import ModelError
from harness.encoder.inputs import move_features
from harness.encoder.network.layers import Packing

IDS = (100, 16_000)
"""The bounds of token ids, the second one excluded."""

BUSY = 0.1
"""The share of all processors' time from which other processes make a run a busy one."""

UNSTABLE = 0.05
"""The distance of the quartiles, as a share of the median, from which a speed is unstable."""


@dataclass(frozen=True, kw_only=True)
class LoadedNetwork:
    """A loaded backbone with an engine.

    Attributes:
        model: The backbone.
        device: Its device.
        engine: "ours", "padded" by transformers' class, or "filled": our network that computes padding.
    """

    model: Any
    device: str
    engine: str

    def move_batch(self, ids: Tensor, lengths: Sequence[int]) -> dict[str, Any]:
        """Bring padded ids (sequences, columns) to the device, the longest first; packed by their lengths."""
        real = np.arange(ids.shape[1]) < np.asarray(lengths)[:, None]
        features: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.from_numpy(real.astype(int))}
        if self.engine == "ours":
            features["packing"] = Packing.from_sorted_masks(real)
        elif self.engine == "filled":
            features["compute_mask"] = torch.ones_like(ids)
        return move_features(features, torch.device(self.device))

    def run_pass(self, batch: Any) -> Tensor:
        """Start a forward pass; the vectors of tokens, (sequences, columns, width)."""
        with torch.inference_mode():
            vectors: Tensor = self.model(**batch).last_hidden_state
        return vectors

    @property
    def attention(self) -> str:
        """The attention backend as it ran, or as transformers sets it."""
        backend = getattr(self.model.config, "_attn_implementation", None)
        return str(getattr(self.model, "attention_as_run", backend) or "none")


class Device:
    """A device of torch with its clock.

    Attributes:
        name: The device in torch's words.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def wait(self) -> None:
        """Wait until the device has done what it was given."""
        if self.name != "cpu":
            torch.accelerator.synchronize(self.name)

    def read_clock(self) -> float:
        """Seconds from some point on."""
        return time.perf_counter()


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A set of sequences, each batch of which is padded to the longest possible one.

    Attributes:
        longest: The columns of a batch.
        lengths: The tokens of each sequence.
        vocabulary: The tokens that the model knows.
        pad: The padding token.
        seed: The seed of the token ids.
    """

    longest: int
    lengths: tuple[int, ...]
    vocabulary: int = IDS[1]
    pad: int = 0
    seed: int = 42

    def iterate_batches(self, size: int) -> Iterator[tuple[Tensor, list[int]]]:
        """Padded ids (sequences, columns) and lengths, the longest first within a batch."""
        # Anew for each batch: all ids of the longest set would take half a gigabyte.
        generator = torch.Generator().manual_seed(self.seed)
        bounds = (min(IDS[0], self.vocabulary - 1), min(IDS[1], self.vocabulary))
        for start in range(0, len(self.lengths), size):
            lengths = sorted(self.lengths[start : start + size], reverse=True)
            ids = torch.randint(*bounds, (len(lengths), self.longest), generator=generator)
            columns = torch.arange(self.longest)
            yield ids.masked_fill(columns >= torch.tensor(lengths)[:, None], self.pad), lengths

    def take_first(self, count: int) -> Workload:
        """The same with its first sequences alone."""
        return replace(self, lengths=self.lengths[:count])


def draw_lengths(name: str, longest: int, count: int, *, least: int, seed: int) -> tuple[int, ...]:
    """The lengths of a set: all `longest`, or of "variable" N(longest / 2, longest / 8) from `least` on.

    >>> sum(draw_lengths("variable", 512, 8192, least=32, seed=42))
    2096510
    """
    if name == "fixed":
        return (longest,) * count
    # Drawn first after the seed, as in the released script.
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.normal(longest / 2, longest / 8, size=(count,), generator=generator)
    return tuple(drawn.int().clamp(least, longest).tolist())


@dataclass(frozen=True, kw_only=True)
class Timing:
    """A run over a set: the seconds of each pass, those of transfers, and what disturbed it.

    Attributes:
        steps: The seconds of each pass.
        moving: The seconds of all transfers; without waiting they are in the steps.
        total: The seconds of all processors.
        others: Those of them that other processes took.
        joules: The energy of the device; None where it does not tell.
        troubles: What else disturbed it.
    """

    steps: Sequence[float]
    moving: float
    total: float = 0.0
    others: float = 0.0
    joules: float | None = None
    troubles: Sequence[str] = ()


def time_run(
    network: LoadedNetwork,
    device: Device,
    workload: Workload,
    size: int,
    *,
    waits: bool = True,
    count: Callable[[int], None] = lambda _steps: None,
) -> Timing:
    """Run a model over a set once.

    Args:
        network: The model.
        device: Its device.
        workload: The set.
        size: The sequences of a batch.
        waits: Whether the clock is read when the device is done, and transfers are apart.
        count: Called after each pass.

    Raises:
        ModelError: The clock went backwards.
    """
    steps, moving = [], 0.0
    with watch_load(device) as seen:
        for ids, lengths in workload.iterate_batches(size):
            began = device.read_clock()
            batch = network.move_batch(ids, lengths)
            if waits:
                device.wait()
            moved = device.read_clock()
            network.run_pass(batch)
            if waits:
                device.wait()
            ended = device.read_clock()
            if not began <= moved <= ended:
                raise ModelError("The clock of this machine went backwards.", hint="Measure again.")
            steps.append(ended - (moved if waits else began))
            moving += moved - began if waits else 0.0
            count(1)
    return Timing(steps=tuple(steps), moving=moving, **seen)


@contextmanager
def watch_load(device: Device) -> Iterator[dict[str, Any]]:
    """Fills a dictionary with what other processes did meanwhile, and the energy, where the device tells."""
    seen: dict[str, Any] = {}
    process, nvml = psutil.Process(), open_nvml(device.name)

    def read_times() -> tuple[float, float]:
        """The seconds of all processors, and those that other processes took of them."""
        every = psutil.cpu_times()._asdict()
        idle = every["idle"] + every.get("iowait", 0.0)
        # Guests are in the time of users as well.
        total = sum(every.values()) - every.get("guest", 0.0) - every.get("guest_nice", 0.0)
        return total, total - idle - sum(process.cpu_times()[:2])

    before, energy = read_times(), nvml and nvml[0].nvmlDeviceGetTotalEnergyConsumption(nvml[1])
    yield seen
    seen["total"], seen["others"] = (after - b for after, b in zip(read_times(), before, strict=True))
    if nvml:
        library, handle = nvml
        seen["joules"] = (library.nvmlDeviceGetTotalEnergyConsumption(handle) - energy) / 1000
        slow = library.nvmlDeviceGetCurrentClocksThrottleReasons(handle) & 0xE8
        shared = len(library.nvmlDeviceGetComputeRunningProcesses(handle)) > 1
        seen["troubles"] = (*(["throttled"] if slow else []), *(["other processes on it"] if shared else []))


def open_nvml(device: str) -> tuple[Any, Any] | None:
    """NVIDIA's library (pynvml) with the handle of a GPU; None without one."""
    if not device.startswith("cuda"):
        return None
    try:
        library = importlib.import_module("pynvml")
        library.nvmlInit()
        handle = library.nvmlDeviceGetHandleByUUID(provenance.read_gpu_uuid(device))
        library.nvmlDeviceGetTotalEnergyConsumption(handle)
    except Exception:  # not installed, or refused by the driver in one of many ways
        return None
    return library, handle


Run = tuple[str, str, int]
"""Engine, set and batch size."""


def measure_rounds(
    runs: Mapping[Run, Callable[[], Timing]], rounds: int, log: Path
) -> dict[Run, list[Timing]]:
    """The timings of each run, one after the other in every round, and the other way round in the next.

    Args:
        runs: The runs by name.
        rounds: How often each is taken.
        log: The file that keeps finished runs, which are not taken again.
    """
    timings: dict[Run, list[Timing]] = {run: [] for run in runs}
    order = list(runs)
    for number in range(rounds):
        for run in order:
            timings[run].append(
                Timing(**measure_once(log, format_turn(number, run), partial(_take, runs[run])))
            )
        order.reverse()
    return timings


def format_turn(number: int, run: Run) -> str:
    """The name of a run in a round, in the file of `measure_rounds`."""
    return f"{number} {run}"


def _take(run: Callable[[], Timing]) -> dict[str, Any]:
    """The facts of a timing, with one number in place of thousands of steps: the whole file is written."""
    timing = run()
    return {**asdict(timing), "steps": [sum(timing.steps)]}


def read_log(log: Path) -> dict[str, Any]:
    """What `measure_once` keeps in a file."""
    entries: dict[str, Any] = json.loads(log.read_text()) if log.exists() else {}
    return entries


def measure_once(log: Path, name: str, measure: Callable[[], Any]) -> Any:
    """A value of a file by its name, which is measured and kept there if it is not there yet."""
    entries = read_log(log)
    if name not in entries:
        entries[name] = measure()
        files.replace(log, json.dumps(entries).encode())
    return entries[name]


def summarize_rounds(timings: Sequence[Timing], workload: Workload, computed: int) -> dict[str, Any]:
    """The figures of a run: medians with quartiles, and what disturbed it.

    Args:
        timings: That of each round.
        workload: The set.
        computed: The tokens that the engine computes of it.
    """
    tokens = sum(workload.lengths)
    rates = [tokens / sum(timing.steps) for timing in timings]
    middle, (low, _, high) = median(rates), quantiles(rates, method="inclusive")
    padded = workload.longest * len(workload.lengths)
    joules = [timing.joules for timing in timings if timing.joules is not None]
    # Over all rounds: the clocks of processors go by hundredths, and less than half a second says nothing.
    total = sum(timing.total for timing in timings)
    others = max(0.0, sum(timing.others for timing in timings) / total) if total >= 0.5 else 0.0
    return {
        "main_score": middle,
        "tokens_per_second": middle,
        "tokens_per_second_quartiles": [low, high],
        "rounds": rates,
        "padded_tokens_per_second": middle * padded / tokens,
        "sequences": len(workload.lengths),
        "tokens": tokens,
        "computed_tokens": computed,
        "seconds": tokens / middle,
        "transfer_seconds": median(timing.moving for timing in timings),
        "joules": median(joules) if joules else None,
        "others": others,
        "busy": others > BUSY or any(timing.troubles for timing in timings),
        "unstable": high - low > UNSTABLE * middle,
        "troubles": sorted({trouble for timing in timings for trouble in timing.troubles}),
    }
