"""Models in memory: their scores are those of their own `encode`, their keys those of their content."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import resource
import signal
from pathlib import Path
from typing import Any

import mteb
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from mteb.models import ModelMeta
from mteb.types import PromptType
from scipy.stats import spearmanr
from sentence_transformers import CrossEncoder, SentenceTransformer, models
from starlette.testclient import TestClient
from transformers import ElectraConfig, ElectraModel

import harness
import late_models
import tiny
from harness import UsageError
from harness.cli import invoke
from harness.core.errors import StoreError
from harness.core.files import sweep_cache
from harness.encoder.folder.description import compute_folder_identity
from harness.encoder.folder.files import read_tensor_headers
from harness.plan.model_objects import save_objects
from harness.tools.conditions import build_rerun_command
from html_pages import BROWSER
from leaderboard.web.app import create_app
from site_data import small_settings
from suites._mteb.built import BuiltSource

CHANCE = random.Random(1)
PAIRS = [[" ".join(CHANCE.sample(tiny.WORDS, 4)) for _ in range(2)] for _ in range(60)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that sentence-transformers has saved."""
    backbone = tiny.folder(tiny.families()["bert"], tmp_path_factory.mktemp("made") / "bert")
    build(backbone).save_pretrained(str(target := backbone.with_name("embedder")))
    return target


@pytest.fixture
def model(folder: Path) -> SentenceTransformer:
    return SentenceTransformer(str(folder), device="cpu")


