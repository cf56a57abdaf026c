"""Linear layers on a CPU through oneDNN."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn


def use_onednn(model: nn.Module) -> None:
    """Have the float32 linear layers of a model on the CPU computed by oneDNN.

    torch gives float32 products to MKL, which uses half of an AMD core's vector width; oneDNN
    uses it whole, and is as fast elsewhere. The sums are of the same float32 products in another
    order. The layers give no gradients any more. Nothing changes where oneDNN is missing.
    """
    import torch

    backend: Any = torch.backends.mkldnn
    if not backend.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return
    for layer in model.modules():
        if type(layer) is torch.nn.Linear and layer.weight.dtype == torch.float32:
            layer.forward = _forward(layer)  # type: ignore[assignment, method-assign]


def _forward(layer: nn.Linear) -> Callable[[Tensor], Tensor]:
    import torch

    pointwise = torch.ops.mkldnn._linear_pointwise

    def forward(x: Tensor) -> Tensor:
        # The last three: no function is fused behind the product.
        product: Tensor = pointwise(x, layer.weight, layer.bias, "none", [], "")
        return product

    return forward
