"""The prompt that a backbone's tokenizer makes of an instruction, the same in training and evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.encoder.folder.files import read_object
from harness.encoder.folder.modules_and_pooling import find_backbone_folder

_OF_BERT = ("vocab.txt", "spm.model")
"""The vocabularies of BERT and DeBERTa, whose tokenizers put [CLS] and [SEP] around a text."""


@dataclass(frozen=True, kw_only=True)
class InstructionFormat:
    """The tokens between an instruction and a text, as in the code of NeoBERT.

    Prompt and text together are `instruction + separator + " " + start + text`, in NeoBERT's words
    `sep_token` and `bos_token`. It is one text to the tokenizer, whose own tokens come around it:
    `[CLS] instruction [SEP] [CLS] text [SEP]`. All its token types are therefore those of a first segment,
    and what a length cuts off is the end of the text. A byte-level tokenizer makes a token of the blank.

    sentence-transformers applies `text.strip()` to the prompted text. Blanks before the text itself are left,
    unlike without a prompt. No prompt may end in a blank that matters: without a `start` it is lost if the
    text is empty.

    Attributes:
        separator: The token behind the instruction; may be empty.
        start: The token before the text; may be empty.
        notes: Where the tokenizer differs from what NeoBERT's code supposes.

    >>> InstructionFormat(separator="[SEP]", start="[CLS]").format_prompt("Find similar text.")
    'Find similar text.[SEP] [CLS]'
    """

    separator: str
    start: str
    notes: tuple[str, ...] = ()

    @classmethod
    def read_instruction_format(cls, folder: Path) -> InstructionFormat:
        """The format for the tokenizer of a model folder.

        A token that is not there is replaced: bos by cls, sep by eos, or either by the token that the
        tokenizer itself puts at that end of a text. Without any of these there is only the blank.

        Args:
            folder: The folder of a bare backbone, or of a model whose first module is one.

        Raises:
            ModelError: A file of the tokenizer cannot be read.
        """
        place = find_backbone_folder(folder)
        named = _read_special_tokens(place)
        first, last = _find_boundary_tokens(place)
        start, of_start = _choose_token(("bos", "cls"), named, first)
        separator, of_separator = _choose_token(("sep", "eos"), named, last)
        lowered = _describe_lower_case(place, separator + start)
        return cls(separator=separator, start=start, notes=(*of_start, *of_separator, *lowered))

    def format_prompt(self, instruction: str) -> str:
        """The prompt with an instruction, which is put before a text; empty without an instruction."""
        return f"{instruction}{self.separator} {self.start}" if instruction else ""


def _choose_token(
    kinds: tuple[str, str], named: Mapping[str, str], boundary_token: str
) -> tuple[str, tuple[str, ...]]:
    """The first token that the files name of two kinds, else `boundary_token`; and a note on the choice."""
    preferred, other = kinds
    if preferred in named:
        return named[preferred], ()
    if other in named:
        return named[other], (
            f"The tokenizer has no {preferred} token: its {other} token {named[other]} is used instead.",
        )
    if boundary_token:
        return boundary_token, (
            f"The tokenizer's files name no {preferred} and no {other} token: {boundary_token}, which it "
            "puts at that end of a text, is used instead.",
        )
    return "", (f"The tokenizer has no {preferred} and no {other} token: only a blank is used.",)


def _read_special_tokens(folder: Path) -> dict[str, str]:
    """The tokens that files name, by kind, such as {"cls": "[CLS]"}; of two files by transformers' order."""
    config = read_object(folder / "tokenizer_config.json")
    special = read_object(folder / "special_tokens_map.json")
    # transformers lets special_tokens_map.json win only for tokenizers that were saved without
    # added_tokens_decoder, before its version 4.34.
    both = {**special, **config} if "added_tokens_decoder" in config else {**config, **special}
    kinds = ("bos", "cls", "sep", "eos")
    tokens = {kind: _extract_token_text(both.get(f"{kind}_token")) for kind in kinds}
    return {kind: token for kind, token in tokens.items() if token}


def _extract_token_text(token: Any) -> str:
    """The text of a token, which is a string or an object; empty for anything else."""
    value = token.get("content") if isinstance(token, Mapping) else token
    return value if isinstance(value, str) else ""


def _find_boundary_tokens(folder: Path) -> tuple[str, str]:
    """The tokens that a tokenizer puts before and after each text, "" where it puts none."""
    tokenizer_file = folder / "tokenizer.json"
    if tokenizer_file.is_file():
        return _parse_post_processor(read_object(tokenizer_file).get("post_processor") or {})
    return ("[CLS]", "[SEP]") if any((folder / name).is_file() for name in _OF_BERT) else ("", "")


def _parse_post_processor(processor: Mapping[str, Any]) -> tuple[str, str]:
    """The first token before a text and the first one behind it, by the rules in tokenizer.json."""
    kind = processor.get("type")
    if kind == "Sequence":
        parts = [_parse_post_processor(part) for part in processor["processors"]]
        return next((part for part in parts if any(part)), ("", ""))
    if kind in ("BertProcessing", "RobertaProcessing"):
        return str(processor["cls"][0]), str(processor["sep"][0])
    pieces = processor["single"] if kind == "TemplateProcessing" else []
    # A piece is a special token or the text itself, here "".
    tokens = [str(piece.get("SpecialToken", {}).get("id", "")) for piece in pieces]
    text = tokens.index("") if "" in tokens else 0
    return next(iter(tokens[:text]), ""), next(iter(tokens[text + 1 :]), "")


def _describe_lower_case(folder: Path, tokens: str) -> tuple[str, ...]:
    """A note where the model makes lower case of texts before its tokenizer sees them, tokens included."""
    lowers = read_object(folder / "sentence_bert_config.json").get("do_lower_case")
    if not lowers or tokens == tokens.lower():
        return ()
    return (f"The model makes lower case of {tokens}, as of all text: its do_lower_case is on.",)
