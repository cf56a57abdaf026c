"""Training data: where it is found, what is read of it, and which rows are refused."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blocked import BLOCKER
from data_files import lines, parquet
from harness.core.errors import DataError, HarnessError, UsageError
from harness.data.locate import DataMissing, DataSettings
from harness.data.training.loading import (
    TrainingSize,
    count_trained,
    load_rows,
    load_training,
    read_text_hashes,
    write_text_hashes,
)
from harness.data.training.sets import LocatedTraining, TrainingData, locate_training, locate_user_training

PATH = "org/nli"
README = """---
configs:
- config_name: pair
  data_files:
  - split: train
    path: pair/train-*
- config_name: triplet
  data_files:
  - split: train
    path: triplet/train-*
---
"""
ROWS = [("a cat", "an animal", "a stone"), ("snow falls", "it is winter", "it is hot"), ("é", "ß", "漢")]
TRIPLETS = {name: [row[at] for row in ROWS] for at, name in enumerate(("anchor", "positive", "negative"))}
DATA = TrainingData(
    path=PATH, revision="d" * 40, config="triplet", columns=("anchor", "positive", "negative"), rows=557_850
)


@pytest.fixture
def nli(root: Path, lay: Callable[..., Path]) -> Path:
    """A data set with two configurations, the files of one of which are in two parts."""
    folder = lay(root / PATH, {"README.md": README})
    first, last = (
        {name: values[part] for name, values in TRIPLETS.items()} for part in (slice(2), slice(2, 3))
    )
    parquet(folder / "triplet" / "train-00000-of-00002.parquet", {**first, "score": [1, 2]})
    parquet(folder / "triplet" / "train-00001-of-00002.parquet", {**last, "score": [3]})
    parquet(folder / "pair" / "train-00000-of-00001.parquet", {"anchor": ["x"], "positive": ["y"]})
    return folder


def rows_of(located: LocatedTraining, settings: DataSettings) -> list[tuple[Any, ...]]:
    table = load_training(located, cache=settings.cache)
    assert all(Path(file["filename"]).is_relative_to(settings.cache) for file in table.cache_files)
    assert table.cache_files
    return [tuple(row.values()) for row in table]


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    """A file of rows in the form that its name says."""
    if path.suffix == ".parquet":
        return parquet(path, {name: [row[name] for row in rows] for name in rows[0]})
    if path.suffix == ".jsonl":
        return lines(path, rows)
    separator = "\t" if path.suffix == ".tsv" else ","
    texts = [separator.join(rows[0]), *(separator.join(f'"{v}"' for v in row.values()) for row in rows)]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return path


# Identity


def test_an_identity_holds_what_was_trained_on_and_nothing_else() -> None:
    assert DATA.identity == {
        "path": PATH,
        "revision": "d" * 40,
        "config": "triplet",
        "columns": ["anchor", "positive", "negative"],
    }
    assert replace(DATA, rows=1).identity == DATA.identity
    filtered = replace(DATA, filter=("score", ">", 4))
    assert filtered.identity == {**DATA.identity, "filter": ["score", ">", 4.0]}
    changes = {"path": "o/x", "revision": "s", "content": "c", "config": "pair", "split": "dev", "score": "s"}
    others = [replace(DATA, **{name: value}).identity for name, value in changes.items()]
    assert DATA.identity not in others
    assert replace(DATA, columns=("anchor", "negative", "positive")).identity != DATA.identity


def test_the_form_follows_from_the_columns() -> None:
    columns = ("a", "b", "c", "d")
    forms = [TrainingData(columns=columns[:number]).form for number in (2, 3, 4)]
    assert [*forms, TrainingData(columns=("a", "b"), score="s").form] == [
        *("pair", "triplet", "tuple"),
        "scored pair",
    ]


# A recipe's data


def test_a_folder_of_a_data_root_counts_by_its_content_and_its_own_rows(
    nli: Path, settings: DataSettings
) -> None:
    located = locate_training(DATA, settings)
    assert (located.folder, located.rows, located.name) == (nli, 3, f"{PATH}:triplet")
    assert located.notes == (f"{PATH}:triplet has 3 rows here, and 557,850 at its source",)
    assert locate_training(replace(DATA, rows=3), settings).notes == ()
    assert located.data.content.startswith("sha256:")
    assert (located.data.revision, located.data.rows, located.own) == ("", None, False)
    assert rows_of(located, settings) == ROWS
    moved = replace(DATA, columns=("negative", "anchor"))
    assert rows_of(locate_training(moved, settings), settings) == [(n, a) for a, _, n in ROWS]


def test_a_proven_revision_keeps_its_name_and_its_rows(
    nli: Path, settings: DataSettings, sign: Callable[..., None]
) -> None:
    sign(nli, PATH, DATA.revision)
    located = locate_training(DATA, settings)
    assert (located.data, located.rows) == (DATA, 557_850)
    assert locate_training(replace(DATA, rows=None), settings).rows == 3


def test_a_filter_keeps_the_rows_that_satisfy_it(nli: Path, settings: DataSettings) -> None:
    for comparison, expected in ((">", [2]), (">=", [1, 2]), ("<", [0]), ("<=", [0, 1]), ("==", [1])):
        located = locate_training(replace(DATA, filter=("score", comparison, 2)), settings)
        assert located.rows == len(expected)
        assert rows_of(located, settings) == [ROWS[number] for number in expected]
    with pytest.raises(DataError, match="no rows that satisfy the filter"):
        load_training(
            locate_training(replace(DATA, filter=("score", ">", 9)), settings), cache=settings.cache
        )


def test_only_the_first_row_of_equal_values_is_read(nli: Path, settings: DataSettings) -> None:
    """Over two files, counted by hand, and after the filter."""
    for file in (nli / "triplet").iterdir():
        file.unlink()
    for number, anchors in enumerate((["a", "b", "a"], ["b", "c", "c", "a"])):
        texts = {
            name: [f"{name} {number} {at}" for at in range(len(anchors))] for name in ("positive", "negative")
        }
        rows = {"anchor": anchors, **texts, "score": [number, *([2] * (len(anchors) - 1))]}
        parquet(nli / "triplet" / f"train-{number}.parquet", rows)
    for condition, expected in (
        (None, [("a", "positive 0 0"), ("b", "positive 0 1"), ("c", "positive 1 1")]),
        (("score", "==", 2.0), [("b", "positive 0 1"), ("a", "positive 0 2"), ("c", "positive 1 1")]),
    ):
        data = replace(DATA, columns=("anchor", "positive"), distinct="anchor", filter=condition)
        located = locate_training(data, settings)
        assert located.rows == 3
        assert rows_of(located, settings) == expected
    assert located.data.identity["distinct"] == "anchor"


def test_a_part_is_held_out_as_the_library_does_it(nli: Path, settings: DataSettings) -> None:
    from datasets import Dataset

    texts = {name: [f"{name} {n}" for n in range(40)] for name in ("anchor", "positive", "negative")}
    for file in (nli / "triplet").iterdir():
        file.unlink()
    parquet(nli / "triplet" / "train-00000.parquet", {**texts, "score": [*range(40)]})
    script = Dataset.from_dict(texts).train_test_split(test_size=7, seed=12)["train"]
    for first, expected in ((20, [*script.select(range(20))]), (None, [*script])):
        located = locate_training(replace(DATA, held_out=7, split_seed=12, first=first), settings)
        assert rows_of(located, settings) == [tuple(row.values()) for row in expected]
        assert located.rows == len(expected)
    assert located.data.identity.keys() - DATA.identity.keys() >= {"held_out", "split_seed"}
    with pytest.raises(DataError, match="no rows after 40 are set aside"):
        load_training(locate_training(replace(DATA, held_out=40), settings), cache=settings.cache)


def test_passages_of_a_named_file_count_by_the_first(root: Path, settings: DataSettings) -> None:
    """The form of MLDR: a compressed file of questions with lists of passages, and no configuration."""
    rows = [
        {
            "query": f"q{n}",
            "positive_passages": [{"docid": "a", "text": f"p{n}"}, {"docid": "b", "text": "x"}],
        }
        | {"negative_passages": [{"docid": "c", "text": f"n{n}"}], "query_id": str(n)}
        for n in range(3)
    ]
    file = lines(root / "org" / "long" / "parts" / "train.jsonl.gz", rows)
    columns = ("query", "positive_passages", "negative_passages")
    data = TrainingData(path="org/long", columns=columns, file="parts/train.jsonl.gz", passages=True)
    assert rows_of(locate_training(data, settings), settings) == [
        (f"q{n}", f"p{n}", f"n{n}") for n in range(3)
    ]
    rows[1]["negative_passages"] = []
    lines(file, rows)
    with pytest.raises(DataError, match="row 2: the column 'negative_passages' holds no text"):
        rows_of(locate_training(data, settings), settings)
    with pytest.raises(DataError, match=r"has no file parts/other\.jsonl\.gz"):
        locate_training(replace(data, file="parts/other.jsonl.gz"), settings)


def test_a_score_comes_last(nli: Path, settings: DataSettings) -> None:
    data = replace(DATA, columns=("anchor", "positive"), score="score")
    assert rows_of(locate_training(data, settings), settings) == [
        (a, p, number) for number, (a, p, _) in enumerate(ROWS, start=1)
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config": "triplets"}, "no configuration 'triplets'; did you mean 'triplet'"),
        ({"config": ""}, "has several configurations: pair, triplet"),
        ({"split": "dev"}, "no split 'dev' of 'triplet'; found: train"),
        ({"columns": ("anchor", "positiv")}, "no column 'positiv'; did you mean 'positive'"),
        ({"columns": ("anchor", "score")}, "the column 'score' holds int64, not text"),
        ({"columns": ("anchor", "positive"), "score": "negative"}, "'negative' holds text, not numbers"),
        ({"filter": ("similarity", ">", 1)}, "no column 'similarity'"),
    ],
)
def test_what_the_data_lacks_is_named(
    nli: Path, settings: DataSettings, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        locate_training(replace(DATA, **changes), settings)


def test_a_column_that_is_there_twice_is_refused(nli: Path, settings: DataSettings) -> None:
    doubled = pa.table([["a"], ["b"], ["c"]], names=["anchor", "positive", "anchor"])
    pq.write_table(doubled, nli / "triplet" / "train-00000-of-00002.parquet")
    with pytest.raises(DataError, match="a column name occurs twice: anchor"):
        locate_training(DATA, settings)


@pytest.mark.parametrize("bad", [None, "", " \t\n"])
def test_a_missing_text_is_refused_by_its_row(nli: Path, settings: DataSettings, bad: str | None) -> None:
    part = {"anchor": ["a", "b"], "positive": [bad, "c"], "negative": ["d", "e"], "score": [9, 9]}
    parquet(nli / "triplet" / "train-00001-of-00002.parquet", part)
    for data in (DATA, replace(DATA, filter=("score", ">", 1))):
        with pytest.raises(DataError, match="org/nli:triplet: row 3: the column 'positive' holds no text"):
            load_training(locate_training(data, settings), cache=settings.cache)


@pytest.mark.parametrize("bad", [None, float("nan"), float("inf")])
def test_a_score_that_is_no_number_is_refused_by_its_row(
    root: Path, settings: DataSettings, bad: float | None
) -> None:
    parquet(root / "org/sts/train.parquet", {"s1": ["a", "b"], "s2": ["c", "d"], "score": [0.5, bad]})
    data = TrainingData(path="org/sts", columns=("s1", "s2"), score="score")
    with pytest.raises(DataError, match="org/sts: row 2: the column 'score' is no finite number"):
        load_training(locate_training(data, settings), cache=settings.cache)


def test_offline_and_nowhere_says_how_to_get_a_recipes_data(settings: DataSettings) -> None:
    with pytest.raises(DataMissing, match="org/nli") as caught:
        locate_training(DATA, settings)
    assert "harness data pull --recipe RECIPE --data DIR" in str(caught.value)


def test_online_and_nowhere_is_the_hub_with_the_pinned_rows(settings: DataSettings) -> None:
    located = locate_training(DATA, replace(settings, offline=False))
    assert (located.folder, located.data, located.rows) == (None, DATA, 557_850)


def test_a_hub_cache_is_read_where_the_configuration_is_whole(
    nli: Path, settings: DataSettings, hub_cache: Path
) -> None:
    snapshots = hub_cache / "datasets--org--nli" / "snapshots"
    snapshots.mkdir(parents=True)
    (nli / "pair" / "train-00000-of-00001.parquet").unlink()
    held = nli.rename(snapshots / DATA.revision)
    located = locate_training(DATA, settings)
    assert (located.folder, located.data) == (held, DATA)
    assert rows_of(located, settings) == ROWS
    with pytest.raises(DataMissing, match="only in part in the hub's cache"):
        locate_training(replace(DATA, config="pair"), settings)
    (held / "triplet" / "train-00000-of-00002.parquet").unlink()
    with pytest.raises(DataMissing, match="only in part in the hub's cache"):
        locate_training(DATA, settings)


def test_a_plan_needs_neither_torch_nor_datasets(nli: Path, settings: DataSettings) -> None:
    code = f"""{BLOCKER.replace('"torch",', '"torch", "datasets",')}
