"""A model's cards: of its scores and what it was made of, for the hub, and of its compute."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.core import files
from harness.core.errors import UsageError
from harness.core.keys import Lineage, ModelDocument, ParentPart, is_of_object
from harness.core.types import OWN_UNITS, Suite, SuiteOptions
from harness.driver.protocol import PreparedProtocol
from harness.driver.report.suite import (
    CHOSE,
    format_lineage_lines,
    format_mean_lines,
    is_approximate,
    is_selection_score,
)
from harness.encoder import backbones
from harness.encoder.folder.files import read_object
from harness.encoder.folder.modules_and_pooling import find_backbone_folder, read_modules
from harness.plan import catalog
from harness.results.cost.compute import BackboneCompute
from harness.results.cost.duration import format_duration
from harness.results.cost.price import DevicePrice, TrainingBill, compute_price
from harness.results.notes import ComputeNote, format_amount
from harness.results.results import MeasuredSuite, NotMeasuredError, build_suite_views, format_setting
from harness.results.revisions import find_data_revision
from harness.results.scores import MAIN_SCORE, Aggregates, score_text
from harness.storage.record import APPROXIMATE, Record
from harness.tools.conditions import (
    MeasuredCondition,
    build_repeat_commands,
    choose_condition,
    collect_conditions,
)
from harness.training.model_store import ModelStore


@dataclass(frozen=True, kw_only=True)
class ComputeCard:
    """A model's compute, the `bills` of its trainings, the last first, and a `note` on its pretraining."""

    model: str
    compute: BackboneCompute
    bills: Sequence[TrainingBill]
    note: ComputeNote | None
    prices: Sequence[DevicePrice]
    protocol: _ProtocolBill | None = None

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
                for length in compute.lengths
            ],
            "trainings": [asdict(bill) for bill in self.bills],
            **({"protocol": asdict(self.protocol)} if self.protocol else {}),
            "stated": note and note.model_dump(mode="json", exclude={"counted"}),
            "stated_operations": note and note.operations,
            "stated_dollars": note and note.compute_dollars(self.prices),
            "contradictions": [*note.list_contradictions(self.prices)] if note else [],
        }

    def iter_lines(self) -> Iterator[str]:
        """The card in lines."""
        compute, note = self.compute, self.note
        sizes = f"{compute.parameters:,} parameters, {compute.without_embeddings:,} without embeddings"
        formula = f"N = 12 · width² · layers = {compute.formula_parameters:,}"
        yield f"{self.model}: {sizes}"
        yield f"  shape: {compute.layers} layers of width {compute.width}; {formula}"
        if compute.formula_parameters > compute.without_embeddings:
            yield "  N is the formula for a BERT of this shape; this model has fewer."
        if not compute.is_exact:
            yield "  The products of usual attention are counted; a model of this family may compute more."
        for length in compute.lengths:
            windowed = format_amount(compute.count_operations(length, windows=True))
            yield (
                f"  {length:,} tokens: {format_amount(compute.count_operations(length))} operations forward"
                f"{f' ({windowed} with its windows)' if compute.windows else ''}; "
                f"F_N = {format_amount(compute.compute_token_flops(length))} for each token of a training"
            )
        yield from (f"  trained: {_format_bill(bill)}" for bill in self.bills)
        if len(self.bills) > 1:
            yield f"  all trainings: {_format_total(self.bills)}"
        if self.protocol:
            yield f"  {self.protocol.text}"
        nothing = "nothing; `harness models note` states it"
        stated = ", ".join(note.list_statements(self.prices)) if note else nothing
        yield f"  stated of its pretraining: {stated}"
        for sentence in note.list_contradictions(self.prices) if note else ():
            yield f"  this contradicts itself: {sentence}"


