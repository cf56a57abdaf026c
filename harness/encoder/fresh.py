"""Parameters that no file set: found at loading, and an error if they reach the output."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.encoder.forward import forward
from harness.encoder.towers import backbones, roles, route
from harness.errors import ModelError
from harness.types import Role

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import Tensor, nn

PROBE = ("A first text, to see which parameters matter.", "Another one: 42!")

SHOWN = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class Fresh:
    """A tensor that no file set, of one backbone; `shapes` if the file has one of another shape."""

    backbone: nn.Module
    name: str
    tensor: Tensor
    shapes: str = ""


@dataclass
class LoadReport:
    """What loading found wrong: tensors that no file had, or whose shape was another there."""

    fresh: list[Fresh] = field(default_factory=list)

    def note(self, model: nn.Module, info: dict[str, Any]) -> None:
        """Add what transformers says of one loaded backbone."""
        tensors = {**dict(model.named_buffers()), **dict(model.named_parameters())}
        mismatched = {
            name: f" ({tuple(found)} in the file, {tuple(wanted)} in the model)"
            for name, found, wanted in info["mismatched_keys"]
        }
        for name in sorted({*info["missing_keys"], *mismatched}):
            if name in tensors and tensors[name].is_floating_point():
                shapes = mismatched.get(name, "")
                self.fresh.append(Fresh(backbone=model, name=name, tensor=tensors[name], shapes=shapes))


@contextmanager
def recorded() -> Iterator[LoadReport]:
    """While open, every backbone transformers loads adds to the report."""
    from transformers import PreTrainedModel

    report = LoadReport()
    patched: Any = PreTrainedModel
    original = PreTrainedModel.__dict__["from_pretrained"]

    def from_pretrained(cls: type[PreTrainedModel], *args: Any, **kwargs: Any) -> Any:
        wanted = kwargs.pop("output_loading_info", False)
        model, info = original.__func__(cls, *args, output_loading_info=True, **kwargs)
        report.note(model, info)
        return (model, info) if wanted else model

    patched.from_pretrained = classmethod(from_pretrained)
    try:
        yield report
    finally:
        patched.from_pretrained = original


def require_loaded(model: SentenceTransformer, report: LoadReport, name: str) -> None:
    """See that every tensor that reaches the output came from a file.

    A tensor that no file set may be one the output does not depend on, such as the pooler of
    a BERT that is mean-pooled: it gets no gradient from the vectors.

    Raises:
        ModelError: If one that reaches the output was freshly initialised.
    """
    found = [f"{_place(model, fresh)}{fresh.shapes}" for fresh in _reaching(model, report.fresh)]
    if not found:
        return
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    raise ModelError(
        f"{name} is not loaded whole: {len(found)} tensors that its vectors depend on were initialised "
        f"at random, for no file has them: {', '.join(found[:SHOWN])}{more}.",
        hint="Its config and its weights do not belong together, or the weights are of another architecture.",
    )


def _place(model: SentenceTransformer, fresh: Fresh) -> str:
    """The name of a tensor, with that of its backbone where there are several."""
    if len(backbones(model)) < 2:
        return fresh.name
    return next((f"{n}.{fresh.name}" for n, m in model.named_modules() if m is fresh.backbone), fresh.name)


def _reaching(model: SentenceTransformer, suspects: list[Fresh]) -> list[Fresh]:
    """The suspects that the vectors of any side depend on."""
    silent = set(suspects)
    for role in roles(model) if suspects else ():
        silent &= _silent(model, suspects, role)
    return [fresh for fresh in suspects if fresh not in silent]


def _silent(model: SentenceTransformer, suspects: list[Fresh], role: Role) -> set[Fresh]:
    """The suspects that the vectors of one side do not depend on; none where no gradient can tell."""
    import torch

    way = route(model, role)
    features = {
        key: value.to(model.device) if isinstance(value, torch.Tensor) else value
        for key, value in {**model.tokenize(list(PROBE), **way), **way}.items()
    }
    told = [fresh for fresh in suspects if fresh.tensor.requires_grad]
    with torch.enable_grad():
        vectors = forward(model, features)
        if not vectors.requires_grad:
            return set()
        direction = torch.linspace(-1, 2, vectors.numel(), device=vectors.device).view_as(vectors)
        tensors = [fresh.tensor for fresh in told]
        grads = torch.autograd.grad((vectors * direction).sum(), tensors, allow_unused=True)
    return {fresh for fresh, grad in zip(told, grads, strict=True) if grad is None}
