"""Records from strangers: what is taken, what is refused, and that nothing breaks."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from harness.core.documents import with_digest
from harness.core.identity import digest
from harness.core.lineage import Lineage, ParentPart, SweepPart
from harness.core.types import Artifact
from harness.storage.record import DIGEST_SINCE, RECORDS, SCHEMA, Record
from harness.storage.store import Store
from leaderboard.web.intake import Intake, PushLog, router
from leaderboard.web.limits import Limits
from leaderboard.web.tokens import Tokens

REFERENCE = sorted((Path(__file__).parents[3] / "results" / "reference" / "records").glob("*/*/*.json"))
ARTIFACT = "ab" * 32


def made(**changes: Any) -> dict[str, Any]:
    """A record without a digest; its key is that of its identity unless said otherwise."""
    record: dict[str, Any] = {
        "schema": DIGEST_SINCE - 1,
        "purpose": "final",
        "status": "done",
        "model": {"name": "org/tiny", "source": "org/tiny", "artifact": ARTIFACT, "weights": "cd" * 32},
        "task": {"name": "STS12", "type": "STS", "metric": "cosine_spearman"},
        "identity": {"artifact": ARTIFACT, "task": "STS12", "seed": 42},
        "main_score": 0.5,
        "scores": {"test": {"default": {"main_score": 0.5}}},
        "examples": {"file": "x.examples.parquet", "rows": 3, "sha256": "ef" * 32},
        "run": {"file": "x.run.parquet", "rows": 3, "sha256": "ef" * 32, "depth": 3},
        **changes,
    }
    return {"key": digest(record["identity"]), **record}


def named(*, model: str = "org/tiny", task: str = "STS12") -> dict[str, Any]:
    base = made(identity={"artifact": ARTIFACT, "task": task, "seed": 42})
    return {**base, "model": {**base["model"], "name": model}, "task": {**base["task"], "name": task}}


class Site:
    def __init__(self, results: Path, **options: Any) -> None:
        self.results = results
        self.outcomes: list[str] = []
        self.intake = Intake(results=results, counted=self.outcomes.append, **options)
        self.app = FastAPI()
        self.app.include_router(router(self.intake))
        self.secret = Tokens(results).create("ci")[1]

    def post(self, body: Any, **headers: str) -> Any:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"Content-Type": "application/json", "Authorization": f"Bearer {self.secret}", **headers}
        return TestClient(self.app).post("/api/records", content=content, headers=sent)

    def files(self) -> dict[str, bytes]:
        records = self.results / "records"
        return {p.relative_to(records).as_posix(): p.read_bytes() for p in records.rglob("*") if p.is_file()}

    def audit(self) -> list[dict[str, Any]]:
        path = self.results / "site" / "audit.jsonl"
        return [json.loads(line) for line in path.read_text("ascii").splitlines()]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "results")


def test_a_record_is_kept_where_a_run_would_write_it(site: Site) -> None:
    record = made()
    answer = site.post(record)
    assert answer.status_code == 201
    assert {k: answer.json()[k] for k in ("key", "created", "examples")} == {
        "key": record["key"],
        "created": True,
        "examples": None,
    }
    assert "per-example file is not taken" in answer.json()["notes"][0]
    slug = Artifact(name="org/tiny", source="", folder=Path(), key=ARTIFACT, weights="").slug
    assert list(site.files()) == [f"{slug}/STS12/{record['key']}.json"]
    kept = Store(site.results).get(slug, "STS12", record["key"])
    assert kept == RECORDS.parse(json.dumps({**record, "examples": None, "run": None}), where="sent")


@pytest.mark.parametrize("path", REFERENCE, ids=[p.parent.name for p in REFERENCE])
def test_records_of_real_runs_are_taken(site: Site, path: Path) -> None:
    assert site.post(path.read_bytes()).status_code == 201
    assert list(site.files()) == [path.relative_to(path.parents[2]).as_posix()]


def test_a_record_is_taken_only_with_its_own_digest(site: Site) -> None:
    text = with_digest(made(schema=SCHEMA))
    edited = site.post(text.replace("0.5", "0.75").encode())
    assert (edited.status_code, site.files()) == (422, {})
    assert edited.json()["error"]["message"] == "The record is not what its `digest` says."
    assert site.post(made(schema=SCHEMA)).status_code == 422
    assert site.post(text.encode()).status_code == 201


def test_a_second_post_changes_nothing(site: Site) -> None:
    site.post(made())
    before = site.files()
    again = site.post(made())
    assert (again.status_code, again.json()["created"]) == (200, False)
    assert site.files() == before


def test_another_score_under_the_same_key_is_a_conflict(site: Site) -> None:
    site.post(made())
    before = site.files()
    other = site.post(made(main_score=0.75))
    assert other.status_code == 409
    assert "0.5, not 0.75" in other.json()["error"]["message"]
    assert site.files() == before


def test_one_artifact_has_one_folder_whatever_it_is_called(site: Site) -> None:
    site.post(made())
    again = site.post(named(model="another-name"))
    assert (again.status_code, again.json()["model"]) == (200, "org/tiny")
    assert len(site.files()) == 1


def test_a_final_record_takes_the_place_of_a_trial_and_of_a_failure(site: Site) -> None:
    text = json.dumps({**made(purpose="trial"), "examples": None, "run": None})
    trial = RECORDS.parse(text, where="x")
    store = Store(site.results)
    store.put("org-tiny-" + ARTIFACT[:12], trial)
    store.put("org-tiny-" + ARTIFACT[:12], trial.model_copy(update={"status": "failed"}))
    assert len(site.files()) == 2
    assert site.post(made()).status_code == 201
    assert [json.loads(content)["purpose"] for content in site.files().values()] == ["final"]


def test_a_site_without_tokens_takes_nothing_and_writes_nothing(tmp_path: Path) -> None:
    app = FastAPI()
    app.include_router(router(Intake(results=tmp_path / "none")))
    answer = TestClient(app).post("/api/records", json=made())
    assert answer.status_code == 404
    assert answer.json() == {"error": {"status": 404, "message": "This site takes no records.", "hint": ""}}
    assert not (tmp_path / "none").exists()


def test_who_may_not_push_is_told_the_same_whatever_the_reason(site: Site) -> None:
    tokens = Tokens(site.results)
    _, ended = tokens.create("ended")
    tokens.revoke("ended")
    _, old = tokens.create("old", days=1)
    edit(site, "old", expires=(datetime.now(UTC) - timedelta(seconds=1)).isoformat())
    mistyped = site.secret[:-1] + ("A" if site.secret[-1] != "A" else "B")
    answers = [
        site.post(made(), Authorization=f"Bearer {secret}")
        for secret in (ended, old, mistyped, "x", "x" * 5000)
    ]
    assert {a.status_code for a in answers} == {401}
    assert len({a.content for a in answers}) == 1
    assert {a.headers["www-authenticate"] for a in answers} == {
        'Bearer realm="records", error="invalid_token"'
    }
    assert [line["outcome"] for line in site.audit()] == ["revoked", "expired", *["unknown"] * 3]
    assert [line["token"] for line in site.audit()] == ["ended", "old", None, None, None]
    assert site.files() == {}


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer  ", "Basic YTpi", "Token x"])
def test_without_a_token_one_is_asked_for(site: Site, header: str) -> None:
    answer = site.post(made(), Authorization=header)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer realm="records"')
    assert site.outcomes == ["no-token"]


def test_the_scheme_is_written_in_any_case(site: Site) -> None:
    assert site.post(made(), Authorization=f"bearer {site.secret}").status_code == 201


def test_a_token_of_another_scope_is_forbidden(site: Site) -> None:
    edit(site, "ci", scope="pages:read")
    answer = site.post(made())
    assert answer.status_code == 403
    assert 'error="insufficient_scope"' in answer.headers["www-authenticate"]


def test_a_damaged_token_file_lets_nobody_in(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    (site.results / "site" / "tokens.json").write_text('{"schema": 1, "tokens": [{}]}')
    answer = site.post(made())
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "60")
    assert str(site.results) not in answer.text
    assert "tokens.json is damaged" in caplog.text
    assert site.files() == {}


def edit(site: Site, name: str, **changes: str) -> None:
    path = site.results / "site" / "tokens.json"
    content = json.loads(path.read_text())
    next(t for t in content["tokens"] if t["name"] == name).update(changes)
    path.write_text(json.dumps(content))


def raw(body: bytes = b"", **changes: str) -> bytes:
    """A record's text with parts replaced that no Python value gives."""
    text = json.dumps(made())
    for old, new in changes.items():
        assert f'"{old}": ' in text
        start = text.index(f'"{old}": ') + len(old) + 4
        end = min(i for i in (text.find(",", start), text.find("}", start)) if i > 0)
        text = text[:start] + new + text[end:]
    return text.encode() + body


