"""Leases: who holds them, when they lapse, and that of several who want one, one gets it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.core.errors import StoreError
from harness.storage import leases
from harness.storage.leases import LeaseFolder, LeasePlace, Leases, Process
from lease_worker import Settings, Worker
from queued_jobs import wait

ELSEWHERE = {"host": "another", "pid": os.getpid(), "start": 1}
"""A process of another host."""

EARLIER = {"host": "another", "pid": 1, "token": "t", "expires": 1e12}
"""A lease as earlier versions wrote it."""


class Memory:
    """A place of which each operation but `replace` is a single step, before which something may happen."""

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        self.files: dict[str, bytes] = {}
        self.changes: list[str] = []
        self._before = before

    def create(self, name: str, content: bytes) -> bool:
        self._before()
        self.changes.append(name)
        return self.files.setdefault(name, content) is content

    def read(self, name: str) -> bytes | None:
        self._before()
        return self.files.get(name)

    def replace(self, name: str, content: bytes, *, seen: bytes) -> bool:
        if self.read(name) != seen:
            return False
        self._before()  # as in a folder, anything may happen between the look and the change
        self.changes.append(name)
        if there := name in self.files:
            self.files[name] = content
        return there

    def remove(self, name: str, *, seen: bytes) -> bool:
        self._before()
        self.changes.append(name)
        return self.files.get(name) == seen and self.files.pop(name) == seen

    def names(self) -> list[str]:
        self._before()
        return [*self.files]


@pytest.fixture(params=["folder", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> LeasePlace:
    return LeaseFolder(tmp_path / "leases") if request.param == "folder" else Memory()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The monotonic clock of all leases of this process; there is no other."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(leases, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def put(place: LeasePlace, key: str, **process: object) -> bytes:
    """A lease on `key` whose holder is the given process; returns the content of the holder's file."""
    holder = json.dumps({**process, "renewals": 1}).encode()
    assert place.create(f"{key}.json", json.dumps({"holder": f"of{key}"}).encode())
    assert place.create(f"of{key}.holder", holder)
    return holder


def dead_process() -> Process:
    ended = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    # Field 22 of proc_pid_stat(5), behind the name of the program.
    start = int(Path(f"/proc/{ended.pid}/stat").read_text().rpartition(")")[2].split()[19])
    process = replace(Process.current(), pid=ended.pid, start=start)
    ended.communicate()
    return process


def test_a_lease_is_held_by_one(place: LeasePlace) -> None:
    one, two = Leases(place), Leases(place)
    assert one.claim("k")
    assert not two.claim("k")
    assert (one.held("k"), two.held("k")) == (True, False)
    one.release("k")
    assert two.claim("k")
    assert (one.held("k"), two.held("k")) == (False, True)
    one.close()
    two.close()
    assert place.names() == []


# When a lease lapses


@pytest.mark.parametrize("looks", [[90.0], [1.0, 50.0, 89.0, 90.5], [1e6]])
def test_a_holder_elsewhere_lapses_after_a_term_without_a_sign_of_life(
    place: LeasePlace, clock: SimpleNamespace, looks: list[float]
) -> None:
    put(place, "k", **ELSEWHERE)
    observer = Leases(place)
    assert not observer.claim("k")
    for clock.now in looks[:-1]:
        assert not observer.claim("k")
    clock.now = looks[-1]
    assert observer.claim("k")
    observer.close()


@pytest.mark.parametrize("step", [20.0, 89.0, 1000.0])
def test_a_holder_elsewhere_that_renews_keeps_its_lease_however_seldom_one_looks(
    place: LeasePlace, clock: SimpleNamespace, step: float
) -> None:
    seen = put(place, "k", **ELSEWHERE)
    observer = Leases(place)
    for number in range(10):
        assert not observer.claim("k")
        new = json.dumps({**ELSEWHERE, "renewals": number}).encode() + b" "
        assert place.replace("ofk.holder", new, seen=seen)
        seen, clock.now = new, clock.now + step


