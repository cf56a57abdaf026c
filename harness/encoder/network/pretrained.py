"""The base class of our network for transformers and peft: its config, tensors, saving, and LoRA adapters.

A network is saved in its family's published form where transformers knows the family, else under our own
model type with a README that says how to load it. Adapters are saved under the published module names. The
tensors of a checkpoint are sorted by their published names and compared with those of our network.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from huggingface_hub import save_torch_state_dict
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import MODEL_FOR_MASKED_LM_MAPPING, MODEL_MAPPING, PreTrainedConfig, PreTrainedModel

from harness.core.errors import ModelError
from harness.core.terminal import shorten_names
from harness.encoder.architecture import ENCODER, MODEL_TYPE, Architecture, Names
from harness.encoder.folder.files import Shapes, read_object
from harness.encoder.folder.modules_and_pooling import ADAPTER, PREFIX, TASKS
from harness.encoder.folder.modules_and_pooling import ADAPTER_CONFIG as CONFIG
from harness.encoder.folder.modules_and_pooling import ADAPTER_WEIGHTS as WEIGHTS

SHARD = "5GB"
"""The largest size of a weight file."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """The form in which transformers' own class of the family reads a model.

    Attributes:
        names: The family's names of the tensors.
        with_head: Whether this is the model with the masked-language head.
    """

    names: Names
    with_head: bool = False

    def ours(self, theirs: str) -> str | None:
        """Our name of a tensor; None if it has none."""
        network_name = self.names.ours(theirs)
        if network_name is None or not self.with_head:
            return network_name
        return network_name if network_name.startswith("head.") else ENCODER + network_name

    def theirs(self, ours: str) -> str:
        """The published name of a module or tensor.

        Raises:
            ModelError: There is no such name.
        """
        try:
            return self.names.theirs(ours, with_head=self.with_head)
        except KeyError as error:
            raise ModelError(
                f"The published form of the model has no name for {ours}, so it cannot be saved in it.",
                hint="If that is part of an adapter, merge it first, or give it with add_adapter.",
            ) from error


PART = ".lora_"
"""The separator between a module's name and an adapter's part of it."""

ONE_BY_ONE = ("exclude_modules", "layers_to_transform", "layers_pattern")
"""Settings without effect once every adapted module is named."""


def _require_lora(config: Any) -> None:
    """Refuse an adapter that cannot be saved."""
    from peft import LoraConfig

    if not isinstance(config, LoraConfig) or config.modules_to_save or config.bias != "none":
        raise ModelError(
            f"A {type(config).__name__} that is more than LoRA is not supported here.",
            hint="Take a LoraConfig with bias='none' and without modules_to_save.",
        )


def _save_adapter(
    model: EncoderPreTrainedModel, folder: Path, *, state_dict: Mapping[str, Tensor] | None = None
) -> None:
    """Write the active adapter as peft does, every adapted module by its published name."""
    active: list[str] = model.active_adapters()
    if len(active) > 1:
        raise ModelError(f"{len(active)} adapters are active, and one can be saved.", hint="Activate one.")
    adapters: Any = model.peft_config
    _require_lora(adapters[active[0]])
    state: dict[str, Any] = model.get_adapter_state_dict(active[0], state_dict=state_dict)  # type: ignore[arg-type]
    modules = {name.partition(PART)[0] for name in state}
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("model*.safetensors*"):
        stale.unlink()
    _export_lora_config(model, adapters[active[0]], active[0], modules).save_pretrained(str(folder))
    tensors = {
        PREFIX + _export_tensor_name(model, name): tensor.contiguous() for name, tensor in state.items()
    }
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    if model.published is None:
        require_import(folder)


def _export_lora_config(model: EncoderPreTrainedModel, config: Any, name: str, modules: set[str]) -> Any:
    """The adapter's config with each module, and each differing rank and scale, by its published name."""
    adapter_config = copy.copy(config)
    adapter_config.target_modules = {_export_tensor_name(model, module) for module in modules}
    adapter_config.base_model_name_or_path = model.name_or_path
    layers: dict[str, Any] = {module: model.get_submodule(module) for module in modules}
    ranks = {m: layer.r[name] for m, layer in layers.items() if layer.r[name] != config.r}
    scales = {m: a for m, layer in layers.items() if (a := layer.lora_alpha[name]) != config.lora_alpha}
    # peft reads these keys as regular expressions, in which a dot is any character.
    adapter_config.rank_pattern = {
        re.escape(_export_tensor_name(model, m)): rank for m, rank in ranks.items()
    }
    adapter_config.alpha_pattern = {
        re.escape(_export_tensor_name(model, m)): scale for m, scale in scales.items()
    }
    for setting in ONE_BY_ONE:
        setattr(adapter_config, setting, None)
    return adapter_config


