"""Mutate model folders, data folders and command lines, and see that each ends in a sentence.

    python benchmarks/fuzz_inputs.py [--count 2000] [--seed 0] [--only models|data|arguments] [--case N]

A mutated model or data folder is either refused in one line before anything runs, or it is loaded and used:
three texts are encoded and the sanity gate is passed, or the task is scored. Vectors and scores must be those
of every other folder with the same key. A mutated command line ends with an exit code and no word of Python.
Everything runs in this process, on tiny models with random weights. Findings are grouped by kind, each with
the numbers of its first cases, which `--case` repeats; the exit code is 1 if there are any. A refusal that
names an error of Python is counted apart: it is one line, and says little.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import random
import re
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from fuzz_folders import BASES, DATA, lay_data, lay_models
from measuring import read_options  # which finds the modules of tests

from harness.cli import invoke
from harness.core.errors import HarnessError, UsageError
from harness.core.keys import digest

TEXTS = ("a dog sleeps on the couch", "rain fell on the fields " * 20, "日本 é 🎉 the cat")
SECONDS = 20
"""The time that a case may take."""

MEMORY = 8 * 2**30
"""The address space that cases may take beside what the libraries have: a huge size then ends in an error."""

SHARES = {"models": 0.6, "data": 0.2, "arguments": 0.2}
"""The share of each area in the cases."""

PYTHON = re.compile(r"\b(?:[A-Z]\w+Error|Traceback|NoneType|object has no attribute)\b")
"""Words of Python in a sentence for users."""

# Mutations of JSON

VALUES: tuple[Any, ...] = (
    *(None, True, False, "", "x", "32", "None", "mean", "../../x", "a" * 5000, "\u2028", "é"),
    *(0, 1, 2, -1, -(2**31), 2**31, 2**63, 10**30, 0.5, 32.0, -0.5, 1e30, 1e308, float("nan"), float("inf")),
    *([], [1], ["mean"], [[]], [None], {}, {"a": 1}, {"0": None}),
)
"""What a value becomes."""

ADDED: dict[str, dict[str, Any]] = {
    "config.json": {
        "quantization_config": {"quant_method": "gptq"},
        "auto_map": {"AutoModel": "modeling.Model"},
        "text_config": {"hidden_size": 32},
        "architectures": ["BertForMaskedLM"],
        "is_decoder": True,
        "is_causal": False,
        "add_cross_attention": True,
        "tie_word_embeddings": True,
        "rope_scaling": {"type": "yarn", "factor": 2.0},
        "rope_theta": 1.0,
        "sliding_window": 2,
        "position_embedding_type": "relative_key",
        "hidden_act": "relu2",
        "torch_dtype": "int8",
        "dtype": "float8_e4m3fn",
        "chunk_size_feed_forward": 3,
        "pruned_heads": {"0": [1]},
        "num_labels": -1,
        "output_hidden_states": True,
        "return_dict": False,
        "attn_implementation": "flash_attention_2",
        "model_type": "llama",
    },
    "tokenizer_config.json": {
        "add_prefix_space": True,
        "tokenizer_class": "LlamaTokenizer",
        "padding_side": "left",
        "truncation_side": "left",
        "model_max_length": 5,
        "chat_template": "{{ x",
        "added_tokens_decoder": {"0": {"content": "[PAD]"}},
        "auto_map": {"AutoTokenizer": ["x.T", None]},
        "do_lower_case": False,
        "add_eos_token": True,
        "pad_token": None,
        "unk_token": {"content": "x"},
    },
    "config_sentence_transformers.json": {
        "default_prompt_name": "nope",
        "prompts": {"query": None},
        "similarity_fn_name": "manhattan",
        "model_type": "SparseEncoder",
        "truncate_dim": 4,
    },
    "sentence_bert_config.json": {"max_seq_length": 7, "do_lower_case": True, "model_args": {"a": 1}},
}
"""Fields that other folders have, by the file."""

RAW: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda _: b"",
    "null": lambda _: b"null",
    "a list": lambda _: b"[]",
    "a text": lambda _: b'"x"',
    "a number": lambda _: b"1e999",
    "behind a byte order mark": lambda content: b"\xef\xbb\xbf" + content,
    "in UTF-16": lambda content: content.decode("utf-8", "replace").encode("utf-16"),
    "with a byte that is not UTF-8": lambda content: content[:20] + b"\xff" + content[20:],
    "nested too deep": lambda _: b"[" * 100_000,
    "a pointer of Git LFS": lambda _: (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n"
    ),
}
"""What a whole file becomes."""


@dataclass
class Draw:
    """The chance of one case, and what it did in words."""

    chance: random.Random
    words: list[str] = field(default_factory=list)

    def pick(self, values: Any) -> Any:
        """One of several values."""
        return self.chance.choice(list(values))


def mutate_value(draw: Draw, value: Any) -> Any:
    """Another value in place of one."""
    near: list[Any] = []
    if isinstance(value, bool):
        near = [not value]
    elif isinstance(value, int | float):
        near = [value + 1, value - 1, value * 2, -value, float(value), str(value), [value]]
    elif isinstance(value, str):
        near = [value.upper(), value + "x", value[:-1], [value], {"content": value}]
    return draw.pick(near) if near and draw.chance.random() < 0.4 else draw.pick(VALUES)


def walk_down(draw: Draw, content: Any) -> tuple[Any, Any, str]:
    """A container in a JSON document, a key in it, and the path in words."""
    path, holder = "", content
    while True:
        key = draw.pick(holder) if isinstance(holder, dict) else draw.chance.randrange(len(holder))
        path += f"[{key!r}]"
        inner = holder[key]
        if not (isinstance(inner, dict | list) and inner) or draw.chance.random() < 0.25:
            return holder, key, path
        holder = inner


def mutate_json(draw: Draw, name: str, raw: bytes) -> bytes:
    """A JSON file after one change."""
    content = json.loads(raw)
    added = ADDED.get(name)
    if isinstance(content, dict) and added and draw.chance.random() < 0.2:
        key = draw.pick(added)
        content[key] = added[key]
        draw.words.append(f"{name}: {key} = {added[key]!r}")
        return json.dumps(content).encode()
    if not content:
        return RAW["null"](raw)
    holder, key, path = walk_down(draw, content)
    kind = draw.chance.choices(("replaced", "dropped", "renamed", "doubled"), (6, 2, 1, 1))[0]
    if kind == "dropped":
        del holder[key]
    elif kind == "replaced":
        holder[key] = mutate_value(draw, holder[key])
        path += f" = {str(holder[key])[:60]!r}"
    elif isinstance(holder, list):
        holder.insert(key, holder[key])
        kind = "doubled"
    elif kind == "renamed":
        renamed = draw.pick([f"{key}_x", key.upper(), f"model.{key}"])
        holder[renamed] = holder.pop(key)
        path += f" → {renamed!r}"
    else:
        # The same key twice in one object: readers may take the first or the last.
        marked = json.dumps({**holder, "\0again": mutate_value(draw, holder[key])})
        whole = json.dumps(content).replace(json.dumps(holder), marked, 1)
        draw.words.append(f"{name}: {path} twice")
        return whole.replace(json.dumps("\0again"), json.dumps(key)).encode()
    draw.words.append(f"{name}: {path} {kind}"[:300])
    return json.dumps(content).encode()


def mutate_header(draw: Draw, name: str, raw: bytes) -> bytes:
    """A safetensors file whose header has one change, with the right length before it."""
    length = struct.unpack("<Q", raw[:8])[0]
    header = mutate_json(draw, name, raw[8 : 8 + length])
    return struct.pack("<Q", len(header)) + header + raw[8 + length :]


def mutate_tensors(draw: Draw, name: str, raw: bytes) -> bytes:
    """A valid safetensors file with other tensors."""
    import numpy as np
    from safetensors.numpy import load, save

    tensors = load(raw)
    chosen = draw.pick(sorted(tensors))
    kinds = ("dropped", "renamed", "prefixed", "doubled", "turned", "narrowed", "integer", "scaled", "added")
    kind = draw.pick(kinds)
    if kind == "dropped":
        del tensors[chosen]
    elif kind == "renamed":
        tensors[chosen + "_x"] = tensors.pop(chosen)
    elif kind == "prefixed":
        prefix = draw.pick(("module.", "model.", "encoder.", "_orig_mod."))
        tensors = {prefix + key: value for key, value in tensors.items()}
    elif kind == "doubled":
        tensors["model." + chosen] = tensors[chosen]
    elif kind == "turned":
        tensors[chosen] = np.ascontiguousarray(tensors[chosen].T)
    elif kind == "narrowed":
        tensors[chosen] = np.ascontiguousarray(tensors[chosen][..., :-1])
    elif kind == "integer":
        tensors[chosen] = tensors[chosen].astype(np.int64)
    elif kind == "scaled":
        tensors[chosen] = tensors[chosen] * tensors[chosen].dtype.type(1e6)
    else:
        tensors["extra.weight"] = np.zeros(3, np.float32)
    draw.words.append(f"{name}: {chosen} {kind}")
    return bytes(save(tensors, metadata={"format": "pt"}))


def mutate_lines(draw: Draw, name: str, raw: bytes) -> bytes:
    """A file of lines after one change: of a line, or of a field in it."""
    lines = raw.split(b"\n")
    place = draw.chance.randrange(len(lines))
    kind = draw.pick(("dropped", "doubled", "emptied", "cut", "changed", "changed", "quoted", "NUL"))
    if kind == "dropped":
        del lines[place]
    elif kind == "doubled":
        lines.insert(place, lines[place])
    elif kind == "changed" and lines[place].startswith(b"{"):
        return b"\n".join([*lines[:place], mutate_json(draw, name, lines[place]), *lines[place + 1 :]])
    elif kind == "changed":
        parts = re.split(rb"([,\t])", lines[place])
        other = str(draw.pick(VALUES)).encode("utf-8", "replace")
        parts[draw.chance.randrange(len(parts))] = other
        lines[place] = b"".join(parts)
    else:
        lines[place] = {
            "emptied": b"",
            "cut": lines[place][: len(lines[place]) // 2],
            "quoted": b'"' + lines[place],
            "NUL": lines[place] + b"\0",
        }[kind]
    draw.words.append(f"{name}: line {place + 1} {kind}: {lines[min(place, len(lines) - 1)][:60]!r}")
    return b"\n".join(lines)


def mutate_table(draw: Draw, name: str, raw: bytes) -> bytes:
    """A Parquet file with another column."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(raw))
    chosen = draw.pick(table.column_names)
    values = table[chosen].to_pylist()
    kind = draw.pick(("dropped", "renamed", "null", "all null", "other", "listed"))
    if kind == "dropped":
        table = table.drop_columns([chosen])
    elif kind == "renamed":
        table = table.rename_columns([c + "_x" if c == chosen else c for c in table.column_names])
    else:
        other = draw.pick((0, -1, 0.5, float("nan"), "x", "", True))
        changed = {
            "null": [None, *values[1:]],
            "all null": [None] * len(values),
            "other": [other] * len(values),
            "listed": [[value] for value in values],
        }[kind]
        kind += f" {other!r}" if kind == "other" else ""
        table = table.set_column(table.column_names.index(chosen), chosen, pa.array(changed))
    draw.words.append(f"{name}: column {chosen} {kind}")
    pq.write_table(table, sink := io.BytesIO())
    return sink.getvalue()


