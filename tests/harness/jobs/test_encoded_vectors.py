"""Encoded vectors on their way into the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes import FakeEncoder, artifact, encoding, task
from harness.core.errors import DataError
from harness.jobs.context import Event, JobContext, TextEncoding, WorkerLimits, _Shards
from harness.storage.vectors import EmbeddingCache


def test_vectors_beyond_float16_are_refused_and_those_before_them_are_kept(tmp_path: Path) -> None:
    identity = EmbeddingCache.build_space_identity(artifact(Path()), encoding(vectors="float16"), prompt="")
    space, events = EmbeddingCache(tmp_path, identity), list[Event]()
    small, large = np.ones((2, 3), np.float32), np.full((1, 3), 1e6, np.float32)
    with _Shards(space, events.append, hold=False) as shards:
        shards.add_vectors(["a", "b"], small)
        with pytest.raises(DataError, match="65,504"):
            shards.add_vectors(["c"], large)
    (event,) = events
    EmbeddingCache.write_shard(tmp_path, identity, event.content)
    space.refresh()
    assert space.find_missing_texts(["a", "b", "c"]) == ["c"]
    assert (space.get(["a", "b"]) == small).all()


def test_what_comes_between_two_portions_is_no_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index is made of each portion, in ten seconds; its encoding takes two."""
    now, events = 0.0, list[Event]()
    monkeypatch.setattr("harness.jobs.context.time.monotonic", lambda: now)

    class Encoder(FakeEncoder):
        def encode(self, *args: Any, **kwargs: Any) -> np.ndarray:
            nonlocal now
            now += 2.0
            return super().encode(*args, **kwargs)

    context = JobContext(device="cpu", cache=Path(), emit=events.append, limits=WorkerLimits())
    monkeypatch.setattr(context, "load_encoder", lambda *_: Encoder())
    portions = TextEncoding(context, artifact(Path()), encoding(), task(), "document")
    portions.start_encoding(2)
    for text in ("a", "b"):
        now += 10.0
        portions.encode_texts([text])
    assert [event.seconds for event in events if event.kind == "encoded"] == [2.0, 2.0]


def test_where_no_vector_fits_nothing_is_written(tmp_path: Path) -> None:
    """The error of the vectors was replaced by one of a shard with texts and no vectors."""
    identity = EmbeddingCache.build_space_identity(artifact(Path()), encoding(vectors="float16"), prompt="")
    events = list[Event]()
    with (
        pytest.raises(DataError, match="65,504"),
        _Shards(EmbeddingCache(tmp_path, identity), events.append, hold=False) as shards,
    ):
        shards.add_vectors(["c"], np.full((1, 3), -1e6, np.float32))
    assert events == []


def test_a_process_that_is_killed_every_20_seconds_gets_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an encoder that makes a vector a second, at most 15 are lost with each of the processes."""
    identity = EmbeddingCache.build_space_identity(artifact(Path()), encoding(), prompt="")
    texts, now, counts = [f"text {at}" for at in range(60)], 0.0, list[int]()
    monkeypatch.setattr("harness.jobs.context.time.monotonic", lambda: now)

    def write(event: Event) -> None:
        EmbeddingCache.write_shard(tmp_path, identity, event.content)

    # What `__exit__` writes does not count: a killed process does not come to it.
    for _ in range(4):
        missing = EmbeddingCache(tmp_path, identity).find_missing_texts(texts)
        counts.append(len(missing))
        shards = _Shards(EmbeddingCache(tmp_path, identity), write, hold=False)
        for text in missing[:20]:
            now += 1
            shards.add_vectors([text], np.full((1, 3), texts.index(text), np.float32))
        if len(missing) <= 20:
            shards.__exit__()
    assert counts == [60, 45, 30, 15]
    vectors = EmbeddingCache(tmp_path, identity).get(texts)
    assert vectors[:, 0].tolist() == list(range(60))  # type: ignore[call-overload, index]
