"""Records: what one is of, how it is written and read, and where it is kept."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import artifact, encoding, task
from harness.core import files
from harness.core.encoding import Encoding
from harness.core.errors import RecordError
from harness.core.keys import (
    Lineage,
    MemberPart,
    ParentPart,
    SweepPart,
    build_evaluation_identity,
    digest,
    serialize_canonical,
)
from harness.core.types import Data
from harness.storage import record as schema
from harness.storage.record import RECORDS, ErrorPart, ExamplesPart, ModelPart, Record, RunPart, TaskPart
from harness.storage.remote_and_leases import Leases
from harness.storage.store import Store
from lease_worker import dead_lease
from stored_records import iter_records

# Identities


def identity(**changes: object) -> dict[str, object]:
    how = encoding(**changes.pop("encoding", {}))  # type: ignore[arg-type]
    return build_evaluation_identity(artifact(Path()), replace(task(), **changes), how, seed=42)  # type: ignore[arg-type]


def test_canonical_json_is_sorted_compact_and_plain() -> None:
    assert serialize_canonical({"b": (1, None), "a": {"ü": True}}) == '{"a":{"ü":true},"b":[1,null]}'


def test_digest_is_the_sha256_of_the_canonical_json() -> None:
    assert digest({"a": 1}) == hashlib.sha256(b'{"a":1}').hexdigest()


def test_evaluation_key_is_golden() -> None:
    """A change here makes every record on every disk unknown: migrate, do not edit."""
    assert serialize_canonical(identity()) == (
        '{"artifact":"' + "a" * 64 + '","data":{"content":"cccccccc"},"encoding":{"dtype":"float32",'
        '"max_length":128,"normalize":true,"output":"vector","pooling":"mean","similarity":"cosine"},'
        '"prompts":{"":"","document":"","query":""},"scoring":"fake 1","seed":42,"splits":["test"],'
        '"subsets":["default"],"task":"Fake"}'
    )
    assert digest(identity()) == "4f6fe5ad14cde320766f929116affec00915fe6c5101d175b7277b5570ebae25"


@pytest.mark.parametrize(
    "changes",
    [
        {"data": Data(content="d")},
        {"data": Data(path="o/n", revision="1")},
        {"splits": ("dev",)},
        {"subsets": ("en",)},
        {"name": "Other"},
        {"encoding": {"pooling": "cls"}},
        {"encoding": {"max_length": 64}},
        {"encoding": {"dtype": "bfloat16"}},
        {"encoding": {"normalize": False}},
        {"encoding": {"similarity": "dot"}},
        {"encoding": {"prompts": (("query", "q: "),)}},
    ],
)
def test_every_part_of_the_identity_changes_the_key(changes: dict[str, object]) -> None:
    assert digest(identity(**changes)) != digest(identity())


def test_order_of_splits_and_prompts_for_other_tasks_change_nothing() -> None:
    two = {"splits": ("a", "b")}
    assert digest(identity(**two)) == digest(identity(splits=("b", "a")))
    assert digest(identity(encoding={"prompts": (("OtherTask", "x"),)})) == digest(identity())


def test_a_field_added_later_keeps_old_keys() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Old:
        a: int

    @dataclass(frozen=True, kw_only=True)
    class New:
        a: int
        added: str | None = None

    assert digest(Old(a=1)) == digest(New(a=1))
    assert digest(New(a=1, added="x")) != digest(New(a=1))


@pytest.mark.parametrize("value", [float("nan"), Path("x"), object()])
def test_what_is_not_content_is_refused(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        digest({"a": value})


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.lists(st.booleans()), max_size=5))
def test_key_order_never_matters(value: dict[str, object]) -> None:
    assert digest(dict(reversed(value.items()))) == digest(value)


@pytest.mark.parametrize(
    ("prompts", "role", "expected"),
    [
        ({"Fake-query": "1", "Fake": "2", "STS-query": "3", "STS": "4", "query": "5"}, "query", "1"),
        ({"Fake": "2", "STS-query": "3", "STS": "4", "query": "5"}, "query", "2"),
        ({"STS-query": "3", "STS": "4", "query": "5"}, "query", "3"),
        ({"STS": "4", "query": "5"}, "query", "4"),
        ({"query": "5"}, "query", "5"),
        ({"query": "5"}, "document", ""),
        ({"query": "5"}, "", ""),
        ({"STS": "4"}, "", "4"),
    ],
)
def test_prompts_are_found_in_the_order_of_mteb(prompts: dict[str, str], role: str, expected: str) -> None:
    how = encoding(prompts=tuple(sorted(prompts.items())))
    assert how.resolve_prompt(task(), role) == expected  # type: ignore[arg-type]


def test_prompts_agree_with_mteb() -> None:
    import mteb
    from mteb.models.abs_encoder import get_prompt
    from mteb.types import PromptType

    metadata = mteb.get_task("SciFact").metadata
    ours = replace(task(), name="SciFact", type="Retrieval")
    names = ["SciFact-query", "SciFact", "Retrieval-document", "Retrieval", "query", "document"]
    for skip in range(len(names)):
        prompts = {name: f"<{name}>" for name in names[skip:]}
        how: Encoding = encoding(prompts=tuple(sorted(prompts.items())))
        for role in PromptType.query, PromptType.document:
            assert how.resolve_prompt(ours, role.value) == (get_prompt(prompts, metadata, role) or "")


def test_default_prompt_stands_in_where_no_name_matches() -> None:
    how = encoding(prompts=(("base", "b: "), ("query", "q: ")), default_prompt="base")
    assert (how.resolve_prompt(task(), "query"), how.resolve_prompt(task(), "document")) == ("q: ", "b: ")


# Records and the store


GOLDEN = Path(__file__).parent / "golden"


GOLDEN_KEY = "k" * 64
IDENTITY = {"task": "STS12", "seed": 42}
KEY = digest(IDENTITY)
SLUG = "tiny-aaaaaaaaaaaa"


def made(**changes: object) -> Record:
    fields: dict[str, object] = {
        "key": digest(changes.get("identity", IDENTITY)),
        "status": "done",
        "model": ModelPart(name="tiny", source="local", artifact="a" * 64, weights="w" * 64, parameters=7),
        "task": TaskPart(name="STS12", type="STS", metric="cosine_spearman"),
        "identity": IDENTITY,
        "main_score": 0.5,
        "scores": {"test": {"default": {"main_score": 0.5, "list": [1, None]}}},
        "provenance": {"device": "cpu"},
    }
    return Record(**{**fields, **changes})  # type: ignore[arg-type]


def scored(score: float, **changes: object) -> Record:
    return made(main_score=score, scores={"test": {"default": {"main_score": score}}}, **changes)


def trained() -> Record:
    return made(key=GOLDEN_KEY, training={"recipe": "glue-quick", "seeds": {"scores": [0.25, 0.75]}})


PARENT = ParentPart(
    name="tiny", artifact="a" * 64, revision="r" * 40, own_data="first.csv", selected_on=("STS12",)
)


def of_recipe(**changes: object) -> Record:
    lineage = Lineage(
        recipe="simcse", variant="mean", source="OptiBERT", settings={"batch_size": 64},
        changed={"batch_size": 64}, parents=(PARENT,),
        data=({"path": "org/pairs", "revision": "d" * 40},), seed=7, assumed=("the head",),
        selected_on=("STSBenchmark",), own_data="pairs.csv",
    )  # fmt: skip
    return trained().model_copy(update={"lineage": lineage.model_copy(update=changes)})


def of_sweep() -> Record:
    sweep = SweepPart(
        setting="scale", values=(1.0, 20.0), chosen=20.0,
        tasks={"SciFact": {"task": "SciFact", "splits": ["test"]}},
        curve=(
            MemberPart(value=1.0, artifact="c" * 64, scores={"SciFact": 0.25}, mean=0.25),
            MemberPart(value=20.0, artifact="d" * 64, scores={"SciFact": 0.5}, mean=0.5),
        ),
    )  # fmt: skip
    run = RunPart(file="a.run.parquet", rows=2, sha256="e" * 64, depth=100)
    return of_recipe(sweep=sweep).model_copy(update={"run": run})


def test_the_schema_on_disk_is_golden() -> None:
    """Records of a schema are written as they always were; a change needs a new schema number."""
    golden = GOLDEN / "record-6.json"
    assert of_sweep().to_json() == golden.read_text()
    assert RECORDS.parse(golden.read_text(), where="golden") == of_sweep()


def test_a_lineage_says_what_was_chosen_by_which_tasks() -> None:
    made, parent = of_sweep().lineage, PARENT.model_copy(update={"name": "p", "selected_on": ("STS12",)})
    assert made is not None
    found = made.model_copy(update={"parents": (parent,)})
    assert found.choices == {
        "checkpoint": ("STSBenchmark",),
        "scale among 2 values": ("SciFact",),
        "p, the parent": ("STS12",),
    }
    assert found.all_selected_on == ("STSBenchmark", "SciFact", "STS12")
    assert found.choices_text.startswith("checkpoint chosen by STSBenchmark; scale among 2 values chosen by")
    alone = found.model_copy(update={"parents": (), "selected_on": (), "sweep": None})
    assert (alone.choices, alone.choices_text) == ({}, "")


@pytest.mark.parametrize(
    ("number", "record"),
    [
        (1, lambda: made(key=GOLDEN_KEY)),  # knew nothing of training, and nothing was trained for it
        (2, trained),  # has no digest
        (3, trained),  # had no lineage
        (4, of_recipe),  # had neither runs nor sweeps
        (5, of_sweep),  # had no folder of a model
    ],
)
def test_records_of_older_schemas_are_read(number: int, record: Callable[[], Record]) -> None:
    text = (GOLDEN / f"record-{number}.json").read_text()
    assert RECORDS.parse(text, where="golden") == record()


def test_a_newer_schema_is_refused() -> None:
    newer = json.dumps({**json.loads(made().to_json()), "schema": schema.SCHEMA + 1})
    with pytest.raises(RecordError, match="written by a newer version") as caught:
        RECORDS.parse(newer, where="x.json")
    assert caught.value.exit_code == 2


def test_an_older_schema_is_migrated_step_by_step() -> None:
    old = {**json.loads(made().to_json()), "schema": -1, "score": 0.5}
    del old["main_score"], old["digest"]

    def rename(raw: dict[str, object]) -> dict[str, object]:
        return {**{k: v for k, v in raw.items() if k != "score"}, "main_score": raw["score"]}

    steps = {-1: rename, 0: lambda raw: {**raw, "purpose": "trial"}, **schema.MIGRATIONS}
    migrated = replace(RECORDS, migrations=steps).parse(json.dumps(old), where="old.json")
    assert (migrated.main_score, migrated.purpose, migrated.schema_version) == (0.5, "trial", schema.SCHEMA)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "has no schema number"),
        ('{"schema": 0}', "which no version ever wrote"),
        ('{"schema": 2, "key": "x"}', "is not a record of schema 6: status"),
    ],
)
def test_what_is_no_record_is_said(text: str, said: str) -> None:
    with pytest.raises(RecordError, match=said):
        RECORDS.parse(text, where="x.json")


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put("tiny-aaaa", made())
    assert store.get("tiny-aaaa", "STS12", KEY) == made()
    assert store.get("tiny-aaaa", "STS12", "other") is None
    assert list(iter_records(store)) == [made()]


def test_the_first_record_stays_unless_asked(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(SLUG, made())
    assert store.put(SLUG, scored(0.9)).main_score == 0.5
    assert store.put(SLUG, scored(0.9), again=True).main_score == 0.9
    found = store.get(SLUG, "STS12", KEY)
    assert found is not None
    assert found.main_score == 0.9


BESIDE = {
    "examples": ExamplesPart(file="", rows=3, sha256=""),
    "run": RunPart(file="", rows=3, sha256="", depth=2),
}


def test_examples_and_run_lie_beside_the_record(tmp_path: Path) -> None:
    store = Store(tmp_path)
    record = store.put(SLUG, made(**BESIDE), b"columns", run=b"hits")
    for beside, part, content in (
        (store.find_part_file(record, SLUG), record.examples, b"columns"),
        (store.find_part_file(record, SLUG, "run"), record.run, b"hits"),
    ):
        assert beside is not None
        assert part is not None
        assert beside.read_bytes() == content
        assert (part.file, part.rows) == (beside.name, 3)
        assert part.sha256 == hashlib.sha256(content).hexdigest()
    store.put(SLUG, made(examples=BESIDE["examples"]), b"others", again=True)
    assert [path.suffixes for path in sorted(beside.parent.iterdir())] == [
        [".examples", ".parquet"],
        [".json"],
    ]


def test_predictions_without_a_record_are_what_a_killed_process_left(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(SLUG, made(**BESIDE), b"of the killed", run=b"of the killed")
    store.locate_record(SLUG, "STS12", KEY).unlink()
    record = store.put(SLUG, made(**BESIDE), b"its own", run=b"its run")
    run = store.find_part_file(record, SLUG, "run")
    assert run is not None
    assert run.read_bytes() == b"its run"
    beside = store.find_part_file(record, SLUG)
    assert beside is not None
    assert beside.read_bytes() == b"its own"
    beside.unlink()
    assert store.find_part_file(record, SLUG) is None


def test_a_failure_is_kept_apart_and_ends_with_success(tmp_path: Path) -> None:
    store = Store(tmp_path)
    error = ErrorPart(kind="ValueError", message="no", traceback="Traceback …")
    store.put(SLUG, made(status="failed", main_score=None, error=error))
    assert store.get(SLUG, "STS12", KEY) is None
    assert [r.error for r in iter_records(store, failed=True)] == [error]
    store.put(SLUG, made())
    assert list(iter_records(store, failed=True)) == []
    assert len(list(iter_records(store))) == 1


def test_trials_never_come_with_final_records(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(SLUG, made(purpose="trial"))
    assert list(iter_records(store)) == []
    assert len(list(iter_records(store, purpose="trial"))) == 1


@pytest.mark.parametrize("content", [b'{"schema": 1, "ke', b"", b"\xff\xfe\x00"])
def test_a_truncated_record_is_set_aside(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path)
    path = store.locate_record(SLUG, "STS12", KEY)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert store.get(SLUG, "STS12", KEY) is None
    assert "is damaged: it is truncated, or no JSON" in caplog.text
    assert path.read_bytes() == content  # reading changes nothing
    assert store.put(SLUG, made()) == made()
    assert path.with_suffix(".broken").read_bytes() == content
    assert store.get(SLUG, "STS12", KEY) == made()


def edited(raw: dict[str, Any], **changes: object) -> str:
    """A record's document, changed as an editor would."""
    return json.dumps({**raw, **changes})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda raw: edited(raw, main_score=0.75), "its digest says"),
        (lambda raw: edited(raw, scores={}), "its digest says"),
        (lambda raw: edited(raw, training={"recipe": "glue-quick"}), "its digest says"),
        (lambda raw: edited(raw, schema=2), "its digest says"),
        (lambda raw: json.dumps({n: v for n, v in raw.items() if n != "digest"}), "it has no digest"),
        (lambda raw: json.dumps({n: v for n, v in raw.items() if n != "schema"}), "its digest says"),
        (lambda _: made(identity={**IDENTITY, "seed": 1}).to_json(), "the record of another key"),
        (lambda _: made(key=KEY, identity={"seed": 1}).to_json(), "not the digest of its identity"),
        (lambda _: made(task=TaskPart(name="Other", type="STS", metric="m")).to_json(), "another task"),
        (
            lambda _: made(model=ModelPart(name="x", source="x", artifact="b" * 64, weights="w")).to_json(),
            "not that of its model",
        ),
        (lambda _: made(status="failed").to_json(), "a record that is failed"),
    ],
)
def test_a_record_is_believed_for_its_content_not_its_place(
    tmp_path: Path, change: Callable[[dict[str, Any]], str], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path)
    store.put(SLUG, made())
    path = store.locate_record(SLUG, "STS12", KEY)
    text = change(json.loads(path.read_text()))
    path.write_text(text)
    with caplog.at_level(logging.WARNING):
        assert [store.get(SLUG, "STS12", KEY) for _ in range(2)] == [None, None]
        assert list(iter_records(store)) == []
    (warning,) = caplog.messages
    assert str(path) in warning
    assert said in warning
    assert store.put(SLUG, made()) == made()
    assert path.with_suffix(".broken").read_text() == text
    assert list(iter_records(store)) == [made()]


