"""The file of a baseline."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.drift.baseline import Baseline, read_baseline, write_baseline
from app.drift.sample import DriftError
from tests.support.drift_samples import sample


def written(folder: Path) -> Path:
    """A good one."""
    path = folder / "b.npz"
    write_baseline(path, Baseline(sample=sample(40, judged=True), embedder="e.onnx", embedder_digest="d", model="m"))
    return path


def changed(path: Path, **arrays: Any) -> Path:
    """Some of its arrays replaced; of the header, its fields."""
    with np.load(path) as archive:
        kept = {name: archive[name] for name in archive.files}
    header = json.loads(kept["header"].tobytes()) | arrays.pop("header", {})
    kept["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(path, **{name: array for name, array in (kept | arrays).items() if array is not None})
    return path


def test_it_comes_back_as_it_was(tmp_path: Path) -> None:
    back = read_baseline(written(tmp_path))
    before = sample(40, judged=True)
    assert (back.embedder, back.embedder_digest, back.model) == ("e.onnx", "d", "m")
    assert (back.sample.ids, back.sample.labels, back.sample.metadata) == (
        before.ids, before.labels, before.metadata,
    )  # fmt: skip
    assert tuple(back.sample.features) == before.features
    for name in ("numbers", "embeddings", "counts"):
        assert (getattr(back.sample, name) == getattr(before, name)).all()
    assert [each.name for each in tmp_path.iterdir()] == ["b.npz"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"header": {"format": 2}}, "format 2, and this program reads format 1"),
        ({"header": {"ids": ["x"]}}, "its parts are not of the same 1 images"),
        ({"header": {"labels": None}}, "labels"),
        ({"numbers": None}, "it has no numbers"),
        ({"counts": np.zeros((40, 2), np.float32)}, "its counts are float32 of 2 dimensions"),
        ({"numbers": np.full((40, 17), np.inf)}, "not finite"),
        ({"counts": np.full((40, 2), -1)}, "some of its counts are below 0"),
        ({"numbers": np.array([[{}]], object)}, "Object arrays cannot be loaded"),
    ],
)
def test_what_does_not_fit_is_a_sentence(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    with pytest.raises(DriftError, match=said):
        read_baseline(changed(written(tmp_path), **change))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"no archive", b"\x93NUMPY"])
def test_what_is_none_is_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "b.npz"
    path.write_bytes(content)
    with pytest.raises(DriftError, match="is not a baseline"):
        read_baseline(path)


def test_a_cut_one_is_a_sentence(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(DriftError, match="is not a baseline"):
        read_baseline(path)


def test_a_bomb_is_not_unfolded(tmp_path: Path) -> None:
    path = tmp_path / "b.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("numbers.npy", b"x")
        archive.infolist()[0].file_size = (1 << 31) - 10
    with pytest.raises(DriftError, match="more than 1 GiB"):
        read_baseline(path)


def test_a_missing_one_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DriftError, match="cannot be read: No such file"):
        read_baseline(tmp_path / "none.npz")