@pytest.fixture
def suite(tmp_path: Path) -> str:
    """Pairs whose words overlap more or less."""
    root = tmp_path / "own"
    root.mkdir()
    rows = [{"text1": a, "text2": b, "score": count_shared(a, b)} for a, b in PAIRS]
    (root / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (root / "harness.toml").write_text('[[task]]\nname = "alike"\ntype = "sts"\n')
    return f"local:{root}"


def build(backbone: Path) -> SentenceTransformer:
    torch.manual_seed(0)
    transformer = models.Transformer(str(backbone))
    parts = [transformer, models.Pooling(32, "mean"), models.Dense(32, 12), models.Normalize()]
    return SentenceTransformer(modules=parts, device="cpu")


def count_shared(first: str, second: str) -> int:
    return len({*first.split()} & {*second.split()})


def score_by_hand(model: SentenceTransformer) -> float:
    """The Spearman correlation of the cosines of a model's own vectors."""
    first, second = (np.asarray(model.encode(list(texts)), np.float64) for texts in zip(*PAIRS, strict=True))
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    gold = [count_shared(a, b) for a, b in PAIRS]
    return float(spearmanr((first * second).sum(axis=1) / norms, gold).statistic)


def run(model: Any, suite: str, **options: Any) -> harness.Report:
    return harness.run(model, suite, results=Path("results"), devices="cpu", **options)


def compute_key(model: Any) -> str:
    text, _ = save_objects(model, "any", {})
    return compute_folder_identity(Path(text)).key


def describe_state(model: SentenceTransformer) -> dict[str, Any]:
    """What a run must leave as it is."""
    tokenizer = json.loads(model.tokenizer.backend_tokenizer.to_str())
    return {
        "tensors": {name: tensor.clone() for name, tensor in model.state_dict().items()},
        "places": {name: (p.dtype, p.device, p.requires_grad) for name, p in model.named_parameters()},
        "config": model[0].auto_model.config.to_dict(),
        "others": (model.training, model.max_seq_length, model.prompts, model.truncate_dim, tokenizer),
    }


@pytest.mark.parametrize("change", ["none", "weights", "dimensions", "prompts"])
def test_an_object_scores_as_its_own_vectors_do_and_stays_as_it_is(
    change: str, model: SentenceTransformer, suite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model.train()
    if change == "weights":
        torch.nn.init.normal_(model[2].linear.weight)
    if change == "dimensions":
        model.truncate_dim = 5
    if change == "prompts":
        model.prompts, model.default_prompt_name = {"topic": "the cat sat on the mat: "}, "topic"
    before = describe_state(model)
    report = run(model, suite, name="mine")
    after = describe_state(model)
    torch.testing.assert_close(after.pop("tensors"), before.pop("tensors"), rtol=0, atol=0)
    assert after == before
    (record,) = report.records
    assert record.model.name == "mine"
    assert record.main_score == pytest.approx(score_by_hand(model), abs=1e-6)
    again = run(model, suite, name="mine")
    assert (again.texts_encoded, again.records[0].key) == (0, record.key)


def test_a_key_is_that_of_weights_and_settings_and_of_no_use(folder: Path) -> None:
    backbone = folder.with_name("bert")
    model = build(backbone)
    model.save_pretrained(str(saved := folder.with_name("saved")))
    key = compute_key(model)
    assert key == compute_folder_identity(saved).key
    model.encode(["a text", "another one"])
    model.eval()
    assert compute_key(model) == compute_key(build(backbone)) == key
    keys = {key}
    model[2].linear.weight.data[0, 0] += 1e-4
    for change in ({}, {"max_seq_length": 9}, {"truncate_dim": 5}, {"prompts": {"query": "cat "}}):
        for name, value in change.items():
            setattr(model, name, value)
        keys.add(compute_key(model))
    assert len(keys) == 5


def test_weights_in_half_precision_stay_so(model: SentenceTransformer, suite: str, tmp_path: Path) -> None:
    text, _ = save_objects(model.half(), "half", {})
    headers = read_tensor_headers([Path(text) / "model.safetensors"])
    assert headers is not None
    assert {header.dtype for header in headers.values()} == {"F16"}
    report = harness.run(model, suite, name="half", results=tmp_path / "results", devices="cpu")
    assert report.records[0].identity["encoding"]["dtype"] == "float32"
    assert next(model.parameters()).dtype is torch.float16


def test_a_late_interaction_model_has_one_key_whichever_side_it_encoded_last(tmp_path: Path) -> None:
    model = late_models.library(late_models.save(tmp_path / "late"))
    keys = set()
    for is_query in (True, False):
        model.encode(["a cat"], is_query=is_query)
        keys.add(compute_key(model))
    assert len(keys) == 1
    torch.nn.init.normal_(model[1].linear.weight)
    assert keys.isdisjoint({compute_key(model)})


def test_the_sides_of_padding_and_truncation_count_before_and_after_encoding(
    model: SentenceTransformer, folder: Path, tmp_path: Path
) -> None:
    keys = {compute_key(model)}
    for side in ("padding_side", "truncation_side"):
        model = SentenceTransformer(str(folder), device="cpu")
        setattr(model.tokenizer, side, "left")
        unused = compute_key(model)
        model.encode(["a text", "another one"])
        assert compute_key(model) == unused
        text, _ = save_objects(model, "any", {})
        assert getattr(SentenceTransformer(text, device="cpu").tokenizer, side) == "left"
        keys.add(unused)
        setattr(model.tokenizer, side, "right")
        keys.add(compute_key(model))
    assert len(keys) == 3


def test_texts_are_cut_on_the_side_of_the_object(suite: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    tokenizer, sizes = tiny.tokenizer(), {"hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2}
    config = ElectraConfig(vocab_size=len(tokenizer), initializer_range=0.4, intermediate_size=64, **sizes)
    ElectraModel(config).save_pretrained(backbone := tmp_path / "electra")
    tokenizer.save_pretrained(backbone)
    scores = []
    for side in ("right", "left"):
        model = build(backbone)
        model.max_seq_length, model.tokenizer.truncation_side = 5, side
        (record,) = harness.run(model, suite, name=side, results=tmp_path, devices="cpu").records
        # Some short texts are equal now, and rounding orders their equal cosines.
        assert record.main_score == pytest.approx(score_by_hand(model), abs=0.01)
        scores.append(record.main_score)
    assert abs(scores[0] - scores[1]) > 0.1


def test_a_cut_of_the_dimensions_can_be_undone(model: SentenceTransformer, tmp_path: Path) -> None:
    whole = compute_key(model)
    model.truncate_dim = 5
    text, _ = save_objects(model, "cut", {})
    # sentence-transformers writes again what it has read, whatever the attribute is.
    cut = SentenceTransformer(text, device="cpu")
    cut.truncate_dim = None
    assert compute_key(cut) == whole != compute_folder_identity(Path(text)).key


def test_a_static_model_scores_as_its_own_vectors_do(suite: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    static = models.StaticEmbedding(tiny.tokenizer().backend_tokenizer, embedding_dim=16)
    model = SentenceTransformer(modules=[static], device="cpu")
    (record,) = harness.run(model, suite, name="static", results=tmp_path, devices="cpu").records
    assert record.main_score == pytest.approx(score_by_hand(model), abs=1e-6)


class Subclass(SentenceTransformer):
    """A class of a user's own."""


def test_a_class_around_the_same_weights_is_the_same_model(
    model: SentenceTransformer, folder: Path, suite: str, tmp_path: Path
) -> None:
    first = harness.run(model, suite, name="first", results=tmp_path, devices="cpu").records[0]
    other = SentenceTransformer(str(folder), device="cpu")
    other.__class__ = Subclass
    for again in (torch.compile(model, backend="eager"), other):
        report = harness.run(again, suite, name="first", results=tmp_path, devices="cpu")
        assert (report.texts_encoded, report.records[0].key) == (0, first.key)


@pytest.mark.parametrize("damage", ["other weights", "no weights", "no modules"])
def test_a_damaged_folder_in_the_cache_is_replaced(
    damage: str, model: SentenceTransformer, suite: str, tmp_path: Path
) -> None:
    text, _ = save_objects(model, "mine", {})
    key = compute_folder_identity(Path(text)).key
    weights = Path(text, "2_Dense", "model.safetensors")
    if damage == "other weights":
        content = bytearray(weights.read_bytes())
        content[-100:] = bytes(100)
        weights.write_bytes(content)
    else:
        (weights if damage == "no weights" else Path(text, "modules.json")).unlink()
    (record,) = harness.run(model, suite, name="mine", results=tmp_path, devices="cpu").records
    assert record.main_score == pytest.approx(score_by_hand(model), abs=1e-6)
    assert (record.model.artifact, compute_folder_identity(Path(text)).key) == (key, key)
    assert [*Path(text).parent.iterdir()] == [Path(text)]


def test_what_a_killed_process_has_left_is_swept(model: SentenceTransformer, tmp_path: Path) -> None:
    process = os.fork()
    if not process:
        model.save_pretrained = lambda path, **_: (Path(path).mkdir(), os.kill(os.getpid(), signal.SIGKILL))
        save_objects(model, "mine", {"cache": tmp_path})
    os.waitpid(process, 0)
    assert len([*(tmp_path / "objects").iterdir()]) == 1
    sweep_cache(tmp_path)
    assert [*(tmp_path / "objects").iterdir()] == []


def test_a_full_disk_is_named(
    model: SentenceTransformer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill_disk(path: str, **_: Any) -> None:
        Path(path).mkdir()
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(model, "save_pretrained", fill_disk)
    with pytest.raises(StoreError, match=f"Cannot write {tmp_path}.*: the disk is full"):
        save_objects(model, "mine", {"cache": tmp_path})
    assert [*(tmp_path / "objects").iterdir()] == []


def test_a_file_that_grows_too_large_is_named(model: SentenceTransformer, tmp_path: Path) -> None:
    """The libraries' own errors, of a limit that is met as a full disk is."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in (500, 20_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        try:
            with pytest.raises(StoreError, match="larger than this process may write"):
                save_objects(model, "mine", {"cache": tmp_path})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_saving_draws_no_random_number(model: SentenceTransformer) -> None:
    def read_states() -> str:
        return repr((torch.get_rng_state().tolist(), np.random.get_state(), random.getstate()))

    before = read_states()
    save_objects(model, "mine", {})
    assert read_states() == before


def test_names(model: SentenceTransformer, suite: str, tmp_path: Path) -> None:
    other = build(Path(model[0].auto_model.config._name_or_path))
    torch.nn.init.normal_(other[2].linear.weight)
    for nameless in (model, [model], {"": model}, {"a=b": model}):
        with pytest.raises(UsageError, match="name"):
            harness.run(nameless, suite, results=tmp_path)
    for name in ("", 5, "two\nlines"):
        with pytest.raises(UsageError, match="name"):
            harness.run(model, suite, name=name, results=tmp_path)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="'' cannot be a model's name"):
        harness.run("minilm", suite, name="", results=tmp_path)
    with pytest.raises(UsageError, match="one model"):
        harness.run([other, model], suite, name="both", results=tmp_path)
    with pytest.raises(UsageError, match="name is 5"):
        harness.run([other, model], suite, name=5, results=tmp_path)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="No suite"):
        harness.run(model, "nanobeirr", name="any", results=tmp_path)
    with pytest.raises(UsageError, match="one model with one baseline"):
        harness.check([model], "release", suite, name="any", results=tmp_path)
    with pytest.raises(UsageError, match="has no name") as refusal:
        harness.check(other, model, suite, name="any", results=tmp_path)
    assert 'model_card_data.model_name = "' in str(refusal.value.hint)
    assert not (tmp_path / "cache" / "objects").exists()
    other.model_card_data.model_id = "org/mine"
    texts, request = save_objects([other, "minilm"], None, {"names": {"minilm": "small"}})
    assert request["names"] == {texts[0]: "org/mine", "minilm": "small"}
    report = harness.run({"first": other, "second": model}, suite, results=tmp_path, devices="cpu")
    assert [record.model.name for record in report.records] == ["first", "second"]
    assert save_objects("minilm", "small", {}) == ("minilm", {"names": {"minilm": "small"}})
    assert save_objects("minilm", None, {}) == ("minilm", {})


class Encoder:
    """A part of what mteb's protocol asks for."""

    def encode(self, inputs: Any, **_: Any) -> Any:
        return inputs


class Lost(torch.nn.Module):
    """A module that cannot be saved."""

    def forward(self, features: Any) -> Any:
        return features


class Own(models.Normalize):
    """A module of a user's own."""


def test_what_is_no_model_is_refused_with_the_cure(folder: Path, suite: str, tmp_path: Path) -> None:
    sound = [*build(folder.with_name("bert"))][:3]
    cases: list[tuple[Any, str, str]] = [
        (
            Encoder(),
            "class Encoder cannot be evaluated here: .* must be a SentenceTransformer",
            "similarity_pairwise, mteb_model_meta: a subclass of mteb's AbsEncoder",
        ),
        (sound[0].auto_model, "class BertModel cannot", "SentenceTransformer"),
        (CrossEncoder(str(folder.with_name("bert")), device="cpu"), "class CrossEncoder cannot", "in it"),
        (SentenceTransformer(modules=[*sound, Lost()]), "cannot be saved .* no attribute 'save'", "`load`"),
        (Subclass(modules=sound), "is a Subclass", "Give a SentenceTransformer"),
        (SentenceTransformer(modules=[*sound, Own()]), "needs code of its own: its module", "trust"),
        (5, "models is 5", "None"),
    ]
    for model, message, hint in cases:
        with pytest.raises(UsageError, match=message) as refusal:
            harness.run(model, suite, name="any", results=tmp_path, devices="cpu")
        assert hint in str(refusal.value.hint)


def test_a_check_takes_objects_and_the_cache_knows_them(
    model: SentenceTransformer, folder: Path, suite: str, tmp_path: Path, capsys: Any
) -> None:
    torch.nn.init.normal_(model[2].linear.weight)
    asked: dict[str, Any] = {"name": "changed", "results": tmp_path / "results", "devices": "cpu"}
    before = SentenceTransformer(str(folder), device="cpu")
    before.model_card_data.model_name = "before"
    check = harness.check(model, before, suite, **asked)
    assert (check.candidate.name, check.baseline.name) == ("changed", "before")
    assert check.tasks[0].delta == pytest.approx(score_by_hand(model) - score_by_hand(before), abs=1e-6)
    (key,) = check.candidate.artifacts
    objects = tmp_path / "cache" / "objects"
    assert {place.name for place in objects.iterdir()} == {key, *check.baseline.artifacts}
    assert invoke(["cache", "size", "--json"]) == 0
    weights = sum(path.stat().st_size for path in objects.rglob("*") if path.is_file())
    assert json.loads(capsys.readouterr().out)["bytes"]["objects"] == weights
    assert invoke(["cache", "prune"]) == 0
    assert [*objects.iterdir()] == []
    assert harness.run(model, suite, **asked).texts_encoded == 0
    assert [place.name for place in objects.iterdir()] == [key]


class Counter(Encoder):
    """The numbers of each word of a text, with a similarity of its own; it keeps how it was called."""

    def __init__(self, change: str = "") -> None:
        self.mteb_model_meta = ModelMeta.create_empty(overwrites={"name": "own/counter", "revision": "1"})
        self.change = change
        self.calls: list[Any] = []

    def encode(self, inputs: Any, *, task_metadata: Any, **options: Any) -> Any:
        batches = [batch["text"] for batch in inputs]
        self.calls.append((task_metadata.name, batches, options))
        texts = [text for batch in batches for text in batch]
        rows = np.array([[text.split().count(word) for word in tiny.WORDS] for text in texts], np.float32)
        match self.change:
            case "not finite":
                rows[3, 1] = np.nan
            case "all the same":
                rows[:] = rows[0]
            case "a row is missing":
                rows = rows[1:]
            case "wider":
                rows = rows[:, : 5 + len(self.calls)]
            case "flat":
                rows = rows[:, 0]
            case "a list":
                return rows.tolist()
        return torch.from_numpy(rows + 0.1)

    def similarity(self, first: Any, second: Any) -> Any:
        return torch.as_tensor(first) @ torch.as_tensor(second).T - 7

    def similarity_pairwise(self, first: Any, second: Any) -> Any:
        return (torch.as_tensor(first) * torch.as_tensor(second)).sum(dim=1) - 7


@pytest.fixture
def kinds(tmp_path: Path) -> str:
    """A task of each kind; documents have titles."""
    root = tmp_path / "kinds"
    (root / "qrels").mkdir(parents=True)
    texts = [" ".join(CHANCE.sample(tiny.WORDS, 5)) for _ in range(40)]
    labelled = [{"text": text, "label": CHANCE.choice("ab")} for text in texts]
    rows: dict[str, list[dict[str, Any]]] = {
        "pairs": [{"text1": a, "text2": b, "score": count_shared(a, b)} for a, b in PAIRS],
        "corpus": [{"_id": str(n), "title": t.split()[0], "text": t} for n, t in enumerate(texts)],
        "queries": [{"_id": str(n), "text": " ".join(t.split()[1:4])} for n, t in enumerate(texts[:9])],
        **{"train": labelled[:30], "test": labelled[30:], "texts": labelled},
    }
    for name, lines in rows.items():
        (root / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    judged = [f"{n}\t{n + k}\t1" for n in range(9) for k in range(2)]
    (root / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]))
    types = ("sts", "retrieval", "classification", "clustering")
    (root / "harness.toml").write_text("".join(f'[[task]]\nname = "{t}"\ntype = "{t}"\n' for t in types))
    return f"local:{root}"


def test_an_encoder_of_mtebs_protocol_is_called_and_scored_as_by_mteb(kinds: str, tmp_path: Path) -> None:
    ours, theirs = Counter(), Counter()
    report = harness.run(ours, kinds, name="counter", results=tmp_path, devices="cpu")
    tasks = [cell.task for cell in report.prepared.plan.cells]
    found = {record.task.name: record for record in report.records}
    assert len(tasks) == len(found) == 4
    for task in tasks:
        assert isinstance(task.source, BuiltSource)
        built = task.source.build_mteb_task(task, seed=42)
        (expected,) = mteb.evaluate(theirs, built, cache=None, show_progress_bar=False).task_results
        for row in expected.scores["test"]:
            scores = found[task.name].scores["test"][row["hf_subset"]]
            assert scores == {name: None if row[name] != row[name] else row[name] for name in scores}
            assert scores["main_score"] == found[task.name].main_score > 0
    assert ours.calls == theirs.calls
    assert {options.get("prompt_type") for _, _, options in ours.calls} == {None, *PromptType}
    # Files beside the record as of any model: pairs and rankings.
    rows = pq.read_table(next(tmp_path.rglob("*.run.parquet"))).num_rows
    assert (rows, len([*tmp_path.rglob("*.examples.parquet")])) == (9 * 40, 4)


def test_each_call_measures_an_encoder_again_under_its_name(
    suite: str, folder: Path, tmp_path: Path, capsys: Any
) -> None:
    asked: dict[str, Any] = {"results": tmp_path / "results", "devices": "cpu"}
    encoder = Counter()
    (of_folder,) = harness.run(str(folder), suite, **asked).records
    (first,) = harness.run(encoder, suite, name="counter", **asked).records
    compared = harness.compare("counter", folder.name, results=tmp_path / "results")
    assert [row["task"] for row in compared.deltas] == ["alike"]
    calls = len(encoder.calls)
    (second,) = harness.run(encoder, suite, name="counter", **asked).records
    assert len(encoder.calls) == 2 * calls
    assert first.main_score == second.main_score
    assert {first.key, first.model.artifact}.isdisjoint({second.key, second.model.artifact})
    assert first.model.source == f"Python object of {Counter.__module__}.Counter"
    assert (first.model.dimension, first.identity["encoding"]) == (len(tiny.WORDS), {"output": "vector"})
    assert "an object in Python: measured once, not repeatable from files" in first.provenance["notes"]
    names = {row["model"] for row in harness.records(results=tmp_path / "results")}
    keys = (first.model.artifact, second.model.artifact)
    assert names == {folder.name, *(f"counter ({key[:8]})" for key in keys)}
    for command in ("show", "models card"):
        assert invoke([*command.split(), first.model.artifact, "--results", str(tmp_path / "results")]) == 0
        shown = capsys.readouterr().out
        assert "an object in Python" in shown
        assert "harness run" not in shown
    assert "harness run" not in build_rerun_command(first, "counter", (), tmp_path / "results")
    app = create_app(small_settings(tmp_path))
    numbers = {row.key: row.id for row in app.state.site.queries.find_results()}
    for record in (first, second, of_folder):
        shown = TestClient(app).get(f"/results/{numbers[record.key]}", headers=BROWSER).text
        assert ("harness run --model" in shown) == (record is of_folder)


def test_what_an_encoder_of_mtebs_protocol_cannot_use_is_named(
    suite: str, folder: Path, tmp_path: Path
) -> None:
    asked: dict[str, Any] = {"results": tmp_path / "results"}
    harness.run(str(folder), suite, devices="cpu", **asked)
    encoder = Counter()
    for name, message in (
        (None, "This Counter has no name"),
        ("minilm", "Another model is called minilm"),
        ("bm25", "Another model"),
        (folder.name, "Another model"),
        ("two\nlines", "cannot be a model's name"),
    ):
        with pytest.raises(UsageError, match=message):
            harness.run(encoder, suite, name=name, **asked)
    for argument, value in {
        "pooling": "mean",
        "dtype": "float32",
        "prompts": {"query": "q: "},
        "document_text": "text",
        "lengths": [8, 16],
        "recipe": "simcse",
        "executor": "slurm",
        "devices": "cpu,cuda:0",
        "gate": False,
    }.items():
        with pytest.raises(UsageError, match=f"this process: leave out {argument}"):
            harness.run(encoder, suite, name="counter", **asked, **{argument: value})
    for call in (
        lambda: harness.run([encoder, "minilm"], suite, **asked),
        lambda: harness.run({"counter": encoder}, suite, **asked),
        lambda: harness.check(encoder, "minilm", suite, name="counter", **asked),
        lambda: harness.run(Counter, suite, name="counter", **asked),
    ):
        with pytest.raises(UsageError, match=r"alone in harness\.run|models is <class"):
            call()
    report = harness.run(encoder, "efficiency", name="counter", **asked)
    messages = {one.failure.message for one in report.failures if one.failure}
    assert messages == {"counter is an object in Python: only mteb's code can score it."}
    assert encoder.calls == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("not finite", "1 of 60 vectors are not finite"),
        ("all the same", "6 different texts all have the same vector"),
        ("a row is missing", r"of shape \(59, \d+\) for 60 texts"),
        ("wider", r"of shape \(60, 7\) for 60 texts, after vectors of 6 numbers"),
        ("flat", r"of shape \(60,\) for 60 texts"),
        ("a list", r"gave a list of shape \(\)"),
    ],
)
def test_vectors_that_make_no_sense_are_an_error(
    change: str, message: str, suite: str, tmp_path: Path
) -> None:
    report = harness.run(Counter(change), suite, name="counter", results=tmp_path, devices="cpu")
    (result,) = report.failures
    assert result.failure is not None
    assert re.search(message, result.failure.message)
    assert report.records == ()
