"""The sources of settings: every one is named, found where it says, and ours where nobody else's."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import pkgutil
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import resolve_sources
from safetensors.torch import load_file

import fakes
import tiny
from finetune import recipes
from finetune.embedding.plan import EmbeddingRecipe, Variant, entry
from finetune.embedding.settings import EmbeddingSettings, info_nce
from finetune.recipes import colbert, dpr
from harness.cli import invoke
from harness.commands.recipes import _list_paper_recipes
from harness.core import files
from harness.core.encoding import Encoding
from harness.core.sources import Source, SourcedSetting, describe_assumptions, describe_notes, describe_ours
from harness.data.training.sets import LocatedTraining
from harness.plan import catalog
from harness.plan.request import Request, parse_changes
from harness.plan.resolved_request import Recipes
from harness.results.reported import read_papers

MOST_OURS = 0.15
"""The share of all settings that may be ours."""

CODE = "huggingface/transformers@v5.3.0:src/transformers/training_args.py#L"
NEEDS_NAMED_RELEASE = pytest.mark.skipif(
    resolve_sources.read_code(f"{CODE}1", None) is None,
    reason="sources name lines of transformers 5.3.0, and another release is installed",
)


def open_every() -> Iterator[Any]:
    """Every recipe in every variant."""
    for one in catalog.load_recipe_entries().values():
        for variant in one.settings:
            yield catalog.open_recipe(f"{one.name}:{variant}" if variant else one.name)


def rows_of(name: str, changes: dict[str, Any] | None = None) -> dict[str, SourcedSetting]:
    recipe: Any = catalog.open_recipe(name, changes)
    return {row.name: row for row in recipe.list_sourced_settings()}


def test_every_setting_has_a_source_or_is_said_to_be_ours() -> None:
    absent = [
        f"{recipe.name} {row.name}"
        for recipe in open_every()
        for row in recipe.list_sourced_settings()
        if row.source is None and not row.inert
    ]
    assert absent == []


def test_few_settings_are_ours() -> None:
    rows = [row for recipe in open_every() for row in recipe.list_sourced_settings() if not row.inert]
    assert sum(row.ours for row in rows) <= MOST_OURS * len(rows)


def test_no_source_is_of_a_setting_that_is_not_there() -> None:
    names = {row.name for recipe in open_every() for row in recipe.list_sourced_settings()}
    parts = {name.partition(".")[0] for name in names}
    for module in pkgutil.iter_modules(recipes.__path__):
        sources = getattr(importlib.import_module(f"finetune.recipes.{module.name}"), "SOURCES", {})
        for variant, by_name in sources.items():
            assert by_name.keys() <= {"", *names, *parts}, (module.name, variant)


@NEEDS_NAMED_RELEASE
def test_code_has_a_repository_a_commit_a_path_and_a_line() -> None:
    """Lines of installed libraries are read as well; those of repositories need a copy of them."""
    _, wrong, unread = resolve_sources.resolve_sources(None, None)
    assert wrong == []
    assert not any("huggingface/transformers@v" in code for code in unread)


@NEEDS_NAMED_RELEASE
@pytest.mark.shared
def test_every_section_and_table_is_in_its_paper(shared: Path) -> None:
    papers = shared.parent / "papers"
    lines, wrong, _ = resolve_sources.resolve_sources(papers, None)
    assert wrong == []
    assert lines
    assert "no appendix Q" in resolve_sources.check_place("NeoBERT, appendix Q", papers)
    assert resolve_sources.check_place("a blog", papers)


@NEEDS_NAMED_RELEASE
def test_a_line_that_is_not_there_is_found_out() -> None:
    assert resolve_sources.read_code(f"{CODE}1", None)
    with pytest.raises(LookupError, match="no such line"):
        resolve_sources.read_code(f"{CODE}9999999", None)
    with pytest.raises(LookupError, match="no known form"):
        resolve_sources.read_code("some/where", None)


def test_a_variant_has_the_recipes_sources_of_what_it_does_not_change() -> None:
    base, settings = Source("a paper"), EmbeddingSettings(learning_rate=1e-5, epochs=2)
    made = EmbeddingRecipe(
        name="mine", source="", data=(dpr.MSMARCO,), loss=info_nce, settings=settings, defaults=settings
    )
    changed = replace(settings, epochs=5, batch_size=8)
    variants = {"other": Variant(summary="", settings=changed)}
    sources = {"": {"": base}, "other": {"batch_size": Source("", "some/where@1:a.py#L1")}}
    recipe: Any = entry(made, "", variants, sources).open("other", changed)
    rows = {row.name: row for row in recipe.list_sourced_settings()}
    assert rows["learning_rate"].source == base
    assert rows["data"].source == base
    assert rows["batch_size"].source == sources["other"]["batch_size"]
    assert rows["epochs"].ours, "the recipe's source has another value"
    (sentence,) = describe_ours([*rows.values()])
    assert sentence == "Our own choice, as no source states it: epochs = 5."


def test_a_changed_setting_is_neither_ours_nor_a_papers() -> None:
    assert rows_of("simcse")["learning_rate"].source.code.endswith("#L24")  # type: ignore[union-attr]
    changed = rows_of("simcse", {"learning_rate": "3e-5"})["learning_rate"]
    assert changed.value == 3e-5
    assert changed.source is not None
    assert "--set" in changed.source.text
    assert not changed.ours


def test_what_has_no_effect_is_not_counted() -> None:
    assert rows_of("dpr")["heads"].inert
    assert not rows_of("simcse")["heads"].inert
    assert not rows_of("simcse", {"selection": "stsb-dev"})["evaluate_every"].inert
    assert rows_of("unified-contrastive")["epochs"].inert
    assert rows_of("glue-modernbert")["cadence.steps"].inert, "the score is that after the last step"


def test_values_are_those_of_a_backbone(tmp_path: Path) -> None:
    backbone = fakes.artifact(tiny.folder(tiny.families()["bert"], tmp_path))
    small: Any = catalog.open_recipe("dpr:authors")
    rows = {row.name: row.value for row in small.list_sourced_settings(backbone)}
    assert rows["group_size"] == 64
    glue: Any = catalog.open_recipe("glue-neobert")
    lengths = {row.name: row.value for row in glue.list_sourced_settings(backbone)}
    assert rows["max_length"] == lengths["max_length"] < 1024


def test_a_recipe_is_shown_with_values_meanings_and_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["recipes", "show", "simcse"]) == 0
    text = capsys.readouterr().out
    assert (
        "as no source states it, in 5: last_batch, heads, selection, evaluation.max_length, evaluation.dtype"
        in text
    )
    assert "learning_rate = 5e-05\n    The highest learning rate.\n    source: princeton-nlp/SimCSE@" in text
    assert "other sources: 1e-5 for large models" in text
    assert "evaluation.dtype = float32\n" in text
    assert "\ngroup_size = 0 (the whole batch)\n" in text


def test_a_plan_says_what_is_ours_and_where_the_sources_are(tmp_path: Path) -> None:
    recipe: Any = catalog.open_recipe("simcse")
    backbone = fakes.artifact(tiny.folder(tiny.families()["bert"], tmp_path))
    data = [LocatedTraining(data=part, name=part.path, rows=part.rows) for part in recipe.data]
    planned = recipe.plan(backbone, data, seed=1)
    note = next(text for text in planned.lineage.assumed if text.startswith("learning_rate: "))
    assert note.startswith("learning_rate: as in princeton-nlp/SimCSE@")
    assert note.endswith("#L24; other sources: 1e-5 for large models (README.md#L244)")
    length = "evaluation.max_length = the model's own"
    choices = f"heads = 1; selection = none; {length}; evaluation.dtype = float32"
    assert planned.lineage.assumed[-1].endswith(f"{choices}.")
    ours, open_, *more = describe_assumptions(planned.lineage.assumed)
    assert ours == f"our own choice, as no source states it: last_batch = dropped; {choices}"
    assert open_ == "sources differ on or leave open: data, loss, learning_rate, batch_size, pooling"
    assert not more
    assert "`harness recipes show simcse`" in planned.notes[-1]


def test_settings_on_which_no_source_differs_are_told_apart_and_names_are_cut_once() -> None:
    other, here = Source("a paper", other="7"), Source("a paper", here="for each device; with a mask")
    rows = [SourcedSetting(name=f"n{at}", value=1, source=other) for at in range(10)]
    rows += [SourcedSetting(name="clip", value=1, source=here)]
    assert describe_assumptions(describe_notes(rows)) == [
        "sources differ on or leave open: n0, n1, n2, n3, n4, n5 and 4 more",
        "done in our own way: clip",
    ]


def test_a_recipe_comes_before_a_paper_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = catalog.load_recipe_entries()
    assert "glue-neobert:table6" in _list_paper_recipes("neobert")
    monkeypatch.setattr(catalog, "load_recipe_entries", lambda: {**entries, "neobert": entries["simcse"]})
    assert _list_paper_recipes("neobert") == []


def test_seeds_are_shown_with_those_of_the_authors() -> None:
    for recipe in open_every():
        assert {row.name for row in recipe.list_sourced_settings()} & {"seed", "seeds"}, recipe.name
    (seed, simcse) = (rows_of(name)["seed"] for name in ("unified-contrastive", "simcse"))
    assert seed.value == 42
    assert seed.ours
    assert "0 in the code" in seed.source.other  # type: ignore[union-attr]
    assert not simcse.ours


def test_a_sweep_is_shown_with_what_the_paper_chose(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["recipes", "show", "colbert"]) == 0
    text = capsys.readouterr().out
    assert "\nsweep.learning_rate = 1e-05,2e-05,3e-05,5e-05,8e-05,0.0001\n" in text
    assert "\nsweep.select = beir:NFCorpus,SciFact,TRECCOVID,FiQA2018\n" in text
    chosen = "--model answerdotai/ModernBERT-base --recipe colbert --suite beir --set learning_rate=1e-4"
    assert f"    ModernBERT, table 9: ModernBERT base: harness run {chosen}\n" in text
    assert "This command changes what is below: learning_rate = 0.0001\n" in text
    assert "harness run --model MODEL --protocol modernbert --tasks colbert:\n" in text
    assert "    modernbert, table 8, Avg.: the mean over tasks of beir\n" in text
    assert invoke(["recipes", "show", "glue-optibert"]) == 0
    text = capsys.readouterr().out
    assert "Left open by the sources, and read here as follows:\n    All but the grid" in text
    run = "harness run --model MODEL --recipe glue-optibert --suite glue --tasks MNLI --set batch_size=32"
    assert f"OptiBERT_neo 130B tokens, MNLI: {run} --set learning_rate=1e-5 --set" in text
    assert "--tasks SST-2 --set" in text
    assert "\nWithout effect at these values:\n    head.library = false: Whether transformers' own" in text
    assert invoke(["recipes", "show", "dpr:authors"]) == 0
    text = capsys.readouterr().out
    run_large = "harness run --model answerdotai/ModernBERT-large --recipe dpr:authors --suite beir:dl19"
    assert f"{run_large} --set learning_rate=1e-4\n" in text
    assert "This command changes" not in text
    row, run = "ModernBERT, table 7, ModernBERT base", "harness run --model answerdotai/ModernBERT-base"
    nearest = f"{run} --recipe dpr:authors --set learning_rate=8e-5 --suite beir:dl19"
    assert f"\nNearest to {row}: {nearest}\n    Printed: NFCorpus 23.7, SciFact 57.0, " in text
    assert ", Avg. 41.6 (the mean over tasks)\n    The paper prints batches of 16, " in text
    assert invoke(["recipes", "show", "dpr:ettin"]) == 0
    own = f"To run it: {run} --recipe dpr:ettin --set learning_rate=8e-5 --suite beir:dl19"
    assert f"\nNo paper prints a row of it; {row} is of dpr:authors. {own}\n" in capsys.readouterr().out
    assert invoke(["recipes", "show", "simcse"]) == 0
    text = capsys.readouterr().out
    assert 'Printed in the line "tokens 130B": Class. 67.5 (Classification), Clust. 33.4 (Clust' in text
    assert ", Avg. 51.9 (the mean over types)\n" in text
    assert invoke(["recipes", "list", "--json"]) == 0
    tables = {one["name"]: one["printed"] for one in json.loads(capsys.readouterr().out)["recipes"]}
    assert (tables["dpr"], tables["dpr:authors"]) == ("", "ModernBERT, table 7")
    assert tables["simcse"] == "OptiBERT, table 2; OptiBERT, table 5"


def show(name: str, *options: str) -> list[dict[str, Any]]:
    """The JSON of `harness recipes show`, a training each."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert invoke(["recipes", "show", name, *options, "--json"]) == 0
    recipes_: list[dict[str, Any]] = json.loads(out.getvalue())["recipes"]
    return recipes_


