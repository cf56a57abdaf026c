"""The modules of a model folder: weight files, pooling, its own code, and configs in the library's words.

Version 5.4 of sentence-transformers renamed settings and added some; a value that changes a vector and is
not run here is refused, and so is a setting that would load anything other than the folder's own files.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from harness.core.errors import DamagedModelError, ModelError, ask_for_names
from harness.core.types import SIDES
from harness.encoder.folder import files

RENAMED = {
    "embedding_dimension": "word_embedding_dimension",
    "in_embedding_dimension": "in_word_embedding_dimension",
    "model_kwargs": "model_args",
    "processor_kwargs": "tokenizer_args",
    "config_kwargs": "config_args",
}
"""Settings by their names since 5.4, and their names before."""

TOKENS, TEXT = "token_embeddings", "sentence_embedding"
"""The vectors of tokens and the vector of a text, as modules name them."""

RUN: Mapping[str, tuple[Any, ...]] = {
    "transformer_task": ("feature-extraction",),
    "modality_config": ({"text": {"method": "forward", "method_output_name": "last_hidden_state"}},),
    "module_output_name": (TOKENS,),
    "processing_kwargs": ({}, None),
}
"""The settings of a Transformer since 5.4, and their values that are run here."""

LATE = ("query_length", "document_length", "query_expansion")
"""The settings of a Transformer that only a MultiVectorEncoder has."""

_NAMES = "module_input_name module_output_name"
SETTINGS = {
    "Dense": f"{_NAMES} in_features out_features bias activation_function use_residual",
    "Dropout": "dropout",
    "MultiVectorMask": "skiplist_words skiplist_tasks keep_only_token_ids",
    "Normalize": _NAMES,
    "Pooling": "word_embedding_dimension pooling_mode include_prompt",
    "Transformer": "max_seq_length do_lower_case unpad_inputs model_args tokenizer_args config_args backend "
    f"cache_dir tokenizer_name_or_path {' '.join((*RUN, *LATE))}",
}
"""All settings of the modules built here, by their names before 5.4; a Pooling may have flags, too."""


def read_module_config(place: Path, class_name: str | None) -> dict[str, Any]:
    """The config in a module's folder, empty where there is none; ModelError as of `adapt_config`."""
    path = find_sentence_config(place) if class_name == "Transformer" else place / "config.json"
    return adapt_config(class_name, files.read_object(path), path)


def find_sentence_config(place: Path) -> Path:
    """The file with sentence-transformers' own settings of a Transformer; ModelError if two differ."""
    first, *others = sorted(place.glob("sentence_*_config.json")) or [place / "sentence_bert_config.json"]
    for other in others:
        if files.read_object(other) != files.read_object(first):
            hint = "Remove the one that the model was not trained with, in a copy of the folder."
            what = f"{first.name} and {other.name}, which contradict each other"
            raise ModelError(f"{place} has {what}.", hint=hint)
    return first


def adapt_config(class_name: str | None, config: Mapping[str, Any], path: Path | str) -> dict[str, Any]:
    """The config of a module with the names that the installed sentence-transformers has for its settings.

    Args:
        class_name: The module's class.
        config: The config as any version wrote it; it is a ModelError if a setting is not run here.
        path: Its file, which errors name.
    """
    settings = {RENAMED.get(name, name): value for name, value in config.items()}
    known = SETTINGS.get(str(class_name), "").split() or settings
    for name in settings:
        if name not in known and not name.startswith("pooling_mode_"):
            hint = "A newer version of its library may have it: run the model with that one."
            what = f"the setting {name!r} of a {class_name}, which is unknown here"
            raise ModelError(f"{path} has {what}.", hint=hint)
    if class_name == "Transformer":
        for name, values in RUN.items():
            require_run(path, name, settings.get(name, values[0]), *values)
        dropped = {*RUN, *LATE, "unpad_inputs"}
        return {name: value for name, value in settings.items() if name not in dropped}
    if class_name in ("Dense", "Normalize"):
        source = settings.setdefault("module_input_name", TEXT)
        target = settings.pop("module_output_name", None) or source
        require_run(path, "module_input_name", source, TEXT, TOKENS)
        require_run(path, "module_output_name", target, source)
    return settings


