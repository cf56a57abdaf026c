"""BM25 as a model: mteb's own BM25 and the formula are the truth."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiny
from blocked import invoke_blocked
from fakes import quiet, score
from harness.core.encoding import Ranking
from harness.core.errors import DataError, UsageError
from harness.core.keys import build_encoding_identity
from harness.core.types import SIDES, Data, Outcome, Task
from harness.jobs.ranking import CHARACTERS, LANGUAGES, BM25Ranker
from harness.plan.request import Request
from harness.search.bm25 import STOP_WORDS, describe_ranking, resolve_bm25
from retrieval_data import lay_own
from suites._content import Content, Document, Query, Retrieval
from suites._mteb.built import BuiltSource

# What a user types


@pytest.mark.parametrize(
    ("typed", "name", "ranking"),
    [
        ("bm25", "bm25", Ranking()),
        ("bm25:", "bm25", Ranking()),
        ("bm25:k1=1.50,stemmer=auto", "bm25", Ranking()),
        ("bm25:b=.4, k1=0.90", "bm25:k1=0.9,b=0.4", Ranking(k1=0.9, b=0.4)),
        ("bm25:delta=1,method=bm25+", "bm25:method=bm25+,delta=1", Ranking(method="bm25+", delta=1.0)),
        ("bm25:k1=-0", "bm25:k1=0", Ranking(k1=0.0)),
        (
            "bm25:stemmer=none,stop_words=none",
            "bm25:stop_words=none,stemmer=none",
            Ranking(stop_words="none", stemmer="none"),
        ),
    ],
)
def test_settings_are_read_and_have_one_spelling(typed: str, name: str, ranking: Ranking) -> None:
    artifact, found = resolve_bm25(typed)
    assert (artifact.name, artifact.source, found) == (name, typed, ranking)
    assert resolve_bm25(name)[0].key == artifact.key


def test_every_setting_is_in_the_key() -> None:
    texts = ("k1=1", "b=1", "method=atire", "stop_words=en", "stemmer=english", "method=bm25+")
    texts += ("method=bm25+,delta=1",)
    assert len({resolve_bm25(f"bm25:{text}")[0].key for text in ("", *texts)}) == 1 + len(texts)
    assert resolve_bm25("bm25")[0].key == "c55f4bce50a3737983709e9ba989c58d8021e2e13f587430155ae88f89257d4f"


def test_new_rules_of_words_and_scores_are_a_new_model(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, ranking = resolve_bm25("bm25")
    assert "rules" not in build_encoding_identity(ranking)
    monkeypatch.setattr("harness.search.bm25.RULES", 2)
    other, ranking = resolve_bm25("bm25")
    assert (build_encoding_identity(ranking)["rules"], other.name) == (2, "bm25")
    assert other.key != plain.key
    assert describe_ranking(build_encoding_identity(ranking)).endswith("of the language")
    assert "rules 2" in describe_ranking(build_encoding_identity(ranking))


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (
            "bm25:stopwords=en",
            "no setting 'stopwords'.\nDid you mean stop_words? It has: method=lucene, k1=1.5",
        ),
        ("bm25:output=vector", "no setting 'output'"),
        ("bm25:k1", "k1 of bm25 has no value"),
        ("bm25:k1=1,k1=2", "given twice"),
        ("bm25:k1=much", "k1 of bm25 cannot be 'much': input should be a valid number"),
        ("bm25:k1=-1", "greater than or equal to 0.\nType e.g. bm25:k1=VALUE."),
        ("bm25:k1=inf", "less than inf"),
        (
            "bm25:delta=1",
            "Only the methods bm25l and bm25+ of bm25 have a delta.\nLeave it out, or type e.g. "
            "bm25:method=bm25+,delta=1.",
        ),
        ("bm25:b=1.5", "less than or equal to 1"),
        ("bm25:method=robertsen", "no method 'robertsen'.\nDid you mean robertson? There is: lucene"),
        ("bm25:stop_words=eng", "no stop words 'eng'.\nDid you mean en"),
        ("bm25:stemmer=englich", "Did you mean english or french? There is: auto, none, arabic"),
    ],
)
def test_what_cannot_be_used_is_named(typed: str, told: str) -> None:
    with pytest.raises(UsageError) as error:
        resolve_bm25(typed)
    assert told in str(error.value)


# The scores are mteb's


@dataclass(frozen=True)
class Holder:
    """A loader of a given content; equal contents alone are equal."""

    held: Content

    def content(self) -> Content:
        return self.held


@dataclass(frozen=True)
class Loader:
    def content(self) -> Content:
        return CONTENT


WORDS = {
    "eng": "the rivers of a running river flow where boats were rowing and fishing for fishes",
    "deu": "die Flüsse der Fluss ein laufendes Boot fischen Fische rudern und fließen nicht weit",
    "fin": "joki joen virtaa veneet ja vene kalat kalastus soutaa missä joet nopeasti kauas",
    "jpn": "川 が 流れる 船 を 漕ぐ 魚 と 釣り 速い 遠く\nに 山",
    "zho": "河流 的 船 划 鱼 和 钓鱼 快 远\n方 山 在",
}


def made(language: str = "eng", documents: int = 60) -> Retrieval:
    """Random texts; a word is in every document, and a few documents have no other or share none."""
    rng = np.random.default_rng(7)
    words = WORDS[language].split(" ")

    def text(most: int) -> str:
        return " ".join(rng.choice(words, size=rng.integers(1, most)))

    texts = [f"{words[0]} {text(25)}" for _ in range(documents - 3)] + [words[0], "!?", "unrelated"]
    names = [f"d{i}" for i in rng.permutation(documents)]
    queries = [text(6) for _ in range(12)] + ["nothing known", "."]
    return Retrieval(
        documents=tuple(
            Document(id=name, title=text(4) if i % 3 else "", text=one)
            for i, (name, one) in enumerate(zip(names, texts, strict=True))
        ),
        queries=tuple(Query(id=f"q{i}", text=one) for i, one in enumerate(queries)),
        qrels={f"q{i}": {str(d): 1 for d in rng.choice(names, size=4)} for i in range(len(queries))},
    )


CONTENT = made()


def searched(
    settings: str, language: str, candidates: bool, others: dict[str, Any], titles: bool = True
) -> tuple[dict[str, Any], Outcome]:
    """The metrics of mteb's BM25, with documents without their titles if so, and the outcome of ours."""
    from mteb.models import ModelMeta
    from mteb.models.model_implementations.bm25 import BM25Search

    task = Task(
        name="Own",
        type="Retrieval",
        metric="ndcg_at_10",
        splits=("test",),
        data=Data(content=language),
        source=BuiltSource(loader=Loader()),
        roles=SIDES,
    )
    content = made(language)
    with quiet():
        untitled = tuple(replace(d, title="") for d in content.documents)
        theirs_of = content if titles else replace(content, documents=untitled)
        own = BuiltSource(loader=Holder(content)).build_mteb_task(task, seed=42)
        other = replace(task, data=Data(content=f"{language}, titles {titles}"))
        stock = BuiltSource(loader=Holder(theirs_of)).build_mteb_task(other, seed=42)
        for one in (own, stock):
            one.metadata = one.metadata.model_copy(update={"eval_langs": [f"{language}-Latn"]})
            if candidates:
                names = [d.id for d in content.documents]
                given = {q.id: names[i : i + 20] for i, q in enumerate(content.queries)}
                one.dataset["default"]["test"]["top_ranked"] = given
        search: Any = BM25Search(**others)
        search.mteb_model_meta = ModelMeta.create_empty(overwrites={"name": "a/b", "revision": "0"})
        theirs = stock.evaluate(search, "test", subsets_to_run=["default"], encode_kwargs={})
        ours = score(own, BM25Ranker(resolve_bm25(f"bm25:{settings}")[1]))
    return dict(theirs["default"]), ours


