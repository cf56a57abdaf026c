"""What papers print, as data: `results/reported` (its README describes the files)."""

from __future__ import annotations

import csv
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from harness.core.errors import RecordError

# Names

AVERAGE = "Avg."
SCORES = ("score x100", "nDCG@10 x100", "fraction")
TREATMENTS = ("unified contrastive", "SimCSE", "CDE", "DPR", "ColBERT")
_SPELLED = {("GLUE dev", "SST"): "SST-2", ("GLUE dev", "STS"): "STS-B", ("GLUE dev", "GLUE"): AVERAGE}

TYPES: Mapping[str, str] = {
    "Class.": "Classification", "Clust.": "Clustering", "PairClass.": "PairClassification",
    "Rerank.": "Reranking", "Retriev.": "Retrieval", "STS": "STS", "Summ.": "Summarization",
}  # fmt: skip
"""MTEB's types as the papers print them."""


def normalize_metric(suite: str, metric: str) -> str:
    """One name for a task or mean that papers spell differently.

    >>> normalize_metric("GLUE dev", "SST"), normalize_metric("BEIR", "DPR BEIR")
    ('SST-2', 'Avg.')
    >>> normalize_metric("MTEB(eng, v1)", "Avg. (56 tasks)")
    'Avg.'
    """
    average = metric.startswith(AVERAGE) or metric.endswith(f" {suite}")
    return AVERAGE if average else _SPELLED.get((suite, metric), metric)


# Values


def parse_finite_number(text: str) -> float | None:
    """A text as a finite number."""
    try:
        number = float(text)
    except ValueError:
        return None
    # float() also reads "nan" and "inf".
    return number if math.isfinite(number) else None


@dataclass(frozen=True, kw_only=True)
class PaperValue:
    """One printed number: a line of a paper's file, and the backbone that its model's name stands for."""

    paper: str
    table: str
    model: str
    size_class: str
    params: str
    setting: str
    suite: str
    metric: str
    value: str
    ci_low: str
    ci_high: str
    unit: str
    note: str
    recomputed: str = ""
    recomputed_as: str = ""
    follows: str = ""
    backbone: str = ""
    hub_id: str = ""

    @property
    def number(self) -> float | None:
        """The value as a number; None for a dash or a word."""
        return parse_finite_number(self.value)

    @property
    def share(self) -> float:
        """The value as a share of 1; 0 if it is no number."""
        return (self.number or 0.0) / (1 if self.unit == "fraction" else 100)

    @property
    def name(self) -> str:
        """The model with its size class, as printed."""
        return f"{self.model} {self.size_class}".strip()

    @property
    def treatment(self) -> str:
        """How the model was fine-tuned, by TREATMENTS; empty if the line names none of them."""
        return next((name for name in TREATMENTS if name in f"{self.setting} {self.metric}"), "")

    @property
    def is_score(self) -> bool:
        """Whether it is a score of a suite."""
        return self.unit in SCORES and self.number is not None

    @property
    def is_copy(self) -> bool:
        """Whether it is taken from another paper."""
        return self.setting.startswith("copied from")

    @property
    def last_place(self) -> Decimal:
        """One unit of the last printed place."""
        return Decimal(1).scaleb(int(Decimal(self.value).as_tuple().exponent))

    def is_same_value(self, other: PaperValue) -> bool:
        """Whether two values differ by rounding alone."""
        coarser = max(self.last_place, other.last_place)
        # Rounding moves a number by half a unit of its last place at most. Floats are not exact enough
        # here.
        return abs(Decimal(self.value) - Decimal(other.value)) * 2 <= coarser


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """One table of a paper, in the order of print."""

    id: str
    caption: str
    rows: Sequence[PaperValue]

    @property
    def numbers(self) -> int:
        """The count of its numbers; dashes and words are none."""
        return sum(row.number is not None for row in self.rows)


@dataclass(frozen=True, kw_only=True)
class Paper:
    """One paper; `arxiv` is empty where no source at hand gives it."""

    slug: str
    name: str
    title: str
    year: int
    authors: str
    arxiv: str
    tables: Mapping[str, PaperTable]

    @property
    def rows(self) -> list[PaperValue]:
        """The lines of its file; some hold a dash or a word."""
        return [row for table in self.tables.values() for row in table.rows]

    @property
    def numbers(self) -> int:
        """The count of its numbers."""
        return sum(table.numbers for table in self.tables.values())


# Files

FIELDS = tuple(one.name for one in fields(PaperValue) if one.name not in ("backbone", "hub_id"))
_MODEL_FIELDS = ("model", "size_class", "backbone", "hub_id", "note")
_PAPER_FIELDS = {"name": str, "title": str, "year": int, "authors": str, "tables": dict}
_PRESENT = {"": (False, False), "yes": (False, True), "no": (True, True)}
"""Which of `recomputed` and `recomputed_as` are there, by `follows`."""


