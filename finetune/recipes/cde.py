"""Contextual document embeddings of two stages (Morris and Rush 2024), with the numbers of NeoBERT."""

from __future__ import annotations

from dataclasses import fields, replace

from finetune.cde.plan import TwoStageRecipe
from finetune.cde.prefixes import build_prefix_table
from finetune.cde.settings import ContextualSettings, TwoStageTrainingSettings
from finetune.embedding.plan import Variant, entry
from finetune.embedding.settings import SuggestedRows, info_nce
from finetune.origins import CDE
from finetune.recipes import cde_batching
from harness.core.sources import read_sources
from harness.data.training.sets import TrainingData
from harness.jobs.recipe import PrintedRow

UNSUPERVISED = TrainingData(
    path="jxm/nomic_embed_unsupervised",
    revision="250c2c11f7cf1eb8e2df6c96d93c9322415e5f40",
    columns=("query", "document"),
    rows=238_998_494,
)
"""Pairs of Nomic from the web, of 29 sources."""

SUPERVISED = TrainingData(
    path="jxm/nomic_embed_supervised",
    revision="7fb70730da8e12c5246c5e0c7c8840209832e47c",
    columns=("query", "document"),
    rows=1_695_819,
)
"""Pairs of Nomic from labelled data; its mined negatives are not read, as by default in the code."""

PREFIXES = {
    UNSUPERVISED.path: build_prefix_table(
        search="paq gooaq yahoo_title_answer yahoo_title_question yahoo_qa amazonqa eli5 squad",
        classification="amazon_reviews wikianswers wikipedia agnews ccnews npr cnn sentence_compression "
        "wikihow altlex quora simplewiki",
        clustering="reddit_title_body s2orc_citation_titles s2orc_title_abstract s2orc_abstract_citation "
        "s2orc_abstract_body codesearch stackexchange_duplicate_questions stackexchange_title_body "
        "stackexchange_body_body",
    ),
    # Under the names of their files, and the short ones that the code makes of them.
    SUPERVISED.path: build_prefix_table(
        search="msmarco msmarco_distillation_simlm_rescored_reranked_min15 "
        "nq_triples nq_cocondensor_hn_mine_reranked_min15 hotpot hotpotqa_hn_mine_shuffled "
        "fever fever_hn_mine",
        classification="nli_triplets nli_simcse_50negs_fixed medi_wiki medi_sts_wiki_rephrasal "
        "medi_stackexchange medi_sts_stackexchange_dupe medi_flickr medi_sts_flickr_sampled "
        "medi_supernli medi_supernli_sampled",
        clustering="reddit reddit_triples",
    ),
}
"""The prefixes of each source in the code, cde/config/nomic_{unsupervised,supervised}.yaml."""


def _build_two_stage_settings(
    settings: ContextualSettings, *, replacement: bool = False
) -> TwoStageTrainingSettings:
    """The settings of a recipe of one stage for two; a pass through the network has 32 texts."""
    same = {field.name: getattr(settings, field.name) for field in fields(ContextualSettings)}
    return TwoStageTrainingSettings(**{**same, "chunk": SuggestedRows(32)}, replacement=replacement)


PAPER = _build_two_stage_settings(cde_batching.PAPER)
"""The values of NeoBERT's appendix G; those of the model are the code's."""

AUTHORS = _build_two_stage_settings(cde_batching.AUTHORS, replacement=True)
"""The authors' command for their second training, and their draw of context documents."""

VARIANTS: dict[str, Variant[TwoStageTrainingSettings]] = {
    "unsupervised": Variant(
        summary="the first of the two trainings, on 239 M noisy pairs", settings=PAPER, data=(UNSUPERVISED,)
    ),
    "supervised": Variant(
        summary="the second, on 1.7 M clean pairs, or the only one", settings=PAPER, data=(SUPERVISED,)
    ),
    "supervised-authors": Variant(
        summary="the second by the authors' command: 5 epochs of 4,096 pairs in groups of 512, at 2e-5",
        settings=AUTHORS,
        data=(SUPERVISED,),
    ),
    "authors": Variant(
        summary="both, the second by the authors' command, with their draw of context documents",
        settings=AUTHORS,
        data=(SUPERVISED,),
    ),
}

SOURCES = read_sources(
    CDE,
    """
    cde/run_args.py: data 161, sequence_dropout 121, tied 133
    cde/model.py: soft_prompts 58, pooled 398, shuffle 66
    cde/config/nomic_supervised.yaml: prefixes 4
    cde/lib/eval/mteb.py: prompts 106
    [NeoBERT, appendix G.2]: data, context_size
    data = NeoBERT has 235 M and 1.5 M pairs, and mines no hard negatives; the code reads none of the data's
        by default (cde/run_args.py#L199)
    context_size := queries and documents have the same, of their group or batch, as in the code's gradient
        caching; never from other devices
    pooled = the command line takes the mean over context and prompts too
    evaluation.max_length = the code first cuts a text at four times as many characters
    rotary_from = in the code at the soft prompts (cde/model.py#L416)
    sequence_dropout = 0.005 in the text of CDE
    replacement = the code draws with replacement
    :unsupervised
    README.md: data 45
    cde/config/nomic_unsupervised.yaml: prefixes 5
    [NeoBERT, appendix G.2]: data, learning_rate, batch_size, warmup, cluster_size
    data = 235 M pairs in NeoBERT
    learning_rate = 2e-5 in the README's command, of a model with one stage
    batch_size = 1,024 pairs on each GPU in the README's command
    warmup = 5,600 in the README's command, divided by the GPUs
    cluster_size = 2,048 in the README's command
    :supervised
    cde/run_args.py: data 161
    [NeoBERT, appendix G.2]: data
    data = 1.5 M pairs in NeoBERT, which mines no hard negatives; the code reads none of the data's by default
        (cde/run_args.py#L199)
    :supervised-authors
    evaluate_mteb.py: replacement 184
    :authors
    evaluate_mteb.py: replacement 184
    """,
    {**cde_batching.SOURCES, "supervised-authors": cde_batching.SOURCES["authors"]},
)


_AUTHORS = replace(cde_batching.AUTHORS_EVALUATION, max_length=None)

EVALUATIONS = {
    "": replace(cde_batching.EVALUATION, max_length=None),
    **dict.fromkeys(("authors", "supervised-authors"), _AUTHORS),
}
"""Those of one stage; a two-stage model keeps the length of its training."""


PRINTED = PrintedRow(
    place="NeoBERT, table 5, NeoBERT",
    recipe="cde",
    model="chandar-lab/NeoBERT",
    suite="mteb-v1",
    differs=(
        "The paper does not print on how many GPUs a batch lies, nor which GTE-large is its guide: we take "
        "one, and thenlper/gte-large",
        "The paper prints 235 M and 1.5 M pairs: we take all of the authors' data, 239 M and 1.7 M",
    ),
)

RECIPE = replace(
    entry(
        TwoStageRecipe(
            name="cde",
            source="Contextual Document Embeddings and its code; NeoBERT, appendix G",
            data=(SUPERVISED,),
            loss=info_nce,
            prefixes=PREFIXES,
            settings=PAPER,
            defaults=PAPER,
        ),
        "Two-stage models, whose vectors depend on context documents: noisy pairs first, then clean ones",
        VARIANTS,
        SOURCES,
        EVALUATIONS,
        [PRINTED],
    ),
    chains={"": ("unsupervised", "supervised"), "authors": ("unsupervised", "supervised-authors")},
)
