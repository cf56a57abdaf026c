"""BERT (Devlin et al. 2019), also MiniLM and every other model with its architecture."""

from __future__ import annotations

from harness.encoder.architecture import Architecture, BackboneEntry, Config, Family, Head, Names

LAYER = "encoder.layer.{n}"

ENCODER = {
    "embeddings.tokens": "embeddings.word_embeddings",
    "embeddings.positions": "embeddings.position_embeddings",
    "embeddings.types": "embeddings.token_type_embeddings",
    "embeddings.norm": "embeddings.LayerNorm",
    "layers.{n}.attention.query": f"{LAYER}.attention.self.query",
    "layers.{n}.attention.key": f"{LAYER}.attention.self.key",
    "layers.{n}.attention.value": f"{LAYER}.attention.self.value",
    "layers.{n}.attention.out": f"{LAYER}.attention.output.dense",
    "layers.{n}.attention_norm": f"{LAYER}.attention.output.LayerNorm",
    "layers.{n}.mlp.up": f"{LAYER}.intermediate.dense",
    "layers.{n}.mlp.down": f"{LAYER}.output.dense",
    "layers.{n}.mlp_norm": f"{LAYER}.output.LayerNorm",
    "pooler.dense": "pooler.dense",
}

HEAD = {
    "head.dense": "cls.predictions.transform.dense",
    "head.norm": "cls.predictions.transform.LayerNorm",
    "head.decoder": "cls.predictions.decoder",
    "head.decoder.bias": "cls.predictions.bias",
}

COMPUTED = {r"(\w+\.)?embeddings\.position_ids": "it counts the positions"}

IGNORED = {
    r"cls\.seq_relationship\..*": "it belongs to the next-sentence head",
    r"(classifier|qa_outputs)\..*": "it belongs to the head of a task",
    r"linear\.weight": "it is the projection of a ColBERT",
}

BASE_SIZE = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}

DEFAULTS: Config = {
    "vocab_size": 30_522,
    **BASE_SIZE,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
}
"""Defaults of a config.json, from transformers' BertConfig."""

BASE = {"model_type": "bert", "vocab_size": 30_522, **BASE_SIZE}

LARGE_SIZE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}

MINILM_SIZE = {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536}


def parse_bert_config(config: Config) -> Architecture:
    """The architecture of a BertConfig."""
    hidden, attention = config["hidden_dropout_prob"], config["attention_probs_dropout_prob"]
    return Architecture.of_config(
        config,
        positions="learned",
        token_types=config["type_vocab_size"],
        norm_eps=config["layer_norm_eps"],
        activation=config["hidden_act"],
        embedding_dropout=hidden,
        attention_dropout=attention,
        attention_out_dropout=hidden,
        mlp_out_dropout=hidden,
        # Loading leaves the pooler out where a checkpoint has none.
        pooler=True,
        head=Head(activation=config["hidden_act"]),
        tie_word_embeddings=config.get("tie_word_embeddings", True),
    )


def is_plain_bert(config: Config) -> bool:
    """Whether a config is of the published encoder; an untied decoder makes it a variant."""
    # alibi_starting_size marks MosaicBERT, whose configs have BERT's model type.
    variants = ("is_decoder", "add_cross_attention", "alibi_starting_size")
    return (
        not any(config.get(name) for name in variants)
        and config.get("position_embedding_type", "absolute") == "absolute"
        and bool(config.get("tie_word_embeddings", True))
        and isinstance(config.get("hidden_act", "gelu"), str)
    )


BACKBONE = BackboneEntry(
    name="bert",
    summary="BERT and models of its architecture, such as MiniLM, BGE and E5",
    family=Family(
        model_types=("bert",),
        only=is_plain_bert,
        shape=parse_bert_config,
        names=Names(encoder=ENCODER, head=HEAD, prefix="bert.", ignored=IGNORED, computed=COMPUTED),
        native=True,
        defaults=DEFAULTS,
        sizes={
            "bert-base": BASE,
            "bert-large": {**BASE, **LARGE_SIZE},
            "minilm-l6": {**BASE, **MINILM_SIZE},
        },
    ),
)
