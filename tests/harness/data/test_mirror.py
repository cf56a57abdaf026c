"""Data that tasks need, pulled from a small hub on this machine and verified."""

import hashlib
import json
import os
import resource
import shutil
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import huggingface_hub
import pytest
from httpx import Request, Response
from huggingface_hub.errors import HfHubHTTPError

from harness.commands.data import _fetch_remote_sizes
from harness.core.errors import DataError
from harness.core.types import Data, SuiteOptions, Task
from harness.data.folder import Manifest, Need, list_data_sets
from harness.data.locate import (
    DataMissing,
    DataSettings,
    Unavailable,
    explain_hub_error,
    fetch_remote_size,
    format_size,
    locate_data,
)
from harness.data.mirror import Status, needs, pull, verify
from harness.plan.catalog import open_suites
from nobody import as_nobody

# Pulling through the hub's real library from a small hub on this machine


REVISION = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "README.md": b"---\nconfigs: []\n---\n",
    ".gitattributes": b"*.parquet lfs\n",
    "data/test.jsonl": b'{"a": 1}\n' * 100,
    "data/train.jsonl": b'{"a": 2}\n' * 1000,
}
VISIBLE = {name: content for name, content in FILES.items() if not name.startswith(".")}


class Hub:
    """A hub with one data set. `refuse` gives an error answer for a path, or None."""

    def __init__(self):
        self.files = dict(FILES)
        self.asked = []
        self.refuse = lambda path: None
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                path = unquote(urlsplit(self.path).path)
                hub.asked.append((self.command, path))
                code, headers, body = hub.refuse(path) or hub.answer(path)
                self.send_response(code)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            do_HEAD = do_GET

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, path):
        name = path.removeprefix(f"/datasets/org/toy/resolve/{REVISION}/")
        if name in self.files:
            body = self.files[name]
            etag = hashlib.sha1(body).hexdigest()
            return 200, {"ETag": f'"{etag}"', "X-Repo-Commit": REVISION}, body
        if path == f"/api/datasets/org/toy/tree/{REVISION}":
            found = [self._file(name) for name in self.files]
        elif path == f"/api/datasets/org/toy/revision/{REVISION}":
            siblings = [{"rfilename": n, "size": len(b), "blobId": "0"} for n, b in self.files.items()]
            found = {"id": "org/toy", "sha": REVISION, "siblings": siblings}
        else:
            return 404, {"X-Error-Code": "RepoNotFound"}, b""
        return 200, {"Content-Type": "application/json"}, json.dumps(found).encode()

    def _file(self, name):
        body = self.files[name]
        return {"type": "file", "path": name, "size": len(body), "oid": hashlib.sha1(body).hexdigest()}


@pytest.fixture
def hub(monkeypatch, hub_cache):
    hub = Hub()
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)  # between two tries
    template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
    yield hub
    hub.server.shutdown()
    hub.server.server_close()


@pytest.fixture
def need():
    return Need(path="org/toy", revision=REVISION)


def visible(folder):
    files = (p for p in folder.rglob("*") if p.is_file())
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in files if ".harness" not in p.name}


def test_a_pulled_data_set_is_the_hubs_and_proves_it(hub, need, root, tmp_path):
    said = []
    assert pull(need, root, progress=said.append) == "pulled"
    folder = root / "org/toy"
    assert visible(folder) == FILES
    manifest = json.loads((folder / ".harness.json").read_text())
    assert manifest == {
        "schema": 1,
        "repo": "org/toy",
        "revision": REVISION,
        "files": {n: {"size": len(b), "sha256": hashlib.sha256(b).hexdigest()} for n, b in VISIBLE.items()},
    }
    assert verify(need, root) == ()
    located = locate_data(need.data, DataSettings(root=root, offline=True, cache=tmp_path / "cache"))
    assert located.data == Data(path="org/toy", revision=REVISION)
    assert any("org/toy" in line for line in said)
    assert [n.path for n in list_data_sets(root)] == ["org/toy"]


