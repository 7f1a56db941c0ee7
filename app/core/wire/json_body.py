"""Decode JSON bodies within limits, with errors that name the field and the reason.

Limits are checked before parsing, which takes many times the memory of the text. The checks are passes over all bytes
at once, because a body may have millions of values. The usual body, with few members and one image in a long text, is
checked at the speed of a byte search.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import TypeVar, cast

import msgspec
import numpy as np

from app.core.wire.lone_surrogates import SURROGATE, hide_surrogates, restore_surrogates
from metadata.request import METADATA_PARAMETER
from tasks.inference.error import InferenceError, invalid
from tasks.inference.limits import Limits, too_large
from tasks.inference.request import validation_error
from tasks.vision.decompression_bombs import PNG_SIGNATURE
from tasks.vision.header import JPEG_START
from tasks.vision.tiff import TIFF_STARTS

T = TypeVar("T")

_MAX_DIAGNOSED_BYTES = 1_000_000
"""For larger invalid bodies, the error does not name the field: the search costs many times the body's size."""

_PEEK_BYTES = 256
_IMAGES = {
    JPEG_START: "JPEG",
    PNG_SIGNATURE: "PNG",
    b"GIF8": "GIF",
    b"RIFF": "WebP",
    b"BM": "BMP",
    **dict.fromkeys(TIFF_STARTS, "TIFF"),
}
_IMAGE_ADVICE = (
    "Send an image as base64 in the JSON; or as the body of /v2/models/<name>/infer with the header "
    "Inference-Header-Content-Length: 0; or as the body of /infer, if the server has --chariot-protocol chariot-v2"
)

_STRUCTURAL = b'[]{}",:'
_NOT_STRUCTURAL = bytes(sorted(set(range(256)) - set(_STRUCTURAL)))
_MAX_SEARCHES = 100
"""Beyond this number of occurrences, other ways are faster than a search for each."""

_CHUNK_BYTES = 1 << 20

_DEPTH_STEPS = np.zeros(256, np.int32)
_DEPTH_STEPS[list(b"[{")] = 1
_DEPTH_STEPS[list(b"]}")] = -1


def read_json(
    body: bytes | msgspec.Raw,
    expected_type: type[T],
    path: str = "",
    limits: Limits | None = None,
    subject: str = "body",
) -> T:
    """Decode `body` as `expected_type`.

    Raise INVALID_REQUEST naming the field under `path`, or the byte where the text is not valid JSON; as `check_json`.

    Args:
        body: the JSON text.
        expected_type: the type to decode.
        path: path of the text in the request.
        limits: limits for text that was not checked yet; None for a part of checked text.
        subject: what the text is, for errors about its syntax.
    """
    try:
        if limits is not None:
            check_json(bytes(body), limits, path)
        return _decoder(expected_type).decode(body)
    except InferenceError as error:
        raise _image_error(body, path) or error from None
    except msgspec.ValidationError as error:
        raise validation_error(error, path, expected_type) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if (hidden := hide_surrogates(received := bytes(body))) != received:
            with suppress(LookupError):
                decoded = read_json(hidden, expected_type, path, subject=subject)
                return cast("T", restore_surrogates(decoded, hidden, received))
        raise _image_error(body, path) or _diagnose(memoryview(body), error, path, subject) from None
    except RecursionError:
        raise invalid("Expected JSON that is not nested too deeply", path) from None


def read_parameters_object(raw: Mapping[str, msgspec.Raw] | None, path: str) -> Mapping[str, object]:
    """Decode the members of a `parameters` object, except `metadata`, which stays as received to be returned.

    Raise INVALID_REQUEST naming the invalid parameter under `path`.
    """
    if not raw:
        return {}
    parameters: dict[str, object] = {}
    for name, value in raw.items():
        value_path = f"{path}.{name}"
        is_metadata = name == METADATA_PARAMETER
        parameters[name] = _raw_utf8(value, value_path) if is_metadata else read_json(value, object, value_path)
    return parameters


def event(json: bytes) -> bytes:
    """Return JSON as a server-sent event."""
    return b"data: " + json + b"\n\n"


def first_path(value: object, predicate: Callable[[object], bool], path: str = "") -> tuple[str, object] | None:
    """Return the path and value of the first match in decoded JSON, depth first; None without a match.

    `predicate` returns whether a value, or the name of a member, matches. `path` is the path of `value`.
    """
    if predicate(value):
        return path, value
    members: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, dict):
        members = cast("dict[str, object]", value).items()
    elif isinstance(value, list):
        members = enumerate(cast("list[object]", value))
    for key, member in members:
        if isinstance(key, str) and predicate(key):
            return path, key
        if predicate(member) or type(member) in (dict, list):
            member_path = (
                f"{path}[{key}]" if isinstance(key, int) else f"{path}.{key}" if path and key else f"{path}{key}"
            )
            if (found := first_path(member, predicate, member_path)) is not None:
                return found
    return None


