"""The checks of a model folder that a dry run makes."""

from __future__ import annotations

from harness.core.encoding import Encoding
from harness.core.types import Artifact
from harness.encoder.preflight import PreflightOptions, check_folder, check_load


def check_model(artifact: Artifact, encoding: Encoding, options: PreflightOptions | None = None) -> None:
    """Refuse a model that a run would refuse before its first task."""
    check_folder(artifact, encoding, options or PreflightOptions())
    check_load([(artifact, encoding)], None)
