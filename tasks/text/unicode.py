"""Reject texts that tokenizers cannot process."""

from tasks.inference.error import invalid
from tasks.inference.limits import Limits, too_large

__all__ = ("check_text", "check_unicode")


def check_unicode(text: str, path: str) -> None:
    """Reject lone surrogates, which JSON can represent but UTF-8 cannot.

    Raises:
        InferenceError: INVALID_REQUEST, naming `path`.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        position = f"U+{ord(text[error.start]):04X} at position {error.start}"
        raise invalid(f"Expected Unicode text, got a lone surrogate, {position}", path) from None


def check_text(text: str, limits: Limits, path: str) -> None:
    """Reject a text that is not valid Unicode or is too long.

    Raises:
        InferenceError: INVALID_REQUEST or TOO_LARGE, naming `path`.
    """
    if len(text) > limits.max_text_length:
        raise too_large(limits.max_text_length, "characters in one text", len(text), path)
    check_unicode(text, path)
