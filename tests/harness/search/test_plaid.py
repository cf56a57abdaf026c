"""Approximate search: its settings, its index on disk, its recall against exact search, and runs with it."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import usearch.index

import late_models
from fakes import artifact, task
from harness.cli import invoke
from harness.core import files
from harness.core.encoding import Encoding, LateInteraction, Plaid
from harness.core.errors import DataError, UsageError
from harness.core.keys import build_encoding_identity, build_evaluation_identity, digest, serialize_canonical
from harness.core.types import SuiteOptions
from harness.plan import catalog
from harness.results.audit import audit
from harness.search import plaid, plaid_index
from harness.search.maxsim import find_maxsim_top_k
from harness.search.plaid import (
    Corpus,
    Recall,
    compute_recall_shares,
    describe_index,
    format_index_option,
    parse_plaid,
    read_index_artifact,
    sample_queries,
)
from harness.search.plaid_index import ExactSearch, PlaidIndex
from harness.storage.vectors import EmbeddingCache, TokenVectors
from retrieval_data import lay_own

LATE = LateInteraction(
    query_length=8,
    document_length=20,
    expansion=True,
    attends_to_expansion=False,
    query_prefix="[Q] ",
    document_prefix="[D] ",
    skiplist=(),
    dimension=16,
)
ENCODING = Encoding(
    output="multivector",
    pooling="",
    normalize=True,
    max_length=20,
    similarity="maxsim",
    vectors="float16",
    late_interaction=LATE,
)


@pytest.fixture(autouse=True)
def _no_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    """fast-plaid looks for garbage a hundred times in an index, which takes long in a process of tests."""
    monkeypatch.setattr("gc.collect", lambda *_: 0)


GENEROUS = Plaid(nbits=8, n_ivf_probe=10_000, n_full_scores=4096)


def tokens(lengths: list[int], seed: int, dimension: int = 16) -> TokenVectors:
    """Texts of random token vectors of length 1, in float16."""
    vectors = np.random.default_rng(seed).normal(size=(sum(lengths), dimension))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    return TokenVectors(vectors=vectors.astype(np.float16), offsets=offsets)


def names(count: int) -> list[str]:
    return [f"text {number}" for number in range(count)]


def space_of(cache: Path, vectors: TokenVectors) -> EmbeddingCache:
    """A space of documents that are called by `names`."""
    identity = EmbeddingCache.build_space_identity(artifact(Path()), ENCODING, prompt="", role="document")
    content = EmbeddingCache.serialize_shard(EmbeddingCache.hash_texts(names(len(vectors))), vectors)
    EmbeddingCache.write_shard(cache, identity, content)
    return EmbeddingCache(cache, identity)


def exact(queries: TokenVectors, documents: TokenVectors, k: int) -> list[tuple[Any, Any]]:
    return list(
        find_maxsim_top_k(queries, lambda a, b: documents.take(np.arange(a, b)), documents.lengths, k=k)
    )


QUERIES = tokens([8] * 3, 10)


def opened(space: EmbeddingCache, count: int, cache: Path, settings: Plaid = GENEROUS) -> PlaidIndex:
    """The index of the first documents of a space, with the exact results of three queries."""
    index = PlaidIndex.locate_index(space, names(count), settings, cache=cache, device="cpu")
    exact = ExactSearch(QUERIES, space, names(3), device="cpu")
    assert index.ensure_complete(Corpus(space, names(count)), exact)
    return index


# Settings


def test_settings_are_typed_as_fast_plaid_names_them() -> None:
    assert parse_plaid("auto") is parse_plaid("exact") is None
    assert parse_plaid("pylate-script") == parse_plaid("plaid:top_k=20") == Plaid(top_k=20)
    assert parse_plaid("plaid") == Plaid()
    assert parse_plaid("plaid: nbits=2 , n_ivf_probe=16,seed=0") == Plaid(nbits=2, n_ivf_probe=16, seed=0)
    for settings in (Plaid(), Plaid(nbits=8, n_full_scores=100, seed=7, top_k=20)):
        assert parse_plaid(format_index_option(asdict(settings))) == settings
        assert describe_index(asdict(settings)).startswith(f"PLAID of {settings.nbits} bits")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("plaids", "Did you mean plaid?"),
        ("exact:nbits=4", "Did you mean"),
        ("plaid:nbit=4", "Did you mean nbits?"),
        ("plaid:nbits=3", "input should be 1, 2, 4 or 8"),
        ("plaid:nbits", "nbits of plaid has no value. Type e.g. plaid:nbits=VALUE"),
        ("plaid:nbits=x", "input should be 1, 2, 4 or 8"),
        ("plaid:n_ivf_probe=x", "input should be a valid integer"),
        ("plaid:n_ivf_probe=0", "greater than or equal to 1"),
        ("plaid:seed=-1", "greater than or equal to 0"),
        ("plaid:top_k=9", "greater than or equal to 10"),
        ("plaid:seed=1,seed=2", "given twice"),
    ],
)
def test_other_settings_are_refused(text: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_plaid(text)
    assert told in f"{caught.value.message} {caught.value.hint}"


def test_every_setting_is_in_the_key_and_none_in_that_of_the_vectors() -> None:
    def identity(how: Encoding) -> str:
        return digest(build_evaluation_identity(artifact(Path()), task(), how, seed=42))

    def vectors(how: Encoding) -> dict[str, object]:
        return EmbeddingCache.build_space_identity(artifact(Path()), how, prompt="", role="document")

    changed = [Plaid(), *(Plaid(**{f.name: 1 + (getattr(Plaid(), f.name) or 20)}) for f in fields(Plaid))]
    encodings = [ENCODING, *(replace(ENCODING, index=one) for one in changed)]
    assert len({identity(how) for how in encodings}) == len(fields(Plaid)) + 2
    assert all(vectors(how) == vectors(ENCODING) for how in encodings)
    assert "index" not in build_encoding_identity(ENCODING)
    written = build_encoding_identity(replace(ENCODING, index=Plaid()))["index"]
    assert serialize_canonical(written) == (
        '{"kmeans_niters":4,"max_points_per_centroid":256,"n_full_scores":8192,"n_ivf_probe":8,"nbits":4,"seed":42}'
    )


# The index


def test_a_generous_search_finds_what_exact_search_finds(tmp_path: Path) -> None:
    """Apart from documents whose scores are within the rounding of the index."""
    lengths = np.random.default_rng(1).integers(1, 20, 200).tolist()
    documents, queries = tokens(lengths, 2), tokens([8] * 12 + [5] * 4, 3)
    found = opened(space_of(tmp_path, documents), 200, tmp_path).search(queries, k=10, threads=1)
    truth = exact(queries, documents, 200)
    for (places, scores), (every, all_scores) in zip(found, truth, strict=True):
        known = dict(zip(every.tolist(), all_scores.tolist(), strict=True))
        assert scores == pytest.approx([known[place] for place in places], abs=0.1)
        assert min(known[place] for place in places) >= all_scores[9] - 0.2
        assert scores.tolist() == sorted(scores.tolist(), reverse=True)
    near = [places.tolist() for places, _ in found]
    assert np.mean(compute_recall_shares([every[:10].tolist() for every, _ in truth], near)) >= 0.95


def test_documents_without_a_vector_are_left_out(tmp_path: Path) -> None:
    documents, queries = tokens([0, 6, 0] * 20, 4), tokens([8, 8], 5)
    index = opened(space_of(tmp_path, documents), 60, tmp_path)
    assert index.places.tolist() == [*range(1, 60, 3)]
    for places, _ in index.search(queries, k=60, threads=1):
        assert {*places.tolist()} <= {*range(1, 60, 3)}
        assert len({*places.tolist()}) == len(places)


def test_an_index_is_made_once_and_serves_every_search(tmp_path: Path) -> None:
    space = space_of(tmp_path, tokens([5] * 60, 6))
    first = opened(space, 60, tmp_path)
    made = (first.folder / plaid.MANIFEST).stat().st_mtime_ns
    again = opened(space, 60, tmp_path, replace(GENEROUS, n_ivf_probe=2, n_full_scores=64))
    other = opened(space, 60, tmp_path, replace(GENEROUS, seed=1))
    fewer = opened(space, 59, tmp_path)
    assert first.folder == again.folder
    assert (again.folder / plaid.MANIFEST).stat().st_mtime_ns == made
    assert {*(tmp_path / "plaid").iterdir()} == {first.folder, other.folder, fewer.folder}
    assert first.nbytes > 0
    assert (first.tokens, len(first.places)) == (300, 60)


def test_one_seed_is_one_index_whatever_torch_drew_before(tmp_path: Path) -> None:
    import torch

    documents, queries, found = tokens([7] * 80, 7), tokens([8] * 5, 8), []
    for number, seed in enumerate((0, 0, 1)):
        torch.manual_seed(number)
        cache = tmp_path / str(number)
        state = torch.random.get_rng_state()
        index = opened(space_of(cache, documents), 80, cache, Plaid(nbits=1, n_ivf_probe=2, seed=seed))
        assert torch.equal(torch.random.get_rng_state(), state)
        found.append(
            [(at.tolist(), scores.tolist()) for at, scores in index.search(queries, k=10, threads=1)]
        )
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize("damage", ["bytes", "file", "manifest", "other"])
def test_a_broken_index_is_made_again(tmp_path: Path, damage: str) -> None:
    space = space_of(tmp_path, tokens([5] * 60, 9))
    index = opened(space, 60, tmp_path)
    before = [at.tolist() for at, _ in index.search(QUERIES, k=10, threads=1)]
    match damage:
        case "bytes":
            path = index.folder / "centroids.npy"
            content = bytearray(path.read_bytes())
            content[-1] ^= 1
            path.write_bytes(content)
        case "file":
            (index.folder / "ivf.npy").unlink()
        case "manifest":
            (index.folder / plaid.MANIFEST).unlink()
        case "other":
            other = opened(space, 60, tmp_path, replace(GENEROUS, seed=3))
            (index.folder / plaid.MANIFEST).write_bytes((other.folder / plaid.MANIFEST).read_bytes())
    found = audit(tmp_path / "results", tmp_path, repair=False)
    assert [(fault.area, fault.file) for fault in found.faults] == [("plaid", index.folder)]
    assert not index.is_there
    again = opened(space, 60, tmp_path)
    assert again.is_there
    assert [at.tolist() for at, _ in again.search(QUERIES, k=10, threads=1)] == before
    assert audit(tmp_path / "results", tmp_path).clean


def made_of_blocks(monkeypatch: pytest.MonkeyPatch, *, sample: int) -> None:
    """From now on a corpus has that sample, and blocks of 15 documents that are called by `names`."""
    monkeypatch.setattr(plaid_index, "BLOCK_CHARACTERS", 105)
    monkeypatch.setattr(plaid_index, "sample_size", lambda count: min(sample, count))


def contents(index: PlaidIndex) -> dict[str, bytes]:
    """The files of an index that the manifest names."""
    sums = json.loads((index.folder / plaid.MANIFEST).read_bytes())["files"]
    return {name: (index.folder / name).read_bytes() for name in sums}


@pytest.mark.parametrize("bits", [1, 4])
def test_two_indexes_of_a_sample_and_blocks_are_equal_byte_for_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bits: int
) -> None:
    made_of_blocks(monkeypatch, sample=40)
    lengths = np.random.default_rng(bits).integers(0, 20, 60).tolist()
    first, second = (
        opened(space_of(cache, tokens(lengths, bits)), 60, cache, Plaid(nbits=bits))
        for cache in (tmp_path / "first", tmp_path / "second")
    )
    assert contents(first) == contents(second)
    assert {"ivf.npy", "centroids.npy", "merged_codes.npy", "merged_residuals.npy"} <= contents(first).keys()
    assert sorted(first.places.tolist()) == np.flatnonzero(lengths).tolist()
    assert first.tokens == sum(lengths)


def test_one_thread_puts_centroids_into_the_graph_of_an_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two, indexes of the test above differed in one of ten builds."""
    threads, add = [], usearch.index.Index.add
    monkeypatch.setattr(
        usearch.index.Index, "add", lambda *args, **options: threads.append(options) or add(*args, **options)
    )
    made_of_blocks(monkeypatch, sample=40)
    opened(space_of(tmp_path, tokens([6] * 60, 1)), 60, tmp_path)
    assert threads
    assert all(options == {"threads": 1} for options in threads)


