"""The labels of a user's own task as numbers: the order of its classes, and what cannot be learnt."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import DataError, nearest
from harness.labelled import REGRESSION
from suites._local_learning import Learning
from suites._tables import Record

OF_TWO = ("f1", "mcc")
"""Metrics of two classes."""

LARGE = 10
"""Numbers beyond this are far from those that recipes were made for: STS-B's, from 0 to 5."""

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True, kw_only=True)
class Labels:
    """The labels of both files.

    Attributes:
        train: A number for each row.
        dev: Likewise.
        classes: How many there are; REGRESSION where labels are numbers.
        notes: What a user should know of them, in sentences.
    """

    train: tuple[float, ...]
    dev: tuple[float, ...]
    classes: int
    notes: tuple[str, ...] = ()


def numbers(column: str, train: Sequence[Record], dev: Sequence[Record]) -> Labels:
    """Labels that are numbers.

    Raises:
        DataError: One is none, or all of a file are the same.
    """
    first, second = (tuple(record.number(column) for record in rows) for rows in (train, dev))
    for rows, values in ((train, first), (dev, second)):
        if len(set(values)) == 1:
            raise _of(rows, f"every {column!r} is {values[0]:g}: nothing can correlate with that.")
    return Labels(train=first, dev=second, classes=REGRESSION, notes=_large(first))


def _large(values: Sequence[float]) -> tuple[str, ...]:
    low, high = min(values), max(values)
    if max(abs(low), abs(high)) <= LARGE:
        return ()
    return (
        f"labels go from {low:g} to {high:g}, and recipes are made for 0 to 5: models learn such numbers "
        "badly; scaled ones change no correlation",
    )


def classes(column: str, learning: Learning, train: Sequence[Record], dev: Sequence[Record]) -> Labels:
    """Labels that are names, numbered from 0 in the order of `in_order`, the positive one last.

    Raises:
        DataError: There are too few labels or too many, or one that no training row has.
    """
    first = [record.token(column) for record in train]
    names = in_order(set(first))
    _require_classes(names, learning, train)
    if learning.positive:
        names.sort(key=lambda name: name == learning.positive)
    number = {name: at for at, name in enumerate(names)}
    for record in dev:
        _require_label(record, record.token(column), names, train[0].path)
    second = [record.token(column) for record in dev]
    _require_both(set(second), learning, dev)
    says = f'f1 counts the label {names[-1]!r}; positive = "..." in harness.toml names another'
    return Labels(
        train=tuple(number[name] for name in first),
        dev=tuple(number[name] for name in second),
        classes=len(names),
        notes=(says,) if "f1" in learning.metrics and not learning.positive else (),
    )


def in_order(names: Iterable[str]) -> list[str]:
    """Names of classes in the order of their numbers: as whole numbers if all are, else as text.

    >>> in_order({"10", "9", "-1"}), in_order({"10", "9", "b"})
    (['-1', '9', '10'], ['10', '9', 'b'])
    """
    found = sorted(names)
    return sorted(found, key=int) if all(_WHOLE.fullmatch(name) for name in found) else found


def _require_classes(names: list[str], learning: Learning, train: Sequence[Record]) -> None:
    if len(names) < 2:
        raise _of(train, f"there is only the label {names[0]!r}: at least two are needed.")
    limited = _of_two(learning)
    if limited and len(names) > 2:
        verb = "are" if len(limited) > 1 else "is"
        raise _of(
            train,
            f"{' and '.join(limited)} {verb} for two classes, and there are {len(names)}: {_listed(names)}.",
            hint='Ask for metrics = ["accuracy"] in harness.toml.',
        )
    if learning.positive and learning.positive not in names:
        raise _of(
            train,
            f"no row has the label {learning.positive!r}, which 'positive' in harness.toml names.",
            hint=_there(learning.positive, names),
        )


def _require_label(record: Record, name: str, names: Sequence[str], train: Path) -> None:
    if name not in names:
        raise record.error(f"the label {name!r} is in no row of {train.name}.", hint=_there(name, names))


def _require_both(found: set[str], learning: Learning, dev: Sequence[Record]) -> None:
    limited = _of_two(learning)
    if limited and len(found) == 1:
        says = f"{' and '.join(limited)} {'say' if len(limited) > 1 else 'says'} nothing of one class."
        raise _of(dev, f"there is only the label {found.pop()!r}, and {says}")


def _of_two(learning: Learning) -> list[str]:
    return [metric for metric in learning.metrics if metric in OF_TWO]


def _there(name: str, names: Sequence[str]) -> str:
    close = nearest(name, names)
    return f"Did you mean {close[0]!r}?" if close else f"There is: {_listed(names)}."


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:8])) + (", …" if len(names) > 8 else "")


def _of(rows: Sequence[Record], message: str, *, hint: str | None = None) -> DataError:
    return DataError(f"{rows[0].path}: {message}", hint=hint)
