"""TensorFlow Serving's names for model states. The codes are those of `google.rpc.Code`."""

import json
from collections.abc import Sequence
from typing import Any

from app.engine.models.registry import ModelState, Registration

__all__ = ("OK", "indented_json", "model_status")

OK = "OK"

_UNKNOWN = "UNKNOWN"


def model_status(registrations: Sequence[Registration], withheld: str) -> dict[str, Any]:
    """Return a `GetModelStatusResponse` in protobuf's JSON, with the versions in the given order.

    Args:
        registrations: the versions.
        withheld: the reason why clients must not send requests to any version; empty if they may.
    """
    return {"model_version_status": [_version_status(registration, withheld) for registration in registrations]}


def indented_json(document: dict[str, Any]) -> bytes:
    """Return JSON in the layout of protobuf's own writer."""
    return f"{json.dumps(document, indent=1, ensure_ascii=False)}\n".encode()


def _version_status(registration: Registration, withheld: str) -> dict[str, Any]:
    state, code, message = "END", OK, ""
    match registration.state:
        case ModelState.LOADING:
            state = "LOADING"
        case ModelState.READY:
            state = "AVAILABLE"
            if withheld:
                # The real server's state for a version that finishes its requests and accepts no new ones.
                state, code, message = "UNLOADING", "UNAVAILABLE", withheld
        case ModelState.UNAVAILABLE:
            if registration.enabled:
                code, message = _UNKNOWN, registration.reason
    return {
        "version": registration.source.version,
        "state": state,
        "status": {"error_code": code, "error_message": message},
    }