def mutate_folder(draw: Draw, folder: Path) -> None:
    """Change one file of a folder, or two."""
    for _ in range(draw.chance.choices((1, 2), (8, 2))[0]):
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        if not files:
            return
        path = draw.chance.choices(
            files, [1 if path.name in ("tokenizer.json", "vocab.txt") else 3 for path in files]
        )[0]
        name, raw = path.relative_to(folder).as_posix(), path.read_bytes()
        if draw.chance.random() < 0.15:
            _mutate_file(draw, path, name, raw)
            continue
        try:
            path.write_bytes(_choose_mutation(draw, path)(draw, name, raw))
        except Exception:  # a second change of a file that the first has damaged
            path.write_bytes(RAW["emptied"](raw))


def _choose_mutation(draw: Draw, path: Path) -> Callable[[Draw, str, bytes], bytes]:
    if path.suffix == ".safetensors":
        return mutate_header if draw.chance.random() < 0.5 else mutate_tensors
    return {".json": mutate_json, ".parquet": mutate_table}.get(path.suffix, mutate_lines)


def _mutate_file(draw: Draw, path: Path, name: str, raw: bytes) -> None:
    """Change a file as a whole."""
    kind = draw.pick((*RAW, "removed", "a folder", "cut"))
    draw.words.append(f"{name}: {kind}")
    if kind in ("removed", "a folder"):
        path.unlink()
        if kind == "a folder":
            path.mkdir()
    elif kind == "cut":
        path.write_bytes(raw[: draw.chance.randrange(len(raw) + 1)])
    else:
        path.write_bytes(RAW[kind](raw))


