"""What a user types after --baseline: a baseline that was set, its file, or a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness import catalog, paths
from harness.errors import UsageError, unknown
from harness.regress import baseline as baselines
from harness.regress.baseline import Baseline


@dataclass(frozen=True, kw_only=True)
class Standard:
    """What a candidate is held against.

    Attributes:
        name: What a user typed.
        baseline: A baseline that was set; None for a model.
        results: The results folder of the baseline's records, where it is another one.
    """

    name: str
    baseline: Baseline | None = None
    results: Path | None = None


def standard_of(text: str, results: Path | None) -> Standard:
    """The baseline or the model that a text names.

    Raises:
        UsageError: There is neither.
        RecordError: A baseline's file cannot be read.
    """
    path, home = paths.expanded(text), paths.results_folder(results)
    if path.suffix == ".json":
        return _from_file(text, path)
    if text in baselines.names(home):
        return Standard(name=text, baseline=baselines.read(home, text))
    if "/" not in text and catalog.model(text) is None and not path.is_dir():
        known = [*baselines.names(home), *catalog.models()]
        raise unknown("baseline or model", text, known, then="`harness baseline list` shows the baselines.")
    return Standard(name=text)


def _from_file(text: str, path: Path) -> Standard:
    if not path.is_file():
        raise UsageError(
            f"There is no file {text}.", hint="`harness baseline list` shows the baselines that are set."
        )
    beside = path.absolute().parent.parent
    own = beside if (beside / "records").is_dir() else None
    return Standard(name=text, baseline=baselines.read_file(path), results=own)
