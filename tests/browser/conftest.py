"""One server for all of these tests, one Chromium at a time for the tests of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from browsing import Reader, chromium, crowded, served
from site_data import small_app


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("browser")
            item.add_marker("slow")


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site."""
    with served(small_app(tmp_path_factory.mktemp("site"), crowded)) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Ended with each file: until then an event loop runs in this thread, which other tests would meet."""
    with sync_playwright() as playwright:
        found = chromium(playwright)
        yield found
        found.close()


@pytest.fixture
def reading(browser: Browser, base: str) -> Iterator[Callable[..., Reader]]:
    """Makes readers; none of them may have met an error by the end of the test."""
    readers: list[Reader] = []

    def new(at: str = base, **how: Any) -> Reader:
        readers.append(Reader(browser, at, **how))
        return readers[-1]

    yield new
    wrong = [one for reader in readers for one in reader.wrong]
    for reader in readers:
        reader.context.close()
    assert wrong == []


@pytest.fixture
def reader(reading: Callable[..., Reader]) -> Reader:
    """A reader at a wide window."""
    return reading()
