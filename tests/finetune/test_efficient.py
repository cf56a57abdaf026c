"""Compute-optimal trainings: the loss, budgets, what is trained, and the folder that is left."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import GPTNeoXConfig, GPTNeoXModel

from finetune.efficient.settings import EfficientSettings, FreezeSettings
from finetune.efficient.training import apply_tuning
from finetune.embedding.losses import build_symmetric_loss
from finetune.recipes import efficient_bias, efficient_freeze, efficient_full, efficient_lora
from finetune.recipes._efficient import EfficientRecipe
from harness.core.errors import HarnessError, UsageError
from harness.core.types import Artifact
from harness.data.training.sets import LocatedTraining, TrainingData
from harness.encoder.folder.description import describe
from harness.results.cost.compute import ParameterCount
from harness.training.training import TrainingSpec, read_log
from small_trainings import spec_in, trained
from stopped_trainings import kill_at, sentence

RECIPES = {
    "full": efficient_full.RECIPE,
    "freeze": efficient_freeze.RECIPE,
    "lora": efficient_lora.RECIPE,
    "bias": efficient_bias.RECIPE,
}


class Table(nn.Module):
    """A model of float64: a row of a table for each text."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(20, 6, dtype=torch.float64)

    def __getitem__(self, _number: int) -> None:
        """No module of the library."""

    def forward(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"sentence_embedding": self.table(features["input_ids"][:, 0])}


@pytest.mark.parametrize("micro_batch", [3, 100])
def test_the_loss_is_the_paper_s(micro_batch: int) -> None:
    """(l_r + l_c) / 2 with diagonal targets, and its gradient."""
    model: Any = Table()
    columns = [{"input_ids": torch.arange(8)[:, None] + at} for at in (0, 8)]
    found = build_symmetric_loss(model, 40.0, micro_batch=micro_batch, gather=False)(columns, None)
    found.backward()
    mine = model.table.weight.grad.clone()
    model.zero_grad()
    x, y = (nn.functional.normalize(model(one)["sentence_embedding"]) for one in columns)
    logits, labels = 40.0 * x @ y.T, torch.arange(8)
    rows, others = (nn.functional.cross_entropy(one, labels) for one in (logits, logits.T))
    expected = (rows + others) / 2
    expected.backward()
    assert float(found.detach()) == pytest.approx(float(expected.detach()), rel=1e-12)
    torch.testing.assert_close(mine, model.table.weight.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", ["full", "freeze", "lora", "bias"])
def test_parameters_are_counted_by_a_config_as_in_the_network(method: str) -> None:
    """Those of a command that is only shown are those by which a training finds its steps."""
    settings = RECIPES[method].settings[""]
    config = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 4, "num_attention_heads": 2}
    network = GPTNeoXModel(GPTNeoXConfig(vocab_size=50, max_position_embeddings=16, **config))
    apply_tuning(network, settings)
    assert settings.count_gpt_neox_parameters(config) == ParameterCount.count_parameters(network)


# A training


SMALL: dict[str, Any] = {"batch_size": 8, "chunk": 4, "max_length": 16}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> LocatedTraining:
    file = tmp_path_factory.mktemp("rows") / "rows.parquet"
    columns = {"anchor": [sentence(n) for n in range(60)], "positive": [sentence(500 + n) for n in range(60)]}
    Dataset.from_dict(columns).to_parquet(str(file))
    return LocatedTraining(data=TrainingData(content="c" * 64), file=file, name="rows", rows=60, own=True)


@pytest.fixture
def make(backbone: Artifact, rows: LocatedTraining, tmp_path: Path) -> Callable[..., TrainingSpec]:
    def made(method: str, variant: str = "", name: str = "run", **settings: Any) -> TrainingSpec:
        entry = RECIPES[method]
        recipe = entry.open(variant, replace(entry.settings[variant], **{**SMALL, **settings}))
        assert isinstance(recipe, EfficientRecipe)
        return spec_in(tmp_path, recipe, name, backbone=backbone, data=(rows,))

    return made


@pytest.mark.parametrize("method", RECIPES)
def test_only_the_weights_of_the_method_are_others(
    make: Callable[..., TrainingSpec], backbone: Artifact, method: str
) -> None:
    spec = make(method, **({"frozen": "1/3"} if method == "freeze" else {}))
    after, before = trained(spec), load_file(backbone.folder / "model.safetensors")
    planned = spec.recipe.plan(backbone, spec.data, seed=7)  # type: ignore[attr-defined]
    made, described = describe(spec.output), planned.description
    assert (made.pooling, made.max_length) == (described.pooling, described.max_length)
    assert planned.steps == 60 // 8
    prefix = next(iter(before)).partition("embeddings")[0] if "bert" not in next(iter(after)) else ""
    same = {
        name.removeprefix("bert.")
        for name, tensor in after.items()
        for other in (before.get(name, before.get(prefix + name)),)
        if other is not None and torch.equal(tensor, other)
    }
    parts = {name for name in same if "pooler" not in name}
    everything = {name.removeprefix("bert.") for name in after if "pooler" not in name}
    changed = everything - parts
    if method == "full":
        assert "embeddings.word_embeddings.weight" in changed
        assert "encoder.layer.0.attention.output.dense.weight" in changed
    elif method == "bias":
        assert changed
        assert all(name.endswith("bias") for name in changed)
    elif method == "lora":
        assert changed
        assert all("dense" in name or ".self." in name for name in changed)
        assert all(name.endswith("weight") for name in changed)
    else:
        assert changed
        assert not any("embeddings" in name or "layer.0." in name for name in changed)


