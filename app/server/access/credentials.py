"""What a caller shows: a key or a token, in one of the places where those are looked for."""

import base64
import binascii
from collections.abc import Iterable

from app.server.access.identity import AccessError, Reason
from tasks.exchange.error import ErrorKind

__all__ = ("AUTHORIZATION", "KEY_HEADER", "credential_of", "unauthenticated")

AUTHORIZATION = "authorization"
KEY_HEADER = "x-api-key"
"""Goes before the other: a gateway may need that one for itself."""

_LONGEST = 16 * 1024


def credential_of(headers: Iterable[tuple[str, str]]) -> str:
    """The key or token that a request shows, as ``Bearer <it>``, as the password of ``Basic``, or in `KEY_HEADER`.

    Args:
        headers: or gRPC's metadata, with names in lower case.

    Raises:
        AccessError: UNAUTHENTICATED when there is none, when there is more than one of a kind, or when it cannot be
            read.
    """
    shown: dict[str, list[str]] = {}
    for name, value in headers:
        if name in (KEY_HEADER, AUTHORIZATION):
            shown.setdefault(name, []).append(value)
    if not shown:
        raise unauthenticated("missing", "Expected a key or a token in Authorization or X-API-Key, got neither")
    name = KEY_HEADER if KEY_HEADER in shown else AUTHORIZATION
    values = shown[name]
    if len(values) > 1:
        raise unauthenticated("malformed", f"Expected {name} once, got it {len(values)} times")
    found = values[0].strip() if name == KEY_HEADER else _authorized(values[0])
    if not found:
        raise unauthenticated("malformed", f"Expected a key or a token in {name}, got none")
    if len(found) > _LONGEST:
        raise unauthenticated("malformed", f"Expected a key or a token of at most {_LONGEST:,} characters, got more")
    return found


def unauthenticated(reason: Reason, message: str) -> AccessError:
    """The refusal of somebody of whom it is not known who they are."""
    return AccessError(ErrorKind.UNAUTHENTICATED, reason, message)


def _authorized(value: str) -> str:
    scheme, _, rest = value.strip().partition(" ")
    match scheme.lower():
        case "bearer":
            return rest.strip()
        case "basic":
            return _password(rest.strip())
        case _:
            raise unauthenticated("malformed", "Expected Bearer or Basic in authorization, got something else")


def _password(encoded: str) -> str:
    try:
        return base64.b64decode(encoded, validate=True).decode("latin-1").partition(":")[2]
    except (binascii.Error, ValueError):
        raise unauthenticated("malformed", "Expected base64 behind Basic in authorization") from None
