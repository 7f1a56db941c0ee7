"""Translate paths of errors, from fields of the neutral request to fields of a protocol's body.

The model and its task know only the neutral request: ``inputs[0].data[1]``, ``inputs[0].parameters.top_k``.
"""

import re
from collections.abc import Callable, Mapping

from tasks.inference.error import InferenceError

_INPUT = re.compile(r"inputs\[(\d+)\]\.?(.*)", re.DOTALL)


def map_path(
    error: InferenceError, input_path: Callable[[int, str], str], request_places: Mapping[str, str] | None = None
) -> InferenceError:
    """Return `error` with its path in terms of a protocol's body.

    Args:
        error: the error.
        input_path: returns the path for an input's index and the path within the input, which may be empty.
        request_places: places of fields outside the inputs, as in `move`.
    """
    match = _INPUT.fullmatch(error.path)
    path = move(error.path, request_places or {}) if match is None else input_path(int(match[1]), match[2])
    if path == error.path:
        return error
    return InferenceError(error.kind, error.message, path, retry_after=error.retry_after)


def move(path: str, places: Mapping[str, str]) -> str:
    """Return `path` with its longest prefix in `places` replaced by the place; an empty prefix matches every path."""
    for prefix in sorted(places, key=len, reverse=True):
        rest = path.removeprefix(prefix)
        if path.startswith(prefix) and (not prefix or rest.startswith((".", "[")) or not rest):
            separator = "" if prefix or not rest or rest.startswith("[") else "."
            return f"{places[prefix]}{separator}{rest}".lstrip(".")
    return path