from pathlib import Path
from harness.data.locate import DataSettings
from harness.data.training.sets import TrainingData, locate_training, locate_user_training
settings = DataSettings(root=Path(sys.argv[1]), offline=True, cache=Path(sys.argv[2]))
data = TrainingData(path="org/nli", config="triplet", columns=("anchor", "positive", "negative"))
print(locate_training(data, settings).rows, locate_user_training("org/nli:triplet", settings).rows)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(settings.root), str(settings.cache)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[4],
    )
    assert (done.stdout, done.stderr) == ("3 3\n", "")


# Data of a user's own


@pytest.mark.parametrize("ending", ["jsonl", "csv", "tsv", "parquet"])
@pytest.mark.parametrize(
    ("names", "columns", "form"),
    [
        (("query", "document"), ("anchor", "positive"), "pair"),
        (("Premise", "hypothesis", "negative"), ("anchor", "positive", "negative"), "triplet"),
        (("left", "right"), ("anchor", "positive"), "pair"),
        (("a", "b", "c", "d"), ("anchor", "positive", "negative_1", "negative_2"), "tuple"),
    ],
)
def test_files_of_one_s_own(
    tmp_path: Path,
    settings: DataSettings,
    ending: str,
    names: tuple[str, ...],
    columns: tuple[str, ...],
    form: str,
) -> None:
    texts = [tuple(f"{name} {number}, é" for name in names) for number in range(3)]
    path = tmp_path / f"own.{ending}"
    located = locate_user_training(
        str(write_rows(path, [dict(zip(names, row, strict=True)) for row in texts])), settings
    )
    assert (located.data.columns, located.data.form, located.rows) == (columns, form, 3)
    assert (located.name, located.own, located.folder) == (path.name, True, None)
    assert located.file is not None
    assert located.file.parent == settings.cache / "source"
    assert rows_of(located, settings) == texts


