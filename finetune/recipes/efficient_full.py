"""Compute-optimal contrastive fine-tuning of all weights (Ziarko et al. 2024)."""

from __future__ import annotations

from finetune.efficient.settings import EfficientSettings
from finetune.recipes._efficient import VALUES, efficient

SETTINGS = EfficientSettings(**VALUES)

RECIPE = efficient(
    SETTINGS, "efficient-full", "Embedding models of pairs within a budget: all weights", code=SETTINGS
)
