"""The parameters and operations of a backbone, by the shapes of its tensors, and the cost of trainings.

An operation is a multiplication or an addition in a product of matrices. Norms, activations, biases and
lookups of embeddings are not counted, nor is a pooler, whose vector no model here uses; in a training, what
attention computes without parameters is not counted either. Trainings cost what past ones or their operations
say, fine-tuning runs what measured steps say. Imports no torch.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core.errors import ModelError
from harness.core.keys import Lineage, ModelDocument
from harness.data.training.sets import LocatedTraining
from harness.encoder.architecture import Architecture
from harness.encoder.backbones import has_network, list_backbones, read_architecture
from harness.encoder.folder.description import read_token_limits
from harness.encoder.folder.files import list_module_weights, read_object, read_tensor_headers
from harness.encoder.folder.modules_and_pooling import find_backbone_folder
from harness.results.cost.duration import LIKELY, Device, TimeRange, is_same_device
from harness.results.cost.encoding import CHARACTERS_PER_TOKEN, PastWork

if TYPE_CHECKING:
    from torch import nn


SHORT = 512
"""The tokens of the text whose operations stand beside those at a model's limit."""

TRAINED = 1024
"""The most tokens of a pretraining sequence where nobody states it, as in OptiBERT's own count."""

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class BackboneCompute:
    """What a backbone computes.

    `parameters` are those of the encoder, without the output layer of pretraining; `without_embeddings` those
    without the table of tokens, too; `matrices` the elements of what every token is multiplied with. It has
    `layers` blocks of `width`; `heads_width` is the query heads times the width of one; `windows` are of each
    layer the tokens seen to either side, None for all; empty where no layer has one. `limit` are the most
    tokens of a text, None without a limit. Of a family that is not exact, attention may compute more.
    """

    parameters: int
    without_embeddings: int
    matrices: int
    layers: int
    width: int
    heads_width: int
    windows: tuple[int | None, ...] = ()
    limit: int | None = None
    is_exact: bool = True

    @staticmethod
    def from_architecture(shape: Architecture) -> BackboneCompute:
        """What a backbone of this architecture computes."""
        return _sum_shapes(
            shape.tensors(), shape.num_hidden_layers, shape.hidden_size,
            shape.num_attention_heads * shape.head_dim,
            windows=shape.windows if any(shape.windows) else (),
            limit=None if shape.positions == "alibi" else shape.max_position_embeddings,
        )  # fmt: skip

    @property
    def formula_parameters(self) -> int:
        """N = 12 · width² · layers, the parameters without embeddings by OptiBERT's formula."""
        return 12 * self.width**2 * self.layers

    @property
    def lengths(self) -> list[int]:
        """The lengths of a text whose operations are shown: 512 tokens, or fewer, and the limit."""
        return sorted({min(SHORT, self.limit or SHORT), self.limit or SHORT})

    def compute_token_flops(self, length: int) -> int:
        """F_N = 6 N + 12 · layers · length · width (OptiBERT, eq. 1): forward and backward, for one token."""
        return 6 * self.formula_parameters + 12 * self.layers * length * self.width

    def count_operations(self, tokens: float, *, windows: bool = False) -> float:
        """The operations of a forward pass over one text.

        Args:
            tokens: Its tokens.
            windows: Whether a layer with a window computes only what it sees; else every pair of tokens.
        """
        spans = self.windows if windows and self.windows else (None,) * self.layers
        pairs = sum(_count_pairs(tokens, span) for span in spans)
        # Two products for each pair: of queries with keys, and of weights with values.
        return 2 * self.matrices * tokens + 4 * self.heads_width * pairs


def _count_pairs(tokens: float, window: int | None) -> float:
    """The pairs of tokens that see one another.

    >>> _count_pairs(4, None), _count_pairs(4, 1), _count_pairs(4, 9)
    (16, 10, 16)
    """
    beyond = 0 if window is None else max(tokens - 1 - window, 0)
    return tokens**2 - beyond * (beyond + 1)


