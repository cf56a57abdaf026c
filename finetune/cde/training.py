"""The training on contextual batches: the guide's vectors, the clusters of each set, and the filter."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from datasets import Dataset
from numpy.typing import NDArray
from torch import Tensor, nn

from finetune.cde.clusters import FILE, ClusterWork, PairClusters, Stopped, make_clusters
from finetune.cde.gradient_cache import TwoStageGradients, split_features
from finetune.cde.prefixes import PrefixTable, build_evaluation_prompts, list_trained_prefixes
from finetune.cde.settings import ContextualSettings, Guide, TwoStageTrainingSettings, build_clusters_identity
from finetune.embedding.losses import InfoNCE, NegativeFilter, build_filtered_loss
from finetune.embedding.settings import Loss
from finetune.embedding.setups import (
    EmbeddingSetup,
    Order,
    PackedOrder,
    hash_table_texts,
    open_backbone,
    open_whole,
    pack_clusters,
    set_dropout,
)
from finetune.embedding.trainer import run_trainer
from finetune.gpu_steps import choose_sum_dtype
from harness.core import files
from harness.core.encoding import OwnTexts
from harness.core.errors import DataError, HarnessError
from harness.core.keys import digest
from harness.core.types import SIDES, Role
from harness.data.training.loading import load_training
from harness.data.training.sets import LocatedTraining
from harness.encoder.folder.description import describe
from harness.encoder.library_load import build_collator
from harness.encoder.sentence_transformer import SentenceTransformer
from harness.encoder.two_stage import Features, TwoStage
from harness.jobs.context import Event, JobContext, WorkerLimits
from harness.jobs.jobs import Resolve, resolve_weights
from harness.storage.remote_and_leases import Leases
from harness.storage.vectors import EmbeddingCache
from harness.training.training import STOP, TrainingSpec

PART = 50_000
"""Rows whose texts are encoded at once."""

POLL = 1.0
"""Seconds between two checks whether another process has finished."""

PREPARED = "prepared"
"""The file that tells the other processes of a training that they can begin with its first step."""


def train_contextual(
    spec: TrainingSpec,
    settings: ContextualSettings,
    loss: Loss,
    guide: Guide | None,
    tables: Sequence[PrefixTable],
    *,
    caches: bool,
) -> None:
    """Train as the spec says, after the guide's vectors and the clusters that the cache lacks are made.

    Args:
        spec: The training.
        settings: The settings of the recipe, which decide between one stage and two.
        loss: The loss of one stage without a filter.
        guide: The guide; None where the settings need none.
        tables: The prefixes of each data set.
        caches: Whether that loss gives the same step with fewer rows in a pass.

    Raises:
        HarnessError: A set does not fill a batch, a row has a source without prefixes, or the guide cannot
            be used; see also `run_trainer`.
    """
    # The folder appears by one rename, so that it is a finished model.
    if spec.output.is_dir():
        return
    vectors, clusters, prefixes = None, tuple[PairClusters, ...](), RowPrefixes(spec, tables)
    if guide is not None:
        vectors = GuideVectors(guide, spec)
        try:
            with _hold_preparation(spec) as first:
                # A source without prefixes is found before the guide takes hours over the data.
                _ = prefixes.numbers
                clusters = _prepare(spec, settings, guide, vectors, first=first)
        # The vectors and clusters so far are in the cache: the next run goes on from them.
        except Stopped:
            return
        # Before the backbone is loaded: both models together may not fit into a GPU.
        vectors.release()
    if isinstance(settings, TwoStageTrainingSettings):
        run_trainer(spec, settings, TwoStageSetup(settings, loss, prefixes, vectors, clusters, caches=True))
    else:
        setup = ContextualSetup(settings, loss, prefixes, vectors, clusters, caches=caches)
        run_trainer(spec, settings, setup)


def _prepare(
    spec: TrainingSpec, settings: ContextualSettings, guide: Guide, vectors: GuideVectors, *, first: bool
) -> tuple[PairClusters, ...]:
    """Everything before the first step: the vectors of all texts, and the clusters of each set."""
    contextual = settings.batches == "contextual"
    sets = [_PairSet(part, vectors, spec) for part in spec.data]
    # First of all: the guide may take hours over data that then fills no batch.
    for pair_set in sets if contextual and first else ():
        pair_set.require(settings.unit)
    clusters = []
    for pair_set in sets:
        if first and settings.filters:
            pair_set.encode_columns(pair_set.rows.column_names)
        if contextual:
            clusters.append(_load_clusters(pair_set, spec, settings, guide))
    return tuple(clusters)


@contextmanager
def _hold_preparation(spec: TrainingSpec) -> Iterator[bool]:
    """Whether this is the first process of the training; the others wait until it has left.

    They meet in a file, as the library's barrier gives up after some minutes.
    """
    file = spec.folder / PREPARED
    # The file of an earlier run of this training names another start.
    while spec.rank > 0 and not (file.is_file() and file.read_text() == spec.start):
        if STOP.is_set():
            raise Stopped
        time.sleep(POLL)
    yield spec.rank == 0
    # An error inside skips this line, so that no other process begins to train.
    if spec.rank == 0:
        files.replace(file, spec.start.encode())


# The prefixes of rows


SOURCE = "dataset"
"""The column of a data set with the source of each row."""


class RowPrefixes:
    """The prefixes of every row of a training.

    Args:
        spec: The training.
        tables: The prefixes of each data set by the source of a row.
    """

    def __init__(self, spec: TrainingSpec, tables: Sequence[PrefixTable]) -> None:
        self._spec, self._tables = spec, tables
        self.trained = list_trained_prefixes(tables)
        """The different prefixes."""

    @cached_property
    def numbers(self) -> NDArray[np.uint8]:
        """The number of each row's prefixes among the different ones, (rows,), one set after the other.

        Raises:
            DataError: A row has a source that is not in the table.
        """
        return np.concatenate([*map(self._find_set_numbers, self._spec.data, self._tables)])

    def _find_set_numbers(self, part: LocatedTraining, table: PrefixTable) -> NDArray[np.uint8]:
        of_sources = np.array([self.trained.index(prefix) for prefix in table.values()], np.uint8)
        if "" in table:
            return np.full(len(load_training(part, cache=self._spec.cache)), of_sources[0])
        rows = load_training(
            replace(part, data=replace(part.data, columns=(SOURCE,))), cache=self._spec.cache
        )
        sources, numbers = pa.array([*table], rows.features[SOURCE].pa_type), []
        for batch in rows.with_format("arrow").iter(PART):
            places = pc.index_in(batch[SOURCE], value_set=sources)
            if places.null_count:
                source = batch[SOURCE].filter(pc.is_null(places))[0]
                raise DataError(
                    f"{part.name} has rows of {source}, for which there is no prefix.",
                    hint="Give one for all rows of each data set, e.g. --set prefix=search.",
                )
            numbers.append(of_sources[places.to_numpy()])
        return np.concatenate(numbers)


class PrefixedRows:
    """Rows by their numbers, each text behind its prefix.

    Args:
        rows: The rows, whose first column has the queries and every other one documents.
        prefixes: Their prefixes.
    """

    def __init__(self, rows: Dataset, prefixes: RowPrefixes) -> None:
        self._rows, self._prefixes = rows, prefixes

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, numbers: list[int]) -> dict[str, list[str]]:
        pairs = [self._prefixes.trained[number] for number in self._prefixes.numbers[numbers]]
        return {
            name: [pair[place > 0] + text for pair, text in zip(pairs, texts, strict=True)]
            for place, (name, texts) in enumerate(self._rows[numbers].items())
        }


# The guide's vectors


class GuideVectors:
    """The vectors of a guide, from the cache; texts without one are encoded.

    Args:
        guide: The guide.
        spec: The training whose device, cache and log are used.
    """

    def __init__(self, guide: Guide, spec: TrainingSpec) -> None:
        self._encoding, self._spec = guide.encoding, spec
        self._artifact = resolve_weights(guide.artifact)
        limits = WorkerLimits(threads=spec.threads)
        self._context = JobContext(device=spec.device, cache=spec.cache, emit=self._tell, limits=limits)
        self._checked = False

    def encode_side_texts(self, side: Role, texts: Sequence[str]) -> None:
        """Encode the texts without a vector; the guide passes the sanity gate before its first one.

        Raises:
            ModelError: The guide loads wrongly, or gives vectors that are not finite.
            Stopped: The training was asked to stop.
        """
        unique = list(dict.fromkeys(texts))
        if not self._open_side_space(side).find_missing_texts(unique):
            return
        if not self._checked:
            Resolve(artifact=self._artifact, encoding=self._encoding).run(self._context)
            self._checked = True
        self._context.encode_missing(self._artifact, self._encoding, OwnTexts(), side, unique)
        self._open_side_space(side).refresh()

    def get_side_vectors(self, side: Role, texts: Sequence[str]) -> NDArray[np.float32]:
        """The vectors of texts, (texts, dimensions).

        Raises:
            DataError: One is not finite.
        """
        try:
            return self._open_side_space(side).get(texts)
        except KeyError:  # removed from the cache meanwhile
            with torch.random.fork_rng():  # the dropout of the next step is that of an undisturbed training
                self.encode_side_texts(side, texts)
            return self._open_side_space(side).get(texts)

    def release(self) -> None:
        """Give the guide's memory back."""
        self._context.forget()

    def _open_side_space(self, side: Role) -> EmbeddingCache:
        return self._context.open_space(self._artifact, self._encoding, OwnTexts(), side)

    def _tell(self, event: Event) -> None:
        log = self._spec.log
        match event.kind:
            case "vectors":
                EmbeddingCache.write_shard(self._spec.cache, event.space, event.content)
            case "stage":
                log.note_stage(f"{event.text} (the guide)")
            case "encoding" | "encoded":
                log.note_progress(event.kind, text=event.text, texts=event.texts, tokens=event.tokens)
                if STOP.is_set():
                    raise Stopped
            case "note":
                log.note(event.text)


