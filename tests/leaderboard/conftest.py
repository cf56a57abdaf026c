from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from leaderboard.web import app
from site_data import fill, small_app


@pytest.fixture(scope="session", autouse=True)
def _shared_description() -> Iterator[None]:
    """All sites have the same routes: their description is made once."""
    make, known = FastAPI.openapi, dict[str, Any]()

    def describe(own: FastAPI) -> dict[str, Any]:
        own.openapi_schema = own.openapi_schema or known or make(own)
        known.update(own.openapi_schema)
        return known

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FastAPI, "openapi", describe)
        patch.setattr(app, "SWITCH", sys.getswitchinterval())  # which would last for all tests of the process
        yield


@pytest.fixture(scope="module")
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """A client of a small site, one for each file, over what the file's own `fill` writes, if it has one."""
    make = getattr(request.module, "fill", fill)
    return TestClient(small_app(tmp_path_factory.mktemp("site"), make))