def test_a_command_says_what_it_changes_of_the_settings() -> None:
    (changes,) = (row["changes"] for row in show("efficient-full")[0]["printed"])
    assert changes == [
        "epochs = 1 (now without effect)",
        "budget = 2.4e+16",
        "tokens_per_pair = none (has now an effect)",
        "steps = floor(45,925.6 / t) with t tokens a pair, known when the texts are read, in ceil(0.1 * "
        "steps) of which the rate rises (85,056,000 forward, 85,056,000 backward, 85,056,000 updated)",
    ]
    assert show("glue-neobert:table6")[0]["printed"][0]["changes"] == ["fresh_seeds = 0"]
    # A setting of another training of a chain is none of this one's.
    assert show("mldr")[0]["printed"][0]["changes"] == []


def test_what_a_command_makes_effective_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """2.4e16 operations, six for each of 85,056,000 parameters and 78 tokens of 1,024 pairs: 588 steps."""
    assert int(2.4e16 // (6 * 85_056_000 * 78 * 1024)) == 588
    assert invoke(["recipes", "show", "efficient-full:code"]) == 0
    text = capsys.readouterr().out
    assert "; steps = 588, in 59 of which the rate rises (85,056,000 forward, " in text
    for setting in (
        "budget = none (the steps of `epochs`)\n    The floating-point operations",
        "tokens_per_pair = 78\n    The tokens",
    ):
        assert f"\n\n{setting}" in text
    assert "\n    max_steps = none (those of all epochs): The optimizer steps after which the " in text
    assert invoke(["recipes", "show", "efficient-full"]) == 0
    # Without a value of the code, that of a setting that the command makes effective is ours as well.
    assert (
        "no source states it, in 6: seed, batches, last_batch, tokens_per_pair, " in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    ("name", "typed"),
    [
        ("efficient-lora:code", "efficient-lora:code --set budget=2.4e16 --set rank=32"),
        ("efficient-full:text", "efficient-full:text --set budget=2.4e16 --suite mteb-v1"),
        ("dpr:authors", "dpr:authors --set learning_rate=8e-5 --suite beir:dl19"),
        ("cde", "cde --suite mteb-v1"),
        ("cde:authors", "cde:authors --suite mteb-v1"),
        ("dpr+mldr", "dpr+mldr --suite beir:dl19"),
        ("glue-neobert:code", "glue-neobert:code --set fresh_seeds=0 --suite glue"),
    ],
)
def test_a_command_runs_all_of_what_was_typed_with_its_settings(name: str, typed: str) -> None:
    assert f" --recipe {typed}" in show(name)[0]["command"]


def test_a_chosen_value_is_a_whole_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["recipes", "show", "glue-neobert:table6"]) == 0
    command = (
        "harness run --model chandar-lab/NeoBERT --recipe glue-neobert:table6 --set fresh_seeds=0 --suite "
        "glue --tasks CoLA --set batch_size=8 --set learning_rate=8e-6 --set weight_decay=1e-5"
    )
    line = f"NeoBERT, table 6: NeoBERT_4096 medium, CoLA: {command}\n"
    assert line in capsys.readouterr().out
    assert invoke(["recipes", "show", "glue-neobert"]) == 0
    assert "batch_size=2 " not in capsys.readouterr().out, "which its grid does not have"


