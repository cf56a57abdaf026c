"""Every field of every run of the GLUE recipes against tables typed from the papers and their code."""

from __future__ import annotations

from dataclasses import asdict
from itertools import product
from typing import Any

import pytest

from finetune.glue.protocol import Cadence, Optimizer, Protocol
from finetune.recipes import glue_modernbert, glue_mosaicbert, glue_neobert, glue_optibert, glue_quick
from suites.glue import TASKS

NEO, OPTI = glue_neobert.PROTOCOL, glue_optibert.PROTOCOL
MODERN, MOSAIC, QUICK = glue_modernbert.PROTOCOL, glue_mosaicbert.PROTOCOL, glue_quick.PROTOCOL

ALL = ("CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI", "QNLI", "RTE")

NEO_TRAINING = {
    "optimizer": {
        "betas": (0.9, 0.95),
        "eps": 1e-8,
        "decay": "torch",
        "undecayed": ("bias", "LayerNorm.weight"),
    },
    "schedule": {"name": "neobert", "warmup": 0.06},
    "max_length": 1024,
    "autocast": "float16",
    "float32_tasks": (),
    "dropout": dict.fromkeys(("embedding", "attention", "attention_out", "mlp", "mlp_out"), 0.0),
    "head": {
        "pooling": "first",
        "dense": "fresh",
        "dense_bias": True,
        "activation": "tanh",
        "dropout_before": 0.1,
        "dropout": 0.1,
        "initializer_range": 0.02,
    },
    "clip": None,
    "shuffled": True,
    "cadence": {"steps": {}, "at_most": 1000, "full_batches": 1, "batches": None, "places": 0.1},
    "stopping": {"patience": 15, "counts": "best"},
}

COMPOSER = {
    "optimizer": {"betas": (0.9, 0.98), "eps": 1e-6, "decay": "composer", "undecayed": ()},
    "schedule": {"name": "linear", "warmup": 0.06},
    "max_length": 256,
    "autocast": "bfloat16",
    "float32_tasks": ("STS-B",),
    "clip": None,
    "cadence": {
        "steps": {
            "MNLI": 2300,
            "RTE": 100,
            "QQP": 2000,
            "CoLA": 250,
            "MRPC": 100,
            "QNLI": 1000,
            "SST-2": 500,
            "STS-B": 200,
        },
        "at_most": None,
        "full_batches": None,
        "batches": None,
        "places": None,
    },
    "stopping": {"patience": None, "counts": "last"},
}

MODERN_TRAINING = {
    **COMPOSER,
    "dropout": {"embedding": 0.0, "attention": 0.0, "attention_out": 0.1, "mlp": 0.0, "mlp_out": 0.0},
    "head": {
        "pooling": "first",
        "dense": "mlm",
        "dense_bias": False,
        "activation": "gelu",
        "dropout_before": 0.0,
        "dropout": 0.0,
        "initializer_range": 0.02,
    },
    "shuffled": True,
}

MOSAIC_TRAINING = {
    **COMPOSER,
    "dropout": {"embedding": 0.1, "attention": None, "attention_out": 0.1, "mlp": None, "mlp_out": 0.1},
    "head": {
        "pooling": "first",
        "dense": "pooler",
        "dense_bias": True,
        "activation": "tanh",
        "dropout_before": 0.0,
        "dropout": 0.1,
        "initializer_range": 0.02,
    },
    "shuffled": False,
}

FIVE, SIX = (5e-6, 6e-6, 1e-5, 2e-5, 3e-5), (5e-6, 6e-6, 8e-6, 1e-5, 2e-5, 3e-5)
DECAYS, MODERN_DECAYS = (1e-2, 1e-5), (1e-6, 5e-6, 8e-6, 1e-5)

Cells = dict[str, list[tuple[float, int, float, int, int]]]


def same(*values: tuple[Any, ...]) -> Cells:
    """The same cells for every task: rates, batches, decays, epochs, seeds."""
    return {name: list(product(*values)) for name in ALL}