# What a case must end in


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A case that ended in something else than a sentence or a result."""

    area: str
    case: int
    kind: str
    words: str
    detail: str = ""


class Found(Exception):
    """The end of a case by a finding."""

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(kind)
        self.kind, self.detail = kind, detail


def explain(when: str, error: BaseException) -> Found:
    """The finding of an error: its type, the place in our code, and its first line without names."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "site-packages" not in f.filename]
    ours = [f for f in frames if re.search(r"/(harness|suites|finetune|leaderboard)/", f.filename)]
    place = f"{'/'.join(Path(ours[-1].filename).parts[-2:])}: {ours[-1].name}" if ours else "no code of ours"
    line = (str(error).strip().splitlines() or [""])[0]
    general = re.sub(r"\S*/\S+|'[^']*'|\"[^\"]*\"|-?\d[\d.,e+]*", "…", line)[:90]
    return Found(f"{when}: {type(error).__name__} in {place}: {general}", line[:300])


def check_refusal(error: HarnessError, refusals: dict[str, int]) -> None:
    """See that a refusal is one line with exit code 2."""
    if "\n" in error.message.strip():
        raise explain("refused in several lines", error)
    if error.exit_code != 2:
        raise explain(f"refused with exit code {error.exit_code}", error)
    refusals["vague" if PYTHON.search(error.message) else "plain"] += 1


