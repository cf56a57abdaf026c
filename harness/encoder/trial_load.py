"""The trial of a model folder, which refuses whatever a run would refuse: at the load, or in the sanity gate.

Backbones of transformers' own classes are built on torch's meta device, where their names and shapes are
compared with the headers of weight files, and run two texts on tensors without memory. Then the model is
loaded, and passes the gate of a run. Our network computes no padding and keeps nothing of a text, so it runs
a few, alone and together, and its files are compared with what its tokenizer does. Whatever cannot be known
so is settled by a load. sentence-transformers is not imported before, as that takes seconds.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import json
import os
import pickle
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from harness.core.arguments import list_allowed_tensors
from harness.core.encoding import Encoding, parse_rope_scaling
from harness.core.errors import DamagedModelError, DataError, HarnessError, ModelError
from harness.core.provenance import measure_free_memory
from harness.core.types import Artifact
from harness.encoder.backbones import has_network, read_family
from harness.encoder.folder.files import (
    have_other_numbers,
    list_module_weights,
    read_json,
    read_object,
    read_tensor_headers,
)
from harness.encoder.folder.modules_and_pooling import (
    ATTENTIVE,
    ROUTERS,
    TEXT,
    TOKENS,
    TWO_STAGE,
    list_modules,
    read_module_config,
    read_modules,
    read_pooling,
    split_pooling,
    weight_files,
)
from harness.encoder.folder.preflight import SPECIAL_TOKENS, TOKENIZATION, SpecialTokens
from harness.encoder.library_load import (
    PROBE,
    SHORT,
    LoadReport,
    collect_load_report,
    explain_other_tokens,
    explain_special_tokens,
    find_text_ends,
    hide_library_output,
    is_out_of_memory,
    let_end_pad,
    require_padding,
    require_prefixes,
    scale_library_rotary,
)
from harness.encoder.network.model import EncoderModel, load_network
from harness.encoder.network.pretrained import merge_folder_adapter
from harness.encoder.observed import SAME, observe_backbone, observe_prompts
from harness.storage.vectors import round_to_half

LARGEST = 2 << 30
"""Bytes of weights up to which our network is loaded, and any other model twice."""

SMALL = 100 << 20
"""Bytes of weights up to which further modules behind our network pass the whole gate."""

PLAIN = frozenset({"Transformer", "Pooling", "Normalize", "Dropout"})
"""The modules without weights of their own, and the backbone."""

KNOWN = PLAIN | {"Dense", ATTENTIVE, TWO_STAGE}
"""The modules whose load is known from their files."""

STEADY = 1e-5
"""The change of a vector in a batch, relative to its length, up to which the gate is left to the run."""

UNKNOWN = "日 Ж 😀"
"""A text with words that few vocabularies have."""

REQUIRED = {
    "Pooling": ("word_embedding_dimension",),
    "Dense": ("in_features", "out_features"),
}
"""The fields that the config of a module must have."""

ENCODER_CLASSES = {
    "T5Config": "T5EncoderModel",
    "MT5Config": "MT5EncoderModel",
    "T5GemmaConfig": "T5GemmaEncoderModel",
}
"""The classes that sentence-transformers loads instead of AutoModel's, by their config."""

GPU = re.compile("CUDA|GPU|Triton")
"""What an error says where something runs on a GPU alone."""


class _DoubtError(Exception):
    """Nothing is wrong as far as the files tell, which is not far enough."""


