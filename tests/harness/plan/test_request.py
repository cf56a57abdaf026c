from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import MISSING, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bench_hot_path import KEYS

import suites
import tiny
from fakes import artifact, encoding, record, task
from harness.cli import invoke
from harness.core.arguments import collect_options
from harness.core.encoding import LateInteraction, Settings
from harness.core.errors import HarnessError, UsageError
from harness.core.files import Registry, _list_entry_files
from harness.core.types import Column, Size, Suite, SuiteEntry, SuiteOptions
from harness.data.locate import DataSettings
from harness.driver import evaluation
from harness.driver.estimate import estimate_disk_need
from harness.encoder import backbones
from harness.encoder.folder.modules_and_pooling import infer_vector_size
from harness.plan import catalog
from harness.plan.plan import ConfiguredModel, Plan, plan_scores
from harness.plan.request import Request
from harness.plan.resolved_request import ResolvedRequest, list_vector_options
from harness.storage.store import Store
from harness.watch.watch import WatchOptions

# A request with everything that it names found, before anything is looked up


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.folder(tiny.families()["bert"], tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    return {"cache": tmp_path / "cache", "results": tmp_path / "results"}


def asked(*models: object, folders: dict[str, Path], **more: Any) -> Request:
    return Request(
        **{"models": tuple(map(str, models)), "suites": ("mteb:STS12",), "offline": True, **folders, **more}
    )


def test_what_a_request_names_is_found(model: Path, folders: dict[str, Path]) -> None:
    found = ResolvedRequest.resolve_request(asked(model, folders=folders, settings=Settings(max_length=32)))
    (subject,) = found.subjects
    assert (subject.artifact.name, subject.encoding.max_length) == ("tiny", 32)
    assert [task.name for suite in found.suites for task in suite.tasks] == ["STS12"]
    assert (found.recipe, found.results, found.cache) == (None, folders["results"], folders["cache"])
    assert found.data.offline


def test_vectors_and_documents_are_settings_of_a_request(model: Path, folders: dict[str, Path]) -> None:
    given = {"vectors": "fp16", "document_text": "text", "drop_vectors": True, **folders, "offline": True}
    suites_ = ("mteb:SciFact", "mteb:STS12")
    found = ResolvedRequest.resolve_request(Request.parse_options((str(model),), suites_, given))
    assert found.subjects[0].encoding.vectors == "float16"
    tasks = {task.name: task.documents for suite in found.suites for task in suite.tasks}
    assert tasks == {"SciFact": "text", "STS12": "title and text"}
    assert found.request.drop_vectors
    with pytest.raises(UsageError, match="bfloat16 has too few digits"):
        Request.parse_options((str(model),), suites_, {"vectors": "bf16"})
    with pytest.raises(UsageError, match="No document_text is called 'title'"):
        Request.parse_options((str(model),), suites_, {"document_text": "title"})


@pytest.mark.parametrize(
    ("kept", "read"),
    [(None, ()), ("own.csv", ("own.csv",)), (["own.csv", "two.csv"], ("own.csv", "two.csv"))],
)
def test_the_training_data_of_an_older_baseline_is_read(kept: Any, read: tuple[str, ...]) -> None:
    """Baselines of a harness with one `--train-data` keep null or one text, those of today a list."""
    assert Request.parse_options((), ("stdlib",), {"train_data": kept}).train_data == read


def test_the_disk_of_vectors_is_known_before_a_run(
    model: Path, folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the model's configs and the sizes of the tasks: 16 bytes of a hash and the vector for each text."""
    (subject,) = ResolvedRequest.resolve_request(asked(model, folders=folders)).subjects
    width = json.loads((model / "config.json").read_text())["hidden_size"]
    assert infer_vector_size(model, "mean") == width == infer_vector_size(model, "cls+mean") // 2  # type: ignore[operator]
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=70 * 10**9))
    tasks = [replace(task(name), size=Size(texts=texts)) for name, texts in (("A", 24_000_000), ("B", None))]
    for vectors, each in (("float32", 4 * width + 16), ("float16", 2 * width + 16)):
        one = replace(subject, encoding=replace(subject.encoding, vectors=vectors))
        columns = tuple(Column(name=t.name, type=t.type, tasks=(t,)) for t in tasks)
        suite = Suite(name="s", title="s", columns=columns)
        cells = plan_scores([one], [suite], settings=DataSettings(cache=folders["cache"])).cells
        plan = SimpleNamespace(open=cells, trials=())
        prepared = SimpleNamespace(plan=plan, cache=folders["cache"], request=asked(model, folders=folders))
        need = estimate_disk_need(prepared)  # type: ignore[arg-type]
        assert need is not None
        assert (need.bytes, need.unknown) == (24_000_000 * each, ("B",))
    assert need.text.endswith("70.0 GB are free")
    assert replace(need, free=need.bytes - 1).text.startswith("WARNING: vectors of up to ")


