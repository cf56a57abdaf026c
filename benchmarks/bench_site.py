"""The site over an import: start, refresh, memory, the heaviest suite page cold and warm, and many readers.

    python benchmarks/bench_site.py --results RESULTS

`--results` is a results folder that mteb's results were imported into; with `--import CHECKOUT` they are
imported first, into a folder of their own and an empty cache. The server has two workers and is a process
of its own, and so are the readers, who read over the loopback as browsers do: a page a second each, nine of
ten of sixty addresses, and one of ten a model's page that nobody opened before. They read twice: at first no
page was made before, then those of the sixty addresses were.

    python benchmarks/bench_site.py --many FOLDER [FOLDER ...]

measures the start over a results folder of many records, of which it makes links in a folder of its own:
without a snapshot, with one, with a thousand records that are new, and the first page. Over folders of
several sizes, it also prints what a straight line through them says of half a million.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from bisect import bisect
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from itertools import accumulate
from pathlib import Path
from threading import Event, Thread
from urllib.parse import quote

import numpy as np
import psutil
from measuring import read_options

READERS, SECONDS, NEW, WORKERS = 200, 20, 10, 2
PAGE = "/suites/mteb-v1"
BARS = {
    "import and first answer, s": 20, "start unchanged, s": 1.5, "refresh unchanged, s": 3,
    "page cold, s": 0.150, "page warm, s": 0.005, "a worker after all pages, MB": 250,
    "readers: errors": 0, "readers: p99, s": 0.5,
    "first start, s": 20, "first start, MB": 700, "start with its snapshot, s": 2, "first page, kB": 150,
    "a thousand new records, s": 3,
}  # fmt: skip


@contextmanager
def server(results: str, *more: str) -> Iterator[tuple[psutil.Process, int, float]]:
    """A server with its port, and the seconds until it answered."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "harness", "serve", "--results", results, "--port", "0", *more]
    process = psutil.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    ready = Event()
    Thread(target=watch_memory, args=[process, ready], daemon=True).start()
    line = next((line for line in process.stderr if "http://" in line), "")
    if not line:
        raise SystemExit("The server did not start.")
    port = int(line.partition("http://")[2].split()[0].rpartition(":")[2])
    read(port, "/healthz")
    ready.set()
    try:
        yield process, port, time.perf_counter() - began
    finally:
        process.terminate()
        process.wait()


def read(port: int, path: str, accept: str = "text/html") -> tuple[bytes, float]:
    """One page and the seconds it took."""
    connection = HTTPConnection("127.0.0.1", port, timeout=120)
    began = time.perf_counter()
    connection.request("GET", path, headers={"Accept": accept, "Accept-Encoding": "gzip"})
    answer = connection.getresponse()
    body = answer.read()
    seconds = time.perf_counter() - began
    connection.close()
    if answer.status != 200:
        raise SystemExit(f"{path}: {answer.status}")
    return body, seconds


def addresses() -> list[str]:
    """Addresses that readers share."""
    states = ["", "mean=types", "sort=-parameters", "sort=model", "type=Retrieval", "size=base", "size=small",
              "open=1", "rows=25", "page=2", "group=organisation", "zero=all"]  # fmt: skip
    paths = [f"/suites/{suite}?{state}" for suite in ("mteb", "mteb-v1", "beir") for state in states]
    return [*paths, "/", "/search?q=modernbert", "/suites", "/tasks", "/tasks/STSBenchmark", "/tasks/SciFact",
            "/papers", "/papers/optibert", "/about", "/pareto?suite=mteb"]  # fmt: skip


def models(results: str) -> list[str]:
    """The pages of all models."""
    from leaderboard.data.settings import read_site_settings
    from leaderboard.web.site import open_site

    site = open_site(read_site_settings([Path(results)]))
    return [f"/models/{quote(slug)}" for slug in site.queries.models]


