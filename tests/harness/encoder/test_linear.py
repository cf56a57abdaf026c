from __future__ import annotations

from typing import Any

import pytest

from harness.encoder.engine import _use_onednn


def model() -> Any:
    import torch

    torch.manual_seed(0)
    layers = [torch.nn.Linear(24, 40), torch.nn.Linear(40, 7, bias=False)]
    return torch.nn.Sequential(*layers).eval()


@pytest.mark.parametrize("shape", [(24,), (1, 24), (5, 24), (3, 5, 24), (0, 24)])
def test_products_are_the_same(shape: tuple[int, ...]) -> None:
    import torch

    plain, fast = model(), model()
    _use_onednn(fast)
    assert "forward" in vars(fast[0])
    given = torch.randn(shape)
    with torch.inference_mode():
        assert torch.allclose(fast(given), plain(given), atol=1e-6)
        turned = torch.randn(*shape[:-2], 24, 3).transpose(-1, -2)
        assert torch.allclose(fast(turned), plain(turned), atol=1e-6)


def test_only_plain_float32_layers_change() -> None:
    import torch

    class Own(torch.nn.Linear):
        pass

    changed = torch.nn.ModuleList([Own(2, 2), torch.nn.Linear(2, 2).bfloat16(), torch.nn.Identity()])
    _use_onednn(changed)
    assert not any("forward" in vars(module) for module in changed)


def test_without_onednn_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    plain = model()
    _use_onednn(plain)
    assert "forward" not in vars(plain[0])