def explain_not_run(path: Path | str, name: str, value: Any, run: Any) -> ModelError:
    """The refusal of a setting `name` in a file, whose `value` would change vectors; `run` is run here."""
    return ModelError(
        f"{path} has {name} = {value!r}, which is not run here.",
        hint=f"Of {name}, {run!r} is: save the model so, or run it with sentence-transformers itself.",
    )


def require_run(path: Path | str, name: str, value: Any, *run: Any) -> None:
    """Refuse a setting with another value than those that are run here: ModelError."""
    if value not in run:
        raise explain_not_run(path, name, value, run[0])


def read_router_config(place: Path) -> dict[str, Any]:
    """The config of a Router, with a route under the name of each side that its mappings send elsewhere."""
    # Asym, the module before Router, has its structure in config.json.
    config = files.read_object(place / "router_config.json") or files.read_object(place / "config.json")
    structure, parameters = config.get("structure"), config.get("parameters")
    if not isinstance(structure, dict) or not isinstance(parameters, dict):
        return config
    options = {name: value for name, value in parameters.items() if name != "route_mappings"}
    mappings = parameters.get("route_mappings") or {}
    if not mappings and "text" not in structure:
        return {**config, "parameters": options}
    try:
        # The keys are pairs of a task and a modality in Python's spelling; None stands for any.
        by_pair = {ast.literal_eval(key): str(route) for key, route in mappings.items()}
        routes = {side: _find_route(structure, by_pair, side) for side in (*SIDES, None)}
        default = routes.pop(None) or options.get("default_route") or next(iter(structure), "")
        names: dict[str, str] = {str(side): route for side, route in routes.items() if route}
        # A side's mapping may send its texts elsewhere than to the route of its name.
        alone = default if names.get(default, default) == default else f"{default}-alone"
        taken = {side: structure[route] for side, route in {**names, alone: default}.items()}
        inside = {name for modules in taken.values() for name in modules}
        kept = {name: kind for name, kind in config["types"].items() if name in inside}
    except (AttributeError, KeyError, SyntaxError, TypeError, ValueError) as error:
        raise explain_not_run(place, "route_mappings", mappings, {}) from error
    return {"types": kept, "structure": taken, "parameters": {**options, "default_route": alone}}


def _find_route(structure: Mapping[str, Any], by_pair: Mapping[Any, str], side: str | None) -> str | None:
    """The route of the texts of a side, as sentence-transformers 6 chooses it; None for the default."""
    pairs = ((side, "text"), (side, None), (None, "text"), (None, None))
    mapped = next((by_pair[pair] for pair in pairs if pair in by_pair), None)
    return mapped or next((name for name in (side, "text") if name in structure), None)


ROUTERS = ("Router", "Asym")
"""The module that sends texts of each side through modules of their own, by its present and its old name."""

ATTENTIVE, TWO_STAGE, MASK = "AttentivePooling", "TwoStage", "MultiVectorMask"
"""Our own modules, a pooling whose weights over the tokens are learned, and two backbones, whose vectors
depend on context documents; that of a MultiVectorEncoder which chooses the tokens with a vector."""

TRANSFORMER = "sentence_transformers.models.Transformer"
"""The module type of a bare backbone."""

TEXT_STAGE, CONTEXT_STAGE = "text", "context"
"""The subfolders of a TwoStage's backbones: that of texts, and that of context documents."""

NEEDS = {
    "weights": f"{ATTENTIVE} {TWO_STAGE} CLIPModel CNN Dense LSTM LayerNorm StaticEmbedding Transformer "
    "WeightedLayerPooling WordEmbeddings",
    "config": f"{ATTENTIVE} {TWO_STAGE} BoW Dense Dropout LayerNorm Pooling WeightedLayerPooling WordWeights",
    "vectors": f"{ATTENTIVE} Dense Dropout LayerNorm Normalize Pooling WeightedLayerPooling",
}
"""What modules cannot do without: weights in their folder, a config.json, the vectors of one before them."""

LIBRARY = frozenset({*ROUTERS, *" ".join(NEEDS.values()).split()} - {ATTENTIVE, TWO_STAGE})
"""The modules of sentence-transformers; the others are ours."""

MODEL2VEC = "model2vec"
"""The model type of a static embedding that model2vec saved, where its config names one."""

