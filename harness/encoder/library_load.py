"""How the libraries load a backbone: calls whose names changed, tensors that no file sets, and padding.

Modules of sentence-transformers are imported from their places of 5.3, which later releases redirect to the
new ones, and where they are needed: their import takes seconds.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from packaging.version import Version
from safetensors import safe_open
from torch import Tensor, nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging as transformers_logging

from harness.core.encoding import LateInteraction
from harness.core.errors import ModelError, format_command
from harness.core.terminal import shorten_names
from harness.encoder.folder.files import list_module_weights, read_tensor_headers
from harness.encoder.folder.modules_and_pooling import (
    ORDER,
    POOLING_FLAGS,
    RUN,
    TOKENS,
    name_pooling,
    split_pooling,
)
from harness.encoder.folder.modules_and_pooling import RENAMED as LATER_NAMES
from harness.encoder.folder.preflight import ENDS, SpecialTokens
from harness.encoder.network.layers import scale_frequencies
from harness.encoder.network.pretrained import describe_ignored_tensors

RENAMED = Version(version("sentence-transformers")) >= Version("5.4.dev0")
"""Whether the installed release has the names of 5.4."""


def rename_loading_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a Transformer of 5.3 as the installed release has them."""
    if not RENAMED:
        return dict(arguments)
    names = {old: new for new, old in LATER_NAMES.items()}
    return {
        "modality_config": RUN["modality_config"][0],
        "module_output_name": TOKENS,
        **{names.get(name, name): value for name, value in arguments.items()},
    }


def tokenize_batch(module: Any, texts: Sequence[str], **way: Any) -> dict[str, Any]:
    """The features of texts in one batch, by a model or its first module; `way` is a Router's route."""
    preprocess = getattr(module, "preprocess", None)
    if preprocess is None or not RENAMED:
        return cast("dict[str, Any]", module.tokenize(list(texts), **way))
    # Up to 5.3 a Transformer strips texts, and there is no modality.
    first = module[0] if isinstance(module, nn.Sequential) else module
    if "StaticEmbedding" not in {kind.__name__ for kind in type(first).__mro__}:
        texts = [text.strip() for text in texts]
    features = preprocess(list(texts), **way)
    return {name: value for name, value in features.items() if name != "modality"}


def count_prompt_tokens(model: Any, first: Any, prompt: str, **way: Any) -> int | None:
    """The tokens of a prompt without a closing one; `first` is the module that tokenizes."""
    # A prompt of characters that the tokenizer drops has no last token.
    with suppress(IndexError):
        if not RENAMED:
            return cast("int | None", model._get_prompt_length(prompt, **way))
        if (count := getattr(first, "_get_prompt_length", None)) is not None:
            return cast("int | None", count(prompt))
    return None


def enable_checkpointing(network: Any, *, reentrant: bool) -> None:
    """Compute activations again in the backward pass of a network of transformers, which saves memory."""
    # The newer name, the older of which warns.
    newer = getattr(network, "activation_checkpointing_enable", None)
    (newer or network.gradient_checkpointing_enable)({"use_reentrant": reentrant})


def get_dimension(module: Any) -> int:
    """The size of the vectors of a model or a module."""
    names = ("get_embedding_dimension", "get_word_embedding_dimension", "get_sentence_embedding_dimension")
    return int(next(getattr(module, name) for name in names if hasattr(module, name))())


def get_pooled_dimension(pooling: Any) -> int:
    """The size of the token vectors that a pooling takes."""
    named = getattr(pooling, "word_embedding_dimension", None)
    return int(pooling.embedding_dimension if named is None else named)


def get_max_length(module: Any) -> Any:
    """The length at which a module cuts texts; None where it cuts none.

    Since 5.4 it is the tokenizer's, which has 10^30 for no length.
    """
    length = getattr(module, "max_seq_length", None)
    return None if isinstance(length, int) and length > 10**12 else length


def build_pooling(dimension: int, modes: Sequence[str], *, include_prompt: bool = True) -> Any:
    """A pooling whose vector joins those of its modes, in the library's order."""
    from sentence_transformers.models import Pooling

    if RENAMED:
        ordered: Any = tuple(mode for mode in ORDER if mode in modes)
        # Since 5.4 "cls" would be the first token behind the prompt.
        include_prompt = include_prompt or ordered == ("cls",)
        return Pooling(dimension, ordered, include_prompt=include_prompt)
    flags: dict[str, Any] = {flag: mode in modes for flag, mode in POOLING_FLAGS.items()}
    return Pooling(dimension, include_prompt=include_prompt, **flags)


