"""Read the boxes of image files: JP2 (ITU-T T.800, I.4) and AVIF (ISO/IEC 14496-12)."""

import struct
from collections.abc import Iterator, Sequence

from tasks.inference.error import invalid

__all__ = ("Span", "iter_boxes", "nested_boxes")

Span = tuple[int, int]
"""Start and end in bytes."""

_MAX_BOXES = 4096


def iter_boxes(data: bytes, begin: int = 0, end: int | None = None) -> Iterator[tuple[bytes, Span]]:
    """Yield the kind and content of each box between two offsets, up to the first invalid box.

    Raises:
        InferenceError: INVALID_REQUEST for too many boxes.
    """
    offset, end = begin, len(data) if end is None else min(end, len(data))
    for _ in range(_MAX_BOXES):
        if offset + 8 > end:
            return
        size, box_type = struct.unpack_from(">I4s", data, offset)
        content_start = offset + 8
        if size == 1 and offset + 16 <= end:
            (size,) = struct.unpack_from(">Q", data, content_start)
            content_start += 8
        box_end = offset + size if size else end
        if box_end < content_start:
            return
        yield box_type, (content_start, min(box_end, end))
        offset = box_end
    raise invalid(f"The image has more than {_MAX_BOXES} boxes")


def nested_boxes(data: bytes, box_path: Sequence[bytes], span: Span | None = None) -> Iterator[Span]:
    """Yield the contents of nested boxes with the path `box_path`, from the outermost to the innermost."""
    if span is None:
        span = (0, len(data))
    for box_type, content in iter_boxes(data, *span):
        if box_type == box_path[0]:
            if len(box_path) == 1:
                yield content
            else:
                yield from nested_boxes(data, box_path[1:], content)
