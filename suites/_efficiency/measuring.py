"""The measurement of a task: its engines, their batches, the rounds, and the figures of each set."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from harness.core.errors import ModelError
from harness.core.types import MeasuredModel, Outcome, Task
from suites._efficiency.networks import (
    LoadedNetwork,
    build_loader,
    count_flops,
    measure_ceiling,
    plan_engine,
)
from suites._efficiency.protocol import LARGEST_DOUBLING, METRIC, SpeedProtocol
from suites._efficiency.rounds import (
    IDS,
    Device,
    Run,
    Workload,
    draw_lengths,
    measure_rounds,
    open_nvml,
    read_timings,
    summarize_rounds,
    time_run,
)
from suites._efficiency.trial import (
    Trials,
    find_doubled_batch,
    find_largest_batch,
    find_released_batch,
)

SEARCHES = {
    "bisection": find_largest_batch,
    "doubling": find_doubled_batch,
    "released": find_released_batch,
}

SINGLE = 100
"""The sequences that are run alone, for the latency."""

AGREEMENT = 1e-3
"""The difference of vectors from which engines do not compute the same."""


def measure_speed(
    protocol: SpeedProtocol, longest: int, task: Task, model: MeasuredModel, *, seed: int
) -> Outcome:
    """Measure the engines of a task in rounds.

    Args:
        protocol: The way to measure.
        longest: The tokens of the longest sequences.
        task: The task, whose splits are engines and whose subsets are sets.
        model: The model.
        seed: The seed of lengths and token ids.

    Raises:
        ModelError: No engine runs the model, or not even one sequence fits into memory.
    """
    device, most = Device(model.device), min(task.limit or 8192, protocol.sequences or LARGEST_DOUBLING)
    notes: list[str] = []
    trials: dict[str, Trials] = {}
    sizes: dict[str, list[int]] = {}
    for engine in task.splits:
        kind, note = plan_engine(engine, model.artifact)
        notes += [note] if note else []
        if not kind:
            continue
        trials[engine] = Trials(
            build=build_loader(kind, model),
            device=model.device,
            longest=longest,
            log=model.work / f"{engine}.json",
        )
        model.tell(f"{engine}: searching the largest batch of {longest:,} tokens")
        size = SEARCHES[protocol.search](trials[engine].fits, most)
        if size:
            doubled = [2**n for n in range(size.bit_length())]
            sizes[engine] = doubled if protocol.search == "doubling" else [size]
            # Now, before networks fill the memory: the released search ends with a batch that it did not try.
            trials[engine].measure_peak(size)
        else:
            notes.append(f"{engine}: out of memory with a batch of 1")
    if not sizes:
        raise ModelError("; ".join(notes), hint="Take shorter sequences, or a device with more memory.")
    networks, load_seconds = {}, {}
    for engine in sizes:
        began = time.monotonic()
        networks[engine] = trials[engine].build()
        load_seconds[engine] = time.monotonic() - began
    config, count = next(iter(networks.values())).model.config, protocol.sequences or most
    sets = {
        name: Workload(
            longest=longest,
            lengths=draw_lengths(name, longest, count, least=protocol.least, seed=seed)[: task.limit],
            vocabulary=getattr(config, "vocab_size", None) or IDS[1],
            pad=getattr(config, "pad_token_id", None) or 0,
            seed=seed,
        )
        # The released script needs the time of the fixed set for the other one.
        for name in (task.subsets if protocol.waits else protocol.sets)
    }
    ceiling = measure_ceiling(device, model.dtype)
    figures = _measure_sets(protocol, device, model, networks, sizes, sets)
    # Measured on both sides of the rounds: a busy minute does not lower it.
    ceiling = max(ceiling, measure_ceiling(device, model.dtype))
    scores: dict[str, dict[str, Any]] = {}
    for (engine, name, size), cell in figures.items():
        if name not in task.subsets:
            continue
        flops = count_flops(model.artifact.folder, sets[name].lengths[: cell["sequences"]])
        cell |= {
            "batch_size": size,
            "peak_memory_bytes": trials[engine].measure_peak(size),
            "flops": flops,
            "mfu": flops and flops / cell["seconds"] / ceiling,
            "load_seconds": load_seconds[engine],
        }
        best = scores.setdefault(engine, {}).get(name)
        curve = {**(best["batches"] if best else {}), str(size): cell[METRIC]}
        if best is None or cell[METRIC] > best[METRIC]:
            scores[engine][name] = best = cell
        best["batches"] = curve
    notes += _collect_notes(scores, networks, sets[task.subsets[-1]])
    if device.name.startswith("cuda") and open_nvml(device.name) is None:
        notes.append("nobody looked whether the GPU was throttled or shared: pynvml gives no answer")
    first = next(iter(scores.values()))
    attention = {engine: network.attention for engine, network in networks.items()}
    return Outcome(
        # Speeds have no mean: the first engine and set stand for the task.
        main_score=next(iter(first.values()))[METRIC],
        scores=scores,
        notes=tuple(notes),
        facts={"ceiling_flops": ceiling, "attention": attention},
    )


def _measure_sets(
    protocol: SpeedProtocol,
    device: Device,
    model: MeasuredModel,
    networks: Mapping[str, LoadedNetwork],
    sizes: Mapping[str, list[int]],
    sets: Mapping[str, Workload],
) -> dict[Run, dict[str, Any]]:
    """The figures of each engine, set and batch."""
    runs, workloads = {}, dict[Run, Workload]()
    for engine, batches in sizes.items():
        for name, workload in sets.items():
            # The released script divides the variable set's tokens by the fixed set's time where padding is
            # computed: it takes no run of its own.
            if not protocol.waits and networks[engine].engine != "ours" and name != "fixed":
                continue
            for size in batches:
                run = (engine, name, size)
                workloads[run] = workload if protocol.sequences else workload.take_first(size)
                runs[run] = partial(
                    time_run,
                    *(networks[engine], device, workloads[run], size),
                    waits=protocol.waits,
                    count=model.count,
                )
    steps = {run: -(-len(workload.lengths) // run[2]) for run, workload in workloads.items()}
    log = model.work / "rounds.jsonl"
    finished = sum(steps.get(run, 0) for _, run in read_timings(log))
    model.announce(protocol.rounds * sum(steps.values()) + protocol.warmup * len(runs) - finished)
    latencies: dict[Run, dict[str, float]] = {}
    for (engine, name, size), workload in workloads.items():
        network = networks[engine]
        for _ in range(protocol.warmup):
            time_run(network, device, workload.take_first(size), size, count=model.count)
        if protocol.waits and protocol.sequences:
            # Without padding, for which one sequence has no need.
            singles = [replace(workload, longest=n, lengths=(n,)) for n in workload.lengths[:SINGLE]]
            for single in singles[: protocol.warmup]:
                time_run(network, device, single, 1)
            seconds = [time_run(network, device, single, 1).steps[0] for single in singles]
            latencies[engine, name, size] = {
                f"latency_p{share}": float(np.percentile(seconds, share)) for share in (50, 99)
            }
    timings = measure_rounds(runs, protocol.rounds, log)
    figures = {}
    for run, workload in workloads.items():
        computed = sum(workload.lengths)
        if networks[run[0]].engine != "ours":
            computed = workload.longest * len(workload.lengths)
        figures[run] = summarize_rounds(timings[run], workload, computed)
        figures[run] |= latencies.get(run, {})
        others = set(sets) - {name for engine, name, _ in workloads if engine == run[0]}
        figures |= {
            (run[0], name, run[2]): summarize_rounds(timings[run], sets[name], computed) for name in others
        }
    return figures


def _collect_notes(
    scores: Mapping[str, Mapping[str, Any]], networks: Mapping[str, LoadedNetwork], workload: Workload
) -> list[str]:
    """What a reader must know: a busy device, speeds that vary, engines that differ in their vectors."""
    notes = []
    for mark, text in (("busy", "the device was busy"), ("unstable", "the speed was unstable")):
        marked = [
            f"{engine}, {name}" for engine, cells in scores.items() for name in cells if cells[name][mark]
        ]
        notes += [f"{text} in {'; '.join(marked)}: add --force to measure again"] if marked else []
    if len(networks) > 1:
        ids, lengths = next(workload.take_first(2).iterate_batches(2))
        first, second = (
            network.run_pass(network.move_batch(ids, lengths)).float().cpu() for network in networks.values()
        )
        # Padding has vectors of no meaning.
        real = torch.arange(ids.shape[1]) < torch.tensor(lengths)[:, None]
        difference = float((first - second)[real].abs().max())
        if not difference <= AGREEMENT:
            notes.append(
                f"the engines' vectors differ by {difference:.1g}: their speeds are of two computations, "
                "and neither wins"
            )
    return notes
