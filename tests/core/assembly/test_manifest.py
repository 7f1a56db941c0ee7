"""A model is loaded only if its files match its manifest and, with keys, the manifest's signature."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from litestar.testing import TestClient

from app.core.assembly.discovery import model_at
from app.core.assembly.manifest import MANIFEST_FILE, SIGNATURE_FILE, checked_manifest
from app.core.assembly.models import describe, find_models, load
from app.core.engine.models.servable import Servable
from app.core.runtimes.folder import iterate_files
from app.core.settings.model import ModelError, ModelSource
from app.core.settings.server import DEMO_MODELS, ModelOptions
from app.plugins.authoring.pack import write_manifest
from tests.support.servers.apps import app_with_sources

GRAPH = DEMO_MODELS / "half_plus_two" / "model.onnx"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "halves"
    (path / "docs").mkdir(parents=True)
    shutil.copy(GRAPH, path)
    (path / "docs" / "read me.txt").write_text("halves and adds two")
    write_manifest(path)
    return path


def source_of(folder: Path, *, require: bool = False, key: Path | None = None) -> ModelSource:
    (source,) = find_models(ModelOptions(model=folder, require_manifest=require, model_signing_key=key))
    return source


def load_model(folder: Path, *, require: bool = False, key: Path | None = None) -> Servable:
    return load(source_of(folder, require=require, key=key))


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="there is no sha256sum")
def test_manifest_is_compatible_with_sha256sum(folder: Path) -> None:
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", MANIFEST_FILE], cwd=folder, check=True)
    written = (folder / MANIFEST_FILE).read_text()
    (folder / MANIFEST_FILE).unlink()
    command = "find . -type f ! -name 'model.sha256*' -exec sha256sum {} + > ../list && mv ../list model.sha256"
    subprocess.run(command, shell=True, cwd=folder, check=True)
    assert {line.replace("  ./", "  ") for line in (folder / MANIFEST_FILE).read_text().splitlines()} == {
        *written.splitlines()
    }
    load_model(folder, require=True)
    subprocess.run(command.replace("sha256sum", "sha256sum --binary"), shell=True, cwd=folder, check=True)
    load_model(folder)


def test_manifest_with_windows_line_ends_is_accepted(folder: Path) -> None:
    manifest = folder / MANIFEST_FILE
    lines = [line.partition("  ") for line in manifest.read_text().splitlines()]
    manifest.write_bytes("".join(f"{digest.upper()} *{name}\r\n" for digest, _, name in lines).encode())
    load_model(folder, require=True)
    change_a_file(folder)
    with pytest.raises(ModelError, match="is not the file"):
        load(source_of(folder))


def change_a_file(folder: Path) -> None:
    (folder / "docs" / "read me.txt").write_text("halves and adds one")


def add_a_file(folder: Path) -> None:
    (folder / "helper.py").write_text("")


def manifest_of(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """Return a function that changes the content of the manifest in a folder."""

    def rewrite(folder: Path) -> None:
        (folder / MANIFEST_FILE).write_bytes(change((folder / MANIFEST_FILE).read_bytes()))

    return rewrite


ZEROS = b"0" * 64
CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "changed file": (change_a_file, r"read me\.txt is not the file that .*model\.sha256 lists: its SHA-256 is "),
    "added file": (add_a_file, r"helper\.py is not listed in "),
    "missing file": (
        lambda folder: (folder / "docs/read me.txt").unlink(),
        r"lists docs/read me\.txt, which is",
    ),
    "link": (lambda folder: (folder / "alias.onnx").symlink_to("model.onnx"), r"alias\.onnx is not listed"),
    "repeated lines": (manifest_of(lambda lines: lines * 2), "is listed twice"),
    "no text": (manifest_of(lambda _: b"\xff\xfe"), "not a list as sha256sum writes it"),
    "empty manifest": (manifest_of(lambda _: b""), "line 1: Expected a SHA-256"),
    "escaped name": (manifest_of(lambda lines: lines + b"\\" + ZEROS + b"  a\\nb\n"), "line 3: Expected a SHA-256"),
    "absolute name": (manifest_of(lambda lines: lines + ZEROS + b"  /etc/passwd\n"), "line 3: Expected a SHA-256"),
    "huge manifest": (lambda folder: os.truncate(folder / MANIFEST_FILE, 2**30), "more than 16,777,216"),
}


@pytest.mark.parametrize(("change", "message"), CHANGES.values(), ids=CHANGES)
def test_model_that_differs_from_its_manifest_is_rejected(
    folder: Path, change: Callable[[Path], object], message: str
) -> None:
    change(folder)
    for use in (load, describe):
        with pytest.raises(ModelError, match=message):
            use(source_of(folder))


def test_model_without_a_manifest_is_loaded_unless_required(folder: Path) -> None:
    (folder / MANIFEST_FILE).unlink()
    load_model(folder)
    with pytest.raises(ModelError, match=r"has no model\.sha256"):
        load_model(folder, require=True)


def test_manifest_above_the_versions_is_checked_for_each_version(tmp_path: Path) -> None:
    for version in ("1", "2"):
        (tmp_path / "m" / version).mkdir(parents=True)
        shutil.copy(GRAPH, tmp_path / "m" / version)
    (tmp_path / "m" / "model-settings.json").write_text('{"name": "halves"}')
    write_manifest(tmp_path / "m")
    (tmp_path / "m" / "2" / "model.onnx").write_bytes(b"another")
    first, second = find_models(ModelOptions(model=tmp_path / "m", require_manifest=True))
    load(first)
    with pytest.raises(ModelError, match=r"2/model\.onnx is not the file"):
        load(second)
    (tmp_path / "m" / "model-settings.json").write_text('{"name": "halves", "default": true}')
    with pytest.raises(ModelError, match=r"model-settings\.json is not the file"):
        load(first)


def test_manifest_in_the_folder_of_a_version_is_rejected(tmp_path: Path) -> None:
    version = tmp_path / "m" / "1"
    version.mkdir(parents=True)
    shutil.copy(GRAPH, version)
    write_manifest(version)
    (version / "model.onnx").write_bytes(b"another")
    (source,) = find_models(ModelOptions(model=tmp_path / "m"))
    with pytest.raises(
        ModelError, match=r"1/model\.sha256 is ignored; put the list above the versions, at .*m/model\.sha"
    ):
        load(source)


def test_file_changed_during_loading_is_rejected(folder: Path) -> None:
    def rewrite(graph: Path) -> None:
        content, times = graph.read_bytes(), graph.stat()
        graph.write_bytes(content)
        os.utime(graph, ns=(times.st_atime_ns, times.st_mtime_ns))

    source = source_of(folder)
    with checked_manifest(source):
        pass
    with pytest.raises(ModelError, match=r"model\.onnx changed while the model was loaded"), checked_manifest(source):
        rewrite(folder / "model.onnx")


def test_file_added_during_loading_is_rejected(folder: Path) -> None:
    with pytest.raises(ModelError, match=r"helper\.py changed"), checked_manifest(source_of(folder)):
        add_a_file(folder)


def test_file_name_with_a_newline_is_rejected(folder: Path) -> None:
    before = (folder / MANIFEST_FILE).read_text()
    (folder / "a\nb").write_text("")
    with pytest.raises(ModelError, match="characters in its name"):
        write_manifest(folder)
    assert (folder / MANIFEST_FILE).read_text() == before
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_manifest_can_be_read_by_the_server_of_another_user(folder: Path) -> None:
    umask = os.umask(0o077)
    try:
        write_manifest(folder)
    finally:
        os.umask(umask)
    assert (folder / MANIFEST_FILE).stat().st_mode & 0o777 == 0o644


def openssl(*arguments: str, folder: Path) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


def make_key(folder: Path, name: str) -> Path:
    openssl("genpkey", "-algorithm", "ed25519", "-out", f"{name}.pem", folder=folder)
    openssl("pkey", "-in", f"{name}.pem", "-pubout", "-out", f"{name}.pub.pem", folder=folder)
    return folder / f"{name}.pub.pem"


def sign(folder: Path, key: Path) -> None:
    private = str(key).replace(".pub", "")
    arguments = ("-inkey", private, "-in", MANIFEST_FILE, "-out", SIGNATURE_FILE)
    openssl("pkeyutl", "-sign", "-rawin", *arguments, folder=folder)


needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")


@needs_openssl
def test_signature_of_any_configured_key_is_accepted(folder: Path, tmp_path: Path) -> None:
    old, new, foreign = (make_key(tmp_path, name) for name in ("old", "new", "foreign"))
    keys = tmp_path / "keys.pem"
    keys.write_text(f"# the team's\n{old.read_text()}{new.read_text()}")
    with pytest.raises(ModelError, match=r"model\.sha256\.sig is missing"):
        load_model(folder, key=keys)
    for key in (old, new):
        sign(folder, key)
        load_model(folder, key=keys)
    sign(folder, foreign)
    with pytest.raises(ModelError, match=r"is not the signature of this model\.sha256"):
        load_model(folder, key=keys)
    load_model(folder)


@needs_openssl
def test_signature_of_another_manifest_is_rejected(folder: Path, tmp_path: Path) -> None:
    key = make_key(tmp_path, "key")
    sign(folder, key)
    change_a_file(folder)
    with pytest.raises(ModelError, match="is not the file"):
        load_model(folder, key=key)
    write_manifest(folder)
    with pytest.raises(ModelError, match="is not the signature"):
        load_model(folder, key=key)
    (folder / SIGNATURE_FILE).write_bytes(b"short")
    with pytest.raises(ModelError, match="has 5 bytes; expected the 64"):
        load_model(folder, key=key)
    (folder / MANIFEST_FILE).unlink()
    with pytest.raises(ModelError, match=r"has no model\.sha256"):
        load_model(folder, key=key)


@needs_openssl
def test_unusable_signing_keys_reject_every_model(folder: Path, tmp_path: Path) -> None:
    key = make_key(tmp_path, "key")
    sign(folder, key)
    broken = tmp_path / "broken.pem"
    openssl("genpkey", "-algorithm", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", "ec.pem", folder=tmp_path)
    openssl("pkey", "-in", "ec.pem", "-pubout", "-out", "ec.pub.pem", folder=tmp_path)
    private = (tmp_path / "key.pem").read_text()
    elliptic = (tmp_path / "ec.pub.pem").read_text()
    damaged = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"
    for content in ("", "no key", private, elliptic, elliptic + key.read_text(), damaged):
        broken.write_text(content)
        with pytest.raises(ModelError, match=r"broken\.pem") as rejected:
            load_model(folder, key=broken)
        assert private.splitlines()[1] not in str(rejected.value)
    with pytest.raises(ModelError, match=r"nowhere\.pem cannot be read"):
        load_model(folder, key=tmp_path / "nowhere.pem")


def test_manifest_and_signature_are_not_listed(folder: Path) -> None:
    (folder / SIGNATURE_FILE).write_bytes(b"")
    assert write_manifest(folder) == 2
    (source,) = model_at(folder)
    assert len([*iterate_files(source)]) == 4


def test_load_request_checks_the_manifest_and_keeps_the_served_version(folder: Path) -> None:
    def discover_models() -> list[ModelSource]:
        return [*find_models(ModelOptions(model=folder, require_manifest=True))]

    request = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}
    with TestClient(app_with_sources(discover_models(), load, discover=discover_models)) as client:
        add_a_file(folder)
        rejected = client.post("/v2/repository/models/halves/load")
        assert rejected.status_code == 503
        assert client.post("/v2/models/halves/infer", json=request).json()["outputs"][0]["data"] == [2.5]
        write_manifest(folder)
        assert client.post("/v2/repository/models/halves/load").status_code == 200
