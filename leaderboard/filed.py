"""Documents of a results folder that are no records, checks and watches, as units of the index."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from leaderboard.found import Filed, Unit
from leaderboard.scopes import slug

Reading = Callable[[str, Path], Sequence[Filed]]
"""Takes a document's name in URLs and its file."""


def units(source: str, folders: Iterable[Path], read: Reading) -> Iterator[Unit]:
    """One unit for each JSON file; one of an earlier folder goes before that of the same name of a later."""
    seen = set()
    for folder in folders:
        for path, stamp in _files(folder):
            name = name_of(path.stem)
            if name not in seen:
                seen.add(name)
                yield Unit(source=source, name=name, stamp=stamp, read=partial(read, name, path))


def name_of(stem: str) -> str:
    """A file's name in URLs: itself, or where it is not fit for one, what is left of it and a digest.

    >>> name_of("20260102T030405-0123456789ab"), name_of("a b")
    ('20260102T030405-0123456789ab', 'a-b-c8687a08')
    """
    if re.fullmatch(r"[A-Za-z0-9_][\w.+-]{0,99}", stem, re.ASCII) and slug(stem) == stem:
        return stem
    digest = hashlib.sha256(stem.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{slug(stem)[:80]}-{digest}".lstrip("-")


def _files(folder: Path) -> Iterator[tuple[Path, str]]:
    """The JSON files of a folder with what changes whenever they do, by name."""
    try:
        with os.scandir(folder) as entries:
            there = sorted((e for e in entries if _is_one(e.name)), key=lambda entry: entry.name)
    except OSError:
        return
    place = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    for entry in there:
        try:
            facts = entry.stat()
        except OSError:
            continue
        yield Path(entry.path), f"{place}-{facts.st_size:x}-{facts.st_mtime_ns:x}"


def _is_one(name: str) -> bool:
    return name.endswith(".json") and not name.startswith(".")
