"""Training data: sets of the hub, of a data root, or of a user's own files, read as memory-mapped tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from harness.data.locate import DataSettings
from harness.identity import digest

if TYPE_CHECKING:
    import datasets
    import numpy as np
    from numpy.typing import NDArray

Form = Literal["pair", "triplet", "tuple", "scored pair"]
"""The form of a row."""


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """A data set that a recipe trains on.

    Attributes:
        path: A data set of the hub, `org/name`; empty for a user's own file.
        revision: The pinned commit.
        content: The hash of the data, in place of the revision, where it lies in a data root or is the user's own.
        config: The configuration.
        split: The split.
        columns: The columns of text in the order anchor, positive, negatives.
        score: The column with a score; empty without one.
        filter: A column, a comparison (">", ">=", "<", "<=", "==") and a number that rows must satisfy.
        rows: The number of rows at this revision, for a plan without the data; not part of the identity.
    """

    path: str = ""
    revision: str = ""
    content: str = ""
    config: str = ""
    split: str = "train"
    columns: tuple[str, ...] = ("anchor", "positive")
    score: str = ""
    filter: tuple[str, str, float] | None = None
    rows: int | None = None

    @property
    def form(self) -> Form:
        """The form of a row."""
        if self.score:
            return "scored pair"
        return {2: "pair", 3: "triplet"}.get(len(self.columns), "tuple")  # type: ignore[return-value]

    @property
    def identity(self) -> Mapping[str, Any]:
        """The fields that a trained model depends on; where the data lies is not among them."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class LocatedTraining:
    """Training data with its place.

    Attributes:
        data: The data set, with the content's hash where it lies in a data root or is the user's own.
        folder: The folder of a hub data set; None where the hub itself is read.
        file: The user's own file (Parquet, JSONL or CSV), as it is read.
        name: The name in tables and messages.
        rows: The number of rows, if it is known without reading them all.
        own: Whether the user gave it in place of the recipe's.
    """

    data: TrainingData
    folder: Path | None = None
    file: Path | None = None
    name: str
    rows: int | None = None
    own: bool = False


def locate_training(data: TrainingData, settings: DataSettings) -> LocatedTraining:
    """The place of a recipe's data set: a data root, the hub's cache, or the hub.

    Raises:
        DataError: It is not on this machine and the network is forbidden, or lacks the configuration.
    """
    raise NotImplementedError


def own_training(text: str, settings: DataSettings) -> LocatedTraining:
    """The training data that a user names with `--train-data`.

    Args:
        text: A hub id `org/name[@revision][:config]`, the same in a data root, a file of rows (JSONL, CSV or Parquet), or
            `code:FOLDER` for the pairs of docstring and body in Python source.
        settings: The places to look.

    Raises:
        UsageError: There is no such data.
        DataError: A row has no text, or too few columns; the message names file and row.
    """
    raise NotImplementedError


def load_training(located: LocatedTraining, *, cache: Path) -> datasets.Dataset:
    """The rows as a memory-mapped table with the text columns in order, then the score if there is one.

    Raises:
        DataError: A text is missing, empty or no text; the message names the row.
    """
    raise NotImplementedError


def write_text_hashes(data: tuple[LocatedTraining, ...], model: Path, *, cache: Path) -> None:
    """Write the hashes of all training texts into a model's folder, for `trained_texts`."""
    raise NotImplementedError


def trained_texts(model: Path) -> NDArray[np.uint64] | None:
    """The sorted 64-bit hashes of the texts that the model in a folder was trained on; None if not known."""
    raise NotImplementedError


_ = digest
