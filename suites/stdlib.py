"""The embedded default: Python's own standard library, read from the running interpreter."""

from harness.types import Suite, SuiteEntry, SuiteOptions
from suites import _code, _python


def _open(_argument: str, options: SuiteOptions) -> Suite:
    revision = _python.stdlib_revision()
    title = f"standard library of {revision}"
    root = _python.stdlib_root()
    return _code.suite("stdlib", title, root, prefix="Stdlib", options=options, revision=revision)


SUITE = SuiteEntry(
    name="stdlib",
    summary="Code search, classification and clustering over Python's standard library; needs no network",
    open=_open,
)
