"""The evaluation of models that recipes trained: its settings, what wins over them, keys, and records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fakes
import harness
import late_models
import tiny
import two_stage_models
from harness.cli import invoke
from harness.core.encoding import Encoding, EvaluationSettings, Settings
from harness.core.errors import UsageError
from harness.core.keys import Lineage, build_evaluation_identity
from harness.core.types import SIDES, Task
from harness.encoder.folder.description import describe
from harness.encoder.resolved_encoding import resolve_encoding
from harness.jobs.context import JobContext, WorkerLimits
from harness.plan import catalog
from harness.plan.catalog import EvaluationChoice
from harness.plan.request import Request
from harness.results.results import EncodingCondition, extract_condition
from stopped_trainings import train_in_this_process

GPU = EvaluationChoice(name="recipe", devices=("cuda:0",))

UNIFIED = EvaluationSettings(max_length=1024, dtype="float16")
SCRIPT = EvaluationSettings(
    max_length=510, task_query_lengths=False, document_lengths={"MultiLongDocRetrieval": 8192}
)
PYLATE = EvaluationSettings(max_length=300, document_lengths={"MultiLongDocRetrieval": 8192})
CONTEXTUAL = EvaluationSettings(max_length=512, dtype="float16")
CONTEXTUAL_AUTHORS = EvaluationSettings(max_length=512, dtype="bfloat16", normalized_types=("Clustering",))

TABLE = {
    "unified-contrastive": UNIFIED,
    "unified-contrastive:job": UNIFIED,
    "unified-contrastive:code": UNIFIED,
    "cde-batching": CONTEXTUAL,
    "cde-batching:authors": CONTEXTUAL_AUTHORS,
    "cde:unsupervised": replace(CONTEXTUAL, max_length=None),
    "cde:supervised": replace(CONTEXTUAL, max_length=None),
    "cde:supervised-authors": replace(CONTEXTUAL_AUTHORS, max_length=None),
    "colbert": SCRIPT,
    "colbert:contrastive": PYLATE,
    **dict.fromkeys(("simcse", "dpr", "dpr:authors", "mldr", "efficient-full", "efficient-lora:code"), None),
}
"""Typed from the papers and the authors' scripts; None for the model's own settings."""


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backbone with 2,048 positions."""
    target = tmp_path_factory.mktemp("long") / "long"
    return tiny.folder(tiny.families()["bert"], target, max_position_embeddings=2048)


def configure(
    folder: Path, recipe: str, choice: EvaluationChoice = GPU, **settings: Any
) -> tuple[Encoding, str]:
    """The encoding of a folder as if a recipe had trained it, and the sentence on its evaluation."""
    name, _, variant = recipe.partition(":")
    lineage = fakes.lineage(recipe=name, variant=variant)
    return choice.configure_encoding(describe(folder), Settings(**settings), lineage, folder)


def own(folder: Path, **settings: Any) -> Encoding:
    return resolve_encoding(describe(folder), Settings(**settings))


def retrieval(name: str, query_length: int | None = None) -> Task:
    return replace(fakes.task(name), type="Retrieval", roles=SIDES, query_length=query_length)


def identity(encoding: Encoding, task: Task) -> dict[str, Any]:
    return build_evaluation_identity(fakes.artifact(Path()), task, encoding, seed=42)


@pytest.mark.parametrize("recipe", TABLE)
def test_a_recipe_evaluates_as_its_source_does(recipe: str) -> None:
    name, _, variant = recipe.partition(":")
    assert EvaluationChoice(name="recipe")._find_evaluation(name, variant) == TABLE[recipe]


def test_every_evaluation_is_one_of_a_variant_or_named_in_the_documentation() -> None:
    text = (Path(__file__).parents[3] / "docs/training.md").read_text()
    for entry in catalog.load_recipe_entries().values():
        for name in entry.evaluations:
            assert name in entry.settings or f"| `{name}`" in text, (entry.name, name)


def test_the_settings_of_a_recipe_hold_where_a_user_asks_for_none(long: Path) -> None:
    encoding, sentence = configure(long, "unified-contrastive")
    assert encoding == replace(own(long), max_length=1024, dtype="float16")
    assert "unified-contrastive: 1,024 tokens, float16" in sentence
    assert "--evaluation own" in sentence
    typed, sentence = configure(
        long, "unified-contrastive", max_length=100, dtype="float32", prompts={"query": "q: "}
    )
    assert typed == own(long, max_length=100, dtype="float32", prompts={"query": "q: "})
    assert "1,024" not in sentence
    choice = replace(GPU, name="own")
    encoding, sentence = configure(long, "unified-contrastive", choice)
    assert encoding == own(long)
    assert "the model's own settings" in sentence
    for recipe in ("simcse", "of-no-plugin-that-is-here"):
        assert configure(long, recipe) == (own(long), "")
    description = describe(long)
    assert GPU.configure_encoding(description, Settings(), None, long) == (own(long), "")


