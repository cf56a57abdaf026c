"""`harness serve`: what it says before it serves, which folders it takes, and suites of one's own."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import scipy.stats
from click.testing import CliRunner, Result
from starlette.testclient import TestClient

from harness.core.errors import HarnessError, StoreError, UsageError
from harness.core.types import Artifact, SuiteOptions, Task
from harness.plan import catalog
from harness.results.units import Stratum, Units
from harness.storage.record import RECORDS, build_record_output
from harness.storage.remote_and_leases import Remote
from harness.storage.store import Store
from leaderboard.commands.serve import command
from leaderboard.data.settings import RemoteCopy, copy_folder, read_site_settings
from leaderboard.data.suites import load_site_suites
from leaderboard.web.app import create_app
from leaderboard.web.site import open_site
from queued_jobs import wait
from site_data import fill, measured_model, names, put, scored, small_settings, suites

SOURCE = '''
def take{n}(x):
    """Give {n} times what is given."""
    y = {n} * x
    z = y + {n}
    print(z)
    return z - {n}
'''


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HARNESS_RESULTS", raising=False)
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "cache"))
    with mock.patch("leaderboard.data.snapshot.load_site_suites", return_value=suites()):
        yield


def serve(*arguments: str) -> Result:
    with mock.patch("uvicorn.Server.run"):
        return CliRunner().invoke(command, ["--port", "0", *arguments])


def said(done: Result) -> str:
    assert isinstance(done.exception, HarnessError), done.output
    return f"{done.exception.message} {done.exception.hint}"


def test_a_named_folder_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = said(serve("--results", "nowhere"))
    assert "There is no folder nowhere." in text
    assert "harness run --results nowhere" in text
    monkeypatch.setenv("HARNESS_RESULTS", str(tmp_path / "gone"))
    assert f"There is no folder {tmp_path / 'gone'}." in said(serve())
    with pytest.raises(UsageError):
        read_site_settings()
    (tmp_path / "gone").write_text("a file")
    with pytest.raises(UsageError, match="There is no folder"):
        read_site_settings()


def test_the_usual_folder_may_be_missing_and_that_is_said(tmp_path: Path) -> None:
    done = serve()
    assert done.exit_code == 0, done.output
    lines = done.stderr.splitlines()
    assert lines[0] == "No folder ./results exists: only the reference records and the papers are shown."
    assert lines[1] == "Bringing the snapshot up to date…"
    assert " entries. Open http://127.0.0.1:" in lines[2]
    # The next start shows the snapshot of this one first, and says so.
    assert " entries as at the last start; what is new follows in a moment. Open " in serve().stderr
    (tmp_path / "results").mkdir()
    assert "There is no" not in serve().stderr


def test_a_wrong_address_and_a_port_that_is_taken_have_their_own_hints() -> None:
    for host in ("192.0.2.1", "no.such.host.invalid"):
        hint = said(serve("--host", host))
        assert "--host takes" in hint, host
        assert "--port" not in hint, host
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "--port" in said(serve("--port", str(taken.getsockname()[1])))


def test_an_address_that_cannot_be() -> None:
    assert "no web address" in said(serve("--url", "example.org", "--static", "out"))


@pytest.mark.slow
def test_plain_files_with_their_address(tmp_path: Path) -> None:
    fill(tmp_path)
    done = serve("--results", "results", "--static", "out", "--url", "https://example.org/e/")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "out" / "models" / "acme--tiny-base.html").read_text()
    (address,) = re.findall(r"\(https://example.org/e/(badges/[^)]*)\)", page)
    assert (tmp_path / "out" / address).read_text().startswith("<svg")
    assert "SITE" not in page


@pytest.mark.slow
def test_workers_show_what_is_added_while_they_run(tmp_path: Path) -> None:
    fill(tmp_path)
    command = [sys.executable, "-m", "harness", "serve", "--results", "results", "--port", "0"]
    with subprocess.Popen(
        [*command, "--workers", "2", "--refresh", "0.2"], stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stderr is not None
            line = next(line for line in server.stderr if "http://" in line)
            at = line.partition("Open ")[2].split()[0]
            wait(lambda: len({worker(at) for _ in range(10)}) == 2, seconds=120)
            assert server.pid not in {worker(at) for _ in range(10)}
            model = measured_model("brand-new", "e")
            put(tmp_path / "results", model, [scored(model, names("nanobeir")[0], 0.5)])
            wait(lambda: all("brand-new" in get(f"{at}/suites/nanobeir.csv") for _ in range(10)), seconds=120)
        finally:
            server.terminate()
            server.wait()  # while there is somebody to read what it says
    assert server.returncode == 130


def get(address: str) -> str:
    with urllib.request.urlopen(address, timeout=120) as answer:
        body: bytes = answer.read()
    return body.decode()


def worker(at: str) -> int:
    (pid,) = re.findall(r'harness_worker{pid="(\d+)"} 1.0', get(f"{at}/metrics"))
    return int(pid)


def code_folder(folder: Path, first: int = 0) -> str:
    folder.mkdir()
    for n in range(12):
        (folder / f"part{n}.py").write_text(SOURCE.format(n=n + first))
    return f"code:{folder}"


def test_a_suite_of_ones_own_has_a_page(tmp_path: Path) -> None:
    typed = code_folder(tmp_path / "own code")
    opened = catalog.open_suite(typed, SuiteOptions(cache=tmp_path / "cache"))
    model = measured_model("minilm-ish")
    tasks = opened.tasks
    put(tmp_path / "results", model, [scored(model, of, 0.25 + at / 8) for at, of in enumerate(tasks)])
    found = load_site_suites(tmp_path / "cache", (typed, typed))
    (own,) = [one for one in found.values() if one.typed == typed]
    assert own.main
    assert own.suite == opened
    assert own.slug in list(found)[: sum(one.main for one in found.values())]
    with mock.patch("leaderboard.data.snapshot.load_site_suites", side_effect=load_site_suites):
        app = create_app(small_settings(tmp_path, suites=(typed,)))
    client = TestClient(app)
    page = client.get(f"/suites/{own.slug}.json").json()
    (row,) = page["tables"][0]["rows"]
    assert [row["cells"][f"task:{of.name}"]["value"] for of in tasks] == [
        100 * (0.25 + at / 8) for at in range(len(tasks))
    ]
    # A dozen queries are few, and there is nothing larger: the second task shows the first with its names.
    assert (row["cells"]["tasks"]["value"], row["cells"]["rank"]["value"]) == (25.0, 1)
    assert row["cells"]["there"] == {"text": f"{tasks[0].size.examples} examples", "value": 1,
                                     "note": "Too few for a mean with larger tasks."}  # fmt: skip
    assert client.get(f"/suites/{own.slug}").status_code == 200
    assert own.suite.title in client.get("/suites").text


def own_pairs(folder: Path) -> str:
    """A folder with a task of 30 pairs and one of 1,537, which is large for a correlation."""
    folder.mkdir()
    task = '[[task]]\ntype = "sts"\nname = "{}"\nfile = "{}.jsonl"\n'
    (folder / "harness.toml").write_text(task.format("Few", "few") + task.format("Many", "many"))
    for name, count in (("few", 30), ("many", 1537)):
        lines = [{"text1": f"a {n}", "text2": f"b {n}", "score": n % 5} for n in range(count)]
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return f"local:{folder}"


def put_pairs(folder: Path, model: Artifact, few: Task, many: Task, end: str, noise: float) -> float:
    """Records of a model on both tasks, the small one with its examples; half of its score's interval."""
    gold = np.arange(30.0) % 5
    predicted = gold + noise * np.random.default_rng(3).normal(size=30)
    score = float(scipy.stats.spearmanr(gold, predicted).statistic)
    columns: dict[str, list[Any]] = {
        "split": ["test"] * 30, "subset": ["default"] * 30, "example_id": [str(n) for n in range(30)],
        "replicate": [0] * 30, "prediction": predicted.tolist(), "gold": gold.tolist(), "metric": [None] * 30,
    }  # fmt: skip
    for of, value, examples in ((few, score, columns), (many, 1 - score, {})):
        one = scored(model, of, value)
        about = one.model.model_copy(update={"source": "local", "folder": end})
        values = {"test": {"default": {"main_score": value, of.metric: value}}}
        output = build_record_output(one.model_copy(update={"model": about, "scores": values}), examples)
        record = RECORDS.parse(output["record"].decode(), where="made")
        Store(folder).put(model.slug, record, output.get("examples"))
    stratum = Stratum(measures=("spearman",), examples="", gold=gold, predicted=predicted[None, None])
    half = Units(metric="m", unit="pairs", strata=(stratum,)).estimate_half_width()
    assert half is not None
    return half


