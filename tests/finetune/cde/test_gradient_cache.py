"""Gradient caching over two stages, compared with autograd alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

import two_stage_models
from finetune.cde.gradient_cache import TwoStageGradients, split_features
from harness.encoder.two_stage import TwoStage
from two_stage_models import batch, gradients, info_nce, plain_loss


def both(model: TwoStage, chunks: object) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
    """The gradients of a batch by autograd and by the cache, from one random state."""
    context, columns = chunks  # type: ignore[misc]
    torch.manual_seed(7)
    plain_loss(model, context, columns).backward()
    plain, after = gradients(model), torch.get_rng_state()
    torch.manual_seed(7)
    TwoStageGradients(model)(context, columns, info_nce).backward()
    assert torch.equal(torch.get_rng_state(), after), "the random state goes on as without a cache"
    return plain, gradients(model)


def distance(plain: Mapping[str, Tensor], cached: Mapping[str, Tensor]) -> float:
    """The largest difference of a tensor's gradient, relative to its length.

    That of a key's bias is zero but for rounding, so 1e-8 of the whole gradient is the least length.
    """
    assert plain.keys() == cached.keys()
    least = 1e-8 * whole(plain)
    return max(float((plain[n] - cached[n]).norm() / max(float(plain[n].norm()), least)) for n in plain)


def whole(found: Mapping[str, Tensor]) -> float:
    """The length of the whole gradient."""
    return float(torch.cat([one.flatten() for one in found.values()]).norm())


@pytest.mark.parametrize("body", ["bert", "nomic_bert"])
def test_gradients_of_both_stages_are_those_of_autograd(tmp_path: Path, body: str) -> None:
    model = two_stage_models.module(tmp_path, body, dropout=0.2, sequence_dropout=0.2).double().train()
    plain, cached = both(model, batch(model, 0))
    assert distance(plain, cached) < 1e-6
    reached = {name.split(".")[0] for name, one in plain.items() if one.abs().max() > 0}
    assert reached == {"null", "context_stage", "text_stage", "context_head", "prompt_head", "output_head"}
    torch.manual_seed(8)  # dropout matters: with other random numbers the gradients are others
    plain_loss(model, *batch(model, 0)).backward()
    assert distance(plain, gradients(model)) > 1e-2


def test_chunks_change_nothing_without_dropout(tmp_path: Path) -> None:
    model = two_stage_models.module(tmp_path).double()
    whole = [model.tokenize(two_stage_models.texts(7, first=20 * n)) for n in range(2)]
    documents = model.tokenize_context(two_stage_models.texts(6, first=50))
    plain_loss(model, [documents], [[one] for one in whole]).backward()
    plain = gradients(model)
    context, columns = split_features(documents, 4), [split_features(one, 3) for one in whole]
    assert [len(one["input_ids"]) for one in columns[0]] == [3, 3, 1]
    (3 * TwoStageGradients(model)(context, columns, info_nce)).backward()
    assert distance({name: 3 * one for name, one in plain.items()}, gradients(model)) < 1e-6


def test_the_null_context_reaches_the_null_vector_alone(tmp_path: Path) -> None:
    model = two_stage_models.module(tmp_path, dropout=0.2).double().train()
    _, columns = batch(model, 0)
    plain, cached = both(model, ([], columns))
    assert distance(plain, cached) < 1e-6
    assert plain["null"].abs().max() > 0
    assert not any(name.startswith("context_") for name in plain)


@pytest.mark.parametrize("inside", [True, False], ids=["backward inside autocast", "outside"])
def test_bfloat16_is_bfloat16_in_both_runs(tmp_path: Path, inside: bool) -> None:
    model = two_stage_models.module(tmp_path, dropout=0.2).train()
    seen: list[torch.dtype] = []
    for head in (model.context_head, model.output_head):
        head.register_forward_hook(lambda _module, _args, out: seen.append(out.dtype))
    context, columns = batch(model, 0)
    torch.manual_seed(7)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = plain_loss(model, context, columns)
    loss.backward()
    plain = gradients(model)
    seen.clear()
    torch.manual_seed(7)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = TwoStageGradients(model)(context, columns, info_nce)
        if inside:
            loss.backward()
    if not inside:
        loss.backward()
    assert set(seen) == {torch.bfloat16}
    assert len(seen) == 2 * (2 + 3 + 2), "each chunk ran twice"
    cached = gradients(model)
    assert whole({name: plain[name] - cached[name] for name in plain}) < 0.03 * whole(plain)


@pytest.mark.slow
def test_two_processes_have_the_mean_of_both_batches(tmp_path: Path) -> None:
    model = two_stage_models.module(tmp_path, dropout=0.2, sequence_dropout=0.2).double().train()
    for rank in range(2):
        torch.manual_seed(rank)
        (plain_loss(model, *batch(model, rank)) / 2).backward()
    plain = gradients(model)
    # Not forked: threads of torch that another test of this process began would be waited for for ever.
    other = torch.multiprocessing.start_processes(  # type: ignore[no-untyped-call]
        two_stage_models.process, (str(tmp_path), 1), nprocs=1, start_method="spawn", join=False
    )
    two_stage_models.process(0, str(tmp_path), 0)
    assert other.join(timeout=60)
    for rank in range(2):
        found = torch.load(tmp_path / f"gradients-{rank}.pt", weights_only=True)
        assert distance(plain, found) < 1e-6
