# %% [markdown]
# # A first model
# Evaluate a small model on tasks made of Python's standard library, and look at the scores. Nothing is fetched.
# Jupyter opens this file as a notebook (jupytext); Python runs it as it is.

# %%
from pathlib import Path

import harness

results = Path("build/examples/results")
report = harness.run("minilm", "stdlib", tasks="StdlibDocstringClassification", limit=64, results=results)
for record in report.records:
    print(record.task.name, record.task.metric, round(100 * record.main_score, 2))

# %% [markdown]
# With `limit=64` the score is a trial: a quick look, which no table takes for a score of the task. Without it the same
# call gives the final score. Every record says what it depends on:

# %%
print(record.identity["encoding"])
