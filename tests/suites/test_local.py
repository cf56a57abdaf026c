"""A user's folder: what is read from it, what its identity depends on, and every error message."""

from __future__ import annotations

import csv
import json
import pickle
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from harness.core.errors import DataError, HarnessError, UsageError
from harness.core.types import CountedSource, SuiteOptions
from harness.data.locate import DataSettings, Located, check_data
from harness.results.audit import audit
from harness.results.scores import TrainedResult, list_exclusions
from suites._content import Clusters, Document, Labelled, Pair, Pairs, Query, Retrieval, Row, hash_content
from suites._local_description import KINDS, LocalTask
from suites.local import SUITE, _load_vectors

SHARED = Path(__file__).parents[3] / "shared" / "datasets" / "local"
DOCS = Path(__file__).parents[2] / "docs" / "local-data.md"

CORPUS = (
    '{"_id": "d1", "title": "Refunds", "text": "Five days."}\n{"_id": "d2", "text": "A drum.", "more": [1]}\n'
)
QUERIES = '{"_id": "q1", "text": "money back"}\n{"_id": "q2", "text": "drum"}\n'
QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t2\n"
BEIR = {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES, "qrels/test.tsv": QRELS}

PAIRS = '{"text1": "a", "text2": "b", "score": 1}\n{"text1": "c", "text2": "d", "score": "2.5"}\n'
TRAIN = '{"text": "a", "label": "x"}\n{"text": "b", "label": "y"}\n'
TEST = '{"text": "c", "label": "y"}\n'
TEXTS = '{"text": "a", "label": 1}\n{"text": "b", "label": 2}\n{"text": "c", "label": 1}\n'

STS = {"harness.toml": '[[task]]\ntype = "sts"\n', "pairs.jsonl": PAIRS}
CLASSES = {"harness.toml": '[[task]]\ntype = "classification"\n', "train.jsonl": TRAIN, "test.jsonl": TEST}
GROUPS = {"harness.toml": '[[task]]\ntype = "clustering"\n', "texts.jsonl": TEXTS}


def folder(root: Path, files: dict[str, str]) -> Path:
    place = root / "mine"
    for name, text in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    return place


def only(root: Path, files: dict[str, str]) -> LocalTask:
    (task,) = LocalTask.read_all(folder(root, files))
    return task


# What is read


def test_beir_layout_without_a_description(tmp_path: Path) -> None:
    task = only(tmp_path, BEIR)
    assert (task.name, task.type, task.metric, task.split) == ("mine", "retrieval", "ndcg_at_10", "test")
    assert [f.relative_to(tmp_path / "mine").as_posix() for f in task.files] == [*BEIR]
    assert _load_vectors(task) == Retrieval(
        documents=(Document(id="d1", title="Refunds", text="Five days."), Document(id="d2", text="A drum.")),
        queries=(Query(id="q1", text="money back"), Query(id="q2", text="drum")),
        qrels={"q1": {"d1": 1}, "q2": {"d2": 2}},
    )


@pytest.mark.parametrize(
    ("splits", "names"),
    [
        (("test",), ["mine"]),
        (("train", "test"), ["mine"]),
        (("test", "dev", "train"), ["mine-dev", "mine-test"]),
        (("dev",), ["mine-dev"]),
        (("train",), ["mine-train"]),
        (("test", "._test"), ["mine"]),
    ],
)
def test_splits_of_the_beir_layout(tmp_path: Path, splits: tuple[str, ...], names: list[str]) -> None:
    files = {k: v for k, v in BEIR.items() if not k.startswith("qrels")}
    tasks = LocalTask.read_all(folder(tmp_path, files | {f"qrels/{split}.tsv": QRELS for split in splits}))
    assert [task.name for task in tasks] == names
    assert all(task.files[2].name == f"{task.split}.tsv" for task in tasks)


def test_a_description_goes_before_the_layout_and_gives_tasks_in_its_order(tmp_path: Path) -> None:
    toml = (
        '[[task]]\ntype = "retrieval"\nsplit = "dev"\n'
        '[[task]]\nname = "A.b_c-1"\ntype = "sts"\nfile = "sub/p.jsonl"\n'
        '[[task]]\nname = "0"\ntype = "classification"\n[[task]]\nname = "g"\ntype = "clustering"\n'
    )
    files = {"harness.toml": toml, "corpus.jsonl": CORPUS, "queries.jsonl": QUERIES, "qrels/dev.tsv": QRELS}
    files |= {"sub/p.jsonl": PAIRS, "train.jsonl": TRAIN, "test.jsonl": TEST, "texts.jsonl": TEXTS}
    tasks = LocalTask.read_all(folder(tmp_path, files))
    assert [(t.name, t.type, t.split) for t in tasks] == [
        ("mine", "retrieval", "dev"),
        ("A.b_c-1", "sts", "test"),
        ("0", "classification", "test"),
        ("g", "clustering", "test"),
    ]
    assert [type(_load_vectors(t)) for t in tasks] == [Retrieval, Pairs, Labelled, Clusters]
    assert [t.metric for t in tasks] == ["ndcg_at_10", "cosine_spearman", "accuracy", "v_measure"]


