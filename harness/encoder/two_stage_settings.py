"""The settings of a two-stage model, whose vectors depend on context documents, without torch.

Source: Morris and Rush, Contextual Document Embeddings (2024), and their code; where text and code differ,
the choice is said at the setting.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

from annotated_types import Interval

from harness.core.errors import ModelError
from harness.encoder.architecture import Architecture
from harness.encoder.folder.files import read_object
from harness.encoder.folder.modules_and_pooling import CONTEXT_STAGE

Pooling = Literal["text", "all"]
RotaryStart = Literal["text", "prompts"]

PREFIXES: Mapping[str, str] = MappingProxyType(
    {
        "query": "search_query: ",
        "document": "search_document: ",
        "Clustering": "clustering: ",
        **dict.fromkeys(
            (
                "Classification",
                "MultilabelClassification",
                "PairClassification",
                "Reranking",
                "STS",
                "Summarization",
                # Types that the authors do not evaluate.
                "BitextMining",
                "Regression",
            ),
            "classification: ",
        ),
        **dict.fromkeys(
            ("QuoraRetrieval", "QuoraRetrievalHardNegatives", "NanoQuoraRetrieval"), "search_query: "
        ),
    }
)
"""The authors' text before each input, by side, type of task or task (see `Encoding.resolve_prompt`).

Both sides of Quora are questions.
"""


@dataclass(frozen=True, kw_only=True)
class TwoStageSettings:
    """The settings of a two-stage model.

    One backbone of width v makes context vectors, each MLP(mean of a context document's token vectors); the
    other, of width w, reads the sequence [context vectors; soft prompts; text], of which a text's vector is x
    + MLP(x) of the mean x over the text's token vectors. The p soft prompts are the p parts of MLP(1), 1
    being w ones. An MLP is Linear, GELU for contexts and ReLU for the others, Linear: v to v to w for
    contexts, w to w to p * w for soft prompts, w to w to w for texts, with biases and torch's first weights.
    Both backbones and all of these are trained, and gradients pass through the context vectors. Without a
    context a learned null vector stands for each context vector. Token types and ordinary positions count
    from the first of these on. In layers with windows (ModernBERT), a text sees only the nearest context
    vectors.

    Attributes:
        size: The context vectors before each text, one for each context document.
        prompts: The soft prompts behind them.
        pooling: The places whose mean is the vector: those of the text, or all ("all", which the command line
            of the authors' trainer sets).
        rotary_from: The first place that is rotated, in families with rotary positions: that of the text, or
            that of the soft prompts, which the authors' offset makes of it. All places before it are
            position 0. Other families have ordinary positions for the whole sequence.
        sequence_dropout: The share of context vectors that the null vector replaces in training; 0 in the
            authors' code, 0.005 in the text.
        shuffle: Whether each text has the context vectors in an order of its own in training.
        tied: Whether both stages share one token embedding.
        replacement: Whether an evaluation draws context documents with replacement, as the authors do.
    """

    size: Annotated[int, Interval(ge=1)] = 512
    prompts: Annotated[int, Interval(ge=1)] = 8
    pooling: Pooling = "text"
    rotary_from: RotaryStart = "text"
    sequence_dropout: Annotated[float, Interval(ge=0, lt=1)] = 0.0
    shuffle: bool = True
    tied: bool = False
    replacement: bool = False

    @property
    def places(self) -> int:
        """The places before a text."""
        return self.size + self.prompts

    def compute_text_limit(self, positions: str, most: int) -> int | None:
        """The most tokens of a text.

        Args:
            positions: The kind of positions of the second stage (see Architecture).
            most: The positions that it has.
        """
        if positions == "alibi":
            return None
        if positions == "rotary":
            return most - (self.prompts if self.rotary_from == "prompts" else 0)
        return most - self.places

    def check_positions(self, shape: Architecture, length: int, name: str) -> None:
        """Refuse texts of `length` tokens that have no positions behind the context.

        Raises:
            ModelError: There are too few positions.
        """
        limit = self.compute_text_limit(shape.positions, shape.max_position_embeddings)
        if limit is None or length <= limit:
            return
        most = self.size + limit - length
        shorter = f"cut texts at {limit} tokens" if limit > 2 else ""
        fewer = f"take {most} context documents" if 0 < most < self.size else ""
        raise ModelError(
            f"{self.size} context vectors, {self.prompts} soft prompts and texts of {length} tokens need "
            f"more positions than the {shape.max_position_embeddings} that {name} has.",
            hint=f"{' or '.join(filter(None, (fewer, shorter))).capitalize() or 'Take another backbone'}.",
        )

    @staticmethod
    def read_stage_settings(folder: Path) -> TwoStageSettings:
        """The settings in the folder of the module.

        Raises:
            ModelError: A setting is unknown, or has a value that makes no model.
        """
        from pydantic import TypeAdapter, ValidationError

        path = folder / "config.json"
        config = read_object(path)
        strange = sorted(config.keys() - asdict(TwoStageSettings()).keys())
        if strange:
            raise ModelError(
                f"{path} has settings that are not known here: {', '.join(strange)}.",
                hint="It was saved by a newer version of encoder-harness: install that one.",
            )
        try:
            # As JSON: a strict check of Python objects wants the dataclass itself.
            return TypeAdapter(TwoStageSettings).validate_json(json.dumps(config), strict=True)
        except ValidationError as error:
            problem = error.errors()[0]
            message = f"{problem['msg'][:1].lower()}{problem['msg'][1:]}"
            raise ModelError(
                f"{path} has {problem['loc'][0]} = {problem['input']!r}: {message}.",
                hint="Correct the value, or save the model again.",
            ) from error


def list_stage_shapes(settings: TwoStageSettings, context: int, text: int) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor of the module that belongs to neither backbone.

    Args:
        settings: The settings of the model.
        context: The width of the first stage.
        text: The width of the second stage.
    """
    sizes = {
        f"{CONTEXT_STAGE}_head.0": (context, context),
        f"{CONTEXT_STAGE}_head.2": (text, context),
        "prompt_head.0": (text, text),
        "prompt_head.2": (settings.prompts * text, text),
        "output_head.0": (text, text),
        "output_head.2": (text, text),
    }
    weights = {f"{name}.weight": shape for name, shape in sizes.items()}
    return {**weights, **{f"{name}.bias": (shape[0],) for name, shape in sizes.items()}, "null": (text,)}
