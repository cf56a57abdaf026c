import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
from click.testing import CliRunner

from harness.cli import invoke
from harness.commands import data as module
from harness.commands.data import command
from harness.core.errors import UsageError
from harness.core.types import Column, Data, Suite, SuiteOptions, Task
from harness.data.training.sets import TrainingData

REVISION = "0123456789abcdef0123456789abcdef01234567"


def task(name, path):
    data = Data(path=path, revision=REVISION)
    return Task(name=name, type="STS", metric="m", splits=("test",), data=data, source=None)


TASKS = (task("ToyA", "org/toy"), task("ToyB", "org/toy"), task("Other", "org/other"))
SUITE = Suite(
    name="toys", title="Toys", columns=tuple(Column(name=t.name, type="STS", tasks=(t,)) for t in TASKS)
)


@pytest.fixture(autouse=True)
def catalog(monkeypatch):
    """A catalog with one suite, and a hub whose library may go online."""
    asked = []

    def open_suites(names, options):
        asked.append((tuple(names), options))
        if list(names) != ["toys"]:
            raise UsageError("No such suite.")
        return [SUITE]

    monkeypatch.setattr(module, "open_suites", open_suites)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    return asked


@pytest.fixture(autouse=True)
def hub(monkeypatch, tmp_path):
    """A hub that has org/toy with one file, no README, and nothing else."""
    asked = []

    def snapshot_download(repo, *, repo_type, revision, local_dir, allow_patterns=None):
        asked.append((repo, repo_type, revision))
        if repo != "org/toy":
            raise RuntimeError(f"{repo} fails")
        if allow_patterns is not None:
            return
        Path(local_dir).mkdir(parents=True)
        (Path(local_dir) / "test.jsonl").write_bytes(b"content")

    def dataset_info(_self, repo, **_):
        if repo != "org/toy":
            raise RuntimeError(f"{repo} fails")
        return SimpleNamespace(siblings=[SimpleNamespace(rfilename="test.jsonl", size=7)])

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", dataset_info)
    return asked


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


def call(*arguments):
    return CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=False)


def rows(result):
    told = json.loads(result.stdout)
    assert told["schema"] == 1
    return told["data"]


def test_list_tells_size_and_place_of_what_is_not_here():
    result = call("list", "--suite", "toys")
    assert result.exit_code == 0
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["data", "set", "revision", "tasks", "size", "where", "state"],
        ["org/toy", "0123456789ab", "ToyA,", "ToyB", "7", "B", "hub", "remote"],
        ["org/other", "0123456789ab", "Other", "?", "hub", "remote"],
    ]


def test_list_offline_asks_nobody_and_says_missing(monkeypatch):
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, **__: pytest.fail("asked the hub"))
    result = call("list", "--suite", "toys", "--offline", "--json")
    assert [(r["state"], r["bytes"], r["where"]) for r in rows(result)] == [("missing", None, None)] * 2


def test_languages_reach_the_suite(catalog, tmp_path):
    call("list", "--suite", "toys", "--languages", "eng,deu", "--offline")
    assert catalog == [(("toys",), SuiteOptions(languages=("eng", "deu"), cache=tmp_path / "cache"))]


def test_a_protocol_has_the_data_of_its_trainings_choices_and_scores(root, hub):
    """That of the steps that a task is in, with what they start from."""
    root.mkdir()
    every = rows(call("list", "--protocol", "modernbert", "--offline", "--json", "--data", root))
    told = {row["path"]: row["tasks"] for row in every}
    assert told["nyu-mll/glue"][:2] == ["CoLA", "SST-2"]
    assert ["colbert"] in told.values()
    assert "SciFact" in told["mteb/scifact"]
    some = call("list", "--protocol", "modernbert", "--tasks", "mldr", "--offline", "--json", "--data", root)
    tasks = [task for row in rows(some) for task in row["tasks"]]
    assert "RTE" not in tasks
    assert {"dpr:authors", "mldr", "NFCorpus", "SciFact", "TRECCOVID", "FiQA2018"} <= {*tasks}
    for words, message in (
        (("--protocol", "modernbort"), "Did you mean modernbert"),
        (("--protocol", "modernbert", "--tasks", "STS12"), "No task of this protocol is called 'STS12'"),
        (("--recipe", "dpr", "--tasks", "SciFact"), "--tasks narrows a suite or a protocol."),
    ):
        with pytest.raises(UsageError, match=message):
            call("pull", *words, "--data", root)
    assert hub == []
    assert call("pull", "--protocol", "mosaicbert", "--data", root).exit_code == 1
    assert {repo for repo, *_ in hub} == {"nyu-mll/glue"}


