"""Limit the JSON in a body before parsing, which takes many times the memory of the text.

The checks are passes over all bytes at once, because a body may have millions of values. The usual body, with few
members and one image in a long text, is checked at the speed of a byte search.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import chain

import msgspec
import numpy as np

from tasks.inference.error import invalid
from tasks.inference.limits import Limits, too_large

_STRUCTURAL = b'[]{}",:'
_NOT_STRUCTURAL = bytes(sorted(set(range(256)) - set(_STRUCTURAL)))
_NAME_END = re.compile(rb'"[ \t\r\n]*:')
_SPACE = b" \t\r\n"
_MAX_COLON_STEPS = 100
_CHUNK_BYTES = 1 << 20

_DEPTH_STEPS = np.zeros(256, np.int32)
_DEPTH_STEPS[list(b"[{")] = 1
_DEPTH_STEPS[list(b"]}")] = -1


def check_json(body: bytes, limits: Limits, path: str = "") -> None:
    """Reject text with more JSON than a request may have. Its syntax is not checked.

    Args:
        body: the JSON text.
        limits: maximum depth, number of values and members, and length of names.
        path: path of the text in the request.

    Raises:
        InferenceError: INVALID_REQUEST for deep nesting; TOO_LARGE for the other limits.
    """
    # Without escaped quotes, every quote starts or ends a text. Keep one byte of each escape for the length of names.
    unescaped = body.replace(b"\\\\", b"_").replace(b'\\"', b"_") if b"\\" in body else body
    if (
        unescaped.count(b"[") + unescaped.count(b"{") > limits.max_json_depth
        or unescaped.count(b":") > limits.max_entries
        or (len(unescaped) > limits.max_values and unescaped.count(b",") + limits.max_json_depth >= limits.max_values)
    ):
        _check_structure(unescaped, limits, path)
    _check_names(unescaped, limits.max_name_length, path)


def _check_structure(text: bytes, limits: Limits, path: str) -> None:
    """Count the structural characters outside of texts, in chunks, so that other threads can run in between."""
    structure = np.frombuffer(text.translate(None, _NOT_STRUCTURAL), np.uint8)
    in_text, depth, members, values = 0, 0, 0, 1
    for begin in range(0, len(structure), _CHUNK_BYTES):
        chunk = structure[begin : begin + _CHUNK_BYTES]
        is_in_text = np.bitwise_xor.accumulate((chunk == ord('"')).astype(np.uint8)) ^ np.uint8(in_text)
        in_text = int(is_in_text[-1])
        outside_text = chunk[is_in_text == 0]
        depths = depth + np.cumsum(_DEPTH_STEPS[outside_text], dtype=np.int64)
        if len(outside_text):
            if depths.max() > limits.max_json_depth:
                raise invalid(f"Expected JSON nested {limits.max_json_depth} deep at most, got it deeper", path)
            depth = int(depths[-1])
        members += int(np.count_nonzero(outside_text == ord(":")))
        if members > limits.max_entries:
            raise too_large(limits.max_entries, "members of JSON objects in one body", path=path)
        values += int(np.count_nonzero((outside_text == ord(",")) | (_DEPTH_STEPS[outside_text] > 0)))
        if values > limits.max_values:
            raise too_large(limits.max_values, "JSON values in one body, where binary tensors have none", path=path)


def _check_names(text: bytes, max_length: int, path: str) -> None:
    quotes = counted_until = 0
    for end in _name_ends(text):
        if end > max_length and text.rfind(b'"', end - max_length - 1, end) < 0:
            quotes, counted_until = quotes + text.count(b'"', counted_until, end), end
            if quotes % 2 == 0:
                # This quote starts a text that begins with a colon.
                continue
            length = _read_length(text[text.rfind(b'"', 0, end) + 1 : end])
            if length > max_length:
                raise too_large(max_length, "bytes in the name of a member", length, path)


def _name_ends(text: bytes) -> Iterable[int]:
    """Return the positions of quotes before a colon: search by colon if there are few, by quote if there are many."""
    ends: list[int] = []
    begin = 0
    for _ in range(_MAX_COLON_STEPS):
        colon = text.find(b":", begin)
        if colon < 0:
            return ends
        quote = text.rfind(b'"', begin, colon)
        if quote >= 0 and not text[quote + 1 : colon].strip(_SPACE):
            ends.append(quote)
        begin = colon + 1
    return chain(ends, _name_ends_by_quote(text, begin))


def _name_ends_by_quote(text: bytes, begin: int) -> Iterator[int]:
    while begin < len(text):
        # Search in chunks, as above; a match contains only its own quote.
        chunk_end = text.find(b'"', begin + _CHUNK_BYTES)
        chunk_end = len(text) if chunk_end < 0 else chunk_end
        for match in _NAME_END.finditer(text, begin, chunk_end):
            yield match.start()
        begin = chunk_end


def _read_length(name: bytes) -> int:
    """Return the length of a name in bytes without its escapes: some clients escape each non-ASCII letter."""
    try:
        return len(msgspec.json.decode(b'"%s"' % name, type=str).encode()) if b"\\" in name else len(name)
    except (msgspec.DecodeError, UnicodeError):
        return len(name)
