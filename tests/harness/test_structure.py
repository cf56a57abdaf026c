"""Which package may import which, and what stays unimported until it is needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from blocked import BLOCK

ROOT = Path(__file__).parents[2]
ALLOWED = {
    "harness": {"harness"},
    "finetune": {"finetune", "harness"},
    "suites": {"suites", "finetune", "harness"},
    "leaderboard": {"leaderboard", "harness"},
}
FOR_THE_SITE = {
    *("record", "store", "stats", "catalog", "errors", "types", "paths", "files", "identity"),
    *("aggregate", "conventions", "standing", "treatments", "views", "pairing", "imported"),
    *("conditions", "recipe"),
}
"""What of harness the site may use: what reads and describes records, and imports nothing heavy."""

READERS = {"regress.outcome", "regress.history", "watch.state"}
"""What it may use of packages that do more: the forms of their files, and what reads them."""

FOR_ITS_COMMANDS = FOR_THE_SITE | {"commands", "terminal", "progress"}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


@pytest.mark.parametrize("package", ALLOWED)
def test_imports_go_one_way(package: str) -> None:
    for path in (ROOT / package).rglob("*.py"):
        where = path.relative_to(ROOT).as_posix()
        for name in imports(path):
            top, _, rest = name.partition(".")
            if top not in ALLOWED:
                continue
            assert top in ALLOWED[package], f"{where} imports {name}"
            if package == "leaderboard" and top == "harness" and rest:
                own = "/commands/" in where or path.name == "static_site.py"
                allowed = FOR_ITS_COMMANDS if own else FOR_THE_SITE
                assert rest in READERS or rest.split(".")[0] in allowed, f"{where} imports {name}"


def test_only_the_bridge_imports_mteb() -> None:
    for package in ALLOWED:
        for path in (ROOT / package).rglob("*.py"):
            if "_mteb" not in path.parts:
                assert not any(n.split(".")[0] == "mteb" for n in imports(path)), path


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["run", "--help"],
        ["list", "suites"],
        ["list", "models"],
        ["list", "tasks", "--match", "SciFact"],
        ["list", "benchmarks"],
        ["run", "--model", "minilm", "--suite", "mteb", "--dry-run"],
        ["run", "--model", "minilm", "--suite", "stdlib", "--dry-run"],
        ["show", "minilm"],
        ["cache", "size"],
    ],
)
def test_nothing_heavy_is_imported(arguments: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BLOCK, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_help_is_fast() -> None:
    """Less than 0.3 of what importing torch alone takes, both as whole processes."""
    import time

    def seconds(*command: str) -> float:
        times = []
        for _ in range(3):
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", *command], check=True, capture_output=True)
            times.append(time.perf_counter() - started)
        return sorted(times)[1]

    spoken = "from harness.cli import invoke; invoke(['--help'])"
    assert seconds(spoken) < 0.3 * seconds("import torch")
