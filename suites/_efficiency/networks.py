"""The engines of a model: our network without padding, transformers' class with it; their operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoModel

from harness.core.errors import ModelError
from harness.core.types import Artifact, Dtype, MeasuredModel
from harness.encoder.backbones import has_network, read_family
from harness.encoder.dtype import TORCH_DTYPES
from harness.encoder.engine import collect_backbones, use_onednn
from harness.encoder.folder.modules import find_backbone_folder
from harness.encoder.inputs import move_features
from harness.encoder.library_load import hide_library_output
from harness.encoder.network.layers import Packing
from harness.results.compute import read_backbone_compute
from suites._efficiency.rounds import Device


@dataclass(frozen=True, kw_only=True)
class LoadedNetwork:
    """A loaded backbone with an engine, a suites._efficiency.rounds.Network.

    Attributes:
        model: The backbone.
        device: Its device.
        engine: "ours", "padded" by transformers' class, or "filled": our network that computes padding.
    """

    model: Any
    device: str
    engine: str

    def move_batch(self, ids: Tensor, lengths: Sequence[int]) -> dict[str, Any]:
        """Bring a batch to the device; our network's packing is made of the lengths."""
        real = np.arange(ids.shape[1]) < np.asarray(lengths)[:, None]
        features: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.from_numpy(real.astype(int))}
        if self.engine == "ours":
            features["packing"] = Packing.from_sorted_masks(real)
        elif self.engine == "filled":
            features["compute_mask"] = torch.ones_like(ids)
        return move_features(features, torch.device(self.device))

    def run_pass(self, batch: Any) -> Tensor:
        """Start a forward pass; the vectors of tokens, (sequences, columns, width)."""
        with torch.inference_mode():
            vectors: Tensor = self.model(**batch).last_hidden_state
        return vectors

    @property
    def attention(self) -> str:
        """The attention backend as it ran, or as transformers sets it."""
        backend = getattr(self.model.config, "_attn_implementation", None)
        return str(getattr(self.model, "attention_as_run", backend) or "none")


def plan_engine(engine: str, artifact: Artifact) -> tuple[str, str]:
    """The engine that stands for "ours" or "padded", empty where there is none, and a note on it."""
    folder = find_backbone_folder(artifact.folder)
    network = has_network(folder, own_code=artifact.trust_remote_code)
    if engine == "ours":
        return ("ours", "") if network else ("", "ours: the harness has no network of its own for this model")
    family = read_family(folder)
    if network and (family is None or not family.native):
        return "filled", "padded: transformers has no class for this model; our network computes the padding"
    return "padded", ""


def build_loader(engine: str, model: MeasuredModel) -> Callable[[], LoadedNetwork]:
    """A picklable function that loads a model with an engine of `plan_engine`."""
    return partial(_load, engine, model.load, model.artifact, model.dtype, model.device)


def _load(
    engine: str, load: Callable[[], Any], artifact: Artifact, dtype: Dtype, device: str
) -> LoadedNetwork:
    if engine == "padded":
        folder = find_backbone_folder(artifact.folder)
        options: dict[str, Any] = {
            "dtype": TORCH_DTYPES[dtype],
            "trust_remote_code": artifact.trust_remote_code,
        }
        with hide_library_output():
            backbone: Any = AutoModel.from_pretrained(str(folder), local_files_only=True, **options)
        backbone = backbone.to(device).eval()
    else:
        backbone = collect_backbones(load().model)[0]
    return LoadedNetwork(model=backbone, device=device, engine=engine)


def count_flops(folder: Path, lengths: Sequence[int]) -> float | None:
    """The operations of a forward pass over sequences, without padding; None where the files do not tell."""
    try:
        compute = read_backbone_compute(folder)
    except ModelError:
        return None
    return float(
        sum(n * compute.count_operations(size, windows=True) for size, n in Counter(lengths).items())
    )


def measure_ceiling(device: Device, dtype: Dtype) -> float:
    """Operations a second of a large linear layer, the best of ten: what MFU is a share of."""
    size = 8192 if device.name.startswith("cuda") else 2048
    layer = nn.Linear(size, size, bias=False, device=device.name, dtype=TORCH_DTYPES[dtype])
    # As the engine computes its layers on a CPU.
    use_onednn(layer if device.name == "cpu" else nn.Identity())
    inputs = torch.randn(size, size, device=device.name, dtype=TORCH_DTYPES[dtype])
    seconds = []
    with torch.inference_mode():
        for _ in range(10):
            device.wait()
            began = device.read_clock()
            layer(inputs)
            device.wait()
            seconds.append(device.read_clock() - began)
    return 2.0 * size**3 / min(seconds)
