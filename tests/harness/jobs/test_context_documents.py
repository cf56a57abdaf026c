"""Context documents of a task: how they are drawn, and what a run makes of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tiny
import two_stage_models
from harness.core.encoding import ContextChoice, ContextDraw, Encoding
from harness.core.errors import DataError
from harness.core.keys import digest
from harness.core.types import SIDES, Data, Task
from harness.encoder.two_stage_settings import PREFIXES
from harness.jobs.context import NULL, ContextDocuments
from retrieval_data import lay_own

WORDS = ("river", "stone", "cloud", "engine", "letter", "garden", "music", "winter", "copper", "silver")
TEXTS = [f"the {WORDS[n * 3 % 10]} on {WORDS[n * 7 % 10]}, {n}" for n in range(20)]
QUERIES = [f"{WORDS[n]} {WORDS[n * 3 % 10]}" for n in range(6)]
JUDGED = [(n, n + step) for n in range(6) for step in (0, 10)]

Command = Callable[..., tuple[int, str, str]]


@dataclass(frozen=True, kw_only=True)
class Texts:
    """A source that names the texts of its tasks, if there are any."""

    texts: tuple[Any, ...] | None
    scoring: str = "fake 1"

    def corpus(self, task: Task, *, seed: int, data: Path | None) -> Sequence[Any] | None:
        return self.texts


def drawn(
    texts: Sequence[Any] | None, *, size: int = 5, documents: ContextChoice = "task", seed: int = 42
) -> ContextDocuments:
    source: Any = Texts(texts=None if texts is None else tuple(texts))
    task = Task(
        name="notes",
        type="Retrieval",
        metric="ndcg_at_10",
        splits=("test",),
        data=Data(),
        source=source,
        roles=SIDES,
    )
    encoding = Encoding(
        pooling="own",
        normalize=False,
        max_length=24,
        prompts=tuple(sorted(PREFIXES.items())),
        context=ContextDraw(size=size, documents=documents, seed=seed),
    )
    found = ContextDocuments.draw_task_documents(task, encoding, seed=42, data=None)
    assert found is not None
    assert (
        ContextDocuments.draw_task_documents(task, replace(encoding, context=None), seed=42, data=None)
        is None
    )
    return found


def test_a_draw_has_each_text_once_and_follows_from_its_seed() -> None:
    found = drawn(TEXTS + TEXTS)
    assert len({*found.texts}) == 5
    assert {*found.texts} <= {*TEXTS}
    assert (found.prompt, found.corpus, found.notes) == ("search_document: ", 20, ())
    assert drawn(TEXTS[::-1]).digest == found.digest, "the order of the data changes nothing"
    assert drawn(TEXTS, seed=43).digest != found.digest
    counts = np.zeros(20)
    for seed in range(400):
        counts[[TEXTS.index(text) for text in drawn(TEXTS, seed=seed).texts]] += 1
    assert (np.abs(counts - 100) < 5 * np.sqrt(400 * 0.25 * 0.75)).all(), "every text is as likely"


def test_with_replacement_a_text_may_come_twice() -> None:
    found = drawn(TEXTS, size=20, documents="task-with-replacement")
    assert {*found.texts} <= {*TEXTS}
    assert len(found.texts) == 20 > len({*found.texts})
    again = drawn(TEXTS, size=20, documents="task-with-replacement", seed=43)
    assert again.digest != found.digest


def test_a_smaller_corpus_is_repeated_whole() -> None:
    found = drawn([*TEXTS[:3], "", None, "  "], size=8)
    assert {text: found.texts.count(text) for text in TEXTS[:3]} in (
        {a: 3, b: 3, c: 2} for a, b, c in (TEXTS[:3], TEXTS[1:3] + TEXTS[:1], [TEXTS[0], TEXTS[2], TEXTS[1]])
    )
    assert found.texts[:3] == found.texts[3:6]
    assert found.notes == (
        "the context repeats the 3 different texts of the task, because it has 8 documents",
    )


def test_without_a_corpus_the_null_context_stands_in() -> None:
    found = drawn(None)
    assert (found.digest, found.texts) == (NULL, ())
    assert found.notes == ("the task names no texts to draw a context from: the null context stands in",)
    assert drawn(TEXTS, documents="null").digest == NULL
    assert drawn(TEXTS, documents="null").notes == ()


def test_a_corpus_without_a_text() -> None:
    with pytest.raises(DataError, match="notes has no text to draw context documents from"):
        drawn(["", None, 3])


# Runs


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_stage_models.save(tmp_path_factory.mktemp("two") / "tiny-cde", length=50, size=4, prompts=2)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A retrieval task, and pairs of texts."""
    documents, queries = (
        [{"_id": f"{side}{n}", "text": text} for n, text in enumerate(texts)]
        for side, texts in (("c", TEXTS), ("q", QUERIES))
    )
    judged = [(f"q{query}", f"c{document}", 1) for query, document in JUDGED]
    return lay_own(tmp_path / "own", documents, queries, judged, pairs=3)


