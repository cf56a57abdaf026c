"""Tiny two-stage models, and their vectors computed by hand in float64."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import tiny
from harness.encoder.sentence_transformer import SentenceTransformer, Transformer
from harness.encoder.two_stage import TwoStage
from harness.encoder.two_stage_settings import PREFIXES, TwoStageSettings

TEXT_LENGTH = 24
DROPOUTS = {
    "bert": ("hidden_dropout_prob", "attention_probs_dropout_prob"),
    "nomic_bert": ("resid_pdrop", "attn_pdrop"),
}
"""The fields of a config that say how much is dropped."""


def module(
    where: Path, body: str = "bert", *, dropout: float = 0.0, length: int = TEXT_LENGTH, **settings: Any
) -> TwoStage:
    """A two-stage module over two tiny networks of a family, each with two layers and weights of its own."""
    family, stages = tiny.families()[body], []
    layers = {"bert": {"num_hidden_layers": 2}, "nomic_bert": {"n_layer": 2}}.get(body, {})
    for seed, name in ((1, "text"), (2, "context")):
        folder = where / f"{body}-{name}"
        if not folder.is_dir():
            tiny.folder(family, folder, seed=seed, **layers)
        changes = dict.fromkeys(DROPOUTS.get(body, ()), dropout)
        stage = Transformer(str(folder), model_args={"dtype": torch.float32}, config_args=changes)
        stage.max_seq_length = length
        stages.append(stage)
    torch.manual_seed(3)
    found = TwoStage(*stages, TwoStageSettings(**{"size": 6, "prompts": 3, **settings}))
    for name, parameter in found.named_parameters():
        if "_stage" not in name:
            torch.nn.init.normal_(parameter, std=0.3)
    return found.eval()


def save(target: Path, body: str = "bert", **settings: Any) -> Path:
    """A folder with such a module and the authors' prefixes."""
    model = SentenceTransformer(
        modules=[module(target.parent, body, **settings)], device="cpu", similarity_fn_name="cosine"
    )
    model.prompts = dict(PREFIXES)
    model.save(str(target), create_model_card=False)
    return target


# By hand: one text, one token row at a time, from the tensors alone


def _name_stage(state: Mapping[str, Tensor], stage: str) -> str:
    """The beginning of the names of a stage's network, which follows sentence-transformers' version."""
    return next(name for name in state if name.startswith(f"{stage}.")).partition("embeddings.")[0]


def context_vector(state: Mapping[str, Tensor], shape: Any, ids: Sequence[int]) -> Tensor:
    """The context vector of a document with these token ids."""
    stage = _name_stage(state, "context_stage")
    rows = state[f"{stage}embeddings.tokens.weight"][list(ids)]
    hidden = _encoder(state, stage, shape, rows, range(len(ids)))
    return _mlp(state, "context_head", hidden.mean(dim=0), lambda x: _gelu(x))


def text_vector(
    state: Mapping[str, Tensor], shape: Any, ids: Sequence[int], context: Tensor, settings: TwoStageSettings
) -> Tensor:
    """The vector of a text with these token ids behind context vectors, (size, width)."""
    width, size, prompts = shape.hidden_size, settings.size, settings.prompts
    soft = _mlp(state, "prompt_head", torch.ones(width, dtype=torch.float64), lambda x: x.clamp(min=0))
    stage = _name_stage(state, "text_stage")
    rows = state[f"{stage}embeddings.tokens.weight"][list(ids)]
    sequence = torch.cat([context, soft.view(prompts, width), rows])
    places = list(range(len(sequence)))
    if shape.positions == "rotary" and settings.rotary_from == "text":
        places = [0] * (size + prompts) + list(range(len(ids)))
    elif shape.positions == "rotary":
        places = [0] * size + list(range(prompts + len(ids)))
    hidden = _encoder(state, stage, shape, sequence, places)
    x = (hidden if settings.pooling == "all" else hidden[size + prompts :]).mean(dim=0)
    return x + _mlp(state, "output_head", x, lambda y: y.clamp(min=0))


