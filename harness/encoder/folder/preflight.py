"""The checks of a model folder before any work: what it is, its tensors, and its tokenizer.

What JSON and the headers of weight files show is checked here, without torch. Whether the model loads is
tried once for each content, and the verdict is cached (`harness/encoder/trial_load.py`).
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from harness.core.arguments import list_allowed_tensors
from harness.core.documents import read_content_file, write_content_file
from harness.core.encoding import Encoding
from harness.core.errors import (
    DamagedModelError,
    ModelError,
    StoreError,
    UsageError,
    find_similar_names,
)
from harness.core.identity import digest
from harness.core.types import Artifact
from harness.encoder.backbones import has_network, read_architecture, read_family
from harness.encoder.family import MODEL_TYPE, Config
from harness.encoder.folder.files import read_object
from harness.encoder.folder.modules import (
    ATTENTIVE,
    CONFIG,
    CONTEXT_STAGE,
    MODULES,
    TEXT_STAGE,
    TWO_STAGE,
    VOCABULARIES,
    list_module_folders,
    locate_modules,
    read_modules,
)
from harness.encoder.folder.special_tokens import check_special_tokens
from harness.encoder.folder.trust import check_family, check_trust, read_library_types
from harness.encoder.tensors import (
    Shapes,
    check_present,
    list_module_weights,
    read_tensor_headers,
    require_plain,
    require_shapes,
)
from harness.encoder.two_stage_settings import TwoStageSettings, list_stage_shapes

ORDER = "order-dependence"
"""The name by which vectors that depend on the texts before them are accepted."""

TRIAL_FORM = 4
"""The number of the present trial; another number makes every verdict anew."""

LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors", "sentence-transformers")
"""The libraries on whose versions a verdict depends."""

# transformers imports these where it finds them, for generation and losses alone: a second of each trial. The
# collector would look through all that is imported again and again, and find nothing.
START = (
    "import gc, runpy, sys; gc.disable(); sys.modules['sklearn'] = sys.modules['scipy'] = None; "
    "runpy.run_module('harness.encoder.trial_load', run_name='__main__')"
)
"""The program that tries the models of its standard input."""

SECONDS = 600
"""The most seconds of one process."""


def check_load(models: Sequence[tuple[Artifact, Encoding]], cache: Path | None) -> None:
    """Refuse models that do not load (ModelError), and lengths that leave nothing of a text (UsageError).

    They come after `check_folder`. Outcomes are kept in the folder `cache`; None to try every model.
    """
    for (artifact, encoding), verdict in zip(models, judge_models(models, cache), strict=True):
        if verdict.message is not None:
            raise ModelError(verdict.message, hint=verdict.hint)
        if encoding.late_interaction is None and encoding.max_length <= verdict.special_tokens:
            raise UsageError(
                f"A maximum length of {encoding.max_length} leaves nothing of a text: the tokenizer of "
                f"{artifact.name} adds {verdict.special_tokens} tokens of its own.",
                hint=f"Give more than {verdict.special_tokens}.",
            )


def check_folder(artifact: Artifact, encoding: Encoding, *, any_kind: bool = False) -> None:
    """Refuse a model whose files show that it would fail at load, or that it is no embedding model.

    Args:
        artifact: The model and its folder.
        encoding: Its settings.
        any_kind: Whether a model of another kind is taken for the encoder inside it, as with a requested
            pooling or a recipe that trains the model for every task.

    Raises:
        UsageError: It is of another kind, a setting does not fit it, or it cannot be loaded (ModelError).
    """
    folder = artifact.folder
    if not any_kind and not read_modules(folder):
        _check_kind(folder)
    check_trust(artifact)
    check_family(artifact, encoding)
    for class_name, place in locate_modules(folder):
        if CONFIG in MODULES.get(class_name or "", ()) and not (place / "config.json").is_file():
            what = "no config.json" if place.is_dir() else "no such folder"
            raise DamagedModelError(
                f"modules.json of {folder} names the module {class_name} in "
                f"{place.relative_to(folder).as_posix()}: there is {what}."
            )
        if class_name == "Transformer":
            _check_backbone_files(place, artifact)
            check_special_tokens(place, artifact.allow)
        elif list_shapes := SHAPES.get(class_name or ""):
            shapes = list_shapes(place, read_object(place / "config.json"))
            tensors = read_tensor_headers(list_module_weights(place, sharded=False))
            if tensors is not None and shapes is not None:
                require_shapes(place, tensors, shapes)


def _list_dense_shapes(_place: Path, config: Config) -> Shapes | None:
    size, width = config.get("out_features"), config.get("in_features")
    # A config without sizes fails at the trial load.
    if size is None or width is None:
        return None
    bias = {"linear.bias": (size,)} if config.get("bias", True) else {}
    residual = {"residual.weight": (size, width)} if config.get("use_residual") and size != width else {}
    return {"linear.weight": (size, width), **bias, **residual}


def _list_attentive_shapes(place: Path, config: Config) -> Shapes:
    size, heads = config.get("word_embedding_dimension"), config.get("heads", 1)
    if size is None or heads is None or size % heads:
        raise ModelError(
            f"{place / 'config.json'} says {heads!r} heads of a token vector of {size!r} dimensions.",
            hint="The number of heads must divide that of the dimensions.",
        )
    return {"query": (heads, size // heads)}


def _list_two_stage_shapes(place: Path, _config: Config) -> Shapes:
    widths = [read_architecture(place / stage).hidden_size for stage in (CONTEXT_STAGE, TEXT_STAGE)]
    return list_stage_shapes(TwoStageSettings.read_stage_settings(place), *widths)


SHAPES: Mapping[str, Callable[[Path, Config], Shapes | None]] = {
    "Dense": _list_dense_shapes,
    ATTENTIVE: _list_attentive_shapes,
    TWO_STAGE: _list_two_stage_shapes,
}
"""By module, the shapes of its tensors that its config says; None where it does not say."""


def _check_backbone_files(place: Path, artifact: Artifact) -> None:
    config = read_object(place / "config.json")
    _check_type(place, config, own_code=artifact.trust_remote_code)
    if quantization := config.get("quantization_config"):
        method = f" ({quantization['quant_method']})" if quantization.get("quant_method") else ""
        raise ModelError(
            f"{place} is quantised{method}: its config.json has a quantization_config.",
            hint="Give the model that it was made of: a quantised copy has other scores.",
        )
    sparse = config.get("model_type") == "big_bird" and config.get("attention_type") != "original_full"
    if sparse and ORDER not in artifact.allow:
        raise ModelError(
            f"{place} has block-sparse attention, which its first short text switches off for good: its "
            "scores would depend on the order of texts.",
            hint='Set "attention_type": "original_full" in config.json, which gives every text full '
            f"attention. Or take it as it is: --allow {ORDER}",
        )
    tensors = read_tensor_headers(list_module_weights(place))
    if tensors is not None:
        require_plain(place, tensors)
    for path in sorted(path for pattern in VOCABULARIES for path in place.glob(pattern)):
        if path.is_file() and path.name != "merges.txt":
            check_present(path)


def _check_type(place: Path, config: Config, *, own_code: bool) -> None:
    """Refuse a config without a model type, or with one that neither we nor transformers know."""
    kind = config.get("model_type")
    if own_code and config.get("auto_map"):
        return
    path = place / "config.json"
    if not isinstance(kind, str) or not kind:
        raise ModelError(
            f"{path} has no model_type.", hint='Take it from the published model, e.g. "model_type": "bert".'
        )
    if kind == MODEL_TYPE or read_family(place) is not None or config.get("auto_map"):
        return
    model_types = read_library_types()
    if model_types and kind not in model_types:
        close = " or ".join(find_similar_names(kind, model_types))
        raise ModelError(
            f"{path} has the model_type {kind!r}, which transformers does not know.",
            hint=f"Did you mean {close}?"
            if close
            else "`harness list backbones` shows what the harness adds.",
        )


COLBERT = "a ColBERT of colbert-ai, which gives a vector for each token"

KINDS = (
    ("ForTokenClassification", None, "a classifier of tokens"),
    ("ForQuestionAnswering", "qa_outputs", "a model that finds answers in a text"),
    ("ForMultipleChoice", None, "a model that chooses between answers"),
    ("ForNextSentencePrediction", None, "a classifier of sentence pairs"),
    ("ForSequenceClassification", "classifier", "a classifier of texts"),
    ("ForSequenceClassification", "score", "a classifier of texts"),
)
"""The endings of transformers' classes with the head of a task, the module that is the head, and the kind."""


