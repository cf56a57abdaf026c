"""Training: what it starts from, and its loop."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tiny
from finetune.glue import trainer
from finetune.glue.model import Classifier
from finetune.glue.rows import Batch, TokenizedRows, adapt_trial
from finetune.glue.schedule import Schedule
from finetune.glue.settings import Cadence, ClassifierHead, Optimizer, Protocol, Stopping, Training, Trial
from finetune.glue.trainer import (
    Evaluation,
    Progress,
    build_autocast,
    compute_cross_fit,
    predict,
    train_classifier,
)
from finetune.recipes import glue_modernbert, glue_neobert, glue_quick
from harness.core.errors import ModelError
from harness.encoder.library_load import let_end_pad, require_padding

# The training loop against transformers' Trainer, float64 by hand, and its own rules


CPU = torch.device("cpu")
TEXTS = ["the cat sat", "on the mat 42", "a query: what", "x", "the mat sat on the cat, the cat", "42 mats?"]

TRAINING = Training(
    optimizer=Optimizer(betas=(0.9, 0.999), eps=1e-8, undecayed=("bias", "norm.weight")),
    schedule=Schedule(name="linear", warmup=0.1),
    max_length=32,
    autocast="float32",
    head=ClassifierHead(),
    clip=1.0,
    shuffled=False,
    cadence=Cadence(batches=1),
)
TRIAL = Trial(
    task="SST-2", learning_rate=1e-3, batch_size=4, weight_decay=0.01, epochs=5, seed=3, training=TRAINING
)


def rows(count: int = 40, *, numbers: bool = False) -> TokenizedRows:
    draw = torch.Generator().manual_seed(0)
    picked = torch.randint(len(TEXTS), (2, count), generator=draw).tolist()
    labels = torch.rand(count, generator=draw) * 5 if numbers else torch.randint(2, (count,), generator=draw)
    return TokenizedRows.tokenize_rows(
        tiny.tokenizer(),
        [[TEXTS[i] for i in column] for column in picked],
        labels.tolist(),
        max_length=32,
        device=CPU,
        numbers=numbers,
    )


def classifier(classes: int = 2, *, seed: int = 0, head: ClassifierHead | None = None) -> Classifier:
    encoder = tiny.network(
        tiny.families()["bert"], hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, seed=seed
    )
    torch.manual_seed(seed)
    return Classifier(encoder, width=32, classes=classes, head=head or ClassifierHead())


def scored(*values: float) -> Any:
    """Evaluations that give these values, one after the other, the last again and again."""
    given = iter(values)
    last = [values[-1]]

    def evaluate(_model: nn.Module, step: int) -> Evaluation:
        return Evaluation(step=step, metrics={("dev", "accuracy"): next(given, last[0])}, predictions={})

    return evaluate


class Wrapped(nn.Module):
    """A classifier as transformers' Trainer wants one."""

    def __init__(self, model: Classifier) -> None:
        super().__init__()
        self.inside = model

    def forward(self, labels: Tensor, num_items_in_batch: Any = None, **inputs: Tensor) -> dict[str, Tensor]:
        scores = self.inside(**inputs)
        return {"loss": Batch(inputs=inputs, labels=labels).compute_batch_loss(scores), "logits": scores}


