"""The resolution of --model: from a catalog name, folder, hub id or trained model to one that loads."""

from __future__ import annotations

import glob
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path, PurePosixPath

from harness.core import files
from harness.core.arguments import list_allowed_tensors
from harness.core.documents import read_content_file, write_content_file
from harness.core.encoding import BM25, Encoding, Settings, is_bm25
from harness.core.errors import ModelError, StoreError, UsageError, ask_for_names, find_similar_names
from harness.core.keys import digest, read_document
from harness.core.terminal import shorten_names
from harness.core.types import Artifact
from harness.encoder import backbones
from harness.encoder.folder.description import Description, compute_folder_identity, describe, lay_beside_base
from harness.encoder.folder.modules_and_pooling import list_module_folders
from harness.encoder.folder.preflight import SPECIAL_TOKENS, TOKENIZATION, check_folder
from harness.plan.catalog import EvaluationChoice
from harness.plan.plan import ConfiguredModel
from harness.search import bm25
from harness.training.model_store import ModelStore, StoredModel

HUB_ID = re.compile(r"^[\w.-]+/[\w.-]+(@[\w./-]+)?$")
COMMIT = re.compile(r"^[0-9a-f]{40}$")
FORMATS = ["*.h5", "*.msgpack", "*.ot", "*.tflite", "*.gguf", "onnx/*", "openvino/*", "*.onnx", "coreml/*"]
"""Files of a hub model that the harness never loads."""

PLACES = (".", "/", "~")
"""The beginnings of a text that can only be a folder."""