def records(tmp_path: Path, task: str) -> list[dict[str, Any]]:
    """The records of a task, by the seed of their context."""
    paths = (tmp_path / "results" / "records").glob(f"tiny-cde-*/{task}/*.json")
    found = [json.loads(path.read_text()) for path in paths]
    return sorted(found, key=lambda one: int(one["identity"]["encoding"]["context"]["seed"]))


def ndcg(folder: Path, documents: Sequence[str] | None) -> float:
    """The mean nDCG at 10 by the definition, from the vectors of the library."""
    library = tiny.library(folder)
    if documents is not None:
        features = library[0].tokenize_context([f"search_document: {text}" for text in documents])
        with torch.no_grad():
            library[0].context = library[0].compute_context_vectors(features)
    sides = [
        library.encode([f"search_{side}: {text}" for text in texts], normalize_embeddings=True)
        for side, texts in (("query", QUERIES), ("document", TEXTS))
    ]
    found = []
    for query, scores in enumerate(sides[0] @ sides[1].T):
        order = np.argsort(-scores, kind="stable")[:10].tolist()
        gains = [float((query, at) in JUDGED) for at in order]
        best = sum(1 / np.log2(rank + 2) for rank in range(2))
        found.append(sum(gain / np.log2(rank + 2) for rank, gain in enumerate(gains)) / best)
    return float(np.mean(found))


def test_a_run_over_context_seeds(suite: Path, model: Path, tmp_path: Path, command: Command) -> None:
    asked = ("run", "--model", model, "--suite", f"local:{suite}", "--offline", "--threads", "1")
    planned = json.loads(command(*asked, "--context-seeds", "2", "--dry-run", "--json")[1])
    assert [line["state"] for line in planned["plan"]] == ["to do"] * 4
    code, out, err = command(*asked, "--context-seeds", "2")
    assert code == 0, err
    assert "tiny-cde (2 contexts)" in out
    assert "over the context seeds 42, 43" in " ".join(out.split())
    assert re.search(r"^Busy with encoding or training: cpu \d+ % of \d", out, re.MULTILINE)
    found = records(tmp_path, "notes")
    assert len({one["key"] for one in found}) == 2
    for seed, record in zip((42, 43), found, strict=True):
        context = drawn(TEXTS, size=4, seed=seed)
        assert record["provenance"]["context"] == {
            "hash": digest({"prompt": "search_document: ", "texts": context.texts}),
            "documents": 4,
            "different": 4,
            "corpus": 20,
            "prompt": "search_document: ",
        }
        assert record["main_score"] == pytest.approx(ndcg(model, context.texts), abs=1e-5)
    (similar, _) = records(tmp_path, "similar")
    assert similar["provenance"]["context"]["prompt"] == "classification: "
    assert similar["provenance"]["context"]["corpus"] == 6
    again = command(*asked, "--context-seeds", "2")[1]
    assert "Encoded 0 texts" in again
    shown = command("show", model, "--suite", f"local:{suite}")[1]
    assert "4 context documents of the task, context seed 43" in " ".join(shown.split())


def test_the_null_context_and_replacement_are_other_scores(
    suite: Path, model: Path, tmp_path: Path, command: Command
) -> None:
    asked = ("run", "--model", model, "--suite", f"local:{suite}", "--tasks", "notes", "--offline")
    for choice in ("null", "task-with-replacement"):
        assert command(*asked, "--context", choice)[0] == 0
    by_choice = {
        one["identity"]["encoding"]["context"]["documents"]: one for one in records(tmp_path, "notes")
    }
    assert by_choice["null"]["main_score"] == pytest.approx(ndcg(model, None), abs=1e-5)
    assert by_choice["null"]["provenance"]["context"]["hash"] == "null"
    texts = drawn(TEXTS, size=4, documents="task-with-replacement").texts
    assert by_choice["task-with-replacement"]["main_score"] == pytest.approx(ndcg(model, texts), abs=1e-5)


@pytest.mark.parametrize(
    ("name", "words", "told"),
    [
        ("minilm", ["--context-seeds", "3"], "--context-seeds is for models whose vectors depend on context"),
        ("minilm", ["--context", "null"], "depend on no context documents"),
        ("", ["--context", "none"], "There is: task, task-with-replacement, null"),
        ("", ["--recipe", "simcse"], "tiny-cde has two stages, and simcse trains one backbone"),
        ("", ["--recipe", "colbert"], "tiny-cde has two stages, and colbert trains one backbone"),
    ],
)
def test_bad_requests(
    suite: Path, model: Path, command: Command, name: str, words: list[str], told: str
) -> None:
    data = ["--train-data", f"{suite}:test"] if "--recipe" in words else []
    asked = ("run", "--model", name or model, "--suite", f"local:{suite}", "--tasks", "notes", "--offline")
    code, _, err = command(*asked, *words, *data)
    assert code == 2
    assert told in " ".join(err.split())
