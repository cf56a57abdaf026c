"""The sanity gate: checks that a loaded model behaves like a model, before any task.

Vectors must be finite, differ between texts, not depend on padding or earlier texts, and agree between two
loads; those of a two-stage model also behind a context, on which they must depend. What the files declare
must be what the model does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from harness.core.encoding import Encoding
from harness.core.errors import ModelError
from harness.core.types import Artifact, Role
from harness.encoder.backbones import ORDER
from harness.encoder.engine import LONG_TEXT, SHORT_TEXT, Encoder
from harness.encoder.library_load import SHORT
from harness.encoder.loading import load_any
from harness.encoder.observed import SAME, Observation, observe
from harness.encoder.token_encoder import TokenEncoder
from harness.encoder.two_stage import ContextualEncoder

Vectors = NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class _Rows:
    """Vectors, (rows, dimension), and the text of each: one row a text, or one for each of its tokens."""

    vectors: Vectors
    texts: tuple[str, ...]

    @staticmethod
    def embed_texts(encoder: Encoder | TokenEncoder, texts: Sequence[str], role: Role) -> _Rows:
        """The vectors of texts in one batch."""
        return _Rows.build_rows(encoder.encode_batch(texts, role=role), texts)

    @staticmethod
    def build_rows(batch: Any, texts: Sequence[str]) -> _Rows:
        """The vectors of a batch as rows."""
        if isinstance(batch, np.ndarray):
            return _Rows(vectors=batch, texts=tuple(texts))
        names = np.repeat(np.arange(len(texts)), batch.lengths).tolist()
        vectors = np.asarray(batch.vectors, dtype=np.float32)
        return _Rows(vectors=vectors, texts=tuple(texts[at] for at in names))

    @staticmethod
    def embed_short_texts(encoder: Encoder | TokenEncoder, role: Role) -> _Rows:
        """The vectors of the short texts, each in a batch of its own."""
        parts = [_Rows.embed_texts(encoder, [text], role) for text in SHORT]
        texts = tuple(text for one in parts for text in one.texts)
        return _Rows(vectors=np.concatenate([one.vectors for one in parts]), texts=texts)


@dataclass(frozen=True, kw_only=True)
class _Failure:
    """A failed check, and advice for the user; with a name (`allowance`) the user may accept it."""

    check: str
    message: str
    hint: str
    allowance: str = ""

    def __str__(self) -> str:
        return self.message


def _mark_side(role: Role, failure: _Failure | None) -> _Failure | None:
    """The failure with its side, where the model has sides."""
    if failure is None or not role:
        return failure
    return replace(failure, message=f"On side {role}: {failure.message}")


def _compute_row_distance(first: Vectors, second: Vectors) -> NDArray[np.float64]:
    """The distance between each two rows, relative to the length of the first."""
    wide = first.astype(np.float64)
    # 1e-30 keeps a vector of zeros from dividing by 0.
    lengths = np.maximum(np.linalg.norm(wide, axis=1), 1e-30)
    distances: NDArray[np.float64] = np.linalg.norm(wide - second, axis=1) / lengths
    return distances


CROWD = (*SHORT * 16, "")
"""A large batch, with a text without words: some models treat one of many rows in another way, or break."""

LONG = " ".join(f"{text} Sentence {i} goes on about something else." for i in range(5) for text in SHORT)
"""A text of some 350 tokens to pad a batch, longer than the windows of local attention."""

PADDING = {"float32": 1e-4, "bfloat16": 5e-2, "float16": 1e-2}
"""The largest change of a vector, relative to its length, when its batch is padded.

