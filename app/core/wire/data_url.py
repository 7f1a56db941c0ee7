"""Read base64, and ``data:`` URLs as RFC 2397 and the Fetch standard of the WHATWG do."""

import re
from urllib.parse import unquote_to_bytes

import pybase64

from tasks.inference.error import invalid, truncate

_START = re.compile(r"[\x00-\x20]*data:", re.IGNORECASE)
_SPACES = "\t\n\f\r "
_URL_SAFE = str.maketrans("-_", "+/", _SPACES)


def media_type_of(text: str) -> str | None:
    """Return the media type of a data URL, in lower case and without parameters; None for other texts."""
    start = _START.match(text)
    if start is None:
        return None
    return text[start.end() : start.end() + 256].partition(",")[0].partition(";")[0].strip(_SPACES).lower()


def decode_data_url(text: str) -> bytes:
    """Return the content of a data URL, in base64 or percent-encoded.

    Raise INVALID_REQUEST if it has no comma, or its base64 is invalid.
    """
    head, comma, content = text.partition(",")
    if not comma:
        raise invalid("Expected a data URI of the form data:<type>;base64,<data>")
    encoding = head.rstrip(_SPACES).rpartition(";")
    if encoding[1] and encoding[2].lstrip(" ").lower() == "base64":
        return decode_base64(content, in_url=True)
    return _unquote(content)


def decode_base64(encoded: str, *, in_url: bool = False) -> bytes:
    """Decode base64 (RFC 4648): standard or URL-safe, with padding or none, and with line breaks.

    In a URL it may be percent-encoded, and a fragment may follow. Raise INVALID_REQUEST for other texts.
    """
    try:
        return pybase64.b64decode(encoded, validate=True)
    except ValueError:
        text = _unquote(encoded).decode(errors="replace") if in_url else encoded
    compact = text.translate(_URL_SAFE).rstrip("=")
    try:
        return pybase64.b64decode(compact + "=" * (-len(compact) % 4), validate=True)
    except ValueError:
        raise invalid(f"Expected base64, got {truncate(encoded, 24)!r}") from None


def _unquote(content: str) -> bytes:
    return unquote_to_bytes(content.partition("#")[0].encode(errors="surrogatepass"))
