"""DeBERTa (He et al. 2021) and DeBERTa-v3 (He et al. 2023): disentangled attention, run by transformers."""

from __future__ import annotations

from harness.encoder.architecture import BackboneEntry, Family
from harness.encoder.backbones import bert

V3_BASE = {
    "model_type": "deberta-v2",
    "vocab_size": 128_100,
    **bert.BASE_SIZE,
    "max_position_embeddings": 512,
    "relative_attention": True,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "position_biased_input": False,
    "type_vocab_size": 0,
}

V3_LARGE = {**V3_BASE, **bert.LARGE_SIZE}

BACKBONE = BackboneEntry(
    name="deberta",
    summary="DeBERTa, DeBERTa-v2 and DeBERTa-v3, through transformers, in float32",
    family=Family(
        model_types=("deberta", "deberta-v2"),
        float32_only="the scores of disentangled attention overflow in half precision",
        sizes={"deberta-v3-base": V3_BASE, "deberta-v3-large": V3_LARGE},
    ),
)
