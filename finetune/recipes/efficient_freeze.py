"""Compute-optimal contrastive fine-tuning of the last blocks, half of them (Ziarko et al. 2024)."""

from finetune.efficient.settings import FreezeSettings
from finetune.recipes._efficient import VALUES, build_efficient_entry

RECIPE = build_efficient_entry(FreezeSettings(**VALUES, frozen="1/2"), "the last blocks")
