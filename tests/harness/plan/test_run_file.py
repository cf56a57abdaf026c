"""A run as a TOML file: written complete, read again as the same run, and refused where it is wrong."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import glue_data
import tiny
from harness.cli import invoke
from harness.core.arguments import collect_options, replace_settings
from harness.core.encoding import Settings
from harness.driver import evaluation
from harness.plan import catalog
from harness.plan.request import Request
from harness.plan.resolved_request import collect_settings
from harness.plan.run_file import format_run, read_run

BARE = Request(models=(), suites=())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.folder(tiny.families()["bert"], tmp_path_factory.mktemp("models") / "tiny")


def read(path: Path, text: str) -> Request:
    path.write_text(text, encoding="utf-8")
    return read_run(path, BARE, set())


# Every character that a text may have; surrogates are no text in UTF-8.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(texts=st.dictionaries(TEXTS, TEXTS, max_size=4), number=st.floats(0, 1e9))
def test_any_text_and_number_is_the_same_after_a_file(texts: dict[str, str], number: float) -> None:
    hostile = {'a"b\\c': "'''\n\r\t\x00\x7f\x85\u2028😀", "": "", "a.b": "[x]\n# y = 1", **texts}
    request = replace(BARE, names=hostile, settings=Settings(prompts=hostile), keep_vectors=number)
    content = tomllib.loads(format_run(request))
    assert content["names"] == content["prompts"] == hostile
    assert content["keep_vectors"] == number


def test_a_file_names_every_field_and_gives_the_same_request(tmp_path: Path) -> None:
    request = replace(
        BARE,
        models=("a=b", "ü/é"),
        suites=("mteb:STS12",),
        data=tmp_path,
        devices=("cpu",),
        seeds=3,
        gate=False,
        allow=("tensors=*",),
        settings=Settings(pooling="cls", normalize=False, max_length=8),
    )
    text = format_run(request)
    for name in collect_options(Request):
        assert {"models": "model", "suites": "suite"}.get(name, name) in text
    assert read(tmp_path / "run.toml", text) == request.validate_fields()


@pytest.mark.parametrize("name", [*catalog.load_recipe_entries()])
def test_the_complete_settings_of_a_recipe_are_its_settings(name: str) -> None:
    entry = catalog.find_recipe_entry(name)
    for variant, settings in entry.settings.items():
        text = f"{name}:{variant}" if variant else name
        request = replace(BARE, recipe=(text,))
        complete = collect_settings(request)
        if len(request.recipe_chains[0].split("+")) == 1:
            content = tomllib.loads(format_run(replace(BARE, recipe=(text,))))["recipe_settings"]
            assert replace_settings(settings, content, of=text) == settings
        assert complete


def test_settings_of_several_recipes_are_told_apart(tmp_path: Path) -> None:
    recipes = replace(
        BARE,
        recipe=("cde", "glue-quick"),
        recipe_settings={"cde.epochs": "2", "fresh_seeds": 2},
        sweep={"cde.learning_rate": ("1e-5", "2e-5"), "cde.batch_size": (64, 128)},
        samples=3,
        sample_seed=7,
    )
    stages = recipes.recipe_chains[0].split("+")
    content = tomllib.loads(format_run(recipes))
    assert {content["recipe_settings"][f"{stage}.epochs"] for stage in stages} == {2}
    assert (content["samples"], content["sample_seed"], len(content["sweep"])) == (3, 7, 2)
    assert content["recipe_settings"]["glue-quick.fresh_seeds"] == 2
    swept = {f"{stages[-1]}.{name}" for name in ("learning_rate", "batch_size")}
    assert not swept & content["recipe_settings"].keys()
    again = read(tmp_path / "run.toml", format_run(recipes))
    assert tomllib.loads(format_run(again)) == content


@pytest.mark.parametrize(
    ("recipe", "table", "given", "expected"),
    [
        (
            "dpr",
            "[recipe_settings]\nbatch_size = 8",
            {"recipe_settings": {"dpr.batch_size": 64}},
            {"batch_size": 64},
        ),
        (
            "dpr",
            'recipe_settings = ["max_steps=4"]',
            {"recipe_settings": {"batch_size": 64}},
            {"max_steps": "4", "batch_size": 64},
        ),
        (
            "dpr",
            "[recipe_settings]\nlearning_rate = 1e-5\nbatch_size = 8",
            {"sweep": {"learning_rate": ("1e-5", "2e-5")}},
            {"batch_size": 8},
        ),
    ],
)
def test_what_is_typed_or_swept_goes_before_the_file(
    recipe: str, table: str, given: dict[str, Any], expected: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "run.toml"
    path.write_text(f'recipe = "{recipe}"\n{table}')
    settings = read_run(path, replace(BARE, **given), {*given}).recipe_settings
    assert settings == {f"{recipe}.{name}": value for name, value in expected.items()}


def test_a_written_setting_of_several_stages_is_typed_anew(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(format_run(replace(BARE, recipe=("cde",))))
    again = read_run(path, replace(BARE, recipe_settings={"batch_size": "64"}), {"recipe_settings"})
    sizes = [one for name, one in collect_settings(again).items() if name.endswith(".batch_size")]
    assert {*sizes} == {64}


@pytest.fixture
def typed(model: Path, tmp_path: Path) -> list[str]:
    data = glue_data.data_root(tmp_path / "data")
    folders = {"data": data, "results": tmp_path / "results", "cache": tmp_path / "cache"}
    options = [text for name, path in folders.items() for text in (f"--{name}", str(path))]
    recipe = ["--recipe", "glue-neobert", "--set", "fresh_seeds=2", "--tasks", "RTE,CoLA"]
    return ["run", "--model", f"mine={model}", "--suite", "glue", "--offline", *recipe, *options]


def test_a_written_file_gives_the_same_plan(typed: list[str], tmp_path: Path) -> None:
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    assert invoke([*typed, "--dry-run", "--save", str(first)]) == 0
    assert invoke(["run", "--config", str(first), "--dry-run", "--save", str(second)]) == 0
    assert first.read_text() == second.read_text()
    by_options = Request.parse_options(
        (typed[2],),
        ("glue",),
        {
            "recipe": ["glue-neobert"],
            "changes": ["fresh_seeds=2"],
            "tasks": "RTE,CoLA",
            "offline": True,
            **{name: tmp_path / name for name in ("data", "results", "cache")},
        },
    )
    plans = [evaluation.prepare(one).plan for one in (by_options, read_run(first, BARE, set()))]
    keys = [({cell.key for cell in plan.cells}, {job.key for job in plan.jobs}) for plan in plans]
    assert keys[0] == keys[1]
    assert len(keys[0][1]) > 80


def test_options_go_before_the_file(
    typed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first.toml", tmp_path / "second.toml"
    assert invoke([*typed, "--dry-run", "--save", str(first)]) == 0
    monkeypatch.setenv("HARNESS_CACHE", str(tmp_path / "elsewhere"))
    more = ["--tasks", "RTE", "--set", "transfer=false", "--seed", "7", "--threads", "1"]
    assert invoke(["run", "--config", str(first), *more, "--dry-run", "--save", str(second)]) == 0
    before, after = (tomllib.loads(path.read_text()) for path in (first, second))
    settings = after["recipe_settings"]
    assert (settings["fresh_seeds"], settings["transfer"]) == (2, False)
    changed = {"tasks": ["RTE"], "seed": 7, "threads": 1, "cache": str(tmp_path / "elsewhere")}
    assert {name: after[name] for name in changed} == changed
    same = before.keys() - changed.keys() - {"recipe_settings"}
    assert {name: before[name] for name in same} == {name: after[name] for name in same}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('models = ["minilm"]', "Did you mean model?"),
        ("max_lenght = 3", "is called 'max_lenght'.\nDid you mean max_length?"),
        ("learning_rate = 3e-5", "below [recipe_settings]"),
        ("seeds = 'three'", "seeds is 'three', and must be a whole number from 1 to 1000."),
        ("similarity = 'cosin'", "Did you mean cosine?"),
        ("seeds = ", "is not valid TOML"),
        ('results = "a\\u0000b"', "results is 'a\\x00b', and has control characters."),
        ('data = ""', "data is '', and must be a path"),
        (f"{'a' * 100_000} = 1", f"is called '{'a' * 200}…'"),
        ("seeds = 3", "needs at least one model and one suite"),
    ],
)
def test_a_wrong_file_is_one_clear_error(text: str, message: str, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "run.toml"
    path.write_text(text)
    assert invoke(["run", "--config", str(path)]) == 2
    assert message in capsys.readouterr().err
    assert invoke(["run", "--config", str(tmp_path / "none.toml")]) == 2
    assert "--save FILE writes one" in capsys.readouterr().err
