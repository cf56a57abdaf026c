"""Training as a job: a process group of its own, whose progress and outcome are read from files.

The trainer's memory, signals and choice of device never meet the process that drives a run. A group has one
process for each device, which runs `run_training_process`. Everything lies in a folder of the training's key:
its checkpoints, its log, and the model that is being written; the folder outlives a killed training, and the
next one goes on from it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import json
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from harness.core import files
from harness.core.errors import HarnessError
from harness.core.provenance import count_cores, forbid_network, hold_collector
from harness.core.types import Artifact
from harness.data.training.loading import write_text_hashes
from harness.data.training.sets import LocatedTraining

SPEC = "spec.pickle"
MODEL = "model"
LOG = "log.jsonl"
EVENTS = "events.jsonl"
OUTPUT = "output.log"
CHECKPOINTS = "checkpoints"

STOP = threading.Event()
"""Set in a training process that has been asked to stop: it writes a checkpoint and ends."""

STOPPED = 75
"""The exit code of a training process that has stopped because it was asked to."""


class _Trains(Protocol):
    def devices(self, most: int, backbone: Artifact) -> int: ...

    def train(self, spec: TrainingSpec) -> None: ...


@dataclass(frozen=True, kw_only=True)
class TrainingSpec:
    """Everything that a training process is given.

    Attributes:
        recipe: The recipe with the user's settings.
        backbone: The model that the training starts from.
        data: The training data.
        selection: The data that chooses among checkpoints.
        seed: The seed of the training.
        key: The ArtifactKey of the model.
        folder: The folder of the training.
        cache: The cache folder.
        offline: Whether the network is forbidden.
        devices: The device of each process.
        threads: CPU threads of each process; None for torch's own choice.
        micro_batch: The most rows in a pass, where a larger one did not fit; None for no limit.
        minutes: The time between two checkpoints.
        rank: The number of this process.
        start: The name of this start of the training, which its processes share.
    """

    recipe: _Trains
    backbone: Artifact
    data: tuple[LocatedTraining, ...]
    selection: tuple[LocatedTraining, ...] = ()
    seed: int
    key: str
    folder: Path
    cache: Path
    offline: bool = False
    devices: tuple[str, ...] = ("cpu",)
    threads: int | None = None
    micro_batch: int | None = None
    minutes: float = 10.0
    rank: int = 0
    start: str = ""

    @property
    def device(self) -> str:
        """The device of this process; the only GPU that it sees is the first."""
        return "cuda:0" if self.devices[self.rank].startswith("cuda") else self.devices[self.rank]

    @property
    def ranks(self) -> int:
        """The number of processes."""
        return len(self.devices)

    @property
    def output(self) -> Path:
        """The folder that the model is written to, which does not exist yet."""
        return self.folder / MODEL

    @property
    def checkpoints(self) -> Path:
        """The folder of the checkpoints."""
        return self.folder / CHECKPOINTS

    @property
    def printed(self) -> Path:
        """The file with what the processes print."""
        return self.folder / OUTPUT

    @property
    def log(self) -> TrainingLog:
        """The log of the training; only the first process writes to it."""
        return TrainingLog(self.folder, silent=self.rank > 0)


Message = Literal["stage", "begin", "steps", "note", "progress", "memory", "error"]
"""The kinds of messages from a training process."""


ProgressKind = Literal["encoding", "encoded", "ranking", "ranked"]
"""The kinds of events before the first step."""


class TrainingLog:
    """The log of a training, a line for each step, and the messages for the process that started it.

    `log.jsonl` has one JSON object for each step, in order, with `step` and whatever the trainer measured; it
    outlives a killed training, whose steps after its last checkpoint are cut off when it goes on.
    """

    def __init__(self, folder: Path, *, silent: bool = False) -> None:
        self.path = folder / LOG
        self._events = folder / EVENTS
        self._silent = silent

    def note_stage(self, text: str) -> None:
        """Say which part of the training begins."""
        self._send("stage", text=text)

    def begin(self, *, steps: int, done: int) -> None:
        """Say how many steps there are and how many are done; the log is cut off behind these."""
        if not self._silent:
            kept = [line for line in read_log(self.path) if line["step"] <= done]
            text = "".join(_format_log_line(line) for line in kept)
            temporary = self.path.with_suffix(".new")
            temporary.write_text(text, encoding="utf-8")
            # In one step: a kill while the log is cut off must not lose it.
            temporary.replace(self.path)
        self._send("begin", steps=steps, done=done)

    def steps(self, lines: list[dict[str, Any]]) -> None:
        """Add the lines of finished steps, each with `step`, `loss` and other measurements."""
        if self._silent or not lines:
            return
        with self.path.open("a", encoding="utf-8") as file:
            file.write("".join(map(_format_log_line, lines)))
        self._send("steps", lines=lines)

    def note(self, text: str) -> None:
        """Say something to the user, which also goes into the model's document."""
        self._send("note", text=text)

    def note_progress(self, event: ProgressKind, *, text: str = "", texts: int = 0, tokens: int = 0) -> None:
        """Say what is done before the first step; see `Event` in harness.jobs.context for the arguments."""
        self._send("progress", event=event, text=text, texts=texts, tokens=tokens)

    def note_memory_shortage(self, *, rows: int, halves: bool) -> None:
        """Say that a pass over `rows` rows did not fit; with `halves`, fewer rows give the same step."""
        self._send("memory", rows=rows, halves=halves)

    def note_error(self, error: BaseException) -> None:
        """Say why the training has failed, from any process."""
        is_harness_error = isinstance(error, HarnessError)
        self._append_message(
            "error",
            name=type(error).__name__,
            text=error.message if isinstance(error, HarnessError) else str(error),
            hint=error.hint if isinstance(error, HarnessError) else None,
            own=is_harness_error,
        )

    def _send(self, kind: Message, **content: Any) -> None:
        if not self._silent:
            self._append_message(kind, **content)

    def _append_message(self, kind: Message, **content: Any) -> None:
        # Every process appends; opened for a single short line, lines of two are not mixed.
        with self._events.open("a", encoding="utf-8") as file:
            file.write(_format_log_line({"kind": kind, **content}))