def told(**provenance: Any) -> bytes:
    return json.dumps(made(provenance=provenance)).encode()


PARENT = ParentPart(name="tiny", artifact="a" * 64)
LINEAGE = Lineage(recipe="simcse", settings={}, parents=(PARENT,), data=(), seed=1)


def of_recipe(**changes: Any) -> dict[str, Any]:
    """A record of a model that a recipe made."""
    lineage = LINEAGE.model_copy(update=changes)
    base = made(identity={"artifact": lineage.key, "task": "STS12", "seed": 42}, schema=SCHEMA)
    body = {**base, "model": {**base["model"], "artifact": lineage.key}, "lineage": lineage.model_dump()}
    found: dict[str, Any] = json.loads(Record.model_validate(body).to_json())
    return found


def of_sweep(**changes: Any) -> dict[str, Any]:
    """A record of the best of a sweep of two, with the run of a retrieval task."""
    curve = [
        {"value": value, "artifact": letter * 64, "scores": {"SciFact": value / 4}, "mean": value / 4}
        for letter, value in (("e", 1.0), ("f", 2.0))
    ]
    fields = {
        "setting": "scale",
        "values": (1.0, 2.0),
        "tasks": {"SciFact": {}},
        "chosen": 2.0,
        "curve": curve,
    }
    found = of_recipe(sweep=SweepPart(**{**fields, **changes}))
    found["run"] = {"file": "x.run.parquet", "rows": 9, "sha256": "ab" * 32, "depth": 100}
    del found["digest"]
    body: dict[str, Any] = json.loads(Record.model_validate(found).to_json())
    return body