def test_the_same_rows_in_any_file_are_the_same_data_and_are_made_once(
    tmp_path: Path, settings: DataSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"query": "q1", "score": 0.5, "answer": "a1"}, {"query": "q2", "score": 1.0, "answer": "a2"}]
    files = [write_rows(tmp_path / f"own.{ending}", rows) for ending in ("jsonl", "csv", "tsv", "parquet")]
    found = [locate_user_training(str(file), settings) for file in files]
    assert len({json.dumps(dict(one.data.identity)) for one in found}) == 1
    assert rows_of(found[0], settings) == [("q1", "a1", 0.5), ("q2", "a2", 1.0)]
    assert found[0].data.form == "scored pair"
    swapped = write_rows(tmp_path / "swapped.jsonl", rows[::-1])
    assert locate_user_training(str(swapped), settings).data.identity != found[0].data.identity

    assert found[0].file is not None
    made = found[0].file.read_bytes()
    monkeypatch.setattr(
        "harness.data.training.own_rows.iter_file_rows", lambda _path: pytest.fail("read again")
    )
    assert locate_user_training(str(files[0]), settings) == found[0]
    monkeypatch.undo()
    found[0].file.write_bytes(made[:-9])
    assert locate_user_training(str(files[0]), settings) == found[0]
    assert found[0].file.read_bytes() == made