def try_load(artifact: Artifact, encoding: Encoding, *, gate: bool) -> tuple[int, str | None]:
    """Try a model.

    Args:
        artifact: The model and its folder.
        encoding: Its settings.
        gate: Whether the sanity gate may refuse it.

    Returns:
        The special tokens that its tokenizers add to a text, at most; why it was not tried whole, if so.

    Raises:
        ModelError: It does not load, or does not pass the gate.
    """
    try:
        with hide_library_output():
            special, doubt = _try_modules(artifact, encoding, gate=gate), None
    # Any library that reads the folder may fail in its own way; whether the load does is seen by loading.
    except Exception as error:
        if isinstance(error, HarnessError) and not _is_machine_fault(artifact, error):
            raise
        special, doubt = 0, error
    if doubt is None and not encoding.may_exceed_half and not (gate and _is_gated_whole(artifact, encoding)):
        return special, None
    if shortage := _explain_shortage(artifact.folder):
        if not (doubt is None or isinstance(doubt, _DoubtError) or _is_machine_fault(artifact, doubt)):
            raise _explain_failure(artifact, doubt, "load") from doubt
        return special, shortage
    try:
        return max(special, _load_whole(artifact, encoding, gate=gate)), None
    except Exception as error:
        if _is_machine_fault(artifact, error):
            return special, f"on the CPU its trial ends with {_format_error(error.__cause__ or error)}"
        if isinstance(error, HarnessError):
            raise
        raise _explain_failure(artifact, error, "run") from error


def _is_gated_whole(artifact: Artifact, encoding: Encoding) -> bool:
    """Whether the sanity gate may find what the files of a model do not tell."""
    modules, own_code = list_modules(artifact.folder), artifact.trust_remote_code
    backbones = [module.place for module in modules if module.class_name == "Transformer"]
    if not all(has_network(place, own_code=own_code) for place in backbones):
        return True
    is_plain = encoding.late_interaction is None and {module.class_name for module in modules} <= PLAIN
    return not is_plain and _count_bytes(artifact.folder) <= SMALL


def _count_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in weight_files(folder))


def _explain_failure(artifact: Artifact, error: Exception, what: str) -> ModelError:
    return ModelError(f"{artifact.name} does not {what}: {_format_error(error)}")


def _format_error(error: BaseException) -> str:
    first_line = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first_line}".rstrip(".: ")


def _is_machine_fault(artifact: Artifact, error: BaseException | None) -> bool:
    """Whether an error, or one that it explains, may be for want of memory or of a GPU."""
    while error is not None:
        # A model's own code may run on a GPU alone, and fail here in any way.
        is_own = artifact.trust_remote_code and not isinstance(error, ImportError | pickle.UnpicklingError)
        if not isinstance(error, HarnessError) and (
            is_own or is_out_of_memory(error) or GPU.search(str(error))
        ):
            return True
        error = error.__cause__
    return False


def _explain_shortage(folder: Path) -> str | None:
    """Why a model cannot be loaded in the free memory; None if it can."""
    size, room = _count_bytes(folder), measure_free_memory()
    # Weights in 16 bits take twice their size in float32, and others may be in memory twice for a moment.
    if 2 * size <= room:
        return None
    return f"twice its weights are {2 * size / 1e9:.1f} GB, and {room / 1e9:.1f} GB of memory are free"


def _load_whole(artifact: Artifact, encoding: Encoding, *, gate: bool) -> int:
    """Load a model, and see whether it passes the gate and float16 holds its vectors.

    Returns the special tokens of a text as far as known.
    """
    # The program of `harness/plan/models.py` hides these, which sentence-transformers needs.
    for name in ("sklearn", "scipy"):
        if sys.modules.get(name, torch) is None:
            del sys.modules[name]
    from harness.encoder.sanity import load_checked

    # A CPU does not run float16.
    encoding = replace(encoding, dtype="float32") if encoding.dtype == "float16" else encoding
    try:
        encoder = load_checked(artifact, encoding, gate=gate, twice=_count_bytes(artifact.folder) <= LARGEST)
        for vectors in encoder.first_outputs.values() if encoding.may_exceed_half else ():
            round_to_half(vectors)
    except DataError as error:
        raise ModelError(f"{artifact.name}: {error.args[0]}", hint=error.hint) from None
    loaded = [getattr(module, "tokenizer", None) for module in encoder.model.modules()]
    return max(
        (one.num_special_tokens_to_add() for one in loaded if isinstance(one, PreTrainedTokenizerBase)),
        default=0,
    )


