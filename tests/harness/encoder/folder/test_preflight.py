"""What is known of a model before torch is imported, compared with torch and transformers.

Its own code runs where it was allowed and pinned, and is never skipped in silence.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

import fakes
import faulty
import tiny
from harness.core.encoding import Settings
from harness.core.errors import ModelError, UsageError
from harness.core.types import Artifact
from harness.encoder.backbones import read_library_types
from harness.encoder.engine import Encoder
from harness.encoder.folder.description import compute_folder_identity, describe
from harness.encoder.folder.preflight import check_folder
from harness.encoder.loading import load_encoder
from harness.encoder.resolved_encoding import resolve_encoding
from harness.plan.models import ModelOptions, resolve_model
from preflights import check_model

FAMILIES = tiny.families()


def check(folder: Path, *, pooling: str | None = None, trained: bool = False, **fields: Any) -> None:
    given = {"name": "tiny", "source": "tiny", "folder": folder, "key": "a" * 64, "weights": "w" * 64}
    encoding = resolve_encoding(describe(folder), Settings(pooling=pooling))
    check_model(Artifact(**{**given, **fields}), encoding, any_kind=pooling is not None or trained)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_tensors_of_an_architecture_are_those_of_its_network(name: str) -> None:
    model = tiny.network(FAMILIES[name])
    held = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    assert model.shape.tensors() == held
    assert FAMILIES[name].outline(tiny.config(FAMILIES[name])).tensors() == held


@pytest.mark.parametrize("head", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_whole_folder_has_no_fault(name: str, head: bool, tmp_path: Path) -> None:
    check(tiny.folder(FAMILIES[name], tmp_path, head=head))


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if not family.native])
def test_a_folder_in_our_own_form_has_no_fault(name: str, tmp_path: Path) -> None:
    folder = tiny.folder(FAMILIES[name], tmp_path / "published")
    tiny.network(FAMILIES[name]).save_pretrained(tmp_path / "own")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(folder / name, tmp_path / "own" / name)
    check(tmp_path / "own")
    faulty.rewrite(tmp_path / "own" / "config.json", architecture=None)
    with pytest.raises(ModelError, match="has no architecture"):
        check(tmp_path / "own")


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.native])
def test_defaults_are_those_of_transformers(name: str) -> None:
    from transformers import CONFIG_MAPPING

    family = FAMILIES[name]
    theirs = CONFIG_MAPPING[family.model_types[0]]().to_dict()
    ours = {field: value for field, value in family.defaults.items() if field != "layer_types"}
    assert ours == {field: theirs[field] for field in ours}


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.native])
def test_a_config_that_transformers_wrote_has_no_fault(name: str, tmp_path: Path) -> None:
    from transformers import CONFIG_MAPPING, AutoModel

    family = FAMILIES[name]
    made: Any = CONFIG_MAPPING[family.model_types[0]].from_dict(tiny.config(family))
    AutoModel.from_config(made).save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    check(tmp_path)


def test_a_name_that_transformers_alone_reads_is_read_by_it(tmp_path: Path) -> None:
    """DistilBERT's class also takes BERT's names for its fields; only transformers knows that."""
    folder = tiny.folder(FAMILIES["distilbert"], tmp_path)
    content = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**content, "hidden_size": content["dim"], "dim": None}))
    faulty.rewrite(folder / "config.json", dim=None)
    check(folder)


def test_the_types_of_transformers_are_read_from_its_source() -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    assert read_library_types() == set(CONFIG_MAPPING_NAMES)


def test_a_table_of_another_size_is_found_where_transformers_runs_the_model(copy: Path) -> None:
    changes = {"model_type": "electra", "architectures": ["ElectraModel"], "embedding_size": 32}
    faulty.rewrite(copy / "config.json", **changes, vocab_size=999)
    with pytest.raises(ModelError, match=r"\(119, 32\) in the file, \(999, 32\) in the model"):
        check(copy)


def test_tensors_in_a_pickle_are_known_without_torch(copy: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    from fakes import Evil
    from harness.encoder.folder.files import read_tensor_headers

    held = load_file(copy / "model.safetensors")
    before = read_tensor_headers([copy / "model.safetensors"]) or {}
    (copy / "model.safetensors").unlink()
    path = copy / "pytorch_model.bin"
    module = torch.nn.Module()  # a state dict has an attribute with its versions
    module.register_parameter("bias", torch.nn.Parameter(held["pooler.dense.bias"]))
    state = module.state_dict()
    state.update({name: tensor for name, tensor in held.items() if name != "pooler.dense.bias"})
    state["pooler.dense.bias"] = state.pop("bias")
    torch.save(state, path)
    found = read_tensor_headers([path]) or {}
    assert {n: (t.dtype, t.shape) for n, t in found.items()} == {
        n: (t.dtype, t.shape) for n, t in before.items()
    }
    check(copy)
    torch.save({name: tensor for name, tensor in held.items() if "query" not in name}, path)
    with pytest.raises(ModelError, match="4 tensors that its vectors depend on are in no file"):
        check(copy)
    torch.save({"weight": Evil(tmp_path / "trace")}, path)
    with pytest.raises(ModelError, match="the pickle contains code"):
        check(copy)
    assert not (tmp_path / "trace").exists()


def test_what_no_modules_json_names_is_refused(
    copy: Path, build: Callable[..., Path], tmp_path: Path
) -> None:
    check(copy)
    for name in ("config_sentence_transformers.json", "1_Pooling/config.json"):
        bare = Path(shutil.copytree(copy, tmp_path / name.partition("/")[0]))
        (bare / name).parent.mkdir(exist_ok=True)
        (bare / name).write_text("{}")
        with pytest.raises(ModelError, match=f"has {name}, which no modules.json names"):
            check(bare)
        check(bare, pooling="mean")
        check(bare, allow=("unnamed-modules",))
    whole = build(dense=True)
    check(whole)
    modules = json.loads((whole / "modules.json").read_text())
    (whole / "modules.json").write_text(json.dumps(modules[:2]))
    with pytest.raises(ModelError, match=r"has 2_Dense/config\.json, which modules\.json does not name"):
        check(whole)


OLD_CARD = """## Full Model Architecture
```
SentenceTransformer(
  (0): Transformer({{'max_seq_length': 32, 'do_lower_case': False}}) with Transformer model: BertModel
  (1): Pooling({{'word_embedding_dimension': 32, 'pooling_mode_cls_token': {cls}, \
'pooling_mode_mean_tokens': {mean}, 'pooling_mode_max_tokens': False}})
{more})
```
"""
NEW_CARD = """SentenceTransformer(
  (0): Transformer({{'transformer_task': 'feature-extraction', 'modality_config': {{'text': {{'method': \
'forward', 'method_output_name': 'last_hidden_state'}}}}, 'architecture': 'BertModel'}})
  (1): Pooling({{'embedding_dimension': 32, 'pooling_mode': '{pooling}', 'include_prompt': True}})
{more})
"""


@pytest.fixture
def carded(build: Callable[..., Path], tmp_path: Path) -> Path:
    """A folder with a Dense and a Normalize, and with the card that sentence-transformers has written."""
    from sentence_transformers import SentenceTransformer

    folder = tmp_path / "carded"
    SentenceTransformer(str(build(dense=True, normalize=True)), device="cpu").save_pretrained(str(folder))
    return folder


def drop_modules(folder: Path, *numbers: int) -> None:
    path = folder / "modules.json"
    modules = [module for module in json.loads(path.read_text()) if module["idx"] not in numbers]
    path.write_text(json.dumps(modules))
    for number in numbers:
        shutil.rmtree(next(folder.glob(f"{number}_*")))


def check_files(folder: Path, **fields: Any) -> None:
    given = {"name": "tiny", "source": "tiny", "folder": folder, "key": "a" * 64, "weights": "w" * 64}
    check_folder(Artifact(**{**given, **fields}), resolve_encoding(describe(folder), Settings()))


def edit_card(folder: Path, old: str, new: str) -> None:
    text = (folder / "README.md").read_text()
    assert old in text
    (folder / "README.md").write_text(text.replace(old, new))


def test_modules_that_the_card_shows_and_modules_json_lost(
    carded: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    check_files(carded)
    for numbers in ((2,), (3,), (2, 3)):
        folder = Path(shutil.copytree(carded, tmp_path / f"without{numbers}"))
        drop_modules(folder, *numbers)
        check_files(folder, allow=("model-card",))
        assert not caplog.records
        check_files(folder)
        assert "shows the modules Transformer, Pooling, Dense, Normalize, and" in caplog.text
        caplog.clear()
        (folder / "README.md").unlink()
        check_files(folder)
        assert not caplog.records
    # The one order is the card's, the other that of modules.json.
    modules = json.loads((carded / "modules.json").read_text())
    (carded / "modules.json").write_text(json.dumps([*modules[:2], modules[3], modules[2]]))
    check_files(carded)
    assert "modules.json has Transformer, Pooling, Normalize, Dense" in caplog.text


def test_a_pooling_that_the_card_shows_otherwise(carded: Path, caplog: pytest.LogCaptureFixture) -> None:
    cls = {"word_embedding_dimension": 32, "pooling_mode": "cls"}
    (carded / "1_Pooling/config.json").write_text(json.dumps(cls))
    check_files(carded)
    assert "shows the pooling mean, and the model's files have cls" in caplog.text


@pytest.mark.parametrize("change", ["version", "backbone", "width", "second", "shortened", "broken", "none"])
def test_the_card_of_another_model_counts_for_nothing(
    change: str, carded: Path, caplog: pytest.LogCaptureFixture
) -> None:
    drop_modules(carded, 3)
    text = (carded / "README.md").read_text()
    if change == "version":
        faulty.rewrite(
            carded / "config_sentence_transformers.json", __version__={"sentence_transformers": "2.7.0"}
        )
    elif change == "backbone":
        edit_card(carded, "'architecture': 'BertModel'", "'architecture': 'MPNetModel'")
    elif change == "width":
        edit_card(carded, "embedding_dimension': 32", "embedding_dimension': 768")
    elif change == "second":
        (carded / "README.md").write_text(f"{text}\n{OLD_CARD.format(cls=True, mean=False, more='')}")
    elif change == "shortened":
        edit_card(carded, "(0): Transformer({", "(0): Transformer({..., ")
    elif change == "broken":
        (carded / "README.md").write_bytes(b"\xff\xfe" + text.encode())
    else:
        (carded / "README.md").write_text("# A model\n")
    check_files(carded)
    assert not caplog.records


@pytest.mark.parametrize("change", ["length", "module"])
def test_what_may_have_been_changed_after_the_card_is_noted(
    change: str, carded: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if change == "length":
        # The library prints no length since 5.4. That of an older one stands behind this one, and counts.
        edit_card(carded, "(0): Transformer({", "(0): Transformer({'max_seq_length': 32, ")
        faulty.rewrite(carded / "sentence_bert_config.json", max_seq_length=16)
        drop_modules(carded, 3)
        what = "a length of 32 tokens, and the model's files have 16"
    else:
        (normalize,) = re.findall(r"  \(3\): Normalize\(.*\n", (carded / "README.md").read_text())
        edit_card(carded, normalize, "")
        what = "and modules.json has Transformer, Pooling, Dense, Normalize"
    check_files(carded)
    assert what in caplog.text
    check_files(carded, allow=("model-card",))
    assert len(caplog.records) == 1


@pytest.mark.parametrize("more", ["", "  (2): Normalize()\n"])
def test_cards_of_other_versions(
    more: str, build: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    folder = build(normalize=bool(more))
    for right, wrong in (
        (OLD_CARD.format(cls=False, mean=True, more=more), OLD_CARD.format(cls=True, mean=False, more=more)),
        (NEW_CARD.format(pooling="mean", more=more), NEW_CARD.format(pooling="cls", more=more)),
    ):
        (folder / "README.md").write_text(right)
        check_files(folder)
        assert not caplog.records
        (folder / "README.md").write_text(wrong)
        check_files(folder)
        assert "shows the pooling cls, and the model's files have mean" in caplog.text
        caplog.clear()
    (folder / "README.md").write_text(OLD_CARD.format(cls=False, mean=True, more=f"{more}  (3): Dense()\n"))
    check_files(folder)
    assert re.search(r"shows the modules Transformer, Pooling, .*Dense, and", caplog.text)


def test_a_download_that_stopped_is_refused(copy: Path) -> None:
    records = copy / ".cache/huggingface/download"
    (records / "1_Pooling").mkdir(parents=True)
    for name in ("config.json.metadata", "config.json.lock", "onnx.md.metadata", "vocab.txt.lock"):
        (records / name).touch()
    check(copy)
    (records / "1_Pooling/config.json.metadata").touch()
    with pytest.raises(ModelError, match=r"download of 1_Pooling/config\.json stopped, or the file is gone"):
        check(copy)
    (records / "1_Pooling/config.json.metadata").unlink()
    (records / "x9=.ab.incomplete").touch()
    with pytest.raises(ModelError, match=r"download of \.cache/huggingface/download/x9=\.ab\.incomplete"):
        check(copy)


@pytest.mark.parametrize("others", [True, False])
def test_a_tensor_in_a_part_where_the_index_does_not_have_it(copy: Path, others: bool) -> None:
    tensors = load_file(copy / "model.safetensors")
    (copy / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {"model-1-of-2.safetensors": names[:9], "model-2-of-2.safetensors": names[9:]}
    index = {"weight_map": {name: part for part, held in parts.items() for name in held}}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    for number, (part, held) in enumerate(parts.items()):
        again = {names[0]: tensors[names[0]] + others} if number else {}
        save_file({**{name: tensors[name] for name in held}, **again}, copy / part, {"format": "pt"})
    if not others:
        check(copy)
        return
    with pytest.raises(ModelError, match=f"holds {names[0]} twice, with other numbers in model-2-of-2"):
        check(copy)


HEADS = ("cross-encoder", "classifier", "classifier of tokens", "reader", "ColBERT")


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("named", [True, False])
def test_the_encoder_in_another_model_is_evaluated_if_asked(kind: str, named: bool, tmp_path: Path) -> None:
    folder = faulty.spoiled(tiny.folder(FAMILIES["bert"], tmp_path / "whole"), tmp_path / "spoiled", kind)
    if not named:
        faulty.rewrite(folder / "config.json", architectures=None)
    with pytest.raises(UsageError, match="not an embedding model"):
        check(folder)
    check(folder, pooling="mean")
    check(folder, trained=True)


def test_cross_encoders_are_known_as_the_library_saves_them(copy: Path, tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder

    faulty.rewrite(copy / "config.json", architectures=["BertForSequenceClassification"])
    CrossEncoder(str(copy), num_labels=1, device="cpu").save_pretrained(str(tmp_path / "made"))
    with pytest.raises(UsageError, match=r"is a (cross-encoder|CrossEncoder)"):
        check(tmp_path / "made")


@pytest.mark.parametrize("size", ["20KB", "60KB"])
def test_a_sharded_copy_has_the_key_of_the_whole(copy: Path, tmp_path: Path, size: str) -> None:
    from transformers import BertModel

    model = BertModel.from_pretrained(copy)
    folders = [Path(shutil.copytree(copy, tmp_path / name)) for name in ("whole", "parts")]
    for folder, largest in zip(folders, ("5GB", size), strict=True):
        (folder / "model.safetensors").unlink()
        model.save_pretrained(folder, max_shard_size=largest)
    assert len(list(folders[1].glob("*.safetensors"))) > 1
    first, second = (compute_folder_identity(folder, tmp_path / "cache") for folder in folders)
    assert first == second
    assert compute_folder_identity(folders[1], tmp_path / "cache") == second
    part = sorted(folders[1].glob("*.safetensors"))[0]
    part.write_bytes(part.read_bytes()[:-1] + bytes([part.read_bytes()[-1] ^ 1]))
    assert compute_folder_identity(folders[1], tmp_path / "cache").key != second[0]


def test_tensors_of_every_type_have_the_order_of_the_library(tmp_path: Path, copy: Path) -> None:
    import torch
    from safetensors.torch import save_file

    kinds = ("int64", "float64", "float32", "bfloat16", "float16", "int16", "float8_e4m3fn", "uint8", "bool")
    held = {f"{at % 4}.{kind}": torch.ones(3).to(getattr(torch, kind)) for at, kind in enumerate(kinds)}
    save_file(held, copy / "model.safetensors", metadata={"format": "pt"})
    parts = Path(shutil.copytree(copy, tmp_path / "parts"))
    (parts / "model.safetensors").unlink()
    names = sorted(held)
    for number, some in enumerate((names[::2], names[1::2])):
        file = f"part-{number}.safetensors"
        save_file({name: held[name] for name in some}, parts / file, metadata={"format": "pt"})
    index = {name: f"part-{at % 2}.safetensors" for at, name in enumerate(names)}
    (parts / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    assert compute_folder_identity(parts) == compute_folder_identity(copy)


def test_the_norm_of_mosaicberts_head_has_the_authors_eps(tmp_path: Path) -> None:
    """The authors' BertPredictionHeadTransform has `eps=1e-12` where all other norms take the config's."""
    model: Any = tiny.network(FAMILIES["mosaicbert"], head=True, layer_norm_eps=1e-3)
    assert (model.head.norm.eps, model.encoder.embeddings.norm.eps) == (1e-12, 1e-3)
    model.save_pretrained(tmp_path)
    again: Any = type(model)(type(model.config).from_pretrained(tmp_path))
    assert again.head.norm.eps == 1e-12
    tiny.network(FAMILIES["nomic_bert"], head=True).save_pretrained(tmp_path / "other")
    other = json.loads((tmp_path / "other" / "config.json").read_text())
    assert "norm_eps" not in other["architecture"]["head"]


def test_a_recipe_notes_the_head_that_it_replaces(tmp_path: Path) -> None:
    from finetune.glue.model import Classifier
    from harness.plan import catalog

    whole = tiny.folder(FAMILIES["bert"], tmp_path / "whole")
    folder = faulty.spoiled(whole, tmp_path / "spoiled", "classifier")
    recipe: Any = catalog.open_recipe("glue-quick")
    trial = recipe.protocol.list_trials("RTE")[0]
    told = "not loaded: classifier.bias, classifier.weight (it belongs to the head of a task)"
    assert told in Classifier.load_classifier(folder, trial, classes=2)[1]
    assert told not in Classifier.load_classifier(whole, trial, classes=2)[1]


# Code of a model's own


Build = Callable[..., Path]
Rewrite = Callable[..., None]
Make = Callable[..., Artifact]

MODELING = """
import pathlib
pathlib.Path({trace!r}).write_text("run")
from transformers import BertModel
class Model(BertModel):
    def forward(self, *args, **kwargs):
        out = super().forward(*args, **kwargs)
        out["last_hidden_state"] = -out["last_hidden_state"]
        return out
