"""Named baselines, their files with all records, and the Reference of a candidate: a baseline or a model."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from harness.checks.outcome import Power
from harness.core import files
from harness.core.arguments import collect_options
from harness.core.documents import DocumentFolder, DocumentKind, FileName
from harness.core.encoding import BM25, is_bm25
from harness.core.errors import RecordError, UsageError, explain_unknown
from harness.core.terminal import shorten_names
from harness.encoder import backbones
from harness.plan.catalog import OWN
from harness.plan.request import Request
from harness.storage.store import Store

SCHEMA = 6
"""The version of a baseline's file; a newer one is refused. Version 4 added the digest, 5 has no errors,
6 added the anchor."""


def _migrate_glue_options(baseline: dict[str, Any]) -> dict[str, Any]:
    """A baseline of schema 1 in the form of schema 2: settings of GLUE become entries of `changes`."""
    options = dict(baseline.get("asked", {}))
    mnli, seeds = options.pop("mnli", None), options.pop("fresh_seeds", None)
    former = [
        *([f"mnli={mnli}"] if mnli else []),
        *(["transfer=false"] if options.pop("no_transfer", False) else []),
        *([f"fresh_seeds={seeds}"] if seeds is not None else []),
    ]
    return {**baseline, "asked": {**options, "changes": former}}


def _migrate_option_names(baseline: dict[str, Any]) -> dict[str, Any]:
    """A baseline of schema 2 in the form of schema 3: `asked` becomes `options`."""
    kept = {name: value for name, value in baseline.items() if name != "asked"}
    return {**kept, "options": baseline.get("asked", {})}


@dataclass(frozen=True, kw_only=True)
class BaselineModel:
    """One model of a baseline; all models after the first are repeats of it.

    Attributes:
        model: The model's name, fit for a table.
        source: The model as a user typed it.
        artifact: The ArtifactKey.
        folder: The model's folder among the records (`Artifact.slug`).
        revision: The pinned commit of a hub model.
        keys: The EvaluationKey of each seed, by task.
    """

    model: str
    source: str
    artifact: str
    folder: FileName
    revision: str | None = None
    keys: Mapping[str, tuple[FileName, ...]]


@dataclass(frozen=True, kw_only=True)
class Anchor:
    """The baseline that begins a chain of them.

    Attributes:
        name: Its name.
        when: ISO time in UTC at which it was set.
        runs: Its models.
        baselines: The number of baselines of the chain since then.
    """

    name: str
    when: str
    runs: tuple[BaselineModel, ...]
    baselines: Annotated[int, Field(strict=True, gt=0)] = 1


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A baseline as it was set.

    Attributes:
        name: The name that a user types.
        when: ISO time in UTC.
        suites: The suites as they were typed.
        seeds: The number of seeds of each model.
        options: The options of the evaluation by name, as the command line has them.
        runs: The models, at least one.
        power: What a check against it can see under the default policy; None of baselines set before.
        anchor: The baseline that a candidate is compared with besides; None of the first of a chain.
    """

    name: str
    when: str
    suites: Annotated[tuple[str, ...], Field(min_length=1)]
    seeds: Annotated[int, Field(strict=True, gt=0)]
    options: Mapping[str, Any]
    runs: Annotated[tuple[BaselineModel, ...], Field(min_length=1)]
    power: Power | None = None
    anchor: Anchor | None = None

    __pydantic_config__ = ConfigDict(extra="forbid")

    @property
    def artifacts(self) -> tuple[str, ...]:
        """The ArtifactKeys of its models."""
        return tuple(dict.fromkeys(run.artifact for run in self.runs))

    def to_json(self) -> dict[str, Any]:
        """The baseline as plain values (docs/json.md)."""
        return {"schema": SCHEMA, **asdict(self)}


ADVICE = (
    "`harness baseline list` shows the baselines that are set; "
    "`harness baseline set NAME --model MODEL --suite SUITE` sets one."
)
"""Where baselines come from, for a name that none has."""

