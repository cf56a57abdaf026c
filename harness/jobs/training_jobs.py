"""The jobs that make a model: train it, or choose the best of a sweep; both end with its folder in place."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from harness.core import provenance
from harness.core.encoding import Settings
from harness.core.errors import DivergenceError, StoreError, TrainingError
from harness.core.keys import Lineage, MemberPart, ModelDocument
from harness.core.types import Artifact
from harness.encoder.folder.description import Description, compute_folder_identity, describe
from harness.encoder.resolved_encoding import resolve_encoding
from harness.jobs.context import Event, JobContext
from harness.jobs.jobs import resolve_weights
from harness.storage.record import Record
from harness.storage.remote_and_leases import Remote
from harness.storage.store import Store
from harness.training.model_store import ModelStore, copy_model
from harness.training.training import MODEL, TrainingOutcome, TrainingSpec, read_log, run_training


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a model and put its folder in place; there is no output but the folder.

    Attributes:
        spec: The training, without its devices.
        artifact: The model as it was planned.
        lineage: What it is made of.
        description: The model folder as it was planned.
        steps, texts: Its steps and the texts in them; None where their number was not known.
        results: The results folder.
    """

    spec: TrainingSpec
    artifact: Artifact
    lineage: Lineage
    description: Description
    steps: int | None
    texts: int | None
    results: Path

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        """Train in a process group of its own, going on from what an earlier training left.

        Raises:
            DivergenceError: The training diverged, now or earlier.
            TrainingError: The training failed; the message says why and where its log lies.
        """
        store = ModelStore(self.results, context.remote)
        if store.fetch_model(self.artifact.key, self.artifact.slug, context.cache) is not None:
            # Another process has trained it meanwhile.
            return {}
        if reason := store.read_divergence(self.artifact.key):
            forget = f"harness models remove {self.artifact.key[:12]}"
            raise DivergenceError(reason, hint=f"To train it again: {forget}, then the same command.")
        # The training runs in processes of its own, and needs the memory of the device.
        context.forget()
        context.emit(Event(kind="stage", text=f"training {self.artifact.name}"))
        for part in self.spec.data:
            if part.read_as:
                context.emit(Event(kind="note", text=f"{part.name}: {part.read_as}"))
        store.start_training(
            self.artifact.key, name=self.artifact.name, lineage=self.lineage, steps=self.steps
        )
        started = datetime.now(tz=UTC)
        backbone = resolve_weights(self.spec.backbone, context.remote)
        spec = replace(self.spec, backbone=backbone, devices=context.devices)
        # Known where an earlier part of this training ran out of memory.
        spec = replace(spec, micro_batch=store.read_micro_batch(spec.key))
        try:
            outcome, micro_batch = _train(spec, context, store)
        except DivergenceError as error:
            store.set_divergence(spec.key, error.message)
            raise
        self._require_as_planned()
        log = read_log(spec.log.path)
        facts = {
            "micro_batch": micro_batch,
            **provenance.collect_provenance(
                device=context.devices[0], threads=self.spec.threads, started=started
            ),
            "devices": list(context.devices),
            "steps": max((line["step"] for line in log), default=0),
            "seconds": round(sum(line.get("seconds", 0.0) for line in log), 3),
            "tokens": sum(line.get("tokens", 0) for line in log),
            **_sum_flops(log),
            "texts": self.texts,
            **_compute_mask_share(log),
            "notes": list(outcome.notes),
        }
        folder = store.put(
            spec.output, self._build_model_document(spec.output, facts, context.cache), self.artifact.slug
        )
        store.send(self.artifact.key, context.cache)
        context.emit(Event(kind="finished", text=str(folder), steps=facts["steps"], seconds=facts["seconds"]))
        return {}

    def _require_as_planned(self) -> None:
        """Refuse a model whose evaluation would not be the planned one."""
        actual_encoding = _resolve_default_encoding(describe(self.spec.output))
        planned = _resolve_default_encoding(self.description)
        differs = [
            f"{name} is {actual_encoding[name]!r}, not {planned[name]!r}"
            for name in actual_encoding
            if actual_encoding[name] != planned[name]
        ]
        if differs:
            raise TrainingError(
                f"{self.artifact.name} is not the model that its recipe planned: {'; '.join(differs)}.",
                hint="This is a fault of the recipe: what `plan` says and what `train` writes must agree.",
            )

    def _build_model_document(self, folder: Path, facts: Mapping[str, Any], cache: Path) -> ModelDocument:
        content, weights, _ = compute_folder_identity(folder, cache)
        return ModelDocument(
            name=self.artifact.name,
            key=self.artifact.key,
            content=content,
            weights=weights,
            lineage=self.lineage,
            training=facts,
        )


