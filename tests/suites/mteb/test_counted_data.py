"""What is counted in data of unknown origin: what is missing of it, and what is odd in it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import data_files
from harness.core.errors import DataError, HarnessError
from harness.core.types import Data, DataReport, SuiteOptions, Task
from harness.data.counting import count_task_data
from harness.data.folder import find_part_gaps, read_declared_rows, resolve_identity
from harness.data.locate import DataSettings, Finding, Located, check_data
from harness.data.schema import resolve_readable_folder
from harness.data.training.loading import describe_repeats
from harness.data.training.sets import TrainingData, locate_training, locate_user_training
from suites._mteb.source import build_mteb_suite

STS = [{"sentence1": f"a {i}", "sentence2": f"b {i}", "score": float(i)} for i in range(4)]
BANK = [{"text": f"text {i}", "label": i % 2} for i in range(4)]
NEWS = [{"sentences": [f"a {i}", "b"], "labels": [0, 1]} for i in range(2)]
FACT: Mapping[str, Sequence[Mapping[str, object]]] = {
    "corpus.jsonl": [{"_id": f"d{i}", "title": "", "text": f"text {i}"} for i in range(4)],
    "queries.jsonl": [{"_id": f"q{i}", "text": f"query {i}"} for i in range(2)],
    "qrels.jsonl": [{"query-id": f"q{i}", "corpus-id": f"d{i}", "score": 1} for i in range(2)],
}

Files = Mapping[str, Any]


def lay(folder: Path, files: Files) -> Path:
    """A folder with rows of JSON, Parquet or CSV, or with text, by the ends of the names."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            (folder / name).write_text(content)
        elif name.endswith(".parquet"):
            pq.write_table(pa.Table.from_pylist(list(content)), folder / name)
        else:
            data_files.lines(folder / name, content)
    return folder


def card(splits: Mapping[str, Any], rows: Mapping[str, int] | None = None) -> str:
    """A README with the files of each split, and their numbers of rows."""
    files = [{"split": split, "path": path} for split, path in splits.items()]
    entry: dict[str, Any] = {"configs": [{"config_name": "default", "data_files": files}]} if files else {}
    if rows is not None:
        splits = [{"name": split, "num_examples": number, "num_bytes": 1} for split, number in rows.items()]
        features = [{"name": n, "dtype": t} for n, t in (("sentence1", "string"), ("sentence2", "string"))]
        features.append({"name": "score", "dtype": "float64"})
        entry["dataset_info"] = {"features": features, "splits": splits}
    return f"---\n{yaml.safe_dump(entry)}---\n"


def fact(changed: Mapping[str, Any] | None = None, corpus: str = "corpus.jsonl") -> dict[str, Any]:
    """The files of a retrieval task with some in place of others."""
    configs = [
        {"config_name": name, "data_files": [{"split": split, "path": path}]}
        for name, split, path in (
            ("corpus", "corpus", corpus),
            ("queries", "queries", "queries.jsonl"),
            ("default", "test", "qrels.jsonl"),
        )
    ]
    return {**FACT, "README.md": f"---\n{yaml.safe_dump({'configs': configs})}---\n", **(changed or {})}


def ask(name: str, root: Path, files: Files) -> tuple[Task, Located, DataSettings]:
    """A task of mteb with the data in a root."""
    options = SuiteOptions(subsets=("en-en",)) if name == "STS17" else SuiteOptions()
    (task,) = build_mteb_suite(name, called=name, options=options).tasks
    folder = lay(root / task.data.path, files)
    settings = DataSettings(root=root, offline=True, cache=root.parent / "cache")
    data = resolve_identity(Data(path=task.data.path), folder, settings.cache)
    return replace(task, data=data), Located(data=data, folder=folder, origin="root"), settings


def count(name: str, root: Path, files: Files) -> DataReport:
    task, located, settings = ask(name, root, files)
    return count_task_data(task, located.folder, settings.cache)


