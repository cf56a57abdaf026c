from __future__ import annotations

import cmath
import math
from typing import Any

import pytest
import torch

from harness.encoder.network.layers import _frequencies, _rotate, _table
from harness.errors import ModelError

WIDTH = 8


def one(theta: float = 100.0, length: int = 1, **scaling: Any) -> list[float]:
    found = _frequencies(WIDTH, theta, torch.tensor([length]), scaling=scaling or None)
    assert found.dtype == torch.float32
    return [float(value) for value in found[0]]


@pytest.mark.parametrize("interleaved", [False, True])
def test_a_pair_of_dimensions_is_a_complex_number_that_turns(interleaved: bool) -> None:
    positions = torch.tensor([0, 1, 5, 700])
    x = torch.randn(4, 2, WIDTH, dtype=torch.float64)
    found = _rotate(x, _table(positions, _frequencies(WIDTH, 100.0, positions)), interleaved=interleaved)
    for token, place in enumerate(positions.tolist()):
        for head in range(2):
            for pair in range(WIDTH // 2):
                at = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + WIDTH // 2)
                before = complex(*x[token, head, at].tolist())
                after = before * cmath.exp(1j * place * 100.0 ** (-2 * pair / WIDTH))
                assert complex(*found[token, head, at].tolist()) == pytest.approx(after, abs=1e-4)


def test_scores_depend_on_the_distance_alone() -> None:
    query, key = torch.randn(1, 1, WIDTH).expand(50, 1, WIDTH), torch.randn(1, 1, WIDTH).expand(50, 1, WIDTH)
    turn = _table(torch.arange(50), _frequencies(WIDTH, 100.0, torch.tensor([50])))
    query, key = (_rotate(x, turn, interleaved=False)[:, 0] for x in (query, key))
    scores = query @ key.T
    for distance in (-7, 0, 3):
        line = scores.diagonal(distance)
        torch.testing.assert_close(line, line[:1].expand_as(line), rtol=0, atol=1e-5)


def test_half_precision_is_turned_in_float32() -> None:
    x = torch.randn(300, 2, WIDTH).bfloat16()
    turn = _table(torch.arange(300), _frequencies(WIDTH, 10_000.0, torch.tensor([300])))
    found = _rotate(x, turn, interleaved=False)
    assert found.dtype == torch.bfloat16
    assert torch.equal(found, _rotate(x.float(), turn, interleaved=False).bfloat16())


def test_the_gradient_turns_back() -> None:
    x = torch.randn(5, 2, WIDTH, requires_grad=True)
    weights = torch.randn(5, 2, WIDTH)
    cosine, sine = _table(torch.arange(5), _frequencies(WIDTH, 100.0, torch.tensor([5])))
    (_rotate(x, (cosine, sine), interleaved=True) * weights).sum().backward()
    torch.testing.assert_close(x.grad, _rotate(weights, (cosine, -sine), interleaved=True))


def test_frequencies_fall_from_one() -> None:
    assert one() == pytest.approx([1.0, 100 ** (-1 / 4), 0.1, 100 ** (-3 / 4)])


def test_linear_scaling_divides() -> None:
    assert one(kind="linear", factor=4) == pytest.approx([f / 4 for f in one()])


def test_dynamic_scaling_grows_the_base_with_the_text_beyond_the_trained_length() -> None:
    scaling = {"kind": "dynamic", "factor": 2, "trained": 10}
    assert one(length=10, **scaling) == one(length=3, **scaling) == one()
    base = 100 * (2 * 30 / 10 - 1) ** (WIDTH / (WIDTH - 2))
    assert one(length=30, **scaling) == pytest.approx([base ** (-2 * n / WIDTH) for n in range(4)])


def test_dynamic_scaling_of_a_text_does_not_depend_on_its_neighbours() -> None:
    scaling = {"kind": "dynamic", "factor": 2, "trained": 10}
    both = _frequencies(WIDTH, 100.0, torch.tensor([30, 5]), scaling=scaling)
    for row, length in enumerate((30, 5)):
        alone = _frequencies(WIDTH, 100.0, torch.tensor([length]), scaling=scaling)
        assert torch.equal(both[row], alone[0])


def test_ntk_scaling_without_a_mixture_raises_the_base_and_lowers_all() -> None:
    expected = [(100 * 2) ** (-2 * n / WIDTH) / 2 ** (2 / WIDTH) for n in range(4)]
    assert one(kind="ntk", factor=2) == pytest.approx(expected)


def test_ntk_scaling_with_a_mixture_reaches_the_factor_at_the_last_pair() -> None:
    found = one(kind="ntk", factor=2, mixed=0.6)
    spread = [math.exp(math.log(2) * ((n + 1) / 4) ** 0.6) for n in range(4)]
    assert found == pytest.approx([f / s for f, s in zip(one(), spread, strict=True)])
    assert found[-1] == pytest.approx(one()[-1] / 2)


def test_an_unknown_scaling_is_an_error() -> None:
    with pytest.raises(ModelError, match="'yarn' is not known"):
        one(kind="yarn", factor=2)