def test_a_chosen_cell_starts_from_the_chosen_cell_of_mnli() -> None:
    """ModernBERT, table 6: of the base model 5e-5, 5e-6 and 1 epoch for MNLI."""
    chosen = show("glue-modernbert")[0]["chosen"]
    base = {key.rpartition(", ")[2]: texts for key, texts in chosen.items() if " ModernBERT base," in key}
    starts = {task: texts[-1] for task, texts in base.items() if texts[-1].startswith("--set mnli=")}
    mnli = "--set mnli=learning_rate=5e-5,weight_decay=5e-6,epochs=1"
    assert starts == dict.fromkeys(("RTE", "MRPC", "STS-B"), mnli)


def test_a_mean_is_shown_with_what_it_leaves_out() -> None:
    (step,) = show("efficient-freeze")[0]["evaluated"]
    assert step["numbers"] == [
        "efficient-embeddings, table 1, Avg. score: the mean over tasks of mteb-efficient8 without Tatoeba"
    ]
    (step,) = show("glue-modernbert")[0]["evaluated"]
    assert step["numbers"] == [
        "modernbert, table 1, GLUE: the mean over tasks of glue",
        "modernbert, table 5, Avg. (not printed): the mean over tasks of glue",
    ]
    (step,) = show("dpr:authors")[0]["evaluated"]
    assert "modernbert, table 1, DPR MLDR-OOD: MLDR (test) of mldr" in step["numbers"]
    beir, mldr, *_ = step["suites"]
    assert "dev" not in beir["summary"], "its queries of MSMARCO are those of TREC-DL 2019"
    assert mldr["tasks"]["MultiLongDocRetrieval"]["subsets"] == ["en"]
    (row,) = show("cde:supervised")[0]["printed"] or show("cde")[0]["printed"]
    assert "Summ. 30.98 (Summarization)" in row["numbers"]