BASELINES = DocumentFolder(
    kind=DocumentKind(
        name="baseline",
        type=Baseline,
        schema=SCHEMA,
        migrations={
            1: _migrate_glue_options,
            2: _migrate_option_names,
            3: lambda baseline: baseline,
            4: lambda baseline: {name: value for name, value in baseline.items() if name != "errors"},
            # What a check could see was by the automatic margins of then.
            5: lambda baseline: {**baseline, "power": None},
        },
        hint="Set it again: harness baseline set NAME --replace.",
        digest_since=4,
    ),
    folder="baselines",
    then=ADVICE,
)


def require_new_name(results: Path, name: str, *, replace: bool) -> None:
    """Refuse a name that no baseline can have, or that is taken.

    Args:
        results: The results folder.
        name: The name.
        replace: Whether a baseline of this name may be replaced.

    Raises:
        UsageError: It is not fit for a file, is that of a model, or is taken and not to be replaced.
    """
    BASELINES.check_name(name)
    if _is_model(name):
        raise UsageError(
            f"{name} is a model: a baseline of this name would hide it.", hint=f"Use e.g. {name}-release."
        )
    if not replace and name in BASELINES.list_names(results):
        raise _build_duplicate_error(name)


def write_baseline(results: Path, baseline: Baseline, *, replace: bool) -> Path:
    """Write a baseline under its name.

    Args:
        results: The results folder.
        baseline: The baseline.
        replace: Whether a baseline of this name may be replaced.

    Returns:
        The path of its file.

    Raises:
        UsageError: The name is unfit, or taken and not to be replaced.
        StoreError: The folder cannot be written.
    """
    require_new_name(results, baseline.name, replace=replace)
    path = BASELINES.locate_document(results, baseline.name)
    # Another process may have taken the name since the test above: only one of them creates the file.
    content = BASELINES.kind.serialize_document(baseline).encode()
    if replace:
        files.replace(path, content)
    elif not files.write_once(path, content):
        raise _build_duplicate_error(baseline.name)
    return path


def find_anchor(
    results: Path, name: str, runs: Sequence[BaselineModel], anchor: str | None = None
) -> Anchor | None:
    """The anchor of a new baseline; None if it begins a chain.

    Args:
        results: The results folder.
        name: The name of the new baseline; of an older one of this name the chain goes on.
        runs: The models of the new baseline.
        anchor: The name of the baseline to be the anchor; the new one's own name begins a chain.

    Raises:
        UsageError: No baseline has the name of the anchor.
    """
    if anchor == name:
        return None
    former: Baseline | None = None
    # None has the name, or one that cannot be read, which is replaced, too.
    with contextlib.suppress(UsageError, RecordError):
        former = BASELINES.find_document(results, name)
    # The same models again are no step of a chain.
    alike = former is not None and former.artifacts == tuple(dict.fromkeys(run.artifact for run in runs))
    first = None if alike else former
    chain = former.anchor if former is not None else None
    if anchor is not None:
        first = BASELINES.find_document(results, anchor)
        chain = chain if chain is not None and chain.runs == first.runs else None
    if chain is not None:
        return chain if alike else dataclasses.replace(chain, baselines=chain.baselines + 1)
    return Anchor(name=first.name, when=first.when, runs=first.runs) if first is not None else None


def _is_model(text: str) -> bool:
    """Whether a text is a name in the catalog of models."""
    return is_bm25(text) or backbones.find_catalog_model(text) is not None


def _build_duplicate_error(name: str) -> UsageError:
    return UsageError(
        f"A baseline {name!r} already exists.",
        hint=f"Add --replace, or choose another name; `harness baseline show {name}` shows it.",
    )


EXPORT = ".zip"
"""How the file of a baseline with all of its records ends."""

_CONTENT = "content.json"
"""The file in it that names the baseline and has the SHA-256 of every other one."""

# The zip format counts years from 1980.
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time of each file in it, so that the same records give the same bytes."""


@dataclass(frozen=True, kw_only=True)
class _Content:
    """What `content.json` holds: the baseline's name, and the SHA-256 of every other file by its place."""

    baseline: str
    files: Mapping[str, str]


_CONTENTS = DocumentKind(
    name="list of a baseline's files",
    type=_Content,
    schema=2,
    migrations={1: lambda content: content},  # schema 2 added the digest
    digest_since=2,
)


