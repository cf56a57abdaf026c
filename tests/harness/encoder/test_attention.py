from __future__ import annotations

import importlib.util
from itertools import accumulate, pairwise
from typing import Any

import pytest
import torch

import plain_attention
import tiny_networks
from harness.core.errors import UsageError
from harness.encoder import attention
from harness.encoder.attention import BACKENDS, Needs, Sdpa, choose
from harness.encoder.network.model import EncoderModel
from harness.encoder.network.pretrained import EncoderConfig

CPU = torch.device("cpu")
SLOPES = (2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8)
"""Those of the ALiBi paper for four heads."""

LENGTHS = (150, 97, 97, 70, 33, 12, 10, 9, 1, 1)
EQUAL = (40, 40, 40)
WINDOWS = (None, 0, 3, 20, 200)


def run(name: str, lengths: tuple[int, ...], needs: Needs, seen: Any, *packed: Any) -> torch.Tensor:
    return BACKENDS[name].build_layout(lengths, seen, CPU).compute_attention(*packed, needs)


@pytest.mark.parametrize("alibi", [False, True])
@pytest.mark.parametrize("groups", [4, 2, 1])
@pytest.mark.parametrize("some", [False, True])
def test_sdpa_computes_attention(alibi: bool, groups: int, some: bool) -> None:
    for lengths in (LENGTHS, EQUAL, (1,)):
        packed = plain_attention.tokens(lengths, groups=groups)
        seen = plain_attention.partly(lengths) if some else None
        for window in WINDOWS:
            needs = Needs(window=window, slopes=SLOPES if alibi else None, partly=some, head_dim=8)
            expected = plain_attention.attend(*packed, lengths, seen, needs)
            with torch.no_grad():
                found = run("sdpa", lengths, needs, seen, *packed)
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("some", [False, True])
@pytest.mark.parametrize("window", WINDOWS)
def test_sdpa_gives_the_gradients_of_attention(window: int | None, some: bool) -> None:
    needs = Needs(window=window, slopes=SLOPES if window is None else None, partly=some)
    seen = plain_attention.partly(LENGTHS, 0.3) if some else None
    packed = [t.requires_grad_() for t in plain_attention.tokens(LENGTHS, groups=2)]
    weights = plain_attention.tokens(LENGTHS, seed=1)[0]
    wanted = torch.autograd.grad(
        (plain_attention.attend(*packed, LENGTHS, seen, needs) * weights).sum(), packed
    )
    found = torch.autograd.grad((run("sdpa", LENGTHS, needs, seen, *packed) * weights).sum(), packed)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("needs", [Needs(), Needs(window=20), Needs(slopes=SLOPES)])
def test_sdpa_keeps_the_dtype(dtype: torch.dtype, tolerance: float, needs: Needs) -> None:
    packed = [t.to(dtype) for t in plain_attention.tokens(LENGTHS)]
    found = run("sdpa", LENGTHS, needs, None, *packed)
    assert found.dtype == dtype
    expected = plain_attention.attend(*packed, LENGTHS, None, needs)
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("window", [None, 3, 20])
def test_a_token_that_sees_nothing_gets_zeros(window: int | None) -> None:
    seen = torch.zeros(sum(LENGTHS), dtype=torch.bool)
    seen[torch.tensor(LENGTHS).cumsum(0) - 1] = True
    needs = Needs(window=window, partly=True)
    packed = plain_attention.tokens(LENGTHS)
    found = run("sdpa", LENGTHS, needs, seen, *packed)
    blind = (found == 0).all(dim=(1, 2))
    last = [place == length - 1 for length in LENGTHS for place in range(length)]
    distance = [length - 1 - place for length in LENGTHS for place in range(length)]
    assert blind.tolist() == [window is not None and far > window for far in distance]
    torch.testing.assert_close(found[last], packed[2][last])


@pytest.mark.parametrize("needs", [Needs(), Needs(window=5), Needs(slopes=SLOPES)])
def test_a_broken_text_does_not_reach_the_others(needs: Needs) -> None:
    lengths = (12, 11, 10, 9)
    packed = plain_attention.tokens(lengths)
    expected = run("sdpa", lengths, needs, None, *packed)
    for broken in packed:
        broken[12:23] = torch.nan
    found = run("sdpa", lengths, needs, None, *packed)
    assert found[12:23].isnan().all()
    torch.testing.assert_close(found[:12], expected[:12])
    torch.testing.assert_close(found[23:], expected[23:])


