"""The description and the key of a model folder: its kind (text vectors, ColBERT), pooling, lengths, prompts.

A folder with an adapter of peft in place of weights is laid out beside its base model first, by links.
Imports neither torch nor transformers.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import string
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args

from harness.core.encoding import LateInteraction
from harness.core.errors import DamagedModelError, ModelError
from harness.core.files import create_temporary_folder, hash_file, hash_files, require_size
from harness.core.keys import ModelDocument, digest, read_document
from harness.core.types import Similarity
from harness.encoder import backbones
from harness.encoder.folder import files
from harness.encoder.folder import modules_and_pooling as layout
from harness.encoder.folder.modules_and_pooling import ADAPTER, ADAPTER_CONFIG, ADAPTER_WEIGHTS, Module
from harness.encoder.two_stage_settings import TwoStageSettings

COLBERT, MULTI_VECTOR = "ColBERT", "MultiVectorEncoder"
"""The types of a PyLate model in its settings, and of sentence-transformers' own multi-vector model."""

_Modules = Sequence[Module]

TWO_BACKBONES = "it is more than a single backbone, or has none"
"""The reason why the positions of a model of several parts are not scaled."""


@dataclass(frozen=True, kw_only=True)
class Description:
    """The description of a model folder.

    `pooling` is named as in sentence-transformers, with "+" between concatenated modes, or ATTENTION; None
    for a bare backbone, which then has `usual_pooling`, that of its family; OWN_POOLING without a pooling.
    `normalize` is whether the last module normalizes, and `truncate_dim` how many dimensions are kept after
    it, None for all. `max_length` is SentenceTransformer's length in tokens, special ones included, of the
    longest tower; `position_limit` is the number of positions, None where the files name no limit; `lengths`
    are those of each tower. `prompts` may have empty texts, which mean no prompt. `late_interaction` is set
    where each token has a vector, and `two_stage` where a vector depends on context documents; the lengths
    then count the text alone. `unscalable` is the reason why its positions cannot be scaled for longer texts,
    None if they can. `name` is the model's name in messages.
    """

    folder: Path
    name: str
    pooling: str | None = None
    usual_pooling: str = "mean"
    normalize: bool = False
    truncate_dim: int | None = None
    max_length: int
    position_limit: int | None = None
    lengths: tuple[_TokenLimits, ...]
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    similarity_fn_name: Similarity = "cosine"
    late_interaction: LateInteraction | None = None
    two_stage: TwoStageSettings | None = None
    unscalable: str | None = None

    @property
    def is_unbound(self) -> bool:
        """Whether a longer text than its `position_limit` can be asked for as it is: ALiBi ends nowhere."""
        return self.unscalable == backbones.ALIBI