@dataclass
class Fuzz:
    """Folders to mutate, what was seen of each key, and the counts of outcomes."""

    home: Path
    bases: tuple[str, ...] = tuple(BASES)
    seen: dict[str, Any] = field(default_factory=dict)
    refusals: dict[str, int] = field(default_factory=lambda: {"plain": 0, "vague": 0})
    accepted: int = 0

    def __post_init__(self) -> None:
        lay_models(self.home / "models", self.bases)
        lay_data(self.home / "data")
        # The key of the untouched folders first: a mutated one with the same key must give the same.
        for name in self.bases:
            self._use_model(self.home / "models" / name, {})
        for name in DATA:
            self._use_data(self.home / "data" / name)
        for arguments in SET_UP:
            assert invoke([part.format(home=self.home) for part in arguments]) == 0, arguments

    def try_model(self, draw: Draw, folder: Path) -> None:
        """Mutate a model folder, or the settings of its evaluation."""
        name = draw.pick(self.bases)
        shutil.copytree(self.home / "models" / name, folder)
        draw.words.append(name)
        settings = draw.pick(SETTINGS) if draw.chance.random() < 0.15 else {}
        if settings:
            draw.words.append(str(settings))
        if not settings or draw.chance.random() < 0.5:
            mutate_folder(draw, folder)
        self._use_model(folder, settings)

    def _use_model(self, folder: Path, settings: dict[str, Any]) -> None:
        from harness.core.encoding import Settings
        from harness.plan.models import ModelOptions, resolve_model

        try:
            model = resolve_model(str(folder), Settings(**settings), ModelOptions(offline=True, gate=True))
        except HarnessError as error:
            check_refusal(error, self.refusals)
            return
        except Exception as error:
            raise explain("the dry run raises", error) from error
        try:
            vectors = encode_texts(model)
            require_gate(model)
        except Exception as error:
            raise explain("accepted, and not loaded or encoded", error) from error
        self.accepted += 1
        for key, values in vectors.items():
            self._compare(key, values, "vectors")

    def _compare(self, key: str, values: Any, what: str) -> None:
        import numpy as np

        former = self.seen.setdefault(key, values)
        if np.shape(former) != np.shape(values) or not np.allclose(former, values, atol=1e-4, equal_nan=True):
            raise Found(f"other {what} with the same key", f"{np.shape(former)}, {np.shape(values)}")

    def try_data(self, draw: Draw, folder: Path) -> None:
        """Mutate a data folder."""
        name = draw.pick(DATA)
        shutil.copytree(self.home / "data" / name, folder / name)
        draw.words.append(name)
        mutate_folder(draw, folder / name)
        self._use_data(folder / name)

    def _use_data(self, folder: Path) -> None:
        from harness.data.locate import DataSettings

        settings = DataSettings(offline=True, cache=self.home / "cache")
        check, use = (
            (_check_training, _load_training) if folder.name == "training" else (_check_tasks, _score_tasks)
        )
        try:
            checked = check(folder, settings)
        except HarnessError as error:
            # Of data the exit code is that of failed work, as a run with other tasks goes on.
            check_refusal(UsageError(error.message), self.refusals)
            return
        except Exception as error:
            raise explain("the check of data raises", error) from error
        try:
            outcomes = use(checked, settings)
        except Exception as error:
            raise explain("accepted, and not scored or read", error) from error
        self.accepted += 1
        for key, outcome in outcomes.items():
            self._compare(key, outcome, "scores")

    def try_arguments(self, draw: Draw, folder: Path) -> None:
        """Mutate a command line, which is not carried out where it would evaluate or train."""
        from harness.driver import progress

        folder.mkdir()
        arguments = [*draw.pick(COMMANDS)]
        for _ in range(draw.chance.choices((1, 2, 3), (6, 3, 1))[0]):
            mutate_arguments(draw, arguments)
        arguments = [part.replace("{home}", str(self.home)) for part in arguments]
        encoding = draw.pick(("utf-8", "utf-8", "ascii", "latin-1"))
        draw.words.append(f"{encoding}: {arguments}"[:400])
        streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2)]
        refuse = mock.Mock(side_effect=UsageError("It would be run."))
        with (
            contextlib.chdir(folder),
            contextlib.redirect_stdout(streams[0]),
            contextlib.redirect_stderr(streams[1]),
            mock.patch.multiple(progress, follow_run=refuse, follow_training=refuse),
        ):
            try:
                code = invoke(arguments)
            except BaseException as error:
                if isinstance(error, Found | TimeoutError):
                    raise
                raise explain("the command raises", error) from error
        for stream in streams:
            stream.flush()
        out, told = (stream.buffer.getvalue().decode("utf-8", "replace") for stream in streams)  # type: ignore[attr-defined]
        if code not in (0, 1, 2, 3):
            raise Found(f"exit code {code}", told)
        if code and not (out + told).strip():
            raise Found(f"exit code {code} without a word")
        if words := PYTHON.search(told):
            raise Found(f"Python's word {words[0]} in a message", told[-300:])
        self.accepted += code == 0
        self.refusals["plain"] += code == 2


