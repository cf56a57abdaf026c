"""Trainings on a mix: the loss of ragged negatives, batches of one set, instructions, exact resumption."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from torch import Tensor, nn

from finetune.embedding.instructions import InstructionFormat
from finetune.embedding.losses import build_mix_loss
from finetune.mix.plan import MixRecipe
from finetune.mix.settings import MixSet, MixSettings
from finetune.mix.training import MixRows, MixSetup
from finetune.recipes.unified_contrastive import RECIPE
from harness.core.arguments import replace_settings
from harness.core.errors import HarnessError, UsageError
from harness.core.keys import Lineage
from harness.core.types import Artifact
from harness.data.training.loading import count_trained, load_rows, read_text_hashes
from harness.data.training.sets import LocatedTraining, TrainingData
from harness.encoder.folder.description import describe
from harness.encoder.library_load import count_prompt_tokens, tokenize_batch
from harness.encoder.sentence_transformer import SentenceTransformer
from harness.training.training import TrainingSpec, read_log
from small_trainings import spec_in, trained
from stopped_trainings import kill_at, sentence, train_on_devices

# The loss


class Lookup(nn.Module):
    """A model of float64 with dropout: the mean of the rows of a table, through a layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(50, 6)
        self.layer = nn.Sequential(nn.Dropout(0.3), nn.Linear(6, 5))
        self.double()

    def __getitem__(self, _number: int) -> None:
        """No module of the library."""

    def forward(self, features: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {"sentence_embedding": self.layer(self.table(features["input_ids"]).mean(dim=1))}


COUNTS = {"none": [0] * 6, "one": [1] * 6, "five": [5] * 6, "ragged": [0, 3, 1, 0, 2, 4]}


def by_loop(vectors: list[Tensor], counts: list[int], *, groups: int, summed: bool, scale: float) -> Tensor:
    """The loss of a batch, query by query."""
    size, total, begin = len(counts) // groups, vectors[0].new_zeros(()), 0
    for group in range(groups):
        rows = range(group * size, (group + 1) * size)
        end = begin + sum(counts[row] for row in rows)
        candidates = [vectors[1][row] for row in rows]
        candidates += [vectors[2][place] for place in range(begin, end)]
        begin = end
        losses = []
        for place, row in enumerate(rows):
            query = vectors[0][row]
            cosines = [query @ one / (query.norm() * one.norm()) for one in candidates]
            logits = [scale * cosine for cosine in cosines]
            losses.append(torch.stack(logits).logsumexp(dim=0) - logits[place])
        total = total + sum(losses) / (1 if summed else size) / groups
    return total


@pytest.mark.parametrize("summed", [False, True])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("micro_batch", [None, 4])
@pytest.mark.parametrize("kind", COUNTS)
def test_the_loss_and_its_gradient_are_those_of_a_loop(
    kind: str, micro_batch: int | None, groups: int, summed: bool
) -> None:
    counts, draw = COUNTS[kind], np.random.default_rng(1)
    sizes = [6, 6, *([sum(counts)] if sum(counts) else [])]
    columns = [{"input_ids": torch.from_numpy(draw.integers(50, size=(n, 3)))} for n in sizes]
    model: Any = Lookup()
    loss = build_mix_loss(model, 14.0, groups=groups, summed=summed, micro_batch=micro_batch)

    def gradients(value: Tensor) -> list[Tensor]:
        model.zero_grad()
        value.backward()
        return [weight.grad.clone() for weight in model.parameters()]

    torch.manual_seed(5)
    found = loss(columns, torch.tensor(counts))
    mine = gradients(found)
    torch.manual_seed(5)
    passes = [one["input_ids"].split(micro_batch or 100) for one in columns]
    vectors = [torch.cat([model({"input_ids": ids})["sentence_embedding"] for ids in one]) for one in passes]
    expected = by_loop(vectors, counts, groups=groups, summed=summed, scale=14.0)
    assert float(found.detach()) == pytest.approx(float(expected.detach()), abs=1e-6)
    for one, other in zip(mine, gradients(expected), strict=True):
        assert float((one - other).norm()) <= 1e-6 * float(other.norm())


def test_the_sum_is_the_mean_times_the_rows() -> None:
    columns = [{"input_ids": torch.arange(18).view(6, 3) + at} for at in (0, 7, 20)]
    model: Any = Lookup().eval()
    mean, total = (
        build_mix_loss(model, 14.0, groups=1, summed=summed, micro_batch=None)(
            columns, torch.ones(6, dtype=int)
        )
        for summed in (False, True)
    )
    assert float(total.detach()) == pytest.approx(6 * float(mean.detach()), rel=1e-12)


# A training


def rows_file(folder: Path, name: str, rows: int, first: int, negatives: list[int]) -> LocatedTraining:
    """Pairs, or rows with as many negatives as the list says in turn."""
    columns: dict[str, list[Any]] = {
        "anchor": [sentence(first + n) for n in range(rows)],
        "positive": [sentence(first + 500 + n) for n in range(rows)],
    }
    if negatives:
        counts = [negatives[n % len(negatives)] for n in range(rows)]
        columns["negatives"] = [
            [sentence(first + 200 + n + at) for at in range(c)] for n, c in enumerate(counts)
        ]
    file = folder / f"{name}.parquet"
    folder.mkdir(exist_ok=True)
    Dataset.from_dict(columns).to_parquet(str(file))
    names = ("anchor", "positive", *(["negatives[]"] if negatives else []))
    data = TrainingData(content=f"{first:064d}", columns=names, rows=rows)
    return LocatedTraining(data=data, file=file, name=f"{name}.parquet", rows=rows, own=True)


SETS = {"A": (40, 0, []), "B": (25, 1000, [0, 2, 1]), "C": (90, 2000, [])}
OWN = [f"{name}={name}.parquet" for name in SETS]

SETTINGS = MixSettings(
    batch_size=8,
    groups=2,
    max_steps=12,
    max_length=24,
    learning_rate=1e-3,
    precision="float32",
    sets=tuple(SETS),
    scale=14.0,
    dropout=0.1,
    chunk=3,
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[LocatedTraining, ...]:
    folder = tmp_path_factory.mktemp("data")
    return tuple(rows_file(folder, name, *how) for name, how in SETS.items())


def recipe(**settings: Any) -> MixRecipe:
    made = RECIPE.open("", replace(SETTINGS, **settings))
    assert isinstance(made, MixRecipe)
    made = made.attach_user_data([text for text in OWN if text[0] in settings.get("sets", SETS)])
    texts = {"A": "Find the answer.", "B": "Find a duplicate.", "C": ""}
    own = tuple(replace(one, instruction=texts[one.name]) for one in made.own)
    return replace(made, own=own)


@pytest.fixture
def make(
    backbone: Artifact, data: tuple[LocatedTraining, ...], tmp_path: Path
) -> Callable[..., TrainingSpec]:
    def made(name: str = "run", settings: Mapping[str, Any] | None = None, **fields: Any) -> TrainingSpec:
        full = {"backbone": backbone, "data": data, **fields}
        return spec_in(tmp_path, recipe(**(settings or {})), name, **full)

    return made


def test_the_model_is_the_planned_one(
    make: Callable[..., TrainingSpec], backbone: Artifact, data: tuple[LocatedTraining, ...]
) -> None:
    spec = make()
    trained(spec)
    planned = recipe().plan(backbone, data, seed=7)
    made = describe(spec.output)
    assert (made.prompts, made.pooling) == (planned.description.prompts, "mean")
    assert made.prompts["SciFact-query"] == (
        "Given a scientific claim, retrieve documents that support or refute the claim . Claim: [SEP] [CLS]"
    )
    assert planned.steps == 12
    assert planned.lineage.own_data == "A.parquet as A, B.parquet as B, C.parquet as C"
    assert planned.lineage.beside_own_data == "not on the recipe's data"
    assert [one["name"] for one in planned.lineage.settings["mix"]] == ["", "", ""]
    assert [one["divisor"] for one in planned.lineage.settings["mix"]] == [0, 0, 0]
    log = read_log(spec.folder / "log.jsonl")
    assert {line["set"] for line in log} == {"A", "B", "C"}
    assert all(line["flops"] > 0 for line in log)
    known = read_text_hashes(spec.output)
    assert known is not None
    drawn = {sentence(1000 + n) for n in range(25)}
    assert 0 < count_trained(sorted(drawn), known) <= 25
    assert count_trained(["no text of any set"], known) == 0


def batches(spec: TrainingSpec) -> Iterator[tuple[Any, dict[str, Tensor]]]:
    """The rows and the inputs of every step."""
    assert isinstance(spec.recipe, MixRecipe)
    settings = spec.recipe.settings
    assert isinstance(settings, MixSettings)
    setup = MixSetup(settings, spec.recipe.sets, {})
    rows = setup.load_training_rows(spec)
    order = setup.build_order(rows, spec)
    collate = setup.build_collator(setup.build_model(spec))
    for numbers in order.iter_batches(0):
        read = rows.__getitems__(numbers.tolist())
        yield read, collate(read)


@pytest.mark.parametrize(("sides", "both"), [("both", True), ("query", False), ("none", False)])
def test_inputs_have_the_instruction_of_their_set(
    make: Callable[..., TrainingSpec], backbone: Artifact, sides: str, both: bool
) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(backbone.folder)
    texts = ["Find the answer.[SEP] [CLS]", "Find a duplicate.[SEP] [CLS]", ""]
    seen = set()
    for rows, inputs in batches(make(settings={"instructions": sides})):
        (number,) = {number for number, _ in rows}
        seen.add(number)
        prompt = texts[number]
        for name, column, prompted in (
            ("query", [row.query for _, row in rows], sides != "none"),
            ("positive", [row.positive for _, row in rows], both),
            ("negative", [text for _, row in rows for text in row.negatives], both),
        ):
            if not column:
                assert f"{name}_input_ids" not in inputs
                continue
            wanted = tokenizer([prompt * prompted + text for text in column], truncation=True, max_length=24)
            found = inputs[f"{name}_input_ids"]
            mask = inputs[f"{name}_attention_mask"].bool()
            assert [ids[own].tolist() for ids, own in zip(found, mask, strict=True)] == wanted["input_ids"]
        assert inputs["label"].tolist() == [len(row.negatives) for _, row in rows]
    assert seen == {0, 1, 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{}, {"draws": "turns", "distinct": True, "reduction": "sum", "alpha": 0.0}]
)
def test_a_training_killed_twice_ends_as_an_undisturbed_one(
    make: Callable[..., TrainingSpec], settings: dict[str, Any]
) -> None:
    undisturbed = trained(make("whole", settings))
    spec = make("cut", settings)
    for step in (4, 9):
        kill_at(spec, step)
    found = trained(spec)
    assert all(torch.equal(found[name], one) for name, one in undisturbed.items())
    whole, cut = (read_log(spec.folder.parent / name / "log.jsonl") for name in ("whole", "cut"))
    assert [(one["step"], one["set"], one["loss"]) for one in whole] == [
        (one["step"], one["set"], one["loss"]) for one in cut
    ]


@pytest.mark.slow
def test_two_processes_take_the_steps_of_one(make: Callable[..., TrainingSpec], tmp_path: Path) -> None:
    """AdamW's first moments after a step, here without dropout."""

    def moments(name: str, devices: tuple[str, ...]) -> list[Tensor]:
        settings = {"dropout": 0.0, "max_steps": 3, "clip": 0.0, "learning_rate": 1e-9, "chunk": 0}
        spec = make(name, settings, devices=devices, minutes=0)
        train_on_devices(spec)
        state = torch.load(max(spec.checkpoints.glob("*/state.pt")), weights_only=True)
        found = state["optimizer"]["state"]
        return [found[at]["exp_avg"] for at in sorted(found)]

    one, two = moments("one", ("cpu",)), moments("two", ("cpu", "cpu"))
    for mine, other in zip(one, two, strict=True):
        torch.testing.assert_close(other, mine, atol=1e-6, rtol=0)
    alone, shared = (read_log(tmp_path / name / "log.jsonl") for name in ("one", "two"))
    assert [line["set"] for line in alone] == [line["set"] for line in shared]
    assert [line["tokens"] for line in alone] == [line["tokens"] for line in shared]
    assert [line["loss"] for line in alone] == pytest.approx([line["loss"] for line in shared], abs=1e-6)


def test_an_instruction_can_be_left_out_of_the_mean(make: Callable[..., TrainingSpec]) -> None:
    spec = make(settings={"pool_instruction": False, "max_steps": 2})
    trained(spec)
    model = SentenceTransformer(str(spec.output), device="cpu")
    assert not model[1].include_prompt
    prompt = InstructionFormat.read_instruction_format(spec.output).format_prompt("Find the answer.")
    inputs = next(
        found for rows, found in batches(make(settings={"pool_instruction": False})) if not rows[0][0]
    )
    counted = count_prompt_tokens(model, model[0], prompt)
    assert counted is not None
    assert set(inputs["query_prompt_length"].tolist()) == {counted}
    ids = tokenize_batch(model, [prompt + "the cat"])["input_ids"][0].tolist()
    assert len(ids) - counted == 3, "the, cat, and the last token"


def test_the_dropout_is_that_of_the_settings(make: Callable[..., TrainingSpec]) -> None:
    """A NeoBERT's config has none; the saved config keeps its own."""
    for share, same in ((0.5, False), (0.0, True)):
        spec = make(settings={"dropout": share})
        assert isinstance(spec.recipe, MixRecipe)
        setup = MixSetup(replace(SETTINGS, dropout=share), spec.recipe.sets, {})
        model = setup.build_model(spec).train()
        inputs = model.tokenize(["the cat sat on the mat"])
        torch.manual_seed(0)
        first, second = (model(dict(inputs))["sentence_embedding"] for _ in range(2))
        assert torch.equal(first, second) is same


# Bad input


def test_all_data_that_is_not_here_is_named_with_the_sets_that_are(
    tmp_path: Path, backbone: Artifact
) -> None:
    from harness.data.locate import DataSettings
    from harness.plan.request import Request
    from harness.plan.training_plan import TrainingRequest, plan_models

    folder = tmp_path / "root" / "sentence-transformers" / "all-nli" / "triplet"
    folder.mkdir(parents=True)
    columns = {name: [sentence(n)] for n, name in enumerate(("anchor", "positive", "negative"))}
    Dataset.from_dict(columns).to_parquet(str(folder / "train-00000-of-00001.parquet"))
    readme = "---\nconfigs:\n- config_name: triplet\n  data_files: triplet/train-*.parquet\n---\n"
    (folder.parent / "README.md").write_text(readme)
    request = TrainingRequest(
        typed=Request(models=(), suites=()),
        seeds=(42,),
        results=tmp_path,
        data=DataSettings(root=tmp_path / "root", offline=True, cache=tmp_path / "cache"),
    )
    made = RECIPE.open("", replace(RECIPE.settings[""], sets=("ALLNLI", "QQP", "WIKIHOW")))
    assert isinstance(made, MixRecipe)
    with pytest.raises(UsageError, match=r"2 data sets are not here or not whole: .*QQP_triplets") as caught:
        plan_models([], [made], request)
    assert "--set sets=ALLNLI" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"alpha": -0.5}, "alpha is -0.5"),
        ({"groups": 0}, "groups is 0"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"group_size": 4}, "group_size is 4"),
        ({"sets": ("A", "A")}, "sets names A twice"),
        ({"pool_instruction": False, "pooling": "cls"}, "pooling is cls"),
    ],
)
def test_settings_that_no_training_can_have(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        RECIPE.open("", replace(SETTINGS, **settings))


def test_names_of_no_set_and_groups_without_rows_are_refused() -> None:
    made = RECIPE.open("", replace(SETTINGS, sets=("ALLNLY",)))
    assert isinstance(made, MixRecipe)
    with pytest.raises(UsageError, match="No set of this mix is called 'ALLNLY'") as caught:
        made.attach_user_data(())
    assert "ALLNLI" in str(caught.value.hint)
    with pytest.raises(UsageError, match="Of the training data some has the name of a set"):
        made.attach_user_data(("ALLNLI=a.jsonl", "b.jsonl"))
    small = RECIPE.open("", replace(SETTINGS, sets=("QQP",), batch_size=32))
    assert isinstance(small, MixRecipe)
    with pytest.raises(UsageError, match="A group of QQP has 32 // 50 = 0 rows") as caught:
        small.attach_user_data(())
    assert "batch_size=50" in str(caught.value.hint)


def test_own_data_that_would_not_be_trained_on_is_refused() -> None:
    made = RECIPE.open("", replace(SETTINGS, sets=("ALLNLI",)))
    assert isinstance(made, MixRecipe)
    with pytest.raises(UsageError, match="--train-data gives MINE, which sets leaves out") as caught:
        made.attach_user_data(("MINE=mine.jsonl",))
    assert "--set sets=ALLNLI,MINE" in str(caught.value.hint)
    with pytest.raises(UsageError, match="--train-data MINE= names no data"):
        made.attach_user_data(("MINE=",))


def test_a_group_of_own_rows_without_a_row_is_refused_when_planned(
    backbone: Artifact, data: tuple[LocatedTraining, ...]
) -> None:
    for one in (0, 1):
        name = (*SETS,)[one]
        made = RECIPE.open("", replace(SETTINGS, sets=(name,), batch_size=1))
        assert isinstance(made, MixRecipe)
        alone = made.attach_user_data((OWN[one],))
        with pytest.raises(UsageError, match=rf"A group of {name} has 1 // \d = 0 rows"):
            alone.plan(backbone, data[one : one + 1], seed=7)


def test_words_on_the_data_name_the_recipe_s_own_beside_a_user_s(
    backbone: Artifact, data: tuple[LocatedTraining, ...]
) -> None:
    alone = recipe().plan(backbone, data, seed=7).lineage
    assert alone.beside_own_data == "not on the recipe's data"
    made = RECIPE.open("", replace(SETTINGS, sets=("GITHUBISSUE", "A")))
    assert isinstance(made, MixRecipe)
    hub = replace(data[2], own=False)
    mixed = made.attach_user_data(OWN[:1]).plan(backbone, (hub, data[0]), seed=7).lineage
    assert mixed.beside_own_data == "and of the recipe's data on GITHUBISSUE"


def test_own_data_replaces_a_set_adds_one_or_is_the_whole_mix() -> None:
    made = RECIPE.open("", replace(RECIPE.settings[""], sets=()))
    assert isinstance(made, MixRecipe)
    replaced = made.attach_user_data(("QQP=mine.jsonl", "MINE=other.jsonl"))
    assert len(replaced.sets) == len(made.sets) + 1
    found = {one.name: one for one in replaced.sets}
    assert found["QQP"].parts == ("mine.jsonl",)
    assert found["QQP"].instruction.startswith("Given a question, retrieve questions from Quora")
    assert found["MINE"].parts == ("other.jsonl",)
    alone = made.attach_user_data(("a.jsonl", "code:src"))
    assert [one.parts for one in alone.sets] == [("a.jsonl",), ("code:src",)]


def test_a_set_with_fewer_rows_than_its_batch_is_refused(
    make: Callable[..., TrainingSpec], backbone: Artifact, data: tuple[LocatedTraining, ...]
) -> None:
    large = {"batch_size": 128, "groups": 1}
    with pytest.raises(HarnessError, match="A has 40 rows, and a batch of it has 64"):
        recipe(**large).plan(backbone, data, seed=7)
    unknown = tuple(replace(one, rows=None) for one in data)
    spec = make(settings=large, data=unknown)
    with pytest.raises(HarnessError, match=r"(A|B) has \d+ rows, and a batch of it has \d+"):
        spec.recipe.train(spec)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"training": {"QQQ": "x"}}, "No set of this mix is called 'QQQ'"),
        ({"evaluation": {"SciFakt": "x"}}, "No task or type of tasks is called 'SciFakt'"),
        ({"evaluation": {"SciFact": {"query": "x"}}}, "the instruction of SciFact is not text"),
        ({"trainig": {}}, "has a table 'trainig'; there are training and evaluation"),
        ("[]", "has no tables training and evaluation"),
        ("{", "cannot be read"),
    ],
)
def test_a_file_of_instructions_that_fits_nothing_is_refused(tmp_path: Path, content: Any, said: str) -> None:
    from harness.plan import catalog

    file = tmp_path / "own.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))

    def opened() -> None:
        made: Any = catalog.open_recipe("unified-contrastive", {"instruction_file": str(file)})
        made.attach_user_data(())

    with pytest.raises(UsageError, match=said):
        opened()


