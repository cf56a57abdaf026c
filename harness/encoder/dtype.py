"""The dtype that a model runs in: what a name stands for in torch, and on which devices it runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from harness.core.errors import UsageError
from harness.core.types import Dtype
from harness.encoder.folder.files import read_object

TORCH_DTYPES: Mapping[Dtype, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
"""The dtypes that may be requested; how users spell them is in harness.core.types."""


def require_runnable(dtype: Dtype, device: str) -> None:
    """Refuse a dtype in which a device runs no model.

    Raises:
        UsageError: It is float16 on a CPU.
    """
    if dtype == "float16" and device == "cpu":
        raise UsageError(
            "float16 is not run on a CPU: its range is too small for what is summed there.",
            hint="Ask for bfloat16 or float32.",
        )


def find_dtype(model_args: Mapping[str, Any], folder: Path) -> torch.dtype:
    """The dtype in the arguments of a load, "auto" for that of the folder's config; float32 by default.

    Raises:
        UsageError: There is no dtype of that name.
    """
    # `torch_dtype` is the older name, which most published configs still have.
    value = model_args.get("dtype", model_args.get("torch_dtype"))
    if value == "auto":
        content = read_object(folder / "config.json")
        value = content.get("dtype", content.get("torch_dtype"))
    dtype = getattr(torch, value, None) if isinstance(value, str) else value
    if dtype is None and not isinstance(value, str):
        return torch.float32
    if not isinstance(dtype, torch.dtype):
        raise UsageError(f"There is no dtype {value!r}.", hint="Give float32, bfloat16, float16 or auto.")
    return dtype