SAFE = ("model.safetensors", "model.safetensors.index.json")
"""Weight files that take precedence in a folder."""


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The options of model resolution: the network, the model's own code, and the cache folder.

    `allow` are the names of what is accepted; `gate` is whether the sanity gate may refuse a model before a
    run; `trained` is whether a recipe trains a model for every task.
    Models that were trained into `results` have names there; None for none. `evaluation` is that of models
    that recipes trained.
    """

    offline: bool = False
    trust_remote_code: bool = False
    cache: Path | None = None
    allow: tuple[str, ...] = ()
    gate: bool = False
    trained: bool = False
    results: Path | None = None
    evaluation: EvaluationChoice = field(default_factory=EvaluationChoice)


def resolve_model(text: str, settings: Settings, options: ModelOptions) -> ConfiguredModel:
    """The model that `text` names; arguments and errors as in `resolve_models`."""
    return resolve_models([text], settings, options)[0]


def resolve_models(
    texts: Sequence[str], settings: Settings, options: ModelOptions, trials: ExitStack | None = None
) -> list[ConfiguredModel]:
    """The models that `texts` name, with their encoding or ranking, every default filled in.

    Args:
        texts: As typed: a catalog name, a folder, a trained model, `org/name[@revision]` or BM25 each;
            NAME=MODEL gives it another name.
        settings: The requested settings of their evaluation.
        options: Network, cache and results folder.
        trials: At its end models that do not load are refused, and not here.

    Raises:
        ModelError: No model has this name, or its folder cannot be loaded.
        UsageError: A setting does not fit a model.
    """
    models = [_resolve_files(text, settings, options) for text in texts]
    encoded = [(model.artifact, model.encoding) for model in models if isinstance(model.encoding, Encoding)]
    with ExitStack() as stack:
        (trials or stack).enter_context(check_load(encoded, options.cache, gate=options.gate))
    return models


def _resolve_files(text: str, settings: Settings, options: ModelOptions) -> ConfiguredModel:
    if is_bm25(text):
        artifact, ranking = bm25.resolve_bm25(text)
        return ConfiguredModel(artifact=artifact, encoding=ranking)
    name, place = _split_name(text, options)
    if name:
        model = _resolve_files(place, settings, options)
        return replace(model, artifact=replace(model.artifact, name=name))
    try:
        return _configure_model(*_resolve(text, options), settings, options)
    # The files of a model folder are the user's: any value in them may have another type or be out of range.
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        raise ModelError(
            f"{text} cannot be read: a value in its files makes no model ({type(error).__name__}: {error}).",
            hint="Fetch or write the model folder again.",
        ) from error


def _split_name(text: str, options: ModelOptions) -> tuple[str, str]:
    """The name before the first "=" and the model after it; no name where the text is a model as it is.

    Raises:
        UsageError: The name is a path, has unprintable characters or is too long.
    """
    name, equals, place = text.partition("=")
    # Not `_is_folder`: a text that is too long for a path may have a name that is too long.
    if not equals or os.path.isdir(files.resolve_home_path(text)) or _find_trained_folder(text, options):
        return "", text
    # "runs/lr=1e-5/last" is meant for a folder with "=" in its path, which is missing.
    is_path = "/" in name or name.startswith(PLACES)
    if is_path and not os.path.isdir(place):
        return "", text
    if is_path or name.strip() != name or not name.isprintable():
        raise UsageError(
            f"{name!r} cannot be a model's name.",
            hint="Type --model NAME=MODEL with printable characters, no slash, before the =.",
        )
    files.require_plain_name(name, "a model's name", hint="Type --model NAME=MODEL.")
    if not place:
        raise UsageError(f"There is no model after {name}=.", hint="Type --model NAME=MODEL.")
    return name, place


def _configure_model(
    artifact: Artifact, description: Description, settings: Settings, options: ModelOptions
) -> ConfiguredModel:
    description = replace(description, folder=artifact.folder, name=artifact.name)
    document = read_document(artifact.folder) if artifact.trained else None
    lineage = None if document is None else document.lineage
    encoding, sentence = options.evaluation.configure_encoding(
        description, settings, lineage, artifact.folder
    )
    # A recipe trains the model for every task, so that its own head does not count.
    check_folder(artifact, encoding, any_kind=options.trained or settings.pooling is not None)
    return ConfiguredModel(artifact=artifact, encoding=encoding, lineage=lineage, evaluation=sentence)


def _resolve(text: str, options: ModelOptions) -> tuple[Artifact, Description]:
    named = None if text.startswith(PLACES) else backbones.find_catalog_model(text)
    if named is not None and named.locate is not None:
        place = named.locate()
        if Path(place).is_dir():
            artifact, description = _build_folder_artifact(
                Path(place), name=text, source=text, options=options
            )
        else:
            artifact, description = _fetch_hub_artifact(place, name=text, options=options)
        if named.weights not in (None, artifact.weights):
            raise ModelError(
                f"The weights in {artifact.folder} are not the official ones of {named.name}.",
                hint="Install or fetch it again, or give the folder as the model.",
            )
        return artifact, description
    folder = files.resolve_home_path(text)
    # Before the hub: a folder wins over a hub model of the same spelling, as in transformers.
    if _is_folder(folder):
        return _build_folder_artifact(folder, name=_build_folder_name(folder), source=text, options=options)
    if os.path.isfile(folder):
        raise ModelError(
            f"{text} is a file, not a model folder.", hint=f"Did you mean --model {folder.parent}?"
        )
    stored = _find_trained_folder(text, options)
    if stored is not None:
        return _build_folder_artifact(stored, name=stored.name, source=str(stored), options=options)
    if not is_hub_name(text):
        raise _explain_unknown_model(text, options)
    # "runs/last" may be meant for the hub or for a folder. Beside folders that are here a misspelt one is
    # likelier, and the hint says how to name a hub model.
    if "@" not in text and _is_folder(folder.parent):
        raise _explain_missing_folder(text, folder)
    return _fetch_hub_artifact(text, name=text.partition("@")[0], options=options)


KEY = re.compile(r"^[0-9a-f]{6,64}$")
"""The form of a key, or of its first digits."""


def _find_trained_folder(text: str, options: ModelOptions) -> Path | None:
    """The folder of the trained model that a text names: its folder's name, its own, or its key's start.

    Raises:
        UsageError: Several models have this name or this start of a key.
    """
    if options.results is None:
        return None
    folders = ModelStore(options.results).list_model_folders()
    models = [StoredModel.read_stored_model(folder) for folder in folders]
    matches = [folder for folder in folders if folder.name == text] or [
        one.folder for one in models if one.name == text or (KEY.match(text) and one.key.startswith(text))
    ]
    if len(matches) > 1:
        names = shorten_names([folder.name for folder in matches])
        raise UsageError(
            f"{len(matches)} trained models in {options.results} are called {text}.",
            hint=f"Name one of them: {names}.",
        )
    return matches[0] if matches else None


def _build_folder_name(folder: Path) -> str:
    """The name of a folder; of a snapshot in the hub's cache that of its repository."""
    parts = folder.resolve().parts[-3:]
    if len(parts) == 3 and parts[0].startswith("models--") and parts[1] == "snapshots":
        return parts[0].removeprefix("models--").replace("--", "/", 1)
    return folder.resolve().name


