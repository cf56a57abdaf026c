"""NeoBERT's unified contrastive mix against tables typed from the paper and the authors' code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest

from finetune.mix.plan import MixRecipe
from finetune.mix.settings import MixSet, MixSettings
from finetune.recipes.unified_contrastive import RECIPE
from harness.core.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Expected:
    """A set as datasets.py of the authors loads it, with its instruction of Table 7."""

    hub: str
    configs: tuple[str, ...] = ("",)
    columns: tuple[tuple[str, str], ...]
    """Query and positive of each configuration."""
    negatives: tuple[str, ...] = ()
    hard: int | None = 0
    """Hard negatives of a row; None where each row has a list of its own."""
    divisor: int = 2
    instruction: str
    judged: bool = False
    scored: bool = False
    """Whether only pairs with a score above 4 are read: the code selects them and does not use them."""


SETS = {
    "ALLNLI": Expected(
        hub="sentence-transformers/all-nli",
        configs=("triplet",),
        columns=(("anchor", "positive"),),
        negatives=("negative",),
        hard=1,
        instruction="Given a premise, retrieve a hypothesis that is entailed by the premise.",
    ),
    "AMAZONQA": Expected(
        hub="embedding-data/Amazon-QA",
        columns=(("query", "pos[0]"),),
        instruction="Given a question, retrieve Amazon posts that answer the question.",
    ),
    "CONCURRENTQA": Expected(
        hub="stanfordnlp/concurrentqa-retrieval",
        columns=(("question", "pos_paras[0].text"),),
        negatives=("neg_paras[].text",),
        hard=None,
        divisor=21,
        instruction="Given a multi-hop question, retrieve documents that can help answer the question.",
    ),
    "FEVER": Expected(
        hub="mteb/fever",
        configs=("default",),
        columns=(("query-id", "corpus-id"),),
        judged=True,
        instruction="Given a claim, retrieve documents that support or refute the claim.",
    ),
    "GITHUBISSUE": Expected(
        hub="WhereIsAI/github-issue-similarity",
        configs=("positive",),
        columns=(("anchor", "positive"),),
        instruction="Given a question, retrieve questions from Github that are duplicates to the given "
        "question.",
    ),
    "GOOAQ": Expected(
        hub="tomaarsen/gooaq-hard-negatives",
        configs=("triplet-5",),
        columns=(("question", "answer"),),
        negatives=tuple(f"negative_{number}" for number in range(1, 6)),
        hard=5,
        divisor=7,
        instruction="Given a question, retrieve relevant documents that best answer the question.",
    ),
    "MSMARCO": Expected(
        hub="mteb/msmarco",
        configs=("default",),
        columns=(("query-id", "corpus-id"),),
        judged=True,
        instruction="Given a web search query, retrieve relevant passages that answer the query.",
    ),
    "PAQ": Expected(
        hub="embedding-data/PAQ_pairs",
        columns=(("set[0]", "set[1]"),),
        instruction="Given a question, retrieve Wikipedia passages that answer the question.",
    ),
    "PUBMEDQA": Expected(
        hub="sentence-transformers/pubmedqa",
        configs=("triplet-20",),
        columns=(("anchor", "positive"),),
        negatives=tuple(f"negative_{number}" for number in range(1, 21)),
        hard=20,
        divisor=22,
        instruction="Given a medical question, retrieve documents that best answer the question.",
    ),
    "QQP": Expected(
        hub="embedding-data/QQP_triplets",
        columns=(("set.query", "set.pos[0]"),),
        negatives=("set.neg[]",),
        hard=None,
        divisor=50,
        instruction="Given a question, retrieve questions from Quora forum that are semantically equivalent "
        "to the given question.",
    ),
    "SENTENCECOMP": Expected(
        hub="embedding-data/sentence-compression",
        columns=(("set[0]", "set[1]"),),  # The text's direction; the code has the other.
        instruction="Given a sentence, retrieve semantically equivalent summaries.",
    ),
    "STACKEXCHANGE": Expected(
        hub="sentence-transformers/stackexchange-duplicates",
        configs=("body-body-pair", "post-post-pair"),
        columns=(("body1", "body2"), ("post1", "post2")),
        # Blank in Table 7: the wording of StackOverflow.
        instruction="Retrieve duplicate questions from StackExchange forum.",
    ),
    "STACKOVERFLOW": Expected(
        hub="mteb/stackoverflowdupquestions-reranking",
        columns=(("query", "positive[0]"),),
        negatives=("negative[]",),
        hard=None,
        divisor=50,
        instruction="Retrieve duplicate questions from StackOverflow forum.",
    ),
    "STS12": Expected(
        hub="mteb/sts12-sts",
        columns=(("sentence1", "sentence2"),),
        scored=True,
        instruction="Retrieve semantically similar text.",
    ),
    "STSBENCHMARK": Expected(
        hub="mteb/stsbenchmark-sts",
        columns=(("sentence1", "sentence2"),),
        scored=True,
        instruction="Retrieve semantically similar text.",
    ),
    "TRIVIAQA": Expected(
        hub="sentence-transformers/trivia-qa-triplet",
        configs=("triplet",),
        columns=(("anchor", "positive"),),
        negatives=("negative",),
        hard=1,
        divisor=3,
        instruction="Given a question, retrieve documents that answer the question.",
    ),
    "WIKIHOW": Expected(
        hub="sentence-transformers/wikihow",
        columns=(("text", "summary"),),
        instruction="Given a Wikihow post, retrieve titles that best summarize the post.",
    ),
}

NAMED = {
    "AGNEWS": "Given a news title, retrieve relevant articles.",
    "MEDMCQA": "Given a medical question, retrieve relevant passages that answer the question.",
    "MEDMCQA_CLUST": "Identify the main category of medical exams based on their questions and answers.",
    "NPR": "Given a news title, retrieve relevant articles.",
    "YAHOO_CLUST": "Identify the main topic of Yahoo posts based on their titles and answers.",
}
"""The sets that only the text names."""

CODE = {
    "scale": 1 / 0.07,
    "alpha": 0.5,
    "batch_size": 128,
    "groups": 4,
    "draws": "replacement",
    "reduction": "sum",
    "instructions": "none",
    "max_steps": 2_000,
    "learning_rate": 1e-4,
    "betas": (0.9, 0.95),
    "eps": 1e-8,
    "weight_decay": 0.01,
    "decay_all": True,
    "clip": 1.0,
    "precision": "bfloat16",
    "max_length": 1024,
    "pooling": "mean",
    "distinct": False,
}
SETTINGS = {
    "": {**CODE, "reduction": "mean", "instructions": "both", "dropout": 0.1},
    "code": CODE,
    "job": {**CODE, "alpha": 0.1, "batch_size": 32},
}
"""Where the text is silent, its variant has the code's values."""

