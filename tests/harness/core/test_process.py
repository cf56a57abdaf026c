import os
import socket
import sys
import threading

import pytest

from harness.core.errors import DataError
from harness.core.process import forbid_network

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
        "import sys; from harness.core.process import forbid_network; forbid_network();"
        "print({'torch', 'datasets', 'transformers', 'huggingface_hub', 'mteb'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