OWN = {
    "harness.encoder.attentive_pooling.AttentivePooling": ATTENTIVE,
    "harness.encoder.modules.Dense": "Dense",
    "harness.encoder.modules.OrderedPooling": "Pooling",
    "harness.encoder.modules.TokenNormalize": "Normalize",
    "harness.encoder.sentence_transformer.Transformer": "Transformer",
    "harness.encoder.two_stage.TwoStage": TWO_STAGE,
    "pylate.models.Dense.Dense": "Dense",
    "pylate.models.Dense": "Dense",
}
"""Modules of ours and of PyLate by their type, which saved models name: our files keep these paths. Our
Transformer stands for the library's, PyLate's projection of token vectors for its Dense."""

TYPE = re.compile(
    r"sentence_transformers\.(models|(?:base|sentence_transformer|multi_vector_encoder)\.modules)"
    r"\.(?:(\w+)\.)?(\w+)"
)
"""The spelling of a library module's type, before 5.4 and since: the class, or the class in its own file."""


def find_library_class(kind: str) -> str | None:
    """The class of sentence-transformers, or one in OWN, that a module's type names; None for any other.

    >>> find_library_class("sentence_transformers.models.Pooling")
    'Pooling'
    >>> find_library_class("sentence_transformers.sentence_transformer.modules.layer_norm.LayerNorm")
    'LayerNorm'
    >>> find_library_class("sentence_transformers.models.Router.import_from_string")
    """
    match = TYPE.fullmatch(kind)
    if match is None:
        return OWN.get(kind)
    package, file, name = match.groups()
    classes = LIBRARY if package == "models" else (LIBRARY - {"CLIPModel"}) | {MASK}
    in_own_file = file is None or file.replace("_", "").lower() == name.lower()
    return name if name in classes and in_own_file else None


@dataclass(frozen=True)
class Module:
    """A module: its type as modules.json has it, the model's folder, and its own subfolder."""

    kind: str
    folder: Path
    sub: str = ""

    @property
    def class_name(self) -> str | None:
        """The class of `find_library_class`."""
        return find_library_class(self.kind)

    @property
    def place(self) -> Path:
        """The folder of the module."""
        return self.folder / self.sub

    @cached_property
    def _structure(self) -> Mapping[str, Any]:
        """The `types` of the modules within, by subfolder, and the `structure` of those that texts enter."""
        if self.class_name == TWO_STAGE:
            # Texts enter the second stage alone; context documents are encoded before.
            types = dict.fromkeys((TEXT_STAGE, CONTEXT_STAGE), TRANSFORMER)
            return {"types": types, "structure": {"": [TEXT_STAGE]}}
        return read_router_config(self.place) if self.class_name in ROUTERS else {}

    @cached_property
    def inner(self) -> dict[str, Module]:
        """The modules within a Router or of two stages, by the name of their subfolder."""
        path, types = self.place / "router_config.json", self._structure.get("types")
        inner: dict[str, Any] = types if isinstance(types, dict) else {}
        for name in inner:
            # An empty name would be the Router itself, and the walk would not end.
            files.require_inside(path, name if Path(name).parts else "..", "folder")
        return {name: self._build_inner(str(kind), name) for name, kind in inner.items()}

    def _build_inner(self, kind: str, name: str) -> Module:
        return Module(kind, self.folder, f"{self.sub}/{name}".lstrip("/"))

    def list_all(self) -> list[Module]:
        """The module and those within it, at any depth; the backbones of two stages come before it."""
        within = [module for inner in self.inner.values() for module in inner.list_all()]
        return [*within, self] if self.class_name == TWO_STAGE else [self, *within]

    def list_inputs(self) -> list[Module]:
        """The module itself, or the first one of each tower of a Router; of two stages that of texts."""
        if not self.inner:
            return [self]
        towers = self._structure.get("structure")
        firsts = [names[0] for names in towers.values() if names] if isinstance(towers, dict) else self.inner
        inputs = (self.inner.get(name, self._build_inner("", name)) for name in firsts)
        return [module for tower in inputs for module in tower.list_inputs()]