GROUPS = {
    128: {"CONCURRENTQA": 6, "GOOAQ": 18, "PUBMEDQA": 5, "QQP": 2, "STACKOVERFLOW": 2, "TRIVIAQA": 42},
    32: {"CONCURRENTQA": 1, "GOOAQ": 4, "PUBMEDQA": 1, "TRIVIAQA": 10},
}
"""Rows of a group by the target batch; a half of it for all others."""


def opened(variant: str, **settings: Any) -> MixRecipe:
    recipe = RECIPE.open(variant, replace(RECIPE.settings[variant], **settings))
    assert isinstance(recipe, MixRecipe)
    return recipe


def mix(variant: str) -> dict[str, MixSet]:
    return {one.name: one for one in opened(variant).sets}


@pytest.mark.parametrize(("variant", "name"), [*product(SETTINGS, SETS)])
def test_each_set_is_that_of_paper_and_code(variant: str, name: str) -> None:
    found, wanted = mix(variant)[name], SETS[name]
    columns = wanted.columns
    if name == "SENTENCECOMP" and variant:
        columns = (("set[1]", "set[0]"),)
    assert (found.divisor, found.instruction) == (wanted.divisor, wanted.instruction)
    assert [part.config for part in found.data] == [*wanted.configs]
    assert [part.columns for part in found.data] == [(*pair, *wanted.negatives) for pair in columns]
    for part in found.data:
        assert (part.path, part.split, part.judged) == (wanted.hub, "train", wanted.judged)
        assert part.filter == (("score", ">", 4) if wanted.scored and not variant else None)
        assert ("the text names no least score" in found.note) == (part.filter is not None)
        lists = [path.several for path in part.paths[2:]]
        assert lists == ([True] if wanted.hard is None else [False] * wanted.hard)
        assert (part.classes, part.score, part.held_out, part.first) == ("", "", 0, None)


@pytest.mark.parametrize("variant", SETTINGS)
def test_sets_without_a_loader_are_in_the_mix_of_the_text_alone(variant: str) -> None:
    assert mix(variant).keys() == SETS.keys() | (set() if variant else NAMED.keys())
    instructions = {name: one.instruction for name, one in mix("").items() if name in NAMED}
    assert instructions == NAMED


@pytest.mark.parametrize("variant", SETTINGS)
def test_settings_are_those_of_text_and_code(variant: str) -> None:
    settings = opened(variant).settings
    assert isinstance(settings, MixSettings)
    found = {name: getattr(settings, name) for name in SETTINGS[variant]}
    assert found == SETTINGS[variant]
    if variant:
        assert settings.count_warmup_steps(2_000) == 2_000


@pytest.mark.parametrize(("variant", "batch_size"), [("", 128), ("code", 128), ("job", 32)])
def test_a_group_has_the_rows_of_the_code(variant: str, batch_size: int) -> None:
    settings = opened(variant).settings
    assert isinstance(settings, MixSettings)
    for name in SETS.keys() - ({"QQP", "STACKOVERFLOW"} if variant == "job" else set()):
        one = mix(variant)[name]
        assert settings.count_group_rows(one.divisor) == GROUPS[batch_size].get(name, batch_size // 2), name


def test_the_job_is_refused_until_the_two_sets_without_rows_are_left_out() -> None:
    for name in ("QQP", "STACKOVERFLOW"):
        with pytest.raises(UsageError, match=f"{name} has 32 // 50 = 0 rows") as caught:
            opened("job", sets=(name,)).attach_user_data(())
        assert "--set batch_size=50" in str(caught.value.hint)
        assert "--set sets=" in str(caught.value.hint)
    with pytest.raises(UsageError, match="0 rows"):
        opened("job").attach_user_data(())
    others = tuple(name for name in SETS if name not in ("QQP", "STACKOVERFLOW"))
    opened("job", sets=others).attach_user_data(())
    opened("job", batch_size=50).attach_user_data(())
