"""Writing the network: in its family's published form where transformers knows it, else in our own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.encoder.card import require_import
from harness.encoder.network.adapters import CONFIG, WEIGHTS, has_adapter, save_adapter
from harness.encoder.network.names import ENCODER, Names
from harness.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedConfig

    from harness.encoder.network.pretrained import EncoderPreTrainedModel

SHARD = "5GB"
"""The most one weight file holds."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """The form in which transformers' own class of the family reads a model.

    Attributes:
        names: Of the tensors.
        with_head: Whether this is the model with the masked-language head.
    """

    names: Names
    with_head: bool = False

    def ours(self, theirs: str) -> str | None:
        """Our name of a tensor; None if it is none of theirs."""
        found = self.names.ours(theirs)
        if found is None or not self.with_head:
            return found
        return found if found.startswith("head.") else ENCODER + found

    def theirs(self, ours: str) -> str:
        """Their name of a module or tensor.

        Raises:
            ModelError: If they have none for it.
        """
        try:
            return self.names.theirs(ours, with_head=self.with_head)
        except KeyError as error:
            raise ModelError(
                f"The published form of the model has no name for {ours}, so it cannot be saved in it.",
                hint="If that is part of an adapter, merge it first, or give it with add_adapter.",
            ) from error


def save(
    model: EncoderPreTrainedModel,
    folder: Path,
    *,
    state_dict: dict[str, Tensor] | None = None,
    max_shard_size: int | str = SHARD,
    is_main_process: bool = True,
    push_to_hub: bool = False,
    variant: str | None = None,
    **_unused: Any,
) -> None:
    """Write config.json and safetensors; of a network with an adapter, the adapter alone.

    Args:
        model: What is written.
        folder: Made if it is not there.
        state_dict: The tensors in place of the model's own, under our names.
        max_shard_size: The most one file holds.
        is_main_process: Whether this process writes; the others do nothing.
        push_to_hub: Must be off.
        variant: Must be None.
    """
    from huggingface_hub import save_torch_state_dict

    if push_to_hub or variant:
        raise ModelError(
            "A network is saved to a folder, in one variant.", hint="Upload that folder (`hf upload`)."
        )
    if not is_main_process:
        return
    if has_adapter(model):
        save_adapter(model, folder, state_dict=state_dict)
        return
    folder.mkdir(parents=True, exist_ok=True)
    for stale in (WEIGHTS, CONFIG):
        (folder / stale).unlink(missing_ok=True)
    config: PreTrainedConfig = model.config
    published = model.published
    config.architectures = [_class_name(model)]
    tensors = model.state_dict() if state_dict is None else state_dict
    config.dtype = next(iter(tensors.values())).dtype
    config.save_pretrained(folder)
    if model.shape.tie_word_embeddings:
        tensors = {name: tensor for name, tensor in tensors.items() if name != "head.decoder.weight"}
    if published is not None:
        tensors = {published.theirs(name): tensor for name, tensor in tensors.items()}
    else:
        require_import(folder)
    save_torch_state_dict(tensors, folder, max_shard_size=max_shard_size, metadata={"format": "pt"})


def _class_name(model: EncoderPreTrainedModel) -> str:
    """The class a reader of the folder builds: transformers' own where it has one for the config."""
    from transformers import MODEL_FOR_MASKED_LM_MAPPING, MODEL_MAPPING

    if model.published is None:
        return type(model).__name__
    known: Any = MODEL_FOR_MASKED_LM_MAPPING if model.published.with_head else MODEL_MAPPING
    return str(known[type(model.config)].__name__)
