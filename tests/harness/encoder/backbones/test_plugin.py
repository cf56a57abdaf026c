"""A family and a recipe that another distribution brings: built, installed, listed, loaded, evaluated."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parents[3] / "plugin"
MAKE = """
import sys
from pathlib import Path
import tiny
from harness.encoder import backbones
family = backbones.list_backbones()["sample"].family
tiny.folder(family, Path(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of processes that have the plugin, installed into a folder of its own."""
    target = tmp_path_factory.mktemp("site")
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "sample_backbone.py", "sample_recipe.py"):
        (source / name).write_text((PLUGIN / name).read_text())
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, "--no-build-isolation", "--target", str(target), str(source)], check=True)
    support = Path(__file__).parents[3] / "support"
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(target), str(support)])}


def harness(installed: dict[str, str], *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness", *map(str, arguments)]
    return subprocess.run(command, env=installed, capture_output=True, text=True, check=False)


def test_it_is_listed(installed: dict[str, str]) -> None:
    done = harness(installed, "list", "backbones", "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)["backbones"]}
    assert rows["sample"]["model_types"] == ["sample-encoder"]
    assert rows["sample"]["sizes"] == ["sample-tiny"]


def test_its_recipe_is_listed(installed: dict[str, str]) -> None:
    done = harness(installed, "list", "recipes", "--json")
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row["summary"] for row in json.loads(done.stdout)["recipes"]}
    assert rows["sample-glue"] == "GLUE with two rates; 16 runs on all of GLUE"


@pytest.mark.slow
def test_its_models_run(installed: dict[str, str], tmp_path: Path) -> None:
    folder, data = tmp_path / "model", tmp_path / "data"
    subprocess.run([sys.executable, "-c", MAKE, str(folder)], env=installed, check=True)
    data.mkdir()
    (data / "harness.toml").write_text('[[task]]\nname = "pairs"\ntype = "sts"\nfile = "pairs.jsonl"\n')
    rows = [
        {"text1": "the cat sat", "text2": "the cat", "score": 3},
        {"text1": "the mat", "text2": "x y z", "score": 1},
        {"text1": "on the mat", "text2": "on the mat", "score": 5},
    ]
    (data / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    where = ["--results", tmp_path / "results", "--cache", tmp_path / "cache"]
    done = harness(installed, "run", "--model", folder, "--suite", f"local:{data}", *where, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = json.loads(done.stdout)["records"]
    assert record["state"] == "done"
    assert -1 <= record["main_score"] <= 1
