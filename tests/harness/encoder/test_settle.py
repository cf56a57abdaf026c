from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.encoder.describe import describe, resolve_encoding
from harness.errors import UsageError
from harness.types import Encoding, Settings


def test_a_bare_backbone_is_mean_pooled(bare: Path) -> None:
    assert resolve_encoding(describe(bare), Settings()) == Encoding(
        pooling="mean", normalize=False, max_length=48, similarity="cosine"
    )


def test_the_models_own_way_is_the_default(build: Callable[..., Path]) -> None:
    library = {
        "prompts": {"query": "query: ", "document": "", "a": "A"},
        "default_prompt_name": "query",
        "similarity_fn_name": "dot",
    }
    found = resolve_encoding(describe(build(pooling="cls+max", normalize=True, library=library)), Settings())
    assert found == Encoding(
        pooling="cls+max",
        normalize=True,
        max_length=32,
        similarity="dot",
        prompts=(("a", "A"), ("document", ""), ("query", "query: ")),
        default_prompt="query",
    )


def test_what_is_asked_for_goes_first(build: Callable[..., Path]) -> None:
    library = {"prompts": {"query": "query: "}, "default_prompt_name": "query"}
    asked = Settings(
        dtype="bfloat16",
        pooling="lasttoken",
        normalize=False,
        max_length=64,
        similarity="euclidean",
        prompts={"query": "", "STS": "x"},
    )
    assert resolve_encoding(describe(build(normalize=True, library=library)), asked) == Encoding(
        dtype="bfloat16",
        pooling="lasttoken",
        normalize=False,
        max_length=64,
        similarity="euclidean",
        prompts=(("STS", "x"), ("document", ""), ("query", "")),
        default_prompt="query",
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (Settings(pooling="meen"), "Did you mean mean"),
        (Settings(pooling="cls+mean"), "No pooling is called 'cls+mean'"),
        (Settings(max_length=65), "Its limit is 64 tokens."),
        (Settings(max_length=0), "A maximum length of 0 tokens"),
        (Settings(max_length=-1), "A maximum length of -1 tokens"),
    ],
)
def test_what_cannot_be_is_refused(build: Callable[..., Path], settings: Settings, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        resolve_encoding(describe(build()), settings)
    assert said in str(caught.value)


def test_the_models_own_combination_may_be_named(build: Callable[..., Path]) -> None:
    found = resolve_encoding(describe(build(pooling="cls+mean")), Settings(pooling="cls+mean"))
    assert found.pooling == "cls+mean"


def test_a_pooling_that_is_part_of_the_model_stays(build: Callable[..., Path]) -> None:
    folder = build()
    listed = '[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]'
    (folder / "modules.json").write_text(listed)
    with pytest.raises(UsageError, match="no Pooling module"):
        resolve_encoding(describe(folder), Settings(pooling="mean"))
