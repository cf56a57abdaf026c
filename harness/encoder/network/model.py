"""The padding-free encoder as a model of transformers, sentence-transformers, PyLate and peft.

A padded batch is packed into one row of tokens, which passes through the blocks; each attention backend has a
layout of the texts for the pass. Vectors return to their places in the padded batch. `load_network` reads
published weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import CONFIG_MAPPING, AutoConfig, AutoModel, AutoModelForMaskedLM, PreTrainedConfig
from transformers.modeling_outputs import BaseModelOutputWithPooling, MaskedLMOutput

from harness.core.errors import ModelError, explain_unknown
from harness.encoder.architecture import MODEL_TYPE, Architecture, Family
from harness.encoder.attention.interface import Backend, Layout, Needs
from harness.encoder.attention.kernels import AUTO, BACKENDS, HALVES, LIBRARY_NAMES
from harness.encoder.backbones import parse_harness_architecture
from harness.encoder.folder.files import list_module_weights, read_object, require_flat
from harness.encoder.network.layers import (
    Block,
    Embeddings,
    MaskedHead,
    Packing,
    Pooler,
    Table,
    build_norm,
    compute_rotations,
)
from harness.encoder.network.pretrained import (
    CheckpointTensors,
    EncoderConfig,
    EncoderPreTrainedModel,
    Published,
    merge_folder_adapter,
)


class _Sealed:
    """A layout that torch.compile does not trace, since it would make new graphs for new lengths."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def compute_attention(self, query: Tensor, key: Tensor, value: Tensor, needs: Needs) -> Tensor:
        return self._layout.compute_attention(query, key, value, needs)


def _check_length(packed: Packing, places: Tensor | None, most: int) -> None:
    """Refuse more tokens than there are positions, or with given `places` a place behind the last one."""
    longest = max(packed.lengths, default=0)
    if places is not None:
        longest = int(places.max()) + 1 if len(places) else 0
    if longest > most:
        raise ModelError(
            f"A text has {longest} tokens, and the model has positions for {most}.",
            hint=f"Cut texts at {most} tokens or fewer (--max-length).",
        )


def _detect_attention_dtype(hidden: Tensor) -> torch.dtype:
    """The dtype of attention over these states, under autocast or not."""
    if torch.is_autocast_enabled(hidden.device.type):
        return torch.get_autocast_dtype(hidden.device.type)
    return hidden.dtype


