"""The configs of modules in the words of the installed sentence-transformers, whichever version wrote them.

Version 5.4 renamed settings and added some; a value that changes a vector and is not run here is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.core.errors import ModelError
from harness.core.types import SIDES
from harness.encoder.folder.files import read_object

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

_OUTER = {"max_seq_length", "do_lower_case", "backend", "cache_dir", "tokenizer_name_or_path", "unpad_inputs"}
_NAMES = {"module_input_name", "module_output_name"}

SETTINGS_OF = {
    "Transformer": {*_OUTER, *RUN, *LATE, "model_args", "tokenizer_args", "config_args"},
    "Pooling": {"word_embedding_dimension", "pooling_mode", "include_prompt"},
    "Dense": {*_NAMES, "in_features", "out_features", "bias", "activation_function", "use_residual"},
    "Dropout": {"dropout"},
    "Normalize": _NAMES,
    "MultiVectorMask": {"skiplist_words", "skiplist_tasks", "keep_only_token_ids"},
}
"""The settings of modules that are built here, by the names before 5.4; a Pooling may have flags, too."""


def read_module_config(place: Path, class_name: str | None) -> dict[str, Any]:
    """The config in a module's folder, empty where there is none; ModelError as of `adapt_config`."""
    path = find_sentence_config(place) if class_name == "Transformer" else place / "config.json"
    return adapt_config(class_name, read_object(path), path)


def find_sentence_config(place: Path) -> Path:
    """The file in which sentence-transformers keeps its own settings of a Transformer."""
    return min(place.glob("sentence_*_config.json"), default=place / "sentence_bert_config.json")


def adapt_config(class_name: str | None, config: Mapping[str, Any], path: Path | str) -> dict[str, Any]:
    """The config of a module with the names that the installed sentence-transformers has for its settings.

    Args:
        class_name: The module's class.
        config: The config as any version wrote it; it is a ModelError if a setting is not run here.
        path: Its file, which errors name.
    """
    settings = {RENAMED.get(name, name): value for name, value in config.items()}
    for name in settings.keys() - SETTINGS_OF.get(class_name or "", settings.keys()):
        if not name.startswith("pooling_mode_"):
            raise ModelError(
                f"{path} has the setting {name!r} of a {class_name}, which is unknown here.",
                hint="A newer version of its library may have it: run the model with that one.",
            )
    if class_name == "Transformer":
        for name, values in RUN.items():
            if name in settings and settings[name] not in values:
                raise explain_not_run(path, name, settings[name], values[0])
        dropped = {*RUN, *LATE, "unpad_inputs"}
        return {name: value for name, value in settings.items() if name not in dropped}
    if class_name in ("Dense", "Normalize"):
        source = settings.setdefault("module_input_name", TEXT)
        target = settings.pop("module_output_name", None) or source
        if source not in (TOKENS, TEXT):
            raise explain_not_run(path, "module_input_name", source, TEXT)
        if target != source:
            raise explain_not_run(path, "module_output_name", target, source)
    return settings


def explain_not_run(path: Path | str, name: str, value: Any, run: Any) -> ModelError:
    """The refusal of a setting `name` in a file, whose `value` would change vectors; `run` is run here."""
    return ModelError(
        f"{path} has {name} = {value!r}, which is not run here.",
        hint=f"Of {name}, {run!r} is: save the model so, or run it with sentence-transformers itself.",
    )


def read_router_config(place: Path) -> dict[str, Any]:
    """The config of a Router, with a route under the name of each side that its mappings send elsewhere."""
    # Asym, the module before Router, has its structure in config.json.
    config = read_object(place / "router_config.json") or read_object(place / "config.json")
    structure, parameters = config.get("structure"), config.get("parameters")
    if not isinstance(structure, dict) or not isinstance(parameters, dict):
        return config
    options = {name: value for name, value in parameters.items() if name != "route_mappings"}
    mappings = parameters.get("route_mappings") or {}
    if not mappings and "text" not in structure:
        return {**config, "parameters": options}
    try:
        return _follow_mappings(structure, mappings, options, config["types"])
    except (AttributeError, KeyError, SyntaxError, TypeError, ValueError) as error:
        raise explain_not_run(place, "route_mappings", mappings, {}) from error


def _follow_mappings(
    structure: Mapping[str, Any], mappings: Mapping[str, Any], options: Mapping[str, Any], types: Any
) -> dict[str, Any]:
    """The config of a Router of the routes alone that texts take."""
    # The keys are pairs of a task and a modality in Python's spelling; None stands for any.
    by_pair = {ast.literal_eval(key): str(route) for key, route in mappings.items()}
    routes = {side: _find_route(structure, by_pair, side) for side in (*SIDES, None)}
    default = routes.pop(None) or options.get("default_route") or next(iter(structure), "")
    names: dict[str, str] = {str(side): route for side, route in routes.items() if route}
    # A side's mapping may send its texts elsewhere than to the route of its name.
    alone = default if names.get(default, default) == default else f"{default}-alone"
    names[alone] = default
    taken = {side: structure[route] for side, route in names.items()}
    inside = {name for modules in taken.values() for name in modules}
    kept = {name: kind for name, kind in types.items() if name in inside}
    return {"types": kept, "structure": taken, "parameters": {**options, "default_route": alone}}


def _find_route(structure: Mapping[str, Any], by_pair: Mapping[Any, str], side: str | None) -> str | None:
    """The route of the texts of a side, as sentence-transformers 6 chooses it; None for the default."""
    pairs = ((side, "text"), (side, None), (None, "text"), (None, None))
    mapped = next((by_pair[pair] for pair in pairs if pair in by_pair), None)
    return mapped or next((name for name in (side, "text") if name in structure), None)