def read_backbone_compute(folder: Path) -> BackboneCompute:
    """What the backbone of a model folder computes, from JSON and headers of weight files.

    Raises:
        ModelError: The files do not tell it.
    """
    place = find_backbone_folder(folder)
    if has_network(place):
        return BackboneCompute.from_architecture(read_architecture(place))
    config, shapes = read_object(place / "config.json"), _read_backbone_shapes(place)
    limit = max((one.limit for one in read_token_limits(folder) if one.limit), default=None)
    text_config = config.get("text_config") or config
    layers, width, heads, head = (
        next((text_config[name] for name in names if isinstance(text_config.get(name), int)), 0)
        for names in _SIZES
    )
    if not shapes or not layers or not width:
        raise ModelError(
            f"The files in {folder} do not tell the shapes of its backbone.",
            hint="A folder with config.json and its weights as safetensors does.",
        )
    is_exact = config.get("model_type") == "gpt_neox"
    return _sum_shapes(shapes, layers, width, heads * head or width, limit=limit, is_exact=is_exact)


_SIZES = (
    ("num_hidden_layers", "num_layers", "n_layer", "n_layers"), ("hidden_size", "d_model", "n_embd", "dim"),
    ("num_attention_heads", "num_heads", "n_head", "n_heads"), ("head_dim", "d_kv"),
)  # fmt: skip
"""The names of layers, width, heads and a head's width in configs of transformers."""


def find_published_compute(name: str) -> BackboneCompute | None:
    """What a backbone of a published size computes; None where our network does not run it.

    >>> find_published_compute("bert-base").without_embeddings
    86041344
    """
    for entry in list_backbones().values():
        family = entry.family
        if family is not None and family.shape is not None and name in family.sizes:
            return BackboneCompute.from_architecture(family.outline(family.sizes[name]))
    return None


def _sum_shapes(shapes: Shapes, layers: int, width: int, heads_width: int, **more: Any) -> BackboneCompute:
    parameters = sum(map(math.prod, shapes.values()))
    # Tables of positions and of types are smaller than that of the tokens.
    table = max((math.prod(size) for name, size in shapes.items() if _is_embedding(name, size)), default=0)
    matrices = [
        math.prod(size)
        for name, size in shapes.items()
        if len(size) == 2 and is_used(name) and not _is_embedding(name, size)
    ]
    return BackboneCompute(
        parameters=parameters, without_embeddings=parameters - table, matrices=sum(matrices), layers=layers,
        width=width, heads_width=heads_width, **more,
    )  # fmt: skip


def is_used(name: str) -> bool:
    """Whether a model uses the part of a backbone with that name.

    >>> is_used("pooler.dense.weight"), is_used("layers.0.mlp.up.weight")
    (False, True)
    """
    return "pooler" not in name.split(".")


def _is_embedding(name: str, shape: tuple[int, ...]) -> bool:
    """Whether a tensor is a table of embeddings, by its name and shape."""
    # The tables of GPT-2 are `wte` and `wpe`.
    return ("emb" in name or name.endswith(("wte.weight", "wpe.weight"))) and len(shape) == 2


def _read_backbone_shapes(place: Path) -> Shapes:
    """The shapes of a backbone's tensors without heads, from JSON and headers; empty if they are unknown.

    Raises:
        ModelError: The config makes no network, or a weight file is corrupt.
    """
    return read_architecture(place).tensors() if has_network(place) else _read_weight_shapes(place)


FLOATS = ("F64", "F32", "F16", "BF16")

NUMBERED = re.compile(r"\.\d+\.")
"""The number of a block in the name of a tensor."""