def test_rows_without_ids_are_numbered_and_numbers_may_be_labels_and_ids(tmp_path: Path) -> None:
    assert _load_vectors(only(tmp_path / "1", STS)) == Pairs(
        rows=(Pair(id="1", text1="a", text2="b", score=1.0), Pair(id="2", text1="c", text2="d", score=2.5))
    )
    assert _load_vectors(only(tmp_path / "2", GROUPS)) == Clusters(
        rows=(
            Row(id="1", text="a", label="1"),
            Row(id="2", text="b", label="2"),
            Row(id="3", text="c", label="1"),
        )
    )
    named = '{"id": 7, "text": "c", "label": "y"}\n{"_id": "n", "id": 3, "text": "d", "label": "y"}\n'
    labelled = _load_vectors(only(tmp_path / "3", CLASSES | {"test.jsonl": named}))
    assert isinstance(labelled, Labelled)
    assert [row.id for row in labelled.test] == ["7", "n"]


def test_columns_are_mapped(tmp_path: Path) -> None:
    toml = '[[task]]\ntype = "sts"\nfile = "p.csv"\n[task.columns]\n'
    toml += 'text1 = "sentence 1"\ntext2 = "text1"\nscore = "gold"\nid = "key"\nextra = "x"\n'
    table = 'key,sentence 1,text1,gold\nk1,one,two,0\nk2,"a, ""b""\nc",four,5\n'
    files = {"harness.toml": toml.replace('extra = "x"\n', ""), "p.csv": table}
    assert _load_vectors(only(tmp_path, files)) == Pairs(
        rows=(
            Pair(id="k1", text1="one", text2="two", score=0.0),
            Pair(id="k2", text1='a, "b"\nc', text2="four", score=5.0),
        )
    )


@pytest.mark.parametrize("format_", ["csv", "tsv"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_every_format_gives_the_same_data(tmp_path: Path, format_: str, ending: str) -> None:
    expected = _load_vectors(only(tmp_path / "jsonl", BEIR))
    place = folder(tmp_path, BEIR | {"harness.toml": ""})
    rows = {
        "corpus": [
            {"_id": "d1", "title": "Refunds", "text": "Five days."},
            {"_id": "d2", "title": "", "text": "A drum."},
        ],
        "queries": [json.loads(line) for line in QUERIES.splitlines()],
        "qrels": [
            {"query-id": "q1", "corpus-id": "d1", "score": 1},
            {"query-id": "q2", "corpus-id": "d2", "score": 2},
        ],
    }
    lines = ["[[task]]", 'type = "retrieval"']
    for key, table in rows.items():
        lines.append(f'{key} = "{key}.{format_}"')
        with (place / f"{key}.{format_}").open("w", encoding="utf-8-sig", newline="") as file:
            delimiter = "," if format_ == "csv" else "\t"
            writer = csv.DictWriter(file, [*table[0]], delimiter=delimiter, lineterminator=ending)
            writer.writeheader()
            writer.writerows(table)
    (place / "harness.toml").write_text("\n".join(lines))
    (task,) = LocalTask.read_all(place)
    assert _load_vectors(task) == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("r.tsv", "q1\td1\t1\nq2\td2\t2\n"),
        ("r.tsv", "\ufeffquery-id\tcorpus-id\tscore\r\nq1\td1\t1\r\n\r\nq2\td2\t2\r\n"),
        ("r.tsv", "corpus-id\tquery-id\tscore\nd1\tq1\t1\nd2\tq2\t2\n"),
        ("r.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t2\nq1\td1\t1"),
        ("r.qrels", "q1 0 d1 1\nq2 0 d2 2\n"),
        ("r.trec", "q1\t0\td1\t1\nq2\t0\td2\t2\n"),
        ("r.txt", "q1 Q0  d1 1\nq2 Q0 d2 2"),
        (
            "r.jsonl",
            '{"query-id": "q1", "corpus-id": "d1", "score": 1}\n'
            '{"query-id":"q2","corpus-id":"d2","score":"2"}',
        ),
    ],
)
def test_layouts_of_qrels(tmp_path: Path, name: str, text: str) -> None:
    toml = f'[[task]]\ntype = "retrieval"\nqrels = "{name}"\n'
    data = _load_vectors(only(tmp_path, BEIR | {"harness.toml": toml, name: text}))
    assert isinstance(data, Retrieval)
    assert data.qrels == {"q1": {"d1": 1}, "q2": {"d2": 2}}


def test_queries_outside_the_split_are_left_out_and_counted(tmp_path: Path) -> None:
    task = only(tmp_path, BEIR | {"qrels/test.tsv": "query-id\tcorpus-id\tscore\nq2\td1\t-1\nq2\td2\t1\n"})
    data = _load_vectors(task)
    assert isinstance(data, Retrieval)
    assert [q.id for q in data.queries] == ["q2"]
    assert data.notes == ("1 of 2 queries have no judgement: left out.",)


