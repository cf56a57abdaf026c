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
import transformers
from numpy.typing import NDArray
from torch import Tensor

from harness.core.encoding import Encoding
from harness.core.errors import DataError, ModelError
from harness.core.keys import digest
from harness.core.types import Artifact
from harness.encoder.backbones import has_network, read_family
from harness.encoder.batches import Span, SpanQueue, run_spans
from harness.encoder.folder.modules_and_pooling import find_backbone_folder
from harness.encoder.library_load import collect_load_report, hide_library_output, scale_library_rotary
from harness.encoder.loading import build_model_args
from harness.encoder.network.model import EncoderForMaskedLM, load_network
from harness.encoder.network.pretrained import HEADLESS, merge_folder_adapter

PRETRAINED = "Give the checkpoint of the pretraining: models for embeddings are saved without their head."

CPU_TOKENS, GPU_TOKENS = 8192, 65_536
"""Tokens that are computed at once."""

LEVEL, RESAMPLES = 0.95, 2000
"""The share of draws of positions within an interval, and the draws that it is made of."""


@dataclass(frozen=True, kw_only=True)
class LanguageModel:
    """A network with its language-modelling head, ours or of transformers, and its tokenizer.

    `left_to_right` is whether it is a decoder; `batch_tokens` are computed at once.
    """

    network: Any
    tokenizer: Any
    left_to_right: bool = False
    batch_tokens: int = CPU_TOKENS

    def compute_logits(self, ids: Tensor, places: Tensor) -> Tensor:
        """Scores of the vocabulary, (texts, vocabulary), at `places`, (texts,), of ids, (texts, columns)."""
        rows, attended = torch.arange(len(ids), device=ids.device), torch.ones_like(ids)
        if isinstance(self.network, EncoderForMaskedLM):
            packed, states = self.network.encoder.encode_tokens(ids, attended)
            # The head on the masked tokens alone: scores of every token would fill the memory.
            return cast(Tensor, self.network.head(packed.unpack(states[-1])[rows, places]))
        return cast(Tensor, self.network(input_ids=ids, attention_mask=attended).logits[rows, places])


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
        artifact: The model and its folder, which were loaded and checked as an encoder.
        encoding: Its settings: the dtype, and the scaling of its positions.
        device: A torch device.
        left_to_right: Whether it is a decoder that predicts the next token, and not a masked one.
        batch_tokens: Tokens that are computed at once; None for the device's default.

    Raises:
        ModelError: It has no such head, its weights lack it, or its tokenizer has no mask token.
    """
    place, own_code = find_backbone_folder(artifact.folder), artifact.trust_remote_code
    args, name = build_model_args(artifact, encoding), artifact.name
    scaling, allowed = args.pop("scaling", None), args.pop("allow_extra", ())
    shared = {"local_files_only": True, "trust_remote_code": own_code}
    lack = "lack a head of a language model, or a part, which would be drawn at random"
    no_head = ModelError(f"The weights of {name} {lack}.", hint=PRETRAINED)
    with hide_library_output():
        if left_to_right or not has_network(place, own_code=own_code):
            with collect_load_report(allowed) as report:
                network = _load_library_network(name, place, {**shared, **args}, left_to_right)
            if report.fresh:
                raise no_head
            if scaling is not None:
                scale_library_rotary(network, **scaling)
        else:
            own: dict[str, Any] = {"dtype": args["dtype"], "scaling": scaling, "allow_extra": allowed}
            try:
                network = load_network(place, read_family(place), head=True, **own).model
            except ModelError as error:
                if HEADLESS in error.message:
                    raise no_head from None
                raise
        tokenizer = transformers.AutoTokenizer.from_pretrained(place, **shared)
    if not tokenizer.is_fast or (tokenizer.mask_token_id is None and not left_to_right):
        lack = "mask token" if tokenizer.is_fast else "fast form, which tells the places of tokens"
        raise ModelError(f"The tokenizer of {name} has no {lack}.", hint=PRETRAINED)
    budget = batch_tokens or (CPU_TOKENS if device == "cpu" else GPU_TOKENS)
    # Classes of transformers give the scores of every token.
    budget = budget if isinstance(network, EncoderForMaskedLM) else max(budget // 8, 1)
    network = network.eval().to(device)
    return LanguageModel(
        network=network, tokenizer=tokenizer, left_to_right=left_to_right, batch_tokens=budget
    )


def _load_library_network(name: str, place: Path, args: dict[str, Any], left_to_right: bool) -> Any:
    config = transformers.AutoConfig.from_pretrained(place, trust_remote_code=args["trust_remote_code"])
    masked = type(config) in transformers.MODEL_FOR_MASKED_LM_MAPPING
    causal = type(config) in transformers.MODEL_FOR_CAUSAL_LM_MAPPING
    # A masked family may have a class for decoders as well, such as BERT, and is none.
    if left_to_right and (masked or not causal):
        raise ModelError(f"transformers has no decoder for the family of {name}.", hint=PRETRAINED)
    if not (left_to_right or masked):
        hint = "A decoder takes --suite pseudo-perplexity:left-to-right." if causal else PRETRAINED
        raise ModelError(f"transformers has no masked-language head for the family of {name}.", hint=hint)
    loader: Any = transformers.AutoModelForCausalLM if left_to_right else transformers.AutoModelForMaskedLM
    network = loader.from_pretrained(place, **args)
    merge_folder_adapter(network, place)
    return network


@dataclass(frozen=True, kw_only=True)
class TextLosses:
    """What a model predicts of a text: `ids`, (tokens,), with the special ones.

    `losses`, (predicted,), are the cross entropies (natural logarithm) of the tokens at `places`, which are
    some of the `count` that can be predicted, and that stand for `characters`. `key` is the hash of the whole
    text.
    """

    key: str = ""
    ids: NDArray[np.int64]
    places: NDArray[np.int64]
    losses: NDArray[np.float64]
    count: int
    characters: int

    @property
    def perplexity(self) -> float:
        """The exponential of the mean loss."""
        return math.exp(self.losses.mean())

    @property
    def bits_per_character(self) -> float:
        """The mean loss of a token in bits, times the tokens of the text over its characters."""
        return float(self.losses.mean() / math.log(2) * self.count / self.characters)


def measure_text(model: LanguageModel, text: str, length: int, places: int | None) -> TextLosses:
    """The losses of a text that is cut at a length.

    Args:
        model: The language model.
        text: The text.
        length: Its tokens, special ones included.
        places: The places that are masked; None for all. A decoder predicts all.

    Raises:
        DataError: The text has fewer tokens than `length`.
    """
    encoded = model.tokenizer(
        text, truncation=True, max_length=length, return_special_tokens_mask=True, return_offsets_mapping=True
    )
    ids, key = np.array(encoded["input_ids"], dtype=np.int64), digest(text)
    if len(ids) < length:
        raise DataError(
            f"A text has {len(ids)} tokens of the model, fewer than {length}.",
            hint="Its tokenizer makes long tokens: leave this length out with --tasks.",
        )
    every = np.flatnonzero(np.array(encoded["special_tokens_mask"]) == 0)
    # Nothing comes before the first token of a decoder that could tell it.
    every = chosen = every[every > 0] if model.left_to_right else every
    if places is not None and not model.left_to_right:
        # Drawn by hashes of text and place.
        drawn = heapq.nsmallest(places, every.tolist(), key=lambda place: digest(f"{key} {place}"))
        chosen = np.array(sorted(drawn))
    spans = np.array(encoded["offset_mapping"])[every]
    compute_losses = _compute_next_losses if model.left_to_right else compute_masked_losses
    return TextLosses(
        key=key, ids=ids, places=chosen, losses=compute_losses(model, ids, chosen), count=len(every),
        characters=int(spans[:, 1].max() - spans[:, 0].min()),
    )  # fmt: skip


def compute_masked_losses(
    model: LanguageModel, ids: NDArray[np.int64], places: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The losses, (masked,), of the tokens at places, (masked,), of ids, (tokens,), each masked alone.

    Copies of the text with another token masked share a batch, which has no padding.
    """
    losses = np.empty(len(places))

    def run_span(span: Span) -> None:
        chosen = places[slice(*span)]
        copies = np.tile(ids, (len(chosen), 1))
        copies[np.arange(len(chosen)), chosen] = model.tokenizer.mask_token_id
        inputs = (torch.from_numpy(values).to(model.network.device) for values in (copies, chosen))
        losses[slice(*span)] = _compute_cross_entropies(model.compute_logits(*inputs), ids[chosen])

    queue = SpanQueue(np.full(len(places), len(ids)), model.batch_tokens)
    run_spans(queue, run_span, threads=0, halved=lambda _budget: None)
    return losses


