"""ColBERT by distillation on MS MARCO, as ModernBERT has it (Warner et al. 2024); the settings of PyLate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from finetune.colbert.settings import ColBERTSettings
from finetune.embedding.plan import TrainerRecipe, Variant, entry
from finetune.embedding.settings import SuggestedRows
from finetune.origins import MODERNBERT, PYLATE, TRAINER
from finetune.recipes.dpr import MSMARCO, SWEEP
from harness.core.arguments import join_settings
from harness.core.encoding import MOST_PAIRS, EvaluationSettings, LateInteraction, Plaid
from harness.core.errors import UsageError, require_package
from harness.core.sources import read_sources
from harness.core.types import Artifact, Output
from harness.data.scored_tables import IDS, SCORES, TEXTS
from harness.data.training.sets import LocatedTraining, TrainingData
from harness.encoder.folder.description import Description
from harness.jobs.recipe import PrintedRow
from harness.training.training import TrainingSpec


@dataclass(frozen=True, kw_only=True)
class ColBERTRecipe(TrainerRecipe[ColBERTSettings]):
    """A recipe that trains a multi-vector (ColBERT) model."""

    facts: ClassVar[Mapping[str, str]] = {
        **TrainerRecipe.facts,
        "search": f"exact up to {MOST_PAIRS:g} pairs of a query's and a document's token, beyond (of BEIR at "
        "510 tokens: Touche2020, NQ, DBPedia, HotpotQA, FEVER, ClimateFEVER, MSMARCO) by an index, --index "
        f"{join_settings('plaid', asdict(Plaid()), dict.fromkeys(asdict(Plaid())))} (--index exact for none; "
        "ModernBERT's script has Voyager with M 200 and ef 500); token vectors are kept in float16, or as "
        "--vectors says; tokens without one have no product, not 0 as in training",
        "start": "the prefixes are new tokens, whose embeddings transformers draws around the mean of "
        "all with 1e-9 of their covariance; the projection begins as a Linear of torch",
    }

    @property
    def output(self) -> Output:
        """The output of the model: a vector for each token."""
        return "multivector"

    def train(self, spec: TrainingSpec) -> None:
        """Train, in a process of its own, and write the model to `spec.output`."""
        from finetune.colbert.training import ColBERTSetup
        from finetune.embedding.trainer import run_trainer

        run_trainer(spec, self.settings, ColBERTSetup(self.settings))

    def _list_facts(self) -> dict[str, Any]:
        late = asdict(self.settings.late_interaction)
        prefixes = {name: late[name] for name in ("query_prefix", "document_prefix")}
        return {**super()._list_facts(), **prefixes, "skiplist": "".join(late["skiplist"])}

    def _plan_description(self, description: Description) -> Description:
        return replace(
            description,
            pooling=None,
            normalize=False,
            similarity_fn_name="maxsim",
            late_interaction=self.settings.late_interaction,
        )

    def _count_row_texts(self, data: Sequence[LocatedTraining]) -> int:
        if self.settings.loss == "distillation":
            return 1 + self.settings.documents
        return max(len(part.data.columns) for part in data)

    def _check_backbone_fit(self, backbone: Artifact, description: Description) -> None:
        require_package("pylate", extra="colbert", purpose=f"--recipe {self.name}")
        super()._check_backbone_fit(backbone, description)
        # A trained projection is kept, and so are the tokens of its prefixes.
        before, settings = description.late_interaction, self.settings
        if before is not None and before.dimension != settings.dimension:
            raise UsageError(
                f"{backbone.name} has token vectors of {before.dimension} dimensions, and {self.name} trains "
                f"{settings.dimension}.",
                hint=f"Type --set dimension={before.dimension}, or give the bare backbone.",
            )
        if before is not None and _get_prefixes(before) != _get_prefixes(settings.late_interaction):
            raise UsageError(
                f"{backbone.name} has the prefixes {_get_prefixes(before)}, and {self.name} trains "
                f"{_get_prefixes(settings.late_interaction)}.",
                hint="Give the bare backbone, or a PyLate model with its default prefixes.",
            )
        limit = description.position_limit
        for name in ("query_length", "document_length"):
            length = getattr(settings, name)
            if limit is not None and length > limit:
                raise UsageError(
                    f"{name} is {length}, and {backbone.name} has positions for {limit} tokens.",
                    hint=f"Type --set {name}={limit}, or less.",
                )

    def _check_training_data(self, data: Sequence[LocatedTraining]) -> None:
        distills = self.settings.loss == "distillation"
        for part in data:
            if distills and not part.data.texts:
                raise UsageError(
                    f"{part.name} has no documents with a teacher's scores (each row is a {part.data.form}).",
                    hint="Make such data with `harness data score --teacher MODEL`, or train on pairs with "
                    "--recipe colbert:contrastive.",
                )
            if not distills and part.data.score:
                raise UsageError(
                    f"{part.name} has scores in each row ({part.data.form}), which {self.name} does not "
                    "take.",
                    hint="Give pairs, triplets, or rows with several negatives.",
                )
        if distills and len(data) > 1:
            raise UsageError("Distillation takes one data set.", hint="Give one, with all rows.")
        super()._check_training_data(data)

    def _collect_plan_notes(
        self, backbone: Artifact, description: Description, settings: ColBERTSettings
    ) -> tuple[str, ...]:
        if description.late_interaction is not None:
            return (
                f"{backbone.name} has a vector for each token already: it is trained further, with its "
                "projection",
            )
        return super()._collect_plan_notes(backbone, description, settings)


def _get_prefixes(late: LateInteraction) -> tuple[str, str]:
    return late.query_prefix, late.document_prefix


SCORED = TrainingData(
    path="lightonai/ms-marco-en-bge",
    revision="11e6ffa1d22f461579f451eb31bdc964244cb61f",
    config="train",
    columns=IDS,
    score=SCORES,
    texts=TEXTS,
    rows=808_728,
)
"""Queries of MS MARCO, each with 32 passages and the scores of a teacher."""

SCRIPT = ColBERTSettings(
    learning_rate=8e-5,
    batch_size=16,
    epochs=1,
    warmup=0.05,
    precision="bfloat16",
    last_batch="kept",
)
"""The values of the released script, the rest being the defaults of PyLate and of transformers' trainer."""

