"""The ways of training a backbone: what is trained, what it costs, and what is saved."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tiny
from finetune.efficient.settings import (
    BiasSettings,
    EfficientSettings,
    FreezeSettings,
    LoraSettings,
    compute_usual_rate,
)
from finetune.efficient.training import apply_tuning
from finetune.glue.model import Classifier
from finetune.glue.settings import ClassifierHead
from harness.core.errors import UsageError
from harness.encoder import backbones
from harness.encoder.backbones.gpt_neox import SIZES
from harness.encoder.network.pretrained import merge_adapters
from harness.encoder.sentence_transformer import SentenceTransformer
from harness.results.cost.compute import ParameterCount, count_backbone_parameters, count_gpt_neox_parameters
from tiny_networks import batch, means, network, shrunk, texts

FAMILIES = tiny.families()
LIBRARY = ("bert", "gpt_neox", "deberta")

D, INNER, BLOCKS, RANK = 32, 48, 4, 2
"""The width, the width inside the feed-forward part, and the blocks of BERT and GPT-NeoX here."""

BLOCK = (4 * D * D + 4 * D) + (D * INNER + INNER) + (INNER * D + D) + 4 * D
"""Four projections, the feed-forward part, and two norms, each with its biases."""

NORM = 2 * D
"""The norm of BERT's embeddings, or the last one of GPT-NeoX."""

SPLIT = 4 * RANK * (D + D) + 2 * RANK * (D + INNER)
FUSED = RANK * (D + 3 * D) + RANK * (D + D) + 2 * RANK * (D + INNER)
"""The adapters of a block whose queries, keys and values come from three layers, or from one."""

BIASES = (3 * D + D) + (INNER + D) + 2 * D
ALL = NORM + BLOCKS * BLOCK
BERT, NEOX = ALL + BLOCKS * SPLIT, ALL + BLOCKS * FUSED

METHODS: dict[str, EfficientSettings] = {
    "full": EfficientSettings(),
    "freeze": FreezeSettings(frozen="3/4"),
    "freeze-none": FreezeSettings(frozen="0"),
    "lora": LoraSettings(rank=RANK),
    "lora-embeddings": LoraSettings(rank=RANK, lora_embeddings=True),
    "bias": BiasSettings(),
}

COUNTS = {
    ("bert", "full"): (ALL, ALL, ALL),
    ("bert", "freeze"): (ALL, BLOCK, BLOCK),
    ("bert", "freeze-none"): (ALL, BLOCKS * BLOCK, BLOCKS * BLOCK),
    ("bert", "lora"): (BERT, BERT - NORM, BLOCKS * SPLIT),
    ("bert", "lora-embeddings"): (BERT, BERT, BLOCKS * SPLIT),
    ("bert", "bias"): (ALL, ALL, D + BLOCKS * BIASES),
    ("gpt_neox", "full"): (ALL, ALL, ALL),
    ("gpt_neox", "freeze"): (ALL, BLOCK + NORM, BLOCK + NORM),
    ("gpt_neox", "freeze-none"): (ALL, ALL, ALL),
    ("gpt_neox", "lora"): (NEOX, NEOX, BLOCKS * FUSED),
    ("gpt_neox", "lora-embeddings"): (NEOX, NEOX, BLOCKS * FUSED),
    ("gpt_neox", "bias"): (ALL, ALL, D + BLOCKS * BIASES),
}
"""Parameters by hand: those of the forward pass, of the backward pass, and the updated ones."""


def ours() -> Any:
    shape = replace(shrunk(FAMILIES["bert"]), num_hidden_layers=BLOCKS, pooler=True)
    return network(shape)


def library(name: str, **changes: Any) -> Any:
    """A tiny model of transformers whose biases are not zero."""
    from transformers import CONFIG_MAPPING, AutoModel

    family = backbones.list_backbones()[name].family
    assert family is not None
    content = tiny.config(family, num_hidden_layers=BLOCKS, initializer_range=0.2, **changes)
    torch.manual_seed(0)
    model: Any = AutoModel.from_config(CONFIG_MAPPING[content["model_type"]].from_dict(content))
    for parameter, weight in model.named_parameters():
        if parameter.endswith("bias"):
            nn.init.normal_(weight, std=0.1)
    return model.eval()


def backbone(name: str) -> Any:
    return ours() if name == "ours" else library(name)


def tuned(model: Any, method: str) -> Any:
    torch.manual_seed(1)
    apply_tuning(model, METHODS[method])
    return model


def drawn(model: Any) -> Any:
    """The same model with adapters that change its output."""
    for name, weight in model.named_parameters():
        if "lora_" in name:
            nn.init.normal_(weight, std=0.1)
    return model


