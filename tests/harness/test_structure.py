"""Which package may import which, and what stays unimported until it is needed."""

from __future__ import annotations

import ast
import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from blocked import invoke_blocked

ROOT = Path(__file__).parents[2]
ROOMS = ("harness", "suites", "finetune", "leaderboard")
PACKAGES = ROOMS
LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")
READERS = {
    *("core", "storage", "results", "checks"),
    *("plan.catalog", "jobs.protocol", "jobs.recipe", "data.training.sets", "watch.state"),
    *("watch.curves", "watch.grids", "fits.laws", "fits.runs", "fits.stored"),
}
"""What of harness the site may use: what reads and describes records, and imports nothing heavy."""


FROM_OUTSIDE = {
    "harness.results.reported.find_number_problem",
    *(f"leaderboard.web.app.{name}Json" for name in ("Cell", "Column", "Row")),
}
"""What plugins, documents, `python -m`, a script of results and the API's description name, no module."""


VERBS = """
accept acquire adapt add aggregate allow answer append apply ask assert assign attach audit average backward
batch begin bind build calculate call can cancel check choose chunk claim clamp clean clear clip close
collect compare compile compute configure convert copy count create cut decode delete describe deserialize
detach detect diff digest display do does download draw drop dump embed emit encode end ensure enter escape
estimate evaluate execute exit expect explain export extend extract fail fetch fill filter find finish fit
flatten follow forbid forget format forward freeze gather generate get give group guard guess handle has
hash hide hold import infer init initialize insert install interpolate invoke is iter iterate join keep kill
let limit link list load locate lock log look lookup make map mark mask match mean measure merge migrate
mount move needs normalize note open order pack pad parse pass patch pick place plan plot poll pool pop
predict prepare print process prune pull push put quantize quote raise rank read rebuild receive redirect
reduce refresh refuse register reject release reload remove rename render renew repair replace report
require reset resolve restore resume retry round route run sample sanitize save say scale scan score search
seed select send serialize serve set setup share shorten show shuffle sleep smooth sort spawn split start
step stop strip submit sum swap sweep sync tag take tell test time tokenize train transform trim truncate
try tune unfreeze unlock unpack unwrap update upgrade upload use validate verify visit wait walk warm warn
watch weigh weight wrap write
"""
"""What a name of a function begins with: the field's verbs, and those of Python's own libraries."""

EMPTY_VERBS = {"get", "do", "make", "handle", "process"}
PRONOUNS = {
    "one",
    "found",
    "known",
    "there",
    "made",
    "whole",
    "told",
    "said",
    "asked",
    "wanted",
    "given",
    "at",
    "own",
}