"""

CUSTOM = """
import pathlib
pathlib.Path({trace!r}).write_text("run")
from sentence_transformers.models import Normalize as Module
"""


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that code leaves behind when it runs."""
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    return tmp_path / "trace"


@pytest.fixture
def native(bare: Path, tmp_path: Path, trace: Path, rewrite: Rewrite) -> Path:
    """A BERT that names a class of its own in the place of transformers' BertModel."""
    folder = Path(shutil.copytree(bare, tmp_path / "native"))
    rewrite(folder / "config.json", auto_map={"AutoModel": "modeling.Model"})
    (folder / "modeling.py").write_text(MODELING.format(trace=str(trace)))
    return folder


def run(make: Make, folder: Path, **fields: Any) -> Encoder:
    return load_encoder(make(folder, **fields), resolve_encoding(describe(folder), Settings()), device="cpu")


def test_a_class_of_its_own_is_not_passed_over(native: Path, trace: Path, artifact: Make) -> None:
    with pytest.raises(ModelError) as caught:
        run(artifact, native)
    assert "tiny names code of its own, modeling.Model as AutoModel" in str(caught.value)
    assert "transformers' bert would be evaluated in its place" in str(caught.value)
    assert "add --trust-remote-code." in str(caught.value)
    assert "take auto_map out of config.json" in str(caught.value)
    assert not trace.exists()


