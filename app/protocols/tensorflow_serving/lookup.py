"""Find the model version that a path means."""

from collections.abc import Sequence

from app.engine.registry import ModelState, Registration, Registry
from app.protocols.tensorflow_serving.paths import Address
from tasks.exchange.error import ErrorKind, InferenceError, invalid

__all__ = ("servable_for", "versions_for")


def servable_for(
    registry: Registry, address: Address, if_loading: ErrorKind = ErrorKind.MODEL_NOT_FOUND
) -> Registration:
    """Return the registration that answers: the requested version, or the latest version that is ready.

    Args:
        registry: the models.
        address: the model, and its version or label.
        if_loading: the kind of error while no version is ready and one is loading. The real server says NOT_FOUND.

    Raises:
        InferenceError: `if_loading`; MODEL_NOT_FOUND when no version is ready or loading; INVALID_REQUEST for an
            unknown label.
    """
    found, request_text = registry.versions(address.model), f"Latest({address.model})"
    if address.label is not None:
        version = registry.labelled(address.model, address.label)
        if version is None:
            raise invalid(f"Unrecognized servable version label: {address.label}")
        found, request_text = _of_version(found, version), f"Specific({address.model}, {version})"
    elif address.version is not None:
        found = _of_version(found, str(address.version))
        request_text = f"Specific({address.model}, {address.version})"
    for registration in found:
        if registration.servable is not None:
            return registration
    loading = any(registration.state is ModelState.LOADING for registration in found)
    kind = if_loading if loading else ErrorKind.MODEL_NOT_FOUND
    raise InferenceError(kind, f"Servable not found for request: {request_text}")


def versions_for(registry: Registry, address: Address) -> Sequence[Registration]:
    """Return the versions of a status request: one version, or all, the latest first. A label is ignored.

    Raises:
        InferenceError: MODEL_NOT_FOUND.
    """
    found = registry.versions(address.model)
    if address.version is not None:
        found = _of_version(found, str(address.version))
        message = f"Could not find version {address.version} of model {address.model}"
    else:
        message = f"Could not find any versions of model {address.model}"
    if not found:
        raise InferenceError(ErrorKind.MODEL_NOT_FOUND, message)
    return found


def _of_version(registrations: Sequence[Registration], version: str) -> Sequence[Registration]:
    """Return the registrations of a version. Versions are numbers here: a folder called 007 is version 7."""
    return [
        registration
        for registration in registrations
        if _without_zeros(registration.source.version) == _without_zeros(version)
    ]


def _without_zeros(version: str) -> str:
    return version.lstrip("0") or "0" if version.isdecimal() else version
