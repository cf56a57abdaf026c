"""The description of a model folder, from its JSON alone: pooling, lengths, prompts, vectors of tokens.

Imports neither torch nor transformers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast, get_args

from harness.core.encoding import LateInteraction
from harness.core.errors import ModelError
from harness.core.types import Similarity
from harness.encoder.backbones import (
    ALIBI,
    count_position_rows,
    explain_unscalable,
    parse_positions,
    read_architecture,
    read_family,
    require_network,
)
from harness.encoder.folder.content import check_external_references
from harness.encoder.folder.files import SETTINGS, is_schema_file, read_files_once, read_object
from harness.encoder.folder.modules import (
    CONTEXT_STAGE,
    LATE,
    MASK,
    TEXT,
    TEXT_STAGE,
    TOKENIZED,
    TWO_STAGE,
    VOCABULARIES,
    Module,
    explain_not_run,
    find_backbone_folder,
    find_sentence_config,
    list_backbone_folders,
    list_input_modules,
    list_module_folders,
    list_modules,
    read_module_config,
    read_modules,
    weight_files,
)
from harness.encoder.folder.multi_vector import (
    COLBERT,
    MULTI_VECTOR,
    find_model_kind,
    read_multi_vector_settings,
    read_pylate_settings,
)
from harness.encoder.folder.pooling import infer_vector_size, name_pooling, read_pooling
from harness.encoder.tensors import check_weights
from harness.encoder.two_stage_settings import TwoStageSettings

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
        return self.unscalable == ALIBI


@read_files_once()
def describe(folder: Path, *, own_code: bool = False) -> Description:
    """The description of the model in `folder`; with `own_code`, the model's own code is run.

    It is a ModelError if there is no model, its JSON or weights are unreadable, or it has no weights.
    """
    if not folder.is_dir():
        raise ModelError(f"{folder} is not a folder.", hint="Give the folder that holds config.json.")
    modules = read_modules(folder)
    library = read_object(folder / SETTINGS) if modules else {}
    kind = find_model_kind(folder, modules, library)
    if modules:
        _check_module_configs(folder, is_late=kind == MULTI_VECTOR)
    _check_files(folder)
    pooling, family = read_pooling(modules), read_family(find_backbone_folder(folder))
    token_limits, late = read_token_limits(folder, own_code=own_code), None
    if kind != "SentenceTransformer":
        read = read_pylate_settings if kind == COLBERT else read_multi_vector_settings
        late = read(folder, modules, library, token_limits[0].most)
    stages, last = _read_two_stage(folder, modules), modules[-1] if modules else Module("", folder)
    prompts, default_prompt = _read_prompts(folder, library)
    if stages is not None:
        token_limits = (compute_text_limits(find_backbone_folder(folder), stages, token_limits[0]),)
    return Description(
        folder=folder,
        name=folder.name,
        pooling=pooling,
        usual_pooling="mean" if family is None else family.pooling,
        # A Normalize of the vectors of tokens leaves that of a text as it is.
        normalize=last.class_name == "Normalize"
        and read_module_config(last.place, "Normalize")["module_input_name"] == TEXT,
        truncate_dim=_read_truncation(folder, library, pooling),
        # The longest tower's, among those that cut at all.
        max_length=max((length.most for length in token_limits if length.most < NO_LIMIT), default=NO_LIMIT),
        position_limit=max((one.limit for one in token_limits if one.limit is not None), default=None),
        lengths=token_limits,
        prompts=prompts,
        default_prompt_name=default_prompt,
        similarity_fn_name="maxsim" if late is not None else _read_similarity(folder, library),
        late_interaction=late,
        two_stage=stages,
        unscalable=_explain_unscalable(folder, modules, own_code=own_code),
    )


def _explain_unscalable(folder: Path, modules: Sequence[Module], *, own_code: bool) -> str | None:
    """The reason why the positions of a model cannot be scaled for longer texts; None if they can."""
    backbones = list_backbone_folders(folder)
    # Behind a Router, or in two stages, a backbone is not the first module.
    if backbones != [modules[0].place if modules else folder]:
        return TWO_BACKBONES
    return explain_unscalable(read_object(backbones[0] / "config.json"), own_code=own_code)


def _check_files(folder: Path) -> None:
    """Refuse files that are missing, cannot be read, or have a value of another type."""
    backbones = list_backbone_folders(folder)
    for place in backbones:
        _require_config(place)
    for place in list_module_folders(folder):
        for path in sorted(filter(is_schema_file, place.iterdir())) if place.is_dir() else ():
            read_object(path)
    # First: a setting may name other weights than those that are checked next.
    check_external_references(folder)
    for path in weight_files(folder):
        check_weights(path)
    for place in backbones:
        _require_tokenizer(place)


def _check_module_configs(folder: Path, *, is_late: bool) -> None:
    """Refuse settings of modules that change vectors and are not run here."""
    for module in list_modules(folder):
        config = read_module_config(module.place, module.class_name)
        if module.class_name == "Pooling":
            name_pooling(config, module.place / "config.json")
        own = read_object(path := find_sentence_config(module.place))
        for name in LATE if module.class_name == "Transformer" and not is_late else ():
            if own.get(name) is not None:
                raise explain_not_run(path, name, own[name], None)
        if module.class_name == MASK and not is_late:
            raise ModelError(
                f"{folder} has a {MASK}, which only a {MULTI_VECTOR} has.", hint="Save the model again."
            )


def _read_truncation(folder: Path, library: Mapping[str, Any], pooling: str | None) -> int | None:
    """The dimensions to which vectors are cut; None for all."""
    size: int | None = library.get("truncate_dim")
    if size is not None and size > (infer_vector_size(folder, pooling or "") or size):
        raise explain_not_run(folder / SETTINGS, "truncate_dim", size, None)
    return size


def _read_two_stage(folder: Path, modules: Sequence[Module]) -> TwoStageSettings | None:
    """The settings of a two-stage model, whose backbones must be ours; None for any other."""
    if all(module.class_name != TWO_STAGE for module in modules):
        return None
    if modules[0].class_name != TWO_STAGE:
        raise ModelError(
            f"{folder} has two stages behind another module.",
            hint="Save the model again, with that module first.",
        )
    for stage in (TEXT_STAGE, CONTEXT_STAGE):
        require_network(modules[0].place / stage)
    return TwoStageSettings.read_stage_settings(modules[0].place)


def compute_text_limits(backbone: Path, stages: TwoStageSettings, limits: _TokenLimits) -> _TokenLimits:
    """The limits of a text behind a context; ModelError if `backbone`, the second stage, has no room."""
    shape, kind = read_architecture(backbone), str(read_object(backbone / "config.json").get("model_type"))
    stages.check_positions(shape, limits.most if limits.most < NO_LIMIT else 1, kind)
    limit = stages.compute_text_limit(shape.positions, shape.max_position_embeddings)
    table = limit if limits.table is not None else None
    return replace(limits, limit=limit, table=table)


def _require_config(place: Path) -> None:
    """Refuse the folder of a transformer without a config."""
    if not (place / "config.json").is_file():
        hint = "Give the folder of a transformers or sentence-transformers model."
        if (place / "adapter_config.json").is_file():
            hint = "It is an adapter: merge it into its base model (`merge_and_unload()` of peft)."
        raise ModelError(f"{place} has no config.json.", hint=hint)


def _require_tokenizer(place: Path) -> None:
    """Refuse a transformer without tokenizer files, for which transformers would make an empty tokenizer."""
    config = read_object(place / "tokenizer_config.json")
    # Tokenizers of characters have no vocabulary.
    of_characters = ("ByT5Tokenizer", "CanineTokenizer", "PerceiverTokenizer")
    needs_none = config.get("auto_map") or config.get("tokenizer_class") in of_characters
    if not needs_none and not any(any(place.glob(name)) for name in VOCABULARIES):
        family = read_family(place)
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
        raise ModelError(
            f"{folder / SETTINGS} names the default prompt {name!r}, which it does not have.",
            hint=f"It has {', '.join(sorted(prompts))}. Correct default_prompt_name in a copy of the folder.",
        )
    return prompts, name


def _read_similarity(folder: Path, library: Mapping[str, Any]) -> Similarity:
    name, similarities = library.get("similarity_fn_name"), get_args(Similarity)
    if name is not None and name not in similarities:
        raise ModelError(
            f"{folder} compares vectors with {name!r}, which is unknown here.",
            hint=f"There is: {', '.join(similarities)}.",
        )
    return cast(Similarity, name or "cosine")


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
    is_bare = not read_modules(folder)
    return tuple(
        _read_module_limits(module, bare=is_bare, own_code=own_code) for module in list_input_modules(folder)
    )


def _read_module_limits(module: Module, *, bare: bool, own_code: bool) -> _TokenLimits:
    root = module.place
    config = read_object(root / "config.json")
    # A config that also covers other inputs has a part for texts.
    if config.get("text_config") is not None and parse_positions(config) is None:
        config = config["text_config"]
    files = [*sorted(root.glob("sentence_*_config.json")), root / "wordembedding_config.json"]
    lengths = [read_object(path).get("max_seq_length") or 0 for path in files if not bare]
    named = config_length = next((int(length) for length in lengths if length > 0), None)
    table, positions = count_position_rows(config, own_code=own_code), parse_positions(config)
    # Computed positions reach as far as the config says, or to the model's own length if that is longer.
    computed = None if positions is None else max(positions, config_length or 0)
    limit = computed if table is None else table
    if named is None and module.class_name in TOKENIZED:
        named = read_object(root / "tokenizer_config.json").get("model_max_length")
    # A tokenizer without a limit has 1e30.
    length_limit = int(named) if named is not None and 0 < named < NO_LIMIT else None
    most = min((length for length in (length_limit, limit) if length), default=NO_LIMIT)
    cuts = module.class_name not in ("BoW", "WordEmbeddings", "StaticEmbedding")
    return _TokenLimits(cuts=cuts, most=most, named=length_limit, limit=limit, table=table)
