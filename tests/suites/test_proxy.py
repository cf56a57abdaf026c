"""A proxy on the command line: fitted on a small import, opened as a suite, run and shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes import artifact, encoding
from harness.cli import invoke
from harness.core.documents import append_digest
from harness.core.errors import RecordError, UsageError
from harness.core.keys import build_evaluation_identity, digest, serialize_canonical
from harness.core.types import Artifact, SuiteOptions, Task
from harness.jobs.jobs import build_model_part
from harness.plan import catalog
from harness.proxy.document import PROXIES
from harness.storage.record import Record, build_task_part
from harness.storage.store import Store
from proxies import put


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with an import and the proxy `quick` fitted on it."""
    folder = tmp_path_factory.mktemp("results")
    draw = np.random.default_rng(9)
    target = catalog.open_suite("nanobeir")
    scores = draw.uniform(0.3, 0.7, (40, 1)) + draw.normal(0, 0.03, (40, len(target.tasks)))
    put(folder, target, scores, models=[f"org{row // 2}/model{row}" for row in range(40)])
    assert fit(folder, "--name", "quick", "--minutes", "0.05") == 0
    return folder


def fit(folder: Path, *more: str) -> int:
    return invoke(["proxy", "fit", "--target", "nanobeir", "--results", str(folder), *more])


def options(folder: Path) -> SuiteOptions:
    return SuiteOptions(results=folder)


def put_record(results: Path, model: Artifact, task: Task, score: float) -> None:
    identity = json.loads(serialize_canonical(build_evaluation_identity(model, task, encoding(), seed=42)))
    about = build_model_part(model, {"parameters": 1, "dimension": 2})
    record = Record(
        key=digest(identity), status="done", model=about, task=build_task_part(task), identity=identity,
        main_score=score, scores={"test": {"default": {task.metric: score}}}, provenance={},
    )  # fmt: skip
    Store(results).put(model.slug, record)


def test_the_suite_is_the_targets_own_tasks(results: Path) -> None:
    suite = catalog.open_suite("proxy:quick", options(results))
    target = {task.name: task for task in catalog.open_suite("nanobeir").tasks}
    assert 1 <= len(suite.tasks) <= 3
    assert all(task == target[task.name] for task in suite.tasks)
    assert suite.predictor is not None
    assert suite.predictor.tasks == tuple(task.name for task in suite.tasks)
    by_path = catalog.open_suite(f"proxy:{results / 'proxies' / 'quick.json'}", SuiteOptions())
    assert by_path.columns == suite.columns


def test_what_is_recorded_is_shown_with_its_prediction(results: Path, tmp_path: Path, capsys: Any) -> None:
    suite = catalog.open_suite("proxy:quick", options(results))
    model = artifact(tmp_path, key="b" * 64, name="seen")
    for at, task in enumerate(suite.tasks):
        put_record(results, model, task, 0.4 + at / 10)
    arguments = ["show", "seen", "--suite", "proxy:quick", "--results", str(results)]
    assert invoke(arguments) == 0
    shown = capsys.readouterr().out
    assert invoke([*arguments, "--json"]) == 0
    [told] = json.loads(capsys.readouterr().out)["suites"]
    proxy = PROXIES.kind.read_document_file(results / "proxies" / "quick.json")
    by_hand = proxy.intercept + sum(t.coefficient * (0.4 + at / 10) for at, t in enumerate(proxy.tasks))
    assert told["predicted"]["value"] == pytest.approx(by_hand)
    half = 100 * proxy.error.half_width
    said = f"{100 * by_hand:.1f} ± {half:.1f} (95 %, cross-validated over 20 families)"
    assert f"predicted {proxy.target.title}: {said}" in shown


