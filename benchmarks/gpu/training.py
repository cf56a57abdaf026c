"""Steps of the recipes' trainers beside those of the libraries' trainers, in bfloat16 on a GPU.

SimCSE and DPR (with GradCache) beside SentenceTransformerTrainer, of whose micro-batches the fastest counts;
a GLUE run of pairs as long as RTE's beside transformers' Trainer, and eight of them at once, in a process
each, beside eight of its runs one after the other. Times are those between two steps, the first steps left
out. MFU counts 3 forward passes a step, 4 with GradCache. `busy` is the share of a step in which the device
computes, by the profiler, of a run of its own.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from gpu.session import Session, count_flops, draw_texts

from finetune.glue.model import Classifier
from finetune.glue.rows import TokenizedRows
from finetune.glue.settings import Cadence, ClassifierHead, Trial
from finetune.glue.trainer import Evaluation, train_classifier
from finetune.recipes import dpr, glue_quick, simcse
from small_trainings import located, spec_in, tiny_artifact

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A training of an embedding model.

    Attributes:
        model: The backbone.
        recipe: The recipe.
        mixes: The texts of each column.
        length: Where they are cut.
        steps: Steps of a run.
        chunks: Micro-batches of the library; 0 for a loss without GradCache.
        bar: How many times the library's speed is asked on a GPU.
    """

    model: str
    recipe: str
    mixes: tuple[str, str, str]
    length: int
    steps: int
    chunks: tuple[int, ...]
    bar: float


NLI, MSMARCO = ("nli", "queries", "queries"), ("queries", "passages", "passages")
CASES = (
    Case(model="bert-base", recipe="simcse", mixes=NLI, length=32, steps=20, chunks=(0,), bar=1.5),
    Case(model="bert-base", recipe="dpr", mixes=MSMARCO, length=256, steps=4, chunks=(16, 128), bar=2.0),
    Case(model="modernbert-base", recipe="simcse", mixes=NLI, length=32, steps=20, chunks=(0,), bar=1.5),
)
BATCH = 512

RUNS, RUNS_BAR = 8, 4.0
"""GLUE runs at once, and how many times the speed of one after the other is asked of them."""


def iter_rows(session: Session) -> Iterator[Row]:
    """A row for each training."""
    yield from (_compare(session, case) for case in CASES[:1])
    yield from _iter_glue(session)
    yield from (_compare(session, case) for case in CASES[1:])


def find_missed(row: Row) -> list[str]:
    """What a row on a GPU falls short of."""
    short = row["ratio"] < row.get("bar", 0.0)
    return [f"{row['model']}, {row['training']}: {row['ratio']:.2f} times, not {row['bar']}"] if short else []


# Embedding models


def _compare(session: Session, case: Case) -> Row:
    folder, batch = session.make_model(case.model), session.choose(BATCH, 4)
    steps, rows = session.choose(case.steps, 3), batch * (session.choose(case.steps, 3) + 1)
    columns, lengths = {}, []
    for seed, (name, mix) in enumerate(zip(("anchor", "positive", "negative"), case.mixes, strict=True)):
        columns[name], tokens = draw_texts(mix, rows, seed, longest=session.longest)
        lengths.append(np.minimum(tokens, case.length))
    encoder = session.load_encoder(folder)
    passes = 4 if case.chunks[0] else 3
    flops = passes * count_flops(encoder.model[0].auto_model, np.concatenate(lengths)) * batch / rows
    del encoder
    ours, busy, kernels = _time_recipe(session, case, folder, columns, batch, steps)
    library = {
        chunk: _time_library(session, folder, columns, batch, steps, case.length, min(chunk, batch))
        for chunk in case.chunks
    }
    best = min(library.values())
    share = flops / session.measure_ceiling()
    return {
        "model": case.model,
        "training": case.recipe,
        "batch": batch,
        "mean tokens": float(np.mean(lengths)),
        "ours ms": 1000 * ours,
        "library ms": 1000 * best,
        "ratio": best / ours,
        "bar": case.bar,
        "MFU": share / ours,
        "MFU library": share / best,
        "busy": busy / ours,
        "kernels a step": kernels,
    }


