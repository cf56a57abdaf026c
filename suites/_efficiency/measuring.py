"""The measurement of a task: a model's engines, their batches, the rounds, and the figures of each set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import AutoModel

from harness.core.errors import ModelError
from harness.core.types import Artifact, Dtype, MeasuredModel, Outcome, Similarity, Task
from harness.encoder.attention.kernels import LIBRARY_NAMES
from harness.encoder.backbones import has_network, read_family
from harness.encoder.engine import collect_backbones, use_onednn
from harness.encoder.folder.modules_and_pooling import find_backbone_folder
from harness.encoder.library_load import hide_library_output
from harness.encoder.network.pretrained import merge_folder_adapter
from harness.results.cost.compute import read_backbone_compute
from harness.search.exact import find_top_k
from harness.search.maxsim import find_maxsim_top_k
from suites._efficiency.largest_batch import (
    Trials,
    find_doubled_batch,
    find_largest_batch,
    find_released_batch,
)
from suites._efficiency.protocol import LARGEST_DOUBLING, METRIC, SpeedProtocol
from suites._efficiency.rounds import (
    IDS,
    Device,
    LoadedNetwork,
    Run,
    Timing,
    Workload,
    count_open_turns,
    draw_lengths,
    measure_rounds,
    open_nvml,
    summarize_rounds,
    time_run,
    watch_load,
)


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


def build_loader(engine: str, model: MeasuredModel, attention: str = "") -> Callable[[], LoadedNetwork]:
    """A picklable function that loads a model with an engine of `plan_engine` and an attention backend."""
    return partial(_load, engine, attention, model.load, model.artifact, model.dtype, model.device)


def _load(
    engine: str, attention: str, load: Callable[[], Any], artifact: Artifact, dtype: Dtype, device: str
) -> LoadedNetwork:
    if engine == "padded":
        backend = attention
        backbone: Any = _load_library_backbone(attention, artifact, dtype).to(device).eval()
    else:
        # Ours takes transformers' names as far as it has such a backend.
        backend = LIBRARY_NAMES.get(attention, attention)
        backbone = collect_backbones(load().model)[0]
        if attention:
            backbone.attention_asked = backend
    network = LoadedNetwork(model=backbone, device=device, engine=engine)
    if attention:
        # Ours takes another backend where one cannot run, and tells it once it has run.
        network.run_pass(network.move_batch(torch.ones((1, 8), dtype=torch.long), [8]))
        if network.attention != backend:
            raise ModelError(f"Attention by {backend} does not run here: {network.attention} ran instead.")
    return network


def _load_library_backbone(attention: str, artifact: Artifact, dtype: Dtype) -> Any:
    folder = find_backbone_folder(artifact.folder)
    try:
        with hide_library_output():
            backbone = AutoModel.from_pretrained(
                str(folder),
                local_files_only=True,
                dtype=getattr(torch, dtype),
                trust_remote_code=artifact.trust_remote_code,
                attn_implementation=attention or None,
            )
    except (ImportError, ValueError) as error:
        # transformers' ways to refuse a backend.
        if not attention:
            raise
        raise ModelError(f"transformers does not run {attention}: {error}") from error
    merge_folder_adapter(backbone, folder)
    return backbone


def count_flops(folder: Path, lengths: Sequence[int]) -> float | None:
    """The operations of a forward pass over sequences, without padding; None where the files do not tell."""
    try:
        compute = read_backbone_compute(folder)
    except ModelError:
        return None
    return float(sum(compute.count_operations(length, windows=True) for length in lengths))


def measure_ceiling(device: Device, dtype: Dtype) -> float:
    """Operations a second of a large linear layer, the best of ten: what MFU is a share of."""
    size = 8192 if device.name.startswith("cuda") else 2048
    options: dict[str, Any] = {"device": device.name, "dtype": getattr(torch, dtype)}
    layer, inputs = nn.Linear(size, size, bias=False, **options), torch.randn(size, size, **options)
    # As the engine computes its layers on a CPU.
    use_onednn(layer if device.name == "cpu" else nn.Identity())
    with torch.inference_mode():
        return 2.0 * size**3 / min(device.measure_call(partial(layer, inputs))[1] for _ in range(10))


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
    trials, sizes, notes = _search_batches(protocol, longest, task, model, most)
    # After all searches, and one after the other: networks fill the memory.
    loads = {engine: device.measure_call(trials[engine].build) for engine in sizes}
    networks = {engine: network for engine, (network, _) in loads.items()}
    config = next(iter(networks.values())).model.config
    sets = {
        name: Workload(
            longest=longest,
            lengths=draw_lengths(name, longest, protocol.sequences or most, least=protocol.least, seed=seed)[
                : task.limit
            ],
            vocabulary=getattr(config, "vocab_size", None) or IDS[1],
            pad=getattr(config, "pad_token_id", None) or 0,
            seed=seed,
        )
        for name in protocol.sets
    }
    runs = {
        (engine, name, size): sets[name] if protocol.sequences else sets[name].take_first(size)
        for engine, batches in sizes.items()
        for name in task.subsets
        for size in batches
    }
    ceiling = measure_ceiling(device, model.dtype)
    figures = _measure_runs(protocol, device, model, networks, runs, sets)
    # Measured on both sides of the rounds: a busy minute does not lower it.
    ceiling = max(ceiling, measure_ceiling(device, model.dtype))
    scores: dict[str, dict[str, Any]] = {}
    for (engine, name, size), cell in figures.items():
        flops = count_flops(model.artifact.folder, runs[engine, name, size].lengths)
        cell |= {
            "batch_size": size,
            "peak_memory_bytes": trials[engine].measure_peak(size),
            "flops": flops,
            "mfu": flops and flops / cell["seconds"] / ceiling,
            "load_seconds": loads[engine][1],
        }
        best = scores.setdefault(engine, {}).get(name)
        curve = {**(best["batches"] if best else {}), str(size): cell[METRIC]}
        if best is None or cell[METRIC] > best[METRIC]:
            scores[engine][name] = best = cell
        best["batches"] = curve
    notes += _list_marks(scores)
    if len(networks) > 1:
        notes += _compare_vectors([*networks.values()], sets[task.subsets[-1]])
    if device.name.startswith("cuda") and open_nvml(device.name) is None:
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
    protocol: SpeedProtocol, longest: int, task: Task, model: MeasuredModel, most: int
) -> tuple[dict[str, Trials], dict[str, list[int]], list[str]]:
    """The tries of each engine, its batches to be timed where one fits, and notes on engines without any."""
    notes: list[str] = []
    trials: dict[str, Trials] = {}
    sizes: dict[str, list[int]] = {}
    for engine in task.splits:
        kind, note = plan_engine(engine, model.artifact, protocol.attention)
        notes += [note] if note else []
        if not kind:
            continue
        trials[engine] = Trials(
            build=build_loader(kind, model, protocol.attention),
            device=model.device,
            longest=longest,
            log=model.work / f"{engine}.json",
        )
        model.tell(f"{engine}: searching the largest batch of sequences of {longest:,} tokens")
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
    return trials, sizes, notes


def _measure_runs(
    protocol: SpeedProtocol,
    device: Device,
    model: MeasuredModel,
    networks: Mapping[str, LoadedNetwork],
    runs: Mapping[Run, Workload],
    sets: Mapping[str, Workload],
) -> dict[Run, dict[str, Any]]:
    """The figures of each run."""
    # The released script divides the variable set's tokens by the fixed set's time where padding is computed.
    stand_ins = {
        run: run if protocol.waits or networks[run[0]].engine == "ours" else (run[0], "fixed", run[2])
        for run in runs
    }
    timed = {other: runs.get(other, sets[other[1]]) for other in stand_ins.values()}

    def run_set(run: Run, workload: Workload, size: int) -> Timing:
        network = networks[run[0]]
        return time_run(network, device, workload, size, waits=protocol.waits, count=model.count)

    calls = {run: partial(run_set, run, workload, run[2]) for run, workload in timed.items()}
    log = model.work / "rounds.json"
    turns = count_open_turns(calls, protocol.rounds, log)
    steps = sum(turns[run] * -(-len(workload.lengths) // run[2]) for run, workload in timed.items())
    model.announce(steps + protocol.warmup * len(timed))
    latencies: dict[Run, dict[str, float]] = {}
    for run, workload in timed.items():
        for _ in range(protocol.warmup):
            run_set(run, workload.take_first(run[2]), run[2])
        if protocol.waits and protocol.sequences:
            latencies[run] = _measure_latency(networks[run[0]], device, workload, protocol.warmup)
    timings = measure_rounds(calls, protocol.rounds, log)
    figures = {}
    for run, other in stand_ins.items():
        workload = timed[other]
        padding = networks[run[0]].engine != "ours"
        computed = workload.longest * len(workload.lengths) if padding else sum(workload.lengths)
        figures[run] = summarize_rounds(timings[other], runs[run], computed) | latencies.get(run, {})
    return figures


def _measure_latency(
    network: LoadedNetwork, device: Device, workload: Workload, warmup: int
) -> dict[str, float]:
    """The seconds of one sequence alone, without padding, for which one sequence has no need."""
    singles = [replace(workload, longest=n, lengths=(n,)) for n in workload.lengths[:SINGLE]]
    seconds = [time_run(network, device, one, 1).steps[0] for one in [*singles[:warmup], *singles]]
    return _list_percentiles("latency", seconds[-len(singles) :])


def _list_percentiles(name: str, seconds: Sequence[float]) -> dict[str, float]:
    """The median and the 99th percentile."""
    return {f"{name}_p{share}": float(np.percentile(seconds, share)) for share in (50, 99)}


SEARCHED, FOUND = 100, 100
"""The queries that are searched one by one, and the texts that are found of each."""


def measure_corpus(
    texts: Sequence[str], protocol: SpeedProtocol, task: Task, model: MeasuredModel
) -> Outcome:
    """Encode texts end to end, tokenizer included, and search among their vectors.

    The search is exact; queries are the first twelve words of the first texts, each searched alone.

    Args:
        texts: The texts, which are encoded in every round.
        protocol: The way to measure, of which rounds alone count.
        task: The task, with one split and one subset.
        model: The model.
    """
    device, log = Device(model.device), model.work / "rounds.json"
    encoder, load_seconds = device.measure_call(model.load)
    encode_texts = partial(encoder.encode, texts, role="document")

    def run_texts() -> Timing:
        with watch_load(device) as timing:
            timing.steps.append(device.measure_call(encode_texts)[1])
        model.count(1)
        return timing

    run = (task.splits[0], task.subsets[0], 0)
    model.announce(count_open_turns([run], protocol.rounds, log).total())
    # As a first pass, which grows a GPU's batches, and for the search.
    documents = encode_texts()
    timings = measure_rounds({run: run_texts}, protocol.rounds, log)[run]
    lengths = tuple(encoder.count_tokens([text], role="document") for text in texts)
    workload = Workload(longest=max(lengths), lengths=lengths)
    queries = encoder.encode([" ".join(text.split()[:12]) for text in texts[:SEARCHED]], role="query")
    search = partial(_search, queries, documents, encoder.encoding.similarity)
    seconds = [device.measure_call(partial(search, n))[1] for n in range(min(SEARCHED, len(texts)))]
    vectors = documents if isinstance(documents, np.ndarray) else documents.vectors
    cell = summarize_rounds(timings, workload, sum(lengths))
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
        find_top_k(query, lambda a, b: documents[a:b], len(documents), k=FOUND, similarity=similarity)
        return
    query, counts = queries.take(np.array([number])), np.diff(documents.offsets)
    list(find_maxsim_top_k(query, lambda a, b: documents.take(np.arange(a, b)), counts, k=FOUND))


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
