"""The config of a network that is saved under our own model type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from transformers import PreTrainedConfig

from harness.encoder.network.architecture import MODEL_TYPE, Architecture, Head
from harness.errors import ModelError


class EncoderConfig(PreTrainedConfig):
    """An Architecture as transformers keeps a config.

    Args:
        architecture: The fields of an Architecture, its head among them.
        **kwargs: Whatever every config of transformers holds.
    """

    model_type = MODEL_TYPE

    def __init__(self, architecture: dict[str, Any] | None = None, **kwargs: Any) -> None:
        self.architecture = architecture or {}
        for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"):
            kwargs.setdefault(name, self.architecture.get(name))
        for name in ("vocab_size", "pad_token_id", "tie_word_embeddings", "initializer_range"):
            kwargs.setdefault(name, self.architecture.get(name))
        super().__init__(**kwargs)

    @classmethod
    def of(cls, shape: Architecture) -> EncoderConfig:
        """The config of a network of that shape."""
        return cls(architecture=asdict(shape))

    def adopt(self, shape: Architecture) -> None:
        """Describe this shape from now on: of a checkpoint without a pooler, or changed at load time."""
        self.architecture = asdict(shape)
        self.max_position_embeddings = shape.max_position_embeddings

    @property
    def shape(self) -> Architecture:
        """The architecture, with as many tokens as the config has now.

        Raises:
            ModelError: If it has a field that is not known here.
        """
        values = dict(self.architecture)
        head = values.get("head", {})
        unknown = [*_unknown(values, Architecture), *(f"head.{name}" for name in _unknown(head, Head))]
        if unknown:
            raise ModelError(
                f"The model's architecture has fields that are not known here: {', '.join(unknown)}.",
                hint="It was saved by a newer version of encoder-harness: install that one.",
            )
        values["head"] = Head(**head)
        values["windows"] = tuple(values.get("windows", ()))
        values["vocab_size"] = self.vocab_size
        return Architecture(**values)


def _unknown(values: Mapping[str, Any], kind: type[Architecture] | type[Head]) -> list[str]:
    return sorted(values.keys() - {field.name for field in fields(kind)})
