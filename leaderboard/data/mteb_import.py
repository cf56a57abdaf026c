"""Import of mteb's public results repository; a refresh reads only files that changed."""

from __future__ import annotations

import hashlib
import logging
import multiprocessing
import os
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from harness import __version__
from harness.core.errors import HarnessError, RecordError, UsageError
from harness.core.files import is_plain_name
from harness.plan import catalog
from harness.storage.imported import Imported
from leaderboard.data.mteb_files import (
    CARD,
    FACTS,
    IMPOSSIBLE,
    NO_SCORE,
    Content,
    Parsed,
    Tasks,
    build_task_index,
    ignore_interrupts,
    parse_files,
)

log = logging.getLogger(__name__)

SOURCE = "mteb-results"

PARSER = 5
"""The version of the reading of files: with another one all files are read again."""

CHUNK = 1600
"""Files that a worker process reads at once."""

TRUST = ("commit", "external", "none", "other")
"""Kinds of revisions: a commit, stated by the authors, unknown, any other word."""

_TRANSIENT = ("cannot be", "too large for the memory")
"""The first words of problems that may be gone at the next import."""

Progress = Callable[[int, int], None]
"""Called with the number of files read so far, and of all that are to be read."""

_ARROW = {
    "str": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_(),
    "list[str]": pa.list_(pa.string()),
}  # fmt: skip
_OWN = {
    **dict.fromkeys(("folder", "model", "revision", "experiment", "trust"), pa.string()),
    **dict.fromkeys(("files", "rows"), pa.int32()),
    **{"digest": pa.string(), "card": pa.bool_()},
}
_FACTS = {name: _ARROW[read.__annotations__["return"].split(" |")[0]] for name, (_, read) in FACTS.items()}
SCHEMA = pa.schema([*(pa.field(name, kind, nullable=False) for name, kind in _OWN.items()), *_FACTS.items()])
"""The columns of `entries`: one row for each folder of results, with the facts of its card."""

_STAT = ("path", "size", "mtime_ns", "ctime_ns")
_FILES = pa.schema(
    {
        **dict(zip(_STAT, (pa.string(), *[pa.int64()] * 3), strict=True)),
        **dict.fromkeys(("problem", "task", "data_revision", "mteb_version"), pa.string()),
        "converted": pa.bool_(),
        **dict.fromkeys(("repeated", "rows"), pa.int32()),
        "seconds": pa.float64(),
    }
)
_SCORES = pa.schema(
    {"split": pa.string(), "subset": pa.string(), "main_score": pa.float64(), "flag": pa.string()}
)
_ENCODED = ("problem", "task", "split", "subset", "flag", "data_revision", "mteb_version")
"""Columns of few names, which are stored as dictionaries."""

File = tuple[str, int, int, int, str]
"""Path, size, times of change of content and inode, and why it is not to be read (or nothing).

Archives give all files one time of modification, so the inode's time counts too."""


@dataclass(frozen=True, kw_only=True)
class ImportResult:
    """What an import did: its tables were written if `changed`; numbers of files."""

    imported: Imported
    changed: bool
    read: int
    unchanged: int
    removed: int


def import_results(
    path: Path, results: Path, *, workers: int | None = None, progress: Progress | None = None
) -> ImportResult:
    """Import a checkout of the repository, or its `results` folder; or refresh the import there.

    The former import stays valid until the last step: after an interruption, run the import again.

    Args:
        path: The checkout, or its folder of results.
        results: The results folder that holds the import.
        workers: Processes that read files; None for one for each core.
        progress: Called as files are read.

    Raises:
        UsageError: `path` holds no results, or another import is at work.
        StoreError: The results folder cannot be written.
        RecordError: The former import has a newer schema.
    """
    if not path.is_dir():
        raise UsageError(
            f"{path} is no folder.",
            hint="PATH is a checkout of github.com/embeddings-benchmark/results, or its results folder.",
        )
    root = path / "results" if (path / "results").is_dir() else path
    files = scan(root)
    # Before anything is written: a wrong path must not replace the former import.
    if all(file[-1] for file in files):
        raise UsageError(
            f"{path} holds no results of mteb.",
            hint="They lie at <model>/<revision>/<Task>.json, here or in `results` below.",
        )
    folder = Imported.resolve_import_folder(results, SOURCE)
    # Two imports at a time would each write tables over those of the other.
    with Imported.lock(folder):
        former = Imported.read_import(folder)
        versions = {"harness": __version__, "parser": PARSER}
        if former is not None and (former.stamp.get("versions") != versions or former.find_problem()):
            former = None
        facts = {"commit": read_git_commit(root), "scan": hashlib.sha256(repr(files).encode()).hexdigest()}
        # Files that could not be read for want of rights or memory may be readable now, though none
        # changed.
        retry = former and any(one.startswith(_TRANSIENT) for one in former.counts.get("problems", {}))
        if former is not None and former.stamp.get("scan") == facts["scan"] and not retry:
            return _build_unchanged_result(former, facts, read=0, total=len(files))
        parse = partial(_parse, root, workers, progress or (lambda done, total: None))
        return _refresh(folder, files, _load_former_import(former), facts, parse)


