"""Norms and activations by what a shape says of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from torch import nn
from transformers.activations import ACT2FN

from harness.encoder.network.architecture import Architecture


def norm(shape: Architecture) -> nn.Module:
    """A norm over the width."""
    if shape.norm == "rms":
        return nn.RMSNorm(shape.hidden_size, eps=shape.norm_eps)
    return nn.LayerNorm(shape.hidden_size, eps=shape.norm_eps, bias=shape.norm_bias)


def activation(name: str) -> nn.Module:
    """An activation by its name in transformers."""
    return cast(nn.Module, cast(Mapping[str, Any], ACT2FN)[name])