def _export_tensor_name(model: EncoderPreTrainedModel, ours: str) -> str:
    if model.published is None:
        return ours
    module, part, rest = ours.partition(PART)
    return model.published.theirs(module) + part + rest


def _import_tensor_name(model: EncoderPreTrainedModel, theirs: str) -> str:
    if model.published is None:
        return theirs
    module, part, rest = theirs.partition(PART)
    return (model.published.ours(module) or module) + part + rest


class EncoderConfig(PreTrainedConfig):
    """An Architecture as a config of transformers.

    Args:
        architecture: The fields of an Architecture, including its head.
        **kwargs: The common fields of a config of transformers.
    """

    model_type = MODEL_TYPE

    def __init__(self, architecture: dict[str, Any] | None = None, **kwargs: Any) -> None:
        self.architecture = architecture or {}
        for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"):
            kwargs.setdefault(name, self.architecture.get(name))
        # Only as defaults: after a resize the config alone has the present size of the vocabulary.
        for name in ("vocab_size", "pad_token_id", "tie_word_embeddings", "initializer_range"):
            kwargs.setdefault(name, self.architecture.get(name))
        super().__init__(**kwargs)

    @classmethod
    def from_architecture(cls, shape: Architecture) -> EncoderConfig:
        """The config of a network with that architecture."""
        return cls(architecture=_dump_architecture(shape))

    def replace_architecture(self, shape: Architecture) -> None:
        """Replace the architecture, for a checkpoint without a pooler or with changes at load time."""
        self.architecture = _dump_architecture(shape)
        self.max_position_embeddings = shape.max_position_embeddings

    @property
    def shape(self) -> Architecture:
        """The architecture, with the config's present vocabulary size.

        Raises:
            ModelError: It has an unknown field.
        """
        return Architecture.of({**self.architecture, "vocab_size": self.vocab_size})


def _dump_architecture(shape: Architecture) -> dict[str, Any]:
    """An architecture as plain values, without fields that came later and are at their default."""
    values = asdict(shape)
    if shape.head.norm_eps is None:
        del values["head"]["norm_eps"]
    return values


