"""What holds of every family in the catalog, those of other distributions among them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import tiny
from blocked import BLOCKER
from harness.core.errors import ModelError
from harness.encoder import backbones
from harness.encoder.architecture import Family
from harness.encoder.folder.description import describe
from harness.encoder.network.model import load_network
from harness.encoder.network.pretrained import EncoderConfig
from tiny_networks import batch, texts

ENTRIES = {name: entry for name, entry in backbones.list_backbones().items() if entry.family is not None}
OURS = tiny.families()
SIZES = [(name, size) for name, entry in ENTRIES.items() for size in entry.family.sizes]  # type: ignore[union-attr]

DECODER = "head.decoder.weight"
POOLER = ("pooler.dense.weight", "pooler.dense.bias")


@pytest.fixture(params=ENTRIES)
def family(request: pytest.FixtureRequest) -> Family:
    found = ENTRIES[request.param].family
    assert found is not None
    return found


@pytest.fixture(params=OURS)
def ours(request: pytest.FixtureRequest) -> Family:
    """A family that runs through our network."""
    return OURS[request.param]


@pytest.fixture(scope="module")
def given() -> dict[str, Any]:
    """Texts of different lengths, padded."""
    return batch(texts((30, 2, 17, 1), 0), 0)


def test_the_catalog_has_families_of_both_kinds() -> None:
    assert OURS
    assert set(ENTRIES) - set(OURS)


@pytest.mark.parametrize("name", ENTRIES)
def test_it_says_what_it_is(name: str) -> None:
    assert ENTRIES[name].name == name
    assert len(ENTRIES[name].summary) > 10
    assert "\n" not in ENTRIES[name].summary


def test_listing_the_families_takes_no_library() -> None:
    code = f"{BLOCKER}\nfrom harness.encoder import backbones\nprint(*backbones.list_backbones())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == set(backbones.list_backbones())


def test_its_own_sizes_belong_to_it_and_to_no_other(family: Family) -> None:
    assert family.sizes
    for content in family.sizes.values():
        assert backbones.find_family(content) is family
        assert not family.holds({**content, "model_type": "another"})


@pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")  # DeBERTa in transformers
@pytest.mark.parametrize(("name", "size"), SIZES)
def test_a_size_builds_with_as_many_parameters_as_its_width_and_depth_promise(name: str, size: str) -> None:
    family = ENTRIES[name].family
    assert family is not None
    with torch.device("meta"):
        model, width, depth = _built(family, dict(family.sizes[size]))
    table = model.get_input_embeddings().weight.numel()
    blocks = sum(p.numel() for p in model.parameters()) - table
    assert 0.6 < blocks / (12 * depth * width**2) < 1.6


def _built(family: Family, content: dict[str, Any]) -> tuple[Any, int, int]:
    from transformers import CONFIG_MAPPING, AutoModel

    if family.shape is not None:
        shape = tiny.read_config(content, family)[1]
        return tiny.build(content, family), shape.hidden_size, shape.num_hidden_layers
    known = CONFIG_MAPPING[content["model_type"]].from_dict(content)
    return AutoModel.from_config(known), known.hidden_size, known.num_hidden_layers


def test_every_name_translates_both_ways(ours: Family) -> None:
    names = ours.names
    assert names is not None
    for head in (False, True):
        mine = list(tiny.network(ours, head=head).state_dict())
        theirs = [names.theirs(name, with_head=head) for name in mine]
        assert len(set(theirs)) == len(mine)
        assert [names.ours(name) for name in theirs] == [name.removeprefix("encoder.") for name in mine]
        assert not any(names.reason(name) for name in theirs)


@pytest.mark.parametrize("head", [False, True])
def test_a_checkpoint_loads_whole(ours: Family, tmp_path: Path, given: dict[str, Any], head: bool) -> None:
    folder = tiny.folder(ours, tmp_path, head=True)
    loaded = load_network(folder, ours, dtype=torch.float32, head=head)
    same = tiny.network(ours, head=True)
    assert loaded.model.shape == same.shape
    assert (_out(loaded.model, given) - _out(same if head else same.encoder, given)).abs().max() <= 1e-6
    used = set(loaded.model.state_dict()) - ({DECODER} if same.shape.tie_word_embeddings else set())
    held = set(load_file(folder / "model.safetensors"))
    assert set(loaded.ignored) < held
    assert len(used) + len(loaded.ignored) == len(held)
    assert bool(loaded.ignored) is not head
    assert all("head" in reason for reason in loaded.ignored.values())


@pytest.mark.parametrize("head", [False, True])
def test_a_missing_tensor_is_named_as_the_file_would_have_it(
    ours: Family, tmp_path: Path, head: bool
) -> None:
    folder = tiny.folder(ours, tmp_path, head=head)
    tensors = load_file(folder / "model.safetensors")
    for name in sorted(tensors)[:: max(1, len(tensors) // 5)]:
        if name.endswith(POOLER):
            continue
        save_file({n: t for n, t in tensors.items() if n != name}, folder / "model.safetensors")
        with pytest.raises(
            ModelError, match=r"1 tensors (that its vectors depend on|of the masked-language head) "
        ) as error:
            load_network(folder, ours, dtype=torch.float32, head=head)
        assert f": {name}." in str(error.value)


def test_a_tensor_that_nothing_accounts_for_is_named(ours: Family, tmp_path: Path) -> None:
    _edit(tiny.folder(ours, tmp_path), lambda t: t.update({"layers.99.surprise": torch.zeros(1)}))
    with pytest.raises(ModelError, match=r"1 tensors have no place in the model: layers\.99\.surprise\."):
        load_network(tmp_path, ours, dtype=torch.float32)


def test_a_layer_that_the_config_has_not_is_named(ours: Family, tmp_path: Path) -> None:
    assert ours.names is not None
    first = ours.names.theirs("layers.0.attention.out.weight", with_head=False)
    more = first.replace("0", "3")
    _edit(tiny.folder(ours, tmp_path), lambda t: t.update({more: t[first].clone()}))
    with pytest.raises(ModelError) as error:
        load_network(tmp_path, ours, dtype=torch.float32)
    assert f"1 tensors have no place in the model: {more}." in str(error.value)


def test_a_tensor_of_another_shape_is_named_with_both(ours: Family, tmp_path: Path) -> None:
    assert ours.names is not None
    name = ours.names.theirs("layers.1.mlp.down.weight", with_head=True)
    _edit(tiny.folder(ours, tmp_path, head=True), lambda t: t.update({name: torch.zeros(3, 5)}))
    with pytest.raises(ModelError) as error:
        load_network(tmp_path, ours, dtype=torch.float32)
    assert f"1 tensors have another shape: {name} ((3, 5) in the file, " in str(error.value)


def test_no_vector_needs_the_pooler(ours: Family, tmp_path: Path, given: dict[str, Any]) -> None:
    folder = tiny.folder(ours, tmp_path)
    whole = load_network(folder, ours, dtype=torch.float32).model

    def drop(tensors: dict[str, Tensor]) -> None:
        for name in [n for n in tensors if n.endswith(POOLER)]:
            del tensors[name]

    _edit(folder, drop)
    found = load_network(folder, ours, dtype=torch.float32)
    assert found.model.shape.pooler is False
    assert _out(found.model, given).equal(_out(whole, given))


def test_a_head_may_stand_beside_a_pooler(ours: Family, tmp_path: Path, given: dict[str, Any]) -> None:
    """As in the checkpoints of BERT's pretraining."""
    network = tiny.network(ours, head=True)
    folder = tiny.folder(ours, tmp_path, head=True)
    found = load_network(folder, ours, dtype=torch.float32, head=True).model
    assert found.shape.pooler == network.shape.pooler
    assert _out(found, given).equal(_out(network, given))


