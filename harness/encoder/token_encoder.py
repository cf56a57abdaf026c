"""Multi-vector (ColBERT) models in PyLate's and sentence-transformers' folders: projection and engine.

Equal to PyLate's `ColBERT.encode`, and to `MultiVectorEncoder.encode`, which has no prefixes. Texts are cut
one token short, and the side's prefix is put after the first token. A query is filled up with mask tokens
(expansion), which attend to the query; its own tokens attend to them only if the model says so. Padding is
known by the mask alone, since PyLate pads with the mask token.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer as LibraryModel
from torch import Tensor, nn
from transformers import AutoTokenizer

from harness.core.encoding import Encoding, LateInteraction, TextToken, TextTokens, TokenKind
from harness.core.errors import ModelError
from harness.core.types import SIDES, Artifact, Role
from harness.encoder.batches import Span, encode_texts, takes_packing, tokenize_texts
from harness.encoder.engine import (
    SHORT_TEXT,
    WINDOW,
    BatchSink,
    Engine,
    Progress,
    VectorSink,
    find_unique_texts,
)
from harness.encoder.folder.description import COLBERT
from harness.encoder.folder.files import read_object
from harness.encoder.folder.modules_and_pooling import TOKENS, find_backbone_folder, read_modules
from harness.encoder.folder.preflight import check_trust
from harness.encoder.library_load import is_unknown, require_prefixes
from harness.encoder.modules import Dense
from harness.encoder.network.layers import Packing
from harness.encoder.sentence_transformer import SentenceTransformer, Transformer
from harness.storage.vectors import TokenVectors


class TokenProjection(Dense):
    """PyLate's Dense: a linear layer over token vectors, its activation, and a residual if it has one."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "module_input_name": TOKENS})

    def get_config_dict(self) -> dict[str, Any]:
        """The config as PyLate has it."""
        return {
            name: value for name, value in super().get_config_dict().items() if name != "module_input_name"
        }


def open_modules(folder: Path, model_args: dict[str, Any]) -> SentenceTransformer:
    """The modules of a multi-vector folder, on the CPU: the backbone, and its projections in float32.

    What a MultiVectorEncoder does besides, `compute_token_vectors` does.
    """
    first, *rest = read_modules(folder)
    trusts = model_args.pop("trust_remote_code")
    backbone = Transformer.load(
        str(folder),
        subfolder=first.sub,
        trust_remote_code=trusts,
        local_files_only=True,
        model_kwargs=model_args,
    )
    dense = [module.sub for module in rest if module.class_name == "Dense"]
    projections = [TokenProjection.load(str(folder), sub) for sub in dense]
    return SentenceTransformer(modules=[backbone, *projections], device="cpu")


_OURS = f"{TokenProjection.__module__}.{TokenProjection.__qualname__}"
_THEIRS = "pylate.models.Dense.Dense"
"""The type of a projection as sentence-transformers would write it, and as PyLate does."""


def save_model(model: SentenceTransformer, folder: Path, late: LateInteraction) -> None:
    """Write a multi-vector (ColBERT) model as a PyLate folder.

    Args:
        model: The backbone and its projections.
        folder: A folder that does not exist yet.
        late: The settings of the vectors.
    """
    model.save(str(folder), create_model_card=False)
    modules = folder / "modules.json"
    modules.write_text(modules.read_text().replace(f'"{_OURS}"', f'"{_THEIRS}"'))
    file = folder / "config_sentence_transformers.json"
    settings = {
        "model_type": COLBERT,
        "similarity_fn_name": "MaxSim",
        "query_prefix": late.query_prefix,
        "document_prefix": late.document_prefix,
        "query_length": late.query_length,
        "document_length": late.document_length,
        "attend_to_expansion_tokens": late.attends_to_expansion,
        "skiplist_words": list(late.skiplist),
        "do_query_expansion": late.expansion,
    }
    file.write_text(json.dumps({**read_object(file), **settings}, indent=2))


