"""A machine that puts records and vectors into shared storage until it is done or killed.

`python -m remote_writer` has imported everything: for each line of its input, JSON with the fields of
`work`, it forks a process and prints its number.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import sys
from pathlib import Path

import numpy as np

from fakes import artifact, encoding, record, task
from harness.storage import remote_and_leases as storage
from harness.storage.record import ExamplesPart, RunPart
from harness.storage.remote_and_leases import Remote
from harness.storage.store import Store
from harness.storage.vectors import EmbeddingCache

MODEL = artifact(Path("tiny"))
IDENTITY = EmbeddingCache.build_space_identity(MODEL, encoding(), prompt="")
TASKS = tuple(f"Task{number}" for number in range(8))
SHARDS = tuple(range(3))
PART_BYTES = 5 * 2**20
"""The least that S3 takes, so that shards go in parts."""


def shard(number: int) -> bytes:
    """Vectors of 11 MB, the same wherever they are made."""
    vectors = np.random.default_rng(number).standard_normal((3600, 800), np.float32)
    return EmbeddingCache.serialize_shard(
        EmbeddingCache.hash_texts([f"{number} {row}" for row in range(3600)]), vectors
    )


def put(store: Store, name: str, by: str) -> None:
    """Make the record of a task, which no two machines make alike, with its files."""
    data = random.Random(f"{name} {by}").randbytes(150_000)
    made = record(task(name), 0.5, by=by).model_copy(
        update={
            "examples": ExamplesPart(file="", rows=1, sha256=""),
            "run": RunPart(file="", rows=1, sha256="", depth=1),
        }
    )
    store.put(MODEL.slug, made, data, run=hashlib.sha256(data).digest() * 500)


def work(url: str, folder: str, by: str, seed: int) -> None:
    """Make whatever is not there, in an order of its own."""
    storage.PART_BYTES = PART_BYTES
    remote, chance = Remote(url), random.Random(seed)
    store, space = Store(Path(folder, "results"), remote), EmbeddingCache(Path(folder, "cache"), IDENTITY)
    todo: list[str | int] = [*TASKS, *SHARDS]
    chance.shuffle(todo)
    assert store.shared is not None
    for one in todo:
        if isinstance(one, int):
            EmbeddingCache.write_shard(Path(folder, "cache"), IDENTITY, shard(one), remote)
        elif store.get(MODEL.slug, one, record(task(one), 0.5).key, now=True) is None:
            put(store, one, by)
    store.get(MODEL.slug, "another", "0" * 64)
    store.shared.send_missing()
    space.sync_shards(remote)


def serve() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            with contextlib.suppress(KeyboardInterrupt):
                work(**json.loads(line))
                Path(json.loads(line)["folder"], "done").touch()
            os._exit(0)
        print(child, flush=True)


if __name__ == "__main__":
    serve()