@pytest.mark.parametrize("head", [False, True])
def test_a_decoder_that_should_be_the_token_embedding_is_compared_with_it(
    ours: Family, tmp_path: Path, head: bool
) -> None:
    assert ours.names is not None
    folder = tiny.folder(ours, tmp_path, head=True)
    decoder = ours.names.theirs(DECODER, with_head=True)
    table = ours.names.theirs("encoder.embeddings.tokens.weight", with_head=True)
    _edit(folder, lambda t: t.update({decoder: t[table].clone()}))
    same = load_network(folder, ours, dtype=torch.float32, head=head).model
    _edit(folder, lambda t: t[decoder].add_(1))
    if head and same.shape.tie_word_embeddings:
        with pytest.raises(
            ModelError, match="should be the token embedding, as the config says, and are not"
        ):
            load_network(folder, ours, dtype=torch.float32, head=True)
    else:
        load_network(folder, ours, dtype=torch.float32, head=head)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, given: dict[str, Any]) -> dict[tuple[str, bool], Path]:
    """Every family loaded and saved again, without and with the head, beside the vectors it gave."""
    folders = {}
    for name, family in OURS.items():
        for head in (False, True):
            root = tmp_path_factory.mktemp(name)
            model = load_network(
                tiny.folder(family, root / "published", head=head), family, dtype=torch.float32, head=head
            ).model
            model.save_pretrained(root / "saved")
            torch.save(_out(model, given), root / "saved" / "vectors.pt")
            folders[name, head] = root / "saved"
    return folders


