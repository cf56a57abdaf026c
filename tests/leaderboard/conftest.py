from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from site_data import fill, small_app


@pytest.fixture(scope="module")
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """A client of a small site, one for each file, over what the file's own `fill` writes, if it has one."""
    make = getattr(request.module, "fill", fill)
    return TestClient(small_app(tmp_path_factory.mktemp("site"), make))
