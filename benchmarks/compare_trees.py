"""Shows that two checkouts give the same output byte for byte: 53 commands, and the files that they write.

    python benchmarks/compare_trees.py OLD NEW [--work DIR] [--only NUMBER]

Each command runs as `python -m harness` with the checkout first on the path, in a scratch folder that is made
anew for each checkout, so that paths in outputs are equal. WRITERS measure and train, from generated data and
tiny models. READERS plan, show, export and are misused; they begin, for both checkouts, with what the writers
of OLD have left, so that even times in tables and on pages are equal. Compared are exit codes, outputs,
and all files outside of APART. Needs no network. `--only` runs this command alone, after the
writers that come before it. Ends with 0 if all is equal, else with 1.
"""

from __future__ import annotations

import difflib
import hashlib
import http.client
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from string import ascii_lowercase

from measuring import read_options

TRAINED = "--model tiny --recipe simcse:mean --train-data rows.jsonl --set batch_size=16 --set epochs=2"
ALLOWED = "--allow normalize,max_length"
SMALL = "--set documents=4 --set document_length=20"

WRITERS = f"""
harness import mteb-results published --workers 1
harness proxy fit --target NanoBEIR --minutes 1
harness run --model minilm --model tiny --suite local:own
harness run --model minilm --suite local:own --json
harness run --model bm25:k1=0.9,b=0.4 --suite local:own
harness run --model late --suite local:own --tasks notes --index plaid --json
harness train {TRAINED}
harness run {TRAINED} --suite local:own
harness run --model tiny --suite local:labelled --recipe glue-quick --workers 1
harness baseline set release --model minilm --suite local:own
harness check --candidate minilm --baseline release --json
harness check --candidate tiny --baseline release {ALLOWED} --all --junit check.xml --markdown check.md
harness watch checkpoints --suite local:own --once --pooling mean --settle 0
harness data score --teacher minilm --train-data rows.jsonl --output scores --documents 4
"""

READERS = f"""
help
harness list suites
harness list models
harness list recipes
harness list tasks --json
harness run --model minilm --model bm25 --suite mteb --suite beir --suite nanobeir --dry-run
harness run --model minilm --suite stdlib --dry-run --json
harness run --model tiny --suite glue --recipe glue-neobert --dry-run
harness run --model tiny --suite glue --recipe glue-optibert:table4 --dry-run --json
harness run --model tiny --suite mteb-efficient8 --recipe simcse --seeds 2 --dry-run
harness run {TRAINED} --sweep eps=1e-8,1e-6 --select mteb:STS12 --suite local:own --dry-run --json
harness train --model tiny --recipe dpr:ettin+mldr --dry-run
harness train --model tiny --recipe efficient-lora --budget 1e12 --dry-run --json
harness train --model tiny --recipe colbert --train-data scores {SMALL} --dry-run
harness explain --model late --query "river stone" --document "a river has a stone bridge" --matrix
harness baseline list
harness baseline show release --json
harness baseline export release
harness compare minilm tiny --measurements
harness show minilm --suite local:own --json
harness papers minilm --suite beir
harness models list
harness models show tiny-simcse:mean --json
harness status --all
harness data check own
harness data list --suite nanobeir --json
harness cache size --json
harness audit
harness doctor
harness remote push file://SCRATCH/shared
harness export /suites/nanobeir?mean=types --format tex
harness export late --trec trec --suite local:own
harness serve --static site --suite local:own --url https://example.org/board
serve
harness rum
harness run --modle minilm
harness run --model tinyy --suite local:own
harness run --model minilm --suite glu
harness train --model tiny --recipe simcse --set batch_size=none
"""
"""`help` is every page of help, `serve` the PAGES of a running site, the last of which it refuses."""

PAGES = """
/ /suites/local-own /suites/nanobeir.csv?mean=types /tasks/notes?theme=dark /models/org1--model /search?q=mini
/compare?m=org1--model-2a45a5e9&m=org2--model-2a45a5e9 /pareto?suite=nanobeir&x=throughput /glue.tex
/openapi.json /checks.json /badges/nanobeir/org1--model-2a45a5e9.svg /suites/none /suites?rows=-1 /nothing
"""

