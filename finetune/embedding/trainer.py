"""The training of an embedding model: sentence-transformers' trainer, exact to the step after any kill."""

from __future__ import annotations

import math
import random
import resource
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors.torch import load_model, save_model
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments, set_seed
from transformers.trainer_pt_utils import nested_gather

from finetune.embedding.settings import SuggestedRows, TrainerSettings
from finetune.embedding.setups import NumberedRows, Setup, Slices, assign_groups
from finetune.gpu_steps import (
    READ_SECONDS,
    READ_STEPS,
    AheadLoader,
    PassSize,
    Step,
    choose_sum_dtype,
    keep_on_host,
    pack_on_host,
    works_behind,
)
from harness.core.errors import DivergenceError, HarnessError, StoreError
from harness.core.files import write_error
from harness.data.training.loading import describe_repeats, load_training
from harness.encoder.batches import takes_packing
from harness.results.cost.compute import ParameterCount
from harness.training.training import STOP, Checkpoints, TrainingLog, TrainingSpec

MODEL, STATE, PROGRESS = "model.safetensors", "state.pt", "trainer_state.json"
"""The files of a checkpoint: weights; optimizer, schedule and the best score; the trainer's own counts."""


def run_trainer(spec: TrainingSpec, settings: TrainerSettings, setup: Setup) -> None:
    """Train as the spec says, from the last whole checkpoint on, and write the model to `spec.output`.

    Args:
        spec: The training.
        settings: The settings of the recipe.
        setup: The parts that depend on the kind of model.

    Raises:
        DivergenceError: A loss, or a weight in the end, is not a finite number.
        HarnessError: Memory runs out, or the devices do not divide a batch.
        StoreError: A checkpoint or the model cannot be written.
    """
    if spec.output.is_dir():
        return
    trainer = _Trainer(spec, settings, setup)
    with _explain_memory_error(trainer):
        trainer.run()
    # A request to stop during the last step comes too late: the training is done.
    if not STOP.is_set() or trainer.finished:
        trainer.write_model()
    if spec.ranks > 1:
        # Otherwise torch (2.4 on) warns when the process ends.
        torch.distributed.destroy_process_group()


@dataclass(kw_only=True)
class _Best:
    """The best score of the selection so far, and its step."""

    score: float = -math.inf
    step: int = 0