def test_the_disk_of_token_vectors_is_that_of_their_own_dimension(
    model: Path, folders: dict[str, Path]
) -> None:
    """A model that a recipe makes will have a projection; its folder is the backbone's yet."""
    (subject,) = ResolvedRequest.resolve_request(asked(model, folders=folders)).subjects
    late = LateInteraction(
        query_length=8,
        document_length=20,
        expansion=True,
        attends_to_expansion=False,
        query_prefix="",
        document_prefix="",
        skiplist=(),
        dimension=8,
    )
    tokens = {"output": "multivector", "pooling": "", "max_length": 20, "vectors": "float16"}
    one = replace(subject, encoding=replace(subject.encoding, late_interaction=late, **tokens))
    columns = (Column(name="A", type="Retrieval", tasks=(replace(task("A"), size=Size(texts=10**8)),)),)
    suite = Suite(name="s", title="s", columns=columns)
    cells = plan_scores([one], [suite], settings=DataSettings(cache=folders["cache"])).cells
    plan = SimpleNamespace(open=cells, trials=())
    prepared = SimpleNamespace(plan=plan, cache=folders["cache"], request=asked(model, folders=folders))
    need = estimate_disk_need(prepared)  # type: ignore[arg-type]
    assert need is not None
    assert need.bytes == 10**8 * (20 * 8 * 2 + 16 + 8)


def test_a_model_that_was_typed_twice_is_one(model: Path, folders: dict[str, Path], tmp_path: Path) -> None:
    link = tmp_path / "other-name"
    link.symlink_to(model)
    found = ResolvedRequest.resolve_request(asked(model, link, model, folders=folders))
    assert len(found.asked) == 3
    assert len(found.subjects) == 1
    assert {one.artifact.name for one in found.asked} == {"tiny"}


def test_a_snapshot_in_the_hub_cache_is_called_as_its_repository(
    model: Path, folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    snapshot = tmp_path / "hub/models--org--base" / "snapshots" / ("a" * 40)
    shutil.copytree(model, snapshot)
    (snapshot.parent.parent / "refs").mkdir()
    (snapshot.parent.parent / "refs/main").write_text(snapshot.name)
    asks = [asked(one, folders=folders, settings=Settings(pooling="mean")) for one in (snapshot, "org/base")]
    by_path, by_name = (ResolvedRequest.resolve_request(one).subjects[0].artifact for one in asks)
    assert by_path.slug == by_name.slug
    assert by_path.name == "org/base"


def test_a_request_may_name_its_models(model: Path, folders: dict[str, Path]) -> None:
    found = ResolvedRequest.resolve_request(asked(model, folders=folders, names={str(model): "step 100"}))
    assert found.asked[0].artifact.name == "step 100"
    assert (
        found.asked[0].artifact.key
        == ResolvedRequest.resolve_request(asked(model, folders=folders)).asked[0].artifact.key
    )


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"models": ()}, "at least one model and one suite"),
        ({"suites": ()}, "needs a suite.\nType --suite mteb, or --tasks STS12"),
        ({"suites": ("stdlib,mteb",)}, "Repeat the option: --suite stdlib --suite mteb."),
        ({"suites": ("mtbe",)}, "mtbe"),
        ({"devices": ("cud",)}, "cud"),
        ({"recipe": "glue-quick"}, "nothing to train for"),
        ({"options": SuiteOptions(tasks=("STS99",))}, "STS99"),
        ({"settings": Settings(prompts={"qeury": "x"})}, "qeury"),
    ],
)
def test_what_cannot_be_used_is_named(
    more: dict[str, Any], told: str, model: Path, folders: dict[str, Path]
) -> None:
    with pytest.raises(UsageError, match=told):
        ResolvedRequest.resolve_request(asked(model, folders=folders, **more))


def test_a_suite_with_labels_needs_a_recipe(model: Path, folders: dict[str, Path]) -> None:
    with pytest.raises(UsageError, match="which recipe"):
        ResolvedRequest.resolve_request(asked(model, folders=folders, suites=("glue",)))
    found = ResolvedRequest.resolve_request(
        asked(model, folders=folders, suites=("glue",), recipe="glue-quick")
    )
    assert found.recipe is not None


