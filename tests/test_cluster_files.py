"""Files for clusters: held by the schemas of Ray and Kubernetes; the Slurm script runs with stubs."""

from __future__ import annotations

import copy
import importlib.metadata
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docker" / "cluster"
SLURM, RAY, KUBERAY = (FOLDER / name for name in ("slurm.sh", "ray-cluster.yaml", "kuberay.yaml"))
LOCK = (ROOT / "requirements" / "cluster.txt").read_text()

SBATCH = {
    "job-name": r"\w+",
    "partition": r"\w+",
    "nodes": "1",
    "ntasks": "1",
    "cpus-per-task": r"\d+",
    "mem": r"\d+G",
    "time": r"\d+-\d\d:\d\d:\d\d",
    "signal": r"B:USR1@\d+",
    "requeue": "",
    "open-mode": "append|truncate",
    "output": r"[\w%.-]+\.log",
}
"""The options of sbatch that the script may use, with the form of their values by sbatch's manual."""


def locked(package: str) -> str:
    found = re.search(rf"^{package}==([\d.]+)", LOCK, re.MULTILINE)
    assert found, f"{package} is not in requirements/cluster.txt"
    return found[1]


# Slurm


def test_the_shell_linter_is_clean() -> None:
    program = Path(sys.executable).with_name("shellcheck")
    if not program.exists():
        pytest.skip("needs shellcheck (make setup-dev)")
    done = subprocess.run([program, "--severity=style", SLURM], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_sbatch_reads_every_line_that_is_for_it() -> None:
    """It stops reading at the first command, and leaves a later line out without a word."""
    head = re.split(r"^[^#\n]", SLURM.read_text(), maxsplit=1, flags=re.MULTILINE)[0]
    lines = re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?$", head, re.MULTILINE)
    assert len(lines) == SLURM.read_text().count("#SBATCH")
    assert [name for name, value in lines if not re.fullmatch(SBATCH[name], value)] == []


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A shared folder whose harness and scontrol write down how they were called."""
    programs = tmp_path / "encoder-harness" / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, text in {
        "harness": 'printf "%s\\n" "$@" "$HARNESS_RESULTS" >called\nsleep "${NAP:-0}"\nexit "${EXIT:-0}"',
        "scontrol": 'echo "$@" >requeued',
    }.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    return tmp_path


def submitted(shared: Path, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    own = {"HARNESS_SHARED": str(shared), "SLURM_JOB_ID": "77", **environment}
    return subprocess.Popen(["bash", SLURM, *arguments], cwd=shared, env={**os.environ, **own})


@pytest.mark.parametrize("code", [0, 1, 130])
def test_the_driver_gets_the_arguments_and_its_exit_code_is_the_job_s(shared: Path, code: int) -> None:
    driver = submitted(shared, "--model", "my model", "--suite", "mteb", EXIT=str(code))
    assert driver.wait(120) == code
    *given, executor, results = (shared / "called").read_text().splitlines()
    assert given == ["run", "--model", "my model", "--suite", "mteb", "--executor"]
    assert executor.startswith("slurm:partition=gpu,")
    assert results == f"{shared}/results"


def test_the_driver_goes_back_to_the_queue_before_its_time_is_up(shared: Path) -> None:
    driver = submitted(shared, NAP="1", EXIT="3")
    while not (shared / "called").exists():
        time.sleep(0.02)
    driver.send_signal(signal.SIGUSR1)
    assert driver.wait(120) == 3
    assert (shared / "requeued").read_text() == "requeue 77\n"


# Ray


def test_ray_takes_the_cluster_file() -> None:
    """As `ray up` reads it: prepared for machines of one's own, and held by Ray's schema."""
    ray = pytest.importorskip("ray.autoscaler._private.util")
    cluster = yaml.safe_load(RAY.read_text())
    prepared = ray.prepare_config(cluster)
    ray.validate_config(prepared)
    with pytest.raises(jsonschema.ValidationError):
        ray.validate_config({**prepared, "max_worker": 4})
    (nodes,) = prepared["available_node_types"].values()
    count = len(set(cluster["provider"]["worker_ips"]))
    assert (nodes["min_workers"], nodes["max_workers"], prepared["max_workers"]) == (count, count, count)


@pytest.mark.parametrize("field", ["head_start_ray_commands", "worker_start_ray_commands"])
def test_the_commands_of_ray_have_the_options_that_are_used(field: str) -> None:
    ray = pytest.importorskip("ray.scripts.scripts")
    commands = ";".join(yaml.safe_load(RAY.read_text())[field])
    start = next(part for part in commands.split(";") if "ray start" in part)
    used = {word.partition("=")[0] for word in shlex.split(start) if word.startswith("--")}
    assert used <= {option for parameter in ray.start.params for option in parameter.opts}


# Kubernetes


def documents() -> dict[str, dict[str, Any]]:
    return {one["kind"]: one for one in yaml.safe_load_all(KUBERAY.read_text())}


def groups(job: dict[str, Any]) -> list[dict[str, Any]]:
    cluster = job["spec"]["rayClusterSpec"]
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


def pods(job: dict[str, Any]) -> list[dict[str, Any]]:
    """The pods of each group, as Kubernetes gets them."""
    found = [copy.deepcopy(group["template"]) for group in groups(job)]
    return [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one"}, **pod} for pod in found]


def valid_job(job: dict[str, Any]) -> None:
    jsonschema.validate(job, json.loads((FOLDER / "kuberay.schema.json").read_text()))


def valid_in_kubernetes(*objects: dict[str, Any]) -> None:
    kubernetes = pytest.importorskip(
        "kubernetes_validate", reason="needs kubernetes-validate (make setup-dev)"
    )
    for one in objects:
        kubernetes.validate(one, importlib.metadata.version("kubernetes-validate"), strict=True)


def test_the_manifest_holds() -> None:
    found = documents()
    valid_job(found["RayJob"])
    valid_in_kubernetes(found["PersistentVolumeClaim"], *pods(found["RayJob"]))


@pytest.mark.parametrize(
    ("where", "field", "value"),
    [
        (("spec", "rayClusterSpec", "workerGroupSpecs", 0), "maxReplicas", "10"),
        (("spec", "rayClusterSpec", "headGroupSpec"), "image", "encoder-harness:cuda"),
        (("spec",), "entrypoint", "python run.py"),
    ],
)
def test_a_wrong_field_of_kuberay_is_seen(where: tuple[str | int, ...], field: str, value: object) -> None:
    job = documents()["RayJob"]
    inner: Any = job
    for step in where:
        inner = inner[step]
    inner[field] = value
    with pytest.raises(jsonschema.ValidationError):
        valid_job(job)


@pytest.mark.parametrize(("field", "value"), [("volumeMount", []), ("resources", {"limits": 8})])
def test_a_wrong_field_of_a_pod_is_seen(field: str, value: object) -> None:
    (pod, *_) = pods(documents()["RayJob"])
    pod["spec"]["containers"][0][field] = value
    with pytest.raises(jsonschema.ValidationError):
        valid_in_kubernetes(pod)


def test_the_parts_of_the_manifest_fit_together() -> None:
    found = documents()
    assert found["RayJob"]["spec"]["rayClusterSpec"]["rayVersion"] == locked("ray")
    images = {
        one["image"]
        for one in yaml.safe_load((ROOT / "docker/compose.yaml").read_text())["services"].values()
    }
    for pod in pods(found["RayJob"]):
        (container,) = pod["spec"]["containers"]
        volumes = {one["name"]: one for one in pod["spec"]["volumes"]}
        assert container["image"] in images
        assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
        claim = volumes["shared"]["persistentVolumeClaim"]["claimName"]
        assert claim == found["PersistentVolumeClaim"]["metadata"]["name"]


@pytest.mark.parametrize(
    "command",
    [
        documents()["RayJob"]["spec"]["entrypoint"],
        next(line.rstrip(" &") for line in SLURM.read_text().splitlines() if line.startswith("harness run")),
    ],
    ids=["kuberay", "slurm"],
)
def test_the_commands_of_the_harness_have_the_options_that_are_used(command: str) -> None:
    from harness.cli import program

    _, name, *words = shlex.split(command)
    found = program.get_command(program.make_context("harness", ["list"]), name)
    assert found is not None
    used = {word for word in words if word.startswith("--")}
    assert used <= {option for parameter in found.params for option in parameter.opts}


# The images


@pytest.mark.parametrize("image", ["cpu", "cuda"])
def test_the_images_can_be_nodes_of_a_cluster(image: str) -> None:
    text = (ROOT / "docker" / f"Dockerfile.{image}").read_text()
    assert "-r requirements/cluster.txt" in text
    assert "demo.txt" not in text
    assert all(locked(package) for package in ("ray", "submitit", "obstore", "boto3"))
    demo = (ROOT / "requirements" / "demo.txt").read_text()
    for package in ("torch", "transformers", "mteb"):
        assert f"\n{package}=={locked(package)} " in demo