class _Trainer(SentenceTransformerTrainer):
    """sentence-transformers' trainer with our own batches, checkpoints, log and selection."""

    def __init__(self, spec: TrainingSpec, settings: TrainerSettings, setup: Setup) -> None:
        self.spec, self.settings, self.setup = spec, settings, setup
        # Before the model is built: a new pooling draws its weights.
        set_seed(spec.seed)
        spec.log.note_stage("loading the data and the backbone")
        arguments = _build_arguments(spec, settings)
        # The first process writes the prepared data into the cache, and the others read it from there.
        with arguments.main_process_first(local=False):
            data = setup.load_training_rows(spec)
            self.order = setup.build_order(data, spec)
            chosen = [load_training(part, cache=spec.cache) for part in spec.selection]
            self.checkpoints = Checkpoints(spec.checkpoints)
            self._from = self.checkpoints.find_last_checkpoint(spec.log.note)
        for part in spec.data if spec.rank == 0 else ():
            for note in (*part.notes, *describe_repeats(part, spec.cache)):
                spec.log.note(note)
        self.selection = chosen[0] if chosen else None
        arguments.max_steps = self.order.steps
        arguments.warmup_steps = settings.count_warmup_steps(self.order.steps)
        model = setup.build_model(spec)
        rows = settings.batch_size // spec.ranks
        passes = settings.compute_pass_size(rows, spec.micro_batch) if setup.caches else None
        self._works_behind = works_behind(spec.device)
        self.sizes = self._build_pass_size(passes)
        super().__init__(
            model=model,
            args=arguments,
            train_dataset=data,
            loss=setup.build_loss(model, micro_batch=passes, gather=spec.ranks > 1),
            data_collator=setup.build_collator(model),
        )
        if {id(weight) for weight in cast(nn.Module, self.loss).parameters()} > {
            id(weight) for weight in cast(nn.Module, self.model).parameters()
        }:
            # Losses of other passes would have other weights of their own.
            self.sizes = None
        # With several processes torch moves everything that a pass is given to the GPU.
        self._packs_on_host = self._works_behind and spec.ranks == 1
        if self._packs_on_host:
            pack_on_host(cast(Any, self.model)[0])
        self.done = int(self._from.name.rpartition("-")[2]) if self._from else 0
        self.best = _Best()
        self._lines: list[dict[str, Any]] = []
        self._tokens = 0
        self._unread: list[Step] = []
        self._is_slow = False
        self._losses: dict[int | None, nn.Module] = {passes: cast(nn.Module, self.loss)}
        self._tokenizing = threading.Lock()
        # A two-stage module has two networks and none under this name.
        network = getattr(cast(Any, self.model)[0], "auto_model", None)
        self.parameters = None if network is None else ParameterCount.count_parameters(network)
        self._since = time.perf_counter()
        self.add_callback(_Cadence(self))

    @property
    def finished(self) -> bool:
        """Whether every step is done."""
        return bool(self.state.global_step >= self.order.steps)

    def _build_pass_size(self, passes: int | None) -> PassSize | None:
        """The sizes of passes by the memory of a GPU; None where those of the settings hold.

        Several processes keep the settings' as well: each pass is an exchange of gradients among them.
        """
        suggested = self.settings.chunk
        if passes is None or not isinstance(suggested, SuggestedRows) or not self._works_behind:
            return None
        return None if self.spec.ranks > 1 else PassSize(suggested, self.spec.micro_batch)

    def reads(self, step: int) -> bool:
        """Whether the losses are read after a step, the same steps in all processes."""
        every = READ_STEPS if self._works_behind and not self._is_slow else 1
        return step % every == 0 or step == self.order.steps

    def needs_evaluation(self, step: int) -> bool:
        """Whether the selection is evaluated after a step."""
        due = step == self.order.steps or step % self.setup.evaluate_every == 0
        return self.selection is not None and due

    def run(self) -> None:
        """Take all steps that are left, or those before a request to stop."""
        self.spec.log.begin(steps=self.order.steps, done=self.done)
        try:
            self.train(resume_from_checkpoint=str(self._from) if self._from else None)
        finally:
            self._write_log_lines()

    def write_model(self) -> None:
        """Write the model, the best one where there is a selection, by one rename."""
        if self.spec.rank > 0:
            return
        self.spec.log.note_stage("writing the model")
        if self.best.step:
            load_model(self.model, self._locate_best_file(self.best.step), device=str(self.model.device))
        if not all(bool(torch.isfinite(weight).all()) for weight in self.model.parameters()):
            raise DivergenceError("A weight is not a finite number after the last step.", hint=_LOWER)
        # A folder under its final name counts as a finished model, so that it gets the name when it is whole.
        staging = self.spec.output.with_name(self.spec.output.name + ".new")
        shutil.rmtree(staging, ignore_errors=True)
        with _explain_write_error(staging):
            self.setup.save_model_folder(self.model, staging)
            staging.rename(self.spec.output)

    # What the library's trainer calls

    def add_model_card_callback(self, default_args_dict: dict[str, Any]) -> None:
        """Add no model card: its callback asks the hub for facts on data and model."""

    def preprocess_dataset(self, dataset: Any = None, *_: Any, **__: Any) -> Any:
        """The rows as they are: the library would look at their columns, and not all rows have some."""
        return dataset

    def create_optimizer(self, *args: Any, **kwargs: Any) -> torch.optim.Optimizer:
        """The library's optimizer of the loss's weights, which must include every weight of the model."""
        optimizer: torch.optim.Optimizer = super().create_optimizer(*args, **kwargs)
        # The library looks for weights in the loss, and says nothing where the model is not among its
        # modules.
        optimizer_ids = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
        trained = ((name, one) for name, one in self.model.named_parameters() if one.requires_grad)
        if missing := [name for name, one in trained if id(one) not in optimizer_ids]:
            raise HarnessError(
                f"The loss {type(self.loss).__name__} leaves out {len(missing)} of the model's weights "
                f"({', '.join(missing[:3])}, …), which would stay as they are.",
                hint="Keep the model in the loss under the name `model`.",
            )
        return optimizer

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """The weights that decay: the library's choice, or all of them."""
        if self.settings.decay_all:
            return [name for name, _ in model.named_parameters()]
        return list(super().get_decay_parameter_names(model))

    def get_train_dataloader(self) -> DataLoader[Any]:
        """The batches of this process after the steps that are done; no other random state is touched."""
        rows: Any = self.train_dataset
        options: dict[str, Any] = {
            "dataset": NumberedRows(rows) if self.setup.numbered else rows,
            "batch_sampler": Slices(self.order, self.done, self.spec),
            "collate_fn": self.data_collator,
            # A DataLoader draws a seed for its workers, by default from torch's own generator: a resumed
            # training would then draw other dropout.
            "generator": torch.Generator(),
        }
        if not self._works_behind:
            return DataLoader(**options)
        return AheadLoader(**options, lock=self._tokenizing, pin_memory=True)

    def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The inputs on the device, whose copies are not waited for, but for what is read on the CPU."""
        # Pooling reads the first of the lengths of prompts as a number.
        host = ("prompt_length", *(["label"] if self.setup.labels_on_host else []))
        moved = {
            name: value
            if not isinstance(value, Tensor) or name.endswith(host)
            # From memory that is not pinned a copy to MPS may come after that memory is used again.
            else value.to(self.args.device, non_blocking=self._works_behind)
            for name, value in inputs.items()
        }
        return {**moved, **(keep_on_host(inputs) if self._packs_on_host else {})}

    def training_step(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Tensor:
        """The library's step, with its tokens counted and the part of this process in the loss."""
        masks = [value.numpy() for name, value in inputs.items() if name.endswith("attention_mask")]
        lengths = [mask.sum(axis=1) for mask in masks]
        self._tokens = sum(int(column.sum()) for column in lengths)
        if self.sizes is not None and not takes_packing(cast(Any, self.model)[0]):
            # Classes of transformers compute padding, too.
            lengths = [np.full(len(mask), mask.shape[1]) for mask in masks]
        if self.sizes is not None:
            self.loss = cast(Any, self._get_loss(self.sizes.choose_rows(lengths)))
        step = self.state.global_step + 1
        if group := self.order.group(step):
            rows = self.order.count_batch_rows(step)
            process_groups, count = assign_groups(rows, group, self.spec), math.ceil(rows / group)
            # torch takes the mean of gradients over processes, though some may have one group more: the share
            # gives every group of the batch the same weight.
            cast(Any, self.loss).share = len(process_groups) * self.spec.ranks / count
        if self.sizes is None or self.sizes.tokens:
            return super().training_step(model, inputs, *args, **kwargs)
        with self.sizes.measure_first_step(lengths):
            loss = super().training_step(model, inputs, *args, **kwargs)
        self._note_pass_size()
        return loss

    def _get_loss(self, rows: int | None) -> nn.Module:
        """The loss of the training with so many rows in a pass."""
        if rows not in self._losses:
            loss = self.setup.build_loss(self.model, micro_batch=rows, gather=False)
            self._losses[rows] = loss.to(self.args.device)
        return self._losses[rows]

    def _note_pass_size(self) -> None:
        assert self.sizes is not None
        self.spec.log.note(
            f"up to {self.sizes.tokens:,} tokens in a pass, as the memory of the GPU allows, in place of "
            f"{self.settings.chunk} rows"
        )

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Nothing: the library would log the means of the whole training."""

    def _maybe_log_save_evaluate(self, tr_loss: Tensor, grad_norm: Any, *args: Any, **kwargs: Any) -> None:
        """Keep the measurements of a step before the library evaluates and saves; it never logs."""
        step = self.state.global_step
        if step > self._globalstep_last_logged:
            self._globalstep_last_logged = step
            loss = nested_gather(tr_loss, self.args.parallel_mode).mean()
            self._add_step(loss, grad_norm, kwargs["learning_rate"])
            tr_loss.zero_()
            slow = self.spec.ranks == 1 and time.perf_counter() - self._since > READ_SECONDS
            if slow or self.reads(step) or self.control.should_evaluate:
                self._read_steps()
        super()._maybe_log_save_evaluate(tr_loss, grad_norm, *args, **kwargs)

    def _add_step(self, loss: Tensor, norm: Tensor, rate: float) -> None:
        number, measures = self.state.global_step, getattr(self.loss, "measures", {})
        values = (torch.as_tensor(value, device=loss.device) for value in (loss, norm, *measures.values()))
        memory = {"memory": _measure_peak_memory(self.spec.device)}
        self._unread.append(
            Step(
                number=number,
                line={"rate": rate, **memory, **self.setup.describe_step(number)},
                tokens=self._tokens,
                measures=tuple(measures),
                values=torch.stack([value.to(choose_sum_dtype(loss.device)) for value in values]),
            )
        )

    def _read_steps(self) -> None:
        """Add the lines of the steps since the last call, each of the mean time; this waits for the device.

        Raises:
            DivergenceError: A loss is not finite.
        """
        steps, self._unread = self._unread, []
        if not steps:
            return
        *tokens, summed_seconds = self.sum_over_ranks(
            [*(one.tokens for one in steps), time.perf_counter() - self._since]
        )
        # The same in all processes, which must agree before they are killed where one is asked to stop.
        self._is_slow = summed_seconds / self.spec.ranks / len(steps) > SLOW_SECONDS
        values = torch.stack([one.values for one in steps]).tolist()
        seconds = (time.perf_counter() - self._since) / len(steps)
        for step, count, (loss, norm, *measures) in zip(steps, map(int, tokens), values, strict=True):
            if not math.isfinite(loss):
                raise DivergenceError(
                    f"The loss of step {step.number} of {self.order.steps} is not a finite number.",
                    hint=_LOWER,
                )
            line = {
                "step": step.number,
                "epoch": round(self.order.count_epochs(step.number), 6),
                "loss": loss,
                "rate": step.line["rate"],
                # A step that the scaler of float16 skips has an infinite norm.
                "gradient_norm": norm if math.isfinite(norm) else None,
                "tokens": count,
                **self._compute_step_flops(step.number, count),
                "seconds": round(seconds, 6),
                **step.line,
                **self._compute_mean_measures(dict(zip(step.measures, measures, strict=True))),
            }
            self._add_log_line(line)
        self._since = time.perf_counter()

    def _compute_step_flops(self, step: int, tokens: int) -> dict[str, float]:
        """The floating-point operations of a step; empty for a model of two backbones."""
        if self.parameters is None:
            return {}
        return {
            "flops": self.parameters.compute_flops(
                self.settings.count_flop_tokens(self.order.count_batch_rows(step), tokens)
            )
        }

    def _compute_mean_measures(self, measures: dict[str, float]) -> dict[str, float]:
        """The measures of the loss on a batch, each the mean over all processes."""
        sums = self.sum_over_ranks([*measures.values()])
        return {name: round(value / self.spec.ranks, 6) for name, value in zip(measures, sums, strict=True)}

    def sum_over_ranks(self, values: list[float]) -> list[float]:
        """The sum of each value over all processes."""
        if self.spec.ranks == 1 or not values:
            return values
        tensor = torch.tensor(values, dtype=torch.float64, device=self.args.device)
        return list(self.accelerator.reduce(tensor, reduction="sum").tolist())

    def _add_log_line(self, line: dict[str, Any]) -> None:
        self._lines.append(line)
        if time.monotonic() - self._flushed > FLUSH:
            self._write_log_lines()

    _flushed = 0.0

    def _write_log_lines(self) -> None:
        self.spec.log.steps(self._lines)
        self._lines, self._flushed = [], time.monotonic()

    def _evaluate(self, *_args: Any, **_kwargs: Any) -> dict[str, float]:
        """Score the weights on the selection's data, and keep them if they are the best so far."""
        assert self.selection is not None
        # Every process scores, so that all have the same best step; only the first one writes.
        # Scoring cuts texts elsewhere than the training, whose next batches wait meanwhile.
        with self._tokenizing:
            score = self.setup.score_selection(self.model, self.selection)
        step = self.state.global_step
        self._add_log_line({"step": step, "score": score})
        if score > self.best.score:
            self.best = _Best(score=score, step=step)
            if self.spec.rank == 0:
                path = self._locate_best_file(step)
                with _explain_write_error(path):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    save_model(self.model, str(path.with_suffix(".new")))
                    path.with_suffix(".new").replace(path)
        self._since = time.perf_counter()
        return {}

    def _locate_best_file(self, step: int) -> Path:
        return self.spec.checkpoints / f"best-{step:08d}.safetensors"

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """Write a checkpoint from which the training goes on exactly."""
        # No checkpoint is written behind a loss that is not finite.
        self._read_steps()
        self._write_log_lines()
        step, first = self.state.global_step, self.spec.rank == 0
        with _explain_write_error(self.checkpoints.locate_checkpoint(step)):
            if first:
                self.checkpoints.prepare_checkpoint(step)
            self.accelerator.wait_for_everyone()
            folder = self.checkpoints.locate_checkpoint(step)
            # Each process has drawn its own dropout.
            torch.save(_get_random_state(), folder / f"random-{self.spec.rank}.pt")
            if first:
                self._write_state(folder)
            self.accelerator.wait_for_everyone()
            if first:
                # `finish` removes what is older, but for the best weights so far.
                beside = [self._locate_best_file(self.best.step)] if self.best.step else []
                self.checkpoints.finish(step, beside=beside)
        self._since = time.perf_counter()

    def _write_state(self, folder: Path) -> None:
        assert self.optimizer is not None
        assert self.lr_scheduler is not None
        # save_model, as safetensors' save_file refuses weights that share memory (tied embeddings).
        save_model(self.model, str(folder / MODEL))
        assert isinstance(self.loss, nn.Module)
        scaler = getattr(self.accelerator, "scaler", None)
        # The loss holds the model, whose weights are in a file of their own.
        loss_state = {
            name: value for name, value in self.loss.state_dict().items() if not name.startswith("model.")
        }
        state = {
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.lr_scheduler.state_dict(),
            "scaler": None if scaler is None else scaler.state_dict(),
            "best": (self.best.score, self.best.step),
            "loss": loss_state,
            "pass_tokens": None if self.sizes is None else self.sizes.tokens,
        }
        torch.save(state, folder / STATE)
        self.state.save_to_json(str(folder / PROGRESS))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        load_model(self.model, Path(resume_from_checkpoint, MODEL), device=str(self.model.device))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        assert checkpoint is not None
        assert self.optimizer is not None
        assert self.lr_scheduler is not None
        # On the CPU first: every process would otherwise put a second copy on the GPU that wrote the file.
        state = torch.load(Path(checkpoint, STATE), map_location="cpu", weights_only=True)
        self.optimizer.load_state_dict(state["optimizer"])
        self.lr_scheduler.load_state_dict(state["schedule"])
        if state["scaler"] is not None and self.accelerator.scaler is not None:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        score, step = state["best"]
        self.best = _Best(score=score, step=step)
        assert isinstance(self.loss, nn.Module)
        # Not strict: the weights of the model are left out of this state.
        self.loss.load_state_dict(state["loss"], strict=False)
        if self.sizes is not None and state.get("pass_tokens"):
            # Other passes would draw other dropout.
            self.sizes.tokens = state["pass_tokens"]
            self._note_pass_size()

    def _load_scaler(self, checkpoint: str | None) -> None:
        """Nothing: the scaler is part of the state."""

    def _load_rng_state(self, checkpoint: str | None) -> None:
        assert checkpoint is not None
        path = Path(checkpoint, f"random-{self.spec.rank}.pt")
        _set_random_state(torch.load(path, map_location="cpu", weights_only=True))


