"""Check how long a connection stays in each phase, by periodic sampling."""

from collections.abc import Callable

from app.settings.network import TransportSettings

_LINGER_SECONDS = 2.0
_CLOSE_SECONDS = 1.0


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

        Args:
            now: seconds of a monotonic clock.
            phase: the phase: silent, headers, body, unread (the body of an answered request still arrives), answer (the
                client does not read the response), idle, lingering, closing; empty while the server works.
            message_count: number of requests started on the connection.
            transferred_bytes: returns the number of transferred bytes in the given phase.
        """
        state = (phase, message_count)
        has_progress = phase in ("body", "unread", "answer")
        if state != self._last_state:
            self._last_state, self._state_since = state, now
            self._base_bytes = transferred_bytes(phase) if has_progress else 0
            return None
        limit = self._timeout(phase)
        if limit is None or now - self._state_since < limit:
            return None
        if has_progress:
            transferred = transferred_bytes(phase)
            if transferred - self._base_bytes >= max(1, self._settings.lowest_rate * limit):
                self._state_since, self._base_bytes = now, transferred
                return None
        return phase

    def _timeout(self, phase: str) -> float | None:
        settings = self._settings
        match phase:
            case "headers":
                return settings.header_timeout
            case "body" | "unread":
                # Most clients read the response only after they have sent everything, even if it rejects the body.
                return settings.body_timeout
            case "answer":
                return settings.write_timeout
            case "silent" | "idle":
                # Proxies and browsers open connections before they have a request.
                return settings.keep_alive_timeout
            case "lingering":
                return _LINGER_SECONDS
            case "closing":
                return _CLOSE_SECONDS
            case _:
                return None
