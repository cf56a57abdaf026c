"""Compute-optimal contrastive fine-tuning by adapters of low rank (Ziarko et al. 2024)."""

from finetune.efficient.settings import LoraSettings
from finetune.recipes._efficient import VALUES, build_efficient_entry

RECIPE = build_efficient_entry(
    LoraSettings(**VALUES, rank=32, lora_alpha=8), "adapters of low rank", lora_embeddings=True
)