_LOWER = "Lower the learning rate, or take another precision: --set learning_rate=… --set precision=bfloat16"

SLOW_SECONDS = 1.0
"""The seconds of a step from which the losses are read after each, which then costs little."""

FLUSH = 0.5
"""Seconds after which the lines of finished steps are written."""


class _Cadence(TrainerCallback):
    """The steps at which to evaluate, to write a checkpoint, and to stop; all processes agree on them.

    On GPUs several processes agree at the steps whose losses are read, as each agreement waits for them.
    """

    def __init__(self, trainer: _Trainer) -> None:
        self._trainer = trainer
        self._saved = time.monotonic()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Decide what follows this step: an evaluation, a checkpoint, or the end."""
        trainer = self._trainer
        due = time.monotonic() - self._saved >= 60 * trainer.spec.minutes
        # Signals and clocks differ between processes. One that stopped alone would leave the others waiting
        # for its gradients.
        agrees = trainer.spec.ranks == 1 or trainer.reads(state.global_step)
        wishes = trainer.sum_over_ranks([float(STOP.is_set()), float(due)]) if agrees else [0.0, 0.0]
        stop, due = (wish > 0 for wish in wishes)
        control.should_evaluate = trainer.needs_evaluation(state.global_step)
        control.should_save = due or stop
        control.should_training_stop = control.should_training_stop or stop
        if due:
            self._saved = time.monotonic()


SCHEDULES: Mapping[str, tuple[str, dict[str, float]]] = {
    "constant": ("constant_with_warmup", {}),
    "cosine_to_tenth": ("cosine_with_min_lr", {"min_lr_rate": 0.1}),
}
"""Our names of schedules that differ from transformers', with its name and arguments for each."""


