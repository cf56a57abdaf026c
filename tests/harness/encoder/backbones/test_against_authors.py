"""The families transformers does not know, against what their authors' code gave (make_golden.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from authors import drawn
from harness.core.errors import ModelError
from harness.encoder import backbones
from harness.encoder.architecture import Architecture, Config, Family
from harness.encoder.backbones import gte, mosaicbert, neobert, nomic_bert
from harness.encoder.network.model import load_network, resolve_network_config

GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.json"))
NEAR = {"atol": 2e-5, "rtol": 0}
INPUTS = ("input_ids", "attention_mask", "token_type_ids")

Golden = dict[str, Any]


def opened(name: str) -> Golden:
    golden: Golden = json.loads((GOLDEN / f"{name}.json").read_text())
    return golden


def checkpoint(folder: Path, golden: Golden, *, prefix: str = "") -> Path:
    """A folder as the authors publish one; only tensors under `prefix`, without it."""
    weights = drawn(golden["tensors"], golden["seed"])
    kept = {name.removeprefix(prefix): t for name, t in weights.items() if name.startswith(prefix)}
    (folder / "config.json").write_text(json.dumps(golden["config"]))
    save_file(kept, folder / "model.safetensors")
    return folder


def family(golden: Golden) -> Family:
    found = backbones.find_family(golden["config"])
    assert found is not None
    return found


def loaded(folder: Path, golden: Golden, *, head: bool = False, prefix: str = "", **changes: Any) -> Any:
    place = checkpoint(folder, golden, prefix=prefix)
    return load_network(place, family(golden), dtype=torch.float32, head=head, changes=changes)


def given(batch: Golden) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(batch[name]) for name in INPUTS if name in batch}


def saved_shape(found: Any, folder: Path) -> Architecture:
    found.model.save_pretrained(folder)
    return resolve_network_config(folder, None)[1]


@pytest.mark.parametrize("name", NAMES)
def test_states_and_scores_are_those_of_the_authors_code(name: str, tmp_path: Path) -> None:
    golden = opened(name)
    found = loaded(tmp_path, golden, head=True)
    assert found.ignored == {}
    for batch in golden["batches"]:
        real = torch.tensor(batch["attention_mask"]).bool()
        with torch.no_grad():
            out = found.model(**given(batch), output_hidden_states=True)
        torch.testing.assert_close(
            out.hidden_states[-1][real], torch.tensor(batch["hidden"]), atol=1e-5, rtol=0
        )
        scores = out.logits[real][:, :: batch["every"]]
        torch.testing.assert_close(scores, torch.tensor(batch["logits"]), **NEAR)


@pytest.mark.parametrize("name", NAMES)
def test_the_encoder_loads_from_a_checkpoint_with_and_without_a_head(name: str, tmp_path: Path) -> None:
    golden = opened(name)
    with_head = loaded(tmp_path, golden)
    prefix = family(golden).names.prefix  # type: ignore[union-attr]
    without = loaded(tmp_path, golden, prefix=prefix)
    assert all("masked-language head" in reason for reason in with_head.ignored.values())
    assert len(with_head.ignored) == sum(not n.startswith(prefix) for n in golden["tensors"])
    assert without.ignored == {}
    batch = given(golden["batches"][0])
    with torch.no_grad():
        same = [model.model(**batch).last_hidden_state for model in (with_head, without)]
    torch.testing.assert_close(same[0], same[1], atol=0, rtol=0)


def test_with_dynamic_scaling_a_long_text_is_encoded_in_a_batch_as_it_is_alone(tmp_path: Path) -> None:
    golden = opened("nomic_bert_dynamic")
    rows = {name: [torch.tensor(batch[name][0]) for batch in golden["batches"]] for name in INPUTS}
    padded = {name: torch.nn.utils.rnn.pad_sequence(found, batch_first=True) for name, found in rows.items()}
    with torch.no_grad():
        out = loaded(tmp_path, golden).model(**padded)
    for row, batch in zip(out.last_hidden_state, golden["batches"], strict=True):
        alone = torch.tensor(batch["hidden"])
        torch.testing.assert_close(row[: len(alone)], alone, **NEAR)


def test_dynamic_scaling_is_an_option_at_load_time(tmp_path: Path) -> None:
    golden = opened("nomic_bert_dynamic")
    config = {name: value for name, value in golden["config"].items() if name != "rotary_scaling_factor"}
    longest = golden["batches"][-1]
    plain = loaded(tmp_path, {**golden, "config": config})
    with pytest.raises(ModelError, match="40 tokens, and the model has positions for 16"):
        plain.model(**given(longest))
    scaling = {"kind": "dynamic", "factor": 2, "trained": 16}
    changes = {"rotary_scaling": scaling, "max_position_embeddings": 64}
    scaled = loaded(tmp_path, {**golden, "config": config}, **changes)
    with torch.no_grad():
        found = scaled.model(**given(longest)).last_hidden_state[0]
    torch.testing.assert_close(found, torch.tensor(longest["hidden"]), **NEAR)
    assert saved_shape(scaled, tmp_path / "saved") == scaled.model.shape


def test_a_checkpoint_without_a_pooler_is_saved_as_one(tmp_path: Path) -> None:
    found = loaded(tmp_path, opened("mosaicbert"))
    assert found.model.shape.pooler is False
    assert saved_shape(found, tmp_path / "saved") == found.model.shape


@pytest.mark.parametrize(
    ("base", "changes", "positions"),
    [
        (nomic_bert.BASE, {}, 2048),
        (nomic_bert.BASE, {"n_positions": 8192}, 2048),
        (nomic_bert.BASE, {"n_positions": 512}, 512),
        (nomic_bert.BASE, {"rotary_scaling_factor": 2}, 8192),
        (gte.BASE, {}, 8192),
        (gte.BASE, {"rope_scaling": {"type": "ntk", "factor": 2.0}}, 16_384),
        (gte.BASE, {"rope_parameters": {"type": "ntk", "factor": 2.0}}, 16_384),
        (neobert.BASE, {}, 4096),
    ],
)
def test_the_most_tokens_are_those_the_authors_name(base: Config, changes: Config, positions: int) -> None:
    config = {**base, **changes}
    shape = backbones.find_family(config).shape  # type: ignore[union-attr]
    assert shape is not None
    assert shape(config).max_position_embeddings == positions


@pytest.mark.parametrize(
    "config",
    [
        {**nomic_bert.BASE, "prenorm": True},
        {**nomic_bert.BASE, "rotary_emb_fraction": 0.5},
        {**nomic_bert.BASE, "activation_function": "gelu", "num_experts": 8},
        {"model_type": "nomic_bert", "hidden_size": 768},
        {**gte.BASE, "logn_attention_scale": True},
        {**gte.BASE, "layer_norm_type": "rms_norm"},
        {**gte.BASE, "rope_scaling": {"type": "yarn", "factor": 2.0}},
        {**gte.BASE, "position_embedding_type": "absolute"},
        {**neobert.BASE, "rms_norm": False},
        {**neobert.BASE, "hidden_act": "GELU"},
        {**mosaicbert.BASE, "is_decoder": True},
    ],
)
def test_a_config_of_what_a_family_does_not_have_is_none_of_it(config: Config) -> None:
    assert backbones.find_family(config) is None


def test_mosaicbert_is_told_from_bert_by_its_alibi() -> None:
    plain = {name: value for name, value in mosaicbert.BASE.items() if name != "alibi_starting_size"}
    assert backbones.find_family(mosaicbert.BASE) is mosaicbert.BACKBONE.family
    assert backbones.find_family(plain) is backbones.list_backbones()["bert"].family