@files.read_files_once()
def describe(folder: Path, *, own_code: bool = False) -> Description:
    """The description of the model in `folder`; with `own_code`, the model's own code is run.

    It is a ModelError if there is no model, its JSON or weights are unreadable, or it has no weights.
    """
    if not folder.is_dir():
        raise ModelError(f"{folder} is not a folder.", hint="Give the folder that holds config.json.")
    modules = layout.read_modules(folder)
    library = files.read_object(folder / files.SETTINGS) if modules else {}
    kind = _find_model_kind(folder, modules, library)
    for module in layout.list_modules(folder) if modules else ():
        _check_module(module, is_late=kind == MULTI_VECTOR)
    _check_files(folder)
    pooling, family = layout.read_pooling(modules), backbones.read_family(layout.find_backbone_folder(folder))
    token_limits, late = read_token_limits(folder, own_code=own_code), None
    if kind != "SentenceTransformer":
        read = _read_pylate_settings if kind == COLBERT else _read_multi_vector_settings
        late = read(modules, library, token_limits[0].most)
    stages, last = _read_two_stage(folder, modules), modules[-1] if modules else Module("", folder)
    if stages is not None:
        token_limits = (compute_text_limits(layout.find_backbone_folder(folder), stages, token_limits[0]),)
    prompts, default_prompt = _read_prompts(folder, library)
    named = "maxsim" if late is not None else library.get("similarity_fn_name")
    similarity = "cosine" if named is None else named
    layout.require_known(folder / files.SETTINGS, "compares vectors with", [similarity], get_args(Similarity))
    size = library.get("truncate_dim")
    if size is not None and size > (layout.infer_vector_size(folder, pooling or "") or size):
        raise layout.explain_not_run(folder / files.SETTINGS, "truncate_dim", size, None)
    # Behind a Router, or in two stages, a backbone is not the first module.
    first, unscalable = modules[0].place if modules else folder, cast(str | None, TWO_BACKBONES)
    if layout.list_backbone_folders(folder) == [first]:
        unscalable = backbones.explain_unscalable(files.read_object(first / "config.json"), own_code=own_code)
    return Description(
        folder=folder,
        name=folder.name,
        pooling=pooling,
        usual_pooling="mean" if family is None else family.pooling,
        # A Normalize of the vectors of tokens leaves that of a text as it is.
        normalize=last.class_name == "Normalize"
        and layout.read_module_config(last.place, "Normalize")["module_input_name"] == layout.TEXT,
        truncate_dim=size,
        # The longest tower's, among those that cut at all.
        max_length=max((length.most for length in token_limits if length.most < NO_LIMIT), default=NO_LIMIT),
        position_limit=max((one.limit for one in token_limits if one.limit is not None), default=None),
        lengths=token_limits,
        prompts=prompts,
        default_prompt_name=default_prompt,
        similarity_fn_name=cast(Similarity, similarity),
        late_interaction=late,
        two_stage=stages,
        unscalable=unscalable,
    )


def _check_module(module: Module, *, is_late: bool) -> None:
    """Refuse settings of a module that change vectors and are not run here."""
    config, own = layout.read_module_config(module.place, module.class_name), module.place / "config.json"
    if module.class_name == "Pooling":
        layout.name_pooling(config, own)
    if module.class_name == "Transformer" and not is_late:
        settings = files.read_object(path := layout.find_sentence_config(module.place))
        for name in layout.LATE:
            layout.require_run(path, name, settings.get(name), None)
    if module.class_name == layout.MASK and not is_late:
        what = f"a {layout.MASK}, which only a {MULTI_VECTOR} has"
        raise ModelError(f"{module.folder} has {what}.", hint="Save the model again.")


def _check_files(folder: Path) -> None:
    """Refuse files that are missing, cannot be read, or have a value of another type."""
    places = layout.list_backbone_folders(folder)
    for place in places:
        if not (place / "config.json").is_file():
            hint = "Give the folder of a transformers or sentence-transformers model."
            if (place / ADAPTER_CONFIG).is_file():
                hint = "It is an adapter: merge it into its base model (`merge_and_unload()` of peft)."
            raise ModelError(f"{place} has no config.json.", hint=hint)
    for place in layout.list_module_folders(folder):
        for path in sorted(filter(files.is_schema_file, place.iterdir())) if place.is_dir() else ():
            files.read_object(path)
    # First: a setting may name other weights than those that are checked next.
    layout.check_external_references(folder)
    for path in layout.weight_files(folder):
        files.check_file(path)
    for place in places:
        _require_tokenizer(place)


def _read_two_stage(folder: Path, modules: _Modules) -> TwoStageSettings | None:
    """The settings of a two-stage model, whose backbones must be ours; None for any other."""
    if all(module.class_name != layout.TWO_STAGE for module in modules):
        return None
    if modules[0].class_name != layout.TWO_STAGE:
        hint = "Save the model again, with that module first."
        raise ModelError(f"{folder} has two stages behind another module.", hint=hint)
    for stage in (layout.TEXT_STAGE, layout.CONTEXT_STAGE):
        backbones.require_network(modules[0].place / stage)
    return TwoStageSettings.read_stage_settings(modules[0].place)


def compute_text_limits(backbone: Path, stages: TwoStageSettings, limits: _TokenLimits) -> _TokenLimits:
    """The limits of a text behind a context; ModelError if `backbone`, the second stage, has no room."""
    shape, config = backbones.read_architecture(backbone), files.read_object(backbone / "config.json")
    most = limits.most if limits.most < NO_LIMIT else 1
    stages.check_positions(shape, most, str(config.get("model_type")))
    limit = stages.compute_text_limit(shape.positions, shape.max_position_embeddings)
    return replace(limits, limit=limit, table=None if limits.table is None else limit)


