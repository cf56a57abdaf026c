"""Object storage that machines share: whole objects, one winner; records, vectors and models in it."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import numpy as np
import pytest
from obstore.exceptions import GenericError
from safetensors.numpy import save_file

import fakes
import remote_writer
from fakes import FakeEncoder, artifact, encoding, gated, record, task
from harness.cli import invoke
from harness.core.errors import NewerSchemaError, StoreError, UsageError
from harness.core.types import Column, Suite
from harness.data.locate import DataSettings
from harness.driver.execute import Driver
from harness.encoder import sanity
from harness.executors.executor import Executor, Listener
from harness.executors.local import LocalExecutor
from harness.jobs.context import Event, JobContext, WorkerLimits
from harness.jobs.jobs import resolve_weights
from harness.plan.plan import ConfiguredModel, Plan
from harness.plan.request import Request
from harness.storage import remote_and_leases as storage
from harness.storage.record import ExamplesPart, Record
from harness.storage.remote_and_leases import (
    LEASE,
    Leases,
    Remote,
    has_dead_holder,
    locate_holder_file,
    sweep_leases,
)
from harness.storage.store import Store
from harness.storage.vectors import EmbeddingCache
from harness.training.model_store import ModelStore
from lease_worker import Settings, Worker, dead_lease
from s3_server import S3Server

SUPPORT = Path(__file__).parents[2] / "support"
FOLDERS = itertools.count()


@pytest.fixture(scope="module")
def running() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.close()


@pytest.fixture
def s3(running: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The server, as the environment of this process names it, with a bucket."""
    running.refusals, running.lost, running.ignores_conditions = [], 0, False
    given = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
    nowhere = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    quick = {"AWS_EC2_METADATA_DISABLED": "true", "AWS_MAX_ATTEMPTS": "1"}
    for name, value in {**given, **nowhere, **quick, "AWS_ENDPOINT_URL": running.url}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(storage, "DELAY", 0.01)
    if not running.requests:
        boto3.client("s3", endpoint_url=running.url).create_bucket(Bucket="bucket")
    return running


@pytest.fixture
def url(s3: S3Server) -> str:
    return f"s3://bucket/{next(FOLDERS)}"


@pytest.fixture(params=["s3", "file"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Remote:
    return Remote(f"file://{tmp_path}/shared" if request.param == "file" else request.getfixturevalue("url"))


# Objects


def test_objects_of_every_storage_behave_alike(remote: Remote, tmp_path: Path) -> None:
    remote.require_usable()
    assert remote.list_objects("") == {}
    assert remote.read_object("a/b") is None
    assert remote.create("a/b", b"first")
    assert remote.create("a/b", b"first")  # it is what is there
    assert not remote.create("a/b", b"second")
    assert remote.read_object("a/b") == b"first"
    remote.replace("a/b", b"third")
    assert not remote.compare_and_swap("a/b", b"fourth", seen=b"first")
    assert remote.compare_and_swap("a/b", b"fourth", seen=b"third")
    assert not remote.compare_and_swap("a/c", b"new", seen=b"old")
    remote.create("ab", b"beside")
    assert {name: info.size for name, info in remote.list_objects("a").items()} == {"a/b": 6}
    assert [*remote.list_objects("")] == ["a/b", "ab"]
    assert not remote.list_objects("a")["a/b"].has_content(b"first!")
    file = tmp_path / "file"
    assert remote.download("a/b", file)
    assert file.read_bytes() == b"fourth"
    assert not remote.download("a/c", tmp_path / "none")
    assert not remote.compare_and_swap("a/b", None, seen=b"third")
    assert remote.compare_and_swap("a/b", None, seen=b"fourth")
    remote.remove("a/b")
    assert remote.read_object("a/b") is None


def test_large_objects_are_whole(remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "PART_BYTES", remote_writer.PART_BYTES)
    content = random.Random(1).randbytes(11 * 2**20)
    file = tmp_path / "file"
    file.write_bytes(content)
    remote.upload("up", file)
    remote.replace("in parts", content[::-1])
    assert remote.create("at once", content)
    assert not remote.create("at once", content[::-1])
    assert remote.read_object("up") == remote.read_object("at once") == content
    assert remote.read_object("in parts") == content[::-1]
    assert remote.download("up", file)
    assert file.read_bytes() == content


def test_of_writers_that_race_one_wins(remote: Remote) -> None:
    for name in ("a", "b", "c"):
        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(lambda n: remote.create(name, b"by %d" % n), range(8)))  # noqa: B023
        assert won.count(True) == 1
        assert remote.read_object(name) == b"by %d" % won.index(True)


def test_of_several_that_take_over_one_wins(s3: S3Server, url: str) -> None:
    remote = Remote(url)
    remote.create("k", b"lapsed")
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda n: remote.compare_and_swap("k", b"by %d" % n, seen=b"lapsed"), range(8)))
    assert won.count(True) == 1
    assert remote.read_object("k") == b"by %d" % won.index(True)


