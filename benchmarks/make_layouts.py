"""The folders of tests/fixtures/layouts, written by the libraries themselves.

    python benchmarks/make_layouts.py FOLDER

It needs an environment of its own, because the project's pins exclude these versions. It was run with
Python 3.11, sentence-transformers 6.2.0, model2vec 0.10.0, transformers 5.3.0, peft 0.21.2 and torch 2.11.0
on a CPU.

Every model has random weights, two layers and a width of 16. Beside the files of its library each folder has
an expected.json: `texts`, the library's own `encode`, `encode_query` and `encode_document` in float32 (where
it has them), the class that gave them, and the versions. A multi-vector model has a list of vectors for each
text. `refused` says that the folder holds no embedding model.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import model2vec
import numpy as np
import sentence_transformers as st
import torch
from peft import LoraConfig
from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling, MultiVectorMask
from sentence_transformers.sentence_transformer import modules as parts
from sentence_transformers.sparse_encoder.modules import SpladePooling
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2Model,
)

WIDTH = 16
TEXTS = (
    "the cat sat on the mat",
    "",
    "a dog",
    "the stock market fell, " * 20,
    "Größe über Ärger: 日本 café",
    "def add(a, b): return a + b",
    "THE CAT ROSE!",
    "  one,  two\tthree?\n",
)
"""The fourth is longer than every model reads, and the fifth has letters without a token."""

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = (
    "a",
    "the",
    "cat",
    "dog",
    "sat",
    "on",
    "mat",
    "query",
    "passage",
    "market",
    "stock",
    "fell",
    "rose",
    "def",
    "add",
    "return",
    "one",
    "two",
    "three",
)
LETTERS = "abcdefghijklmnopqrstuvwxyz日"
MARKS = "[]().,:;!?+"
LIBRARIES = ("sentence-transformers", "model2vec", "transformers", "tokenizers", "peft", "torch", "numpy")


def build_tokenizer(*, left: bool = False, lower: bool = True) -> PreTrainedTokenizerFast:
    """A WordPiece tokenizer of lower-case words; `left` pads on the left, as decoders do."""
    vocabulary = [*SPECIAL, *WORDS, *MARKS, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    raw = Tokenizer(
        models.WordPiece({w: i for i, w in enumerate(dict.fromkeys(vocabulary))}, unk_token="[UNK]")
    )
    raw.normalizer = normalizers.BertNormalizer(lowercase=lower)
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    raw.post_processor = processors.TemplateProcessing(
        single="$A [SEP]" if left else "[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=32,
        padding_side="left" if left else "right",
        model_input_names=["input_ids", "attention_mask"],
    )


def draw_weights(module: torch.nn.Module, seed: int) -> None:
    """Replaces every parameter by seeded numbers, large enough that each one shows in a vector."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in module.named_parameters():
            numbers = torch.randn(weight.shape, generator=generator) * 0.2
            is_scale = weight.dim() == 1 and name.endswith("weight")
            weight.copy_(1 + numbers if is_scale else numbers)


