"""The network beside transformers with SDPA: tokens a second, vectors, and whether the bars hold.

    python benchmarks/bench_network.py
    python benchmarks/bench_network.py --random-init neobert

Both sides have the same random weights, get the same batches of 32 random texts, and run forward
only, in turns, in float32 on a CPU and in bfloat16 on a GPU. A family that transformers does not
know is compared with our own network with padding computed. Lengths are all 512, or drawn from
N(256, 64) cut to 16 ... 512 (ModernBERT, table 10) and padded to 512 or to the longest of the
batch. Tokens a second count no padding.

A round has 10 batches on a GPU, 1 on a CPU; `gpu/run.py encode` shows how much of a GPU is used.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from measuring import in_turns, read_options, report_missed
from torch import Tensor

from harness.encoder import backbones
from harness.encoder.architecture import Config, Family
from harness.encoder.network.model import _build, _build_family_config

BARS = {
    "cpu": {"fixed": 0.97, "padded to 512": 1.5, "padded to the batch": 1.15},
    "cuda": {"fixed": 1.0, "padded to 512": 1.8, "padded to the batch": 1.2},
}
"""How many times the opponent's rate is asked, by device."""

SAME = 1e-4
"""How far a component of our float32 vectors may lie from theirs."""

DEFAULT = {"cpu": ("bert-base", "modernbert-base"), "cuda": ("bert-base", "modernbert-base", "neobert")}
TEXTS, COLUMNS = 32, 512

