"""A family for the harness: four layers of BERT's parts with ALiBi, under names of its own."""

from harness.plugins import Architecture, BackboneEntry, Config, Family, Names

NAMES = Names(
    encoder={
        "embeddings.tokens": "words",
        "embeddings.norm": "words_norm",
        "layers.{n}.attention.qkv": "blocks.{n}.qkv",
        "layers.{n}.attention.out": "blocks.{n}.out",
        "layers.{n}.attention_norm": "blocks.{n}.norm1",
        "layers.{n}.mlp.up": "blocks.{n}.fc1",
        "layers.{n}.mlp.down": "blocks.{n}.fc2",
        "layers.{n}.mlp_norm": "blocks.{n}.norm2",
    },
    ignored={r"step": "it counts training steps"},
)


def shape(config: Config) -> Architecture:
    """The architecture of a sample config."""
    return Architecture(
        vocab_size=config["vocab_size"],
        hidden_size=config["width"],
        num_hidden_layers=config["depth"],
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=config["width"] // 4,
        intermediate_size=2 * config["width"],
        max_position_embeddings=512,
        positions="alibi",
        qkv="stacked",
    )


BACKBONE = BackboneEntry(
    name="sample",
    summary="A sample family from another distribution",
    family=Family(
        model_types=("sample-encoder",),
        shape=shape,
        names=NAMES,
        sizes={"sample-tiny": {"model_type": "sample-encoder", "vocab_size": 160, "width": 32, "depth": 2}},
    ),
)
