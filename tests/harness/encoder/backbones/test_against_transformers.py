"""The families that transformers knows give its numbers, through our network."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import tiny
from harness.core.errors import ModelError
from harness.encoder import backbones
from harness.encoder.network.model import load_network
from tiny_networks import batch, means, texts

LENGTHS = (150, 3, 77, 150, 90, 1)

BIASES = ("norm_bias", "attention_bias", "mlp_bias", "classifier_bias", "decoder_bias")

MODERN = {"local_attention": 8, "hidden_activation": "silu", "classifier_activation": "relu"}

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("bert", {}),
    "bert-variant": ("bert", {"hidden_act": "relu", "type_vocab_size": 3, "layer_norm_eps": 1e-3}),
    "roberta": ("roberta", {"hidden_act": "relu"}),
    "xlm-roberta": ("roberta", {"model_type": "xlm-roberta", "pad_token_id": 3}),
    "camembert": ("roberta", {"model_type": "camembert", "pad_token_id": 1}),
    "distilbert": ("distilbert", {"activation": "relu"}),
    "modernbert": ("modernbert", {"local_attention": 32}),
    "modernbert-biases": ("modernbert", {**MODERN, **dict.fromkeys(BIASES, True)}),
    "eurobert": ("eurobert", {"num_key_value_heads": 2}),
    "eurobert-biases": ("eurobert", {"head_dim": 16, "mlp_bias": True, "attention_bias": True}),
    "eurobert-tied": ("eurobert", {"tie_word_embeddings": True}),
}

OF_TASKS = ("classifier_", "qa_", "seq_classif_")
"""What the names of dropouts in the heads of tasks begin with."""


def config(kind: str, **changes: Any) -> dict[str, Any]:
    name, own = MODELS[kind]
    family = backbones.list_backbones()[name].family
    assert family is not None
    return tiny.config(family, **{"max_position_embeddings": 160, **own, **changes})


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The same weights in transformers' class and in our network, and a batch for both."""

    reference: Any
    ours: Any
    batch: dict[str, Any]

    @property
    def real(self) -> Tensor:
        return self.batch["attention_mask"].bool()

    def both(self, **more: Any) -> Iterator[Any]:
        for model in (self.reference, self.ours):
            yield model(**self.batch, **more)


def pair(content: dict[str, Any], folder: Path, *, head: bool = False) -> Pair:
    from transformers import CONFIG_MAPPING, AutoModel, AutoModelForMaskedLM

    torch.manual_seed(0)
    kind: Any = AutoModelForMaskedLM if head else AutoModel
    reference = kind.from_config(CONFIG_MAPPING[content["model_type"]].from_dict(content))
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter += torch.randn_like(parameter) * 0.2
    reference.eval().save_pretrained(folder)
    found = load_network(folder, backbones.find_family(content), dtype=torch.float32, head=head)
    assert found.ignored == {}
    pad = content["pad_token_id"]
    return Pair(reference=reference, ours=found.model, batch=batch(texts(LENGTHS, pad), pad))


@pytest.mark.parametrize("kind", MODELS)
def test_the_last_hidden_state_is_the_same(kind: str, tmp_path: Path) -> None:
    models = pair(config(kind), tmp_path)
    theirs, ours = models.both()
    assert theirs.last_hidden_state[models.real].std() > 0.1
    assert (theirs.last_hidden_state - ours.last_hidden_state)[models.real].abs().max() <= 1e-4
    if "pooler_output" in theirs:
        assert (theirs.pooler_output - ours.pooler_output).abs().max() <= 1e-4


@pytest.mark.parametrize("kind", MODELS)
def test_every_gradient_is_the_same(kind: str, tmp_path: Path) -> None:
    models = pair(config(kind), tmp_path)
    for out in models.both():
        torch.manual_seed(2)
        hidden = out.last_hidden_state[models.real]
        loss = (hidden * torch.randn_like(hidden)).sum()
        (loss + out.pooler_output.sum() if "pooler_output" in out else loss).backward()
    theirs = {name: p.grad for name, p in models.reference.named_parameters()}
    ours = {models.ours.published.theirs(name): p.grad for name, p in models.ours.named_parameters()}
    assert set(theirs) == set(ours)
    floor = 1e-3 * max(grad.norm() for grad in theirs.values())
    errors = {n: (theirs[n] - ours[n]).norm() / max(theirs[n].norm(), floor) for n in theirs}
    assert max(errors.values()) <= 1e-3, errors