MODERN_CELLS = {
    name: list(
        product(
            (1e-5, 3e-5, 5e-5, 8e-5),
            (64,),
            MODERN_DECAYS,
            (1, 2, 3) if name in ("SST-2", "MNLI", "RTE") else (2, 5, 10),
            (1618,),
        )
    )
    for name in ALL
}

MOSAIC_CELLS: Cells = {
    "MNLI": [(5e-5, 48, 5e-6, 3, 19)],
    "QNLI": [(1e-5, 16, 1e-6, 10, 19)],
    "QQP": [(3e-5, 16, 3e-6, 5, 19)],
    "SST-2": [(3e-5, 16, 3e-6, 3, s) for s in (19, 8364, 717)],
    "CoLA": [(5e-5, 32, 5e-6, 10, s) for s in (19, 8364, 717, 10536)],
    "RTE": [(1e-5, 16, 1e-5, 3, s) for s in (19, 8364, 717, 10536, 90166)],
    "MRPC": [(8e-5, 32, 8e-6, 10, s) for s in (19, 8364, 717, 10536, 90166)],
    "STS-B": [(3e-5, 32, 3e-6, 10, s) for s in (19, 8364, 717, 10536, 90166)],
}

NEO_START, MODERN_START = {"RTE", "STS-B", "MRPC", "QNLI"}, {"RTE", "STS-B", "MRPC"}

TABLE: list[tuple[Protocol, int, Cells, dict[str, Any], set[str], str, int]] = [
    (NEO, 320, same(FIVE, (4, 8, 16, 32), DECAYS, (10,), (0,)), NEO_TRAINING, NEO_START, "best", 0),
    (
        NEO.variants["table6"],
        480,
        same(SIX, (2, 4, 8, 16, 32), DECAYS, (10,), (0,)),
        NEO_TRAINING,
        NEO_START,
        "best",
        0,
    ),
    (
        NEO.variants["ablation"],
        48,
        same((1e-5, 2e-5, 3e-5), (16, 32), (1e-2,), (10,), (0,)),
        {**NEO_TRAINING, "max_length": 512},
        NEO_START,
        "best",
        0,
    ),
    (OPTI, 680, same(FIVE, (4, 8, 16, 32), DECAYS, (2, 10), (0,)), NEO_TRAINING, NEO_START, "best", 5),
    (MODERN, 384, MODERN_CELLS, MODERN_TRAINING, MODERN_START, "best", 0),
    (MOSAIC, 25, MOSAIC_CELLS, MOSAIC_TRAINING, MODERN_START, "none", 0),
    (
        MOSAIC.variants["bert-large"],
        25,
        {**MOSAIC_CELLS, "QQP": [(1.5e-5, 16, 3e-6, 5, 19)]},
        MOSAIC_TRAINING,
        MODERN_START,
        "none",
        0,
    ),
]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0].name}-{row[1]}")
def test_every_field_of_every_run(
    row: tuple[Protocol, int, Cells, dict[str, Any], set[str], str, int],
) -> None:
    protocol, runs, cells, training, start, selection, final = row
    assert protocol.runs == runs
    assert set(protocol.grids) == set(cells) == set(ALL)
    assert (protocol.selection, len(protocol.final_seeds)) == (selection, final)
    for name, expected in cells.items():
        trials = protocol.trials(name)
        found = [(t.learning_rate, t.batch_size, t.weight_decay, t.epochs, t.seed) for t in trials]
        assert sorted(found) == sorted(expected)
        assert len(set(found)) == len(found)
        for trial in trials:
            assert asdict(trial.training) == training
            assert trial.task == name
            assert trial.start == ("mnli" if name in start else "backbone")
            half = name not in training["float32_tasks"]
            assert trial.autocast == (training["autocast"] if half else "float32")


