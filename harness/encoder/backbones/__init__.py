"""The catalog of backbones by family, and what it says of the backbone in a folder."""

import functools
import importlib.util
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.core.encoding import Encoding
from harness.core.errors import DamagedModelError, ModelError, UsageError, find_similar_names
from harness.core.files import Registry
from harness.core.types import Artifact
from harness.encoder.architecture import MODEL_TYPE, Architecture, BackboneEntry, Config, Family
from harness.encoder.folder.files import read_object
from harness.encoder.folder.modules_and_pooling import ADAPTER, list_module_folders
from harness.encoder.folder.modules_and_pooling import ADAPTER_CONFIG as CONFIG

BACKBONES = Registry(
    kind=BackboneEntry, package="harness.encoder.backbones", attribute="BACKBONE", group="harness.backbones"
)


@functools.cache
def list_backbones() -> dict[str, BackboneEntry]:
    """Every family of encoders, and every model with a name of its own, by name."""
    return BACKBONES.load_entries()


def list_catalog_models() -> dict[str, BackboneEntry]:
    """The entries that name a model."""
    return {name: entry for name, entry in list_backbones().items() if entry.locate is not None}


def find_catalog_model(name: str) -> BackboneEntry | None:
    """The entry of the model with this name, None without one."""
    entry = BACKBONES.find_entry(name) or list_backbones().get(name)
    return entry if entry is not None and entry.locate is not None else None


def find_family(config: Mapping[str, Any]) -> Family | None:
    """The family of a config.json, None if the catalog has none.

    Raises:
        UsageError: No family holds it, and an entry that may does not load.
    """
    # A module without a backbone, such as pooling.
    if "model_type" not in config:
        return None
    return next((family for family in _iter_families() if family.holds(config)), None)


def _iter_families() -> Iterator[Family]:
    """Every family, the built-in ones first; plugins load only when needed."""
    yield from (entry.family for entry in BACKBONES.iter_entries() if entry.family is not None)
    yield from (entry.family for entry in list_backbones().values() if entry.family is not None)
    for error in BACKBONES.collect_failures():
        raise error


def read_family(folder: Path) -> Family | None:
    """The family of the backbone in a folder, None if the catalog has none."""
    return find_family(read_object(folder / "config.json"))


def read_library_types() -> frozenset[str]:
    """The model types of the installed transformers, read from its source, since an import takes seconds."""
    try:
        spec = importlib.util.find_spec("transformers")
    except ImportError:
        return frozenset()
    roots = () if spec is None else spec.submodule_search_locations or ()
    # The second file is of transformers 5.4 and later.
    names = ("configuration_auto.py", "auto_mappings.py")
    paths = [Path(root, "models/auto", name) for root in roots for name in names]
    texts = [path.read_text(encoding="utf-8") for path in paths if path.is_file()]
    # Pairs in a list, or entries of a dictionary.
    return frozenset(re.findall(r'[({\n]\s*"([^"]+)"(?:,|:) "\w+Config"', "".join(texts)))


def has_library_tokenizer(model_type: str) -> bool:
    """Whether transformers takes its own tokenizer of a model type even where code is trusted."""
    from transformers.models.auto.tokenization_auto import MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS

    return model_type in MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS


def parse_harness_architecture(config: Mapping[str, Any]) -> Architecture:
    """The architecture in a config.json under our own model type.

    Raises:
        ModelError: It has none, or one that is not known here.
    """
    values = config.get("architecture")
    if not isinstance(values, Mapping):
        raise DamagedModelError("The config.json of the model has no architecture.")
    return Architecture.of({**values, "vocab_size": config.get("vocab_size", values.get("vocab_size"))})


def read_architecture(folder: Path) -> Architecture:
    """The architecture of a backbone that our network runs, as its config.json has it.

    Raises:
        ModelError: The config makes no network.
    """
    family, config = read_family(folder), read_object(folder / "config.json")
    return parse_harness_architecture(config) if family is None else family.outline(config)


def has_network(folder: Path, *, own_code: bool = False) -> bool:
    """Whether our network runs the backbone in a folder; not if it runs its own classes (`own_code`)."""
    config = read_object(folder / "config.json")
    is_adapter = (folder / "adapter_config.json").is_file() or not _is_plain_lora(folder)
    if is_adapter or can_run_remote_code(config, own_code):
        return False
    family = read_family(folder)
    return config.get("model_type") == MODEL_TYPE or (family is not None and family.shape is not None)


