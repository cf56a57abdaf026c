"""The place of a data set: a data root first, then the hub's cache, then the hub; and its state before a run.

A snapshot in the hub's cache may hold only the subset that was loaded, so it is checked before use. Errors of
the hub become one message each.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from itertools import chain
from pathlib import Path
from typing import Literal

from harness.core.errors import DataError, HarnessError, find_similar_names
from harness.core.terminal import shorten_names
from harness.core.types import Data, DataReport, DataTable, FileSource, Size, TableSource, Task
from harness.data.counting import count_task_data
from harness.data.folder import (
    README,
    WHOLE,
    Manifest,
    Need,
    find_missing_parts,
    list_data_sets,
    list_visible_files,
    read_configurations,
    resolve_identity,
)
from harness.data.schema import Schema

RETRIEVAL_PARTS = ("corpus", "queries", "qrels", "top_ranked", "instruction", "instructions")
_ODD = re.compile(r"\*\*|[\[\]{}:]|\.\.|^/")
"""Parts of a pattern of files that Python and the hub read differently."""

_LANGUAGE = re.compile(r"[a-z]{3}_[A-Z][a-z]{3}")
"""A subset that is called as its language and script, such as `eng_Latn`."""

_NOT_DATA = (".md", ".py", ".txt.license", "LICENSE", "dataset_infos.json")


def find_snapshot(path: str, revision: str) -> Path | None:
    """The folder of a data set's revision in the hub's cache, None without one."""
    from huggingface_hub import constants

    if not revision:
        return None
    repo = Path(constants.HF_HUB_CACHE) / f"datasets--{path.replace('/', '--')}"
    # A branch or tag is a file in refs/ that holds its commit; a full commit has none.
    reference = repo / "refs" / revision
    commit = reference.read_text().strip() if reference.is_file() else revision
    folder = repo / "snapshots" / commit
    return folder if folder.is_dir() else None


def _list_snapshot_gaps(folder: Path, data: Data, subsets: Sequence[str]) -> tuple[str, ...]:
    """The files that a snapshot lacks for `subsets` (all, if empty), by its file list, else by its README."""
    present = {name for name, path in list_visible_files(folder).items() if path.exists()}
    listed = _list_cached_files(data)
    # The hub's own list of the commit proves that nothing is missing; without it the README has to do.
    if listed is not None and listed <= present:
        return ()
    if not any(not name.endswith(_NOT_DATA) for name in present):
        return ("data file",)
    # The first configuration tells the loader the format.
    configs = _read_config_patterns(folder)
    named = _match_configs(configs, subsets)
    chosen = {next(iter(configs), ""), *named} if named else {*configs}
    declared = {config: patterns for config, patterns in configs.items() if config in chosen}
    # Without a list: the files that the README names, and the shards that the names of others imply.
    undeclared = (p for patterns in declared.values() for p in patterns if not _has_matches(folder, p))
    return (*undeclared, *find_missing_parts(present))


def _list_absent_subsets(folder: Path, subsets: Sequence[str]) -> tuple[str, ...]:
    """The subsets without a configuration that has files, if any of them has a configuration at all."""
    configs = _read_config_patterns(folder)
    declared = {s: [patterns for c, patterns in configs.items() if _is_alias(c, s)] for s in subsets}
    if not any(declared.values()):
        return ()
    # A configuration without patterns may have any files.
    return tuple(
        subset
        for subset, lists in declared.items()
        if not any(not patterns or any(_has_matches(folder, p) for p in patterns) for patterns in lists)
    )


def select_file_patterns(need: Need, folder: Path) -> tuple[str, ...]:
    """The patterns of the files that a data set's users read, by its README; none for all files.

    Args:
        need: The data set.
        folder: A folder with its README.
    """
    configs, all_patterns = _read_config_patterns(folder), [*need.files]
    if need.configs:
        all_patterns += [
            pattern for config in _match_configs(configs, need.subsets) for pattern in configs[config]
        ]
    for names in need.configs:
        single = next(iter(configs)) if len(configs) == 1 else "default"
        config = next((name for name in names or (single,) if name in configs), None)
        patterns = configs[config] if config is not None else []
        # A pattern that the hub would read in another way: then all files are fetched.
        if not patterns or any(_ODD.search(pattern) for pattern in patterns):
            return ()
        all_patterns += patterns
    return tuple(dict.fromkeys([README, *all_patterns])) if all_patterns else ()


def list_readme_subsets(folder: Path) -> tuple[str, ...]:
    """The configurations in a data set's README."""
    return tuple(_read_config_patterns(folder))