PARTS = [
    (
        "STSBenchmark",
        {f"data/test-0000{n}-of-00003.parquet": STS for n in (1, 2)},
        "test-00000-of-00003 is missing: 2 of 3",
    ),
    (
        "STSBenchmark",
        {"README.md": card({"test": "t-*.jsonl"}), "t-00001-of-00004.jsonl": STS},
        "t-00000-of-00004 and 2 more are missing: 1 of 4",
    ),
    ("STSBenchmark", {"test-0-of-2.csv": "sentence1,sentence2,score\na,b,1\n"}, "test-1-of-2 is missing"),
    (
        "Banking77Classification",
        {"test.jsonl": BANK, **{f"train_{n:05d}_of_00003.parquet": BANK for n in (0, 2)}},
        "train_00001_of_00003 is missing: 2 of 3",
    ),
    (
        "SciFact",
        fact({"c-00000-of-00002.jsonl.gz": FACT["corpus.jsonl"]}, "c-*.gz"),
        "c-00001-of-00002 is missing",
    ),
    (
        "STSBenchmark",
        {
            "data/test-00000-of-00002-ab.parquet": STS,
            "data/test-00000-of-00002-cd.parquet": STS,
            "data/test-00001-of-00002-ab.parquet": STS,
        },
        "are the same part twice",
    ),
    (
        "STSBenchmark",
        {
            **{f"data/test-0000{n}-of-00002.parquet": STS for n in (0, 1)},
            "data/test-00002-of-00003.parquet": STS,
        },
        "parts of two uploads: of 2 and of 3 files",
    ),
    (
        "STSBenchmark",
        {"README.md": card({"test": ["a.jsonl", "b.jsonl"]}), "a.jsonl": STS},
        "README.md names b.jsonl for the split 'test', and no such file exists",
    ),
    (
        "STSBenchmark",
        {"README.md": card({"test": "test.jsonl"}, {"test": 5}), "test.jsonl": STS},
        "test: 4 of the 5 rows that its data set declares are here",
    ),
    ("STSBenchmark", {"README.md": card({}, {"test": 5}), "test.parquet": STS}, "test: 4 of the 5 rows"),
    (
        "STSBenchmark",
        {
            "dataset_infos.json": json.dumps({"sts": {"splits": {"test": {"num_examples": 1379}}}}),
            "test.parquet": STS,
        },
        "test: 4 of the 1,379 rows",
    ),
    (
        "STSBenchmark",
        {
            "README.md": card({"test": "test/*.parquet"}),
            **{f"test/part-{n:05d}-3f1c.snappy.parquet": STS[:n] for n in (1, 2, 4)},
        },
        "test/part-00003 is missing: the parts before and behind it are here",
    ),
    (
        "STSBenchmark",
        {"README.md": card({"test": "*.jsonl"}), **{f"test.{n:02d}.jsonl": STS[n:] for n in (0, 2)}},
        "test.01 is missing",
    ),
    (
        "STSBenchmark",
        {"README.md": card({"test": "*.jsonl"}), **{f"test.part{n}of3.jsonl": STS[n:] for n in (1, 3)}},
        "test.part2of3 is missing: 2 of 3",
    ),
    (
        "STSBenchmark",
        {"test-0-of-2.jsonl": STS, "test-1-of-2.jsonl": ""},
        "test-1-of-2.jsonl is empty",
    ),
    (
        "STSBenchmark",
        {f"data/test-0000{n}-of-00002.parquet": STS for n in (0, 1)},
        "data/test-00001-of-00002.parquet is a copy of data/test-00000-of-00002.parquet",
    ),
    (
        "STSBenchmark",
        {"README.md": card({"test": "test*"}), "test_1_of_2.jsonl": STS},
        "test_2_of_2 is missing: 1 of 2",
    ),
]
"""Tasks, files and what is said of the part that is missing."""


