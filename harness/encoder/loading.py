"""Loading of a model folder into an Encoder, with an error wherever it would be another model.

Parameters that no file sets are detected, and are an error if the output depends on them.
"""

from __future__ import annotations

import pickle
import re
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import BoW, Normalize, Pooling, Transformer, WordEmbeddings
from torch import nn

from harness.core.arguments import list_allowed_tensors
from harness.core.encoding import Encoding, LateInteraction, parse_rope_scaling
from harness.core.errors import HarnessError, ModelError, UsageError
from harness.core.types import SIDES, Artifact, Role
from harness.encoder.attentive_pooling import AttentivePooling
from harness.encoder.backbones import check_family
from harness.encoder.engine import (
    Encoder,
    collect_backbones,
    collect_input_modules,
    embed_features,
    list_roles,
    route,
    widen_towers,
)
from harness.encoder.folder.description import NO_LIMIT, Description, describe
from harness.encoder.folder.modules_and_pooling import ATTENTION
from harness.encoder.folder.preflight import check_trust
from harness.encoder.library_load import (
    PROBE,
    LoadReport,
    UninitialisedTensor,
    build_pooling,
    collect_load_report,
    counts_places,
    get_max_length,
    get_pooled_dimension,
    hide_library_output,
    name_modes,
    tokenize_batch,
)
from harness.encoder.modules import Truncate
from harness.encoder.network.model import EncoderModel
from harness.encoder.resolved_encoding import require_runnable
from harness.encoder.sentence_transformer import SentenceTransformer as OurSentenceTransformer
from harness.encoder.token_encoder import (
    TokenEncoder,
    build_side_features,
    compute_token_vectors,
    open_modules,
)
from harness.encoder.two_stage import ContextualEncoder


def load_encoder(
    artifact: Artifact, encoding: Encoding, *, device: str, batch_tokens: int | None = None
) -> Encoder:
    """The model of `artifact` with one vector a text; arguments and errors as in `load_any`."""
    encoder = load_any(artifact, encoding, device=device, batch_tokens=batch_tokens)
    assert isinstance(encoder, Encoder)
    return encoder


def load_any(
    artifact: Artifact, encoding: Encoding, *, device: str, batch_tokens: int | None = None
) -> Encoder | TokenEncoder:
    """The model of `artifact`, ready to encode as `encoding` says.

    Args:
        artifact: The model and its folder; nothing is fetched.
        encoding: The settings, from `resolve_encoding`.
        device: A torch device, such as "cpu" or "cuda:0".
        batch_tokens: Padded tokens that are encoded at once; None for the device's default.

    Raises:
        ModelError: The folder does not hold a whole model, needs code that is not allowed, holds a pickle
            with code, or leaves parameters unset that the output depends on.
        UsageError: The device cannot run the requested dtype.
    """
    require_runnable(encoding.dtype, device)
    description = describe(artifact.folder, own_code=artifact.trust_remote_code)
    check_trust(artifact)
    check_family(artifact, encoding)
    try:
        with hide_library_output():
            build = _build if encoding.late_interaction is None else _build_late_interaction
            model, report, notes = build(artifact, encoding, description, device)
            _require_loaded(model, encoding, report, artifact.name)
            _fuse_projections(model, device)
            encoder = _create_engine(model, encoding, batch_tokens)
            encoder.notes += [*report.notes, *notes]
            return encoder
    except HarnessError:
        raise
    except Exception as error:
        raise _explain_load_error(artifact, error) from error