class EncoderModel(EncoderPreTrainedModel):
    """The encoder: from token ids to a vector for each token, without computing padding."""

    def __init__(
        self,
        config: PreTrainedConfig,
        shape: Architecture | None = None,
        published: Published | None = None,
    ) -> None:
        super().__init__(config, shape, published)
        self.embeddings = Embeddings(self.shape)
        self.layers = nn.ModuleList(Block(self.shape, n) for n in range(self.shape.num_hidden_layers))
        self.final_norm = build_norm(self.shape) if self.shape.final_norm else nn.Identity()
        self.pooler = Pooler(self.shape) if self.shape.pooler else None
        self.gradient_checkpointing = False
        self.attention_asked = AUTO
        self.attention_as_run = ""
        self.post_init()  # type: ignore[no-untyped-call]

    @torch.compiler.disable(recursive=False)  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        compute_mask: Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        output_attentions: bool | None = None,
        position_ids: Tensor | None = None,
        packing: Packing | None = None,
    ) -> Any:
        """The vectors of a padded batch, zero where nothing was computed.

        Args:
            input_ids: (texts, columns) token ids, or None with `inputs_embeds`.
            attention_mask: (texts, columns), the attended tokens; None for all.
            token_type_ids: (texts, columns); None for type 0. Ignored where the family has no types.
            inputs_embeds: (texts, columns, width) in place of embedded ids.
            compute_mask: (texts, columns), further tokens to compute; by default every non-padding token, so
                that the expansion tokens of a ColBERT query get vectors.
            output_hidden_states: Whether to return the output of every layer.
            return_dict: False for a tuple.
            output_attentions: Not supported; accepted because peft passes it on.
            position_ids: (texts, columns), the place of each token, from 0 on, also of several tokens at one
                place; None for its rank in its text. Windows of local attention and ALiBi count ranks.
            packing: The packing of the batch, in place of both masks; a GPU then waits for nothing.

        Returns:
            BaseModelOutputWithPooling: `last_hidden_state` is (texts, columns, width).

        Raises:
            ModelError: A text is longer than the number of positions.
        """
        every_state = self._needs_hidden_states(output_hidden_states, output_attentions)
        packed, states = self.encode_tokens(
            input_ids,
            attention_mask,
            token_type_ids,
            inputs_embeds,
            compute_mask,
            position_ids,
            packing,
            every=every_state,
        )
        return self._build_model_output(packed, states, every=every_state, as_dict=return_dict is not False)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _build_model_output(
        self, packed: Packing, states: list[Tensor], *, every: bool, as_dict: bool
    ) -> Any:
        out = BaseModelOutputWithPooling(
            last_hidden_state=cast(Any, packed.unpack(states[-1])),
            pooler_output=None
            if self.pooler is None
            else self.pooler(packed.select_first_tokens(states[-1])),
            hidden_states=cast(Any, tuple(map(packed.unpack, states))) if every else None,
        )
        return out if as_dict else out.to_tuple()

    @torch.compiler.disable(recursive=False)  # type: ignore[untyped-decorator]
    def encode_tokens(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        compute_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        packing: Packing | None = None,
        *,
        every: bool = False,
    ) -> tuple[Packing, list[Tensor]]:
        """The vectors of a batch without its padding; arguments and errors as in `forward`.

        Under `torch.compile` each block is compiled; code that depends on the present lengths is not.

        Returns:
            The packing, and the last hidden state, (tokens, width); with `every` the earlier ones too, the
            embeddings first.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Give either input_ids or inputs_embeds.")
        packed, hidden, places = self._embed_batch(
            input_ids, attention_mask, token_type_ids, inputs_embeds, compute_mask, position_ids, packing
        )
        turns, layouts = self._build_layer_layouts(packed, hidden, places)
        states = [hidden]
        for n, block in enumerate(self.layers):
            turn = turns.get((self.shape.theta(n), self.shape.is_scaled(n)))
            partly = packed.attended is not None
            if self.gradient_checkpointing and self.training:
                # __call__ and not forward, so that hooks run in the second pass, too.
                hidden = self._gradient_checkpointing_func(block.__call__, hidden, layouts[n], turn, partly)
            else:
                hidden = block(hidden, layouts[n], turn, partly)
            states = [*states, hidden] if every else [hidden]
        return packed, [*states[:-1], self.final_norm(states[-1])]

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _embed_batch(
        self,
        ids: Tensor | None,
        mask: Tensor | None,
        types: Tensor | None,
        embeds: Tensor | None,
        compute: Tensor | None,
        positions: Tensor | None,
        packing: Packing | None,
    ) -> tuple[Packing, Tensor, Tensor | None]:
        """The packing of a batch, its embeddings, (tokens, width), and its given places, (tokens,)."""
        inputs = ids if ids is not None else embeds
        assert inputs is not None
        packed = self.build_packing(inputs, mask, compute) if packing is None else packing
        explicit_places = None if positions is None else packed.pack(positions)
        # Who gives a packing has checked given places already: a look at them waits for the GPU.
        if self.shape.positions != "alibi" and (packing is None or explicit_places is None):
            _check_length(packed, explicit_places, self.shape.max_position_embeddings)
        tokens = packed.pack(inputs)
        embedded = tokens if ids is None else self.embeddings.tokens(tokens)
        kinds = None if types is None else packed.pack(types)
        places = packed.positions if explicit_places is None else explicit_places
        pad = self.shape.pad_token_id
        if explicit_places is None and ids is not None and pad is not None and self.shape.position_offset:
            # RoBERTa counts by token ids, not by the mask: a padding token within a text has no rank (-1).
            real = (ids != pad).long()
            places = packed.pack(real.cumsum(dim=1) * real - 1)
        return packed, self.embeddings(embedded, places, kinds), explicit_places

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _build_layer_layouts(
        self, packed: Packing, hidden: Tensor, places: Tensor | None
    ) -> tuple[dict[tuple[float, bool], Table], list[_Sealed]]:
        """The rotations of each frequency base, and the attention layout for each layer."""
        device, dtype = hidden.device, _detect_attention_dtype(hidden)
        # transformers fills in a default of its own, so only a name in LIBRARY_NAMES is a request.
        library_name = LIBRARY_NAMES.get(str(self.config._attn_implementation), AUTO)
        asked = library_name if self.attention_asked == AUTO else self.attention_asked
        partly = packed.attended is not None
        needs = [cast(Block, block).attention.needs(partly=partly) for block in self.layers]
        layouts: dict[str, _Sealed] = {}
        by_need: dict[Needs, _Sealed] = {}
        for need in dict.fromkeys(needs):
            backend, note = choose_backend(device, dtype, need, asked)
            if note is not None and note not in self.notes:
                self.notes.append(note)
            if backend.name not in layouts:
                layouts[backend.name] = _Sealed(backend.build_layout(packed.lengths, packed.attended, device))
            by_need[need] = layouts[backend.name]
        self.attention_as_run = "+".join(sorted(layouts))
        return compute_rotations(self.shape, packed, places), [by_need[need] for need in needs]

    def fuse_projections(self) -> None:
        """Compute queries, keys and values by one product in inference; names and values of tensors stay."""
        for block in self.layers:
            cast(Block, block).attention.fuse_projections()

    def build_packing(
        self, inputs: Tensor, mask: Tensor | None = None, compute: Tensor | None = None
    ) -> Packing:
        """The packing of a padded batch; on the CPU nothing waits for it.

        Args:
            inputs: (texts, columns) token ids, or (texts, columns, width) embeddings.
            mask: (texts, columns), the attended tokens; None for all.
            compute: (texts, columns), further tokens to compute, as in `forward`.
        """
        if mask is not None and mask.dim() != 2:
            raise ValueError(f"attention_mask has {mask.dim()} dimensions; it is (texts, columns).")
        shape, device = inputs.shape[:2], inputs.device
        attend = torch.ones(shape, dtype=torch.bool, device=device) if mask is None else mask.bool()
        if compute is not None:
            return Packing.from_masks(compute.bool(), attend)
        if inputs.dim() != 2 or self.shape.pad_token_id is None:
            return Packing.from_masks(attend, attend)
        return Packing.from_masks(inputs != self.shape.pad_token_id, attend)


class EncoderForMaskedLM(EncoderPreTrainedModel):
    """The encoder with its masked-language head."""

    _tied_weights_keys = {"head.decoder.weight": "encoder.embeddings.tokens.weight"}  # noqa: RUF012

    def __init__(
        self,
        config: PreTrainedConfig,
        shape: Architecture | None = None,
        published: Published | None = None,
    ) -> None:
        super().__init__(config, shape, published)
        alone = None if published is None else replace(published, with_head=False)
        self.encoder = EncoderModel(config, self.shape, alone)
        self.head = MaskedHead(self.shape)
        self.post_init()  # type: ignore[no-untyped-call]

    def get_output_embeddings(self) -> nn.Module:
        """The decoder."""
        return self.head.decoder

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        """Replace the decoder."""
        assert isinstance(new_embeddings, nn.Linear)
        self.head.decoder = new_embeddings

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        output_attentions: bool | None = None,
    ) -> Any:
        """Scores of every token of the vocabulary at every place.

        Args:
            input_ids: This and the next three as in `EncoderModel.forward`.
            attention_mask: (texts, columns).
            token_type_ids: (texts, columns).
            inputs_embeds: (texts, columns, width).
            labels: (texts, columns), the correct token, -100 where it does not count; padding never counts.
            output_hidden_states: Whether to return the output of every layer.
            return_dict: False for a tuple.
            output_attentions: Not supported; accepted because peft passes it on.

        Returns:
            MaskedLMOutput: `logits` are (texts, columns, vocab_size); `loss` is the mean cross-entropy with
            labels.
        """
        every_state = self._needs_hidden_states(output_hidden_states, output_attentions)
        packed, states = self.encoder.encode_tokens(
            input_ids, attention_mask, token_type_ids, inputs_embeds, every=every_state
        )
        logits = self.head(states[-1])
        loss = None
        if labels is not None:
            # -100 is what cross_entropy ignores by default.
            loss = nn.functional.cross_entropy(logits.float(), packed.pack(labels))
        out = MaskedLMOutput(
            loss=cast(Any, loss),
            logits=cast(Any, packed.unpack(logits)),
            hidden_states=cast(Any, tuple(map(packed.unpack, states))) if every_state else None,
        )
        return out.to_tuple() if return_dict is False else out


def register() -> None:
    """Register the harness's own model type with AutoConfig and AutoModel."""
    AutoConfig.register(MODEL_TYPE, EncoderConfig, exist_ok=True)
    AutoModel.register(EncoderConfig, EncoderModel, exist_ok=True)
    AutoModelForMaskedLM.register(EncoderConfig, EncoderForMaskedLM, exist_ok=True)


