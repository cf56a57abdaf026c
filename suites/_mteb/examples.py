"""Per-example rows of mteb's tasks: its predictions joined with gold labels and stable ids that we attach.

mteb writes predictions without gold labels and row ids. Retrieval results are taken from our own search; the
rows that a task drew are recovered by replaying the draws from the random state before its run. For a quick
look a loaded task is cut to a sample of its examples, the same rows for every model.
"""

from __future__ import annotations

import copy
import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.errors import DataError
from harness.core.types import SEED
from harness.storage.record import EXAMPLE_COLUMNS, RUN_COLUMNS, RUN_DEPTH
from suites._mteb.model import CheckedEncoder, Model
from suites._mteb.query_metrics import compute_query_metric

if TYPE_CHECKING:
    from datasets import Dataset
    from mteb.abstasks.abstask import AbsTask


MOST = 1_000_000
"""Most per-example rows of a task; a task with more has none."""


class Examples:
    """The per-example columns of a task, gathered while its splits and subsets run.

    They are complete or absent: with too many rows, or after an error in one, the columns are empty and
    `notes` say why. A score never depends on them.
    """

    def __init__(self, task: AbsTask, model: Model | CheckedEncoder, folder: Path) -> None:
        self._task = task
        self._model = model
        self.folder: Path | None = None if _is_retrieval_task(task) else folder
        self._random: Any = None
        self._columns: dict[str, list[Any]] = {name: [] for name in EXAMPLE_COLUMNS}
        self._kept = True
        self.notes: tuple[str, ...] = ()

    @property
    def columns(self) -> dict[str, list[Any]]:
        """The columns of the per-example file (harness.storage.record.EXAMPLE_COLUMNS), {} without rows."""
        return self._columns if self._count else {}

    def prepare_subsets(self, split: str, subsets: Sequence[str]) -> None:
        """Save the random state before the next subsets; `folder` is where mteb must write predictions."""
        # mteb draws from this state while it scores; the copy draws the same rows again afterwards.
        self._random = copy.deepcopy(self._task.rng_state)
        with self._guard_examples():
            if is_parallel(self._task):
                rows = len(self._task.dataset[split])  # type: ignore[index]
                self._allow(self._count + rows * len(subsets))

    def add_subset_rows(self, split: str, subsets: Sequence[str]) -> None:
        """Add the rows of a split's subsets."""
        with self._guard_examples():
            written = self._read_predictions() if self._kept else {}
            for subset in subsets if self._kept else ():
                self._add_subset_lines(split, subset, written)

    @property
    def _count(self) -> int:
        return len(self._columns["split"])

    def _add_subset_lines(self, split: str, subset: str, written: Mapping[str, Any]) -> None:
        for line in self._iter_subset_lines(split, subset, written):
            for name, value in zip(EXAMPLE_COLUMNS, (split, subset, *line), strict=True):
                self._columns[name].append(value)
            if not self._allow(self._count):
                return

    def _iter_subset_lines(self, split: str, subset: str, written: Mapping[str, Any]) -> Iterable[Line]:
        task = self._task
        if _is_retrieval_task(task):
            return _iter_retrieval_lines(task, self._model.found[subset, split], split, subset)
        rows = _select_subset_rows(task, split, subset)
        predictions = written.get("parallel" if is_parallel(task) else subset, {}).get(split)
        if predictions is None or rows is None:
            return ()
        return _build_task_lines(task, rows, predictions, split=split, subset=subset, random=self._random)

    def _read_predictions(self) -> Mapping[str, Any]:
        """mteb's predictions since the last call; the file is removed, as mteb would rewrite all of it."""
        path = (self.folder or Path()) / self._task.prediction_file_name
        if self.folder is None or not path.exists():
            return {}
        written: Mapping[str, Any] = json.loads(path.read_bytes())
        path.unlink()
        return written

    def _allow(self, count: int) -> bool:
        if count > MOST:
            self._give_up(f"No per-example results: there are more than {MOST:,}.")
        return self._kept

    @contextmanager
    def _guard_examples(self) -> Iterator[None]:
        """Drop the per-example rows on an error in them, and go on."""
        try:
            yield
        # Of any kind: the rows come from the code and data of any task, and its score is worth more than they
        # are.
        except Exception as error:
            self._give_up(f"No per-example results: {type(error).__name__}: {error}")

    def _give_up(self, note: str) -> None:
        if self._kept:
            self.notes = (note,)
        self._kept, self.folder = False, None
        self._columns = {name: [] for name in EXAMPLE_COLUMNS}


