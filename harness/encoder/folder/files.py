"""A model folder on disk: its JSON files, its sentence-transformers modules, and its weight files."""

from __future__ import annotations

import io
import json
import pickle
import shlex
import zipfile
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.errors import DamagedModelError, ModelError
from harness.core.files import require_size
from harness.encoder.folder.fields import check_fields

LARGEST = 64 * 2**20
"""The most bytes of a config or of a file of a tokenizer; the largest known has 35 MB."""


def read_json(path: Path) -> Any:
    """The content of a JSON file.

    Raises:
        ModelError: It cannot be read as JSON.
    """
    try:
        require_size(path, LARGEST)
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DamagedModelError(f"{path} cannot be read as JSON: {error}") from error
    except RecursionError:
        raise DamagedModelError(f"{path} is nested too deeply to be read as JSON.") from None


def read_object(path: Path) -> dict[str, Any]:
    """The content of a JSON file that holds an object; empty if there is no such file.

    Raises:
        ModelError: It cannot be read as a JSON object, or a field has a value of another type.
    """
    if not path.exists():
        return {}
    content = read_json(path)
    if not isinstance(content, dict):
        raise DamagedModelError(f"{path} holds no JSON object.")
    check_fields(path, content)
    return content


def list_module_weights(root: Path, *, sharded: bool = True) -> list[Path]:
    """The weight files of one module's own folder, in the order in which loading prefers them."""
    for stem, suffix in (("model", "safetensors"), ("pytorch_model", "bin")):
        single_file, index = root / f"{stem}.{suffix}", root / f"{stem}.{suffix}.index.json"
        if single_file.is_file():
            return [single_file]
        if sharded and index.is_file():
            return _list_shards(index)
    return []