def _is_folder(folder: Path) -> bool:
    try:
        return folder.is_dir()
    except OSError as error:
        raise ModelError(f"{folder} cannot be read: {error.strerror}.") from error


def is_hub_name(text: str) -> bool:
    """Whether a text can be the name of a model on the hub, by its form and the hub's own rules."""
    name = text.partition("@")[0]
    # The rules of validate_repo_id in huggingface_hub: what breaks them needs no network to be refused.
    forbidden = "--" in name or ".." in name or name.endswith((".", "-", ".git")) or len(name) > 96
    return bool(HUB_ID.match(text)) and not text.startswith(PLACES) and not forbidden


def _build_folder_artifact(
    folder: Path, *, name: str, source: str, options: ModelOptions, revision: str | None = None
) -> tuple[Artifact, Description]:
    try:
        folder = link_adapters(folder, options)
        description = describe(folder, own_code=options.trust_remote_code)
        identity = compute_folder_identity(folder, options.cache, trust_remote_code=options.trust_remote_code)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModelError(f"{error.filename or folder} cannot be read: {reason}.") from error
    # A trained model keeps the name in its model.json wherever its folder lies; a hub model is called as its
    # repository is.
    named = None if identity.document is None or revision is not None else identity.document.name
    hint = "Type --model NAME=FOLDER to give it another one."
    files.require_plain_name(named or name, "a model's name", hint=hint)
    artifact = Artifact(
        name=named or name,
        source=source,
        folder=folder.resolve() if revision is None else folder,
        key=identity.key,
        weights=identity.weights,
        trained=identity.document is not None,
        revision=revision,
        trust_remote_code=options.trust_remote_code,
        allow=options.allow,
    )
    return artifact, description


def link_adapters(folder: Path, options: ModelOptions) -> Path:
    """The folder that a model is loaded from: that of an adapter has its base model beside it, by links.

    Raises:
        ModelError: An adapter cannot be merged, is damaged, or has no base.
    """
    cache = options.cache or files.resolve_cache_folder(None)
    return lay_beside_base(folder, cache, partial(_locate_base, options))


def _locate_base(options: ModelOptions, config: Path, text: str, revision: str | None) -> Path:
    """The folder of an adapter's base model, which its `config` names like a folder or a model of the hub."""
    folder = files.resolve_home_path(text)
    if _is_folder(folder):
        return folder
    try:
        # The oldest models of the hub have no organisation.
        if not is_hub_name(text if "/" in text else f"hub/{text}"):
            raise ModelError(f"There is no folder {text}.")
        return _fetch_hub_folder(f"{text}@{revision}" if revision else text, options)
    except UsageError as error:
        raise ModelError(
            f"The adapter in {config.parent} needs its base model: {error.message}",
            hint="Fetch it once on a connected machine, or correct base_model_name_or_path and revision in "
            f"{config}.",
        ) from error


def _fetch_hub_artifact(text: str, *, name: str, options: ModelOptions) -> tuple[Artifact, Description]:
    folder, repository = _fetch_hub_folder(text, options), text.partition("@")[0]
    # The hub cache names the folder of a snapshot by its commit.
    return _build_folder_artifact(folder, name=name, source=repository, options=options, revision=folder.name)


def _fetch_hub_folder(text: str, options: ModelOptions) -> Path:
    """The snapshot of a model of the hub; UsageError if its code would run at no pinned commit."""
    repository, _, revision = text.partition("@")
    if options.trust_remote_code and not COMMIT.match(revision):
        raise UsageError(
            "--trust-remote-code runs code that the model's repository holds: it needs a pinned commit.",
            hint=f"Type --model {repository}@<40 hex digits of the commit you have read>.",
        )
    return _download(repository, revision or None, offline=options.offline)