def require_gate(model: Any) -> None:
    """See that a model passes the sanity gate of a run.

    Raises:
        ModelError: It does not.
    """
    from harness.encoder.sanity import load_checked

    load_checked(model.artifact, model.encoding, gate=True, twice=False)


def encode_texts(model: Any) -> dict[str, Any]:
    """The vectors of the texts on each side, by the key that the cache has for them."""
    from harness.core.types import SIDES
    from harness.encoder.loading import load_any
    from harness.storage.vectors import EmbeddingCache, round_to_half

    encoding, artifact = model.encoding, model.artifact
    encoder: Any = load_any(artifact, encoding, device="cpu")
    if encoding.context is not None:
        encoder.set_context(None)
    vectors = {}
    for role in SIDES:
        prompt = dict(encoding.prompts).get(role) or dict(encoding.prompts).get(encoding.default_prompt, "")
        space = EmbeddingCache.build_space_identity(artifact, encoding, prompt=prompt, role=role)
        rows = encoder.encode(TEXTS, prompt=prompt, role=role)
        array = getattr(rows, "vectors", rows)
        if encoding.vectors == "float16":
            round_to_half(array)
        vectors[digest({**space, "late": encoding.late_interaction is not None})] = array
    return vectors


def _check_tasks(folder: Path, settings: Any) -> Any:
    from harness.core.types import SuiteOptions
    from harness.data.locate import Finding as Checked
    from harness.plan.catalog import open_suites

    (suite,) = open_suites((f"local:{folder}",), SuiteOptions(cache=settings.cache))
    for task in suite.tasks:
        for fault in Checked.check_task_data(task, settings).faults:
            raise UsageError(fault)
    return suite


