"""The tensors of a checkpoint, sorted by their published names and compared with those of our network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from torch import Tensor

from harness.core.errors import ModelError, shorten_names
from harness.encoder.family import ENCODER, Architecture, Names
from harness.encoder.folder.files import Shapes

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
