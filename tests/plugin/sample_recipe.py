"""A recipe of another distribution: NeoBERT's settings with a grid of two cells."""

from dataclasses import replace

from finetune.glue.protocol import Grid
from finetune.glue.recipe import entry
from finetune.glue.tasks import TASKS
from finetune.recipes import glue_neobert

GRID = Grid(learning_rates=(1e-5, 3e-5), batch_sizes=(32,), weight_decays=(0.01,), epochs=(3,))

PROTOCOL = replace(
    glue_neobert.PROTOCOL,
    name="sample-glue",
    source="ours, after NeoBERT's",
    grids=dict.fromkeys(TASKS, GRID),
    variants={},
)
RECIPE = entry(PROTOCOL, "GLUE with two rates")
