"""The dtype that a model runs in, and the devices on which it runs.

Imports neither torch nor transformers. How users spell a dtype is in harness.core.types.
"""

from __future__ import annotations

from harness.core.encoding import EvaluationSettings, Settings
from harness.core.errors import UsageError
from harness.core.types import Dtype


def choose_dtype(settings: Settings, evaluation: EvaluationSettings) -> Dtype:
    """The dtype that a user asks for, else that of the recipe's evaluations, else float32."""
    return settings.dtype or evaluation.dtype or "float32"


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
