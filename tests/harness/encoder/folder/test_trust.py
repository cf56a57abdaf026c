"""A model's own code: run where it was allowed and pinned, and never skipped in silence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fakes
from harness.core.encoding import Settings
from harness.core.errors import ModelError
from harness.core.types import Artifact
from harness.encoder.engine import Encoder
from harness.encoder.folder.description import compute_folder_identity, describe
from harness.encoder.loading import load_encoder
from harness.encoder.resolved_encoding import resolve_encoding
from harness.plan.models import ModelOptions, resolve_model

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
