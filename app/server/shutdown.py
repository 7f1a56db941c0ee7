"""Stop the server: the first signal starts a graceful shutdown, the second one exits without delay."""

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

__all__ = ("DrainingServer", "ShutdownHooks")

_SAME_SIGNAL_SECONDS = 0.2
"""Seconds in which a second signal counts as the first: a terminal and a wrapper can both forward it."""

_LOG_SECONDS = 0.5
_GRACE_SECONDS = 5.0
"""Seconds after the drain timeout in which everything else must close."""

_logger = logging.getLogger(__name__)


class ShutdownHooks(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Callbacks of the shutdown, called in the event loop.

    Attributes:
        mark_not_ready: called first: makes the server report not ready, so that load balancers send no more requests.
        start_drain: called when the server stops accepting connections, before it waits for requests in flight.
        drain_delay: seconds between the two.
        drain_timeout: seconds that requests in flight may take.
    """

    mark_not_ready: Callable[[], None]
    start_drain: Callable[[], None]
    drain_delay: float
    drain_timeout: float


class DrainingServer(uvicorn.Server):
    """Extend uvicorn's server: report not ready before it stops listening, and exit after a second signal.

    Args:
        config: the configuration of uvicorn.
        hooks: callbacks of the shutdown.
    """

    def __init__(self, config: uvicorn.Config, hooks: ShutdownHooks) -> None:
        super().__init__(config)
        self._hooks = hooks
        self._signalled_at: float | None = None

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        hooks = self._hooks
        hooks.mark_not_ready()
        if self._signalled_at is not None:
            _logger.info("stopping", extra={"drain_delay": hooks.drain_delay, "drain_timeout": hooks.drain_timeout})
            await asyncio.sleep(hooks.drain_delay)
            _exit_after(hooks.drain_timeout + _GRACE_SECONDS)
        hooks.start_drain()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Handle signals until the process exits. Unlike uvicorn, never raise them again: the drain handles them."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self.handle_exit)
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start the shutdown after the first signal, and exit after the second."""
        now = time.monotonic()
        if self._signalled_at is None:
            self._signalled_at = now
            super().handle_exit(sig, frame)
        elif now - self._signalled_at >= _SAME_SIGNAL_SECONDS:
            _exit_now(128 + sig, "second stop signal", signal=signal.Signals(sig).name)


def _exit_after(seconds: float) -> None:
    """Exit the process after `seconds`, even if a disk, a trace collector or a thread blocks the shutdown."""

    def wait() -> None:
        time.sleep(seconds)
        _exit_now(1, "shutdown timed out", seconds=seconds)

    with suppress(RuntimeError):
        threading.Thread(target=wait, name="end", daemon=True).start()


def _exit_now(status: int, event: str, **fields: object) -> None:
    def log_exit() -> None:
        _logger.warning(event, extra=fields)
        logging.shutdown()

    # Log in another thread: the interrupted one may hold any lock.
    thread = threading.Thread(target=log_exit, daemon=True)
    with suppress(RuntimeError):
        thread.start()
        thread.join(_LOG_SECONDS)
    os._exit(status)
