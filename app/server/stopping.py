"""How the server comes to its end: told once it stops in good order, told twice at once."""

import asyncio
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType

import msgspec
import uvicorn

__all__ = ("Ending", "StoppingServer")

_SAME = 0.2
"""Seconds within which a second signal is the first one again: a terminal and a wrapper may both pass it on."""

_LAST_WORDS = 0.5
_GRACE = 5.0
"""Seconds behind the drain timeout in which all else has to be closed."""

_logger = logging.getLogger(__name__)


class Ending(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What is called in the event loop when the server stops.

    Attributes:
        retire: at once: load balancers are to be told to send nothing more.
        end: when the server takes no more connections, before it waits for requests in flight.
        delay: seconds between the two.
        timeout: seconds that requests in flight are waited for.
    """

    retire: Callable[[], None]
    end: Callable[[], None]
    delay: float
    timeout: float


class StoppingServer(uvicorn.Server):
    """uvicorn's, which is not ready any more before it stops listening, and which a second signal ends.

    Args:
        config: uvicorn's.
        ending: called on the way.
    """

    def __init__(self, config: uvicorn.Config, ending: Ending) -> None:
        super().__init__(config)
        self._ending = ending
        self._told: float | None = None

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        ending = self._ending
        ending.retire()
        if self._told is not None:
            _logger.info("stopping", extra={"drain_delay": ending.delay, "drain_timeout": ending.timeout})
            await asyncio.sleep(ending.delay)
            _end_after(ending.timeout + _GRACE)
        ending.end()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Hear signals from here on until the process has ended: none is raised again, the drain is all there is."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self.handle_exit)
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal has come."""
        now = time.monotonic()
        if self._told is None:
            self._told = now
            super().handle_exit(sig, frame)
        elif now - self._told >= _SAME:
            _end_now(128 + sig, "told to stop again", signal=signal.Signals(sig).name)


def _end_after(seconds: float) -> None:
    """End the process if it is still there then, whatever it waits for: a disk, a collector of traces, a thread."""

    def wait() -> None:
        time.sleep(seconds)
        _end_now(1, "the end took too long", seconds=seconds)

    with suppress(RuntimeError):
        threading.Thread(target=wait, name="end", daemon=True).start()


def _end_now(status: int, event: str, **fields: object) -> None:
    def last_words() -> None:
        _logger.warning(event, extra=fields)
        logging.shutdown()

    # In a thread, because the one that was interrupted may hold any lock there is.
    thread = threading.Thread(target=last_words, daemon=True)
    with suppress(RuntimeError):
        thread.start()
        thread.join(_LAST_WORDS)
    os._exit(status)
