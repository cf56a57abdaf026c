"""A user's own data: a folder with files and, unless it is in BEIR layout, a harness.toml.

docs/local-data.md describes the layout. Reading a folder reads its description, not its data.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.errors import DataError, UsageError, nearest
from suites._local_keys import GUIDE, flag, only_known, require_known, string
from suites._local_kinds import KINDS, RULE, Kind
from suites._local_learning import learning
from suites._local_task import LocalTask
from suites._places import reading
from suites._tables import FORMATS

DESCRIPTION = "harness.toml"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_QRELS_FORMATS = (*FORMATS, ".txt", ".qrels", ".trec")


def read(folder: Path) -> tuple[LocalTask, ...]:
    """The tasks of a folder, in the order its harness.toml has them.

    Without one, a folder in BEIR layout gives a task for each file in qrels/, train.tsv only if it
    is alone.

    Raises:
        UsageError: If the description cannot be followed.
        DataError: If a file it names is missing or empty, or this user may not reach one.
    """
    with reading(folder):
        return _read(folder)


def _read(folder: Path) -> tuple[LocalTask, ...]:
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder.", hint=GUIDE)
    tasks = _described(folder) if (folder / DESCRIPTION).is_file() else _beir(folder)
    names = [task.name for task in tasks]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"{folder}: two tasks are called {name!r}.", hint="Give each a 'name' of its own."
            )
    for task in tasks:
        _check_files(task)
    return tasks


def _beir(folder: Path) -> tuple[LocalTask, ...]:
    splits = _splits(folder / "qrels")
    needed = {"corpus.jsonl": (folder / "corpus.jsonl").is_file()}
    needed |= {"queries.jsonl": (folder / "queries.jsonl").is_file(), "qrels/test.tsv": bool(splits)}
    missing = [name for name, there in needed.items() if not there]
    if missing:
        raise UsageError(
            f"{folder} holds no {DESCRIPTION}, and for the BEIR layout it lacks {', '.join(missing)}.",
            hint=GUIDE,
        )
    splits = [s for s in splits if s != "train"] or splits
    base = _default_name(folder)
    return tuple(
        LocalTask(
            name=base if splits == ["test"] else f"{base}-{split}",
            type="retrieval",
            split=split,
            files=(folder / "corpus.jsonl", folder / "queries.jsonl", folder / "qrels" / f"{split}.tsv"),
        )
        for split in splits
    )


def _splits(folder: Path) -> list[str]:
    names = os.listdir(folder) if folder.is_dir() else []
    return sorted(Path(n).stem for n in names if n.endswith(".tsv") and not n.startswith("."))


def _described(folder: Path) -> tuple[LocalTask, ...]:
    path = folder / DESCRIPTION
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}.", hint=GUIDE) from None
    only_known(content, ("task",), f"{path}:", "key")
    tables = content.get("task")
    if not isinstance(tables, list) or not tables or not all(isinstance(t, dict) for t in tables):
        raise UsageError(f"{path} describes no task.", hint=f"Each starts with a line [[task]]. {GUIDE}")
    return tuple(_task(folder, table, f"{path}: task {n}:") for n, table in enumerate(tables, start=1))


def _task(folder: Path, table: Mapping[str, Any], where: str) -> LocalTask:
    if "type" not in table:
        raise UsageError(f"{where} there is no 'type'.", hint=f"It is one of {', '.join(KINDS)}. {GUIDE}")
    type_ = string(table, "type", where)
    require_known(type_, KINDS, where, "type")
    kind = KINDS[type_]
    known = ("name", "type", "columns", *kind.files, *kind.keys)
    only_known(table, known, where, f"key of a {type_} task")
    name = string(table, "name", where, _default_name(folder))
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{where} the name {name!r} cannot be used.",
            hint="A name has up to 100 letters, digits, dots, hyphens and underscores.",
        )
    split = string(table, "split", where, kind.split)
    files = [string(table, key, where, default.format(split)) for key, default in kind.files.items()]
    return LocalTask(
        name=name,
        type=type_,
        split=split,
        files=tuple(folder / file for file in files),
        columns=_columns(table.get("columns", {}), kind, where),
        ignore_identical_ids=flag(table, RULE, where),
        learning=learning(kind, table, where) if kind.learnt else None,
    )


def _columns(table: object, kind: Kind, where: str) -> tuple[tuple[str, str], ...]:
    if not isinstance(table, dict) or not all(isinstance(v, str) and v for v in table.values()):
        raise UsageError(f"{where} 'columns' must be a table of names.", hint=GUIDE)
    only_known(table, kind.columns, where, "column")
    return tuple(sorted((here, there) for here, there in table.items() if here != there))


def _default_name(folder: Path) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name).strip("-._")
    return name[:100] or "local"


def _check_files(task: LocalTask) -> None:
    for key, path in zip(KINDS[task.type].files, task.files, strict=True):
        formats = _QRELS_FORMATS if key == "qrels" else FORMATS
        if path.suffix not in formats:
            raise UsageError(f"{path}: {key!r} must be a file that ends in {', '.join(formats)}.", hint=GUIDE)
        if not path.is_file():
            there = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
            close = nearest(path.name, there)
            hint = f"Did you mean {' or '.join(close)}? " if close else ""
            raise DataError(f"There is no file {path}, the {key!r} of task {task.name!r}.", hint=hint + GUIDE)
        if path.stat().st_size == 0:
            raise DataError(f"{path} is empty.")
