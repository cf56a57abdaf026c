from __future__ import annotations

import hashlib
import logging
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import artifact, encoding
from harness.core import files
from harness.core.encoding import Encoding, LateInteraction
from harness.core.errors import DataError
from harness.core.types import SIDES
from harness.storage.vectors import (
    EmbeddingCache,
    TokenVectors,
    drop_vectors,
    find_shard_problem,
    list_cached_models,
)


def vectors(texts: list[str]) -> np.ndarray:
    return np.array([[len(t), sum(map(ord, t)) % 997, 1.0] for t in texts], np.float32)


def space(root: Path, prompt: str = "", how: Encoding | None = None, key: str = "a" * 64) -> EmbeddingCache:
    return EmbeddingCache(
        root, EmbeddingCache.build_space_identity(artifact(Path(), key=key), how or encoding(), prompt=prompt)
    )


def add(to: EmbeddingCache, texts: list[str]) -> None:
    EmbeddingCache.write_shard(
        to.folder.parents[2],
        to.identity,
        EmbeddingCache.serialize_shard(EmbeddingCache.hash_texts(texts), vectors(texts)),
    )
    to.refresh()


@given(st.lists(st.text(), min_size=1, max_size=30, unique=True), st.data())
def test_what_was_added_comes_back(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("cache")
    split = data.draw(st.integers(0, len(texts)))
    there = space(root)
    for part in (texts[:split], texts[split:]):
        if part:
            add(there, part)
    asked = data.draw(st.lists(st.sampled_from(texts), max_size=40))
    assert (there.get(asked) == vectors(asked).reshape(len(asked), 3)).all()
    assert (space(root).get(texts) == vectors(texts)).all()


def test_weights_of_another_training_have_vectors_of_their_own() -> None:
    """The key of a trained model says how its weights were made, which may give other weights again."""
    model = artifact(Path())
    trained = [replace(model, trained=True, weights=weights) for weights in ("v" * 64, "w" * 64)]
    found = [EmbeddingCache.build_space_identity(one, encoding(), prompt="") for one in (model, *trained)]
    assert "weights" not in found[0]
    assert found[1] != found[2]
    assert [{**one, "weights": ""} == {**found[0], "weights": ""} for one in found] == [True] * 3


def test_missing_names_each_unknown_text_once_in_order(tmp_path: Path) -> None:
    there = space(tmp_path)
    add(there, ["a", "b"])
    assert there.find_missing_texts(["c", "a", "d", "c"]) == ["c", "d"]
    with pytest.raises(KeyError, match="c"):
        there.get(["a", "c"])


@pytest.mark.parametrize(
    "other",
    [
        {"prompt": "query: "},
        {"how": encoding(pooling="cls")},
        {"how": encoding(max_length=64)},
        {"how": encoding(dtype="bfloat16")},
        {"how": encoding(normalize=False)},
        {"how": encoding(vectors="float16")},
        {"key": "b" * 64},
    ],
)
def test_vectors_of_another_identity_are_never_given(tmp_path: Path, other: dict[str, object]) -> None:
    add(space(tmp_path), ["a"])
    assert space(tmp_path, **other).find_missing_texts(["a"]) == ["a"]  # type: ignore[arg-type]


def test_vectors_of_float16_are_the_same_before_and_after_they_are_written(tmp_path: Path) -> None:
    there = space(tmp_path, how=encoding(vectors="float16"))
    exact = np.random.default_rng(0).normal(size=(200, 64)).astype(np.float32)
    names = [str(number) for number in range(200)]
    keys, rounded = EmbeddingCache.hash_texts(names), there.round_vectors(exact)
    content = EmbeddingCache.serialize_shard(keys, rounded)
    there.hold(keys, rounded, content)
    EmbeddingCache.write_shard(tmp_path, there.identity, content)
    again = space(tmp_path, how=encoding(vectors="float16"))
    assert again.get(names).dtype == np.float32
    assert np.array_equal(there.get(names), again.get(names))
    assert np.array_equal(again.get(names), exact.astype(np.float16).astype(np.float32))
    (shard,) = shards(again)
    assert shard.stat().st_size < 200 * (64 * 2 + 16) + 400
    with pytest.raises(DataError, match="above 65,504"):
        there.round_vectors(np.array([[1e5]], np.float32))
    whole = space(tmp_path)
    assert whole.round_vectors(exact) is exact


def test_the_vectors_of_one_model_are_dropped(tmp_path: Path) -> None:
    add(space(tmp_path), ["a"])
    add(space(tmp_path, how=encoding(pooling="cls")), ["a"])
    add(space(tmp_path, key="b" * 64), ["a"])
    size = sum(path.stat().st_size for path in tmp_path.glob("vectors/*/*/*"))
    kept = space(tmp_path, key="b" * 64).folder
    assert list_cached_models(tmp_path) == {"a" * 64, "b" * 64}
    freed = drop_vectors(tmp_path, "a" * 64)
    assert list_cached_models(tmp_path) == {"b" * 64}
    assert freed == size - sum(path.stat().st_size for path in kept.iterdir())
    assert [path.parent for path in tmp_path.glob("vectors/*/*/space.json")] == [kept]
    assert drop_vectors(tmp_path, "a" * 64) == 0
    add(space(tmp_path), ["a"])
    assert space(tmp_path).find_missing_texts(["a"]) == []


def test_similarity_and_other_tasks_prompts_share_vectors(tmp_path: Path) -> None:
    add(space(tmp_path), ["a"])
    assert (
        space(tmp_path, how=encoding(similarity="dot", prompts=(("x", "y"),))).find_missing_texts(["a"]) == []
    )


def test_shards_of_another_process_are_seen_and_duplicates_do_no_harm(tmp_path: Path) -> None:
    one, two = space(tmp_path), space(tmp_path)
    add(one, ["a", "b"])
    add(two, ["b", "c"])
    one.refresh()
    assert (one.get(["a", "b", "c"]) == vectors(["a", "b", "c"])).all()


def test_a_damaged_shard_counts_as_missing(tmp_path: Path) -> None:
    there = space(tmp_path)
    add(there, ["a"])
    shard = next(there.folder.glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:20])
    assert space(tmp_path).find_missing_texts(["a"]) == ["a"]


