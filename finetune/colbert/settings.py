"""The settings of a recipe that makes a multi-vector (ColBERT) model."""

from __future__ import annotations

import math
import string
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from finetune.embedding.settings import Rule, TrainerSettings
from harness.core.encoding import LateInteraction
from harness.core.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class ColBERTSettings(TrainerSettings):
    """Every setting of the training of a multi-vector (ColBERT) model.

    Attributes:
        loss: "distillation": sum(p * (log(p) - log(q))) over the documents of a query, the mean over queries,
            with p the softmax of the teacher's scores as stored, and q that of the model's, first scaled as
            (s - min) / (max - min + 1e-8) for each query. "contrastive": the cross-entropy among all
            documents of a batch. A score is the sum, over the query's vectors, of the largest product with a
            vector of the document; vectors have length 1. In training, a token of the document in the
            skiplist has the product 0, and a document shorter than document_length one more such token, so
            that none of its largest products is below 0. Gradients pass through min and max, too.
        dimension: The length of a token's vector, that of a linear projection without bias.
        query_length: The tokens of a query, special ones and its prefix included: it is cut to one less, the
            last special one kept, then its prefix put behind the first; a shorter one is filled up with
            mask tokens (`expansion`).
        document_length: The most tokens of a document, likewise; a shorter one is not filled up.
        expansion: Whether short queries are filled up with mask tokens, which have vectors, too.
        attends_to_expansion: Whether any token attends to these mask tokens; if false, not even they do.
        documents: The documents of a query in distillation: the first ones of its row, which needs as many.
        temperature: The divisor of scores in the contrastive loss.
    """

    loss: Literal["distillation", "contrastive"] = "distillation"
    dimension: int = 128
    query_length: int = 32
    document_length: int = 180
    expansion: bool = True
    attends_to_expansion: bool = False
    documents: int = 32
    temperature: float = 1.0

    @property
    def inert(self) -> frozenset[str]:
        """The names of settings that change nothing beside the others."""
        return super().inert | {"temperature" if self.loss == "distillation" else "documents"}

    @property
    def group(self) -> int:
        """Rows that depend on each other: a query and its documents stand alone in distillation."""
        return 1 if self.loss == "distillation" else 0

    @property
    def longest(self) -> int:
        """The most tokens of a document."""
        return self.document_length

    @property
    def late_interaction(self) -> LateInteraction:
        """The settings of the model's vectors."""
        return LateInteraction(
            query_length=self.query_length,
            document_length=self.document_length,
            expansion=self.expansion,
            attends_to_expansion=self.attends_to_expansion,
            query_prefix="[Q] ",
            document_prefix="[D] ",
            # PyLate's default: documents keep no vectors of punctuation.
            skiplist=tuple(string.punctuation),
            dimension=self.dimension,
        )

    def _iter_rules(self) -> Iterator[Rule]:
        yield from super()._iter_rules()
        for name in ("dimension", "documents"):
            least = 2 if name == "documents" else 1
            yield name, getattr(self, name) >= least, f"{least} or more"
        for name in ("query_length", "document_length"):
            yield name, getattr(self, name) > 3, "more than 3 tokens: three are special ones"
        yield "temperature", 0 < self.temperature < math.inf, "a number above 0"
        for name, loss in (("documents", "distillation"), ("temperature", "contrastive")):
            # Refused, since a setting without effect would still give the model another key.
            if self.loss != loss and getattr(self, name) != getattr(ColBERTSettings, name):
                raise UsageError(
                    f"{name} is {getattr(self, name)}, which changes nothing in the {self.loss} loss.",
                    hint=f"Leave out --set {name}=….",
                )
        if self.attends_to_expansion and not self.expansion:
            raise UsageError(
                "attends_to_expansion is on, and queries are not filled up.",
                hint="Leave out one of --set attends_to_expansion=… and --set expansion=….",
            )
        if self.loss == "distillation" and self.batches == "no_duplicates":
            raise UsageError(
                "Distillation compares no rows with each other: duplicates need not be kept apart.",
                hint="Leave out --set batches=no_duplicates.",
            )
