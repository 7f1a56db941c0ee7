"""The `parameters` object of JSON protocols, in which `metadata` is carried through without being read."""

from collections.abc import Mapping

import msgspec

from app.protocols.json_body import read_json
from metadata.entry import PARAMETER

__all__ = ("read_parameters_object",)


def read_parameters_object(raw: Mapping[str, msgspec.Raw] | None, path: str) -> Mapping[str, object]:
    """Every parameter as a plain value, but `metadata` as the bytes it came in, so that it can go back unchanged.

    Raises:
        InferenceError: INVALID_REQUEST naming the parameter under `path` that cannot be read.
    """
    if not raw:
        return {}
    return {
        name: value.copy() if name == PARAMETER else read_json(value, object, f"{path}.{name}")
        for name, value in raw.items()
    }