def test_pull_then_list_then_verify(root, hub):
    pulled = call("pull", "--suite", "toys", "--data", root)
    assert pulled.exit_code == 1
    assert "pulled org/toy" in pulled.stdout
    assert "failed org/other" in pulled.stdout
    assert "org/other fails" in pulled.stderr
    assert hub[0] == ("org/toy", "dataset", REVISION)

    listed = rows(call("list", "--data", root, "--json"))
    assert [(r["path"], r["revision"], r["bytes"], r["state"]) for r in listed] == [
        ("org/toy", REVISION, 7, "verified")
    ]

    verified = call("verify", "--data", root)
    assert verified.exit_code == 0
    assert verified.stdout.split() == ["verified", "org/toy", "0123456789ab"]


def test_pull_again_keeps_what_is_there(root, hub):
    call("pull", "--suite", "toys", "--data", root)
    states = {r["path"]: r["state"] for r in rows(call("pull", "--suite", "toys", "--data", root, "--json"))}
    assert states == {"org/toy": "kept", "org/other": "failed"}
    assert [repo for repo, *_ in hub].count("org/toy") == 1


def test_without_a_connection_the_rest_is_not_tried(root, monkeypatch):
    def unreachable(*_, **__):
        raise ConnectionError("no route")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", unreachable)
    result = call("pull", "--suite", "toys", "--data", root, "--json")
    assert result.exit_code == 1
    assert [r["state"] for r in rows(result)] == ["failed", "not tried"]
    assert result.stderr.count("No connection to the hub") == 1


def test_verify_ends_with_1_and_names_the_damaged_file(root):
    call("pull", "--suite", "toys", "--data", root)
    (root / "org/toy/test.jsonl").write_bytes(b"c0ntent")
    result = call("verify", "--data", root)
    assert result.exit_code == 1
    assert "test.jsonl has sha256" in result.stdout
    assert f"harness data pull --suite SUITE --data {root}" in result.stderr
    told = rows(call("verify", "--data", root, "--json"))
    assert [(p["kind"], p["file"]) for p in told[0]["problems"]] == [("sha256", "test.jsonl")]


def test_verify_of_a_suite_ends_with_1_if_something_is_missing(root):
    root.mkdir()
    result = call("verify", "--suite", "toys", "--data", root)
    assert result.exit_code == 1
    assert result.stdout.count("wrong") == 2


def test_a_folder_made_by_hand_is_told_and_no_failure(root):
    (root / "org/toy").mkdir(parents=True)
    (root / "org/toy/test.jsonl").write_bytes(b"mine")
    result = call("verify", "--data", root)
    assert result.exit_code == 0
    assert result.stdout.startswith("unverified org/toy")
    content = rows(call("list", "--data", root, "--json"))[0]["content"]
    pair = ["test.jsonl", hashlib.sha256(b"mine").hexdigest()]
    wanted = hashlib.sha256(json.dumps([pair], separators=(",", ":")).encode()).hexdigest()
    assert content == f"sha256:{wanted}"


def test_the_data_root_may_come_from_the_environment(root, monkeypatch):
    monkeypatch.setenv("HARNESS_DATA", str(root))
    call("pull", "--suite", "toys")
    assert (root / "org/toy/test.jsonl").exists()


@pytest.fixture
def recipes(monkeypatch):
    """Two recipes: one that makes a model of two data sets, and one that trains for tasks."""
    toy = TrainingData(path="org/toy", revision=REVISION, config="triplet")
    every = (toy, TrainingData(path="org/more", revision=REVISION), toy)
    made = SimpleNamespace(data=(toy,), all_data=every)
    opened = {"makes-a-model": made, "for-tasks": SimpleNamespace(plan_task=None)}
    monkeypatch.setattr(module, "open_recipe", opened.__getitem__)
    monkeypatch.setattr(module, "resolve_recipe_chain", lambda text: text)


