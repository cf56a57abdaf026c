"""Records as files of mteb's results, built and written by mteb's own classes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.files import write_error
from harness.storage.record import Record

if TYPE_CHECKING:
    from mteb.models import ModelMeta

_PACKAGES = ("mteb", "torch", "sentence-transformers", "flash-attn", "transformers")
"""The packages whose versions mteb notes for each task."""

_KINDS = {"vector": "dense", "multivector": "late-interaction", "ranking": "sparse"}


def write_results(records: Sequence[Record], *, name: str, revision: str, folder: Path) -> tuple[Path, ...]:
    """Write the files of some tasks, the model's card and the notes on versions; gives the tasks' files.

    Args:
        records: Records of tasks of mteb on the data that it pins.
        name: The model's name, `org/name`.
        revision: The model's revision.
        folder: The folder of a `mteb.ResultCache`.

    Raises:
        StoreError: The folder cannot be written.
    """
    from mteb.cache import ResultCache
    from mteb.results.task_result import _write_and_merge_keyed_json

    meta, files = _build_model_meta(records, name, revision), []
    try:
        cache = ResultCache(folder)
        for record in records:
            cache.save_to_cache(_build_task_result(record), meta)
            files.append(cache.get_task_result_path(record.task.name, meta))
        # save_to_cache notes the versions that are installed now, which need not be those of the run.
        path = files[-1].with_name("run_settings.jsonl")
        _write_and_merge_keyed_json(path, [entry for one in records for entry in _list_settings(one)])
    except OSError as error:
        raise write_error(folder, error) from error
    return tuple(files)


def _build_task_result(record: Record) -> Any:
    import mteb
    from mteb.results import TaskResult

    provenance, version = record.provenance, record.identity["scoring"].split(" ")[1]
    scores = {
        split: {subset: {**metrics, "mteb_version": version} for subset, metrics in subsets.items()}
        for split, subsets in record.scores.items()
    }
    written = provenance.get("written")
    return TaskResult.from_task_results(
        mteb.get_task(record.task.name),
        scores,
        evaluation_time=sum(provenance.get("seconds", {}).values()),
        date=datetime.fromisoformat(written) if written else None,
    )


def _list_settings(record: Record) -> list[dict[str, Any]]:
    """What mteb notes of a run, with the versions of the packages that ran it."""
    packages = record.provenance.get("packages", {})
    about = {"version": {name: packages.get(name) for name in _PACKAGES}, "encode_kwargs": {}}
    return [
        {"task": record.task.name, "splits": [split], **about, "subsets": sorted(subsets)}
        for split, subsets in record.scores.items()
    ]


def _build_model_meta(records: Sequence[Record], name: str, revision: str) -> ModelMeta:
    """mteb's own card of a model that it knows, else one with what the records say and no more."""
    import mteb
    from mteb.models import ModelMeta

    try:
        # A card in a file has no loader: what names one cannot be read again.
        return mteb.get_model_meta(name, revision).model_copy(update={"loader": None})
    except (KeyError, ValueError):
        pass
    about, output = records[0].model, records[0].identity["encoding"]["output"]
    # No length and no similarity: those of a record are settings of its run, those of a card the model's.
    facts = {
        "name": name,
        "revision": revision,
        "n_parameters": about.parameters,
        "embed_dim": about.dimension,
        "framework": [] if output == "ranking" else ["PyTorch"],
        "use_instructions": any(text for one in records for text in one.identity["prompts"].values()),
        "model_type": [_KINDS[output]],
    }
    return ModelMeta.model_validate({**ModelMeta.create_empty().model_dump(), **facts})
