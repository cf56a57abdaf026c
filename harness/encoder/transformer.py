"""sentence-transformers' Transformer module around our network, where the folder's family has one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sentence_transformers.models import Transformer as LibraryTransformer

from harness import catalog
from harness.encoder.attention.choice import AUTO
from harness.encoder.found import family_in, has_network
from harness.encoder.network.configuring import configured
from harness.encoder.network.loading import load_network

if TYPE_CHECKING:
    import torch


LOADING = frozenset(
    {"cache_dir", "code_revision", "force_download", "local_files_only", "proxies", "revision", "subfolder"}
    | {"token", "trust_remote_code"}
)
"""Arguments of a config that are about finding it; all others are values of it."""

ATTENTION = {"flash_attention_2": "flash", "flex_attention": "flex", "eager": "sdpa"}
"""transformers' names of attention to ours, where they differ."""


class Transformer(LibraryTransformer):
    """Loads a folder into our network, and is the library's own class from then on.

    So it is saved as one, and a folder of a family that transformers knows loads without us. As for
    the library's class, `config_args` changes values of the config, such as a dropout, and
    `model_args` takes `dtype` and `attn_implementation` (a backend's name, ours or transformers').
    """

    def __init__(self, model_name_or_path: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(model_name_or_path, *args, **kwargs)
        family = catalog.family_of(self.auto_model.config.to_dict())
        if family is not None and family.end_pads and self.tokenizer.pad_token is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token
        self.__class__ = LibraryTransformer  # type: ignore[assignment]

    def _load_config(
        self, model_name_or_path: str, cache_dir: str | None, backend: str, config_args: dict[str, Any]
    ) -> Any:
        folder = Path(model_name_or_path, config_args.get("subfolder", ""))
        if backend == "torch" and has_network(folder, own_code=bool(config_args.get("trust_remote_code"))):
            changes = {name: value for name, value in config_args.items() if name not in LOADING}
            return configured(folder, family_in(folder), changes)[0], False
        return super()._load_config(model_name_or_path, cache_dir, backend, config_args)

    def _load_model(
        self,
        model_name_or_path: str,
        config: Any,
        cache_dir: str,
        backend: str,
        is_peft_model: bool,
        **model_args: Any,
    ) -> None:
        folder = Path(model_name_or_path, model_args.get("subfolder", ""))
        ours = has_network(folder, own_code=bool(model_args.get("trust_remote_code")))
        if backend == "torch" and not is_peft_model and ours:
            network = load_network(folder, family_in(folder), dtype=_dtype(model_args), config=config).model
            network.attention_asked = _attention(model_args)
            self.auto_model = cast(Any, network)
        else:
            super()._load_model(model_name_or_path, config, cache_dir, backend, is_peft_model, **model_args)


def _dtype(model_args: dict[str, Any]) -> torch.dtype:
    import torch

    asked = model_args.get("dtype", model_args.get("torch_dtype"))
    if isinstance(asked, str):
        asked = getattr(torch, asked, None)
    return asked if isinstance(asked, torch.dtype) else torch.float32


def _attention(model_args: dict[str, Any]) -> str:
    asked = str(model_args.get("attn_implementation") or AUTO)
    return ATTENTION.get(asked, asked)
