"""Files that `charioteer pack` puts into an archive or rejects, and how a manifest is written and used."""

import io
import json
import os
import pickle
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from app.core.assembly.discovery import model_at
from app.core.settings.model import ModelError
from app.core.settings.server import DEMO_MODELS
from app.plugins.authoring.check import check
from app.plugins.authoring.pack import archive, manifest, members, pack
from tests.support.archives import unpack
from tests.support.command_line import output_of
from tests.support.servers.server_process import ROOT

DETECTOR = ROOT / "fixtures" / "models" / "detector"

NAMED_DETECTOR = b'{\n  "name": "detector"\n}\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "shapes"
    (path / "b").mkdir(parents=True)
    (path / "b" / "labels.txt").write_text("red\n")
    (path / "a.json").write_text("{}")
    return path


def contents(file: Path) -> dict[str, bytes]:
    with tarfile.open(file) as tar:
        files = {member.name: tar.extractfile(member) for member in tar.getmembers()}
        return {name: content.read() for name, content in files.items() if content is not None}


def test_archive_has_the_files_relative_to_the_folder(folder: Path, tmp_path: Path) -> None:
    packed, _ = members(folder)
    archive(folder, packed, tmp_path / "out.tar.gz")
    with tarfile.open(tmp_path / "out.tar.gz") as tar:
        assert tar.getnames() == ["a.json", "b/labels.txt"]
        owners = {(m.uid, m.gid, m.uname, m.gname, m.mtime, m.mode) for m in tar.getmembers()}
        assert owners == {(0, 0, "", "", 0, 0o644)}
    unpack(tmp_path / "out.tar.gz", tmp_path / "back")
    assert (tmp_path / "back" / "b" / "labels.txt").read_text() == "red\n"


def test_same_files_make_an_identical_archive(folder: Path, tmp_path: Path) -> None:
    before = archive(folder, members(folder)[0], tmp_path / "one.tar.gz")
    os.utime(folder / "a.json", (1, 1))
    (folder / "a.json").chmod(0o600)
    assert archive(folder, members(folder)[0], tmp_path / "two.tar.gz") == before
    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "two.tar.gz").read_bytes()
    (folder / "a.json").write_text("[]")
    assert archive(folder, members(folder)[0], tmp_path / "two.tar.gz") != before


