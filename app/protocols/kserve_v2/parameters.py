"""Request parameters of V2 for the server itself, shared by REST and gRPC."""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from tasks.inference.parameters import read_parameters

_MICROSECONDS = 1_000_000
_MAX_DAYS = 30


class _Parameters(msgspec.Struct, frozen=True):
    timeout: Annotated[int, msgspec.Meta(ge=0, le=_MAX_DAYS * 24 * 3600 * _MICROSECONDS)] = 0


def read_timeout(parameters: Mapping[str, object]) -> float | None:
    """Return Triton's ``timeout`` in seconds, from microseconds in the request; None when it is absent or 0.

    Raises:
        InferenceError: INVALID_REQUEST for values other than an integer of at most 30 days.
    """
    microseconds = read_parameters(_Parameters, parameters).timeout
    return microseconds / _MICROSECONDS if microseconds else None