@pytest.mark.parametrize("kind", MODELS)
def test_the_masked_language_head_is_the_same(kind: str, tmp_path: Path) -> None:
    tied = {"tie_word_embeddings": True} if kind == "camembert" else {}  # its config has no default
    models = pair(config(kind, **tied), tmp_path, head=True)
    labels = models.batch["input_ids"].where(models.real, -100)
    theirs, ours = models.both(labels=labels)
    assert theirs.logits[models.real].std() > 0.1
    assert (theirs.logits - ours.logits)[models.real].abs().max() <= 1e-4
    assert ours.loss.item() == pytest.approx(theirs.loss.item(), rel=1e-5)


def test_a_config_that_says_nothing_of_tying_is_tied(tmp_path: Path) -> None:
    """As CamemBERT's: transformers 5.3 then leaves the decoder with fresh weights."""
    from transformers import AutoModelForMaskedLM

    models = pair(config("camembert", tie_word_embeddings=True), tmp_path, head=True)
    written = json.loads((tmp_path / "config.json").read_text())
    del written["tie_word_embeddings"]
    (tmp_path / "config.json").write_text(json.dumps(written))
    ours = load_network(tmp_path, backbones.find_family(written), dtype=torch.float32, head=True).model
    ours.save_pretrained(tmp_path / "saved")
    plain = AutoModelForMaskedLM.from_pretrained(tmp_path / "saved").eval()
    expected, *others = (m(**models.batch).logits[models.real] for m in (models.reference, ours, plain))
    assert all((expected - other).abs().max() <= 1e-4 for other in others)


@pytest.mark.parametrize(
    ("kind", "written", "thetas"),
    [
        ("modernbert", {"global_rope_theta": 5e4, "local_rope_theta": 7e3}, (5e4, 7e3)),
        ("modernbert", {}, (1.6e5, 1e4)),
        ("eurobert", {"rope_theta": 5e5, "rope_scaling": None}, (5e5, None)),
        ("eurobert", {"rope_parameters": {"rope_type": "default", "rope_theta": 3e4}}, (3e4, None)),
    ],
)
def test_rotary_bases_are_read_in_the_old_and_the_new_form(
    kind: str, written: dict[str, Any], thetas: tuple[float, float | None]
) -> None:
    content = config(kind, **written)
    family = backbones.find_family(content)
    assert family is not None
    shape = tiny.read_config(content, family)[1]
    assert (shape.rotary_theta, shape.rotary_theta_local) == thetas


@pytest.mark.parametrize("kind", MODELS)
def test_dropout_falls_in_the_same_places(kind: str, tmp_path: Path) -> None:
    """A dropout of 1 is not random: whatever it is applied to becomes 0."""
    full = pair(config(kind), tmp_path).reference.config.to_dict()
    names = [n for n in full if n.endswith(tiny.DROPOUTS) and not n.startswith(OF_TASKS)]
    for name in names:
        models = pair({**config(kind), **dict.fromkeys(names, 0.0), name: 1.0}, tmp_path)
        models.reference.train()
        models.ours.train()
        theirs, ours = models.both()
        off = (theirs.last_hidden_state - ours.last_hidden_state)[models.real].abs().max()
        assert off <= 1e-4, name
    assert names


def test_token_types_and_given_embeddings_count(tmp_path: Path) -> None:
    models = pair(config("bert"), tmp_path)
    for name in ("input_ids", "inputs_embeds"):
        given = torch.randn(len(LENGTHS), max(LENGTHS), 32) if name == "inputs_embeds" else models.batch[name]
        types = torch.randint(0, 2, given.shape[:2])
        mask = models.batch["attention_mask"]
        asked = {name: given, "token_type_ids": types, "attention_mask": mask}
        theirs, ours = (m(**asked).last_hidden_state for m in (models.reference, models.ours))
        assert (theirs - ours)[models.real].abs().max() <= 1e-4