def name_modes(pooling: Any) -> str:
    """The name of a pooling's modes, as `name_pooling` has it."""
    modes = getattr(pooling, "pooling_mode", None)
    if modes is None:
        return str(pooling.get_pooling_mode_str())
    return name_pooling({"pooling_mode": [modes] if isinstance(modes, str) else [*modes]}, "")


def build_collator(model: Any) -> Any:
    """The library's collator of training rows, with the tokenizer of a model."""
    from sentence_transformers.data_collator import SentenceTransformerDataCollator

    function: Any = {"preprocess_fn": model.preprocess} if RENAMED else {"tokenize_fn": model.tokenize}
    return SentenceTransformerDataCollator(**function)


SAID = ("out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED", "Cannot allocate memory")
"""Parts of out-of-memory messages: torch's on a GPU, on a CPU, in a library on a GPU, and the system's."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, as of a forward pass with too large a batch, is for want of memory.

    >>> is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    True
    """
    return isinstance(error, MemoryError) or any(s in str(error) for s in SAID)


PROBE = ("A first text, to see which parameters matter.", "Another one: 42!")

SHORT = (
    "A cat sat on the mat.",
    "The stock market fell by 3% on Tuesday, after rates rose.",
    "def add(a, b): return a + b",
    "How do I reset my password?",
    "Übung macht den Meister; l'été à Paris.",
    "42",
)
"""Different texts of different lengths, whose vectors must differ."""


def let_end_pad(tokenizer: Any) -> None:
    """Use the end token as padding where the tokenizer names no padding token."""
    # The attention mask hides padding, so that its token is in no vector; the sanity gate checks that.
    if tokenizer.pad_token is None and tokenizer.eos_token is not None:
        tokenizer.pad_token = tokenizer.eos_token


def require_padding(tokenizer: Any) -> None:
    """Refuse a tokenizer without a padding token.

    Raises:
        ModelError: It has no padding token.
    """
    if tokenizer.pad_token_id is None:
        raise ModelError(
            "The model's tokenizer has neither a padding token nor an end token in its place, so texts of "
            "different lengths make no batch.",
            hint='Name the one it was trained with in a copy of the folder: "pad_token" in '
            "tokenizer_config.json.",
        )


def counts_places(name: str) -> bool:
    """Whether a pooling counts places from the first, and would take padding on the left for tokens."""
    return not {"cls", "weightedmean"}.isdisjoint(split_pooling(name))


TEXT = "The cat sat on the mat."
"""A text whose tokens are looked at."""


def find_text_ends(tokenizer: Any) -> tuple[str, str] | None:
    """The special tokens that begin and end a text, "" for none; None where no tokens of its own are seen."""
    whole, bare = (list(tokenizer(TEXT, add_special_tokens=added)["input_ids"]) for added in (True, False))
    starts = [at for at in range(len(whole) - len(bare) + 1) if whole[at : at + len(bare)] == bare]
    if not bare or not starts:
        return None
    before, behind = whole[: starts[0]], whole[starts[0] + len(bare) :]
    first, last = (
        tokenizer.convert_ids_to_tokens(ids[at]) if ids else "" for ids, at in ((before, 0), (behind, -1))
    )
    return first, last


_CURE = (
    "from tokenizers import Tokenizer as T, processors as p; f = {}; t = T.from_file(f); "
    "t.post_processor = p.TemplateProcessing(single={}, special_tokens=[(s, t.token_to_id(s)) for s in {}]); "
    "t.save(f)"
)
_BY_FILE = (
    'Set "tokenizer_class": "PreTrainedTokenizerFast" in tokenizer_config.json to use tokenizer.json alone.'
)
_SAVE = (
    "from transformers import AutoTokenizer as A; f = {}; A.from_pretrained(f, add_bos_token=bool({}), "
    "add_eos_token=bool({})).save_pretrained(f)"
)


