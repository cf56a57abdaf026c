"""Models in memory: their scores are those of their own `encode`, their keys those of their content."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sentence_transformers import CrossEncoder, SentenceTransformer, models

import fakes
import harness
import late_models
import tiny
from harness import UsageError
from harness.cli import invoke
from harness.encoder.folder.content import compute_folder_identity
from harness.encoder.tensors import read_tensor_headers
from harness.plan.model_objects import save_objects

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
    report = run(model, suite)
    after = describe_state(model)
    torch.testing.assert_close(after.pop("tensors"), before.pop("tensors"), rtol=0, atol=0)
    assert after == before
    (record,) = report.records
    assert record.model.name == "embedder"
    assert record.main_score == pytest.approx(score_by_hand(model), abs=1e-6)
    again = run(model, suite)
    assert (again.texts_encoded, again.records[0].key) == (0, record.key)


def test_an_unchanged_object_has_the_key_and_the_records_of_its_folder(
    folder: Path, suite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a trained model, too, whose model.json sentence-transformers does not save."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder, tmp_path / "trained")
    document = fakes.train(tmp_path / "trained")
    of_folder = run("trained", suite)
    model = SentenceTransformer("trained", device="cpu")
    model.encode(["a text", "another one"])
    of_object = run(model, suite, name="in memory")
    assert of_object.texts_encoded == 0
    assert of_object.records[0].key == of_folder.records[0].key
    assert of_object.prepared.subjects[0].artifact.key == document.key
    assert of_object.prepared.subjects[0].artifact.name == "in memory"
    assert [*(tmp_path / "cache" / "objects").iterdir()] == []


def test_an_unchanged_object_of_the_hub_is_its_commit(
    folder: Path, suite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    repository, commit = tmp_path / "hub/models--org--tiny", "a" * 40
    shutil.copytree(folder, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs/main").write_text(commit)
    model = SentenceTransformer("org/tiny", device="cpu", local_files_only=True)
    (record,) = run(model, suite, offline=True).records
    assert (record.model.name, record.model.source, record.model.revision) == ("org/tiny", "org/tiny", commit)
    torch.nn.init.normal_(model[2].linear.weight)
    (changed,) = run(model, suite, offline=True).records
    assert (changed.model.name, changed.model.revision) == ("org/tiny", None)
    assert changed.model.artifact != record.model.artifact


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
    report = harness.run(model, suite, results=tmp_path / "results", devices="cpu")
    assert report.records[0].identity["encoding"]["dtype"] == "float32"
    assert next(model.parameters()).dtype is torch.float16


def test_a_late_interaction_model_is_its_folder_whichever_side_it_encoded_last(tmp_path: Path) -> None:
    model = late_models.library(target := late_models.save(tmp_path / "late"))
    for is_query in (True, False):
        model.encode(["a cat"], is_query=is_query)
        assert save_objects(model, None, {}) == (str(target), {})
    torch.nn.init.normal_(model[1].linear.weight)
    keys = set()
    for is_query in (True, False):
        model.encode(["a cat"], is_query=is_query)
        keys.add(compute_key(model))
    assert len(keys) == 1
    assert keys.isdisjoint({compute_folder_identity(target).key})


def test_names(model: SentenceTransformer, folder: Path, suite: str, tmp_path: Path) -> None:
    made = build(folder.with_name("bert"))
    assert [*save_objects(made, None, {})[1]["names"].values()] == ["bert"]
    made.model_card_data.model_id = "org/mine"
    texts, request = save_objects([made, "minilm"], None, {"names": {"minilm": "small"}})
    assert request["names"] == {texts[0]: "org/mine", "minilm": "small"}
    made[0].auto_model.config._name_or_path, made.model_card_data.model_id = "", None
    with pytest.raises(UsageError, match="has no name") as refusal:
        save_objects(made, None, {})
    assert 'name="my-model"' in str(refusal.value.hint)
    torch.nn.init.normal_(model[2].linear.weight)
    report = harness.run({"first": made, "second": model}, suite, results=tmp_path, devices="cpu")
    assert [record.model.name for record in report.records] == ["first", "second"]
    assert save_objects("minilm", "small", {}) == ("minilm", {"names": {"minilm": "small"}})
    for name in (5, "two\nlines"):
        with pytest.raises(UsageError, match="name"):
            save_objects(made, name, {})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="one model"):
        save_objects([made, model], "both", {})


class Encoder:
    """What mteb's protocol asks for."""

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
            "class Encoder cannot be evaluated: .* must be a SentenceTransformer",
            "wrappers `.model`",
        ),
        (sound[0].auto_model, "class BertModel cannot", "SentenceTransformer"),
        (CrossEncoder(str(folder.with_name("bert")), device="cpu"), "class CrossEncoder cannot", "in it"),
        (SentenceTransformer(modules=[*sound, Lost()]), "cannot be saved .* no attribute 'save'", "`load`"),
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
    check = harness.check(model, SentenceTransformer(str(folder), device="cpu"), suite, **asked)
    assert (check.candidate.name, check.baseline.source) == ("changed", str(folder))
    assert check.tasks[0].delta == pytest.approx(
        score_by_hand(model) - score_by_hand(SentenceTransformer(str(folder), device="cpu")), abs=1e-6
    )
    (key,) = check.candidate.artifacts
    (place,) = (tmp_path / "cache" / "objects").iterdir()
    assert place.name == key
    assert invoke(["cache", "size", "--json"]) == 0
    weights = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    assert json.loads(capsys.readouterr().out)["bytes"]["objects"] == weights
    assert invoke(["cache", "prune"]) == 0
    assert not place.exists()
    assert harness.run(model, suite, **asked).texts_encoded == 0
    assert place.is_dir()
