"""The audit: every damage is noticed, what is stale is named, and a repair leaves nothing wrong."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
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
from harness.core.keys import Lineage, ParentPart, SweepPart, digest
from harness.core.types import build_artifact_slug
from harness.results.audit import AREAS, audit, find_contradictions, find_disagreements
from harness.results.audit import KINDS as TABLE
from harness.storage.record import RECORDS, SCHEMA, Record
from harness.storage.remote_and_leases import locate_holder_file
from harness.storage.store import Store
from harness.storage.vectors import EmbeddingCache
from lease_worker import dead_lease
from site_data import Import, put_imports
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


@pytest.mark.parametrize("how", ["table", "stamp", "no table", "no stamp"])
def test_an_import_that_is_truncated_is_said(world: World, how: str) -> None:
    put_imports(world.results, [Import(model="org/m", scores={"NanoSciFactRetrieval": 0.5}, rows=[{"x": 1}])])
    (stamp,) = (world.results / "imported").glob("*/import.json")
    file = stamp if "stamp" in how else next(iter(sorted(stamp.parent.glob("scores-*.parquet"))))
    if how.startswith("no"):
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-20])
    faults = [one for one in audit(world.results, world.cache, kinds=KINDS).faults if one.area == "imports"]
    assert {one.file.parent for one in faults} == {stamp.parent}
    assert audit(world.results, world.cache, kinds=KINDS, repair=True).clean
    assert audit(world.results, world.cache, kinds=KINDS).clean


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


# `audit --strict`: what no run writes is named, and nothing that a run wrote


REFERENCE = Path(__file__).parents[3] / "results" / "reference"
ARTIFACT = "ab" * 32


def made(**changes: Any) -> dict[str, Any]:
    """A record without a digest; its key is that of its identity unless said otherwise."""
    record: dict[str, Any] = {
        "schema": 2,
        "purpose": "final",
        "status": "done",
        "model": {"name": "org/tiny", "source": "org/tiny", "artifact": ARTIFACT, "weights": "cd" * 32},
        "task": {"name": "STS12", "type": "STS", "metric": "cosine_spearman"},
        "identity": {"artifact": ARTIFACT, "task": "STS12", "seed": 42},
        "main_score": 0.5,
        "scores": {"test": {"default": {"main_score": 0.5, "cosine_spearman": 0.5}}},
        **changes,
    }
    return {"key": digest(record["identity"]), **record}


def named(*, model: str = "org/tiny", task: str = "STS12") -> dict[str, Any]:
    base = made(identity={"artifact": ARTIFACT, "task": task, "seed": 42})
    return {**base, "model": {**base["model"], "name": model}, "task": {**base["task"], "name": task}}


def raw(**changes: str) -> str:
    """A record's text with parts replaced that no Python value gives."""
    text = json.dumps(made())
    for old, new in changes.items():
        start = text.index(f'"{old}": ') + len(old) + 4
        end = min(i for i in (text.find(",", start), text.find("}", start)) if i > 0)
        text = text[:start] + new + text[end:]
    return text


def said(**provenance: Any) -> dict[str, Any]:
    return made(provenance=provenance)


PARENT = ParentPart(name="tiny", artifact="a" * 64)
LINEAGE = Lineage(recipe="simcse", settings={}, parents=(PARENT,), data=(), seed=1)


def of_recipe(**changes: Any) -> dict[str, Any]:
    """A record of a model that a recipe made."""
    lineage = LINEAGE.model_copy(update=changes)
    base = made(identity={"artifact": lineage.key, "task": "STS12", "seed": 42}, schema=SCHEMA)
    body = {**base, "model": {**base["model"], "artifact": lineage.key}, "lineage": lineage.model_dump()}
    found: dict[str, Any] = json.loads(Record.model_validate(body).to_json())
    return found


def of_sweep(**changes: Any) -> dict[str, Any]:
    """A record of the best of a sweep of two."""
    curve = [
        {"value": value, "artifact": letter * 64, "scores": {"SciFact": value / 4}, "mean": value / 4}
        for letter, value in (("e", 1.0), ("f", 2.0))
    ]
    fields = {
        "setting": "scale",
        "values": (1.0, 2.0),
        "tasks": {"SciFact": {}},
        "chosen": 2.0,
        "curve": curve,
    }
    return of_recipe(sweep=SweepPart(**{**fields, "curve": curve, **changes}))


