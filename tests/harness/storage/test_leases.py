"""Leases: who holds them, when they lapse, and that of several who want one, one gets it."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.core.errors import StoreError
from harness.storage.leases import LEASE, Leases, has_dead_holder, locate_holder_file, sweep_leases
from harness.storage.remote import Remote
from lease_worker import Settings, Worker, dead_lease

TERM = 0.6


@pytest.fixture(params=["folder", "remote"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | Remote:
    return tmp_path / "leases" if request.param == "folder" else Remote(f"file://{tmp_path}/shared")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock of all leases of this process, which goes on only as it is told."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("harness.storage.leases.time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def pass_time(clock: SimpleNamespace, seconds: float, holder: Leases) -> None:
    """Let the clock go on after the holder has given a sign of life."""
    before = holder._renewals
    while holder._renewals < before + 2:  # the first may be under way
        time.sleep(0.01)
    clock.now += seconds


def names(place: Path | Remote) -> list[str]:
    return (
        [path.name for path in place.glob("*")]
        if isinstance(place, Path)
        else [*place.list_objects("leases")]
    )


@contextmanager
def workers(*settings: Settings) -> Iterator[list[Worker]]:
    running = [Worker(one) for one in settings]
    try:
        yield running
    finally:
        for worker in running:
            worker.process.send_signal(signal.SIGCONT)
            worker.kill()


def wait_for(worker: Worker, key: str, limit: float) -> float:
    """The seconds until a worker gets a lease that it wants."""
    began = time.monotonic()
    while not worker.ask("claim", key):
        assert time.monotonic() - began < limit
        time.sleep(0.05)
    return time.monotonic() - began


def test_a_lease_is_held_by_one(place: Path | Remote) -> None:
    one, two = Leases(place), Leases(place)
    assert one.claim("k")
    assert one.claim("k")
    assert not two.claim("k")
    assert two.claim("other")
    two.release("k")  # it is not its own
    assert not two.claim("k")
    one.release("k")
    assert two.claim("k")
    assert not one.claim("k")
    one.release_leases()
    two.release_leases()
    assert names(place) == []


def test_who_gets_no_lease_writes_nothing(place: Path | Remote) -> None:
    one, two = Leases(place), Leases(place, term=TERM)
    assert one.claim("k")
    before = sorted(names(place))
    assert not two.claim("k")
    time.sleep(TERM)
    assert sorted(names(place)) == before
    two.release_leases()
    one.release_leases()


def test_a_lease_that_is_renewed_is_kept_and_lapses_only_after_that(
    place: Path | Remote, clock: SimpleNamespace
) -> None:
    one, two = Leases(place, term=TERM), Leases(place, term=TERM)
    assert one.claim("k")
    for _ in range(5):
        assert not two.claim("k")
        pass_time(clock, 0.6 * TERM, one)
    one.release_leases()
    assert two.claim("k")
    two.release_leases()


def test_what_is_looked_at_seldom_is_not_taken_over(place: Path | Remote, clock: SimpleNamespace) -> None:
    one, two = Leases(place, term=TERM), Leases(place, term=TERM)
    assert one.claim("k")
    for _ in range(2):
        assert not two.claim("k")
        pass_time(clock, 1.5 * TERM, one)
    assert not two.claim("k")
    one.release_leases()


def test_the_lease_of_a_dead_process_of_this_host_is_free_at_once(tmp_path: Path) -> None:
    path = dead_lease(tmp_path, "k")
    assert has_dead_holder(path)
    leases = Leases(tmp_path)
    assert leases.claim("k")
    assert not has_dead_holder(path)
    leases.release_leases()


def test_a_sweep_removes_only_what_the_dead_of_this_host_have_left(tmp_path: Path) -> None:
    dead_lease(tmp_path, "dead")
    living = Leases(tmp_path)
    living.claim("mine")
    elsewhere = locate_holder_file(dead_lease(tmp_path, "elsewhere"))
    elsewhere.write_text(elsewhere.read_text().replace('"host": "', '"host": "another '))
    sweep_leases(tmp_path)
    held = {f"mine{LEASE}", f"elsewhere{LEASE}", elsewhere.name}
    assert held < {*names(tmp_path)}
    assert len(names(tmp_path)) == 4  # and the holder's file of this process
    living.release_leases()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="Cannot write"):
        Leases(tmp_path / "leases").claim("k")


def test_a_file_in_the_place_of_the_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "leases").touch()
    with pytest.raises(StoreError, match="Cannot write"):
        Leases(tmp_path / "leases").claim("k")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "remote"])
def test_hosts_with_other_clocks_share_leases_and_take_over_from_the_dead(tmp_path: Path, kind: str) -> None:
    place = str(tmp_path) if kind == "folder" else f"file://{tmp_path}"
    base = Settings(place=place, term=3.0)
    with workers(replace(base, host="a", clock=300.0), replace(base, host="b")) as (one, two):
        assert one.ask("claim", "k")
        end = time.monotonic() + 5.0
        while time.monotonic() < end:
            assert not two.ask("claim", "k")
            time.sleep(0.1)
        one.ask("release", "k")
        assert two.ask("claim", "k")
        assert not one.ask("claim", "k")
        two.ask("release", "k")
        assert one.ask("claim", "k")
        one.kill()
        assert wait_for(two, "k", limit=60.0) > 1.5


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "remote"])
def test_a_stopped_holder_leaves_its_lease_to_the_one_that_took_it_over(tmp_path: Path, kind: str) -> None:
    place = tmp_path if kind == "folder" else Remote(f"file://{tmp_path}")
    base = Settings(place=str(tmp_path) if kind == "folder" else f"file://{tmp_path}", term=1.0)
    with workers(replace(base, host="a"), replace(base, host="b")) as (slept, other):
        assert slept.ask("claim", "k")
        slept.process.send_signal(signal.SIGSTOP)
        wait_for(other, "k", limit=60.0)
        slept.process.send_signal(signal.SIGCONT)
        time.sleep(0.5)  # its next renewal finds the lease of another
        slept.ask("release", "k")
        third = Leases(place, term=1.0)
        assert not third.claim("k"), "the other's lease is there"
        third.release_leases()
        slept.ask("release_leases")
        other.ask("release_leases")
    assert names(place) == []


@pytest.mark.slow
def test_workers_of_several_hosts_some_of_them_killed_finish_all_and_never_do_one_at_once(
    tmp_path: Path,
) -> None:
    """Two workers are on this host, two on others; whichever dies is replaced by another."""
    chance, keys = random.Random(7), 400
    (tmp_path / "witness").mkdir()
    base = Settings(place=str(tmp_path / "leases"), term=5.0, keys=keys, witness=str(tmp_path / "witness"))
    hosts = ["", "", "b", "c"]
    settings = [replace(base, host=host, clock=chance.choice([-300, 0, 300])) for host in hosts]
    running, conflicts, deadline = [Worker(one) for one in settings], "", time.monotonic() + 240
    try:
        for kill in range(8):
            time.sleep(chance.uniform(0.2, 0.5))
            number = chance.randrange(4)
            running[number].process.kill()
            conflicts += running[number].process.communicate()[0]
            running[number] = Worker(replace(settings[number], host=settings[number].host and f"new{kill}"))
        for worker in running:
            conflicts += worker.process.communicate(timeout=deadline - time.monotonic())[0]
    finally:
        for worker in running:
            worker.kill()
    assert conflicts == ""
    assert [worker.process.returncode for worker in running] == [0] * 4
    assert len([*(tmp_path / "witness").glob("*.done")]) == keys