def _score_tasks(suite: Any, _settings: Any) -> dict[str, Any]:
    """The score of each task by its key."""
    from fakes import Bags

    return {
        digest([task.data.content, task.type, task.metric, task.splits]): (
            task.source.evaluate(task, Bags(), seed=42, data=None).main_score
        )
        for task in suite.tasks
    }


def _check_training(folder: Path, settings: Any) -> Any:
    from harness.data.training.loading import TrainingSize
    from harness.data.training.sets import locate_user_training

    located = locate_user_training(str(folder / "triplets.jsonl"), settings)
    TrainingSize.measure_training(located, settings.cache)
    return located


def _load_training(located: Any, settings: Any) -> dict[str, Any]:
    from harness.data.training.loading import load_training

    return {digest(located.data.identity): len(load_training(located, cache=settings.cache))}


# Settings and command lines

SETTINGS: tuple[dict[str, Any], ...] = (
    *({"pooling": pooling} for pooling in ("cls", "mean", "max", "lasttoken", "weightedmean", "attention")),
    *({"max_length": length} for length in (1, 2, 3, 8, 64, 65, 512, 2**31 - 1, 10**12, 0, -1)),
    *({"dtype": dtype} for dtype in ("bfloat16", "float32")),
    *({"normalize": flag} for flag in (True, False)),
    *({"similarity": name} for name in ("dot", "euclidean", "manhattan", "maxsim")),
    *({"vectors": "float16"}, {"query_length": 1}, {"query_length": 10**12}, {"prompts": {"query": "é: "}}),
)
"""Settings of an evaluation, right and wrong ones."""

MODEL, SUITE, RESULTS = "{home}/models/mean", "local:{home}/data/pairs", ("--results", "{home}/results")
EVALUATION = ("--model", MODEL, "--suite", SUITE, *RESULTS, "--offline")
NUMBERS = (
    "--max-length",
    "16",
    "--threads",
    "1",
    "--batch-tokens",
    "64",
    "--seed",
    "3",
    "--keep-vectors",
    "2",
)

