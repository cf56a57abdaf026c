"""The pictures of the README, the site in light and dark and a run in a terminal, and that of its links.

    python benchmarks/pictures.py --results RESULTS

`--results` is a results folder that mteb's results were imported into; without it only the picture of links
is made. The run is that of `make demo`, made anew in a folder of its own. Chromium must be installed. Writes
docs/pictures/{site-light,site-dark,run}.png and leaderboard/static/preview.png.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from measuring import ROOT, read_options
from playwright.sync_api import Browser, sync_playwright
from rich.console import Console
from rich.text import Text

from browsing import chromium, served
from leaderboard.data.settings import read_site_settings
from leaderboard.web.app import create_app
from leaderboard.web.site import TITLE

PICTURES = ROOT / "docs" / "pictures"
WIDTH, HEIGHT, SCALE, COLUMNS = 1280, 800, 0.75, 118
PREVIEW = ROOT / "leaderboard" / "static" / "preview.png"
CARD = """
<style>
  body { margin: 0; padding: 80px 96px; height: 470px; display: flex; flex-direction: column; color: #e7ebed;
         background: #111518; font: 40px/1.4 "Liberation Sans", sans-serif; justify-content: space-between }
  h1 { margin: 0; font-size: 84px; line-height: 1.1; letter-spacing: -.02em }
  p { margin: 0; color: #b7c0c6 } svg { width: 96px }
</style>
<svg viewBox="0 0 24 24">
  <path fill="#e7ebed" d="M0 0h5v24H0z"/>
  <path fill="#6fc0ee" d="M7 0h17v6H7zM7 9h12v6H7zM7 18h7v6H7z"/></svg>
<h1>TITLE</h1>
<p>Which text encoder for which tasks?<br>
Scores measured, imported and printed in papers,<br>each with its source</p>
"""
"""The picture beside links to the site: one for all pages, as their titles stand in the tags."""
RUN = "harness run --model minilm --suite stdlib"


def site(browser: Browser, results: Path) -> None:
    """The first page in both themes, once its charts are drawn."""
    with tempfile.TemporaryDirectory() as snapshots:
        settings = replace(read_site_settings([results]), refresh=0, snapshots=Path(snapshots))
        with served(create_app(settings)) as base:
            for theme in ("light", "dark"):
                size = {"width": WIDTH, "height": HEIGHT}
                page = browser.new_page(
                    base_url=base, viewport=size, color_scheme=theme, device_scale_factor=SCALE
                )
                page.goto("/")
                page.wait_for_selector(".chart [data-drawn] .point")
                page.wait_for_timeout(1000)
                page.screenshot(path=PICTURES / f"site-{theme}.png")
                page.close()


def output() -> str:
    """What the run prints on a terminal."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", *shlex.split(RUN), "--results", "results", "--cache", "cache"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS)}
        return subprocess.run(
            command, cwd=folder, env=environment, check=True, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        ).stdout  # fmt: skip


def run(browser: Browser, printed: str) -> None:
    """A run as a terminal shows it."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(f"[bold]$[/bold] {RUN}\n", highlight=False)
    console.print(Text.from_ansi(printed))
    drawing = re.sub(r"@font-face\s*{.*?}", "", console.export_svg(title="harness"), flags=re.DOTALL)
    _, _, width, height = map(float, re.findall(r'viewBox="([^"]+)"', drawing)[0].split())
    page = browser.new_page(
        viewport={"width": round(width), "height": round(height)}, device_scale_factor=SCALE
    )
    page.set_content(f"<style>body {{ margin: 0 }}</style>{drawing.replace('Fira Code', 'DejaVu Sans Mono')}")
    page.screenshot(path=PICTURES / "run.png", omit_background=True)
    page.close()


def preview(browser: Browser) -> None:
    """The picture of links."""
    page = browser.new_page(viewport={"width": 1200, "height": 630})
    page.set_content(CARD.replace("TITLE", TITLE))
    page.screenshot(path=PREVIEW)
    page.close()


def main() -> None:
    results = read_options(__doc__, results={"help": "a folder"}).results
    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = chromium(playwright)
        preview(browser)
        if results:
            site(browser, Path(results).resolve())
            run(browser, output())
        browser.close()
    for path in (*sorted(PICTURES.glob("*.png")), PREVIEW):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
