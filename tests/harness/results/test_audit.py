"""The audit: every damage is noticed, what is stale is named, and a repair leaves nothing wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import damage
import numpy as np
import pytest
from damage import World

import every_kind
from harness.cli import invoke
from harness.commands.audit import KINDS
from harness.core import files
from harness.core.documents import append_digest
from harness.results.audit import AREAS, audit
from harness.results.audit import KINDS as TABLE
from harness.storage.leases import locate_holder_file
from harness.storage.store import Store
from harness.storage.vectors import EmbeddingCache
from lease_worker import dead_lease
from stored_records import iter_records


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> World:
    with damage.fake_models():
        return damage.make(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def world(whole: World, tmp_path: Path) -> World:
    """A world of one's own to spoil."""
    shutil.copytree(whole.root, tmp_path / "world")
    return World(root=tmp_path / "world")


@pytest.mark.slow
def test_every_damage_is_noticed_and_no_score_changes() -> None:
    """`benchmarks/damage.py` does two hundred."""
    found = damage.simulate(30, seed=1)
    assert not any(found["missed"].values()), found["missed"]
    assert sum(found["counts"].values()) == 30


@pytest.mark.slow
def test_every_file_that_the_program_writes_is_of_a_kind(whole: World, tmp_path: Path) -> None:
    """A new kind of file needs a row in the table of the audit, and a maker in `every_kind`."""
    world = World(root=tmp_path / "world")
    damage.copy(whole, world)
    with damage.place_cache(world), damage.fake_models():
        every_kind.fill_folders(world.results, world.cache)
    found = audit(world.results, world.cache, kinds=KINDS)
    assert (found.unknown, found.faults) == ((), ())
    covered = {kind.area for kind in (*TABLE, *KINDS)} - {""}
    assert covered == {*AREAS} - {"left", "unknown"}
    assert {area for area, count in found.files.items() if count} == covered - {"failures", "leases"}


