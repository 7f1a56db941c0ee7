"""The folder of recorded images."""

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from app.plugins.recording.images import SHARDS, ImageFile, ImageFolder, image_path
from app.plugins.recording.stores.store import StoreError


def image_file(content: bytes) -> ImageFile:
    return ImageFile(hashlib.sha256(content).hexdigest(), content)


@pytest.fixture
def folder(tmp_path: Path) -> ImageFolder:
    folder = ImageFolder(tmp_path / "images", durable=True)
    folder.open()
    return folder


def unused(folder: ImageFolder, since: float) -> list[str]:
    return [digest for shard in range(SHARDS) for digest in folder.find_unused(shard, since)]


def test_image_is_stored_under_its_digest(folder: ImageFolder, tmp_path: Path) -> None:
    image = image_file(b"one")
    folder.write([image, image_file(b"two"), image])
    path = image_path(tmp_path / "images", image.digest)
    assert path.read_bytes() == b"one"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
    assert len([file for file in (tmp_path / "images").rglob("*") if file.is_file()]) == 2


def test_repeated_image_counts_as_new(folder: ImageFolder, tmp_path: Path) -> None:
    image = image_file(b"one")
    folder.write([image])
    path = image_path(tmp_path / "images", image.digest)
    os.utime(path, (0, 0))
    assert unused(folder, 1000) == [image.digest]
    folder.write([image])
    assert unused(folder, 1000) == []
    assert folder.remove([image.digest], 1000) == []
    assert path.exists()


def test_only_old_files_are_removed(folder: ImageFolder, tmp_path: Path) -> None:
    old, new = image_file(b"old"), image_file(b"new")
    folder.write([old, new])
    os.utime(image_path(tmp_path / "images", old.digest), (0, 0))
    assert folder.remove([old.digest, new.digest, "00" * 32], 1000) == [old.digest, "00" * 32]
    assert not image_path(tmp_path / "images", old.digest).exists()
    assert image_path(tmp_path / "images", new.digest).exists()


def test_leftover_of_killed_write_is_removed(folder: ImageFolder, tmp_path: Path) -> None:
    image = image_file(b"one")
    leftover = image_path(tmp_path / "images", image.digest).with_name(f"{image.digest}.77.123")
    leftover.write_bytes(b"o")
    os.utime(leftover, (0, 0))
    assert unused(folder, 1000) == []
    assert not leftover.exists()


def test_link_to_nothing_does_not_keep_old_files(folder: ImageFolder, tmp_path: Path) -> None:
    image = image_file(b"one")
    folder.write([image])
    path = image_path(tmp_path / "images", image.digest)
    os.utime(path, (0, 0))
    path.with_name("link").symlink_to(tmp_path / "nothing")
    assert unused(folder, 1000) == [image.digest]


def test_foreign_files_are_kept(folder: ImageFolder, tmp_path: Path) -> None:
    others = [tmp_path / "images" / "ab" / name for name in ("README", ".hidden", "cd" * 31, "notes.1.txt")]
    for other in others:
        other.write_bytes(b"o")
        os.utime(other, (0, 0))
    assert unused(folder, 1000) == []
    assert all(other.exists() for other in others)


def test_failed_write_leaves_no_file(tmp_path: Path) -> None:
    folder = ImageFolder(tmp_path, durable=False)
    image = image_file(b"one")
    path = image_path(tmp_path, image.digest)
    path.mkdir(parents=True)
    with pytest.raises(StoreError, match="Is a directory"):
        folder.write([image])
    assert list(path.parent.iterdir()) == [path]


def test_removed_folder_is_created_again(folder: ImageFolder, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "images")
    image = image_file(b"one")
    folder.write([image])
    assert image_path(tmp_path / "images", image.digest).read_bytes() == b"one"


def test_empty_file_is_written_again(folder: ImageFolder, tmp_path: Path) -> None:
    image = image_file(b"one")
    folder.write([image])
    path = image_path(tmp_path / "images", image.digest)
    path.write_bytes(b"")
    folder.write([image])
    assert path.read_bytes() == b"one"
