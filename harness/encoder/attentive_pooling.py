"""Attentive pooling as a module of sentence-transformers: a mean over tokens with learned weights."""

from __future__ import annotations

from typing import Any, Self

import torch
from sentence_transformers.models import Module
from torch import Tensor, nn


class AttentivePooling(Module):
    """The weighted mean of a text's token vectors, the weights given by one learned query for each head.

    The weights of a head are the softmax over the tokens of q·h/√d, where h is the head's slice of a token
    vector and d its size. Queries start at zero, so the module starts as the mean over the tokens. Padding
    has no weight, nor has the prompt without `include_prompt`. The sums are in float32 whatever the dtype.

    Args:
        word_embedding_dimension: The size of a token vector.
        heads: The number of slices, each with its own weights; it divides the size.
        include_prompt: Whether the tokens of a prompt take part.
    """

    config_keys: list[str] = ["word_embedding_dimension", "heads", "include_prompt"]  # noqa: RUF012

    def __init__(self, word_embedding_dimension: int, heads: int = 1, include_prompt: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        if heads < 1 or word_embedding_dimension % heads:
            raise ValueError(f"{heads} heads do not divide {word_embedding_dimension} dimensions.")
        self.word_embedding_dimension = word_embedding_dimension
        self.heads = heads
        self.include_prompt = include_prompt
        self.query = nn.Parameter(torch.zeros(heads, word_embedding_dimension // heads))

    def forward(self, features: dict[str, Any], **_unused: Any) -> dict[str, Any]:
        """Add the pooled vectors as `sentence_embedding`: (texts, dimension), in the dtype of the tokens."""
        tokens: Tensor = features["token_embeddings"]
        mask = self._mask(features)[:, :, None]
        heads = tokens.float().unflatten(-1, self.query.shape)
        scores = (heads * self.query.float()).sum(-1) / self.query.shape[1] ** 0.5
        # The lowest finite number: a text whose tokens are all masked would be NaN with -inf.
        lowest = torch.finfo(scores.dtype).min
        weights = scores.masked_fill(~mask, lowest).softmax(dim=1).masked_fill(~mask, 0.0)
        pooled = (heads * weights[..., None]).sum(dim=1)
        return {**features, "sentence_embedding": pooled.flatten(1).to(tokens.dtype)}

    def _mask(self, features: dict[str, Any]) -> Tensor:
        """Whether each token takes part: (texts, tokens)."""
        tokens: Tensor = features["token_embeddings"]
        mask: Tensor = features.get("attention_mask", tokens.new_ones(tokens.shape[:2])).bool()
        if self.include_prompt or "prompt_length" not in features:
            return mask
        length = features["prompt_length"]
        # A number, or a tensor of equal numbers where a trainer has collated them.
        length = int(length.reshape(-1)[0]) if isinstance(length, Tensor) else int(length)
        return mask & (mask.cumsum(dim=1) > length)

    def get_sentence_embedding_dimension(self) -> int:
        """The size of a vector, by the library's name for it."""
        return self.word_embedding_dimension

    get_embedding_dimension = get_sentence_embedding_dimension

    def save(self, output_path: str, *_args: Any, safe_serialization: bool = True, **_kwargs: Any) -> None:
        """Write config.json and the weights to a folder."""
        self.save_config(output_path)
        self.save_torch_weights(output_path, safe_serialization=safe_serialization)

    @classmethod
    def load(cls, model_name_or_path: str, **kwargs: Any) -> Self:  # type: ignore[override]
        """The module in a folder; the arguments are those of the library's modules."""
        names = ("subfolder", "token", "cache_folder", "revision", "local_files_only")
        place = {name: kwargs[name] for name in names if name in kwargs}
        module = cls(**cls.load_config(model_name_or_path, **place))
        return cls.load_torch_weights(model_name_or_path, model=module, **place)  # type: ignore[no-any-return]
