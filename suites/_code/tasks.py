"""The tasks of a folder of source: code search, docstrings by package, and functions by commit.

Samples are drawn by the hash of each docstring, so the same source gives the same tasks on every machine, and
two versions of one code base give samples that mostly agree. Tasks are built once: those of unchanged source
come from the cache, unparsed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from harness.core.documents import read_content_file, write_content_file
from harness.core.errors import DataError, StoreError
from harness.core.keys import digest
from harness.core.provenance import find_package_version
from harness.core.types import SIDES, Column, Data, Size, Suite, SuiteOptions, Task
from harness.data import tables
from suites._code import parsing
from suites._code.parsing import format_python_version, parse_python_functions
from suites._code.selection import (
    Function,
    drop_duplicates,
    extract_summary,
    normalize_text,
    order_code,
    order_docstrings,
    select_distinct,
)
from suites._code.source import (
    LANGUAGES,
    Commit,
    History,
    NoHistoryError,
    SourceFiles,
    UnreadableError,
    filter_commit_paths,
    find_source_files,
    read_head_commit,
    read_history,
    read_source,
)
from suites._content import (
    Clusters,
    Content,
    Document,
    Labelled,
    Query,
    Retrieval,
    Row,
    hash_content,
    measure_content,
)
from suites._mteb.built import BuiltSource
from suites._mteb.snapshot import filter_suite_splits

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
class Tasks:
    """The tasks that source gives, by name, with notes on what they hold and which are missing."""

    contents: Mapping[str, Content] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


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
                tasks = _build_commit_tasks(language, history, read)
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


# The tasks of functions

MIN_PAIRS = 10
QUERIES, PLAIN_CORPUS, CORPUS = 1000, 1250, 3000
"""Most queries, and most documents of the plain form and of the others."""

MAX_CODE = 1500
"""Most characters of a searched function: about what an encoder of 512 tokens sees whole."""


def build_function_tasks(language: str, functions: Iterable[Function]) -> Tasks:
    """The tasks that the functions of one language are enough for."""
    every = tuple(functions)
    documented = tuple(drop_duplicates(f for f in every if f.docstring))
    short = sum(_is_short(f) for f in documented)
    name, suffix = LANGUAGES[language].title, LANGUAGES[language].suffix
    if short < MIN_PAIRS:
        return Tasks(
            notes=(
                f"{name}: {len(documented)} documented functions were found, {short} of them short enough to "
                f"search (up to {MAX_CODE} characters); code search needs at least {MIN_PAIRS}.",
            )
        )
    search, counts = _build_hidden_search(documented, [f for f in every if not f.docstring])
    notes = [f"{name}: code search has {counts}"]
    contents: dict[str, Content] = {
        f"CodeSearch{suffix}": search,
        f"CodeSearch{suffix}.named": _build_plain_search(documented),
    }
    topics = _select_docstring_topics(documented)
    texts = sum(len(group) for group in _split_topics(topics)[1].values())
    if texts >= MIN_TEXTS:
        contents[f"DocstringClassification{suffix}"] = _build_classification(topics)
        contents[f"DocstringClustering{suffix}"] = _build_clustering(topics)
    else:
        notes.append(
            f"{name}: no classification and no clustering: of packages with at least {MIN_DOCSTRINGS} "
            f"docstrings there are {len(topics)}, with {texts} docstrings to test; {MIN_TEXTS} are needed."
        )
    return Tasks(contents=contents, notes=tuple(notes))


def _build_plain_search(documented: Sequence[Function]) -> Retrieval:
    """The task of finding the function of a docstring among documented functions, names included.

    Documents are functions from their decorators and signature on, as CodeSearchNet has them: a name that
    repeats the docstring's words makes a query easier. Functions of more than 1,500 characters are left out.
    1,250 functions are documents, the first 1,000 of them queries as well.
    """
    kept = order_docstrings(f for f in documented if _is_short(f))[:PLAIN_CORPUS]
    return _build_search_data(kept, kept[:QUERIES], lambda f: f.code)


def _build_hidden_search(documented: Sequence[Function], bare: Sequence[Function]) -> tuple[Retrieval, str]:
    """The same among all functions, each without its own name, and its counts in words.

    The queries are those of the plain form, but for functions that are nearly the same as an earlier one.
    """
    ordered = order_docstrings(f for f in documented if _is_short(f))
    # Undocumented copies of a documented function would be right answers that no judgement names.
    seen_marks = {mark for function in documented for mark in function.marks}
    new = [f for f in drop_duplicates(bare) if not f.marks & seen_marks]
    others = order_code(f for f in (*ordered[QUERIES:], *new) if _is_short(f))
    pool = [*ordered[:QUERIES], *others]
    single, twins = select_distinct(pool, CORPUS)
    kept, query_functions = order_code(single), [f for f in ordered[:QUERIES] if f.id not in twins]
    left_out = {
        f"of more than {MAX_CODE:,} characters": len(documented) + len(new) - len(pool),
        "nearly the same as another": len(twins),
        f"beyond {CORPUS:,}": len(pool) - len(twins) - len(kept),
    }
    reasons = ", ".join(f"{count:,} {what}" for what, count in left_out.items() if count)
    distractors, bare_count = len(kept) - len(query_functions), sum(not f.docstring for f in kept)
    counts = (
        f"{len(kept):,} functions, {len(query_functions):,} with a query and {distractors:,} as distractors "
        f"({bare_count:,} without documentation){'; left out: ' if reasons else ''}{reasons}."
    )
    return _build_search_data(kept, query_functions, lambda f: f.hidden), counts


def _is_short(function: Function) -> bool:
    return len(function.code) <= MAX_CODE


def _build_search_data(
    kept: Sequence[Function], asked: Sequence[Function], text: Callable[[Function], str]
) -> Retrieval:
    return Retrieval(
        documents=tuple(Document(id=f.id, text=text(f)) for f in kept),
        queries=tuple(Query(id=_format_docstring_id(f), text=f.docstring) for f in asked),
        qrels={_format_docstring_id(f): {f.id: 1} for f in asked},
    )


def _format_docstring_id(function: Function) -> str:
    """The id of a function's docstring; some evaluators drop a document with the same id as the query."""
    return f"{function.id}.__doc__"


