from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

import tiny
from fakes import artifact, encoding, task
from harness.core.types import Size
from harness.driver import evaluation as module
from harness.driver.evaluation import _plan_workers
from harness.executors.executor import Failure, Finished
from harness.executors.local import LIBRARIES, CpuWorkers, has_guard
from harness.jobs.jobs import Job, Resources, Score


class FakeRecipe:
    """A recipe whose runs take what it is told."""

    def build_probe_job(self, jobs: Sequence[Job]) -> Job:
        return jobs[0]


class FakeWorker:
    """Answers at once with what `answer` says."""

    answer = Finished(key="memory", output={"memory": json.dumps({"peak_bytes": 10e9}).encode()})

    def __init__(self, **_options: object) -> None:
        self.closed = False

    def start(self, _job: Job, _inputs: object, _devices: tuple[str, ...]) -> None:
        pass

    def poll_worker(self, _seconds: float) -> Finished:
        return self.answer

    def close_worker(self) -> None:
        self.closed = True


def jobs(count: int) -> list[Job]:
    work: Any = SimpleNamespace()
    return [Job(key=str(n), kind="finetune", label="", work=work) for n in range(count)]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight cores and 64 GB; a GPU with 50 GB free."""
    monkeypatch.setattr(module, "count_cores", lambda: 8)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=64e9))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (int(50e9), int(80e9)))
    monkeypatch.setattr(module, "Subprocess", FakeWorker)


def places(
    devices: tuple[str, ...], runs: int, *, weights: int = 90_000_000, **asked: int
) -> tuple[tuple[str, ...], int | None]:
    recipe: Any = FakeRecipe()
    found = _plan_workers(devices, jobs(runs), recipe, cache=Path("cache"), weights=weights, **asked)
    return found.devices, found.threads


@pytest.mark.usefixtures("machine")
def test_a_cpu_has_a_process_for_each_core() -> None:
    assert places(("cpu",), 20) == (("cpu",) * 8, 1)
    assert places(("cpu",), 3) == (("cpu",) * 3, 2)
    assert places(("cpu",), 1) == (("cpu",), None)
    assert places(("cpu",), 20, threads=4) == (("cpu",) * 2, 4)
    assert places(("cpu",), 20, asked=2) == (("cpu",) * 2, 4)


@pytest.mark.usefixtures("machine")
def test_memory_limits_them() -> None:
    """Two of a backbone of 4 GB: each takes six times that, and what a process takes."""
    assert places(("cpu",), 20, weights=4_000_000_000) == (("cpu",) * 2, 4)
    assert places(("cpu",), 20, weights=40_000_000_000) == (("cpu",), None)


@pytest.mark.usefixtures("machine")
def test_a_gpu_has_as_many_as_its_memory_holds() -> None:
    """0.9 of 50 GB, 10 GB for each."""
    assert places(("cuda:0",), 20) == (("cuda:0",) * 4, None)
    assert places(("cuda:0",), 2) == (("cuda:0",) * 2, None)


@pytest.mark.usefixtures("machine")
def test_a_gpu_has_no_more_than_half_as_many_as_there_are_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    assert places(("cuda:0", "cuda:1"), 20) == (("cuda:0",) * 2 + ("cuda:1",) * 2, None)
    monkeypatch.setattr(module, "count_cores", lambda: 5)
    assert places(("cuda:0",), 20) == (("cuda:0",) * 2, None)
    monkeypatch.delattr(module, "Subprocess")
    assert places(("cuda:0",), 20, threads=2) == (("cuda:0",), 2), "two cores: nothing is measured"


@pytest.mark.usefixtures("machine")
def test_a_gpu_on_which_the_probe_fails_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Finished(key="memory", failure=Failure(kind="OutOfMemoryError", message="no"))
    monkeypatch.setattr(FakeWorker, "answer", failed)
    assert places(("cuda:0",), 20) == (("cuda:0",), None)


@pytest.mark.usefixtures("machine")
def test_without_runs_there_is_one_process_for_each_device() -> None:
    found = _plan_workers(("cuda:0", "cuda:1"), [], None, cache=Path("cache"), weights=1, threads=3)
    assert (found.devices, found.threads) == (("cuda:0", "cuda:1"), 3)


@pytest.mark.usefixtures("machine")
def test_for_a_single_run_no_process_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(module, "Subprocess")
    assert places(("cuda:0",), 1) == (("cuda:0",), None)
    assert places(("cuda:0",), 20, asked=1) == (("cuda:0",), None)


def plan_cpu_workers(jobs: list[Job], *devices: str, threads: int | None = None) -> CpuWorkers | None:
    return module._plan_cpu_workers(devices or ("cuda:0",), jobs, threads)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("devices", "scores", "threads", "count"),
    [
        (("cuda:0",), 20, None, (3, 2)),  # one core of eight is the GPU's
        (("cuda:0",), 2, None, (2, 3)),
        (("cuda:0",), 2, 2, (2, 2)),
        (("cuda:0",), 20, 8, (0, 8)),
        (("cuda:0", "cuda:1"), 20, 1, (6, 1)),
        (("cpu",), 20, 1, None),
        (("cuda:0",), 0, 1, None),
    ],
)
def test_cpu_workers_beside_gpus_are_as_many_as_cores_allow(
    devices: tuple[str, ...], scores: int, threads: int | None, count: tuple[int, int] | None
) -> None:
    some = [one.replace_resources(begins_on_cpu=True) for one in jobs(scores)]
    found = plan_cpu_workers([*some, *jobs(3)], *devices, threads=threads)
    assert (None if found is None else (found.count, found.threads)) == count


def build_scores(count: int, size: Size | None = None, scoring: str = "fake 1") -> list[Job]:
    scored = replace(task(scoring=scoring), size=size or Size())
    work: Any = Score(
        artifact=artifact(Path()), task=scored, seed=1, data=None, key="k", identity={}, encoding=encoding()
    )
    return [
        replace(job, kind="score", work=work, resources=Resources(begins_on_cpu=True)) for job in jobs(count)
    ]


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("devices", "size", "count"),
    [
        (("cuda:0",), Size(texts=10_000), 8),
        (("cuda:0", "cuda:0"), Size(texts=10_000), 8),  # two runs at once on one GPU
        (("cuda:0", "cuda:1"), Size(texts=10_000), 16),
        (("cuda:0",), Size(texts=1_000_000, characters=1_000_000_000), 4),  # each 2.5, 8.2 and 2 GB
        (("cuda:0",), Size(texts=100_000_000), 1),
    ],
)
def test_cpu_workers_are_as_many_as_memory_holds_and_eight_for_each_gpu(
    monkeypatch: pytest.MonkeyPatch, devices: tuple[str, ...], size: Size, count: int
) -> None:
    monkeypatch.setattr(module, "count_cores", lambda: 64)
    found = plan_cpu_workers([*build_scores(20), *build_scores(1, size)], *devices, threads=1)
    assert found is not None
    assert found.count == count


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("scoring", "more"), [("mteb 2", ("mteb",)), ("scikit-learn 1", ()), ("unheard 1", ())]
)
def test_cpu_workers_import_what_scores_where_it_is_a_module(scoring: str, more: tuple[str, ...]) -> None:
    found = plan_cpu_workers(build_scores(1, scoring=scoring))
    assert found is not None
    assert found.libraries == (*LIBRARIES, *more)


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("text", "strict", "loose"),
    [
        ('if __name__ == "__main__":\n    main()\n', True, True),
        ("import logging\nLOG = logging.getLogger(__name__)\n", False, True),
        ("main()\n", False, False),
        (None, False, True),
    ],
    ids=["guard", "logger", "nothing", "no source"],
)
def test_a_script_has_cpu_workers_only_with_a_guard_in_the_usual_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, strict: bool, loose: bool
) -> None:
    """Others run on one GPU in one process, as they did before there were any."""
    script = tmp_path / "script.py"
    if text is not None:
        script.write_text(text)
    monkeypatch.setitem(vars(sys.modules["__main__"]), "__file__", str(script))
    assert (has_guard(strict=True), has_guard()) == (strict, loose)
    assert (plan_cpu_workers(build_scores(1)) is not None) == strict


SCRIPT = """
import logging, sys
from pathlib import Path
import harness
LOG = logging.getLogger({name})
with open("started", "a") as file:
    file.write("once\\n")
