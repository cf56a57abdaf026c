"""Encoder: texts in, vectors out.

The engine: texts in, vectors out, as fast as the device allows and in the order given.

Vectors of batches, brought to their rows and looked over.

One pass of a batch through the modules of a model.

Linear layers on a CPU through oneDNN.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from harness.encoder.batching import Inputs, Queue, Span, drain, prepare
from harness.encoder.towers import attention, dtype_as_run, notes, roles, widen
from harness.errors import ModelError
from harness.types import Encoding, Role

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from torch import Tensor, nn


CPU_BUDGET = 1024
"""Padded tokens of one batch on one CPU core: what stays in its cache."""

GPU_BUDGET = 65_536
"""Padded tokens of one batch on a GPU."""

WINDOW = 32_768
"""Texts tokenized and sorted at a time, which bounds the memory tokens take."""

Progress = Callable[[int, int], None]
"""Called after each batch with the texts and the tokens it has finished."""


class Encoder:
    """A loaded model that turns texts into vectors.

    Attributes:
        model: The modules.
        roles: The sides that have a tower of their own, one of them where there is one tower.
        dimension: The length of a vector.
        device: Where the model lies, such as "cpu" or "cuda:0".
        parameters: How many parameters the model has.
        dtype_as_run: The dtype the backbone computes in, such as "float32".
        attention: The name of the attention backend, "" where the model has none.
        tokens_seen: Tokens encoded so far, padding not counted; guessed from the characters for a
            model that tokenizes in its own way.
        batches: Batches run so far.
        notes: What went otherwise than asked for, such as a budget that was halved.
    """

    def __init__(self, model: SentenceTransformer, encoding: Encoding) -> None:
        import torch

        self.encoding = encoding
        self.device = str(model.device)
        self.tokens_seen = 0
        self.batches = 0
        self.notes: list[str] = []
        self._on_cpu = model.device.type == "cpu"
        self._threads = torch.get_num_threads() if self._on_cpu else 0
        self._budget = CPU_BUDGET if self._on_cpu else GPU_BUDGET
        self._lock = threading.Lock()
        self._take(model)
        self.parameters = sum(p.numel() for p in model.parameters())
        self.dtype_as_run = dtype_as_run(model)
        self.dimension = self._one_dimension()
        self.attention = attention(model)
        self.notes += notes(model)

    def _take(self, model: SentenceTransformer) -> None:
        self.model = model
        self.roles = roles(model)
        if self._on_cpu:
            use_onednn(model)

    def _one_dimension(self) -> int:
        found = {role: int(self.encode_batch(["a text"], role=role).shape[1]) for role in self.roles}
        if len(set(found.values())) > 1:
            raise ModelError(
                "The vectors of its sides cannot be compared: "
                + ", ".join(f"{role or 'no side'} has {width} dimensions" for role, width in found.items())
            )
        return next(iter(found.values()))

    def reload(self, load: Callable[[], Encoder]) -> None:
        """Let go of the model, load it again, and go on with that: at no time are there two.

        There is none afterwards if `load` fails.
        """
        import torch

        del self.model
        gc.collect()
        if not self._on_cpu:
            torch.cuda.empty_cache()
        self._take(load().model)

    def encode(
        self,
        texts: Sequence[str],
        *,
        prompt: str = "",
        role: Role = "",
        progress: Progress | None = None,
    ) -> NDArray[np.float32]:
        """The vectors of `texts`, each with `prompt` put before it.

        Equal texts are encoded once. Vectors are those of `SentenceTransformer.encode`, up to
        rounding. `role` is the side the texts stand on, which counts for a model with a tower
        for each.

        Returns:
            Shape (len(texts), dimension), float32, in the order of `texts`.

        Raises:
            ModelError: If a vector is not finite, or a single text does not fit into memory.
        """
        places: dict[str, int] = {}
        inverse = np.fromiter((places.setdefault(t, len(places)) for t in texts), np.int64, len(texts))
        copies = np.bincount(inverse, minlength=len(places))
        unique = list(places)
        vectors = np.empty((len(unique), self.dimension), dtype=np.float32)
        for start in range(0, len(unique), WINDOW):
            part = slice(start, start + WINDOW)
            inputs = prepare(self.model, unique[part], prompt, role)
            self._encode_window(inputs, vectors[part], copies[part], progress)
        require_finite(vectors, unique, inverse)
        return vectors[inverse]

    def count_tokens(self, texts: Sequence[str], *, prompt: str = "") -> int:
        """How many tokens `texts` have, special ones included, after truncation."""
        return sum(
            int(prepare(self.model, texts[start : start + WINDOW], prompt, "").lengths.sum())
            for start in range(0, len(texts), WINDOW)
        )

    def encode_batch(self, texts: Sequence[str], *, prompt: str = "", role: Role = "") -> NDArray[np.float32]:
        """The vectors of `texts` run as one batch, each padded to the longest: (texts, dimension).

        What comes out of the model is returned as it is, finite or not.
        """
        inputs = prepare(self.model, texts, prompt, role)
        done: Batches = []

        def run(span: Span) -> None:
            done.append((inputs.order[slice(*span)], self._vectors(inputs, span)))

        whole = Queue(inputs.lengths, len(texts) * int(inputs.lengths[0]))
        drain(whole, run, threads=min(self._threads, 1), halved=self._halved)
        return gathered(done, np.empty((len(texts), done[0][1].shape[1]), dtype=np.float32))

    def _encode_window(
        self,
        inputs: Inputs,
        out: NDArray[np.float32],
        copies: NDArray[np.int64],
        progress: Progress | None,
    ) -> None:
        """Encode texts into the rows of `out`; text i stands for `copies[i]` of what was given."""
        share = -(-int(inputs.lengths.sum()) // max(1, self._threads))
        queue = Queue(inputs.lengths, min(self._budget, share))
        done: Batches = []

        def run(span: Span) -> None:
            rows = inputs.order[slice(*span)]
            done.append((rows, self._vectors(inputs, span)))
            tokens = int(inputs.lengths[slice(*span)].sum())
            with self._lock:
                self.tokens_seen += tokens
                self.batches += 1
                if progress:
                    progress(int(copies[rows].sum()), tokens)

        drain(queue, run, threads=min(self._threads, len(out)), halved=self._halved)
        gathered(done, out)

    def _vectors(self, inputs: Inputs, span: Span) -> Tensor:
        features = {name: self._moved(value) for name, value in inputs.features(span).items()}
        return forward(self.model, features)

    def _moved(self, value: Any) -> Any:
        import torch

        if self._on_cpu or not isinstance(value, torch.Tensor):
            return value
        if value.device.type == "cpu" and self.model.device.type == "cuda":
            value = value.pin_memory()
        return value.to(self.model.device, non_blocking=True)

    def _halved(self, budget: int) -> None:
        import torch

        with self._lock:
            self._budget = min(self._budget, budget)
            self.notes.append(f"memory ran out: batches of {budget} tokens from then on")
        if not self._on_cpu:
            torch.cuda.empty_cache()


Batches = list[tuple[NDArray[np.int64], "Tensor"]]
"""The rows that a batch stands for, and its vectors on the model's device."""


