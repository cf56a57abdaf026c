"""Collections of training pairs: ids, copies, blank documents, and what counts as the same data."""

from __future__ import annotations

from pathlib import Path

import pytest

from data_files import lines
from harness.core.errors import DataError, UsageError
from harness.data.collection import Collection
from harness.data.locate import DataSettings


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    """Two queries are one text, two documents are, one document is blank, and one judgement is 0."""
    folder = tmp_path / "own"
    documents = [("a", "Title", "one"), ("b", "", "two"), ("c", "", "two"), ("d", "", " "), ("e", "", "five")]
    lines(
        folder / "corpus.jsonl",
        [{"_id": name, "title": title, "text": text} for name, title, text in documents],
    )
    queries = {"x": "which", "y": "where", "z": "which", "unused": "what"}
    lines(folder / "queries.jsonl", [{"_id": name, "text": text} for name, text in queries.items()])
    (folder / "qrels").mkdir()
    rows = ["query-id\tcorpus-id\tscore", "x\ta\t1", "y\tc\t2", "z\tb\t1", "y\te\t0", ""]
    (folder / "qrels" / "train.tsv").write_text("\n".join(rows))
    return folder


def test_a_folder_keeps_its_ids_and_each_text_is_there_once(judged: Path, settings: DataSettings) -> None:
    found = Collection.read_pairs(str(judged), "", settings)
    assert found.name == "own:train"
    assert found.queries == {"x": "which", "y": "where"}
    assert found.documents == {"a": "Title one", "b": "two", "e": "five"}
    assert found.positives == {"x": ("a", "b"), "y": ("b",)}
    assert found.notes == ("copies of other documents: 1, left out", "no text: 1 documents, left out")


def test_pairs_have_their_own_documents_and_those_of_a_corpus(
    judged: Path, tmp_path: Path, settings: DataSettings
) -> None:
    rows = [
        {"query": "which", "positive": "two", "negative": "seven"},
        {"query": "which", "positive": "nine", "negative": "two"},
    ]
    file = lines(tmp_path / "pairs.jsonl", rows)
    alone = Collection.read_pairs(str(file), "", settings)
    assert alone.queries == {"q0": "which"}
    assert alone.documents == {"d0": "two", "d1": "seven", "d2": "nine"}
    assert alone.positives == {"q0": ("d0", "d2")}
    beside = Collection.read_pairs(str(file), str(judged / "corpus.jsonl"), settings)
    assert list(beside.documents.values()) == ["Title one", "two", "five", "seven", "nine"]
    assert beside.positives == {"q0": ("b", "d4")}
    assert len(beside.documents) == len(set(beside.documents))
    assert alone.pairs == beside.pairs
    assert alone.content != beside.content


def test_the_content_is_that_of_texts_ids_and_judgements(
    judged: Path, tmp_path: Path, settings: DataSettings
) -> None:
    contents = [Collection.read_pairs(str(judged), "", settings).content]
    moved = judged.rename(tmp_path / "moved")
    assert Collection.read_pairs(str(moved), "", settings).content == contents[0]
    for name, before, after in (
        ("corpus.jsonl", '"five"', '"six"'),
        ("queries.jsonl", "where", "when"),
        ("qrels/train.tsv", "y\te\t0", "y\te\t1"),
    ):
        path = moved / name
        path.write_text(path.read_text().replace(before, after))
        contents.append(Collection.read_pairs(str(moved), "", settings).content)
    assert len(set(contents)) == 4


def test_what_is_no_collection_is_refused(judged: Path, tmp_path: Path, settings: DataSettings) -> None:
    scored = lines(tmp_path / "s.jsonl", [{"sentence1": "a", "sentence2": "b", "score": 1}])
    file = lines(tmp_path / "p.jsonl", [{"query": "a", "positive": "b"}])
    twice = lines(tmp_path / "twice.jsonl", [{"_id": "a", "text": "b"}, {"_id": "a", "text": "c"}])
    empty = lines(tmp_path / "empty.jsonl", [{"_id": "a", "text": ""}])
    for data, corpus, kind, told in (
        (scored, "", UsageError, "has pairs with scores"),
        (judged, str(judged), UsageError, "has a corpus of its own"),
        (file, "nowhere", UsageError, "No corpus 'nowhere'"),
        (file, str(twice), DataError, "the id 'a' occurs twice"),
        (file, str(empty), DataError, "there are no documents"),
        (file, str(file), DataError, "no field '_id'"),
    ):
        with pytest.raises(kind, match=told):
            Collection.read_pairs(str(data), corpus, settings)
