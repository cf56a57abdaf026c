"""The suite `code:`: the same in every checkout, several languages, commits, and what is kept of it."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fakes import artifact, encoding
from harness.cli import invoke
from harness.errors import UsageError
from harness.identity import digest, evaluation_identity
from harness.types import Suite, SuiteOptions
from suites import _code, code
from suites._content import Retrieval

WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa", "mu", "nu"]


def lines(number: int) -> list[str]:
    draw = random.Random(number)
    return [f"{draw.choice(WORDS)}_{draw.randrange(10**6)} = {draw.random()}" for _ in range(6)]


def python(number: int, *, more: str = "", docstring: str = "Do the thing of number") -> str:
    body = "".join(f"    {line}\n" for line in lines(number))
    return f'def do_{number}(x):\n    """{docstring} {number}."""\n{body}    return do_{number}{more}\n\n\n'


def javascript(number: int) -> str:
    body = "".join(f"  {line};\n" for line in lines(100 + number))
    return f"/** Make a thing of number {number}. */\nfunction make{number}() {{\n{body}}}\n\n"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    place = tmp_path / "repo"
    place.mkdir()
    (place / "m.py").write_text("".join(python(n) for n in range(12)))
    (place / "pyproject.toml").write_text('[project]\nname = "tool"\n')
    return place


def opened(place: Path | str, cache: Path | None = None) -> Suite:
    return code.SUITE.open(str(place), SuiteOptions(cache=cache))


def keys(suite: Suite, tmp_path: Path) -> dict[str, str]:
    of = artifact(tmp_path)
    return {task.name: digest(evaluation_identity(of, task, encoding(), seed=42)) for task in suite.tasks}


def test_every_checkout_has_the_same_names_and_keys(repo: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "far" / "other"
    shutil.copytree(repo, elsewhere)
    found = keys(opened(repo), tmp_path)
    assert [*found] == ["tool.CodeSearch", "tool.CodeSearch.named"]
    assert keys(opened(elsewhere), tmp_path) == found
    (elsewhere / "pyproject.toml").unlink()
    assert [*keys(opened(elsewhere), tmp_path)] == [
        "other.CodeSearch",
        "other.CodeSearch.named",
    ]
    assert keys(opened(f"tool={elsewhere}"), tmp_path) == found


@pytest.mark.parametrize(
    ("file", "text", "name"),
    [
        ("pyproject.toml", '[tool.poetry]\nname = "of-poetry"\n', "of-poetry"),
        ("pyproject.toml", "[tool.other]\n", "folder"),
        ("pyproject.toml", "[project\n", "folder"),
        ("setup.cfg", "[metadata]\nname = of_cfg\n", "of_cfg"),
        ("setup.py", "import setuptools\nsetuptools.setup(version='1', name='of-setup')\n", "of-setup"),
        ("setup.py", "setup(name=NAME)\n", "folder"),
        ("package.json", '{"name": "@scope/pkg"}', "scope-pkg"),
        ("package.json", "[1]", "folder"),
        ("package.json", "[" * 100_000, "folder"),
        ("pyproject.toml", "project = []\n", "folder"),
        ("Cargo.toml", '[workspace]\n[package]\nname = "crab"\n', "crab"),
        ("go.mod", "module github.com/gin-gonic/gin/v2\n\ngo 1.21\n", "gin"),
        ("pom.xml", '<project xmlns="http://m.org/4"><artifactId>parent</artifactId></project>', "parent"),
        ("pom.xml", "<project><artifactId>parent", "folder"),
        (
            "pom.xml",
            '<!DOCTYPE a [<!ENTITY b "c">]><p><artifactId>&b;</artifactId></p>',
            "folder",
        ),
        ("CMakeLists.txt", "cmake_minimum_required(VERSION 3.8)\nproject(FMT CXX)\n", "FMT"),
    ],
)
def test_a_projects_name_is_that_of_its_metadata(tmp_path: Path, file: str, text: str, name: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / file).write_text(text)
    assert code._project_name(folder) == name


def test_a_name_can_be_typed(repo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = ("--cache", str(tmp_path / "cache"), "--results", str(tmp_path / "results"))
    plan = ["run", "--model", "minilm", "--dry-run", "--json", "--suite", f"code:{repo}", *places]
    assert invoke([*plan, "--name", "mine"]) == 0
    assert '"mine.CodeSearch"' in capsys.readouterr().out
    for more, said in (
        (["--name", "a b"], "'a b' cannot be the name of a project."),
        (["--name", "mine", "--suite", f"code:{repo}"], "--name is for one suite code:FOLDER; there are 2."),
    ):
        assert invoke([*plan, *more]) == 2
        assert said in capsys.readouterr().err
    with pytest.raises(UsageError, match="is not a folder"):
        opened("name=nowhere")


def test_another_language_is_another_task_and_changes_no_other(repo: Path, tmp_path: Path) -> None:
    before = keys(opened(repo), tmp_path)
    (repo / "a.js").write_text("".join(javascript(n) for n in range(11)))
    (repo / "a.go").write_text("package a\n")
    suite = opened(repo)
    after = keys(suite, tmp_path)
    assert after.items() >= before.items()
    assert {*after} - {*before} == {"tool.CodeSearch-javascript", "tool.CodeSearch-javascript.named"}
    assert [note.partition(":")[0] for note in suite.notes] == [
        *("Python", "Python", "JavaScript", "JavaScript", "Go", "No search by commits"),
    ]
    assert suite.notes[-1] == "No search by commits: there is no git history."
    sizes = {task.name: task.size.texts for task in suite.tasks}
    assert sizes["tool.CodeSearch-javascript"] == 22


def test_a_language_without_its_grammar_is_left_out_and_told(
    repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repo / "a.js").write_text("".join(javascript(n) for n in range(11)))
    monkeypatch.setattr(_code._languages, "is_installed", lambda language: False)
    suite = opened(repo)
    assert [task.name for task in suite.tasks] == ["tool.CodeSearch", "tool.CodeSearch.named"]
    assert "JavaScript is not read: tree-sitter and tree-sitter-javascript are not installed." in suite.notes


def test_what_is_built_once_is_kept_and_what_is_damaged_is_built_again(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    first = opened(repo, cache)
    loaders = {task.name: task.source.loader for task in first.tasks}  # type: ignore[attr-defined]
    contents = {name: loader.content() for name, loader in loaders.items()}
    forget()
    monkeypatch.setattr(_code, "python_functions", None)
    assert opened(repo, cache) == first
    assert loaders["tool.CodeSearch"].content() == contents["tool.CodeSearch"]
    monkeypatch.undo()
    for path in cache.rglob("*.json"):
        text = path.read_text()
        path.write_text(text[: len(text) // 2] if "named" in path.name else text.replace("alpha", "omega"))
        forget()
        assert opened(repo, cache) == first
        assert {name: loader.content() for name, loader in loaders.items()} == contents


def forget() -> None:
    """Forget what this process holds in memory, as another process does."""
    _code._index.cache_clear()
    _code._build.cache_clear()


def git(place: Path, *arguments: str) -> str:
    identity = {f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    dates = {f"GIT_{who}_DATE": "1700000000 +0000" for who in ("AUTHOR", "COMMITTER")}
    done = subprocess.run(
        ["git", "-c", "init.defaultBranch=main", *arguments],
        cwd=place,
        env={**os.environ, **identity, **dates, "GIT_CONFIG_GLOBAL": os.devnull},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def commit(place: Path, subject: str, **texts: str) -> str:
    for name, text in texts.items():
        (place / f"{name}.py").write_text(text)
    git(place, "add", "-A")
    git(place, "commit", "-q", "--allow-empty", "-m", f"{subject}\n\nA body of the message.")
    return git(place, "rev-parse", "HEAD")


@pytest.fixture
def history(repo: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A repository of 32 commits, the newest 8 of which are the test, and two of these."""
    monkeypatch.setattr("suites._code_tasks.MIN_COMMITS", 2)
    texts = {n: python(n) for n in range(12)}

    def changed(subject: str, **new: str) -> str:
        texts.update({int(name.removeprefix("f")): text for name, text in new.items()})
        return commit(repo, subject, m="".join(texts.values()))

    git(repo, "init", "-q")
    for n in range(24):
        commit(repo, f"An empty commit of number {n}")
    first = changed("Change the first of them", f0=python(0, more=" + 1"))
    second = changed("fix(m): Change two at once (#12)", f1=python(1, more=" + 1"), f2=python(2, more=" + 1"))
    changed("Bump the version of it", f3=python(3, more=" + 1"))
    changed("Two words", f4=python(4, more=" + 1"))
    changed("Add a new function here", f12=python(12))
    changed("Write a better docstring now", f5=python(5, docstring="Do a better thing of"))
    changed("Change the first of them!", f6=python(6, more=" + 1"))
    changed("Rework all of them at last", **{f"f{n}": python(n, more=" + 2") for n in range(12)})
    return {"first": first, "second": second}