def test_records_without_a_digest_are_held_against_their_key(tmp_path: Path) -> None:
    store = Store(tmp_path)
    path = store.locate_record(SLUG, "STS12", KEY)
    path.parent.mkdir(parents=True)
    old = {n: v for n, v in json.loads(made().to_json()).items() if n != "digest"}
    path.write_text(json.dumps({**old, "schema": 2}))
    assert store.get(SLUG, "STS12", KEY) == made()
    path.write_text(json.dumps({**old, "schema": 2, "identity": {**IDENTITY, "seed": 43}}))
    assert store.get(SLUG, "STS12", KEY) is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=10,
    )
)
def test_any_provenance_keeps_its_digest(value: object) -> None:
    text = made(provenance={"odd": value}).to_json()
    assert RECORDS.parse(text, where="here").to_json() == text
    assert RECORDS.parse(json.dumps(json.loads(text), indent=7), where="here")


def test_the_committed_reference_records_hold() -> None:
    folder = Path(__file__).parents[3] / "results" / "reference"
    files = list(folder.glob("records/*/*/*.json"))
    assert [Store.parse(path).key for path in files] == [path.stem for path in files] != []


def test_damaged_examples_count_as_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(tmp_path)
    record = store.put(SLUG, made(**BESIDE), b"columns", run=b"hits")
    for part in ("examples", "run"):
        path = store.locate_record(SLUG, "STS12", KEY).with_suffix(f".{part}.parquet")
        path.write_bytes(b"colunms")
        assert [store.find_part_file(record, SLUG, part) for _ in range(2)] == [None, None]
        assert f"{path} is damaged" in caplog.messages[-1]
    assert len(caplog.messages) == 2


