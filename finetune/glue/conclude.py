"""The score of a task as a job: a record made of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from finetune.glue import outcome
from finetune.glue.inputs import examples_in, records_in
from finetune.glue.settings import Trial
from harness import provenance
from harness.conventions import raw
from harness.desk import Desk
from harness.errors import HarnessError
from harness.jobs import examples_bytes, examples_part, record_output, task_part
from harness.types import Task

if TYPE_CHECKING:
    from harness.record import Record

Kind = Literal["fresh", "final", "protocol", "maximum"]
"""What the seeds behind a score are."""


@dataclass(frozen=True, kw_only=True)
class Conclude:
    """A task's score: the mean over the seeds that count, with all that was tried on the way.

    Attributes:
        seeds: The keys of the runs that count.
        kind: "fresh" seeds of ours at the chosen cell, the protocol's own "final" ones there, all
            runs of a "protocol" that chooses nothing, or the grid's "maximum".
        told: What the record says of the recipe.
    """

    task: Task
    trials: tuple[Trial, ...]
    runs: tuple[str, ...]
    seeds: tuple[str, ...]
    kind: Kind
    view: str
    key: str
    identity: Mapping[str, Any]
    told: Mapping[str, Any]

    def run(self, desk: Desk) -> Mapping[str, bytes]:
        """Put the runs together.

        Raises:
            HarnessError: All runs that count diverged.
        """
        from harness.record import Record

        started = datetime.now(tz=UTC)
        selection = desk.input("selection") or self._unselected(desk)
        chosen = (self.runs[selection["chosen"]],) if self.kind == "maximum" else ()
        counted = records_in(desk, self.seeds or chosen)
        whole = [record for record in counted if not record.training["diverged"]]
        if not whole:
            raise HarnessError(f"All {len(counted)} runs of the chosen cell diverged.")
        metrics = outcome.means_of(whole)
        columns = outcome.together([examples_in(desk, record.key) for record in whole])
        examples = examples_bytes(columns)
        record = Record(
            key=self.key,
            status="done",
            model=whole[0].model,
            task=task_part(self.task),
            identity=self.identity,
            main_score=outcome.number(self.task, self.view, metrics),
            scores=outcome.scores_of(self.task, metrics),
            examples=examples_part(columns, examples),
            training=self._training(desk, selection, counted),
            provenance={
                **provenance.snapshot(device=desk.device, threads=desk.threads, started=started),
                "notes": self._notes(counted),
                "seconds": {"train": round(self._seconds(desk, counted), 3)},
            },
        )
        return record_output(record, examples)

    def _training(
        self, desk: Desk, selection: Mapping[str, Any], counted: Sequence[Record]
    ) -> dict[str, Any]:
        cell = outcome.cell_of(self.trials[selection["chosen"]])
        scores = [self._score(record) for record in counted]
        return {
            **self.told,
            "source": desk.input("source") or None,
            "chosen": None if self.kind == "protocol" else cell,
            "grid_maximum": selection["maximum"],
            "cells": selection["cells"],
            "diverged": selection["diverged"],
            "constant": selection["constant"],
            "seeds": {
                "kind": self.kind,
                "seeds": [record.training["trial"]["seed"] for record in counted],
                "keys": [record.key for record in counted],
                "scores": scores,
                "standard_deviation": outcome.spread([score for score in scores if score is not None]),
                "diverged": sum(record.training["diverged"] for record in counted),
                "constant": sum(record.training["constant"] for record in counted),
            },
        }

    def _score(self, record: Record) -> float | None:
        """By this recipe's view; another recipe may have made the run by its own."""
        if record.training["diverged"]:
            return None
        return outcome.choosing(self.task, self.view, raw(record))

    def _notes(self, counted: Sequence[Record]) -> list[str]:
        notes = [note for record in counted for note in record.provenance.get("notes", ())]
        lost = sum(record.training["diverged"] for record in counted)
        if lost:
            notes.append(f"{lost} of {len(counted)} seeds diverged: the mean is over the rest")
        return [*dict.fromkeys(notes)]

    def _seconds(self, desk: Desk, counted: Sequence[Record]) -> float:
        """Of every run behind the score, each once."""
        found = {r.key: r for r in (*records_in(desk, self.runs), *counted)}
        return float(sum(record.provenance["seconds"]["train"] for record in found.values()))

    def _unselected(self, desk: Desk) -> dict[str, Any]:
        """The runs of a protocol that chooses nothing, shown as those of a grid are."""
        records = records_in(desk, self.runs)
        tried = [
            outcome.tried_of(r, t, self.task, self.view) for r, t in zip(records, self.trials, strict=True)
        ]
        scores = [one.score for one in tried if one.score is not None]
        return {
            "chosen": 0,
            "maximum": max(scores, default=None),
            "cells": outcome.cells_of(tried, records),
            "diverged": sum(one.diverged for one in tried),
            "constant": sum(one.constant for one in tried),
        }