def _download(repository: str, revision: str | None, *, offline: bool) -> Path:
    """The snapshot of a hub model in the local hub cache, fetched if need be."""
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    shown = f"{repository}@{revision}" if revision else repository
    try:
        if offline:
            return Path(snapshot_download(repository, revision=revision, local_files_only=True))
        info = HfApi().model_info(repository, revision=revision)
        names = [sibling.rfilename for sibling in info.siblings or ()]
        skip = [*FORMATS, *(glob.escape(name) for name in _find_redundant_weights(names))]
        # By the commit that was listed: a push in between cannot mix the files of two.
        return Path(snapshot_download(repository, revision=info.sha, ignore_patterns=skip))
    # From the special to the general: GatedRepoError is a RepositoryNotFoundError, that and
    # RevisionNotFoundError are HfHubHTTPErrors, and LocalEntryNotFoundError is an OSError.
    except GatedRepoError as error:
        hint = "Ask for access on its page, then set HF_TOKEN."
        raise ModelError(f"{shown} is gated.", hint=hint) from error
    except RevisionNotFoundError as error:
        raise ModelError(f"{repository} has no revision {revision!r}.") from error
    except RepositoryNotFoundError as error:
        raise ModelError(
            f"The hub has no model {repository}, or it is private.",
            hint="Check the spelling; for a private one set HF_TOKEN.",
        ) from error
    except LocalEntryNotFoundError as error:
        raise ModelError(
            f"{shown} is not in the local hub cache, nor a folder; the network is not used or not there.",
            hint="If a folder was meant, correct its path; else run once on a connected machine.",
        ) from error
    except (HfHubHTTPError, HTTPError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(
            f"{shown} cannot be fetched from the hub: {reason}.",
            hint="Without a network, give a local folder or a model that is in the hub cache with --offline.",
        ) from error


def _find_redundant_weights(names: Sequence[str]) -> list[str]:
    """The pickled weight files of a repository whose folder has the same weights as safetensors.

    >>> _find_redundant_weights(["model.safetensors", "pytorch_model.bin", "2_Dense/pytorch_model.bin"])
    ['pytorch_model.bin']
    """
    safe = {PurePosixPath(name).parent for name in names if PurePosixPath(name).name in SAFE}
    paths = [PurePosixPath(name) for name in names if name.endswith((".bin", ".pt", ".pth"))]
    return [str(path) for path in paths if path.parent in safe]


def _explain_missing_folder(text: str, folder: Path) -> ModelError:
    """The error for a missing folder whose parent exists."""
    folder_names = sorted(path.name for path in folder.parent.iterdir() if path.is_dir())
    close = [str(Path(text).parent / name) for name in find_similar_names(folder.name, folder_names)]
    exists = f"Folders in {folder.parent}: {shorten_names(folder_names) if folder_names else 'none'}."
    near = f"Did you mean {' or '.join(close)}?" if close else exists
    hub = f" For a model of the hub type {text}@main." if is_hub_name(text) else ""
    return ModelError(f"There is no folder {text}.", hint=near + hub)


def _explain_unknown_model(text: str, options: ModelOptions) -> UsageError:
    folder = files.resolve_home_path(text)
    if "/" in text and _is_folder(folder.parent):
        return _explain_missing_folder(text, folder)
    families = [entry.family for entry in backbones.list_backbones().values() if entry.family is not None]
    if any(text in family.sizes for family in families):
        return ModelError(
            f"{text} is a published size, for `harness models compute`.",
            hint="A run needs org/name from the hub, or a folder.",
        )
    trained = [] if options.results is None else ModelStore(options.results).list_model_folders()
    names = [*backbones.list_catalog_models(), BM25, *(folder.name for folder in trained)]
    error = ModelError(
        f"No model is called {text!r}, and no folder lies there.",
        hint=ask_for_names(text, names)
        + "Give a catalog name (`harness list models`), org/name from the hub, a folder, or a "
        "trained model of the results folder (`harness models list`).",
    )
    return backbones.BACKBONES.add_failures(error)


# Whether models load: each is tried once for each content, in a process of its own


TRIAL_FORM = 8
"""The number of the present trial; another number makes every verdict anew."""

LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors", "sentence-transformers")
"""The libraries on whose versions a verdict depends."""

# transformers and accelerate import these where they find them, for generation, losses and services alone: a
# second of each trial. The collector would look through what is imported again and again, and find nothing.
START = (
    "import gc, runpy, sys; gc.disable(); "
    "sys.modules.update(dict.fromkeys(['sklearn', 'scipy', 'boto3', 'opentelemetry'])); "
    "runpy.run_module('harness.encoder.trial_load', run_name='__main__')"
)
"""The program that tries the models of its standard input."""

SECONDS = 600
"""The most seconds of one process."""

QUIET_SECONDS = 5
"""The seconds of a process after which it is said what goes on."""


@contextmanager
def check_load(
    models: Sequence[tuple[Artifact, Encoding]], cache: Path | None, *, gate: bool
) -> Iterator[None]:
    """Refuse models that do not load (ModelError), and lengths that leave nothing of a text (UsageError).

    They come after `check_folder`. New ones are tried beside the block, and refused at its end in place of an
    error in it. Outcomes are kept in the folder `cache`; None to try every model. With `gate` models that the
    sanity gate of a run would refuse are refused as well.
    """
    with start_trials(models, cache, gate=gate) as collect:
        error = None
        try:
            yield
        except Exception as caught:
            error = caught
        for (artifact, encoding), verdict in zip(models, collect(), strict=True):
            _require_loads(artifact, encoding, verdict)
        if error is not None:
            raise error


def _require_loads(artifact: Artifact, encoding: Encoding, verdict: Verdict) -> None:
    if verdict.note is not None:
        text = f"{artifact.name} is not tried before a run, which may refuse it: {verdict.note}."
        print(text, file=sys.stderr)
    if verdict.message is not None:
        raise ModelError(verdict.message, hint=verdict.hint)
    if encoding.late_interaction is None and encoding.max_length <= verdict.special_tokens:
        raise UsageError(
            f"A maximum length of {encoding.max_length} leaves nothing of a text: the tokenizer of "
            f"{artifact.name} adds {verdict.special_tokens} tokens of its own.",
            hint=f"Give more than {verdict.special_tokens}.",
        )


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of a trial load: `message` and `hint` of the refusal, if any.

    `special_tokens` is the number of tokens that the tokenizer adds to a text; `note` says why a model was
    not tried whole. `lasting` is whether it holds as long as the folder is the same.
    """

    message: str | None = None
    hint: str | None = None
    special_tokens: int = 0
    note: str | None = None
    lasting: bool = True


@contextmanager
def start_trials(
    models: Sequence[tuple[Artifact, Encoding]], cache: Path | None, *, gate: bool
) -> Iterator[Callable[[], list[Verdict]]]:
    """Try models beside the block; gives the function that waits for the verdict on each.

    Args:
        models: The models, with the settings of their evaluation.
        cache: The folder in which verdicts are cached by the content of folders; None to try every model.
        gate: Whether the sanity gate may refuse a model.
    """
    places = [None if cache is None else _locate_verdict(cache, *model, gate=gate) for model in models]
    verdicts = {
        number: verdict
        for number, place in enumerate(places)
        if place is not None and (verdict := _read_verdict(place, models[number][0]))
    }
    due = [number for number in range(len(models)) if number not in verdicts]

    def collect() -> list[Verdict]:
        for number, verdict in zip(due, collect_new(), strict=True):
            (artifact, _), place = models[number], places[number]
            if place is not None and verdict.lasting:
                if verdict.note is not None:
                    verdict = replace(verdict, note=f"{verdict.note}; to try it again, remove {place}")
                names = {"name": artifact.name, "folder": str(artifact.folder)}
                with suppress(OSError, StoreError):
                    write_content_file(place, {"schema": 1, **names, **asdict(verdict)})
            verdicts[number] = verdict
        return [verdicts[number] for number in range(len(models))]

    with _try_models([models[number] for number in due], gate=gate) as collect_new:
        yield collect


def _locate_verdict(cache: Path, artifact: Artifact, encoding: Encoding, *, gate: bool) -> Path:
    folders = list_module_folders(artifact.folder)
    key = digest(
        {
            "form": TRIAL_FORM,
            "key": artifact.key,
            "allow_extra": list_allowed_tensors(artifact.allow),
            "own code": artifact.trust_remote_code,
            "any tokens": [name in artifact.allow for name in (SPECIAL_TOKENS, TOKENIZATION)],
            # Neither the similarity nor the search changes a vector.
            "gate": gate
            and [
                replace(encoding.loaded, similarity="cosine", index=None, exact=False),
                sorted(artifact.allow),
            ],
            "vectors beyond float16": encoding.may_exceed_half,
            # A load, which settles a doubt, asks for it.
            "pooling": encoding.pooling,
            "scaling": encoding.rope_scaling and [encoding.rope_scaling, encoding.max_length],
            # A plugin may add the network of a family.
            "networks": [backbones.has_network(at, own_code=artifact.trust_remote_code) for at in folders],
            "versions": {name: version(name) for name in LIBRARIES},
        }
    )
    return cache / "verdicts" / f"{key}.json"


def _read_verdict(path: Path, artifact: Artifact) -> Verdict | None:
    try:
        content = read_content_file(path)
        verdict = Verdict(**{name: content[name] for name in asdict(Verdict())})
    except (OSError, ValueError, KeyError):
        return None
    # The refusal names the model and the folder in which it was found.
    same = (content.get("name"), content["folder"]) == (artifact.name, str(artifact.folder))
    return verdict if same or verdict.message is None else None


@contextmanager
def _try_models(
    models: list[tuple[Artifact, Encoding]], *, gate: bool
) -> Iterator[Callable[[], list[Verdict]]]:
    """Try models in a process of its own, as torch's import takes seconds; a note on one that ends it."""
    if not models:
        yield list
    elif {"torch", "transformers"} <= sys.modules.keys():
        from harness.encoder.trial_load import answer_model

        yield lambda: [Verdict(**answer_model(*model, gate=gate)) for model in models]
    else:
        with _start_process(models, gate=gate) as process:
            yield partial(_read_verdicts, models, process, gate=gate)


def _read_verdicts(
    models: Sequence[tuple[Artifact, Encoding]], process: subprocess.Popen[bytes] | None, *, gate: bool
) -> list[Verdict]:
    """The verdicts of a process, and of one more for each model with which one ends."""
    verdicts: list[Verdict] = []
    while len(verdicts) < len(models):
        left = models[len(verdicts) :]
        with ExitStack() as stack:
            process = process or stack.enter_context(_start_process(left, gate=gate))
            verdicts += _read_answers(process, [artifact.name for artifact, _ in left])
        process = None
    return verdicts


@contextmanager
def _start_process(
    models: Sequence[tuple[Artifact, Encoding]], *, gate: bool
) -> Iterator[subprocess.Popen[bytes] | None]:
    """A process that tries models, up to the end of the block; None where none can be started."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(place or os.getcwd() for place in sys.path),
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    process = None
    # A file, since a pipe may be full before the process reads it.
    with suppress(OSError), tempfile.TemporaryFile() as file:
        file.write(pickle.dumps((models, gate)))
        file.seek(0)
        # -P: nothing is imported from the working folder, unless this program does so.
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", START],
            stdin=file,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
    try:
        yield process
    finally:
        if process is not None:
            process.kill()
            process.communicate()


def _read_answers(process: subprocess.Popen[bytes] | None, names: Sequence[str]) -> list[Verdict]:
    """The verdicts of a process, or a note on the first model if there is none."""
    if process is None:
        return [Verdict(note="no process could be started for its trial", lasting=False)]
    late = False
    # Of a process that is killed or runs out of memory the answers count; the run itself shows what the next
    # model does.
    try:
        answers, _ = process.communicate(timeout=QUIET_SECONDS)
    except subprocess.TimeoutExpired:
        print(f"Trying {shorten_names(names)} on the CPU, once for each content", file=sys.stderr)
        try:
            answers, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            late = True
            process.kill()
            answers, _ = process.communicate()
    lines = answers.splitlines(keepends=True)
    reason = (
        f"its trial took more than {SECONDS} s" if late else f"its trial ended with code {process.returncode}"
    )
    # A late one is kept, as another trial would take as long again.
    return [Verdict(**json.loads(line)) for line in lines if line.endswith(b"\n")] or [
        Verdict(note=reason, lasting=late)
    ]
