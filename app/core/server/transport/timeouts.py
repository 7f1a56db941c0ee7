"""Check how long a connection stays in each phase, by periodic sampling."""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING

from app.core.server.transport import tcp_info
from app.core.settings.network import TransportSettings

if TYPE_CHECKING:
    from app.core.server.transport.connection import Connection

_TIMEOUTS: Mapping[str, Callable[[TransportSettings], float]] = {
    # Proxies and browsers open connections before they have a request.
    "silent": attrgetter("keep_alive_timeout"),
    "idle": attrgetter("keep_alive_timeout"),
    "headers": attrgetter("header_timeout"),
    "body": attrgetter("body_timeout"),
    # Most clients read the response only after they have sent everything, even if it rejects the body.
    "unread": attrgetter("body_timeout"),
    "answer": attrgetter("write_timeout"),
    "lingering": lambda _: 2.0,
    "closing": lambda _: 1.0,
}
"""Seconds that each phase may take; any other phase has no timeout."""


class ConnectionTimeouts:
    """Track the phase of a connection at the last check, and its start.

    The request path records nothing: each check compares the current state with the last one.
    """

    def __init__(self, settings: TransportSettings) -> None:
        self._settings = settings
        self._last_state = ("", 0)
        self._state_since = 0.0
        self._base_bytes = 0

    def expired_phase(
        self, now: float, phase: str, message_count: int, transferred_bytes: Callable[[str], int]
    ) -> str | None:
        """Return the phase if it has exceeded its timeout, otherwise None.

        The phases are silent, headers, body, unread (the body of an answered request still arrives), answer (the client
        does not read the response), idle, lingering, closing; the phase is empty while the server works. `now` is in
        seconds of a monotonic clock.
        """
        state = (phase, message_count)
        has_progress = phase in ("body", "unread", "answer")
        if state != self._last_state:
            self._last_state, self._state_since = state, now
            self._base_bytes = transferred_bytes(phase) if has_progress else 0
            return None
        if phase not in _TIMEOUTS or now - self._state_since < (limit := _TIMEOUTS[phase](self._settings)):
            return None
        if has_progress:
            transferred = transferred_bytes(phase)
            if transferred - self._base_bytes >= max(1, self._settings.lowest_rate * limit):
                self._state_since, self._base_bytes = now, transferred
                return None
        return phase


def current_phase(connection: "Connection") -> str:
    """Return the phase of a connection, as in `ConnectionTimeouts.expired_phase`."""
    newest, parser = connection.newest, connection.parser
    if connection.write_paused or connection.transport.get_write_buffer_size():
        return "answer"
    if connection.transport.is_closing():
        return "answer" if tcp_info.unsent_bytes(connection.socket) else "closing"
    if connection.read_closed:
        response_pending = newest is not None and not (newest.response_complete or newest.disconnected)
        return "" if response_pending else "lingering"
    if connection.read_paused:
        return ""
    if connection.draining:
        return "unread"
    if parser.in_head:
        return "headers"
    if newest is None:
        return "silent"
    if parser.in_message:
        return "unread" if newest.response_complete else "body"
    if not newest.response_complete:
        return ""
    # uvloop does not report encrypted bytes that it cannot send.
    return "answer" if connection.scheme == "https" and tcp_info.unsent_bytes(connection.socket) else "idle"


def transferred_bytes(connection: "Connection", phase: str) -> int:
    """Return a number that grows with the bytes that a connection transfers in a phase."""
    if phase != "answer":
        return connection.parser.body_bytes
    acknowledged_bytes = tcp_info.acknowledged_bytes(connection.socket)
    return -connection.transport.get_write_buffer_size() if acknowledged_bytes is None else acknowledged_bytes
