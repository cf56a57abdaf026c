"""The checks of a model folder that a dry run makes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.core.encoding import Encoding
from harness.core.types import Artifact
from harness.encoder.folder.preflight import check_folder
from harness.plan.models import Verdict, check_load, start_trials


def check_model(
    artifact: Artifact, encoding: Encoding, *, any_kind: bool = False, gate: bool = False
) -> None:
    """Refuse a model that a run would refuse before its first task."""
    check_folder(artifact, encoding, any_kind=any_kind)
    with check_load([(artifact, encoding)], None, gate=gate):
        pass


def collect_verdicts(
    models: Sequence[tuple[Artifact, Encoding]], cache: Path | None, *, gate: bool = False
) -> list[Verdict]:
    """The verdicts on models, with nothing done beside their trials."""
    with start_trials(models, cache, gate=gate) as collect:
        return collect()
