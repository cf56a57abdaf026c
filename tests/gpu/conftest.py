"""Tests on a GPU where there is one, and as far as a CPU can, among the slow tests, on a CPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from devices import DEVICES


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    return torch.device(request.param)


@pytest.fixture(autouse=True)
def few_compilations() -> Iterator[None]:
    """Each test compiles for itself, so that none runs into the limit."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()
