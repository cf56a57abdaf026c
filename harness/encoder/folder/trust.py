"""Whether what would run is the model: its own code needs the user's trust, and no variant is left out.

It is checked before anything of the folder is imported.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from harness.core.encoding import Encoding
from harness.core.errors import ModelError, UsageError
from harness.core.types import Artifact
from harness.encoder.backbones import can_run_remote_code, has_network, list_backbones, read_family
from harness.encoder.family import Config, Family
from harness.encoder.folder.content import RemoteClass, list_remote_classes
from harness.encoder.folder.files import read_object
from harness.encoder.folder.modules import (
    TOKENIZED,
    find_library_class,
    list_module_folders,
    list_modules,
    locate_modules,
)

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
    names, hint = _list_import_names(artifact.folder), _format_trust_hint(artifact)
    needs = f"{artifact.name} needs code of its own"
    foreign = [kind for kind in names if not (find_library_class(kind) or TOKENIZER.fullmatch(kind))]
    for kind in foreign:
        if kind.startswith("sentence_transformers."):
            raise ModelError(
                f"{artifact.name} names {kind}, which is no module of sentence-transformers "
                f"{version('sentence-transformers')}.",
                hint="It may have been saved with another version: save it with this one.",
            )
    _check_activations(artifact.folder)
    remote_classes = list_remote_classes(artifact.folder)
    if artifact.trust_remote_code:
        _check_pinned(artifact, remote_classes)
        return
    if foreign:
        raise ModelError(f"{needs}: its module {foreign[0]}.", hint=hint)
    for remote in remote_classes:
        family, kind = _find_network_family(remote), _read_model_type(remote)
        if family is None and kind not in read_library_types():
            raise ModelError(f"{needs}: transformers knows no {kind or 'such model type'!r}.", hint=hint)
        is_ours = family is not None and family.replaces(remote.reference)
        if remote.is_replacement and not is_ours:
            _require_no_other(artifact, remote, family)


def _list_import_names(folder: Path) -> list[str]:
    """The names that module files import: module types, and the tokenizers of word embeddings."""
    modules = list_modules(folder)
    configs = (read_object(folder / sub / "wordembedding_config.json") for _, sub in modules)
    tokenizers = (config.get("tokenizer_class") for config in configs)
    return [*(kind for kind, _ in modules), *(name for name in tokenizers if name is not None)]


def _find_network_family(remote: RemoteClass) -> Family | None:
    """The family whose network may replace a class that a config names, None without one."""
    family = read_family(remote.folder) if remote.file == "config.json" else None
    return family if family is not None and family.shape is not None else None


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


def _require_no_other(artifact: Artifact, remote: RemoteClass, family: Family | None) -> None:
    kind = _read_model_type(remote)
    if remote.name == "AutoTokenizer":
        from transformers.models.auto.tokenization_auto import MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS

        # For these transformers takes its own tokenizer, even where the folder's code is trusted.
        if kind in MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS:
            return
    owner = "transformers'" if family is None or family.native else "the harness's"
    raise ModelError(
        f"{artifact.name} names code of its own, {remote.reference} as {remote.name}: without it, "
        f"{owner} {kind} would be evaluated in its place.",
        hint=f"{_format_trust_hint(artifact)} To evaluate transformers' class, take auto_map out of "
        f"{remote.file} in a copy of the folder.",
    )


def _read_model_type(remote: RemoteClass) -> str:
    return str(read_object(remote.folder / "config.json").get("model_type", ""))


def _format_trust_hint(artifact: Artifact) -> str:
    pin = "" if artifact.revision is None else f" and type {artifact.source}@<the commit you have read>"
    return f"Read that code; if you trust it, add --trust-remote-code{pin}."


def _check_pinned(artifact: Artifact, remote_classes: Sequence[RemoteClass]) -> None:
    # A local folder has no revision: it is what lies there.
    if artifact.revision is not None and not re.fullmatch(r"[0-9a-f]{40}", artifact.revision):
        raise ModelError(
            f"--trust-remote-code needs a pinned commit, and {artifact.name} is at {artifact.revision!r}.",
            hint=f"Type {artifact.source}@<40 hex digits of the commit you have read>.",
        )
    named = [(remote.name, remote.reference, remote.file) for remote in remote_classes]
    modules = [("a module", kind, "modules.json") for kind in _list_import_names(artifact.folder)]
    for name, reference, file in [*named, *modules]:
        # In auto_map, `owner/name--file.Class` is the newest code of another repository.
        repository, _, inside = reference.partition("--")
        if inside:
            raise ModelError(
                f"{artifact.name} takes its code ({name}) from {repository}, at no pinned commit.",
                hint=f"Copy that code into the model's folder, and name it there in {file}.",
            )


def _check_activations(folder: Path) -> None:
    for class_name, place in locate_modules(folder):
        # In those the field is a setting of the backbone, and nothing is imported.
        name = read_object(place / "config.json").get("activation_function")
        if class_name not in TOKENIZED and name is not None and not name.startswith(ACTIVATIONS):
            raise ModelError(
                f"{place} wants to import {name!r} as its activation function: refused.",
                hint=f"It may come from {' or '.join(a.rstrip('.') for a in ACTIVATIONS)}.",
            )


def find_float32_reason(folder: Path) -> str | None:
    """The reason why the model in a folder is run in float32 alone; None if it is run in other precisions."""
    families = [read_family(place) for place in list_module_folders(folder)]
    return next((one.float32_only for one in families if one is not None and one.float32_only), None)


def check_family(artifact: Artifact, encoding: Encoding) -> None:
    """Refuse a variant that nothing here computes (ModelError), and a dtype that it does not run in."""
    for folder in list_module_folders(artifact.folder):
        config, family = read_object(folder / "config.json"), read_family(folder)
        if not has_network(folder, own_code=artifact.trust_remote_code):
            _check_positions(artifact, config)
        if family is None and "model_type" in config:
            _require_no_variant(artifact, str(config["model_type"]))
        elif family is not None and family.float32_only is not None and encoding.dtype != "float32":
            raise UsageError(
                f"{artifact.name} is not run in {encoding.dtype}: {family.float32_only}.",
                hint="Leave the dtype out, or ask for float32.",
            )


def _check_positions(artifact: Artifact, config: Config) -> None:
    positions = config.get("position_embedding_type")
    own_code = can_run_remote_code(config, artifact.trust_remote_code)
    # Of the types that had them, ESM alone still has.
    is_relative = positions in ("relative_key", "relative_key_query") and config.get("model_type") != "esm"
    if is_relative and not own_code:
        raise ModelError(
            f"{artifact.name} has {positions} positions, which transformers 5 has dropped: "
            "it would run without.",
            hint="It cannot be evaluated with this version.",
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
