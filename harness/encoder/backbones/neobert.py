"""NeoBERT (Le Breton et al. 2025)."""

from __future__ import annotations

from harness.encoder.architecture import NO_BIASES, Architecture, BackboneEntry, Config, Family, Head, Names

LAYER = "transformer_encoder.{n}"

ENCODER = {
    "embeddings.tokens": "encoder",
    "layers.{n}.attention_norm": f"{LAYER}.attention_norm",
    "layers.{n}.attention.qkv": f"{LAYER}.qkv",
    "layers.{n}.attention.out": f"{LAYER}.wo",
    "layers.{n}.mlp_norm": f"{LAYER}.ffn_norm",
    "layers.{n}.mlp.up": f"{LAYER}.ffn.w12",
    "layers.{n}.mlp.down": f"{LAYER}.ffn.w3",
    "final_norm": "layer_norm",
}

HEAD = {"head.decoder": "decoder"}

COMPUTED = {r"(model\.)?freqs_cis": "it is computed from the positions"}

IGNORED = {
    r"(dense|classifier)\..*": "it belongs to a classification head",
}

REQUIRED: Config = {"hidden_act": "swiglu", "rms_norm": True, "rope": True, "ngpt": False}
"""The settings that the authors' ablations vary, with the values of the released model."""

DEFAULTS: Config = {
    "vocab_size": 30_522,
    "norm_eps": 1e-6,
    "max_length": 1024,
    "decoder_init_range": 0.02,
    "pad_token_id": 0,
}
"""Defaults of a config.json, from the hub's NeoBERTConfig."""

MULTIPLE = 8
"""The width inside the feed-forward part is a multiple of this."""

BASE = {
    "model_type": "neobert",
    "vocab_size": 30_522,
    "hidden_size": 768,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "norm_eps": 1e-5,
    "max_length": 4096,
}


def _parse_neobert_config(config: Config) -> Architecture:
    full = {**DEFAULTS, **config}
    # Three matrices of two thirds of the width have as many parameters as two of the whole width.
    inside = int(2 * full["intermediate_size"] / 3)
    return Architecture.of_config(
        full,
        intermediate_size=-(-inside // MULTIPLE) * MULTIPLE,
        max_position_embeddings=full["max_length"],
        positions="rotary",
        rotary_interleaved=True,
        norm="rms",
        norm_eps=full["norm_eps"],
        prenorm=True,
        embedding_norm=False,
        final_norm=True,
        qkv="by_head",
        activation="silu",
        gated=True,
        gate_first=True,
        **NO_BIASES,
        head=Head(dense=False, norm=False),
        tie_word_embeddings=False,
        # NeoBERT draws uniformly from plus or minus this range; its standard deviation is range / √3.
        initializer_range=full["decoder_init_range"] / 3**0.5,
    )


def _is_release_config(config: Config) -> bool:
    """Whether a config is of the released architecture, not of an ablation."""
    settings = {name: config.get(name, value) for name, value in REQUIRED.items()}
    return {**settings, "hidden_act": settings["hidden_act"].lower()} == REQUIRED and "hidden_size" in config


BACKBONE = BackboneEntry(
    name="neobert",
    summary="NeoBERT: 28 layers, rotary positions, SwiGLU, RMSNorm, up to 4,096 tokens",
    family=Family(
        model_types=("neobert",),
        only=_is_release_config,
        shape=_parse_neobert_config,
        names=Names(encoder=ENCODER, head=HEAD, prefix="model.", ignored=IGNORED, computed=COMPUTED),
        sizes={"neobert": BASE},
        stands_for=("NeoBERTConfig", "NeoBERT"),
    ),
)
