"""Shorten values for messages."""

import msgspec


def quote(value: object, max_length: int = 120) -> str:
    """Return a value or a body as one line of at most `max_length` characters."""
    if isinstance(value, bytes):
        text = value[: 4 * max_length].decode(errors="replace")
    else:
        try:
            text = msgspec.json.encode(value).decode()
        except (TypeError, ValueError, UnicodeError, RecursionError):
            text = repr(value)
    text = " ".join(text.split())
    return text if len(text) <= max_length else f"{text[: max_length - 3]}..."
