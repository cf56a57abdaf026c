"""GLUE's eight tasks, for which a recipe trains the model (WNLI is left out, as in every paper)."""

from finetune.glue.data import GLUE
from finetune.glue.views import VIEWS
from harness.errors import UsageError
from harness.types import Column, Suite, SuiteEntry, SuiteOptions
from suites._narrowed import narrowed


def _open(_argument: str, options: SuiteOptions) -> Suite:
    if options.splits:
        raise UsageError(
            "--splits says nothing about glue: a recipe scores every development set.",
            hint="Leave out --splits; `harness show --view modernbert` takes MNLI's matched set alone.",
        )
    columns = tuple(Column(name=name, type=task.type, tasks=(task,)) for name, task in GLUE.items())
    return narrowed(Suite(name="glue", title="GLUE", columns=columns, conventions=VIEWS), options)


SUITE = SuiteEntry(
    name="glue",
    summary="GLUE's development sets, 8 tasks; needs a recipe (`harness list recipes`)",
    open=_open,
)