class EncoderPreTrainedModel(PreTrainedModel):
    """The base class of the encoder with and without a head.

    Attributes:
        shape: The architecture.
        published: The family's names of config and tensors; None for our own names.
        notes: Deviations from the requested settings, such as another attention backend.
    """

    config_class = EncoderConfig
    base_model_prefix = "encoder"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _input_embed_layer = "tokens"
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
        self.register_load_state_dict_pre_hook(_rename_state_tensors)  # type: ignore[no-untyped-call]

    def _init_weights(self, module: nn.Module) -> None:
        spread = self.shape.initializer_range
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=spread)
        if isinstance(module, nn.Linear | nn.LayerNorm) and module.bias is not None:
            nn.init.zeros_(module.bias)
        if isinstance(module, nn.LayerNorm | nn.RMSNorm) and module.weight is not None:
            nn.init.ones_(module.weight)

    def _needs_hidden_states(self, hidden_states: bool | None, attentions: bool | None) -> bool:
        """Whether the output of every layer is requested; ValueError for attention weights."""
        if attentions:
            raise ValueError("The weights of attention are not kept.")
        return bool(self.config.output_hidden_states if hidden_states is None else hidden_states)

    def save_pretrained(  # type: ignore[override]
        self,
        save_directory: Any,
        *,
        state_dict: dict[str, Tensor] | None = None,
        max_shard_size: int | str = SHARD,
        is_main_process: bool = True,
        push_to_hub: bool = False,
        variant: str | None = None,
        **_unused: Any,
    ) -> None:
        """Write config and weights, in the family's published form where transformers knows it.

        Of a network with an adapter, the adapter alone is written.

        Args:
            save_directory: The folder, made if it does not exist.
            state_dict: The tensors; None for those of the network.
            max_shard_size: The largest size of a weight file.
            is_main_process: Whether this process writes.
            push_to_hub: Refused.
            variant: Refused.
            **_unused: Other arguments, as transformers passes them.

        Raises:
            ModelError: `push_to_hub` or `variant` is set.
        """
        folder = Path(save_directory)
        if push_to_hub or variant:
            raise ModelError(
                "A network is saved to a folder, in one variant.", hint="Upload that folder (`hf upload`)."
            )
        if not is_main_process:
            return
        if getattr(self, "_hf_peft_config_loaded", False):
            _save_adapter(self, folder, state_dict=state_dict)
            return
        folder.mkdir(parents=True, exist_ok=True)
        # Beside the files of an adapter, the folder would be loaded as that adapter.
        for stale in (WEIGHTS, CONFIG):
            (folder / stale).unlink(missing_ok=True)
        config: PreTrainedConfig = self.config
        published = self.published
        classes: Any = MODEL_FOR_MASKED_LM_MAPPING if published and published.with_head else MODEL_MAPPING
        # transformers' own class where it has one for the config.
        config.architectures = [(type(self) if published is None else classes[type(config)]).__name__]
        tensors = self.state_dict() if state_dict is None else state_dict
        config.dtype = next(iter(tensors.values())).dtype
        config.save_pretrained(folder)
        if self.shape.tie_word_embeddings:
            tensors = {name: tensor for name, tensor in tensors.items() if name != "head.decoder.weight"}
        if published is not None:
            tensors = {published.theirs(name): tensor for name, tensor in tensors.items()}
        else:
            require_import(folder)
        # A file takes no slices, as fused projections are.
        sizes = {name: tensor.numel() * tensor.element_size() for name, tensor in tensors.items()}
        slices = {name for name, size in sizes.items() if tensors[name].untyped_storage().nbytes() > size}
        tensors = {name: tensor.clone() if name in slices else tensor for name, tensor in tensors.items()}
        save_torch_state_dict(tensors, folder, max_shard_size=max_shard_size, metadata={"format": "pt"})

    def add_adapter(self, adapter_config: Any, adapter_name: str | None = None) -> None:
        """Add a LoRA adapter of peft; ModelError if it could not be saved."""
        _require_lora(adapter_config)
        super().add_adapter(adapter_config, adapter_name)

    def load_adapter(  # type: ignore[override]
        self,
        peft_model_id: str | Path,
        adapter_name: str | None = None,
        *,
        is_trainable: bool = False,
        **_unused: Any,
    ) -> None:
        """Load a folder's LoRA adapter; transformers 5.3 skips it in a model without the prefix "model.".

        Args:
            peft_model_id: The folder.
            adapter_name: The adapter's name in the network.
            is_trainable: Whether it is trained further.
            **_unused: Arguments that transformers passes when it loads the base.

        Raises:
            ModelError: It is no LoRA adapter, or does not fit this network.
        """
        from peft import PeftConfig, inject_adapter_in_model, set_peft_model_state_dict
        from peft.utils.other import get_pattern_key

        folder, name = Path(peft_model_id), adapter_name or "default"
        if not (folder / CONFIG).is_file() or not (folder / WEIGHTS).is_file():
            raise ModelError(f"{folder} holds no adapter: it lacks {CONFIG} or {WEIGHTS}.")
        config: Any = PeftConfig.from_pretrained(str(folder))
        _require_lora(config)
        published = self.published
        read, heads = _read_adapter(
            folder,
            "" if published is None else published.names.prefix,
            pooler=self.shape.pooler,
            has_head=lambda _: published is not None and published.with_head,
        )
        self.notes += _note_heads(heads)
        tensors = {key.removeprefix(PREFIX): tensor for key, tensor in read.items()}
        state = {_import_tensor_name(self, key): tensor for key, tensor in tensors.items()}
        config.target_modules = {key.partition(PART)[0] for key in state}
        config.inference_mode = not is_trainable
        for setting in ("rank_pattern", "alpha_pattern"):
            # Their keys are regular expressions of published names.
            values, chosen = getattr(config, setting), {}
            for key in tensors:
                module = key.partition(PART)[0]
                if (pattern := get_pattern_key(values, module)) in values:
                    chosen[re.escape(_import_tensor_name(self, module))] = values[pattern]
            setattr(config, setting, chosen)
        inject_adapter_in_model(config, self, name)
        # transformers' own mark, by which `save_pretrained` knows of the adapter.
        self._hf_peft_config_loaded = True
        result: Any = set_peft_model_state_dict(self, state, adapter_name=name)
        lacking = [key for key in result.missing_keys if PART in key]
        _require_fit(folder, len(lacking), len(result.unexpected_keys))

    def list_lora_targets(self) -> list[str]:
        """The names of the modules for a LoRA adapter: every linear layer of the blocks."""
        names = {
            name.partition(PART)[0].removesuffix(".base_layer").rpartition(".")[2]
            for name, module in self.named_modules()
            if isinstance(module, nn.Linear) and ".layers." in f".{name}"
        }
        return sorted(names)


