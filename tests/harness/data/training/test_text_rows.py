"""Rows with any number of negatives: every form of the unified recipe, the rows left out, and the faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import ClassLabel, Dataset, Features, Value

from data_files import lines, parquet
from harness.core.errors import DataError
from harness.data.locate import DataSettings
from harness.data.schema import ColumnPath
from harness.data.training.loading import TrainingSize, load_rows, load_training
from harness.data.training.sets import TrainingData, locate_training, locate_user_training
from harness.data.training.text_rows import TextRow, TextRows, join_rows

Load = Callable[..., TextRows]

LISTS = ("anchor", "positive", "negatives[]")
"""The columns of own rows with lists."""


def card(*configs: tuple[str, str, str]) -> dict[str, str]:
    """A README that names configurations, each with a split and a pattern of its files."""
    entries = "".join(
        f"- config_name: {name}\n  data_files:\n  - split: {split}\n    path: {pattern}\n"
        for name, split, pattern in configs
    )
    return {"README.md": f"---\nconfigs:\n{entries}---\n"}


def row(query: str, positive: str, *negatives: str) -> TextRow:
    return TextRow(query=query, positive=positive, negatives=negatives)


def every(rows: TextRows) -> list[TextRow]:
    return rows.read_text_rows(range(len(rows)))


@pytest.fixture
def load(settings: DataSettings) -> Load:
    """The rows of a data set in the data root, by its path, its columns and further fields."""

    def read(path: str, *columns: str, **fields: Any) -> TextRows:
        data = TrainingData(path=path, revision="r" * 40, columns=columns, **fields)
        return load_rows(locate_training(data, settings), cache=settings.cache)

    return read


# Paths


@pytest.mark.parametrize(
    ("text", "column", "steps"),
    [
        ("query", "query", ()),
        ("set[1]", "set", (1,)),
        ("set.neg[]", "set", ("neg", None)),
        ("pos_paras[0].text", "pos_paras", (0, "text")),
        ("neg_paras[].text", "neg_paras", (None, "text")),
        ("a[0][12]", "a", (0, 12)),
        ("negative.1", "negative.1", ()),
        ("[0]", "[0]", ()),
        ("a[x]", "a[x]", ()),
        ("a[", "a[", ()),
        ("", "", ()),
    ],
)
def test_a_path_is_what_it_spells(text: str, column: str, steps: tuple[Any, ...]) -> None:
    path = ColumnPath.parse_column_path(text)
    assert (path.column, path.steps, path.text) == (column, steps, text)
    assert path.several == (None in steps)


def test_a_path_gives_a_row_and_a_table_the_same_texts() -> None:
    rows: list[dict[str, Any]] = [
        {"set": {"pos": ["a", "b"]}, "all": [{"text": "c"}]},
        {"set": {"pos": []}, "all": []},
        {"set": {"pos": None}, "all": [{"text": None}]},
        {"set": None, "all": None},
        {"set": {"pos": ["d"]}, "all": [{"text": "e"}, {"text": "f"}]},
    ]
    table = pa.Table.from_pylist(rows)
    for text, expected in (
        ("set.pos[0]", ["a", None, None, None, "d"]),
        ("set.pos[1]", ["b", None, None, None, None]),
        ("all[0].text", ["c", None, None, None, "e"]),
        ("all[1].text", [None, None, None, None, "f"]),
    ):
        path = ColumnPath.parse_column_path(text)
        assert [path.extract_value(one) for one in rows] == expected
        for start in range(5):  # slices have offsets of their own
            assert path.extract_texts(table.slice(start)).to_pylist() == expected[start:]
    fixed = pa.table({"set": pa.array([["a", "b"], None, ["c", "d"]], pa.list_(pa.string(), 2))})
    assert ColumnPath.parse_column_path("set[1]").extract_texts(fixed).to_pylist() == ["b", None, "d"]
    several = ColumnPath.parse_column_path("all[].text")
    assert [several.extract_value(one) for one in rows] == [["c"], [], [None], None, ["e", "f"]]


# The forms of the recipe


def test_a_list_of_positives_counts_by_its_first(root: Path, load: Load) -> None:
    """The form of Amazon-QA."""
    rows: list[dict[str, Any]] = [
        {"query": None, "pos": ["No query."]},
        {"query": "Does it fit?", "pos": ["Yes, it does.", "No."]},
        {"query": "é?", "pos": ["漢"]},
        {"query": "Nobody knows?", "pos": []},
        {"query": "Null?", "pos": None},
        {"query": "Blank?", "pos": [" \n"]},
        {"query": "", "pos": ["No query."]},
        {"query": "Last?", "pos": ["Yes."]},
    ]
    lines(root / "embedding-data/Amazon-QA/Amazon-QA.jsonl.gz", rows)
    found = load("embedding-data/Amazon-QA", "query", "pos[0]")
    assert every(found) == [row("Does it fit?", "Yes, it does."), row("é?", "漢"), row("Last?", "Yes.")]
    assert (len(found), found.left_out, found.read_text_rows([0])[0].label) == (3, 5, None)
    assert found.read_text_rows([2, 0, 2]) == [every(found)[number] for number in (2, 0, 2)]
    assert found.read_text_rows(np.array([1])) == [row("é?", "漢")]  # type: ignore[arg-type]


def test_structs_in_lists(root: Path, load: Load) -> None:
    """The form of ConcurrentQA: every negative passage counts, and blank ones do not."""

    def passages(*texts: str | None) -> list[dict[str, Any]]:
        return [{"title": f"Title of {text}", "text": text, "sents": [text]} for text in texts]

    rows = [
        {"question": "q1", "pos_paras": passages("p1", "p2"), "neg_paras": passages("n1", " ", None, "n2")},
        {"question": "q2", "pos_paras": passages("p3"), "neg_paras": []},
        {"question": "q3", "pos_paras": passages(None), "neg_paras": passages("n3")},
        {"question": "q4", "pos_paras": passages("p4"), "neg_paras": None},
        {"question": "q5", "pos_paras": [], "neg_paras": passages("n4")},
    ]
    expected = [row("q1", "p1", "n1", "n2"), row("q2", "p3"), row("q4", "p4")]
    columns = ("question", "pos_paras[0].text", "neg_paras[].text")
    folder = root / "stanfordnlp/concurrentqa-retrieval"
    lines(folder / "train.jsonl", [{"_id": str(n), "answers": ["a"], **one} for n, one in enumerate(rows)])
    found = load("stanfordnlp/concurrentqa-retrieval", *columns)
    assert (every(found), found.left_out) == (expected, 2)
    parquet(
        root / "org/same/data/train-00000-of-00001.parquet", {n: [one[n] for one in rows] for n in rows[0]}
    )
    found = load("org/same", *columns)
    assert (every(found), found.left_out) == (expected, 2)


def judgements(root: Path, path: str, pairs: list[tuple[Any, Any, Any]], texts: dict[Any, str]) -> None:
    """A data set of searches as mteb lays it: two queries, and documents with these texts."""
    folder = root / path
    folder.mkdir(parents=True)
    names = card(
        ("default", "train", "qrels/train.jsonl"),
        ("queries", "queries", "queries.jsonl"),
        ("corpus", "corpus", "corpus.jsonl"),
    )
    (folder / "README.md").write_text(names["README.md"])
    lines(
        folder / "qrels/train.jsonl",
        [dict(zip(("query-id", "corpus-id", "score"), one, strict=True)) for one in pairs],
    )
    lines(
        folder / "queries.jsonl", [{"_id": n, "text": f"claim {n}"} for n in sorted({q for q, *_ in pairs})]
    )
    lines(folder / "corpus.jsonl", [{"_id": n, "title": f"T{n}", "text": text} for n, text in texts.items()])


def test_judged_ids_have_the_texts_of_two_tables(root: Path, load: Load) -> None:
    """The form of FEVER: a judgement of 0, an id without a text, and a blank text are no rows."""
    judged = [("7", "d2", 1), ("3", "d1", 1), ("3", "d2", 0), ("3", "d9", 1), ("7", "d3", 1), ("3", "d4", 2)]
    texts = {"d4": "four", "d1": "one", "d2": "two", "d3": " "}
    judgements(root, "mteb/fever", judged, texts)
    lines(root / "mteb/fever/queries.jsonl", [{"_id": "3", "text": "three"}, {"_id": "7", "text": "seven"}])
    found = load("mteb/fever", "query-id", "corpus-id", config="default", judged=True)
    assert every(found) == [row("seven", "two"), row("three", "one"), row("three", "four")]
    assert (found.left_out, found.read_text_rows([0])[0].label) == (2, None)
    assert found.read_text_rows([2, 0]) == [row("three", "four"), row("seven", "two")]


def test_ids_may_be_numbers_of_another_kind(root: Path, load: Load) -> None:
    judgements(root, "org/search", [(7, "2", 1), (3, "1", 1)], {1: "one", 2: "two"})
    found = load("org/search", "query-id", "corpus-id", config="default", judged=True)
    assert every(found) == [row("claim 7", "two"), row("claim 3", "one")]


def test_columns_of_negatives(root: Path, lay: Callable[..., Path], load: Load) -> None:
    """The form of GooAQ: a fixed number of columns, whose blank texts are no negatives."""
    configs = [(name, "train", f"{name}/train-*") for name in ("pair", "triplet-5")]
    folder = lay(root / "tomaarsen/gooaq-hard-negatives", card(*configs))
    columns = {"question": ["q1", "q2", " "], "answer": ["a1", "a2", "a3"]}
    columns |= {f"negative_{n}": [f"n{n}", None if n == 2 else f"m{n}", "x"] for n in range(1, 6)}
    columns["negative_5"][0] = " "
    parquet(folder / "triplet-5/train-00000-of-00001.parquet", columns)
    parquet(folder / "pair/train-00000-of-00001.parquet", {"question": ["x"], "answer": ["y"]})
    negatives = tuple(f"negative_{n}" for n in range(1, 6))
    found = load("tomaarsen/gooaq-hard-negatives", "question", "answer", *negatives, config="triplet-5")
    assert every(found) == [
        row("q1", "a1", "n1", "n2", "n3", "n4"),
        row("q2", "a2", "m1", "m3", "m4", "m5"),
    ]
    assert found.left_out == 1


def test_a_list_of_two_texts(root: Path, load: Load) -> None:
    """The form of PAQ."""
    rows = [["who?", "he"], ["alone"], [], None, ["where?", "there"]]
    lines(root / "embedding-data/PAQ_pairs/PAQ_pairs.jsonl.gz", [{"set": one} for one in rows])
    found = load("embedding-data/PAQ_pairs", "set[0]", "set[1]")
    assert (every(found), found.left_out) == ([row("who?", "he"), row("where?", "there")], 3)
    assert every(load("embedding-data/PAQ_pairs", "set[1]", "set[0]")) == [
        row("he", "who?"),
        row("there", "where?"),
    ]


def test_lists_in_a_struct(root: Path, load: Load) -> None:
    """The form of QQP_triplets, in which rows have any number of negatives."""
    rows = [
        {"query": "q1", "pos": ["p1"], "neg": ["n1", "n2", " ", "n3"]},
        {"query": "q2", "pos": ["p2", "p3"], "neg": []},
        {"query": "q3", "pos": [], "neg": ["n4"]},
        {"query": "q4", "pos": ["p4"], "neg": ["n5"]},
    ]
    folder = root / "embedding-data/QQP_triplets"
    lines(folder / "quora_duplicates_triplets.jsonl.gz", [{"set": one} for one in rows])
    found = load("embedding-data/QQP_triplets", "set.query", "set.pos[0]", "set.neg[]")
    assert every(found) == [row("q1", "p1", "n1", "n2", "n3"), row("q2", "p2"), row("q4", "p4", "n5")]
    assert found.left_out == 1


def test_two_configurations_are_joined(root: Path, lay: Callable[..., Path], load: Load) -> None:
    """The form of StackExchange."""
    path = "sentence-transformers/stackexchange-duplicates"
    configs = ("body-body-pair", "post-post-pair")
    folder = lay(root / path, card(*((name, "train", f"{name}/train-*") for name in configs)))
    bodies, posts = (
        {"body1": ["b1", "b2"], "body2": ["c1", "c2"]},
        {"post1": ["d1", ""], "post2": ["e1", "e2"]},
    )
    parquet(folder / configs[0] / "train-00000-of-00001.parquet", bodies)
    parquet(folder / configs[1] / "train-00000-of-00001.parquet", posts)
    body, post = (
        load(path, *columns, config=name) for columns, name in zip((bodies, posts), configs, strict=True)
    )
    joined = join_rows((body, post, body))
    assert (len(joined), joined.left_out) == (5, 1)
    pairs = [row("b1", "c1"), row("b2", "c2")]
    assert every(joined) == [*pairs, row("d1", "e1"), *pairs]
    assert joined.read_text_rows([4, 2, 0, 4, 3]) == [pairs[1], row("d1", "e1"), pairs[0], pairs[1], pairs[0]]
    assert joined.read_text_rows(np.array([2])) == [row("d1", "e1")]  # type: ignore[arg-type]
    assert (joined.read_text_rows([]), [row.label for row in joined.read_text_rows([0, 2])]) == (
        [],
        [None, None],
    )


def test_pairs_above_a_score(root: Path, load: Load) -> None:
    """The form of STS12."""
    scores = [4.0, 5.0, None, 4.1, 4.5]
    columns = {
        "sentence1": [f"s{n}" for n in range(5)],
        "sentence2": ["a", "b", "c", "", "e"],
        "score": scores,
    }
    parquet(root / "mteb/sts12-sts/data/train-00000-of-00001.parquet", columns)
    parquet(root / "mteb/sts12-sts/data/test-00000-of-00001.parquet", columns)
    found = load("mteb/sts12-sts", "sentence1", "sentence2", filter=("score", ">", 4.0))
    assert (every(found), found.left_out) == ([row("s1", "b"), row("s4", "e")], 1)
    first = load("mteb/sts12-sts", "sentence1", "sentence2", first=2)
    assert every(first) == [row("s0", "a"), row("s1", "b")]
    drawn = load("mteb/sts12-sts", "sentence1", "sentence2", held_out=2, split_seed=3)
    assert len(drawn) + drawn.left_out == 3


# Classes


TOPICS = [5, 1, 5, 1, 5, 9, None, 1, 5]
QUESTIONS = ["q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", " "]


@pytest.fixture(params=["numbers", "labels", "texts"])
def topics(root: Path, request: pytest.FixtureRequest) -> str:
    """Posts of topics that are numbers, a ClassLabel or texts: three of 5, three of 1, and others alone."""
    kind = Value("int32")
    kind = ClassLabel(names=[f"topic {n}" for n in range(10)]) if request.param == "labels" else kind
    kind = Value("string") if request.param == "texts" else kind
    values = [str(one) if one and request.param == "texts" else one for one in TOPICS]
    answers = [f"a{n}" for n in range(9)]
    table = Dataset.from_dict(
        {"id": [*range(9)], "topic": values, "question_title": QUESTIONS, "best_answer": answers},
        features=Features(
            id=Value("int32"), topic=kind, question_title=Value("string"), best_answer=Value("string")
        ),
    )
    folder = root / "community-datasets/yahoo_answers_topics/yahoo_answers_topics"
    folder.mkdir(parents=True)
    table.to_parquet(folder / "train-00000-of-00001.parquet")
    return "community-datasets/yahoo_answers_topics"


def test_two_texts_of_a_class_are_a_pair(topics: str, load: Load) -> None:
    """The form of Yahoo's topics. Each text is a query once and a positive once."""
    found = load(topics, "question_title", "best_answer", classes="topic")
    text = {n: f"q{n} a{n}" for n in range(8)}
    of_class = {text[n]: str(TOPICS[n]) for n in (0, 1, 2, 3, 4, 7)}
    pairs = every(found)
    assert [one.query for one in pairs] == [*of_class]
    assert sorted(one.positive for one in pairs) == sorted(of_class)
    assert all(of_class[one.query] == of_class[one.positive] for one in pairs)
    assert all(one.query != one.positive and not one.negatives for one in pairs)
    assert found.left_out == 3
    assert [row.label for row in found.read_text_rows([0, 1, 5, 2])] == ["5", "1", "1", "5"]
    alone = load(topics, "question_title", classes="topic")
    assert {one.query for one in every(alone)} == {f"q{n}" for n in (0, 1, 2, 3, 4, 7)}
    both = join_rows((found, alone))
    assert [row.label for row in both.read_text_rows([6, 1])] == ["5", "1"]