def _require_tokenizer(place: Path) -> None:
    """Refuse a transformer without tokenizer files, for which transformers would make an empty tokenizer."""
    config = files.read_object(place / "tokenizer_config.json")
    # Tokenizers of characters have no vocabulary.
    of_characters = ("ByT5Tokenizer", "CanineTokenizer", "PerceiverTokenizer")
    needs_none = config.get("auto_map") or config.get("tokenizer_class") in of_characters
    if not needs_none and not any(any(place.glob(name)) for name in layout.VOCABULARIES):
        family = backbones.read_family(place)
        tokenizer_id = None if family is None else family.tokenizer
        usual = f"that of {tokenizer_id}" if tokenizer_id else "the one it was trained with"
        raise ModelError(
            f"{place} brings no tokenizer: it has neither tokenizer.json nor a vocabulary.",
            hint=f"Copy {usual} into it (`tokenizer.save_pretrained(folder)`).",
        )


def _read_prompts(folder: Path, library: Mapping[str, Any]) -> tuple[dict[str, str], str | None]:
    """The named prompts, and the name of the default one."""
    name = library.get("default_prompt_name")
    # Beside a default prompt, a side without a prompt has an empty one.
    prompts = {} if name is None else {"query": "", "document": ""}
    prompts |= {key: text or "" for key, text in (library.get("prompts") or {}).items()}
    if name is not None and name not in prompts:
        hint = f"It has {', '.join(sorted(prompts))}. Correct default_prompt_name in a copy of the folder."
        what = f"the default prompt {name!r}, which it does not have"
        raise ModelError(f"{folder / files.SETTINGS} names {what}.", hint=hint)
    return prompts, name


NO_LIMIT = 1_000_000
"""The max_length of a model that truncates nothing."""


@dataclass(frozen=True, kw_only=True)
class _TokenLimits:
    """The token limits of an input module: `most` cuts texts; the others are None without a limit.

    `cuts` is whether another length can be requested.
    """

    cuts: bool
    most: int
    named: int | None
    limit: int | None
    table: int | None


def read_token_limits(folder: Path, *, own_code: bool = False) -> tuple[_TokenLimits, ...]:
    """The length of each input module; with `own_code`, a backbone that names its own classes runs them."""
    return tuple(_read_module_limits(one, own_code=own_code) for one in layout.list_input_modules(folder))


def _read_module_limits(module: Module, *, own_code: bool) -> _TokenLimits:
    root, bare = module.place, not layout.read_modules(module.folder)
    config = files.read_object(root / "config.json")
    # A config that also covers other inputs has a part for texts.
    if config.get("text_config") is not None and backbones.parse_positions(config) is None:
        config = config["text_config"]
    configs = [*sorted(root.glob("sentence_*_config.json")), root / "wordembedding_config.json"]
    lengths = [files.read_object(path).get("max_seq_length") or 0 for path in configs if not bare]
    named = config_length = next((int(length) for length in lengths if length > 0), None)
    table = backbones.count_position_rows(config, own_code=own_code)
    positions = backbones.parse_positions(config)
    # Computed positions reach as far as the config says, or to the model's own length if that is longer.
    computed = None if positions is None else max(positions, config_length or 0)
    limit = computed if table is None else table
    if named is None and module.class_name in layout.TOKENIZED:
        named = files.read_object(root / "tokenizer_config.json").get("model_max_length")
    # A tokenizer without a limit has 1e30.
    length_limit = int(named) if named is not None and 0 < named < NO_LIMIT else None
    most = min((length for length in (length_limit, limit) if length), default=NO_LIMIT)
    cuts = module.class_name not in ("BoW", "WordEmbeddings", "StaticEmbedding")
    return _TokenLimits(cuts=cuts, most=most, named=length_limit, limit=limit, table=table)


