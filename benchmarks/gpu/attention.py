"""The backends of attention, forwards and backwards, by the lengths of the texts of a batch.

Rates count 4 d n² for a text of n tokens forwards and 2.5 times that backwards, as FlashAttention's authors
do, a window's tokens only. Tensors have the 12 heads of 64 of BERT-base, in half precision on a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from gpu.session import Lengths, Session, draw_lengths

from harness.encoder.attention.interface import Needs
from harness.encoder.attention.kernels import BACKENDS

Row = dict[str, Any]

HEADS, WIDTH, WINDOW = 12, 64, 64
MIXES = {"queries": 4096, "passages": 400, "512 tokens": 128, "long": 16}
"""Texts in a batch, of some 60,000 tokens."""

LAYERS = {
    "plain": Needs(head_dim=WIDTH),
    "window": Needs(head_dim=WIDTH, window=WINDOW),
    "dropout": Needs(head_dim=WIDTH, dropout=0.1),
    "ALiBi": Needs(head_dim=WIDTH, slopes=tuple(2.0 ** -(n % 8 + 1) for n in range(HEADS))),
}


def iter_rows(session: Session) -> Iterator[Row]:
    """A row for each backend that can run a layer, and a reason for those that cannot."""
    device, dtype = torch.device(session.device), getattr(torch, session.dtype)
    for layer, needs in LAYERS.items():
        for name, backend in BACKENDS.items():
            refusal = backend.explain_refusal(device, dtype, needs)
            if refusal is not None:
                yield {"layer": layer, "backend": name, "note": refusal}
                continue
            for mix, count in MIXES.items():
                drawn = draw_lengths(mix, session.choose(count, 2), np.random.default_rng(0))
                lengths = np.sort(np.minimum(drawn, session.longest))[::-1]
                trained = replace(needs, gradients=True)
                trains = backend.explain_refusal(device, dtype, trained) is None
                figures = _time(session, name, needs, trained if trains else None, lengths)
                yield {"layer": layer, "backend": name, "lengths": mix, **figures}


def _time(session: Session, name: str, needs: Needs, trained: Needs | None, lengths: Lengths) -> Row:
    """The figures of a forward pass, and of both passes where the backend has `trained`, with gradients."""
    torch.manual_seed(0)
    shape = (3, int(lengths.sum()), HEADS, WIDTH)
    drawn = torch.randn(shape, device=session.device, dtype=getattr(torch, session.dtype))
    query, key, value = (part.clone().requires_grad_() for part in drawn)
    device = torch.device(session.device)
    layout = BACKENDS[name].build_layout(lengths.tolist(), None, device)
    attend = partial(layout.compute_attention, query, key, value)
    direction = torch.ones_like(query)

    def run_both() -> None:
        torch.autograd.grad(attend(trained), (query, key, value), direction)

    with torch.no_grad():
        forward = session.measure_kernel(partial(attend, needs))
        kernels = session.count_kernels(partial(attend, needs))[1]
    both = session.measure_kernel(run_both) if trained else None
    seen = lengths if needs.window is None else np.minimum(lengths, 2 * needs.window + 1)
    flops = 4.0 * HEADS * WIDTH * float((seen * lengths).sum())
    return {
        "tokens": int(lengths.sum()),
        "forward ms": 1000 * forward,
        "forward TFLOP/s": flops / forward / 1e12,
        **({"both ms": 1000 * both, "both TFLOP/s": 3.5 * flops / both / 1e12} if both else {}),
        "kernels forward": kernels,
    }
