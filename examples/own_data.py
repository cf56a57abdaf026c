# %% [markdown]
# # Your own data: evaluate, train, evaluate again
# A folder with a file of pairs and a `harness.toml` is a suite; the same pairs can train a model.

# %%
import csv
from pathlib import Path

import harness

folder = Path("build/examples/pairs")
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
acts = ["buys", "sells", "paints", "repairs", "hides", "lends", "finds", "wraps"]
said = {"buys": "purchases", "sells": "parts with", "paints": "puts colour on", "repairs": "mends"}
said |= {"hides": "conceals", "lends": "gives away for a while", "finds": "comes across", "wraps": "packs"}
with (folder / "pairs.csv").open("w", newline="") as file:
    rows = csv.writer(file)
    rows.writerow(["text1", "text2", "score"])
    for number, thing in enumerate(things):
        for act in acts:
            other = things[(number + 3) % len(things)]
            rows.writerow([f"She {act} a {thing}.", f"She {said[act]} a {thing}.", 5])
            rows.writerow([f"She {act} a {thing}.", f"He {said[act]} a {other}.", 1])
(folder / "harness.toml").write_text('[[task]]\nname = "things"\ntype = "sts"\nfile = "pairs.csv"\n')

# %%
results = Path("build/examples/results")
before = harness.run("minilm", f"local:{folder}", results=results).records[0]
print("before", round(100 * before.main_score, 2))

# %% [markdown]
# A few steps of SimCSE on the functions of this project. `train_data` also takes your file of pairs. The model is kept under
# a key that follows from all of this, so the same call trains nothing a second time.

# %%
(model,) = harness.train(
    "minilm",
    "simcse:mean",
    train_data="code:harness/core",
    recipe_settings={"max_steps": 5, "batch_size": 16},
    results=results,
)
after = harness.run(str(model.folder), f"local:{folder}", results=results).records[0]
print("after", round(100 * after.main_score, 2))
