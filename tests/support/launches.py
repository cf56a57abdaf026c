"""What a pass over texts launches on a GPU, counted on tensors without values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.modeling_utils import local_torch_dtype

import tiny_networks
from harness.encoder.architecture import Architecture
from harness.encoder.network.layers import Packing
from harness.encoder.network.model import EncoderModel

FREE = ("empty", "new_empty", "lift_fresh", "detach")
"""Views by another name, and allocations."""

# SDPA over tensors without values is written out, with one softmax a call.
FORWARD = ("_flash_attention_forward", "_efficient_attention_forward", "_safe_softmax")
BACKWARD = ("_flash_attention_backward", "_efficient_attention_backward", "_softmax_backward_data")


class Launches(TorchDispatchMode):
    """Counts the calls of aten's operators by name, but for views and allocations."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if func.namespace == "aten" and not func.is_view and not name.startswith(FREE):
            self.names[name] += 1
        return func(*args, **(kwargs or {}))

    def select(self, names: tuple[str, ...]) -> dict[str, int]:
        """The calls of these operators, without those that were not called."""
        return {name: self.names[name] for name in names if self.names[name]}


def pack(lengths: tuple[int, ...], *, partly: bool = False) -> tuple[Tensor, Packing]:
    """A padded batch of ids of texts of these lengths, and its packing, on the CPU."""
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    attended = mask & (torch.arange(max(lengths)) % 3 != 1) if partly else mask
    return mask.long(), Packing.from_masks(mask, attended)


@contextmanager
def without_values(device: str) -> Iterator[Callable[[Tensor], Tensor]]:
    """A mode in which tensors have no values; gives what moves a tensor of the CPU to the device."""
    if device == "meta":
        yield lambda tensor: tensor.to("meta")
    else:
        with FakeTensorMode() as mode:
            yield lambda tensor: mode.from_tensor(tensor).to(device)


def measure(
    shape: Architecture,
    lengths: tuple[int, ...],
    *,
    device: str = "cuda",
    dtype: torch.dtype = torch.bfloat16,
    partly: bool = False,
    train: bool = False,
) -> tuple[Launches, EncoderModel]:
    """The launches of a pass, in training with gradients and on "meta" with its backward; and the network."""
    padded, packed = pack(lengths, partly=partly)
    with without_values(device) as send, torch.set_grad_enabled(train):
        tensors = {name: send(value) for name, value in vars(packed).items() if isinstance(value, Tensor)}
        with torch.device(device), local_torch_dtype(dtype):
            model = tiny_networks.network(shape).train(train)
        model.fuse_projections()
        padded, packed = send(padded), replace(packed, **tensors)
        with Launches() as found:
            vectors = model(padded, packing=packed).last_hidden_state
            if device == "meta":
                vectors.sum().backward()
    return found, model


class LargestTensor(TorchFunctionMode):
    """Notes the size of the largest tensor that torch makes."""

    bytes = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor):
            self.bytes = max(self.bytes, found.nbytes)
        return found
