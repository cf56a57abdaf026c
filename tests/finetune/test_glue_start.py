"""What a run starts from: dense layers, what is decayed, and what a backbone does not allow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import tiny
from finetune.glue.model import classifier_of
from finetune.glue.protocol import Protocol, Schedule
from finetune.glue.rows import _tokenized, as_it_runs
from finetune.glue.trainer import _optimizer_of, evaluation, predict, train
from finetune.recipes import glue_modernbert, glue_neobert, glue_quick
from harness.encoder.describe import family_in
from harness.encoder.engine import let_end_pad, require_padding
from harness.errors import ModelError


def first(protocol: Protocol, task: str = "CoLA") -> Any:
    return protocol.trials(task)[0]


def library(folder: Path, *, pooler: bool) -> Path:
    """A small MPNet, which runs through transformers' own class."""
    from transformers import MPNetConfig, MPNetModel

    config = MPNetConfig(
        vocab_size=160,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=64,
    )
    MPNetModel(config, add_pooling_layer=pooler).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


@pytest.mark.parametrize("pooler", [False, True])
@pytest.mark.parametrize("protocol", [glue_neobert.PROTOCOL, glue_quick.PROTOCOL, glue_modernbert.PROTOCOL])
def test_a_library_backbone_starts_as_the_seed_says(tmp_path: Path, protocol: Protocol, pooler: bool) -> None:
    """Two builds are one model; the pooler is taken if it was trained and is asked for."""
    from transformers import AutoModel

    folder, trial = library(tmp_path, pooler=pooler), first(protocol)
    one, notes = classifier_of(folder, trial, classes=2)
    torch.randn(7)
    other, _ = classifier_of(folder, trial, classes=2)
    assert all(torch.equal(tensor, other.state_dict()[name]) for name, tensor in one.state_dict().items())
    asked = trial.training.head.dense
    there: Any = AutoModel.from_pretrained(folder)
    taken = pooler and asked == "pooler"
    assert torch.equal(one.dense.weight, there.pooler.dense.weight) == taken
    assert any("has no dense layer" in note for note in notes) == (asked != "fresh" and not taken)


UNDECAYED = ("bert", "roberta")
"""Families whose authors call norms so; the others' are decayed, as in NeoBERT's code."""


@pytest.mark.parametrize("family", sorted(tiny.families()))
def test_what_neoberts_code_does_not_decay(family: str, tmp_path: Path) -> None:
    """It looks for "bias" and "LayerNorm.weight" in the names that the authors of a backbone gave."""
    folder = tiny.folder(tiny.families()[family], tmp_path)
    model, _ = classifier_of(folder, first(glue_neobert.PROTOCOL), classes=2)
    optimizer = _optimizer_of(model, first(glue_neobert.PROTOCOL))
    spared = {id(p) for p in optimizer.param_groups[1]["params"]}
    names = {name: id(p) for name, p in model.named_parameters()}
    biases = {name for name in names if name.endswith("bias")}
    assert all(names[name] in spared for name in biases)
    norms = {name for name in names if "norm" in name and name.endswith("weight")}
    assert norms
    if family in UNDECAYED:
        assert all(names[name] in spared for name in norms)
    if family in ("neobert", "modernbert"):
        assert not any(names[name] in spared for name in norms)


@pytest.mark.parametrize("family", sorted(tiny.families()))
def test_the_trainer_decays_no_norm(family: str, tmp_path: Path) -> None:
    """transformers' trainer spares every norm and bias, whatever it is called."""
    folder = tiny.folder(tiny.families()[family], tmp_path)
    model, _ = classifier_of(folder, first(glue_quick.PROTOCOL), classes=2)
    optimizer = _optimizer_of(model, first(glue_quick.PROTOCOL))
    spared = {id(p) for p in optimizer.param_groups[1]["params"]}
    wanted = {id(p) for n, p in model.named_parameters() if n.endswith("bias") or "norm" in n}
    assert spared == wanted


def test_half_precision_is_not_forced_on_a_family_that_overflows(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "deberta-v2"}')
    trial, notes = as_it_runs(tmp_path, first(glue_neobert.PROTOCOL))
    assert trial.autocast == "float32"
    assert "run in float32" in notes[0]
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    assert as_it_runs(tmp_path, first(glue_neobert.PROTOCOL)) == (first(glue_neobert.PROTOCOL), [])


def test_a_decoder_is_not_read_by_its_first_token(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt_neox"}')
    trial, notes = as_it_runs(tmp_path, first(glue_neobert.PROTOCOL))
    assert trial.training.head.pooling == "mean"
    assert "the mean of all tokens" in notes[-1]
    tokenizer = tiny.tokenizer()
    tokenizer.pad_token, tokenizer.eos_token = None, "[SEP]"
    let_end_pad(tokenizer, family_in(tmp_path))
    require_padding(tokenizer)
    assert tokenizer.pad_token == "[SEP]"
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    tokenizer.pad_token = None
    let_end_pad(tokenizer, family_in(tmp_path))
    with pytest.raises(ModelError, match="has no padding token"):
        require_padding(tokenizer)


@pytest.mark.parametrize("classes", [1, 2])
def test_a_model_that_ends_infinite_has_diverged(tmp_path: Path, classes: int) -> None:
    """The loss of the last step comes before its update, so only the scores tell."""
    folder = tiny.folder(tiny.families()["bert"], tmp_path)
    quick = first(glue_quick.PROTOCOL)
    clipless = replace(quick.training, clip=None, schedule=Schedule(name="linear", warmup=0.0))
    trial = replace(quick, learning_rate=1e30, batch_size=8, training=clipless)
    model, _ = classifier_of(folder, trial, classes=classes)
    rows = _tokenized(
        tiny.tokenizer(),
        [["the cat", "sat on"] * 4],
        [0.0, 1.0] * 4,
        max_length=16,
        device=torch.device("cpu"),
        numbers=classes == 1,
    )
    metrics = ["pearson", "spearman"] if classes == 1 else ["accuracy"]
    found = train(model, rows, trial, lambda m, step: evaluation(m, {"dev": rows}, metrics, step))
    assert len(found.losses) == 1
    assert torch.isfinite(torch.tensor(found.losses)).all()
    assert torch.isnan(predict(model, rows)).any()
    assert found.diverged