@cache
def _decoder(expected_type: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(expected_type)


def _raw_utf8(raw: msgspec.Raw, path: str) -> msgspec.Raw:
    try:
        str(raw, "utf-8")
    except UnicodeDecodeError:
        raise invalid("Expected JSON in UTF-8, got other bytes", path) from None
    return raw.copy()


def _image_error(body: bytes | msgspec.Raw, path: str) -> InferenceError | None:
    """Return an error with advice if a whole body is an image or a form instead of JSON."""
    start = bytes(memoryview(body)[:_PEEK_BYTES])
    found = next((f"a {name} image" for signature, name in _IMAGES.items() if start.startswith(signature)), None)
    if start.startswith(b"--") and b"form-data" in start:
        found = "a form (multipart/form-data)"
    if path or found is None:
        return None
    return invalid(f"Expected JSON, got {found}. {_IMAGE_ADVICE}")


def _diagnose(body: memoryview, error: Exception, path: str, subject: str) -> InferenceError:
    if not bytes(body[:_MAX_DIAGNOSED_BYTES]).strip():
        return invalid(f"Expected a JSON object, got an empty {subject}", path)
    # msgspec raises UnicodeDecodeError before version 0.23, and DecodeError since.
    if isinstance(error, UnicodeDecodeError) or "UTF-8" in str(error):
        return invalid("Expected JSON in UTF-8, got other bytes", path)
    # The standard library accepts two things that are not JSON: NaN and Infinity, and lone surrogates. Use its result
    # to find them.
    invalid_item = None
    if len(body) <= _MAX_DIAGNOSED_BYTES:
        with suppress(ValueError, RecursionError):
            invalid_item = first_path(json.loads(bytes(body)), _is_invalid_json, path)
    if invalid_item is None:
        return invalid(f"The {subject} is not valid JSON: {str(error).removeprefix('JSON is malformed: ')}", path)
    item_path, value = invalid_item
    if isinstance(value, float):
        return invalid(f"Expected a finite number, got {value}", item_path)
    return invalid("Expected Unicode text, got half of a surrogate pair", item_path)


def _is_invalid_json(value: object) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    return isinstance(value, str) and SURROGATE.search(value) is not None


def check_json(body: bytes, limits: Limits, path: str = "") -> None:
    """Reject text with more JSON than a request may have, named by `path`. Its syntax is not checked.

    Raise INVALID_REQUEST for deep nesting; TOO_LARGE for the other limits.
    """
    # Without escaped quotes, every quote starts or ends a text.
    unescaped = body.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in body else body
    if (
        _count(b"[", unescaped) + _count(b"{", unescaped) > limits.max_json_depth
        or (len(unescaped) > limits.max_entries and _count(b":", unescaped) > limits.max_entries)
        or (len(unescaped) > limits.max_values and unescaped.count(b",") + limits.max_json_depth >= limits.max_values)
    ):
        _check_structure(unescaped, limits, path)


def _count(character: bytes, text: bytes) -> int:
    """Return how often `character` occurs in `text`.

    `bytes.count` compares each byte. If there are few occurrences, a search for the next one is many times faster.
    """
    position = -1
    for count in range(_MAX_SEARCHES):
        position = text.find(character, position + 1)
        if position < 0:
            return count
    return text.count(character)


def _check_structure(text: bytes, limits: Limits, path: str) -> None:
    """Count the structural characters outside of texts, in chunks, so that other threads can run in between."""
    # A text has no more values than bytes, so that the commas of a shorter one need no count.
    ignored = _NOT_STRUCTURAL if len(text) > limits.max_values else _NOT_STRUCTURAL + b","
    structure = np.frombuffer(text.translate(None, ignored), np.uint8)
    in_text, depth, members, values = 0, 0, 0, 1
    for begin in range(0, len(structure), _CHUNK_BYTES):
        chunk = structure[begin : begin + _CHUNK_BYTES]
        is_in_text = np.bitwise_xor.accumulate((chunk == ord('"')).astype(np.uint8)) ^ np.uint8(in_text)
        in_text = int(is_in_text[-1])
        outside_text = chunk[is_in_text == 0]
        depths = depth + np.cumsum(_DEPTH_STEPS[outside_text], dtype=np.int64)
        if len(outside_text):
            if depths.max() > limits.max_json_depth:
                message = f"Expected JSON nested {limits.max_json_depth} deep at most (--max-json-depth), got it deeper"
                raise invalid(message, path)
            depth = int(depths[-1])
        members += int(np.count_nonzero(outside_text == ord(":")))
        if members > limits.max_entries:
            raise too_large(limits.max_entries, "members of JSON objects in one body (--max-entries)", path=path)
        values += int(np.count_nonzero((outside_text == ord(",")) | (_DEPTH_STEPS[outside_text] > 0)))
        if values > limits.max_values:
            raise too_large(
                limits.max_values, "JSON values in one body (--max-values); binary tensors have none", path=path
            )
