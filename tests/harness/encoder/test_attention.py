from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import plain_attention
import tiny_networks
from harness.core.errors import UsageError
from harness.encoder.attention import interface, kernels
from harness.encoder.attention.interface import Needs, Sdpa
from harness.encoder.attention.kernels import BACKENDS
from harness.encoder.library_load import enable_checkpointing
from harness.encoder.network.model import EncoderModel, choose_backend
from harness.encoder.network.pretrained import EncoderConfig

CPU = torch.device("cpu")
SLOPES = (2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8)
"""Those of the ALiBi paper for four heads."""

LENGTHS = (150, 97, 97, 70, 33, 12, 10, 9, 1, 1)
EQUAL = (40, 40, 40)
WINDOWS = (None, 0, 3, 20, 200)


def run(name: str, lengths: tuple[int, ...], needs: Needs, seen: Any, *packed: Any) -> torch.Tensor:
    return BACKENDS[name].build_layout(lengths, seen, CPU).compute_attention(*packed, needs)


def group_as_on_gpu(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Texts share calls as on a GPU, of at most so many bytes."""
    monkeypatch.setattr(interface, "_is_apart", lambda device: True)
    monkeypatch.setattr(interface, "CALL_BYTES", most)


@pytest.fixture(params=["groups", "few calls"])
def calls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts are grouped as on a CPU, or share calls."""
    if request.param == "few calls":
        group_as_on_gpu(monkeypatch, 400_000)


@pytest.mark.usefixtures("calls")
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


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize("alibi", [False, True])
@pytest.mark.parametrize("some", [False, True])
@pytest.mark.parametrize("window", WINDOWS)
def test_sdpa_gives_the_gradients_of_attention(window: int | None, some: bool, alibi: bool) -> None:
    needs = Needs(window=window, slopes=SLOPES if alibi else None, partly=some)
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
    assert first.span == (0, tokens)
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


def count_calls(lengths: tuple[int, ...], needs: Needs) -> int:
    layout: Any = Sdpa().build_layout(lengths, None, CPU)
    layout.compute_attention(*plain_attention.tokens(lengths), needs)
    (calls,) = layout.calls.values()
    return len(calls)


@pytest.mark.parametrize(
    ("needs", "most", "calls"),
    [
        (Needs(), 2**29, 1),
        (Needs(window=3), 2**29, 1),
        (Needs(window=100), 2**29, 1),
        (Needs(slopes=SLOPES), 2**29, 1),
        # 4 heads of 152 columns of float64 for 152 rows of the first three texts.
        (Needs(slopes=SLOPES), 3 * 4 * 8 * 152 * 152, 2),
        # 96 columns for each token of a text.
        (Needs(window=3), 8 * 96 * (150 + 97), 2),
    ],
)
def test_a_gpu_has_as_few_calls_as_memory_allows(
    monkeypatch: pytest.MonkeyPatch, needs: Needs, most: int, calls: int
) -> None:
    group_as_on_gpu(monkeypatch, most)
    assert count_calls(LENGTHS, needs) == calls


@pytest.mark.parametrize(
    ("asked", "needs", "reason"),
    [
        ("varlen", Needs(), "it needs a GPU"),
        ("varlen", Needs(slopes=SLOPES, gradients=True), "it has ALiBi in inference alone"),
        ("efficient", Needs(window=3), "it has no windows and no ALiBi"),
    ],
)
def test_a_backend_that_cannot_gives_way_and_says_so(asked: str, needs: Needs, reason: str) -> None:
    backend, note = choose_backend(CPU, torch.float32, needs, asked)
    assert backend.name == "sdpa"
    assert note == f"attention backend {asked}: {reason}, so sdpa was used"


@pytest.fixture
def forget_flash_attn(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Forgets whether flash-attn is there, which a process looks for once."""
    monkeypatch.delitem(sys.modules, "flash_attn", raising=False)
    forget = kernels._explain_flash_absence.cache_clear
    forget()
    yield forget
    forget()


def test_flash_says_whether_it_is_missing_or_broken(
    monkeypatch: pytest.MonkeyPatch, forget_flash_attn: Callable[[], None]
) -> None:
    def explain(module: object) -> str:
        monkeypatch.setitem(sys.modules, "flash_attn", module)
        forget_flash_attn()
        return str(BACKENDS["flash"].explain_refusal(CPU, torch.float16, Needs()))

    assert explain(None) == "flash-attn is not installed"
    assert "does not import" in explain(ModuleType("flash_attn"))
    assert explain(SimpleNamespace(flash_attn_varlen_func=print)) == "it needs a GPU"


@pytest.mark.usefixtures("forget_flash_attn")
def test_flash_attn_4_alone_is_no_flash_attn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is a namespace package of that name, without the function."""
    (tmp_path / "flash_attn" / "cute").mkdir(parents=True)
    (tmp_path / "flash_attn" / "cute" / "__init__.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    gpu(monkeypatch)
    backend, _ = choose_backend(torch.device("cuda"), torch.bfloat16, Needs(slopes=SLOPES, gradients=True))
    assert backend.name == "sdpa"
    assert "cannot import name" in str(BACKENDS["flash"].explain_refusal(CPU, torch.float16, Needs()))
    monkeypatch.delitem(sys.modules, "flash_attn")


def gpu(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int] = (9, 0), **reasons: str) -> None:
    """Kernels run as on a GPU of that capability, but for those that have a reason against them."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
    plain_attention.trust_kernels(monkeypatch, **reasons)


@pytest.mark.parametrize(
    ("needs", "dtype", "backend"),
    [
        (Needs(), torch.bfloat16, "varlen"),
        (Needs(window=64), torch.float16, "varlen"),
        (Needs(partly=True), torch.bfloat16, "varlen"),
        (Needs(partly=True, window=64), torch.bfloat16, "sdpa"),
        (Needs(dropout=0.1, gradients=True), torch.bfloat16, "varlen"),
        (Needs(window=64, dropout=0.1, gradients=True), torch.bfloat16, "varlen"),
        (Needs(head_dim=12), torch.bfloat16, "efficient"),
        (Needs(head_dim=512), torch.bfloat16, "efficient"),
        (Needs(head_dim=12, window=64), torch.bfloat16, "sdpa"),
        (Needs(), torch.float32, "efficient"),
        (Needs(dropout=0.1, gradients=True, partly=True), torch.float32, "efficient"),
        (Needs(window=64), torch.float32, "sdpa"),
        (Needs(), torch.float64, "sdpa"),
        (Needs(slopes=SLOPES), torch.bfloat16, "varlen"),
        (Needs(slopes=SLOPES, gradients=True), torch.bfloat16, "sdpa"),
        (Needs(slopes=SLOPES, dropout=0.1), torch.bfloat16, "sdpa"),
        (Needs(slopes=SLOPES, partly=True), torch.bfloat16, "sdpa"),
        (Needs(slopes=SLOPES), torch.float32, "sdpa"),
    ],
)
def test_what_runs_on_a_gpu_without_flash_attn(
    monkeypatch: pytest.MonkeyPatch, needs: Needs, dtype: torch.dtype, backend: str
) -> None:
    gpu(monkeypatch, flash="flash-attn is not installed")
    assert choose_backend(torch.device("cuda"), dtype, needs)[0].name == backend


def test_an_older_gpu_runs_float16_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu(monkeypatch, (7, 5))
    chosen = [choose_backend(torch.device("cuda"), dtype, Needs())[0].name for dtype in kernels.HALVES]
    assert chosen == ["efficient", "sdpa"]


@pytest.mark.usefixtures("forget_flash_attn")
def test_flash_attn_brings_the_gradient_of_alibi(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu(monkeypatch, (8, 0))
    monkeypatch.setitem(sys.modules, "flash_attn", SimpleNamespace(flash_attn_varlen_func=print))
    needs = Needs(slopes=SLOPES, dropout=0.1, gradients=True)
    assert choose_backend(torch.device("cuda"), torch.bfloat16, needs)[0].name == "flash"


# The test of a kernel at its first use


class Faulty(torch.autograd.Function):
    """What the kernel gives, with another gradient."""

    @staticmethod
    def forward(ctx: Any, out: torch.Tensor) -> torch.Tensor:
        return out.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 1.1


def plain_kernel(query: Any, key: Any, value: Any, bounds: Any, needs: Needs) -> torch.Tensor:
    """Attention within the bounds, text by text."""
    parts = []
    for n, (start, stop) in enumerate(pairwise(bounds.queries.tolist())):
        keys = slice(*bounds.keys[n : n + 2].tolist())
        near = (torch.arange(stop - start)[:, None] - torch.arange(keys.stop - keys.start)).abs()
        scores = torch.einsum("qhd,khd->hqk", query[start:stop], key[keys]) / query.shape[-1] ** 0.5
        if needs.slopes is not None:
            scores = scores - torch.tensor(needs.slopes)[:, None, None] * near
        if needs.window is not None:
            scores = scores.masked_fill(near > needs.window, float("-inf"))
        weights = nn.functional.dropout(scores.softmax(dim=-1), needs.dropout)
        parts.append(torch.einsum("hqk,khd->qhd", weights.to(value), value[keys]))
    return torch.cat(parts)


def change(kernel: Any, **changes: Any) -> Any:
    """A kernel that gets other needs."""
    return lambda query, key, value, bounds, needs: kernel(
        query, key, value, bounds, replace(needs, **{name: new(needs) for name, new in changes.items()})
    )


def drop_anew(query: Any, key: Any, value: Any, bounds: Any, needs: Needs) -> torch.Tensor:
    """The gradient of other draws than those of the result."""
    first, second = (plain_kernel(query, key, value, bounds, needs) for _ in range(2))
    return second + (first - second).detach()


def fail(*_: Any) -> torch.Tensor:
    raise RuntimeError("no kernel image\nof this device")


TRAINED = Needs(dropout=0.1, gradients=True)
FAULTS: dict[str, tuple[Needs, Any]] = {
    "window": (Needs(window=64), change(plain_kernel, window=lambda needs: needs.window - 1)),
    "ALiBi": (Needs(slopes=SLOPES), change(plain_kernel, slopes=lambda needs: None)),
    "gradient": (Needs(gradients=True), lambda *given: Faulty.apply(plain_kernel(*given))),
    "partly": (
        Needs(partly=True),
        lambda *given: plain_kernel(*given[:3], replace(given[3], keys=given[3].queries), given[4]),
    ),
    "no dropout": (TRAINED, change(plain_kernel, dropout=lambda needs: 0.0)),
    "more dropout": (TRAINED, change(plain_kernel, dropout=lambda needs: 2 * needs.dropout)),
    "other dropout backwards": (TRAINED, drop_anew),
    "not a number": (Needs(), lambda *given: plain_kernel(*given) * float("nan")),
}


def build_backend(kernel: Any) -> Any:
    """A backend that runs a kernel on any device."""
    return replace(BACKENDS["varlen"], kernel=kernel, explain_limits=lambda *_: None)  # type: ignore[type-var]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "needs",
    [
        *(needs for needs, _ in FAULTS.values()),
        *(replace(TRAINED, **more) for more in ({"partly": True}, {"window": 9, "slopes": SLOPES})),
    ],
)
def test_a_right_kernel_is_taken(needs: Needs, dtype: torch.dtype) -> None:
    state = torch.get_rng_state()
    with torch.inference_mode():
        assert build_backend(plain_kernel).explain_refusal(CPU, dtype, needs) is None
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_kernel_is_refused(fault: str, dtype: torch.dtype) -> None:
    needs, kernel = FAULTS[fault]
    reason = build_backend(kernel).explain_refusal(CPU, dtype, needs)
    assert "it fails a test (a share of" in str(reason)


def test_a_kernel_that_raises_is_refused_with_its_first_line() -> None:
    reason = build_backend(fail).explain_refusal(CPU, torch.float32, Needs())
    assert reason == "it fails a test (no kernel image)"


def test_a_kernel_is_tested_once() -> None:
    runs = []
    backend = build_backend(lambda *given: runs.append(1) or plain_kernel(*given))
    for window in (64, 65):
        assert backend.explain_refusal(CPU, torch.float32, Needs(window=window)) is None
    assert len(runs) == 1


def test_keys_that_nobody_sees_get_no_gradient() -> None:
    """A kernel leaves the gradients of what is behind the last bound unset."""

    class Unset(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, packed: torch.Tensor, count: int) -> torch.Tensor:
            ctx.count = count
            return packed.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            gradient = gradient.clone()
            gradient[ctx.count :] = torch.nan
            return gradient, None

    def kernel(query: Any, key: Any, value: Any, bounds: Any, needs: Needs) -> torch.Tensor:
        key, value = (Unset.apply(packed, int(bounds.keys[-1])) for packed in (key, value))
        return plain_kernel(query, key, value, bounds, needs)

    lengths, needs = (9, 5, 1), Needs(partly=True, gradients=True)
    seen = plain_attention.partly(lengths)
    packed = [t.requires_grad_() for t in plain_attention.tokens(lengths)]
    layout = build_backend(kernel).build_layout(lengths, seen, CPU)
    found = layout.compute_attention(packed[0], packed[1], packed[2], needs)
    expected = plain_attention.attend(*packed, lengths, seen, needs)
    torch.testing.assert_close(found, expected)
    for one, other in zip(
        torch.autograd.grad(found.sum(), packed), torch.autograd.grad(expected.sum(), packed), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_an_unknown_backend_is_an_error_that_names_those_there_are() -> None:
    with pytest.raises(UsageError, match="No attention backend is called 'spda'") as error:
        choose_backend(CPU, torch.float32, Needs(), "spda")
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
            enable_checkpointing(model, reentrant=reentrant)
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
