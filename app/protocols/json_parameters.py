"""The `parameters` object of JSON protocols, in which `metadata` is carried through without being read."""

from collections.abc import Mapping

import msgspec

from app.protocols.json_body import read_json
from metadata.entry import PARAMETER
from tasks.exchange.error import invalid

__all__ = ("read_parameters_object",)


def read_parameters_object(raw: Mapping[str, msgspec.Raw] | None, path: str) -> Mapping[str, object]:
    """Every parameter as a plain value, but `metadata` as the bytes it came in, so that it can go back unchanged.

    Raises:
        InferenceError: INVALID_REQUEST naming the parameter under `path` that cannot be read.
    """
    if not raw:
        return {}
    return {
        name: _unread(value, f"{path}.{name}") if name == PARAMETER else read_json(value, object, f"{path}.{name}")
        for name, value in raw.items()
    }


def _unread(raw: msgspec.Raw, path: str) -> msgspec.Raw:
    try:
        str(raw, "utf-8")
    except UnicodeDecodeError:
        raise invalid("Expected JSON in UTF-8, got other bytes", path) from None
    return raw.copy()
