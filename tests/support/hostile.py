"""What strangers may write into files: names that control a terminal, and hostile model folders."""

from __future__ import annotations

import json
import os
import pickle
import unicodedata
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save_file

EVIL = "\x1b[31mred\x1b]0;title\x07 \x9b2J \u202egnp.exe\u2066 \x7f"
"""A name that colours a terminal, renames its window, clears it and turns what follows."""

TURNING = {*map(chr, range(0x202A, 0x202F)), *map(chr, range(0x2066, 0x206A))}
"""The characters that Unicode's rules for right-to-left texts call embeddings, overrides and isolates."""


def obeyed(text: str) -> set[str]:
    """The characters of a text, ends of lines aside, that a terminal or a browser obeys."""
    signs = {*text.replace("\r\n", "").replace("\n", "")}
    return {c for c in signs if c in TURNING or unicodedata.category(c) in ("Cc", "Zl", "Zp")}


def escaped(text: str) -> str:
    """A text as it is shown."""
    lines = text.split("\r\n")
    return "\r\n".join(
        "".join(f"\\u{ord(c):04x}" if c != "\t" and obeyed(c) else c for c in line) for line in lines
    )


Spoil = Callable[[Path, Path], None]
"""Makes a whole model folder hostile; code that runs makes the second path."""

LAYER = "sentence_transformers.models."


class _Code:
    """What makes a file where it is unpickled by pickle itself."""

    def __init__(self, trace: Path) -> None:
        self._trace = str(trace)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self._trace,)


def _put(folder: Path, name: str, content: bytes | str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content)


def _text(name: str, content: bytes | str) -> Spoil:
    return lambda folder, _: _put(folder, name, content)


def _field(name: str, **fields: Any) -> Spoil:
    """Other fields of a JSON file."""

    def spoil(folder: Path, _: Path) -> None:
        path = folder / name
        content = json.loads(path.read_text()) if path.exists() else {}
        _put(folder, name, json.dumps(content | fields))

    return spoil


def _pickled(name: str) -> Spoil:
    """A pickle with code; weights take the place of the safe ones."""

    def spoil(folder: Path, trace: Path) -> None:
        if name == "pytorch_model.bin":
            (folder / "model.safetensors").unlink()
        _put(folder, name, pickle.dumps({"weight": _Code(trace)}))

    return spoil


def _torch_zip(folder: Path, members: Mapping[str, bytes | int]) -> None:
    """A file like those of torch.save, with members of some bytes or so many blanks, compressed."""
    (folder / "model.safetensors").unlink()
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in members.items():
            write_member(archive, f"archive/{name}", content)


def write_member(archive: zipfile.ZipFile, name: str, content: bytes | int) -> None:
    """Add a member of some bytes, or of so many blanks."""
    with archive.open(name, "w", force_zip64=True) as member:
        if isinstance(content, bytes):
            member.write(content)
        else:
            for _ in range(content >> 20):
                member.write(b" " * 2**20)


def _zipped(**members: bytes | int) -> Spoil:
    return lambda folder, _: _torch_zip(folder, {n.replace("_", "."): c for n, c in members.items()})


def _memo(folder: Path, _: Path) -> None:
    """A pickle that names place 2**31 of a list that its reader keeps."""
    _torch_zip(folder, {"data.pkl": b"\x80\x02}r\xff\xff\xff\x7f."})


def _code(folder: Path, trace: Path) -> None:
    _field("config.json", auto_map={"AutoModel": "modeling.Mine", "AutoConfig": "modeling.Mine"})(
        folder, trace
    )
    _put(folder, "modeling.py", f"import os\nos.mkdir({str(trace)!r})\n")


def _code_elsewhere(name: str) -> Spoil:
    def spoil(folder: Path, trace: Path) -> None:
        _put(folder, "modeling.py", f"import os\nos.mkdir({str(trace)!r})\n")
        _field(name, auto_map={"AutoTokenizer": ["modeling.Mine", None]})(folder, trace)

    return spoil


def _modules(*modules: tuple[str, str]) -> Spoil:
    listed = [{"idx": n, "name": str(n), "path": p, "type": t} for n, (t, p) in enumerate(modules)]
    return _text("modules.json", json.dumps(listed))


