"""Install a hashed lock with pip into the environment of this Python, saying briefly how it goes.

Usage: python requirements/install.py requirements/demo.txt
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
WHEEL = re.compile(r"^\s*(?:Downloading|Using cached) .*?([\w.]+)-[\d.]+\S*\.whl \(([\d.]+) ([kMG])B\)")
MEGABYTES = {"k": 1e-3, "M": 1.0, "G": 1e3}


def main() -> int:
    """Install the lock, then the project itself; the exit code is pip's."""
    lock, root = Path(sys.argv[1]), Path(__file__).resolve().parent.parent
    started = time.monotonic()
    print(f"Installing {lock} (a first time downloads about 2 GB) ...", flush=True)
    locked = [*PIP, "install", "--progress-bar=off", "--require-hashes", "--only-binary=:all:"]
    project = [*PIP, "install", "--quiet", "--no-deps", "--no-build-isolation", "--editable", str(root)]
    code = follow([*locked, "--requirement", str(lock)]) or subprocess.call(project)
    if code == 0:
        print(f"  done in {time.monotonic() - started:.0f} s", flush=True)
    return code


def follow(command: list[str]) -> int:
    """Run pip, show its larger downloads and its last step; after a failure, its last lines."""
    last: deque[str] = deque(maxlen=25)
    total = 0.0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        assert pip.stdout is not None
        for line in pip.stdout:
            last.append(line)
            if found := WHEEL.match(line):
                name, number, unit = found.groups()
                size = float(number) * MEGABYTES[unit]
                total += size
                if size >= 20:
                    print(f"  {name} {size:.0f} MB", flush=True)
            elif line.startswith("Installing collected"):
                print(f"  {total:.0f} MB, {line.count(',') + 1} packages; unpacking", flush=True)
    if pip.returncode:
        print("".join(last), file=sys.stderr)
    return pip.returncode


if __name__ == "__main__":
    sys.exit(main())
