"""Compute-optimal contrastive fine-tuning (Ziarko et al. 2024): what its four recipes share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from finetune.efficient.settings import (
    ALL_WEIGHTS,
    FEW_WEIGHTS,
    GPT_NEOX,
    SAMPLE,
    EfficientSettings,
    FreezeSettings,
    build_symmetric_info_nce,
    compute_usual_rate,
    count_pythia_parameters,
    find_pythia_config,
)
from finetune.embedding.plan import EmbeddingRecipe, Variant, entry
from finetune.embedding.settings import SuggestedRows
from finetune.origins import ADAMW, EFFICIENT, MTEB, PEFT
from finetune.recipes.simcse import PREMISES
from harness.core.errors import UsageError
from harness.core.sources import describe_fields, read_sources
from harness.core.types import Artifact
from harness.data.training.sets import LocatedTraining
from harness.encoder.folder.description import Description
from harness.encoder.folder.files import read_object
from harness.encoder.folder.modules_and_pooling import find_backbone_folder
from harness.jobs.recipe import PlannedModel, PrintedRow, RecipeEntry
from harness.results.cost.compute import ParameterCount, count_backbone_parameters
from harness.training.training import TrainingSpec


@dataclass(frozen=True, kw_only=True)
class EfficientRecipe(EmbeddingRecipe[EfficientSettings]):
    """A recipe of contrastive pairs that trains a part of a backbone's weights, or all, within a budget."""

    facts: ClassVar[Mapping[str, str]] = {
        **EmbeddingRecipe.facts,
        "steps of a budget": "floor(budget / (2 * (forward + backward + updated) * tokens)), of the "
        "parameters of these names without embeddings and their adapters, and the tokens of a step: "
        f"batch_size times tokens_per_pair or, if none, times the mean of the first {SAMPLE:,} pairs in the "
        "training's order, both texts with special tokens, cut at max_length and unpadded; the training logs "
        "its steps and tokens",
        **describe_fields(ParameterCount),
        "weights": "those that method names are trained",
        "attention": "that of the backbone: a Pythia's stays causal",
        "special tokens": "those of the tokenizer: a Pythia's adds none, and pads with its end token, which "
        "the mask hides",
    }

    def _open_setup(self, spec: TrainingSpec, settings: EfficientSettings) -> Any:
        from finetune.efficient.training import EfficientSetup

        return EfficientSetup(settings, self.loss, spec)

    def _list_facts(self) -> dict[str, Any]:
        usual = FEW_WEIGHTS.get(self.settings.method, ALL_WEIGHTS)
        rates = {} if self.settings.learning_rate else {"learning_rate.usual": usual}
        return {**super()._list_facts(), "method": self.settings.method, **rates}

    def _resolve_settings(self, backbone: Artifact) -> EfficientSettings:
        """The settings for a backbone, with the paper's rate for its size."""
        settings = super()._resolve_settings(backbone)
        if settings.learning_rate:
            return settings
        rate = compute_usual_rate(self.settings.method, count_backbone_parameters(backbone.folder))
        return replace(settings, learning_rate=rate)

    def _plan_description(self, description: Description) -> Description:
        planned, length = super()._plan_description(description), self.settings.evaluation_length
        return planned if length is None else replace(planned, max_length=min(length, planned.max_length))

    def plan(self, backbone: Artifact, data: Sequence[LocatedTraining], **options: Any) -> PlannedModel:
        """The model that the training would make; arguments and errors are those of ModelRecipe."""
        planned, steps = super().plan(backbone, data, **options), self._count_budget_steps(backbone)
        if steps is None:
            return planned
        texts = self._count_training_texts(steps, steps * self.settings.batch_size, data)
        return replace(planned, steps=steps, texts=texts)

    def _estimate_work(
        self, settings: EfficientSettings, data: Sequence[LocatedTraining]
    ) -> tuple[int | None, int | None]:
        """The steps and rows of the epochs; those of a budget depend on the backbone, too."""
        return (None, None) if self.settings.budget is not None else super()._estimate_work(settings, data)

    def _count_budget_steps(self, model: Artifact | str) -> int | None:
        """The steps of a budget; None without one, or where they are known when the texts are read."""
        settings, count = self.settings, self._count_parameters(model)
        if settings.budget is None or settings.tokens_per_pair is None or count is None:
            return None
        return math.floor(
            settings.budget / count.compute_flops(settings.tokens_per_pair * settings.batch_size)
        )

    def list_facts(self, model: Artifact | str = "") -> dict[str, str]:
        """What holds beside the settings, by subject, with the sizes of Pythia and of a backbone on disk."""
        sizes: dict[str, int | None] = {**count_pythia_parameters()}
        if not isinstance(model, str):
            sizes = {model.name: count_backbone_parameters(model.folder), **sizes}
        counted = ", ".join(f"{name} {count:,}" for name, count in sizes.items() if count)
        adapters = (
            {"adapters": "begin as in peft, with a product of 0"} if self.settings.method == "lora" else {}
        )
        return {**super().list_facts(model), "parameters": f"without embeddings {counted}", **adapters}

    def _describe_steps(self, model: Artifact | str) -> str:
        settings, count = self.settings, self._count_parameters(model)
        if settings.budget is None:
            return f"{super()._describe_steps(model)}, without a budget"
        if count is None:
            return "those of the budget"
        if (number := self._count_budget_steps(model)) is None:
            ratio = settings.budget / count.compute_flops(settings.batch_size)
            tokens = "t tokens a pair, known when the texts are read"
            steps = f"floor({ratio:,.1f} / t) with {tokens}, in ceil({settings.warmup:g} * steps)"
        else:
            steps = f"{number:,}, in {settings.count_warmup_steps(number):,}"
        parameters = ", ".join(f"{size:,} {name}" for name, size in asdict(count).items())
        return f"{steps} of which the rate rises ({parameters})"

    def _count_parameters(self, model: Artifact | str) -> ParameterCount | None:
        """The parameters of a model as it is trained; None where its files or its name do not tell them."""
        if isinstance(model, str):
            config = find_pythia_config(model)
        else:
            config = read_object(find_backbone_folder(model.folder) / "config.json")
        if config.get("model_type") == GPT_NEOX:
            return self.settings.count_gpt_neox_parameters(config)
        if isinstance(model, str) or self.settings.method != "full":
            return None
        size = count_backbone_parameters(model.folder)
        return None if size is None else ParameterCount(forward=size, backward=size, updated=size)

    def _check_backbone_fit(self, backbone: Artifact, description: Description) -> None:
        super()._check_backbone_fit(backbone, description)
        # Already in the plan: a share that does not fit would otherwise end a queued training.
        blocks = read_object(find_backbone_folder(backbone.folder) / "config.json").get("num_hidden_layers")
        if isinstance(self.settings, FreezeSettings) and isinstance(blocks, int):
            self.settings.count_frozen_blocks(blocks)
        if self.settings.budget is not None and self.settings.max_steps is not None:
            raise UsageError(
                "budget and max_steps both choose the number of steps.", hint="Leave one of them out."
            )

    def _collect_plan_notes(
        self, backbone: Artifact, description: Description, settings: EfficientSettings
    ) -> tuple[str, ...]:
        notes = list(super()._collect_plan_notes(backbone, description, settings))
        if not self.settings.learning_rate:
            method, rate = self.settings.method, settings.learning_rate
            size = "" if method in FEW_WEIGHTS else " and the nearest size of Pythia"
            notes.append(f"the learning rate is {rate:g}, the paper's for {method}{size}")
        if self.settings.budget is not None and self._count_budget_steps(backbone) is None:
            notes.append(
                f"a budget of {self.settings.budget:g} FLOP chooses the steps when the texts are read"
            )
        return tuple(notes)


