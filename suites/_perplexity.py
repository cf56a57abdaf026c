"""Language models and the perplexities of texts: of masked tokens, or from left to right.

The pseudo-perplexity of a text is exp of the mean cross entropy (natural logarithm) of its tokens, each
masked alone (Salazar et al. 2020, Masked Language Model Scoring). Special tokens are not counted.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoTokenizer,
)

from harness.core.allowances import list_allowed_tensors
from harness.core.encoding import Encoding, parse_rope_scaling
from harness.core.errors import DataError, ModelError
from harness.core.identity import digest
from harness.core.types import Artifact
from harness.encoder.backbones import has_network, read_family
from harness.encoder.dtype import TORCH_DTYPES, require_runnable
from harness.encoder.folder.description import TWO_BACKBONES, describe
from harness.encoder.folder.modules import find_backbone_folder
from harness.encoder.folder.trust import check_family, check_trust
from harness.encoder.inputs import Span, SpanQueue, run_spans
from harness.encoder.library_load import collect_load_report, hide_library_output, scale_library_rotary
from harness.encoder.network.model import EncoderForMaskedLM, load_network
from harness.encoder.tensors import HEADLESS

PRETRAINED = "Give the checkpoint of the pretraining: models for embeddings are saved without their head."

CPU_TOKENS, GPU_TOKENS = 8192, 65_536
"""Tokens that are computed at once."""

LEVEL = 0.95
"""The share of draws of positions within an interval."""

RESAMPLES = 2000
"""The draws of positions of which an interval is made."""


@dataclass(frozen=True, kw_only=True)
class LanguageModel:
    """A network with its language-modelling head, ours or of transformers, and its tokenizer."""

    name: str
    network: Any
    tokenizer: Any
    device: torch.device
    batch_tokens: int

    def compute_logits(self, ids: Tensor, places: Tensor) -> Tensor:
        """Scores of the vocabulary, (texts, vocabulary), at `places`, (texts,), of ids, (texts, columns)."""
        rows = torch.arange(len(ids), device=ids.device)
        if isinstance(self.network, EncoderForMaskedLM):
            packed, states = self.network.encoder.encode_tokens(ids, torch.ones_like(ids))
            # The head on the masked tokens alone: scores of every token would fill the memory.
            return cast(Tensor, self.network.head(packed.unpack(states[-1])[rows, places]))
        return cast(
            Tensor, self.network(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[rows, places]
        )


def load_language_model(
    artifact: Artifact,
    encoding: Encoding,
    *,
    device: str,
    left_to_right: bool,
    batch_tokens: int | None = None,
) -> LanguageModel:
    """A backbone with the head of its pretraining.

    Args:
        artifact: The model and its folder; nothing is fetched.
        encoding: Its settings: the dtype, and the scaling of its positions.
        device: A torch device.
        left_to_right: Whether it is a decoder that predicts the next token, and not a masked one.
        batch_tokens: Tokens that are computed at once; None for the device's default.

    Raises:
        ModelError: It has no such head, its weights lack it, or its tokenizer has no mask token.
    """
    require_runnable(encoding.dtype, device)
    check_trust(artifact)
    check_family(artifact, encoding)
    if describe(artifact.folder, own_code=artifact.trust_remote_code).unscalable == TWO_BACKBONES:
        raise ModelError(f"{artifact.name} has no language model: {TWO_BACKBONES}.", hint=PRETRAINED)
    place = find_backbone_folder(artifact.folder)
    with hide_library_output():
        if left_to_right or not has_network(place, own_code=artifact.trust_remote_code):
            network = _load_library_network(artifact, encoding, place, left_to_right=left_to_right)
        else:
            network = _load_our_network(artifact, encoding, place)
        tokenizer = AutoTokenizer.from_pretrained(
            place, local_files_only=True, trust_remote_code=artifact.trust_remote_code
        )
    if not tokenizer.is_fast or (tokenizer.mask_token_id is None and not left_to_right):
        lack = "mask token" if tokenizer.is_fast else "fast form, which tells the places of tokens"
        raise ModelError(f"The tokenizer of {artifact.name} has no {lack}.", hint=PRETRAINED)
    budget = batch_tokens or (CPU_TOKENS if device == "cpu" else GPU_TOKENS)
    return LanguageModel(
        name=artifact.name,
        network=network.eval().to(device),
        tokenizer=tokenizer,
        device=torch.device(device),
        # Classes of transformers give the scores of every token.
        batch_tokens=budget if isinstance(network, EncoderForMaskedLM) else budget // 8,
    )


def _load_our_network(artifact: Artifact, encoding: Encoding, place: Path) -> Any:
    try:
        return load_network(
            place,
            read_family(place),
            dtype=TORCH_DTYPES[encoding.dtype],
            head=True,
            scaling=_resolve_scaling(encoding),
            allow_extra=list_allowed_tensors(artifact.allow),
        ).model
    except ModelError as error:
        if HEADLESS not in error.message:
            raise
        raise _build_headless_error(artifact.name) from None


def _build_headless_error(name: str) -> ModelError:
    return ModelError(
        f"The weights of {name} have no head of a language model, or not all of it: what is missing would be "
        "drawn at random.",
        hint=PRETRAINED,
    )


def _resolve_scaling(encoding: Encoding) -> dict[str, Any] | None:
    kind, factor = parse_rope_scaling(encoding.rope_scaling or "")
    return {"kind": kind, "factor": factor, "length": encoding.max_length} if kind else None


def _load_library_network(artifact: Artifact, encoding: Encoding, place: Path, *, left_to_right: bool) -> Any:
    shared = {"local_files_only": True, "trust_remote_code": artifact.trust_remote_code}
    config: Any = AutoConfig.from_pretrained(place, **shared)
    kinds: tuple[tuple[Any, Any], ...] = (
        (AutoModelForMaskedLM, MODEL_FOR_MASKED_LM_MAPPING),
        (AutoModelForCausalLM, MODEL_FOR_CAUSAL_LM_MAPPING),
    )
    own = getattr(config, "auto_map", None) or {} if artifact.trust_remote_code else {}
    masked, causal = (type(config) in known or kind.__name__ in own for kind, known in kinds)
    # A masked family may have a decoder's class as well, such as BERT; it is no decoder.
    if left_to_right and (masked or not causal):
        raise ModelError(f"{artifact.name} is no decoder.", hint="Type --suite pseudo-perplexity.")
    if not left_to_right and not masked:
        hint = "Type --suite pseudo-perplexity:left-to-right." if causal else PRETRAINED
        raise ModelError(f"The family of {artifact.name} has no masked-language head.", hint=hint)
    with collect_load_report() as report:
        network = kinds[left_to_right][0].from_pretrained(
            place,
            dtype=TORCH_DTYPES[encoding.dtype],
            weights_only=True,
            ignore_mismatched_sizes=True,
            **shared,
        )
    if report.fresh:
        raise _build_headless_error(artifact.name)
    if (scaling := _resolve_scaling(encoding)) is not None:
        scale_library_rotary(network, **scaling)
    return network


@dataclass(frozen=True, kw_only=True)
class TokenizedText:
    """The tokens of a text.

    Attributes:
        key: The hash of the whole text.
        ids: (tokens,) with the special ones.
        places: The places of the tokens that can be predicted, rising.
        characters: The number of characters that these tokens stand for.
    """

    key: str
    ids: NDArray[np.int64]
    places: NDArray[np.int64]
    characters: int

    def draw_places(self, count: int | None) -> NDArray[np.int64]:
        """Some of the places, rising, by hashes of text and place; None for all."""
        if count is None or count >= len(self.places):
            return self.places
        chosen = heapq.nsmallest(count, self.places.tolist(), key=lambda n: digest(f"{self.key} {n}"))
        return np.array(sorted(chosen))


def tokenize_text(model: LanguageModel, text: str, *, length: int, left_to_right: bool) -> TokenizedText:
    """The first tokens of a text: `length` with the special ones, or fewer if it has fewer."""
    encoded = model.tokenizer(
        text,
        truncation=True,
        max_length=length,
        return_special_tokens_mask=True,
        return_offsets_mapping=True,
    )
    places = np.flatnonzero(np.array(encoded["special_tokens_mask"]) == 0)
    # Nothing comes before the first token of a decoder that could tell it.
    places = places[places > 0] if left_to_right else places
    spans = np.array(encoded["offset_mapping"])[places]
    characters = int(spans[:, 1].max() - spans[:, 0].min()) if len(spans) else 0
    ids = np.array(encoded["input_ids"], dtype=np.int64)
    return TokenizedText(key=digest(text), ids=ids, places=places, characters=characters)


def compute_masked_losses(
    model: LanguageModel, text: TokenizedText, places: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The cross entropies (natural logarithm) of tokens of a text, each masked alone.

    Copies of the text with another token masked share a batch, which has no padding.

    Args:
        model: A masked language model.
        text: The text.
        places: (masked,) the places of the tokens.

    Returns:
        (masked,) the losses.
    """
    losses = np.empty(len(places))

    def run_span(span: Span) -> None:
        chosen = places[slice(*span)]
        ids, rows = np.tile(text.ids, (len(chosen), 1)), np.arange(len(chosen))
        ids[rows, chosen] = model.tokenizer.mask_token_id
        inputs = (torch.from_numpy(values).to(model.device) for values in (ids, chosen))
        losses[slice(*span)] = _compute_cross_entropies(model.compute_logits(*inputs), text.ids[chosen])

    queue = SpanQueue(np.full(len(places), len(text.ids)), model.batch_tokens)
    run_spans(queue, run_span, threads=0, halved=lambda _budget: None)
    return losses