def _is_retrieval_task(task: AbsTask) -> bool:
    return _is(task, "AbsTaskRetrieval")


def _is(task: AbsTask, name: str) -> bool:
    return any(c.__name__ == name for c in type(task).__mro__)


def is_parallel(task: AbsTask) -> bool:
    """Whether mteb scores all language pairs of a parallel corpus together, under one name."""
    return bool(getattr(task, "parallel_subsets", False))


def _select_subset_rows(task: Any, split: str, subset: str) -> Any:
    from datasets import Dataset

    holder: Any = task.dataset
    if isinstance(holder, Mapping) and subset in holder:
        holder = holder[subset]
    rows = holder[split]
    if not isinstance(rows, Dataset):
        return None
    if _is(task, "AbsTaskPairClassification") and len(rows) == 1:
        inside = rows[0]  # mteb 1 had all pairs in one row
        return Dataset.from_dict(inside) if isinstance(inside[task.label_column_name], list) else rows
    return rows


def _build_task_lines(
    task: Any, rows: Dataset, predictions: Any, *, split: str, subset: str, random: Any
) -> Iterable[Line]:
    """The rows of a task that does not search; none for a kind without examples."""
    kinds = [c.__name__.removeprefix("AbsTask") for c in type(task).__mro__]
    match next((kind for kind in kinds if kind in KINDS), None):
        case "STS":
            return _iter_pair_lines(rows, predictions["cosine_scores"], task.column_names, "score")
        case "PairClassification":
            columns = (task.input1_column_name, task.input2_column_name)
            return _iter_pair_lines(rows, predictions["similarity_scores"], columns, task.label_column_name)
        case "Clustering":
            return _iter_clustering_lines(task, rows, predictions, random)
        case "ClusteringLegacy":
            return _iter_cluster_set_lines(task, rows, predictions)
        case "MultilabelClassification":
            return _iter_multilabel_lines(task, rows, predictions, split)
        case "Regression":
            return _iter_regression_lines(task, rows, predictions)
        case "Classification":
            return _iter_classification_lines(task, rows, predictions)
        case "BitextMining":
            return _iter_bitext_lines(
                rows, predictions, subset if task.parallel_subsets else "sentence1-sentence2"
            )
        case "Summarization":
            return _iter_summary_lines(task, rows, predictions)
    return ()


KINDS = frozenset(
    {
        "STS",
        "PairClassification",
        "Clustering",
        "ClusteringLegacy",
        "MultilabelClassification",
        "Regression",
        "Classification",
        "BitextMining",
        "Summarization",
    }
)
"""The ends of mteb's class names behind AbsTask; a subclass is looked up before its base."""


def _iter_retrieval_lines(
    task: AbsTask, rankings: Mapping[str, Mapping[str, float]], split: str, subset: str
) -> Iterator[Line]:
    """A row for each query: its ten best documents, the judged documents, and its main metric."""
    judged = task.dataset[subset][split]["relevant_docs"]  # type: ignore[index]
    metric = compute_query_metric(task.metadata.main_score, judged, rankings)
    for query, documents in rankings.items():
        shown = json.dumps([[name, round(score, 6)] for name, score in _rank_documents(documents)[:10]])
        yield query, 0, shown, json.dumps(judged[query], sort_keys=True), metric.get(query)


class Run:
    """The columns of a run file (RUN_COLUMNS of harness.storage.record) by subset; {} without a search."""

    def __init__(self, task: AbsTask) -> None:
        self._task: Any = task
        self.columns: dict[str, list[Any]] = {}

    def add_rankings(self, rankings: Mapping[tuple[str, str], Mapping[str, Mapping[str, float]]]) -> None:
        """Add the best documents of each query, or all its candidates, in the order of trec_eval.

        Args:
            rankings: By (subset, split) and query.
        """
        for (subset, split), queries in rankings.items():
            has_candidates = self._task.dataset[subset][split].get("top_ranked") is not None
            for query, documents in queries.items():
                for rank, (name, score) in enumerate(
                    _rank_documents(documents)[: None if has_candidates else RUN_DEPTH], 1
                ):
                    line = (split, subset, query, name, rank, score)
                    for column, value in zip(RUN_COLUMNS, line, strict=True):
                        self.columns.setdefault(column, []).append(value)


