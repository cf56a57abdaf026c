"""Batches of texts of known lengths by a budget of tokens, which one thread or several run.

A batch is a span of texts. One that runs out of memory is halved, and the budget of those behind it with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

import numpy as np
import torch
from numpy.typing import NDArray

from harness.core.errors import ModelError

Span = tuple[int, int]
"""The indices (start, stop) of texts in the order of falling length."""


class SpanQueue:
    """A thread-safe queue of spans of at most `budget` padded tokens; a longer text has its own span.

    Spans that run at the same time have at most `at_once` padded tokens together, or there is only one.
    """

    def __init__(self, lengths: NDArray[np.int64], budget: int, at_once: int | None = None) -> None:
        self.budget = budget
        self._at_once = at_once
        self._running = 0
        self._lengths = np.maximum(lengths, 1)
        self._open: list[Span] = [(0, len(lengths))] if len(lengths) else []
        self._cleared = False
        self._changed = threading.Condition()

    def take(self) -> Span | None:
        """The next span, as soon as there is room for it; None if there is none."""
        with self._changed:
            while self._open:
                start, stop = self._open[-1]
                # Lengths fall, so every text of a span is padded to the length of its first.
                cut = min(stop, start + max(1, self.budget // int(self._lengths[start])))
                running = self._running + self._count_span_tokens((start, cut))
                # A span above `at_once` runs alone: it would wait forever for room beside others.
                if not self._running or self._at_once is None or running <= self._at_once:
                    self._open[-1:] = [(cut, stop)] if cut < stop else []
                    self._running = running
                    return start, cut
                self._changed.wait()
            return None

    def release_span(self, span: Span) -> None:
        """Give the room of a span that has run, or did not fit, to others."""
        with self._changed:
            self._running -= self._count_span_tokens(span)
            self._changed.notify_all()

    def retry_span(self, span: Span) -> int:
        """Return a span that did not fit, and set the budget to half of its size."""
        with self._changed:
            # Several threads may fail at once, each with another span: the smallest budget counts.
            self.budget = min(self.budget, self._count_span_tokens(span) // 2)
            if not self._cleared:
                self._open.append(span)
            self._changed.notify_all()
            return self.budget

    def clear(self) -> None:
        """Drop the spans that have not begun."""
        with self._changed:
            self._cleared = True
            self._open.clear()
            self._changed.notify_all()

    def wait_for_running_spans(self) -> None:
        """Return when no span runs."""
        with self._changed:
            self._changed.wait_for(lambda: not self._running)

    def _count_span_tokens(self, span: Span) -> int:
        return (span[1] - span[0]) * int(self._lengths[span[0]])


def run_spans(
    queue: SpanQueue, run: Callable[[Span], None], *, threads: int, halved: Callable[[int], None]
) -> None:
    """Run every span of a queue, on that many threads with one core each, or in this thread if 0.

    One batch per core is faster than all cores on one batch, and does not stall where other processes use
    some of the cores. A span that does not fit into memory is halved; `halved` receives the new budget.
    """
    if not threads:
        _run_open_spans(queue, run, halved)
        return

    def run_worker() -> None:
        # Else each of the threads would start torch's own on every core.
        torch.set_num_threads(1)
        try:
            _run_open_spans(queue, run, halved)
        except BaseException:
            # The other threads end after their present span; `worker.result()` below raises the error.
            queue.clear()
            raise

    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(threads)
    workers: list[Future[None]] = []
    try:
        workers += (pool.submit(run_worker) for _ in range(threads))
        wait(workers)
    finally:
        queue.clear()
        # After Ctrl-C what has begun is kept, and no thread is left where the process ends. The pool must not
        # wait itself: a `join` that Ctrl-C ends takes a living thread for a dead one. Within `submit`, Ctrl-C
        # leaves a thread that `workers` lacks.
        queue.wait_for_running_spans()
        wait(workers)
        pool.shutdown(wait=False)
        torch.set_num_threads(before)
    for worker in workers:
        worker.result()


def _run_open_spans(queue: SpanQueue, run: Callable[[Span], None], halved: Callable[[int], None]) -> None:
    with torch.inference_mode():
        while (span := queue.take()) is not None:
            try:
                fits = _try_span(run, span)
            finally:
                queue.release_span(span)
            if fits:
                continue
            if span[1] - span[0] == 1:
                raise ModelError(
                    "A single text does not fit into memory.",
                    hint="Give a smaller maximum length, or bfloat16 as the dtype.",
                )
            halved(queue.retry_span(span))


def _try_span(run: Callable[[Span], None], span: Span) -> bool:
    # The error, with the tensors in its traceback, is freed when this function returns.
    try:
        run(span)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return False
    return True


SAID = ("out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED", "Cannot allocate memory")
"""Parts of out-of-memory messages: torch's on a GPU, on a CPU, in a library on a GPU, and the system's."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, as of a forward pass with too large a batch, is for want of memory.

    >>> is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    True
    """
    return isinstance(error, MemoryError) or any(s in str(error) for s in SAID)
