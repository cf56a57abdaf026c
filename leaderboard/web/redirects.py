"""Addresses that one would guess: /models, a model by its own name, a suite as it is typed or called."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from fastapi import FastAPI
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from leaderboard.data.suites import SiteSuite, slug
from leaderboard.web.parameters import address
from leaderboard.web.site import FORMATS, Site


def add(app: FastAPI, site: Site) -> None:
    """Let the application know them."""
    app.add_middleware(Redirects, site=site)


class Redirects:
    """Leads from such an address to the page, with its query; what is none goes on as it is."""

    def __init__(self, app: ASGIApp, site: Site) -> None:
        self.app = app
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "http" and scope["method"] == "GET":
            found = place(self._site, scope["path"])
            if found is not None:
                target = address(found, scope["query_string"].decode("latin-1"))
                await RedirectResponse(target, status_code=307)(scope, receive, send)
                return
            named = _as_page(scope["path"])
            if named != scope["path"]:  # so that the page says which names are near
                scope["path"], scope["raw_path"] = named, quote(named).encode()
        await self.app(scope, receive, send)


def place(site: Site, path: str) -> str | None:
    """Where a guessed path leads; None for one that is a page's own, or is unknown."""
    kind, _, name = path.strip("/").partition("/")
    if kind == "models" and not name:
        return "/"
    known = {"models": _model, "suites": _suite}.get(kind)
    if known is None or not name:
        return None
    for text, end in _parts(name):
        found = known(site, text)
        if found is not None:
            return f"/{kind}/{found}{end}" if found != text else None
    return None


def _parts(name: str) -> Iterator[tuple[str, str]]:
    """A name, and the same without the end of a twin's address."""
    yield name, ""
    head, dot, form = name.rpartition(".")
    if dot and form in FORMATS:
        yield head, f".{form}"


def _model(site: Site, text: str) -> str | None:
    models = site.queries.models
    if text in models:
        return text
    names = {entries[0].model.casefold(): slug for slug, entries in models.items()}
    return names.get(text.casefold())


def _suite(site: Site, text: str) -> str | None:
    suites = site.queries.suites
    if text in suites:
        return text
    named = {name.casefold(): found for found, one in reversed(suites.items()) for name in _names(one)}
    return ({slug(name): found for name, found in named.items()} | named).get(text.casefold())


def _names(one: SiteSuite) -> tuple[str, ...]:
    title = one.suite.title
    return title, one.typed, f"{one.typed.partition(':')[0]}:{title}"


def _as_page(path: str) -> str:
    """A model's path with its organisation in one part, as the pages' own addresses have it."""
    parts = path.strip("/").split("/")
    return f"/models/{parts[1]}--{parts[2]}" if len(parts) == 3 and parts[0] == "models" else path
