"""Our network beside transformers with padding, as the suite `efficiency` times them, on small models.

    python benchmarks/efficiency.py

MiniLM, and models of the shapes of BERT, ModernBERT and NeoBERT with random weights, four layers of 256, on
the fixed and the variable set of 512 tokens. In every round each model and engine takes its turn; the bar is
the same order in each round. NeoBERT has no class in transformers, so both engines are our network, with and
without padding: of a fixed length they compute the same, and no order is asked.
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from measuring import format_table, load_encoder, locate_minilm, read_options, report_missed

from harness.core.types import Artifact, MeasuredModel
from harness.encoder.folder.description import compute_folder_identity
from suites._efficiency.measuring import (
    SpeedEngine,
    Workload,
    draw_lengths,
    measure_rounds,
    plan_engine,
    time_run,
)

SHAPES = ("bert", "modernbert", "neobert")
SIZES = {"hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 4, "num_hidden_layers": 4}
ENGINES, SETS = ("ours", "padded"), ("fixed", "variable")


def make_folder(name: str, target: Path) -> Path:
    """A model of the shape of a family that takes 512 tokens."""
    import tiny

    family = tiny.families()[name]
    usual = tiny.config(family)
    sizes = {key: value for key, value in SIZES.items() if key in usual}
    positions = {key: 512 for key in ("max_position_embeddings", "max_length") if key in usual}
    return tiny.folder(family, target, **sizes, **positions)


def load_networks(folder: Path) -> dict[str, Any]:
    """The model with each engine."""
    key, weights, _ = compute_folder_identity(folder)
    artifact = Artifact(name=folder.name, source=str(folder), folder=folder, key=key, weights=weights)
    model = MeasuredModel(
        artifact=artifact,
        dtype="float32",
        device="cpu",
        load=partial(load_encoder, folder),
        work=folder,
        announce=print,
        count=print,
        tell=print,
    )
    return {
        engine: SpeedEngine(kind=plan_engine(engine, artifact)[0], model=model).load_network()
        for engine in ENGINES
    }


def main() -> int:
    """Print the table; 1 if the order of two engines changes."""
    asked = read_options(__doc__, rounds=5, sequences=16, batch=8)
    rows, missed = [], []
    with tempfile.TemporaryDirectory() as place:
        folders = {name: make_folder(name, Path(place, name)) for name in SHAPES}
        networks = {name: load_networks(folder) for name, folder in folders.items()}
        networks["minilm"] = load_networks(locate_minilm())
        sets, runs = {}, {}
        for name, engines in networks.items():
            config = engines["ours"].model.config
            for which in SETS:
                sets[name, which] = Workload(
                    longest=512,
                    lengths=draw_lengths(which, 512, asked.sequences, least=32, seed=42),
                    config=config,
                )
                for engine, network in engines.items():
                    run = partial(time_run, network, sets[name, which], asked.batch)
                    run()
                    runs[engine, f"{name}, {which}", asked.batch] = run
        timings = measure_rounds(runs, asked.rounds, Path(place, "timings.json"))
    for name, which in sets:
        tokens = sum(sets[name, which].lengths)
        rates = {
            engine: [tokens / one.seconds for one in timings[engine, f"{name}, {which}", asked.batch]]
            for engine in ENGINES
        }
        faster = sum(a > b for a, b in zip(*rates.values(), strict=True))
        ratios = [a / b for a, b in zip(*rates.values(), strict=True)]
        if (name, which) != ("neobert", "fixed") and faster not in (0, asked.rounds):
            missed.append(f"{name}, {which}: ours is faster in {faster} of {asked.rounds} rounds")
        speeds = [f"{median(rates[engine]):,.0f}" for engine in ENGINES]
        rows.append([name, which, *speeds, f"{median(ratios):.2f}", f"{faster} of {asked.rounds}"])
    print(f"CPU, {torch.get_num_threads()} threads, float32, torch {torch.__version__}; tokens/s, no padding")
    print(format_table(["model", "set", *ENGINES, "ratio", "ours faster"], rows))
    return report_missed(missed)


if __name__ == "__main__":
    sys.exit(main())