def test_a_small_task_has_a_mean_and_ranks_in_a_set_that_the_reader_chose(tmp_path: Path) -> None:
    typed = own_pairs(tmp_path / "own")
    few, many = catalog.open_suite(typed, SuiteOptions(cache=tmp_path / "cache")).tasks
    halves = {
        f"exp{number}/final": put_pairs(
            tmp_path / "results", measured_model("final", letter), few, many, f"exp{number}/final", number / 2
        )
        for number, letter in enumerate("ab", 1)
    }
    with mock.patch("leaderboard.data.snapshot.load_site_suites", side_effect=load_site_suites):
        client = TestClient(create_app(small_settings(tmp_path, suites=(typed,))))
    (path,) = {f"/suites/{slug}" for slug, one in client.app.state.site.queries.suites.items()  # type: ignore[attr-defined]
               if one.typed == typed}  # fmt: skip

    def cells(address: str) -> dict[str, tuple[int, str, str]]:
        rows = client.get(address).json()["tables"][0]["rows"]
        return {
            row["cells"]["model"]["value"]: (row["cells"]["rank"]["value"], row["cells"]["tasks"]["text"],
                                            row["cells"]["there"]["text"])
            for row in rows
        }  # fmt: skip

    # By the large task alone the second is better: its scores are the first's upside down.
    whole, question = cells(f"{path}.json"), f"/rank.json?suite={path.rpartition('/')[2]}&task="
    assert {name: (rank, there) for name, (rank, _, there) in whole.items()} == {
        "exp1/final": (2, "1/1"),
        "exp2/final": (1, "1/1"),
    }
    assert "Few, 30 examples, fewer than 1,537" in client.get(f"{path}.json").text
    chosen = cells(f"{question}Few")
    assert [chosen[name][0] for name in halves] == [1, 2]
    for name, half in halves.items():
        assert chosen[name][1].endswith(f" ± {100 * half:.2f}")
        assert chosen[name][2] == f"30 examples (± {100 * half:.1f})"
    sure = {row["cells"]["model"]["value"]: row["cells"]["half_examples"]["text"]
            for row in client.get(f"{question}Few").json()["tables"][0]["rows"]}  # fmt: skip
    assert sure == {name: f"{100 * half:.2f}" for name, half in halves.items()}
    assert cells(f"{question}Few,Many") == whole
    assert "exp1/final,22" in client.get(f"{path}.csv").text
    slugs = [row["key"] for row in client.get(f"{path}.json").json()["tables"][0]["rows"]]
    compared = client.get(f"/compare.json?m={slugs[0]}&m={slugs[1]}").text
    assert "A exp2/final" in compared
    assert "B exp1/final" in compared
    assert "No task is called" in client.get(f"{question}Fw").text


