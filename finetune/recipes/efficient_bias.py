"""Compute-optimal contrastive fine-tuning of biases (Ziarko et al. 2024)."""

from __future__ import annotations

from finetune.efficient.settings import BiasSettings
from finetune.recipes._efficient import VALUES, build_efficient_entry

SETTINGS = BiasSettings(**VALUES)

RECIPE = build_efficient_entry(
    SETTINGS, "efficient-bias", "Embedding models of pairs within a budget: biases", code=SETTINGS
)
