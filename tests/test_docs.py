"""The documents tell the truth: every command and option, every field, no dead link."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import option_tables
import pytest

from harness.checks.policy import Policy
from harness.cli import COMMANDS, program
from harness.commands import train
from harness.driver.estimate import PlanCost
from harness.driver.report import run as report
from harness.encoder.backbones import BACKBONES
from harness.plan import catalog
from harness.results import scores
from harness.results.cost.encoding import ScoreCost
from harness.storage.record import EXAMPLE_COLUMNS, Record

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "results" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OTHERS = {
    *("--force-reinstall", "--no-deps"),  # pip
    *("--local-dir", "--repo-type"),  # hf
    *("--address", "--head"),  # ray
    *("--check", "--unshallow"),
    "--index-url",  # pip
}
SETTINGS = (
    "HARNESS_RESULTS",
    "HARNESS_CACHE",
    "HARNESS_DATA",
    "HARNESS_REMOTE",
    "HARNESS_PAGES_A_MINUTE",
)


EVERY = list(option_tables.commands(program, "harness"))


def test_the_generated_pages_are_those_of_the_code() -> None:
    """`python benchmarks/option_tables.py` writes them."""
    page, python = option_tables.COMMANDS_PAGE.read_text(), option_tables.PYTHON_PAGE.read_text()
    assert option_tables.build_commands_page() == page
    assert option_tables.with_arguments(python) == python
    policy = re.findall(r"^\| `(\w+)` \| `(.+?)` \|", page.partition("## Policy of a check")[2], re.MULTILINE)
    assert Policy.model_validate(tomllib.loads("\n".join(map(" = ".join, policy)))) == Policy()
    assert len(policy) == len(Policy.model_fields)
    for name, command in EVERY:
        assert all(one.help for one in command.params if isinstance(one, click.Option)), name


def texts(*packages: str) -> Iterator[tuple[Path, str]]:
    """Every string of the packages' code, with its file."""
    for path in (path for package in packages for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield path, node.value


def test_no_option_is_advised_that_is_not_there() -> None:
    """In the sentences of the code; `OTHERS` are options of other programs."""
    there = {o for _, c in EVERY for p in c.params for o in [*p.opts, *p.secondary_opts]} | {
        "--help",
        "--help-all",
    }
    advised = {
        (option, str(path.relative_to(ROOT)))
        for path, text in texts("harness", "finetune", "suites", "leaderboard")
        if " " in text
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]\b", text)
    }
    assert [one for one in sorted(advised) if one[0] not in there | OTHERS] == []


def test_every_setting_of_the_environment_is_documented() -> None:
    page = (ROOT / "docs" / "command-line.md").read_text()
    used = {
        text
        for _, text in texts("harness", "leaderboard")
        if text.startswith("HARNESS_") and text.isidentifier() and text != "HARNESS_"
    }
    assert used == set(SETTINGS)
    assert all(f"`{name}`" in page for name in used)


def test_every_setting_of_a_recipe_is_documented() -> None:
    """`python benchmarks/option_tables.py` writes them."""
    page = option_tables.RECIPES_PAGE.read_text()
    assert option_tables.build_recipes_page() == page
    entries = catalog.load_recipe_entries()
    models = [entry for name, entry in entries.items() if catalog.find_recipe_kind(name) == "model"]
    settings = {field.name for entry in models for field in fields(entry.settings[""])}
    assert [name for name in sorted(settings) if f"| `{name}` |" not in page] == []


def test_the_record_is_documented() -> None:
    page = (ROOT / "results" / "README.md").read_text()
    fields = [f.alias or name for name, f in Record.model_fields.items()]
    assert [name for name in (*fields, *EXAMPLE_COLUMNS) if f"`{name}`" not in page] == []


def test_every_command_is_in_the_json_page() -> None:
    page = (ROOT / "docs" / "json.md").read_text()
    assert [name for name in COMMANDS if f"`harness {name}" not in page] == []


@pytest.mark.parametrize(
    ("row", "source"),
    [
        ("## `harness run --json`", (report, scores.compute_seed_spread, ScoreCost, PlanCost.to_json)),
        ("| `harness train` |", (train._serialize_trained_model,)),
    ],
)
def test_every_field_of_runs_and_trainings_is_in_the_json_page(row: str, source: tuple[Any, ...]) -> None:
    """The keys of the dictionaries that a function or a module writes, or the fields of a dataclass."""
    page = (ROOT / "docs" / "json.md").read_text().partition(row)[2]
    part = page.partition("\n## ")[0] if row.startswith("#") else page.partition("\n")[0]
    names = [
        name
        for one in source
        for name in ([field.name for field in fields(one)] if is_dataclass(one) else keys_in(one))
    ]
    assert names
    assert [name for name in names if f"`{name}`" not in part] == []


