"""Families of encoders: the architecture of their published checkpoints and their tensor names.

Imports no torch.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Literal

from harness.core.errors import DamagedModelError, ModelError

MODEL_TYPE = "harness-encoder"
"""The `model_type` in a config.json of ours."""

Positions = Literal["learned", "rotary", "alibi"]


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """The architecture of a bidirectional transformer encoder, without the values of its parameters.

    Attributes:
        vocab_size: Rows of the token embedding.
        hidden_size: Width of the residual stream.
        num_hidden_layers: Blocks.
        num_attention_heads: Query heads.
        num_key_value_heads: Key and value heads; fewer than query heads in grouped-query attention.
        head_dim: Width of a head.
        intermediate_size: Width inside the feed-forward part, of one half where it is gated.
        max_position_embeddings: The most tokens of a text.
        positions: The kind of positions.
        position_offset: Rows of the learned position table before that of the first token.
        token_types: Rows of the token type embedding, 0 for none.
        rotary_theta: Base of the rotary frequencies.
        rotary_theta_local: Base in layers with a window, if different.
        rotary_interleaved: Whether rotated pairs are neighbouring dimensions, not of the two halves.
        rotary_scaling: Scaling of frequencies for long inputs in layers without a window: its `kind`, and the
            numbers of that kind, as `compute_rotations` in network/layers.py explains them.
        windows: For each layer the tokens seen to either side; None for all.
        norm: LayerNorm or RMSNorm.
        norm_bias: Whether a LayerNorm has a bias.
        norm_eps: Added to the variance.
        prenorm: Whether a norm precedes each part of a block, instead of following the sum.
        embedding_norm: Whether a norm follows the embeddings.
        first_attention_norm: Whether the first block has its norm before attention (prenorm only).
        final_norm: Whether a norm follows the last block.
        qkv: Three projections, or a single one whose rows are all queries, all keys, all values ("stacked"),
            or one head after the other ("by_head").
        activation: Name of the activation, as in transformers.
        gated: Whether the activation gates a second projection (GLU).
        gate_first: In one projection for both, whether the gate comes first; None for two projections.
        qkv_bias: Whether the projections into attention have a bias.
        attention_out_bias: Whether the projection out of attention has a bias.
        mlp_in_bias: Whether the projections into the feed-forward part have a bias.
        mlp_out_bias: Whether the projection out of it has a bias.
        embedding_dropout: Share dropped after the embeddings.
        attention_dropout: Share of attention weights dropped.
        attention_out_dropout: Share dropped after attention.
        mlp_dropout: Share dropped inside the feed-forward part.
        mlp_out_dropout: Share dropped after it.
        pooler: Whether a dense layer with tanh follows for the first token.
        head: The masked-language head.
        tie_word_embeddings: Whether the head's decoder shares the token embedding.
        pad_token_id: The padding token; None where the config names none.
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
        """The tokens that a token of that layer sees to either side, None for all."""
        return self.windows[layer] if self.windows else None

    def theta(self, layer: int) -> float:
        """The base of the rotary frequencies in that layer."""
        local = self.window(layer) is not None and self.rotary_theta_local is not None
        return self.rotary_theta_local if local and self.rotary_theta_local else self.rotary_theta

    def is_scaled(self, layer: int) -> bool:
        """Whether the rotary frequencies are scaled there; a window reaches no farther in a longer text."""
        return self.rotary_scaling is not None and self.window(layer) is None

    def scale_rotary(self, kind: str, factor: float, length: int) -> Architecture:
        """The architecture with rotary positions that are scaled for texts beyond its own number.

        Args:
            kind: "yarn", "dynamic" or "linear".
            factor: The factor of the scaling, above 1.
            length: The most tokens of a text, by which the dynamic one scales every text.

        Raises:
            ModelError: Its positions are not rotary, or are scaled already.
        """
        if self.positions != "rotary" or self.rotary_scaling:
            raise ModelError("The positions of the model cannot be scaled.", hint="Leave out --rope-scaling.")
        trained = self.max_position_embeddings
        scaling = {"kind": kind, "factor": factor, "trained": trained, "length": length}
        return replace(self, rotary_scaling=scaling, max_position_embeddings=length)

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor of the network without a head, by our names."""
        width, table = self.hidden_size, self.max_position_embeddings + self.position_offset
        shapes = {
            "embeddings.tokens.weight": (self.vocab_size, width),
            **({"embeddings.positions.weight": (table, width)} if self.positions == "learned" else {}),
            **({"embeddings.types.weight": (self.token_types, width)} if self.token_types else {}),
            **(self._list_norm_shapes("embeddings.norm") if self.embedding_norm else {}),
        }
        for layer in range(self.num_hidden_layers):
            shapes |= self._list_block_shapes(layer)
        shapes |= self._list_norm_shapes("final_norm") if self.final_norm else {}
        return shapes | (_list_linear_shapes("pooler.dense", width, width, bias=True) if self.pooler else {})

    def _list_norm_shapes(self, name: str) -> dict[str, tuple[int, ...]]:
        bias = {f"{name}.bias": (self.hidden_size,)} if self.norm == "layer" and self.norm_bias else {}
        return {f"{name}.weight": (self.hidden_size,), **bias}

    def _list_block_shapes(self, layer: int) -> dict[str, tuple[int, ...]]:
        prefix, width, inside = f"layers.{layer}", self.hidden_size, self.intermediate_size
        queries, keys = self.num_attention_heads * self.head_dim, self.num_key_value_heads * self.head_dim
        parts = {"query": queries, "key": keys, "value": keys}
        parts = parts if self.qkv == "split" else {"qkv": queries + 2 * keys}
        fused = self.gated and self.gate_first is not None
        inner = {
            "up": 2 * inside if fused else inside,
            **({"gate": inside} if self.gated and not fused else {}),
        }
        bare = self.prenorm and layer == 0 and not self.first_attention_norm
        shapes = {} if bare else self._list_norm_shapes(f"{prefix}.attention_norm")
        for name, rows in parts.items():
            shapes |= _list_linear_shapes(f"{prefix}.attention.{name}", rows, width, bias=self.qkv_bias)
        shapes |= _list_linear_shapes(f"{prefix}.attention.out", width, queries, bias=self.attention_out_bias)
        for name, rows in inner.items():
            shapes |= _list_linear_shapes(f"{prefix}.mlp.{name}", rows, width, bias=self.mlp_in_bias)
        shapes |= _list_linear_shapes(f"{prefix}.mlp.down", width, inside, bias=self.mlp_out_bias)
        return shapes | self._list_norm_shapes(f"{prefix}.mlp_norm")

    @staticmethod
    def of_config(config: Mapping[str, Any], **family_fields: Any) -> Architecture:
        """The architecture of a published config.

        Args:
            config: The config, from which the fields with our names are taken.
            **family_fields: The other fields of the Architecture. By default there are as many key and value
                heads as query heads, and the heads share the width.

        Raises:
            KeyError: The config lacks a field.
        """
        values = {name: config[name] for name in _SAME_NAME if name not in family_fields} | family_fields
        heads = values["num_attention_heads"]
        values["num_key_value_heads"] = values.get("num_key_value_heads") or heads
        values["head_dim"] = values.get("head_dim") or values["hidden_size"] // heads
        return Architecture(**values)

    def require_types(self) -> None:
        """TypeError for a field with a value of another type, ValueError for a size below 1."""
        for name, value in ((each.name, getattr(self, each.name)) for each in fields(self)):
            kinds = _FIELD_TYPES.get(name, ())
            if kinds and type(value) not in kinds:
                raise TypeError(f"{name} is {value!r}")
            if name in _SIZES and value < 1:
                raise ValueError(f"{name} is {value!r}")

    @staticmethod
    def of(values: Mapping[str, Any]) -> Architecture:
        """The architecture from plain values, as a config.json of ours has them.

        Raises:
            ModelError: A field is unknown or missing.
        """
        head = values.get("head", {})
        unknown = [
            *_list_unknown_fields(values, Architecture),
            *(f"head.{name}" for name in _list_unknown_fields(head, Head)),
        ]
        if unknown:
            raise ModelError(
                f"The model's architecture has fields that are not known here: {', '.join(unknown)}.",
                hint="It was saved by a newer version of encoder-harness: install that one.",
            )
        lacking = [
            field.name
            for field in fields(Architecture)
            if field.name not in values and field.default is field.default_factory is MISSING
        ]
        # Only fields without a default: an older version did not write those that came later.
        if lacking:
            raise DamagedModelError(f"The model's architecture lacks {', '.join(lacking)}.")
        windows = tuple(values.get("windows", ()))
        shape = Architecture(**{**values, "head": Head(**head), "windows": windows})
        try:
            shape.require_types()
        except (TypeError, ValueError) as error:
            raise DamagedModelError(f"The model's architecture cannot be used: {error}.") from error
        return shape


_TYPES = {"int": (int,), "float": (int, float), "bool": (bool,), "str": (str,), "None": (type(None),)}

_FIELD_TYPES = {
    field.name: tuple(kind for word in str(field.type).split(" | ") for kind in _TYPES[word])
    for field in fields(Architecture)
    if set(str(field.type).split(" | ")) <= _TYPES.keys()
}
"""The types of the plain fields of an Architecture."""

NO_BIASES = dict.fromkeys(("qkv_bias", "attention_out_bias", "mlp_in_bias", "mlp_out_bias"), False)
"""The fields of an Architecture none of whose projections has a bias."""

_SIZES = (
    "vocab_size",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "max_position_embeddings",
)
"""The fields that are at least 1."""

_SAME_NAME = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "pad_token_id",
    "initializer_range",
)
"""Fields that most published configs have under the names of Architecture."""


def _list_linear_shapes(name: str, rows: int, columns: int, *, bias: bool) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (rows, columns), **({f"{name}.bias": (rows,)} if bias else {})}


def _list_unknown_fields(values: Mapping[str, Any], kind: type[Architecture] | type[Head]) -> list[str]:
    return sorted(values.keys() - {field.name for field in fields(kind)})


@dataclass(frozen=True, kw_only=True)
class Head:
    """A masked-language head: optional dense layer, activation and norm, then the decoder.

    Attributes:
        dense: Whether a dense layer precedes the decoder.
        dense_bias: Whether the dense layer has a bias.
        activation: The activation after the dense layer.
        norm: Whether a norm follows the activation.
        norm_bias: Whether that norm has a bias.
        norm_eps: Added to its variance; None for that of the encoder's norms.
        decoder_bias: Whether the decoder has a bias.
    """

    dense: bool = True
    dense_bias: bool = True
    activation: str = "gelu"
    norm: bool = True
    norm_bias: bool = True
    norm_eps: float | None = None
    decoder_bias: bool = True


LAYER = "{n}"
"""The placeholder for the number of a layer."""

OLD_LEAVES = {"gamma": "weight", "beta": "bias"}
"""The names of LayerNorm's tensors in early checkpoints, and ours."""