def _build(
    artifact: Artifact, encoding: Encoding, description: Description, device: str
) -> tuple[SentenceTransformer, LoadReport, list[str]]:
    with collect_load_report(list_allowed_tensors(artifact.allow)) as report:
        model = OurSentenceTransformer(
            str(artifact.folder),
            device=device,
            local_files_only=True,
            trust_remote_code=artifact.trust_remote_code,
            model_kwargs=build_model_args(artifact, encoding),
        )
    model.eval()
    widen_towers(model)
    notes = _set_lengths(model, encoding, description)
    _set_pooling(model, encoding.pooling)
    for module in collect_input_modules(model) if counts_places(encoding.pooling) else ():
        if isinstance(module, Transformer):
            module.tokenizer.padding_side = "right"
    # As sentence-transformers does: a model's own Normalize comes before the cut, one asked for after it.
    cut = [] if encoding.truncate_dim is None else [Truncate(encoding.truncate_dim)]
    model.extend([] if description.normalize else cut)
    if encoding.normalize and not isinstance(model[-1], Normalize):
        model.append(Normalize())
    elif not encoding.normalize and isinstance(model[-1], Normalize):
        del model[-1]
    model.extend(cut if description.normalize else [])
    return model, report, notes


def _fuse_projections(model: SentenceTransformer, device: str) -> None:
    """Compute queries, keys and values at once on a GPU, where each product costs its launch."""
    for backbone in collect_backbones(model):
        if isinstance(backbone, EncoderModel) and torch.device(device).type != "cpu":
            backbone.fuse_projections()


def _create_engine(
    model: SentenceTransformer, encoding: Encoding, batch_tokens: int | None
) -> Encoder | TokenEncoder:
    if encoding.context is not None:
        return ContextualEncoder(model, encoding, batch_tokens=batch_tokens)
    if encoding.late_interaction is None:
        return Encoder(model, encoding, batch_tokens=batch_tokens)
    return TokenEncoder(model, encoding, batch_tokens=batch_tokens)


def build_model_args(artifact: Artifact, encoding: Encoding) -> dict[str, Any]:
    """The arguments with which a backbone is loaded."""
    kind, factor = parse_rope_scaling(encoding.rope_scaling or "")
    scaling = {"kind": kind, "factor": factor, "length": encoding.max_length}
    return {
        "dtype": getattr(torch, encoding.dtype),
        # torch.load then unpickles tensors alone, and refuses a pickle with code.
        "weights_only": True,
        # A tensor of another shape becomes part of the report.
        "ignore_mismatched_sizes": True,
        **({"allow_extra": patterns} if (patterns := list_allowed_tensors(artifact.allow)) else {}),
        **({"scaling": scaling} if kind else {}),
    }


def _build_late_interaction(
    artifact: Artifact, encoding: Encoding, _description: Description, device: str
) -> tuple[SentenceTransformer, LoadReport, list[str]]:
    with collect_load_report(list_allowed_tensors(artifact.allow)) as report:
        args = {"trust_remote_code": artifact.trust_remote_code, **build_model_args(artifact, encoding)}
        model = open_modules(artifact.folder, args).to(device)
    model.eval()
    return model, report, []


def _set_lengths(model: SentenceTransformer, encoding: Encoding, description: Description) -> list[str]:
    """Cut texts at the requested length, or where the positions end; returns notes."""
    towers = list(zip(collect_input_modules(model), description.lengths, strict=True))
    if encoding.max_length == description.max_length:
        for module, length in towers:
            current_length = get_max_length(module)
            # -1 and 32.0 are lengths in files that the library takes as they are.
            unusable = not isinstance(current_length, int) or current_length < 1
            if unusable or (length.table is not None and current_length > length.table):
                _cut(module, length.most)
        return [
            f"texts are cut at {length.most} tokens, not at {length.named}: the positions end there"
            for length in description.lengths
            if length.named is not None and length.table is not None and length.named > length.table
        ]
    is_free = description.is_unbound or encoding.rope_scaling is not None
    limits = [NO_LIMIT if is_free else length.limit or NO_LIMIT for _, length in towers]
    cut = [_cut(m, min(encoding.max_length, limit)) for (m, _), limit in zip(towers, limits, strict=True)]
    if not any(cut):
        raise UsageError(
            f"{description.name} cannot truncate its input.", hint="Leave the maximum length out."
        )
    return []


