"""Model folders as sentence-transformers 6.2 saves them, with random weights, and the vectors that it gives.

`write_layouts.py` has written layouts.json in an environment of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

TEXTS = (
    "the cat sat on a mat .",
    "what is a query ?",
    "x 日",
    "a cat , the document of words and a mat on which it sat",
)
"""Texts of several lengths, the last one longer than the models read."""


def read_layouts() -> dict[str, dict[str, Any]]:
    """The layouts by name: `files` and `tensors` by their paths, and `vectors` by side."""
    content = json.loads(Path(__file__).with_name("layouts.json").read_text(encoding="utf-8"))
    for layout in content["layouts"].values():
        for path, file in layout["files"].items():
            layout["files"][path] = content[file] if isinstance(file, str) else file
    layouts: dict[str, dict[str, Any]] = content["layouts"]
    return layouts


def draw_tensors(folder: Path, tensors: Mapping[str, Mapping[str, list[int]]]) -> None:
    """Write the tensors of a folder, drawn from one seed in the order of their names."""
    generator = torch.Generator().manual_seed(7)
    for path, shapes in sorted(tensors.items()):
        drawn = {
            name: torch.randn(shape, generator=generator) * 0.3 + ("norm" in name.lower())
            for name, shape in sorted(shapes.items())
        }
        save_file(drawn, folder / path, metadata={"format": "pt"})


def write_layout(folder: Path, layout: Mapping[str, Any]) -> Path:
    """Write a layout's files and tensors into a new folder."""
    for path, content in layout["files"].items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(json.dumps(content, ensure_ascii=False))
    draw_tensors(folder, layout["tensors"])
    return folder