def gathered(done: Batches, out: NDArray[np.float32]) -> NDArray[np.float32]:
    """Bring the batches to the CPU, each to its rows of `out`."""
    for rows, vectors in done:
        out[rows] = vectors.cpu().numpy()
    return out


def require_finite(vectors: NDArray[np.float32], texts: list[str], inverse: NDArray[np.int64]) -> None:
    """See that every vector is finite; `inverse` says which of `texts` each text given was.

    Raises:
        ModelError: With the first text whose vector is not.
    """
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if not bad.size:
        return
    shown = texts[bad[0]] if len(texts[bad[0]]) <= 60 else texts[bad[0]][:60] + "…"
    raise ModelError(
        f"{bad.size} of {len(texts)} vectors are not finite; the first is that of text "
        f"{int(np.argmax(inverse == bad[0]))}, {shown!r}.",
        hint="Half precision overflows in some models: ask for float32. If it was, the weights are damaged.",
    )


def forward(model: SentenceTransformer, features: dict[str, Any]) -> Tensor:
    """The vectors of one tokenized batch, shape (texts, dimension), float32, on the model's device.

    The backbone runs in the dtype it was loaded in; pooling, further layers and normalisation
    run in float32. The feature "task" chooses the tower of a Router, wherever it stands.
    """
    task = {"task": features.pop("task")} if "task" in features else {}
    for at, module in enumerate(model):
        features = module(features, **(task if "task" in getattr(module, "forward_kwargs", ()) else {}))
        features = features if at else widen(features)
    vectors: Tensor = features["sentence_embedding"]
    return vectors.float()


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
