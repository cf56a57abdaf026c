"""The benchmark that is to be predicted, and the import to fit on."""

from __future__ import annotations

from pathlib import Path

from harness import catalog
from harness.errors import UsageError, unknown
from harness.imported import Imported
from harness.store import Store
from harness.types import Suite, SuiteOptions


def open_target(text: str, options: SuiteOptions) -> tuple[str, Suite]:
    """The suite of a benchmark, and what --suite takes for it.

    Args:
        text: What --suite takes, or the name of a benchmark alone: "MTEB(eng, v2)".
        options: With the cache that a suite may need.

    Raises:
        UsageError: There is none; it names the nearest.
    """
    typed = text if text.partition(":")[0] in catalog.suites() else _offered(text)
    suite = catalog.open_suite(typed, options)
    learnt = any(task.output == "label" for task in suite.tasks)
    if len(suite.tasks) < 2 or learnt or suite.predictor is not None:
        raise UsageError(
            f"{suite.title} is no benchmark that a few of its tasks could predict.",
            hint="`harness list benchmarks` shows those that can be.",
        )
    return typed, suite


def _offered(name: str) -> str:
    entries = catalog.suites().values()
    offers = {o.name: f"{e.name}:{o.name}" for e in entries for o in e.offers() if o.kind == "benchmark"}
    if name not in offers:
        known = [*offers, *(entry.name for entry in entries if entry.alone)]
        raise unknown("benchmark", name, known, then="`harness list benchmarks` shows all.")
    return offers[name]


def open_import(name: str, results: Path) -> Imported:
    """The import of a source; the only one there is where no source is named.

    Raises:
        UsageError: There is none, or there are several.
    """
    found = {one.source: one for one in Store(results).imported()}
    if not found:
        raise UsageError(
            f"Nothing was imported into {results}.", hint="Type harness import mteb-results PATH first."
        )
    if name and name not in found:
        raise unknown("import", name, found, then="`harness import` makes one.")
    if not name and len(found) > 1:
        raise UsageError(
            f"There are {len(found)} imports.", hint=f"Type --from with one of {', '.join(found)}."
        )
    return found[name] if name else next(iter(found.values()))
