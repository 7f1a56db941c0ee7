"""Store encoded images in a folder, each under its digest."""

import errno
import os
import re
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from app.plugins.recording.inference import DIGEST, RecordedImage
from app.plugins.recording.stores.store import StoreError, StoreFault

SHARDS = 256
"""Number of subfolders. The first two digits of the digest select one."""

_TEMPORARY = re.compile(DIGEST.pattern + r"\.[0-9]+\.[0-9]+")


class ImageFile(msgspec.Struct, frozen=True, gc=False):
    """An encoded image and its SHA-256 in hexadecimal. For raw pixels, the digest is of the pixels."""

    digest: str
    data: bytes


def image_path(folder: Path, digest: str) -> Path:
    """Return the path of the file for `digest` in `folder`."""
    return folder / digest[:2] / digest


def read_recorded_image(folder: Path | None, image: RecordedImage | None) -> bytes | None:
    """Return the file that the client sent, or None if it was not stored in `folder` or was deleted."""
    if folder is None or image is None or not image.kept or not DIGEST.fullmatch(image.digest):
        return None
    try:
        return image_path(folder, image.digest).read_bytes()
    except FileNotFoundError:
        return None


@contextmanager
def _converted_errors() -> Generator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        raise StoreError(StoreFault.FULL if full else StoreFault.FAILED, str(error)) from None


class ImageFolder:
    """A folder of images. Files appear atomically, and repeated images are written once.

    The modification time of a file is the time when it was last received.

    Args:
        folder: created if missing.
        durable: whether files survive a power loss once `write` has returned.
    """

    def __init__(self, folder: Path, *, durable: bool) -> None:
        self._folder = folder
        self._durable = durable

    @_converted_errors()
    def open(self) -> None:
        """Create the folders. Raise StoreError when they cannot be created or written to."""
        for shard in range(SHARDS):
            (self._folder / f"{shard:02x}").mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=self._folder):
            pass

    @_converted_errors()
    def write(self, images: Sequence[ImageFile]) -> None:
        """Store `images`. Raise StoreError when they cannot be stored."""
        touched: set[Path] = set()
        for image in images:
            path = image_path(self._folder, image.digest)
            if not _touch_existing(path, len(image.data)):
                self._write(path, image.data)
                touched.add(path.parent)
        if self._durable:
            for folder in touched:
                _fsync_folder(folder)

    def find_unused(self, shard: int, cutoff: float) -> Sequence[str]:
        """Return the digests in one of the `SHARDS` that were last received before `cutoff`, in seconds since 1970.

        Delete unfinished files of killed processes. Leave files with other names alone: other programs own them.
        """
        folder = self._folder / f"{shard:02x}"
        try:
            with os.scandir(folder) as directory:
                old = [entry.name for entry in directory if entry.stat(follow_symlinks=False).st_mtime < cutoff]
        except FileNotFoundError:
            return ()
        for leftover in filter(_TEMPORARY.fullmatch, old):
            (folder / leftover).unlink(missing_ok=True)
        return list(filter(DIGEST.fullmatch, old))

    def remove(self, digests: Sequence[str], cutoff: float) -> Sequence[str]:
        """Delete the files that were not received after `cutoff`. Return the digests of all missing files."""
        removed: list[str] = []
        for digest in digests:
            path = image_path(self._folder, digest)
            try:
                if path.stat().st_mtime < cutoff:
                    path.unlink()
                    removed.append(digest)
            except FileNotFoundError:
                removed.append(digest)
        return removed

    def _write(self, path: Path, data: bytes) -> None:
        # The process id separates processes that write the same image. `find_unused` removes files of killed ones.
        temporary = path.with_name(f"{path.name}.{os.getpid()}.{time.monotonic_ns()}")
        if not path.parent.is_dir():
            # Another program has removed the subfolder.
            path.parent.mkdir(parents=True, exist_ok=True)
            if self._durable:
                _fsync_folder(self._folder)
        try:
            with temporary.open("xb") as file:
                file.write(data)
                if self._durable:
                    file.flush()
                    os.fsync(file.fileno())
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def _touch_existing(path: Path, size: int) -> bool:
    """Set the file's modification time to now, and return whether it exists with this size."""
    try:
        os.utime(path)
        # Without fsync, a power loss may leave an empty file.
        return path.stat().st_size == size
    except FileNotFoundError:
        return False


def _fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