@pytest.mark.usefixtures("recipes")
def test_the_data_of_a_recipe_is_that_of_its_training_and_its_selection(root, hub, capsys):
    chosen = ("--recipe", "makes-a-model", "--data", root)
    pulled = rows(call("pull", *chosen, "--json"))
    assert [(r["path"], r["revision"], r["state"]) for r in pulled] == [
        ("org/toy", REVISION, "pulled"),
        ("org/more", REVISION, "failed"),
    ]
    assert hub[0] == ("org/toy", "dataset", REVISION)
    listed = rows(call("list", *chosen, "--suite", "toys", "--offline", "--json"))
    assert [(r["path"], r["tasks"], r["state"]) for r in listed] == [
        ("org/toy", ["ToyA", "ToyB", "makes-a-model"], "verified"),
        ("org/other", ["Other"], "missing"),
        ("org/more", ["makes-a-model (selection)"], "missing"),
    ]
    verified = call("verify", *chosen, "--offline")
    assert verified.exit_code == 1
    assert [line.split()[:2] for line in verified.stdout.splitlines() if line[0] != " "] == [
        ["verified", "org/toy"],
        ["wrong", "org/more"],
    ]
    assert f"harness data pull --recipe makes-a-model --data {root}" in verified.stderr
    assert invoke(["data", "pull", "--recipe", "for-tasks", "--data", str(root)]) == 2
    said = capsys.readouterr().err
    assert "'for-tasks' trains on the data of the tasks" in said
    assert "--suite SUITE" in said


def test_training_data_of_one_s_own_is_shown(tmp_path, capsys):
    own = tmp_path / "own.csv"
    own.write_text("query,answer,score\nab,abcd,1\nabcd,ab,0.5\n")
    shown = call("check", "--train-data", own)
    assert shown.stdout.splitlines() == [
        "own.csv: 2 rows, each a scored pair",
        "  columns: query → text, answer → text, score → score",
        "  sentence1: 3.0 characters on average",
        "  sentence2: 3.0 characters on average",
        "  score: the score",
    ]
    assert shown.stderr == ""
    told = json.loads(call("check", "--train-data", own, "--json").stdout)
    assert told.pop("identity")["content"].startswith("sha256:")
    assert told == {
        "schema": 1,
        "name": "own.csv",
        "form": "scored pair",
        "rows": 2,
        "score": "score",
        "characters": {"sentence1": 3.0, "sentence2": 3.0},
        "documents": None,
        "constant": None,
        "negatives": None,
        "notes": [],
    }
    own.write_text("query,answer,score\nab,,1\n")
    assert invoke(["data", "check", "--train-data", str(own)]) == 1
    assert f"{own}:2: the field 'answer' is blank" in capsys.readouterr().err


def test_training_data_with_lists_is_shown(tmp_path, capsys):
    own = tmp_path / "own.jsonl"
    first = '{"query": "ab", "pos": ["abcd", "e"], "neg": ["a", "abc"]}\n'
    own.write_text(f'{first}{{"query": "abcd", "pos": ["ab"], "neg": []}}\n')
    shown = call("check", "--train-data", own)
    assert shown.stdout.splitlines() == [
        "own.jsonl: 2 rows, each a row with any number of negatives",
        "  columns: query → anchor, pos[0] → positive, neg[] → negative",
        "  query: 3.0 characters on average",
        "  positive: 3.0 characters on average",
        "  negatives: 2.0 characters on average",
        "  0 to 2 negatives a row",
        "  --recipe unified-contrastive takes it",
    ]
    assert shown.stderr == ""
    told = json.loads(call("check", "--train-data", own, "--json").stdout)
    identity = told.pop("identity")
    assert identity.pop("content").startswith("sha256:")
    assert identity == {"columns": ["anchor", "positive", "negatives[]"]}
    assert told == {
        "schema": 1,
        "name": "own.jsonl",
        "form": "row with any number of negatives",
        "rows": 2,
        "score": None,
        "characters": {"query": 3.0, "positive": 3.0, "negatives": 2.0},
        "documents": None,
        "constant": None,
        "negatives": [0, 2],
        "notes": [],
    }
    own.write_text('{"query": "ab", "pos": ["abcd"], "neg": ["a", 5]}\n')
    assert invoke(["data", "check", "--train-data", str(own)]) == 1
    assert f"{own}:1: the field 'neg[]' is 5, not a string" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["check", "--train-data", ""], "an empty name"),
        (["check", "--train-data", "nowhere.jsonl"], "No training data 'nowhere.jsonl'"),
        (["list"], "Name a suite"),
        (["pull", "--data", "somewhere"], "Name suites"),
        (["pull", "--suite", "toys"], "--data DIR"),
        (["verify", "--suite", "toys"], "HARNESS_DATA"),
        (["list", "--data", "nowhere"], "not a folder"),
        (["check", "nowhere", "--suite", "toys"], "not a folder"),
        (["check"], "Name a suite"),
        (["list", "--suite", "tois"], "No such suite"),
        (["lst"], "No such command"),
    ],
)
def test_misuse_ends_with_2_and_says_what_to_type(arguments, says, capsys):
    assert invoke(["data", *arguments]) == 2
    said = capsys.readouterr()
    assert says in said.err
    assert "Traceback" not in said.err