class _PrintedName(NamedTuple):
    """What a model's printed name stands for; `hub_id` where the release is beyond doubt."""

    backbone: str
    hub_id: str = ""
    note: str = ""


def read_papers(folder: Path) -> dict[str, Paper]:
    """The papers of a folder by slug, in the order of its `papers.toml`, or a RecordError."""
    path = folder / "papers.toml"
    try:
        described = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}.") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RecordError(f"{path} is no TOML file: {error}.") from error
    names = read_printed_names(folder)
    return {slug: _read_paper(folder, slug, facts, names) for slug, facts in described.items()}


def read_printed_names(folder: Path) -> dict[tuple[str, str], _PrintedName]:
    """What the papers' names of models stand for, by name and size class: `models.csv`."""
    names: dict[tuple[str, str], _PrintedName] = {}
    path = folder / "models.csv"
    for line, record in iter_csv_records(path, _MODEL_FIELDS):
        key = (record.pop("model"), record.pop("size_class"))
        if not key[0] or not record["backbone"]:
            raise build_csv_error(path, line, "it names no model or no backbone.")
        if key in names:
            raise build_csv_error(path, line, f"{' '.join(key).strip()} has two lines.")
        names[key] = _PrintedName(**record)
    return names


def iter_csv_records(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """A CSV file's records with their line numbers, or a RecordError."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            # Without `strict` an open quote takes the rest of the file into one field.
            lines = csv.reader(file, strict=True)
            if (header := next(lines, [])) != list(columns):
                what = f"the columns are {', '.join(header)}."
                raise build_csv_error(path, 1, what, f"They are {','.join(columns)}.")
            for values in lines:
                if len(values) != len(columns):
                    raise build_csv_error(
                        path, lines.line_num, f"{len(values)} fields where {len(columns)} belong."
                    )
                yield lines.line_num, dict(zip(columns, values, strict=True))
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}.") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise RecordError(f"{path} is no CSV file in UTF-8: {error}.") from error


def build_csv_error(path: Path, line: int, what: str, hint: str | None = None) -> RecordError:
    """The error for a line of a file."""
    return RecordError(f"{path}, line {line}: {what}", hint=hint)


def _read_paper(folder: Path, slug: str, facts: Any, names: Mapping[tuple[str, str], _PrintedName]) -> Paper:
    for name, kind in _PAPER_FIELDS.items():
        if not isinstance(facts, dict) or not isinstance(facts.get(name), kind):
            raise RecordError(f"{folder / 'papers.toml'}: {slug} has no {name}, or not as {kind.__name__}.")
    captions = facts["tables"]
    rows: dict[str, list[PaperValue]] = {name: [] for name in captions}
    path = folder / f"{slug}.csv"
    for line, record in iter_csv_records(path, FIELDS):
        if problem := _find_record_problem(record, facts):
            raise build_csv_error(path, line, problem)
        key = record["model"], record["size_class"]
        printed_name = names.get(key, _PrintedName(backbone=" ".join(key).strip()))
        rows[record["table"]].append(
            PaperValue(**record, backbone=printed_name.backbone, hub_id=printed_name.hub_id)
        )
    if empty := [name for name in captions if not rows[name]]:
        raise RecordError(f"{path} has no line of table {empty[0]}, which papers.toml names.")
    tables = {n: PaperTable(id=n, caption=captions[n], rows=tuple(rows[n])) for n in captions}
    about = {name: facts[name] for name in ("name", "title", "year", "authors")}
    return Paper(slug=slug, arxiv=facts.get("arxiv", ""), tables=MappingProxyType(tables), **about)


def _find_record_problem(record: Mapping[str, str], facts: Mapping[str, Any]) -> str:
    """What is wrong with a record; empty if nothing is."""
    if record["paper"] != facts["name"]:
        return f"it is of {record['paper']!r}, not of {facts['name']!r}."
    if record["table"] not in facts["tables"]:
        return f"papers.toml has no table {record['table']!r}."
    if not record["model"] or not record["metric"]:
        return "it names no model or no metric."
    if problem := find_number_problem(record):
        return problem
    if record["follows"] not in _PRESENT:
        return f"follows is {record['follows']!r}, not yes, no or nothing."
    if _PRESENT[record["follows"]] != (bool(record["recomputed"]), bool(record["recomputed_as"])):
        return "recomputed and recomputed_as do not fit what follows says."
    return ""


def find_number_problem(record: Mapping[str, str]) -> str:
    """What is wrong with the numbers beside a record's value; empty if nothing is."""
    for name in ("ci_low", "ci_high", "recomputed"):
        text = record.get(name, "")
        if text and (parse_finite_number(text) is None or parse_finite_number(record["value"]) is None):
            return f"{name} is {text!r}, beside {record['value']!r}: no numbers."
    return "it has one end of an interval." if bool(record["ci_low"]) != bool(record["ci_high"]) else ""
