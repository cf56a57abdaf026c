"""What a model's files declare, beside what the loaded model does with a few short texts.

sentence-transformers is not imported, since the trial of a model has no time for that.
"""

from __future__ import annotations

import difflib
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor
from transformers import PreTrainedTokenizerBase
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)

from harness.core.encoding import Encoding
from harness.core.types import SIDES
from harness.encoder.backbones import OFFSET_MODELS
from harness.encoder.folder.description import read_token_limits
from harness.encoder.folder.files import (
    FLOAT,
    FORMS,
    TYPES,
    list_module_weights,
    list_parts,
    read_object,
    read_safetensors,
    read_span,
    read_tensor_headers,
)
from harness.encoder.folder.modules_and_pooling import list_input_modules, read_module_config
from harness.encoder.folder.preflight import SPECIAL_TOKENS, TOKENIZATION, SpecialTokens
from harness.encoder.library_load import (
    TEXT,
    counts_places,
    explain_other_tokens,
    explain_special_tokens,
    find_text_ends,
    get_dimension,
    get_max_length,
    tokenize_batch,
)

BOTH, CAUSAL = "both ways", "causal"

SAME = 1e-6
"""The bound on cosines: above 1 - SAME, vectors are equal up to float32's rounding of 6e-8 a term."""

LENGTH = 1e-3
"""How far the length of a vector may be from 1: half precision rounds by 4e-3 a term, and most cancels."""


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What the files declare and what the loaded model does, under a name.

    Attributes:
        name: The name, as the record has it.
        declared: As the files say; None where they say nothing.
        observed: As the loaded model does; None where that cannot be seen.
        allowance: The name by which the contradiction is accepted; "" where there is none.
        message: The contradiction in words.
        hint: Its cure.
        note: What another file says, where the model does as declared.
    """

    name: str
    declared: Any
    observed: Any
    allowance: str = ""
    message: str = ""
    hint: str = ""
    note: str = ""

    @property
    def cure(self) -> str:
        """What to do about the contradiction."""
        return f"{self.hint} Or take it as it is: --allow {self.allowance}"


def observe(encoder: Any, folder: Path, vectors: NDArray[np.float32]) -> list[Observation]:
    """What the files of a loaded model declare, each beside what it does.

    Args:
        encoder: The model, an `Engine`.
        folder: Its folder.
        vectors: Some of its vectors, (rows, dimension).
    """
    places = [module.sub for module in list_input_modules(folder)]
    observations = []
    for module, place, limits in zip(encoder.input_modules, places, read_token_limits(folder), strict=True):
        length = get_max_length(module)
        own = [Observation(name="max_length", declared=limits.named, observed=length)]
        if hasattr(module, "auto_model") and isinstance(module.tokenizer, PreTrainedTokenizerBase):
            own += observe_backbone(module, folder / place, encoder.encoding)
        # With a tower for each side, every tower has its own.
        prefix = f"{place}." if len(places) > 1 else ""
        observations += [replace(one, name=prefix + one.name) for one in own]
    return [*observations, *_observe_vectors(encoder, folder, vectors), observe_prompts(encoder.encoding)]


def observe_backbone(module: Any, folder: Path, encoding: Encoding) -> Iterator[Observation]:
    """What the files of a backbone and its tokenizer declare, beside what they do.

    Args:
        module: A Transformer of sentence-transformers, or something with its names.
        folder: The folder of the backbone.
        encoding: The settings of the model.
    """
    files = SpecialTokens.read_folder(folder)
    yield from _observe_special_tokens(module, files)
    yield from _observe_tokens(module, files)
    yield _observe_padding(module, files, encoding)
    yield from _observe_padding_token(module, folder)
    yield _observe_case(module, files)
    yield from _observe_vocabulary(module, files)
    yield from _compare_line_counts(module, files)
    yield from _compare_precision(folder, encoding)
    yield from _observe_attention(module, folder, encoding)
    yield from _compare_weights(folder)


def _observe_special_tokens(module: Any, files: SpecialTokens) -> Iterator[Observation]:
    ends = find_text_ends(module.tokenizer)
    if ends is None:
        return
    first, last = ends
    message, hint = explain_special_tokens(files, first, last) or _explain_hidden(module) or ("", "")
    yield Observation(
        name="first_token",
        declared=files.declare("first"),
        observed=first,
        allowance=SPECIAL_TOKENS if message else "",
        message=message,
        hint=hint,
    )
    yield Observation(name="last_token", declared=files.declare("last"), observed=last)


def _observe_tokens(module: Any, files: SpecialTokens) -> Iterator[Observation]:
    """Tokens of a few texts that are others than those of tokenizer.json."""
    if not files.tokenizer or "auto_map" in files.config:
        return
    reference = Tokenizer.from_file(str(files.folder / "tokenizer.json"))
    arguments = read_module_config(files.folder, "Transformer").get("tokenizer_args") or {}
    if difference := explain_other_tokens(module.tokenizer, {**files.config, **arguments}, reference):
        name = type(module.tokenizer).__name__
        seen = Observation(name="tokens", declared="tokenizer.json", observed=name, allowance=TOKENIZATION)
        yield replace(seen, message=difference[0], hint=difference[1])


def _explain_hidden(module: Any) -> tuple[str, str] | None:
    """What tokens of a text alone its attention mask hides, and the cure; None if it hides none."""
    count = len(module.tokenizer(TEXT)["input_ids"])
    seen = int(tokenize_batch(module, [TEXT])["attention_mask"].sum())
    if seen >= min(count, module.max_seq_length or count):
        return None
    return (
        f"The attention mask of a text hides {count - seen} of its {count} tokens, as if they were padding.",
        'Name a "pad_token" in tokenizer_config.json that ends no text.',
    )


def _observe_padding(module: Any, files: SpecialTokens, encoding: Encoding) -> Observation:
    arguments = read_module_config(files.folder, "Transformer").get("tokenizer_args") or {}
    # Poolings that count places are padded on the right whatever the files say; no vector depends on it.
    declared = None if counts_places(encoding.pooling) else {**files.config, **arguments}.get("padding_side")
    mask = tokenize_batch(module, [TEXT, f"{TEXT} {TEXT}"])["attention_mask"][0]
    observed = None if mask.all() else "right" if mask[0] else "left"
    wrong = None not in (declared, observed) and declared != observed
    other = (files.tokenizer.get("padding") or {}).get("direction", "").lower() or None
    return Observation(
        name="padding_side",
        declared=declared,
        observed=observed,
        allowance="padding-side" if wrong else "",
        message=f"The tokenizer's files say that padding stands {declared}, and it stands {observed}.",
        hint=f'Set "padding_side": "{observed}" in tokenizer_config.json if the model was trained so.',
        note=_note_difference(declared, observed, other, f"padding stands {other}"),
    )


def _observe_padding_token(module: Any, folder: Path) -> Iterator[Observation]:
    """The padding token of a model whose positions are counted from it; no other depends on it."""
    config, observed = read_object(folder / "config.json"), module.tokenizer.pad_token_id
    declared = config.get("pad_token_id")
    wrong = None not in (declared, observed) and declared != observed
    if config.get("model_type") not in OFFSET_MODELS:
        return
    yield Observation(
        name="padding_token",
        declared=declared,
        observed=observed,
        allowance=SPECIAL_TOKENS if wrong else "",
        message=f"config.json counts positions from the padding token {declared}, the tokenizer pads with "
        f"{observed}.",
        hint=f'Set "pad_token_id": {observed} in config.json if the model was trained so.',
    )


def _observe_case(module: Any, files: SpecialTokens) -> Observation:
    of_tokenizer = files.config.get("do_lower_case")
    if _ignores_case(module.tokenizer):
        of_tokenizer = None
    declared = True if module.do_lower_case else of_tokenizer
    ids, lower = (
        tokenize_batch(module, [text])["input_ids"][0].tolist() for text in (TEXT.upper(), TEXT.lower())
    )
    # Two unknown tokens are equal whatever the case of their letters.
    observed = None if ids == lower and module.tokenizer.unk_token_id in ids else ids == lower
    wrong = None not in (declared, observed) and declared != observed
    words, other = ("lower-cased", "left in their case"), _read_case(files.tokenizer.get("normalizer"))
    return Observation(
        name="lower_case",
        declared=declared,
        observed=observed,
        allowance="lower-case" if wrong else "",
        message=f"By do_lower_case texts are {words[not declared]}, and they are {words[not observed]}.",
        hint=f'If trained so, set "do_lower_case": {str(observed).lower()} in tokenizer_config.json, else '
        '"lowercase" of the normalizer in tokenizer.json.',
        note=_note_difference(declared, observed, other, f"texts are {words[not other]}"),
    )


def _read_case(normalizer: Any) -> bool | None:
    """Whether a normalizer of tokenizer.json makes letters small; None where that is not known."""
    if not isinstance(normalizer, Mapping):
        return None
    flags = [normalizer.get("lowercase"), *map(_read_case, normalizer.get("normalizers", ()))]
    lowers = normalizer.get("type") == "Lowercase" or True in flags
    return lowers or (False if False in flags else None)


def _observe_vocabulary(module: Any, files: SpecialTokens) -> Iterator[Observation]:
    """A file of the vocabulary that numbers tokens in another way than the tokenizer does."""
    used, lines = module.tokenizer.get_vocab(), files.folder / "vocab.txt"
    words = lines.read_text(encoding="utf-8", errors="replace").split("\n") if lines.is_file() else []
    inside = (files.tokenizer.get("model") or {}).get("vocab")
    sources = {
        "vocab.txt": {word: number for number, word in enumerate(words)},
        "vocab.json": read_object(files.folder / "vocab.json"),
        "tokenizer.json": inside if isinstance(inside, dict) else {},
    }
    for name, numbers in sources.items():
        others = sum(used.get(token, number) != number for token, number in numbers.items())
        if others:
            yield Observation(
                name="vocabulary",
                declared=name,
                observed=None,
                note=f"{name} numbers {others:,} tokens otherwise than the tokenizer, which other files make",
            )


def _compare_line_counts(module: Any, files: SpecialTokens) -> Iterator[Observation]:
    """A vocab.txt or merges.txt with fewer lines than another file says, as a copy that stopped early has."""
    folder, model = files.folder, files.tokenizer.get("model") or {}
    rows = read_object(folder / "config.json").get("vocab_size") or 0
    # Without a tokenizer.json: rows may be filled up, and some tokens of several letters need no merge.
    tokens = read_object(folder / "vocab.json").keys() - {*module.tokenizer.all_special_tokens}
    merged = sum(len(token) > 1 for token in tokens)
    sources = (
        ("vocab.txt", model.get("vocab"), "config.json", rows, max(rows - 127, rows * 0.9)),
        ("merges.txt", model.get("merges"), "vocab.json", merged, merged * 0.9),
    )
    for name, inside, other, size, least in sources:
        if not (folder / name).is_file():
            continue
        text = (folder / name).read_text(encoding="utf-8", errors="replace")
        count = sum(not line.startswith("#version") for line in text.removesuffix("\n").split("\n"))
        if isinstance(inside, dict | list):
            other, size, least = "tokenizer.json", len(inside), len(inside)
        elif name == "vocab.txt":
            count = max(count, len(module.tokenizer))
        if count < least:
            note = f"{name} has {count:,} lines, and {other} speaks of {size:,}: the file may be cut"
            yield Observation(name="vocabulary", declared=name, observed=None, note=note)


def _compare_precision(folder: Path, encoding: Encoding) -> Iterator[Observation]:
    """Weights in another precision than config.json says, which transformers alone would convert to that."""
    config = read_object(folder / "config.json")
    declared = config.get("dtype") or config.get("torch_dtype")
    headers = read_tensor_headers(list_module_weights(folder)) or {}
    storages = {TYPES.get(tensor.dtype, (None, "")) for tensor in headers.values()}
    # torch has each type under the name of its storage, too: torch.half is torch.float16.
    dtypes = {str(getattr(torch, str(name).lower())) for name, kind in storages if kind == FLOAT}
    stored = sorted(dtype.removeprefix("torch.") for dtype in dtypes)
    is_dtype = isinstance(declared, str) and isinstance(getattr(torch, declared, None), torch.dtype)
    if is_dtype and stored and declared not in (*stored, encoding.dtype):
        note = f"config.json says {declared}, and the weights are {' and '.join(stored)}: transformers alone "
        note += f"would run them in {declared}, and here they run in {encoding.dtype}"
        yield Observation(name="precision", declared=declared, observed="+".join(stored), note=note)


def _note_difference(declared: Any, observed: Any, other: Any, words: str) -> str:
    """The note on a tokenizer.json that says something else than is declared and done; "" without one."""
    if None in (declared, other) or declared != observed or other == declared:
        return ""
    return f"tokenizer.json says that {words}: other files say otherwise, and the model does as those say"


def _ignores_case(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether do_lower_case is a leftover: of BERT's files, beside a tokenizer of SentencePiece."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    is_sentencepiece = backend is not None and type(backend.model).__name__ == "Unigram"
    return is_sentencepiece and "do_lower_case" not in inspect.signature(type(tokenizer)).parameters


def _observe_attention(module: Any, folder: Path, encoding: Encoding) -> Iterator[Observation]:
    config, backbone = read_object(folder / "config.json"), module.auto_model
    declared, explicit = _declare_attention(config)
    observed = _find_direction(module)
    yield Observation(
        name="attention",
        declared=declared,
        observed=observed,
        allowance="attention" if explicit and observed not in (None, declared) else "",
        message=f"config.json says that attention is {declared} ({explicit}), and it is {observed}.",
        hint=f"What runs here ignores {explicit}. If the folder brings code of its own and you trust it, add "
        f"--trust-remote-code; if the model was trained as it runs, change {explicit} in config.json.",
    )
    blind = observed == CAUSAL and "cls" in encoding.pooling.split("+")
    if blind:
        yield Observation(
            name="pooling",
            declared=encoding.pooling,
            observed="a token that sees none of the text behind it",
            allowance="blind-pooling",
            message="Its vector is that of the first token, which sees no other: attention is causal.",
            hint="Use the last token, which sees all: --pooling lasttoken (or mean).",
        )
    layers, window = config.get("layer_types"), config.get("use_sliding_window") is True
    if window and isinstance(layers, list):
        # Layers from this number on have the window.
        some = config.get("max_window_layers", 0) < len(layers)
        yield Observation(
            name="sliding_window",
            declared=some,
            observed="sliding_attention" in layers,
            allowance="attention" if some and "sliding_attention" not in layers else "",
            message='config.json says "use_sliding_window": true, and no layer of layer_types has a window.',
            hint='If it was trained without, set "use_sliding_window": false; else correct layer_types.',
        )
    kind = getattr(backbone, "attention_type", None)
    if isinstance(kind, str):
        yield Observation(
            name="sparse_attention", declared=getattr(backbone.config, "attention_type", None), observed=kind
        )


def _declare_attention(config: Mapping[str, Any]) -> tuple[str | None, str]:
    """The direction of attention that a config declares, and the field that does; "" for the model type."""
    for name, both in (("is_causal", False), ("use_bidirectional_attention", True), ("is_decoder", None)):
        value = config.get(name)
        if isinstance(value, bool) and (value or both is not None):
            return (BOTH if value == both else CAUSAL), name
    kind = config.get("model_type")
    # XLNet permutes what is predicted, and reads both ways.
    if "auto_map" in config or kind == "xlnet":
        return None, ""
    if kind in MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        return BOTH, ""
    return (CAUSAL if kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES else None), ""


def _find_direction(module: Any) -> str | None:
    """Whether the first token sees a late one; None where no late token can be changed."""
    features = {
        name: value.to(next(module.auto_model.parameters()).device) if isinstance(value, Tensor) else value
        for name, value in tokenize_batch(module, [TEXT]).items()
    }
    ids = features["input_ids"]
    late = ids.shape[1] - 2
    other = next((token for token in ids[0, 1:late].tolist() if token != ids[0, late]), None)
    if other is None:
        return None
    changed = ids.clone()
    changed[0, late] = other
    with torch.inference_mode():
        first, second = (
            module({**features, "input_ids": one})["token_embeddings"][0, 0].float() for one in (ids, changed)
        )
    # A token that is masked has a weight of exactly 0.
    return CAUSAL if torch.equal(first, second) else BOTH


SAMPLE = 1 << 26
"""The most bytes of tensors by which two sets of weights are compared, the smallest tensors first."""


def _compare_weights(folder: Path) -> Iterator[Observation]:
    """Weights that lie beside those that are loaded, as of an earlier save, and are others."""
    forms = [path for name in FORMS if (path := folder / name).is_file()]
    if not forms or forms[0].name not in FORMS[:2]:
        return
    loaded, *others = forms
    for other in others:
        try:
            differs = _hold_other_numbers(loaded, other)
        # A leftover of any form: transformers does not look at it either.
        except Exception:
            continue
        if differs:
            yield Observation(
                name="weights",
                declared=other.name,
                observed=loaded.name,
                note=f"{other.name} holds other weights than {loaded.name}, which is loaded",
            )


def _hold_other_numbers(loaded: Path, other: Path) -> bool:
    """Whether tensors of the same sizes differ, by the sums of their halves.

    Sums are the same in whichever order the numbers lie: a matrix may lie transposed in a pickle, of which
    nothing is unpickled here.
    """
    with ExitStack() as stack:
        both = [_list_spans(list_parts(form), stack) for form in (loaded, other)]
        counts = sorted(Counter(size for spans in both for size, _ in spans).items())
        totals = accumulate(size * count for size, count in counts)
        sizes = {size for (size, _), total in zip(counts, totals, strict=True) if total <= SAMPLE}
        sums, other_sums = (
            {
                (size, int(np.frombuffer(read(), "<u2").sum(dtype=np.uint64)))
                for size, read in spans
                if size in sizes and size % 2 == 0
            }
            for spans in both
        )
    # In another precision no size is the same; a head or a pooler may be in one file alone.
    is_alike = {size for size, _ in sums} <= {size for size, _ in other_sums}
    return is_alike and len(sums - other_sums) > len(sums) / 10


def _list_spans(paths: Sequence[Path], stack: ExitStack) -> list[tuple[int, Callable[[], bytes]]]:
    """The size in bytes of each tensor in weight files, and what reads it."""
    spans: list[tuple[int, Callable[[], bytes]]] = []
    for path in paths:
        if path.suffix == ".safetensors":
            spans += [
                (one.end - one.begin, partial(read_span, path, one.begin, one.end))
                for one in read_safetensors(path)[0].values()
                if TYPES.get(one.dtype, (None, ""))[1] == FLOAT
            ]
        else:
            archive = stack.enter_context(ZipFile(path))
            spans += [(one.file_size, partial(archive.read, one)) for one in archive.infolist()]
    return spans


def _observe_vectors(encoder: Any, folder: Path, vectors: NDArray[np.float32]) -> Iterator[Observation]:
    encoding, library = encoder.encoding, read_object(folder / "config_sentence_transformers.json")
    dtypes = {
        str(parameter.dtype).removeprefix("torch.")
        for backbone in encoder.backbones
        for parameter in backbone.parameters()
    }
    yield Observation(name="dtype", declared=encoding.dtype, observed="+".join(sorted(dtypes)) or None)
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
    unit = bool((np.abs(lengths - 1) < LENGTH).all())
    yield Observation(
        name="normalize",
        declared=encoding.normalize,
        observed=unit,
        # A cut after Normalize leaves shorter vectors, as in sentence-transformers.
        allowance="vector-length" if encoding.normalize and not unit and not encoding.truncate_dim else "",
        message=f"Its vectors are to have length 1, and have {lengths.min():.3g} to {lengths.max():.3g}.",
        hint="A module behind Normalize changes them: make Normalize the last one in modules.json.",
    )
    size = library.get("truncate_dim")
    late = encoding.late_interaction
    own = get_dimension(encoder.model) if late is None else late.dimension
    declared, observed = size or own, encoder.dimension if late else vectors.shape[1]
    yield Observation(
        name="dimension",
        declared=declared,
        observed=observed,
        allowance="vector-size" if None not in (declared, observed) and declared != observed else "",
        message=f"Its files say vectors of {declared} numbers, and they have {observed}.",
        hint="If the files belong together, correct the dimension in the config.json of its Pooling.",
    )


_SIDES = {"passage": "document", "corpus": "document", "documents": "document", "queries": "query"}
"""Names of prompts that mean a side, and the name by which a side is found."""


def observe_prompts(encoding: Encoding) -> Observation:
    """The prompts of a model, beside those that texts get."""
    prompts = {name: text for name, text in encoding.prompts if text}
    meant = {}
    for name in prompts:
        # The side that a name means, also with a slip of a key; else the name.
        lower = name.lower()
        near = difflib.get_close_matches(lower, SIDES, 1, 0.85)
        meant[name] = _SIDES.get(lower) or (near[0] if near else lower)
    lost = [n for n, side in meant.items() if n not in SIDES and side in SIDES and side not in prompts]
    side = meant[lost[0]] if lost else ""
    return Observation(
        name="prompts",
        declared=sorted(prompts),
        observed=sorted(prompts.keys() - set(lost)),
        allowance="unused-prompt" if lost else "",
        message=f"No text gets its prompt {lost[0]!r}: that of the side is called {side!r}." if lost else "",
        hint=f'Rename it in config_sentence_transformers.json, or add --prompt {side}="…" with its text.',
    )
