"""The audit: what lies in a results folder and a cache, compared with what was written, and its repair.

Every file is read whole, whatever is known of it. A damaged record or model is moved aside, so that it counts
as not done; damaged caches and what dead processes left are removed, and made again when they are needed.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from harness.core import files
from harness.core.documents import verify_digest
from harness.core.errors import HarnessError, NewerSchemaError, RecordError
from harness.core.identity import digest
from harness.data.prepared import find_prepared_problems, remove_prepared
from harness.results.contradictions import find_contradictions, find_disagreements
from harness.search.plaid import PART, find_index_problem
from harness.storage.leases import LEASE, TERM, has_dead_holder, locate_holder_file, sweep_leases
from harness.storage.record import Record
from harness.storage.store import BESIDE, FAILED, Store
from harness.storage.vectors import find_shard_problem, is_finite_shard
from harness.training.model_store import ModelStore, find_model_problem

AREAS = {
    "records": "records",
    "examples": "per-example files",
    "runs": "run files",
    "failures": "failures",
    "leases": "leases",
    "vectors": "embeddings",
    "datasets": "prepared data sets",
    "source": "tasks built from source code, counts of data",
    "finetuned": "fine-tuned weights",
    "units": "scores taken apart for checks",
    "plaid": "indexes of approximate searches",
    "models": "trained models",
    "left": "leftovers of killed processes",
}
"""The areas of an audit, in words."""

_STALE = 10 * TERM
"""Seconds without renewal after which a lease is named."""

Repair = Literal["move aside", "remove", ""]


@dataclass(frozen=True, kw_only=True)
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
    """

    results: Path
    cache: Path
    files: Mapping[str, int]
    bytes: Mapping[str, int]
    without_digest: int
    faults: tuple[Fault, ...]

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
        }


@dataclass(frozen=True, kw_only=True)
class _Check:
    """A file or folder, and what finds its faults."""

    area: str
    path: Path
    faults: Callable[[Path], Iterator[Fault]]

    @property
    def bytes(self) -> int:
        paths = self.path.rglob("*") if self.path.is_dir() else [self.path]
        return sum(path.stat().st_size for path in paths if path.is_file())


