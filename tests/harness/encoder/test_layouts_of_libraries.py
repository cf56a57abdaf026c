"""Folders written by sentence-transformers 6.2 and model2vec: their own vectors are the truth.

`benchmarks/make_layouts.py` has written them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.core.encoding import Encoding, Settings
from harness.core.errors import ModelError
from harness.core.types import Role
from harness.encoder.loading import load_any
from harness.plan.models import ModelOptions, resolve_model

LAYOUTS = Path(__file__).parents[2] / "fixtures" / "layouts"
REFUSED = {"sparse": "SparseEncoder", "cross-encoder": "CrossEncoder"}
MULTI_VECTOR = sorted(folder.name for folder in LAYOUTS.glob("multi-vector*"))
SINGLE_VECTOR = sorted({folder.name for folder in LAYOUTS.iterdir()} - {*REFUSED, *MULTI_VECTOR, "adapter"})
BOUND = 2e-6
"""The largest difference of a component; vectors here are of the order of 1."""

SIDES: dict[str, Role] = {"encode": "", "encode_query": "query", "encode_document": "document"}


def read_expected(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((LAYOUTS / name / "expected.json").read_text("utf-8"))
    return content


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The library's files alone."""
    return copy_layout(request.param, tmp_path)


def copy_layout(name: str, target: Path) -> Path:
    return Path(shutil.copytree(LAYOUTS / name, target / name, ignore=lambda *_: ["expected.json"]))


def encode(folder: Path, texts: list[str], role: Role) -> Any:
    """The vectors of texts on a side, with the prompt that a task without one of its own puts before them."""
    model = resolve_model(str(folder), Settings(), ModelOptions(offline=True))
    assert isinstance(model.encoding, Encoding)
    named, default = dict(model.encoding.prompts), model.encoding.default_prompt
    prompt = next((named[name] for name in (role, default) if name in named), "")
    return load_any(model.artifact, model.encoding, device="cpu").encode(texts, prompt=prompt, role=role)


def assert_same_vectors(folder: Path, expected: dict[str, Any], side: str) -> None:
    vectors = encode(folder, expected["texts"], SIDES[side])
    truth = np.array(expected[side], np.float32)
    assert vectors.shape == truth.shape
    assert np.abs(vectors - truth).max() <= BOUND


@pytest.mark.parametrize(
    ("folder", "side"),
    [(name, side) for name in SINGLE_VECTOR for side in SIDES if side in read_expected(name)],
    indirect=["folder"],
)
def test_a_text_has_the_vector_of_its_library(folder: Path, side: str) -> None:
    assert_same_vectors(folder, read_expected(folder.name), side)


@pytest.mark.parametrize("folder", MULTI_VECTOR, indirect=True)
@pytest.mark.parametrize("side", ["encode_query", "encode_document"])
def test_each_token_has_the_vector_of_its_library(folder: Path, side: str) -> None:
    expected = read_expected(folder.name)
    vectors = encode(folder, expected["texts"], SIDES[side])
    truth = [np.array(rows, np.float32).reshape(-1, 8) for rows in expected[side]]
    assert vectors.lengths.tolist() == [len(rows) for rows in truth]
    assert np.abs(vectors.vectors - np.concatenate(truth)).max() <= BOUND


def test_an_adapter_is_added_to_the_model_that_it_names(tmp_path: Path) -> None:
    folder = copy_layout("adapter", tmp_path)
    settings = json.loads((folder / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == "bert"
    settings["base_model_name_or_path"] = str(copy_layout("mean", tmp_path))
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    assert_same_vectors(folder, read_expected("adapter"), "encode")


@pytest.mark.parametrize("folder", SINGLE_VECTOR, indirect=True)
def test_vectors_are_compared_as_the_folder_says(folder: Path) -> None:
    similarity = read_expected(folder.name).get("similarity", "cosine")
    encoding = resolve_model(str(folder), Settings(), ModelOptions(offline=True)).encoding
    assert isinstance(encoding, Encoding)
    assert encoding.similarity == similarity


@pytest.mark.parametrize("folder", REFUSED, indirect=True)
def test_what_gives_no_embeddings_is_refused_by_its_name(folder: Path) -> None:
    with pytest.raises(ModelError) as caught:
        resolve_model(str(folder), Settings(), ModelOptions(offline=True))
    words = f"{caught.value.message} {caught.value.hint}".lower().replace("-", "").replace(" ", "")
    assert REFUSED[folder.name].lower() in words