@dataclass(frozen=True, kw_only=True)
class _ProtocolBill:
    """What a protocol took, as far as it is done.

    `trainings` has members of sweeps, too. `seconds` are those of all recorded scores, fine-tuning runs of
    tasks with labels included, and `dollars` their price; None where that of a device is unknown.
    """

    name: str
    trainings: Sequence[TrainingBill]
    scores: int
    seconds: float
    dollars: float | None

    @property
    def text(self) -> str:
        """The bill in a line."""
        if not self.trainings and not self.scores:
            return f"protocol {self.name}: no record yet; `harness run --protocol {self.name}` begins"
        facts = [f"{self.scores:,} scores in {format_duration(self.seconds)}"]
        if self.trainings:
            facts.insert(0, f"{len(self.trainings):,} trainings: {_format_total(self.trainings)}")
        dollars = _add_amounts([*(bill.dollars for bill in self.trainings), self.dollars])
        if dollars is not None:
            facts.append(f"${dollars:,.2f} together")
        return f"protocol {self.name}: {'; '.join(facts)}"


def collect_protocol_bill(
    prepared: PreparedProtocol, compute: BackboneCompute, prices: Sequence[DevicePrice]
) -> _ProtocolBill:
    """What a protocol of a backbone took by its records and the model.json of its trainings."""
    documents = _read_documents(prepared.joined.store.root)
    planned = dict.fromkeys(model.artifact.key for model in prepared.joined.plan.trained_models)
    records = {result.record.key: result.record for result in prepared.read_results() if result.record}
    spent = [
        ((facts.get("device") or {}).get("name", ""), sum(facts.get("seconds", {}).values()))
        for facts in (record.provenance for record in records.values())
    ]
    trained = (documents[key] for key in planned if key in documents)
    bills = (TrainingBill.from_document(one, compute, prices) for one in trained)
    return _ProtocolBill(
        name=prepared.protocol.name,
        trainings=[*filter(None, bills)],
        scores=len(records),
        seconds=sum(seconds for _, seconds in spent),
        dollars=_add_amounts([compute_price(device, seconds / 3600, prices) for device, seconds in spent]),
    )


def _add_amounts(amounts: Sequence[float | None]) -> float | None:
    """Their sum; None if one of them is not known."""
    return None if None in amounts else sum(amount for amount in amounts if amount is not None)


def _read_documents(results: Path) -> dict[str, ModelDocument]:
    """The documents of the models of a results folder by their keys."""
    models = ModelStore(results).list_stored_models()
    return {model.document.key: model.document for model in models if model.document}


def _format_bill(bill: TrainingBill) -> str:
    share = "" if bill.utilisation is None else f", {bill.utilisation:.1%} of its peak"
    devices = f" on {bill.devices} × {bill.device}"
    return f"{bill.recipe}, {bill.tokens:,} tokens in {_format_total([bill], devices, share)}"


def _format_total(bills: Sequence[TrainingBill], devices: str = "", share: str = "") -> str:
    dollars, operations = (
        _add_amounts([getattr(bill, name) for bill in bills]) for name in ("dollars", "operations")
    )
    count = format_amount(operations) if operations else "an unknown number of"
    price = "" if dollars is None else f", ${dollars:,.2f}"
    seconds = sum(bill.seconds for bill in bills)
    return f"{format_duration(seconds)}{devices}, {count} operations{share}{price}"


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
    documents, chain = _read_documents(results) if document else {}, [document] if document else []
    # The list grows while it is read: by the parents of each that are not in it yet.
    for child in chain:
        for parent in child.lineage.parents:
            trained = documents.get(parent.artifact)
            chain += [trained] if trained and trained not in chain else []
    return [*filter(None, (TrainingBill.from_document(one, compute, prices) for one in chain))]


if TYPE_CHECKING:
    from huggingface_hub import EvalResult, ModelCard

README = "README.md"
_TAG = "encoder-harness"