def compute_next_losses(model: LanguageModel, text: TokenizedText) -> NDArray[np.float64]:
    """The cross entropies (natural logarithm) of the tokens of a text, each from those before it."""
    with torch.inference_mode():
        logits = model.network(input_ids=torch.from_numpy(text.ids[None]).to(model.device)).logits[0]
        return _compute_cross_entropies(logits[text.places - 1], text.ids[text.places])


def _compute_cross_entropies(logits: Tensor, gold: NDArray[np.int64]) -> NDArray[np.float64]:
    correct = torch.from_numpy(gold).to(logits.device)
    losses = torch.nn.functional.cross_entropy(logits.float(), correct, reduction="none")
    return losses.double().cpu().numpy()


@dataclass(frozen=True, kw_only=True)
class TextLosses:
    """The losses at some places of a text, of all that can be predicted."""

    text: TokenizedText
    losses: NDArray[np.float64]

    @property
    def perplexity(self) -> float:
        """The exponential of the mean loss."""
        return math.exp(self.losses.mean())

    @property
    def bits_per_character(self) -> float:
        """The mean loss of a token in bits, times the tokens of the text over its characters."""
        return float(self.losses.mean() / math.log(2) * len(self.text.places) / self.text.characters)


def estimate_median_interval(texts: Sequence[TextLosses]) -> tuple[float, float]:
    """The interval of the median perplexity of these texts, by the draw of their places alone.

    A bootstrap of the places of each text. Deviations shrink by the root of 1 - n / N, since n places of N
    are drawn without putting any back (Cochran 1977, Sampling Techniques, section 2.6).
    """
    generator, means = np.random.default_rng(0), []
    for one in texts:
        count = len(one.losses)
        drawn = one.losses[generator.integers(count, size=(RESAMPLES, count))].mean(axis=1)
        shrink = math.sqrt(1 - count / len(one.text.places))
        means.append(one.losses.mean() + shrink * (drawn - one.losses.mean()))
    medians = np.median(np.exp(np.array(means)), axis=0)
    low, high = np.quantile(medians, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def measure_text(
    model: LanguageModel, text: str, *, length: int, places: int | None, left_to_right: bool
) -> TextLosses:
    """The losses of a text that is cut at a length.

    Args:
        model: The language model.
        text: The text.
        length: Its tokens, special ones included.
        places: The places that are masked; None for all.
        left_to_right: Whether tokens are predicted from those before them, all of them.

    Raises:
        DataError: The text has fewer tokens than `length`.
    """
    tokenized = tokenize_text(model, text, length=length, left_to_right=left_to_right)
    if len(tokenized.ids) < length:
        raise DataError(
            f"A text has {len(tokenized.ids)} tokens of {model.name}, fewer than {length}.",
            hint="Its tokenizer makes long tokens: leave this length out with --tasks.",
        )
    if left_to_right:
        return TextLosses(text=tokenized, losses=compute_next_losses(model, tokenized))
    losses = compute_masked_losses(model, tokenized, tokenized.draw_places(places))
    return TextLosses(text=tokenized, losses=losses)


def summarize_texts(texts: Sequence[TextLosses]) -> dict[str, float]:
    """The medians and quartiles of a bin, and the interval of the median perplexity by the draw of places."""
    bounds = estimate_median_interval(texts)
    summary = {"interval_low": bounds[0], "interval_high": bounds[1]}
    for name in ("perplexity", "bits_per_character"):
        quartiles = np.percentile([getattr(text, name) for text in texts], [25, 50, 75]).tolist()
        summary |= dict(zip((f"{name}_low", name, f"{name}_high"), quartiles, strict=True))
    return summary