def test_numbers_too_large_for_a_grade_are_no_grade_in_json_either(tmp_path: Path) -> None:
    toml = '[[task]]\ntype = "retrieval"\nqrels = "r.jsonl"\n'
    row = '{{"query-id": "q1", "corpus-id": "d1", "score": {}}}\n'
    for score in ("1" * 10, "true", "1.0", "null"):
        files = BEIR | {"harness.toml": toml, "r.jsonl": row.format(score)}
        with pytest.raises(DataError, match=r"r.jsonl:1: the score is .*, not a whole number"):
            _load_vectors(only(tmp_path, files))
    data = _load_vectors(only(tmp_path, BEIR | {"harness.toml": toml, "r.jsonl": row.format("999999999")}))
    assert isinstance(data, Retrieval)
    assert data.qrels == {"q1": {"d1": 999_999_999}}


def test_queries_that_no_model_can_answer_are_counted(tmp_path: Path) -> None:
    data = _load_vectors(only(tmp_path, BEIR | {"qrels/test.tsv": "q1\td1\t0\nq2\td2\t1\n"}))
    assert isinstance(data, Retrieval)
    assert data.notes == ("1 of 2 queries have no relevant document: every model scores 0 on them.",)


def test_an_empty_document_is_kept_as_in_beir_and_counted(tmp_path: Path) -> None:
    corpus = CORPUS + '{"_id": "d3", "title": " ", "text": ""}\n{"_id": "d4", "title": "T", "text": ""}\n'
    (task,) = SUITE.open(str(folder(tmp_path, BEIR | {"corpus.jsonl": corpus})), SuiteOptions()).tasks
    assert isinstance(task.source, CountedSource)
    report = task.source.count_data(task, cache=tmp_path / "cache")
    assert (report.counts["blank_documents"], report.notes) == (1, ("1 of 4 documents are empty.",))


@pytest.mark.parametrize(
    ("test", "same"),
    [
        (TRAIN, "2 of 2"),
        ('{"text": "a", "label": "y"}\n{"text": "A", "label": "x"}\n', "1 of 2"),
        ('{"text": "b", "label": "y"}\n{"text": "b", "label": "y"}\n{"text": "c", "label": "x"}\n', "2 of 3"),
        (TEST, ""),
    ],
)
def test_test_texts_among_training_texts_are_counted(test: str, same: str, tmp_path: Path) -> None:
    (task,) = SUITE.open(str(folder(tmp_path, CLASSES | {"test.jsonl": test})), SuiteOptions()).tasks
    assert isinstance(task.source, CountedSource)
    report = task.source.count_data(task, cache=tmp_path / "cache")
    assert report.notes == ((f"{same} test rows have the texts of a training row",) if same else ())
    assert report.counts.get("test_in_train", 0) == int(same[:1] or 0)


def declare(*rows: tuple[str, str, int]) -> dict[str, str]:
    """A README that declares numbers of rows by configuration and split."""
    entries = "".join(
        f"- config_name: {config}\n  splits:\n  - name: {split}\n    num_examples: {count}\n"
        for config, split, count in rows
    )
    return {"README.md": f"---\ndataset_info:\n{entries}---\n"}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (
            BEIR | declare(("corpus", "corpus", 2), ("queries", "queries", 3)),
            "queries.jsonl: 2 of the 3 rows",
        ),
        (BEIR | declare(("corpus", "corpus", 57638)), "corpus.jsonl: 2 of the 57,638 rows"),
        (BEIR | declare(("default", "test", 3), ("corpus", "corpus", 2)), "test.tsv: 2 of the 3 rows"),
        (CLASSES | declare(("default", "train", 3), ("default", "test", 1)), "train.jsonl: 2 of the 3 rows"),
        (STS | declare(("default", "test", 3)), "pairs.jsonl: 2 of the 3 rows"),
        (STS | {"dataset_infos.json": '{"x": {"splits": {"test": {"num_examples": 5}}}}'}, "2 of the 5 rows"),
        (
            {
                "harness.toml": STS["harness.toml"] + 'file = "p-00000-of-00002.jsonl"\n',
                "p-00000-of-00002.jsonl": PAIRS,
            },
            "p-00001-of-00002 is missing: 1 of 2 parts is here",
        ),
        (BEIR | declare(("corpus", "corpus", 2), ("queries", "queries", 1)), ""),
        (BEIR | {"README.md": "---\ndataset_info: [3]\n---\n"}, ""),
        (BEIR | {"README.md": "---\n: [\n---\n"}, ""),
    ],
)
def test_fewer_rows_than_a_readme_declares_are_refused_unless_accepted(
    files: dict[str, str], said: str, tmp_path: Path
) -> None:
    (task,) = SUITE.open(str(folder(tmp_path, files)), SuiteOptions()).tasks
    located = Located(data=task.data, folder=None, origin="built")
    settings = DataSettings(cache=tmp_path / "cache")
    if said:
        with pytest.raises(DataError, match=said) as caught:
            check_data(task, located, settings)
        assert "--allow partial-data" in str(caught.value.hint)
    assert check_data(task, located, replace(settings, partial=bool(said))) == task.size