APART = ("cache", "hub", "results/runs", "results/imported")
"""Folders whose files hold their own times, or are logs of runs: pages and `status` show what is in them."""

CHANGING = (
    # Names of runs and checks: when they began, and a drawn part.
    (r"\b\d{8}T\d{6}Z?(-\w+)+", "NAME"),
    # Speeds, and how busy a device was.
    (r"[\d,]+ tokens/s(; about [\d.minhs to]+ left)?|\bcpu \d+ % of [\dminhs ]+", "SPEED"),
    (r"\bin \d+ s \(\d+ s of a core\)", "SPEED"),
    # Dates with a time of day.
    (r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(\+00:00|Z)?", "TIME"),
    # Durations: in lines of progress, of an import and of `status`, in records and logs, in JUnit's XML.
    (r"(?<=  )\d+\.\d s\b(; about .* left for all runs)?|(?<=steps, )\d+ s\b|(?<=, )[\dminhs ]+ ago", "SPAN"),
    (r'\(\d+\.\d s\)|"(seconds|tokens_per_second)": ([\d.e-]+|\{[^}]*\})|\btime="[\d.]+"', "SPAN"),
    # Memory of the process, and the free space of the disk.
    (r'"peak_memory_bytes": \{[^}]*\}|"memory": \d+', "MEMORY"),
    (r'\b[\d.]+ [kMGT]?B( are)? free\b|"free": \d+', "SPACE"),
    # The drawn name of an import, and an index with a file of fast-plaid that holds times in all digits.
    (r'"id": "[0-9a-f]{12}"', "ID"),
    (r'"bytes": \d+(?=,\s+"was_there")', "BYTES"),
    # The checkout's commit, and the digest of a file that holds any of these.
    (r'"commit": "\w{40}",\s+"dirty": \w+|(?<= at )[0-9a-f]{12}\b.*', "COMMIT"),
    (r'"digest": "\w{64}"', "DIGEST"),
    # What DuckDB's binding says at the end of a process, with addresses of memory.
    (r"(?s)nanobind: leaked .*refleaks\.html", ""),
    # The port of the running site.
    (r"\b127\.0\.0\.1:\d+", "ADDRESS"),
)
"""What differs between two runs of one checkout, as regular expressions, and what is put in its place."""

WORDS = ("river", "stone", "cloud", "engine", "letter", "garden", "music", "winter", "copper", "silver")
TOPICS = ("water", "metal", "sound")
TASKS = {"notes": "retrieval", "similar": "sts", "kinds": "classification", "groups": "clustering"}
NANO = "ArguAna ClimateFever DBPedia FEVER FiQA2018 HotpotQA MSMARCO NFCorpus NQ Quora SCIDOCS SciFact"


def main() -> int:
    """Compare the two checkouts, and say how many commands and files are equal."""
    trees = {"type": Path, "nargs": 2, "metavar": "TREE", "help": "OLD and NEW"}
    work = Path(tempfile.gettempdir())
    asked = read_options(__doc__, {"trees": trees}, work=work, only={"type": int})
    old, new = (tree.resolve() for tree in asked.trees)
    work = asked.work.resolve() / "compare-trees"
    given, scratch, written = work / "given", work / "scratch", work / "written"
    shutil.rmtree(work, ignore_errors=True)
    given.mkdir(parents=True)
    for tree in (old, new):
        process = start_python(tree, given, "-c", "import harness; print(harness.__file__)")
        if not (output := process.communicate()[0]).startswith(f"{tree}/"):
            sys.exit(f"A command would not run the code of {tree}, but {output or 'none'}")
    write_data(given)
    write_models(given)
    count, lines = len(WRITERS.strip().splitlines()), (WRITERS.strip() + READERS).splitlines()
    rows = list(enumerate(lines, start=1))[: asked.only]
    writers, readers = rows[:count], rows[count:] if asked.only is None else rows[count:][-1:]
    sides, first = [], run_all(writers, old, given, scratch)
    shutil.copytree(scratch, written)
    if asked.only is None or not readers:
        sides.append((first, run_all(writers, new, given, scratch)))
    if readers:
        sides.append((run_all(readers, old, written, scratch), run_all(readers, new, written, scratch)))
    differing = sum(print_differences(*both) for both in sides)
    names = [name for both in sides for name in both[0]]
    commands = sum(name[0].isdigit() for name in names)
    outcome = f"{differing} differ" if differing else "equal"
    print(f"{commands} commands, {len(names) - commands:,} files: {outcome}")
    return 1 if differing else 0


def start_python(tree: Path, folder: Path, *words: str) -> subprocess.Popen[str]:
    """A process of Python in a folder: with the checkout's code, without a network, a GPU or own settings."""
    left_out = ("HARNESS_", "HF_", "GITHUB_", "PYTHON", "FORCE_COLOR")
    own = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    own |= {"PYTHONPATH": str(tree), "HARNESS_CACHE": f"{folder}/cache", "HF_HOME": f"{folder}/hub"}
    own |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "120"}
    pipe, none = subprocess.PIPE, subprocess.DEVNULL
    command = [sys.executable, *words]
    return subprocess.Popen(command, cwd=folder, env=own, stdin=none, stdout=pipe, stderr=pipe, text=True)