PAIRS = replace(PREMISES, columns=("anchor", "positive"))
"""The pairs of the authors' sample configurations, SimCSE's: one of each premise, without repeats."""

VALUES: Mapping[str, Any] = {
    "batch_size": 1024,
    "epochs": 1,
    "max_length": 75,
    "scale": 40.0,
    "weight_decay": 0.1,
    "decay_all": True,
    "warmup": 0.1,
    "schedule": "cosine",
    "clip": 0.0,
    "precision": "float32",
    "chunk": SuggestedRows(64),
    "pooling": "mean",
}
"""The values of the paper and of its code, which all four methods have."""

TOKENS = 78
"""The tokens of a pair in the code: 14 of a query and 64 of a document on average."""

SOURCES = read_sources(
    EFFICIENT,
    f"""
    experiments/train_and_eval_full_fine_tuning.gin: data 11, batch_size 17, weight_decay 5, pooling 2, scale
        15
    effemb/losses.py: loss 51, group_size 48
    effemb/jobs/train.py: decay_all 211, warmup 162, clip 269, selection 304
    effemb/schedulers.py: schedule 27
    experiments/train_and_eval_full_fine_tuning.py: precision 17, evaluation.dtype 17
    effemb/utils/data.py: max_length 24
    experiments/train_and_eval_lora.gin: rank 20, lora_modules 21
    {PEFT}src/peft/tuners/lora/config.py: lora_alpha 64
    [Efficient-Embeddings, section 3.3]: loss, group_size
    [Efficient-Embeddings, appendix D]: batch_size, weight_decay, max_length, scale
    [Efficient-Embeddings, appendix D.2, table 1]: scale
    [Efficient-Embeddings, section 4.1]: epochs, budget
    [Efficient-Embeddings, section 4.2]: method
    [Efficient-Embeddings, appendix D.1]: warmup, schedule
    [Efficient-Embeddings, section 3.2, table 2]: pooling
    [Efficient-Embeddings, section 4.2]: rank, lora_modules, lora_embeddings
    [default of peft]: lora_alpha
    data = the paper (section 4.1) has 200 M pairs of BAAI-MTP, which are not on the hub
    data := NLI pairs as in the sample configurations, the first of each premise; --train-data reads others
    batch_size = 2,048 in appendix F
    epochs = the paper has less than one, which a budget ends
    schedule = in section 4.1 it ends at a tenth of the rate
    clip = the code clips no gradient
    batches = the code does not shuffle its file (effemb/utils/data.py#L91)
    last_batch = the code ends by its number of pairs
    max_length = 512 in appendix F
    selection = models are evaluated at the end
    evaluation_length = the code evaluates at 75 tokens
    scale = of 50, 40, 35, 30, 10 and 1 the best
    weight_decay = tried with the scales, of little effect (appendix D.2)
    tokens_per_pair = the code takes 78 for every pair
    pooling = the mean has 0.47, the last token 0.36; the code divides by the padded length of a batch, so
        that its classification and clustering depend on the batch
    seed = the code sets none
    evaluation.max_length := a Pythia has 2,048; in the variant code evaluation_length has the 75 of the code
    budget = six from 1.5e15 to 1.5e18
    frozen = the paper has 0/6 to 5/6, or 0/8 to 7/8 (section 4.2)
    rank = tried from 8 to 2,048: 32 or 128 are best
    lora_embeddings = the code's sample has adapters of embeddings as well
    :text
    [Efficient-Embeddings, section 4.1]: schedule
    :code
    effemb/utils/data.py: evaluation_length 24, tokens_per_pair 20
    experiments/train_and_eval_lora.gin: lora_embeddings 21
    :full
    effemb/utils/pythia.py: learning_rate 3
    [Efficient-Embeddings, appendix D.1]: learning_rate
    learning_rate = the code's samples have 1e-3
    learning_rate := 0 stands for learning_rate.usual: 6e-05 for pythia-160m
    :lora
    experiments/train_and_eval_lora.gin: learning_rate 9
    [Efficient-Embeddings, table 3]: learning_rate
    learning_rate = of 1e-2, 1e-3 and 1e-4 the best at ranks 8, 16 and 32; the table has no others
    :bias
    [Efficient-Embeddings, table 4]: learning_rate
    learning_rate = of 1e-2, 1e-3 and 1e-4 the best; the code's samples have 1e-3
    """,
    {"": {**ADAMW, **MTEB}},
)
SOURCES["freeze"] = SOURCES["full"]