def given(pad: int = 0) -> dict[str, Any]:
    """A padded batch of texts of three lengths, which our network packs."""
    return batch(texts((5, 9, 3), pad), pad)


def is_trained(method: str, name: str) -> bool:
    """Whether a method trains a parameter of one of the three networks."""
    if method.startswith("lora"):
        return "lora_" in name and (method == "lora-embeddings" or "embedding_" not in name)
    if method == "bias":
        return name.endswith("bias")
    block = next((int(part) for part in name.split(".") if part.isdigit()), None)
    first = {"freeze": 3, "freeze-none": 0}.get(method)
    return first is None or (name.startswith("final_") if block is None else block >= first)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["ours", "bert", "gpt_neox"])
def test_parameters_and_operations_are_those_by_hand(name: str, method: str) -> None:
    forward, backward, updated = COUNTS["bert" if name == "ours" else name, method]
    count = ParameterCount.count_parameters(tuned(backbone(name), method))
    assert count == ParameterCount(forward=forward, backward=backward, updated=updated)
    assert count.compute_flops(1000) == 2000 * (forward + backward + updated)
    assert count.compute_flops(1000, scored=10) == count.compute_flops(1000) + 20 * forward


def test_costs_of_a_token_are_those_of_the_paper() -> None:
    """6 N in full; with frozen blocks 2 N and 4 for each trained one; else 4 N and 2 for each trained one."""
    cost = {
        name: ParameterCount.count_parameters(tuned(library("gpt_neox"), name)).compute_flops(1)
        for name in METHODS
    }
    assert cost["full"] == 6 * ALL
    assert cost["freeze"] == 2 * ALL + 4 * (BLOCK + NORM)
    assert cost["lora"] == cost["lora-embeddings"] == 4 * NEOX + 2 * BLOCKS * FUSED
    assert cost["bias"] == 4 * ALL + 2 * (D + BLOCKS * BIASES)


def test_a_parameter_of_two_modules_counts_once() -> None:
    model = library("gpt_neox")
    model.layers[1].mlp = model.layers[0].mlp
    counted = ALL - (D * INNER + INNER + INNER * D + D)
    assert ParameterCount.count_parameters(model) == ParameterCount(
        forward=counted, backward=counted, updated=counted
    )


@pytest.mark.parametrize("name", ["ours", "bert"])
def test_a_classifier_counts_without_any_embedding(name: str) -> None:
    """Neither those of tokens nor those of positions and types, nor the pooler that the head stands for."""
    head = ClassifierHead(pooling="first", dense="fresh")
    model = Classifier(backbone(name), width=D, classes=3, head=head)
    every = ALL + (D * D + D) + (3 * D + 3)
    assert ParameterCount.count_parameters(model).compute_flops(7, scored=5) == every * (6 * 7 + 2 * 5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["ours", "bert", "gpt_neox"])
def test_only_what_is_trained_moves(name: str, method: str) -> None:
    model = tuned(backbone(name), method).train()
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        means(model, given()).square().sum().backward()
        optimizer.step()
    moved = {name for name, weight in model.named_parameters() if not torch.equal(weight, before[name])}
    assert moved == {name for name in before if is_trained(method, name) and "pooler" not in name}


@pytest.mark.parametrize("name", ["ours", *LIBRARY])
@pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")  # DeBERTa
def test_merged_adapters_give_the_same_vectors(name: str) -> None:
    model = backbone(name)
    names = [*model.state_dict()]
    with torch.no_grad():
        plain = means(model, given())
        assert torch.equal(means(tuned(model, "lora-embeddings"), given()), plain)
        adapted = means(drawn(model), given())
        merge_adapters(model)
        assert (means(model, given()) - adapted).abs().max() <= 1e-5
        assert (adapted - plain).abs().max() > 1e-2
    assert [*model.state_dict()] == names
    merge_adapters(model)
    assert not hasattr(model, "peft_config")


@pytest.mark.parametrize("name", FAMILIES)
def test_adapters_fit_our_network_of_every_family(name: str) -> None:
    """They get gradients from a packed batch, a checkpoint brings them back, and they merge."""
    model, again = (tiny.network(FAMILIES[name], seed=seed) for seed in range(2))
    pad = model.shape.pad_token_id or 0
    dense = [part for part in model.modules() if isinstance(part, nn.Linear)]
    pooled = model.pooler is not None
    adapted = means(drawn(tuned(model, "lora-embeddings")), given(pad))
    means(model.train(), given(pad)).square().sum().backward()
    found = {name: weight.grad for name, weight in model.named_parameters() if weight.requires_grad}
    assert len(found) == 2 * (len(dense) - pooled + 1)
    assert all(one is not None and one.abs().max() > 0 for one in found.values())
    tuned(again, "lora-embeddings").load_state_dict(model.state_dict())
    merge_adapters(again)
    assert (means(again, given(pad)) - adapted).abs().max() <= 1e-5


