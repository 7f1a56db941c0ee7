"""Shorten values for messages."""

import msgspec

__all__ = ("brief",)


def brief(value: object, longest: int = 120) -> str:
    """Return a value or a body as one line of at most `longest` characters."""
    if isinstance(value, bytes):
        text = value[: 4 * longest].decode(errors="replace")
    else:
        try:
            text = msgspec.json.encode(value).decode()
        except (TypeError, ValueError, UnicodeError, RecursionError):
            text = repr(value)
    text = " ".join(text.split())
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
