"""Looks up every source that a recipe names: sections and tables in papers, lines in repositories.

    python benchmarks/resolve_sources.py --papers ../shared/papers --repositories FOLDER [--lines]

FOLDER has a git directory OWNER+NAME/repo for each repository; a library is read where it is installed, if
its version is the named one. `--lines` prints each line of code beside the settings that name it.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from harness.core.sources import Source
from harness.plan import catalog

CODE = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)@(?P<commit>[\w.-]+):(?P<path>[^#]+)#L(?P<line>\d+)")
PLACE = re.compile(r"(?P<paper>[\w-]+)(?P<parts>(, (appendix|section|table) [\w.]+)+)")
ANSWER = re.compile(r"answer in [\w.-]+/[\w.-]+#\d+")
DEFAULT = re.compile(r"default of .+")

PAPERS = {
    "OptiBERT": "000",
    "MosaicBERT": "001",
    "Efficient-Embeddings": "002",
    "NeoBERT": "003",
    "ModernBERT": "004",
}
"""The beginnings of the papers' files."""

UNNUMBERED = {
    ("ModernBERT", "section 3.1.1"): "#### 자연어 이해",
    ("ModernBERT", "section 3.1.2"): "#### 텍스트 검색",
    ("ModernBERT", "section 3.1.3"): "#### 긴 컨텍스트 텍스트 검색",
}
"""Headings of a text whose sections have no numbers."""

PACKAGES = {
    "huggingface/transformers": "transformers",
    "huggingface/sentence-transformers": "sentence_transformers",
}
PACKAGES |= {"pytorch/pytorch": "torch"}
"""Libraries whose installed files are read."""


def iterate_sources() -> Iterator[tuple[str, object, Source]]:
    """The name of a recipe's setting, its value, and its source, for every recipe and variant."""
    for entry in catalog.load_recipe_entries().values():
        for variant in entry.settings:
            recipe = catalog.open_recipe(f"{entry.name}:{variant}" if variant else entry.name)
            for row in recipe.list_sourced_settings():
                if row.source is not None:
                    yield f"{recipe.name} {row.name}", row.value, row.source


def find_heading(paper: str, part: str, text: str) -> int | None:
    """The line of a section, an appendix or a table in a paper's text; None where there is none."""
    kind, number = part.split(" ")
    escaped = re.escape(number)
    pattern = {
        "table": rf"(Table|표) {escaped}\b",
        "section": rf"^[#* ]*{escaped}[.*]* [A-Z]",
        "appendix": rf"^[#* ]*(Appendix |부록 )?{escaped}\b[.*]* \S",
    }[kind]
    pattern = re.escape(UNNUMBERED.get((paper, part), "")) or pattern
    found = re.search(pattern, text, re.MULTILINE)
    return text.count("\n", 0, found.start()) + 1 if found else None


def check_place(place: str, papers: Path) -> str:
    """What is wrong with a place; empty if nothing is."""
    if ANSWER.fullmatch(place) or DEFAULT.fullmatch(place):
        return ""
    parts = PLACE.fullmatch(place)
    if parts is None or parts["paper"] not in PAPERS:
        return "has no known form"
    (file,) = papers.glob(f"{PAPERS[parts['paper']]}_*.txt")
    text = file.read_text(encoding="utf-8")
    missing = [
        part
        for part in parts["parts"].removeprefix(", ").split(", ")
        if find_heading(parts["paper"], part, text) is None
    ]
    return f"{file.name} has no {', '.join(missing)}" if missing else ""


def read_code(code: str, repositories: Path | None) -> str | None:
    """The line of code that a source names.

    Raises:
        LookupError: There is no such file or line.
    """
    parts = CODE.fullmatch(code)
    if parts is None:
        raise LookupError("has no known form")
    lines = read_installed(parts) or read_repository(parts, repositories)
    if lines is None:
        return None
    number = int(parts["line"])
    if number > len(lines) or not lines[number - 1].strip():
        raise LookupError("has no such line")
    return lines[number - 1].strip()


def read_installed(parts: re.Match[str]) -> list[str] | None:
    """The lines of an installed library's file; None where another version is installed."""
    package = PACKAGES.get(parts["repository"])
    if package is None or f"v{importlib.metadata.version(package).partition('+')[0]}" != parts["commit"]:
        return None
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    file = Path(spec.origin).parents[1] / parts["path"].removeprefix("src/")
    return file.read_text(encoding="utf-8").splitlines()


def read_repository(parts: re.Match[str], repositories: Path | None) -> list[str] | None:
    """The lines of a file at a commit; None without the repository."""
    folder = repositories / parts["repository"].replace("/", "+") / "repo" if repositories else None
    if folder is None or not folder.is_dir():
        return None
    shown = subprocess.run(
        ["git", "-C", str(folder), "show", f"{parts['commit']}:{parts['path']}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if shown.returncode:
        raise LookupError(shown.stderr.strip())
    return shown.stdout.splitlines()


def resolve_sources(
    papers: Path | None, repositories: Path | None
) -> tuple[dict[str, list[str]], list[str], list[str]]:
    """The lines of code with the settings that name them, what is wrong, and code that could not be read."""
    lines, wrong, unread = defaultdict[str, list[str]](list), [], []
    for name, value, source in iterate_sources():
        if source.place and papers is not None and (reason := check_place(source.place, papers)):
            wrong.append(f"{name}: {source.place} {reason}")
        if not source.code:
            continue
        try:
            line = read_code(source.code, repositories)
        except LookupError as error:
            wrong.append(f"{name}: {source.code} {error}")
            continue
        if line is None:
            unread.append(source.code)
        else:
            lines[f"{source.code}  {line}"].append(f"{name} = {value}"[:90])
    return lines, wrong, sorted(set(unread))


def main() -> int:
    """Print what cannot be found, and how much of all settings is ours."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--papers", type=Path)
    parser.add_argument("--repositories", type=Path)
    parser.add_argument("--lines", action="store_true")
    options = parser.parse_args()
    lines, wrong, unread = resolve_sources(options.papers, options.repositories)
    if options.lines:
        for line, names in sorted(lines.items()):
            print(line, *(f"    {name}" for name in dict.fromkeys(names)), sep="\n")
    for text in wrong:
        print(text)
    print(f"{len(lines)} lines of code found, {len(unread)} not at hand, {len(wrong)} wrong places")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
