"""Which version of which model a path means."""

from collections.abc import Sequence

from app.engine.registry import Registration, Registry
from app.protocols.tensorflow_serving.paths import Address
from tasks.exchange.error import ErrorKind, InferenceError, invalid

__all__ = ("servable_for", "versions_for")


def servable_for(registry: Registry, address: Address) -> Registration:
    """The registration that answers: the version asked for, or the latest that is ready.

    Raises:
        InferenceError: MODEL_NOT_FOUND when none is ready, which is all that the real server says of it, and
            INVALID_REQUEST for an unknown label.
    """
    found, asked = registry.versions(address.model), f"Latest({address.model})"
    if address.label is not None:
        version = registry.labelled(address.model, address.label)
        if version is None:
            raise invalid(f"Unrecognized servable version label: {address.label}")
        found, asked = _of_version(found, version), f"Specific({address.model}, {version})"
    elif address.version is not None:
        found = _of_version(found, str(address.version))
        asked = f"Specific({address.model}, {address.version})"
    for registration in found:
        if registration.servable is not None:
            return registration
    raise InferenceError(ErrorKind.MODEL_NOT_FOUND, f"Servable not found for request: {asked}")


def versions_for(registry: Registry, address: Address) -> Sequence[Registration]:
    """What a question for the status is about: one version, or all of them, the latest first. A label narrows nothing.

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
    """Versions are numbers here: a folder called 007 is version 7."""
    return [each for each in registrations if _plain(each.source.version) == _plain(version)]


def _plain(version: str) -> str:
    return version.lstrip("0") or "0" if version.isdecimal() else version