def test_documents_that_are_added_in_blocks_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are long, so that a centroid of the sample has several vectors, as in a large corpus."""
    documents, queries = tokens([0, 300, 200] * 20, 13), tokens([8] * 5, 14)
    made_of_blocks(monkeypatch, sample=40)
    index = opened(space_of(tmp_path, documents), 60, tmp_path)
    near, best = index.search(queries, k=10, threads=1), exact(queries, documents, 10)
    shares = compute_recall_shares([row.tolist() for row, _ in best], [row.tolist() for row, _ in near])
    assert np.mean(shares) >= 0.9


def test_exact_results_are_those_of_all_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made_of_blocks(monkeypatch, sample=40)
    documents = tokens([0, 6, 3] * 20, 13)
    index = opened(space_of(tmp_path, documents), 60, tmp_path)
    key = ExactSearch(QUERIES, space_of(tmp_path, documents), names(3), device="cpu").key
    assert index.read_exact_matches(key) == [places.tolist() for places, _ in exact(QUERIES, documents, 10)]
    assert index.read_exact_matches("0" * 64) is None
    index.locate_exact_file(key).write_bytes(
        index.locate_exact_file(key).read_bytes().replace(b"[[", b"[[1, ")
    )
    assert index.read_exact_matches(key) is None


class Killed(Corpus):
    """Documents whose vectors end with a kill after some blocks; `blocks` are the sizes of those given."""

    def __init__(self, space: EmbeddingCache, count: int, *, after: int) -> None:
        super().__init__(space, names(count))
        self.after, self.blocks = after, list[int]()

    def iter_part_vectors(self, parts: Sequence[Sequence[str]], use: str) -> Iterator[TokenVectors]:
        for part in super().iter_part_vectors(parts, use):
            if len(self.blocks) == self.after:
                raise KeyboardInterrupt
            self.blocks.append(len(part))
            yield part


@pytest.mark.parametrize("moment", ["blocks", "end", "other queries"])
def test_an_index_that_was_killed_in_the_making_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    made_of_blocks(monkeypatch, sample=40)
    documents, queries = tokens([5, 3, 0] * 20, 11), tokens([8] * 3, 12)
    whole = contents(opened(space_of(tmp_path / "whole", documents), 60, tmp_path / "whole"))
    space = space_of(tmp_path, documents)
    index = PlaidIndex.locate_index(space, names(60), GENEROUS, cache=tmp_path, device="cpu")
    search = ExactSearch(QUERIES, space, names(3), device="cpu")
    if moment == "other queries":
        opened(space, 60, tmp_path)
        search = ExactSearch(queries, space, names(4)[1:], device="cpu")

    def killed(*_: object) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)  # a killed process removes nothing
        if moment == "end":
            patch.setattr(files, "hash_file", killed)
        with pytest.raises(KeyboardInterrupt):
            index.ensure_complete(Killed(space, 60, after=1000 if moment == "end" else 2), search)
    assert index.is_there == (moment == "other queries")
    assert read_index_artifact(index.part) == artifact(Path()).key  # `harness cache prune` knows it
    assert audit(tmp_path / "results", tmp_path).clean
    assert index.ensure_complete(Killed(space, 60, after=1000), search)
    assert contents(index) == whole
    asked = queries if moment == "other queries" else QUERIES
    assert index.read_exact_matches(search.key) == [
        places.tolist() for places, _ in exact(asked, documents, 10)
    ]
    assert [*(tmp_path / "plaid").iterdir()] == [index.folder]


@pytest.mark.parametrize(
    ("told", "reason"), [("", "RuntimeError"), ("\n    no index on cuda:0\n", "no index on cuda:0")]
)
def test_an_error_of_fast_plaid_keeps_its_first_words(told: str, reason: str) -> None:
    with (
        pytest.raises(DataError, match=f"search these vectors: {reason}"),
        plaid_index._convert_plaid_errors("search"),
    ):
        raise RuntimeError(told)


def test_vectors_that_fast_plaid_cannot_index_are_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plaid_index, "LEAST_DOCUMENTS", 3)
    space = space_of(tmp_path, tokens([1] * 3, 12))
    with pytest.raises(DataError, match="fast-plaid failed to index"):
        opened(space, 3, tmp_path)
    assert [*(tmp_path / "plaid").iterdir()] == []


# The recall


@pytest.mark.parametrize(
    ("queries", "spread"), [(130, (9.5, 0.5)), (300, (19.0, 1.0)), (300, (3.0, 1.0)), (5000, (9.0, 1.0))]
)
def test_the_interval_holds_the_recall_of_all_queries(queries: int, spread: tuple[float, float]) -> None:
    """In 400 samples, of queries with a recall of their own."""
    rng = np.random.default_rng(queries)
    every = rng.binomial(10, rng.beta(*spread, queries)) / 10
    held = 0
    for _ in range(400):
        found = Recall.estimate_recall(rng.permutation(every)[:100].tolist(), queries)
        assert 0 <= found.low <= found.value <= found.high <= 1
        held += found.low <= every.mean() <= found.high
    assert held >= 0.93 * 400


def test_a_perfect_sample_does_not_promise_a_perfect_recall() -> None:
    found = Recall.estimate_recall([1.0] * 100, 10_000)
    assert (found.value, found.high) == (1.0, 1.0)
    assert found.low < 0.98
    whole = Recall.estimate_recall([1.0, 0.9], 2)
    assert whole.low == whole.value == whole.high == pytest.approx(0.95)
    assert "of all 2 queries" in whole.text


def test_a_sample_is_the_same_each_time() -> None:
    assert sample_queries(5).tolist() == [0, 1, 2, 3, 4]
    assert len({*sample_queries(1000).tolist()}) == plaid.SAMPLE
    assert sample_queries(1000).tolist() == sample_queries(1000).tolist()


# Runs

WORDS = ("river", "stone", "cloud", "engine", "letter", "garden", "music", "winter", "copper", "silver")

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def colbert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return late_models.save(tmp_path_factory.mktemp("late") / "tiny-colbert", document_length=60)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A retrieval task of 40 documents and 6 queries."""
    texts = [f"{WORDS[n % 10]} the {WORDS[n * 3 % 10]} on {WORDS[n * 7 % 10]}, {n}!" for n in range(40)]
    documents = [{"_id": f"d{n}", "title": "", "text": text} for n, text in enumerate(texts)]
    queries = [{"_id": f"q{n}", "text": f"{WORDS[n]} {WORDS[n * 3 % 10]}"} for n in range(6)]
    return lay_own(tmp_path / "own", documents, queries, [(f"q{n}", f"d{n}", 1) for n in range(6)])


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    places = ("--results", tmp_path / "results", "--cache", tmp_path / "cache")

    def run(*words: object) -> tuple[int, str, str]:
        own = places if words[0] == "run" else places[:2]
        code = invoke([str(word) for word in (*words, *own)])
        return (code, *capsys.readouterr())

    return run