def audit(
    results: Path,
    cache: Path,
    *,
    repair: bool = False,
    strict: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Audit:
    """Check every file of a results folder and a cache.

    Args:
        results: The results folder.
        cache: The cache folder.
        repair: Whether faults are repaired as they are found.
        strict: Whether records that contradict themselves or each other are faults, too.
        progress: Called with the bytes that are done, and with all.

    Returns:
        The audit, whose faults say whether they were repaired.
    """
    checks = [(check, check.bytes) for check in _iter_checks(results, cache)]
    faults: list[Fault] = []
    total = sum(bytes_ for _, bytes_ in checks)
    number, size = Counter[str](), Counter[str]()
    for check, bytes_ in checks:
        new_faults = [*check.faults(check.path)]
        faults += [_repair_fault(fault) for fault in new_faults] if repair else new_faults
        number[check.area] += 1
        size[check.area] += bytes_
        progress(size.total(), total)
    faults += _find_record_conflicts(results) if strict else ()
    return Audit(
        results=results,
        cache=cache,
        files=number,
        bytes=size,
        without_digest=sum(map(_has_no_digest, _list_record_files(results))),
        faults=tuple(faults),
    )


def _repair_fault(fault: Fault) -> Fault:
    """A fault after its repair."""
    try:
        if fault.area == "datasets":
            return replace(fault, repaired=remove_prepared(fault.file))
        if fault.area == "models":
            ModelStore(fault.file.parents[1]).move_aside(fault.file)
        elif fault.area == "leases":
            sweep_leases(fault.file.parent)
            return replace(fault, repaired=bool(fault.repair) and not fault.file.exists())
        elif fault.file.is_dir():
            shutil.rmtree(fault.file)
        elif fault.repair == "remove":
            fault.file.unlink(missing_ok=True)
        elif fault.repair == "move aside":
            files.move(fault.file, fault.file.with_suffix(".broken"))
    except (OSError, HarnessError):
        return fault
    return replace(fault, repaired=bool(fault.repair))


def _iter_checks(results: Path, cache: Path) -> Iterator[_Check]:
    store, records, models = Store(results), results / "records", ModelStore(results)
    places: list[tuple[str, Callable[[Path], Iterator[Fault]], list[Path]]] = [
        ("records", _find_record_faults, _list_record_files(results)),
        ("examples", _build_part_check("examples"), sorted(records.glob(f"*/*/*{BESIDE['examples']}"))),
        ("runs", _build_part_check("run"), sorted(records.glob(f"*/*/*{BESIDE['run']}"))),
        ("failures", _find_failure_faults, sorted(records.glob(f"*/*/*{FAILED}"))),
        ("leases", _find_lease_faults, sorted(store.leases.glob(f"*{LEASE}"))),
        ("vectors", _find_space_faults, sorted(cache.glob("vectors/*/*/space.json"))),
        ("vectors", _find_shard_faults, sorted(cache.glob("vectors/*/*/*.safetensors"))),
        ("datasets", _find_data_faults, sorted(path for path in cache.glob("datasets/*") if path.is_dir())),
        ("source", _build_read_check("source", _read_digested), sorted(cache.glob("source/*.json"))),
        (
            "finetuned",
            _build_read_check("finetuned", _read_grid_runs),
            sorted(cache.glob(f"finetuned/*/{STATE}")),
        ),
        ("finetuned", _weight_faults, sorted(cache.glob("finetuned/*/*.safetensors"))),
        ("units", _build_read_check("units", files.unpack_hashed_file), sorted(cache.glob("units/*.npz"))),
        (
            "plaid",
            _find_index_faults,
            sorted(path for path in cache.glob("plaid/*") if path.suffix not in (".tmp", PART)),
        ),
        ("models", _find_model_faults, models.list_model_folders()),
        (
            "left",
            _find_leftover_faults,
            sorted({*files.find_leftovers(results), *files.find_leftovers(cache)}),
        ),
        ("left", _find_leftover_faults, models.list_leftovers()),
    ]
    for area, faults, paths in places:
        yield from (_Check(area=area, path=path, faults=faults) for path in paths)


# The results folder


def _list_record_files(results: Path) -> list[Path]:
    """The files of finished records."""
    candidates = sorted(results.glob("records/*/*/*.json"))
    return [path for path in candidates if not path.name.endswith(FAILED)]


def _find_record_faults(path: Path, area: str = "records") -> Iterator[Fault]:
    try:
        Store.parse(path)
    except FileNotFoundError:
        return
    except NewerSchemaError:
        yield Fault(area=area, file=path, reason="it was written by a newer version", repair="")
    except OSError as error:
        yield Fault(area=area, file=path, reason=f"it cannot be read: {error.strerror}", repair="")
    except RecordError as error:
        reason = error.message.removeprefix(f"{path} ").rstrip(".")
        yield Fault(area=area, file=path, reason=f"it {reason}", repair="move aside")
    except ValueError as error:
        yield Fault(area=area, file=path, reason=str(error), repair="move aside")


def _find_record_conflicts(results: Path) -> Iterator[Fault]:
    """The contradictions in intact records; a repair cannot know which of two records is wrong."""
    records = {
        path: record for path in _list_record_files(results) if (record := _read_whole(path)) is not None
    }
    reasons = [
        (path, text) for path, one in records.items() for text in find_contradictions(one, path.read_bytes())
    ]
    for path, reason in sorted([*reasons, *find_disagreements(records.items())]):
        yield Fault(area="records", file=path, reason=reason, repair="")


def _read_whole(path: Path) -> Record | None:
    """The record in a file; None where it has a fault."""
    try:
        return Store.parse(path)
    except (OSError, ValueError, HarnessError):
        return None


def _has_no_digest(path: Path) -> bool:
    """Whether a whole record is of a schema without digests."""
    return _read_whole(path) is not None and "digest" not in json.loads(path.read_bytes())


def _build_part_check(part: str) -> Callable[[Path], Iterator[Fault]]:
    """What finds the faults of the files that this part of a record names."""
    area = "runs" if part == "run" else part

    def find_part_faults(path: Path) -> Iterator[Fault]:
        record = _read_whole(path.with_name(path.name.removesuffix(BESIDE[part]) + ".json"))
        named = getattr(record, part, None)
        if named is None:
            yield Fault(area=area, file=path, reason="no intact record names it")
        elif not files.has_sha256(path, named.sha256):
            reason = "its SHA-256 is not that in its record"
            yield Fault(area=area, file=path, reason=reason, repair="move aside")

    return find_part_faults


def _find_failure_faults(path: Path) -> Iterator[Fault]:
    if path in Store(path.parents[3]).list_stale_failures():
        yield Fault(area="failures", file=path, reason="its work has been finished since")
    else:
        yield from _find_record_faults(path, "failures")


def _find_lease_faults(path: Path) -> Iterator[Fault]:
    """Whether a lease was left; that of another host may be, if nobody has renewed it for long."""
    try:
        # The lease or its holder's file may vanish between the two looks: then it was given back.
        age = time.time() - max(
            one.stat().st_mtime for one in {path, locate_holder_file(path)} if one.exists()
        )
    except (FileNotFoundError, ValueError):
        return
    if has_dead_holder(path):
        yield Fault(area="leases", file=path, reason="its process is dead")
    elif age > _STALE:
        reason = f"nobody has renewed it for {age / 60:,.0f} minutes; remove it if no run is on"
        yield Fault(area="leases", file=path, reason=reason, repair="")


def _find_leftover_faults(path: Path) -> Iterator[Fault]:
    yield Fault(area="left", file=path, reason="its process is dead")


def _find_model_faults(folder: Path) -> Iterator[Fault]:
    if problem := find_model_problem(folder):
        yield Fault(area="models", file=folder, reason=problem, repair="move aside")


# The cache


def _find_space_faults(path: Path) -> Iterator[Fault]:
    try:
        same = digest(json.loads(path.read_bytes())) == path.parent.name
    except (OSError, ValueError, TypeError):
        same = False
    if not same:
        yield Fault(area="vectors", file=path, reason="it describes another folder")


def _find_shard_faults(path: Path) -> Iterator[Fault]:
    problem = find_shard_problem(path, None)
    if problem or not is_finite_shard(path):
        yield Fault(area="vectors", file=path, reason=problem or "a vector is not finite")


def _find_index_faults(folder: Path) -> Iterator[Fault]:
    if problem := find_index_problem(folder, None):
        yield Fault(area="plaid", file=folder, reason=problem)


def _find_data_faults(folder: Path) -> Iterator[Fault]:
    for problem in find_prepared_problems(folder, None)[:1]:
        name = problem.path.relative_to(folder)
        yield Fault(area="datasets", file=folder, reason=f"{name}: {problem.reason}")


def _build_read_check(area: str, read: Callable[[Path], object]) -> Callable[[Path], Iterator[Fault]]:
    """What finds the fault of a file that cannot be read, or is not what its digest says."""

    def find_read_faults(path: Path) -> Iterator[Fault]:
        try:
            read(path)
        except (ValueError, LookupError) as error:
            truncated = isinstance(error, json.JSONDecodeError | UnicodeDecodeError | LookupError)
            reason = "it is truncated, or no JSON" if truncated else str(error)
            yield Fault(area=area, file=path, reason=reason)

    return find_read_faults


def _read_digested(path: Path) -> dict[str, Any]:
    return verify_digest(path.read_bytes())


STATE = "best.json"
"""The file of a grid that names its best weights and their hashes (finetune.glue.jobs)."""


def _read_grid_runs(path: Path) -> Mapping[str, Mapping[str, Any]]:
    runs: Mapping[str, Mapping[str, Any]] = _read_digested(path)["runs"]
    return runs


def _weight_faults(path: Path) -> Iterator[Fault]:
    try:
        sha256 = _read_grid_runs(path.with_name(STATE))[path.stem]["sha256"]
    except (OSError, ValueError, LookupError):
        yield Fault(area="finetuned", file=path, reason=f"{STATE} does not name it")
        return
    if not files.has_sha256(path, sha256):
        yield Fault(area="finetuned", file=path, reason=f"its SHA-256 is not that in {STATE}")
