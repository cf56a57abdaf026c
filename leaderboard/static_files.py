"""The files of leaderboard/static, compressed once, and kept by a browser as long as they stay the same."""

from __future__ import annotations

import mimetypes
from functools import cache
from pathlib import Path

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from leaderboard.answers import answer
from leaderboard.kept import Made
from leaderboard.plots.interactive import plotly_file
from leaderboard.site import STATIC, asset

YEAR = 365 * 24 * 3600
DAY = 24 * 3600
PLOTLY = "plotly.min.js"
ICON = "favicon.svg"
ROBOTS = "User-agent: *\nAllow: /\n"

TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


def add(app: FastAPI) -> None:
    """Add their routes, and the two files that everybody asks every site for."""

    @app.get(f"/static/{PLOTLY}", include_in_schema=False)
    def plotly(request: Request) -> Response:
        return answer(request, _made(plotly_file()), seconds=YEAR)

    @app.get("/static/{name}", include_in_schema=False)
    def static(request: Request, name: str) -> Response:
        path = _files().get(name)
        if path is None:
            raise HTTPException(404)
        current = asset(name).rpartition("=")[2]  # another one may be a newer site's
        return answer(request, _made(path), seconds=YEAR if request.query_params.get("v") == current else 0)

    @app.get("/favicon.ico", include_in_schema=False)
    def icon(request: Request) -> Response:
        return answer(request, _made(STATIC / ICON), seconds=DAY)

    @app.get("/robots.txt", include_in_schema=False)
    def robots(request: Request) -> Response:
        return answer(request, Made(body=ROBOTS.encode(), type="text/plain; charset=utf-8"), seconds=DAY)


@cache
def _files() -> dict[str, Path]:
    """The files by name: a path that is not among them leads nowhere."""
    return {path.name: path for path in STATIC.iterdir() if path.is_file()}


def _made(path: Path) -> Made:
    return _of(path, path.stat().st_mtime_ns)


@cache
def _of(path: Path, _mtime: int) -> Made:
    """A file as it is sent; made anew where it changed."""
    kind = TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return Made(body=path.read_bytes(), type=kind)
