"""Find the versions of a model that a path names, and report their states under TensorFlow Serving's names."""

import json
from collections.abc import Sequence
from typing import Any, Literal

from app.engine.models.registry import ModelState, Registration, Registry
from app.protocols.tensorflow_serving.paths import ModelTarget
from tasks.inference.error import ErrorKind, InferenceError, invalid

OK = "OK"
"""The codes of states are those of `google.rpc.Code`."""

LoadingStatus = Literal[404, 503]
"""The HTTP status for a model that is loading."""


def loading_error(status: LoadingStatus) -> ErrorKind:
    """Return the kind of error for a model that is loading."""
    return ErrorKind.MODEL_NOT_READY if status == 503 else ErrorKind.MODEL_NOT_FOUND


def find_ready_version(
    registry: Registry, target: ModelTarget, loading_error: ErrorKind = ErrorKind.MODEL_NOT_FOUND
) -> Registration:
    """Return the registration that serves the request: the requested version, or the latest version that is ready.

    Raises:
        InferenceError: `loading_error` when no version is ready and one is loading, NOT_FOUND in the real server;
            MODEL_NOT_FOUND when none is ready or loading; INVALID_REQUEST for an unknown label.
    """
    registrations, request_text = registry.versions(target.model), f"Latest({target.model})"
    if target.label is not None:
        version = registry.version_with_label(target.model, target.label)
        if version is None:
            raise invalid(f"Unrecognized servable version label: {target.label}")
        registrations, request_text = _with_version(registrations, version), f"Specific({target.model}, {version})"
    elif _names_version(registrations, target):
        registrations = _with_version(registrations, str(target.version))
        request_text = f"Specific({target.model}, {target.version})"
    for registration in registrations:
        if registration.servable is not None:
            return registration
    loading = any(registration.state is ModelState.LOADING for registration in registrations)
    error_kind = loading_error if loading else ErrorKind.MODEL_NOT_FOUND
    raise InferenceError(error_kind, f"Servable not found for request: {request_text}")


def find_versions(registry: Registry, target: ModelTarget) -> Sequence[Registration]:
    """Return the versions of a status request: one version, or all, the latest first. A label is ignored.

    Raises:
        InferenceError: MODEL_NOT_FOUND.
    """
    registrations = registry.versions(target.model)
    if _names_version(registrations, target):
        registrations = _with_version(registrations, str(target.version))
        message = f"Could not find version {target.version} of model {target.model}"
    else:
        message = f"Could not find any versions of model {target.model}"
    if not registrations:
        raise InferenceError(ErrorKind.MODEL_NOT_FOUND, message)
    return registrations


def model_status(registrations: Sequence[Registration], withheld: str) -> dict[str, Any]:
    """Return a `GetModelStatusResponse` in protobuf's JSON, with the versions in the given order.

    `withheld` is the reason why clients must not send requests to any version; empty if they may.
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
                code, message = "UNKNOWN", registration.reason
    return {
        "version": registration.source.version,
        "state": state,
        "status": {"error_code": code, "error_message": message},
    }


def _names_version(registrations: Sequence[Registration], target: ModelTarget) -> bool:
    """Return whether `target` asks for one version. OpenVINO's client writes 0 for the latest version."""
    return target.version is not None and (target.version != 0 or bool(_with_version(registrations, "0")))


def _with_version(registrations: Sequence[Registration], version: str) -> Sequence[Registration]:
    """Return the registrations of a version. Versions are numbers here: a folder called 007 is version 7."""
    return [
        registration
        for registration in registrations
        if _without_zeros(registration.source.version) == _without_zeros(version)
    ]


def _without_zeros(version: str) -> str:
    return version.lstrip("0") or "0" if version.isdecimal() else version