def _rank_documents(documents: Mapping[str, float]) -> list[tuple[str, float]]:
    """A query's documents by score, then by id, both from the highest, as trec_eval ranks them."""
    return sorted(documents.items(), key=lambda hit: (hit[1], hit[0]), reverse=True)


def _iter_pair_lines(
    rows: Any, predicted: Sequence[float], columns: Sequence[str], gold: str
) -> Iterator[Line]:
    """A row for each pair: its predicted similarity and its gold score or label."""
    ids = _build_example_ids(rows, columns)
    for name, prediction, truth in zip(ids, predicted, rows[gold], strict=True):
        yield name, 0, repr(prediction), str(truth), None


def _iter_classification_lines(task: Any, rows: Any, predictions: Sequence[Sequence[Any]]) -> Iterator[Line]:
    """A row for each test text and probe: predicted label, true label, and whether they agree.

    With cross-validation a text has the label of the fold that left it out, which is the replicate.
    """
    ids, labels = _build_example_ids(rows, (task.input_column_name,)), list(rows[task.label_column_name])
    scored: list[Sequence[int]] = [range(len(rows))] * len(predictions)
    if task.is_cross_validation:
        from sklearn.model_selection import KFold

        # The same folds as in mteb's evaluator, which does not write them.
        folds = KFold(n_splits=task.n_splits, shuffle=True, random_state=task.seed)
        scored = [held_out.tolist() for _, held_out in folds.split(range(len(rows)))]
    names = getattr(task, "label_names", None)
    for probe, (predicted, places) in enumerate(zip(predictions, scored, strict=True)):
        for place, guess in zip(places, predicted, strict=True):
            truth = labels[place]
            label_pair = (guess, truth) if names is None else (names[guess], names[truth])
            yield ids[place], probe, str(label_pair[0]), str(label_pair[1]), float(guess == truth)


def _iter_regression_lines(task: Any, rows: Any, predictions: Sequence[Sequence[float]]) -> Iterator[Line]:
    """A row for each test text and probe: the predicted value and the true value."""
    ids = _build_example_ids(rows, (task.input_column_name,))
    values = list(rows[task.label_column_name])
    for probe, predicted in enumerate(predictions):
        for name, guess, truth in zip(ids, predicted, values, strict=True):
            yield name, probe, repr(guess), str(truth), None


def _iter_bitext_lines(
    rows: Any, predictions: Mapping[str, Sequence[Mapping[str, Any]]], pair: str
) -> Iterator[Line]:
    """A row for each sentence: the nearest in the other language, its translation, whether both are one."""
    ids = _build_example_ids(rows, pair.split("-"))
    for row, (name, hit) in enumerate(zip(ids, predictions[pair], strict=True)):
        nearest_row = int(hit["corpus_id"])
        yield name, 0, ids[nearest_row], name, float(nearest_row == row)


def _iter_summary_lines(task: Any, rows: Any, predictions: Mapping[str, Sequence[Any]]) -> Iterator[Line]:
    """A row for each machine summary: similarity and grade; mteb skips texts whose grades are all equal."""
    ids = _build_example_ids(rows, (task.text_column_name,))
    grades = list(rows[task.relevancy_column_name])
    kept = [row for row, values in enumerate(grades) if len(set(values)) > 1]
    if len(kept) != len(predictions["cosine_scores"]):
        raise ValueError(f"{len(kept)} texts can be scored, {len(predictions['cosine_scores'])} were")
    for row, predicted in zip(kept, predictions["cosine_scores"], strict=True):
        for number, (guess, grade) in enumerate(zip(predicted, grades[row], strict=True)):
            yield f"{ids[row]}/{number}", 0, repr(guess), str(grade), None


Line = tuple[str, int, str | None, str | None, float | None]
"""Example id, replicate, prediction, gold, metric."""


