"""Small stand-ins: a task without mteb, models without torch, a pickle that runs code."""

from __future__ import annotations

import hashlib
import itertools
import os
import signal
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from harness.core.encoding import Encoding
from harness.core.keys import (
    MODEL_FILE,
    Lineage,
    ModelDocument,
    ParentPart,
    build_evaluation_identity,
    digest,
)
from harness.core.types import SEED, Artifact, Data, Outcome, Role, Similarity, Task, TextEncoder, TextModel
from harness.encoder.folder.description import compute_folder_identity
from harness.jobs.jobs import build_model_part
from harness.storage.record import Record, build_task_part
from suites._mteb.built import BuiltSource

SECONDS = itertools.count(10)
"""No two records were made at one time."""


@dataclass(frozen=True, kw_only=True)
class FakeSource:
    """Scores the mean of all vector components; fails where it is told to.

    It takes `seconds` to score, has `later` encoded once it has seen vectors, and kills its process unless
    the file `alive` exists.
    """

    texts: tuple[str, ...] = ("one", "two", "three")
    error: str = ""
    scoring: str = "fake 1"
    seconds: float = 0.0
    later: tuple[str, ...] = ()
    alive: Path | None = None

    def evaluate(self, task: Task, encoder: TextEncoder, *, seed: int, data: Path | None) -> Outcome:
        queries = encoder.encode(self.texts, role="query")
        documents = encoder.encode(self.texts[::-1], role="document")
        score = float(np.asarray(queries).mean() + np.asarray(documents).mean())
        if self.alive is not None and not self.alive.exists():
            self.alive.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.seconds)
        if self.later:
            score += float(np.asarray(encoder.encode(self.later, role="query")).mean())
        if self.error:
            raise RuntimeError(self.error)
        lines = {"split": ["test"], "subset": ["default"], "example_id": ["a"], "replicate": [0]}
        columns: Mapping[str, Sequence[object]] = {
            **lines,
            "prediction": ["p"],
            "gold": ["g"],
            "metric": [score],
        }
        return Outcome(
            main_score=score, scores={"test": {"default": {"main_score": score}}}, examples=columns
        )


def task(name: str = "Fake", **source: object) -> Task:
    return Task(
        name=name,
        type="STS",
        metric="cosine_spearman",
        splits=("test",),
        data=Data(content="c" * 8),
        source=FakeSource(**source),  # type: ignore[arg-type]
    )


def artifact(folder: Path, key: str = "a" * 64, name: str = "tiny", revision: str | None = None) -> Artifact:
    weights = "w" * 64
    return Artifact(name=name, source="tiny", folder=folder, key=key, weights=weights, revision=revision)


def encoding(**fields: object) -> Encoding:
    return Encoding(**{"pooling": "mean", "normalize": True, "max_length": 128, **fields})  # type: ignore[arg-type]