def require_network(backbone: Path) -> None:
    """Refuse the backbone of a two-stage model that our network does not run."""
    if not has_network(backbone):
        raise ModelError(
            f"The backbone in {backbone} runs through transformers' own class: it takes no context.",
            hint="Take a backbone of a family that our network runs (`harness list backbones`).",
        )


def _is_plain_lora(place: Path) -> bool:
    """Whether the adapter in a backbone's folder, if any, is low-rank products beside linear layers alone."""
    config = read_object(place / ADAPTER / CONFIG)
    more = ("modules_to_save", "target_parameters", "trainable_token_indices")
    plain = config.get("peft_type") == "LORA" and config.get("bias", "none") == "none"
    return not config or (plain and not any(config.get(name) for name in more))


def can_run_remote_code(config: Mapping[str, Any], allowed: bool) -> bool:
    """Whether the classes in a config's `auto_map` run: they exist, and code is allowed."""
    return allowed and bool(config.get("auto_map"))


OFFSET_MODELS = (
    *("camembert", "data2vec-text", "ibert", "longformer", "luke", "mluke", "mpnet", "roberta"),
    *("roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod"),
)
"""Model types whose position table starts after the padding id, as in RoBERTa."""


def parse_positions(config: Mapping[str, Any]) -> int | None:
    """The number of positions that a config names; None for none, or where it is no limit."""
    positions = config.get("max_position_embeddings", config.get("n_positions"))
    # With relative positions the length in the config is no limit.
    unbound = config.get("model_type") in ("t5", "mt5", "umt5", "xlnet")
    return None if positions is None or positions < 1 or unbound else positions


def count_position_rows(config: Mapping[str, Any], *, own_code: bool) -> int | None:
    """The number of learned positions, None where positions are computed."""
    network_positions = None if can_run_remote_code(config, own_code) else _find_max_positions(config)
    if network_positions is not None:
        return network_positions
    positions = parse_positions(config)
    computed = (
        any("rope" in name or "rotary" in name or "alibi" in name for name in config)
        or config.get("position_embedding_type") not in (None, "absolute")
        # DeBERTa-v3 names a number of positions and has no table of them.
        or config.get("position_biased_input") is False
    )
    if positions is None or computed:
        return None
    if config.get("model_type") in OFFSET_MODELS:
        return positions - int(config.get("pad_token_id", 1)) - 1
    return positions


def _find_max_positions(config: Mapping[str, Any]) -> int | None:
    """The most tokens of a text in our network, None if unlimited or left to the table of positions."""
    if config.get("model_type") == MODEL_TYPE:
        shape = config.get("architecture", {})
        return None if shape.get("positions") == "alibi" else shape.get("max_position_embeddings")
    family = find_family(config)
    if family is None or family.shape is None:
        return None
    architecture = family.outline(config)
    has_table = family.native and architecture.positions != "rotary"
    return None if has_table or architecture.positions == "alibi" else architecture.max_position_embeddings


def explain_unscalable(config: Mapping[str, Any], *, own_code: bool = False) -> str | None:
    """The reason why the positions of a config.json cannot be scaled for longer texts; None if they can."""
    if can_run_remote_code(config, own_code):
        return "its positions are in code of its own"
    family = find_family(config)
    if config.get("model_type") == MODEL_TYPE:
        shape = config.get("architecture", {})
        positions, scaling = shape.get("positions"), shape.get("rotary_scaling")
    elif family is None or family.shape is None:
        # Whether transformers' own class has rotary layers is seen once it is built.
        positions, scaling = "rotary", any(kind != "default" for kind, _ in _list_rotary_settings(config))
    else:
        positions, scaling = (shape := family.outline(config)).positions, shape.rotary_scaling
    if positions == "alibi":
        return ALIBI
    if positions != "rotary":
        return "its positions are not rotary"
    return "its config has a scaling of its own" if scaling else None


