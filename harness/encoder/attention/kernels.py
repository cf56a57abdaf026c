"""Kernels of GPUs that take packed texts of any lengths in one call, by their names.

Nobody promises that torch's operators stay as they are, so each kernel is tested once a process against
attention in float64 before it runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import cast

import torch
from torch import Tensor

from harness.encoder.attention.interface import Backend, Layout, Needs, Nothing, Sdpa, send_numbers


@dataclass(frozen=True, kw_only=True)
class _Bounds:
    """The layout of texts for a kernel: their bounds.

    Attributes:
        kernel: The kernel.
        queries: (texts + 1,) int32, the first token of each text, and the number of tokens.
        keys: The same among the attended tokens.
        longest: The most tokens of a text.
        order: (tokens,), the attended tokens first, in the order of texts; None where all are attended.
        unseen: (tokens, 1, 1), whether a token is not attended, in that order.
        slopes: ALiBi's slopes on the device, by their values.
    """

    kernel: Kernel
    queries: Tensor
    keys: Tensor
    longest: int
    order: Tensor | None = None
    unseen: Tensor | None = None
    slopes: dict[tuple[float, ...], Tensor] = field(default_factory=dict)

    def compute_attention(self, query: Tensor, key: Tensor, value: Tensor, needs: Needs) -> Tensor:
        """See `Layout.compute_attention`."""
        return self.kernel(query, self._select_keys(key, needs), self._select_keys(value, needs), self, needs)

    def _select_keys(self, packed: Tensor, needs: Needs) -> Tensor:
        """Keys or values with the attended ones first; no bound includes the others."""
        if self.order is None or self.unseen is None:
            return packed
        chosen = packed.index_select(0, self.order)
        # A kernel leaves the gradients of what no bound includes unset.
        return chosen.masked_fill(self.unseen, 0) if needs.gradients else chosen

    def send_slopes(self, needs: Needs) -> Tensor | None:
        """The slopes of a layer as a tensor, in float32 as kernels take them; None without ALiBi."""
        if needs.slopes is None:
            return None
        if needs.slopes not in self.slopes:
            self.slopes[needs.slopes] = send_numbers(needs.slopes, self.queries.device, torch.float32)
        return self.slopes[needs.slopes]


def _compute_bounds(
    kernel: Kernel, lengths: Sequence[int], attended: Tensor | None, device: torch.device
) -> _Bounds:
    """The bounds of texts, without waiting for the device; see `Backend.build_layout`."""
    queries = send_numbers([*accumulate(lengths, initial=0)], device, torch.int32)
    if attended is None:
        return _Bounds(kernel=kernel, queries=queries, keys=queries, longest=lengths[0])
    before = torch.cat([attended.new_zeros(1, dtype=torch.int32), attended.cumsum(0, dtype=torch.int32)])
    order = attended.logical_not().byte().argsort(stable=True)
    unseen = attended.index_select(0, order).logical_not()[:, None, None]
    keys = before.index_select(0, queries)
    return _Bounds(kernel=kernel, queries=queries, keys=keys, longest=lengths[0], order=order, unseen=unseen)


Kernel = Callable[[Tensor, Tensor, Tensor, _Bounds, Needs], Tensor]
"""Attention of queries, keys and values, (tokens, heads, head_dim), within bounds."""


def _convert_window(needs: Needs) -> tuple[int, int]:
    """The tokens seen to the left and to the right; -1 for all, as in FlashAttention."""
    return (-1, -1) if needs.window is None else (needs.window, needs.window)


def _repeat_heads(query: Tensor, packed: Tensor) -> Tensor:
    """Keys or values with as many heads as queries."""
    groups = query.shape[1] // packed.shape[1]
    return packed if groups == 1 else packed.repeat_interleave(groups, dim=1)


def _run_torch_flash(query: Tensor, key: Tensor, value: Tensor, bounds: _Bounds, needs: Needs) -> Tensor:
    """FlashAttention 2 in torch; `varlen_attn` is the same operator without dropout."""
    left, right = _convert_window(needs)
    outputs = torch.ops.aten._flash_attention_forward(
        query,
        _repeat_heads(query, key),
        _repeat_heads(query, value),
        bounds.queries,
        bounds.keys,
        bounds.longest,
        bounds.longest,
        needs.dropout,
        False,  # is_causal
        False,  # return_debug_mask
        window_size_left=left,
        window_size_right=right,
        alibi_slopes=bounds.send_slopes(needs),
    )
    return cast(Tensor, outputs[0])


def _run_torch_efficient(query: Tensor, key: Tensor, value: Tensor, bounds: _Bounds, needs: Needs) -> Tensor:
    """The memory-efficient kernel in torch, which takes a batch of one."""
    outputs = torch.ops.aten._efficient_attention_forward(
        query[None],
        _repeat_heads(query, key)[None],
        _repeat_heads(query, value)[None],
        None,  # bias
        bounds.queries,
        bounds.keys,
        bounds.longest,
        bounds.longest,
        needs.dropout,
        0,  # custom_mask_type: none
        needs.gradients,  # compute_log_sumexp
    )
    return cast(Tensor, outputs[0])[0]


def _run_flash_attn(query: Tensor, key: Tensor, value: Tensor, bounds: _Bounds, needs: Needs) -> Tensor:
    """FlashAttention 2 in the package flash-attn, with ALiBi forwards and backwards."""
    from flash_attn import flash_attn_varlen_func

    out: Tensor = flash_attn_varlen_func(
        query,
        key,
        value,
        bounds.queries,
        bounds.keys,
        bounds.longest,
        bounds.longest,
        dropout_p=needs.dropout,
        window_size=_convert_window(needs),
        alibi_slopes=bounds.send_slopes(needs),
    )
    return out


WIDEST_HEAD, HEAD_STEP = 256, 8
"""The widest heads of FlashAttention's kernels, and the step of widths."""

