"""Named baselines and what a check is held against.

Named baselines: which records a candidate is held against, pinned by their keys.

What a user types after --baseline: a baseline that was set, its file, or a model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import backbones, files, paths
from harness.errors import RecordError, UsageError, unknown

SCHEMA = 1
"""The form of a baseline's file. A newer one is refused."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, kw_only=True)
class BaselineModel:
    """One model of a baseline; of several the second and further ones are repeats of the first.

    Attributes:
        model: Its name, fit for a table.
        source: What was typed.
        artifact: The ArtifactKey.
        folder: Its folder among the records (`Artifact.slug`).
        revision: The pinned commit of a hub model.
        keys: By task, the EvaluationKey of each seed.
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
        name: What a user types.
        when: ISO time in UTC.
        suites: As they were typed.
        seeds: How many seeds each model was evaluated with.
        asked: The options of the evaluation, by name, as the command line has them.
        runs: At least one.
    """

    name: str
    when: str
    suites: tuple[str, ...]
    seeds: int
    asked: Mapping[str, Any]
    runs: tuple[BaselineModel, ...]

    def to_json(self) -> dict[str, Any]:
        """The baseline for machines (docs/json.md)."""
        return {"schema": SCHEMA, **asdict(self)}


def _folder(results: Path) -> Path:
    """Where the baselines of a results folder lie."""
    return results / "baselines"


def names(results: Path) -> list[str]:
    """The baselines there are."""
    return sorted(path.stem for path in _folder(results).glob("*.json"))


def check_name(name: str) -> None:
    """Refuse a name that cannot be a file's.

    Raises:
        UsageError: It has other characters than letters, digits, dots, dashes and underscores, or
            would be read as a file or as a model.
    """
    if not NAME.fullmatch(name) or name.endswith(".json"):
        raise UsageError(
            f"{name!r} cannot be the name of a baseline.",
            hint="Use letters, digits, dots, dashes and underscores, e.g. release-1.2.",
        )
    if backbones.named_model(name) is not None:
        raise UsageError(
            f"{name} is a model: a baseline of this name would hide it.", hint=f"Say e.g. {name}-release."
        )


def write(results: Path, baseline: Baseline, *, again: bool) -> Path:
    """Write a baseline down.

    Raises:
        UsageError: There is one of this name, and it is not to be replaced.
        StoreError: The folder cannot be written.
    """
    check_name(baseline.name)
    path = _folder(results) / f"{baseline.name}.json"
    content = (json.dumps(baseline.to_json(), indent=1) + "\n").encode()
    if again:
        files.replace(path, content)
    elif not files.write_once(path, content):
        raise name_taken_error(baseline.name)
    return path


def name_taken_error(name: str) -> UsageError:
    """The error for a name that another baseline has."""
    return UsageError(
        f"There is a baseline {name!r} already.",
        hint=f"Add --replace, or choose another name; `harness baseline show {name}` shows it.",
    )


def read(results: Path, name: str) -> Baseline:
    """The baseline of this name.

    Raises:
        UsageError: There is none.
        RecordError: Its file cannot be read.
    """
    path = _folder(results) / f"{name}.json"
    if name not in names(results):
        raise unknown("baseline", name, names(results), then="`harness baseline list` shows all.")
    return _read_file(path)


def _read_file(path: Path) -> Baseline:
    """The baseline in a file.

    Raises:
        RecordError: It is of a newer schema, or no baseline.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        schema = raw["schema"]
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path} is no baseline.", hint="`harness baseline set NAME` makes one.") from error
    if not isinstance(schema, int) or schema > SCHEMA:
        raise RecordError(
            f"{path} was written by a newer version (schema {schema}, this one reads up to {SCHEMA}).",
            hint="Update the harness.",
        )
    try:
        return _made({name: value for name, value in raw.items() if name != "schema"})
    except (KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{path} is no baseline of schema {SCHEMA}: {error}.") from error


def _made(raw: dict[str, Any]) -> Baseline:
    _require(isinstance(raw["suites"], list) and bool(raw["suites"]), "suites")
    _require(type(raw["seeds"]) is int and raw["seeds"] > 0, "seeds")
    _require(isinstance(raw["asked"], dict), "asked")
    for run in raw["runs"]:
        _require(all(isinstance(keys, list) for keys in run["keys"].values()), "keys")
    runs = tuple(
        BaselineModel(**{**run, "keys": {task: tuple(keys) for task, keys in run["keys"].items()}})
        for run in raw["runs"]
    )
    if not runs:
        raise TypeError("it has no runs")
    return Baseline(**{**raw, "suites": tuple(raw["suites"]), "runs": runs})


def _require(holds: bool, field: str) -> None:
    if not holds:
        raise TypeError(f"its {field} cannot be used")


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What a candidate is held against.

    Attributes:
        name: What a user typed.
        baseline: A baseline that was set; None for a model.
        results: The results folder of the baseline's records, where it is another one.
    """

    name: str
    baseline: Baseline | None = None
    results: Path | None = None


def resolve_reference(text: str, results: Path | None) -> Reference:
    """The baseline or the model that a text names.

    Raises:
        UsageError: There is neither.
        RecordError: A baseline's file cannot be read.
    """
    path, home = paths.expanded(text), paths.results_folder(results)
    if path.suffix == ".json":
        return _from_file(text, path)
    if text in names(home):
        return Reference(name=text, baseline=read(home, text))
    if "/" not in text and backbones.named_model(text) is None and not path.is_dir():
        known = [*names(home), *backbones.named_models()]
        raise unknown("baseline or model", text, known, then="`harness baseline list` shows the baselines.")
    return Reference(name=text)


def _from_file(text: str, path: Path) -> Reference:
    if not path.is_file():
        raise UsageError(
            f"There is no file {text}.", hint="`harness baseline list` shows the baselines that are set."
        )
    beside = path.absolute().parent.parent
    own = beside if (beside / "records").is_dir() else None
    return Reference(name=text, baseline=_read_file(path), results=own)
