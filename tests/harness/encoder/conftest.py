"""Tiny random models, built on the spot in every shape that loading must tell apart."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.core.encoding import Settings
from harness.core.types import Artifact
from harness.encoder.engine import Encoder
from harness.encoder.folder.description import compute_folder_identity, describe
from harness.encoder.resolved_encoding import resolve_encoding
from tiny import library

WORDS = [
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
]
PIECES = [c for letter in "abcdefghijklmnopqrstuvwxyz0123456789.,:;!?%()+'-" for c in (letter, f"##{letter}")]

Build = Callable[..., Path]


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bare BERT with a WordPiece tokenizer, 64 positions, weights in safetensors."""
    import torch
    from transformers import BertConfig, BertModel

    folder = tmp_path_factory.mktemp("bare")
    tokenizer = _tokenizer()
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def copy(bare: Path, tmp_path: Path) -> Path:
    """The bare BERT in a folder of one's own to spoil."""
    return Path(shutil.copytree(bare, tmp_path / "copy"))


@pytest.fixture
def build(bare: Path, tmp_path: Path) -> Build:
    """Writes a sentence-transformers folder around the bare backbone."""

    def build(
        name: str = "model",
        *,
        pooling: str = "mean",
        include_prompt: bool = True,
        normalize: bool = False,
        dense: bool = False,
        max_seq_length: int = 32,
        lower: bool = False,
        library: dict[str, Any] | None = None,
        backbone: Path = bare,
    ) -> Path:
        from sentence_transformers.models import Dense, Normalize, Transformer

        from harness.encoder.folder.modules_and_pooling import POOLING_FLAGS
        from harness.encoder.library_load import build_pooling

        folder = tmp_path / name
        shutil.copytree(backbone, folder)
        _write(
            folder / "sentence_bert_config.json", {"max_seq_length": max_seq_length, "do_lower_case": lower}
        )
        width = json.loads((folder / "config.json").read_text())["hidden_size"]
        parts = [build_pooling(width, pooling.split("+"), include_prompt=include_prompt)]
        if dense:
            parts.append(Dense(parts[0].pooling_output_dimension, 8))
        if normalize:
            parts.append(Normalize())
        modules = [_module(0, Transformer, "")]
        for number, part in enumerate(parts, start=1):
            path = f"{number}_{type(part).__name__}"
            (folder / path).mkdir()
            part.save(str(folder / path))
            # As the library up to 5.3 writes it.
            if number == 1:
                flags = {flag: mode in pooling.split("+") for flag, mode in POOLING_FLAGS.items()}
                content = {"word_embedding_dimension": width, **flags, "include_prompt": include_prompt}
                _write(folder / path / "config.json", content)
            modules.append(_module(number, type(part), path))
        _write(folder / "modules.json", modules)
        if library is not None:
            _write(folder / "config_sentence_transformers.json", library)
        return folder

    return build


@pytest.fixture
def artifact() -> Callable[..., Artifact]:
    def artifact(folder: Path, **fields: Any) -> Artifact:
        key, weights, _ = compute_folder_identity(folder)
        own = {"name": "tiny", "source": str(folder), "folder": folder, "key": key, "weights": weights}
        return Artifact(**{**own, **fields})

    return artifact


@pytest.fixture
def loaded(artifact: Callable[..., Artifact]) -> Callable[..., Encoder]:
    """Loads a folder on the CPU as the given settings ask."""

    def loaded(folder: Path, **settings: Any) -> Encoder:
        from harness.encoder.loading import load_encoder

        encoding = resolve_encoding(describe(folder), Settings(**settings))
        return load_encoder(artifact(folder), encoding, device="cpu")

    return loaded


@pytest.fixture
def router(tmp_path: Path) -> Build:
    """Writes a model with a tower for each side, of the modules of two folders."""

    def router(query: Path, document: Path, name: str = "router", **options: Any) -> Path:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.models import Router

        towers = [list(library(folder)) for folder in (query, document)]
        model = SentenceTransformer(modules=[Router.for_query_document(*towers, **options)], device="cpu")
        model.save(str(tmp_path / name))
        return tmp_path / name

    return router


@pytest.fixture
def rewrite() -> Callable[..., None]:
    """Changes fields of a JSON file in place; makes the file if there is none."""

    def rewrite(path: Path, **fields: Any) -> None:
        content = json.loads(path.read_text()) if path.exists() else {}
        _write(path, {**content, **fields})

    return rewrite


@pytest.fixture
def edit() -> Callable[[Path, Callable[[dict[str, Any]], Any]], None]:
    """Changes the tensors of a folder's model.safetensors in place."""

    def edit(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
        from safetensors.torch import load_file, save_file

        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    return edit


def _tokenizer() -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys([*special, *WORDS, *PIECES]))}
    raw = Tokenizer(models.WordPiece(vocab=vocabulary, unk_token="[UNK]"))
    raw.normalizer = normalizers.BertNormalizer(lowercase=False)
    raw.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    raw.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=raw,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=48,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def _module(number: int, kind: type, path: str) -> dict[str, Any]:
    return {
        "idx": number,
        "name": str(number),
        "path": path,
        "type": f"sentence_transformers.models.{kind.__name__}",
    }


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content))
