"""GTE's encoders (Zhang et al. 2024, mGTE), model type "new": GTE-MLM and the embedding models on it."""

from __future__ import annotations

from harness.encoder.architecture import Architecture, BackboneEntry, Config, Family, Head, Names
from harness.encoder.backbones import bert

LAYER = "encoder.layer.{n}"

ENCODER = {
    "embeddings.tokens": "embeddings.word_embeddings",
    "embeddings.types": "embeddings.token_type_embeddings",
    "embeddings.norm": "embeddings.LayerNorm",
    "layers.{n}.attention.qkv": f"{LAYER}.attention.qkv_proj",
    "layers.{n}.attention.query": f"{LAYER}.attention.q_proj",
    "layers.{n}.attention.key": f"{LAYER}.attention.k_proj",
    "layers.{n}.attention.value": f"{LAYER}.attention.v_proj",
    "layers.{n}.attention.out": f"{LAYER}.attention.o_proj",
    "layers.{n}.attention_norm": f"{LAYER}.attn_ln",
    "layers.{n}.mlp.up": f"{LAYER}.mlp.up_gate_proj",
    "layers.{n}.mlp.down": f"{LAYER}.mlp.down_proj",
    "layers.{n}.mlp_norm": f"{LAYER}.mlp_ln",
}

HEAD = {
    "head.dense": "lm_head.dense",
    "head.norm": "lm_head.norm",
    "head.decoder": "lm_head.decoder",
}

IGNORED = {
    r"(new\.)?pooler\..*": "it belongs to a classification head",
    r"(classifier|qa_outputs)\..*": "it belongs to a classification head",
}

DEFAULTS: Config = {
    "vocab_size": 30_528,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.0,
    "max_position_embeddings": 2048,
    "type_vocab_size": 1,
    "initializer_range": 0.02,
    "layer_norm_type": "layer_norm",
    "layer_norm_eps": 1e-12,
    "position_embedding_type": "rope",
    "rope_theta": 10_000.0,
    "pack_qkv": True,
    "logn_attention_scale": False,
    "tie_word_embeddings": True,
    "pad_token_id": 0,
}
"""Defaults of a config.json, from the authors' NewConfig."""

BASE = {
    "model_type": "new",
    **bert.BASE_SIZE,
    "max_position_embeddings": 8192,
    "rope_theta": 500_000.0,
}

LARGE = {
    **BASE,
    **bert.LARGE_SIZE,
    "rope_theta": 160_000.0,
}


def _parse_gte_config(config: Config) -> Architecture:
    full = {**DEFAULTS, **config}
    hidden = full["hidden_dropout_prob"]
    scaling = _parse_gte_scaling(full)
    positions = full["max_position_embeddings"] * (scaling["factor"] if scaling else 1)
    return Architecture.of_config(
        full,
        max_position_embeddings=int(positions),
        positions="rotary",
        token_types=full["type_vocab_size"],
        rotary_theta=full["rope_theta"],
        rotary_scaling=scaling,
        norm_eps=full["layer_norm_eps"],
        qkv="stacked" if full["pack_qkv"] else "split",
        activation=full["hidden_act"],
        gated=True,
        # The gate is the second half of up_gate_proj, which has no bias.
        gate_first=False,
        mlp_in_bias=False,
        embedding_dropout=hidden,
        attention_dropout=full["attention_probs_dropout_prob"],
        attention_out_dropout=hidden,
        mlp_dropout=hidden,
        mlp_out_dropout=hidden,
        head=Head(activation=full["hidden_act"]),
        tie_word_embeddings=full["tie_word_embeddings"],
        pad_token_id=full["pad_token_id"] or 0,
    )


def _is_rotary_gte(config: Config) -> bool:
    """Whether a config has rotary positions, LayerNorm, and no attention scaling by length."""
    full = {**DEFAULTS, **config}
    plain = (full["layer_norm_type"], full["position_embedding_type"]) == ("layer_norm", "rope")
    scaled = _read_scaling_field(full)
    is_supported = "factor" not in scaled or scaled.get("type") == "ntk"
    return plain and is_supported and "hidden_size" in config and not full["logn_attention_scale"]


def _read_scaling_field(full: Config) -> Config:
    """The scaling in the config, which transformers 5 writes under another name."""
    return full.get("rope_scaling") or full.get("rope_parameters") or {}


def _parse_gte_scaling(full: Config) -> Config | None:
    """Fixed NTK, which applies to every text: the table of positions is `factor` times as long."""
    scaling = _read_scaling_field(full)
    if scaling.get("factor", 1) <= 1:
        return None
    return {"kind": "ntk", "factor": scaling["factor"], "mixed": scaling.get("mixed_b")}


BACKBONE = BackboneEntry(
    name="gte",
    summary="GTE-MLM and GTE-v1.5: rotary positions, GeGLU, up to 8,192 tokens",
    family=Family(
        model_types=("new",),
        only=_is_rotary_gte,
        shape=_parse_gte_config,
        names=Names(encoder=ENCODER, head=HEAD, prefix="new.", ignored=IGNORED),
        sizes={"gte-en-mlm-base": BASE, "gte-en-mlm-large": LARGE},
        stands_for=("NewConfig", "NewModel"),
    ),
)
