"""What is loaded is what lies in the folder, and what was hashed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.encoder.describe import describe
from harness.errors import ModelError

Build = Callable[..., Path]
Rewrite = Callable[..., None]


@pytest.mark.parametrize(
    "arguments",
    [
        {"model_args": {"variant": "fp16"}},
        {"model_args": {"use_safetensors": False}},
        {"model_args": {"gguf_file": "x.gguf"}},
        {"model_args": {"adapter_kwargs": {"revision": "x"}}},
        {"model_args": {"attn_implementation": "kernels-community/flash-attn"}},
        {"model_args": {"use_kernels": True}},
        {"config_args": {"transformers_weights": "other.safetensors"}},
        {"config_args": {"auto_map": {"AutoModel": "org/x--m.C"}}},
        {"tokenizer_args": {"tokenizer_file": "/elsewhere/tokenizer.json"}},
        {"tokenizer_name_or_path": "org/other"},
    ],
)
def test_settings_that_lead_elsewhere_are_refused(
    build: Build, rewrite: Rewrite, arguments: dict[str, Any]
) -> None:
    folder = build()
    rewrite(folder / "sentence_bert_config.json", **arguments)
    with pytest.raises(ModelError, match=r"sentence_bert_config\.json sets \w+, which \w+"):
        describe(folder)


@pytest.mark.parametrize(
    "fields",
    [
        {"transformers_weights": "other.safetensors"},
        {"text_config": {"transformers_weights": "other.safetensors"}},
        {"attn_implementation": "org/kernel"},
        {"attn_implementation": {"text_config": "org/kernel"}},
    ],
)
def test_configs_that_lead_elsewhere_are_refused(
    build: Build, rewrite: Rewrite, fields: dict[str, Any]
) -> None:
    folder = build()
    rewrite(folder / "config.json", **fields)
    with pytest.raises(ModelError, match=r"config\.json sets \w+, which"):
        describe(folder)


def test_the_weights_that_are_named_would_be_loaded(build: Build, rewrite: Rewrite) -> None:
    """What the refusal is for: transformers takes the file that the config names."""
    from sentence_transformers import SentenceTransformer

    folder = build()
    rewrite(folder / "config.json", transformers_weights="other.safetensors")
    with pytest.raises(FileNotFoundError, match=r"other\.safetensors"):
        SentenceTransformer(str(folder), device="cpu", local_files_only=True)


def test_settings_that_change_nothing_of_that_are_the_models_own(build: Build, rewrite: Rewrite) -> None:
    folder = build()
    rewrite(
        folder / "sentence_bert_config.json",
        model_args={"use_safetensors": True, "variant": None, "attn_implementation": "eager"},
        config_args={"hidden_dropout_prob": 0.0},
        tokenizer_args={},
        tokenizer_name_or_path=None,
    )
    assert describe(folder).max_length == 32


def test_an_adapter_beside_its_base_is_refused(build: Build, rewrite: Rewrite) -> None:
    folder = build()
    rewrite(folder / "adapter_config.json", base_model_name_or_path="org/base")
    with pytest.raises(ModelError, match="holds an adapter, whose base model lies elsewhere"):
        describe(folder)
