"""The whole site as plain files, for any web host."""

from __future__ import annotations

import os
import posixpath
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from rich.progress import Progress

from harness.errors import StoreError, UsageError
from harness.progress import console
from leaderboard.web.charts import plotly_file
from leaderboard.web.page import Page, PageRoute
from leaderboard.web.parameters import State
from leaderboard.web.settings import Settings
from leaderboard.web.site import STATIC, Site, open_site

NEEDS: Mapping[str, str] = MappingProxyType(
    {
        "/pareto": "This is a plain file: another suite, axis or filter needs a running site. "
        "harness serve opens one."
    }
)
"""What pages say where no server answers their queries; /compare does so itself."""

LINK = re.compile(rb'((?:href|src|action)=")(/[^"]*)(")')

MARK = ".encoder-leaderboard"
"""A file in every folder of ours: another one is not written over."""


def write_site(settings: Settings, folder: Path, url: str = "") -> int:
    """Write every page with its twins; links lead from file to file.

    Pages show their usual state with all of their rows: what a query would change needs the server. So
    does a page that is none of a site's files, as an imported result: what names it is no link here.

    Args:
        settings: The site's.
        folder: Where the files go.
        url: The address that they will have; badges hold it.

    Raises:
        UsageError: The folder holds something else.
        StoreError: It cannot be written.
    """
    site = open_site(settings)
    _prepare(folder)
    pages = [(route, path) for route in site.pages for path in route.all_paths(site)]
    there = {path for _, path in pages}
    try:
        with Progress(console=console(), transient=True) as progress:
            for route, path in progress.track(pages, description="Writing pages"):
                _write_page(site, route, path, folder, there)
        _write_rest(site, folder, url)
    except OSError as error:
        raise StoreError(f"{folder} cannot be written: {error.strerror}.") from error
    console().print(f"{len(pages):,} pages, with their other formats. Next: open {folder / 'index.html'}")
    return 0


def _prepare(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is no folder.", hint="Name an empty or a new folder.")
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).exists():
        raise UsageError(
            f"{folder} holds files that are none of a site's.", hint="Name an empty or a new folder."
        )
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).touch()


def _write_page(site: Site, route: PageRoute, path: str, folder: Path, there: set[str]) -> None:
    arguments = _arguments(route, path)
    usual = route.state.model_validate({})
    state = route.state.model_validate({"rows": "all"} if "rows" in route.state.model_fields else {})
    html = site.render(replace(route, view=partial(_plain_page, route)), state, arguments, "html").body
    home = _file(path)
    _put(folder / home, LINK.sub(lambda match: _linked(match, home, there), html))
    for form in route.formats:
        _put(folder / _twin(path, form), site.render(route, usual, arguments, form).body)


def _plain_page(route: PageRoute, site: Site, state: State, **arguments: str) -> Page:
    """A page with what it needs a server for."""
    page = route.view(site, state, **arguments)
    needs = [NEEDS[route.path]] if route.path in NEEDS else []
    return replace(page, notes=[*page.notes, *needs])


def _arguments(route: PageRoute, path: str) -> dict[str, str]:
    names, values = route.path.split("/"), path.split("/")
    return {n[1:-1]: v for n, v in zip(names, values, strict=True) if n.startswith("{")}


def _file(path: str) -> str:
    """The file of a page: a folder's index, so that its address stays as it is."""
    return posixpath.join(_safe(path).strip("/"), "index.html")


def _twin(path: str, form: str) -> str:
    return f"{_safe(path).strip('/') or 'index'}.{form}"


def _safe(path: str) -> str:
    """A path whose parts are names of files, whatever they were."""
    parts = [part if part.strip(".") else part.replace(".", "_") for part in path.split("/")]
    return "/".join(re.sub(r"[^\w.+,()@ -]", "_", part)[:180] for part in parts)


def _linked(match: re.Match[bytes], home: str, there: set[str]) -> bytes:
    target = _relative(match[2], home, there)
    return b"" if target is None else match[1] + target + match[3]


def _relative(link: bytes, home: str, there: set[str]) -> bytes | None:
    """Where a link of the site leads among its files, without its query; None where there is no such file."""
    path, _, fragment = link.decode().partition("#")
    path = path.partition("?")[0].replace("%20", " ")
    if path in there or path == "/":
        target = _file(path)
    elif path.rpartition(".")[0] in there or path.startswith(("/static/", "/index.")):
        target = _safe(path).strip("/")
    else:
        return None
    return (
        os.path.relpath(target, posixpath.dirname(home) or ".") + (f"#{fragment}" if fragment else "")
    ).encode()


def _put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _write_rest(site: Site, folder: Path, url: str) -> None:
    shutil.copytree(STATIC, folder / "static", dirs_exist_ok=True)
    shutil.copy(plotly_file(), folder / "static" / "plotly.min.js")
