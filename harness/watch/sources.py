"""Where checkpoints come from: a folder with one folder each, or the revisions of a hub repository."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness import paths
from harness.errors import UsageError
from harness.resolve import HUB_ID
from harness.watch.steps import step_of, unfinished
from harness.watch.whole import Condition


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One checkpoint: its step, what it is called, and how it is spelled as a model.

    `name` is a folder's or a revision's; `folder` is None on the hub, where `commit` is set.
    """

    step: int
    name: str
    model: str
    folder: Path | None = None
    commit: str = ""


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """Something in a source that is no checkpoint, and why."""

    name: str
    reason: str


Found = tuple[tuple[Checkpoint, ...], tuple[Skipped, ...]]


class Source(Protocol):
    """What is watched.

    `text` is how the source is written into the state of a watch; `name` the watch's usual name.
    """

    text: str
    name: str

    def found(self) -> Found:
        """The checkpoints that are there now, by step, and what is skipped."""

    def condition(self, one: Checkpoint, *, settle: float, own_code: bool) -> Condition:
        """Whether a checkpoint is whole."""

    def stamp(self, one: Checkpoint) -> str:
        """What a whole checkpoint's condition has as `stamp`, without a look at whether it is whole."""

    def label(self, one: Checkpoint) -> str:
        """What a checkpoint is to be called as a model; "" for what it is called anyway."""


def open_source(text: str, *, offline: bool = False) -> Source:
    """What is to be watched, of how it was typed.

    Raises:
        UsageError: It is neither a folder nor a hub repository, or a hub without a network.
    """
    from harness.watch.folders import Folder
    from harness.watch.revisions import Hub

    folder = paths.expanded(text)
    if folder.is_dir():
        return Folder(folder)
    if folder.exists():
        raise UsageError(f"{text} is a file.", hint="Watch the folder that checkpoints are written into.")
    if text.startswith((".", "/", "~")) or not HUB_ID.match(text):
        raise UsageError(
            f"No folder is at {text}, and it is no name of a hub repository.",
            hint=f"Give a folder (`mkdir {text}` makes one before training begins), or org/name.",
        )
    if "@" in text:
        raise UsageError(
            f"{text} names one revision; a watch is over all of them.",
            hint=f"Type harness watch {text.partition('@')[0]}, or harness run --model {text}.",
        )
    if offline:
        raise UsageError(
            f"{text} is a hub repository (no folder lies there): --offline cannot see its revisions.",
            hint="Leave out --offline, or give a folder.",
        )
    return Hub(text)


def by_step(named: Iterable[tuple[str, Path | None]]) -> Found:
    """What has a step in its name, by step, of names and the folders of their models (None on the hub)."""
    found: dict[int, Checkpoint] = {}
    skipped: list[Skipped] = []
    for name, path in named:
        step = step_of(name)
        if unfinished(name):
            skipped.append(Skipped(name=name, reason="a name for what is being written"))
        elif step is None:
            skipped.append(Skipped(name=name, reason="no step in its name"))
        elif step in found:
            skipped.append(Skipped(name=name, reason=f"step {step}, as {found[step].name}"))
        else:
            found[step] = Checkpoint(step=step, name=name, model=str(path or name), folder=path)
    return tuple(found[step] for step in sorted(found)), tuple(skipped)