def _format_log_line(content: Mapping[str, Any]) -> str:
    return json.dumps(content) + "\n"


def read_log(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a log, in order; none without a file."""
    if not path.is_file():
        return []
    entries = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(ValueError):
            content = json.loads(line)
            if isinstance(content, dict) and isinstance(content.get("step"), int):
                entries.append(content)
    return entries


@dataclass(frozen=True, kw_only=True)
class TrainingOutcome:
    """The end of a training process group.

    Attributes:
        code: Its exit code.
        error: What the process said of its failure.
        memory: What it said of a pass that did not fit.
        notes: Its notes.
    """

    code: int
    error: Mapping[str, Any] | None = None
    memory: Mapping[str, Any] | None = None
    notes: tuple[str, ...] = ()


Listener = Callable[[Mapping[str, Any]], None]
"""A callback with a message of the training process."""

POLL = 0.2
"""Seconds between two looks at the messages."""

PATIENCE = 60.0
"""Seconds that a training has for its last checkpoint after it was asked to stop."""


def run_training(spec: TrainingSpec, listener: Listener) -> TrainingOutcome:
    """Run one training process group to its end.

    On an interruption (KeyboardInterrupt, SystemExit) the group is asked to stop, so that it can write a
    checkpoint; on a second one, and on any other error, it is killed.
    """
    spec.folder.mkdir(parents=True, exist_ok=True)
    # Emptied: messages of an earlier start would be told again.
    (spec.folder / EVENTS).write_bytes(b"")
    spec = replace(spec, start=uuid.uuid4().hex)
    (spec.folder / SPEC).write_bytes(pickle.dumps(spec))
    with _open_process_group(spec) as group:
        messages = _Messages(spec.folder / EVENTS)
        while group.is_running():
            for message in messages.read_messages():
                listener(message)
            time.sleep(POLL)
        # What came between the last look and the end of the processes.
        for message in messages.read_messages():
            listener(message)
        return messages.build_outcome(group.code)


class _Messages:
    """The messages of a training process, read as they come."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._rest = b""
        self._last: dict[str, Mapping[str, Any]] = {}
        self._notes: list[str] = []

    def read_messages(self) -> Iterator[Mapping[str, Any]]:
        """The messages that have come since the last call."""
        # The last line may be half written; its rest comes with the next look.
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in lines:
            message = json.loads(line)
            # Of several errors the first one is the cause.
            if message["kind"] != "error" or "error" not in self._last:
                self._last[message["kind"]] = message
            if message["kind"] == "note":
                self._notes.append(message["text"])
            yield message

    def build_outcome(self, code: int) -> TrainingOutcome:
        self._file.close()
        return TrainingOutcome(
            code=code,
            error=self._last.get("error"),
            memory=self._last.get("memory"),
            notes=tuple(dict.fromkeys(self._notes)),
        )


class _Group:
    """The processes of a training, in one process group that the first of them leads."""

    def __init__(self, processes: list[subprocess.Popen[bytes]]) -> None:
        self._processes = processes
        self._failed: int | None = None

    @property
    def code(self) -> int:
        """The exit code of the process that failed first, else STOPPED or 0."""
        return self._failed or max(process.returncode or 0 for process in self._processes)

    def is_running(self) -> bool:
        """Whether all processes run; where one has failed, the others are killed."""
        codes = [process.poll() for process in self._processes]
        failed = [code for code in codes if code not in (None, 0, STOPPED)]
        if failed:
            # The others would wait in a collective operation for the process that is gone.
            self._failed = self._failed or failed[0]
            self.kill()
            return False
        return None in codes

    def stop(self) -> None:
        """Ask all processes to stop, and wait for their last checkpoint."""
        self._send_signal(signal.SIGTERM)
        ends = time.monotonic() + PATIENCE
        while self.is_running() and time.monotonic() < ends:
            time.sleep(POLL)

    def kill(self) -> None:
        """Kill every process of the group."""
        self._send_signal(signal.SIGKILL)
        for process in self._processes:
            process.wait()

    def _send_signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # One signal to the group also reaches what the processes started, such as data loaders.
            for leader in self._processes[:1]:
                os.killpg(leader.pid, number)


@contextmanager
def _open_process_group(spec: TrainingSpec) -> Iterator[_Group]:
    """A process for each device; their standard input is a pipe that ends with this process."""
    processes: list[subprocess.Popen[bytes]] = []
    group = _Group(processes)
    port = str(_find_free_port()) if spec.ranks > 1 else ""
    with spec.printed.open("ab") as output:
        try:
            for rank in range(spec.ranks):
                processes.append(
                    subprocess.Popen(
                        [
                            sys.executable,
                            "-m",
                            "harness.training",
                            str(spec.folder),
                            str(rank),
                        ],
                        stdin=subprocess.PIPE,
                        stdout=output,
                        stderr=output,
                        env=_build_rank_environment(spec, rank, port),
                        # Ctrl-C then reaches this process alone, which lets the others write a checkpoint.
                        process_group=processes[0].pid if processes else 0,
                    )
                )
            yield group
        except (KeyboardInterrupt, SystemExit):
            group.stop()
            raise
        finally:
            group.kill()
            for process in processes:
                if process.stdin:
                    process.stdin.close()


def _build_rank_environment(spec: TrainingSpec, rank: int, port: str) -> dict[str, str]:
    """The variables of one process: its place among all, as torchrun sets them, and the GPU that it sees."""
    kind, _, number = spec.devices[rank].partition(":")
    # On a GPU one core alone would tokenize more slowly than the GPU trains.
    parallel = "true" if kind == "cuda" else "false"
    variables = {**os.environ, "TOKENIZERS_PARALLELISM": parallel, "PYTHONUNBUFFERED": "1"}
    variables["RAYON_NUM_THREADS"] = str(spec.threads or max(1, count_cores() // spec.ranks))
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        variables.pop(name, None)
    if spec.ranks > 1:
        rank_variables = {
            "RANK": rank,
            "LOCAL_RANK": 0,
            "WORLD_SIZE": spec.ranks,
            "LOCAL_WORLD_SIZE": spec.ranks,
        }
        variables |= {name: str(value) for name, value in rank_variables.items()}
        variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if kind == "cuda":
        visible_devices = visible.split(",") if visible else []
        index = int(number or 0)
        variables["CUDA_VISIBLE_DEVICES"] = (
            visible_devices[index] if index < len(visible_devices) else str(index)
        )
    else:
        # So that no library takes memory on a GPU for a training on the CPU.
        variables["CUDA_VISIBLE_DEVICES"] = ""
    return variables


def _find_free_port() -> int:
    with socket.socket() as probe_socket:
        # Port 0 is any free one. Another program may take it before the group does: the start then fails.
        probe_socket.bind(("127.0.0.1", 0))
        return int(probe_socket.getsockname()[1])


def read_spec(folder: Path, rank: int) -> TrainingSpec:
    """The spec of a training process, as the process that started it wrote it."""
    # A pickle that `run_training` wrote into its own folder, not a file from elsewhere.
    spec: TrainingSpec = pickle.loads((folder / SPEC).read_bytes())
    return replace(spec, rank=rank)


_MARKER = "files.json"
"""The names of a checkpoint's files with their sizes and hashes, written last."""

# The second one stands in where the newest is damaged.
_KEPT = 2
"""The number of checkpoints that are kept."""


class Checkpoints:
    """The checkpoints of a training, `step-N/`, and the files beside them that they name.

    Args:
        folder: The folder of all checkpoints of the training.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find_last_checkpoint(self, note: Callable[[str], None]) -> Path | None:
        """The newest whole checkpoint; those that are not whole are removed.

        Args:
            note: Called with a sentence on checkpoints that were whole once and are damaged, if any.
        """
        damaged, last = [], None
        for path in reversed(self._list_checkpoints()):
            if self._is_intact_checkpoint(path):
                last = path
                break
            # Without its marker it was never whole: a process that was killed while it wrote leaves one.
            damaged += [path.name] if (path / _MARKER).exists() else []
            shutil.rmtree(path)
        if damaged:
            start = f"goes on from {last.name}" if last else "begins again"
            names = " and ".join(damaged)
            note(f"{names}: damaged, so no longer a checkpoint to go on from. The training {start}.")
        return last

    def prepare_checkpoint(self, step: int) -> Path:
        """An empty folder for the checkpoint of a step."""
        path = self.locate_checkpoint(step)
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def finish(self, step: int, *, beside: Sequence[Path] = ()) -> None:
        """Mark the checkpoint of a step as whole, and remove what no kept checkpoint needs.

        Args:
            step: The step.
            beside: Files beside the checkpoints that belong to it.
        """
        path = self.locate_checkpoint(step)
        written = [file for file in sorted(path.iterdir()) if file.name != _MARKER]
        content = {
            str(file.relative_to(self.folder)): [file.stat().st_size, files.hash_file(file)]
            for file in (*written, *beside)
        }
        files.replace(path / _MARKER, json.dumps(content, indent=1).encode())
        self._prune()

    def locate_checkpoint(self, step: int) -> Path:
        """The folder of the checkpoint of a step."""
        return self.folder / f"step-{step:08d}"

    def _list_checkpoints(self) -> list[Path]:
        return sorted(self.folder.glob("step-*")) if self.folder.is_dir() else []

    def _is_intact_checkpoint(self, path: Path) -> bool:
        listed = self._read_marker(path)
        return bool(listed) and all(
            (self.folder / name).is_file()
            and (self.folder / name).stat().st_size == size
            and files.hash_file(self.folder / name) == digest
            for name, (size, digest) in listed.items()
        )

    def _read_marker(self, path: Path) -> dict[str, tuple[int, str]]:
        """The files of a checkpoint by name; none without a readable marker."""
        try:
            content = json.loads((path / _MARKER).read_text(encoding="utf-8"))
            return {str(name): (int(size), str(digest)) for name, (size, digest) in content.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def _prune(self) -> None:
        for path in self._list_checkpoints()[:-_KEPT]:
            shutil.rmtree(path, ignore_errors=True)
        needed = {name for path in self._list_checkpoints() for name in self._read_marker(path)}
        for file in self.folder.glob("*.safetensors"):
            if file.name not in needed:
                file.unlink()


def run_training_process(folder: str, rank: str) -> int:
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


def exit_process(code: int) -> None:
    """End without Python's own finalization, in which the threads of torch.distributed now and then abort.

    By then the model and the log are on the disk; an abort would make a whole training a failed one.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