@pytest.mark.parametrize(("name", "files", "said"), PARTS)
def test_a_part_of_the_data_is_refused_unless_it_is_accepted(
    name: str, files: Files, said: str, tmp_path: Path
) -> None:
    task, located, settings = ask(name, tmp_path / "root", files)
    finding = Finding.check_task_data(task, settings)
    assert finding.state == "faulty"
    assert any(said in fault for fault in finding.faults)
    with pytest.raises(DataError) as caught:
        check_data(task, located, settings)
    assert said in caught.value.message
    assert str(caught.value.hint).endswith("--allow partial-data")
    accepted = replace(settings, partial=True)
    assert check_data(task, located, accepted) == task.size
    assert Finding.check_task_data(task, accepted).state == "ok"
    assert any(said in gap for gap in count_task_data(task, located.folder, settings.cache).gaps)


LOST = "test_b.jsonl"
CACHE = ".cache/huggingface/download/"


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (f"{CACHE}{LOST}.metadata", "test_b.jsonl is not whole: the record of a download"),
        (f"{CACHE}x.ab.incomplete", "x.ab.incomplete is not whole: the record of a download"),
        ("SHA256SUMS", "test_b.jsonl is not whole: SHA256SUMS names it"),
        ("b.sha256", "test_b.jsonl is not whole: b.sha256 names it"),
        ("_metadata", "test_b.jsonl is not whole: _metadata names it"),
    ],
)
@pytest.mark.parametrize("declared", [True, False])
def test_a_file_that_a_record_names_is_missing(
    record: str, said: str, declared: bool, tmp_path: Path
) -> None:
    files = {"test_a.jsonl": STS, **({"README.md": card({"test": "test_*"})} if declared else {})}
    task, located, settings = ask("STSBenchmark", tmp_path / "root", files)
    assert located.folder is not None
    path = located.folder / record
    path.parent.mkdir(parents=True, exist_ok=True)
    if record == "_metadata":
        collected: list[Any] = []
        table = pa.table({"score": [1.0]})
        pq.write_table(table, tmp_path / "one.parquet", metadata_collector=collected)
        collected[0].set_file_path(LOST)
        pq.write_metadata(table.schema, path, metadata_collector=collected)
    else:
        path.write_text(f"{'a' * 64}  {LOST}\n{'a' * 64} *README.txt\n{'a' * 64}  train.jsonl\n")
    (gap,) = count_task_data(task, located.folder, settings.cache).gaps
    assert said in gap
    if not record.endswith(".incomplete"):
        lay(located.folder, {LOST: STS[1:]})
    else:
        path.unlink()
    assert count_task_data(task, located.folder, settings.cache).gaps == ()


