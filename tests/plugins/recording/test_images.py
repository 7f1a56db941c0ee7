"""The folder of recorded images."""

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from app.plugins.recording.images import SHARDS, ImageFile, ImageFolder, image_path
from app.plugins.recording.stores.store import StoreError

IMAGE = ImageFile(hashlib.sha256(b"one").hexdigest(), b"one")


@pytest.fixture
def folder(tmp_path: Path) -> ImageFolder:
    folder = ImageFolder(tmp_path, durable=True)
    folder.open()
    return folder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return image_path(tmp_path, IMAGE.digest)


def unused(folder: ImageFolder) -> list[str]:
    return [digest for shard in range(SHARDS) for digest in folder.find_unused(shard, 1000)]


def test_repeated_image_is_stored_once_and_counts_as_new(folder: ImageFolder, tmp_path: Path, path: Path) -> None:
    folder.write([IMAGE, ImageFile("ab" * 32, b"two"), IMAGE])
    assert path.read_bytes() == b"one"
    assert len([file for file in tmp_path.rglob("*") if file.is_file()]) == 2
    os.utime(path, (0, 0))
    assert unused(folder) == [IMAGE.digest]
    folder.write([IMAGE])
    assert unused(folder) == []
    assert folder.remove([IMAGE.digest], 1000) == []
    assert path.exists()


def test_only_old_files_are_removed(folder: ImageFolder, tmp_path: Path, path: Path) -> None:
    new = ImageFile("ab" * 32, b"new")
    folder.write([IMAGE, new])
    os.utime(path, (0, 0))
    # A link to nothing does not keep them.
    path.with_name("link").symlink_to(tmp_path / "nothing")
    assert unused(folder) == [IMAGE.digest]
    assert folder.remove([IMAGE.digest, new.digest, "00" * 32], 1000) == [IMAGE.digest, "00" * 32]
    assert not path.exists()
    assert image_path(tmp_path, new.digest).exists()


def test_leftover_of_a_killed_write_is_removed_and_foreign_files_are_kept(
    folder: ImageFolder, tmp_path: Path, path: Path
) -> None:
    leftover = path.with_name(f"{IMAGE.digest}.77.123")
    others = [tmp_path / "ab" / name for name in ("README", ".hidden", "cd" * 31, "notes.1.txt")]
    for file in (leftover, *others):
        file.write_bytes(b"o")
        os.utime(file, (0, 0))
    assert unused(folder) == []
    assert not leftover.exists()
    assert all(other.exists() for other in others)


def test_failed_write_leaves_no_file(tmp_path: Path, path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(StoreError, match="Is a directory"):
        ImageFolder(tmp_path, durable=False).write([IMAGE])
    assert list(path.parent.iterdir()) == [path]


def test_removed_folder_and_empty_file_are_written_again(folder: ImageFolder, tmp_path: Path, path: Path) -> None:
    shutil.rmtree(tmp_path)
    folder.write([IMAGE])
    assert path.read_bytes() == b"one"
    path.write_bytes(b"")
    folder.write([IMAGE])
    assert path.read_bytes() == b"one"
