"""What may lie in a model's folder, and what is refused before it is opened."""

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from app.runtimes.folder import check_folder, confined, files_of
from app.settings.model import LARGEST_JSON, ModelError, ModelSettings, ModelSource, read_bounded, read_json_file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "m"
    (made / "onnx").mkdir(parents=True)
    (made / "model.onnx").write_bytes(b"graph")
    (made / "onnx" / "model.onnx").write_bytes(b"graph")
    (tmp_path / "secret").write_text("secret")
    return made


def source(folder: Path, file: Path | None = None, root: Path | None = None) -> ModelSource:
    return ModelSource(name="m", version="1", folder=folder, file=file, root=root)


def places(source: ModelSource) -> list[str]:
    return [str(each.place) for each in files_of(source)]


def test_files_are_listed_by_their_places(folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / ".git" / "config").symlink_to("/etc/passwd")
    (folder / "__pycache__").mkdir()
    check_folder(source(folder))
    assert places(source(folder)) == ["model.onnx", "onnx/model.onnx"]


def test_a_folder_may_itself_be_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "served").symlink_to("m")
    assert places(source(tmp_path / "served")) == ["model.onnx", "onnx/model.onnx"]


def test_links_within_the_folder_are_followed(folder: Path) -> None:
    (folder / "link.onnx").symlink_to("onnx/model.onnx")
    (folder / "more").symlink_to("onnx")
    assert places(source(folder)) == ["link.onnx", "model.onnx", "more/model.onnx", "onnx/model.onnx"]


def test_a_volume_of_a_config_map_is_as_kubernetes_lays_it(tmp_path: Path) -> None:
    (tmp_path / "..2026_11_21").mkdir()
    (tmp_path / "..2026_11_21" / "model-settings.json").write_text("{}")
    (tmp_path / "..data").symlink_to("..2026_11_21")
    (tmp_path / "model-settings.json").symlink_to("..data/model-settings.json")
    assert places(source(tmp_path)) == ["model-settings.json"]


def test_a_snapshot_of_the_hugging_face_cache_has_its_files_in_blobs(tmp_path: Path) -> None:
    snapshot, blobs = tmp_path / "models--a--b" / "snapshots" / "0123", tmp_path / "models--a--b" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    (blobs / "cafe").write_text("{}")
    (snapshot / "config.json").symlink_to("../../blobs/cafe")
    assert places(source(snapshot)) == ["config.json"]
    (tmp_path / "models--a--b" / "refs").write_text("")
    (snapshot / "x.json").symlink_to("../../refs")
    with pytest.raises(ModelError, match="leads out"):
        check_folder(source(snapshot))


def test_a_folder_in_a_snapshot_has_its_files_in_the_same_blobs(tmp_path: Path) -> None:
    onnx, blobs = tmp_path / "models--a--b" / "snapshots" / "0123" / "onnx", tmp_path / "models--a--b" / "blobs"
    onnx.mkdir(parents=True)
    blobs.mkdir()
    (blobs / "cafe").write_text("graph")
    (onnx / "model.onnx").symlink_to("../../../blobs/cafe")
    assert places(source(onnx)) == ["model.onnx"]


@pytest.mark.parametrize("store", [".git/annex/objects", ".dvc/cache"])
def test_stores_of_the_repository_around_a_folder_have_its_files(folder: Path, tmp_path: Path, store: str) -> None:
    kept = tmp_path / store / "ab"
    kept.mkdir(parents=True)
    (kept / "cafe").write_text("graph")
    (folder / "a.onnx").symlink_to(f"../{store}/ab/cafe")
    (folder / "b.onnx").symlink_to(kept / "cafe")
    assert {"a.onnx", "b.onnx"} <= {*places(source(folder))}
    (tmp_path / store).rename(tmp_path / "moved")
    (tmp_path / store).symlink_to(tmp_path / "moved")
    with pytest.raises(ModelError, match="leads out"):
        check_folder(source(folder))


def test_links_lead_where_the_operator_says(folder: Path, tmp_path: Path) -> None:
    (folder / "x").symlink_to("../secret")
    (tmp_path / "alias").symlink_to(tmp_path)
    with pytest.raises(ModelError, match="with --model-links"):
        check_folder(source(folder))
    allowed = msgspec.structs.replace(source(folder), links=(tmp_path / "alias",))
    check_folder(allowed)
    (folder / "y").symlink_to("/etc/passwd")
    with pytest.raises(ModelError, match="leads out"):
        check_folder(allowed)