def test_own_instructions_are_those_of_training_and_of_evaluation(tmp_path: Path, backbone: Artifact) -> None:
    from harness.plan import catalog

    file = tmp_path / "own.toml"
    file.write_text(
        '[training]\nALLNLI = "Mine."\n[evaluation]\nSTS = "Alike."\n'
        'SciFact = {query = "Claim.", document = "Abstract."}\n'
    )
    made: Any = catalog.open_recipe("unified-contrastive", {"instruction_file": str(file), "sets": "ALLNLI"})
    made = made.attach_user_data(())
    assert [one.instruction for one in made.sets] == ["Mine."]
    prompts = made._build_prompts(InstructionFormat.read_instruction_format(backbone.folder))
    assert prompts["STS"] == "Alike.[SEP] [CLS]"
    assert prompts["SciFact-document"] == "Abstract.[SEP] [CLS]"
    moved = tmp_path / "moved.toml"
    moved.write_text(file.read_text())
    again: Any = catalog.open_recipe(
        "unified-contrastive", {"instruction_file": str(moved), "sets": "ALLNLI"}
    )
    assert again.settings == made.settings, "what a file says counts, not where it lies"


def planned(backbone: Artifact, own: list[LocatedTraining], names: list[str], **settings: Any) -> Lineage:
    """The lineage of a training on the recipe's sets and one's own, whose data is given."""
    entry, rest = RECIPE, iter(own)
    made = entry.open("", replace(entry.settings[""], **settings))
    assert isinstance(made, MixRecipe)
    made = made.attach_user_data(names)
    data = [
        next(rest) if isinstance(part, str) else LocatedTraining(data=part, name=part.path)
        for part in made.list_data_parts()
    ]
    return made.plan(backbone, data, seed=7).lineage


