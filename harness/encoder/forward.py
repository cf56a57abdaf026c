"""One pass of a batch through the modules of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import Tensor

WIDENED = ("token_embeddings", "sentence_embedding")
"""What the first module leaves; all that follows is computed in float32."""


def forward(model: SentenceTransformer, features: dict[str, Any]) -> Tensor:
    """The vectors of one tokenized batch, shape (texts, dimension), float32, on the model's device.

    The backbone runs in the dtype it was loaded in; pooling, further layers and normalisation
    run in float32.
    """
    first, *others = model
    features = first(features)
    for name in WIDENED:
        if name in features:
            features[name] = features[name].float()
    for module in others:
        features = module(features)
    vectors: Tensor = features["sentence_embedding"]
    return vectors.float()