ENCODER = "encoder."
"""The prefix of our encoder names in a model with a head."""


@dataclass(frozen=True, kw_only=True)
class Names:
    """The mapping between our modules and tensors and those of a published checkpoint.

    Attributes:
        encoder: Our name to the published name of an encoder module or tensor; LAYER is a layer's number.
        head: The same for the masked-language head, from "head." on.
        prefix: The prefix of published encoder names in a model with a head.
        ignored: Regular expressions of tensors that are left out, each with the reason; a record notes them.
        computed: The same for tensors that the network computes itself, which no record notes.
    """

    encoder: Mapping[str, str]
    head: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""
    ignored: Mapping[str, str] = field(default_factory=dict)
    computed: Mapping[str, str] = field(default_factory=dict)

    def ours(self, theirs: str) -> str | None:
        """Our name of a tensor, without ENCODER; None if the network has no such tensor."""
        stem, _, leaf = theirs.rpartition(".")
        name = f"{stem}.{OLD_LEAVES[leaf]}" if leaf in OLD_LEAVES else theirs
        # An encoder saved alone has names without the prefix; names of the head are stored whole.
        inside = name.removeprefix(self.prefix)
        return _match_name(inside, _swap_names(self.encoder)) or _match_name(name, _swap_names(self.head))

    def theirs(self, ours: str, *, with_head: bool) -> str:
        """The published name of one of our tensors.

        Raises:
            KeyError: There is no such name.
        """
        inside = ours.removeprefix(ENCODER) if with_head else ours
        checkpoint_name = _match_name(inside, tuple(self.encoder.items()))
        if checkpoint_name is not None:
            return self.prefix + checkpoint_name if with_head else checkpoint_name
        checkpoint_name = _match_name(ours, tuple(self.head.items()))
        if checkpoint_name is None:
            raise KeyError(ours)
        return checkpoint_name

    def reason(self, theirs: str) -> str | None:
        """The reason why a tensor is left out, None if it is not."""
        every = (*self.computed.items(), *self.ignored.items())
        return next((why for pattern, why in every if re.fullmatch(pattern, theirs)), None)

    def computes(self, theirs: str) -> bool:
        """Whether the network computes that tensor itself."""
        return any(re.fullmatch(pattern, theirs) for pattern in self.computed)


