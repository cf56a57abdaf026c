"""The choice among a grid's runs: the best cell of a task, and the MNLI model that others start from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from finetune.glue.settings import Trial
from harness.errors import HarnessError


@dataclass(frozen=True, kw_only=True)
class Tried:
    """A run that has ended.

    Attributes:
        trial: What was run.
        score: The task's number by the protocol's own view; None if the run diverged.
        watched: The metric of early stopping, for MNLI the accuracy on the matched set; None likewise.
        constant: Whether it predicts one and the same for every row.
    """

    trial: Trial
    score: float | None
    watched: float | None
    constant: bool = False

    @property
    def diverged(self) -> bool:
        """Whether a loss was not finite."""
        return self.score is None


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What a grid gave.

    Attributes:
        chosen: The run with the best score, the first of those that share it.
        diverged: How many of them diverged.
        constant: How many predict one and the same for every row.
    """

    chosen: Tried
    diverged: int
    constant: int

    @property
    def maximum(self) -> float:
        """The best score: chosen on the rows it is measured on, so it errs upward."""
        assert self.chosen.score is not None
        return self.chosen.score


def select(tried: Sequence[Tried]) -> Selection:
    """The best cell of a task's grid.

    Raises:
        HarnessError: If every run diverged.
    """
    return _by([run.score for run in tried], tried)


def select_source(tried: Sequence[Tried]) -> Selection:
    """The MNLI run that others start from: the highest accuracy on the matched set; errors as `select`."""
    return _by([run.watched for run in tried], tried)


def _by(values: Sequence[float | None], tried: Sequence[Tried]) -> Selection:
    known = [(value, -at) for at, value in enumerate(values) if value is not None]
    if not known:
        raise HarnessError(
            f"All {len(tried)} runs of the grid diverged: no loss stayed finite.",
            hint="See that the backbone is whole, or run it in float32.",
        )
    return Selection(
        chosen=tried[-max(known)[1]],
        diverged=sum(run.diverged for run in tried),
        constant=sum(run.constant for run in tried),
    )