def test_the_leases_of_one_holder_are_observed_together(place: LeasePlace, clock: SimpleNamespace) -> None:
    put(place, "k", **ELSEWHERE)
    place.create("other.json", json.dumps({"holder": "ofk"}).encode())
    observer = Leases(place)
    assert not observer.claim("k")
    clock.now = 90.0
    assert observer.claim("other"), "its holder has been observed for a term"
    observer.close()


@pytest.mark.parametrize(
    "content", [b"", b'{"hol', b"\xff\x00", b"[]", b"1", b'{"holder": "../x"}', json.dumps(EARLIER).encode()]
)
def test_a_lease_that_names_no_holder_lapses_after_a_term(
    place: LeasePlace, clock: SimpleNamespace, content: bytes
) -> None:
    place.create("k.json", content)
    observer = Leases(place)
    for clock.now in (0.0, 89.0):
        assert not observer.claim("k")
    Leases.sweep(place)
    assert place.read("k.json") == content
    clock.now = 90.0
    assert observer.claim("k")
    observer.close()
    assert place.names() == []


def test_an_earlier_version_that_renews_keeps_its_lease(place: LeasePlace, clock: SimpleNamespace) -> None:
    observer, seen = Leases(place), json.dumps(EARLIER).encode()
    place.create("k.json", seen)
    for number in range(10):
        assert not observer.claim("k")
        new = json.dumps({**EARLIER, "expires": number}).encode()
        assert place.replace("k.json", new, seen=seen)
        seen, clock.now = new, clock.now + 80.0


@pytest.mark.parametrize("content", [None, b"", b'{"host": "x", "pi'])
def test_a_holder_without_a_whole_file_lapses_after_a_term(
    place: LeasePlace, clock: SimpleNamespace, content: bytes | None
) -> None:
    place.create("k.json", b'{"holder": "t"}')
    if content is not None:
        place.create("t.holder", content)
    observer = Leases(place)
    for clock.now in (0.0, 89.0):
        assert not observer.claim("k")
    clock.now = 90.0
    assert observer.claim("k")
    observer.close()


def test_a_file_read_half_written_twice_is_no_lapse(place: LeasePlace, clock: SimpleNamespace) -> None:
    """Two leases in turn, each seen before its content was there, and a whole one between."""
    observer = Leases(place)
    place.create("k.json", b"")
    assert not observer.claim("k")
    place.replace("k.json", b'{"holder": "t"}', seen=b"")
    clock.now = 60.0
    assert not observer.claim("k")
    place.replace("k.json", b"", seen=b'{"holder": "t"}')
    clock.now = 100.0
    assert not observer.claim("k")


@pytest.mark.parametrize("lease", [b'{"holder": "t"}', b'{"hol'])
def test_an_observer_that_is_stopped_while_it_looks_sees_nothing_lapse(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, lease: bytes
) -> None:
    """However long a look takes it, the second was a second after the first."""

    def read(name: str) -> bytes | None:
        content = place.files.get(name)
        clock.now += 1000.0
        return content

    place = Memory()
    place.files = {"k.json": lease, "t.holder": json.dumps(ELSEWHERE).encode()}
    observer = Leases(place)
    assert not observer.claim("k")
    clock.now = 1.0
    monkeypatch.setattr(place, "read", read)
    assert not observer.claim("k")


