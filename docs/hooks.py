"""Pages of the repository that lie outside of docs/, for the site of `make docs`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = {"results/README.md": "records.md", "docker/README.md": "docker.md"}
"""Those that the site has, and their names there."""

LINK = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)(#[^)]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages."""
    for source, name in PAGES.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(text: str, page: Any, config: Any, files: Files) -> str:
    """Links of the repository as those of the site; where it lacks a file, the words alone."""
    place = {name: source for source, name in PAGES.items()}.get(
        page.file.src_uri, f"docs/{page.file.src_uri}"
    )

    def rewrite(link: re.Match[str]) -> str:
        words, target, anchor = link[1], link[2], link[3] or ""
        if "://" in target:
            return link[0]
        path = (ROOT / place).parent.joinpath(target).resolve().relative_to(ROOT).as_posix()
        there = PAGES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
        return f"[{words}]({there}{anchor})" if there else words

    return LINK.sub(rewrite, text)
