"""A recipe of another distribution: NeoBERT's settings with a grid of two cells."""

from dataclasses import replace

from finetune.glue.plan import entry
from finetune.glue.settings import Grid
from finetune.recipes import glue_neobert
from suites.glue import TASKS

GRID = Grid(learning_rates=(1e-5, 3e-5), batch_sizes=(32,), weight_decays=(0.01,), epochs=(3,))

PROTOCOL = replace(
    glue_neobert.PROTOCOL,
    name="sample-glue",
    source="ours, after NeoBERT's",
    grids=dict.fromkeys(TASKS, GRID),
    variants={},
)
RECIPE = entry(PROTOCOL, "GLUE with two rates")
