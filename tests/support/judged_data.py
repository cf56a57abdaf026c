"""Checks and watches of a small site, in its results folder.

`put_checks` writes two model lines: 26 nightly checks against the baseline `release`, the newest of
which regressed, of models that the site has (`minilm-ish` against `acme/tiny-base`), and one check
against a model that it does not have. `put_watches` writes a watch whose level dropped once,
`put_compared_runs` a comparison of two runs and a fit of each law.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from check_data import TASKS, small_check
from fakes import artifact, record, task
from harness.checks.outcome import Check, CheckedModel, MeanOutcome, Overall
from harness.fits.fitting import FitSettings, fit_law
from harness.fits.runs import LAWS, Runs
from harness.fits.stored import FITS, StoredFit
from harness.storage.record import Record
from harness.storage.store import Store
from harness.watch.curves import CURVES, Row, RunTable, build_curves
from harness.watch.grids import GRIDS, RunGrid, build_grid
from harness.watch.state import WATCHES, ChangePoint, Watch
from harness.watch.state import WatchEntry as Checkpoint

NIGHTS = 26
OLDEST, NEWEST = "20260103T030405-00000000000a", "20260128T030405-000000000019"
"""The names of the first and of the last nightly check."""


def nightly(number: int) -> Check:
    """The check of a night, from 0: the last one regressed, and every seventh could tell nothing."""
    delta = -0.015 if number == NIGHTS - 1 else 0.0005 * (number % 5 - 2)
    half = 0.012 if number % 7 == 6 else 0.003
    verdict: Overall = "regressed" if delta < -0.01 else "inconclusive" if number % 7 == 6 else "passed"
    last = number == NIGHTS - 1
    mean = MeanOutcome(
        suite="nanobeir", verdict=verdict, candidate=0.74 + delta, baseline=0.74, delta=delta,
        low=delta - half, high=delta + half, p=0.001, margin=0.005, detectable=0.004, there=13, wanted=13,
    )  # fmt: skip
    return small_check(
        id=f"{number if number else 10:012x}",
        when=f"2026-01-{number + 3:02}T03:04:05+00:00",
        candidate=CheckedModel(name="minilm-ish", source=f"runs/night-{number:02}", artifacts=("a" * 64,)),
        baseline=CheckedModel(name="tiny-base", source="release", artifacts=("b" * 64,), baseline="release"),
        suites=("nanobeir",),
        overall=verdict,
        exit_code={"regressed": 1, "inconclusive": 3}.get(verdict, 0),
        because=small_check().because if last else (f"The mean over nanobeir is {verdict}.",),
        tasks=TASKS if last else tuple(replace(t, verdict="passed") for t in TASKS[1:2]),
        means=(mean,),
        warnings=small_check().warnings if last else (),
    )


def put_checks(results: Path) -> None:
    """Write the checks that the module's docstring names."""
    for number in range(NIGHTS):
        nightly(number).write(results)
    lone = CheckedModel(
        name="acme/elsewhere", source="acme/elsewhere", artifacts=("f" * 64,), revision="1" * 40
    )
    better = replace(small_check().means[0], verdict="improved", delta=0.015, low=0.008, high=0.022)
    lone_check = small_check(baseline=lone, overall="improved", exit_code=0, warnings=(), means=(better,))
    lone_check.write(results)


def checkpoint(step: int, mean: float | None, **more: object) -> Checkpoint:
    """A complete checkpoint, or with changes another one."""
    scores = {} if mean is None else {"NFCorpus": mean - 0.05, "SciFact": mean + 0.05}
    found = Checkpoint(
        step=step, name=f"step{step}", folder=f"/runs/base/step{step}", state="done", model=f"base-{step}",
        artifact=f"{step:012}" + 52 * "0", scores=scores, mean=mean, there=2, wanted=2, treatment="t" * 64,
        evaluated=f"2026-02-01T{step // 1000:02}:00:00.000+00:00", seconds=61.5,
    )  # fmt: skip
    return found.model_copy(update=more)


def small_watch(name: str = "base-run") -> Watch:
    """A watch of 14 checkpoints: a drop, an incomplete one, one measured otherwise, two without scores."""
    means = [0.21, 0.28, 0.32, 0.345, 0.36, 0.372, 0.381, 0.352, 0.356, 0.361]
    done = [checkpoint(1000 * at, mean) for at, mean in enumerate(means, 1)]
    done[0] = checkpoint(1000, means[0], treatment="u" * 64)
    rest = (
        checkpoint(11000, None, state="partial", reason="not reached within the budget: SciFact",
                   scores={"NFCorpus": 0.31}, there=1),
        checkpoint(12000, 0.37, artifact="a" * 64, model="minilm-ish"),
        checkpoint(13000, None, state="failed", reason="SciFact: <b>no</b> data", scores={}, there=0),
        checkpoint(14000, None, state="waiting", reason="it changed 3 s ago", scores={}, there=0, wanted=0,
                   artifact="", evaluated="", seconds=0.0),
    )  # fmt: skip
    drop = ChangePoint(step=8000, last=8000, kind="shift", size=0.034, p=0.0005)
    return Watch(
        name=name, source="/runs/base", suite="nanobeir", request={"suites": ["nanobeir"]},
        checkpoints=(*done, *rest), change_points=(drop,),
    )  # fmt: skip