def test_a_holder_that_renews_at_the_last_moment_keeps_its_lease(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create(name: str, content: bytes) -> bool:
        place.files["ofk.holder"] += b" "
        return Memory.create(place, name, content)

    place = Memory()
    put(place, "k", **ELSEWHERE)
    observer = Leases(place)
    assert not observer.claim("k")
    clock.now = 90.0
    monkeypatch.setattr(place, "create", lambda name, c: create(name, c) if "taking" in name else False)
    assert not observer.claim("k")
    assert {*place.files} == {"k.json", "ofk.holder"}


def test_that_a_holders_file_vanishes_is_no_sign_of_life(place: LeasePlace, clock: SimpleNamespace) -> None:
    seen = put(place, "k", **ELSEWHERE)
    observer = Leases(place)
    assert not observer.claim("k")
    place.remove("ofk.holder", seen=seen)
    for clock.now in (50.0, 89.0):
        assert not observer.claim("k")
    clock.now = 90.0
    assert observer.claim("k")
    observer.close()


def test_the_lease_of_a_dead_process_of_this_host_is_free_at_once(tmp_path: Path) -> None:
    killed = Worker(Settings(folder=str(tmp_path), term=60.0))
    assert killed.ask("claim", "k")
    observer = Leases(tmp_path)
    assert not observer.claim("k")
    killed.kill()
    observer.close()
    observer = Leases(tmp_path)
    assert observer.claim("k")
    observer.close()


@pytest.mark.parametrize(
    ("changed", "alive"),
    [
        ({}, False),
        ({"host": ""}, None),
        ({"host": "another"}, None),
        ({"pid": os.getpid()}, False),  # its number is another process's now
        ({"pid": os.getpid(), "start": 0}, None),
        ({"pid": -1}, None),
        ({"pid": 2**80}, None),
    ],
)
def test_a_process_is_dead_only_beyond_doubt(changed: dict[str, object], alive: bool | None) -> None:
    assert replace(dead_process(), **changed).alive() is alive
    assert Process.current().alive() is True


def test_a_container_that_shares_the_name_and_the_kernel_is_another_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here, links = Process.current().host, os.readlink
    monkeypatch.setattr(os, "readlink", lambda p: "pid:[1]" if p == "/proc/self/ns/pid" else links(p))
    assert Process.current().host not in ("", here)
    monkeypatch.setattr(os, "readlink", lambda p: "7" if p == "/proc/self" else links(p))
    assert Process.current().host == "", "/proc is that of other processes"


# What holding costs


def test_renewal_costs_the_same_for_any_number_of_leases() -> None:
    place = Memory()
    holder = Leases(place, term=0.2)
    for number in range(500):
        assert holder.claim(str(number))
    before = place.files[holder._holder]
    place.changes.clear()
    wait(lambda: place.files[holder._holder] != before)
    assert {*place.changes} == {holder._holder}
    assert len(place.changes) < 20
    holder.close()
    assert place.files == {}


def test_waiting_for_the_many_leases_of_one_holder_does_not_read_its_file_each_time(
    clock: SimpleNamespace,
) -> None:
    place, reads = Memory(), []
    holder, observer = Leases(place), Leases(place)
    for number in range(100):
        holder.claim(str(number))
    place._before = lambda: reads.append(1)
    assert not any(observer.claim(str(number)) for number in range(100))
    assert len(reads) <= 100 + 100 + 1
    place._before = lambda: None
    holder.close()


def test_a_holder_whose_file_is_gone_makes_it_again(tmp_path: Path) -> None:
    holder = Leases(tmp_path, term=0.2)
    holder.claim("k")
    (tmp_path / holder._holder).unlink()
    wait((tmp_path / holder._holder).exists)
    holder.close()


def test_a_folder_that_vanishes_with_its_lease_is_made_again(tmp_path: Path) -> None:
    observer = Leases(tmp_path / "deep" / "leases")
    assert observer.claim("k")
    observer.close()
    (tmp_path / "deep" / "leases").rmdir()
    observer = Leases(tmp_path / "deep" / "leases")
    assert observer.claim("k")
    observer.close()


def test_a_lease_is_another_users(
    tmp_path: Path, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that may not be written, in a folder that may."""
    (tmp_path / "k.json").write_bytes(b"")
    real = os.open

    def guarded(path: Path, flags: int, mode: int = 0o777) -> int:
        if Path(path).name == "k.json" and not flags & os.O_CREAT:
            raise PermissionError(13, "no")
        return real(path, flags, mode)

    observer = Leases(tmp_path)
    assert not observer.claim("k")
    clock.now = 90.0
    monkeypatch.setattr(os, "open", guarded)
    assert observer.claim("k")
    monkeypatch.undo()
    observer.close()


@pytest.mark.parametrize("name", ["leases", "leases/k.json"])
def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path, name: str) -> None:
    if name == "leases":
        (tmp_path / name).touch()
    else:
        (tmp_path / name).mkdir(parents=True)
    with pytest.raises(StoreError) as caught:
        Leases(tmp_path / "leases").claim("k")
    assert str(tmp_path) in str(caught.value)
    assert caught.value.hint


# Of several who want a lease


class Killed(BaseException):
    """The end of a process of the schedule."""


class Schedule:
    """Threads that take turns at each operation on a place, in an order drawn from a seed; some die."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._turns: dict[int, threading.Semaphore] = {}
        self._back = threading.Semaphore(0)
        self._dead: set[int] = set()

    def step(self) -> None:
        """Wait for the next turn of this thread."""
        own = threading.get_ident()
        if own in self._turns:
            self._back.release()
            self._turns[own].acquire()
            if own in self._dead:
                raise Killed

    def run(self, tasks: list[Callable[[], None]], *, kills: int) -> None:
        """Run all tasks to their ends, of which some are early."""
        threads = [threading.Thread(target=self._run, args=(task,)) for task in tasks]
        for thread in threads:
            thread.start()
            self._back.acquire()
        idents = [thread.ident or 0 for thread in threads]
        while any(thread.is_alive() for thread in threads) and self._turns:
            own = self._random.choice([ident for ident in idents if ident in self._turns])
            if kills and self._random.random() < 0.1:
                self._dead.add(own)
                kills -= 1
            self._turns[own].release()
            self._back.acquire()
        for thread in threads:
            thread.join()

    def _run(self, task: Callable[[], None]) -> None:
        own = threading.get_ident()
        self._turns[own] = threading.Semaphore(0)
        try:
            self.step()
            task()
        except Killed:
            pass
        finally:
            del self._turns[own]
            self._back.release()


@pytest.mark.parametrize("kills", [0, 1, 3])
def test_whatever_the_order_one_observer_takes_over_and_no_death_bars_the_way(
    clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:
    monkeypatch.setattr(Leases, "_keep_renewing", lambda _: None)  # nobody shows life: each may lapse
    for seed in range(150):
        schedule = Schedule(seed)
        place, won = Memory(), []
        put(place, "k", **ELSEWHERE)
        observers = [Leases(place) for _ in range(4)]
        assert not any(observer.claim("k") for observer in observers)
        clock.now += 90.0
        place._before = schedule.step

        def take(observer: Leases, won: list[Leases] = won) -> None:
            if observer.claim("k"):
                won.append(observer)

        schedule.run([lambda o=observer: take(o) for observer in observers], kills=kills)  # type: ignore[misc]
        assert len(won) <= 1, f"seed {seed}"
        assert won or kills, f"seed {seed}"
        assert all(observer.held("k") for observer in won)
        late = Leases(place)
        for _ in range(6):  # a term for each lease on taking over that the killed have left
            if taken := late.claim("k"):
                break
            clock.now += 90.0
        assert taken, f"seed {seed}: {place.files}"


def test_the_claim_of_a_holder_that_was_stopped_shows_life_first(clock: SimpleNamespace) -> None:
    """Its renewals may wake up later than itself, and an observer at that moment."""
    place = Memory()
    stopped, observer = Leases(place), Leases(place)
    stopped.claim("a")
    place.files[stopped._holder] = place.files[stopped._holder].replace(b'"host": "', b'"host": "not ')
    assert not observer.claim("a")
    clock.now = 90.0
    assert stopped.claim("b")
    assert not observer.claim("b")
    stopped.close()


# Processes


@contextmanager
def workers(*settings: Settings) -> Iterator[list[Worker]]:
    started = [Worker(one) for one in settings]
    try:
        yield started
    finally:
        for worker in started:
            worker.kill()


def waited(worker: Worker, key: str, *, limit: float) -> float:
    """Seconds until it has the lease, which it asks for ten times a second."""
    began = time.monotonic()
    while not worker.ask("claim", key):
        assert time.monotonic() - began < limit
        time.sleep(0.1)
    return time.monotonic() - began


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [300.0, -300.0])
def test_hosts_with_other_clocks_share_leases_and_take_over_from_the_dead(
    tmp_path: Path, wrong: float
) -> None:
    base = Settings(folder=str(tmp_path), term=1.0)
    with workers(replace(base, host="a", clock=wrong), replace(base, host="b")) as (one, two):
        assert one.ask("claim", "k")
        end = time.monotonic() + 3.0
        while time.monotonic() < end:
            assert not two.ask("claim", "k")
            time.sleep(0.1)
        one.ask("release", "k")
        assert two.ask("claim", "k")
        assert not one.ask("claim", "k")
        two.ask("release", "k")
        assert one.ask("claim", "k")
        assert not two.ask("claim", "k")
        one.kill()
        assert 0.5 < waited(two, "k", limit=20.0) < 5.0


def test_a_stopped_holder_finds_that_it_has_lost_its_lease_and_leaves_it_to_the_other(tmp_path: Path) -> None:
    base = Settings(folder=str(tmp_path), term=1.0)
    with workers(replace(base, host="a"), replace(base, host="b")) as (slept, other):
        assert slept.ask("claim", "k")
        assert slept.ask("claim", "kept")
        slept.process.send_signal(signal.SIGSTOP)
        waited(other, "k", limit=20.0)
        theirs = (tmp_path / "k.json").read_bytes()
        slept.process.send_signal(signal.SIGCONT)
        assert slept.ask("held", "k") is False
        assert slept.ask("held", "kept") is True
        assert not slept.ask("claim", "k")
        slept.ask("release", "k")
        assert not other.ask("claim", "kept"), "its holder shows life again"
        slept.ask("close")
        assert (tmp_path / "k.json").read_bytes() == theirs
        assert other.ask("held", "k") is True
        other.ask("close")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_workers_of_several_hosts_some_of_them_killed_finish_all_and_never_do_one_at_once(
    tmp_path: Path,
) -> None:
    """Two workers are on this host, two on others; whichever dies is replaced by another."""
    chance, keys = random.Random(7), 400
    (tmp_path / "witness").mkdir()
    base = Settings(folder=str(tmp_path / "leases"), term=1.5, keys=keys, witness=str(tmp_path / "witness"))
    hosts = ["", "", "b", "c"]
    settings = [replace(base, host=host, clock=chance.choice([-300, 0, 300])) for host in hosts]
    running, conflicts, deadline = [Worker(one) for one in settings], "", time.monotonic() + 60
    try:
        for _ in range(8):
            time.sleep(chance.uniform(0.2, 0.5))
            number = chance.randrange(4)
            running[number].process.kill()
            conflicts += running[number].process.communicate()[0]
            running[number] = Worker(replace(settings[number], host=settings[number].host and f"new{_}"))
        for worker in running:
            conflicts += worker.process.communicate(timeout=deadline - time.monotonic())[0]
    finally:
        for worker in running:
            worker.kill()
    assert conflicts == ""
    assert [worker.process.returncode for worker in running] == [0] * 4
    assert len([*(tmp_path / "witness").glob("*.done")]) == keys


# A single look


def test_a_sweep_removes_only_what_the_dead_of_this_host_have_left(place: LeasePlace) -> None:
    living = Leases(place)
    living.claim("mine")
    dead = dead_process()
    put(place, "dead", host=dead.host, pid=dead.pid, start=dead.start)
    put(place, "unknown", **ELSEWHERE)
    place.create("taking.taking", b'{"holder": "ofdead"}')
    place.create("idle.holder", json.dumps(ELSEWHERE).encode())
    Leases.sweep(place)
    assert {*place.names()} == {"mine.json", living._holder, "unknown.json", "ofunknown.holder"}
    living.close()


def test_ages_are_those_of_the_holders_by_the_clock_of_the_file_system(tmp_path: Path) -> None:
    place = LeaseFolder(tmp_path)
    put(place, "k", **ELSEWHERE)
    put(place, "renewed", **ELSEWHERE)
    place.create("earlier.json", b"{}")
    now = (tmp_path / "earlier.json").stat().st_mtime
    for name, age in (("k.json", 500), ("ofk.holder", 300), ("renewed.json", 9000), ("earlier.json", 700)):
        os.utime(tmp_path / name, (now - age, now - age))
    ages = Leases.ages(tmp_path)
    expected = {
        "k.json": 300,
        "ofk.holder": 300,
        "renewed.json": 0,
        "ofrenewed.holder": 0,
        "earlier.json": 700,
    }
    assert ages == pytest.approx(expected, abs=20.0)
    assert {*ages} == {path.name for path in tmp_path.iterdir()}