CONTRASTIVE = replace(
    SCRIPT,
    loss="contrastive",
    learning_rate=3e-6,
    batch_size=32,
    warmup=0.0,
    batches="no_duplicates",
    chunk=SuggestedRows(32),
)
"""The values of PyLate's example of a contrastive training."""

SOURCES = read_sources(
    MODERNBERT,
    f"""
    examples/train_pylate.py: warmup 59, data 14, loss 63, learning_rate 35, batch_size 36, epochs 34,
        precision 54
    {PYLATE}pylate/models/colbert.py: query_prefix 368, document_prefix 375, skiplist 446, dimension 325,
        query_length 438, document_length 430, expansion 459, attends_to_expansion 467
    {PYLATE}pylate/utils/processing.py: documents 66
    {PYLATE}pylate/scores/colbert.py: evaluation.similarity 9
    examples/evaluate_pylate.py: evaluation.dtype 17, evaluation.max_length 19,
        evaluation.task_query_lengths 19
    [ModernBERT, section 3.1.2]: warmup, data, loss, batch_size
    [ModernBERT, appendix E.2, table 9]: sweep
    [ModernBERT, section 3.1.3]: evaluation.document_lengths
    [default of PyLate]: query_prefix, document_prefix, skiplist, dimension, query_length, document_length,
        expansion, attends_to_expansion, documents
    [default of transformers' Trainer]: seed
    seed = the order of the script's sampler does not follow from it
    seed := the order of rows follows from it
    data = the paper has 810 k rows with scores of BGE-M3, and the card of these names bge-reranker-v2-m3
    data := the scores as the set has them, 32 in a row
    evaluation.max_length = PyLate's script has 300 (--evaluation pylate); which made the paper's table is not
        said
    learning_rate = the script's; the paper's is the best of six (sweep)
    evaluation.dtype = no option is set
    :contrastive
    {PYLATE}examples/train/contrastive.py: loss 35, learning_rate 53, batch_size 14, epochs 16
    {PYLATE}pylate/losses/contrastive.py: temperature 131
    {PYLATE}examples/evaluation/beir_dataset.py: evaluation.max_length 52, evaluation.task_query_lengths 11
    [default of PyLate]: temperature
    data = PyLate's example has triplets of BM25
    data := the triplets of dpr
    loss = of PyLate's cached loss the gradient is that of the sum over a batch, not of its mean, which a
        limit of the gradient's norm makes another step
    precision = PyLate's example has float16
    batches = PyLate's example shuffles
    """,
    {"": TRAINER, "contrastive": {"warmup": TRAINER["warmup"]}},
)


EVALUATION = EvaluationSettings(
    max_length=510, task_query_lengths=False, document_lengths={"MultiLongDocRetrieval": 8192}
)
"""Documents of `examples/evaluate_pylate.py`, whose queries have one length, and of MLDR in the paper."""

PYLATE_EVALUATION = replace(EVALUATION, max_length=300, task_query_lengths=True)
"""PyLate's `beir_dataset.py`: shorter documents, and longer queries on five data sets."""

EVALUATIONS = {"": EVALUATION, "contrastive": PYLATE_EVALUATION, "pylate": PYLATE_EVALUATION}
"""Which of the two made the paper's table is not said; the contrastive training is PyLate's."""


PRINTED = PrintedRow(
    place="ModernBERT, table 8, ModernBERT base",
    recipe="colbert",
    model="answerdotai/ModernBERT-base",
    suite="beir",
    settings=("learning_rate=1e-4",),
    differs=(
        "The paper does not print which script evaluated: we take its own; --evaluation pylate is PyLate's",
        "The paper does not print the queries of MSMARCO: we take the development queries, which its numbers "
        "fit",
    ),
)

RECIPE = entry(
    ColBERTRecipe(
        name="colbert",
        source="ModernBERT, section 3.1.2; examples/train_pylate.py of its code",
        data=(SCORED,),
        sweep=SWEEP,
        settings=SCRIPT,
        defaults=SCRIPT,
    ),
    "ColBERT by distillation from a teacher's scores of 32 passages a query, a vector for each token",
    {
        "contrastive": Variant(
            summary="ColBERT by contrast with all documents of a batch, on the triplets of dpr",
            settings=CONTRASTIVE,
            data=(MSMARCO,),
        )
    },
    SOURCES,
    EVALUATIONS,
    [PRINTED],
)
