"""The suite `code:<folder>`: code search over Python source, and docstrings by package where enough."""

from harness.errors import UsageError
from harness.types import Suite, SuiteEntry, SuiteOptions
from suites import _code
from suites._tables import absolute_path, is_readable_folder


def _open(argument: str, options: SuiteOptions) -> Suite:
    root = absolute_path(argument)
    if not is_readable_folder(root):
        raise UsageError(f"{argument} is not a folder.", hint="Type --suite code:/path/to/repository.")
    return _code.suite(
        f"code:{argument}", f"code of {root.name}", root, prefix=f"{root.name}.", options=options
    )


SUITE = SuiteEntry(
    name="code",
    summary="Code search over a Python repository of yours, and its docstrings by package",
    open=_open,
    argument="folder",
    alone=False,
)
