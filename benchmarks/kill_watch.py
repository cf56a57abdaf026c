"""Kill a watch in the middle of a checkpoint and count what is scored in the end, and how often.

    python benchmarks/kill_watch.py

Five tiny checkpoints are written into a folder while `harness watch` looks at it. The third is cut
off in the middle of its weights, and completed once the watch has said that it waits for it. The watch
is killed with SIGKILL while it is at the second, and started again with the same command. Every score
is counted by the process that makes it, as it is made. Prints what was found; 1 if a bar is missed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measuring import read_options, write_lines  # which finds the modules of tests

from stored_records import iter_records

STEPS = (1000, 2000, 3000, 4000, 5000)
BROKEN = 3000
WORDS = ("river", "stone", "cloud", "engine", "letter", "garden", "music", "winter", "copper", "silver")
TASKS = ("alike", "nearer")
PATIENCE = 240.0
"""Seconds after which something that is waited for does not come any more."""


def counting(log: Path, arguments: list[str]) -> int:
    """The command line, in a process that writes a line for every score it has made."""
    from harness.cli import invoke
    from harness.jobs.jobs import Score

    made = Score.run

    def run(self: Score, context: Any) -> Any:
        found = made(self, context)
        with log.open("a") as file:
            file.write(f"{self.artifact.name} {self.task.name}\n")
        return found

    Score.run = run  # type: ignore[method-assign]
    return invoke(arguments)


def suite(folder: Path) -> Path:
    """Two small tasks of one's own."""
    folder.mkdir()
    for number, name in enumerate(TASKS):
        pairs = [
            {"text1": a, "text2": b, "score": float(i % 5)}
            for i, a in enumerate(WORDS)
            for b in WORDS[number : i + number]
        ]
        write_lines(pairs, folder / f"{name}.jsonl")
    tables = (f'[[task]]\nname = "{name}"\ntype = "sts"\nfile = "{name}.jsonl"\n' for name in TASKS)
    (folder / "harness.toml").write_text("\n".join(tables))
    return folder


def checkpoints(folder: Path) -> dict[int, Path]:
    """Five tiny checkpoints with weights of their own, where no watch looks yet."""
    import tiny

    bert = tiny.families()["bert"]
    return {step: tiny.folder(bert, folder / f"checkpoint-{step}", seed=step) for step in STEPS}


class Watched:
    """`harness watch` in a process of its own, and what it says."""

    def __init__(self, place: Path) -> None:
        self.lines: list[dict[str, Any]] = []
        arguments = ["watch", str(place / "run"), "--suite", f"local:{place / 'own'}"]
        arguments += ["--results", str(place / "results"), "--cache", str(place / "cache"), "--json"]
        arguments += ["--every", "0.5", "--settle", "0.5", "--until", str(STEPS[-1]), "--offline"]
        child = [sys.executable, __file__, "--count-into", str(place / "scores.log"), *arguments]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        self._errors = (place / "errors.log").open("a")
        self.process = subprocess.Popen(
            child, stdout=subprocess.PIPE, stderr=self._errors, text=True, env=environment
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):
                self.lines.append(json.loads(line))

    def waits_for(self, step: int) -> bool:
        """Whether it has said so."""
        looks = [line for line in self.lines if line["event"] == "look"]
        return any(one["step"] == step for look in looks for one in look["waiting"])

    def end(self) -> int:
        """Its exit code, once it has ended by itself."""
        code = self.process.wait(timeout=PATIENCE)
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._errors.close()
        return code

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.process.kill()
        self.end()


def until(what: Callable[[], bool]) -> None:
    """Wait for something to be true."""
    ends = time.monotonic() + PATIENCE
    while not what():
        if time.monotonic() > ends:
            raise TimeoutError
        time.sleep(0.005)


def scored(place: Path) -> list[str]:
    """Every score that was made, in order."""
    log = place / "scores.log"
    return log.read_text().splitlines() if log.exists() else []


def recorded(place: Path) -> list[str]:
    """Every score that has its record, as the log calls it."""
    from harness.storage.store import Store

    return [f"{one.model.name} {one.task.name}" for one in iter_records(Store(place / "results"))]


def scenario(place: Path) -> dict[str, Any]:
    """Play it through; returns what was found."""
    began = time.monotonic()
    suite(place / "own")
    written = checkpoints(place / "elsewhere")
    run = place / "run"
    run.mkdir()
    shutil.copytree(written[1000], run / "checkpoint-1000")
    first = Watched(place)
    until(lambda: bool(scored(place)))
    shutil.copytree(written[2000], run / "checkpoint-2000")
    shutil.copytree(written[BROKEN], run / f"checkpoint-{BROKEN}")
    weights = run / f"checkpoint-{BROKEN}" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    until(lambda: len(scored(place)) > len(TASKS))
    first.kill()
    at_kill, there = scored(place), recorded(place)
    shutil.copytree(written[4000], run / "checkpoint-4000")
    second = Watched(place)
    until(lambda: second.waits_for(BROKEN))
    shutil.copytree(written[5000], run / "checkpoint-5000")
    until(lambda: any("checkpoint-4000" in line for line in scored(place)))
    weights.write_bytes(whole)
    code = second.end()
    counts = Counter(scored(place))
    lost = len(set(at_kill) - set(there))
    records = Counter(line.split()[0] for line in recorded(place))
    return {
        "evaluations": sum(count == len(TASKS) for count in records.values()),
        "twice": sum(count - 1 for count in counts.values()) - lost,
        "scores_made": sum(counts.values()),
        "made_before_the_kill": len(at_kill),
        "made_but_not_recorded_at_the_kill": lost,
        "order": [line["checkpoint"]["step"] for line in second.lines if line["event"] == "checkpoint"],
        "states": [one["state"] for one in second.lines[-1]["watch"]["checkpoints"]],
        "exit_code": code,
        "seconds": round(time.monotonic() - began, 1),
    }


def wrong(found: dict[str, Any]) -> bool:
    """Whether a bar is missed."""
    done = found["states"] == ["done"] * len(STEPS)
    return (found["evaluations"], found["twice"], found["exit_code"]) != (len(STEPS), 0, 0) or not done


def main() -> int:
    """Print what was found; 1 if a bar is missed."""
    if sys.argv[1:2] == ["--count-into"]:
        return counting(Path(sys.argv[2]), sys.argv[3:])
    read_options(__doc__)
    with tempfile.TemporaryDirectory() as made:
        found = scenario(Path(made))
    print(json.dumps(found))
    return int(wrong(found))


if __name__ == "__main__":
    sys.exit(main())