def of_grid(**changes: Any) -> dict[str, Any]:
    """A record of the best of a sweep of two settings."""
    values = [{"scale": 1.0, "epochs": epochs} for epochs in (1, 2)]
    curve = [{"value": one, "artifact": "e" * 64, "scores": {"SciFact": 0.5}, "mean": 0.5} for one in values]
    both = {"setting": "scale, epochs", "values": values, "chosen": values[0], "curve": curve}
    return of_sweep(**{**both, **changes})


@pytest.mark.parametrize("changes", [{"setting": "scale, steps"}, {"values": (1.0, 2.0)}, {"chosen": 1.0}])
def test_members_of_a_sweep_of_several_settings_have_a_value_of_each(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a member has not a value of each setting"):
        of_grid(**changes)


def of_another_seed() -> str:
    """The record of a model with the lineage of another one."""
    found = of_recipe()
    other = {**found, "lineage": {**found["lineage"], "seed": 2}}
    return Record.model_validate({k: v for k, v in other.items() if k != "digest"}).to_json()


def scored(main: float, *subsets: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return made(main_score=main, scores={"test": dict(zip("abc", subsets, strict=False))}, **changes)


NO_MEMBER = {"value": 3.0, "artifact": "f" * 64, "scores": {"SciFact": 0.5}, "mean": 0.5}
MRPC = {"artifact": ARTIFACT, "task": "MRPC"}
GLUE = {"name": "MRPC", "type": "PairClassification", "metric": "accuracy"}

WRONG: dict[str, tuple[dict[str, Any] | str, str]] = {
    "main score above its metric": (
        scored(0.9, {"main_score": 0.9, "cosine_spearman": 0.5}),
        "a `main_score` is 0.9, but its cosine_spearman is 0.5",
    ),
    "main score above its parts": (
        scored(0.9, {"main_score": 0.5}, {"main_score": 0.7}),
        "the mean over splits and subsets is 0.6",
    ),
    "main score without metrics": (scored(0.9), "which no mean of its metrics is"),
    "main score above every metric": (
        scored(0.9, {"accuracy": 0.8, "f1": 0.85}, task=GLUE, identity=MRPC),
        "which no mean of its metrics is",
    ),
    "above 1": (scored(1.5, {"main_score": 1.5}), "a score is 1.5"),
    "below -1": (scored(-80, {"main_score": -80}), "a score is -80"),
    "lineage of another": (of_another_seed(), "does not follow from its lineage"),
    "long own data": (of_recipe(own_data="x" * 300), "longer than 200 bytes"),
    "long own data of a parent": (
        of_recipe(parents=(PARENT.model_copy(update={"own_data": "x" * 300}),)),
        "longer than 200 bytes",
    ),
    "a sweep's member of no value": (of_sweep(curve=[NO_MEMBER]), "a value that the sweep does not have"),
    "a sweep without its choice": (of_sweep(chosen=None, curve=()), "of no member"),
    "a sweep by other tasks": (of_sweep(tasks={"STS12": {}}), "other tasks than the sweep"),
    "a long name in a sweep": (of_sweep(setting="x" * 300), "longer than 200 bytes"),
    "NaN": (raw(seed="NaN"), "NaN"),
    "Infinity": (raw(seed="-Infinity"), "-Infinity"),
    "overflow": (raw(main_score="1e999"), "its main score is inf"),
    "NaN as text": (raw(main_score='"nan"'), "a score is nan"),
    "integer": (raw(seed=str(2**63)), "not within"),
    "deep": (raw(seed="[" * 40 + "]" * 40), "within one another"),
    "inner duplicate": (raw(seed='{"a": 1, "a": 2}'), "'a' stands twice"),
    "NUL": (raw(metric='"a\\u0000"'), "cannot be stored"),
    "surrogate in a name": (raw(seed='{"\\udfff": 1}'), "cannot be stored"),
    "bare artifact": (raw(artifact='"*"'), "64 digits"),
    "another artifact": (raw(artifact='"' + "12" * 32 + '"'), "another artifact"),
    "another task": ({**made(), "task": named(task="x")["task"]}, "another task"),
    "long model": (named(model="x" * 5000), "longer than 200 bytes"),
    "long task": (named(task="é" * 101), "longer than 200 bytes"),
    "no name": (named(model=" "), "no name"),
    "escape sequence": (named(model="a\x1b[2J"), "cannot be seen"),
    "turned around": (named(task="a\u202eb"), "cannot be seen"),
    "line break": (raw(source='"a\\nb"'), "cannot be seen"),
    "texts are a text": (said(texts_trained_on="all"), "`texts_trained_on`"),
    "seconds are a list": (said(seconds=[1]), "`seconds`"),
    "seconds are texts": (said(seconds={"encode": "1"}), "`seconds`"),
    "seconds are truths": (said(seconds={"encode": True}), "`seconds`"),
    "seconds below 0": (said(seconds={"encode": -2}), "`seconds`"),
    "a speed that is an object": (said(tokens_per_second={}), "`tokens_per_second`"),
    "a device that is a text": (said(device="cpu"), "`device` is not an object"),
    "notes that are a text": (said(notes="none"), "`notes` is not a list"),
    "a time that is a number": (said(written=5), "`written` is not text"),
    "a time that is none": (said(written="yesterday"), "a date that is none"),
    "a time of no zone": (said(written="2026-01-02T03:04:05"), "a date that is none"),
    "the future": (said(written=(datetime.now(UTC) + timedelta(days=3)).isoformat()), "in the future"),
    "the end before the start": (
        said(started="2026-01-02T00:00:00+00:00", written="2026-01-01T00:00:00+00:00"),
        "before it was started",
    ),
}


def contradictions(body: dict[str, Any] | str) -> list[str]:
    text = body if isinstance(body, str) else json.dumps(body)
    try:
        return [*find_contradictions(RECORDS.parse(text, where="x"), text.encode())]
    except ValueError as error:  # what every reader refuses
        return [str(error)]


@pytest.mark.parametrize(("body", "reason"), WRONG.values(), ids=list(WRONG))
def test_what_cannot_be_true_is_named(body: dict[str, Any] | str, reason: str) -> None:
    assert any(reason in text for text in contradictions(body)), contradictions(body)


@pytest.mark.parametrize(
    "body",
    [
        made(),
        of_recipe(),
        of_sweep(),
        of_grid(),
        scored(1.0, {"main_score": 1.0}),
        scored(0.6, {"main_score": 0.5}, {"main_score": 0.7}),
        made(main_score=None, scores={"test": {"default": {"main_score": None}}}),
        scored(0.5, {"main_score": 0.5, "seconds_per_text": 17.5}),
        scored(0.825, {"accuracy": 0.8, "f1": 0.85}, task=GLUE, identity=MRPC),
        said(seconds=None, tokens_per_second=None),
        said(seconds={}, tokens_encoded=0, anything=["else", {"is": "free"}]),
    ],
)
def test_what_may_be_is_left_alone(body: dict[str, Any]) -> None:
    assert contradictions(body) == []


def test_records_of_real_runs_pass(tmp_path: Path) -> None:
    found = audit(REFERENCE, tmp_path, strict=True)
    assert (found.files["records"], found.faults) == (14, ())


def placed(results: Path, body: dict[str, Any]) -> Path:
    """A record at its place in a results folder."""
    record = Record.model_validate(body)
    slug = build_artifact_slug(record.model.name, record.model.artifact)
    path = results / "records" / slug / record.task.name / f"{record.key}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(record.to_json())
    return path


def model(task: str, **changes: Any) -> dict[str, Any]:
    base = named(task=task)
    return {**base, "model": {**base["model"], "parameters": 22, "dimension": 384, **changes}}


def test_the_record_that_describes_the_weights_otherwise_is_named(tmp_path: Path) -> None:
    for task in ("A", "B"):
        placed(tmp_path, model(task))
    forged = placed(tmp_path, model("C", name="org/other", dimension=768))
    found = audit(tmp_path, tmp_path / "cache", strict=True)
    assert [(fault.file, fault.reason) for fault in found.faults] == [
        (forged, "its model's dimension is 768; other records of these weights say 384"),
        (forged, "its model's name is 'org/other'; other records of these weights say 'org/tiny'"),
    ]
    assert audit(tmp_path, tmp_path / "cache").clean


def test_of_two_that_disagree_both_are_named() -> None:
    records = [
        (Path(name), RECORDS.parse(json.dumps(model(name, parameters=number)), where="x").model)
        for name, number in (("A", 22), ("B", 23))
    ]
    assert [str(path) for path, _ in find_disagreements(records)] == ["A", "B"]
    other = model("C", weights="ef" * 32, parameters=5)
    assert not [
        *find_disagreements([records[0], (Path("C"), RECORDS.parse(json.dumps(other), where="x").model)])
    ]


def test_the_command_says_what_is_wrong_and_leaves_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = placed(tmp_path, said(written=5))
    typed = ["audit", "--results", str(tmp_path), "--cache", str(tmp_path), "--strict"]
    for more in ([], ["--repair"]):
        assert invoke([*typed, *more]) == 1
        out = capsys.readouterr().out
        assert f"✗ {path}: its provenance's `written` is not text." in out
    assert path.exists()
    assert invoke(typed[:-1]) == 0
