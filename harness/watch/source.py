"""Sources of checkpoints, a folder or a hub repository: steps by names, completeness by files alone."""

from __future__ import annotations

import re
import time
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from harness.core import files
from harness.core.errors import ModelError, UsageError
from harness.core.keys import digest
from harness.encoder.folder.description import describe, list_content_files
from harness.encoder.folder.files import read_json
from harness.encoder.folder.modules_and_pooling import weight_files
from harness.plan.models import ModelOptions, is_hub_name, link_adapters


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint: step, name, and spelling as a model; `commit` is set on the hub, `folder` elsewhere."""

    step: int
    name: str
    model: str
    folder: Path | None = None
    commit: str = ""


@dataclass(frozen=True, kw_only=True)
class SkippedEntry:
    """An entry of a source that is not a checkpoint, and the reason."""

    name: str
    reason: str


Found = tuple[tuple[Checkpoint, ...], tuple[SkippedEntry, ...]]


class CheckpointSource(Protocol):
    """A source; `text` is its spelling in the state of a watch, `name` the watch's usual name."""

    text: str
    name: str

    def list_checkpoints(self) -> Found:
        """The checkpoints that are there now, by step, and the skipped entries."""

    def check_condition(self, checkpoint: Checkpoint, *, settle: float, own_code: bool) -> _Condition:
        """The condition of a checkpoint: complete, settling, or incomplete.

        Args:
            checkpoint: The checkpoint.
            settle: Seconds for which nothing in it may have changed.
            own_code: Whether code of its own repository may run to describe it.
        """

    def compute_stamp(self, checkpoint: Checkpoint) -> str:
        """The stamp of a complete checkpoint, without checking whether it is complete."""

    def format_model_label(self, checkpoint: Checkpoint) -> str:
        """The name of a checkpoint as a model; "" for the model's own name."""


