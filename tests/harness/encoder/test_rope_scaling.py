"""Lengths beyond the trained one: scaled rotary positions against transformers' own models and functions."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoConfig, AutoModel, GPTNeoXConfig, GPTNeoXModel, LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import fakes
import late_models
import tiny
import tiny_networks
from harness.core.encoding import EvaluationSettings, Settings
from harness.core.errors import ModelError, UsageError
from harness.core.types import Artifact
from harness.encoder.backbones import explain_unscalable, list_backbones
from harness.encoder.engine import Encoder, collect_backbones
from harness.encoder.folder.description import describe
from harness.encoder.loading import load_any, load_encoder
from harness.encoder.network.layers import Packing, compute_rotations
from harness.encoder.network.model import load_network
from harness.encoder.resolved_encoding import describe_encoding, resolve_encoding
from harness.storage.vectors import EmbeddingCache
from harness.tools.conditions import format_run_options
from preflights import collect_verdicts

KINDS = ("yarn", "dynamic", "linear")
TRAINED, LENGTH, FACTOR = 64, 200, 4.0
TEXT = "a long text of words " * 100


def scaled(kind: str, **more: Any) -> dict[str, Any]:
    """The rotary settings of transformers for a kind of scaling."""
    trained = {"original_max_position_embeddings": TRAINED} if kind == "yarn" else {}
    return {"rope_type": kind, "factor": FACTOR, **trained, **more}


def artifact(folder: Path) -> Artifact:
    """The model of a folder."""
    return Artifact(name="tiny", folder=folder, key="a" * 64, weights="b" * 64, source=str(folder))


def load(folder: Path, **settings: Any) -> Encoder:
    """The model of a folder, with settings."""
    return load_encoder(
        artifact(folder), resolve_encoding(describe(folder), Settings(**settings)), device="cpu"
    )


def build(name: str, folder: Path, **changes: Any) -> Path:
    """A tiny model of a family with few positions."""
    family = tiny.families()[name]
    named = {"neobert": "max_length", "nomic_bert": "n_positions", "optibert": "max_seqlen"}
    positions = {named.get(name, "max_position_embeddings"): TRAINED}
    return tiny.folder(family, folder, **{**positions, **changes})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["modernbert", "nomic_bert", "eurobert", "gte", "neobert", "optibert"])
def test_frequencies_are_those_of_transformers(name: str, kind: str) -> None:
    family = list_backbones()[name].family
    assert family is not None
    shape = tiny.read_config(next(iter(family.sizes.values())), family)[1]
    length = 3 * shape.max_position_embeddings
    config = LlamaConfig(
        hidden_size=shape.hidden_size,
        num_attention_heads=shape.num_attention_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.max_position_embeddings,
        rope_parameters={"rope_type": kind, "factor": FACTOR, "rope_theta": float(shape.rotary_theta)},
    )
    expected, weight = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), seq_len=length)
    packing = Packing.from_masks(*[torch.ones(1, 1, dtype=torch.bool)] * 2)
    tables = compute_rotations(shape.scale_rotary(kind, FACTOR, length), packing, torch.ones(1))
    cosine, sine = tables[shape.rotary_theta, True]
    torch.testing.assert_close(torch.atan2(sine, cosine)[0, 0], expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(torch.hypot(sine, cosine), torch.full_like(sine, weight))
    assert (weight > 1) == (kind == "yarn")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["modernbert", "eurobert"])
def test_a_network_is_transformers_own_with_that_scaling(name: str, kind: str, tmp_path: Path) -> None:
    folder, family = build(name, tmp_path / "model"), tiny.families()[name]
    config: Any = AutoConfig.from_pretrained(folder)
    layers = config.rope_parameters["full_attention"] if name == "modernbert" else config.rope_parameters
    layers |= scaled(kind)
    theirs = AutoModel.from_pretrained(folder, config=config, attn_implementation="eager").eval()
    settings = {"kind": kind, "factor": FACTOR, "length": LENGTH}
    ours = load_network(folder, family, dtype=torch.float32, scaling=settings).model
    plain = load_network(
        folder, family, dtype=torch.float32, changes={"max_position_embeddings": LENGTH}
    ).model
    (ids,) = tiny_networks.texts([LENGTH], 0)
    given = {"input_ids": ids[None] % 50 + 10, "attention_mask": torch.ones(1, LENGTH, dtype=torch.long)}
    with torch.no_grad():
        expected, found, unscaled = (model(**given).last_hidden_state for model in (theirs, ours, plain))
    # Values are up to 4; the vector of the text is compared at length 1.
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
    vectors = [torch.nn.functional.normalize(one.mean(dim=1), dim=-1) for one in (found, expected)]
    torch.testing.assert_close(*vectors, rtol=0, atol=1e-6)
    assert (unscaled - expected).abs().max() > 1e-2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["modernbert", "nomic_bert", "eurobert", "gte", "neobert", "optibert"])
def test_a_vector_does_not_depend_on_its_neighbours(name: str, kind: str, tmp_path: Path) -> None:
    encoder = load(build(name, tmp_path / "model"), max_length=LENGTH, rope_scaling=f"{kind}:{FACTOR}")
    assert encoder.count_tokens([TEXT]) == LENGTH
    alone = encoder.encode(["a short text"])
    together = encoder.encode_batch(["a short text", TEXT])
    torch.testing.assert_close(torch.tensor(together[:1]), torch.tensor(alone), rtol=0, atol=1e-5)


def test_layers_with_a_window_are_not_scaled() -> None:
    shape = tiny_networks.small(windows=(None, 4, 4), rotary_theta_local=None)
    assert [shape.scale_rotary("linear", 2.0, 512).is_scaled(n) for n in range(3)] == [True, False, False]
    assert not any(shape.is_scaled(n) for n in range(3))


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_of_the_dimensions_is_scaled_in_transformers_own_class(kind: str, tmp_path: Path) -> None:
    sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 96}
    config = GPTNeoXConfig(vocab_size=200, max_position_embeddings=TRAINED, **sizes)
    torch.manual_seed(0)
    GPTNeoXModel(config).save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    encoder = load(tmp_path, max_length=LENGTH, rope_scaling=f"{kind}:{FACTOR}")
    (ids,) = tiny_networks.texts([LENGTH], 0)
    config.rope_parameters |= scaled(kind)
    theirs = GPTNeoXModel.from_pretrained(tmp_path, config=config).eval()
    network: Any = encoder.model[0]
    with torch.no_grad():
        found, expected = (one(input_ids=ids[None]).last_hidden_state for one in (network.auto_model, theirs))
        # transformers' own dynamic scaling would follow this shorter text.
        short = network.auto_model(input_ids=ids[None, :8]).last_hidden_state
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(short, found[:, :8], rtol=0, atol=1e-5)


def test_alibi_reaches_any_length_as_it_is(tmp_path: Path) -> None:
    folder = build("mosaicbert", tmp_path / "model", alibi_starting_size=TRAINED)
    assert describe(folder).max_length == TRAINED
    encoder = load(folder, max_length=LENGTH)
    assert encoder.count_tokens([TEXT]) == LENGTH
    with pytest.raises(UsageError, match="its ALiBi reaches any --max-length as it is"):
        load(folder, max_length=LENGTH, rope_scaling="yarn:4")


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("bert", {}, "its positions are not rotary"),
        ("roberta", {}, "its positions are not rotary"),
        ("nomic_bert", {"rotary_scaling_factor": 2.0}, "its config has a scaling of its own"),
        ("gte", {"rope_scaling": {"type": "ntk", "factor": 2.0}}, "its config has a scaling of its own"),
    ],
)
def test_a_family_that_cannot_is_refused(
    name: str, changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    family = tiny.families()[name]
    folder = tiny.folder(family, tmp_path / "model", **changes)
    with pytest.raises(UsageError, match=f"--rope-scaling yarn:2 is not for model: {reason}"):
        load(folder, max_length=100_000, rope_scaling="yarn:2")


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "bert", "properties": {}}, "its positions are not rotary"),
        (
            {"model_type": "qwen3", "rope_theta": 1e4, "rope_scaling": {"type": "yarn"}},
            "a scaling of its own",
        ),
        ({"model_type": "modernbert", "rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "own"),
        ({"model_type": "qwen3", "rope_theta": 1e4, "rope_scaling": None}, None),
        ({"model_type": "qwen3", "rope_theta": 1e4, "auto_map": {"AutoModel": "a.B"}}, "code of its own"),
    ],
)
def test_the_config_of_transformers_own_class_says_whether(
    config: dict[str, Any], reason: str | None
) -> None:
    found = explain_unscalable(config, own_code=True)
    assert found is None if reason is None else reason in str(found)


SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
LIMIT = {"vocab_size": 200, "max_position_embeddings": TRAINED}
TOKENS = {f"{name}_token_id": 0 for name in ("pad", "bos", "eos", "cls", "sep")}
GPTJ = {"n_embd": 32, "n_layer": 2, "n_head": 2, "rotary_dim": 8, "n_positions": TRAINED, "vocab_size": 200}


@pytest.mark.parametrize(
    ("kind", "settings", "absent", "scales"),
    [
        ("llama", {**SIZES, **LIMIT}, ("rope_theta", "rope_parameters"), True),
        ("gpt_neox", {**SIZES, **LIMIT}, (), True),
        ("gemma3_text", {**SIZES, **LIMIT, "head_dim": 16, "num_key_value_heads": 1}, (), False),
        ("modernbert-decoder", {**SIZES, **LIMIT, **TOKENS}, (), False),
        ("roformer", {**SIZES, **LIMIT, "rotary_value": False}, (), False),
        ("gptj", GPTJ, (), False),
        ("esm", {**SIZES, **LIMIT, "position_embedding_type": "rotary", "pad_token_id": 0}, (), False),
        ("electra", {**SIZES, **LIMIT, "embedding_size": 32}, (), False),
    ],
)
def test_the_plan_scales_what_the_run_does(
    kind: str, settings: dict[str, Any], absent: tuple[str, ...], scales: bool, tmp_path: Path
) -> None:
    config: Any = CONFIG_MAPPING[kind](**settings)
    AutoModel.from_config(config).save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({n: v for n, v in content.items() if n not in absent}))
    encoding = resolve_encoding(describe(tmp_path), Settings(rope_scaling="yarn:4", max_length=LENGTH))
    plain = replace(encoding, rope_scaling=None)
    models = [(artifact(tmp_path), how) for how in (encoding, plain)]
    scaled, unscaled = collect_verdicts(models, tmp_path / "cache")
    assert unscaled.message is None
    with contextlib.nullcontext() if scales else pytest.raises(ModelError, match="cannot be scaled"):
        load_any(artifact(tmp_path), encoding, device="cpu")
    assert scales if scaled.message is None else not scales and "cannot be scaled" in scaled.message


def test_a_model_of_two_stages_or_none_is_refused(tmp_path: Path) -> None:
    folder = build("modernbert", tmp_path / "model")
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.StaticEmbedding"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(UsageError, match="more than a single backbone, or has none"):
        resolve_encoding(describe(folder), Settings(rope_scaling="yarn:2", max_length=100))


def test_a_scaling_holds_beyond_the_positions_and_as_far_as_its_factor(tmp_path: Path) -> None:
    description = describe(build("modernbert", tmp_path / "model"))

    def resolve(**settings: Any) -> str | None:
        return resolve_encoding(description, Settings(**settings)).rope_scaling

    assert resolve(rope_scaling="yarn:2", max_length=2 * TRAINED) == "yarn:2"
    assert resolve(rope_scaling="dynamic:2", max_length=10 * TRAINED) == "dynamic:2"
    assert resolve(rope_scaling="yarn:2", max_length=TRAINED) is None
    with pytest.raises(
        UsageError, match="takes the 64 positions of model to 128 tokens, and a length of 129"
    ):
        resolve(rope_scaling="linear:2", max_length=129)
    with pytest.raises(UsageError, match="beyond the 64 positions of model, and no length is given"):
        resolve(rope_scaling="linear:2")
    with pytest.raises(UsageError, match="more than model has positions for") as error:
        resolve(max_length=65)
    assert (
        error.value.hint
        == "Its limit is 64 tokens. --rope-scaling yarn:2 goes beyond it (docs/backbones.md)."
    )


def test_positions_are_scaled_once() -> None:
    shape = tiny_networks.small().scale_rotary("yarn", 2.0, 512)
    assert shape.max_position_embeddings == 512
    with pytest.raises(ModelError, match="cannot be scaled"):
        shape.scale_rotary("yarn", 2.0, 1024)


def test_documents_of_a_multi_vector_model_go_beyond_the_positions(tmp_path: Path) -> None:
    folder = late_models.save(tmp_path / "late", "modernbert")
    limit = describe(folder).position_limit
    assert limit is not None
    settings = Settings(max_length=3 * limit, rope_scaling="dynamic:2")
    encoding = resolve_encoding(describe(folder), settings)
    late = encoding.late_interaction
    assert late is not None
    assert (late.query_length, late.document_length, encoding.rope_scaling) == (12, 3 * limit, "dynamic:2")
    model = load_any(artifact(folder), encoding, device="cpu")
    shape = collect_backbones(model.model)[0].shape
    assert shape.rotary_scaling == {"kind": "dynamic", "factor": 2.0, "trained": limit, "length": 3 * limit}
    assert model.count_tokens([TEXT * 20], role="document") == 3 * limit


def test_vectors_of_another_scaling_are_of_another_space(tmp_path: Path) -> None:
    description = describe(build("modernbert", tmp_path / "model"))
    spaces = {
        json.dumps(
            EmbeddingCache.build_space_identity(
                artifact(description.folder),
                resolve_encoding(description, Settings(max_length=LENGTH, rope_scaling=text)),
                prompt="",
            )
        )
        for text in ("yarn:4", "linear:4", "dynamic:4", "dynamic:5")
    }
    assert len(spaces) == 4


def test_queries_have_one_space_unless_the_scaling_follows_the_length(tmp_path: Path) -> None:
    folder = late_models.save(tmp_path / "late", "modernbert")
    limit = describe(folder).position_limit
    assert limit is not None
    counts = {}
    for text in ("yarn:4", "linear:4", "dynamic:4"):
        settings = [Settings(max_length=times * limit, rope_scaling=text) for times in (2, 3)]
        how = [resolve_encoding(describe(folder), one) for one in settings]
        spaces = [
            EmbeddingCache.build_space_identity(artifact(folder), e, prompt="", role="query") for e in how
        ]
        counts[text] = len({*map(json.dumps, spaces)})
    assert counts == {"yarn:4": 1, "linear:4": 1, "dynamic:4": 2}


def test_the_length_of_a_recipe_stays_that_of_the_config_with_alibi(tmp_path: Path) -> None:
    description = describe(build("mosaicbert", tmp_path / "model", alibi_starting_size=TRAINED))
    limited = EvaluationSettings(max_length=LENGTH).limit_settings(Settings(), description.position_limit)
    assert limited.max_length == TRAINED


def test_a_record_names_its_scaling_in_words(tmp_path: Path) -> None:
    encoding = resolve_encoding(
        describe(build("modernbert", tmp_path / "model")), Settings(max_length=LENGTH, rope_scaling="yarn:4")
    )
    record = fakes.record(fakes.task(), 0.5, how=encoding)
    assert "rope_scaling yarn:4" in describe_encoding(record.identity["encoding"])
    assert "--rope-scaling yarn:4" in " ".join(format_run_options(record, hub=False))