SET_UP: tuple[tuple[str, ...], ...] = (
    ("baseline", "set", "last", "--model", MODEL, "--suite", SUITE, *RESULTS, "--offline"),
    ("baseline", "export", "last", "{home}/last.zip", *RESULTS),
    ("remote", "push", "file://{home}/shared", *RESULTS),
)
"""What lays a result, a baseline and a copy of them, which other commands show."""

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("run", *EVALUATION, "--dry-run"),
    ("run", *EVALUATION, "--dry-run", "--json", *NUMBERS, "--prompt", "query=q: ", "--dtype", "fp32"),
    ("run", *EVALUATION, "--dry-run", "--pooling", "cls", "--vectors", "float16", "--tasks", "alike"),
    (
        "run",
        "--model",
        "bm25:k1=0.9",
        "--suite",
        "local:{home}/data/beir",
        *RESULTS,
        "--offline",
        "--dry-run",
    ),
    ("run", *EVALUATION, "--dry-run", "--devices", "cpu", "--executor", "slurm:gpus=0,minutes=9"),
    (
        *(
            "train",
            "--model",
            MODEL,
            "--recipe",
            "simcse",
            "--set",
            "batch_size=2",
            "--set",
            "epochs=1",
            *RESULTS,
        ),
        *("--train-data", "{home}/data/training/triplets.jsonl", "--dry-run", "--offline"),
    ),
    ("list", "models"),
    ("list", "tasks", "--match", "STS12"),
    ("list", "records", *RESULTS, "--json"),
    ("list", "suites"),
    ("show", "mean", *RESULTS, "--task", "alike"),
    ("show", "mean", "--suite", SUITE, *RESULTS, "--json"),
    ("compare", "mean", "minilm", *RESULTS, "--json"),
    ("check", "--candidate", MODEL, "--baseline", "last", *RESULTS, "--offline", "--json"),
    ("check", "--candidate", MODEL, "--baseline", "{home}/last.zip", "--suite", SUITE, *RESULTS, "--offline"),
    ("baseline", "list", *RESULTS),
    ("baseline", "show", "last", *RESULTS, "--json"),
    ("baseline", "set", "next", "--model", MODEL, "--suite", SUITE, *RESULTS, "--offline"),
    ("baseline", "export", "last", "last.zip", *RESULTS),
    ("watch", "--list", *RESULTS),
    ("watch", "mean", "--show", *RESULTS, "--json"),
    ("proxy", "list", *RESULTS),
    ("proxy", "show", "mteb", *RESULTS),
    ("models", "list", *RESULTS, "--json"),
    ("models", "show", "mean", *RESULTS),
    ("models", "remove", "mean", *RESULTS),
    ("models", "export", "mean", "out", *RESULTS),
    ("data", "list", "--suite", SUITE, "--json"),
    ("data", "check", "--suite", SUITE),
    ("data", "check", "{home}/data/beir", "--json"),
    ("data", "check", "--train-data", "{home}/data/training/triplets.jsonl"),
    ("data", "verify", "--data", "{home}/data", "--json"),
    ("explain", "--model", "{home}/models/colbert", "--query", "a dog", "--document", "a cat", "--offline"),
    ("status", *RESULTS, "--all", "--json"),
    ("audit", *RESULTS, "--json"),
    ("cache", "size", "--cache", "{home}/cache", "--json"),
    ("papers", "minilm", "--suite", "beir", *RESULTS),
    ("export", "/suites/beir", "--format", "csv", *RESULTS),
    ("import", "mteb-results", "{home}/data", *RESULTS),
    ("remote", "pull", "file://{home}/shared", *RESULTS, "--dry-run", "--json"),
    ("remote", "push", "file://{home}/shared", *RESULTS, "--dry-run"),
)
"""Command lines that are right, or nearly so; none changes what lies outside of its folder."""

ARGUMENTS = (
    *(
        "",
        " ",
        "-",
        "--",
        "=",
        ",",
        ":",
        "x",
        "0",
        "-1",
        "1.5",
        "nan",
        "inf",
        "1e400",
        "9" * 30,
        "true",
        "None",
    ),
    *(
        "é",
        "数据",
        "🎉",
        "a\nb",
        "\u2028",
        "n\udcffx",
        "[red]x[/red]",
        "{{}}",
        "%s",
        "a" * 5000,
        "a/b",
        "a/b@c",
    ),
    *(
        ".",
        "/",
        "~",
        "~nobody/x",
        "{home}",
        "{home}/models/mean/config.json",
        "{home}/none",
        "/proc/self/mem",
    ),
    *(
        "local:",
        "code:",
        "local:{home}/none",
        "proxy:",
        "beir:x",
        "mteb:a,b",
        "file://",
        "s3:",
        "--json",
        "--help",
    ),
)
"""What is typed in place of an argument."""