async def reader(port: int, number: int, fresh: list[str], found: list[tuple[int, float]]) -> None:
    """One reader: a page a second over one connection; (status, seconds) of each is noted."""
    await asyncio.sleep(number / READERS)
    inward, outward = await asyncio.open_connection("127.0.0.1", port)
    shared = addresses()
    for turn in range(SECONDS):
        began = time.perf_counter()
        new = (number + turn) % NEW == 0 and fresh
        path = fresh.pop() if new else shared[(number + 7 * turn) % len(shared)]
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\nAccept-Encoding: gzip\r\n\r\n"
        outward.write(head.encode())
        status, length = 0, 0
        while (line := await inward.readline()) not in (b"\r\n", b""):
            if line.startswith(b"HTTP/"):
                status = int(line.split()[1])
            elif line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        await inward.readexactly(length)
        seconds = time.perf_counter() - began
        found.append((status, seconds))
        await asyncio.sleep(max(0.0, 1 - seconds))
    outward.close()


async def all_readers(port: int, fresh: list[str]) -> list[list[tuple[int, float]]]:
    """Every reader at once, twice; where the models do not suffice, each page is new in another theme."""
    fresh = [*(f"{path}?theme=dark" for path in fresh), *fresh]
    rounds: list[list[tuple[int, float]]] = [[], []]
    for found in rounds:
        await asyncio.gather(*(reader(port, number, fresh, found) for number in range(READERS)))
    return rounds


def workers(process: psutil.Process) -> list[psutil.Process]:
    """The processes that answer."""
    children = [child for child in process.children() if child.memory_info().rss > 60 * 2**20]
    return children or [process]


