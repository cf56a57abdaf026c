"""Contrastive fine-tuning on a mix of data sets with instructions, as NeoBERT has it (Le Breton 2025)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from finetune.embedding.plan import Variant, entry
from finetune.embedding.settings import SuggestedRows, info_nce
from finetune.mix.plan import MixRecipe
from finetune.mix.settings import MixSet, MixSettings
from finetune.origins import MTEB, NEOBERT
from finetune.recipes.simcse import NLI
from harness.core.encoding import EvaluationSettings
from harness.core.sources import read_sources
from harness.data.training.sets import TrainingData
from harness.jobs.recipe import PrintedRow

_FILE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
"""The sets and the instructions, with their places in the paper."""

TRAINING_INSTRUCTIONS: Mapping[str, str] = _FILE["training"]
"""The instruction of each training set, for queries and documents alike.

The released training code applies none. It has no loader of AGNEWS, MEDMCQA, MEDMCQA_CLUST, NPR and
YAHOO_CLUST. Its queries of SENTENCECOMP are the compressed sentences, the reverse of the instruction.
"""


def _split_sides(row: str) -> tuple[str, str]:
    """The instructions for queries and for documents, of an instruction with its field tags."""
    instruction, *tags = row.split(" | ")
    if not tags:
        return instruction, instruction
    return f"{instruction} {tags[0]}: ", f"{instruction} {tags[-1]}: "


EVALUATION_INSTRUCTIONS: Mapping[str, tuple[str, str]] = {
    task: _split_sides(row) for task, row in _FILE["evaluation"].items()
}
"""The instructions for queries and for documents of tasks of MTEB(eng, v1), with their field tags.