def _describe_row(
    table: str,
    line: str,
    *differs: str,
    settings: tuple[str, ...] = (),
    suite: str = "mteb-efficient8",
) -> PrintedRow:
    """A printed line, without the name of its recipe."""
    return PrintedRow(
        place=f"Efficient-Embeddings, table {table}",
        recipe="",
        model="EleutherAI/pythia-160m",
        suite=suite,
        settings=("budget=2.4e16", *settings),
        line=line,
        differs=(
            *differs,
            "The paper does not print size and budget of the table: we take 160M of its 14M to 2.8B, and "
            "2.4e16 of its 1.5e15 to 1.5e18",
            "The paper's 200 M pairs of BAAI-MTP are not on the hub: we take the NLI pairs of its code's "
            "samples, passed over as often as the budget asks; --train-data reads a copy of the paper's",
        ),
    )


LOSS = (
    "The paper does not print how many steps its final loss is the mean of: `harness models show` prints "
    "that of our last step"
)

PRINTED = {
    "full": _describe_row(
        "2, Pythia",
        "mean pooling",
        "The paper does not print the method of this table: we take all weights; it compares the best run of "
        "each pooling",
        "The paper's average is over all of MTEB but MSMARCO, and it prints neither the version nor which "
        "mean: we take the 56 tasks of mteb-v1, MSMARCO among them as the suite is compared whole, and the "
        "mean over tasks",
        suite="mteb-v1",
    ),
    "freeze": _describe_row(
        "1, Pythia (partial tuning)",
        "temperature^-1 = 40",
        "The paper does not print how many blocks were trained: we take half of them; its 0.51 is the best "
        "over several weight decays",
    ),
    "lora": _describe_row(
        "3, Pythia LoRA", "rank 32, lr 1e-3", LOSS, settings=("rank=32", "learning_rate=1e-3")
    ),
    "bias": _describe_row("4, Pythia bias-only", "lr 1e-2", LOSS, settings=("learning_rate=1e-2",)),
}
"""The line with the best value of each method's table."""