MIN_DOCSTRINGS, MAX_LABELS, ENOUGH_LABELS = 20, 20, 8
TRAIN, TEST, GROUP = 16, 50, 50
"""Most docstrings of a label for training, for testing, and for clustering."""

MIN_TEXTS = 400
"""Fewest docstrings to classify: the 95 % interval of an accuracy is then at most ± 4.9 points."""

_Topics = Mapping[str, Sequence[Function]]
"""The documented functions of each package, in the order of their docstrings' hashes."""


def _select_docstring_topics(functions: Sequence[Function], *, at_least: int = MIN_DOCSTRINGS) -> _Topics:
    """The 20 largest packages, at the first level of nesting with eight, else at that with most of them.

    The standard library has many top-level packages, a repository often only its own: then its subpackages
    are the labels.
    """
    best: _Topics = {}
    for depth in range(1, 1 + max((len(f.package) for f in functions), default=0)):
        groups: defaultdict[str, list[Function]] = defaultdict(list)
        for function in functions:
            groups[".".join(function.package[:depth])].append(function)
        large = {label: group for label, group in groups.items() if len(group) >= at_least}
        best = large if len(large) > len(best) else best
        if len(best) >= ENOUGH_LABELS:
            break
    largest = sorted(best, key=lambda label: (-len(best[label]), label))[:MAX_LABELS]
    return {label: order_docstrings(best[label]) for label in largest}


