"""The boxes of which some image files are made: JP2 (ITU-T T.800, I.4) and AVIF (ISO/IEC 14496-12)."""

import struct
from collections.abc import Iterator, Sequence

from tasks.exchange.error import invalid

__all__ = ("Span", "boxes", "boxes_under")

Span = tuple[int, int]
"""Where something begins and ends, in bytes."""

_MOST_BOXES = 4096


def boxes(data: bytes, begin: int = 0, end: int | None = None) -> Iterator[tuple[bytes, Span]]:
    """Kind and content of each box between two places, as far as they can be told.

    Raises:
        InferenceError: INVALID_REQUEST for thousands of them.
    """
    at, end = begin, len(data) if end is None else min(end, len(data))
    for _ in range(_MOST_BOXES):
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
    raise invalid(f"The image is made of more than {_MOST_BOXES} boxes")


def boxes_under(data: bytes, kinds: Sequence[bytes], span: Span | None = None) -> Iterator[Span]:
    """Contents of the boxes that are found by following `kinds` from the outside inwards."""
    if span is None:
        span = (0, len(data))
    for kind, inner in boxes(data, *span):
        if kind == kinds[0]:
            if len(kinds) == 1:
                yield inner
            else:
                yield from boxes_under(data, kinds[1:], inner)