def put_records(results: Path, watch: Watch) -> Watch:
    """Write a record for every score of a watch; the watch with their keys."""
    return watch.model_copy(
        update={"checkpoints": tuple(_put_entry_records(results, one) for one in watch.checkpoints)}
    )


def _put_entry_records(results: Path, entry: Checkpoint) -> Checkpoint:
    model = artifact(Path(entry.name), key=entry.artifact, name=entry.model)
    model = replace(model, weights=entry.artifact)
    records = {name: record(task(name), score, model=model) for name, score in entry.scores.items()}
    for one in records.values():
        Store(results).put(model.slug, one)
    return entry.model_copy(update={"records": {name: one.key for name, one in records.items()}})


def rescore(record: Record, score: float) -> Record:
    """A record with another score, which its digest and its raw metrics confirm."""
    scores = {"test": {"default": {"main_score": score}}}
    return record.model_copy(update={"main_score": score, "scores": scores})


def put_watch(results: Path, watch: Watch) -> Watch:
    """Write a watch and the records of its scores; the watch with their keys."""
    watch = put_records(results, watch)
    WATCHES.write_document(results, watch.name, watch)
    return watch


def put_watches(results: Path) -> None:
    """Write the watch."""
    put_watch(results, small_watch())


@cache
def build_fits() -> tuple[StoredFit, ...]:
    """A fit of each law to the runs of two methods."""
    flops, factor = (each.ravel() for each in np.meshgrid([1e15, 4e15, 1.6e16, 6.4e16], [0.25, 0.5, 1, 2, 4]))
    size = 2e7 * factor * (flops / 4e15) ** 0.5
    tokens, numbers = flops / 6 / size, np.arange(len(size))
    loss = (1.7 + 400 / size**0.34 + 410 / tokens**0.28) * (1 + 0.001 * np.sin(7 * numbers))
    others = {"batch": flops**0.24 * (1 + numbers / 1000), "trainable": 0.2 + 0.1 * (numbers % 7)}
    others["score"] = 0.9 - 0.1 * loss + 0.002 * np.cos(5 * numbers)
    numbers = {"size": size, "tokens": tokens, "flops": flops, "loss": loss, **others}
    columns = {name: np.tile(values, 2) for name, values in numbers.items()}
    columns["loss"][len(size) :] *= 1.2 * (flops / 1e15) ** -0.09
    runs = Runs(columns={**columns, "method": np.repeat(("full", "lora"), len(size))})
    frozen = 400 * (1 - runs["trainable"]) ** 1.5 / runs["tokens"] ** 0.28
    frozen_runs = runs.add_columns(loss=runs["loss"] + frozen)
    settings = FitSettings(resamples=100, starts=2)
    return tuple(fit_law(law, frozen_runs if law == "finetune" else runs, settings, law) for law in LAWS)


def compare_two_runs() -> RunTable:
    """A comparison of two runs of three seeds, and of a seed that diverged at once."""
    rows: list[Row] = [
        {
            "run": run,
            "seed": seed,
            "step": step,
            "tokens": 1000.0 * step,
            "score": 0.6 + 0.01 * seed - 1.5 / (speed * step) ** 0.5,
        }
        for run, speed in (("fast", 2), ("slow", 1))
        for seed in (1, 2, 3)
        for step in (100, 200, 400, 800)
    ]
    rows.append({"run": "slow", "seed": 4, "step": 100, "tokens": 1e5, "score": float("nan")})
    column, curves = build_curves(rows, "step")
    return RunTable.from_rows(rows, column, curves, name="two-runs", axis="step")


def build_small_grid() -> RunGrid:
    """Six runs of two facts, in four cells of which one is empty."""
    rows: list[Row] = [
        {"run": n, "masking": masking, "tokens": 1e9 * tokens, "score": 0.5 + n / 100}
        for n, (masking, tokens) in enumerate(
            ((0.15, 1), (0.15, 2), (0.15, 3), (0.4, 1), (0.4, 1.5), (0.4, 1))
        )
    ]
    return build_grid(rows, ["masking", "tokens=1e9:2e9:3e9"], name="six-runs")


def put_compared_runs(results: Path) -> None:
    """Write the comparison, the grid and the fits."""
    CURVES.write_document(results, "two-runs", compare_two_runs())
    GRIDS.write_document(results, "six-runs", build_small_grid())
    for fit in build_fits():
        FITS.write_document(results, fit.name, fit)
