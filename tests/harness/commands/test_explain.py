"""`harness explain`: its matches against PyLate's own scores, and its total against that of a run."""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import late_models
import tiny
from harness.cli import invoke
from harness.search.maxsim import compute_maxsim
from harness.storage.vectors import TokenVectors

QUERY, DOCUMENT = "the cat, on stone", "  On the mat sat the Cat: a river!"

Said = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module", params=late_models.BODIES)
def colbert(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("late") / "tiny-colbert"
    return late_models.save(folder, request.param, document_length=60)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return late_models.save(tmp_path_factory.mktemp("late") / "tiny-colbert", document_length=60)


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    def run(folder: object, query: object, document: object, *words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        asked = ("explain", "--model", folder, "--query", query, "--document", document, *words)
        code = invoke([*map(str, asked), "--offline", "--threads", "1"])
        out = capsys.readouterr()
        assert "Traceback" not in out.err
        return code, out.out, out.err

    return run


def explained(said: Said, folder: Path, *words: object) -> dict[str, Any]:
    query, document, *options = words or (QUERY, DOCUMENT)
    code, out, err = said(folder, query, document, "--json", *options)
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def test_the_total_is_pylates_score_and_the_sum_of_the_matches(colbert: Path, said: Said) -> None:
    pytest.importorskip("pylate")
    from pylate.scores import colbert_scores

    found = explained(said, colbert, QUERY, DOCUMENT, "--matrix", "--vectors", "float32")
    library = late_models.library(colbert)
    (ours,) = library.encode([QUERY], is_query=True, convert_to_tensor=True)
    (theirs,) = library.encode([DOCUMENT], is_query=False, convert_to_tensor=True)
    assert found["total"] == pytest.approx(float(colbert_scores(ours[None], theirs[None])[0, 0]), abs=1e-4)
    assert found["total"] == pytest.approx(sum(match["similarity"] for match in found["matches"]), abs=1e-4)
    kept = [at for at, token in enumerate(found["document"]["tokens"]) if not token["skipped"]]
    products = (ours @ theirs.T).numpy()
    matrix = np.array(found["matrix"], dtype=float)
    assert matrix.shape == (len(found["query"]["tokens"]), len(found["document"]["tokens"]))
    assert matrix[:, kept] == pytest.approx(products, abs=1e-5)
    assert np.isnan(np.delete(matrix, kept, axis=1)).all()
    assert [match["query"] for match in found["matches"]] == list(range(len(found["query"]["tokens"])))
    for match, row in zip(found["matches"], products, strict=True):
        assert match["similarity"] == pytest.approx(row.max(), abs=1e-5)
        assert row[kept.index(match["document"])] == pytest.approx(row.max(), abs=1e-5)


def test_tokens_are_named_marked_and_placed(model: Path, said: Said) -> None:
    found = explained(said, model)
    query, document = found["query"]["tokens"], found["document"]["tokens"]
    kinds = ["special", "prefix", *["text"] * 9, "special"]
    assert [token["token"] for token in query][:6] == ["[CLS]", "[Q] ", "the", "cat", ",", "on"]
    assert [token["kind"] for token in query] == kinds
    short = explained(said, model, "the cat", DOCUMENT)["query"]["tokens"]
    assert [token["token"] for token in short] == ["[CLS]", "[Q] ", "the", "cat", "[SEP]", *["[MASK]"] * 7]
    assert [token["kind"] for token in short][4:] == ["special", *["expansion"] * 7]
    assert [token["token"] for token in document][:4] == ["[CLS]", "[D] ", "on", "the"]
    assert {token["token"] for token in document if token["skipped"]} == {":", "!"}
    assert not any(token["skipped"] for token in query)
    for given, tokens in ((QUERY, query), (DOCUMENT, document)):
        for token in tokens:
            if token["kind"] == "text":
                part = given[token["start"] : token["end"]].lower()
                assert part == token["token"].removeprefix("##")
            else:
                assert (token["start"], token["end"]) == (None, None)
    assert "2 of 17 tokens of the document have no vector (skiplist)" in found["notes"]


def test_a_prompt_has_no_place_in_the_text(model: Path, said: Said) -> None:
    options = ("--prompt", "query=a the ")
    found = explained(said, model, "cat", DOCUMENT, *options)["query"]["tokens"]
    placed = [(token["token"], token["start"], token["end"]) for token in found if token["kind"] == "text"]
    assert placed == [("a", None, None), ("the", None, None), ("cat", 0, 3)]


def test_the_total_is_the_score_of_a_run(model: Path, tmp_path: Path, said: Said) -> None:
    folder, results = tmp_path / "own", tmp_path / "results"
    (folder / "qrels").mkdir(parents=True)
    corpus = {"d1": DOCUMENT.strip(), "d2": "river stone", "d3": "music of the winter"}
    queries = {"q1": QUERY, "q2": "a silver engine in the garden"}
    for name, texts in (("corpus", corpus), ("queries", queries)):
        lines = (json.dumps({"_id": one, "text": text}) for one, text in texts.items())
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t1\n")
    asked = ("run", "--model", model, "--suite", f"local:{folder}", "--results", results, "--offline")
    assert invoke([*map(str, asked), "--threads", "1"]) == 0
    (file,) = (results / "records").glob("*/*/*.run.parquet")
    for row in pq.read_table(file).to_pylist():
        query, document = (
            next(row[name] for name in names if name in row)
            for names in (("query_id", "query-id", "query"), ("document_id", "corpus-id", "document"))
        )
        found = explained(said, model, queries[query], corpus[document])
        assert found["total"] == pytest.approx(row["score"], abs=1e-5)


def test_texts_that_are_longer_than_their_length_are_counted(model: Path, said: Said) -> None:
    found = explained(said, model, "the cat sat on the mat the cat sat on the mat", DOCUMENT)
    assert (found["query"]["whole"], found["query"]["cut"]) == (15, 3)
    assert "the query has 15 tokens; the last 3 are cut off" in found["notes"]
    found = explained(said, model, "the cat", "the cat sat on the mat", "--max-length", 6)
    assert (found["document"]["whole"], found["document"]["cut"]) == (9, 3)
    assert (
        "The document has 9 tokens; the last 3 are cut off."
        in said(model, "the cat", "the cat sat on the mat", "--max-length", 6)[1]
    )
    assert explained(said, model)["query"]["cut"] == 0


def test_a_document_without_a_token_has_no_score(tmp_path: Path, said: Said) -> None:
    words = [*string.punctuation, "[CLS]", "[SEP]", "[D] "]
    bare = late_models.save(tmp_path / "bare", skiplist_words=words)
    found = explained(said, bare, "the cat", "!!!", "--matrix")
    assert (found["total"], found["matches"]) == (None, [])
    assert all(token["skipped"] for token in found["document"]["tokens"])
    assert len(found["matrix"][0]) == len(found["document"]["tokens"])
    code, out, _ = said(bare, "the cat", "!!!")
    assert (code, "No token of the document has a vector" in out) == (0, True)


def test_a_terminal_shows_a_table(model: Path, said: Said) -> None:
    code, out, _ = said(model, QUERY, DOCUMENT, "--matrix")
    assert code == 0
    total = explained(said, model)["total"]
    assert f"MaxSim of tiny-colbert: {total:.5f}, the sum over 12 tokens" in out
    for word in ("[CLS]", "special", "prefix", "characters", "the similarity of each token"):
        assert word in out


def test_texts_come_from_files(model: Path, tmp_path: Path, said: Said) -> None:
    (tmp_path / "query.txt").write_text(QUERY + "\n")
    (tmp_path / "document.txt").write_text(DOCUMENT + "\n")
    found = explained(said, model, f"@{tmp_path / 'query.txt'}", f"@{tmp_path / 'document.txt'}")
    assert found == explained(said, model)


def test_other_models_and_blank_texts_are_refused(model: Path, tmp_path: Path, said: Said) -> None:
    dense = tiny.folder(tiny.families()["bert"], tmp_path / "tiny-dense")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\xff")
    for words, told in (
        ((dense, "a", "b"), "tiny-dense gives one vector for each text"),
        (("bm25", "a", "b"), "bm25 ranks documents by their words"),
        ((tmp_path / "nowhere", "a", "b"), "There is no folder"),
        ((model, " ", "b"), "The query has no text"),
        ((model, "a", ""), "The document has no text"),
        ((model, "@nowhere.txt", "b"), "The query in nowhere.txt cannot be read: No such file"),
        ((model, "a", f"@{tmp_path / 'bytes'}"), "it is not UTF-8 text"),
        ((model, "a", "b", "--query-length", "3"), "3 tokens is too short for queries"),
        ((model, "a", "b", "--prompt", "FiQA=x"), "No side is called"),
    ):
        code, _, err = said(*words)
        assert (code, told in err) == (2, True), (words, err)
    assert "takes a multi-vector (ColBERT) model" in said(dense, "a", "b")[2]


def test_the_sum_is_that_of_the_search(model: Path, said: Said) -> None:
    """The matrix makes the total again, as harness.search.maxsim sums it."""
    found = explained(said, model, QUERY, DOCUMENT, "--matrix", "--vectors", "float32")
    kept = [at for at, token in enumerate(found["document"]["tokens"]) if not token["skipped"]]
    products = np.array(found["matrix"], dtype=float)[:, kept].astype(np.float32)
    ours = TokenVectors(vectors=products, offsets=np.array([0, len(products)]))
    unit = np.eye(products.shape[1], dtype=np.float32)
    theirs = TokenVectors(vectors=unit, offsets=np.array([0, len(unit)]))
    assert float(compute_maxsim(ours, theirs)[0, 0]) == pytest.approx(found["total"], abs=1e-5)
