"""How the site finds its pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.errors import UsageError
from leaderboard import pages
from leaderboard.web.routes import load_page_routes


def test_a_page_that_does_not_load_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "licences.py").write_text('"""Entries by licence."""\nVIEW = None +\n')
    pages.__path__.append(str(tmp_path))
    try:
        with pytest.raises(UsageError, match=r"licences\.py, line 2, does not load: SyntaxError") as wrong:
            load_page_routes()
    finally:
        pages.__path__.remove(str(tmp_path))
    assert "\n" not in str(wrong.value)