def build_efficient_entry(settings: EfficientSettings, trained: str, **code: Any) -> RecipeEntry:
    """The entry of the recipe of a method.

    Args:
        settings: Its settings.
        trained: What is trained, in words.
        **code: Further settings of the released code, where they differ.
    """
    variants: dict[str, Variant[EfficientSettings]] = {
        "text": Variant(
            summary="the cosine of section 4.1, which ends at a tenth of the rate",
            settings=replace(settings, schedule="cosine_to_tenth"),
        ),
        "code": Variant(
            summary="the released code: 78 tokens counted a pair, evaluation at 75 tokens"
            + (", adapters of embeddings" if "lora_embeddings" in code else ""),
            settings=replace(settings, tokens_per_pair=TOKENS, evaluation_length=75, **code),
        ),
    }
    return entry(
        EfficientRecipe(
            name=f"efficient-{settings.method}",
            source="Repurposing Language Models into Embedding Models, sections 3 and 4; its code",
            data=(PAIRS,),
            loss=build_symmetric_info_nce,
            settings=settings,
            defaults=settings,
        ),
        f"Embedding models of pairs within a budget: {trained}",
        variants,
        {**SOURCES, "": {**SOURCES[""], **SOURCES[settings.method]}},
        printed=[replace(PRINTED[settings.method], recipe=f"efficient-{settings.method}")],
    )