def records(tmp_path: Path) -> list[dict[str, Any]]:
    paths = (tmp_path / "results" / "records").glob("tiny-colbert-*/notes/*.json")
    return [json.loads(path.read_text()) for path in sorted(paths, key=lambda path: path.stat().st_mtime)]


def test_a_run_marks_its_scores_and_records_the_recall(
    suite: Path, colbert: Path, tmp_path: Path, command: Command
) -> None:
    asked = ("run", "--model", colbert, "--suite", f"local:{suite}", "--offline", "--threads", "1")
    assert command(*asked)[0] == 0
    settings = "plaid:nbits=8,n_ivf_probe=999,n_full_scores=4096,seed=1"
    planned = command(*asked, "--index", settings, "--dry-run")[1]
    assert "its index takes an unknown time and about" in " ".join(planned.split())
    assert "of it in indexes" in " ".join(planned.split())
    costs = json.loads(command(*asked, "--index", settings, "--dry-run", "--json")[1])
    assert costs["plan"][0]["tokens"] == 0
    assert costs["plan"][0]["search"]["index_bytes"] == costs["disk"]["indexes"] > 0

    code, out, err = command(*asked, "--index", settings)
    assert code == 0, err
    assert "approximate" in out
    before, found = records(tmp_path)
    typed = {"nbits": 8, "n_ivf_probe": 999, "n_full_scores": 4096, "seed": 1}
    assert found["identity"]["encoding"]["index"] == {
        **typed,
        "kmeans_niters": 4,
        "max_points_per_centroid": 256,
    }
    assert found["provenance"]["texts_encoded"] == 0
    assert before["provenance"]["token_pairs"] > 0
    assert "index" not in before["provenance"]
    (search,) = found["provenance"]["index"]["searches"]
    assert (search["documents"], search["was_there"]) == (40, False)
    assert search["recall"]["low"] == search["recall"]["value"] == search["recall"]["high"]
    assert (search["recall"]["sampled"], search["recall"]["queries"]) == (6, 6)
    assert search["recall"]["value"] >= 0.9
    assert found["provenance"]["seconds"].keys() == {"encode", "index", "search", "recall", "score"}

    told = " ".join(command("show", "tiny-colbert", "--suite", f"local:{suite}")[1].split())
    assert "approximate: notes: PLAID of 8 bits with 999 probes" in told
    assert told.count("(of all 6 queries)") == 1  # the exact score is in a table of its own
    rows = json.loads(command("show", "tiny-colbert", "--json")[1])["records"]
    assert sorted(row["approximate"] for row in rows) == [False, True]

    assert command(*asked, "--index", settings.replace("999", "2"))[0] == 0
    assert records(tmp_path)[-1]["provenance"]["index"]["searches"][0]["was_there"]
    told = " ".join(command("show", "tiny-colbert")[1].split())
    assert {f"approximate: notes: PLAID of 8 bits with {n} probes" in told for n in (2, 999)} == {True}
    planned = json.loads(command(*asked, "--index", "plaid", "--dry-run", "--json")[1])["plan"]
    search = planned[0]["search"]
    assert search["index_seconds"] > 0
    assert planned[0]["seconds"] > search["seconds"] + search["index_seconds"]