def test_the_documents_described_by_their_classes_are_in_the_reference() -> None:
    """Their fields stand in the docstrings, or with them."""
    page, reference = ((ROOT / "docs" / name).read_text() for name in ("json.md", "reference.md"))
    for place in re.findall(r"reference\.md#([\w.]+)\)", page):
        module, _, name = place.rpartition(".")
        part = reference.partition(f"::: {module}\n")[2].partition("\n\n")[0]
        assert re.search(rf"\b{name}\b", part), place
        kind = getattr(importlib.import_module(module), name)
        text = " ".join(one.__doc__ or "" for one in kind.__mro__)
        names = [one.name for one in fields(kind)] if is_dataclass(kind) else []
        assert [name for name in names if not re.search(rf"\b{name}\b", text)] == [], place


def keys_in(code: Callable[..., Any] | ModuleType) -> list[str]:
    """The keys of the dictionaries in the code of a function or a module."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    keys = (key for node in ast.walk(tree) if isinstance(node, ast.Dict) for key in node.keys)
    return [key.value for key in keys if isinstance(key, ast.Constant)]


@pytest.mark.parametrize("page", PAGES, ids=[p.name for p in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=[p.name for p in PAGES])
def test_every_command_line_of_a_shell_block_is_one(page: Path) -> None:
    """Those of the README and of the how-tos are run as well."""
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```$", page.read_text(), re.MULTILINE | re.DOTALL)
    for line in "".join(blocks).replace("\\\n", " ").splitlines():
        program_name, *words = shlex.split(line.partition(" > ")[0], comments=True) or [""]
        context: click.Context = click.Context(program)
        while program_name == "harness" and isinstance(context.command, click.Group):
            name, command, words = context.command.resolve_command(context, words)
            assert command is not None
            # A group would ask for its command here, and a command refuses what it does not know.
            group = isinstance(command, click.Group)
            context = click.Context(command) if group else command.make_context(name, words)


# The how-tos, done as they say in a copy of the project

HOW_TOS = ("new-backbone", "new-recipe", "new-suite", "new-page", "python", "fits")
BLOCK = re.compile(r"(?:^`([\w/.]+)`:\n\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
"""A block of code: the file that it is for, if one is named above it, its language, and its text."""

READER = """
import contextlib, io, json, shlex, sys
from harness.cli import invoke
told = {}
for page, steps in json.load(sys.stdin).items():
    space = {"__name__": "__main__"}
    for language, text in steps:
        out = io.TextIOWrapper(io.BytesIO(), "utf-8")
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            if language == "python":
                code = exec(compile(text, page, "exec"), space)
            else:
                code = invoke(shlex.split(text))
        out.flush()
        told.setdefault(page, []).append([code, out.buffer.getvalue().decode()])
