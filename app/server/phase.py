"""How long a connection may stay in each phase, found out by looking now and then."""

from collections.abc import Callable

from app.settings.transport import TransportSettings

__all__ = ("Phase",)

_LINGER_SECONDS = 2.0
_CLOSE_SECONDS = 1.0


class Phase:
    """Where a connection was when it was last looked at, and since when.

    Nothing is noted while requests go by: who looks compares what there is with what there was.

    Args:
        settings: how long each phase may last.
    """

    def __init__(self, settings: TransportSettings) -> None:
        self._settings = settings
        self._seen = ("", 0)
        self._since = 0.0
        self._base = 0

    def late(self, now: float, where: str, messages: int, moved: Callable[[str], int]) -> str | None:
        """The phase, if it has lasted for too long; else None.

        Args:
            now: seconds of a clock that only goes forward.
            where: the phase: silent, headers, body, unread (an answered request whose body still comes), answer (what
                is written is not taken), idle, lingering, closing; empty when it is the server's turn.
            messages: requests that have begun on the connection.
            moved: bytes that have gone by in the phase given.
        """
        seen = (where, messages)
        bytes_count = where in ("body", "unread", "answer")
        if seen != self._seen:
            self._seen, self._since = seen, now
            self._base = moved(where) if bytes_count else 0
            return None
        most = self._most(where)
        if most is None or now - self._since < most:
            return None
        if bytes_count:
            went = moved(where)
            if went - self._base >= max(1, self._settings.lowest_rate * most):
                self._since, self._base = now, went
                return None
        return where

    def _most(self, where: str) -> float | None:
        settings = self._settings
        match where:
            case "headers":
                return settings.header_timeout
            case "body" | "unread":
                # Most clients look for an answer when they have sent everything, also where it refuses that.
                return settings.body_timeout
            case "answer":
                return settings.write_timeout
            case "silent" | "idle":
                # Pools of proxies and browsers connect before they have something to ask.
                return settings.keep_alive_timeout
            case "lingering":
                return _LINGER_SECONDS
            case "closing":
                return _CLOSE_SECONDS
            case _:
                return None