They are the strings of the code. Its tables differ in the clusterings of Biorxiv and Medrxiv ("main and
secondary category"), in SciDocsRR ("retrieve the relevant papers"), and have no tags but that of ArguAna.
"""

INSTRUCTIONS_BY_TYPE: Mapping[str, str] = _FILE["types"]
"""The instruction of all other tasks, by type; tasks of any other type have none."""


def list_task_instructions() -> dict[str, str]:
    """The instructions before the texts of tasks by the names of `select_prompt`.

    A task has one, or one for each side where they differ; other tasks have that of their type. The
    released code puts instructions only before what reaches `encode_queries` and `encode_corpus`; here the
    texts of every type of task have one.
    """
    later = {task: EVALUATION_INSTRUCTIONS[former] for task, former in _FILE["later"].items()}
    named = dict(INSTRUCTIONS_BY_TYPE)
    for task, (query, document) in {**EVALUATION_INSTRUCTIONS, **later}.items():
        same = {task: query} if query == document else None
        named |= same or {f"{task}-query": query, f"{task}-document": document}
    return named


def _build_set(fields: Mapping[str, Any]) -> MixSet:
    """A set of the file; one without data has the triplets of simcse."""
    data = [TrainingData(**{**one, "columns": tuple(one["columns"].split())}) for one in fields["data"]]
    instruction = TRAINING_INSTRUCTIONS[fields["name"]]
    return MixSet(**{**fields, "data": tuple(data) or (NLI,), "instruction": instruction})


CODE: tuple[MixSet, ...] = tuple(map(_build_set, _FILE["code"]))
"""The sets as the released code reads them."""

NAMED: tuple[MixSet, ...] = tuple(
    replace(one, note=f"the code has no loader of it: {one.note}") for one in map(_build_set, _FILE["named"])
)
"""Sets that the paper names and the code does not read."""


def _apply_paper_text(mix_set: MixSet) -> MixSet:
    """A set as the paper has it: compressions as the instruction says, and pairs of STS that belong together.

    The text names no score from which on they do: above 4 is what the code selects, and then does not use.
    """
    if mix_set.name.startswith("STS"):
        # As load_training counts them; nobody has printed the number of STS12.
        rows = 1_052 if mix_set.name == "STSBENCHMARK" else None
        data = (replace(mix_set.data[0], filter=("score", ">", 4.0), rows=rows),)
        note = "pairs above 4, which the code selects and does not use; the text names no least score"
        return replace(mix_set, data=data, note=note)
    if mix_set.name == "SENTENCECOMP":
        note = "the compressed sentence is the positive, as the instruction says; in the code it is the query"
        return replace(mix_set, data=(replace(mix_set.data[0], columns=("set[0]", "set[1]")),), note=note)
    return mix_set


TEXT: tuple[MixSet, ...] = (*map(_apply_paper_text, CODE), *NAMED)
"""The sets as the text has them."""

SETTINGS = MixSettings(
    batch_size=128,
    groups=4,
    alpha=0.5,
    draws="replacement",
    reduction="mean",
    instructions="both",
    dropout=0.1,
    max_steps=2_000,
    epochs=1,
    pooling="mean",
    max_length=1024,
    scale=1 / 0.07,
    learning_rate=1e-4,
    weight_decay=0.01,
    decay_all=True,
    betas=(0.9, 0.95),
    eps=1e-8,
    warmup=0.1,
    schedule="cosine_to_tenth",
    clip=1.0,
    precision="bfloat16",
    batches="shuffled",
    chunk=SuggestedRows(32),
)
"""The values of the text, and those of the released code where it is silent."""

RELEASED = replace(
    SETTINGS, instructions="none", reduction="sum", warmup=2_000, schedule="constant", dropout=0.0
)
"""The values of the released code, of which 2,000 steps are the warmup alone."""

EVALUATION = EvaluationSettings(max_length=1024, dtype="float16")
"""The length and autocast of the code's run on MTEB; vectors are not normalized."""

EVALUATIONS = {"": EVALUATION, "released": replace(EVALUATION, prompts={})}
"""With the instructions of training, and as the released `run_mteb.py` runs, without any."""

VARIANTS: dict[str, Variant[MixSettings]] = {
    "code": Variant(
        summary="the released code: no instructions, sums over batches, all pairs of STS, warmup to the end",
        settings=RELEASED,
    ),
    "job": Variant(
        summary="its job script: alpha 0.1, batches of 32, in which two sets have no row until left out",
        settings=replace(RELEASED, alpha=0.1, batch_size=32),
    ),
}

SOURCES = read_sources(
    NEOBERT,
    """
    src/neobert/contrastive/datasets.py: data 67
    src/neobert/contrastive/loss.py: loss 33, scale 9
    conf/optimizer/adamw.yaml: learning_rate 3, weight_decay 6, betas 4, eps 5
    conf/finetuning.yaml: batch_size 34
    src/neobert/contrastive/trainer.py: schedule 172, decay_all 168, pooling 310, draws 236, distinct 133,
        pool_instruction 310
    conf/trainer/contrastive.yaml: clip 7, precision 2, max_steps 12, selection 12
    conf/tokenizer/google.yaml: max_length 3
    jobs/contrastive/finetune.sh: groups 9
    conf/dataset/contrastive.yaml: alpha 4
    conf/mteb.yaml: evaluation.max_length 16
    conf/mteb_task_to_instruction_query.json: prompts 2
    scripts/evaluation/run_mteb.py: evaluation.dtype 180
    [NeoBERT, appendix D.2, table 7]: data
    [NeoBERT, section 5.2.1]: loss
    [NeoBERT, section 5.2.1, table 4]: max_steps
    [NeoBERT, appendix D.2]: scale
    [NeoBERT, table 4]: selection
    [NeoBERT, section 5.2.1, table 7]: instructions
    [NeoBERT, appendix D.3, table 8, table 9]: prompts
    data = five of the sets have no loader in the code; PAQ and QQP are in table 7 and the code, not in the
        list of appendix D.2; the code names no commits
    data := the commits are the newest that could be found, of Amazon-QA and QQP_triplets those of copies with
        the same rows; @main is no commit: the newest of the day is read, and the lineage of a model names it
    batch_size = 32 in the job script
    warmup = the code's 2,000 steps are all of the training; its rate begins at a ten-thousandth
    schedule = in the code it would end after 50,000 steps
    schedule := it ends with the last step
    precision = TF32 outside of autocast (conf/trainer/contrastive.yaml#L1)
    precision := float32 outside of autocast
    alpha = 0.1 in the job script
    reduction = the formula of section 5.2.1 is of one query; the code sums (loss.py#L9)
    instructions = the released training has none
    pool_instruction = the code takes all tokens of the tokenizer's mask
    dropout = the trainer refuses 0 (L68), and no other value is told; in the code it reaches attention's
        weights alone, not with flash attention; other layers have another, 0 (src/neobert/model/model.py#L41)
    seed = 0 in the code (conf/finetuning.yaml#L14, conf/mteb.yaml#L1)
    evaluation.dtype = the code has an autocast around the whole run
    draws := the code has steps of SimCSE on pretraining texts, too, which cannot run as released: none here
    prompts = the released run_mteb.py has no option for them
    prompts := those of the code's tables, which end in a word for the kind of text, before the texts of every
        type of task
    :code
    src/neobert/contrastive/datasets.py: data 67, instructions 75
    data := as the code reads them: of SENTENCECOMP the compressed sentence is the query
    conf/finetuning.yaml: warmup 30
    src/neobert/contrastive/trainer.py: schedule 171
    src/neobert/contrastive/loss.py: reduction 9
    src/neobert/model/model.py: dropout 41
    [NeoBERT, section 5.2.1, table 4]: max_steps
    warmup = the text has none; 2,000 is its number of steps
    schedule = after the warmup a cosine, to which 2,000 steps never come
    instructions = datasets are read as is
    max_steps = the code goes on to 200,000 (conf/trainer/contrastive.yaml#L5)
    dropout = the trainer refuses it (L68); with flash attention there is none in any case
    :job
    jobs/contrastive/finetune.sh: alpha 44, batch_size 43
    """,
    {"": MTEB},
)
SOURCES["job"] = {**SOURCES["code"], **SOURCES["job"]}


PRINTED = PrintedRow(
    place="NeoBERT, table 4, NeoBERT_4096 medium",
    recipe="unified-contrastive",
    model="chandar-lab/NeoBERT",
    suite="mteb-v1",
    differs=(
        "NeoBERT_4096 is the final, public model, of medium size as the table has it",
        "The paper trains with instructions, its code, which cannot run as released, without: we take the "
        "paper's; unified-contrastive:code is the other",
        "The paper does not print rate, batch and schedule: we take those of its code, for every backbone of "
        "the table, base or large",
    ),
)
SMALLER = replace(
    PRINTED,
    place="NeoBERT, table 4, ModernBERT base",
    model="answerdotai/ModernBERT-base",
    differs=PRINTED.differs[1:],
)

RECIPE = entry(
    MixRecipe(
        name="unified-contrastive",
        source="NeoBERT, section 5.2.1 and appendix D; scripts/contrastive of its code",
        data=tuple(part for one in TEXT for part in one.data),
        loss=info_nce,
        settings=SETTINGS,
        defaults=SETTINGS,
        mixes={"": TEXT, "code": CODE, "job": CODE},
        evaluation=list_task_instructions,
    ),
    "Embedding models on a mix of 22 data sets with instructions and hard negatives, as NeoBERT's",
    VARIANTS,
    SOURCES,
    EVALUATIONS,
    [PRINTED, SMALLER],
)