def test_only_partial_tuning_is_compared_with_the_table_of_partial_tuning() -> None:
    named = {
        method: any("table 1" in number for step in show(f"efficient-{method}")[0]["evaluated"]
        for number in step["numbers"])
        for method in ("full", "freeze", "lora", "bias")
    }  # fmt: skip
    assert named == {"full": False, "freeze": True, "lora": False, "bias": False}


def meanings_of(name: str) -> dict[str, str]:
    return {row.name: row.meaning for row in rows_of(name).values()}


def test_meanings_say_what_the_code_does() -> None:
    assert "in a group of rows (`group_size`, or the whole batch)" in meanings_of("dpr:authors")["batches"]
    assert meanings_of("glue-mosaicbert")["seeds"].startswith("Seed of the head and dropout.")
    assert "the order of rows" in meanings_of("glue-neobert")["seeds"]
    assert "if false, each has them in that of the file" in meanings_of("glue-mosaicbert")["shuffled"]
    assert "MNLI run with the best accuracy on the matched set" in meanings_of("glue-neobert")["transfer"]
    assert "@main is no commit" in rows_of("unified-contrastive")["data"].source.here  # type: ignore[union-attr]


def test_facts_that_are_no_settings_are_those_of_the_code() -> None:
    """1,250,000 rows in batches of 4,096 are 306 steps, a twentieth of them rounded up 16."""
    facts = show("dpr:authors")[0]["facts"]
    assert facts["steps"].startswith("306, in 16 of which")
    assert {"dropout", "prompts", "titles", "mteb"} <= facts.keys()
    # Those that have a row of their own.
    assert not {"dropout", "prompts"} & show("cde")[0]["facts"].keys()
    assert "MLP(mean of a context document's token vectors)" in show("cde")[0]["facts"]["network"]
    assert (
        "floor(budget / (2 * (forward + backward" in show("efficient-bias")[0]["facts"]["steps of a budget"]
    )
    search = show("colbert")[0]["facts"]["search"]
    assert "vectors are kept in float16" in search
    late = replace(colbert.SCRIPT.late_interaction, document_length=510, by_task=False)
    encoding = Encoding(
        pooling="", normalize=False, max_length=510, late_interaction=late, similarity="maxsim"
    )
    indexed = {task.name for task in catalog.open_suite("beir").tasks if encoding.adapt_encoding(task).index}
    assert {*search.partition("510 tokens: ")[2].partition(")")[0].split(", ")} == indexed
    assert "plaid:nbits=4,kmeans_niters=4,max_points_per_centroid=256,n_ivf_probe=8," in search
    assert "score:" not in meanings_of("simcse")["data"]
    glue = show("glue-neobert:table6")[0]["facts"]
    assert "pooling, dropout, dense, activation, dropout, linear; no norm" in glue["head"]
    assert "floor(full_batches * floor(n / b))" in glue["evaluations"]
    assert "Without effect" not in glue["evaluations"]
    assert "Without effect on the score" in show("glue-modernbert")[0]["facts"]["evaluations"]


