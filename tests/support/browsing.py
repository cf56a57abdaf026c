"""A reader at a browser and a site to read, for the tests that drive Chromium."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import uvicorn
from fastapi import FastAPI
from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright, Request

from site_data import Import, fill, names, put_imports, spread_scores, standard_imports

SWITCHES = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)  # fmt: skip

CROWD = 30
"""Models beside the standard ones, so that a suite has two pages of 25 rows."""

NANO = "/suites/nanobeir"


def crowded(folder: Path) -> None:
    """The standard records and imports, and a crowd of models with all of NanoBEIR."""
    fill(folder)
    card = {"card": True, "n_parameters": 33_000_000, "embed_dim": 384, "max_tokens": 512}
    crowd = [
        Import(model=f"crowd/model-{at:02}", scores=spread_scores(names("nanobeir"), 0.3 + at / 100),
               card={**card, "adapted_from": "acme/tiny-base"} if at % 2 else card)
        for at in range(CROWD)
    ]  # fmt: skip
    put_imports(folder / "results", [*standard_imports(), *crowd])


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """The application on a free port of this machine; its address."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    until = time.monotonic() + 120
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        assert time.monotonic() < until, "the server did not start in time"
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()


def chromium(playwright: Playwright) -> Browser:
    """The Chromium of this machine."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    return playwright.chromium.launch(executable_path=found, args=list(SWITCHES))


class Reader:
    """Someone at a browser: opens pages of a site, and notes what goes wrong.

    `wrong` holds errors and warnings of the console, of scripts, and requests to other hosts; `asked` holds
    every address that was asked for.
    """

    def __init__(self, browser: Browser, base: str, *, width: int = 1440, **how: Any) -> None:
        self.base = base
        self.wrong: list[str] = []
        self.asked: list[str] = []
        self.context = browser.new_context(
            base_url=base, viewport={"width": width, "height": 900 if width > 500 else 844}, **how
        )
        self.context.set_default_timeout(10_000)
        self.context.on("console", self._console)
        self.context.on("weberror", lambda error: self.wrong.append(str(error.error)))
        self.context.on("request", self._request)
        self.page: Page = self.context.new_page()

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(f"{message.text} ({message.location['url']})")

    def _request(self, request: Request) -> None:
        self.asked.append(request.url)
        if not request.url.startswith((f"{self.base}/", "data:", "blob:")):
            self.wrong.append(f"left the host: {request.url}")

    def open(self, path: str, *, status: int = 200) -> Page:
        """Go to a page; one that is missing is the only trouble that it may report."""
        answer = self.page.goto(path, wait_until="load")
        assert answer is not None
        assert answer.status == status, path
        if status != 200:
            self.wrong = [one for one in self.wrong if f"status of {status}" not in one]
        return self.page

    def json(self, path: str) -> dict[str, Any]:
        """A page's JSON, requested beside the browser's page."""
        found: dict[str, Any] = self.context.request.get(path).json()
        return found

    def data(self) -> dict[str, Any]:
        """The page as it is now, as JSON."""
        path, _, query = self.page.url.removeprefix(self.base).partition("?")
        return self.json(f"{'/index' if path == '/' else path}.json?{query}")

    def rows(self, table: str = "suite") -> list[str]:
        """The keys of a table's rows, from top to bottom."""
        found: list[str] = self.page.eval_on_selector_all(
            f"#t-{table} tbody tr[data-key]", "rows => rows.map(row => row.dataset.key)"
        )
        return found

    def columns(self, table: str = "suite") -> list[str]:
        """The keys of a table's columns."""
        found: list[str] = self.page.eval_on_selector_all(
            f"#t-{table} thead th[data-key]", "all => all.map(one => one.dataset.key)"
        )
        return found

    def goes(self, part: str) -> None:
        """Wait until the address has this in it, and its state is shown."""
        self.page.wait_for_function(
            "part => decodeURIComponent(location.href).includes(part)"
            " && !document.querySelector('main[aria-busy]')",
            arg=part,
        )

    def leaves(self, part: str) -> None:
        """Wait until the address has this in it no longer, and its state is shown."""
        self.page.wait_for_function(
            "part => !decodeURIComponent(location.href).includes(part)"
            " && !document.querySelector('main[aria-busy]')",
            arg=part,
        )

    def said(self) -> str:
        """What was last said to a screen reader."""
        return self.page.locator("#said").text_content() or ""

    def root(self, name: str) -> str | None:
        """An attribute of the page's root."""
        return self.page.locator("html").get_attribute(name)


def keys(data: dict[str, Any], table: str = "suite") -> list[str]:
    """The keys of the rows of a table."""
    return [row["key"] for row in rows_of(data, table)]


def rows_of(data: dict[str, Any], table: str = "suite") -> Sequence[dict[str, Any]]:
    """The rows of a table of a page's JSON."""
    found: Sequence[dict[str, Any]] = next(one for one in data["tables"] if one["name"] == table)["rows"]
    return found


def values(data: dict[str, Any], column: str, table: str = "suite") -> list[float]:
    """The numbers of a column of a table, where there are some."""
    cells = [row["cells"].get(column, {}) for row in rows_of(data, table) if row["kind"] != "part"]
    return [cell["value"] for cell in cells if cell.get("value") is not None]


def query(reader: Reader) -> dict[str, list[str]]:
    """The query of the page as it is now."""
    return parse_qs(urlsplit(reader.page.url).query)