def test_a_class_of_its_own_runs_if_allowed(native: Path, trace: Path, artifact: Make, bare: Path) -> None:
    own = run(artifact, native, trust_remote_code=True).encode(["the cat"])
    assert trace.exists()
    assert own == pytest.approx(-run(artifact, bare).encode(["the cat"]), abs=1e-5)


def test_a_class_that_is_not_loaded_counts_for_nothing(
    bare: Path, tmp_path: Path, artifact: Make, rewrite: Rewrite
) -> None:
    folder = Path(shutil.copytree(bare, tmp_path / "copy"))
    rewrite(folder / "config.json", auto_map={"AutoModelForMaskedLM": "modeling.Model"})
    assert run(artifact, folder).dimension == 32
    assert compute_folder_identity(folder, trust_remote_code=True) == compute_folder_identity(folder)


@pytest.mark.parametrize("auto_map", [{"AutoTokenizer": [None, "own.Fast"]}, ["own.Slow", "own.Fast"]])
def test_a_tokenizer_of_its_own_is_not_passed_over(
    bare: Path, tmp_path: Path, artifact: Make, rewrite: Rewrite, auto_map: Any
) -> None:
    folder = Path(shutil.copytree(bare, tmp_path / "copy"))
    rewrite(folder / "tokenizer_config.json", auto_map=auto_map)
    with pytest.raises(ModelError, match=r"own\.\w+ as AutoTokenizer"):
        run(artifact, folder)