def _try_modules(artifact: Artifact, encoding: Encoding, *, gate: bool) -> int:
    """Try every module; returns the special tokens that the tokenizers add to a text, at most."""
    pads = encoding.late_interaction is None
    folder, special, width, pooled = artifact.folder, 0, None, False
    modules = read_json(folder / "modules.json") if (folder / "modules.json").is_file() else []
    if pads and any("name" not in entry for entry in modules):
        raise DamagedModelError(f"{folder / 'modules.json'} has a module without a name.")
    if any(module.class_name in ROUTERS for module in read_modules(folder)):
        raise _DoubtError
    for path in weight_files(folder):
        if path.suffix != ".safetensors":
            continue
        try:
            with safe_open(path, "pt"):
                pass
        except SafetensorError as error:
            raise DamagedModelError(f"{path} is not a whole safetensors file: {error}.") from error
    for module in list_modules(folder):
        name, place = module.class_name, module.place
        if name not in KNOWN:
            raise _DoubtError
        config = read_module_config(place, name)
        _require_plain(place, str(name), config)
        if name == "Transformer":
            added, width = _try_backbone(place, artifact, encoding, gate=gate)
            special = max(special, added)
        elif name in ("Pooling", ATTENTIVE) and width is not None:
            size = config["word_embedding_dimension"]
            # A learned pooling has weights of its width; any other takes what comes, as the sanity gate says.
            if size != width and name == ATTENTIVE:
                raise ModelError(
                    f"{place} pools vectors of {size} dimensions, and its backbone's have {width}.",
                    hint="Its config and its backbone do not belong together: fetch the folder again.",
                )
            if size != width and gate:
                raise _DoubtError
            width *= len(split_pooling(str(read_pooling([module]))))
            pooled = True
        elif name == "Dense":
            reads_text = pads and config.get("module_input_name", TEXT) == TEXT
            if width not in (None, config["in_features"]) or (reads_text and not pooled):
                raise _DoubtError
            width = config["out_features"]
        pooled = pooled or name == TWO_STAGE
    if modules and pads and not pooled:
        raise ModelError(
            f"{folder / 'modules.json'} names no module that makes the vector of a text, such as Pooling.",
            hint="Save or fetch the model folder again.",
        )
    return special


def _require_plain(place: Path, name: str, config: Mapping[str, Any]) -> None:
    """Refuse a module whose config lacks a field; doubt a Dense without a known activation."""
    missing = [field for field in REQUIRED.get(name, ()) if config.get(field) is None]
    if missing:
        raise DamagedModelError(f"{place / 'config.json'} of the {name} has no {missing[0]}.")
    if name == "Dense":
        if config.get("activation_function") is None:
            raise _DoubtError
        package, _, activation = str(config["activation_function"]).rpartition(".")
        getattr(importlib.import_module(package), activation)()


