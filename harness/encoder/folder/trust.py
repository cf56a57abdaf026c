"""Whether what would run is the model: its own code needs the user's trust, and no variant is left out.

It is checked before anything of the folder is imported.
"""

from __future__ import annotations

import ast
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

ALLOW = "--trust-remote-code"
"""The option that allows a model's own code."""

COMMIT = re.compile(r"[0-9a-f]{40}")

ACTIVATIONS = ("torch.nn.", "sentence_transformers.", "transformers.activations.")
"""The modules from which a config may import its activation function."""

TOKENIZER = re.compile(
    r"sentence_transformers\.models\.tokenizer(\.\w+)?"
    r"\.(WhitespaceTokenizer|PhraseTokenizer|TransformersTokenizerWrapper)"
)
"""The tokenizers of a WordEmbeddings module."""


def check_trust(artifact: Artifact) -> None:
    """Refuse a model that would run code of its own, unless that is allowed and the code is pinned.

    Raises:
        ModelError: It would run code, or it names code of its own without which it would be another model.
    """
    foreign = [
        kind
        for kind in _list_import_names(artifact.folder)
        if not (find_library_class(kind) or TOKENIZER.fullmatch(kind))
    ]
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
        raise ModelError(
            f"{artifact.name} needs code of its own: its module {foreign[0]}.",
            hint=_format_trust_hint(artifact),
        )
    networks = {one: _find_network_family(one) for one in remote_classes}
    for remote_class in remote_classes:
        kind = _read_model_type(remote_class)
        if networks[remote_class] is None and kind not in read_library_types():
            raise ModelError(
                f"{artifact.name} needs code of its own: transformers knows no "
                f"{kind or 'such model type'!r}.",
                hint=_format_trust_hint(artifact),
            )
    for remote_class, family in networks.items():
        is_ours = family is not None and family.replaces(remote_class.reference)
        if remote_class.is_replacement and not is_ours:
            _require_no_other(artifact, remote_class, family)


def _list_import_names(folder: Path) -> list[str]:
    """The names that module files import: module types, and the tokenizers of word embeddings."""
    modules = list_modules(folder)
    configs = (read_object(folder / sub / "wordembedding_config.json") for _, sub in modules)
    tokenizers = (config.get("tokenizer_class") for config in configs)
    return [*(kind for kind, _ in modules), *(name for name in tokenizers if name is not None)]


def _find_network_family(remote: RemoteClass) -> Family | None:
    """The family whose network may replace a class that a config names, None without one."""
    family = read_family(remote.folder)
    return (
        family if remote.file == "config.json" and family is not None and family.shape is not None else None
    )


def read_library_types() -> frozenset[str]:
    """The model types of the installed transformers, read from its source, since an import takes seconds."""
    try:
        spec = importlib.util.find_spec("transformers")
    except ImportError:
        return frozenset()
    roots = () if spec is None else spec.submodule_search_locations or ()
    for path in (Path(root) / "models/auto/configuration_auto.py" for root in roots):
        for node in ast.parse(path.read_text(encoding="utf-8")).body if path.is_file() else ():
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CONFIG_MAPPING_NAMES":
                pairs = node.value.args[0] if isinstance(node.value, ast.Call) else node.value
                return frozenset(name for name, _ in ast.literal_eval(pairs))
    return frozenset()


def _require_no_other(artifact: Artifact, remote: RemoteClass, family: Family | None) -> None:
    kind = _read_model_type(remote)
    if remote.name == "AutoTokenizer" and _has_library_tokenizer(kind):
        return
    owner = "transformers'" if family is None or family.native else "the harness's"
    raise ModelError(
        f"{artifact.name} names code of its own, {remote.reference} as {remote.name}: without it, "
        f"{owner} {kind} would be evaluated in its place.",
        hint=f"{_format_trust_hint(artifact)} To evaluate transformers' class, take auto_map out of "
        f"{remote.file} in a copy of the folder.",
    )


def _has_library_tokenizer(kind: str) -> bool:
    """Whether transformers uses a tokenizer class of its own, even where the folder's code is trusted."""
    from transformers.models.auto.tokenization_auto import MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS

    return kind in MODELS_WITH_INCORRECT_HUB_TOKENIZER_CLASS


def _read_model_type(remote: RemoteClass) -> str:
    return str(read_object(remote.folder / "config.json").get("model_type", ""))


def _format_trust_hint(artifact: Artifact) -> str:
    pin = "" if artifact.revision is None else f" and type {artifact.source}@<the commit you have read>"
    return f"Read that code; if you trust it, add {ALLOW}{pin}."


def _check_pinned(artifact: Artifact, remote_classes: Sequence[RemoteClass]) -> None:
    # A local folder has no revision: it is what lies there.
    if artifact.revision is not None and not COMMIT.fullmatch(artifact.revision):
        raise ModelError(
            f"{ALLOW} needs a pinned commit, and {artifact.name} is at {artifact.revision!r}.",
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


RELATIVE = ("relative_key", "relative_key_query")
"""Kinds of positions that older versions of transformers had for BERT."""

HAVE_RELATIVE = ("esm",)
"""Model types that still have them."""


def check_family(artifact: Artifact, encoding: Encoding) -> None:
    """Refuse backbones that cannot run with the requested settings, as far as their family knows.

    Raises:
        ModelError: It is a variant that nothing here computes.
        UsageError: It does not run in the requested dtype.
    """
    for folder in list_module_folders(artifact.folder):
        config, family = read_object(folder / "config.json"), read_family(folder)
        if not has_network(folder, own_code=artifact.trust_remote_code):
            _check_positions(artifact, config)
        if family is None:
            _require_no_variant(artifact, str(config.get("model_type")))
        elif family.float32_only is not None and encoding.dtype != "float32":
            raise UsageError(
                f"{artifact.name} is not run in {encoding.dtype}: {family.float32_only}.",
                hint="Leave the dtype out, or ask for float32.",
            )


def _check_positions(artifact: Artifact, config: Config) -> None:
    positions = config.get("position_embedding_type")
    own_code = can_run_remote_code(config, artifact.trust_remote_code)
    if positions in RELATIVE and config.get("model_type") not in HAVE_RELATIVE and not own_code:
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
