"""Find the images of a source: a folder, a glob, a manifest or tar files, on this machine or behind a URL of fsspec."""

import glob
import hashlib
import importlib
import math
import os
import re
import tarfile
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from datetime import date
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import httpx
import msgspec

from app.core.engine.error_text import error_text, needs_extra
from app.core.settings.server import SettingsError
from app.inputs import IMAGE_ENDINGS
from app.plugins.recording.inference import DIGEST
from metadata.request import MetadataEntry

_MANIFESTS = (".jsonl", ".ndjson", ".parquet")
_IMAGE_KEYS = ("image", "path", "url", "uri", "file_name", "file")
"""The column of a manifest with the image: the first of these that a row has."""
_RECORDED = "protocol"
"""A column of every recording."""
_STORES = ("sqlite", "postgresql", "postgres", "postgresql+asyncpg")
_TAR = ".tar"
_WILDCARD = re.compile(r"[*?\[]")
_ROWS = 4096
_EXPECTED = "a folder, a glob, a manifest that ends in .jsonl or .parquet, a .tar file, or a URL of these"


class SourceImage(msgspec.Struct, frozen=True, kw_only=True):
    """An image of a source, with a unique name, and what the source says about it.

    It is at its path or URL, or in `data`, encoded, or the source has an `error` instead of it.
    """

    name: str
    location: str = ""
    data: bytes | None = None
    metadata: tuple[MetadataEntry, ...] = ()
    error: str = ""

    @property
    def digest(self) -> str:
        """The digest of the name, 128 bits in hexadecimal, which identifies the image in the results."""
        return hashlib.blake2b(self.name.encode(), digest_size=16).hexdigest()

    def read(self) -> bytes:
        """Return the encoded image. The message of an `OSError` is the reason for the user."""
        if self.error:
            raise OSError(self.error)
        if self.data is not None:
            return self.data
        try:
            return _read(self.location)
        except Exception as error:  # noqa: BLE001  each filesystem of fsspec raises its own types
            reason = getattr(error, "strerror", None) or error_text(error)
            raise OSError(f"{self.name} cannot be read: {reason}") from None


class Source:
    """The images of a source, which `text` names, in the same order each time.

    Only the names of one folder are in memory, or all names of a URL or glob.
    """

    def __init__(self, text: str) -> None:
        self.text = text.removesuffix("/") if len(text) > 1 else text
        self._remote = "://" in text
        exists = not self._remote and Path(text).exists()
        # A name may contain brackets.
        self._is_glob = bool(_WILDCARD.search(text)) and not exists
        if not self._remote and not self._is_glob and not exists:
            raise SettingsError(f"{text}: there is no such file or folder; expected {_EXPECTED}")

    @property
    def countable(self) -> bool:
        """Return whether the images can be counted without reading them, as those in tar files cannot."""
        return self._is_manifest or not any(location.lower().endswith(_TAR) for _, location in self._listed())

    @property
    def _is_manifest(self) -> bool:
        return self.text.lower().endswith(_MANIFESTS) and not Path(self.text).is_dir()

    def __iter__(self) -> Iterator[SourceImage]:
        if self._is_manifest:
            yield from _unique(_in_manifest(self.text))
            return
        for name, location in self._listed():
            if location.lower().endswith(_TAR):
                yield from _unique(_in_tar(name, location))
            else:
                yield SourceImage(name=_printable(name), location=location)

    def _listed(self) -> Iterator[tuple[str, str]]:
        """Yield the name and the location of each file."""
        if self._remote:
            yield from self._remote_files
        elif self._is_glob:
            root = str(Path(_WILDCARD.split(self.text)[0] + "x").parent)
            for path in sorted(glob.iglob(self.text, recursive=True)):  # noqa: PTH207  Path.glob takes no absolute pattern
                if Path(path).is_file():
                    yield os.path.relpath(path, root), path
        elif Path(self.text).is_dir():
            yield from _walk(self.text, "")
        else:
            yield Path(self.text).name, self.text

    @cached_property
    def _remote_files(self) -> list[tuple[str, str]]:
        filesystem, root = _filesystem(self.text)
        try:
            if _WILDCARD.search(root):
                paths = filesystem.glob(root)
                root = _WILDCARD.split(root)[0].rpartition("/")[0]
            elif filesystem.isfile(root):
                paths, root = [root], root.rpartition("/")[0]
            else:
                paths = filter(_is_image, filesystem.find(root))
        except Exception as error:  # noqa: BLE001  each filesystem of fsspec raises its own types
            raise SettingsError(f"{self.text} cannot be listed: {error_text(error)}") from None
        return [(path.removeprefix(root).lstrip("/"), filesystem.unstrip_protocol(path)) for path in sorted(paths)]


def open_images(text: str) -> Source | None:
    """Return the images that a command names beside folders and recordings; None for recordings and other files."""
    scheme = text.partition("://")[0] if "://" in text else ""
    if scheme in _STORES or not (scheme or _WILDCARD.search(text) or Path(text).is_file()):
        return None
    if text.lower().endswith(_MANIFESTS):
        row = next(_rows(text), "")
        is_manifest = not isinstance(row, str) and _RECORDED not in row and any(key in row for key in _IMAGE_KEYS)
        return Source(text) if is_manifest else None
    return Source(text) if scheme or text.lower().endswith(_TAR) or _WILDCARD.search(text) else None


