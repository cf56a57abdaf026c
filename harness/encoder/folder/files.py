"""The files of a model folder: JSON whose fields have types and ranges, and the headers of weights.

Fields are checked wherever a file is read, so that no later reader, here or in a library, meets another type.
Tensors are described without torch. Weights that are damaged, quantised or of a wrapped model are refused.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import math
import pickle
import re
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from harness.core.errors import DamagedModelError, ModelError, format_command
from harness.core.files import list_unfinished_downloads, require_size
from harness.core.terminal import shorten_names

SETTINGS = "config_sentence_transformers.json"
"""The file with the settings of a model of several modules."""

LARGEST = 64 * 2**20
"""The most bytes of a config or of a file of a tokenizer; the largest known has 35 MB."""

_CONTENTS: ContextVar[dict[Path, Any]] = ContextVar("_CONTENTS")
"""What JSON files hold, while they are read once."""


@contextmanager
def read_files_once() -> Iterator[None]:
    """While open, or in a function that it decorates, each JSON file is read once."""
    token = _CONTENTS.set(_CONTENTS.get({}))
    try:
        yield
    finally:
        _CONTENTS.reset(token)


def read_json(path: Path) -> Any:
    """The content of a JSON file, which callers leave as it is; ModelError if it cannot be read."""
    contents = _CONTENTS.get({})
    try:
        if path not in contents:
            require_size(path, LARGEST)
            contents[path] = json.loads(path.read_text(encoding="utf-8"))
        return contents[path]
    except (OSError, ValueError) as error:
        raise DamagedModelError(f"{path} cannot be read as JSON: {error}") from error
    except RecursionError:
        raise DamagedModelError(f"{path} is nested too deeply to be read as JSON.") from None


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file, empty without a file; ModelError if a field has another type."""
    if not path.exists():
        return {}
    content = read_json(path)
    if not isinstance(content, dict):
        raise DamagedModelError(f"{path} holds no JSON object.")
    typed = is_schema_file(path)
    return {name: _parse_field(path, name, value) if typed else value for name, value in content.items()}


def require_inside(path: Path, name: str, what: str) -> None:
    """Refuse a name in a file that leads out of the file's folder: ModelError. It is to be a `what`."""
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise ModelError(f"{path} names a {what} outside of the model: {name}.")


SCHEMA_FILES = (
    "config.json sentence_*_config.json wordembedding_config.json router_config.json tokenizer_config.json "
    f"special_tokens_map.json added_tokens.json adapter_config.json {SETTINGS} *.index.json"
)
"""The files whose fields have types."""


def is_schema_file(path: Path) -> bool:
    """Whether the fields of a file of this name have types."""
    return any(fnmatchcase(path.name, pattern) for pattern in SCHEMA_FILES.split())


@dataclass(frozen=True)
class _Type:
    """The values that a field may have, in words and as a check; null is the same as no field.

    With `as_float` its readers in the libraries take 32.0 for 32.
    """

    words: str
    allows: Callable[[Any], bool]
    as_float: bool = False


def _is_count(value: Any, least: int = 1, most: float = math.inf) -> bool:
    return type(value) is int and least <= value <= most


TEXT = _Type("a text", lambda value: isinstance(value, str))
FLAG = _Type("true or false", lambda value: isinstance(value, bool))
OBJECT = _Type("an object", lambda value: isinstance(value, dict))
COUNT = _Type("an integer of at least 1", _is_count)
SIZE = _Type(COUNT.words, _is_count, as_float=True)
# A library makes layer after layer, a billion of them for days.
LAYERS = _Type("an integer of at most 1,000", lambda value: _is_count(value, 0, 1000))
TOKEN = _Type("the number of a token", lambda value: _is_count(value, 0))
# sentence-transformers writes -1 for a backbone without a length, such as XLNet; transformers writes 1e30.
LIMIT = _Type("a number of tokens, at least 1 and whole", lambda n: n == -1 or _is_count(n), as_float=True)
LENGTH = _Type(LIMIT.words, lambda n: n == -1 or _is_count(n, most=2**31 - 1), as_float=True)
# transformers asks an empty one for its number without end.
WORD = _Type("a token", lambda value: value != "")
SIDE = _Type('"left" or "right"', lambda value: value in ("left", "right"))
LIST = _Type("a list", lambda value: isinstance(value, list))
TEXTS = _Type("a list of texts", lambda value: LIST.allows(value) and all(map(TEXT.allows, value)))
NAMED = _Type(
    "an object of texts",
    lambda value: isinstance(value, dict) and all(isinstance(v, str | None) for v in value.values()),
)
CODE = _Type("an object or a list", lambda value: isinstance(value, dict | list))
ABOVE_ZERO = _Type("a number above 0", lambda value: type(value) in (int, float) and 0 < value < math.inf)
SHARE = _Type("a number from 0 to 1", lambda value: type(value) in (int, float) and 0 <= value <= 1)
POSITIONS = _Type("an integer", lambda value: _is_count(value, -1))