def test_columns_are_taken_by_their_names(root: Path, tmp_path: Path, settings: DataSettings) -> None:
    rows = [{"id": "7", "negative_10": "n10", "positive": "p", "negative_9": "n9", "question": "q"}]
    own = locate_user_training(str(write_rows(tmp_path / "own.jsonl", rows)), settings)
    assert rows_of(own, settings) == [("q", "p", "n9", "n10")]
    parquet(root / "org/mine/train.parquet", {name: [value] for name, value in rows[0].items()})
    hub = locate_user_training("org/mine", settings)
    assert hub.data.columns == ("question", "positive", "negative_9", "negative_10")
    assert rows_of(hub, settings) == [("q", "p", "n9", "n10")]
    numbered = locate_user_training(
        str(write_rows(tmp_path / "own.csv", [{"id": "7", "x": "a", "y": "b"}])), settings
    )
    assert rows_of(numbered, settings) == [("a", "b")]


@pytest.mark.parametrize(
    ("columns", "read_as"),
    [
        (("foo", "bar"), "foo → anchor, bar → positive"),
        (("id", "foo", "bar", "source"), "foo → anchor, bar → positive"),
        (("foo", "doc_id", "bar", "page_url"), "foo → anchor, bar → positive"),
        (("source", "target"), "source → anchor, target → positive"),
        (("source", "target", "id"), "source → anchor, target → positive"),
        (("source", "target", "domain"), "source → anchor, target → positive"),
        (("foo", "bar", "baz"), "foo → anchor, bar → positive, baz → negative"),
        (("Query", "answer", "id", "negative"), "Query → anchor, answer → positive, negative → negative"),
    ],
)
def test_ids_and_origins_are_no_texts_and_what_is_read_is_said(
    root: Path, tmp_path: Path, settings: DataSettings, columns: tuple[str, ...], read_as: str
) -> None:
    row = {name: f"the {name}" for name in columns}
    parquet(root / "org/mine/train.parquet", {name: [value] for name, value in row.items()})
    parquet(tmp_path / "own.parquet", {name: [value] for name, value in row.items()})
    for text in (str(write_rows(tmp_path / "own.jsonl", [row])), str(tmp_path / "own.parquet"), "org/mine"):
        assert locate_user_training(text, settings).read_as == read_as


