"""The index of a results folder gives what reading every record gives, whatever has happened to either."""

from __future__ import annotations

import hashlib
import math
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench_records import write_models
from click.testing import CliRunner

from harness.commands.list import command as list_command
from harness.core import files
from harness.core.documents import append_digest, verify_digest
from harness.results import index
from harness.results.cost.duration import PastScore, PastScores
from harness.results.index import RecordIndex, distinguish_models
from harness.results.results import MeasuredSuite
from harness.results.scores import NamedModel, distinguish_names
from harness.storage.record import Record
from harness.storage.store import Store
from stored_records import iter_records

MODELS = 16


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few and new records are in the index, too."""
    monkeypatch.setattr(index, "LEAST_ROWS", 1)
    monkeypatch.setattr(index, "SETTLED_NS", 0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_models(tmp_path / "results", range(MODELS))
    return tmp_path / "results"


def build_model(record: Record) -> NamedModel:
    model, lineage = record.model, record.lineage
    key, shared = lineage.group if lineage else model.artifact, model.source == "local" or lineage is not None
    return NamedModel(
        name=model.name, key=key, folder=model.folder or "", revision=model.revision or "", shared=shared
    )


def read_all(folder: Path) -> list[object]:
    """What the records say, each of them read."""
    records = list(iter_records(Store(folder)))
    models = [build_model(record) for record in records]
    labels = distinguish_names(models)
    return [
        [
            (r.key, r.model.artifact, r.task.name, r.task.metric, r.main_score, labels[m.key, m.name])
            for r, m in zip(records, models, strict=True)
        ],
        [PastScore.from_record(record) for record in records],
    ]


def read_index(folder: Path, cache: Path) -> list[Any]:
    """The same by the index."""
    opened = RecordIndex(folder, cache)
    labels = distinguish_models(opened.list_models())
    return [
        [
            (r.key, r.model.artifact, r.task, r.metric, r.main_score, labels[r.model])
            for r in opened.list_rows()
        ],
        opened.past_scores.list_scores(),
    ]


def ask_everything(scores: PastScores) -> list[object]:
    """Whatever an estimate may ask of past scores."""
    every = scores.list_scores()
    models = ["", *{one.speed.model for one in every}]
    return [
        [scores.find_largest(data) for data in {one.data: 0 for one in every}],
        [scores.list_streams(one.data, one.setup) for one in every],
        [scores.list_overheads(data, type_) for data, type_ in {(one.data, one.type): 0 for one in every}],
        [scores.list_overheads("", type_) for type_ in {one.type: 0 for one in every}],
        [scores.sum_lengths(model) for model in sorted(models)],
        [scores.list_speeds(one.speed.device, "float32", one.speed.model) for one in every],
        [
            scores.list_nearest_speeds(every[0].speed.device, "float32", size)
            for size in (10**6, 10**7, 10**8)
        ],
        [scores.list_searches(every[0].speed.device, kind) for kind in ("compared", "indexed", "probed")],
    ]


def test_estimates_learn_the_same_from_the_index(folder: Path, tmp_path: Path) -> None:
    every = [PastScore.from_record(record) for record in iter_records(Store(folder))]
    truth = ask_everything(PastScores.from_scores(every))
    assert all(truth[:6])
    for _ in range(2):
        assert ask_everything(RecordIndex(folder, tmp_path).past_scores) == truth
    largest = {
        one.data: max((s for s in every if s.data == one.data), key=lambda s: s.texts) for one in every
    }
    assert truth[0] == [*largest.values()]
    speeds = [one.speed for one in every if one.speed.tokens and one.speed.seconds]
    near = min(speeds, key=lambda speed: abs(math.log(speed.parameters / 10**7)))
    assert truth[6][1] == [speed for speed in speeds if speed.model == near.model]


@pytest.mark.parametrize("known", [True, False])
def test_estimates_learn_from_the_models_that_got_a_task_last(
    folder: Path, tmp_path: Path, known: bool
) -> None:
    models = sorted(folder.glob("records/*"), key=lambda model: hashlib.sha256(model.name.encode()).digest())
    for age, model in enumerate(models):
        os.utime(model, (10**9 - age, 10**9 - age))
    if known:
        RecordIndex(folder, tmp_path)
    edit_in_place(folder)
    # Neither is a model.
    (folder / "records/circle").symlink_to("circle")
    (folder / "records/gone").symlink_to("nowhere")
    always = models[-1].name
    chosen = {*(model.name for model in models[:3]), always}
    records = [r for r in iter_records(Store(folder)) if r.model.artifact[:12] in {c[-12:] for c in chosen}]
    truth = ask_everything(PastScores.from_scores(map(PastScore.from_record, records)))
    for _ in range(2):
        some = RecordIndex(folder, tmp_path, latest=3, always=[always, "removed"])
        assert ask_everything(some.past_scores) == truth
    assert read_index(folder, tmp_path) == read_all(folder)
    assert read_index(folder, tmp_path / "new") == read_all(folder)


def pick_record(folder: Path) -> Path:
    return sorted(path for path in folder.glob("records/*/*/*.json") if Store.parse(path).purpose == "final")[
        3
    ]


def change_score(path: Path) -> bytes:
    """The content of a record with another score in as many bytes."""
    content = verify_digest(path.read_bytes())
    before = repr(content["main_score"])
    content["main_score"] = float(before[:-1] + str((int(before[-1]) + 1) % 9 + 1))
    text = append_digest(content).encode()
    assert content["main_score"] != float(before)
    return text


def edit_in_place(folder: Path) -> None:
    path = pick_record(folder)
    stat, text = path.stat(), change_score(path)
    path.write_bytes(text)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def replace_by_another(folder: Path) -> None:
    path = pick_record(folder)
    stat, other = path.stat(), path.with_suffix(".new")
    other.write_bytes(change_score(path))
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other.replace(path)


def remove_model(folder: Path) -> None:
    for path in pick_record(folder).parents[1].glob("*/*"):
        path.unlink()


def damage_record(folder: Path) -> None:
    path = pick_record(folder)
    path.write_bytes(path.read_bytes()[:100])


def rename_folder(folder: Path) -> None:
    task = pick_record(folder).parent
    task.rename(task.with_name("Other"))


def make_trial(folder: Path) -> None:
    path = pick_record(folder)
    content = verify_digest(path.read_bytes())
    path.write_text(append_digest({**content, "purpose": "trial"}))


CHANGES: dict[str, Callable[[Path], object]] = {
    "nothing": lambda folder: None,
    "edited": edit_in_place,
    "replaced": replace_by_another,
    "added": lambda folder: write_models(folder, range(MODELS, MODELS + 3)),
    "removed": lambda folder: pick_record(folder).unlink(),
    "model removed": remove_model,
    "damaged": damage_record,
    "renamed": rename_folder,
    "a trial now": make_trial,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=[*CHANGES])
def test_a_folder_that_has_changed_is_seen_as_it_is(
    folder: Path, tmp_path: Path, change: Callable[[Path], object]
) -> None:
    before = read_all(folder)
    assert read_index(folder, tmp_path) == before
    change(folder)
    truth = read_all(folder)
    assert (truth == before) == (change is CHANGES["nothing"])
    assert read_index(folder, tmp_path) == truth
    assert read_index(folder, tmp_path) == truth


def flip_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[content.index(b"org0/encoder-0")] ^= 1
    file.write_bytes(content)


def write_other_tables(file: Path) -> None:
    """An index of the right name and digest that has other columns."""
    other = file.with_suffix(".other")
    database = sqlite3.connect(other)
    database.execute("CREATE TABLE records(path, name)")
    database.commit()
    database.close()
    digest = hashlib.sha256(other.read_bytes()).hexdigest()
    other.replace(file.with_name(f"{file.name.partition('-')[0]}-{digest}.sqlite"))
    file.unlink()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "deleted": lambda file: file.unlink(),
    "truncated": lambda file: os.truncate(file, 5000),
    "flipped": flip_bit,
    "empty": lambda file: file.write_bytes(b""),
    "other tables": write_other_tables,
    "a folder": lambda file: (file.unlink(), file.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=[*DAMAGES])
def test_a_damaged_index_is_not_believed(
    folder: Path, tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    truth = read_all(folder)
    assert read_index(folder, tmp_path) == truth
    (file,) = (tmp_path / "records").glob("*.sqlite")
    damage(file)
    assert read_index(folder, tmp_path) == truth
    assert read_index(folder, tmp_path) == truth


@pytest.mark.parametrize(
    "facts", [{"tokens_encoded": 10**30}, {"tokens_encoded": []}, {"device": {"kind": ["cpu"]}}], ids=repr
)
def test_a_record_whose_circumstances_no_table_holds_is_in_lists_alone(
    folder: Path, tmp_path: Path, facts: dict[str, Any]
) -> None:
    path = pick_record(folder)
    content = verify_digest(path.read_bytes())
    key, model = content["key"], content["model"]["artifact"]
    rows, past = read_index(folder, tmp_path)
    content["provenance"] |= facts
    path.write_text(append_digest(content))
    new_rows, new_past = read_index(folder, tmp_path)
    assert new_rows == rows
    assert {row[0] for row in new_rows} >= {key}
    lost = [one for one in past if one not in new_past]
    assert (len(past) - len(new_past), [one.speed.model for one in lost]) == (1, [model])


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    reads: list[Path] = []
    parse = Store.parse
    monkeypatch.setattr(Store, "parse", staticmethod(lambda path: (reads.append(path), parse(path))[1]))
    return reads


def test_only_what_has_changed_is_read_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    RecordIndex(folder, tmp_path)
    reads = count_reads(monkeypatch)
    RecordIndex(folder, tmp_path)
    assert reads == []
    edit_in_place(folder)
    reads.clear()
    RecordIndex(folder, tmp_path)
    assert len(reads) == 1


def test_a_record_that_may_change_in_the_same_tick_is_read_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "SETTLED_NS", 10**12)
    first = read_index(folder, tmp_path)
    reads = count_reads(monkeypatch)
    assert read_index(folder, tmp_path) == first
    files = [path for path in folder.glob("records/*/*/*.json") if not path.name.endswith(".failed.json")]
    assert len(reads) == len(files)


def test_an_index_of_another_machine_is_another(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    RecordIndex(folder, tmp_path)
    monkeypatch.setattr(files, "get_host_name", lambda: "elsewhere")
    reads = count_reads(monkeypatch)
    RecordIndex(folder, tmp_path)
    assert reads


def test_several_processes_read_the_same(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "MANY", 1)
    monkeypatch.setattr(index, "BATCH", 7)
    monkeypatch.setattr(index, "count_cores", lambda: 2)
    damage_record(folder)
    assert read_index(folder, tmp_path) == read_all(folder)


def test_a_cache_that_cannot_be_written_costs_only_time(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    assert read_index(folder, tmp_path / "cache") == read_all(folder)


def test_a_damaged_record_is_told_each_time(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage_record(folder)
    for _ in range(2):
        # As in a process of its own, which has warned of nothing yet.
        monkeypatch.setattr("harness.storage.store._warned", set())
        caplog.clear()
        RecordIndex(folder, tmp_path)
        assert ["is damaged" in message for message in caplog.messages] == [True]


def test_rows_are_in_the_order_of_paths(folder: Path, tmp_path: Path) -> None:
    """In that of their parts: as text "a-b/" would come before "a/"."""
    records = folder / "records"
    names = sorted(path.name for path in records.iterdir())
    (records / names[0]).rename(records / f"a-b-{names[0].rpartition('-')[2]}")
    (records / names[1]).rename(records / f"a-{names[1].rpartition('-')[2]}")
    (records / names[2]).rename(records / f"a-{names[1].rpartition('-')[2]}-{names[2].rpartition('-')[2]}")
    (records / "a").write_text("no folder")
    (records / names[3] / "a").write_text("no folder")
    for _ in range(2):
        assert read_index(folder, tmp_path) == read_all(folder)


def test_show_reads_the_records_of_its_model_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pick_record(folder)
    key = Store.parse(path).model.artifact
    mine = sum(record.model.artifact == key for record in iter_records(Store(folder)))
    MeasuredSuite.load_records(key, folder)
    reads = count_reads(monkeypatch)
    assert len(MeasuredSuite.load_records(key, folder).records) == mine
    assert len([read for read in reads if folder in read.parents]) == mine < MODELS


def test_a_record_that_vanishes_while_it_is_looked_up_is_left_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = pick_record(folder)
    key, gone = Store.parse(path).model.artifact, Store.parse(path).key
    before = {record.key for record in MeasuredSuite.load_records(key, folder).records}
    list_rows = RecordIndex.list_rows

    def list_and_remove(*arguments: Any) -> Any:
        rows = list_rows(*arguments)
        path.unlink(missing_ok=True)
        return rows

    monkeypatch.setattr(RecordIndex, "list_rows", list_and_remove)
    assert {record.key for record in MeasuredSuite.load_records(key, folder).records} == before - {gone}


def test_a_limit_shows_the_first_rows_and_the_number_of_all(folder: Path) -> None:
    total = len(list(iter_records(Store(folder))))
    words = ["records", "--results", str(folder)]
    shown = CliRunner().invoke(list_command, [*words, "--rows", "3"], standalone_mode=False)
    assert f"3 of {total} records" in shown.output
    everything = CliRunner().invoke(list_command, words, standalone_mode=False)
    assert f"{total} records" in everything.output
    assert len(everything.output.splitlines()) - len(shown.output.splitlines()) == total - 3


def test_an_index_needs_no_library_of_tables() -> None:
    code = "import sys, harness.results.index; print(sorted({'duckdb', 'pyarrow', 'torch'} & {*sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
