"""LoRA adapters of a network, on disk in the module names of the family's published form."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from harness.encoder.card import require_import
from harness.errors import ModelError

if TYPE_CHECKING:
    from peft import LoraConfig
    from torch import Tensor

    from harness.encoder.network.pretrained import EncoderPreTrainedModel

PART = ".lora_"
"""Where the name of an adapted module ends."""

PREFIX = "base_model.model."
"""What peft puts before the names in a file."""

WEIGHTS, CONFIG = "adapter_model.safetensors", "adapter_config.json"

ONE_BY_ONE = ("exclude_modules", "layers_to_transform", "layers_pattern")
"""Settings that say nothing more once every adapted module is named."""


def has_adapter(model: EncoderPreTrainedModel) -> bool:
    """Whether `add_adapter` or `load_adapter` gave the network one."""
    return bool(getattr(model, "_hf_peft_config_loaded", False))


def require_lora(config: Any) -> None:
    """See that an adapter is one that can be saved.

    Raises:
        ModelError: If it is of another kind, trains biases, or whole modules besides.
    """
    from peft import LoraConfig

    if not isinstance(config, LoraConfig) or config.modules_to_save or config.bias != "none":
        raise ModelError(
            f"A {type(config).__name__} that is more than LoRA is not supported here.",
            hint="Take a LoraConfig with bias='none' and without modules_to_save.",
        )


def save_adapter(
    model: EncoderPreTrainedModel, folder: Path, *, state_dict: Mapping[str, Tensor] | None = None
) -> None:
    """Write the active adapter as peft does, every adapted module by its published name.

    Raises:
        ModelError: If it is no LoRA adapter, or several are active.
    """
    from safetensors.torch import save_file

    active: list[str] = model.active_adapters()
    if len(active) > 1:
        raise ModelError(f"{len(active)} adapters are active, and one can be saved.", hint="Activate one.")
    adapters: Any = model.peft_config
    require_lora(adapters[active[0]])
    state: dict[str, Any] = model.get_adapter_state_dict(active[0], state_dict=state_dict)  # type: ignore[arg-type]
    modules = {name.partition(PART)[0] for name in state}
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("model*.safetensors*"):
        stale.unlink()
    _written(model, adapters[active[0]], active[0], modules).save_pretrained(str(folder))
    tensors = {PREFIX + _theirs(model, name): tensor.contiguous() for name, tensor in state.items()}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    if model.published is None:
        require_import(folder)


def _written(model: EncoderPreTrainedModel, config: LoraConfig, name: str, modules: set[str]) -> LoraConfig:
    """The config with each module named on its own, as are ranks and scales of its own."""
    made: Any = copy.copy(config)
    made.target_modules = {_theirs(model, module) for module in modules}
    made.base_model_name_or_path = model.name_or_path
    layers: dict[str, Any] = {module: model.get_submodule(module) for module in modules}
    ranks = {m: layer.r[name] for m, layer in layers.items() if layer.r[name] != config.r}
    scales = {m: a for m, layer in layers.items() if (a := layer.lora_alpha[name]) != config.lora_alpha}
    made.rank_pattern = {re.escape(_theirs(model, m)): rank for m, rank in ranks.items()}
    made.alpha_pattern = {re.escape(_theirs(model, m)): scale for m, scale in scales.items()}
    for setting in ONE_BY_ONE:
        setattr(made, setting, None)
    return cast("LoraConfig", made)


def load_adapter(model: EncoderPreTrainedModel, folder: Path, name: str, *, trainable: bool) -> None:
    """Put the LoRA adapter in a folder onto the network.

    Raises:
        ModelError: If it is no LoRA adapter, or not one for this network.
    """
    from peft import PeftConfig, inject_adapter_in_model, set_peft_model_state_dict
    from safetensors.torch import load_file

    if not (folder / CONFIG).is_file() or not (folder / WEIGHTS).is_file():
        raise ModelError(f"{folder} holds no adapter: {CONFIG} and {WEIGHTS} are wanted.")
    config: Any = PeftConfig.from_pretrained(str(folder))
    require_lora(config)
    given = load_file(folder / WEIGHTS)
    state = {_ours(model, key.removeprefix(PREFIX)): tensor for key, tensor in given.items()}
    config.target_modules = {key.partition(PART)[0] for key in state}
    config.inference_mode = not trainable
    for pattern in ("rank_pattern", "alpha_pattern"):
        known = {re.sub(r"\\(.)", r"\1", key): value for key, value in getattr(config, pattern).items()}
        setattr(config, pattern, {re.escape(_ours(model, key)): value for key, value in known.items()})
    inject_adapter_in_model(config, model, name)
    model._hf_peft_config_loaded = True
    found: Any = set_peft_model_state_dict(model, state, adapter_name=name)
    lacking = [key for key in found.missing_keys if PART in key]
    if lacking or found.unexpected_keys:
        raise ModelError(
            f"The adapter in {folder} does not fit: "
            f"{len(lacking)} of its tensors are missing, {len(found.unexpected_keys)} have no place.",
            hint="It was made for another backbone.",
        )


def _theirs(model: EncoderPreTrainedModel, ours: str) -> str:
    if model.published is None:
        return ours
    module, part, rest = ours.partition(PART)
    return model.published.theirs(module) + part + rest


def _ours(model: EncoderPreTrainedModel, theirs: str) -> str:
    if model.published is None:
        return theirs
    module, part, rest = theirs.partition(PART)
    return (model.published.ours(module) or module) + part + rest