def _swap_names(names: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((theirs, ours) for ours, theirs in names.items())


def _match_name(name: str, pairs: Iterable[tuple[str, str]]) -> str | None:
    """The name on the other side, from the longest matching entry."""
    # The longest first: `head.decoder.bias` may have a name apart from that of `head.decoder`.
    for source, target in sorted(pairs, key=lambda pair: -len(pair[0])):
        match = _compile_name_pattern(source).fullmatch(name)
        if match:
            layer, leaf = match.groupdict().get("n", ""), match["leaf"] or ""
            return target.replace(LAYER, layer or "") + leaf
    return None


@functools.cache
def _compile_name_pattern(source: str) -> re.Pattern[str]:
    return re.compile(re.escape(source).replace(re.escape(LAYER), r"(?P<n>\d+)") + r"(?P<leaf>\.[^.]+)?")


Config = Mapping[str, Any]
"""The content of a config.json, with transformers' defaults where it knows the model type."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """A family of encoders with one architecture.

    Attributes:
        model_types: The `model_type` values in its config.json files.
        shape: A function from a config to our Architecture; None where transformers' own class runs.
        names: The tensor names of its checkpoints; None where transformers' own class runs.
        native: Whether transformers has classes for it, so that trained models are saved in its form.
        only: Whether a config of one of these types is really of the family.
        pooling: The default pooling of a bare backbone.
        float32_only: The reason why it does not run in half precision, None if it does.
        sizes: Configs of published sizes by name, to build a network without weights.
        defaults: Values of fields that a config.json may lack, as transformers' config class fills them in.
        tokenizer: Hub id of the tokenizer, for checkpoints without a tokenizer.
        is_decoder: Whether it is a decoder, whose first token sees no other.
        stands_for: Classes of config and model in the authors' own code that our network replaces.
    """

    model_types: tuple[str, ...]
    shape: Callable[[Config], Architecture] | None = None
    names: Names | None = None
    native: bool = False
    only: Callable[[Config], bool] = lambda _config: True
    pooling: str = "mean"
    float32_only: str | None = None
    sizes: Mapping[str, Config] = field(default_factory=dict)
    defaults: Config = field(default_factory=dict)
    tokenizer: str | None = None
    is_decoder: bool = False
    stands_for: tuple[str, ...] = ()

    def holds(self, config: Config) -> bool:
        """Whether a config is of this family; False if `only` fails on it."""
        try:
            # `only` reads the config of a stranger, whose fields may be of any type.
            return config.get("model_type") in self.model_types and self.only(config)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
            return False

    def architecture(self, config: Config) -> Architecture:
        """The architecture of one of its configs.

        Raises:
            ModelError: The config is invalid, or transformers' own class runs.
        """
        kind = config.get("model_type")
        if self.shape is None:
            raise ModelError(f"A {kind} runs through transformers' own class.")
        try:
            shape = self.shape(config)
            shape.require_types()
            return shape
        except KeyError as error:
            raise ModelError(
                f"The config.json of a {kind} has no {error}.", hint="Take it from the published model."
            ) from error
        except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise ModelError(
                f"The config.json of a {kind} has a value that cannot be used: {error}.",
                hint="Compare it with that of the published model.",
            ) from error

    def outline(self, config: Config) -> Architecture:
        """The architecture as far as its tensors go, from a config.json as it is, without transformers.

        Raises:
            ModelError: The config is invalid, or transformers' own class runs.
        """
        settings = {n: value for n, value in config.items() if value is not None or n not in self.defaults}
        return self.architecture({**self.defaults, **settings})

    def replaces(self, reference: str) -> bool:
        """Whether our network computes the same as a class named in a checkpoint's `auto_map`."""
        return self.shape is not None and reference.rpartition(".")[2] in self.stands_for


@dataclass(frozen=True, kw_only=True)
class BackboneEntry:
    """A family of encoders, or a model with a name in the catalog: one `BACKBONE` in encoder/backbones/.

    `locate()` gives the folder or hub id for `--model name`, or raises ModelError; `weights` is a required
    SHA-256.
    """

    name: str
    summary: str
    family: Family | None = None
    locate: Callable[[], str] | None = None
    weights: str | None = None
