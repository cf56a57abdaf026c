"""`harness data score`: the choice of documents and their scores, compared with plain computations."""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import late_models
import tiny
from blocked import invoke_blocked
from fakes import gated
from harness.cli import invoke
from harness.commands import data
from harness.core import files

WORDS = tiny.WORDS
CORPUS = {f"d{n}": f"{WORDS[n % 10]} {WORDS[n * 3 % 10]} {WORDS[n * 7 % 10]} {n}" for n in range(24)}
QUERIES = {"one": "river stone", "two": "music winter garden", "three": "copper", "four": "hello cat"}
JUDGED = {"one": ("d1", "d11"), "two": ("d6",), "three": ("d8",), "four": ("d3",)}

Said = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.folder(tiny.families()["bert"], tmp_path_factory.mktemp("dense") / "tiny-dense")


@pytest.fixture(scope="module")
def colbert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return late_models.save(tmp_path_factory.mktemp("late") / "tiny-colbert", document_length=60)


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    """A folder in BEIR's layout."""
    folder = tmp_path / "own"
    (folder / "qrels").mkdir(parents=True)
    for name, texts in (("corpus", CORPUS), ("queries", QUERIES)):
        lines = (json.dumps({"_id": one, "title": "", "text": text}) for one, text in texts.items())
        (folder / f"{name}.jsonl").write_text("\n".join(lines))
    rows = [f"{query}\t{document}\t1" for query, found in JUDGED.items() for document in found]
    (folder / "qrels" / "train.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows, ""]))
    return folder


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    def run(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = invoke(["data", "score", *map(str, words), "--offline", "--threads", "1"])
        out = capsys.readouterr()
        assert "Traceback" not in out.err
        return code, out.out, out.err

    return run


def table(folder: Path, config: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(folder / config / "train-00000-of-00001.parquet").to_pylist()
    return rows


def made(folder: Path) -> dict[str, dict[str, float]]:
    """The scores by query and document, in the order of the file."""
    return {
        row["query_id"]: dict(zip(row["document_ids"], row["scores"], strict=True))
        for row in table(folder, "train")
    }


def bytes_of(folder: Path) -> dict[str, str]:
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in paths}


def cosines(model: Path, query: str, documents: Sequence[str]) -> list[float]:
    library = tiny.library(model)
    first, *others = library.encode([query, *documents], normalize_embeddings=True)
    return [float(first @ one) for one in others]


def by_words(query: str, corpus: Mapping[str, str]) -> dict[str, float]:
    """BM25 as Lucene has it, k1 1.5 and b 0.75, for texts without stop words and words with endings."""
    split = {name: [word for word in text.split() if len(word) > 1] for name, text in corpus.items()}
    mean = sum(map(len, split.values())) / len(split)

    def score(words: Sequence[str]) -> float:
        total = 0.0
        for word in query.split():
            holding = sum(word in other for other in split.values())
            rare = math.log(1 + (len(split) - holding + 0.5) / (holding + 0.5))
            count = words.count(word)
            total += rare * count / (count + 1.5 * (0.25 + 0.75 * len(words) / mean))
        return total

    return {name: score(words) for name, words in split.items()}


def pairs(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_candidates_are_those_of_bm25_and_scores_those_of_the_teacher(
    judged: Path, dense: Path, tmp_path: Path, said: Said
) -> None:
    asked = ("--teacher", dense, "--train-data", judged, "--documents", 5, "--output", tmp_path / "out")
    code, out, err = said(*asked)
    assert code == 0, err
    found = made(tmp_path / "out")
    assert list(found) == list(QUERIES)
    for query in ("one", "two", "three"):
        plain = by_words(QUERIES[query], CORPUS)
        rest = [name for name in CORPUS if name not in JUDGED[query] and plain[name] > 0]
        ranked = sorted(rest, key=lambda name: -round(plain[name], 5))
        assert list(found[query]) == [*JUDGED[query], *ranked][:5]
    for query, scores in found.items():
        direct = cosines(dense, QUERIES[query], [CORPUS[name] for name in scores])
        assert list(scores.values()) == pytest.approx(direct, abs=1e-5)
    assert found["four"].keys() > {"d3"}
    assert len(found["four"]) == 5
    assert "drawn by chance, as too few share a word with the query: 4 documents of 1 of 4 queries" in out
    assert "4 queries" in out
    facts = json.loads((tmp_path / "out" / "provenance.json").read_text())
    assert (facts["teacher"]["name"], facts["candidates"]["name"]) == ("tiny-dense", "bm25")
    assert facts["counts"]["scores"] == 20
    assert facts["identity"]["seed"] == 42
    assert str(tmp_path) not in json.dumps(facts)


def test_scores_of_token_vectors_are_pylates(judged: Path, colbert: Path, tmp_path: Path, said: Said) -> None:
    pytest.importorskip("pylate")
    from pylate.scores import colbert_scores

    asked = ("--teacher", colbert, "--train-data", judged, "--documents", 6, "--output", tmp_path / "out")
    assert said(*asked)[0] == 0
    library = late_models.library(colbert)
    for query, scores in made(tmp_path / "out").items():
        (ours,) = library.encode([QUERIES[query]], is_query=True, convert_to_tensor=True)
        for name, score in scores.items():
            (theirs,) = library.encode([CORPUS[name]], is_query=False, convert_to_tensor=True)
            direct = float(colbert_scores(ours[None], theirs[None])[0, 0])
            assert score == pytest.approx(direct, abs=2e-2)  # vectors are kept in float16
    exact = (*asked[:-1], tmp_path / "exact", "--vectors", "float32")
    assert said(*exact)[0] == 0
    for query, scores in made(tmp_path / "exact").items():
        (ours,) = library.encode([QUERIES[query]], is_query=True, convert_to_tensor=True)
        for name, score in scores.items():
            (theirs,) = library.encode([CORPUS[name]], is_query=False, convert_to_tensor=True)
            assert score == pytest.approx(float(colbert_scores(ours[None], theirs[None])[0, 0]), abs=1e-4)


def test_a_model_ranks_candidates(
    judged: Path, dense: Path, colbert: Path, tmp_path: Path, said: Said
) -> None:
    asked = ("--train-data", judged, "--documents", 5)
    code, _, err = said(*asked, "--teacher", dense, "--candidates", dense, "--output", tmp_path / "dense")
    assert code == 0, err
    for query, scores in made(tmp_path / "dense").items():
        direct = dict(zip(CORPUS, cosines(dense, QUERIES[query], list(CORPUS.values())), strict=True))
        rest = sorted((name for name in CORPUS if name not in JUDGED[query]), key=lambda name: -direct[name])
        assert list(scores) == [*JUDGED[query], *rest][:5]
    code, _, err = said(*asked, "--teacher", dense, "--candidates", colbert, "--output", tmp_path / "late")
    assert code == 0, err
    assert {len(scores) for scores in made(tmp_path / "late").values()} == {5}


def test_the_datasets_library_and_pylate_read_the_folder(
    judged: Path, dense: Path, tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    pytest.importorskip("pylate")
    from pylate.utils import KDProcessing

    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "prepared")
    asked = ("--teacher", dense, "--train-data", judged, "--documents", 4, "--output", tmp_path / "o")
    assert said(*asked)[0] == 0
    opened = {
        name: datasets.load_dataset(str(tmp_path / "o"), name) for name in ("train", "queries", "documents")
    }
    assert {name: list(one) for name, one in opened.items()} == {key: ["train"] for key in opened}
    train = opened["train"]["train"]
    features = {name: str(kind) for name, kind in train.features.items()}
    assert features["query_id"] == "Value('string')"
    assert features["document_ids"] == "List(Value('string'))"
    assert features["scores"] == "List(Value('float32'))"
    train.set_transform(
        KDProcessing(queries=opened["queries"], documents=opened["documents"], n_ways=4).transform
    )
    first = train[0]
    assert first["query"] == QUERIES["one"]
    assert first["documents"][:2] == [CORPUS["d1"], CORPUS["d11"]]
    assert len(first["documents"]) == len(first["scores"]) == 4


def test_a_second_run_writes_the_same_bytes(
    judged: Path, dense: Path, tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("--teacher", dense, "--train-data", judged, "--documents", 6, "--queries", 3)
    for name in ("first", "second"):
        assert said(*asked, "--output", tmp_path / name)[0] == 0
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "another"))
    assert said(*asked, "--output", tmp_path / "third")[0] == 0
    assert bytes_of(tmp_path / "first") == bytes_of(tmp_path / "second") == bytes_of(tmp_path / "third")
    assert len(made(tmp_path / "first")) == 3
    assert said(*asked, "--output", tmp_path / "other", "--seed", 7)[0] == 0
    assert bytes_of(tmp_path / "other") != bytes_of(tmp_path / "first")


def test_what_is_there_is_not_made_again_and_nothing_else_is_overwritten(
    judged: Path, dense: Path, tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "deep" / "out"
    asked = ("--teacher", dense, "--train-data", judged, "--documents", 5, "--output", output)
    output.mkdir(parents=True)
    first = json.loads(said(*asked, "--json")[1])
    assert (first["state"], first["counts"]["queries"]) == ("made", 4)
    before = bytes_of(output)
    with monkeypatch.context() as patch:
        patch.setattr(data, "make_scored_data", lambda *_, **__: pytest.fail("was made again"))
        assert json.loads(said(*asked, "--json")[1]) == {**first, "state": "there"}
        assert "was there" in said(*asked)[1]
        assert json.loads(said(*asked, "--dry-run", "--json")[1])["state"] == "there"
    code, _, err = said(*asked, "--documents", 4, "--seed", 1)
    assert code == 2
    assert "was made with another value of: documents, seed" in err
    assert bytes_of(output) == before
    (output / "README.md").write_text("mine")
    code, _, err = said(*asked)
    assert (code, "README.md has changed since it was written" in err) == (2, True)
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    code, _, err = said(*asked, "--output", other)
    assert (code, "is not a data set of this command" in err) == (2, True)
    assert [path.name for path in other.iterdir()] == ["thesis.txt"]
    with monkeypatch.context() as patch:
        patch.setattr(data, "make_scored_data", lambda *_, **__: pytest.fail("was begun"))
        code, _, err = said(*asked, "--output", other / "thesis.txt" / "out")
    assert (code, "Cannot write" in err or "is no folder" in err) == (1, True), err


def test_a_run_that_fails_leaves_no_folder_and_goes_on_with_its_vectors(
    judged: Path, dense: Path, tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a killed one has left in the cache is removed."""
    from harness.encoder import sanity
    from harness.encoder.engine import Encoder

    output = tmp_path / "to" / "out"
    asked = ("--teacher", dense, "--train-data", judged, "--documents", 5, "--output", output)
    asked = (*asked, "--cache", tmp_path / "cache")
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    left = tmp_path / "cache" / "vectors" / f".a.{files.get_host_name()}-{killed.pid}-00000000.tmp"
    left.parent.mkdir(parents=True)
    left.touch()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("pyarrow.parquet.write_table", full)
        code, _, err = said(*asked)
    assert (code, "the disk is full" in err) == (1, True)
    assert list((tmp_path / "to").iterdir()) == []
    assert not left.exists()
    with monkeypatch.context() as patch:
        # The check of the model encodes texts of its own.
        patch.setattr(sanity, "check_encoder", lambda *_, **__: gated())
        patch.setattr(sanity, "require_sane", lambda _: None)
        patch.setattr(Encoder, "encode", lambda *_, **__: pytest.fail("was encoded again"))
        assert said(*asked)[0] == 0


def test_pairs_of_a_file_are_their_own_corpus(dense: Path, tmp_path: Path, said: Said) -> None:
    rows = [
        {"query": "river", "positive": "stone river", "negative": "cloud river"},
        {"query": "engine", "positive": "letter engine", "negative": "stone river"},
        {"query": "river", "positive": "a river", "negative": "engine"},
    ]
    file = pairs(tmp_path / "p.jsonl", rows)
    asked = ("--teacher", dense, "--train-data", file, "--output", tmp_path / "o")
    code, out, err = said(*asked, "--documents", 8)
    assert code == 0, err
    found = made(tmp_path / "o")
    texts = {row["document_id"]: row["text"] for row in table(tmp_path / "o", "documents")}
    assert [texts[one] for one in found["q0"]][:3] == ["stone river", "a river", "cloud river"]
    assert sorted(texts.values()) == ["a river", "cloud river", "engine", "letter engine", "stone river"]
    assert next(texts[one] for one in found["q1"]) == "letter engine"
    assert "engine" not in [texts[one] for one in found["q1"]]  # it is the query itself
    assert "fewer than 8 documents: 2 of 2 queries, 4 at least (q0, q1)" in " ".join(out.split())
    counts = json.loads((tmp_path / "o" / "provenance.json").read_text())["counts"]
    assert counts == {
        **{"queries": 2, "documents": 5, "scores": 9, "fewer": 2},
        **{"drawn": 5, "constant": 0, "left_out": 0},
    }


def test_a_corpus_of_ones_own_is_chosen_from(judged: Path, dense: Path, tmp_path: Path, said: Said) -> None:
    file = pairs(tmp_path / "p.jsonl", [{"query": "river stone", "positive": CORPUS["d1"]}])
    asked = ("--teacher", dense, "--train-data", file, "--documents", 5, "--output", tmp_path / "o")
    assert said(*asked, "--corpus", judged)[0] == 0
    (scores,) = made(tmp_path / "o").values()
    assert next(iter(scores)) == "d1"
    assert set(scores) < set(CORPUS)
    code, _, err = said(*asked, "--corpus", tmp_path / "nowhere")
    assert (code, "No corpus" in err) == (2, True)


def test_min_max_goes_from_0_to_1_and_constant_scores_are_named(
    dense: Path, tmp_path: Path, said: Said
) -> None:
    """Cut after two words, three documents are one text to the teacher."""
    rows = [{"query": "copper", "positive": f"silver letter {word}"} for word in ("river", "stone", "cloud")]
    rows += [{"query": "winter", "positive": "winter music"}, {"query": "winter", "positive": "garden"}]
    file = pairs(tmp_path / "p.jsonl", rows)
    asked = ("--teacher", dense, "--train-data", file, "--documents", 3, "--max-length", 4)
    code, out, err = said(*asked, "--output", tmp_path / "none")
    assert code == 0, err
    line = "the same score for all documents: 1 of 2 queries, min–max scaling would divide 0 by 0 (q0)"
    assert line in " ".join(out.split())
    assert len(made(tmp_path / "none")) == 2
    told = json.loads(said(*asked, "--output", tmp_path / "scaled", "--scale", "min-max", "--json")[1])
    assert (told["constant"], told["left_out"], told["range"]) == (["q0"], ["q0"], [0.0, 1.0])
    (scores,) = made(tmp_path / "scaled").values()
    raw = np.array(list(made(tmp_path / "none")["q1"].values()))
    assert list(scores.values()) == pytest.approx((raw - raw.min()) / (raw.max() - raw.min()), abs=1e-5)
    only = pairs(tmp_path / "only.jsonl", rows[:3])
    code, _, err = said(*(*asked, "--train-data", only, "--scale", "min-max", "--output", tmp_path / "x"))
    assert (code, "No query has documents whose scores differ" in err) == (1, True)


def test_a_document_without_a_token_is_left_out(tmp_path: Path, said: Said) -> None:
    import string

    words = [*string.punctuation, "[CLS]", "[SEP]", "[D] "]
    model = late_models.save(tmp_path / "bare", skiplist_words=words)
    rows = [
        {"query": "river", "positive": "river stone"},
        {"query": "cloud", "positive": "!!!"},
        {"query": "stone", "positive": "cloud music"},
    ]
    file = pairs(tmp_path / "p.jsonl", rows)
    asked = ("--teacher", model, "--train-data", file, "--documents", 3, "--output", tmp_path / "o")
    code, out, err = said(*asked)
    assert code == 0, err
    told = " ".join(out.split())
    assert "no token with a vector: 3 documents of queries, left out" in told
    assert "no positive with a score: 1 of 3 queries, left out (q1)" in told
    assert {len(scores) for scores in made(tmp_path / "o").values()} == {2}
    assert all(np.isfinite(list(scores.values())).all() for scores in made(tmp_path / "o").values())


def test_what_cannot_be_scored_is_refused(judged: Path, dense: Path, tmp_path: Path, said: Said) -> None:
    scored = pairs(tmp_path / "s.jsonl", [{"sentence1": "a", "sentence2": "b", "score": 0.5}])
    plain = {"--teacher": dense, "--train-data": judged, "--output": tmp_path / "o"}
    for change, told in (
        ({"--teacher": "bm25"}, "its scores count the words"),
        ({"--teacher": tmp_path / "nowhere"}, "There is no folder"),
        ({"--candidates": "no-such-model"}, "No model is called"),
        ({"--candidates": "bm25:method=bm25+"}, "gives a score to documents without a word"),
        ({"--candidates": "bm25:k3=1"}, "has no setting 'k3'"),
        ({"--train-data": tmp_path / "nothing.jsonl"}, "No training data"),
        ({"--train-data": scored}, "has pairs with scores"),
        ({"--train-data": f"{judged}:test"}, "is called 'test'"),
        ({"--corpus": judged}, "has a corpus of its own"),
        ({"--documents": 1}, "must be 2 or more"),
        ({"--documents": "many"}, "'many' is not a valid integer"),
        ({"--queries": 0}, "0 is not in the range"),
        ({"--scale": "log"}, "'log' is not one of"),
        ({"--prompt": "Fiqa=x"}, "No side is called"),
        ({"--devices": "cuda:77"}, "has no device"),
        ({"--devices": "cpu,cuda"}, "works on one device"),
    ):
        words = [str(part) for pair in (plain | change).items() for part in pair]
        code, _, err = said(*words)
        assert (code, told in err) == (2, True), (change, err)
    assert not (tmp_path / "o").exists()


def test_a_prompt_is_part_of_what_is_scored(judged: Path, dense: Path, tmp_path: Path, said: Said) -> None:
    asked = ("--teacher", dense, "--train-data", judged, "--documents", 3, "--output", tmp_path / "o")
    assert said(*asked, "--prompt", "query=the ")[0] == 0
    scores = made(tmp_path / "o")["one"]
    direct = cosines(dense, f"the {QUERIES['one']}", [CORPUS[name] for name in scores])
    assert list(scores.values()) == pytest.approx(direct, abs=1e-5)


def test_a_plan_loads_no_model(judged: Path, tmp_path: Path) -> None:
    words = ["data", "score", "--teacher", "minilm", "--train-data", str(judged), "--dry-run", "--json"]
    ((code, out, err),) = invoke_blocked([[*words, "--output", tmp_path / "o", "--offline"]])
    assert code == 0, err
    told = json.loads(out)
    assert (told["state"], told["queries"], told["corpus"]) == ("to do", 4, 24)
    assert (told["scores"], told["texts"]) == (4 * 24, 28)
    assert not (tmp_path / "o").exists()
