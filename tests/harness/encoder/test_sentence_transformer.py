"""Every family's network as sentence-transformers, PyLate and peft train, run and save it."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packaging.version import Version
from transformers.integrations.peft import MIN_PEFT_VERSION

import tiny
from harness.core.errors import ModelError, UsageError
from harness.encoder.folder.description import describe
from harness.encoder.sentence_transformer import SentenceTransformer, Transformer

FAMILIES = tiny.families()
TEXTS = ["the cat sat on the mat", "a query: what sat?", "x", "the mat, the cat and 42 more words"]
PLAIN = """
import sys, numpy, sentence_transformers
{imported}
for folder in sys.argv[1:]:
    model = sentence_transformers.SentenceTransformer(folder, device="cpu")
    print(type(model[0].auto_model).__module__)
    numpy.save(folder + "/vectors.npy", model.encode({texts!r}))
"""

NEEDS_PEFT = pytest.mark.skipif(
    Version(version("peft")) < Version(MIN_PEFT_VERSION),
    reason=f"transformers asks for peft {MIN_PEFT_VERSION}",
)


@pytest.fixture(params=sorted(FAMILIES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(name: str, tmp_path: Path) -> Path:
    return tiny.folder(FAMILIES[name], tmp_path / "published")


def weights(model: Any) -> dict[str, Any]:
    return {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad}


def changed(before: dict[str, Any], model: Any) -> set[str]:
    after = dict(model.named_parameters())
    return {n for n, value in before.items() if not value.equal(after[n])}


def train_one_step(model: Any, loss: Any, columns: dict[str, list[str]], target: Path, **more: Any) -> None:
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(target),
        max_steps=1,
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        save_strategy="steps",
        save_steps=1,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    data = Dataset.from_dict(columns)
    SentenceTransformerTrainer(model=model, args=arguments, train_dataset=data, loss=loss, **more).train()


def elsewhere(folders: list[Path], *, imported: str) -> list[str]:
    """The modules that saved models' classes are of in a process of its own, which keeps their vectors."""
    code = PLAIN.format(imported=imported, texts=TEXTS)
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, folders)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_sentence_transformers_trains_saves_and_goes_on(name: str, folder: Path, tmp_path: Path) -> None:
    from sentence_transformers.losses import MultipleNegativesRankingLoss

    model = SentenceTransformer(str(folder), device="cpu")
    before, start = weights(model), model.encode(TEXTS)
    loss = MultipleNegativesRankingLoss(model)
    train_one_step(model, loss, {"anchor": TEXTS, "positive": TEXTS[::-1]}, tmp_path / "run")
    moved = changed(before, model)
    assert moved >= {n for n in before if ".mlp." in n or ".out." in n or n.endswith("tokens.weight")}
    trained = model.encode(TEXTS)
    assert np.abs(trained - start).max() > 1e-3
    again = SentenceTransformer(str(tmp_path / "run" / "checkpoint-1"), device="cpu")
    assert np.abs(again.encode(TEXTS) - trained).max() < 1e-6
    # A trainer that goes on from a checkpoint loads its tensors by name.
    fresh = SentenceTransformer(str(folder), device="cpu")
    fresh.load_state_dict(again.state_dict())
    assert np.abs(fresh.encode(TEXTS) - trained).max() < 1e-6


@pytest.mark.slow
def test_saved_models_load_in_a_fresh_process(tmp_path: Path) -> None:
    folders = [tmp_path / "saved" / name for name in FAMILIES]
    kept = {}
    for (name, family), folder in zip(FAMILIES.items(), folders, strict=True):
        model = SentenceTransformer(str(tiny.folder(FAMILIES[name], tmp_path / name)), device="cpu")
        model.save_pretrained(str(folder))
        kept[folder] = model.encode(TEXTS)
        assert ("harness.register()" in (folder / "README.md").read_text()) is not family.native
    kinds = elsewhere(folders, imported="")
    for kind, family in zip(kinds, FAMILIES.values(), strict=True):
        assert kind.startswith("transformers.models." if family.native else "harness.encoder.network")
    for folder, vectors in kept.items():
        assert np.abs(np.load(folder / "vectors.npy") - vectors).max() < 1e-5