def test_a_file_of_no_kind_is_named_and_left(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    note = world.results / "records" / "note.txt"
    folder = world.cache / "mine"
    for path in (note, folder / "deep" / "file"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    code, found = asked(capsys, world, "--repair")
    assert (code, found["clean"], found["unknown"]) == (0, True, [str(note), str(folder)])
    assert found["checked"]["unknown"] == {"files": 2, "bytes": 8}
    assert invoke(["audit", "--results", str(world.results), "--cache", str(world.cache)]) == 0
    assert f"? {note}: no kind of file has such a name here." in capsys.readouterr().out
    assert note.exists()


def test_many_records_are_read_by_several_processes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path = world.files("records")[0]
    path.write_text(path.read_text().replace('"status"', '"statut"'))
    one = audit(world.results, world.cache)
    monkeypatch.setattr("harness.results.audit._MANY_RECORDS", 1)
    many = audit(world.results, world.cache)
    assert many == one
    assert [fault.file for fault in many.faults if fault.area == "records"] == [path]


def test_files_of_a_newer_record_are_left(world: World) -> None:
    path = world.files("records")[0]
    path.write_text(path.read_text().replace('"schema": 6', '"schema": 99'))
    audit(world.results, world.cache, repair=True)
    assert path.with_suffix(".examples.parquet").exists()


def test_a_damaged_data_set_is_emptied(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    path = max(world.files("prepared"), key=lambda file: file.stat().st_size)
    path.write_bytes(path.read_bytes()[:-1])
    code, found = asked(capsys, world, "--repair")
    assert (code, [(one["area"], one["repaired"]) for one in found["faults"]]) == (0, [("datasets", True)])
    assert not path.exists()
    assert asked(capsys, world)[1]["faults"] == []


def dead_process() -> int:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    return dead.pid


def stale_lease(world: World) -> Path:
    folder = world.results / "leases"
    folder.mkdir(exist_ok=True)
    return dead_lease(folder, "k")


def superseded_failure(world: World) -> Path:
    record = next(iter_records(Store(world.results)))
    path = next(world.results.rglob(f"{record.key}.json"))
    failure = record.model_copy(update={"status": "failed"})
    path.with_suffix(".failed.json").write_text(failure.to_json())
    return path.with_suffix(".failed.json")


def temporary_file(world: World) -> Path:
    path = world.cache / "vectors" / f".x.{files.get_host_name()}-{dead_process()}-00000000.tmp"
    path.write_text("half")
    return path


def vectors_not_finite(world: World) -> Path:
    path = next(world.cache.rglob("space.json"))
    known = {*path.parent.iterdir()}
    content = EmbeddingCache.serialize_shard(
        EmbeddingCache.hash_texts(["x"]), np.full((1, 4), np.nan, np.float32)
    )
    EmbeddingCache.write_shard(world.cache, json.loads(path.read_text()), content)
    (made,) = {*path.parent.iterdir()} - known
    return made


def space_of_another(world: World) -> Path:
    path = next(world.cache.rglob("space.json"))
    path.write_text(path.read_text().replace("mean", "cls"))
    return path


def cached_source(world: World) -> Path:
    path = world.cache / "source" / "x.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(append_digest({"search": 1}).replace("1", "2", 1))
    return path


def weights(world: World) -> Path:
    path = world.cache / "finetuned" / "grid" / "run.safetensors"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"weights")
    known = {"run": {"watched": 0.5, "sha256": "0" * 64}}
    path.with_name("best.json").write_text(append_digest({"runs": known}))
    return path


def units(world: World) -> Path:
    path = world.cache / "units" / "x.npz"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(files.pack_hashed_file("y.npz", b"of another name"))
    return path


def index_of_records(world: World) -> Path:
    path = world.cache / "records" / f"x-{'0' * 64}.sqlite"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"of another digest")
    return path


def orphan(world: World) -> Path:
    path = next(world.results.rglob("*.examples.parquet"))
    path.with_name(path.name.replace(".examples.parquet", ".json")).unlink()
    return path


def orphan_run(world: World) -> Path:
    """The record is replaced by one without a run."""
    path = world.files("runs")[0]
    path = path.with_name(path.name.replace(".run.parquet", ".json"))
    path.write_text(Store.parse(path).model_copy(update={"run": None}).to_json())
    return path.with_suffix(".run.parquet")


def no_record(world: World) -> Path:
    path = next(world.results.rglob("*.examples.parquet"))
    path = path.with_name(path.name.replace(".examples.parquet", ".json"))
    path.write_text('{"schema": 2, "key": "x"}')
    return path


@pytest.mark.parametrize(
    ("spoil", "area", "said"),
    [
        (stale_lease, "leases", "its process is dead"),
        (superseded_failure, "failures", "finished since"),
        (temporary_file, "left", "its process is dead"),
        (vectors_not_finite, "vectors", "not finite"),
        (space_of_another, "vectors", "another folder"),
        (cached_source, "source", "its digest says"),
        (weights, "finetuned", "not that in best.json"),
        (units, "units", "not what was written"),
        (index_of_records, "index", "not that in its name"),
        (orphan, "examples", "no intact record names it"),
        (orphan_run, "runs", "no intact record names it"),
        (no_record, "records", "it is not a record of schema 6"),
    ],
)
def test_what_is_wrong_or_stale_is_named_and_repaired(
    world: World, spoil: Callable[[World], Path], area: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = spoil(world)
    code, found = asked(capsys, world)
    faults = {fault["file"]: fault for fault in found["faults"]}
    assert (code, found["clean"], faults[str(path)]["area"]) == (1, False, area)
    assert said in faults[str(path)]["reason"]
    assert path.exists()
    code, found = asked(capsys, world, "--repair")
    assert (code, {fault["repaired"] for fault in found["faults"]}) == (0, {True})
    assert asked(capsys, world)[0] == 0
    assert not path.exists()


def asked(capsys: pytest.CaptureFixture[str], world: World, *more: str) -> tuple[int, dict[str, Any]]:
    places = ["--results", str(world.results), "--cache", str(world.cache)]
    code = invoke(["audit", *places, "--json", *more])
    return code, json.loads(capsys.readouterr().out)


def test_all_that_lies_there_is_counted(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = asked(capsys, world)
    assert (code, found["faults"], found["without_digest"]) == (0, [], 0)
    counts = {area: facts["files"] for area, facts in found["checked"].items() if facts["files"]}
    assert list(found["checked"]) == list(AREAS)
    assert counts == {
        "records": 4,
        "examples": 4,
        "runs": 4,
        "vectors": 6,
        "datasets": 2,
        "source": 2,
        "logs": 3,
    }
    for area, kind in (("records", "records"), ("examples", "examples"), ("runs", "runs")):
        size = sum(path.stat().st_size for path in world.files(kind))
        assert found["checked"][area]["bytes"] == size


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["audit", "--results", str(tmp_path / "reslts")]) == 2
    assert "There is no folder" in capsys.readouterr().err


def test_a_newer_record_is_named_and_left(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    path = world.files("records")[0]
    path.write_text(path.read_text().replace('"schema": 6', '"schema": 99'))
    code, found = asked(capsys, world, "--repair")
    assert (code, found["faults"][0]["repair"], path.exists()) == (1, "", True)


def test_an_audit_believes_no_remembered_hash(world: World) -> None:
    shard = world.files("shards")[0]
    before = shard.stat()
    known = files.hash_file(shard)
    shard.write_bytes(shard.read_bytes()[:-4] + b"lost")
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
    damage.put_back(world, shard, known)
    (fault,) = audit(world.results, world.cache).faults
    assert fault.file == shard


def test_it_says_what_it_did(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    path = stale_lease(world)
    places = ["--results", str(world.results), "--cache", str(world.cache)]
    assert invoke(["audit", *places]) == 1
    said = capsys.readouterr().out
    assert f"✗ {path}: its process is dead. --repair removes it." in said
    assert "1 fault. To repair: the same command with --repair." in said
    assert invoke(["audit", *places, "--repair"]) == 0
    assert "1 of 1 faults are repaired." in capsys.readouterr().out
    assert invoke(["audit", *places]) == 0
    assert capsys.readouterr().out.endswith("Nothing is wrong.\n")


def test_a_lease_whose_holder_may_live_elsewhere_is_named_and_left(world: World, capsys: Any) -> None:
    path = world.results / "leases" / "k.json"
    path.parent.mkdir(exist_ok=True)
    holder = locate_holder_file(dead_lease(path.parent, "k"))
    holder.write_text(holder.read_text().replace('"host": "', '"host": "another '))
    assert asked(capsys, world, "--repair")[1]["faults"] == []
    for one in (path, holder):
        os.utime(one, (time.time() - 7200,) * 2)
    code, found = asked(capsys, world, "--repair")
    (fault,) = found["faults"]
    assert (code, fault["file"], fault["repaired"], path.exists()) == (1, str(path), False, True)
    assert fault["reason"] == "nobody has renewed it for 120 minutes; remove it if no run is on"
    assert {*path.parent.iterdir()} == {path, holder}
