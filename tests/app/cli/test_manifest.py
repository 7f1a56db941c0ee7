"""`charioteer manifest`, and how `check` and `pack` use a manifest."""

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from app.assembly.models import FIXTURE_MODELS
from app.cli.model.check import check
from app.cli.model.manifest import manifest
from app.cli.model.pack import pack
from app.settings.model import ModelError
from tests.support.server_process import ROOT


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "halves"
    path.mkdir()
    shutil.copy(FIXTURE_MODELS / "half_plus_two" / "model.onnx", path)
    return path


def test_manifest_reports_files_and_an_outdated_signature(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest(folder)
    assert capsys.readouterr().out == f"Wrote {folder / 'model.sha256'}: 1 file\n"
    (folder / "model.sha256.sig").write_bytes(b"")
    (folder / "notes.txt").write_text("")
    manifest(folder)
    summary, advice = capsys.readouterr().out.splitlines()
    assert summary.endswith("2 files")
    assert advice == f"{folder / 'model.sha256.sig'} is outdated; sign the new list"


def test_manifest_of_an_empty_folder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="holds no files to list"):
        manifest(tmp_path)


def test_check_reports_a_missing_manifest_and_an_unlisted_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        check(folder, require_manifest=True)
    assert "has no model.sha256" in capsys.readouterr().out
    manifest(folder)
    check(folder, require_manifest=True)
    (folder / "helper.py").write_text("")
    with pytest.raises(SystemExit):
        check(folder)
    assert "helper.py is not listed in" in capsys.readouterr().out


def test_pack_includes_the_manifest_and_rejects_unlisted_files(folder: Path, tmp_path: Path) -> None:
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
def test_serve_rejects_a_model_without_the_required_manifest(folder: Path) -> None:
    command = [sys.executable, "-m", "app", "serve", "--model", str(folder), "--require-manifest"]
    ports = ["--port", "0", "--no-grpc", "--no-tensorflow-serving"]
    completed = subprocess.run([*command, *ports], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert completed.returncode == 1
    assert "has no model.sha256, and models without one are not loaded here" in completed.stderr
    assert "Traceback" not in completed.stderr
