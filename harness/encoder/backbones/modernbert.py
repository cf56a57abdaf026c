"""ModernBERT (Warner et al. 2024), also Ettin's encoders."""

from __future__ import annotations

from harness.encoder.architecture import Architecture, BackboneEntry, Config, Family, Head, Names

ENCODER = {
    "embeddings.tokens": "embeddings.tok_embeddings",
    "embeddings.norm": "embeddings.norm",
    "layers.{n}.attention_norm": "layers.{n}.attn_norm",
    "layers.{n}.attention.qkv": "layers.{n}.attn.Wqkv",
    "layers.{n}.attention.out": "layers.{n}.attn.Wo",
    "layers.{n}.mlp_norm": "layers.{n}.mlp_norm",
    "layers.{n}.mlp.up": "layers.{n}.mlp.Wi",
    "layers.{n}.mlp.down": "layers.{n}.mlp.Wo",
    "final_norm": "final_norm",
}

HEAD = {"head.dense": "head.dense", "head.norm": "head.norm", "head.decoder": "decoder"}

IGNORED = {r"classifier\..*": "it belongs to a classification head"}

DEFAULTS: Config = {
    "vocab_size": 50_368,
    "hidden_size": 768,
    "num_hidden_layers": 22,
    "num_attention_heads": 12,
    "intermediate_size": 1152,
    "hidden_activation": "gelu",
    "max_position_embeddings": 8192,
    "local_attention": 128,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        "full_attention": {"rope_type": "default", "rope_theta": 160_000.0},
    },
    "norm_eps": 1e-5,
    "norm_bias": False,
    "attention_bias": False,
    "mlp_bias": False,
    "decoder_bias": True,
    "classifier_bias": False,
    "classifier_activation": "gelu",
    "embedding_dropout": 0.0,
    "attention_dropout": 0.0,
    "mlp_dropout": 0.0,
    "initializer_range": 0.02,
    "tie_word_embeddings": True,
    "pad_token_id": 50_283,
}
"""Defaults of a config.json, from transformers' ModernBertConfig, which computes the layers' types."""

BASE = {
    "model_type": "modernbert",
    "vocab_size": 50_368,
    "hidden_size": 768,
    "num_hidden_layers": 22,
    "num_attention_heads": 12,
    "intermediate_size": 1152,
}

LARGE = {
    **BASE,
    "hidden_size": 1024,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "intermediate_size": 2624,
}


def _parse_modernbert_config(config: Config) -> Architecture:
    # local_attention counts the tokens on both sides, our windows those on one.
    local = config["local_attention"] // 2
    rotary = config["rope_parameters"]
    # transformers computes the types of layers where a config.json does not have them.
    every = config.get("global_attn_every_n_layers") or 3
    kinds = config["layer_types"] or [
        "sliding_attention" if layer % every else "full_attention"
        for layer in range(config["num_hidden_layers"])
    ]
    return Architecture.of_config(
        config,
        positions="rotary",
        rotary_theta=rotary["full_attention"]["rope_theta"],
        rotary_theta_local=rotary["sliding_attention"]["rope_theta"],
        windows=tuple(local if kind == "sliding_attention" else None for kind in kinds),
        norm_bias=config["norm_bias"],
        norm_eps=config["norm_eps"],
        prenorm=True,
        # The norm of the embeddings has just been applied, so the first block has none before attention.
        first_attention_norm=False,
        final_norm=True,
        qkv="stacked",
        activation=config["hidden_activation"],
        gated=True,
        gate_first=True,
        qkv_bias=config["attention_bias"],
        attention_out_bias=config["attention_bias"],
        mlp_in_bias=config["mlp_bias"],
        mlp_out_bias=config["mlp_bias"],
        embedding_dropout=config["embedding_dropout"],
        attention_dropout=config["attention_dropout"],
        # transformers' class applies attention_dropout after the output projection, too.
        attention_out_dropout=config["attention_dropout"],
        mlp_dropout=config["mlp_dropout"],
        head=Head(
            dense_bias=config["classifier_bias"],
            activation=config["classifier_activation"],
            norm_bias=config["norm_bias"],
            decoder_bias=config["decoder_bias"],
        ),
        tie_word_embeddings=config["tie_word_embeddings"],
    )


def _is_plain_modernbert(config: Config) -> bool:
    """Whether a config has unscaled rotary positions and an activation with a name."""
    kinds = (config.get("rope_parameters") or {}).values()
    unscaled = all(isinstance(k, dict) and k.get("rope_type", "default") == "default" for k in kinds)
    named = isinstance(config.get("hidden_activation", "gelu"), str)
    return unscaled and named and not config.get("rope_scaling")


BACKBONE = BackboneEntry(
    name="modernbert",
    summary="ModernBERT and Ettin: rotary positions, alternating windows, GeGLU, up to 8,192 tokens",
    family=Family(
        model_types=("modernbert",),
        only=_is_plain_modernbert,
        shape=_parse_modernbert_config,
        names=Names(encoder=ENCODER, head=HEAD, prefix="model.", ignored=IGNORED),
        native=True,
        defaults={**DEFAULTS, "layer_types": ()},
        sizes={"modernbert-base": BASE, "modernbert-large": LARGE},
    ),
)