def _read_weight_shapes(place: Path) -> Shapes:
    stored = read_tensor_headers(list_module_weights(place)) or {}
    shapes = {
        name: one.shape
        for name, one in stored.items()
        if one.dtype in FLOATS and 1 <= len(one.shape) <= 3 and not name.endswith(".inv_freq")
    }
    table = next((name for name, shape in shapes.items() if _is_embedding(name, shape)), None)
    block = next(filter(NUMBERED.search, shapes), None)
    if table is None or block is None:
        return {}
    pairs = zip(table.split("."), block.split("."), strict=False)
    # Table and blocks lie below the backbone; what has another root is a head.
    root = "".join(f"{part}." for part, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return {name: shape for name, shape in shapes.items() if name.startswith(root)}


FINAL_NORMS = ("final_norm", "final_layer_norm", "final_layernorm", "norm", "ln_f")
"""Names of the norm after the last block, beside the list of blocks."""


@dataclass(frozen=True, kw_only=True)
class ParameterCount:
    """The numbers of parameters that have a part in a training.

    Attributes:
        forward: Those that compute the output, adapters among them.
        backward: Those that gradients pass through: all from the first block on that has a trained parameter.
        updated: Those that get a gradient.
    """

    forward: int
    backward: int
    updated: int

    @staticmethod
    def count_parameters(network: nn.Module) -> ParameterCount:
        """The counts of a network as it is trained; a parameter of two modules counts once."""
        stages, tables = _split_stages(network), collect_embedding_parameters(network)
        trained = [any(weight.requires_grad for weight in stage) for stage in stages]
        # Gradients pass from the output back to the first stage that is trained, and no further.
        begin = trained.index(True) if any(trained) else len(stages)
        sizes = [sum(weight.numel() for weight in stage - tables) for stage in stages]
        updated = {weight for stage in stages for weight in stage - tables if weight.requires_grad}
        return ParameterCount(
            forward=sum(sizes), backward=sum(sizes[begin:]), updated=sum(weight.numel() for weight in updated)
        )

    def compute_flops(self, tokens: float, *, scored: float = 0.0) -> float:
        """The operations of a training on `tokens` tokens, and of a forward pass over `scored` others.

        >>> ParameterCount(forward=10, backward=6, updated=5).compute_flops(100)
        4200.0
        """
        # A multiplication and an addition for each parameter and token, once forward, once for the gradients
        # of activations and once for those of weights (Kaplan et al. 2020).
        return 2.0 * (self.forward * (tokens + scored) + (self.backward + self.updated) * tokens)


def list_blocks(network: nn.Module) -> list[nn.Module]:
    """The blocks of a network in their order; empty where it has no list of them."""
    return [*_find_block_list(network)[1]]


def find_final_norms(network: nn.Module) -> list[nn.Module]:
    """The norm after the last block, or none."""
    place = _find_block_list(network)[0].rpartition(".")[0]
    beside = network.get_submodule(place).named_children()
    return [module for name, module in beside if name in FINAL_NORMS]


def collect_embedding_parameters(network: nn.Module) -> set[nn.Parameter]:
    """The weights of embeddings and of their adapters."""
    from torch import nn

    tables = (
        module
        for module in network.modules()
        # peft wraps an embedding with an adapter; base_layer is the embedding itself.
        if isinstance(getattr(module, "base_layer", module), nn.Embedding)
    )
    return {weight for table in tables for weight in table.parameters()}


def _find_block_list(network: nn.Module) -> tuple[str, nn.ModuleList]:
    """The name of the largest list of modules, and the list; it may be within an inner network."""
    from torch import nn

    # The largest: some networks have short lists of other modules beside their blocks.
    lists = [(name, found) for name, found in network.named_modules() if isinstance(found, nn.ModuleList)]
    sizes = [sum(weight.numel() for weight in found.parameters()) for _, found in lists]
    return lists[sizes.index(max(sizes))] if lists else ("", nn.ModuleList())


def _split_stages(network: nn.Module) -> list[set[nn.Parameter]]:
    """The used parameters in the order of a forward pass: before the blocks, of each block, after them."""
    later: list[set[nn.Parameter]] = []
    for module in (*list_blocks(network), *find_final_norms(network)):
        # A weight that two blocks share belongs to the first.
        later.append({*module.parameters()}.difference(*later))
    used = {weight for name, weight in network.named_parameters() if is_used(name)}
    return [used.difference(*later), *later]


def count_backbone_parameters(folder: Path) -> int | None:
    """The parameters of a model's backbone without its embeddings, from JSON and headers of weight files.

    Of a backbone that our network does not run, embeddings are known by their names.

    Args:
        folder: The folder of a model or of a bare backbone.

    Returns:
        Their number; None where the files do not tell it.

    Raises:
        ModelError: The config makes no network, or a weight file is corrupt.
    """
    place = find_backbone_folder(folder)
    shapes = _read_backbone_shapes(place)
    if not shapes:
        return None
    counted = (size for name, size in shapes.items() if is_used(name) and not _is_embedding(name, size))
    return sum(map(math.prod, counted))


def count_gpt_neox_parameters(config: Mapping[str, Any]) -> int:
    """The parameters of the blocks and of the final norm of a GPT-NeoX.

    >>> count_gpt_neox_parameters({"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 6})
    18915328
    """
    width, inside = config["hidden_size"], config["intermediate_size"]
    attention = 4 * width * (width + 1)
    feed_forward = 2 * width * inside + inside + width
    norm = 2 * width
    return int(config["num_hidden_layers"] * (attention + feed_forward + 2 * norm) + norm)


COUNTS = ("epochs", "max_steps", "seed", "warmup", "checkpoint_minutes")
"""The settings of a training that change how many steps it has, and not how long one takes."""

TRAINING_SHARE = 0.5
"""The operations a second of a training as a share of those of encoding: it has smaller batches."""

TRAINING_START = 10.0
"""The seconds of a training beside its steps: its process, its data, and the model that it writes."""

USUAL_TOKENS = 32.0
"""The tokens of a text for training where its file does not say how long it is."""


@dataclass(frozen=True, kw_only=True)
class TrainingCost:
    """A planned training and its expected cost, None where unknown.

    Attributes:
        model, key, folder: The model's name, its ArtifactKey, and the folder where it will lie.
        recipe, seed: What it is made with.
        parent: The model that it starts from.
        state: "there", "to do", "to go on" with a training that was interrupted, "diverged", or "to
            choose" in a sweep.
        steps, texts: Optimizer steps, and texts that are encoded.
        done: The steps that an interrupted training has in its checkpoint or log.
        operations: The budget of a training that has one.
        seconds: Of the whole training, between `low` and `high`.
        source: What they were learnt from.
        data: The names of the training data.
        notes: What the recipe says of it, and what it assumes.
    """

    model: str
    key: str
    folder: str
    recipe: str
    seed: int
    parent: str
    state: str
    steps: int | None
    texts: int | None
    done: int
    operations: float | None = None
    seconds: float | None
    low: float | None = None
    high: float | None = None
    source: str = ""
    data: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def time_left(self) -> TimeRange | None:
        """The time of the steps that are left; None where it is unknown."""
        if self.seconds is None or self.low is None or self.high is None:
            return None
        left = 1 - self.done / self.steps if self.steps else 1.0
        full_time = TimeRange(seconds=self.seconds, low=self.low, high=self.high)
        return full_time.split_time(1 / left) if left > 0 else TimeRange()


@dataclass(frozen=True, kw_only=True)
class _PastTraining:
    """A finished training: what it was, its texts and the seconds of its steps, and those of the rest."""

    lineage: Lineage
    device: Device
    texts: float
    seconds: float
    others: float

    @staticmethod
    def from_document(document: ModelDocument) -> _PastTraining | None:
        """The training of a model; None where its document does not say how long it took."""
        facts = document.training
        texts, seconds = facts.get("texts"), facts.get("seconds")
        if not texts or not seconds:
            return None
        device = facts.get("device", {})
        try:
            # What is left of the whole time is that of the process, of its data, and of the model that it
            # writes.
            began, ended = (datetime.fromisoformat(facts[name]) for name in ("started", "written"))
            others = max(0.0, (ended - began).total_seconds() - seconds)
        except (KeyError, ValueError, TypeError):
            others = TRAINING_START
        kind = (device.get("kind", ""), device.get("name", ""))
        return _PastTraining(
            lineage=document.lineage, device=kind, texts=texts, seconds=seconds, others=others
        )

    def is_like(self, lineage: Lineage) -> bool:
        """Whether its steps were those of another training: recipe, backbone and settings."""
        mine, theirs = ({**one.settings} for one in (self.lineage, lineage))
        for name in COUNTS:
            mine.pop(name, None), theirs.pop(name, None)
        return mine == theirs and _list_parent_keys(self.lineage) == _list_parent_keys(lineage)


def expect_training(
    lineage: Lineage,
    texts: int | None,
    data: Sequence[LocatedTraining],
    documents: Sequence[ModelDocument],
    past: PastWork,
    *,
    parameters: int,
) -> tuple[TimeRange, str] | None:
    """The time of a training and where that is from; None where its texts are not counted.

    Args:
        lineage: What the model will be made of.
        texts: The texts in all its steps.
        data: Where its data is.
        documents: Those of finished models.
        past: What is known of encoding on this device.
        parameters: Those of the backbone that compute.
    """
    if texts is None:
        return None
    trainings = [
        one
        for one in map(_PastTraining.from_document, documents)
        if one and is_same_device(one.device, past.device)
    ]
    same = [one for one in trainings if one.lineage.recipe == lineage.recipe]
    for some, factor in (
        ([one for one in same if one.is_like(lineage)], 1.5),
        ([one for one in same if _list_parent_keys(one.lineage) == _list_parent_keys(lineage)], LIKELY),
    ):
        if some:
            each = sum(one.seconds for one in some) / sum(one.texts for one in some)
            others = sum(one.others for one in some) / len(some)
            count = f"{len(some)} training{'s' if len(some) > 1 else ''} on this machine"
            return TimeRange.from_seconds(texts * each + others, factor), count
    rate = past.estimate_token_rate("", parameters, "float32")
    if rate is None:
        return None
    tokens = texts * _estimate_text_tokens(data, lineage.settings)
    # A step computes each token forwards, and twice as much backwards (Kaplan et al., 2020).
    seconds = 3 * tokens / (rate.tokens * TRAINING_SHARE) + TRAINING_START
    return TimeRange.from_seconds(seconds, rate.factor), rate.source


def _list_parent_keys(lineage: Lineage) -> list[str]:
    """The models that a training begins with, by their keys."""
    return [parent.artifact for parent in lineage.parents]


def _estimate_text_tokens(data: Sequence[LocatedTraining], settings: Mapping[str, Any]) -> float:
    """The mean tokens of a text for training, by the bytes of its files, and by the longest input."""
    sizes = [size for part in data if (size := _measure_text_bytes(part)) is not None]
    mean = sum(sizes) / len(sizes) / CHARACTERS_PER_TOKEN + 2 if sizes else USUAL_TOKENS
    return min(mean, float(settings.get("max_length") or mean))


def _measure_text_bytes(part: LocatedTraining) -> float | None:
    """The mean bytes of a text by the size of columns in Parquet files; None where there are none."""
    if not part.rows:
        return None
    import pyarrow.parquet as pq

    root = part.folder or Path()
    files = [part.file] if part.file else sorted(root.glob(f"**/{part.data.split}*.parquet"))
    if part.folder and part.data.config:
        files = [file for file in files if part.data.config in file.relative_to(root).parts] or files
    rows, size = 0, 0
    for file in files:
        head = pq.read_metadata(file)
        rows += head.num_rows
        for group in map(head.row_group, range(head.num_row_groups)):
            columns = map(group.column, range(group.num_columns))
            size += sum(one.total_uncompressed_size for one in columns if one.physical_type == "BYTE_ARRAY")
    return size / rows / part.data.texts_per_row if rows and size else None


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """A measured step of a run: its tokens and seconds, and the seconds of scoring the same tokens."""

    tokens: float
    seconds: float
    scoring: float


@dataclass(frozen=True, kw_only=True)
class FinetuneSpeed:
    """The seconds of a step of a run beside its tokens, of a trained token, and of a scored token."""

    step: float
    token: float
    scored: float

    @staticmethod
    def fit_speed(few: StepTime, many: StepTime) -> FinetuneSpeed:
        """The speed by a step with few tokens and one with many: a line through both."""
        # Both may be of equal size where a task's texts all are: all time then goes to the tokens.
        more = many.tokens - few.tokens
        token = (many.seconds - few.seconds) / more if more > 0 else many.seconds / many.tokens
        token = max(token, 0.0)
        return FinetuneSpeed(
            step=max(0.0, few.seconds - token * few.tokens), token=token, scored=many.scoring / many.tokens
        )

    def estimate_seconds(self, steps: int, *, trained: float, scored: float) -> float:
        """The seconds of training and scoring.

        Args:
            steps: The number of steps.
            trained: Tokens in all steps.
            scored: Tokens that are scored without training.
        """
        return steps * self.step + trained * self.token + scored * self.scored


SHARED_GAIN = 1.25
"""The speedup of runs that share the cores: each alone leaves some of their time unused."""


def estimate_run_time(seconds: float, workers: int) -> TimeRange:
    """The time of runs by their seconds one after the other; early stopping ends some of them before."""
    return TimeRange.from_seconds(seconds).split_time(SHARED_GAIN if workers > 1 else 1.0)