class _PairSet:
    """The pairs of a set with the guide's vectors (finetune.cde.clusters.PairVectors)."""

    def __init__(self, data: LocatedTraining, vectors: GuideVectors, spec: TrainingSpec) -> None:
        self.data, self.name = data, data.name
        self._vectors, self._spec = vectors, spec

    @cached_property
    def rows(self) -> Dataset:
        """The rows, mapped into memory."""
        return load_training(self.data, cache=self._spec.cache)

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def _repeated(self) -> NDArray[np.bool_]:
        names = self.rows.column_names[:2]
        numbers = hash_table_texts(self.rows.select_columns(names).iter(batch_size=10_000), names)
        # The multiplier (2^64 over the golden ratio, modulo 2^64) keeps (a, b) and (b, a) apart; by a plain
        # exclusive or every pair of equal texts would be 0.
        pairs = numbers[:, 0] * np.uint64(0x9E3779B97F4A7C15) ^ numbers[:, 1]
        repeats = np.ones(len(pairs), np.bool_)
        # np.unique gives the first place of each value.
        repeats[np.unique(pairs, return_index=True)[1]] = False
        return repeats

    def mark_duplicates(self) -> NDArray[np.bool_]:
        """Whether a pair has the texts of an earlier one, (pairs,)."""
        return self._repeated

    def require(self, size: int) -> None:
        """Refuse a set that fills no batch.

        Raises:
            HarnessError: It has too few pairs, or too few different ones.
        """
        repeated = int(self._repeated.sum())
        if len(self) - repeated < size:
            also = f" ({repeated:,} repeat an earlier one)" if repeated else ""
            raise HarnessError(
                f"{self.name} has {len(self):,} pairs{also}: they do not fill a batch of {size}.",
                hint="Give more data, or a smaller batch: --set batch_size=… --set cluster_size=…",
            )
        if repeated:
            self._spec.log.note(
                f"{self.name}: {repeated:,} of {len(self):,} pairs repeat an earlier one and are left out"
            )

    def encode_columns(self, columns: Sequence[str]) -> None:
        """Encode the texts of some columns; the first column of the set has the queries."""
        for name in columns:
            side = SIDES[name != self.rows.column_names[0]]
            for part in self.rows.select_columns([name]).iter(batch_size=PART):
                self._vectors.encode_side_texts(side, part[name])

    def load_pair_vectors(self, begin: int, end: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The vectors of the queries and of the documents of some pairs."""
        part, (query, document) = self.rows[begin:end], self.rows.column_names[:2]
        return self._vectors.get_side_vectors(SIDES[0], part[query]), self._vectors.get_side_vectors(
            SIDES[1], part[document]
        )


# The clusters of a set


def _load_clusters(
    pairs: _PairSet, spec: TrainingSpec, settings: ContextualSettings, guide: Guide
) -> PairClusters:
    """The clusters of a set from the cache, into which one process first puts those that it lacks."""
    identity = build_clusters_identity(settings, guide, pairs.data)
    folder = spec.cache / "clusters" / digest(identity)
    clusters = PairClusters.read_clusters(folder / FILE, identity)
    if clusters is None:
        with _hold_cluster_lease(folder, spec):
            # Once more, now that the lease is ours: its last holder may have made them.
            clusters = PairClusters.read_clusters(folder / FILE, identity)
            if clusters is None:
                pairs.encode_columns(pairs.rows.column_names[:2])

                def tell(name: str, count: int | None) -> None:
                    kind: Any = "ranking" if name else "ranked"
                    spec.log.note_progress(kind, text=name, texts=count or 0)

                work = ClusterWork(
                    folder=folder, device=spec.device, tell=tell, note=spec.log.note, stop=STOP.is_set
                )
                clusters = make_clusters(pairs, settings.clusters, identity, work)
    facts = clusters.facts
    spec.log.note(
        f"{pairs.name}: {facts['clusters'] - facts['empty']:,} clusters of {facts['pairs']:,} pairs, the "
        f"largest of {facts['largest']:,}, mean similarity to their centroids {facts['similarity']:.4f}"
    )
    return clusters


@contextmanager
def _hold_cluster_lease(folder: Path, spec: TrainingSpec) -> Iterator[None]:
    """Hold the right to make the clusters of a folder; wait while another training has it."""
    leases = Leases(folder)
    try:
        if not leases.claim("lease"):
            spec.log.note_stage("waiting for another training to make the clusters")
            while not leases.claim("lease"):
                if STOP.is_set():
                    raise Stopped
                time.sleep(POLL)
        yield
    finally:
        leases.release_leases()


class ContextualSetup(EmbeddingSetup):
    """The training of a model with one vector for each text on contextual batches.

    The guide sees texts without their prefixes.

    Args:
        settings: The settings of the recipe.
        loss: The loss without a filter.
        prefixes: The prefixes of every row.
        vectors: The guide's vectors; None without a filter and without clusters.
        clusters: Those of each set; none for batches of another kind.
        caches: Whether the loss gives the same step with fewer rows in a pass.
    """

    # The rows' prefixes, and the guide's vectors for the filter, are found by the numbers of the rows.
    numbered = True

    def __init__(
        self,
        settings: ContextualSettings,
        loss: Loss,
        prefixes: RowPrefixes,
        vectors: GuideVectors | None,
        clusters: Sequence[PairClusters],
        *,
        caches: bool,
    ) -> None:
        super().__init__(settings, loss, caches=caches)
        self._contextual, self._vectors, self._clusters = settings, vectors, clusters
        self._prefixes = prefixes
        self._rows: Dataset | None = None

    def load_training_rows(self, spec: TrainingSpec) -> PrefixedRows:
        """The rows of all training sets with their prefixes, under the column names of the first."""
        self._rows = super().load_training_rows(spec)
        return PrefixedRows(self._rows, self._prefixes)

    def build_order(self, data: Any, spec: TrainingSpec) -> Order:
        """Batches of clusters, each of one set; or those that the settings name.

        Raises:
            HarnessError: The groups of all sets fill no batch.
        """
        if self._contextual.batches != "contextual":
            return super().build_order(self._rows, spec)
        # Rows are numbered through all sets, in the order in which load_training_rows joins them.
        begin, set_batches = 0, []
        for set_clusters in self._clusters:
            tour = set_clusters.tour if self._contextual.packing == "tour" else ()
            set_batches.append(
                begin + pack_clusters(set_clusters.numbers, self._contextual.unit, seed=spec.seed, tour=tour)
            )
            begin += len(set_clusters.numbers)
        groups = np.concatenate(set_batches)
        each = self._contextual.batch_size // self._contextual.unit
        if len(groups) < each:
            raise HarnessError(
                f"The different pairs fill {len(groups):,} of the {each} groups of a batch, each of "
                f"{self._contextual.unit} pairs of one set.",
                hint="Give more data, or a smaller batch: --set batch_size=…",
            )
        epochs, most = self._contextual.epochs, self._contextual.max_steps
        return PackedOrder(groups, epochs=epochs, seed=spec.seed, each=each, max_steps=most)

    def build_model(self, spec: TrainingSpec) -> Any:
        """The backbone with a new pooling and the prompts that the training has."""
        model = super().build_model(spec)
        if prompts := build_evaluation_prompts(self._prefixes.trained):
            model.prompts, model.default_prompt_name = prompts, None
        if not self._contextual.dropout:
            set_dropout(model, 0.0)
        return model

    def build_loss(self, model: Any, *, micro_batch: int | None, gather: bool) -> nn.Module:
        """The loss of the recipe, without false negatives where the settings have a filter (see Setup)."""
        settings = self._contextual
        if not settings.filters:
            return super().build_loss(model, micro_batch=micro_batch, gather=gather)
        return build_filtered_loss(
            model, self._filter, settings.scale, group=settings.group, micro_batch=micro_batch, gather=gather
        )

    @property
    def _filter(self) -> NegativeFilter:
        margin, threshold = self._contextual.margin or 0.0, self._contextual.threshold
        return NegativeFilter(vectors=self._load_row_vectors, margin=margin, threshold=threshold)

    def _load_row_vectors(self, numbers: Sequence[int]) -> list[Tensor]:
        """The guide's vectors of some rows, (rows, dimensions) for each column."""
        assert self._rows is not None
        assert self._vectors is not None
        texts: Mapping[str, Sequence[str]] = self._rows[list(numbers)]
        sides = (SIDES[number > 0] for number in range(len(texts)))
        return [
            torch.from_numpy(self._vectors.get_side_vectors(side, list(column)))
            for side, column in zip(sides, texts.values(), strict=True)
        ]


class TwoStageSetup(ContextualSetup):
    """The training of a two-stage model; the arguments are those of ContextualSetup.

    The documents of a group of rows are its context, and each device has groups of its own.
    """

    def __init__(self, settings: TwoStageTrainingSettings, *args: Any, **kwargs: Any) -> None:
        super().__init__(settings, *args, **kwargs)
        self._two = settings

    def build_model(self, spec: TrainingSpec) -> Any:
        """The backbone in both stages, or the two-stage model that is trained further."""
        described = describe(spec.backbone.folder, own_code=spec.backbone.trust_remote_code)
        self._length = self._two.max_length or described.max_length
        if described.two_stage is not None:
            model: Any = open_whole(spec)
            model[0].settings = self._two.stages
            model.max_seq_length = model[0].context_stage.max_seq_length = self._length
        else:
            text, context = open_backbone(spec), open_backbone(spec)
            text.max_seq_length = context.max_seq_length = self._length
            module = TwoStage(text, context, self._two.stages)
            model = SentenceTransformer(modules=[module], device=spec.device, similarity_fn_name="cosine")
        model.prompts = build_evaluation_prompts(self._prefixes.trained)
        model.default_prompt_name = None
        if not self._two.dropout:
            set_dropout(model, 0.0)
        return model

    def build_collator(self, model: Any) -> Any:
        """The library's, with the context documents of the rows as well."""
        assert self._rows is not None
        inner = build_collator(model)
        return _ContextCollator(inner, self._rows.column_names[1], model[0].tokenize_context)

    def build_loss(self, model: Any, *, micro_batch: int | None, gather: bool) -> nn.Module:
        """InfoNCE of each group behind its own context, without false negatives if the settings say so.

        Args:
            model: The two-stage model in training.
            micro_batch: The most texts in a pass; None for all at once.
            gather: Whether there are several processes, whose gradients are then averaged.
        """
        settings = self._two
        loss = InfoNCE(self._filter if settings.filters else None, settings.scale)
        dtype = {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(settings.precision)
        # autocast on a CPU has no float16.
        if model.device.type == "cpu" and dtype == torch.float16:
            dtype = None
        return TwoStageLoss(
            model,
            loss,
            group=settings.group,
            micro_batch=micro_batch,
            dtype=dtype,
            shared=gather,
        )


class _ContextCollator:
    """Tokenizes rows, and their documents once more for the first stage, as a last column."""

    def __init__(self, inner: Any, column: str, tokenize: Any) -> None:
        self._inner, self._column, self._tokenize = inner, column, tokenize
        self.valid_label_columns = inner.valid_label_columns

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        features: dict[str, Any] = self._inner(rows)
        context = self._tokenize([row[self._column] for row in rows])
        # The library makes a column of every key that ends in `_input_ids`, and passes columns in this order:
        # the loss gets the context documents last.
        return {**features, **{f"context documents_{name}": one for name, one in context.items()}}


class TwoStageLoss(nn.Module):
    """A loss of vectors behind contexts, the mean over groups of rows, some texts in a pass.

    With several processes each has groups of its own, and the mean of all gradients after `backward`.

    Args:
        model: The two-stage model, not wrapped for several processes; the optimizer's weights are its own.
        loss: That of the vectors of a group.
        group: Rows of a group, which are candidates for each other and each other's context; 0 for all.
        micro_batch: Texts in a pass, which are computed twice; None for all at once.
        dtype: That of autocast; None without one.
        shared: Whether there are several processes.
    """

    share = 1.0

    def __init__(
        self,
        model: SentenceTransformer,
        loss: InfoNCE,
        *,
        group: int,
        micro_batch: int | None,
        dtype: torch.dtype | None,
        shared: bool,
    ) -> None:
        super().__init__()
        self.model: Any = model  # by this name; the trainer may put its wrapper in this place
        self._gradients, self._loss = TwoStageGradients(cast(TwoStage, model[0])), loss
        self._group, self._micro_batch, self._dtype, self._shared = group, micro_batch, dtype, shared
        self.measures: dict[str, Tensor] = {}

    def forward(self, sentence_features: Iterable[Features], labels: Tensor) -> Tensor:
        """The loss of a batch.

        Args:
            sentence_features: The features of each column, then those of the context documents.
            labels: (rows,) the numbers of the rows.
        """
        parts = [split_features(one, self._group or len(labels)) for one in sentence_features]
        groups = [*zip(*parts, labels.split(self._group or len(labels)), strict=True)]
        total = labels.new_zeros((), dtype=torch.float32)
        masked = labels.new_zeros((), dtype=choose_sum_dtype(labels.device))
        for *columns, documents, rows in groups:
            total = total + self._compute_group_loss(columns, documents, rows) * (self.share / len(groups))
            masked += self._loss.measures.get("masked", 0.0) / len(groups)
        self.measures = {"masked": masked} if self._loss.measures else {}
        return total

    def _compute_group_loss(self, columns: Sequence[Features], documents: Features, rows: Tensor) -> Tensor:
        context = self._draw_documents(documents)
        largest, device = max(len(rows), len(context["input_ids"])), rows.device.type
        most = self._micro_batch or largest

        def compute_vector_loss(vectors: list[Tensor]) -> Tensor:
            with torch.autocast(device, enabled=False):
                return self._loss.mean(vectors, rows)

        autocast = torch.autocast(device, dtype=self._dtype) if self._dtype else nullcontext()
        with autocast:
            # Several processes always take the cached way, which averages gradients itself: the model is not
            # wrapped for them.
            if self._shared or most < largest:
                chunks = [split_features(one, most) for one in columns]
                return self._gradients(split_features(context, most), chunks, compute_vector_loss)
            module = self._gradients.model
            shared = module.compute_context_vectors(context)
            return compute_vector_loss([module.compute_text_vectors(one, shared) for one in columns])

    def _draw_documents(self, documents: Features) -> Features:
        """Documents for all places of the context, in a drawn order: a sample, or all of them repeated."""
        count, size = len(documents["input_ids"]), self._gradients.model.settings.size
        # Repeated before it is cut: no document comes twice more often than another.
        rows = torch.randperm(count).repeat(-(-size // count))[:size]
        return {name: one[rows.to(one.device)] for name, one in documents.items()}
