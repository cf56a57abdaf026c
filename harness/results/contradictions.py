"""Contradictions in records from elsewhere: what no run writes, but a forger or another program may.

`harness audit --strict` looks for them, so that a repository of records can take what strangers send. A
record that passes can still be invented as a whole: only another run shows that a score is true.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

from harness.core.types import is_number
from harness.storage.record import ModelPart, Record

DEPTH, NAME_BYTES, INTEGER = 32, 200, 2**63
"""Of a record: nested objects, bytes of a name (it becomes a folder), the first integer that is too large."""

CLOCKS = timedelta(days=1)
"""How far the clock of the machine that made a record may be ahead."""

SLACK = -1.0
"""Seconds that a span may be below 0: two clocks are compared."""

ROUNDING = 1e-9
"""How far a mean may be from one that was summed in another order."""

_HASH = re.compile(r"[0-9a-f]{64}")

_COUNTS = (
    "texts", "texts_trained_on", "texts_encoded", "characters_encoded", "tokens_encoded", "tokens_per_second",
    "cores", "threads",
)  # fmt: skip
_KINDS: Mapping[str, tuple[type, str]] = {
    **dict.fromkeys(
        ("device", "packages", "prompts_asked", "prompts_applied", "peak_memory_bytes", "gate", "data"),
        (dict, "an object"),
    ),
    **dict.fromkeys(("written", "started", "commit", "harness"), (str, "text")),
    "notes": (list, "a list"),
}


def find_contradictions(record: Record, content: bytes) -> Iterator[str]:
    """What a record says that cannot be true, each as the end of a sentence about it.

    Args:
        record: The record, which has its place, its digest and the key of its identity already.
        content: The bytes it was read from: JSON can say a thing twice, or a number that no number is.
    """
    try:
        _require_storable(
            json.loads(content, parse_constant=_refuse_constant, object_pairs_hook=_build_json_object)
        )
    except (ValueError, RecursionError) as error:
        yield str(error) if isinstance(error, _Unstorable) else "it is nested too deeply"
        return
    for check in (
        _check_names,
        _check_identity,
        _check_sweep,
        _check_scores,
        _check_provenance,
        _check_dates,
    ):
        yield from check(record)


_DESCRIPTION = {"name": "name", "parameters": "number of parameters", "dimension": "dimension"}
"""What records of the same weights must say alike, with its words."""


def find_disagreements(models: Iterable[tuple[Path, ModelPart]]) -> Iterator[tuple[Path, str]]:
    """The records that describe a model otherwise than most records of the same weights, with the reason.

    Where no description has more records than another, all of them are named: one of them is wrong.
    """
    by_weights: dict[str, list[tuple[Path, ModelPart]]] = defaultdict(list)
    for path, model in models:
        if model.weights:
            by_weights[model.weights].append((path, model))
    for group in by_weights.values():
        for field, label in _DESCRIPTION.items():
            values = Counter(getattr(model, field) for _, model in group)
            (usual, most), *others = values.most_common()
            # Counter.most_common breaks ties by order, and the first record is no better witness than the
            # second.
            even = any(count == most for _, count in others)
            for path, model in group:
                value = getattr(model, field)
                if even or value != usual:
                    other = next(text for text in values if text != value) if value == usual else usual
                    yield (
                        path,
                        f"its model's {label} is {value!r}; other records of these weights say {other!r}",
                    )


# The JSON


class _Unstorable(ValueError):
    """A value that the site's tables cannot hold."""


def _build_json_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise _Unstorable(f"the name {_shorten(twice)} stands twice in one object")
    return values


def _refuse_constant(constant: str) -> NoReturn:
    raise _Unstorable(f"it has {constant}, which is no number; a value that is not finite is null")


def _require_storable(document: Any) -> None:
    """Raise on a value that is nested too deeply, is too large, or is text that cannot be stored."""
    # A stack of its own: recursion would end at Python's limit, at a depth that a stranger chooses.
    open_: list[Iterator[Any]] = [iter((document,))]
    while open_:
        for value in open_[-1]:
            if len(open_) - 1 > DEPTH:
                raise _Unstorable(f"it has more than {DEPTH} objects and lists within one another")
            if isinstance(value, int | float) and not (math.isfinite(value) and abs(value) < INTEGER):
                raise _Unstorable(f"it has a number that is not within ±{INTEGER}")
            # A lone surrogate has no UTF-8, and NUL ends a text in many libraries.
            if isinstance(value, str) and any(c == "\0" or "\ud800" <= c <= "\udfff" for c in value):
                raise _Unstorable(f"the text {_shorten(value)} has a character that cannot be stored")
            if isinstance(value, dict | list):
                open_.append(chain.from_iterable(value.items()) if isinstance(value, dict) else iter(value))
                break
        else:
            open_.pop()