def _walk(folder: str, prefix: str) -> Iterator[tuple[str, str]]:
    with os.scandir(folder) as listed:
        visible = (entry for entry in listed if not entry.name.startswith("."))
        entries = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in visible)
    for name, is_folder in entries:
        path = f"{folder}/{name}"
        if is_folder:
            yield from _walk(path, f"{prefix}{name}/")
        elif _is_image(name):
            yield prefix + name, path


def _is_image(path: str) -> bool:
    """Return whether a name stands for an image, a recorded image or a tar file."""
    name = path.rpartition("/")[2]
    ending = PurePosixPath(name).suffix.lower()
    return ending in IMAGE_ENDINGS or ending == _TAR or DIGEST.fullmatch(name) is not None


def _in_manifest(location: str) -> Iterator[SourceImage]:
    """Yield the images of a manifest. Relative paths start at its folder."""
    folder = location.rpartition("/")[0] if "/" in location else "."
    for number, row in enumerate(_rows(location), 1):
        key = None if isinstance(row, str) else next((k for k in _IMAGE_KEYS if isinstance(row.get(k), str)), None)
        if isinstance(row, str) or key is None:
            reason = f"row {number} names no image: expected a text in one of {', '.join(_IMAGE_KEYS)}"
            yield SourceImage(name=f"{_printable(location)}:{number}", error=row if isinstance(row, str) else reason)
            continue
        name = str(row.pop(key))
        path = name if "://" in name or name.startswith("/") else f"{folder}/{name}"
        yield SourceImage(name=_printable(name), location=path, metadata=metadata_entries(row))


def _rows(location: str) -> Iterator[dict[str, Any] | str]:
    """Yield the rows of a manifest, or why a line is none."""
    return _parquet_rows(location) if location.lower().endswith(".parquet") else _json_rows(location)


def _json_rows(location: str) -> Iterator[dict[str, Any] | str]:
    with _open(location) as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield msgspec.json.decode(line.removeprefix(BOM_UTF8), type=dict[str, Any])
                except (RecursionError, ValueError) as error:
                    yield f"line {number} is no JSON object: {error}"


def _parquet_rows(location: str) -> Iterator[dict[str, Any]]:
    with needs_extra("Parquet", "parquet", SettingsError):
        parquet: Any = importlib.import_module("pyarrow.parquet")
    with _open(location) as file:
        try:
            batches = parquet.ParquetFile(file).iter_batches(_ROWS)
        except ValueError as error:
            raise SettingsError(f"{location} is no Parquet file: {error_text(error)}") from None
        for batch in batches:
            yield from batch.to_pylist()


def _in_tar(name: str, location: str) -> Iterator[SourceImage]:
    """Yield the images of a tar file."""
    try:
        # Read as a stream, because object stores seek slowly.
        with _open(location) as file, tarfile.open(fileobj=file, mode="r|*") as archive:
            for member in archive:
                file_name = PurePosixPath(member.name)
                # macOS adds a hidden file for each file.
                if file_name.suffix.lower() not in IMAGE_ENDINGS or file_name.name.startswith("."):
                    continue
                if (content := archive.extractfile(member)) is not None:
                    yield SourceImage(name=_printable(f"{name}/{member.name}"), data=content.read())
    except (OSError, tarfile.TarError) as error:
        yield SourceImage(name=_printable(name), error=f"{name} cannot be read to its end: {error_text(error)}")


def metadata_entries(row: Mapping[str, Any]) -> tuple[MetadataEntry, ...]:
    """Return the scalars and objects of a row as metadata."""
    entries: list[MetadataEntry] = []
    for key, raw in row.items():
        value: Any = str(raw).lower() if isinstance(raw, bool) else raw.isoformat() if isinstance(raw, date) else raw
        kind = type(value).__name__
        if kind in ("str", "int", "dict") or (kind == "float" and math.isfinite(value)):
            entries.append(MetadataEntry(key, kind, value))
    return tuple(entries)


def _unique(images: Iterator[SourceImage]) -> Iterator[SourceImage]:
    """Yield the first image of each name."""
    seen: set[int] = set()
    for image in images:
        key = int(image.digest[:16], 16)
        if key not in seen:
            seen.add(key)
            yield image


def _printable(name: str) -> str:
    """Return a file name as Unicode text, which names on Linux need not be."""
    return name.encode(errors="backslashreplace").decode()


def _filesystem(url: str) -> tuple[Any, str]:
    """Return fsspec's filesystem for a URL, and the path in it."""
    with needs_extra(url.partition("://")[0] + "://", "parquet", SettingsError):
        fsspec: Any = importlib.import_module("fsspec.core")
    try:
        return fsspec.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise SettingsError(f"{url}: {error}") from None


def _open(location: str) -> BinaryIO:
    if "://" not in location:
        return Path(location).open("rb")
    filesystem, path = _filesystem(location)
    return filesystem.open(path, "rb")


def _read(location: str) -> bytes:
    if location.startswith(("http://", "https://")):
        response = httpx.get(location, follow_redirects=True, timeout=60)
        response.raise_for_status()
        return response.content
    with _open(location) as file:
        return file.read()
