"""Whether a checkpoint has been written to its end, told from its files alone."""

from __future__ import annotations

import os
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path

from harness.encoder.content import content_files
from harness.encoder.describe import describe
from harness.encoder.folder import read_json
from harness.encoder.weights import weight_files
from harness.errors import ModelError
from harness.identity import digest

SETTLE = 10.0
"""Seconds for which nothing in a checkpoint may have changed."""

ZIP, LEGACY = b"PK\x03\x04", b"\x80\x02"
"""How files that torch saves begin: since 1.6, and before it."""


@dataclass(frozen=True, kw_only=True)
class Condition:
    """How a checkpoint's folder stands.

    `problem` says what it lacks, "" for a whole one. `stamp` changes when a file that decides what
    the model computes does; "" unless it is whole. `settles` are the seconds after which a whole
    one has lain still for long enough, 0 if it has.
    """

    problem: str = ""
    stamp: str = ""
    settles: float = 0.0


def condition(folder: Path, *, settle: float = SETTLE, own_code: bool = False) -> Condition:
    """Look at a checkpoint; with `own_code`, code that it brings is run.

    Weights must be readable to their end (the length that a safetensors header promises, every part
    of an index, the directory of a zip), configs must parse, a tokenizer must be there, and nothing
    may have changed for `settle` seconds.
    """
    try:
        age = time.time() - _last_change(folder)
        describe(folder, own_code=own_code)
        for path in weight_files(folder):
            _check_pickle(path)
        for path in content_files(folder):
            if path.suffix == ".json":
                read_json(path)
        stamp = stamp_of(folder)
    except ModelError as error:
        return Condition(problem=error.message.replace(f"{folder}/", "").replace(str(folder), "it"))
    except (OSError, ValueError) as error:
        return Condition(problem=f"it cannot be read: {error}")
    if age < settle:
        return Condition(problem=f"it changed {max(age, 0.0):.0f} s ago", settles=settle - age)
    return Condition(stamp=stamp)


def stamp_of(folder: Path) -> str:
    """Changes when a file that decides what the model computes does; "" where there is no whole model."""
    try:
        files = [(p.relative_to(folder).as_posix(), p.stat()) for p in content_files(folder)]
    except (ModelError, OSError):
        return ""
    return digest([(name, stat.st_size, stat.st_mtime_ns) for name, stat in files])


def _last_change(folder: Path) -> float:
    """When something in a folder changed, by its file system's clock."""
    newest = folder.stat().st_ctime
    for root, folders, names in os.walk(folder):
        for name in (*folders, *names):
            newest = max(newest, os.stat(os.path.join(root, name)).st_ctime)
    return newest


def _check_pickle(path: Path) -> None:
    """See that a file of torch's is whole; of one saved before torch 1.6 only its beginning is known.

    Raises:
        ModelError: It is not.
    """
    if path.suffix == ".safetensors":
        return
    with path.open("rb") as file:
        start = file.read(4)
    if start[:2] == LEGACY:
        return
    if start != ZIP or not zipfile.is_zipfile(path):
        raise ModelError(f"{path} is not a whole file of torch's: its end is missing.")
