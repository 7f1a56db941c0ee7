"""Images beside their records."""

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from app.recording.images import SHARDS, ImageFile, ImageFolder, image_path


def picture(content: bytes) -> ImageFile:
    return ImageFile(hashlib.sha256(content).hexdigest(), content)


@pytest.fixture
def folder(tmp_path: Path) -> ImageFolder:
    folder = ImageFolder(tmp_path / "images", durable=True)
    folder.open()
    return folder


def unused(folder: ImageFolder, since: float) -> list[str]:
    return [digest for shard in range(SHARDS) for digest in folder.unused(shard, since)]


def test_an_image_lies_under_its_digest(folder: ImageFolder, tmp_path: Path) -> None:
    image = picture(b"one")
    folder.write([image, picture(b"two"), image])
    path = image_path(tmp_path / "images", image.digest)
    assert path.read_bytes() == b"one"
    assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
    assert len([each for each in (tmp_path / "images").rglob("*") if each.is_file()]) == 2


def test_an_image_that_is_sent_again_is_new_again(folder: ImageFolder, tmp_path: Path) -> None:
    image = picture(b"one")
    folder.write([image])
    path = image_path(tmp_path / "images", image.digest)
    os.utime(path, (0, 0))
    assert unused(folder, 1000) == [image.digest]
    folder.write([image])
    assert unused(folder, 1000) == []
    assert folder.remove([image.digest], 1000) == []
    assert path.exists()


def test_only_old_files_are_removed(folder: ImageFolder, tmp_path: Path) -> None:
    old, new = picture(b"old"), picture(b"new")
    folder.write([old, new])
    os.utime(image_path(tmp_path / "images", old.digest), (0, 0))
    assert folder.remove([old.digest, new.digest, "00" * 32], 1000) == [old.digest, "00" * 32]
    assert not image_path(tmp_path / "images", old.digest).exists()
    assert image_path(tmp_path / "images", new.digest).exists()


def test_what_a_kill_left_behind_is_removed_in_time(folder: ImageFolder, tmp_path: Path) -> None:
    image = picture(b"one")
    leftover = image_path(tmp_path / "images", image.digest).with_name(f"{image.digest}.77.123")
    leftover.write_bytes(b"o")
    os.utime(leftover, (0, 0))
    assert unused(folder, 1000) == []
    assert not leftover.exists()


def test_what_somebody_else_put_there_stays(folder: ImageFolder, tmp_path: Path) -> None:
    others = [tmp_path / "images" / "ab" / name for name in ("README", ".hidden", "cd" * 31, "notes.1.txt")]
    for other in others:
        other.write_bytes(b"o")
        os.utime(other, (0, 0))
    assert unused(folder, 1000) == []
    assert all(other.exists() for other in others)


def test_a_folder_that_cannot_be_made_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="Not a directory"):
        ImageFolder(tmp_path / "file" / "images", durable=False).open()


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    folder = ImageFolder(tmp_path, durable=False)
    image = picture(b"one")
    path = image_path(tmp_path, image.digest)
    path.mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        folder.write([image])
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_that_was_emptied_is_filled_again(folder: ImageFolder, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "images")
    image = picture(b"one")
    folder.write([image])
    assert image_path(tmp_path / "images", image.digest).read_bytes() == b"one"


def test_a_file_that_lost_its_content_with_the_power_is_written_again(folder: ImageFolder, tmp_path: Path) -> None:
    image = picture(b"one")
    folder.write([image])
    path = image_path(tmp_path / "images", image.digest)
    path.write_bytes(b"")
    folder.write([image])
    assert path.read_bytes() == b"one"