@dataclass(frozen=True, kw_only=True)
class _Loaded:
    """A network, and the tensors of its folder that were left out, each with the reason."""

    model: EncoderModel | EncoderForMaskedLM
    ignored: Mapping[str, str]


def load_network(
    folder: Path,
    family: Family | None,
    *,
    dtype: torch.dtype,
    head: bool = False,
    config: PreTrainedConfig | None = None,
    changes: Mapping[str, Any] | None = None,
    scaling: Mapping[str, Any] | None = None,
    allow_extra: Sequence[str] = (),
) -> _Loaded:
    """The network in a folder.

    Args:
        folder: The folder with config.json and weights.
        family: The family of its published form; None for a folder under our own model type.
        dtype: The dtype of its parameters.
        head: Whether the masked-language head is loaded.
        config: The config from `resolve_network_config`, if already known.
        changes: Fields of the Architecture that override the config.
        scaling: The arguments of `Architecture.scale_rotary`; None to leave positions as they are.
        allow_extra: Tensors, with * and ?, that may have no place in the network.

    Raises:
        ModelError: A tensor is missing, or an unknown tensor exists.
    """
    if config is None:
        config, shape = resolve_network_config(folder, family)
    else:
        shape = _resolve_architecture(config, family)
    folder_tensors = CheckpointTensors.sort_tensors(
        read_raw_tensors(folder),
        None if family is None else family.names,
        head=head,
        allowed=allow_extra,
    )
    # Many checkpoints come without the pooler that their class names, and no vector needs it.
    pooled = shape.pooler and any("pooler." in name for name in folder_tensors.state)
    shape = replace(shape, pooler=pooled, **(changes or {}))
    shape = shape if scaling is None else shape.scale_rotary(**scaling)
    if isinstance(config, EncoderConfig):
        config.replace_architecture(shape)
    # Without memory: load_state_dict below puts the tensors of the files in place.
    with torch.device("meta"):
        model = _build(config, shape, family, head=head)
    expected_shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    folder_tensors.check_tensors(expected_shapes, shape, folder.name)
    state = {name: tensor.to(dtype) for name, tensor in folder_tensors.state.items()}
    # check_tensors has compared every name; a tied decoder may be absent, and is tied next.
    model.load_state_dict(state, assign=True, strict=False)
    model.tie_weights()
    merge_folder_adapter(model, folder)
    model.eval()  # type: ignore[no-untyped-call]
    model.notes += folder_tensors.notes
    return _Loaded(model=model, ignored=folder_tensors.ignored)


