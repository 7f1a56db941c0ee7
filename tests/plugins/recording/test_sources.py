"""Images of every kind of source."""

import importlib
import io
import json
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from app.core.settings.server import SettingsError
from app.plugins.recording.sources import Source, open_images

ARROW: Any = importlib.import_module("pyarrow")
PARQUET: Any = importlib.import_module("pyarrow.parquet")
FSSPEC: Any = importlib.import_module("fsspec")


def names(source: object) -> list[str]:
    return [image.name for image in Source(str(source))]


def write_files(folder: Path, *paths: str) -> Path:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(path.encode())
    return folder


def write_tar(path: Path, files: Mapping[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def test_folder_has_its_images_in_order_without_other_and_hidden_files(tmp_path: Path) -> None:
    write_files(tmp_path, "b/2.PNG", "b/1.jpg", "a.webp", "a.txt", ".hidden/x.jpg", "b/.x.jpg", f"c/{'0' * 64}")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert names(tmp_path) == names(f"{tmp_path}/") == ["a.webp", "b/1.jpg", "b/2.PNG", f"c/{'0' * 64}"]
    assert [image.read() for image in Source(str(tmp_path))][:2] == [b"a.webp", b"b/1.jpg"]


def test_glob_has_the_files_that_it_matches(tmp_path: Path) -> None:
    write_files(tmp_path, "a/1.jpg", "b/1.jpg", "b/c/2.jpg", "b/2.bin", "c[d]/3.jpg")
    assert names(f"{tmp_path}/c[d]") == ["3.jpg"]
    assert names(f"{tmp_path}/b/*") == ["1.jpg", "2.bin"]
    assert names(f"{tmp_path}/**/*.jpg") == ["a/1.jpg", "b/1.jpg", "b/c/2.jpg", "c[d]/3.jpg"]


def test_file_name_that_is_no_unicode_is_read_and_has_a_printable_name(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.jpg")).write_bytes(b"image")
    (image,) = Source(str(tmp_path))
    assert (image.name, image.read()) == ("\\udcff.jpg", b"image")


def test_manifest_has_paths_beside_it_urls_and_metadata(tmp_path: Path) -> None:
    write_files(tmp_path, "images/1.jpg")
    rows: list[dict[str, Any]] = [
        {"image": "images/1.jpg", "camera": "north", "altitude": 12.5, "night": True, "frame": 3, "none": None},
        {"url": "http://127.0.0.1:1/2.jpg"},
        {"image": "images/1.jpg", "camera": "again"},
        {"camera": "south"},
    ]
    lines = tmp_path / "list.JSONL"
    lines.write_text("\n".join([*map(json.dumps, rows), "no JSON", ""]), encoding="utf-8-sig")
    table = tmp_path / "list.parquet"
    PARQUET.write_table(ARROW.Table.from_pylist([rows[0] | {"url": None}, *rows[1:]]), table)
    for manifest in (lines, table):
        first, second, *faulty = Source(str(manifest))
        assert first.read() == b"images/1.jpg"
        assert {entry.key: (entry.type, entry.value) for entry in first.metadata} == {
            "camera": ("str", "north"), "altitude": ("float", 12.5), "night": ("str", "true"), "frame": ("int", 3),
        }  # fmt: skip
        assert second.name == second.location == "http://127.0.0.1:1/2.jpg"
        assert "row 4 names no image: expected a text in one of image, path" in faulty[0].error
        with pytest.raises(OSError, match=r"2\.jpg cannot be read"):
            second.read()
    assert "line 5 is no JSON object" in list(Source(str(lines)))[-1].error


def test_tar_has_images_and_an_error_at_its_damaged_end(tmp_path: Path) -> None:
    # macOS adds hidden files.
    files = {"a/1.jpg": b"one", "a/1.cls": b"7", "a/._1.jpg": b"x", "a/2.PNG": b"two" * 1000}
    path = write_tar(tmp_path / "shard.tar", files)
    first, second = Source(str(path))
    assert (first.name, first.read(), second.name) == ("shard.tar/a/1.jpg", b"one", "shard.tar/a/2.PNG")
    assert first.metadata == ()
    assert not Source(str(tmp_path)).countable
    path.write_bytes(path.read_bytes()[:3000])
    *images, fault = Source(str(tmp_path))
    assert [image.name for image in images] == ["shard.tar/a/1.jpg"]
    assert "shard.tar cannot be read to its end" in fault.error


def test_url_of_fsspec_is_a_folder_a_glob_a_manifest_or_a_tar(tmp_path: Path) -> None:
    memory = FSSPEC.filesystem("memory")
    tar = write_tar(tmp_path / "s.tar", {"1.jpg": b"in tar"})
    contents = {"a/1.jpg": b"one", "a/b/2.jpg": b"two", "a/x.txt": b"", "list.jsonl": b'{"path": "a/1.jpg"}'}
    for name, content in {**contents, "s.tar": tar.read_bytes()}.items():
        memory.pipe_file(f"/bulk/{name}", content)
    assert names("memory://bulk/a") == ["1.jpg", "b/2.jpg"]
    assert names("memory://bulk/a/*.jpg") == ["1.jpg"]
    assert [image.read() for image in Source("memory://bulk/list.jsonl")] == [b"one"]
    assert [image.read() for image in Source("memory://bulk/s.tar")] == [b"in tar"]
    memory.rm("/bulk", recursive=True)


def test_source_that_does_not_exist_is_rejected_with_what_is_expected(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="there is no such file or folder; expected a folder, a glob"):
        Source(str(tmp_path / "missing"))
    with pytest.raises(SettingsError, match=r"nothing://x/\*: "):
        names("nothing://x/*")
    (damaged := tmp_path / "damaged.parquet").write_bytes(b"PAR1")
    with pytest.raises(SettingsError, match=r"damaged\.parquet is no Parquet file: "):
        names(damaged)


def test_recordings_and_other_files_are_no_sources_of_images(tmp_path: Path) -> None:
    manifest, recordings = tmp_path / "list.jsonl", tmp_path / "recorded.jsonl"
    manifest.write_text('{"image": "1.jpg"}')
    recordings.write_text('{"id": "1-0-0", "protocol": "run", "image": {}}')
    for text in (recordings, tmp_path / "new.db", tmp_path / "new.jsonl", "sqlite:///a.db", "postgresql://a/b"):
        assert open_images(str(text)) is None
    for text in (manifest, tmp_path / "*.jpg", "s3://bucket/folder"):
        assert open_images(str(text)) is not None
