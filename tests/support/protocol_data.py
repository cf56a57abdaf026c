"""A random backbone, and a data root in hub layout for the quick runs of protocols, all of a few words."""

from __future__ import annotations

from pathlib import Path

import tiny
from data_files import lines, parquet
from finetune.recipes.dpr import MSMARCO
from finetune.recipes.mldr import MLDR
from finetune.recipes.simcse import NLI
from glue_data import data_root
from retrieval_data import card, lay_retrieval
from scored_data import sentence, tables, write
from suites._mteb.snapshot import load_snapshot

RETRIEVAL = ("NFCorpus", "SciFact", "ArguAna", "StackOverflowQA")


def backbone(folder: Path) -> Path:
    """A bare BERT of two layers with random weights and 256 positions."""
    return tiny.folder(tiny.families()["bert"], folder, max_position_embeddings=256, num_hidden_layers=2)


def lay_protocol_data(root: Path, *, rows: int = 64) -> Path:
    """What quick runs of modernbert and optibert read, but for some tasks of MTEB, which are gaps."""
    data_root(root, train=16, dev=8)
    for name in RETRIEVAL:
        lay_retrieval(root, name)
    lay_retrieval(root, "MultiLongDocRetrieval", subsets=("en",))
    lay_retrieval(root, "COIRCodeSearchNetRetrieval", subsets=("ruby",))
    write(root / "lightonai/ms-marco-en-bge", tables(rows, 32))
    for data, count in ((NLI, rows), (MSMARCO, rows + MSMARCO.held_out)):
        folder = root / data.path
        texts = {
            name: [sentence(n + 3000 * at) for n in range(count)] for at, name in enumerate(data.columns)
        }
        parquet(folder / data.config / "train.parquet", texts)
        (folder / "README.md").write_text(card({data.config: {"train": Path(data.config, "train.parquet")}}))
    lines(
        root / MLDR.path / MLDR.file,
        [
            {
                "query": sentence(n),
                "positive_passages": [{"docid": f"p{n}", "text": sentence(n + 3000)}],
                "negative_passages": [{"docid": f"n{n}", "text": sentence(n + 6000)}],
            }
            for n in range(rows)
        ],
    )
    (root / MLDR.path / "README.md").write_text("")
    similar = load_snapshot().find_task_info("STS15").path
    pairs = [{"sentence1": sentence(n), "sentence2": sentence(n * 3 % 20), "score": n % 5} for n in range(20)]
    lines(root / similar / "test.jsonl", pairs)
    (root / similar / "README.md").write_text(card({"default": {"test": Path("test.jsonl")}}))
    return root