def _activation(folder: Path, trace: Path) -> None:
    _modules((f"{LAYER}Transformer", ""), (f"{LAYER}Pooling", "1_Pooling"), (f"{LAYER}Dense", "2_Dense"))(
        folder, trace
    )
    size = json.loads((folder / "config.json").read_text())["hidden_size"]
    _put(folder, "1_Pooling/config.json", json.dumps({"word_embedding_dimension": size}))
    dense = {"in_features": size, "out_features": 1, "bias": False, "activation_function": "os.system"}
    _put(folder, "2_Dense/config.json", json.dumps(dense))
    save_file({"linear.weight": np.zeros((1, size), np.float32)}, folder / "2_Dense" / "model.safetensors")


def _index(place: str) -> Spoil:
    """An index that says where weights are."""

    def spoil(folder: Path, _: Path) -> None:
        (folder / "model.safetensors").rename(folder.parent / "outside.safetensors")
        names = {"x": place.format(folder.parent)}
        _put(folder, "model.safetensors.index.json", json.dumps({"weight_map": names}))

    return spoil


def _header(header: bytes, body: bytes = b"", length: int | None = None) -> Spoil:
    size = len(header) if length is None else length
    return _text("model.safetensors", size.to_bytes(8, "little") + header + body)


def _tensors(**tensors: Any) -> Spoil:
    return _header(json.dumps(tensors).encode(), b"\0" * 16)


def _tensor(begin: int, end: int, *shape: int) -> dict[str, Any]:
    return {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}


def _sparse(name: str, size: int) -> Spoil:
    def spoil(folder: Path, _: Path) -> None:
        _put(folder, name, "")
        os.truncate(folder / name, size)

    return spoil


