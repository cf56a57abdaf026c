"""The special tokens that a tokenizer's files declare, compared with those that a text gets.

Since transformers 5 `add_bos_token` and `add_eos_token` do nothing beside a tokenizer.json, and many classes
replace its post-processor by their own: files of older versions then lose a token without a word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.encoder.folder.files import read_object
from harness.encoder.folder.tensors import format_command

SPECIAL_TOKENS, TOKENIZATION = "special-tokens", "tokenization"
"""The names by which a contradiction is accepted, that of special tokens and of all others."""

_CONFIG, _TOKENIZER = "tokenizer_config.json", "tokenizer.json"
_FLAGS = {
    "first": ("add_bos_token", "bos_token", "cls_token"),
    "last": ("add_eos_token", "eos_token", "sep_token"),
}
"""By the end of a text: the flag, the token that it adds, and the token that encoders have there."""

_CURE = (
    "from tokenizers import Tokenizer as T, processors as p; f = {}; t = T.from_file(f); "
    "t.post_processor = p.TemplateProcessing(single={}, special_tokens=[(s, t.token_to_id(s)) for s in {}]); "
    "t.save(f)"
)
_SAVE = (
    "from transformers import AutoTokenizer as A; f = {}; A.from_pretrained(f, add_bos_token=bool({}), "
    "add_eos_token=bool({})).save_pretrained(f)"
)


@dataclass(frozen=True, kw_only=True)
class SpecialTokens:
    """The tokens that the files in the folder of a tokenizer say are put around a text.

    `config` is the content of tokenizer_config.json, with tokens as texts, and `tokenizer` that of
    tokenizer.json; `first` and `last` are the tokens that its post-processor adds, "" for none and None where
    it says nothing.
    """

    folder: Path
    config: Mapping[str, Any]
    tokenizer: Mapping[str, Any]
    first: str | None
    last: str | None

    @staticmethod
    def read_folder(folder: Path) -> SpecialTokens:
        """What the files in `folder` say."""
        config = {**read_object(folder / "special_tokens_map.json"), **read_object(folder / _CONFIG)}
        tokens = {
            name: value.get("content") if isinstance(value, Mapping) else value
            for name, value in config.items()
        }
        tokenizer = read_object(folder / _TOKENIZER)
        first, last = _read_processor(tokenizer.get("post_processor"))
        return SpecialTokens(folder=folder, config=tokens, tokenizer=tokenizer, first=first, last=last)

    def declare(self, end: str) -> str | None:
        """The token that belongs to an end, "first" or "last": "" for none, None where no file says it."""
        flag, name, of_encoders = _FLAGS[end]
        added: str | None = getattr(self, end)
        token, declared = self.config.get(name), self.config.get(flag)
        if declared is True and isinstance(token, str):
            return token
        # An encoder's [CLS] is often its bos_token, too: the flag is meant for decoders.
        if declared is False and added and added == token != self.config.get(of_encoders):
            return ""
        return added

    def explain_difference(self, first: str, last: str) -> tuple[str, str] | None:
        """What the tokens around a text, "" for none, contradict, and the cure; None if they are declared."""
        done = {"first": first, "last": last}
        if wrong := [end for end in _FLAGS if self.declare(end) not in (None, done[end])]:
            faults = " and ".join(self._explain_end(end, done[end]) for end in wrong)
            return f"{faults}.", self._build_cure(wrong)
        named = [self.config.get(of_encoders) for _, _, of_encoders in _FLAGS.values()]
        # Lists have tokens of languages, some of which stand around a text.
        lists = (value if isinstance(value, list) else [value] for value in self.config.values())
        names = [token for tokens in lists for token in tokens]
        others = [token for token in (first, last) if token and token not in names]
        if not all(isinstance(token, str) for token in named) or not (others or not (first or last)):
            return None
        does = f"puts {others[0]} around a text" if others else "adds neither to a text"
        cure = f"Put them into its post-processor: {self._build_command(*map(str, named))}"
        return f"The tokenizer names {named[0]} and {named[1]}, and {does}.", cure

    def _explain_end(self, end: str, done: str) -> str:
        flag, declared = _FLAGS[end][0], self.declare(end)
        verb, place = ("begins", "before") if end == "first" else ("ends", "behind")
        if isinstance(self.config.get(flag), bool) and declared in ("", self.config.get(_FLAGS[end][1])):
            does = f"{verb} without {declared}" if declared else f"{verb} with {done}"
            return f'{_CONFIG} says "{flag}": {str(self.config[flag]).lower()}, and a text {does}'
        return f"{_TOKENIZER} puts {declared or 'no token'} {place} a text, which gets {done or 'none'}"

    def _build_cure(self, wrong: Sequence[str]) -> str:
        flags = [_FLAGS[end][0] for end in wrong if isinstance(self.config.get(_FLAGS[end][0]), bool)]
        if not flags:
            return f'Set "tokenizer_class": "PreTrainedTokenizerFast" in {_CONFIG} to use {_TOKENIZER} alone.'
        ends = {end: self.declare(end) or "" for end in _FLAGS}
        other = " and ".join(f'"{flag}": {str(not self.config[flag]).lower()}' for flag in flags)
        return (
            f"If it was trained as {_CONFIG} says: {self._build_command(ends['first'], ends['last'])}. "
            f"If as now: set {other} there."
        )

    def _build_command(self, first: str, last: str) -> str:
        """The command that makes the tokenizer add these tokens."""
        if not (self.folder / _TOKENIZER).is_file():
            return format_command(_SAVE, str(self.folder), first, last)
        single = " ".join(filter(None, (first, "$A", last)))
        return format_command(_CURE, str(self.folder / _TOKENIZER), single, sorted({first, last} - {""}))


def _read_processor(processor: Any) -> tuple[str, str] | tuple[None, None]:
    """The tokens that a post-processor puts before and behind a text; None where that is not known."""
    kind = processor.get("type") if isinstance(processor, Mapping) else None
    if kind in ("BertProcessing", "RobertaProcessing"):
        return str(processor["cls"][0]), str(processor["sep"][0])
    if kind == "TemplateProcessing":
        parts = processor["single"]
        at = next((number for number, part in enumerate(parts) if "Sequence" in part), 0)
        names = [part["SpecialToken"]["id"] if "SpecialToken" in part else "" for part in parts]
        return (names[0] if at else ""), names[-1]
    if kind == "ByteLevel":
        return "", ""
    if kind == "Sequence":
        # The later ones put theirs around those of the earlier.
        ends = [_read_processor(inner) for inner in reversed(processor["processors"])]
        if (None, None) not in ends:
            return next((end[0] for end in ends if end[0]), ""), next((end[1] for end in ends if end[1]), "")
    return None, None
