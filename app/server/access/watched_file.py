"""Reload a file when it changes."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from app.settings.server import SettingsError

__all__ = ("WatchedFile",)

_logger = logging.getLogger(__name__)
_WRITABLE_BY_OTHERS = 0o022

T = TypeVar("T")
_Seen = tuple[int, int, int]


class WatchedFile(Generic[T]):
    """Hold the current content of a file. Use it only from the event loop.

    If a change is not readable, the old content stays, and the error is logged once.

    Args:
        path: the file, or a symbolic link to it: Kubernetes replaces links.
        read: parses the content; raises `SettingsError` if it is invalid.
        look_every: minimum number of seconds between two checks of the file.
        clock: returns seconds of a monotonic clock.

    Raises:
        SettingsError: if the file is not readable now.
    """

    def __init__(
        self,
        path: Path,
        read: Callable[[bytes], T],
        *,
        look_every: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._read = read
        self._check_seconds = look_every
        self._clock = clock
        self._next_check = clock() + look_every
        self._seen: _Seen | None = None
        self._value = self._read_now()

    @property
    def value(self) -> T:
        """Return the current content; check the file first if the last check is old."""
        now = self._clock()
        if now >= self._next_check:
            self._next_check = now + self._check_seconds
            self._reload_if_changed()
        return self._value

    def _reload_if_changed(self) -> None:
        try:
            seen = self._signature()
        except OSError:
            seen = None
        if seen == self._seen:
            return
        try:
            self._value = self._read_now()
        except SettingsError as error:
            self._seen = seen
            _logger.error("who may ask stays as it was", extra={"reason": str(error)})
        else:
            _logger.info("who may ask was read anew", extra={"file": str(self._path)})

    def _read_now(self) -> T:
        try:
            # Read the signature first: a change during the read is then found at the next check.
            seen, mode = self._signature(), self._path.stat().st_mode
            found = self._read(self._path.read_bytes())
        except OSError as error:
            raise SettingsError(f"{self._path} cannot be read: {error.strerror}") from None
        except SettingsError as error:
            raise SettingsError(f"{self._path}: {error}") from None
        if mode & _WRITABLE_BY_OTHERS:
            _logger.warning("others than its owner may write to this file", extra={"file": str(self._path)})
        self._seen = seen
        return found

    def _signature(self) -> _Seen:
        status = self._path.stat()
        return status.st_mtime_ns, status.st_size, status.st_ino
