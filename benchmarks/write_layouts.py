"""Writes tests/support/layouts.json: folders as sentence-transformers 6.2 saves them, and its vectors.

Not run by the tests, whose sentence-transformers is older. In an environment of its own:
`pip install sentence-transformers==6.2.0 && PYTHONPATH=tests/support python benchmarks/write_layouts.py`.
"""

from __future__ import annotations

import json
import string
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from sentence_transformers import MultiVectorEncoder, SentenceTransformer, __version__
from sentence_transformers.base.modules import Dense, Normalize, Router, Transformer
from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
from sentence_transformers.sentence_transformer.modules import (
    LayerNorm,
    Pooling,
    StaticEmbedding,
    WeightedLayerPooling,
)
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import nn
from transformers import BertConfig, BertModel, LlamaConfig, LlamaModel, PreTrainedTokenizerFast

from layouts import TEXTS, draw_tensors, read_layouts

WIDTH = 16
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = ["the", "cat", "sat", "on", "a", "mat", "query", "document", "what", "is", "?", ".", ":", "["]
PIECES = [piece for letter in string.ascii_lowercase for piece in (letter, f"##{letter}")]


def write_backbone(folder: Path, *, added: tuple[str, ...] = (), decoder: bool = False, **config: Any) -> str:
    """A tiny BERT, or a decoder that is padded on the left, with a WordPiece tokenizer."""
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys([*SPECIAL, *WORDS, *PIECES]))}
    raw = Tokenizer(models.WordPiece(vocab=vocabulary, unk_token="[UNK]"))
    raw.normalizer = normalizers.BertNormalizer(lowercase=True)
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    raw.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=24,
        padding_side="left" if decoder else "right",
    )
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in added])
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    common = {"vocab_size": len(tokenizer), "max_position_embeddings": 32, **sizes, **config}
    if decoder:
        LlamaModel(LlamaConfig(**common, pad_token_id=0)).save_pretrained(folder)
    else:
        BertModel(BertConfig(**common), add_pooling_layer=False).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def build_models(place: Path) -> dict[str, Any]:
    """Every layout's model."""
    numbers = iter(range(100))

    def open_body(given: dict[str, Any] | None = None, **backbone: Any) -> Transformer:
        return Transformer(write_backbone(place / f"body-{next(numbers)}", **backbone), **(given or {}))

    def stack(*modules: nn.Module, **settings: Any) -> SentenceTransformer:
        return SentenceTransformer(modules=list(modules), device="cpu", **settings)

    def dense(size: int, out: int, activation: nn.Module | None = None, **settings: Any) -> Dense:
        return Dense(size, out, activation_function=activation or nn.Tanh(), **settings)

    tokens = {"module_input_name": "token_embeddings"}
    tower = [open_body(), Pooling(WIDTH, "mean")]
    routes = {"small": [open_body(), Pooling(WIDTH, "cls")], "document": tower}
    static = StaticEmbedding(
        Tokenizer.from_file(str(place / "body-0" / "tokenizer.json")), embedding_dim=WIDTH
    )
    classic = {"query_expansion": {"strategy": "fixed", "length": 10}, "document_length": 12}
    mapped = Router(routes, "document", route_mappings={("query", "text"): "small"})
    return {
        "mean": stack(open_body(), Pooling(WIDTH, "mean")),
        "cls": stack(open_body(), Pooling(WIDTH, "cls"), Normalize()),
        "list": stack(open_body(), Pooling(WIDTH, ["cls", "mean"])),
        "list-in-order": stack(
            open_body(), Pooling(WIDTH, ["mean", "max", "cls"]), dense(3 * WIDTH, 8), Normalize()
        ),
        "weightedmean": stack(open_body(), Pooling(WIDTH, "weightedmean")),
        "left-padding": stack(open_body(decoder=True), Pooling(WIDTH, ["cls", "weightedmean", "lasttoken"])),
        "weighted-layers": stack(
            open_body(output_hidden_states=True),
            WeightedLayerPooling(WIDTH, num_hidden_layers=2, layer_start=1),
            Pooling(WIDTH, "mean"),
        ),
        "dense": stack(open_body(), Pooling(WIDTH, "mean"), dense(WIDTH, 8), Normalize()),
        "dense-residual": stack(open_body(), Pooling(WIDTH, "mean"), dense(WIDTH, 8, use_residual=True)),
        "dense-of-tokens": stack(
            open_body(),
            dense(WIDTH, WIDTH, nn.GELU(), use_residual=True, **tokens),
            Normalize(**tokens),
            Pooling(WIDTH, "mean"),
        ),
        "layer-norm": stack(open_body(), Pooling(WIDTH, "mean"), LayerNorm(WIDTH)),
        "static": stack(static, Normalize()),
        "router": stack(Router.for_query_document([open_body(), Pooling(WIDTH, "mean")], tower), Normalize()),
        "router-mapped": stack(mapped, Normalize()),
        "prompts": stack(
            open_body(),
            Pooling(WIDTH, "mean", include_prompt=False),
            prompts={"query": "query: ", "document": "document: "},
        ),
        "truncate": stack(open_body(), Pooling(WIDTH, "mean"), Normalize(), truncate_dim=6),
        "multi-vector": MultiVectorEncoder(
            modules=[
                open_body(classic, added=("[Q] ", "[D] ")),
                dense(WIDTH, 8, nn.Identity(), bias=False, **tokens),
                MultiVectorMask(list(string.punctuation)),
                Normalize(**tokens),
            ],
            prompts={"query": "[Q] ", "document": "[D] "},
            device="cpu",
        ),
        "multi-vector-plain": MultiVectorEncoder(
            modules=[
                open_body({"query_length": 8}),
                dense(WIDTH, 12, nn.GELU(), use_residual=True, **tokens),
                dense(12, 8, nn.Identity(), **tokens),
                Normalize(**tokens),
                MultiVectorMask([".", "the", "unknown"]),
            ],
            prompts={"query": "query: "},
            device="cpu",
        ),
        "multi-vector-attends": MultiVectorEncoder(
            modules=[
                open_body({"query_expansion": {"strategy": "fixed", "length": 10, "attend": True}}),
                MultiVectorMask(),
                Normalize(**tokens),
            ],
            device="cpu",
        ),
    }


