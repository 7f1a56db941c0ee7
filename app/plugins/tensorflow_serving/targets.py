"""Parse paths of the REST API, find the versions that they name, and report their states under the real server's names.

The rules for paths come from tensorflow/serving, `http_rest_api_util.cc`.
"""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, cast
from urllib.parse import unquote

import msgspec

from app.core.engine.models.registry import ModelState, Registration, Registry
from app.plugins.tensorflow_serving.settings import LabelSettings
from tasks.inference.error import ErrorKind, InferenceError, invalid

TENSORFLOW_SERVING = "tensorflow-serving"

Verb = Literal["predict", "classify", "regress", "status", "metadata"]

_VERSION_OR_LABEL = r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
_POST = re.compile(
    rf"/v1/models/(?P<model>[^/:]+){_VERSION_OR_LABEL}:(?P<verb>classify|regress|predict)", re.IGNORECASE | re.ASCII
)
_GET = re.compile(
    rf"/v1/models(?:/(?P<model>[^/:]+))?{_VERSION_OR_LABEL}(?:/(?P<verb>metadata))?", re.IGNORECASE | re.ASCII
)

MAX_VERSION = 2**63 - 1
_MAX_DIGITS = 19
_STATES = {ModelState.LOADING: "LOADING", ModelState.READY: "AVAILABLE", ModelState.UNAVAILABLE: "END"}


class ModelTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The target of a path.

    Attributes:
        model: name of the model.
        version: the requested version; None for the latest version, or for the version of `label`.
        label: the version's label.
        verb: the requested operation; only for REST.
    """

    model: str
    version: int | None = None
    label: str | None = None
    verb: Verb = "predict"


def is_api_path(path: str) -> bool:
    """Return whether the API handles `path`, even if only with an error."""
    return path[:4].lower() == "/v1/"


def parse_target(method: str, path: str) -> ModelTarget:
    """Parse the target of `method`, in capitals, on `path`.

    The path is as received: percent-encoded, and with its query, which the real server treats as a part of it. Raise
    INVALID_REQUEST.
    """
    match = {"GET": _GET, "POST": _POST}[method].fullmatch(path) if method in ("GET", "POST") else None
    malformed = invalid(f"Malformed request: {method} {path}")
    if match is None:
        raise malformed
    version = read_version(match["version"])
    verb = match["verb"] or "status"
    # Paths are case-insensitive, but the real server knows verbs only in lower case.
    if method == "POST" and verb != verb.lower():
        raise malformed
    if match["model"] is None:
        raise invalid("Missing model name in request.")
    return ModelTarget(
        model=unquote(match["model"]),
        version=version,
        label=None if match["label"] is None else unquote(match["label"]),
        verb=cast("Verb", verb if verb == verb.lower() else "status"),
    )


def served_methods(path: str) -> list[str]:
    """Return the methods that the API answers at `path`, sorted."""
    methods = ["OPTIONS"]
    for method in ("GET", "POST"):
        with suppress(InferenceError):
            parse_target(method, path)
            methods.append(method)
    return sorted(methods)


def read_version(digits: str | None) -> int | None:
    """Return the version in a path, if any. Raise INVALID_REQUEST for a version that is too large."""
    if digits is None:
        return None
    significant = digits.lstrip("0") or "0"
    if len(significant) > _MAX_DIGITS or int(significant) > MAX_VERSION:
        raise invalid(f"Failed to convert version: {digits} to numeric.")
    return int(significant)


def find_ready_version(registry: Registry, target: ModelTarget) -> Registration:
    """Return the registration that serves the request: the requested version, or the latest version that is ready.

    Raise MODEL_NOT_FOUND when no version is ready, also while one is loading, as the real server does;
    INVALID_REQUEST for an unknown label.
    """
    registrations, version = registry.versions(target.model), None
    if target.label is not None:
        labels = (registration.source.settings.of(LabelSettings).version_labels for registration in registrations)
        version = next((found[target.label] for found in labels if target.label in found), None)
        if version is None:
            raise invalid(f"Unrecognized servable version label: {target.label}")
    elif _names_version(registrations, target):
        version = str(target.version)
    if version is not None:
        registrations = _with_version(registrations, version)
    for registration in registrations:
        if registration.servable is not None:
            return registration
    requested = f"Latest({target.model})" if version is None else f"Specific({target.model}, {version})"
    raise InferenceError(ErrorKind.MODEL_NOT_FOUND, f"Servable not found for request: {requested}")


def find_versions(registry: Registry, target: ModelTarget) -> Sequence[Registration]:
    """Return the versions of a status request: one version, or all, the latest first. A label is ignored.

    Raise MODEL_NOT_FOUND.
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

    The error codes have the names of `google.rpc.Code`. `withheld` is the reason why clients must not send requests to
    any version; empty if they may.
    """
    statuses: list[dict[str, Any]] = []
    for registration in registrations:
        state, code, message = _STATES[registration.state], "OK", ""
        if registration.state is ModelState.READY and withheld:
            # The real server's state for a version that finishes its requests and accepts no new ones.
            state, code, message = "UNLOADING", "UNAVAILABLE", withheld
        elif registration.state is ModelState.UNAVAILABLE and registration.enabled:
            code, message = "UNKNOWN", registration.reason
        status = {"error_code": code, "error_message": message}
        statuses.append({"version": registration.source.version, "state": state, "status": status})
    return {"model_version_status": statuses}


def indented_json(document: dict[str, Any]) -> bytes:
    """Return JSON in the layout of protobuf's own writer."""
    return f"{json.dumps(document, indent=1, ensure_ascii=False)}\n".encode()


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
