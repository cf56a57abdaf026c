"""Encoding by the engine beside sentence-transformers with SDPA: tokens a second, MFU, and its stages.

The library's batch is the fastest of three. MFU is the share of the rate of a product of matrices on this
device: FLOPs (`count_flops` in session.py) by seconds, of the whole and of the forward passes alone. `busy`
are the seconds of kernels in all forward passes, as a share of the whole. Stages, in ms, are each measured
alone: tokenizing, the arrays of batches, their copy to the device, the passes, and the vectors' way back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from gpu.session import Session, count_flops, draw_texts
from measuring import load_library

from harness.encoder.engine import embed_features

Row = dict[str, Any]

COUNTS = {"passages": 8192, "nli": 16_384, "queries": 16_384, "512 tokens": 1024, "long": 160}
CASES = {
    "bert-base": ("passages", "nli", "queries", "512 tokens"),
    "modernbert-base": ("passages", "nli", "queries", "long"),
}
BATCHES, REPEATS = (32, 128, 256), 3

BARS = {"passages": 5.0, "nli": 5.0, "queries": 5.0, "long": 3.0}
"""How many times the library's rate is asked on a GPU."""

FORWARD_BAR, WHOLE_BAR = 0.55, 0.40
"""The MFU that is asked for passages: of the forward passes, and of the whole with 16 cores."""


def iter_rows(session: Session) -> Iterator[Row]:
    """A row for each model and kind of texts."""
    for name, mixes in CASES.items():
        folder = session.make_model(name)
        encoder = session.load_encoder(folder)
        library = load_library(folder, device=session.device, dtype=session.dtype)
        for mix in mixes:
            texts, lengths = draw_texts(mix, session.choose(COUNTS[mix], 8), longest=session.longest)
            lengths = np.minimum(lengths, encoder.model.max_seq_length)
            flops = count_flops(encoder.model[0].auto_model, lengths) / session.measure_ceiling()
            speed = _compare(session, encoder, library, texts)
            stages = _split_stages(session, encoder, texts)
            tokens = int(lengths.sum())
            assert encoder.count_tokens(texts) == tokens
            yield {
                "model": name,
                "texts": mix,
                "mean tokens": tokens / len(texts),
                "ours tokens/s": tokens / speed["ours"],
                "library tokens/s": tokens / speed["library"],
                "ratio": speed["library"] / speed["ours"],
                "library's batch": speed["batch"],
                "cosine": speed["cosine"],
                "MFU": flops / speed["ours"],
                "MFU library": flops / speed["library"],
                "MFU forward": flops * 1000 / stages["forward"],
                "busy": stages.pop("busy seconds") / speed["ours"],
                "whole": speed["ours"] * 1000,
                **stages,
            }


def find_missed(row: Row) -> list[str]:
    """What a row on a GPU falls short of."""
    bars = {"ratio": BARS.get(row["texts"], 0.0)}
    if row["texts"] == "passages":
        bars |= {"MFU forward": FORWARD_BAR, "MFU": WHOLE_BAR}
    return [
        f"{row['model']}, {row['texts']}: {name} {row[name]:.2f}, not {bar}"
        for name, bar in bars.items()
        if row[name] < bar
    ]


def _compare(session: Session, encoder: Any, library: Any, texts: list[str]) -> dict[str, float]:
    """Median seconds of both sides, the library's best batch, and the smallest cosine of their vectors."""

    def run_library(given: list[str], batch: int) -> Any:
        return library.encode(given, batch_size=batch, show_progress_bar=False)

    sample = texts[:: session.choose(4, 1)]
    encoder.encode(sample)
    run_library(sample[:64], BATCHES[0])
    tried, _ = session.compare({str(size): partial(run_library, sample, size) for size in BATCHES}, 1)
    batch = int(min(tried, key=tried.__getitem__))
    runs: dict[str, Callable[[], Any]] = {
        "ours": lambda: encoder.encode(texts),
        "library": lambda: run_library(texts, batch),
    }
    seconds, vectors = session.compare(runs, session.choose(REPEATS, 1))
    ours, theirs = (
        given / np.linalg.norm(given, axis=1, keepdims=True)
        for given in (np.float32(vectors["ours"]), np.float32(vectors["library"]))
    )
    return {**seconds, "batch": batch, "cosine": float((ours * theirs).sum(axis=1).min())}


def _split_stages(session: Session, encoder: Any, texts: list[str]) -> Row:
    """The milliseconds of each stage alone, the seconds in which the device computes, and its kernels."""
    batches, inputs = _record_batches(encoder, texts), encoder._prepare_inputs(texts, "", "")
    here = [{name: _move(value, "cpu") for name, value in batch.items()} for batch in batches]

    def run_passes() -> list[torch.Tensor]:
        with torch.inference_mode():
            return [embed_features(encoder.model, dict(batch)) for batch in batches]

    def copy_to_device() -> None:
        for batch in here:
            for value in batch.values():
                _move(value, session.device)

    vectors = run_passes()
    stages = {
        "tokenize": lambda: encoder.count_tokens(texts),
        "arrays": partial(_build_arrays, inputs, [len(part) for part in vectors]),
        "copy": copy_to_device,
        "forward": run_passes,
        "back": lambda: [part.cpu().numpy().copy() for part in vectors],
    }
    seconds, _ = session.compare(stages, session.choose(REPEATS, 1))
    busy, kernels = session.count_kernels(run_passes)
    return {
        **{name: 1000 * taken for name, taken in seconds.items()},
        "busy seconds": busy,
        "batches": len(batches),
        "kernels a batch": kernels / len(batches),
    }


def _record_batches(encoder: Any, texts: list[str]) -> list[dict[str, Any]]:
    """What the network is given for each batch, on its device."""
    batches: list[dict[str, Any]] = []
    hook = encoder.model[0].register_forward_pre_hook(lambda _module, args: batches.append(dict(args[0])))
    encoder.encode(texts)
    hook.remove()
    return batches


def _build_arrays(inputs: Any, sizes: Sequence[int]) -> None:
    """Build the features of batches of so many texts."""
    stops = np.cumsum(sizes)
    for stop, size in zip(stops, sizes, strict=True):
        inputs.build_features((int(stop - size), int(stop)))


def _move(value: Any, device: str) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return (value if device == "cpu" else value.pin_memory()).to(device)
