"""Records: one task's outcome on disk, its schema, and the steps from older schemas to this one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.errors import RecordError

SCHEMA = 2
"""The schema this version writes. A newer one is refused, an older one migrated step by step."""

MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: lambda record: record}
"""`MIGRATIONS[n]` turns a record of schema n into one of schema n + 1 (a golden file each).

Schema 2 added `training`, which is empty where no recipe ran.
"""

EXAMPLE_COLUMNS = ("split", "subset", "example_id", "replicate", "prediction", "gold", "metric")
"""Columns of the per-example file, described in results/README.md."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class ModelPart(_Part):
    """The model a record is about."""

    name: str
    """Fit for a table: a catalog name, a hub id or a folder's name."""
    source: str
    """What was asked for: a catalog name, `org/name`, or `local` for a folder."""
    artifact: str
    """The ArtifactKey."""
    weights: str
    """Hash of the weights alone."""
    revision: str | None = None
    """The pinned commit of a hub model."""
    parameters: int | None = None
    dimension: int | None = None


class TaskPart(_Part):
    """The task a record is about."""

    name: str
    type: str
    metric: str
    """Name of the main metric."""


class ExamplesPart(_Part):
    """The per-example file beside the record."""

    file: str
    rows: int
    sha256: str


class ErrorPart(_Part):
    """Why a task failed."""

    kind: str
    message: str
    hint: str | None = None
    traceback: str = ""


class Record(_Part):
    """One task's outcome: scores, every raw metric, identity, provenance, or the error."""

    schema_version: int = Field(default=SCHEMA, alias="schema")
    key: str
    """The EvaluationKey: the digest of `identity`."""
    purpose: Literal["final", "trial"] = "final"
    status: Literal["done", "failed"]
    model: ModelPart
    task: TaskPart
    identity: Mapping[str, Any]
    """Everything the score depends on, as it was hashed (harness.identity)."""
    main_score: float | None = None
    """Mean of the main metric over splits and subsets, in the metric's own unit."""
    scores: Mapping[str, Mapping[str, Mapping[str, Any]]] = {}
    """split → subset → metric → value, every raw metric the task code gave."""
    examples: ExamplesPart | None = None
    training: Mapping[str, Any] = {}
    """How a recipe trained for this score, and what it tried (results/README.md); empty without one."""
    provenance: Mapping[str, Any] = {}
    """What happened to run it; never part of the identity (harness.provenance)."""
    error: ErrorPart | None = None

    def to_json(self) -> str:
        """The record as it is written: indented JSON with a final newline."""
        return json.dumps(self.model_dump(mode="json", by_alias=True), indent=1, ensure_ascii=False) + "\n"


def parse(text: str, *, where: str) -> Record:
    """Read a record.

    Args:
        text: The file's content.
        where: What to call the file in a message.

    Raises:
        RecordError: The record is of a newer schema, or not a record at all.
        ValueError: The text is not complete JSON (a truncated file).
    """
    raw = json.loads(text)
    if not isinstance(raw, dict) or not isinstance(raw.get("schema"), int):
        raise RecordError(f"{where} is not a record: it has no schema number.")
    try:
        return Record.model_validate(_migrate(raw, where=where))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise RecordError(f"{where} is not a record of schema {SCHEMA}: {field}: {first['msg']}.") from error


def _migrate(raw: dict[str, Any], *, where: str) -> dict[str, Any]:
    """Bring a record of an older schema to this one, one numbered step after another."""
    version = int(raw["schema"])
    if version > SCHEMA:
        raise RecordError(
            f"{where} was written by a newer version (schema {version}, this one reads up to {SCHEMA}).",
            hint="Update the harness, or choose another folder with --results DIR.",
        )
    while version < SCHEMA:
        if version not in MIGRATIONS:
            raise RecordError(f"{where} has schema {version}, which no version ever wrote.")
        raw = {**MIGRATIONS[version](raw), "schema": version + 1}
        version += 1
    return raw
