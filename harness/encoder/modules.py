"""Modules that the installed sentence-transformers lacks: of 5.4 and later, of PyLate and of model2vec."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sentence_transformers import models
from sentence_transformers.models import Module
from sentence_transformers.util import import_from_string
from tokenizers import Tokenizer
from torch import Tensor, nn

from harness.encoder.folder.files import read_object, require_shapes
from harness.encoder.folder.modules_and_pooling import TEXT, TOKENS, read_module_config
from harness.encoder.library_load import build_pooling
from harness.encoder.network.model import read_raw_tensors

Features = dict[str, Any]
"""What modules pass on by name: vectors of tokens and of texts, and the mask."""


class Dense(models.Dense):
    """A Dense over the vectors of texts or tokens, perhaps with a residual: linear layer and activation."""

    def __init__(
        self, *args: Any, module_input_name: str = TEXT, use_residual: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.module_input_name = self.module_output_name = module_input_name
        self.use_residual = use_residual
        if use_residual and self.in_features != self.out_features:
            self.residual = nn.Linear(self.in_features, self.out_features, bias=False)

    def forward(self, features: Features, **_unused: Any) -> Features:
        """The features with projected vectors in place of those that it reads."""
        vectors: Tensor = features[self.module_input_name]
        projected = self.activation_function(self.linear(vectors))
        if self.use_residual:
            projected = projected + (self.residual(vectors) if hasattr(self, "residual") else vectors)
        return {**features, self.module_input_name: projected}

    def get_config_dict(self) -> dict[str, Any]:
        """The config as sentence-transformers writes it since 5.7."""
        names = {"module_input_name": self.module_input_name, "use_residual": self.use_residual}
        return {**super().get_config_dict(), **names}  # type: ignore[no-untyped-call]

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **_unused: Any) -> Self:  # type: ignore[override]
        """The module in a folder.

        Raises:
            ModelError: Its weights are not those of its config.
        """
        place = Path(model_name_or_path, subfolder)
        config = read_module_config(place, "Dense")
        activation = import_from_string(config.get("activation_function") or "torch.nn.Tanh")()
        module = cls(**{**config, "activation_function": activation})
        tensors = read_raw_tensors(place, sharded=False)
        require_shapes(place, tensors, {name: one.shape for name, one in module.state_dict().items()})
        module.load_state_dict(tensors)
        return module


class TokenNormalize(Module):
    """Scales the vectors of tokens to length 1."""

    config_keys: list[str] = ["module_input_name"]  # noqa: RUF012

    def __init__(self, module_input_name: str = TOKENS) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.module_input_name = module_input_name

    def forward(self, features: Features, **_unused: Any) -> Features:
        """The features with scaled vectors of tokens."""
        return {**features, TOKENS: nn.functional.normalize(features[TOKENS], p=2, dim=-1)}

    def save(self, output_path: str, *_args: Any, **_kwargs: Any) -> None:
        """Write the config."""
        self.save_config(output_path)


class OrderedPooling(models.Pooling):
    """A Pooling that joins the vectors of its modes in the order in which they are given."""

    config_keys: list[str] = ["word_embedding_dimension", "pooling_mode", "include_prompt"]  # noqa: RUF012

    def __init__(
        self, word_embedding_dimension: int, pooling_mode: list[str], include_prompt: bool = True
    ) -> None:
        super().__init__(word_embedding_dimension, include_prompt=include_prompt)
        self.pooling_mode, self.word_embedding_dimension = pooling_mode, word_embedding_dimension
        self.pooling_output_dimension = word_embedding_dimension * len(pooling_mode)
        self._parts = [
            build_pooling(word_embedding_dimension, [mode], include_prompt=include_prompt)
            for mode in pooling_mode
        ]

    def forward(self, features: Features, **_unused: Any) -> Features:
        """The features with the vectors of the texts."""
        # A copy for each mode: the maximum overwrites the vectors of padding.
        pooled = [part({**features, TOKENS: features[TOKENS].clone()})[TEXT] for part in self._parts]
        return {**features, TEXT: torch.cat(pooled, dim=1)}


class Truncate(nn.Module):
    """Keeps the first dimensions of the vectors of texts, as a model's `truncate_dim` says."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(self, features: Features) -> Features:
        """The features with shorter vectors of texts."""
        return {**features, TEXT: features[TEXT][..., : self.size]}


class Model2Vec(models.StaticEmbedding):
    """A StaticEmbedding as model2vec encodes: unknown tokens have no vector, and long texts are cut."""

    def __init__(self, tokenizer: Tokenizer, vectors: Tensor, length: int | None) -> None:
        super().__init__(tokenizer, embedding_weights=vectors)
        model = tokenizer.model
        unknown = getattr(model, "unk_token", None)
        self._unknown = (
            tokenizer.token_to_id(unknown) if unknown is not None else getattr(model, "unk_id", None)
        )
        self._characters = None
        if length is not None:
            tokenizer.enable_truncation(length)
            # As model2vec does before it tokenizes.
            self._characters = length * int(np.median([len(token) for token in tokenizer.get_vocab()]))

    def tokenize(self, texts: list[str], **_unused: Any) -> dict[str, Tensor]:
        """The tokens of the texts, one text after the other, and where each begins."""
        cut = [text[: self._characters] for text in texts]
        encodings = self.tokenizer.encode_batch(cut, add_special_tokens=False)
        rows = [[token for token in one.ids if token != self._unknown] for one in encodings]
        starts = np.cumsum([0, *map(len, rows)])[:-1]
        tokens = [token for row in rows for token in row]
        return {"input_ids": torch.tensor(tokens, dtype=torch.long), "offsets": torch.from_numpy(starts)}

    def preprocess(self, inputs: list[str], prompt: str | None = None, **_unused: Any) -> dict[str, Tensor]:
        """The same by the library's name since 5.4."""
        return self.tokenize([(prompt or "") + text for text in inputs])

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **_unused: Any) -> Self:  # type: ignore[override]
        """The module in a folder of model2vec, with its mapping and weights of tokens in the vectors."""
        place = Path(model_name_or_path, subfolder)
        tensors = read_raw_tensors(place, sharded=False)
        vectors = tensors["embeddings"].float()
        if "mapping" in tensors:
            vectors = vectors[tensors["mapping"].long()]
        if "weights" in tensors:
            vectors = vectors * tensors["weights"].float()[:, None]
        length = read_object(place / "config.json").get("max_length", 512)
        return cls(Tokenizer.from_file(str(place / "tokenizer.json")), vectors, length)
