"""A training of an embedding model on a GPU: passes by its memory, and losses that are read together."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tiny
from finetune.embedding.settings import EmbeddingSettings, SuggestedRows
from finetune.recipes.simcse import RECIPE
from harness.data.training.sets import LocatedTraining, TrainingData
from harness.training.training import TrainingSpec, read_log
from small_trainings import spec_in, tiny_artifact
from stopped_trainings import sentence

pytestmark = pytest.mark.gpu

SETTINGS = EmbeddingSettings(batch_size=32, epochs=2, max_length=32, precision="bfloat16", max_steps=25)


def spec_of(folder: Path, name: str, chunk: int) -> TrainingSpec:
    columns = ("anchor", "positive", "negative")
    table = pa.table(
        {column: [sentence(1000 * at + n) for n in range(500)] for at, column in enumerate(columns)}
    )
    pq.write_table(table, folder / "rows.parquet")
    data = TrainingData(content="c" * 64, columns=columns, rows=500)
    rows = LocatedTraining(data=data, file=folder / "rows.parquet", name="rows", rows=500, own=True)
    backbone = tiny_artifact(tiny.folder(tiny.families()["bert"], folder / "tiny"))
    recipe = RECIPE.open("mean", replace(SETTINGS, chunk=chunk))
    return spec_in(folder, recipe, name, backbone=backbone, data=(rows,), devices=("cuda:0",), minutes=60)


@pytest.mark.parametrize("chunk", [0, 4, SuggestedRows(4)])
def test_every_step_is_in_the_log(tmp_path: Path, chunk: int) -> None:
    spec = spec_of(tmp_path, "run", chunk)
    spec.recipe.train(spec)
    lines = read_log(spec.folder / "log.jsonl")
    assert [line["step"] for line in lines] == list(range(1, 26))
    assert all(math.isfinite(line["loss"]) and line["memory"] > 0 for line in lines)
    said = "tokens in a pass, as the memory of the GPU allows" in (spec.folder / "events.jsonl").read_text()
    assert said == isinstance(chunk, SuggestedRows)
