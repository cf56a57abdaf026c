"""What the benchmarks of this folder share: device, end, texts of known lengths, times and kernels."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring import in_turns, load_encoder, locate_minilm, make_model
from numpy.typing import NDArray

Lengths = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Session:
    """One call of a benchmark.

    Attributes:
        device: A torch device, "cpu" or "cuda".
        tiny: Whether models and data are so small that a CPU is done in seconds: a test of the code.
        folder: A folder for models and data, which the next benchmark uses again.
        deadline: When no other case begins, on the clock of `time.monotonic`.
    """

    device: str
    tiny: bool
    folder: Path
    deadline: float

    @property
    def on_gpu(self) -> bool:
        return self.device.startswith("cuda")

    @property
    def dtype(self) -> str:
        """That of a comparison: half precision on a GPU."""
        return "bfloat16" if self.on_gpu else "float32"

    @property
    def longest(self) -> int:
        """The most tokens of a text."""
        return 64 if self.tiny else 8192

    def choose(self, full: Any, tiny: Any) -> Any:
        """The size of a case."""
        return tiny if self.tiny else full

    def wait(self) -> None:
        """Wait until the device has done what it was given."""
        if self.on_gpu:
            torch.cuda.synchronize()

    def make_model(self, name: str) -> Path:
        """The folder of a model with random weights in a published form; tiny where the session is."""
        return make_model(name, self.folder / f"{name}{'-tiny' * self.tiny}", tiny=self.tiny)

    def load_encoder(self, folder: Path) -> Any:
        """The engine, with mean pooling."""
        return load_encoder(folder, device=self.device, dtype=self.dtype, pooling="mean", normalize=False)

    def compare(self, runs: dict[str, Callable[[], Any]], repeats: int) -> tuple[dict[str, float], Any]:
        """`measuring.in_turns` of runs that end when the device is done."""

        def run_whole(run: Callable[[], Any]) -> Any:
            result = run()
            self.wait()
            return result

        self.wait()
        return in_turns({name: partial(run_whole, run) for name, run in runs.items()}, repeats)

    def measure_seconds(self, run: Callable[[], Any], repeats: int = 1) -> float:
        """The median seconds of a run."""
        return self.compare({"run": run}, repeats)[0]["run"]

    def measure_kernel(self, run: Callable[[], Any]) -> float:
        """The median seconds of a call that only starts work on the device, warm, by the device's clock."""
        repeats = self.choose(20, 3)
        for _ in range(3):
            run()
        if not self.on_gpu:
            return self.measure_seconds(run, repeats)
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
        marks[0].record()
        for mark in marks[1:]:
            run()
            mark.record()
        self.wait()
        return statistics.median(a.elapsed_time(b) for a, b in itertools.pairwise(marks)) / 1000

    def count_kernels(self, run: Callable[[], Any]) -> tuple[float, int]:
        """By the profiler the seconds in which the device computes, and the kernels that a run starts.

        Kernels that run at the same time count once; copies do not count. On a CPU the operators of torch
        that this thread calls stand for kernels.
        """
        from torch.autograd import DeviceType
        from torch.profiler import ProfilerActivity, profile

        activity, kind = ProfilerActivity.CPU, DeviceType.CPU
        if self.on_gpu:
            activity, kind = ProfilerActivity.CUDA, DeviceType.CUDA
        with profile(activities=[activity], acc_events=True) as record:
            run()
            self.wait()
        spans = [
            (event.time_range.start, event.time_range.end)
            for event in record.events()
            if event.device_type == kind and not event.name.startswith(("Memcpy", "Memset"))
        ]
        return _sum_union(spans) / 1e6, len(spans)

    @cache  # noqa: B019 # a session lives as long as its process
    def measure_ceiling(self) -> float:
        """FLOP a second of a large product of matrices: what MFU is a share of."""
        size = self.choose(8192, 256)
        dtype = getattr(torch, self.dtype)
        left, right = (torch.randn(size, size, device=self.device, dtype=dtype) for _ in range(2))
        return 2 * size**3 / self.measure_kernel(lambda: left @ right)

    @contextmanager
    def mark_steps(self, first: int, last: int) -> Iterator[list[float]]:
        """The times at which a Trainer of transformers, ours or plain, ends two of its steps."""
        from transformers.trainer_callback import CallbackHandler

        marks: list[float] = []
        end = CallbackHandler.on_step_end

        def mark(handler: Any, args: Any, state: Any, control: Any) -> Any:
            if state.global_step in (first, last):
                self.wait()
                marks.append(time.perf_counter())
            return end(handler, args, state, control)

        CallbackHandler.on_step_end = mark  # type: ignore[method-assign]
        try:
            yield marks
        finally:
            CallbackHandler.on_step_end = end  # type: ignore[method-assign]


def _sum_union(spans: Iterable[tuple[float, float]]) -> float:
    """The length of what intervals cover.

    >>> _sum_union([(0, 3), (2, 5), (7, 8)])
    6.0
    """
    total, end = 0.0, float("-inf")
    for begin, stop in sorted(spans):
        total += max(0.0, stop - max(begin, end))
        end = max(end, stop)
    return total


# Texts


def draw_lengths(mix: str, count: int, rng: np.random.Generator) -> Lengths:
    """The tokens of texts, special ones included, 512 at most but for long ones."""
    drawn = {
        "queries": lambda: rng.poisson(8, count) + 4,
        "nli": lambda: rng.normal(25, 10, count),
        "pairs": lambda: rng.gamma(4, 65 / 4, count),
        "passages": lambda: rng.lognormal(np.log(150) - 0.18, 0.6, count),
        "512 tokens": lambda: np.full(count, 512),
        "long": lambda: rng.lognormal(np.log(4000) - 0.18, 0.6, count),
    }[mix]()
    return np.clip(np.rint(drawn), 5, 8192 if mix == "long" else 512).astype(np.int64)


@cache
def _list_words() -> NDArray[np.str_]:
    """The words that are one token of MiniLM's tokenizer."""
    from transformers import AutoTokenizer

    vocabulary = AutoTokenizer.from_pretrained(locate_minilm()).get_vocab()
    return np.array(sorted(word for word in vocabulary if word.isascii() and word.isalpha()))


def draw_texts(mix: str, count: int, seed: int = 0, *, longest: int = 8192) -> tuple[list[str], Lengths]:
    """Random words, and how many tokens they are."""
    rng = np.random.default_rng(seed)
    lengths, words = np.minimum(draw_lengths(mix, count, rng), longest), _list_words()
    drawn = words[rng.integers(len(words), size=int(lengths.sum()))]
    parts = np.split(drawn, np.cumsum(lengths)[:-1])
    # Two tokens are special ones.
    return [" ".join(part[:-2]) for part in parts], lengths


def count_flops(network: Any, lengths: Lengths) -> float:
    """The operations of a forward pass over texts of these lengths, padding and embeddings not counted.

    2 P n + 4 d n sum over layers of min(n, 2 w + 1) for a text of n tokens: P parameters of the layers, d the
    width of all heads together, w the window of a layer.
    """
    shape = network.shape
    parameters = sum(parameter.numel() for parameter in network.layers.parameters())
    windows = [shape.window(layer) for layer in range(shape.num_hidden_layers)]
    seen = sum(lengths if w is None else np.minimum(lengths, 2 * w + 1) for w in windows)
    width = shape.num_attention_heads * shape.head_dim
    return float(2 * parameters * lengths.sum() + 4 * width * (seen * lengths).sum())