def _build_example_ids(rows: Any, columns: Sequence[str]) -> list[str]:
    """The rows' own ids, else ids from a hash of the columns, with a count where it is repeated."""
    if "id" in rows.column_names:
        return [str(name) for name in rows["id"]]
    seen: Counter[str] = Counter()
    ids = []
    # A hash of the texts stays when rows are added or change their order.
    for row in zip(*(rows[column] for column in columns), strict=True):
        name = hashlib.sha256(json.dumps([str(part) for part in row]).encode()).hexdigest()[:16]
        seen[name] += 1
        ids.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return ids


def _iter_multilabel_lines(task: Any, rows: Any, predictions: Sequence[Any], split: str) -> Iterator[Line]:
    """A row for each test text and probe: predicted labels, true labels, and whether all agree."""
    from datasets import DatasetDict
    from mteb.abstasks.abstask import _multilabel_subsampling

    if task.max_eval_samples is not None and len(rows) > task.max_eval_samples:
        # mteb scores a sample of large test sets and writes predictions for it alone; the seed gives the same
        # rows.
        rows = _multilabel_subsampling(
            DatasetDict({split: rows}),
            seed=task.seed,
            splits=[split],
            label=task.label_column_name,
            n_samples=task.max_eval_samples,
        )[split]
    ids = _build_example_ids(rows, (task.input_column_name,))
    gold = [sorted(set(labels)) for labels in rows[task.label_column_name]]
    # In the order of scikit-learn's MultiLabelBinarizer, by which mteb's flags stand.
    label_names = sorted({label for labels in gold for label in labels})
    for probe, predicted in enumerate(predictions):
        for name, flags, truth in zip(ids, predicted, gold, strict=True):
            guess = [label for label, flag in zip(label_names, flags, strict=True) if flag]
            yield name, probe, json.dumps(guess), json.dumps(truth), float(guess == truth)


def _iter_clustering_lines(
    task: Any, rows: Any, predictions: Mapping[str, Any], random: Any
) -> Iterator[Line]:
    """A row for each drawn text: its cluster and its group; replicates count the draws of all levels."""
    rows = _sample_cluster_rows(task, rows, random)
    ids = _build_example_ids(rows, (task.input_column_name,))
    labels = [label if isinstance(label, list) else [label] for label in rows[task.label_column_name]]
    replicate = 0
    for level, draws in enumerate(predictions.values()):
        gold, present = _select_level_groups(labels, level)
        for assigned in draws:
            # The same call as in mteb: any other would move the state of the next draws.
            drawn = random.choices(range(len(present)), k=task.max_documents_per_cluster)
            for position, cluster in zip(drawn, assigned, strict=True):
                row = present[position]
                yield ids[row], replicate, str(cluster), str(gold[row]), None
            replicate += 1


def _sample_cluster_rows(task: Any, rows: Dataset, random: Any) -> Dataset:
    """The rows that mteb encodes and draws from."""
    count, limit = len(rows), task.max_document_to_embed
    if task.max_fraction_of_documents_to_embed is not None:
        limit = int(task.max_fraction_of_documents_to_embed * count)
    return rows if limit is None else rows.select(random.sample(range(count), k=min(count, limit)))


def _select_level_groups(labels: Sequence[Sequence[Any]], level: int) -> tuple[Any, list[int]]:
    """The group of every row on one level of a hierarchy, and the rows that mteb draws from there.

    A row without this level has the group -1 and is left out. Among groups that are words this is the word
    "-1", which is not equal to the number, so that such rows stay, as in mteb.
    """
    import numpy as np

    gold = np.array([label[level] if len(label) > level else -1 for label in labels])
    return gold, [row for row, group in enumerate(gold) if group != -1]


def _iter_cluster_set_lines(task: Any, rows: Any, predictions: Sequence[Sequence[int]]) -> Iterator[Line]:
    """A row for each text of a set, which is the replicate; mteb leaves out sets of a single group."""
    from datasets import Dataset

    assigned = iter(predictions)
    for number, row in enumerate(rows):
        labels = row[task.label_column_name]
        if len(set(labels)) <= 1:
            continue
        texts = Dataset.from_dict({"text": row[task.input_column_name]})
        for name, cluster, label in zip(
            _build_example_ids(texts, ("text",)), next(assigned), labels, strict=True
        ):
            yield name, number, str(cluster), str(label), None


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
