"""One look at a source: what is new and whole, what is waited for, and what is passed over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.watch.sources import Checkpoint, Skipped, Source, open_source
from harness.watch.whole import SETTLE

if TYPE_CHECKING:
    from harness.watch.state import Entry, Watch


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A checkpoint that is whole; `former` is what is known of it if it was evaluated before."""

    checkpoint: Checkpoint
    stamp: str
    former: Entry | None = None


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A checkpoint that is waited for, and why; `settles` as in `whole.Condition`."""

    checkpoint: Checkpoint
    reason: str
    settles: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Look:
    """What a look found, each by step.

    `new` was never evaluated as it lies there now; `unfinished` was, partly or with a failure;
    `known` are the steps of which nothing is left to do.
    """

    new: tuple[Ready, ...]
    unfinished: tuple[Ready, ...]
    waiting: tuple[Waiting, ...]
    known: tuple[int, ...]
    skipped: tuple[Skipped, ...]

    @property
    def steps(self) -> tuple[int, ...]:
        """Every step that is there."""
        ready = [one.checkpoint.step for one in (*self.new, *self.unfinished)]
        return tuple(sorted([*ready, *(one.checkpoint.step for one in self.waiting), *self.known]))


def look(
    source: str | Source,
    watch: Watch | None = None,
    *,
    settle: float = SETTLE,
    offline: bool = False,
    own_code: bool = False,
) -> Look:
    """Look at a source once; nothing is evaluated or written, and torch is not needed.

    Args:
        source: A folder of checkpoints, or a hub repository.
        watch: What is known already.
        settle: Seconds for which nothing in a checkpoint may have changed.
        offline: Forbid the network.
        own_code: Whether code that a checkpoint brings may be run to describe it.

    Raises:
        UsageError: The source cannot be looked at.

    Example:
        >>> look("runs/mine").new  # doctest: +SKIP
    """
    opened = open_source(source, offline=offline) if isinstance(source, str) else source
    found, skipped = opened.found()
    new: list[Ready] = []
    unfinished: list[Ready] = []
    waiting: list[Waiting] = []
    known: list[int] = []
    for one in found:
        former = watch.entry(one.step) if watch is not None else None
        if former is not None and former.state != "waiting" and former.stamp == opened.stamp(one):
            if former.state == "done":
                known.append(one.step)
            else:
                unfinished.append(Ready(checkpoint=one, stamp=former.stamp, former=former))
            continue
        stands = opened.condition(one, settle=settle, own_code=own_code)
        if stands.problem:
            waiting.append(Waiting(checkpoint=one, reason=stands.problem, settles=stands.settles))
        else:
            new.append(Ready(checkpoint=one, stamp=stands.stamp))
    return Look(
        new=tuple(new),
        unfinished=tuple(unfinished),
        waiting=tuple(waiting),
        known=tuple(known),
        skipped=skipped,
    )
