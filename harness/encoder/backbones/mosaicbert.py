"""MosaicBERT (Portes et al. 2023), of model type "bert" but with ALiBi and GeGLU."""

from __future__ import annotations

from harness.encoder.architecture import Architecture, BackboneEntry, Config, Family, Head, Names
from harness.encoder.backbones import bert

LAYER = "encoder.layer.{n}"

ENCODER = {
    "embeddings.tokens": "embeddings.word_embeddings",
    "embeddings.types": "embeddings.token_type_embeddings",
    "embeddings.norm": "embeddings.LayerNorm",
    "layers.{n}.attention.qkv": f"{LAYER}.attention.self.Wqkv",
    "layers.{n}.attention.out": f"{LAYER}.attention.output.dense",
    "layers.{n}.attention_norm": f"{LAYER}.attention.output.LayerNorm",
    "layers.{n}.mlp.up": f"{LAYER}.mlp.gated_layers",
    "layers.{n}.mlp.down": f"{LAYER}.mlp.wo",
    "layers.{n}.mlp_norm": f"{LAYER}.mlp.layernorm",
    "pooler.dense": "pooler.dense",
}

HEAD = {name: bert.HEAD[name] for name in ("head.dense", "head.norm", "head.decoder")}

IGNORED = {r"classifier\..*": "it belongs to a classification head"}

DEFAULTS: Config = {
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.0,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
}
"""Defaults of a config.json, from the authors' BertConfig over that of transformers."""

BASE = {
    "model_type": "bert",
    "alibi_starting_size": 512,
    "vocab_size": 30_528,
    **bert.BASE_SIZE,
}

LARGE = {**BASE, **bert.LARGE_SIZE}


def _parse_mosaicbert_config(config: Config) -> Architecture:
    full = {**DEFAULTS, **config}
    hidden = full["hidden_dropout_prob"]
    return Architecture.of_config(
        full,
        max_position_embeddings=max(full["max_position_embeddings"], full["alibi_starting_size"]),
        positions="alibi",
        token_types=full["type_vocab_size"],
        norm_eps=full["layer_norm_eps"],
        qkv="stacked",
        gated=True,
        gate_first=True,
        mlp_in_bias=False,
        embedding_dropout=hidden,
        attention_dropout=full["attention_probs_dropout_prob"],
        attention_out_dropout=hidden,
        mlp_dropout=hidden,
        pooler=True,
        # The authors' code fixes the eps of the head's norm, whatever the config says.
        head=Head(activation=full["hidden_act"], norm_eps=1e-12),
    )


def _is_mosaicbert(config: Config) -> bool:
    """Whether a config of type "bert" is of MosaicBERT."""
    return "alibi_starting_size" in config and not config.get("is_decoder")


BACKBONE = BackboneEntry(
    name="mosaicbert",
    summary="MosaicBERT: ALiBi in place of positions, GeGLU",
    family=Family(
        model_types=("bert",),
        only=_is_mosaicbert,
        shape=_parse_mosaicbert_config,
        names=Names(encoder=ENCODER, head=HEAD, prefix="bert.", ignored=IGNORED),
        sizes={"mosaicbert-base": BASE, "mosaicbert-large": LARGE},
        tokenizer="google-bert/bert-base-uncased",
        stands_for=("BertConfig", "BertModel"),
    ),
)