@pytest.mark.parametrize(
    ("settings", "language", "candidates", "others"),
    [
        ("", "eng", False, {}),
        ("", "eng", True, {}),
        ("", "deu", False, {}),
        ("", "fin", False, {}),
        ("", "jpn", False, {}),
        ("", "zho", False, {}),
        ("stemmer=german", "zho", False, {"stemmer_language": "german"}),
        ("stop_words=de", "eng", False, {"stopwords": "de"}),
        ("k1=0.9,b=0.4", "eng", False, {"k1": 0.9, "b": 0.4}),
        ("method=robertson", "eng", False, {"method": "robertson"}),
        ("method=bm25+,delta=1", "eng", False, {"method": "bm25+", "delta": 1.0}),
    ],
)
def test_every_metric_is_that_of_mteb(
    settings: str, language: str, candidates: bool, others: dict[str, Any]
) -> None:
    theirs, ours = searched(settings, language, candidates, others)
    found = ours.scores["test"]["default"]
    numbers = {name: value for name, value in theirs.items() if isinstance(value, float)}
    assert len(numbers) > 50
    assert 0.05 < found["ndcg_at_10"] < 0.95
    for name, value in numbers.items():
        expected = pytest.approx(value, abs=1e-6)
        assert found[name] is None if math.isnan(value) else found[name] == expected, name
    mean = np.mean([row for row in ours.examples["metric"] if row is not None])
    assert mean == pytest.approx(ours.main_score, abs=1e-5)