def read_modules(folder: Path) -> list[Module]:
    """The modules by modules.json, or of model2vec; none for a bare backbone, ModelError for another file."""
    path = folder / "modules.json"
    if not path.exists():
        config = files.read_object(folder / "config.json")
        if config.get("model_type", MODEL2VEC) != MODEL2VEC or not is_model2vec(folder):
            return []
        modules = [Module("sentence_transformers.models.StaticEmbedding", folder)]
        scaled = [Module("sentence_transformers.models.Normalize", folder, "1_Normalize")]
        return modules + scaled if config.get("normalize") else modules
    content = files.read_json(path)
    try:
        modules = [Module(m["type"], folder, m["path"]) for m in content]
        names = [m["name"] for m in content if "name" in m]
    except (TypeError, KeyError) as error:
        raise ModelError(f"{path} is not a list of modules.") from error
    if not modules:
        raise ModelError(f"{path} lists no module.")
    if not all(isinstance(text, str) for m in modules for text in (m.kind, m.sub, *names)):
        raise ModelError(f"{path} has a type, path or name of a module that is no text.")
    # The library keeps modules by their names: of two alike it would drop one.
    if len({*names}) < len(names) or any(not name or "." in name for name in names):
        raise ModelError(f"{path} has a module without a name of its own: {', '.join(map(repr, names))}.")
    for module in modules:
        files.require_inside(path, module.sub, "folder")
    if modules[0].class_name in NEEDS["vectors"].split():
        raise DamagedModelError(f"{path} begins with {modules[0].class_name}, which reads no text.")
    return modules


def is_model2vec(place: Path) -> bool:
    """Whether the weights in a folder are a static embedding that model2vec saved."""
    return "embeddings" in (files.read_tensor_headers(files.list_module_weights(place, sharded=False)) or {})


def list_modules(folder: Path, *, routers: bool = False) -> list[Module]:
    """The modules of `read_modules`, with each Router replaced by those within it, at any depth.

    With `routers` these stand behind it. A bare backbone is a Transformer; the backbones of a two-stage
    module come before it, that of texts first.
    """
    roots = read_modules(folder) or [Module(TRANSFORMER, folder)]
    modules = [module for root in roots for module in root.list_all()]
    return [one for one in modules if routers or one.class_name not in ROUTERS or not one.inner]


def list_backbone_folders(folder: Path) -> list[Path]:
    """The folder of every Transformer."""
    return [module.place for module in list_modules(folder) if module.class_name == "Transformer"]


def list_input_modules(folder: Path) -> list[Module]:
    """The first module, or the first module of each tower of a Router; of two stages that of texts."""
    return (read_modules(folder) or [Module(TRANSFORMER, folder)])[0].list_inputs()


def find_backbone_folder(folder: Path) -> Path:
    """The folder of the first module, with the backbone's config and weights."""
    return list_modules(folder)[0].place


def list_module_folders(folder: Path) -> list[Path]:
    """The folder of every module, Routers included; the model's own folder for a bare backbone."""
    return list(dict.fromkeys(module.place for module in list_modules(folder, routers=True)))


ADAPTER = "peft-adapter"
"""The subfolder of a backbone with the adapter that loading merges into it."""

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"

TASKS = ("SEQ_CLS", "TOKEN_CLS", "QUESTION_ANS")
"""The tasks of peft whose models have a head beside the backbone, which no vector needs."""

PREFIX = "base_model.model."
"""The prefix of names in peft's files."""

OTHER_FORMATS = {
    "tf_model.h5 *.msgpack *.ot openvino_model.xml": "is for another framework: save the model with PyTorch",
    "*.onnx onnx/*.onnx": "is an exported program: take the model that it was exported from",
    "*.gguf": "is a quantised copy for llama.cpp: take the model that it was made of",
    "adapter_model.*": "is an adapter: merge it into its base model (`merge_and_unload()` of peft)",
    "*-of-*.safetensors": "is a part of a sharded checkpoint, whose model.safetensors.index.json is not here",
    "*.safetensors": "has another name: call it model.safetensors if it holds the model",
    "*.ckpt *.pt *.pth": "is a training checkpoint: load it into its model and save that (save_pretrained)",
}
"""Weights that never load, by the patterns of their names, and what to do with them."""

VOCABULARIES = ("tokenizer.json", "*vocab*", "*.model", "*.bpe", "*.codes", "merges.txt")
"""The files of a tokenizer, one of which must exist."""

TOKENIZED = ("Transformer", "CLIPModel")
"""Modules of transformers: with a tokenizer, whose length applies where the module names none."""

WIDTHS = ("hidden_size", "n_embd", "d_model", "dim")
"""The names under which configs have the width of a backbone."""