@dataclass(frozen=True, kw_only=True)
class _CardSource:
    """Everything that a card says of a model.

    Attributes:
        name: The model's name in the card, `org/name` where it is published.
        folder: Its folder; None where only its records are here.
        lineage: What it was made of; None unless a recipe made it.
        training: The circumstances of its training; empty where they are not here.
        measured: Its scores under one condition; None without any.
        others: Other settings with which it was measured.
        suites: The suites whose means are shown.
        folders: Names of the models it was made of that no command opens: each was a folder.
    """

    name: str
    folder: Path | None
    lineage: Lineage | None
    training: Mapping[str, Any]
    measured: MeasuredCondition | None
    others: tuple[str, ...]
    suites: tuple[Suite, ...]
    folders: tuple[str, ...]

    @property
    def records(self) -> list[Record]:
        """The records of the card's scores."""
        return [*self.measured.records.values()] if self.measured else []

    @property
    def sent_records(self) -> list[Record]:
        """The records of scores that need no mark, as metadata has none."""
        return [one for one in self.records if not _list_card_marks(one, self.lineage)]


def collect_card_source(
    model: str,
    *,
    name: str = "",
    folder: Path | None = None,
    document: ModelDocument | None = None,
    suites: Sequence[str] = (),
    settings: str = "",
    results: Path | None = None,
) -> _CardSource:
    """What is known of a model, with the scores of one condition: that of the most tasks by default.

    Args:
        model: A name, six or more digits of an artifact key, or a folder.
        name: The name in the card; empty for the recorded one.
        folder: The model's folder, if it is here.
        document: Its `model.json`, if it was trained.
        suites: Only scores of these suites, with their means.
        settings: A part of the text of the condition to show, where there are several.
        results: The results folder, None for the default.

    Raises:
        UsageError: Nothing is known of the model, or no condition has this text.
    """
    try:
        records = MeasuredSuite.load_own_records(model, results).records
    except NotMeasuredError:
        if folder is None or suites or settings:
            raise
        records = ()
    options = SuiteOptions(cache=files.resolve_cache_folder(), results=results)
    opened = catalog.open_suites(suites, options)
    names = [task.name for suite in opened for task in suite.tasks] or [one.task.name for one in records]
    conditions = collect_conditions(records, opened, names)
    chosen = choose_condition(conditions, settings) if conditions else None
    recorded_lineage = next((one.lineage for one in records if one.lineage), None)
    lineage = document.lineage if document else recorded_lineage
    store = ModelStore(files.resolve_results_folder(results))
    own_name = document.name if document else Path(model).name
    return _CardSource(
        name=name or (records[0].model.name if records else own_name),
        folder=folder,
        lineage=lineage,
        training=document.training if document else {},
        measured=chosen,
        others=tuple(one.condition.text for one in conditions if one is not chosen),
        suites=tuple(opened),
        folders=tuple(
            one.name
            for one in (lineage.parents if lineage else ())
            if not (
                _format_parent(one)
                or backbones.find_catalog_model(one.name)
                or store.list_model_folders(one.artifact)
            )
        ),
    )


def build_model_card(source: _CardSource) -> ModelCard:
    """The card: YAML with a `model-index` of every split and subset, and a text."""
    from huggingface_hub import ModelCard, ModelCardData

    results, lineage = _list_eval_results(source.sent_records), source.lineage
    stated, own_text = _read_stated(source.folder)
    parents = list(filter(None, map(_format_parent, lineage.parents))) if lineage else []
    data = lineage.data if lineage else ()
    datasets = [path for one in data if "/" in (path := str(one.get("path", "")))]
    kind = _describe_kind(source.folder)
    yaml = ModelCardData(
        base_model=[parent.partition("@")[0] for parent in parents] or stated.get("base_model"),
        datasets=list(dict.fromkeys(datasets)) or None,
        license=stated.get("license"),
        language=stated.get("language"),
        tags=[*kind.get("tags", ()), _TAG, *([lineage.recipe] if lineage else [])],
        library_name=kind.get("library_name"),
        pipeline_tag=kind.get("pipeline_tag"),
        # Without results the name would be a field of its own, which the hub does not know.
        model_name=source.name if results else None,
        eval_results=results or None,
    )
    sections = [*_list_score_lines(source), *_list_lineage_lines(source), *_list_command_lines(source)]
    # A README with this tag is a card of this function.
    if own_text and _TAG not in (stated.get("tags") or ()):
        sections += ["## From the model's README", own_text]
    text = "\n\n".join([f"# {source.name}", *filter(None, sections)])
    return ModelCard(f"---\n{yaml.to_yaml()}\n---\n\n{text}\n")