@pytest.mark.parametrize("negative", ["neg", "negs", "hard_neg", "hard_negatives", "negative"])
def test_every_usual_name_of_negatives_counts(tmp_path: Path, settings: DataSettings, negative: str) -> None:
    """As a text and as a list, beside a positive that is a text or a list."""
    for number, (positive, value) in enumerate((("p", "n"), (["p"], "n"), ("p", ["n"]), (["p"], ["n"]))):
        row = {"query": "q", "pos": positive, negative: value}
        own = locate_user_training(str(write_rows(tmp_path / f"{number}.jsonl", [row])), settings)
        (found,) = load_rows(own, cache=settings.cache).read_text_rows([0])
        assert (found.query, found.positive, found.negatives) == ("q", "p", ("n",))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "own.jsonl",
            '{"query": "a", "answer": "b"}\n{"query": "c"}\n',
            r"own.jsonl:2: the column 'answer' is missing",
        ),
        (
            "own.jsonl",
            '{"a": "1", "b": "2"}\n{"a": "1", "b": "2", "c": "3"}\n',
            r"own.jsonl:2: the column 'c' is new",
        ),
        ("own.jsonl", '{"query": "a", "answer": " "}\n', r"own.jsonl:1: the field 'answer' is blank"),
        ("own.jsonl", '{"query": "a", "answer": "b"}\n\n{"query": "a", "answer": null}\n', r":3: .*'answer'"),
        ("own.jsonl", '{"query": "a", "answer": "b"}\n{"query": "a", "answer": 5}\n', r":2: .*not a string"),
        ("own.jsonl", '{"query": ["a"], "answer": "b"}\n', r":1: the column 'query' holds no text"),
        ("own.jsonl", '{"query": "a", "answer": []}\n', r":1: the field 'answer\[0\]' is None"),
        ("own.jsonl", '{"query": "a", "answer": "b", "neg": ["c", 5]}\n', r":1: .* 'neg\[\]' is 5, not a s"),
        ("own.jsonl", '{"query": "a", "query": "b"}\n', r":1: .*a field occurs twice"),
        ("own.jsonl", '{"query": "a", "answer": "\\ud800"}\n', r":1: .*surrogate"),
        ("own.jsonl", '{"query": "a", "answer": "b", "score": 1}\n' * 2 + "{", r":3: not valid JSON"),
        (
            "own.jsonl",
            '{"query": "a", "answer": "b", "score": "high"}\n',
            r":1: the field 'score' is 'high', not a finite number",
        ),
        ("own.jsonl", "\n\n", "there are no rows"),
        ("own.jsonl", "", "there are no rows"),
        ("own.csv", "query,answer\n", "there are no rows"),
        ("own.csv", "query,answer,query\na,b,c\n", "a column name occurs twice"),
        ("own.csv", "query,answer\na,b\nc\n", r"own.csv:3: 1 columns, where the header has 2"),
        ("own.csv", "query,answer\na,\n", r"own.csv:2: the field 'answer' is blank"),
        ("own.csv", "query,\na,b\n", r"a column has no name"),
        ("own.csv", "query\na\n", r"two columns of text are needed; found: query"),
        ("own.csv", "query,negative\na,b\n", r"there is a column 'negative' and none of positives"),
        ("own.csv", "premise,hypothesis,label\na,b,0\n", r"'label' holds classes of entailment"),
        ("own.tsv", 'query\tanswer\n"a\tb\n', r"own.tsv:2: unexpected end of data"),
        ("own.csv", b"query,answer\na,\xff\n", r"own.csv:2: not UTF-8"),
        ("own.parquet", b"PAR1 no parquet", r"own.parquet: this is not a complete Parquet file"),
    ],
)
def test_a_bad_file_is_refused_by_file_and_row(
    tmp_path: Path, settings: DataSettings, name: str, content: str | bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=message) as caught:
        locate_user_training(str(path), settings)
    assert str(path) in caught.value.message
    assert not [*settings.cache.rglob("*.parquet"), *settings.cache.rglob("*.tmp")]