def of_another_seed() -> bytes:
    """The record of a model with the lineage of another one."""
    found = of_recipe()
    other = {**found, "lineage": {**found["lineage"], "seed": 2}}
    return Record.model_validate({k: v for k, v in other.items() if k != "digest"}).to_json().encode()


def test_a_lineage_is_kept(site: Site) -> None:
    assert site.post(of_recipe()).status_code == 201
    (kept,) = [json.loads(body) for name, body in site.files().items() if name.endswith(".json")]
    assert kept["lineage"] == LINEAGE.model_dump(mode="json")


def test_a_sweep_is_kept_and_a_run_is_not(site: Site) -> None:
    sent = of_sweep()
    answer = site.post(sent)
    assert answer.status_code == 201
    assert "nor the run" in answer.json()["notes"][0]
    (kept,) = [json.loads(body) for name, body in site.files().items() if name.endswith(".json")]
    assert (sent["run"]["depth"], kept["run"], kept["examples"]) == (100, None, None)
    assert kept["lineage"] == sent["lineage"]
    assert len(kept["lineage"]["sweep"]["curve"]) == 2


NO_MEMBER = {"value": 3.0, "artifact": "f" * 64, "scores": {"SciFact": 0.5}, "mean": 0.5}

WRONG: dict[str, tuple[bytes, int, str]] = {
    "lineage of another": (of_another_seed(), 422, "The `lineage` is of another model"),
    "long own data": (json.dumps(of_recipe(own_data="x" * 300)).encode(), 422, "longer than 200 bytes"),
    "long own data of a parent": (
        json.dumps(of_recipe(parents=(PARENT.model_copy(update={"own_data": "x" * 300}),))).encode(),
        422,
        "longer than 200 bytes",
    ),
    "a sweep's member of no value": (
        json.dumps(of_sweep(curve=[NO_MEMBER])).encode(),
        422,
        "a value that is none of it",
    ),
    "a sweep without its choice": (json.dumps(of_sweep(chosen=None, curve=())).encode(), 422, "of no member"),
    "a sweep by other tasks": (
        json.dumps(of_sweep(tasks={"STS12": {}})).encode(),
        422,
        "other tasks than it",
    ),
    "a long name in a sweep": (
        json.dumps(of_sweep(setting="x" * 300)).encode(),
        422,
        "longer than 200 bytes",
    ),
    "texts are a text": (told(texts_trained_on="all"), 422, "`texts_trained_on`"),
    "empty": (b"", 400, "not JSON"),
    "not JSON": (b"{", 400, "line 1, column 2"),
    "two values": (raw(b"{}"), 400, "not JSON"),
    "not UTF-8": (b'{"key": "\xff"}', 400, "not UTF-8: byte 9"),
    "UTF-16": (json.dumps(made()).encode("utf-16"), 400, "not UTF-8"),
    "a list": (b"[]", 422, "no schema number"),
    "null": (b"null", 422, "no schema number"),
    "NaN": (raw(main_score="NaN"), 422, "NaN"),
    "Infinity": (raw(main_score="-Infinity"), 422, "-Infinity"),
    "overflow": (raw(main_score="1e999"), 422, "not finite"),
    "NaN as text": (raw(main_score='"nan"'), 422, "not finite"),
    "huge integer": (raw(seed="9" * 5000), 422, "integer"),
    "integer": (raw(seed=str(2**63)), 422, "integer"),
    "deep": (raw(seed="[" * 40 + "]" * 40), 422, "within one another"),
    "very deep": (b"[" * 500_000, 422, "within one another"),
    "very deep objects": (b'{"a":' * 200_000, 422, "within one another"),
    "duplicate": (raw()[:-1] + b', "key": "x"}', 422, "'key' stands twice"),
    "inner duplicate": (raw(seed='{"a": 1, "a": 2}'), 422, "'a' stands twice"),
    "NUL": (raw(metric='"a\\u0000"'), 422, "cannot be stored"),
    "surrogate": (raw(metric='"\\ud800"'), 422, "cannot be stored"),
    "surrogate in a name": (raw(seed='{"\\udfff": 1}'), 422, "cannot be stored"),
    "newer": (raw(schema=str(SCHEMA + 1)), 422, "newer version"),
    "older than all": (raw(schema="-5"), 422, "which no version ever wrote"),
    "another field": (raw()[:-1] + b', "more": 1}', 422, "more"),
    "a trial": (raw(purpose='"trial"'), 422, "trial"),
    "a failure": (raw(status='"failed"'), 422, "failure"),
    "wrong key": (raw(key='"' + "0" * 64 + '"'), 422, "not the digest"),
    "key is a path": (raw(key='"../../x"'), 422, "not the digest"),
    "bare artifact": (raw(artifact='"*"'), 422, "ArtifactKey"),
    "another artifact": (raw(artifact='"' + "12" * 32 + '"'), 422, "another artifact"),
    "another task": (json.dumps({**made(), "task": named(task="x")["task"]}).encode(), 422, "another task"),
    "long model": (json.dumps(named(model="x" * 5000)).encode(), 422, "longer than 200 bytes"),
    "long task": (json.dumps(named(task="é" * 101)).encode(), 422, "longer than 200 bytes"),
    "no name": (json.dumps(named(model=" ")).encode(), 422, "no name"),
    "escape sequence": (json.dumps(named(model="a\x1b[2J")).encode(), 422, "cannot be seen"),
    "turned around": (json.dumps(named(task="a\u202eb")).encode(), 422, "cannot be seen"),
    "line break": (raw(source='"a\\nb"'), 422, "cannot be seen"),
    "above 1": (json.dumps(made(main_score=1.0001)).encode(), 422, "'main_score' is 1.0001"),
    "below -1": (json.dumps(made(main_score=-80)).encode(), 422, "'main_score' is -80"),
    "a raw score above 1": (
        json.dumps(made(scores={"test": {"de": {"main_score": 79.5}}})).encode(),
        422,
        "'scores.test.de.main_score' is 79.5",
    ),
    "a raw metric below -1": (
        json.dumps(made(scores={"dev": {"x": {"cosine_spearman": -2}}})).encode(),
        422,
        "'scores.dev.x.cosine_spearman' is -2",
    ),
    "seconds are a list": (told(seconds=[1]), 422, "`seconds`"),
    "seconds are a number": (told(seconds=3), 422, "`seconds`"),
    "seconds are texts": (told(seconds={"encode": "1"}), 422, "`seconds`"),
    "seconds are truths": (told(seconds={"encode": True}), 422, "`seconds`"),
    "seconds below 0": (told(seconds={"encode": -1}), 422, "`seconds`"),
    "tokens are a text": (told(tokens_encoded="many"), 422, "`tokens_encoded`"),
    "a speed that is an object": (told(tokens_per_second={}), 422, "`tokens_per_second`"),
    "threads are a truth": (told(threads=True), 422, "`threads`"),
    "a device that is a text": (told(device="cpu"), 422, "`device` is no object"),
    "notes that are a text": (told(notes="none"), 422, "`notes` is no list"),
    "a time that is a number": (told(written=5), 422, "`written` is no text"),
}


