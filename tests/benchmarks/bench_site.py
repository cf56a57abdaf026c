"""The site over an import: start, memory, a large suite's page cold and warm, and many readers.

    python tests/benchmarks/bench_site.py --results RESULTS

`--results` is a results folder that mteb's results were imported into. The server is a process of
its own, and so are the readers, who ask over the loopback as browsers do: each reads one page a
second, of fifty addresses in turn, and takes compressed answers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection

import psutil

START, MEMORY = 2.0, 350.0
COLD, WARM = 0.150, 0.010
BYTES, PACKED = 400_000, 80_000
READERS, SECONDS, P99 = 200, 30, 0.250
"""The bars: seconds, MB, bytes; readers at one page a second each."""

SETTLED = 4.0
"""Seconds after a start that the readers come: none of their pages was made by then."""

PAGE = "/suites/mteb-v1"


@contextmanager
def server(results: str) -> Iterator[tuple[psutil.Process, int, float]]:
    """A server with its port, and the seconds until it answered."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "harness", "serve", "--results", results, "--port", "0"]
    process = psutil.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = next((line for line in process.stderr if "http://" in line), "")
    if not line:
        raise SystemExit("The server did not start.")
    port = int(line.partition("http://")[2].split()[0].rpartition(":")[2])
    while not answers(port):
        time.sleep(0.005)
    try:
        yield process, port, time.perf_counter() - began
    finally:
        process.terminate()
        process.wait()


def answers(port: int) -> bool:
    """Whether the server says that it is well."""
    try:
        return ask(port, "/healthz")[0] == 200
    except ConnectionError:
        return False


def ask(port: int, path: str, *, packed: bool = True) -> tuple[int, bytes, float]:
    """One page: status, body, seconds."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    began = time.perf_counter()
    headers = {"Accept": "text/html", "Accept-Encoding": "br, gzip" if packed else "identity"}
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    seconds = time.perf_counter() - began
    connection.close()
    return answer.status, body, seconds


def addresses() -> list[str]:
    """Fifty addresses that readers ask for."""
    states = ["", "mean=types", "sort=-parameters", "sort=model", "type=Retrieval", "size=base", "size=small",
              "open=1", "rows=25", "page=2", "revisions=any", "group=organisation", "zero=all"]  # fmt: skip
    suites = ["mteb", "mteb-v1", "beir"]
    found = [f"/suites/{suite}?{state}" for suite in suites for state in states]
    return [*found, "/", "/?q=modernbert", "/?sort=-mteb-v1", "/suites", "/tasks", "/tasks/STSBenchmark",
            "/tasks/SciFact", "/papers", "/papers/optibert", "/about", "/pareto?suite=mteb"]  # fmt: skip


async def reader(port: int, number: int, paths: list[str], found: list[tuple[int, float]]) -> None:
    """One reader: a page a second over one connection; (status, seconds) of each is noted."""
    await asyncio.sleep(number / READERS)
    inward, outward = await asyncio.open_connection("127.0.0.1", port)
    for turn in range(SECONDS):
        began = time.perf_counter()
        path = paths[(number + 7 * turn) % len(paths)]
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\nAccept-Encoding: br\r\n\r\n"
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


async def crowd(port: int) -> list[tuple[int, float]]:
    """Every reader at once."""
    found: list[tuple[int, float]] = []
    await asyncio.gather(*(reader(port, number, addresses(), found) for number in range(READERS)))
    return found


def percentile(values: list[float], share: float) -> float:
    """The value that this share of all does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def main() -> int:
    """Measure, print, and say which bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", required=True, help="A results folder with an import.")
    parser.add_argument("--repeats", type=int, default=3, help="Starts, and cold pages for each.")
    parser.add_argument("--readers-only", metavar="PORT", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.readers_only:
        json.dump(asyncio.run(crowd(options.readers_only)), sys.stdout)
        return 0
    return report(*measure(options.results, options.repeats))


def measure(results: str, repeats: int) -> tuple[dict[str, float], dict[str, float]]:
    """The figures, and the bars they have to keep."""
    with server(results):
        pass  # the index is up to date from here on
    starts, first, cold, warm, memory = [], [], [], [], []
    for turn in range(repeats):
        with server(results) as (process, port, seconds):
            starts.append(seconds)
            first.append(ask(port, PAGE)[2])
            for at in range(repeats):
                path = f"{PAGE}?tokens={1 + turn * repeats + at}"
                cold.append(ask(port, path)[2])
                warm.append(ask(port, path)[2])
            memory.append(process.memory_info().rss / 2**20)
            plain = len(ask(port, PAGE, packed=False)[1])
            packed = len(ask(port, PAGE)[1])
            everything = ask(port, f"{PAGE}?rows=all")
            assert everything[0] == 200, everything[0]
    with server(results) as (process, port, _):
        time.sleep(SETTLED)
        command = [sys.executable, __file__, "--results", results, "--readers-only", str(port)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        loaded = process.memory_info().rss / 2**20
    answered = [(int(status), float(seconds)) for status, seconds in json.loads(done.stdout)]
    errors = sum(status != 200 for status, _ in answered)
    spent = [seconds for _, seconds in answered]
    figures = {
        "start, s": statistics.median(starts),
        "memory after pages, MB": statistics.median(memory),
        "page, the first after the start, s": statistics.median(first),
        "page cold, s": statistics.median(cold),
        "page cold, slowest, s": max(cold),
        "page warm, s": statistics.median(warm),
        "page, bytes": plain,
        "page, bytes compressed": packed,
        "page with all rows, s": everything[2],
        "readers: answers": len(answered),
        "readers: errors": errors,
        "readers: median, s": statistics.median(spent),
        "readers: p99, s": percentile(spent, 0.99),
        "readers: slowest, s": max(spent),
        "memory after readers, MB": loaded,
    }
    bars = {
        "start, s": START, "memory after pages, MB": MEMORY, "page cold, s": COLD, "page warm, s": WARM,
        "page, bytes": BYTES, "page, bytes compressed": PACKED, "readers: errors": 0, "readers: p99, s": P99,
        "memory after readers, MB": MEMORY,
    }  # fmt: skip
    return figures, bars


def report(figures: dict[str, float], bars: dict[str, float]) -> int:
    """Print a table; 1 if a bar is missed."""
    missed = [name for name, bar in bars.items() if figures[name] > bar]
    for name, value in figures.items():
        bar = f"   bar {bars[name]:g}" if name in bars else ""
        print(f"{name:38} {value:>10,.3f}{bar}{'   MISSED' if name in missed else ''}")
    print("no bar is missed" if not missed else f"missed: {', '.join(missed)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
