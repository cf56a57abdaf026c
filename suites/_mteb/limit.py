"""A sample of the examples of a loaded mteb task, for a quick look: the same rows for every model."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harness.core.errors import DataError
from harness.core.types import SEED

if TYPE_CHECKING:
    from mteb.abstasks.abstask import AbsTask


def limit_examples(task: AbsTask, limit: int) -> None:
    """Leave a loaded task at most so many examples in each scored split and subset.

    These are queries, with the whole corpus or all their candidates; rows to be classified, by a classifier
    that is trained as usual; pairs, of which a translation is searched among those of the sample; or texts to
    be clustered, of one set where there are several.

    Raises:
        DataError: The task's own metric compares groups of queries, or it trains on a split that it scores.
    """
    from mteb.abstasks import AbsTaskRetrieval

    data: Any = task.dataset
    # Code that compares some queries with others would meet groups that are torn apart.
    task_scores = getattr(type(task), "task_specific_scores", None)
    if task_scores not in (None, AbsTaskRetrieval.task_specific_scores):
        raise DataError(
            f"{task.metadata.name} compares groups of queries, so --limit cannot leave some out.",
            hint="Run it without --limit.",
        )
    trained = "" if getattr(task, "is_cross_validation", False) else getattr(task, "train_split", "")
    if trained in task.eval_splits:
        raise DataError(
            f"{task.metadata.name} trains a classifier on a split that it scores, so --limit cannot cut it.",
            hint="Run it without --limit.",
        )
    kinds = {kind.__name__ for kind in type(task).__mro__}
    for splits in (data, *(part for part in data.values() if isinstance(part, dict))):
        for split in set(task.eval_splits) & splits.keys():
            splits[split] = _limit_split(task, splits[split], limit, kinds)
    if "AbsTaskClustering" in kinds:
        # Else mteb would draw 4 % of the sample.
        vars(task).update(max_fraction_of_documents_to_embed=None, max_document_to_embed=None)


def _limit_split(task: Any, rows: Any, limit: int, kinds: set[str]) -> Any:
    """The sample of a split, of mteb's form for the kind of task."""
    if isinstance(rows, Mapping):
        return _limit_queries(rows, limit)
    classified = kinds & {"AbsTaskClassification", "AbsTaskPairClassification"}
    if "AbsTaskClusteringLegacy" in kinds or ("AbsTaskPairClassification" in kinds and len(rows) == 1):
        # Each row holds lists of examples: those of the row with the most labels are drawn from.
        row = max(rows, key=lambda row: len({*row[task.label_column_name]}))
        labels = row[task.label_column_name]
        places = _sample(range(len(labels)), limit, labels if classified else ())
        lists = {name: values for name, values in row.items() if isinstance(values, list)}
        return type(rows).from_dict({name: [[values[at] for at in places]] for name, values in lists.items()})
    if "AbsTaskClustering" in kinds:
        share = task.max_fraction_of_documents_to_embed
        limit = min(
            limit, task.max_document_to_embed or limit, max(3, int(share * len(rows))) if share else limit
        )
    labels = rows[task.label_column_name][:] if classified else ()
    return rows.select(_sample(range(len(rows)), limit, labels))


def _limit_queries(part: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """The judged queries of a sample with their judgements and candidates; the corpus stays whole."""
    judged, candidates = part["relevant_docs"], part.get("top_ranked")
    ids = part["queries"]["id"][:]
    places = _sample([at for at, name in enumerate(ids) if judged.get(name)], limit)
    names = {ids[at] for at in places}
    kept = {"queries": part["queries"].select(places)}
    kept["relevant_docs"] = {name: judged[name] for name in names}
    if candidates is not None:
        kept["top_ranked"] = {name: candidates[name] for name in names if name in candidates}
        # Only candidates are compared, so that no other document has to be encoded.
        compared = {document for documents in kept["top_ranked"].values() for document in documents}
        documents = part["corpus"]["id"][:]
        kept["corpus"] = part["corpus"].select([at for at, name in enumerate(documents) if name in compared])
    return {**part, **kept}


def _sample(places: Sequence[int], most: int, labels: Sequence[Any] = ()) -> list[int]:
    """The places of a sample, in order; each label is in it where there is room."""
    drawn = random.Random(SEED).sample(places, len(places))
    if labels:
        # mteb takes a task of which it sees two labels for one of yes and no, and fails.
        first = [*{str(labels[at]): at for at in reversed(drawn)}.values()]
        drawn = [*dict.fromkeys((*first, *drawn))]
    return sorted(drawn[:most])