@pytest.mark.parametrize(("body", "status", "said"), WRONG.values(), ids=list(WRONG))
def test_what_is_no_record_is_refused_and_said(site: Site, body: bytes, status: int, said: str) -> None:
    answer = site.post(body)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["status"] == status
    assert said in error["message"]
    assert site.files() == {}
    assert [line["status"] for line in site.audit()] == [status]


@pytest.mark.parametrize(
    "changes",
    [
        {"main_score": 1.0},
        {"main_score": -1},
        {"main_score": None, "scores": {"test": {"default": {"main_score": None}}}},
        {"scores": {"test": {"default": {"main_score": 0.5, "seconds_per_text": 17.5}}}},
        {"provenance": {"seconds": None, "tokens_per_second": None}},
        {"provenance": {"seconds": {}, "tokens_encoded": 0, "anything": ["else", {"is": "free"}]}},
    ],
)
def test_what_may_be_is_taken(site: Site, changes: dict[str, Any]) -> None:
    assert site.post(made(**changes)).status_code == 201


@pytest.mark.parametrize(
    ("model", "task", "folder"),
    [
        ("../../x", "../../y", "x-abababababab/-..-y"),
        ("/etc/passwd", "/etc/passwd", "etc-passwd-abababababab/-etc-passwd"),
        ("..", "..", "model-abababababab/task"),
        (".hidden", ".", "hidden-abababababab/task"),
        ("CON", "NUL", "CON-abababababab/NUL"),
        ("a\\b:c*?", "a|b", "a-b-c-abababababab/a-b"),
        ("模型 é", "Überprüfung", "模型-é-abababababab/Überprüfung"),
        ("<script>", "%2e%2e%2f", "script-abababababab/-2e-2e-2f"),
        ("漢" * 66, "漢" * 66, f"{'漢' * 66}-abababababab/{'漢' * 66}"),
    ],
)
def test_no_name_leads_out_of_the_folder(site: Site, model: str, task: str, folder: str) -> None:
    record = named(model=model, task=task)
    around = {p for p in site.results.parent.iterdir() if p.name != "cache"}
    answer = site.post(record)
    assert answer.status_code == 201, answer.text
    (path,) = site.files()
    assert len(Path(path).parts) == 3
    assert Path(path).name == f"{record['key']}.json"
    assert Path(path).parent.parts[1].strip(".")
    slug = Artifact(name=model, source="", folder=Path(), key=ARTIFACT, weights="").slug
    assert (
        path
        == Store(site.results)
        .path(slug, task, record["key"])
        .relative_to(site.results / "records")
        .as_posix()
    )
    assert path.startswith(f"{folder}/"), path
    assert {p for p in site.results.parent.iterdir() if p.name != "cache"} == around


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": ""},
        {"Content-Type": "multipart/form-data; boundary=x"},
        {"Content-Encoding": "gzip"},
    ],
)
def test_only_plain_json_is_taken(site: Site, headers: dict[str, str]) -> None:
    assert site.post(made(), **headers).status_code == 415


