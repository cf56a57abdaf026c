"""The tensors of a model folder, sorted by a family's names and compared with an architecture.

Works on tensors and on the entries of a file's header alike, and imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from harness.core.errors import DamagedModelError, ModelError, shorten_names
from harness.encoder.family import ENCODER, Architecture, Names

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

Shapes = Mapping[str, Sequence[int]]


def has_same_content(first: Any, second: Any) -> bool:
    """Whether two tensors are equal."""
    return bool(first.equal(second))


def has_same_shape(first: Any, second: Any) -> bool:
    """Whether two tensors have one shape, where their content is not known."""
    return tuple(first.shape) == tuple(second.shape)


@dataclass(frozen=True, kw_only=True)
class FoundTensors:
    """The tensors of a folder: `state` by our names, `ignored` with reasons, `extra` and `twice` faulty.

    Attributes:
        names: The family's names; None for a folder under our own model type.
        prefixed: Whether its names have the family's prefix.
        allowed: Patterns of tensors that may have no place in the model.
        same: Whether two tensors are equal, as far as that can be known.
        state: Tensors that the network has.
        ignored: Tensors that are left out, each with the reason; those of a head are left out unless loaded.
        computed: Tensors that the network computes itself.
        extra: Tensors without a place.
        nameless: Those of them that the family has no name for.
        twice: Tensors that have two values.
        decoder: The decoder of a head that is left out, by its name in the files.
    """

    names: Names | None
    prefixed: bool = False
    allowed: Sequence[str] = ()
    same: Callable[[Any, Any], bool] = has_same_content
    state: dict[str, Any] = field(default_factory=dict)
    ignored: dict[str, str] = field(default_factory=dict)
    computed: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    nameless: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    decoder: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def sort_tensors(
        tensors: Mapping[str, Any],
        names: Names | None,
        *,
        head: bool,
        allowed: Sequence[str] = (),
        same: Callable[[Any, Any], bool] = has_same_content,
    ) -> FoundTensors:
        """The tensors of a folder, sorted by what becomes of them.

        Args:
            tensors: Tensors, or the entries of a file's header, by their names in the files.
            names: The family's names; None for a folder under our own model type.
            head: Whether the masked-language head is loaded.
            allowed: Patterns of tensors that may have no place in the model.
            same: Whether two tensors are equal, as far as that can be known.
        """
        # A model saved with a head has the prefix, one saved alone has not.
        prefixed = names is not None and any(name.startswith(names.prefix) for name in tensors)
        folder_tensors = FoundTensors(names=names, prefixed=prefixed, allowed=allowed, same=same)
        for name, tensor in tensors.items():
            folder_tensors._add(name, tensor, head=head)
        return folder_tensors

    def _add(self, theirs: str, tensor: Any, *, head: bool) -> None:
        why = None if self.names is None else self.names.reason(theirs)
        ours = theirs.removeprefix(ENCODER) if self.names is None else self.names.ours(theirs)
        if why is not None:
            self.ignored[theirs] = why
            if self.names is not None and self.names.computes(theirs):
                self.computed.append(theirs)
        elif ours is None:
            self._collect_extra_tensor(theirs)
            self.nameless.append(theirs)
        elif ours.startswith("head.") and not head:
            self.ignored[theirs] = HEAD_IGNORED
            if ours == DECODER:
                self.decoder[theirs] = tensor
        else:
            self._keep_tensor(ENCODER + ours if head and not ours.startswith("head.") else ours, tensor)

    def _collect_extra_tensor(self, theirs: str) -> None:
        if any(fnmatchcase(theirs, pattern) for pattern in self.allowed):
            self.ignored[theirs] = ALLOWED
        else:
            self.extra.append(theirs)

    def _keep_tensor(self, ours: str, tensor: Any) -> None:
        if ours in self.state and not self.same(self.state[ours], tensor):
            self.twice.append(ours)
        self.state[ours] = tensor

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
            if self.extra and set(self.extra) <= set(self.nameless):
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
        state = self.state
        tied = {DECODER} if shape.tie_word_embeddings else set()
        present_names = [name for name in wanted if name in state]
        both = {name for name in tied if {name, TABLE} <= state.keys()}
        # A tied decoder is the token embedding, so files may leave it out.
        lacking = wanted.keys() - state.keys() - tied
        of_head = {name for name in lacking if name.startswith("head.")}
        faults = (
            (map(self._format_checkpoint_name, lacking - of_head), MISSING),
            (map(self._format_checkpoint_name, of_head), HEADLESS),
            (self.extra, EXTRA),
            (map(self._format_checkpoint_name, self.twice), TWICE),
            (
                map(
                    self._format_checkpoint_name,
                    [name for name in both if not self.same(state[name], state[TABLE])],
                ),
                UNTIED,
            ),
            (
                [
                    self._describe_shapes(n, wanted[n])
                    for n in present_names
                    if tuple(state[n].shape) != tuple(wanted[n])
                ],
                OTHER_SHAPE,
            ),
        )
        return [_format_tensor_count(names, what) for given, what in faults if (names := sorted(given))]

    @property
    def notes(self) -> list[str]:
        """Sentences on the tensors that are left out, one for each reason; none on computed ones."""
        reasons: dict[str, list[str]] = {}
        for name in sorted(self.ignored.keys() - set(self.computed)):
            reasons.setdefault(self.ignored[name], []).append(name)
        return [describe_ignored_tensors(names, why) for why, names in reasons.items()]

    def _describe_shapes(self, ours: str, wanted: Sequence[int]) -> str:
        file_shape = tuple(self.state[ours].shape)
        return (
            f"{self._format_checkpoint_name(ours)} ({file_shape} in the file, {tuple(wanted)} in the model)"
        )

    def _format_checkpoint_name(self, ours: str) -> str:
        if self.names is None:
            return ours
        try:
            return self.names.theirs(ours.removeprefix(ENCODER), with_head=self.prefixed)
        except KeyError:
            return f"{ours} (which the family has no name for)"


def require_shapes(place: Path, tensors: Mapping[str, Any], wanted: Shapes) -> None:
    """Refuse tensors of a module that have other names or shapes than its config says.

    Args:
        place: The module's folder, for the message.
        tensors: Tensors, or the entries of a file's header, by name.
        wanted: The shape of each tensor by name.

    Raises:
        ModelError: A tensor is missing, left over, or of another shape.
    """
    present_shapes = {(name, tuple(tensor.shape)) for name, tensor in tensors.items()}
    due = {(name, tuple(shape)) for name, shape in wanted.items()}
    if present_shapes != due:
        raise DamagedModelError(
            f"{place} has {_format_tensor_shapes(present_shapes - due)}, and its config.json wants "
            f"{_format_tensor_shapes(due - present_shapes)}."
        )


def _format_tensor_shapes(tensors: Collection[tuple[str, tuple[int, ...]]]) -> str:
    return (
        shorten_names([f"a tensor {name} of {shape}" for name, shape in sorted(tensors)], 3)
        or "no such tensor"
    )


def describe_ignored_tensors(names: Sequence[str], why: str) -> str:
    """The note on tensors of a folder that were not loaded.

    >>> describe_ignored_tensors(["classifier.bias"], "it belongs to the head of a task")
    'not loaded: classifier.bias (it belongs to the head of a task)'
    """
    return f"{NOT_LOADED}: {shorten_names(names, SHOWN)} ({why})"


def _format_tensor_count(names: list[str], what: str) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{len(names)} tensors {what}: {', '.join(names[:SHOWN])}{more}"