def read_raw_tensors(folder: Path, *, sharded: bool = True) -> dict[str, Tensor]:
    """The tensors of a folder's weight files under their names there, on the CPU."""
    tensors: dict[str, Tensor] = {}
    for path in list_module_weights(folder, sharded=sharded):
        if path.suffix == ".safetensors":
            tensors.update(load_file(path))
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
            require_flat(path, content)
            tensors.update(content)
    return tensors


def _build(
    config: PreTrainedConfig, shape: Architecture, family: Family | None, *, head: bool = False
) -> EncoderModel | EncoderForMaskedLM:
    published = None
    if family is not None and family.native and family.names is not None:
        published = Published(names=family.names, with_head=head)
    return (EncoderForMaskedLM if head else EncoderModel)(config, shape, published)


def resolve_network_config(
    folder: Path, family: Family | None, changes: Mapping[str, Any] | None = None
) -> tuple[PreTrainedConfig, Architecture]:
    """The config of a network in this folder, and its architecture.

    Args:
        folder: The folder with config.json.
        family: The family of its published form; None for a folder under our own model type.
        changes: Values that override those of the config.json, by its own names.

    Raises:
        ModelError: The family has no network of ours, or cannot read the config.
    """
    content = read_object(folder / "config.json")
    if family is None and content.get("model_type") != MODEL_TYPE:
        raise ModelError(
            f"{folder.name}, a {content.get('model_type', 'model of no type')}, is of no family here.",
            hint="`harness list backbones` shows the families; others load with transformers' AutoModel.",
        )
    if family is not None:
        config, shape = _build_family_config({**content, **(changes or {})}, family)
    else:
        parse_harness_architecture(content)
        config = EncoderConfig.from_dict(_apply_config_changes(content, changes or {}))
        shape = config.shape
    config.name_or_path = str(folder)
    return config, shape


