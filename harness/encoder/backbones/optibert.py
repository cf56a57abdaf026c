"""OptiBERT (compute-optimal encoders): NeoBERT's blocks, trained with Meta Lingua.

No checkpoint is public. Appendix A and equation 8 of the paper give the architecture: pre-norm with RMSNorm,
another RMSNorm after the token embedding, SwiGLU, rotary positions, no biases, RoBERTa's vocabulary and 1,024
tokens. The rest are Lingua's defaults: neighbouring dimensions are rotated together, and the masked-language
head is one projection. `convert` makes a model folder of a Lingua folder (params.json and consolidated.pth);
its config.json holds Lingua's model arguments, and its tensors Lingua's names. The name of the norm after the
embedding, `embedding_norm`, is an assumption.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from harness.encoder.architecture import NO_BIASES, Architecture, BackboneEntry, Config, Family, Head, Names

MODEL_TYPE = "optibert"

ENCODER = {
    "embeddings.tokens": "tok_embeddings",
    "embeddings.norm": "embedding_norm",
    "layers.{n}.attention_norm": "layers.{n}.attention_norm",
    "layers.{n}.attention.query": "layers.{n}.attention.wq",
    "layers.{n}.attention.key": "layers.{n}.attention.wk",
    "layers.{n}.attention.value": "layers.{n}.attention.wv",
    "layers.{n}.attention.out": "layers.{n}.attention.wo",
    "layers.{n}.mlp_norm": "layers.{n}.ffn_norm",
    "layers.{n}.mlp.gate": "layers.{n}.feed_forward.w1",
    "layers.{n}.mlp.up": "layers.{n}.feed_forward.w3",
    "layers.{n}.mlp.down": "layers.{n}.feed_forward.w2",
    "final_norm": "norm",
}

NAMES = Names(
    encoder=ENCODER,
    head={"head.decoder": "output"},
    computed={r"output\.tied_module\.weight": "it is the token embedding"},
)

TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json", "merges.txt")

NEO = {
    "model_type": MODEL_TYPE,
    "vocab_size": 50_265,
    "dim": 768,
    "n_layers": 28,
    "n_heads": 12,
    "max_seqlen": 1024,
}
"""OptiBERT-neo, 198M parameters beside the embedding; the paper gives no other architecture."""


def _parse_optibert_config(config: Config) -> Architecture:
    """The architecture from the model's arguments in Lingua, with its defaults."""
    width, head_dim = config["dim"], config.get("head_dim")
    return Architecture.of_config(
        config,
        hidden_size=width,
        num_hidden_layers=config["n_layers"],
        num_attention_heads=config.get("n_heads") or width // head_dim,
        num_key_value_heads=config.get("n_kv_heads"),
        head_dim=head_dim,
        intermediate_size=_compute_inner_width(config),
        max_position_embeddings=config.get("max_seqlen", 1024),
        positions="rotary",
        rotary_theta=config.get("rope_theta", 10_000.0),
        rotary_interleaved=True,
        norm="rms",
        norm_eps=config.get("norm_eps", 1e-5),
        prenorm=True,
        final_norm=True,
        activation="silu",
        gated=True,
        **NO_BIASES,
        head=Head(dense=False, norm=False, decoder_bias=False),
        tie_word_embeddings=config.get("weight_tying", False),
        pad_token_id=config.get("pad_token_id", 1),
        # Lingua's default: 1 / sqrt(dim).
        initializer_range=config.get("init_base_std") or width**-0.5,
    )


def _compute_inner_width(config: Config) -> int:
    """The width of the feed-forward part (equation 8): two thirds of 4 × dim, rounded up.

    >>> _compute_inner_width({"dim": 768}), _compute_inner_width({"dim": 1000})
    (2048, 2816)
    """
    step = config.get("multiple_of", 256)
    inner_width = int((config.get("ffn_dim_multiplier") or 1.0) * (8 * config["dim"] // 3))
    return int(-(-inner_width // step) * step)


def convert(source: Path, target: Path) -> None:
    """Make a model folder from a consolidated checkpoint.

    Args:
        source: Lingua's params.json and consolidated.pth, and optionally the files of RoBERTa's tokenizer.
        target: The model folder, made if it does not exist.
    """
    import json

    import torch
    from huggingface_hub import save_torch_state_dict

    target.mkdir(parents=True, exist_ok=True)
    arguments = json.loads((source / "params.json").read_text())["model"]
    (target / "config.json").write_text(json.dumps({"model_type": MODEL_TYPE, **arguments}, indent=2))
    held = torch.load(source / "consolidated.pth", map_location="cpu", weights_only=True, mmap=True)
    tensors = {name: tensor for name, tensor in held["model"].items() if NAMES.reason(name) is None}
    save_torch_state_dict(tensors, target)
    for name in TOKENIZER:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


BACKBONE = BackboneEntry(
    name="optibert",
    summary="OptiBERT: rotary positions, RMSNorm, SwiGLU, no biases, up to 1,024 tokens, from Meta Lingua",
    family=Family(
        model_types=(MODEL_TYPE,),
        only=lambda config: not config.get("sliding_window"),
        shape=_parse_optibert_config,
        names=NAMES,
        sizes={"optibert-neo": NEO},
        tokenizer="FacebookAI/roberta-base",
    ),
)
