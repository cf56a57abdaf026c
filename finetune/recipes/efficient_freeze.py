"""Compute-optimal contrastive fine-tuning of the last blocks (Ziarko et al. 2024)."""

from __future__ import annotations

from finetune.efficient.settings import FreezeSettings
from finetune.recipes._efficient import VALUES, build_efficient_entry

SETTINGS = FreezeSettings(**VALUES, frozen="1/2")
"""Half of the blocks is frozen; the paper has 0/6 to 5/6, or 0/8 to 7/8."""

RECIPE = build_efficient_entry(
    SETTINGS, "efficient-freeze", "Embedding models of pairs within a budget: the last blocks", code=SETTINGS
)