def _try_backbone(
    place: Path, artifact: Artifact, encoding: Encoding, *, gate: bool
) -> tuple[int, int | None]:
    """Try a backbone and its tokenizer; returns the special tokens of a text, and the width of a token."""
    _require_consistent(place, read_object(place / "config.json"))
    settings = [read_object(path) for path in sorted(place.glob("sentence_*_config.json"))]
    arguments = [
        value for one in settings for name, value in one.items() if name.endswith(("_args", "_kwargs"))
    ]
    if any(arguments):
        raise _DoubtError
    # A multi-vector (ColBERT) model fills texts up with other tokens than padding.
    late = encoding.late_interaction
    pads = late is None
    shared = {"local_files_only": True, "trust_remote_code": artifact.trust_remote_code}
    ours = has_network(place, own_code=artifact.trust_remote_code)
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(str(place), **shared)
        let_end_pad(tokenizer)
        if late is None:
            require_padding(tokenizer)
        else:
            require_prefixes(tokenizer, late)
        tokenizer(UNKNOWN)
        features = tokenizer(list(PROBE if pads else PROBE[:1]), padding=pads, return_tensors="pt")
        if "attention_mask" not in features:
            raise ModelError(
                f"The tokenizer in {place} gives no attention mask: padding would be in vectors.",
                hint='Add "attention_mask" to "model_input_names" in tokenizer_config.json. A model without '
                "one, such as FNet, has no score of a text.",
            )
        file = place / "tokenizer.json"
        reference = tokenizers.Tokenizer.from_file(str(file)) if file.is_file() else None
        _require_declared_tokens(place, artifact, tokenizer, reference)
    except (HarnessError, KeyboardInterrupt, SystemExit):
        raise
    # A panic of the tokenizers library is no Exception.
    except BaseException as error:
        raise DamagedModelError(
            f"The tokenizer in {place} cannot be used: {_format_error(error)}."
        ) from error
    rows: int | None
    if ours:
        network = _load_network(place, artifact, encoding)
        rows, width = network.shape.vocab_size, network.shape.hidden_size
    else:
        allowed = list_allowed_tensors(artifact.allow)
        rows, width = _try_library_class(place, shared, dict(features), encoding, allowed)
    tokens = {*reference.get_vocab()} if reference is not None else set()
    # A class of transformers adds special tokens of its own, which no text gets unless they are words.
    numbers = (
        number
        for token, number in tokenizer.get_vocab().items()
        if not tokens or token in tokens or token.isalnum()
    )
    # A token for padding or expansion that is none of the model's is added behind them.
    expansion = 0 if pads else tokenizer.mask_token_id or 0
    largest = max(*numbers, int(features["input_ids"].max()), expansion)
    if rows is not None and largest >= rows:
        raise ModelError(
            f"The tokenizer in {place} has tokens up to number {largest}, and the token embedding has "
            f"{rows} rows.",
            hint="The tokenizer is another model's, or tokens were added without resizing the embedding.",
        )
    if ours and gate and pads:
        _check_network(_Backbone(place, tokenizer, network, encoding), place, artifact, encoding)
    return tokenizer.num_special_tokens_to_add(), width


class _Backbone:
    """Our network and its tokenizer, with the names of sentence-transformers' Transformer."""

    def __init__(self, place: Path, tokenizer: Any, network: EncoderModel, encoding: Encoding) -> None:
        self.tokenizer, self.auto_model, self.max_seq_length = tokenizer, network, encoding.max_length
        self.do_lower_case = bool(read_module_config(place, "Transformer").get("do_lower_case"))

    def tokenize(self, texts: Sequence[str]) -> dict[str, Tensor]:
        """The features of texts in one batch."""
        stripped = [text.strip().lower() if self.do_lower_case else text.strip() for text in texts]
        cut = {"truncation": "longest_first", "max_length": self.max_seq_length}
        return dict(self.tokenizer(stripped, padding=True, return_tensors="pt", **cut))

    def __call__(self, features: dict[str, Tensor]) -> dict[str, Tensor]:
        """The features with the vectors of tokens, (texts, tokens, width)."""
        names = inspect.signature(self.auto_model.forward).parameters
        taken: Any = {name: value for name, value in features.items() if name in names}
        return {**features, TOKENS: self.auto_model(**taken)[0]}


def _check_network(module: _Backbone, place: Path, artifact: Artifact, encoding: Encoding) -> None:
    """Refuse a contradiction between the files of our network and what it does; doubt vectors of no use."""
    if encoding.max_length <= module.tokenizer.num_special_tokens_to_add():
        return
    for seen in (*observe_backbone(module, place, encoding), observe_prompts(encoding)):
        if seen.allowance and seen.allowance not in artifact.allow:
            raise ModelError(f"{artifact.name}: {seen.message}", hint=seen.cure)
    together, alone = (
        torch.cat([_pool_texts(module, texts, encoding.pooling) for texts in batches])
        for batches in ([SHORT], [[text] for text in SHORT])
    )
    units = torch.nn.functional.normalize(together)
    moved = (together - alone).norm(dim=1) / alone.norm(dim=1)
    # The least cosine is not a number if any is not.
    if not (together.any() and (units @ units.T).min() < 1 - SAME and moved.max() < STEADY):
        raise _DoubtError


