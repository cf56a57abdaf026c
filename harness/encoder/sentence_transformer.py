"""Our network inside sentence-transformers: its Transformer module and its SentenceTransformer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
from sentence_transformers import SentenceTransformer as _SentenceTransformer
from sentence_transformers import models
from sentence_transformers.models import Pooling
from sentence_transformers.models import Transformer as LibraryTransformer
from sentence_transformers.util import import_from_string
from torch import nn

from harness.core.errors import ModelError, UsageError
from harness.encoder.architecture import MODEL_TYPE
from harness.encoder.attention.kernels import AUTO, LIBRARY_NAMES
from harness.encoder.attentive_pooling import AttentivePooling
from harness.encoder.backbones import has_network, read_family
from harness.encoder.engine import collect_backbones
from harness.encoder.folder.files import read_object
from harness.encoder.folder.modules_and_pooling import (
    ATTENTIVE,
    ORDER,
    ROUTERS,
    TOKENS,
    adapt_config,
    find_library_class,
    is_model2vec,
    name_pooling,
    read_modules,
    read_router_config,
    split_pooling,
)
from harness.encoder.library_load import (
    RENAMED,
    build_pooling,
    get_dimension,
    let_end_pad,
    rename_loading_arguments,
    scale_library_rotary,
)
from harness.encoder.modules import Dense, Model2Vec, OrderedPooling, TokenNormalize
from harness.encoder.network.model import load_network, resolve_network_config
from harness.encoder.network.pretrained import merge_folder_adapter, require_import

LOADING = frozenset(
    {"cache_dir", "code_revision", "force_download", "local_files_only", "proxies", "revision", "subfolder"}
    | {"token", "trust_remote_code"}
)
"""Arguments that locate a config; all others are values of it."""

TAKEN = frozenset(
    {"add_pooling_layer", "attn_implementation", "dtype", "ignore_mismatched_sizes", "low_cpu_mem_usage"}
    | {"torch_dtype", "use_safetensors", "weights_only"}
)
"""Arguments of a model that are used, or that change nothing here."""


class Transformer(LibraryTransformer):
    """The library's Transformer module, loaded with our network where the family has one.

    It then has the library's class and is saved as such. `config_args` changes values of the config, such as
    a dropout; `model_args` takes `dtype`, `attn_implementation` (a backend's name, ours or transformers'),
    `allow_extra` (tensors that may have no place in the network) and `scaling` (of rotary positions, the
    arguments of `Architecture.scale_rotary`).
    """

    _ours = False

    def __init__(self, model_name_or_path: str, *args: Any, **kwargs: Any) -> None:
        super().__init__(model_name_or_path, *args, **rename_loading_arguments(kwargs))
        let_end_pad(self.tokenizer)
        self.__class__ = LibraryTransformer  # type: ignore[assignment]

    @classmethod
    def load_config(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """The module's config, of any version of the library, in the words of 5.3."""
        config = super().load_config(model_name_or_path, subfolder, **kwargs)
        return adapt_config("Transformer", config, Path(model_name_or_path, subfolder, cls.config_file_name))

    def _load_config(self, model_name_or_path: str, *args: Any) -> Any:
        # Up to 5.3 a folder for downloads stands before them.
        backend, config_args = args[-2:]
        folder = Path(model_name_or_path, config_args.get("subfolder", ""))
        if backend == "torch" and has_network(folder, own_code=bool(config_args.get("trust_remote_code"))):
            changes = {name: value for name, value in config_args.items() if name not in LOADING}
            family = read_family(folder)
            # Whether the config with these changes is still of the family.
            changed = {**read_object(folder / "config.json"), **changes}
            self._ours = family is None or family.holds(changed)
            if self._ours:
                # The second value says whether the folder holds an adapter.
                return resolve_network_config(folder, family, changes)[0], False
        return super()._load_config(model_name_or_path, *args)

    def _load_model(self, model_name_or_path: str, *args: Any, **model_args: Any) -> Any:
        # Since 5.4 a task stands first, and the model is returned; up to 5.3 it is set, as the library does.
        config, (backend, is_peft_model) = args[1 if RENAMED else 0], args[-2:]
        folder = Path(model_name_or_path, model_args.get("subfolder", ""))
        own_code = bool(model_args.get("trust_remote_code"))
        allow_extra, scaling = model_args.pop("allow_extra", ()), model_args.pop("scaling", None)
        adapter = folder if is_peft_model else None
        if is_peft_model:
            folder = Path(str(read_object(folder / "adapter_config.json").get("base_model_name_or_path")))
        ours = has_network(folder, own_code=own_code) and (is_peft_model or self._ours)
        if backend != "torch" or not ours:
            model = super()._load_model(model_name_or_path, *args, **model_args) or self.auto_model
            vars(model)["adapter_notes"] = merge_folder_adapter(model, folder)
            if scaling is not None:
                scale_library_rotary(model, **scaling)
            return model
        arguments = {name for name, value in model_args.items() if value is not None}
        if unknown := sorted(arguments - TAKEN - LOADING):
            raise ModelError(
                f"Our network is not loaded with {', '.join(unknown)}.",
                hint="Leave that out, or load the folder with sentence-transformers' own class.",
            )
        family, base_config = read_family(folder), None if is_peft_model else config
        dtype = _find_dtype(model_args, folder)
        network = load_network(
            folder, family, dtype=dtype, config=base_config, scaling=scaling, allow_extra=allow_extra
        ).model
        attention = str(model_args.get("attn_implementation") or AUTO)
        # transformers' "eager" has no backend of ours; SDPA computes the same.
        network.attention_asked = LIBRARY_NAMES.get(attention, "sdpa" if attention == "eager" else attention)
        if adapter is not None:
            network.load_adapter(adapter)
        if not RENAMED:
            self.auto_model = cast(Any, network)
        return network