def _list_rotary_settings(config: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    """The settings of rotary positions, each with its kind; there may be some for every kind of layers."""
    rotary = config.get("rope_parameters") or config.get("rope_scaling") or {}
    settings = [rotary, *(value for value in rotary.values() if isinstance(value, Mapping))]
    return [(str(one.get("rope_type", one.get("type", "default"))), one) for one in settings]


ORDER = "order-dependence"
"""The name by which vectors that depend on the texts before or beside them are accepted."""


def check_order(place: Path, encoding: Encoding, *, own_code: bool) -> None:
    """Refuse a backbone whose vectors depend on the texts before or beside them."""
    config = read_object(place / "config.json")
    length = None if has_network(place, own_code=own_code) else _find_uniform_length(config)
    if config.get("model_type") == "big_bird" and config.get("attention_type") != "original_full":
        why = "block-sparse attention, which its first short text switches off for good"
        cure = 'Set "attention_type": "original_full" in config.json, which gives every text full attention.'
    elif length is not None and encoding.max_length > length:
        why = f"rotary positions that follow the longest text of a batch beyond {length} tokens"
        cure = f"Add --max-length {length}."
    else:
        return
    hint = f"{cure} Or take it as it is: --allow {ORDER}"
    raise ModelError(f"{place} has {why}: its scores would depend on the order of texts.", hint=hint)


def _find_uniform_length(config: Mapping[str, Any]) -> int | None:
    """The length up to which transformers' own class gives texts the same rotary positions; None for any.

    Beyond it the longest text of a batch, or the longest so far, chooses those of all.
    """
    lengths = [
        {**config, **settings}.get(name) or config.get("max_position_embeddings")
        for kind, settings in _list_rotary_settings(config)
        if (name := _GROWING.get(kind))
    ]
    return min(filter(None, lengths), default=None)


_GROWING = {"dynamic": "max_position_embeddings", "longrope": "original_max_position_embeddings"}
"""The kinds of rotary positions that follow the length, each with the field up to which they do not."""

ALIBI = "its ALiBi reaches any --max-length as it is"
"""The reason why the positions of a model that has no limit are not scaled."""


def check_model_type(place: Path, config: Config, *, own_code: bool) -> None:
    """Refuse a config without a model type, or with one that neither we nor transformers know."""
    kind, path = config.get("model_type"), place / "config.json"
    if own_code and config.get("auto_map"):
        return
    if not kind:
        raise ModelError(
            f"{path} has no model_type.", hint='Take it from the published model, e.g. "model_type": "bert".'
        )
    model_types = read_library_types()
    is_known = kind == MODEL_TYPE or kind in model_types or config.get("auto_map") or read_family(place)
    if model_types and not is_known:
        close = " or ".join(find_similar_names(kind, model_types))
        hint = f"Did you mean {close}?" if close else "`harness list backbones` shows what the harness adds."
        raise ModelError(f"{path} has the model_type {kind!r}, which transformers does not know.", hint=hint)


def check_family(artifact: Artifact, encoding: Encoding) -> None:
    """Refuse a variant that nothing here computes (ModelError), and a dtype that it does not run in."""
    for folder in list_module_folders(artifact.folder):
        config, family = read_object(folder / "config.json"), read_family(folder)
        positions, own_code = config.get("position_embedding_type"), artifact.trust_remote_code
        is_relative = positions in ("relative_key", "relative_key_query")
        runs_elsewhere = has_network(folder, own_code=own_code) or can_run_remote_code(config, own_code)
        # Of the types that had them, ESM alone still has.
        if is_relative and not runs_elsewhere and config.get("model_type") != "esm":
            raise ModelError(
                f"{artifact.name} has {positions} positions, which transformers 5 has dropped: "
                "it would run without.",
                hint="It cannot be evaluated with this version.",
            )
        if family is None and "model_type" in config:
            _require_no_variant(artifact, str(config["model_type"]))
        elif family is not None and family.float32_only is not None and encoding.dtype != "float32":
            raise UsageError(
                f"{artifact.name} is not run in {encoding.dtype}: {family.float32_only}.",
                hint="Leave the dtype out, or ask for float32.",
            )


def _require_no_variant(artifact: Artifact, kind: str) -> None:
    """Refuse a variant of a model type that only our network computes, if no family covers it."""
    families = {name: entry.family for name, entry in list_backbones().items()}
    named = {name: one for name, one in families.items() if one is not None and kind in one.model_types}
    is_ours_alone = named and not any(one.native or one.shape is None for one in named.values())
    if is_ours_alone and not artifact.trust_remote_code:
        raise ModelError(
            f"{artifact.name} is a {kind}, but not one that the family {next(iter(named))} can run: its "
            "config.json lacks a field, or has a setting that changes the network.",
            hint="Compare it with the config.json of the published model. If its folder brings code of its "
            "own and you trust it, add --trust-remote-code.",
        )
