"""The index: what is read, what is kept, what is dropped, and who may write at once."""

from __future__ import annotations

import json
import logging
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from harness.core.documents import append_digest
from harness.core.errors import StoreError
from harness.core.keys import digest
from harness.storage import imported
from harness.storage.record import ErrorPart, Record
from harness.storage.store import Store
from leaderboard.data import backbones, documents, records
from leaderboard.data import snapshot as module
from leaderboard.data.entries import Unit
from leaderboard.data.queries import IndexChanged, Queries
from leaderboard.data.scores import SuiteScores
from leaderboard.data.settings import SiteSettings
from leaderboard.data.snapshot import SiteIndex, open_index
from leaderboard.data.suites import REASONS, collect_scopes
from leaderboard.data.tables import Tables
from site_data import (
    Import,
    fill,
    made_of,
    measured_model,
    names,
    put,
    put_imports,
    put_model,
    scored,
    small_settings,
    spread_scores,
    standard_imports,
    suites,
    task,
    trained,
)

NANO = names("nanobeir")
M = measured_model("m")
FAILED = ErrorPart(kind="E", message="m")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the units that were read, as they are."""
    seen: list[str] = []

    def note(unit: Unit) -> Sequence[Any]:
        seen.append(unit.name)
        return unit.read()

    def watch(iter_units: Callable[..., Iterator[Unit]]) -> Callable[..., Iterator[Unit]]:
        return lambda *given: (replace(unit, read=partial(note, unit)) for unit in iter_units(*given))

    for source, name in (
        (records, "iter_record_units"),
        (documents, "iter_document_units"),
        (backbones, "iter_paper_units"),
    ):
        monkeypatch.setattr(source, name, watch(getattr(source, name)))
    return seen


def opened(settings: SiteSettings) -> SiteIndex:
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=suites()):
        return open_index(settings)


@pytest.fixture
def index(tmp_path: Path) -> SiteIndex:
    (tmp_path / "results").mkdir()
    return opened(small_settings(tmp_path))


def contents(index: SiteIndex) -> dict[str, Any]:
    """All that pages can see, but for numbers that only name rows."""
    queries = Queries(index, index.version)
    entries, found = [*queries.entries.values()], dict[str, Any]()
    results = queries.find_results()
    records = queries.load_result_documents([r.id for r in results])
    facts = queries.load_facts(id=[e.id for e in entries])
    for entry in entries:
        found[entry.slug] = (
            replace(entry, id=0),
            facts[entry.id],
            [
                (r.task, r.status, r.value, r.key, records.get(r.id) or queries.load_result_document(r.id))
                for r in results
                if r.entry == entry.id
            ],
        )
    for slug, one in suites().items():
        for view in tuple(one.suite.conventions) or ("",):
            grid = queries.load_suite_scores(one, view, pinned=True)
            order = sorted(range(len(grid.entries)), key=lambda row: grid.entries[row].slug)
            found[f"{slug}/{view}"] = [
                [grid.entries[row].slug for row in order],
                repr(grid.values[order].tolist()),
                grid.reasons[order].tolist(),
                repr(grid.over_tasks.values[order].tolist()),
            ]
    return found


def nano_of(index: SiteIndex, **options: Any) -> SuiteScores:
    """NanoBEIR as the newest version has it."""
    return Queries(index, index.version).load_suite_scores(suites()["nanobeir"], **options)


def put_one(folder: Path, name: str = "m", letter: str = "a") -> None:
    """Write a record of a model."""
    model = measured_model(name, letter)
    put(folder / "results", model, [scored(model, NANO[0], 0.5)])


def count(index: SiteIndex, table: str) -> int:
    return int(Queries(index, index.version)._fetch_rows(f"SELECT count(*) FROM {table}")[0][0])


def test_taking_in_and_looking_again(index: SiteIndex, tmp_path: Path, read: list[str]) -> None:
    fill(tmp_path)
    first = index.refresh()
    assert first == len(read) + len(standard_imports())
    assert len(read) == len(set(read)) > 0
    version = index.version
    assert (index.refresh(), index.version) == (0, version)
    assert len(read) + len(standard_imports()) == first  # nothing was read


def test_one_changed_record_reads_its_folder_alone(index: SiteIndex, tmp_path: Path, read: list[str]) -> None:
    fill(tmp_path)
    index.refresh()
    version = index.version
    read.clear()
    model = measured_model("minilm-ish")
    Store(tmp_path / "results").put(model.slug, scored(model, NANO[0], 0.99), again=True)
    assert (index.refresh(), index.version) == (1, version + 1)
    assert read == [model.slug.rpartition("-")[2]]
    queries = Queries(index, index.version)
    (result,) = [r for r in queries.find_results(task=NANO[0]) if r.key == scored(model, NANO[0], 0.99).key]
    assert result.value == 0.99
    assert queries.load_result_document(result.id)["main_score"] == 0.99


def test_a_folder_that_is_gone_leaves_nothing(index: SiteIndex, tmp_path: Path, read: list[str]) -> None:
    fill(tmp_path)
    index.refresh()
    before, tables = contents(index), ("entries", "results", "scores", "documents")
    counts = [count(index, table) for table in tables]
    other = measured_model("other", "f")
    put(tmp_path / "results", other, [scored(other, NANO[0], 0.5), trained(other, "RTE", 0.5)])
    index.refresh()
    version = index.version
    assert contents(index) != before
    read.clear()
    shutil.rmtree(tmp_path / "results" / "records" / other.slug)
    assert (index.refresh(), index.version) == (0, version + 1)
    assert read == []
    assert contents(index) == before
    assert [count(index, table) for table in tables] == counts


def test_another_import_takes_the_place_of_the_former_one(
    index: SiteIndex, tmp_path: Path, read: list[str]
) -> None:
    fill(tmp_path)
    index.refresh()
    version = index.version
    read.clear()
    changed, *others = standard_imports()
    put_imports(tmp_path / "results", [replace(changed, scores=spread_scores(NANO, 0.11)), *others[:-1]])
    assert (index.refresh(), index.version) == (len(others), version + 1)
    assert read == []  # nothing but the import
    found = {e.model: e for e in Queries(index, 2).entries.values() if e.origin == "imported"}
    assert set(found) == {changed.model, *(one.model for one in others[:-1])}
    rows = {row.task: row.value for row in Queries(index, 2).find_results(entry=found[changed.model].id)}
    assert rows == {name: pytest.approx(value) for name, value in spread_scores(NANO, 0.11).items()}


def test_an_index_made_at_once_is_one_made_step_by_step(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    slowly = opened(small_settings(tmp_path))
    slowly.refresh()
    model = measured_model("minilm-ish")
    put(results, model, [scored(model, NANO[0], 0.1)])
    slowly.refresh()
    put_imports(results, [Import(model="x/y", scores={NANO[0]: 0.4})])
    slowly.refresh()
    shutil.rmtree(results)
    fill(tmp_path)
    slowly.refresh()
    at_once = opened(replace(small_settings(tmp_path), snapshots=tmp_path / "other"))
    at_once.refresh()
    assert contents(slowly) == contents(at_once)


@pytest.mark.parametrize("how", ["form", "scopes"])
def test_an_index_of_another_form_is_made_anew(
    tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path)
    first = opened(small_settings(tmp_path))
    first.refresh()
    version, before = first.version, contents(first)
    if how == "form":
        monkeypatch.setattr(module, "FORM", module.FORM + 1)
        again = opened(small_settings(tmp_path))
        assert again.refresh() > 0
        assert contents(again) == contents(first) == before  # whoever reads the old one goes on
        return
    fewer = {name: one for name, one in suites().items() if name != "glue"}
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=fewer):
        again = open_index(small_settings(tmp_path))
    assert again.refresh() > 0
    assert len(again.scope_ids) == sum(len(some) for some in collect_scopes(list(fewer.values())).values())
    assert first.version == version


def test_a_failed_record_and_then_a_done_one(index: SiteIndex, tmp_path: Path) -> None:
    put(tmp_path / "results", M, [scored(M, NANO[0], None, error=FAILED)])
    index.refresh()
    assert REASONS[nano_of(index, pinned=True).reasons[0, 0]] == "failed"
    put_one(tmp_path)
    index.refresh()
    grid = nano_of(index, pinned=True)
    assert (REASONS[grid.reasons[0, 0]], grid.values[0, 0]) == ("", 0.5)


def test_of_several_results_of_a_task_the_one_that_the_suite_asks_for_counts(
    index: SiteIndex, tmp_path: Path
) -> None:
    good = scored(M, NANO[0], 0.5)

    def on(revision: str, score: float, written: str) -> Record:
        identity = {**good.identity, "data": {**good.identity["data"], "revision": revision}}
        plain = scored(M, NANO[0], score)
        provenance = {**plain.provenance, "written": written}
        return plain.model_copy(
            update={"identity": identity, "key": digest(identity), "provenance": provenance}
        )

    others = [on("f" * 40, 0.8, "2027-01-01T00:00:00+00:00"), on("e" * 40, 0.7, "2028-01-01T00:00:00+00:00")]
    put(tmp_path / "results", M, [*others, scored(M, NANO[1], 0.3)])
    index.refresh()
    grid = nano_of(index, pinned=True)
    assert (REASONS[grid.reasons[0, 0]], grid.values[0, 0]) == ("other", 0.7)  # the newest of equally good
    put(tmp_path / "results", M, [good])
    index.refresh()
    queries, grid = Queries(index, 2), nano_of(index, pinned=True)
    assert (REASONS[grid.reasons[0, 0]], grid.values[0, 0]) == ("", 0.5)
    (row,) = [r for r in queries.find_results(task=NANO[0]) if r.id == grid.results[0, 0]]
    assert row.key == good.key
    assert len(queries.find_results(task=NANO[0])) == 3  # the others are still told of


def test_a_copied_folder_is_left_out_and_told(
    index: SiteIndex, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put_one(tmp_path)
    home = tmp_path / "results" / "records"
    shutil.copytree(home / M.slug, home / f"backup-{M.key[:8]}")
    with caplog.at_level(logging.WARNING):
        index.refresh()
    assert [one.model for one in Queries(index, 1).entries.values() if one.origin == "measured"] == ["m"]
    assert any("two folders" in message for message in caplog.messages)


def test_reference_records_stand_beside_the_results(tmp_path: Path) -> None:
    put_one(tmp_path)
    put(tmp_path / "reference", M, [scored(M, NANO[0], 0.6), scored(M, NANO[1], 0.7)])
    index = opened(replace(small_settings(tmp_path), reference=tmp_path / "reference", reported=None))
    index.refresh()
    grid = nano_of(index, pinned=True)
    assert len(grid.entries) == 1
    assert grid.values[0, :2].tolist() == [0.5, 0.7]


@pytest.mark.parametrize("score", [None, float("nan"), float("inf")])
def test_a_score_that_is_no_number_is_stored_as_none(
    index: SiteIndex, tmp_path: Path, score: float | None
) -> None:
    record = scored(M, NANO[0], score)
    path = Store(tmp_path / "results").locate_record(M.slug, NANO[0], record.key)
    path.parent.mkdir(parents=True)
    path.write_text(append_digest(record.model_dump(by_alias=True)))
    index.refresh()
    assert [row.value for row in Queries(index, 1).find_results(task=NANO[0])] == [None]
    assert REASONS[nano_of(index, pinned=True).reasons[0, 0]] == "bad"


def test_texts_that_no_database_takes(index: SiteIndex, tmp_path: Path) -> None:
    model = measured_model("a\0b" + "n" * 10_000)
    record = scored(model, NANO[0], 0.5)
    odd = record.model_copy(
        update={"provenance": {**record.provenance, "written": "2025" + "é" * 500},
                "model": record.model.model_copy(update={"parameters": 10**30, "dimension": -(2**40)})}
    )  # fmt: skip
    put(tmp_path / "results", replace(model, name="short"), [odd])
    put_imports(tmp_path / "results", [Import(model="x\0y", revision="r\0", scores={NANO[0]: 0.5})])
    assert index.refresh() == 3
    assert index.refresh() == 0
    by_origin = {entry.origin: entry for entry in Queries(index, 1).entries.values()}
    assert by_origin["imported"].model == "x\ufffdy"
    measured = by_origin["measured"]
    assert measured.model == "a\ufffdb" + "n" * 10_000
    assert (measured.parameters, measured.dimension) == (None, None)
    assert len(measured.newest or "") == 32


def test_a_model_with_less_than_no_parameters_has_no_size(index: SiteIndex, tmp_path: Path) -> None:
    record = scored(M, NANO[0], 0.5)
    odd = record.model_copy(update={"model": record.model.model_copy(update={"parameters": -5})})
    put(tmp_path / "results", M, [odd])
    index.refresh()
    (entry,) = [e for e in Queries(index, 1).entries.values() if e.origin == "measured"]
    assert (entry.parameters, entry.size) == (-5, "")


def test_threads_that_refresh_at_once_take_in_once(tmp_path: Path, read: list[str]) -> None:
    fill(tmp_path)
    indexes = [opened(small_settings(tmp_path)) for _ in range(4)]
    start = threading.Barrier(4)

    def go(one: SiteIndex) -> int:
        start.wait()
        return one.refresh()

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(go, indexes))
    assert sorted(found)[:3] == [0, 0, 0]
    assert len({one.version for one in indexes}) == 1
    assert len(read) == len(set(read)) > 0


def test_processes_that_refresh_at_once_take_in_once(tmp_path: Path) -> None:
    fill(tmp_path)
    root = Path(__file__).parents[3]
    code = (
        "import sys; sys.path[:0] = [sys.argv[1], sys.argv[1] + '/tests/support']\n"
        "from pathlib import Path; from unittest import mock; import site_data\n"
        "from leaderboard.data.snapshot import open_index\n"
        "sys.stdin.readline()\n"
        "with mock.patch('leaderboard.data.snapshot.load_site_suites', return_value=site_data.suites()):\n"
        "    index = open_index(site_data.small_settings(Path(sys.argv[2])))\n"
        "print(index.refresh(), index.version)\n"
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(root), str(tmp_path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    said = [process.communicate("go\n", timeout=60)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0]
    assert sorted(one.startswith("0 ") for one in said) == [False, True]
    assert all(one.endswith(" 1\n") for one in said)


def test_a_reader_sees_the_old_index_until_the_new_one_is_whole(index: SiteIndex, tmp_path: Path) -> None:
    fill(tmp_path)
    index.refresh()
    before, seen, reader = contents(index), [], opened(small_settings(tmp_path))
    put_one(tmp_path, "other", "f")
    save = Tables.save_tables

    def watched(self: Any, folder: Path) -> None:
        save(self, folder)
        seen.append(contents(reader))

    with mock.patch.object(Tables, "save_tables", watched):
        index.refresh()
    assert seen == [before]
    assert contents(index) != before


def test_what_cannot_be_read_changes_nothing_and_is_tried_again(index: SiteIndex, tmp_path: Path) -> None:
    fill(tmp_path)
    index.refresh()
    before, version = contents(index), index.version
    put_one(tmp_path, "other", "f")
    with mock.patch("leaderboard.data.records.RecordReader.read", side_effect=OSError("disk")):
        assert index.refresh() == 0
    assert (contents(index), index.version) == (before, version)
    assert index.refresh() == 1


def test_an_import_that_could_not_be_read_is_tried_again(index: SiteIndex, tmp_path: Path) -> None:
    fill(tmp_path)
    table = next((tmp_path / "results").glob("imported/*/scores-*.parquet"))
    whole = table.read_bytes()
    table.write_bytes(whole[: len(whole) // 2])
    index.refresh()
    version = index.version
    assert (index.refresh(), index.version) == (0, version)
    assert {e.origin for e in Queries(index, 1).entries.values()} == {"measured", "reported"}
    table.write_bytes(whole)
    assert index.refresh() == len(standard_imports())


def test_an_import_whose_entries_are_damaged_leaves_what_was_known(index: SiteIndex, tmp_path: Path) -> None:
    fill(tmp_path)
    index.refresh()
    before = contents(index)
    found = imported.Imported.read_import(tmp_path / "results" / "imported" / "mteb-results")
    assert found is not None
    found.update_stamp({"id": "0123456789ab"})  # names tables that are not there
    assert index.refresh() == 0
    assert contents(index) == before


def test_a_reader_keeps_its_version_until_its_files_are_gone(tmp_path: Path) -> None:
    fill(tmp_path)
    one, other = opened(small_settings(tmp_path)), opened(small_settings(tmp_path))
    one.refresh()
    queries = Queries(one, one.version)
    before = queries.find_results(task=NANO[0])
    model = measured_model("new", "e")
    put(tmp_path / "results", model, [scored(model, NANO[0], 0.25)])
    other.refresh()
    assert (one.version, queries.version) == (2, 1)  # seen without a refresh
    assert queries.find_results(task=NANO[0]) == before
    fresh = Queries(one, one.version)
    known = {row.entry: row.value for row in fresh.find_results(task=NANO[0])}
    assert known[next(e.id for e in fresh.entries.values() if e.model == "new")] == 0.25
    shutil.rmtree(one.folder / "1")
    with pytest.raises(IndexChanged):
        queries.find_results(task=NANO[1])


@pytest.mark.parametrize("how", ["cut", "gone", "scribbled", "current"])
def test_a_damaged_snapshot_is_named_and_made_anew(
    index: SiteIndex, tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path)
    index.refresh()
    version = index.version
    before, file = contents(index), index.folder / str(version) / "own" / "results.parquet"
    whole = file.read_bytes()
    if how == "cut":
        file.write_bytes(whole[:-20])
    elif how == "gone":
        file.unlink()
    elif how == "current":
        (index.folder / "current.json").write_text('{"version": 1')
    else:
        file.write_bytes(b"x" * len(whole))
        with pytest.raises(StoreError, match=r"results\.parquet"):
            Queries(index, version).find_results()
    index.refresh()
    assert index.version == version + 1
    assert contents(index) == before
    assert any("written again" in message for message in caplog.messages)


@pytest.mark.parametrize("name", ["results", "scores", "texts-1"])
def test_a_byte_that_changed_in_a_file_is_noticed(index: SiteIndex, tmp_path: Path, name: str) -> None:
    """A look after the start of a process, before the file is shown."""
    fill(tmp_path)
    index.refresh()
    before, file = contents(index), index.folder / "1" / "own" / f"{name}.parquet"
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 1
    file.write_bytes(content)
    again = opened(small_settings(tmp_path))
    assert not again.verify_snapshot()
    again.refresh()
    assert again.version == 2
    assert contents(again) == before


def test_a_list_of_units_that_changed_is_not_believed(index: SiteIndex, tmp_path: Path) -> None:
    """A stamp of another state of a file: without a digest the file would never be read again."""
    fill(tmp_path)
    index.refresh()
    model = measured_model("minilm-ish")
    current = json.loads((index.folder / "current.json").read_text())
    name = f"measured/{model.slug.rpartition('-')[2]}"
    Store(tmp_path / "results").put(model.slug, scored(model, NANO[0], 0.99), again=True)
    unit = next(u for u in index._iter_source_units() if f"{u.source}/{u.name}" == name)
    current["units"][name] = unit.stamp
    (index.folder / "current.json").write_text(json.dumps(current))
    again = opened(small_settings(tmp_path))
    again.refresh()
    assert {r.value for r in Queries(again, again.version).find_results(task=NANO[0])} >= {0.99}


def test_files_of_texts_are_joined_when_they_are_many(index: SiteIndex, tmp_path: Path) -> None:
    for at in range(module.FILES + 3):
        model = measured_model("m", f"{at:x}")
        put(tmp_path / "results", model, [scored(model, one, 0.3 + at / 100) for one in NANO[:3]])
        index.refresh()
        version = index.version
        files = list((index.folder / str(version) / "own").glob("texts-*.parquet"))
        assert len(files) <= module.FILES + 1
    at_once = opened(replace(small_settings(tmp_path), snapshots=tmp_path / "other"))
    at_once.refresh()
    assert contents(index) == contents(at_once)


def test_seeds_that_lost_the_first_have_their_own_name(index: SiteIndex, tmp_path: Path) -> None:
    models = [
        put_model(tmp_path / "results", name, made_of(seed), {NANO[0]: 0.5 + seed / 10})
        for seed, name in enumerate(("first", "second", "third"), 1)
    ]
    index.refresh()
    assert {e.model for e in Queries(index, 1).entries.values() if e.origin == "measured"} == {"first"}
    shutil.rmtree(tmp_path / "results" / "records" / models[0].slug)
    index.refresh()
    at_once = opened(replace(small_settings(tmp_path), snapshots=tmp_path / "other"))
    at_once.refresh()
    assert contents(index) == contents(at_once)
    assert {e.model for e in Queries(index, 2).entries.values() if e.origin == "measured"} == {"second"}


def test_means_over_seeds_follow_their_members(index: SiteIndex, tmp_path: Path) -> None:
    results = tmp_path / "results"

    def put_seed(seed: int, score: float, pooling: str = "mean") -> Path:
        made = made_of(seed, settings={"pooling": pooling})
        return results / "records" / put_model(results, pooling, made, {NANO[0]: score}).slug

    def refresh() -> list[tuple[int, ...]]:
        index.refresh()
        at_once = opened(replace(small_settings(tmp_path), snapshots=tmp_path / "other"))
        at_once.refresh()
        assert index.snapshot
        assert at_once.snapshot
        assert index.snapshot.id == at_once.snapshot.id
        shutil.rmtree(tmp_path / "other")
        entries = Queries(index, index.version).entries.values()
        return [entry.seeds for entry in entries if entry.of_seeds]

    first, other = put_seed(1, 0.5), [put_seed(seed, 0.1 * seed, "cls") for seed in (1, 2)]
    assert refresh() == [(1, 2)]
    second = put_seed(2, 0.6)
    assert sorted(refresh()) == [(1, 2), (1, 2)]
    for file in second.glob("*/*.json"):
        file.unlink()
    third = put_seed(3, 0.7)
    assert sorted(refresh()) == [(1, 2), (1, 3)]
    for file in third.glob("*/*.json"):
        file.unlink()
    put_seed(3, 0.8)
    assert sorted(refresh()) == [(1, 2), (1, 3)]
    shutil.rmtree(first)
    shutil.rmtree(other[0])
    assert refresh() == []
    put_seed(1, 0.2, "cls")
    assert refresh() == [(1, 2)]


@pytest.mark.slow
def test_large_records_are_read_within_a_querys_memory(index: SiteIndex, tmp_path: Path) -> None:
    """Together they are twice what a query may take."""
    record = scored(M, NANO[0], 0.5)
    records = []
    for at in range(200):
        identity = {**record.identity, "seed": at}
        noise = {"blob": random.Random(at).randbytes(500_000).hex()}
        more = {"identity": identity, "key": digest(identity), "provenance": {**record.provenance, **noise}}
        records.append(record.model_copy(update=more))
    put(tmp_path / "results", M, records)
    index.refresh()
    queries = Queries(index, 1)
    rows = queries.find_results(task=NANO[0])
    assert len(rows) == 200
    assert {queries.load_result_document(row.id)["key"] for row in rows[:3]} == {row.key for row in rows[:3]}


def test_a_snapshot_that_was_not_finished_is_ignored(index: SiteIndex, tmp_path: Path) -> None:
    fill(tmp_path)
    with (
        mock.patch.object(SiteIndex, "_replace_current", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        index.refresh()
    (index.folder / "new-7").mkdir()
    assert index.version == 0
    index.refresh()
    assert index.version == 2
    assert sorted(path.name for path in index.folder.iterdir() if path.is_dir()) == ["1", "2"]


REVISIONS = ("a" * 40, "b" * 40, "external")


def test_revisions_of_a_model_are_joined_task_by_task(index: SiteIndex, tmp_path: Path) -> None:
    first, second, third = NANO[:3]
    made = [
        Import(model="o/m", revision=REVISIONS[0], scores={first: 0.1, second: 0.2}, version="1.2.0"),
        Import(model="o/m", revision=REVISIONS[1], scores={first: 0.3}, version="1.10.0", others=[first]),
        Import(model="o/m", revision=REVISIONS[2], scores={first: 0.4, third: 0.5}, version="2.0.0"),
    ]
    put_imports(tmp_path / "results", made)
    index.refresh()
    queries, nano = Queries(index, 1), suites()["nanobeir"]
    (joined,) = [e for e in queries.models["o--m"] if not e.member]
    assert (joined.revisions, joined.tasks) == (REVISIONS, 3)
    assert [one.revision for one in queries.list_members(joined)] == list(REVISIONS)
    found, single = queries.load_suite_scores(nano), queries.load_suite_scores(nano, revisions=True)
    assert [e.slug for e in found.entries if e.origin == "imported"] == [joined.slug]
    assert sorted(str(e.revision) for e in single.entries if e.origin == "imported") == sorted(REVISIONS)
    row = [e.slug for e in found.entries].index(joined.slug)
    assert found.values[row, :3].tolist() == [0.3, 0.2, 0.5]  # 1.10 is newer than 1.2; external goes last
    cells = [queries.entries[int(n)].revision for n in found.sources[row, :3]]
    assert cells == [REVISIONS[1], REVISIONS[0], REVISIONS[2]]
    assert found.data == {(row, 0): "0" * 40}
    assert not queries.load_suite_scores(nano, pinned=True).counted[row, 0]
    assert {(r.task, r.value, r.source) for r in queries.find_results(entry=joined.id)} == {
        (task, value, int(source))
        for task, value, source in zip(NANO, found.values[row, :3], found.sources[row, :3], strict=False)
    }
    assert queries.load_result_document(int(found.results[row, 1]))  # of the file that was chosen


def test_a_revision_of_the_data_called_none_is_none(index: SiteIndex, tmp_path: Path) -> None:
    made = Import(model="o/m", revision=REVISIONS[0], scores={NANO[0]: 0.1}, others=NANO[:1], other="None")
    put_imports(tmp_path / "results", [made])
    index.refresh()
    found = nano_of(index)
    row = [e.model for e in found.entries].index("o/m")
    assert (REASONS[found.reasons[row, 0]], found.data) == ("other", {})


def test_the_main_revision_goes_before_a_newer_one(index: SiteIndex, tmp_path: Path) -> None:
    main = "c" * 40
    made = [
        Import(model="o/m", revision=main, scores={NANO[0]: 0.1}, version="1.0.0"),
        Import(model="o/m", revision="d" * 40, scores={NANO[0]: 0.2}, version="2.0.0"),
    ]
    put_imports(tmp_path / "results", made)
    with mock.patch("leaderboard.data.imports.read_main_revisions", return_value={"o/m": main}):
        index.refresh()
    queries = Queries(index, 1)
    (joined,) = [e for e in queries.models["o--m"] if not e.member]
    assert joined.revision == main
    assert [row.value for row in queries.find_results(entry=joined.id)] == [0.1]


def test_data_known_to_hold_the_same_texts_is_the_pinned_one(index: SiteIndex, tmp_path: Path) -> None:
    put_imports(tmp_path / "results", [Import(model="o/m", scores={NANO[0]: 0.1}, others=[NANO[0]])])
    same = {(NANO[0], "0" * 40): task(NANO[0]).data.revision}
    with (
        mock.patch("harness.results.revisions.read_revisions", return_value=same),
        mock.patch("leaderboard.data.imports.read_revisions", return_value=same),
    ):
        index.refresh()
    found = nano_of(index, pinned=True)
    row = [e.model for e in found.entries].index("o/m")
    assert found.counted[row, 0]


@pytest.mark.parametrize("how", ["removed", "emptied"])
def test_what_a_folder_held_is_shown_while_the_folder_is_gone(tmp_path: Path, how: str) -> None:
    fill(tmp_path)
    results, away = tmp_path / "results", tmp_path / "away"
    index = opened(small_settings(tmp_path))
    index.refresh()
    before = Queries(index, 1).find_results()
    assert not index.vanished
    results.rename(away)
    if how == "emptied":  # as the mount point of a disk that is unmounted
        results.mkdir()
    assert (index.refresh(), index.version) == (0, 1)
    assert index.vanished == [results]
    with pytest.raises(StoreError):  # of an import the site reads files in the folder itself
        contents(index)
    assert (index.refresh(), index.version) == (0, 1)
    assert Queries(index, 1).find_results() == before
    if how == "emptied":
        results.rmdir()
    away.rename(results)
    assert not index.vanished
    model = measured_model("later", "7")
    put(results, model, [scored(model, NANO[0], 0.1)])
    assert index.refresh() == 1
    # At a start the folder is what it is.
    shutil.rmtree(results)
    again = opened(small_settings(tmp_path))
    version = again.version
    assert (again.refresh(), again.version) == (0, version + 1)
    assert not again.vanished
