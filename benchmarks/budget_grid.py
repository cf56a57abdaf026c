"""Two tiny backbones trained by three methods within three budgets, the largest predicted by the others.

    python benchmarks/budget_grid.py --source FOLDER [--results DIR]

Trains on pairs of docstring and body of the Python source in a folder, one command a method; what is trained
is not trained again. Prints the losses of each backbone and method, and that of the largest budget as it is
predicted, with the 95 % interval of a single run: lines of ln loss over ln budget with one slope for all.
"""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from measuring import format_table, make_model, read_options
from scipy.stats import t as student

from harness.watch.runs import list_run_rows

BUDGETS = (5e8, 2e9, 8e9)
METHODS = {"full": ["learning_rate=1e-3"], "lora": ["rank=8"], "bias": []}
SETTINGS = ("batch_size=16", "chunk=16", "max_length=32")
BACKBONES = ("bert-base", "roberta-base")


def predict_losses(budgets: np.ndarray, losses: np.ndarray, at: float) -> np.ndarray:
    """Prediction and interval of a run of a further budget, shape (groups, 3).

    Args:
        budgets: Those of the runs, shape (budgets,).
        losses: Theirs, shape (groups, budgets).
        at: The further budget.
    """
    groups, count = losses.shape
    design = np.hstack(
        [np.kron(np.eye(groups), np.ones((count, 1))), np.tile(np.log(budgets), groups)[:, None]]
    )
    fitted, _, _, _ = np.linalg.lstsq(design, np.log(losses).ravel())
    freedom = len(design) - groups - 1
    deviation = math.sqrt(((np.log(losses).ravel() - design @ fitted) ** 2).sum() / freedom)
    points = np.hstack([np.eye(groups), np.full((groups, 1), math.log(at))])
    spread = np.sqrt(1 + np.einsum("ij,jk,ik->i", points, np.linalg.inv(design.T @ design), points))
    half = student.ppf(0.975, freedom) * deviation * spread
    return np.exp(points @ fitted + np.outer([0, -1, 1], half)).T


def main() -> int:
    given = read_options(__doc__, source=Path, results=Path(tempfile.mkdtemp()))
    began = time.perf_counter()
    models = [str(make_model(name, given.results / name, tiny=True)) for name in BACKBONES]
    places = [
        "--results",
        str(given.results / "results"),
        "--cache",
        str(given.results / "cache"),
        "--offline",
    ]
    for method, settings in METHODS.items():
        command = [sys.executable, "-m", "harness", "train", "--recipe", f"efficient-{method}", *places]
        command += ["--budget", ",".join(f"{budget:g}" for budget in BUDGETS)]
        command += ["--train-data", f"code:{given.source}", "--threads", "1"]
        command += [part for model in models for part in ("--model", model)]
        command += [part for setting in (*settings, *SETTINGS) for part in ("--set", setting)]
        subprocess.run(command, check=True, stdout=sys.stderr)
    rows = list_run_rows(given.results / "results", given.results / "cache")
    losses: dict[tuple[str, str], dict[float, float]] = {}
    for row in rows:
        method = str(row["method"]).partition(",")[0].removeprefix("efficient-")
        budget = min(BUDGETS, key=lambda budget: abs(math.log(budget / row["operations"])))
        losses.setdefault((str(row["model"]).partition("-efficient")[0], method), {})[budget] = row["loss"]
    table = np.array([[runs[budget] for budget in BUDGETS] for runs in losses.values()])
    predicted = predict_losses(np.array(BUDGETS[:-1]), table[:, :-1], BUDGETS[-1])
    lines = [
        (*group, *(f"{loss:.3f}" for loss in measured), f"{value:.3f} ({low:.3f} to {high:.3f})")
        for group, measured, (value, low, high) in zip(losses, table, predicted, strict=True)
    ]
    heads = ("backbone", "method", *(f"loss at {budget:g}" for budget in BUDGETS), "predicted for the last")
    print(format_table(heads, lines))
    held = ((predicted[:, 1] <= table[:, -1]) & (table[:, -1] <= predicted[:, 2])).sum()
    print(f"{held} of {len(table)} intervals hold the loss; {time.perf_counter() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