def _pool_texts(module: _Backbone, texts: Sequence[str], pooling: str) -> Tensor:
    """The vectors of texts in one batch, (texts, width)."""
    with torch.inference_mode():
        features = module(module.tokenize(texts))
    tokens, mask = features[TOKENS], features["attention_mask"].unsqueeze(-1)
    # Poolings other than that of the first token see all of them.
    return (tokens[:, 0] if pooling == "cls" else (tokens * mask).sum(1) / mask.sum(1)).double()


def _require_declared_tokens(place: Path, artifact: Artifact, tokenizer: Any, reference: Any) -> None:
    """Refuse a tokenizer that does not do what its files declare, unless accepted."""
    files, ends = SpecialTokens.read_folder(place), find_text_ends(tokenizer)
    differences = {SPECIAL_TOKENS: ends and explain_special_tokens(files, *ends)}
    if reference is not None and "auto_map" not in files.config:
        differences[TOKENIZATION] = explain_other_tokens(tokenizer, files.config, reference)
    for name, difference in differences.items():
        if difference and name not in artifact.allow:
            hint = f"{difference[1]} Or take it as it is: --allow {name}"
            raise ModelError(f"{place}: {difference[0]}", hint=hint)


def _require_consistent(place: Path, config: Mapping[str, Any]) -> None:
    """Refuse a config of two model types, by its class, or with two bases of rotary positions."""
    bases = [config.get("rope_theta"), (config.get("rope_parameters") or {}).get("rope_theta")]
    if None not in bases and bases[0] != bases[1]:
        raise ModelError(
            f"{place / 'config.json'} says rope_theta {bases[0]!r}, and {bases[1]!r} in rope_parameters.",
            hint="Leave out the one that the model was not trained with, in a copy of the folder.",
        )
    if config.get("bi_data"):
        raise ModelError(
            f'{place / "config.json"} says "bi_data": true: half of a batch would be read backwards.',
            hint='That is for pretraining: set "bi_data": false in a copy of the folder.',
        )
    name, kind = (config.get("architectures") or [""])[0], config.get("model_type", "")
    prefix = CONFIG_MAPPING[kind].__name__.removesuffix("Config") if kind in CONFIG_MAPPING else None
    # The import of a class takes a tenth of a second, which one named after the type's config does not need.
    if prefix and re.fullmatch(rf"{prefix}(Model|For[A-Z]\w+)", name):
        return
    saved = getattr(getattr(transformers, name, None), "config_class", None)
    other = getattr(saved, "model_type", None)
    if other not in (None, kind) and "auto_map" not in config:
        raise ModelError(
            f"{place / 'config.json'} says model_type {kind!r}, and {name} has {other!r}.",
            hint="The model type decides what runs. Correct the wrong one in a copy of the folder.",
        )


def _load_network(place: Path, artifact: Artifact, encoding: Encoding) -> EncoderModel:
    """Load our network of a folder in float32; too large a one is a doubt."""
    # sentence-transformers asks such a config for the width of a token.
    if "text_config" in read_object(place / "config.json"):
        raise _DoubtError
    if _count_bytes(place) > LARGEST or _explain_shortage(place):
        raise _DoubtError
    kind, factor = parse_rope_scaling(encoding.rope_scaling or "")
    model = load_network(
        place,
        read_family(place),
        dtype=torch.float32,
        scaling={"kind": kind, "factor": factor, "length": encoding.max_length} if kind else None,
        allow_extra=list_allowed_tensors(artifact.allow),
    ).model
    assert isinstance(model, EncoderModel)
    return model