def run(suite, *devices):
    report = harness.run("model", f"local:{{suite}}", devices=devices, results=Path("r"), cache=Path("c"))
    print(*(result.how for result in report.results))
{guard}{one}
{guard}run("two", "cpu", "cpu")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "guard", "refused"),
    [('"script"', "", True), ("__name__", "", True), ("__name__", 'if __name__ == "__main__": ', False)],
    ids=["without", "the name for something else", "with"],
)
def test_a_script_without_a_main_guard_is_told_so_where_processes_are_started(
    tmp_path: Path, name: str, guard: str, refused: bool
) -> None:
    """One process needs none; of several each would run the script again, and does not get far."""
    one = 'run("one", "cpu")' if refused and "__name__" in name else "pass"  # enough that one has it
    tiny.folder(tiny.families()["bert"], tmp_path / "model")
    for suite in ("one", "two"):
        rows = [{"text1": a, "text2": suite, "score": number} for number, a in enumerate(tiny.WORDS)]
        (tmp_path / suite).mkdir()
        (tmp_path / suite / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
        (tmp_path / suite / "harness.toml").write_text('[[task]]\nname = "alike"\ntype = "sts"\n')
    (tmp_path / "script.py").write_text(SCRIPT.format(name=name, guard=guard, one=one))
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    alone = [] if one == "pass" else ["done"]
    assert (done.returncode, done.stdout.split()) == ((1, alone) if refused else (0, ["done"]))
    said = ("script.py has no main guard", 'if __name__ == "__main__":', "one process", "Traceback")
    assert [done.stderr.count(text) for text in said] == [int(refused)] * 4  # of the script, not of a worker
    if "__name__" not in name:
        assert (tmp_path / "started").read_text() == "once\n"
    assert list((tmp_path / "r").glob("leases/*")) == []


def test_a_script_from_standard_input_can_start_processes() -> None:
    """Python names its file "<stdin>", which a process that it starts would look for."""
    script = (
        "from multiprocessing import get_context\n"
        "from harness.executors.local import has_guard\n"
        "assert has_guard()\n"
        "process = get_context('spawn').Process(target=print, args=('started',))\n"
        "process.start()\n"
        "process.join()\n"
    )
    done = subprocess.run([sys.executable], input=script, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("started\n", "")