@pytest.mark.parametrize("name", FAMILIES)
def test_frozen_blocks_get_no_gradient_in_any_family(name: str) -> None:
    """Of a network with three blocks the last one is trained, and the norm after it where there is one."""
    model = tiny.network(FAMILIES[name]).train()
    apply_tuning(model, FreezeSettings(frozen="2/3"))
    means(model, given(model.shape.pad_token_id or 0)).square().sum().backward()
    found = {name.rpartition(".")[0] for name, weight in model.named_parameters() if weight.grad is not None}
    assert {part.split(".")[1] for part in found - {"final_norm"}} == {"2"}
    assert ("final_norm" in found) == model.shape.final_norm


@pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")
def test_the_norm_of_relative_positions_is_frozen_with_the_embeddings() -> None:
    """DeBERTa's table of relative positions, and the norm of its rows, stand beside the blocks."""
    model = library("deberta", position_buckets=8, norm_rel_ebd="layer_norm")
    apply_tuning(model, FreezeSettings(frozen="0.75"))
    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert trained == {name for name in dict(model.named_parameters()) if ".layer.3." in name}


@pytest.mark.parametrize("name", ["bert", "gpt_neox"])
def test_a_merged_model_is_an_ordinary_folder(name: str, tmp_path: Path) -> None:
    library(name, max_position_embeddings=64, vocab_size=160).save_pretrained(tmp_path / "bare")
    tiny.tokenizer().save_pretrained(tmp_path / "bare")
    model = SentenceTransformer(str(tmp_path / "bare"), device="cpu")
    inner: Any = model[0].auto_model
    drawn(tuned(inner, "lora-embeddings"))
    wanted = model.encode(["the cat sat", "on"])
    merge_adapters(inner)
    model.save(str(tmp_path / "new"), create_model_card=False)
    assert not list(tmp_path.rglob("adapter*"))
    again = tiny.library(tmp_path / "new")
    assert abs(again.encode(["the cat sat", "on"]) - wanted).max() <= 1e-5
    assert type(inner).__module__.startswith("harness" if name == "bert" else "transformers")


def test_adapters_stand_beside_the_named_layers_alone() -> None:
    model = library("gpt_neox")
    apply_tuning(model, LoraSettings(rank=RANK, lora_modules=("query_key_value", "mlp.dense_h_to_4h")))
    adapters = BLOCKS * (RANK * (D + 3 * D) + RANK * (D + INNER))
    assert ParameterCount.count_parameters(model).updated == adapters
    apply_tuning(model := library("gpt_neox"), LoraSettings(rank=RANK, lora_modules=("dense",)))
    assert ParameterCount.count_parameters(model).updated == BLOCKS * RANK * (D + D)
    layer: Any = model.layers[0].attention.dense
    assert layer.scaling["default"] == 8 / RANK


@pytest.mark.parametrize(
    ("name", "settings", "messages"),
    [
        (
            "gpt_neox",
            LoraSettings(lora_modules=("query", "dense", "embed_in")),
            ("called query or embed_in", "query_key_value, dense, dense_h_to_4h, dense_4h_to_h."),
        ),
        (
            "ours",
            LoraSettings(lora_modules=("pooler.dense",)),
            ("called pooler.dense", "query, key,"),
        ),
        ("ours", FreezeSettings(frozen="0.3"), ("frozen is 0.3", "0/4, 1/4, 2/4, 3/4")),
        ("ours", FreezeSettings(frozen="1/3"), ("whole number of 4 blocks", "0/4, 1/4, 2/4, 3/4")),
        ("ours", FreezeSettings(frozen="1"), ("frozen is 1,", "from 0 to below 1")),
        ("ours", FreezeSettings(frozen="half"), ("frozen is half", "frozen=1/6")),
        ("ours", FreezeSettings(frozen="1/0"), ("frozen is 1/0", "frozen=1/6")),
        ("ours", LoraSettings(rank=0), ("rank is 0", "1 or more")),
        ("ours", LoraSettings(lora_alpha=0), ("lora_alpha is 0", "1 or more")),
    ],
)
def test_a_wrong_setting_says_what_there_is(
    name: str, settings: EfficientSettings, messages: tuple[str, ...]
) -> None:
    model = backbone(name)

    def tune() -> None:
        settings.check_values()
        apply_tuning(model, settings)

    with pytest.raises(UsageError) as caught:
        tune()
    for message in messages:
        assert message in str(caught.value)


