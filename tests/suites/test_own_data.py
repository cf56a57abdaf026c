"""Suites of own data: read as it is now, only what was asked for, and only what may be read."""

from __future__ import annotations

import json
import pickle
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from fakes import Bags, quiet, table
from harness.cli import invoke
from harness.core.errors import DataError, UsageError
from harness.core.types import Suite, SuiteOptions, Task, VectorSource
from harness.plan.catalog import open_suite, open_suites
from nobody import as_nobody
from suites import code, local, stdlib

# Suites of own data: what is read is what is there now, and only what was asked for


TEXTS = '{"text": "a", "label": 1}\n{"text": "b", "label": 2}\n{"text": "c", "label": 1}\n'
QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t1\n"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    place = tmp_path / "repo"
    place.mkdir()
    for n in range(12):
        body = f"    a = {n}\n    b = x\n    return a + b\n"
        (place / f"m{n}.py").write_text(f'def f{n}(x):\n    """Do the thing of number {n}."""\n{body}')
    return place


@pytest.fixture
def data(tmp_path: Path) -> Path:
    place = tmp_path / "data"
    (place / "qrels").mkdir(parents=True)
    (place / "texts.jsonl").write_text(TEXTS)
    (place / "corpus.jsonl").write_text('{"_id": "d1", "text": "one"}\n')
    (place / "queries.jsonl").write_text('{"_id": "q1", "text": "eins"}\n')
    (place / "qrels" / "dev.tsv").write_text(QRELS)
    description = '[[task]]\nname = "groups"\ntype = "clustering"\n'
    description += '[[task]]\nname = "found"\ntype = "retrieval"\nsplit = "dev"\n'
    (place / "harness.toml").write_text(description)
    return place


def search(repo: Path, cache: Path | None) -> Task:
    return code.SUITE.open(str(repo), SuiteOptions(cache=cache)).tasks[0]


def asked(task: Task) -> Sequence[str]:
    found = task.source.evaluate(task, Bags(), seed=42, data=None)
    return [line["example_id"] for line in table(found)]


@pytest.mark.parametrize("cached", [True, False])
def test_a_repository_that_changes_between_two_runs_of_a_process_is_another_task(
    repo: Path, tmp_path: Path, cached: bool
) -> None:
    cache = tmp_path / "cache" if cached else None
    before = search(repo, cache)
    assert len(asked(before)) == 12
    assert search(repo, cache) == before
    (repo / "m0.py").unlink()
    after = search(repo, cache)
    assert after.data.content != before.data.content
    assert len(asked(after)) == 11


def test_source_that_changes_after_the_plan_is_refused(repo: Path, tmp_path: Path) -> None:
    """As another process finds it, which gets the plan and reads the source again."""
    planned = pickle.dumps(search(repo, tmp_path / "cache"))
    assert len(asked(pickle.loads(planned))) == 12
    path = repo / "m0.py"
    path.write_text(path.read_text().replace("thing", "deed"))
    with pytest.raises(DataError, match=rf"The files of {repo} changed after the run had begun"):
        pickle.loads(planned).source.loader.content()
    (repo / "m1.py").unlink()
    (repo / "m2.py").unlink()
    (repo / "m3.py").unlink()
    with pytest.raises(DataError, match="code search needs at least 10"):
        pickle.loads(planned).source.loader.content()


def test_files_that_change_after_the_plan_are_refused(data: Path) -> None:
    task = local.SUITE.open(str(data), SuiteOptions()).tasks[0]
    assert task.source.loader.content()  # type: ignore[attr-defined]
    (data / "texts.jsonl").write_text(TEXTS.replace('"a"', '"A"'))
    with pytest.raises(DataError, match="The files of groups changed after the run had begun"):
        task.source.loader.content()  # type: ignore[attr-defined]


