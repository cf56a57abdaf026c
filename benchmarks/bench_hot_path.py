"""From the names of a model and a suite to the keys of all its tasks, beside importing numpy and scipy.

    python benchmarks/bench_hot_path.py --suite mteb

Whole processes are timed, in turns: one that does nothing, one that imports numpy and scipy, and one
that has imported click, the command line and numpy, and then finds every key of the suite and where
its records would lie. All of them find their bytecode written, as an installed program does, and the
model's content hashed. `--model` is a name or a folder, `--recipe` is for a suite with labels.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from measuring import in_turns, read_options

BAR = 1.6
"""How many times the import of numpy and scipy the path may take."""

KEYS = """
import sys
from harness.core import files
from harness.plan import catalog
from harness.data.locate import DataSettings
from harness.core.encoding import Settings
from harness.plan.models import ModelOptions, resolve_model
from harness.storage.store import Store
from harness.core.types import SuiteOptions
from harness.plan.plan import plan_scores

model, suite, recipe = sys.argv[1:4]
cache = files.resolve_cache_folder()
opened = catalog.open_suite(suite, SuiteOptions(cache=cache))
planned = resolve_model(model, Settings(), ModelOptions(cache=cache))
trained = catalog.open_recipe(recipe) if recipe else None
asked = plan_scores([planned], [opened], settings=DataSettings(cache=cache), recipe=trained)
store = Store(files.resolve_results_folder())
paths = [store.locate_record(c.subject.artifact.slug, c.task.name, c.key) for c in asked.cells]
"""
"""A process that gets the keys of a model (or a folder) on a suite, by a recipe unless it is empty."""


def process(code: str, *arguments: str, bytecode: str) -> str:
    """What a process prints that finds its bytecode in a folder, or leaves it there."""
    own = {"PYTHONPYCACHEPREFIX": bytecode, "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, check=True)
    return done.stdout


def main() -> int:
    """Print the table; 1 if the bar is missed."""
    given = read_options(__doc__, model="minilm", suite="mteb", recipe="", repeats=25)
    imports = {"nothing": "pass", "numpy, scipy": "import numpy, scipy"}
    path = f"import click, harness.cli, numpy\n{KEYS}\nprint(len(asked.cells))"
    with tempfile.TemporaryDirectory() as folder:
        bytecode = str(Path(folder) / "bytecode")
        os.environ.setdefault("HARNESS_CACHE", str(Path(folder) / "cache"))
        runs: dict[str, Callable[[], str]] = {
            name: partial(process, code, bytecode=bytecode) for name, code in imports.items()
        }
        asked = (given.model, given.suite, given.recipe)
        runs["the path"] = partial(process, path, *asked, bytecode=bytecode)
        in_turns(runs, 1)
        seconds, told = in_turns(runs, given.repeats)
    for name, taken in seconds.items():
        print(f"{name:14}{1000 * taken:7.0f} ms")
    ratio = seconds["the path"] / seconds["numpy, scipy"]
    print(f"{told['the path'].strip()} keys of {given.model} on {given.suite}: {ratio:.2f} (bar {BAR})")
    return 0 if ratio <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
