"""The rows of a task on a device, read and tokenized once for all runs of a worker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from finetune.glue.settings import Trial
from harness.core.types import Artifact, LabelledData, LabelSource, Task
from harness.data.prepared import hide_progress_bars
from harness.encoder.backbones import read_family
from harness.encoder.folder.description import read_token_limits
from harness.encoder.folder.modules_and_pooling import find_backbone_folder
from harness.jobs.context import JobContext
from harness.jobs.jobs import prepare_task_data
from suites.glue import GlueSource

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Some rows, padded to the longest of them.

    Attributes:
        inputs: Arguments of the encoder, each (rows, columns).
        labels: (rows,), integers for classes, or numbers.
        tokens: (rows, columns), the places that are no padding, on the CPU; None if they are not known there.
    """

    inputs: dict[str, Tensor]
    labels: Tensor
    tokens: Tensor | None = None

    def compute_batch_loss(self, scores: Tensor) -> Tensor:
        """The mean loss of scores, (rows, classes): squared error for numbers, cross-entropy for classes."""
        from torch import nn

        if scores.shape[-1] == 1:
            return nn.functional.mse_loss(scores[:, 0].float(), self.labels.float())
        return nn.functional.cross_entropy(scores.float(), self.labels)


@dataclass(frozen=True, kw_only=True)
class TokenizedRows:
    """Tokenized rows, concatenated.

    Attributes:
        columns: Arguments of the encoder by name, each (tokens,).
        starts: (rows + 1,), the start of each row, on the CPU.
        labels: (rows,).
        fill: The padding value of each of `columns`.
    """

    columns: dict[str, Tensor]
    starts: Tensor
    labels: Tensor
    fill: dict[str, int]

    @staticmethod
    def tokenize_rows(
        tokenizer: Any,
        texts: Sequence[Sequence[str]],
        labels: Sequence[float],
        *,
        max_length: int,
        device: torch.device,
        numbers: bool,
    ) -> TokenizedRows:
        """The tokenized rows of a split.

        Args:
            tokenizer: Of transformers.
            texts: The columns of texts, each of one text a row.
            labels: A label for each row.
            max_length: Tokens of a row at most.
            device: The device of the columns and labels.
            numbers: Whether labels are numbers in place of classes.
        """
        import torch

        encoding = tokenizer(*map(list, texts), truncation=True, max_length=max_length)
        lengths = torch.tensor([len(ids) for ids in encoding["input_ids"]])
        starts = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        names = [n for n in ("input_ids", "attention_mask", "token_type_ids") if n in encoding]
        columns = {n: torch.tensor([i for row in encoding[n] for i in row], device=device) for n in names}
        kind = torch.float32 if numbers else torch.long
        return TokenizedRows(
            columns=columns,
            starts=starts,
            labels=torch.tensor(labels, device=device).to(kind),
            fill={"input_ids": int(tokenizer.pad_token_id), "attention_mask": 0, "token_type_ids": 0},
        )

    def __len__(self) -> int:
        return len(self.labels)

    def iter_row_batches(self, trial: Trial) -> Iterator[Tensor]:
        """The row numbers of every batch of a run, in order, on the CPU."""
        import torch

        # A generator of its own: the order of rows does not depend on what else draws, such as dropout.
        draw, rows = torch.Generator().manual_seed(trial.seed), len(self)
        for _ in range(trial.epochs):
            order = torch.randperm(rows, generator=draw) if trial.training.shuffled else torch.arange(rows)
            yield from order.split(trial.batch_size)

    @property
    def lengths(self) -> Tensor:
        """(rows,), the tokens of each row."""
        return self.starts.diff()

    def batch(self, chosen: Tensor) -> Batch:
        """The chosen rows, in this order, as a batch; `chosen` is on the CPU."""
        import torch

        first, lengths = self.starts[chosen], self.lengths[chosen]
        device = self.labels.device
        is_cuda = device.type == "cuda"
        place = torch.arange(int(lengths.max()))
        token_mask = place < lengths[:, None]
        # Places behind a row's end point to token 0, which the mask then replaces by padding.
        token_places = torch.where(token_mask, first[:, None] + place, 0).to(device, non_blocking=is_cuda)
        hidden = ~token_mask.to(device, non_blocking=is_cuda)
        inputs = {
            name: column[token_places].masked_fill(hidden, self.fill[name])
            for name, column in self.columns.items()
        }
        labels = self.labels[chosen.to(device, non_blocking=is_cuda)]
        return Batch(inputs=inputs, labels=labels, tokens=token_mask)

    def take(self, chosen: Tensor) -> TokenizedRows:
        """The chosen rows alone, in this order; `chosen` is on the CPU."""
        import torch

        lengths = self.lengths[chosen]
        first = self.starts[chosen]
        starts = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        # The shift of each row from its new start to its old one, for every token of it.
        token_places = torch.repeat_interleave(first - starts[:-1], lengths) + torch.arange(int(starts[-1]))
        device = self.labels.device
        columns = {name: column[token_places.to(device)] for name, column in self.columns.items()}
        return TokenizedRows(
            columns=columns, starts=starts, labels=self.labels[chosen.to(device)], fill=self.fill
        )

    def iter_length_batches(self, tokens: int) -> Iterator[Tensor]:
        """All row numbers in batches of at most so many padded tokens, the longest rows first."""
        import torch

        # Long rows with long ones, for little padding; the longest first, so that memory runs out at once or
        # never.
        order = torch.argsort(self.lengths, descending=True, stable=True)
        first = 0
        while first < len(order):
            size = max(1, tokens // int(self.lengths[order[first]]))
            yield order[first : first + size]
            first += size


@dataclass(frozen=True, kw_only=True)
class TokenizedTask:
    """The tokenized rows of a task on a device."""

    train: TokenizedRows
    dev: Mapping[str, TokenizedRows]
    test: Mapping[str, TokenizedRows]

    @staticmethod
    def load_tokenized_task(
        context: JobContext,
        artifact: Artifact,
        task: Task,
        data: Path | None,
        trial: Trial,
        *,
        test: bool = False,
    ) -> tuple[LabelledData, TokenizedTask, list[str]]:
        """The rows of a task, read and tokenized once for all runs of a worker.

        Args:
            context: The context of the job, whose memory keeps the rows.
            artifact: The backbone, whose tokenizer and positions count.
            task: The task.
            data: The local folder of the data set; None for the hub.
            trial: The run, for its length in tokens.
            test: Whether GLUE's rows with hidden labels are wanted as well.

        Returns:
            The labelled texts, their tokens on the device, and notes for the user.
        """
        import torch

        source = task.source
        folder = find_backbone_folder(artifact.folder)
        assert isinstance(source, LabelSource)
        most = read_token_limits(artifact.folder)[0].table
        length = min(trial.training.max_length, most or trial.training.max_length)
        notes = [f"inputs are cut at {length} tokens: the backbone has no more positions"]

        def make() -> tuple[LabelledData, TokenizedTask]:
            with prepare_task_data(task, data, context.cache), hide_progress_bars():
                if test and isinstance(source, GlueSource):
                    labelled = source.load_with_test(task, data=data)
                else:
                    labelled = source.load(task, data=data)
            tokenizer = load_tokenizer(folder)
            device = torch.device(context.device)
            splits = {
                name: TokenizedRows.tokenize_rows(
                    tokenizer,
                    split.texts,
                    split.labels,
                    max_length=length,
                    device=device,
                    numbers=labelled.classes == 1,
                )
                # No split of the data has an empty name.
                for name, split in {"": labelled.train, **labelled.dev, **labelled.test}.items()
            }
            dev, hidden_rows = ({name: splits[name] for name in one} for one in (labelled.dev, labelled.test))
            return labelled, TokenizedTask(train=splits[""], dev=dev, test=hidden_rows)

        labelled, rows = context.get_cached_value("rows", (artifact.key, task, data, length, test), make)
        return labelled, rows, notes if length < trial.training.max_length else []


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a backbone, which can pad.

    Raises:
        ModelError: It has no token to pad with.
    """
    from transformers import AutoTokenizer

    from harness.encoder.library_load import let_end_pad, require_padding

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    let_end_pad(tokenizer)
    require_padding(tokenizer)
    return tokenizer


def adapt_trial(folder: Path, trial: Trial) -> tuple[Trial, list[str]]:
    """A trial without the settings that its backbone does not allow, and notes on the changes."""
    family, training, notes = read_family(folder), trial.training, list[str]()
    if family is not None and family.float32_only is not None and trial.autocast != "float32":
        training = replace(training, autocast="float32")
        notes.append(f"run in float32: {family.float32_only}")
    if family is not None and family.is_decoder and training.head.pooling == "first":
        training = replace(training, head=replace(training.head, pooling="mean"))
        notes.append("a decoder's first token sees nothing else: the mean of all tokens stands for it")
    return replace(trial, training=training), notes
