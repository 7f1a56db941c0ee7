"""Serve the HTTP applications with uvicorn: one server for all ports, its limits, certificates, signals and shutdown.

The first signal starts a graceful shutdown, the second one exits without delay.
"""

import asyncio
import logging
import math
import os
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext, suppress
from functools import partial
from types import FrameType
from typing import Any, cast

import msgspec
import uvicorn
import uvloop
from litestar.types import ASGIApp, Receive, Send

from app.core.server.auth.rate_limiter import LogSampler
from app.core.server.http.guarded_http import GuardedHttp
from app.core.server.http.transport import Transport
from app.core.server.listen import set_timeouts
from app.core.server.tls import Certificates

_ABORT_SECONDS = 4.0
"""Seconds before the end of the drain at which incomplete requests are rejected."""

_SAME_SIGNAL_SECONDS = {signal.SIGINT: 0.2, signal.SIGTERM: 0.02}
"""Seconds in which a second signal counts as the first: a terminal and a wrapper can both forward it."""

_POLL_SECONDS = 0.1
_LOG_SECONDS = 0.5
_GRACE_SECONDS = 5.0
"""Seconds after the drain timeout in which everything else must close."""

_logger = logging.getLogger(__name__)
_log_sampler = LogSampler()


class Listener(msgspec.Struct, kw_only=True, eq=False):
    """An application with a port of its own.

    Attributes:
        name: its name in the start message.
        port: the port to listen on, 0 for any free one; the actual one after the start.
    """

    app: ASGIApp
    name: str = ""
    port: int = 0


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


class HttpServer(uvicorn.Server):
    """Serve applications until a stop signal, or until `should_exit` is set. Once it has `started`, it accepts.

    The lifespan is entered before the first connection, and left after the last one.
    """

    def __init__(
        self,
        listeners: Sequence[Listener],
        transport: Transport,
        hooks: ShutdownHooks,
        lifespan: AbstractAsyncContextManager[None] | None = None,
    ) -> None:
        config = uvicorn.Config(
            cast("Any", _by_port(listeners)),
            http=cast("Any", partial(GuardedHttp, transport)),
            interface="asgi3",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            # A pipelined request must not inherit the client of the request before it.
            reset_contextvars=True,
            timeout_keep_alive=cast("int", transport.settings.keep_alive_timeout),
            timeout_graceful_shutdown=math.ceil(hooks.drain_timeout),
            ssl_context_factory=_context_factory(transport.certificates),
        )
        super().__init__(config)
        self._transport = transport
        self._hooks = hooks
        self._own_lifespan = lifespan or nullcontext()
        self._signalled_at: float | None = None
        self._signal = 0

    def run_on(self, sockets: Sequence[socket.socket]) -> None:
        """Serve on the sockets of the listeners, in an event loop of its own."""
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self.serve_on(sockets))

    async def serve_on(self, sockets: Sequence[socket.socket]) -> None:
        """Serve on the sockets of the listeners, in the running event loop."""
        uvicorn_logger = logging.getLogger("uvicorn.error")
        uvicorn_logger.setLevel(logging.WARNING)
        uvicorn_logger.addFilter(_is_logged)
        for listen_socket in sockets:
            set_timeouts(listen_socket, self._transport.settings.write_timeout)
        self._transport.connections = self.server_state.connections
        certificates = self._transport.certificates
        # `serve` captures signals too, but not while the lifespan begins and ends.
        with self.capture_signals():
            async with AsyncExitStack() as stack:
                if certificates is not None:
                    await stack.enter_async_context(certificates.following())
                await stack.enter_async_context(self._own_lifespan)
                await self.serve(list(sockets))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start the shutdown after the first signal, and exit after the second."""
        del frame
        now, last = time.monotonic(), self._signalled_at
        if last is None:
            self._signalled_at, self._signal = now, sig
            self.should_exit = True
        elif sig != self._signal or now - last >= _SAME_SIGNAL_SECONDS[signal.Signals(sig)]:
            _exit_now(128 + sig, "second stop signal", signal=signal.Signals(sig).name)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting connections, and wait for requests in flight until the drain timeout."""
        hooks, loop = self._hooks, asyncio.get_running_loop()
        hooks.mark_not_ready()
        if self._signalled_at is not None:
            _logger.info("stopping", extra={"drain_delay": hooks.drain_delay, "drain_timeout": hooks.drain_timeout})
            delayed_until = loop.time() + hooks.drain_delay
            while (left := delayed_until - loop.time()) > 0:
                # Requests are still served, and their responses need the date.
                await self.on_tick(0)
                await asyncio.sleep(min(left, 1.0))
            _exit_after(hooks.drain_timeout + _GRACE_SECONDS)
        seconds_left = max(0.0, hooks.drain_timeout - _ABORT_SECONDS)
        self._transport.bodies.reject_incomplete_at(loop.time() + seconds_left)
        hooks.start_drain()
        await super().shutdown(sockets)


def _by_port(listeners: Sequence[Listener]) -> ASGIApp:
    """Return an application that passes each request to the one with its port, or to the first."""
    main = listeners[0].app
    if len(listeners) == 1:
        return main

    async def app(scope: Any, receive: Receive, send: Send) -> None:
        port = scope["server"][1] if scope.get("server") else 0
        found = next((listener.app for listener in listeners if listener.port == port), main)
        await found(scope, receive, send)

    return cast("ASGIApp", app)


def _context_factory(certificates: Certificates | None) -> Callable[..., ssl.SSLContext] | None:
    """Return a factory of a context that takes the current certificates at each handshake; None without TLS."""
    if certificates is None:
        return None

    def take_current(connection: ssl.SSLObject, *_: object) -> None:
        connection.context = certificates.context

    def create(*_: object) -> ssl.SSLContext:
        context = certificates.context
        context.sni_callback = take_current
        return context

    return create


def _is_logged(record: logging.LogRecord) -> bool:
    """Limit uvicorn's lines about invalid requests, so that no client can fill a disk."""
    return record.levelno > logging.WARNING or _log_sampler.sample() is not None


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
