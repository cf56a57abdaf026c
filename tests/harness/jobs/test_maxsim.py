"""Runs of multi-vector (ColBERT) models: PyLate's vectors and a loop over them are the truth."""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import late_models
from fakes import task
from harness.core.encoding import Settings
from harness.core.keys import build_evaluation_identity
from harness.core.types import Artifact, SuiteOptions
from harness.encoder.folder.description import compute_folder_identity, describe
from harness.encoder.resolved_encoding import resolve_encoding
from harness.jobs.context import Event, JobContext, WorkerLimits
from harness.jobs.maxsim import MaxSimRanker
from harness.plan import catalog
from harness.storage.vectors import EmbeddingCache
from retrieval_data import lay_own

WORDS = ("river", "stone", "cloud", "engine", "letter", "garden", "music", "winter", "copper", "silver")
DOCUMENTS = [
    {"_id": f"d{n}", "title": WORDS[n % 10], "text": f"the {WORDS[n * 3 % 10]} on {WORDS[n * 7 % 10]}, {n}!"}
    for n in range(30)
]
QUERIES = [{"_id": f"q{n}", "text": f"{WORDS[n]} {WORDS[n * 3 % 10]}"} for n in range(8)]
JUDGED = [(f"q{n}", f"d{n + step}") for n in range(8) for step in (0, 10)]

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def colbert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose documents are not cut: cut ones would be equal, and tie."""
    return late_models.save(tmp_path_factory.mktemp("late") / "tiny-colbert", document_length=60)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A retrieval task, and pairs of texts."""
    judged = [(query, document, 1) for query, document in JUDGED]
    return lay_own(tmp_path / "own", DOCUMENTS, QUERIES, judged, pairs=20)