def _fifo(name: str) -> Spoil:
    def spoil(folder: Path, _: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return spoil


def _link(name: str, target: str) -> Spoil:
    def spoil(folder: Path, _: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)

    return spoil


def _tokenizer(change: Callable[[dict[str, Any]], None]) -> Spoil:
    def spoil(folder: Path, _: Path) -> None:
        content = json.loads((folder / "tokenizer.json").read_text())
        change(content)
        _put(folder, "tokenizer.json", json.dumps(content))

    return spoil


_REGEX = {"type": "Split", "pattern": {"Regex": "(a|a|a+)+$"}, "behavior": "Isolated", "invert": False}
_JINJA = "{% for i in range(10**12) %}{{ ''.__class__.__mro__[1].__subclasses__() }}{% endfor %}"

FOLDERS: dict[str, tuple[Spoil, str]] = {
    "code in weights": (_pickled("pytorch_model.bin"), "were refused"),
    "code in a training's arguments": (_pickled("training_args.bin"), ""),
    "code in an optimizer": (_pickled("optimizer.pt"), ""),
    "code in a pickle of a tokenizer": (_pickled("tokenizer.pkl"), ""),
    "code of its own": (_code, "names code of its own"),
    "tokenizer of its own": (_code_elsewhere("tokenizer_config.json"), "names code of its own"),
    "module of its own": (_modules(("modeling.Mine", "")), "needs code of its own"),
    "module of Python": (_modules(("os.system", "")), "needs code of its own"),
    "module above": (_modules((f"{LAYER}Transformer", "../../etc")), "outside"),
    "module at the root": (_modules((f"{LAYER}Transformer", "/etc")), "outside"),
    "activation of Python": (_activation, "wants to import 'os.system'"),
    "modules nested deep": (_text("modules.json", "[" * 100_000), "nested too deep"),
    "modules that are none": (_text("modules.json", '{"a": 1}'), "is not a list of modules"),
    "weights above": (_index("../outside.safetensors"), "names a file outside of the model"),
    "weights at the root": (_index("{}/outside.safetensors"), "names a file outside of the model"),
    "index of numbers": (
        _text("model.safetensors.index.json", '{"weight_map": {"a": 1e999}}'), "weight_map",
    ),
    "blanks for a pickle": (_zipped(data_pkl=2**29), "unpacks to"),
    "blanks for tensors": (_zipped(data_pkl=b"\x80\x02}.", data_0=2**29), "unpacks to"),
    "place 2**31 in a pickle": (_memo, "does not load"),
    "header beyond the file": (_header(b"{}", length=2**40), "its header says"),
    "huge header": (_header(b'{"a":' + b"[" * 60_000_000), "its header says"),
    "header nested deep": (_header(b'{"a":' * 50_000), "its header cannot be read"),
    "negative offsets": (_tensors(a=_tensor(-8, 8, 4), b=_tensor(8, 16, 2)), "not a whole safetensors file"),
    "overlapping offsets": (_tensors(a=_tensor(0, 16, 4), b=_tensor(8, 16, 2)), "not a whole safetensors"),
    "reversed offsets": (_tensors(a=_tensor(12, 4, 2), b=_tensor(0, 16, 4)), "not a whole safetensors file"),
    "shape of 2**60": (_tensors(a=_tensor(0, 16, 2**60)), "not a whole safetensors file"),
    "config of gigabytes": (_sparse("config.json", 2**33), "config.json"),
    "tokenizer of gigabytes": (_sparse("tokenizer.json", 2**33), "tokenizer.json"),
    "vocabulary of gigabytes": (_sparse("vocab.txt", 2**33), "vocab.txt"),
    "README of gigabytes": (_sparse("README.md", 2**33), ""),
    "weights of a sparse file": (_sparse("model.safetensors", 2**40), "not a whole safetensors file"),
    "config nested 3,000 deep": (
        _text("config.json", '{"model_type": "bert", "x": ' + "[" * 3000 + "]" * 3000 + "}"),
        "nested too deep",
    ),
    "tokenizer nested 3,000 deep": (
        _text("tokenizer.json", '{"x": ' + '{"a": ' * 3000 + "1" + "}" * 3001), "cannot be used",
    ),
    "config of NaN": (_text("config.json", '{"model_type": "bert", "hidden_size": NaN}'), "hidden_size"),
    "config of infinity": (
        _text("config.json", '{"model_type": "bert", "hidden_size": 1e999}'), "hidden_size",
    ),
    "config of a huge number": (_text("config.json", '{"a": ' + "9" * 10_000 + "}"), "config.json"),
    "config with a field twice": (_text("config.json", '{"model_type": "bert", "model_type": "os"}'), "os"),
    "config of 10**15 layers": (_field("config.json", num_hidden_layers=10**15), "num_hidden_layers"),
    "config of 10**15 numbers": (_field("config.json", hidden_size=10**15), "does not load"),
    "config in another alphabet": (_field("config.json", model_type="b\u0435rt"), "b\u0435rt"),
    "config of half a character": (_text("config.json", '{"model_type": "\\ud800"}'), "model_type"),
    "config that controls a terminal": (
        _text("config.json", json.dumps({"model_type": EVIL}, ensure_ascii=True)), "gnp.exe",
    ),
    "pipe for a config": (_fifo("config.json"), "config.json"),
    "pipe for a tokenizer": (_fifo("tokenizer.json"), "tokenizer.json"),
    "pipe for weights": (_fifo("model.safetensors"), "model.safetensors"),
    "pipe for modules": (_fifo("modules.json"), "modules.json"),
    "device for a config": (_link("config.json", "/dev/zero"), "config.json"),
    "device for a tokenizer": (_link("tokenizer.json", "/dev/zero"), "tokenizer.json"),
    "device for a vocabulary": (_link("vocab.txt", "/dev/zero"), "vocab.txt"),
    "link to a secret": (_link("config.json", "/etc/passwd"), "cannot be read as JSON"),
    "link to itself": (_link("config.json", "config.json"), "config.json"),
    "prompts of 100 MB": (
        _field("config_sentence_transformers.json", prompts={"query": "q" * 10**8}), "config_sentence",
    ),
    "template that never ends": (_field("tokenizer_config.json", chat_template=_JINJA), ""),
    "regular expression that never ends": (
        _tokenizer(lambda content: content.update(pre_tokenizer=_REGEX)), "",
    ),
    "Python nested deep": (_text("deep.py", "(" * 5000 + ")" * 5000), ""),
    "model.json of another": (_text("model.json", '{"schema": 1e9, "key": "../../x"}'), ""),
}  # fmt: skip
"""By kind: how a whole folder is made hostile, and a part of the error; "" where a plan may take it."""


def _pairs(folder: Path, name: str, content: bytes | str) -> None:
    """A folder of one task of pairs in a file of that name."""
    _put(folder, name, content)
    _put(folder, "harness.toml", f'[[task]]\ntype = "sts"\nfile = "{name}"\n')


def _line(text: str) -> str:
    return json.dumps({"text1": text, "text2": "a", "score": 1}) + "\n"


def _rows(name: str, content: bytes | str) -> Spoil:
    return lambda folder, _: _pairs(folder, name, content)


def _parquet(rows: int, text: str) -> Spoil:
    """A file of pairs whose rows are all alike, in groups of 50 million at most."""

    def spoil(folder: Path, _: Path) -> None:
        size = min(rows, 5 * 10**7)
        indices = pa.array(np.zeros(size, np.int8))
        column = pa.DictionaryArray.from_arrays(indices, pa.array([text]))
        table = pa.table({"text1": column})
        _pairs(folder, "pairs.parquet", "")
        with pq.ParquetWriter(folder / "pairs.parquet", table.schema, compression="zstd") as writer:
            for _ in range(rows // size):
                writer.write_table(table)

    return spoil


def _many(opening: str, closing: str, count: int) -> str:
    return opening * count + closing * count


_LAUGHS = "\n".join(
    ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12))]
)

