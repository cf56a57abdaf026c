"""Compute-optimal contrastive fine-tuning by adapters of low rank (Ziarko et al. 2024)."""

from __future__ import annotations

from dataclasses import replace

from finetune.efficient.settings import LoraSettings
from finetune.recipes._efficient import VALUES, build_efficient_entry

SETTINGS = LoraSettings(**VALUES, rank=32, lora_alpha=8)
"""Adapters of rank 32 beside all dense layers, with peft's default of 8 for alpha."""

RECIPE = build_efficient_entry(
    SETTINGS,
    "efficient-lora",
    "Embedding models of pairs within a budget: adapters of low rank",
    code=replace(SETTINGS, lora_embeddings=True),
)