def opened(name: str, repo: Path, data: Path, **options: tuple[str, ...]) -> Suite:
    entry, argument = {"code": (code, str(repo)), "local": (local, str(data)), "stdlib": (stdlib, "")}[name]
    return entry.SUITE.open(argument, SuiteOptions(cache=repo.parent / "cache", **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["code", "local", "stdlib"])
def test_languages_are_refused_where_data_name_none(name: str, repo: Path, data: Path) -> None:
    with pytest.raises(UsageError) as caught:
        opened(name, repo, data, languages=("eng",))
    suite = opened(name, repo, data).name
    assert caught.value.message == f"--languages says nothing about {suite}: these data name no language."
    assert caught.value.hint == f"Leave out --languages, or run {suite} on its own."
    with pytest.raises(UsageError, match="--subsets says nothing about"):
        opened(name, repo, data, subsets=("en",))


@pytest.mark.parametrize(
    ("name", "has"),
    [("code", "It has split test."), ("stdlib", "It has split test."), ("local", "It has splits test, dev.")],
)
def test_splits_narrow_and_what_leaves_nothing_says_what_there_is(
    name: str, has: str, repo: Path, data: Path
) -> None:
    whole = opened(name, repo, data)
    assert opened(name, repo, data, splits=("test", "dev")) == whole
    with pytest.raises(UsageError) as caught:
        opened(name, repo, data, splits=("train", "x"))
    assert caught.value.message == f"{whole.name} has no split train or x."
    assert caught.value.hint == has


def test_a_task_of_another_split_leaves_its_column_empty(repo: Path, data: Path) -> None:
    narrowed = opened("local", repo, data, splits=("dev",))
    assert ([task.name for task in narrowed.tasks], narrowed.left_out) == (["found"], ("groups",))


# Folders and files that this user may not enter or read: left out and counted, or named; no traceback


FUNCTION = (
    'def f{n}(x):\n    """Do the thing with number {n}."""\n    a = {n}\n    b = x\n    return a + b\n\n\n'
)


@pytest.fixture
def public() -> Iterator[Path]:
    """A temporary folder that every user can enter, whose closed folders are opened at the end."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)
        yield place
        for path in sorted(place.rglob("*")):
            path.chmod(0o755)


def plan(public: Path, suite: str, model: str = "minilm") -> int:
    typed = ["run", "--model", model, "--dry-run", "--suite", suite]
    return invoke([*typed, "--cache", str(public / "cache"), "--results", str(public / "results")])


@pytest.fixture
def refusal(public: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """The error of plans of suites by a user who owns nothing, after one of a suite that may be read."""

    def say(allowed: str, *asked: str) -> str:
        assert plan(public, allowed) == 0
        (public / "cache").chmod(0o777)
        capsys.readouterr()
        with as_nobody():
            codes = [plan(public, suite) for suite in asked]
        assert set(codes) == {1}
        return capsys.readouterr().err

    return say


def repository(place: Path) -> Path:
    place.mkdir()
    (place / "open.py").write_text("".join(FUNCTION.format(n=n) for n in range(12)))
    for name in ("secret", "listed"):
        (place / name).mkdir()
        (place / name / "hidden.py").write_text(FUNCTION.format(n=99))
    (place / "locked.py").write_text("x = 1\n")
    return place


def texts(place: Path) -> Path:
    place.mkdir(parents=True)
    (place / "harness.toml").write_text('[[task]]\ntype = "clustering"\n')
    (place / "texts.jsonl").write_text(TEXTS)
    return place


def close(path: Path, mode: int = 0) -> Path:
    path.chmod(mode)
    return path


def test_closed_folders_of_a_repository_are_left_out_and_counted(public: Path) -> None:
    """Python 3.11 raises where it asks whether a file is there below a folder that may not be entered."""
    repo, fine = repository(public / "repo"), repository(public / "fine")
    close(repo / "secret")
    close(repo / "listed", 0o444)
    close(repo / "locked.py")
    # One without files: those of packages may be closed to others, too.
    assert plan(public, f"code:{fine}", "bm25") == 0
    (public / "cache").chmod(0o777)
    with as_nobody():
        assert plan(public, f"code:{repo}", "bm25") == 0
        said = " ".join(open_suite(f"code:{repo}").notes)
    assert "1 of 2 Python files: cannot be read. " in said
    assert "The folder listed (and 1 more) may not be entered: left out." in said


def test_a_closed_repository_is_named(public: Path, refusal: Callable[..., str]) -> None:
    repo, fine = repository(public / "repo"), repository(public / "fine")
    close(repo)
    assert refusal(f"code:{fine}", f"code:{repo}", f"code:{repo}/secret").splitlines() == [
        f"Error: {repo}: Permission denied.",
        f"Error: {repo}/secret: Permission denied.",
    ]


@pytest.mark.parametrize(
    ("closed", "named"), [("in", "in/data"), ("in/data", "in/data/harness.toml"), ("in/data/texts.jsonl", "")]
)
def test_closed_data_of_ones_own_is_named(
    public: Path, refusal: Callable[..., str], closed: str, named: str
) -> None:
    fine, data = texts(public / "fine"), texts(public / "in" / "data")
    close(public / closed)
    said = refusal(f"local:{fine}", f"local:{data}")
    assert said == f"Error: {public / (named or closed)}: Permission denied.\n"


def test_closed_qrels_are_named(public: Path, refusal: Callable[..., str]) -> None:
    fine, data = texts(public / "fine"), public / "data"
    (data / "qrels").mkdir(parents=True)
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        (data / name).write_text("{}")
    close(data / "qrels")
    assert refusal(f"local:{fine}", f"local:{data}") == f"Error: {data / 'qrels'}: Permission denied.\n"


def test_a_name_that_is_too_long_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "x" * 300 + ".jsonl"
    data = texts(tmp_path / "data")
    (data / "harness.toml").write_text(f'[[task]]\ntype = "clustering"\nfile = "{name}"\n')
    assert invoke(["run", "--model", "minilm", "--dry-run", "--suite", f"local:{data}"]) == 1
    assert capsys.readouterr().err == f"Error: {data / name}: File name too long.\n"


@pytest.mark.parametrize("suite", ["code", "local"])
def test_a_place_that_leads_nowhere_is_said(
    suite: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for place in (str(tmp_path / "loop"), "~no-such-user/data"):
        assert invoke(["run", "--model", "minilm", "--dry-run", "--suite", f"{suite}:{place}"]) == 2
        assert f"Error: {place} leads nowhere: " in capsys.readouterr().err


def test_a_file_that_vanishes_while_it_is_looked_for_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from suites._code import source, tasks

    repo = repository(tmp_path / "repo")
    found = source.find_source_files(repo)
    (repo / "locked.py").unlink()
    monkeypatch.setattr(tasks, "find_source_files", lambda *_: found)
    content = tasks.SourceFolder(root=repo, cache=tmp_path / "cache").content("CodeSearch.named")
    assert len(content.documents) == 13  # type: ignore[union-attr]


def test_similarities_that_are_all_the_same_have_no_correlation(tmp_path: Path) -> None:
    (tmp_path / "harness.toml").write_text('[[task]]\nname = "alike"\ntype = "sts"\n')
    words = ("boat", "cliff", "choir", "motor")
    pairs = [(f"{word} sails", f"sails {word}", place) for place, word in enumerate(words)]
    lines = [json.dumps(dict(zip(("text1", "text2", "score"), pair, strict=True))) for pair in pairs]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    (suite,) = open_suites((f"local:{tmp_path}",), SuiteOptions())
    task = suite.tasks[0]
    assert isinstance(task.source, VectorSource)
    with quiet(), pytest.raises(DataError, match="cosine_spearman of alike is not a number") as caught:
        task.source.evaluate(task, Bags(), seed=42, data=None)
    assert "all similarities are the same" in str(caught.value.hint)
