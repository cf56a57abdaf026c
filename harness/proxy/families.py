"""Families of models: what was made of one another, or comes from one organisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def families(models: Sequence[str], parents: Mapping[str, str]) -> list[str]:
    """A name for the family of each model, the same for all of one family.

    Models with one root, by what they were adapted from, are one family; so are those of an
    organisation that name nothing, with all that was adapted from them.

    Args:
        models: Their names, `organisation/name`.
        parents: What a model was adapted from, by its name, of models in the middle of a line as well.

    >>> families(["a/one", "b/two", "b/three", "c/four"], {"b/two": "a/one", "c/four": "d/none"})
    ['a', 'a', 'b', 'd/none']
    """
    known = {*models, *parents}
    return [_family(_root(model, parents), known) for model in models]


def _root(model: str, parents: Mapping[str, str]) -> str:
    """The end of the line; of a line that bites its tail the first name of the circle."""
    seen = [model]
    while (parent := parents.get(seen[-1])) is not None:
        if parent in seen:
            return min(seen[seen.index(parent) :])
        seen.append(parent)
    return seen[-1]


def _family(root: str, known: set[str]) -> str:
    return root.partition("/")[0] if root in known else root
