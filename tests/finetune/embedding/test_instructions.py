"""The prompts that instructions make: token ids against strings typed by hand, and the words of the yaml."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import yaml
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Transformer
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertTokenizer, PreTrainedTokenizerFast, RobertaTokenizer

import tiny
from finetune.embedding.instructions import InstructionFormat
from finetune.recipes.unified_contrastive import (
    EVALUATION_INSTRUCTIONS,
    INSTRUCTIONS_BY_TYPE,
    TRAINING_INSTRUCTIONS,
    list_task_instructions,
)
from harness.core.encoding import OwnTexts, select_prompt
from harness.core.types import Role, SuiteOptions
from harness.encoder.backbones import minilm
from harness.encoder.batches import tokenize_texts
from harness.encoder.library_load import RENAMED, build_collator, count_prompt_tokens
from suites._mteb.source import build_benchmark_suite

TRAINED = [
    (
        *("ALLNLI", "query"),
        "Given a premise, retrieve a hypothesis that is entailed by the premise.[SEP] [CLS]A man is eating.",
    ),
    (
        *("ALLNLI", "document"),
        "Given a premise, retrieve a hypothesis that is entailed by the premise.[SEP] [CLS]Someone eats.",
    ),
    (
        *("MSMARCO", "query"),
        "Given a web search query, retrieve relevant passages that answer the query.[SEP] [CLS]what is rba",
    ),
    (
        *("CONCURRENTQA", "document"),
        "Given a multi-hop question, retrieve documents that can help answer the question.[SEP] [CLS]Enron's "
        "offices were in Houston.",
    ),
    (
        *("STACKEXCHANGE", "query"),
        "Retrieve duplicate questions from StackExchange forum.[SEP] [CLS]How do I exit vi?",
    ),
    (
        *("STACKOVERFLOW", "document"),
        "Retrieve duplicate questions from StackOverflow forum.[SEP] [CLS]How can one leave vi?",
    ),
    (*("STS12", "query"), "Retrieve semantically similar text.[SEP] [CLS]The dog sleeps."),
    (
        *("QQP", "document"),
        "Given a question, retrieve questions from Quora forum that are semantically equivalent to the given "
        "question.[SEP] [CLS]Is the sky blue?",
    ),
    (
        *("PUBMEDQA", "query"),
        "Given a medical question, retrieve documents that best answer the question.[SEP] [CLS]Does it help?",
    ),
    (
        *("YAHOO_CLUST", "query"),
        "Identify the main topic of Yahoo posts based on their titles and answers.[SEP] [CLS]Why is it up?",
    ),
]
"""Set, side, and the whole text."""

EVALUATED: list[tuple[str, str, Role, str]] = [
    (
        *("ArguAna", "Retrieval", "query"),
        "Given a claim, find documents that refute the claim. Claim: [SEP] [CLS]Zoos are good.",
    ),
    (
        *("ArguAna", "Retrieval", "document"),
        "Given a claim, find documents that refute the claim. Document: [SEP] [CLS]Zoos are bad.",
    ),
    (
        *("SciFact", "Retrieval", "document"),
        "Given a scientific claim, retrieve documents that support or refute the claim . Document: [SEP] "
        "[CLS]We measured it.",
    ),
    (
        *("CQADupstackGisRetrieval", "Retrieval", "query"),
        "Given a question, retrieve detailed question descriptions from Stackexchange that are duplicates to "
        "the given question. Question: [SEP] [CLS]Which projection?",
    ),
    (
        *("QuoraRetrieval", "Retrieval", "document"),
        "Given a question, retrieve questions that are semantically equivalent to the given question. "
        "Question: [SEP] [CLS]Is the sky blue?",
    ),
    (
        *("MindSmallReranking", "Reranking", "document"),
        "Given a user browsing history, retrieve relevant news articles. News article: [SEP] [CLS]Rain now.",
    ),
    (
        *("Banking77Classification", "Classification", ""),
        "Given a online banking query, find the corresponding intents. Query: [SEP] [CLS]My card is lost.",
    ),
    (
        *("MedrxivClusteringS2S", "Clustering", ""),
        "Identify the main category of Medrxiv papers based on their titles .[SEP] [CLS]A trial of rest",
    ),
    (
        *("BIOSSES", "STS", ""),
        "Retrieve semantically similar text from the biomedical field.[SEP] [CLS]Cells divide.",
    ),
    (*("NanoNQRetrieval", "Retrieval", "query"), "Given a query, retrieve relevant texts.[SEP] [CLS]who ran"),
]
"""Task, its type, side, and the whole text."""


def prompts_of(form: InstructionFormat) -> dict[str, str]:
    """The prompts of all tasks."""
    return {name: form.format_prompt(instruction) for name, instruction in list_task_instructions().items()}


def _json(folder: Path, name: str, content: Mapping[str, Any]) -> None:
    (folder / name).write_text(json.dumps(content))


def _located() -> str:
    assert minilm.BACKBONE.locate is not None
    return minilm.BACKBONE.locate()


def _of_minilm(folder: Path) -> Path:
    """A folder with the vocabulary of bert-base-uncased alone."""
    folder.mkdir()
    shutil.copy(Path(_located()) / "tokenizer.json", folder)
    return folder


def _vocabulary(*special: str) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """A byte-level vocabulary behind special tokens, and merges with and without a blank."""
    merges = [("Ġ", "A"), ("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("m", "a"), ("ma", "n")]
    tokens = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet()), *(a + b for a, b in merges)]
    return {token: at for at, token in enumerate(tokens)}, merges


@dataclass(frozen=True, kw_only=True)
class Made:
    """A tokenizer, its folder, and what stands for `[SEP] [CLS]`."""

    tokenizer: Any
    folder: Path
    between: str

    @property
    def form(self) -> InstructionFormat:
        return InstructionFormat.read_instruction_format(self.folder)

    @cached_property
    def model(self) -> SentenceTransformer:
        """A model with this tokenizer, as sentence-transformers tokenizes with it."""
        module = Transformer(str(tiny.folder(tiny.families()["bert"], self.folder / "model")))
        setattr(module, "processor" if RENAMED else "tokenizer", self.tokenizer)
        module.max_seq_length = 512
        return SentenceTransformer(modules=[module], device="cpu")

    def typed(self, text: str) -> list[int]:
        """The ids of a text that is typed by hand."""
        ids: list[int] = self.tokenizer(text.replace("[SEP] [CLS]", self.between))["input_ids"]
        return ids

    def evaluated(self, prompt: str, text: str) -> list[int]:
        """The ids as the encoder makes them."""
        return [int(i) for i in tokenize_texts(self.model[0], [prompt + text], 512).flat["input_ids"]]

    def trained(self, prompt: str, text: str) -> list[int]:
        """The ids as sentence-transformers' trainer makes them."""
        collator = build_collator(self.model)
        collator.prompts = {"anchor": prompt}
        ids: list[int] = collator([{"anchor": text}])["anchor_input_ids"][0].tolist()
        return ids

    def prompt_length(self, prompt: str) -> int | None:
        """The tokens of a prompt as sentence-transformers counts them."""
        return count_prompt_tokens(self.model, self.model[0], prompt)


