"""Folders with an adapter of peft give the vectors of peft itself, and are other models than their bases."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer, models
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    ElectraConfig,
    ElectraModel,
)

import tiny
from finetune.glue.model import Classifier
from finetune.recipes import glue_neobert
from harness.core.encoding import Settings
from harness.core.errors import ModelError, StoreError, UsageError
from harness.encoder.engine import Encoder
from harness.encoder.folder.description import lay_beside_base
from harness.encoder.loading import load_any
from harness.plan.models import ModelOptions, resolve_model
from suites._perplexity import load_language_model

FAMILIES = tiny.families()
TEXTS = ["The cat sat on the mat.", "a river, stone and 42 clouds!"]
LAYERS: dict[str, Any] = {"target_modules": ["query", "value"]}
CONFIGS: dict[str, Any] = {
    "lora": peft.LoraConfig(r=4, target_modules="all-linear"),
    "dora": peft.LoraConfig(r=4, use_dora=True, **LAYERS),
    "pissa": peft.LoraConfig(r=4, init_lora_weights="pissa", **LAYERS),
    "embedding": peft.LoraConfig(r=4, target_modules=["word_embeddings", "query"]),
    "ranks": peft.LoraConfig(r=4, rank_pattern={"query": 2}, alpha_pattern={"value": 32}, **LAYERS),
    "patterns": peft.LoraConfig(
        r=4, rank_pattern={r"^encoder\.layer\.0.*query": 2}, alpha_pattern={r"layer.1.*\.\w+e": 64}, **LAYERS
    ),
    "biases": peft.LoraConfig(r=4, bias="all", **LAYERS),
    "whole module": peft.LoraConfig(r=4, modules_to_save=["pooler"], **LAYERS),
    "tokens": peft.LoraConfig(r=4, trainable_token_indices={"word_embeddings": [5, 6]}, **LAYERS),
    "ia3": peft.IA3Config(target_modules=["key", "value"], feedforward_modules=[]),
    "adalora": peft.AdaLoraConfig(init_r=4, target_r=2, total_step=9, **LAYERS),
    "c3a": peft.C3AConfig(block_size=8, **LAYERS),
    "fourierft": peft.FourierFTConfig(n_frequency=20, **LAYERS),
    "hra": peft.HRAConfig(r=4, **LAYERS),
    "ln tuning": peft.LNTuningConfig(target_modules=["LayerNorm"]),
    "loha": peft.LoHaConfig(r=4, **LAYERS),
    "lokr": peft.LoKrConfig(r=4, **LAYERS),
    "miss": peft.MissConfig(r=4, **LAYERS),
    "oft": peft.OFTConfig(oft_block_size=4, **LAYERS),
    "shira": peft.ShiraConfig(r=4, **LAYERS),
    "vblora": peft.VBLoRAConfig(r=4, num_vectors=16, vector_length=8, topk=2, **LAYERS),
    "vera": peft.VeraConfig(r=4, **LAYERS),
}
PLAIN = CONFIGS["lora"]
SCALED = {"distilbert": "q_lin", "modernbert": "Wqkv"}
"""Layers whose names are others in our network."""

Resolve = Callable[..., Any]


def adapt(base: Path, folder: Path, config: Any, *, seed: int = 0, kind: Any = AutoModel) -> Any:
    """Write an adapter of `base` as peft does, drawn so that it changes vectors; returns the model."""
    torch.manual_seed(seed)
    model = peft.get_peft_model(kind.from_pretrained(base), copy.deepcopy(config)).eval()
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(str(folder))
    return model


def compute_means(model: Any, tokenizer: Any) -> np.ndarray[Any, Any]:
    """Mean vectors of TEXTS by a model of transformers or peft, of length 1."""
    features = tokenizer(TEXTS, padding=True, return_tensors="pt")
    mask = features["attention_mask"][..., None]
    with torch.no_grad():
        means = (model(**features)[0] * mask).sum(1) / mask.sum(1)
    return torch.nn.functional.normalize(means, dim=1).numpy()


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tiny.folder(FAMILIES["bert"], tmp_path / "base")


@pytest.fixture
def resolve(tmp_path: Path) -> Resolve:
    """Resolves a model folder as a dry run does, and thereby tries it."""

    def resolve(folder: Path, **settings: Any) -> Any:
        options = ModelOptions(offline=True, cache=tmp_path / "cache")
        return resolve_model(str(folder), Settings(**settings), options)

    return resolve


def encode(model: Any) -> Any:
    """The vectors of TEXTS by a resolved model."""
    encoder = load_any(model.artifact, model.encoding, device="cpu")
    assert isinstance(encoder, Encoder)
    return encoder.encode(TEXTS)


# peft warns of layers that few adapt.
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("family", "kind"),
    [
        *[("bert", kind) for kind in CONFIGS],
        *[(name, "scaled") for name in SCALED],
        *[(name, "lora") for name, family in FAMILIES.items() if family.native and name != "bert"],
    ],
)
def test_vectors_are_those_of_peft(family: str, kind: str, tmp_path: Path, resolve: Resolve) -> None:
    base = tiny.folder(FAMILIES[family], tmp_path / "base")
    layer = SCALED.get(family)
    scaled = peft.LoraConfig(target_modules="all-linear", alpha_pattern={layer: 64} if layer else {})
    adapt(base, tmp_path / "adapter", CONFIGS.get(kind, scaled))
    tokenizer, plain = AutoTokenizer.from_pretrained(base), AutoModel.from_pretrained(base)
    without = compute_means(plain, tokenizer)
    truth = compute_means(peft.PeftModel.from_pretrained(plain, tmp_path / "adapter").eval(), tokenizer)
    found = encode(resolve(tmp_path / "adapter", pooling="mean", normalize=True))
    assert np.abs(found - truth).max() <= 2e-6 < np.abs(truth - without).max() / 100


CLASSIFIER, READER = "a classifier of texts", "a model that finds answers in a text"
CLASSES = {
    "SEQ_CLS": (AutoModelForSequenceClassification, CLASSIFIER),
    "TOKEN_CLS": (AutoModelForTokenClassification, CLASSIFIER),
    "QUESTION_ANS": (AutoModelForQuestionAnswering, READER),
    None: (AutoModelForMaskedLM, ""),
}
"""By the task: the class that is trained, and what a plan refuses it as."""
BODY = r".*\.layer\..*(query|value)"
HEADED: dict[str, tuple[str, str | None, dict[str, Any]]] = {
    "classifier": ("bert", "SEQ_CLS", {"target_modules": BODY}),
    "all layers": ("bert", "SEQ_CLS", {}),
    "tokens": ("bert", "TOKEN_CLS", {"target_modules": BODY}),
    "reader": ("bert", "QUESTION_ANS", {"target_modules": BODY}),
    "dense head": ("roberta", "SEQ_CLS", {"target_modules": BODY}),
    "first layer": (
        "distilbert",
        "SEQ_CLS",
        {"target_modules": ["q_lin"], "modules_to_save": ["pre_classifier"]},
    ),
    "adapted head": ("modernbert", "SEQ_CLS", {}),
    "transformers' own class": (
        "electra",
        "SEQ_CLS",
        {"target_modules": BODY, "rank_pattern": {r"electra.*layer\.0.*query": 2}},
    ),
    "head that predicts words": ("bert", None, {}),
}
"""By what is special: the family, the task, and more settings of the adapter."""


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", HEADED)
def test_the_head_of_an_adapter_is_left_out_as_that_of_a_model(
    name: str, tmp_path: Path, resolve: Resolve
) -> None:
    family, task, settings = HEADED[name]
    kind, refused = CLASSES[task]
    if family == "electra":
        base = tiny.folder(FAMILIES["bert"], tmp_path / "base")
        sizes = {"num_attention_heads": 4, "intermediate_size": 48, "num_hidden_layers": 2}
        (base / "model.safetensors").unlink()
        ElectraModel(
            ElectraConfig(vocab_size=160, embedding_size=32, hidden_size=32, **sizes)
        ).save_pretrained(base)
    else:
        base = tiny.folder(FAMILIES[family], tmp_path / "base")
    config = peft.LoraConfig(**{"r": 4, "task_type": task, "target_modules": "all-linear", **settings})
    model = adapt(base, tmp_path / "adapter", config, kind=kind)
    if refused:
        with pytest.raises(UsageError, match=f"is {refused}, not an embedding model"):
            resolve(tmp_path / "adapter")
    tokenizer = AutoTokenizer.from_pretrained(base)
    truth = compute_means(model.get_base_model().base_model, tokenizer)
    without = compute_means(AutoModel.from_pretrained(base).eval(), tokenizer)
    resolved = resolve(tmp_path / "adapter", pooling="mean", normalize=True)
    encoder = load_any(resolved.artifact, resolved.encoding, device="cpu")
    assert isinstance(encoder, Encoder)
    assert np.abs(encoder.encode(TEXTS) - truth).max() <= 2e-6 < np.abs(truth - without).max() / 100
    (note,) = [one for one in encoder.notes if one.startswith("not loaded: ")]
    stored = load_file(tmp_path / "adapter/adapter_model.safetensors")
    names = [one.removeprefix("base_model.model.") for one in stored]
    heads = sorted(one for one in names if not one.startswith(f"{model.base_model_prefix}."))
    assert note == f"not loaded: {', '.join(heads)} (it belongs to the head of a task)"


def test_a_head_without_a_task_is_left_out(base: Path, tmp_path: Path, resolve: Resolve) -> None:
    config = peft.LoraConfig(target_modules=BODY, modules_to_save=["classifier"])
    model = adapt(base, tmp_path / "adapter", config, kind=AutoModelForSequenceClassification)
    with pytest.raises(UsageError, match=CLASSIFIER):
        resolve(tmp_path / "adapter")
    found = encode(resolve(tmp_path / "adapter", pooling="mean", normalize=True))
    truth = compute_means(model.get_base_model().base_model, AutoTokenizer.from_pretrained(base))
    assert np.abs(found - truth).max() <= 2e-6


def test_the_head_of_an_adapter_that_predicts_words_is_part_of_a_language_model(
    tmp_path: Path, resolve: Resolve
) -> None:
    headed = tiny.folder(FAMILIES["bert"], tmp_path / "base", head=True)
    every = peft.LoraConfig(r=4, target_modules="all-linear")
    model = adapt(headed, tmp_path / "adapter", every, kind=AutoModelForMaskedLM)
    resolved = resolve(tmp_path / "adapter", pooling="mean")
    found = load_language_model(resolved.artifact, resolved.encoding, device="cpu", left_to_right=False)
    features = AutoTokenizer.from_pretrained(headed)(TEXTS[0], return_tensors="pt")
    with torch.no_grad():
        assert (found.network(**features).logits - model(**features).logits).abs().max() <= 1e-5


@pytest.mark.parametrize("kind", ["lora", "biases", "whole module"])
def test_all_weights_can_be_trained_further(kind: str, base: Path, tmp_path: Path, resolve: Resolve) -> None:
    adapt(base, tmp_path / "adapter", CONFIGS[kind])
    resolved = resolve(tmp_path / "adapter", pooling="mean")
    encoder = load_any(resolved.artifact, resolved.encoding, device="cpu")
    trial = glue_neobert.PROTOCOL.list_trials("RTE")[0]
    classifier, _ = Classifier.load_classifier(resolved.artifact.folder, trial, classes=2)
    for model in (encoder.model, classifier):
        assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("kind", ["lora", "biases"])
def test_an_adapter_beside_a_pooler_that_its_base_does_not_have_is_read(
    kind: str, tmp_path: Path, resolve: Resolve
) -> None:
    base = tiny.folder(FAMILIES["bert"], tmp_path / "base", head=True)
    adapt(base, tmp_path / "adapter", CONFIGS[kind])
    assert any("pooler" in name for name in load_file(tmp_path / "adapter/adapter_model.safetensors"))
    model, tokenizer = AutoModelForMaskedLM.from_pretrained(base).eval(), AutoTokenizer.from_pretrained(base)
    adapted = peft.PeftModel.from_pretrained(AutoModel.from_pretrained(base), tmp_path / "adapter").eval()
    resolved = resolve(tmp_path / "adapter", pooling="mean", normalize=True)
    assert np.abs(encode(resolved) - compute_means(adapted, tokenizer)).max() <= 2e-6
    model.bert.load_state_dict(adapted.merge_and_unload().state_dict(), strict=False)
    features = tokenizer(TEXTS[0], return_tensors="pt")
    found = load_language_model(resolved.artifact, resolved.encoding, device="cpu", left_to_right=False)
    with torch.no_grad():
        assert (found.network(**features).logits - model(**features).logits).abs().max() <= 2e-6


@pytest.mark.parametrize("place", ["", "0_Transformer"])
def test_a_folder_of_sentence_transformers_with_an_adapter_gives_its_vectors(
    place: str, base: Path, tmp_path: Path, resolve: Resolve
) -> None:
    parts = [models.Transformer(str(base)), models.Pooling(32, "cls"), models.Normalize()]
    model = SentenceTransformer(modules=parts, device="cpu", prompts={"query": "query the "})
    model.max_seq_length = 8
    try:
        model.add_adapter(peft.LoraConfig(r=4, **LAYERS))
    except ValueError as error:
        if "version of PEFT" not in str(error):
            raise
        pytest.skip(f"the library cannot make one: {error}")
    for parameter in filter(lambda one: one.requires_grad, model.parameters()):
        parameter.data.normal_(std=0.3)
    folder = tmp_path / "saved"
    model.save_pretrained(str(folder))
    if place:
        names = ("modules.json", "config_sentence_transformers.json")
        inner = [path for path in folder.iterdir() if path.is_file() and path.name not in names]
        (folder / place).mkdir()
        for path in inner:
            path.rename(folder / place / path.name)
        listed = json.loads((folder / "modules.json").read_text())
        listed[0]["path"] = place
        (folder / "modules.json").write_text(json.dumps(listed))
    resolved = resolve(folder)
    assert (resolved.artifact.name, resolved.encoding.max_length) == ("saved", 8)
    assert ("query", "query the ") in resolved.encoding.prompts
    assert np.abs(encode(resolved) - model.encode(TEXTS)).max() <= 2e-6


def test_the_key_is_of_both_weights_and_not_of_where_the_base_lies(
    base: Path, tmp_path: Path, resolve: Resolve
) -> None:
    adapt(base, folder := tmp_path / "adapter", PLAIN)
    first = resolve(folder, pooling="mean").artifact
    assert resolve(folder, pooling="mean").artifact == first

    def rewrite(**changes: Any) -> None:
        config = json.loads((folder / "adapter_config.json").read_text())
        (folder / "adapter_config.json").write_text(json.dumps({**config, **changes}))

    shutil.copytree(base, tmp_path / "copy")
    rewrite(base_model_name_or_path=str(tmp_path / "copy"), revision="main", peft_version="0.1")
    moved = resolve(folder, pooling="mean").artifact
    assert (moved.key, moved.weights) == (first.key, first.weights)
    tiny.folder(FAMILIES["bert"], tmp_path / "copy", seed=1)
    other_base = resolve(folder, pooling="mean").artifact
    adapt(tmp_path / "copy", folder, PLAIN, seed=2)
    other_adapter = resolve(folder, pooling="mean").artifact
    bare = resolve(tmp_path / "copy", pooling="mean").artifact
    assert len({one.key for one in (first, other_base, other_adapter, bare)}) == 4
    assert len({one.weights for one in (first, other_base, other_adapter, bare)}) == 4


def test_of_two_processes_one_lays_the_folder_out_and_all_users_can_read_it(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapt(base, folder := tmp_path / "adapter", PLAIN)
    rename, cache = os.rename, tmp_path / "cache"

    def come_second(new: Path, laid: Path) -> None:
        shutil.copytree(new, laid, symlinks=True)
        rename(new, laid)

    def lay() -> Path:
        return lay_beside_base(folder, cache, lambda *_: base)

    monkeypatch.setattr(os, "rename", come_second)
    laid = lay()
    assert [*cache.glob("adapters/*/*")] == [laid]
    shutil.rmtree(laid)
    monkeypatch.undo()
    assert lay() == laid
    assert [*cache.glob("adapters/*/*")] == [laid]
    assert laid.stat().st_mode == base.stat().st_mode
    shutil.rmtree(laid)
    monkeypatch.setattr(Path, "symlink_to", lambda *_: os.mkdir(base))
    with pytest.raises(OSError, match="exists"):
        lay()
    assert [*cache.glob("adapters/*/*")] == []


def test_a_cache_that_cannot_be_written_is_named(base: Path, tmp_path: Path, resolve: Resolve) -> None:
    adapt(base, folder := tmp_path / "adapter", PLAIN)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache/adapters").touch()
    with pytest.raises(StoreError, match=r"Cannot write .*adapters.*: a file stands where"):
        resolve(folder)


def test_a_base_is_found_in_the_hub_cache_by_its_revision(
    base: Path, tmp_path: Path, resolve: Resolve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    repository, commit = tmp_path / "hub/models--org--base", "a" * 40
    shutil.copytree(base, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs/v1").write_text(commit)
    model = adapt(base, folder := tmp_path / "adapter", PLAIN)
    config = json.loads((folder / "adapter_config.json").read_text())
    config |= {"base_model_name_or_path": "org/base", "revision": "v1"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    truth = compute_means(model, AutoTokenizer.from_pretrained(base))
    assert np.abs(encode(resolve(folder, pooling="mean", normalize=True)) - truth).max() <= 2e-6
    (folder / "adapter_config.json").write_text(json.dumps({**config, "revision": "v2"}))
    with pytest.raises(ModelError, match=r"needs its base model: org/base@v2 is not in the local hub cache"):
        resolve(folder)


def test_the_tokenizer_of_the_adapters_folder_comes_first(
    base: Path, tmp_path: Path, resolve: Resolve
) -> None:
    adapt(base, folder := tmp_path / "adapter", PLAIN)
    before = encode(resolve(folder, pooling="mean"))
    tokenizer = tiny.tokenizer()
    tokenizer.backend_tokenizer.normalizer = None
    tokenizer.save_pretrained(folder)
    after = encode(resolve(folder, pooling="mean"))
    # Only the first text has a capital letter.
    assert np.abs(after - before).max(axis=1) == pytest.approx([np.abs(after - before).max(), 0])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"peft_type": "PROMPT_TUNING"}, "of the kind PROMPT_TUNING, which cannot be merged"),
        ({"peft_type": "XLORA"}, "of the kind XLORA, which cannot be merged"),
        ({"alora_invocation_tokens": [5]}, "with alora_invocation_tokens, which cannot be merged"),
        ({"layer_replication": [[0, 2]]}, "with layer_replication, which cannot be merged"),
        ({"megatron_config": {"x": 1}, "megatron_core": "antigravity"}, "with megatron_config, which cannot"),
        ({"peft_type": None}, "names no peft_type"),
        ({"peft_type": ["LORA"]}, "has peft_type = "),
        ({"base_model_name_or_path": None}, "names no base_model_name_or_path"),
        ({"base_model_name_or_path": "/nowhere/base"}, "needs its base model: There is no folder /nowhere"),
        ({"base_model_name_or_path": "C:\\base"}, r"needs its base model: There is no folder C:\\base"),
        ({"base_model_name_or_path": "old-base"}, "needs its base model: old-base is not in the local hub"),
        ({"base_model_name_or_path": "{adapter}"}, "is an adapter itself"),
        ({"base_model_name_or_path": "{empty}"}, "is no folder with config.json and weights"),
        ({"base_model_name_or_path": "{deeper}"}, r"does not load|does not fit"),
        ({"target_modules": ["nothing"], "peft_type": "IA3"}, r"does not load"),
        ({"r": 3}, "does not fit: size mismatch"),
    ],
)
def test_an_adapter_that_does_not_load_is_refused_in_the_plan(
    changes: dict[str, Any], said: str, base: Path, tmp_path: Path, resolve: Resolve
) -> None:
    adapt(base, folder := tmp_path / "adapter", PLAIN)
    (tmp_path / "empty").mkdir()
    tiny.folder(FAMILIES["bert"], tmp_path / "deeper", num_hidden_layers=1)
    config = json.loads((folder / "adapter_config.json").read_text()) | changes
    text = json.dumps(config)
    for name in ("adapter", "empty", "deeper"):
        text = text.replace(f"{{{name}}}", str(tmp_path / name))
    (folder / "adapter_config.json").write_text(text)
    with pytest.raises(ModelError, match=said):
        resolve(folder, pooling="mean")


def test_an_adapter_without_readable_weights_is_refused(base: Path, tmp_path: Path, resolve: Resolve) -> None:
    adapt(base, folder := tmp_path / "adapter", PLAIN)
    weights = folder / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    with pytest.raises(ModelError, match="is not a whole safetensors file"):
        resolve(folder)
    weights.rename(folder / "adapter_model.bin")
    with pytest.raises(ModelError, match=r"has no adapter_model\.safetensors") as refusal:
        resolve(folder)
    assert "Save the adapter of adapter_model.bin" in str(refusal.value.hint)
