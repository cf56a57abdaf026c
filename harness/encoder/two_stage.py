"""A two-stage model, whose vectors depend on context documents: its module and its engine.

The first stage makes one vector of each context document; the second reads these vectors, soft prompts and a
text, and gives the vector of the text. Source: Morris and Rush, Contextual Document Embeddings (2024).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import InputModule
from torch import Tensor, nn

from harness.core.errors import ModelError
from harness.core.types import Role
from harness.encoder.batches import Inputs, TokenizedTexts
from harness.encoder.engine import Encoder, Progress, VectorSink, embed_features
from harness.encoder.folder.files import require_shapes
from harness.encoder.folder.modules_and_pooling import CONTEXT_STAGE, TEXT_STAGE
from harness.encoder.library_load import tokenize_batch
from harness.encoder.network.model import EncoderModel
from harness.encoder.sentence_transformer import Transformer
from harness.encoder.two_stage_settings import TwoStageSettings, list_stage_shapes

_WEIGHTS = "model.safetensors"

Features = dict[str, Any]
"""Tokenized texts in one batch: `input_ids`, `attention_mask`, perhaps `token_type_ids`, (texts, tokens)."""


class TwoStage(InputModule):
    """Two backbones: one makes context vectors, the other the vectors of texts (see TwoStageSettings).

    Args:
        text: The library's Transformer module of the second stage, with our network.
        context: That of the first stage. It may be the same module only where neither is trained.
        settings: The settings of the model.

    Raises:
        ModelError: A backbone is none of ours, has too few positions, or the embeddings cannot be tied.
    """

    save_in_root = True
    context: Tensor | None

    def __init__(self, text: Any, context: Any, settings: TwoStageSettings) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.settings = settings
        self.text_stage, self.context_stage = text, context
        for network in (text.auto_model, context.auto_model):
            if not isinstance(network, EncoderModel):
                raise ModelError(
                    f"{type(network).__name__} runs through transformers' own class: it takes no context.",
                    hint="Take a backbone of a family that our network runs (`harness list backbones`).",
                )
        shape = text.auto_model.shape
        self._name = str(text.auto_model.config.model_type)
        settings.check_positions(shape, self.max_seq_length or 0, self._name)
        width, first = shape.hidden_size, context.auto_model.shape.hidden_size
        self.context_head = _build_mlp(first, nn.GELU(), width)
        self.prompt_head = _build_mlp(width, nn.ReLU(), settings.prompts * width)
        self.output_head = _build_mlp(width, nn.ReLU(), width)
        self.null = nn.Parameter(torch.randn(width) * 0.01)
        # A buffer moves with the module. It is not saved: a context belongs to a task, not to the model.
        self.register_buffer("context", None, persistent=False)
        self.to(text.auto_model.device)
        if settings.tied:
            self._share_embeddings()

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of texts."""
        return self.text_stage.tokenizer

    @tokenizer.setter
    def tokenizer(self, value: Any) -> None:
        self.text_stage.tokenizer = value

    @property
    def max_seq_length(self) -> int | None:
        """The most tokens of a text, without context vectors and soft prompts."""
        return cast("int | None", self.text_stage.max_seq_length)

    @max_seq_length.setter
    def max_seq_length(self, value: int) -> None:
        self.settings.check_positions(self.text_stage.auto_model.shape, value, self._name)
        self.text_stage.max_seq_length = value

    def get_sentence_embedding_dimension(self) -> int:
        """The size of a vector, by the library's name for it."""
        return int(self.null.shape[0])

    get_embedding_dimension = get_sentence_embedding_dimension

    def tokenize(self, texts: list[str], **kwargs: Any) -> Features:
        """The features of texts in one batch."""
        return tokenize_batch(self.text_stage, texts, **kwargs)

    def preprocess(self, inputs: list[str], prompt: str | None = None, **kwargs: Any) -> Features:
        """The same by the library's name since 5.4."""
        return self.tokenize([(prompt or "") + text for text in inputs], **kwargs)

    def tokenize_context(self, texts: list[str]) -> Features:
        """The features of context documents in one batch."""
        return tokenize_batch(self.context_stage, texts)

    def forward(self, features: Features, **_unused: Any) -> Features:
        """Add the vectors of texts as `sentence_embedding`: (texts, dimension).

        The context is `context_vectors` of the features, else the module's own, else the null context.
        """
        context = features.get("context_vectors", self.context)
        return {**features, "sentence_embedding": self.compute_text_vectors(features, context)}

    def compute_context_vectors(self, features: Features) -> Tensor:
        """The context vectors of documents, (documents, dimension of the second stage)."""
        names = ("input_ids", "attention_mask", "token_type_ids", "packing")
        inputs = {name: features[name] for name in names if name in features}
        out = self.context_stage.auto_model(**inputs).last_hidden_state
        return cast(Tensor, self.context_head(_compute_masked_mean(out, features["attention_mask"].bool())))

    def compute_text_vectors(self, features: Features, context: Tensor | None = None) -> Tensor:
        """The vectors of texts behind a context, (texts, dimension).

        Args:
            features: The texts.
            context: (size, dimension) context vectors that all texts share; None for the null context.
        """
        network, mask = self.text_stage.auto_model, features["attention_mask"].bool()
        tokens = network.get_input_embeddings()(features["input_ids"])
        texts, width = len(mask), len(self.null)
        ones = torch.ones(width, device=self.null.device, dtype=self.null.dtype)
        prompts = self.prompt_head(ones).view(self.settings.prompts, width).expand(texts, -1, -1)
        rows = self._build_context_rows(context, texts).to(prompts.dtype)
        before = torch.cat([rows, prompts], dim=1).to(tokens.dtype)
        # Constants of the batch: the places before a text are all computed.
        ahead = mask.new_ones(len(mask), self.settings.places)
        full_mask = torch.cat([ahead, mask], dim=1)
        types = features.get("token_type_ids")
        out = network(
            inputs_embeds=torch.cat([before, tokens], dim=1),
            attention_mask=full_mask,
            # Context vectors and soft prompts have token type 0.
            token_type_ids=None if types is None else torch.cat([ahead.to(types.dtype) * 0, types], dim=1),
            position_ids=self._compute_stage_positions(mask),
            packing=features.get("packing"),
        ).last_hidden_state
        if self.settings.pooling == "all":
            pooled = _compute_masked_mean(out, full_mask)
        else:
            pooled = _compute_masked_mean(out[:, self.settings.places :], mask)
        return cast(Tensor, pooled + self.output_head(pooled))

    def _compute_stage_positions(self, mask: Tensor) -> Tensor | None:
        """The places of tokens where positions are rotary, (texts, size + prompts + tokens)."""
        if self.text_stage.auto_model.shape.positions != "rotary":
            return None
        size, prompts = self.settings.size, self.settings.prompts
        rotated = self.settings.rotary_from == "prompts"
        ahead = torch.arange(-size, prompts, device=mask.device).clamp(min=0) * int(rotated)
        text_places = (mask.cumsum(dim=1) - 1).clamp(min=0) + (prompts if rotated else 0)
        return torch.cat([ahead.expand(len(mask), -1), text_places], dim=1)

    def _build_context_rows(self, context: Tensor | None, texts: int) -> Tensor:
        """The context vectors of each text, (texts, size, dimension); in training shuffled and dropped."""
        size = self.settings.size
        if context is None:
            return self.null.expand(texts, size, -1)
        if context.shape != (size, len(self.null)):
            raise ModelError(
                f"The model has {size} context vectors of {len(self.null)} dimensions before a text; "
                f"{tuple(context.shape)} were given.",
                hint="Repeat a smaller context until it has as many.",
            )
        rows = context.expand(texts, -1, -1)
        if self.training and self.settings.shuffle:
            # Sorting noise gives each text an order of its own without a loop.
            order = torch.rand(texts, size, device=context.device).argsort(dim=1)
            rows = context[order]
        if self.training and self.settings.sequence_dropout:
            drop = torch.rand(texts, size, device=context.device) < self.settings.sequence_dropout
            rows = torch.where(drop[..., None], self.null.to(rows.dtype), rows)
        return rows

    def _share_embeddings(self) -> None:
        """Let both stages have one token embedding."""
        text, context = self.text_stage, self.context_stage
        embedding, other = text.auto_model.get_input_embeddings(), context.auto_model.get_input_embeddings()
        if (
            text.tokenizer.get_vocab() != context.tokenizer.get_vocab()
            or embedding.weight.shape != other.weight.shape
        ):
            raise ModelError(
                f"The stages have two vocabularies (of {len(text.tokenizer)} and {len(context.tokenizer)} "
                f"tokens, embeddings {tuple(embedding.weight.shape)} and {tuple(other.weight.shape)}): "
                "they cannot share a token embedding.",
                hint="Leave tied off, or take one backbone for both stages.",
            )
        if not torch.equal(embedding.weight, other.weight):
            raise ModelError(
                "The stages are to share one token embedding, but their embeddings differ.",
                hint="Leave tied off, or take one backbone for both stages.",
            )
        context.auto_model.set_input_embeddings(embedding)

    def _collect_stage_state(self) -> dict[str, Tensor]:
        shape = self.context_stage.auto_model.shape.hidden_size
        names = list_stage_shapes(self.settings, shape, len(self.null))
        state = self.state_dict()
        return {name: state[name].detach().contiguous() for name in names}

    def save(self, output_path: str, *_args: Any, **_kwargs: Any) -> None:
        """Write both backbones into folders of their own, and the settings and other weights beside them."""
        folder = Path(output_path)
        for name, stage in ((TEXT_STAGE, self.text_stage), (CONTEXT_STAGE, self.context_stage)):
            (folder / name).mkdir(parents=True, exist_ok=True)
            stage.save(str(folder / name))
        self.save_config(output_path)
        save_file(self._collect_stage_state(), folder / _WEIGHTS, metadata={"format": "pt"})

    def get_config_dict(self) -> dict[str, Any]:
        """The settings, as config.json has them."""
        return asdict(self.settings)

    @classmethod
    def load(  # type: ignore[override]
        cls,
        model_name_or_path: str,
        subfolder: str = "",
        model_kwargs: dict[str, Any] | None = None,
        tokenizer_kwargs: dict[str, Any] | None = None,
        config_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Self:
        """The module in a folder, or in a repository of the hub; the arguments are those of the library.

        Raises:
            ModelError: Its weights are not those of its config, or the settings make no model.
        """
        names = ("token", "cache_folder", "revision", "local_files_only")
        place = {name: kwargs[name] for name in names if name in kwargs}
        folder = Path(cls.load_dir_path(model_name_or_path, subfolder, **place))
        trusted = bool(kwargs.get("trust_remote_code", False))
        text, context = (
            Transformer.load(
                str(folder / name),
                # load_dir_path has fetched the whole folder, so nothing else may come from the hub.
                local_files_only=True,
                trust_remote_code=trusted,
                model_kwargs=model_kwargs,
                tokenizer_kwargs=tokenizer_kwargs,
                config_kwargs=config_kwargs,
            )
            for name in (TEXT_STAGE, CONTEXT_STAGE)
        )
        module = cls(text, context, TwoStageSettings.read_stage_settings(folder))
        tensors = load_file(folder / _WEIGHTS)
        require_shapes(
            folder, tensors, {name: one.shape for name, one in module._collect_stage_state().items()}
        )
        # The backbones have loaded their own weights, and require_shapes has checked the others.
        module.load_state_dict(tensors, strict=False)
        return module


def _build_mlp(inside: int, activation: nn.Module, out: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inside, inside), activation, nn.Linear(inside, out))


