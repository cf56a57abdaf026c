"""A SentenceTransformer around our network, that keeps the dtypes its modules were loaded in."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch
from sentence_transformers import SentenceTransformer as _SentenceTransformer
from sentence_transformers.models import Pooling
from torch import nn

from harness.encoder.card import require_import
from harness.encoder.modules import library_class
from harness.encoder.network.architecture import MODEL_TYPE
from harness.encoder.towers import backbones
from harness.encoder.transformer import Transformer


class SentenceTransformer(_SentenceTransformer):
    """Leaves every tensor in the dtype loading gave it.

    The library converts all tensors to the dtype of the first one, so in half precision it also
    rounds what transformers keeps in float32: the frequencies of rotary positions, and the
    modules behind the backbone. The class has the library's name because a model folder is
    recognised by it.
    """

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Move to a device; a bare dtype is ignored."""
        if len(args) == 1 and isinstance(args[0], torch.dtype) and not kwargs:
            return self
        return super().to(*args, **kwargs)

    def _create_model_card(self, path: str, *args: Any, **kwargs: Any) -> None:
        super()._create_model_card(path, *args, **kwargs)
        if any(cast(Any, module).config.model_type == MODEL_TYPE for module in backbones(self)):
            require_import(Path(path))

    def _load_module_class_from_ref(self, class_ref: str, *args: Any, **kwargs: Any) -> Any:
        if library_class(class_ref) == "Transformer":
            return Transformer
        return super()._load_module_class_from_ref(class_ref, *args, **kwargs)

    def _load_auto_model(
        self,
        model_name_or_path: str,
        token: bool | str | None,
        cache_folder: str | None,
        revision: str | None = None,
        trust_remote_code: bool = False,
        local_files_only: bool = False,
        model_kwargs: dict[str, Any] | None = None,
        tokenizer_kwargs: dict[str, Any] | None = None,
        config_kwargs: dict[str, Any] | None = None,
        has_modules: bool = False,
    ) -> list[nn.Module]:
        """A bare backbone with mean pooling."""
        shared = {"trust_remote_code": trust_remote_code, "local_files_only": local_files_only}
        transformer = Transformer(
            model_name_or_path,
            cache_dir=cache_folder,
            model_args={**shared, **(model_kwargs or {})},
            tokenizer_args={**shared, **(tokenizer_kwargs or {})},
            config_args={**shared, **(config_kwargs or {})},
        )
        return [transformer, Pooling(transformer.get_word_embedding_dimension(), "mean")]
