"""Shows that keys, descriptions and vectors of model folders are equal under two sets of libraries.

PYTHONPATH=tests/support python benchmarks/compare_library_sets.py locked.json    # in each environment
PYTHONPATH=tests/support python benchmarks/compare_library_sets.py locked.json newest.json
"""

from __future__ import annotations

import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import tiny
from harness.core.encoding import OwnTexts, Settings
from harness.core.types import SIDES, Artifact
from harness.encoder.backbones import minilm
from harness.encoder.engine import Encoder
from harness.encoder.folder.description import compute_folder_identity, describe
from harness.encoder.loading import load_any
from harness.encoder.resolved_encoding import resolve_encoding
from layouts import TEXTS, read_layouts, write_layout

LIBRARIES = ("torch", "transformers", "sentence-transformers")


def measure_folder(folder: Path) -> dict[str, Any]:
    """The key of a folder, its description in words, and the vectors of texts on each side."""
    key, weights, _ = compute_folder_identity(folder)
    description = describe(folder)
    artifact = Artifact(name="model", source=str(folder), folder=folder, key=key, weights=weights)
    encoding = resolve_encoding(description, Settings())
    encoder = load_any(artifact, encoding, device="cpu")
    vectors: dict[str, list[list[float]]] = {}
    for role in SIDES:
        prompt = encoding.resolve_prompt(OwnTexts(), role)
        if isinstance(encoder, Encoder):
            side = role if role in encoder.roles else ""
            vectors[role] = encoder.encode(TEXTS, prompt=prompt, role=side).tolist()
        else:
            rows = encoder.encode(TEXTS, prompt=prompt, role=role)
            vectors[role] = [rows.select_text_vectors(at).ravel().tolist() for at in range(len(TEXTS))]
    return {"key": key, "description": repr(description).replace(str(folder), ""), "vectors": vectors}


def write_measures(target: Path) -> None:
    """Measure MiniLM, a small model of each family, and every layout of sentence-transformers 6."""
    assert minilm.BACKBONE.locate is not None
    with tempfile.TemporaryDirectory() as work:
        folders = {"minilm": Path(minilm.BACKBONE.locate())}
        for name, family in tiny.families().items():
            folders[name] = tiny.folder(family, Path(work, name))
        for name, layout in read_layouts().items():
            folders[f"layout {name}"] = write_layout(Path(work, f"layout-{name}"), layout)
        measures = {name: measure_folder(folder) for name, folder in folders.items()}
    libraries = {name: version(name) for name in LIBRARIES}
    target.write_text(json.dumps({"libraries": libraries, "models": measures}))


def compare_measures(one: Path, other: Path) -> None:
    """Print each model whose key or description differs, and the largest difference of vectors."""
    first, second = (json.loads(path.read_text()) for path in (one, other))
    print(first["libraries"], second["libraries"])
    for name, mine in first["models"].items():
        theirs = second["models"][name]
        apart = max(
            float(np.abs(np.subtract(a, b)).max())
            for role in SIDES
            for a, b in zip(mine["vectors"][role], theirs["vectors"][role], strict=True)
        )
        different = [field for field in ("key", "description") if mine[field] != theirs[field]]
        print(f"{name:30} {apart:.1e} {' and '.join(different) or 'equal'}")


if __name__ == "__main__":
    paths = [Path(argument) for argument in sys.argv[1:]]
    write_measures(paths[0]) if len(paths) == 1 else compare_measures(*paths)