def test_languages_are_those_of_mteb() -> None:
    from mteb.models.model_implementations import bm25 as stock

    theirs = {code: (words or "", stem or "") for code, (words, stem, _) in stock._ISO3_TO_LANG.items()}
    assert {code: known for code, known in theirs.items() if any(known)} == LANGUAGES
    assert {code for code, (*_, by) in stock._ISO3_TO_LANG.items() if by == "char"} == CHARACTERS
    for name in STOP_WORDS:
        assert stock._get_stopwords(name)


def test_the_order_is_that_of_the_formula_and_of_equal_documents_the_first_comes_first() -> None:
    """Lucene's BM25 by hand, of words that no stemmer changes."""
    documents = ["red fox", "blue fox fox", "green hat", "red fox", "sea"]
    split = [text.split() for text in documents]
    average = sum(map(len, split)) / len(split)

    def score(query: str, words: list[str]) -> float:
        total = 0.0
        for word in query.split():
            within = sum(word in other for other in split)
            weight = math.log(1 + (len(split) - within + 0.5) / (within + 0.5))
            count = Counter(words)[word]
            total += weight * count / (count + 1.5 * (0.25 + 0.75 * len(words) / average))
        return total

    ranker = BM25Ranker(Ranking(stemmer="none", stop_words="none"))
    queries = ["red fox", "hat fox", "purple"]
    for query, (at, scores) in zip(queries, ranker.rank(queries, documents, k=4), strict=True):
        truth = [score(query, words) for words in split]
        assert at.tolist() == sorted(range(5), key=lambda i: (-round(truth[i], 6), i))[:4]
        assert scores == pytest.approx([truth[i] for i in at], rel=1e-5)


@pytest.mark.parametrize(
    ("queries", "method", "candidates", "unmatched"),
    [
        (["red", "hat"], "lucene", None, 0),
        (["日本の首都", "猫", "red"], "lucene", None, 2),
        (["the of", "purple fox"], "lucene", None, 1),
        (["purple", "red"], "bm25+", None, 1),
        (["red", "hat"], "lucene", [[1, 2], [0, 1]], 2),
        (["red", "purple"], "lucene", [[1, 0], [0, 1]], 1),
    ],
)
def test_queries_that_match_no_document_are_counted(
    queries: list[str], method: Any, candidates: Any, unmatched: int
) -> None:
    """Their documents keep the order of the corpus."""
    ranker = BM25Ranker(Ranking(method=method))
    found = ranker.rank(queries, ["red fox", "fox fox", "green hat"], k=2, candidates=candidates)
    assert (ranker.unmatched, ranker.queries) == (unmatched, len(queries))
    assert len(found) == len(queries)


def test_a_record_says_how_many_queries_match_no_document(tmp_path: Path, command: Command) -> None:
    texts = ("東京です", "red", "blue")
    documents = [{"_id": f"d{i}", "title": "", "text": text} for i, text in enumerate(texts)]
    queries = [{"_id": "q0", "text": "猫の首都"}, {"_id": "q1", "text": "red"}]
    own = lay_own(tmp_path / "own", documents, queries, [("q0", "d0", 1), ("q1", "d1", 1)])
    code, out, _ = command("run", "--model", "bm25", "--suite", f"local:{own}", "--offline", "--json")
    assert code == 0
    (file,) = (tmp_path / "results" / "records").rglob("*.json")
    record = json.loads(file.read_text())
    assert record["main_score"] == 0.75  # of equal scores the evaluation takes the last id first
    assert record["provenance"]["data"] == {"rows": 7, "unmatched_queries": 1}
    (note,) = record["provenance"]["notes"]
    assert note.startswith("1 of 2 queries match no document")
    assert note in out