@pytest.mark.parametrize("kind", ["roberta", "xlm-roberta", "camembert"])
def test_the_rows_of_robertas_positions_start_behind_that_of_the_padding(kind: str, tmp_path: Path) -> None:
    content = config(kind, pad_token_id=3, max_position_embeddings=154)
    assert pair(content, tmp_path).ours.shape.max_position_embeddings == 150 == max(LENGTHS)
    shorter = pair({**content, "max_position_embeddings": 153}, tmp_path)
    with pytest.raises(ModelError, match="A text has 150 tokens, and the model has positions for 149"):
        shorter.ours(**shorter.batch)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("bert", {"is_decoder": True}),
        ("bert", {"is_decoder": True, "add_cross_attention": True}),
        ("bert", {"position_embedding_type": "relative_key_query"}),
        ("bert", {"alibi_starting_size": 512}),
        ("bert", {"hidden_act": {"name": "gelu"}}),
        ("bert", {"tie_word_embeddings": False}),
        ("roberta", {"is_decoder": True}),
        ("roberta", {"position_embedding_type": "relative_key"}),
        ("distilbert", {"activation": None}),
        ("modernbert", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}),
        ("modernbert", {"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 2.0}}}),
        ("modernbert", {"hidden_activation": None}),
        ("eurobert", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}),
        ("eurobert", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0}}),
        ("eurobert", {"hidden_act": None}),
    ],
)
def test_what_the_network_does_not_do_is_left_to_transformers(kind: str, change: dict[str, Any]) -> None:
    family = backbones.list_backbones()[kind].family
    assert family is not None
    assert family.holds(config(kind))
    assert not family.holds({**config(kind), **change})


PUBLISHED = {
    **{"bert-base": 109.5, "bert-large": 335.1, "minilm-l6": 22.7, "distilbert-base": 66.4},
    **{"roberta-base": 124.6, "roberta-large": 355.4, "xlm-roberta-base": 278.0, "xlm-roberta-large": 559.9},
    **{"modernbert-base": 149.0, "modernbert-large": 394.8},
    **{"eurobert-210m": 212.0, "eurobert-610m": 608.0, "eurobert-2.1b": 2106.0},
}
"""Millions of parameters without the head, as model cards and papers count them."""


@pytest.mark.parametrize("size", PUBLISHED)
def test_a_size_has_as_many_parameters_as_published(size: str) -> None:
    from transformers import AutoModel

    family, content = next(
        (entry.family, entry.family.sizes[size])
        for entry in backbones.list_backbones().values()
        if entry.family is not None and size in entry.family.sizes
    )
    config, _ = tiny.read_config(content, family)
    with torch.device("meta"):
        ours, reference = tiny.build(content, family), AutoModel.from_config(config)
    counted = sum(p.numel() for p in ours.parameters())
    assert counted == sum(p.numel() for p in reference.parameters())
    assert counted / 1e6 == pytest.approx(PUBLISHED[size], rel=0.01)


@pytest.mark.slow
def test_minilms_vectors_are_the_same_for_a_thousand_texts() -> None:
    from transformers import AutoModel, AutoTokenizer

    place = backbones.list_catalog_models()["minilm"].locate
    assert place is not None
    folder = Path(place())
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    reference = AutoModel.from_pretrained(folder).eval()
    ours = load_network(folder, backbones.list_backbones()["bert"].family, dtype=torch.float32).model
    written = _written(1000, list(tokenizer.get_vocab()))
    lowest = 1.0
    for start in range(0, len(written), 20):
        given = tokenizer(written[start : start + 20], padding=True, truncation=True, return_tensors="pt")
        with torch.inference_mode():
            first, second = (means(model, given) for model in (reference, ours))
        lowest = min(lowest, torch.cosine_similarity(first, second).min().item())
    assert lowest >= 0.999999


def _written(count: int, words: list[str]) -> list[str]:
    """Random words, the shortest text first: most have a few words, some of them hundreds."""
    choice = random.Random(0)
    lengths = sorted(min(200, int(choice.paretovariate(1.3) * 2)) for _ in range(count))
    return [" ".join(choice.choices(words, k=length)) for length in lengths]


@pytest.mark.parametrize("kind", ["roberta", "xlm-roberta", "bert"])
def test_a_padding_token_within_a_text_counts_as_the_authors_count_it(kind: str, tmp_path: Path) -> None:
    """A text may spell it out; RoBERTa's positions leave such a token out."""
    models = pair(config(kind), tmp_path)
    models.batch["input_ids"][0, 5] = models.ours.shape.pad_token_id
    models.batch["input_ids"][2, :2] = models.ours.shape.pad_token_id
    theirs, ours = models.both()
    assert (theirs.last_hidden_state - ours.last_hidden_state)[models.real].abs().max() <= 1e-4