def merge_adapters(backbone: nn.Module) -> None:
    """Add adapters to the weights that they stand beside, and put the plain layers back in their places.

    A backbone without adapters stays as it is.
    """
    if not hasattr(backbone, "peft_config"):
        return
    from peft.tuners.lora import LoraLayer

    adapted = [(name, layer) for name, layer in backbone.named_modules() if isinstance(layer, LoraLayer)]
    for name, layer in adapted:
        layer.merge()
        place, _, last = name.rpartition(".")
        setattr(backbone.get_submodule(place), last, layer.get_base_layer())
    # peft and transformers keep these: without them the backbone counts as a plain one again.
    del backbone.peft_config
    backbone._hf_peft_config_loaded = False  # type: ignore[assignment]


OTHER_BACKBONE = "It was made for another backbone, or for a model with a head."


def merge_folder_adapter(network: Any, place: Path) -> list[str]:
    """Merge the adapter that `lay_beside_base` put into a backbone's folder, if any, into its network.

    Returns notes on a class of transformers; our network has its own.

    Args:
        network: Ours or a class of transformers, perhaps with a head or without memory.
        place: The folder of the backbone.

    Raises:
        ModelError: The adapter does not fit the network.
    """
    folder = place / ADAPTER
    if not folder.is_dir():
        return []
    notes = list[str]()
    trainable = {name for name, value in network.named_parameters() if value.requires_grad}
    try:
        if isinstance(network, EncoderPreTrainedModel):
            network.load_adapter(folder)
            merge_adapters(network)
        else:
            notes = _merge_by_peft(network, folder)
    # torch names tensors of other shapes in the lines behind the first.
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1].strip()
        if "size mismatch" not in reason:
            raise
        raise ModelError(f"The adapter in {folder} does not fit: {reason}", hint=OTHER_BACKBONE) from error
    # peft freezes what it stands beside, and a training may start from this model.
    for name, value in network.named_parameters():
        value.requires_grad_(name in trainable)
    return notes


