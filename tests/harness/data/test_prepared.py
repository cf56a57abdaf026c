import gzip
import os

import datasets
import datasets.config
import pytest

from harness.data.locate import locate_data
from harness.data.offline import datasets_cache
from harness.types import Data

TIME = (10**18, 10**18)


def rows(folder):
    return datasets.load_dataset(str(folder), split="train")["a"][:]


def write(file, value):
    text = f'{{"a": {value}}}\n'.encode()
    file.write_bytes(gzip.compress(text, mtime=0) if file.suffix == ".gz" else text)
    os.utime(file, ns=TIME)


@pytest.mark.parametrize("name", ["train.jsonl", "train.jsonl.gz"])
def test_a_changed_folder_is_never_answered_with_old_rows(settings, root, monkeypatch, tmp_path, name):
    """The library alone gives the old rows: it looks at path and time, which are the same here."""
    folder = root / "org/toy"
    folder.mkdir(parents=True)
    shared = tmp_path / "shared"
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", shared)
    monkeypatch.setattr(datasets.config, "EXTRACTED_DATASETS_PATH", shared / "extracted")
    seen, alone = [], []
    for value in (1, 2):
        write(folder / name, value)
        alone += rows(folder)
        located = locate_data(Data(path="org/toy", revision="r"), settings)
        with datasets_cache(located.data.content, settings.cache):
            seen += rows(folder)
    assert alone == [1, 1]
    assert seen == [1, 2]


def test_the_place_is_named_by_content_and_restored(tmp_path):
    before = (datasets.config.HF_DATASETS_CACHE, datasets.config.EXTRACTED_DATASETS_PATH)
    with datasets_cache("sha256:" + "ab" * 32, tmp_path) as place:
        assert place == tmp_path / "datasets" / ("ab" * 8)
        assert place == datasets.config.HF_DATASETS_CACHE
    assert before == (datasets.config.HF_DATASETS_CACHE, datasets.config.EXTRACTED_DATASETS_PATH)