READ = """
import sys, json, torch
from transformers import AutoModel, AutoModelForMaskedLM
given, folders = torch.load(sys.argv[1]), json.loads(sys.argv[2])
for folder, head in folders:
    model = (AutoModelForMaskedLM if head else AutoModel).from_pretrained(folder)
    with torch.no_grad():
        out = model.eval()(**given)
    torch.save(out.logits if head else out.last_hidden_state, folder + "/again.pt")
    print(type(model).__module__.split(".")[0])
assert ("harness" in sys.modules) == (READER == "harness")
"""


@pytest.fixture(scope="module", params=["transformers", "harness"])
def reader(
    request: pytest.FixtureRequest,
    saved: dict[tuple[str, bool], Path],
    given: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[str, dict[tuple[str, bool], str]]:
    """A fresh process that reads what its classes can: who it is, and whose class each folder got."""
    native = request.param == "transformers"
    chosen = {key: path for key, path in saved.items() if OURS[key[0]].native is native}
    path = tmp_path_factory.mktemp("given") / "given.pt"
    torch.save(given, path)
    start = f"READER = {request.param!r}\nimport {request.param}\n"
    start += "" if native else "harness.register()\n"
    folders = json.dumps([(str(path), head) for (_, head), path in chosen.items()])
    done = subprocess.run(
        [sys.executable, "-c", start + READ, str(path), folders], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return request.param, dict(zip(chosen, done.stdout.split(), strict=True))


@pytest.mark.slow
def test_what_was_saved_loads_in_a_fresh_process_to_the_same_vectors(
    reader: tuple[str, dict[tuple[str, bool], str]],
    saved: dict[tuple[str, bool], Path],
    given: dict[str, Any],
) -> None:
    """Families that transformers knows need nothing but transformers, the others `harness.register()`."""
    who, classes = reader
    assert classes
    for key, module in classes.items():
        before, again = (torch.load(saved[key] / f"{name}.pt") for name in ("vectors", "again"))
        assert module == who, key
        off = (before - again)[given["attention_mask"].bool()].abs().max()
        assert off <= 1e-5 * before.abs().max(), key


def test_what_was_saved_loads_through_us_again(
    saved: dict[tuple[str, bool], Path], given: dict[str, Any]
) -> None:
    for (name, head), folder in saved.items():
        config = json.loads((folder / "config.json").read_text())
        family = OURS[name] if OURS[name].native else None
        assert config["model_type"] in (OURS[name].model_types if family else [EncoderConfig.model_type])
        again = load_network(folder, family, dtype=torch.float32, head=head)
        assert again.ignored == {}
        assert _out(again.model, given).equal(torch.load(folder / "vectors.pt")), name


def _out(model: Any, given: dict[str, Any]) -> Tensor:
    with torch.no_grad():
        found = model(**given)
    out: Tensor = found.logits if "logits" in found else found.last_hidden_state
    return out


def _edit(folder: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize("name", [name for name, family in OURS.items() if not family.native])
def test_a_config_that_makes_no_network_is_a_clear_error(name: str, tmp_path: Path) -> None:
    """Also where only the length is asked for, before anything is loaded."""
    content = tiny.config(OURS[name])
    width = next(key for key in ("hidden_size", "n_embd", "dim") if key in content)
    depth = next(key for key in ("num_hidden_layers", "n_layers", "n_layer") if key in content)
    folder = tiny.folder(OURS[name], tmp_path)
    cases = {
        f"has a value that cannot be used|has {width} = 'wide'": {**content, width: "wide"},
        f"has no '{depth}'": {key: value for key, value in content.items() if key != depth},
    }
    for message, changed in cases.items():
        (folder / "config.json").write_text(json.dumps(changed))
        with pytest.raises(ModelError, match=message):
            load_network(folder, OURS[name], dtype=torch.float32)
        with pytest.raises(ModelError, match=message):
            describe(folder)


def test_a_config_its_test_cannot_read_is_of_no_family() -> None:
    def broken(config: Any) -> bool:
        return bool(config["rope_scaling"].get("factor"))

    assert not Family(model_types=("some",), only=broken).holds({"model_type": "some", "rope_scaling": "x"})