def test_pylate_trains_and_its_queries_have_vectors_for_expansion(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("pylate")
    from pylate import losses, models, utils

    model = models.ColBERT(
        modules=[Transformer(str(folder))],
        embedding_size=8,
        query_length=12,
        document_length=40,
        device="cpu",
    )
    query = model.encode(["the cat"], is_query=True)[0]
    assert query.shape == (12, 8)
    assert (np.linalg.norm(query, axis=1) > 0.99).all()
    before = weights(model)
    train_one_step(
        model,
        losses.Contrastive(model=model),
        {"query": TEXTS, "positive": TEXTS[::-1], "negative": TEXTS[1:] + TEXTS[:1]},
        tmp_path / "run",
        data_collator=utils.ColBERTCollator(model.tokenize),
    )
    assert changed(before, model) >= {n for n in before if ".mlp." in n or n.endswith("tokens.weight")}


@pytest.mark.parametrize("native", sorted(name for name, family in FAMILIES.items() if family.native))
def test_pylate_queries_and_documents_are_those_of_padded_transformers(native: str, tmp_path: Path) -> None:
    import sentence_transformers

    pytest.importorskip("pylate")
    from pylate import models

    folder = str(tiny.folder(FAMILIES[native], tmp_path / "published"))
    size: dict[str, Any] = {"embedding_size": 8, "query_length": 12, "document_length": 40, "device": "cpu"}
    modules = (Transformer(folder), sentence_transformers.models.Transformer(folder))
    ours, theirs = (models.ColBERT(modules=[module], **size) for module in modules)
    assert [type(m[0].auto_model).__module__.split(".")[0] for m in (ours, theirs)] == [
        "harness",
        "transformers",
    ]
    theirs[1].load_state_dict(ours[1].state_dict())
    # The rows that PyLate adds for its own tokens are drawn anew for each model.
    tables = [model[0].auto_model.get_input_embeddings().weight for model in (ours, theirs)]
    tables[1].data.copy_(tables[0].data)
    for is_query in (True, False):
        found, expected = (model.encode(TEXTS, is_query=is_query) for model in (ours, theirs))
        for one, other in zip(found, expected, strict=True):
            assert one.shape == other.shape
            assert np.abs(one - other).max() <= 1e-5


def test_peft_trains_adapters_alone(folder: Path) -> None:
    import torch
    from peft import LoraConfig, get_peft_model

    network = Transformer(str(folder)).auto_model
    targets = network.list_lora_targets()
    ids = torch.randint(5, 100, (3, 9))
    plain = network(input_ids=ids).last_hidden_state
    model = get_peft_model(network, LoraConfig(r=2, target_modules=targets))
    assert torch.equal(model(input_ids=ids).last_hidden_state, plain)
    before = weights(model)
    assert before
    assert all("lora_" in n for n in before)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    direction = torch.randn_like(plain)
    for _ in range(2):  # the second half of an adapter starts at zero, so the first half moves one step later
        optimizer.zero_grad()
        (model(input_ids=ids).last_hidden_state * direction).sum().backward()
        optimizer.step()
    assert changed(before, model) == set(before)
    blocks = {n.split(".lora_")[0].rpartition(".")[2] for n in before}
    assert blocks == set(targets)


@NEEDS_PEFT
def test_a_saved_adapter_fits_the_class_that_loads_the_base(name: str, folder: Path, tmp_path: Path) -> None:
    """By peft: transformers 5.3 leaves out what its own classes saved, and reports it as missing."""
    import torch
    from peft import LoraConfig, PeftModel
    from transformers import AutoModel

    import harness

    harness.register()
    base = SentenceTransformer(str(folder), device="cpu")
    base.save_pretrained(str(tmp_path / "base"))
    model = SentenceTransformer(str(tmp_path / "base"), device="cpu")
    model.add_adapter(LoraConfig(r=2, target_modules=model[0].auto_model.list_lora_targets()))
    for parameter in model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.3)
    given = model.tokenize(TEXTS)
    with torch.no_grad():
        plain, adapted = (m[0].auto_model(**given).last_hidden_state for m in (base, model))
    assert (adapted - plain).abs().max() > 1e-2
    model.save_pretrained(str(tmp_path / "adapter"))
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    again: Any = PeftModel.from_pretrained(AutoModel.from_pretrained(tmp_path / "base"), tmp_path / "adapter")
    where = "transformers.models." if FAMILIES[name].native else "harness.encoder.network"
    assert type(again.base_model.model).__module__.startswith(where)
    assert again.peft_config["default"].base_model_name_or_path == str(tmp_path / "base")
    with torch.no_grad():
        found = again.eval()(**given).last_hidden_state
    mask = given["attention_mask"][..., None]
    assert ((found - adapted) * mask).abs().max() < 1e-4


