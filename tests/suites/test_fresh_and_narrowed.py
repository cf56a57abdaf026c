"""Suites of own data: what is read is what is there now, and only what was asked for."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

import pytest

from bags import Bags, table
from harness.errors import DataError, UsageError
from harness.types import Suite, SuiteOptions, Task
from suites import code, local, stdlib

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
    return entry.SUITE.open(argument, SuiteOptions(**options))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["code", "local", "stdlib"])
def test_languages_are_refused_where_data_name_none(name: str, repo: Path, data: Path) -> None:
    with pytest.raises(UsageError) as caught:
        opened(name, repo, data, languages=("eng",))
    suite = opened(name, repo, data).name
    assert caught.value.message == f"--languages says nothing about {suite}: these data name no language."
    assert caught.value.hint == f"Leave out --languages, or run {suite} on its own."


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
    assert caught.value.message == f"Nothing of {whole.name} is left: no split of it is train or x."
    assert caught.value.hint == has


def test_a_task_of_another_split_leaves_its_column_empty(repo: Path, data: Path) -> None:
    narrowed = opened("local", repo, data, splits=("dev",))
    assert ([task.name for task in narrowed.tasks], narrowed.left_out) == (["found"], ("groups",))
