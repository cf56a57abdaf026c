"""Security headers: what a browser may do with a page."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PLOT = "interactive_plot"
"""A page with the interactive plot says so: `request.state.interactive_plot = True`."""

_POLICY = {
    "default-src": "'self'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "object-src": "'none'",
    "base-uri": "'none'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
}

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cross-Origin-Opener-Policy": "same-origin",
}
"""On every answer. Strict-Transport-Security is not here: the proxy that speaks TLS knows about it."""


def policy(*, plot: bool = False) -> str:
    """The Content-Security-Policy; a page with the interactive plot may style its elements.

    >>> "unsafe-inline" in policy(), "style-src 'self' 'unsafe-inline';" in policy(plot=True)
    (False, True)
    """
    parts = {**_POLICY, "style-src": "'self' 'unsafe-inline'"} if plot else _POLICY
    return "; ".join(f"{name} {value}" for name, value in parts.items())


class SecurityHeaders:
    """Puts the headers on every answer that has none of its own.

    Wrap the whole application in it, so that answers to a failure have them too.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._plain, self._plot = policy(), policy(plot=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        state = scope.setdefault("state", {})

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                csp = self._plot if state.get(PLOT) else self._plain
                for name, value in {"Content-Security-Policy": csp, **HEADERS}.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, with_headers)