def describe_folder(folder: Path) -> dict[str, Any]:
    """The JSON files of a folder, and the names and shapes of its tensors."""
    inside = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {
        "files": {
            path.relative_to(folder).as_posix(): json.loads(path.read_text())
            for path in inside
            if path.suffix == ".json"
        },
        "tensors": {
            path.relative_to(folder).as_posix(): {
                name: list(tensor.shape) for name, tensor in sorted(load_file(path).items())
            }
            for path in inside
            if path.suffix == ".safetensors"
        },
    }


def encode_texts(name: str, folder: Path) -> dict[str, Any]:
    """The vectors of the texts on each side, by the library."""
    library = MultiVectorEncoder if name.startswith("multi-vector") else SentenceTransformer
    model = library(str(folder), device="cpu")
    # As float32: a text has one row, or one for each token.
    sides = {"query": model.encode_query, "document": model.encode_document}
    return {
        side: [
            [round(number, 8) for number in torch.as_tensor(vector).flatten().tolist()]
            for vector in encode(list(TEXTS), batch_size=2)
        ]
        for side, encode in sides.items()
    }


def main(target: Path) -> None:
    """Write every layout with its vectors."""
    with tempfile.TemporaryDirectory() as work:
        content: dict[str, Any] = {}
        for name, model in build_models(Path(work)).items():
            folder = Path(work, name)
            model.save_pretrained(str(folder), create_model_card=False)
            layout = describe_folder(folder)
            draw_tensors(folder, layout["tensors"])
            content[name] = {**layout, "vectors": encode_texts(name, folder)}
    shared = content["mean"]["files"]["tokenizer.json"]
    for layout in content.values():
        # Most tokenizers are the same file, which is written once.
        layout["files"] = {
            path: "tokenizer.json" if file == shared else file for path, file in layout["files"].items()
        }
    whole = {"sentence_transformers": __version__, "tokenizer.json": shared, "layouts": content}
    target.write_text(json.dumps(whole, ensure_ascii=False, separators=(",", ":")) + "\n")
    print(f"{len(read_layouts())} layouts, {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("tests/support/layouts.json"))
