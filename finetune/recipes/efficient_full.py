"""Compute-optimal contrastive fine-tuning of all weights (Ziarko et al. 2024)."""

from __future__ import annotations

from finetune.efficient.settings import EfficientSettings
from finetune.recipes._efficient import VALUES, build_efficient_entry

SETTINGS = EfficientSettings(**VALUES)

RECIPE = build_efficient_entry(
    SETTINGS, "efficient-full", "Embedding models of pairs within a budget: all weights", code=SETTINGS
)