print("told", json.dumps(told))
"""

SITE = """
from pathlib import Path
from starlette.testclient import TestClient
from leaderboard.web.app import create_app
from leaderboard.data.settings import SiteSettings
client = TestClient(create_app(SiteSettings(results=(Path("results"),))))
print(client.get("/organisations", headers={"accept": "text/html"}).text)
print(client.get("/organisations.json").json()["tables"][0]["rows"][0]["cells"])
"""


def blocks(page: str) -> list[tuple[str, str, str]]:
    return BLOCK.findall((ROOT / "docs" / f"{page}.md").read_text())


def steps(page: str) -> list[tuple[str, str, list[str]]]:
    """What a reader does: scripts, and commands with the lines that they promise."""
    found: list[tuple[str, str, list[str]]] = []
    for file, language, text in blocks(page):
        if language == "python" and not file:
            found.append((language, text, []))
        for line in text.splitlines() if language == "console" else ():
            command = line.removeprefix("$ harness ")
            if command != line:
                found.append((language, command, []))
            else:
                found[-1][2].append(line)
    return [*found, ("python", SITE, ["my-org", "'value': 1"])] if page == "new-page" else found


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[int | None, str]]]:
    """What each step of each how-to printed, in a copy of the project with the files that they name."""
    copy = tmp_path_factory.mktemp("copy")
    for package in ("harness", "suites", "finetune", "leaderboard"):
        shutil.copytree(ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__"))
    for page in HOW_TOS:
        for file, _, text in blocks(page):
            if file:
                (copy / file).write_text(text)
    wanted = {page: [(language, text) for language, text, _ in steps(page)] for page in HOW_TOS}
    support = ROOT / "tests" / "support"
    places = {"HARNESS_CACHE": str(copy / "cache"), "HARNESS_DATA": str(copy / "data")}
    env = {**os.environ, **places, "HF_HUB_OFFLINE": "1", "PYTHONPATH": f"{copy}{os.pathsep}{support}"}
    asked = {"cwd": copy, "env": env, "input": json.dumps(wanted)}
    done = subprocess.run(
        [sys.executable, "-c", PREPARE + READER], **asked, capture_output=True, text=True, check=False
    )  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    found: dict[str, list[tuple[int | None, str]]] = json.loads(done.stdout.rpartition("told ")[2])
    return found


PREPARE = """
import json, shutil
from pathlib import Path
import numpy as np
from safetensors.numpy import load_file, save_file
import fakes, tiny
from harness.encoder import backbones
from harness.encoder.backbones.minilm import _locate
from harness.storage.store import Store
both = zip(tiny.WORDS, tiny.WORDS[:5] * 2)
pairs = [{"sentence1": a, "sentence2": b, "score": n % 6} for n, (a, b) in enumerate(both)]
for name in ("stsbenchmark-sts", "sts12-sts"):
    folder = Path("data/mteb") / name
    folder.mkdir(parents=True)
    (folder / "test.jsonl").write_text("\\n".join(map(json.dumps, pairs)))
own = Path("path/to/data")
own.mkdir(parents=True)
rows = [{"text1": one["sentence1"], "text2": one["sentence2"], "score": one["score"]} for one in pairs]
(own / "pairs.jsonl").write_text("\\n".join(map(json.dumps, rows)))
(own / "harness.toml").write_text('[[task]]\\nname = "alike"\\ntype = "sts"\\n')
tiny.folder(backbones.list_backbones()["my-encoder"].family, Path("path/to/my-encoder"))
checkpoint = Path("path/to/checkpoint")
shutil.copytree(_locate(), checkpoint)
tensors = load_file(checkpoint / "model.safetensors")
words = tensors["embeddings.word_embeddings.weight"]
tensors["embeddings.word_embeddings.weight"] = np.ascontiguousarray(np.roll(words, 500, axis=0))
save_file(tensors, checkpoint / "model.safetensors", metadata={"format": "pt"})
shutil.copytree("path/to/my-encoder", "path/to/run/checkpoint-1000")
model = fakes.artifact(Path("x"), name="my-org/encoder")
Store(Path("results")).put(model.slug, fakes.record(fakes.task("STS12"), 0.5, model=model))
"""


def plain(text: str) -> str:
    """A text without the borders of tables, its blanks as one."""
    return " ".join(re.sub("[│┃]", " ", text).split())


@pytest.mark.slow
@pytest.mark.parametrize("page", HOW_TOS)
def test_a_how_to_does_what_it_says(page: str, read: dict[str, list[tuple[int | None, str]]]) -> None:
    for (_, asked, promised), (code, out) in zip(steps(page), read[page], strict=True):
        assert not code, f"{asked}\n{out}"
        for line in promised:
            pattern = ".*".join(re.escape(plain(part)) for part in line.split("…"))
            assert re.search(pattern, plain(out)), f"{asked}\n{line}\n{out}"


@pytest.mark.slow
def test_the_scripts_print_what_they_compute(read: dict[str, list[tuple[int | None, str]]]) -> None:
    run, read_again, in_memory, by_class, _, check, watch = (out for _, out in read["python"])
    scores = [line.split() for line in run.splitlines()]
    assert [words[:2] for words in scores] == [["minilm", "alike"], ["checkpoint", "alike"]]
    assert all(-1 <= float(words[2]) <= 1 for words in scores)
    head, *rows, _ = (line.split() for line in read_again.partition("model\n")[0].splitlines())
    assert head == ["model", "suite", "task", "type", "score", "settings"]
    assert [f"{float(words[2]):.4f}" for words in scores] == [words[4] for words in rows]
    assert "cut to 64 alike " in in_memory
    assert -1 <= float(by_class.split()[-1]) <= 1
    assert check.split()[0] in ("regressed", "inconclusive", "improved", "passed", "same")
    assert "Did you mean release?" in check
    assert watch.startswith(("[1000] []", "[] ["))


@pytest.mark.parametrize("page", ["new-backbone", "new-recipe", "new-suite"])
def test_an_entry_point_of_a_how_to_brings_its_entry(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of the how-to, in a package of another distribution."""
    (points,) = (tomllib.loads(text) for _, language, text in blocks(page) if language == "toml")
    ((group, names),) = points["project"]["entry-points"].items()
    ((name, place),) = names.items()
    text = next(text for file, _, text in blocks(page) if file)
    module, _, _ = place.partition(":")
    package, _, file = module.partition(".")
    folder = tmp_path / f"brought_by_{page.replace('-', '_')}"
    folder.mkdir()
    (folder / f"{file}.py").write_text(text)
    info = tmp_path / "brought-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: brought\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {place.replace(package, folder.name, 1)}\n")
    monkeypatch.syspath_prepend(tmp_path)
    (registry,) = (one for one in (BACKBONES, catalog.SUITES, catalog.RECIPES) if one.group == group)
    assert registry.load_entries()[name].name == name
    assert registry.collect_failures() == []


