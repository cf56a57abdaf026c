"""The process that trains, started by `run_training`: `-m harness.training.training_process FOLDER RANK`."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import os
import signal
import sys
import threading
import traceback
from pathlib import Path

from harness.core.errors import HarnessError
from harness.core.process import forbid_network, hold_collector
from harness.data.training.loading import write_text_hashes
from harness.training.training import STOP, STOPPED, TrainingSpec, read_spec


def _run_training_process(folder: str, rank: str) -> int:
    """Train as the spec in the folder says; returns the exit code."""
    faulthandler.enable()
    _end_with_parent()
    # The process that started this one decides when to stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: STOP.set())
    with hold_collector():
        importlib.import_module("sentence_transformers")
        spec = read_spec(Path(folder), int(rank))
    # They stay to the end: each search for garbage would look through them.
    gc.freeze()
    with forbid_network() if spec.offline else contextlib.nullcontext():
        return _train(spec)


def _train(spec: TrainingSpec) -> int:
    import torch

    if spec.threads:
        torch.set_num_threads(spec.threads)
    try:
        spec.recipe.train(spec)
        if STOP.is_set() and not spec.output.is_dir():
            return STOPPED
        if spec.rank == 0:
            write_text_hashes(spec.data, spec.output, parent=spec.backbone.folder, cache=spec.cache)
    except HarnessError as error:
        spec.log.note_error(error)
        return 1
    except Exception as error:
        spec.log.note_error(error)
        traceback.print_exc()
        return 1
    return 0


def _end_with_parent() -> None:
    """Kill the whole group when the process that started it is gone, which closes the standard input."""

    def wait() -> None:
        while os.read(0, 1024):
            pass
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=wait, name="parent", daemon=True).start()


def _exit(code: int) -> None:
    """End without Python's own finalization, in which the threads of torch.distributed now and then abort.

    By then the model and the log are on the disk; an abort would make a whole training a failed one.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _exit(_run_training_process(*sys.argv[1:]))