def run_all(rows: Sequence[tuple[int, str]], tree: Path, start: Path, scratch: Path) -> dict[str, str]:
    """The output of each command in a new copy of a folder, and each file that was written there, by name."""
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.copytree(start, scratch)
    outputs: dict[str, str] = {}
    special = {"help": read_help, "serve": read_site}
    for number, row in rows:
        begun = time.monotonic()
        text = special[row](tree, scratch) if row in special else run(tree, scratch, row)
        outputs[f"{number} {row}"] = without_changing(text, tree)
        print(f"{tree}: {number} {row} ({time.monotonic() - begun:.1f} s)", file=sys.stderr, flush=True)
    return {**outputs, **read_files(scratch, start, tree)}


def run(tree: Path, scratch: Path, row: str) -> str:
    """A command with its exit code and both outputs."""
    process = start_python(tree, scratch, "-m", *shlex.split(row.replace("SCRATCH", str(scratch))))
    output, errors = process.communicate(timeout=600)
    return f"{row}: exit code {process.returncode}\n{output}\n--- standard error\n{errors}"


def read_help(tree: Path, scratch: Path, command: str = "harness") -> str:
    """The help of a command, and of each command that it lists."""
    text = run(tree, scratch, f"{command} --help")
    names = re.findall(r"(?m)^  ([a-z][\w-]*)  ", text.partition("\nCommands:\n")[2])
    return text + "".join(read_help(tree, scratch, f"{command} {name}") for name in names)


def read_site(tree: Path, scratch: Path) -> str:
    """The pages of a running site with their status, and headers but for the date; what the server says."""
    texts, words = [], ("harness", "serve", "--port", "0", "--suite", "local:own")
    with start_python(tree, scratch, "-m", *words) as server:
        for line in server.stderr or ():
            texts.append(line)
            if opened := re.search(r"Open http://(\S+)", line):
                connection = http.client.HTTPConnection(opened[1], timeout=60)
                for page in PAGES.split():
                    connection.request("GET", page)
                    answer = connection.getresponse()
                    headers = [f"{name}: {value}" for name, value in answer.getheaders() if name != "date"]
                    texts += [f"{page} {answer.status}", *headers, answer.read().decode()]
                connection.close()
                server.terminate()
    return "\n".join([*texts, f"exit code {server.returncode}"])


def read_files(scratch: Path, start: Path, tree: Path) -> dict[str, str]:
    """The text of each file that is not the same in `start`, by name; of a binary file its hash."""
    texts: dict[str, str] = {}
    for path in sorted(path for path in scratch.rglob("*") if path.is_file()):
        name, content = path.relative_to(scratch), path.read_bytes()
        known = (start / name).is_file() and (start / name).read_bytes() == content
        if not known and not any(name.is_relative_to(folder) for folder in APART):
            binary = b"\0" in content
            text = hashlib.sha256(content).hexdigest() if binary else without_changing(content.decode(), tree)
            key = without_changing(f"./{name}", tree)
            texts[key] = texts.get(key, "") + text
    return texts