class _SideInputs:
    """Tokenized texts of one side, longest first; see harness.encoder.engine.Inputs."""

    def __init__(self, module: Any, texts: Sequence[str], late: LateInteraction, role: Role) -> None:
        query = role == "query"
        tokenizer = module.tokenizer
        prefix = late.query_prefix if query else late.document_prefix
        most = late.query_length if query else late.document_length
        tokens = tokenize_texts(module, texts, most - bool(prefix))
        if prefix:
            tokens = tokens.insert_token(tokenizer.convert_tokens_to_ids(prefix))
        self._tokens = tokens
        self.order = tokens.order
        # The token of a query's expansion.
        fills = (tokenizer.mask_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id)
        fill = next((token_id for token_id in fills if token_id is not None), None)
        if fill is None:
            reason = "no mask, end or padding token to fill up queries with"
            raise ModelError(f"The model's tokenizer has {reason}.")
        self._fill = {"input_ids": int(fill), "token_type_ids": tokenizer.pad_token_type_id}
        self._expanded = query and late.expansion
        self._attended = query and late.attends_to_expansion
        self._skipped = () if query else list_skip_tokens(tokenizer, late)
        self._packs = takes_packing(module)
        self.lengths = np.full(len(texts), most, np.int64) if self._expanded else tokens.lengths

    def build_arrays(self, span: Span) -> dict[str, NDArray[Any]]:
        """Ids, attended and computed tokens, and those with a vector (`kept`): (texts, tokens) each."""
        columns = np.arange(max(int(self.lengths[span[0]]), 1))
        real = columns < self._tokens.lengths[slice(*span), None]
        padded = self._tokens.pad_span(span, real, self._fill)
        computed = np.ones_like(real) if self._expanded else real
        return {
            **padded,
            "attention_mask": (computed if self._attended else real).astype(np.int64),
            "compute_mask": computed,
            "kept": computed & ~np.isin(padded["input_ids"], self._skipped),
        }

    def build_features(self, span: Span) -> dict[str, Any]:
        """The features of `compute_token_vectors`, and the number of vectors of each text, `counts`."""
        arrays = self.build_arrays(span)
        features: dict[str, Any] = {**_convert_arrays(arrays), "counts": arrays["kept"].sum(axis=1)}
        if self._packs:
            computed, attended = features.pop("compute_mask"), arrays["attention_mask"].astype(bool)
            features["packing"] = Packing.from_sorted_masks(computed.numpy(), attended)
        return features


def _convert_arrays(arrays: dict[str, NDArray[Any]]) -> dict[str, Tensor]:
    """The arrays as tensors; `kept` has the places of the tokens in the flattened batch."""
    placed = {**arrays, "kept": np.flatnonzero(arrays["kept"])}
    return {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in placed.items()}


def list_skip_tokens(tokenizer: Any, late: LateInteraction) -> tuple[int, ...]:
    """The tokens of documents that have no vector; in PyLate a word without a token is the unknown one."""
    words = [word for word in late.skiplist if late.skips_unknown or not is_unknown(tokenizer, word)]
    return tuple(one for one in tokenizer.convert_tokens_to_ids(words) if one is not None)


def _compute_text_shift(prompt: str, text: str, *, lower: bool) -> int | None:
    """What is added to a place in the tokenized text for the place in the given one; None where that varies.

    The tokenized text begins with the prompt, has no blanks at its ends, and may be in lower case.
    """
    full_text = prompt + text
    # Some letters get longer in lower case: İ becomes two characters.
    if lower and len(full_text.lower()) != len(full_text):
        return None
    return len(full_text) - len(full_text.lstrip()) - len(prompt)


def count_cut(artifact: Artifact, texts: Sequence[str], late: LateInteraction) -> int:
    """The number of queries that are longer than their length, by the tokenizer alone.

    Args:
        artifact: A PyLate model; its weights are not read.
        texts: Queries with their prompts.
        late: The settings of the vectors.
    """
    check_trust(artifact)
    place = find_backbone_folder(artifact.folder)
    shared = {"trust_remote_code": artifact.trust_remote_code, "local_files_only": True}
    tokenizer = AutoTokenizer.from_pretrained(str(place), **shared)
    lower = bool(read_object(place / "sentence_bert_config.json").get("do_lower_case"))
    module = SimpleNamespace(tokenizer=tokenizer, do_lower_case=lower)
    most = late.query_length - bool(late.query_prefix)
    parts = (texts[start : start + WINDOW] for start in range(0, len(texts), WINDOW))
    return sum(bool(one.overflowing) for part in parts for one in encode_texts(module, part, most))


