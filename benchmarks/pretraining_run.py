"""Pretrain a tiny masked language model on the interpreter's own sources, for `harness watch`.

    python benchmarks/pretraining_run.py FOLDER [--steps 128] [--seed 42]

A BERT of 4 layers of 128 with MiniLM's WordPiece, by transformers' Trainer: eight checkpoints in FOLDER, each
at twice the step of the one before. Then, for each of three seeds, and for all:

    harness watch FOLDER --name mine-1 --seed 1 --suite stdlib --recipe simcse:mean --set precision=float32 \\
        --set max_steps=20 --set batch_size=32 --set learning_rate=5e-4 --offline --once
    harness watch --run mine=mine-1 --run mine=mine-2 --run mine=mine-3 --against tokens --out mine
"""

from __future__ import annotations

import sysconfig
import time
from pathlib import Path
from typing import Any

from measuring import format_table, locate_minilm, read_options
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    set_seed,
)

CHECKPOINTS = 8
BATCH, LENGTH = 16, 128
"""Blocks of a step, and tokens of a block."""


class MaskedTrainer(Trainer):
    """A Trainer that computes the head of 30,522 words at masked places alone, a seventh of all."""

    def compute_loss(self, model: BertForMaskedLM, inputs: dict[str, Any], *_: Any, **__: Any) -> Tensor:
        """The mean cross-entropy of masked tokens."""
        labels = inputs.pop("labels")
        masked = labels != -100
        hidden = model.bert(**inputs).last_hidden_state
        return cross_entropy(model.cls(hidden[masked]), labels[masked])


class SaveDoublings(TrainerCallback):
    """Save at the last step, half of it, a quarter, and so on."""

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """Ask for a checkpoint at a chosen step."""
        control.should_save = state.global_step in [args.max_steps >> n for n in range(CHECKPOINTS)]
        return control


def read_blocks(tokenizer: Any) -> list[dict[str, list[int]]]:
    """Blocks of the standard library's sources without its tests, each from one file."""
    root, blocks = Path(sysconfig.get_path("stdlib")), []
    for path in sorted(root.rglob("*.py")):
        if not {"site-packages", "test", "tests"} & {*path.relative_to(root).parts}:
            text = path.read_text(encoding="utf-8", errors="replace")
            blocks += tokenizer(
                text, truncation=True, max_length=LENGTH, return_overflowing_tokens=True
            ).input_ids
    return [{"input_ids": block} for block in blocks if len(block) == LENGTH]


def main() -> None:
    given = read_options(__doc__, {"folder": {"type": Path}}, steps=128, seed=42)
    began, used = time.perf_counter(), time.process_time()
    tokenizer = AutoTokenizer.from_pretrained(locate_minilm(), model_max_length=LENGTH)
    blocks = read_blocks(tokenizer)
    set_seed(given.seed)
    model = BertForMaskedLM(
        BertConfig(
            hidden_size=128,
            num_hidden_layers=4,
            num_attention_heads=2,
            intermediate_size=512,
            max_position_embeddings=LENGTH,
        )
    )
    arguments = TrainingArguments(
        output_dir=str(given.folder),
        max_steps=given.steps,
        per_device_train_batch_size=BATCH,
        learning_rate=1e-3,
        warmup_steps=given.steps // 16,
        weight_decay=0.01,
        logging_steps=1,
        save_strategy="no",
        save_only_model=True,
        include_num_input_tokens_seen="all",
        seed=given.seed,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    trainer = MaskedTrainer(
        model,
        arguments,
        DataCollatorForLanguageModeling(tokenizer),
        train_dataset=blocks,
        processing_class=tokenizer,
        callbacks=[SaveDoublings()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    losses = {line["step"]: line["loss"] for line in trainer.state.log_history if "loss" in line}
    saved = [given.steps >> n for n in reversed(range(CHECKPOINTS))]
    rows = [(step, f"{BATCH * LENGTH * step:,}", f"{losses[step]:.3f}") for step in saved]
    print(format_table(("step", "tokens", "loss"), rows))
    seconds = f"{time.perf_counter() - began:.0f} s, {time.process_time() - used:.0f} s of CPU"
    print(f"{len(blocks):,} blocks of {LENGTH} tokens; {seconds}")


if __name__ == "__main__":
    main()
