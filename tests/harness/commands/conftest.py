from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import tiny
from harness.cli import invoke
from tiny import WORDS

Asked = Callable[..., tuple[int, str, str]]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Tiny models, a suite of four small tasks, and results with two baselines.

    `good` stands behind the baseline "last"; `good`, `again` and `more` behind "repeated"; `worse` is
    a copy of `good` that hardly sees its words, and has its records, too.
    """

    models: Path
    suite: Path
    results: Path

    def model(self, name: str) -> Path:
        return self.models / name

    @property
    def local(self) -> str:
        return f"local:{self.suite}"


@pytest.fixture(scope="session")
def _measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    root = tmp_path_factory.mktemp("measured")
    made = Measured(models=root / "models", suite=root / "own", results=root / "results")
    _models(made)
    _suite(made.suite)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_CACHE", str(root / "cache"))
        patch.setenv("HF_HUB_OFFLINE", "1")
        for name, models in (("last", ("good",)), ("repeated", ("good", "again", "more"))):
            named = [part for one in models for part in ("--model", str(made.model(one)))]
            asked = ["baseline", "set", name, *named, "--suite", made.local, "--offline"]
            assert invoke([*asked, "--results", str(made.results)]) == 0
        asked = ["run", "--model", str(made.model("worse")), "--suite", made.local, "--offline"]
        assert invoke([*asked, "--results", str(made.results)]) == 0
    return made


@pytest.fixture
def measured(_measured: Measured, tmp_path: Path) -> Measured:
    """The models and the suite, with results and a suite of one's own to spoil."""
    shutil.copytree(_measured.results, tmp_path / "results")
    return Measured(models=_measured.models, suite=_measured.suite, results=tmp_path / "results")


@pytest.fixture
def asked(measured: Measured, capsys: pytest.CaptureFixture[str]) -> Asked:
    """The command line in this process: exit code, standard output, standard error."""

    def said(*arguments: object) -> tuple[int, str, str]:
        code = invoke([*map(str, arguments), "--results", str(measured.results)])
        out = capsys.readouterr()
        assert "Traceback" not in out.err
        return code, out.out, out.err

    return said


def _models(made: Measured) -> None:
    for seed, name in enumerate(("good", "again", "more")):
        tiny.folder(tiny.families()["bert"], made.model(name), seed=seed + 1)
    shutil.copytree(made.model("good"), made.model("worse"))
    path = made.model("worse") / "model.safetensors"
    tensors = load_file(path)
    (words,) = (name for name in tensors if "word_embeddings" in name)
    tensors[words] = tensors[words] * np.float32(0.02)
    save_file(tensors, path, metadata={"format": "pt"})


def _suite(folder: Path) -> None:
    chance = random.Random(0)

    def text(count: int = 5) -> list[str]:
        return [chance.choice(WORDS) for _ in range(count)]

    def lines(name: str, rows: list[dict[str, object]]) -> None:
        (folder / name).write_text("\n".join(map(json.dumps, rows)))

    (folder / "qrels").mkdir(parents=True)
    documents = [text() for _ in range(40)]
    lines("corpus.jsonl", [{"_id": f"d{n}", "text": " ".join(words)} for n, words in enumerate(documents)])
    lines("queries.jsonl", [{"_id": f"q{n}", "text": " ".join(one[:3])} for n, one in enumerate(documents)])
    rows = ["query-id\tcorpus-id\tscore", *(f"q{n}\td{n}\t1" for n in range(len(documents)))]
    (folder / "qrels" / "test.tsv").write_text("\n".join(rows))
    pairs: list[dict[str, object]] = []
    for number in range(300):
        words = text()
        same = number % 6
        other = words[:same] + text(5 - same)
        pairs.append({"text1": " ".join(words), "text2": " ".join(other), "score": same})
    lines("pairs.jsonl", pairs)
    for name, count in (("train.jsonl", 60), ("test.jsonl", 45), ("texts.jsonl", 60)):
        labels = [f"{n % 3}" for n in range(count)]
        lines(name, [{"text": " ".join([WORDS[int(one)], *text(3)]), "label": one} for one in labels])
    kinds = {"find": "retrieval", "alike": "sts", "sort": "classification", "group": "clustering"}
    tasks = [f'[[task]]\nname = "{name}"\ntype = "{kind}"\n' for name, kind in kinds.items()]
    (folder / "harness.toml").write_text("\n".join(tasks))