FIELDS = {
    TEXT: "model_type tokenizer_class position_embedding_type activation_function default_prompt_name "
    "similarity_fn_name query_prefix document_prefix peft_type base_model_name_or_path revision "
    "adapter_config.json/bias adapter_config.json/task_type",
    TEXTS: "architectures adapter_config.json/modules_to_save",
    LIST: "skiplist_words",
    CODE: "auto_map",
    OBJECT: "text_config id2label quantization_config architecture model_args tokenizer_args config_args "
    "router_config.json/structure added_tokens_decoder rope_parameters rope_scaling",
    NAMED: f"{SETTINGS}/prompts router_config.json/types weight_map",
    COUNT: "vocab_size hidden_size in_features out_features heads truncate_dim query_length document_length "
    "original_max_position_embeddings",
    SIZE: "word_embedding_dimension",
    LENGTH: "max_seq_length",
    LIMIT: "model_max_length",
    LAYERS: "num_hidden_layers num_layers n_layers n_layer num_hidden_groups inner_group_num",
    TOKEN: "num_labels",
    POSITIONS: "max_position_embeddings n_positions",
    ABOVE_ZERO: "layer_norm_eps norm_eps rms_norm_eps layer_norm_epsilon rope_theta rotary_emb_base "
    "global_rope_theta local_rope_theta rotary_theta rotary_theta_local",
    SHARE: "hidden_dropout_prob attention_probs_dropout_prob",
    SIDE: "padding_side truncation_side",
    WORD: "unk_token",
    FLAG: "position_biased_input tie_word_embeddings is_decoder do_lower_case bias use_residual "
    "include_prompt do_query_expansion attend_to_expansion_tokens",
}
"""The fields by their type, whichever file has them if none is named; also the flags of a Pooling."""

NESTED = ("architecture", "rope_parameters", "rope_scaling", "full_attention", "sliding_attention")
"""The objects whose fields have types: our architecture, and the base of rotary positions of layers."""

_TYPES = {name: kind for kind, names in FIELDS.items() for name in names.split()}


def _parse_field(path: Path, name: str, value: Any) -> Any:
    """The value of a field, with 32.0 as 32; ModelError if it is of another type or out of range."""
    if name in NESTED and isinstance(value, dict):
        return {inner: _parse_field(path, inner, field) for inner, field in value.items()}
    kind = _TYPES.get(f"{path.name}/{name}") or _TYPES.get(name)
    kind = FLAG if name.startswith("pooling_mode_") else kind
    # Its fields are tokens.
    kind = TOKEN if path.name == "added_tokens.json" else kind
    if kind is None or value is None:
        return value
    if kind.as_float and isinstance(value, float) and value.is_integer():
        value = int(value)
    if not kind.allows(value):
        shown = repr(value) if len(repr(value)) <= 60 else repr(value)[:60] + "…"
        raise DamagedModelError(f"{path} has {name} = {shown}.", hint=f"It must be {kind.words}.")
    return value


FLOAT, OTHER, PACKED = "weights", "what counts, indexes or rotates", "packed weights"

_STORAGES = {"I64": "Long", "F64": "Double", "F32": "Float", "I32": "Int", "BF16": "BFloat16", "F16": "Half"}
_STORAGES |= {"I16": "Short", "I8": "Char", "U8": "Byte", "BOOL": "Bool"}
_KINDS = {
    **dict.fromkeys(("F64", "F32", "BF16", "F16"), FLOAT),
    **dict.fromkeys(("F8_E8M0", "F8_E4M3", "F8_E5M2", "I8", "U8"), PACKED),
}
_ORDER = "U64 I64 F64 C64 F32 U32 I32 BF16 F16 U16 I16 F8_E8M0 F8_E4M3 F8_E5M2 I8 U8 BOOL"
TYPES = {name: (_STORAGES.get(name), _KINDS.get(name, OTHER)) for name in _ORDER.split()}
"""The types of tensors in the order in which safetensors writes them, those of one type by name: the storage
that torch names in a pickle, and what such tensors are."""

WHOLE = "model.safetensors"
"""The weights of a module in one file."""