def _merge_by_peft(network: Any, folder: Path) -> list[str]:
    """Merge any kind of adapter into a class of transformers, in place, so that a head around it stays."""
    from peft import PeftConfig, PeftModel, get_peft_model_state_dict, set_peft_model_state_dict

    backbone, prefix = network.base_model, network.base_model_prefix
    tensors, heads = _read_adapter(
        folder,
        f"{prefix}.",
        pooler=getattr(backbone, "pooler", None) is not None,
        has_head=lambda name: network is not backbone and hasattr(network, name),
    )
    config: Any = PeftConfig.from_pretrained(str(folder))
    saved = config.modules_to_save or ()
    config.modules_to_save = [name for name in saved if any(f".{name}." in key for key in tensors)]
    whole = backbone
    if any(key.startswith(f"{PREFIX}{prefix}.") for key in tensors):
        # It was made for a model with a head, by whose names it finds its layers.
        whole = network if network is not backbone else nn.ModuleDict({prefix: backbone})
        whole.config = backbone.config
    # Not by its from_pretrained, which passes over tensors that do not fit.
    wrapped = PeftModel(whole, config)
    due = get_peft_model_state_dict(wrapped, save_embedding_layers=False).keys()
    if not any(".pooler." in key for key in tensors):
        # transformers draws a pooler where a class with a head has none.
        due = {key for key in due if ".pooler." not in key}
    result: Any = set_peft_model_state_dict(wrapped, tensors)
    _require_fit(folder, len(due - tensors.keys()), len(result.unexpected_keys))
    wrapped.merge_and_unload()
    return _note_heads(heads)


def _read_adapter(
    folder: Path, prefix: str, *, pooler: bool, has_head: Callable[[str], bool]
) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors of an adapter that a network takes, and the names of those of heads, which are left out.

    Args:
        folder: The folder of the adapter.
        prefix: The prefix of the backbone's names in a model with a head.
        pooler: Whether there is a pooler, which no vector needs: transformers draws one where there is none.
        has_head: Whether the network has a module beside its backbone, by its name.
    """
    tensors, body = load_file(folder / WEIGHTS), PREFIX + prefix
    of_task = read_object(folder / CONFIG).get("task_type") in TASKS
    if not any(key.startswith(body) for key in tensors):
        body = PREFIX
    # Some kinds of adapters have tensors of no layer, whose names begin otherwise.
    outside = [
        key.removeprefix(PREFIX) for key in tensors if key.startswith(PREFIX) and not key.startswith(body)
    ]
    heads = [name for name in outside if of_task or not has_head(name.partition(".")[0])]
    left_out = {PREFIX + name for name in heads}
    if not pooler:
        left_out |= {key for key in tensors if key.startswith(f"{body}pooler.")}
    return {key: value for key, value in tensors.items() if key not in left_out}, sorted(heads)


def _note_heads(heads: Sequence[str]) -> list[str]:
    return [describe_ignored_tensors(heads, "it belongs to the head of a task")] if heads else []


def _require_fit(folder: Path, missing: int, unexpected: int) -> None:
    if missing or unexpected:
        raise ModelError(
            f"The adapter in {folder} does not fit: "
            f"{missing} of its tensors are missing, {unexpected} have no place.",
            hint=OTHER_BACKBONE,
        )


def _rename_state_tensors(
    module: EncoderPreTrainedModel, state: dict[str, Tensor], prefix: str, *_args: Any
) -> None:
    """Rename published names in a state dict to ours before it loads, and drop an extra pooler."""
    published = module.published
    if published is None:
        return
    for name in [n for n in state if n.startswith(prefix)]:
        ours = published.ours(name.removeprefix(prefix))
        if ours is None:
            continue
        tensor = state.pop(name)
        # transformers' class adds a random pooler where the checkpoint has none.
        if "pooler." not in ours or module.shape.pooler:
            state[prefix + ours] = tensor


NEEDED = """## Loading

The architecture is one that transformers has no class for. Install `encoder-harness`; sentence-transformers
then loads the model as any other, and transformers does so once it is registered:

