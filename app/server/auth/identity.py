"""Identities of clients, and errors of authentication and authorization."""

from typing import Literal

import msgspec

from app.protocols.protocol import Permission
from tasks.inference.error import ErrorKind, InferenceError

ACCESS_RESULT = "charioteer_access_result"
"""Key of a request's ASGI state: the `Identity` or the `AccessError` of a client that the connection has verified."""

Reason = Literal["missing", "malformed", "unknown", "expired", "token", "permission", "rate"]
"""Reason of a rejection, as in metrics and logs."""


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """A rate limit.

    Attributes:
        per_second: sustained requests in a second.
        burst: maximum number of requests at once after a pause.
    """

    per_second: float
    burst: int


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """An authenticated client.

    Attributes:
        name: name of a key, or ``jwt:`` and the subject of a token. Names of keys have no colon.
        permissions: its permissions.
        rate: its rate limit; None for the default.
    """

    name: str
    permissions: frozenset[Permission]
    rate: Rate | None = None


class AccessError(InferenceError):
    """A request was rejected by authentication, authorization or a rate limit.

    Args:
        kind: UNAUTHENTICATED, PERMISSION_DENIED or OVERLOADED.
        reason: the reason, as in metrics and logs.
        message: message for the client, without any part of the credential.
        retry_after: seconds to wait before a retry; None if a retry does not help.

    Attributes:
        client: name of the client; empty if unknown.
        logged: False if the log line was dropped by the rate limit.
    """

    def __init__(self, kind: ErrorKind, reason: Reason, message: str, retry_after: int | None = None) -> None:
        super().__init__(kind, message)
        self.reason: Reason = reason
        self.retry_after = retry_after
        self.client = ""
        self.logged = True
