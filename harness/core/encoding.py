"""The settings, prompts too, with which a model turns texts into vectors or puts documents in an order."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, Protocol

from annotated_types import Interval, Predicate

from harness.core.arguments import Form, Option, Seed, Table, Tokens
from harness.core.errors import UsageError
from harness.core.types import (
    DTYPES,
    SEED,
    DocumentText,
    Dtype,
    ObjectEncoder,
    Output,
    Role,
    Similarity,
    Size,
    Task,
)


class TextTask(Protocol):
    """What texts are encoded for: its name and its type choose their prompt."""

    @property
    def name(self) -> str:
        """The name of the task."""
        ...

    @property
    def type(self) -> str:
        """The type of the task, as mteb names it."""
        ...


@dataclass(frozen=True, kw_only=True)
class OwnTexts:
    """Queries and documents that belong to no task: prompts of retrieval and of the sides apply."""

    name: str = ""
    type: str = "Retrieval"


def select_prompt(task: TextTask, role: Role, named: Mapping[str, str], default: str | None) -> str:
    """The prompt in `named` that is put before inputs of `task`, empty if none.

    Tried in mteb's order: task and role, task, type and role, type, role, then the model's default.

    Args:
        task: The name and the type of the task.
        role: The side of the inputs; empty for a task without sides.
        named: Texts by task, type or side, also as `STS12-query`.
        default: The name of the prompt where no other name fits.
    """
    sided = [f"{task.name}-{role}", task.name, f"{task.type}-{role}", task.type, role]
    names = sided if role else [task.name, task.type]
    return next((named[n] for n in (*names, default) if n is not None and n in named), "")


ContextChoice = Literal["task", "task-with-replacement", "null"]
"""The context documents of an evaluation: drawn from the task's own texts, once each or not, or none."""


_VECTORS = {name: dtype for name, dtype in DTYPES.items() if dtype != "bfloat16"}
"""The precisions in which vectors are kept, by their spellings."""


def _refuse_bfloat16(value: Any) -> Any:
    """The same value, unless it is a precision of models alone."""
    if DTYPES.get(str(value)) == "bfloat16":
        raise UsageError(
            "Vectors are kept in float32 or float16; bfloat16 has too few digits for them.",
            hint="The precision of the model itself is --dtype bfloat16.",
        )
    return value


_ROPE_SCALING = re.compile(r"(yarn|dynamic|linear):(\d+(?:\.\d+)?)")


def parse_rope_scaling(text: str) -> tuple[str, float]:
    """The kind and the factor of a scaling of rotary positions; the factor is 0 in a text that has none.

    >>> parse_rope_scaling("yarn:2"), parse_rope_scaling("yarn")
    (('yarn', 2.0), ('', 0.0))
    """
    match = _ROPE_SCALING.fullmatch(text)
    return (match[1], float(match[2])) if match else ("", 0.0)


def _spell_rope_scaling(value: Any) -> Any:
    """The same scaling in the one spelling that keys have: yarn:2 for yarn:2.0."""
    kind, factor = parse_rope_scaling(value) if isinstance(value, str) else ("", 0.0)
    return f"{kind}:{int(factor) if factor.is_integer() else factor}" if kind else value