@dataclass(frozen=True, kw_only=True)
class StoredTensor:
    """A tensor as its file describes it; in a safetensors file its bytes lie from `begin` to `end`."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    begin: int = 0
    end: int = 0


def read_tensor_headers(paths: Sequence[Path]) -> dict[str, StoredTensor] | None:
    """The tensors of weight files by name, from headers alone; None where a file must be loaded to know.

    Raises:
        ModelError: A safetensors file is truncated or corrupt.
    """
    tensors: dict[str, StoredTensor] = {}
    for path in paths:
        some = (
            _read_safetensors_entries(path) if path.suffix == ".safetensors" else _read_pickle_entries(path)
        )
        if some is None:
            return None
        tensors |= some
    return tensors or None


def _read_safetensors_entries(path: Path) -> dict[str, StoredTensor]:
    check_safetensors(path)
    header, start = _read_safetensors_header(path)
    tensors = {}
    for name, value in header.items():
        if name != "__metadata__":
            begin, end = (start + int(place) for place in value["data_offsets"])
            shape = tuple(int(size) for size in value["shape"])
            dtype = str(value["dtype"])
            tensors[name] = StoredTensor(path=path, dtype=dtype, shape=shape, begin=begin, end=end)
    return tensors


def _read_pickle_entries(path: Path) -> dict[str, StoredTensor] | None:
    """The tensors of a file of torch.save, from its pickle without the bytes of tensors."""
    try:
        with zipfile.ZipFile(path) as archive:
            _require_uncompressed(path, archive)
            (name,) = (name for name in archive.namelist() if name.endswith("/data.pkl"))
            content = _Unpickler(io.BytesIO(archive.read(name))).load()
    except ModelError:
        raise
    except Exception:
        # An older form, or a pickle that loading looks at more closely.
        return None
    if not isinstance(content, dict):
        return None
    require_flat(path, content)
    if not all(isinstance(one, _Outline) for one in content.values()):
        return None
    return {
        str(name): StoredTensor(path=path, dtype=one.dtype, shape=one.shape) for name, one in content.items()
    }


def _require_uncompressed(path: Path, archive: zipfile.ZipFile) -> None:
    """Refuse a file that unpacks to more than it has: torch.save compresses nothing."""
    unpacked = sum(member.file_size for member in archive.infolist())
    if unpacked > path.stat().st_size:
        raise ModelError(
            f"{path} unpacks to {unpacked:,} bytes, more than it has.",
            hint="torch.save writes no such file. Get the model as safetensors.",
        )


def format_command(code: str, *values: Any) -> str:
    r"""The command that runs Python code, in which each {} is a value: nothing in it ends its quotes.

    Values come from files that may want a user to paste something else.

    >>> print(format_command("print({})", "a'; ls"))
    python -c 'print("a\u0027; ls")'
    """
    texts = [json.dumps(value, ensure_ascii=False).replace("'", r"\u0027") for value in values]
    return f"python -c {shlex.quote(code.format(*texts))}"


FLATTEN = 'import torch; p = {}; torch.save(torch.load(p, map_location="cpu", weights_only=True)[{}], p)'


def require_flat(path: Path, content: Mapping[str, Any]) -> None:
    """Refuse the content of a pickle whose tensors lie in an object within it.

    Raises:
        ModelError: They do, as in a training checkpoint.
    """
    nested = [
        name
        for name, value in content.items()
        if isinstance(value, Mapping) and any(hasattr(part, "shape") for part in value.values())
    ]
    if nested:
        raise ModelError(
            f"{path} is a training checkpoint: its tensors are not at the top, but in {nested[0]!r}.",
            hint=f"Save the part with the tensors alone: `{format_command(FLATTEN, str(path), nested[0])}`.",
        )


@dataclass(frozen=True, kw_only=True)
class _Outline:
    """A tensor in a pickle, without its bytes."""

    dtype: str
    shape: tuple[int, ...]


STORAGES = {
    "DoubleStorage": "F64",
    "FloatStorage": "F32",
    "HalfStorage": "F16",
    "BFloat16Storage": "BF16",
    "LongStorage": "I64",
    "IntStorage": "I32",
    "ShortStorage": "I16",
    "CharStorage": "I8",
    "ByteStorage": "U8",
    "BoolStorage": "BOOL",
}
"""The storage classes of torch, with the types as safetensors spells them."""


# The one in Python: that in C fills a list as long as the largest number of a place that the pickle names.
class _Unpickler(pickle._Unpickler):
    """An unpickler that makes outlines of tensors and refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, _offset, size, *_: _Outline(dtype=storage, shape=tuple(size))
        if (module, name) == ("torch._utils", "_rebuild_parameter"):
            return lambda tensor, *_: tensor
        if module == "torch" and name in STORAGES:
            return STORAGES[name]
        raise pickle.UnpicklingError(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        # torch.save names a storage by ("storage", class, key, device, number of elements).
        return pid[1]


def read_safetensors_metadata(path: Path) -> dict[str, str] | None:
    """The metadata in the header of a safetensors file, None without any."""
    metadata: dict[str, str] | None = _read_safetensors_header(path)[0].get("__metadata__")
    return metadata


POINTER = b"version https://git-lfs.github.com/spec/"
"""The beginning of a file that git put in place of a large one."""


def check_present(path: Path) -> None:
    """Refuse a file that is empty, or that is a pointer of git-lfs in place of the file.

    Raises:
        ModelError: It is.
    """
    with path.open("rb") as file:
        start = file.read(len(POINTER))
    if start == POINTER:
        raise ModelError(
            f"{path} is a git-lfs pointer, not the file itself.",
            hint=f"Type `git lfs pull` in {path.parent}.",
        )
    if not start:
        raise DamagedModelError(f"{path} is empty.")


def check_weights(path: Path) -> None:
    """Refuse a weight file that has only a pointer in its place, or that is incomplete.

    Raises:
        ModelError: It is a git-lfs pointer, empty, truncated or corrupt.
    """
    check_present(path)
    if path.suffix == ".safetensors":
        check_safetensors(path)


def check_safetensors(path: Path) -> None:
    """Refuse a safetensors file without a readable header or with another size than the header's.

    Raises:
        ModelError: It is truncated or corrupt.
    """
    problem = _find_safetensors_problem(path)
    if problem:
        raise ModelError(
            f"{path} is not a whole safetensors file: {problem}.",
            hint="A copy or a download may have stopped early. Fetch it again.",
        )


def _list_shards(index: Path) -> list[Path]:
    mapping = read_object(index).get("weight_map")
    if not isinstance(mapping, dict) or not mapping:
        raise DamagedModelError(f"{index} names no weight file.")
    names = sorted({str(name) for name in mapping.values()})
    outside = [name for name in names if Path(name).is_absolute() or ".." in Path(name).parts]
    if outside:
        raise ModelError(f"{index} names a file outside of the model: {outside[0]}.")
    parts = [index.parent / name for name in names]
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise DamagedModelError(
            f"{index.parent} lacks {len(missing)} of its {len(parts)} weight files, {missing[0]} first."
        )
    return parts


def _read_safetensors_header(path: Path) -> tuple[dict[str, Any], int]:
    """The header of a whole safetensors file, and the place of its first tensor's bytes."""
    with path.open("rb") as file:
        # The format: 8 bytes with the length of the header, the header as JSON, the bytes of the tensors.
        length = int.from_bytes(file.read(8), "little")
        return json.loads(file.read(length)), 8 + length


LONGEST_HEADER = 16_000_000
"""The most bytes of a header, those of 100,000 tensors; the format allows six times as many."""


def _find_safetensors_problem(path: Path) -> str | None:
    # Not by the library's safe_open: it imports numpy, and a plan must do without.
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
    if length > LONGEST_HEADER:
        return f"its header says {length} bytes, more than {LONGEST_HEADER:,}"
    if size < 8 or length > size - 8:
        return f"its header says {length} bytes, the file has {size}"
    try:
        header, start = _read_safetensors_header(path)
        tensors = [value for name, value in header.items() if name != "__metadata__"]
        spans = sorted(tuple(map(int, t["data_offsets"])) for t in tensors)
        _ = [(str(t["dtype"]), [int(size) for size in t["shape"]]) for t in tensors]
        ends = [0, *(end for _, end in spans)]
        promised = start + ends[-1]
        if [begin for begin, _ in spans] != ends[:-1]:
            return "its tensors do not lie one after the other"
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError):
        return "its header cannot be read"
    if not tensors:
        return "it holds no tensor"
    return None if promised == size else f"it has {size} bytes, its header promises {promised}"
