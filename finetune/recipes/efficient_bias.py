"""Compute-optimal contrastive fine-tuning of biases (Ziarko et al. 2024)."""

from finetune.efficient.settings import BiasSettings
from finetune.recipes._efficient import VALUES, build_efficient_entry

RECIPE = build_efficient_entry(BiasSettings(**VALUES), "biases")