# The record


def _check_names(record: Record) -> Iterator[str]:
    model, task, lineage = record.model, record.task, record.lineage
    if not (model.name.strip() and task.name.strip()):
        yield "its model or its task has no name"
    names = [model.name, model.source, model.revision or "", task.name, task.type, task.metric]
    if lineage:
        own_data = ", ".join([lineage.own_data, *(parent.own_data for parent in lineage.parents)])
        names += [lineage.recipe, lineage.variant, *lineage.all_selected_on]
        names += [*(parent.name for parent in lineage.parents), *own_data.split(", ")]
        names += [lineage.sweep.setting] if lineage.sweep else []
    for name in names:
        if len(name.encode()) > NAME_BYTES:
            yield f"the name {_shorten(name)} is longer than {NAME_BYTES} bytes"
        # Control, format (zero-width, right-to-left), unassigned, private, and line and paragraph separators:
        # two names that look alike would be two models.
        if any(unicodedata.category(c) in ("Cc", "Cf", "Cn", "Co", "Zl", "Zp") for c in name):
            yield f"the name {_shorten(name)} has characters that cannot be seen"


def _check_identity(record: Record) -> Iterator[str]:
    identity, artifact, lineage = record.identity, record.model.artifact, record.lineage
    if not _HASH.fullmatch(artifact):
        yield "its model's `artifact` is not 64 digits of a SHA-256"
    if identity.get("artifact") != artifact:
        yield "its identity is of another artifact than its model"
    if identity.get("task") != record.task.name:
        yield "its identity is of another task"
    if lineage is not None and lineage.key != artifact:
        yield "its model's key does not follow from its lineage"


def _check_sweep(record: Record) -> Iterator[str]:
    """The tasks of a sweep are those of every member's scores, its members its values, one of them chosen."""
    sweep = record.lineage.sweep if record.lineage else None
    if sweep is None:
        return
    if not all(member.value in sweep.values for member in sweep.curve):
        yield "a member of its sweep has a value that the sweep does not have"
    if sweep.chosen not in [member.value for member in sweep.curve if member.mean is not None]:
        yield "the value that its sweep chose is that of no member with scores"
    if any(set(m.scores) != set(sweep.tasks if m.mean is not None else ()) for m in sweep.curve):
        yield "a member of its sweep has other tasks than the sweep"


def _check_scores(record: Record) -> Iterator[str]:
    """Scores are shares; that the main score is that of its metrics the reader has seen."""
    names = ("main_score", record.task.metric)
    shares = [record.main_score, *(values.get(name) for values in record.subset_metrics for name in names)]
    for value in shares:
        if is_number(value) and not -1 - ROUNDING <= value <= 1 + ROUNDING:
            yield f"a score is {value}, and scores are from -1 to 1"
            return


def _check_provenance(record: Record) -> Iterator[str]:
    """What pages read of a provenance is of its kind, or not there; what else it has is free."""
    values = {name: value for name, value in record.provenance.items() if value is not None}
    seconds = values.get("seconds", {})
    spans = seconds.values() if isinstance(seconds, Mapping) else [None]
    if not all(is_number(span) and span >= SLACK for span in spans):
        yield "its provenance's `seconds` are no numbers by name"
    for name in values.keys() & set(_COUNTS):
        if not (is_number(values[name]) and values[name] >= 0):
            yield f"its provenance's `{name}` is no number, or below 0"
    for name in values.keys() & _KINDS.keys():
        kind, label = _KINDS[name]
        if not isinstance(values[name], kind):
            yield f"its provenance's `{name}` is not {label}"


def _check_dates(record: Record) -> Iterator[str]:
    texts = [record.provenance.get(name) for name in ("started", "written")]
    try:
        dates = [datetime.fromisoformat(text) for text in texts if isinstance(text, str)]
        late = any(date > datetime.now(UTC) + CLOCKS for date in dates)
    except (ValueError, TypeError):
        yield "its provenance has a date that is none in UTC"
        return
    if late:
        yield f"it was made on {max(dates):%Y-%m-%d}, which is in the future"
    if dates != sorted(dates):
        yield "it was written before it was started"


def _shorten(text: str) -> str:
    return ascii(text if len(text) <= 40 else text[:40] + "…")
