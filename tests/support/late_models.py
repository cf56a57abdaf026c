"""Tiny PyLate models with random weights, saved by PyLate itself."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest

import tiny

BODIES = ("bert", "roberta", "modernbert")
"""Families whose tiny networks are the bodies."""


def save(target: Path, body: str = "bert", *, dimension: int = 16, **settings: Any) -> Path:
    """A PyLate folder of a family's tiny network, with settings of `pylate.models.ColBERT`."""
    import torch

    backbone = tiny.folder(tiny.families()[body], target.with_name(f"{target.name}-body"))
    torch.manual_seed(1)
    given = {"query_length": 12, "document_length": 20, **settings}
    with contextlib.redirect_stderr(io.StringIO()):
        model = _colbert(str(backbone), embedding_size=dimension, **given)
        model.save_pretrained(str(target))
    return target


def library(folder: Path) -> Any:
    """The folder as PyLate opens it."""
    with contextlib.redirect_stderr(io.StringIO()):
        return _colbert(str(folder))


def _colbert(*args: Any, **settings: Any) -> Any:
    pytest.importorskip("pylate")
    from pylate import models

    return models.ColBERT(*args, device="cpu", **settings)
