"""Runs a command, and prints its exit code, output, processor seconds and peak memory as JSON.

A process of its own: the peak of a child counts that of the process that forks it.
"""

import json
import resource
import subprocess
import sys

PATIENCE = 200


def main() -> None:
    """Run the command in the arguments."""
    done = subprocess.run(
        sys.argv[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE, check=False
    )
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    facts = {"code": done.returncode, "out": done.stdout.decode("utf-8", "replace")}
    print(json.dumps({**facts, "seconds": used.ru_utime + used.ru_stime, "bytes": used.ru_maxrss << 10}))


if __name__ == "__main__":
    main()
