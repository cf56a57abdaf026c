"""Pseudo-perplexities by hand and against transformers, on networks of a few thousand parameters."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, GPTNeoXConfig, GPTNeoXForCausalLM

import tiny
from harness.core.encoding import Settings
from harness.core.errors import DataError, ModelError
from harness.core.types import Artifact
from harness.encoder.folder.description import describe
from harness.encoder.resolved_encoding import resolve_encoding
from suites._perplexity import (
    LanguageModel,
    TextLosses,
    compute_masked_losses,
    estimate_median_interval,
    load_language_model,
    measure_text,
)

SENTENCE = "the cat sat on the mat, the query of a river is 42! "


def load(
    folder: Path, *, left_to_right: bool = False, allow: tuple[str, ...] = (), **settings: Any
) -> LanguageModel:
    artifact = Artifact(
        name="tiny", folder=folder, key="a" * 64, weights="b" * 64, source=str(folder), allow=allow
    )
    encoding = resolve_encoding(describe(folder), Settings(**settings))
    return load_language_model(artifact, encoding, device="cpu", left_to_right=left_to_right)


def write_decoder(folder: Path) -> Path:
    torch.manual_seed(0)
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    config = GPTNeoXConfig(vocab_size=160, max_position_embeddings=64, initializer_range=0.3, **small)
    GPTNeoXForCausalLM(config).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


def draw_texts(count: int, length: int) -> list[str]:
    draw = np.random.default_rng(1)
    words = np.array([*SENTENCE.split(), "engine", "stone"])
    return [" ".join(draw.choice(words, length)) for _ in range(count)]


class _TwoTokens:
    """A language of two tokens, 1 and 2: a token equals the one before it with three chances of four."""

    device = "cpu"

    def __call__(self, *, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        before = torch.roll(input_ids, 1, dims=1)
        chances = torch.full((*input_ids.shape, 3), 0.25)
        chances[..., 0] = 0.0
        chances.scatter_(2, before.clamp(max=2)[..., None], 0.75)
        return SimpleNamespace(logits=chances.log())


def test_two_tokens_by_hand() -> None:
    """Of 1 1 2 the second token costs -ln 3/4 and the third -ln 1/4; the first is not counted."""
    tokenizer: Any = SimpleNamespace(mask_token_id=0, pad_token_id=0)
    model = LanguageModel(network=_TwoTokens(), tokenizer=tokenizer, batch_tokens=4)
    ids, places = np.array([1, 1, 2]), np.array([1, 2])
    losses = compute_masked_losses(model, ids, places)
    assert losses.tolist() == pytest.approx([math.log(4 / 3), math.log(4)], abs=1e-6)
    measured = TextLosses(ids=ids, places=places, losses=losses, count=2, characters=4)
    assert measured.perplexity == pytest.approx(4 / math.sqrt(3), abs=1e-6)
    # log2 of 4/3 · 4, for four characters.
    assert measured.bits_per_character == pytest.approx(math.log2(16 / 3) / 4, abs=1e-6)


def test_a_network_of_two_tokens_by_hand(tmp_path: Path) -> None:
    """Without weights the decoder's bias alone decides: of 5 and 6 with biases of ln 3 and 0, 3/4 and 1/4."""
    folder = tiny.folder(tiny.families()["bert"], tmp_path, head=True)
    tensors = {
        name: torch.zeros_like(tensor) for name, tensor in load_file(folder / "model.safetensors").items()
    }
    bias = torch.full((160,), -1e4)
    bias[5], bias[6] = math.log(3), 0.0
    tensors["cls.predictions.bias"] = bias
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    text = measure_text(load(folder), "the cat", length=4, places=None)
    assert text.perplexity == pytest.approx(math.sqrt(4 / 3 * 4), abs=1e-6)
    assert (text.places.tolist(), text.characters) == ([1, 2], 7)


@pytest.mark.parametrize("family", ["bert", "modernbert", "neobert"])
def test_packed_copies_equal_single_ones_and_transformers(family: str, tmp_path: Path) -> None:
    folder = tiny.folder(tiny.families()[family], tmp_path, head=True)
    model = load(folder)
    text = measure_text(model, SENTENCE * 5, length=60, places=16)
    packed, places = text.losses, text.places
    single = compute_masked_losses(replace(model, batch_tokens=1), text.ids, places)
    assert (len(text.ids), packed.std() > 0.5) == (60, True)
    assert abs(packed - single).max() <= 1e-4
    if family == "neobert":  # transformers has no class of it
        return
    theirs = AutoModelForMaskedLM.from_pretrained(folder).eval()
    ids = torch.from_numpy(text.ids).repeat(16, 1)
    ids[range(16), places] = model.tokenizer.mask_token_id
    with torch.no_grad():
        logits = theirs(input_ids=ids).logits[range(16), places].log_softmax(-1)
    assert packed == pytest.approx(-logits[range(16), text.ids[places]].numpy(), abs=1e-4)


