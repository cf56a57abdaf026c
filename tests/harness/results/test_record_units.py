"""Records taken apart once: what is kept beside the cache, and what is said of damaged files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from fakes import record, task
from harness.results.record_units import ScoredRecord
from harness.results.units import Units
from harness.storage.record import RECORDS, Record, build_record_output
from harness.storage.store import Store

FOLDER = "tiny-aaaaaaaaaaaa"


def made(count: int = 30) -> tuple[Record, bytes]:
    """A record of an STS task and its per-example file."""
    rng = np.random.default_rng(0)
    gold = rng.integers(0, 6, count)
    predicted = gold + rng.normal(size=count)
    columns: dict[str, list[Any]] = {
        "split": ["test"] * count,
        "subset": ["default"] * count,
        "example_id": [f"{at:03}" for at in range(count)],
        "replicate": [0] * count,
        "prediction": [repr(one) for one in predicted.tolist()],
        "gold": [str(one) for one in gold.tolist()],
        "metric": [None] * count,
    }
    score = float(scipy.stats.spearmanr(gold, predicted).statistic)
    one = record(task(), score, packages={"torch": "2"}, device={"name": "cpu"})
    told = {"scores": {"test": {"default": {"cosine_spearman": score}}}}
    output = build_record_output(one.model_copy(update=told), columns)
    return RECORDS.parse(output["record"].decode(), where="made"), output["examples"]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results")


def lookup(store: Store, key: str, tmp_path: Path) -> ScoredRecord | None:
    return ScoredRecord.load_record(store, FOLDER, "Fake", key, parts=(), cache=tmp_path / "units-cache")


def found(store: Store, key: str, tmp_path: Path) -> ScoredRecord:
    scored = lookup(store, key, tmp_path)
    assert scored is not None
    return scored


def units_of(scored: ScoredRecord) -> Units:
    assert scored.units is not None
    return scored.units


def kept(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "units-cache").rglob("*.npz"))


def test_it_is_the_same_from_the_record_and_from_what_was_kept(store: Store, tmp_path: Path) -> None:
    one, content = made()
    store.put(FOLDER, one, content)
    first = found(store, one.key, tmp_path)
    assert len(kept(tmp_path)) == 1
    second = found(store, one.key, tmp_path)
    for each in (first, second):
        assert each.problem == ""
        assert each.score == one.main_score
        assert units_of(each).score_runs() == pytest.approx([one.main_score])
        assert each.identity == one.identity
        assert each.provenance["packages"] == {"torch": "2"}
    assert units_of(first).has_same_examples(units_of(second))


def test_what_is_not_there_is_none(store: Store, tmp_path: Path) -> None:
    one, content = made()
    assert lookup(store, one.key, tmp_path) is None
    store.put(FOLDER, one.model_copy(update={"status": "failed"}), None)
    assert lookup(store, one.key, tmp_path) is None
    store.put(FOLDER, one, content)
    found(store, one.key, tmp_path)
    store.locate_record(FOLDER, "Fake", one.key).unlink()
    assert lookup(store, one.key, tmp_path) is None
    store.put(FOLDER, one.model_copy(update={"purpose": "trial"}), content)
    assert lookup(store, one.key, tmp_path) is None


@pytest.mark.parametrize("cut", [0, 10, 200, -20])
def test_what_was_kept_and_is_damaged_is_made_anew(cut: int, store: Store, tmp_path: Path) -> None:
    one, content = made()
    store.put(FOLDER, one, content)
    found(store, one.key, tmp_path)
    (path,) = kept(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    units_of(found(store, one.key, tmp_path))
    assert path.read_bytes() == whole


def test_a_cache_that_cannot_be_written_costs_only_time(store: Store, tmp_path: Path) -> None:
    one, content = made()
    store.put(FOLDER, one, content)
    (tmp_path / "units-cache").write_text("no folder")
    units_of(found(store, one.key, tmp_path))


def test_a_per_example_file_that_changed_is_read_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, content = made()
    store.put(FOLDER, one, content)
    found(store, one.key, tmp_path)
    path = store.locate_record(FOLDER, "Fake", one.key).with_suffix(".examples.parquet")
    path.unlink()
    gone = found(store, one.key, tmp_path)
    assert (gone.units, gone.problem) == (None, "its per-example file is gone or damaged")
    monkeypatch.setattr("harness.core.files.find_reference_folder", lambda: store.root)
    shutil.rmtree(tmp_path / "units-cache")
    assert "without per-example results (`harness run --force`" in found(store, one.key, tmp_path).problem
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))
    units_of(found(store, one.key, tmp_path))


@pytest.mark.parametrize("content", [b"", b"PAR1PAR1", b"\0" * 300])
def test_a_damaged_per_example_file_is_a_problem_and_no_number(
    content: bytes, store: Store, tmp_path: Path
) -> None:
    one, _ = made()
    store.put(FOLDER, one, content)
    damaged = found(store, one.key, tmp_path)
    assert damaged.units is None
    assert "its per-example file cannot be read" in damaged.problem
    assert damaged.score == one.main_score


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("prediction", "yes"),
        ("prediction", "nan"),
        ("prediction", "inf"),
        ("gold", None),
        ("example_id", None),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_value_that_is_none_is_a_problem_and_no_number(
    column: str, value: object, store: Store, tmp_path: Path
) -> None:
    import io

    import pyarrow as pa
    from pyarrow import parquet

    one, content = made()
    columns = parquet.read_table(io.BytesIO(content)).to_pydict()
    columns[column][3] = value
    sink = io.BytesIO()
    parquet.write_table(pa.table(columns), sink)
    store.put(FOLDER, one, sink.getvalue())
    damaged = found(store, one.key, tmp_path)
    assert damaged.units is None
    assert damaged.problem


def test_a_record_without_examples_says_so(store: Store, tmp_path: Path) -> None:
    one, _ = made()
    store.put(FOLDER, one.model_copy(update={"examples": None}), None)
    none = found(store, one.key, tmp_path)
    assert (none.units, none.problem) == (None, "no per-example results were kept")


def test_what_its_number_is_made_of_is_part_of_what_is_kept(store: Store, tmp_path: Path) -> None:
    one, content = made()
    store.put(FOLDER, one, content)
    for parts in ((), (("test", "cosine_spearman"),)):
        ScoredRecord.load_record(store, FOLDER, "Fake", one.key, parts=parts, cache=tmp_path / "units-cache")
    assert len(kept(tmp_path)) == 2
