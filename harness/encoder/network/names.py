"""How a family names the tensors of a published checkpoint, both ways."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

LAYER = "{n}"
"""Stands for the number of a layer."""

OLD_LEAVES = {"gamma": "weight", "beta": "bias"}
"""What LayerNorm's tensors were called in early checkpoints."""

ENCODER = "encoder."
"""What stands before our names of the encoder in a model with a head."""


@dataclass(frozen=True, kw_only=True)
class Names:
    """Our modules and tensors against those of a published checkpoint.

    Attributes:
        encoder: Our name of a module or tensor of the encoder to theirs, LAYER for a layer's number.
        head: The same of the masked-language head, from "head." on.
        prefix: What stands before their names of the encoder in a model with a head.
        ignored: Regular expressions of tensors that are left out, each with the reason.
    """

    encoder: Mapping[str, str]
    head: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""
    ignored: Mapping[str, str] = field(default_factory=dict)

    def ours(self, theirs: str) -> str | None:
        """Our name of a tensor, without ENCODER; None if it is none of the network's."""
        stem, _, leaf = theirs.rpartition(".")
        name = f"{stem}.{OLD_LEAVES[leaf]}" if leaf in OLD_LEAVES else theirs
        inside = name.removeprefix(self.prefix)
        return _translated(inside, _reversed(self.encoder)) or _translated(name, _reversed(self.head))

    def theirs(self, ours: str, *, with_head: bool) -> str:
        """Their name of a tensor that is ours.

        Raises:
            KeyError: If it is not.
        """
        inside = ours.removeprefix(ENCODER) if with_head else ours
        found = _translated(inside, tuple(self.encoder.items()))
        if found is not None:
            return self.prefix + found if with_head else found
        found = _translated(ours, tuple(self.head.items()))
        if found is None:
            raise KeyError(ours)
        return found

    def reason(self, theirs: str) -> str | None:
        """Why a tensor is left out, None if nothing says so."""
        found = (why for pattern, why in self.ignored.items() if re.fullmatch(pattern, theirs))
        return next(found, None)


def _reversed(names: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((theirs, ours) for ours, theirs in names.items())


def _translated(name: str, pairs: Iterable[tuple[str, str]]) -> str | None:
    """The name on the other side; the longest entry that fits counts."""
    for source, target in sorted(pairs, key=lambda pair: -len(pair[0])):
        found = _pattern(source).fullmatch(name)
        if found:
            layer, leaf = found.groupdict().get("n", ""), found["leaf"] or ""
            return target.replace(LAYER, layer or "") + leaf
    return None


@functools.cache
def _pattern(source: str) -> re.Pattern[str]:
    return re.compile(re.escape(source).replace(re.escape(LAYER), r"(?P<n>\d+)") + r"(?P<leaf>\.[^.]+)?")
