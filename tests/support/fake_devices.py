"""Worker processes of devices that are not there, whose models are fakes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fakes import SlowEncoder, gated
from harness.executors import local
from harness.jobs.context import JobContext

SERVE = local._serve

LOADS, SECONDS = "FAKE_DEVICES_LOADS", "FAKE_DEVICES_SECONDS"
"""Environment variables: the file of the keys of loaded models, and the seconds that an encoding takes."""


def load(_context: JobContext, model: Any, _how: object) -> SlowEncoder:
    """A fake model, in this process or in another."""
    with Path(os.environ[LOADS]).open("a") as file:
        file.write(f"{model.key}\n")
    encoder = SlowEncoder(salt=model.key)
    encoder.seconds = float(os.environ[SECONDS])
    return encoder


def serve(*settings: Any) -> None:
    """What a worker process does, with fake models where it has a device."""
    gate = SimpleNamespace(check_encoder=lambda *_, **__: gated(), require_sane=lambda _: None)
    sys.modules["harness.encoder.sanity"] = gate  # type: ignore[assignment]
    JobContext.load_encoder = load  # type: ignore[assignment, method-assign]
    SERVE(*settings)
