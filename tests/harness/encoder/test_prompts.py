"""Prompts: the ones that mteb, and sentence-transformers beneath it, put before a text."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes import task
from harness.encoder.describe import describe, resolve_encoding
from harness.encoder.engine import Encoder
from harness.types import ROLES, Role, Settings

Loaded = Callable[..., Encoder]
Build = Callable[..., Path]

TEXTS = ["the cat sat on a mat.", "x", "def add(a, b)"]

LIBRARIES: list[dict[str, Any]] = [
    {},
    {"prompts": {"query": "query: "}},
    {"prompts": {"query": "query: ", "document": "passage: "}},
    {"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": "query"},
    {"prompts": {"query": "query: "}, "default_prompt_name": "query"},
    {"prompts": {"STS": "one ", "Retrieval": ""}, "default_prompt_name": "STS"},
    {"prompts": {"Retrieval-query": "", "query": "query: ", "Retrieval": "two "}},
    {"prompts": {"SciFact": "", "Retrieval": "two ", "document": "passage: "}},
    {"prompts": {"SciFact-document": "three ", "other": "four "}, "default_prompt_name": "other"},
    {"prompts": {"STSBenchmark": "five ", "STS": "one "}, "default_prompt_name": "query"},
]


@pytest.mark.filterwarnings("ignore:The fill_missing parameter:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:(?s)Some prompts are not in the expected format:UserWarning")
@pytest.mark.filterwarnings("ignore:Task name other is not valid:UserWarning")
@pytest.mark.parametrize("library", LIBRARIES, ids=json.dumps)
@pytest.mark.parametrize("name", ["SciFact", "STSBenchmark"])
@pytest.mark.parametrize("role", ROLES)
def test_prompts_are_mtebs(
    build: Build, loaded: Loaded, library: dict[str, Any], name: str, role: Role
) -> None:
    import mteb
    from datasets import Dataset
    from mteb.models import SentenceTransformerEncoderWrapper
    from mteb.types import PromptType
    from sentence_transformers import SentenceTransformer
    from torch.utils.data import DataLoader

    folder = build(library=library)
    theirs = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    about = mteb.get_task(name).metadata
    expected = SentenceTransformerEncoderWrapper(theirs).encode(
        DataLoader(Dataset.from_dict({"text": TEXTS}), batch_size=3),
        task_metadata=about,
        hf_split="test",
        hf_subset="default",
        prompt_type=PromptType(role) if role else None,
    )
    ours = loaded(folder)
    prompt = ours.encoding.prompt(replace(task(name), type=about.type), role)
    assert np.abs(ours.encode(TEXTS, prompt=prompt) - expected).max() < 1e-5


def test_a_prompt_can_be_asked_away(build: Build) -> None:
    library = {"prompts": {"query": "query: ", "other": "four "}, "default_prompt_name": "other"}
    encoding = resolve_encoding(describe(build(library=library)), Settings(prompts={"query": ""}))
    assert encoding.prompts == (("document", ""), ("other", "four "), ("query", ""))
    assert [encoding.prompt(task(), role) for role in ROLES] == ["", "", "four "]


def test_without_a_default_no_side_is_added(build: Build) -> None:
    encoding = resolve_encoding(describe(build(library={"prompts": {"query": "query: "}})), Settings())
    assert (encoding.prompts, encoding.default_prompt) == ((("query", "query: "),), None)