def open_source(text: str, *, offline: bool = False, cache: Path | None = None) -> CheckpointSource:
    """The source of checkpoints that a text names; adapters are laid out in `cache`, None for the default.

    Raises:
        UsageError: It is neither a folder nor a hub repository, or a hub repository without a network.
    """
    folder = files.resolve_home_path(text)
    if folder.is_dir():
        return _Folder(folder, ModelOptions(offline=offline, cache=cache))
    if folder.exists():
        raise UsageError(f"{text} is a file.", hint="Watch the folder that checkpoints are written into.")
    if not is_hub_name(text):
        raise UsageError(
            f"No folder is at {text}, and it is not the name of a hub repository.",
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
    return _Hub(text)


LARGEST_STEP = 2**53
"""The site draws curves in JavaScript, whose whole numbers are exact up to here."""


def _parse_entries(named: Iterable[tuple[str, Path | None]]) -> Found:
    """The checkpoints by step, and skipped entries, from names and model folders (None on the hub)."""
    checkpoints: dict[int, Checkpoint] = {}
    skipped: list[SkippedEntry] = []
    for name, path in named:
        step = _step_of(name)
        if _is_temporary(name):
            skipped.append(SkippedEntry(name=name, reason="a name for what is being written"))
        elif step is None:
            skipped.append(SkippedEntry(name=name, reason="no step in its name"))
        elif step > LARGEST_STEP:
            skipped.append(SkippedEntry(name=name, reason="the number in its name is too large for a step"))
        elif step in checkpoints:
            skipped.append(SkippedEntry(name=name, reason=f"step {step}, as {checkpoints[step].name}"))
        else:
            checkpoints[step] = Checkpoint(step=step, name=name, model=str(path or name), folder=path)
    return tuple(checkpoints[step] for step in sorted(checkpoints)), tuple(skipped)


class _Folder:
    """A folder into which a training run writes, one folder for each checkpoint."""

    def __init__(self, folder: Path, options: ModelOptions) -> None:
        self._folder, self._options = folder.resolve(), options
        self.text = str(self._folder)
        self.name = self._folder.name

    def list_checkpoints(self) -> Found:
        """The folders with a step in their name; files and hidden folders are skipped."""
        try:
            below = sorted(p for p in self._folder.iterdir() if p.is_dir() and not p.name.startswith("."))
        except OSError as error:
            raise UsageError(f"{self._folder} cannot be read: {error.strerror}.") from error
        if not below and (self._folder / "config.json").is_file():
            raise UsageError(
                f"{self._folder} is one model, not a folder of checkpoints.",
                hint=f"Type harness watch {self._folder.parent}, or harness run --model {self._folder}.",
            )
        return _parse_entries((path.name, _find_model_folder(path)) for path in below)

    def check_condition(self, checkpoint: Checkpoint, *, settle: float, own_code: bool) -> _Condition:
        """The condition of a checkpoint by its files."""
        assert checkpoint.folder is not None
        return _check_checkpoint(checkpoint.folder, self._options, settle=settle, own_code=own_code)

    def compute_stamp(self, checkpoint: Checkpoint) -> str:
        """The stamp of sizes and times of files."""
        assert checkpoint.folder is not None
        try:
            # Without the hub, which every look would ask for the base model of every adapter.
            laid = link_adapters(checkpoint.folder, replace(self._options, offline=True))
            return _compute_folder_stamp(checkpoint.folder, laid)
        # Without a complete model.
        except (ModelError, OSError):
            return ""

    def format_model_label(self, checkpoint: Checkpoint) -> str:
        """The checkpoint's name behind the run's, as every run has a checkpoint-1000."""
        return f"{self.name}-{checkpoint.name}"


def _find_model_folder(path: Path) -> Path:
    """The folder of a checkpoint's model: itself, or its only folder with a config (e.g. hf/)."""
    if any((path / name).exists() for name in ("config.json", "modules.json")):
        return path
    below = list(_iter_config_folders(path))
    named = [p for p in below if p.name in ("hf", "huggingface", "hf_model")]
    # Of several folders with a config none is chosen by guessing; the checkpoint is then described as it lies
    # there.
    return (named or below or [path])[0] if len(named or below) <= 1 else path


def _iter_config_folders(path: Path) -> Iterator[Path]:
    try:
        for below in sorted(path.iterdir()):
            if any((below / name).is_file() for name in ("config.json", "modules.json")):
                yield below
    except OSError:
        return


class _Hub:
    """A hub repository whose branches and tags are checkpoints, each pinned to its commit."""

    def __init__(self, repository: str) -> None:
        self.text = repository
        self.name = repository.replace("/", "--")

    def list_checkpoints(self) -> Found:
        """The branches and tags with a step in their name."""
        refs = _fetch_refs(self.text)
        # Tags come last, so that in reverse a branch replaces the tag of its name.
        commits = dict(reversed(refs))
        checkpoints, skipped = _parse_entries((name, None) for name in sorted(commits))
        pinned = (
            Checkpoint(
                step=c.step, name=c.name, model=f"{self.text}@{commits[c.name]}", commit=commits[c.name]
            )
            for c in checkpoints
        )
        return tuple(pinned), skipped

    def check_condition(self, checkpoint: Checkpoint, *, settle: float, own_code: bool) -> _Condition:
        """A complete checkpoint: a commit is never half written."""
        return _Condition(stamp=checkpoint.commit)

    def compute_stamp(self, checkpoint: Checkpoint) -> str:
        """The commit."""
        return checkpoint.commit

    def format_model_label(self, checkpoint: Checkpoint) -> str:
        """No name of its own: a record names the revision beside the model."""
        return ""


def _fetch_refs(repository: str) -> list[tuple[str, str]]:
    """The names and commits of a repository's branches, then of its tags."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HTTPError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )

    try:
        refs = HfApi().list_repo_refs(repository)
    except RepositoryNotFoundError as error:
        raise ModelError(
            f"The hub has no model {repository}, or it is private; and no folder lies there.",
            hint="Check the spelling; for a private one set HF_TOKEN.",
        ) from error
    except OfflineModeIsEnabled as error:
        raise UsageError(
            f"{repository} is a hub repository (no folder lies there), and HF_HUB_OFFLINE is set.",
            hint="Unset it, or give a folder.",
        ) from error
    except (HfHubHTTPError, HTTPError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise _HubSilent(
            f"No folder is at {repository}, and the hub does not tell its revisions: {reason}.",
            hint="Check the path of the folder; a repository of the hub needs the network.",
        ) from error
    return [(ref.name, ref.target_commit) for ref in (*refs.branches, *refs.tags)]


class _HubSilent(ModelError):
    """An error for a hub that does not answer: a watch asks again at its next scan."""


WORDS = ("step", "steps", "iter", "iteration", "ba", "batch", "checkpoint", "ckpt", "epoch")
"""Words in front of a step; if a name has several, the first of this list decides."""

_NUMBER = r"(?P<number>\d+(?:\.\d+(?=[kmKM]))?)(?P<unit>[kmKM]?)(?![A-Za-z0-9])"
_LAST = re.compile(r"(?:^|[^A-Za-z0-9.])(?P<number>\d+)(?P<unit>[kmKM]?)(?:[-_]?(?:hf|steps?))?$")
_UNITS = {"": 1, "k": 1_000, "m": 1_000_000}
_UNFINISHED = re.compile(r"^\.|^te?mp(?![a-z])|\.(tmp|partial|incomplete|part)$|^_", re.IGNORECASE)


def _step_of(name: str) -> int | None:
    """The step in a folder's or a revision's name, None without a step.

    It is the number behind one of WORDS, else a number at the end of the name that stands by itself; k and m
    behind a number mean thousands and millions. Of a word that is in the name twice the last number counts.

    >>> [_step_of(name) for name in ("step1000-tokens4B", "epoch2-ba500", "0001000", "step-1.5k")]
    [1000, 500, 1000, 1500]
    >>> [_step_of(name) for name in ("final", "tokens4B", "e5-base-v2")]
    [None, None, None]
    """
    for word in WORDS:
        matches = list(re.finditer(rf"(?:^|[^A-Za-z]){word}[-_=. ]*{_NUMBER}", name, re.IGNORECASE))
        if matches:
            return _parse_step_number(matches[-1])
    last = _LAST.search(name)
    return _parse_step_number(last) if last else None


def _is_temporary(name: str) -> bool:
    """Whether a name is temporary: programs write under it, and rename the file when it is complete.

    >>> [_is_temporary(name) for name in ("tmp-checkpoint-1000", ".step5", "step5.tmp", "step5")]
    [True, True, True, False]
    """
    return bool(_UNFINISHED.search(name))


def _parse_step_number(match: re.Match[str]) -> int:
    return round(float(match["number"]) * _UNITS[match["unit"].lower()])


SETTLE = 10.0
"""Seconds for which nothing in a checkpoint may have changed."""

ZIP, LEGACY = b"PK\x03\x04", b"\x80\x02"
"""The first bytes of files that torch saves: since 1.6, and before it."""


@dataclass(frozen=True, kw_only=True)
class _Condition:
    """The condition of a checkpoint's folder.

    `problem` says what it lacks, "" for a complete checkpoint. `stamp` changes with every file that decides
    what the model computes, "" unless complete. `settles` is the time in seconds until a complete checkpoint
    has been still for long enough, 0 if it has.
    """

    problem: str = ""
    stamp: str = ""
    settles: float = 0.0


def _check_checkpoint(folder: Path, options: ModelOptions, *, settle: float, own_code: bool) -> _Condition:
    """The condition of a checkpoint; with `own_code`, code of its own repository is run.

    Weights must be readable to their end (the length that a safetensors header promises, every part of an
    index, the directory of a zip), configs must parse, a tokenizer must be there, and nothing may have
    changed for `settle` seconds.
    """
    laid = folder
    try:
        age = time.time() - _find_last_change(folder)
        laid = link_adapters(folder, options)
        describe(laid, own_code=own_code)
        for path in weight_files(laid):
            _check_pickle(path)
        for path in list_content_files(laid):
            if path.suffix == ".json":
                read_json(path)
        stamp = _compute_folder_stamp(folder, laid)
    except ModelError as error:
        message = error.message.replace(f"{laid}/", "").replace(str(laid), "it")
        return _Condition(problem=message.replace(f"{folder}/", "").replace(str(folder), "it"))
    except (OSError, ValueError) as error:
        return _Condition(problem=f"it cannot be read: {error}")
    if age < settle:
        # The clock of a network file system may be ahead of this machine's, and the age below 0.
        return _Condition(problem=f"it changed {max(age, 0.0):.0f} s ago", settles=settle - age)
    return _Condition(stamp=stamp)


def _compute_folder_stamp(folder: Path, laid: Path) -> str:
    """A digest of the files that decide what the model computes, in the folder that it is loaded from."""
    facts: list[tuple[str, int, int | str]] = []
    for path in list_content_files(laid):
        stat = path.stat()
        # What was written beside the links to an adapter is as old as the cache: its text counts.
        is_written = laid != folder and not path.is_symlink()
        content = path.read_text(encoding="utf-8") if is_written else stat.st_mtime_ns
        facts.append((path.relative_to(laid).as_posix(), stat.st_size, content))
    return digest(facts)


def _find_last_change(folder: Path) -> float:
    """The time of the last change in a folder, by its file system's clock."""
    # Not mtime: a copy that keeps times (cp -p, rsync -t) has old ones from the first byte.
    return max(path.stat().st_ctime for path in (folder, *folder.rglob("*")))


def _check_pickle(path: Path) -> None:
    """Refuse a truncated torch file; of files saved before torch 1.6 only the beginning is checked."""
    if path.suffix == ".safetensors":
        return
    with path.open("rb") as file:
        start = file.read(4)
    if start[:2] == LEGACY:
        return
    # A zip has its directory at the end, so one that is cut short has none.
    if start != ZIP or not zipfile.is_zipfile(path):
        raise ModelError(f"{path} is not a whole file of torch's: its end is missing.")
