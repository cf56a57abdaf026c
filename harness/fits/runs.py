"""A table of runs, read and checked: what no law may be fitted to is refused by its line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

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
OPTIONAL = ("flops", "seed", "trainable", "rank", "learning_rate", "batch", "score")
"""The columns of numbers; `method` is a text."""

UNIT_FACTOR = 20.0
"""Operations for each parameter and token may differ by this factor; mixed units do by 1,000 or more."""

DIVERGED = 1.25
"""A run has diverged if one of no more parameters and tokens has a loss that is lower by this factor."""


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Runs, one in each place of every array of shape (runs,).

    Attributes:
        size: As `counts` says.
        tokens: The tokens of the training.
        flops: The operations of the training.
        loss: The final loss.
        method: The name of the way of training; "" where the table has none.
        others: Further columns of numbers by name, such as seed, trainable, rank, learning_rate or batch.
        places: The file and the line.
        counts: What the size counts.
        notes: What was left out of the table, in sentences.
    """

    size: Floats
    tokens: Floats
    flops: Floats
    loss: Floats
    method: tuple[str, ...]
    others: Mapping[str, Floats]
    places: tuple[str, ...]
    counts: Size = "parameters"
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.loss)

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of the methods, in the order of the table."""
        return tuple(dict.fromkeys(self.method))

    @property
    def operations_per_unit(self) -> float:
        """The operations for each unit of size and each token: the median over runs."""
        return float(np.median(self.flops / (self.size * self.tokens)))

    def select_runs(self, kept: Sequence[bool] | NDArray[np.bool_]) -> Runs:
        """The runs that a mask keeps."""
        places = np.flatnonzero(kept)
        return replace(
            self,
            size=self.size[places],
            tokens=self.tokens[places],
            flops=self.flops[places],
            loss=self.loss[places],
            method=tuple(self.method[n] for n in places),
            others={name: values[places] for name, values in self.others.items()},
            places=tuple(self.places[n] for n in places),
        )

    def select_method(self, name: str) -> Runs:
        """The runs of a method."""
        return self.select_runs([method == name for method in self.method])


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
    values = {
        name: np.array([_read_number(row, names[name], name) for row in rows])
        for name in names
        if name != "method"
    }
    method = (
        tuple(str(row.fields[names["method"]]) for row in rows) if "method" in names else ("",) * len(rows)
    )
    if "flops" not in values:
        values["flops"] = (1 if counts == "operations" else 6) * values["size"] * values["tokens"]
    runs = Runs(
        size=values.pop("size"),
        tokens=values.pop("tokens"),
        flops=values.pop("flops"),
        loss=values.pop("loss"),
        method=method,
        others=values,
        places=tuple(row.place for row in rows),
        counts=counts,
    )
    _require_positive(runs)
    _require_shares(runs)
    _require_different(runs)
    _require_same_units(runs)
    runs = _drop_diverged(runs, drop=drop_diverged)
    _require_varying(runs, needed)
    return runs


def _find_columns(row: FileRow, columns: dict[str, str], needed: set[str]) -> dict[str, str]:
    """By name of a column here its name in the file, of those that the file has."""
    names = (*NEEDED, *OPTIONAL, "method")
    # `harness list runs` calls them operations.
    if "flops" not in {*row.fields, *columns} and row.fields.get("operations") not in (None, ""):
        columns = {**columns, "flops": "operations"}
    for name, column in columns.items():
        if name not in names:
            raise UsageError(
                f"--column {name}={column}: {name} is not a column here; {describe_alternatives(name, names)}"
            )
        needed |= {name}
    for name in sorted(needed):
        column = columns.get(name, name)
        if column not in row.fields:
            raise UsageError(
                f"{row.path}: there is no column {column!r}; {describe_alternatives(column, row.fields)}",
                hint=f"Name the column of the file: --column {name}=COLUMN",
            )
    return {name: columns.get(name, name) for name in names if columns.get(name, name) in row.fields}


def _read_number(row: FileRow, column: str, name: str) -> float:
    value = row.fields[column]
    try:
        # A loss that is missing is that of a run that has diverged; other numbers must be there.
        number = math.nan if value in (None, "") else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise UsageError(f"{row.place}: {column} is {value!r}, not a number.") from None
    if name != "loss" and not math.isfinite(number):
        raise UsageError(f"{row.place}: {column} is {value!r}, not a finite number.")
    return number


def _list_places(runs: Runs, chosen: NDArray[np.bool_]) -> str:
    return shorten_names([runs.places[n] for n in np.flatnonzero(chosen)])


def _require_positive(runs: Runs) -> None:
    for name in ("size", "tokens", "flops", "loss"):
        low = getattr(runs, name) <= 0
        if low.any():
            raise UsageError(
                f"{name} is not above 0: {_list_places(runs, low)}.", hint="A law is fitted to logarithms."
            )


def _require_shares(runs: Runs) -> None:
    if "trainable" in runs.others and (high := runs.others["trainable"] > 1).any():
        raise UsageError(
            f"trainable is above 1: {_list_places(runs, high)}.", hint="Write shares of 1, and not per cent."
        )


def _require_different(runs: Runs) -> None:
    columns = [values for name, values in runs.others.items() if name != "score"]
    rows = [*zip(runs.method, runs.size, runs.tokens, runs.flops, *columns, strict=True)]
    twice = np.array([rows.count(row) > 1 for row in rows])
    if twice.any():
        raise UsageError(
            f"Runs are in the table twice: {_list_places(runs, twice)}.",
            hint="Take one out, or tell them apart by a column `seed`.",
        )


def _require_varying(runs: Runs, needed: Iterable[str]) -> None:
    # Checkpoints, whose losses and scores are correlated, have one size.
    for name in ("loss", "score") if "score" in needed else ("size", "tokens", "loss", *needed):
        values = runs.others[name] if name in runs.others else getattr(runs, name)
        if len({*values.tolist()}) == 1:
            raise UsageError(
                f"The column {name} is constant ({values[0]:.4g}), so no law of it can be fitted.",
                hint="Add runs with other values.",
            )


def _require_same_units(runs: Runs) -> None:
    """Refuse tables in which some sizes, tokens or operations are in another unit."""
    ratio = runs.flops / (runs.size * runs.tokens)
    usual = 1.0 if runs.counts == "operations" else 6.0
    middle = float(np.median(ratio))
    mixed = (ratio > UNIT_FACTOR * middle) | (ratio < middle / UNIT_FACTOR)
    if mixed.any():
        raise UsageError(
            f"Units are mixed: flops / (size × tokens) is {middle:.3g} in the median, and far from it here: "
            f"{_list_places(runs, mixed)}.",
            hint="Write size, tokens and flops in one unit each, such as 14000000 and not 14 (millions).",
        )
    if not usual / UNIT_FACTOR < middle < usual * UNIT_FACTOR:
        raise UsageError(
            f"flops / (size × tokens) is {middle:.3g} in the median, where about {usual:.0f} is expected.",
            hint="Write plain numbers, not millions, or say what a size counts: --size-is operations",
        )


def _drop_diverged(runs: Runs, *, drop: bool) -> Runs:
    lost = ~np.isfinite(runs.loss)
    smaller = (runs.size <= runs.size[:, None]) & (runs.tokens <= runs.tokens[:, None])
    same = np.array(runs.method) == np.array(runs.method)[:, None]
    # Another rate or share of trained weights may well have a higher loss.
    for name in {*runs.others} - {"seed", "score"}:
        same &= runs.others[name] == runs.others[name][:, None]
    with np.errstate(invalid="ignore"):
        lost |= (smaller & same & (runs.loss * DIVERGED < runs.loss[:, None])).any(axis=1)
    if not lost.any():
        return runs
    places = _list_places(runs, lost)
    if not drop:
        raise UsageError(
            f"{lost.sum()} runs have diverged (no finite loss, or {DIVERGED} × that of a run of no "
            f"more parameters and tokens): {places}.",
            hint="--drop-diverged leaves them out, and says so.",
        )
    if lost.all():
        raise UsageError("Every run has diverged.", hint="Add runs with a finite loss.")
    note = f"{lost.sum()} diverged runs are left out: {places}."
    return replace(runs.select_runs(~lost), notes=(*runs.notes, note))
