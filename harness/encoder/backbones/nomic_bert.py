"""NomicBERT (Nussbaum et al. 2024): nomic-bert-2048 and nomic-embed-text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.encoder.architecture import Architecture, BackboneEntry, Config, Family, Head, Names

LAYER = "encoder.layers.{n}"

ENCODER = {
    "embeddings.tokens": "embeddings.word_embeddings",
    "embeddings.types": "embeddings.token_type_embeddings",
    "embeddings.norm": "emb_ln",
    "layers.{n}.attention.qkv": f"{LAYER}.attn.Wqkv",
    "layers.{n}.attention.out": f"{LAYER}.attn.out_proj",
    "layers.{n}.attention_norm": f"{LAYER}.norm1",
    "layers.{n}.mlp.up": f"{LAYER}.mlp.fc11",
    "layers.{n}.mlp.gate": f"{LAYER}.mlp.fc12",
    "layers.{n}.mlp.down": f"{LAYER}.mlp.fc2",
    "layers.{n}.mlp_norm": f"{LAYER}.norm2",
}

HEAD = {
    "head.dense": "cls.predictions.transform.dense",
    "head.norm": "cls.predictions.transform.layer_norm",
    "head.decoder": "cls.predictions.decoder",
}

IGNORED = {
    r"(bert\.)?pooler\..*": "the authors' code pools without it",
    r"classifier\..*": "it belongs to a classification head",
}

GATES = {"swiglu": "silu", "geglu": "gelu", "glu": "sigmoid"}
"""The authors' names of gated activations, and the activation of the gate."""

FOREIGN = (
    "prenorm",
    "parallel_block",
    "use_rms_norm",
    "norm_mlp",
    "causal",
    "num_experts",
    "rotary_emb_scale_base",
    "rotary_head_dim",
)
"""Settings that, if on, define another network."""

DEFAULTS: Config = {
    "n_inner": None,
    "n_positions": 1024,
    "layer_norm_epsilon": 1e-5,
    "resid_pdrop": 0.1,
    "attn_pdrop": 0.1,
    "initializer_range": 0.02,
    "qkv_proj_bias": True,
    "mlp_fc1_bias": True,
    "mlp_fc2_bias": True,
    "rotary_emb_base": 10_000,
    "rotary_emb_interleaved": False,
    "rotary_scaling_factor": None,
    "max_trained_positions": 2048,
    "type_vocab_size": 2,
    "pad_vocab_size_multiple": 1,
    "pad_token_id": 0,
}
"""Defaults of a config.json, from the authors' NomicBertConfig over GPT2Config."""

MULTIPLE = 256
"""The width inside the feed-forward part is a multiple of this."""

FARTHEST = 4
"""The largest factor of dynamic scaling over the trained positions: 8,192 of 2,048, as in the authors'
work."""

BASE = {
    "model_type": "nomic_bert",
    "vocab_size": 30_528,
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "n_inner": 3072,
    "n_positions": 2048,
    "activation_function": "swiglu",
    "layer_norm_epsilon": 1e-12,
    "resid_pdrop": 0.0,
    "attn_pdrop": 0.0,
    "qkv_proj_bias": False,
    "mlp_fc1_bias": False,
    "mlp_fc2_bias": False,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_base": 1000,
}


def _parse_nomic_config(config: Config) -> Architecture:
    full = {**DEFAULTS, **config}
    width, act = full["n_embd"], full["activation_function"]
    positions, scaling = _parse_nomic_scaling(full)
    return Architecture.of_config(
        full,
        # The tensor has the rows of the padded vocabulary, the config the number of tokens.
        vocab_size=_round_size(full["vocab_size"], full["pad_vocab_size_multiple"]),
        hidden_size=width,
        num_hidden_layers=full["n_layer"],
        num_attention_heads=full["n_head"],
        # 8/3 of the width: three gated matrices then have the parameters of two of 4 times the width.
        intermediate_size=_round_size(full["n_inner"] or int(8 * width / 3), MULTIPLE),
        max_position_embeddings=positions,
        positions="rotary",
        token_types=full["type_vocab_size"],
        rotary_theta=full["rotary_emb_base"],
        rotary_interleaved=full["rotary_emb_interleaved"],
        rotary_scaling=scaling,
        norm_eps=full["layer_norm_epsilon"],
        qkv="stacked",
        activation=GATES[act],
        gated=True,
        qkv_bias=full["qkv_proj_bias"],
        attention_out_bias=full["qkv_proj_bias"],
        mlp_in_bias=full["mlp_fc1_bias"],
        mlp_out_bias=full["mlp_fc2_bias"],
        embedding_dropout=full["resid_pdrop"],
        attention_dropout=full["attn_pdrop"],
        attention_out_dropout=full["resid_pdrop"],
        mlp_out_dropout=full["resid_pdrop"],
        head=Head(
            dense_bias=full["mlp_fc1_bias"],
            activation="silu" if act == "swiglu" else "gelu",
            decoder_bias=full["mlp_fc1_bias"],
        ),
        pad_token_id=full["pad_token_id"] or 0,
    )


def _is_gated_encoder(config: Config) -> bool:
    """Whether a config is of the gated text encoder, not of a vision tower or a mixture of experts."""
    gated = "n_embd" in config and config.get("activation_function") in GATES
    is_fully_rotary = config.get("rotary_emb_fraction") == 1
    return gated and is_fully_rotary and not any(config.get(name) for name in FOREIGN)


def _round_size(size: int, of: int) -> int:
    return -(-size // of) * of


def _parse_nomic_scaling(full: Config) -> tuple[int, Mapping[str, Any] | None]:
    """The most tokens, and dynamic NTK where the config gives its factor."""
    named, trained = full["n_positions"], full["max_trained_positions"]
    if full["rotary_scaling_factor"]:
        scaling = {"kind": "dynamic", "factor": full["rotary_scaling_factor"], "trained": trained}
        return max(named, FARTHEST * trained), scaling
    # A config may name more positions than were trained; without scaling those do not count.
    return min(named, trained) if named > 0 else trained, None


BACKBONE = BackboneEntry(
    name="nomic_bert",
    summary="NomicBERT: rotary positions, SwiGLU, 2,048 tokens, or 8,192 with rotary_scaling_factor",
    family=Family(
        model_types=("nomic_bert",),
        only=_is_gated_encoder,
        shape=_parse_nomic_config,
        names=Names(encoder=ENCODER, head=HEAD, prefix="bert.", ignored=IGNORED),
        sizes={"nomic-bert-2048": BASE},
        stands_for=("NomicBertConfig", "NomicBertModel"),
    ),
)
