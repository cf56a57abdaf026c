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

from harness.core.documents import read_content_file, write_content_file
from harness.core.errors import DataError, StoreError
from harness.core.identity import digest
from harness.core.provenance import find_package_version
from harness.core.types import SIDES, Column, Data, Size, Suite, SuiteOptions, Task
from harness.data import tables
from suites._code import parsing
from suites._code.history import NoHistoryError, read_head_commit, read_history
from suites._code.parsing import format_python_version, parse_python_functions
from suites._code.selection import Function
from suites._code.source import LANGUAGES, SourceFiles, UnreadableError, find_source_files, read_source
from suites._code.tasks import Tasks, build_commit_tasks, build_function_tasks
from suites._content import Clusters, Content, Labelled, Retrieval, hash_content, measure_content
from suites._mteb.snapshot import filter_suite_splits
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

    def load_index(self) -> _Index:
        """The tasks that the source gives, without their data.

        Raises:
            DataError: It gives none.
        """
        return _load_folder_index(self, self._compute_fingerprint())

    def content(self, name: str) -> Content:
        """The data of a task.

        Raises:
            DataError: The source does not give that task.
        """
        fingerprint = self._compute_fingerprint()
        entry = next((one for one in _load_folder_index(self, fingerprint).entries if one.name == name), None)
        if entry is None:
            raise DataError(f"{self.root} no longer has enough source for {name}.")
        # A cache that is missing, damaged or of another form costs a new parse only.
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, DataError):
            content: Content = _CONTENT.validate_python(_read_cache_entry(self, fingerprint, name))
            if hash_content(content) == entry.hash:
                return content
        return self.build(fingerprint).contents[name]

    def build(self, fingerprint: str) -> Tasks:
        """Build the tasks, unless this process has built them from the same source.

        Raises:
            DataError: The source is too small for any task.
        """
        # Without the cache's folder, which changes nothing, so that lru_cache finds what was built for
        # another one.
        return _build(dataclasses.replace(self, cache=None), fingerprint)

    def _compute_fingerprint(self) -> str:
        sources = find_source_files(self.root, self.languages)
        grammars = [language for language in sources.files if language != "python"]
        return digest(
            {
                "version": VERSION,
                "python": format_python_version(),  # another Python parses other syntax
                "grammars": {name: find_package_version(f"tree-sitter-{name}") or "" for name in grammars},
                "root": str(self.root),
                "languages": list(self.languages),
                "head": read_head_commit(self.root) if self.history else "",
                "files": [
                    [name, *read_file_stamp(f"{self.root}/{name}")]
                    for names in sources.files.values()
                    for name in names
                ],
                "closed": sources.closed,
            }
        )


def read_file_stamp(path: Path | str) -> tuple[int, ...]:
    """Size, mode and times of a file, () without a file."""
    try:
        stat = os.stat(path)
    except OSError:
        return ()
    # ctime as well: tools that copy files set mtime back.
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
def _load_folder_index(folder: SourceFolder, fingerprint: str) -> _Index:
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        return TypeAdapter(_Index).validate_python(_read_cache_entry(folder, fingerprint, _INDEX))
    built = folder.build(fingerprint)
    entries = tuple(
        _Entry(name=name, hash=hash_content(content), size=measure_content(content))
        for name, content in built.contents.items()
    )
    index = _Index(entries=entries, notes=built.notes)
    with contextlib.suppress(StoreError):  # the cache only saves time
        # The index comes last: with it all the tasks are there.
        for name, content in {**built.contents, _INDEX: index}.items():
            _write_cache_entry(folder, fingerprint, name, content)
    return index


def _read_cache_entry(folder: SourceFolder, fingerprint: str, name: str) -> dict[str, Any]:
    if folder.cache is None:
        raise FileNotFoundError
    return read_content_file(folder.cache / "source" / f"{fingerprint}.{name}.json")


