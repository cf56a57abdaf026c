"""The encoder as transformers, sentence-transformers, PyLate and peft know a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.modeling_outputs import BaseModelOutputWithPooling

from harness.encoder.attention.choice import AUTO
from harness.encoder.network.architecture import Architecture
from harness.encoder.network.basics import norm
from harness.encoder.network.heads import Pooler
from harness.encoder.network.layers import Block, Embeddings
from harness.encoder.network.packing import Packing, packing
from harness.encoder.network.passing import Pass
from harness.encoder.network.pretrained import EncoderPreTrainedModel
from harness.encoder.network.rotary import turned
from harness.encoder.network.saving import Published
from harness.encoder.network.self_attention import Attention
from harness.errors import ModelError


class EncoderModel(EncoderPreTrainedModel):
    """From token ids to a vector for each token, without computing padding."""

    def __init__(
        self,
        config: PreTrainedConfig,
        shape: Architecture | None = None,
        published: Published | None = None,
    ) -> None:
        super().__init__(config, shape, published)
        self.embeddings = Embeddings(self.shape)
        self.layers = nn.ModuleList(Block(self.shape, n) for n in range(self.shape.num_hidden_layers))
        self.final_norm = norm(self.shape) if self.shape.final_norm else nn.Identity()
        self.pooler = Pooler(self.shape) if self.shape.pooler else None
        self.gradient_checkpointing = False
        self.attention_asked = AUTO
        self.attention_as_run = ""
        self.post_init()  # type: ignore[no-untyped-call]

    def get_input_embeddings(self) -> nn.Module:
        """The token embedding."""
        return self.embeddings.tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Put another token embedding in its place."""
        assert isinstance(value, nn.Embedding)
        self.embeddings.tokens = value

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
    ) -> Any:
        """The vectors of a padded batch, zero where nothing was computed.

        Args:
            input_ids: (texts, columns) token ids, or None with `inputs_embeds`.
            attention_mask: (texts, columns), what is attended to; None for everything.
            token_type_ids: (texts, columns); None for type 0. Without effect where the family has
                no types.
            inputs_embeds: (texts, columns, width) in place of embedded ids.
            compute_mask: (texts, columns), the tokens whose vectors are wanted beside those attended
                to. By default every token that is not padding, so that the expansion tokens of a
                ColBERT query get vectors.
            output_hidden_states: Whether to give the output of every layer as well.
            return_dict: False for a tuple.
            output_attentions: Not to be had; there so that peft can pass it on.

        Returns:
            BaseModelOutputWithPooling: `last_hidden_state` is (texts, columns, width).

        Raises:
            ModelError: If a text is longer than there are positions.
        """
        if output_attentions:
            raise ValueError("The weights of attention are not kept.")
        wanted = bool(
            self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        )
        packed, states = self.packed(
            input_ids, attention_mask, token_type_ids, inputs_embeds, compute_mask, every=wanted
        )
        out = BaseModelOutputWithPooling(
            last_hidden_state=cast(Any, packed.unpack(states[-1])),
            pooler_output=None if self.pooler is None else self.pooler(packed.first(states[-1])),
            hidden_states=cast(Any, tuple(map(packed.unpack, states))) if wanted else None,
        )
        return out.to_tuple() if return_dict is False else out

    def packed(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        compute_mask: Tensor | None = None,
        *,
        every: bool = False,
    ) -> tuple[Packing, list[Tensor]]:
        """The vectors of a batch without its padding; arguments and errors as `forward`.

        Returns:
            How the tokens lie, and the last hidden state, (tokens, width); with `every` those before
            it too, the embeddings first.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Give either input_ids or inputs_embeds.")
        given = input_ids if input_ids is not None else inputs_embeds
        assert given is not None
        attend = _mask(attention_mask, given)
        packed = packing(self._computed(input_ids, compute_mask, attend), attend)
        self._check_length(packed)
        tokens = packed.pack(given)
        embedded = tokens if input_ids is None else self.embeddings.tokens(tokens)
        types = None if token_type_ids is None else packed.pack(token_type_ids)
        hidden = self.embeddings(embedded, packed.positions, types)
        return packed, list(self._states(packed, hidden, every=every))

    def _states(self, packed: Packing, hidden: Tensor, *, every: bool) -> Iterator[Tensor]:
        """The last hidden state; with `every` those before it too."""
        turns, pass_ = turned(self.shape, packed), self._pass(packed, hidden)
        for n, block in enumerate(self.layers):
            if every:
                yield hidden
            attention: Attention = block.attention  # type: ignore[assignment]
            layout = pass_.layout(attention.needs(partly=pass_.partly))
            hidden = self._run(block, hidden, layout, turns.get(self.shape.theta(n)), pass_.partly)
        self._remember(pass_)
        yield self.final_norm(hidden)

    def _remember(self, pass_: Pass) -> None:
        """Keep which backends took part, for whoever asks."""
        self.attention_as_run = "+".join(sorted(pass_.layouts))
        self.notes += [note for note in pass_.notes if note not in self.notes]

    def _run(self, block: nn.Module, *inputs: Any) -> Tensor:
        if self.gradient_checkpointing and self.training:
            again: Tensor = self._gradient_checkpointing_func(block.__call__, *inputs)
            return again
        out: Tensor = block(*inputs)
        return out

    def _computed(self, ids: Tensor | None, asked: Tensor | None, attend: Tensor) -> Tensor:
        if asked is not None:
            return asked.bool()
        return attend if ids is None else ids != self.shape.pad_token_id

    def _check_length(self, packed: Packing) -> None:
        longest, most = max(packed.lengths, default=0), self.shape.max_position_embeddings
        if longest > most and self.shape.positions != "alibi":
            raise ModelError(
                f"A text has {longest} tokens, and the model has positions for {most}.",
                hint=f"Cut texts at {most} tokens or fewer (--max-length).",
            )

    def _pass(self, packed: Packing, hidden: Tensor) -> Pass:
        dtype = hidden.dtype
        if torch.is_autocast_enabled(hidden.device.type):
            dtype = torch.get_autocast_dtype(hidden.device.type)
        return Pass(packed=packed, device=hidden.device, dtype=dtype, asked=self.attention_asked)


def _mask(given: Tensor | None, like: Tensor) -> Tensor:
    if given is None:
        return torch.ones(like.shape[:2], dtype=torch.bool, device=like.device)
    if given.dim() != 2:
        raise ValueError(f"attention_mask has {given.dim()} dimensions; it is (texts, columns).")
    return given.bool()
