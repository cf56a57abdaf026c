"""The suite `stdlib`: Python's own standard library, read from the running interpreter."""

import sysconfig
from pathlib import Path

from harness.core.types import Suite, SuiteEntry, SuiteOptions
from suites._code.parsing import python_version
from suites._code.source_folder import SourceFolder, code_suite


def _open(_argument: str, options: SuiteOptions) -> Suite:
    revision = python_version()
    folder = SourceFolder(root=_stdlib_root(), cache=options.cache, languages=("python",), history=False)
    made = Suite(name="stdlib", title=f"standard library of {revision}", columns=())
    return code_suite(folder, made, prefix="Stdlib", options=options, revision=revision)


SUITE = SuiteEntry(
    name="stdlib",
    summary="Code search, classification and clustering over Python's standard library; needs no network",
    open=_open,
)


def _stdlib_root() -> Path:
    """The folder of the running interpreter's standard library."""
    return Path(sysconfig.get_path("stdlib"))
