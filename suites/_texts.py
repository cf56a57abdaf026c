"""Texts without labels for measured tasks: parts of files, or of the running Python's documentation."""

from __future__ import annotations

import functools
import heapq
import importlib
import re
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import DataError, UsageError
from harness.core.files import require_plain_name
from harness.core.keys import digest
from harness.core.types import Data, Task
from harness.data.tables import explain_file_error, is_readable_folder, require_unchanged, resolve_user_path
from suites._code.parsing import format_python_version

ENDINGS = (".txt", ".md", ".rst")
"""The ends of the names of text files."""


def _read_folder(folder: Path) -> Iterator[str]:
    """The texts of the files below a folder, each in one line.

    Some tokenizers drop blanks and line ends; all then have the same to predict.
    """
    with explain_file_error(folder):
        for path in sorted(path for path in folder.rglob("*") if path.suffix in ENDINGS):
            try:
                yield " ".join(path.read_text(encoding="utf-8").split())
            except UnicodeDecodeError:
                raise DataError(f"{path} is not UTF-8.", hint="Convert it, or take it out.") from None


@functools.cache
def _read_python_documentation() -> str:
    """The help topics of the running interpreter and the longer strings of its library, in one line."""
    topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    texts = [topics[name] for name in sorted(topics)]
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        # Docstrings, without parsing 5 MB of source whenever a suite is listed.
        texts += re.findall('"""(.*?)"""', path.read_text(encoding="utf-8", errors="replace"), re.DOTALL)
    return " ".join(" ".join(texts).split())


def resolve_text_folder(typed: str, suite: str) -> Path | None:
    """The folder of texts that a user typed behind the name of a suite; None for Python's own.

    Raises:
        UsageError: It is no folder, or has no plain name.
    """
    if not typed:
        return None
    folder, hint = resolve_user_path(typed), f"Type {suite}:/path/to/texts."
    try:
        if not is_readable_folder(folder):
            raise UsageError(f"{typed} is not a folder.", hint=hint)
    except DataError as error:
        raise UsageError(error.message, hint=error.hint) from error
    require_plain_name(folder.name, "the name of a folder of texts", hint=hint)
    return folder


@dataclass(frozen=True, kw_only=True)
class TextParts:
    """Parts of texts: of all of that size those with the smallest hashes.

    Attributes:
        folder: The user's files; None for the documentation of the running Python.
        size: The characters of a part.
        count: How many there are at most.
    """

    folder: Path | None
    size: int
    count: int

    @property
    def prefix(self) -> str:
        """The start of the names of tasks on these texts."""
        return "" if self.folder is None else f"{self.folder.name}."

    @property
    def origin(self) -> str:
        """Where they are from, for headings."""
        return format_python_version() if self.folder is None else self.folder.name

    def read_texts(self) -> tuple[str, ...]:
        """The texts; fewer than `count` if there are not as many."""
        parts = set[str]()
        for document in [_read_python_documentation()] if self.folder is None else _read_folder(self.folder):
            starts = range(0, len(document) - self.size + 1, self.size)
            parts |= {document[start : start + self.size] for start in starts}
        return tuple(heapq.nsmallest(self.count, parts, key=digest))

    def describe_data(self) -> Data:
        """The data of a task on these texts.

        Raises:
            UsageError: A file cannot be read.
        """
        try:
            content = digest(self.read_texts())
        except DataError as error:
            raise UsageError(error.message, hint=error.hint) from error
        return Data(revision="" if self.folder else format_python_version(), content=content)

    def load_texts(self, task: Task) -> tuple[str, ...]:
        """The texts of a task, as it was planned.

        Raises:
            DataError: They have changed, or are too few.
        """
        texts = self.read_texts()
        require_unchanged(task.name, digest(texts), task.data.content)
        if len(texts) < self.count:
            raise DataError(
                f"{self.folder or self.origin} gives {len(texts)} texts of {self.size:,} characters, and "
                f"{task.name} needs {self.count}.",
                hint=f"Add longer files ({', '.join(ENDINGS)}), or choose other tasks with --tasks.",
            )
        return texts[: task.limit]
