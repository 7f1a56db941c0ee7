"""Texts that no tokenizer takes."""

from tasks.exchange.error import invalid

__all__ = ("check_unicode",)


def check_unicode(text: str, path: str) -> None:
    """Refuse half a character, which JSON can spell and UTF-8 cannot.

    Raises:
        InferenceError: INVALID_REQUEST, naming `path`.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        found = f"U+{ord(text[error.start]):04X} at position {error.start}"
        raise invalid(f"Expected Unicode text, got a lone surrogate, {found}", path) from None