CODE = ("harness", "finetune", "suites", "leaderboard", "benchmarks", "tests", "results", "docker")
FILES = {*CODE, *(p.relative_to(ROOT).as_posix() for folder in CODE for p in (ROOT / folder).rglob("*"))}
NAMED_FILE = re.compile(r"`(?:python )?((?:[\w.-]+/)*[\w.-]+\.py)(?:: ([\w.]+))?[ `]")
NAMED_FOLDER = re.compile(rf"`((?:{'|'.join(CODE)})/(?:[\w.-]+/)*)`")
NAMED_OBJECT = re.compile(r"`((?:harness|finetune|suites|leaderboard)(?:\.\w+)+)")
TO_BE_MADE = re.compile(r"^`([\w./-]+)`:$", re.MULTILINE)
"""A file that a guide tells its reader to write: its path alone on a line, above its text."""


def defines(path: Path, names: list[str]) -> bool:
    """Whether a file defines or imports the first name, and that class the next one, and so on."""
    body: list[ast.stmt] = ast.parse(path.read_text()).body
    for name in names:
        inner = [node for top in body for node in ast.walk(top) if _binds(node, name)]
        if not inner:
            return False
        if isinstance(inner[0], ast.ImportFrom) and len(names) > 1:
            return resolves(".".join([str(inner[0].module), *names]))
        body = inner[0].body if isinstance(inner[0], ast.ClassDef) else []
    return True


def _binds(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return node.name == name
    if isinstance(node, ast.ImportFrom):
        return any((alias.asname or alias.name) == name for alias in node.names)
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name


def resolves(dotted: str) -> bool:
    """Whether a dotted name leads to a module of ours and, behind it, to what the module defines."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        for file in ("/".join(parts[:end]) + ".py", "/".join([*parts[:end], "__init__.py"])):
            if file in FILES:
                return defines(ROOT / file, parts[end:])
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_and_name_of_the_code_that_a_page_names_is_there(page: Path) -> None:
    text = page.read_text()
    made = set(TO_BE_MADE.findall(text))
    lost = [folder for folder in NAMED_FOLDER.findall(text) if folder.rstrip("/") not in FILES]
    for file, names in NAMED_FILE.findall(text):
        paths = [
            known for known in FILES if known == file or ("/" not in file and known.endswith(f"/{file}"))
        ]
        if file not in made | {"setup.py", ".py"} and not (
            paths and (not names or defines(ROOT / paths[0], names.split(".")))
        ):
            lost.append(f"{file}: {names}")
    groups = {"harness.backbones", "harness.recipes", "harness.suites", "harness.protocols", "harness.toml"}
    lost += [dotted for dotted in NAMED_OBJECT.findall(text) if dotted not in groups and not resolves(dotted)]
    assert lost == []


def test_no_sentence_of_the_architecture_is_above_forty_words() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    prose = [line for line in page.splitlines() if not line.startswith(("|", "#"))]
    sentences = re.split(r"(?<=[.:;])\s+(?=[A-Z*`(])|\n\n|\n- |\n\d\. ", "\n".join(prose))
    assert [sentence for sentence in sentences if len(sentence.split()) > 40] == []
