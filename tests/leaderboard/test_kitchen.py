"""The kitchen: clients take turns, a page is made once, and what fails holds up nobody."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from leaderboard.kept import Kept, Made
from leaderboard.kitchen import Kitchen


def page(name: str) -> Made:
    return Made(body=name.encode(), type="text/plain")


class Cooked:
    """Notes what was made in which order; the first one waits until all are ordered."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.go = threading.Event()

    def maker(self, name: str) -> Callable[[], Made]:
        def make() -> Made:
            assert self.go.wait(10)
            self.names.append(name)
            return page(name)

        return make


async def ordered(orders: list[tuple[str, str]]) -> list[str]:
    """Order pages, each by a client; the order in which they were made."""
    kitchen, cooked = Kitchen(Kept(10_000)), Cooked()
    tasks = []
    for client, name in orders:
        tasks.append(asyncio.ensure_future(kitchen.make(name, cooked.maker(name), client)))
        await asyncio.sleep(0)  # it stands in its row now
    cooked.go.set()
    made = await asyncio.gather(*tasks)
    assert [one.body.decode() for one in made] == [name for _, name in orders]
    assert all("br" in one.packed for one in made)
    return cooked.names


def test_a_client_with_many_pages_keeps_others_waiting_for_one() -> None:
    many = [("greedy", f"g{number}") for number in range(20)]
    made = asyncio.run(ordered([*many, ("one", "a"), ("two", "b"), ("one", "c")]))
    assert made[:1] == ["g0"]
    assert max(made.index("a"), made.index("b")) <= 3
    assert made.index("c") <= 5
    assert [name for name in made if name.startswith("g")] == [name for _, name in many]


def test_neighbours_of_an_ipv6_network_are_one_client() -> None:
    many = [(f"2001:db8::{number:x}", f"g{number}") for number in range(1, 20)]
    made = asyncio.run(ordered([*many, ("192.0.2.1", "a")]))
    assert made.index("a") <= 2


def test_who_asks_for_the_same_page_waits_for_it() -> None:
    async def ask() -> None:
        kitchen, cooked = Kitchen(Kept(1000)), Cooked()
        make = cooked.maker("page")
        tasks = [asyncio.ensure_future(kitchen.make("page", make, f"c{n}")) for n in range(20)]
        await asyncio.sleep(0)
        cooked.go.set()
        found = await asyncio.gather(*tasks)
        assert cooked.names == ["page"]
        assert len({id(one) for one in found}) == 1

    asyncio.run(ask())


def test_what_cannot_be_made_is_told_to_all_and_holds_up_nobody() -> None:
    def fail() -> Made:
        raise LookupError("no such page")

    async def ask() -> None:
        kitchen = Kitchen(Kept(1000))
        wrong = [kitchen.make("wrong", fail, client) for client in ("a", "b")]
        right = kitchen.make("right", lambda: page("right"), "a")
        *failed, made = await asyncio.gather(*wrong, right, return_exceptions=True)
        assert [type(one) for one in failed] == [LookupError, LookupError]
        assert isinstance(made, Made)
        with pytest.raises(LookupError):
            await kitchen.make("wrong", fail, "a")
        assert (await kitchen.make("wrong", lambda: page("now"), "a")).body == b"now"

    asyncio.run(ask())


def test_a_client_that_leaves_does_not_stop_the_page() -> None:
    async def ask() -> None:
        kitchen, cooked = Kitchen(Kept(1000)), Cooked()
        tasks = [asyncio.ensure_future(kitchen.make(n, cooked.maker(n), "a")) for n in ("first", "second")]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        cooked.go.set()
        assert (await kitchen.make("third", lambda: page("third"), "b")).body == b"third"
        assert (await kitchen.make("second", cooked.maker("second"), "a")).body == b"second"
        assert cooked.names == ["first", "second"]

    asyncio.run(ask())
