"""A model is loaded as it is listed, and signed, or not at all."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from litestar.testing import TestClient

from app.assembly.discovery import model_at
from app.assembly.manifest import MANIFEST_FILE, SIGNATURE_FILE, check_manifest, write_manifest
from app.assembly.models import FIXTURE_MODELS, describe, load, sources
from app.engine.servable import Servable
from app.runtimes.folder import files_of
from app.settings.model import ModelError, ModelSource
from app.settings.server import ModelOptions
from tests.support.served import application

GRAPH = FIXTURE_MODELS / "half_plus_two" / "model.onnx"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "halves"
    (made / "docs").mkdir(parents=True)
    shutil.copy(GRAPH, made)
    (made / "docs" / "read me.txt").write_text("halves and adds two")
    write_manifest(made)
    return made


def one(folder: Path, *, require: bool = False, key: Path | None = None) -> ModelSource:
    (found,) = sources(ModelOptions(model=folder, require_manifest=require, model_signing_key=key))
    return found


def loaded(folder: Path, *, require: bool = False, key: Path | None = None) -> Servable:
    return load(one(folder, require=require, key=key))


def test_a_model_is_loaded_as_it_is_listed(folder: Path) -> None:
    assert loaded(folder, require=True).description == describe(one(folder))


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="there is no sha256sum")
def test_the_list_is_that_of_sha256sum(folder: Path) -> None:
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", MANIFEST_FILE], cwd=folder, check=True)
    written = (folder / MANIFEST_FILE).read_text()
    (folder / MANIFEST_FILE).unlink()
    command = "find . -type f ! -name 'model.sha256*' -exec sha256sum {} + > ../list && mv ../list model.sha256"
    subprocess.run(command, shell=True, cwd=folder, check=True)
    assert {line.replace("  ./", "  ") for line in (folder / MANIFEST_FILE).read_text().splitlines()} == {
        *written.splitlines()
    }
    loaded(folder, require=True)
    subprocess.run(command.replace("sha256sum", "sha256sum --binary"), shell=True, cwd=folder, check=True)
    loaded(folder)


def test_a_list_may_have_been_by_way_of_windows(folder: Path) -> None:
    manifest = folder / MANIFEST_FILE
    lines = [line.partition("  ") for line in manifest.read_text().splitlines()]
    manifest.write_bytes("".join(f"{digest.upper()} *{place}\r\n" for digest, _, place in lines).encode())
    loaded(folder, require=True)
    a_changed_file(folder)
    with pytest.raises(ModelError, match="is not the file"):
        load(one(folder))


def a_changed_file(folder: Path) -> None:
    (folder / "docs" / "read me.txt").write_text("halves and adds one")


def another_file(folder: Path) -> None:
    (folder / "helper.py").write_text("")


def a_missing_file(folder: Path) -> None:
    (folder / "docs" / "read me.txt").unlink()


def a_link_to_a_listed_file(folder: Path) -> None:
    (folder / "alias.onnx").symlink_to("model.onnx")


def a_line_twice(folder: Path) -> None:
    manifest = folder / MANIFEST_FILE
    manifest.write_text(manifest.read_text() * 2)


def no_list(folder: Path) -> None:
    (folder / MANIFEST_FILE).write_bytes(b"\xff\xfe")


def an_empty_list(folder: Path) -> None:
    (folder / MANIFEST_FILE).write_text("")


def an_escaped_name(folder: Path) -> None:
    with (folder / MANIFEST_FILE).open("a") as file:
        file.write(f"\\{'0' * 64}  a\\nb\n")


def an_absolute_name(folder: Path) -> None:
    with (folder / MANIFEST_FILE).open("a") as file:
        file.write(f"{'0' * 64}  /etc/passwd\n")


def a_huge_list(folder: Path) -> None:
    os.truncate(folder / MANIFEST_FILE, 2**30)


CHANGES: list[tuple[Callable[[Path], None], str]] = [
    (a_changed_file, r"read me\.txt is not the file that .*model\.sha256 lists: its SHA-256 is "),
    (another_file, r"helper\.py is not listed in "),
    (a_missing_file, r"lists docs/read me\.txt, which is missing or hidden"),
    (a_link_to_a_listed_file, r"alias\.onnx is not listed"),
    (a_line_twice, "is listed twice"),
    (no_list, "not a list as sha256sum writes it"),
    (an_empty_list, "line 1: Expected a SHA-256"),
    (an_escaped_name, "line 3: Expected a SHA-256"),
    (an_absolute_name, "line 3: Expected a SHA-256"),
    (a_huge_list, "more than 16,777,216"),
]


@pytest.mark.parametrize(("change", "said"), CHANGES)
def test_it_is_not_loaded_when_it_is_another(folder: Path, change: Callable[[Path], None], said: str) -> None:
    change(folder)
    for use in (load, describe):
        with pytest.raises(ModelError, match=said):
            use(one(folder))


def test_a_model_without_a_list_is_loaded_unless_one_is_required(folder: Path) -> None:
    (folder / MANIFEST_FILE).unlink()
    loaded(folder)
    with pytest.raises(ModelError, match=r"has no model\.sha256"):
        loaded(folder, require=True)


def test_a_list_lies_above_the_versions_and_holds_for_each_alone(tmp_path: Path) -> None:
    for version in ("1", "2"):
        (tmp_path / "m" / version).mkdir(parents=True)
        shutil.copy(GRAPH, tmp_path / "m" / version)
    (tmp_path / "m" / "model-settings.json").write_text('{"name": "halves"}')
    write_manifest(tmp_path / "m")
    (tmp_path / "m" / "2" / "model.onnx").write_bytes(b"another")
    first, second = sources(ModelOptions(model=tmp_path / "m", require_manifest=True))
    load(first)
    with pytest.raises(ModelError, match=r"2/model\.onnx is not the file"):
        load(second)
    (tmp_path / "m" / "model-settings.json").write_text('{"name": "halves", "default": true}')
    with pytest.raises(ModelError, match=r"model-settings\.json is not the file"):
        load(first)


def test_a_list_in_a_versions_folder_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    version = tmp_path / "m" / "1"
    version.mkdir(parents=True)
    shutil.copy(GRAPH, version)
    write_manifest(version)
    (version / "model.onnx").write_bytes(b"another")
    (found,) = sources(ModelOptions(model=tmp_path / "m"))
    with pytest.raises(
        ModelError, match=r"1/model\.sha256 is ignored; put the list above the versions, at .*m/model\.sha"
    ):
        load(found)


def test_what_is_changed_while_it_is_loaded_is_not_served(folder: Path) -> None:
    listed = check_manifest(one(folder))
    assert listed is not None
    listed.check_unchanged()
    graph = folder / "model.onnx"
    content, times = graph.read_bytes(), graph.stat()
    graph.write_bytes(content)
    os.utime(graph, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(ModelError, match=r"model\.onnx changed while the model was loaded"):
        listed.check_unchanged()


def test_a_file_that_comes_while_it_is_loaded_counts_as_a_change(folder: Path) -> None:
    listed = check_manifest(one(folder))
    assert listed is not None
    another_file(folder)
    with pytest.raises(ModelError, match=r"helper\.py changed"):
        listed.check_unchanged()


def test_names_that_a_list_cannot_hold_are_not_listed(folder: Path) -> None:
    before = (folder / MANIFEST_FILE).read_text()
    (folder / "a\nb").write_text("")
    with pytest.raises(ModelError, match="characters in its name"):
        write_manifest(folder)
    assert (folder / MANIFEST_FILE).read_text() == before
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


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
def test_a_signed_list_is_one_that_any_of_the_keys_has_signed(folder: Path, tmp_path: Path) -> None:
    old, new, foreign = (make_key(tmp_path, name) for name in ("old", "new", "foreign"))
    keys = tmp_path / "keys.pem"
    keys.write_text(f"# the team's\n{old.read_text()}{new.read_text()}")
    with pytest.raises(ModelError, match=r"model\.sha256\.sig is missing"):
        loaded(folder, key=keys)
    for each in (old, new):
        sign(folder, each)
        loaded(folder, key=keys)
    sign(folder, foreign)
    with pytest.raises(ModelError, match=r"is not the signature of this model\.sha256"):
        loaded(folder, key=keys)
    loaded(folder)


@needs_openssl
def test_a_signature_is_of_the_list_it_was_made_for(folder: Path, tmp_path: Path) -> None:
    key = make_key(tmp_path, "key")
    sign(folder, key)
    a_changed_file(folder)
    with pytest.raises(ModelError, match="is not the file"):
        loaded(folder, key=key)
    write_manifest(folder)
    with pytest.raises(ModelError, match="is not the signature"):
        loaded(folder, key=key)
    (folder / SIGNATURE_FILE).write_bytes(b"short")
    with pytest.raises(ModelError, match="has 5 bytes; expected the 64"):
        loaded(folder, key=key)
    (folder / MANIFEST_FILE).unlink()
    with pytest.raises(ModelError, match=r"has no model\.sha256"):
        loaded(folder, key=key)


@needs_openssl
def test_keys_that_cannot_be_used_let_nothing_in(folder: Path, tmp_path: Path) -> None:
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
        with pytest.raises(ModelError, match=r"broken\.pem") as refused:
            loaded(folder, key=broken)
        assert private.splitlines()[1] not in str(refused.value)
    with pytest.raises(ModelError, match=r"nowhere\.pem cannot be read"):
        loaded(folder, key=tmp_path / "nowhere.pem")


def test_the_list_itself_and_its_signature_are_not_listed(folder: Path) -> None:
    (folder / SIGNATURE_FILE).write_bytes(b"")
    assert write_manifest(folder) == 2
    (found,) = model_at(folder)
    assert len([*files_of(found)]) == 4


def test_a_load_over_the_wire_is_held_to_the_list_and_what_serves_goes_on(folder: Path) -> None:
    def found() -> list[ModelSource]:
        return [*sources(ModelOptions(model=folder, require_manifest=True))]

    request = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}
    with TestClient(application(found(), load, discovered=found)) as client:
        another_file(folder)
        refused = client.post("/v2/repository/models/halves/load")
        assert refused.status_code == 503
        assert client.post("/v2/models/halves/infer", json=request).json()["outputs"][0]["data"] == [2.5]
        write_manifest(folder)
        assert client.post("/v2/repository/models/halves/load").status_code == 200
