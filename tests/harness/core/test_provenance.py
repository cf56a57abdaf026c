import importlib.metadata
import json
import os
import platform
import socket
import subprocess
import sys
import threading
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from harness import __version__
from harness.core import provenance
from harness.core.errors import DataError
from harness.core.provenance import (
    count_cores,
    find_checkout,
    forbid_network,
    measure_free_memory,
    read_cpu_flags,
    read_cpu_model,
)


def test_a_snapshot_is_plain_json_with_every_documented_field():
    found = provenance.collect_provenance(device="cpu", threads=3)
    assert json.loads(json.dumps(found)) == found
    assert set(found) == {
        *("harness", "commit", "dirty", "python", "platform", "packages", "device", "cpu", "cores"),
        *("threads", "started", "written"),
    }
    assert found["harness"] == __version__
    assert found["python"] == platform.python_version()
    assert found["threads"] == 3


def test_the_version_is_read_where_it_is_asked_for():
    """`harness --help` and the completion of a shell need neither it nor the modules that read it."""
    code = (
        "import sys; before = {*sys.modules}\n"
        "import harness.cli\n"
        "print({'importlib.metadata', 'email.message'} & ({*sys.modules} - before) or 'none')\n"
        "harness.cli.invoke(['--version'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["none", f"harness, version {__version__}"]


def test_versions_are_those_that_are_installed():
    packages = provenance.collect_provenance()["packages"]
    for name in ("torch", "transformers", "mteb", "numpy", "scikit-learn"):
        assert packages[name] == importlib.metadata.version(name)


def test_no_host_user_or_folder_is_named():
    text = json.dumps(provenance.collect_provenance())
    assert socket.gethostname() not in text
    assert os.getcwd() not in text
    assert os.path.expanduser("~") not in text


def test_nothing_heavy_is_imported():
    code = (
        "import sys; from harness.core import provenance; "
        "provenance.collect_provenance(); provenance.measure_peak_memory();"
        "print({'torch', 'mteb', 'transformers', 'datasets', 'numpy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_times_are_utc_and_in_order():
    begun = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    found = provenance.collect_provenance(started=begun)
    assert found["started"] == "2026-01-02T03:04:05+00:00"
    assert datetime.fromisoformat(found["written"]).utcoffset().total_seconds() == 0
    process = provenance.collect_provenance()
    assert begun < datetime.fromisoformat(process["started"]) <= datetime.fromisoformat(process["written"])


def known(found: dict[str, Any]) -> dict[str, Any]:
    """The facts of the device that are known."""
    return {name: value for name, value in found["device"].items() if value is not None}


def test_the_cpu_is_named_as_the_kernel_names_it():
    assert known(provenance.collect_provenance(device="cpu")) == {"kind": "cpu", "name": read_cpu_model()}
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as file:
            text = file.read()
        assert read_cpu_model() in text or "model name" not in text
        assert all(flag in text for flag in read_cpu_flags())


@pytest.fixture
def fake_gpu(monkeypatch):
    facts = SimpleNamespace(name="Some GPU", total_memory=80 * 2**30, major=9, minor=0)
    cuda = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        device_count=lambda: 8,
        get_device_properties=lambda _: facts,
        max_memory_allocated=lambda number: 100 + number,
    )
    torch = SimpleNamespace(
        cuda=cuda, version=SimpleNamespace(cuda="13.0", hip=None), get_num_threads=lambda: 7
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(provenance, "read_nvidia_driver", lambda: "580.1")


def test_a_gpu_is_described_by_an_imported_torch(fake_gpu):
    assert known(provenance.collect_provenance(device="cuda:7")) == {
        "kind": "cuda",
        "name": "Some GPU",
        "memory_bytes": 80 * 2**30,
        "capability": "9.0",
        "driver": "580.1",
        "cuda": "13.0",
    }
    assert provenance.measure_peak_memory()["device"] == 828
    assert provenance.collect_provenance(device="cuda:7")["threads"] == 7


def test_peak_memory_counts_what_was_used_and_freed():
    before = provenance.measure_peak_memory()["host"]
    block = b"x" * 300_000_000
    del block
    assert provenance.measure_peak_memory()["host"] >= before
    assert provenance.measure_peak_memory()["host"] > 300_000_000


@pytest.mark.parametrize(
    ("own", "files", "limit"),
    [
        ("0::/", {}, None),
        ("0::/", {"cpu.max": "max 100000"}, None),
        ("0::/", {"cpu.max": "100000 100000"}, 1),
        ("0::/", {"cpu.max": "150000 100000"}, 1),
        ("0::/", {"cpu.max": "50000 100000"}, 1),
        ("0::/slice/job", {"slice/cpu.max": "100000 100000", "slice/job/cpu.max": "max 100000"}, 1),
        ("4:cpu,cpuacct:/", {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000"}, 1),
        ("4:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ("garbage-free:cpuset:/", {}, None),
    ],
)
def test_cores_are_those_a_container_leaves(tmp_path, own, files, limit):
    (tmp_path / "own").write_text(own + "\n")
    for name, text in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert count_cores(tmp_path / "groups", tmp_path / "own") == (limit or len(os.sched_getaffinity(0)))


def test_free_memory_is_what_a_container_leaves(tmp_path):
    """Files that the kernel holds for it count as free, as psutil counts those of a machine."""
    (tmp_path / "own").write_text("0::/slice/job\n")
    (tmp_path / "slice/job").mkdir(parents=True)
    arguments = (tmp_path, tmp_path / "own")
    assert measure_free_memory(*arguments) > 1e8
    (tmp_path / "slice/job/memory.max").write_text("max\n")
    for name, text in {
        "max": "5000",
        "current": "4500",
        "stat": "anon 7\nactive_file 30\ninactive_file 100",
    }.items():
        (tmp_path / f"slice/memory.{name}").write_text(f"{text}\n")
    assert measure_free_memory(*arguments) == 630
    (tmp_path / "slice/memory.current").write_text("5200\n")
    assert measure_free_memory(*arguments) == 0


def git(folder, *arguments):
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(["git", *who, "-C", folder, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package/a.py").write_text("1")
    (tmp_path / ".gitignore").write_text("venv\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def test_a_checkout_is_its_commit_and_whether_it_changed(repository):
    commit = git(repository, "rev-parse", "HEAD")
    package = repository / "package"
    find_checkout.cache_clear()
    found = find_checkout(package)
    assert found is not None
    assert (found.commit, found.dirty) == (commit, False)
    (repository / "package/new.py").write_text("2")
    find_checkout.cache_clear()
    found = find_checkout(package)
    assert found is not None
    assert (found.commit, found.dirty) == (commit, True)


def test_an_installation_inside_somebodys_checkout_is_no_part_of_it(repository, tmp_path_factory):
    inside = repository / "venv/lib"
    inside.mkdir(parents=True)
    assert find_checkout(inside) is None
    assert find_checkout(tmp_path_factory.mktemp("elsewhere")) is None


NAMES = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")
OUTSIDE = ("192.0.2.1", 80)
"""An address that is reserved for documentation."""


@pytest.fixture(autouse=True)
def guard(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def test_connections_outside_are_refused_at_once():
    with forbid_network(), socket.socket() as plain:
        with pytest.raises(DataError, match=r"192\.0\.2\.1"):
            plain.connect(OUTSIDE)
        with pytest.raises(DataError):
            plain.connect_ex(OUTSIDE)
        with pytest.raises(DataError):
            socket.create_connection(OUTSIDE, timeout=1)


def test_datagrams_outside_are_refused():
    with forbid_network(), socket.socket(type=socket.SOCK_DGRAM) as plain, pytest.raises(DataError):
        plain.sendto(b"x", OUTSIDE)


def test_names_are_not_looked_up():
    with forbid_network(), pytest.raises(DataError, match=r"Offline.*example\.org"):
        socket.getaddrinfo("example.org", 443)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_loopback_stays_open(host):
    with forbid_network(), socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: server.accept()[0].close()).start()
        with socket.create_connection((host, server.getsockname()[1]), timeout=5) as client:
            assert client.recv(1) == b""


def test_unix_sockets_stay_open():
    with forbid_network():
        one, other = socket.socketpair()
        one.send(b"x")
        assert other.recv(1) == b"x"
        one.close()
        other.close()


def test_a_request_through_httpx_is_refused():
    import httpx

    with forbid_network(), pytest.raises(DataError):
        httpx.get("http://192.0.2.1/", timeout=1)


def test_a_call_of_the_hub_is_refused_though_its_library_is_imported():
    import huggingface_hub
    from huggingface_hub.errors import OfflineModeIsEnabled

    with forbid_network():
        assert huggingface_hub.is_offline_mode()
        with pytest.raises(OfflineModeIsEnabled):
            huggingface_hub.HfApi().dataset_info("org/toy")


def test_imported_libraries_are_told_too():
    import datasets

    with forbid_network():
        assert datasets.config.HF_HUB_OFFLINE is True
        assert [os.environ[name] for name in NAMES] == ["1", "1", "1"]


def test_all_is_undone(monkeypatch):
    import datasets
    import huggingface_hub.constants

    monkeypatch.setenv("HF_HUB_OFFLINE", "0")

    def state():
        return (
            {name: os.environ.get(name) for name in NAMES},
            datasets.config.HF_HUB_OFFLINE,
            huggingface_hub.constants.HF_HUB_OFFLINE,
            socket.socket.connect,
            socket.getaddrinfo,
        )

    before = state()
    undo = forbid_network()
    with forbid_network():
        pass
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    with pytest.raises(DataError):
        socket.getaddrinfo("example.org", 443)
    undo.close()
    assert state() == before


def test_nothing_is_imported_for_it():
    import subprocess

    code = (
        "import sys; from harness.core.provenance import forbid_network; forbid_network();"
        "print({'torch', 'datasets', 'transformers', 'huggingface_hub', 'mteb'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
