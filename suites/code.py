"""The suite `code:<folder>`: search over a repository's functions, by documentation and by commits."""

from pathlib import Path

from harness.errors import UsageError
from harness.types import Suite, SuiteEntry, SuiteOptions
from suites._code import SourceFolder, code_suite
from suites._project import project_name, required_name
from suites._tables import absolute_path, is_readable_folder


def _open(argument: str, options: SuiteOptions) -> Suite:
    root, name = _parts(argument)
    made = Suite(name=f"code:{argument}", title=f"code of {name}", columns=())
    return code_suite(SourceFolder(root=root, cache=options.cache), made, prefix=f"{name}.", options=options)


def _parts(argument: str) -> tuple[Path, str]:
    """The folder of `FOLDER` or `NAME=FOLDER`, and the project's name."""
    root = absolute_path(argument)
    if is_readable_folder(root):
        return root, project_name(root)
    name, _, rest = argument.partition("=")
    root = absolute_path(rest)
    if not (rest and is_readable_folder(root)):
        raise UsageError(f"{argument} is not a folder.", hint="Type --suite code:/path/to/repository.")
    return root, required_name(name)


SUITE = SuiteEntry(
    name="code",
    summary="Code search over a repository of yours, by documentation and by commits (docs/code.md)",
    open=_open,
    argument="folder",
    alone=False,
)