@pytest.mark.parametrize("number", [7, 8, 9, 10])
def test_the_library_reads_a_part_that_was_accepted(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By itself it refuses rows that are not as many as declared, and a file that is not there."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "library")
    folder = lay(tmp_path / "data", PARTS[number][1])
    with pytest.raises((FileNotFoundError, datasets.exceptions.DatasetsError)):
        datasets.load_dataset(str(folder))
    read = datasets.load_dataset(str(resolve_readable_folder(folder)), split="test")
    assert read["score"][:] == [row["score"] for row in STS]


@pytest.mark.parametrize(
    "files",
    [
        {f"data/test-0000{n}-of-00002-{'ab'[n]}.parquet": STS[n:] for n in (0, 1)},
        {f"test-{n}-of-2.jsonl": STS[n - 1 :] for n in (1, 2)},
        {"README.md": card({"test": "*.jsonl"}), **{f"test-{n}.jsonl": STS[n:] for n in (1, 3)}},
        {"README.md": card({"test": "*.jsonl"}), **{f"test-{n}.jsonl": STS[n % 4 :] for n in (2016, 2018)}},
        {"README.md": card({"test": "test.jsonl"}, {"test": 4}), "test.jsonl": STS},
        {
            "README.md": card({"test": "test.jsonl", "train": "train.jsonl"}, {"test": 4, "train": 9}),
            "test.jsonl": STS,
        },
        {"README.md": card({"test": "test.jsonl"}, {"test": 3}), "test.jsonl": STS},
    ],
    ids=["hashes", "from 1", "sizes", "years", "declared", "other split", "more"],
)
def test_whole_data_has_no_gap(files: Files, tmp_path: Path) -> None:
    task, located, settings = ask("STSBenchmark", tmp_path / "root", files)
    check_data(task, located, settings)
    report = count_task_data(task, located.folder, settings.cache)
    assert (report.gaps, report.faults, report.notes) == ((), (), ())
    assert report.counts["rows"] == sum(len(rows) for rows in files.values() if rows[0] in STS)


NULLS = [
    (
        "STSBenchmark",
        {"test.parquet": [{**STS[0], "score": 1.0}, {**STS[1], "score": None}]},
        "test.parquet: row 2: the column 'score' holds no value",
    ),
    (
        "STSBenchmark",
        {"test.parquet": [STS[0], {**STS[1], "score": float("nan")}]},
        "row 2: the column 'score'",
    ),
    (
        "STSBenchmark",
        {"test.csv": "sentence1,sentence2,score\na,b,1\na,,2\n"},
        "test.csv: row 2: the column 'sentence2'",
    ),
    (
        "STSBenchmark",
        {"test.jsonl": [STS[0], {"sentence1": "a", "sentence2": "b"}]},
        "test.jsonl: row 2: the column 'score'",
    ),
    (
        "Banking77Classification",
        {"test.jsonl": BANK, "train.jsonl": [*BANK, {"text": "x", "label": None}]},
        "train.jsonl: row 5: the column 'label'",
    ),
    (
        "SciFact",
        fact({"qrels.jsonl": [*FACT["qrels.jsonl"], {"query-id": "q1", "corpus-id": None, "score": 1}]}),
        "qrels.jsonl: row 3: the column 'corpus-id'",
    ),
    (
        "TwentyNewsgroupsClustering",
        {"test.jsonl": [*NEWS, {"sentences": ["a", None], "labels": [0, 1]}]},
        "test.jsonl: a row: the column 'sentences'",
    ),
]


@pytest.mark.parametrize(("name", "files", "said"), NULLS)
def test_a_missing_value_is_named_before_anything_is_encoded(
    name: str, files: Files, said: str, tmp_path: Path
) -> None:
    task, located, settings = ask(name, tmp_path / "root", files)
    with pytest.raises(DataError) as caught:
        check_data(task, located, replace(settings, partial=True))
    assert said in caught.value.message
    assert "\n" not in caught.value.message
    assert any(said in fault for fault in Finding.check_task_data(task, settings).faults)


@pytest.mark.parametrize(
    ("name", "files", "note", "counts"),
    [
        (
            "STSBenchmark",
            {"test.jsonl": [{**STS[0], "sentence1": " "}, *STS]},
            "1 of 10 texts are blank.",
            {"blank": 1},
        ),
        (
            "STSBenchmark",
            {"test.parquet": [{**STS[0], "sentence1": "", "sentence2": "\n"}]},
            "2 of 2 texts are blank.",
            {"blank": 2},
        ),
        (
            "TwentyNewsgroupsClustering",
            {"test.jsonl": [{**NEWS[0], "sentences": ["", "x"]}]},
            "1 of 2 texts are blank.",
            {"blank": 1},
        ),
        (
            "SciFact",
            fact(
                {
                    "corpus.jsonl": [
                        *FACT["corpus.jsonl"],
                        {"_id": "d9", "title": " ", "text": ""},
                        {"_id": "e", "title": "t", "text": ""},
                    ]
                }
            ),
            "1 of 6 documents are empty.",
            {"blank_documents": 1},
        ),
        (
            "SciFact",
            fact(
                {
                    "queries.jsonl": [
                        {"_id": "q0", "text": ""},
                        {"_id": "q1", "text": "x"},
                        {"_id": "q2", "text": ""},
                    ]
                }
            ),
            "1 of 2 queries are empty.",
            {"blank_queries": 1, "unjudged_queries": 1},
        ),
        (
            "SciFact",
            fact({"corpus.jsonl": [*FACT["corpus.jsonl"], FACT["corpus.jsonl"][0]]}),
            "1 of 5 documents have the id of another.",
            {"duplicate_documents": 1},
        ),
        (
            "SciFact",
            fact({"queries.jsonl": [*FACT["queries.jsonl"], *FACT["queries.jsonl"]]}),
            "2 of 4 queries have the id of another.",
            {"duplicate_queries": 2},
        ),
        (
            "SciFact",
            fact({"qrels.jsonl": [*FACT["qrels.jsonl"], {"query-id": "q1", "corpus-id": "x", "score": 1}]}),
            "1 of 3 judged documents are not in the corpus: no model can find them.",
            {"lost_documents": 1},
        ),
        (
            "SciFact",
            fact(
                {"qrels.jsonl": [FACT["qrels.jsonl"][0], {"query-id": "q1", "corpus-id": "d1", "score": 0}]}
            ),
            "1 of 2 judged queries have no relevant document: every model scores 0 on them.",
            {"unanswered_queries": 1},
        ),
        (
            "Banking77Classification",
            {"train.jsonl": BANK, "test.jsonl": BANK},
            "4 of 4 test rows have the texts of a training row",
            {"test_in_train": 4},
        ),
        (
            "Banking77Classification",
            {
                "train.parquet": BANK,
                "test.parquet": [{"text": "text 1", "label": 0}, {"text": "new", "label": 1}],
            },
            "1 of 2 test rows have the texts of a training row",
            {"test_in_train": 1},
        ),
        (
            "EmotionClassification",
            {"train.csv": "text,label\na,0\nb,1\n", "test.csv": "text,label\nb,1\nb,0\nc,1\n"},
            "2 of 3 test rows have the texts of a training row",
            {"test_in_train": 2},
        ),
    ],
)
def test_what_is_odd_is_counted_and_noted(
    name: str, files: Files, note: str, counts: Mapping[str, int], tmp_path: Path
) -> None:
    task, located, settings = ask(name, tmp_path / "root", files)
    check_data(task, located, settings)
    report = count_task_data(task, located.folder, settings.cache)
    assert report.notes == (note,)
    assert {n: c for n, c in report.counts.items() if n != "rows"} == counts
    assert note in Finding.check_task_data(task, settings).report.notes


def test_subsets_that_a_merged_table_lacks_are_named_with_the_option(tmp_path: Path) -> None:
    rows = [{**row, "lang": "en-en"} for row in STS]
    task, located, settings = ask("STS17", tmp_path / "root", {"test.jsonl": rows})
    check_data(task, located, settings)
    wider = replace(task, subsets=("en-en", "en-ar", "es-en"))
    with pytest.raises(DataError, match="no row of the subset en-ar, es-en; --subsets en-en reads"):
        check_data(wider, located, settings)


def test_no_document_that_is_judged_is_one_fault(tmp_path: Path) -> None:
    report = count(
        "SciFact", tmp_path / "root", fact({"corpus.jsonl": [{"_id": "x", "title": "", "text": "y"}]})
    )
    assert report.faults == ("test: no judged document is in the documents: 'd0' is not",)


def test_rows_of_csv_in_another_dialect_are_left_to_the_library(tmp_path: Path) -> None:
    readme = card({"test": "test.tsv"}, {"test": 2}).replace(
        "- config_name: default", '- config_name: default\n  sep: "\\t"\n  quoting: 3'
    )
    rows = 'sentence1\tsentence2\tscore\n"open\tb\t1\nc\td\t2\n'
    report = count("STSBenchmark", tmp_path, {"README.md": readme, "test.tsv": rows})
    assert (report.gaps, report.faults) == ((), ())
    # Without the option the lone quotation mark joins the rows.
    plain = readme.replace("\n  quoting: 3", "")
    report = count("STSBenchmark", tmp_path / "plain", {"README.md": plain, "test.tsv": rows})
    assert report.gaps or report.faults


@pytest.mark.parametrize("infos", ['{"default": {"splits": 5}}', "[" * 100_000], ids=["number", "nested"])
def test_declarations_of_another_form_declare_nothing(infos: str, tmp_path: Path) -> None:
    assert read_declared_rows(lay(tmp_path, {"dataset_infos.json": infos})) == {}


def test_a_name_of_a_part_with_an_absurd_number_of_parts_is_not_listed() -> None:
    assert find_part_gaps(["test-0-of-99999999999.parquet"]) == []


def test_rows_are_counted_once_for_a_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.data import counting

    root = tmp_path / "root"
    first = count("STSBenchmark", root, {"test.jsonl": STS})
    monkeypatch.setattr(counting, "_read_tables", lambda *_: pytest.fail("read again"))
    assert count("STSBenchmark", root, {"test.jsonl": STS}) == first
    with pytest.raises(BaseException, match="read again"):
        count("STSBenchmark", root, {"test.jsonl": STS[:3]})


TRIPLETS = [{"anchor": f"a {i}", "positive": f"b {i}", "negative": "c"} for i in range(4)]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"train-00000-of-00002.parquet": TRIPLETS}, "train-00001-of-00002 is missing"),
        ({"README.md": card({"train": "x-*.jsonl"}), "x-00001-of-00002.jsonl": TRIPLETS}, "x-00000-of-00002"),
        (
            {"README.md": card({"train": "train.jsonl"}, {"train": 9}), "train.jsonl": TRIPLETS},
            "4 of the 9 rows",
        ),
    ],
)
def test_a_part_of_training_data_is_refused(files: Files, said: str, tmp_path: Path) -> None:
    lay(tmp_path / "root" / "org" / "data", files)
    settings = DataSettings(root=tmp_path / "root", offline=True, cache=tmp_path / "cache")
    data = TrainingData(path="org/data", revision="c" * 40, columns=("anchor", "positive", "negative"))
    for locate in (lambda s: locate_training(data, s), lambda s: locate_user_training("org/data", s)):
        with pytest.raises(HarnessError, match=said):
            locate(settings)
        assert any(said in note for note in locate(replace(settings, partial=True)).notes)


