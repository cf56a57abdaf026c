"""Loading of published weights into our network, with an error if a tensor is missing or left over.

Tensors are read, renamed to our names, and compared with those of a network that is built from the config
without weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.encoder.family import ENCODER, MODEL_TYPE, Architecture, Family, Names
from harness.encoder.model_files import module_weights, read_object
from harness.encoder.network.model import EncoderForMaskedLM, EncoderModel
from harness.encoder.network.pretrained import Published
from harness.errors import ModelError

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from transformers import PreTrainedConfig


@dataclass(frozen=True, kw_only=True)
class _Loaded:
    """A network, and the tensors of its folder that were left out, each with the reason."""

    model: EncoderModel | EncoderForMaskedLM
    ignored: Mapping[str, str]


def load_network(
    folder: Path,
    family: Family | None,
    *,
    dtype: torch.dtype,
    head: bool = False,
    config: PreTrainedConfig | None = None,
    changes: Mapping[str, Any] | None = None,
) -> _Loaded:
    """The network in a folder.

    Args:
        folder: The folder with config.json and weights.
        family: The family of its published form; None for a folder under our own model type.
        dtype: The dtype of its parameters.
        head: Whether the masked-language head is loaded.
        config: The config from `configured`, if already known.
        changes: Fields of the Architecture that override the config.

    Raises:
        ModelError: A tensor is missing, or an unknown tensor exists.
    """
    import torch

    from harness.encoder.network.pretrained import EncoderConfig

    if config is None:
        config, shape = configured(folder, family)
    else:
        shape = _shape_of(config, family)
    found = read_tensors(folder, None if family is None else family.names, head=head)
    pooled = shape.pooler and any("pooler." in name for name in found.state)
    shape = replace(shape, pooler=pooled, **(changes or {}))
    if isinstance(config, EncoderConfig):
        config.adopt(shape)
    with torch.device("meta"):
        model = _build(config, shape, family, head=head)
    problems = found.problems(model.state_dict(), shape)
    if problems:
        raise ModelError(
            f"{folder.name} is not loaded whole: {'; '.join(problems)}.",
            hint="Its config and its weights do not belong together, or the weights are of another "
            "architecture.",
        )
    state = {name: tensor.to(dtype) for name, tensor in found.state.items()}
    model.load_state_dict(state, assign=True, strict=False)
    model.tie_weights()
    model.eval()  # type: ignore[no-untyped-call]
    return _Loaded(model=model, ignored=found.ignored)


DECODER, TABLE = "head.decoder.weight", f"{ENCODER}embeddings.tokens.weight"

SHOWN = 5
"""The number of tensors that an error names."""

MISSING = "that its vectors depend on are in no file"
HEADLESS = "of the masked-language head are in no file (leave it out with head=False)"
EXTRA = "have no place in the model"
TWICE = "are there twice, and not the same"
OTHER_SHAPE = "have another shape"
UNTIED = "should be the token embedding, as the config says, and are not"

HEAD_IGNORED = "it belongs to the masked-language head, which a vector does not need"


@dataclass(frozen=True, kw_only=True)
class _Found:
    """The tensors of a folder: `state` by our names, `ignored` with reasons, `extra` and `twice` faulty."""

    names: Names | None
    prefixed: bool = False
    state: dict[str, Tensor] = field(default_factory=dict)
    ignored: dict[str, str] = field(default_factory=dict)
    extra: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)

    def add(self, theirs: str, tensor: Tensor, *, head: bool) -> None:
        """Sort in a tensor; `head` is whether the masked-language head is loaded."""
        why = None if self.names is None else self.names.reason(theirs)
        ours = theirs.removeprefix(ENCODER) if self.names is None else self.names.ours(theirs)
        if why is not None:
            self.ignored[theirs] = why
        elif ours is None:
            self.extra.append(theirs)
        elif ours.startswith("head.") and not head:
            self.ignored[theirs] = HEAD_IGNORED
        else:
            self._keep(ENCODER + ours if head and not ours.startswith("head.") else ours, tensor)

    def _keep(self, ours: str, tensor: Tensor) -> None:
        if ours in self.state and not self.state[ours].equal(tensor):
            self.twice.append(ours)
        self.state[ours] = tensor

    def problems(self, wanted: Mapping[str, Tensor], shape: Architecture) -> list[str]:
        """The differences from the tensors of a network, each with its name in the file."""
        state = self.state
        tied = {DECODER} if shape.tie_word_embeddings else set()
        there = [name for name in wanted if name in state]
        both = {name for name in tied if {name, TABLE} <= state.keys()}
        lacking = wanted.keys() - state.keys() - tied
        of_head = {name for name in lacking if name.startswith("head.")}
        found = (
            (map(self._shown, lacking - of_head), MISSING),
            (map(self._shown, of_head), HEADLESS),
            ([*self.extra, *map(self._shown, state.keys() - wanted.keys())], EXTRA),
            (map(self._shown, self.twice), TWICE),
            (map(self._shown, [name for name in both if not state[name].equal(state[TABLE])]), UNTIED),
            ([self._shapes(n, wanted[n]) for n in there if state[n].shape != wanted[n].shape], OTHER_SHAPE),
        )
        return [_counted(names, what) for given, what in found if (names := sorted(given))]

    def _shapes(self, ours: str, wanted: Tensor) -> str:
        found = tuple(self.state[ours].shape)
        return f"{self._shown(ours)} ({found} in the file, {tuple(wanted.shape)} in the model)"

    def _shown(self, ours: str) -> str:
        if self.names is None:
            return ours
        try:
            return self.names.theirs(ours.removeprefix(ENCODER), with_head=self.prefixed)
        except KeyError:
            return f"{ours} (which the family has no name for)"


def read_tensors(folder: Path, names: Names | None, *, head: bool) -> _Found:
    """The tensors of a folder's weight files, on the CPU."""
    tensors = raw_tensors(folder)
    prefixed = names is not None and any(name.startswith(names.prefix) for name in tensors)
    found = _Found(names=names, prefixed=prefixed)
    for name, tensor in tensors.items():
        found.add(name, tensor, head=head)
    return found