@NEEDS_PEFT
def test_a_saved_adapter_comes_back_into_the_network(name: str, folder: Path, tmp_path: Path) -> None:
    """Ranks and scales that some modules have for themselves among it."""
    import torch
    from peft import LoraConfig

    SentenceTransformer(str(folder), device="cpu").save_pretrained(str(tmp_path / "base"))
    model = SentenceTransformer(str(tmp_path / "base"), device="cpu")
    network: Any = model[0].auto_model
    targets = network.list_lora_targets()
    some = {targets[0]: 4}
    config = LoraConfig(r=2, target_modules=targets, rank_pattern=some, alpha_pattern={targets[-1]: 64})
    model.add_adapter(config)
    assert network.list_lora_targets() == targets
    for parameter in model.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.1)
    model.save_pretrained(str(tmp_path / "adapter"))
    again = SentenceTransformer(str(tmp_path / "adapter"), device="cpu")
    assert type(again[0].auto_model).__name__ == "EncoderModel"
    assert np.abs(again.encode(TEXTS) - model.encode(TEXTS)).max() < 1e-5
    onto = SentenceTransformer(str(tmp_path / "base"), device="cpu")
    onto[0].auto_model.load_adapter(tmp_path / "adapter", is_trainable=True)
    assert np.abs(onto.encode(TEXTS) - model.encode(TEXTS)).max() < 1e-5
    assert any(parameter.requires_grad for parameter in onto.parameters())


@NEEDS_PEFT
def test_only_one_lora_adapter_is_saved(tmp_path: Path) -> None:
    from peft import IA3Config, LoraConfig, get_peft_model

    published = str(tiny.folder(FAMILIES["bert"], tmp_path / "published"))
    model = Transformer(published).auto_model
    for config in (
        IA3Config(target_modules=["key"], feedforward_modules=[]),
        LoraConfig(target_modules=["key"], bias="all"),
        LoraConfig(target_modules=["key"], modules_to_save=["norm"]),
    ):
        with pytest.raises(ModelError, match="more than LoRA"):
            model.add_adapter(config)
    wrapped = get_peft_model(Transformer(published).auto_model, LoraConfig(target_modules=["key"]))
    with pytest.raises(ModelError, match=r"no name for layers\.0\.attention\.key\.base_layer"):
        wrapped.base_model.model.save_pretrained(tmp_path / "saved")


@NEEDS_PEFT
def test_an_adapter_for_another_backbone_is_refused(tmp_path: Path) -> None:
    from peft import LoraConfig

    model = Transformer(str(tiny.folder(FAMILIES["bert"], tmp_path / "bert"))).auto_model
    model.add_adapter(LoraConfig(target_modules=model.list_lora_targets()))
    model.save_pretrained(tmp_path / "adapter")
    deeper = tiny.folder(FAMILIES["bert"], tmp_path / "deeper", num_hidden_layers=4)
    shallow = tiny.folder(FAMILIES["bert"], tmp_path / "shallow", num_hidden_layers=2)
    for folder in (deeper, shallow):
        other = Transformer(str(folder)).auto_model
        if folder is deeper:  # an adapter may go into some of the layers
            other.load_adapter(tmp_path / "adapter")
            continue
        with pytest.raises(ModelError, match="does not fit"):
            other.load_adapter(tmp_path / "adapter")
    with pytest.raises(ModelError, match="holds no adapter"):
        model.load_adapter(tmp_path / "bert")


@NEEDS_PEFT
def test_what_was_there_before_does_not_stay(tmp_path: Path) -> None:
    """A folder holds a model or an adapter, whichever was saved last."""
    from peft import LoraConfig

    published = str(tiny.folder(FAMILIES["bert"], tmp_path / "published"))
    model = Transformer(published).auto_model
    plain = Transformer(published).auto_model
    model.add_adapter(LoraConfig(target_modules=model.list_lora_targets()))
    files = [{"config.json", "model.safetensors"}, {"adapter_config.json", "adapter_model.safetensors"}]
    for network, kept, gone in ((plain, 0, 1), (model, 1, 0), (plain, 0, 1)):
        network.save_pretrained(tmp_path / "saved")
        there = {path.name for path in (tmp_path / "saved").iterdir()}
        assert files[kept] <= there
        assert not files[gone] & (there - {"config.json"})
    for wrong in ({"push_to_hub": True}, {"variant": "fp16"}):
        with pytest.raises(ModelError, match="in one variant"):
            plain.save_pretrained(tmp_path / "other", **wrong)
    plain.save_pretrained(tmp_path / "other", is_main_process=False)
    assert not (tmp_path / "other").exists()


def test_a_change_the_network_cannot_follow_goes_to_transformers(tmp_path: Path) -> None:
    scaled = {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0}}
    folder = str(tiny.folder(FAMILIES["eurobert"], tmp_path / "eurobert"))
    model = Transformer(folder, config_args=scaled)
    assert type(model.auto_model).__module__.startswith("transformers.")
    assert type(Transformer(folder).auto_model).__module__.startswith("harness.")


