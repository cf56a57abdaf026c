"""Padded batch -> one row of tokens and back.

From a padded batch to one row of tokens without padding, and back.

One pass of a batch through the blocks: how its texts lie for the attention of each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.encoder.attention.interface import Layout, Needs
from harness.encoder.attention.kernels import choose
from harness.errors import ModelError

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Packing:
    """Which tokens of a batch are computed, and which of those are attended to.

    The texts follow one another, the longest first, so that texts of one length are neighbours.

    Attributes:
        shape: Texts and columns of the padded batch.
        index: (tokens,) place of each computed token in the flattened batch.
        positions: (tokens,) its rank among the computed tokens of its text.
        lengths: Computed tokens of each text that has any, falling.
        attended: (tokens,) whether it is attended to; None where all are.
    """

    shape: tuple[int, int]
    index: Tensor
    positions: Tensor
    lengths: tuple[int, ...]
    attended: Tensor | None

    @property
    def whole(self) -> bool:
        """Whether every place of the batch is computed; then the tokens stand in its order."""
        return len(self.index) == self.shape[0] * self.shape[1]

    def pack(self, padded: Tensor) -> Tensor:
        """(texts, columns, ...) to (tokens, ...)."""
        return padded.flatten(0, 1) if self.whole else padded.flatten(0, 1)[self.index]

    def unpack(self, packed: Tensor) -> Tensor:
        """(tokens, width) to (texts, columns, width), zero where nothing was computed."""
        texts, columns = self.shape
        width = packed.shape[-1]
        if self.whole:
            return packed.view(texts, columns, width)
        out = packed.new_zeros(texts * columns, width)
        return out.index_copy_(0, self.index, packed).view(texts, columns, width)

    def first(self, packed: Tensor) -> Tensor:
        """The first token of each text: (tokens, width) to (texts, width), zero for an empty text."""
        texts, columns = self.shape
        begins = self.positions == 0
        out = packed.new_zeros(texts, packed.shape[-1])
        return out.index_copy_(0, self.index[begins] // max(columns, 1), packed[begins])

    def text_lengths(self) -> Tensor:
        """(tokens,) of each token the length of its text."""
        import torch

        lengths = torch.tensor(self.lengths, device=self.index.device, dtype=torch.long)
        return lengths.repeat_interleave(lengths, output_size=len(self.index))


def packing(compute: Tensor, attend: Tensor) -> Packing:
    """The packing of a batch.

    A token may be computed without being attended to, as the expansion tokens of a ColBERT query
    are. A text of which no token is attended to has all its computed tokens attend to each other.

    Args:
        compute: (texts, columns) bool, the tokens whose vectors are wanted.
        attend: (texts, columns) bool, the tokens others attend to; those are computed as well.
    """
    import torch

    compute = compute | attend
    lengths = compute.sum(dim=1)
    order = torch.argsort(lengths, descending=True, stable=True)
    ordered = compute[order]
    row, column = ordered.nonzero(as_tuple=True)
    ranks = ordered.cumsum(dim=1) - 1
    index = order[row] * compute.shape[1] + column
    counted = tuple(length for length in lengths[order].tolist() if length)
    keys = attend | ~attend.any(dim=1, keepdim=True)
    attended = keys.flatten()[index]
    return Packing(
        shape=(compute.shape[0], compute.shape[1]),
        index=index,
        positions=ranks[row, column],
        lengths=counted,
        attended=None if bool(attended.all()) else attended,
    )


def positions_of(ids: Tensor, pad: int) -> Tensor:
    """RoBERTa's positions, (texts, columns): the rank among what is no padding token, -1 for one that is."""
    real = (ids != pad).long()
    return real.cumsum(dim=1) * real - 1


def mask_of(given: Tensor, mask: Tensor | None) -> Tensor:
    """The mask of a batch as (texts, columns) bool; without one, everything is attended to."""
    import torch

    if mask is None:
        return torch.ones(given.shape[:2], dtype=torch.bool, device=given.device)
    if mask.dim() != 2:
        raise ValueError(f"attention_mask has {mask.dim()} dimensions; it is (texts, columns).")
    return mask.bool()


def check_length(packed: Packing, most: int) -> None:
    """See that no text is longer than there are positions.

    Raises:
        ModelError: If one is.
    """
    longest = max(packed.lengths, default=0)
    if longest > most:
        raise ModelError(
            f"A text has {longest} tokens, and the model has positions for {most}.",
            hint=f"Cut texts at {most} tokens or fewer (--max-length).",
        )


@dataclass(frozen=True, kw_only=True)
class Pass:
    """The layouts of one pass, one for each backend that takes part.

    Attributes:
        packed: The texts.
        device: Where they are.
        dtype: In which attention computes.
        asked: The backend asked for.
        layouts: Those worked out so far, by the name of their backend.
        notes: Why a backend that was asked for did not do it.
    """

    packed: Packing
    device: torch.device
    dtype: torch.dtype
    asked: str
    layouts: dict[str, Layout] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def partly(self) -> bool:
        """Whether some computed tokens are not attended to."""
        return self.packed.attended is not None

    def layout(self, needs: Needs) -> Layout:
        """The texts as the backend for such a layer wants them."""
        backend, note = choose(self.device, self.dtype, needs, self.asked)
        if note is not None and note not in self.notes:
            self.notes.append(note)
        if backend.name not in self.layouts:
            self.layouts[backend.name] = backend.layout(
                self.packed.lengths, self.packed.attended, self.device
            )
        return self.layouts[backend.name]


def dtype_of(hidden: Tensor) -> torch.dtype:
    """The dtype that attention over these computes in, under autocast or not."""
    import torch

    if torch.is_autocast_enabled(hidden.device.type):
        return torch.get_autocast_dtype(hidden.device.type)
    return hidden.dtype
