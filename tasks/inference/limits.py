"""Limits on one request, and their checks."""

from collections.abc import Callable

import msgspec

from tasks.inference.error import ErrorKind, InferenceError, invalid


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits on one request. Limits of an image are checked with its header, before it is decoded.

    Attributes:
        max_request_bytes: bytes of a body after decompression.
        max_image_scans: scans of a JPEG; decoding each can cost as much as decoding a whole image.
        allow_avif_jpeg2000: whether to decode these formats, although only the decoder limits its memory.
        max_inputs: images or texts in one request.
        max_elements: numbers and BYTES elements of all tensors in one request.
        max_values: JSON values, mostly numbers, in one body.
        max_entries: members of JSON objects, BYTES elements of binary tensors, and fields of gRPC messages in one body.
        max_name_length: bytes of a name: of a request, an input or a parameter.
        max_prompts: prompts of all images in one request; each has at most `max_text_length` characters.
        max_explanation_samples: masked copies of images that the model processes to explain one request.
        downscale: return the factor, such as 3.2, by which the model downscales an image of (width, height). Images are
            then decoded at a fraction of their size; None to decode them fully.
    """

    max_request_bytes: int = 64 * 1024 * 1024
    max_pixels: int = 64_000_000
    max_request_pixels: int = 256_000_000
    max_image_side: int = 32_768
    max_image_scans: int = 64
    allow_avif_jpeg2000: bool = False
    max_inputs: int = 256
    max_elements: int = 32 * 1024 * 1024
    max_values: int = 4_000_000
    max_entries: int = 100_000
    max_json_depth: int = 100
    max_name_length: int = 1024
    max_prompts: int = 256
    max_text_length: int = 200_000
    max_new_tokens: int = 1024
    max_explanation_samples: int = 2000
    max_explanation_seconds: float = 30.0
    downscale: Callable[[int, int], float] | None = None


def too_large(max_count: int, unit: str, actual: int | None = None, path: str = "") -> InferenceError:
    """Return a TOO_LARGE error: at most `max_count` of `unit` are allowed, `actual` were sent; None if unknown."""
    return InferenceError(
        ErrorKind.TOO_LARGE,
        f"Expected at most {max_count:,} {unit}, got {'more' if actual is None else f'{actual:,}'}",
        path,
    )


def check_unicode(text: str, path: str) -> None:
    """Reject lone surrogates, which JSON can represent but UTF-8 cannot. Raise INVALID_REQUEST, naming `path`."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        position = f"U+{ord(text[error.start]):04X} at position {error.start}"
        raise invalid(f"Expected Unicode text, got a lone surrogate, {position}", path) from None


def check_text(text: str, limits: Limits, path: str, kind: str = "text") -> None:
    """Reject, naming `path`, a text, or another `kind` of it, that is not valid Unicode or is too long."""
    if len(text) > limits.max_text_length:
        raise too_large(limits.max_text_length, f"characters in one {kind} (--max-text-length)", len(text), path)
    check_unicode(text, path)