Other kernels run on another shape, so the last bits differ: some hundred roundings of 6e-8 in float32, of
4e-3 in bfloat16, of 5e-4 in float16, most of which cancel. If padding takes part in a vector, it changes by
more than 1e-1 beside a text this long.
"""


@dataclass(frozen=True, kw_only=True)
class _SanityReport:
    """The result of the gate.

    Attributes:
        checks: The checks that ran.
        failures: What failed.
        accepted: What failed and the user accepts, and the files that the model does not follow, in words.
        observed: By name, what the files declare and what the model does.
        seconds: The time that it took.
        speed: The tokens and seconds of an encoding.
    """

    checks: tuple[str, ...]
    failures: tuple[_Failure, ...]
    accepted: tuple[str, ...] = ()
    observed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    seconds: float
    speed: tuple[int, float] | None = None


def check_encoder(
    encoder: Encoder | TokenEncoder,
    reload: Callable[[], Encoder | TokenEncoder] | None = None,
    *,
    folder: Path | None = None,
    allow: Sequence[str] = (),
    timed: bool = True,
) -> _SanityReport:
    """The result of every check, on each side that is encoded in its own way; of tokens if they have vectors.

    Args:
        encoder: The model; it holds the second load afterwards, if there is one.
        reload: A function that loads the same model again; None leaves out the comparison of two loads.
        folder: The folder of the model; None leaves out what its files declare.
        allow: The names of what the user accepts.
        timed: Whether the speed of a model that passes a second load is measured.
    """
    began = time.perf_counter()
    before = {(role, SHORT_TEXT): encoder.encode_batch([SHORT_TEXT], role=role) for role in encoder.roles}
    alone = {role: _Rows.embed_short_texts(encoder, role) for role in encoder.roles}
    failures = [_mark_side(role, _detect_nonfinite_rows(rows)) for role, rows in alone.items()]
    ran, observed = ["finite"], list[Observation]()
    # A vector that is not finite would fail every further check as well, and one that depends on the texts
    # before it most of them.
    crowd = dict[Role, _Rows]()
    if not any(failures):
        crowd = {role: _Rows.embed_texts(encoder, CROWD, role) for role in encoder.roles}
        for (role, text), output in before.items():
            again = encoder.encode_batch([text], role=role)
            failures.append(_mark_side(role, _detect_order_effect(encoder, text, output, again)))
        ran.append("order")
    if not _list_refused(failures, allow):
        for role, rows in alone.items():
            failures += [
                _mark_side(role, _detect_constant_vectors(rows.vectors)),
                _mark_side(
                    role,
                    _detect_padding_effect(encoder, rows, role)
                    or _detect_batch_effect(encoder, rows, crowd[role], "among many texts"),
                ),
            ]
        ran += ["constant", "padding"]
        if folder is not None:
            observed = observe(encoder, folder, np.concatenate([rows.vectors for rows in alone.values()]))
            failures += [
                _Failure(
                    check=one.name,
                    message=one.message,
                    hint=one.cure,
                    allowance=one.allowance,
                )
                for one in observed
                if one.allowance
            ]
            ran.append("observed")
        if encoder.encoding.context is not None and not _list_refused(failures, allow):
            failures += _list_context_failures(cast("ContextualEncoder", encoder), alone[""])
            ran.append("context")
        if reload is not None:
            failures += _reload_disagreement(encoder, SHORT, reload)
            ran.append("reload")
    refused, seconds = _list_refused(failures, allow), time.perf_counter() - began
    is_measured = timed and reload is not None and not refused and encoder.encoding.context is None
    return _SanityReport(
        checks=tuple(ran),
        failures=refused,
        accepted=tuple(
            f"accepted by --allow {one.allowance}: {one.message}"
            for one in failures
            if one is not None and one not in refused
        )
        + tuple(one.note for one in observed if one.note),
        observed={one.name: {"declared": one.declared, "observed": one.observed} for one in observed},
        seconds=seconds,
        speed=_measure_speed(encoder) if is_measured else None,
    )


def _list_refused(failures: Sequence[_Failure | None], allow: Sequence[str]) -> tuple[_Failure, ...]:
    """The failures that the user does not accept."""
    return tuple(one for one in failures if one is not None and one.allowance not in allow)


def _measure_speed(encoder: Encoder | TokenEncoder) -> tuple[int, float]:
    """The tokens and seconds of encoding a long text on each core, by a model that is warm."""
    count = torch.get_num_threads() if encoder.device == "cpu" else 16
    began, before = time.perf_counter(), encoder.tokens_seen
    # A number makes the texts different: equal ones are encoded once.
    encoder.encode([f"{number} {LONG}" for number in range(count)], role=encoder.roles[0])
    return encoder.tokens_seen - before, time.perf_counter() - began


def load_checked(
    artifact: Artifact, encoding: Encoding, *, gate: bool, twice: bool
) -> Encoder | TokenEncoder:
    """Load a model on the CPU; with `gate` it passes every check, that of a second load if `twice`.

    Raises:
        ModelError: It does not load, or a check failed.
    """
    load = partial(load_any, artifact, encoding, device="cpu")
    encoder = load()
    if gate:
        check = partial(check_encoder, folder=artifact.folder, allow=artifact.allow, timed=False)
        try:
            require_sane(check(encoder, load if twice else None))
        except ModelError as error:
            raise ModelError(f"{artifact.name}: {error.message}", hint=error.hint) from None
    return encoder


def require_sane(report: _SanityReport) -> None:
    """Refuse a model with a failed check.

    Raises:
        ModelError: A check failed; the message has every failure.
    """
    if report.failures:
        messages = [failure.message for failure in report.failures]
        raise ModelError(" ".join(messages), hint=" ".join(dict.fromkeys(f.hint for f in report.failures)))


def require_sane_vectors(vectors: Vectors, texts: Sequence[str]) -> None:
    """Refuse vectors (texts, dimension) that are not finite, or all the same for several different texts.

    Raises:
        ModelError: They are.
    """
    places = [*{text: place for place, text in enumerate(texts)}.values()]
    sample = places[:: max(1, len(places) // len(SHORT))][: len(SHORT)]
    failure = _detect_nonfinite_rows(_Rows.build_rows(vectors, texts), of="")
    if failure is None and len(sample) == len(SHORT):
        failure = _detect_constant_vectors(vectors[sample])
    if failure is not None:
        raise ModelError(failure.message, hint=failure.hint)


def _detect_nonfinite_rows(rows: _Rows, *, of: str = " of short test texts") -> _Failure | None:
    bad = np.flatnonzero(~np.isfinite(rows.vectors).all(axis=1))
    if not bad.size:
        return None
    first = rows.texts[bad[0]]
    return _Failure(
        check="finite",
        message=f"{bad.size} of {len(rows.texts)} vectors{of} are not finite, that of {first!r} first.",
        hint="Half precision overflows in some models: try --dtype float32. In float32, weights are damaged.",
    )


def _detect_constant_vectors(vectors: Vectors) -> _Failure | None:
    wide = vectors.astype(np.float64)
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    cosines = (wide / np.maximum(norms, 1e-30)) @ (wide / np.maximum(norms, 1e-30)).T
    # A single vector of zeros is that of a text without a known token, as static embeddings have it.
    if norms.any() and cosines.min() < 1 - SAME:
        return None
    return _Failure(
        check="constant",
        message=f"{len(SHORT)} different texts all have the same vector.",
        hint="The tokenizer may not be the model's own, or the weights were never set.",
    )


def _detect_padding_effect(encoder: Encoder | TokenEncoder, alone: _Rows, role: Role) -> _Failure | None:
    padded = _Rows.embed_texts(encoder, [*SHORT, LONG], role)
    return _detect_batch_effect(encoder, alone, padded, "when its batch is padded")


def _detect_batch_effect(
    encoder: Encoder | TokenEncoder, alone: _Rows, batch: _Rows, where: str
) -> _Failure | None:
    """A vector that is another one in a batch, which begins with the texts that were encoded alone."""
    moved = _compute_row_distance(alone.vectors, batch.vectors[: len(alone.vectors)])
    allowed = PADDING.get(encoder.dtype_as_run, PADDING["float32"])
    if (moved <= allowed).all():
        return None
    worst = int(moved.argmax())
    return _Failure(
        check="padding",
        message=f"The vector of {alone.texts[worst]!r} moves by {moved[worst]:.1%} of its length {where} "
        f"({allowed:.2%} is rounding in {encoder.dtype_as_run}).",
        hint="The model attends to padding or pools over it, so its scores would depend on the batch.",
    )


def _list_context_failures(encoder: ContextualEncoder, without: _Rows) -> list[_Failure | None]:
    """The failures of a two-stage model behind a context; `without` are its vectors with the null context."""
    assert encoder.encoding.context is not None
    documents = encoder.compute_context_vectors(SHORT)
    size = encoder.encoding.context.size
    # np.resize repeats the few documents until the context is full.
    encoder.set_context(np.resize(documents, (size, documents.shape[1])))
    try:
        rows = _Rows.embed_short_texts(encoder, "")
        failures = [_detect_nonfinite_rows(rows), _detect_padding_effect(encoder, rows, "")]
    finally:
        encoder.set_context(None)
    if (_compute_row_distance(without.vectors, rows.vectors) > SAME).any():
        return failures
    return [
        *failures,
        _Failure(
            check="context",
            message="No vector depends on the context documents.",
            hint="The weights of the stage that reads them may never have been set.",
        ),
    ]


def _detect_order_effect(
    encoder: Encoder | TokenEncoder, text: str, first: Any, second: Any
) -> _Failure | None:
    rows, others = _Rows.build_rows(first, [text]), _Rows.build_rows(second, [text])
    if broken := _detect_nonfinite_rows(rows) or _detect_nonfinite_rows(others):
        return broken
    moved = _compute_row_distance(rows.vectors, others.vectors).max()
    if moved <= RELOADED.get(encoder.dtype_as_run, RELOADED["float32"]):
        return None
    cure = "make its forward leave its buffers and attributes as they are."
    if training := [name for name, module in encoder.model.named_modules() if module.training]:
        first_name = f"{training[0] or 'all'} first"
        cure = f"{len(training)} of its modules are in training mode, {first_name}: call eval()."
    return _Failure(
        check="order",
        message=f"The vector of {text[:SHOWN_CHARACTERS]!r} moves by {moved:.1%} of its length after other "
        "texts.",
        hint=f"A forward pass changes the model, so its scores would depend on the order of texts: "
        f"{cure} Or take it as it is: --allow {ORDER}",
        allowance=ORDER,
    )


SHOWN_CHARACTERS = 40

RELOADED = {"float32": 1e-6, "bfloat16": 1e-3, "float16": 1e-3}
"""The largest difference between two loads; with the same kernels and numbers it is 0 in practice."""

SHOWN = 5
"""The number of differing tensors in a message."""


def _reload_disagreement(
    encoder: Encoder | TokenEncoder, texts: Sequence[str], reload: Callable[[], Encoder | TokenEncoder]
) -> list[_Failure | None]:
    """The failures from a second load; of the first only vectors and checksums of tensors are stored.

    The first load has begun with a short text, and the second begins with a long one.
    """
    first = {role: _Rows.embed_texts(encoder, texts, role) for role in encoder.roles}
    short = encoder.first_outputs
    long = {(role, LONG_TEXT): encoder.encode_batch([LONG_TEXT], role=role) for role in encoder.roles}
    sums = _compute_tensor_sums(encoder.model)
    encoder.reload(reload)
    second = _compute_tensor_sums(encoder.model)
    other = [name for name in sums if sums[name] != second.get(name)]
    failures = [
        _mark_side(
            role, _detect_reload_change(encoder, rows, _Rows.embed_texts(encoder, texts, role).vectors, other)
        )
        for role, rows in first.items()
    ]
    if any(failures):
        return failures
    return [
        _mark_side(role, _detect_order_effect(encoder, text, encoder.first_outputs[role, text], output))
        for (role, text), output in {**short, **long}.items()
    ]


def _compute_tensor_sums(model: nn.Module) -> dict[str, int]:
    """The sum of the bits of each parameter and buffer, which differs between random tensors; no hash."""
    integers, sums = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}, {}
    for name, tensor in chain(model.named_parameters(), model.named_buffers()):
        # Bits, because NaN differs from itself.
        kind = integers.get(tensor.element_size(), torch.uint8)
        sums[name] = int(tensor.detach().contiguous().view(-1).view(kind).sum(dtype=torch.int64))
    return sums


def _detect_reload_change(
    encoder: Encoder | TokenEncoder, first: _Rows, second: Vectors, other: Sequence[str]
) -> _Failure | None:
    moved = _compute_row_distance(first.vectors, second)
    if (moved <= RELOADED.get(encoder.dtype_as_run, RELOADED["float32"])).all():
        return None
    worst = int(moved.argmax())
    named = f" Its tensors that differ: {', '.join(other[:SHOWN])}." if other else ""
    return _Failure(
        check="reload",
        message=f"Two loads of the model disagree: the vector of {first.texts[worst]!r} differs by "
        f"{moved[worst]:.1%} of its length.{named}",
        hint="Some of its parameters or buffers are set at random, not read from its files"
        + ("." if other else ", or the first forward pass changes the model."),
    )