@pytest.fixture
def car(tmp_path: Path) -> Iterator[Path]:
    """A model as KServe has those of OCI images: /mnt/models is a link into another container's files."""
    files = "mkdir m && touch m/real.onnx && ln -s ./real.onnx m/model.onnx"
    script = f"mount -t tmpfs none {tmp_path} && cd {tmp_path} && {files} && echo ready && cat"
    container = ["unshare", "--mount", "sh", "-c", script]
    try:
        process = subprocess.Popen(container, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except FileNotFoundError:
        pytest.skip("there is no unshare")
    with process:
        assert process.stdout is not None
        if not process.stdout.readline():
            pytest.skip("namespaces are not permitted here")
        yield Path(f"/proc/{process.pid}/root{tmp_path}/m")
        process.kill()


def test_a_folder_in_another_containers_files_may_have_links_of_its_own(car: Path) -> None:
    assert not car.resolve().exists()
    assert places(source(car)) == ["model.onnx", "real.onnx"]
    assert confined(car / "model.onnx", source(car)) == car / "real.onnx"
    (car / "x").symlink_to("../../../../../../../../etc/passwd")
    with pytest.raises(ModelError):
        check_folder(source(car))


def test_blobs_that_are_a_link_are_no_cache(tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (tmp_path / "blobs").symlink_to("/etc")
    (snapshot / "config.json").symlink_to("../../blobs/passwd")
    with pytest.raises(ModelError, match="leads out"):
        check_folder(source(snapshot))


def test_versions_share_what_lies_beside_them_and_not_each_others_faults(tmp_path: Path) -> None:
    for version in ("1", "2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "model.onnx").write_bytes(b"graph")
    (tmp_path / "2" / "shared.onnx").symlink_to("../1/model.onnx")
    (tmp_path / "model-settings.json").write_text("{}")
    (tmp_path / "1" / "bad").symlink_to("/etc/passwd")
    second = source(tmp_path / "2", root=tmp_path)
    assert places(second) == ["model-settings.json", "2/model.onnx", "2/shared.onnx"]
    with pytest.raises(ModelError, match="leads out"):
        check_folder(source(tmp_path / "1", root=tmp_path))
    (tmp_path / "labels").symlink_to("/etc/passwd")
    with pytest.raises(ModelError, match="leads out"):
        check_folder(second)


def a_link_out(folder: Path) -> None:
    (folder / "x").symlink_to("../secret")


def an_absolute_link_out(folder: Path) -> None:
    (folder / "onnx" / "x").symlink_to("/etc/passwd")


def a_link_to_a_folder_outside(folder: Path) -> None:
    (folder / "x").symlink_to("/etc")


def a_link_by_way_of_another(folder: Path) -> None:
    (folder / ".hidden").symlink_to("../secret")
    (folder / "x").symlink_to(".hidden")


def a_link_that_climbs_behind_another(folder: Path) -> None:
    (folder / "onnx" / ".up").symlink_to("..")
    (folder / "x").symlink_to("onnx/.up/../secret")


def a_circle(folder: Path) -> None:
    (folder / "onnx" / "x").symlink_to("..")


def a_pipe(folder: Path) -> None:
    os.mkfifo(folder / "config.json")


def a_socket(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        here = Path.cwd()
        os.chdir(folder)
        try:
            bound.bind("x.onnx")
        finally:
            os.chdir(here)


def a_device(folder: Path) -> None:
    (folder / "x").symlink_to("/dev/zero")


def a_huge_configuration(folder: Path) -> None:
    (folder / "config.json").touch()
    os.truncate(folder / "config.json", LARGEST_JSON + 1)


def a_huge_tokenizer(folder: Path) -> None:
    (folder / "onnx" / "tokenizer.json").touch()
    os.truncate(folder / "onnx" / "tokenizer.json", 2**30)


def folders_without_end(folder: Path) -> None:
    (folder / "/".join("d" * 40)).mkdir(parents=True)


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (a_link_out, "leads out of the model's folder, to .*secret"),
        (an_absolute_link_out, "leads out of the model's folder, to /etc/passwd"),
        (a_link_to_a_folder_outside, "leads out of the model's folder, to /etc"),
        (a_link_by_way_of_another, "leads out"),
        (a_link_that_climbs_behind_another, "leads out"),
        (a_circle, "a loop"),
        (a_pipe, "neither a file nor a folder"),
        (a_socket, "neither a file nor a folder"),
        (a_device, "leads out"),
        (a_huge_configuration, "more than 67,108,864"),
        (a_huge_tokenizer, "more than 268,435,456"),
        (folders_without_end, "deeper than 32"),
    ],
)
def test_it_refuses(folder: Path, plant: Callable[[Path], None], said: str) -> None:
    plant(folder)
    with pytest.raises(ModelError, match=said):
        check_folder(source(folder))


def test_a_pipe_that_nothing_reads_is_a_models_own_business(folder: Path) -> None:
    os.mkfifo(folder / "gate")
    check_folder(source(folder))
    assert places(source(folder)) == ["model.onnx", "onnx/model.onnx"]
    with pytest.raises(ModelError, match="neither a file nor a folder"):
        list(files_of(source(folder), nothing_else=True))


def test_what_cannot_be_reached_is_passed_over(folder: Path) -> None:
    (folder / "nothing").symlink_to("nowhere")
    (folder / "itself").symlink_to("itself")
    assert places(source(folder)) == ["model.onnx", "onnx/model.onnx"]


def test_one_graph_named_by_its_path_may_lie_among_anything(folder: Path) -> None:
    lone = source(folder, folder / "model.onnx")
    a_link_out(folder)
    os.mkfifo(folder / "pipe")
    check_folder(lone)
    (folder / "preprocessor_config.json").symlink_to("../secret")
    with pytest.raises(ModelError, match=r"preprocessor_config\.json leads out"):
        check_folder(lone)


def test_a_graph_that_settings_name_does_not_lie_alone(folder: Path) -> None:
    a_link_out(folder)
    named = ModelSource(
        name="m", version="1", folder=folder, file=folder / "model.onnx", settings=ModelSettings(uri="model.onnx")
    )
    with pytest.raises(ModelError, match="leads out"):
        check_folder(named)


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    assert read_bounded(tmp_path / "x", 5) == b"12345"
    with pytest.raises(ModelError, match="has 5 bytes, more than 4"):
        read_bounded(tmp_path / "x", 4)


def test_reading_a_pipe_or_a_device_does_not_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(ModelError, match="is not a file"):
            read_json_file(path, dict)
