"""What the network has with and without a head, as transformers and peft know it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from harness.encoder.network.adapters import PART, load_adapter, require_lora
from harness.encoder.network.architecture import Architecture
from harness.encoder.network.config import EncoderConfig
from harness.encoder.network.saving import Published, save


class EncoderPreTrainedModel(PreTrainedModel):
    """What the encoder has with and without a head.

    Attributes:
        shape: The architecture.
        published: How the family names its config and tensors; None for our own names.
        notes: What went otherwise than asked for, such as another attention backend.
    """

    config_class = EncoderConfig
    base_model_prefix = "encoder"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _no_split_modules = ["Block"]  # noqa: RUF012

    def __init__(
        self,
        config: PreTrainedConfig,
        shape: Architecture | None = None,
        published: Published | None = None,
    ) -> None:
        super().__init__(config)
        if shape is None:
            assert isinstance(config, EncoderConfig)
            shape = config.shape
        self.shape = shape
        self.published = published
        self.notes: list[str] = []
        self.register_load_state_dict_pre_hook(_to_our_names)  # type: ignore[no-untyped-call]

    def _init_weights(self, module: nn.Module) -> None:
        spread = self.shape.initializer_range
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=spread)
        if isinstance(module, nn.Linear | nn.LayerNorm) and module.bias is not None:
            nn.init.zeros_(module.bias)
        if isinstance(module, nn.LayerNorm | nn.RMSNorm) and module.weight is not None:
            nn.init.ones_(module.weight)

    def _wanted(self, hidden_states: bool | None, attentions: bool | None) -> bool:
        """Whether the output of every layer is wanted; ValueError for the weights of attention."""
        if attentions:
            raise ValueError("The weights of attention are not kept.")
        return bool(self.config.output_hidden_states if hidden_states is None else hidden_states)

    def save_pretrained(self, save_directory: Any, **kwargs: Any) -> None:  # type: ignore[override]
        """Write config and weights, in the family's published form where transformers knows it.

        Args:
            save_directory: Made if it is not there.
            **kwargs: `state_dict`, `max_shard_size` and `is_main_process` count; the rest is accepted
                as transformers passes it.

        Raises:
            ModelError: If it is to be pushed to the hub, or to be a variant.
        """
        save(self, Path(save_directory), **kwargs)

    def add_adapter(self, adapter_config: Any, adapter_name: str | None = None) -> None:
        """Give the network a LoRA adapter of peft; ModelError if it is one that could not be saved."""
        require_lora(adapter_config)
        super().add_adapter(adapter_config, adapter_name)

    def load_adapter(  # type: ignore[override]
        self,
        peft_model_id: str | Path,
        adapter_name: str | None = None,
        *,
        is_trainable: bool = False,
        **_unused: Any,
    ) -> None:
        """Put the LoRA adapter in a folder onto the network.

        transformers 5.3 leaves out the tensors of an adapter whose model has no prefix "model.".

        Args:
            peft_model_id: The folder.
            adapter_name: What it is called here.
            is_trainable: Whether it is trained on.
            **_unused: What transformers passes when it loads the base.

        Raises:
            ModelError: If it is no LoRA adapter, or not one for this network.
        """
        load_adapter(self, Path(peft_model_id), adapter_name or "default", trainable=is_trainable)

    def lora_targets(self) -> list[str]:
        """The names of the modules a LoRA adapter goes into: every linear one of the blocks."""
        names = {
            name.partition(PART)[0].removesuffix(".base_layer").rpartition(".")[2]
            for name, module in self.named_modules()
            if isinstance(module, nn.Linear) and ".layers." in f".{name}"
        }
        return sorted(names)


def _to_our_names(module: EncoderPreTrainedModel, state: dict[str, Tensor], prefix: str, *_args: Any) -> None:
    """Let a state dict with the family's published names load as well, less a pooler we do not have."""
    published = module.published
    if published is None:
        return
    for name in [n for n in state if n.startswith(prefix)]:
        ours = published.ours(name.removeprefix(prefix))
        if ours is None:
            continue
        tensor = state.pop(name)
        # transformers' class makes up a pooler where the checkpoint has none.
        if "pooler." not in ours or module.shape.pooler:
            state[prefix + ours] = tensor