def test_what_is_verified_is_not_fetched_again(hub, need, root):
    pull(need, root)
    hub.asked.clear()
    assert pull(need, root) == "kept"
    assert hub.asked == []


def test_a_damaged_data_set_is_replaced(hub, need, root):
    pull(need, root)
    (root / "org/toy/data/test.jsonl").write_bytes(b"damaged")
    assert pull(need, root) == "pulled"
    assert visible(root / "org/toy") == FILES
    assert [p.name for p in (root / "org").iterdir() if p.is_dir()] == ["toy"]


def test_an_interrupted_pull_leaves_nothing_under_the_name_and_goes_on(hub, need, root):
    hub.refuse = lambda path: (500, {}, b"") if path.endswith("train.jsonl") else None
    with pytest.raises(DataError, match="HTTP 500"):
        pull(need, root)
    assert not (root / "org/toy").exists()
    assert list_data_sets(root) == ()
    hub.refuse = lambda path: None
    hub.asked.clear()
    assert pull(need, root) == "pulled"
    assert ("GET", f"/datasets/org/toy/resolve/{REVISION}/data/test.jsonl") not in hub.asked
    assert visible(root / "org/toy") == FILES


def test_another_revision_goes_beside_the_first(hub, need, root):
    pull(need, root)
    folder = root / "org/toy"
    older = Manifest(repo="org/toy", revision="f" * 40, files=Manifest.read_manifest(folder).files)
    (folder / ".harness.json").write_text(older.to_json())
    assert pull(need, root) == "pulled"
    assert pull(need, root) == "kept"
    assert verify(need, root) == ()
    assert [(n.path, n.revision) for n in list_data_sets(root)] == [
        ("org/toy", "f" * 40),
        ("org/toy", REVISION),
    ]


LANGUAGES = """---
configs:
- {config_name: de-corpus, data_files: [{split: test, path: de-corpus/*.jsonl}]}
- {config_name: de-queries, data_files: [{split: test, path: de-queries/*.jsonl}]}
- {config_name: de-qrels, data_files: [{split: test, path: de-qrels/*.jsonl}]}
- {config_name: en-corpus, data_files: [{split: test, path: en-corpus/*.jsonl}]}
- {config_name: en-queries, data_files: [{split: test, path: en-queries/*.jsonl}]}
- {config_name: en-qrels, data_files: [{split: test, path: en-qrels/*.jsonl}]}
- {config_name: en-instruction, data_files: [{split: test, path: en-instruction/*.jsonl}]}
---
"""


def test_the_files_of_a_language_are_pulled_and_another_is_added(hub, root, tmp_path):
    """As for mteb's MLDR; with a table that the README does not name the whole data set is fetched."""
    parts = ("corpus", "queries", "qrels")
    names = [f"{language}-{part}/a.jsonl" for language in ("de", "en") for part in parts]
    english = {*(name for name in names if name.startswith("en")), "en-instruction/a.jsonl"}
    hub.files = {"README.md": LANGUAGES.encode(), "raw/all.bin": b"0" * 5000}
    hub.files |= {name: name.encode() for name in (*names, "en-instruction/a.jsonl")}
    settings = DataSettings(root=root, offline=True, cache=tmp_path / "cache")

    def needed(*languages, more=()):
        (mldr,) = open_suites(["mldr"], SuiteOptions())[0].tasks
        (need,) = needs([replace(mldr, subsets=languages)])
        return replace(need, path="org/toy", revision=REVISION, configs=(*need.configs, *more))

    assert pull(needed("en"), root) == "pulled"
    folder = root / "org/toy"
    assert visible(folder).keys() == {"README.md", *english}
    assert verify(needed("en"), root) == verify(list_data_sets(root)[0], root) == ()
    assert locate_data(needed("en").data, settings, subsets=("en",)).data.revision == REVISION
    with pytest.raises(DataMissing, match="without de"):
        locate_data(needed("de").data, settings, subsets=("de",))
    (problem,) = verify(needed("de"), root)
    assert problem.message.startswith("org/toy was pulled without de-")
    hub.asked.clear()
    assert pull(needed("en"), root) == "kept"
    assert hub.asked == []
    assert pull(needed("de"), root) == "pulled"
    assert visible(folder).keys() == {"README.md", *names, *english}
    assert pull(needed("en", "de"), root) == "kept"
    assert locate_data(needed("de").data, settings, subsets=("de",)).data.revision == REVISION
    assert pull(needed("en", more=(("no such table",),)), root) == "pulled"
    assert visible(folder) == hub.files
    assert pull(needed("en", "de"), root) == "kept"