SAME_IDS = BEIR | {
    "queries.jsonl": QUERIES.replace('"q1"', '"d1"'),
    "qrels/test.tsv": "d1\td2\t1\nq2\td2\t2\n",
}
IGNORED = '[[task]]\ntype = "retrieval"\nignore_identical_ids = {}\n'


def test_queries_called_like_documents_are_told_unless_it_is_said_what_to_do(tmp_path: Path) -> None:
    plain = _load_vectors(only(tmp_path / "plain", SAME_IDS))
    assert isinstance(plain, Retrieval)
    assert plain.notes == (
        "1 of 2 queries have the id of a document, which they may find; "
        "ignore_identical_ids = true in harness.toml leaves it out.",
    )
    ignored = _load_vectors(only(tmp_path / "ignored", SAME_IDS | {"harness.toml": IGNORED.format("true")}))
    assert isinstance(ignored, Retrieval)
    assert (ignored.notes, ignored.ignore_identical_ids) == ((), True)
    assert hash_content(ignored) != hash_content(plain)


def test_ignoring_identical_ids_is_part_of_the_content_only_when_it_is_set(tmp_path: Path) -> None:
    plain = only(tmp_path / "plain", SAME_IDS).content
    off = only(tmp_path / "off", SAME_IDS | {"harness.toml": IGNORED.format("false")}).content
    on = only(tmp_path / "on", SAME_IDS | {"harness.toml": IGNORED.format("true")}).content
    assert plain == off != on


def test_the_content_of_known_files_stays_what_results_have_been_kept_under(tmp_path: Path) -> None:
    known = {
        "19306b7f10cfa2f9d64210e9bb725a36c601cc0cdc35980718ce01d48c0ed238": BEIR,
        "3d9b33bb0d12b3bf012ac8c8fddab192c111322dbddfa02dfb4da9aacf557ccb": GROUPS,
    }
    assert {only(tmp_path / content[:4], files).content: files for content, files in known.items()} == known


def test_small_tasks_of_both_kinds_are_outside_of_the_means(tmp_path: Path) -> None:
    """385 queries are large, 2 queries and a row are not; what is known of sizes is whole in the cache."""
    files = {
        "harness.toml": '[[task]]\ntype = "retrieval"\nname = "Large"\n'
        'queries = "many.jsonl"\nqrels = "many.tsv"\n'
        '[[task]]\ntype = "retrieval"\nname = "Small"\nqueries = "queries.jsonl"\nqrels = "qrels/test.tsv"\n'
        '[[task]]\ntype = "fine-tuned-classification"\nname = "Trained"\n',
        "many.jsonl": "".join(f'{{"_id": "q{n}", "text": "money {n}"}}\n' for n in range(385)),
        "many.tsv": "query-id\tcorpus-id\tscore\n" + "".join(f"q{n}\td1\t1\n" for n in range(385)),
        "train.jsonl": TRAIN.replace("text", "text1"),
        "dev.jsonl": TEST.replace("text", "text1"),
        **BEIR,
    }
    place, cache = folder(tmp_path, files), tmp_path / "cache"
    for _ in range(2):  # measured, then known
        suite = SUITE.open(str(place), SuiteOptions(cache=cache))
        assert {task.name: task.size.examples for task in suite.tasks} == {
            "Large": 385,
            "Small": 2,
            "Trained": 1,
        }
        assert list(list_exclusions(suite)) == ["Small", "Trained"]
        part = TrainedResult.select_label_columns(suite)
        assert part is not None
        assert list_exclusions(part) == {}  # nothing larger to be averaged with
    assert audit(tmp_path / "results", cache).clean


def test_blank_lines_are_passed_over_and_long_fields_are_read(tmp_path: Path) -> None:
    long = "word " * 60_000
    before = csv.field_size_limit()
    files = {"harness.toml": '[[task]]\ntype = "clustering"\nfile = "t.csv"\n'}
    files["t.csv"] = f"text,label\n\na,1\n{long}!,2\n\n\nb,1\n"
    data = _load_vectors(only(tmp_path, files))
    assert isinstance(data, Clusters)
    assert [len(row.text) for row in data.rows] == [1, len(long) + 1, 1]
    assert csv.field_size_limit() == before
    task = only(tmp_path / "json", GROUPS | {"texts.jsonl": TEXTS.replace("\n", "\n\n  \n")})
    found = _load_vectors(pickle.loads(pickle.dumps(task)))
    assert isinstance(found, Clusters)
    assert len(found.rows) == 3


def test_reading_a_folder_does_not_read_its_data(tmp_path: Path) -> None:
    task = only(tmp_path, GROUPS | {"texts.jsonl": "no JSON at all"})
    assert len(task.content) == 64
    with pytest.raises(DataError):
        _load_vectors(task)


@pytest.mark.parametrize(
    ("called", "name"), [("My data (v2)", "My-data-v2"), (".hidden", "hidden"), ("数据", "local")]
)
def test_default_name_is_the_folder_in_plain_characters(tmp_path: Path, called: str, name: str) -> None:
    place = folder(tmp_path, STS).rename(tmp_path / called)
    assert [task.name for task in LocalTask.read_all(place)] == [name]


# Identity


ALL = [BEIR, STS, CLASSES, GROUPS]


