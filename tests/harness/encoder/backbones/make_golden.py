"""Fills golden/*.json with what the authors' public code gives for the model each file describes.

Each file says where that code is, the seed of the weights (tests/support/authors.py), the config and
the input; this adds the shapes of the tensors and the output. With a checkout of its repository:

    PYTHONPATH=tests/support python tests/harness/encoder/backbones/make_golden.py CHECKOUT gte gte_ntk

The code of NomicBERT and MosaicBERT needs einops, that of NeoBERT xformers. Only numbers are kept.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from authors import drawn

GOLDEN = Path(__file__).parent / "golden"
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
DIGITS = 7
EVERY = 12  # of the scores for the vocabulary every twelfth is kept

Golden = dict[str, Any]


def main(checkout: str, *names: str) -> None:
    commit = subprocess.check_output(["git", "-C", checkout, "rev-parse", "HEAD"], text=True).strip()
    for name in names:
        path = GOLDEN / f"{name}.json"
        golden: Golden = json.loads(path.read_text())
        assert commit == golden["source"]["commit"], f"{name} was made at {golden['source']['commit']}"
        lines = [f" {json.dumps(k)}: {json.dumps(v)}" for k, v in filled(golden, Path(checkout)).items()]
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def filled(golden: Golden, checkout: Path) -> Golden:
    """The same with what the authors' model says; a fresh one for each batch, as it may remember."""
    models = [model_of(golden, checkout) for _ in golden["batches"]]
    tied: dict[str, str] = golden["source"]["tied"]
    tensors = models[0].state_dict().items()
    shapes = {name: list(tensor.shape) for name, tensor in tensors if name not in tied}
    weights = drawn(shapes, golden["seed"])
    for model in models:
        model.load_state_dict(weights | {name: weights[other] for name, other in tied.items()})
    pairs = zip(models, golden["batches"], strict=True)
    batches = [batch | output(model, golden["source"], batch) for model, batch in pairs]
    used = {name: version(name) for name in ("torch", "transformers")}
    return {**golden, "made_with": used, "tensors": shapes, "batches": batches}


def model_of(golden: Golden, checkout: Path) -> nn.Module:
    source = golden["source"]
    values = {name: value for name, value in golden["config"].items() if name != "model_type"}
    config = named(source["config"], source, checkout)(**values)
    model: nn.Module = named(source["model"], source, checkout)(config)
    return model.eval()


def output(model: nn.Module, source: Golden, batch: Golden) -> Golden:
    """Of each token that is attended to its last hidden state, and some of its scores."""
    seen: list[Tensor] = []
    part = model.get_submodule(source["hidden"])
    part.register_forward_hook(lambda _part, _inputs, out: seen.append(first(out)))
    given = {name: torch.tensor(batch[name]) for name in INPUTS if name in batch}
    real = given["attention_mask"].bool()
    with torch.no_grad():
        if source["additive_mask"]:
            out = model(given["input_ids"], torch.zeros(real.shape).masked_fill(~real, float("-inf")))
        else:
            out = model(**given)
    logits = out["logits"][real][:, ::EVERY]
    return {"hidden": rounded(seen[0][real]), "every": EVERY, "logits": rounded(logits)}


def first(out: Any) -> Tensor:
    found: Tensor = out if isinstance(out, Tensor) else out[0]
    return found


def rounded(found: Tensor) -> list[list[float]]:
    return [[round(value, DIGITS) for value in row] for row in found.tolist()]


def named(name: str, source: Golden, checkout: Path) -> Any:
    """What a module of theirs calls so, without what their packages import on their own."""
    parts = source["package"].split(".")
    for depth in range(1, len(parts) + 1):
        package = ModuleType(".".join(parts[:depth]))
        package.__path__ = [str(checkout / source["folder"])] if depth == len(parts) else []
        sys.modules.setdefault(package.__name__, package)
    for absent in source["absent"]:
        sys.modules[f"{source['package']}.{absent}"] = None  # type: ignore[assignment]
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(f"{source['package']}.{module}"), attribute)


if __name__ == "__main__":
    main(*sys.argv[1:])
