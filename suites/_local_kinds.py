"""The types of task that a user's folder may hold: their files, columns and keys in harness.toml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

RULE = "ignore_identical_ids"


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A type of task.

    Attributes:
        type: What tables call it.
        metrics: Those it has unless harness.toml asks for others; of vectors one, as mteb calls it.
        allowed: The metrics that harness.toml may ask for.
        like: The task of GLUE whose settings it has unless harness.toml names another; empty for a
            type that is scored from vectors, without training.
        numeric: Whether labels are numbers, not names of classes.
        split: That it is scored on, unless harness.toml names another.
        files: By key, with the names they have by default.
        columns: Of the files.
        keys: Further keys in harness.toml.
    """

    type: str
    metrics: tuple[str, ...]
    allowed: tuple[str, ...] = ()
    like: str = ""
    numeric: bool = False
    split: str = "test"
    files: Mapping[str, str]
    columns: tuple[str, ...]
    keys: tuple[str, ...] = ()

    @property
    def learnt(self) -> bool:
        """Whether a recipe trains a model for it."""
        return bool(self.like)


_TRAIN_AND_DEV = MappingProxyType({"train": "train.jsonl", "dev": "dev.jsonl"})
_TEXTS_AND_LABEL = ("id", "text1", "text2", "label")

KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "retrieval": Kind(
            type="Retrieval",
            metrics=("ndcg_at_10",),
            files={"corpus": "corpus.jsonl", "queries": "queries.jsonl", "qrels": "qrels/{}.tsv"},
            columns=("id", "title", "text"),
            keys=("split", RULE),
        ),
        "sts": Kind(
            type="STS",
            metrics=("cosine_spearman",),
            files={"file": "pairs.jsonl"},
            columns=("id", "text1", "text2", "score"),
        ),
        "classification": Kind(
            type="Classification",
            metrics=("accuracy",),
            files={"train": "train.jsonl", "test": "test.jsonl"},
            columns=("id", "text", "label"),
        ),
        "clustering": Kind(
            type="Clustering",
            metrics=("v_measure",),
            files={"file": "texts.jsonl"},
            columns=("id", "text", "label"),
        ),
        "fine-tuned-classification": Kind(
            type="Classification",
            metrics=("accuracy",),
            allowed=("accuracy", "f1", "mcc"),
            like="RTE",
            split="dev",
            files=_TRAIN_AND_DEV,
            columns=_TEXTS_AND_LABEL,
            keys=("metrics", "positive", "like", "from_mnli"),
        ),
        "fine-tuned-regression": Kind(
            type="Regression",
            metrics=("pearson", "spearman"),
            allowed=("pearson", "spearman"),
            like="STS-B",
            numeric=True,
            split="dev",
            files=_TRAIN_AND_DEV,
            columns=_TEXTS_AND_LABEL,
            keys=("metrics", "like", "from_mnli"),
        ),
    }
)
"""By the name that harness.toml uses."""