def _is_alias(config: str, subset: str) -> bool:
    """Whether a configuration is a subset or a part of it (`fr`, `fr-corpus`, `corpus-fr`, not `fr-ca`)."""
    return any(config in (subset, f"{subset}-{part}", f"{part}-{subset}") for part in RETRIEVAL_PARTS)


def _list_cached_files(data: Data) -> set[str] | None:
    try:
        from huggingface_hub import get_cached_repo_tree
        from huggingface_hub.errors import CachedRepoTreeNotFoundError
    except ImportError:  # an older huggingface_hub keeps no such list
        return None
    try:
        tree = get_cached_repo_tree(data.path, repo_type="dataset", revision=data.revision)
    except CachedRepoTreeNotFoundError:
        return None
    return {file.path for file in tree if not any(p.startswith(".") for p in file.path.split("/"))}


def _read_config_patterns(folder: Path) -> dict[str, list[str]]:
    """The configurations in a README, in order: name → patterns of its data files; {} if it is damaged."""
    try:
        configs = read_configurations(folder)
    except DataError:
        return {}
    return {name: [*chain.from_iterable(config.patterns.values())] for name, config in configs.items()}


def _match_configs(configs: Iterable[str], subsets: Sequence[str]) -> list[str]:
    """The configurations that stand for some subset, and the optional parts of a retrieval task."""
    parts = [*subsets, *(RETRIEVAL_PARTS if "default" in subsets else ())]
    return [config for config in configs if any(_is_alias(config, subset) for subset in parts)]


def _has_matches(folder: Path, pattern: str) -> bool:
    try:
        return any(path.exists() for path in folder.glob(pattern))
    except (NotImplementedError, ValueError):  # not a pattern inside the folder
        return False


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}
_TOKEN = "make a token at the hub's settings page and set HF_TOKEN to it"


_PULL = (
    "On a connected machine: harness data pull --suite SUITE --data DIR; "
    "then name that folder here with --data DIR --offline."
)


class Unavailable(DataError):
    """An error that affects every data set, so that trying the next is of no use."""


@contextmanager
def explain_hub_error(need: Need, root: Path | None) -> Iterator[None]:
    """Turn any error while fetching `need` into a DataError."""
    try:
        yield
    except HarnessError:
        raise
    except Exception as error:
        raise _explain(error, need, root) from error