def save_backbone(
    folder: Path,
    kind: Callable[[Any], PreTrainedModel] = BertModel,
    *,
    seed: int = 1,
    lower: bool = True,
    **changes: Any,
) -> Path:
    """A bare transformers folder: a BERT, or the decoder `Qwen2Model`."""
    shape = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    is_decoder = kind is Qwen2Model
    tokenizer = build_tokenizer(left=is_decoder, lower=lower)
    size = {"vocab_size": len(tokenizer), "max_position_embeddings": 48, "pad_token_id": 0}
    if is_decoder:
        config: Any = Qwen2Config(num_key_value_heads=1, **shape, **size, **changes)
    else:
        config = BertConfig(**shape, **size, **changes)
    network = kind(config)
    draw_weights(network, seed)
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def build_layouts(bare: Path) -> dict[str, Callable[[], Any]]:
    """For each name of a folder what builds its model; `bare` is a folder for backbones."""
    bert = save_backbone(bare / "bert")
    other = save_backbone(bare / "other", seed=2)
    decoder = save_backbone(bare / "decoder", Qwen2Model)
    cased = save_backbone(bare / "cased", lower=False)
    masked = save_backbone(bare / "masked", BertForMaskedLM)
    classifier = save_backbone(bare / "classifier", BertForSequenceClassification, num_labels=1)

    def transformer(folder: Path = bert, **settings: Any) -> Any:
        return parts.Transformer(str(folder), **settings)

    def vector(*modules: Any, seed: int = 5, **settings: Any) -> Any:
        for number, module in enumerate(modules[1:]):
            if not isinstance(module, parts.Pooling | parts.Router):
                draw_weights(module, seed + number)
        return st.SentenceTransformer(modules=list(modules), device="cpu", **settings)

    def pool(mode: Any = "mean", **settings: Any) -> Any:
        return parts.Pooling(WIDTH, mode, **settings)

    def late(backbone: Any, *, skip: Any = None, last: tuple[Any, ...] = (), **settings: Any) -> Any:
        dense = parts.Dense(
            WIDTH, 8, bias=False, activation_function=None, module_input_name="token_embeddings"
        )
        draw_weights(dense, 5)
        unit = parts.Normalize(module_input_name="token_embeddings")
        modules = [backbone, dense, MultiVectorMask(**(skip or {})), unit, *last]
        return st.MultiVectorEncoder(modules=modules, device="cpu", **settings)

    def static() -> Any:
        module = parts.StaticEmbedding(build_tokenizer(), embedding_dim=WIDTH)
        draw_weights(module, 3)
        return module

    def route(query: list[Any], document: list[Any], **settings: Any) -> Any:
        return vector(parts.Router.for_query_document(query, document, **settings))

    def adapter() -> Any:
        # The adapter names its base as it was typed, which must be no path of one machine.
        os.chdir(bare)
        model = vector(transformer(Path("bert")), pool())
        model.add_adapter(LoraConfig(r=2, target_modules=["query", "value"], task_type="FEATURE_EXTRACTION"))
        adapted = [w for name, w in model.named_parameters() if "lora" in name]
        draw_weights(torch.nn.ParameterList(adapted), 6)
        return model

    def distilled(*, small: bool = False, **settings: Any) -> Any:
        rng = np.random.default_rng(4)
        raw = build_tokenizer().backend_tokenizer
        size = raw.get_vocab_size()
        rows = size // 2 if small else size
        if small:
            settings["weights"] = rng.uniform(0.5, 2, size).astype(np.float32)
            settings["token_mapping"] = rng.integers(0, rows, size)
        table = rng.standard_normal((rows, WIDTH)).astype(np.float32)
        return model2vec.StaticModel(table, raw, normalize=not small, **settings)

    expansion = {"strategy": "fixed", "length": 12}
    markers = {"query": "query: ", "document": "passage: "}
    return {
        "mean": lambda: vector(transformer(), pool()),
        "cls": lambda: vector(transformer(), pool("cls"), parts.Normalize()),
        "cls-and-mean": lambda: vector(transformer(), pool(["cls", "mean"])),
        "weighted-mean": lambda: vector(transformer(), pool("weightedmean")),
        "max-and-root": lambda: vector(transformer(), pool(["max", "mean_sqrt_len_tokens"])),
        "last-token": lambda: vector(transformer(decoder), pool("lasttoken")),
        "layers": lambda: vector(
            transformer(config_kwargs={"output_hidden_states": True}),
            parts.WeightedLayerPooling(WIDTH, num_hidden_layers=2, layer_start=1),
            pool(),
        ),
        "dense": lambda: vector(transformer(), pool(), parts.Dense(WIDTH, 8), parts.Normalize()),
        "dense-residual": lambda: vector(transformer(), pool(), parts.Dense(WIDTH, 8, use_residual=True)),
        "layer-norm": lambda: vector(transformer(), pool(), parts.LayerNorm(WIDTH)),
        "static": lambda: vector(static()),
        "router": lambda: route(
            [transformer(max_seq_length=8), pool("cls")],
            [transformer(other), pool()],
            default_route="document",
        ),
        "router-static": lambda: route([static()], [transformer(), pool()], default_route="query"),
        "prompts": lambda: vector(transformer(), pool(), prompts=markers, default_prompt_name="document"),
        "prompts-default": lambda: vector(
            transformer(), pool(), prompts={"clustering": "add one: "}, default_prompt_name="clustering"
        ),
        "prompts-excluded": lambda: vector(transformer(), pool(include_prompt=False), prompts=markers),
        "truncated": lambda: vector(
            transformer(), pool(), parts.Normalize(), truncate_dim=6, similarity_fn_name="dot"
        ),
        "lower-case": lambda: vector(transformer(cased, max_seq_length=10, do_lower_case=True), pool()),
        "adapter": adapter,
        "multi-vector": lambda: late(transformer()),
        "multi-vector-expanded": lambda: late(
            transformer(document_length=20, query_expansion=expansion),
            skip={"skiplist_words": list(".,:;!?")},
            prompts={"query": "[Q] ", "document": "[D] "},
        ),
        "multi-vector-floor": lambda: late(
            transformer(
                query_length=16,
                document_length=24,
                query_expansion={**expansion, "strategy": "min", "attend": True},
            ),
            skip={"skiplist_words": ["the", ","], "skiplist_tasks": ["query", "document"]},
            prompts=markers,
            similarity_fn_name="meanmaxsim",
        ),
        "multi-vector-pooled": lambda: late(transformer(), last=(HierarchicalTokenPooling(pool_factor=2),)),
        "sparse": lambda: st.SparseEncoder(
            modules=[parts.Transformer(str(masked), transformer_task="fill-mask"), SpladePooling()],
            device="cpu",
        ),
        "cross-encoder": lambda: st.CrossEncoder(str(classifier), device="cpu"),
        "model2vec": distilled,
        "model2vec-small": lambda: distilled(small=True),
    }