def test_the_key_says_whether_own_code_runs(native: Path, bare: Path) -> None:
    trusted = resolve_model(str(native), Settings(), ModelOptions(trust_remote_code=True)).artifact
    key, weights, _ = compute_folder_identity(native)
    assert trusted.key != key
    assert trusted.weights == weights
    assert compute_folder_identity(bare, trust_remote_code=True) == compute_folder_identity(bare)


def test_a_trained_model_run_with_its_own_code_is_another(native: Path) -> None:
    plain = compute_folder_identity(native, trust_remote_code=True).key
    made = fakes.train(native)
    assert compute_folder_identity(native).key == made.key
    assert compute_folder_identity(native, trust_remote_code=True).key not in (made.key, plain)


def inner_type(folder: Path, kind: str) -> None:
    """Name `kind` as the type of a module two Routers down."""
    path = folder / "query_0_Router" / "router_config.json"
    config = json.loads(path.read_text())
    config["types"]["query_1_Pooling"] = kind
    path.write_text(json.dumps(config))


@pytest.fixture
def nested(build: Build, router: Build) -> Path:
    return router(router(build("a"), build("b"), "inner"), build("c"), "outer")


def test_a_module_within_two_routers_is_not_run_unasked(
    nested: Path, trace: Path, artifact: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_module.py").write_text(CUSTOM.format(trace=str(trace)))
    inner_type(nested, "own_module.Module")
    with pytest.raises(ModelError, match=r"needs code of its own: its module own_module\.Module"):
        run(artifact, nested)
    assert not trace.exists()


def test_a_module_that_unpickles_is_refused(nested: Path, artifact: Make) -> None:
    inner_type(nested, "sklearn.utils.parallel.joblib")
    with pytest.raises(ModelError, match=r"needs code of its own: its module sklearn"):
        run(artifact, nested)


@pytest.mark.parametrize(
    "kind",
    ["sentence_transformers.models.Router.import_from_string", "sentence_transformers.util.misc.importlib"],
)
@pytest.mark.parametrize("trusted", [True, False])
def test_only_modules_of_the_library_are_the_librarys(
    build: Build, artifact: Make, kind: str, trusted: bool
) -> None:
    folder = build()
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["type"] = kind
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ModelError, match="which is no module of sentence-transformers"):
        run(artifact, folder, trust_remote_code=trusted)


