"""Suites from a folder of source, built once: unchanged source comes from the cache, unparsed."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from harness.core import files
from harness.core.documents import with_digest, without_digest
from harness.core.errors import DataError, StoreError
from harness.core.identity import digest
from harness.core.provenance import version
from harness.core.types import SIDES, Column, Data, Size, Suite, SuiteOptions, Task
from harness.data import tables
from suites._code import parsing
from suites._code.history import NoHistoryError, head, read_history
from suites._code.parsing import python_functions, python_version
from suites._code.selection import Function
from suites._code.source import LANGUAGES, SourceFiles, UnreadableError, read_source, source_files
from suites._code.tasks import Tasks, commit_tasks, function_tasks
from suites._content import Clusters, Content, Labelled, Retrieval, content_hash, size
from suites._mteb.snapshot import narrowed
from suites._mteb.source import BuiltSource

KINDS = {
    "CodeSearch": ("Retrieval", "ndcg_at_10"),
    "CommitSearch": ("Retrieval", "ndcg_at_10"),
    "DocstringClassification": ("Classification", "accuracy"),
    "DocstringClustering": ("Clustering", "v_measure"),
}
"""The type and the metric of a task by the start of its name."""

NAMED = ".named"
"""The end of the name of a task that hides no names."""

VERSION = 3
"""The version of the cached form, raised whenever the same source would give other tasks."""


@dataclass(frozen=True, kw_only=True)
class SourceFolder:
    """A folder of source, the languages that are read of it, and whether its git history is.

    What it gives is kept in `cache`, None for nowhere, while its files are unchanged.
    """

    root: Path
    cache: Path | None = None
    languages: tuple[str, ...] = tuple(LANGUAGES)
    history: bool = True

    def index(self) -> _Index:
        """The tasks that the source gives, without their data.

        Raises:
            DataError: It gives none.
        """
        return _index(self, self._fingerprint())

    def content(self, name: str) -> Content:
        """The data of a task.

        Raises:
            DataError: The source does not give that task.
        """
        fingerprint = self._fingerprint()
        entry = next((one for one in _index(self, fingerprint).entries if one.name == name), None)
        if entry is None:
            raise DataError(f"{self.root} no longer has enough source for {name}.")
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, DataError):
            content: Content = _CONTENT.validate_python(_kept(self, fingerprint, name))
            if content_hash(content) == entry.hash:
                return content
        return self.build(fingerprint).contents[name]

    def build(self, fingerprint: str) -> Tasks:
        """The tasks built anew, unless this process built them from the same source before.

        Raises:
            DataError: There is none.
        """
        return _build(dataclasses.replace(self, cache=None), fingerprint)

    def _fingerprint(self) -> str:
        found = source_files(self.root, self.languages)
        grammars = [language for language in found.files if language != "python"]
        return digest(
            {
                "version": VERSION,
                "python": python_version(),  # another Python parses other syntax
                "grammars": {name: version(f"tree-sitter-{name}") or "" for name in grammars},
                "root": str(self.root),
                "languages": list(self.languages),
                "head": head(self.root) if self.history else "",
                "files": [
                    [name, *stamp(f"{self.root}/{name}")] for names in found.files.values() for name in names
                ],
                "closed": found.closed,
            }
        )


def stamp(path: Path | str) -> tuple[int, ...]:
    """Size, mode and times of a file, () without a file."""
    try:
        stat = os.stat(path)
    except OSError:
        return ()
    return stat.st_size, stat.st_mode, stat.st_mtime_ns, stat.st_ctime_ns


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """A task without its data."""

    name: str
    hash: str
    size: Size


@dataclass(frozen=True, kw_only=True)
class _Index:
    """The tasks of a folder without their data, and notes on them."""

    entries: tuple[_Entry, ...]
    notes: tuple[str, ...]


_CONTENT: TypeAdapter[Content] = TypeAdapter(Retrieval | Clusters | Labelled)
"""The data of a task as it is kept."""

_INDEX = "index"
"""The name of the index among the tasks of a folder."""


@functools.lru_cache(maxsize=4)
def _index(folder: SourceFolder, fingerprint: str) -> _Index:
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        return TypeAdapter(_Index).validate_python(_kept(folder, fingerprint, _INDEX))
    built = folder.build(fingerprint)
    entries = tuple(
        _Entry(name=name, hash=content_hash(content), size=size(content))
        for name, content in built.contents.items()
    )
    made = _Index(entries=entries, notes=built.notes)
    with contextlib.suppress(StoreError):  # the cache only saves time
        for name, content in {**built.contents, _INDEX: made}.items():
            _keep(folder, fingerprint, name, content)
    return made


def _kept(folder: SourceFolder, fingerprint: str, name: str) -> dict[str, Any]:
    if folder.cache is None:
        raise FileNotFoundError
    return without_digest((folder.cache / "source" / f"{fingerprint}.{name}.json").read_bytes())


def _keep(folder: SourceFolder, fingerprint: str, name: str, made: Content | _Index) -> None:
    if folder.cache is not None:
        place = folder.cache / "source" / f"{fingerprint}.{name}.json"
        files.replace(place, with_digest(dataclasses.asdict(made)).encode())


@functools.lru_cache(maxsize=2)
def _build(folder: SourceFolder, fingerprint: str) -> Tasks:
    """Every task that the source is large enough for; `fingerprint` says what the source is."""
    found = source_files(folder.root, folder.languages)
    parts = [*_by_language(folder, found)]
    parts += _of_history(folder, found, {name for part in parts for name in part.contents})
    closed = _closed(found.closed)
    notes = [*(note for part in parts for note in part.notes), *closed]
    contents = {name: content for part in parts for name, content in part.contents.items()}
    if not contents:
        titles = ", ".join(language.title for language in LANGUAGES.values())
        said = " ".join(notes) if found.files else f"there are no source files ({titles})."
        raise DataError(
            f"{folder.root}: {said}",
            hint="A function counts if it has a docstring of three words and a body of three lines, "
            "is no special method and has no 'test' in its name.",
        )
    return Tasks(contents=contents, notes=tuple(notes))


def _by_language(folder: SourceFolder, found: SourceFiles) -> Iterator[Tasks]:
    """The tasks of the functions in a folder's files."""
    for language, paths in found.files.items():
        title = LANGUAGES[language].title
        if language != "python" and not parsing.is_installed(language):
            yield Tasks(
                notes=(f"{title} is not read: tree-sitter and tree-sitter-{language} are not installed.",)
            )
            continue
        skipped: Counter[str] = Counter()
        functions: list[Function] = []
        for path in paths:
            try:
                functions += _functions(read_source(folder.root, path), path, language)
            except UnreadableError as reason:
                skipped[str(reason)] += 1
        left_out = tuple(
            f"{count} of {len(paths)} {title} files: {reason}." for reason, count in skipped.items()
        )
        made = function_tasks(language, functions)
        yield dataclasses.replace(made, notes=(*made.notes, *left_out))