def test_the_key_follows_from_the_mix_and_from_no_name_path_or_order(
    backbone: Artifact, data: tuple[LocatedTraining, ...]
) -> None:
    made = RECIPE.open("", RECIPE.settings[""])
    assert isinstance(made, MixRecipe)
    names = tuple(one.name for one in made.sets)
    whole, two = planned(backbone, [], []), planned(backbone, [], [], sets=names[:2])
    assert planned(backbone, [], [], sets=names[::-1], chunk=7).key == whole.key
    assert planned(backbone, [], [], sets=names[1::-1]).key == two.key != whole.key
    one, typed = [data[0]], [("rows", ""), ("./rows", ""), ("A=rows", "A"), ("Z=rows", "Z")]
    keys = {
        planned(backbone, one, [text], batch_size=8, sets=(name,) if name else ()).key for text, name in typed
    }
    assert len(keys) == 1, "neither the name of own data nor its path changes a result"


def test_a_lineage_says_in_a_few_words_what_was_changed(tmp_path: Path, backbone: Artifact) -> None:
    file = tmp_path / "own.json"
    file.write_text(json.dumps({"training": {"QQP": "Do."}, "evaluation": {"STS": "Find."}}))
    changes = {"instruction_file": str(file), "sets": "QQP"}
    changed = replace_settings(RECIPE.settings[""], changes, of="mix")
    own = changed.instruction_file  # type: ignore[attr-defined]
    found = planned(backbone, [], [], instruction_file=own, sets=("QQP",))
    assert found.text == "unified-contrastive, instruction_file=QQP, STS, sets=QQP"
    assert found.key != planned(backbone, [], [], sets=("QQP",)).key