def test_a_charset_does_not_matter(site: Site) -> None:
    assert site.post(made(), **{"Content-Type": "Application/JSON; charset=utf-8"}).status_code == 201


def test_ten_megabytes_are_refused(site: Site) -> None:
    answer = site.post(b'"' + b"x" * 10 * 2**20 + b'"')
    assert answer.status_code == 413
    assert site.audit()[0]["outcome"] == "too-large"


def ask(site: Site, parts: list[bytes], *, length: str | None, ends: bool = True) -> tuple[int, int]:
    """A request in parts, whatever its length is said to be; its status, and how many were read."""
    read, status = 0, 0
    headers = [(b"content-type", b"application/json"), (b"authorization", f"Bearer {site.secret}".encode())]
    if length is not None:
        headers.append((b"content-length", length.encode()))

    async def receive() -> dict[str, Any]:
        nonlocal read
        if read == len(parts):
            if not ends:
                await asyncio.sleep(60)
            return {"type": "http.disconnect"}
        read += 1
        return {"type": "http.request", "body": parts[read - 1], "more_body": True}

    async def send(message: Any) -> None:
        nonlocal status
        status = message.get("status", status)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/records",
        "raw_path": b"/api/records",
        "query_string": b"",
        "headers": headers,
        "client": ("192.0.2.7", 1),
        "server": ("testserver", 80),
        "scheme": "http",
        "http_version": "1.1",
    }
    asyncio.run(site.app(scope, receive, send))
    return status, read


