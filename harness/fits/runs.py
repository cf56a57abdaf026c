"""A table of runs, read and checked: what no law may be fitted to is refused by its line."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from harness.core.errors import DataError, UsageError
from harness.core.terminal import shorten_names
from harness.data.tables import FileRow, describe_alternatives, explain_file_error, read_rows

Floats = NDArray[np.float64]
LawName = Literal["isoflop", "chinchilla", "finetune", "power", "frontier", "correlation"]
LAWS: tuple[LawName, ...] = get_args(LawName)

Size = Literal["parameters", "total", "operations"]

SIZES: Mapping[Size, str] = {
    "parameters": "parameters without embeddings",
    "total": "parameters with embeddings",
    "operations": "operations per token",
}
"""What a size may count, in words."""

NEEDED = ("size", "tokens", "loss")
TEXTS = ("method", "place")
NAMES = (*NEEDED, "flops", "seed", "trainable", "rank", "learning_rate", "batch", "score", "method")
"""The columns; `method` is a text."""

UNIT_FACTOR = 20.0
"""Operations for each parameter and token may differ by this factor; mixed units do by 1,000 or more."""

DIVERGED = 1.25
"""A run has diverged if one of no more parameters and tokens has a loss that is lower by this factor."""


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Runs as columns: arrays of shape (runs,) by name.

    Attributes:
        columns: Numbers `size` (as `counts` says), `tokens`, `flops` (operations of the training), `loss`
            (the final one) and further ones; the texts `method` ("" for none) and `place` (file and line).
        counts: What the size counts.
        notes: What was left out of the table, in sentences.
    """

    columns: Mapping[str, NDArray[Any]]
    counts: Size = "parameters"
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.columns["loss"])

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]

    @property
    def methods(self) -> list[str]:
        """The names of the methods, in the order of the table."""
        return [*dict.fromkeys(self["method"].tolist())]

    @property
    def operations_per_unit(self) -> float:
        """The operations for each unit of size and each token: the median over runs."""
        return float(np.median(self["flops"] / (self["size"] * self["tokens"])))

    def select_runs(self, kept: NDArray[np.bool_]) -> Runs:
        """The runs that a mask keeps."""
        return replace(self, columns={name: values[kept] for name, values in self.columns.items()})

    def add_columns(self, **columns: NDArray[Any]) -> Runs:
        """The runs with further columns, or with others in place of theirs."""
        return replace(self, columns={**self.columns, **columns})

    def list_places(self, chosen: NDArray[np.bool_]) -> str:
        """The file and the line of the runs of a mask, in a sentence."""
        return shorten_names(self["place"][chosen].tolist())

    def refuse_runs(self, chosen: NDArray[np.bool_], message: str, hint: str) -> None:
        """Refuse a table in which a mask has runs, by a message with their lines."""
        if chosen.any():
            raise UsageError(f"{message}: {self.list_places(chosen)}.", hint=hint)


def read_runs(
    path: Path,
    *,
    columns: Mapping[str, str] | None = None,
    counts: Size = "parameters",
    needed: Iterable[str] = (),
    drop_diverged: bool = False,
) -> Runs:
    """The runs of a CSV, TSV, JSONL or Parquet file.

    Args:
        path: The file.
        columns: By name of a column here its name in the file, where that is another.
        counts: What the sizes count; where there is no column of operations these are 6 × size × tokens, or
            size × tokens for sizes in operations per token.
        needed: Columns that the law needs beside size, tokens and loss.
        drop_diverged: Whether runs that have diverged are left out, and not refused.

    Raises:
        UsageError: The table holds what no law can be fitted to; the message names the lines.
    """
    try:
        with explain_file_error(path):
            rows = read_rows(path)
    except DataError as error:
        raise UsageError(error.message, hint=error.hint) from error
    names = _find_columns(rows[0], {**(columns or {})}, {*NEEDED, *needed})
    usual = 1 if counts == "operations" else 6
    values: dict[str, NDArray[Any]] = {
        name: np.array([_read_field(row, column, name) for row in rows]) for name, column in names.items()
    }
    values.setdefault("flops", usual * values["size"] * values["tokens"])
    values.setdefault("method", np.full(len(rows), ""))
    runs = Runs(columns={**values, "place": np.array([row.place for row in rows])}, counts=counts)
    for name in ("size", "tokens", "flops", "loss"):
        runs.refuse_runs(runs[name] <= 0, f"{name} is not above 0", "A law is fitted to logarithms.")
    if "trainable" in values:
        hint = "Write shares of 1, and not per cent."
        runs.refuse_runs(runs["trainable"] > 1, "trainable is above 1", hint)
    _require_different(runs)
    _require_same_units(runs, usual)
    runs = _drop_diverged(runs, drop=drop_diverged)
    # Checkpoints, whose losses and scores are correlated, have one size.
    for name in ("loss", "score") if "score" in needed else (*NEEDED, *needed):
        if len({*runs[name].tolist()}) == 1:
            raise UsageError(
                f"The column {name} is constant ({runs[name][0]:.4g}), so no law of it can be fitted.",
                hint="Add runs with other values.",
            )
    return runs