def _split_topics(topics: _Topics) -> tuple[_Topics, _Topics]:
    """The docstrings to learn from, up to 16 and at most half of each package, and up to 50 to test."""
    train_topics = {label: group[: min(TRAIN, len(group) // 2)] for label, group in topics.items()}
    return train_topics, {label: group[len(train_topics[label]) :][:TEST] for label, group in topics.items()}


def _build_classification(topics: _Topics) -> Labelled:
    """Telling a docstring's package."""
    train_topics, test_topics = _split_topics(topics)
    return Labelled(train=tuple(_iter_topic_rows(train_topics)), test=tuple(_iter_topic_rows(test_topics)))


def _build_clustering(topics: _Topics) -> Clusters:
    """The task of grouping docstrings by package, up to 50 of each."""
    return Clusters(rows=tuple(_iter_topic_rows({label: group[:GROUP] for label, group in topics.items()})))


def _iter_topic_rows(groups: _Topics) -> Iterator[Row]:
    labels = {f.id: label for label, group in groups.items() for f in group}
    for function in order_docstrings([f for group in groups.values() for f in group]):
        yield Row(id=_format_docstring_id(function), text=function.docstring, label=labels[function.id])


MIN_COMMITS, MAX_COMMITS = 30, 500
MAX_CHANGED = 10
"""Most functions that a commit changes; more are a sweep through the code, which no subject describes."""

_ROUTINE = r"(?i)(merge|revert|bump|release|version|prepare|upgrade|update \S+ to|fixup!|squash!)\b"
_CONVENTIONAL = (
    r"(?i)^(build|chore|ci|docs?|feat|fix|lint|perf|refactor|revert|style|tests?)(\([^)]*\))?!?:\s+"
)
_NUMBER = r"(?i)\s*\(?(#|gh-)\d+\)?\.?$"
"""Patterns that are compiled when they are first used."""

_Reader = Callable[[bytes, str], Iterable[Function]]
"""The functions of a file's content and path; none of a file that cannot be read."""


def _build_commit_tasks(language: str, history: History, read: _Reader) -> Tasks:
    """The task of finding the functions that a commit changed, from its subject.

    Documents are the functions of one language before the newest commits, queries the subjects of those of
    them that changed one to ten functions, one at least of the documents. Near-duplicates stand for each
    other: one of them is a document.

    Args:
        language: The name of the language.
        history: The files before the newest commits, and these commits.
        read: Gives the functions of a file's content and path.
    """
    paths = filter_commit_paths(history.files, [language]).get(language, ())
    files = _collect_functions({(path, history.files[path]) for path in paths}, history, read)
    every = [f for group in files.values() for f in group]
    functions = order_code({f.id: f for f in every if _is_short(f)}.values())
    before = _Before(
        paths=frozenset(paths), ids=frozenset(f.id for f in functions), counts=Counter(f.first for f in every)
    )
    changed_ids = _find_changed_functions(history, before, read)
    title, suffix = LANGUAGES[language].title, LANGUAGES[language].suffix
    if len(changed_ids) < MIN_COMMITS:
        note = (
            f"{title}: no search by commits: of the newest {len(history.commits):,}, {len(changed_ids)} have "
            f"a subject of three words and change up to {MAX_CHANGED} functions; {MIN_COMMITS} are needed."
        )
        return Tasks(notes=(note,))
    target_ids = {id_ for ids in changed_ids.values() for id_ in ids}
    # Targets come first, so that neither the limit nor a near-duplicate takes one away.
    kept, twins = select_distinct(
        sorted(functions, key=lambda f: f.id not in target_ids), max(CORPUS, len(target_ids))
    )
    content = Retrieval(
        documents=tuple(Document(id=f.id, text=f.code) for f in order_code(kept)),
        queries=tuple(Query(id=commit.id, text=_clean_commit_subject(commit)) for commit in changed_ids),
        qrels={
            commit.id: dict.fromkeys(sorted({twins.get(id_, id_) for id_ in ids}), 1)
            for commit, ids in changed_ids.items()
        },
    )
    note = (
        f"{title}: commit search has {len(changed_ids):,} of the newest {len(history.commits):,} commits as "
        f"queries, {len(kept):,} functions from before them; left out: {len(twins):,} nearly the same "
        "as another."
    )
    return Tasks(contents={f"CommitSearch{suffix}": content}, notes=(note,))


_Places = set[tuple[str, str]]
"""Paths and contents of files."""


def _collect_functions(
    places: _Places, history: History, read: _Reader
) -> dict[tuple[str, str], list[Function]]:
    """The functions of files of a history."""
    functions: dict[tuple[str, str], list[Function]] = {}
    blob_paths: defaultdict[str, list[str]] = defaultdict(list)
    for path, blob in sorted(places):
        blob_paths[blob].append(path)
    # Each content is read once, though several paths or commits may have it.
    for blob, data in history.read_blobs(blob_paths):
        functions.update({(path, blob): [*read(data, path)] for path in blob_paths[blob]})
    return dict(sorted(functions.items()))


@dataclass(frozen=True, kw_only=True)
class _Before:
    """The functions before the newest commits.

    Attributes:
        paths: The files.
        ids: The functions that are short enough.
        counts: How many functions of a file have a name.
    """

    paths: frozenset[str]
    ids: frozenset[str]
    counts: Mapping[str, int]


def _find_changed_functions(history: History, before: _Before, read: _Reader) -> dict[Commit, set[str]]:
    """The functions that each commit with a query changed, newest commits first."""
    changes = dict(_iter_commit_changes(history, before.paths))
    places = {(path, blob) for files in changes.values() for path, *both in files for blob in both}
    functions = {
        # Python's hash differs between processes, and is compared within this one only.
        place: {f.id: (hash(normalize_text(f.code)), f.first) for f in found}
        for place, found in _collect_functions(places, history, read).items()
    }
    changed_ids: dict[Commit, set[str]] = {}
    for commit, files in changes.items():
        pairs = [(functions[path, old], functions[path, new]) for path, old, new in files]
        ids = {id_ for old, new in pairs for id_ in _iter_changed_ids(old, new, before.counts)}
        present_ids = ids & before.ids
        # All changed functions count for the bound, those too long to be documents as well.
        if present_ids and len(ids) <= MAX_CHANGED and len(changed_ids) < MAX_COMMITS:
            changed_ids[commit] = present_ids
    return changed_ids


def _iter_commit_changes(
    history: History, paths: frozenset[str]
) -> Iterator[tuple[Commit, set[tuple[str, str, str]]]]:
    """Commits with a subject of their own, and path, content before and after of the files they change."""
    subjects = {""}
    for commit in history.commits:
        # Of commits with one subject only the newest is a query: one text cannot have two sets of answers.
        words = " ".join(re.findall(r"\w+", _clean_commit_subject(commit).casefold()))
        files = {(path, *commit.files[path]) for path in paths & commit.files.keys()}
        if words not in subjects and 0 < len(files) <= MAX_CHANGED:
            subjects.add(words)
            yield commit, files


_Codes = Mapping[str, tuple[int, str]]
"""By a function's id, the hash of its code and the id of the first function of its name."""


def _iter_changed_ids(old: _Codes, new: _Codes, counts: Mapping[str, int]) -> Iterator[str]:
    """The functions whose code differs; of a name that not always as many functions have, none is told."""
    before, after = (Counter(first for _, first in codes.values()) for codes in (old, new))
    for id_ in old.keys() & new.keys():
        (code, first), (other, _) = old[id_], new[id_]
        if code != other and counts[first] == before[first] == after[first]:
            yield id_


def _clean_commit_subject(commit: Commit) -> str:
    """A commit's subject without the kind of change and a number at its end, "" if it says too little.

    >>> _clean_commit_subject(Commit(id="1", subject="fix(app): keep the order of routes (#12)", files={}))
    'keep the order of routes'
    """
    text = re.sub(_NUMBER, "", re.sub(_CONVENTIONAL, "", commit.subject))
    routine = re.match(_ROUTINE, commit.subject) or re.match(_ROUTINE, text)
    return "" if routine else extract_summary(text) or ""
