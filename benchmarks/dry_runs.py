"""Twenty dry runs beside the runs that they promise: how often the real time lies in the range.

    python benchmarks/dry_runs.py --data FOLDER [--only WORDS]

`--data` is the folder with `mteb`, `nyu-mll`, `pairs` and `local`. All share a results folder and a cache, as
a user's do: after a first run, of which only the defaults know anything, each learns from those before.
The first run is shown and does not count. The real time is that of the whole command, from the shell. Passes
if it lies in the range in at least 16 of 20 and each upper end is at most 3 times the lower. Beside each
stands the share of its time for which the process waited for a core (Linux), as neighbours make a run slower.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measuring import locate_minilm, read_options, slice_glue
from safetensors.numpy import load_file, save_file

WANTED, MOST = 16, 3.0


@dataclass(frozen=True, kw_only=True)
class Case:
    """A command without its folders."""

    name: str
    words: tuple[str, ...]


def cases(data: Path, folder: Path) -> list[Case]:
    """The first run, then twenty: encodings, fine-tuning runs and trainings, of three sizes of models."""
    small, large, pairs = folder / "small", folder / "large", data / "pairs"

    def encode(model: object, *suites: str, more: tuple[str, ...] = ()) -> Case:
        asked = [word for suite in suites for word in ("--suite", suite)]
        name = f"encode {Path(str(model)).name} {' '.join(Path(s).name for s in suites)} {' '.join(more)}"
        return Case(name=name.strip(), words=("run", "--model", str(model), *asked, *more))

    def finetune(model: object, task: str) -> Case:
        asked = ("--suite", "glue", "--recipe", "glue-quick", "--tasks", task)
        name = f"glue-quick {Path(str(model)).name} {task}"
        return Case(name=name, words=("run", "--model", str(model), *asked))

    def train(model: object, file: str, steps: int, *more: str) -> Case:
        asked = ("--recipe", "simcse", "--train-data", str(pairs / file / "train.jsonl"))
        values = (f"max_steps={steps}", "batch_size=16", *more)
        sets = [word for value in values for word in ("--set", value)]
        name = f"simcse {Path(str(model)).name} {file} {' '.join(values)}"
        return Case(name=name, words=("train", "--model", str(model), *asked, *sets))

    local = data / "local"
    return [
        encode("minilm", "mteb:STS13"),
        encode("minilm", "mteb:STSBenchmark"),
        encode("minilm", "mteb:STS12", more=("--pooling", "cls")),
        encode("minilm", "mteb:PoemSentimentClassification"),
        encode(small, "mteb:STSBenchmark"),
        encode(small, "mteb:STS12", "mteb:STS13"),
        encode("minilm", f"local:{local / 'mbpp'}"),
        encode(small, f"local:{local / 'mbpp'}", f"local:{local / 'wikiqa'}"),
        encode("minilm", f"local:{local / 'cranfield'}"),
        encode(small, f"local:{local / 'cranfield'}", more=("--max-length", "128")),
        encode(large, "mteb:STSBenchmark", more=("--max-length", "64")),
        train("minilm", "conala", 20),
        train("minilm", "conala", 60),
        train(small, "nl2bash", 100),
        train(small, "nl2bash", 300),
        train(small, "conala", 100, "learning_rate=1e-4"),
        finetune(small, "RTE"),
        finetune(small, "CoLA"),
        finetune("minilm", "MRPC"),
        finetune("minilm", "CoLA"),
        finetune(small, "MRPC"),
    ]


def cut_model(source: Path, target: Path, layers: int) -> None:
    """A copy of a BERT folder with another number of layers: the first ones, or those of it over again."""
    shutil.copytree(source, target)
    config = json.loads((target / "config.json").read_text())
    before, config["num_hidden_layers"] = config["num_hidden_layers"], layers
    (target / "config.json").write_text(json.dumps(config))
    tensors = load_file(target / "model.safetensors")
    kept = {name: value for name, value in tensors.items() if ".layer." not in name}
    for layer in range(layers):
        own = f".layer.{layer % before}."
        kept |= {n.replace(own, f".layer.{layer}."): v.copy() for n, v in tensors.items() if own in n}
    save_file(kept, target / "model.safetensors", metadata={"format": "pt"})


def waited(pid: int) -> float:
    """The seconds for which the threads of a process and its children have waited for a core so far."""
    import psutil

    total = 0.0
    try:
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
            for task in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
                total += int(task.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError, psutil.Error):
        pass
    return total


def promised(command: list[str]) -> dict[str, Any]:
    """What the dry run of a command says of its time."""
    done = subprocess.run([*command, "--dry-run", "--json"], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout)
    sources = [one["source"] for one in (*told.get("plan", ()), *told["trainings"]) if one["source"]]
    return {**told["time"], "source": "; ".join(dict.fromkeys(sources))}


def taken(command: list[str], log: Path) -> tuple[float, float]:
    """The seconds of a command, and those for which it waited for a core."""
    began, waiting = time.monotonic(), 0.0
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        while process.poll() is None:
            waiting = max(waiting, waited(process.pid))
            time.sleep(0.2)
    if process.returncode:
        raise RuntimeError(log.read_text()[-2000:])
    return time.monotonic() - began, waiting


def main() -> int:
    """Print a line for each; 1 if too few lie in their ranges, or a range is too wide."""
    given = read_options(__doc__, data=Path, only="")
    os.environ["HF_HUB_OFFLINE"] = "1"
    print(f"load of the machine {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    print(f"{'':2} {'promised':>14} {'real':>7} {'in':>3} {'ratio':>5} {'waited':>7}  what; by what")
    hits = narrow = count = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for model, layers in (("small", 2), ("large", 18)):
            cut_model(locate_minilm(), folder / model, layers)
        root = slice_glue(given.data, folder / "data", train=300, dev=60)
        (root / "mteb").symlink_to((given.data / "mteb").resolve())
        places = ["--results", str(folder / "results"), "--cache", str(folder / "cache"), "--data", str(root)]
        for number, case in enumerate(cases(given.data.resolve(), folder)):
            if given.only not in case.name:
                continue
            command = [sys.executable, "-m", "harness", *case.words, *places]
            expected, (real, waiting) = promised(command), taken(command, folder / "log")
            low, high = expected["low"], expected["high"]
            is_in, ratio = low <= real <= high, high / low
            if number:
                count, hits, narrow = count + 1, hits + is_in, narrow + (ratio <= MOST)
            print(
                f"{number:2} {low:6.1f}–{high:5.1f} s {real:5.1f} s {'yes' if is_in else 'NO':>3} "
                f"{ratio:5.2f} {waiting:5.1f} s  {case.name}; {expected['source']}",
                flush=True,
            )
    print(f"{hits} of {count} in range, {narrow} of {count} at most {MOST:g} times as wide")
    return 0 if hits >= WANTED and narrow == count else 1


if __name__ == "__main__":
    sys.exit(main())
