"""The efficiency suites: sets, the clock, rounds, the search of a batch, and a whole measurement."""

from __future__ import annotations

import io
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from measuring import load_encoder
from rich.console import Console
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import StaticEmbedding
from tokenizers import Tokenizer

import late_models
import tiny
from harness import run
from harness.core.errors import ModelError, UsageError
from harness.core.types import Artifact, MeasuredModel, SuiteOptions
from harness.encoder.folder.description import compute_folder_identity
from harness.plan import catalog
from harness.results.audit import find_contradictions
from harness.results.scores import score_text
from harness.storage.record import find_score_problem
from suites._efficiency import measuring
from suites._efficiency.measuring import (
    Device,
    SpeedEngine,
    Timing,
    Workload,
    draw_lengths,
    measure_rounds,
    summarize_rounds,
    time_run,
    watch_load,
)
from suites._efficiency.protocol import find_largest_batch, find_released_batch

TABLE_10 = {
    (512, "fixed"): (4_194_304, 512, 512),
    (512, "variable"): (2_096_510, 32, 476),
    (8192, "fixed"): (67_108_864, 8192, 8192),
    (8192, "variable"): (33_604_913, 171, 7624),
}


@pytest.mark.parametrize("cell", TABLE_10)
def test_sets_are_those_of_table_10(cell: tuple[int, str]) -> None:
    longest, name = cell
    lengths = draw_lengths(name, longest, 8192, least=32, seed=42)
    assert (sum(lengths), min(lengths), max(lengths)) == TABLE_10[cell]


def test_the_released_clamp_and_count_give_other_totals() -> None:
    assert sum(draw_lengths("variable", 512, 8192, least=16, seed=42)) == 2_096_485
    assert sum(draw_lengths("variable", 512, 4096, least=16, seed=42)) == 1_046_245


def test_batches_are_padded_and_hold_every_sequence() -> None:
    config = SimpleNamespace(vocab_size=50, pad_token_id=7)
    workload = Workload(longest=8, lengths=(3, 8, 5), config=config)
    (ids, lengths), (last, rest) = workload.iterate_batches(2)
    assert (lengths, rest, ids.shape, last.shape) == ([8, 3], [5], (2, 8), (1, 8))
    assert (ids[1, 3:] == 7).all()
    assert ids.max() < 50


@dataclass
class FakeDevice(Device):
    """A device with a clock of its own, which starts work and goes on: it is done `busy_until`."""

    name: str = "fake"
    now: float = 0.0
    busy_until: float = 0.0

    def read_clock(self) -> float:
        if self.waits:
            self.now = max(self.now, self.busy_until)
        return self.now


@dataclass
class FakeNetwork:
    """A model of known speed: `each` seconds a token that is not padding, and half of that to move it."""

    device: FakeDevice
    each: float
    noise: Callable[[], float] = lambda: 1.0

    def _start(self, seconds: float) -> None:
        self.device.now += 1e-6
        self.device.busy_until = max(self.device.now, self.device.busy_until) + seconds * self.noise()

    def move_batch(self, ids: torch.Tensor, lengths: Sequence[int]) -> int:
        self._start(sum(lengths) * self.each / 2)
        return sum(lengths)

    def run_pass(self, batch: int) -> None:
        self._start(batch * self.each)


WORKLOAD = Workload(longest=64, lengths=draw_lengths("variable", 64, 40, least=4, seed=42))


def test_the_clock_waits_for_the_device() -> None:
    device = FakeDevice()
    network = FakeNetwork(device, each=1e-3)
    timing = time_run(network, WORKLOAD, 8)
    cell = summarize_rounds([timing] * 3, WORKLOAD, computed=1)
    assert cell["tokens_per_second"] == pytest.approx(1000, rel=0.03)
    assert cell["transfer_seconds"] == pytest.approx(sum(WORKLOAD.lengths) * 5e-4, rel=0.03)
    padded = 1000 * 64 * 40 / sum(WORKLOAD.lengths)
    assert cell["padded_tokens_per_second"] == pytest.approx(padded, rel=0.03)
    # As the released script reads it: before the device is done.
    device.waits = False
    released = time_run(network, WORKLOAD, 8)
    assert sum(WORKLOAD.lengths) / released.seconds > 1e6