DATA: dict[str, tuple[Spoil, str]] = {
    "line of 10 MB": (_rows("pairs.jsonl", _line("a" * 10**7)), "has 10,000,000 characters, and may have"),
    "line of 40 MB": (_rows("pairs.jsonl", _line("a" * 4 * 10**7)), "pairs.jsonl:1: the line is longer than"),
    "line of lists": (
        _rows("pairs.jsonl", '{"text1": [' + "[]," * 3 * 10**6 + "[]]}"), "pairs.jsonl:1: the field 'text1'",
    ),
    "line nested deep": (_rows("pairs.jsonl", '{"text1": ' + _many("[", "]", 10**5) + "}"), "not valid JSON"),
    "line of nothing": (_sparse("pairs.jsonl", 2**26), "the line is longer than"),
    "cell of 40 MB": (
        _rows("pairs.csv", 'text1,text2,score\n"' + ("a" * 99 + "\n") * 4 * 10**5 + '",b,1\n'),
        "larger than field limit",
    ),
    "quotation without an end": (
        _rows("pairs.csv", 'text1,text2,score\n"' + "a,b,1\n" * 10**6), "pairs.csv:2",
    ),
    "number of 10,000 digits": (
        _rows("pairs.jsonl", '{"text1": "a", "score": ' + "9" * 10_000 + "}"), "not valid",
    ),
    "score of NaN": (_rows("pairs.jsonl", '{"text1": "a", "text2": "b", "score": NaN}'), "not a finite"),
    "field twice": (_rows("pairs.jsonl", '{"text1": "a", "text1": "b"}'), "a field occurs twice"),
    "half a character": (_rows("pairs.jsonl", '{"text1": "\\ud800", "text2": "b", "score": 1}'), "surrogate"),
    "pipe for rows": (_fifo("pairs.jsonl"), "pairs.jsonl"),
    "device for rows": (_link("pairs.jsonl", "/dev/zero"), "pairs.jsonl"),
    "pipe for a description": (_fifo("harness.toml"), "harness.toml"),
    "description of gigabytes": (_sparse("harness.toml", 2**33), "harness.toml"),
    "description nested deep": (_text("harness.toml", "a = " + _many("[", "]", 10**5)), "nested too deep"),
    "description of another folder": (
        _text("harness.toml", '[[task]]\ntype = "sts"\nname = "../../x"\n'), "cannot be used",
    ),
    "description that controls a terminal": (
        _text("harness.toml", f'[[task]]\ntype = {json.dumps(EVIL)}\n'), "gnp.exe",
    ),
}  # fmt: skip
"""By kind: how a folder of one's own data is made hostile, and a part of the error."""

PARQUET: dict[str, tuple[Spoil, str]] = {
    "150 million rows": (_parquet(15 * 10**7, "a"), "it has 150,000,000 rows, and may have 100,000,000"),
    "many rows of 4 MB": (_parquet(1000, "a" * 4 * 10**6), "has 4,000,000 characters, and may have"),
    "cell of a gigabyte": (_parquet(1, "a" * 2 * 10**8), "unpacks to"),
}
"""By kind: how a file of one's own rows is made hostile, and a part of the error."""

CARDS: dict[str, tuple[Spoil, str]] = {
    "README of gigabytes": (_sparse("README.md", 2**33), "README.md"),
    "README of laughs": (_text("README.md", f"---\n{_LAUGHS}\n---\n"), ""),
    "README of laughs in its splits": (
        _text("README.md", f"---\n{_LAUGHS}\nconfigs:\n- config_name: x\n  data_files: *a11\n---\n"), "",
    ),
    "README nested deep": (_text("README.md", "---\na: " + _many("[", "]", 5000) + "\n---\n"), "README.md"),
    "README that makes objects": (
        _text("README.md", "---\na: !!python/object/apply:os.mkdir [/tmp/hostile-trace]\n---\n"), "README.md",
    ),
    "device for a README": (_link("README.md", "/dev/zero"), "README.md"),
    "pipe for a README": (_fifo("README.md"), "README.md"),
}  # fmt: skip
"""By kind: how the README of a data set is made hostile, and a part of the error; "" where it is harmless."""
