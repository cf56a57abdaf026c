"""A folder into which a training run writes its checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from harness.errors import UsageError
from harness.watch.sources import Checkpoint, Found, by_step
from harness.watch.whole import Condition, condition, stamp_of


class Folder:
    """A folder into which a training run writes, one folder for each checkpoint."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self.text = str(self._folder)
        self.name = self._folder.name

    def found(self) -> Found:
        """The folders with a step in their name; files and hidden folders are passed over."""
        try:
            below = sorted(p for p in self._folder.iterdir() if p.is_dir() and not p.name.startswith("."))
        except OSError as error:
            raise UsageError(f"{self._folder} cannot be read: {error.strerror}.") from error
        if not below and (self._folder / "config.json").is_file():
            raise UsageError(
                f"{self._folder} is one model, not a folder of checkpoints.",
                hint=f"Type harness watch {self._folder.parent}, or harness run --model {self._folder}.",
            )
        return by_step((path.name, _model_folder(path)) for path in below)

    def condition(self, one: Checkpoint, *, settle: float, own_code: bool) -> Condition:
        """As its files tell."""
        assert one.folder is not None
        return condition(one.folder, settle=settle, own_code=own_code)

    def stamp(self, one: Checkpoint) -> str:
        """Of sizes and times."""
        assert one.folder is not None
        return stamp_of(one.folder)

    def label(self, one: Checkpoint) -> str:
        """With the run's name in front, as every run has a checkpoint-1000."""
        return f"{self.name}-{one.name}"


def _model_folder(path: Path) -> Path:
    """The folder of a checkpoint's model: itself, or the one folder in it that has a config (as hf/)."""
    if any((path / name).exists() for name in ("config.json", "modules.json")):
        return path
    below = list(_configured(path))
    named = [p for p in below if p.name in ("hf", "huggingface", "hf_model")]
    return (named or below or [path])[0] if len(named or below) <= 1 else path


def _configured(path: Path) -> Iterator[Path]:
    try:
        for below in sorted(path.iterdir()):
            if any((below / name).is_file() for name in ("config.json", "modules.json")):
                yield below
    except OSError:
        return
