"""The verdicts on model folders: whether a trial load succeeds, tried once for each content."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from harness.core.allowances import list_allowed_tensors
from harness.core.documents import read_content_file, write_content_file
from harness.core.encoding import Encoding
from harness.core.errors import HarnessError, StoreError
from harness.core.identity import digest
from harness.core.types import Artifact
from harness.encoder.backbones import has_network
from harness.encoder.folder.modules import list_module_folders

FORM = 3
"""The number of the present trial; another number makes every verdict anew."""

LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors", "sentence-transformers")
"""The libraries on whose versions a verdict depends."""

# transformers imports these where it finds them, for generation and losses alone: a second of each trial. The
# collector would look through all that is imported again and again, and find nothing.
START = (
    "import gc, runpy, sys; gc.disable(); sys.modules['sklearn'] = sys.modules['scipy'] = None; "
    "runpy.run_module('harness.encoder.trial_load', run_name='__main__')"
)
"""The program that tries the models of its standard input."""

SECONDS = 600
"""The most seconds of one process."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of a trial load: `message` and `hint` of the refusal, if any.

    `special_tokens` is the number of tokens that the tokenizer adds to a text.
    """

    message: str | None = None
    hint: str | None = None
    special_tokens: int = 0


def judge_models(models: Sequence[tuple[Artifact, Encoding]], cache: Path | None) -> list[Verdict]:
    """The verdict on each model, cached by the content of its folder.

    Args:
        models: The models, with the settings of their evaluation.
        cache: The cache folder; None to try every model.
    """
    places = [None if cache is None else _locate_verdict(cache, *model) for model in models]
    verdicts = [
        None if place is None else _read_verdict(place, artifact)
        for place, (artifact, _) in zip(places, models, strict=True)
    ]
    due = [at for at, verdict in enumerate(verdicts) if verdict is None]
    for at, verdict in zip(due, _try_models([models[at] for at in due]), strict=True):
        verdicts[at] = verdict
        place = places[at]
        if verdict is not None and place is not None:
            content = {"schema": 1, "folder": str(models[at][0].folder), **asdict(verdict)}
            with suppress(OSError, StoreError):
                write_content_file(place, content)
    return [verdict or Verdict() for verdict in verdicts]


def _locate_verdict(cache: Path, artifact: Artifact, encoding: Encoding) -> Path:
    folders = list_module_folders(artifact.folder)
    key = digest(
        {
            "form": FORM,
            "key": artifact.key,
            "allow_extra": list_allowed_tensors(artifact.allow),
            "own code": artifact.trust_remote_code,
            # A load, which settles a doubt, asks for it.
            "pooling": encoding.pooling,
            # A plugin may add the network of a family.
            "networks": [has_network(at, own_code=artifact.trust_remote_code) for at in folders],
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
    # The refusal names the folder in which it was found.
    moved = verdict.message is not None and content["folder"] != str(artifact.folder)
    return None if moved else verdict


def _try_models(models: list[tuple[Artifact, Encoding]]) -> list[Verdict | None]:
    """Try models in a process of its own, as torch's import takes seconds; None for one that ends it."""
    if {"torch", "transformers"} <= sys.modules.keys():
        return [_try_here(artifact, encoding) for artifact, encoding in models]
    verdicts: list[Verdict | None] = []
    while len(verdicts) < len(models):
        verdicts += _try_apart(models[len(verdicts) :]) or [None]
    return verdicts


def _try_apart(models: Sequence[tuple[Artifact, Encoding]]) -> list[Verdict]:
    """The verdicts of another process, up to the model with which it ends."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(place or os.getcwd() for place in sys.path),
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    try:
        # -P: nothing is imported from the working folder, unless this program does so.
        answers = subprocess.run(
            [sys.executable, "-P", "-c", START],
            input=pickle.dumps(models),
            capture_output=True,
            env=environment,
            timeout=SECONDS,
            check=False,
        ).stdout
    # Of a process that is killed or runs out of memory the answers count; the run itself shows what the next
    # model does.
    except subprocess.TimeoutExpired as error:
        answers = error.stdout or b""
    except OSError:
        return []
    lines = answers.splitlines(keepends=True)
    return [Verdict(**json.loads(line)) for line in lines if line.endswith(b"\n")]


def _try_here(artifact: Artifact, encoding: Encoding) -> Verdict:
    from harness.encoder.trial_load import try_load

    try:
        return Verdict(special_tokens=try_load(artifact, encoding))
    except HarnessError as error:
        return Verdict(message=error.args[0], hint=error.hint)