@pytest.mark.parametrize("length", [None, "10", "-5", "x", "9" * 30])
def test_reading_stops_at_the_limit(tmp_path: Path, length: str | None) -> None:
    site = Site(tmp_path / "results", largest=1000)
    assert ask(site, [b"x" * 300] * 100, length=length) == (413, 4)


def test_what_is_said_to_be_too_large_is_not_read(tmp_path: Path) -> None:
    site = Site(tmp_path / "results", largest=1000)
    assert ask(site, [b"x" * 300] * 100, length="1001") == (413, 0)


def test_a_body_that_ends_early_or_never(tmp_path: Path) -> None:
    site = Site(tmp_path / "results", patience=0.05)
    assert ask(site, [b"{"], length="100")[0] == 400
    assert ask(site, [b"{"], length="100", ends=False)[0] == 408
    assert [line["outcome"] for line in site.audit()] == ["broken-off", "too-slow"]


def test_too_many_posts_wait(tmp_path: Path) -> None:
    site = Site(tmp_path / "results", limits=Limits({"post": "2/minute"}))
    answers = [site.post(made()) for _ in range(3)]
    assert [a.status_code for a in answers] == [201, 200, 429]
    assert 1 <= int(answers[2].headers["retry-after"]) <= 60
    assert site.outcomes == ["created", "known", "too-many"]


def test_a_wrong_token_does_not_lock_out_a_valid_one_behind_the_same_address(tmp_path: Path) -> None:
    site = Site(tmp_path / "results", limits=Limits({"post": "2/minute", "wrong token": "3/minute"}))
    wrong = [site.post(made(), Authorization="Bearer ehw_wrong").status_code for _ in range(5)]
    assert wrong == [401, 401, 401, 429, 429]
    assert site.post(made()).status_code == 201


@pytest.mark.parametrize("scores", [[0.5] * 8, [0.1 * i for i in range(8)]], ids=["same", "different"])
def test_posts_of_one_key_at_once_leave_one_record(site: Site, scores: list[float]) -> None:
    gate = threading.Barrier(len(scores))

    def post(score: float) -> Any:
        gate.wait()
        return site.post(made(main_score=score))

    with ThreadPoolExecutor(len(scores)) as pool:
        answers = list(pool.map(post, scores))
    rest = 200 if len(set(scores)) == 1 else 409
    assert sorted(a.status_code for a in answers) == sorted([201, *[rest] * 7])
    (content,) = site.files().values()
    winner = next(a.json() for a in answers if a.status_code == 201)
    assert json.loads(content)["main_score"] == winner["main_score"]
    assert [line["outcome"] for line in site.audit()].count("accepted") == 1
    assert len(site.audit()) == len(scores) + 1


