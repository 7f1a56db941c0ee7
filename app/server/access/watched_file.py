"""A file that is read again when it has changed."""

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
    """What a file says, as it says it now. Of one thread, the event loop's.

    A change that cannot be read leaves what was read before in its place, and is logged once.

    Args:
        path: the file, or a link to it: Kubernetes changes links.
        read: what its content means; raises a `SettingsError` for what it cannot read.
        look_every: seconds between two looks at the file, at least.
        clock: seconds since any moment.

    Raises:
        SettingsError: when it cannot be read now.
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
        self._look_every = look_every
        self._clock = clock
        self._next_look = clock() + look_every
        self._seen: _Seen | None = None
        self._value = self._read_now()

    @property
    def value(self) -> T:
        """What it says."""
        now = self._clock()
        if now >= self._next_look:
            self._next_look = now + self._look_every
            self._look()
        return self._value

    def _look(self) -> None:
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
            # Before the content: what is written in between is read at the next look.
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
