"""The suite `stdlib`: Python's own standard library, read from the running interpreter."""

import sysconfig
from pathlib import Path

from harness.core.types import Suite, SuiteEntry, SuiteOptions
from suites._code.parsing import format_python_version
from suites._code.tasks import SourceFolder, build_code_suite


def _open_stdlib_suite(_argument: str, options: SuiteOptions) -> Suite:
    revision = format_python_version()
    folder = SourceFolder(
        root=_find_stdlib_folder(), cache=options.cache, languages=("python",), history=False
    )
    empty_suite = Suite(name="stdlib", title=f"standard library of {revision}", columns=())
    return build_code_suite(folder, empty_suite, prefix="Stdlib", options=options, revision=revision)


SUITE = SuiteEntry(
    name="stdlib",
    summary="Code search, classification and clustering over Python's standard library; needs no network",
    open=_open_stdlib_suite,
)


def _find_stdlib_folder() -> Path:
    """The folder of the running interpreter's standard library."""
    return Path(sysconfig.get_path("stdlib"))
