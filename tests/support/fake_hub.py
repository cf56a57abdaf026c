"""A hub of one's own: what a push needs of huggingface.co, over HTTP, with everything that it received."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_may_write"


class FakeHub:
    """The hub.

    Attributes:
        url: Its address, for HF_ENDPOINT.
        requests: The method and path of each request.
        files: The files of the last commit, by name.
        created: What was said of each new repository.
        validated: Every README that was to be validated.
        refuses: A sentence with which a README is refused; empty to take any.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.files: dict[str, bytes] = {}
        self.created: list[dict[str, Any]] = []
        self.validated: list[str] = []
        self.refuses = ""
        self.large: dict[str, bytes] = {}
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                hub.requests.append(f"POST {self.path}")
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                allowed = self.headers.get("Authorization") == f"Bearer {TOKEN}"
                status, content = hub.answer(self.path, body) if allowed else (403, {"error": "read only"})
                self.reply(status, content)

            def do_PUT(self) -> None:
                hub.requests.append(f"PUT {self.path}")
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hub.large[hashlib.sha256(body).hexdigest()] = body
                self.reply(200, {})

            def do_GET(self) -> None:
                hub.requests.append(f"GET {self.path}")
                self.reply(404, {"error": "nothing here"})

            def reply(self, status: int, content: dict[str, Any]) -> None:
                text = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        """The status and the content of the answer to a POST."""
        route = re.sub(r"/api/models/[^/]+/[^/]+", "", path.partition("?")[0])
        if route.endswith("/objects/batch"):
            return 200, self._offer_uploads(json.loads(body)["objects"])
        if route == "/commit/main":
            return 200, self._commit([json.loads(line) for line in body.splitlines()])
        asked = json.loads(body)
        if route == "/api/repos/create":
            self.created.append(asked)
            return 200, {"url": f"{self.url}/{asked.get('organization')}/{asked['name']}"}
        if route == "/api/validate-yaml":
            self.validated.append(asked["content"])
            errors = [{"message": self.refuses}] if self.refuses else []
            return (400 if errors else 200), {"errors": errors, "warnings": []}
        assert route == "/preupload/main", path
        modes = [
            {"path": one["path"], "shouldIgnore": False,
             "uploadMode": "lfs" if one["path"].endswith(".safetensors") else "regular"}
            for one in asked["files"]
        ]  # fmt: skip
        return 200, {"files": modes}

    def _offer_uploads(self, objects: list[dict[str, Any]]) -> dict[str, Any]:
        href = f"{self.url}/upload"
        return {
            "transfer": "basic",
            "objects": [{**one, "actions": {"upload": {"href": href}}} for one in objects],
        }

    def _commit(self, lines: list[dict[str, Any]]) -> dict[str, Any]:
        values = [(line["key"], line["value"]) for line in lines]
        regular = {v["path"]: base64.b64decode(v["content"]) for key, v in values if key == "file"}
        large = {v["path"]: self.large[v["oid"]] for key, v in values if key == "lfsFile"}
        self.files = {**regular, **large}
        url = f"{self.url}/acme/model/commit/{'f' * 40}"
        return {"success": True, "commitOid": "f" * 40, "commitUrl": url, "hookOutput": ""}
