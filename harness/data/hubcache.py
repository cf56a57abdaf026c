"""The hub's cache on this machine: the snapshot of a revision, and whether it is whole.

Loading one subset of a data set from the hub leaves a snapshot with only that subset's files, so
a snapshot that is there is not yet one that can be used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.data.folder import visible_files
from harness.types import Data

_SHARD = re.compile(r"^(?P<stem>.*-)(?P<number>\d{5})-of-(?P<count>\d{5})")
_HEADER = re.compile(r"\s*---\r?\n(.*?)\n---[ \t]*(?:\r?\n|$)", re.DOTALL)
RETRIEVAL_PARTS = ("corpus", "queries", "qrels", "top_ranked", "instruction", "instructions")
_NOT_DATA = (".md", ".py", ".txt.license", "LICENSE", "dataset_infos.json")


def snapshot(path: str, revision: str) -> Path | None:
    """The folder of a data set's revision in the hub's cache, None if there is none."""
    from huggingface_hub import constants

    if not revision:
        return None
    repo = Path(constants.HF_HUB_CACHE) / f"datasets--{path.replace('/', '--')}"
    reference = repo / "refs" / revision
    commit = reference.read_text().strip() if reference.is_file() else revision
    folder = repo / "snapshots" / commit
    return folder if folder.is_dir() else None


def gaps(folder: Path, data: Data, subsets: Sequence[str]) -> tuple[str, ...]:
    """What a snapshot lacks for reading `subsets` (all, if empty); empty if it will do.

    A snapshot fetched whole carries a list of its files. One without that list is judged by the
    data files its README declares and by the shard numbers in file names.
    """
    present = {name for name, path in visible_files(folder).items() if path.exists()}
    listed = _listed(data)
    if listed is not None and listed <= present:
        return ()
    if not any(not name.endswith(_NOT_DATA) for name in present):
        return ("data file",)
    declared = _wanted(_configs(folder), subsets)
    undeclared = (p for patterns in declared.values() for p in patterns if not _matches(folder, p))
    return (*undeclared, *_missing_shards(present))


def absent_subsets(folder: Path, subsets: Sequence[str]) -> tuple[str, ...]:
    """The subsets that no configuration of the README stands for, if one stands for any other of them."""
    if len(subsets) < 2:  # a single one has no other
        return ()
    configs = _configs(folder)
    absent = tuple(s for s in subsets if not any(_stands_for(c, s) for c in configs))
    return absent if len(absent) < len(subsets) else ()


def declared_subsets(folder: Path) -> tuple[str, ...]:
    """The configurations that a data set's README declares, none if it has no such list."""
    return tuple(_configs(folder))


def _stands_for(config: str, subset: str) -> bool:
    return config == subset or config.startswith(f"{subset}-") or config.endswith(f"-{subset}")


def _listed(data: Data) -> set[str] | None:
    try:
        from huggingface_hub import get_cached_repo_tree
        from huggingface_hub.errors import CachedRepoTreeNotFoundError
    except ImportError:  # an older huggingface_hub keeps no such list
        return None
    try:
        tree = get_cached_repo_tree(data.path, repo_type="dataset", revision=data.revision)
    except CachedRepoTreeNotFoundError:
        return None
    return {file.path for file in tree if not any(p.startswith(".") for p in file.path.split("/"))}


def _configs(folder: Path) -> dict[str, list[str]]:
    """The configurations a README declares, in order: name → patterns of its data files."""
    try:
        header = _header((folder / "README.md").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    declared = header.get("configs")
    configs = [c for c in declared if isinstance(c, dict)] if isinstance(declared, list) else []
    return {str(c.get("config_name", "default")): list(_patterns(c.get("data_files"))) for c in configs}


def _header(card: str) -> Mapping[str, Any]:
    """The metadata at the top of a README; {} where it has none, or lists no configurations."""
    found = _HEADER.match(card)
    if found is None or "configs:" not in found[1]:
        return {}
    import yaml

    try:
        read = yaml.safe_load(found[1])
    except yaml.YAMLError:
        return {}
    return read if isinstance(read, dict) else {}


def _patterns(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for entry in value:
            yield from _patterns(entry)
    elif isinstance(value, dict):
        yield from _patterns(value["path"] if "path" in value else list(value.values()))


def _wanted(configs: Mapping[str, list[str]], subsets: Sequence[str]) -> dict[str, list[str]]:
    """The configurations that reading `subsets` needs.

    A subset is a configuration, or the first or last part of one (`fr-corpus`, `corpus-fr`); to
    the subset `default` belong those that hold the parts of a retrieval task.
    The first declared one is always needed: its files tell the loader their format.
    """
    first = next(iter(configs), "")
    if "default" in subsets:
        subsets = [*subsets, *RETRIEVAL_PARTS]
    named = {c for c in configs for s in subsets if _stands_for(c, s)}
    return {c: patterns for c, patterns in configs.items() if not named or c in {first, *named}}


def _matches(folder: Path, pattern: str) -> bool:
    try:
        return any(path.exists() for path in folder.glob(pattern))
    except (NotImplementedError, ValueError):  # not a pattern inside the folder
        return False


def _missing_shards(names: set[str]) -> Iterator[str]:
    """Shards that the numbers in file names (`train-00000-of-00002`) promise and nothing holds."""
    held: dict[tuple[str, str], set[int]] = {}
    for match in filter(None, map(_SHARD.match, names)):
        held.setdefault((match["stem"], match["count"]), set()).add(int(match["number"]))
    for (stem, count), numbers in sorted(held.items()):
        yield from (f"{stem}{n:05d}-of-{count}" for n in range(int(count)) if n not in numbers)
