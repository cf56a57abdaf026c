"""The tensors of a folder: read, sorted under our names, and held against what the network wants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from harness.encoder.network.architecture import Architecture
from harness.encoder.network.names import ENCODER, Names
from harness.encoder.weights import module_weights

if TYPE_CHECKING:
    from torch import Tensor

DECODER, TABLE = "head.decoder.weight", f"{ENCODER}embeddings.tokens.weight"

SHOWN = 5
"""How many tensors an error names."""

MISSING = "that its vectors depend on are in no file"
HEADLESS = "of the masked-language head are in no file (leave it out with head=False)"
EXTRA = "have no place in the model"
TWICE = "are there twice, and not the same"
OTHER_SHAPE = "have another shape"
UNTIED = "should be the token embedding, as the config says, and are not"

HEAD_IGNORED = "it belongs to the masked-language head, which a vector does not need"


@dataclass(frozen=True, kw_only=True)
class Found:
    """The tensors of a folder.

    Attributes:
        state: Those of the network, under our names.
        ignored: Those left out, each with the reason.
        extra: Those that are neither.
        twice: Our names of those that stand there under two names with different values.
        names: How the family calls them; None for our own names.
        prefixed: Whether the encoder's names have the prefix of a model with a head.
    """

    names: Names | None
    prefixed: bool = False
    state: dict[str, Tensor] = field(default_factory=dict)
    ignored: dict[str, str] = field(default_factory=dict)
    extra: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)

    def add(self, theirs: str, tensor: Tensor, *, head: bool) -> None:
        """Sort in one tensor; `head` says whether those of the masked-language head are wanted."""
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
        """What keeps these from being the tensors of a network, each named as its file names it."""
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


def read_tensors(folder: Path, names: Names | None, *, head: bool) -> Found:
    """The tensors of a folder's weight files, on the CPU."""
    tensors = raw_tensors(folder)
    prefixed = names is not None and any(name.startswith(names.prefix) for name in tensors)
    found = Found(names=names, prefixed=prefixed)
    for name, tensor in tensors.items():
        found.add(name, tensor, head=head)
    return found


def raw_tensors(folder: Path) -> dict[str, Tensor]:
    """The tensors of a folder's weight files under the names they have there, on the CPU."""
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
