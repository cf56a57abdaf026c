"""The checks of a model folder before any work: trust in its own code, its JSON, the headers of its weights.

Its own code needs the user's trust first. What it says of special tokens is compared after the load.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from harness.core.encoding import Encoding
from harness.core.errors import DamagedModelError, ModelError, UsageError, warn
from harness.core.types import Artifact
from harness.encoder import backbones
from harness.encoder.architecture import Config
from harness.encoder.folder import files
from harness.encoder.folder import modules_and_pooling as layout
from harness.encoder.two_stage_settings import TwoStageSettings, list_stage_shapes

UNNAMED, CARD = "unnamed-modules", "model-card"
"""The names by which unnamed modules, and modules other than those of README.md are accepted."""


@files.read_files_once()
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
    files.check_downloads(folder)
    if not any_kind and not layout.read_modules(folder):
        _check_kind(folder)
    if not any_kind and UNNAMED not in artifact.allow:
        _require_named(folder)
    if not any_kind and CARD not in artifact.allow:
        _note_card(folder)
    check_trust(artifact)
    backbones.check_family(artifact, encoding)
    for module in layout.list_modules(folder):
        place, config = module.place, files.read_object(module.place / "config.json")
        if module.class_name in layout.NEEDS["config"].split() and not (place / "config.json").is_file():
            lack = "no config.json" if place.is_dir() else "no such folder"
            what = f"the module {module.class_name} in {place.relative_to(folder).as_posix()}"
            raise DamagedModelError(f"modules.json of {folder} names {what}: there is {lack}.")
        if module.class_name == "Transformer":
            _check_backbone_files(place, config, artifact, encoding)
        elif shapes := _list_shapes(module, config):
            tensors = files.read_tensor_headers(files.list_module_weights(place, sharded=False))
            if tensors is not None:
                files.require_shapes(place, tensors, shapes)


def _require_named(folder: Path) -> None:
    """Refuse modules and settings of sentence-transformers that no modules.json names."""
    named, places = layout.read_modules(folder), layout.list_module_folders(folder)
    # Folders as the library calls them; one of Normalize holds nothing that was learned.
    configs = sorted(folder.glob("[0-9]*_*/config.json"))
    unnamed = [f for f in configs if f.parent not in places and not f.parent.name.endswith("_Normalize")]
    settings = () if named else (folder / files.SETTINGS, folder / "sentence_bert_config.json")
    unnamed += [path for path in settings if path.is_file()]
    if unnamed:
        what = "modules.json does not name" if named else "no modules.json names"
        raise ModelError(
            f"{folder} has {unnamed[0].relative_to(folder).as_posix()}, which {what}: it would not run.",
            hint=f"Fetch the whole folder again. Or take it as it is: --allow {UNNAMED}",
        )


_BLOCK = re.compile(r"^(?:SentenceTransformer|MultiVectorEncoder|ColBERT)\(\n((?:  .*\n)+)\)", re.M)
_MODULE = re.compile(r"^  \(\w+\): (\w+)\((?:(\{.*\})\))?(?: with Transformer model: (\w+))?", re.M)
_VERSION = re.compile(r"^- Sentence Transformers: (\S+)", re.M)
_NAMES = {"Asym": "Router"} | {kind.rpartition(".")[2]: name for kind, name in layout.OWN.items()}


def _note_card(folder: Path) -> None:
    """Note other modules than those that sentence-transformers, 2 to 6, has printed into README.md.

    Nothing is refused: people copy the card of a base model, and the library keeps that of a model which it
    loaded. A card of another version, backbone or width is another model's, and is not compared.
    """
    # No card, or one that somebody has shortened: whatever is wrong with it says nothing about the model.
    differences = None
    with suppress(Exception):
        differences = _compare_card(folder, layout.read_modules(folder))
    if differences:
        what = f"README.md of {folder} shows {'; '.join(differences)}: one is outdated."
        warn(f"{what} If files were lost, fetch it again. To hide this: --allow {CARD}")


def _compare_card(folder: Path, modules: Sequence[layout.Module]) -> list[str]:
    """What the card shows otherwise than the files that load."""
    with (folder / "README.md").open(encoding="utf-8") as file:
        text = file.read(1 << 20)
    (block,) = _BLOCK.findall(text)
    saved = files.read_object(folder / files.SETTINGS).get("__version__") or {}
    rows = [(_NAMES.get(kind, kind), config or "{}", model) for kind, config, model in _MODULE.findall(block)]
    printed = {name: {"architecture": model} | ast.literal_eval(config) for name, config, model in rows}
    classes = [module.class_name or module.kind.rpartition(".")[2] for module in modules]
    shown, loaded = [name for name, _, _ in rows], [_NAMES.get(name, name) for name in classes]
    pairs = zip(loaded, modules, strict=True)
    configs = {name: layout.read_module_config(module.place, name) for name, module in pairs}
    stem = re.sub("(Encoder)?Model$", "", printed["Transformer"]["architecture"]) or "?"
    architectures = files.read_object(modules[0].place / "config.json")["architectures"]
    versions = {saved.get("sentence_transformers"), *_VERSION.findall(text)} - {None}
    is_other = len(versions) > 1 or not any(name.startswith(stem) for name in architectures)
    differences = []
    if shown != loaded:
        differences = [f"the modules {', '.join(shown)}, and modules.json has {', '.join(loaded)}"]
    if "Pooling" in printed.keys() & configs.keys():
        del printed["Pooling"]["architecture"]
        pair = (layout.adapt_config("Pooling", printed["Pooling"], folder), configs["Pooling"])
        is_other |= len({config["word_embedding_dimension"] for config in pair}) > 1
        poolings = [layout.name_pooling(config, folder) for config in pair]
        if poolings[0] != poolings[1]:
            differences.append(f"the pooling {poolings[0]}, and the model's files have {poolings[1]}")
    lengths = [config.get("max_seq_length") for config in (printed["Transformer"], configs["Transformer"])]
    if None not in lengths and lengths[0] != lengths[1]:
        differences.append(f"a length of {lengths[0]} tokens, and the model's files have {lengths[1]}")
    return [] if is_other else differences


def _list_shapes(module: layout.Module, config: Config) -> files.Shapes | None:
    """The shapes of a module's tensors that its config says; None where it does not say."""
    if module.class_name == "Dense":
        size, width = config.get("out_features"), config.get("in_features")
        # A config without sizes fails at the trial load.
        if size is None or width is None:
            return None
        bias = {"linear.bias": (size,)} if config.get("bias", True) else {}
        residual = {"residual.weight": (size, width)} if config.get("use_residual") and size != width else {}
        return {"linear.weight": (size, width), **bias, **residual}
    if module.class_name == layout.ATTENTIVE:
        size, heads = config.get("word_embedding_dimension"), config.get("heads", 1)
        if size is None or heads is None or size % heads:
            what = f"{heads!r} heads of a token vector of {size!r} dimensions"
            hint = "The number of heads must divide that of the dimensions."
            raise ModelError(f"{module.place}/config.json says {what}.", hint=hint)
        return {"query": (heads, size // heads)}
    if module.class_name == layout.TWO_STAGE:
        stages = (module.place / layout.CONTEXT_STAGE, module.place / layout.TEXT_STAGE)
        widths = [backbones.read_architecture(place).hidden_size for place in stages]
        return list_stage_shapes(TwoStageSettings.read_stage_settings(module.place), *widths)
    return None


def _check_backbone_files(place: Path, config: Config, artifact: Artifact, encoding: Encoding) -> None:
    backbones.check_model_type(place, config, own_code=artifact.trust_remote_code)
    if quantization := config.get("quantization_config"):
        method = quantization.get("quant_method")
        what = f"quantised ({method})" if method else "quantised"
        hint = "Give the model that it was made of: a quantised copy has other scores."
        raise ModelError(f"{place} is {what}: its config.json has a quantization_config.", hint=hint)
    if backbones.ORDER not in artifact.allow:
        backbones.check_order(place, encoding, own_code=artifact.trust_remote_code)
    tensors = files.read_tensor_headers(files.list_module_weights(place))
    if tensors is not None:
        files.require_plain(place, tensors)
    files.require_one_model(place)
    for path in sorted(path for pattern in layout.VOCABULARIES for path in place.glob(pattern)):
        if path.is_file() and path.name != "merges.txt":
            files.check_file(path)


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
    hint = "Add --pooling mean (pooling='mean' in Python) to evaluate the encoder inside it."
    config = files.read_object(folder / "config.json")
    classes = config.get("architectures") or []
    # Where the config names no class, the tensors of a head tell.
    weights = [*files.list_module_weights(folder), *folder.glob(f"{layout.ADAPTER}/{layout.ADAPTER_WEIGHTS}")]
    tensors = files.read_tensor_headers(weights) or {}
    heads = {name.removeprefix(layout.PREFIX).partition(".")[0] for name in tensors}
    kinds = [what for end, head, what in KINDS if head in heads or any(one.endswith(end) for one in classes)]
    # sentence-transformers writes a section of its own into the config of a CrossEncoder.
    has_section = isinstance(config.get("sentence_transformers"), Mapping)
    if kinds and (has_section or 1 in (config.get("num_labels"), len(config.get("id2label") or ()))):
        kinds = ["a cross-encoder, which scores two texts at once"]
    is_colbert = any("ColBERT" in name for name in classes) or (folder / "artifact.metadata").is_file()
    if is_colbert or (not kinds and "linear.weight" in tensors):
        kinds = ["a ColBERT of colbert-ai, which gives a vector for each token"]
        save = "Save it with PyLate (`models.ColBERT(folder).save_pretrained(new)`)"
        hint = f"{save} to evaluate it as it is. {hint}"
    if kinds:
        raise UsageError(f"{folder} is {kinds[0]}, not an embedding model.", hint=hint)


ACTIVATIONS = ("torch.nn.", "sentence_transformers.", "transformers.activations.")
"""The modules from which a config may import its activation function."""

TOKENIZER = re.compile(
    r"sentence_transformers\.(models|sentence_transformer\.modules)\.tokenizer(\.\w+)?"
    r"\.(WhitespaceTokenizer|PhraseTokenizer|TransformersTokenizerWrapper)"
)
"""The tokenizers of a WordEmbeddings module."""


def check_trust(artifact: Artifact) -> None:
    """Refuse a model that would run code of its own, unless that is allowed and the code is pinned.

    It is refused as well where it names code of its own without which it would be another model.
    """
    # Module files import the types of modules, and the tokenizers of word embeddings.
    modules, needs = layout.list_modules(artifact.folder), f"{artifact.name} needs code of its own"
    configs = [files.read_object(module.place / "wordembedding_config.json") for module in modules]
    tokenizers = (config.get("tokenizer_class") for config in configs)
    names = [*(module.kind for module in modules), *(name for name in tokenizers if name is not None)]
    pin = "" if artifact.revision is None else f" and type {artifact.source}@<the commit you have read>"
    hint = f"Read that code; if you trust it, add --trust-remote-code{pin}."
    foreign = [kind for kind in names if not (layout.find_library_class(kind) or TOKENIZER.fullmatch(kind))]
    for kind in foreign:
        if kind.startswith("sentence_transformers."):
            what = f"no module of sentence-transformers {version('sentence-transformers')}"
            hint = "It may have been saved with another version: save it with this one."
            raise ModelError(f"{artifact.name} names {kind}, which is {what}.", hint=hint)
    for module in modules:
        # In those the field is a setting of the backbone, and nothing is imported.
        name = files.read_object(module.place / "config.json").get("activation_function")
        is_backbone = module.class_name in layout.TOKENIZED
        if not is_backbone and name is not None and not name.startswith(ACTIVATIONS):
            raise ModelError(
                f"{module.place} wants to import {name!r} as its activation function: refused.",
                hint=f"It may come from {' or '.join(a.rstrip('.') for a in ACTIVATIONS)}.",
            )
    remotes = layout.list_remote_classes(artifact.folder)
    if artifact.trust_remote_code:
        _check_pinned(artifact, remotes, names)
        return
    if foreign:
        raise ModelError(f"{needs}: its module {foreign[0]}.", hint=hint)
    for remote in remotes:
        kind = str(files.read_object(remote.folder / "config.json").get("model_type", ""))
        family = backbones.read_family(remote.folder) if remote.file == "config.json" else None
        # That of a family without a network of ours runs as any other.
        family = None if family is None or family.shape is None else family
        if family is None and kind not in backbones.read_library_types():
            raise ModelError(f"{needs}: transformers knows no {kind or 'such model type'!r}.", hint=hint)
        is_ours = family is not None and family.replaces(remote.reference)
        is_own_tokenizer = remote.name == "AutoTokenizer" and backbones.has_library_tokenizer(kind)
        if remote.is_replacement and not is_ours and not is_own_tokenizer:
            owner = "transformers'" if family is None or family.native else "the harness's"
            instead = f"{owner} {kind} would be evaluated in its place"
            what = f"code of its own, {remote.reference} as {remote.name}: without it, {instead}"
            cure = f"To evaluate transformers' class, take auto_map out of {remote.file}"
            raise ModelError(f"{artifact.name} names {what}.", hint=f"{hint} {cure} in a copy of the folder.")


def _check_pinned(artifact: Artifact, remotes: Sequence[layout.RemoteClass], names: Sequence[str]) -> None:
    # A local folder has no revision: it is what lies there.
    if artifact.revision is not None and not re.fullmatch(r"[0-9a-f]{40}", artifact.revision):
        what = f"a pinned commit, and {artifact.name} is at {artifact.revision!r}"
        hint = f"Type {artifact.source}@<40 hex digits of the commit you have read>."
        raise ModelError(f"--trust-remote-code needs {what}.", hint=hint)
    modules = [layout.RemoteClass(artifact.folder, "modules.json", "a module", kind) for kind in names]
    for remote in (*remotes, *modules):
        # In auto_map, `owner/name--file.Class` is the newest code of another repository.
        repository, _, inside = remote.reference.partition("--")
        if inside:
            what = f"its code ({remote.name}) from {repository}, at no pinned commit"
            hint = f"Copy that code into the model's folder, and name it there in {remote.file}."
            raise ModelError(f"{artifact.name} takes {what}.", hint=hint)


SPECIAL_TOKENS, TOKENIZATION = "special-tokens", "tokenization"
"""The names by which a contradiction is accepted, that of special tokens and of all others."""

ENDS = {
    "first": ("add_bos_token", "bos_token", "cls_token"),
    "last": ("add_eos_token", "eos_token", "sep_token"),
}
"""By the end of a text: the flag, the token that it adds, and the token that encoders have there."""


@dataclass(frozen=True)
class SpecialTokens:
    """The tokens that the files in the folder of a tokenizer say are put around a text.

    `config` is the content of tokenizer_config.json, tokens as texts, `tokenizer` that of tokenizer.json.
    """

    folder: Path
    config: Mapping[str, Any]
    tokenizer: Mapping[str, Any]

    @staticmethod
    def read_folder(folder: Path) -> SpecialTokens:
        """What the files in `folder` say."""
        config = files.read_object(folder / "special_tokens_map.json")
        config |= files.read_object(folder / "tokenizer_config.json")
        for name, value in config.items():
            config[name] = value.get("content") if isinstance(value, Mapping) else value
        return SpecialTokens(folder, config, files.read_object(folder / "tokenizer.json"))

    def declare(self, end: str) -> str | None:
        """The token that belongs to an end, "first" or "last": "" for none, None where no file says it."""
        flag, name, of_encoders = ENDS[end]
        added = _find_added_token(self.tokenizer.get("post_processor"), end)
        token, declared = self.config.get(name), self.config.get(flag)
        if declared is True and isinstance(token, str):
            return token
        # An encoder's [CLS] is often its bos_token, too: the flag is meant for decoders.
        if declared is False and added and added == token != self.config.get(of_encoders):
            return ""
        return added


def _find_added_token(processor: Any, end: str) -> str | None:
    """The token that a post-processor puts at an end of a text, "" for none; None where that is not known."""
    kind = processor.get("type") if isinstance(processor, Mapping) else None
    if kind in ("BertProcessing", "RobertaProcessing"):
        return str(processor["cls" if end == "first" else "sep"][0])
    if kind == "TemplateProcessing":
        outer = processor["single"][0 if end == "first" else -1]
        if end == "first" and not any("Sequence" in part for part in processor["single"]):
            return ""
        return str(outer["SpecialToken"]["id"]) if "SpecialToken" in outer else ""
    if kind == "ByteLevel":
        return ""
    if kind == "Sequence":
        # The later ones put theirs around those of the earlier.
        tokens = [_find_added_token(inner, end) for inner in reversed(processor["processors"])]
        return None if None in tokens else next(filter(None, tokens), "")
    return None