def test_what_an_interrupted_pull_fetched_is_not_asked_for_again(hub, need, root, monkeypatch):
    """2 kB of 18 kB free: refused; with a partial folder that holds all but 1 kB it goes on."""
    whole = sum(map(len, FILES.values()))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(whole, 0, 2000))
    with pytest.raises(DataError, match="free"):
        pull(need, root)
    partial = root / f"org/.toy.{REVISION[:12]}.partial"
    partial.mkdir()
    (partial / "half").write_bytes(b"x" * (whole - 1000))
    hub.refuse = lambda path: (500, {}, b"") if "resolve" in path else None
    with pytest.raises(DataError) as caught:
        pull(need, root)
    assert "free" not in str(caught.value)


def test_a_folder_made_by_hand_is_left_alone(hub, need, root, lay):
    lay(root / "org/toy", {"mine.jsonl": "precious"})
    with pytest.raises(DataError, match="not pulled by this program"):
        pull(need, root)
    assert visible(root / "org/toy") == {"mine.jsonl": b"precious"}


@pytest.mark.parametrize(
    ("code", "headers", "says"),
    [
        (404, {"X-Error-Code": "RepoNotFound"}, "no data set org/toy, or it is private"),
        (401, {"X-Error-Code": "RepoNotFound"}, "HF_TOKEN"),
        (403, {"X-Error-Code": "GatedRepo"}, "gated.*\n.*HF_TOKEN"),
        (404, {"X-Error-Code": "RevisionNotFound"}, f"no revision {REVISION}"),
        (403, {}, "HTTP 403.*\n.*HF_TOKEN"),
        (500, {}, "HTTP 500.*\n.*again later"),
    ],
)
def test_what_the_hub_refuses_is_said_in_one_message(hub, need, root, code, headers, says):
    hub.refuse = lambda path: (code, headers, b"")
    with pytest.raises(DataError, match=says):
        pull(need, root)
    with pytest.raises(DataError, match=says):
        fetch_remote_size(need)


def test_too_many_requests_is_said(need):
    answer = Response(429, request=Request("GET", "http://127.0.0.1/"))
    with pytest.raises(DataError, match="Wait some minutes"), explain_hub_error(need, None):
        raise HfHubHTTPError("slow down", response=answer)


def test_no_connection_is_said_with_what_to_do(need, root, monkeypatch, hub_cache):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(Unavailable, match=r"(?s)No connection to the hub.*connected machine"):
        pull(need, root)


