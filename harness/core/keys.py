"""Keys: the hashes that tell whether work is already done.

A key is the SHA-256 of canonical JSON and covers only the request; the circumstances of a run are provenance.
A field that is added later is left out at its default, so that old keys stay valid.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from harness.core.encoding import AnyEncoding, ContextDraw, Encoding, Plaid, Ranking
from harness.core.types import DOCUMENT_TEXT, SEED, Artifact, CutSource, Data, MeasuredSource, Task

ALWAYS = frozenset({"output", "dtype", "similarity"})
"""Original fields, which are written even at their default."""


class AlwaysHashed:
    """A dataclass with every field in the key, but for `metadata={"later": True}` at its default.

    A Ranking, the settings of an index and the draw of a context are written in the same way.
    """


def serialize_canonical(value: Any) -> str:
    """Canonical JSON: sorted keys, no spaces, UTF-8, no NaN; dataclasses become objects.

    >>> serialize_canonical({"b": 1, "a": (2.0, None)})
    '{"a":[2.0,null],"b":1}'
    """
    return json.dumps(
        _serialize_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def digest(value: Any) -> str:
    """The key of a value: the SHA-256 of its canonical JSON, 64 hex digits."""
    return hashlib.sha256(serialize_canonical(value).encode()).hexdigest()


def build_evaluation_identity(
    artifact: Artifact,
    task: Task,
    encoding: AnyEncoding,
    *,
    seed: int,
    machine: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Everything that a score depends on; its digest is the EvaluationKey.

    Only the prompts that are applied count, and lengths of queries and documents or an index that are the
    task's own.

    Args:
        artifact: The model.
        task: The task, with the revision or content of its data.
        encoding: The model's own encoding or ranking, not yet adapted to the task.
        seed: The seed of samples and probes.
        machine: The machine (`provenance.describe_machine`), which counts where the task measures it.
    """
    if isinstance(encoding, Encoding):
        encoding = encoding.choose_document_length(task)
    prompts = {
        role: encoding.resolve_prompt(task, role) if isinstance(encoding, Encoding) else ""
        for role in task.roles
    }
    return {
        **build_task_identity(artifact, task),
        "encoding": _build_task_encoding(encoding, task),
        "prompts": prompts,
        # What is no figure of a machine draws by the hashes of its texts.
        "seed": seed if task.output != "measured" or is_per_machine(task) else SEED,
        **_collect_task_settings(encoding, task),
        **({"machine": machine} if is_per_machine(task) else {}),
    }


def _build_task_encoding(encoding: AnyEncoding, task: Task) -> dict[str, Any]:
    """The encoding, or what a task reads of it that runs the model itself: dtype and scaling of positions."""
    how = build_encoding_identity(encoding)
    if task.output != "measured":
        return how
    cuts = "rope_scaling" in how or isinstance(task.source, CutSource)
    names = ("dtype", "rope_scaling", *(["max_length"] if cuts else []))
    return {"output": task.output, **{name: how[name] for name in names if name in how}}


def is_per_machine(task: Task) -> bool:
    """Whether the scores of a task are those of a machine."""
    return isinstance(task.source, MeasuredSource) and task.source.per_machine


def _collect_task_settings(encoding: AnyEncoding, task: Task) -> dict[str, Any]:
    """The settings of an encoding on a task that are not the model's: a length of queries, an index."""
    if not isinstance(encoding, Encoding) or encoding.late_interaction is None:
        return {}
    task_encoding = encoding.adapt_encoding(task)
    assert task_encoding.late_interaction is not None
    length = task_encoding.late_interaction.query_length
    return {
        # Each only where the task changes it, as the model's own length and index are in "encoding" already.
        **({"query_length": length} if length != encoding.late_interaction.query_length else {}),
        **({"index": _serialize_plain(task_encoding.index)} if task_encoding.index != encoding.index else {}),
    }


def build_task_identity(artifact: Artifact, task: Task) -> dict[str, Any]:
    """The identity's fields that every score has: model, task, data and scoring code."""
    return {
        "artifact": artifact.key,
        "task": task.name,
        "data": build_data_identity(task.data),
        # Sorted, as the order in which splits and subsets are named changes no score.
        "splits": sorted(task.splits),
        "subsets": sorted(task.subsets),
        "scoring": task.source.scoring,
        # Newer than the first records: left out at the default, so that their keys stay valid.
        **({"documents": task.documents} if task.documents != DOCUMENT_TEXT else {}),
        **({} if task.limit is None else {"limit": task.limit}),
    }


def build_data_identity(data: Data) -> dict[str, Any]:
    """The data in an identity: path, and revision or content."""
    identity: dict[str, Any] = _serialize_plain(data)
    return identity


def is_of_object(identity: Mapping[str, Any]) -> bool:
    """Whether the identity of an evaluation is of an encoder in memory: no setting of it is known."""
    return identity.get("encoding") == {"output": "vector"}


def build_encoding_identity(encoding: AnyEncoding) -> dict[str, Any]:
    """An encoding without its prompts, choice of a search and longer documents, which depend on the task.

    Of a ranking every setting.
    """
    if isinstance(encoding, Encoding):
        encoding = replace(encoding, prompts=(), default_prompt=None, exact=False, document_lengths=())
    how: dict[str, Any] = _serialize_plain(encoding)
    return how


_PLAIN = (str, bool, int, float, type(None))


def _serialize_plain(value: Any) -> Any:
    # First, as most values are: each record that is read has a hundred.
    if isinstance(value, _PLAIN):
        return value
    # Keys of JSON are texts; two keys that differ only in their type would be one here.
    if isinstance(value, Mapping):
        return {str(k): _serialize_plain(v) for k, v in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: _serialize_plain(getattr(value, f.name)) for f in fields(value) if _is_written(value, f)
        }
    if isinstance(value, list | tuple):
        return [_serialize_plain(v) for v in value]
    if isinstance(value, set | frozenset):
        return sorted(_serialize_plain(v) for v in value)
    if isinstance(value, Path):
        raise TypeError("a path is where something lies, not what it is: hash its content")
    raise TypeError(f"a key cannot hold a {type(value).__name__}")


def _is_written(value: Any, field: Field[Any]) -> bool:
    """Whether a field of a dataclass is in the key."""
    # An object in memory, of which no content is known.
    if not field.compare:
        return False
    has_every_field = isinstance(value, AlwaysHashed | Ranking | Plaid | ContextDraw)
    if field.name in ALWAYS or (has_every_field and not field.metadata.get("later")):
        return True
    default = field.default if field.default_factory is MISSING else field.default_factory()
    return bool(getattr(value, field.name) != default)
