"""From a checkpoint's name to its step."""

from __future__ import annotations

import re

WORDS = ("step", "steps", "iter", "iteration", "ba", "batch", "checkpoint", "ckpt", "epoch")
"""Words in front of a step; of several in one name the first of this list decides."""

_NUMBER = r"(?P<number>\d+(?:\.\d+(?=[kmKM]))?)(?P<unit>[kmKM]?)(?![A-Za-z0-9])"
_LAST = re.compile(r"(?:^|[^A-Za-z0-9.])(?P<number>\d+)(?P<unit>[kmKM]?)(?:[-_]?(?:hf|steps?))?$")
_UNITS = {"": 1, "k": 1_000, "m": 1_000_000}
_UNFINISHED = re.compile(r"^\.|^te?mp(?![a-z])|\.(tmp|partial|incomplete|part)$|^_", re.IGNORECASE)


def step_of(name: str) -> int | None:
    """The step that a folder's or a revision's name tells, None if it tells none.

    A number behind one of WORDS, else a number at the end of the name that stands by itself; k and
    m behind a number mean thousands and millions. Where one word stands twice, its last number counts.

    >>> [step_of(name) for name in ("step1000-tokens4B", "epoch2-ba500", "0001000", "step-1.5k")]
    [1000, 500, 1000, 1500]
    >>> [step_of(name) for name in ("final", "tokens4B", "e5-base-v2")]
    [None, None, None]
    """
    for word in WORDS:
        found = list(re.finditer(rf"(?:^|[^A-Za-z]){word}[-_=. ]*{_NUMBER}", name, re.IGNORECASE))
        if found:
            return _value(found[-1])
    last = _LAST.search(name)
    return _value(last) if last else None


def unfinished(name: str) -> bool:
    """Whether a name is one that programs write under before they rename.

    >>> unfinished("tmp-checkpoint-1000"), unfinished(".step5"), unfinished("step5.tmp"), unfinished("step5")
    (True, True, True, False)
    """
    return bool(_UNFINISHED.search(name))


def _value(found: re.Match[str]) -> int:
    return round(float(found["number"]) * _UNITS[found["unit"].lower()])
