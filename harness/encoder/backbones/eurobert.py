"""EuroBERT (Boizard et al. 2025): Llama's blocks with bidirectional attention."""

from __future__ import annotations

from harness.encoder.architecture import Architecture, BackboneEntry, Config, Family, Head, Names
from harness.encoder.backbones import bert

LAYER = "layers.{n}"

ENCODER = {
    "embeddings.tokens": "embed_tokens",
    "layers.{n}.attention_norm": f"{LAYER}.input_layernorm",
    "layers.{n}.attention.query": f"{LAYER}.self_attn.q_proj",
    "layers.{n}.attention.key": f"{LAYER}.self_attn.k_proj",
    "layers.{n}.attention.value": f"{LAYER}.self_attn.v_proj",
    "layers.{n}.attention.out": f"{LAYER}.self_attn.o_proj",
    "layers.{n}.mlp_norm": f"{LAYER}.post_attention_layernorm",
    "layers.{n}.mlp.gate": f"{LAYER}.mlp.gate_proj",
    "layers.{n}.mlp.up": f"{LAYER}.mlp.up_proj",
    "layers.{n}.mlp.down": f"{LAYER}.mlp.down_proj",
    "final_norm": "norm",
}

COMPUTED = {r".*rotary_emb\.inv_freq": "rotary frequencies are computed"}

IGNORED = {
    r"(dense|classifier)\..*": "it belongs to a classification head",
}

OWN_CLASSES = ("Config", "Model", "PreTrainedModel", "ForMaskedLM", "ForSequenceClassification")

DEFAULTS: Config = {
    "vocab_size": 128_256,
    **bert.BASE_SIZE,
    "hidden_act": "silu",
    "max_position_embeddings": 8192,
    "rope_parameters": {"rope_theta": 10_000.0, "rope_type": "default"},
    "rms_norm_eps": 1e-5,
    "attention_bias": False,
    "mlp_bias": False,
    "attention_dropout": 0.0,
    "initializer_range": 0.02,
    "tie_word_embeddings": False,
    "pad_token_id": 128_001,
}
"""Defaults of a config.json, from transformers' EuroBertConfig; its heads follow from other fields."""

SMALL = {
    "model_type": "eurobert",
    "vocab_size": 128_256,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_key_value_heads": 12,
    "intermediate_size": 3072,
    "rope_theta": 250_000,
}

GROUPED = {**SMALL, "num_attention_heads": 18, "num_key_value_heads": 6}

SIZES = {
    "eurobert-210m": SMALL,
    "eurobert-610m": {**GROUPED, "hidden_size": 1152, "num_hidden_layers": 26, "intermediate_size": 4096},
    "eurobert-2.1b": {**GROUPED, "hidden_size": 2304, "num_hidden_layers": 32, "intermediate_size": 6144},
}


def _parse_eurobert_config(config: Config) -> Architecture:
    """The architecture of a EuroBertConfig; its only dropout is that of attention weights."""
    attention_bias, mlp_bias = config["attention_bias"], config["mlp_bias"]
    return Architecture.of_config(
        config,
        num_key_value_heads=config.get("num_key_value_heads"),
        head_dim=config.get("head_dim"),
        positions="rotary",
        rotary_theta=config["rope_parameters"]["rope_theta"],
        norm="rms",
        norm_eps=config["rms_norm_eps"],
        prenorm=True,
        embedding_norm=False,
        final_norm=True,
        activation=config["hidden_act"],
        gated=True,
        qkv_bias=attention_bias,
        attention_out_bias=attention_bias,
        mlp_in_bias=mlp_bias,
        mlp_out_bias=mlp_bias,
        attention_dropout=config["attention_dropout"],
        # The class for masked language modelling takes its decoder's bias from mlp_bias.
        head=Head(dense=False, norm=False, decoder_bias=mlp_bias),
        tie_word_embeddings=config["tie_word_embeddings"],
    )


def _is_plain_eurobert(config: Config) -> bool:
    """Whether a config has unscaled rotary positions and an activation with a name."""
    rotary = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rotary.get("rope_type", rotary.get("type", "default"))
    return isinstance(config.get("hidden_act", "silu"), str) and bool(kind == "default")


BACKBONE = BackboneEntry(
    name="eurobert",
    summary="EuroBERT: rotary positions, RMSNorm, SwiGLU, grouped queries, up to 8,192 tokens",
    family=Family(
        model_types=("eurobert",),
        only=_is_plain_eurobert,
        shape=_parse_eurobert_config,
        names=Names(
            encoder=ENCODER,
            head={"head.decoder": "lm_head"},
            prefix="model.",
            ignored=IGNORED,
            computed=COMPUTED,
        ),
        native=True,
        defaults=DEFAULTS,
        sizes=SIZES,
        stands_for=tuple(f"EuroBert{kind}" for kind in OWN_CLASSES),
    ),
)