def mutate_arguments(draw: Draw, arguments: list[str]) -> None:
    """Change a command line in one place, if anything of it is left."""
    if not arguments:
        return
    # Mostly of a value: click alone refuses most others.
    values = [n for n, part in enumerate(arguments) if n > 1 and not part.startswith("--")]
    place = (
        draw.pick(values) if values and draw.chance.random() < 0.8 else draw.chance.randrange(len(arguments))
    )
    kind = draw.chance.choices(("replaced", "dropped", "doubled", "behind", "swapped"), (8, 1, 1, 4, 1))[0]
    other = draw.pick(ARGUMENTS)
    if kind == "replaced":
        arguments[place] = other
    elif kind == "dropped":
        del arguments[place]
    elif kind == "doubled":
        arguments.insert(place, arguments[place])
    elif kind == "behind":
        arguments[place] += draw.pick((",", "=", ":", "@", "/", *ARGUMENTS))
    else:
        further = draw.chance.randrange(len(arguments))
        arguments[place], arguments[further] = arguments[further], arguments[place]


# The cases


def run_case(fuzz: Fuzz, seed: int, case: int, only: str = "") -> Finding | None:
    """Carry out one case; its number and the seed say all of it."""
    draw = Draw(random.Random(f"{seed}-{case}"))
    area = draw.chance.choices([*SHARES], [*SHARES.values()])[0]
    area = only or area
    folder = fuzz.home / "case"
    shutil.rmtree(folder, ignore_errors=True)
    attempts = {"models": fuzz.try_model, "data": fuzz.try_data, "arguments": fuzz.try_arguments}
    try:
        with _limit_time():
            attempts[area](draw, folder)
    except Found as found:
        return Finding(
            area=area, case=case, kind=found.kind, words="; ".join(draw.words), detail=found.detail
        )
    except TimeoutError:
        return Finding(area=area, case=case, kind=f"takes more than {SECONDS} s", words="; ".join(draw.words))
    return None


@contextlib.contextmanager
def _limit_time() -> Iterator[None]:
    def end(*_: object) -> None:
        raise TimeoutError

    former = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


@contextlib.contextmanager
def _hide_libraries() -> Iterator[None]:
    """Without log lines and warnings of the libraries, and without their bars."""
    logging.disable(logging.CRITICAL)
    try:
        hidden = io.StringIO()
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stderr(hidden),
            contextlib.redirect_stdout(hidden),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def run_cases(
    home: Path,
    count: int,
    *,
    seed: int = 0,
    only: str = "",
    case: int = -1,
    bases: tuple[str, ...] = tuple(BASES),
) -> tuple[list[Finding], Fuzz]:
    """The findings of some cases.

    Args:
        home: An empty folder.
        count: The number of cases.
        seed: The seed of them all.
        only: The one area that is tried; empty for all.
        case: The one case that is tried; -1 for all.
        bases: The model folders that are mutated.
    """
    with _hide_libraries():
        fuzz = Fuzz(home, bases)
        cases = range(count) if case < 0 else (case,)
        findings = [finding for n in cases if (finding := run_case(fuzz, seed, n, only))]
    return findings, fuzz


def print_findings(findings: list[Finding]) -> None:
    """Print the findings by kind, the most frequent first, with the first cases of each."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.area, finding.kind), []).append(finding)
    for (area, kind), group in sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1]))):
        print(f"{len(group):>4} × {area}: {kind}")
        for finding in group[:3]:
            print(f"         case {finding.case}: {finding.words}")
        print(f"         {group[0].detail}" if group[0].detail else "", end="\n" if group[0].detail else "")


def main() -> int:
    """Run the cases and print the findings."""
    options = read_options(__doc__ or "", count=2000, seed=0, only="", case=-1)
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"HARNESS_CACHE": f"{folder}/cache", "HARNESS_RESULTS": f"{folder}/results"}
        import torch

        torch.set_num_threads(1)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
        findings, fuzz = run_cases(
            Path(folder), options.count, seed=options.seed, only=options.only, case=options.case
        )
    print_findings(findings)
    count = options.count if options.case < 0 else 1
    print(
        f"{count:,} cases of seed {options.seed} in {time.monotonic() - began:.0f} s: "
        f"{len(findings)} findings, "
        f"{fuzz.accepted:,} accepted, {fuzz.refusals['plain']:,} refused, {fuzz.refusals['vague']:,} "
        "with a word of Python"
    )
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
