"""The measurement of a task: a model's engines, their batches, the rounds, and the figures of each set."""

from __future__ import annotations

import time
from collections import Counter
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
from harness.encoder.folder.modules import find_backbone_folder
from harness.encoder.library_load import hide_library_output
from harness.encoder.network.pretrained import merge_folder_adapter
from harness.results.compute import read_backbone_compute
from harness.search.exact import find_top_k
from harness.search.maxsim import find_maxsim_top_k
from suites._efficiency.largest_batch import (
    Trials,
    find_doubled_batch,
    find_largest_batch,
    find_released_batch,
)
from suites._efficiency.protocol import LARGEST_DOUBLING, METRIC, SpeedProtocol
from suites._efficiency.timing import (
    IDS,
    Device,
    LoadedNetwork,
    Run,
    Timing,
    Workload,
    draw_lengths,
    format_turn,
    measure_rounds,
    open_nvml,
    read_log,
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
    # Ours takes transformers' names as far as it has such a backend.
    backend = attention if engine == "padded" else LIBRARY_NAMES.get(attention, attention)
    if engine == "padded":
        folder = find_backbone_folder(artifact.folder)
        options: dict[str, Any] = {
            "dtype": getattr(torch, dtype),
            "trust_remote_code": artifact.trust_remote_code,
            **({"attn_implementation": attention} if attention else {}),
        }
        try:
            with hide_library_output():
                backbone: Any = AutoModel.from_pretrained(str(folder), local_files_only=True, **options)
        except (ImportError, ValueError) as error:
            # transformers' ways to refuse a backend.
            if not attention:
                raise
            raise ModelError(f"transformers does not run {attention}: {error}") from error
        merge_folder_adapter(backbone, folder)
        backbone = backbone.to(device).eval()
    else:
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


def count_flops(folder: Path, lengths: Sequence[int]) -> float | None:
    """The operations of a forward pass over sequences, without padding; None where the files do not tell."""
    try:
        compute = read_backbone_compute(folder)
    except ModelError:
        return None
    return float(
        sum(n * compute.count_operations(size, windows=True) for size, n in Counter(lengths).items())
    )


def measure_ceiling(device: Device, dtype: Dtype) -> float:
    """Operations a second of a large linear layer, the best of ten: what MFU is a share of."""
    size = 8192 if device.name.startswith("cuda") else 2048
    layer = nn.Linear(size, size, bias=False, device=device.name, dtype=getattr(torch, dtype))
    # As the engine computes its layers on a CPU.
    use_onednn(layer if device.name == "cpu" else nn.Identity())
    inputs = torch.randn(size, size, device=device.name, dtype=getattr(torch, dtype))
    seconds = []
    with torch.inference_mode():
        for _ in range(10):
            device.wait()
            began = device.read_clock()
            layer(inputs)
            device.wait()
            seconds.append(device.read_clock() - began)
    return 2.0 * size**3 / min(seconds)


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
    log = model.work / "rounds.json"
    turns = read_log(log)
    finished = sum(steps[run] for n in range(protocol.rounds) for run in runs if format_turn(n, run) in turns)
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
    device, began = Device(model.device), time.monotonic()
    encoder = model.load()
    load_seconds, log = time.monotonic() - began, model.work / "rounds.json"
    model.announce(protocol.rounds - len(read_log(log)))

    def encode_texts() -> Timing:
        with watch_load(device) as seen:
            began = device.read_clock()
            encoder.encode(texts, role="document")
            device.wait()
            ended = device.read_clock()
        model.count(1)
        return Timing(steps=(ended - began,), moving=0.0, **seen)

    # As a first pass, which grows a GPU's batches, and for the search.
    documents = encoder.encode(texts, role="document")
    run = (task.splits[0], task.subsets[0], 0)
    timings = measure_rounds({run: encode_texts}, protocol.rounds, log)[run]
    lengths = tuple(encoder.count_tokens([text], role="document") for text in texts)
    workload = Workload(longest=max(lengths), lengths=lengths)
    cell = summarize_rounds(timings, workload, sum(lengths))
    queries = encoder.encode([" ".join(text.split()[:12]) for text in texts[:SEARCHED]], role="query")
    seconds = []
    for number in range(min(SEARCHED, len(texts))):
        began = device.read_clock()
        _search(queries, number, documents, encoder.encoding.similarity)
        seconds.append(device.read_clock() - began)
    vectors = documents if isinstance(documents, np.ndarray) else documents.vectors
    cell |= {
        "texts_per_second": len(texts) / cell["seconds"],
        "load_seconds": load_seconds,
        "index_bytes": vectors.nbytes,
        **{f"search_p{share}": float(np.percentile(seconds, share)) for share in (50, 99)},
    }
    scores = {run[0]: {run[1]: cell}}
    return Outcome(main_score=cell[METRIC], scores=scores, notes=tuple(_list_marks(scores)))


def _search(queries: Any, number: int, documents: Any, similarity: Similarity) -> None:
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


def _collect_notes(
    scores: Mapping[str, Mapping[str, Any]], networks: Mapping[str, LoadedNetwork], workload: Workload
) -> list[str]:
    """What a reader must know: a busy device, speeds that vary, engines that differ in their vectors."""
    notes = _list_marks(scores)
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
