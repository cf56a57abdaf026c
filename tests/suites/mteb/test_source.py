"""Data with one fault each, in a data root and of one's own: named before a run, in one line and with 2."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from datasets import Dataset

import harness
from fakes import Bags
from harness.cli import invoke
from harness.commands.data import command
from harness.core.errors import DataError, UsageError
from harness.core.types import Data, DataTable, SuiteOptions
from harness.data.counting import count_task_data
from harness.data.schema import Schema, resolve_readable_folder
from harness.driver.execute import Driver
from retrieval_data import lay_retrieval
from suites._mteb.snapshot import load_snapshot
from suites._mteb.source import MtebSource, _require_ids, build_mteb_suite

GUIDE = Path(__file__).parents[3] / "docs" / "data-root.md"


def guide_files() -> dict[str, str]:
    """The files of the data root that the guide shows, by path."""
    text = GUIDE.read_text(encoding="utf-8")
    return dict(re.findall(r"`([\w.-]+/[\w./-]+)`[^\n]*:\n\n```\w*\n(.*?)```", text, re.DOTALL))


def lay(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return lay(tmp_path / "root", guide_files())


SHOWN = {
    "STSBenchmark": (),
    "Banking77Classification": (),
    "BiorxivClusteringP2P.v2": (),
    "TwentyNewsgroupsClustering.v2": (),
    "TwitterURLCorpus": (),
    "BornholmBitextMining": (),
    "SummEvalSummarization.v2": (),
    "AmazonCounterfactualClassification": ("--subsets", "en"),
    "STS17": ("--subsets", "en-en"),
    "SciFact": (),
    "AskUbuntuDupQuestions": (),
}
"""The tasks of mteb whose data the guide shows."""


def check(*arguments: object) -> Any:
    found = CliRunner().invoke(command, ["check", *map(str, arguments)], catch_exceptions=False)
    return found.exit_code, found.stdout


# The guide


@pytest.mark.parametrize("name", SHOWN)
def test_the_examples_of_the_guide_are_whole(name: str, root: Path) -> None:
    code, out = check(root, "--suite", f"mteb:{name}", *SHOWN[name])
    assert (code, out.splitlines()[-1]) == (0, "1 of 1 tasks can be run.")
    info = load_snapshot().find_task_info(name)
    assert all(f" {column}" in out for column in (*info.texts, *info.values))


def test_without_a_suite_every_task_of_the_data_sets_is_shown(root: Path) -> None:
    _, out = check(root, "--json")
    found = {row["task"]: row for row in json.loads(out)["data"]}
    assert set(SHOWN) | {"RTE"} <= set(found)
    assert {name for name, row in found.items() if row["state"] != "ok"} <= {
        *("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI"),
        *(name for name in found if name not in SHOWN),
    }
    assert found["AmazonCounterfactualClassification"]["subsets"] == ["en"]
    assert found["CoLA"]["faults"] == ["README.md declares no configuration 'cola'; found: rte"]


@pytest.mark.parametrize("name", SHOWN)
def test_mteb_reads_the_examples(name: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert loaded(root, name, monkeypatch)


def loaded(root: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> list[str] | None:
    """The texts of a task of mteb with the data of a root, as it is scored."""
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", root.parent / "library")
    options = SuiteOptions(subsets=SHOWN[name][1:])
    (task,) = build_mteb_suite(name, called=name, options=options).tasks
    return MtebSource().corpus(task, seed=42, data=root / task.data.path)


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        (
            "STSBenchmark",
            '\n{"sentence1": "Rain',
            '\n{bad\n{"sentence1": "Rain',
            "mteb cannot load STSBenchmark: .*JSON",
        ),
        ("STS17", '"en-en"', '"fr-en"', "no row of STS17's subset en-en"),
    ],
)
def test_what_only_loading_meets_is_one_line(
    name: str, old: str, new: str, said: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap(f"{load_snapshot().find_task_info(name).path}/test.jsonl", old, new)(root)
    with pytest.raises(DataError, match=said) as caught:
        loaded(root, name, monkeypatch)
    assert "\n" not in caught.value.message


def test_a_hub_that_is_not_reached_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    (task,) = build_mteb_suite("STSBenchmark", called="STSBenchmark", options=SuiteOptions()).tasks

    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError("Couldn't reach the hub")

    monkeypatch.setattr("mteb.abstasks.abstask.load_dataset", refuse)
    with pytest.raises(DataError, match="No connection to the hub for mteb/stsbenchmark-sts") as caught:
        MtebSource().corpus(task, seed=42, data=None)
    assert "harness data pull --suite SUITE --data DIR" in str(caught.value)


def asked(root: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Path]:
    """A retrieval task whose data is a generated folder of unknown origin, and the folder."""
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", root.parent / "library")
    subsets = ("go",) if name.startswith("COIR") else ()
    (task,) = build_mteb_suite(name, called=name, options=SuiteOptions(subsets=subsets)).tasks
    folder = lay_retrieval(root, name, subsets=subsets)
    return replace(task, data=Data(path=task.data.path, content=str(root))), folder


def add(name: str, row: Mapping[str, object]) -> Change:
    """A JSONL file with a row more, in the fields of its others."""

    def change(folder: Path) -> None:
        path = next(folder.glob(f"*{name}"))
        first = json.loads(path.read_text().splitlines()[0])
        with path.open("a") as opened:
            opened.write(json.dumps({**first, **row}) + "\n")

    return change


def every(name: str, field: str, value: str) -> Change:
    """A JSONL file in whose rows a field has another value."""

    def change(folder: Path) -> None:
        path = next(folder.glob(f"*{name}"))
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps({**row, field: value}) + "\n" for row in rows))

    return change


HUB_TASKS = ("StackOverflowQA", "COIRCodeSearchNetRetrieval")
JUDGED = "qrels/test.jsonl"


@pytest.mark.parametrize("name", HUB_TASKS)
@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda _: None, ()),
        (
            add(JUDGED, {"corpus-id": "d99"}),
            ("1 of 5 judged documents are not in the corpus: no model can find them.",),
        ),
        (
            add(JUDGED, {"query-id": "q99"}),
            ("1 of 5 judged queries are not among the queries: they are left out.",),
        ),
        (add("corpus.jsonl", {"_id": "d12", "title": " ", "text": ""}), ("1 of 13 documents are empty.",)),
        (
            add("queries.jsonl", {"_id": "q9", "text": ""}),
            (),  # without a judgement, it is left out
        ),
    ],
    ids=["nothing", "document", "query", "empty", "without a judgement"],
)
def test_odd_rows_of_a_hub_folder_are_counted(
    name: str, spoil: Change, told: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, folder = asked(tmp_path / "root", name, monkeypatch)
    spoil(folder)
    report = count_task_data(task, folder, tmp_path / "cache")
    assert (report.notes, report.gaps, report.faults) == (told, (), ())
    assert count_task_data(task, folder, tmp_path / "cache") == report


@pytest.mark.parametrize("name", HUB_TASKS)
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (add("corpus.jsonl", {"text": "another"}), "two texts in corpus have the id 'd0'"),
        (add("queries.jsonl", {"text": "another"}), "two texts in queries have the id 'test-q0'"),
        (every(JUDGED, "corpus-id", "x"), "no judged document is in corpus: 'x' is not"),
        (every(JUDGED, "query-id", "x"), "no judged query is in queries: 'x' is not"),
    ],
    ids=["documents", "queries", "no document", "no query"],
)
def test_ids_that_make_scores_meaningless_are_one_error(
    name: str, spoil: Change, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, folder = asked(tmp_path / "root", name, monkeypatch)
    spoil(folder)
    with pytest.raises(DataError) as caught:
        task.source.evaluate(task, Bags(), seed=42, data=folder)
    assert said in caught.value.message
    assert str(folder) in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("judged", [{}, {"q0": {}}])
def test_a_split_without_judgements_is_told_so(judged: Mapping[str, Mapping[str, int]]) -> None:
    rows = Dataset.from_list([{"id": "q0", "text": "a"}])
    part = {"corpus": rows, "queries": rows, "relevant_docs": judged}
    about = SimpleNamespace(name="StackOverflowQA")
    with pytest.raises(DataError, match=r"StackOverflowQA \(test\) has no judgement") as caught:
        _require_ids(SimpleNamespace(metadata=about, dataset={"default": {"test": part}}), Path("d"))
    assert caught.value.hint


def test_judgements_of_one_split_do_not_stand_for_another(
    tmp_path: Path, refused: Callable[..., None]
) -> None:
    """mteb reads a lone split for any: it would score the test queries as those of dev."""
    root = tmp_path / "root"
    lay_retrieval(root, "MultiLongDocRetrieval", subsets=["en"], splits=["test"])
    refused("no split 'dev' of 'en-qrels'; found: test", "mldr", "--data", str(root), data=root)
    assert check(root, "--suite", "mldr")[0] == 1
    assert check(root, "--suite", "mldr", "--splits", "test")[0] == 0


# Faults


Change = Callable[[Path], object]


def drop(name: str, field: str) -> Change:
    """A JSONL file without one of its fields."""

    def change(root: Path) -> None:
        rows = [json.loads(line) for line in (root / name).read_text().splitlines()]
        (root / name).write_text(
            "".join(json.dumps({k: v for k, v in r.items() if k != field}) + "\n" for r in rows)
        )

    return change


def swap(name: str, old: str, new: str) -> Change:
    """A file in which one text stands for another."""

    def change(root: Path) -> None:
        content = (root / name).read_text()
        assert old in content
        (root / name).write_text(content.replace(old, new))

    return change


def put(name: str, content: str | bytes) -> Change:
    return lambda root: (root / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def move(name: str, to: str) -> Change:
    return lambda root: (root / name).rename(root / to)


def remove(name: str) -> Change:
    return lambda root: (root / name).unlink()


def table(name: str, rows: Sequence[Mapping[str, object]], keep: float = 1.0, schema: Any = None) -> Change:
    """A Parquet file in place of the JSONL file, cut to a share of its bytes."""

    def change(root: Path) -> None:
        path = (root / name).with_suffix(".parquet")
        pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), path)
        path.write_bytes(path.read_bytes()[: int(keep * path.stat().st_size)])
        (root / name).unlink()

    return change


STS, BANK, FACT, AMAZON = (
    "mteb/stsbenchmark-sts",
    "mteb/banking77",
    "mteb/scifact",
    "mteb/amazon_counterfactual",
)
NEWS = "mteb/twentynewsgroups-clustering"
PAIR = {"sentence1": "a", "sentence2": "b", "score": 1.0}

IN_A_ROOT: tuple[tuple[str, tuple[str, ...], Change, str], ...] = (
    (
        "TwentyNewsgroupsClustering.v2",
        (),
        put(f"{NEWS}/test.jsonl", '{"sentences": "a", "labels": 0}'),
        "lists of texts",
    ),
    ("STSBenchmark", (), drop(f"{STS}/test.jsonl", "score"), "test.jsonl: no column 'score'"),
    ("STSBenchmark", (), swap(f"{STS}/test.jsonl", "sentence2", "sentence_2"), "did you mean 'sentence_2'?"),
    (
        "STSBenchmark",
        (),
        move(f"{STS}/test.jsonl", f"{STS}/train.jsonl"),
        "no split 'test'; found: train",
    ),
    ("STSBenchmark", (), put(f"{STS}/test.jsonl", '{"sentence1": "a", '), "test.jsonl:1: not valid JSON"),
    (
        "STSBenchmark",
        (),
        put(f"{STS}/test.jsonl", '{"sentence1": "\xe9"}'.encode("latin-1")),
        "not UTF-8 text",
    ),
    ("STSBenchmark", (), put(f"{STS}/test.jsonl", ""), "test.jsonl: there are no rows"),
    (
        "STSBenchmark",
        (),
        swap(f"{STS}/test.jsonl", "0.0}", "0."),
        "test.jsonl: the last line is not valid JSON",
    ),
    (
        "STSBenchmark",
        (),
        put(f"{STS}/test.jsonl", "version https://git-lfs.github.com/spec/v1\n"),
        "git lfs pull",
    ),
    ("STSBenchmark", (), table(f"{STS}/test.jsonl", [PAIR], keep=0.6), "not a complete Parquet file"),
    (
        "STSBenchmark",
        (),
        table(
            f"{STS}/test.jsonl",
            [],
            schema=pa.schema({"sentence1": pa.string(), "sentence2": pa.string(), "score": pa.float64()}),
        ),
        "test.parquet: there are no rows",
    ),
    (
        "STSBenchmark",
        (),
        table(f"{STS}/test.jsonl", [{**PAIR, "sentence1": 7}]),
        "'sentence1' holds int64, not text",
    ),
    (
        "Banking77Classification",
        (),
        remove(f"{BANK}/train.jsonl"),
        "no split 'train'; found: test",
    ),
    (
        "STSBenchmark",
        (),
        swap(f"{STS}/test.jsonl", "3.8", '"high"'),
        "the column 'score' holds text, not numbers",
    ),
    (
        "STSBenchmark",
        (),
        swap(f"{STS}/test.jsonl", '"A man plays a guitar."', "null"),
        "nothing in the first row",
    ),
    ("STSBenchmark", (), move(f"{STS}/test.jsonl", f"{STS}/test.xlsx"), "test.xlsx: such files are not read"),
    ("Banking77Classification", (), swap(f"{BANK}/test.jsonl", "label", "intent"), "no column 'label'"),
    ("SciFact", (), remove(f"{FACT}/README.md"), "README.md declares no configuration"),
    (
        "SciFact",
        (),
        swap(f"{FACT}/README.md", "config_name: corpus", "config_name: docs"),
        "configuration 'corpus'",
    ),
    ("SciFact", (), remove(f"{FACT}/corpus.jsonl"), "README.md names corpus.jsonl"),
    (
        "SciFact",
        (),
        swap(f"{FACT}/README.md", "configs:", "configs: ["),
        "README.md:3: the metadata between its lines --- is not valid YAML",
    ),
    ("SciFact", (), swap(f"{FACT}/qrels/test.jsonl", "query-id", "query_id"), "did you mean 'query_id'?"),
    (
        "AmazonCounterfactualClassification",
        ("--subsets", "en"),
        swap(f"{AMAZON}/README.md", "config_name: en", "config_name: en-ext"),
        "no configuration 'en'; found: en-ext",
    ),
    (
        "AskUbuntuDupQuestions",
        (),
        swap("mteb/AskUbuntuDupQuestions/README.md", "name: top_ranked", "name: top"),
        "'top_ranked'",
    ),
)
"""Tasks of a data root as the guide shows it: options, the fault, and what is said of it."""

CORPUS = '{"_id": "d1", "text": "one"}\n{"_id": "d2", "text": "two"}\n'
BEIR = {
    "corpus.jsonl": CORPUS,
    "queries.jsonl": '{"_id": "q1", "text": "eins"}\n',
    "qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t1\n",
}
PAIRS = {
    "harness.toml": '[[task]]\ntype = "sts"\n',
    "pairs.jsonl": '{"text1": "a", "text2": "b", "score": 1}\n{"text1": "c", "text2": "d", "score": 2}\n',
}
LABELS = {
    "harness.toml": '[[task]]\ntype = "classification"\n',
    "train.jsonl": '{"text": "a", "label": "x"}\n{"text": "b", "label": "y"}\n',
    "test.jsonl": '{"text": "c", "label": "y"}\n',
}

OF_ONES_OWN: tuple[tuple[Mapping[str, str], Change, str], ...] = (
    (
        BEIR,
        put("corpus.jsonl", CORPUS.replace("two", "zw\xf6lf").encode("latin-1")),
        "corpus.jsonl:2: not UTF-8",
    ),
    (BEIR, put("corpus.jsonl", '{"_id": "d1", "te'), "corpus.jsonl:1: not valid JSON"),
    (BEIR, drop("corpus.jsonl", "text"), "corpus.jsonl:1: no field 'text'"),
    (BEIR, put("queries.jsonl", ""), "queries.jsonl is empty"),
    (BEIR, remove("corpus.jsonl"), "lacks corpus.jsonl"),
    (
        BEIR,
        put("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\td9\t1\n"),
        "test.tsv:2: the corpus-id 'd9'",
    ),
    (BEIR, put("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq9\td1\t1\n"), "test.tsv:2: the query-id 'q9'"),
    (BEIR, swap("corpus.jsonl", '"d2"', '"d1"'), "corpus.jsonl:2: the id 'd1' is already that of line 1"),
    (BEIR, swap("queries.jsonl", '"eins"', '" "'), "queries.jsonl:1: the field 'text' is blank"),
    (BEIR, put("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq1\td1\t0\n"), "no grade above 0"),
    (BEIR, put("qrels/test.tsv", "q1\td1\t0.5\n"), "test.tsv:1: the score is '0.5'"),
    (PAIRS, swap("pairs.jsonl", '"score": 2', '"score": NaN'), "pairs.jsonl:2: the field 'score' is nan"),
    (PAIRS, swap("pairs.jsonl", '"text2": "d"', '"text2": " "'), "pairs.jsonl:2: the field 'text2' is blank"),
    (PAIRS, swap("pairs.jsonl", '"score": 2', '"score": 1'), "Every score is 1.0"),
    (PAIRS, swap("harness.toml", '"sts"', '"stss"'), "No type is called 'stss'"),
    (PAIRS, remove("pairs.jsonl"), "does not exist"),
    (LABELS, swap("test.jsonl", '"y"', '"z"'), "The label 'z' of test row"),
    (LABELS, put("train.jsonl", "[1, 2]\n"), "train.jsonl:1: a JSON object is needed"),
)
"""Folders of one's own: the files, the fault, and what is said of it."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all: it knows by then that the model loads."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def refused(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., None]:
    """Requires that a run is refused before its first job, by the command and from Python."""

    def no_job(*_: object) -> None:
        raise AssertionError("a job was started")

    def require(said: str, suite: str, *options: str, **more: Any) -> None:
        monkeypatch.setattr(Driver, "run", no_job)
        places = ["--results", str(tmp_path / "results"), "--cache", str(cache), *options]
        for dry in ([], ["--dry-run"], ["--json"]):
            assert invoke(["run", "--model", "minilm", "--suite", suite, *places, *dry]) == 2
            out, err = capfd.readouterr()
            message, *advice = err.splitlines()
            assert out == ""
            assert message.startswith("Error: ")
            assert said in message
            assert len(advice) <= 1
        with pytest.raises(UsageError) as caught:
            harness.run("minilm", suite, results=tmp_path / "results", cache=cache, **more)
        assert said in caught.value.message
        assert "\n" not in caught.value.message

    return require


