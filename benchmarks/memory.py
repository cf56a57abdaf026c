"""The peak memory of a contestant, each in a process of its own, libraries included."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path


def peak(script: str, *arguments: str) -> float:
    """The MB that `script` prints last when it is called to run one contestant alone."""
    done = subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def own_peak() -> float:
    """The peak memory of this process in MB; getrusage would count its parent's before exec too."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) / 1024
