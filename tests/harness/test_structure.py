"""Which package may import which, and what stays unimported until it is needed."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from blocked import BLOCK

ROOT = Path(__file__).parents[2]
LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")
READERS = {
    *("record", "store", "stats", "catalog", "errors", "types", "paths", "files", "identity"),
    *("scores", "results", "differences", "imported", "recipe"),
    *("checks.outcome", "watch.state"),
}
"""What of harness the site may use: what reads and describes records, and imports nothing heavy."""


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module in ("harness", "harness.commands"):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def test_the_layers_of_the_packages_hold() -> None:
    """The contracts in pyproject.toml; `lint-imports` shows them one by one."""
    done = subprocess.run([LINT_IMPORTS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_site_uses_only_what_reads_records() -> None:
    for path in (ROOT / "leaderboard").rglob("*.py"):
        of_commands = path.parent.name == "commands" or path.name == "static_site.py"
        allowed = READERS | {"__version__", *(("commands.options", "progress") if of_commands else ())}
        for name in imports(path):
            top, _, rest = name.partition(".")
            if top == "harness" and rest:
                assert rest in allowed, f"{path.relative_to(ROOT)} imports {name}"


def test_no_module_has_the_name_of_what_the_package_offers() -> None:
    """`harness.run` stays callable when every submodule has been imported."""
    code = """
import importlib, pkgutil
import harness
for name in ("run", "check", "register"):
    assert callable(getattr(harness, name))
for module in pkgutil.walk_packages(harness.__path__, "harness."):
    if module.name != "harness.__main__" and ".attention" not in module.name:
        importlib.import_module(module.name)
for name in harness.__all__:
    assert type(getattr(harness, name)).__name__ != "module"
for name in ("run", "check"):
    for _ in range(2):
        try:
            getattr(harness, name)("no-such-model", "no-such-suite")
        except harness.errors.UsageError as error:
            print(name, error.message)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["run", "run", "check", "check"]


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
