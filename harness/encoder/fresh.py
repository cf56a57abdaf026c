"""Parameters that no file set: found at loading, and an error if they reach the output."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from harness.encoder.forward import forward
from harness.errors import ModelError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import Tensor, nn

PROBE = ("A first text, to see which parameters matter.", "Another one: 42!")

SHOWN = 5


@dataclass
class LoadReport:
    """What loading found wrong: tensors that no file had, and those whose shape was another."""

    missing: dict[str, Tensor] = field(default_factory=dict)
    mismatched: dict[str, str] = field(default_factory=dict)

    def note(self, model: nn.Module, info: dict[str, Any]) -> None:
        """Add what transformers says of one loaded backbone."""
        tensors = {**dict(model.named_buffers()), **dict(model.named_parameters())}
        for name, found, wanted in info["mismatched_keys"]:
            self.mismatched[name] = f"{tuple(found)} in the file, {tuple(wanted)} in the model"
        for name in {*info["missing_keys"], *self.mismatched}:
            if name in tensors and tensors[name].is_floating_point():
                self.missing[name] = tensors[name]


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
    if not report.missing:
        return
    found = _reaching(model, report.missing)
    if not found:
        return
    shown = [f"{n} ({report.mismatched[n]})" if n in report.mismatched else n for n in found[:SHOWN]]
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    raise ModelError(
        f"{name} is not loaded whole: {len(found)} tensors that its vectors depend on were initialised "
        f"at random, for no file has them: {', '.join(shown)}{more}.",
        hint="Its config and its weights do not belong together, or the weights are of another architecture.",
    )


def _reaching(model: SentenceTransformer, suspects: dict[str, Tensor]) -> list[str]:
    """The suspects the vectors depend on; all of them where no gradient can tell."""
    import torch

    features = {
        key: value.to(model.device) if isinstance(value, torch.Tensor) else value
        for key, value in model.tokenize(list(PROBE)).items()
    }
    parameters = {n: p for n, p in suspects.items() if p.requires_grad}
    with torch.enable_grad():
        vectors = forward(model, features)
        if not vectors.requires_grad:
            return sorted(suspects)
        direction = torch.linspace(-1, 2, vectors.numel(), device=vectors.device).view_as(vectors)
        grads = torch.autograd.grad((vectors * direction).sum(), list(parameters.values()), allow_unused=True)
    silent = {n for n, grad in zip(parameters, grads, strict=True) if grad is None}
    return sorted(set(suspects) - silent)