def test_folders_of_one_name_get_addresses_of_their_own(tmp_path: Path) -> None:
    typed = (code_folder(tmp_path / "a b"), code_folder(tmp_path / "a-b", 100))
    found = load_site_suites(tmp_path / "cache", typed)
    slugs = [slug for slug, one in found.items() if one.typed in typed]
    assert len(slugs) == 2
    assert slugs[1] == f"{slugs[0]}-2"


def test_a_suite_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a folder"):
        load_site_suites(tmp_path / "cache", ("code:nowhere",))
    with mock.patch("leaderboard.data.snapshot.load_site_suites", side_effect=load_site_suites):
        (tmp_path / "results").mkdir()
        assert "is not a folder" in said(serve("--suite", "code:nowhere"))


def test_the_records_of_a_remote_are_shown_and_followed(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/shared"
    fill(tmp_path)
    model = measured_model("far", "e")
    first, second = (scored(model, name, 0.5) for name in names("nanobeir")[:2])
    other = Store(tmp_path / "other", Remote(url))
    for record in (first, second):
        other.put(model.slug, record)
    settings = replace(read_site_settings(remote=url), reference=None, snapshots=tmp_path / "own")
    site = open_site(settings)

    def tasks() -> int:
        return len([row for row in site.queries.find_results() if row.key])

    assert settings.results == (copy_folder(url),)  # ./results was not named
    assert tasks() == 2
    Remote(url).remove(next(iter(Remote(url).list_objects("records"))))
    site.refresh()
    assert tasks() == 1
    assert RemoteCopy(url).pull() == 0  # what is there is not fetched again
    shutil.rmtree(tmp_path / "shared")
    (tmp_path / "shared").touch()
    with pytest.raises(StoreError, match="Cannot list"):
        site.refresh()
    assert tasks() == 1


def test_a_remote_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    assert "must be the URL" in said(serve("--remote", "nowhere"))
    (tmp_path / "file").touch()
    assert "Cannot list" in said(serve("--remote", f"file://{tmp_path}/file/x"))