def _encoder(state: Mapping[str, Tensor], at: str, shape: Any, rows: Tensor, places: Sequence[int]) -> Tensor:
    """The last hidden states of one sequence through post-norm blocks, learned or rotary positions."""
    own = {name.removeprefix(at): tensor for name, tensor in state.items() if name.startswith(at)}
    x = rows + own["embeddings.types.weight"][0]
    if shape.positions == "learned":
        x = x + own["embeddings.positions.weight"][list(places)]
    x = _norm(own, "embeddings.norm", x, shape.norm_eps)
    for layer in range(shape.num_hidden_layers):
        at = f"layers.{layer}."
        x = _norm(own, at + "attention_norm", x + _attention(own, at, shape, x, places), shape.norm_eps)
        up = _linear(own, at + "mlp.up", x)
        if shape.gated:
            first, second = up[:, : up.shape[1] // 2], up[:, up.shape[1] // 2 :]
            inside, gate = (second, first) if shape.gate_first else (first, second)
            if shape.gate_first is None:
                inside, gate = up, _linear(own, at + "mlp.gate", x)
            up = inside * (gate * torch.sigmoid(gate))
        else:
            up = _gelu(up)
        x = _norm(own, at + "mlp_norm", x + _linear(own, at + "mlp.down", up), shape.norm_eps)
    return x


def _attention(own: Mapping[str, Tensor], at: str, shape: Any, x: Tensor, places: Sequence[int]) -> Tensor:
    width, heads, each = shape.hidden_size, shape.num_attention_heads, shape.head_dim
    if shape.qkv == "split":
        parts = [_linear(own, f"{at}attention.{name}", x) for name in ("query", "key", "value")]
    else:
        parts = list(_linear(own, at + "attention.qkv", x).split(width, dim=1))
    out = torch.zeros(len(x), width, dtype=torch.float64)
    for head in range(heads):
        query, key, value = (part[:, head * each : (head + 1) * each] for part in parts)
        if shape.positions == "rotary":
            query, key = (_turned(part, places, shape.rotary_theta) for part in (query, key))
        weights = (query @ key.T / math.sqrt(each)).softmax(dim=1)
        out[:, head * each : (head + 1) * each] = weights @ value
    return _linear(own, at + "attention.out", out)


def _turned(x: Tensor, places: Sequence[int], theta: float) -> Tensor:
    """Rotary positions, pair by pair: dimension i with i + half."""
    half, out = x.shape[1] // 2, x.clone()
    for row, place in enumerate(places):
        for i in range(half):
            angle = place / theta ** (2 * i / x.shape[1])
            first, second = x[row, i], x[row, i + half]
            out[row, i] = first * math.cos(angle) - second * math.sin(angle)
            out[row, i + half] = first * math.sin(angle) + second * math.cos(angle)
    return out


def _linear(own: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    found = x @ own[f"{name}.weight"].T
    return found + own[f"{name}.bias"] if f"{name}.bias" in own else found


def _norm(own: Mapping[str, Tensor], name: str, x: Tensor, eps: float) -> Tensor:
    centred = x - x.mean(dim=1, keepdim=True)
    scaled = centred / (centred.pow(2).mean(dim=1, keepdim=True) + eps).sqrt()
    return scaled * own[f"{name}.weight"] + own[f"{name}.bias"]


def _mlp(state: Mapping[str, Tensor], name: str, x: Tensor, activation: Any) -> Tensor:
    return _linear(state, f"{name}.2", activation(_linear(state, f"{name}.0", x)))


def _gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


# Gradients

WORDS = ("the cat", "sat on the mat", "a query: 42", "hello, world", "mat", "on; on", "cat, cat and a mat")


def texts(count: int, *, first: int = 0) -> list[str]:
    """Different texts of different lengths."""
    return [f"{WORDS[n % len(WORDS)]} {n} {'x' * (n % 5)}" for n in range(first, first + count)]


def chunks(tokenize: Any, rows: Sequence[str], sizes: Sequence[int]) -> list[Any]:
    """The features of texts in chunks of these sizes."""
    ends = [sum(sizes[: n + 1]) for n in range(len(sizes))]
    return [tokenize(list(rows[end - size : end])) for size, end in zip(sizes, ends, strict=True)]


def info_nce(vectors: list[Tensor]) -> Tensor:
    """The cross-entropy of each query's document among all, of cosines times 10."""
    query, document = (torch.nn.functional.normalize(one, dim=1) for one in vectors)
    return torch.nn.functional.cross_entropy(query @ document.T * 10, torch.arange(len(query)))


def gradients(model: TwoStage) -> dict[str, Tensor]:
    """The gradients of a model by name, None left out; they are zero afterwards."""
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def plain_loss(model: TwoStage, context: Sequence[Any], columns: Sequence[Sequence[Any]]) -> Tensor:
    """The loss of the same chunks, in the same order, by autograd alone."""
    shared = torch.cat([model.compute_context_vectors(one) for one in context]) if context else None
    return info_nce(
        [torch.cat([model.compute_text_vectors(f, shared) for f in column]) for column in columns]
    )


def batch(model: TwoStage, rank: int) -> tuple[list[Any], list[list[Any]]]:
    """The chunks of the context, and those of seven queries and documents, of one process."""
    first = 100 * rank
    context = chunks(model.tokenize_context, texts(6, first=first + 50), (4, 2))
    sizes = ((3, 3, 1), (2, 5))
    return context, [
        chunks(model.tokenize, texts(7, first=first + 20 * n), size) for n, size in enumerate(sizes)
    ]


def process(_: int, where: str, rank: int) -> None:
    """One of two processes, wrapped by torch as in training: the gradients of its batch, in a file."""
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    from finetune.cde.gradient_cache import TwoStageGradients

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{where}/store", rank=rank, world_size=2)
    model = module(Path(where), dropout=0.2, sequence_dropout=0.2).double().train()
    wrapped = DistributedDataParallel(model, find_unused_parameters=True)
    torch.manual_seed(rank)
    TwoStageGradients(wrapped.module)(*batch(model, rank), info_nce).backward()
    torch.save(gradients(model), Path(where, f"gradients-{rank}.pt"))
    distributed.destroy_process_group()
