"""A scheduler that answers as Slurm does and runs the tasks of arrays as processes of this machine.

`FakeSlurm(folder).install()` makes the commands of Slurm in a folder for PATH. This file is what they run,
with the standard library alone: `python fake_slurm.py COMMAND …`. The state of each task is a JSON file.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

COMMANDS = ("sbatch", "squeue", "sacct", "scancel", "scontrol", "srun")
OPEN = ("PENDING", "RUNNING")
KILL_WAIT = 20.0


class FakeSlurm:
    """The scheduler, for tests and for its own commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"

    def install(
        self, *, slots: int = 2, partitions: tuple[str, ...] = ("cpu",), gpus: int = 0, array: int = 1001
    ) -> None:
        """Make the commands; so many tasks run at once, on machines with so many GPUs."""
        for part in (self.bin, self.folder / "tasks"):
            part.mkdir(parents=True)
        limits = {"slots": slots, "partitions": partitions, "gpus": gpus, "array": array}
        (self.folder / "limits.json").write_text(json.dumps(limits))
        (self.folder / "next").write_text(str(time.time_ns() // 1000 % 10**9))  # unlike any other fake's
        for name in COMMANDS:
            path = self.bin / name
            command = shlex.join([sys.executable, "-S", "-E", __file__, name])
            path.write_text(f'#!/bin/sh\nFAKE_SLURM={shlex.quote(str(self.folder))} exec {command} "$@"\n')
            path.chmod(0o755)

    @property
    def limits(self) -> dict[str, Any]:
        return json.loads((self.folder / "limits.json").read_text())

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        with (self.folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def get(self, task: str) -> dict[str, Any]:
        return json.loads((self.folder / "tasks" / f"{task}.json").read_text())

    def put(self, task: str, **changes: Any) -> None:
        """Change a task's state; the lock is held."""
        path = self.folder / "tasks" / f"{task}.json"
        state = {**(self.get(task) if path.exists() else {}), **changes}
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(state))
        temporary.replace(path)

    def tasks(self, *states: str) -> dict[str, dict[str, Any]]:
        """The tasks in these states, or all."""
        names = sorted(path.stem for path in (self.folder / "tasks").glob("*.json"))
        found = {name: self.get(name) for name in names}
        return {name: one for name, one in found.items() if not states or one["state"] in states}

    def calls(self, command: str) -> int:
        """How often a command was called."""
        path = self.folder / "calls"
        return path.read_text().split().count(command) if path.exists() else 0

    # What a cluster does to tasks

    def preempt(self, task: str, *, everywhere: bool = False) -> None:
        """Send the signal of submitit to the task, or to all its processes: it depends on the cluster."""
        state = self.get(task)
        for pid in self.processes(task) if everywhere else [state["step"]]:
            if pid not in (None, state["leader"]):
                _kill(pid, signal.SIGUSR2)

    def kill(self, task: str) -> None:
        """Kill the task itself, and none of the processes that it has started."""
        if (step := self.get(task)["step"]) is not None:
            _kill(step, signal.SIGKILL)

    def lose(self, task: str) -> None:
        """Kill all processes of a task, as if its machine were gone."""
        with self.lock():
            self.put(task, verdict="NODE_FAIL")
        self._kill_all(task)

    def kill_for_memory(self, task: str) -> None:
        with self.lock():
            self.put(task, verdict="OUT_OF_MEMORY")
        self._kill_all(task)

    def processes(self, task: str = "") -> list[int]:
        """The living processes of a task, or of the scheduler as a whole, by a mark in their environment."""
        mark = f"FAKE_SLURM_TASK={self.folder}/{task}".encode()
        found = []
        for path in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if path.name.isdigit() and int(path.name) != os.getpid():
                    environment = (path / "environ").read_bytes().split(b"\0")
                    if any(one == mark or (not task and one.startswith(mark)) for one in environment):
                        found.append(int(path.name))
        return found

    def close(self) -> None:
        """Kill whatever is left."""
        with self.lock():
            for task in self.tasks(*OPEN):
                self.put(task, cancelled=True)
        for pid in self.processes():
            _kill(pid, signal.SIGKILL)

    def _kill_all(self, task: str) -> None:
        for _ in range(20):
            for pid in (found := self.processes(task)):
                _kill(pid, signal.SIGKILL)
            if not found:
                return
            time.sleep(0.05)

    # Its commands

    def sbatch(self, *words: str) -> int:
        if "--test-only" in words:
            options = dict(_option(word) for word in words if word.startswith("--"))
            return self._refusal(options) or _say(sys.stderr, "sbatch: Job 1 to start at 2030-01-01T00:00:00")
        script = Path(words[-1])
        lines = script.read_text().splitlines()
        options = dict(
            _option(line.removeprefix("#SBATCH ")) for line in lines if line.startswith("#SBATCH ")
        )
        if code := self._refusal(options):
            return code
        with self.lock():
            number = int((self.folder / "next").read_text())
            (self.folder / "next").write_text(str(number + 1000))
            copy = self.folder / f"{number}.sh"
            copy.write_text(script.read_text())
            array = re.fullmatch(r"0-(\d+)(%\d+)?", options.get("array", ""))
            assert array is None or int(array[1]) < self.limits["array"]
            names = [f"{number}_{one}" for one in range(int(array[1]) + 1)] if array else [str(number)]
            for name in names:
                gpus = int(options.get("gpus-per-node", 0))
                given = {"minutes": int(options["time"]), "gpus": gpus, "restarts": 0, "step": None}
                given |= {"output": options["output"], "error": options["error"]}
                self.put(name, state="PENDING", script=str(copy), **given)
        for name in names:
            subprocess.Popen(
                [sys.executable, "-S", "-E", __file__, "run-task", name],
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        return _say(sys.stdout, f"Submitted batch job {number}")

    def _refusal(self, options: dict[str, str]) -> int:
        limits, partition = self.limits, options.get("partition")
        if partition and partition not in limits["partitions"]:
            _say(sys.stderr, f"sbatch: error: invalid partition specified: {partition}")
            _say(sys.stderr, "sbatch: error: Batch job submission failed: Invalid partition name specified")
            return 1
        if int(options.get("gpus-per-node", 0)) > limits["gpus"]:
            reason = "Requested node configuration is not available"
            _say(sys.stderr, f"sbatch: error: Batch job submission failed: {reason}")
            return 1
        return 0

    def run_task(self, task: str) -> int:
        """Run a task whenever it has a slot, until it is over."""
        while self._has_slot(task):
            state = self.get(task)
            with _appended(state["output"], task) as output, _appended(state["error"], task) as error:
                process = subprocess.Popen(
                    ["bash", state["script"]],
                    **{"stdout": output, "stderr": error, "env": self._environment(task)},
                    start_new_session=True,
                )
            with self.lock():
                self.put(task, leader=process.pid)
            self._watch(task, process)
            self._kill_all(task)
            with self.lock():
                state = self.get(task)
                if not state.get("requeue"):
                    self.put(task, state=_verdict(state, process.returncode))
                    return 0
                self.put(task, state="PENDING", requeue=False, step=None, restarts=state["restarts"] + 1)
            time.sleep(0.2)
        return 0

    def _has_slot(self, task: str) -> bool:
        while True:
            with self.lock():
                if self.get(task).get("cancelled"):
                    self.put(task, state="CANCELLED by 0")
                    return False
                if len(self.tasks("RUNNING")) < self.limits["slots"]:
                    self.put(task, state="RUNNING")
                    return True
            time.sleep(0.05)

    def _watch(self, task: str, process: subprocess.Popen[bytes]) -> None:
        over, limit = 0.0, time.monotonic() + 60 * self.get(task)["minutes"]
        while process.poll() is None:
            state = self.get(task)
            if not over and (state.get("cancelled") or time.monotonic() > limit):
                over = time.monotonic() + KILL_WAIT
                for pid in self.processes(task):
                    if pid != process.pid:
                        _kill(pid, signal.SIGTERM)
            if over and time.monotonic() > over:
                self._kill_all(task)
            time.sleep(0.05)

    def _environment(self, task: str) -> dict[str, str]:
        array, _, index = task.partition("_")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
        environment |= {"FAKE_SLURM_TASK": f"{self.folder}/{task}", "SLURM_JOB_ID": array}
        environment |= {"SLURM_NTASKS": "1", "SLURM_JOB_NUM_NODES": "1", "SLURM_JOB_NODELIST": "node1"}
        environment |= dict.fromkeys(("SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID"), "0")
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(self.get(task)["gpus"])))
        if index:
            raw = str(int(array) + 1 + int(index))
            environment |= {"SLURM_ARRAY_JOB_ID": array, "SLURM_ARRAY_TASK_ID": index, "SLURM_JOB_ID": raw}
        return environment

    def srun(self, *words: str) -> int:
        """Become the command, with its output in the files that the options name."""
        left, to = [*words], {}
        while left[0].startswith("--"):
            name, _, value = left.pop(0).partition("=")
            if name in ("--output", "--error"):
                to[name] = value or left.pop(0)
        task = os.environ["FAKE_SLURM_TASK"].rpartition("/")[2]
        for name, descriptor in (("--output", 1), ("--error", 2)):
            with _appended(to[name], task) as file:
                os.dup2(file.fileno(), descriptor)
        with self.lock():
            self.put(task, step=os.getpid())
        os.execvp(left[0], left)

    def scancel(self, *words: str) -> int:
        with self.lock():
            for task in self.tasks(*OPEN):
                if {task, task.partition("_")[0]} & {*words}:
                    self.put(task, cancelled=True)
        return 0

    def scontrol(self, verb: str, task: str) -> int:
        if verb == "show":
            return _say(sys.stdout, f"MaxArraySize            = {self.limits['array']}")
        assert verb == "requeue"
        with self.lock():
            if self.get(task).get("cancelled"):
                return 1
            self.put(task, requeue=True)
        return 0

    def sacct(self, *words: str) -> int:
        if (self.folder / "no accounting").exists():
            _say(sys.stderr, "Slurm accounting storage is disabled")
            return 1
        asked = {word for before, word in itertools.pairwise(words) if before == "-j"}
        _say(sys.stdout, "JobID|State|NodeList")
        waiting: dict[str, list[str]] = {}
        for name, task in self.tasks().items():
            array, _, index = name.partition("_")
            if array not in asked:
                continue
            if task["state"] == "PENDING" and index and not task["restarts"]:
                waiting.setdefault(array, []).append(index)
                continue
            _say(sys.stdout, f"{name}|{task['state']}|node1")
            _say(sys.stdout, f"{name}.batch|{task['state']}|node1")
        for array, indices in waiting.items():
            _say(sys.stdout, f"{array}_[{','.join(indices)}]|PENDING|None assigned")
        return 0

    def squeue(self, *_words: str) -> int:
        for name, task in self.tasks(*OPEN).items():
            _say(sys.stdout, f"{name} {task['state']}")
        return 0


def _appended(path: str, task: str) -> Any:
    """The file of a task's output, by the name that an option gives it."""
    array, _, index = task.partition("_")
    name = path.replace("%A", array).replace("%a", index).replace("%j", task).replace("%t", "0")
    return Path(name).open("ab")


def _verdict(state: dict[str, Any], code: int) -> str:
    if state.get("verdict"):
        return str(state["verdict"])
    if state.get("cancelled"):
        return "CANCELLED by 0"
    return "COMPLETED" if code == 0 else "FAILED"


def _option(text: str) -> tuple[str, str]:
    name, _, value = text.removeprefix("--").partition("=")
    return name, shlex.split(value)[0] if value else ""


def _say(file: Any, text: str) -> int:
    print(text, file=file)
    return 0


def _kill(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _main(command: str, *words: str) -> int:
    fake = FakeSlurm(Path(os.environ["FAKE_SLURM"]))
    with (fake.folder / "calls").open("a") as file:
        file.write(f"{command}\n")
    return int(getattr(fake, command.replace("-", "_"))(*words))


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
