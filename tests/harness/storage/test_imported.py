from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from harness.core import files
from harness.core.errors import RecordError, StoreError, UsageError
from harness.storage.imported import SCHEMA, STAMP, TABLES, Imported
from harness.storage.store import Store
from stored_records import iter_records


def tables(*scores: float) -> dict[str, Any]:
    return {
        "entries": pa.table({"model": ["org/model"], "digest": [str(scores)]}),
        "files": pa.table({"path": ["a"], "rows": [len(scores)]}),
        "scores": pa.table({"main_score": list(scores)}),
    }


def publish(root: Path, *scores: float) -> Imported:
    folder = Imported.resolve_import_folder(root, "there")
    with Imported.lock(folder):
        return Imported.publish(folder, tables(*scores), {"counts": {"rows": len(scores)}}, {"parser": 1})


def scores(found: Imported) -> list[float]:
    listed: list[float] = found.load_table("scores")["main_score"].to_pylist()
    return listed


def test_a_store_lists_what_was_imported_and_reads_its_tables(tmp_path: Path) -> None:
    assert Imported.read_imports(tmp_path) == []
    publish(tmp_path, 0.5, 0.25)
    [found] = Imported.read_imports(tmp_path)
    assert found.find_problem() == ""
    assert (found.source, found.counts["rows"], scores(found)) == ("there", 2, [0.5, 0.25])
    assert found.load_table("entries", ["model"]).to_pylist() == [{"model": "org/model"}]
    assert found.load_table("files")["rows"].to_pylist() == [2]
    assert found.load_table("entries")["digest"].to_pylist() == ["(0.5, 0.25)"]
    assert list(iter_records(Store(tmp_path))) == []


def test_an_import_replaces_the_former_one_which_stays_readable_until_the_next(tmp_path: Path) -> None:
    first, second = publish(tmp_path, 0.1), publish(tmp_path, 0.2)
    assert first.id != second.id
    assert (scores(first), scores(second)) == ([0.1], [0.2])
    third = publish(tmp_path, 0.3)
    assert scores(Imported.read_imports(tmp_path)[0]) == scores(third) == [0.3]
    assert len(list(third.folder.glob("*.parquet"))) == 6
    with pytest.raises(RecordError, match="cannot be read"):
        first.load_table("scores")


@pytest.mark.parametrize("fails", [f"{name}-" for name in TABLES] + [STAMP])
def test_a_crash_anywhere_leaves_the_former_import_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    publish(tmp_path, 0.1)
    replace = files.replace

    def full(path: Path, content: bytes) -> None:
        if path.name.startswith(fails):
            raise StoreError("the disk is full")
        replace(path, content)

    with monkeypatch.context() as patched:
        patched.setattr(files, "replace", full)
        with pytest.raises(StoreError):
            publish(tmp_path, 0.2, 0.3)
    [found] = Imported.read_imports(tmp_path)
    assert (scores(found), found.counts["rows"], found.load_table("files")["rows"].to_pylist()) == (
        [0.1],
        1,
        [1],
    )
    publish(tmp_path, 0.4)
    publish(tmp_path, 0.5)
    assert len(list(found.folder.glob("*.parquet"))) == 6, "what the crash left is gone"


def test_a_newer_schema_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stamp = publish(tmp_path, 0.5).folder / STAMP
    stamp.write_text(json.dumps({**json.loads(stamp.read_text()), "schema": SCHEMA + 1}))
    assert Imported.read_imports(tmp_path) == []
    assert "written by a newer version" in caplog.text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ("[]", "not a stamp of an import"),
        ('{"schema": "1", "id": "0123456789ab"}', "not a stamp of an import"),
        ('{"schema": 1, "id": "../../../etc/passwd"}', "not a stamp of an import"),
    ],
)
def test_what_is_no_stamp_is_said(
    tmp_path: Path, text: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "imported" / "there"
    folder.mkdir(parents=True)
    (folder / STAMP).write_text(text)
    with Imported.lock(Imported.resolve_import_folder(tmp_path, "other")):
        Imported.publish(
            Imported.resolve_import_folder(tmp_path, "other"),
            tables(0.5),
            {"counts": {"rows": 1}},
            {"parser": 1},
        )
    assert [one.source for one in Imported.read_imports(tmp_path)] == ["other"]
    assert said in caplog.text


def test_a_damaged_table_is_told_with_what_to_do(tmp_path: Path) -> None:
    found = publish(tmp_path, 0.5)
    (found.folder / f"scores-{found.id}.parquet").write_bytes(b"PAR1 no more")
    assert found.find_problem()
    with pytest.raises(RecordError, match="cannot be read") as caught:
        found.load_table("scores")
    assert "harness import there PATH" in str(caught.value)


def test_only_one_import_writes_at_a_time(tmp_path: Path) -> None:
    busy = pytest.raises(UsageError, match="Another import")
    with Imported.lock(tmp_path), busy, Imported.lock(tmp_path):
        pass
    with Imported.lock(tmp_path):
        assert (tmp_path / ".lock").exists()


def test_facts_can_change_without_the_tables(tmp_path: Path) -> None:
    found = publish(tmp_path, 0.5)
    found.update_stamp({"commit": "c" * 40})
    [again] = Imported.read_imports(tmp_path)
    assert (again.id, again.stamp["commit"], again.counts) == (found.id, "c" * 40, {"rows": 1})