def without_changing(text: str, tree: Path) -> str:
    """The text without the checkout's place, and without what differs between two runs of one checkout."""
    text = text.replace(str(tree), "TREE")
    for pattern, instead in CHANGING:
        text = re.sub(pattern, instead, text)
    return text


def print_differences(old: Mapping[str, str], new: Mapping[str, str]) -> int:
    """Print what differs, of the first ten the first lines of the difference; gives their number."""
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    for place, name in enumerate(names):
        print(f"{name} differs" if name in old and name in new else f"{name} is on one side only")
        both = (old.get(name, "").splitlines(), new.get(name, "").splitlines())
        for line in list(difflib.unified_diff(*both, "old", "new", lineterm=""))[: 20 if place < 10 else 0]:
            print(f"  {line}")
    return len(names)


def write_data(folder: Path) -> None:
    """Write two suites, pairs to train on, and the scores of twenty models as mteb publishes them."""
    draw = random.Random(1)
    texts = [" ".join([TOPICS[at % 3], *draw.choices(WORDS, k=6)]) for at in range(72)]
    rows = [{"text": text, "text1": text, "label": text.split()[0]} for text in texts]
    task = '[[task]]\nname = "{}"\ntype = "{}"'
    files: dict[str, Sequence[object]] = {
        "own/harness.toml": [task.format(*names) for names in TASKS.items()],
        "own/corpus.jsonl": [{"_id": f"d{at}", "text": text} for at, text in enumerate(texts[:24])],
        "own/queries.jsonl": [{"_id": f"q{at}", "text": text} for at, text in enumerate(texts[24:32])],
        "own/qrels/test.tsv": ["query-id\tcorpus-id\tscore", *(f"q{at}\td{at * 3}\t1" for at in range(8))],
        "own/pairs.jsonl": [{"text1": a, "text2": b, "score": len(a) % 5} for a, b in pairwise(texts[:20])],
        **{"own/train.jsonl": rows[:24], "own/test.jsonl": rows[24:], "own/texts.jsonl": rows[24:]},
        "labelled/harness.toml": [task.format("labels", "fine-tuned-classification")],
        **{"labelled/train.jsonl": rows[24:], "labelled/dev.jsonl": rows[:24]},
        "rows.jsonl": [{"query": a, "positive": b} for a, b in pairwise(texts)],
    }
    for model in range(20):
        home, name = f"published/results/org{model}__model/{'a' * 40}", f"org{model}/model"
        files[f"{home}/model_meta.json"] = [{"name": name, "n_parameters": 10**6 * (model + 1)}]
        about = {"dataset_revision": "d" * 40, "mteb_version": "2.1.0", "evaluation_time": 1.5 + model}
        for short in [*NANO.split(), "Touche2020"]:
            name = f"Nano{short}Retrieval"
            score = {"main_score": model / 40 + draw.random() / 5, "hf_subset": "default", "languages": []}
            files[f"{home}/{name}.json"] = [{"task_name": name, **about, "scores": {"train": [score]}}]
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        lines = [row if isinstance(row, str) else json.dumps(row) for row in content]
        (folder / name).write_text("\n".join(lines) + "\n")


def write_models(folder: Path) -> None:
    """Write BERT models of two small layers with drawn weights, and one with a vector for each token."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "TQDM_DISABLE": "1"}
    import torch
    from pylate.models import ColBERT
    from transformers import BertConfig, BertModel, BertTokenizer

    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    tokens = [*special, *WORDS, *ascii_lowercase, *(f"##{letter}" for letter in ascii_lowercase)]
    tokenizer = BertTokenizer(vocab={token: number for number, token in enumerate(tokens)})
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    config = BertConfig(vocab_size=len(tokens), max_position_embeddings=64, **sizes)
    for seed, name in enumerate(("tiny", "checkpoints/step-100", "checkpoints/step-200")):
        torch.manual_seed(seed)
        BertModel(config).save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    late = {"embedding_size": 16, "query_length": 12, "document_length": 20}
    ColBERT(f"{folder}/tiny", device="cpu", **late).save_pretrained(f"{folder}/late")


if __name__ == "__main__":
    sys.exit(main())