def test_rows_are_counted_or_said_to_be() -> None:
    """Every set has a number, or says when it is known; those of GLUE are the hub's."""
    glue = show("glue-mosaicbert")[0]
    (tables,) = (row["value"] for row in glue["settings"] if row["name"] == "data")
    assert "RTE sentence1 and sentence2, accuracy on validation, rows 2,490" in tables
    assert glue["facts"]["steps"] == "epochs * ceil(n / b) of n rows in batches of b"
    sets = {line.partition(",")[0]: line for line in rows_of("unified-contrastive")["data"].value}
    assert sets["PAQ"].endswith(", rows 64,371,441")
    assert sets["STSBENCHMARK"].endswith(", rows 1,052")
    assert sets["TRIVIAQA"].endswith(", rows counted when they are read")
    assert all("rows " in line for line in sets.values())
    assert "QQP and STACKOVERFLOW have none" in meanings_of("unified-contrastive:job")["data"], "32 // 50"


def test_facts_of_a_network_say_how_it_begins() -> None:
    assert "around the mean of all" in show("colbert")[0]["facts"]["start"]
    cde = show("cde:supervised")[0]["facts"]
    assert "GELU for contexts and ReLU for the others" in cde["network"]
    assert "greedy k-means++" in cde["clusters"]
    # The blocks and the final norm of Pythia's 12 layers of 768.
    block = 12 * 768**2 + 13 * 768
    lora = show("efficient-lora")[0]["facts"]
    assert f"pythia-160m {12 * block + 2 * 768:,}, " in lora["parameters"]
    assert "a product of 0" in lora["adapters"]
    assert lora["steps"].endswith(", without a budget")


