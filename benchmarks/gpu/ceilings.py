"""The most that a device gives: products of matrices, copies, the start of a kernel, a wait for a number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from gpu.session import Session
from torch import nn

Row = dict[str, Any]

LINEAR = ((768, 768), (768, 2304), (768, 3072), (3072, 768), (384, 1536))
"""Inputs and outputs of the linear layers of BERT-base, and of MiniLM's widest."""


def iter_rows(session: Session) -> Iterator[Row]:
    """One figure a row, with its unit."""
    yield from _iter_products(session)
    yield from _iter_linear_layers(session)
    yield from _iter_copies(session)
    number = torch.zeros(8, device=session.device)
    count = session.choose(2000, 100)
    started = session.measure_seconds(lambda: [number.add_(1) for _ in range(count)])
    yield {"what": "start of a kernel", "shape": 8, "value": started / count * 1e6, "unit": "µs"}
    waited = session.measure_seconds(lambda: [number.sum().item() for _ in range(count // 10)])
    yield {"what": "wait for a number", "shape": 8, "value": waited / (count // 10) * 1e6, "unit": "µs"}


def _iter_products(session: Session) -> Iterator[Row]:
    size = session.choose(8192, 256)
    kinds = {"bfloat16": torch.bfloat16, "float16": torch.float16, "tf32": torch.float32}
    for name, dtype in {**(kinds if session.on_gpu else {}), "float32": torch.float32}.items():
        left, right = (torch.randn(size, size, device=session.device, dtype=dtype) for _ in range(2))
        with _allow_tf32(name == "tf32"):
            seconds = session.measure_kernel(lambda a=left, b=right: a @ b)  # type: ignore[misc]
        rate = 2 * size**3 / seconds / 1e12
        yield {"what": name, "shape": f"{size} cubed", "value": rate, "unit": "TFLOP/s"}


@contextmanager
def _allow_tf32(allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


@torch.inference_mode()
def _iter_linear_layers(session: Session) -> Iterator[Row]:
    dtype = getattr(torch, session.dtype)
    for tokens in session.choose((4096, 65_536), (64,)):
        for inputs, outputs in LINEAR:
            layer = nn.Linear(inputs, outputs, device=session.device, dtype=dtype)
            given = torch.randn(tokens, inputs, device=session.device, dtype=dtype)
            seconds = session.measure_kernel(lambda run=layer, x=given: run(x))  # type: ignore[misc]
            rate = 2 * tokens * inputs * outputs / seconds / 1e12
            shape = f"{tokens} × {inputs} × {outputs}"
            yield {"what": f"linear, {session.dtype}", "shape": shape, "value": rate, "unit": "TFLOP/s"}


def _iter_copies(session: Session) -> Iterator[Row]:
    size = session.choose(2**30, 2**20)
    there, other = (torch.zeros(size, dtype=torch.uint8, device=session.device) for _ in range(2))
    seconds = session.measure_kernel(lambda: other.copy_(there))
    yield {"what": "copy, read and written", "shape": size, "value": 2 * size / seconds / 1e9, "unit": "GB/s"}
    if session.on_gpu:
        here = torch.zeros(size // 4, dtype=torch.uint8).pin_memory()
        part = there[: size // 4]
        for what, run in (
            ("to the device, pinned", lambda: part.copy_(here, non_blocking=True)),
            ("from the device, pinned", lambda: here.copy_(part, non_blocking=True)),
        ):
            rate = len(here) / session.measure_kernel(run) / 1e9
            yield {"what": what, "shape": len(here), "value": rate, "unit": "GB/s"}
