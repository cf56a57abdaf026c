"""Spans of sorted texts, cut so that a batch keeps to a budget of tokens, and who runs them."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from harness.encoder.memory import is_out_of_memory
from harness.errors import ModelError

Span = tuple[int, int]
"""Texts start to stop, in the order of falling length."""


class Queue:
    """Hands out spans of texts whose padded size keeps to a budget of tokens; safe across threads.

    Which spans there are depends on the lengths and the budget alone, not on who takes them.

    Args:
        lengths: Tokens of each text, falling, so the first of a span is its longest.
        budget: Padded tokens of a span; a longer text is a span of its own.
    """

    def __init__(self, lengths: NDArray[np.int64], budget: int) -> None:
        self.budget = budget
        self._lengths = np.maximum(lengths, 1)
        self._open: list[Span] = [(0, len(lengths))] if len(lengths) else []
        self._lock = threading.Lock()

    def take(self) -> Span | None:
        """The next span, None if there is nothing left to do."""
        with self._lock:
            if not self._open:
                return None
            start, stop = self._open.pop()
            cut = min(stop, start + max(1, self.budget // int(self._lengths[start])))
            if cut < stop:
                self._open.append((cut, stop))
            return start, cut

    def halve(self, span: Span) -> int:
        """Put back a span that did not fit, and make half its size the budget from now on.

        Returns:
            The new budget.
        """
        start, stop = span
        with self._lock:
            self.budget = min(self.budget, (stop - start) * int(self._lengths[start]) // 2)
            self._open.append(span)
            return self.budget

    def clear(self) -> None:
        """Forget all that is left."""
        with self._lock:
            self._open.clear()


def drain(queue: Queue, run: Callable[[Span], None], *, threads: int, halved: Callable[[int], None]) -> None:
    """Run every span of a queue, on that many threads with one core each; 0 is in this thread.

    A batch a core is faster than all cores on one batch, and does not stall where other
    processes hold some of the cores. A span that does not fit into memory is cut in two and run
    again; `halved` is told the new budget.

    Raises:
        ModelError: If a single text does not fit into memory.
    """
    if not threads:
        _loop(queue, run, halved)
        return
    import torch

    errors: list[BaseException] = []

    def worker() -> None:
        torch.set_num_threads(1)
        try:
            _loop(queue, run, halved)
        except BaseException as error:
            errors.append(error)
            queue.clear()

    before = torch.get_num_threads()
    workers = [threading.Thread(target=worker, daemon=True) for _ in range(threads)]
    try:
        for thread in workers:
            thread.start()
        for thread in workers:
            thread.join()
    finally:
        queue.clear()
        torch.set_num_threads(before)
    if errors:
        raise errors[0]


def _loop(queue: Queue, run: Callable[[Span], None], halved: Callable[[int], None]) -> None:
    import torch

    with torch.inference_mode():
        while (span := queue.take()) is not None:
            if _fits(run, span):
                continue
            if span[1] - span[0] == 1:
                raise ModelError(
                    "A single text does not fit into memory.",
                    hint="Give a smaller maximum length, or bfloat16 as the dtype.",
                )
            halved(queue.halve(span))


def _fits(run: Callable[[Span], None], span: Span) -> bool:
    # The error, and with it the tensors its traceback holds, is gone once this returns.
    try:
        run(span)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return False
    return True
