"""The containers refuse data that cannot be scored, and their hash is the data's identity."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import pytest

from harness.core.errors import DataError
from suites._content import (
    Clusters,
    Content,
    Document,
    Labelled,
    Pair,
    Pairs,
    Query,
    Retrieval,
    Row,
    hash_content,
    measure_content,
)

D1, D2 = Document(id="d1", title="T", text="one"), Document(id="d2", text="two")
Q1, Q2 = Query(id="q1", text="first?"), Query(id="q2", text="second?")
A, B = Row(id="1", text="alpha", label="a"), Row(id="2", text="beta", label="b")
P1 = Pair(id="1", text1="x", text2="y", score=0.0)
P2 = Pair(id="2", text1="x", text2="z", score=2.5)


def wrong(value: Any) -> Any:
    """A value of another type than declared."""
    return value


def retrieval(**change: Any) -> Retrieval:
    plain: dict[str, Any] = {"documents": (D1, D2), "queries": (Q1, Q2), "qrels": {"q1": {"d1": 1, "d2": 0}}}
    return Retrieval(**(plain | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"documents": ()}, "The corpus has no documents."),
        ({"queries": ()}, "The data has no queries."),
        ({"documents": (D1, D2, D1)}, "The document id 'd1' occurs 2 times."),
        ({"documents": (D1, D1, D1, D2, D2)}, "The document id 'd1' occurs 3 times (and 1 more such ids)."),
        ({"queries": (Q1, Q1)}, "The query id 'q1' occurs 2 times."),
        (
            {"documents": (D1, D2, Document(id=" ", text="x"))},
            "The id of a document must be a string that is not blank, not ' '.",
        ),
        (
            {"queries": (Q1, Query(id=wrong(7), text="x"))},
            "The id of a query must be a string that is not blank, not 7.",
        ),
        (
            {"documents": (D1, Document(id="d2", text=wrong(None)))},
            "The text of document 'd2' is None, not a string.",
        ),
        (
            {"documents": (D1, Document(id="d2", title=wrong(None), text="x"))},
            "The title of document 'd2' is None, not a string.",
        ),
        ({"queries": (Q1, Query(id="q2", text=""))}, "The text of query 'q2' is blank."),
        ({"queries": (Q1, Query(id="q2", text=wrong(3)))}, "The text of query 'q2' is 3, not a string."),
        (
            {"queries": (Q1, Query(id="q2", text="\ud800"))},
            "The text of query 'q2' is not valid Unicode: it holds half a surrogate pair.",
        ),
        ({"qrels": {"q9": {"d1": 1}}}, "The qrels name the query 'q9', which does not exist."),
        (
            {"qrels": {"q1": {"d1": 1, "d8": 1, "d9": 1}}},
            "The qrels name the document 'd8' (and 1 more), which does not exist.",
        ),
        (
            {"qrels": {"q1": {"d1": 0.5}}},
            "The grade of document 'd1' for query 'q1' is 0.5, not a whole number.",
        ),
        (
            {"qrels": {"q1": {"d1": True}}},
            "The grade of document 'd1' for query 'q1' is True, not a whole number.",
        ),
        ({"qrels": {"q1": {"d1": 0}}}, "No query has a relevant document: the qrels hold no grade above 0."),
        ({"qrels": {}}, "No query has a relevant document: the qrels hold no grade above 0."),
    ],
)
def test_retrieval_that_cannot_be_scored(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError) as caught:
        retrieval(**change)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((), "The data has no pairs."),
        ((P1, P2, P1), "The pair id '1' occurs 2 times."),
        ((P1, dataclasses.replace(P2, text1=" ")), "The text1 of pair '2' is blank."),
        ((P1, dataclasses.replace(P2, text2=wrong(None))), "The text2 of pair '2' is None, not a string."),
        (
            (P1, dataclasses.replace(P2, score=wrong("3"))),
            "The score of pair '2' is '3', not a finite number.",
        ),
        (
            (P1, dataclasses.replace(P2, score=float("nan"))),
            "The score of pair '2' is nan, not a finite number.",
        ),
        (
            (P1, dataclasses.replace(P2, score=float("inf"))),
            "The score of pair '2' is inf, not a finite number.",
        ),
        ((P1, dataclasses.replace(P2, score=0.0)), "Every score is 0.0: nothing can correlate with that."),
        (
            tuple(dataclasses.replace(one, text2=one.text1) for one in (P1, P2)),
            "Both texts of every pair are the same: so are all similarities.",
        ),
    ],
)
def test_pairs_that_cannot_be_scored(rows: tuple[Pair, ...], message: str) -> None:
    with pytest.raises(DataError) as caught:
        Pairs(rows=rows)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        ((), (A,), "The data has no training row."),
        ((A, B), (), "The data has no test row."),
        ((A, B, B), (A,), "The training row id '2' occurs 2 times."),
        ((A, B), (A, A), "The test row id '1' occurs 2 times."),
        ((A, dataclasses.replace(B, text="")), (A,), "The text of training row '2' is blank."),
        ((A, B), (dataclasses.replace(A, label=" "),), "The label of test row '1' is blank."),
        (
            (A, dataclasses.replace(B, label=wrong(1))),
            (A,),
            "The label of training row '2' is 1, not a string.",
        ),
        (
            (A, B),
            (dataclasses.replace(A, label="c"),),
            "The label 'c' of test row '1' is in no training row.",
        ),
        ((A,), (A,), "There is only the label 'a': at least two are needed."),
    ],
)
def test_labelled_rows_that_cannot_be_scored(
    train: tuple[Row, ...], test: tuple[Row, ...], message: str
) -> None:
    with pytest.raises(DataError) as caught:
        Labelled(train=train, test=test)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((), "The data has no row."),
        ((A, A), "The row id '1' occurs 2 times."),
        ((A, dataclasses.replace(A, id="3")), "There is only the label 'a': at least two are needed."),
        ((A, B), "Every row has a label of its own, so that nothing can be grouped."),
    ],
)
def test_clusters_that_cannot_be_scored(rows: tuple[Row, ...], message: str) -> None:
    with pytest.raises(DataError) as caught:
        Clusters(rows=rows)
    assert caught.value.message == message


def test_a_document_may_consist_of_its_title() -> None:
    only_title = Document(id="d1", title="A title", text="")
    assert retrieval(documents=(only_title, D2)).documents[0] == only_title


def test_same_id_may_stand_for_a_query_and_a_document_and_in_train_and_test() -> None:
    assert retrieval(queries=(Query(id="d1", text="x"),), qrels={"d1": {"d1": 1}}).queries[0].id == "d1"
    assert len(Labelled(train=(A, B), test=(A,)).test) == 1


def test_queries_without_a_relevant_document_are_named_and_kept() -> None:
    data = retrieval(
        queries=(Q1, Q2, Query(id="q3", text="third?")), qrels={"q1": {"d1": 2}, "q2": {"d2": 0}}
    )
    assert data.unanswered == ("q2", "q3")
    assert len(data.queries) == 3


def test_judged_leaves_out_queries_without_qrels_and_says_so() -> None:
    data = retrieval(
        queries=(Q1, Q2, Query(id="q3", text="third?")), qrels={"q1": {"d1": 2}, "q2": {"d2": 0}}
    )
    judged = data.drop_unjudged_queries()
    assert [q.id for q in judged.queries] == ["q1", "q2"]
    assert judged.notes == ("1 of 3 queries have no judgement: left out.",)
    assert judged.drop_unjudged_queries() is judged
    assert data.notes == ()


def test_content_hash_is_the_hash_of_the_rows_as_json_lines() -> None:
    lines = (
        b'["document","d1","T","one"]\n["document","d2","","two"]\n["query","q1","first?"]\n'
        b'["query","q2","second?"]\n["qrel","q1","d1",1]\n["qrel","q1","d2",0]\n'
    )
    assert hash_content(retrieval()) == hashlib.sha256(lines).hexdigest()
    pairs = b'["pair","1","x","y",0.0]\n["pair","2","x","z",2.5]\n'
    assert hash_content(Pairs(rows=(P1, P2))) == hashlib.sha256(pairs).hexdigest()
    labelled = b'["train","1","alpha","a"]\n["train","2","beta","b"]\n["test","1","alpha","a"]\n'
    assert hash_content(Labelled(train=(A, B), test=(A,))) == hashlib.sha256(labelled).hexdigest()
    rows = (A, B, dataclasses.replace(A, id="3"))
    clusters = b'["row","1","alpha","a"]\n["row","2","beta","b"]\n["row","3","alpha","a"]\n'
    assert hash_content(Clusters(rows=rows)) == hashlib.sha256(clusters).hexdigest()


def test_content_hash_ignores_notes_and_the_order_of_qrels() -> None:
    plain = hash_content(retrieval())
    assert hash_content(retrieval(notes=("said",))) == plain
    assert hash_content(retrieval(qrels={"q1": {"d2": 0, "d1": 1}})) == plain
    whole = dataclasses.replace(P2, score=2)
    assert hash_content(Pairs(rows=(P1, whole))) == hash_content(
        Pairs(rows=(P1, dataclasses.replace(P2, score=2.0)))
    )


def test_content_hash_changes_with_every_part_of_the_data() -> None:
    variants: list[Content] = [
        retrieval(),
        retrieval(documents=(D2, D1)),
        retrieval(documents=(D1, dataclasses.replace(D2, text="Two"))),
        retrieval(documents=(D1, dataclasses.replace(D2, title="two", text=""))),
        retrieval(queries=(Q2, Q1)),
        retrieval(queries=(Q1,)),
        retrieval(qrels={"q1": {"d1": 2, "d2": 0}}),
        retrieval(qrels={"q1": {"d1": 1}}),
        Pairs(rows=(P1, P2)),
        Pairs(rows=(P1, dataclasses.replace(P2, score=2.6))),
        Labelled(train=(A, B), test=(A,)),
        Labelled(train=(B, A), test=(A,)),
        Labelled(train=(A, B), test=(B,)),
    ]
    assert len({hash_content(v) for v in variants}) == len(variants)


def test_size_counts_the_texts_to_encode_and_their_characters() -> None:
    assert (measure_content(retrieval()).texts, measure_content(retrieval()).characters) == (
        4,
        len("T onetwofirst?second?"),
    )
    assert (
        measure_content(Pairs(rows=(P1, P2))).texts,
        measure_content(Pairs(rows=(P1, P2))).characters,
    ) == (4, 4)
    labelled = measure_content(Labelled(train=(A, B), test=(A,)))
    assert (labelled.texts, labelled.characters) == (3, 14)