def measure(results: str, repeats: int) -> dict[str, float]:
    """The figures over a results folder."""
    figures: dict[str, float] = {}
    with server(results):
        pass  # the snapshot is up to date from here on
    starts, cold, warm = [], [], []
    with server(results, "--refresh", "0") as (process, port, seconds):
        starts.append(seconds)
        time.sleep(3)
        for at in range(3 * repeats):
            path = f"{PAGE}?tokens={1 + at}"
            cold.append(read(port, path)[1])
            warm.append(min(read(port, path)[1] for _ in range(3)))
        body, _ = read(port, PAGE)
        figures["page, bytes compressed"] = len(body)
        paths = [*addresses(), *models(results)[:: max(1, len(models(results)) // 100)]]
        for path in paths:
            read(port, path)
        figures["a worker after all pages, MB"] = process.memory_info().rss / 2**20
    for _ in range(repeats - 1):
        with server(results) as (_, _, seconds):
            starts.append(seconds)
    figures |= {"start unchanged, s": statistics.median(starts), "page cold, s": statistics.median(cold)}
    figures |= {"page cold, slowest, s": max(cold), "page warm, s": statistics.median(warm)}
    return figures | {"refresh unchanged, s": refresh(results)} | under_load(results)


def refresh(results: str) -> float:
    """Seconds of a look at folders in which nothing changed."""
    from leaderboard.data.settings import read_site_settings
    from leaderboard.web.site import open_site

    site = open_site(read_site_settings([Path(results)]))
    began = time.perf_counter()
    site.refresh()
    return time.perf_counter() - began


def under_load(results: str) -> dict[str, float]:
    """The figures of many readers at once."""
    with server(results, "--workers", str(WORKERS)) as (process, port, _):
        while len(workers(process)) < WORKERS:
            time.sleep(0.2)
        time.sleep(4)
        command = [sys.executable, __file__, "--results", results, "--port", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        memory = max(worker.memory_info().rss for worker in workers(process)) / 2**20
    first, second = json.loads(done.stdout)
    cold, spent = (sorted(seconds for _, seconds in answers) for answers in (first, second))
    return {
        "readers: answers": len(first) + len(second),
        "readers: errors": sum(status != 200 for status, _ in (*first, *second)),
        "readers, no page made before: p99": cold[int(0.99 * len(cold))],
        "readers: median, s": statistics.median(spent),
        "readers: p99, s": spent[int(0.99 * len(spent))],
        "readers: slowest, s": spent[-1],
        "readers: largest worker, MB": memory,
    }


def many(results: Path, folder: Path) -> dict[str, float]:
    """The figures of a start over many records, read through links in a folder."""
    from leaderboard.data.settings import read_site_settings
    from leaderboard.web.site import open_site

    linked, later = folder / "results", folder / "later"
    shutil.copytree(results / "records", linked / "records", copy_function=os.link)
    later.mkdir()
    artifacts = sorted((linked / "records").iterdir())
    counts = accumulate(sum(1 for _ in artifact.glob("*/*.json")) for artifact in artifacts)
    new = artifacts[: bisect(list(counts), 1000)]
    for artifact in new:
        artifact.rename(later / artifact.name)
    # The cache has what suites are made of; of this folder it has no snapshot.
    with server(str(linked), "--refresh", "0") as (process, _, seconds):
        figures = {"records": sum(1 for _ in linked.glob("records/*/*/*.json")), "first start, s": seconds}
        figures["first start, core seconds"] = sum(process.cpu_times()[:4])
        figures["first start, MB"] = PEAK["MB"]
    with server(str(linked), "--refresh", "0") as (_, port, seconds):
        figures["start with its snapshot, s"] = seconds
        figures["first page, kB"] = len(gzip.decompress(read(port, "/")[0])) / 1000
    site = open_site(read_site_settings([linked]))
    for name in ("unchanged", "a thousand new records"):
        began = time.perf_counter()
        site.refresh()
        figures[f"{name}, s"] = time.perf_counter() - began
        for artifact in new if name == "unchanged" else ():
            (later / artifact.name).rename(artifact)
    shutil.rmtree(site.index.folder)
    return figures


PEAK = {"MB": 0.0}
"""The most memory that a server and the processes that it started took together, until it answered."""


def watch_memory(process: psutil.Process, ends: Event) -> None:
    """Note the peak until the end."""
    PEAK["MB"] = 0.0
    while not ends.wait(0.1):
        with suppress(psutil.Error):
            sizes = [one.memory_info().rss for one in (process, *process.children(recursive=True))]
            PEAK["MB"] = max(PEAK["MB"], sum(sizes) / 2**20)


def from_nothing(checkout: str, folder: Path) -> float:
    """Seconds to import a checkout and answer, with an empty cache."""
    os.environ["HARNESS_CACHE"] = str(folder / "cache")
    results = str(folder / "results")
    began = time.perf_counter()
    command = [sys.executable, "-m", "harness", "import", "mteb-results", checkout, "--results", results]
    subprocess.run(command, check=True)
    with server(results):
        return time.perf_counter() - began


def main() -> int:
    """Measure, print, and say which bar is missed."""
    text = {"help": "a folder"}
    options = read_options(
        __doc__, results=text, repeats=3, port={"type": int}, many=text | {"nargs": "+"}, **{"import": text}
    )
    if options.port:
        json.dump(asyncio.run(all_readers(options.port, models(options.results))), sys.stdout)
        return 0
    if options.many:
        figures = []
        for folder in map(Path, options.many):
            with tempfile.TemporaryDirectory(dir=folder.parent) as home:
                figures.append(many(folder, Path(home)))
        codes = [*map(report, figures)]
        if len(figures) > 1:
            report_half_a_million(figures)
        return max(codes)
    checkout = getattr(options, "import")
    if not (options.results or checkout):
        raise SystemExit("Name --results, --import or --many.")
    with tempfile.TemporaryDirectory() as folder:
        first = {}
        if checkout:
            first["import and first answer, s"] = from_nothing(checkout, Path(folder))
        return report(first | measure(options.results or f"{folder}/results", options.repeats))


def report_half_a_million(sizes: list[dict[str, float]]) -> None:
    """Print where a straight line through some sizes has half a million records."""
    print("500,000 records by a straight line through these:")
    records = [figures["records"] for figures in sizes]
    for name in list(sizes[0])[1:]:
        slope, start = np.polyfit(records, [figures[name] for figures in sizes], 1)
        print(f"{name:36} {start + slope * 500_000:>10,.1f}")


def report(figures: dict[str, float]) -> int:
    """Print a table; 1 if a bar is missed."""
    missed = [name for name, bar in BARS.items() if figures.get(name, 0) > bar]
    for name, value in figures.items():
        bar = f"   bar {BARS[name]:g}" if name in BARS else ""
        print(f"{name:36} {value:>10,.3f}{bar}{'   MISSED' if name in missed else ''}")
    print("no bar is missed" if not missed else f"missed: {', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