def test_a_network_without_biases_or_blocks_says_so() -> None:
    with pytest.raises(UsageError, match="no biases to train"):
        apply_tuning(tiny.network(FAMILIES["modernbert"]), BiasSettings())
    with pytest.raises(UsageError, match="no list of blocks"):
        apply_tuning(nn.Linear(2, 2), FreezeSettings())


@pytest.mark.parametrize(
    ("frozen", "blocks", "count"),
    [
        ("0", 6, 0),
        ("5/6", 6, 5),
        (str(5 / 6), 12, 10),
        ("3/8", 24, 9),
        (str(1 / 3), 3, 1),
        ("2/6", 6, 2),
        ("7/16", 16, 7),
    ],
)
def test_the_share_of_frozen_blocks(frozen: str, blocks: int, count: int) -> None:
    assert FreezeSettings(frozen=frozen).count_frozen_blocks(blocks) == count


# Rates, and sizes without torch

SIZED = {"pythia-14m": 1_189_888, "pythia-160m": 85_056_000, "pythia-1b": 805_736_448}
"""Parameters without embeddings, as the Pythia paper prints them (table 1); of 14M by its config."""


def test_sizes_are_those_of_the_pythia_paper() -> None:
    printed = {"pythia-70m": 18_915_328, "pythia-410m": 302_311_424, "pythia-1.4b": 1_208_602_624}
    for name, count in {**SIZED, **printed, "pythia-2.8b": 2_517_652_480}.items():
        assert count_gpt_neox_parameters(SIZES[name]) == count


@pytest.mark.parametrize(
    ("method", "size", "rate"),
    [
        ("full", 4_739_072, 1e-4),
        ("freeze", 1_208_602_624, 2e-5),
        ("full", SIZED["pythia-160m"], 6e-5),
        ("freeze", 22_000_000, 1e-4),
        ("full", 40_100_000, 1e-4),  # sqrt(18.9 M * 85.1 M) is 40.11 M
        ("full", 40_200_000, 6e-5),
        ("full", 1, 1e-4),
        ("full", 7_000_000_000, 1.6e-5),
        ("lora", 2_517_652_480, 1e-3),
        ("bias", None, 1e-2),
    ],
)
def test_the_usual_rate_is_that_of_the_nearest_size(method: Any, size: int | None, rate: float) -> None:
    assert compute_usual_rate(method, size) == rate


def test_a_rate_needs_a_size() -> None:
    with pytest.raises(UsageError, match="learning_rate"):
        compute_usual_rate("freeze", None)


@pytest.mark.parametrize("head", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_folder_of_our_network_tells_its_parameters(name: str, head: bool, tmp_path: Path) -> None:
    folder = tiny.folder(FAMILIES[name], tmp_path, head=head)
    assert (
        count_backbone_parameters(folder)
        == ParameterCount.count_parameters(tiny.network(FAMILIES[name])).forward
    )


@pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")
@pytest.mark.parametrize("head", [False, True])
@pytest.mark.parametrize("name", ["gpt_neox", "deberta"])
def test_a_folder_of_transformers_tells_its_parameters(name: str, head: bool, tmp_path: Path) -> None:
    """With the head that its authors publish, and with the masks that older files of Pythia have."""
    from safetensors.torch import load_file, save_file
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    model = library(name)
    whole = AutoModelForCausalLM if name == "gpt_neox" else AutoModelForMaskedLM
    (whole.from_config(model.config) if head else model).save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    block = next(key for key in tensors if ".0." in key).partition(".0.")[0]
    tensors[f"{block}.0.attention.bias"] = torch.ones(1, 1, 8, 8, dtype=torch.bool)
    tensors[f"{block}.0.attention.masked_bias"] = torch.tensor(-1e9)
    tensors[f"{block}.0.attention.rotary_emb.inv_freq"] = torch.ones(4)
    save_file(tensors, tmp_path / "model.safetensors")
    assert count_backbone_parameters(tmp_path) == ParameterCount.count_parameters(model).forward
    (tmp_path / "model.safetensors").unlink()
    assert count_backbone_parameters(tmp_path) is None


def test_settings_sizes_and_rates_need_no_torch(tmp_path: Path) -> None:
    folder = tiny.folder(FAMILIES["bert"], tmp_path)
    code = f"""
import sys
sys.modules["torch"] = sys.modules["transformers"] = sys.modules["peft"] = None
from finetune.efficient.settings import FreezeSettings, compute_usual_rate
from harness.results.cost.compute import ParameterCount, count_backbone_parameters
FreezeSettings(frozen="1/3").count_frozen_blocks(3)
size = count_backbone_parameters(__import__("pathlib").Path({str(folder)!r}))
counted = ParameterCount(forward=size, backward=size, updated=size)
print(compute_usual_rate("full", size), counted.compute_flops(1))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == "0.0001"
