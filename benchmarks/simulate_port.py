"""The verdicts of `--question port` on the same weights in other forms, and on other weights and tokens.

    python benchmarks/simulate_port.py --trials 1000

The models are MiniLM and a tiny one of each family with random weights. Each form of each model encodes the
same sentences and functions of the standard library once, in this process. A trial takes a model in turn,
draws 128 of the pairs with a seed of its own, and judges tokens, vectors and the scores of two tasks that
follow from these vectors, as a check does: similar sentences, and the function of a sentence. Ends with 1 if
a line misses its bar: the same weights are green in 99 % of trials, all else is red in 99 %.
"""

from __future__ import annotations

import ast
import json
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from measuring import locate_minilm, read_options
from simulate_gate import Drawn, made_up, side, slack, units_of

import tiny
from harness.checks.policy import DEFAULT
from harness.checks.questions import ModelOutputs, compare_encoded, find_coarser_dtype, judge_port
from harness.checks.sides import Comparison
from harness.checks.task_verdicts import estimate_baseline_power, evaluate_comparison
from harness.core.encoding import Settings
from harness.core.types import Artifact, Suite
from harness.encoder.folder.description import compute_folder_identity, describe
from harness.encoder.loading import load_encoder
from harness.encoder.resolved_encoding import resolve_encoding
from harness.plan.plan import ConfiguredModel
from harness.results.weighted_metrics import Floats

POOL, TEXTS, LONGEST = 300, 128, 400
"""The pairs that are encoded, those of a trial, and the characters of a function that are read."""

SUITES = [
    Suite(
        name="ported",
        title="",
        columns=tuple(
            replace(column, tasks=(replace(column.tasks[0], type=kind),))
            for column, kind in zip(made_up(["similar", "search"]).columns, ("STS", "Retrieval"), strict=True)
        ),
    )
]


def collect_texts() -> list[tuple[str, str]]:
    """The first sentence of a function's docstring with its code, one of each, in the order of files."""
    pairs: dict[str, str] = {}
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        source = path.read_text(encoding="utf-8", errors="replace")
        rows = source.split("\n")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef) and len(words := ast.get_docstring(node) or "") > 30:
                # ast.get_source_segment splits the whole file anew for each function.
                code = "\n".join(rows[node.lineno - 1 : node.end_lineno])[node.col_offset :]
                pairs.setdefault(words.split("\n\n")[0][:LONGEST], code.replace(words[:30], "")[:LONGEST])
    chosen = np.random.default_rng(0).permutation(len(pairs))[:POOL]
    every = list(pairs.items())
    return [every[place] for place in chosen]


def change_weights(folder: Path, change: Callable[[Any], Any]) -> None:
    """Change each floating tensor of a folder."""
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    tensors = {name: change(one) if one.is_floating_point() else one for name, one in load_file(path).items()}
    save_file(tensors, path, metadata={"format": "pt"})


def add_noise(tensor: Any) -> Any:
    """The tensor with a relative noise of 0.003 on each weight."""
    import torch

    generator = torch.Generator().manual_seed(tensor.numel())
    return tensor * (1 + 0.003 * torch.randn(tensor.shape, generator=generator))


def save_tokenizer_again(folder: Path) -> None:
    """Load and save a tokenizer as the library does."""
    from transformers import AutoTokenizer

    AutoTokenizer.from_pretrained(folder).save_pretrained(folder)


def swap_special_token(folder: Path, name: str) -> None:
    """Put the mask in the place of a special token around each text."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    token, number = getattr(tokenizer, name), getattr(tokenizer, f"{name}_id")
    AutoTokenizer.from_pretrained(folder, **{name: tokenizer.mask_token}).save_pretrained(folder)
    # In older folders the library reads special tokens from here first.
    (folder / "special_tokens_map.json").unlink(missing_ok=True)
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    # A template has the ids in a list, the processors of BERT and RoBERTa beside the token.
    around = json.dumps(content["post_processor"])
    mask = tokenizer.mask_token_id
    for former, new in (
        (f'["{token}", {number}]', f'["{token}", {mask}]'),
        (f'"ids": [{number}]', f'"ids": [{mask}]'),
    ):
        around = around.replace(former, new)
    path.write_text(json.dumps(content | {"post_processor": json.loads(around)}), encoding="utf-8")


def change_dtype(name: str) -> Callable[[Path], None]:
    """A change of the weights' dtype on disk."""
    import torch

    return lambda folder: change_weights(folder, lambda one: one.to(getattr(torch, name)))


def change_noisy_dtype(folder: Path) -> None:
    """Noise on weights that are then stored in half precision."""
    change_weights(folder, add_noise)
    change_dtype("float16")(folder)


@dataclass(frozen=True, kw_only=True)
class Form:
    """A form of a model: what is done to its folder, how it runs, and whether it is still the same."""

    change: Callable[[Path], None] = lambda folder: None
    dtype: Any = "float32"
    batch_tokens: int | None = None
    same: bool = True


FORMS: dict[str, Form] = {
    "weights in float16": Form(change=change_dtype("float16")),
    "weights in bfloat16": Form(change=change_dtype("bfloat16")),
    "run in bfloat16": Form(dtype="bfloat16"),
    "batches of 512 tokens": Form(batch_tokens=512),
    "tokenizer saved again": Form(change=save_tokenizer_again),
    "noise of 0.003": Form(change=lambda folder: change_weights(folder, add_noise), same=False),
    "noise of 0.003, in float16": Form(change=change_noisy_dtype, same=False),
    "another [SEP]": Form(change=lambda folder: swap_special_token(folder, "sep_token"), same=False),
    "another [CLS]": Form(change=lambda folder: swap_special_token(folder, "cls_token"), same=False),
}