@pytest.mark.parametrize("documents", [["the", "!"], ["", ""], [None, "x"], []])
def test_a_corpus_without_words_is_refused(documents: list[Any]) -> None:
    with pytest.raises(DataError, match=r"no word|no document|number 1 of 2") as caught:
        BM25Ranker(Ranking()).rank(["fox"], documents, k=1)
    assert caught.value.hint


def test_documents_in_portions_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{d.title} {d.text}" for d in CONTENT.documents]
    queries = [q.text for q in CONTENT.queries]
    steps: list[tuple[str, int, int]] = []
    whole = BM25Ranker(Ranking()).rank(queries, texts, k=9)
    monkeypatch.setattr("harness.jobs.ranking.DOCUMENTS", 7)
    monkeypatch.setattr("harness.jobs.ranking.QUERIES", 5)
    parts = BM25Ranker(Ranking(), lambda *step: steps.append(step)).rank(queries, texts, k=9)
    assert [(at.tolist(), s.tolist()) for at, s in whole] == [(at.tolist(), s.tolist()) for at, s in parts]
    assert [(name, size) for name, size, _ in steps if name] == [
        ("splitting documents", 60),
        ("making the index", 60),
        ("searching", 14),
    ]
    assert sum(done for *_, done in steps) == 60 + 14


