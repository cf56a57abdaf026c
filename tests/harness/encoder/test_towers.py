"""Models with a tower for each side: lengths, routes, dtypes, and what must be loaded in each."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.core.errors import ModelError, UsageError
from harness.encoder.engine import Encoder
from harness.encoder.folder.description import NO_LIMIT, describe
from harness.encoder.sanity import check_encoder
from tiny import library

Loaded = Callable[..., Encoder]
Build = Callable[..., Path]
Edit = Callable[[Path, Callable[[dict[str, Any]], Any]], None]

TEXTS = ["the cat sat on a mat.", "stock fell!", "def add(a, b): return a + b " * 4, "x"]
LAYER = "encoder.layer.1.output.dense"
SIDES = ("query", "document")


def same(ours: Encoder, theirs: Any) -> None:
    for role, encode in zip(SIDES, (theirs.encode_query, theirs.encode_document), strict=True):
        assert np.abs(ours.encode(TEXTS, role=role) - encode(TEXTS)).max() < 1e-5
    assert np.abs(ours.encode(TEXTS) - theirs.encode(TEXTS)).max() < 1e-5


@pytest.fixture
def two(build: Build, router: Build) -> Path:
    return router(build("q", max_seq_length=8), build("d", max_seq_length=32, dense=True), "two")


@pytest.fixture
def sides(build: Build, router: Build) -> Path:
    """Two towers of one width, the document's mean-pooled, the query's by its first token."""
    return router(build("q", pooling="cls"), build("d"), "sides")


def test_each_tower_keeps_its_length(build: Build, router: Build, loaded: Loaded) -> None:
    folder = router(build("q", max_seq_length=8), build("d", max_seq_length=32))
    found = describe(folder)
    assert [length.most for length in found.lengths] == [8, 32]
    assert (found.max_length, found.position_limit) == (32, 64)
    ours = loaded(folder)
    assert [m.max_seq_length for m in (t[0] for t in ours.model[0].sub_modules.values())] == [8, 32]
    same(ours, library(folder))


def test_a_length_asked_for_is_every_towers(build: Build, router: Build, loaded: Loaded) -> None:
    folder = router(build("q", max_seq_length=8), build("d", max_seq_length=32))
    ours, theirs = loaded(folder, max_length=12), library(folder)
    theirs[0].max_seq_length = 12
    same(ours, theirs)


def test_a_tower_that_cuts_nothing_stays_so(
    build: Build, router: Build, static: Path, loaded: Loaded
) -> None:
    folder = router(static, build("d"))
    assert [length.most for length in describe(folder).lengths] == [NO_LIMIT, 32]
    assert describe(folder).max_length == 32
    same(loaded(folder), library(folder))
    assert loaded(folder, max_length=12).encode(TEXTS, role="document").shape == (4, 32)


@pytest.fixture
def static(bare: Path, tmp_path: Path) -> Path:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(bare / "tokenizer.json"))
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=32)], device="cpu")
    model.save(str(tmp_path / "static"))
    return tmp_path / "static"


@pytest.fixture
def late(build: Build, tmp_path: Path) -> Path:
    """One backbone for both sides, and behind its pooling a layer for each."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Dense, Router

    torch.manual_seed(3)
    ends = Router.for_query_document([Dense(32, 8)], [Dense(32, 8)])
    model = SentenceTransformer(modules=[*library(build("base")), ends], device="cpu")
    model.save(str(tmp_path / "late"))
    return tmp_path / "late"


def test_a_router_behind_the_backbone_is_told_the_side(late: Path, loaded: Loaded) -> None:
    ours = loaded(late)
    assert ours.roles == ["query", "document"]
    same(ours, library(late))
    assert np.abs(ours.encode(TEXTS, role="query") - ours.encode(TEXTS, role="document")).max() > 1e-2


def test_a_router_within_a_router_is_told_the_side(
    sides: Path, build: Build, router: Build, loaded: Loaded
) -> None:
    folder = router(sides, build("c", pooling="max"), "outer")
    same(loaded(folder), library(folder))


@pytest.mark.parametrize("which", ["two", "late"])
def test_bfloat16_runs_in_every_tower(
    build: Build, router: Build, which: str, request: Any, loaded: Loaded
) -> None:
    folder = router(build("q", dense=True), build("d", dense=True)) if which == "two" else None
    folder = folder or request.getfixturevalue("late")
    half, full = loaded(folder, dtype="bfloat16"), loaded(folder)
    assert (half.dtype_as_run, half.attention) == ("bfloat16", "sdpa")
    for role in SIDES:
        got, expected = half.encode(TEXTS, role=role), full.encode(TEXTS, role=role)
        assert 1e-6 < np.abs(got - expected).max() / np.abs(expected).max() < 5e-2
    assert check_encoder(half, lambda: loaded(folder, dtype="bfloat16")).failures == ()


def test_the_dtype_is_the_backbones(build: Build, router: Build, static: Path, loaded: Loaded) -> None:
    assert loaded(router(static, build("d")), dtype="bfloat16").dtype_as_run == "bfloat16"


@pytest.mark.parametrize("side", SIDES)
def test_fresh_weights_of_any_tower_are_named(sides: Path, loaded: Loaded, edit: Edit, side: str) -> None:
    edit(sides / f"{side}_0_Transformer", lambda tensors: tensors.pop(f"{LAYER}.weight"))
    with pytest.raises(ModelError) as caught:
        loaded(sides)
    assert "1 tensors that its vectors depend on" in str(caught.value)
    assert re.search(rf": 0\.sub_modules\.{side}\.0\.(auto_)?model\.{LAYER}\.weight\.", str(caught.value))


def test_a_missing_pooler_reaches_no_tower(sides: Path, loaded: Loaded, edit: Edit) -> None:
    for side in SIDES:
        edit(sides / f"{side}_0_Transformer", lambda tensors: tensors.pop("pooler.dense.weight"))
    assert loaded(sides).roles == ["query", "document"]


@pytest.mark.parametrize("side", SIDES)
def test_the_gate_looks_at_every_tower(sides: Path, loaded: Loaded, edit: Edit, side: str) -> None:
    def flatten(tensors: dict[str, Any]) -> None:
        norm = "encoder.layer.1.output.LayerNorm"
        tensors[next(name for name in (f"{norm}.gamma", f"{norm}.weight") if name in tensors)].zero_()

    edit(sides / f"{side}_0_Transformer", flatten)
    (failure,) = check_encoder(loaded(sides)).failures
    assert failure.message == f"On side {side}: 6 different texts all have the same vector."


@pytest.mark.parametrize("side", SIDES)
def test_both_loads_of_every_tower_are_compared(sides: Path, loaded: Loaded, edit: Edit, side: str) -> None:
    encoder = loaded(sides)
    edit(sides / f"{side}_0_Transformer", lambda tensors: tensors[f"{LAYER}.weight"][0, 0].add_(0.01))
    (failure,) = check_encoder(encoder, lambda: loaded(sides)).failures
    assert failure.message.startswith(f"On side {side}: Two loads of the model disagree")
    assert re.search(rf"differ: 0\.sub_modules\.{side}\.0\.(auto_)?model\.{LAYER}\.weight\.", failure.message)


def test_sides_of_different_widths_cannot_be_compared(two: Path, loaded: Loaded) -> None:
    with pytest.raises(ModelError, match="query has 32 dimensions, document has 8 dimensions"):
        loaded(two)


def test_a_length_that_no_tower_can_keep_is_refused(static: Path, router: Build, loaded: Loaded) -> None:
    with pytest.raises(UsageError, match="cannot truncate its input"):
        loaded(router(static, static), max_length=7)
