"""Read the boxes of image files: JP2 (ITU-T T.800, I.4) and AVIF (ISO/IEC 14496-12)."""

import struct
from collections.abc import Iterator, Sequence

from tasks.exchange.error import invalid

__all__ = ("Span", "boxes", "boxes_under")

Span = tuple[int, int]
"""Start and end in bytes."""

_MAX_BOXES = 4096


def boxes(data: bytes, begin: int = 0, end: int | None = None) -> Iterator[tuple[bytes, Span]]:
    """Yield the kind and content of each box between two offsets, up to the first invalid box.

    Raises:
        InferenceError: INVALID_REQUEST for too many boxes.
    """
    at, end = begin, len(data) if end is None else min(end, len(data))
    for _ in range(_MAX_BOXES):
        if at + 8 > end:
            return
        size, kind = struct.unpack_from(">I4s", data, at)
        inner = at + 8
        if size == 1 and at + 16 <= end:
            (size,) = struct.unpack_from(">Q", data, inner)
            inner += 8
        until = at + size if size else end
        if until < inner:
            return
        yield kind, (inner, min(until, end))
        at = until
    raise invalid(f"The image has more than {_MAX_BOXES} boxes")


def boxes_under(data: bytes, kinds: Sequence[bytes], span: Span | None = None) -> Iterator[Span]:
    """Yield the contents of nested boxes with the path `kinds`, from the outermost to the innermost."""
    if span is None:
        span = (0, len(data))
    for kind, inner in boxes(data, *span):
        if kind == kinds[0]:
            if len(kinds) == 1:
                yield inner
            else:
                yield from boxes_under(data, kinds[1:], inner)