def test_a_length_is_no_longer_than_the_positions(tmp_path: Path) -> None:
    short = tiny.folder(tiny.families()["bert"], tmp_path / "short")
    encoding, sentence = configure(short, "unified-contrastive")
    assert encoding.max_length == own(short).max_length == 64
    assert "64 tokens" in sentence


def test_prompts_of_an_evaluation_take_the_place_of_the_model_s(long: Path, tmp_path: Path) -> None:
    description = replace(describe(long), prompts={"query": "old "}, default_prompt_name="query")
    lineage, choice = fakes.lineage(recipe="unified-contrastive"), replace(GPU, name="released")
    encoding, sentence = choice.configure_encoding(description, Settings(), lineage, long)
    assert (encoding.prompts, encoding.default_prompt) == ((), None)
    assert "no prompts as in released" in sentence
    typed = Settings(prompts={"query": "new "})
    encoding, _ = choice.configure_encoding(description, typed, lineage, long)
    assert encoding.prompts == (("query", "new "),)


def test_what_is_not_run_in_half_precision_is_run_in_float32(
    long: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for devices in (("cpu",), ("cuda:0", "cpu"), ()):
        monkeypatch.setattr("harness.plan.catalog.default_devices", lambda: ("cpu",))
        encoding, sentence = configure(long, "unified-contrastive", replace(GPU, devices=devices))
        assert (encoding.dtype, encoding.max_length) == ("float32", 1024)
        assert "a CPU has no float16" in sentence
    cluster = replace(GPU, devices=(), executor="slurm")
    assert configure(long, "unified-contrastive", cluster)[0].dtype == "float16"
    cluster = replace(cluster, devices=("cpu",))
    assert configure(long, "unified-contrastive", cluster)[0].dtype == "float32"
    on_cpu = replace(GPU, devices=("cpu",))
    assert configure(long, "cde-batching:authors", on_cpu)[0].dtype == "bfloat16"
    (tmp_path / "config.json").write_text('{"model_type": "deberta-v2"}')
    lineage = fakes.lineage(recipe="cde-batching", variant="authors")
    encoding, sentence = GPU.configure_encoding(describe(long), Settings(), lineage, tmp_path)
    assert (encoding.dtype, encoding.normalized_types) == ("float32", ("Clustering",))
    assert "overflow" in sentence
    # What a user asks for is refused where it is not run, and never changed.
    assert configure(long, "unified-contrastive", on_cpu, dtype="float16")[0].dtype == "float16"


def test_an_evaluation_that_no_model_of_the_run_has_is_refused(long: Path) -> None:
    unified, simcse = fakes.lineage(recipe="unified-contrastive"), fakes.lineage(recipe="simcse")
    with pytest.raises(UsageError, match="evaluation of unified-contrastive and simcse") as refused:
        replace(GPU, name="realeased").check_name((unified, simcse))
    assert "released" in str(refused.value.hint)
    released = replace(GPU, name="released")
    with pytest.raises(UsageError, match="evaluation of simcse"):
        released.check_name((simcse,))
    # A recipe without that name keeps its own evaluation.
    released.check_name((unified, simcse))
    assert configure(long, "simcse", released) == configure(long, "simcse")
    assert configure(long, "cde-batching", released) == configure(long, "cde-batching")


def test_mldr_has_longer_documents_under_the_key_of_the_typed_length(tmp_path: Path) -> None:
    folder = late_models.save(tmp_path / "late", "modernbert")
    limit = describe(folder).position_limit
    assert limit == 64
    encoding, sentence = configure(folder, "colbert")
    assert "64 in MultiLongDocRetrieval" in sentence
    encoding = replace(encoding, document_lengths=(("MultiLongDocRetrieval", 60),))
    typed = own(folder, max_length=60, query_length=12)
    mldr, scifact = retrieval("MultiLongDocRetrieval"), retrieval("SciFact", 48)
    assert identity(encoding, mldr) == identity(typed, mldr)
    assert encoding.adapt_encoding(mldr) == typed.adapt_encoding(mldr)
    assert identity(encoding, scifact) == identity(own(folder, max_length=64, query_length=12), scifact)
    late = encoding.adapt_encoding(scifact).late_interaction
    assert late is not None
    assert late.query_length == 12, "ModernBERT's script has one length of queries"
    encoding, _ = configure(folder, "colbert", replace(GPU, name="pylate"))
    late = encoding.adapt_encoding(scifact).late_interaction
    assert late is not None
    assert late.query_length == 48, "PyLate's has one for each set"
    fixed = configure(folder, "colbert", max_length=30)[0].adapt_encoding(mldr).late_interaction
    assert fixed is not None
    assert fixed.document_length == 30


def test_vectors_are_normalized_in_clustering_alone(tmp_path: Path) -> None:
    folder = two_stage_models.save(tmp_path / "two")
    encoding, sentence = configure(folder, "cde:supervised-authors")
    assert "normalized in Clustering alone" in sentence
    tasks = {name: replace(fakes.task(name), type=name) for name in ("Clustering", "STS")}
    lengths = {}
    for name, task in tasks.items():
        context = JobContext(
            device="cpu", cache=tmp_path / "cache", emit=lambda _event: None, limits=WorkerLimits()
        )
        used = replace(encoding.adapt_encoding(task), dtype="float32")
        vectors = context.get_encoder(fakes.artifact(folder), used).encode(["river stone", "cloud"])
        lengths[name] = np.linalg.norm(np.asarray(vectors), axis=1)
    assert lengths["Clustering"] == pytest.approx(1, abs=1e-6)
    assert abs(lengths["STS"] - 1).min() > 1e-3
    for task in tasks.values():
        assert identity(encoding, task) != identity(own(folder, dtype="bfloat16"), task)
    one, other = (extract_condition(fakes.record(task, 0.5, how=encoding)) for task in tasks.values())
    assert one == other, "the tasks of a suite stand in one table"
    assert isinstance(one, EncodingCondition)
    assert "normalized in Clustering" in one.text
    for typed in (True, False):
        asked = configure(folder, "cde:supervised-authors", normalize=typed)[0]
        assert [asked.adapt_encoding(task).normalize for task in tasks.values()] == [typed, typed]


@pytest.mark.parametrize("evaluation", ["own", "recipe"])
def test_a_baseline_is_evaluated_by_its_own_options(evaluation: str) -> None:
    from harness.checks.baselines import Baseline, BaselineModel

    run = BaselineModel(model="m", source="m", artifact="a", folder="m", keys={})
    options = {"dtype": "float32", "evaluation": evaluation}
    baseline = Baseline(name="b", when="now", suites=("stdlib",), seeds=1, options=options, runs=(run,))
    assert Request.parse_options((), baseline.suites, baseline.options).evaluation == evaluation


def test_a_trained_model_is_evaluated_by_its_recipe_and_by_its_own_settings(
    long: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the command line: the line is printed once, and both records stay."""
    train_in_this_process(monkeypatch)
    rows = [{"anchor": f"{a} {b}", "positive": f"{b} {a}"} for a in tiny.WORDS for b in tiny.WORDS[:3]]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = [
        {"text1": one, "text2": other, "score": at}
        for at, (one, other) in enumerate(zip(tiny.WORDS, reversed(tiny.WORDS), strict=True))
    ]
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs))
    task = '[[task]]\nname = "one"\ntype = "sts"\nfile = "pairs.jsonl"\n'
    (tmp_path / "tasks/harness.toml").write_text(task)
    places = ["--results", str(tmp_path / "results"), "--cache", str(tmp_path / "cache"), "--offline"]
    suite = ["--suite", f"local:{tmp_path / 'tasks'}", "--devices", "cpu", "--threads", "1", *places]
    recipe = ["--recipe", "unified-contrastive:code", "--train-data", str(tmp_path / "rows.jsonl")]
    changes = [f"--set={text}" for text in ("max_steps=1", "groups=1", "batch_size=8", "precision=float32")]

    def run(*args: str) -> str:
        assert invoke(["run", *args, *suite]) == 0
        captured = capsys.readouterr()
        return captured.out + captured.err

    first = run("--model", str(long), *recipe, *changes, "--seeds", "2")
    assert first.count("1,024 tokens") == 1
    assert "float32, as a CPU has no float16" in first
    assert run("--model", str(long), *recipe, *changes, "--dry-run").count("1,024 tokens") == 1
    (folder, _) = sorted((tmp_path / "results/models").iterdir())
    plan = json.loads(run("--model", str(folder), "--dry-run", "--json"))
    assert [line["state"] for line in plan["plan"]] == ["done"], "the folder names its recipe"
    assert len(plan["evaluations"]) == 1
    report = harness.run(
        str(folder),
        f"local:{tmp_path / 'tasks'}",
        evaluation="own",
        results=tmp_path / "results",
        cache=tmp_path / "cache",
        devices="cpu",
        offline=True,
    )
    assert report.records[0].identity["encoding"]["max_length"] == 2048
    lengths = [
        json.loads(path.read_text())["identity"]["encoding"]["max_length"]
        for path in (tmp_path / "results/records" / folder.name).glob("*/*.json")
    ]
    assert sorted(lengths) == [1024, 2048]
    assert invoke(["run", "--model", str(long), "--evaluation", "released", *suite]) == 2
    assert "for models that a recipe trained" in capsys.readouterr().err


def test_the_lineage_of_an_earlier_version_names_its_recipe() -> None:
    old = {"recipe": "colbert", "settings": {}, "parents": [], "data": [], "seed": 1}
    lineage = Lineage.model_validate(old)
    assert GPU._find_evaluation(lineage.recipe, lineage.variant) == SCRIPT
