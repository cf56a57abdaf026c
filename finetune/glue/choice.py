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


@dataclass(frozen=True, kw_only=True)
class Select:
    """The best cell of a task's grid, from the records of its runs; gives it as JSON."""

    trials: tuple[Trial, ...]
    keys: tuple[str, ...]
    view: str

    def run(self, desk: Desk) -> Mapping[str, bytes]:
        """Choose, and show every cell."""
        records = records_in(desk, self.keys)
        tried = [outcome.tried_of(r, t, self.view) for r, t in zip(records, self.trials, strict=True)]
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
    """The MNLI run that others start from; it is trained once more if its weights are gone."""

    runs: tuple[Finetune, ...]
    view: str

    def run(self, desk: Desk) -> Mapping[str, bytes]:
        """Choose by the accuracy on the matched set, and see that the weights are there."""
        records = records_in(desk, [run.key for run in self.runs])
        tried = [
            outcome.tried_of(r, run.trials[0], self.view) for r, run in zip(records, self.runs, strict=True)
        ]
        found = select_source(tried)
        run = self.runs[tried.index(found.chosen)]
        kept = Checkpoints(folder=desk.cache / "finetuned")
        again = kept.find(run.key) is None
        if again:
            desk.emit(
                Event(kind="note", text="the weights of the selected run are gone: it is run once more")
            )
            kept.forget(run.group or "")
            run.run(desk)
        if kept.find(run.key) is None:
            raise HarnessError(
                "The selected MNLI run diverged when it was run once more.",
                hint="Another run of the grid was better on this day: start with an empty cache and results.",
            )
        told = {"run": run.key, **outcome.cell_of(found.chosen.trial), "watched": found.chosen.watched}
        return {"source": json.dumps({**told, "again": again}).encode()}