FORMS = (WHOLE, f"{WHOLE}.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
"""The files by which transformers finds weights, in the order in which it prefers them."""


def list_module_weights(root: Path, *, sharded: bool = True) -> list[Path]:
    """The weight files of one module's own folder that loading takes."""
    forms = [root / name for name in FORMS if sharded or not name.endswith(".json")]
    return next((list_parts(form) for form in forms if form.is_file()), [])


def list_parts(form: Path) -> list[Path]:
    """The weight files that a file of FORMS stands for; ModelError if one is missing."""
    if form.suffix != ".json":
        return [form]
    names = sorted({str(name) for name in (read_object(form).get("weight_map") or {}).values()})
    if not names:
        raise DamagedModelError(f"{form} names no weight file.")
    for name in names:
        require_inside(form, name, "file")
    parts = [form.parent / name for name in names]
    if missing := [part.name for part in parts if not part.is_file()]:
        lack = f"{len(missing)} of its {len(parts)} weight files, {missing[0]} first"
        raise DamagedModelError(f"{form.parent} lacks {lack}.")
    return parts


@dataclass(frozen=True)
class StoredTensor:
    """A tensor as its file describes it; in a safetensors file its bytes lie from `begin` to `end`."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int = 0
    end: int = 0


def read_tensor_headers(paths: Sequence[Path]) -> dict[str, StoredTensor] | None:
    """The tensors of weight files by name, from headers alone; None where a file must be loaded to know.

    It is a ModelError if a safetensors file is truncated or corrupt.
    """
    files = [read_safetensors(at)[0] if at.suffix == ".safetensors" else _read_pickle(at) for at in paths]
    tensors = {name: tensor for some in files for name, tensor in (some or {}).items()}
    return None if None in files else tensors or None


LONGEST_HEADER = 16_000_000
"""The most bytes of a header, those of 100,000 tensors; the format allows six times as many."""


def read_safetensors(path: Path) -> tuple[dict[str, StoredTensor], dict[str, str] | None]:
    """The tensors in the header of a safetensors file, and its metadata, if any.

    It is a ModelError if the file is truncated or corrupt: no readable header, or another size than its.
    """
    # Not by the library's safe_open, which imports numpy: a plan must do without. huggingface_hub's reader
    # compares no sizes.
    size, tensors = path.stat().st_size, {}
    with path.open("rb") as file:
        # The format: 8 bytes with the length of the header, the header as JSON, the bytes of the tensors.
        length = int.from_bytes(file.read(8), "little")
        most = min(LONGEST_HEADER, size - 8)
        if length > most:
            limit = f"more than {most:,}" if most == LONGEST_HEADER else f"the file has {size}"
            raise _explain_damage(path, f"its header says {length} bytes, {limit}")
        text = file.read(length)
    try:
        header = json.loads(text)
        metadata = header.pop("__metadata__", None)
        for name, value in header.items():
            begin, end = (8 + length + int(place) for place in value["data_offsets"])
            shape = tuple(map(int, value["shape"]))
            tensors[name] = StoredTensor(path, str(value["dtype"]), shape, begin, end)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError):
        raise _explain_damage(path, "its header cannot be read") from None
    if not tensors:
        raise _explain_damage(path, "it holds no tensor")
    spans = [(0, 8 + length), *sorted((tensor.begin, tensor.end) for tensor in tensors.values())]
    if any(begin != end for (_, end), (begin, _) in itertools.pairwise(spans)):
        raise _explain_damage(path, "its tensors do not lie one after the other")
    if spans[-1][1] != size:
        raise _explain_damage(path, f"it has {size} bytes, its header promises {spans[-1][1]}")
    return tensors, metadata


def _explain_damage(path: Path, problem: str) -> ModelError:
    hint = "A copy or a download may have stopped early. Fetch it again."
    return ModelError(f"{path} is not a whole safetensors file: {problem}.", hint=hint)


def _read_pickle(path: Path) -> dict[str, StoredTensor] | None:
    """The tensors of a file of torch.save, from its pickle without the bytes of tensors."""
    try:
        with zipfile.ZipFile(path) as archive:
            # torch.save compresses nothing.
            unpacked = sum(member.file_size for member in archive.infolist())
            if unpacked > path.stat().st_size:
                hint = "torch.save writes no such file. Get the model as safetensors."
                raise ModelError(f"{path} unpacks to {unpacked:,} bytes, more than it has.", hint=hint)
            (name,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
            content = _Unpickler(io.BytesIO(archive.read(name))).load()
    except ModelError:
        raise
    except Exception:
        # An older form, or a pickle that loading looks at more closely.
        return None
    if isinstance(content, dict):
        require_flat(path, content)
        if all(isinstance(one, StoredTensor) for one in content.values()):
            return {str(name): replace(tensor, path=path) for name, tensor in content.items()}
    return None


_UNPICKLED: Mapping[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): lambda dtype, _, size, *__: StoredTensor(
        Path(), dtype, tuple(size)
    ),
    ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
    **{("torch", f"{storage}Storage"): dtype for dtype, storage in _STORAGES.items()},
}
"""What stands for the names in a file of torch.save."""


# The one in Python: that in C fills a list as long as the largest number of a place that the pickle names.
class _Unpickler(pickle._Unpickler):
    """An unpickler that describes tensors, without their bytes, and refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _UNPICKLED:
            raise pickle.UnpicklingError(f"{module}.{name}")
        return _UNPICKLED[module, name]

    def persistent_load(self, pid: Any) -> Any:
        # torch.save names a storage by ("storage", class, key, device, number of elements).
        return pid[1]


FLATTEN = 'import torch; p = {}; torch.save(torch.load(p, map_location="cpu", weights_only=True)[{}], p)'


def require_flat(path: Path, content: Mapping[str, Any]) -> None:
    """Refuse the content of a pickle whose tensors lie in an object within it: ModelError."""
    for name, value in content.items():
        if isinstance(value, Mapping) and any(hasattr(part, "shape") for part in value.values()):
            raise ModelError(
                f"{path} is a training checkpoint: its tensors are not at the top, but in {name!r}.",
                hint=f"Save the part with the tensors alone: `{format_command(FLATTEN, str(path), name)}`.",
            )


def check_file(path: Path) -> None:
    """Refuse a file that is empty, a pointer of git-lfs, or truncated or corrupt safetensors: ModelError."""
    start = read_span(path, 0, 40)
    # What git puts in place of a large file.
    if start == b"version https://git-lfs.github.com/spec/":
        hint = f"Type `git lfs pull` in {path.parent}."
        raise ModelError(f"{path} is a git-lfs pointer, not the file itself.", hint=hint)
    if not start:
        raise DamagedModelError(f"{path} is empty.")
    if path.suffix == ".safetensors":
        read_safetensors(path)


_READ = re.compile(r"\.cache/.*|(\d+_\w+/)?[^/]+\.(json|model|safetensors|txt)")
"""The files of a download that loading may read."""


def check_downloads(folder: Path) -> None:
    """Refuse a folder in which a download has not finished, or a file of it is gone (ModelError)."""
    if lost := [*filter(_READ.fullmatch, list_unfinished_downloads(folder))]:
        what = f"by .cache the download of {lost[0]} stopped, or the file is gone"
        hint = "Type the same `hf download` again. If all is there, remove .cache in the folder."
        raise DamagedModelError(f"{folder} is not whole: {what}.", hint=hint)


BLOCK = 1 << 20
"""Bytes that are read at once."""


def read_span(path: Path, begin: int, end: int) -> bytes:
    """The bytes of a file from `begin` to `end`."""
    with path.open("rb") as file:
        file.seek(begin)
        return file.read(end - begin)


def have_other_numbers(first: StoredTensor, second: StoredTensor) -> bool:
    """Whether two tensors of one size differ in their first megabyte, as far as safetensors tell."""
    starts = [read_span(one.path, one.begin, min(one.end, one.begin + BLOCK)) for one in (first, second)]
    return (first.dtype, first.shape) == (second.dtype, second.shape) and starts[0] != starts[1]


def require_one_model(place: Path) -> None:
    """Refuse safetensors that are two models: two parts, or one file beside an index of parts.

    Of a folder with both, transformers loads the one file; saving in parts does not remove it.
    """
    single, index = (place / name for name in FORMS[:2])
    if not index.is_file():
        return
    try:
        headers = [read_safetensors(path)[0] for path in list_parts(index)]
    except ModelError:
        # Beside one file, an index that was left behind, without its parts.
        if single.is_file():
            return
        raise
    parts: dict[str, StoredTensor] = {}
    for name, tensor in (pair for tensors in headers for pair in tensors.items()):
        copy = parts.setdefault(name, tensor)
        if copy is not tensor and not single.is_file() and have_other_numbers(copy, tensor):
            what = f"{name} twice, with other numbers in {tensor.path.name}"
            hint = "Its parts are of two saves: fetch or write the folder again."
            raise ModelError(f"{place} holds {what}.", hint=hint)
    tensors = read_safetensors(single)[0] if single.is_file() else parts
    wrong = [name for name in tensors.keys() & parts.keys() if tensors[name].shape != parts[name].shape]
    # A buffer, a pooler or a head may be in one of them alone.
    alone = tensors.keys() ^ parts.keys()
    if wrong or len(alone) > len(tensors.keys() | parts.keys()) / 10:
        raise ModelError(
            f"{place} has two models, in {single.name} and in the parts of {index.name}: "
            f"{min(wrong or alone)} is not the same in both.",
            hint=f"{single.name} would be loaded. Remove the one that is not meant, in a copy of the folder.",
        )


PACKED_NAMES = (".qweight", ".qzeros", ".g_idx", ".weight_packed", ".SCB", ".absmax")
"""Endings of tensors of a quantised layer."""

WRAPPERS = ("module", "_orig_mod", "_forward_module", "_fsdp_wrapped_module")
"""Parts that a training library puts into the names of tensors."""

STRIP = (
    "from safetensors.torch import load_file as r, save_file as w; p = {}; "
    'w({{k.replace({}, "", 1): v for k, v in r(p).items()}}, p, {{"format": "pt"}})'
)


def require_plain(place: Path, tensors: Mapping[str, StoredTensor]) -> None:
    """Refuse the tensors in `place` if they are quantised, or have the names of a wrapped model."""
    for name, tensor in tensors.items():
        _, kind = TYPES.get(tensor.dtype, (None, PACKED))
        if kind == PACKED or name.endswith(PACKED_NAMES) or (kind == OTHER and name.endswith(".weight")):
            what = f"integer or quantised weights: {name} is {tensor.dtype}"
            hint = "Give the model that it was made of, with weights in float32, bfloat16 or float16."
            raise ModelError(f"{place} has {what}.", hint=hint)
    wrapped = [name for name in tensors if not {*WRAPPERS}.isdisjoint(name.split("."))]
    if not wrapped:
        return
    columns = zip(*(name.split(".") for name in tensors), strict=False)
    shared = [parts[0] for parts in itertools.takewhile(lambda parts: len(set(parts)) == 1, columns)]
    last = max((at for at, part in enumerate(shared) if part in WRAPPERS), default=-1)
    inner = next(part for part in wrapped[0].split(".") if part in WRAPPERS)
    part = ".".join([*(shared[: last + 1] or [inner]), ""])
    raise ModelError(
        f'{len(wrapped)} tensors have the names of a wrapped model, with "{part}": {wrapped[0]}.',
        hint=f"Strip it, e.g. `{format_command(STRIP, str(tensors[wrapped[0]].path), part)}`.",
    )


def hash_shards(parts: Sequence[Path]) -> str:
    """The SHA-256 of the one file that safetensors would write of the tensors in several parts."""
    tensors, order = read_tensor_headers(parts) or {}, {name: rank for rank, name in enumerate(TYPES)}
    names = sorted(tensors, key=lambda name: (order.get(tensors[name].dtype, len(order)), name.encode()))
    metadata, end = read_safetensors(parts[0])[1], 0
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    for name in names:
        tensor = tensors[name]
        begin, end = end, end + tensor.end - tensor.begin
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    # safetensors fills its header up with blanks to a multiple of 8 bytes.
    text += b" " * (-len(text) % 8)
    hasher = hashlib.sha256(len(text).to_bytes(8, "little") + text)
    for tensor in map(tensors.__getitem__, names):
        for begin in range(tensor.begin, tensor.end, BLOCK):
            hasher.update(read_span(tensor.path, begin, min(begin + BLOCK, tensor.end)))
    return hasher.hexdigest()


Shapes = Mapping[str, Sequence[int]]


def require_shapes(place: Path, tensors: Mapping[str, Any], wanted: Shapes) -> None:
    """Refuse tensors of a module that have other names or shapes than its config says.

    Args:
        place: The module's folder, for the message.
        tensors: Tensors, or the entries of a file's header, by name.
        wanted: The shape of each tensor by name.

    Raises:
        ModelError: A tensor is missing, left over, or of another shape.
    """
    present = {f"a tensor {name} of {tuple(tensor.shape)}" for name, tensor in tensors.items()}
    due = {f"a tensor {name} of {tuple(shape)}" for name, shape in wanted.items()}
    if present != due:
        others = (present - due, due - present)
        has, wants = (shorten_names(sorted(some), 3) or "no such tensor" for some in others)
        raise DamagedModelError(f"{place} has {has}, and its config.json wants {wants}.")