def _compute_masked_mean(vectors: Tensor, mask: Tensor) -> Tensor:
    """The mean over the places of a mask, at least in float32: (texts, places, width) to (texts, width)."""
    wide = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
    weights = mask.to(wide.dtype)[..., None]
    return (wide * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)


class ContextualEncoder(Encoder):
    """A loaded two-stage model; it encodes texts behind its context, at first the null context.

    Attributes:
        context: The name of the present context; empty for the null context.
    """

    # Whether texts go through the first stage; `compute_context_vectors` sets it for its call.
    _first = False
    context = ""

    @property
    def _module(self) -> TwoStage:
        return cast(TwoStage, self.model[0])

    @property
    def _before(self) -> int:  # type: ignore[override]
        return 0 if self._first else self._module.settings.places

    def _take_model(self, model: SentenceTransformer) -> None:
        super()._take_model(model)
        self.context = ""

    def set_context(self, vectors: NDArray[np.float32] | None, name: str = "") -> None:
        """Encode texts behind these context vectors from now on.

        Args:
            vectors: (size, dimension); None for the null context.
            name: The name of the context.
        """
        module, self.context = self._module, name
        device = module.null.device
        module.context = None if vectors is None else torch.from_numpy(vectors).to(device)

    def compute_context_vectors(
        self,
        documents: Sequence[str],
        *,
        prompt: str = "",
        progress: Progress | None = None,
        keeper: VectorSink[NDArray[np.float32]] | None = None,
    ) -> NDArray[np.float32]:
        """The context vectors of documents, (documents, dimension); arguments and errors as in `encode`."""
        self._first = True
        try:
            return self.encode(documents, prompt=prompt, progress=progress, keeper=keeper)
        finally:
            self._first = False

    def _prepare_inputs(self, texts: Sequence[str], prompt: str, role: Role) -> Inputs:
        module = self._module
        stage = module.context_stage if self._first else module.text_stage
        return TokenizedTexts(stage, [prompt + text for text in texts], before=self._before)

    def _pass(self, features: dict[str, Any]) -> Tensor:
        if self._first:
            return self._module.compute_context_vectors(features).float()
        return embed_features(self.model, features)