@pytest.mark.parametrize("files", ALL)
def test_same_files_elsewhere_have_the_same_content(tmp_path: Path, files: dict[str, str]) -> None:
    task = only(tmp_path, files)
    copy = tmp_path / "elsewhere" / "called otherwise"
    shutil.copytree(tmp_path / "mine", copy)
    (copy / "README.md").write_text("not part of it")
    (moved,) = LocalTask.read_all(copy)
    assert moved.content == task.content
    assert hash_content(_load_vectors(moved)) == hash_content(_load_vectors(task))


@pytest.mark.parametrize("files", ALL)
def test_a_changed_byte_in_any_file_changes_the_content(tmp_path: Path, files: dict[str, str]) -> None:
    task = only(tmp_path, files)
    seen = {task.content}
    for path in task.files:
        original = path.read_bytes()
        path.write_bytes(original + b"\n")
        seen.add(task.content)
        path.write_bytes(original)
    assert len(seen) == 1 + len(task.files)
    assert only(tmp_path, files).content in seen


def test_content_depends_on_how_files_are_read_but_not_on_names(tmp_path: Path) -> None:
    def described(where: str, toml: str, **more: str) -> str:
        return only(
            tmp_path / where, {"harness.toml": f"[[task]]\n{toml}\n", "t.jsonl": TEXTS, **more}
        ).content

    plain = described("a", 'type = "clustering"\nfile = "t.jsonl"')
    assert described("b", 'type = "clustering"\nfile = "t.jsonl"\nname = "other"') == plain
    assert described("c", 'type = "clustering"\nfile = "t.jsonl"\ncolumns = { text = "text" }') == plain
    assert described("d", 'type = "clustering"\nfile = "u.jsonl"', **{"u.jsonl": TEXTS}) == plain
    others = {
        described("e", 'type = "clustering"\nfile = "t.jsonl"\ncolumns = { text = "label" }'),
        described("f", 'type = "sts"\nfile = "t.jsonl"'),
        described("g", 'type = "clustering"\nfile = "t.csv"', **{"t.csv": TEXTS}),
        plain,
    }
    assert len(others) == 4


def test_a_file_that_vanished_is_a_data_error(tmp_path: Path) -> None:
    task = only(tmp_path, GROUPS)
    path = task.files[0]
    path.unlink()
    with pytest.raises(DataError) as hashing:
        _ = task.content
    with pytest.raises(DataError) as loading:
        _load_vectors(task)
    assert hashing.value.message == loading.value.message == f"{path}: No such file or directory."


# Errors of the description


def refused(root: Path, files: dict[str, str]) -> HarnessError:
    with pytest.raises(HarnessError) as caught:
        LocalTask.read_all(folder(root, files))
    return caught.value


def test_no_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        LocalTask.read_all(tmp_path / "nowhere")
    assert caught.value.message == f"{tmp_path / 'nowhere'} is not a folder."
    assert caught.value.hint == "See docs/local-data.md."
    with pytest.raises(UsageError) as caught:
        LocalTask.read_all(Path(f"{tmp_path}:dev"))
    assert caught.value.hint == f"Type --suite local:{tmp_path} --splits dev."


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ({"corpus.jsonl"}, "corpus.jsonl"),
        ({"queries.jsonl", "qrels/test.tsv"}, "queries.jsonl, qrels/test.tsv"),
        (set(BEIR), "corpus.jsonl, queries.jsonl, qrels/test.tsv"),
    ],
)
def test_neither_description_nor_layout(tmp_path: Path, missing: set[str], said: str) -> None:
    files = {k: v for k, v in BEIR.items() if k not in missing} | {"notes.txt": ""}
    error = refused(tmp_path, files)
    assert isinstance(error, UsageError)
    assert error.message == (
        f"{tmp_path / 'mine'} holds no harness.toml, and for the BEIR layout it lacks {said}."
    )


