"""The suite `stdlib`: Python's own standard library, read from the running interpreter."""

import sysconfig
from pathlib import Path

from harness.types import Suite, SuiteEntry, SuiteOptions
from suites import _code, _python


def _open(_argument: str, options: SuiteOptions) -> Suite:
    revision = _python.stdlib_revision()
    title = f"standard library of {revision}"
    root = _stdlib_root()
    return _code.suite("stdlib", title, root, prefix="Stdlib", options=options, revision=revision)


SUITE = SuiteEntry(
    name="stdlib",
    summary="Code search, classification and clustering over Python's standard library; needs no network",
    open=_open,
)


def _stdlib_root() -> Path:
    """The folder of the running interpreter's standard library."""
    return Path(sysconfig.get_path("stdlib"))