@pytest.mark.parametrize(
    ("paper", "recipes_"),
    [
        ("modernbert", {"colbert", "dpr:authors", "glue-modernbert", "mldr"}),
        ("NeoBERT", {"cde:unsupervised", "cde:supervised", "glue-neobert:table6", "unified-contrastive"}),
        ("optibert", {"glue-optibert", "simcse"}),
        ("mosaicbert", {"glue-mosaicbert", "glue-mosaicbert:bert-large"}),
        ("efficient", {f"efficient-{method}" for method in ("full", "freeze", "lora", "bias")}),
    ],
)
def test_a_paper_is_shown_by_its_printed_rows(paper: str, recipes_: set[str]) -> None:
    shown = show(paper)
    assert {one["name"] for one in shown} == recipes_
    assert len(shown) == len(recipes_)
    assert all(one["printed"] for one in shown)


def test_recipes_are_listed_by_paper(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["list", "recipes", "--match", "optibert", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["recipes"]
    names = {row["name"] for row in rows}
    assert {"simcse", "simcse:large", "glue-optibert"} <= names
    assert {row["paper"] for row in rows} == {"OptiBERT"}


def test_the_length_of_an_evaluation_is_that_of_the_model(tmp_path: Path) -> None:
    folder = tiny.folder(tiny.families()["bert"], tmp_path)
    (simcse,) = show("simcse", "--model", str(folder))
    rows = {row["name"]: row["value"] for row in simcse["settings"]}
    assert (
        rows["evaluation.max_length"]
        == json.loads((folder / "config.json").read_text())["max_position_embeddings"]
    )


def test_values_of_glue_are_those_that_a_backbone_is_trained_with(tmp_path: Path) -> None:
    """Its learned positions limit a text, its own length does not; dropout is its config's, unless set."""
    folder = tiny.folder(tiny.families()["bert"], tmp_path)
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 9}))
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    start = "sentence_transformers.models."
    modules = [{"name": kind, "path": path, "type": f"{start}{kind}"} for path, kind in kinds.items()]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    config = json.loads((folder / "config.json").read_text()) | {"attention_probs_dropout_prob": 0.25}
    (folder / "config.json").write_text(json.dumps(config))
    pooling = {"word_embedding_dimension": config["hidden_size"], "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    (shown,) = show("glue-mosaicbert", "--model", str(folder))
    rows = {row["name"]: row["value"] for row in shown["settings"]}
    positions = config["max_position_embeddings"]
    assert rows["max_length"] == min(256, positions) > 9
    assert (rows["dropout.attention"], rows["dropout.attention_out"]) == (0.25, 0.1)
    pooled = any("pooler." in name for name in load_file(folder / "model.safetensors"))
    assert rows["head.dense"] == ("pooler" if pooled else "fresh")


@pytest.mark.parametrize(("head", "dense"), [(False, "fresh"), (True, "mlm")])
def test_a_dense_layer_of_no_masked_language_head_is_fresh(tmp_path: Path, head: bool, dense: str) -> None:
    folder = tiny.folder(tiny.families()["bert"], tmp_path / "bert", head=head)
    (shown,) = show("glue-modernbert", "--model", str(folder))
    assert [row["value"] for row in shown["settings"] if row["name"] == "head.dense"] == [dense]


def test_every_printed_row_is_reported_and_its_command_runs() -> None:
    papers = {paper.name: paper for paper in read_papers(files.find_reported_folder() or Path()).values()}
    rows = [row for entry in catalog.load_recipe_entries().values() for row in entry.printed]
    assert {row.place.partition(",")[0] for row in rows} == papers.keys()
    for row in rows:
        paper, table, model = row.place.split(", ")
        lines = papers[paper].tables[table.removeprefix("table ")].rows
        printed = [
            line
            for line in lines
            if line.name == model and line.number is not None and row.line in f"{line.setting} {line.metric}"
        ]
        assert printed, row.place
        assert len({line.metric for line in printed}) == len(printed), row.place
        assert {line.hub_id for line in printed} <= {row.model, ""}, row.place
        settings = parse_changes(row.settings)
        request = Request(models=(), suites=(), recipe=(row.recipe,), recipe_settings=settings)
        Recipes.resolve_recipes([catalog.open_suite(row.suite)], request)


def test_settings_are_called_as_they_are_typed() -> None:
    for recipe in open_every():
        entry = catalog.find_recipe_entry(recipe.name)
        names = {row.name for row in recipe.list_sourced_settings()}
        assert {field.name for field in fields(entry.settings[""])} <= names, recipe.name


def test_prefixes_are_shown_by_source_and_by_task() -> None:
    unsupervised, batching = rows_of("cde:unsupervised"), rows_of("cde-batching")
    prefixes = unsupervised["prefixes"].value
    assert prefixes["'search_query: ' and 'search_document: '"].startswith("paq, gooaq, ")
    assert "amazon_reviews" in prefixes["'classification: '"]
    assert batching["prefixes"].value["'classification: '"] == "sentence-transformers/all-nli"
    assert unsupervised["prompts"].value["Clustering"] == "clustering: "
    # No training of these had it: texts of clusterings are searched for.
    assert batching["prompts"].value["Clustering"] == "search_query: "
    assert "prefixes" not in rows_of("cde-batching", {"prefix": "search,clustering,none"})
    instructions = rows_of("unified-contrastive")["prompts"].value
    assert instructions["SciFact-query"].endswith(" Claim: <sep> <bos>")


def test_several_trainings_follow_each_other_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["recipes", "show", "cde", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in document["recipes"]] == ["cde:unsupervised", "cde:supervised"]
    names = {row["name"]: row for row in document["recipes"][1]["settings"]}
    assert names["cluster_size"]["source"]["place"] == "NeoBERT, appendix G.2"
    assert names["rotary_from"]["ours"]
    assert "nomic_embed_supervised" in names["data"]["value"][0]


def test_an_unknown_recipe_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["recipes", "show", "simsce"]) == 2
    assert "simcse" in capsys.readouterr().err
    assert invoke(["recipes", "show", "dpr", "--model", "bm25"]) == 2
    assert "bm25 has no weights." in capsys.readouterr().err


def test_a_recipe_without_any_source_says_so_in_one_sentence() -> None:
    rows = [SourcedSetting(name="rate", value=1), SourcedSetting(name="rows", value=2, inert=True)]
    assert describe_ours(rows) == ("Our own choice, as no source states it: all values.",)
    assert describe_ours([]) == ()