@contextmanager
def quiet() -> Iterator[None]:
    """Without mteb's warnings; its log lines and bars go to stderr, which pytest holds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def record(
    of: Task,
    score: float,
    *,
    model: Artifact | None = None,
    how: Encoding | None = None,
    seed: int = SEED,
    **provenance: object,
) -> Record:
    """The finished record of a model on a task, as a run would have written it."""
    model, how = model or artifact(Path("tiny")), how or encoding()
    identity = build_evaluation_identity(model, of, how, seed=seed)
    asked = {"named": dict(how.prompts), "default": how.default_prompt}
    return Record(
        key=digest(identity),
        status="done",
        model=build_model_part(model, {}),
        task=build_task_part(of),
        identity=identity,
        main_score=score,
        scores={"test": {"default": {"main_score": score}}},
        provenance={
            **{"started": f"2026-01-01T{next(SECONDS)}", "written": f"2026-01-02T{next(SECONDS)}"},
            **{"seconds": {"score": next(SECONDS) / 8}, "tokens_per_second": next(SECONDS)},
            **{"prompts_asked": asked, **provenance},
        },
    )


def lineage(**fields: Any) -> Lineage:
    """What a model is made of that a recipe trains on some pairs."""
    given: dict[str, Any] = {
        "recipe": "contrast",
        "settings": {"rate": 5e-5, "batch": 4},
        "parents": (ParentPart(name="tiny", artifact="a" * 64),),
        "data": ({"path": "org/pairs", "revision": "r" * 40},),
        "seed": 42,
    }
    return Lineage(**{**given, **fields})


def document(folder: Path, made: Lineage | None = None, **fields: Any) -> ModelDocument:
    """The model.json of a model folder that has none."""
    found, made = compute_folder_identity(folder), made or lineage()
    given = {"name": "tiny-contrast", "content": found.key, "weights": found.weights, "lineage": made}
    return ModelDocument(**{"key": made.key, **given, **fields})


def train(folder: Path, made: Lineage | None = None, **fields: Any) -> ModelDocument:
    """Write the model.json of a folder, as if it had been trained."""
    found = document(folder, made, **fields)
    (folder / MODEL_FILE).write_text(found.to_json())
    return found


def gated(*failures: str) -> SimpleNamespace:
    """What the sanity gate gives for a model: nothing observed, and these failures."""
    return SimpleNamespace(failures=failures, accepted=(), observed={}, speed=None)


@dataclass
class FakeEncoder:
    """Vectors made from a hash of prompt and text, 4 dimensions."""

    salt: str = ""
    parameters: int = 4
    dimension: int = 4
    dtype_as_run: str = "float32"
    attention: str = "none"
    notes: list[str] = field(default_factory=list)
    calls: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    def count_tokens(self, texts: Sequence[str], *, prompt: str = "", role: str = "") -> int:
        return 3 * len(texts)

    def encode(
        self,
        texts: Sequence[str],
        *,
        prompt: str = "",
        role: str = "",
        progress: object = None,
        keeper: Any = None,
    ) -> np.ndarray:
        self.calls.append((prompt, tuple(texts)))
        if callable(progress):
            progress(len(texts), 3 * len(texts))
        rows = [hashlib.sha256(f"{self.salt}{prompt}{t}".encode()).digest()[:4] for t in texts]
        found = np.array([list(row) for row in rows], np.float32) / 255
        if keeper is not None:
            for text, row in zip(texts, found, strict=True):
                keeper.add_vectors([text], row[None])
        return found


class SlowEncoder(FakeEncoder):
    """Takes a fifth of a second for every encoding."""

    seconds = 0.2

    def encode(self, *args: Any, **kwargs: Any) -> Any:
        time.sleep(self.seconds)
        return super().encode(*args, **kwargs)


TOPICS = ("river water boat", "stone rock cliff", "music song choir", "engine wheel motor")


class Bags:
    """A tiny model for scoring: vectors that count letters, with a little of the text's own."""

    similarity: Similarity = "cosine"

    def require(self, texts: Sequence[str], *, role: Role) -> None:
        assert all(isinstance(text, str) for text in texts)

    def encode(self, texts: Sequence[str], *, role: Role) -> np.ndarray:
        rows = [[text.count(c) + 0.1 for c in "abcdefghijklmnopqrstuvwxyz0123456789"] for text in texts]
        return np.array(rows, np.float32)


def table(found: Outcome) -> list[dict[str, Any]]:
    names = list(found.examples)
    return [dict(zip(names, values, strict=True)) for values in zip(*found.examples.values(), strict=True)]


def score(made: Any, model: TextModel) -> Outcome:
    """What a source of ours scores of a task object of mteb."""
    with mock.patch.object(BuiltSource, "build_mteb_task", return_value=made):
        return BuiltSource(loader=made).evaluate(task(), model, seed=42, data=None)


class Evil:
    """Unpickled as plain pickle, it makes a folder."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.trace),)
