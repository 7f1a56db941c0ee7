"""Test which files a model folder may contain, and which are rejected before they are opened."""

import contextlib
import os
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from app.core.runtimes.folder import check_folder, iterate_files, resolve_confined
from app.core.settings.model import MAX_JSON_BYTES, ModelError, ModelSettings, ModelSource, read_bounded, read_json_file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "m"
    (path / "onnx").mkdir(parents=True)
    (path / "model.onnx").write_bytes(b"graph")
    (path / "onnx" / "model.onnx").write_bytes(b"graph")
    (tmp_path / "secret").write_text("secret")
    return path


def source(folder: Path, file: Path | None = None, root: Path | None = None) -> ModelSource:
    return ModelSource(name="m", version="1", folder=folder, file=file, root=root)


def paths(source: ModelSource) -> list[str]:
    return [str(file.relative_path) for file in iterate_files(source)]


def check_leads_out(source: ModelSource) -> None:
    with pytest.raises(ModelError, match="leads out"):
        check_folder(source)


def test_files_are_listed_by_relative_path(folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / ".git" / "config").symlink_to("/etc/passwd")
    (folder / "__pycache__").mkdir()
    check_folder(source(folder))
    (folder.parent / "served").symlink_to("m")
    for served in (folder, folder.parent / "served"):
        assert paths(source(served)) == ["model.onnx", "onnx/model.onnx"]


def test_links_within_the_folder_are_followed(folder: Path) -> None:
    (folder / "link.onnx").symlink_to("onnx/model.onnx")
    (folder / "more").symlink_to("onnx")
    assert paths(source(folder)) == ["link.onnx", "model.onnx", "more/model.onnx", "onnx/model.onnx"]


def test_links_of_kubernetes_config_map_volume_are_followed(tmp_path: Path) -> None:
    (tmp_path / "..2026_11_21").mkdir()
    (tmp_path / "..2026_11_21" / "model-settings.json").write_text("{}")
    (tmp_path / "..data").symlink_to("..2026_11_21")
    (tmp_path / "model-settings.json").symlink_to("..data/model-settings.json")
    assert paths(source(tmp_path)) == ["model-settings.json"]


def test_hugging_face_cache_snapshot_may_link_to_its_blobs(tmp_path: Path) -> None:
    repository = tmp_path / "models--a--b"
    snapshot, blobs = repository / "snapshots" / "0123", repository / "blobs"
    (snapshot / "onnx").mkdir(parents=True)
    blobs.mkdir()
    (blobs / "cafe").write_text("{}")
    (snapshot / "config.json").symlink_to("../../blobs/cafe")
    (snapshot / "onnx" / "model.onnx").symlink_to("../../../blobs/cafe")
    assert paths(source(snapshot)) == ["config.json", "onnx/model.onnx"]
    assert paths(source(snapshot / "onnx")) == ["model.onnx"]
    (repository / "refs").write_text("")
    (snapshot / "x.json").symlink_to("../../refs")
    check_leads_out(source(snapshot))


@pytest.mark.parametrize("store", [".git/annex/objects", ".dvc/cache"])
def test_links_into_git_annex_and_dvc_stores_are_followed(folder: Path, tmp_path: Path, store: str) -> None:
    object_folder = tmp_path / store / "ab"
    object_folder.mkdir(parents=True)
    (object_folder / "cafe").write_text("graph")
    (folder / "a.onnx").symlink_to(f"../{store}/ab/cafe")
    (folder / "b.onnx").symlink_to(object_folder / "cafe")
    assert {"a.onnx", "b.onnx"} <= {*paths(source(folder))}
    (tmp_path / store).rename(tmp_path / "moved")
    (tmp_path / store).symlink_to(tmp_path / "moved")
    check_leads_out(source(folder))


def test_links_to_folders_allowed_by_model_links_are_followed(folder: Path, tmp_path: Path) -> None:
    (folder / "x").symlink_to("../secret")
    (tmp_path / "alias").symlink_to(tmp_path)
    with pytest.raises(ModelError, match="with --model-links"):
        check_folder(source(folder))
    allowed = msgspec.structs.replace(source(folder), links=(tmp_path / "alias",))
    check_folder(allowed)
    (folder / "y").symlink_to("/etc/passwd")
    check_leads_out(allowed)


