"""RoBERTa (Liu et al. 2019), also XLM-R (Conneau et al. 2020) and CamemBERT: BERT with other training."""

from __future__ import annotations

from dataclasses import replace

from harness.encoder.architecture import Architecture, BackboneEntry, Config, Family, Head, Names
from harness.encoder.backbones import bert

HEAD = {
    "head.dense": "lm_head.dense",
    "head.norm": "lm_head.layer_norm",
    "head.decoder": "lm_head.decoder",
    "head.decoder.bias": "lm_head.bias",
}

BASE = {
    **bert.BASE,
    "model_type": "roberta",
    "vocab_size": 50_265,
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "pad_token_id": 1,
}

MULTILINGUAL = {**BASE, "model_type": "xlm-roberta", "vocab_size": 250_002}


def _parse_roberta_config(config: Config) -> Architecture:
    """The architecture of a RobertaConfig; position rows up to that of the padding id stay unused."""
    unused = config["pad_token_id"] + 1
    same = bert.parse_bert_config(config)
    return replace(
        same,
        position_offset=unused,
        max_position_embeddings=same.max_position_embeddings - unused,
        # RoBERTa's head has gelu whatever the config's hidden_act is.
        head=Head(activation="gelu"),
    )


BACKBONE = BackboneEntry(
    name="roberta",
    summary="RoBERTa, XLM-R and CamemBERT",
    family=Family(
        model_types=("roberta", "xlm-roberta", "camembert"),
        only=bert.is_plain_bert,
        shape=_parse_roberta_config,
        names=Names(
            encoder=bert.ENCODER,
            head=HEAD,
            prefix="roberta.",
            ignored=bert.IGNORED,
            computed=bert.COMPUTED,
        ),
        native=True,
        defaults={**bert.DEFAULTS, "vocab_size": 50_265, "pad_token_id": 1},
        sizes={
            "roberta-base": BASE,
            "roberta-large": {**BASE, **bert.LARGE_SIZE},
            "xlm-roberta-base": MULTILINGUAL,
            "xlm-roberta-large": {**MULTILINGUAL, **bert.LARGE_SIZE},
        },
    ),
)