_RopeScaling = Annotated[
    str,
    Predicate(lambda text: 1 < parse_rope_scaling(text)[1] < math.inf),
    Form(must="yarn:FACTOR, dynamic:FACTOR or linear:FACTOR with a number above 1", read=_spell_rope_scaling),
]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The requested evaluation settings of a model; None means the model's own default.

    `index` is the search of multi-vector (ColBERT) models: "auto", which is the default and exact but
    for large corpora, "exact", or "plaid:nbits=4,..." (see `Plaid`).
    """

    pooling: Annotated[
        str | None,
        Option(
            "How token vectors become one vector, e.g. mean or cls (default: the model's own, else mean).",
            group="Encoding",
        ),
    ] = None
    normalize: Annotated[
        bool | None, Option("Scale vectors to length 1 (default: as the model does).", group="Encoding")
    ] = None
    max_length: Annotated[
        Tokens | None,
        Option(
            "Longest input in tokens (default: the model's own). Of multi-vector (ColBERT) models it is"
            " the longest document.",
            group="Encoding",
        ),
    ] = None
    rope_scaling: Annotated[
        _RopeScaling | None,
        Option(
            "Scaling of rotary positions, for a --max-length beyond the positions of the model: yarn:2, "
            "dynamic:2 or linear:2, with any factor above 1 (docs/backbones.md).",
            metavar="KIND:FACTOR",
            group="Encoding",
        ),
    ] = None
    query_length: Annotated[
        Tokens | None,
        Option(
            "Longest query of a multi-vector (ColBERT) model, in tokens (default: the model's own, or "
            "that of a BEIR task).",
            group="Encoding",
        ),
    ] = None
    dtype: Annotated[
        Dtype | None,
        Form(choices=DTYPES),
        Option("Precision of weights and computations (default: float32).", group="Encoding"),
    ] = None
    vectors: Annotated[
        Dtype | None,
        Form(choices=_VECTORS, read=_refuse_bfloat16),
        Option(
            "Precision in which vectors are stored and compared (default: float32; float16 for multi-vector "
            "models).",
            group="Encoding",
        ),
    ] = None
    document_text: Annotated[
        DocumentText | None,
        Option(
            "What a document is in retrieval tasks: title and text, or text alone (default: as the "
            "suite has it).",
            group="Encoding",
        ),
    ] = None
    similarity: Annotated[
        Similarity | None,
        Option(
            "How vectors are compared (default: the model's own, else cosine; maxsim for multi-vector "
            "models).",
            group="Encoding",
        ),
    ] = None
    index: Annotated[
        str | None,
        Option(
            "Search of multi-vector (ColBERT) models: auto (the default: exact, and plaid for large tasks), "
            "exact, plaid[:SETTING=VALUE,...] or pylate-script (docs/retrieval.md).",
            metavar="INDEX",
            group="Encoding",
        ),
    ] = None
    context: Annotated[
        ContextChoice | None,
        Option(
            "Context documents of a two-stage model: drawn from the texts of the task, each at most once "
            "(task) or with replacement, or none (null). The default is the model's own setting.",
            group="Encoding",
        ),
    ] = None
    prompts: Annotated[
        Table | None,
        Form(repeated=True),
        Option(
            'Text put before inputs, e.g. "query=query: ". NAME is query, document, a task or a type. '
            "Repeat for several.",
            typed="--prompt",
            metavar="NAME=TEXT",
            group="Encoding",
        ),
    ] = None
    seed: Annotated[
        Seed,
        Option(
            "Seed of samples, probes and trainings (default: 42, as in mteb). Further seeds are the next "
            "numbers.",
            group="Training",
        ),
    ] = SEED


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """The settings with which the models of a recipe are evaluated, unless a user asks for other ones.

    A user's own setting wins over each of them. None, or nothing, means the model's own default.

    Attributes:
        max_length: The longest input in tokens, of multi-vector models the longest document, special tokens
            and prefix included; at most the model's positions, even beyond its own length; none for the
            model's own; that of a two-stage model is its training's.
        dtype: The dtype of weights and computations, without autocast; none for float32, which also runs if
            the model or the device cannot run it.
        prompts: Texts put before inputs, by name; none for the model's own; {} for no text.
        normalized_types: Types of tasks, the only ones in which vectors are scaled to length 1; none for the
            model's own way.
        document_lengths: The longest document of multi-vector models, by the name of the task.
        task_query_lengths: Whether multi-vector models take a task's own length of queries if it is longer
            than theirs.
    """

    max_length: int | None = None
    dtype: Dtype | None = None
    prompts: Mapping[str, str] | None = None
    normalized_types: tuple[str, ...] = ()
    document_lengths: Mapping[str, int] = field(default_factory=dict)
    task_query_lengths: bool = True

    @property
    def inert(self) -> frozenset[str]:
        """The names of settings that leave a model its own."""
        default = EvaluationSettings()
        # Every model has a length and a precision, and queries have a length where documents have.
        always = {"max_length", "dtype"} | ({"task_query_lengths"} if self.document_lengths else set())
        names = vars(default).keys() - always
        return frozenset(name for name in names if getattr(self, name) == getattr(default, name))

    def limit_settings(self, settings: Settings, positions: int | None) -> EvaluationSettings:
        """What holds beside the settings of a user, with lengths up to a number of positions."""
        typed, limit = settings.max_length is not None, positions or sys.maxsize
        longer = {} if typed else self.document_lengths
        return replace(
            self,
            max_length=None if typed or not self.max_length else min(self.max_length, limit),
            document_lengths={task: min(length, limit) for task, length in longer.items()},
            dtype=None if settings.dtype else self.dtype,
            normalized_types=() if settings.normalize is not None else self.normalized_types,
            task_query_lengths=self.task_query_lengths or settings.query_length is not None,
        )

    @property
    def text(self) -> str:
        """The settings in a few words.

        >>> EvaluationSettings(max_length=300, document_lengths={"LongTask": 8192}).text
        '300 tokens, 8,192 in LongTask'
        """
        parts = [
            *([f"{self.max_length:,} tokens"] if self.max_length else []),
            *(f"{length:,} in {task}" for task, length in self.document_lengths.items()),
            *([] if self.task_query_lengths else ["queries of one length"]),
            *([self.dtype] if self.dtype else []),
            *([f"normalized in {', '.join(self.normalized_types)} alone"] if self.normalized_types else []),
            *([f"{len(self.prompts) or 'no'} prompts"] if self.prompts is not None else []),
        ]
        return ", ".join(parts) or "no other settings"


@dataclass(frozen=True, kw_only=True)
class LateInteraction:
    """The settings with which a text becomes a vector for each of its tokens, as PyLate names them.

    Attributes:
        query_length: The tokens of a query, special ones and its prefix included: the most that it has, and
            with expansion just as many.
        document_length: The most tokens of a document, likewise.
        expansion: Whether a shorter query is filled up with mask tokens, which have vectors, too.
        attends_to_expansion: Whether other tokens attend to those of the expansion.
        query_prefix: The token after the first one of a query; empty for none.
        document_prefix: The token after the first one of a document; empty for none.
        skiplist: The marks whose tokens in a document have no vector. A byte-level tokenizer has another
            token for a mark behind a blank: that one has a vector.
        dimension: The length of a vector.
        by_task: Whether a task's own length of queries counts where it is longer, unless one was asked for.
        skips_unknown: Whether a word of the skiplist that is no token stands for the unknown token, as in
            PyLate; else it stands for nothing.
    """

    query_length: int
    document_length: int
    expansion: bool
    attends_to_expansion: bool
    query_prefix: str
    document_prefix: str
    skiplist: tuple[str, ...]
    dimension: int
    by_task: bool = True
    skips_unknown: bool = True


_Count = Annotated[int, Interval(ge=1, lt=2**31)]


@dataclass(frozen=True, kw_only=True)
class Plaid:
    """The settings of an approximate search by PLAID (Santhanam et al., 2022), as fast-plaid names them.

    Vectors of tokens are kept as the nearest of some centroids and a rounded rest. Every setting is in the
    key; `nbits`, `kmeans_niters`, `max_points_per_centroid` and `seed` make the index, the others search it.

    Attributes:
        nbits: Bits for each component of a rest.
        kmeans_niters: Iterations of the k-means that finds the centroids.
        max_points_per_centroid: Vectors for each centroid that k-means sees at most.
        n_ivf_probe: Centroids for each query token whose documents are candidates.
        n_full_scores: Candidates that are left after the scores by centroids alone; the rests of a quarter
            of these are read, and no more documents are found.
        seed: That of the samples and of k-means.
        top_k: The documents of a query at most; None for as many as the task asks for.
    """

    nbits: Literal[1, 2, 4, 8] = 4
    kmeans_niters: _Count = 4
    max_points_per_centroid: _Count = 256
    n_ivf_probe: _Count = 8
    # At least 4, as a quarter of them is read in full: fewer would leave no document.
    n_full_scores: Annotated[int, Interval(ge=4, lt=2**31)] = 8192
    seed: Annotated[int, Interval(ge=0, lt=2**31)] = SEED
    # "later": the field is newer than the first indexes, whose keys it must not change (core/keys.py).
    top_k: Annotated[int, Interval(ge=10, lt=2**31)] | None = field(default=None, metadata={"later": True})


MOST_PAIRS = 4e12
"""Pairs of tokens up to which a task is searched exactly by default, some three hours on two CPU cores."""


USUAL_QUERIES = 1000
"""Queries of a task whose number is not known."""


@dataclass(frozen=True, kw_only=True)
class ContextDraw:
    """The draw of the context documents on which the vectors of a two-stage model depend.

    Attributes:
        size: The number of context documents.
        documents: Their choice; "null" for the null vector in the place of each.
        seed: That of the draw.
    """

    size: int
    documents: ContextChoice = "task"
    seed: int = SEED


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """The settings with which a model turns text into vectors, every default filled in; part of each key.

    `max_length` counts tokens, special ones included; with a tower for each side it is that of the longer
    tower. `prompts` are the model's named prompts, replaced by the requested ones of the same name and sorted
    by name; an empty text means no prompt. `default_prompt` names the prompt for tasks that no other name
    matches. `vectors` is the precision in which vectors are kept and compared. With `late_interaction`, the
    output "multivector", each token has a vector: there is no pooling (""), and `max_length` is that of the
    longer side. With an `index` the search of such a model is approximate; its vectors are the same. Without
    one large tasks are searched by the usual one, unless `exact` was asked for. With a `context` a vector
    depends on context documents, which are drawn for each task. The first `truncate_dim` numbers of a vector
    are kept, None for all. On tasks of `normalized_types` vectors are scaled to length 1 in any case, and
    `document_lengths` are those of multi-vector models on some tasks. `rope_scaling` is set where
    `max_length` is beyond the model's positions; the dynamic one is that of a text of `max_length` tokens.
    """

    output: Output = "vector"
    dtype: Dtype = "float32"
    pooling: str
    normalize: bool
    max_length: int
    similarity: Similarity = "cosine"
    vectors: Dtype = "float32"
    prompts: tuple[tuple[str, str], ...] = ()
    default_prompt: str | None = None
    late_interaction: LateInteraction | None = None
    index: Plaid | None = None
    exact: bool = False
    context: ContextDraw | None = None
    # "later": see Plaid.top_k.
    truncate_dim: int | None = field(default=None, metadata={"later": True})
    normalized_types: tuple[str, ...] = ()
    document_lengths: tuple[tuple[str, int], ...] = ()
    rope_scaling: str | None = None

    @property
    def may_exceed_half(self) -> bool:
        """Whether vectors of any length are kept in float16."""
        is_scaled = self.normalize or self.late_interaction is not None or self.normalized_types
        return self.vectors == "float16" and not is_scaled

    @property
    def loaded(self) -> Encoding:
        """The settings that a loaded model has, whatever the task and the draw of a context."""
        context = self.context and ContextDraw(size=self.context.size)
        return replace(self, context=context, normalized_types=(), document_lengths=())

    def choose_document_length(self, task: Task) -> Encoding:
        """The encoding with the length of documents that it has on a task."""
        late, length = self.late_interaction, dict(self.document_lengths).get(task.name)
        if late is None or length is None:
            return replace(self, document_lengths=())
        late = replace(late, document_length=length)
        longest = max(late.query_length, length)
        return replace(self, late_interaction=late, max_length=longest, document_lengths=())

    def adapt_encoding(self, task: Task) -> Encoding:
        """The encoding of the texts of a task, and their search.

        Its queries may be longer than the model's own length, and a large task is searched by an index.
        """
        encoding = self.choose_document_length(task)
        late, length = encoding.late_interaction, task.query_length or 0
        if late is None:
            normalize = self.normalize or task.type in self.normalized_types
            return replace(encoding, normalize=normalize, normalized_types=())
        if late.by_task and length > late.query_length:
            late = replace(late, query_length=length)
        encoding = replace(
            encoding, late_interaction=late, max_length=max(late.query_length, late.document_length)
        )
        return replace(encoding, index=Plaid()) if encoding._is_indexed(task.size) else encoding

    def _is_indexed(self, size: Size) -> bool:
        """Whether a task of this size is searched by the usual index, although nobody asked for one."""
        late = self.late_interaction
        # The index packs bits of components into bytes: only dimensions divisible by 8 fit.
        if self.index is not None or self.exact or late is None or late.dimension % 8:
            return False
        # PLAID computes plain MaxSim, without PyLate's filling up of shorter documents.
        is_countable = size.texts is not None and self.similarity == "maxsim"
        return is_countable and self.count_token_pairs(size) > MOST_PAIRS

    def count_token_pairs(self, size: Size) -> float:
        """The pairs of tokens that an exact search of a task compares, at most."""
        assert self.late_interaction is not None
        queries = size.examples or USUAL_QUERIES
        return float(queries * self.late_interaction.query_length * size.most_tokens(self.max_length))

    def resolve_prompt(self, task: TextTask, role: Role) -> str:
        """The text put before each input of `task` on side `role`, empty if none (see `select_prompt`)."""
        return select_prompt(task, role, dict(self.prompts), self.default_prompt)


BM25Method = Literal["lucene", "robertson", "atire", "bm25l", "bm25+"]


BM25 = "bm25"
"""The name of the model that ranks by words, before its settings."""


def is_bm25(text: str) -> bool:
    """Whether a text names BM25, with or without settings."""
    return text.partition(":")[0] == BM25


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The settings with which BM25 puts documents in an order for a query; part of each key.

    `stop_words` and `stemmer` are names, "none", or "auto" for those of the task's language; `rules` is the
    version of how texts become words and words scores.
    """

    output: Output = "ranking"
    method: BM25Method = "lucene"
    k1: Annotated[float, Interval(ge=0, lt=math.inf)] = 1.5
    b: Annotated[float, Interval(ge=0, le=1)] = 0.75
    delta: Annotated[float, Interval(ge=0, lt=math.inf)] = 0.5
    stop_words: str = "auto"
    stemmer: str = "auto"
    # Left out of the key at 1: results of the first rules keep their keys.
    rules: int = field(default=1, metadata={"later": True})


AnyEncoding = Encoding | Ranking | ObjectEncoder
"""The way in which a model is evaluated; part of each key."""


TokenKind = Literal["text", "special", "prefix", "expansion"]
"""The origin of a token: the text, the tokenizer's ends, the token of the side, or a query's filling."""


@dataclass(frozen=True, kw_only=True)
class TextToken:
    """A token of a text as a model sees it.

    Attributes:
        token: The token as the tokenizer prints it.
        start, end: The characters of the given text that it stands for; None where it stands for none.
        kind: Its origin.
        skipped: Whether it has no vector.
    """

    token: str
    start: int | None
    end: int | None
    kind: TokenKind
    skipped: bool


@dataclass(frozen=True, kw_only=True)
class TextTokens:
    """The tokens of a text, and the number that it would have without a limit, expansion left out."""

    tokens: tuple[TextToken, ...]
    whole: int

    @property
    def cut(self) -> int:
        """The number of tokens that were cut off."""
        return self.whole - sum(one.kind != "expansion" for one in self.tokens)
