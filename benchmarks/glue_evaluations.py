"""How far the best of a run's evaluations errs upward, with glue-optibert on RTE and MRPC.

    python benchmarks/glue_evaluations.py --data FOLDER [--model minilm] [--results DIR]

Runs one cell of the recipe with three of its final seeds, from the backbone, and prints a line of JSON for
each task: the evaluations of each seed, whether patience ended it, the score (the best evaluation), the last
and the cross-fitted evaluation, and what the score lies above each.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

from measuring import read_options

import harness
from finetune.glue.plan import entry
from finetune.glue.settings import Grid
from finetune.recipes import glue_optibert
from harness.plan import catalog
from stored_records import iter_records

CELL = Grid(learning_rates=(3e-5,), batch_sizes=(16,), weight_decays=(1e-2,), epochs=(10,), seeds=(1, 2, 3))
PROTOCOL = replace(
    glue_optibert.PROTOCOL,
    name="glue-optibert-cell",
    grids=dict.fromkeys(("RTE", "MRPC"), CELL),
    selection="none",
    final_seeds=(),
    variants={},
)


def main() -> None:
    """Run both tasks and print a line for each."""
    asked = read_options(
        __doc__,
        data=Path,
        model="minilm",
        results=Path(tempfile.mkdtemp()),
        threads=2,
        tasks={"nargs": "+", "default": [*PROTOCOL.grids]},
    )
    entries = {PROTOCOL.name: entry(PROTOCOL, "one cell of glue-optibert")}
    catalog.load_recipe_entries = lambda: entries  # type: ignore[assignment]
    for task in asked.tasks:
        report = harness.run(
            asked.model, "glue", tasks=(task,), recipe=PROTOCOL.name, transfer=False, data=asked.data,
            results=asked.results, cache=asked.results / "cache", threads=asked.threads, workers=1,
        )  # fmt: skip
        (suite,) = report.to_json()["suites"]
        row = next(one for one in suite["standing"]["tasks"] if one["task"] == task)
        record = next(one for one in report.records if one.task.name == task)
        kept = {run.key: run for run in iter_records(report.prepared.store, purpose="trial")}
        runs = [kept[key].training for key in record.training["seeds"]["keys"]]
        print(
            json.dumps(
                {
                    "task": task,
                    "evaluations": record.training["evaluation"]["evaluations"],
                    "ended_by_patience": [run["steps"]["done"] < run["steps"]["asked"] for run in runs],
                    "score": row["score"],
                    "last": row["last"],
                    "cross_fitted": row["cross_fitted"],
                    "above_last": row["score"] - row["last"],
                    "above_cross_fitted": row["score"] - row["cross_fitted"],
                    "half_interval": (row["interval"][1] - row["interval"][0]) / 2,
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