@pytest.mark.parametrize(("name", "options", "spoil", "said"), IN_A_ROOT)
def test_a_fault_in_a_data_root_is_one_line(
    name: str, options: tuple[str, ...], spoil: Change, said: str, root: Path, refused: Callable[..., None]
) -> None:
    spoil(root)
    suite = f"mteb:{name}"
    subsets = {"subsets": options[1:]} if options else {}
    refused(said, suite, "--data", str(root), *options, data=root, **subsets)
    code, out = check(root, "--suite", suite, *options)
    assert (code, said in out, out.split()[0]) == (1, True, "faulty")


@pytest.mark.parametrize(("files", "spoil", "said"), OF_ONES_OWN)
def test_a_fault_in_data_of_ones_own_is_one_line(
    files: Mapping[str, str], spoil: Change, said: str, tmp_path: Path, refused: Callable[..., None]
) -> None:
    spoil(lay(tmp_path / "own", files))
    refused(said, f"local:{tmp_path / 'own'}")


def test_folders_without_a_fault_are_planned_with_their_size(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for files, texts, characters in ((BEIR, 3, 10), (PAIRS, 4, 4), (LABELS, 3, 3)):
        folder = lay(tmp_path / str(characters), files)
        assert check(folder)[0] == 0
        places = ["--results", str(tmp_path / "r"), "--cache", str(tmp_path / "c")]
        assert (
            invoke(["run", "--model", "minilm", "--suite", f"local:{folder}", "--dry-run", "--json", *places])
            == 0
        )
        (line,) = json.loads(capfd.readouterr().out)["plan"]
        assert (line["data_texts"], line["data_characters"]) == (texts, characters)


def test_files_that_have_not_changed_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from suites import local

    folder = lay(tmp_path / "own", PAIRS)
    assert check(folder)[0] == 0
    monkeypatch.setattr(local, "LOADERS", {"sts": lambda _task: pytest.fail("read again")})
    assert check(folder)[0] == 0
    swap("pairs.jsonl", '"score": 2', '"score": 3')(folder)
    with pytest.raises(BaseException, match="read again"):
        check(folder)


def test_a_data_set_that_is_not_there_is_named_with_the_nearest(root: Path) -> None:
    (root / STS).rename(root / "mteb" / "stsbenchmark")
    code, out = check(root, "--suite", "mteb:STSBenchmark")
    assert code == 1
    assert f"{root / STS} does not exist; did you mean mteb/stsbenchmark?" in out


def test_of_several_tasks_the_faulty_one_is_named_and_the_others_are_planned(
    root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    drop(f"{STS}/test.jsonl", "score")(root)
    suites = ["--suite", "mteb:STSBenchmark", "--suite", "mteb:SciFact", "--results", str(tmp_path / "r")]
    assert invoke(["run", "--model", "minilm", *suites, "--data", str(root), "--dry-run"]) == 1
    out = capfd.readouterr().out
    assert "1 to do, 0 done, 1 cannot run" in out
    assert f"STSBenchmark: {root / STS}: test.jsonl: no column 'score'" in out


def test_data_at_its_pinned_revision_is_not_looked_into(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from harness.core.files import hash_file
    from harness.data.folder import FileEntry, Manifest

    drop(f"{STS}/test.jsonl", "score")(root)
    file = root / STS / "test.jsonl"
    entry = FileEntry(size=file.stat().st_size, sha256=hash_file(file))
    manifest = Manifest(
        repo=STS,
        revision=load_snapshot().find_task_info("STSBenchmark").revision,
        files={"test.jsonl": entry},
    )
    (root / STS / ".harness.json").write_text(manifest.to_json())
    places = ["--data", str(root), "--results", str(root / "r")]
    assert invoke(["run", "--model", "minilm", "--suite", "mteb:STSBenchmark", "--dry-run", *places]) == 0


def test_splits_that_no_task_reads_may_be_missing(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library alone refuses the folder, because its README names a file that is not there."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "library")
    folder = root / AMAZON
    (folder / "en" / "validation.jsonl").unlink()
    with pytest.raises(FileNotFoundError):
        datasets.load_dataset(str(folder), "en")
    there = resolve_readable_folder(folder)
    assert resolve_readable_folder(folder) == there != folder
    assert {name: len(rows) for name, rows in datasets.load_dataset(str(there), "en").items()} == {
        "train": 2,
        "test": 1,
    }
    code, _ = check(
        root, "--suite", "mteb:AmazonCounterfactualClassification", "--subsets", "en", "--splits", "test"
    )
    assert code == 0
    assert resolve_readable_folder(root / FACT) == root / FACT


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "sentence1,score\nx,1\n"),
        ("a.tsv", "sentence1\tscore\nx\t1\n"),
        ("a.jsonl.gz", None),
        ("a.json", '[{"a": 1}]'),
    ],
)
def test_heads_of_other_formats(name: str, content: str | None, tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "set" / name.replace("a.", "test.")
    path.parent.mkdir()
    path.write_bytes(
        gzip.compress(b'{"sentence1": "x", "score": 1}\n') if content is None else content.encode()
    )
    wanted = DataTable(
        config=(), splits=("test",), texts=(("sentence1",), ("sentence2",)), values=(("score",),)
    )
    (path.parent / "LICENSE").write_text("Do as you like.")
    said = f"{path.name}: no column 'sentence2'; did you mean 'sentence1'?"
    assert Schema.read_schema(path.parent).find_faults([wanted]) == ([] if name == "a.json" else [said])
