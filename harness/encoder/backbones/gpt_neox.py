"""GPT-NeoX, the decoder of the Pythia suite (Biderman et al. 2023, table 1), run by transformers."""

from __future__ import annotations

from harness.encoder.architecture import BackboneEntry, Config, Family


def _build_pythia_config(layers: int, width: int, heads: int) -> Config:
    return {
        "model_type": "gpt_neox",
        "vocab_size": 50_304,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * width,
        "max_position_embeddings": 2048,
        "rotary_pct": 0.25,
        "rotary_emb_base": 10_000,
        "layer_norm_eps": 1e-5,
        "use_parallel_residual": True,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }


SIZES = {
    "pythia-14m": _build_pythia_config(6, 128, 4),
    "pythia-31m": _build_pythia_config(6, 256, 8),
    "pythia-70m": _build_pythia_config(6, 512, 8),
    "pythia-160m": _build_pythia_config(12, 768, 12),
    "pythia-410m": _build_pythia_config(24, 1024, 16),
    "pythia-1b": _build_pythia_config(16, 2048, 8),
    "pythia-1.4b": _build_pythia_config(24, 2048, 16),
    "pythia-2.8b": _build_pythia_config(32, 2560, 32),
}


BACKBONE = BackboneEntry(
    name="gpt_neox",
    summary="GPT-NeoX, so the Pythia suite: decoders, through transformers, with mean pooling",
    family=Family(model_types=("gpt_neox",), pooling="mean", is_decoder=True, sizes=SIZES),
)