@pytest.mark.parametrize(
    ("toml", "message", "hint"),
    [
        ("[[task", "{path} is not valid TOML: ", "See docs"),
        ("", "{path} describes no task.", "Each starts with a line [[task]]."),
        ('[task]\ntype = "sts"', "{path} describes no task.", "Each starts with a line [[task]]."),
        ("[[tasks]]", "{path}: No key is called 'tasks'.", "Did you mean task?"),
        ('[[task]]\nname = "a"', "{path}: task 1: 'type' is missing.", "It is one of retrieval, sts,"),
        (
            '[[task]]\ntype = "retreival"',
            "{path}: task 1: No type is called 'retreival'.",
            "Did you mean retrieval?",
        ),
        (
            '[[task]]\ntype = "x"',
            "{path}: task 1: No type is called 'x'.",
            "There is: classification, clustering,",
        ),
        ('[[task]]\ntype = ["sts"]', "{path}: task 1: 'type' is ['sts'], not a name.", "See docs"),
        (
            '[[task]]\ntype = "retrieval"\nignore_identical_ids = "yes"',
            "{path}: task 1: 'ignore_identical_ids' is 'yes', not true or false.",
            "See docs",
        ),
        (
            '[[task]]\ntype = "sts"\n[[task]]\ntype = "x"',
            "{path}: task 2: No type is called 'x'.",
            "There is:",
        ),
        *(
            ('[[task]]\ntype = "sts"\n' + more, "{path}: task 1: " + message, hint)
            for more, message, hint in [
                ('files = "a.csv"', "No key of a sts task is called 'files'.", "Did you mean file?"),
                (
                    'split = "test"',
                    "No key of a sts task is called 'split'.",
                    "There is: columns, file, name, type.",
                ),
                ("file = 3", "'file' is 3, not a name.", "See docs"),
                ('file = ""', "'file' is '', not a name.", "See docs"),
                ('name = "a/b"', "the name 'a/b' cannot be used.", "up to 100"),
                ('name = "..a"', "the name '..a' cannot be used.", "up to 100"),
                ('columns = ["a"]', "'columns' must be a table of names.", "See docs"),
                (
                    "ignore_identical_ids = true",
                    "No key of a sts task is called 'ignore_identical_ids'.",
                    "There is:",
                ),
                ("columns = { score = 3 }", "'columns' must be a table of names.", "See docs"),
                ('columns = { scores = "a" }', "No column is called 'scores'.", "Did you mean score?"),
            ]
        ),
    ],
)
def test_errors_of_the_description(tmp_path: Path, toml: str, message: str, hint: str) -> None:
    error = refused(tmp_path, STS | {"harness.toml": toml})
    assert isinstance(error, UsageError)
    assert error.message.startswith(message.format(path=tmp_path / "mine" / "harness.toml"))
    assert hint in (error.hint or "")


def test_a_description_in_another_encoding(tmp_path: Path) -> None:
    place = folder(tmp_path, STS)
    (place / "harness.toml").write_bytes("# grün".encode("latin-1"))
    with pytest.raises(UsageError, match="is not valid TOML"):
        LocalTask.read_all(place)


def test_two_tasks_of_one_name(tmp_path: Path) -> None:
    error = refused(tmp_path, STS | {"harness.toml": '[[task]]\ntype = "sts"\n[[task]]\ntype = "sts"\n'})
    assert error.message == f"{tmp_path / 'mine'}: two tasks are called 'mine'."


def test_files_are_checked_when_the_folder_is_read(tmp_path: Path) -> None:
    place = tmp_path / "mine"
    toml = '[[task]]\ntype = "sts"\nfile = "{}"\n'
    gone = refused(tmp_path, STS | {"harness.toml": toml.format("pair.jsonl")})
    assert isinstance(gone, DataError)
    assert gone.message == f"{place / 'pair.jsonl'} does not exist: it is the 'file' of task 'mine'."
    assert gone.hint == "Did you mean pairs.jsonl? See docs/local-data.md."
    far = refused(tmp_path, STS | {"harness.toml": toml.format("no/pairs.jsonl")})
    assert far.hint == "See docs/local-data.md."
    form = refused(tmp_path, STS | {"harness.toml": toml.format("pairs.parquet")})
    assert (
        form.message == f"{place / 'pairs.parquet'}: 'file' must be a file that ends in .jsonl, .csv, .tsv."
    )
    empty = refused(tmp_path, STS | {"pairs.jsonl": ""})
    assert (type(empty), empty.message) == (DataError, f"{place / 'pairs.jsonl'} is empty.")


# Errors of the data


CSV_PAIRS = {"harness.toml": '[[task]]\ntype = "sts"\nfile = "p.csv"\n'}
TSV_PAIRS = {"harness.toml": '[[task]]\ntype = "sts"\nfile = "p.tsv"\n'}
HEAD = "query-id\tcorpus-id\tscore\n"


def cases(
    files: dict[str, str], file: str, *rows: tuple[str, str]
) -> list[tuple[dict[str, str], str, str, str]]:
    """Texts of a file with the messages about them."""
    return [(files, file, text, message) for text, message in rows]


