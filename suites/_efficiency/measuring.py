"""Speed and memory of a model: its engines, the largest batch, runs in rounds, and the figures of each set.

Each try of a batch is a process of its own, in which this file is run and which may run out of memory.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import numpy as np
import psutil
import torch
from torch import Tensor, nn
from transformers import AutoModel

from harness.core import files, provenance
from harness.core.errors import ModelError
from harness.core.types import Artifact, MeasuredModel, Outcome, Similarity, Task
from harness.encoder.attention.kernels import LIBRARY_NAMES
from harness.encoder.backbones import has_network, read_family
from harness.encoder.batches import move_features
from harness.encoder.engine import collect_backbones, use_onednn
from harness.encoder.folder.modules_and_pooling import find_backbone_folder
from harness.encoder.library_load import hide_library_output, is_out_of_memory
from harness.encoder.network.layers import Packing
from harness.encoder.network.pretrained import merge_folder_adapter
from harness.results.cost.compute import read_backbone_compute
from harness.search.exact import find_top_k
from harness.search.maxsim import find_maxsim_top_k
from suites._efficiency.protocol import LARGEST_DOUBLING, METRIC, SpeedProtocol

T = TypeVar("T")

IDS = (100, 16_000)
"""The bounds of token ids, the second one excluded."""

BUSY, UNSTABLE = 0.1, 0.05
"""Shares of all processors' time that other processes take from which a run is busy, and of the median
between the quartiles, from which a speed is unstable."""

CPU_MEMORY = 4 * 2**30
"""The resident memory that a try may take on a CPU, libraries included: a whole machine is never filled."""

SINGLE, SEARCHED, RANKED = 100, 100, 100
"""Sequences that are run alone, for the latency; queries of a corpus; and texts that are found of each."""

AGREEMENT = 1e-3
"""The difference of vectors from which engines do not compute the same."""


# A run over a set


@dataclass
class Device:
    """A device by its name in torch's words, and its clock, which `waits` until the device is done."""

    name: str
    waits: bool = True

    def read_clock(self) -> float:
        """Seconds from some point on."""
        if self.waits and self.name != "cpu":
            torch.accelerator.synchronize(self.name)
        return time.perf_counter()

    def measure_call(self, call: Callable[[], T]) -> tuple[T, float]:
        """The result of a call and its seconds; without `waits` the device may not have done the work yet.

        Raises:
            ModelError: The clock went backwards.
        """
        began = self.read_clock()
        result = call()
        seconds = self.read_clock() - began
        if seconds < 0:
            raise ModelError("The clock of this machine went backwards.", hint="Measure again.")
        return result, seconds