def raw_tensors(folder: Path) -> dict[str, Tensor]:
    """The tensors of a folder's weight files under their names there, on the CPU."""
    import torch
    from safetensors.torch import load_file

    tensors: dict[str, Tensor] = {}
    for path in module_weights(folder):
        if path.suffix == ".safetensors":
            tensors.update(load_file(path))
        else:
            tensors.update(torch.load(path, map_location="cpu", weights_only=True))
    return tensors


def _counted(names: list[str], what: str) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{len(names)} tensors {what}: {', '.join(names[:SHOWN])}{more}"


def _build(
    config: PreTrainedConfig, shape: Architecture, family: Family | None, *, head: bool = False
) -> EncoderModel | EncoderForMaskedLM:
    from harness.encoder.network.model import EncoderForMaskedLM, EncoderModel

    published = None
    if family is not None and family.native and family.names is not None:
        published = Published(names=family.names, with_head=head)
    return (EncoderForMaskedLM if head else EncoderModel)(config, shape, published)


def configured(
    folder: Path, family: Family | None, changes: Mapping[str, Any] | None = None
) -> tuple[PreTrainedConfig, Architecture]:
    """The config of a network in this folder, and its architecture.

    Args:
        folder: The folder with config.json.
        family: The family of its published form; None for a folder under our own model type.
        changes: Values that override those of the config.json, by its own names.

    Raises:
        ModelError: The family has no network of ours, or cannot read the config.
    """
    from harness.encoder.network.pretrained import EncoderConfig

    content = read_object(folder / "config.json")
    if family is None and content.get("model_type") != MODEL_TYPE:
        raise ModelError(
            f"{folder.name}, a {content.get('model_type', 'model of no type')}, is of no family here.",
            hint="`harness list backbones` shows the families; others load with transformers' AutoModel.",
        )
    if family is not None:
        config, shape = _configured_from({**content, **(changes or {})}, family)
    else:
        config = EncoderConfig.from_dict(_changed(content, changes or {}))
        shape = config.shape
    config.name_or_path = str(folder)
    return config, shape


def _changed(content: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A config.json of ours with changed values, by the names of Architecture or its own."""
    inside = {field.name for field in fields(Architecture)}
    unknown = sorted(changes.keys() - inside - content.keys())
    if unknown:
        raise ModelError(
            f"The config of the model has no {', '.join(unknown)}.",
            hint="It was saved under our own model type: see `harness/encoder/family.py`.",
        )
    within = {name: value for name, value in changes.items() if name in inside}
    outside = {name: value for name, value in changes.items() if name in content}
    return {**content, **outside, "architecture": {**content["architecture"], **within}}


def _configured_from(content: Mapping[str, Any], family: Family) -> tuple[PreTrainedConfig, Architecture]:
    from transformers import CONFIG_MAPPING

    from harness.encoder.network.pretrained import EncoderConfig

    if not family.native:
        shape = family.architecture(content)
        return EncoderConfig.of(shape), shape
    config: PreTrainedConfig = CONFIG_MAPPING[str(content["model_type"])].from_dict(dict(content))
    shape = _shape_of(config, family)
    # A CamembertConfig without this field has no default, and transformers then ties no weights.
    config.tie_word_embeddings = shape.tie_word_embeddings
    return config, shape


def _shape_of(config: PreTrainedConfig, family: Family | None) -> Architecture:
    """The architecture of a config from `configured`."""
    from harness.encoder.network.pretrained import EncoderConfig

    if isinstance(config, EncoderConfig):
        return config.shape
    assert family is not None
    return family.architecture(config.to_dict())