def weight_files(folder: Path) -> list[Path]:
    """The weight files that loading reads, of every module, sorted; ModelError if some are missing.

    In each module safetensors take precedence over .bin, and an index stands for its parts.
    """
    weights, modules = set[Path](), list_modules(folder)
    for module in modules:
        # Those alone, and modules of the model's own, may have sharded weights.
        paths = files.list_module_weights(module.place, sharded=module.class_name in (None, *TOKENIZED))
        # A first module of the model's own is its backbone.
        is_backbone = module.class_name is None and module.place == modules[0].place
        if not paths and (is_backbone or module.class_name in NEEDS["weights"].split()):
            raise _explain_missing_weights(folder, module.place)
        weights.update(paths)
    return sorted(weights)


def _explain_missing_weights(folder: Path, place: Path) -> ModelError:
    other = (
        f"It has {path.relative_to(folder).as_posix()}, which {why}."
        for patterns, why in OTHER_FORMATS.items()
        for pattern in patterns.split()
        for path in sorted(place.glob(pattern))
    )
    names = [(place / name).relative_to(folder).as_posix() for name in (files.WHOLE, "pytorch_model.bin")]
    hint = next(other, "Fetch or write the model folder again.")
    return ModelError(f"{folder} has no weights: neither {' nor '.join(names)}.", hint=hint)


POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
"""The flags of a Pooling config and their modes, in the order of the name: "cls+mean+max" is the library's
name for these three, although its vector has the maximum before the mean."""

ORDER = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
"""The modes in the order in which the library joins their vectors."""

OWN_POOLING, ATTENTION = "own", "attention"
"""The pooling of a model without a Pooling module, and that whose weights over the tokens are learned, which
only a model that has it can use."""


def read_pooling(modules: Sequence[Module]) -> str | None:
    """The pooling of the modules, ATTENTION or OWN_POOLING without modes; None for a bare backbone."""
    if not modules:
        return None
    places = {module.class_name: module.place for module in reversed(modules)}
    if place := places.get("Pooling"):
        return name_pooling(read_module_config(place, "Pooling"), place / "config.json")
    if ATTENTIVE in places:
        return ATTENTION
    static = places.get("StaticEmbedding")
    return MODEL2VEC if static is not None and is_model2vec(static) else OWN_POOLING


def name_pooling(config: Mapping[str, Any], path: Path | str) -> str:
    """The pooling of a Pooling config of any version: by flags, a name, or a list of modes.

    Modes are joined by "+" where their vectors are in the library's order, and by "," in any other.

    >>> [name_pooling({"pooling_mode": modes}, "") for modes in (["cls", "max", "mean"], ["mean", "cls"])]
    ['cls+mean+max', 'mean,cls']

    It is a ModelError if a mode or a flag is unknown, none is set, or the prompt would be left out.
    """
    named, flags = config.get("pooling_mode"), [name for name in config if name.startswith("pooling_mode_")]
    require_known(path, "has the flag", flags, POOLING_FLAGS)
    # A missing flag means off, but for the mean on.
    by_flags = [mode for flag, mode in POOLING_FLAGS.items() if config.get(flag, mode == "mean")]
    if named is None:
        if not by_flags:
            raise ModelError(f"{path} sets no pooling.", hint="One of its flags must be true.")
        return "+".join(by_flags)
    text = named.lower() if isinstance(named, str) else ""
    modes = text.split("+") if text else named if isinstance(named, list) else []
    if not modes or not all(isinstance(mode, str) for mode in modes):
        raise explain_not_run(path, "pooling_mode", named, "mean")
    if "cls" in modes:
        # Since 5.4 that is the first token behind the prompt, before it was the first of all.
        require_run(path, "include_prompt", config.get("include_prompt"), True, None)
    require_known(path, "names the pooling", modes, ORDER)
    if flags and {*modes} != {*by_flags}:
        hint = "Leave out the ones that the model was not trained with, in a copy of the folder."
        raise ModelError(f"{path} has pooling_mode = {named!r}, and flags of another pooling.", hint=hint)
    in_order = sorted({*modes}, key=ORDER.index)
    # "+" is the library's own way to name flags, which have no order.
    if text or modes == in_order:
        return "+".join(mode for mode in POOLING_FLAGS.values() if mode in modes)
    return ",".join(modes)


def require_known(path: Path | str, what: str, names: Sequence[str], choices: Collection[str]) -> None:
    """Refuse names in a file that are none of the choices: ModelError; `what` is done with them, in words."""
    for name in names:
        if name not in choices:
            hint = ask_for_names(name, choices).rstrip() or f"There is: {', '.join(sorted(choices))}."
            raise ModelError(f"{path} {what} {name!r}.", hint=hint)


