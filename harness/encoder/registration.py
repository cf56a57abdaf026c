"""transformers comes to know our model type: at once if it is there, else as soon as it is imported."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Loader

AUTO = "transformers.models.auto.modeling_auto"
"""The module of transformers that maps model types to classes."""


def register_with_transformers() -> None:
    """Let AutoConfig and AutoModel load what we saved under our own model type.

    Nothing is imported for it: where transformers is not there yet, this waits for AUTO.
    """
    if AUTO in sys.modules:
        _register()
    elif not any(isinstance(finder, _Waiting) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Waiting())


class _Waiting:
    """Finds AUTO as every other finder does, and registers behind it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != AUTO:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Registering(spec.loader)  # type: ignore[assignment]
        return spec


class _Registering:
    """Runs a module as its own loader does, then registers."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _register()


def _register() -> None:
    from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM

    from harness.encoder.network.architecture import MODEL_TYPE
    from harness.encoder.network.config import EncoderConfig
    from harness.encoder.network.masked import EncoderForMaskedLM
    from harness.encoder.network.model import EncoderModel

    AutoConfig.register(MODEL_TYPE, EncoderConfig, exist_ok=True)
    AutoModel.register(EncoderConfig, EncoderModel, exist_ok=True)
    AutoModelForMaskedLM.register(EncoderConfig, EncoderForMaskedLM, exist_ok=True)
