"""The suite `pseudo-perplexity`: how well a model predicts single tokens of texts of growing length."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from harness.core import types
from harness.core.types import Artifact, MeasuredModel, Outcome, Size, Suite, SuiteOptions, Task
from harness.encoder.backbones import read_family
from harness.encoder.folder.description import TWO_BACKBONES, describe
from harness.encoder.folder.files import list_module_weights, read_object, read_tensor_headers
from harness.encoder.folder.modules_and_pooling import find_backbone_folder
from harness.encoder.folder.preflight import SpecialTokens
from suites._mteb.snapshot import filter_suite_splits
from suites._texts import TextParts, resolve_text_folder

LENGTHS = (512, 1024, 2048, 4096, 8192)
"""The tokens of a text in each task, special ones included."""

TEXTS, PLACES, CHARACTERS = 20, 64, 6
"""Texts of a task, places of each that are masked, and characters for each token, more than tokens have."""

ALL, LEFT_TO_RIGHT = "all", "left-to-right"
"""What a user may type before a folder: every place is masked, or a decoder is measured."""

WAYS = {
    "": ("PseudoPerplexity", f"{PLACES} tokens of a text masked alone", PLACES),
    ALL: ("PseudoPerplexityAll", "every token masked alone", None),
    LEFT_TO_RIGHT: ("Perplexity", "left to right", 1),
}
"""Names of tasks, of which those of decoders are in no column with masked ones; the way in words; and passes
over a text, None for one for each token."""


@dataclass(frozen=True, kw_only=True)
class _PerplexitySource:
    """The source of a task, a harness.core.types.MeasuredSource, FileSource and LengthSource."""

    parts: TextParts
    way: str
    length: int
    per_machine: bool = False

    @property
    def scoring(self) -> str:
        """The way to measure, and its version."""
        return f"perplexity 1, {WAYS[self.way][1]}"

    def measure(self, task: Task, *, cache: Path) -> Size:
        texts = self.parts.load_texts(task)
        return Size(texts=len(texts), characters=sum(map(len, texts)))

    def estimate_tokens(self, task: Task) -> int:
        return min(TEXTS, task.limit or TEXTS) * (WAYS[self.way][2] or self.length) * self.length

    def find_model_problem(self, task: Task, artifact: Artifact, dtype: types.Dtype) -> str:
        if describe(artifact.folder, own_code=artifact.trust_remote_code).unscalable == TWO_BACKBONES:
            return f"{artifact.name} has no language model: {TWO_BACKBONES}."
        place = find_backbone_folder(artifact.folder)
        family, kind = read_family(place), _read_class_name(place)
        is_decoder = family.is_decoder if family else DECODER.search(kind) is not None
        # A name such as GPT2Model does not tell whether there is a head.
        if (family or "For" in kind or is_decoder) and is_decoder != (self.way == LEFT_TO_RIGHT):
            article, other = ("a", f":{LEFT_TO_RIGHT}") if is_decoder else ("no", "")
            return f"{artifact.name} is {article} decoder: type --suite pseudo-perplexity{other}."
        if not is_decoder and not _has_mask_token(place):
            return f"The tokenizer of {artifact.name} has no mask token."
        names, tensors = family and family.names, read_tensor_headers(list_module_weights(place)) or {}
        if kind == "ElectraForPreTraining" or (
            names and not any((names.ours(name) or "").startswith("head.") for name in tensors)
        ):
            return (
                f"The weights of {artifact.name} have no masked-language head, as models for embeddings have "
                "none: give the checkpoint of the pretraining."
            )
        return ""

    def measure_model(self, task: Task, model: MeasuredModel, *, seed: int, data: Path | None) -> Outcome:
        from suites import _perplexity

        texts, left_to_right = self.parts.load_texts(task), self.way == LEFT_TO_RIGHT
        network = _perplexity.load_language_model(
            model.artifact, model.encoding, device=model.device, left_to_right=left_to_right,
            batch_tokens=model.batch_tokens,
        )  # fmt: skip
        model.announce(len(texts))
        measured = []
        for text in texts:
            measured.append(_perplexity.measure_text(network, text, self.length, WAYS[self.way][2]))
            model.count(1)
        metrics = _perplexity.summarize_texts(measured)
        return Outcome(
            main_score=metrics["perplexity"],
            scores={task.splits[0]: {"default": {"main_score": metrics["perplexity"], **metrics}}},
            examples={
                "split": [task.splits[0]] * len(texts),
                "subset": ["default"] * len(texts),
                "example_id": [text.key for text in measured],
                "replicate": [0] * len(texts),
                "prediction": [text.bits_per_character for text in measured],
                "gold": [len(text.losses) for text in measured],
                "metric": [text.perplexity for text in measured],
            },
            notes=(
                f"half of {len(texts)} texts lie between {metrics['perplexity_low']:,.3f} and "
                f"{metrics['perplexity_high']:,.3f}; {metrics['bits_per_character']:.3f} bits a character",
            ),
        )


DECODER = re.compile(r"^GPT2Model|ForCausalLM$|(?<!With)LMHeadModel$")
"""The classes of decoders, by their names in a config.json; XLMWithLMHeadModel is none."""


def _read_class_name(place: Path) -> str:
    classes = read_object(place / "config.json").get("architectures")
    return str(classes[0]) if isinstance(classes, list) and classes else ""


def _has_mask_token(place: Path) -> bool:
    """Whether the files of a tokenizer name a mask token; True where they are not known."""
    files = SpecialTokens.read_folder(place)
    added = (str(one.get("content")) for one in files.tokenizer.get("added_tokens", ()))
    # Some files leave the name to the class, which then has a token of the usual form.
    named = files.config.get("mask_token", "mask")
    return not files.tokenizer or bool(named and (named != "mask" or any("mask" in t.lower() for t in added)))


def _open_perplexity_suite(argument: str, options: SuiteOptions) -> Suite:
    way, _, rest = argument.partition(":")
    way, typed = (way, rest) if way in (ALL, LEFT_TO_RIGHT) else ("", argument)
    folder, columns = resolve_text_folder(typed, "pseudo-perplexity"), list[types.Column]()
    for length in LENGTHS:
        parts = TextParts(folder=folder, size=CHARACTERS * length, count=TEXTS)
        task = Task(
            name=f"{parts.prefix}{WAYS[way][0]}{length}", type="LanguageModelling", metric="perplexity",
            splits=("test",), data=parts.describe_data(), roles=(), output="measured",
            source=_PerplexitySource(parts=parts, way=way, length=length),
        )  # fmt: skip
        reason = "a perplexity is no share of 1"
        columns.append(types.Column(name=task.name, type=task.type, tasks=(task,), shown_only=reason))
    name, title = f"pseudo-perplexity:{argument}".rstrip(":"), f"{WAYS[way][0]} on {parts.origin}"
    return filter_suite_splits(Suite(name=name, title=title, columns=tuple(columns)), options)


SUITE = types.SuiteEntry(
    name="pseudo-perplexity",
    summary="How well masked tokens are predicted, 512 to 8,192 tokens long (docs/pseudo-perplexity.md)",
    open=_open_perplexity_suite,
    argument="FOLDER of texts; all[:FOLDER], for every place; left-to-right[:FOLDER], for a decoder",
    measured=True,
)
