"""The downstream evaluation harness for text encoders.

`harness.run(model, suite)` evaluates and `harness.check(candidate, baseline)` compares; the command
line `harness` does the same. Nothing heavy is
imported before it is needed. Importing the package also lets transformers load the models that
were saved under its own model type, "harness-encoder".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.encoder.registration import register_with_transformers

__version__ = "0.1.0"

if TYPE_CHECKING:
    from harness.api import Report, run
    from harness.regress.python import check
    from harness.types import Settings

__all__ = ["Report", "Settings", "__version__", "check", "run"]

register_with_transformers()


def __getattr__(name: str) -> Any:
    if name in ("run", "Report"):
        from harness import api

        return getattr(api, name)
    if name == "check":
        from harness.regress.python import check

        return check
    if name == "Settings":
        from harness.types import Settings

        return Settings
    raise AttributeError(name)
