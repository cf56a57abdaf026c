"""Descriptions, languages and citations of mteb's tasks and benchmarks, from a committed file.

`python -m leaderboard.data.descriptions` writes it from the installed mteb.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("descriptions.json")


@dataclass(frozen=True, kw_only=True)
class Description:
    """A task or a benchmark: one text, a page about it, its BibTeX entry, and codes of its languages."""

    text: str = ""
    reference: str = ""
    citation: str = ""
    languages: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The first sentence of the text.

        >>> Description(text="Of St. Petersburg, v1.5. And more.").sentence
        'Of St. Petersburg, v1.5.'
        """
        return re.split(r"(?<=[a-z0-9)]{2}\.) (?=[A-Z])", self.text)[0]


@cache
def _rows() -> Mapping[str, Mapping[str, Any]]:
    found: Mapping[str, Mapping[str, Any]] = json.loads(FILE.read_text("utf-8"))
    return found


OWN: Mapping[str, str] = {
    "glue": "Eight English tasks on sentences and pairs of sentences: a backbone is fine-tuned on each.",
    "stdlib": "Functions of Python's standard library, made into tasks on this machine without a download.",
    "code": "Retrieval of the functions of a folder of Python source by their descriptions.",
}
"""Descriptions of the suites that mteb does not have."""


def describe_task(name: str) -> Description:
    """The description of a task; an empty one where mteb has none of that name.

    >>> describe_task("SciFact").languages, describe_task("nothing").text
    (('eng',), '')
    """
    return _describe(f"task:{name}")


def describe_suite(typed: str, title: str) -> Description:
    """The description of a suite by its name on the command line, or by its title, as mteb has it."""
    if typed in OWN:
        return Description(text=OWN[typed])
    return _describe(f"benchmark:{typed.partition(':')[2] or title}")


def _describe(key: str) -> Description:
    row = _rows().get(key, {})
    return Description(**{**row, "languages": tuple(row.get("languages", ()))})


def main() -> None:
    """Write the file from the installed mteb: its tasks over text alone, and its benchmarks."""
    import mteb

    rows: dict[str, Any] = {}
    for task in mteb.get_tasks(exclude_superseded=False):
        about = task.metadata
        if set(about.modalities) == {"text"}:
            languages = sorted({code.partition("-")[0] for code in about.languages})
            rows[f"task:{about.name}"] = _row(about, languages)
    for benchmark in mteb.get_benchmarks():
        if any(f"task:{task.metadata.name}" in rows for task in benchmark.tasks):
            rows[f"benchmark:{benchmark.name}"] = _row(benchmark, [])
    lines = [f"{json.dumps(key)}: {json.dumps(rows[key], ensure_ascii=False)}" for key in sorted(rows)]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def _row(about: Any, languages: list[str]) -> dict[str, Any]:
    citation = (getattr(about, "bibtex_citation", None) or getattr(about, "citation", None) or "").strip()
    texts = {
        "text": _plain(about.description or ""),
        "reference": str(about.reference or ""),
        "citation": citation,
        "languages": languages,
    }
    return {name: value for name, value in texts.items() if value}


def _plain(text: str) -> str:
    """Text without line ends, and without the addresses of Markdown's links."""
    return " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).split())


if __name__ == "__main__":
    main()