def test_of_two_at_once_a_record_has_the_examples_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one replaced the examples before it saw the first one's record, whose run came later."""
    store = Store(tmp_path)
    write_once = files.write_once

    def late(path: Path, content: bytes) -> bool:
        monkeypatch.setattr(files, "write_once", write_once)
        beside = path.with_suffix(".examples.parquet")
        mine = beside.read_bytes()
        store.put(SLUG, scored(0.1, **BESIDE), b"first", run=b"first run")
        files.replace(beside, mine)
        return write_once(path, content)

    monkeypatch.setattr(files, "write_once", late)
    store.put(SLUG, scored(0.2, **BESIDE), b"second", run=b"second run")
    (record,) = iter_records(store)
    assert record.main_score == 0.2
    assert store.find_part_file(record, SLUG) is not None
    assert store.find_part_file(record, SLUG, "run") is not None


def test_preparing_removes_what_dead_processes_and_past_failures_left(tmp_path: Path) -> None:
    store = Store(tmp_path)
    error = ErrorPart(kind="ValueError", message="no")
    for seed in (1, 2):
        store.put(SLUG, made(identity={"seed": seed}, status="failed", error=error))
    superseded, open_ = sorted(
        (p for p in tmp_path.rglob("*.failed.json")), key=lambda p: digest({"seed": 2}) in p.name
    )
    content = superseded.read_bytes()
    store.put(SLUG, made(identity={"seed": 1}))
    superseded.write_bytes(content)  # as a union of two folders leaves it
    store.leases.mkdir()
    dead_lease(store.leases, "dead")
    living = Leases(store.leases)
    assert living.claim("living")
    store.prepare(["another-0123456789ab"])
    assert superseded.exists()
    store.prepare([SLUG])
    assert [path.stem for path in store.leases.glob("*.json")] == ["living"]
    living.release_leases()
    assert (superseded.exists(), open_.exists()) == (False, True)


