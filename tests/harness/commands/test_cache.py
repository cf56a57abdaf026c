from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import click
import numpy as np
import pytest

from harness.cli import invoke, program
from harness.storage.vectors import EmbeddingCache
from site_data import suites


def fill(cache: Path, artifact: str, *, days_ago: float = 0) -> Path:
    """A space of one vector."""
    identity = {"artifact": artifact, "prompt": ""}
    EmbeddingCache.write_shard(
        cache,
        identity,
        EmbeddingCache.serialize_shard(EmbeddingCache.hash_texts(["a text"]), np.ones((1, 2), np.float32)),
    )
    then = time.time() - days_ago * 86_400
    folder = EmbeddingCache(cache, identity).folder
    for file in folder.rglob("*"):
        os.utime(file, (then, then))
    return folder


def asked(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    assert invoke(["cache", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_size_is_the_sum_of_what_lies_there(tmp_path: Path, capsys: Any) -> None:
    fill(tmp_path, "a" * 64)
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "x.json").write_text("12345")
    found = asked(capsys, "size", "--cache", tmp_path)
    on_disk = sum(f.stat().st_size for f in (tmp_path / "vectors").rglob("*") if f.is_file())
    assert found["bytes"] == {
        "vectors": on_disk,
        "datasets": 0,
        "source": 5,
        "finetuned": 0,
        "clusters": 0,
        "units": 0,
        "verdicts": 0,
        "plaid": 0,
        "adapters": 0,
        "objects": 0,
    }
    assert found["total"] == on_disk + 5


@pytest.mark.parametrize("days", [[], ["--older-than", "1"]])
def test_an_empty_cache_is_pruned_without_ado(tmp_path: Path, capsys: Any, days: list[str]) -> None:
    assert asked(capsys, "prune", *days, "--cache", tmp_path / "none")["folders"] == 0


def test_prune_takes_everything_but_a_dry_run_nothing(tmp_path: Path, capsys: Any) -> None:
    space = fill(tmp_path, "a" * 64)
    (tmp_path / "source").mkdir()
    assert asked(capsys, "prune", "--dry-run", "--cache", tmp_path)["folders"] == 2
    assert space.exists()
    freed = asked(capsys, "prune", "--cache", tmp_path)
    assert (freed["removed"], freed["folders"]) == (True, 2)
    assert freed["bytes"] > 0
    assert not space.exists()


def test_prune_by_model_and_by_age(tmp_path: Path, capsys: Any) -> None:
    old, new = fill(tmp_path, "a" * 64, days_ago=10), fill(tmp_path, "b" * 64)
    assert (
        asked(capsys, "prune", "--older-than", "5", "--model", "bbbbbb", "--cache", tmp_path)["folders"] == 0
    )
    assert asked(capsys, "prune", "--older-than", "5", "--cache", tmp_path)["folders"] == 1
    assert (old.exists(), new.exists()) == (False, True)
    assert asked(capsys, "prune", "--model", "bbbbbb", "--cache", tmp_path)["folders"] == 1
    assert not new.exists()


def test_adapters_are_pruned_by_the_age_of_their_links(tmp_path: Path, capsys: Any) -> None:
    """A base model may be gone, and a link to a new file is old."""
    base = tmp_path / "base.safetensors"
    base.write_text("weights")
    folders = [tmp_path / "cache" / "adapters" / name / "model" for name in ("old", "new")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "config.json").symlink_to(tmp_path / "gone")
        (folder / "model.safetensors").symlink_to(base)
    for path in (*folders[0].iterdir(), folders[0]):
        os.utime(path, (0, 0), follow_symlinks=False)
    asked_cache = ("prune", "--older-than", "5", "--cache", tmp_path / "cache")
    assert asked(capsys, *asked_cache)["folders"] == 1
    assert (folders[0].exists(), folders[1].exists(), base.exists()) == (False, True, True)


def test_a_model_is_named_by_its_key(tmp_path: Path, capsys: Any) -> None:
    assert invoke(["cache", "prune", "--model", "minilm", "--cache", str(tmp_path)]) == 2
    assert "six or more digits" in capsys.readouterr().err


def _list_cache_commands() -> list[str]:
    """The commands that take --cache, by what is typed."""

    def walk(part: click.Command, typed: tuple[str, ...]) -> Iterator[str]:
        if isinstance(part, click.Group):
            context = click.Context(part)
            for name in part.list_commands(context):
                yield from walk(part.get_command(context, name) or part, (*typed, name))
        elif any("--cache" in one.opts for one in part.params):
            yield " ".join(typed)

    return [*walk(program, ())]


EVERY = {
    "audit": ("RESULTS",),
    "baseline set": ("new", "--model", "MODEL", "--suite", "SUITE", "--offline", "RESULTS"),
    "cache prune": (),
    "cache size": (),
    "check": ("--candidate", "MODEL", "--baseline", "ZIP", "--offline", "RESULTS"),
    "compare": ("MODEL", "OTHER", "RESULTS"),
    "data check": ("--suite", "SUITE"),
    "data list": ("--suite", "SUITE", "--offline"),
    "data score": ("--train-data", "PAIRS", "--teacher", "MODEL", "scored", "--offline"),
    "doctor": ("RESULTS",),
    "explain": ("--model", "MODEL", "--query", "dog", "--document", "dog", "--offline"),
    "export": ("/", "RESULTS"),
    "list": ("records", "RESULTS"),
    "models average": ("MODEL", "OTHER", "--output", "mean", "--offline", "RESULTS"),
    "models card": ("MODEL", "RESULTS"),
    "models compute": ("MODEL", "RESULTS"),
    "models export": ("123456", "copy", "RESULTS"),
    "models list": ("RESULTS",),
    "models note": ("MODEL", "--flops", "1e18", "RESULTS"),
    "models predictions": ("123456", "--output", "copy", "RESULTS"),
    "models push": ("MODEL", "org/name", "--dry-run", "RESULTS"),
    "models remove": ("123456", "RESULTS"),
    "models show": ("123456", "RESULTS"),
    "papers": ("MODEL", "--suite", "beir", "RESULTS"),
    "proxy fit": ("--target", "nanobeir", "RESULTS"),
    "proxy types": ("--target", "nanobeir", "RESULTS"),
    "recipes show": ("simcse", "RESULTS"),
    "run": ("--model", "MODEL", "--suite", "SUITE", "--offline", "RESULTS"),
    "serve": ("--static", "site", "RESULTS"),
    "show": ("MODEL", "--suite", "SUITE", "RESULTS"),
    "train": (
        "--model",
        "MODEL",
        "--recipe",
        "unified-contrastive",
        "--train-data",
        "PAIRS",
        "--offline",
        "--dry-run",
        "RESULTS",
    ),
    "watch": ("RUN", "--suite", "SUITE", "--offline", "--once", "RESULTS"),
}
"""Every command that takes --cache, with words that make it do something."""


def test_the_table_has_every_command_with_a_cache() -> None:
    assert [*EVERY] == sorted(_list_cache_commands())


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n == "serve" else []) for n in EVERY]
)
def test_a_named_cache_is_the_only_one(
    name: str, measured: Any, asked: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    if name == "check":
        asked("baseline", "export", "last", "last.zip")
    (tmp_path / "run").mkdir()
    shutil.copytree(measured.model("more"), tmp_path / "run" / "step-100")
    default = tmp_path / "default"
    monkeypatch.setenv("HARNESS_CACHE", str(default))
    words = {
        "MODEL": [measured.model("good")], "OTHER": [measured.model("worse")], "SUITE": [measured.local],
        "PAIRS": [measured.suite / "pairs.jsonl"],
        "ZIP": ["last.zip"], "RUN": ["run"], "RESULTS": ["--results", measured.results],
    }  # fmt: skip
    typed = [part for word in EVERY[name] for part in words.get(word, [word])]
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=suites()):
        invoke([*name.split(), *map(str, typed), "--cache", str(tmp_path / "named")])
    out = capsys.readouterr()
    assert "Traceback" not in out.err
    assert not default.exists(), out
    if name in ("check", "compare", "export", "run", "serve", "show", "watch"):
        assert (tmp_path / "named").is_dir(), out
