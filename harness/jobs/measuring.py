"""The job of a measured task: its source loads and runs the model on a device that it holds."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from harness.core import provenance
from harness.core.encoding import Encoding
from harness.core.errors import ModelError
from harness.core.types import MeasuredModel, MeasuredSource
from harness.jobs.context import EncodedTexts, Event, JobContext, load_model
from harness.jobs.jobs import (
    ScoreJob,
    build_encoding_provenance,
    build_model_part,
    read_model_lineage,
    resolve_weights,
)


@contextmanager
def hold_device(device: str, tell: Callable[[str], None]) -> Iterator[None]:
    """Hold a device of this machine against other measurements; `tell` hears that it waits for one."""
    # In the system's own place: results and caches of two measurements may lie apart.
    # A GPU by its own name: its number is another one in a process that sees other GPUs.
    place = provenance.read_gpu_uuid(device) or device.replace(":", "-")
    name = f"encoder-harness-{os.getuid()}-{place}.lock"
    lock = FileLock(Path(tempfile.gettempdir(), name))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        tell(f"another measurement uses {device}: this one waits until it has ended")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@dataclass(frozen=True, kw_only=True)
class Measure(ScoreJob):
    """Measure a model; the output is the record. What is finished is kept in the cache until then."""

    encoding: Encoding

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        """Measure on a device that is held, and return the record of the outcome."""
        started, artifact = datetime.now(tz=UTC), resolve_weights(self.artifact, context.remote)
        source, work = self.task.source, context.cache / "measured" / self.key
        assert isinstance(source, MeasuredSource)
        context.emit(Event(kind="stage", text=f"measuring {self.task.name}"))
        # The source loads the model itself: there shall not be two in memory.
        context.forget()
        context.set_threads()
        machine = provenance.describe_machine(context.device)
        if source.per_machine and machine != self.identity["machine"]:
            raise ModelError(
                f"{context.device} is not the device that this was planned for: {machine['device']['name']}.",
                hint="Name one device: --devices cuda:0.",
            )
        load = functools.partial(load_model, artifact, self.encoding, device=context.device)
        model = MeasuredModel(
            artifact=artifact,
            dtype=self.encoding.dtype,
            encoding=self.encoding,
            device=context.device,
            load=load,
            batch_tokens=context.limits.batch_tokens,
            work=work,
            announce=lambda steps: context.emit(Event(kind="training", steps=steps)),
            count=lambda steps: context.emit(Event(kind="trained", steps=steps)),
            tell=lambda note: context.tell([note]),
        )
        with hold_device(context.device, model.tell):
            work.mkdir(parents=True, exist_ok=True)
            outcome = source.measure_model(self.task, model, seed=self.seed, data=self.data)
        context.tell(outcome.notes)
        ran = build_encoding_provenance(context, self.encoding, EncodedTexts(), outcome, started, texts=0)
        seconds = (datetime.now(tz=UTC) - started).total_seconds()
        # What the loading of an encoder left out is not told: the source has loaded the model as it needs it.
        ran["notes"] = [*outcome.notes]
        ran |= {"measured": dict(outcome.facts), "seconds": {"measure": round(seconds, 3)}}
        output = self.build_output(
            outcome,
            build_model_part(artifact, context.read_input("facts")),
            ran,
            read_model_lineage(artifact),
        )
        shutil.rmtree(work, ignore_errors=True)
        return output
