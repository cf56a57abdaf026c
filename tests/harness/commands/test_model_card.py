"""`harness models card` and `push`: what is said of a model, and what a hub receives and nothing more."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from huggingface_hub import EvalResult, ModelCard
from huggingface_hub.repocard_data import model_index_to_eval_results

import fakes
import site_data
import tiny
from fake_hub import TOKEN, FakeHub
from harness.cli import invoke
from harness.commands import run, train
from harness.core.keys import ParentPart
from harness.plan import catalog
from harness.training.model_store import ModelStore

REPOSITORY = "acme/tiny-contrast"
MADE = fakes.lineage(
    parents=(ParentPart(name="acme/tiny", artifact="a" * 64, revision="c" * 40),),
    changed={"batch": 4},
    assumed=("one query a head",),
    selected_on=("STSBenchmark",),
)


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.folder(tiny.families()["bert"], tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture
def results(tmp_path: Path, tiny_folder: Path) -> Path:
    """A trained model with what must not be sent beside it, and its scores on two tasks."""
    folder, store = tmp_path / "results", ModelStore(tmp_path / "results")
    work = store.start_training(MADE.key, name="tiny-contrast", lineage=MADE, steps=4)
    (work / "log.jsonl").write_text('{"step": 1, "loss": 1.0}\n')
    model = shutil.copytree(tiny_folder, work / "model")
    (model / "LICENSE").write_text("Take it.")
    (model / "LICENSE.pem").write_text("secret")
    (model / "README.md").write_text("---\nlicense: mit\nlanguage: en\n---\nOurs.\n")
    for leftover in ("optimizer.pt", "training_args.bin", "train.py", ".env"):
        (model / leftover).write_text("secret")
    store.put(model, fakes.document(model, MADE, name="tiny-contrast"), f"tiny-contrast-{MADE.key[:12]}")
    scores = {"STSBenchmark": 0.75, "STS17": 0.5}
    tasks = {name: catalog.open_suite(f"mteb:{name}").tasks[0] for name in scores}
    artifact = site_data.replace(site_data.measured_model("tiny-contrast"), key=MADE.key)
    records = [site_data.scored(artifact, tasks[name], score) for name, score in scores.items()]
    site_data.put(folder, artifact, [one.model_copy(update={"lineage": MADE}) for one in records])
    return folder


def card(results: Path, capsys: pytest.CaptureFixture[str], *words: str) -> ModelCard:
    assert invoke(["models", "card", "tiny-contrast", *words, "--results", str(results)]) == 0
    return ModelCard(capsys.readouterr().out)


def test_the_model_index_goes_round(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = card(results, capsys)
    text = str(made).split("---")[1]
    name, read = model_index_to_eval_results(yaml.safe_load(text)["model-index"])
    tasks = {name: catalog.open_suite(f"mteb:{name}").tasks[0] for name in ("STS17", "STSBenchmark")}
    expected = [
        EvalResult(
            task_type="STS",
            dataset_type=tasks[task].data.path,
            dataset_name=tasks[task].data.path,
            dataset_config=subset,
            dataset_split="test",
            dataset_revision=tasks[task].data.revision,
            metric_type="cosine_spearman",
            metric_name=f"{task}: cosine_spearman",
            metric_value=0.5,
        )
        for task in ("STS17",)  # STSBenchmark chose the checkpoint.
        for subset in tasks[task].subsets
    ]
    assert name == "tiny-contrast"
    assert sorted(read, key=str) == sorted(expected, key=str)
    assert len(read) == 11
    data = made.data.to_dict()
    assert (data["license"], data["language"], data["base_model"]) == ("mit", "en", ["acme/tiny"])
    assert (data["datasets"], data["library_name"]) == (["org/pairs"], "transformers")
    assert "contrast" in data["tags"]


def test_the_text_has_lineage_conventions_and_commands_that_exist(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = card(results, capsys).text
    for expected in (
        "| STS17 | STS | cosine_spearman | 50.00 |  |",
        "| STSBenchmark | STS | cosine_spearman | 75.00 | chose |",
        "that of a task is the mean over its splits and subsets",
        "No mean over tasks is stated",
        "rate 5e-05, batch 4",
        "path org/pairs, revision rrrr",
        "one query a head",
        "checkpoint chosen by STSBenchmark: scores there are biased",
    ):
        assert expected in text
    commands = [shlex.split(one) for one in text.partition("```bash\n")[2].partition("```")[0].splitlines()]
    assert [words[:2] for words in commands] == [["harness", "train"], ["harness", "run"], ["harness", "run"]]
    for _, name, *words in commands:
        # An option that does not exist, or with a wrong value, raises.
        {"train": train, "run": run}[name].command.make_context(name, words)
    assert ["--model", f"acme/tiny@{'c' * 40}", "--recipe", "contrast"] == commands[0][2:6]
    assert commands[0][6:] == ["--seed", "42", "--set", "batch=4"]
    assert commands[1][4:6] == ["--suite", "mteb:STSBenchmark"]
    assert str(results) not in text


def test_a_suite_has_its_means_with_what_they_lack(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = card(results, capsys, "--suite", "mteb:STSBenchmark").text
    assert "mean over tasks 75.00 (1 of 1)" in text
    assert "STS17" not in text


def test_a_card_of_trained_scores_has_the_papers_rule_and_the_recipe(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site_data.standard_records(tmp_path)
    assert invoke(["models", "card", "acme/tiny-base", "--suite", "glue", "--results", str(tmp_path)]) == 0
    text = ModelCard(capsys.readouterr().out).text
    assert "mean over tasks 62.50 (2 of 8 scored)" in text
    assert "| score |\n" in text
    assert "lists each of these, from 0 to 1.\n" in text
    assert f"GLUE, a task's score: {catalog.open_suite('glue').conventions['optibert'].says}" in text
    assert "--suite glue --tasks CoLA,RTE --recipe glue-optibert --set fresh_seeds=3" in text


def test_a_card_is_written_and_a_model_without_anything_refused(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = str(card(results, capsys))
    file = tmp_path / "README.md"
    assert invoke(["models", "card", "tiny-contrast", "--output", str(file), "--results", str(results)]) == 0
    assert file.read_text() == said
    # Not a digit of a key: a key has six or more.
    for text in ("nothing-here", MADE.key[0]):
        assert invoke(["models", "card", text, "--results", str(results)]) == 2


def test_a_score_on_other_data_or_on_texts_of_the_training_is_marked_and_not_published(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contents = {
        # The hash that harness/results/revisions.csv proves to be the revision of mteb.
        "Banking77Classification": "sha256:bb533c0f178aad331d8353221e8dda25d64d5d29d22fe5f4d5628e2d3db36c5a",
        "STSBenchmark": "sha256:1",
        "STS17": None,
    }
    artifact = site_data.measured_model("tiny-contrast")
    records = []
    for name, content in contents.items():
        task = catalog.open_suite(f"mteb:{name}").tasks[0]
        if content:
            task = site_data.replace(task, data=site_data.replace(task.data, revision=None, content=content))
        records.append(site_data.scored(artifact, task, 0.75))
    known = {**records[2].provenance, "texts": 2552, "texts_trained_on": 13}
    records[2] = records[2].model_copy(update={"provenance": known})
    site_data.put(tmp_path, artifact, records)
    made = card(tmp_path, capsys)
    assert "| STSBenchmark | STS | cosine_spearman | 75.00 | data not proven |" in made.text
    assert "| STS17 | STS | cosine_spearman | 75.00 | trained on 13 of its 2,552 texts |" in made.text
    (read,) = made.data.eval_results
    assert (read.dataset_type, read.dataset_revision) == (
        "mteb/banking77",
        "0fd18e25b25c072e09e0d92ab615fda904d66300",
    )


def test_a_card_tells_the_folders_of_an_average_apart(
    tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parents = tuple(ParentPart(name=name, artifact=name * 64) for name in "ab")
    model = shutil.copytree(tiny_folder, tmp_path / "model")
    fakes.train(model, fakes.lineage(recipe="average", parents=parents))
    assert invoke(["models", "card", str(model)]) == 0
    text = capsys.readouterr().out
    assert "harness models average FOLDER_1 FOLDER_2 --output DIR\n" in text
    assert "FOLDER_2: the folder of b, by its path on your machine." in text


def test_a_card_says_what_a_training_did_in_place_of_its_settings(
    tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = fakes.lineage(data=({"path": "org/pairs", "content": "sha256:1"},))
    model = shutil.copytree(tiny_folder, tmp_path / "model")
    fakes.train(model, made, training={"notes": ["trained in float32: a CPU has no float16"]})
    assert invoke(["models", "card", str(model)]) == 0
    text = capsys.readouterr().out
    assert "- training: trained in float32: a CPU has no float16\n" in text
    # Its parent is neither of the hub nor of the catalog: a folder, whose name opens nothing.
    assert "harness train --model FOLDER --recipe contrast --seed 42 --data DIR\n" in text
    assert "FOLDER: the folder of tiny, by its path on your machine." in text


def test_a_card_without_scores_has_the_models_name(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(results / "records")
    assert invoke(["models", "card", "tiny-contrast", "--results", str(results)]) == 0
    said = capsys.readouterr()
    assert ModelCard(said.out).text.startswith("\n# tiny-contrast\n")
    assert "no scores, as none is recorded: harness run --model tiny-contrast --suite mteb" in said.err
    (folder,) = (results / "models").glob("tiny-contrast-*")
    # A folder of the present one needs no slash, and a short name is not taken for a key.
    copy = shutil.copytree(folder, tmp_path / MADE.key[0])
    monkeypatch.chdir(tmp_path)
    assert invoke(["models", "card", copy.name, "--results", str(results)]) == 0
    assert "\n# tiny-contrast\n" in capsys.readouterr().out
    # Nor is its own card added again.
    (copy / "model.json").unlink()
    (copy / "README.md").write_text(str(card(results, capsys)))
    copy.rename("checkpoint")
    assert invoke(["models", "card", "checkpoint"]) == 0
    text = ModelCard(capsys.readouterr().out).text
    assert text.startswith("\n# checkpoint\n")
    assert "Ours." not in text


def test_a_card_by_the_name_of_a_folder_says_what_to_type_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = site_data.replace(site_data.measured_model("last-night"), source="local")
    task = catalog.open_suite("mteb:STSBenchmark").tasks[0]
    own = site_data.replace(task, data=site_data.replace(task.data, revision=None, content="sha256:1"))
    site_data.put(tmp_path, model, [site_data.scored(model, own, 0.5)])
    assert invoke(["models", "card", "last-night", "--results", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert "harness run --model FOLDER --suite mteb:STSBenchmark " in said.out
    assert " --data DIR " in said.out
    assert "FOLDER: the folder of last-night, by its path on your machine." in said.out
    assert "licence and language: name the folder in place of last-night." in said.err


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    server = FakeHub()
    yield server
    server.close()


def push(hub: FakeHub, results: Path, *words: str, token: str = TOKEN) -> tuple[int, str, str]:
    """The command in a process of its own, as the hub's address is read when huggingface_hub is imported."""
    own = {"HF_ENDPOINT": hub.url, "HF_TOKEN": token, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
    own |= {"HF_HOME": str(results.parent / "hf"), "HF_HUB_DISABLE_TELEMETRY": "1"}
    asked = ["models", "push", "tiny-contrast", REPOSITORY, *words, "--results", str(results)]
    done = subprocess.run(
        [sys.executable, "-m", "harness", *asked],
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


OWN = {
    *("README.md", "LICENSE", "model.json", ".eval_results/encoder-harness.yaml"),
    *("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"),
}


def test_a_hub_receives_the_models_own_files_and_nothing_more(
    hub: FakeHub, results: Path, tiny_folder: Path
) -> None:
    code, out, err = push(hub, results, "--private")
    assert code == 0, err
    assert out.splitlines()[-1] == f"{hub.url}/acme/tiny-contrast"
    assert hub.created == [{"name": "tiny-contrast", "organization": "acme", "visibility": "private"}]
    assert hub.files.keys() == OWN
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        assert hub.files[name] == (tiny_folder / name).read_bytes()
    assert hub.validated
    assert {one.encode() for one in hub.validated} == {hub.files["README.md"]}
    assert ModelCard(hub.validated[0]).data.model_name == REPOSITORY
    entries = yaml.safe_load(hub.files[".eval_results/encoder-harness.yaml"])
    assert len(entries) == 11
    whole = next(one for one in entries if one["dataset"]["task_id"] == "STS17_en-en_test")
    assert (whole["dataset"]["id"], whole["value"]) == ("mteb/sts17-crosslingual-sts", 50.0)
    assert hub.files["README.md"].endswith(b"## From the model's README\n\nOurs.\n")
    assert b"secret" not in b"".join(hub.files.values())
    assert all(one.split()[0] in ("POST", "PUT") for one in hub.requests)


def test_a_dry_run_sends_nothing(hub: FakeHub, results: Path) -> None:
    code, out, err = push(hub, results, "--dry-run", token="")
    assert code == 0, err
    *files, last = out.splitlines()
    assert {line.split("\t")[0] for line in files} == OWN
    assert all(line.split("\t")[1].endswith("B") for line in files)
    assert last == f"{len(OWN)} files for {REPOSITORY}; nothing was sent."
    assert hub.requests == []


def test_scores_on_data_that_is_not_of_the_hub_are_in_the_card_alone(hub: FakeHub, results: Path) -> None:
    artifact = site_data.replace(site_data.measured_model("tiny-contrast"), key=MADE.key)
    task = next(one for one in catalog.open_suite("stdlib").tasks if one.type == "Clustering")
    record = site_data.scored(artifact, task, 0.5).model_copy(update={"lineage": MADE})
    assert "path" not in record.identity["data"]
    site_data.put(results, artifact, [record])
    code, _, err = push(hub, results)
    assert code == 0, err
    assert len(yaml.safe_load(hub.files[".eval_results/encoder-harness.yaml"])) == 11
    assert task.name.encode() in hub.files["README.md"]


def test_what_stops_a_push_is_said_in_a_line(hub: FakeHub, results: Path) -> None:
    code, _, err = push(hub, results, token="")
    assert (code, hub.requests) == (2, [])
    assert "No token found." in err
    assert "hf auth login" in err
    code, _, err = push(hub, results, token="hf_may_read")
    assert code == 2
    assert f"The token may not write to {REPOSITORY} (HTTP 403)." in err
    hub.refuses = "license is unknown"
    code, _, err = push(hub, results)
    assert code == 2
    assert f"{REPOSITORY} is refused: Invalid metadata in README.md." in err
    assert "license is unknown" in err
    assert hub.files == {}
    hub.close()
    code, _, err = push(hub, results)
    assert code == 1
    assert "The hub cannot be reached" in err