def test_a_clock_that_goes_backwards_ends_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice()
    times: Iterator[float] = iter([3.0, 2.0, 4.0])
    monkeypatch.setattr(device, "read_clock", lambda: next(times))
    with pytest.raises(ModelError, match="clock of this machine went backwards"):
        time_run(FakeNetwork(device, each=1e-3), WORKLOAD, 40)


@pytest.mark.parametrize(("noise", "stable"), [(0.01, True), (0.3, False)])
def test_ratios_repeat_or_are_marked(tmp_path: Path, noise: float, stable: bool) -> None:
    draw = random.Random(0)

    def measure(number: int) -> tuple[float, bool]:
        device, runs = FakeDevice(), {}
        for name, each in (("slow", 2e-3), ("fast", 1e-3)):
            network = FakeNetwork(device, each, lambda: draw.uniform(1 - noise, 1 + noise))
            runs[name, "set", 40] = partial(time_run, network, WORKLOAD, 40)
        found = measure_rounds(runs, 10, tmp_path / f"{number}.json")
        cells = [summarize_rounds(timings, WORKLOAD, 1) for timings in found.values()]
        return cells[1]["main_score"] / cells[0]["main_score"], any(c["unstable"] for c in cells)

    measured = [measure(number) for number in range(4)]
    assert all(unstable != stable for _, unstable in measured)
    if stable:
        assert all(ratio == pytest.approx(2, rel=0.05) for ratio, _ in measured)


def test_rounds_take_turns_and_finished_ones_are_not_taken_again(tmp_path: Path) -> None:
    taken: list[str] = []

    def take(name: str, stop: int | None = None) -> Timing:
        if len(taken) == stop:
            raise KeyboardInterrupt
        taken.append(name)
        return Timing(seconds=3.0, troubles=("throttled",))

    log = tmp_path / "rounds.json"
    killed = {(name, "s", 1): partial(take, name, 3) for name in "ab"}
    with pytest.raises(KeyboardInterrupt):
        measure_rounds(killed, 2, log)
    found = measure_rounds({(name, "s", 1): partial(take, name) for name in "ab"}, 2, log)
    assert taken == ["a", "b", "b", "a"]
    assert sorted(json.loads(log.read_text())) == [f"{n} ('{name}', 's', 1)" for n in (0, 1) for name in "ab"]
    assert [timing.seconds for timing in found["a", "s", 1]] == [3.0] * 2
    assert summarize_rounds(found["a", "s", 1], WORKLOAD, 1)["troubles"] == ["throttled"]
    assert summarize_rounds(found["a", "s", 1], WORKLOAD, 1)["busy"]