def test_a_router_stays_within_the_model(nested: Path) -> None:
    path = nested / "router_config.json"
    for name in ("../elsewhere", ".", "/tmp"):
        path.write_text(json.dumps({"types": {name: "sentence_transformers.models.Router"}}))
        with pytest.raises(ModelError, match="names a folder outside of the model"):
            describe(nested)


@pytest.fixture
def words(tmp_path: Path) -> Path:
    import numpy as np
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, WordEmbeddings
    from sentence_transformers.models.tokenizer import WhitespaceTokenizer

    tokenizer = WhitespaceTokenizer(["cat", "dog", "mat"])
    modules = [WordEmbeddings(tokenizer, np.eye(3, 4, dtype=np.float32)), Pooling(4)]
    SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "words"))
    return tmp_path / "words"


def test_the_librarys_own_word_tokenizer_is_loaded(words: Path, artifact: Make) -> None:
    assert run(artifact, words).encode(["cat dog"]).tolist() == [[0.5, 0.5, 0, 0]]


def test_another_word_tokenizer_is_not_run_unasked(words: Path, artifact: Make, rewrite: Rewrite) -> None:
    rewrite(next(words.rglob("wordembedding_config.json")), tokenizer_class="own.Tokenizer")
    with pytest.raises(ModelError, match=r"needs code of its own: its module own\.Tokenizer"):
        run(artifact, words)


def test_a_module_of_another_repository_is_not_pinned(build: Build, artifact: Make) -> None:
    folder = build()
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["type"] = "org/other--custom.Pooling"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ModelError, match=r"its code \(a module\) from org/other, at no pinned commit"):
        run(artifact, folder, revision="a" * 40, trust_remote_code=True)


@pytest.mark.parametrize(
    "auto_map", [{"AutoTokenizer": [None, "org/other--own.Fast"]}, ["org/other--own.Slow"]]
)
def test_a_tokenizer_of_another_repository_is_not_pinned(
    build: Build, artifact: Make, rewrite: Rewrite, auto_map: Any
) -> None:
    folder = build()
    rewrite(folder / "tokenizer_config.json", auto_map=auto_map)
    with pytest.raises(ModelError) as caught:
        run(artifact, folder, revision="a" * 40, trust_remote_code=True)
    assert "takes its code (AutoTokenizer) from org/other, at no pinned commit" in str(caught.value)
    assert "name it there in tokenizer_config.json" in str(caught.value)
