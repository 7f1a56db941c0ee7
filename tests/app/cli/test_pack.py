"""What `charioteer pack` puts into an archive, and what it refuses to."""

import os
import pickle
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from app.cli.pack import archive, members
from app.settings.model import ModelError
from tests.support.server_process import ROOT

DETECTOR = ROOT / "fixtures" / "models" / "detector"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "shapes"
    (made / "b").mkdir(parents=True)
    (made / "b" / "labels.txt").write_text("red\n")
    (made / "a.json").write_text("{}")
    return made


def contents(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as tar:
        found = {each.name: tar.extractfile(each) for each in tar.getmembers()}
        return {name: content.read() for name, content in found.items() if content is not None}


def test_files_lie_in_it_as_below_the_folder(folder: Path, tmp_path: Path) -> None:
    packed, _ = members(folder)
    archive(folder, packed, tmp_path / "out.tar.gz")
    with tarfile.open(tmp_path / "out.tar.gz") as tar:
        assert tar.getnames() == ["a.json", "b/labels.txt"]
        assert {(each.uid, each.gid, each.uname, each.gname, each.mtime, each.mode) for each in tar.getmembers()} == {
            (0, 0, "", "", 0, 0o644)
        }
        tar.extractall(tmp_path / "back", filter="data")
    assert (tmp_path / "back" / "b" / "labels.txt").read_text() == "red\n"


def test_the_same_files_make_the_same_archive(folder: Path, tmp_path: Path) -> None:
    before = archive(folder, members(folder)[0], tmp_path / "one.tar.gz")
    os.utime(folder / "a.json", (1, 1))
    (folder / "a.json").chmod(0o600)
    assert archive(folder, members(folder)[0], tmp_path / "two.tar.gz") == before
    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "two.tar.gz").read_bytes()
    (folder / "a.json").write_text("[]")
    assert archive(folder, members(folder)[0], tmp_path / "two.tar.gz") != before


def test_what_is_hidden_is_left_out(folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("")
    (folder / "b" / "__pycache__").mkdir()
    packed, left_out = members(folder)
    assert [str(each) for each in packed] == ["a.json", "b/labels.txt"]
    assert [str(each) for each in left_out] == [".git", "b/__pycache__"]


def test_a_link_within_the_folder_counts_as_its_file(folder: Path, tmp_path: Path) -> None:
    (folder / "c.txt").symlink_to("b/labels.txt")
    archive(folder, members(folder)[0], tmp_path / "out.tar.gz")
    assert contents(tmp_path / "out.tar.gz")["c.txt"] == b"red\n"


def leading_out(folder: Path) -> None:
    (folder.parent / "secret").write_text("")
    (folder / "x").symlink_to("../secret")


def to_nothing(folder: Path) -> None:
    (folder / "x").symlink_to("nothing")


def to_a_folder(folder: Path) -> None:
    (folder / "x").symlink_to(".")


def a_pipe(folder: Path) -> None:
    os.mkfifo(folder / "x")


def a_pickle(folder: Path) -> None:
    (folder / "x").write_bytes(pickle.dumps({"a": 1}))


def as_torch_saves(folder: Path) -> None:
    with zipfile.ZipFile(folder / "x", "w") as made:
        made.writestr("archive/data.pkl", pickle.dumps([]))


def by_its_name(folder: Path) -> None:
    (folder / "x.PTH").write_bytes(b"")


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (leading_out, "is a link to ../secret"),
        (to_nothing, "is a link to nothing"),
        (to_a_folder, "is a link to ."),
        (a_pipe, "neither a file nor a folder"),
        (a_pickle, "is a pickle"),
        (as_torch_saves, "is a pickle"),
        (by_its_name, "is a pickle"),
    ],
)
def test_it_refuses(folder: Path, plant: Callable[[Path], None], said: str) -> None:
    plant(folder)
    with pytest.raises(ModelError, match=said):
        members(folder)


@pytest.mark.parametrize("content", [b"", b"\x80", b"\x80\x02 not one", b"PK\x03\x04", b"PK\x03\x04 broken"])
def test_what_only_looks_like_a_pickle_is_packed(folder: Path, content: bytes) -> None:
    (folder / "x").write_bytes(content)
    assert "x" in [str(each) for each in members(folder)[0]]


def test_nothing_is_left_behind_when_a_file_is_gone(folder: Path, tmp_path: Path) -> None:
    packed, _ = members(folder)
    (folder / "a.json").unlink()
    with pytest.raises(OSError):
        archive(folder, packed, tmp_path / "out.tar.gz")
    assert [each.name for each in tmp_path.iterdir()] == ["shapes"]


def pack(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "app", "pack", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
def test_the_command_says_what_it_packed(tmp_path: Path) -> None:
    output = tmp_path / "model.tar.gz"
    done = pack(DETECTOR, "--output", output)
    assert done.returncode == 0, done.stderr
    assert contents(output) == {"model.onnx": (DETECTOR / "model.onnx").read_bytes()}
    for said in (
        "OBJECT_DETECTION",
        "model.onnx",
        "1859720",
        "1 file, 1.9 MB",
        "sha256",
        "called models in /mnt/models",
    ):
        assert said in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("model.zip", "ends in .tar.gz"),
        ("shapes/model.tar.gz", "is inside the packed folder"),
        ("no/model.tar.gz", "There is no folder"),
    ],
)
def test_the_command_refuses_an_output(folder: Path, tmp_path: Path, output: str, said: str) -> None:
    done = pack(folder, "--output", tmp_path / output)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_model_that_fails_the_check_is_not_packed(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "model.onnx").write_bytes(b"not a model")
    done = pack(tmp_path / "broken", "--output", tmp_path / "model.tar.gz")
    assert done.returncode == 1
    assert "cannot be served" in done.stdout
    assert not (tmp_path / "model.tar.gz").exists()