def _compute_next_losses(
    model: LanguageModel, ids: NDArray[np.int64], places: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The losses of the tokens at places, each from those before it."""
    with torch.inference_mode():
        logits = model.network(input_ids=torch.from_numpy(ids[None]).to(model.network.device)).logits[0]
        return _compute_cross_entropies(logits[places - 1], ids[places])


def _compute_cross_entropies(logits: Tensor, gold: NDArray[np.int64]) -> NDArray[np.float64]:
    correct = torch.from_numpy(gold).to(logits.device)
    losses = torch.nn.functional.cross_entropy(logits.float(), correct, reduction="none")
    return losses.double().cpu().numpy()


def estimate_median_interval(texts: Sequence[TextLosses]) -> tuple[float, float]:
    """The interval of the median perplexity of these texts, by the draw of their places alone.

    A bootstrap of the places of each text. Deviations shrink by the root of 1 - n / N, since n places of N
    are drawn without putting any back (Cochran 1977, Sampling Techniques, section 2.6).
    """
    generator, means = np.random.default_rng(0), []
    for text in texts:
        size, mean = len(text.losses), text.losses.mean()
        drawn = text.losses[generator.integers(size, size=(RESAMPLES, size))].mean(axis=1)
        means.append(mean + math.sqrt(1 - size / text.count) * (drawn - mean))
    medians = np.median(np.exp(np.array(means)), axis=0)
    low, high = np.quantile(medians, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def summarize_texts(texts: Sequence[TextLosses]) -> dict[str, float]:
    """The medians and quartiles of a bin, and the interval of the median perplexity by the draw of places."""
    summary = dict(zip(("interval_low", "interval_high"), estimate_median_interval(texts), strict=True))
    for name in ("perplexity", "bits_per_character"):
        quartiles = np.percentile([getattr(text, name) for text in texts], [25, 50, 75]).tolist()
        summary |= dict(zip((f"{name}_low", name, f"{name}_high"), quartiles, strict=True))
    return summary