@pytest.fixture
def modelcar(tmp_path: Path) -> Iterator[Path]:
    """Mount a model as KServe mounts OCI images: the folder lies in another container's file system."""
    files = "mkdir m && touch m/real.onnx && ln -s ./real.onnx m/model.onnx"
    script = f"mount -t tmpfs none {tmp_path} && cd {tmp_path} && {files} && echo ready && cat"
    container = ["unshare", "--mount", "sh", "-c", script]
    try:
        process = subprocess.Popen(container, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except FileNotFoundError:
        pytest.skip("unshare is not installed")
    with process:
        assert process.stdout is not None
        if not process.stdout.readline():
            pytest.skip("namespaces are not permitted here")
        yield Path(f"/proc/{process.pid}/root{tmp_path}/m")
        process.kill()


def test_links_within_folder_of_another_container_are_followed(modelcar: Path) -> None:
    assert not modelcar.resolve().exists()
    assert paths(source(modelcar)) == ["model.onnx", "real.onnx"]
    assert resolve_confined(modelcar / "model.onnx", source(modelcar)) == modelcar / "real.onnx"
    (modelcar / "x").symlink_to("../../../../../../../../etc/passwd")
    with pytest.raises(ModelError):
        check_folder(source(modelcar))


def test_link_through_symlinked_blobs_folder_is_rejected(tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (tmp_path / "blobs").symlink_to("/etc")
    (snapshot / "config.json").symlink_to("../../blobs/passwd")
    check_leads_out(source(snapshot))


def test_versions_share_root_files_but_not_each_others_bad_links(tmp_path: Path) -> None:
    for version in ("1", "2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "model.onnx").write_bytes(b"graph")
    (tmp_path / "2" / "shared.onnx").symlink_to("../1/model.onnx")
    (tmp_path / "model-settings.json").write_text("{}")
    (tmp_path / "1" / "bad").symlink_to("/etc/passwd")
    second = source(tmp_path / "2", root=tmp_path)
    assert paths(second) == ["model-settings.json", "2/model.onnx", "2/shared.onnx"]
    check_leads_out(source(tmp_path / "1", root=tmp_path))
    (tmp_path / "labels").symlink_to("/etc/passwd")
    check_leads_out(second)


def link_out(folder: Path) -> None:
    (folder / "x").symlink_to("../secret")


def chained_links(folder: Path) -> None:
    (folder / ".hidden").symlink_to("../secret")
    (folder / "x").symlink_to(".hidden")


def climbing_links(folder: Path) -> None:
    (folder / "onnx" / ".up").symlink_to("..")
    (folder / "x").symlink_to("onnx/.up/../secret")


def unix_socket(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener, contextlib.chdir(folder):
        listener.bind("x.onnx")


def huge(file: Path, size: int) -> None:
    file.touch()
    os.truncate(file, size)


UNSAFE: Mapping[str, tuple[Callable[[Path], None], str]] = {
    "link out": (link_out, "leads out of the model's folder, to .*secret"),
    "absolute link out": (lambda folder: (folder / "onnx" / "x").symlink_to("/etc/passwd"), "folder, to /etc/passwd"),
    "link to outside folder": (lambda folder: (folder / "x").symlink_to("/etc"), "model's folder, to /etc"),
    "chained links": (chained_links, "leads out"),
    "climbing links": (climbing_links, "leads out"),
    "link loop": (lambda folder: (folder / "onnx" / "x").symlink_to(".."), "a loop"),
    "named pipe": (lambda folder: os.mkfifo(folder / "config.json"), "neither a file nor a folder"),
    "socket": (unix_socket, "neither a file nor a folder"),
    "device": (lambda folder: (folder / "x").symlink_to("/dev/zero"), "leads out"),
    "huge configuration": (lambda folder: huge(folder / "config.json", MAX_JSON_BYTES + 1), "more than 67,108,864"),
    "huge tokenizer": (lambda folder: huge(folder / "onnx" / "tokenizer.json", 2**30), "more than 268,435,456"),
    "deep folders": (lambda folder: (folder / "/".join("d" * 40)).mkdir(parents=True), "deeper than 32"),
}


@pytest.mark.parametrize("entry", UNSAFE)
def test_unsafe_folder_entry_is_rejected(folder: Path, entry: str) -> None:
    add_entry, error_text = UNSAFE[entry]
    add_entry(folder)
    with pytest.raises(ModelError, match=error_text):
        check_folder(source(folder))


def test_unread_pipe_is_rejected_only_with_nothing_else(folder: Path) -> None:
    os.mkfifo(folder / "gate")
    check_folder(source(folder))
    assert paths(source(folder)) == ["model.onnx", "onnx/model.onnx"]
    with pytest.raises(ModelError, match="neither a file nor a folder"):
        list(iterate_files(source(folder), reject_special_files=True))


def test_broken_and_circular_links_are_skipped(folder: Path) -> None:
    (folder / "nothing").symlink_to("nowhere")
    (folder / "itself").symlink_to("itself")
    assert paths(source(folder)) == ["model.onnx", "onnx/model.onnx"]


def test_graph_given_by_path_may_lie_beside_unsafe_files(folder: Path) -> None:
    single_file = source(folder, folder / "model.onnx")
    link_out(folder)
    os.mkfifo(folder / "pipe")
    check_folder(single_file)
    (folder / "preprocessor_config.json").symlink_to("../secret")
    with pytest.raises(ModelError, match=r"preprocessor_config\.json leads out"):
        check_folder(single_file)


def test_graph_named_in_settings_has_its_folder_checked(folder: Path) -> None:
    link_out(folder)
    named = msgspec.structs.replace(source(folder, folder / "model.onnx"), settings=ModelSettings(uri="model.onnx"))
    check_leads_out(named)


def test_file_is_read_up_to_size_limit(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    assert read_bounded(tmp_path / "x", 5) == b"12345"
    with pytest.raises(ModelError, match="has 5 bytes, more than 4"):
        read_bounded(tmp_path / "x", 4)


def test_reading_pipe_or_device_is_rejected_without_blocking(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(ModelError, match="is not a file"):
            read_json_file(path, dict)