@dataclass(frozen=True, kw_only=True)
class LoadedNetwork:
    """A backbone on its device with its engine: "ours", "padded" (transformers), "filled" (ours, padded)."""

    model: Any
    device: Device
    engine: str

    def move_batch(self, ids: Tensor, lengths: Sequence[int]) -> dict[str, Any]:
        """Bring padded ids (sequences, columns) to the device, the longest first; packed by their lengths."""
        real = np.arange(ids.shape[1]) < np.asarray(lengths)[:, None]
        features: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.from_numpy(real.astype(int))}
        if self.engine == "ours":
            features["packing"] = Packing.from_sorted_masks(real)
        elif self.engine == "filled":
            features["compute_mask"] = torch.ones_like(ids)
        return move_features(features, torch.device(self.device.name))

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


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A set of sequences by their lengths, each batch of which is padded to `longest` columns.

    `config` is the model's, which may say its `vocab_size` and its `pad_token_id`.
    """

    longest: int
    lengths: tuple[int, ...]
    config: Any = None
    seed: int = 42

    def iterate_batches(self, size: int) -> Iterator[tuple[Tensor, list[int]]]:
        """Padded ids (sequences, columns) and lengths, the longest first within a batch."""
        # Anew for each batch: all ids of the longest set would take half a gigabyte.
        generator = torch.Generator().manual_seed(self.seed)
        vocabulary = getattr(self.config, "vocab_size", None) or IDS[1]
        bounds = (min(IDS[0], vocabulary - 1), min(IDS[1], vocabulary))
        pad, columns = getattr(self.config, "pad_token_id", None) or 0, torch.arange(self.longest)
        for start in range(0, len(self.lengths), size):
            lengths = sorted(self.lengths[start : start + size], reverse=True)
            ids = torch.randint(*bounds, (len(lengths), self.longest), generator=generator)
            yield ids.masked_fill(columns >= torch.tensor(lengths)[:, None], pad), lengths

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
    """The seconds of a run over a set, and what disturbed it.

    `moving` are those of transfers, which are in `seconds` if the clock does not wait; `total` those of all
    processors, of which other processes took `others`; `joules` the energy, None where the device does not
    tell; `troubles` what else disturbed it.
    """

    seconds: float = 0.0
    moving: float = 0.0
    total: float = 0.0
    others: float = 0.0
    joules: float | None = None
    troubles: Sequence[str] = ()


def time_run(
    network: LoadedNetwork, workload: Workload, size: int, count: Callable[[int], None] = lambda _passes: None
) -> Timing:
    """Run a model over a set once, in batches of `size` sequences, and `count` each pass.

    Where its device's clock waits, transfers are apart.
    """
    device = network.device
    with watch_load(device) as timing:
        for ids, lengths in workload.iterate_batches(size):
            batch, moved = device.measure_call(partial(network.move_batch, ids, lengths))
            _, passed = device.measure_call(partial(network.run_pass, batch))
            timing.seconds += passed if device.waits else moved + passed
            timing.moving += moved if device.waits else 0.0
            count(1)
    return timing


@contextmanager
def watch_load(device: Device) -> Iterator[Timing]:
    """A timing to be filled, with what other processes did meanwhile and the energy, if the device tells."""
    timing, nvml = Timing(), _open_nvml(device.name)
    before, energy = _read_processor_times(), nvml and nvml[0].nvmlDeviceGetTotalEnergyConsumption(nvml[1])
    yield timing
    after = _read_processor_times()
    timing.total, timing.others = after[0] - before[0], after[1] - before[1]
    if nvml:
        library, handle = nvml
        timing.joules = (library.nvmlDeviceGetTotalEnergyConsumption(handle) - energy) / 1000
        troubles = {
            "throttled": library.nvmlDeviceGetCurrentClocksThrottleReasons(handle) & 0xE8,
            "other processes on it": len(library.nvmlDeviceGetComputeRunningProcesses(handle)) > 1,
        }
        timing.troubles = [text for text, holds in troubles.items() if holds]


def _read_processor_times() -> tuple[float, float]:
    """The seconds of all processors, and those that other processes took of them."""
    every = psutil.cpu_times()._asdict()
    idle = every["idle"] + every.get("iowait", 0.0)
    # Guests are in the time of users as well.
    total = sum(every.values()) - every.get("guest", 0.0) - every.get("guest_nice", 0.0)
    return total, total - idle - sum(psutil.Process().cpu_times()[:2])


def _open_nvml(device: str) -> tuple[Any, Any] | None:
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


# Rounds


Run = tuple[str, str, int]
"""Engine, set and batch size."""


def measure_rounds(
    calls: Mapping[Run, Callable[[], Timing]],
    rounds: int,
    log: Path,
    begin: Callable[[Counter[Run]], None] = lambda _turns: None,
) -> dict[Run, list[Timing]]:
    """The timings of each run, one after the other in every round, and the other way round in the next.

    Args:
        calls: What takes a run once.
        rounds: How often each is taken.
        log: The file that keeps finished runs, which are not taken again.
        begin: Called before with the number of times that each will be taken now.
    """
    orders = ([*calls][::-1] if number % 2 else calls for number in range(rounds))
    turns = [(f"{number} {run}", run) for number, order in enumerate(orders) for run in order]
    finished = _read_log(log)
    begin(Counter(run for name, run in turns if name not in finished))
    timings: dict[Run, list[Timing]] = {run: [] for run in calls}
    for name, run in turns:
        timings[run].append(Timing(**_measure_once(log, name, calls[run])))
    return timings


def _measure_once(log: Path, name: str, measure: Callable[[], Any]) -> Any:
    """A value of a file by its name, which is measured and kept there if it is not there yet."""
    entries = _read_log(log)
    if name not in entries:
        files.replace(log, json.dumps({**entries, name: measure()}, default=asdict).encode())
    return _read_log(log)[name]


def _read_log(log: Path) -> dict[str, Any]:
    entries: dict[str, Any] = json.loads(log.read_text()) if log.exists() else {}
    return entries


def summarize_rounds(timings: Sequence[Timing], workload: Workload, computed: int) -> dict[str, Any]:
    """The figures of a run: medians with quartiles, and what disturbed it.

    Args:
        timings: That of each round.
        workload: The set.
        computed: The tokens that the engine computes of it.
    """
    tokens, padded = sum(workload.lengths), workload.longest * len(workload.lengths)
    rates = [tokens / timing.seconds for timing in timings]
    low, middle, high = np.percentile(rates, [25, 50, 75]).tolist()
    joules = [timing.joules for timing in timings if timing.joules is not None]
    # Over all rounds: the clocks of processors go by hundredths, and less than half a second says nothing.
    total = sum(timing.total for timing in timings)
    others = max(0.0, sum(timing.others for timing in timings) / total) if total >= 0.5 else 0.0
    troubles = sorted({trouble for timing in timings for trouble in timing.troubles})
    return {
        "main_score": middle,
        METRIC: middle,
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
        "busy": others > BUSY or bool(troubles),
        "unstable": high - low > UNSTABLE * middle,
        "troubles": troubles,
    }


# An engine


def plan_engine(engine: str, artifact: Artifact, attention: str = "") -> tuple[str, str]:
    """The engine that stands for "ours" or "padded", empty where there is none, and a note on it."""
    folder = find_backbone_folder(artifact.folder)
    network, family = has_network(folder, own_code=artifact.trust_remote_code), read_family(folder)
    if engine == "padded" and not (network and (family is None or not family.native)):
        return "padded", ""
    if not network:
        return "", "ours: the harness has no network of its own for this model"
    if attention == "eager":
        return "", f"{engine}: our network has no eager attention"
    if engine == "ours":
        return "ours", ""
    return "filled", "padded: transformers has no class for this model; our network computes the padding"


@dataclass(frozen=True, kw_only=True)
class SpeedEngine:
    """An engine of `plan_engine` for a model and sequences of up to `longest` tokens; picklable.

    `attention` is its backend in transformers' words, empty for its own; `memory` bounds the resident memory
    of a try of a batch on a CPU.
    """

    kind: str
    model: MeasuredModel
    attention: str = ""
    longest: int = 512
    memory: int = CPU_MEMORY

    def load_network(self) -> LoadedNetwork:
        """The model on its device.

        Raises:
            ModelError: The attention backend does not run here.
        """
        attention, backbone = self.attention, self._load_backbone()
        network = LoadedNetwork(model=backbone, device=Device(self.model.device), engine=self.kind)
        if attention:
            # Ours takes transformers' names as far as it has such a backend; where that cannot run it takes
            # another one, and tells it once it has run.
            if self.kind != "padded":
                attention = backbone.attention_asked = LIBRARY_NAMES.get(attention, attention)
            network.run_pass(network.move_batch(torch.ones((1, 8), dtype=torch.long), [8]))
            if network.attention != attention:
                ran = f"{network.attention} ran instead"
                raise ModelError(f"Attention by {attention} does not run here: {ran}.")
        return network

    def _load_backbone(self) -> Any:
        artifact = self.model.artifact
        if self.kind != "padded":
            return collect_backbones(self.model.load().model)[0]
        folder = find_backbone_folder(artifact.folder)
        try:
            with hide_library_output():
                backbone = AutoModel.from_pretrained(
                    str(folder), local_files_only=True, dtype=getattr(torch, self.model.dtype),
                    trust_remote_code=artifact.trust_remote_code, attn_implementation=self.attention or None,
                )  # fmt: skip
        except (ImportError, ValueError) as error:
            # transformers' ways to refuse a backend.
            if not self.attention:
                raise
            raise ModelError(f"transformers does not run {self.attention}: {error}") from error
        merge_folder_adapter(backbone, folder)
        return backbone.to(self.model.device).eval()

    def fits(self, size: int) -> bool:
        """Whether a batch fits into memory."""
        return self.measure_peak(size) is not None

    def measure_peak(self, size: int) -> int | None:
        """The bytes that the model and a pass over a batch take at most; None if they do not fit.

        Each is tried once, in a process of its own, and kept in a file.

        Raises:
            ModelError: The try failed for another reason, or too little memory is free for it.
        """
        log = self.model.work / f"{self.kind}.json"
        peak: int | None = _measure_once(log, str(size), partial(self.run_trial, size))
        return peak

    def run_trial(self, size: int) -> int | None:
        """The peak of a batch (`measure_peak`), tried now."""
        if not self.model.device.startswith("cuda") and psutil.virtual_memory().available < self.memory:
            raise ModelError(
                f"Less than {self.memory / 2**30:.0f} GB of memory are free, which a try may take.",
                hint="End other programs, and type the command again.",
            )
        process = subprocess.run(
            [sys.executable, "-m", "suites._efficiency.measuring"],
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


def _try_batch(engine: SpeedEngine, size: int, threads: int) -> int | None:
    torch.set_num_threads(threads)
    on_gpu, held = engine.model.device.startswith("cuda"), 0
    if not on_gpu:
        threading.Thread(target=_end_above, args=(engine.memory,), daemon=True).start()
    before, network = psutil.Process().memory_info().rss, engine.load_network()
    if on_gpu:
        # The weights of another engine are in memory while both are measured, and some room goes in pieces.
        device = engine.model.device
        held = torch.cuda.memory_allocated(device) + torch.cuda.mem_get_info(device)[1] // 50
    lengths, config = (engine.longest,) * size, network.model.config
    try:
        ballast = torch.empty(held, dtype=torch.uint8, device=engine.model.device)
        time_run(network, Workload(longest=engine.longest, lengths=lengths, config=config), size)
        del ballast
    except (MemoryError, RuntimeError) as error:
        if is_out_of_memory(error):
            return None
        raise
    peak = provenance.measure_peak_memory()
    return peak["device"] - held if on_gpu else peak["host"] - before


def _end_above(memory: int) -> None:
    """Kill this process once it has more resident memory."""
    process = psutil.Process()
    while process.memory_info().rss <= memory:
        time.sleep(0.02)
    process.kill()


# Tasks


def measure_speed(protocol: SpeedProtocol, task: Task, model: MeasuredModel, *, seed: int) -> Outcome:
    """Measure the engines of a task in rounds.

    Args:
        protocol: The way to measure, with the one length of the task.
        task: The task, whose splits are engines and whose subsets are sets.
        model: The model.
        seed: The seed of lengths and token ids.

    Raises:
        ModelError: No engine runs the model, or not even one sequence fits into memory.
    """
    device, (longest,), compute = Device(model.device), protocol.lengths, None
    most = min(task.limit or 8192, protocol.sequences or LARGEST_DOUBLING)
    engines, sizes, notes = _search_batches(protocol, task, model, most)
    # After all searches, and one after the other: networks fill the memory.
    loads = {name: device.measure_call(engine.load_network) for name, engine in engines.items()}
    networks = {engine: network for engine, (network, _) in loads.items()}
    for network in networks.values():
        network.device.waits = protocol.waits
    config, count = next(iter(networks.values())).model.config, protocol.sequences or most
    sets = {
        name: Workload(
            longest=longest, config=config, seed=seed,
            lengths=draw_lengths(name, longest, count, least=protocol.least, seed=seed)[: task.limit],
        )
        for name in protocol.sets
    }  # fmt: skip
    runs = {
        (engine, name, size): sets[name] if protocol.sequences else sets[name].take_first(size)
        for engine, batches in sizes.items()
        for name in task.subsets
        for size in batches
    }
    ceiling = _measure_ceiling(device, model.dtype)
    figures = _measure_runs(protocol, model, networks, runs, sets)
    # Measured on both sides of the rounds: a busy minute does not lower it.
    ceiling = max(ceiling, _measure_ceiling(device, model.dtype))
    scores: dict[str, dict[str, Any]] = {}
    # Not all files tell what their backbone computes.
    with suppress(ModelError):
        compute = read_backbone_compute(model.artifact.folder)
    for (engine, name, size), cell in figures.items():
        # Without padding.
        lengths = runs[engine, name, size].lengths
        flops = compute and float(sum(compute.count_operations(n, windows=True) for n in lengths))
        cell |= {
            "batch_size": size,
            "peak_memory_bytes": engines[engine].measure_peak(size),
            "flops": flops,
            "mfu": flops and flops / cell["seconds"] / ceiling,
            "load_seconds": loads[engine][1],
        }
        best = scores.setdefault(engine, {}).get(name, cell)
        batches = {**best.get("batches", {}), str(size): cell[METRIC]}
        scores[engine][name] = max(best, cell, key=lambda one: one[METRIC]) | {"batches": batches}
    notes += _list_marks(scores)
    if len(networks) > 1:
        notes += _compare_vectors([*networks.values()], sets[task.subsets[-1]])
    if device.name.startswith("cuda") and _open_nvml(device.name) is None:
        notes.append("nobody looked whether the GPU was throttled or shared: pynvml gives no answer")
    attention = {engine: network.attention for engine, network in networks.items()}
    return Outcome(
        # Speeds have no mean: the first engine and set stand for the task.
        main_score=next(iter(next(iter(scores.values())).values()))[METRIC],
        scores=scores,
        notes=tuple(notes),
        facts={"ceiling_flops": ceiling, "attention": attention},
    )


def _search_batches(
    protocol: SpeedProtocol, task: Task, model: MeasuredModel, most: int
) -> tuple[dict[str, SpeedEngine], dict[str, list[int]], list[str]]:
    """The engines for which a batch fits, their batches to be timed, and notes on the others."""
    notes, engines, sizes = list[str](), dict[str, SpeedEngine](), dict[str, list[int]]()
    (longest,) = protocol.lengths
    # What a try gets needs no functions of this process.
    sent = replace(model, announce=print, count=print, tell=print)
    for name in task.splits:
        kind, note = plan_engine(name, model.artifact, protocol.attention)
        notes += [note] if note else []
        if not kind:
            continue
        engine = SpeedEngine(kind=kind, model=sent, attention=protocol.attention, longest=longest)
        model.tell(f"{name}: searching the largest batch of sequences of {longest:,} tokens")
        if size := protocol.find_batch(engine.fits, most):
            engines[name] = engine
            sizes[name] = [size] if protocol.sequences else [2**n for n in range(size.bit_length())]
            # Now, before networks fill the memory: the released search ends with a batch that it did not try.
            engine.measure_peak(size)
        else:
            notes.append(f"{name}: out of memory with a batch of 1")
    if not sizes:
        raise ModelError("; ".join(notes), hint="Take shorter sequences, or a device with more memory.")
    return engines, sizes, notes


def _measure_runs(
    protocol: SpeedProtocol, model: MeasuredModel, networks: Mapping[str, LoadedNetwork],
    runs: Mapping[Run, Workload], sets: Mapping[str, Workload],
) -> dict[Run, dict[str, Any]]:  # fmt: skip
    """The figures of each run."""
    # The released script divides the variable set's tokens by the fixed set's time where padding is computed.
    stand_ins = {
        run: run if protocol.waits or networks[run[0]].engine == "ours" else (run[0], "fixed", run[2])
        for run in runs
    }
    timed = {run: runs.get(run, sets[run[1]]) for run in stand_ins.values()}
    latencies: dict[Run, dict[str, float]] = {}

    def run_set(run: Run, workload: Workload) -> Timing:
        return time_run(networks[run[0]], workload, run[2], model.count)

    def warm_up(turns: Counter[Run]) -> None:
        steps = sum(turns[run] * -(-len(workload.lengths) // run[2]) for run, workload in timed.items())
        model.announce(steps + protocol.warmup * len(timed))
        for run, workload in timed.items():
            for _ in range(protocol.warmup):
                run_set(run, workload.take_first(run[2]))
            if protocol.waits and protocol.sequences:
                latencies[run] = _measure_latency(networks[run[0]], workload, protocol.warmup)

    calls = {run: partial(run_set, run, workload) for run, workload in timed.items()}
    timings = measure_rounds(calls, protocol.rounds, model.work / "timings.json", warm_up)
    figures = {}
    for run, stand_in in stand_ins.items():
        longest, lengths = timed[stand_in].longest, timed[stand_in].lengths
        computed = sum(lengths) if networks[run[0]].engine == "ours" else longest * len(lengths)
        figures[run] = summarize_rounds(timings[stand_in], runs[run], computed) | latencies.get(run, {})
    return figures


def _measure_ceiling(device: Device, dtype: str) -> float:
    """Operations a second of a large linear layer, the best of ten: what MFU is a share of."""
    size = 8192 if device.name.startswith("cuda") else 2048
    options: dict[str, Any] = {"device": device.name, "dtype": getattr(torch, dtype)}
    layer, inputs = nn.Linear(size, size, bias=False, **options), torch.randn(size, size, **options)
    # As the engine computes its layers on a CPU.
    use_onednn(layer if device.name == "cpu" else nn.Identity())
    with torch.inference_mode():
        return 2.0 * size**3 / min(device.measure_call(partial(layer, inputs))[1] for _ in range(10))


def _measure_latency(network: LoadedNetwork, workload: Workload, warmup: int) -> dict[str, float]:
    """The seconds of one sequence alone, without padding, for which one sequence has no need."""
    singles = [replace(workload, longest=n, lengths=(n,)) for n in workload.lengths[:SINGLE]]
    seconds = [time_run(network, one, 1).seconds for one in [*singles[:warmup], *singles]]
    return _list_percentiles("latency", seconds[-len(singles) :])


def _list_percentiles(name: str, seconds: Sequence[float]) -> dict[str, float]:
    """The median and the 99th percentile."""
    return {f"{name}_p{share}": float(np.percentile(seconds, share)) for share in (50, 99)}


def _list_marks(scores: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The cells in which the device was busy, or the speed varied."""
    notes = []
    for mark, text in (("busy", "the device was busy"), ("unstable", "the speed was unstable")):
        marked = [
            f"{engine}, {name}" for engine, cells in scores.items() for name in cells if cells[name][mark]
        ]
        notes += [f"{text} in {'; '.join(marked)}: add --force to measure again"] if marked else []
    return notes


