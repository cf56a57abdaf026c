"""The audit: what lies in a results folder and a cache, compared with what was written, and its repair.

Every kind of file has a row in one table, and every file is read whole, whatever is known of it. A damaged
record, document or model is moved aside, so that it counts as absent; damaged caches and what dead processes
left are removed, and made again when they are needed. A file that no row describes is named, and left.

A strict audit also looks for contradictions in records, so that a repository of records can take what
strangers send.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import re
import shutil
import time
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NoReturn

from harness.core import files
from harness.core.documents import read_content_file
from harness.core.errors import HarnessError, NewerSchemaError
from harness.core.keys import digest
from harness.core.types import OWN_UNITS, is_number
from harness.data.prepared import find_prepared_problems, remove_prepared
from harness.data.training.own_rows import read_source_file
from harness.results.index import read_index_file
from harness.search.plaid import find_index_problem
from harness.storage.imported import STAMP, Imported
from harness.storage.record import ModelPart, Record
from harness.storage.remote_and_leases import LEASE, TERM, has_dead_holder, locate_holder_file, sweep_leases
from harness.storage.store import BESIDE, FAILED, Store, is_stale_failure
from harness.storage.vectors import find_shard_problem, is_finite_shard
from harness.training.model_store import ModelStore, find_model_problem, find_training_problem

AREAS = {
    "records": "records",
    "examples": "per-example files",
    "runs": "run files",
    "failures": "failures",
    "documents": "baselines, checks, watches, proxies, notes, compared runs, fits",
    "imports": "imports",
    "logs": "logs of runs",
    "leases": "leases",
    "vectors": "embeddings",
    "datasets": "prepared data sets",
    "source": "tasks built from source code, counts of data",
    "finetuned": "fine-tuned weights",
    "units": "scores taken apart for checks",
    "index": "indexes of records",
    "clusters": "clusters of training pairs",
    "plaid": "indexes of approximate searches",
    "verdicts": "outcomes of trial loads, speeds",
    "baselines": "unpacked baselines",
    "site": "snapshots of the site",
    "models": "trained models",
    "left": "leftovers of killed processes",
    "unknown": "files of no known kind",
}
"""The areas of an audit, in words."""

_STALE = 10 * TERM
"""Seconds without renewal after which a lease is named."""

_MANY_RECORDS = 2_000
"""The records from which on reading them in several processes saves more than starting those takes."""

Repair = Literal["move aside", "remove", ""]


@dataclass(frozen=True)
class Fault:
    """A file that is not as it should be.

    Attributes:
        area: One of `AREAS`.
        file: The file, or a folder of prepared data or of a model.
        reason: What is wrong with it.
        repair: What a repair does with it; empty if it leaves it.
        repaired: Whether that was done.
    """

    area: str
    file: Path
    reason: str
    repair: Repair = "remove"
    repaired: bool = False


@dataclass(frozen=True)
class FileKind:
    """A kind of file in a results folder or a cache.

    Attributes:
        area: One of `AREAS`; empty for what is not counted: locks, work under way, what was moved aside.
        pattern: Its path: `*` stands for a part of a name, `[!.]` for any character but a dot, `**/` for any
            folders. With a "/" at its end it is a folder whose files are one with it.
        check: What reads such a file, and raises where it is not what was written. It may also return what is
            wrong with the file, as a text or a fault of its own; any other answer says nothing.
        repair: What a repair does with a file that has a fault.
    """

    area: str
    pattern: str
    check: Callable[[Path], object] = lambda path: None
    repair: Repair = "remove"

    def find_faults(self, path: Path) -> list[Fault]:
        """The faults of a file of this kind."""
        try:
            answer = self.check(path)
        except _REFUSALS as error:
            return _explain_refusal(self.area, path, error, self.repair)
        if isinstance(answer, Fault):
            return [answer]
        return [Fault(self.area, path, answer, self.repair)] if answer and isinstance(answer, str) else []


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What an audit found.

    Attributes:
        results: The results folder.
        cache: The cache folder.
        files: The number of files by area; prepared data sets count as one each.
        bytes: Their bytes by area.
        without_digest: The number of records of older schemas; only their key was checked.
        faults: The files that are not as they should be.
        unknown: The files and folders of no known kind, which are no faults.
    """

    results: Path
    cache: Path
    files: Mapping[str, int]
    bytes: Mapping[str, int]
    without_digest: int
    faults: tuple[Fault, ...]
    unknown: tuple[Path, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong, or no longer."""
        return all(fault.repaired for fault in self.faults)

    def to_json(self) -> dict[str, Any]:
        """The audit as plain values (docs/json.md)."""
        return {
            "results": str(self.results),
            "cache": str(self.cache),
            "clean": self.clean,
            "checked": {area: {"files": self.files[area], "bytes": self.bytes[area]} for area in AREAS},
            "without_digest": self.without_digest,
            "faults": [{**asdict(fault), "file": str(fault.file)} for fault in self.faults],
            "unknown": [str(path) for path in self.unknown],
        }


_Check = tuple[FileKind, Path]
_Outcome = tuple[Sequence[Fault], ModelPart | None, bool]
"""The faults of a file; of a record its model, and whether it has a digest, as well."""


def audit(
    results: Path,
    cache: Path,
    *,
    kinds: Sequence[FileKind] = (),
    repair: bool = False,
    strict: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Audit:
    """Check every file of a results folder and a cache.

    Args:
        results: The results folder.
        cache: The cache folder.
        kinds: Kinds of files besides those of `KINDS`.
        repair: Whether faults are repaired as they are found.
        strict: Whether records that contradict themselves or each other are faults, too.
        progress: Called with the bytes that are done, and with all.

    Returns:
        The audit, whose faults say whether they were repaired.
    """
    checks = sorted(
        _iter_checks(results, cache, (*KINDS, *kinds)), key=lambda check: [*AREAS].index(check[0].area)
    )
    sizes = [_count_bytes(path) for _, path in checks]
    total, faults, number, size = sum(sizes), list[Fault](), Counter[str](), Counter[str]()
    models, without_digest = list[tuple[Path, ModelPart]](), 0
    outcomes = _run_checks(checks, strict)
    for (kind, path), bytes_, (new, model, has_digest) in zip(checks, sizes, outcomes, strict=True):
        faults += map(_repair_fault, new) if repair else new
        number[kind.area] += 1
        size[kind.area] += bytes_
        models += [] if model is None else [(path, model)]
        without_digest += not has_digest
        progress(size.total(), total)
    if strict:
        # A repair cannot know which of two records is wrong.
        faults += [Fault("records", path, text, "") for path, text in sorted(find_disagreements(models))]
    return Audit(
        results=results,
        cache=cache,
        files=number,
        bytes=size,
        without_digest=without_digest,
        faults=tuple(faults),
        unknown=tuple(path for kind, path in checks if kind is UNKNOWN),
    )


def _run_checks(checks: Sequence[_Check], strict: bool) -> Iterator[_Outcome]:
    """The outcomes of checks in their order, those of records first, as many at once as there are cores."""
    records = [path for kind, path in checks if kind.area == "records"]
    read = partial(_audit_record, strict=strict)
    with ExitStack() as opened:
        outcomes: Iterator[_Outcome] = map(read, records)
        if len(records) >= _MANY_RECORDS:
            # New interpreters: a fork of a process with threads, as that of a progress bar, may hang.
            pool = ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn"))
            opened.callback(pool.shutdown, cancel_futures=True)
            outcomes = pool.map(read, records, chunksize=100)
        threads = ThreadPoolExecutor(os.cpu_count())  # hashing a large block lets other threads run
        opened.callback(threads.shutdown, cancel_futures=True)
        others = threads.map(
            lambda check: (check[0].find_faults(check[1]), None, True), checks[len(records) :]
        )
        yield from outcomes
        yield from others


def _iter_checks(results: Path, cache: Path, kinds: Sequence[FileKind]) -> Iterator[_Check]:
    for root in dict.fromkeys((results, cache)):
        yield from _iter_folder_checks(root, {results, cache}, kinds)
    temporary = {*files.find_leftovers(results), *files.find_leftovers(cache)}
    left = sorted({*temporary, *ModelStore(results).list_leftovers()})
    yield from ((LEFT, path) for path in left)


def _iter_folder_checks(root: Path, roots: set[Path], kinds: Sequence[FileKind]) -> Iterator[_Check]:
    """The checks of one folder, without the other one in it; a folder of no kind counts as one file."""
    forms = [(_compile_pattern(kind.pattern), kind) for kind in kinds]
    first = {kind.pattern.partition("/")[0] for kind in kinds} | {"remote"}
    for here, folders, names in os.walk(root, followlinks=True):
        place = Path(here).relative_to(root)
        folders[:] = sorted(name for name in folders if Path(here, name) not in roots)
        for name in (*folders, *sorted(names)):
            ending = "/" if name in folders else ""
            path = f"{(place / name).as_posix()}{ending}"
            kind = next((kind for form, kind in forms if form.fullmatch(path)), None)
            if kind is None and not (ending and (place.parts or name in first)):
                kind = UNKNOWN
            if kind is not None:
                if kind.area:
                    yield kind, Path(here, name)
                folders[:] = [other for other in folders if other != name] if ending else folders


def _count_bytes(path: Path) -> int:
    paths = path.rglob("*") if path.is_dir() else [path]
    return sum(path.stat().st_size for path in paths if path.is_file())


def _compile_pattern(pattern: str) -> re.Pattern[str]:
    form = re.escape(pattern).replace(r"\*\*/", "(?:.*/)?").replace(r"\[!\.\]", "[^/.]")
    # The site keeps a copy of a remote's records as a results folder in the cache.
    return re.compile(rf"(?:remote/[^/]+/)?{form}".replace(r"\*", "[^/]*"))


def _repair_fault(fault: Fault) -> Fault:
    """A fault after its repair."""
    with suppress(OSError, HarnessError):
        if fault.area == "datasets":
            # Its folder stays, with the lock by which processes share it.
            return replace(fault, repaired=remove_prepared(fault.file))
        if fault.area == "leases":
            sweep_leases(fault.file.parent)
        elif fault.area == "models" and fault.repair == "move aside":
            ModelStore(fault.file.parents[1]).move_aside(fault.file)
        elif fault.repair == "move aside":
            files.move(fault.file, fault.file.with_suffix(".broken"))
        elif fault.repair == "remove":
            shutil.rmtree(fault.file) if fault.file.is_dir() else fault.file.unlink()
    return replace(fault, repaired=bool(fault.repair) and not fault.file.exists())


# What finds faults


_REFUSALS = (OSError, ValueError, LookupError, TypeError, RecursionError, HarnessError)
"""What reading a file that is not what was written may raise."""


def _explain_refusal(area: str, path: Path, error: BaseException, repair: Repair) -> list[Fault]:
    """The fault of a file that its reader refused with an error; none of one that is gone."""
    cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
    if isinstance(cause, FileNotFoundError):
        return []
    if isinstance(cause, OSError):
        return [Fault(area, path, f"it cannot be read: {cause.strerror}", "")]
    if isinstance(error, NewerSchemaError):
        return [Fault(area, path, "it was written by a newer version", "")]
    if isinstance(error, HarnessError):
        return [Fault(area, path, f"it {error.message.removeprefix(f'{path} ').rstrip('.')}", repair)]
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError) or not isinstance(error, ValueError):
        return [Fault(area, path, "it is truncated, or no JSON", repair)]
    return [Fault(area, path, str(error), repair)]


# The results folder


def _audit_record(path: Path, *, strict: bool) -> _Outcome:
    try:
        record, content = Store.parse(path), path.read_bytes()
    except _REFUSALS as error:
        return _explain_refusal("records", path, error, "move aside"), None, True
    reasons = find_contradictions(record, content) if strict else ()
    faults = [Fault("records", path, reason, "") for reason in reasons]
    return faults, record.model, b'"digest"' in content


def _check_part(path: Path, part: str) -> str | Fault:
    """What is wrong with a file that this part of a record names."""
    named = None
    try:
        named = getattr(Store.parse(path.with_name(path.name.removesuffix(BESIDE[part]) + ".json")), part)
    except NewerSchemaError:
        return ""
    except _REFUSALS:
        pass
    if named is None:
        return Fault("runs" if part == "run" else part, path, "no intact record names it")
    return "" if files.has_sha256(path, named.sha256) else "its SHA-256 is not that in its record"


def _check_failure(path: Path) -> object:
    stale = Fault("failures", path, "its work has been finished since")
    return stale if is_stale_failure(path) else Store.parse(path)


def _check_table(path: Path) -> str:
    """Whether a table of an import has lost the stamp without which nothing reads it."""
    # One that was moved aside was a fault of its own.
    stamps = (path.with_name(STAMP), path.with_name(STAMP).with_suffix(".broken"))
    return "" if any(stamp.exists() for stamp in stamps) else "its import has no stamp: import again"


def _check_import(path: Path) -> object:
    imported = Imported.read_import(path.parent)
    return imported and imported.find_problem()


def _check_lease(path: Path) -> Fault | None:
    """Whether a lease was left; that of another host may be, if nobody has renewed it for long."""
    # The lease or its holder's file may vanish between the two looks: then it was given back.
    times = [one.stat().st_mtime for one in {path, locate_holder_file(path)} if one.exists()]
    if has_dead_holder(path):
        return Fault("leases", path, "its process is dead")
    if times and (age := time.time() - max(times)) > _STALE:
        reason = f"nobody has renewed it for {age / 60:,.0f} minutes; remove it if no run is on"
        return Fault("leases", path, reason, "")
    return None


# The cache


def _find_space_problem(path: Path) -> str:
    same = digest(json.loads(path.read_bytes())) == path.parent.name
    return "" if same else "it describes another folder"


def _find_vector_problem(path: Path) -> str:
    return find_shard_problem(path, None) or ("" if is_finite_shard(path) else "a vector is not finite")


def _find_data_problem(folder: Path) -> str:
    problem = next(iter(find_prepared_problems(folder, None)), None)
    return "" if problem is None else f"{problem.path.relative_to(folder)}: {problem.reason}"


UNKNOWN = FileKind("unknown", "")
LEFT = FileKind("left", "", lambda path: "its process is dead")

_UNREAD = (
    "**/.*.tmp", "**/.*.tmp/", "**/*.lock", "**/.lock", "**/*.broken", "models/*.broken*/",
    "models/.removed-*/", "models/.training-*/**/[!.]*", "leases/*.holder", "queue/", "tracking/",
    "plaid/*.part/", "source/*.parquet", "file-hashes.jsonl", "README.md", "reported/", "reference/",
    "measured/",
)  # fmt: skip
"""What no check reads: work under way, what the check of another file reads, and what is checked line by line
where it is used."""

KINDS = (
    FileKind("models", "models/.training-*/training.json", find_training_problem),
    *(FileKind("", pattern) for pattern in _UNREAD),
    FileKind("failures", f"records/*/*/*{FAILED}", _check_failure, "move aside"),
    FileKind("records", "records/*/*/*.json"),
    FileKind(
        "examples", f"records/*/*/*{BESIDE['examples']}", partial(_check_part, part="examples"), "move aside"
    ),
    FileKind("runs", f"records/*/*/*{BESIDE['run']}", partial(_check_part, part="run"), "move aside"),
    FileKind("imports", "imported/*/import.json", _check_import, "move aside"),
    FileKind("imports", "imported/*/*.parquet", _check_table),
    FileKind("leases", f"leases/*{LEASE}", _check_lease),
    FileKind("models", "models/[!.]*-*/", find_model_problem, "move aside"),
    FileKind("vectors", "vectors/*/*/space.json", _find_space_problem),
    FileKind("vectors", "vectors/*/*/*.safetensors", _find_vector_problem),
    FileKind("datasets", "datasets/*/", _find_data_problem),
    FileKind("source", "source/*.json", read_source_file),
    FileKind("units", "units/*.npz", files.unpack_hashed_file),
    FileKind("index", "records/*.sqlite", read_index_file),
    FileKind("plaid", "plaid/*/", lambda path: find_index_problem(path, None)),
    FileKind("verdicts", "verdicts/*.json", read_content_file),
    FileKind("verdicts", "speeds.json", read_content_file),
    # Links to an adapter and its base model, with a few lines of configuration.
    FileKind("", "adapters/*/"),
)
"""Every kind of file that this storey and those below it know; the first one that fits counts."""


# Contradictions in records from elsewhere: what no run writes, but a forger or another program may. A record
# without them can still be invented as a whole: only another run shows that a score is true.


DEPTH, NAME_BYTES, INTEGER = 32, 200, 2**63
"""Of a record: nested objects, bytes of a name (it becomes a folder), the first integer that is too large."""

CLOCKS = timedelta(days=1)
"""How far the clock of the machine that made a record may be ahead."""

SLACK = -1.0
"""Seconds that a span may be below 0: two clocks are compared."""

ROUNDING = 1e-9
"""How far a mean may be from one that was summed in another order."""

_HASH = re.compile(r"[0-9a-f]{64}")

_COUNTS = (
    "texts", "texts_trained_on", "texts_encoded", "characters_encoded", "tokens_encoded", "tokens_per_second",
    "cores", "threads",
)  # fmt: skip
_KINDS: Mapping[str, tuple[type, str]] = {
    **dict.fromkeys(
        ("device", "packages", "prompts_asked", "prompts_applied", "peak_memory_bytes", "gate", "data"),
        (dict, "an object"),
    ),
    **dict.fromkeys(("written", "started", "commit", "harness"), (str, "text")),
    "notes": (list, "a list"),
}


def find_contradictions(record: Record, content: bytes) -> Iterator[str]:
    """What a record says that cannot be true, each as the end of a sentence about it.

    Args:
        record: The record, which has its place, its digest and the key of its identity already.
        content: The bytes it was read from: JSON can say a thing twice, or a number that no number is.
    """
    try:
        _require_storable(
            json.loads(content, parse_constant=_refuse_constant, object_pairs_hook=_build_json_object)
        )
    except (ValueError, RecursionError) as error:
        yield str(error) if isinstance(error, _Unstorable) else "it is nested too deeply"
        return
    for find in (_check_names, _check_identity, _check_sweep, _check_scores, _check_provenance, _check_dates):
        yield from find(record)


_DESCRIPTION = {"name": "name", "parameters": "number of parameters", "dimension": "dimension"}
"""What records of the same weights must say alike, with its words."""


def find_disagreements(models: Iterable[tuple[Path, ModelPart]]) -> Iterator[tuple[Path, str]]:
    """The records that describe a model otherwise than most records of the same weights, with the reason.

    Where no description has more records than another, all of them are named: one of them is wrong.
    """
    by_weights: dict[str, list[tuple[Path, ModelPart]]] = defaultdict(list)
    for path, model in models:
        if model.weights:
            by_weights[model.weights].append((path, model))
    for group in by_weights.values():
        for field, label in _DESCRIPTION.items():
            values = Counter(getattr(model, field) for _, model in group)
            (usual, most), *others = values.most_common()
            # Counter.most_common breaks ties by order, and the first record is no better witness than the
            # second.
            even = any(count == most for _, count in others)
            for path, model in group:
                value = getattr(model, field)
                if even or value != usual:
                    other = next(text for text in values if text != value) if value == usual else usual
                    contrast = f"{value!r}; other records of these weights say {other!r}"
                    yield path, f"its model's {label} is {contrast}"


# The JSON of a record


class _Unstorable(ValueError):
    """A value that the site's tables cannot hold."""


def _build_json_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise _Unstorable(f"the name {_shorten(twice)} stands twice in one object")
    return values


def _refuse_constant(constant: str) -> NoReturn:
    raise _Unstorable(f"it has {constant}, which is no number; a value that is not finite is null")


def _require_storable(document: Any) -> None:
    """Raise on a value that is nested too deeply, is too large, or is text that cannot be stored."""
    # A stack of its own: recursion would end at Python's limit, at a depth that a stranger chooses.
    open_: list[Iterator[Any]] = [iter((document,))]
    while open_:
        for value in open_[-1]:
            if len(open_) - 1 > DEPTH:
                raise _Unstorable(f"it has more than {DEPTH} objects and lists within one another")
            if isinstance(value, int | float) and not (math.isfinite(value) and abs(value) < INTEGER):
                raise _Unstorable(f"it has a number that is not within ±{INTEGER}")
            # A lone surrogate has no UTF-8, and NUL ends a text in many libraries.
            if isinstance(value, str) and any(c == "\0" or "\ud800" <= c <= "\udfff" for c in value):
                raise _Unstorable(f"the text {_shorten(value)} has a character that cannot be stored")
            if isinstance(value, dict | list):
                open_.append(chain.from_iterable(value.items()) if isinstance(value, dict) else iter(value))
                break
        else:
            open_.pop()


# The contradictions of a record


def _check_names(record: Record) -> Iterator[str]:
    model, task, lineage = record.model, record.task, record.lineage
    if not (model.name.strip() and task.name.strip()):
        yield "its model or its task has no name"
    names = [model.name, model.source, model.revision or "", task.name, task.type, task.metric]
    if lineage:
        own_data = ", ".join([lineage.own_data, *(parent.own_data for parent in lineage.parents)])
        names += [lineage.recipe, lineage.variant, *lineage.all_selected_on]
        names += [*(parent.name for parent in lineage.parents), *own_data.split(", ")]
        names += lineage.sweep.names if lineage.sweep else ()
    for name in names:
        if len(name.encode()) > NAME_BYTES:
            yield f"the name {_shorten(name)} is longer than {NAME_BYTES} bytes"
        # Control, format (zero-width, right-to-left), unassigned, private, and line and paragraph separators:
        # two names that look alike would be two models.
        if any(unicodedata.category(c) in ("Cc", "Cf", "Cn", "Co", "Zl", "Zp") for c in name):
            yield f"the name {_shorten(name)} has characters that cannot be seen"


def _check_identity(record: Record) -> Iterator[str]:
    identity, artifact, lineage = record.identity, record.model.artifact, record.lineage
    if not _HASH.fullmatch(artifact):
        yield "its model's `artifact` is not 64 digits of a SHA-256"
    if identity.get("artifact") != artifact:
        yield "its identity is of another artifact than its model"
    if identity.get("task") != record.task.name:
        yield "its identity is of another task"
    if lineage is not None and lineage.key != artifact:
        yield "its model's key does not follow from its lineage"


def _check_sweep(record: Record) -> Iterator[str]:
    """The tasks of a sweep are those of every member's scores, its members its values, one of them chosen."""
    sweep = record.lineage.sweep if record.lineage else None
    if sweep is None:
        return
    if not all(member.value in sweep.values for member in sweep.curve):
        yield "a member of its sweep has a value that the sweep does not have"
    if sweep.chosen not in [member.value for member in sweep.curve if member.mean is not None]:
        yield "the value that its sweep chose is that of no member with scores"
    if any(set(m.scores) != set(sweep.tasks if m.mean is not None else ()) for m in sweep.curve):
        yield "a member of its sweep has other tasks than the sweep"


def _check_scores(record: Record) -> Iterator[str]:
    """Scores are shares or have a unit; that the main score is that of its metrics the reader has seen."""
    if record.task.metric in OWN_UNITS:
        return
    names = ("main_score", record.task.metric)
    shares = [record.main_score, *(values.get(name) for values in record.subset_metrics for name in names)]
    for value in shares:
        if is_number(value) and not -1 - ROUNDING <= value <= 1 + ROUNDING:
            yield f"a score is {value}, and scores are from -1 to 1"
            return


def _check_provenance(record: Record) -> Iterator[str]:
    """What pages read of a provenance is of its kind, or not there; what else it has is free."""
    values = {name: value for name, value in record.provenance.items() if value is not None}
    seconds = values.get("seconds", {})
    spans = seconds.values() if isinstance(seconds, Mapping) else [None]
    if not all(is_number(span) and span >= SLACK for span in spans):
        yield "its provenance's `seconds` are no numbers by name"
    for name in values.keys() & set(_COUNTS):
        if not (is_number(values[name]) and values[name] >= 0):
            yield f"its provenance's `{name}` is no number, or below 0"
    for name in values.keys() & _KINDS.keys():
        kind, label = _KINDS[name]
        if not isinstance(values[name], kind):
            yield f"its provenance's `{name}` is not {label}"


def _check_dates(record: Record) -> Iterator[str]:
    texts = [record.provenance.get(name) for name in ("started", "written")]
    try:
        dates = [datetime.fromisoformat(text) for text in texts if isinstance(text, str)]
        late = any(date > datetime.now(UTC) + CLOCKS for date in dates)
    except (ValueError, TypeError):
        yield "its provenance has a date that is none in UTC"
        return
    if late:
        yield f"it was made on {max(dates):%Y-%m-%d}, which is in the future"
    if dates != sorted(dates):
        yield "it was written before it was started"


def _shorten(text: str) -> str:
    return ascii(text if len(text) <= 40 else text[:40] + "…")