def _check_kind(folder: Path) -> None:
    """Refuse a bare folder whose model gives something other than a vector of a text."""
    what = _detect_model_kind(folder)
    if what is not None:
        hint = "Add --pooling mean (pooling='mean' in Python) to evaluate the encoder inside it."
        if what == COLBERT:
            save = "Save it with PyLate (`models.ColBERT(folder).save_pretrained(new)`)"
            hint = f"{save} to evaluate it as it is. {hint}"
        raise UsageError(f"{folder} is {what}, not an embedding model.", hint=hint)


def _detect_model_kind(root: Path) -> str | None:
    """The kind of model in words, None for an encoder with or without its pretraining head."""
    config = read_object(root / "config.json")
    classes = config.get("architectures") or []
    if any("ColBERT" in name for name in classes) or (root / "artifact.metadata").is_file():
        return COLBERT
    # sentence-transformers writes a section of its own into the config of a CrossEncoder.
    scores_pairs = (
        len(config.get("id2label") or ()) == 1
        or config.get("num_labels") == 1
        or isinstance(config.get("sentence_transformers"), Mapping)
    )
    # Where the config names no class, the tensors of a head tell.
    tensors = read_tensor_headers(list_module_weights(root)) or {}
    names = {name.partition(".")[0] for name in tensors}
    for ending, head, what in KINDS:
        if head in names or any(name.endswith(ending) for name in classes):
            return "a cross-encoder, which scores two texts at once" if scores_pairs else what
    return COLBERT if "linear.weight" in tensors else None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of a trial load: `message` and `hint` of the refusal, if any.

    `special_tokens` is the number of tokens that the tokenizer adds to a text.
    """

    message: str | None = None
    hint: str | None = None
    special_tokens: int = 0


def judge_models(models: Sequence[tuple[Artifact, Encoding]], cache: Path | None) -> list[Verdict]:
    """The verdict on each model, cached by the content of its folder.

    Args:
        models: The models, with the settings of their evaluation.
        cache: The cache folder; None to try every model.
    """
    places = [None if cache is None else _locate_verdict(cache, *model) for model in models]
    verdicts = [
        None if place is None else _read_verdict(place, artifact)
        for place, (artifact, _) in zip(places, models, strict=True)
    ]
    due = [at for at, verdict in enumerate(verdicts) if verdict is None]
    for at, verdict in zip(due, _try_models([models[at] for at in due]), strict=True):
        verdicts[at] = verdict
        place = places[at]
        if verdict is not None and place is not None:
            content = {"schema": 1, "folder": str(models[at][0].folder), **asdict(verdict)}
            with suppress(OSError, StoreError):
                write_content_file(place, content)
    return [verdict or Verdict() for verdict in verdicts]


def _locate_verdict(cache: Path, artifact: Artifact, encoding: Encoding) -> Path:
    folders = list_module_folders(artifact.folder)
    key = digest(
        {
            "form": TRIAL_FORM,
            "key": artifact.key,
            "allow_extra": list_allowed_tensors(artifact.allow),
            "own code": artifact.trust_remote_code,
            # A load, which settles a doubt, asks for it.
            "pooling": encoding.pooling,
            "scaling": encoding.rope_scaling and [encoding.rope_scaling, encoding.max_length],
            # A plugin may add the network of a family.
            "networks": [has_network(at, own_code=artifact.trust_remote_code) for at in folders],
            "versions": {name: version(name) for name in LIBRARIES},
        }
    )
    return cache / "verdicts" / f"{key}.json"


def _read_verdict(path: Path, artifact: Artifact) -> Verdict | None:
    try:
        content = read_content_file(path)
        verdict = Verdict(**{name: content[name] for name in asdict(Verdict())})
    except (OSError, ValueError, KeyError):
        return None
    # The refusal names the folder in which it was found.
    moved = verdict.message is not None and content["folder"] != str(artifact.folder)
    return None if moved else verdict


def _try_models(models: list[tuple[Artifact, Encoding]]) -> list[Verdict | None]:
    """Try models in a process of its own, as torch's import takes seconds; None for one that ends it."""
    if {"torch", "transformers"} <= sys.modules.keys():
        from harness.encoder.trial_load import answer_model

        return [Verdict(**answer_model(*model)) for model in models]
    verdicts: list[Verdict | None] = []
    while len(verdicts) < len(models):
        verdicts += _try_apart(models[len(verdicts) :]) or [None]
    return verdicts


def _try_apart(models: Sequence[tuple[Artifact, Encoding]]) -> list[Verdict]:
    """The verdicts of another process, up to the model with which it ends."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(place or os.getcwd() for place in sys.path),
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    try:
        # -P: nothing is imported from the working folder, unless this program does so.
        answers = subprocess.run(
            [sys.executable, "-P", "-c", START],
            input=pickle.dumps(models),
            capture_output=True,
            env=environment,
            timeout=SECONDS,
            check=False,
        ).stdout
    # Of a process that is killed or runs out of memory the answers count; the run itself shows what the next
    # model does.
    except subprocess.TimeoutExpired as error:
        answers = error.stdout or b""
    except OSError:
        return []
    lines = answers.splitlines(keepends=True)
    return [Verdict(**json.loads(line)) for line in lines if line.endswith(b"\n")]
