"""The route of the intake, with what the API's description says of it."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.security import HTTPBearer
from starlette.responses import Response

from harness.record import Record
from leaderboard.access.intake import Intake

ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The record was there already, with the same score; nothing was changed."},
    201: {"description": "The record was added."},
    400: {"description": "The body is not JSON in UTF-8, or broke off."},
    401: {"description": "No token, or one that does not hold."},
    403: {"description": "The token does not allow this."},
    404: {"description": "This site takes no records."},
    408: {"description": "The body did not arrive in time."},
    409: {"description": "Another score stands under this key; it stays."},
    413: {"description": "The body is too large."},
    415: {"description": "The body is not application/json, or compressed."},
    422: {"description": "The body is no finished final record, or its key is not that of its identity."},
    429: {"description": "Too many requests; Retry-After says when to ask again."},
    503: {"description": "The site cannot take records now; Retry-After says when to ask again."},
}


def router(intake: Intake) -> APIRouter:
    """The route that takes records; it answers 404 as long as no token was made."""
    routes = APIRouter()
    body = {"required": True, "content": {"application/json": {"schema": _schema()}}}
    token = HTTPBearer(auto_error=False, description="From `harness token create`.")

    @routes.post(
        "/api/records",
        status_code=201,
        summary="Add one record",
        responses=ANSWERS,
        dependencies=[Depends(token)],
        openapi_extra={"requestBody": body},
    )
    async def add_record(request: Request) -> Response:
        """Take one finished final record as a run wrote it; posting it again changes nothing."""
        return await intake.answer(request)

    return routes


def _schema() -> dict[str, Any]:
    """The record's JSON Schema with every part in its place: a reference would point out of it."""
    schema = Record.model_json_schema()
    parts = schema.pop("$defs")

    def placed(value: Any) -> Any:
        if isinstance(value, list):
            return [placed(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            return placed(parts[value["$ref"].removeprefix("#/$defs/")])
        return {name: placed(item) for name, item in value.items()}

    found: dict[str, Any] = placed(schema)
    return found