def _apply_config_changes(content: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A config.json of ours with changed values, by the names of Architecture or its own."""
    inside = {field.name for field in fields(Architecture)}
    unknown = sorted(changes.keys() - inside - content.keys())
    if unknown:
        raise ModelError(
            f"The config of the model has no {', '.join(unknown)}.",
            hint="It was saved under our own model type: see `harness/encoder/architecture.py`.",
        )
    within = {name: value for name, value in changes.items() if name in inside}
    outside = {name: value for name, value in changes.items() if name in content}
    return {**content, **outside, "architecture": {**content["architecture"], **within}}


def _build_family_config(content: Mapping[str, Any], family: Family) -> tuple[PreTrainedConfig, Architecture]:
    if not family.native:
        shape = family.architecture(content)
        return EncoderConfig.from_architecture(shape), shape
    config: PreTrainedConfig = CONFIG_MAPPING[str(content["model_type"])].from_dict(dict(content))
    shape = _resolve_architecture(config, family)
    # A CamembertConfig without this field has no default, and transformers then ties no weights.
    config.tie_word_embeddings = shape.tie_word_embeddings
    return config, shape


def _resolve_architecture(config: PreTrainedConfig, family: Family | None) -> Architecture:
    """The architecture of a config from `resolve_network_config`."""
    if isinstance(config, EncoderConfig):
        return config.shape
    assert family is not None
    return family.architecture(config.to_dict())


def choose_backend(
    device: torch.device, dtype: torch.dtype, needs: Needs, asked: str = AUTO
) -> tuple[Backend, str | None]:
    """The backend for a layer, and the reason why it is not the preferred or requested backend, or None.

    The default is SDPA on a CPU. On a GPU in half precision SDPA runs only where no other kernel can, with a
    note.

    Args:
        device: The device of the layer.
        dtype: The dtype of its queries, keys and values.
        needs: What the layer needs of its attention.
        asked: The name of the requested backend.

    Raises:
        UsageError: There is no backend of that name.
    """
    if asked == AUTO:
        tried = BACKENDS.values() if device.type == "cuda" else [BACKENDS["sdpa"]]
        refused: dict[str, str] = {}
        for backend in tried:
            reason = backend.explain_refusal(device, dtype, needs)
            if reason is None:
                break
            refused[backend.name] = reason
        # In float32 most kernels do not exist, so SDPA is what the user expects and needs no note.
        slow = backend.name == "sdpa" and device.type == "cuda" and dtype in HALVES
        reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
        return backend, f"sdpa was used for attention ({reasons})" if slow else None
    if asked not in BACKENDS:
        raise explain_unknown(
            "attention backend", asked, [AUTO, *BACKENDS], then=f"{AUTO!r} takes what fits best."
        )
    reason = BACKENDS[asked].explain_refusal(device, dtype, needs)
    if reason is None:
        return BACKENDS[asked], None
    instead, _ = choose_backend(device, dtype, needs)
    return instead, f"attention backend {asked}: {reason}, so {instead.name} was used"
