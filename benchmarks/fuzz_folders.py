"""The small model and data folders that fuzz_inputs.py mutates, with random weights."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tiny

WORDS = (
    "a dog sleeps on the couch",
    "a man plays the guitar",
    "the stock market fell",
    "rain fell on the fields",
)
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
FIRST = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
MODULES = "sentence_transformers.models."


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def _save(model: Any, folder: Path) -> None:
    """A model of transformers with random weights, wide enough that all of them matter."""
    import torch

    chance = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=chance) * 0.2)
    with contextlib.redirect_stderr(io.StringIO()):
        model.eval().save_pretrained(folder)


def _save_bytes(folder: Path, **tokens: Any) -> int:
    """A BPE tokenizer of bytes; gives the size of its vocabulary."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=sorted(set(tokens.values())),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(WORDS, trainer)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **tokens).save_pretrained(folder)
    size: int = tokenizer.get_vocab_size()
    return size


def _write_modules(
    folder: Path, *kinds: str, pooling: Mapping[str, Any] | None = None, prompts: bool = True
) -> None:
    """The files of sentence-transformers around a backbone."""
    rows = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": MODULES + kind}
        for i, kind in enumerate(kinds)
    ]
    write_json(folder / "modules.json", rows)
    named = {"query": "query: ", "document": ""} if prompts else {}
    settings = {"prompts": named, "default_prompt_name": None, "similarity_fn_name": "cosine"}
    write_json(folder / "config_sentence_transformers.json", settings)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": 48, "do_lower_case": False})
    write_json(
        folder / "1_Pooling" / "config.json",
        {"word_embedding_dimension": 32, **(pooling or {"pooling_mode_mean_tokens": True})},
    )


def _lay_bert(folder: Path) -> None:
    tiny.folder(tiny.families()["bert"], folder)


def _lay_mean(folder: Path) -> None:
    _lay_bert(folder)
    _write_modules(folder, "Transformer", "Pooling", "Normalize")


def _lay_dense(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file

    tiny.folder(tiny.families()["roberta"], folder)
    _write_modules(folder, "Transformer", "Pooling", "Dense", pooling=FIRST)
    activation = "torch.nn.modules.activation.Tanh"
    settings = {"in_features": 32, "out_features": 8, "bias": True, "activation_function": activation}
    write_json(folder / "2_Dense" / "config.json", settings)
    weight = torch.linspace(-1, 1, 256).reshape(8, 32)
    save_file(
        {"linear.weight": weight, "linear.bias": weight[:, 0].clone()},
        folder / "2_Dense" / "model.safetensors",
    )


def _lay_modernbert(folder: Path) -> None:
    tiny.folder(tiny.families()["modernbert"], folder)
    _write_modules(folder, "Transformer", "Pooling", prompts=False)


def _lay_decoder(folder: Path) -> None:
    from transformers import Qwen2Config, Qwen2Model

    size = _save_bytes(folder, pad_token="<pad>", eos_token="<end>")
    _save(Qwen2Model(Qwen2Config(vocab_size=size, num_key_value_heads=2, **SIZES)), folder)
    last = {"pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": False}
    _write_modules(folder, "Transformer", "Pooling", "Normalize", pooling=last)


def _lay_albert(folder: Path) -> None:
    """A type that runs through transformers' own class."""
    from transformers import AlbertConfig, AlbertModel

    tokenizer = tiny.tokenizer()
    tokenizer.save_pretrained(folder)
    _save(AlbertModel(AlbertConfig(vocab_size=len(tokenizer), embedding_size=16, **SIZES)), folder)


def _lay_static(folder: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import StaticEmbedding

    tokenizer = tiny.tokenizer().backend_tokenizer
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=16)], device="cpu").save_pretrained(
        str(folder)
    )


def _lay_colbert(folder: Path) -> None:
    import late_models

    late_models.save(folder)


