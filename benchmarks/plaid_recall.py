"""The recall of PLAID beside exact search on SciFact, with MiniLM's token vectors behind a random projection.

    python benchmarks/plaid_recall.py --data FOLDER [--sample 1500] [--searches plaid:nbits=8]

Prints a line for each search: its recall@10 with its interval, nDCG@10, and what the index takes. With
`--sample` an index begins with so many documents, and the others follow in blocks
of `--block` characters, as in a corpus of more
than 30,000. Bars: at the usual settings a recall of at least 0.90 with the usual seed, with nbits=8 of 0.95.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from measuring import locate_minilm, read_options

SEARCHES = (
    "exact",
    *(f"plaid{bits}{seed}" for bits in (":nbits=4", ":nbits=8") for seed in ("", ",seed=1", ",seed=2")),
)
BARS = {"plaid:nbits=4": 0.90, "plaid:nbits=8": 0.95}


def save_model(folder: Path, document_length: int = 64) -> Path:
    """MiniLM with an orthogonal projection to 64 dimensions, drawn at random."""
    import torch
    from pylate.models import ColBERT

    model = ColBERT(
        str(locate_minilm()),
        embedding_size=64,
        document_length=document_length,
        query_length=32,
        device="cpu",
    )
    torch.manual_seed(0)
    torch.nn.init.orthogonal_(model[1].linear.weight)  # type: ignore[arg-type]
    model.save(str(folder / "minilm-colbert"))
    return folder / "minilm-colbert"


def main() -> int:
    """Print a line for each search; 1 if one of the bars is missed."""
    searches = {"nargs": "+", "default": SEARCHES, "metavar": "INDEX", "help": "as --index takes"}
    given = read_options(__doc__, data=Path, sample=0, block=1_000_000, searches=searches)
    import harness
    from harness.search import plaid_index

    if given.sample:
        plaid_index.sample_size = lambda count: min(count, given.sample)  # type: ignore[assignment]
        plaid_index.BLOCK_CHARACTERS = given.block
    missed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = save_model(folder)
        places = {"results": folder / "results", "cache": folder / "cache", "data": given.data}
        for index in given.searches:
            report = harness.run(
                str(model), "mteb:SciFact", index=index, vectors="float16", gate=False, **places
            )
            (record,) = report.records
            (search,) = record.provenance.get("index", {}).get("searches", [None])
            line = f"{index:22} nDCG@10 {100 * (record.main_score or 0):.2f}"
            if search is not None:
                recall, seconds = search["recall"], search["seconds"]
                missed += recall["value"] < BARS.get(index, 0.0)
                line += f"  recall@10 {recall['value']:.3f} ({recall['low']:.3f} to {recall['high']:.3f})"
                line += f"  {seconds['index']:.0f} s to make, {search['bytes'] / 1e6:.0f} MB"
                line += f", {seconds['search']:.0f} s to search"
            print(line, flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
