"""The checkpoints of a training: what is kept of them, and the last one that is whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.core import files

_MARKER = "files.json"
"""The names of a checkpoint's files with their sizes and hashes, written last."""

# The second one stands in where the newest is damaged.
_KEPT = 2
"""The number of checkpoints that are kept."""


class Checkpoints:
    """The checkpoints of a training, `step-N/`, and the files beside them that they name.

    Args:
        folder: The folder of all checkpoints of the training.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find_last_checkpoint(self, note: Callable[[str], None]) -> Path | None:
        """The newest whole checkpoint; those that are not whole are removed.

        Args:
            note: Called with a sentence on checkpoints that were whole once and are damaged, if any.
        """
        damaged, last = [], None
        for path in reversed(self._list_checkpoints()):
            if self._is_intact_checkpoint(path):
                last = path
                break
            # Without its marker it was never whole: a process that was killed while it wrote leaves one.
            damaged += [path.name] if (path / _MARKER).exists() else []
            shutil.rmtree(path)
        if damaged:
            start = f"goes on from {last.name}" if last else "begins again"
            names = " and ".join(damaged)
            note(f"{names}: damaged, so no longer a checkpoint to go on from. The training {start}.")
        return last

    def prepare_checkpoint(self, step: int) -> Path:
        """An empty folder for the checkpoint of a step."""
        path = self.locate_checkpoint(step)
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def finish(self, step: int, *, beside: Sequence[Path] = ()) -> None:
        """Mark the checkpoint of a step as whole, and remove what no kept checkpoint needs.

        Args:
            step: The step.
            beside: Files beside the checkpoints that belong to it.
        """
        path = self.locate_checkpoint(step)
        written = [file for file in sorted(path.iterdir()) if file.name != _MARKER]
        content = {
            str(file.relative_to(self.folder)): [file.stat().st_size, files.hash_file(file)]
            for file in (*written, *beside)
        }
        files.replace(path / _MARKER, json.dumps(content, indent=1).encode())
        self._prune()

    def locate_checkpoint(self, step: int) -> Path:
        """The folder of the checkpoint of a step."""
        return self.folder / f"step-{step:08d}"

    def _list_checkpoints(self) -> list[Path]:
        return sorted(self.folder.glob("step-*")) if self.folder.is_dir() else []

    def _is_intact_checkpoint(self, path: Path) -> bool:
        listed = self._read_marker(path)
        return bool(listed) and all(
            (self.folder / name).is_file()
            and (self.folder / name).stat().st_size == size
            and files.hash_file(self.folder / name) == digest
            for name, (size, digest) in listed.items()
        )

    def _read_marker(self, path: Path) -> dict[str, tuple[int, str]]:
        """The files of a checkpoint by name; none without a readable marker."""
        try:
            content = json.loads((path / _MARKER).read_text(encoding="utf-8"))
            return {str(name): (int(size), str(digest)) for name, (size, digest) in content.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}

    def _prune(self) -> None:
        for path in self._list_checkpoints()[:-_KEPT]:
            shutil.rmtree(path, ignore_errors=True)
        needed = {name for path in self._list_checkpoints() for name in self._read_marker(path)}
        for file in self.folder.glob("*.safetensors"):
            if file.name not in needed:
                file.unlink()
