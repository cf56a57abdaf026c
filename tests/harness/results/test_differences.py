"""What makes two scores incomparable is named; what only ran elsewhere is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes import artifact, encoding, task
from harness.core.encoding import Encoding
from harness.core.errors import UsageError
from harness.core.keys import build_evaluation_identity
from harness.core.types import Data, Task
from harness.results.differences import (
    SHOWN,
    Comparable,
    Identity,
    find_provenance_differences,
    require_alike,
)
from harness.results.record_units import ScoredRecord


def scored(of: Task, how: Encoding, *, key: str = "a", seed: int = 42, **provenance: Any) -> ScoredRecord:
    model = artifact(Path("x"), key=key * 64)
    return ScoredRecord(
        key="k",
        task={"name": of.name, "type": of.type, "metric": of.metric},
        model={},
        identity=build_evaluation_identity(model, of, how, seed=seed),
        provenance=provenance,
        score=0.5,
    )


def finding(**how: Any) -> Encoding:
    return encoding(prompts=(("query", "find: "),), **how)


BASE = scored(task(), finding())


def alike(pairs: Mapping[str, tuple[Identity, Identity]], allowed: Sequence[str], baseline: str) -> list[str]:
    """`require_alike` of one candidate's and one baseline's identity for each task."""
    mine, theirs = ({task: (both[at],) for task, both in pairs.items()} for at in (0, 1))
    return require_alike(mine, theirs, allowed, baseline)


def refused(other: ScoredRecord, *allowed: str) -> str:
    with pytest.raises(UsageError) as caught:
        alike({"Fake": (other.identity, BASE.identity)}, allowed, "last")
    assert "baseline last" in caught.value.message
    assert "--allow " in (caught.value.hint or "")
    return caught.value.message


def test_another_model_is_no_difference() -> None:
    other = scored(task(), finding(), key="b")
    assert (
        Comparable(identity=other.identity).find_field_differences(Comparable(identity=BASE.identity)) == []
    )
    assert alike({"Fake": (other.identity, BASE.identity)}, (), "last") == []


@pytest.mark.parametrize(
    ("other", "field", "mine", "theirs"),
    [
        (scored(task(), encoding(prompts=(("query", "seek: "),))), "prompt", "seek: ", "find: "),
        (scored(task(), encoding(prompts=())), "prompt", "", "find: "),
        (scored(task(), finding(max_length=64)), "max_length", "64", "128"),
        (scored(task(), finding(dtype="bfloat16")), "dtype", "bfloat16", "float32"),
        (scored(task(), finding(pooling="cls")), "pooling", "cls", "mean"),
        (scored(task(), finding(normalize=False)), "normalize", "False", "True"),
        (scored(task(), finding(), seed=43), "seed", "43", "42"),
        (scored(task(scoring="fake 2"), finding()), "scoring", "fake 2", "fake 1"),
        (scored(replace(task(), data=Data(content="d" * 8)), finding()), "data", "dddddddd", "cccccccc"),
        (scored(replace(task(), splits=("dev",)), finding()), "split", "dev", "test"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_difference_is_refused_with_the_field_and_both_values(
    other: ScoredRecord, field: str, mine: str, theirs: str
) -> None:
    message = refused(other)
    line = next(line for line in message.splitlines()[1:] if field in line)
    assert mine in line
    assert theirs in line
    assert "(Fake)" in line


def test_a_baseline_of_a_data_root_says_how_to_name_it() -> None:
    hub = scored(replace(task(), data=Data(path="org/set", revision="e" * 40)), finding())
    for mine, theirs, expected in ((hub, BASE, True), (BASE, hub, False)):
        with pytest.raises(UsageError) as caught:
            alike({"Fake": (mine.identity, theirs.identity)}, (), "last")
        assert (caught.value.hint or "").startswith("The baseline was measured on a data root") == expected
        assert "None" not in caught.value.message


def test_a_policy_may_allow_a_field_and_it_is_told() -> None:
    other = scored(task(), finding(max_length=64))
    ((field, *_),) = Comparable(identity=other.identity).find_field_differences(
        Comparable(identity=BASE.identity)
    )
    for allowed in (field, f"{field.partition('.')[0]}.*", "*max_length"):
        (told,) = alike({"Fake": (other.identity, BASE.identity)}, (allowed,), "last")
        assert "which is allowed" in told
        assert "64" in told
    assert "max_length" in refused(other, "encoding.dtype", "max_lengt")
    both = scored(task(), finding(max_length=64, dtype="bfloat16"))
    assert "max_length" not in refused(both, field)


def test_prompts_of_the_models_own_may_differ_and_are_told_in_one_line() -> None:
    other = scored(task(), encoding(prompts=(("query", "search: "),)))
    mine, theirs = (dict.fromkeys(("A", "B"), (one.identity,)) for one in (other, BASE))
    (sentence,) = require_alike(mine, theirs, (), "last", own_prompts=True)
    assert "prompts of its own on A, B" in sentence
    assert "--prompt" in sentence
    longer = scored(task(), encoding(prompts=(("query", "search: "),), max_length=64))
    with pytest.raises(UsageError, match="max_length"):
        require_alike({"A": (longer.identity,)}, {"A": (BASE.identity,)}, (), "last", own_prompts=True)


def test_many_tasks_that_differ_alike_are_told_in_one_line() -> None:
    other = scored(task(), finding(max_length=64))
    pairs = {f"T{at}": (other.identity, BASE.identity) for at in range(12)}
    with pytest.raises(UsageError) as caught:
        alike(pairs, (), "last")
    assert "(T0 and 11 more)" in caught.value.message
    assert len(caught.value.message.splitlines()) == 2


def test_no_more_lines_are_shown_than_can_be_read() -> None:
    others = [scored(task(scoring=f"fake {at + 5}"), finding()) for at in range(20)]
    pairs = {f"T{at}": (other.identity, BASE.identity) for at, other in enumerate(others)}
    with pytest.raises(UsageError, match=f"and {20 - SHOWN} more"):
        alike(pairs, (), "last")


def test_libraries_and_devices_only_warn() -> None:
    one, two = (
        replace(
            BASE,
            provenance={"packages": {"torch": torch, "numpy": "2"}, "device": {"name": name, "memory": at}},
        )
        for at, (torch, name) in enumerate((("2.11", "A"), ("2.10", "B")))
    )
    pairs = {"T1": (one, two), "T2": (one, two), "T3": (two, two)}
    identities = {name: (a.identity, b.identity) for name, (a, b) in pairs.items()}
    assert alike(identities, (), "last") == []
    ran = {name: (a.provenance, b.provenance) for name, (a, b) in pairs.items()}
    assert find_provenance_differences(ran) == [
        "torch was 2.10 for the baseline and is 2.11 for the candidate (2 tasks).",
        "device.name was B for the baseline and is A for the candidate (2 tasks).",
    ]
    assert find_provenance_differences({"T3": ran["T3"]}) == []


def test_prompts_of_other_tasks_are_no_difference_of_a_score() -> None:
    fields = Comparable(identity={"prompts": {"query": "q: "}}).flatten_fields(
        {"prompts_asked": {"named": {"query": "q: ", "AnotherTask": "x: "}}, "dtype": "float32"}
    )
    assert fields == {"identity.prompts.query": "q: ", "provenance.dtype": "float32"}
