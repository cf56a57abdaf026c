from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import artifact, encoding, task
from harness.identity import canonical, digest, evaluation_identity
from harness.types import Data, Encoding


def identity(**changes: object) -> dict[str, object]:
    how = encoding(**changes.pop("encoding", {}))  # type: ignore[arg-type]
    return evaluation_identity(artifact(Path()), replace(task(), **changes), how, seed=42)  # type: ignore[arg-type]


def test_canonical_json_is_sorted_compact_and_plain() -> None:
    assert canonical({"b": (1, None), "a": {"ü": True}}) == '{"a":{"ü":true},"b":[1,null]}'


def test_digest_is_the_sha256_of_the_canonical_json() -> None:
    assert digest({"a": 1}) == hashlib.sha256(b'{"a":1}').hexdigest()


def test_evaluation_key_is_golden() -> None:
    """A change here makes every record on every disk unknown: migrate, do not edit."""
    assert canonical(identity()) == (
        '{"artifact":"' + "a" * 64 + '","data":{"content":"cccccccc"},"encoding":{"dtype":"float32",'
        '"max_length":128,"normalize":true,"output":"vector","pooling":"mean","similarity":"cosine"},'
        '"prompts":{"":"","document":"","query":""},"scoring":"fake 1","seed":42,"splits":["test"],'
        '"subsets":["default"],"task":"Fake"}'
    )
    assert digest(identity()) == "4f6fe5ad14cde320766f929116affec00915fe6c5101d175b7277b5570ebae25"


@pytest.mark.parametrize(
    "changes",
    [
        {"data": Data(content="d")},
        {"data": Data(path="o/n", revision="1")},
        {"splits": ("dev",)},
        {"subsets": ("en",)},
        {"name": "Other"},
        {"encoding": {"pooling": "cls"}},
        {"encoding": {"max_length": 64}},
        {"encoding": {"dtype": "bfloat16"}},
        {"encoding": {"normalize": False}},
        {"encoding": {"similarity": "dot"}},
        {"encoding": {"prompts": (("query", "q: "),)}},
    ],
)
def test_every_part_of_the_identity_changes_the_key(changes: dict[str, object]) -> None:
    assert digest(identity(**changes)) != digest(identity())


def test_order_of_splits_and_prompts_for_other_tasks_change_nothing() -> None:
    two = {"splits": ("a", "b")}
    assert digest(identity(**two)) == digest(identity(splits=("b", "a")))
    assert digest(identity(encoding={"prompts": (("OtherTask", "x"),)})) == digest(identity())


def test_a_field_added_later_keeps_old_keys() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Old:
        a: int

    @dataclass(frozen=True, kw_only=True)
    class New:
        a: int
        added: str | None = None

    assert digest(Old(a=1)) == digest(New(a=1))
    assert digest(New(a=1, added="x")) != digest(New(a=1))


@pytest.mark.parametrize("value", [float("nan"), Path("x"), object()])
def test_what_is_not_content_is_refused(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        digest({"a": value})


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.lists(st.booleans()), max_size=5))
def test_key_order_never_matters(value: dict[str, object]) -> None:
    assert digest(dict(reversed(value.items()))) == digest(value)


@pytest.mark.parametrize(
    ("prompts", "role", "expected"),
    [
        ({"Fake-query": "1", "Fake": "2", "STS-query": "3", "STS": "4", "query": "5"}, "query", "1"),
        ({"Fake": "2", "STS-query": "3", "STS": "4", "query": "5"}, "query", "2"),
        ({"STS-query": "3", "STS": "4", "query": "5"}, "query", "3"),
        ({"STS": "4", "query": "5"}, "query", "4"),
        ({"query": "5"}, "query", "5"),
        ({"query": "5"}, "document", ""),
        ({"query": "5"}, "", ""),
        ({"STS": "4"}, "", "4"),
    ],
)
def test_prompts_are_found_in_the_order_of_mteb(prompts: dict[str, str], role: str, expected: str) -> None:
    how = encoding(prompts=tuple(sorted(prompts.items())))
    assert how.prompt(task(), role) == expected  # type: ignore[arg-type]


def test_prompts_agree_with_mteb() -> None:
    import mteb
    from mteb.models.abs_encoder import get_prompt
    from mteb.types import PromptType

    metadata = mteb.get_task("SciFact").metadata
    ours = replace(task(), name="SciFact", type="Retrieval")
    names = ["SciFact-query", "SciFact", "Retrieval-document", "Retrieval", "query", "document"]
    for skip in range(len(names)):
        prompts = {name: f"<{name}>" for name in names[skip:]}
        how: Encoding = encoding(prompts=tuple(sorted(prompts.items())))
        for role in PromptType.query, PromptType.document:
            assert how.prompt(ours, role.value) == (get_prompt(prompts, metadata, role) or "")


def test_default_prompt_stands_in_where_no_name_matches() -> None:
    how = encoding(prompts=(("base", "b: "), ("query", "q: ")), default_prompt="base")
    assert (how.prompt(task(), "query"), how.prompt(task(), "document")) == ("q: ", "b: ")