def commits(place: Path) -> Retrieval:
    found = opened(place).tasks[-1]
    assert found.name == "tool.CommitSearch"
    content = found.source.loader.content()  # type: ignore[attr-defined]
    assert isinstance(content, Retrieval)
    return content


def test_commits_find_the_functions_that_they_changed_among_those_before_them(
    repo: Path, history: dict[str, str], tmp_path: Path
) -> None:
    found = commits(repo)
    newest = git(repo, "rev-parse", "HEAD~1")
    assert found.qrels == {newest: {"m:do_6": 1}, history["second"]: {"m:do_1": 1, "m:do_2": 1}}
    assert {q.id: q.text for q in found.queries} == {
        newest: "Change the first of them!",
        history["second"]: "Change two at once",
    }
    before = {d.id: d.text for d in found.documents}
    assert {*before} == {f"m:do_{n}" for n in range(12)}
    assert not any(re.search(r"return .* \+ ", text) for text in before.values())
    git(tmp_path, "clone", "-q", str(repo), "clone")
    assert commits(tmp_path / "clone") == found
    (repo / "new.py").write_text(python(40))
    assert commits(repo) == found, "what is not committed does not count"


def test_a_folder_of_a_repository_has_the_history_of_its_files(
    repo: Path, history: dict[str, str], tmp_path: Path
) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    git(whole, "init", "-q")
    git(whole, "pull", "-q", str(repo), "HEAD")
    expected = commits(whole)
    exported = git(repo, "fast-export", "HEAD")
    moved = re.sub(r"^M 100644 (\S+) ", r"M 100644 \1 part/", exported, flags=re.MULTILINE)
    inside = tmp_path / "inside"
    inside.mkdir()
    git(inside, "init", "-q")
    subprocess.run(["git", "fast-import", "--quiet", "--force"], cwd=inside, input=moved.encode(), check=True)
    git(inside, "checkout", "-q", git(inside, "for-each-ref", "--format=%(refname)"))
    found = commits(inside / "part")
    assert found.documents == expected.documents
    assert [q.text for q in found.queries] == [q.text for q in expected.queries]
    assert [*found.qrels.values()] == [*expected.qrels.values()]


def test_a_history_that_cannot_be_read_is_told(
    repo: Path, history: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def note(place: Path) -> str:
        (found,) = (note for note in opened(place).notes if note.startswith("No search by commits"))
        return found

    git(tmp_path, "clone", "-q", "--depth", "3", f"file://{repo}", "shallow")
    assert "the git history is shallow" in note(tmp_path / "shallow")
    empty = tmp_path / "empty"
    shutil.copytree(repo, empty, ignore=shutil.ignore_patterns(".git"))
    git(empty, "init", "-q")
    assert "git says: " in note(empty)
    commit(empty, "One commit alone")
    assert "the git history has only 1 commits" in note(empty)
    forget()
    monkeypatch.setenv("PATH", "")
    assert "git is not installed" in note(repo)


def test_a_new_commit_is_another_task_though_no_file_changed(
    repo: Path, history: dict[str, str], tmp_path: Path
) -> None:
    before = keys(opened(repo, tmp_path / "cache"), tmp_path)
    for n in range(4):
        commit(repo, f"Another empty commit of number {n}")
    after = keys(opened(repo, tmp_path / "cache"), tmp_path)
    assert {name for name in before if before[name] != after.get(name)} == {"tool.CommitSearch"}
