"""Finding what has been measured: records of one model, and of the reference beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness import paths
from harness.errors import UsageError, unknown
from harness.record import Record
from harness.store import Store
from harness.types import Suite


def stores(results: Path | None) -> list[Store]:
    """The results folder, and the reference records where they are at hand."""
    reference = paths.reference_folder()
    found = [Store(paths.results_folder(results))]
    return [*found, Store(reference)] if reference else found


def records_of(model: str, results: Path | None) -> list[Record]:
    """Every final record of a model: by name, artifact key (or its start), or folder.

    Records of the results folder come before reference records of the same key.

    Raises:
        UsageError: Nothing is recorded under that name, or it names several artifacts.
    """
    everything = [record for store in stores(results) for record in store.records()]
    wanted = _artifact_of_folder(model)
    mine = [r for r in everything if _is(r, wanted or model)]
    if not mine:
        names = {r.model.name for r in everything}
        raise unknown("measured model", model, names, then="`harness list records` shows what is there.")
    artifacts = {r.model.artifact: r.model.name for r in mine}
    if len(artifacts) > 1:
        listed = ", ".join(key[:12] for key in artifacts)
        raise UsageError(
            f"{model!r} names {len(artifacts)} models: {listed}.", hint="Type one of these keys instead."
        )
    return list({r.key: r for r in reversed(mine)}.values())[::-1]


def suite_scores(records: Sequence[Record], suite: Suite) -> dict[str, float]:
    """Main scores by task name, of records made on the splits and subsets a suite asks for.

    Of several records of one task (other prompts, another length) the last one counts.
    """
    wanted = {t.name: (sorted(t.splits), sorted(t.subsets)) for t in suite.tasks}
    scores: dict[str, float] = {}
    for record in records:
        shape = (list(record.identity.get("splits", ())), list(record.identity.get("subsets", ())))
        if record.main_score is not None and wanted.get(record.task.name) == shape:
            scores[record.task.name] = record.main_score
    return scores


def _is(record: Record, model: str) -> bool:
    model = model.partition("@")[0]
    by_key = len(model) >= 6 and record.model.artifact.startswith(model)
    return record.model.name == model or by_key


def _artifact_of_folder(model: str) -> str | None:
    folder = Path(model).expanduser()
    if not folder.is_dir() or "/" not in model:
        return None
    from harness.encoder.describe import content_key

    return content_key(folder)[0]
