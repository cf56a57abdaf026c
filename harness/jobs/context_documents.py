"""The context documents of a task, on which the vectors of a two-stage model depend.

They are drawn from the task's own texts by hashes of seed and text, so that a draw depends on nothing else,
such as the order of the data or the version of a library.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.encoding import ContextDraw, Encoding
from harness.core.errors import DataError
from harness.core.identity import digest
from harness.core.types import CorpusSource, Role, Task

NULL = "null"
"""The digest of the null context."""


@dataclass(frozen=True, kw_only=True)
class ContextDocuments:
    """The context documents of a task.

    Attributes:
        draw: How they were drawn.
        texts: The documents, in the order of their vectors; none for the null context.
        prompt: The text before each.
        corpus: The number of different texts that there were to draw from.
        without_corpus: Whether the task has no corpus, so that the null context stands in.
    """

    draw: ContextDraw
    texts: tuple[str, ...] = ()
    prompt: str = ""
    corpus: int = 0
    without_corpus: bool = False

    @property
    def digest(self) -> str:
        """The hash of the documents with their prompt, in their order; "null" for the null context."""
        return digest({"prompt": self.prompt, "texts": self.texts}) if self.texts else NULL

    @property
    def notes(self) -> tuple[str, ...]:
        """What the record says of a context that is not as it was asked for."""
        if self.without_corpus:
            return ("the task names no texts to draw a context from: the null context stands in",)
        if self.texts and self.corpus < self.draw.size:
            return (
                f"the context repeats the {self.corpus:,} different texts of the task, for it has "
                f"{self.draw.size:,} documents",
            )
        return ()

    def to_json(self) -> dict[str, Any]:
        """The context as a record has it."""
        return {
            "hash": self.digest,
            "documents": len(self.texts),
            "different": len({*self.texts}),
            "corpus": self.corpus,
            "prompt": self.prompt,
        }

    @staticmethod
    def of_task(task: Task, encoding: Encoding, *, seed: int, data: Path | None) -> ContextDocuments | None:
        """The context documents of a task; None where the vectors depend on none.

        Args:
            task: The task, whose documents are drawn from, or all its texts where it has no documents.
            encoding: The encoding, which says how to draw, and the prompt.
            seed: The seed of the task's own samples.
            data: The local folder of its data; None to load from the hub.

        Raises:
            DataError: The task has a corpus without a text.
        """
        draw = encoding.context
        if draw is None or draw.documents == NULL:
            return None if draw is None else ContextDocuments(draw=draw)
        source = task.source
        given = source.corpus(task, seed=seed, data=data) if isinstance(source, CorpusSource) else None
        if given is None:
            return ContextDocuments(draw=draw, without_corpus=True)
        role: Role = "document" if task.retrieves else ""
        return _drawn(given, draw, encoding.prompt(task, role), task.name)


def _drawn(given: Sequence[Any], draw: ContextDraw, prompt: str, name: str) -> ContextDocuments:
    texts = [text for text in given if isinstance(text, str) and text.strip()]
    different = list(dict.fromkeys(texts))
    if not different:
        raise DataError(
            f"{name} has no text to draw context documents from.",
            hint="Check its data, or evaluate without a context: --context null.",
        )
    if draw.documents == "task-with-replacement":
        chosen = [texts[_number(draw.seed, str(n)) % len(texts)] for n in range(draw.size)]
    else:
        once = heapq.nsmallest(draw.size, different, key=lambda text: _number(draw.seed, text))
        chosen = [once[n % len(once)] for n in range(draw.size)]
    return ContextDocuments(draw=draw, texts=tuple(chosen), prompt=prompt, corpus=len(different))


def _number(seed: int, text: str) -> int:
    """A number of 128 bits that a seed and a text have."""
    content = f"{seed}\n{text}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(content, digest_size=16).digest(), "big")
