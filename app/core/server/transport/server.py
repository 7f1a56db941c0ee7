"""Run the HTTP server below the applications: connections, certificates, periodic checks, signals and shutdown.

The first signal starts a graceful shutdown, the second one exits without delay.
"""

import asyncio
import logging
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext, suppress
from functools import partial
from types import FrameType

import msgspec
import uvloop

from app.core.server.process_setup import running
from app.core.server.transport.acceptor import Acceptor
from app.core.server.transport.connection import Connection
from app.core.server.transport.connection_table import TICK_SECONDS, ConnectionTable, Listener

_ABORT_SECONDS = 4.0
"""Seconds before the end of the drain at which incomplete requests are rejected. Each connection is checked once a
second and lingers for two seconds after its rejection."""

_SAME_SIGNAL_SECONDS = 0.2
"""Seconds in which a second signal counts as the first: a terminal and a wrapper can both forward it."""

_POLL_SECONDS = 0.1
_LOG_SECONDS = 0.5
_GRACE_SECONDS = 5.0
"""Seconds after the drain timeout in which everything else must close."""

_logger = logging.getLogger(__name__)

Listeners = Sequence[tuple[socket.socket, Listener]]


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


class HttpServer:
    """Serve an application until a stop signal, or until `should_exit` is set.

    Its lifespan is entered before the first connection, and left after the last one. Once it has `started`, it accepts
    connections.
    """

    def __init__(
        self,
        connections: ConnectionTable,
        hooks: ShutdownHooks,
        lifespan: AbstractAsyncContextManager[None] | None = None,
    ) -> None:
        self.started = self.should_exit = False
        self._connections = connections
        self._hooks = hooks
        self._lifespan = lifespan or nullcontext()
        self._signalled_at: float | None = None

    def run(self, listeners: Listeners) -> None:
        """Serve on listening sockets in an event loop of its own."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self.serve(listeners))

    async def serve(self, listeners: Listeners) -> None:
        """Serve on listening sockets in the running event loop."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._handle_signal)
        connections, certificates = self._connections, self._connections.certificates
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(running(_check_connections(connections)))
            if certificates is not None:
                await stack.enter_async_context(running(certificates.follow()))
            await stack.enter_async_context(self._lifespan)
            connections.set_date()
            acceptors = [
                Acceptor(listen_socket, connections, partial(Connection, connections, listener))
                for listen_socket, listener in listeners
            ]
            self.started = True
            while not self.should_exit:
                await asyncio.sleep(_POLL_SECONDS)
            await self._shut_down([listen_socket for listen_socket, _ in listeners], acceptors)

    async def _shut_down(self, sockets: Sequence[socket.socket], acceptors: Sequence[Acceptor]) -> None:
        """Stop accepting connections, and wait for requests in flight until the drain timeout."""
        hooks, connections = self._hooks, self._connections
        hooks.mark_not_ready()
        if self._signalled_at is not None:
            _logger.info("stopping", extra={"drain_delay": hooks.drain_delay, "drain_timeout": hooks.drain_timeout})
            await asyncio.sleep(hooks.drain_delay)
            _exit_after(hooks.drain_timeout + _GRACE_SECONDS)
        seconds_left = max(0.0, hooks.drain_timeout - _ABORT_SECONDS)
        connections.reject_incomplete_at = asyncio.get_running_loop().time() + seconds_left
        hooks.start_drain()
        for acceptor in acceptors:
            acceptor.close()
        for listen_socket in sockets:
            listen_socket.close()
        for connection in connections.open_connections:
            connection.shutdown()
        # The connections that were accepted last are not open yet.
        await asyncio.sleep(_POLL_SECONDS)
        try:
            async with asyncio.timeout(math.ceil(hooks.drain_timeout)):
                while connections.open_connections or connections.tasks:
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            _logger.error("requests cancelled at the drain timeout", extra={"requests": len(connections.tasks)})
            for task in list(connections.tasks):
                task.cancel()

    def _handle_signal(self, number: int, _: FrameType | None) -> None:
        """Start the shutdown after the first signal, and exit after the second."""
        now = time.monotonic()
        if self._signalled_at is None:
            self._signalled_at = now
            self.should_exit = True
        elif now - self._signalled_at >= _SAME_SIGNAL_SECONDS:
            _exit_now(128 + number, "second stop signal", signal=signal.Signals(number).name)


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


async def _check_connections(connections: ConnectionTable) -> None:
    """Check timeouts of connections and update the date periodically, also while the server drains."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(TICK_SECONDS)
        connections.set_date()
        try:
            connections.check_next(loop.time())
        except Exception:
            # A failure of one connection must not stop the checks of the others.
            _logger.exception("connection check failed")