def _find_columns(row: FileRow, columns: dict[str, str], needed: set[str]) -> dict[str, str]:
    """By name of a column here its name in the file, of those that the file has."""
    # `harness list runs` calls them operations.
    if "flops" not in {*row.fields, *columns} and row.fields.get("operations") not in (None, ""):
        columns = {**columns, "flops": "operations"}
    for name, column in columns.items():
        if name not in NAMES:
            raise UsageError(
                f"--column {name}={column}: {name} is not a column here; {describe_alternatives(name, NAMES)}"
            )
    for name in sorted(needed | columns.keys()):
        column = columns.get(name, name)
        if column not in row.fields:
            raise UsageError(
                f"{row.path}: there is no column {column!r}; {describe_alternatives(column, row.fields)}",
                hint=f"Name the column of the file: --column {name}=COLUMN",
            )
    return {name: columns.get(name, name) for name in NAMES if columns.get(name, name) in row.fields}


def _read_field(row: FileRow, column: str, name: str) -> float | str:
    value: Any = row.fields[column]
    if name == "method":
        return str(value)
    try:
        # A loss that is missing is that of a run that has diverged; other numbers must be there.
        number = math.nan if value in (None, "") else float(value)
    except (TypeError, ValueError):
        raise UsageError(f"{row.place}: {column} is {value!r}, not a number.") from None
    if name != "loss" and not math.isfinite(number):
        raise UsageError(f"{row.place}: {column} is {value!r}, not a finite number.")
    return number


def _require_different(runs: Runs) -> None:
    columns = [values for name, values in runs.columns.items() if name not in ("loss", "score", "place")]
    rows = [*zip(*(values.tolist() for values in columns), strict=True)]
    counts = Counter(rows)
    hint = "Take one out, or tell them apart by a column `seed`."
    runs.refuse_runs(np.array([counts[row] > 1 for row in rows]), "Runs are in the table twice", hint)


def _require_same_units(runs: Runs, usual: int) -> None:
    """Refuse tables in which some sizes, tokens or operations are in another unit."""
    ratio, middle = runs["flops"] / (runs["size"] * runs["tokens"]), runs.operations_per_unit
    says = f"flops / (size × tokens) is {middle:.3g} in the median"
    hint = "Write size, tokens and flops in one unit each, such as 14000000 and not 14 (millions)."
    mixed = (ratio > UNIT_FACTOR * middle) | (ratio < middle / UNIT_FACTOR)
    runs.refuse_runs(mixed, f"Units are mixed: {says}, and far from it here", hint)
    if not usual / UNIT_FACTOR < middle < usual * UNIT_FACTOR:
        raise UsageError(
            f"{says}, where about {usual} is expected.",
            hint="Write plain numbers, not millions, or say what a size counts: --size-is operations",
        )


def _drop_diverged(runs: Runs, *, drop: bool) -> Runs:
    lost = ~np.isfinite(runs["loss"])
    smaller = np.ones((len(runs), len(runs)), bool)
    for name, values in runs.columns.items():
        if name in ("size", "tokens"):
            smaller &= values <= values[:, None]
        # Another rate or share of trained weights may well have a higher loss.
        elif name not in ("flops", "loss", "seed", "score", "place"):
            smaller &= values == values[:, None]
    with np.errstate(invalid="ignore"):
        lost |= (smaller & (runs["loss"] * DIVERGED < runs["loss"][:, None])).any(axis=1)
    if not drop:
        runs.refuse_runs(
            lost,
            f"{lost.sum()} runs have diverged (no finite loss, or {DIVERGED} × that of a run of no "
            "more parameters and tokens)",
            "--drop-diverged leaves them out, and says so.",
        )
    if lost.all():
        raise UsageError("Every run has diverged.", hint="Add runs with a finite loss.")
    notes = [f"{lost.sum()} diverged runs are left out: {runs.list_places(lost)}."] if lost.any() else []
    return replace(runs.select_runs(~lost), notes=(*runs.notes, *notes))