def iter_folders(home: Path, names: Sequence[str]) -> Iterator[Path]:
    """The folders of the models: MiniLM, and a tiny one of each family."""
    for name in names:
        folder = home / name
        if name == "minilm":
            shutil.copytree(locate_minilm(), folder)
        else:
            tiny.folder(tiny.families()[name], folder)
        yield folder


def encode(folder: Path, form: Form, texts: Sequence[str]) -> tuple[ConfiguredModel, ModelOutputs]:
    """A form of a model, with its tokens and vectors of texts."""
    key, weights, _ = compute_folder_identity(folder)
    artifact = Artifact(name=folder.name, source=str(folder), folder=folder, key=key, weights=weights)
    encoding = resolve_encoding(describe(folder), Settings(dtype=form.dtype))
    loaded: Any = load_encoder(artifact, encoding, device="cpu", batch_tokens=form.batch_tokens)
    encoded = ModelOutputs(
        tokens=loaded.list_token_ids(texts), vectors=np.asarray(loaded.encode(texts), dtype=np.float32)
    )
    return ConfiguredModel(artifact=artifact, encoding=encoding), encoded


def score_tasks(vectors: Floats) -> tuple[Floats, Floats]:
    """The similarity of each sentence to the one before, and nDCG@10 of each sentence's function.

    Args:
        vectors: Of sentences, then of functions, (2 · TEXTS, dimension).
    """
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    sentences, functions = np.split(units, 2)
    similar = (sentences * np.roll(sentences, 1, axis=0)).sum(axis=1)
    scores = sentences @ functions.T
    rank = 1 + (scores > np.diag(scores)[:, None]).sum(axis=1)
    return similar, np.where(rank <= 10, 1 / np.log2(1 + rank), 0.0)


def compute_gold(sentences: Sequence[str]) -> Floats:
    """The share of words that each sentence has in common with the one before."""
    words = [{*one.lower().split()} for one in sentences]
    return np.array([len(a & b) / len(a | b) for a, b in zip(words, words[-1:] + words[:-1], strict=True)])


def judge(mine: Any, theirs: Any, pairs: Sequence[tuple[str, str]], places: Sequence[int]) -> str:
    """The verdict of a check of two encoded models on some of the pairs."""
    both = [*places, *(place + len(pairs) for place in places)]
    texts = [pairs[place % len(pairs)][place // len(pairs)] for place in both]
    first, second = (
        ModelOutputs(tokens=[one.tokens[place] for place in both], vectors=one.vectors[both])
        for _, one in (mine, theirs)
    )
    outputs = compare_encoded(texts, first, second, find_coarser_dtype([mine[0], theirs[0]]))
    gold = compute_gold(texts[: len(places)])
    scored = [score_tasks(one.vectors.astype(np.float64)) for one in (first, second)]
    drawn = {
        "similar": Drawn(units=tuple(units_of("spearman", own[0][None, None], gold) for own in scored)),
        "search": Drawn(units=tuple(units_of("mean", own[1][None, None]) for own in scored)),
    }
    sides = Comparison(candidate=side(drawn, [0], "x"), baseline=side(drawn, [1], "a"), failures={})
    power = estimate_baseline_power(sides.baseline, SUITES, DEFAULT)
    tasks, means = evaluate_comparison(sides, SUITES, DEFAULT, power)
    return judge_port(tasks, means, outputs, DEFAULT)[2].verdict


def list_right_shares(names: Sequence[str], trials: int, seed: int) -> dict[str, dict[str, float]]:
    """By form and model the share of trials with the right verdict.

    Args:
        names: "minilm", or families.
        trials: The trials of each form of each model.
        seed: The seed of all draws.
    """
    pairs = collect_texts()
    texts = [one for side_texts in zip(*pairs, strict=True) for one in side_texts]
    shares: dict[str, dict[str, float]] = {name: {} for name in FORMS}
    with tempfile.TemporaryDirectory() as home:
        for folder in iter_folders(Path(home), names):
            baseline = encode(folder, Form(), texts)
            for number, (name, form) in enumerate(FORMS.items()):
                copy = folder.with_name("copy")
                shutil.copytree(folder, copy)
                form.change(copy)
                candidate = encode(copy, form, texts)
                rng = np.random.default_rng([seed, number, *folder.name.encode()])
                draws = [rng.permutation(len(pairs))[:TEXTS].tolist() for _ in range(trials)]
                right = ("passed", "same", "improved") if form.same else ("regressed",)
                verdicts = [judge(candidate, baseline, pairs, places) for places in draws]
                shares[name][folder.name] = sum(one in right for one in verdicts) / trials
                shutil.rmtree(copy)
    return shares


def main() -> int:
    """Print the table; 1 if a line misses its bar."""
    given = read_options(__doc__, trials=1000, seed=0, models="minilm," + ",".join(tiny.families()))
    names, missed = given.models.split(","), 0
    trials = -(-given.trials // len(names))
    for name, shares in list_right_shares(names, trials, given.seed).items():
        share, count = float(np.mean([*shares.values()])), trials * len(names)
        miss = share < 0.99 - slack(0.99, count)
        missed += miss
        wrong = ", ".join(f"{model} {one:.1%}" for model, one in shares.items() if one < 1)
        text = f"{name:28} {'green' if FORMS[name].same else 'red'} in {share:6.1%} of {count} trials"
        print(text + (f" ({wrong})" if wrong else "") + ("  MISSED" if miss else ""), flush=True)
    print(f"{missed} lines miss their bars.")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