def _build_arguments(spec: TrainingSpec, settings: TrainerSettings) -> SentenceTransformerTrainingArguments:
    """The library's arguments; it also joins the processes."""
    if settings.limit_devices(spec.ranks) != spec.ranks:
        raise HarnessError(
            f"A batch of {settings.batch_size} rows cannot be divided among {spec.ranks} devices.",
            hint="Take another number of devices, or change --set batch_size=…",
        )
    on_cpu = spec.device == "cpu"
    schedule, schedule_options = SCHEDULES.get(settings.schedule, (settings.schedule, {}))
    if on_cpu and settings.precision == "float16":
        spec.log.note("trained in float32: a CPU has no float16")
    wants_tf32 = settings.precision == "tf32"
    has_tf32 = wants_tf32 and works_behind(spec.device) and torch.cuda.get_device_capability()[0] >= 8
    if wants_tf32 and not has_tf32:
        spec.log.note("trained in float32: this device has no TF32")
    return SentenceTransformerTrainingArguments(
        output_dir=str(spec.checkpoints),
        per_device_train_batch_size=settings.batch_size // spec.ranks,
        # A placeholder: the arguments join the processes, and only then is the data read that gives the
        # steps.
        max_steps=1,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        adam_beta1=settings.betas[0],
        adam_beta2=settings.betas[1],
        adam_epsilon=settings.eps,
        lr_scheduler_type=schedule,
        lr_scheduler_kwargs=schedule_options,
        max_grad_norm=settings.clip,
        seed=spec.seed,
        fp16=settings.precision == "float16" and not on_cpu,
        bf16=settings.precision == "bfloat16",
        tf32=has_tf32 or None,
        use_cpu=on_cpu,
        # The library would read and drop all batches before a checkpoint; `Slices` begins behind them.
        ignore_data_skip=True,
        # The library would wait for the device at each step that it logs.
        logging_strategy="no",
        # With the filter it waits, too, and takes the mean of earlier losses in place of NaN.
        logging_nan_inf_filter=False,
        # `_Cadence` says when a checkpoint is written.
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        # Some weights, such as those of a pooler, get no gradient; without this torch fails in the second
        # step.
        ddp_find_unused_parameters=True,
        ddp_broadcast_buffers=False,
    )


