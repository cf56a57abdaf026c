"""The network with its masked-language head."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.modeling_outputs import MaskedLMOutput

from harness.encoder.network.architecture import Architecture
from harness.encoder.network.layers import MaskedHead
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

    def forward(self, input_ids: Tensor | None = None, labels: Tensor | None = None, **kwargs: Any) -> Any:
        """Scores of every token of the vocabulary at every place.

        Args:
            input_ids: (texts, columns) token ids.
            labels: (texts, columns), the token that belongs there, -100 where it does not count.
            **kwargs: As in `EncoderModel.forward`.

        Returns:
            MaskedLMOutput: `logits` are (texts, columns, vocab_size); with labels `loss` is their
            mean cross-entropy.
        """
        as_tuple = kwargs.pop("return_dict", None) is False
        found = self.encoder(input_ids=input_ids, **kwargs)
        logits = self.head(found.last_hidden_state)
        loss = None
        if labels is not None:
            loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
        out = MaskedLMOutput(
            loss=cast(Any, loss), logits=cast(Any, logits), hidden_states=found.hidden_states
        )
        return out.to_tuple() if as_tuple else out
