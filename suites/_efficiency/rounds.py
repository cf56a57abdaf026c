"""Synthetic sets, and runs over them in rounds, by a clock that waits for the device."""

from __future__ import annotations

import importlib
import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any, TypeVar

import numpy as np
import psutil
import torch
from torch import Tensor

from harness.core import files, provenance
from harness.core.errors import ModelError
from harness.encoder.batches import move_features
from harness.encoder.network.layers import Packing

T = TypeVar("T")

IDS = (100, 16_000)
"""The bounds of token ids, the second one excluded."""

BUSY = 0.1
"""The share of all processors' time from which other processes make a run a busy one."""

UNSTABLE = 0.05
"""The distance of the quartiles, as a share of the median, from which a speed is unstable."""


@dataclass(frozen=True, kw_only=True)
class LoadedNetwork:
    """A loaded backbone on its device.

    `engine` is "ours", "padded" by transformers' class, or "filled": our network that computes padding.
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


@dataclass
class Device:
    """A device by its name in torch's words, and its clock."""

    name: str

    def wait(self) -> None:
        """Wait until the device has done what it was given."""
        if self.name != "cpu":
            torch.accelerator.synchronize(self.name)

    def read_clock(self) -> float:
        """Seconds from some point on."""
        return time.perf_counter()

    def measure_call(self, call: Callable[[], T], *, waits: bool = True) -> tuple[T, float]:
        """The result of a call and its seconds; without `waits` the device may not have done the work yet.

        Raises:
            ModelError: The clock went backwards.
        """
        wait_if_asked = self.wait if waits else lambda: None
        wait_if_asked()
        began = self.read_clock()
        result = call()
        wait_if_asked()
        seconds = self.read_clock() - began
        if seconds < 0:
            raise ModelError("The clock of this machine went backwards.", hint="Measure again.")
        return result, seconds


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A set of sequences by their lengths, each batch of which is padded to `longest` columns.

    `vocabulary` is the number of the model's tokens, `pad` its padding token, `seed` that of the ids.
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


@dataclass(kw_only=True)
class Timing:
    """A run over a set, and what disturbed it.

    Attributes:
        steps: The seconds of each pass.
        moving: The seconds of all transfers; without waiting they are in the steps.
        total: The seconds of all processors.
        others: Those of them that other processes took.
        joules: The energy of the device; None where it does not tell.
        troubles: What else disturbed it.
    """

    steps: list[float] = field(default_factory=list)
    moving: float = 0.0
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
    """Run a model over a set once, in batches of `size` sequences.

    Args:
        network: The model.
        device: Its device.
        workload: The set.
        size: The sequences of a batch.
        waits: Whether the clock is read when the device is done, and transfers are apart.
        count: Called after each pass.
    """
    with watch_load(device) as timing:
        for ids, lengths in workload.iterate_batches(size):
            batch, moved = device.measure_call(partial(network.move_batch, ids, lengths), waits=waits)
            _, passed = device.measure_call(partial(network.run_pass, batch), waits=waits)
            timing.steps.append(passed if waits else moved + passed)
            timing.moving += moved if waits else 0.0
            count(1)
    return timing


@contextmanager
def watch_load(device: Device) -> Iterator[Timing]:
    """A timing to be filled, with what other processes did meanwhile and the energy, if the device tells."""
    timing, nvml = Timing(), open_nvml(device.name)
    before, energy = _read_processor_times(), nvml and nvml[0].nvmlDeviceGetTotalEnergyConsumption(nvml[1])
    yield timing
    after = _read_processor_times()
    timing.total, timing.others = after[0] - before[0], after[1] - before[1]
    if nvml:
        library, handle = nvml
        timing.joules = (library.nvmlDeviceGetTotalEnergyConsumption(handle) - energy) / 1000
        slow = library.nvmlDeviceGetCurrentClocksThrottleReasons(handle) & 0xE8
        shared = len(library.nvmlDeviceGetComputeRunningProcesses(handle)) > 1
        timing.troubles = (*(["throttled"] if slow else []), *(["other processes on it"] if shared else []))


def _read_processor_times() -> tuple[float, float]:
    """The seconds of all processors, and those that other processes took of them."""
    every = psutil.cpu_times()._asdict()
    idle = every["idle"] + every.get("iowait", 0.0)
    # Guests are in the time of users as well.
    total = sum(every.values()) - every.get("guest", 0.0) - every.get("guest_nice", 0.0)
    return total, total - idle - sum(psutil.Process().cpu_times()[:2])


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
    for name, run in _list_turns(runs, rounds):
        timings[run].append(Timing(**measure_once(log, name, partial(_take_turn, runs[run]))))
    return timings


def count_open_turns(runs: Collection[Run], rounds: int, log: Path) -> Counter[Run]:
    """How often `measure_rounds` would take each run now."""
    finished = _read_log(log)
    return Counter(run for name, run in _list_turns(runs, rounds) if name not in finished)


def _list_turns(runs: Collection[Run], rounds: int) -> Iterator[tuple[str, Run]]:
    """Every run of every round, with its name in the log."""
    for number in range(rounds):
        yield from ((f"{number} {run}", run) for run in ([*runs][::-1] if number % 2 else runs))


def _take_turn(run: Callable[[], Timing]) -> dict[str, Any]:
    """The facts of a timing, with one number in place of thousands of steps: the whole file is written."""
    timing = run()
    return {**asdict(timing), "steps": [sum(timing.steps)]}


def _read_log(log: Path) -> dict[str, Any]:
    entries: dict[str, Any] = json.loads(log.read_text()) if log.exists() else {}
    return entries


def measure_once(log: Path, name: str, measure: Callable[[], Any]) -> Any:
    """A value of a file by its name, which is measured and kept there if it is not there yet."""
    entries = _read_log(log)
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
