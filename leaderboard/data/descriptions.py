"""Descriptions, languages and citations of tasks and benchmarks (suites/_mteb/make_snapshot.py)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class _TaskDescription:
    """A task or a benchmark: one text, a page about it, its BibTeX entry, its languages and domains."""

    text: str = ""
    reference: str = ""
    citation: str = ""
    languages: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The first sentence of the text.

        >>> _TaskDescription(text="Of St. Petersburg, v1.5. And more.").sentence
        'Of St. Petersburg, v1.5.'
        """
        # Two lower-case letters, digits or a bracket before the full stop: so "St." ends no sentence. A
        # version such as "v1.5." does.
        return re.split(r"(?<=[a-z0-9)]{2}\.|\.\d\.) (?=[A-Z])", self.text)[0]


@cache
def _load_descriptions() -> Mapping[str, Mapping[str, Any]]:
    return dict(json.loads(Path(__file__).with_name("descriptions.json").read_text("utf-8")))


_OWN: Mapping[str, str] = {
    "glue": "Eight English tasks on sentences and pairs of sentences: a backbone is fine-tuned on each.",
    "stdlib": "Functions of Python's standard library, made into tasks on this machine without a download.",
    "code": "Retrieval of the functions of a folder of Python source by their descriptions.",
}
"""Descriptions of the suites that mteb does not have."""


def describe_task(name: str) -> _TaskDescription:
    """The description of a task; an empty one where mteb has none of that name.

    >>> describe_task("SciFact").languages, describe_task("nothing").text
    (('eng',), '')
    """
    return _find_description(f"task:{name}")


def describe_suite(typed: str, title: str) -> _TaskDescription:
    """The description of a suite by its name on the command line, or by its title, as mteb has it."""
    if typed in _OWN:
        return _TaskDescription(text=_OWN[typed])
    return _find_description(f"benchmark:{typed.partition(':')[2] or title}")


def name_language(code: str) -> str:
    """The name of a language.

    >>> name_language("deu"), name_language("none")
    ('German', 'none')
    """
    return _find_description(f"language:{code}").text or code


@cache
def _find_description(key: str) -> _TaskDescription:
    row = _load_descriptions().get(key, {})
    lists = {name: tuple(row.get(name, ())) for name in ("languages", "domains")}
    return _TaskDescription(**{**row, **lists})
