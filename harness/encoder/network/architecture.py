"""What encoder families differ in, as one frozen description."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

MODEL_TYPE = "harness-encoder"
"""What `model_type` says in a config.json of ours."""

Positions = Literal["learned", "rotary", "alibi"]


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """A bidirectional transformer encoder, up to the values of its parameters.

    Attributes:
        vocab_size: Rows of the token embedding.
        hidden_size: Width of the residual stream.
        num_hidden_layers: Blocks.
        num_attention_heads: Query heads.
        num_key_value_heads: Key and value heads; fewer than query heads in grouped-query attention.
        head_dim: Width of a head.
        intermediate_size: Width inside the feed-forward part, of one half where it is gated.
        max_position_embeddings: The most tokens of a text.
        positions: How a token knows where it stands.
        position_offset: Rows of the learned position table before that of the first token.
        token_types: Rows of the token type embedding, 0 for none.
        rotary_theta: Base of the rotary frequencies.
        rotary_theta_local: Base in layers that have a window, where it is another one.
        rotary_interleaved: Whether a rotated pair is of neighbouring dimensions, not of the two halves.
        rotary_scaling: How frequencies change for long inputs, see `rotary.frequencies`.
        windows: For each layer how far a token sees to either side; None for everything.
        norm: LayerNorm or RMSNorm.
        norm_bias: Whether a LayerNorm has a bias.
        norm_eps: What is added to the variance.
        prenorm: Whether a norm stands before each part of a block, not behind the sum.
        embedding_norm: Whether there is a norm behind the embeddings.
        first_attention_norm: Whether the first block has its norm before attention (prenorm only).
        final_norm: Whether there is a norm behind the last block.
        qkv: Three projections, or one whose rows are all queries, all keys, all values ("stacked"),
            or one head after the other ("by_head").
        activation: Name of the activation, as in transformers.
        gated: Whether the activation gates a second projection (GLU).
        gate_first: In one projection for both, whether the gate comes first; None for two projections.
        qkv_bias: Whether the projections into attention have a bias.
        attention_out_bias: Whether the projection out of attention has one.
        mlp_in_bias: Whether the projections into the feed-forward part have one.
        mlp_out_bias: Whether the projection out of it has one.
        embedding_dropout: Share dropped behind the embeddings.
        attention_dropout: Share of attention weights dropped.
        attention_out_dropout: Share dropped behind attention.
        mlp_dropout: Share dropped inside the feed-forward part.
        mlp_out_dropout: Share dropped behind it.
        pooler: Whether there is a dense layer with tanh over the first token.
        head: What the masked-language head is made of.
        tie_word_embeddings: Whether the head's decoder shares the token embedding.
        pad_token_id: The token that fills batches; None where the config names none.
        initializer_range: Standard deviation of fresh weights.
    """

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    intermediate_size: int
    max_position_embeddings: int
    positions: Positions
    position_offset: int = 0
    token_types: int = 0
    rotary_theta: float = 10_000.0
    rotary_theta_local: float | None = None
    rotary_interleaved: bool = False
    rotary_scaling: Mapping[str, Any] | None = None
    windows: tuple[int | None, ...] = ()
    norm: Literal["layer", "rms"] = "layer"
    norm_bias: bool = True
    norm_eps: float = 1e-12
    prenorm: bool = False
    embedding_norm: bool = True
    first_attention_norm: bool = True
    final_norm: bool = False
    qkv: Literal["split", "stacked", "by_head"] = "split"
    activation: str = "gelu"
    gated: bool = False
    gate_first: bool | None = None
    qkv_bias: bool = True
    attention_out_bias: bool = True
    mlp_in_bias: bool = True
    mlp_out_bias: bool = True
    embedding_dropout: float = 0.0
    attention_dropout: float = 0.0
    attention_out_dropout: float = 0.0
    mlp_dropout: float = 0.0
    mlp_out_dropout: float = 0.0
    pooler: bool = False
    head: Head = field(default_factory=lambda: Head())
    tie_word_embeddings: bool = True
    pad_token_id: int | None = 0
    initializer_range: float = 0.02

    def window(self, layer: int) -> int | None:
        """How far a token of that layer sees to either side, None for everything."""
        return self.windows[layer] if self.windows else None

    def theta(self, layer: int) -> float:
        """The base of the rotary frequencies in that layer."""
        local = self.window(layer) is not None and self.rotary_theta_local is not None
        return self.rotary_theta_local if local and self.rotary_theta_local else self.rotary_theta


@dataclass(frozen=True, kw_only=True)
class Head:
    """A masked-language head: dense, activation and norm where there are any, then the decoder.

    Attributes:
        dense: Whether there is anything before the decoder.
        dense_bias: Whether the dense layer has a bias.
        activation: Behind the dense layer.
        norm: Whether there is a norm behind the activation.
        norm_bias: Whether that norm has a bias.
        decoder_bias: Whether the decoder has a bias.
    """

    dense: bool = True
    dense_bias: bool = True
    activation: str = "gelu"
    norm: bool = True
    norm_bias: bool = True
    decoder_bias: bool = True
