"""Refusals: what a request that is not carried out is answered."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import JSONResponse


class Refusal(Exception):
    """A request that is not carried out, and why.

    Attributes:
        status: The HTTP status.
        message: What is wrong, in a sentence.
        hint: What exists or what to do instead; empty for nothing.
        headers: What the answer needs beside its body.
        outcome: One word for the audit and the metrics.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        hint: str = "",
        headers: Mapping[str, str] | None = None,
        outcome: str = "refused",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.hint = hint
        self.headers = dict(headers or {})
        self.outcome = outcome

    def response(self) -> JSONResponse:
        """The refusal as the site says every error."""
        error = {"status": self.status, "message": self.message, "hint": self.hint}
        headers = {"Cache-Control": "no-store", **self.headers}
        return JSONResponse({"error": error}, status_code=self.status, headers=headers)
