"""The way from a driver to a Ray cluster: join one or start one, see its nodes, and know who goes first."""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from collections.abc import Mapping
from typing import Any

from harness.core.errors import UsageError
from harness.core.provenance import cores
from harness.data.locate import human_size
from harness.executors.ray_actor import DEMAND, Demand
from harness.executors.settings import RaySettings


class ClusterDemand:
    """What waits on the cluster, as this driver asks the actor for it every few seconds."""

    def __init__(self, ray: Any, priority: int) -> None:
        self._ray, self._priority = ray, priority
        self._driver = secrets.token_hex(6)
        self._answer: Any = None
        self._behind, self._due = False, 0.0

    def is_behind(self, waiting: int) -> bool:
        """Whether jobs of a driver of a higher priority wait; told that so many of this one do."""
        now = time.monotonic()
        if self._answer is None and now > self._due:
            options = {"name": "demand", "namespace": "harness", "lifetime": "detached", "num_cpus": 0}
            actor = self._ray.remote(Demand).options(**options, get_if_exists=True).remote(ends=True)
            self._answer = actor.tell.remote(self._driver, self._priority, waiting)
            self._due = now + DEMAND / 5
        if self._answer is not None and self._ray.wait([self._answer], timeout=0)[0]:
            with contextlib.suppress(self._ray.exceptions.RayError):  # it ends without drivers
                self._behind = self._ray.get(self._answer)
            self._answer = None
        return self._behind


def connect(settings: RaySettings, namespace: str) -> bool:
    """Join a cluster or start one; whether that was done here.

    Raises:
        UsageError: There is none, or it is of another version.
    """
    try:
        import ray
    except ImportError as error:
        raise UsageError(
            "--executor ray needs Ray, which is not installed here.",
            hint="Type pip install 'encoder-harness[ray]', here and on every node.",
        ) from error
    if ray.is_initialized():
        return False
    _require_answer(settings.address)
    options: dict[str, Any] = {"address": settings.address or "local", "namespace": namespace}
    if not settings.address:
        options |= {"num_cpus": cores(), "include_dashboard": False}
    _silence(ray)
    try:
        ray.init(**options, log_to_driver=False, logging_level="ERROR")
    except ConnectionError as error:
        if settings.address in ("", "auto"):
            raise _no_cluster(settings.address, str(error)) from error
        raise UsageError(
            f"{settings.address} answers, and this machine cannot join it as a Ray cluster: "
            f"{str(error).rstrip('.')}.",
            hint="Where ~/.ray/auth_token is, Ray asks for it: set RAY_AUTH_MODE=token, with one file on all "
            "machines, or type ray:auto on a node (docs/cluster.md).",
        ) from error
    except ray.exceptions.AuthenticationError as error:
        raise UsageError(
            f"The Ray cluster at {settings.address} asks for a token that this machine does not give.",
            hint="Set RAY_AUTH_MODE=token, with one ~/.ray/auth_token on every machine (docs/cluster.md).",
        ) from error
    except RuntimeError as error:
        if "ersion" not in str(error):
            text = " ".join(str(error).split())
            raise UsageError(
                f"Ray at {settings.address or 'this machine'} cannot be joined: {text}",
                hint="The driver must run on a node of the cluster (docs/cluster.md).",
            ) from error
        raise UsageError(
            f"The Ray cluster at {settings.address} is of another version. {' '.join(str(error).split())}",
            hint="Install the same Ray and Python here and there (requirements/cluster.txt).",
        ) from error
    return True


def _silence(ray: Any) -> None:
    """Keep what raylets say out of standard output, where Ray prints it: lost workers are noted by us."""
    worker: Any = getattr(ray._private, "worker", None)
    if hasattr(worker, "print_to_stdstream"):
        worker.print_to_stdstream = lambda *_args, **_options: None


def _require_answer(address: str) -> None:
    """Refuse an address that nobody answers, at which Ray itself would wait for minutes."""
    if address in ("", "auto"):
        return
    if "://" in address:
        raise UsageError(
            f"{address} is the address of a Ray client; the driver must run on a node of the cluster.",
            hint="Run it there with --executor ray:auto, e.g. by ray job submit --address … -- harness run …",
        )
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise UsageError(f"{address!r} is no address of a Ray cluster.", hint="Type HOST:PORT, or auto.")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError as error:
        raise _no_cluster(address, str(error)) from error


def _no_cluster(address: str, reason: str) -> UsageError:
    where = "on this machine" if address == "auto" else f"at {address}"
    return UsageError(
        f"No Ray cluster answers {where}: {reason.rstrip('.')}.",
        hint="Start one with ray start --head, type its HOST:PORT (6379 is the usual port), or leave the "
        "address out to start one for this run.",
    )


def node_name(node: Mapping[str, Any]) -> str:
    """The name of a node, as Ray lists it, for the user."""
    return str(node["NodeManagerHostname"] or node["NodeName"])


def devices_text(resources: Mapping[str, float]) -> str:
    """What a node has, in words, e.g. "8 GPUs, 64 cores, 500.0 GB"."""
    gpus = int(resources.get("GPU", 0))
    first = [f"{gpus} GPU{'s' * (gpus > 1)}"] if gpus else []
    count = int(resources.get("CPU", 0))
    memory = human_size(int(resources.get("memory", 0)))
    return ", ".join([*first, f"{count} core{'s' * (count != 1)}", memory])
