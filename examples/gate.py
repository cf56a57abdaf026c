# %% [markdown]
# # A gate for checkpoints
# Is a candidate worse than a baseline by more than the margin? The check compares both example by example. Here the
# candidate is the baseline itself; put a checkpoint's folder in its place.

# %%
from pathlib import Path

import harness

folder = Path("build/examples/ranked")
folder.mkdir(parents=True, exist_ok=True)
things = [
    "kettle",
    "ladder",
    "violin",
    "carpet",
    "anchor",
    "pepper",
    "lantern",
    "saddle",
    "marble",
    "thimble",
]
places = [
    "kitchen",
    "harbour",
    "library",
    "garden",
    "station",
    "attic",
    "bakery",
    "theatre",
    "stable",
    "cellar",
]
pairs = [(thing, place) for thing in things for place in places]
rows = [
    f"Somebody left the {thing} near the {place},It is by the {place}: a {thing},5" for thing, place in pairs
]
rows += [f"Somebody left the {thing} near the {place},It is in another {thing},2" for thing, place in pairs]
(folder / "pairs.csv").write_text("\n".join(["text1,text2,score", *rows]) + "\n")
(folder / "harness.toml").write_text('[[task]]\nname = "ranked"\ntype = "sts"\nfile = "pairs.csv"\n')

# %%
results = Path("build/examples/results")
check = harness.check("minilm", "minilm", f"local:{folder}", results=results)
print(check.overall, "-", check.because[0])

# %% [markdown]
# Both sides are one model, so every score is the `same`. The exit code of `harness check` says the verdict to a CI job:
# 0 passed, 1 regressed, 3 inconclusive. docs/check.md explains margins, docs/ci.md has the workflows.

# %%
for mean in check.means:
    print(mean.suite, mean.verdict, mean.delta)
