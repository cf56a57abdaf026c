"""A Ray cluster of several nodes on this machine, any but the first of which can be killed."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
from ray.cluster_utils import Cluster

MARK = "HARNESS_TEST_CLUSTER"
"""The environment variable that every process of a cluster and of its drivers has."""


class RayNodes:
    """A head and further nodes, with ports of their own and a temporary folder of their own.

    The temporary folder must be short: sockets lie in it, whose names have a limit of 107 bytes.
    """

    def __init__(self, folder: Path, *, nodes: int = 3, cpus: int = 1, gpus: int = 0) -> None:
        self.mark = os.urandom(8).hex()
        os.environ[MARK] = self.mark
        self._folder = folder
        os.environ["RAY_TMPDIR"] = str(folder)  # where Ray notes the newest cluster's address
        (folder / "ray").mkdir(parents=True)
        self._more: dict[str, Any] = {"num_cpus": cpus, "num_gpus": gpus, "object_store_memory": 100 * 2**20}
        self._more["memory"] = 8 * 2**30
        head = {**self._more, "include_dashboard": False, "temp_dir": str(folder)}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self._others = [self._cluster.add_node(**self._more) for _ in range(nodes - 1)]
        self.address = str(self._cluster.address)

    def __enter__(self) -> RayNodes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster.shutdown()
        for name in (MARK, "RAY_TMPDIR"):
            os.environ.pop(name, None)
        shutil.rmtree(self._folder, ignore_errors=True)

    def kill(self, chance: random.Random) -> None:
        """Kill a random node but the first, at once and with all that runs on it."""
        node = self._others.pop(chance.randrange(len(self._others)))
        node.kill_raylet()  # SIGKILL; its workers see that it is gone
        self._cluster.remove_node(node, allow_graceful=False)

    def add(self) -> None:
        """Add a node."""
        self._others.append(self._cluster.add_node(**self._more))

    def left(self) -> list[str]:
        """The processes of drivers and workers that are there, apart from this one and Ray's own."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark and process.pid != os.getpid():
                    found.append(" ".join(process.cmdline()))
            except psutil.Error:
                continue
        return [line for line in found if line and "/ray/" not in line and not line.startswith("ray::")]
