"""The token that fills batches."""

from __future__ import annotations

from typing import Any

from harness.encoder.family import Family
from harness.errors import ModelError


def let_end_pad(tokenizer: Any, family: Family | None) -> None:
    """Let the end token fill batches where a family has it so and the tokenizer names none."""
    if family is not None and family.end_pads and tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token


def require_padding(tokenizer: Any) -> None:
    """Refuse a tokenizer that cannot fill a batch.

    Raises:
        ModelError: It has no padding token.
    """
    if tokenizer.pad_token_id is None:
        raise ModelError(
            "The model's tokenizer has no padding token, so texts of different lengths make no batch.",
            hint='Name the one it was trained with in a copy of the folder: "pad_token" in '
            "tokenizer_config.json.",
        )