@pytest.mark.parametrize("name", BACKENDS)
def test_no_text_at_all_is_no_error(name: str) -> None:
    packed = plain_attention.tokens(())
    assert run(name, (), Needs(), None, *packed).shape == (0, 4, 8)


def test_a_long_windowed_text_is_never_attended_whole() -> None:
    tokens = 5000
    packed = [t.float() for t in plain_attention.tokens((tokens, 80), heads=1, groups=1)]
    layout = Sdpa().build_layout((tokens, 80), None, CPU)
    layout.compute_attention(*packed, Needs(window=64))
    (calls,) = layout.calls.values()  # type: ignore[attr-defined]
    first, second = calls
    assert first.tokens == tokens
    assert first.mask.bias.numel() < 200 * tokens
    assert second.length == 80


def test_texts_are_cut_into_runs_that_keep_to_the_bounds() -> None:
    lengths = sorted([n % 97 + 1 for n in range(0, 9000, 7)], reverse=True)
    layout: Any = Sdpa().build_layout(lengths, None, CPU)
    layout.compute_attention(*plain_attention.tokens(lengths), Needs())
    (calls,) = layout.calls.values()
    stops = [*accumulate(call.texts for call in calls)]
    found = [*pairwise((0, *stops))]
    assert [n for a, b in found for n in range(a, b)] == [*range(len(lengths))]
    for a, b in found:
        assert lengths[a] - lengths[b - 1] <= min(8, lengths[a] // 2)
        assert lengths[a] == lengths[b - 1] or lengths[a] * (b - a) <= 4096


@pytest.mark.parametrize(
    ("asked", "needs", "reason"),
    [
        ("varlen", Needs(), "it needs a GPU"),
        ("varlen", Needs(slopes=SLOPES), "it knows no ALiBi"),
    ],
)
def test_a_backend_that_cannot_gives_way_and_says_so(asked: str, needs: Needs, reason: str) -> None:
    backend, note = choose(CPU, torch.float32, needs, asked)
    assert backend.name == "sdpa"
    assert note == f"attention backend {asked}: {reason}, so sdpa was used"


def test_flash_says_whether_it_is_missing_or_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    attention._explain_flash_absence.cache_clear()
    assert "is not installed" in str(BACKENDS["flash"].explain_refusal(CPU, torch.float16, Needs()))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setitem(__import__("sys").modules, "flash_attn", None)
    attention._explain_flash_absence.cache_clear()
    assert "does not import" in str(BACKENDS["flash"].explain_refusal(CPU, torch.float16, Needs()))
    attention._explain_flash_absence.cache_clear()


@pytest.mark.parametrize(
    ("needs", "dtype", "backend"),
    [
        (Needs(), torch.bfloat16, "varlen"),
        (Needs(window=64), torch.float16, "varlen"),
        (Needs(partly=True), torch.bfloat16, "varlen"),
        (Needs(partly=True, window=64), torch.bfloat16, "sdpa"),
        (Needs(dropout=0.1), torch.bfloat16, "sdpa"),
        (Needs(head_dim=12), torch.bfloat16, "sdpa"),
        (Needs(head_dim=512), torch.bfloat16, "sdpa"),
        (Needs(), torch.float32, "sdpa"),
        (Needs(slopes=SLOPES), torch.bfloat16, "sdpa"),
        (Needs(slopes=SLOPES, dropout=0.1), torch.bfloat16, "sdpa"),
        (Needs(slopes=SLOPES, head_dim=8), torch.bfloat16, "sdpa"),
    ],
)
def test_what_runs_on_a_gpu_without_flash_attn(
    monkeypatch: pytest.MonkeyPatch, needs: Needs, dtype: torch.dtype, backend: str
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    monkeypatch.setattr(attention, "_explain_flash_absence", lambda: "flash-attn is not installed")
    monkeypatch.setattr(attention, "_has_varlen", lambda: True)
    assert choose(torch.device("cuda"), dtype, needs)[0].name == backend


def test_flash_attn_brings_dropout_and_alibi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (8, 0))
    monkeypatch.setattr(attention, "_explain_flash_absence", lambda: None)
    for needs in (Needs(dropout=0.1), Needs(slopes=SLOPES)):
        assert choose(torch.device("cuda"), torch.bfloat16, needs)[0].name == "flash"


def test_an_unknown_backend_is_an_error_that_names_those_there_are() -> None:
    with pytest.raises(UsageError, match="No attention backend is called 'spda'") as error:
        choose(CPU, torch.float32, Needs(), "spda")
    assert "Did you mean sdpa?" in str(error.value.hint)


def test_a_network_notes_what_ran_in_place_of_what_was_asked_for() -> None:
    model = tiny_networks.network(tiny_networks.small())
    given = tiny_networks.batch(tiny_networks.texts((9, 4), 0), 0)
    model(**given)
    assert (model.attention_as_run, model.notes) == ("sdpa", [])
    model.attention_asked = "varlen"
    model(**given)
    model(**given)
    assert model.notes == ["attention backend varlen: it needs a GPU, so sdpa was used"]


def test_attention_is_dropped_only_while_training() -> None:
    model = tiny_networks.network(tiny_networks.small(attention_dropout=0.5))
    given = tiny_networks.batch(tiny_networks.texts((9, 4), 0), 0)
    first, second = (model(**given).last_hidden_state for _ in range(2))
    assert torch.equal(first, second)
    model.train()
    first, second = (model(**given).last_hidden_state for _ in range(2))
    assert not torch.allclose(first, second)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("changes", [{"windows": (None, 5, 5)}, {"positions": "alibi"}])
def test_checkpointing_changes_no_gradient(changes: dict[str, Any], reentrant: bool) -> None:
    shape = tiny_networks.small(**changes)
    given = tiny_networks.batch(tiny_networks.texts((90, 40, 9, 8), 0), 0)
    given["attention_mask"][:, 3:5] = 0

    def gradients(checkpointing: bool) -> dict[str, torch.Tensor]:
        model = tiny_networks.network(shape).train()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        model(**given).last_hidden_state.pow(2).sum().backward()
        return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}

    plain, again = gradients(False), gradients(True)
    assert plain.keys() == again.keys()
    assert all(torch.equal(plain[name], again[name]) for name in plain)


