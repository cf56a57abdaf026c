"""The two faces a model shows to a task: one that only notes the texts, one that has vectors.

An encode job runs the task's own code with a `Collector`, which notes every text it is asked
for and gives back placeholders. The first use of a placeholder's values ends that run: what the
task encodes before it looks at a vector is then known exactly, whatever the task does, and is
encoded in one go. The score job runs the same code with `Known` vectors. A task that encodes
more after it has looked at vectors has the rest encoded on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from harness.desk import Encoded
from harness.errors import DataError
from harness.types import Artifact, Encoding, Role, Similarity, Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from harness.desk import Desk


class VectorsNeeded(BaseException):
    """Ends a collecting run; not an Exception, so that no task code swallows it."""


class Placeholder:
    """Stands for vectors that are not made yet; any use of it ends the collecting run."""

    def _needed(self, *_: Any, **__: Any) -> NoReturn:
        raise VectorsNeeded

    __array__ = __getitem__ = __len__ = __iter__ = __getattr__ = _needed
    __add__ = __sub__ = __mul__ = __matmul__ = __truediv__ = _needed


class Collector:
    """Notes the texts a task encodes, by side and in order, each once."""

    def __init__(self, encoding: Encoding) -> None:
        self.similarity: Similarity = encoding.similarity
        self.texts: dict[Role, dict[str, None]] = {}

    @property
    def count(self) -> int:
        """How many texts the task has, each counted once a side."""
        return sum(map(len, self.texts.values()))

    def require(self, texts: Sequence[str], *, role: Role) -> None:
        """Note texts that will be asked for."""
        check_texts(texts, role)
        self.texts.setdefault(role, {}).update(dict.fromkeys(texts))

    def encode(self, texts: Sequence[str], *, role: Role) -> NDArray[np.float32]:
        """Note texts; their vectors come later."""
        self.require(texts, role=role)
        return Placeholder()  # type: ignore[return-value]


class Known:
    """Gives a task its vectors from the cache, encoding on the way what is missing there."""

    def __init__(self, desk: Desk, artifact: Artifact, encoding: Encoding, task: Task) -> None:
        self.similarity: Similarity = encoding.similarity
        self.encoded = Encoded()
        self.applied: dict[str, str] = {}
        self._desk = desk
        self._asked: dict[Role, set[str]] = {}
        self._of = (artifact, encoding, task)

    @property
    def count(self) -> int:
        """How many texts the task has asked for, each counted once a side."""
        return sum(map(len, self._asked.values()))

    def require(self, texts: Sequence[str], *, role: Role) -> None:
        """Make sure the vectors of `texts` are known."""
        check_texts(texts, role)
        unique = list(dict.fromkeys(texts))
        self.encoded.add(self._desk.encode_missing(*self._of, role, unique, hold=True))

    def encode(self, texts: Sequence[str], *, role: Role) -> NDArray[np.float32]:
        """The vectors of `texts`, shape (len(texts), dimension), float32."""
        check_texts(texts, role)
        _, encoding, task = self._of
        self.applied[role or "text"] = encoding.prompt(task, role)
        self._asked.setdefault(role, set()).update(texts)
        space = self._desk.space(*self._of, role)
        try:
            return space.get(texts)
        except KeyError:
            self.require(texts, role=role)
            return space.get(texts)


def check_texts(texts: Sequence[str], role: Role) -> None:
    """Refuse what is not text, naming the row.

    Raises:
        DataError: A row holds something else than a text, or there is no row at all.
    """
    side = {"query": "query", "document": "document", "": "text"}[role]
    if not len(texts):
        raise DataError(f"The data set is empty: it has no {side} at all.")
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            what = "nothing" if text is None else f"a {type(text).__name__}"
            raise DataError(
                f"A row of the data set cannot be read: its {side} is {what} instead of text "
                f"(number {row + 1} of {len(texts)} that were to be encoded)."
            )
