"""Who asks, once that is known, and why somebody may not."""

from typing import Literal

import msgspec

from app.protocols.permission import Permission
from tasks.exchange.error import ErrorKind, InferenceError

__all__ = ("AccessError", "Identity", "Rate", "Reason")

Reason = Literal["missing", "malformed", "unknown", "expired", "token", "permission", "rate"]
"""Why somebody was refused, as metrics and logs call it."""


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """How often somebody may ask.

    Attributes:
        per_second: requests, in the long run.
        burst: requests at once, after a pause.
    """

    per_second: float
    burst: int


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who asks.

    Attributes:
        name: of a key, or ``jwt:`` and the subject of a token. No key's name has a colon.
        permissions: what they may do.
        rate: how often; None for as often as everybody.
    """

    name: str
    permissions: frozenset[Permission]
    rate: Rate | None = None


class AccessError(InferenceError):
    """Somebody may not have what they ask for.

    Args:
        kind: UNAUTHENTICATED, PERMISSION_DENIED or OVERLOADED.
        reason: as metrics and logs call it.
        message: for the sender. Never with anything of what was shown in it.
        retry_after: seconds after which it may be tried again, None where that would not help.

    Attributes:
        client: who it was, empty where that is not known.
        logged: False where it was one of too many.
    """

    def __init__(self, kind: ErrorKind, reason: Reason, message: str, retry_after: int | None = None) -> None:
        super().__init__(kind, message)
        self.reason: Reason = reason
        self.retry_after = retry_after
        self.client = ""
        self.logged = True
