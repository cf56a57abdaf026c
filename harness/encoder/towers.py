"""The towers of a loaded model: a Router has one for each side, every other model has one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from harness.types import ROLES, Role

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Router
    from torch import nn


WIDENED = ("token_embeddings", "sentence_embedding")
"""What a backbone leaves; all that follows is computed in float32."""


def _routers(model: SentenceTransformer) -> list[Router]:
    """Every Router of the model, at any depth."""
    from sentence_transformers.models import Router

    return [module for module in model.modules() if isinstance(module, Router)]


def route(model: SentenceTransformer, role: Role) -> dict[str, str]:
    """What the library's `encode` is told so that a text of that side takes its tower, if there is one."""
    return {"task": role} if any(role in router.sub_modules for router in _routers(model)) else {}


def roles(model: SentenceTransformer) -> list[Role]:
    """The sides whose texts take different ways through the model; one alone has no side."""
    found = _routers(model)
    if not found:
        return [""]
    ways = {side: route(model, side).get("task", found[0].default_route) for side in ROLES}
    first = {way: side for side, way in reversed(ways.items()) if way is not None}
    return [side for side in ROLES if side in first.values()]


def input_modules(model: SentenceTransformer) -> list[nn.Module]:
    """The modules that texts enter by: the first one, or the first one of each tower of a Router."""
    return list(_entered(model[0]))


def backbone_modules(model: SentenceTransformer) -> list[nn.Module]:
    """Every model of transformers within the modules."""
    found = [getattr(module, "auto_model", None) for module in model.modules()]
    return [backbone for backbone in found if backbone is not None]


def dtype_as_run(model: SentenceTransformer) -> str:
    """The dtype that the backbone computes in, such as "float32"."""
    computing = [*backbone_modules(model), model]
    dtypes = (str(parameter.dtype) for module in computing for parameter in module.parameters())
    return next(dtypes, "torch.float32").split(".")[-1]


def attention(model: SentenceTransformer) -> str:
    """The names of the attention backends, "" where the model has none."""
    return "+".join(dict.fromkeys(filter(None, map(_attention, backbone_modules(model)))))


def notes(model: SentenceTransformer) -> list[str]:
    """What is worth saying of how the backbones run."""
    return list(dict.fromkeys(note for backbone in backbone_modules(model) for note in _notes(backbone)))


def _notes(backbone: nn.Module) -> list[str]:
    own = getattr(backbone, "notes", None)
    if isinstance(own, list):
        return own
    return [f"{type(backbone).__name__} ran through transformers' own class, with its padding"]


def _attention(backbone: nn.Module) -> str:
    """That of our network as it ran, that of transformers as it is set."""
    set_ = getattr(getattr(backbone, "config", None), "_attn_implementation", None)
    return str(getattr(backbone, "attention_as_run", set_) or "")


def widen(features: dict[str, Any]) -> dict[str, Any]:
    """The same features, those of WIDENED in float32."""
    for name in WIDENED:
        if name in features and features[name] is not None:
            features[name] = features[name].float()
    return features


def widen_towers(model: SentenceTransformer) -> None:
    """Have every module within a Router leave what the next one computes with in float32."""
    for router in _routers(model):
        for module in chain.from_iterable(_towers(router)):
            module.register_forward_hook(lambda _module, _args, features: widen(features))


def _entered(module: nn.Module) -> Iterator[nn.Module]:
    from sentence_transformers.models import Router

    if not isinstance(module, Router):
        yield module
        return
    for tower in _towers(module):
        yield from _entered(tower[0])


def _towers(router: Router) -> list[nn.Sequential]:
    return cast("list[nn.Sequential]", list(router.sub_modules.values()))