_Pass = tuple[Tensor, NDArray[np.int64]]
"""The vectors of a batch's tokens, (tokens, dimension), and the number of them of each text, (texts,)."""


def build_side_features(
    model: LibraryModel, texts: Sequence[str], late: LateInteraction, role: Role
) -> dict[str, Tensor]:
    """The features of texts of one side in one batch, in their order, for `compute_token_vectors`.

    Args:
        model: The backbone and its projections.
        texts: The texts, with their prompts.
        late: The settings of the vectors.
        role: The side of the texts.

    Returns:
        Ids and masks, (texts, tokens) each, and the places of the tokens with a vector, `kept`.
    """
    inputs = _SideInputs(model[0], texts, late, role)
    rows = np.argsort(inputs.order)
    arrays = inputs.build_arrays((0, len(texts)))
    return _convert_arrays({name: values[rows] for name, values in arrays.items()})


def compute_token_vectors(model: LibraryModel, features: dict[str, Any]) -> Tensor:
    """The vectors of the tokens of a batch, (tokens, dimension), of length 1, one text after the other.

    The backbone runs in its loaded dtype, the projections in float32.
    """
    kept = features.pop("kept")
    for place, module in enumerate(model):
        features = module(features)
        if not place:
            features["token_embeddings"] = features["token_embeddings"].float()
    return nn.functional.normalize(features["token_embeddings"].flatten(0, 1)[kept], p=2, dim=1)


class TokenEncoder(Engine[_Pass]):
    """A loaded model that turns a text into a vector for each of its tokens."""

    @property
    def late(self) -> LateInteraction:
        """The settings of the vectors."""
        assert self.encoding.late_interaction is not None
        return self.encoding.late_interaction

    def __init__(self, model: LibraryModel, encoding: Encoding, *, batch_tokens: int | None = None) -> None:
        super().__init__(model, encoding, batch_tokens=batch_tokens)
        tokenizer = cast(Any, model[0]).tokenizer
        require_prefixes(tokenizer, self.late)
        unknown = [word for word in self.late.skiplist if is_unknown(tokenizer, word)]
        if unknown:
            effect = "in their place the unknown token has no vector, as in PyLate"
            self.notes.append(
                f"{len(unknown)} words of the skiplist are no tokens, {unknown[0]!r} first: "
                f"{effect if self.late.skips_unknown else 'they are left out, as in sentence-transformers'}"
            )

    def _list_sides(self, model: LibraryModel) -> list[Role]:
        return [*SIDES]

    def _measure_dimension(self) -> int:
        return int(self.first_outputs["query", SHORT_TEXT].vectors.shape[1])

    def describe_tokens(self, text: str, *, prompt: str = "", role: Role) -> TextTokens:
        """The tokens of a text on side `role`; those that are not skipped are in the order of `encode`."""
        module, late = cast(Any, self.model[0]), self.late
        prefix = late.query_prefix if role == "query" else late.document_prefix
        most = late.query_length if role == "query" else late.document_length
        encoding = encode_texts(module, [prompt + text], most - bool(prefix))[0]
        special = encoding.special_tokens_mask
        kinds: list[TokenKind] = ["special" if one else "text" for one in special]
        spans = [None if one else span for one, span in zip(special, encoding.offsets, strict=True)]
        if prefix:
            kinds.insert(min(len(kinds), 1), "prefix")
            spans.insert(min(len(spans), 1), None)
        # Each overflowing part has special tokens again, which are no tokens of the text.
        token_count = len(kinds) + sum(one.special_tokens_mask.count(0) for one in encoding.overflowing)
        arrays = _SideInputs(module, [prompt + text], late, role).build_arrays((0, 1))
        ids, kept = arrays["input_ids"][0].tolist(), arrays["kept"][0].tolist()
        kinds += ["expansion"] * (len(ids) - len(kinds))
        spans += [None] * (len(ids) - len(spans))
        shift = _compute_text_shift(prompt, text, lower=module.do_lower_case)
        parts = zip(module.tokenizer.convert_ids_to_tokens(ids), spans, kinds, kept, strict=True)
        tokens = []
        for name, span, kind, has_vector in parts:
            # A token without a place in the text is of the prompt, or special.
            has_place = span is not None and shift is not None and span[0] + shift >= 0
            start, end = (place + (shift or 0) for place in span) if has_place and span else (None, None)
            tokens.append(TextToken(token=name, start=start, end=end, kind=kind, skipped=not has_vector))
        return TextTokens(tokens=tuple(tokens), whole=token_count)

    def _prepare_inputs(self, texts: Sequence[str], prompt: str, role: Role) -> _SideInputs:
        return _SideInputs(self.model[0], [prompt + text for text in texts], self.late, role)

    def _pass(self, features: dict[str, Any]) -> _Pass:
        counts = features.pop("counts")
        return compute_token_vectors(self.model, features), counts

    def encode(
        self,
        texts: Sequence[str],
        *,
        prompt: str = "",
        role: Role,
        progress: Progress | None = None,
        keeper: VectorSink[TokenVectors] | None = None,
    ) -> TokenVectors:
        """The vectors of the tokens of `texts` on side `role`, float32, each text with `prompt` before it.

        Equal texts are encoded once. A text may have no vector, where all of its tokens are skipped.

        Args:
            texts: The texts.
            prompt: The text before each.
            role: The side of the texts.
            progress: Called after each batch.
            keeper: Gets the vectors of every text once, while others are still being computed.

        Raises:
            ModelError: A vector is not finite, or a single text does not fit into memory.
        """
        unique, inverse = find_unique_texts(texts)
        sink = _TokenSink(keeper, unique, inverse)
        self._encode_texts(unique, prompt, role, sink, progress)
        return sink.join_vectors()

    def encode_batch(self, texts: Sequence[str], *, prompt: str = "", role: Role) -> TokenVectors:
        """The vectors of `texts` in one batch padded to the longest, finite or not."""
        # The sanity gate, which calls this, reports vectors that are not finite itself.
        sink = _TokenSink(None, list(texts), np.arange(len(texts)), finite=False)
        self._run_padded_batch(self._prepare_inputs(texts, prompt, role), sink.add_vector_batch)
        return sink.join_vectors()


