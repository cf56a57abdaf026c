"""A family of encoders: how its published checkpoints become our network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.encoder.network.architecture import Architecture
from harness.encoder.network.names import Names
from harness.errors import ModelError

Config = Mapping[str, Any]
"""The content of a config.json, with transformers' defaults where it knows the model type."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """Encoders of one architecture.

    Attributes:
        model_types: What `model_type` says in their config.json.
        shape: From a config to our Architecture; None where transformers' own class runs.
        names: How their checkpoints name the tensors; None likewise.
        native: Whether transformers has classes for it; then what we train is saved in the published
            form, and loads without us.
        only: Whether a config of one of these types is really of the family.
        pooling: The pooling of a bare backbone nobody asked one for.
        float32_only: Why it does not run in half precision, None if it does.
        sizes: Configs of published sizes by name, to build one without weights.
        tokenizer: Hub id of the tokenizer, for checkpoints that bring none.
        end_pads: Whether the end token fills batches where the tokenizer names none for it.
        stands_for: The config and the model of the authors' own code, by the names of their classes:
            our network takes the place of these and of no others.
    """

    model_types: tuple[str, ...]
    shape: Callable[[Config], Architecture] | None = None
    names: Names | None = None
    native: bool = False
    only: Callable[[Config], bool] = lambda _config: True
    pooling: str = "mean"
    float32_only: str | None = None
    sizes: Mapping[str, Config] = field(default_factory=dict)
    tokenizer: str | None = None
    end_pads: bool = False
    stands_for: tuple[str, ...] = ()

    def holds(self, config: Config) -> bool:
        """Whether a config is of this family; not if `only` cannot make sense of it."""
        try:
            return config.get("model_type") in self.model_types and self.only(config)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError):
            return False

    def architecture(self, config: Config) -> Architecture:
        """The architecture of one of its configs.

        Raises:
            ModelError: If the config makes none, or transformers' own class runs.
        """
        kind = config.get("model_type")
        if self.shape is None:
            raise ModelError(f"A {kind} runs through transformers' own class.")
        try:
            return self.shape(config)
        except KeyError as error:
            raise ModelError(
                f"The config.json of a {kind} has no {error}.", hint="Take it from the published model."
            ) from error
        except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise ModelError(
                f"The config.json of a {kind} has a value that makes no network: {error}.",
                hint="Hold it against that of the published model.",
            ) from error

    def replaces(self, reference: str) -> bool:
        """Whether our network is what a class named in a checkpoint's `auto_map` computes."""
        return self.shape is not None and reference.rpartition(".")[2] in self.stands_for
