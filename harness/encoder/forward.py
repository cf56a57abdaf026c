"""One pass of a batch through the modules of a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.encoder.towers import widen

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import Tensor


def forward(model: SentenceTransformer, features: dict[str, Any]) -> Tensor:
    """The vectors of one tokenized batch, shape (texts, dimension), float32, on the model's device.

    The backbone runs in the dtype it was loaded in; pooling, further layers and normalisation
    run in float32. The feature "task" chooses the tower of a Router, wherever it stands.
    """
    task = {"task": features.pop("task")} if "task" in features else {}
    for at, module in enumerate(model):
        features = module(features, **(task if "task" in getattr(module, "forward_kwargs", ()) else {}))
        features = features if at else widen(features)
    vectors: Tensor = features["sentence_embedding"]
    return vectors.float()