@pytest.mark.slow
def test_all_places_lie_within_the_interval_of_64(tmp_path: Path) -> None:
    """20 texts: the median over all places against that of 64 of them, and its interval."""
    model = load(tiny.folder(tiny.families()["bert"], tmp_path, head=True, max_position_embeddings=160))
    texts = draw_texts(20, 160)
    drawn, every = (
        [measure_text(model, text, length=160, places=places) for text in texts] for places in (64, None)
    )
    low, high = estimate_median_interval(drawn)
    median = float(np.median([text.perplexity for text in every]))
    assert low < median < high < 2 * low
    assert estimate_median_interval(every) == pytest.approx((median, median))
    assert all(set(few.places) <= set(all_.places) for few, all_ in zip(drawn, every, strict=True))


def test_a_decoder_is_read_from_left_to_right(tmp_path: Path) -> None:
    folder = write_decoder(tmp_path)
    model = load(folder, left_to_right=True)
    text = measure_text(model, SENTENCE * 3, length=40, places=4)
    ids = torch.from_numpy(text.ids)[None]
    with torch.no_grad():
        logits = AutoModelForCausalLM.from_pretrained(folder).eval()(input_ids=ids).logits[0]
    losses = -logits[:-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
    assert len(text.losses) == text.count < 40
    assert text.losses == pytest.approx(losses[text.places - 1].numpy(), abs=1e-4)


def test_a_scaled_model_reads_beyond_its_positions(tmp_path: Path) -> None:
    folder = tiny.folder(tiny.families()["modernbert"], tmp_path, head=True)
    model = load(folder, max_length=120, rope_scaling="yarn:2")
    text = measure_text(model, SENTENCE * 9, length=120, places=3)
    assert len(text.ids) == 120
    with pytest.raises(ModelError, match="has 120 tokens, and the model has positions for 64"):
        measure_text(load(folder), SENTENCE * 9, length=120, places=3)


def test_a_model_without_the_head_is_refused(tmp_path: Path) -> None:
    bare = tiny.folder(tiny.families()["bert"], tmp_path / "bare")
    with pytest.raises(ModelError, match="The weights of tiny lack a head of a language model"):
        load(bare)
    headless = tiny.folder(tiny.families()["neobert"], tmp_path / "headless")
    with pytest.raises(ModelError, match="lack a head of a language model"):
        load(headless)
    decoder = write_decoder(tmp_path / "decoder")
    with pytest.raises(ModelError, match="transformers has no masked-language head for the family of tiny"):
        load(decoder)
    with pytest.raises(ModelError, match="transformers has no decoder for the family of tiny"):
        load(bare, left_to_right=True)
    weights = {n: t for n, t in load_file(decoder / "model.safetensors").items() if "embed_out" not in n}
    save_file(weights, decoder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="lack a head of a language model"):
        load(decoder, left_to_right=True)


def test_tensors_that_a_user_allows_may_have_no_place(tmp_path: Path) -> None:
    folder = write_decoder(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}))
    with pytest.raises(ModelError, match="tensors of further layers have no place"):
        load(folder, left_to_right=True)
    text = measure_text(
        load(folder, left_to_right=True, allow=("tensors=gpt_neox.layers.1.*",)), SENTENCE, length=9, places=1
    )
    assert np.isfinite(text.losses).all()


def test_a_tokenizer_without_a_mask_is_refused(tmp_path: Path) -> None:
    folder = tiny.folder(tiny.families()["bert"], tmp_path, head=True)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "mask_token": None}))
    with pytest.raises(ModelError, match="The tokenizer of tiny has no mask token"):
        load(folder)


def test_a_short_text_is_refused(tmp_path: Path) -> None:
    model = load(tiny.folder(tiny.families()["bert"], tmp_path, head=True))
    with pytest.raises(DataError, match="A text has 4 tokens of the model, fewer than 20"):
        measure_text(model, "the cat", length=20, places=1)
