"""The checks of a model folder that a dry run makes."""

from __future__ import annotations

from harness.core.encoding import Encoding
from harness.core.types import Artifact
from harness.encoder.folder.preflight import check_folder
from harness.plan.models import check_load


def check_model(artifact: Artifact, encoding: Encoding, *, any_kind: bool = False) -> None:
    """Refuse a model that a run would refuse before its first task."""
    check_folder(artifact, encoding, any_kind=any_kind)
    check_load([(artifact, encoding)], None)