def _sum_flops(log: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The operations of all steps, where the trainer counted them."""
    spent = [line["flops"] for line in log if "flops" in line]
    return {"flops": float(sum(spent))} if spent else {}


def _compute_mask_share(log: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The mean share of in-batch negatives that a filter masked, where there was one."""
    shares = [line["masked"] for line in log if "masked" in line]
    return {"masked": round(fmean(shares), 6)} if shares else {}


def _resolve_default_encoding(description: Description) -> dict[str, Any]:
    """The encoding of a model by its own defaults; an empty prompt is none."""
    encoding = resolve_encoding(description, Settings())
    named = tuple((name, text) for name, text in encoding.prompts if text)
    return asdict(replace(encoding, prompts=named))


def _train(spec: TrainingSpec, context: JobContext, store: ModelStore) -> tuple[TrainingOutcome, int | None]:
    """Run a training to its end, with fewer rows in a pass each time that memory runs out."""
    while True:
        outcome = run_training(spec, lambda message: _tell(message, context))
        if outcome.code == 0:
            return outcome, spec.micro_batch
        rows = int((outcome.memory or {}).get("rows", 0))
        if outcome.memory is None or not outcome.memory["halves"] or rows < 2:
            raise _build_training_error(spec, outcome)
        spec = replace(spec, micro_batch=rows // 2)
        store.set_micro_batch(spec.key, rows // 2)
        context.emit(
            Event(kind="note", text=f"{rows} rows do not fit into memory at once: {rows // 2} in a pass now")
        )


def _tell(message: Mapping[str, Any], context: JobContext) -> None:
    """Pass on a message of a training process."""
    match message["kind"]:
        case "stage":
            context.emit(Event(kind="stage", text=message["text"]))
        case "begin":
            context.emit(Event(kind="training", steps=message["steps"]))
            if message["done"]:
                text = f"goes on from step {message['done']:,} of {message['steps']:,}"
                context.emit(Event(kind="note", text=text))
            context.emit(Event(kind="trained", steps=message["done"]))
        case "steps":
            lines = message["lines"]
            losses = [line["loss"] for line in lines if "loss" in line]
            tokens = sum(int(line.get("tokens", 0)) for line in lines)
            text = f"loss {losses[-1]:.4g}" if losses else ""
            log = lines if context.limits.logs_steps else ()
            context.emit(Event(kind="trained", text=text, steps=len(losses), tokens=tokens, log=log))
        case "progress":
            fields = {name: message[name] for name in ("text", "texts", "tokens")}
            context.emit(Event(kind=message["event"], **fields))
        case "note":
            context.emit(Event(kind="note", text=message["text"]))


def _build_training_error(spec: TrainingSpec, outcome: TrainingOutcome) -> TrainingError | StoreError:
    """The error for a training that ended without a model."""
    error = outcome.error
    goes_on = "The same command goes on from the last checkpoint. " if any(spec.checkpoints.glob("*")) else ""
    kept = f"{goes_on}Its output: {spec.printed}"
    if outcome.memory is not None:
        rows = outcome.memory["rows"]
        return TrainingError(
            f"A pass over {rows} rows does not fit into memory.",
            hint="Type e.g. --set batch_size=N or --set max_length=N for a smaller pass (another model).",
        )
    if error is None:
        # -9 is SIGKILL, which Linux sends to a process when main memory runs out.
        killed = " (out of memory?)" if outcome.code == -9 else ""
        return TrainingError(f"The training process ended with code {outcome.code}{killed}.", hint=kept)
    if error["name"] == "StoreError":
        return StoreError(error["text"], hint=error["hint"])
    if error["own"]:
        kind = DivergenceError if error["name"] == DivergenceError.__name__ else TrainingError
        return kind(error["text"], hint=error["hint"] or kept)
    return TrainingError(f"The training failed: {error['name']}: {error['text']}", hint=kept)


@dataclass(frozen=True, kw_only=True)
class Choose:
    """Choose the best model of a sweep and put it in its place under the sweep's own key.

    Attributes:
        artifact: The model as it was planned.
        lineage: What it is made of; the choice is added to its sweep.
        members: The models of the sweep, in the order of its values.
        trials: For each member, by the column that chooses, the task and the key of its score.
        results: The results folder.
    """

    artifact: Artifact
    lineage: Lineage
    members: tuple[Artifact, ...]
    trials: tuple[Mapping[str, tuple[str, str]], ...]
    results: Path

    def run(self, context: JobContext) -> Mapping[str, bytes]:
        """Copy the member with the highest mean score, the first of equals; the members' vectors go.

        A member whose training diverged has no score and is not chosen.

        Raises:
            TrainingError: A score is missing, or is of other weights than its model has now; or all diverged.
        """
        from harness.storage.vectors import drop_vectors

        store = ModelStore(self.results, context.remote)
        if store.fetch_model(self.artifact.key, self.artifact.slug, context.cache) is not None:
            # Another process has chosen it meanwhile.
            return {}
        context.emit(Event(kind="stage", text=f"choosing {self.artifact.name}"))
        # The plan was made before the training: the weights are those on disk now.
        members = [resolve_weights(replace(member, weights=""), context.remote) for member in self.members]
        records = [
            self._read_member_records(*pair, context.remote)
            for pair in zip(members, self.trials, strict=True)
        ]
        best = find_best_member(records)
        if best is None:
            raise TrainingError(
                f"All {len(members)} trainings of {self.artifact.name} diverged, so none can be chosen.",
                hint="Sweep other values.",
            )
        stored_model = store.find(members[best].key, context.cache)
        if stored_model is None:
            raise TrainingError(f"{members[best].name} ({members[best].key[:12]}) is gone.", hint=_AGAIN)
        chosen, document = stored_model
        work = store.start_training(
            self.artifact.key,
            name=self.artifact.name,
            lineage=self.lineage,
            steps=document.training.get("steps"),
        )
        folder = copy_model(chosen, work / MODEL)
        model_document = document.model_copy(
            update={
                "name": self.artifact.name,
                "key": self.artifact.key,
                "lineage": self._build_sweep_lineage(records, best, document.lineage.assumed),
            }
        )
        for member in members:
            drop_vectors(context.cache, member.key)
        placed = store.put(folder, model_document, self.artifact.slug)
        store.send(self.artifact.key, context.cache)
        text = f"{model_document.lineage.text}, by {', '.join(self.trials[0])}; {placed}"
        context.emit(Event(kind="finished", text=text))
        return {}

    def _read_member_records(
        self, member: Artifact, trials: Mapping[str, tuple[str, str]], remote: Remote | None
    ) -> list[Record]:
        """The records of a member's scores, of the weights that it has now; none where it diverged."""
        store, models = Store(self.results, remote), ModelStore(self.results)
        if not member.weights and models.read_divergence(member.key):
            return []
        records = []
        for task, key in trials.values():
            record = store.get(member.slug, task, key, purpose="trial")
            if record is None or member.weights not in ("", record.model.weights):
                what = "is missing" if record is None else "is of other weights than the model has now"
                raise TrainingError(f"The score of {member.name} on {task} {what}.", hint=_AGAIN)
            records.append(record)
        return records

    def _build_sweep_lineage(
        self, records: Sequence[Sequence[Record]], best: int, assumed: tuple[str, ...]
    ) -> Lineage:
        sweep = self.lineage.sweep
        assert sweep is not None
        curve = tuple(
            MemberPart(
                value=value,
                artifact=member.key,
                scores=dict(zip(sweep.tasks, map(_require_main_score, trials), strict=True))
                if trials
                else {},
                mean=_compute_member_mean(trials) if trials else None,
            )
            for value, member, trials in zip(sweep.values, self.members, records, strict=True)
        )
        full_sweep = sweep.model_copy(update={"chosen": sweep.values[best], "curve": curve})
        return self.lineage.model_copy(update={"sweep": full_sweep, "assumed": assumed})


_AGAIN = "Run the same command again: it makes what is missing."


def find_best_member(records: Sequence[Sequence[Record]]) -> int | None:
    """The place of the member of a sweep with the highest mean of main scores, the first of equals.

    None where no member has scores.
    """
    means = {place: _compute_member_mean(found) for place, found in enumerate(records) if found}
    # NaN is neither larger nor smaller: `max` would choose by the order of the members.
    finite = {place: mean if math.isfinite(mean) else -math.inf for place, mean in means.items()}
    return max(finite, key=finite.__getitem__, default=None)


def _compute_member_mean(records: Sequence[Record]) -> float:
    return fmean(map(_require_main_score, records))


def _require_main_score(record: Record) -> float:
    assert record.main_score is not None
    return record.main_score
