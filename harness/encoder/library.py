"""Calls of sentence-transformers and transformers whose names changed, by what the installed release has.

Modules of the first are imported from their places of 5.3, which later releases redirect to the new ones,
and where they are needed: their import takes seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, cast

from packaging.version import Version
from torch import nn

from harness.encoder.folder.modules import ORDER, POOLING_FLAGS, RUN, TOKENS, name_pooling
from harness.encoder.folder.modules import RENAMED as LATER_NAMES

RENAMED = Version(version("sentence-transformers")) >= Version("5.4.dev0")
"""Whether the installed release has the names of 5.4."""


def rename_loading_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a Transformer of 5.3 as the installed release has them."""
    if not RENAMED:
        return dict(arguments)
    names = {old: new for new, old in LATER_NAMES.items()}
    return {
        "modality_config": RUN["modality_config"][0],
        "module_output_name": TOKENS,
        **{names.get(name, name): value for name, value in arguments.items()},
    }


def tokenize_batch(module: Any, texts: Sequence[str], **way: Any) -> dict[str, Any]:
    """The features of texts in one batch, by a model or its first module; `way` is a Router's route."""
    preprocess = getattr(module, "preprocess", None)
    if preprocess is None or not RENAMED:
        return cast("dict[str, Any]", module.tokenize(list(texts), **way))
    # Up to 5.3 a Transformer strips texts, and there is no modality.
    first = module[0] if isinstance(module, nn.Sequential) else module
    if "StaticEmbedding" not in {kind.__name__ for kind in type(first).__mro__}:
        texts = [text.strip() for text in texts]
    features = preprocess(list(texts), **way)
    return {name: value for name, value in features.items() if name != "modality"}


def count_prompt_tokens(model: Any, first: Any, prompt: str, **way: Any) -> int | None:
    """The tokens of a prompt without a closing one; `first` is the module that tokenizes."""
    if not RENAMED:
        return cast("int | None", model._get_prompt_length(prompt, **way))
    count = getattr(first, "_get_prompt_length", None)
    return None if count is None else cast("int | None", count(prompt))


def enable_checkpointing(network: Any, *, reentrant: bool) -> None:
    """Compute activations again in the backward pass of a network of transformers, which saves memory."""
    # The newer name, the older of which warns.
    newer = getattr(network, "activation_checkpointing_enable", None)
    (newer or network.gradient_checkpointing_enable)({"use_reentrant": reentrant})


def get_dimension(module: Any) -> int:
    """The size of the vectors of a model or a module."""
    names = ("get_embedding_dimension", "get_word_embedding_dimension", "get_sentence_embedding_dimension")
    return int(next(getattr(module, name) for name in names if hasattr(module, name))())


def get_pooled_dimension(pooling: Any) -> int:
    """The size of the token vectors that a pooling takes."""
    named = getattr(pooling, "word_embedding_dimension", None)
    return int(pooling.embedding_dimension if named is None else named)


def get_max_length(module: Any) -> Any:
    """The length at which a module cuts texts; None where it cuts none.

    Since 5.4 it is the tokenizer's, which has 10^30 for no length.
    """
    length = getattr(module, "max_seq_length", None)
    return None if isinstance(length, int) and length > 10**12 else length


def build_pooling(dimension: int, modes: Sequence[str], *, include_prompt: bool = True) -> Any:
    """A pooling whose vector joins those of its modes, in the library's order."""
    from sentence_transformers.models import Pooling

    if RENAMED:
        ordered: Any = tuple(mode for mode in ORDER if mode in modes)
        # Since 5.4 "cls" would be the first token behind the prompt.
        include_prompt = include_prompt or ordered == ("cls",)
        return Pooling(dimension, ordered, include_prompt=include_prompt)
    flags: dict[str, Any] = {flag: mode in modes for flag, mode in POOLING_FLAGS.items()}
    return Pooling(dimension, include_prompt=include_prompt, **flags)


def name_modes(pooling: Any) -> str:
    """The name of a pooling's modes, as `name_pooling` has it."""
    modes = getattr(pooling, "pooling_mode", None)
    if modes is None:
        return str(pooling.get_pooling_mode_str())
    return name_pooling({"pooling_mode": [modes] if isinstance(modes, str) else [*modes]}, "")


def build_collator(model: Any) -> Any:
    """The library's collator of training rows, with the tokenizer of a model."""
    from sentence_transformers.data_collator import SentenceTransformerDataCollator

    function: Any = {"preprocess_fn": model.preprocess} if RENAMED else {"tokenize_fn": model.tokenize}
    return SentenceTransformerDataCollator(**function)