@pytest.mark.parametrize("changes", [{"windows": (None, 5, 5)}, {"positions": "alibi"}])
def test_inference_mode_and_training_do_not_disturb_each_other(changes: dict[str, Any]) -> None:
    model = tiny_networks.network(tiny_networks.small(**changes))
    given = tiny_networks.batch(tiny_networks.texts((90, 40, 9, 8), 0), 0)
    with torch.inference_mode():
        expected = model(**given).last_hidden_state.clone()
    found = model(**given).last_hidden_state
    found.sum().backward()
    torch.testing.assert_close(found.detach(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("changes", [{"windows": (None, 5, 5)}, {"positions": "alibi"}])
def test_autocast_runs_in_half_precision_and_stays_near(changes: dict[str, Any]) -> None:
    model = tiny_networks.network(tiny_networks.small(**changes))
    given = tiny_networks.batch(tiny_networks.texts((90, 40, 9, 8), 0), 0)
    expected = model(**given).last_hidden_state
    with torch.autocast("cpu", torch.bfloat16):
        found = model(**given).last_hidden_state
    found.float().pow(2).sum().backward()
    apart = (found - expected).detach().abs().max()
    assert 0 < apart < 0.05 * expected.detach().abs().max()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())


def test_slopes_are_those_of_the_paper() -> None:
    eight = tuple(2.0 ** -(n + 1) for n in range(8))
    for heads, slopes in ((8, eight), (12, (*eight, *(2.0 ** -(n + 0.5) for n in range(4))))):
        same = {"num_attention_heads": heads, "num_key_value_heads": heads}
        shape = tiny_networks.small(positions="alibi", hidden_size=8 * heads, **same)
        model = EncoderModel(EncoderConfig.from_architecture(shape), shape)
        assert {one.slopes for one in model.modules() if hasattr(one, "slopes")} == {slopes}