def list_numbers(vectors: Any) -> Any:
    """Vectors as lists, with nine decimals: a float32 of this size has fewer."""
    if isinstance(vectors, list):
        return [list_numbers(row) for row in vectors]
    return np.round(np.asarray(vectors, np.float32).astype(np.float64), 9).tolist()


def compute_expected(model: Any) -> dict[str, Any]:
    """What a library's model says of the texts."""
    expected: dict[str, Any] = {"library": f"{type(model).__module__.split('.')[0]}.{type(model).__name__}"}
    if isinstance(model, st.SparseEncoder | st.CrossEncoder):
        return {**expected, "refused": True}
    expected["texts"] = list(TEXTS)
    for name in ("encode", "encode_query", "encode_document"):
        if encode := getattr(model, name, None):
            options = {"convert_to_numpy": True} if isinstance(model, st.MultiVectorEncoder) else {}
            expected[name] = list_numbers(encode(list(TEXTS), **options))
    if similarity := getattr(model, "similarity_fn_name", None):
        expected["similarity"] = similarity
    return expected


def open_again(folder: Path, kind: type, bare: Path) -> Any:
    """The saved folder as its own class reads it."""
    os.chdir(bare)
    return kind.from_pretrained(folder) if kind is model2vec.StaticModel else kind(str(folder), device="cpu")


def write_layouts(target: Path) -> None:
    """Writes every folder anew."""
    versions = {name: version(name) for name in LIBRARIES}
    with tempfile.TemporaryDirectory() as bare:
        for name, build in build_layouts(Path(bare)).items():
            folder = target / name
            shutil.rmtree(folder, ignore_errors=True)
            model = build()
            if isinstance(model, model2vec.StaticModel):
                model.save_pretrained(folder)
                (folder / "README.md").unlink(missing_ok=True)
            else:
                model.save_pretrained(str(folder), create_model_card=False)
            expected = compute_expected(model)
            again = compute_expected(open_again(folder, type(model), Path(bare)))
            # transformers 5.3 drops the adapter of a class without the prefix "model.", and says so.
            if name != "adapter" and again != expected:
                raise SystemExit(f"{name}: the saved folder gives other vectors than the model in memory")
            expected["versions"] = versions
            (folder / "expected.json").write_text(json.dumps(expected, ensure_ascii=False) + "\n", "utf-8")
            print(f"{name}: {sum(p.stat().st_size for p in folder.rglob('*') if p.is_file()) // 1000} kB")


if __name__ == "__main__":
    write_layouts(Path(sys.argv[1]).resolve())
