"""Operations by formula against torch's counter and by hand, prices, utilisation, and what users state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModel

import tiny
from every_kind import build_note
from harness.core.errors import UsageError
from harness.encoder.architecture import Architecture, Family
from harness.encoder.backbones import list_backbones
from harness.results.cost.compute import BackboneCompute, find_published_compute, read_backbone_compute
from harness.results.cost.price import compute_utilisation, find_price, read_prices
from harness.results.reported import PaperValue, read_papers
from leaderboard.views.paper_tables import build_printed_cell

FAMILIES: dict[str, Family] = {name: one.family for name, one in list_backbones().items() if one.family}
PAPERS = read_papers(Path(__file__).parents[3] / "results" / "reported")


def count(network: Callable[..., Any], tokens: int) -> int:
    """What torch counts; its counter does not know the CPU's own kernel of attention."""
    with sdpa_kernel(SDPBackend.MATH), torch.no_grad(), FlopCounterMode(display=False) as counter:
        network(input_ids=torch.full((1, tokens), 7))
    return int(counter.get_total_flops())


@pytest.mark.parametrize("kind", ["bert", "modernbert", "gpt_neox", "eurobert", "distilbert", "gpt2"])
def test_the_formula_is_what_torch_counts(kind: str, tmp_path: Path) -> None:
    """Small shapes with weights; in that of eurobert two query heads share keys and values."""
    more = {"num_key_value_heads": 2} if kind == "eurobert" else {}
    config = {"model_type": kind, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4}
    if kind != "gpt2":
        config = tiny.config(FAMILIES[kind], max_position_embeddings=64, **more)
    network = AutoModel.from_config(AutoConfig.for_model(**config), attn_implementation="eager")
    network.save_pretrained(tmp_path)
    pooler = 2 * network.pooler.dense.weight.numel() if kind == "bert" else 0
    # The tables of rotary positions are small products, too, which are no part of the formula.
    rel = 0 if kind in ("bert", "distilbert") else 1e-3
    for tokens in (40, 64):
        counted = count(network, tokens)
        operations = read_backbone_compute(tmp_path).count_operations(tokens)
        assert operations == pytest.approx(counted - pooler, rel=rel)


def test_the_formula_is_what_torch_counts_of_neobert(tmp_path: Path) -> None:
    folder = tiny.folder(FAMILIES["neobert"], tmp_path)
    counted = count(tiny.network(FAMILIES["neobert"]), 40)
    assert read_backbone_compute(folder).count_operations(40) == counted


@pytest.mark.parametrize("name", ["bert-base", "modernbert-base"])
def test_the_formula_is_what_torch_counts_of_published_shapes(name: str) -> None:
    """At 512 tokens and at the limit, without computing anything."""
    published = find_published_compute(name)
    assert published is not None
    with FakeTensorMode():
        config = AutoConfig.for_model(**FAMILIES[name.partition("-")[0]].sizes[name])
        network = AutoModel.from_config(config, attn_implementation="eager")
        for tokens in {512, published.limit or 512}:
            counted = count(network, tokens)
            assert published.count_operations(tokens) == pytest.approx(counted, rel=1e-4)


SHAPE: dict[str, Any] = {
    "vocab_size": 100, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 10, "max_position_embeddings": 16,
    "positions": "rotary", "gated": True, "gate_first": True, "pooler": True,
}  # fmt: skip


def test_two_layers_by_hand() -> None:
    compute = BackboneCompute.from_architecture(Architecture(**SHAPE, windows=(None, 1)))
    # A layer: queries and out 8 × 8 each, keys and values 4 × 8 each; up and gate 20 × 8, down 8 × 10.
    assert compute.matrices == 2 * (64 + 32 + 32 + 64 + 160 + 80)
    # 5 tokens: 2 operations for each element of a matrix; of each of 25 pairs 2 products of width 8.
    assert compute.count_operations(5) == 2 * (2 * 432 * 5 + 2 * 2 * 25 * 8) == 10_240
    # The second layer sees 2 + 3 + 3 + 3 + 2 pairs.
    assert compute.count_operations(5, windows=True) == 10_240 - 4 * 8 * (25 - 13)
    assert compute.formula_parameters == 12 * 64 * 2
    assert compute.compute_token_flops(5) == 6 * 1536 + 12 * 2 * 5 * 8
    assert compute.parameters - compute.without_embeddings == 800


def test_every_third_layer_of_modernbert_sees_all() -> None:
    compute = find_published_compute("modernbert-base")
    assert compute is not None
    assert [layer for layer, window in enumerate(compute.windows) if window is None] == [*range(0, 22, 3)]


def test_a_folder_whose_shapes_are_unknown_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "t5", "d_model": 8}')
    with pytest.raises(UsageError, match="do not tell the shapes"):
        read_backbone_compute(tmp_path)


# Prices and utilisation