def test_every_attempt_leaves_a_line_without_secrets(site: Site) -> None:
    site.post(made())
    site.post(made())
    site.post(made(main_score=0.1))
    site.post(b"{", Authorization="Bearer ehw_stolen")
    site.post(b"x" * 3 * 2**20)
    lines = site.audit()
    assert [(line["outcome"], line["status"], line["token"]) for line in lines] == [
        ("accepted", 202, "ci"),
        ("created", 201, "ci"),
        ("known", 200, "ci"),
        ("conflict", 409, "ci"),
        ("unknown", 401, None),
        ("too-large", 413, "ci"),
    ]
    assert [line["key"] for line in lines] == [made()["key"]] * 4 + [None] * 2
    assert {line["client"] for line in lines} == {"testclient"}
    assert all(datetime.fromisoformat(line["time"]).tzinfo == UTC for line in lines)
    assert site.outcomes == [line["outcome"] for line in lines[1:]]
    written = b"".join(p.read_bytes() for p in (site.results / "site").iterdir())
    assert site.secret.encode() not in written
    assert b"stolen" not in written


def test_a_site_that_cannot_audit_says_so(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    (site.results / "site" / "audit.jsonl").mkdir()
    assert site.post(made()).status_code == 503
    assert site.files() == {}
    assert site.outcomes == ["audit"]
    assert "audit could not be written" in caplog.text
    assert site.post(b"{").status_code == 400
    (site.results / "site" / "audit.jsonl").rmdir()
    assert site.post(made()).status_code == 201


def test_what_was_stored_is_said_even_if_its_outcome_cannot_be_audited(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    write = PushLog.write

    def once(audit: PushLog, **line: Any) -> None:
        if line["outcome"] != "accepted":
            raise OSError("the disk is full")
        write(audit, **line)

    with mock.patch.object(PushLog, "write", once):
        assert site.post(made()).status_code == 201
    assert [(line["outcome"], line["key"]) for line in site.audit()] == [("accepted", made()["key"])]
    assert len(site.files()) == 1
    assert "audit could not be written" in caplog.text


def test_a_folder_that_cannot_be_written_is_not_the_senders_fault(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    (site.results / "records").write_text("in the way")
    answer = site.post(made())
    assert (answer.status_code, site.outcomes) == (503, ["store"])
    assert str(site.results) in caplog.text
    assert str(site.results) not in answer.text


def test_the_index_is_told_of_new_records_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told: list[int] = []

    def changed() -> None:
        told.append(1)
        raise RuntimeError("the index is gone")

    site = Site(tmp_path / "results", changed=changed)
    assert [site.post(made()).status_code for _ in range(2)] == [201, 200]
    assert told == [1]
    assert "the index is gone" in caplog.text


def test_the_description_is_whole(site: Site) -> None:
    described = site.app.openapi()
    post = described["paths"]["/api/records"]["post"]
    schema = post["requestBody"]["content"]["application/json"]["schema"]
    assert "$ref" not in json.dumps(schema)
    assert schema["properties"]["model"]["properties"]["artifact"]["type"] == "string"
    assert post["security"] == [{"HTTPBearer": []}]
    assert set(described["components"]["securitySchemes"]) == {"HTTPBearer"}
    assert {"201", "401", "409", "413", "422", "429"} <= set(post["responses"])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(field=st.sampled_from(sorted(made())), value=VALUES, rekey=st.booleans())
def test_nothing_breaks_the_intake(site: Site, field: str, value: Any, rekey: bool) -> None:
    record = {**made(), field: value}
    if rekey and isinstance(record["identity"], dict):
        try:
            record["key"] = digest(record["identity"])
        except ValueError:
            record["key"] = "none"
    answer = site.post(json.dumps(record).encode())
    assert answer.status_code in (200, 201, 409, 422), answer.text


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.binary(max_size=60))
def test_bytes_are_refused(site: Site, body: bytes) -> None:
    assert site.post(body).status_code in (400, 422)
