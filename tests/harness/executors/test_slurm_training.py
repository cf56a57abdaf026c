"""A training through Slurm, with torch: it is preempted, and goes on from its checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
from datasets import Dataset
from safetensors.numpy import load_file

import tiny
from fake_slurm import FakeSlurm
from finetune.embedding.settings import EmbeddingSettings
from finetune.recipes import simcse
from harness.core.types import Artifact
from harness.data.training.sets import LocatedTraining, TrainingData
from harness.jobs.jobs import Job
from harness.training.training import TrainingSpec, read_log
from queued_jobs import Training, ends, executor, wait
from stopped_trainings import sentence


@pytest.mark.slow
def test_a_preempted_training_goes_on_from_its_checkpoint_to_the_same_weights(
    folder: Path, tmp_path: Path, slurm: FakeSlurm
) -> None:
    backbone = tiny.folder(tiny.families()["bert"], tmp_path / "tiny")
    columns = {name: [sentence(at * 1000 + n) for n in range(64)] for at, name in enumerate(("a", "b"))}
    Dataset.from_dict(columns).to_parquet(str(tmp_path / "rows.parquet"))
    data = TrainingData(content="c" * 64, columns=("a", "b"), rows=64)
    rows = LocatedTraining(data=data, file=tmp_path / "rows.parquet", name="rows", rows=64, own=True)
    settings = EmbeddingSettings(
        batch_size=4, epochs=15, max_length=16, learning_rate=1e-3, precision="float32"
    )
    whole, cut = (
        TrainingSpec(
            recipe=simcse.RECIPE.open("mean", settings),
            backbone=Artifact(name="tiny", source="tiny", folder=backbone, key="a" * 64, weights="b" * 64),
            data=(rows,),
            seed=7,
            key="k" * 64,
            folder=tmp_path / name,
            cache=tmp_path / "cache",
            threads=1,
            minutes=60.0,
        )
        for name in ("whole", "cut")
    )
    whole.folder.mkdir()
    whole.recipe.train(whole)
    made = executor(folder, workers=1)
    made.submit(Job(key="training", kind="train", label="training", work=Training(spec=cut)), {})
    wait(lambda: made.poll_jobs(0.1) or len(read_log(cut.log.path)) > 20, 120)
    (name,) = slurm.tasks("RUNNING")
    slurm.preempt(name, everywhere=True)
    wait(lambda: made.poll_jobs(0.1) or slurm.get(name)["restarts"] == 1, 60)
    steps = len(read_log(cut.log.path))
    assert not cut.output.exists()
    assert [path.name for path in cut.checkpoints.iterdir()] == [f"step-{steps:08}"]
    (finished,) = ends(made, 1, 120)
    made.close_executor()
    assert finished.output == {"code": b"0"}
    assert [line["step"] for line in read_log(cut.log.path)] == list(range(1, 241))
    weights = [load_file(spec.output / "model.safetensors") for spec in (whole, cut)]
    assert weights[0].keys() == weights[1].keys()
    assert all((weights[0][one] == weights[1][one]).all() for one in weights[0])
    wait(lambda: not slurm.processes())
