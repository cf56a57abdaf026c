"""Where texts are cut: by the model's own length, unless another is asked for."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.encoder.describe import NO_LIMIT, describe, resolve_encoding
from harness.encoder.engine import Encoder
from harness.errors import UsageError
from harness.types import Settings

Loaded = Callable[..., Encoder]
Build = Callable[..., Path]
Rewrite = Callable[..., None]

JIT = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

LONG = "the cat sat on a mat. " * 20


def library(folder: Path) -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


def test_a_length_is_written_only_if_asked_for(
    build: Build, loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sentence_transformers.models import Transformer

    written: list[int] = []
    folder = build()
    real = Transformer.__setattr__

    def spy(module: Any, name: str, value: Any) -> None:
        if name == "max_seq_length":
            written.append(value)
        real(module, name, value)

    monkeypatch.setattr(Transformer, "__setattr__", spy)
    loaded(folder)
    assert written == [32]  # by the library itself
    loaded(folder, max_length=5)
    assert written == [32, 32, 5]


def test_more_than_there_are_positions_for_is_cut(build: Build, loaded: Loaded) -> None:
    ours = loaded(build(max_seq_length=512))
    assert ours.model[0].max_seq_length == ours.encoding.max_length == 64
    assert np.isfinite(ours.encode([LONG])).all()


@pytest.fixture
def deberta(bare: Path, tmp_path: Path) -> Callable[..., Path]:
    def deberta(**fields: Any) -> Path:
        from transformers import DebertaV2Config, DebertaV2Model

        folder = Path(shutil.copytree(bare, tmp_path / "deberta"))
        config = DebertaV2Config(
            vocab_size=200,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            max_position_embeddings=24,
            relative_attention=True,
            position_buckets=8,
            pos_att_type=["p2c", "c2p"],
            type_vocab_size=2,
            **fields,
        )
        DebertaV2Model(config).save_pretrained(folder)
        return folder

    return deberta


@JIT
def test_relative_positions_go_on(deberta: Callable[..., Path], build: Build, loaded: Loaded) -> None:
    folder = build(backbone=deberta(position_biased_input=False), max_seq_length=48)
    found = describe(folder)
    assert (found.max_length, found.position_limit) == (48, 48)
    assert np.abs(loaded(folder).encode([LONG]) - library(folder).encode([LONG])).max() < 1e-5


@JIT
def test_positions_in_a_table_do_not_though_attention_is_relative(
    deberta: Callable[..., Path], build: Build, loaded: Loaded
) -> None:
    folder = build(backbone=deberta(position_biased_input=True), max_seq_length=48)
    assert describe(folder).max_length == 24
    assert np.isfinite(loaded(folder).encode([LONG])).all()
    with pytest.raises(RuntimeError, match="must match the size"):
        library(folder).encode([LONG])


def test_the_length_is_that_of_the_part_about_text(build: Build, rewrite: Rewrite) -> None:
    folder = build(max_seq_length=512)
    text = {"model_type": "clip_text_model", "max_position_embeddings": 20}
    rewrite(folder / "config.json", max_position_embeddings=None, text_config=text)
    assert (describe(folder).max_length, describe(folder).position_limit) == (20, 20)


def test_clip_takes_its_tokenizers_length(bare: Path, tmp_path: Path, rewrite: Rewrite) -> None:
    folder = Path(shutil.copytree(bare, tmp_path / "clip"))
    (folder / "config.json").unlink()
    rewrite(folder / "config.json", model_type="clip", text_config={"model_type": "clip_text_model"})
    (folder / "modules.json").write_text(
        '[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.CLIPModel"}]'
    )
    assert describe(folder).max_length == 48
    rewrite(folder / "config.json", text_config={"max_position_embeddings": 20})
    assert describe(folder).max_length == 20


@pytest.mark.parametrize(("own", "said"), [(7, 7), (1_000_000, NO_LIMIT)])
def test_word_embeddings_have_their_own_length_and_cut_nothing(
    tmp_path: Path, loaded: Loaded, own: int, said: int
) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, WordEmbeddings
    from sentence_transformers.models.tokenizer import WhitespaceTokenizer

    words = WordEmbeddings(
        WhitespaceTokenizer(["cat", "dog"]), np.eye(2, 4, dtype=np.float32), max_seq_length=own
    )
    SentenceTransformer(modules=[words, Pooling(4)], device="cpu").save(str(tmp_path / "words"))
    assert describe(tmp_path / "words").max_length == said
    assert loaded(tmp_path / "words").encode(["cat " * 9 + "dog"])[0, 1] == pytest.approx(0.1)
    with pytest.raises(UsageError, match="cannot truncate its input"):
        loaded(tmp_path / "words", max_length=3)


def test_the_limit_asked_for_is_the_largest_towers(build: Build, router: Build) -> None:
    folder = router(build("q", max_seq_length=8), build("d", max_seq_length=32))
    assert resolve_encoding(describe(folder), Settings(max_length=64)).max_length == 64
    with pytest.raises(UsageError, match="Its limit is 64 tokens"):
        resolve_encoding(describe(folder), Settings(max_length=65))