def explain_special_tokens(files: SpecialTokens, first: str, last: str) -> tuple[str, str] | None:
    """What the tokens around a text contradict in the files of its tokenizer, and the cure; None if nothing.

    Since transformers 5 `add_bos_token` and `add_eos_token` do nothing beside a tokenizer.json, and many
    classes replace its post-processor by their own: files of older versions then lose a token without a word.

    Args:
        files: What the files declare.
        first: The token before a text, "" for none.
        last: The token behind it, likewise.
    """
    done, config = {"first": first, "last": last}, files.config
    if wrong := [end for end in ENDS if files.declare(end) not in (None, done[end])]:
        faults = " and ".join(_explain_end(files, end, done[end]) for end in wrong)
        return f"{faults}.", _build_cure(files, wrong)
    named = [config.get(of_encoders) for _, _, of_encoders in ENDS.values()]
    # Lists have tokens of languages, some of which stand around a text.
    lists = (value if isinstance(value, list) else [value] for value in config.values())
    names = [token for tokens in lists for token in tokens]
    others = [token for token in (first, last) if token and token not in names]
    if not all(isinstance(token, str) for token in named) or not (others or not (first or last)):
        return None
    does = f"puts {others[0]} around a text" if others else "adds neither to a text"
    cure = f"Put them into its post-processor: {_build_command(files.folder, *map(str, named))}"
    return f"The tokenizer names {named[0]} and {named[1]}, and {does}.", cure


def _explain_end(files: SpecialTokens, end: str, done: str) -> str:
    (flag, token, _), declared = ENDS[end], files.declare(end)
    verb, place = ("begins", "before") if end == "first" else ("ends", "behind")
    if isinstance(files.config.get(flag), bool) and declared in ("", files.config.get(token)):
        does = f"{verb} without {declared}" if declared else f"{verb} with {done}"
        return f'tokenizer_config.json says "{flag}": {str(files.config[flag]).lower()}, and a text {does}'
    return f"tokenizer.json puts {declared or 'no token'} {place} a text, which gets {done or 'none'}"


def _build_cure(files: SpecialTokens, wrong: Sequence[str]) -> str:
    flags = [ENDS[end][0] for end in wrong if isinstance(files.config.get(ENDS[end][0]), bool)]
    if not flags:
        return _BY_FILE
    command = _build_command(files.folder, *(files.declare(end) or "" for end in ENDS))
    other = " and ".join(f'"{flag}": {str(not files.config[flag]).lower()}' for flag in flags)
    return f"If it was trained as tokenizer_config.json says: {command}. If as now: set {other} there."


def _build_command(folder: Path, first: str, last: str) -> str:
    """The command that makes the tokenizer in a folder add these tokens."""
    if not (folder / "tokenizer.json").is_file():
        return format_command(_SAVE, str(folder), first, last)
    single, tokens = " ".join(filter(None, (first, "$A", last))), sorted({first, last} - {""})
    return format_command(_CURE, str(folder / "tokenizer.json"), single, tokens)


# Each has single blanks: around others some classes differ from their files, which moves few scores.
_TEXTS = (TEXT, "It's 3.14159 (don't ask) on 2024-05-01!", "Déjà vu in Zürich: UPPER CamelCase_word")
_NORMALIZER = ("do_lower_case", "strip_accents", "tokenize_chinese_chars")
"""The fields of tokenizer_config.json that set a normalizer, whatever tokenizer.json says."""


def explain_other_tokens(tokenizer: Any, config: Mapping[str, Any], reference: Any) -> tuple[str, str] | None:
    """What tokens of a loaded tokenizer contradict its tokenizer_config.json, and the cure; None if nothing.

    `reference` is what the tokenizers library makes of its tokenizer.json; it is changed.
    """
    backend, flag = getattr(tokenizer, "backend_tokenizer", None), config.get("add_prefix_space")
    state = b"" if backend is None or not backend.pre_tokenizer else backend.pre_tokenizer.__getstate__()
    spaced = re.findall(rb'"ByteLevel","add_prefix_space":(true|false)', state)
    if isinstance(flag, bool) and spaced and (b"true" in spaced) != flag:
        return (
            f'tokenizer_config.json says "add_prefix_space": {str(flag).lower()}, and a text begins '
            f"{'without' if flag else 'with'} a space.",
            f'If trained so, set "add_prefix_space": {str(not flag).lower()} there, else that of ByteLevel '
            "in tokenizer.json.",
        )
    # That class takes tokenizer.json as it is, with what other files add to it.
    if type(tokenizer) is PreTrainedTokenizerFast:
        return None
    reference.no_truncation()
    reference.no_padding()
    if backend is not None and not config.keys().isdisjoint(_NORMALIZER):
        reference.normalizer = backend.normalizer
    # Such a text gets no other space, whatever the flag.
    blank = " " if spaced and isinstance(flag, bool) else ""
    for text in _TEXTS:
        of_file = reference.encode(blank + text, add_special_tokens=False).tokens
        ids = tokenizer(blank + text, add_special_tokens=False)["input_ids"]
        of_class = tokenizer.convert_ids_to_tokens(ids)
        if of_file != of_class:
            first = next(
                (pair for pair in zip(of_file, of_class, strict=False) if len({*pair}) > 1), ("", "")
            )
            hint = _BY_FILE
            # Releases after 5.3 do so with some model types, Qwen2 among them.
            if config.get("tokenizer_class") in ("PreTrainedTokenizerFast", "TokenizersBackend"):
                hint = f"transformers {transformers.__version__} takes that class whatever "
                hint += "tokenizer_config.json says: use transformers 5.3, which takes tokenizer.json."
            return (
                f"Of {text!r} tokenizer.json makes {len(of_file)} tokens, and transformers' "
                f"{type(tokenizer).__name__} {len(of_class)}: {first[0]!r} is {first[1]!r}.",
                hint,
            )
    return None