def find_rows(paper: str, table: str, metric: str = "") -> list[PaperValue]:
    return [row for row in PAPERS[paper].tables[table].rows if row.metric.startswith(metric) and row.number]


def test_the_price_table_gives_mosaicberts_costs() -> None:
    hours = {(row.setting, row.metric[6:]): row.number for row in find_rows("mosaicbert", "S5", "hours")}
    costs = find_rows("mosaicbert", "S5", "cost")
    assert len(costs) == 6
    for row in costs:
        machine = row.setting.partition(" at ")[0]
        devices, _, device = machine.partition("x")
        price = find_price(device, read_prices())
        dollars = int(devices) * (hours[machine, row.metric[5:]] or 0) * (price.dollars if price else 0)
        # Those of 40 GB are printed up to 48 cents too low.
        assert dollars == pytest.approx(float(row.recomputed or row.value), abs=0.01)
        assert bool(row.recomputed) == ("40GB" in machine)


def test_equation_3_gives_mosaicberts_utilisation_but_for_two_rows() -> None:
    rates = {(row.model, row.setting): row.number for row in find_rows("mosaicbert", "S4", "throughput")}
    odd = {}
    for row in find_rows("mosaicbert", "S4", "MFU"):
        size, devices = float(row.params.removesuffix("M")) * 1e6, int(row.setting.partition("x")[0])
        share = 100 * compute_utilisation(size, rates[row.model, row.setting] or 0, devices, 312e12)
        if abs(share - float(row.value)) > 0.051:
            odd[row.value] = round(share, 2)
    assert odd == {"39.97": 36.23, "10.4": 10.58}


def test_modernberts_table_2_follows_from_tables_10_and_11_but_for_damaged_cells() -> None:
    tokens = {row.setting: row.number for row in find_rows("modernbert", "10", "total tokens")}
    seconds = {(row.name, row.metric): row for row in find_rows("modernbert", "11")}
    odd = {}
    for row in (one for one in find_rows("modernbert", "2") if one.metric in tokens):
        # Models that compute padding were not timed on the variable sets: the time is that of the fixed one.
        fixed = seconds.get((row.name, row.metric.replace("variable", "fixed")))
        time = seconds.get((row.name, row.metric), fixed)
        rate = (tokens[row.metric] or 0) / ((time and time.number) or 1) / 1000
        if abs(rate - float(row.value)) > 0.051 + rate * 0.05 / ((time and time.number) or 1):
            odd[row.name, row.metric] = build_printed_cell(time).text if time else ""
    assert odd == {
        ("GTE-en-MLM large", "long fixed"): "1444.7 [read 4144.7]",
        ("GTE-en-MLM large", "long variable"): "1444.7 [read 4144.7]",
        ("GTE-en-MLMxformers large", "long fixed"): "1459.1 [read 4059.1]",
        ("ModernBERT large", "long fixed"): "433.9 [read 1433.9]",
    }


def test_a_users_prices_go_first(tmp_path: Path) -> None:
    path, own = tmp_path / "prices.toml", {"*epyc*": 0.5, "*a100*": 1}
    path.write_text("".join(f'[[devices]]\npattern = "{p}"\ndollars = {d}\n' for p, d in own.items()))
    prices = [find_price(name, read_prices(path)) for name in ("AMD EPYC 9654", "A100 80GB", "H100")]
    assert [price and price.dollars for price in prices] == [0.5, 1, None]
    for text, problem in (("[[devices]]\ndollars = 1\n", r"0\.pattern: Field required"), ("[", "no table")):
        path.write_text(text)
        with pytest.raises(UsageError, match=problem):
            read_prices(path)


# Statements; F_N is 20 million


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        ({"tokens": 1e12, "flops": 5.9e19}, ""),
        (
            {"tokens": 1e12, "flops": 6.1e19},
            "1T tokens make 2e19 operations (F_N · D with F_N = 20M at 512",
        ),
        ({"tokens": 1e12, "flops": 6e18}, "and 6e18 are stated"),
        ({"tokens": 1e12, "hours": 3, "devices": 8, "device": "A100 80GB"}, ""),
        ({"tokens": 1e12, "hours": 2, "devices": 8, "device": "A100 80GB"}, "are 347.2T a second for each"),
        ({"tokens": 1e12, "hours": 2, "device": "unknown"}, ""),
    ],
)
def test_statements_that_cannot_be_true_together(stated: dict[str, Any], says: str) -> None:
    sentences = [*build_note("w", **stated).list_contradictions(read_prices())]
    assert len(sentences) == bool(says)
    assert says in "".join(sentences)


def test_operations_are_those_stated_or_of_the_tokens() -> None:
    assert build_note("w", flops=3e19, tokens=1e12).operations == 3e19
    assert build_note("w", tokens=1e12).operations == 2e19
    assert build_note("w", masking=0.2).operations is None
