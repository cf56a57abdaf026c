from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from site_data import small_app


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """A client of a small site, one for each file."""
    return TestClient(small_app(tmp_path_factory.mktemp("site")))