CORPUS = '{"_id": "d1", "title": "T", "text": "one"}\n{"_id": 2, "text": "two"}\n{"_id": "d3", "text": ""}\n'
QUERIES = '{"_id": "q1", "text": "first"}\n{"_id": "q2", "text": "second"}\n{"_id": "q3", "text": " "}\n'
QRELS = "query-id\tcorpus-id\tscore\nq2\td1\t1\nq1\td1\t0\nq1\t2\t2\n"


@pytest.fixture
def judged(tmp_path: Path, lay: Callable[..., Path]) -> Path:
    """A folder in BEIR's layout with the splits train and dev."""
    split = {"qrels/train.tsv": QRELS, "qrels/dev.tsv": "q1\t2\t1\n"}
    return lay(tmp_path / "judged", {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES, **split})


def test_a_folder_in_beirs_layout_gives_pairs(judged: Path, settings: DataSettings) -> None:
    """Documents of judgements above 0, with their titles; nothing else is read of the others."""
    train, dev = locate_user_training(str(judged), settings), locate_user_training(f"{judged}:dev", settings)
    assert rows_of(train, settings) == [("second", "T one"), ("first", "two")]
    assert rows_of(dev, settings) == [("first", "two")]
    assert (train.name, dev.name, train.data.form) == ("judged:train", "judged:dev", "pair")
    (judged / "corpus.jsonl").write_text(CORPUS.replace("two", "2"))
    assert locate_user_training(str(judged), settings).data.content != train.data.content


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("qrels/train.tsv", QRELS + "q9\td1\t1\n", r"train.tsv:5: the id 'q9' is not in .*queries.jsonl"),
        ("qrels/train.tsv", QRELS + "q1\td9\t1\n", r"train.tsv:5: the id 'd9' is not in .*corpus.jsonl"),
        ("qrels/train.tsv", QRELS + "q1\td3\t1\n", r"corpus.jsonl:3: the document has no text"),
        ("qrels/train.tsv", QRELS + "q3\td1\t1\n", r"queries.jsonl:3: the field 'text' is blank"),
        ("qrels/train.tsv", QRELS + "q1\td1\thigh\n", r"train.tsv:5: the field 'score' is 'high'"),
        ("qrels/train.tsv", "q1\td1\t0\n", "train.tsv: no judgement is above 0"),
        ("corpus.jsonl", CORPUS * 2, r"corpus.jsonl:4: the id 'd1' occurs twice, first in line 1"),
        ("queries.jsonl", '{"_id": "q1"}\n{"_id": "q2"}\n', r"queries.jsonl:2: no field 'text'"),
    ],
)
def test_a_bad_folder_is_refused_by_file_and_row(
    judged: Path, settings: DataSettings, file: str, content: str, message: str
) -> None:
    (judged / file).write_text(content)
    with pytest.raises(DataError, match=message):
        locate_user_training(str(judged), settings)