def _find_dtype(model_args: Mapping[str, Any], folder: Path) -> torch.dtype:
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


class _TowerTransformer(Transformer):
    """The Transformer of a Router's tower, which runs transformers' own class."""

    def _load_config(self, *args: Any, **kwargs: Any) -> Any:
        return LibraryTransformer._load_config(self, *args, **kwargs)


LOCATED = ("subfolder", "token", "cache_folder", "revision", "local_files_only")
"""The library's arguments that locate a module."""


def _load_module(class_ref: str, model_name_or_path: str, **options: Any) -> nn.Module:
    """A module of a folder that any version of the library has written.

    Args:
        class_ref: Its type in modules.json.
        model_name_or_path: The folder of the model.
        options: The arguments of the library's `load`, such as `subfolder`.

    Raises:
        ModelError: A setting changes its vectors, and is not run here.
    """
    class_name = find_library_class(class_ref)
    place = Path(model_name_or_path, options.get("subfolder", ""))
    if class_name == "Transformer":
        return Transformer.load(model_name_or_path, **options)
    if class_name in ROUTERS:
        return _load_router(model_name_or_path, **options)
    if class_name == "StaticEmbedding" and is_model2vec(place):
        return Model2Vec.load(model_name_or_path, **options)
    library: Any = getattr(models, class_name or "", None)
    if library is None:
        library = AttentivePooling if class_name == ATTENTIVE else import_from_string(class_ref)
    if class_name not in ("CNN", "Dense", "LSTM", "Normalize", "Pooling", "WeightedLayerPooling"):
        return library.load(model_name_or_path, **options)  # type: ignore[no-any-return]
    located = {name: options[name] for name in LOCATED if name in options}
    # Not by the library, which since 5.4 renames what an older one wrote and loses its meaning.
    config = adapt_config(class_name, read_object(place / library.config_file_name), place)
    if class_name == "Pooling":
        return _build_pooling(config, place)
    if class_name == "Normalize":
        return TokenNormalize() if config["module_input_name"] == TOKENS else models.Normalize()
    if class_name == "Dense":
        if config.pop("module_input_name") == TOKENS or config.pop("use_residual", False):
            return Dense.load(model_name_or_path, **options)
        config["activation_function"] = import_from_string(
            config.get("activation_function", "torch.nn.Tanh")
        )()
    return library.load_torch_weights(model_name_or_path, model=library(**config), **located)  # type: ignore[no-any-return]


def _load_router(model_name_or_path: str, subfolder: str = "", **options: Any) -> nn.Module:
    config = read_router_config(Path(model_name_or_path, subfolder))
    modules = {}
    for name, kind in config["types"].items():
        is_backbone = find_library_class(kind) == "Transformer"
        load = _TowerTransformer.load if is_backbone else partial(_load_module, kind)
        modules[name] = load(model_name_or_path, subfolder=f"{subfolder}/{name}".lstrip("/"), **options)
    routes: Any = {route: [modules[name] for name in names] for route, names in config["structure"].items()}
    return models.Router(routes, **config["parameters"])


def _build_pooling(config: dict[str, Any], place: Path) -> Pooling:
    name, width = name_pooling(config, place / "config.json"), config["word_embedding_dimension"]
    modes, prompt = split_pooling(name), config.get("include_prompt", True)
    # Beside other modes the library's "cls" would be the first token behind the prompt since 5.4.
    split = RENAMED and not prompt and "cls" in modes and len(modes) > 1
    if "," in name or split:
        return OrderedPooling(width, sorted(modes, key=ORDER.index) if split else modes, prompt)
    return cast(Pooling, build_pooling(width, modes, include_prompt=prompt))