def split_pooling(name: str) -> list[str]:
    """The modes of a pooling's name."""
    return re.split("[+,]", name)


def infer_vector_size(folder: Path, pooling: str) -> int | None:
    """The dimension of vectors with a pooling ("cls+mean" has twice the width), None if no config says it."""
    modules = list_modules(folder)
    config = files.read_object(modules[0].place / "config.json")
    dense = [module.place for module in modules if module.class_name == "Dense"]
    out = files.read_object(dense[-1] / "config.json").get("out_features") if dense else None
    width = next((config[name] for name in WIDTHS if isinstance(config.get(name), int)), None)
    return out or (None if width is None else width * len(split_pooling(pooling)))


LOADED = {"config.json": ("AutoConfig", "AutoModel"), "tokenizer_config.json": ("AutoTokenizer",)}
"""The classes that load a model, by the file in which transformers looks for replacements of them."""

NAMING = (*LOADED, "processor_config.json", "preprocessor_config.json")
"""The files that may name classes of a folder's own."""


class RemoteClass(NamedTuple):
    """A class of a model's own repository that `auto_map` in `file` sets for transformers' class `name`."""

    folder: Path
    file: str
    name: str
    reference: str

    @property
    def is_replacement(self) -> bool:
        """Whether it replaces a class that the model is loaded with."""
        return self.name in LOADED.get(self.file, ())


def list_remote_classes(folder: Path) -> list[RemoteClass]:
    """Every class of a model's own that its files name; ModelError if a config cannot be read."""
    classes = []
    for place, file in product(list_module_folders(folder), NAMING):
        named = files.read_object(place / file).get("auto_map") or {}
        # The old form for a tokenizer: the slow and the fast class.
        for name, references in (named if isinstance(named, dict) else {"AutoTokenizer": named}).items():
            for reference in references if isinstance(references, list) else [references]:
                if reference is not None:
                    classes.append(RemoteClass(folder=place, file=file, name=name, reference=str(reference)))
    return classes


REFUSED = {
    "names other weight files": ("variant", "gguf_file", "from_tf", "from_flax", "transformers_weights"),
    "chooses the weight files": ("use_safetensors",),
    "brings other weights": ("state_dict",),
    "adds an adapter": ("adapter_kwargs",),
    "takes the tokenizer from elsewhere": ("tokenizer_name_or_path", "tokenizer_file"),
    "takes the vocabulary from elsewhere": ("vocab_file",),
    "names code": ("auto_map",),
    "fetches code": ("use_kernels", "kernel_config"),
}
"""Arguments of sentence-transformers and transformers that are refused, by their effect."""


def check_external_references(folder: Path) -> None:
    """Refuse settings of any module that name other weights, an adapter, another tokenizer or a kernel."""
    for place in list_module_folders(folder):
        for path in (place / "config.json", *sorted(place.glob("sentence_*_config.json"))):
            _check_settings(path, files.read_object(path))
        if (place / ADAPTER_CONFIG).is_file() and (place / "config.json").is_file():
            hint = "Merge it into its base model first, or remove adapter_config.json if it is merged."
            raise ModelError(f"{place} holds an adapter, whose base model lies elsewhere.", hint=hint)


def _check_settings(path: Path, settings: Mapping[str, Any]) -> None:
    """Refuse arguments of REFUSED, and an attention named like a repository: it is code from the hub."""
    # Of a backbone's config transformers reads this one alone.
    names = ["transformers_weights"] if path.name == "config.json" else settings
    refused = [(name, effect) for effect, group in REFUSED.items() for name in group if name in names]
    # With these values a setting has no effect; loading prefers safetensors in any case.
    nothing: tuple[Any, ...] = (None, False, {}, [], "")
    harmless = {"use_safetensors": (None, True)}
    wrong = [pair for pair in refused if settings.get(pair[0]) not in harmless.get(pair[0], nothing)]
    attention = ("attn_implementation", "_attn_implementation")
    wrong += [(name, "fetches code") for name in attention if "/" in str(settings.get(name))]
    for name, effect in wrong:
        raise ModelError(
            f"{path} sets {name}, which {effect}: what would be loaded is not what lies in the folder.",
            hint="Save the model with what it names in place, without this setting.",
        )
    for value in settings.values():
        if isinstance(value, dict):
            _check_settings(path, value)