def test_the_order_of_a_class_follows_from_the_seed(
    root: Path, load: Load, settings: DataSettings, tmp_path: Path
) -> None:
    columns = {"text": [f"t{n}" for n in range(40)], "label": [n % 2 for n in range(40)]}
    parquet(root / "org/topics/train.parquet", columns)

    def positives(seed: int, cache: Path = settings.cache) -> list[str]:
        data = TrainingData(path="org/topics", columns=("text",), classes="label", split_seed=seed)
        located = locate_training(data, replace(settings, cache=cache))
        return [one.positive for one in every(load_rows(located, cache=cache))]

    first = positives(1)
    assert first == positives(1) == positives(1, tmp_path / "other")
    assert first != positives(2)
    assert sorted(first) == sorted(columns["text"])


# What is left out, and the cache


def test_the_second_time_the_numbers_come_from_the_cache(
    root: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines(root / "org/a/train.jsonl", [{"query": "q", "pos": ["p"]}, {"query": "", "pos": ["p"]}])
    judgements(root, "org/b", [("1", "d", 1), ("1", "e", 1)], {"d": "one"})
    parquet(root / "org/c/train.parquet", {"text": ["a", "b", "c"], "label": [0, 0, 1]})

    def all_of_them() -> list[tuple[list[TextRow], int]]:
        found = (
            load("org/a", "query", "pos[0]"),
            load("org/b", "query-id", "corpus-id", config="default", judged=True),
            load("org/c", "text", classes="label"),
        )
        return [(every(rows), rows.left_out) for rows in found]

    first = all_of_them()
    assert [left_out for _, left_out in first] == [1, 1, 1]
    monkeypatch.setattr(
        "harness.data.training.text_rows._mask_text_rows", lambda *_: pytest.fail("read again")
    )
    assert all_of_them() == first
    monkeypatch.undo()
    lines(root / "org/a/train.jsonl", [{"query": "q", "pos": ["p"]}, {"query": "r", "pos": ["s"]}])
    assert every(load("org/a", "query", "pos[0]")) == [row("q", "p"), row("r", "s")]


def test_texts_stay_on_disk(root: Path, load: Load) -> None:
    texts = [f"{number} " + "word " * 400 for number in range(3_000)]
    parquet(root / "org/long/train.parquet", {"query": texts, "pos": [[one, one] for one in texts]})
    load("org/long", "query", "pos[0]")  # the tables and the numbers are in files from now on
    usual, watched = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(watched)
    try:
        found = load("org/long", "query", "pos[0]")
        assert found.read_text_rows([2_999, 7])[0].positive == texts[2_999]
    finally:
        pa.set_memory_pool(usual)
    assert watched.max_memory() < 3 * sum(map(len, texts)) / 20


# Faults


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (("quary", "pos[0]"), "no column 'quary'; did you mean 'query'"),
        (("query", "psitive[0]"), "no column 'psitive'"),
        (("query", "pos[0]", "negs[]"), "no column 'negs'"),
        (("query", "query[0]"), r"the column 'query' holds text, in which 'query\[0\]' cannot be found"),
        (("query.text", "pos[0]"), "the column 'query' holds text, in which 'query.text' cannot be found"),
        (
            ("query", "pos[0]", "query[]"),
            r"the column 'query' holds text, in which 'query\[\]' cannot be found",
        ),
        (("query", "set"), "the column 'set' holds (struct<.*>|dict), not text"),
        (("query", "pos"), "the column 'pos' holds list<.*>, not text"),
        (("query", "pos[0]", "pos"), "the column 'pos' holds list<.*>, not text"),
        (("query", "set.text"), "the column 'set' holds struct<.*>, in which 'set.text' cannot be found"),
        (("query", "set[0]"), r"the column 'set' holds struct<.*>, in which 'set\[0\]' cannot be found"),
        (("query", "pos.text"), "the column 'pos' holds list<.*>, in which 'pos.text' cannot be found"),
        (("query", "pos[0][0]"), r"'pos' holds list<.*>, in which 'pos\[0\]\[0\]' cannot be found"),
        (("query", "pos[0]", "set.neg"), "the column 'set.neg' holds list<.*>, not text"),
        (("query", "pos[0]", "set.numbers[]"), r"the column 'set.numbers\[\]' holds int64, not text"),
        (("query", "numbers[0]"), r"the column 'numbers\[0\]' holds int64, not text"),
        (("query", "pos[0]", "numbers[]"), r"the column 'numbers\[\]' holds int64, not text"),
        (("query", "pos[0]", "number"), "the column 'number' holds int(64)?, not text"),
        (("query", "pos[]"), r"'pos\[\]' is all texts of a list, and one is needed, as 'pos\[0\]'"),
        (("set.neg[]", "query"), r"'set.neg\[\]' is all texts of a list, and one is needed"),
        (("query", "pos[5]"), r"no row has both 'query' and 'pos\[5\]'"),
    ],
)
@pytest.mark.parametrize("ending", ["jsonl.gz", "parquet"])
def test_columns_that_do_not_fit_are_named(
    root: Path, load: Load, columns: tuple[str, ...], message: str, ending: str
) -> None:
    fields = {"pos": ["p", "r"], "numbers": [1, 2], "number": 3, "set": {"neg": ["n"], "numbers": [4]}}
    rows = [{"query": "q", **fields}, {"query": "q2", **fields}]
    if ending == "parquet":
        parquet(root / "org/data/train.parquet", {name: [one[name] for one in rows] for name in rows[0]})
    else:
        lines(root / f"org/data/train.{ending}", rows)
    with pytest.raises(DataError, match=message) as caught:
        load("org/data", *columns)
    assert "org/data" in caught.value.message


