"""Fine-tuning on GLUE under published protocols: tasks, settings of a run, grids."""
