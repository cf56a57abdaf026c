"""Model folders with one fault each: what was done to a whole folder, and what its error must say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

Spoil = Callable[[Path], None]

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 90868376\n"


def rewrite(path: Path, **fields: Any) -> None:
    """Change fields of a JSON file; None takes one out."""
    content = {**(json.loads(path.read_text()) if path.exists() else {}), **fields}
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))


def tensors(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change the tensors of a folder."""
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})


def renamed(folder: Path, name: Callable[[str], str]) -> None:
    """Rename the tensors of a folder."""
    tensors(folder, lambda held: {name(one): tensor for one, tensor in held.items()})


def config(**fields: Any) -> Spoil:
    return lambda folder: rewrite(folder / "config.json", **fields)


def text(name: str, content: str) -> Spoil:
    return lambda folder: (folder / name).write_text(content) and None


def instead(name: str) -> Spoil:
    """Weights under another name only."""

    def spoil(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / "model.safetensors").rename(folder / name)

    return spoil


def truncated(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def index(folder: Path) -> None:
    """An index of two parts, of which one is there."""
    held = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    parts = {name: f"model-0000{1 + at % 2}-of-00002.safetensors" for at, name in enumerate(held)}
    rewrite(folder / "model.safetensors.index.json", weight_map=parts)


def other_parts(folder: Path) -> None:
    """Two parts of different saves: one lacks a tensor that the index names in it."""
    index(folder)
    first, second = (folder / f"model-0000{n}-of-00002.safetensors" for n in (1, 2))
    held = load_file(first)
    save_file({name: held[name] for name in list(held)[::2]}, first)
    save_file({name: held[name] for name in list(held)[3::2]}, second)


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"not a pickle" * 10)


def head(classes: str, names: tuple[str, ...], **fields: Any) -> Spoil:
    """The head of a task, as transformers saves it."""

    def spoil(folder: Path) -> None:
        width = json.loads((folder / "config.json").read_text())["hidden_size"]
        more = {f"{one}.weight": np.zeros((2, width), np.float32) for one in names}
        more |= {f"{one}.bias": np.zeros(2, np.float32) for one in names if one != "linear"}
        tensors(folder, lambda held: held | more)
        rewrite(folder / "config.json", architectures=[classes], **fields)

    return spoil


def tokens(folder: Path) -> None:
    """Tokens that the embedding has no row for."""
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["vocab"] |= {f"new{n}": n for n in range(150, 200)}
    (folder / "tokenizer.json").write_text(json.dumps(content))


