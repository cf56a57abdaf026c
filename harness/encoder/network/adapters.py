"""Writing the LoRA adapter of a network, so that it fits transformers' class where there is one."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.encoder.card import require_import
from harness.errors import ModelError

if TYPE_CHECKING:
    from harness.encoder.network.pretrained import EncoderPreTrainedModel

PART = ".lora_"
"""Where the name of an adapted module ends."""

FILE = "adapter_model.safetensors"


def has_adapter(model: EncoderPreTrainedModel) -> bool:
    """Whether `add_adapter` or `load_adapter` gave the network one."""
    return bool(getattr(model, "_hf_peft_config_loaded", False))


def save_adapter(model: EncoderPreTrainedModel, folder: Path) -> None:
    """Write the active adapter as peft does, with the module names of the family's published form.

    Raises:
        ModelError: If it is no LoRA adapter, or several are active.
    """
    from peft import LoraConfig
    from safetensors.torch import save_file

    active: list[str] = model.active_adapters()
    adapters: Any = model.peft_config
    config: Any = copy.copy(adapters[active[0]])
    fits = isinstance(config, LoraConfig) and not config.modules_to_save
    if len(active) > 1 or not fits:
        raise ModelError(
            f"The adapter {'+'.join(active)} is not saved: it is not one LoRA adapter alone.",
            hint="Activate one, without modules_to_save.",
        )
    state: dict[str, Any] = model.get_adapter_state_dict()
    renamed = {_renamed(model, name): tensor.contiguous() for name, tensor in state.items()}
    config.target_modules = {name.partition(PART)[0] for name in renamed}
    config.base_model_name_or_path = model.name_or_path
    folder.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(folder)
    tensors = {f"base_model.model.{name}": tensor for name, tensor in renamed.items()}
    save_file(tensors, folder / FILE, metadata={"format": "pt"})
    if model.published is None:
        require_import(folder)


def _renamed(model: EncoderPreTrainedModel, ours: str) -> str:
    if model.published is None:
        return ours
    module, part, rest = ours.partition(PART)
    return model.published.theirs(module) + part + rest