def _fill_prompts(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of a model without prompts that are null."""
    named = {name: text or "" for name, text in (settings.get("prompts") or {}).items()}
    return {**settings, **({"prompts": named} if "prompts" in settings else {})}


def _hold_dtypes(modules: Any) -> None:
    """Let modules ignore a dtype while a model is built of them.

    Since 5.4 the library converts each module behind the first on its own.
    """
    for module in modules.values() if isinstance(modules, dict) else modules:
        module.to = lambda _: None


_THEIRS = LibraryTransformer.__module__
_OURS = f"{Transformer.__module__}.Transformer"
"""The type of a Transformer module as the library writes it, and that of ours."""


class SentenceTransformer(_SentenceTransformer):
    """A SentenceTransformer whose tensors stay in the dtype in which they were loaded.

    The library converts all tensors to the dtype of the first, so in half precision it would also round the
    float32 frequencies of rotary positions and the modules after the backbone. The class has the library's
    name because a model folder is recognised by it.
    """

    @property
    def _model_config(self) -> dict[str, Any]:
        """The settings of the model's files, in which the library reads no prompts that are null."""
        settings: dict[str, Any] = self.__dict__["_settings"]
        return settings

    @_model_config.setter
    def _model_config(self, settings: dict[str, Any]) -> None:
        self.__dict__["_settings"] = _fill_prompts(settings)

    def _parse_model_config(self, model_config: dict[str, Any]) -> None:
        # The same since 5.4.
        cast(Any, super())._parse_model_config(_fill_prompts(model_config))

    def _load_modules(self, *args: Any, **kwargs: Any) -> Any:
        modules, options = cast(Any, super())._load_modules(*args, **kwargs)
        _hold_dtypes(modules)
        return modules, options

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _hold_dtypes(kwargs.get("modules") or ())
        super().__init__(*args, **kwargs)
        for module in self:
            vars(module).pop("to", None)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Move to a device; a bare dtype is ignored."""
        if len(args) == 1 and isinstance(args[0], torch.dtype) and not kwargs:
            return self
        return super().to(*args, **kwargs)

    def save(self, path: str, *args: Any, **kwargs: Any) -> None:
        """Write the model; one of our own model type names our Transformer, which imports what it needs."""
        super().save(path, *args, **kwargs)
        modules = Path(path, "modules.json")
        if self._is_of_our_type():
            modules.write_text(modules.read_text().replace(f'"{_THEIRS}"', f'"{_OURS}"'))

    def _create_model_card(self, path: str, *args: Any, **kwargs: Any) -> None:
        super()._create_model_card(path, *args, **kwargs)
        if self._is_of_our_type():
            require_import(Path(path))

    def _is_of_our_type(self) -> bool:
        return any(cast(Any, module).config.model_type == MODEL_TYPE for module in collect_backbones(self))

    def _load_module_class_from_ref(self, class_ref: str, *args: Any, **kwargs: Any) -> Any:
        if find_library_class(class_ref) is not None:
            # The library asks the class for nothing else.
            return SimpleNamespace(load=partial(_load_module, class_ref))
        return super()._load_module_class_from_ref(class_ref, *args, **kwargs)

    def _load_auto_model(  # type: ignore[override]
        self,
        model_name_or_path: str,
        *,
        trust_remote_code: bool = False,
        local_files_only: bool = False,
        model_kwargs: dict[str, Any] | None = None,
        tokenizer_kwargs: dict[str, Any] | None = None,
        config_kwargs: dict[str, Any] | None = None,
        **_unused: Any,
    ) -> list[nn.Module]:
        """The modules of a bare backbone, which are it and mean pooling, or of a model of model2vec."""
        if stored_modules := read_modules(Path(model_name_or_path)):
            return [_load_module(one.kind, model_name_or_path, subfolder=one.sub) for one in stored_modules]
        shared = {"trust_remote_code": trust_remote_code, "local_files_only": local_files_only}
        transformer = Transformer(
            model_name_or_path,
            model_args={**shared, **(model_kwargs or {})},
            tokenizer_args={**shared, **(tokenizer_kwargs or {})},
            config_args={**shared, **(config_kwargs or {})},
        )
        return [transformer, build_pooling(get_dimension(transformer), ["mean"])]

    def _load_default_modules(
        self, model_name_or_path: str, *, processor_kwargs: dict[str, Any] | None = None, **kwargs: Any
    ) -> tuple[list[nn.Module], dict[str, Any]]:
        """The same by the library's name since 5.4."""
        return self._load_auto_model(model_name_or_path, tokenizer_kwargs=processor_kwargs, **kwargs), {}