@pytest.mark.slow
def test_a_budget_chooses_the_steps(make: Callable[..., TrainingSpec], rows: LocatedTraining) -> None:
    """The operations of all steps are the budget but for the last step, and epochs are added."""
    once = make("full", tokens_per_pair=10)
    trained(once)
    each = read_log(once.folder / "log.jsonl")[0]["flops"]
    spec = make("full", name="budget", tokens_per_pair=10, budget=19.5 * each)
    planned = spec.recipe.plan(spec.backbone, spec.data, seed=7)  # type: ignore[attr-defined]
    assert (planned.steps, planned.texts) == (19, 19 * 8 * 2)
    assert "when the texts are read" not in str(planned.notes)
    trained(spec)
    log = read_log(spec.folder / "log.jsonl")
    assert len(log) == 19
    assert math.isclose(sum(line["flops"] for line in log), 19 * each)
    measured = make("full", name="tokens", budget=19.5 * each)
    trained(measured)
    log = read_log(measured.folder / "log.jsonl")
    spent = sum(line["flops"] for line in log)
    assert 0.8 * 19.5 * each < spent < 1.1 * 19.5 * each
    assert log[-1]["epoch"] > 1
    tokens = {line["tokens"] for line in log}
    assert len(tokens) > 1, "operations are those of the texts"


def test_a_budget_below_a_step_is_refused(make: Callable[..., TrainingSpec]) -> None:
    spec = make("lora", budget=1.0)
    with pytest.raises(HarnessError, match=r"A budget of 1 FLOP is below one step, which takes \d"):
        spec.recipe.train(spec)


def test_adapters_and_a_budget_go_on_after_a_kill(make: Callable[..., TrainingSpec]) -> None:
    settings = {"budget": 3e8, "gradient_checkpointing": True}
    undisturbed = trained(make("lora", name="whole", **settings))
    spec = make("lora", name="cut", **settings)
    kill_at(spec, 3)
    found = trained(spec)
    assert len(read_log(spec.folder / "log.jsonl")) > 4
    assert all(torch.equal(found[name], one) for name, one in undisturbed.items())


def test_the_code_s_models_cut_texts_at_75_tokens(
    make: Callable[..., TrainingSpec], backbone: Artifact
) -> None:
    spec = make("lora", "code", evaluation_length=20)
    planned = spec.recipe.plan(backbone, spec.data, seed=7)  # type: ignore[attr-defined]
    trained(spec)
    assert describe(spec.output).max_length == planned.description.max_length == 20
    assert RECIPES["lora"].settings["code"].evaluation_length == 75
    assert RECIPES["lora"].settings["code"].tokens_per_pair == 14 + 64


# Facts, and bad input


def test_numbers_are_those_of_the_paper() -> None:
    for entry in RECIPES.values():
        one = entry.settings[""]
        assert isinstance(one, EfficientSettings)
        assert (one.batch_size, one.max_length, one.scale, one.weight_decay) == (1024, 75, 40.0, 0.1)
        assert (one.warmup, one.schedule, one.clip, one.precision) == (0.1, "cosine", 0.0, "float32")
        assert entry.settings["text"].schedule == "cosine_to_tenth"
    assert (RECIPES["lora"].settings[""].rank, RECIPES["lora"].settings[""].lora_alpha) == (32, 8)


@pytest.mark.parametrize(
    ("method", "settings", "said"),
    [
        ("full", {"budget": 0.0}, "budget is 0.0"),
        ("full", {"learning_rate": -1.0}, "learning_rate is -1.0"),
        ("full", {"tokens_per_pair": 0}, "tokens_per_pair is 0"),
        ("lora", {"rank": 0}, "rank is 0"),
        ("freeze", {"frozen": "some"}, "frozen is some"),
        ("freeze", {"frozen": "1"}, "frozen is 1"),
    ],
)
def test_settings_that_no_training_can_have(method: str, settings: dict[str, Any], said: str) -> None:
    entry = RECIPES[method]
    with pytest.raises(UsageError, match=said):
        entry.open("", replace(entry.settings[""], **settings))


def test_what_a_backbone_has_not_is_named(make: Callable[..., TrainingSpec], backbone: Artifact) -> None:
    third = make("freeze", frozen="1/7")
    with pytest.raises(UsageError, match="frozen is 1/7, which is not a whole number of"):
        third.recipe.plan(backbone, third.data, seed=7)  # type: ignore[attr-defined]
    nowhere = make("lora", lora_modules=("query_key_value",))
    with pytest.raises(UsageError, match="No dense layer of the backbone is called query_key_value"):
        nowhere.recipe.train(nowhere)
    both = make("full", budget=1e9, max_steps=3)
    with pytest.raises(UsageError, match="budget and max_steps both choose"):
        both.recipe.plan(backbone, both.data, seed=7)  # type: ignore[attr-defined]
    assert isinstance(RECIPES["freeze"].settings[""], FreezeSettings)


def test_one_result_has_one_spelling_of_its_settings() -> None:
    freeze, lora, full = RECIPES["freeze"], RECIPES["lora"], RECIPES["full"]

    def identity(entry: Any, **settings: Any) -> Any:
        made = entry.open("", replace(entry.settings[""], **settings))
        return made.settings.identity

    assert identity(freeze, frozen="0.5") == identity(freeze, frozen="3/6") == identity(freeze)
    assert identity(freeze, frozen="1/3") != identity(freeze)
    assert identity(lora, lora_modules=("b", "a", "b")) == identity(lora, lora_modules=("a", "b"))
    assert identity(full, gradient_checkpointing=True) == identity(full)
