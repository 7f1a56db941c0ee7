"""`charioteer manifest`, and what `check` and `pack` make of a list."""

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from app.assembly.models import FIXTURE_MODELS
from app.cli.check import check
from app.cli.manifest import manifest
from app.cli.pack import pack
from app.settings.model import ModelError
from tests.support.server_process import ROOT


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "halves"
    made.mkdir()
    shutil.copy(FIXTURE_MODELS / "half_plus_two" / "model.onnx", made)
    return made


def test_it_says_what_it_wrote_and_what_is_out_of_date(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest(folder)
    assert capsys.readouterr().out == f"Wrote {folder / 'model.sha256'}: 1 file\n"
    (folder / "model.sha256.sig").write_bytes(b"")
    (folder / "notes.txt").write_text("")
    manifest(folder)
    wrote, advice = capsys.readouterr().out.splitlines()
    assert wrote.endswith("2 files")
    assert advice == f"{folder / 'model.sha256.sig'} is outdated; sign the new list"


def test_an_empty_folder_is_not_listed(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="holds no files to list"):
        manifest(tmp_path)


def test_check_says_whether_a_model_is_still_as_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        check(folder, require_manifest=True)
    assert "has no model.sha256" in capsys.readouterr().out
    manifest(folder)
    check(folder, require_manifest=True)
    (folder / "helper.py").write_text("")
    with pytest.raises(SystemExit):
        check(folder)
    assert "helper.py is not listed in" in capsys.readouterr().out


def test_pack_takes_the_list_along_and_holds_the_folder_to_it(folder: Path, tmp_path: Path) -> None:
    manifest(folder)
    pack(folder, output=tmp_path / "m.tar.gz")
    with tarfile.open(tmp_path / "m.tar.gz") as tar:
        assert tar.getnames() == ["model.onnx", "model.sha256"]
        tar.extractall(tmp_path / "back", filter="data")
    check(tmp_path / "back", require_manifest=True)
    (folder / "late.txt").write_text("")
    with pytest.raises(SystemExit):
        pack(folder, output=tmp_path / "late.tar.gz")
    assert not (tmp_path / "late.tar.gz").exists()


@pytest.mark.slow
def test_a_server_takes_no_model_without_a_list_where_one_is_required(folder: Path) -> None:
    command = [sys.executable, "-m", "app", "serve", "--model", str(folder), "--require-manifest"]
    ports = ["--port", "0", "--no-grpc", "--no-tensorflow-serving"]
    done = subprocess.run([*command, *ports], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "has no model.sha256, and models without one are not loaded here" in done.stderr
    assert "Traceback" not in done.stderr