def test_the_tied_epochs_of_optiberts_table() -> None:
    tied = OPTI.variants["table4"]
    assert tied.runs == 320 + 40
    assert {name: {t.epochs for t in tied.trials(name)} for name in ALL} == {
        name: {2} if name in ("MNLI", "QQP") else {10} for name in ALL
    }


def test_the_quick_recipe_is_one_cell_and_three_seeds() -> None:
    assert QUICK.runs == 24
    assert {(t.learning_rate, t.batch_size, t.epochs) for n in ALL for t in QUICK.trials(n)} == {
        (5e-5, 16, 1)
    }


def test_the_tasks_are_those_of_glue() -> None:
    """Rows, labels and metrics, typed from the data set's card."""
    assert tuple(TASKS) == ALL
    rows = {
        **{"CoLA": (8551, (1043,)), "SST-2": (67349, (872,)), "MRPC": (3668, (408,))},
        **{"STS-B": (5749, (1500,)), "QQP": (363846, (40430,)), "QNLI": (104743, (5463,))},
        **{"MNLI": (392702, (9815, 9832)), "RTE": (2490, (277,))},
    }
    assert {name: (task.train_rows, task.dev_rows) for name, task in TASKS.items()} == rows
    assert {name: task.classes for name, task in TASKS.items() if task.classes != 2} == {
        "MNLI": 3,
        "STS-B": 1,
    }
    assert TASKS["QQP"].columns == ("question1", "question2")
    assert TASKS["QNLI"].columns == ("question", "sentence")
    assert [TASKS[n].metrics for n in ("CoLA", "MRPC", "STS-B", "SST-2")] == [
        ("mcc",),
        ("accuracy", "f1"),
        ("pearson", "spearman"),
        ("accuracy",),
    ]


@pytest.mark.parametrize(
    ("task", "batch_size", "steps"),
    [
        ("RTE", 32, 77),  # 2,490 // 32 = 77 is below 2,496 // 10 = 249
        ("RTE", 4, 249),  # 2,490 // 4 = 622, 2,492 // 10 = 249
        ("MNLI", 32, 1000),
        ("CoLA", 16, 534),  # 8,551 // 16
        ("SST-2", 4, 1000),
    ],
)
def test_neoberts_evaluations(task: str, batch_size: int, steps: int) -> None:
    cadence, rows = glue_neobert.TRAINING.cadence, TASKS[task].train_rows
    loader = -(-rows // batch_size)
    assert steps == min(1000, rows // batch_size, loader * batch_size // 10)
    assert cadence.every(task, rows=rows, batch_size=batch_size) == steps


def test_the_text_of_neobert_evaluates_ten_times_an_epoch() -> None:
    cadence = NEO.variants["cadence"].training.cadence
    assert cadence.every("RTE", rows=2490, batch_size=16) == min(500, 156 // 10)
    assert cadence.every("MNLI", rows=392_702, batch_size=16) == 500
    assert Cadence(batches=0.1).every("tiny", rows=5, batch_size=5) == 1


def test_composers_decay_in_torchs_terms() -> None:
    """A step's factor is 1 - (lr / peak) * decay there, and 1 - lr * decay in torch."""
    composer = Optimizer(betas=(0.9, 0.98), eps=1e-6, decay="composer")
    assert composer.torch_decay(5e-6, 5e-5) == pytest.approx(0.1)
    assert composer.torch_decay(1e-6, 8e-5) == pytest.approx(0.0125)
    for factor in (0.0, 0.3, 1.0):
        rate = factor * 8e-5
        assert rate * composer.torch_decay(1e-6, 8e-5) == pytest.approx(rate / 8e-5 * 1e-6)
    assert Optimizer(betas=(0.9, 0.95), eps=1e-8).torch_decay(1e-2, 5e-5) == 1e-2


def test_steps_of_a_run() -> None:
    trial = NEO.trials("RTE")[0]
    assert trial.batch_size == 4
    assert trial.steps(2490) == 10 * 623