def _time_recipe(
    session: Session, case: Case, folder: Path, columns: dict[str, list[str]], batch: int, steps: int
) -> tuple[float, float, float]:
    """Seconds of a step of the recipe's own training, those in which the device computes, and its kernels."""
    precision = session.dtype
    changes = {"batch_size": batch, "max_length": case.length, "precision": precision, "epochs": 1}
    if case.recipe == "simcse":
        recipe, variant, settings = simcse.RECIPE, "mean", replace(simcse.SETTINGS, pooling="mean")
    else:
        recipe, variant, settings = dpr.RECIPE, "", dpr.SCRIPT

    def train(count: int, place: Path) -> None:
        asked = replace(settings, **changes, max_steps=count)
        spec = spec_in(
            place,
            recipe.open(variant, asked),
            backbone=tiny_artifact(folder),
            data=(located(place, columns),),
            devices=(f"{session.device}:0" if session.on_gpu else session.device,),
            minutes=60,
            threads=None,
        )
        spec.recipe.train(spec)

    first, few = max(1, steps // 4), session.choose(6, 2)
    with tempfile.TemporaryDirectory() as place, session.mark_steps(first, steps) as marks:
        train(steps, Path(place))
    with tempfile.TemporaryDirectory() as place:
        busy, kernels = session.count_kernels(lambda: train(few, Path(place)))
    return (marks[1] - marks[0]) / (steps - first), busy / few, kernels / few


def _time_library(
    session: Session,
    folder: Path,
    columns: dict[str, list[str]],
    batch: int,
    steps: int,
    length: int,
    chunk: int,
) -> float:
    """Seconds of a step of sentence-transformers' trainer on its own network, with SDPA."""
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
        losses,
        models,
    )

    options = {"attn_implementation": "sdpa", "dtype": torch.float32}
    body = models.Transformer(str(folder), max_seq_length=length, model_args=options)
    pooling = models.Pooling(body.get_word_embedding_dimension(), "mean")
    model = SentenceTransformer(modules=[body, pooling], device=session.device)
    loss: Any = losses.MultipleNegativesRankingLoss(model)
    if chunk:
        loss = losses.CachedMultipleNegativesRankingLoss(model, mini_batch_size=chunk)
    with tempfile.TemporaryDirectory() as place:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=place,
            per_device_train_batch_size=batch,
            max_steps=steps,
            **_build_plain_arguments(session),
        )
        trainer = SentenceTransformerTrainer(
            model=model, args=arguments, train_dataset=Dataset.from_dict(columns), loss=loss
        )
        first = max(1, steps // 4)
        with session.mark_steps(first, steps) as marks:
            trainer.train()
    return (marks[1] - marks[0]) / (steps - first)


def _build_plain_arguments(session: Session) -> dict[str, Any]:
    """What both libraries' trainers are told."""
    return {
        "learning_rate": 5e-5,
        "bf16": session.on_gpu,
        "use_cpu": not session.on_gpu,
        "logging_steps": 1_000_000,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "seed": 0,
    }


# GLUE


def _iter_glue(session: Session) -> Iterator[Row]:
    folder, runs, rows = session.make_model("bert-base"), session.choose(RUNS, 2), session.choose(1600, 64)
    trial = _build_trial(session, rows)
    ours = _time_glue_run(session, folder, trial, rows)
    library = _time_glue_library(session, folder, trial, rows)
    row = {"model": "bert-base", "batch": trial.batch_size, "library ms": 1000 * library}
    yield {**row, "training": "glue", "ours ms": 1000 * ours, "ratio": library / ours}
    # Warm, and then all at once: spawned where a GPU's state forbids to fork.
    context: Any = multiprocessing.get_context("spawn" if session.on_gpu else "fork")
    barrier = context.Barrier(runs + 1)
    jobs = [
        context.Process(target=_time_glue_run, args=(session, folder, trial, rows, barrier))
        for _ in range(runs)
    ]
    for job in jobs:
        job.start()
    barrier.wait(timeout=60)
    began = time.perf_counter()
    barrier.wait()
    seconds = (time.perf_counter() - began) / (rows // trial.batch_size) / runs
    for job in jobs:
        job.join()
    yield {
        **row,
        "training": f"{runs} × glue",
        "ours ms": 1000 * seconds,
        "ratio": library / seconds,
        "bar": RUNS_BAR,
    }


def _build_trial(session: Session, rows: int) -> Trial:
    training = replace(
        glue_quick.PROTOCOL.training,
        autocast=session.dtype,
        cadence=Cadence(at_most=rows),
        head=ClassifierHead(pooling="first", dense="fresh", activation="tanh", dropout=0.1),
    )
    return Trial(
        task="RTE", learning_rate=5e-5, batch_size=16, weight_decay=0.01, epochs=1, seed=0, training=training
    )


def _draw_pairs(session: Session, rows: int) -> tuple[list[str], list[str], list[int]]:
    """Pairs that are as long as those of RTE, two thirds of it the first text, and their labels."""
    words = [text.split() for text in draw_texts("pairs", rows, longest=session.longest)[0]]
    cuts = [max(1, 2 * len(text) // 3) for text in words]
    first = [" ".join(text[:cut]) for text, cut in zip(words, cuts, strict=True)]
    second = [" ".join(text[cut:-1]) for text, cut in zip(words, cuts, strict=True)]
    return first, second, [number % 2 for number in range(rows)]


def _time_glue_run(session: Session, folder: Path, trial: Trial, rows: int, barrier: Any = None) -> float:
    """Seconds of a step of a run, after a short one; it begins and ends with those of other processes."""
    from transformers import AutoTokenizer

    first, second, labels = _draw_pairs(session, rows)
    given = TokenizedRows.tokenize_rows(
        AutoTokenizer.from_pretrained(folder),
        [first, second],
        labels,
        max_length=trial.training.max_length,
        device=torch.device(session.device),
        numbers=False,
    )
    model = Classifier.load_classifier(folder, trial, classes=2)[0].to(session.device)
    nothing = Evaluation(step=0, metrics={("dev", "accuracy"): 0.0}, predictions={})
    train_classifier(model, given.take(torch.arange(2 * trial.batch_size)), trial, lambda *_: nothing)
    wait = (lambda: None) if barrier is None else barrier.wait
    wait()
    seconds = session.measure_seconds(lambda: train_classifier(model, given, trial, lambda *_: nothing))
    wait()
    return seconds / (rows // trial.batch_size)


def _time_glue_library(session: Session, folder: Path, trial: Trial, rows: int) -> float:
    """Seconds of a step of transformers' Trainer on the same rows."""
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
    )

    tokenizer = AutoTokenizer.from_pretrained(folder)
    first, second, labels = _draw_pairs(session, rows)
    encoded = tokenizer(first, second, truncation=True, max_length=trial.training.max_length)
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2, dtype=torch.float32)
    steps = rows // trial.batch_size
    with tempfile.TemporaryDirectory() as place:
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=place,
                per_device_train_batch_size=trial.batch_size,
                num_train_epochs=1,
                weight_decay=0.01,
                **_build_plain_arguments(session),
            ),
            train_dataset=Dataset.from_dict({**encoded, "labels": labels}),
            data_collator=DataCollatorWithPadding(tokenizer),
        )
        with session.mark_steps(2, steps) as marks:
            trainer.train()
    return (marks[1] - marks[0]) / (steps - 2)
