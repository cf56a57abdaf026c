"""Documents from strangers: JSON that is one clear value, and a record that may be kept."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

from harness.errors import RecordError
from harness.identity import digest
from harness.record import RECORDS, Record
from harness.types import Artifact
from leaderboard.access.refusals import Refusal

DEPTH = 32
"""Objects and lists within one another."""

NAME = 200
"""Bytes of a name: it becomes a folder's."""

INTEGER = 2**63
"""Integers are smaller than this, as in every database."""

COUNTS = (
    "texts",
    "texts_trained_on",
    "texts_encoded",
    "characters_encoded",
    "tokens_encoded",
    "tokens_per_second",
    "cores",
    "threads",
)
"""What a provenance says in numbers, where it says it."""

OBJECTS = ("device", "packages", "prompts_asked", "prompts_applied", "peak_memory_bytes", "gate")
TEXTS = ("written", "started", "commit", "harness")

AS_WRITTEN = "Push records as a run wrote them."

_END = object()
_HASH = re.compile(r"[0-9a-f]{64}")


def record_of(body: bytes) -> Record:
    """The finished final record of a request's body, without the files beside it.

    Raises:
        Refusal: 400 where the body is not JSON, 422 where it is no such record.
    """
    text = _text(body)
    _check_values(_value(text))
    try:
        record = RECORDS.parse(text, where="The body")
    except RecordError as error:
        hint = error.hint and "The site is older than what wrote this record; it needs an update."
        raise _unfit(error.message, hint=hint or "") from error
    except ValueError as error:
        raise _unfit("The record is not what its `digest` says.", hint=AS_WRITTEN) from error
    _check_kind(record)
    _check_names(record)
    _check_sweep(record)
    _check_key(record)
    _check_scores(record)
    _check_provenance(record.provenance)
    return record.model_copy(update={"examples": None, "run": None})


def slug_of(record: Record) -> str:
    """The artifact's folder, named as a run would name it."""
    model = record.model
    return Artifact(
        name=model.name, source=model.source, folder=Path(), key=model.artifact, weights=model.weights
    ).slug


def key_of(body: bytes) -> str | None:
    """What a body that was refused may have as its key, for the audit."""
    found = re.search(rb'"key"\s*:\s*"([0-9a-f]{64})"', body)
    return found[1].decode() if found else None


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refusal(400, f"The body is not UTF-8: byte {error.start} is wrong.", outcome="json") from error


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_not_finite, object_pairs_hook=_object)
    except RecursionError as error:
        raise _too_deep() from error
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise Refusal(400, f"The body is not JSON: {error.msg} ({place}).", outcome="json") from error
    except ValueError as error:  # an integer of thousands of digits
        raise _unfit(f"The body has an integer that is not within ±{INTEGER}.") from error


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _unfit(f"The name {_shown(name)} stands twice in one object.")
        found[name] = value
    return found


def _not_finite(constant: str) -> NoReturn:
    raise _unfit(f"The body has {constant}, which is no number.", hint="A value that is not finite is null.")


def _check_values(document: Any) -> None:
    for value, depth in _walk(document):
        if depth > DEPTH:
            raise _too_deep()
        if isinstance(value, float) and not math.isfinite(value):
            raise _unfit("The body has a number that is not finite.", hint="Such a value is null.")
        if isinstance(value, int) and abs(value) >= INTEGER:
            raise _unfit(f"The body has an integer that is not within ±{INTEGER}.")
        if isinstance(value, str) and any(c == "\0" or "\ud800" <= c <= "\udfff" for c in value):
            raise _unfit(f"The text {_shown(value)} has a character that cannot be stored.")


def _walk(document: Any) -> Iterator[tuple[Any, int]]:
    """Every value and every name of an object, each with its depth."""
    open_: list[Iterator[Any]] = [iter((document,))]
    while open_:
        value = next(open_[-1], _END)
        if value is _END:
            open_.pop()
            continue
        yield value, len(open_) - 1
        if isinstance(value, dict):
            open_.append(chain.from_iterable(value.items()))
        elif isinstance(value, list):
            open_.append(iter(value))


def _check_kind(record: Record) -> None:
    if record.status != "done" or record.error is not None:
        raise _unfit("The record is of a failure.", hint="Only finished scores are taken.")
    if record.purpose != "final":
        raise _unfit("The record is of a trial.", hint="Only final records are taken.")
    if record.main_score is not None and not math.isfinite(record.main_score):
        raise _unfit("The `main_score` is not finite.", hint="A value that is not there is null.")


