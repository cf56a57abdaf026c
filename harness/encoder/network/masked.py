"""The network with its masked-language head."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.modeling_outputs import MaskedLMOutput

from harness.encoder.network.architecture import Architecture
from harness.encoder.network.heads import MaskedHead
from harness.encoder.network.model import EncoderModel
from harness.encoder.network.pretrained import EncoderPreTrainedModel
from harness.encoder.network.saving import Published


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

    def get_input_embeddings(self) -> nn.Module:
        """The token embedding."""
        return self.encoder.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Put another token embedding in its place."""
        self.encoder.set_input_embeddings(value)

    def get_output_embeddings(self) -> nn.Module:
        """The decoder."""
        return self.head.decoder

    def set_output_embeddings(self, new_embeddings: nn.Module) -> None:
        """Put another decoder in its place."""
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
            input_ids: As the next three, see `EncoderModel.forward`.
            attention_mask: (texts, columns).
            token_type_ids: (texts, columns).
            inputs_embeds: (texts, columns, width).
            labels: (texts, columns), the token that belongs there, -100 where it does not count. A
                padding token never does.
            output_hidden_states: Whether to give the output of every layer as well.
            return_dict: False for a tuple.
            output_attentions: Not to be had; there so that peft can pass it on.

        Returns:
            MaskedLMOutput: `logits` are (texts, columns, vocab_size); with labels `loss` is their
            mean cross-entropy.
        """
        wanted = self._wanted(output_hidden_states, output_attentions)
        packed, states = self.encoder.packed(
            input_ids, attention_mask, token_type_ids, inputs_embeds, every=wanted
        )
        logits = self.head(states[-1])
        loss = None
        if labels is not None:
            loss = nn.functional.cross_entropy(logits.float(), packed.pack(labels))
        out = MaskedLMOutput(
            loss=cast(Any, loss),
            logits=cast(Any, packed.unpack(logits)),
            hidden_states=cast(Any, tuple(map(packed.unpack, states))) if wanted else None,
        )
        return out.to_tuple() if return_dict is False else out
