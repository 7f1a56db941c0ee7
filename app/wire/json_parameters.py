"""The `parameters` object of JSON protocols. Its `metadata` passes through unparsed."""

from collections.abc import Mapping

import msgspec

from app.wire.json_body import read_json
from metadata.entry import METADATA_PARAMETER
from tasks.inference.error import invalid

__all__ = ("read_parameters_object",)


def read_parameters_object(raw: Mapping[str, msgspec.Raw] | None, path: str) -> Mapping[str, object]:
    """Decode every parameter except `metadata`, which stays as received so that it can be returned unchanged.

    Raises:
        InferenceError: INVALID_REQUEST naming the invalid parameter under `path`.
    """
    if not raw:
        return {}
    parameters: dict[str, object] = {}
    for name, value in raw.items():
        value_path = f"{path}.{name}"
        is_metadata = name == METADATA_PARAMETER
        parameters[name] = _raw_utf8(value, value_path) if is_metadata else read_json(value, object, value_path)
    return parameters


def _raw_utf8(raw: msgspec.Raw, path: str) -> msgspec.Raw:
    try:
        str(raw, "utf-8")
    except UnicodeDecodeError:
        raise invalid("Expected JSON in UTF-8, got other bytes", path) from None
    return raw.copy()
