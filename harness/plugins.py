"""What authors of backbones, recipes and suites need; these names stay, whatever moves inside the harness.

docs/new-backbone.md, docs/new-recipe.md and docs/new-suite.md show their use. Imports no torch, transformers
or mteb.
"""

from harness.core.encoding import EvaluationSettings
from harness.core.errors import DataError, HarnessError, ModelError, StoreError, TrainingError, UsageError
from harness.core.keys import Lineage, ParentPart
from harness.core.sources import Source, SourcedSetting
from harness.core.types import (
    Artifact,
    Column,
    CorpusSource,
    CountedSource,
    Data,
    DataReport,
    FileSource,
    LabelledData,
    LabelledSplit,
    LabelSource,
    MeasuredModel,
    MeasuredSource,
    Outcome,
    Output,
    Predictor,
    Size,
    Suite,
    SuiteEntry,
    SuiteOptions,
    TableSource,
    Task,
    TaskSource,
    TextEncoder,
    TextRanker,
    VectorSource,
)
from harness.data.training.loading import load_rows, load_scored, load_training
from harness.data.training.own_rows import TrainingSource
from harness.data.training.sets import LocatedTraining, TrainingData
from harness.encoder.architecture import Architecture, BackboneEntry, Config, Family, Head, Names
from harness.encoder.folder.description import Description, describe
from harness.jobs.protocol import ProtocolColumn, ProtocolEntry, ProtocolStep, ProtocolTable
from harness.jobs.recipe import Estimate, ModelRecipe, PlannedModel, RecipeEntry, RecipePlan, TaskRecipe
from harness.storage.imported import Imported
from harness.training.training import TrainingLog, TrainingSpec

__all__ = [
    "Architecture",
    "Artifact",
    "BackboneEntry",
    "Column",
    "Config",
    "CorpusSource",
    "CountedSource",
    "Data",
    "DataError",
    "DataReport",
    "Description",
    "Estimate",
    "EvaluationSettings",
    "Family",
    "FileSource",
    "HarnessError",
    "Head",
    "Imported",
    "LabelSource",
    "LabelledData",
    "LabelledSplit",
    "Lineage",
    "LocatedTraining",
    "MeasuredModel",
    "MeasuredSource",
    "ModelError",
    "ModelRecipe",
    "Names",
    "Outcome",
    "Output",
    "ParentPart",
    "PlannedModel",
    "Predictor",
    "ProtocolColumn",
    "ProtocolEntry",
    "ProtocolStep",
    "ProtocolTable",
    "RecipeEntry",
    "RecipePlan",
    "Size",
    "Source",
    "SourcedSetting",
    "StoreError",
    "Suite",
    "SuiteEntry",
    "SuiteOptions",
    "TableSource",
    "Task",
    "TaskRecipe",
    "TaskSource",
    "TextEncoder",
    "TextRanker",
    "TrainingData",
    "TrainingError",
    "TrainingLog",
    "TrainingSource",
    "TrainingSpec",
    "UsageError",
    "VectorSource",
    "describe",
    "load_rows",
    "load_scored",
    "load_training",
]
