"""The classifier of a GLUE run: a backbone's encoder with a classification head."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from finetune.glue.rows import load_tokenizer
from finetune.glue.settings import ClassifierHead, Dropout, Trial
from harness.core.errors import ModelError
from harness.encoder.architecture import Names
from harness.encoder.backbones import has_network, read_family
from harness.encoder.folder.files import read_object
from harness.encoder.library_load import hide_library_output
from harness.encoder.network.model import load_network, read_raw_tensors
from harness.encoder.network.pretrained import (
    HEAD_IGNORED,
    NOT_LOADED,
    CheckpointTensors,
    merge_folder_adapter,
)


class Classifier(nn.Module):
    """An encoder with a head: pooling, dropout, dense, activation, dropout, linear.

    Args:
        encoder: Gives `last_hidden_state`, (rows, columns, width).
        width: Width of the encoder's vectors.
        classes: Scores of a row; 1 for a number.
        head: The settings of the head.
        dense: A dense layer that was trained with the backbone; None for a fresh layer.
        names: The published names of the backbone's tensors; None where the encoder has these names.
    """

    def __init__(
        self,
        encoder: nn.Module,
        *,
        width: int,
        classes: int,
        head: ClassifierHead,
        dense: nn.Linear | None = None,
        names: Names | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.names = names
        self.pooling = head.pooling
        self.dropout_before = nn.Dropout(head.dropout_before)
        self.dense = nn.Linear(width, width, bias=head.dense_bias)
        self.activation: nn.Module = nn.Tanh() if head.activation == "tanh" else nn.GELU()
        self.dropout = nn.Dropout(head.dropout)
        self.classifier = nn.Linear(width, classes)
        for layer in (self.dense, self.classifier):
            nn.init.normal_(layer.weight, std=head.initializer_range)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        if head.last == "megatron":
            deviation = width**-0.5
            nn.init.trunc_normal_(self.classifier.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
        if dense is not None:
            self.dense.load_state_dict(dense.state_dict(), strict=False)

    def forward(self, **inputs: Tensor) -> Tensor:
        """Scores of the rows, (rows, classes)."""
        hidden: Tensor = self.encoder(**inputs).last_hidden_state
        weights = inputs["attention_mask"][..., None].to(hidden.dtype)
        is_first = self.pooling == "first"
        pooled = hidden[:, 0] if is_first else (hidden * weights).sum(dim=1) / weights.sum(dim=1)
        dense = self.activation(self.dense(self.dropout_before(pooled)))
        scores: Tensor = self.classifier(self.dropout(dense))
        return scores

    def published(self, name: str) -> str:
        """The published name of a parameter; its own name outside of the encoder."""
        if self.names is None or not name.startswith("encoder."):
            return name
        return self.names.theirs(name.removeprefix("encoder."), with_head=False)

    def list_transferable_tensors(self) -> dict[str, Tensor]:
        """The tensors that a model for another task starts from: all but the last layer's."""
        return {n: t for n, t in self.state_dict().items() if not n.startswith("classifier.")}

    def start_from(self, tensors: dict[str, Any]) -> None:
        """Load what `list_transferable_tensors` gives of another model; the last layer stays fresh.

        Raises:
            ModelError: The tensors are those of a model with another shape.
        """
        # Compared here, since load_state_dict with strict=False says nothing about missing names.
        expected_shapes = {n: t.shape for n, t in self.list_transferable_tensors().items()}
        checkpoint_shapes = {n: t.shape for n, t in tensors.items()}
        if expected_shapes != checkpoint_shapes:
            other = sorted(
                n
                for n in expected_shapes.keys() | checkpoint_shapes.keys()
                if expected_shapes.get(n) != checkpoint_shapes.get(n)
            )
            raise ModelError(
                f"The checkpoint is of another model: {len(other)} tensors differ, the first is {other[0]}.",
                hint="It must come from the same backbone and recipe.",
            )
        self.load_state_dict(tensors, strict=False)

    def save_classifier(self, folder: Path, names: Sequence[str]) -> None:
        """Write the encoder in its published form, and the head beside it as head.safetensors.

        Args:
            folder: The folder, made if it does not exist.
            names: The names of the classes; none where scores are numbers.
        """
        encoder: Any = self.encoder
        encoder.save_pretrained(folder)
        head = {
            name: t.contiguous() for name, t in self.state_dict().items() if not name.startswith("encoder.")
        }
        save_file(head, folder / "head.safetensors", {"names": json.dumps([*names])})

    @staticmethod
    def load_classifier(
        folder: Path,
        trial: Trial,
        *,
        classes: int,
        source: Path | None = None,
        allow_extra: Sequence[str] = (),
    ) -> tuple[Classifier, list[str]]:
        """The backbone in a folder behind a head whose fresh weights the trial's seed draws.

        Args:
            folder: The folder of a backbone, in its published form or ours.
            trial: Its training has the settings of the head and of the encoder's dropout.
            classes: Scores of a row; 1 for a number.
            source: A folder with the backbone fine-tuned for another task; its encoder and dense layer are
                used.
            allow_extra: Tensors that may have no place in the network.

        Returns:
            The model on the CPU, in float32, and notes on deviations from the protocol.
        """
        head = trial.training.head
        torch.manual_seed(trial.seed)  # a library draws missing tensors
        if head.library and (library := _load_library_classifier(folder, classes, allow_extra)) is not None:
            return library
        encoder, dense, notes = _load_encoder(source or folder, head, trial.training.dropout, allow_extra)
        if source is not None:  # its dense layer is taken, and its last one is always left
            dense = _load_dense_layer(source) or dense
            notes = [note for note in notes if not note.startswith(NOT_LOADED)]
        if (head.dense != "fresh" or source is not None) and dense is None:
            source_name = "checkpoint" if source is not None else f"backbone's {head.dense}"
            notes.append(f"the {source_name} has no dense layer: a fresh one was trained")
        # Once more: what loading draws depends on the backbone, and the head is to depend on the seed alone.
        torch.manual_seed(trial.seed)
        width = encoder.get_input_embeddings().embedding_dim
        family = read_family(source or folder) if has_network(source or folder) else None
        names = None if family is None else family.names
        classifier = Classifier(encoder, width=width, classes=classes, head=head, dense=dense, names=names)
        return classifier, notes


