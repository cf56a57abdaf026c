"""A file of every kind that lies in a results folder or a cache, made by the code that makes it.

`fill_folders` adds to the folders of a small run what a run does not make; `READERS` has, by kind, what
readers say of its files: None where a reader refuses a file or makes it again.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import numpy as np
from safetensors.numpy import save_file

import fakes
from check_data import small_check
from fakes import artifact
from harness.checks.baselines import BASELINES, Baseline, BaselineModel, Reference, export_baseline
from harness.checks.outcome import CHECKS
from harness.core import files
from harness.core.documents import read_content_file, write_content_file
from harness.core.errors import HarnessError
from harness.core.keys import digest, serialize_canonical
from harness.executors.run_log import HEADERS, HEARTBEATS, iter_log_lines
from harness.fits.stored import FITS
from harness.plan.models import Verdict
from harness.proxy.document import PROXIES, Proxy
from harness.results import index as record_index
from harness.results.cost.duration import Speed
from harness.results.cost.encoding import note_speed, read_speeds
from harness.results.notes import NOTES, ComputeNote, CountedPart
from harness.results.record_units import ScoredRecord
from harness.search.plaid import MANIFEST, find_index_problem
from harness.storage.imported import Imported
from harness.storage.store import Store
from harness.training.model_store import ModelStore
from harness.watch.curves import CURVES
from harness.watch.grids import GRIDS
from harness.watch.state import WATCHES
from judged_data import build_fits, build_small_grid, compare_two_runs, small_watch
from leaderboard.data.settings import SiteSettings
from leaderboard.data.snapshot import open_index
from proxies import put as put_import
from proxies import suite
from stored_records import iter_records

LINEAGES = {seed: fakes.lineage(seed=seed) for seed in (1, 2)}
CLUSTERS = {name: {"set": name} for name in ("first", "second")}
ERRORS = dict.fromkeys(
    ("rmse", "mae", "half_width", "level", "kendall", "spearman", "plain_rmse", "deviation"), 0.5
)


def fill_folders(results: Path, cache: Path) -> None:
    """Add two files of every kind to folders in which there are records of a run."""
    _put_documents(results)
    for at, score in enumerate((0.5, 0.25)):
        place = results / "imported" / f"source-{at}"
        with mock.patch.object(Imported, "resolve_import_folder", lambda *_, place=place: place):
            put_import(results, suite(2), np.full((3, 2), score))
    models = ModelStore(results)
    for seed, lineage in LINEAGES.items():
        work = models.start_training(lineage.key, name="tiny", lineage=lineage, steps=4)
        model = work / "model"
        model.mkdir()
        (model / "config.json").write_text('{"model_type": "bert"}')
        save_file({"w": np.full((2, 2), seed, np.float32)}, model / "model.safetensors")
        (work / "log.jsonl").write_text('{"step": 1, "loss": 1.0}\n')
        models.put(model, fakes.document(model, lineage), f"tiny-{lineage.key[:12]}")
    for seed in (3, 4):
        other = fakes.lineage(seed=seed)
        models.start_training(other.key, name="tiny", lineage=other, steps=4)
        models.set_micro_batch(other.key, seed)
    _fill_cache(results, cache)


def _put_documents(results: Path) -> None:
    records = [*iter_records(Store(results))]
    for at, name in enumerate(("first", "second")):
        record = records[at]
        slug = artifact(results, key=record.model.artifact).slug
        run = BaselineModel(
            model="m",
            source="m",
            artifact=record.model.artifact,
            folder=slug,
            keys={record.task.name: (record.key,)},
        )
        baseline = Baseline(name=name, when="2026", suites=("s",), seeds=1 + at, options={}, runs=(run,))
        BASELINES.write_document(results, name, baseline)
        export_baseline(results, name, results.parent / f"{name}.zip")
        replace(small_check(), id=name, when=f"2026-01-0{at + 1}T00:00:00+00:00").write(results)
        PROXIES.write_document(results, name, build_proxy(name, intercept=at / 10))
        WATCHES.write_document(results, name, small_watch(name))
        NOTES.write_document(results, name, build_note(name, tokens=1e9 + at))
        CURVES.write_document(results, name, compare_two_runs().model_copy(update={"name": name}))
        GRIDS.write_document(results, name, build_small_grid().model_copy(update={"name": name}))
        FITS.write_document(results, name, build_fits()[at].model_copy(update={"name": name}))


def build_note(weights: str, **stated: Any) -> ComputeNote:
    """What is stated of the pretraining of a model of 2 million parameters."""
    counted = CountedPart(parameters=2_000_000, without_embeddings=1_500_000, operations=3e9, token_flops=2e7)
    given = {"model": "m", "artifact": weights, "when": "2026-01-01", "length": 512, **stated}
    return ComputeNote(weights=weights, counted=counted, **given)


def build_proxy(name: str, intercept: float) -> Proxy:
    """A proxy of one task."""
    task = {"task": "A", "splits": ["test"], "subsets": ["default"], "coefficient": 1, "low": 0, "high": 1}
    return Proxy.model_validate(
        {
            "name": name,
            "created": "",
            "chosen": "greedy",
            "target": {"suite": "mteb", "title": "MTEB", "columns": 41},
            "penalty": 0.0,
            "intercept": intercept,
            "tasks": [{**task, "minutes": None}],
            "error": ERRORS,
            "cost": dict.fromkeys(("minutes", "budget", "whole", "reference", "nearest", "spread")),
            "fitted": {"models": 20, "families": 10, "other_data": 0, "low": 0.1, "high": 0.9},
            "imported": {"source": "s0", "id": "x", "when": "2026-01-01"},
        }
    )


def _fill_cache(results: Path, cache: Path) -> None:
    from finetune.cde.clusters import FILE, PairClusters

    for at, (name, identity) in enumerate(CLUSTERS.items()):
        Reference.resolve(str(results.parent / f"{name}.zip"), results)
        note_speed(
            cache,
            Speed(
                model=name, parameters=7, device=("cpu", 1), dtype="float32", tokens=2000, seconds=1.0 + at
            ),
        )
        write_content_file(
            cache / "verdicts" / f"{digest(name)}.json",
            {"schema": 1, "folder": name, **asdict(Verdict(special_tokens=at))},
        )
        files.replace(
            cache / "adapters" / digest(name) / name / "peft-adapter" / "adapter_config.json", b"{}"
        )
        grid = cache / "finetuned" / name
        weights = f"weights of {name}".encode()
        files.replace(grid / f"{name}.safetensors", weights)
        run = {"watched": 0.5 + at, "sha256": files.hash_file(grid / f"{name}.safetensors")}
        write_content_file(grid / "best.json", {"runs": {name: run}})
        place = cache / "clusters" / digest(identity)
        place.mkdir(parents=True)
        numbers = np.arange(9, dtype=np.int32) + at
        clusters = PairClusters(
            numbers=numbers, similarities=numbers.astype(np.float32), tour=(1, at), facts={"pairs": 9}
        )
        clusters.write_clusters(place / FILE, identity)
        index = cache / "plaid" / digest({"name": name})
        files.replace(index / "codes", name.encode() * 9)
        manifest = {"identity": {"name": name}, "files": {"codes": files.hash_file(index / "codes")}}
        files.replace(index / MANIFEST, serialize_canonical(manifest).encode())
    for record in iter_records(Store(results)):
        slug = artifact(results, key=record.model.artifact).slug
        ScoredRecord.load_record(Store(results), slug, record.task.name, record.key, parts=(), cache=cache)
    for host in ("here", "elsewhere"):
        with (
            mock.patch.object(record_index, "LEAST_ROWS", 1),
            mock.patch.object(record_index, "SETTLED_NS", 0),
            mock.patch.object(files, "get_host_name", lambda host=host: host),
        ):
            record_index.RecordIndex(results, cache)
    _open_site(results, cache)


def _open_site(results: Path, cache: Path) -> Any:
    index = open_index(SiteSettings(results=(results,), snapshots=cache / "site"))
    index.refresh()
    return index


# What readers say


def _read_files(root: Path, pattern: str, read: Callable[[Path], Any]) -> dict[str, Any]:
    """What a reader says of each file; None where it refuses it."""
    said: dict[str, Any] = {}
    for path in sorted(root.glob(pattern)):
        said[path.relative_to(root).as_posix()] = None
        with contextlib.suppress(HarnessError, ValueError, LookupError, OSError):
            said[path.relative_to(root).as_posix()] = read(path)
    return said


def _read_import(path: Path) -> Any:
    imported = Imported.read_import(path.parent)
    assert imported is not None
    tables = (imported.load_table("entries"), imported.load_table("files"), imported.load_table("scores"))
    return imported.stamp, [table.to_pylist() for table in tables]


def _read_events(results: Path) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for log in sorted(results.glob("runs/*/jobs.jsonl")):
        for line in filter(None, iter_log_lines(log)):
            with contextlib.suppress(ValueError):  # it was cut off
                said[f"{log.parent.name} {line!r}"] = json.loads(line)
    return said


def _read_clusters(path: Path) -> Any:
    from finetune.cde.clusters import PairClusters

    identity = next(one for one in CLUSTERS.values() if digest(one) == path.parent.name)
    clusters = PairClusters.read_clusters(path, identity)
    return clusters and (
        clusters.numbers.tolist(),
        clusters.similarities.tolist(),
        clusters.tour,
        clusters.facts,
    )


def _read_weights(path: Path) -> Any:
    runs = read_content_file(path.with_name("best.json"))["runs"]
    return runs[path.stem] if files.has_sha256(path, runs[path.stem]["sha256"]) else None


def _read_site(results: Path, cache: Path) -> dict[str, Any]:
    snapshot = _open_site(results, cache).snapshot
    rows = duckdb.execute("SELECT * FROM read_parquet(?)", [snapshot.list_table_files("results")]).fetchall()
    return {"results": sorted(map(repr, rows))}


def _read_baseline_zip(results: Path) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for name in CLUSTERS:
        said[name] = None
        with contextlib.suppress(HarnessError):
            reference = Reference.resolve(str(results.parent / f"{name}.zip"), results)
            assert reference.baseline is not None
            (run,) = reference.baseline.runs
            ((task, (key,)),) = run.keys.items()
            record = Store(reference.results or results).get(run.folder, task, key)
            said[name] = record and (asdict(reference.baseline), record.main_score)
    return said


READERS: Mapping[str, Callable[[Path, Path], dict[str, Any]]] = {
    "baselines": lambda results, _: _read_files(results, "baselines/*.json", BASELINES.read_document_file),
    "checks": lambda results, _: _read_files(results, "checks/*.json", CHECKS.read_document_file),
    "proxies": lambda results, _: _read_files(results, "proxies/*.json", PROXIES.read_document_file),
    "watches": lambda results, _: _read_files(results, "watches/*.json", WATCHES.read_document_file),
    "curves": lambda results, _: _read_files(results, "curves/*.json", CURVES.read_document_file),
    "run-grids": lambda results, _: _read_files(results, "grids/*.json", GRIDS.read_document_file),
    "fits": lambda results, _: _read_files(results, "fits/*.json", FITS.read_document_file),
    "notes": lambda results, _: _read_files(results, "notes/*.json", NOTES.read_document_file),
    "imports": lambda results, _: _read_files(results, "imported/*/import.json", _read_import),
    "models": lambda results, cache: {
        seed: found and found[1]
        for seed, lineage in LINEAGES.items()
        for found in [ModelStore(results).find(lineage.key)]
    },
    "trainings": lambda results, _: {
        seed: ModelStore(results).read_micro_batch(fakes.lineage(seed=seed).key) for seed in (3, 4)
    },
    "heads": lambda results, _: _read_files(results, "runs/*/run.json", HEADERS.read_document_file),
    "heartbeats": lambda results, _: _read_files(
        results, "runs/*/status.json", HEARTBEATS.read_document_file
    ),
    "events": lambda results, _: _read_events(results),
    "speeds": lambda _, cache: {one.model: one for one in read_speeds(cache)},
    "verdicts": lambda _, cache: _read_files(cache, "verdicts/*.json", read_content_file),
    "counts": lambda _, cache: _read_files(cache, "source/*.json", read_content_file),
    "grids": lambda _, cache: _read_files(cache, "finetuned/*/*.safetensors", _read_weights),
    "weights": lambda _, cache: _read_files(cache, "finetuned/*/*.safetensors", _read_weights),
    "units": lambda _, cache: _read_files(cache, "units/*.npz", files.unpack_hashed_file),
    "lists": lambda _, cache: _read_files(
        cache, "records/*.sqlite", lambda path: bytes(record_index.read_index_file(path))
    ),
    "clusters": lambda _, cache: _read_files(cache, "clusters/*/clusters.parquet", _read_clusters),
    "indexes": lambda _, cache: _read_files(
        cache, "plaid/*", lambda path: not find_index_problem(path, None) or None
    ),
    "unpacked": lambda results, _: _read_baseline_zip(results),
    "site": _read_site,
}