def _check_names(record: Record) -> None:
    model, task = record.model, record.task
    if not model.name.strip() or not task.name.strip():
        raise _unfit("The model or the task has no name.")
    made = record.lineage
    parents = made.parents if made else ()
    trained = [made.recipe, made.variant, *(p.name for p in parents), *made.all_selected_on] if made else []
    own = [made.own_data, *(p.own_data for p in parents)] if made else []
    own += [made.sweep.setting] if made and made.sweep else []
    for name in (
        *(model.name, model.source, model.revision or "", task.name, task.type, task.metric),
        *trained,
        *own,
    ):
        if len(name.encode()) > NAME:
            raise _unfit(f"The name {_shown(name)} is longer than {NAME} bytes.")
        if any(unicodedata.category(c) in ("Cc", "Cf", "Cn", "Co", "Zl", "Zp") for c in name):
            raise _unfit(f"The name {_shown(name)} has characters that cannot be seen.")
    if not _HASH.fullmatch(record.model.artifact):
        raise _unfit("The model's `artifact` is not an ArtifactKey: 64 digits of a SHA-256.")


def _check_sweep(record: Record) -> None:
    """The tasks of a sweep are those of every member's scores, its members its values, one of them chosen."""
    sweep = record.lineage.sweep if record.lineage else None
    if sweep is None:
        return
    members = [member.value for member in sweep.curve]
    if any(value not in sweep.values for value in members):
        raise _unfit("A member of the lineage's `sweep` has a value that is none of it.", hint=AS_WRITTEN)
    if sweep.chosen not in [member.value for member in sweep.curve if member.mean is not None]:
        what = "The value that the lineage's `sweep` chose is that of no member with scores."
        raise _unfit(what, hint=AS_WRITTEN)
    for member in sweep.curve:
        if set(member.scores) != (set(sweep.tasks) if member.mean is not None else set()):
            raise _unfit("A member of the lineage's `sweep` has other tasks than it.", hint=AS_WRITTEN)


def _check_key(record: Record) -> None:
    if record.key != digest(record.identity):
        raise _unfit("The `key` is not the digest of `identity`.", hint=AS_WRITTEN)
    if record.identity.get("artifact") != record.model.artifact:
        raise _unfit("The `identity` is of another artifact than `model`.")
    if record.lineage is not None and record.lineage.key != record.model.artifact:
        raise _unfit("The `lineage` is of another model than `model`.", hint=AS_WRITTEN)
    if record.identity.get("task") != record.task.name:
        raise _unfit("The `identity` is of another task than `task`.")


def _check_scores(record: Record) -> None:
    """Every score is null or a share: not above 1 and not below -1."""
    found: dict[str, Any] = {"main_score": record.main_score}
    for split, subsets in record.scores.items():
        for subset, metrics in subsets.items():
            for name in ("main_score", record.task.metric):
                found[f"scores.{split}.{subset}.{name}"] = metrics.get(name)
    for name, value in found.items():
        if isinstance(value, int | float) and not -1 <= value <= 1:
            raise _unfit(
                f"{_shown(name)} is {value}, which no score is.",
                hint="Scores are shares of 1, from -1 to 1; a value that is not there is null.",
            )


def _check_provenance(said: Mapping[str, Any]) -> None:
    """What pages read of it is of its kind, or not there; what else is said is free."""
    seconds = said.get("seconds")
    if seconds is not None and not (isinstance(seconds, Mapping) and all(map(_amount, seconds.values()))):
        raise _unfit("The provenance's `seconds` are no numbers by name.")
    for name in COUNTS:
        if said.get(name) is not None and not _amount(said[name]):
            raise _unfit(f"The provenance's `{name}` is no number, or below 0.")
    kinds: tuple[tuple[tuple[str, ...], type, str], ...] = (
        (OBJECTS, Mapping, "object"),
        (TEXTS, str, "text"),
        (("notes",), list, "list"),
    )
    for names, kind, called in kinds:
        for name in names:
            if said.get(name) is not None and not isinstance(said[name], kind):
                raise _unfit(f"The provenance's `{name}` is no {called}.")


def _amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 40 else text[:40] + "…")


def _too_deep() -> Refusal:
    return _unfit(f"The body has more than {DEPTH} objects and lists within one another.")


def _unfit(message: str, *, hint: str = "") -> Refusal:
    return Refusal(422, message, hint=hint, outcome="unfit")