class _TokenSink(BatchSink):
    """The finished batches of a vector for each token, which go into one whole."""

    def __init__(
        self,
        keeper: VectorSink[TokenVectors] | None,
        texts: list[str],
        inverse: NDArray[np.int64],
        *,
        finite: bool = True,
    ) -> None:
        super().__init__(keeper, texts, inverse)
        self._inverse = inverse
        self._finite = finite
        self._done: list[tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.int64]]] = []
        self._rows: list[NDArray[np.int64]] = []
        self._parts: list[TokenVectors] = []

    def _keep_batch(self, rows: NDArray[np.int64], vectors: NDArray[Any], counts: Any) -> None:
        self._done.append((rows, vectors, counts))

    def join_vectors(self) -> TokenVectors:
        """The vectors of all given texts, in their order."""
        self.send_vectors()
        rows = np.concatenate([*self._rows, np.empty(0, np.int64)])
        return TokenVectors.join(self._parts).take(np.argsort(rows)[self._inverse])

    def send_vectors(self) -> None:
        """Give what is finished to the keeper."""
        self._take_vectors(0)
        done, self._done = self._done, []
        if not done:
            return
        rows = np.concatenate([rows for rows, _, _ in done])
        offsets = np.concatenate([[0], np.cumsum(np.concatenate([counts for _, _, counts in done]))])
        vectors = np.concatenate([vectors for _, vectors, _ in done])
        token_rows = TokenVectors(vectors=vectors, offsets=offsets)
        texts = [self._texts[row] for row in rows]
        # Before the keeper, so that no such vector reaches the cache.
        if self._finite:
            _require_finite(token_rows, texts)
        self._rows.append(rows)
        self._parts.append(token_rows)
        if self._keeper is not None:
            self._keeper.add_vectors(texts, token_rows)


def _require_finite(rows: TokenVectors, texts: Sequence[str]) -> None:
    bad = np.flatnonzero(~np.isfinite(rows.vectors).all(axis=1))
    if not bad.size:
        return
    text = texts[int(np.searchsorted(rows.offsets, bad[0], side="right")) - 1]
    shown = text if len(text) <= 60 else text[:60] + "…"
    raise ModelError(
        f"{bad.size} of {len(rows.vectors)} token vectors are not finite; the first is of {shown!r}.",
        hint="Half precision overflows in some models: try --dtype float32. In float32, weights are damaged.",
    )
