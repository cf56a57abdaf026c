"""Worker processes of devices that are not there, whose models are fakes."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

from fakes import FakeEncoder, gated
from harness.executors import local
from harness.jobs.context import JobContext

SERVE = local._serve


def serve(*settings: Any) -> None:
    """What a worker process does, with fake models where it has a device."""
    gate = SimpleNamespace(check_encoder=lambda *_, **__: gated(), require_sane=lambda _: None)
    sys.modules["harness.encoder.sanity"] = gate  # type: ignore[assignment]
    JobContext.load_encoder = lambda _, model, __: FakeEncoder(salt=model.key)  # type: ignore[assignment, method-assign, return-value]
    SERVE(*settings)