@pytest.mark.parametrize(
    ("file", "readme", "said"),
    [
        ("pairs-00001-of-00003.jsonl", "", "pairs-00000-of-00003 and 1 more are missing: 1 of 3"),
        ("train.jsonl", card({"train": "train.jsonl"}, {"train": 9}), "train.jsonl: 4 of the 9 rows"),
        ("only.jsonl", card({}, {"train": 9}), "only.jsonl: 4 of the 9 rows"),
    ],
)
def test_a_file_that_is_a_part_is_refused_as_training_data(
    file: str, readme: str, said: str, tmp_path: Path
) -> None:
    lay(tmp_path, {file: TRIPLETS, **({"README.md": readme} if readme else {})})
    settings = DataSettings(offline=True, cache=tmp_path / "cache")
    with pytest.raises(HarnessError, match=said):
        locate_user_training(str(tmp_path / file), settings)
    assert locate_user_training(str(tmp_path / file), replace(settings, partial=True)).rows == 4


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([("a", "x"), ("b", "y")], []),
        ([("a", "x"), ("a", "x"), ("b", "y")], ["1 of 3 pairs are equal to an earlier one"]),
        ([("a", "x"), ("b", "x"), ("c", "y")], ["3 rows have 2 different positives"]),
        ([(f"a{i}", f"p{i % 4}") for i in range(128)], ["128 rows have 4 different positives"]),
        (
            [("a", "x"), ("a", "x"), ("b", "x")],
            ["1 of 3 pairs are equal", "3 rows have 1 different positive"],
        ),
        ([("a", "x"), ("a", "y")], []),
    ],
)
def test_repeats_in_training_data_are_noted(
    pairs: Sequence[tuple[str, str]], said: Sequence[str], tmp_path: Path
) -> None:
    rows = [{"anchor": anchor, "positive": positive} for anchor, positive in pairs]
    lay(tmp_path, {"pairs.jsonl": rows})
    settings = DataSettings(offline=True, cache=tmp_path / "cache")
    notes = describe_repeats(locate_user_training(str(tmp_path / "pairs.jsonl"), settings), settings.cache)
    assert len(notes) == len(said)
    assert all(text in note for text, note in zip(said, notes, strict=True))