def test_a_large_task_is_indexed_unless_an_exact_search_is_asked_for(
    suite: Path, colbert: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("run", "--model", colbert, "--suite", f"local:{suite}", "--offline", "--threads", "1")
    plan = json.loads(command(*asked, "--dry-run", "--json")[1])["plan"]
    pairs = plan[0]["search"]["pairs"]
    monkeypatch.setattr("harness.core.encoding.MOST_PAIRS", pairs)
    assert command(*asked)[0] == 0
    monkeypatch.setattr("harness.core.encoding.MOST_PAIRS", pairs - 1)
    planned = json.loads(command(*asked, "--dry-run", "--json")[1])
    assert planned["plan"][0]["search"]["index_bytes"] == planned["disk"]["indexes"] > 0
    code, out, err = command(*asked)
    assert code == 0, err
    assert "approximate" in out
    exact_one, indexed = records(tmp_path)
    assert "index" not in exact_one["identity"]
    assert indexed["identity"]["index"]["nbits"] == 4
    assert indexed["identity"]["encoding"] == exact_one["identity"]["encoding"]
    assert indexed["provenance"]["index"]["searches"][0]["documents"] == 40
    again = json.loads(command(*asked, "--index", "exact", "--dry-run", "--json")[1])["plan"]
    assert [one["key"] for one in again] == [exact_one["key"]]  # as before there was a limit
    assert command("show", "tiny-colbert", "--suite", f"local:{suite}")[1].count("16 dimensions") == 1


def test_the_tasks_that_are_indexed_by_default() -> None:
    """Of BEIR those of more than two million documents, by models as PyLate makes them."""
    tasks = catalog.open_suite("beir", SuiteOptions()).tasks
    late = replace(LATE, query_length=32, document_length=180, dimension=128)
    how = replace(ENCODING, late_interaction=late, max_length=180)
    assert {task.name for task in tasks if how.adapt_encoding(task).index} == {
        "ClimateFEVER",
        "DBPedia",
        "FEVER",
        "HotpotQA",
        "MSMARCO",
        "NQ",
    }
    odd = (
        replace(how, exact=True),
        replace(how, similarity="maxsim-pylate"),
        replace(how, late_interaction=replace(late, dimension=12)),
    )
    assert not any(one.adapt_encoding(task).index for one in odd for task in tasks)


def scores(record: dict[str, Any]) -> Any:
    (search,) = record["provenance"]["index"]["searches"]
    return record["scores"], search["recall"], search["tokens"], search["documents"]


@pytest.mark.parametrize("sample", [30, 40])
def test_a_corpus_above_the_limit_is_not_kept_and_has_the_same_scores(
    suite: Path,
    colbert: Path,
    tmp_path: Path,
    command: Command,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    sample: int,
) -> None:
    """Of a corpus of 40 documents with a sample of 30, or of all."""
    made_of_blocks(monkeypatch, sample=sample)
    asked = ("run", "--model", colbert, "--suite", f"local:{suite}", "--offline", "--threads", "1")
    own = [str(word) for word in (*asked, "--results", tmp_path / "kept", "--cache", tmp_path / "kept-cache")]
    assert invoke([*own, "--index", "plaid:nbits=2,n_ivf_probe=2"]) == 0
    (path,) = (tmp_path / "kept" / "records").glob("tiny-colbert-*/notes/*.json")
    kept = json.loads(path.read_text())
    assert kept["provenance"]["index"]["searches"][0]["vectors_kept"]
    capsys.readouterr()

    little = (*asked, "--keep-vectors", "1e-6", "--index")
    told = " ".join(command(*little, "plaid:nbits=2,n_ivf_probe=2", "--dry-run")[1].split())
    assert "vectors go into it as they are encoded and are not kept" in told
    assert "Indexes take about" in told
    assert "the vectors of notes are not kept" in told
    disk = json.loads(command(*little, "plaid:nbits=2,n_ivf_probe=2", "--dry-run", "--json")[1])["disk"]
    assert (disk["passing"], disk["texts"]) == (["notes"], 0)
    assert disk["bytes"] == disk["indexes"] > 0
    code, _, err = command(*little, "plaid:nbits=2,n_ivf_probe=2")
    assert code == 0, err
    assert "are not kept: they are encoded into the index" in " ".join(err.split())
    (found,) = records(tmp_path)
    assert scores(found) == scores(kept)
    assert found["key"] == kept["key"]
    assert found["provenance"]["texts_encoded"] == kept["provenance"]["texts_encoded"] == 46
    assert not found["provenance"]["index"]["searches"][0]["vectors_kept"]
    assert any("not kept" in note for note in found["provenance"]["notes"])
    (space,) = (tmp_path / "cache" / "vectors").glob("*/*")
    assert json.loads((space / "space.json").read_text())["role"] == "query"
    (folder,) = (tmp_path / "cache" / "plaid").iterdir()
    assert folder.suffix == ""

    again = (*little, "plaid:nbits=2,n_ivf_probe=5")
    assert json.loads(command(*again, "--dry-run", "--json")[1])["plan"][0]["texts"] == 0
    assert command(*again)[0] == 0
    assert records(tmp_path)[-1]["provenance"]["texts_encoded"] == 0
    assert records(tmp_path)[-1]["provenance"]["index"]["searches"][0]["was_there"]
    other = (*little, "plaid:nbits=2,seed=3", "--dry-run", "--json")
    assert json.loads(command(*other)[1])["plan"][0]["texts"] == 46


def test_other_queries_of_a_corpus_that_was_not_kept_are_measured_by_encoding_it_again(
    suite: Path, colbert: Path, tmp_path: Path, command: Command
) -> None:
    asked = ("run", "--model", colbert, "--suite", f"local:{suite}", "--offline", "--index", "plaid")
    few = (*asked, "--keep-vectors", "0")
    assert command(*few)[0] == 0
    (suite / "queries.jsonl").write_text(
        "".join(json.dumps({"_id": f"q{n}", "text": f"the {WORDS[n]}"}) + "\n" for n in range(6))
    )
    code, _, err = command(*few)
    assert code == 0, err
    assert "encoded again, for the recall of other queries" in " ".join(err.split())
    first, second = (record["provenance"]["index"]["searches"][0] for record in records(tmp_path))
    assert (first["was_there"], second["was_there"]) == (False, True)
    assert second["recall"]["sampled"] == 6
    assert command(*asked, "--force")[0] == 0  # the exact results are beside the index now
    assert records(tmp_path)[-1]["provenance"]["texts_encoded"] == 0


def test_a_run_that_ends_goes_on_with_the_index_that_is_there(
    suite: Path, colbert: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> Any:
        raise KeyboardInterrupt

    asked = ("run", "--model", colbert, "--suite", f"local:{suite}", "--offline", "--index", "plaid")
    monkeypatch.setattr(PlaidIndex, "search", failing)
    assert command(*asked)[0] != 0
    monkeypatch.undo()
    assert command(*asked)[0] == 0
    (found,) = records(tmp_path)
    assert found["provenance"]["texts_encoded"] == 0
    assert found["provenance"]["index"]["searches"][0]["was_there"]


@pytest.mark.parametrize("name", ["centroids.npy", "exact.*.json"])
def test_a_damaged_index_is_noted_and_made_again(
    suite: Path, colbert: Path, tmp_path: Path, command: Command, name: str
) -> None:
    asked = (
        "run",
        "--model",
        colbert,
        "--suite",
        f"local:{suite}",
        "--offline",
        "--index",
        "plaid",
        "--force",
    )
    assert "is damaged:" not in "".join(command(*asked)[1:])
    (path,) = tmp_path.glob(f"**/plaid/*/{name}")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    text = " ".join("".join(command(*asked)[1:]).split())
    assert text.count("is damaged:") == 1
    assert "is damaged:" not in "".join(command(*asked)[1:])


def test_the_cache_lists_and_prunes_indexes(
    suite: Path, colbert: Path, tmp_path: Path, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("run", "--model", colbert, "--suite", f"local:{suite}", "--offline", "--index", "plaid")
    assert command(*asked)[0] == 0
    assert invoke(["cache", "size", "--json", "--cache", str(tmp_path / "cache")]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"]["plaid"] > 0
    key = records(tmp_path)[0]["model"]["artifact"]
    prune = ["cache", "prune", "--model", key[:12], "--cache", str(tmp_path / "cache")]
    assert invoke(prune) == 0
    assert "Removed 3 folders" in capsys.readouterr().out  # two sides and an index
    assert command(*asked, "--force", "--drop-vectors")[0] == 0
    assert [*(tmp_path / "cache" / "plaid").iterdir()] == []


def test_few_documents_are_searched_exactly(
    suite: Path, colbert: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plaid_index, "LEAST_DOCUMENTS", 41)
    code, out, _ = command(
        "run", "--model", colbert, "--suite", f"local:{suite}", "--offline", "--index", "plaid"
    )
    assert code == 0
    assert "approximate" not in out
    assert "index" not in records(tmp_path)[0]["provenance"]


def test_given_candidates_are_put_in_order_exactly(colbert: Path, tmp_path: Path) -> None:
    from harness.core.encoding import Settings
    from harness.core.types import Artifact
    from harness.encoder.folder.description import compute_folder_identity, describe
    from harness.encoder.resolved_encoding import resolve_encoding
    from harness.jobs.context import JobContext, WorkerLimits
    from harness.jobs.maxsim import MaxSimRanker

    key, weights, _ = compute_folder_identity(colbert)
    model = Artifact(name="late", source="late", folder=colbert, key=key, weights=weights)
    context = JobContext(device="cpu", cache=tmp_path / "cache", emit=lambda _: None, limits=WorkerLimits())
    texts, found = [f"{word} on the {WORDS[n - 1]}" for n, word in enumerate(WORDS)], []
    for index in ("exact", "plaid:nbits=1"):
        how = resolve_encoding(describe(colbert), Settings(index=index))
        ranker = MaxSimRanker(context, model, how, task())
        ((places, scores),) = ranker.rank(["river stone"], texts, k=1, candidates=[[4, 1, 9]])
        found.append((places.tolist(), scores.tolist()))
        assert ranker.searches == []
    assert found[0] == found[1]
    assert not (tmp_path / "cache" / "plaid").exists()


def test_a_plan_says_where_an_exact_search_is_long(
    suite: Path, colbert: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.results.cost import encoding as cost

    asked = ("run", "--model", colbert, "--suite", f"local:{suite}", "--offline", "--dry-run")
    assert "--index plaid" not in command(*asked)[1]
    monkeypatch.setattr(cost, "LONG", 1e-6)
    told = " ".join(command(*asked)[1].split())
    assert "the exact search for 6 queries compares" in told
    assert "--index plaid is approximate, and its recall is measured" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--index", "plaid:nbit=2"], "Did you mean nbits?"),
        (["--index", "hnsw"], "There is: auto, exact, plaid, pylate-script"),
        (["--index", "plaid", "--similarity", "maxsim-pylate"], "which an index does not"),
        (["--index", "plaid", "--devices", "mps"], "mps"),
    ],
)
def test_misuse_is_one_clear_error(
    words: list[str], told: str, suite: Path, colbert: Path, command: Command
) -> None:
    code, _, err = command("run", "--model", colbert, "--suite", f"local:{suite}", "--offline", *words)
    assert code == 2
    assert told in " ".join(err.split())
    assert "Traceback" not in err


def test_a_model_with_one_vector_for_each_text_has_no_index(
    suite: Path, command: Command, tmp_path: Path
) -> None:
    import tiny

    folder = tiny.folder(tiny.families()["bert"], tmp_path / "dense")
    code, _, err = command(
        "run", "--model", folder, "--suite", f"local:{suite}", "--offline", "--index", "plaid"
    )
    assert code == 2
    assert "--index plaid searches vectors of tokens" in " ".join(err.split())


def test_without_fast_plaid_a_run_says_what_to_install(
    suite: Path, colbert: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "fast_plaid", None)
    monkeypatch.setitem(sys.modules, "fast_plaid.search", None)
    asked = ("run", "--model", colbert, "--suite", f"local:{suite}", "--offline", "--index", "plaid")
    code, _, err = command(*asked)
    assert code == 2
    assert "pip install 'encoder-harness[colbert]'" in " ".join(err.split())
    assert command(*asked, "--dry-run")[0] == 2
    with pytest.raises(UsageError, match="on a CPU or on CUDA, not on mps"):
        plaid.require_library(["mps"])