def test_a_model_of_our_own_type_is_changed_by_the_names_of_its_architecture(tmp_path: Path) -> None:
    folder = tiny.folder(FAMILIES["nomic_bert"], tmp_path / "nomic", max_trained_positions=16)
    SentenceTransformer(str(folder), device="cpu").save_pretrained(str(tmp_path / "saved"))
    scaling = {"kind": "dynamic", "factor": 2.0, "trained": 16}
    changes = {"rotary_scaling": scaling, "max_position_embeddings": 64, "mlp_out_dropout": 0.5}
    model = SentenceTransformer(str(tmp_path / "saved"), device="cpu", config_kwargs=changes)
    shape = model[0].auto_model.shape
    assert (shape.rotary_scaling, shape.max_position_embeddings, shape.mlp_out_dropout) == (scaling, 64, 0.5)
    with pytest.raises(ModelError, match="has no rotary_scaling_factor"):
        Transformer(str(tmp_path / "saved"), config_args={"rotary_scaling_factor": 2.0})
    path = tmp_path / "saved" / "config.json"
    content = json.loads(path.read_text())
    for field in ("norm_eps", "rotary_theta"):
        path.write_text(json.dumps({**content, "architecture": {**content["architecture"], field: 0}}))
        with pytest.raises(ModelError, match=f"has {field} = 0"):
            describe(tmp_path / "saved")


def test_arguments_of_a_model_are_heeded_or_refused(tmp_path: Path) -> None:
    import torch

    folder = str(tiny.folder(FAMILIES["bert"], tmp_path / "bert", dtype="bfloat16"))
    for asked, dtype in ((None, torch.float32), ("auto", torch.bfloat16), ("float16", torch.float16)):
        assert Transformer(folder, model_args={"dtype": asked}).auto_model.dtype is dtype
    with pytest.raises(UsageError, match="no dtype 'banana'"):
        Transformer(folder, model_args={"dtype": "banana"})
    with pytest.raises(ModelError, match="is not loaded with quantization_config"):
        Transformer(folder, model_args={"quantization_config": {"load_in_4bit": True}})


def test_config_and_attention_are_changed_as_in_the_library(tmp_path: Path) -> None:
    published = str(tiny.folder(FAMILIES["bert"], tmp_path / "bert"))
    model = SentenceTransformer(published, device="cpu", config_kwargs={"hidden_dropout_prob": 0.25})
    assert model[0].auto_model.layers[0].mlp.out_dropout.p == 0.25
    assert model[0].auto_model.config.hidden_dropout_prob == 0.25
    longer = str(tiny.folder(FAMILIES["nomic_bert"], tmp_path / "nomic", max_trained_positions=16))
    text = "the cat " * 12
    before = SentenceTransformer(longer, device="cpu")
    after = SentenceTransformer(longer, device="cpu", config_kwargs={"rotary_scaling_factor": 2.0})
    assert [model.max_seq_length for model in (before, after)] == [16, 64]
    assert after[0].auto_model.shape.rotary_scaling == {"kind": "dynamic", "factor": 2.0, "trained": 16}
    assert np.abs(after.encode(text) - before.encode(text)).max() > 1e-2
    assert np.abs(after.encode("the cat") - before.encode("the cat")).max() < 1e-6
    plain = SentenceTransformer(published, device="cpu")
    same = SentenceTransformer(published, device="cpu", model_kwargs={"attn_implementation": "eager"})
    assert np.abs(plain.encode(TEXTS) - same.encode(TEXTS)).max() < 1e-5
    assert [m[0].auto_model.attention_as_run for m in (plain, same)] == ["sdpa", "sdpa"]
    unknown = SentenceTransformer(published, device="cpu", model_kwargs={"attn_implementation": "nearly"})
    with pytest.raises(UsageError, match="nearly"):
        unknown.encode(text)


def test_a_model_without_pooler_goes_on_from_what_the_library_saved(tmp_path: Path) -> None:
    import sentence_transformers
    from safetensors.torch import load_file, save_file

    published = tiny.folder(FAMILIES["bert"], tmp_path / "published")
    tensors = load_file(published / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if "pooler" not in name}
    save_file(kept, published / "model.safetensors", metadata={"format": "pt"})
    model = SentenceTransformer(str(published), device="cpu")
    assert model[0].auto_model.pooler is None
    library = sentence_transformers.SentenceTransformer(str(published), device="cpu")
    model.load_state_dict(library.state_dict())
    assert np.abs(model.encode(TEXTS) - library.encode(TEXTS)).max() < 1e-5