def _get_random_state() -> dict[str, Any]:
    name, keys, *rest = np.random.get_state()
    return {
        "python": random.getstate(),
        # A list, as torch.load with weights_only refuses arrays of numpy.
        "numpy": (name, np.asarray(keys).tolist(), *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_available() else None,
    }


def _set_random_state(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def _measure_peak_memory(device: str) -> int:
    """The peak memory so far in bytes: that of the GPU, or of this process without one."""
    if device.startswith("cuda"):
        return int(torch.cuda.max_memory_allocated())
    # Linux gives kilobytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@contextmanager
def _explain_memory_error(trainer: _Trainer) -> Iterator[None]:
    """Say what did not fit into memory; another process may then take fewer rows in a pass."""
    spec, settings, caches = trainer.spec, trainer.settings, trainer.setup.caches
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        # torch has no class of error for the memory of a CPU: its allocator raises a RuntimeError with these
        # words.
        full = isinstance(error, torch.OutOfMemoryError | MemoryError) or "not enough memory" in str(error)
        if not full:
            raise
        process_rows = settings.batch_size // spec.ranks
        passes = settings.compute_pass_size(process_rows, spec.micro_batch) if caches else None
        rows = (passes if trainer.sizes is None else trainer.sizes.rows) or process_rows
        length = f" of {settings.longest} tokens" if settings.longest else ""
        TrainingLog(spec.folder).note_memory_shortage(rows=rows, halves=caches and rows > 1)
        raise HarnessError(
            f"A pass over {rows} rows{length} does not fit into memory.",
            hint="Train smaller batches or shorter texts: --set batch_size=… --set max_length=…",
        ) from error


@contextmanager
def _explain_write_error(path: Path) -> Iterator[None]:
    """Say which file or folder could not be written."""
    try:
        yield
    except OSError as error:
        raise write_error(path, error) from error
    except Exception as error:
        # On a full disk neither safetensors nor torch.save raises an OSError.
        if type(error).__name__ == "SafetensorError" or "PytorchStreamWriter" in str(error):
            raise StoreError(
                f"Cannot write {path}: {error}.", hint="Free some room and run the same command again."
            ) from error
        raise