def test_a_final_record_takes_the_place_of_a_trial_but_not_the_other_way_round(tmp_path: Path) -> None:
    store = Store(tmp_path)
    place = (SLUG, "STS12", KEY)
    store.put(SLUG, made(purpose="trial"))
    assert store.get(*place) is None
    assert store.get(*place, purpose="trial") == made(purpose="trial")
    store.put(SLUG, made())
    assert store.get(*place) == made()
    assert store.put(SLUG, made(purpose="trial")) == made()
    assert store.get(*place, purpose="trial") == made()


def test_one_artifact_has_one_folder_whatever_it_is_called(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put("first-aaaaaaaaaaaa", made())
    assert store.get("second-aaaaaaaaaaaa", "STS12", KEY) == made()
    store.put("second-aaaaaaaaaaaa", made(identity={**IDENTITY, "seed": 43}))
    assert [p.name for p in (tmp_path / "records").iterdir()] == ["first-aaaaaaaaaaaa"]
    assert store.get("other-bbbbbbbbbbbb", "STS12", KEY) is None


def test_many_records_are_looked_up_with_few_listings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    (tmp_path / "records" / "first-bbbbbbbbbbbb").mkdir(parents=True)
    os.utime(tmp_path / "records", (1e9, 1e9))
    listed = []
    listing = os.listdir
    monkeypatch.setattr(os, "listdir", lambda folder: listed.append(folder) or listing(folder))
    for number in range(100):
        assert store.get(f"other-{number:012}", "STS12", KEY) is None
    assert len(listed) == 1
    Store(tmp_path).put("third-aaaaaaaaaaaa", made())  # by another process, whose name for it is another
    assert store.get("fourth-aaaaaaaaaaaa", "STS12", KEY) == made()


def test_files_that_are_no_records_are_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path)
    store.put(SLUG, made())
    newer = json.dumps({**json.loads(made().to_json()), "schema": schema.SCHEMA + 1})
    for name, content in (("a", "[]"), ("b", newer), ("c", "{")):
        (tmp_path / "records" / SLUG / "STS12" / f"{name}.json").write_text(content)
    with caplog.at_level(logging.WARNING):
        assert list(iter_records(store)) == [made()]
    assert len(caplog.records) == 3


@pytest.mark.parametrize("name", ["../../etc", "a/b", "…", ".hidden"])
def test_no_task_name_leaves_the_folder(tmp_path: Path, name: str) -> None:
    path = Store(tmp_path).locate_record("t", name, "k")
    assert path.parent.parent == tmp_path / "records" / "t"