@pytest.fixture(scope="module", params=["bert", "roberta", "neobert"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("tokenizers") / request.param
    if request.param == "roberta":
        vocabulary, merges = _vocabulary("<s>", "<pad>", "</s>", "<unk>", "<mask>")
        RobertaTokenizer(vocab=vocabulary, merges=merges).save_pretrained(folder)
        # As in roberta-base itself: the tokens are named by transformers' class alone.
        _json(folder, "tokenizer_config.json", {"model_max_length": 512})
        return Made(tokenizer=RobertaTokenizer.from_pretrained(folder), folder=folder, between="</s> <s>")
    _of_minilm(folder)
    if request.param == "bert":
        _json(folder, "tokenizer_config.json", {"do_lower_case": True, "model_max_length": 512})
    else:
        named = {"cls_token": "[CLS]", "sep_token": "[SEP]", "bos_token": None}
        _json(folder, "tokenizer_config.json", {**named, "tokenizer_class": "BertTokenizer"})
        objects = {name: {"content": token, "lstrip": False} for name, token in named.items() if token}
        _json(folder, "special_tokens_map.json", objects)
    return Made(tokenizer=BertTokenizer.from_pretrained(folder), folder=folder, between="[SEP] [CLS]")


def _own_text(whole: str) -> str:
    return whole.partition("[SEP] [CLS]")[2]


@pytest.mark.parametrize(("name", "side", "whole"), TRAINED, ids=lambda value: value[:12])
def test_ids_of_training_are_those_of_the_whole_text_typed(
    made: Made, name: str, side: str, whole: str
) -> None:
    prompt = made.form.format_prompt(TRAINING_INSTRUCTIONS[name])
    assert made.trained(prompt, _own_text(whole)) == made.typed(whole)
    assert made.evaluated(prompt, _own_text(whole)) == made.typed(whole)


@pytest.mark.parametrize(("task", "kind", "side", "whole"), EVALUATED, ids=lambda value: value[:12])
def test_ids_of_an_evaluation_are_those_of_the_whole_text_typed(
    made: Made, task: str, kind: str, side: Role, whole: str
) -> None:
    prompts = prompts_of(made.form)
    prompt = select_prompt(OwnTexts(name=task, type=kind), side, prompts, None)
    assert made.evaluated(prompt, _own_text(whole)) == made.typed(whole)
    assert made.trained(prompt, _own_text(whole)) == made.typed(whole)


def test_tokens_between_are_the_special_ones(made: Made) -> None:
    separator, start = made.between.split(" ")
    assert (made.form.separator, made.form.start) == (separator, start)
    ids = made.evaluated(made.form.format_prompt("Find it."), "A man")
    around = made.tokenizer.convert_tokens_to_ids([separator, start])
    assert [i for i in ids if i in around] == [around[1], *around, around[0]]


def test_token_types_are_those_of_one_segment(made: Made) -> None:
    kinds = made.tokenizer(made.form.format_prompt("Find it.") + "A man", return_token_type_ids=True)
    assert set(kinds["token_type_ids"]) == {0}


def test_a_text_is_stripped_at_its_end_alone(made: Made) -> None:
    prompt = made.form.format_prompt("Find it.")
    assert made.evaluated(prompt, "A man \n") == made.evaluated(prompt, "A man")
    assert made.evaluated(prompt, "A man")[-1] == made.evaluated(prompt, "")[-1]


# Prompt lengths, which a pooling without the prompt uses


@pytest.mark.parametrize("instruction", ["Find it.", "Find it. Claim: "])
def test_the_librarys_prompt_length_ends_at_the_text(made: Made, instruction: str) -> None:
    prompt = made.form.format_prompt(instruction)
    ids = made.evaluated(prompt, "A man")
    assert made.tokenizer.decode(ids[made.prompt_length(prompt) : -1]).lower() == "a man"


def test_the_librarys_prompt_length_lacks_a_token_where_nothing_ends_a_text(tmp_path: Path) -> None:
    ended = _generic(tmp_path / "ended", "<b> $A <e>", bos_token="<b>", eos_token="<e>")
    open_ = _generic(tmp_path / "open", "<b> $A", bos_token="<b>", eos_token="<e>")
    unnamed = _generic(tmp_path / "unnamed", "<b> $A <e>")
    rest = {}
    for one in (ended, open_, unnamed):
        prompt = one.form.format_prompt("Find it.")
        assert prompt == "Find it.<e> <b>"
        tokens = one.tokenizer.convert_ids_to_tokens(one.evaluated(prompt, "man"))
        rest[one.folder.name] = tokens[one.prompt_length(prompt) :]
    assert rest == {"ended": ["man", "<e>"], "open": ["<b>", "man"], "unnamed": ["<e>"]}


def _generic(folder: Path, template: str, **names: str) -> Made:
    """A byte-level tokenizer that puts the tokens of a template around a text, named or not."""
    vocabulary, merges = _vocabulary("<b>", "<e>", "<p>")
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.add_special_tokens(["<b>", "<e>", "<p>"])
    known = [(token, vocabulary[token]) for token in ("<b>", "<e>")]
    inner.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single=template, special_tokens=known),
        ]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<p>", **names)
    tokenizer.save_pretrained(folder)
    return Made(tokenizer=tokenizer, folder=folder, between="<e> <b>")