def _of_history(folder: SourceFolder, found: SourceFiles, there: Collection[str]) -> Iterator[Tasks]:
    """The tasks of a folder's git history; why there is none is told of languages with code search."""
    if not folder.history:
        return
    try:
        history = read_history(folder.root)
        for language in found.files:
            if language == "python" or parsing.is_installed(language):
                read = functools.partial(_readable_functions, language=language)
                made = commit_tasks(language, history, read)
                if made.contents or f"CodeSearch{LANGUAGES[language].suffix}" in there:
                    yield made
    except NoHistoryError as reason:
        yield Tasks(notes=(f"No search by commits: {reason}.",))


def _readable_functions(data: bytes, path: str, language: str) -> Sequence[Function]:
    try:
        return [*_functions(data, path, language)]
    except UnreadableError:
        return []


def _functions(data: bytes, path: str, language: str) -> Iterable[Function]:
    if language == "python":
        return python_functions(data, path)
    return parsing.parsed_functions(data, path, language)


def _closed(folders: Sequence[str]) -> tuple[str, ...]:
    more = f" (and {len(folders) - 1} more)" if len(folders) > 1 else ""
    return (f"The folder {folders[0]}{more} may not be entered: left out.",) if folders else ()


@dataclass(frozen=True, kw_only=True)
class _SourceLoader:
    """The loader of a task of a folder of source; `planned` is its content hash."""

    folder: SourceFolder
    name: str
    planned: str

    def content(self) -> Content:
        """The task's data, built from the source."""
        content = self.folder.content(self.name)
        tables.require_unchanged(str(self.folder.root), content_hash(content), self.planned)
        return content


def code_suite(
    folder: SourceFolder, suite: Suite, *, prefix: str, options: SuiteOptions, revision: str = ""
) -> Suite:
    """A suite with a column for each task that a folder of source is large enough for.

    Raises:
        DataError: There is none.
        UsageError: Nothing of it is left under `options`.
    """
    index = folder.index()
    columns = tuple(_column(folder, one, f"{prefix}{one.name}", revision) for one in index.entries)
    made = dataclasses.replace(suite, columns=columns, notes=index.notes, averages="large")
    return narrowed(made, options)


def _column(folder: SourceFolder, entry: _Entry, name: str, revision: str) -> Column:
    type_, metric = next(facts for kind, facts in KINDS.items() if entry.name.startswith(kind))
    task = Task(
        name=name,
        type=type_,
        metric=metric,
        splits=("test",),
        data=Data(revision=revision, content=entry.hash),
        roles=SIDES if type_ == "Retrieval" else ("",),
        source=BuiltSource(loader=_SourceLoader(folder=folder, name=entry.name, planned=entry.hash)),
        size=entry.size,
    )
    plain = f"the plain form of {name.removesuffix(NAMED)}" if name.endswith(NAMED) else ""
    return Column(name=task.name, type=type_, tasks=(task,), shown_only=plain)