def test_a_run_beside_other_work_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-c", "while True: pass"]
    generators = [subprocess.Popen(command) for _ in range(1 + (psutil.cpu_count() or 1) // 4)]
    try:
        with watch_load(Device("cpu")) as timing:
            time.sleep(1.0)
    finally:
        for generator in generators:
            generator.kill()
            generator.wait()
    timing.seconds = 1.0
    assert summarize_rounds([timing] * 3, WORKLOAD, 1)["busy"]
    # Many short rounds tell it as well.
    short = Timing(seconds=0.01, total=0.02, others=0.01)
    assert [summarize_rounds([short] * n, WORKLOAD, 1)["busy"] for n in (10, 100)] == [False, True]
    # An idle machine, on which only this process works.
    idle = iter([0.0, 100.0])
    times = psutil.cpu_times()
    nothing = times._replace(**dict.fromkeys(times._fields, 0.0))
    monkeypatch.setattr(psutil, "cpu_times", lambda: nothing._replace(idle=next(idle)))
    with watch_load(Device("cpu")) as idle_timing:
        pass
    assert idle_timing.others <= 0.0


def test_a_gpu_tells_its_energy_and_what_slows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    energy = iter([0, 1000, 6000])
    library: Any = SimpleNamespace(nvmlInit=lambda: None, nvmlDeviceGetHandleByUUID=str)
    library.nvmlDeviceGetTotalEnergyConsumption = lambda _handle: next(energy)
    library.nvmlDeviceGetCurrentClocksThrottleReasons = lambda _handle: 0x40
    library.nvmlDeviceGetComputeRunningProcesses = lambda _handle: [1, 2]
    monkeypatch.setitem(sys.modules, "pynvml", library)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _name: SimpleNamespace(uuid="u"))
    with watch_load(Device("cuda:0")) as timing:
        pass
    assert (timing.joules, timing.troubles) == (5.0, ["throttled", "other processes on it"])


@pytest.mark.parametrize("limit", [1, 5, 100, 1000, 4096])
def test_the_largest_batch_is_found_within_three_percent(limit: int) -> None:
    tried: list[int] = []

    def fits(size: int) -> bool:
        tried.append(size)
        return size <= limit

    found = find_largest_batch(fits, 4096)
    assert limit * 0.97 <= found + 1 <= limit + 1
    # Nothing beyond twice what fits is ever tried.
    assert max(tried) <= 2 * limit
    assert find_largest_batch(lambda _size: False, 4096) == 0
    assert find_largest_batch(lambda _size: True, limit) == limit
    assert find_released_batch(lambda size: size <= limit, 4096) <= limit


class Allocating:
    """A network that takes 200 MB for each sequence."""

    model = SimpleNamespace(config=None)
    device = Device("cpu")

    def move_batch(self, ids: torch.Tensor, lengths: Sequence[int]) -> int:
        return len(lengths)

    def run_pass(self, batch: int) -> None:
        torch.ones(batch * 50_000_000).sum()
        time.sleep(0.2)


class AllocatingEngine(SpeedEngine):
    """An engine whose network allocates; where `kind` is "killed", its process is killed before."""

    def load_network(self) -> Any:
        if self.kind == "killed":
            signal.raise_signal(signal.SIGKILL)
        return Allocating()


@pytest.mark.slow
def test_a_try_tells_its_peak_and_never_takes_more_than_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = SimpleNamespace(device="cpu", work=tmp_path)
    engine = AllocatingEngine(kind="allocating", model=model, longest=8)
    assert engine.measure_peak(2) == pytest.approx(400e6, rel=0.03)
    small = replace(engine, memory=600 * 2**20)
    assert small.measure_peak(5) is None
    assert json.loads((tmp_path / "allocating.json").read_text())["5"] is None
    assert replace(engine, kind="killed").measure_peak(7) is None
    with pytest.raises(ModelError, match="GB of memory are free"):
        replace(engine, memory=2**60).measure_peak(3)
    # Both are known now, and no process is started.
    monkeypatch.setattr(subprocess, "run", None)
    assert (engine.fits(2), engine.fits(5)) == (True, False)


@pytest.mark.slow
def test_a_model_of_few_tokens_is_tried(bert: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"results": tmp_path / "results", "cache": tmp_path / "cache", "limit": 3}
    (record,) = run(str(bert), "efficiency", tasks=("512 fixed (ours)",), **options).records
    assert record.scores["ours"]["fixed"]["batch_size"] == 3


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    return tiny.folder(tiny.families()["bert"], tmp_path / "bert", max_position_embeddings=512)


def measure(
    folder: Path, suite: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, most: int, **options: Any
) -> Any:
    monkeypatch.setattr(SpeedEngine, "run_trial", lambda _self, size: 1000 * size if size <= most else None)
    return run(str(folder), suite, results=tmp_path / "results", cache=tmp_path / "cache", limit=3, **options)


def test_a_whole_measurement(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = measure(bert, "efficiency", monkeypatch, tmp_path, most=2)
    short, long = report.results
    assert long.cell.problem.message.startswith("bert has 512 positions")
    assert long.cell.problem.message.endswith("take --tasks Efficiency512.")
    record = short.record
    assert [*record.scores] == ["ours", "padded"]
    for engine, cells in record.scores.items():
        for cell in cells.values():
            assert cell["batch_size"] == 2
            assert cell["peak_memory_bytes"] == 2000
            assert len(cell["rounds"]) == 10
            assert cell["computed_tokens"] == (cell["tokens"] if engine == "ours" else 3 * 512)
            ceiling = record.provenance["measured"]["ceiling_flops"]
            assert cell["mfu"] == pytest.approx(cell["flops"] / cell["seconds"] / ceiling)
            assert 0 < cell["latency_p50"] <= cell["latency_p99"]
    # Speeds have no mean: that of one cell stands for the task, and its record is sound.
    assert record.main_score == record.scores["ours"]["fixed"]["tokens_per_second"]
    assert find_score_problem(record) == ""
    assert not [*find_contradictions(record, record.to_json().encode())]
    # A speed is printed as it is, where scores are printed times 100.
    report.print(Console(file=(printed := io.StringIO()), width=200))
    row = next(line for line in printed.getvalue().splitlines() if "512 fixed (ours)" in line)
    assert score_text(record.main_score, measured=True) in row
    assert not any("vectors differ" in note for note in report.notes)


def test_what_was_measured_before_a_device_was_lost_is_not_measured_again(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    timed: list[int] = []

    def try_once(_self: SpeedEngine, size: int) -> int:
        tried.append(size)
        return 1000

    def time_or_lose(*arguments: Any, **options: Any) -> Timing:
        timed.append(len(timed))
        if len(timed) == 21:
            raise ModelError("the device is lost")
        return time_run(*arguments, **options)

    monkeypatch.setattr(SpeedEngine, "run_trial", try_once)
    monkeypatch.setattr(measuring, "time_run", time_or_lose)
    places: dict[str, Any] = {"results": tmp_path / "results", "cache": tmp_path / "cache", "limit": 3}
    lost = run(str(bert), "efficiency", tasks=("512 fixed (ours)",), **places)
    assert lost.lacking["Efficiency512"] == "the device is lost"
    report = run(str(bert), "efficiency", tasks=("512 fixed (ours)",), **places)
    (again,) = report.records
    assert len(again.scores["ours"]["fixed"]["rounds"]) == 10
    # What has no mean is not told apart from one.
    report.print(Console(file=(printed := io.StringIO()), width=200))
    assert "no mean: every task is shown by itself" in printed.getvalue()
    assert "not the mean of" not in printed.getvalue()
    assert tried == [1, 2, 3]
    # Ten passes to warm up and twice three alone in each run; ten rounds, and the one that was lost.
    assert len(timed) == 2 * 16 + 10 + 1
    assert not [*(tmp_path / "cache" / "measured").iterdir()]


@pytest.mark.slow
def test_the_released_way_and_growing_batches(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released, columns = "efficiency:modernbert", ("512 fixed (padded)", "512 variable (padded)")
    both = measure(bert, released, monkeypatch, tmp_path, most=2, tasks=columns)
    cells = both.records[0].scores["padded"]
    # Padding costs the time of the fixed set, whose run is the only one.
    assert cells["variable"]["seconds"] == pytest.approx(cells["fixed"]["seconds"])
    assert cells["variable"]["tokens"] < cells["fixed"]["tokens"]
    alone = measure(bert, released, monkeypatch, tmp_path, most=2, tasks=("512 variable (padded)",))
    assert [*alone.records[0].scores["padded"]] == ["variable"]
    grown = measure(bert, "efficiency-neobert", monkeypatch, tmp_path, most=2, tasks=("512 fixed (ours)",))
    cell = grown.records[0].scores["ours"]["fixed"]
    assert [*cell["batches"]] == ["1", "2"]
    assert cell["tokens_per_second"] == max(cell["batches"].values())
    assert len(cell["rounds"]) == 100


@dataclass
class KnownEncoder:
    """An encoder that takes 0.1 ms for each token, which are words."""

    device: FakeDevice
    encoding: Any

    def encode(self, texts: Sequence[str], *, role: str) -> Any:
        self.device.busy_until = self.device.now + self.count_tokens(texts, role=role) / 10_000
        return np.ones((len(texts), 8), np.float32)

    def count_tokens(self, texts: Sequence[str], *, role: str) -> int:
        return sum(len(text.split()) for text in texts)


def test_a_corpus_is_encoded_at_a_known_speed_and_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"{number} " * (10 + number) for number in range(40)]
    device = FakeDevice()
    encoder = KnownEncoder(device, SimpleNamespace(similarity="dot"))

    def search(*_arguments: Any, **_options: Any) -> None:
        device.now += 0.01

    monkeypatch.setattr(measuring, "Device", lambda _name: device)
    monkeypatch.setattr(measuring, "find_top_k", search)
    announced: list[int] = []
    model: Any = SimpleNamespace(
        device="cpu", load=lambda: encoder, announce=announced.append, count=id, work=tmp_path, artifact=None
    )
    (task,) = catalog.open_suite("efficiency:corpus").tasks
    outcome = measuring.measure_corpus(texts, 5, task, model)
    cell = outcome.scores["ours"]["corpus"]
    assert cell["tokens"] == sum(range(10, 50))
    assert cell["tokens_per_second"] == outcome.main_score == pytest.approx(10_000, rel=0.03)
    assert cell["texts_per_second"] == pytest.approx(10_000 / 29.5, rel=0.03)
    assert cell["index_bytes"] == 40 * 8 * 4
    assert cell["search_p50"] == cell["search_p99"] == pytest.approx(0.01)
    # After a kill only the rounds that are left are announced.
    measuring.measure_corpus(texts, 7, task, model)
    assert announced == [5, 2]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "colbert"])
def test_a_corpus_of_a_folder(kind: str, bert: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "a.md").write_text("the cat sat on the mat " * 200)
    folder = bert if kind == "bert" else late_models.save(tmp_path / "colbert")
    options: dict[str, Any] = {"results": tmp_path / "results", "cache": tmp_path / "cache"}
    (record,) = run(str(folder), f"efficiency:corpus:{texts}", **options).records
    assert record.task.name == "texts.EfficiencyCorpus"
    assert find_score_problem(record) == ""
    assert not [*find_contradictions(record, record.to_json().encode())]
    cell = record.scores["ours"]["corpus"]
    # Texts are cut at the model's length, which is a part of the key.
    (short,) = run(str(folder), f"efficiency:corpus:{texts}", max_length=12, **options).records
    assert short.scores["ours"]["corpus"]["tokens"] < cell["tokens"]
    assert short.key != record.key
    assert short.identity["encoding"]["max_length"] == 12


def test_an_attention_backend_is_a_part_of_the_key(bert: Path, tmp_path: Path) -> None:
    usual, sdpa = (catalog.open_suite(f"efficiency{way}").tasks[0] for way in ("", ":sdpa"))
    assert (usual.name, usual.source.scoring) == ("Efficiency512", "efficiency 1")
    assert (sdpa.name, sdpa.source.scoring) == ("EfficiencySdpa512", "efficiency:sdpa 1")
    key, weights, _ = compute_folder_identity(bert)
    artifact = Artifact(name="bert", source=str(bert), folder=bert, key=key, weights=weights)
    model = MeasuredModel(
        artifact=artifact, dtype="float32", device="cpu", load=partial(load_encoder, bert), work=tmp_path,
        announce=id, count=id, tell=id,
    )  # fmt: skip
    for attention in ("eager", "sdpa"):
        assert (
            SpeedEngine(kind="padded", model=model, attention=attention).load_network().attention == attention
        )
    assert SpeedEngine(kind="ours", model=model, attention="sdpa").load_network().attention == "sdpa"
    # It is never another one's speed.
    with pytest.raises(ModelError, match="Attention by flash does not run here: sdpa ran instead"):
        SpeedEngine(kind="ours", model=model, attention="flash_attention_2").load_network()
    with pytest.raises(ModelError, match="transformers does not run flash_attention_2"):
        SpeedEngine(kind="padded", model=model, attention="flash_attention_2").load_network()
    assert measuring.plan_engine("ours", artifact, "eager") == (
        "",
        "ours: our network has no eager attention",
    )
    with pytest.raises(UsageError, match="No way to time is called 'flesh'"):
        catalog.open_suite("efficiency:flesh")


def test_what_cannot_be_measured_says_why(
    bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = measure(bert, "efficiency", monkeypatch, tmp_path, most=0, tasks=("512 fixed (ours)",))
    assert "out of memory with a batch of 1" in report.lacking["Efficiency512"]
    (released,) = catalog.open_suite("efficiency:modernbert").tasks[:1]
    problem = released.source.find_model_problem(
        released, report.results[0].cell.subject.artifact, "bfloat16"
    )  # type: ignore[union-attr]
    assert "float32" in problem
    words = Tokenizer.from_file(str(bert / "tokenizer.json"))
    SentenceTransformer(modules=[StaticEmbedding(words, embedding_dim=16)]).save(str(tmp_path / "static"))
    with pytest.raises(UsageError, match="no transformer, but a module StaticEmbedding"):
        measure(tmp_path / "static", "efficiency", monkeypatch, tmp_path, 2, tasks=("512 fixed (ours)",))
    with pytest.raises(UsageError, match="name no language"):
        run(str(bert), "efficiency", languages=("eng",), results=tmp_path, cache=tmp_path)
    with pytest.raises(UsageError, match="chooses no set of this suite"):
        run(str(bert), "efficiency", subsets=("fixed",), results=tmp_path, cache=tmp_path)


def test_splits_choose_an_engine() -> None:
    suite = catalog.open_suite("efficiency", SuiteOptions(splits=("ours",)))
    assert {task.splits for task in suite.tasks} == {("ours",)}
    with pytest.raises(UsageError, match="nobody"):
        catalog.open_suite("efficiency", SuiteOptions(splits=("nobody",)))
