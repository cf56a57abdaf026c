"""Named baselines, and the Reference of a candidate: a baseline, its file, or a model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from harness import backbones, bm25, files, paths
from harness.documents import DocumentFolder, DocumentKind
from harness.errors import UsageError, unknown
from harness.request import DEFAULTS

SCHEMA = 2
"""The version of a baseline's file; a newer version is refused."""


def _with_changes(baseline: dict[str, Any]) -> dict[str, Any]:
    """A baseline of schema 1, in which settings of GLUE were options of their own, as one of schema 2."""
    asked = dict(baseline.get("asked", {}))
    mnli, seeds = asked.pop("mnli", None), asked.pop("fresh_seeds", None)
    former = [
        *([f"mnli={mnli}"] if mnli else []),
        *(["transfer=false"] if asked.pop("no_transfer", False) else []),
        *([f"fresh_seeds={seeds}"] if seeds is not None else []),
    ]
    return {**baseline, "asked": {**asked, "changes": former}}


@dataclass(frozen=True, kw_only=True)
class BaselineModel:
    """One model of a baseline; all models after the first are repeats of it.

    Attributes:
        model: The model's name, fit for a table.
        source: The model as a user typed it.
        artifact: The ArtifactKey.
        folder: The model's folder among the records (`Artifact.slug`).
        revision: The pinned commit of a hub model.
        keys: The EvaluationKey of each seed, by task.
    """

    model: str
    source: str
    artifact: str
    folder: str
    revision: str | None = None
    keys: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A baseline as it was set.

    Attributes:
        name: The name that a user types.
        when: ISO time in UTC.
        suites: The suites as they were typed.
        seeds: The number of seeds of each model.
        asked: The options of the evaluation by name, as the command line has them.
        runs: The models, at least one.
    """

    name: str
    when: str
    suites: Annotated[tuple[str, ...], Field(min_length=1)]
    seeds: Annotated[int, Field(strict=True, gt=0)]
    asked: Mapping[str, Any]
    runs: Annotated[tuple[BaselineModel, ...], Field(min_length=1)]

    __pydantic_config__ = ConfigDict(extra="forbid")

    def to_json(self) -> dict[str, Any]:
        """The baseline as plain values (docs/json.md)."""
        return {"schema": SCHEMA, **asdict(self)}


BASELINES = DocumentFolder(
    kind=DocumentKind(
        name="baseline",
        type=Baseline,
        schema=SCHEMA,
        migrations={1: _with_changes},
        hint="`harness baseline set NAME` makes one.",
    ),
    folder="baselines",
    then="`harness baseline list` shows all.",
)


def require_new_name(results: Path, name: str, *, replace: bool) -> None:
    """Refuse a name that no baseline can have, or that is taken.

    Raises:
        UsageError: It is not fit for a file, is that of a model, or is taken and not to be replaced.
    """
    BASELINES.check_name(name)
    if _is_model(name):
        raise UsageError(
            f"{name} is a model: a baseline of this name would hide it.", hint=f"Say e.g. {name}-release."
        )
    if not replace and name in BASELINES.names(results):
        raise _name_taken(name)


def write_baseline(results: Path, baseline: Baseline, *, replace: bool) -> Path:
    """Write a baseline under its name; gives its file.

    Raises:
        UsageError: The name is unfit, or taken and not to be replaced.
        StoreError: The folder cannot be written.
    """
    require_new_name(results, baseline.name, replace=replace)
    text = json.dumps(baseline.to_json(), indent=1) + "\n"
    if replace:
        return BASELINES.write(results, baseline.name, text)
    path = BASELINES.path(results, baseline.name)
    if not files.write_once(path, text.encode()):
        raise _name_taken(baseline.name)
    return path


def _is_model(text: str) -> bool:
    """Whether a text is a name in the catalog of models."""
    return bm25.is_bm25(text) or backbones.named_model(text) is not None


def _name_taken(name: str) -> UsageError:
    return UsageError(
        f"There is a baseline {name!r} already.",
        hint=f"Add --replace, or choose another name; `harness baseline show {name}` shows it.",
    )


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The baseline or model that a candidate is held against.

    Attributes:
        name: The text that a user typed.
        baseline: The baseline; None for a model.
        results: The results folder of the baseline's records, where it is another folder.
    """

    name: str
    baseline: Baseline | None = None
    results: Path | None = None

    @staticmethod
    def resolve(text: str, results: Path | None) -> Reference:
        """The baseline or the model that a text names.

        Raises:
            UsageError: There is no baseline or model of this name.
            RecordError: A baseline's file cannot be read.
        """
        path, home = paths.expanded(text), paths.results_folder(results)
        if path.suffix == ".json":
            return _from_file(text, path)
        if text in BASELINES.names(home):
            return Reference(name=text, baseline=_with_known_options(BASELINES.read(home, text)))
        if "/" not in text and not _is_model(text) and not path.is_dir():
            known = [*BASELINES.names(home), *backbones.named_models(), bm25.NAME]
            raise unknown(
                "baseline or model", text, known, then="`harness baseline list` shows the baselines."
            )
        return Reference(name=text)


def _from_file(text: str, path: Path) -> Reference:
    if not path.is_file():
        raise UsageError(
            f"There is no file {text}.", hint="`harness baseline list` shows the baselines that are set."
        )
    beside = path.absolute().parent.parent
    own = beside if (beside / "records").is_dir() else None
    return Reference(name=text, baseline=_with_known_options(BASELINES.kind.read(path)), results=own)


def _with_known_options(baseline: Baseline) -> Baseline:
    """The baseline, if each of its options is one of an evaluation: another one would be ignored."""
    for name in baseline.asked:
        if name not in DEFAULTS:
            then = "Mend its file, or set it anew with harness baseline set."
            raise unknown(f"option of the baseline {baseline.name}", name, DEFAULTS, then=then)
    return baseline