def _build_unchanged_result(
    former: Imported, facts: Mapping[str, Any], *, read: int, total: int
) -> ImportResult:
    if former.stamp.get("commit") != facts["commit"]:
        former = former.update_stamp({"commit": facts["commit"]})
    return ImportResult(imported=former, changed=False, read=read, unchanged=total - read, removed=0)


@dataclass(frozen=True, kw_only=True)
class _Former:
    """The tables of the former import, empty without one; `cards` are facts by the path of the card."""

    imported: Imported | None = None
    files: pa.Table = field(default_factory=_FILES.empty_table)
    scores: pa.Table = field(default_factory=lambda: _encode_dictionaries(_SCORES.empty_table()))
    cards: Mapping[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Read:
    """The contents of the files that were read now, in order, the facts of cards by path, and the scores."""

    contents: list[Content] = field(default_factory=list)
    cards: dict[str, dict[str, Any]] = field(default_factory=dict)
    scores: list[pa.Table] = field(default_factory=list)

    def append_part(self, part: Parsed) -> None:
        self.contents.extend(part.files)
        self.cards.update(part.cards)
        score = pa.array(np.asarray(part.score), from_pandas=True)
        table = pa.table([part.split, part.subset, score, part.flag], schema=_SCORES)
        self.scores.append(_encode_dictionaries(table))


def _load_former_import(imported: Imported | None) -> _Former:
    if imported is None:
        return _Former()
    try:
        entries = imported.load_table("entries", ["folder", "card", *FACTS]).to_pylist()
        return _Former(
            imported=imported,
            files=imported.load_table("files", _FILES.names).cast(_FILES),
            scores=imported.load_table("scores", _SCORES.names),
            cards={f"{e['folder']}/{CARD}": {name: e[name] for name in FACTS} for e in entries if e["card"]},
        )
    except RecordError as error:
        log.warning("%s Every file is read again.", error.message)
        return _Former()


def _refresh(
    folder: Path,
    files: Sequence[File],
    former: _Former,
    facts: Mapping[str, Any],
    parse: Callable[[Sequence[str]], _Read],
) -> ImportResult:
    """Read the files that are new or changed, and write the tables if that changes them."""
    columns = [former.files[name].to_pylist() for name in (*_STAT, "problem")]
    rows = {path: (row, then) for row, (path, *then) in enumerate(zip(*columns, strict=True))}
    read, bad, same = [], [], []
    changed = bool(rows.keys() - {file[0] for file in files})
    for path, *facts_now, problem in files:
        row, (*facts_then, problem_then) = rows.get(path, (-1, [""]))
        changed |= facts_now != facts_then or problem not in ("", problem_then)
        if problem:
            bad.append((path, *facts_now, *Content(problem=problem)))
        elif facts_now != facts_then or problem_then.startswith(_TRANSIENT):
            read.append((path, *facts_now))
        else:
            same.append(row)
    now = parse([str(file[0]) for file in read]) if read else _Read()
    # Only files of the last time were tried again, and failed again: the tables would be the same.
    if former.imported and not changed and all(content.problem for content in now.contents):
        return _build_unchanged_result(former.imported, facts, read=len(read), total=len(files))
    new = [*((*file, *content) for file, content in zip(read, now.contents, strict=True)), *bad]
    new_files = pa.table([*zip(*new, strict=True)], schema=_FILES) if new else _FILES.empty_table()
    tables, counts = _build_import_tables(new_files, same, now, former)
    return ImportResult(
        imported=Imported.publish(folder, tables, {**facts, **counts}, {"parser": PARSER}),
        changed=True,
        read=len(read),
        unchanged=len(files) - len(read),
        removed=len(rows.keys() - {file[0] for file in files}),
    )


def _build_import_tables(
    new: pa.Table, same: Sequence[int], now: _Read, former: _Former
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tables by name, and the facts of the stamp: those of a new import of the same files.

    `new` are the files that were read now, in order, and the bad ones; `same` the rows of the unchanged ones.
    """
    # The first row of each file among all scores: those read now come first, the former ones behind.
    starts = np.cumsum([0, *new["rows"].to_pylist(), *former.files["rows"].to_pylist()])[:-1]
    starts = np.concatenate([starts[: new.num_rows], starts[new.num_rows :][same]])
    unchanged = former.files.take(pa.array(same, pa.int64()))
    files = pa.concat_tables([new, unchanged])
    files, folders = _sort_entry_files(files.append_column("start", pa.array(starts)))
    files = _encode_dictionaries(files)
    cards = {path: former.cards[path] for path in unchanged["path"].to_pylist() if path in former.cards}
    cards |= now.cards
    scores, file_of_row = _collect_file_scores(files, [*now.scores, former.scores])
    by_folder = {path.rpartition("/")[0]: facts for path, facts in cards.items()}
    entries = _build_import_entries(files, folders, by_folder)
    facts = _build_stamp_facts(files, entries, scores, file_of_row)
    names = ["entry", *_FILES.names]
    return {"entries": entries, "files": files.select(names), "scores": _encode_dictionaries(scores)}, facts


def _sort_entry_files(files: pa.Table) -> tuple[pa.Table, list[str]]:
    """The files by entry and task, of several that of the task's own name last, as the last counts.

    Those of no entry stand last. Also the folder of each entry.
    """
    of_file = [_find_entry_folder(path) for path in files["path"].to_pylist()]
    folders = sorted(set(filter(None, of_file)), key=lambda folder: folder.split("/"))
    numbers = {folder: number for number, folder in enumerate(folders)}
    entry = pa.array([numbers.get(folder) for folder in of_file], pa.int32())
    pairs = zip(files["path"].to_pylist(), files["task"].to_pylist(), strict=True)
    is_own = pa.array([path.endswith(f"/{task}.json") for path, task in pairs], pa.bool_())
    files = files.append_column("entry", entry).append_column("own", is_own)
    return files.sort_by([(name, "ascending") for name in ("entry", "task", "own", "path")]), folders


def _find_contradictions(
    files: pa.Table, scores: pa.Table, file_of_row: NDArray[np.int64]
) -> list[dict[str, str]]:
    """The copies of a task's file in its folder that have another score than the file that counts."""
    paths = files["path"].to_pylist()
    tasks = list(zip(files["entry"].to_pylist(), files["task"].to_pylist(), strict=True))
    several = Counter(task for task in tasks if None not in task)
    copies = [number for number, task in enumerate(tasks) if several[task] > 1]
    rows = np.flatnonzero(np.isin(file_of_row, copies))
    columns = scores.select(["split", "subset", "main_score"]).take(rows).to_pydict().values()
    cells: dict[tuple[Any, ...], dict[int, float | None]] = {}
    for number, split, subset, score in zip(file_of_row[rows].tolist(), *columns, strict=True):
        cells.setdefault((tasks[number], split, subset), {})[number] = score
    pairs = {(one, max(some)) for some in cells.values() for one in some if some[one] != some[max(some)]}
    return [{"path": paths[one], "problem": f"other scores than {paths[last]}, which counts"}
            for one, last in sorted(pairs)]  # fmt: skip


def _find_entry_folder(path: str) -> str:
    """The folder of the entry that a file belongs to; empty if it belongs to none."""
    folder, _, name = path.rpartition("/")
    steps = folder.split("/")
    is_entry = len(steps) == 2 or (len(steps) == 4 and steps[2] == "experiments")
    return folder if is_entry and name.endswith(".json") else ""


def _collect_file_scores(files: pa.Table, parts: Sequence[pa.Table]) -> tuple[pa.Table, NDArray[np.int64]]:
    """The scores in the order of the files, and the row of the file of each."""
    lengths = files["rows"].to_numpy()
    first = np.cumsum(lengths) - lengths
    # For every file its rows start, start + 1, …: a loop over hundreds of thousands is slow.
    index = np.arange(lengths.sum()) + np.repeat(files["start"].to_numpy() - first, lengths)
    # Every part was encoded with a dictionary of its own: the codes agree only when these are unified.
    score_table = pa.concat_tables(parts).unify_dictionaries().combine_chunks().take(index).cast(_SCORES)
    file_of_row = np.repeat(np.arange(files.num_rows), lengths)
    named = files.select(["entry", "task", "data_revision", "mteb_version"]).take(file_of_row)
    columns = ["entry", "task", *_SCORES.names, "data_revision", "mteb_version"]
    return pa.table({n: (score_table if n in _SCORES.names else named)[n] for n in columns}), file_of_row


def _encode_dictionaries(table: pa.Table) -> pa.Table:
    for position, name in enumerate(table.column_names):
        if name in _ENCODED:
            table = table.set_column(position, name, table[name].combine_chunks().dictionary_encode())
    return table


def _build_import_entries(
    files: pa.Table, folders: Sequence[str], cards: Mapping[str, Mapping[str, Any]]
) -> pa.Table:
    named = [(folder.partition("/")[0], cards[folder]["card_name"]) for folder in sorted(cards)]
    # Folders have `__` for the slash: the name on a card counts only if mteb makes the same folder of it.
    names = {model: n for model, n in named if n and n.replace("/", "__").replace(" ", "_") == model}
    stat = list(zip(*(files[name].to_pylist() for name in (*_STAT, "problem")), strict=True))
    rows, tasks = files["rows"].to_numpy(), files["task"].is_valid().to_numpy()
    entry = files["entry"].drop_null().to_numpy()
    # Files are sorted by entry, so those of an entry are one run; files of no entry (null) stand last.
    bounds = np.searchsorted(entry, np.arange(len(folders) + 1)).tolist()
    entries = []
    for folder, (first, last) in zip(folders, pairwise(bounds), strict=True):
        model, revision, *_ = folder.split("/")
        entries.append({
            "folder": folder, "model": names.get(model) or model.replace("__", "/", 1),
            "revision": revision, "experiment": folder.split("/")[3] if folder.count("/") == 3 else "",
            "trust": infer_revision_trust(revision), "files": int(tasks[first:last].sum()),
            "rows": int(rows[first:last].sum()), "card": folder in cards,
            "digest": hashlib.sha256(repr((PARSER, stat[first:last])).encode()).hexdigest(),
            **cards.get(folder, {}),
        })  # fmt: skip
    return pa.Table.from_pylist(entries, schema=SCHEMA)


def infer_revision_trust(revision: str) -> str:
    """The kind of a revision.

    >>> infer_revision_trust("no_revision_available"), infer_revision_trust("main")
    ('none', 'other')
    """
    if re.fullmatch(r"[0-9a-f]{40}", revision):
        return "commit"
    if revision in ("no_revision_available", "no_revision"):
        return "none"
    return "external" if revision == "external" else "other"


def _build_stamp_facts(
    files: pa.Table, entries: pa.Table, scores: pa.Table, file_of_row: NDArray[np.int64]
) -> dict[str, Any]:
    bad = files.filter(pc.not_equal(files["problem"], "")).select(["path", "problem"]).to_pylist()
    contradictions = _find_contradictions(files, scores, file_of_row)
    trust = Counter(entries["trust"].to_pylist())
    flags = Counter({row["values"]: row["counts"] for row in pc.value_counts(scores["flag"]).to_pylist()})
    counts = {
        "files": files.num_rows - files["task"].null_count, "cards": sum(entries["card"].to_pylist()),
        "models": len(set(entries["model"].to_pylist())), "entries": entries.num_rows,
        "rows": scores.num_rows, "trust": {kind: trust[kind] for kind in TRUST},
        "converted": sum(files["converted"].to_pylist()), "repeated": sum(files["repeated"].to_pylist()),
        "impossible": flags[IMPOSSIBLE], "no_score": flags[NO_SCORE], "unreadable": len(bad),
        "problems": dict(Counter(file["problem"].partition(":")[0] for file in bad).most_common()),
        "contradicting": len(contradictions),
    }  # fmt: skip
    rows = np.flatnonzero(pc.equal(scores["flag"], IMPOSSIBLE).to_numpy())[:200]
    paths = files["path"].take(file_of_row[rows]).to_pylist()
    impossible = scores.select(["split", "subset", "main_score"]).take(rows).to_pylist()
    return {
        "counts": counts,
        "unreadable": bad[:50],
        "contradicting": contradictions[:50],
        "impossible": [{"path": path, **row} for path, row in zip(paths, impossible, strict=True)],
    }


# Reading in processes


def _parse(root: Path, workers: int | None, progress: Progress, paths: Sequence[str]) -> _Read:
    """Read files below `root`.

    Raises:
        HarnessError: A process was killed.
    """
    # Each chunk is one message between processes: too small ones cost more than the reading.
    chunks = [paths[at : at + CHUNK] for at in range(0, len(paths), CHUNK)]
    count = min(workers or len(os.sched_getaffinity(0)), len(chunks))
    read = partial(parse_files, str(root), load_mteb_tasks())
    done = _Read()
    progress(0, len(paths))
    with ExitStack() as stack:
        parallel: Iterator[Parsed] = map(read, chunks)
        if count > 1:
            # Not fork: the process that imports may have threads, whose locks a fork would copy.
            spawn = multiprocessing.get_context("spawn")
            pool = ProcessPoolExecutor(count, mp_context=spawn, initializer=ignore_interrupts)
            parallel = stack.enter_context(pool).map(read, chunks)
        try:
            for part in parallel:
                done.append_part(part)
                progress(len(done.contents), len(paths))
        except BrokenProcessPool as error:
            raise HarnessError(
                "A process that reads results was killed, perhaps as memory ran out.",
                hint="Run the same command again with --workers 1; the former import is as it was.",
            ) from error
    return done


def load_mteb_tasks() -> Tasks:
    """The tasks of mteb and their metrics, from the catalog."""
    offers = suite.offers() if (suite := catalog.load_suite_entries().get("mteb")) else ()
    return build_task_index({offer.name: offer.facts["metric"] for offer in offers if offer.kind == "task"})


# The files of a checkout


def scan(root: Path) -> list[File]:
    """Every JSON file of <model>/<revision> and of its experiments/<name>; links are not followed."""
    files: list[File] = []
    for model in _list(root, "", files, results=False):
        for revision in _list(root, model, files, results=False):
            for inner in _list(root, revision, files, results=True):
                below = _list(root, inner, files, results=False) if inner.endswith("/experiments") else None
                strays = [f for one in below or () for f in _list(root, one, files, results=True)]
                strays = [inner] if below is None else strays
                files += [(stray, 0, 0, 0, "a folder where none belongs") for stray in strays]
    return sorted(files)


def _list(root: Path, below: str, files: list[File], *, results: bool) -> list[str]:
    """The folders in a folder; its JSON files go to `files`, with a problem unless it has `results`."""
    prefix = f"{below}/" if below else ""
    folders = []
    try:
        with os.scandir(f"{root}/{below}") as entries:
            for entry in entries:
                path = f"{prefix}{entry.name}"
                # A name that is not UTF-8 has a word of its own below.
                if not is_plain_name(entry.name) and _escape_path(path) == path:
                    files.append((_escape_path(path), 0, 0, 0, "a name too long, or with control characters"))
                    continue
                # A link could lead out of the checkout, or in a circle.
                if entry.is_dir(follow_symlinks=False):
                    # At the top lie .git and .github.
                    if below or not entry.name.startswith("."):
                        folders.append(path)
                elif entry.name.endswith(".json"):
                    files.append(_read_file_facts(entry, path, results))
                elif entry.is_symlink() and entry.is_dir():
                    files.append((_escape_path(path), 0, 0, 0, "a symbolic link"))
    except OSError as error:
        files.append((_escape_path(below), 0, 0, 0, f"cannot be listed: {error.strerror}"))
    return folders


def _read_file_facts(entry: os.DirEntry[str], path: str, results: bool) -> File:
    try:
        facts = entry.stat(follow_symlinks=False)
    except OSError as error:
        return _escape_path(path), 0, 0, 0, f"cannot be read: {error.strerror}"
    problem = "" if results else "not where results lie"
    if not path.isascii() and _escape_path(path) != path:
        path, problem = _escape_path(path), "its name is not UTF-8"
    elif not stat.S_ISREG(facts.st_mode):
        problem = "a symbolic link" if stat.S_ISLNK(facts.st_mode) else "no regular file"
    # Nanoseconds after the year 2262 do not fit int64.
    mtime = facts.st_mtime_ns % 2**63
    return path, facts.st_size, mtime, facts.st_ctime_ns, problem


def _escape_path(path: str) -> str:
    """A path with what is not UTF-8 escaped."""
    return path.encode("utf-8", "backslashreplace").decode()


# SHA-1, or SHA-256 in repositories that use it.
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def read_git_commit(path: Path) -> str | None:
    """The commit that is checked out at `path` or right above it, read without git."""
    git = next((folder / ".git" for folder in (path, path.parent) if (folder / ".git").is_dir()), None)
    if git is None:
        return None
    commit = _read_git_file(git / "HEAD")
    # HEAD comes with the checkout: its ref must not lead out of .git.
    if commit.startswith("ref: refs/") and ".." not in commit:
        name = commit.removeprefix("ref: ")
        packed = (line.partition(" ") for line in _read_git_file(git / "packed-refs").splitlines())
        # Git packs refs into one file and removes their own; a ref that has moved since has its own again.
        commit = _read_git_file(git / name) or {ref: commit for commit, _, ref in packed}.get(name, "")
    return commit if _COMMIT.fullmatch(commit) else None


def _read_git_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