# In a run


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A retrieval task, and pairs of texts."""
    documents = [{"_id": d.id, "title": d.title, "text": d.text} for d in CONTENT.documents]
    queries = [{"_id": q.id, "text": q.text} for q in CONTENT.queries]
    judged = [(q, d, grade) for q, grades in CONTENT.qrels.items() for d, grade in grades.items()]
    return lay_own(tmp_path / "own", documents, queries, judged, pairs=20)


Command = Callable[..., tuple[int, str, str]]


def test_a_run_ranks_shows_and_compares(suite: Path, tmp_path: Path, command: Command) -> None:
    local = f"local:{suite}"
    asked = ("run", "--model", "bm25", "--model", "bm25:b=0.4", "--suite", local, "--offline")
    code, out, err = command(*asked)
    assert code == 1
    assert "encoding or training" not in out
    reason = "bm25 ranks documents; tasks other than retrieval need a vector for each text"
    assert "similar" in err
    assert reason in " ".join(err.split())
    assert "BM25, k1 1.5, b 0.75, stop words and stemmer of the language" in err
    (path,) = (tmp_path / "results" / "records").glob("bm25-c55f4bce50a3/notes/*.json")
    record = json.loads(path.read_text())
    theirs, _ = searched("", "eng", False, {})
    assert record["main_score"] == pytest.approx(theirs["ndcg_at_10"], abs=1e-6)
    assert record["identity"]["encoding"] == {
        **{"output": "ranking", "method": "lucene", "k1": 1.5, "b": 0.75, "delta": 0.5},
        **{"stop_words": "auto", "stemmer": "auto"},
    }
    assert record["provenance"]["languages"]["eng"] == {
        **{"stop_words": "en", "stemmer": "english", "words": "words"}
    }
    assert {"bm25s", "PyStemmer"} <= record["provenance"]["packages"].keys()
    assert record["provenance"]["seconds"].keys() == {"index", "search", "score"}
    assert record["model"]["parameters"] is record["model"]["dimension"] is None
    assert record["examples"]["rows"] == len(CONTENT.queries)
    assert (record["run"]["rows"], record["run"]["depth"]) == (len(CONTENT.queries) * 60, 60)
    code, out, err = command("export", "bm25", "--trec", tmp_path / "trec", "--suite", local)
    assert code == 0, err
    assert exported(out) == pytest.approx(record["main_score"], abs=1e-5)

    planned = json.loads(command(*asked, "--dry-run", "--json")[1])
    assert [line["state"] for line in planned["plan"]] == ["done", "cannot run"] * 2
    assert reason in planned["plan"][1]["error"]
    assert "bm25:b=0.4" in command("show", "bm25:b=.40", "--suite", local)[1]
    assert f"{100 * record['main_score']:.2f}" in command("show", "bm25", "--suite", local)[1]
    compared = json.loads(command("compare", "bm25", "bm25:b=0.4", "--json")[1])
    assert ("identity.encoding.b", 0.75, 0.4) in [
        (one["field"], one["first"], one["second"]) for one in compared["differences"]
    ]
    assert "bm25 " in command("list", "models")[1]


def exported(told: str) -> float:
    """The nDCG at 10 that pytrec_eval gives of the files that an export names."""
    import pytrec_eval

    run, qrels = sorted((line.partition("\t")[0] for line in told.splitlines()), reverse=True)
    with open(run) as hits, open(qrels) as judged:
        judge = pytrec_eval.RelevanceEvaluator(pytrec_eval.parse_qrel(judged), {"ndcg_cut.10"})
        return float(
            np.mean([one["ndcg_cut_10"] for one in judge.evaluate(pytrec_eval.parse_run(hits)).values()])
        )


def test_documents_may_be_their_texts_alone(suite: Path, tmp_path: Path, command: Command) -> None:
    words = ("run", "--model", "bm25", "--suite", f"local:{suite}", "--tasks", "notes", "--offline")
    assert command(*words, "--document-text", "text")[0] == 0
    (path,) = (tmp_path / "results" / "records").glob("bm25-c55f4bce50a3/notes/*.json")
    record = json.loads(path.read_text())
    (theirs, ours) = searched("", "eng", False, {}, titles=False)
    assert record["main_score"] == pytest.approx(theirs["ndcg_at_10"], abs=1e-6)
    assert abs(record["main_score"] - ours.main_score) > 1e-3
    assert record["identity"]["documents"] == "text"


def test_a_second_run_and_a_plan_need_no_torch(suite: Path, tmp_path: Path, command: Command) -> None:
    words = ["run", "--model", "bm25", "--suite", f"local:{suite}", "--tasks", "notes", "--offline"]
    words += ["--results", str(tmp_path / "results")]

    def without_torch(*more: str) -> str:
        ((code, out, _),) = invoke_blocked([[*words, *more]])
        assert code == 0
        return out

    assert "0 cannot run" in without_torch("--dry-run")
    assert command(*words[:-2])[0] == 0
    assert "was there" in without_torch()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--model", "bm52", "--tasks", "notes"], "Did you mean bm25"),
        (["--model", "bm25:k3=1"], "It has: method=lucene, k1=1.5, b=0.75"),
        (["--model", "bm25", "--tasks", "similar"], "has no retrieval task"),
        (["--model", "bm25", "--pooling", "cls"], "--pooling is for models that give vectors"),
        (["--model", "bm25", "--max-length", "8"], "--max-length is for models"),
        (["--model", "bm25", "--prompt", "query=x"], "--prompt is for models"),
        (["--model", "bm25", "--dtype", "bf16"], "--dtype is for models"),
        (["--model", "bm25", "--recipe", "simcse"], "no recipe trains it"),
    ],
)
def test_misuse_is_one_clear_error(words: list[str], told: str, suite: Path, command: Command) -> None:
    code, _, err = command("run", *words, "--suite", f"local:{suite}", "--offline")
    assert code == 2
    assert told in " ".join(err.split())
    assert "Traceback" not in err


def test_no_recipe_trains_it(command: Command) -> None:
    code, _, err = command("train", "--model", "bm25", "--recipe", "simcse", "--offline")
    assert (code, "no recipe trains it" in err) == (2, True)


def test_settings_beside_another_model_are_for_that_one(suite: Path, tmp_path: Path) -> None:
    from harness.driver import evaluation

    model = tiny.folder(tiny.families()["bert"], tmp_path / "tiny")
    given = {"max_length": 16, "prompts": ["query=find "], "results": tmp_path / "r", "offline": True}
    request = Request.parse_options(
        ("bm25", str(model)), (f"local:{suite}",), {**given, "cache": tmp_path / "c"}
    )
    plan = evaluation.prepare(request).plan
    mine = {cell.subject.artifact.name: cell for cell in plan.cells if cell.task.name == "notes"}
    assert mine["tiny"].identity["encoding"]["max_length"] == 16
    assert mine["bm25"].identity["prompts"] == {"query": "", "document": ""}
    assert [job.kind for job in plan.jobs if job.label == "notes (bm25)"] == ["rank"]


def test_a_gate_holds_it_against_itself(suite: Path, command: Command) -> None:
    where = ("--suite", f"local:{suite}", "--tasks", "notes", "--offline")
    code, out, _ = command("baseline", "set", "plain", "--model", "bm25", *where)
    assert (code, "evaluation recipe" in out) == (0, False)
    code, out, err = command("check", "--candidate", "bm25", "--baseline", "plain", "--offline")
    assert code == 0, out + err
    code, out, err = command("check", "--candidate", "bm25:b=0.4", "--baseline", "plain", "--offline")
    assert code == 2
    assert "encoding.b is 0.4, the baseline's 0.75" in " ".join((out + err).split())
