"""Compute-optimal contrastive fine-tuning of all weights (Ziarko et al. 2024)."""

from finetune.efficient.settings import EfficientSettings
from finetune.recipes._efficient import VALUES, build_efficient_entry

RECIPE = build_efficient_entry(EfficientSettings(**VALUES), "all weights")
