"""The settings of a GLUE recipe that a user may change, and the protocol that they leave."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval

from finetune.glue.protocol import Protocol
from harness.core.arguments import Form, Seed, Tokens
from harness.core.errors import UsageError
from harness.core.types import DTYPES, Dtype

_Count = Annotated[int, Interval(ge=1, le=100_000)]


def _read_dtype(value: Any) -> Any:
    return DTYPES.get(value, value) if isinstance(value, str) else value


GRID_FIELDS = {
    "learning_rate": "learning_rates",
    "batch_size": "batch_sizes",
    "weight_decay": "weight_decays",
    "epochs": "epochs",
}
"""The settings with several values, by the fields of a grid."""


@dataclass(frozen=True, kw_only=True)
class GlueSettings:
    """The settings of a GLUE recipe that a user may change; empty ones are the recipe's, task by task.

    Attributes:
        fresh_seeds: Runs of a chosen cell with seeds of our own, whose mean is the score; None for 5, or
            for 0 where the protocol has final seeds or chooses nothing.
        transfer: Whether tasks start from the model for MNLI where the protocol says so.
        mnli: A model for MNLI, folder or weights, that tasks start from in place of the recipe's own.
        learning_rate, batch_size, weight_decay, epochs: The values of every task's grid.
        seeds: The seeds whose mean is the score, at the chosen cell or at the only one.
        max_length: Tokens of an input.
        dtype: The dtype of autocast in every task; float32 for none.
    """

    fresh_seeds: Annotated[int, Interval(ge=0, le=1000)] | None = None
    transfer: bool = True
    mnli: Path | None = None
    learning_rate: tuple[Annotated[float, Interval(gt=0, le=1)], ...] = ()
    batch_size: tuple[_Count, ...] = ()
    weight_decay: tuple[Annotated[float, Interval(ge=0, le=1)], ...] = ()
    epochs: tuple[_Count, ...] = ()
    seeds: tuple[Seed, ...] = ()
    max_length: Tokens | None = None
    dtype: Annotated[Dtype, Form(read=_read_dtype)] | None = None

    @property
    def inert(self) -> frozenset[str]:
        """The names of settings that leave everything to the protocol."""
        unset = {"fresh_seeds": not self.fresh_seeds, "mnli": self.mnli is None}
        return frozenset(name for name, holds in unset.items() if holds)

    @staticmethod
    def from_protocol(protocol: Protocol) -> GlueSettings:
        """The settings with a protocol's own values; what differs by task stays empty."""
        training, values = protocol.training, dict[str, Any]()
        for name in (*GRID_FIELDS, "seeds"):
            shared = {getattr(grid, GRID_FIELDS.get(name, name)) for grid in protocol.grids.values()}
            values[name] = shared.pop() if len(shared) == 1 else ()
        if protocol.selection == "best":
            values["seeds"] = protocol.final_seeds
        dtype = None if training.float32_tasks else training.autocast
        return GlueSettings(**values, max_length=training.max_length, dtype=dtype)

    def check_glue_settings(self) -> None:
        """Refuse settings that contradict each other, or a model that is not there.

        Raises:
            UsageError: The message says which.
        """
        if self.mnli is not None and not self.transfer:
            raise UsageError("mnli and transfer=false contradict each other.", hint="Leave one of them out.")
        if self.mnli is not None and not self.mnli.exists():
            raise UsageError(
                f"{self.mnli} does not exist.",
                hint="--set mnli=MODEL takes a model folder or a weights file.",
            )

    def adapt_protocol(self, protocol: Protocol) -> tuple[Protocol, dict[str, Any]]:
        """The protocol with the values that are set, and those that make it another one, by setting.

        Raises:
            UsageError: There are seeds beside fresh ones, or several values where the protocol chooses none.
        """
        modified: dict[str, Any] = {}
        for name in (*GRID_FIELDS, "seeds", "max_length", "dtype"):
            value = getattr(self, name)
            if value in ((), None):
                continue
            narrowed = _set_value(protocol, name, value)
            if narrowed != protocol:
                modified[name] = list(value) if isinstance(value, tuple) else value
            protocol = narrowed
        multiple = next((name for name in GRID_FIELDS if len(set(modified.get(name, ()))) > 1), None)
        if multiple is not None and protocol.selection == "none":
            raise UsageError(
                f"{protocol.name} chooses no value of {multiple}: its score is the mean of all its runs.",
                hint=f"Give --set {multiple} one value; seeds alone may be several.",
            )
        if "seeds" in modified and self.fresh_seeds:
            raise UsageError("seeds and fresh_seeds contradict each other.", hint="Leave one of them out.")
        return protocol, modified


def _set_value(protocol: Protocol, name: str, value: Any) -> Protocol:
    """The protocol with a value of a setting in every task."""
    training = protocol.training
    if name == "max_length":
        return replace(protocol, training=replace(training, max_length=value))
    if name == "dtype":
        return replace(protocol, training=replace(training, autocast=value, float32_tasks=()))
    if name == "seeds" and protocol.selection == "best":
        return replace(protocol, final_seeds=_choose_values(protocol.final_seeds, value))
    field = GRID_FIELDS.get(name, name)
    grids = {
        task: replace(grid, **{field: _choose_values(getattr(grid, field), value)})
        for task, grid in protocol.grids.items()
    }
    return replace(protocol, grids=grids)


def _choose_values(before: tuple[Any, ...], values: tuple[Any, ...]) -> tuple[Any, ...]:
    # The order decides among equals only: the same values in another order are the same grid.
    return before if set(values) == set(before) else tuple(dict.fromkeys(values))
