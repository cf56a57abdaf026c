"""DistilBERT (Sanh et al. 2019): half of BERT's layers, without token types and pooler."""

from __future__ import annotations

from harness.encoder.architecture import Architecture, BackboneEntry, Config, Family, Head, Names

LAYER = "transformer.layer.{n}"

ENCODER = {
    "embeddings.tokens": "embeddings.word_embeddings",
    "embeddings.positions": "embeddings.position_embeddings",
    "embeddings.norm": "embeddings.LayerNorm",
    "layers.{n}.attention.query": f"{LAYER}.attention.q_lin",
    "layers.{n}.attention.key": f"{LAYER}.attention.k_lin",
    "layers.{n}.attention.value": f"{LAYER}.attention.v_lin",
    "layers.{n}.attention.out": f"{LAYER}.attention.out_lin",
    "layers.{n}.attention_norm": f"{LAYER}.sa_layer_norm",
    "layers.{n}.mlp.up": f"{LAYER}.ffn.lin1",
    "layers.{n}.mlp.down": f"{LAYER}.ffn.lin2",
    "layers.{n}.mlp_norm": f"{LAYER}.output_layer_norm",
}

HEAD = {
    "head.dense": "vocab_transform",
    "head.norm": "vocab_layer_norm",
    "head.decoder": "vocab_projector",
}

COMPUTED = {r"(distilbert\.)?embeddings\.position_ids": "it counts the positions"}

IGNORED = {
    r"(pre_classifier|classifier|qa_outputs)\..*": "it belongs to the head of a task",
}

DEFAULTS: Config = {
    "vocab_size": 30_522,
    "dim": 768,
    "n_layers": 6,
    "n_heads": 12,
    "hidden_dim": 3072,
    "max_position_embeddings": 512,
    "activation": "gelu",
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "initializer_range": 0.02,
    "tie_word_embeddings": True,
    "pad_token_id": 0,
}
"""Defaults of a config.json, from transformers' DistilBertConfig."""

BASE = {
    "model_type": "distilbert",
    "vocab_size": 30_522,
    "dim": 768,
    "n_layers": 6,
    "n_heads": 12,
    "hidden_dim": 3072,
}


def _parse_distilbert_config(config: Config) -> Architecture:
    """The architecture of a DistilBertConfig, without dropout after attention."""
    return Architecture.of_config(
        config,
        hidden_size=config["dim"],
        num_hidden_layers=config["n_layers"],
        num_attention_heads=config["n_heads"],
        intermediate_size=config["hidden_dim"],
        positions="learned",
        activation=config["activation"],
        embedding_dropout=config["dropout"],
        attention_dropout=config["attention_dropout"],
        mlp_out_dropout=config["dropout"],
        head=Head(activation=config["activation"]),
        tie_word_embeddings=config["tie_word_embeddings"],
    )


BACKBONE = BackboneEntry(
    name="distilbert",
    summary="DistilBERT: BERT with half of its layers",
    family=Family(
        model_types=("distilbert",),
        only=lambda config: isinstance(config.get("activation", "gelu"), str),
        shape=_parse_distilbert_config,
        names=Names(encoder=ENCODER, head=HEAD, prefix="distilbert.", ignored=IGNORED, computed=COMPUTED),
        native=True,
        defaults=DEFAULTS,
        sizes={"distilbert-base": BASE},
    ),
)