def _compare_vectors(networks: Sequence[LoadedNetwork], workload: Workload) -> list[str]:
    """A note on two engines if they differ in their vectors."""
    ids, lengths = next(workload.take_first(2).iterate_batches(2))
    first, second = (one.run_pass(one.move_batch(ids, lengths)).float().cpu() for one in networks)
    # Padding has vectors of no meaning.
    real = torch.arange(ids.shape[1]) < torch.tensor(lengths)[:, None]
    difference = float((first - second)[real].abs().max())
    if difference <= AGREEMENT:
        return []
    speeds = "their speeds are of two computations, and neither wins"
    return [f"the engines' vectors differ by {difference:.1g}: {speeds}"]


def measure_corpus(texts: Sequence[str], rounds: int, task: Task, model: MeasuredModel) -> Outcome:
    """Encode texts end to end, tokenizer included, and search among their vectors.

    The search is exact; queries are the first twelve words of the first texts, each searched alone.

    Args:
        texts: The texts.
        rounds: How often they are encoded.
        task: The task, with one split and one subset.
        model: The model.
    """
    device, run = Device(model.device), (task.splits[0], task.subsets[0], 0)
    encoder, load_seconds = device.measure_call(model.load)
    encode_texts = partial(encoder.encode, texts, role="document")
    # As a first pass, which grows a GPU's batches, and for the search.
    documents = encode_texts()

    def run_texts() -> Timing:
        with watch_load(device) as timing:
            timing.seconds = device.measure_call(encode_texts)[1]
        model.count(1)
        return timing

    log = model.work / "timings.json"
    timings = measure_rounds({run: run_texts}, rounds, log, lambda turns: model.announce(turns.total()))
    lengths = tuple(encoder.count_tokens([text], role="document") for text in texts)
    queries = encoder.encode([" ".join(text.split()[:12]) for text in texts[:SEARCHED]], role="query")
    search = partial(_search, queries, documents, encoder.encoding.similarity)
    seconds = [device.measure_call(partial(search, n))[1] for n in range(min(SEARCHED, len(texts)))]
    vectors = documents if isinstance(documents, np.ndarray) else documents.vectors
    workload = Workload(longest=max(lengths), lengths=lengths)
    cell = summarize_rounds(timings[run], workload, sum(lengths))
    cell |= {
        "texts_per_second": len(texts) / cell["seconds"],
        "load_seconds": load_seconds,
        "index_bytes": vectors.nbytes,
        **_list_percentiles("search", seconds),
    }
    scores = {run[0]: {run[1]: cell}}
    return Outcome(main_score=cell[METRIC], scores=scores, notes=tuple(_list_marks(scores)))


def _search(queries: Any, documents: Any, similarity: Similarity, number: int) -> None:
    """The texts that are found of a query, exactly: by vectors, or by those of all tokens."""
    if isinstance(documents, np.ndarray):
        query = queries[number : number + 1]
        find_top_k(query, lambda a, b: documents[a:b], len(documents), k=RANKED, similarity=similarity)
        return
    query, counts = queries.take(np.array([number])), np.diff(documents.offsets)
    list(find_maxsim_top_k(query, lambda a, b: documents.take(np.arange(a, b)), counts, k=RANKED))


if __name__ == "__main__":
    print(json.dumps(_try_batch(*pickle.load(sys.stdin.buffer))))