HALVES = (torch.float16, torch.bfloat16)


def _explain_gpu_limits(device: torch.device, dtype: torch.dtype) -> str | None:
    if device.type != "cuda":
        return "it needs a GPU"
    # Volta and Turing know float16 alone.
    if dtype == torch.bfloat16 and torch.cuda.get_device_capability(device) < (8, 0):
        return "bfloat16 needs a GPU of compute capability 8.0 or newer"
    return None


def _explain_flash_limits(device: torch.device, dtype: torch.dtype, needs: Needs) -> str | None:
    """The reason why FlashAttention's kernels cannot run this layer, None if they can."""
    if (reason := _explain_gpu_limits(device, dtype)) is not None:
        return reason
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "it needs a GPU of compute capability 8.0 or newer"
    if dtype not in HALVES:
        return "it needs float16 or bfloat16"
    if needs.head_dim > WIDEST_HEAD or needs.head_dim % HEAD_STEP:
        return f"it takes heads of up to {WIDEST_HEAD} dimensions, a multiple of {HEAD_STEP}"
    # Windows and distances would count the attended keys, of which some are left out.
    if needs.partly and needs.window is not None:
        return "it has no window where not all tokens are attended to"
    if needs.partly and needs.slopes is not None:
        return "it has no ALiBi where not all tokens are attended to"
    return None


def _explain_torch_flash_limits(device: torch.device, dtype: torch.dtype, needs: Needs) -> str | None:
    # Its backward takes no slopes: the gradient would be wrong without an error.
    if needs.slopes is not None and (needs.gradients or needs.dropout):
        return "it has ALiBi in inference alone"
    return _explain_flash_limits(device, dtype, needs)


def _explain_efficient_limits(device: torch.device, dtype: torch.dtype, needs: Needs) -> str | None:
    if needs.window is not None or needs.slopes is not None:
        return "it has no windows and no ALiBi"
    if dtype not in (torch.float32, *HALVES):
        return "it needs float32, float16 or bfloat16"
    return _explain_gpu_limits(device, dtype)


@functools.cache
def _explain_flash_absence() -> str | None:
    """The reason why flash-attn cannot be used; a build for another torch does not import."""
    # flash-attn-4 alone makes a package of that name without this function.
    try:
        from flash_attn import flash_attn_varlen_func  # noqa: F401
    except ModuleNotFoundError as error:
        return (
            "flash-attn is not installed" if error.name == "flash_attn" else f"flash-attn lacks {error.name}"
        )
    except (ImportError, OSError) as error:
        return f"flash-attn does not import ({error})"
    return None


def _explain_flash_attn_limits(device: torch.device, dtype: torch.dtype, needs: Needs) -> str | None:
    return _explain_flash_absence() or _explain_flash_limits(device, dtype, needs)


@dataclass(frozen=True, kw_only=True)
class _KernelBackend:
    """A backend that runs one kernel, with its limits by device, dtype and needs."""

    name: str
    kernel: Kernel
    explain_limits: Callable[[torch.device, torch.dtype, Needs], str | None]

    def explain_refusal(self, device: torch.device, dtype: torch.dtype, needs: Needs) -> str | None:
        if (reason := self.explain_limits(device, dtype, needs)) is not None:
            return reason
        # A window wider than the texts of the test would mask nothing there.
        window = None if needs.window is None else min(needs.window, PROBE[1] // 2)
        return _explain_fault(self, device, dtype, replace(needs, window=window))

    def build_layout(self, lengths: Sequence[int], attended: Tensor | None, device: torch.device) -> Layout:
        return _compute_bounds(self.kernel, lengths, attended, device) if lengths else Nothing()


BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        _KernelBackend(name="varlen", kernel=_run_torch_flash, explain_limits=_explain_torch_flash_limits),
        _KernelBackend(name="flash", kernel=_run_flash_attn, explain_limits=_explain_flash_attn_limits),
        _KernelBackend(
            name="efficient", kernel=_run_torch_efficient, explain_limits=_explain_efficient_limits
        ),
        Sdpa(),
    )
}
"""The backends in the order in which they are tried on a GPU."""