def test_a_split_that_is_not_there(judged: Path, settings: DataSettings) -> None:
    with pytest.raises(UsageError, match=r"No split of .*judged is called 'test'") as caught:
        locate_user_training(f"{judged}:test", settings)
    assert "dev" in (caught.value.hint or "")
    for file in (judged / "qrels").iterdir():
        file.unlink()
    with pytest.raises(UsageError, match=r"has no qrels/train.tsv"):
        locate_user_training(str(judged), settings)
    (judged / "queries.jsonl").unlink()
    (judged / "qrels" / "train.tsv").write_text(QRELS)
    with pytest.raises(DataError, match=r"queries.jsonl: No such file"):
        locate_user_training(str(judged), settings)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"query": ["a", "b"], "answer": ["c", None]}, "row 2: the field 'answer' is None, not a string"),
        ({"query": ["a", "b"], "answer": [1, 2]}, "the column 'answer' holds no text"),
        ({"query": ["a"], "answer": ["b"], "score": ["c"]}, "row 1: the field 'score' is 'c', not a finite"),
        ({"query": ["a"], "answer": ["b"], "score": [None]}, "row 1: the field 'score' is None, not a"),
        ({"query": pa.array([], "string"), "answer": pa.array([], "string")}, "there are no rows"),
    ],
)
def test_a_bad_parquet_file_is_refused(
    tmp_path: Path, settings: DataSettings, columns: dict[str, Any], message: str
) -> None:
    path = parquet(tmp_path / "own.parquet", columns)
    with pytest.raises(DataError, match=message) as caught:
        locate_user_training(str(path), settings)
    assert str(path) in caught.value.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("  ", "empty name"),
        ("pairs.txt", "end in .jsonl, .csv, .tsv, .parquet"),
        ("folder", "is a folder.\nFor the functions in its Python source: --train-data code:"),
        ("named", "The README of named has the configurations trian, queries.\nQueries with scored"),
        ("pears.jsonl", "Did you mean .*pairs.jsonl"),
        ("org/nil", "Did you mean org/nli"),
        ("org/nli:triplets", "did you mean 'triplet'"),
        ("org/nli", "has several configurations: pair, triplet.\nName one after a colon"),
        ("glue:rte", "No training data 'glue:rte'"),
        ("code:", "Type --train-data code:FOLDER"),
        ("code:nowhere", "nowhere is not a folder"),
    ],
)
@pytest.mark.usefixtures("nli")
def test_a_name_of_no_data_is_refused(
    tmp_path: Path, settings: DataSettings, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.txt").write_text("a\tb\n")
    (tmp_path / "pairs.jsonl").write_text('{"a": "b", "c": "d"}\n')
    (tmp_path / "folder").mkdir()
    (tmp_path / "named").mkdir()
    configs = "".join(f"- config_name: {name}\n  data_files: a.parquet\n" for name in ("trian", "queries"))
    (tmp_path / "named" / "README.md").write_text(f"---\nconfigs:\n{configs}---\n")
    with pytest.raises(HarnessError, match=message) as caught:
        locate_user_training(text, settings)
    assert isinstance(caught.value, UsageError | DataMissing)


def test_a_data_set_of_the_hub_is_fetched_at_its_commit(
    nli: Path, settings: DataSettings, hub_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "c" * 40
    snapshot = hub_cache / "datasets--org--nli" / "snapshots" / commit
    fetched = []

    def snapshot_download(path: str, *, repo_type: str, revision: str, allow_patterns: list[str]) -> str:
        fetched.append((path, repo_type, revision, allow_patterns))
        if not snapshot.exists():
            snapshot.parent.mkdir(parents=True)
            nli.rename(snapshot)
        return str(snapshot)

    class Api:
        def dataset_info(self, path: str, *, revision: str | None) -> Any:
            assert (path, revision) == (PATH, None)
            return type("Info", (), {"sha": commit})

    online = replace(settings, root=None, offline=False)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    located = locate_user_training("org/nli:triplet", online)
    assert (located.folder, located.rows, located.data.revision) == (snapshot, 3, commit)
    assert [patterns for *_, patterns in fetched] == [["*.md"], ["triplet/train-*", "*.md"]]
    assert (
        locate_user_training(f"org/nli@{commit}:triplet", replace(settings, root=None)).data == located.data
    )
    assert locate_user_training("org/nli:triplet", online).data == located.data
    assert len(fetched) == 2


# Sizes, and the texts that were trained on


def test_sizes_and_texts(nli: Path, settings: DataSettings, tmp_path: Path) -> None:
    located = locate_training(DATA, settings)
    size = TrainingSize.measure_training(located, settings.cache)
    assert size.rows == 3
    assert size.characters == {"anchor": 16 / 3, "positive": 22 / 3, "negative": 17 / 3}

    model = tmp_path / "model"
    assert read_text_hashes(model) is None
    write_text_hashes(
        (located, locate_training(replace(DATA, columns=("negative",)), settings)),
        model,
        parent=tmp_path,
        cache=settings.cache,
    )
    known = read_text_hashes(model)
    assert known is not None
    texts = {text for row in ROWS for text in row}
    expected = sorted(
        int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") for text in texts
    )
    assert known.tolist() == expected
    assert known.dtype == np.uint64
    assert count_trained(["a cat", "a cat ", "漢", "a cat", "A cat"], known) == 2
    assert count_trained([], known) == 0
    further, pairs = tmp_path / "further", tmp_path / "pairs.jsonl"
    pairs.write_text('{"anchor": "new", "positive": "a cat"}\n')
    own = locate_user_training(str(pairs), settings)
    write_text_hashes((own,), further, parent=model, cache=settings.cache)
    both = read_text_hashes(further)
    assert both is not None
    assert (len(both), count_trained(["new", "a cat", "漢"], both)) == (len(known) + 1, 3)
    (model / "training" / "texts.npy").write_bytes(b"cut")
    assert read_text_hashes(model) is None


@pytest.mark.shared
def test_real_data(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = DataSettings(root=shared, offline=True, cache=tmp_path / "cache")
    nli = replace(DATA, path="sentence-transformers/all-nli")
    located = locate_training(nli, settings)
    assert located.rows == len(rows_of(located, settings)) == 5_875
    sts = locate_user_training("mteb/stsbenchmark-sts", settings)
    assert (sts.data.form, sts.rows, sts.name) == ("scored pair", 5_749, "mteb/stsbenchmark-sts")
    assert rows_of(sts, settings)[0] == ("A plane is taking off.", "An air plane is taking off.", 5.0)
    feedback = locate_user_training(str(shared / "local" / "feedbackqa-train"), settings)
    assert (feedback.data.form, feedback.rows) == ("pair", 4_399)
    bash = locate_user_training(str(shared / "pairs" / "nl2bash" / "train.jsonl"), settings)
    assert (bash.data.form, bash.rows) == ("pair", 11_607)