def modules(pooling: dict[str, Any] | str | None, *, dense: tuple[int, int] | None = None) -> Spoil:
    """A sentence-transformers folder with this pooling config, and perhaps a Dense layer of that shape."""

    def spoil(folder: Path) -> None:
        kinds = {"": "Transformer", "1_Pooling": "Pooling", **({"2_Dense": "Dense"} if dense else {})}
        listed = [
            {"idx": at, "name": str(at), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for at, (path, kind) in enumerate(kinds.items())
        ]
        (folder / "modules.json").write_text(json.dumps(listed))
        if pooling is not None:
            (folder / "1_Pooling").mkdir()
            written = pooling if isinstance(pooling, str) else json.dumps(pooling)
            (folder / "1_Pooling" / "config.json").write_text(written)
        if dense:
            (folder / "2_Dense").mkdir()
            said = {"in_features": dense[1], "out_features": dense[0], "bias": False}
            (folder / "2_Dense" / "config.json").write_text(json.dumps(said))
            save_file({"linear.weight": np.zeros((8, 32), np.float32)}, folder / "2_Dense/model.safetensors")

    return spoil


def adapter(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "adapter_config.json").write_text("{}")


def without(*names: str) -> Spoil:
    def spoil(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return spoil


def own_code(folder: Path) -> None:
    rewrite(folder / "config.json", model_type="mine", auto_map={"AutoModel": "modeling.Mine"})
    (folder / "modeling.py").write_text("raise SystemError")


def integers(folder: Path) -> None:
    tensors(
        folder, lambda held: {n: t.astype(np.int8) if "query.weight" in n else t for n, t in held.items()}
    )


def extra(folder: Path) -> None:
    tensors(folder, lambda held: held | {"probe.bias": np.zeros(3, np.float32)})


WORDS = "embeddings.word_embeddings.weight"


def no_length(folder: Path) -> None:
    modules({"pooling_mode": "mean"})(folder)
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": -5}')


FAULTS: dict[str, tuple[Spoil, str]] = {
    "no length": (no_length, "has max_seq_length = -5"),
    "git-lfs pointer": (text("model.safetensors", POINTER), "git lfs pull"),
    "git-lfs pointer for a tokenizer": (text("vocab.txt", POINTER), "git lfs pull"),
    "GGUF only": (instead("model-Q4_K_M.gguf"), "has model-Q4_K_M.gguf, which is a quantised copy"),
    "ONNX only": (instead("onnx/model.onnx"), "has onnx/model.onnx, which is an exported program"),
    "training checkpoint only": (instead("last.ckpt"), "has last.ckpt, which is a training checkpoint"),
    "another name": (instead("weights.safetensors"), "call it model.safetensors"),
    "empty weights": (text("model.safetensors", ""), "model.safetensors is empty"),
    "truncated weights": (truncated, "its header promises"),
    "no header": (text("model.safetensors", "x" * 500), "not a whole safetensors file"),
    "missing part": (index, "lacks 1 of its 2 weight files, model-00002-of-00002.safetensors"),
    "parts of two saves": (other_parts, "embeddings.LayerNorm.weight"),
    "no pickle": (pickled, "the file is no pickle of tensors"),
    "no config": (without("config.json"), "has no config.json"),
    "broken config": (text("config.json", '{"model_type": "bert",'), "cannot be read as JSON"),
    "config without a type": (config(model_type=None), "has no model_type"),
    "unknown type": (config(model_type="brt"), "Did you mean bert"),
    "config of another width": (config(hidden_size=64), r"embeddings.word_embeddings.weight ((160, 32) in"),
    "config with fewer layers": (config(num_hidden_layers=2), "encoder.layer.2"),
    "config with more layers": (config(num_hidden_layers=4), "encoder.layer.3"),
    "config with a value of another form": (config(max_position_embeddings="x"), "It must be an integer"),
    "extra tensor": (
        lambda f: tensors(f, lambda t: t | {"probe.bias": np.zeros(3, np.float32)}),
        "probe.bias",
    ),
    "missing tensor": (lambda f: tensors(f, lambda t: {n: t[n] for n in t if n != WORDS}), "in no file"),
    "wrapped by a data-parallel run": (lambda f: renamed(f, lambda n: f"module.{n}"), '"module."'),
    "wrapped by torch.compile": (
        lambda f: renamed(f, lambda n: f"model._orig_mod.{n}"),
        '"model._orig_mod."',
    ),
    "quantised": (config(quantization_config={"quant_method": "gptq", "bits": 4}), "is quantised (gptq)"),
    "integer weights": (integers, "query.weight is I8"),
    "more tokens than rows": (tokens, "tokens up to number 199, and the token embedding has 160 rows"),
    "no tokenizer": (without("tokenizer.json"), "brings no tokenizer"),
    "broken tokenizer": (text("tokenizer.json", "{"), "The tokenizer in"),
    "tokenizer without a model": (text("tokenizer.json", "{}"), "The tokenizer in"),
    "end token that is not added": (
        lambda f: rewrite(f / "tokenizer_config.json", eos_token="[MASK]", add_eos_token=True),
        'tokenizer_config.json says "add_eos_token": true, and a text ends without [MASK]',
    ),
    "cross-encoder": (
        head("BertForSequenceClassification", ("classifier",), id2label={"0": "LABEL_0"}),
        "is a cross-encoder",
    ),
    "classifier": (head("BertForSequenceClassification", ("classifier",)), "a classifier of texts"),
    "classifier of tokens": (head("BertForTokenClassification", ("classifier",)), "a classifier of tokens"),
    "reader": (head("BertForQuestionAnswering", ("qa_outputs",)), "finds answers in a text"),
    "ColBERT": (head("HF_ColBERT", ("linear",)), "is a ColBERT"),
    "missing module": (modules(None), "names the module Pooling in 1_Pooling: there is no such folder"),
    "broken pooling": (modules("{"), "1_Pooling/config.json cannot be read as JSON"),
    "unknown pooling": (modules({"pooling_mode": "meen"}), "Did you mean mean"),
    "Dense of another width": (
        modules({"pooling_mode": "mean"}, dense=(4, 32)),
        "a tensor linear.weight of (8, 32)",
    ),
    "adapter": (adapter, "It is an adapter"),
    "code of its own": (own_code, "needs code of its own"),
}
"""By name: how a whole folder is spoiled, and a part of the error."""

TRIED = {
    *("parts of two saves", "no pickle", "extra tensor", "missing tensor", "more tokens than rows"),
    *("config of another width", "config with fewer layers", "config with more layers"),
    *("broken tokenizer", "tokenizer without a model", "end token that is not added"),
}
"""Those that a trial load finds."""


def spoiled(whole: Path, target: Path, fault: str) -> Path:
    """A copy of a folder with one fault."""
    folder = Path(shutil.copytree(whole, target))
    FAULTS[fault][0](folder)
    return folder