def test_offline_means_no_network(folders: dict[str, Path]) -> None:
    with (
        Request.limit_network(asked("x", folders=folders)),
        pytest.raises((HarnessError, OSError)),
        socket.create_connection(("127.0.0.1", 9), timeout=1),
    ):
        pass
    with Request.limit_network(asked("x", folders=folders, offline=False)):
        assert socket.socket().close() is None


# The way from a model's and a suite's names to the keys of all tasks: light, and the plan's own


HEAVY = (
    *("torch", "mteb", "transformers", "datasets", "sklearn", "scipy", "numpy"),
    *("pyarrow", "psutil", "rich", "yaml", "httpx"),
)

TOLD = f"""
{KEYS}
import json
heavy = [name for name in {HEAVY!r} if name in sys.modules]
others = [name for name in sys.modules if name.startswith("suites.") and name.count(".") == 1]
print(json.dumps({{"keys": [c.key for c in asked.cells], "heavy": heavy, "suites": others}}))
"""


def told(*arguments: str, cache: Path) -> dict[str, list[str]]:
    """What a process says of the path: the keys, what it imported, and which files of suites/."""
    environment = {**os.environ, "HARNESS_CACHE": str(cache)}
    command = [sys.executable, "-c", TOLD, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(("suite", "recipe"), [("mteb", ""), ("stdlib", ""), ("glue", "glue-quick")])
def test_the_keys_are_those_of_the_plan_and_nothing_heavy_is_imported(
    suite: str, recipe: str, tmp_path: Path
) -> None:
    cache, results = tmp_path / "cache", tmp_path / "results"
    asked = Request(models=("minilm",), suites=(suite,), recipe=recipe, cache=cache, results=results)
    plan = evaluation.prepare(asked).plan
    found = told("minilm", suite, recipe, cache=cache)
    assert found["keys"] == [cell.key for cell in plan.cells]
    assert found["heavy"] == []


def test_one_suite_opens_no_other(tmp_path: Path) -> None:
    opened = {name.partition(".")[2] for name in told("minilm", "mteb", "", cache=tmp_path)["suites"]}
    assert {name for name in opened if not name.startswith("_")} == {"mteb"}


@pytest.mark.parametrize(
    "registry", [catalog.SUITES, backbones.BACKBONES, catalog.RECIPES], ids=lambda s: s.group
)
def test_every_entry_is_in_the_file_of_its_name(registry: Registry[SuiteEntry]) -> None:
    for entry in registry.iter_entries():
        assert registry.find_entry(entry.name) is entry


@pytest.mark.parametrize("name", ["", "_code", "_mteb", "mteb.x", "..", "os", "mteb_v1", "MTEB"])
def test_a_name_that_is_no_files_opens_nothing(name: str) -> None:
    assert catalog.SUITES.find_entry(name) is None
    with pytest.raises(UsageError, match="suite"):
        catalog.open_suite(name)


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A folder with files that are suites of ours in `ours/`, and a distribution "rival" that brings more."""
    (tmp_path / "ours").mkdir()
    suites.__path__.append(str(tmp_path / "ours"))
    monkeypatch.syspath_prepend(tmp_path)
    for one in (catalog.load_suite_entries, _list_entry_files):
        one.cache_clear()
    yield tmp_path
    suites.__path__.remove(str(tmp_path / "ours"))
    for one in (catalog.load_suite_entries, _list_entry_files):
        one.cache_clear()


def bring(plugins: Path, **files: str) -> None:
    """Install a distribution with a suite in each of these files."""
    info = plugins / "rival-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rival\nVersion: 1\n")
    lines = ["[harness.suites]", *(f"{name} = {name}:SUITE" for name in files)]
    (info / "entry_points.txt").write_text("\n".join(lines))
    for name, text in files.items():
        (plugins / f"{name}.py").write_text(text)


GOOD = """
from harness.core.types import SuiteEntry
SUITE = SuiteEntry(name="good", summary="one that loads", open=lambda argument, options: None)
"""
FAULTS = {
    "unclosed": ("SUITE = (\n", "unclosed.py, line 1, does not load: SyntaxError: '(' was never closed"),
    "absent": (
        "import os\nimport nowhere\n",
        "absent.py, line 2, does not load: ModuleNotFoundError: No mod",
    ),
    "wrong": (GOOD.replace("summary", "sumary"), "wrong.py, line 3, does not load: TypeError: SuiteEntry"),
    "empty": ("", "empty.py does not load: AttributeError: module 'empty' has no attribute 'SUITE'"),
    "other": ("SUITE = 3\n", "other:SUITE is not a SuiteEntry of harness.suites."),
    "taken": ("from suites.mteb import SUITE\n", "taken:SUITE adds 'mteb' to harness.suites, a name that is"),
}
"""Files of suites with a fault each, and its line."""


def test_an_entry_that_does_not_load_is_one_line_and_the_others_are_listed(
    plugins: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (plugins / "ours" / "broken.py").write_text("x = 1\nfor y in x\n")
    bring(plugins, fine=GOOD, **{name: text for name, (text, _) in FAULTS.items()})
    assert invoke(["list", "suites"]) == 0
    shown = capsys.readouterr()
    assert "one that loads" in shown.out
    assert "MTEB(eng, v2)" in shown.out
    lines = shown.err.splitlines()
    own = f"Warning: {plugins / 'ours' / 'broken.py'}, line 2, does not load: SyntaxError: expected ':'"
    assert own in lines
    for _, told in FAULTS.values():
        assert sum(told in line for line in lines) == 1, told
    assert "Traceback" not in shown.err
    assert catalog.open_suite("mteb").name == "mteb"
    with pytest.raises(UsageError) as wanted:
        catalog.open_suite("broken")
    assert str(wanted.value) == own.removeprefix("Warning: ")
    with pytest.raises(UsageError, match="No suite is called 'nanobier'") as unknown:
        catalog.open_suite("nanobier")
    assert "Did you mean nanobeir?" in str(unknown.value)
    assert FAULTS["unclosed"][1] in str(unknown.value)


def test_a_model_that_a_broken_family_may_hold_is_not_loaded_as_another(
    plugins: Path,
) -> None:
    backbones.__path__.append(str(plugins / "ours"))
    (plugins / "ours" / "aaa.py").write_text("BACKBONE = (\n")
    try:
        assert backbones.find_family({"model_type": "bert"}) is not None
        with pytest.raises(UsageError, match=r"aaa\.py, line 1, does not load"):
            backbones.find_family({"model_type": "mine"})
    finally:
        backbones.__path__.remove(str(plugins / "ours"))


@pytest.mark.parametrize("registry", [catalog.SUITES, backbones.BACKBONES, catalog.RECIPES])
def test_every_entry_of_ours_loads(registry: Registry[SuiteEntry]) -> None:
    assert registry.collect_failures() == []


def test_weights_that_are_not_the_published_ones_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness.core.errors import ModelError
    from harness.encoder.backbones import minilm
    from harness.plan.models import ModelOptions, resolve_model

    monkeypatch.setattr(minilm, "BACKBONE", replace(minilm.BACKBONE, weights="0" * 64))
    with pytest.raises(ModelError, match="not the official ones of minilm"):
        resolve_model("minilm", Settings(), ModelOptions())


def test_data_that_is_gone_is_no_matter_where_the_record_is_there(tmp_path: Path) -> None:
    lost = replace(task("Lost"), data=replace(task().data, path="org/name", revision="r", content=""))
    suite = Suite(name="s", title="s", columns=(Column(name="Lost", type="STS", tasks=(lost,)),))
    settings = DataSettings(offline=True, cache=tmp_path)
    subject = ConfiguredModel(artifact=artifact(tmp_path), encoding=encoding())
    store = Store(tmp_path / "results")
    (cell,) = plan_scores([subject], [suite], settings=settings).cells
    before = Plan.make([subject], [suite], store=store, settings=settings)
    assert [c.key for c in before.impossible] == [cell.key]
    store.put(subject.artifact.slug, record(lost, 0.5, model=subject.artifact))
    after = Plan.make([subject], [suite], store=store, settings=settings)
    assert (after.impossible, after.open, after.jobs) == ((), (), ())
    assert [c.key for c in after.cells if c.record is not None] == [cell.key]


def test_options_that_nobody_types_are_the_defaults_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    from click import Command

    from harness.commands import options

    for name in ("RESULTS", "CACHE", "DATA"):
        monkeypatch.delenv(f"HARNESS_{name}", raising=False)
    given: dict[str, object] = {}
    command = options.evaluation(Command("any", callback=lambda **typed: given.update(typed)))
    command.main([], standalone_mode=False)
    assert Request.parse_options((), ("stdlib",), given) == Request(models=(), suites=("stdlib",))


def test_every_default_has_its_form() -> None:
    """So that a value that is the default need not be read."""
    for argument in collect_options(WatchOptions).values():
        if argument.default is not MISSING:
            value, default = argument.validate_value(argument.default), argument.default
            assert (type(value), value) == (type(default), default), argument.name


def test_the_former_default_of_vectors_is_no_option_that_was_given() -> None:
    """Baselines of before name every option, and are checked with recipes, too."""
    assert list_vector_options(Settings(vectors="float32")) == list_vector_options(Settings()) == []
    assert list_vector_options(Settings(vectors="float16", query_length=8)) == ["--query-length", "--vectors"]