@pytest.mark.parametrize(
    ("files", "file", "text", "message"),
    [
        *cases(
            STS,
            "pairs.jsonl",
            (PAIRS + "{oops}\n", "{path}:3: not valid JSON at column 2: Expecting property name"),
            (PAIRS + "\n\n[1, 2]\n", "{path}:5: a JSON object is needed, not '[1, 2]'."),
            ("[" * 100_000, "{path}:1: not valid JSON: "),
            ("\n \n", "{path}: there are no rows."),
            ('{"text1": "a"}\n', "{path}:1: no field 'text2'; found: text1."),
            ("{}\n", "{path}:1: no field 'text1'; found: nothing."),
            (
                PAIRS + '{"text1": null, "text2": "b", "score": 1}\n',
                "{path}:3: the field 'text1' is None, not a string.",
            ),
            (PAIRS + '{"text1": "a", "text2": " ", "score": 1}\n', "{path}:3: the field 'text2' is blank."),
            (
                '{"text1": "\\ud800", "text2": "b", "score": 1}\n',
                "{path}:1: the field 'text1' holds half a surrogate pair.",
            ),
            *(
                (
                    PAIRS + f'{{"text1": "a", "text2": "b", "score": {score}}}\n',
                    f"{{path}}:3: the field 'score' is {shown}, not a finite number.",
                )
                for score, shown in [
                    ('"high"', "'high'"),
                    ("NaN", "nan"),
                    ('"inf"', "'inf'"),
                    ("true", "True"),
                    ("null", "None"),
                    ("[1]", "[1]"),
                ]
            ),
            (
                '{"id": "a", "text1": "a", "text2": "b", "score": 1}\n' * 2,
                "{path}:2: the id 'a' is already that of line 1.",
            ),
            (
                '{"id": true, "text1": "a", "text2": "b", "score": 1}\n',
                "{path}:1: the field 'id' is True, not a string.",
            ),
            (
                '{"text1": "a", "text2": "b", "score": 1}\n' * 2,
                "{path}: Every score is 1.0: nothing can correlate with that.",
            ),
        ),
        *cases(
            CSV_PAIRS,
            "p.csv",
            ("text1,text2,score\n", "{path}: there are no rows."),
            ("text1,text2\na,b\n", "{path}:2: no field 'score'; found: text1, text2."),
            ("text1,text2,text1\na,b,c\n", "{path}:1: a column name occurs twice: text1, text2, text1."),
            ('text1,text2,score\n"a\nb",c,1\nd,e\n', "{path}:4: 2 columns, where the header has 3."),
            ('text1,text2,score\n\n"a\nb",c,x\n', "{path}:3: the field 'score' is 'x', not a finite"),
        ),
        *cases(
            TSV_PAIRS,
            "p.tsv",
            ('text1\ttext2\tscore\n"a" b\tc\t1\n', "{path}:2: '\t' expected after '\"'."),
            ('text1\ttext2\tscore\n"a b\tc\t1\n', "{path}:2: unexpected end of data."),
        ),
        *cases(
            CLASSES,
            "test.jsonl",
            (
                '{"text": "c", "label": "z"}\n',
                "{folder}/train.jsonl, {path}: The label 'z' of test row '1' is in no training row.",
            ),
        ),
        *cases(
            CLASSES,
            "train.jsonl",
            ('{"text": "c", "label": 1.5}\n', "{path}:1: the field 'label' is 1.5, not a string."),
            ('{"text": "c", "label": ""}\n', "{path}:1: the field 'label' is blank."),
            (
                '{"text": "c", "label": "y"}\n',
                "{path}, {folder}/test.jsonl: There is only the label 'y': at least two are needed.",
            ),
        ),
        *cases(
            GROUPS,
            "texts.jsonl",
            (
                '{"text": "c", "label": "y"}\n{"text": "d", "label": "z"}\n',
                "{path}: Every row has a label of its own, so that nothing can be grouped.",
            ),
        ),
        *cases(
            BEIR,
            "corpus.jsonl",
            (CORPUS + '{"text": "x"}\n', "{path}:3: no field '_id'; found: text."),
            (CORPUS + CORPUS, "{path}:3: the id 'd1' is already that of line 1."),
            (CORPUS + '{"_id": "d3", "text": null}\n', "{path}:3: the field 'text' is None, not a string."),
            (
                CORPUS + '{"_id": "d3", "title": 4, "text": "x"}\n',
                "{path}:3: the field 'title' is 4, not a string.",
            ),
        ),
        *cases(
            BEIR,
            "queries.jsonl",
            ('{"_id": "q1", "title": "x"}\n', "{path}:1: no field 'text'; found: _id, title."),
        ),
        *cases(
            BEIR,
            "qrels/test.tsv",
            (HEAD, "{path}: there are no rows."),
            (HEAD + "q9\td1\t1\n", "{path}:2: the query-id 'q9' is not in queries.jsonl."),
            (HEAD + "q1\td9\t1\n", "{path}:2: the corpus-id 'd9' is not in corpus.jsonl."),
            (HEAD + "q1\td1\t0.5\n", "{path}:2: the score is '0.5', not a whole number of up to 9 digits."),
            (HEAD + "q1\td1\n", "{path}:2: 2 columns, where qrels have 3 (BEIR) or 4 (TREC)."),
            *(
                (HEAD + f"q1\td1\t{score}\n", f"{{path}}:2: the score is {shown}, not a")
                for score, shown in [
                    ("1" * 10, "'1111111111'"),
                    ("-" + "1" * 10, "'-1111111111'"),
                    ("1" * 30, "'" + "1" * 30 + "'"),
                    ("1" * 5000, "'" + "1" * 39 + "…"),
                    ("²", "'²'"),
                ]
            ),
            ("q1 Q0 d1 1 0.5 run\n", "{path}:1: 6 columns, where qrels have"),
            (
                HEAD + "q1\td1\t1\nq1\td1\t2\n",
                "{path}:3: this query and document were given another score before.",
            ),
            (
                HEAD + "q1\td1\t0\n",
                "{path}: No query has a relevant document: the qrels hold no grade above 0.",
            ),
        ),
    ],
)
def test_errors_of_the_data_name_file_and_line(
    tmp_path: Path, files: dict[str, str], file: str, text: str, message: str
) -> None:
    task = only(tmp_path, files | {file: text})
    with pytest.raises(DataError) as caught:
        _load_vectors(task)
    place = tmp_path / "mine"
    assert caught.value.message.startswith(message.format(path=place / file, folder=place))