def _try_library_class(
    place: Path,
    shared: dict[str, Any],
    features: dict[str, Tensor],
    encoding: Encoding,
    allowed: Sequence[str],
) -> tuple[int | None, int]:
    """Build transformers' class of a folder and run it on texts, both without memory; returns as above."""
    config: Any = AutoConfig.from_pretrained(str(place), **shared)
    # As above; configs of several models have an object of theirs in this place.
    if isinstance(getattr(config, "text_config", None), dict):
        raise _DoubtError
    kind: Any = AutoModel
    if type(config).__name__ in ENCODER_CLASSES:
        kind = getattr(transformers, ENCODER_CLASSES[type(config).__name__])
    with collect_load_report(allowed) as report:
        model: PreTrainedModel = kind.from_pretrained(
            str(place),
            config=config,
            device_map="meta",
            dtype=torch.float32,
            weights_only=True,
            ignore_mismatched_sizes=True,
            **shared,
        )
    headers = read_tensor_headers(list_module_weights(place)) or {}
    for name, source in model.get_expanded_tied_weights_keys(all_submodels=True).items():
        if {name, source} <= headers.keys() and have_other_numbers(headers[name], headers[source]):
            raise ModelError(
                f"{place} holds {source} twice: other numbers are in {name}, which is to be the same.",
                hint="Take the one that is not the model's out of the weights, in a copy of the folder.",
            )
    if encoding.rope_scaling is not None:
        scale_library_rotary(model, *parse_rope_scaling(encoding.rope_scaling), encoding.max_length)
    try:
        merge_folder_adapter(model, place)
        width = _run_on_fakes(model, features, report)
    except HarnessError:
        raise
    # Some code, as Longformer's, wants to see values; mixtures of experts have no such kernels in float32.
    except Exception as error:
        raise _DoubtError from error
    return getattr(model.get_input_embeddings(), "num_embeddings", None), width


def _run_on_fakes(model: PreTrainedModel, features: dict[str, Tensor], report: LoadReport) -> int:
    """Run a model of transformers' own class without memory; returns the width of a token's vector."""
    parameters = inspect.signature(model.forward).parameters
    taken = {name: value for name, value in features.items() if name in parameters}
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        # from_config is the constructor: the model above holds tensors of the meta device, where less runs.
        copy = type(model)(model.config).eval()
        tokens = copy(**{name: mode.from_tensor(value) for name, value in taken.items()}, return_dict=True)[0]
        if tokens.dim() != 3:
            raise ModelError(
                f"{model.name_or_path} gives no vector for each token: the output of {type(model).__name__} "
                f"has the shape {tuple(tokens.shape)}.",
                hint=VECTORS.get(model.config.model_type),
            )
        fresh = [copy.get_parameter(tensor.name) for tensor in report.fresh]
        if fresh and any(
            gradient is not None for gradient in torch.autograd.grad(tokens.sum(), fresh, allow_unused=True)
        ):
            raise _DoubtError
    return int(tokens.shape[-1])


VECTORS = {
    "dpr": "Save the BERT within it, `DPRContextEncoder.from_pretrained(folder).ctx_encoder.bert_model"
    ".save_pretrained(new)` (of a question encoder `.question_encoder.bert_model`), with the tokenizer and "
    'with "model_type": "bert" in its config.json. With --pooling cls, it gives DPR\'s vectors.'
}
"""What to do about a model type that gives no vectors of tokens."""


def _serve() -> None:
    """Read models from standard input, and write what became of each to standard output."""
    answers = os.fdopen(os.dup(1), "wb")
    # What a library prints goes nowhere.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    models: list[tuple[Artifact, Encoding]]
    models, gate = pickle.load(sys.stdin.buffer)
    gc.freeze()
    gc.enable()
    # One by one: those before a model that ends this process count.
    for artifact, encoding in models:
        answers.write(f"{json.dumps(answer_model(artifact, encoding, gate=gate))}\n".encode())
        answers.flush()
    # Python would take all libraries apart before its end.
    os._exit(0)


def answer_model(artifact: Artifact, encoding: Encoding, *, gate: bool) -> dict[str, Any]:
    """The fields of the verdict on a model; arguments as in `try_load`."""
    try:
        special_tokens, note = try_load(artifact, encoding, gate=gate)
        return {"special_tokens": special_tokens, "note": note, "lasting": note is None}
    except HarnessError as error:
        # What explains another error may come of the machine: a package, a disk or memory may be wanting.
        lasting = isinstance(error, ModelError) and error.__cause__ is None
        return {"message": error.message, "hint": error.hint, "lasting": lasting}


if __name__ == "__main__":
    _serve()
