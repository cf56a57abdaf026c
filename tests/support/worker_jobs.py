"""Jobs for workers in processes of their own, which import nothing heavy: each start of one costs seconds."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import DataError
from harness.core.types import Artifact
from harness.jobs.context import Event, JobContext


@dataclass(frozen=True)
class Say:
    """A job for another process: tells its process id, or does as it is told."""

    do: str = ""

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        context.emit(Event(kind="note", text=context.device))
        if self.do == "die while talking":
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
            while True:
                context.emit(Event(kind="note", text="x" * 10_000_000))
        if self.do == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.do == "stay":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            context.emit(Event(kind="note", text="nothing ends it"))
            time.sleep(60)
        if self.do == "fail":
            raise DataError("no", hint="do this")
        inputs = {
            key: {name: value.decode() for name, value in made.items()}
            for key, made in context.inputs.items()
        }
        return {"pid": json.dumps([os.getpid(), inputs]).encode()}


@dataclass(frozen=True)
class ReadEnvironment:
    """A job that tells what its process may use."""

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        return {name: os.environ[name].encode() for name in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")}


@dataclass(frozen=True)
class Greedy:
    """A job that is killed, as for lack of memory, until a batch of 64 rows has become small enough."""

    log: Path
    fits: int

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        rows = context.reduce_batch_size(64)
        with self.log.open("a") as file:
            file.write(f"{rows} ")
        if rows > self.fits:
            os.kill(os.getpid(), signal.SIGKILL)
        return {}


@dataclass(frozen=True)
class LookThenAsk:
    """A job that scores with a fake model a task which encodes more after it has seen vectors."""

    artifact: Artifact

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        from fakes import FakeEncoder, encoding, task
        from harness.jobs.jobs import _Known

        context.load_encoder = lambda *_: FakeEncoder()  # type: ignore[method-assign, assignment, return-value]
        known = _Known(context, self.artifact, encoding(), task())
        total = sum(float(known.encode([text], role="").sum()) for text in ("one", "two", "one"))
        return {"total": json.dumps([total, known.encoded.texts]).encode()}