def test_offline_mode_is_said(need, root, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(Unavailable, match="offline mode is on"):
        pull(need, root)


def test_a_data_set_larger_than_the_disk_is_not_begun(hub, need, root, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(100, 90, 10))
    with pytest.raises(DataError, match=r"has 9\.9 kB, and .* has 10 B free"):
        pull(need, root)
    assert not any("resolve" in path for _, path in hub.asked)


def test_an_empty_data_set_is_refused(hub, need, root):
    hub.files = {".gitattributes": b""}
    with pytest.raises(DataError, match="holds no files"):
        pull(need, root)
    assert not (root / "org/toy").exists()


def test_two_pulls_at_once_fetch_once(hub, need, root):
    results = []
    threads = [threading.Thread(target=lambda: results.append(pull(need, root))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["kept", "pulled"]


def test_sizes_leave_hidden_files_out(hub, need):
    size = sum(map(len, VISIBLE.values()))
    other = Need(path="org/none", revision=REVISION)
    assert fetch_remote_size(need) == size
    assert _fetch_remote_sizes([need, other]) == {need: size}


@pytest.fixture
def toy(monkeypatch):
    """A hub of one data set, of 100 kB."""

    def write(repo, *, local_dir, **_):
        Path(local_dir).mkdir(exist_ok=True)
        (Path(local_dir) / "test.jsonl").write_bytes(b"x" * 100_000)

    def size(*_, **__):
        raise RuntimeError("no size")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", write)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", size)
    return Need(path="org/toy", revision="r" * 40)


def test_a_full_disk_is_said_and_the_next_pull_goes_on(public_folder, toy):
    public_folder.chmod(0o777)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(DataError) as error:
            pull(toy, public_folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "The disk is full: org/toy cannot be written" in str(error.value)
    assert "goes on where it stopped" in str(error.value)
    assert not (public_folder / "org/toy").exists()
    assert pull(toy, public_folder) == "pulled"
    assert (public_folder / "org/toy/test.jsonl").stat().st_size == 100_000


def test_a_root_this_user_may_not_write_is_said(public_folder, toy):
    public_folder.chmod(0o555)
    with as_nobody(), pytest.raises(DataError) as error:
        pull(toy, public_folder)
    public_folder.chmod(0o755)
    assert f"No permission to write {public_folder}" in str(error.value)
    assert "--data DIR" in str(error.value)


@pytest.mark.parametrize(
    ("said", "kind", "message"),
    [
        (
            "Data processing error: No space left on device (os error 28)",
            Unavailable,
            "The disk is full",
        ),
        ("first line\nsecond line", DataError, "Fetching org/toy failed: RuntimeError: first line\\."),
    ],
    ids=["a full disk, told by the compiled downloader", "anything else, without a traceback"],
)
def test_any_other_error_is_one_message(need, root, monkeypatch, said, kind, message):
    def fail(*_, **__):
        raise RuntimeError(said)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", fail)
    with pytest.raises(kind, match=message):
        pull(need, root)


# Verifying


@pytest.fixture
def folder(root, lay, sign):
    folder = lay(
        root / "org/toy", {"README.md": "about", "data/test.jsonl": "aaaa", "data/train.jsonl": "bbbb"}
    )
    sign(folder, "org/toy")
    return folder


def told(problems):
    return [(p.kind, p.file, p.wrong) for p in problems]


def keep_times(file, content):
    before = file.stat()
    file.write_text(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    ("spoil", "problems"),
    [
        (lambda folder: None, []),
        (lambda folder: (folder / "README.md").unlink(), [("missing", "README.md", True)]),
        (
            lambda folder: (folder / "data/test.jsonl").write_text("aaaab"),
            [("size", "data/test.jsonl", True)],
        ),
        (
            lambda folder: keep_times(folder / "data/test.jsonl", "aaba"),
            [("sha256", "data/test.jsonl", True)],
        ),
        (lambda folder: (folder / "notes.txt").write_text("mine"), [("extra", "notes.txt", False)]),
        (lambda folder: (folder / ".harness.json").unlink(), [("unproven", "", False)]),
        (
            lambda folder: (folder / ".harness.json").write_text('{"schema": 1'),
            [("manifest", ".harness.json", True)],
        ),
        (shutil.rmtree, [("missing", "", True)]),
    ],
    ids=["whole", "gone", "longer", "same size", "added", "by hand", "manifest", "no folder"],
)
def test_each_difference_from_what_was_pulled_is_named(need, root, folder, spoil, problems):
    spoil(folder)
    found = verify(need, root)
    assert told(found) == problems
    assert all(problem.message.startswith(problem.file) for problem in found if problem.kind != "manifest")


def test_another_revision_than_wanted_is_wrong(root, folder, revision):
    problems = verify(Need(path="org/toy", revision="f" * 40), root)
    assert told(problems) == [("revision", "", True)]
    assert revision in problems[0].message


# What tasks need, and what is there of it


def task(name, path="org/toy", revision="r" * 40, subsets=("default",), content=""):
    data = Data(path=path, revision=revision, content=content)
    return Task(
        name=name, type="STS", metric="spearman", splits=("test",), subsets=subsets, data=data, source=None
    )


def test_a_data_set_is_needed_once_with_all_its_tasks_and_subsets():
    tasks = [
        task("B", subsets=("fr", "en")),
        task("Other", path="org/other"),
        task("A", subsets=("en", "de")),
        task("Built", path="", revision="", content="sha256:1"),
    ]
    assert needs(tasks) == (
        Need(path="org/toy", revision="r" * 40, tasks=("B", "A"), subsets=("fr", "en", "de")),
        Need(path="org/other", revision="r" * 40, tasks=("Other",), subsets=("default",)),
    )


def test_two_revisions_are_two_needs():
    assert [n.revision for n in needs([task("A", revision="1"), task("B", revision="2")])] == ["1", "2"]


@pytest.fixture
def need_of_a(revision):
    return Need(path="org/toy", revision=revision, tasks=("A",))


@pytest.mark.parametrize(("offline", "state", "where"), [(True, "missing", None), (False, "remote", "hub")])
def test_what_is_not_here_is_missing_or_remote(need_of_a, settings, offline, state, where):
    row = Status.resolve_status(need_of_a, replace(settings, offline=offline))
    assert (row.state, row.where, row.size) == (state, where, None)


def test_pulled_and_whole_is_verified_with_its_size(need_of_a, settings, root, lay, sign):
    lay(root / "org/toy", {"README.md": "12345", "data/test.jsonl": "678", ".hidden": "not counted"})
    sign(root / "org/toy", "org/toy")
    row = Status.resolve_status(need_of_a, settings)
    assert (row.state, row.where, row.size) == ("verified", "root", 8)
    assert row.data == need_of_a.data


def test_a_folder_made_by_hand_is_unverified(need_of_a, settings, root, lay):
    lay(root / "org/toy", {"test.jsonl": "x"})
    row = Status.resolve_status(need_of_a, settings)
    assert row.state == "unverified"
    assert row.data.content.startswith("sha256:")


@pytest.mark.parametrize("how", ["bytes", "manifest"])
def test_what_differs_from_what_was_pulled_is_changed(need_of_a, settings, root, lay, sign, how):
    folder = lay(root / "org/toy", {"test.jsonl": "x"})
    sign(folder, "org/toy", need_of_a.revision)
    if how == "bytes":
        (folder / "test.jsonl").write_text("y")
    if how == "manifest":
        (folder / ".harness.json").write_text("{")
    assert Status.resolve_status(need_of_a, settings).state == "changed"


def test_found_lists_what_lies_in_a_root(root, lay, sign, revision):
    lay(root / "org/toy", {"test.jsonl": "x"})
    sign(root / "org/toy", "org/toy")
    lay(root / "org/by-hand", {"test.jsonl": "x"})
    lay(root, {"README.md": "a file", "org/.toy.partial/test.jsonl": "x"})
    (root / "org/empty").mkdir()
    assert [(n.path, n.revision) for n in list_data_sets(root)] == [
        ("org/by-hand", ""),
        ("org/toy", revision),
    ]


@pytest.mark.parametrize(
    ("size", "text"),
    [(None, "?"), (0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (2_500_000_000, "2.5 GB"), (3e12, "3.0 TB")],
)
def test_sizes_are_fit_to_read(size, text):
    assert format_size(size) == text
