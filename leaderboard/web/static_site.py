"""The whole site as plain files, for any web host."""

from __future__ import annotations

import os
import posixpath
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.progress import Progress

from harness.core.errors import StoreError, UsageError
from harness.core.terminal import create_console
from leaderboard.data.settings import SiteSettings
from leaderboard.web.charts import locate_plotly_file
from leaderboard.web.page import Page, PageRoute
from leaderboard.web.parameters import State
from leaderboard.web.site import STATIC, Site, open_site, render_badge

NEEDS_SERVER = {
    "/pareto": "This is a plain file: another suite, axis or filter needs a running site. "
    "harness serve opens one."
}
"""Notes on pages that show little without queries; /compare has its own."""

LINK = re.compile(rb'((?:href|src|action)=")(/[^"]*)(")')

BADGE = re.compile(rb"/(badges/([^/\"()<>]+)/([^/\"()<>]+)\.svg)\)")

MARK = ".encoder-leaderboard"
"""A file in every folder that was written here: another folder is not written over."""


def write_site(settings: SiteSettings, folder: Path) -> int:
    """Write every page in its formats; links lead from file to file.

    Pages show their default state with all of their rows: what a query would change needs the server. Pages
    of imported results are not written, so nothing links to them.

    Raises:
        UsageError: The folder holds something else.
        StoreError: It cannot be written.
    """
    site = open_site(settings)
    _prepare(folder)
    # All paths first: links to other pages of the site are taken out.
    pages = [(route, path) for route in site.pages for path in route.all_paths(site)]
    paths = {path for _, path in pages}
    try:
        with Progress(console=create_console(), transient=True) as progress:
            for route, path in progress.track(pages, description="Writing pages"):
                _write_page(site, route, path, folder, paths)
        shutil.copytree(STATIC, folder / "static", dirs_exist_ok=True)
        shutil.copy(locate_plotly_file(), folder / "static" / "plotly.min.js")
    except OSError as error:
        raise StoreError(f"{folder} cannot be written: {error.strerror}.") from error
    create_console().print(
        f"{len(pages):,} pages with their other formats. Next: open {folder / 'index.html'}"
    )
    return 0


def _prepare(folder: Path) -> None:
    hint = "Name an empty or a new folder."
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is no folder.", hint=hint)
    if folder.exists() and any(folder.iterdir()) and not (folder / MARK).exists():
        raise UsageError(f"{folder} holds files that `--static` did not write.", hint=hint)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).touch()


def _write_page(site: Site, route: PageRoute, path: str, folder: Path, paths: set[str]) -> None:
    arguments = route.match_path(path) or {}
    # The defaults, as a file cannot answer a query.
    state = route.state.model_validate({})
    html = site.render(
        replace(route, view=partial(_build_static_page, route)), state.show_all_rows(), arguments, "html"
    ).body
    home = _resolve_page_file(path)
    _write_site_file(folder / home, LINK.sub(lambda match: _build_relative_link(match, home, paths), html))
    for name, suite, entry in set(BADGE.findall(html)) if site.settings.url else ():
        _write_site_file(folder / name.decode(), render_badge(site, suite.decode(), entry.decode()).encode())
    for form in route.formats:
        name = f"{_clean_file_path(path).strip('/') or 'index'}.{form}"
        _write_site_file(folder / name, site.render(route, state, arguments, form).body)


def _build_static_page(route: PageRoute, site: Site, state: State, **arguments: str) -> Page:
    """A page with the note on what it needs a server for."""
    page = route.view(site, state, **arguments)
    return replace(page, notes=[*page.notes, *filter(None, [NEEDS_SERVER.get(route.path)])])


def _resolve_page_file(path: str) -> str:
    """The file of a page: a folder's index, so that its address stays as it is."""
    return posixpath.join(_clean_file_path(path).strip("/"), "index.html")


def _clean_file_path(path: str) -> str:
    """A path whose parts are names of files, whatever they were."""
    # A part of dots alone would lead out of the folder.
    parts = [part if part.strip(".") else part.replace(".", "_") for part in path.split("/")]
    return "/".join(re.sub(r"[^\w.+,()@ -]", "_", part)[:180] for part in parts)


def _build_relative_link(match: re.Match[bytes], home: str, paths: set[str]) -> bytes:
    """A link of the site as one among its files, without its query; empty if no file stands for it."""
    path, _, fragment = match[2].decode().partition("#")
    path = path.partition("?")[0].replace("%20", " ")
    if path in paths or path == "/":
        target = _resolve_page_file(path)
    elif path.rpartition(".")[0] in paths or path.startswith(("/static/", "/index.")):
        target = _clean_file_path(path).strip("/")
    else:
        return b""
    relative = os.path.relpath(target, posixpath.dirname(home) or ".")
    return match[1] + (f"{relative}#{fragment}" if fragment else relative).encode() + match[3]


def _write_site_file(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
