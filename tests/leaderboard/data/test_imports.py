"""What models were trained on: as declared, by similar tasks, and by what they were adapted from."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import site_data
from leaderboard.data.imports import map_similar_tasks, resolve_training_tasks
from site_data import Import
from suites._mteb import snapshot
from suites._mteb.make_snapshot import _group_similar_names

SIMILAR = {
    "A": frozenset({"A.v2", "A-VN"}),
    "A.v2": frozenset({"A", "A-VN"}),
    "A-VN": frozenset({"A", "A.v2"}),
}


def card(
    model: str, data: list[str] | None, *, adapted: str | None = None, revision: str = "1"
) -> dict[str, Any]:
    return {"model": model, "revision": revision, "adapted_from": adapted, "training_datasets": data}


def closed(*cards: dict[str, Any]) -> list[list[str] | None]:
    return resolve_training_tasks(cards, SIMILAR)


def test_similar_tasks_count() -> None:
    assert closed(card("m", ["A.v2", "B"])) == [["A", "A-VN", "A.v2", "B"]]
    assert closed(card("m", ["B"])) == [["B"]]


def test_what_it_was_adapted_from_counts_over_several_steps_whatever_the_order() -> None:
    child, parent = card("child", ["C"], adapted="parent"), card("parent", ["B"], adapted="root")
    root = card("root", ["A"])
    found = ["A", "A-VN", "A.v2", "B", "C"]
    assert closed(child, parent, root) == [found, found[:-1], found[:-2]]
    assert closed(root, parent, child) == [found[:-2], found[:-1], found]


def test_nothing_declared_stays_unknown_and_is_not_looked_behind() -> None:
    root, parent = card("root", ["A"]), card("parent", None, adapted="root")
    assert closed(parent, root)[0] is None
    assert closed(card("child", ["B"], adapted="parent"), parent, root)[0] == ["B"]


def test_an_empty_list_says_that_there_was_nothing_but_what_is_behind_it() -> None:
    assert closed(card("m", [])) == [[]]
    assert closed(card("m", [], adapted="root"), card("root", ["B"]))[0] == ["B"]


def test_a_model_that_is_not_there_adds_nothing() -> None:
    assert closed(card("m", ["B"], adapted="elsewhere")) == [["B"]]
    assert closed({"model": "m"}) == [None]


def test_cycles_end() -> None:
    first, second = card("first", ["B"], adapted="second"), card("second", ["C"], adapted="first")
    assert closed(first, second) == [["B", "C"], ["B", "C"]]
    assert closed(card("own", ["B"], adapted="own")) == [["B"]]


def test_every_card_of_a_model_behind_counts_but_of_the_entry_its_own() -> None:
    old, new = card("m", ["B"], revision="1"), card("m", ["C"], revision="2")
    silent = card("m", None, revision="external")
    child = card("child", ["D"], adapted="m")
    assert closed(old, new, silent, child) == [["B"], ["C"], None, ["B", "C", "D"]]


def test_the_registry_of_mteb_counts_beside_the_cards() -> None:
    registry = {"m": card("m", ["B"]), "root": card("root", ["A"]), "clean": card("clean", [])}
    with mock.patch("leaderboard.data.imports.read_registry_cards", return_value=registry):
        assert closed(card("m", ["C"], adapted="root")) == [["A", "A-VN", "A.v2", "B", "C"]]
        # A card that declares nothing is not followed, but the registry speaks for its model.
        assert closed(card("m", None, adapted="root"), card("clean", None)) == [["B"], []]
        assert closed(card("other", None, adapted="root"), {"model": "m"}) == [None, ["B"]]


def test_groups_go_both_ways_and_through_others() -> None:
    assert _group_similar_names({"A": ["A.v2"], "B": ["C"], "A.v2": ["A.v3"], "A.v4": ["A.v3", "A"]}) == [
        ["A", "A.v2", "A.v3", "A.v4"],
        ["B", "C"],
    ]
    assert _group_similar_names({}) == []


def test_the_suites_say_what_is_similar() -> None:
    similar = map_similar_tasks()
    assert {"HotpotQAHardNegatives", "HotpotQA-NL"} <= similar["HotpotQA"]
    assert "HotpotQA" in similar["HotpotQAHardNegatives"]
    assert "Quora-VN" in similar["Quora"]  # no task, but cards say it
    assert all(name not in others for name, others in similar.items())


# In the index


def imported(folder: Path, parent: list[str]) -> dict[str, frozenset[str] | None]:
    """What each model of an import was trained on."""
    (task,) = site_data.names("nanobeir")[:1]
    child = {"training_datasets": ["SciFact"], "adapted_from": "o/parent"}
    cards: dict[str, dict[str, Any]] = {
        "o/child": child,
        "o/parent": {"training_datasets": parent},
        "o/other": {"license": "mit"},
    }
    site_data.put_imports(
        folder / "results",
        [Import(model=name, scores={task: 0.5}, card=said) for name, said in cards.items()],
    )
    queries = site_data.small_site(folder, make=lambda _: None).queries
    (one,) = (e for e in queries.entries.values() if e.model == "o/child")
    assert queries.load_facts(id=[one.id])[one.id]["training_datasets"] == ["SciFact"]  # as declared
    return {e.model: e.trained_on for e in queries.entries.values() if e.origin == "imported"}


def test_an_entry_holds_it_all_and_is_read_again_when_a_model_behind_it_changes(tmp_path: Path) -> None:
    before = imported(tmp_path, ["NFCorpus"])
    after = imported(tmp_path, ["NFCorpus", "ArguAna"])
    assert {"SciFact", "NFCorpus", "NanoSciFactRetrieval", "NanoNFCorpusRetrieval"} <= (
        before["o/child"] or frozenset()
    )
    assert "ArguAna" in (after["o/child"] or ())
    assert before["o/other"] is None
    assert {model for model in before if before[model] != after[model]} == {"o/child", "o/parent"}


# Against the installed mteb


@pytest.mark.filterwarnings("ignore")
@mock.patch("leaderboard.data.imports.read_registry_cards", dict)
def test_mteb_says_the_same() -> None:
    """Of what the English benchmark holds; the cards are those of the installed mteb."""
    import mteb

    tasks = {use.name for use in snapshot.load_snapshot().find_benchmark("MTEB(eng, v2)").tasks}
    metas = {meta.name: meta for meta in mteb.get_model_metas() if meta.name}
    cards = [card(n, _names(m.training_datasets), adapted=m.adapted_from) for n, m in metas.items()]
    found = dict(zip(metas, resolve_training_tasks(cards), strict=True))
    adapted = [n for n, m in metas.items() if m.training_datasets is not None and m.adapted_from in metas]
    others = [n for n, m in metas.items() if m.training_datasets and m.adapted_from is None]
    compared = [*adapted[:: len(adapted) // 20], *others[:: len(others) // 20]]
    assert len(compared) >= 40
    widened = 0
    for name in compared:
        declared, said = metas[name].training_datasets or set(), metas[name].get_training_datasets() or set()
        assert set(found[name] or ()) & tasks == said & tasks, name
        widened += said & tasks > declared & tasks
    assert widened > 5
    assert {name for name, data in found.items() if data is None} == {
        name for name, meta in metas.items() if meta.get_training_datasets() is None
    }


@pytest.mark.filterwarnings("ignore")
def test_a_model_without_a_card_was_trained_on_what_mteb_says() -> None:
    """Every model of the registry, on every text task: with similar tasks and what it was adapted from."""
    import mteb

    tasks = set(snapshot.load_snapshot().tasks)
    said = {meta.name: meta.get_training_datasets() for meta in mteb.get_model_metas() if meta.name}
    found = resolve_training_tasks([{"model": name} for name in said])
    ours = dict(zip(said, (None if names is None else tasks & {*names} for names in found), strict=True))
    assert ours == {name: None if names is None else names & tasks for name, names in said.items()}
    assert sum(bool(names) for names in ours.values()) > 400


@pytest.mark.filterwarnings("ignore")
def test_what_is_similar_is_what_mteb_calls_so() -> None:
    from mteb.get_tasks import _SIMILAR_TASKS
    from mteb.models.model_meta import _collect_similar_tasks

    ours, known = map_similar_tasks(), set(snapshot.load_snapshot().tasks)
    named = {*_SIMILAR_TASKS, *(name for names in _SIMILAR_TASKS.values() for name in names)}
    assert len(named & known) > 500
    for name in named | known:
        said = _collect_similar_tasks(name, set()) - {name}
        assert ours.get(name, frozenset()) & known == said & known, name


def _names(data: set[str] | None) -> list[str] | None:
    return None if data is None else sorted(data)