def _find_model_kind(folder: Path, modules: _Modules, library: Mapping[str, Any]) -> str:
    """The class whose model a folder has: SentenceTransformer, COLBERT or MULTI_VECTOR.

    It is a ModelError for any other, and for a multi-vector model without one of its files, which would be
    another one by defaults.
    """
    # Models saved before PyLate 1.3 name no type, but MaxSim or a module of PyLate.
    is_pylate = any(module.kind.startswith("pylate.") for module in modules)
    is_late, lost = is_pylate or any(module.class_name == layout.MASK for module in modules), files.SETTINGS
    if not modules:
        is_late = files.read_object(folder / files.SETTINGS).get("model_type") in (COLBERT, MULTI_VECTOR)
        lost = "modules.json"
    if is_late and not (folder / lost).is_file():
        raise DamagedModelError(f"{folder} is a multi-vector model without {lost}, which belongs to it.")
    kind = str(library.get("model_type") or "SentenceTransformer")
    if kind == "SentenceTransformer" and (is_pylate or library.get("similarity_fn_name") == "MaxSim"):
        kind = COLBERT
    for package, other in (("sparse_encoder", "SparseEncoder"), ("cross_encoder", "CrossEncoder")):
        if any(module.kind.startswith(f"sentence_transformers.{package}.") for module in modules):
            kind = other
    if kind not in ("SentenceTransformer", COLBERT, MULTI_VECTOR):
        hint = "Give a SentenceTransformer, a MultiVectorEncoder, or a bare backbone."
        raise ModelError(f"{folder} is a {kind}, which gives no dense vector of a text.", hint=hint)
    return kind


def _read_pylate_settings(modules: _Modules, library: Mapping[str, Any], _length: int) -> LateInteraction:
    """The settings of a PyLate model; those that its files do not name have PyLate's defaults."""
    first, *others = [module.class_name for module in modules]
    if first != "Transformer" or {*others} != {"Dense"}:
        hint = "Save it with PyLate: `models.ColBERT(folder).save_pretrained(new_folder)`."
        what = f"a PyLate model of {_name_classes(modules)}: it must be a backbone followed by projections"
        raise ModelError(f"{modules[0].folder} is {what} of token vectors.", hint=hint)
    named = {name: value for name, value in library.items() if value is not None}
    expansion = named.get("do_query_expansion", True)
    return LateInteraction(
        query_length=named.get("query_length", 32),
        document_length=named.get("document_length", 180),
        expansion=expansion,
        attends_to_expansion=expansion and named.get("attend_to_expansion_tokens", False),
        query_prefix=named.get("query_prefix", "[Q] "),
        document_prefix=named.get("document_prefix", "[D] "),
        skiplist=tuple(map(str, named.get("skiplist_words", string.punctuation))),
        dimension=layout.infer_vector_size(modules[0].folder, "") or 0,
    )


def _name_classes(modules: _Modules) -> str:
    return ", ".join(module.kind.rpartition(".")[2] for module in modules)


def _read_multi_vector_settings(
    modules: _Modules, library: Mapping[str, Any], length: int
) -> LateInteraction:
    """The settings of a MultiVectorEncoder of sentence-transformers; its prefixes are prompts.

    `length` is the most tokens of a text where it names none.
    """
    similarity, folder = library.get("similarity_fn_name"), modules[0].folder
    layout.require_run(folder / files.SETTINGS, "similarity_fn_name", similarity, "maxsim", None)
    order = [module.class_name for module in modules if module.class_name != layout.MASK]
    masks = [module.place / "config.json" for module in modules if module.class_name == layout.MASK]
    defaults: dict[str | None, str | None] = {"Dense": layout.TOKENS, "Normalize": None}
    inputs = {
        files.read_object(one.place / "config.json").get("module_input_name", defaults[one.class_name])
        for one in modules
        if one.class_name in defaults
    }
    wanted = ["Transformer", *["Dense"] * (len(order) - 2), "Normalize"]
    if order != wanted or len(masks) != 1 or inputs != {layout.TOKENS}:
        needs = "a backbone, projections of token vectors, their normalisation and one mask"
        hint = "Run it with sentence-transformers itself, or save it without the other modules."
        what = f"a {MULTI_VECTOR} of {_name_classes(modules)}: what runs here is {needs}"
        raise ModelError(f"{folder} is {what}.", hint=hint)
    mask = files.read_object(masks[0])
    layout.require_run(masks[0], "keep_only_token_ids", mask.get("keep_only_token_ids") or None, None)
    words, tasks = mask.get("skiplist_words") or [], mask.get("skiplist_tasks") or ["document"]
    if words:
        layout.require_run(masks[0], "skiplist_tasks", tasks, ["document"], "document")
    config = files.read_object(path := layout.find_sentence_config(modules[0].place))
    expansion, query_length = config.get("query_expansion"), config.get("query_length") or length
    if expansion is not None:
        _require_fixed_expansion(path, expansion, query_length)
    return LateInteraction(
        query_length=query_length if expansion is None else expansion["length"],
        document_length=config.get("document_length") or length,
        expansion=expansion is not None,
        attends_to_expansion=bool(expansion and expansion.get("attend")),
        query_prefix="",
        document_prefix="",
        skiplist=tuple(map(str, words)),
        skips_unknown=False,
        dimension=layout.infer_vector_size(modules[0].folder, "") or 0,
    )