# Tokens that are not there


def _format(folder: Path, **names: Any) -> InstructionFormat:
    folder.mkdir(exist_ok=True)
    _json(folder, "tokenizer_config.json", names)
    return InstructionFormat.read_instruction_format(folder)


def test_bos_and_sep_need_no_note(tmp_path: Path) -> None:
    form = _format(tmp_path, bos_token="<s>", cls_token="<c>", sep_token={"content": "</s>"}, eos_token="<e>")
    assert form == InstructionFormat(separator="</s>", start="<s>")
    assert form.format_prompt("Find it.") == "Find it.</s> <s>"


def test_cls_and_eos_are_in_the_place_of_bos_and_sep(tmp_path: Path) -> None:
    form = _format(tmp_path, bos_token=None, cls_token="<c>", eos_token="<e>")
    assert form.format_prompt("Find it.") == "Find it.<e> <c>"
    assert form.notes == (
        "The tokenizer has no bos token: its cls token <c> is used instead.",
        "The tokenizer has no sep token: its eos token <e> is used instead.",
    )


def test_without_any_token_there_is_a_blank(tmp_path: Path) -> None:
    form = _format(tmp_path, pad_token="<p>")
    assert form.format_prompt("Find it.") == "Find it. "
    assert form.notes == (
        "The tokenizer has no bos and no cls token: only a blank is used.",
        "The tokenizer has no sep and no eos token: only a blank is used.",
    )
    assert _format(tmp_path, eos_token="<e>").format_prompt("Find it.") == "Find it.<e> "
    assert _format(tmp_path, cls_token="<c>").format_prompt("Find it.") == "Find it. <c>"