def test_lists_are_read_before_their_rows_are_found_too_few(
    backbone: Artifact, data: tuple[LocatedTraining, ...]
) -> None:
    """A plan does not know how many negatives a row of B has."""
    made, one = recipe(batch_size=120, sets=("B",)), data[1:2]
    assert made.plan(backbone, one, seed=7).steps == 12
    assert recipe(batch_size=8, sets=("B",), max_steps=None).plan(backbone, one, seed=7).steps is None


def test_settings_without_effect_make_no_other_model(
    backbone: Artifact, data: tuple[LocatedTraining, ...]
) -> None:
    def key(**settings: Any) -> str:
        return recipe(**settings).plan(backbone, data, seed=7).lineage.key

    assert key() == key(epochs=5) == key(chunk=0)
    assert key() != key(max_steps=13)
    made = recipe(instructions="none")
    other = replace(made, own=tuple(replace(one, instruction="Other.") for one in made.own))
    assert len({one.plan(backbone, data, seed=7).lineage.key for one in (made, other)}) == 1


def test_rows_of_a_batch_are_read_from_their_set(data: tuple[LocatedTraining, ...], tmp_path: Path) -> None:
    rows = MixRows([load_rows(one, cache=tmp_path) for one in data])
    assert len(rows) == 155
    ((number, row),) = rows.__getitems__([41])
    assert (number, row.query, row.negatives) == (1, sentence(1001), (sentence(1201), sentence(1202)))


def test_epochs_choose_the_steps_where_there_is_no_number(
    backbone: Artifact, data: tuple[LocatedTraining, ...]
) -> None:
    settings = {"max_steps": None, "epochs": 2, "alpha": 1.0, "groups": 1}
    made = recipe(**settings)
    known = replace(made, own=tuple(replace(one, divisor=3 if one.name == "B" else 2) for one in made.own))
    planned = known.plan(backbone, data, seed=7)
    sizes = {"A": 8 // 2, "B": 8 // 3, "C": 8 // 2}
    each = sum(how[0] / 155 * sizes[name] for name, how in SETS.items())
    assert planned.steps == round(2 * 155 / each)
    assert math.isclose(sum(how[0] for how in SETS.values()), 155)


def test_a_set_has_the_divisor_of_its_texts_where_none_is_given(
    make: Callable[..., TrainingSpec], data: tuple[LocatedTraining, ...], tmp_path: Path
) -> None:
    setup = MixSetup(SETTINGS, [MixSet(name="B", own="B.parquet")], {})
    spec = make(data=data[1:2])
    order = setup.build_order(setup.load_training_rows(spec), spec)
    assert order.group(1) == 8 // 3, "a row has three texts on average"
