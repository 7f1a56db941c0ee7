"""Decode JSON whose metadata has lone surrogates, such as the name of a file that is not in UTF-8.

Decoders reject them. Metadata is returned unread, so here a placeholder of the same length stands for each of them, and
undecoded parts are taken from the body as it was received.
"""

import re
from functools import partial
from typing import Any, cast

import msgspec
import numpy as np

SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPE = re.compile(rb"(\\u[dD][89abAB]..\\u[dD][c-fC-F]..)|(\\u[dD][89a-fA-F]..)|\\.", re.DOTALL)
"""A pair of surrogates, a lone surrogate, or another escape."""
_PLACEHOLDER = "\uffff"
"""No text has this code point, which Unicode calls a noncharacter."""


def hide_surrogates(body: bytes) -> bytes:
    """Return a body with placeholders for its lone surrogates."""
    return _ESCAPE.sub(lambda escape: rb"\uffff" if escape[2] else escape[0], body)


def restore_surrogates(value: object, hidden: bytes, body: bytes) -> object:
    """Return a value decoded from `hidden`, with its undecoded parts as in `body`.

    Raise LookupError if another part had a lone surrogate.
    """
    if isinstance(value, msgspec.Raw):
        start = _address(value) - _address(hidden)
        return msgspec.Raw(body[start : start + len(memoryview(value))])
    if isinstance(value, str) and _PLACEHOLDER in value:
        raise LookupError
    restore = partial(restore_surrogates, hidden=hidden, body=body)
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            msgspec.structs.force_setattr(value, name, restore(getattr(value, name)))
    elif isinstance(value, dict):
        return {restore(name): restore(member) for name, member in cast("dict[Any, Any]", value).items()}
    elif isinstance(value, list):
        return list(map(restore, cast("list[Any]", value)))
    return value


def _address(data: bytes | msgspec.Raw) -> int:
    return np.frombuffer(data, np.uint8).ctypes.data
