"""Do two loads of a model agree? Asked without holding both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from harness.encoder.engine import Encoder
from harness.encoder.failure import Failure, Vectors, distance, on_side

if TYPE_CHECKING:
    from torch import Tensor, nn

RELOADED = {"float32": 1e-6, "bfloat16": 1e-3, "float16": 1e-3}
"""How far two loads may differ: the same kernels on the same numbers, so in practice by nothing."""

SHOWN = 5
"""How many tensors that differ are named."""


def disagreeing(
    encoder: Encoder, texts: Sequence[str], reload: Callable[[], Encoder]
) -> list[Failure | None]:
    """Load the model again, and compare the vectors of each side; the encoder goes on with that load.

    Of the first load its vectors and the checksums of its tensors are kept.
    """
    first = {role: encoder.encode_batch(texts, role=role) for role in encoder.roles}
    sums = checksums(encoder.model)
    encoder.reload(reload)
    second = checksums(encoder.model)
    other = [name for name in sums if sums[name] != second.get(name)]
    return [
        on_side(role, _moved(encoder, texts, (vectors, encoder.encode_batch(texts, role=role)), other))
        for role, vectors in first.items()
    ]


def checksums(model: nn.Module) -> dict[str, int]:
    """The sum of the bits of each parameter and buffer, read as integers, on the model's device.

    Two tensors set at random differ in it; it is no hash, for the order of the numbers counts for
    nothing.
    """
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: _sum(tensor.detach()) for name, tensor in tensors.items()}


def _sum(tensor: Tensor) -> int:
    import torch

    integers = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    bits = tensor.contiguous().view(-1).view(integers.get(tensor.element_size(), torch.uint8))
    return int(bits.sum(dtype=torch.int64))


def _moved(
    encoder: Encoder, texts: Sequence[str], loads: tuple[Vectors, Vectors], other: Sequence[str]
) -> Failure | None:
    moved = distance(*loads)
    if (moved <= RELOADED.get(encoder.dtype_as_run, RELOADED["float32"])).all():
        return None
    worst = int(moved.argmax())
    named = f" Its tensors that differ: {', '.join(other[:SHOWN])}." if other else ""
    return Failure(
        check="reload",
        message=f"Two loads of the model disagree: the vector of {texts[worst]!r} differs by "
        f"{moved[worst]:.1%} of its length.{named}",
        hint="Some of its parameters or buffers are set at random, not read from its files.",
    )
