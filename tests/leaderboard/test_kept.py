"""Made pages: kept by size, made once, forgotten."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from leaderboard.kept import LONGEST, NAMES, Kept, Made


def made(size: int, letter: bytes = b"x") -> Made:
    return Made(body=letter * size, type="text/plain")


def maker(size: int) -> Callable[[], Made]:
    return lambda: made(size)


def test_the_least_lately_used_goes_first() -> None:
    kept = Kept(100)
    for key in "abc":
        kept.get_or_make(key, maker(30))
    assert kept.get("a") is not None  # now b is the one that nobody asked for
    kept.get_or_make("d", maker(30))
    assert [key for key in "abcd" if kept.get(key) is None] == ["b"]


def test_a_page_in_other_encodings_weighs_more() -> None:
    kept = Kept(100)
    first = kept.get_or_make("a", maker(30))
    kept.get_or_make("b", maker(30))
    first.packed["br"] = b"y" * 45
    assert first.size == 75
    assert kept.get("b") is not None  # a is the one least lately used
    kept.get_or_make("c", maker(10))
    assert kept.get("a") is None
    assert kept.get("b") is not None


def test_a_page_larger_than_everything_is_kept_alone() -> None:
    kept = Kept(10)
    kept.get_or_make("small", maker(5))
    kept.get_or_make("large", maker(50))
    assert kept.get("large") is not None
    assert kept.get("small") is None


def test_twenty_callers_make_a_page_once() -> None:
    kept, calls, start = Kept(1000), [0], threading.Barrier(20)
    found: list[Made] = []

    def make() -> Made:
        calls[0] += 1
        threading.Event().wait(0.05)  # the others come in the meantime
        return made(10)

    def ask() -> None:
        start.wait()
        found.append(kept.get_or_make("page", make))

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == [1]
    assert len({id(one) for one in found}) == 1
    assert len(found) == 20


def test_other_pages_are_made_at_the_same_time() -> None:
    kept, both = Kept(1000), threading.Barrier(2, timeout=5)

    def make() -> Made:
        both.wait()  # would never be met if one waited for the other
        return made(1)

    threads = [threading.Thread(target=kept.get_or_make, args=(key, make)) for key in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kept.get("a") is not None
    assert kept.get("b") is not None


def test_what_cannot_be_made_leaves_nothing_behind() -> None:
    kept = Kept(1000)

    def fail() -> Made:
        raise LookupError("no such page")

    for number in range(50):
        with pytest.raises(LookupError):
            kept.get_or_make(f"missing-{number}", fail)
    assert kept._making == {}
    assert kept.get_or_make("missing-1", maker(3)).body == b"xxx"


def test_clear_forgets_everything() -> None:
    kept = Kept(1000)
    kept.get_or_make("a", maker(3))
    kept.clear()
    assert kept.get("a") is None


def test_the_tag_follows_the_body() -> None:
    assert made(3).tag == made(3).tag
    assert made(3).tag != made(3, b"y").tag
    assert made(3).tag.startswith('W/"')


def test_a_page_has_other_names_until_everything_is_forgotten() -> None:
    kept = Kept(1000)
    page = kept.get_or_make("key", maker(3))
    kept.call(("/x", b"a=1"), "key", kept.round)
    assert kept.called(("/x", b"a=1")) is page
    assert kept.called(("/x", b"a=2")) is None
    former = kept.round
    kept.clear()
    kept.get_or_make("key", maker(3))
    kept.call(("/x", b"a=1"), "key", former)
    assert kept.called(("/x", b"a=1")) is None


def test_a_long_query_is_no_name() -> None:
    kept = Kept(1000)
    kept.get_or_make("key", maker(3))
    for length, known in ((LONGEST, True), (LONGEST + 1, False)):
        kept.call(("/x", b"q" * length), "key", kept.round)
        assert (kept.called(("/x", b"q" * length)) is not None) == known


def test_names_are_few_and_the_oldest_goes_first() -> None:
    kept = Kept(1000)
    kept.get_or_make("key", maker(3))
    for number in range(NAMES + 10):
        kept.call(("/x", b"%d" % number), "key", kept.round)
    assert len(kept._names) == NAMES
    assert kept.called(("/x", b"9")) is None
    assert kept.called(("/x", b"10")) is not None
    assert kept.called(("/x", b"%d" % (NAMES + 9))) is not None