def is_unknown(tokenizer: Any, word: str) -> bool:
    """Whether a word is no token of a tokenizer."""
    token_id = tokenizer.convert_tokens_to_ids(word)
    return token_id is None or (token_id == tokenizer.unk_token_id and word != tokenizer.unk_token)


def require_prefixes(tokenizer: Any, late: LateInteraction) -> None:
    """Refuse prefixes that are no tokens, for which PyLate would add some with vectors drawn at random.

    Raises:
        ModelError: A prefix is no token.
    """
    for prefix in filter(None, (late.query_prefix, late.document_prefix)):
        if is_unknown(tokenizer, prefix):
            raise ModelError(
                f"The prefix {prefix!r} is no token of the model's tokenizer.",
                hint="Correct the prefix in config_sentence_transformers.json, or save the model with "
                "PyLate, which adds the token and its embedding.",
            )


def scale_library_rotary(model: nn.Module, kind: str, factor: float, length: int) -> None:
    """Scale the rotary positions of transformers' own class, alike for texts of any length.

    Args:
        model: The backbone, whose tensors may be without memory.
        kind: "yarn", "dynamic" or "linear".
        factor: The factor of the scaling.
        length: The tokens of the longest text.

    Raises:
        ModelError: It has no rotary layers of one kind that are not scaled yet.
    """
    rotaries: list[Any] = [one for one in model.modules() if getattr(one, "rope_type", None) == "default"]
    if not rotaries:
        raise ModelError(
            f"The positions of {type(model).__name__} cannot be scaled: transformers runs it without rotary "
            "layers of one kind that take a scaling.",
            hint="Leave out --rope-scaling.",
        )
    for rotary in rotaries:
        frequency, rotary.attention_scaling = scale_frequencies(rotary.config, kind, factor, length)
        # In place, and under its plain type: the class would follow the longest text of each batch.
        rotary.inv_freq.copy_(frequency)


@contextmanager
def hide_library_output() -> Iterator[None]:
    """Hide progress bars, load reports and warnings of the libraries."""
    library, theirs = logging.getLogger("sentence_transformers"), cast(Any, transformers_logging)
    level, verbosity = library.level, theirs.get_verbosity()
    bars = theirs.is_progress_bar_enabled()
    library.setLevel(logging.ERROR)
    theirs.set_verbosity_error()
    theirs.disable_progress_bar()
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        library.setLevel(level)
        theirs.set_verbosity(verbosity)
        if bars:
            theirs.enable_progress_bar()


# Equality by identity: the dataclass's own would compare tensors, and sets need a hash.
@dataclass(frozen=True, kw_only=True, eq=False)
class UninitialisedTensor:
    """A tensor of a backbone that no file set; `shapes` if the file has another shape."""

    backbone: nn.Module
    name: str
    tensor: Tensor
    shapes: str = ""


@dataclass
class LoadReport:
    """The tensors that no file had, or that had another shape there; notes on those that were left out.

    `allowed` are patterns of tensors that may have no place, although they are those of a layer.
    """

    allowed: Sequence[str] = ()
    fresh: list[UninitialisedTensor] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def note(self, model: PreTrainedModel, info: dict[str, Any]) -> None:
        """Add the load of a model, of which transformers gives `info`."""
        if info["unexpected_keys"]:
            names = sorted(info["unexpected_keys"])
            allowed = {name for name in names if any(fnmatchcase(name, one) for one in self.allowed)}
            _require_all_layers(model, [name for name in names if name not in allowed])
            self.notes.append(
                describe_ignored_tensors(names, f"{type(model).__name__} has no place for them")
            )
        tensors = {**dict(model.named_buffers()), **dict(model.named_parameters())}
        mismatched = {
            name: f" ({tuple(found)} in the file, {tuple(wanted)} in the model)"
            for name, found, wanted in info["mismatched_keys"]
        }
        for name in sorted({*info["missing_keys"], *mismatched}):
            # Integer buffers, such as position ids, are computed and are in few files.
            if name in tensors and tensors[name].is_floating_point():
                shapes = mismatched.get(name, "")
                self.fresh.append(
                    UninitialisedTensor(backbone=model, name=name, tensor=tensors[name], shapes=shapes)
                )


