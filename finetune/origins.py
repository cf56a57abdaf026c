"""Sources of settings: repositories at a commit, the form of their lists, and defaults of libraries."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import replace

from harness.core.sources import Source

SIMCSE = "princeton-nlp/SimCSE@49fa580a8537:"
MODERNBERT = "AnswerDotAI/ModernBERT@8c57a0f01c12:"
ETTIN = "JHU-CLSP/ettin-encoder-vs-decoder@6cbf954a2eca:"
PYLATE = "lightonai/pylate@1f1f47cee5df:"
NEOBERT = "chandar-lab/NeoBERT@ed75b68dbbe8:"
MOSAICBERT = "mosaicml/examples@v0.0.4:examples/bert/"
EFFICIENT = "SeqDM/Efficient-Embeddings@3ff54333aa85:"
CDE = "jxmorris12/cde@9d776b09998d:"
PEFT = "huggingface/peft@v0.6.2:"


def read_sources(
    repository: str, text: str, base: Mapping[str, Mapping[str, Source]] | None = None
) -> dict[str, dict[str, Source]]:
    """The sources of settings by variant.

    Args:
        repository: Where files are, unless their line names another repository.
        text: Lines of four kinds: `path: name 12, name 14`, settings with their lines in a file;
            `[place]: name, name`, settings that a paper states; and `name = text`, what other sources say, or
            `name := text`, what is done here. A line `:variant` goes before those of a variant, and "*" is
            every setting without a source.
        base: Further sources by variant, which those of the text replace.
    """
    sources: dict[str, dict[str, Source]] = {"": {}}
    variant = ""
    for line in re.sub(r"\n {4,}", " ", inspect.cleandoc(text)).splitlines():
        if line.startswith(":"):
            variant = line.removeprefix(":")
            continue
        where, _, names = line.partition(": ")
        if note := re.match(r"([\w.*]+) (:?)= (.*)", line):
            fields = {note[1]: {"here" if note[2] else "other": note[3]}}
        elif where.startswith("["):
            fields = {name: {"place": where.strip("[]")} for name in names.split(", ")}
        else:
            file = where if "@" in where else f"{repository}{where}"
            pairs = (item.rpartition(" ") for item in names.split(", "))
            fields = {name: {"code": f"{file}#L{number}"} for name, _, number in pairs}
        named = sources.setdefault(variant, {})
        for name, field in fields.items():
            named[name.strip("*")] = replace(named.get(name.strip("*"), Source()), **field)
    for variant, inherited in (base or {}).items():
        sources[variant] = {**inherited, **sources.get(variant, {})}
    return sources


TRAINER = read_sources(
    "huggingface/transformers@v5.3.0:src/transformers/",
    """
    training_args.py: weight_decay 812, betas 818, eps 830, warmup 788, schedule 778, clip 856,
        last_batch 1272, selection 1206, seed 1245
    trainer.py: batches 1032, decay_all 1288
    [default of transformers' Trainer]: weight_decay, betas, eps, warmup, schedule, clip, batches,
        last_batch, decay_all, selection, seed
    """,
)[""]
"""The settings that a script for transformers' trainer, or one built on it, leaves at their defaults."""

SENTENCES = read_sources(
    "huggingface/sentence-transformers@v5.3.0:sentence_transformers/",
    """
    SentenceTransformer.py: pooling 2138
    losses/CachedMultipleNegativesRankingLoss.py: scale 76, group_size 79
    [default of sentence-transformers]: pooling, scale, group_size
    """,
)[""]

ADAMW = read_sources(
    "pytorch/pytorch@v2.11.0:torch/optim/",
    """
    adamw.py: betas 25, eps 26
    [default of torch's AdamW]: betas, eps
    """,
)[""]

MTEB = {"evaluation.similarity": Source(place="default of mteb")}