```python
import harness

harness.register()
```
"""


def require_import(folder: Path) -> None:
    """Add the note on `harness.register()` to the README of a model folder, once."""
    readme = folder / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    if NEEDED not in text:
        readme.write_text(f"{text.rstrip()}\n\n{NEEDED}".lstrip(), encoding="utf-8")


DECODER, TABLE = "head.decoder.weight", f"{ENCODER}embeddings.tokens.weight"

SHOWN = 5
"""The number of tensors that an error names."""

MISSING = "that its vectors depend on are in no file"
HEADLESS = "of the masked-language head are in no file (leave it out with head=False)"
EXTRA = "have no place in the model"
TWICE = "are there twice, and not the same"
OTHER_SHAPE = "have another shape"
UNTIED = "should be the token embedding, as the config says, and are not"

NOT_LOADED = "not loaded"
HEAD_IGNORED = "it belongs to the masked-language head, which a vector does not need"
ALLOWED = "it has no place in the model, and --allow names it"


def _are_same(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors are equal; without values, whether they have one shape."""
    return first.shape == second.shape and (first.is_meta or first.equal(second))


@dataclass(frozen=True, kw_only=True)
class CheckpointTensors:
    """The tensors of a folder: `state` by our names, `ignored` with reasons, `extra` and `twice` faulty.

    Attributes:
        names: The family's names; None for a folder under our own model type.
        prefixed: Whether its names have the family's prefix.
        allowed: Patterns of tensors that may have no place in the model.
        state: Tensors that the network has.
        ignored: Tensors that are left out, each with the reason; those of a head are left out unless loaded.
        extra: Tensors without a place.
        twice: Tensors that have two values.
        decoder: The decoder of a head that is left out, by its name in the files.
    """

    names: Names | None
    prefixed: bool = False
    allowed: Sequence[str] = ()
    state: dict[str, Tensor] = field(default_factory=dict)
    ignored: dict[str, str] = field(default_factory=dict)
    extra: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    decoder: dict[str, Tensor] = field(default_factory=dict)

    @staticmethod
    def sort_tensors(
        tensors: Mapping[str, Tensor], names: Names | None, *, head: bool, allowed: Sequence[str] = ()
    ) -> CheckpointTensors:
        """The tensors of a folder, sorted by what becomes of them.

        Args:
            tensors: Tensors, perhaps without values, by their names in the files.
            names: The family's names; None for a folder under our own model type.
            head: Whether the masked-language head is loaded.
            allowed: Patterns of tensors that may have no place in the model.
        """
        # A model saved with a head has the prefix, one saved alone has not.
        prefixed = names is not None and any(name.startswith(names.prefix) for name in tensors)
        checkpoint = CheckpointTensors(names=names, prefixed=prefixed, allowed=allowed)
        for name, tensor in tensors.items():
            checkpoint._add(name, tensor, head=head)
        return checkpoint

    def _add(self, theirs: str, tensor: Tensor, *, head: bool) -> None:
        why = None if self.names is None else self.names.reason(theirs)
        ours = theirs.removeprefix(ENCODER) if self.names is None else self.names.ours(theirs)
        if why is not None:
            self.ignored[theirs] = why
        elif ours is None:
            self._collect_extra_tensor(theirs)
        elif ours.startswith("head.") and not head:
            self.ignored[theirs] = HEAD_IGNORED
            if ours == DECODER:
                self.decoder[theirs] = tensor
        else:
            ours = ENCODER + ours if head and not ours.startswith("head.") else ours
            if ours in self.state and not _are_same(self.state[ours], tensor):
                self.twice.append(ours)
            self.state[ours] = tensor

    def _collect_extra_tensor(self, theirs: str) -> None:
        if any(fnmatchcase(theirs, pattern) for pattern in self.allowed):
            self.ignored[theirs] = ALLOWED
        else:
            self.extra.append(theirs)

    def check_tensors(self, wanted: Shapes, shape: Architecture, name: str) -> None:
        """Refuse tensors other than those of a network; those that may be left out leave `state`.

        Args:
            wanted: The shape of each tensor of the network, by our names.
            shape: The architecture of the network.
            name: The name of the model, for the message.

        Raises:
            ModelError: A tensor is missing, left over, there twice, or of another shape.
        """
        if shape.tie_word_embeddings:
            self._take_decoder_as_table(wanted)
        for ours in [one for one in self.state if one not in wanted]:
            self._collect_extra_tensor(self._format_checkpoint_name(ours))
            del self.state[ours]
        problems = self._describe_mismatches(wanted, shape)
        if problems:
            hint = "Its config and its weights do not belong together, or are of another architecture."
            # A tensor with a name may be one that the config lacks.
            if self.extra and self.names and not any(map(self.names.ours, self.extra)):
                named = f"tensors={self.extra[0]}{',…' if len(self.extra) > 1 else ''}"
                hint += f" If these tensors are known to be harmless, add --allow {named}"
            raise ModelError(f"{name} is not loaded whole: {'; '.join(problems)}.", hint=hint)

    def _take_decoder_as_table(self, wanted: Shapes) -> None:
        """Let a tied decoder stand for a token embedding that no file has (safetensors' save_model)."""
        table = next(name for name in (TABLE, TABLE.removeprefix(ENCODER)) if name in wanted)
        if table in self.state:
            return
        if DECODER in self.state:
            self.state[table] = self.state[DECODER]
        for theirs, tensor in self.decoder.items():
            self.state[table] = tensor
            del self.ignored[theirs]

    def _describe_mismatches(self, wanted: Shapes, shape: Architecture) -> list[str]:
        state, tied = self.state, [DECODER] if shape.tie_word_embeddings else []
        both = [name for name in tied if {name, TABLE} <= state.keys()]
        untied = [name for name in both if not _are_same(state[name], state[TABLE])]
        # A tied decoder is the token embedding, so files may leave it out.
        lacking = wanted.keys() - state.keys() - {*tied}
        of_head = {name for name in lacking if name.startswith("head.")}
        faults = {
            MISSING: map(self._format_checkpoint_name, lacking - of_head),
            HEADLESS: map(self._format_checkpoint_name, of_head),
            EXTRA: self.extra,
            TWICE: map(self._format_checkpoint_name, self.twice),
            UNTIED: map(self._format_checkpoint_name, untied),
            OTHER_SHAPE: [
                f"{self._format_checkpoint_name(name)} ({tuple(state[name].shape)} in the file, "
                f"{tuple(wanted[name])} in the model)"
                for name in wanted.keys() & state.keys()
                if tuple(state[name].shape) != tuple(wanted[name])
            ],
        }
        return [
            f"{len(names)} tensors {what}: {shorten_names(names, SHOWN)}"
            for what, given in faults.items()
            if (names := sorted(given))
        ]

    @property
    def notes(self) -> list[str]:
        """Sentences on the tensors that are left out, one for each reason; none on computed ones."""
        reasons: dict[str, list[str]] = {}
        for name in sorted(self.ignored):
            if self.names is None or not self.names.computes(name):
                reasons.setdefault(self.ignored[name], []).append(name)
        return [describe_ignored_tensors(names, why) for why, names in reasons.items()]

    def _format_checkpoint_name(self, ours: str) -> str:
        if self.names is None:
            return ours
        try:
            return self.names.theirs(ours.removeprefix(ENCODER), with_head=self.prefixed)
        except KeyError:
            return f"{ours} (which the family has no name for)"


def describe_ignored_tensors(names: Sequence[str], why: str) -> str:
    """The note on tensors of a folder that were not loaded.

    >>> describe_ignored_tensors(["classifier.bias"], "it belongs to the head of a task")
    'not loaded: classifier.bias (it belongs to the head of a task)'
    """
    return f"{NOT_LOADED}: {shorten_names(names, SHOWN)} ({why})"