class _LibraryClassifier(Classifier):
    """A class of transformers for classification, with its own head and dropouts.

    Args:
        model: Gives `logits`, (rows, classes).
    """

    def __init__(self, model: Any) -> None:
        nn.Module.__init__(self)
        self.model = model

    def forward(self, **inputs: Tensor) -> Tensor:
        """Scores of the rows, (rows, classes)."""
        scores: Tensor = self.model(**inputs).logits
        return scores

    def published(self, name: str) -> str:
        """The published name of a parameter."""
        return name.removeprefix("model.")

    def save_classifier(self, folder: Path, names: Sequence[str]) -> None:
        """Write the model as transformers does; AutoModelForSequenceClassification opens it."""
        config = self.model.config
        if names:
            config.id2label = dict(enumerate(names))
            config.label2id = {name: number for number, name in enumerate(names)}
        config.problem_type = "single_label_classification" if names else "regression"
        with hide_library_output():
            self.model.save_pretrained(folder)


def _load_library_classifier(
    folder: Path, classes: int, allow_extra: Sequence[str]
) -> tuple[Classifier, list[str]] | None:
    """The backbone as transformers' own class for classification; None where no such class holds it."""
    from transformers import AutoModelForSequenceClassification
    from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES

    family = read_family(folder)
    kind = read_object(folder / "config.json").get("model_type")
    if kind not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES or (family and family.is_decoder):
        return None
    with hide_library_output():
        model, loading = AutoModelForSequenceClassification.from_pretrained(
            folder,
            num_labels=classes,
            dtype=torch.float32,
            local_files_only=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    merge_folder_adapter(model, folder)
    start = f"{model.base_model_prefix}."
    other_shapes = (name for name, *_ in loading["mismatched_keys"])
    fresh = [name for name in (*loading["missing_keys"], *other_shapes) if name.startswith(start)]
    extra = [
        name
        for name in loading["unexpected_keys"]
        if name.startswith(start) and not any(fnmatchcase(name, pattern) for pattern in allow_extra)
    ]
    # A class that leaves weights of the encoder fresh, or out, reads another form of this model.
    if any("pooler." not in name for name in (*fresh, *extra)):
        return None
    if model.config.pad_token_id is None:
        # Its head takes the last token before the padding.
        model.config.pad_token_id = load_tokenizer(folder).pad_token_id
    notes = ["the backbone has no pooler: a fresh one was trained"] if fresh else []
    return _LibraryClassifier(model), [f"trained as {type(model).__name__} of transformers", *notes]


LIBRARY_DROPOUT = {
    "hidden_dropout_prob": "mlp_out",
    "hidden_dropout": "mlp_out",
    "attention_probs_dropout_prob": "attention",
    "attention_dropout": "attention",
}
"""Names of dropouts in transformers' own classes, with the part of `Dropout` that sets them."""


DENSE = ("pooler.dense", "head.dense", "classifier.dense", "pre_classifier", "dense")
"""Names of the dense layer in the heads of fine-tuned models, the last only at the top level."""


def _load_dense_layer(folder: Path) -> nn.Linear | None:
    """The dense layer in the head of a fine-tuned model, under any of these names."""
    tensors = read_raw_tensors(folder)
    for name in DENSE:
        # `dense` ends many names within an encoder (attention.output.dense): it counts at the top level only.
        ends = (f"{name}.weight",) if name == "dense" else (f"{name}.weight", f".{name}.weight")
        # No name ends with one of an empty tuple.
        weight_name = next((n for n in tensors if n == ends[0] or n.endswith(ends[1:])), None)
        if weight_name is not None:
            weight, bias = tensors[weight_name], tensors.get(weight_name.removesuffix("weight") + "bias")
            layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
            layer.load_state_dict({"weight": weight, **({} if bias is None else {"bias": bias})})
            return layer
    return None


def _load_encoder(
    folder: Path, head: ClassifierHead, dropout: Dropout, allow_extra: Sequence[str]
) -> tuple[Any, nn.Linear | None, list[str]]:
    if not has_network(folder):
        return _load_library_encoder(folder, head, dropout)
    family = read_family(folder)
    names = None if family is None else family.names
    tensors = read_raw_tensors(folder) if head.dense == "mlm" else {}
    with_head = "head.dense.weight" in CheckpointTensors.sort_tensors(tensors, names, head=True).state
    changes = {f"{name}_dropout": share for name, share in asdict(dropout).items() if share is not None}
    model: Any = load_network(
        folder, family, dtype=torch.float32, head=with_head, changes=changes, allow_extra=allow_extra
    ).model
    encoder = model.encoder if with_head else model
    dense = model.head.dense if with_head else None
    if head.dense == "pooler" and encoder.pooler is not None:
        dense = encoder.pooler.dense
    encoder.pooler = None  # the head has its own dense layer
    return encoder, dense, [note for note in model.notes if HEAD_IGNORED not in note]


def _load_library_encoder(
    folder: Path, head: ClassifierHead, dropout: Dropout
) -> tuple[Any, nn.Linear | None, list[str]]:
    """The encoder as transformers' own class, which knows fewer kinds of dropout."""
    from transformers import AutoConfig, AutoModel

    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    shares = asdict(dropout)
    for name, part in LIBRARY_DROPOUT.items():
        if hasattr(config, name) and shares[part] is not None:
            setattr(config, name, shares[part])
    model = AutoModel.from_pretrained(folder, config=config, dtype=torch.float32, local_files_only=True)
    merge_folder_adapter(model, folder)
    # transformers draws a pooler where the checkpoint has none.
    trained = any("pooler.dense." in name for name in read_raw_tensors(folder))
    pooler = getattr(getattr(model, "pooler", None), "dense", None) if trained else None
    taken = pooler if head.dense == "pooler" and isinstance(pooler, nn.Linear) else None
    note = f"{type(model).__name__} ran through transformers' own class, with its dropouts"
    return model, taken, [note]