def _list_eval_results(records: Sequence[Record]) -> list[EvalResult]:
    """A result for each split and subset, as the record has it: shares, not times 100."""
    from huggingface_hub import EvalResult

    # Tasks on the same rows are one entry of a model-index, so the task is named with the metric.
    return [
        EvalResult(
            task_type=record.task.type,
            dataset_type=data.get("path") or record.task.name,
            dataset_name=data.get("path") or record.task.name,
            dataset_config=subset,
            dataset_split=split,
            dataset_revision=find_data_revision(record),
            metric_type=record.task.metric,
            metric_name=f"{record.task.name}: {record.task.metric}",
            metric_value=value,
        )
        for record in records
        for data in [record.identity["data"]]
        for split, subset, value in _list_main_scores(record)
    ]


def build_eval_files(source: _CardSource) -> dict[str, bytes]:
    """The file of `.eval_results/`, with entries as mteb writes them.

    Empty without a known revision of data, or with a huggingface_hub that does not know them.
    """
    import huggingface_hub
    import yaml

    if source.measured is None or not hasattr(huggingface_hub, "EvalResultEntry"):
        return {}
    entries = [
        huggingface_hub.EvalResultEntry(
            dataset_id=hub_id,
            task_id=f"{record.task.name}_{subset}_{split}",
            value=round(value * 100, 5),
            dataset_revision=revision,
            date=record.provenance.get("written"),
            notes=f"{record.identity['scoring']}, {source.measured.condition.text}",
        )
        for record in source.sent_records
        if record.identity.get("scoring", "").startswith("mteb ") and (revision := find_data_revision(record))
        # The hub stores results by its data sets, and knows no others.
        if (hub_id := record.identity["data"].get("path"))
        for split, subset, value in _list_main_scores(record)
    ]
    content = yaml.safe_dump(huggingface_hub.eval_result_entries_to_yaml(entries), sort_keys=False).encode()
    return {".eval_results/encoder-harness.yaml": content} if entries else {}


def list_marks(record: Record, lineage: Lineage | None) -> list[str]:
    """The marks that a record's score has in tables."""
    marks = [CHOSE] if is_selection_score(record, lineage) else []
    return [*marks, APPROXIMATE] if is_approximate(record) else marks


def _list_card_marks(record: Record, lineage: Lineage | None) -> list[str]:
    """The marks of a score that `model-index`, where no warning stands beside it, leaves out."""
    marks = list_marks(record, lineage)
    if record.identity["data"].get("path") and find_data_revision(record) is None:
        marks.append("data not proven")
    if count := record.provenance.get("texts_trained_on"):
        marks.append(f"trained on {count:,} of its {record.provenance['texts']:,} texts")
    return marks


def _list_row_marks(record: Record, lineage: Lineage | None) -> list[str]:
    """The marks of a score in the card's table, with its splits where it is a mean over several."""
    splits = [f"splits {', '.join(record.scores)}"] if len(record.scores) > 1 else []
    return [*splits, *_list_card_marks(record, lineage)]


def _list_main_scores(record: Record) -> list[tuple[str, str, float]]:
    """Split, subset and main score; of a single one the record's score, which a paper's rule may define."""
    cells = [(split, subset) for split, subsets in record.scores.items() for subset in subsets]
    if len(cells) == 1 and record.main_score is not None:
        return [(*cells[0], record.main_score)]
    metrics = [(cell, record.scores[cell[0]][cell[1]]) for cell in cells]
    values = [(cell, each.get(MAIN_SCORE, each.get(record.task.metric))) for cell, each in metrics]
    return [(*cell, float(value)) for cell, value in values if value is not None]


