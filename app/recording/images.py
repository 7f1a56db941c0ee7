"""Encoded images beside their records, each under its digest."""

import os
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

__all__ = ("DIGEST", "SHARDS", "ImageFile", "ImageFolder", "image_path")

SHARDS = 256
"""Folders that the files are spread over, by the first two digits of their digests."""

DIGEST = re.compile("[0-9a-f]{64}")
"""A name of a file, and no way out of the folder."""

_UNFINISHED = re.compile(DIGEST.pattern + r"\.[0-9]+\.[0-9]+")


class ImageFile(msgspec.Struct, frozen=True, gc=False):
    """An encoded image, and its SHA-256 in hexadecimal. Where pixels were sent, the digest is theirs."""

    digest: str
    data: bytes


def image_path(folder: Path, digest: str) -> Path:
    """Where the file of a digest lies in `folder`."""
    return folder / digest[:2] / digest


class ImageFolder:
    """A folder of images. A file is there whole or not at all, and is written once however often it is sent.

    Its time of modification is when it was last sent.

    Args:
        folder: made when it is not there.
        durable: whether files outlast a loss of power once `write` has returned.
    """

    def __init__(self, folder: Path, *, durable: bool) -> None:
        self._folder = folder
        self._durable = durable

    def open(self) -> None:
        """Make the folders.

        Raises:
            OSError: when they cannot be made, or not be written to.
        """
        for shard in range(SHARDS):
            (self._folder / f"{shard:02x}").mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=self._folder):
            pass

    def write(self, images: Sequence[ImageFile]) -> None:
        """Keep `images`.

        Raises:
            OSError: when they cannot be kept.
        """
        touched: set[Path] = set()
        for image in images:
            path = image_path(self._folder, image.digest)
            if not _renewed(path, len(image.data)):
                self._write(path, image.data)
                touched.add(path.parent)
        if self._durable:
            for folder in touched:
                _synchronise(folder)

    def unused(self, shard: int, since: float) -> Sequence[str]:
        """The digests of one of the `SHARDS` that were last sent before `since`, in seconds since 1970.

        Files of other names are somebody else's, but for those that a kill left unfinished; these are deleted.
        """
        folder = self._folder / f"{shard:02x}"
        try:
            with os.scandir(folder) as found:
                old = [each.name for each in found if each.stat().st_mtime < since]
        except FileNotFoundError:
            return ()
        for leftover in filter(_UNFINISHED.fullmatch, old):
            (folder / leftover).unlink(missing_ok=True)
        return list(filter(DIGEST.fullmatch, old))

    def remove(self, digests: Sequence[str], since: float) -> Sequence[str]:
        """Delete those files that have still not been sent after `since`; gives their digests back."""
        gone: list[str] = []
        for digest in digests:
            path = image_path(self._folder, digest)
            try:
                if path.stat().st_mtime < since:
                    path.unlink()
                    gone.append(digest)
            except FileNotFoundError:
                gone.append(digest)
        return gone

    def _write(self, path: Path, data: bytes) -> None:
        # The process's number keeps two that write the same image apart; a file left by a kill is removed in time.
        unfinished = path.with_name(f"{path.name}.{os.getpid()}.{time.monotonic_ns()}")
        if not path.parent.is_dir():
            # Somebody has emptied the folder.
            path.parent.mkdir(parents=True, exist_ok=True)
            if self._durable:
                _synchronise(self._folder)
        try:
            with unfinished.open("xb") as file:
                file.write(data)
                if self._durable:
                    file.flush()
                    os.fsync(file.fileno())
            unfinished.replace(path)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise


def _renewed(path: Path, size: int) -> bool:
    """Whether a file of this size is there; it counts as sent now."""
    try:
        os.utime(path)
        # A loss of power may leave a file without what was in it, where nobody waited for the disk.
        return path.stat().st_size == size
    except FileNotFoundError:
        return False


def _synchronise(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