def _require_fixed_expansion(path: Path, expansion: Any, query_length: int) -> None:
    """Refuse an expansion of queries other than that of ColBERT, with mask tokens up to one length."""
    run = {"strategy": "fixed", "attend": False, "token": None, "length": 32}
    named = expansion if isinstance(expansion, dict) else {}
    length, attend = named.get("length"), named.get("attend")
    # At least and at most the same length is that length.
    is_fixed = named.get("strategy") == "fixed" or query_length == length
    is_known = named.keys() <= run.keys() and named.get("token") is None and isinstance(attend, bool | None)
    if not is_fixed or not is_known or type(length) is not int or length < 1:
        raise layout.explain_not_run(path, "query_expansion", expansion, run)
    tokenizer = path.with_name("tokenizer_config.json")
    side = files.read_object(tokenizer).get("padding_side")
    layout.require_run(tokenizer, "padding_side", side, "right", None)


CONFIGS = ("config.json", "modules.json", files.SETTINGS, "special_tokens_map.json", "added_tokens.json")
"""Configuration files, compared as JSON without VOLATILE, like every *_config.json except LEFTOVERS."""

LEFTOVERS = ("data_config.json", "generation_config.json", "preprocessor_config.json")
"""Configuration files without effect on a text's vector."""

TOKENIZERS = ("tokenizer.json", "vocab.json", "vocab.txt", "merges.txt", "bpe.codes", "*.model", "*.tiktoken")
"""Tokenizer files, compared byte by byte."""

VOLATILE = (
    *("_name_or_path", "name_or_path", "_commit_hash", "transformers_version", "__version__"),
    *("special_tokens_map_file", "tokenizer_file", "dtype", "torch_dtype"),
)
"""Fields on the origin of a model or the program that saved it; a dtype is always requested."""


def list_content_files(folder: Path) -> list[Path]:
    """The files that decide what the model computes, sorted: weights, configs, tokenizers, Python files.

    The README, other formats' weights, training leftovers and model.json are left out. It is a ModelError if
    there are no weights, or a config cannot be read.
    """
    paths = set(layout.weight_files(folder))
    for root in {folder, *layout.list_module_folders(folder)}:
        if root.is_dir():
            paths.update(p for p in root.iterdir() if _is_config(p))
            # transformers loads an adapter that lies beside a model without being asked.
            patterns = (*TOKENIZERS, "adapter_model.*", f"{ADAPTER}/*")
            paths.update(p for pattern in patterns for p in root.glob(pattern))
    # A model's own code may import any file of its folder.
    paths.update(folder.rglob("*.py"))
    content_files = sorted(p for p in paths if p.exists() and not p.is_dir())
    for path in content_files:
        is_weights = path.suffix in (".safetensors", ".bin", ".pt", ".h5")
        try:
            require_size(path, sys.maxsize if is_weights else files.LARGEST)
        except ValueError as error:
            raise ModelError(f"{path} cannot be read: {error}.") from None
    return content_files


class FolderIdentity(NamedTuple):
    """The ArtifactKey of a folder and the hash of its weights, 64 hex digits each.

    `document` is its model.json, where the key comes from there.
    """

    key: str
    weights: str
    document: ModelDocument | None = None