def _cut(module: nn.Module, length: int) -> bool:
    """Set the length at which a module cuts texts; False if it cannot cut."""
    if isinstance(module, BoW | WordEmbeddings) or not hasattr(module, "max_seq_length"):
        return False
    try:
        setattr(module, "max_seq_length", length)  # noqa: B010
    except AttributeError:
        # The module has a fixed length and cuts nothing.
        return False
    return True


def _set_pooling(model: SentenceTransformer, mode: str) -> None:
    for place, module in enumerate(model):
        current_mode = name_modes(module) if isinstance(module, Pooling) else ATTENTION
        if isinstance(module, Pooling | AttentivePooling) and current_mode != mode:
            model[place] = build_pooling(
                get_pooled_dimension(module), [mode], include_prompt=module.include_prompt
            )


def _explain_load_error(artifact: Artifact, error: Exception) -> ModelError:
    if isinstance(error, pickle.UnpicklingError):
        code = re.search(r"GLOBAL (\S+)", str(error))
        return ModelError(
            f"The weights of {artifact.name} were refused: "
            + (f"the pickle contains code, {code[1]}." if code else "the file is no pickle of tensors."),
            hint="Get the model as safetensors, or convert it where you trust it.",
        )
    first_line = (str(error).strip().splitlines() or [""])[0]
    return ModelError(
        f"{artifact.name} does not load: {type(error).__name__}: {first_line}",
        hint="A value in its config or tokenizer files may not be possible: compare them with those of the "
        "published model.",
    )


SHOWN = 5


def _require_loaded(model: SentenceTransformer, encoding: Encoding, report: LoadReport, name: str) -> None:
    """Refuse a model whose vectors depend on a tensor that no file set; the others get no gradient."""
    silent, late = set(report.fresh), encoding.late_interaction
    roles = list_roles(model) if late is None else SIDES
    for role in roles if silent else ():
        silent &= _find_unused_tensors(model, late, report.fresh, role)
    # Where there are several backbones, each tensor has the name of its own before it.
    modules = [*model.named_modules()] if len(collect_backbones(model)) > 1 else []
    fresh_names = []
    for fresh in report.fresh:
        if fresh not in silent:
            backbone = next((f"{place}." for place, module in modules if module is fresh.backbone), "")
            fresh_names.append(f"{backbone}{fresh.name}{fresh.shapes}")
    if not fresh_names:
        return
    more = f" and {len(fresh_names) - SHOWN} more" if len(fresh_names) > SHOWN else ""
    raise ModelError(
        f"{name} is not loaded whole: {len(fresh_names)} tensors that its vectors depend on were initialised "
        f"at random, because no file has them: {', '.join(fresh_names[:SHOWN])}{more}.",
        hint="Its config and its weights do not belong together, or the weights are of another architecture.",
    )


def _find_unused_tensors(
    model: SentenceTransformer,
    late: LateInteraction | None,
    suspects: list[UninitialisedTensor],
    role: Role,
) -> set[UninitialisedTensor]:
    """The suspects that the vectors of one side do not depend on; empty where there are no gradients."""
    features: dict[str, Any]
    if late is None:
        way = route(model, role)
        features = {**tokenize_batch(model, PROBE, **way), **way}
    else:
        features = dict(build_side_features(model, list(PROBE), late, role))
    features = {
        key: value.to(model.device) if isinstance(value, torch.Tensor) else value
        for key, value in features.items()
    }
    trainable = [fresh for fresh in suspects if fresh.tensor.requires_grad]
    with torch.enable_grad():
        vectors = embed_features(model, features) if late is None else compute_token_vectors(model, features)
        # Without a gradient, as in a module that detaches, no tensor is known to be unused.
        if not vectors.requires_grad:
            return set()
        direction = torch.linspace(-1, 2, vectors.numel(), device=vectors.device).view_as(vectors)
        tensors = [fresh.tensor for fresh in trainable]
        grads = torch.autograd.grad((vectors * direction).sum(), tensors, allow_unused=True)
    return {fresh for fresh, grad in zip(trainable, grads, strict=True) if grad is None}
