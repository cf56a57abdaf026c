"""Checkpoints on disk: folders that count only once a marker with the hash of every file is written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from harness.core.files import replace, sha256_file

_MARKER = "files.json"
"""The names of a checkpoint's files with their sizes and hashes, written last."""

_KEPT = 2
"""The number of checkpoints that are kept."""


class Checkpoints:
    """The checkpoints of a training, `step-N/`, and the files beside them that they name.

    Args:
        folder: The folder of all checkpoints of the training.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def last(self) -> Path | None:
        """The newest whole checkpoint; those that are not whole are removed."""
        for path in reversed(self._all()):
            if self._whole(path):
                return path
            shutil.rmtree(path)
        return None

    def begin(self, step: int) -> Path:
        """An empty folder for the checkpoint of a step."""
        path = self.path(step)
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def finish(self, step: int, *, beside: Sequence[Path] = ()) -> None:
        """Mark the checkpoint of a step as whole, and remove what no kept checkpoint needs.

        Args:
            step: The step.
            beside: Files beside the checkpoints that belong to it.
        """
        path = self.path(step)
        files = [file for file in sorted(path.iterdir()) if file.name != _MARKER]
        content = {
            str(file.relative_to(self.folder)): [file.stat().st_size, sha256_file(file)]
            for file in (*files, *beside)
        }
        replace(path / _MARKER, json.dumps(content, indent=1).encode())
        self._prune()

    def path(self, step: int) -> Path:
        """The folder of the checkpoint of a step."""
        return self.folder / f"step-{step:08d}"

    def _all(self) -> list[Path]:
        return sorted(self.folder.glob("step-*")) if self.folder.is_dir() else []

    def _whole(self, path: Path) -> bool:
        files = self._files(path)
        return bool(files) and all(
            (self.folder / name).is_file()
            and (self.folder / name).stat().st_size == size
            and sha256_file(self.folder / name) == digest
            for name, (size, digest) in files.items()
        )

    def _files(self, path: Path) -> dict[str, tuple[int, str]]:
        """The files of a checkpoint by name; none without a readable marker."""
        try:
            content = json.loads((path / _MARKER).read_text(encoding="utf-8"))
            return {str(name): (int(size), str(digest)) for name, (size, digest) in content.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def _prune(self) -> None:
        for path in self._all()[:-_KEPT]:
            shutil.rmtree(path, ignore_errors=True)
        needed = {name for path in self._all() for name in self._files(path)}
        for file in self.folder.glob("*.safetensors"):
            if file.name not in needed:
                file.unlink()