def by_the_trainer(model: Classifier, given: TokenizedRows, trial: Trial, target: Path) -> list[float]:
    """The same run by transformers: its batches, its optimizer, its schedule; the losses."""
    from transformers import Trainer, TrainingArguments

    class Data(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return len(given)

        def __getitem__(self, at: int) -> int:
            return at

    def collate(chosen: list[int]) -> dict[str, Tensor]:
        batch = given.batch(torch.tensor(chosen))
        return {**batch.inputs, "labels": batch.labels}

    class Ordered(Trainer):
        def _get_train_sampler(self, *_args: Any) -> Any:
            return torch.utils.data.SequentialSampler(range(len(given)))

        def create_optimizer(self, *_args: Any) -> Any:
            plain = [p for n, p in self.model.named_parameters() if "bias" in n or "norm.weight" in n]
            known = {id(p) for p in plain}
            rest = [p for p in self.model.parameters() if id(p) not in known]
            self.optimizer = torch.optim.AdamW(
                [
                    {"params": rest, "weight_decay": trial.weight_decay},
                    {"params": plain, "weight_decay": 0.0},
                ],
                lr=trial.learning_rate,
                fused=True,  # the trainer's own choice; a key's bias has a gradient of rounding alone
            )
            return self.optimizer

    steps = trial.count_trial_steps(len(given))
    arguments = TrainingArguments(
        output_dir=str(target),
        per_device_train_batch_size=trial.batch_size,
        num_train_epochs=trial.epochs,
        learning_rate=trial.learning_rate,
        warmup_steps=-(-steps // 10),
        lr_scheduler_type="linear",
        max_grad_norm=1.0,
        logging_steps=1,
        logging_nan_inf_filter=False,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        remove_unused_columns=False,
        label_names=["labels"],
    )
    trainer = Ordered(model=Wrapped(model), args=arguments, train_dataset=Data(), data_collator=collate)
    trainer.train()
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize("numbers", [False, True])
def test_fifty_losses_and_the_weights_are_the_trainers(tmp_path: Path, numbers: bool) -> None:
    given = rows(numbers=numbers)
    ours, theirs = (classifier(1 if numbers else 2) for _ in range(2))
    progress = train_classifier(ours, given, TRIAL, scored(0.5))
    losses = by_the_trainer(theirs, given, TRIAL, tmp_path)
    assert len(progress.losses) == len(losses) == 50
    # The trainer logs four digits behind the point.
    assert progress.losses == pytest.approx(losses, abs=1e-4, rel=1e-4)
    assert progress.losses[-1] < progress.losses[0]
    for (name, one), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert (one - other).abs().max() <= 1e-4, name


def test_composers_decay_is_that_of_its_formula() -> None:
    """A float64 loop: Adam's step, and before it the weight times 1 - lr / peak * decay."""
    peak, decay, betas, eps = 8e-2, 3e-3, (0.9, 0.98), 1e-6
    training = replace(TRAINING, optimizer=Optimizer(betas=betas, eps=eps, decay="composer"), clip=None)
    trial = replace(TRIAL, training=training, learning_rate=peak, weight_decay=decay)
    layer = nn.Linear(3, 1, bias=False).double()
    weight = layer.weight.detach().clone()
    first, second = torch.zeros_like(weight), torch.zeros_like(weight)
    optimizer = trial.build_optimizer(layer)
    x = torch.randn(20, 3, dtype=torch.float64)
    for step in range(20):
        rate = peak * training.schedule.compute_factor(step, steps=20)
        for group in optimizer.param_groups:
            group["lr"] = rate
        gradient = 2 * (x[step] @ weight[0]) * x[step][None]
        layer(x[step]).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        first = betas[0] * first + (1 - betas[0]) * gradient
        second = betas[1] * second + (1 - betas[1]) * gradient**2
        weight = weight * (1 - rate / peak * decay)
        hat = (first / (1 - betas[0] ** (step + 1)), second / (1 - betas[1] ** (step + 1)))
        weight = weight - rate * hat[0] / (hat[1].sqrt() + eps)
    assert (layer.weight - weight).abs().max() < 1e-12


def run(evaluations: Iterator[float] | list[float], **changes: Any) -> Progress:
    stopping = Stopping(**changes)
    training = replace(TRAINING, cadence=Cadence(at_most=2), stopping=stopping)
    return train_classifier(classifier(), rows(), replace(TRIAL, training=training), scored(*evaluations))


def test_it_stops_as_neoberts_code_does() -> None:
    """The counter begins with 1, a record sets it to 0, and the run ends once it is the patience."""
    never = run([0.0], patience=3, counts="best")
    assert [e.step for e in never.evaluations] == [2, 4]
    found = run([0.5, 0.4, 0.6, 0.6, 0.1, 0.2], patience=3, counts="best")
    assert [e.step for e in found.evaluations] == [2, 4, 6, 8, 10, 12]
    assert found.best is not None
    assert (found.best.step, found.best.watched) == (6, 0.6)
    assert len(found.losses) == 12


def test_without_patience_the_end_counts() -> None:
    found = run([0.9, 0.1], patience=None, counts="last")
    assert len(found.losses) == 50
    assert found.evaluations[-1].step == 50
    assert found.weights is None


def test_an_evaluation_chosen_and_scored_on_the_same_rows_errs_upward_and_a_cross_fitted_one_does_not() -> (
    None
):
    """Forty evaluations of a coin: the best has more than half right; by hand, half by half."""
    draw = np.random.default_rng(1)
    gold = draw.integers(2, size=400).astype(float)
    coins = draw.integers(2, size=(40, 400)).astype(float)
    right = (coins == gold).mean(axis=1)
    evaluations = [
        Evaluation(
            step=n, metrics={("dev", "accuracy"): right[n]}, predictions={"dev": torch.tensor(coins[n])}
        )
        for n in range(40)
    ]
    ((_, found),) = compute_cross_fit(evaluations, {"dev": gold.tolist()}).items()
    assert right.max() > 0.54
    assert abs(found - 0.5) < 0.015
    draw = np.random.default_rng(42)
    firsts = [draw.permutation(400) < 200 for _ in range(10)]
    halves = [half for first_half in firsts for half in (first_half, ~first_half)]
    by_hand = []
    for at, half in enumerate(halves):
        other = halves[at + 1 if at % 2 == 0 else at - 1]
        assert (half ^ other).all()
        assert half.sum() == 200
        best = max(range(40), key=lambda n, half=half: (coins[n][half] == gold[half]).mean())
        by_hand.append((coins[best][other] == gold[other]).mean())
    assert found == pytest.approx(np.mean(by_hand))


def test_one_model_is_chosen_for_every_split_and_metric() -> None:
    """By the first metric of the first split; a single good evaluation is its own cross-fitted score."""
    gold = {"m": [0.0, 1.0] * 20, "mm": [0.0, 1.0] * 20}
    right, wrong = torch.tensor(gold["m"]), 1 - torch.tensor(gold["m"])
    names = [("m", "accuracy"), ("m", "f1"), ("mm", "accuracy"), ("mm", "f1")]
    made = [
        Evaluation(step=n, metrics=dict.fromkeys(names, 0.0), predictions={"m": one, "mm": other})
        for n, (one, other) in enumerate([(wrong, right), (right, wrong), (right, right)])
    ]
    assert compute_cross_fit(made, gold) == dict(zip(names, (1.0, 1.0, 0.0, 0.0), strict=True))


def test_the_best_weights_are_kept() -> None:
    model, kept = classifier(), {}

    def evaluate(_model: nn.Module, step: int) -> Evaluation:
        if step == 20:
            kept.update({n: t.clone() for n, t in model.state_dict().items()})
        return Evaluation(
            step=step, metrics={("dev", "accuracy"): 0.9 if step == 20 else 0.5}, predictions={}
        )

    training = replace(TRAINING, stopping=Stopping(counts="best"))
    found = train_classifier(model, rows(), replace(TRIAL, training=training), evaluate)
    assert found.weights is not None
    assert all(torch.equal(found.weights[name], tensor) for name, tensor in kept.items())
    assert any(not torch.equal(kept[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("behind", [False, True], ids=["cpu", "gpu"])
def test_a_run_that_diverges_ends_and_says_so(behind: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU it is seen when the losses are read, and those behind it are not kept."""
    monkeypatch.setattr(trainer, "works_behind", lambda _kind: behind)
    model = classifier()
    with torch.no_grad():
        model.classifier.weight.fill_(float("nan"))
    found = train_classifier(model, rows(), TRIAL, scored(0.5))
    assert found.diverged
    assert len(found.losses) == 1
    assert not found.evaluations


def test_steps_on_a_gpu_are_those_of_the_cpu_and_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses, what is told and weights; an evaluation and the end read what is left of ten steps."""
    trial = replace(TRIAL, training=replace(TRAINING, cadence=Cadence(at_most=24)))
    runs, read, tolist = {}, list[int](), torch.Tensor.tolist

    def count(self: Tensor) -> Any:
        if sys._getframe(1).f_code.co_name == "_read_losses":
            read.append(len(self))
        return tolist(self)

    monkeypatch.setattr(torch.Tensor, "tolist", count)
    for behind in (False, True):
        monkeypatch.setattr(trainer, "works_behind", lambda _kind, behind=behind: behind)
        model, told = classifier(), list[tuple[int, int, float]]()
        read.clear()
        found = train_classifier(
            model, rows(), trial, scored(0.5), tell=lambda *step, told=told: told.append(step)
        )
        runs[behind] = found.losses, told, [one.step for one in found.evaluations], model.state_dict()
    *plain, weights = runs[False]
    *ahead, others = runs[True]
    assert plain == ahead
    assert all(torch.equal(others[name], tensor) for name, tensor in weights.items())
    assert sum(read) == 50
    assert len(read) <= 5 + len(plain[2])


def test_memory_that_runs_out_halves_what_is_computed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train_classifier(classifier(), rows(), TRIAL, scored(0.5))
    model = classifier()
    plain = model.forward

    def small(**inputs: Tensor) -> Tensor:
        if model.training and len(inputs["input_ids"]) > 2:
            raise torch.OutOfMemoryError
        return plain(**inputs)

    monkeypatch.setattr(model, "forward", small)
    found = train_classifier(model, rows(), TRIAL, scored(0.5))
    assert found.micro_batch == 2
    assert found.notes == ["memory ran out: 2 rows at once from then on, steps as asked"]
    assert found.losses == pytest.approx(whole.losses, abs=1e-5)


def test_memory_that_runs_out_makes_scored_batches_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    given, model = rows(), classifier()
    whole = predict(model, given)
    plain, seen = model.forward, []

    def small(**inputs: Tensor) -> Tensor:
        seen.append(inputs["input_ids"].numel())
        if seen[-1] > 600:
            raise torch.OutOfMemoryError
        return plain(**inputs)

    monkeypatch.setattr(model, "forward", small)
    monkeypatch.setattr(trainer, "EVALUATED", 2048)
    assert torch.equal(predict(model, given), whole)
    assert max(seen) > 600
    monkeypatch.setattr(trainer, "LEAST", 1024)
    with pytest.raises(torch.OutOfMemoryError):
        predict(model, given)


def test_runs_are_scored_in_their_own_precision() -> None:
    """As in the authors' code, which evaluates in the context that it trains in."""
    given, model = rows(), classifier()
    half = build_autocast(CPU, replace(TRIAL, training=replace(TRAINING, autocast="bfloat16")))
    seen = []
    hook = model.classifier.register_forward_hook(lambda _m, _i, out: seen.append(out.dtype))
    predict(model, given, autocast=half)
    whole = build_autocast(CPU, replace(TRIAL, training=replace(TRAINING, autocast="float16")))
    predict(model, given, autocast=whole)
    hook.remove()
    assert seen == [torch.bfloat16, torch.float32]


def test_the_order_of_rows() -> None:
    plain = [chosen.tolist() for chosen in rows(10).iter_row_batches(replace(TRIAL, epochs=2))]
    assert plain == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]] * 2
    drawn = replace(TRIAL, epochs=2, training=replace(TRAINING, shuffled=True))
    found = [row for chosen in rows(10).iter_row_batches(drawn) for row in chosen.tolist()]
    assert sorted(found[:10]) == sorted(found[10:]) == list(range(10))
    assert found[:10] != found[10:]
    again = [row for chosen in rows(10).iter_row_batches(drawn) for row in chosen.tolist()]
    other = [row for chosen in rows(10).iter_row_batches(replace(drawn, seed=4)) for row in chosen.tolist()]
    assert found == again != other


def test_predictions_stand_at_their_rows() -> None:
    given, model = rows(), classifier(3)
    model.eval()
    with torch.no_grad():
        alone = [int(model(**given.batch(torch.tensor([i])).inputs).argmax()) for i in range(len(given))]
    assert predict(model, given).tolist() == alone
    assert len(set(alone)) > 1


def test_the_head_by_hand() -> None:
    head = ClassifierHead(
        pooling="mean", activation="gelu", dense_bias=False, dropout=0.5, dropout_before=0.5
    )
    model = classifier(2, head=head).eval().double()
    batch = rows().batch(torch.tensor([3, 4]))
    with torch.no_grad():
        found = model(**batch.inputs)
        hidden = model.encoder(**batch.inputs).last_hidden_state
        for row in range(2):
            count = int(batch.inputs["attention_mask"][row].sum())
            mean = hidden[row, :count].mean(dim=0)
            dense = nn.functional.gelu(model.dense.weight @ mean)
            expected = model.classifier.weight @ dense + model.classifier.bias
            assert (found[row] - expected).abs().max() < 1e-6
    assert model.dense.bias is None


def test_modernberts_last_layer_is_cut_at_twice_its_deviation() -> None:
    """std width^-0.5, as `final_out` of its code; a cut at two leaves 0.88 of the deviation."""
    torch.manual_seed(0)
    made = Classifier(
        nn.Identity(), width=400, classes=50, head=first(glue_modernbert.PROTOCOL).training.head
    )
    weight = made.classifier.weight.detach()
    assert weight.abs().max() <= 2 * 400**-0.5
    assert weight.std().item() == pytest.approx(0.8796 * 400**-0.5, rel=0.02)
    assert not made.classifier.bias.any()
    assert made.dense.weight.std().item() == pytest.approx(0.02, rel=0.02)


def test_transfer_keeps_all_but_the_last_layer() -> None:
    source, target = classifier(3, seed=1), classifier(2, seed=2)
    fresh = target.classifier.weight.clone()
    target.start_from(source.list_transferable_tensors())
    assert torch.equal(target.dense.weight, source.dense.weight)
    assert torch.equal(target.encoder.embeddings.tokens.weight, source.encoder.embeddings.tokens.weight)  # type: ignore[union-attr]
    assert torch.equal(target.classifier.weight, fresh)


# What a run starts from: dense layers, what is decayed, and what a backbone does not allow


def first(protocol: Protocol, task: str = "CoLA") -> Any:
    return protocol.list_trials(task)[0]


def library(folder: Path, *, pooler: bool) -> Path:
    """A small MPNet, which runs through transformers' own class."""
    from transformers import MPNetConfig, MPNetModel

    config = MPNetConfig(
        vocab_size=160,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=64,
    )
    MPNetModel(config, add_pooling_layer=pooler).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


@pytest.mark.parametrize("pooler", [False, True])
@pytest.mark.parametrize("protocol", [glue_neobert.PROTOCOL, glue_quick.PROTOCOL, glue_modernbert.PROTOCOL])
def test_a_library_backbone_starts_as_the_seed_says(tmp_path: Path, protocol: Protocol, pooler: bool) -> None:
    """Two builds are one model; the pooler is taken if it was trained and is asked for."""
    from transformers import AutoModel

    folder, trial = library(tmp_path, pooler=pooler), first(protocol)
    one, notes = Classifier.load_classifier(folder, trial, classes=2)
    torch.randn(7)
    other, _ = Classifier.load_classifier(folder, trial, classes=2)
    assert all(torch.equal(tensor, other.state_dict()[name]) for name, tensor in one.state_dict().items())
    asked = trial.training.head.dense
    there: Any = AutoModel.from_pretrained(folder)
    taken = pooler and asked == "pooler"
    assert torch.equal(one.dense.weight, there.pooler.dense.weight) == taken
    assert any("has no dense layer" in note for note in notes) == (asked != "fresh" and not taken)


UNDECAYED = ("bert", "roberta")
"""Families whose authors call norms so; the others' are decayed, as in NeoBERT's code."""


@pytest.mark.parametrize("family", sorted(tiny.families()))
def test_what_neoberts_code_does_not_decay(family: str, tmp_path: Path) -> None:
    """It looks for "bias" and "LayerNorm.weight" in the names that the authors of a backbone gave."""
    folder = tiny.folder(tiny.families()[family], tmp_path)
    model, _ = Classifier.load_classifier(folder, first(glue_neobert.PROTOCOL), classes=2)
    optimizer = first(glue_neobert.PROTOCOL).build_optimizer(model)
    spared = {id(p) for p in optimizer.param_groups[1]["params"]}
    names = {name: id(p) for name, p in model.named_parameters()}
    biases = {name for name in names if name.endswith("bias")}
    assert all(names[name] in spared for name in biases)
    norms = {name for name in names if "norm" in name and name.endswith("weight")}
    assert norms
    if family in UNDECAYED:
        assert all(names[name] in spared for name in norms)
    if family in ("neobert", "modernbert"):
        assert not any(names[name] in spared for name in norms)


@pytest.mark.parametrize("family", sorted(tiny.families()))
def test_the_trainer_decays_no_norm(family: str, tmp_path: Path) -> None:
    """transformers' trainer spares every norm and bias, whatever it is called."""
    folder = tiny.folder(tiny.families()[family], tmp_path)
    model, _ = Classifier.load_classifier(folder, first(glue_quick.PROTOCOL), classes=2)
    optimizer = first(glue_quick.PROTOCOL).build_optimizer(model)
    spared = {id(p) for p in optimizer.param_groups[1]["params"]}
    wanted = {id(p) for n, p in model.named_parameters() if n.endswith("bias") or "norm" in n}
    assert spared == wanted


def test_half_precision_is_not_forced_on_a_family_that_overflows(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "deberta-v2"}')
    trial, notes = adapt_trial(tmp_path, first(glue_neobert.PROTOCOL))
    assert trial.autocast == "float32"
    assert "run in float32" in notes[0]
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    assert adapt_trial(tmp_path, first(glue_neobert.PROTOCOL)) == (first(glue_neobert.PROTOCOL), [])


def test_a_decoder_is_not_read_by_its_first_token(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt_neox"}')
    trial, notes = adapt_trial(tmp_path, first(glue_neobert.PROTOCOL))
    assert trial.training.head.pooling == "mean"
    assert "the mean of all tokens" in notes[-1]
    tokenizer = tiny.tokenizer()
    tokenizer.pad_token, tokenizer.eos_token = None, "[SEP]"
    let_end_pad(tokenizer)
    require_padding(tokenizer)
    assert tokenizer.pad_token == "[SEP]"
    tokenizer.pad_token = tokenizer.eos_token = None
    let_end_pad(tokenizer)
    with pytest.raises(ModelError, match="neither a padding token nor an end token"):
        require_padding(tokenizer)


@pytest.mark.parametrize("classes", [1, 2])
def test_a_model_that_ends_infinite_has_diverged(tmp_path: Path, classes: int) -> None:
    """The loss of the last step comes before its update, so only the scores tell."""
    folder = tiny.folder(tiny.families()["bert"], tmp_path)
    quick = first(glue_quick.PROTOCOL)
    clipless = replace(quick.training, clip=None, schedule=Schedule(name="linear", warmup=0.0))
    trial = replace(quick, learning_rate=1e30, batch_size=8, training=clipless)
    model, _ = Classifier.load_classifier(folder, trial, classes=classes)
    rows = TokenizedRows.tokenize_rows(
        tiny.tokenizer(),
        [["the cat", "sat on"] * 4],
        [0.0, 1.0] * 4,
        max_length=16,
        device=torch.device("cpu"),
        numbers=classes == 1,
    )
    metrics = ["pearson", "spearman"] if classes == 1 else ["accuracy"]
    found = train_classifier(
        model, rows, trial, lambda m, step: Evaluation.evaluate_splits(m, {"dev": rows}, metrics, step)
    )
    assert len(found.losses) == 1
    assert torch.isfinite(torch.tensor(found.losses)).all()
    assert torch.isnan(predict(model, rows)).any()
    assert found.diverged