Run = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Our network and its opponent, with the same weights."""

    ours: Any
    theirs: Run
    opponent: str


def sizes() -> dict[str, tuple[Family, Config]]:
    """Every published size of every family that runs through our network."""
    families = [entry.family for entry in backbones.list_backbones().values() if entry.family is not None]
    return {
        name: (family, config)
        for family in families
        if family.shape is not None
        for name, config in family.sizes.items()
    }


def pair(name: str, device: torch.device, dtype: torch.dtype) -> Pair:
    """Both networks of that size."""
    from transformers import AutoModel

    family, content = sizes()[name]
    config, shape = _build_family_config(content, family)
    torch.manual_seed(0)
    ours: Any = _build(config, shape, family).to(device, dtype).eval()
    if device.type != "cpu":
        ours.fuse_projections()
    if not family.native or family.names is None:
        padded = _build(config, shape, family).to(device, dtype).eval()
        padded.load_state_dict(ours.state_dict())
        padded.attention_asked = "sdpa"  # type: ignore[assignment, union-attr]
        return Pair(ours=ours, theirs=partial(_all_computed, padded), opponent="our padded path")
    theirs = AutoModel.from_config(config, dtype=dtype, attn_implementation="sdpa").to(device).eval()
    published = {family.names.theirs(key, with_head=False): value for key, value in ours.state_dict().items()}
    missing, left = theirs.load_state_dict(published, strict=False)
    assert not left
    assert not {*missing} & {key for key, _ in theirs.named_parameters()}
    return Pair(ours=ours, theirs=theirs, opponent="transformers")


def _all_computed(model: Run, *, input_ids: Tensor, attention_mask: Tensor) -> Any:
    return model(
        input_ids=input_ids, attention_mask=attention_mask, compute_mask=torch.ones_like(attention_mask)
    )


def batches(workload: str, count: int, pad: int, device: torch.device) -> list[dict[str, Tensor]]:
    """Random batches, the same for everybody, filled up with `pad`."""
    draw = torch.Generator().manual_seed(42)
    found = []
    for _ in range(count):
        lengths = torch.full((TEXTS,), COLUMNS)
        if workload != "fixed":
            lengths = (torch.randn(TEXTS, generator=draw) * 64 + 256).round().clamp(16, COLUMNS)
        columns = int(lengths.max()) if workload == "padded to the batch" else COLUMNS
        ids = torch.randint(100, 16_000, (TEXTS, columns), generator=draw)
        mask = torch.arange(columns) < lengths[:, None]
        padded = {"input_ids": ids.masked_fill(~mask, pad), "attention_mask": mask.long()}
        found.append({name: tensor.to(device) for name, tensor in padded.items()})
    return found


def run(model: Run, given: Sequence[dict[str, Tensor]]) -> Tensor:
    """The vectors of the last batch, once all are done."""
    with torch.inference_mode():
        for batch in given:
            found: Tensor = model(**batch).last_hidden_state
    if found.device.type == "cuda":
        torch.cuda.synchronize()
    return found


def compared(
    name: str, both: Pair, workload: str, device: torch.device, *, count: int, repeats: int
) -> dict[str, Any]:
    """One line of the table."""
    given = batches(workload, count, both.ours.shape.pad_token_id, device)
    warm = 10 if device.type == "cuda" else 1
    for _ in range(warm):
        run(both.ours, given[:1])
        run(both.theirs, given[:1])
    turns = {"ours": partial(run, both.ours, given), "theirs": partial(run, both.theirs, given)}
    seconds, vectors = in_turns(turns, repeats)
    mask = given[-1]["attention_mask"][..., None]
    tokens = int(sum(batch["attention_mask"].sum() for batch in given))
    held = both.opponent == "transformers" or workload != "fixed"
    return {
        "name": name,
        "workload": workload,
        "opponent": both.opponent,
        "ours": tokens / seconds["ours"],
        "theirs": tokens / seconds["theirs"],
        "ratio": seconds["theirs"] / seconds["ours"],
        "bar": BARS[device.type][workload] if held else None,
        "difference": float(((vectors["ours"] - vectors["theirs"]) * mask).abs().max()),
        "backend": both.ours.attention_as_run,
    }


def missed(row: dict[str, Any], dtype: torch.dtype) -> list[str]:
    """What a line falls short of."""
    found = []
    what = f"{row['name']}, {row['workload']}"
    if row["bar"] and row["ratio"] < row["bar"]:
        found.append(f"{what}: {row['ratio']:.2f} times, not {row['bar']}")
    if dtype == torch.float32 and not row["difference"] <= SAME:
        found.append(f"{what}: vectors differ by {row['difference']:.1e}, not {SAME:.0e}")
    return found


def main() -> int:
    """Print the table; 1 if a bar is missed."""
    several = {"action": "append"}
    asked = read_options(
        __doc__,
        random_init={**several, "choices": sizes(), "metavar": "NAME"},
        workload={**several, "choices": BARS["cpu"]},
        device="cuda" if torch.cuda.is_available() else "cpu",
        batches={"type": int},
        repeats=5,
    )
    device = torch.device(asked.device)
    on_gpu = device.type == "cuda"
    dtype = torch.bfloat16 if on_gpu else torch.float32
    title = torch.cuda.get_device_name(device) if on_gpu else f"CPU, {torch.get_num_threads()} threads"
    print(f"{title}, {dtype}, torch {torch.__version__}, median of {asked.repeats}, forward only")
    print(f"{'':18}{'':22}{'ours':>10}{'theirs':>10}{'ratio':>8}{'bar':>6}{'max |difference|':>18}")
    rows, short = [], []
    for name in asked.random_init or DEFAULT[device.type]:
        both = pair(name, device, dtype)
        for workload in asked.workload or BARS["cpu"]:
            count = asked.batches or (10 if on_gpu else 1)
            row = compared(name, both, workload, device, count=count, repeats=asked.repeats)
            rows.append(row)
            short += missed(row, dtype)
            print(
                f"{name:18}{workload:22}{row['ours']:10.0f}{row['theirs']:10.0f}{row['ratio']:8.2f}"
                f"{row['bar'] or '':>6}{row['difference']:18.1e}  {row['backend']} against {row['opponent']}",
                flush=True,
            )
    print(json.dumps({"device": title, "speed": rows}))
    return report_missed(short)


if __name__ == "__main__":
    sys.exit(main())
