"""The choice among runs as jobs: the best cell of a grid, and the MNLI model that others start from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from finetune.glue import outcome
from finetune.glue.checkpoints import Checkpoints
from finetune.glue.inputs import records_in
from finetune.glue.run import Finetune
from finetune.glue.selection import select, select_source
from finetune.glue.settings import Trial
from harness.desk import Desk, Event
from harness.errors import HarnessError
from harness.types import Task


@dataclass(frozen=True, kw_only=True)
class Select:
    """The best cell of a task's grid, from the records of its runs; gives it as JSON."""

    task: Task
    trials: tuple[Trial, ...]
    keys: tuple[str, ...]
    view: str

    def run(self, desk: Desk) -> Mapping[str, bytes]:
        """Choose, and show every cell."""
        records = records_in(desk, self.keys)
        tried = [
            outcome.tried_of(r, t, self.task, self.view) for r, t in zip(records, self.trials, strict=True)
        ]
        found = select(tried)
        told = {
            "chosen": tried.index(found.chosen),
            "maximum": found.maximum,
            "cells": outcome.cells_of(tried, records),
            "diverged": found.diverged,
            "constant": found.constant,
        }
        return {"selection": json.dumps(told).encode()}


@dataclass(frozen=True, kw_only=True)
class Source:
    """The MNLI run that others start from: the highest accuracy on the matched set; gives it as JSON."""

    runs: tuple[Finetune, ...]
    view: str

    def run(self, desk: Desk) -> Mapping[str, bytes]:
        """Choose."""
        records = records_in(desk, [run.key for run in self.runs])
        trials = [run.trials[0] for run in self.runs]
        tried = outcome.all_tried(records, trials, self.runs[0].task, self.view)
        chosen = select_source(tried).chosen
        run = self.runs[tried.index(chosen)]
        told = {"run": run.key, **outcome.cell_of(chosen.trial), "watched": chosen.watched}
        return {"source": json.dumps(told).encode()}


@dataclass(frozen=True, kw_only=True)
class Weights:
    """See that the weights of the chosen run are in the cache; it is run once more if they are gone."""

    runs: tuple[Finetune, ...]

    def run(self, desk: Desk) -> Mapping[str, bytes]:
        """Look for them; gives the choice once more, with what these weights score.

        Raises:
            HarnessError: The run diverges when it is run once more.
        """
        source = desk.input("source")
        kept = Checkpoints(folder=desk.cache / "finetuned")
        again = kept.find(source["run"], source["watched"]) is None
        if again:
            said = "the weights of the selected MNLI run are not in the cache: it is run once more"
            desk.emit(Event(kind="note", text=said))
            source["watched"] = self._remade(desk, kept, source["run"])
        return {"source": json.dumps({**source, "again": again}).encode()}

    def _remade(self, desk: Desk, kept: Checkpoints, key: str) -> float:
        from harness.record import parse

        run = next(run for run in self.runs if run.key == key)
        kept.forget(run.group or "")
        made = parse(run.run(desk)["record"].decode(), where="the run made once more")
        watched = made.training["watched"]
        if watched is None:
            raise HarnessError(
                "The selected MNLI run diverged when it was run once more.",
                hint="It did not when it was chosen: other hardware or threads? --mnli takes another model.",
            )
        return float(watched)
