"""Worker processes of devices that are not there, whose models are fakes."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fakes import SlowEncoder, gated
from harness.executors import local
from harness.jobs.context import JobContext

SERVE = local._serve

LOADS, SECONDS, RECORDS = "FAKE_DEVICES_LOADS", "FAKE_DEVICES_SECONDS", "FAKE_DEVICES_RECORDS"
"""Environment variables: the file of the keys of loaded models, the seconds that an encoding takes, and the
folder in which each encoding after the first waits for one more record."""


class PacedEncoder(SlowEncoder):
    """Each encoding ends after the records of the encodings before it are there."""

    def encode(self, *args: Any, **kwargs: Any) -> Any:
        until = time.monotonic() + 60
        while len([*Path(os.environ[RECORDS]).glob("*/*/*.json")]) < len(self.calls):
            assert time.monotonic() < until, "nothing is scored beside the device"
            time.sleep(0.02)
        return super().encode(*args, **kwargs)


def load(_context: JobContext, model: Any, _how: object) -> SlowEncoder:
    """A fake model, in this process or in another."""
    with Path(os.environ[LOADS]).open("a") as file:
        file.write(f"{model.key}\n")
    encoder = (PacedEncoder if os.environ.get(RECORDS) else SlowEncoder)(salt=model.key)
    encoder.seconds = float(os.environ[SECONDS])
    return encoder


def serve(*settings: Any) -> None:
    """What a worker process does, with fake models where it has a device."""
    gate = SimpleNamespace(check_encoder=lambda *_, **__: gated(), require_sane=lambda _: None)
    sys.modules["harness.encoder.sanity"] = gate  # type: ignore[assignment]
    JobContext.load_encoder = load  # type: ignore[assignment, method-assign]
    SERVE(*settings)