@functools.cache
def trees() -> dict[str, ast.Module]:
    """Every module of the packages, parsed, by its dotted name."""
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    names = (".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths)
    return {
        name.removesuffix(".__init__"): ast.parse(p.read_text()) for name, p in zip(names, paths, strict=True)
    }


def uses(tree: ast.Module) -> set[tuple[str, str]]:
    """(module, name) of everything of ours that a file imports, at the top, inside functions and for types.

    The name is "*" where the module as a whole is imported.
    """
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {(alias.name, "*") for alias in node.names if alias.name in trees()}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add((whole, "*") if whole in trees() else (node.module, alias.name))
    return {(module, name) for module, name in found if module in trees()}


def definitions(tree: ast.Module) -> list[ast.ClassDef | ast.FunctionDef]:
    return [node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]


def test_a_file_is_one_subject() -> None:
    lines = [
        len(ast.unparse(tree).splitlines()) for name, tree in trees().items() if name.split(".")[0] in ROOMS
    ]
    assert max(lines) <= 650
    assert sum(lines) / len(lines) >= 150, "a subject is cut in pieces"


def test_imports_stand_at_the_top() -> None:
    for name, tree in trees().items():
        places = [at for at, node in enumerate(tree.body) if isinstance(node, ast.Import | ast.ImportFrom)]
        assert places == [*range(places[0], places[0] + len(places))] if places else True, name


@pytest.mark.parametrize("rooms", [ROOMS[:3], ROOMS[3:]])
def test_a_class_name_has_one_meaning(rooms: tuple[str, ...]) -> None:
    homes: dict[str, list[str]] = {}
    for module, tree in trees().items():
        for node in definitions(tree):
            if (
                isinstance(node, ast.ClassDef)
                and not node.name.startswith("_")
                and module.split(".")[0] in rooms
            ):
                homes.setdefault(node.name, []).append(module)
    assert {name: modules for name, modules in homes.items() if len(modules) > 1} == {}


def test_what_is_public_is_used_by_another_file() -> None:
    """A name that only its own file uses begins with "_"; `command` is what the command line looks for."""
    tests = [ast.parse(path.read_text()) for path in (ROOT / "tests").rglob("*.py")]
    used = {one for tree in (*trees().values(), *tests) for one in uses(tree)}
    alone = [
        f"{module}.{node.name}"
        for module, tree in trees().items()
        for node in definitions(tree)
        if module.split(".")[0] in ROOMS
        and not (node.name.startswith("_") or node.name == "command")
        and not {(module, node.name), (module, "*")} & used
    ]
    assert set(alone) <= FROM_OUTSIDE


def functions(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function and method but dunders, properties and overloads."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, kinds)
        and not node.name.startswith("__")
        and not any(word in ast.unparse(d) for d in node.decorator_list for word in ("property", "overload"))
    ]


def test_functions_begin_with_a_verb() -> None:
    names = [node.name.lstrip("_") for tree in trees().values() for node in functions(tree)]
    first = [name.split("_")[0] for name in names]
    assert sum(word in VERBS.split() for word in first) >= 0.95 * len(names)
    assert sum(word in EMPTY_VERBS for word in first) <= 0.08 * len(names)


def test_a_name_of_a_function_says_where_one_is() -> None:
    """A stack trace or a search finds few places; `command` and `to_json` are words of a protocol."""
    homes: dict[str, set[str]] = {}
    for module, tree in trees().items():
        for node in functions(tree):
            homes.setdefault(node.name, set()).add(module)
    assert len([name for name, modules in homes.items() if len(modules) >= 5]) <= 20


def test_variables_have_nouns() -> None:
    bound = 0
    for tree in trees().values():
        inner = {
            id(name)
            for node in ast.walk(tree)
            if isinstance(node, ast.comprehension)
            for name in ast.walk(node.target)
        }
        bound += sum(
            isinstance(node, ast.Name)
            and isinstance(node.ctx, ast.Store)
            and node.id in PRONOUNS
            and id(node) not in inner
            for node in ast.walk(tree)
        )
    assert bound <= 55


def test_no_circles_even_for_types_or_inside_functions() -> None:
    targets = {name: {module for module, _ in uses(tree)} - {name} for name, tree in trees().items()}
    targets = {name: found for name, found in targets.items() if name.split(".")[0] in ROOMS}
    while ends := [name for name, found in targets.items() if not found & targets.keys()]:
        for name in ends:
            del targets[name]
    assert targets == {}


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (whole & trees().keys()) or {node.module}
    return found


def test_the_layers_of_the_packages_hold() -> None:
    """The contracts in pyproject.toml; `lint-imports` shows them one by one."""
    done = subprocess.run([LINT_IMPORTS, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_site_uses_only_what_reads_records() -> None:
    for path in (ROOT / "leaderboard").rglob("*.py"):
        tools = ("commands.options", "driver.progress", "driver.report.suite", "tools.exports")
        allowed = READERS | {*(tools if path.parent.name == "commands" else ())}
        for name in imports(path):
            top, _, rest = name.partition(".")
            if top == "harness" and rest:
                fits = any(rest == room or rest.startswith(f"{room}.") for room in allowed)
                assert fits, f"{path.relative_to(ROOT)} imports {name}"


def test_only_the_bridge_imports_mteb() -> None:
    """At the top or inside functions: its snapshot answers everywhere else."""
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            if "_mteb" not in path.parts:
                assert not any(name.split(".")[0] == "mteb" for name in imports(path)), path


@pytest.mark.slow
def test_no_module_has_the_name_of_what_the_package_offers() -> None:
    """`harness.run` stays callable when every submodule has been imported."""
    code = """
import importlib, pkgutil
import harness
for name in ("run", "check", "register"):
    assert callable(getattr(harness, name))
for module in pkgutil.walk_packages(harness.__path__, "harness."):
    if module.name != "harness.__main__":
        importlib.import_module(module.name)
for name in harness.__all__:
    assert type(getattr(harness, name)).__name__ != "module"
for name in ("run", "check"):
    for _ in range(2):
        try:
            getattr(harness, name)("no-such-model", "no-such-suite")
        except harness.core.errors.UsageError as error:
            print(name, error.message)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["run", "run", "check", "check"]


LIGHT = (
    "--help",
    "run --help",
    "explain --help",
    "data score --help",
    "list suites",
    "list models",
    "list tasks --match SciFact",
    "list benchmarks",
    "run --model minilm --suite mteb --dry-run",
    "run --model minilm --suite stdlib --dry-run",
    "show minilm --reference",
    "cache size",
    "models list",
)


def test_nothing_heavy_is_imported(tmp_path: Path) -> None:
    for typed, (code, out, err) in zip(LIGHT, invoke_blocked(map(str.split, LIGHT), tmp_path), strict=True):
        assert code == 0, (typed, err)
        assert out, typed


def test_help_is_fast() -> None:
    """Less than 0.3 of the processor's time that importing torch alone takes, both as whole processes."""

    def seconds(command: str, times: int) -> float:
        before = os.times()
        for _ in range(times):
            subprocess.run([sys.executable, "-c", command], check=True, capture_output=True)
        after = os.times()
        return (sum(after[2:4]) - sum(before[2:4])) / times

    assert seconds("from harness.cli import invoke; invoke(['--help'])", 3) < 0.3 * seconds("import torch", 1)
