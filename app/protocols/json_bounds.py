"""How much JSON may be in a body, told before it is parsed: parsing takes many times the memory of the text.

Only whole passes over the bytes are made, because there may be millions of them. A body of few members with a picture
in one long text, which nearly every body is, is passed over at the speed of a search for single bytes.
"""

import re
from collections.abc import Iterator

import msgspec
import numpy as np

from tasks.exchange.error import invalid
from tasks.exchange.limits import Limits, beyond

__all__ = ("check_json",)

_MARKS = b'[]{}",:'
_OTHERS = bytes(sorted(set(range(256)) - set(_MARKS)))
_NAME_END = re.compile(rb'"[ \t\r\n]*:')
_SPACE = b" \t\r\n"
_FEW_COLONS = 100
_CHUNK = 1 << 20

_STEPS = np.zeros(256, np.int32)
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1


def check_json(body: bytes, limits: Limits, path: str = "") -> None:
    """Refuse text that would make more of JSON than a request may have. Whether it is JSON is not looked at.

    Args:
        body: the text.
        limits: how deep, how many values and members, and how long their names may be.
        path: where it stands.

    Raises:
        InferenceError: INVALID_REQUEST for what is nested too deeply; TOO_LARGE for the others.
    """
    # Without escapes of quotes, every quote begins or ends a text; one byte of each stays, to be counted in names.
    plain = body.replace(b"\\\\", b"_").replace(b'\\"', b"_") if b"\\" in body else body
    if (
        _has_more(plain, b"[{", limits.max_json_depth)
        or _has_more(plain, b":", limits.max_entries)
        or (len(plain) > limits.max_values and plain.count(b",") + limits.max_json_depth >= limits.max_values)
    ):
        _check_structure(plain, limits, path)
    _check_names(plain, limits.max_name_length, path)


def _has_more(text: bytes, marks: bytes, most: int) -> bool:
    """Whether there are more than `most` of all `marks`, in texts or outside; the fewer, the sooner that is known."""
    left = most
    for mark in marks:
        at = text.find(mark)
        while at >= 0:
            left -= 1
            if left < 0:
                return True
            at = text.find(mark, at + 1)
    return False


def _check_structure(text: bytes, limits: Limits, path: str) -> None:
    """Count what stands outside of texts, some of it at a time, so that other threads have their turn."""
    marks = np.frombuffer(text.translate(None, _OTHERS), np.uint8)
    within, depth, members, values = 0, 0, 0, 1
    for begin in range(0, len(marks), _CHUNK):
        part = marks[begin : begin + _CHUNK]
        inside = np.bitwise_xor.accumulate((part == ord('"')).astype(np.uint8)) ^ np.uint8(within)
        within = int(inside[-1])
        outside = part[inside == 0]
        depths = depth + np.cumsum(_STEPS[outside], dtype=np.int64)
        if len(outside):
            if depths.max() > limits.max_json_depth:
                raise invalid(f"Expected JSON nested {limits.max_json_depth} deep at most, got it deeper", path)
            depth = int(depths[-1])
        members += int(np.count_nonzero(outside == ord(":")))
        if members > limits.max_entries:
            raise beyond(limits.max_entries, "members of JSON objects in one body", path=path)
        values += int(np.count_nonzero((outside == ord(",")) | (_STEPS[outside] > 0)))
        if values > limits.max_values:
            raise beyond(limits.max_values, "JSON values in one body, where binary tensors have none", path=path)


def _check_names(text: bytes, most: int, path: str) -> None:
    quotes = counted = 0
    for end in _name_ends(text):
        if end > most and text.rfind(b'"', end - most - 1, end) < 0:
            quotes, counted = quotes + text.count(b'"', counted, end), end
            if quotes % 2 == 0:
                # This quote begins a text, in which a colon comes first.
                continue
            length = _read_length(text[text.rfind(b'"', 0, end) + 1 : end])
            if length > most:
                raise beyond(most, "bytes in the name of a member", length, path)


def _name_ends(text: bytes) -> Iterator[int]:
    """Where the quotes stand that a colon follows. A few are found sooner by the colons, many by the quotes."""
    begin = 0
    for _ in range(_FEW_COLONS):
        colon = text.find(b":", begin)
        if colon < 0:
            return
        quote = text.rfind(b'"', begin, colon)
        if quote >= 0 and not text[quote + 1 : colon].strip(_SPACE):
            yield quote
        begin = colon + 1
    while begin < len(text):
        # Some of it at a time, as above; what is looked for has no other quote in it.
        until = text.find(b'"', begin + _CHUNK)
        until = len(text) if until < 0 else until
        for found in _NAME_END.finditer(text, begin, until):
            yield found.start()
        begin = until


def _read_length(name: bytes) -> int:
    """Bytes of a name once its escapes are read: to many senders, each letter that is not ASCII is six characters."""
    try:
        return len(msgspec.json.decode(b'"%s"' % name, type=str).encode()) if b"\\" in name else len(name)
    except (msgspec.DecodeError, UnicodeError):
        return len(name)