def _require_all_layers(model: PreTrainedModel, names: Sequence[str]) -> None:
    """Refuse tensors without a place that are those of a layer, as a config with fewer layers leaves them."""
    # With a head, the names of a class have the prefix; without one, only those of the file may have it.
    prefix = f"{model.base_model_prefix}."
    layers = {re.sub(r"\d+", "#", name.removeprefix(prefix)) for name in model.state_dict()}
    extra = [name for name in names if re.sub(r"\d+", "#", name.removeprefix(prefix)) in layers]
    if not extra:
        return
    layer = re.split(r"(?<=\d)\.", extra[0])[0]
    raise ModelError(
        f"{model.name_or_path} is not loaded whole: {len(extra)} tensors of further layers have no place in "
        f"the model: {shorten_names(extra, 5)}.",
        hint="The number of layers in its config and its weights do not belong together. If it is to have "
        f"fewer, add --allow 'tensors={layer}.*'",
    )


@contextmanager
def collect_load_report(allowed: Sequence[str] = ()) -> Iterator[LoadReport]:
    """While open, every backbone that transformers loads is added to the report."""
    report = LoadReport(allowed=allowed)
    patched: Any = PreTrainedModel
    # sentence-transformers loads the backbone itself and drops the report, so the method is replaced.
    # The classmethod is taken from __dict__: as an attribute it would be bound to PreTrainedModel.
    original = PreTrainedModel.__dict__["from_pretrained"]

    def from_pretrained(cls: type[PreTrainedModel], *args: Any, **kwargs: Any) -> Any:
        wants_info = kwargs.pop("output_loading_info", False)
        model, info = original.__func__(cls, *args, output_loading_info=True, **kwargs)
        if info["missing_keys"] and args:
            _fill_tied_tensors(model, info, Path(str(args[0]), kwargs.get("subfolder") or ""))
        report.note(model, info)
        return (model, info) if wants_info else model

    patched.from_pretrained = classmethod(from_pretrained)
    try:
        yield report
    finally:
        patched.from_pretrained = original


def _fill_tied_tensors(model: PreTrainedModel, info: dict[str, Any], folder: Path) -> None:
    """Set tensors that the files have only under the name of a tensor that they are tied to.

    safetensors' save_model writes one name of each group, such as the decoder's, which a class without the
    head does not know.
    """
    ties, prefix = _find_ties(model)
    headers = read_tensor_headers(list_module_weights(folder)) or {} if ties else {}
    for name in sorted(info["missing_keys"]):
        headed = name if name in ties or name in ties.values() else prefix + name
        source = ties.get(headed, headed)
        stored = next(
            (n for n, at in {source: source, **ties}.items() if at == source and n in headers), None
        )
        if stored is None or tuple(headers[stored].shape) != tuple(model.get_parameter(name).shape):
            continue
        if not model.get_parameter(name).is_meta:
            with torch.no_grad(), safe_open(headers[stored].path, framework="pt") as file:
                model.get_parameter(name).copy_(file.get_tensor(stored))
        for kind, filled in (("missing_keys", name), ("unexpected_keys", stored)):
            info[kind] = {key for key in info[kind] if key != filled}


def _find_ties(model: PreTrainedModel) -> tuple[dict[str, str], str]:
    """The tied tensors of the class that saved the model, each with the one it equals, and its prefix."""
    config: Any = model.config
    saved = getattr(transformers, (config.architectures or [""])[0], None)
    mappings = (MODEL_FOR_MASKED_LM_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING)
    classes: list[Any] = [saved, *(mapping[type(config)] for mapping in mappings if type(config) in mapping)]
    headed = next((kind for kind in classes if kind is not None and kind is not type(model)), None)
    if headed is None or not issubclass(headed, PreTrainedModel):
        return {}, ""
    with torch.device("meta"):
        return dict(headed(config).all_tied_weights_keys), f"{headed.base_model_prefix}."
