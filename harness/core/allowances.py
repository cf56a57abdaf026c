"""What a user accepts by name with `--allow`: contradictions of models and data, tensors without a place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from harness.core.arguments import Form, Names, split_names
from harness.core.errors import UsageError, find_similar_names

ALLOWANCES = {
    "attention": "attention in another direction than config.json says",
    "blind-pooling": "pooling of a first token that sees no other",
    "lower-case": "letters in another case than do_lower_case says",
    "order-dependence": "vectors that depend on the texts encoded before them",
    "padding-side": "padding on another side than the tokenizer's files say",
    "partial-data": "a data set with fewer rows than it declares",
    "special-tokens": "other special tokens than the tokenizer's files say",
    "unused-prompt": "a prompt of a side under a name by which no text gets it",
    "vector-length": "vectors that are to have length 1, and have not",
    "vector-size": "another dimension than the files say",
}
"""The contradictions that can be accepted, each with what it is."""

_TENSORS = "tensors="


def parse_allowances(value: Any, *, is_field: Callable[[str], bool] = lambda _: False) -> Any:
    """The names of a text with commas, or of several; any other value is returned unchanged.

    Args:
        value: As a user gave it; None for no names.
        is_field: Whether a name is of a field of evaluations, which `harness check` lets differ.

    Raises:
        UsageError: A name is unknown; the message lists all.

    >>> parse_allowances("partial-data, tensors=probe.*")
    ('partial-data', 'tensors=probe.*')
    """
    texts = [value] if isinstance(value, str) else value or ()
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        return value
    names = tuple(name for text in texts for name in split_names(text))
    for name in names:
        is_pattern = name.startswith(_TENSORS) and name != _TENSORS
        if not (name in ALLOWANCES or is_pattern or is_field(name)):
            close = find_similar_names(name, ALLOWANCES)
            near = f"Did you mean {' or '.join(close)}? " if close else ""
            kinds = "; ".join(f"{one} ({what})" for one, what in ALLOWANCES.items())
            raise UsageError(
                f"--allow {name} names nothing that can be accepted.",
                hint=f"{near}There is: {kinds}; {_TENSORS}PATTERN (tensors that have no place in the model); "
                "in harness check also a field that may differ, e.g. pooling.",
            )
    return names


def list_allowed_tensors(names: Sequence[str]) -> tuple[str, ...]:
    """The patterns of tensors that may have no place in a model.

    >>> list_allowed_tensors(("partial-data", "tensors=probe.*"))
    ('probe.*',)
    """
    return tuple(name.removeprefix(_TENSORS) for name in names if name.startswith(_TENSORS))


Allowances = Annotated[Names, Form(read=parse_allowances, repeated=True)]