def test_hidden_files_are_left_out(folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("")
    (folder / "b" / "__pycache__").mkdir()
    packed, left_out = members(folder)
    assert [str(path) for path in packed] == ["a.json", "b/labels.txt"]
    assert [str(path) for path in left_out] == [".git", "b/__pycache__"]


def test_link_within_the_folder_is_packed_as_its_file(folder: Path, tmp_path: Path) -> None:
    (folder / "c.txt").symlink_to("b/labels.txt")
    archive(folder, members(folder)[0], tmp_path / "out.tar.gz")
    assert contents(tmp_path / "out.tar.gz")["c.txt"] == b"red\n"


def write_torch_archive(file: Path) -> None:
    with zipfile.ZipFile(file, "w") as torch_file:
        torch_file.writestr("archive/data.pkl", pickle.dumps([]))


UNSAFE_FILES: list[tuple[Callable[[Path], object], str]] = [
    (lambda file: file.symlink_to("../secret"), "is a link to ../secret"),
    (lambda file: file.symlink_to("nothing"), "is a link to nothing"),
    (lambda file: file.symlink_to("."), "is a link to ."),
    (os.mkfifo, "neither a file nor a folder"),
    (lambda file: file.write_bytes(pickle.dumps({"a": 1})), "is a pickle"),
    (write_torch_archive, "is a pickle"),
    (lambda file: file.with_suffix(".PTH").write_bytes(b""), "is a pickle"),
]


@pytest.mark.parametrize(("create", "message"), UNSAFE_FILES)
def test_unsafe_file_is_rejected(folder: Path, create: Callable[[Path], object], message: str) -> None:
    (folder.parent / "secret").write_text("")
    create(folder / "x")
    with pytest.raises(ModelError, match=message):
        members(folder)


def zip_with_a_broken_name() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("é", "")
    return buffer.getvalue().replace("é".encode(), b"\xff\xff")


@pytest.mark.parametrize(
    "content", [b"", b"\x80", b"\x80\x02 not one", b"PK\x03\x04", b"PK\x03\x04 broken", zip_with_a_broken_name()]
)
def test_file_that_only_resembles_a_pickle_is_packed(folder: Path, content: bytes) -> None:
    (folder / "x").write_bytes(content)
    assert "x" in [str(path) for path in members(folder)[0]]


def test_failed_archive_leaves_no_file(folder: Path, tmp_path: Path) -> None:
    packed, _ = members(folder)
    (folder / "a.json").unlink()
    with pytest.raises(OSError):
        archive(folder, packed, tmp_path / "out.tar.gz")
    assert [path.name for path in tmp_path.iterdir()] == ["shapes"]


def test_command_prints_the_packed_files(tmp_path: Path) -> None:
    file = tmp_path / "model.tar.gz"
    output = output_of("pack", DETECTOR, "--output", file)
    model_file = (DETECTOR / "model.onnx").read_bytes()
    assert contents(file) == {"model-settings.json": NAMED_DETECTOR, "model.onnx": model_file}
    summary = ("OBJECT_DETECTION", "model.onnx", str(len(model_file)), "1 file, 1.9 MB", "sha256")
    for text in (*summary, "model-settings.json in the archive names the model detector"):
        assert text in output
    start = 'For Chariot\'s catalogue, detector: {"artifact_type":"custom-engine","task_type":"OBJECT_DETECTION",'
    assert f'{start}"class_labels":{{"red circle":0,"red square":1,' in output
    assert output.rstrip().endswith('"license":null}')


@pytest.mark.parametrize(
    ("card", "licence"),
    [
        ("---\nlicense: apache-2.0\ntags: [a]\n---\n# Shapes\n", "apache-2.0"),
        ("# License\n---\nlicense: mit\n---\n", None),
    ],
)
def test_licence_for_the_catalogue_is_in_the_model_card(
    model: Path, tmp_path: Path, card: str, licence: str | None
) -> None:
    (model / "README.md").write_text(card)
    output = output_of("pack", model, "--output", tmp_path / "m.tar.gz")
    assert output.rstrip().endswith(f'"license":{json.dumps(licence)}}}')


def test_licence_for_the_catalogue_is_in_the_onnx_file(model: Path, tmp_path: Path) -> None:
    graph = onnx.load(model / "model.onnx")
    graph.metadata_props.add(key="license", value="AGPL-3.0")
    onnx.save(graph, model / "model.onnx")
    output = output_of("pack", model, "--output", tmp_path / "m.tar.gz")
    assert output.rstrip().endswith('"license":"AGPL-3.0"}')


def test_packed_model_keeps_its_name_and_settings_in_any_folder(model: Path, tmp_path: Path) -> None:
    (model / "model-settings.json").write_text('{"parameters": {"score_threshold": 0.25}}')
    pack(model, output=tmp_path / "m.tar.gz")
    unpack(tmp_path / "m.tar.gz", tmp_path / "models")
    (source,) = model_at(tmp_path / "models")
    assert (source.name, source.settings.parameters) == (model.name, {"score_threshold": 0.25})
    assert (model / "model-settings.json").read_text() == '{"parameters": {"score_threshold": 0.25}}'


def test_name_in_the_settings_is_packed_as_it_is(model: Path, tmp_path: Path) -> None:
    settings = b'{"name":   "shapes"}'
    (model / "model-settings.json").write_bytes(settings)
    pack(model, output=tmp_path / "m.tar.gz")
    assert contents(tmp_path / "m.tar.gz")["model-settings.json"] == settings


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("model.zip", "ends in .tar.gz"),
        ("shapes/model.tar.gz", "is inside the packed folder"),
        ("no/model.tar.gz", "There is no folder"),
    ],
)
def test_command_rejects_an_invalid_output_path(folder: Path, tmp_path: Path, output: str, message: str) -> None:
    printed = output_of("pack", folder, "--output", tmp_path / output, status=1)
    assert message in printed
    assert "Traceback" not in printed


def test_a_model_that_fails_the_check_is_not_packed(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "model.onnx").write_bytes(b"not a model")
    output = output_of("pack", tmp_path / "broken", "--output", tmp_path / "model.tar.gz", status=1)
    assert "cannot be served" in output
    assert not (tmp_path / "model.tar.gz").exists()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "halves"
    path.mkdir()
    shutil.copy(DEMO_MODELS / "half_plus_two" / "model.onnx", path)
    return path


def test_manifest_reports_files_and_an_outdated_signature(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest(model)
    assert capsys.readouterr().out == f"Wrote {model / 'model.sha256'}: 1 file\n"
    (model / "model.sha256.sig").write_bytes(b"")
    (model / "notes.txt").write_text("")
    manifest(model)
    summary, advice = capsys.readouterr().out.splitlines()
    assert summary.endswith("2 files")
    assert advice == f"{model / 'model.sha256.sig'} is outdated; sign the new list"


def test_manifest_of_an_empty_folder_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="holds no files to list"):
        manifest(tmp_path)


def test_check_reports_a_missing_manifest_and_an_unlisted_file(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        check(model, require_manifest=True)
    assert "has no model.sha256" in capsys.readouterr().out
    manifest(model)
    check(model, require_manifest=True)
    (model / "helper.py").write_text("")
    with pytest.raises(SystemExit):
        check(model)
    assert "helper.py is not listed in" in capsys.readouterr().out


def test_pack_includes_the_manifest_and_rejects_unlisted_files(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest(model)
    pack(model, output=tmp_path / "m.tar.gz")
    assert "called models in /mnt/models" in capsys.readouterr().out
    with tarfile.open(tmp_path / "m.tar.gz") as tar:
        assert tar.getnames() == ["model.onnx", "model.sha256"]
    unpack(tmp_path / "m.tar.gz", tmp_path / "back")
    check(tmp_path / "back", require_manifest=True)
    (model / "late.txt").write_text("")
    with pytest.raises(SystemExit):
        pack(model, output=tmp_path / "late.tar.gz")
    assert not (tmp_path / "late.tar.gz").exists()
