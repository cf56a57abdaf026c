"""Many records: write a results folder of any size, and measure the commands that read it.

    python benchmarks/bench_records.py make FOLDER --records 50000
    python benchmarks/bench_records.py measure FOLDER [--cache DIR]

`make` writes valid records, six tasks a model, in the shapes that folders have: catalog and hub models,
folders whose names collide, trained models with several seeds, some trials and failures, and a few damaged
files. `measure` prints seconds and peak memory of commands without an index, with one, and after an edit.
"""

from __future__ import annotations

import copy
import hashlib
import os
import random
import shutil
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from measuring import ROOT, read_options

from harness.core.documents import append_digest
from harness.core.keys import Lineage, ParentPart, digest
from harness.core.types import build_artifact_slug
from harness.storage.store import Store

TASKS = 6
TRIALS, FAILURES, DAMAGES = 50, 80, 5000
"""Of so many records one is a trial, a failure beside which no score lies, or a damaged file."""


@cache
def read_templates() -> list[dict[str, Any]]:
    """The reference records as they are written now, without files beside them."""
    files = sorted((ROOT / "results" / "reference" / "records").glob("*/*/*.json"))
    records = [Store.parse(file).model_copy(update={"examples": None, "schema_version": 6}) for file in files]
    return [record.model_dump(mode="json", by_alias=True) for record in records]


def describe_model(number: int) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The model of a number and its lineage: catalog, hub, folder or trained, by turns."""
    chance = random.Random(number)
    model = {"artifact": hashlib.sha256(b"model%d" % number).hexdigest(), "revision": None, "folder": None,
             "weights": hashlib.sha256(b"weights%d" % number).hexdigest(),
             "dimension": chance.choice([384, 768]),
             "parameters": chance.randrange(4_000_000, 400_000_000)}  # fmt: skip
    match number % 4:
        case 0:
            # Two revisions of each hub model have its name.
            name = f"org{number % 97}/encoder-{number // 8}"
            return model | {
                "name": name,
                "source": name,
                "revision": hashlib.sha1(b"%d" % number).hexdigest(),
            }, None
        case 1:
            return model | {"name": "final", "source": "local", "folder": f"runs/exp{number}/final"}, None
        case 2:
            return model | {
                "name": f"encoder-{number}",
                "source": "local",
                "folder": f"runs/encoder-{number}",
            }, None
    lineage = Lineage(
        recipe="simcse", source="section 4", parents=(ParentPart(name="minilm", artifact="6234ab8900" * 6),),
        settings={"epochs": 1, "batch_size": 64, "rate": (number // 12) * 1e-6, "temperature": 0.05},
        changed={"rate": (number // 12) * 1e-6}, data=({"path": "wiki1m", "revision": "0" * 40},),
        seed=number // 4 % 3,
    )  # fmt: skip
    name = "simcse-minilm" if number % 8 == 3 else f"simcse-{number // 12}"
    return model | {"name": name, "source": "simcse", "artifact": lineage.key}, lineage.model_dump(
        mode="json"
    )


def scale_scores(value: Any, factor: float) -> Any:
    """Every number of nested scores times a factor."""
    if isinstance(value, dict):
        return {name: scale_scores(part, factor) for name, part in value.items()}
    if isinstance(value, list):
        return [scale_scores(part, factor) for part in value]
    return value * factor if isinstance(value, float) else value


def write_model(folder: Path, number: int) -> None:
    """Write the records of a model."""
    chance = random.Random(number)
    model, lineage = describe_model(number)
    place = folder / "records" / build_artifact_slug(model["name"], model["artifact"])
    for template in chance.sample(read_templates(), TASKS):
        record = copy.deepcopy(template) | {"model": model, "lineage": lineage}
        record["identity"]["artifact"] = model["artifact"]
        record["key"] = digest(record["identity"])
        factor = chance.uniform(0.6, 1.0)
        record |= {name: scale_scores(record[name], factor) for name in ("scores", "main_score")}
        record["provenance"]["seconds"]["encode"] *= 0.5 + chance.random()
        record["purpose"] = "trial" if chance.randrange(TRIALS) == 0 else "final"
        end = ".json"
        if chance.randrange(FAILURES) == 0:
            error = {"kind": "TaskError", "message": "Out of memory.", "hint": None, "traceback": "…"}
            record |= {"status": "failed", "scores": {}, "main_score": None, "error": error}
            end = ".failed.json"
        text = append_digest(record)
        if chance.randrange(DAMAGES) == 0:
            text = text[: len(text) // 2]
        file = place / record["task"]["name"] / f"{record['key']}{end}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def write_models(folder: Path, numbers: range) -> None:
    """Write the records of some models."""
    for number in numbers:
        write_model(folder, number)


def make_folder(folder: Path, records: int) -> None:
    """Write a results folder with about so many records."""
    models = -(-records // TASKS)
    parts = [range(start, min(start + 500, models)) for start in range(0, models, 500)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(write_models, [folder] * len(parts), parts))


def run_command(*words: str) -> tuple[float, float, str]:
    """The seconds, the peak MB and the output of a command of the harness."""
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out:
        child = os.posix_spawn(
            sys.executable, [sys.executable, "-m", "harness", *words], os.environ,
            file_actions=[(os.POSIX_SPAWN_DUP2, out.fileno(), 1), (os.POSIX_SPAWN_DUP2, out.fileno(), 2)],
        )  # fmt: skip
        _, status, usage = os.wait4(child, 0)
        out.seek(0)
        text = out.read()
    if status:
        raise SystemExit(f"harness {' '.join(words)} ended with {status}:\n{text}")
    return time.perf_counter() - began, usage.ru_maxrss / 1024, text


def measure_folder(folder: Path, cache_folder: Path) -> None:
    """Print the seconds and MB of each command: the first time, and the best of three with the index."""
    os.environ["HARNESS_CACHE"] = str(cache_folder)
    model = describe_model(0)[0]["artifact"][:12]
    dry = ("run", "--model", "minilm", "--suite", "stdlib", "--dry-run")
    commands = {
        "dry run, empty folder": (*dry, "--results", tempfile.mkdtemp()),
        "run --dry-run": (*dry, "--results", str(folder)),
        "show": ("show", model, "--results", str(folder)),
        "list records --rows 50": ("list", "records", "--rows", "50", "--results", str(folder)),
        "status": ("status", "--results", str(folder)),
    }
    for name, words in commands.items():
        if name.startswith("run"):
            shutil.rmtree(cache_folder / "records", ignore_errors=True)
        first, *others = [run_command(*words) for _ in range(4)]
        seconds, memory = min(s for s, _, _ in others), max(mb for _, mb, _ in others)
        print(
            f"{name:26} first {first[0]:6.2f} s {first[1]:5.0f} MB   then {seconds:5.2f} s {memory:5.0f} MB"
        )


def main() -> None:
    words = {"what": {"choices": ["make", "measure"]}, "folder": {"type": Path}}
    options = read_options(__doc__ or "", words, records=50_000, cache="")
    if options.what == "make":
        return make_folder(options.folder, options.records)
    return measure_folder(options.folder, Path(options.cache or tempfile.mkdtemp()))


if __name__ == "__main__":
    main()