def _read_stated(folder: Path | None) -> tuple[dict[str, Any], str]:
    """What the model's own README states, and its text."""
    import yaml
    from huggingface_hub import ModelCard

    path = (folder or Path()) / README
    if folder is None or not path.is_file():
        return {}, ""
    try:
        card = ModelCard.load(path, ignore_metadata_errors=True)
        stated: dict[str, Any] = card.data.to_dict()
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"{path} cannot be read: {error}.", hint="Mend or remove it.") from error
    return stated, card.text.strip()


def _describe_kind(folder: Path | None) -> dict[str, Any]:
    """The library, the task and the tags of a model folder, in the hub's words."""
    if folder is None:
        return {}
    if modules := read_modules(folder):
        late = any(module.kind.startswith("pylate.") for module in modules)
        library = "PyLate" if late else "sentence-transformers"
        tags = [library, "sentence-similarity", "ColBERT" if late else "feature-extraction"]
        return {"library_name": library, "tags": tags, "pipeline_tag": tags[1]}
    named = str(read_object(find_backbone_folder(folder) / "config.json").get("architectures"))
    task = "text-classification" if "ForSequenceClassification" in named else "feature-extraction"
    return {"library_name": "transformers", "pipeline_tag": task}


def _list_score_lines(source: _CardSource) -> list[str]:
    """The section of the scores: conventions, a table and the means of suites."""
    if source.measured is None:
        return []
    marks = [", ".join(_list_row_marks(record, source.lineage)) for record in source.records]
    extra = any(marks)
    rows = [
        "| task | type | metric | score |" + " |" * extra,
        "| --- | --- | --- | ---: |" + " --- |" * extra,
    ]
    for record, mark in zip(source.records, marks, strict=True):
        score = score_text(record.main_score, measured=record.task.metric in OWN_UNITS)
        cells = (record.task.name, record.task.type, record.task.metric, score)
        rows.append(f"| {' | '.join([*cells, *([mark] if extra else [])])} |")
    left_out = len(source.sent_records) < len(source.records)
    scoring = ", ".join(dict.fromkeys(str(one.identity.get("scoring")) for one in source.records))
    means = [
        f"- {suite.title}: {line}" for suite in source.suites for line in _list_mean_lines(source, suite)
    ]
    views = dict.fromkeys(str(record.training.get("view")) for record in source.records)
    rules = [
        (suite, suite.conventions[view])
        for suite in source.suites
        for view in views
        if view in suite.conventions
    ]
    means += [f"- {suite.title}, a task's score: {rule.says}" for suite, rule in rules]
    others = [f"Measured with other settings as well: {'; '.join(source.others)}."] if source.others else []
    return [
        "## Scores",
        f"Settings: {source.measured.condition.text}. Scored by {scoring}.",
        "Scores are the main metric × 100; that of a task is the mean over its splits and subsets; "
        "`model-index` lists each of these, from 0 to 1"
        + (", but for those that a mark warns of." if left_out else ".")
        + ("" if means else " No mean over tasks is stated: these tasks are no whole suite."),
        "\n".join(rows),
        "\n".join([*means, *(f"- {line}" for line in format_lineage_lines(source.lineage))]),
        *others,
    ]


def _list_mean_lines(source: _CardSource, suite: Suite) -> list[str]:
    views = build_suite_views(source.records, suite)
    scores = dict(views[0].scores) if views else {}
    return format_mean_lines(suite, Aggregates.aggregate_scores(suite, scores))


