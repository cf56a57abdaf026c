"""The prefixes before the texts of a training and of the evaluations of its model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from sentence_transformers.losses import MultipleNegativesRankingLoss
from transformers import AutoTokenizer

import harness
import tiny
from contextual_pairs import pairs_file
from finetune.cde import plan
from finetune.cde.plan import ContextualRecipe
from finetune.cde.training import TwoStageLoss
from finetune.recipes import cde, cde_batching
from finetune.recipes.dpr import MSMARCO
from finetune.recipes.simcse import NLI
from harness.core.encoding import Encoding, OwnTexts, Settings, select_prompt
from harness.core.errors import DataError, UsageError
from harness.core.types import SEED, SIDES, Artifact
from harness.data.locate import DataSettings
from harness.data.training.sets import LocatedTraining, TrainingData
from harness.encoder.folder.description import describe
from harness.plan import catalog
from harness.plan.models import ModelOptions, resolve_model
from harness.plan.request import Request
from harness.plan.training_plan import TrainingRequest, plan_models
from harness.training.training import TrainingSpec
from stopped_trainings import train_in_this_process
from suites._mteb import snapshot

SMALL: dict[str, Any] = {"entry": cde.RECIPE, "context_size": 8, "soft_prompts": 2, "chunk": 0, "epochs": 1}

SEARCH, CLASSIFICATION, CLUSTERING = (
    ("search_query: ", "search_document: "),
    ("classification: ", "classification: "),
    ("clustering: ", "clustering: "),
)


def with_sources(folder: Path, data: TrainingData, sources: list[str], rows: int = 8) -> LocatedTraining:
    """Rows in a Parquet file, the same number of each source, as if they were those of a recipe's data."""
    words = [f"{one} {other}" for one in tiny.WORDS for other in tiny.WORDS]
    numbers = range(rows * len(sources))
    columns = {
        data.columns[0]: [words[at] for at in numbers],
        data.columns[1]: [words[-at] for at in numbers],
        "dataset": [sources[at // rows] for at in numbers],
    }
    folder.mkdir()
    Dataset.from_dict(columns).to_parquet(str(folder / "rows.parquet"))
    data = replace(data, revision="", content=f"{len(numbers):064d}", config="", columns=data.columns[:2])
    data = replace(data, held_out=0, first=None, rows=len(numbers))
    return LocatedTraining(data=data, file=folder / "rows.parquet", name=folder.name, rows=len(numbers))


TYPED = {
    cde.SUPERVISED: {
        "msmarco": SEARCH,
        "hotpotqa_hn_mine_shuffled": SEARCH,
        "nli_triplets": CLASSIFICATION,
        "medi_sts_wiki_rephrasal": CLASSIFICATION,
        "reddit": CLUSTERING,
    },
    cde.UNSUPERVISED: {
        "paq": SEARCH,
        "quora": CLASSIFICATION,
        "agnews": CLASSIFICATION,
        "codesearch": CLUSTERING,
        "s2orc_title_abstract": CLUSTERING,
        "stackexchange_body_body": CLUSTERING,
    },
}


@pytest.mark.parametrize("entry", [cde.RECIPE, cde_batching.RECIPE], ids=["two stages", "one stage"])
@pytest.mark.parametrize("data", TYPED, ids=["supervised", "unsupervised"])
def test_every_text_is_behind_the_prefix_of_its_source(
    recipe: Callable[..., ContextualRecipe],
    make: Callable[..., TrainingSpec],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    entry: Any,
    data: TrainingData,
) -> None:
    """The token ids of all batches are those of texts typed by hand: queries, documents and their context."""
    typed = TYPED[data]
    rows = with_sources(tmp_path / "sources", data, [*typed])
    settings = {**SMALL, "entry": entry, "max_length": 40, "margin": None, "batches": "shuffled"}
    if entry is cde_batching.RECIPE:
        settings = {
            name: value for name, value in settings.items() if name not in ("context_size", "soft_prompts")
        }
    spec = make("run", settings, data=(rows,))
    opened: Any = replace(contextual(spec), prefixes=cde.PREFIXES)
    columns: list[list[tuple[int, ...]]] = [[], [], []]

    def seen(features: Any) -> None:
        for column, one in zip(columns, features, strict=False):
            column.extend(
                tuple(ids[mask.bool()].tolist())
                for ids, mask in zip(one["input_ids"], one["attention_mask"], strict=True)
            )

    for loss in (TwoStageLoss, MultipleNegativesRankingLoss):
        real = loss.forward

        def forward(own: Any, features: Any, labels: Any, real: Any = real) -> Any:
            features = [*features]
            seen(features)
            return real(own, features, labels)

        monkeypatch.setattr(loss, "forward", forward)
    opened.train(replace(spec, recipe=opened))
    tokenizer = AutoTokenizer.from_pretrained(spec.backbone.folder)
    table = Dataset.from_parquet(str(rows.file)).to_dict()
    names = table["dataset"]
    for side, column in enumerate(rows.data.columns):
        wanted = [
            tokenizer(typed[name][side] + text)["input_ids"]
            for name, text in zip(names, table[column], strict=True)
        ]
        assert sorted(columns[side]) == sorted(map(tuple, wanted))
    assert columns[2] == (columns[1] if entry is cde.RECIPE else [])


def contextual(spec: TrainingSpec) -> ContextualRecipe:
    assert isinstance(spec.recipe, ContextualRecipe)
    return spec.recipe


def test_the_tables_are_those_of_the_authors_code() -> None:
    """Typed from cde/config/*.yaml and the names that cde/dataset.py maps."""
    unsupervised = {
        **dict.fromkeys(["paq", "gooaq", "yahoo_title_answer", "amazonqa", "yahoo_qa"], SEARCH),
        **dict.fromkeys(["yahoo_title_question", "eli5", "squad"], SEARCH),
        **dict.fromkeys(["amazon_reviews", "wikianswers", "wikipedia", "agnews", "ccnews"], CLASSIFICATION),
        **dict.fromkeys(["npr", "cnn", "sentence_compression", "wikihow", "altlex"], CLASSIFICATION),
        **dict.fromkeys(["quora", "simplewiki"], CLASSIFICATION),
        **dict.fromkeys(["reddit_title_body", "s2orc_citation_titles", "codesearch"], CLUSTERING),
        **dict.fromkeys(
            [f"s2orc_{one}" for one in ("title_abstract", "abstract_citation", "abstract_body")], CLUSTERING
        ),
        **dict.fromkeys(
            [f"stackexchange_{one}" for one in ("title_body", "body_body", "duplicate_questions")], CLUSTERING
        ),
    }
    short = {
        "msmarco_distillation_simlm_rescored_reranked_min15": "msmarco",
        "medi_supernli_sampled": "medi_supernli",
        "medi_sts_wiki_rephrasal": "medi_wiki",
        "medi_sts_stackexchange_dupe": "medi_stackexchange",
        "medi_sts_flickr_sampled": "medi_flickr",
        "fever_hn_mine": "fever",
        "reddit_triples": "reddit",
        "hotpotqa_hn_mine_shuffled": "hotpot",
        "nq_cocondensor_hn_mine_reranked_min15": "nq_triples",
        "nli_simcse_50negs_fixed": "nli_triplets",
    }
    search = ("msmarco", "fever", "hotpot", "nq_triples")
    supervised = {
        name: SEARCH if name in search else CLUSTERING if name == "reddit" else CLASSIFICATION
        for name in short.values()
    }
    by_raw_name = {raw: supervised[name] for raw, name in short.items()}
    assert len(unsupervised) == 29
    assert dict(cde.PREFIXES[cde.UNSUPERVISED.path]) == unsupervised
    assert dict(cde.PREFIXES[cde.SUPERVISED.path]) == supervised | by_raw_name
    triplets = {MSMARCO.path: {"": SEARCH}, NLI.path: {"": CLASSIFICATION}}
    assert triplets == cde_batching.PREFIXES


def prompts(recipe: ContextualRecipe, backbone: Artifact, *data: LocatedTraining) -> dict[str, str]:
    return dict(recipe.plan(backbone, data, seed=7).description.prompts)


def applied(prompts: dict[str, str]) -> dict[tuple[str, str, str], str]:
    """The prompts of every task of mteb, by name, type and side."""
    mteb = snapshot.load_snapshot()
    return {
        (task.name, task.type, side): select_prompt(
            OwnTexts(name=task.name, type=task.type), side, prompts, None
        )
        for task in map(mteb.find_task_info, mteb.tasks)
        for side in (SIDES if task.roles else ("",))
    }


@pytest.mark.parametrize(
    ("settings", "trained"),
    [
        ({}, {*SEARCH}),
        ({"prefix": ("classification",)}, {"classification: "}),
        ({"prefix": ("clustering", "search")}, {"clustering: ", *SEARCH}),
        ({"prefix": ("none", "search_query")}, {"search_query: "}),
        ({"query_prefix": "ask: ", "document_prefix": ""}, {"ask: ", ""}),
    ],
)
def test_every_evaluation_has_a_prefix_of_the_training(
    recipe: Callable[..., ContextualRecipe],
    backbone: Artifact,
    tmp_path: Path,
    settings: dict[str, Any],
    trained: set[str],
) -> None:
    """Of every task of mteb, whatever its type."""
    data = [
        replace(pairs_file(tmp_path / name, 60 + at), name=name) for at, name in enumerate(("one", "two"))
    ]
    for entry in (SMALL, {}):
        found = applied(prompts(recipe(**entry, **settings), backbone, *data))
        assert {*found.values()} == trained


def test_the_authors_data_is_evaluated_as_they_do(
    recipe: Callable[..., ContextualRecipe], backbone: Artifact, tmp_path: Path
) -> None:
    rows = with_sources(tmp_path / "rows", cde.SUPERVISED, ["msmarco"])
    for (name, kind, side), prefix in applied(prompts(recipe(**SMALL), backbone, rows)).items():
        if name in ("QuoraRetrieval", "QuoraRetrievalHardNegatives", "NanoQuoraRetrieval"):
            assert prefix == "search_query: ", name
        elif "Retrieval" in kind or kind == "InstructionReranking":
            assert prefix == f"search_{side}: ", name
        else:
            assert prefix == ("clustering: " if kind == "Clustering" else "classification: "), name


@pytest.mark.parametrize("two_stages", [True, False])
def test_two_data_sets_have_their_own_prefixes(
    make: Callable[..., TrainingSpec], tmp_path: Path, two_stages: bool
) -> None:
    """A whole training; the model that it leaves is the planned one."""
    data = tuple(replace(pairs_file(tmp_path / name, 40), name=name) for name in ("one", "two"))
    settings = {**(SMALL if two_stages else {"epochs": 1}), "prefix": ("search", "clustering")}
    spec = make("run", settings, data=data)
    planned = contextual(spec).plan(spec.backbone, data, seed=7)
    assert "prefixes of queries and documents: one search_query and search_document, two clustering" in str(
        planned.notes
    )
    spec.recipe.train(spec)
    assert dict(describe(spec.output).prompts) == dict(planned.description.prompts)
    assert {*planned.description.prompts.values()} == {*SEARCH, "clustering: "}


def test_the_key_has_the_prefixes_where_they_are_not_the_two_settings(
    recipe: Callable[..., ContextualRecipe], backbone: Artifact, tmp_path: Path
) -> None:
    """Trainings of before there were tables keep their keys, as their rows have the same prefixes."""
    data = [
        replace(pairs_file(tmp_path / name, 60 + at), name=name) for at, name in enumerate(("one", "two"))
    ]
    clusters = {"iterations": 25, "starts": 1, "margin": None, "batches": "shuffled"}

    def key(data: list[LocatedTraining] = data, **settings: Any) -> str:
        made = recipe(**{**SMALL, **clusters, **settings}).plan(backbone, data, seed=7)
        assert made.lineage.changed.get("prefix", "") == ",".join(settings.get("prefix", ()))
        return made.lineage.key[:16]

    assert key() == "244960df44bd1f67"
    assert key(prefix=("search",)) == key(prefix=("search", "search")) == key()
    several = [("classification",), ("search", "clustering"), ("clustering", "search"), ("none",)]
    assert len({key(), *(key(prefix=prefix) for prefix in several)}) == 5
    theirs = [with_sources(tmp_path / "theirs", cde.SUPERVISED, ["msmarco"], 60)]
    assert key(theirs) != key(theirs, prefix=("search",))
    assert key(theirs, query_prefix="ask: ") != key(theirs)


def test_a_changed_setting_is_before_all_rows(
    recipe: Callable[..., ContextualRecipe], tmp_path: Path
) -> None:
    theirs = [with_sources(tmp_path / "theirs", cde.SUPERVISED, ["msmarco"])]
    assert recipe(**SMALL).list_prefix_tables(theirs) == [cde.PREFIXES[cde.SUPERVISED.path]]
    own = [replace(theirs[0], own=True)]
    assert recipe(**SMALL).list_prefix_tables(own) == [{"": SEARCH}]
    for settings, prefix in (
        ({"query_prefix": "ask: "}, ("ask: ", "search_document: ")),
        ({"prefix": ("none",)}, ("", "")),
    ):
        assert recipe(**SMALL, **settings).list_prefix_tables(theirs) == [{"": prefix}]


def test_prefixes_that_no_training_can_have(
    recipe: Callable[..., ContextualRecipe],
    make: Callable[..., TrainingSpec],
    backbone: Artifact,
    tmp_path: Path,
) -> None:
    with pytest.raises(UsageError, match="No prefix is called 'clasification'") as caught:
        recipe(**SMALL, prefix=("clasification",))
    assert "Did you mean classification?" in (caught.value.hint or "")
    rows = [replace(pairs_file(tmp_path / "rows", 60), name="rows.jsonl")]
    with pytest.raises(UsageError, match=r"prefix has 2 values, and there are 1 data sets: rows\.jsonl"):
        recipe(**SMALL, prefix=("search", "clustering")).plan(backbone, rows, seed=7)
    strange = with_sources(tmp_path / "strange", cde.SUPERVISED, ["msmarco", "wikidata"])
    spec = make("run", SMALL, data=(strange,))
    with pytest.raises(DataError, match="strange has rows of wikidata, for which there is no prefix"):
        spec.recipe.train(spec)
    assert not (spec.cache / "vectors").exists(), "before the guide reads the data"


def test_a_model_that_is_there_keeps_the_prompts_that_it_was_saved_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version may save others for the same training: the key is that of the training."""
    train_in_this_process(monkeypatch)
    backbone = tiny.folder(tiny.families()["bert"], tmp_path / "tiny")
    rows = str(pairs_file(tmp_path / "rows", 16).file)
    settings = {"batch_size": 8, "epochs": 1, "max_length": 16, "batches": "shuffled", "margin": None}
    results = tmp_path / "results"
    how: dict[str, Any] = {"recipe": "cde-batching", "recipe_settings": settings, "offline": True}
    harness.train(str(backbone), train_data=[rows], results=results, threads=1, **how)
    start = resolve_model(str(backbone), Settings(), ModelOptions(offline=True))
    request = TrainingRequest(
        typed=Request(models=(), suites=(), train_data=(rows,), threads=1),
        seeds=(SEED, SEED + 1),
        results=results,
        data=DataSettings(offline=True, cache=tmp_path / "cache"),
    )
    monkeypatch.setattr(plan, "build_evaluation_prompts", lambda _: {"query": "later: "})
    there, new = plan_models((start,), (catalog.open_recipe("cde-batching", settings),), request)  # type: ignore[arg-type]
    assert isinstance(there.encoding, Encoding)
    assert isinstance(new.encoding, Encoding)
    assert dict(there.encoding.prompts)["STS"] == "search_query: "
    assert dict(new.encoding.prompts) == {"query": "later: "}