def record_of(tmp_path: Path) -> dict[str, Any]:
    (path,) = (tmp_path / "results" / "records").glob("tiny-colbert-*/notes/*.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def ndcg(folder: Path) -> float:
    """The mean nDCG at 10 from PyLate's vectors, by the definition."""
    model = late_models.library(folder)
    queries = model.encode([query["text"] for query in QUERIES], is_query=True)
    texts = [f"{one['title']} {one['text']}" for one in DOCUMENTS]
    documents = [one.astype(np.float16).astype(np.float64) for one in model.encode(texts, is_query=False)]
    found = []
    for query, given in zip(QUERIES, queries, strict=True):
        own = given.astype(np.float16).astype(np.float64)
        scores = [(own @ document.T).max(axis=1).sum() for document in documents]
        order = np.argsort(-np.array(scores), kind="stable")[:10]
        relevant = {document for name, document in JUDGED if name == query["_id"]}
        gains = [float(DOCUMENTS[at]["_id"] in relevant) for at in order]
        best = sum(1 / np.log2(rank + 2) for rank in range(len(relevant)))
        found.append(sum(gain / np.log2(rank + 2) for rank, gain in enumerate(gains)) / best)
    return float(np.mean(found))


def test_a_run_searches_shows_and_exports(
    suite: Path, colbert: Path, tmp_path: Path, command: Command
) -> None:
    asked = ("run", "--model", colbert, "--suite", f"local:{suite}", "--offline", "--threads", "1")
    planned = json.loads(command(*asked, "--dry-run", "--json")[1])
    assert [line["state"] for line in planned["plan"]] == ["to do", "cannot run"]
    reason = "gives a vector for each token; tasks other than retrieval need a vector for each text"
    assert reason in planned["plan"][1]["error"]

    code, _, err = command(*asked)
    assert code == 1
    assert reason in " ".join(err.split())
    assert "16 dimensions for each token, queries of 12 tokens, documents of 60" in " ".join(err.split())
    record = record_of(tmp_path)
    assert record["main_score"] == pytest.approx(ndcg(colbert), abs=1e-5)
    encoding = record["identity"]["encoding"]
    assert (encoding["output"], encoding["similarity"]) == ("multivector", "maxsim")
    assert encoding["late_interaction"]["query_length"] == 12
    assert record["model"]["dimension"] == 16
    ran = record["provenance"]
    assert ran["gate"] == {"passed": True, "failures": []}
    assert (ran["texts"], ran["texts_encoded"]) == (38, 38)
    assert ran["seconds"].keys() == {"encode", "search", "score"}
    assert record["examples"]["rows"] == len(QUERIES)
    assert (record["run"]["rows"], record["run"]["depth"]) == (8 * 30, 30)
    shown = command("show", colbert, "--suite", f"local:{suite}")[1]
    assert f"{100 * record['main_score']:.2f}" in shown
    code, out, err = command(
        "export", "tiny-colbert", "--trec", tmp_path / "trec", "--suite", f"local:{suite}"
    )
    assert code == 0, err
    assert "run" in out


def test_texts_are_encoded_once_for_both_rules(
    suite: Path, colbert: Path, tmp_path: Path, command: Command
) -> None:
    asked = ("run", "--model", colbert, "--suite", f"local:{suite}", "--tasks", "notes", "--offline")
    assert command(*asked)[0] == 0
    first = record_of(tmp_path)
    assert command(*asked, "--similarity", "maxsim-pylate")[0] == 0
    paths = (tmp_path / "results" / "records").glob("tiny-colbert-*/notes/*.json")
    (second,) = (one for one in map(json.loads, (p.read_text() for p in paths)) if one["key"] != first["key"])
    assert second["provenance"]["texts_encoded"] == 0
    assert second["identity"]["encoding"]["similarity"] == "maxsim-pylate"


def test_a_run_that_ends_goes_on_with_the_vectors_that_are_there(
    suite: Path, colbert: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search fails after the texts are encoded; the next run encodes none and has the same score."""
    from harness.search import maxsim

    def failing(*_: object, **__: object) -> Any:
        raise KeyboardInterrupt

    asked = ("run", "--model", colbert, "--suite", f"local:{suite}", "--tasks", "notes", "--offline")
    monkeypatch.setattr(maxsim, "find_maxsim_top_k", failing)
    assert command(*asked)[0] != 0
    monkeypatch.undo()
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    assert command(*asked)[0] == 0
    record = record_of(tmp_path)
    assert record["provenance"]["texts_encoded"] == 0
    assert record["main_score"] == pytest.approx(ndcg(colbert), abs=1e-5)


def new_ranker(folder: Path, cache: Path, **settings: Any) -> Any:
    key, weights, _ = compute_folder_identity(folder)
    artifact = Artifact(name="late", source="late", folder=folder, key=key, weights=weights)

    def write(event: Event) -> None:
        if event.kind == "vectors":
            EmbeddingCache.write_shard(cache, event.space, event.content)

    context = JobContext(device="cpu", cache=cache, emit=write, limits=WorkerLimits())
    return MaxSimRanker(context, artifact, resolve_encoding(describe(folder), Settings(**settings)), task())


def test_notes_on_texts_do_not_depend_on_what_is_cached(tmp_path: Path) -> None:
    words = [*string.punctuation, "[CLS]", "[SEP]", "[D] "]
    model = late_models.save(tmp_path / "model", skiplist_words=words, document_length=60)
    asked = ["river", "river stone cloud engine", "stone garden music winter"]
    lengths = [len(late_models.library(model).tokenizer(one)["input_ids"]) + 1 for one in asked]
    cut = sum(length > min(lengths) for length in lengths)
    told = [
        f"{cut} of 3 queries have more than {min(lengths)} tokens and were cut",
        "2 of 30 texts (document) have no token with a vector",
    ]
    texts = ["...", "?! :", *(one["text"] for one in DOCUMENTS[2:])]
    for encoded in (33, 0):
        ranker = new_ranker(model, tmp_path / "cache", query_length=min(lengths))
        ranker.rank(asked, texts, k=10)
        assert ranker.encoded.texts == encoded
        assert ranker.collect_text_notes() == told


def test_reranking_puts_the_given_documents_in_order(colbert: Path, tmp_path: Path) -> None:
    ranker = new_ranker(colbert, tmp_path / "cache")
    texts = [one["text"] for one in DOCUMENTS]
    whole = ranker.rank(["river stone"], texts, k=30)
    (places, scores), (none, _) = ranker.rank(
        ["river stone", "cloud"], texts, k=1, candidates=[[4, 1, 9], []]
    )
    known = dict(zip(whole[0][0].tolist(), whole[0][1].tolist(), strict=True))
    assert sorted(places.tolist()) == [1, 4, 9]
    assert scores == pytest.approx(sorted((known[at] for at in (4, 1, 9)), reverse=True), abs=1e-6)
    assert none.tolist() == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--tasks", "similar"], "has no retrieval task"),
        (["--pooling", "mean"], "nothing for --pooling to change"),
        (["--similarity", "dot"], "Choose one of maxsim, maxsim-pylate"),
        (["--query-length", "99"], "positions"),
        (["--recipe", "simcse"], "simcse does not train such a model"),
        (["--recipe", "glue-quick", "--suite", "glue"], "glue-quick does not train such a model"),
    ],
)
def test_misuse_is_one_clear_error(
    words: list[str], told: str, suite: Path, colbert: Path, command: Command
) -> None:
    code, _, err = command("run", "--model", colbert, "--suite", f"local:{suite}", "--offline", *words)
    assert code == 2
    assert told in " ".join(err.split())
    assert "Traceback" not in err


def test_queries_of_beir_are_as_long_as_in_pylates_script(tmp_path: Path) -> None:
    """Lengths typed from examples/evaluation/beir_dataset.py of PyLate."""
    folder = late_models.save(tmp_path / "model", query_length=32, document_length=40)
    typed = {"SciFact": 48, "TRECCOVID": 48, "SCIDOCS": 48, "ArguAna": 64, "ClimateFEVER": 64}
    opened = catalog.open_suite("beir", SuiteOptions())
    tasks = {task.name: task for task in opened.tasks}
    artifact = Artifact(name="late", source=str(folder), folder=folder, key="a" * 64, weights="b" * 64)

    def length(name: str, **settings: Any) -> tuple[int, int | None]:
        """The tokens of a query of a task, and those that its key names beside the encoding."""
        encoding = resolve_encoding(describe(folder), Settings(**settings))
        late = encoding.adapt_encoding(tasks[name]).late_interaction
        assert late is not None
        own = build_evaluation_identity(artifact, tasks[name], encoding, seed=42).get("query_length")
        return late.query_length, own

    assert {name: length(name)[0] for name in tasks} == {name: typed.get(name, 32) for name in tasks}
    assert (length("ArguAna"), length("FiQA2018")) == ((64, 64), (32, None))
    assert length("ArguAna", query_length=40) == (40, None)
    longer = late_models.save(tmp_path / "longer", query_length=60, document_length=40)
    late = resolve_encoding(describe(longer), Settings()).adapt_encoding(tasks["SciFact"]).late_interaction
    assert late is not None
    assert late.query_length == 60
