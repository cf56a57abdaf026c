"""A local S3 server: moto's storage, behind the two promises of S3 that moto's server does not make.

A request takes effect as a whole, after its whole body has come; and of conditional requests that race
one wins. Its answers can be made to fail, or to be lost after the request took effect.
"""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from wsgiref.types import StartResponse, WSGIEnvironment

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

REFUSALS = {
    "denied": ("403 Forbidden", "AccessDenied"),
    "signature": ("403 Forbidden", "SignatureDoesNotMatch"),
    "slow": ("503 Slow Down", "SlowDown"),
    "broken": ("500 Internal Server Error", "InternalError"),
}


class S3Server:
    """The server.

    Attributes:
        requests: The method and path of each request so far.
        refusals: What the next requests are answered, by names in `REFUSALS`; they have no effect.
        lost: The number of next requests whose answers are lost.
        received: The bytes of all bodies so far.
        pause: Seconds after each 128 kB of a body, which makes a line slow.
        cut: The bodies that broke off, since their sender was killed.
        ignores_conditions: Whether it overwrites in spite of If-None-Match, as old versions of others do.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.refusals: list[str] = []
        self.lost = self.received = self.cut = 0
        self.pause = 0.0
        self.ignores_conditions = False
        self._lock = threading.Lock()
        self._storage = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=_Quiet)
        self.url = f"http://127.0.0.1:{self._server.port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        body = self._receive(environ, length)
        if len(body) < length:  # the client was killed
            self.cut += 1
            return _refused(start, "400 Bad Request", "IncompleteBody")
        environ["wsgi.input"] = io.BytesIO(body)
        if self.ignores_conditions:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        with self._lock:
            self.requests.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
            if self.refusals:
                return _refused(start, *REFUSALS[self.refusals.pop(0)])
            if self.lost:
                self.lost -= 1
                b"".join(self._storage(environ, lambda *_: lambda _: None))
                return _refused(start, *REFUSALS["broken"])
            return [*self._storage(environ, start)]

    def _receive(self, environ: WSGIEnvironment, length: int) -> bytes:
        """The body of a request, as far as it comes."""
        body = bytearray()
        with suppress(OSError):
            while len(body) < length and (more := environ["wsgi.input"].read(min(2**17, length - len(body)))):
                body += more
                self.received += len(more)
                time.sleep(self.pause)
        return bytes(body)

    @contextmanager
    def counting(self) -> Iterator[list[str]]:
        """The methods of the requests made meanwhile."""
        before, methods = len(self.requests), list[str]()
        yield methods
        methods += [one.partition(" ")[0] for one in self.requests[before:]]


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        """Log nothing."""


def _refused(start: StartResponse, status: str, code: str) -> list[bytes]:
    start(status, [("Content-Type", "application/xml")])
    return [f"<Error><Code>{code}</Code><Message>{code} as asked for</Message></Error>".encode()]
