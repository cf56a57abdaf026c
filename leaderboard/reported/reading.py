"""The papers' tables, read from `results/reported`."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

from harness.errors import RecordError
from leaderboard.reported.printed import Backbone, Paper, PaperTable, Printed, number_of

FIELDS = tuple(one.name for one in fields(Printed) if one.name not in ("backbone", "hub_id"))
MODEL_FIELDS = ("model", "size_class", "backbone", "hub_id", "note")
DESCRIBED = {"name": str, "title": str, "year": int, "authors": str, "tables": dict}


def papers(folder: Path) -> dict[str, Paper]:
    """The papers of a folder by slug, in the order of its `papers.toml`.

    Raises:
        RecordError: A file is missing or malformed.
    """
    known = backbones(folder)
    return {slug: _paper(folder, slug, said, known) for slug, said in _described(folder).items()}


def backbones(folder: Path) -> dict[tuple[str, str], Backbone]:
    """What the printed names stand for, by name and size class: `models.csv`.

    Raises:
        RecordError: The file is missing or malformed.
    """
    found: dict[tuple[str, str], Backbone] = {}
    path = folder / "models.csv"
    for line, record in records(path, MODEL_FIELDS):
        key = (record["model"], record["size_class"])
        if not record["model"] or not record["backbone"]:
            raise wrong(path, line, "it names no model or no backbone.")
        if key in found:
            raise wrong(path, line, f"{' '.join(key).strip()} stands there twice.")
        found[key] = Backbone(name=record["backbone"], hub_id=record["hub_id"], note=record["note"])
    return found


def records(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """A CSV file's records with their line numbers.

    Raises:
        RecordError: The file cannot be read, or has other columns.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = csv.reader(file, strict=True)
            if (header := next(lines, [])) != list(columns):
                raise wrong(
                    path, 1, f"the columns are {', '.join(header)}.", f"They are {','.join(columns)}."
                )
            for values in lines:
                if len(values) != len(columns):
                    raise wrong(path, lines.line_num, f"{len(values)} fields where {len(columns)} belong.")
                yield lines.line_num, dict(zip(columns, values, strict=True))
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}.") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise RecordError(f"{path} is no CSV file in UTF-8: {error}.") from error


def wrong(path: Path, line: int, what: str, hint: str | None = None) -> RecordError:
    """The error for a line of a file."""
    return RecordError(f"{path}, line {line}: {what}", hint=hint)


def _described(folder: Path) -> dict[str, dict[str, Any]]:
    path = folder / "papers.toml"
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}.") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RecordError(f"{path} is no TOML file: {error}.") from error


def _paper(folder: Path, slug: str, said: Any, known: Mapping[tuple[str, str], Backbone]) -> Paper:
    for name, kind in DESCRIBED.items():
        if not isinstance(said, dict) or not isinstance(said.get(name), kind):
            raise RecordError(f"{folder / 'papers.toml'}: {slug} has no {name}, or not as {kind.__name__}.")
    tables: dict[str, list[Printed]] = {name: [] for name in said["tables"]}
    path = folder / f"{slug}.csv"
    for line, record in records(path, FIELDS):
        if problem := _problem(record, said):
            raise wrong(path, line, problem)
        own = record["model"], record["size_class"]
        found = known.get(own, Backbone(name=" ".join(own).strip(), hub_id="", note=""))
        tables[record["table"]].append(Printed(**record, backbone=found.name, hub_id=found.hub_id))
    if empty := [name for name, rows in tables.items() if not rows]:
        raise RecordError(f"{path} has nothing of table {empty[0]}.")
    laid = {n: PaperTable(id=n, caption=said["tables"][n], rows=tuple(rows)) for n, rows in tables.items()}
    rest = {name: said[name] for name in ("name", "title", "year", "authors")}
    return Paper(slug=slug, arxiv=said.get("arxiv", ""), tables=MappingProxyType(laid), **rest)


def _problem(record: Mapping[str, str], said: Mapping[str, Any]) -> str:
    """What is wrong with a record; empty if nothing is."""
    if record["paper"] != said["name"]:
        return f"it is of {record['paper']!r}, not of {said['name']!r}."
    if record["table"] not in said["tables"]:
        return f"papers.toml has no table {record['table']!r}."
    if not record["model"] or not record["metric"]:
        return "it names no model or no metric."
    if odd := odd_numbers(record):
        return odd
    wanted = {"": (False, False), "yes": (False, True), "no": (True, True)}.get(record["follows"])
    if wanted is None:
        return f"follows is {record['follows']!r}, not yes, no or nothing."
    if wanted != (bool(record["recomputed"]), bool(record["recomputed_as"])):
        return "recomputed and recomputed_as do not fit what follows says."
    return ""


def odd_numbers(record: Mapping[str, str]) -> str:
    """What is wrong with the numbers beside a record's value; empty if nothing is."""
    for name in ("ci_low", "ci_high", "recomputed"):
        text = record.get(name, "")
        if text and (number_of(text) is None or number_of(record["value"]) is None):
            return f"{name} is {text!r}, beside {record['value']!r}: no numbers."
    if bool(record["ci_low"]) != bool(record["ci_high"]):
        return "it has one end of an interval."
    return ""
