"""Sources of settings: repositories at a commit, the form of their lists, and defaults of libraries."""

from __future__ import annotations

from harness.core.sources import Source, read_sources

SIMCSE = "princeton-nlp/SimCSE@49fa580a8537:"
MODERNBERT = "AnswerDotAI/ModernBERT@8c57a0f01c12:"
ETTIN = "JHU-CLSP/ettin-encoder-vs-decoder@6cbf954a2eca:"
PYLATE = "lightonai/pylate@1f1f47cee5df:"
NEOBERT = "chandar-lab/NeoBERT@ed75b68dbbe8:"
MOSAICBERT = "mosaicml/examples@v0.0.4:examples/bert/"
EFFICIENT = "SeqDM/Efficient-Embeddings@3ff54333aa85:"
CDE = "jxmorris12/cde@9d776b09998d:"
PEFT = "huggingface/peft@v0.6.2:"


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
