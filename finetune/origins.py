"""The repositories that sources of settings name at a commit, and the defaults of libraries."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

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

_TRANSFORMERS = "huggingface/transformers@v5.3.0:src/transformers/"
_SENTENCES = "huggingface/sentence-transformers@v5.3.0:sentence_transformers/"


def _build_default(library: str, file: str) -> Source:
    return Source(f"default of {library}", file)


TRAINER: Mapping[str, Source] = MappingProxyType(
    {
        name: _build_default("transformers' Trainer", f"{_TRANSFORMERS}{file}")
        for name, file in {
            "weight_decay": "training_args.py#L812",
            "betas": "training_args.py#L818",
            "eps": "training_args.py#L830",
            "warmup": "training_args.py#L788",
            "schedule": "training_args.py#L778",
            "clip": "training_args.py#L856",
            "batches": "trainer.py#L1032",
            "last_batch": "training_args.py#L1272",
            "decay_all": "trainer.py#L1288",
            "selection": "training_args.py#L1206",
        }.items()
    }
)
"""The settings that a script for transformers' trainer, or one built on it, leaves at their defaults."""

ADAMW: Mapping[str, Source] = MappingProxyType(
    {
        "betas": _build_default("torch's AdamW", "pytorch/pytorch@v2.11.0:torch/optim/adamw.py#L25"),
        "eps": _build_default("torch's AdamW", "pytorch/pytorch@v2.11.0:torch/optim/adamw.py#L26"),
    }
)

SENTENCE_POOLING = _build_default("sentence-transformers", f"{_SENTENCES}SentenceTransformer.py#L2138")
SENTENCE_SCALE = _build_default(
    "sentence-transformers", f"{_SENTENCES}losses/CachedMultipleNegativesRankingLoss.py#L76"
)
ONE_GROUP = _build_default(
    "sentence-transformers", f"{_SENTENCES}losses/CachedMultipleNegativesRankingLoss.py#L79"
)
