"""Queries with scored documents: the texts of every row, and the faults of a table."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from datasets import Dataset

import scored_data
from harness.core import files
from harness.core.errors import DataError, HarnessError
from harness.data.locate import DataSettings
from harness.data.mirror import needs
from harness.data.training.loading import TrainingSize, load_scored, load_training
from harness.data.training.sets import LocatedTraining, TrainingData, locate_training, locate_user_training

Tables = dict[str, dict[str, list[Any]]]


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., LocatedTraining]:
    def make(change: Callable[[Tables], None] | None = None, name: str = "data") -> LocatedTraining:
        tables = scored_data.tables()
        if change:
            change(tables)
        folder = scored_data.write(tmp_path / name, tables)
        return locate_user_training(str(folder), DataSettings(cache=tmp_path / "cache"))

    return make


def test_every_row_has_the_texts_of_its_ids(made: Callable[..., LocatedTraining], tmp_path: Path) -> None:
    tables = scored_data.tables()
    queries = dict(zip(*tables["queries"].values(), strict=True))
    documents = dict(zip(*tables["documents"].values(), strict=True))
    located = made()
    assert (located.rows, located.data.form) == (12, "query with scored documents")
    for _ in range(2):  # the second time from the cache
        found = load_training(located, cache=tmp_path / "cache")
        for row, (query, names, scores) in zip(
            found, zip(*tables["train"].values(), strict=True), strict=True
        ):
            assert row["query"] == queries[query]
            assert row["documents"] == [documents[name] for name in names]
            assert row["scores"] == pytest.approx(scores)
    assert found[[3, 1]]["query"] == [queries["q8"], queries["q10"]]


def test_no_more_than_a_part_of_the_texts_is_in_memory(
    made: Callable[..., LocatedTraining], tmp_path: Path
) -> None:
    def long(tables: Tables) -> None:
        more = tables["documents"]
        more["document_id"] = [f"d{at}" for at in range(5000)]
        more["text"] = [scored_data.sentence(at) * 100 for at in range(5000)]

    located = made(long)
    cache = tmp_path / "cache"
    load_scored(located, cache=cache)  # the texts are in a file from now on
    usual, watched = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(watched)
    try:
        tables = load_scored(replace(located, data=replace(located.data, first=9)), cache=cache)
    finally:
        pa.set_memory_pool(usual)
    assert watched.max_memory() < tables.documents.data.nbytes / 2


def test_what_a_killed_process_has_begun_to_write_is_swept(
    made: Callable[..., LocatedTraining], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    begin, cache, begun = pa.ipc.new_stream, tmp_path / "cache", list[int]()

    def watched(*given: Any) -> Any:
        begun.append(len(files.find_leftovers(cache)))
        return begin(*given)

    monkeypatch.setattr(os, "getpid", lambda: 2**22 + 1)  # above any process's number
    monkeypatch.setattr(pa.ipc, "new_stream", watched)
    load_scored(made(), cache=cache)
    assert begun == [1]
    assert not files.find_leftovers(cache)


def test_ids_may_be_numbers_and_lists_may_be_text(
    made: Callable[..., LocatedTraining], tmp_path: Path
) -> None:
    def numbers(tables: Tables) -> None:
        train = tables["train"]
        train["query_id"] = [int(name[1:]) for name in train["query_id"]]
        tables["queries"]["query_id"] = list(range(12))
        train["document_ids"] = [str(names) for names in train["document_ids"]]
        train["scores"] = [str(scores) for scores in train["scores"]]

    plain = load_training(made(), cache=tmp_path / "cache")
    other = load_training(made(numbers, "numbers"), cache=tmp_path / "cache")
    assert plain[:] == other[:]


def test_sizes_are_means_over_all_rows(made: Callable[..., LocatedTraining], tmp_path: Path) -> None:
    located = made()
    size = TrainingSize.measure_training(located, tmp_path / "cache")
    rows = list(load_training(located, cache=tmp_path / "cache"))
    texts = [text for row in rows for text in row["documents"]]
    assert size.rows == 12
    assert size.characters["query"] == pytest.approx(sum(len(row["query"]) for row in rows) / 12)
    assert size.characters["documents"] == pytest.approx(sum(map(len, texts)) / len(texts))
    used = {
        name: sorted(found)
        for name, found in load_scored(located, cache=tmp_path / "cache").iter_used_texts()
    }
    assert used == {"query": sorted(row["query"] for row in rows), "documents": sorted(set(texts))}


def _set(*path: Any, to: Any) -> Callable[[Tables], None]:
    def change(tables: Any) -> None:
        for name in path[:-1]:
            tables = tables[name]
        tables[path[-1]] = to

    return change


def _drop(*path: str) -> Callable[[Tables], None]:
    def change(tables: Any) -> None:
        for name in path[:-1]:
            tables = tables[name]
        del tables[path[-1]]

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_set("train", "document_ids", 4, 1, to="gone"), "row 5: the id 'gone' is not in data:documents"),
        (_set("train", "query_id", 2, to="gone"), "row 3: the id 'gone' is not in data:queries"),
        (_set("documents", "document_id", 5, to="d4"), "data:documents: the id 'd4' occurs twice"),
        (_set("documents", "text", 0, to=" "), "the text of 'd0' in data:documents is blank"),
        (_set("train", "scores", 1, to=[0.5, 1.0]), "row 2: 3 documents and 2 scores"),
        (_set("train", "scores", 1, to=[0.5, 1.0, float("nan")]), "row 2: a score is no finite number"),
        (_drop("train", "scores"), "data:train has no column 'scores'"),
        (_drop("queries", "text"), "data:queries has no column 'text'"),
    ],
)
def test_faults_are_named(
    made: Callable[..., LocatedTraining], tmp_path: Path, change: Callable[[Tables], None], said: str
) -> None:
    with pytest.raises(DataError) as caught:
        load_training(made(change), cache=tmp_path / "cache")
    assert said in caught.value.message


def test_one_document_cannot_be_compared(made: Callable[..., LocatedTraining], tmp_path: Path) -> None:
    def single(tables: Tables) -> None:
        tables["train"]["document_ids"][0] = ["d1"]
        tables["train"]["scores"][0] = [1.0]

    with pytest.raises(DataError, match="row 1: 1 documents and 1 scores; at least two are compared"):
        load_training(made(single), cache=tmp_path / "cache")


def test_a_set_of_the_data_root_is_found_by_its_name(tmp_path: Path) -> None:
    settings = DataSettings(root=tmp_path / "root", offline=True, cache=tmp_path / "cache")
    scored_data.write(tmp_path / "root" / "org" / "scored")
    for text in ("org/scored", "org/scored:train"):
        own = locate_user_training(text, settings)
        assert (own.data.texts, own.rows, own.name) == (("queries", "documents"), 12, "org/scored")
    wanted = TrainingData(
        path="org/scored",
        revision="a" * 40,
        config="train",
        columns=("query_id", "document_ids"),
        score="scores",
        texts=("queries", "documents"),
        first=5,
    )
    located = locate_training(wanted, settings)
    assert located.rows == 5
    assert len(load_training(located, cache=settings.cache)) == 5
    (need,) = needs([], {"colbert": [wanted]})
    assert need.configs == (("train",), ("queries",), ("documents",))


def test_a_set_without_its_texts_is_not_whole(tmp_path: Path) -> None:
    folder = scored_data.write(tmp_path / "root" / "org" / "scored")
    (folder / "documents" / "train-00000-of-00001.parquet").unlink()
    settings = DataSettings(root=tmp_path / "root", offline=True, cache=tmp_path / "cache")
    with pytest.raises(HarnessError, match="documents"):
        locate_user_training("org/scored", settings)


def test_data_check_says_what_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from harness.cli import invoke

    folder = scored_data.write(tmp_path / "scored")
    assert invoke(["data", "check", "--train-data", str(folder), "--cache", str(tmp_path / "cache")]) == 0
    printed = capsys.readouterr().out
    assert "scored: 12 rows, each a query with scored documents" in printed
    assert invoke(["data", "check", "--train-data", str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["characters"].keys() == {"query", "documents"}
    counts = [len(one) for one in scored_data.tables()["train"]["scores"]]
    constant = sum(len({*one}) == 1 for one in scored_data.tables()["train"]["scores"])
    assert (told["documents"], told["constant"]) == ([min(counts), max(counts)], constant)
    each = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"
    assert f"{each} documents a query; {constant} with one score" in printed


def test_lists_of_another_kind_are_refused(tmp_path: Path) -> None:
    tables = scored_data.tables()
    tables["train"]["scores"] = [1.0] * 12
    folder = scored_data.write(tmp_path / "data", tables)
    located = locate_user_training(str(folder), DataSettings(cache=tmp_path / "cache"))
    with pytest.raises(DataError, match="'scores' holds double, not lists"):
        load_training(located, cache=tmp_path / "cache")
    assert Dataset.from_parquet(str(folder / "queries" / "train-00000-of-00001.parquet")).num_rows == 12
