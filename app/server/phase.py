"""Check how long a connection stays in each phase, by periodic sampling."""

from collections.abc import Callable

from app.settings.transport import TransportSettings

__all__ = ("Phase",)

_LINGER_SECONDS = 2.0
_CLOSE_SECONDS = 1.0


class Phase:
    """Track the phase of a connection at the last check, and its start.

    The request path records nothing: each check compares the current state with the last one.

    Args:
        settings: timeouts of the phases.
    """

    def __init__(self, settings: TransportSettings) -> None:
        self._settings = settings
        self._seen = ("", 0)
        self._since = 0.0
        self._base = 0

    def late(self, now: float, where: str, messages: int, moved: Callable[[str], int]) -> str | None:
        """Return the phase if it has exceeded its timeout, otherwise None.

        Args:
            now: seconds of a monotonic clock.
            where: the phase: silent, headers, body, unread (the body of an answered request still arrives), answer (the
                client does not read the response), idle, lingering, closing; empty while the server works.
                is written is not taken), idle, lingering, closing; empty when it is the server's turn.
            messages: number of requests started on the connection.
            moved: returns the number of transferred bytes in the given phase.
        """
        seen = (where, messages)
        has_progress = where in ("body", "unread", "answer")
        if seen != self._seen:
            self._seen, self._since = seen, now
            self._base = moved(where) if has_progress else 0
            return None
        limit = self._timeout(where)
        if limit is None or now - self._since < limit:
            return None
        if has_progress:
            transferred = moved(where)
            if transferred - self._base >= max(1, self._settings.lowest_rate * limit):
                self._since, self._base = now, transferred
                return None
        return where

    def _timeout(self, where: str) -> float | None:
        settings = self._settings
        match where:
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