def test_tokens_without_a_name_are_those_around_a_text(made: Made, tmp_path: Path) -> None:
    shutil.copy(made.folder / "tokenizer.json", tmp_path)
    form = InstructionFormat.read_instruction_format(tmp_path)
    assert f"{form.separator} {form.start}" == made.between
    assert [note.split(":")[0] for note in form.notes] == [
        "The tokenizer's files name no bos and no cls token",
        "The tokenizer's files name no sep and no eos token",
    ]


@pytest.mark.parametrize("name", ["vocab.txt", "spm.model"])
def test_a_vocabulary_of_bert_or_deberta_alone_has_the_tokens_of_bert(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert (
        InstructionFormat.read_instruction_format(tmp_path).format_prompt("Find it.") == "Find it.[SEP] [CLS]"
    )


def test_of_two_files_transformers_order_decides(tmp_path: Path) -> None:
    tokens = {"bos_token": "<1>", "sep_token": "<2>"}
    _json(tmp_path, "special_tokens_map.json", {**tokens, "bos_token": "<3>"})
    assert _format(tmp_path, **tokens).start == "<3>"
    assert _format(tmp_path, **tokens, added_tokens_decoder={}).start == "<1>"


def test_tokens_of_the_first_module_count(tmp_path: Path) -> None:
    first = {
        "idx": 0,
        "name": "0",
        "path": "0_Transformer",
        "type": "sentence_transformers.models.Transformer",
    }
    (tmp_path / "modules.json").write_text(json.dumps([first]))
    _format(tmp_path / "0_Transformer", bos_token="<s>", sep_token="</s>")
    assert InstructionFormat.read_instruction_format(tmp_path).format_prompt("Find it.") == "Find it.</s> <s>"


def test_a_model_that_makes_lower_case_of_the_tokens_has_a_note(tmp_path: Path) -> None:
    _json(tmp_path, "sentence_bert_config.json", {"do_lower_case": True})
    assert _format(tmp_path, bos_token="<s>", sep_token="</s>").notes == ()
    (note,) = _format(tmp_path, bos_token="[BOS]", sep_token="[SEP]").notes
    assert note == "The model makes lower case of [SEP][BOS], as of all text: its do_lower_case is on."


def test_no_instruction_is_no_prompt(made: Made) -> None:
    assert made.form.format_prompt("") == ""


# The words


@pytest.mark.shared
def test_words_are_those_of_the_paper_and_its_code(shared: Path) -> None:
    known = yaml.safe_load((shared.parent / "reported" / "neobert_instructions.yaml").read_text())
    both_sides = {name: (row["query"], row["corpus"]) for name, row in known["eval"].items()}
    assert both_sides == EVALUATION_INSTRUCTIONS
    assert known["eval_default_by_task_type"] == INSTRUCTIONS_BY_TYPE
    printed = {name: row["instruction"] for name, row in known["train"].items()}
    assert printed.pop("STACKEXCHANGE") is None
    assert {**printed, "STACKEXCHANGE": TRAINING_INSTRUCTIONS["STACKEXCHANGE"]} == TRAINING_INSTRUCTIONS


FORM = InstructionFormat(separator="[SEP]", start="[CLS]")


def test_every_text_of_the_first_english_benchmark_has_its_own_instruction() -> None:
    tasks = build_benchmark_suite("MTEB(eng, v1)", called="mteb-v1", options=SuiteOptions()).tasks
    prompts = prompts_of(FORM)
    assert {task.name for task in tasks} == EVALUATION_INSTRUCTIONS.keys()
    for task in tasks:
        for role in task.roles:
            prompt = select_prompt(task, role, prompts, None)
            assert prompt == FORM.format_prompt(EVALUATION_INSTRUCTIONS[task.name][role == "document"]), (
                task.name,
                role,
            )
        sided = EVALUATION_INSTRUCTIONS[task.name][0] != EVALUATION_INSTRUCTIONS[task.name][1]
        assert task.retrieves or not sided, "a side without a role has no prompt"


def test_later_forms_have_the_instruction_of_the_task_and_others_that_of_their_type() -> None:
    tasks = build_benchmark_suite("MTEB(eng, v2)", called="mteb", options=SuiteOptions()).tasks
    prompts = prompts_of(FORM)
    others = [task for task in tasks if task.name not in EVALUATION_INSTRUCTIONS]
    assert {"SummEvalSummarization.v2", "FEVERHardNegatives", "STS22.v2"} < {task.name for task in others}
    former = {"Touche2020Retrieval.v3": "Touche2020", "SummEvalSummarization.v2": "SummEval"}
    own = 0
    for task in others:
        name = former.get(task.name, task.name.removesuffix(".v2").removesuffix("HardNegatives"))
        sides = EVALUATION_INSTRUCTIONS.get(name, (INSTRUCTIONS_BY_TYPE[task.type],) * 2)
        own += name in EVALUATION_INSTRUCTIONS
        for role in task.roles:
            found = select_prompt(task, role, prompts, None)
            assert found == FORM.format_prompt(sides[role == "document"]), task.name
    assert own == 12, "all but the two hierarchical clusterings are later forms of other tasks"