def test_what_is_read_from_the_hub_itself_is_checked_as_well(
    root: Path, settings: DataSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is known of its columns before."""
    table = Dataset.from_dict({"query": ["q"], "number": [1], "topic": [["a"]]})
    monkeypatch.setattr("datasets.load_dataset", lambda *_args, **_named: table)
    online = replace(settings, root=None, offline=False)
    for columns, classes, message in (
        (("query", "answer"), "", "org/data: no column 'answer'"),
        (("query", "number"), "", "org/data: the column 'number' holds int64, not text"),
        (("query",), "topics", "org/data: no column 'topics'"),
        (("query",), "topic", r"org/data: the column 'topic' holds list<.*>, in which 'topic' is no class"),
    ):
        data = TrainingData(path="org/data", revision="c" * 40, columns=columns, classes=classes)
        with pytest.raises(DataError, match=message):
            load_rows(locate_training(data, online), cache=settings.cache)


@pytest.mark.parametrize(
    ("file", "rows", "message"),
    [
        ("qrels/train.jsonl", [{"query-id": "1", "score": 1}], "no column 'corpus-id'"),
        (
            "queries.jsonl",
            [{"id": "1", "text": "a"}],
            "org/search:default, queries: no column '_id'",
        ),
        ("corpus.jsonl", [{"_id": "d"}], "org/search:default, corpus: no column 'text'"),
        ("corpus.jsonl", [{"_id": "d", "text": 5}], "corpus: the column 'text' holds int64, not text"),
        ("corpus.jsonl", [{"_id": ["d"], "text": "a"}], "corpus: the column '_id' holds list<.*>, not ids"),
        ("corpus.jsonl", [{"_id": "x", "text": "a"}], "no judgement above 0 has the texts of both its ids"),
        (
            "qrels/train.jsonl",
            [{"query-id": "1", "corpus-id": "d", "score": "high"}],
            "org/search:default, judgements: the column 'score' holds string, not numbers",
        ),
        (
            "qrels/train.jsonl",
            [{"query-id": "1", "corpus-id": "d", "score": 0}],
            "no judgement above 0 has the texts of both its ids",
        ),
        (
            "qrels/train.jsonl",
            [{"query-id": {"a": 1}, "corpus-id": "d", "score": 1}],
            "judgements: the column 'query-id' holds struct<.*>, not ids",
        ),
    ],
)
def test_faults_of_judgements_are_named(
    root: Path, load: Load, file: str, rows: list[dict[str, Any]], message: str
) -> None:
    judgements(root, "org/search", [("1", "d", 1)], {"d": "one"})
    lines(root / "org/search" / file, rows)
    with pytest.raises(DataError, match=message) as caught:
        load("org/search", "query-id", "corpus-id", config="default", judged=True)
    assert "org/search" in caught.value.message


def test_judgements_without_their_texts_are_refused(root: Path, load: Load) -> None:
    judgements(root, "org/search", [("1", "d", 1)], {"d": "one"})
    (root / "org/search/corpus.jsonl").unlink()
    with pytest.raises(DataError, match=r"names corpus\.jsonl for the split 'corpus' of 'corpus'"):
        load("org/search", "query-id", "corpus-id", config="default", judged=True)
    lines(root / "org/search/corpus.jsonl", [{"_id": None, "text": "no id"}, {"_id": "d", "text": "one"}])
    lines(
        root / "org/search/qrels/train.jsonl",
        [{"query-id": "1", "corpus-id": one, "score": 1} for one in (None, "d")],
    )
    found = load("org/search", "query-id", "corpus-id", config="default", judged=True)
    assert (every(found), found.left_out) == ([row("claim 1", "one")], 1)


def test_classes_without_two_texts_are_refused(root: Path, load: Load) -> None:
    parquet(root / "org/one/train.parquet", {"text": ["a", "b", " "], "label": [0, 1, 1]})
    with pytest.raises(DataError, match="org/one: no class of 'label' has two texts"):
        load("org/one", "text", classes="label")
    with pytest.raises(DataError, match="no column 'labels'; did you mean 'label'"):
        load("org/one", "text", classes="labels")
    with pytest.raises(DataError, match="the column 'label' holds int64, not text"):
        load("org/one", "text", "label", classes="label")


# Files of one's own


BGE = [
    {"query": "q1", "pos": ["p1", "other"], "neg": ["n1", "n2"]},
    {"query": "é", "pos": ["漢"], "neg": []},
    {"query": "q3", "pos": ["p3"], "neg": ["n3"]},
]


def test_own_lists_are_the_same_data_in_every_file(tmp_path: Path, settings: DataSettings) -> None:
    columns = {name: [one[name] for one in BGE] for name in BGE[0]}
    paths = [lines(tmp_path / "own.jsonl", BGE), parquet(tmp_path / "own.parquet", columns)]
    paths.append(tmp_path / "parts.parquet")
    pq.write_table(pa.table(columns), paths[-1], row_group_size=1)
    found = [locate_user_training(str(path), settings) for path in paths]
    assert len({one.data.content for one in found}) == 1
    for located in found:
        assert (located.data.columns, located.rows, located.data.plain) == (LISTS, 3, False)
        assert located.data.form == "row with any number of negatives"
        assert located.data.texts_per_row == 3
        assert every(load_rows(located, cache=settings.cache)) == [
            row("q1", "p1", "n1", "n2"),
            row("é", "漢"),
            row("q3", "p3", "n3"),
        ]
    moved = [{**BGE[0], "neg": ["n1"]}, {**BGE[1], "neg": ["n2"]}, BGE[2]]
    others = [
        locate_user_training(str(lines(tmp_path / f"{n}.jsonl", r)), settings)
        for n, r in enumerate((moved, BGE[::-1]))
    ]
    assert len({found[0].data.content, *(one.data.content for one in others)}) == 3


def test_the_content_of_lists_does_not_depend_on_batches(
    tmp_path: Path, settings: DataSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = locate_user_training(str(lines(tmp_path / "own.jsonl", BGE)), settings)
    monkeypatch.setattr("harness.data.training.own_rows.BATCH", 2)
    other = locate_user_training(str(tmp_path / "own.jsonl"), replace(settings, cache=tmp_path / "other"))
    assert other.data == whole.data


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([{"query": "q", "pos": "p", "neg": ["n", "m"]}], row("q", "p", "n", "m")),
        ([{"question": "q", "positive": ["p"]}], row("q", "p")),
        ([{"anchor": "q", "positive": ["p"], "negative": "n"}], row("q", "p", "n")),
        (
            [{"anchor": "q", "positive": "p", "negative_2": ["m"], "negative_1": "n", "score": 1}],
            row("q", "p", "n", "m"),
        ),
        ([{"query": "q", "answer": "a", "negs": [], "prompt": "x", "tags": ["t"]}], row("q", "a")),
    ],
)
def test_own_lists_are_taken_by_their_names(
    tmp_path: Path, settings: DataSettings, rows: list[dict[str, Any]], expected: TextRow
) -> None:
    located = locate_user_training(str(lines(tmp_path / "own.jsonl", rows)), settings)
    assert located.data.columns == LISTS
    assert every(load_rows(located, cache=settings.cache)) == [expected]


def test_a_data_set_with_lists_is_one_s_own_too(root: Path, settings: DataSettings) -> None:
    parquet(root / "org/bge/train.parquet", {name: [one[name] for one in BGE] for name in BGE[0]})
    located = locate_user_training("org/bge", settings)
    assert located.data.columns == ("query", "pos[0]", "neg[]")
    assert every(load_rows(located, cache=settings.cache))[0] == row("q1", "p1", "n1", "n2")
    size = TrainingSize.measure_training(located, settings.cache)
    assert (size.rows, size.negatives) == (3, (0, 2))


def test_columns_with_a_dot_are_columns(tmp_path: Path, settings: DataSettings) -> None:
    path = tmp_path / "own.csv"
    path.write_text("query,answer,negative,negative.1\nq,p,n,m\n")
    located = locate_user_training(str(path), settings)
    assert located.data.columns == ("anchor", "positive", "negative_1", "negative_2")
    assert every(load_rows(located, cache=settings.cache)) == [row("q", "p", "n", "m")]
    path.write_text("query,answer,negative.text\nq,p,n\n")
    located = locate_user_training(str(path), settings)
    assert located.data.columns == ("anchor", "positive", "negative")


FIRST = {"query": "q", "pos": ["p"], "neg": ["n"]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": " "}, "the field 'query' is blank"),
        ({"query": 5}, "the field 'query' is 5, not a string"),
        ({"pos": []}, r"the field 'pos\[0\]' is None, not a string"),
        ({"pos": [None]}, r"the field 'pos\[0\]' is None, not a string"),
        ({"pos": [" ", "p"]}, r"the field 'pos\[0\]' is blank"),
        ({"pos": ["\ud800"]}, r"the field 'pos\[0\]' holds half a surrogate pair"),
        ({"pos": "text"}, "the column 'pos' holds no list, as in the first row"),
        ({"pos": {"a": "b"}}, "the column 'pos' holds no list, as in the first row"),
        ({"neg": "text"}, "the column 'neg' holds no list, as in the first row"),
        ({"neg": None}, "the column 'neg' holds no list, as in the first row"),
        ({"neg": [["n"]]}, r"the field 'neg\[\]' is \['n'\], not a string"),
        ({"neg": [1]}, r"the field 'neg\[\]' is 1, not a string"),
        ({"neg": ["n", ""]}, r"the field 'neg\[\]' is blank"),
    ],
)
def test_own_lists_that_do_not_fit_are_refused_by_their_row(
    tmp_path: Path, settings: DataSettings, change: dict[str, Any], message: str
) -> None:
    path = lines(tmp_path / "own.jsonl", [FIRST, {**FIRST, **change}])
    with pytest.raises(DataError, match=f"own.jsonl:2: {message}"):
        locate_user_training(str(path), settings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": None}, "the field 'query' is None, not a string"),
        ({"pos": []}, r"the field 'pos\[0\]' is None, not a string"),
        ({"pos": None}, "the column 'pos' holds no list"),
        ({"neg": ["n", " "]}, r"the field 'neg\[\]' is blank"),
        ({"neg": ["n", None]}, r"the field 'neg\[\]' is None, not a string"),
    ],
)
def test_lists_of_a_parquet_file_that_do_not_fit_are_refused_by_their_row(
    tmp_path: Path, settings: DataSettings, change: dict[str, Any], message: str
) -> None:
    rows = [FIRST, {**FIRST, **change}]
    path = parquet(tmp_path / "own.parquet", {name: [one[name] for one in rows] for name in FIRST})
    with pytest.raises(DataError, match=f"own.parquet: row 2: {message}"):
        locate_user_training(str(path), settings)


def test_lists_of_numbers_are_no_negatives(tmp_path: Path, settings: DataSettings) -> None:
    path = parquet(tmp_path / "own.parquet", {"query": ["q"], "pos": [["p"]], "negative": [[1, 2]]})
    with pytest.raises(DataError, match=r"own.parquet: the column 'negative' holds no text"):
        locate_user_training(str(path), settings)


def test_negatives_that_begin_late_are_refused(tmp_path: Path, settings: DataSettings) -> None:
    """They would be skipped without a word."""
    bare = {"query": "q", "pos": ["p"]}
    with pytest.raises(DataError, match=r"own.jsonl:2: the column 'neg' is new; the first row"):
        locate_user_training(str(lines(tmp_path / "own.jsonl", [bare, FIRST])), settings)
    with pytest.raises(DataError, match=r"own.jsonl:2: the column 'neg' is missing, which the first row has"):
        locate_user_training(str(lines(tmp_path / "own.jsonl", [FIRST, bare])), settings)
    with pytest.raises(DataError, match=r"own.jsonl:1: the column 'neg' holds no list"):
        locate_user_training(str(lines(tmp_path / "own.jsonl", [{**bare, "neg": None}, FIRST])), settings)
    tags = locate_user_training(str(lines(tmp_path / "own.jsonl", [bare, {**bare, "tags": ["a"]}])), settings)
    assert tags.rows == 2


def test_what_reads_columns_of_text_refuses_lists(tmp_path: Path, settings: DataSettings) -> None:
    located = locate_user_training(str(lines(tmp_path / "own.jsonl", BGE)), settings)
    with pytest.raises(DataError, match=r"own.jsonl has a row with any number of negatives in each row"):
        load_training(located, cache=settings.cache)


def test_sizes_of_lists(tmp_path: Path, settings: DataSettings) -> None:
    located = locate_user_training(str(lines(tmp_path / "own.jsonl", BGE)), settings)
    size = TrainingSize.measure_training(located, settings.cache)
    assert (size.rows, size.negatives) == (3, (0, 2))
    assert size.characters == {"query": 5 / 3, "positive": 5 / 3, "negatives": 2.0}
    none = locate_user_training(
        str(lines(tmp_path / "none.jsonl", [{"query": "ab", "pos": ["c"]}])), settings
    )
    size = TrainingSize.measure_training(none, settings.cache)
    assert (size.characters, size.negatives) == ({"query": 2.0, "positive": 1.0}, (0, 0))
