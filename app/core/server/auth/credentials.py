"""Find the credential in a request, and describe the identity behind it and the errors without one."""

import base64
from collections.abc import Iterable
from typing import Literal

import msgspec

from app.core.engine.scheduling.token_bucket import Rate
from app.core.protocols.protocol import Permission
from tasks.inference.error import ErrorKind, InferenceError

Reason = Literal["missing", "malformed", "unknown", "expired", "token", "permission", "rate"]
"""Reason of a rejection, as in metrics and logs."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """An authenticated client.

    Attributes:
        name: name of a key, or ``jwt:`` and the subject of a token. Names of keys have no colon.
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


AUTHORIZATION = "authorization"
KEY_HEADER = "x-api-key"
"""Overrides the other header, which a gateway may need for itself."""

_MAX_CHARACTERS = 16 * 1024


def credential_of(headers: Iterable[tuple[str, str]]) -> str:
    """Return the key or token of a request: ``Bearer <it>``, the password of ``Basic``, or `KEY_HEADER`.

    Raise UNAUTHENTICATED if there is none, if a header appears twice, or if it is malformed.

    Args:
        headers: headers or gRPC metadata, names in lower case.
    """
    values_by_header: dict[str, list[str]] = {}
    for name, value in headers:
        if name in (KEY_HEADER, AUTHORIZATION):
            values_by_header.setdefault(name, []).append(value)
    if not values_by_header:
        raise unauthenticated("missing", "Expected a key or a token in Authorization or X-API-Key, got neither")
    name = KEY_HEADER if KEY_HEADER in values_by_header else AUTHORIZATION
    values = values_by_header[name]
    if len(values) > 1:
        raise unauthenticated("malformed", f"Expected {name} once, got it {len(values)} times")
    credential = values[0].strip() if name == KEY_HEADER else _parse_authorization(values[0])
    if not credential:
        raise unauthenticated("malformed", f"Expected a key or a token in {name}, got none")
    if len(credential) > _MAX_CHARACTERS:
        raise unauthenticated(
            "malformed", f"Expected a key or a token of at most {_MAX_CHARACTERS:,} characters, got more"
        )
    return credential


def unauthenticated(reason: Reason, message: str) -> AccessError:
    """Return the error for a client without a valid credential."""
    return AccessError(ErrorKind.UNAUTHENTICATED, reason, message)


def _parse_authorization(value: str) -> str:
    scheme, _, credential = value.strip().partition(" ")
    match scheme.lower():
        case "bearer":
            return credential.strip()
        case "basic":
            try:
                return base64.b64decode(credential.strip(), validate=True).decode("latin-1").partition(":")[2]
            except ValueError:
                raise unauthenticated("malformed", "Expected base64 behind Basic in authorization") from None
        case _:
            raise unauthenticated("malformed", "Expected Bearer or Basic in authorization, got something else")