def test_a_shard_cut_in_its_vectors_counts_as_missing(tmp_path: Path) -> None:
    there = space(tmp_path)
    add(there, ["a", "b", "c"])
    shard = next(there.folder.glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-4])
    assert space(tmp_path).find_missing_texts(["a"]) == ["a"]


def test_a_damaged_shard_is_mended_by_the_same_vectors(tmp_path: Path) -> None:
    there = space(tmp_path)
    add(there, ["a"])
    (shard,) = there.folder.glob("*.safetensors")
    shard.write_bytes(shard.read_bytes()[:-4])
    again = space(tmp_path)
    assert again.find_missing_texts(["a"]) == ["a"]
    add(again, ["a"])
    assert (again.get(["a"]) == vectors(["a"])).all()


def shards(of: EmbeddingCache) -> list[Path]:
    return sorted(of.folder.glob("*.safetensors"))


def test_a_shard_with_another_content_is_removed_and_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Half of its vectors zeroed, or another shard copied over it: the size is the same."""
    there = space(tmp_path)
    add(there, ["a", "b"])
    (first,) = shards(there)
    add(there, ["c", "d"])
    (second,) = {*shards(there)} - {first}
    first.write_bytes(first.read_bytes()[:-12] + bytes(12))
    shutil.copyfile(first, second)
    with caplog.at_level(logging.WARNING):
        again = space(tmp_path)
        again.refresh()
    assert again.find_missing_texts(["a", "b", "c", "d"]) == ["a", "b", "c", "d"]
    assert [str(path) in message for path in (first, second) for message in sorted(caplog.messages)] in (
        [True, False, False, True],
        [False, True, True, False],
    )
    assert all("its content is not that of its name" in message for message in caplog.messages)
    add(again, ["a", "b"])
    assert (space(tmp_path).get(["a", "b"]) == vectors(["a", "b"])).all()


def test_the_content_of_a_shard_is_hashed_once_for_its_stamp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SETTLED_NS", -1)
    add(space(tmp_path), ["a", "b"])
    space(tmp_path)
    read: list[str] = []
    monkeypatch.setattr(hashlib, "file_digest", lambda handle, _: read.append(handle.name))
    assert space(tmp_path).find_missing_texts(["a", "b"]) == []
    assert read == []


def test_a_damaged_cache_of_hashes_costs_no_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SETTLED_NS", -1)
    add(space(tmp_path), ["a"])
    space(tmp_path)
    known = tmp_path / files.CACHE_FILE
    damaged = tmp_path / "damaged"
    damaged.write_text(re.sub(r'"[0-9a-f]{64}"', f'"{"0" * 64}"', known.read_text()))
    damaged.replace(known)  # another file is read anew
    assert space(tmp_path).find_missing_texts(["a"]) == []


def test_a_vector_that_is_not_finite_is_refused_with_its_file(tmp_path: Path) -> None:
    there = space(tmp_path)
    bad = vectors(["a", "b"])
    bad[1, 0] = np.nan
    EmbeddingCache.write_shard(
        tmp_path, there.identity, EmbeddingCache.serialize_shard(EmbeddingCache.hash_texts(["a", "b"]), bad)
    )
    there.refresh()
    assert there.get(["a"]).shape == (1, 3)
    with pytest.raises(DataError, match=re.escape(str(shards(there)[0]))):
        there.get(["a", "b"])


def hold(there: EmbeddingCache, texts: list[str], found: Any) -> bytes:
    """Hold vectors of texts, and give the content of their shard."""
    keys = EmbeddingCache.hash_texts(texts)
    content = EmbeddingCache.serialize_shard(keys, found)
    there.hold(keys, found, content)
    return content


def test_vectors_held_here_are_known_before_they_are_written(tmp_path: Path) -> None:
    there = space(tmp_path)
    hold(there, ["a"], vectors(["a"]))
    add(there, ["b"])
    assert (there.get(["b", "a"]) == vectors(["b", "a"])).all()
    assert space(tmp_path).find_missing_texts(["a", "b"]) == ["a"]


# A vector for each token

LATE = LateInteraction(
    query_length=32,
    document_length=180,
    expansion=True,
    attends_to_expansion=False,
    query_prefix="[Q] ",
    document_prefix="[D] ",
    skiplist=("!",),
    dimension=3,
)


def late_encoding(**fields: object) -> Encoding:
    late = replace(LATE, **fields)  # type: ignore[arg-type]
    return encoding(output="multivector", pooling="", vectors="float16", late_interaction=late)


def token_vectors(texts: list[str]) -> TokenVectors:
    """A vector for each character: none for the empty text."""
    rows = [[ord(letter) % 256, at, len(text)] for text in texts for at, letter in enumerate(text)]
    lengths = np.array([len(text) for text in texts], np.int64)
    return TokenVectors(
        vectors=np.array(rows, np.float16).reshape(-1, 3), offsets=np.concatenate([[0], np.cumsum(lengths)])
    )


def late_space(root: Path) -> EmbeddingCache:
    return EmbeddingCache(
        root,
        EmbeddingCache.build_space_identity(artifact(Path()), late_encoding(), prompt="", role="document"),
    )


def write_tokens(to: EmbeddingCache, texts: list[str]) -> Path:
    content = EmbeddingCache.serialize_shard(EmbeddingCache.hash_texts(texts), token_vectors(texts))
    EmbeddingCache.write_shard(to.folder.parents[2], to.identity, content)
    to.refresh()
    return to.folder / f"{hashlib.sha256(content).hexdigest()[:32]}.safetensors"


@given(st.lists(st.text("abcdef", max_size=9), min_size=1, max_size=20, unique=True), st.data())
def test_vectors_of_tokens_come_back(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("cache")
    split = data.draw(st.integers(0, len(texts)))
    there = late_space(root)
    for part in (texts[:split], texts[split:]):
        if part:
            write_tokens(there, part)
    asked = data.draw(st.lists(st.sampled_from(texts), min_size=1, max_size=30))
    for found in (there.get_tokens(asked), late_space(root).get_tokens(asked)):
        truth = token_vectors(asked)
        assert found.vectors.dtype == np.float16
        assert np.array_equal(found.vectors, truth.vectors)
        assert np.array_equal(found.offsets, truth.offsets)
        assert there.count_token_vectors(asked).tolist() == [len(text) for text in asked]
        assert [len(found.select_text_vectors(at)) for at in range(len(found))] == [
            len(text) for text in asked
        ]


def test_vectors_that_wait_for_the_driver_are_there_at_once(tmp_path: Path) -> None:
    there = late_space(tmp_path)
    content = hold(there, ["abc", ""], token_vectors(["abc", ""]))
    assert there.find_missing_texts(["", "d", "abc"]) == ["d"]
    assert there.get_tokens(["", "abc"]).lengths.tolist() == [0, 3]
    with pytest.raises(KeyError):
        there.get_tokens(["d"])
    EmbeddingCache.write_shard(tmp_path, there.identity, content)
    there.refresh()
    (shard,) = there._order
    assert isinstance(shard.tokens.vectors, np.memmap), "what is written is read from its file"
    assert there.get_tokens(["", "abc"]).lengths.tolist() == [0, 3]


def test_a_damaged_shard_of_tokens_is_named(tmp_path: Path) -> None:
    there = late_space(tmp_path)
    path = write_tokens(there, ["abc", "de"])
    assert find_shard_problem(path, None) == ""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert find_shard_problem(path, None)
    path.write_bytes(content[:-2])
    assert find_shard_problem(path, None) == "it is not a complete shard of vectors"


def test_a_side_has_the_vectors_of_its_own_settings_only() -> None:
    """Another length of queries leaves the documents' vectors where they are."""

    def identities(**fields: object) -> list[dict[str, object]]:
        how = late_encoding(**fields)
        return [
            EmbeddingCache.build_space_identity(artifact(Path()), how, prompt="", role=side) for side in SIDES
        ]

    plain = identities()
    assert plain[0] != plain[1]
    for fields, changed in (
        ({"query_length": 48}, [True, False]),
        ({"expansion": False}, [True, False]),
        ({"query_prefix": ""}, [True, False]),
        ({"document_length": 300}, [False, True]),
        ({"skiplist": ()}, [False, True]),
    ):
        assert [a != b for a, b in zip(plain, identities(**fields), strict=True)] == changed  # type: ignore[arg-type]