PROBE = (150, 33, 8)
"""The lengths of the texts on which a kernel is tested."""

TOLERANCE = {torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 3e-2}
"""The share of its norm by which a result may be off: far above rounding, far below a wrong mask."""


@functools.cache
def _explain_fault(
    backend: _KernelBackend, device: torch.device, dtype: torch.dtype, needs: Needs
) -> str | None:
    """The reason why a kernel cannot be trusted on this device, None if it can; tested once a process."""
    generators = [device] if device.type == "cuda" else []
    # The first pass may be in inference mode or under autocast, and its own draws must stay as they are.
    with (
        torch.inference_mode(False),
        torch.set_grad_enabled(needs.gradients),
        torch.autocast(device.type, enabled=False),
        torch.random.fork_rng(generators),
    ):
        try:
            errors = _iter_errors(backend, device, dtype, needs)
            error = max(errors, key=lambda share: (share != share, share))
        except torch.OutOfMemoryError:
            raise
        # A share of 1 has no moments.
        except (RuntimeError, TypeError, AttributeError, ZeroDivisionError) as failure:
            return f"it fails a test ({(str(failure).splitlines() or [''])[0]})"
    if error <= TOLERANCE[dtype]:
        return None
    return f"it fails a test (a share of {error:.1e} of a result is wrong in {dtype})"


def _iter_errors(
    backend: _KernelBackend, device: torch.device, dtype: torch.dtype, needs: Needs
) -> Iterator[float]:
    """The errors of a kernel's results and gradients, as shares of their norms."""
    draw = torch.Generator().manual_seed(0)
    size = (sum(PROBE), len(needs.slopes or range(4)), needs.head_dim)
    *drawn, weights = (torch.randn(size, generator=draw, dtype=torch.float64) for _ in range(4))
    inputs = [tensor.to(device, dtype).requires_grad_(needs.gradients) for tensor in drawn]
    exact = [tensor.detach().double().cpu().requires_grad_(needs.gradients) for tensor in inputs]
    attended = torch.arange(size[0]) % 3 != 1 if needs.partly else None
    layout = backend.build_layout(PROBE, attended if attended is None else attended.to(device), device)
    plain = replace(needs, dropout=0.0)
    out = layout.compute_attention(inputs[0], inputs[1], inputs[2], plain)
    expected = Sdpa().build_layout(PROBE, attended, torch.device("cpu"))
    expected_out = expected.compute_attention(exact[0], exact[1], exact[2], plain)
    yield _compute_error(out, expected_out)
    if needs.gradients:
        gradients = torch.autograd.grad(out, inputs, weights.to(device, dtype))
        expected_gradients = torch.autograd.grad(expected_out, exact, weights)
        for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
            yield _compute_error(gradient, expected_gradient) / 2
    if needs.dropout:
        yield from _iter_dropout_errors(layout, inputs[2], weights.to(device, dtype), needs)


def _iter_dropout_errors(layout: Layout, value: Tensor, weights: Tensor, needs: Needs) -> Iterator[float]:
    """0 where as much is dropped as is asked for and gradients drop the same, infinity where not."""
    zeros, share = torch.zeros_like(value), needs.dropout
    if not needs.partly:
        # Where all weights are equal, a result is a mean of draws that are 0 or 1 / (1 - share).
        even = replace(needs, window=None, slopes=None)
        ones = layout.compute_attention(zeros, zeros, torch.ones_like(value), even)
        excess = ones[: PROBE[0], :, 0].detach().double() - 1
        variance = share / (1 - share) / PROBE[0]
        # FlashAttention draws whole numbers below 256.
        most = 6 * (variance / excess.numel()) ** 0.5 + 1 / 256
        right = abs(float(excess.mean())) < most and 0.5 < float(excess.square().mean()) / variance < 2
        yield 0.0 if right else float("inf")
    if needs.gradients:
        out = layout.compute_attention(zeros, zeros, value, needs)
        (gradient,) = torch.autograd.grad(out, [value], weights)
        # Results are linear in values, so these sums are equal if both ways dropped the same weights.
        out, value = out.detach().double(), value.detach().double()
        difference = (gradient.double() * value).sum() - (out * weights.double()).sum()
        yield float(difference.abs() / out.norm())


def _compute_error(result: Tensor, expected: Tensor) -> float:
    return float((result.detach().double().cpu() - expected.detach()).norm() / expected.detach().norm())


AUTO = "auto"


def explain_refusals(device: torch.device, dtype: torch.dtype) -> dict[str, str | None]:
    """By backend, the reason why it cannot run a plain layer on a device, None if it can."""
    return {name: backend.explain_refusal(device, dtype, Needs()) for name, backend in BACKENDS.items()}


LIBRARY_NAMES = {"flash_attention_2": "flash"}
"""transformers' names of attention mapped to ours, for backends that run only on request."""