@pytest.mark.parametrize("name", ["pairs.jsonl", "p.csv"])
def test_bytes_that_are_not_utf8(tmp_path: Path, name: str) -> None:
    place = folder(tmp_path, {"harness.toml": f'[[task]]\ntype = "sts"\nfile = "{name}"\n'})
    rows = PAIRS if name == "pairs.jsonl" else "text1,text2,score\na,b,1\n"
    (place / name).write_bytes(rows.encode() + "grün".encode("latin-1"))
    (task,) = LocalTask.read_all(place)
    with pytest.raises(DataError) as caught:
        _load_vectors(task)
    assert caught.value.message == f"{place / name}:3: not UTF-8 text: byte 0xfc."
    assert caught.value.hint == "Save the file as UTF-8."


def test_hints_name_the_likely_column_and_the_header(tmp_path: Path) -> None:
    near = only(tmp_path / "1", STS | {"pairs.jsonl": '{"text_1": "a", "text2": "b", "score": 1}\n'})
    with pytest.raises(DataError) as column:
        _load_vectors(near)
    assert (
        column.value.hint == "Did you mean 'text_1'? Other names are given under 'columns' in harness.toml."
    )
    other = only(tmp_path / "2", BEIR | {"qrels/test.tsv": "query_id\tdoc_id\trelevance\nq1\td1\t1\n"})
    with pytest.raises(DataError) as header:
        _load_vectors(other)
    assert header.value.message.endswith(
        "test.tsv:1: the score is 'relevance', not a whole number of up to 9 digits."
    )
    assert header.value.hint == "The columns of a qrels file are query-id, corpus-id, score."
    toml = '[[task]]\ntype = "retrieval"\nqrels = "r.csv"\n'
    table = only(tmp_path / "3", BEIR | {"harness.toml": toml, "r.csv": "query,document,score\nq1,d1,1\n"})
    with pytest.raises(DataError) as columns:
        _load_vectors(table)
    assert columns.value.message.endswith("r.csv:2: this is not a row of qrels.")
    assert columns.value.hint == "The columns of a qrels file are query-id, corpus-id, score."


def test_a_mapped_id_is_required_in_every_row(tmp_path: Path) -> None:
    toml = '[[task]]\ntype = "retrieval"\ncolumns = { id = "key" }\n'
    task = only(tmp_path, BEIR | {"harness.toml": toml})
    with pytest.raises(DataError, match=r"corpus.jsonl:1: no field 'key'"):
        _load_vectors(task)


# Documentation and real data


def test_the_guide_names_every_type_file_column_and_its_examples_work(tmp_path: Path) -> None:
    guide = DOCS.read_text(encoding="utf-8")
    for name, kind in KINDS.items():
        row = next(line for line in guide.splitlines() if line.startswith(f"| `{name}`"))
        for key, default in kind.files.items():
            assert f"`{key}` (`{default.format('<split>')}`)" in row
        assert all(f"`{column}`" in row for column in kind.columns if column != "id")
    blocks = [block.partition("\n")[2] for block in guide.split("```")[1::2]]
    corpus, queries, qrels, retrieval, pairs, sts, train, tickets, texts, headlines = blocks[2:12]
    toml = retrieval + sts + tickets + headlines
    files = {"harness.toml": toml, "corpus.jsonl": corpus, "queries.jsonl": queries, "qrels/test.tsv": qrels}
    files |= {"pairs.csv": pairs, "train.jsonl": train, "test.jsonl": train, "texts.tsv": texts}
    tasks = LocalTask.read_all(folder(tmp_path, files))
    assert [task.name for task in tasks] == ["mine", "my-sts", "tickets", "headlines"]
    loaded = [_load_vectors(task) for task in tasks]
    assert isinstance(loaded[1], Pairs)
    assert [pair.score for pair in loaded[1].rows] == [3.8, 0, 5]
    assert loaded[1].rows[1].text1 == "Rain, at last."
    assert isinstance(loaded[3], Clusters)
    assert Counter(row.label for row in loaded[3].rows) == {"sport": 2, "economy": 1}


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "documents", "queries", "judgements"),
    [("mbpp", 974, 974, 974), ("msmarco-mini", 5000, 43, 4102), ("dbpedia-mini", 5000, 40, 3709)],
)
def test_real_folders_in_beir_layout(name: str, documents: int, queries: int, judgements: int) -> None:
    (task,) = LocalTask.read_all(SHARED / name)
    assert (task.name, task.type) == (name, "retrieval")
    data = _load_vectors(task)
    assert isinstance(data, Retrieval)
    assert (len(data.documents), len(data.queries)) == (documents, queries)
    assert sum(map(len, data.qrels.values())) == judgements
    assert data.unanswered == ()
    with (SHARED / name / "corpus.jsonl").open(encoding="utf-8") as file:
        texts = {row["_id"]: row["text"] for row in map(json.loads, file)}
    assert {d.id: d.text for d in data.documents} == texts
