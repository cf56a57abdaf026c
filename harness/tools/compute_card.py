"""The compute card of a model: its parameters, its operations, what trained it, and what is stated of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.core.lineage import ModelDocument
from harness.results.compute import SHORT, BackboneCompute
from harness.results.cost.duration import format_duration
from harness.results.cost.price import DevicePrice, TrainingBill
from harness.results.notes import NOTES, ComputeNote, format_amount
from harness.training.model_store import ModelStore


@dataclass(frozen=True, kw_only=True)
class ComputeCard:
    """Everything that is known of a model's compute.

    Attributes:
        model: Its name.
        compute: Its backbone.
        bills: The trainings that made it, the last one first, as far as they are here.
        note: What is stated of its pretraining; None for nothing.
        prices: The table of prices.
    """

    model: str
    compute: BackboneCompute
    bills: Sequence[TrainingBill]
    note: ComputeNote | None
    prices: Sequence[DevicePrice]

    @property
    def lengths(self) -> list[int]:
        """The lengths of a text whose operations are shown."""
        limit = self.compute.limit or SHORT
        return sorted({min(SHORT, limit), limit})

    def to_json(self) -> dict[str, Any]:
        """The card as values; docs/json.md describes them."""
        compute, note = self.compute, self.note
        return {
            "model": self.model,
            **{name: value for name, value in asdict(compute).items() if name != "windows"},
            "formula_parameters": compute.formula_parameters,
            "forward": [
                {
                    "tokens": length,
                    "operations": compute.count_operations(length),
                    "windowed": compute.count_operations(length, windows=True) if compute.windows else None,
                    "token_flops": compute.compute_token_flops(length),
                }
                for length in self.lengths
            ],
            "trainings": [asdict(bill) for bill in self.bills],
            "stated": note and note.model_dump(mode="json", exclude={"counted"}),
            "stated_operations": note and note.operations,
            "stated_dollars": note and note.compute_dollars(self.prices),
            "contradictions": [*note.list_contradictions(self.prices)] if note else [],
        }

    def iter_lines(self) -> Iterator[str]:
        """The card in lines."""
        compute = self.compute
        sizes = f"{compute.parameters:,} parameters, {compute.without_embeddings:,} without embeddings"
        yield f"{self.model}: {sizes}"
        formula = f"N = 12 · width² · layers = {compute.formula_parameters:,}"
        yield f"  shape: {compute.layers} layers of width {compute.width}; {formula}"
        if compute.formula_parameters > compute.without_embeddings:
            yield "  N is the formula for a BERT of this shape; this model has fewer."
        if not compute.is_exact:
            yield "  The products of usual attention are counted; a model of this family may compute more."
        for length in self.lengths:
            windowed = format_amount(compute.count_operations(length, windows=True))
            yield (
                f"  {length:,} tokens: {format_amount(compute.count_operations(length))} operations forward"
                f"{f' ({windowed} with its windows)' if compute.windows else ''}; "
                f"F_N = {format_amount(compute.compute_token_flops(length))} for each token of a training"
            )
        yield from (f"  trained: {_format_bill(bill)}" for bill in self.bills)
        if len(self.bills) > 1:
            yield f"  all trainings: {_format_total(self.bills)}"
        yield from (f"  {line}" for line in _iter_note_lines(self.note, self.prices))


def _iter_note_lines(note: ComputeNote | None, prices: Sequence[DevicePrice]) -> Iterator[str]:
    if note is None:
        yield "stated of its pretraining: nothing; `harness models note` states it"
        return
    yield f"stated of its pretraining: {', '.join(note.list_statements(prices))}"
    yield from (f"this contradicts itself: {sentence}" for sentence in note.list_contradictions(prices))


def _format_bill(bill: TrainingBill) -> str:
    facts = {
        bill.recipe: True,
        f"{bill.tokens:,} tokens in {format_duration(bill.seconds)} on {bill.devices} × {bill.device}": True,
        f"{_format_operations([bill])} operations": True,
        f"{bill.utilisation or 0:.1%} of its peak": bill.utilisation,
        f"${bill.dollars or 0:,.2f}": bill.dollars is not None,
    }
    return ", ".join(text for text, value in facts.items() if value)


def _format_total(bills: Sequence[TrainingBill]) -> str:
    dollars = [bill.dollars for bill in bills if bill.dollars is not None]
    price = f", ${sum(dollars):,.2f}" if len(dollars) == len(bills) else ""
    seconds = sum(bill.seconds for bill in bills)
    return f"{format_duration(seconds)}, {_format_operations(bills)} operations{price}"


def _format_operations(bills: Sequence[TrainingBill]) -> str:
    counts = [bill.operations for bill in bills if bill.operations]
    return format_amount(sum(counts)) if len(counts) == len(bills) else "an unknown number of"


def collect_bills(
    document: ModelDocument | None, compute: BackboneCompute, results: Path, prices: Sequence[DevicePrice]
) -> list[TrainingBill]:
    """The bills of the trainings that made a model, the last one first, each once.

    Args:
        document: Its model.json; None if nothing trained it.
        compute: Its backbone, which is that of the models that it was made from.
        results: The results folder, where those are.
        prices: The table of prices.
    """
    stored_models = ModelStore(results).list_stored_models() if document else []
    documents = {model.document.key: model.document for model in stored_models if model.document}
    chain = {document.key: document} if document else {}
    waiting = list(chain.values())
    while waiting:
        parents = [parent.artifact for parent in waiting.pop().lineage.parents]
        new_documents = {key: documents[key] for key in parents if key in documents and key not in chain}
        chain |= new_documents
        waiting += new_documents.values()
    bills = (TrainingBill.from_document(one, compute, prices) for one in chain.values())
    return [bill for bill in bills if bill]


def find_note(results: Path, weights: str) -> ComputeNote | None:
    """The note on weights of this hash; None without one."""
    path = NOTES.locate_document(results, weights)
    return NOTES.read_document_file(path) if path.is_file() else None