@files.read_files_once()
def compute_folder_identity(
    folder: Path, cache_dir: Path | None = None, *, trust_remote_code: bool = False
) -> FolderIdentity:
    """The identity of a folder.

    The key covers name and content of every file of `list_content_files`; a copy elsewhere has the same key.
    That of a trained model is the key of its lineage, as long as the content is what model.json says. The
    hash of the weights is the file's own SHA-256 for a single file; safetensors in several parts count as the
    one file that their tensors make.

    Args:
        folder: The model folder.
        cache_dir: Where hashes of files are cached; None to compute each.
        trust_remote_code: Whether the folder's own classes run. With such classes it then has another key,
            because it is another program.
    """
    hashes: dict[str, str] = {}
    for path in list_content_files(folder):
        parts = files.list_module_weights(path.parent) if path.suffix == ".safetensors" else []
        # The parts of a sharded checkpoint are one file.
        is_part = path in parts and path.name != files.WHOLE
        name = (path.with_name(files.WHOLE) if is_part else path).relative_to(folder).as_posix()
        if not is_part:
            hashes[name] = _hash(path, cache_dir)
        elif name not in hashes:
            hashes[name] = hash_files(parts, partial(files.hash_shards, parts), cache_dir)
    content = digest(sorted(hashes.items()))
    own_code = trust_remote_code and any(one.is_replacement for one in layout.list_remote_classes(folder))
    weights = {name: sha for name, sha in hashes.items() if name.endswith((".safetensors", ".bin"))}
    weights_hash = next(iter(weights.values())) if len(weights) == 1 else digest(sorted(weights.items()))
    document = read_document(folder)
    if document is not None and document.content != content:
        document = None
    key = content if document is None else document.key
    key = digest({"content": key, "own code": True}) if own_code else key
    return FolderIdentity(key=key, weights=weights_hash, document=document)


def _is_config(path: Path) -> bool:
    return path.name in CONFIGS or (path.name.endswith("_config.json") and path.name not in LEFTOVERS)


def _hash(path: Path, cache_dir: Path | None) -> str:
    if not _is_config(path):
        return hash_file(path, cache_dir)
    content = files.read_json(path)
    if isinstance(content, dict):
        content = {name: value for name, value in content.items() if name not in VOLATILE}
    # Written again from its values, so that the order and the blanks of a config do not count.
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


MERGED = "ADALORA C3A FOURIERFT HRA IA3 LN_TUNING LOHA LOKR LORA MISS OFT SHIRA VBLORA VERA"
"""The kinds of adapters that peft merges into the layers beside which they stand, exact to rounding."""

UNMERGED = ("alora_invocation_tokens", "layer_replication", "megatron_config")
"""Settings of adapters that change some tokens alone, share layers, or have peft import a module by name."""

ORIGIN = ("base_model_name_or_path", "revision", "peft_version", "auto_mapping", "inference_mode")
"""Fields of an adapter's config without effect on a vector, once the base lies beside it."""


