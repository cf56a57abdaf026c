"""Efficient-Embeddings: four ways to train within a budget, on eight tasks (Ziarko et al. 2024)."""

from __future__ import annotations

from harness.jobs.protocol import ProtocolColumn, ProtocolEntry, ProtocolStep, ProtocolTable
from suites.mteb_efficient8 import BITEXT, TASKS

METHODS = ("full", "freeze", "lora", "bias")

QUICK = {
    "recipe_settings": {"max_steps": 4, "batch_size": 16},
    "tasks": TASKS,
    "max_length": 128,
}

COLUMNS = {**{name: name for name in (*TASKS, BITEXT)}, "Avg. score": "tasks"}

PROTOCOL = ProtocolEntry(
    name="efficient",
    summary="Efficient-Embeddings: all weights, the last blocks, LoRA and biases, each on eight tasks",
    steps=tuple(
        ProtocolStep(
            name=method,
            request={"recipe": (f"efficient-{method}",), "suites": ("mteb-efficient8",)},
            quick=QUICK,
            differs=(
                "table 1 of the paper, on these tasks, is of partial tuning alone (appendix D.2), as the "
                "step freeze",
                "the paper trains within a budget of operations: without --budget each method has one pass "
                "over its pairs",
                "table 1 has their averages by temperature, for a Pythia of unprinted size",
            ),
        )
        for method in METHODS
    ),
    tables=(
        ProtocolTable(
            paper="efficient-embeddings",
            table="1",
            columns=tuple(
                ProtocolColumn(name=name, step="freeze", suite="mteb-efficient8", of=of)
                for name, of in COLUMNS.items()
            ),
            lines={method: method for method in METHODS},
        ),
    ),
)