def describe_lineage(lineage: Lineage) -> dict[str, str]:
    """What a model was made of, in words; what is not known is empty."""
    return {
        "recipe": f"{lineage.text}, seed {lineage.seed}",
        "source": lineage.source,
        "settings": format_fact_pairs(lineage.settings),
        "made of": ", ".join(f"{one.text} ({one.artifact[:12]})" for one in lineage.parents),
        "data": "; ".join(map(format_fact_pairs, lineage.data)),
        "selected on": ", ".join(lineage.all_selected_on),
    }


def _list_lineage_lines(source: _CardSource) -> list[str]:
    if (lineage := source.lineage) is None:
        return []
    facts = [f"- {name}: {text}" for name, text in describe_lineage(lineage).items() if text]
    # What the training did in place of the settings, as in float32 on a CPU, or on fewer rows.
    facts += [f"- training: {note}" for note in source.training.get("notes", ())]
    assumed = "\n".join(f"- {sentence}" for sentence in lineage.assumed)
    return ["## How it was made", "\n".join(facts), *(["## Assumptions", assumed] if assumed else [])]


def _list_command_lines(source: _CardSource) -> list[str]:
    """The section with the commands that train and measure the model again."""
    # The name of a folder opens nothing, and its path is this machine's own.
    commands, folders = [], _name_folders(source.folders)
    if source.lineage is not None:
        commands.append(_format_training_command(source.lineage, folders))
    # An object in Python is measured once; no command has it.
    if source.records and not is_of_object(source.records[0].identity):
        about = source.records[0].model
        hub_id = f"{about.source.partition('@')[0]}@{about.revision}" if "/" in about.source else source.name
        if about.source == "local" and "/" not in hub_id and source.lineage is None:
            hub_id, folders = "FOLDER", _name_folders([source.name])
        commands += build_repeat_commands(source.records, hub_id, source.suites)
    if not commands:
        return []
    meanings = (
        f"{word}: the folder of {name}, by its path on your machine." for name, word in folders.items()
    )
    return ["## To repeat it", "```bash\n" + "\n".join(commands) + "\n```", "\n".join(meanings)]


def _name_folders(names: Sequence[str]) -> dict[str, str]:
    """The word that stands for the folder of each model."""
    different = [*dict.fromkeys(names)]
    return {name: f"FOLDER_{n}" if different[1:] else "FOLDER" for n, name in enumerate(different, 1)}


def _format_training_command(lineage: Lineage, folders: Mapping[str, str]) -> str:
    names = [folders.get(one.name) or _format_parent(one) or one.name for one in lineage.parents]
    if lineage.recipe == "average":
        return shlex.join(["harness", "models", "average", *names, "--output", "DIR"])
    words = ["harness", "train", "--model", names[0], "--recipe", lineage.name, "--seed", str(lineage.seed)]
    words += [word for pair in lineage.changed.items() for word in ("--set", format_setting(*pair))]
    words += ["--train-data", lineage.own_data] if lineage.own_data else []
    # Data without a revision came from a data root, which no lineage names.
    words += (
        ["--data", "DIR"] if any("path" in one and not one.get("revision") for one in lineage.data) else []
    )
    if sweep := lineage.sweep:
        words += [word for pair in sweep.grid.items() for word in ("--sweep", format_setting(*pair))]
        words += ["--select", ",".join(sweep.tasks)]
    return shlex.join(words)


def _format_parent(parent: ParentPart) -> str:
    """A parent's name on the hub with its revision; empty for a model that is elsewhere."""
    pinned = f"@{parent.revision}" if parent.revision else ""
    return f"{parent.name.partition('@')[0]}{pinned}" if "/" in parent.name else ""


def format_fact_pairs(content: Mapping[str, Any]) -> str:
    """Names with their values in a line."""
    return ", ".join(f"{name} {_format_fact_value(value)}" for name, value in content.items())


def _format_fact_value(value: Any) -> str:
    if isinstance(value, list):
        return f"({', '.join(map(str, value))})"
    return "none" if value in (None, "") else str(value)