# What goes wrong


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("bucket/folder", "must be the URL"),
        ("s3://", "must be the URL"),
        ("http://host/folder", "must be the URL"),
        ("file://folder", "begins with /"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused(given: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        Remote(given)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("refusal", "place", "said"),
    [
        ("", "s3://nobody/x", "The specified bucket does not exist"),
        ("denied", "s3://bucket/x", "AccessDenied as asked for"),
        ("signature", "s3://bucket/x", "Check the credentials"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_anything_starts(
    refusal: str, place: str, said: str, s3: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    s3.refusals = [refusal] if refusal else []
    words = ["run", "--model", "minilm", "--suite", "stsb", "--remote", place]
    assert invoke([*words, "--results", str(tmp_path / "results")]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"Error: Cannot use {place}: ")
    assert said in told
    assert "Traceback" not in told
    assert not (tmp_path / "results").exists()


def test_a_place_that_nobody_answers_for_is_refused(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(
        UsageError, match=r"Cannot use s3://bucket/x: .*127\.0\.0\.1:9[\s\S]*AWS_ENDPOINT_URL"
    ):
        Remote("s3://bucket/x").require_usable()


def test_missing_credentials_are_named(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(UsageError, match="No credentials for S3 were found"):
        Remote("s3://bucket/x").require_usable()


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="Not a directory"):
        Remote(f"file://{tmp_path}/file/x").require_usable()


def test_storage_that_ignores_conditions_is_refused(s3: S3Server, url: str) -> None:
    s3.ignores_conditions = True
    with pytest.raises(UsageError, match="ignores conditional writes"):
        Remote(url).require_usable()


def test_no_network_and_storage_behind_one_exclude_each_other(s3: S3Server, tmp_path: Path) -> None:
    asked = Request(models=("m",), suites=("s",), offline=True)
    with pytest.raises(UsageError, match="--offline forbids the network"):
        replace(asked, remote="s3://bucket/x").open_remote()
    assert replace(asked, remote=f"file://{tmp_path}").open_remote() is not None


def test_what_fails_in_passing_is_tried_again(s3: S3Server, url: str) -> None:
    remote = Remote(url)
    s3.refusals = ["slow", "broken", "slow"]
    remote.replace("a", b"1")
    s3.lost = 1
    assert remote.create("b", b"mine")  # its answer was lost, and another attempt found it there
    s3.lost = 1
    assert remote.compare_and_swap("b", b"renewed", seen=b"mine")
    s3.refusals = ["broken"] * storage.ATTEMPTS
    with pytest.raises(StoreError) as error:
        remote.read_object("a")
    assert error.value.message == f"Cannot read {url}/a: InternalError as asked for."
    assert "the same command" in str(error.value.hint)
    s3.refusals = ["denied"]
    with s3.counting() as methods, pytest.raises(StoreError, match="Check the credentials"):
        remote.read_object("a")
    assert methods == ["GET"]


def test_a_write_whose_connection_broke_is_tried_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = Remote(url)
    remote.create("b", b"mine")
    put, broken = remote._objects.put, [1, 1]

    def cut(*given: Any, **more: Any) -> Any:
        """The request took effect, and its answer never came."""
        answer = put(*given, **more)
        if broken:
            broken.pop()
            raise GenericError("Generic S3 error: HTTP error: request or response body error")
        return answer

    monkeypatch.setattr(remote, "_objects", SimpleNamespace(put=cut, get=remote._objects.get))
    assert remote.create("a", b"mine")
    assert remote.compare_and_swap("b", b"renewed", seen=b"mine")
    assert (broken, remote.read_object("a"), remote.read_object("b")) == ([], b"mine", b"renewed")


# Records


def made(name: str = "Fake", score: float = 0.5, **more: object) -> Record:
    found = record(task(name), score, **more)  # type: ignore[arg-type]
    return found.model_copy(update={"examples": ExamplesPart(file="", rows=1, sha256="")})


SLUG = artifact(Path("tiny")).slug
KEY = made().key
OBJECT = f"records/{'a' * 12}/Fake/{KEY}.json"


@pytest.fixture
def machine(remote: Remote, tmp_path: Path) -> Callable[[str], Store]:
    """A new process on a machine of that name, with a results folder of its own."""
    return lambda name: Store(tmp_path / name, remote)


def content(store: Store, key: str = KEY, name: str = "Fake") -> tuple[bytes, bytes]:
    """The record of a store and its per-example file."""
    found = store.get(SLUG, name, key)
    assert found is not None
    beside = store.find_part_file(found, SLUG)
    assert beside is not None
    return store.locate_record(SLUG, name, key).read_bytes(), beside.read_bytes()


def test_a_record_of_one_machine_is_on_the_other(machine: Callable[[str], Store]) -> None:
    one, two = machine("one"), machine("two")
    assert two.get(SLUG, "Fake", KEY) is None
    stored = one.put(SLUG, made(), b"examples")
    assert two.get(SLUG, "Fake", KEY) is None  # the listing is a moment old
    assert two.get(SLUG, "Fake", KEY, now=True) == stored
    assert content(two) == content(one) == content(machine("three"))
    renamed = replace(artifact(Path("tiny")), name="another name").slug
    assert machine("four").get(renamed, "Fake", KEY) == stored


def test_of_two_records_of_a_key_the_first_counts_for_all(machine: Callable[[str], Store]) -> None:
    one, two = machine("one"), machine("two")
    first = one.put(SLUG, made(by="one"), b"of one")
    assert two.put(SLUG, made(by="two"), b"of two") == first
    assert content(two) == content(one)
    assert content(two)[1] == b"of one"
    again = two.put(SLUG, made(by="two"), b"of two", again=True)
    assert again.provenance["by"] == "two"
    three = machine("three")
    assert content(three)[1] == b"of two"
    assert len(three.remote.list_objects("")) == 2  # type: ignore[union-attr]
    assert content(machine("one"))[1] == b"of two"


def test_a_final_record_takes_the_place_of_a_trial(machine: Callable[[str], Store]) -> None:
    trial = made(by="trial").model_copy(update={"purpose": "trial"})
    machine("one").put(SLUG, trial, b"trial")
    two = machine("two")
    assert two.get(SLUG, "Fake", KEY) is None
    assert two.get(SLUG, "Fake", KEY, purpose="trial") is not None
    two.put(SLUG, made(), b"final")
    later = machine("three").put(SLUG, trial, b"trial")
    assert later.purpose == "final"
    assert content(machine("four"))[1] == b"final"


def test_what_a_killed_run_did_not_send_the_next_one_sends(
    machine: Callable[[str], Store], remote: Remote, tmp_path: Path
) -> None:
    Store(tmp_path / "one").put(SLUG, made(), b"examples")  # the local write, and then the kill
    one = machine("one")
    assert content(one)[1] == b"examples"  # all that the next run asks for is there
    assert one.shared is not None
    assert one.shared.send_missing() == 1
    assert content(machine("two")) == content(one)
    trial = made("Other").model_copy(update={"purpose": "trial"})
    one.put(SLUG, trial, b"trial")
    Store(tmp_path / "one").put(SLUG, made("Other"), b"final")
    restarted = machine("one")
    assert content(restarted, trial.key, "Other")[1] == b"final"
    assert restarted.shared is not None
    assert restarted.shared.send_missing() == 1
    assert content(machine("two"), trial.key, "Other")[1] == b"final"


@pytest.mark.parametrize("damage", ["half", "other digest", "no record", "of another key"])
def test_a_damaged_record_counts_as_absent_and_is_replaced(
    damage: str, remote: Remote, machine: Callable[[str], Store], caplog: pytest.LogCaptureFixture
) -> None:
    machine("one").put(SLUG, made(by="one"), b"examples")
    whole = remote.read_object(OBJECT) or b""
    other = made("Fake", seed=7).to_json().encode()
    broken = {"half": whole[:100], "other digest": whole.replace(b"0.5", b"0.6"), "no record": b"{}"}
    remote.replace(OBJECT, broken.get(damage, other))
    two = machine("two")
    assert two.get(SLUG, "Fake", KEY) is None
    assert f"{remote.url}/{OBJECT} is damaged" in caplog.text
    two.put(SLUG, made(by="two"), b"examples")
    assert json.loads(content(machine("three"))[0])["provenance"]["by"] == "two"


def test_a_damaged_file_beside_a_record_is_missing_until_it_is_sent_again(
    remote: Remote, machine: Callable[[str], Store], caplog: pytest.LogCaptureFixture
) -> None:
    one = machine("one")
    stored = one.put(SLUG, made(), b"examples")
    (beside,) = (name for name in remote.list_objects("") if name.endswith(".parquet"))
    remote.replace(beside, b"exampl")
    two = machine("two")
    assert two.get(SLUG, "Fake", KEY) == stored
    assert two.find_part_file(stored, SLUG) is None
    assert f"{beside} is damaged" in caplog.text
    one.put(SLUG, stored, b"examples", again=True)
    assert content(machine("three")) == content(one)


def test_a_record_of_a_newer_version_is_left_alone(remote: Remote, machine: Callable[[str], Store]) -> None:
    newer = made().to_json().replace('"schema": 6', '"schema": 99').encode()
    remote.replace(OBJECT, newer)
    assert machine("one").get(SLUG, "Fake", KEY) is None
    with pytest.raises(NewerSchemaError):
        machine("one").put(SLUG, made(), b"examples")
    assert remote.read_object(OBJECT) == newer


def test_requests_are_as_few_as_the_documents_say(s3: S3Server, url: str, tmp_path: Path) -> None:
    one, two = (Store(tmp_path / name, Remote(url)) for name in ("one", "two"))
    with s3.counting() as methods:
        for name in ("A", "B", "C"):
            assert one.get(SLUG, name, made(name).key) is None
    assert methods == ["GET"]
    with s3.counting() as methods:
        one.put(SLUG, made("A"), b"examples")
    assert methods == ["PUT", "PUT"]
    with s3.counting() as methods:
        assert two.get(SLUG, "A", made("A").key) is not None
    assert methods == ["GET", "GET", "GET"]
    restarted = Store(tmp_path / "two", Remote(url))
    with s3.counting() as methods:
        assert restarted.get(SLUG, "B", made("B").key) is None
    assert methods == ["GET"]
    remote = Remote(url)
    with s3.counting() as methods:
        remote.require_usable()
    assert methods == ["PUT", "PUT", "POST"]
    with s3.counting() as methods:
        EmbeddingCache.write_shard(tmp_path / "one", remote_writer.IDENTITY, shard(["a"]), remote)
    assert methods == ["PUT"]
    with s3.counting() as methods:
        space(tmp_path / "two").sync_shards(remote)
    assert methods == ["GET", "PUT", "GET"]
    model = trained(tmp_path / "one", 1.0, remote)
    with s3.counting() as methods:
        model.send(LINEAGE.key)
    assert methods == ["GET", "GET", *["PUT"] * 3, "PUT"]
    with s3.counting() as methods:
        ModelStore(tmp_path / "two", remote).fetch_model(LINEAGE.key, TRAINED)
    assert methods == ["GET", "GET", *["GET"] * 3]
    with s3.counting() as methods:
        leases = Leases(remote)
        leases.claim("k")
        leases.release("k")
        leases.release_leases()
    assert methods == ["PUT", "PUT", "GET", "POST", "POST"]


def test_records_are_pulled_and_pushed(
    remote: Remote, tmp_path: Path, machine: Callable[[str], Store], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "own"
    for name in ("A", "B"):
        Store(folder).put(SLUG, made(name), b"examples")

    def command(*words: str, results: Path) -> dict[str, object]:
        assert invoke(["remote", *words, remote.url, "--results", str(results), "--json"]) == 0
        return dict(json.loads(capsys.readouterr().out))

    told = {"schema": 1, "remote": remote.url, "records": 2}
    assert command("push", "--dry-run", results=folder) == {**told, "dry_run": True}
    assert remote.list_objects("records") == {}
    assert command("push", results=folder) == {**told, "dry_run": False}
    other = tmp_path / "other"
    assert command("pull", "--dry-run", results=other)["records"] == 2
    assert not other.exists()
    assert command("pull", results=other)["records"] == 2
    assert content(Store(other), made("A").key, "A") == content(Store(folder), made("A").key, "A")
    assert command("pull", results=other)["records"] == command("push", results=other)["records"] == 0
    Store(other).put(SLUG, made("A", by="other"), b"mine", again=True)
    assert command("pull", results=other)["records"] == 1
    assert content(Store(other), made("A").key, "A")[1] == b"examples"


# Vectors


def space(cache: Path) -> EmbeddingCache:
    return EmbeddingCache(cache, remote_writer.IDENTITY)


def shard(texts: list[str]) -> bytes:
    return EmbeddingCache.serialize_shard(
        EmbeddingCache.hash_texts(texts), np.full((len(texts), 3), len(texts), np.float32)
    )


def test_vectors_of_one_machine_are_on_the_other(remote: Remote, tmp_path: Path) -> None:
    EmbeddingCache.write_shard(tmp_path / "one", remote_writer.IDENTITY, shard(["a", "b"]), remote)
    EmbeddingCache.write_shard(
        tmp_path / "one", remote_writer.IDENTITY, shard(["c"])
    )  # a kill before it was sent
    one, two = space(tmp_path / "one"), space(tmp_path / "two")
    two.sync_shards(remote)
    assert two.find_missing_texts(["a", "b", "c"]) == ["c"]
    one.sync_shards(remote)
    two.sync_shards(remote)
    assert two.find_missing_texts(["a", "b", "c"]) == []
    assert (two.get(["a", "c"]) == [[2, 2, 2], [1, 1, 1]]).all()


def test_a_damaged_shard_is_removed_and_sent_again(
    remote: Remote, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    EmbeddingCache.write_shard(tmp_path / "one", remote_writer.IDENTITY, shard(["a"]), remote)
    (name,) = remote.list_objects("vectors")
    whole = remote.read_object(name) or b""
    remote.replace(name, whole[:-1] + b"x")
    two = space(tmp_path / "two")
    two.sync_shards(remote)
    assert two.find_missing_texts(["a"]) == ["a"]
    assert f"{remote.url}/{name} was damaged, and is removed" in caplog.text
    space(tmp_path / "one").sync_shards(remote)
    two.sync_shards(remote)
    assert two.find_missing_texts(["a"]) == []


def test_a_worker_encodes_only_what_no_machine_has(
    s3: S3Server, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = FakeEncoder()
    monkeypatch.setattr(JobContext, "load_encoder", lambda *_: encoder)

    def worker(name: str) -> JobContext:
        def write(event: Event) -> None:
            if event.kind == "vectors":
                EmbeddingCache.write_shard(tmp_path / name, event.space, event.content, Remote(url))

        return JobContext(device="cpu", cache=tmp_path / name, emit=write, limits=WorkerLimits(remote=url))

    model, of = artifact(tmp_path), (encoding(), task(), "")
    assert worker("one").encode_missing(model, *of, ["a", "b"]).texts == 2
    two = worker("two")
    assert two.encode_missing(model, *of, ["a", "b", "c"]).texts == 1
    assert [texts for _, texts in encoder.calls] == [("a", "b"), ("c",)]
    with s3.counting() as methods:
        assert two.encode_missing(model, *of, ["a", "b", "c"]).texts == 0
    assert methods == []


# Runs


def test_a_second_machine_finds_the_scores_of_the_first(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JobContext, "load_encoder", lambda *_: FakeEncoder())
    monkeypatch.setattr(sanity, "check_encoder", lambda *_, **__: gated())
    monkeypatch.setattr(sanity, "require_sane", lambda _: None)
    suite = Suite(name="s", title="s", columns=(Column(name="Fake", type="STS", tasks=(task(),)),))

    def run(name: str, planned: Plan | None = None) -> list[str]:
        store = Store(tmp_path / name / "r", remote)
        planned = planned or plan(store)
        limits, cache = WorkerLimits(remote=remote.url), tmp_path / name

        def opened(listener: Listener) -> Executor:
            return LocalExecutor(("cpu",), cache=cache, listener=listener, limits=limits)

        return [one.how for one in Driver(planned, store=store, cache=cache, open_executor=opened).run()]

    def plan(store: Store) -> Plan:
        model = ConfiguredModel(artifact=artifact(tmp_path), encoding=encoding())
        settings = DataSettings(cache=tmp_path / "data")
        return Plan.make([model], [suite], store=store, settings=settings)

    late = plan(Store(tmp_path / "three" / "r", remote))  # before there is anything
    assert run("one") == ["done"]
    assert run("two") == ["cached"]
    assert run("three", late) == ["shared"]


# Trained models

LINEAGE = fakes.lineage()
TRAINED = f"tiny-contrast-{LINEAGE.key[:12]}"


def trained(results: Path, weight: float, remote: Remote | None = None) -> ModelStore:
    """The models of a machine that has just trained one."""
    store = ModelStore(results, remote)
    model = store.start_training(LINEAGE.key, name="tiny-contrast", lineage=LINEAGE, steps=4) / "model"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "bert"}')
    save_file({"w": np.full((2, 2), weight, np.float32)}, model / "model.safetensors")
    (store.locate_training_folder(LINEAGE.key) / "log.jsonl").write_text("{}\n")
    store.put(model, fakes.document(model), TRAINED)
    return store


def test_a_model_is_trained_once_for_all_machines(remote: Remote, tmp_path: Path) -> None:
    one = trained(tmp_path / "one", 1.0, remote)
    one.send(LINEAGE.key)
    two = ModelStore(tmp_path / "two", remote)
    assert two.find(LINEAGE.key) is None
    found = two.fetch_model(LINEAGE.key, TRAINED)
    assert found is not None
    assert found[0] == two.locate_model(TRAINED)
    assert found[1] == one.find(LINEAGE.key)[1]  # type: ignore[index]
    assert (found[0] / "training" / "log.jsonl").is_file()
    three = trained(tmp_path / "three", 3.0, remote)  # other weights under the same key
    three.send(LINEAGE.key)
    assert three.find(LINEAGE.key)[1] == found[1]  # type: ignore[index]
    assert ModelStore(tmp_path / "four", remote).fetch_model(LINEAGE.key, TRAINED)[1] == found[1]  # type: ignore[index]


def test_a_worker_fetches_the_model_of_its_job(remote: Remote, tmp_path: Path) -> None:
    trained(tmp_path / "one", 1.0, remote).send(LINEAGE.key)
    place = tmp_path / "two" / "models" / TRAINED
    asked = replace(artifact(place, key=LINEAGE.key, name="tiny-contrast"), trained=True, weights="")
    assert resolve_weights(asked).weights == ""
    found = resolve_weights(asked, remote)
    assert found.folder == place
    assert len(found.weights) == 64


@pytest.mark.parametrize("damage", ["weights", "document", "absent file"])
def test_a_damaged_model_is_not_taken_and_sent_again(
    damage: str, remote: Remote, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = trained(tmp_path / "one", 1.0, remote)
    one.send(LINEAGE.key)
    endings = {"document": "model.json", "weights": "model.safetensors", "absent file": "config.json"}
    (name,) = (name for name in remote.list_objects("models") if name.endswith(endings[damage]))
    remote.remove(name) if damage == "absent file" else remote.replace(name, b"{}")
    two = ModelStore(tmp_path / "two", remote)
    assert two.fetch_model(LINEAGE.key, TRAINED) is None
    assert "model.json is damaged" in caplog.text
    assert [*(tmp_path / "two").rglob("*.safetensors")] == []
    one.send(LINEAGE.key)
    assert two.fetch_model(LINEAGE.key, TRAINED) is not None


# Kills


class Reader(threading.Thread):
    """Lists and reads everything there is, again and again, and notes what is not whole."""

    def __init__(self, remote: Remote) -> None:
        super().__init__(daemon=True)
        self.remote, self.faults, self.read, self.over = remote, list[str](), 0, threading.Event()
        self._records: dict[str, bytes] = {}
        self._whole: set[str] = set()

    def run(self) -> None:
        while not self.over.is_set():
            for name in self.remote.list_objects(""):
                if name not in self._whole:
                    self.check(name)

    def check(self, name: str) -> None:
        content = self.remote.read_object(name)
        self.read += 1
        if content is None:
            self.faults.append(f"{name} is gone")
        elif name.endswith(".safetensors"):
            self.require(name, hashlib.sha256(content).hexdigest()[:32] == Path(name).stem)
            self._whole.add(name)
        elif name.endswith(".parquet"):
            self.require(name, hashlib.sha256(content).hexdigest()[:16] == name.split(".")[1])
            self._whole.add(name)
        elif name.startswith("records/"):
            self.require(name, self._records.setdefault(name, content) == content)
            record = Store.parse(Path(name), content)
            for part in (record.examples, record.run):
                assert part is not None
                beside = f"{name.removesuffix('.json')}.{part.sha256[:16]}.{part.file.partition('.')[2]}"
                self.require(f"{beside} of {name}", self.remote.read_object(beside) is not None)

    def require(self, name: str, whole: bool) -> None:
        if not whole:
            self.faults.append(name)


@pytest.mark.slow
def test_no_half_object_is_ever_read_however_writers_are_killed(
    s3: S3Server, url: str, tmp_path: Path
) -> None:
    remote, chance = Remote(url), random.Random(5)
    reader = Reader(Remote(url))
    reader.start()
    writers = subprocess.Popen(
        [sys.executable, "-m", "remote_writer"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": f"{SUPPORT}{os.pathsep}{SUPPORT.parents[1]}"},
        text=True,
    )
    assert writers.stdin is not None
    assert writers.stdout is not None
    folders = [tmp_path / name for name in ("one", "two")]

    def start(folder: Path) -> int:
        assert writers.stdin is not None
        assert writers.stdout is not None
        order = {"url": url, "folder": str(folder), "by": folder.name, "seed": chance.randrange(10**6)}
        writers.stdin.write(json.dumps(order) + "\n")
        writers.stdin.flush()
        return int(writers.stdout.readline())

    s3.pause = 0.002
    killed = 0
    for _ in range(10):
        for number in [start(folder) for folder in folders]:
            enough, ends = s3.received + chance.randrange(8 * 2**20), time.monotonic() + 2
            while s3.received < enough and time.monotonic() < ends:
                time.sleep(0.002)
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
                killed += 1
    s3.pause = 0.0
    last = tmp_path / "last"
    start(last)
    ends = time.monotonic() + 60
    while not (last / "done").exists():
        assert time.monotonic() < ends
        time.sleep(0.05)
    writers.stdin.close()
    writers.wait(10)
    writers.stdout.close()
    reader.over.set()
    reader.join(20)
    assert reader.faults == []
    assert killed >= 10
    assert s3.cut >= 1
    assert reader.read > 50
    names = [*remote.list_objects("")]
    records = [name for name in names if name.endswith(".json") and name.startswith("records/")]
    assert sorted(name.split("/")[2] for name in records) == sorted(remote_writer.TASKS)
    shards = {f"{hashlib.sha256(remote_writer.shard(n)).hexdigest()[:32]}" for n in remote_writer.SHARDS}
    assert {Path(name).stem for name in names if name.endswith(".safetensors")} == shards
    for folder in (*folders, tmp_path / "new"):
        store, vectors = Store(folder / "results", remote), space(folder / "cache")
        assert store.get(SLUG, "Other", "0" * 64) is None
        for name in records:
            path = store.locate_record(SLUG, name.split("/")[2], Path(name).stem)
            assert path.read_bytes() == remote.read_object(name)
            found = Store.read_record(path)
            assert found is not None
            assert store.find_part_file(found, SLUG) is not None
            assert store.find_part_file(found, SLUG, "run") is not None
        vectors.sync_shards(remote)
        assert (
            vectors.find_missing_texts([f"{n} {row}" for n in remote_writer.SHARDS for row in (0, 3599)])
            == []
        )


TERM = 0.6


@pytest.fixture(params=["folder", "remote"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | Remote:
    return tmp_path / "leases" if request.param == "folder" else Remote(f"file://{tmp_path}/shared")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock of all leases of this process, which goes on only as it is told."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(
        "harness.storage.remote_and_leases.time", SimpleNamespace(monotonic=lambda: clock.now)
    )
    return clock


def pass_time(clock: SimpleNamespace, seconds: float, holder: Leases) -> None:
    """Let the clock go on after the holder has given a sign of life."""
    before = holder._renewals
    while holder._renewals < before + 2:  # the first may be under way
        time.sleep(0.01)
    clock.now += seconds


def names(place: Path | Remote) -> list[str]:
    return (
        [path.name for path in place.glob("*")]
        if isinstance(place, Path)
        else [*place.list_objects("leases")]
    )


@contextmanager
def workers(*settings: Settings) -> Iterator[list[Worker]]:
    running = [Worker(one) for one in settings]
    try:
        yield running
    finally:
        for worker in running:
            worker.process.send_signal(signal.SIGCONT)
            worker.kill()


def wait_for(worker: Worker, key: str, limit: float) -> float:
    """The seconds until a worker gets a lease that it wants."""
    began = time.monotonic()
    while not worker.ask("claim", key):
        assert time.monotonic() - began < limit
        time.sleep(0.05)
    return time.monotonic() - began


def test_a_lease_is_held_by_one(place: Path | Remote) -> None:
    one, two = Leases(place), Leases(place)
    assert one.claim("k")
    assert one.claim("k")
    assert not two.claim("k")
    assert two.claim("other")
    two.release("k")  # it is not its own
    assert not two.claim("k")
    one.release("k")
    assert two.claim("k")
    assert not one.claim("k")
    one.release_leases()
    two.release_leases()
    assert names(place) == []


def test_who_gets_no_lease_writes_nothing(place: Path | Remote) -> None:
    one, two = Leases(place), Leases(place, term=TERM)
    assert one.claim("k")
    before = sorted(names(place))
    assert not two.claim("k")
    time.sleep(TERM)
    assert sorted(names(place)) == before
    two.release_leases()
    one.release_leases()


def test_a_lease_that_is_renewed_is_kept_and_lapses_only_after_that(
    place: Path | Remote, clock: SimpleNamespace
) -> None:
    one, two = Leases(place, term=TERM), Leases(place, term=TERM)
    assert one.claim("k")
    for _ in range(5):
        assert not two.claim("k")
        pass_time(clock, 0.6 * TERM, one)
    one.release_leases()
    assert two.claim("k")
    two.release_leases()


def test_what_is_looked_at_seldom_is_not_taken_over(place: Path | Remote, clock: SimpleNamespace) -> None:
    one, two = Leases(place, term=TERM), Leases(place, term=TERM)
    assert one.claim("k")
    for _ in range(2):
        assert not two.claim("k")
        pass_time(clock, 1.5 * TERM, one)
    assert not two.claim("k")
    one.release_leases()


def test_the_lease_of_a_dead_process_of_this_host_is_free_at_once(tmp_path: Path) -> None:
    path = dead_lease(tmp_path, "k")
    assert has_dead_holder(path)
    leases = Leases(tmp_path)
    assert leases.claim("k")
    assert not has_dead_holder(path)
    leases.release_leases()


def test_a_sweep_removes_only_what_the_dead_of_this_host_have_left(tmp_path: Path) -> None:
    dead_lease(tmp_path, "dead")
    living = Leases(tmp_path)
    living.claim("mine")
    elsewhere = locate_holder_file(dead_lease(tmp_path, "elsewhere"))
    elsewhere.write_text(elsewhere.read_text().replace('"host": "', '"host": "another '))
    sweep_leases(tmp_path)
    held = {f"mine{LEASE}", f"elsewhere{LEASE}", elsewhere.name}
    assert held < {*names(tmp_path)}
    assert len(names(tmp_path)) == 4  # and the holder's file of this process
    living.release_leases()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="Cannot write"):
        Leases(tmp_path / "leases").claim("k")


def test_a_file_in_the_place_of_the_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "leases").touch()
    with pytest.raises(StoreError, match="Cannot write"):
        Leases(tmp_path / "leases").claim("k")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "remote"])
def test_hosts_with_other_clocks_share_leases_and_take_over_from_the_dead(tmp_path: Path, kind: str) -> None:
    place = str(tmp_path) if kind == "folder" else f"file://{tmp_path}"
    base = Settings(place=place, term=3.0)
    with workers(replace(base, host="a", clock=300.0), replace(base, host="b")) as (one, two):
        assert one.ask("claim", "k")
        end = time.monotonic() + 5.0
        while time.monotonic() < end:
            assert not two.ask("claim", "k")
            time.sleep(0.1)
        one.ask("release", "k")
        assert two.ask("claim", "k")
        assert not one.ask("claim", "k")
        two.ask("release", "k")
        assert one.ask("claim", "k")
        one.kill()
        assert wait_for(two, "k", limit=60.0) > 1.5


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "remote"])
def test_a_stopped_holder_leaves_its_lease_to_the_one_that_took_it_over(tmp_path: Path, kind: str) -> None:
    place = tmp_path if kind == "folder" else Remote(f"file://{tmp_path}")
    base = Settings(place=str(tmp_path) if kind == "folder" else f"file://{tmp_path}", term=1.0)
    with workers(replace(base, host="a"), replace(base, host="b")) as (slept, other):
        assert slept.ask("claim", "k")
        slept.process.send_signal(signal.SIGSTOP)
        wait_for(other, "k", limit=60.0)
        slept.process.send_signal(signal.SIGCONT)
        time.sleep(0.5)  # its next renewal finds the lease of another
        slept.ask("release", "k")
        third = Leases(place, term=1.0)
        assert not third.claim("k"), "the other's lease is there"
        third.release_leases()
        slept.ask("release_leases")
        other.ask("release_leases")
    assert names(place) == []


@pytest.mark.slow
def test_workers_of_several_hosts_some_of_them_killed_finish_all_and_never_do_one_at_once(
    tmp_path: Path,
) -> None:
    """Two workers are on this host, two on others; whichever dies is replaced by another."""
    chance, keys = random.Random(7), 400
    (tmp_path / "witness").mkdir()
    base = Settings(place=str(tmp_path / "leases"), term=5.0, keys=keys, witness=str(tmp_path / "witness"))
    hosts = ["", "", "b", "c"]
    settings = [replace(base, host=host, clock=chance.choice([-300, 0, 300])) for host in hosts]
    running, conflicts, deadline = [Worker(one) for one in settings], "", time.monotonic() + 240
    try:
        for kill in range(8):
            time.sleep(chance.uniform(0.2, 0.5))
            number = chance.randrange(4)
            running[number].process.kill()
            conflicts += running[number].process.communicate()[0]
            running[number] = Worker(replace(settings[number], host=settings[number].host and f"new{kill}"))
        for worker in running:
            conflicts += worker.process.communicate(timeout=deadline - time.monotonic())[0]
    finally:
        for worker in running:
            worker.kill()
    assert conflicts == ""
    assert [worker.process.returncode for worker in running] == [0] * 4
    assert len([*(tmp_path / "witness").glob("*.done")]) == keys