def lay_beside_base(folder: Path, cache: Path, find_base: Callable[[Path, str, str | None], Path]) -> Path:
    """A folder of links in which each adapter of a model lies in its base; the folder itself without any.

    Such a folder is made once, and is read as any other. The tokenizer is that of the adapter's folder, if it
    has one, as in sentence-transformers.

    Args:
        folder: The model folder.
        cache: The cache folder.
        find_base: The folder of a base model, by the adapter's config, the base's name and its revision.

    Raises:
        ModelError: An adapter cannot be merged, is damaged, or has no base.
    """
    adapters = [place / ADAPTER_CONFIG for place in layout.list_backbone_folders(folder)]
    places = [at.parent for at in adapters if at.is_file() and not files.list_module_weights(at.parent)]
    if not places:
        return folder
    roots = {folder, *layout.list_module_folders(folder)}
    paths = {*folder.rglob("*.py"), *(path for root in roots if root.is_dir() for path in root.iterdir())}
    links, configs = {path: path for path in paths if path.is_file()}, dict[Path, str]()
    for place in places:
        config = _read_adapter_config(place)
        base = find_base(place / ADAPTER_CONFIG, config["base_model_name_or_path"], config.get("revision"))
        links |= {place / path.name: path for path in _list_base_files(base, place)}
        del links[place / ADAPTER_CONFIG]
        links[place / ADAPTER / ADAPTER_WEIGHTS] = links.pop(place / ADAPTER_WEIGHTS)
        kept = {name: value for name, value in config.items() if name not in ORIGIN}
        if config.get("task_type") in layout.TASKS:
            headers, _ = files.read_safetensors(place / ADAPTER_WEIGHTS)
            tensors = [name.removeprefix(layout.PREFIX) for name in headers]
            modules = config.get("modules_to_save") or ()
            kept["modules_to_save"] = [one for one in modules if any(f".{one}." in name for name in tensors)]
        configs[place / ADAPTER / ADAPTER_CONFIG] = json.dumps(kept, indent=2, sort_keys=True)
    targets = {path.relative_to(folder).as_posix(): str(target.absolute()) for path, target in links.items()}
    texts = {path.relative_to(folder).as_posix(): text for path, text in configs.items()}
    laid = cache / "adapters" / digest({"links": targets, "texts": texts}) / folder.resolve().name
    if not laid.is_dir():
        _write_links(laid, targets, texts)
    return laid


def _read_adapter_config(place: Path) -> dict[str, Any]:
    """The config of an adapter that can be merged, whose weights are whole and whose base has a name."""
    path = place / ADAPTER_CONFIG
    config = files.read_object(path)
    kind, base = config.get("peft_type"), config.get("base_model_name_or_path")
    if kind is None or not base:
        lack = "base_model_name_or_path" if kind else "peft_type"
        raise DamagedModelError(f"{path} names no {lack}.", hint="Save the adapter again with peft.")
    settings = [name for name in UNMERGED if config.get(name)]
    if kind not in MERGED.split() or settings:
        what = f"with {settings[0]}" if settings else f"of the kind {kind}"
        hint = "Give the base model, or an adapter of another kind: LORA, IA3, LOHA, LOKR, OFT or VERA."
        lack = f"is an adapter {what}, which cannot be merged into its base model"
        raise ModelError(f"{place} {lack}.", hint=hint)
    if not (place / ADAPTER_WEIGHTS).is_file():
        hint = "Fetch or write the folder again."
        if (place / "adapter_model.bin").is_file():
            hint = f"Save the adapter of adapter_model.bin as {ADAPTER_WEIGHTS} with a newer peft."
        raise ModelError(f"{place} has no {ADAPTER_WEIGHTS}.", hint=hint)
    files.check_file(place / ADAPTER_WEIGHTS)
    return config


def _list_base_files(base: Path, place: Path) -> list[Path]:
    """The files of a base model that it is loaded from, for the adapter in `place`."""
    weights = files.list_module_weights(base)
    if not (base / "config.json").is_file() or not weights:
        lack = "no folder with config.json and weights"
        if (base / ADAPTER_CONFIG).is_file():
            lack = "an adapter itself"
        hint = "Merge the adapter into its base model (`merge_and_unload()` of peft), and give the result."
        raise ModelError(f"{base}, the base model of the adapter in {place}, is {lack}.", hint=hint)
    has_own = any(any(place.glob(pattern)) for pattern in layout.VOCABULARIES)
    tokenizer = ["tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"]
    patterns = ["config.json", "*.index.json", "*.py"]
    patterns += [] if has_own else [*tokenizer, *layout.VOCABULARIES]
    return [*weights, *(path for pattern in patterns for path in base.glob(pattern))]


def _write_links(laid: Path, targets: Mapping[str, str], texts: Mapping[str, str]) -> None:
    """Make a folder of links and texts, whole or not at all."""
    new = create_temporary_folder(laid)
    try:
        for name in (*targets, *texts):
            (new / name).parent.mkdir(parents=True, exist_ok=True)
        for name, target in targets.items():
            (new / name).symlink_to(target)
        for name, text in texts.items():
            (new / name).write_text(text, encoding="utf-8")
        new.rename(laid)
    except OSError:
        # Another process has made it.
        if not laid.is_dir():
            raise
    finally:
        shutil.rmtree(new, ignore_errors=True)