def _lay_adapter(folder: Path) -> None:
    import peft
    import torch
    from transformers import AutoModel

    _lay_bert(base := folder.with_name("base"))
    config = peft.LoraConfig(r=4, target_modules=["query", "value"], use_dora=True)
    with contextlib.redirect_stderr(io.StringIO()):
        adapted: Any = peft.get_peft_model(AutoModel.from_pretrained(base), config)
    chance = torch.Generator().manual_seed(7)
    for parameter in adapted.parameters():
        if parameter.requires_grad:
            parameter.data.copy_(torch.randn(parameter.shape, generator=chance) * 0.2)
    adapted.save_pretrained(str(folder))
    tiny.tokenizer().save_pretrained(folder)
    _write_modules(folder, "Transformer", "Pooling")


BASES: Mapping[str, Callable[[Path], None]] = {
    "bert": _lay_bert,
    "mean": _lay_mean,
    "dense": _lay_dense,
    "modernbert": _lay_modernbert,
    "decoder": _lay_decoder,
    "albert": _lay_albert,
    "static": _lay_static,
    "colbert": _lay_colbert,
    "adapter": _lay_adapter,
}
"""By name what lays a model folder."""


def lay_models(home: Path, names: tuple[str, ...]) -> None:
    """Lay some of the folders, each in one of its name."""
    for name in names:
        (home / name).mkdir(parents=True)
        BASES[name](home / name)


def _join_lines(*rows: Mapping[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


_LABELLED = [
    {"text": f"{word} {n}", "label": "ab"[n % 2], "id": str(n)} for n in range(4) for word in tiny.WORDS[:4]
]

DATA: Mapping[str, Mapping[str, str]] = {
    "beir": {
        "corpus.jsonl": _join_lines(
            *({"_id": f"d{n}", "title": "", "text": w} for n, w in enumerate(tiny.WORDS))
        ),
        "queries.jsonl": _join_lines(*({"_id": f"q{n}", "text": w} for n, w in enumerate(tiny.WORDS[:4]))),
        "qrels/test.tsv": "query-id\tcorpus-id\tscore\n" + "".join(f"q{n}\td{n}\t1\n" for n in range(4)),
        "README.md": "---\nlanguage: en\nconfigs:\n- config_name: default\n---\n# Ours\n",
    },
    "pairs": {
        "harness.toml": '[[task]]\nname = "alike"\ntype = "sts"\nfile = "pairs.jsonl"\n',
        "pairs.jsonl": _join_lines(
            *({"text1": a, "text2": tiny.WORDS[n // 2], "score": n % 5} for n, a in enumerate(tiny.WORDS))
        ),
    },
    "table": {
        "harness.toml": '[[task]]\ntype = "sts"\nfile = "pairs.csv"\n'
        '[task.columns]\ntext1 = "a"\ntext2 = "b"\n',
        "pairs.csv": "a,b,score\n"
        + "".join(f"{w},the {w[:3]},{n % 3}.5\n" for n, w in enumerate(tiny.WORDS)),
    },
    "parquet": {
        "harness.toml": '[[task]]\ntype = "sts"\nfile = "pairs.parquet"\n',
        "pairs.parquet": _join_lines(
            *({"text1": a, "text2": tiny.WORDS[n // 2], "score": n / 2} for n, a in enumerate(tiny.WORDS))
        ),
    },
    "training": {
        "triplets.jsonl": _join_lines(
            *({"query": f"a {w}", "positive": w, "negative": f"no {w}"} for w in tiny.WORDS)
        ),
    },
    "classes": {
        "harness.toml": '[[task]]\nname = "kind"\ntype = "classification"\n',
        "train.jsonl": _join_lines(*_LABELLED),
        "test.jsonl": _join_lines(*_LABELLED[:8]),
    },
    "groups": {
        "harness.toml": '[[task]]\ntype = "clustering"\nfile = "texts.csv"\n',
        "texts.csv": "text,label\n" + "".join(f"{row['text']},{row['label']}\n" for row in _LABELLED),
    },
}
"""By name the files of a data folder."""


def lay_data(home: Path) -> None:
    """Lay every data folder; the rows of a Parquet file are given as lines of JSON."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name, files in DATA.items():
        for place, text in files.items():
            path = home / name / place
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".parquet":
                pq.write_table(pa.Table.from_pylist([json.loads(line) for line in text.splitlines()]), path)
            else:
                path.write_text(text, encoding="utf-8", newline="")