def test_a_missing_task_leaves_it_unpredicted(results: Path, tmp_path: Path, capsys: Any) -> None:
    model = artifact(tmp_path, key="c" * 64, name="elsewhere")
    [other] = [task for task in catalog.open_suite("nanobeir").tasks if task.name == "NanoNQRetrieval"]
    put_record(results, model, other, 0.4)
    fit(results, "--tasks", "NanoNQRetrieval,NanoSciFactRetrieval", "--name", "two")
    capsys.readouterr()
    arguments = ["show", "elsewhere", "--suite", "proxy:two", "--results", str(results)]
    assert invoke(arguments) == 0
    assert "is not predicted: no score of NanoSciFactRetrieval" in capsys.readouterr().out
    assert invoke([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["suites"][0]["predicted"] is None


def test_proxies_are_listed_and_shown(results: Path, capsys: Any) -> None:
    assert invoke(["proxy", "list", "--results", str(results), "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["proxies"]}
    assert rows["quick"]["suite"] == "proxy:quick"
    assert invoke(["proxy", "show", "quick", "--results", str(results), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    written = json.loads((results / "proxies" / "quick.json").read_text())
    assert told["proxy"] == {name: value for name, value in written.items() if name != "digest"}
    assert rows["quick"]["half_width"] == told["proxy"]["error"]["half_width"]
    for arguments in (["list"], ["show", "quick"]):
        assert invoke(["proxy", *arguments, "--results", str(results)]) == 0
        assert "quick" in capsys.readouterr().out


def test_a_damaged_proxy_does_not_hide_the_others(results: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "proxies").mkdir()
    whole = (results / "proxies" / "quick.json").read_text()
    (tmp_path / "proxies" / "quick.json").write_text(whole)
    (tmp_path / "proxies" / "broken.json").write_text(whole[:100])
    assert invoke(["proxy", "list", "--results", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert "quick" in out
    assert "broken.json is not a proxy" in err
    with pytest.raises(RecordError):
        catalog.open_suite("proxy:broken", options(tmp_path))


def write_proxy(path: Path, told: dict[str, Any]) -> Path:
    path.write_text(append_digest({name: value for name, value in told.items() if name != "digest"}))
    return path


def test_a_target_that_changed_since_is_refused(results: Path, tmp_path: Path) -> None:
    told = json.loads((results / "proxies" / "quick.json").read_text())
    told["tasks"][0]["splits"] = ["another"]
    path = write_proxy(tmp_path / "quick.json", told)
    with pytest.raises(UsageError, match="no longer asks for"):
        catalog.open_suite(f"proxy:{path}", SuiteOptions())


def test_a_proxy_of_itself_is_refused(results: Path, tmp_path: Path) -> None:
    told = json.loads((results / "proxies" / "quick.json").read_text())
    path = tmp_path / "quick.json"
    told["target"]["suite"] = f"proxy:{path}"
    write_proxy(path, told)
    with pytest.raises(UsageError, match="a proxy of a proxy"):
        catalog.open_suite(f"proxy:{path}", SuiteOptions())


def test_a_proxy_is_not_narrowed(results: Path) -> None:
    with pytest.raises(UsageError, match="as they were fitted"):
        catalog.open_suite("proxy:quick", SuiteOptions(results=results, languages=("eng",)))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--target", "MTEB(eng,v2)"], "Did you mean MTEB(eng, v2)"),
        (["--target", "proxy:quick"], "is not a benchmark of several tasks that embeddings are scored on"),
        (["--target", "glue"], "is not a benchmark of several tasks that embeddings are scored on"),
        (["--target", "nanobeir", "--from", "nowhere"], "No import is called 'nowhere'"),
        (["--target", "nanobeir", "--name", "a/b"], "cannot be the name of a proxy"),
        (["--target", "nanobeir", "--minutes", "1", "--tasks", "NanoNQRetrieval"], "Leave out --minutes"),
        (["--target", "beir"], "have every task of BEIR"),
    ],
)
def test_misuse_is_told_in_one_message(results: Path, arguments: list[str], said: str, capsys: Any) -> None:
    assert invoke(["proxy", "fit", "--results", str(results), *arguments]) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert "Traceback" not in err
    assert not out


def test_without_an_import_the_way_to_one_is_told(tmp_path: Path, capsys: Any) -> None:
    assert fit(tmp_path) == 2
    assert "harness import mteb-results PATH" in capsys.readouterr().err
    assert not (tmp_path / "proxies").exists()
