"""transformers comes to know our model type: at once if it is there, else as soon as it is imported."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

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


class _Waiting(importlib.abc.MetaPathFinder):
    """Finds AUTO as every other finder does, and registers behind it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != AUTO:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Registering(spec.loader)
        return spec


class _Registering(importlib.abc.Loader):
    """Runs a module as its own loader does, then registers."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
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
