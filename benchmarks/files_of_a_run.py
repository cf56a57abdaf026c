"""The project's files whose functions run in a command, counted with a profiler hook.

    python benchmarks/files_of_a_run.py --data DIR [--suite mteb:STSBenchmark] [--list]

runs `harness run --model minilm` twice, on an empty cache and then with every score known, and prints for
both how many files had a function executed and how many functions those were. Module bodies, class bodies
and decorators that run on import do not count. Needs the demo's model and the data of the suite.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGES = ("harness", "suites", "finetune", "leaderboard")


def executed(arguments: list[str]) -> tuple[int, dict[str, set[str]]]:
    """The exit code of a command, and by file the functions that ran in this process."""
    from harness.cli import invoke

    seen: set[CodeType] = set()

    def hook(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            seen.add(frame.f_code)

    threading.setprofile(hook)
    sys.setprofile(hook)
    try:
        code = invoke(arguments)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    found: dict[str, set[str]] = {}
    for one in seen:
        path = Path(one.co_filename)
        inside = path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES
        if inside and one.co_flags & 0x1 and not one.co_name.startswith("<"):  # 0x1: the body of a function
            found.setdefault(path.relative_to(ROOT).as_posix(), set()).add(one.co_qualname)
    return code, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="data root in hub layout")
    parser.add_argument("--suite", default="mteb:STSBenchmark")
    parser.add_argument("--list", action="store_true", help="print the files, too")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        arguments = [
            "run",
            "--model",
            "minilm",
            "--suite",
            asked.suite,
            "--data",
            str(asked.data),
            "--offline",
        ]
        arguments += ["--results", f"{scratch}/results", "--cache", f"{scratch}/cache", "--devices", "cpu"]
        for title in ("first run", "cached run"):
            code, found = executed(arguments)
            functions = sum(map(len, found.values()))
            print(json.dumps({title: {"files": len(found), "functions": functions, "exit_code": code}}))
            if asked.list:
                print("\n".join(f"  {path} {len(names)}" for path, names in sorted(found.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
