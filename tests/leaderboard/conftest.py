from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from site_data import fill, small_app


@pytest.fixture(scope="session", autouse=True)
def _shared_description() -> Iterator[None]:
    """All sites have the same routes: their description is made once."""
    make, known = FastAPI.openapi, dict[str, Any]()

    def describe(app: FastAPI) -> dict[str, Any]:
        app.openapi_schema = app.openapi_schema or known or make(app)
        known.update(app.openapi_schema)
        return known

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FastAPI, "openapi", describe)
        yield


@pytest.fixture(scope="module")
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """A client of a small site, one for each file, over what the file's own `fill` writes, if it has one."""
    make = getattr(request.module, "fill", fill)
    return TestClient(small_app(tmp_path_factory.mktemp("site"), make))