def _explain(error: Exception, need: Need, root: Path | None) -> DataError:
    """The DataError for an error of huggingface_hub, or of writing under `root`."""
    from huggingface_hub import errors as hub

    # huggingface_hub looks into its cache when the request fails, and raises what the cache says.
    if isinstance(error, hub.LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    path, line = need.path, _extract_first_line(error)
    match error:
        # The special kinds first: GatedRepoError is a RepositoryNotFoundError, and all are HfHubHTTPErrors.
        case hub.GatedRepoError():
            return DataError(
                f"The data set {path} is gated: its owner must let you in.",
                hint=f"Accept its terms on its page on the hub, then {_TOKEN}.",
            )
        case hub.RevisionNotFoundError():
            return DataError(
                f"The data set {path} has no revision {need.revision} on the hub.",
                hint="The revision is pinned by the suite; its owner may have rewritten the history.",
            )
        case hub.RepositoryNotFoundError():
            return DataError(
                f"The hub has no data set {path}, or it is private.", hint=f"If it is private, {_TOKEN}."
            )
        case hub.HfHubHTTPError():
            return _explain_http_status(error.response.status_code, need)
        case hub.OfflineModeIsEnabled():
            return Unavailable(
                f"The hub may not be asked for {path}: offline mode is on.",
                hint="Unset HF_HUB_OFFLINE (or leave out --offline) and run the same command again.",
            )
        case hub.HTTPError() | ConnectionError() | TimeoutError() | hub.LocalEntryNotFoundError():
            return Unavailable(
                f"No connection to the hub for {path}: {line}.",
                hint="Run the same command on a connected machine; what was fetched so far is kept.",
            )
    code = error.errno if isinstance(error, OSError) else None
    if code in _FULL or "No space left" in str(error):  # the hub's compiled part gives text only
        return Unavailable(
            f"The disk is full: {path} cannot be written under {root} ({line}).",
            hint="Free some room and run the same command again: it goes on where it stopped.",
        )
    if isinstance(error, OSError) and code in _DENIED:
        return Unavailable(
            f"No permission to write {error.filename or root}.",
            hint="Choose a folder this user may write: --data DIR.",
        )
    return DataError(
        f"Fetching {path} failed: {type(error).__name__}: {line}.",
        hint="Run the same command again: it goes on where it stopped.",
    )


def _explain_http_status(code: int, need: Need) -> DataError:
    if code in (401, 403):
        return DataError(
            f"The hub refuses access to {need.path} (HTTP {code}).", hint=f"To be let in, {_TOKEN}."
        )
    if code == 429:
        return DataError(
            f"The hub turns down further requests for {need.path} (HTTP 429).",
            hint=f"Wait some minutes and run the same command again; to be allowed more, {_TOKEN}.",
        )
    return DataError(
        f"The hub answered HTTP {code} for {need.path}.", hint="Run the same command again later."
    )


def _extract_first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def explain_unreachable(path: str, error: ConnectionError) -> Unavailable:
    """The error for a data set that a library has not reached on the hub."""
    return Unavailable(f"No connection to the hub for {path}: {_extract_first_line(error)}.", hint=_PULL)


def find_hub_fault() -> str:
    """Why the hub cannot be reached; empty where it answers, whatever its answer is."""
    from huggingface_hub import constants, get_session
    from huggingface_hub.errors import HTTPError

    try:
        get_session().head(constants.ENDPOINT, timeout=5)
    except (HTTPError, OSError, HarnessError) as error:
        return f"{constants.ENDPOINT} cannot be reached: {_extract_first_line(error)}"
    return ""


def fetch_remote_size(need: Need, *, patterns: Sequence[str] = (), timeout: float = 10.0) -> int:
    """The bytes of a data set on the hub, without hidden files.

    Args:
        need: The data set and its revision.
        patterns: Patterns of the files that count; none for all files.
        timeout: Seconds that the hub has for its answer.

    Raises:
        DataError: The hub cannot be reached, or does not have it.
    """
    from huggingface_hub import HfApi

    with explain_hub_error(need, None):
        info = HfApi().dataset_info(need.path, revision=need.revision, files_metadata=True, timeout=timeout)
        # Files like .gitattributes are not pulled, so they do not count.
        visible = [s for s in info.siblings or [] if not s.rfilename.startswith(".")]
        wanted_files = [s for s in visible if any(fnmatch(s.rfilename, one) for one in patterns or ["*"])]
        return sum(s.size or 0 for s in wanted_files)


def format_size(size: int | None) -> str:
    """Bytes in a readable unit, "?" if unknown.

    >>> format_size(None), format_size(999), format_size(1_250_000)
    ('?', '999 B', '1.2 MB')
    """
    if size is None:
        return "?"
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


Origin = Literal["root", "hub-cache", "hub", "built"]
"""A data root, the hub's cache on this machine, the hub, or data that is built or local."""


class DataMissing(DataError):
    """A data set is not on this machine and may not be fetched."""


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """The places for data sets: `root` in hub layout (`<org>/<name>/`), `cache`, and if online the hub.

    With `partial` a part of what a data set declares is accepted for the whole.
    """

    root: Path | None = None
    offline: bool = False
    cache: Path
    partial: bool = False


@dataclass(frozen=True, kw_only=True)
class Located:
    """A data set with its identity, the folder to read it from, and its origin.

    `folder` is None where the task loads the data itself: built data, and the hub at `data.revision`.
    """

    data: Data
    folder: Path | None
    origin: Origin


def locate_data(data: Data, settings: DataSettings, *, subsets: Sequence[str] = ()) -> Located:
    """The place and the identity of a data set; the hub's cache is used where no data root has it.

    Args:
        data: The data set as the task pins it.
        settings: The places to look.
        subsets: The subsets that a snapshot in the hub's cache must hold; by default all.

    Raises:
        DataMissing: The data root lacks some of the subsets; or offline, and the data set is nowhere.
        DataError: The data root does not exist or cannot be read.
    """
    near = locate_local(data, settings, subsets=subsets)
    if near is not None:
        return near
    from huggingface_hub import constants

    held = find_snapshot(data.path, data.revision)
    lacking = _list_snapshot_gaps(held, data, subsets) if held else ()
    if held and not lacking:
        return Located(data=data, folder=held, origin="hub-cache")
    if settings.offline or (settings.root is not None and constants.HF_HUB_OFFLINE):
        raise _explain_missing_data(data, settings, lacking)
    return Located(data=data, folder=None, origin="hub")


def locate_local(data: Data, settings: DataSettings, *, subsets: Sequence[str] = ()) -> Located | None:
    """The data set if it is built or in the data root, else None.

    Raises:
        DataMissing: The data root has only some of the subsets.
        DataError: The data root does not exist or cannot be read.
    """
    if not data.path:
        return Located(data=data, folder=None, origin="built")
    folder = find_root_folder(data.path, data.revision, settings.root)
    if folder is None:
        return None
    _require(subsets, folder, data)
    with explain_unreadable_folder(folder):
        return Located(data=resolve_identity(data, folder, settings.cache), folder=folder, origin="root")


def _require(subsets: Sequence[str], folder: Path, data: Data) -> None:
    """Refuse a folder that declares some of the subsets and not the others."""
    absent = _list_absent_subsets(folder, subsets)
    if not absent:
        return
    present = [subset for subset in subsets if subset not in absent]
    # Beside other tasks names of subsets are refused, and languages are not.
    is_language, names = all(map(_LANGUAGE.fullmatch, present)), ",".join(present)
    option = f"--languages {names.replace('_', '-')}" if is_language else f"--subsets {names}"
    choice = f"Choose what it has with {option}" if present else "Choose others"
    raise DataMissing(
        f"The data root has {data.path} without {shorten_names(absent, 3)}.",
        hint=f"{choice}, or pull all of it: harness data pull --suite SUITE --data DIR",
    )


def find_root_folder(path: str, revision: str, root: Path | None) -> Path | None:
    """The folder of a data set in a data root; None if it does not exist or has no files.

    It is `<org>/<name>`, or `<org>/<name>@<revision>` (12 digits) where the first holds another revision. A
    folder of unknown origin is accepted.

    Args:
        path: The data set, `org/name`.
        revision: The revision that is needed; empty for any.
        root: The data root; None without one.

    Raises:
        DataError: The data root is not a folder, or the data set's folder cannot be listed.
    """
    if root is None:
        return None
    for folder in list_candidate_folders(path, revision, root):
        with explain_unreadable_folder(folder):
            if (
                folder.is_dir()
                and list_visible_files(folder)
                and find_other_revision(folder, revision) is None
            ):
                return folder
    return None


def list_candidate_folders(path: str, revision: str, root: Path) -> tuple[Path, ...]:
    """The possible folders of a data set's revision in a data root, the usual folder first.

    Raises:
        DataError: The data root is not a folder.
    """
    if not root.expanduser().is_dir():
        raise DataError(
            f"The data root {root} is not a folder.",
            hint="Name one with --data DIR, or make one: harness data pull --suite SUITE --data DIR",
        )
    usual = root.expanduser().absolute() / path
    return (usual, usual.with_name(f"{usual.name}@{revision[:12]}")) if revision else (usual,)


def find_other_revision(folder: Path, revision: str) -> str | None:
    """The revision in a folder's manifest, if it is not the requested one."""
    # A damaged manifest tells no revision: the folder counts as one of unknown origin.
    manifest = Manifest.read_intact_manifest(folder)
    return manifest.revision if manifest and revision and manifest.revision != revision else None


@contextmanager
def explain_unreadable_folder(folder: Path) -> Iterator[None]:
    """Turn an error of reading a data set's folder into a DataError."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"Cannot read {error.filename or folder}: {error.strerror or error}.",
            hint="Give this user the right to read the data root, or name another with --data DIR.",
        ) from error


def _explain_missing_data(data: Data, settings: DataSettings, lacking: Sequence[str]) -> DataMissing:
    where = "the hub's cache" if settings.root is None else f"{settings.root} or the hub's cache"
    state = f"is not in {where}"
    usual = list_candidate_folders(data.path, data.revision, settings.root)[0] if settings.root else None
    if lacking:
        state = f"is only in part in the hub's cache (no {', '.join(lacking[:3])})"
    elif usual and (held := find_other_revision(usual, data.revision)):
        state += f" (the data root has it at {held})"
    near = _find_nearby_root(data.path, settings.root) if settings.root else None
    return DataMissing(
        f"Offline, and the data set {data.path} at revision {data.revision} {state}.",
        hint=f"{near} has it: type --data {near}." if near else _PULL,
    )


def _find_nearby_root(path: str, root: Path) -> Path | None:
    """The folder one level above or below a data root that holds a data set."""
    root = root.expanduser().absolute()
    places = [place for place in (root.parent / path, *sorted(root.glob(f"*/{path}"))) if place.is_dir()]
    return places[0].parents[len(Path(path).parts) - 1] if places else None


_NOTHING = DataReport()


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The state of a task's data, as far as it can be checked before a run.

    `state` is "missing" if the data is not on this machine, and "faulty" if the task cannot read it or a part
    of it is missing. `tables` are those that the task reads, none where its own code decides.
    """

    task: Task
    state: Literal["ok", "faulty", "missing"]
    folder: Path | None = None
    tables: tuple[DataTable, ...] = ()
    faults: tuple[str, ...] = ()
    size: Size | None = None
    report: DataReport = _NOTHING

    @staticmethod
    def check_task_data(task: Task, settings: DataSettings) -> Finding:
        """The finding on a task's data, in the data root or in its own files."""
        tables = task.source.list_data_tables(task) if isinstance(task.source, TableSource) else ()
        folder = (
            find_root_folder(task.data.path, task.data.revision, settings.root) if task.data.path else None
        )
        if task.data.path and folder is None:
            return Finding(
                task=task, state="missing", tables=tables, faults=(_describe_missing_folder(task, settings),)
            )
        size, report, faults = task.size, _NOTHING, tuple[str, ...]()
        try:
            if isinstance(task.source, FileSource):
                size = task.source.measure(task, cache=settings.cache)
            elif folder:
                faults = tuple(Schema.read_schema(folder).find_faults(tables))
            if not faults:
                data = resolve_identity(task.data, folder, settings.cache) if folder else task.data
                report = count_task_data(replace(task, data=data), folder, settings.cache)
                faults = (*report.faults, *(() if settings.partial else report.gaps))
        except DataError as error:
            faults = (error.message,)
        return Finding(
            task=task,
            state="faulty" if faults else "ok",
            folder=folder,
            tables=tables,
            faults=faults,
            size=size,
            report=report,
        )


def _describe_missing_folder(task: Task, settings: DataSettings) -> str:
    """The sentence on a data set that is not in the data root."""
    path, root = task.data.path, settings.root
    if root is None:
        return f"no data root is named, so {path} cannot be looked for"
    data_paths = [need.path for need in list_data_sets(root)]
    close = find_similar_names(path, data_paths)
    return f"{root / path} does not exist" + (f"; did you mean {close[0]}?" if close else "")


def check_data(task: Task, located: Located, settings: DataSettings) -> Size:
    """The size of a task's data, whose files, columns and rows are checked before a run.

    Data at a pinned revision is known to be complete, and is not checked.

    Args:
        task: The task, with the identity of its data.
        located: The place of its data.
        settings: The places for data sets, and whether a part of one is accepted.

    Raises:
        DataError: The task cannot read the data, or a part of it is missing; the message names what.
    """
    source, size = task.source, task.size
    if isinstance(source, FileSource):
        size = source.measure(task, cache=settings.cache)
    elif located.folder is None or not located.data.content:
        return size
    elif isinstance(source, TableSource):
        faults = Schema.read_schema(located.folder).find_faults(source.list_data_tables(task))
        _require_none(faults, task, located, settings)
    report = count_task_data(task, located.folder, settings.cache)
    _require_none(report.faults, task, located, settings)
    if report.gaps and not settings.partial:
        _require_none(report.gaps, task, located, settings, hint=WHOLE)
    return size


def _require_none(
    problems: Sequence[str], task: Task, located: Located, settings: DataSettings, *, hint: str | None = None
) -> None:
    """Refuse data with problems, the first of which is named."""
    if problems:
        where = f"{located.folder}: " if located.folder else ""
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        place = settings.root if task.data.path else "DIR"
        raise DataError(
            f"{where}{problems[0]}{more}.",
            hint=hint or f"All that it needs: harness data check {place} --suite SUITE",
        )
