"""Reload a file when it changes."""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Generic, TypeVar

from app.core.settings.files import read_regular_file
from app.core.settings.server import SettingsError

_logger = logging.getLogger(__name__)
_WRITABLE_BY_OTHERS = 0o022

T = TypeVar("T")
FileStamp = tuple[int, int, int] | None


class WatchedFile(Generic[T]):
    """Hold the current content of a file, or of the target of a link. Use it only from the event loop.

    It is checked at most once in `check_seconds`. If a change is not readable, or `parse` raises `SettingsError`, the
    old content stays, and the error is logged once. Raise SettingsError with `option` if the file is not readable now.
    """

    def __init__(
        self,
        path: Path,
        parse: Callable[[bytes], T],
        option: str,
        *,
        check_seconds: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._parse = parse
        self._check_seconds = check_seconds
        self._clock = clock
        self._next_check = clock() + check_seconds
        self._last_stamp: FileStamp = None
        try:
            self._value = self._load()
        except SettingsError as error:
            raise SettingsError(f"{option}: {error}") from None

    @property
    def value(self) -> T:
        """Return the current content; check the file first if the last check is old."""
        now = self._clock()
        if now >= self._next_check:
            self._next_check = now + self._check_seconds
            self._reload_if_changed()
        return self._value

    def _reload_if_changed(self) -> None:
        stamp = file_stamp(self._path)
        if stamp == self._last_stamp:
            return
        try:
            self._value = self._load()
        except SettingsError as error:
            self._last_stamp = stamp
            _logger.error("credentials not reloaded", extra={"reason": str(error)})
        else:
            _logger.info("credentials reloaded", extra={"file": str(self._path)})

    def _load(self) -> T:
        # Read the stamp first: a change during the read is then found at the next check.
        stamp = file_stamp(self._path)
        value = read_file(self._path, self._parse)
        with suppress(OSError):
            if self._path.stat().st_mode & _WRITABLE_BY_OTHERS:
                _logger.warning("key file is writable by other users", extra={"file": str(self._path)})
        self._last_stamp = stamp
        return value


def read_file(path: Path, parse: Callable[[bytes], T]) -> T:
    """Return the parsed content of a file.

    Raise SettingsError with the path, if the file is not readable, or `parse` raises it.
    """
    try:
        return parse(read_regular_file(path))
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: Expected text in UTF-8") from None
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None


def file_stamp(path: Path) -> FileStamp:
    """Return a value that changes with a file, also when a symbolic link changes; None if it is not readable."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