_DAMAGED = (
    zipfile.BadZipFile, zlib.error, RuntimeError, EOFError,
    ValueError, KeyError, TypeError, AttributeError, UsageError,
)  # fmt: skip
"""Errors of reading a file that is damaged, or of another kind."""


def export_baseline(results: Path, name: str, path: Path) -> dict[str, Any]:
    """Write a baseline with its records as one file, which `--baseline` takes on any machine.

    Args:
        results: The results folder.
        name: The name of the baseline.
        path: The file to write, which ends in .zip.

    Returns:
        The file's name as `file`, its number of `records`, its `bytes`, and its `sha256`, which is the same
        for the same records.

    Raises:
        UsageError: No baseline has this name, a record of it is gone, or the file does not end in .zip.
        StoreError: The file cannot be written.
    """
    if path.suffix != EXPORT:
        raise UsageError(f"{path} does not end in {EXPORT}.", hint=f"Use e.g. {name}{EXPORT}.")
    baseline = BASELINES.find_document(results, name)
    text = BASELINES.kind.serialize_document(baseline)
    parts = {f.relative_to(results).as_posix(): f for f in _iter_record_files(Store(results), baseline)}
    files.require_writable(path.absolute().parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with zipfile.ZipFile(temporary, "w") as archive:
            # Sorted: the order of entries is part of the bytes, and of the SHA-256 that is shown.
            contents = {f"{BASELINES.folder}/{name}.json": text.encode()}
            contents |= {place: part.read_bytes() for place, part in sorted(parts.items())}
            sums = {place: hashlib.sha256(content).hexdigest() for place, content in contents.items()}
            contents[_CONTENT] = _CONTENTS.serialize_document(_Content(baseline=name, files=sums)).encode()
            for place, content in contents.items():
                archive.writestr(zipfile.ZipInfo(place, _EPOCH), content, zipfile.ZIP_DEFLATED)
        files.move(temporary, path)
    except OSError as error:
        raise files.write_error(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)
    records = sum(place.endswith(".json") for place in parts)
    size, sha256 = path.stat().st_size, files.hash_file(path)
    return {"file": str(path), "records": records, "bytes": size, "sha256": sha256}


def _iter_record_files(store: Store, baseline: Baseline) -> Iterator[Path]:
    """The files of a baseline and its anchor: the record of every key, and its per-example file."""
    gone = []
    for run in (*baseline.runs, *(baseline.anchor.runs if baseline.anchor else ())):
        for task, keys in run.keys.items():
            for key in keys:
                record = store.get(run.folder, task, key)
                if record is None:
                    gone += [task] if run in baseline.runs else []
                    continue
                yield store.locate_record(run.folder, task, key)
                examples = store.find_part_file(record, run.folder)
                if examples is not None:
                    yield examples
    if gone:
        raise UsageError(
            f"Records of the baseline {baseline.name} are not in {store.root}: {shorten_names(gone)}.",
            hint=f"harness baseline set {baseline.name} --replace measures them.",
        )


def _unpack_baseline(path: Path, cache: Path | None) -> Path:
    """The baseline's file among its records, unpacked in the cache once for each content.

    Raises:
        RecordError: The file is damaged, or of a newer version.
    """
    # The folder is named by the content, so that a changed file is unpacked again beside the old one.
    home = files.resolve_cache_folder(cache) / "baselines" / files.hash_file(path)[:32]
    try:
        if not (home / _CONTENT).is_file():
            _unpack(path, home)
        name = _CONTENTS.read_document_file(home / _CONTENT).baseline
        BASELINES.check_name(name)
    except _DAMAGED as error:
        raise RecordError(
            f"{path} is not a baseline with its records, or is damaged: {error}",
            hint="Create it again: harness baseline export NAME FILE.zip",
        ) from error
    return home / BASELINES.folder / f"{name}.json"


LARGEST_PART = {".json": 16 * 2**20, ".parquet": 256 * 2**20}
"""The most bytes of a document of a baseline's file, and of its scores of single examples."""


def _require_sizes(archive: zipfile.ZipFile) -> None:
    """Refuse members that would fill the memory: a few kilobytes unpack to gigabytes of blanks."""
    for member in archive.infolist():
        most = LARGEST_PART.get(PurePosixPath(member.filename).suffix, 0)
        if member.file_size > most:
            name, size = member.filename[:200], member.file_size
            raise ValueError(f"its {name!r} unpacks to {size:,} bytes, and may have {most:,}.")


def _unpack(path: Path, home: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        _require_sizes(archive)
        content = archive.read(_CONTENT)
        sums = _CONTENTS.parse(content, where=path).files
        if {*archive.namelist()} != {*sums, _CONTENT}:
            raise ValueError("its files are not those that it lists.")
        for place, sha256 in sums.items():
            steps = PurePosixPath(place).parts
            # The file may come from anybody: an entry must not be written outside of the two folders, nor
            # on Windows, whose paths have backslashes.
            if not steps or steps[0] not in ("records", BASELINES.folder) or ".." in steps or "\\" in place:
                raise ValueError(f"it holds a file {place!r}.")
            part = archive.read(place)
            if hashlib.sha256(part).hexdigest() != sha256:
                raise ValueError(f"its {place} has another SHA-256.")
            files.replace(home / place, part)
    # Last, as its presence says that all other files are there: an interrupted unpacking begins again.
    files.replace(home / _CONTENT, content)


def find_unpacked_problem(home: Path) -> str:
    """What is wrong with an unpacked baseline in the cache, every file read; empty if nothing."""
    try:
        sums = _CONTENTS.read_document_file(home / _CONTENT).files
        broken = [place for place, sha256 in sums.items() if not files.has_sha256(home / place, sha256)]
    except (OSError, RecordError):
        return "it is incomplete"
    return f"{broken[0]} is not what was unpacked" if broken else ""


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The baseline or model that a candidate is compared with.

    Attributes:
        name: The text that a user typed.
        baseline: The baseline; None for a model.
        results: The results folder of the baseline's records, where it is another folder.
    """

    name: str
    baseline: Baseline | None = None
    results: Path | None = None

    @staticmethod
    def resolve(text: str, results: Path | None, cache: Path | None = None) -> Reference:
        """The baseline or the model that a text names.

        Raises:
            UsageError: No baseline or model has this name.
            RecordError: A baseline's file cannot be read.
        """
        path, home = files.resolve_home_path(text), files.resolve_results_folder(results)
        if path.suffix in (".json", EXPORT) and path.is_file():
            file = path if path.suffix == ".json" else _unpack_baseline(path, cache)
            # It is in <results>/baselines, so its records may be in <results>/records.
            beside = file.absolute().parent.parent
            baseline = _require_valid_options(BASELINES.read_document_file(file))
            where = beside if (beside / "records").is_dir() else None
            return Reference(name=text, baseline=baseline, results=where)
        # Baselines go first: set_baseline refuses the names of catalog models, so that only a folder can be
        # hidden.
        if path.suffix != ".json" and text in BASELINES.list_names(home):
            return Reference(name=text, baseline=_require_valid_options(BASELINES.find_document(home, text)))
        if path.suffix == ".json" or (path.suffix == EXPORT and not path.is_dir()):
            raise UsageError(f"The file {text} does not exist.", hint=ADVICE)
        if "/" not in text and "=" not in text and not _is_model(text) and not path.is_dir():
            valid_names = [*BASELINES.list_names(home), *backbones.list_catalog_models(), BM25]
            raise explain_unknown("baseline or model", text, valid_names, then=ADVICE)
        return Reference(name=text)


def _require_valid_options(baseline: Baseline) -> Baseline:
    """The baseline, if each of its options is one of an evaluation: another one would be ignored."""
    valid_names = {argument.parameter for argument in collect_options(Request).values()} | {"prompt_file"}
    for name in baseline.options:
        if name not in valid_names:
            then = f"Set it again: harness baseline set {baseline.name} --replace."
            raise explain_unknown(f"option of the baseline {baseline.name}", name, valid_names, then=then)
    # Baselines of earlier versions name no evaluation: it was by the models' own settings.
    return dataclasses.replace(baseline, options={"evaluation": OWN, **baseline.options})