def _write_cache_entry(folder: SourceFolder, fingerprint: str, name: str, content: Content | _Index) -> None:
    if folder.cache is not None:
        place = folder.cache / "source" / f"{fingerprint}.{name}.json"
        write_content_file(place, dataclasses.asdict(content))


@functools.lru_cache(maxsize=2)
def _build(folder: SourceFolder, fingerprint: str) -> Tasks:
    """Every task that the source is large enough for; `fingerprint` is the state of its files."""
    sources = find_source_files(folder.root, folder.languages)
    parts = [*_iter_language_tasks(folder, sources)]
    parts += _iter_history_tasks(folder, sources, {name for part in parts for name in part.contents})
    closed = _note_closed_folders(sources.closed)
    notes = [*(note for part in parts for note in part.notes), *closed]
    contents = {name: content for part in parts for name, content in part.contents.items()}
    if not contents:
        titles = ", ".join(language.title for language in LANGUAGES.values())
        reason = " ".join(notes) if sources.files else f"no source files found ({titles})."
        raise DataError(
            f"{folder.root}: {reason}",
            hint="A function counts if it has a docstring of three words and a body of three lines, "
            "is no special method and has no 'test' in its name.",
        )
    return Tasks(contents=contents, notes=tuple(notes))


def _iter_language_tasks(folder: SourceFolder, sources: SourceFiles) -> Iterator[Tasks]:
    """The tasks of the functions in a folder's files."""
    for language, paths in sources.files.items():
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
                functions += _parse_source_functions(read_source(folder.root, path), path, language)
            except UnreadableError as reason:
                skipped[str(reason)] += 1
        left_out = tuple(
            f"{count} of {len(paths)} {title} files: {reason}." for reason, count in skipped.items()
        )
        tasks = build_function_tasks(language, functions)
        yield dataclasses.replace(tasks, notes=(*tasks.notes, *left_out))


def _iter_history_tasks(
    folder: SourceFolder, sources: SourceFiles, task_names: Collection[str]
) -> Iterator[Tasks]:
    """The tasks of a folder's git history; a language with code search but too few commits has a note."""
    if not folder.history:
        return
    try:
        history = read_history(folder.root)
        for language in sources.files:
            if language == "python" or parsing.is_installed(language):
                read = functools.partial(_try_parse_functions, language=language)
                tasks = build_commit_tasks(language, history, read)
                if tasks.contents or f"CodeSearch{LANGUAGES[language].suffix}" in task_names:
                    yield tasks
    except NoHistoryError as reason:
        yield Tasks(notes=(f"No search by commits: {reason}.",))


def _try_parse_functions(data: bytes, path: str, language: str) -> Sequence[Function]:
    try:
        return [*_parse_source_functions(data, path, language)]
    except UnreadableError:
        return []


def _parse_source_functions(data: bytes, path: str, language: str) -> Iterable[Function]:
    if language == "python":
        return parse_python_functions(data, path)
    return parsing.parse_functions(data, path, language)


def _note_closed_folders(folders: Sequence[str]) -> tuple[str, ...]:
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
        tables.require_unchanged(str(self.folder.root), hash_content(content), self.planned)
        return content


def build_code_suite(
    folder: SourceFolder, suite: Suite, *, prefix: str, options: SuiteOptions, revision: str = ""
) -> Suite:
    """A suite with a column for each task that a folder of source is large enough for.

    Args:
        folder: The folder of source.
        suite: The suite without columns.
        prefix: The start of the tasks' names.
        options: The options that narrow it.
        revision: The version of the source; empty where the hash of the data alone tells it.

    Raises:
        DataError: The source is too small for any task.
        UsageError: Nothing of it is left under `options`.
    """
    index = folder.load_index()
    columns = tuple(_build_code_column(folder, one, f"{prefix}{one.name}", revision) for one in index.entries)
    full_suite = dataclasses.replace(suite, columns=columns, notes=index.notes, averages="large")
    return filter_suite_splits(full_suite, options)


def _build_code_column(folder: SourceFolder, entry: _Entry, name: str, revision: str) -> Column:
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
